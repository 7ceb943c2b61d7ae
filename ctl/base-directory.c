#include "ctl/base-directory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "lib/endpoint.h"

void runtime_directory_done(RuntimeDirectory *d)
{
        close_fd(d->fd);
        free(d->path);
        free(d->prefix);
        *d = (RuntimeDirectory) RUNTIME_DIRECTORY_INIT;
}

static int make_missing(const char *path, char **ret_error)
{
        _cleanup_close_ int root = -EBADF, fd = -EBADF;

        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        fd = path_make_directories_in_root(root, path, 0700, NULL);
        if (fd < 0)
                (void) text_format(ret_error,
                                   "cannot make directory %s: %s; choose another one with --base-dir", path,
                                   strerror(-fd));
        return fd < 0 ? fd : 0;
}

/* Opened once and judged by the descriptor, so that nothing is swapped in between. */
static int open_directory(const char *path, struct stat *ret_st, char **ret_error)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT) {
                r = make_missing(path, ret_error);
                if (r < 0)
                        return r;
                fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (fd < 0) {
                r = -errno;
                if (r == -ELOOP || r == -ENOTDIR)
                        (void) text_format(ret_error,
                                           "%s is a link or no directory: name the directory itself with "
                                           "--base-dir",
                                           path);
                else
                        (void) text_format(ret_error,
                                           "cannot open directory %s: %s; choose another one with --base-dir",
                                           path, strerror(-r));
                return r;
        }
        if (fstat(fd, ret_st) < 0)
                return -errno;
        return TAKE_FD(fd);
}

static int refuse(const char *path, const struct stat *st, char **ret_error)
{
        (void) text_format(
                ret_error,
                "directory %s belongs to uid %u with mode %04o; it must belong to you (uid %u) and not be "
                "writable by others: change that, or choose another one with --base-dir",
                path, (unsigned) st->st_uid, (unsigned) (st->st_mode & 07777), (unsigned) geteuid());
        return -EPERM;
}

int private_directory_open(const char *path, char **ret_error)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st = {0};

        fd = open_directory(path, &st, ret_error);
        if (fd < 0)
                return fd;
        if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
                return refuse(path, &st, ret_error);
        return TAKE_FD(fd);
}

int runtime_directory_place(const Target *t, RuntimeDirectory *ret)
{
        _cleanup_runtime_directory_ RuntimeDirectory d = RUNTIME_DIRECTORY_INIT;
        const char *name = NULL;
        int r;

        r = path_split(t->socket, &d.path, &name);
        if (r < 0)
                return r;
        if (t->scope == TARGET_SOCKET)
                r = text_format(&d.prefix, "%s.", name);
        else
                r = text_format(&d.prefix, "%s", "");
        if (r < 0)
                return r;
        *ret = d;
        d = (RuntimeDirectory) RUNTIME_DIRECTORY_INIT;
        return 0;
}

int runtime_directory_open(const Target *t, RuntimeDirectory *ret, char **ret_error)
{
        _cleanup_runtime_directory_ RuntimeDirectory d = RUNTIME_DIRECTORY_INIT;
        struct stat st = {0};
        int r;

        r = runtime_directory_place(t, &d);
        if (r < 0)
                return r;
        if (t->scope != TARGET_SOCKET) {
                d.fd = private_directory_open(d.path, ret_error);
                if (d.fd < 0)
                        return d.fd;
        } else {
                d.fd = open_directory(d.path, &st, ret_error);
                if (d.fd < 0)
                        return d.fd;
                /* In a shared directory that is sticky nobody can replace what is ours. */
                if ((st.st_mode & (S_IWGRP | S_IWOTH)) ? !(st.st_mode & S_ISVTX)
                                                       : st.st_uid != geteuid() && st.st_uid != 0)
                        return refuse(d.path, &st, ret_error);
        }
        *ret = d;
        d = (RuntimeDirectory) RUNTIME_DIRECTORY_INIT;
        return 0;
}
