/* Writing and judging the marker. What is judged may have been put there by anybody. */
#include "checkpoint/view-marker.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/view.h"

#define MARKER_SIZE_MAX 1024

int view_marker_write(int directory_fd, const char *name, mode_t mode)
{
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_free_ char *line = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        o = json_object_new_object();
        if (!o)
                return -ENOMEM;
        if ((r = json_add_int(o, "iloaderView", 1)) < 0 || (r = json_add_string(o, "name", name)) < 0 ||
            (r = json_add_size(o, "uid", geteuid())) < 0)
                return r;
        r = text_format(&line, "%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
        if (r < 0)
                return r;

        /* An empty one is left by a writer that was killed between the two steps below. */
        if (unlinkat(directory_fd, VIEW_MARKER, 0) < 0 && errno != ENOENT)
                return -errno;
        fd = openat(directory_fd, VIEW_MARKER, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        r = fd_write_full(fd, line, strlen(line));
        if (r < 0)
                (void) unlinkat(directory_fd, VIEW_MARKER, 0);
        return r;
}

static bool is_ours(const struct stat *st)
{
        return S_ISREG(st->st_mode) && (st->st_uid == geteuid() || st->st_uid == 0);
}

int view_marker_check(int directory_fd, const char *name, char **ret_name)
{
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        const char *marked;
        struct stat st;
        uint64_t uid;
        int64_t version;
        size_t n;
        char *copy;
        int r;

        *ret_name = NULL;
        fd = openat(directory_fd, VIEW_MARKER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? -ENODATA : errno == ELOOP || errno == ENXIO ? -EEXIST : -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!is_ours(&st))
                return -EEXIST;
        r = fd_read_file(fd, MARKER_SIZE_MAX, &text, &n);
        if (r < 0)
                return r == -EFBIG ? -EEXIST : r;
        r = json_parse_strict(text, n, &o, NULL);
        if (r < 0)
                return r == -EBADMSG ? -EEXIST : r;
        if (!json_object_is_type(o, json_type_object) || json_get_int(o, "iloaderView", &version) < 0 ||
            version != 1 || json_get_size(o, "uid", &uid) < 0 || uid != geteuid() ||
            json_get_string(o, "name", &marked) < 0)
                return -EEXIST;
        if (streq(marked, name))
                return 0;
        copy = strdup(marked);
        if (!copy)
                return -ENOMEM;
        *ret_name = copy;
        return -EREMCHG;
}

int view_marker_directory_is_empty(int directory_fd)
{
        _cleanup_close_ int fd = -EBADF;
        const struct dirent *entry;
        struct stat st;
        DIR *d;
        int r = 1;

        fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        d = fdopendir(fd);
        if (!d)
                return -errno;
        (void) TAKE_FD(fd);
        while (r > 0) {
                errno = 0;
                entry = readdir(d);
                if (!entry) {
                        r = errno != 0 ? -errno : 1;
                        break;
                }
                if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
                        continue;
                r = streq(entry->d_name, VIEW_MARKER) &&
                    fstatat(directory_fd, VIEW_MARKER, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_ours(&st) &&
                    st.st_size == 0;
        }
        (void) closedir(d);
        return r;
}
