/* See logfile.h. */
#include "daemon/worker/logfile.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"

void log_file_settle(LogFile *l)
{
        l->dir_fd = close_fd(l->dir_fd);
        free(l->name);
        l->name = NULL;
}

void log_file_done(LogFile *l)
{
        log_file_settle(l);
        close_fd(l->fd);
        *l = (LogFile) LOG_FILE_INIT;
}

/* Non-blocking, so that a FIFO of that name does not hold us. */
static int log_file_open_at(LogFile *l, bool create)
{
        const int flags = O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

        if (create) {
                l->fd = openat(l->dir_fd, l->name, flags | O_CREAT | O_EXCL, 0640);
                if (l->fd >= 0) {
                        l->created = true;
                        return 0;
                }
                if (errno != EEXIST)
                        return -errno;
        }
        l->fd = openat(l->dir_fd, l->name, flags);
        return l->fd < 0 ? -errno : 0;
}

static int log_file_fail(Failure *f, int error, const char *path)
{
        _cleanup_free_ char *shown = NULL;

        (void) path_escape(path, &shown);
        if (error == -ELOOP)
                return failure_set(f, error, FAILURE_LOAD_FAILED, path,
                                   "log file %s is a symbolic link: name its target", shown ? shown : path);
        return failure_set(f, error, FAILURE_LOAD_FAILED, path,
                           "cannot open the log file %s: %m: name another log file", shown ? shown : path);
}

int log_file_open(int root_fd, const char *path, bool create, LogFile *ret, Failure *ret_failure)
{
        _cleanup_log_file_ LogFile l = LOG_FILE_INIT;
        _cleanup_free_ char *parent = NULL;
        const char *name;
        struct stat st;
        int r;

        r = path_split(path, &parent, &name);
        if (r < 0)
                return log_file_fail(ret_failure, r, path);
        l.name = strdup(name);
        if (!l.name)
                return log_file_fail(ret_failure, -ENOMEM, path);
        l.dir_fd = path_open_in_root(root_fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        if (l.dir_fd < 0)
                return log_file_fail(ret_failure, l.dir_fd, path);
        r = log_file_open_at(&l, create);
        if (r < 0)
                return log_file_fail(ret_failure, r, path);
        if (fstat(l.fd, &st) < 0)
                return log_file_fail(ret_failure, -errno, path);
        if (!S_ISREG(st.st_mode)) {
                _cleanup_free_ char *shown = NULL;

                (void) path_escape(path, &shown);
                return failure_set(
                        ret_failure, EEXIST, FAILURE_LOAD_FAILED, path,
                        "log file %s is there already and is no regular file: name another log file",
                        shown ? shown : "?");
        }
        *ret = l;
        l = (LogFile) LOG_FILE_INIT;
        return 0;
}

int log_file_append(const LogFile *l, const char *line)
{
        _cleanup_free_ char *text = NULL;
        size_t n = strlen(line);

        if (l->fd < 0)
                return 0;
        text = malloc(n + 1);
        if (!text)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                unsigned char ch = (unsigned char) line[i];

                text[i] = (char) (ch < ' ' || ch == 0x7f ? '?' : ch);
        }
        text[n] = '\n';
        return fd_write_full(l->fd, text, n + 1);
}

void log_file_discard(const LogFile *l)
{
        struct stat st;

        if (l->fd < 0 || !l->created || !l->name)
                return;
        if (fstat(l->fd, &st) == 0 && st.st_size == 0)
                (void) unlinkat(l->dir_fd, l->name, 0);
}
