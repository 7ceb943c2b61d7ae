/* Opening what the selection found. Most files are opened below the source's own descriptor, in one call;
 * what that doesn't settle (links, whose targets start at the root directory of whoever named them) is
 * resolved from the root. */
#include "checkpoint/source.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"

/* As many as the kernel follows (path_resolution(7)). */
#define LINKS_MAX 40U

void source_done(Source *s)
{
        s->fd = close_fd(s->fd);
        free(s->path);
        free(s->real_path);
        *s = (Source){.root_fd = -EBADF, .fd = -EBADF};
}

/* A path that is being resolved: done holds no links any more, rest is still to be walked. */
typedef struct Resolution {
        int root_fd;
        unsigned links;
        size_t n; /* length of done; 0 is the root */
        char done[PATH_MAX];
        char rest[PATH_MAX];
} Resolution;

/* done's last component turned out to be a link: replaces it by the link's text. */
static int resolution_follow(Resolution *s, int fd, size_t before, size_t used)
{
        char target[PATH_MAX];
        size_t left = strlen(s->rest) - used;
        ssize_t n;

        if (++s->links > LINKS_MAX)
                return -ELOOP;
        n = readlinkat(fd, "", target, sizeof(target));
        if (n < 0)
                return -errno;
        if (n == 0)
                return -ENOENT;
        if ((size_t) n + left >= sizeof(s->rest))
                return -ENAMETOOLONG;
        memmove(s->rest + n, s->rest + used, left + 1); /* left begins with '/' or is empty */
        memcpy(s->rest, target, (size_t) n);
        s->n = target[0] == '/' ? 0 : before;
        s->done[s->n] = '\0';
        return 0;
}

