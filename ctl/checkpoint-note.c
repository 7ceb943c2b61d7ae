#include "ctl/checkpoint-note.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "ctl/output.h"

/* Entries that are looked at in each directory, and directories that are looked into: a note is not worth
 * more. */
#define ENTRIES_MAX     1024U
#define DIRECTORIES_MAX 64U

DEFINE_CLEANUP(DIR *, closedir)

static bool belongs_to_checkpoint(const char *name)
{
        static const char *const patterns[] = {
                "config.json", "model_index.json", "*.gguf", "*.safetensors", "*.bin", "*.pt", "*.pth",
        };

        for (size_t i = 0; i < ELEMENTSOF(patterns); i++)
                if (fnmatch(patterns[i], name, 0) == 0)
                        return true;
        return false;
}

static DIR *open_directory(int parent, const char *name)
{
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

        if (!d)
                close_fd(fd);
        return d;
}

/* Whether a directory holds a part of a checkpoint itself. */
static bool holds_checkpoint(int parent, const char *name)
{
        _cleanup_(closedirp) DIR *d = open_directory(parent, name);
        const struct dirent *entry;

        for (unsigned n = 0; d && n < ENTRIES_MAX && (entry = readdir(d)); n++)
                if (belongs_to_checkpoint(entry->d_name))
                        return true;
        return false;
}

void checkpoint_note(const char *path)
{
        _cleanup_(closedirp) DIR *d = open_directory(AT_FDCWD, path);
        const struct dirent *entry;
        unsigned several = 0, seen = 0;

        for (unsigned n = 0; d && n < ENTRIES_MAX && (entry = readdir(d)); n++) {
                if (belongs_to_checkpoint(entry->d_name))
                        return;
                if (entry->d_name[0] != '.' && seen < DIRECTORIES_MAX &&
                    (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK)) {
                        seen++;
                        several += holds_checkpoint(dirfd(d), entry->d_name);
                }
        }
        if (several > 1)
                output_note("note: no configuration and no weights are at the top of %s, but several of its "
                            "directories "
                            "hold some: all of them are taken as one checkpoint; name one of them to take "
                            "that alone",
                            path);
}