/* Takes the next component off rest: 1, or 0 where nothing is left. */
static int resolution_step(Resolution *s)
{
        _cleanup_close_ int fd = -EBADF;
        size_t skip = strspn(s->rest, "/"), length = strcspn(s->rest + skip, "/"), before = s->n;
        const char *component = s->rest + skip;
        struct stat st;

        if (length == 0)
                return 0;
        if (length == 2 && memcmp(component, "..", 2) == 0) {
                while (s->n > 0 && s->done[s->n - 1] != '/')
                        s->n--;
                if (s->n > 0)
                        s->n--;
                s->done[s->n] = '\0';
        } else if (length != 1 || component[0] != '.') {
                if (s->n + 1 + length >= sizeof(s->done))
                        return -ENAMETOOLONG;
                s->done[s->n] = '/';
                memcpy(s->done + s->n + 1, component, length);
                s->n += 1 + length;
                s->done[s->n] = '\0';

                fd = path_open_in_root(s->root_fd, s->done, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
                if (fd < 0)
                        return fd;
                if (fstat(fd, &st) < 0)
                        return -errno;
                if (S_ISLNK(st.st_mode)) {
                        int r = resolution_follow(s, fd, before, skip + length);
                        return r < 0 ? r : 1;
                }
                if (!S_ISDIR(st.st_mode) && component[length] != '\0')
                        return -ENOTDIR;
        }
        memmove(s->rest, s->rest + skip + length, strlen(s->rest + skip + length) + 1);
        return 1;
}

int source_real_path(int root_fd, const char *path, char **ret)
{
        _cleanup_free_ Resolution *s = NULL;
        char *real;
        int r;

        if (!path_is_absolute(path))
                return -EINVAL;
        s = malloc(sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->root_fd = root_fd;
        s->links = 0;
        s->n = 0;
        s->done[0] = '\0';
        if (strlen(path) >= sizeof(s->rest))
                return -ENAMETOOLONG;
        memcpy(s->rest, path, strlen(path) + 1);

        do
                r = resolution_step(s);
        while (r > 0);
        if (r < 0)
                return r;

        real = strdup(s->n > 0 ? s->done : "/");
        if (!real)
                return -ENOMEM;
        *ret = real;
        return 0;
}

static int refuse_directory(SourceFault *fault, const char *path, int error)
{
        if (error == -ENOMEM)
                return error;
        if (error == -ENOENT)
                return source_fault_refuse(
                        fault, SOURCE_INVALID, path, NULL,
                        "does not exist: name a directory that holds a downloaded checkpoint");
        if (error == -ENOTDIR)
                return source_fault_refuse(
                        fault, SOURCE_INVALID, path, NULL,
                        "is not a directory: name the directory that holds the file, and choose "
                        "the file with --pattern");
        errno = -error;
        return source_fault_refuse(fault, SOURCE_INVALID, path, NULL,
                                   "can't be opened: %m: the cache's owner must be able to read it");
}

int source_open(int root_fd, const char *path, Source *ret, SourceFault *ret_fault)
{
        _cleanup_source_ Source s = {.root_fd = root_fd, .fd = -EBADF};
        _cleanup_close_ int again = -EBADF;
        struct stat a, b;
        int r;

        if (!path_is_absolute(path))
                return source_fault_refuse(ret_fault, SOURCE_INVALID, path, NULL,
                                           "is not an absolute path of less than %d bytes", PATH_MAX);
        r = path_normalize(path, &s.path);
        if (r < 0)
                return r;
        s.fd = path_open_in_root(root_fd, s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        if (s.fd < 0)
                return refuse_directory(ret_fault, s.path, s.fd);
        r = source_real_path(root_fd, s.path, &s.real_path);
        if (r < 0)
                return refuse_directory(ret_fault, s.path, r);

        /* Two looks: they must have led to one directory. */
        again = path_open_in_root(root_fd, s.real_path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        if (again < 0)
                return refuse_directory(ret_fault, s.path, again);
        if (fstat(s.fd, &a) < 0 || fstat(again, &b) < 0)
                return refuse_directory(ret_fault, s.path, -errno);
        if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
                return source_fault_refuse(
                        ret_fault, SOURCE_CHANGED, s.path, NULL,
                        "was replaced while it was opened: start again when it is at rest");
        *ret = (Source){
                .root_fd = root_fd,
                .fd = TAKE_FD(s.fd),
                .path = TAKE_PTR(s.path),
                .real_path = TAKE_PTR(s.real_path),
        };
        return 0;
}

static int open_from_root(const Source *s, const SelectedFile *file, int flags)
{
        _cleanup_free_ char *full = NULL;
        int r;

        r = path_join(s->real_path, file->path, &full);
        if (r < 0)
                return r;
        return path_open_in_root(s->root_fd, full, flags, 0);
}

static int compare_identity(const Source *s, const SelectedFile *file, const struct stat *st,
                            SourceFault *fault)
{
        const FileIdentity *was = &file->identity, is = file_identity_from_stat(st);
        const char *what = !S_ISREG(st->st_mode) ? "is no regular file any more"
                           : was->device != is.device || was->inode != is.inode
                                   ? "was replaced by another file"
                           : was->size != is.size         ? "has another size"
                           : was->mtime_ns != is.mtime_ns ? "was written to"
                                                          : "had its metadata changed";

        if (S_ISREG(st->st_mode) && file_identity_equal(was, &is))
                return 0;
        return source_fault_refuse(fault, SOURCE_CHANGED, s->path, file->path,
                                   "%s since it was selected (%" PRIu64 " bytes then, %" PRIu64
                                   " now): start again when the source is at rest",
                                   what, was->size, is.size);
}

static int refuse_file(const Source *s, const SelectedFile *file, int error, SourceFault *fault)
{
        if (error == -ENOMEM)
                return error;
        if (error == -ENOENT || error == -ENOTDIR || error == -ELOOP)
                return source_fault_refuse(
                        fault, SOURCE_CHANGED, s->path, file->path,
                        "is gone since it was selected: start again when the source is at rest");
        errno = -error;
        if (error == -EACCES || error == -EPERM)
                return source_fault_refuse(
                        fault, SOURCE_INVALID, s->path, file->path,
                        "can't be read: %m: give the cache's owner read permission or leave it "
                        "out with --exclude");
        return source_fault_refuse(fault, SOURCE_INVALID, s->path, file->path, "can't be opened: %m");
}

/* The short way: below the source's descriptor and through no link. What it opens counts only if it is the
 * file that was selected. */
static int open_below(const Source *s, const SelectedFile *file, int flags)
{
        int fd;

        if (strchr(file->path, '/'))
                return path_open_in_root(s->fd, file->path, flags | O_NOFOLLOW, 0);
        fd = openat(s->fd, file->path, flags | O_NOFOLLOW);
        return fd < 0 ? -errno : fd;
}

static bool is_selected(const SelectedFile *file, const struct stat *st)
{
        FileIdentity identity = file_identity_from_stat(st);

        return S_ISREG(st->st_mode) && file_identity_equal(&file->identity, &identity);
}

int source_open_file(const Source *s, const SelectedFile *file, int *ret_fd, SourceFault *ret_fault)
{
        /* O_NONBLOCK: a pipe that took the file's place must not hold us. */
        const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r;

        fd = open_below(s, file, flags);
        if (fd == -EMFILE || fd == -ENFILE)
                return refuse_file(s, file, fd, ret_fault);
        if (fd < 0 || fstat(fd, &st) < 0 || !is_selected(file, &st)) {
                _cleanup_close_ int look = -EBADF;

                /* Looked at before it is opened: what stands there now may be a device. */
                close_fdp(&fd);
                look = open_from_root(s, file, O_PATH | O_CLOEXEC);
                if (look < 0)
                        return refuse_file(s, file, look, ret_fault);
                if (fstat(look, &st) < 0)
                        return refuse_file(s, file, -errno, ret_fault);
                r = compare_identity(s, file, &st, ret_fault);
                if (r < 0)
                        return r;
                fd = open_from_root(s, file, flags);
                if (fd < 0)
                        return refuse_file(s, file, fd, ret_fault);
                if (fstat(fd, &st) < 0)
                        return refuse_file(s, file, -errno, ret_fault);
                r = compare_identity(s, file, &st, ret_fault);
                if (r < 0)
                        return r;
        }
        if (fcntl(fd, F_SETFL, 0) < 0) /* no other status flag was set */
                return refuse_file(s, file, -errno, ret_fault);
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int source_check_file(const Source *s, const SelectedFile *file, SourceFault *ret_fault)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (!strchr(file->path, '/') && fstatat(s->fd, file->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            is_selected(file, &st))
                return 0;
        /* Only the way from the root says what a link leads to, and only its answer is a refusal. */
        fd = open_from_root(s, file, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return refuse_file(s, file, fd, ret_fault);
        if (fstat(fd, &st) < 0)
                return refuse_file(s, file, -errno, ret_fault);
        return compare_identity(s, file, &st, ret_fault);
}
