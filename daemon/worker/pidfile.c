/* See pidfile.h. */
#include "daemon/worker/pidfile.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "base/size.h"
#include "base/text.h"

#define PID_FILE_SIZE_MAX 16U

void pid_file_done(PidFile *p)
{
        close_fd(p->dir_fd);
        free(p->name);
        *p = (PidFile) PID_FILE_INIT;
}

/* The directory and the last component; nothing is looked at yet. */
static int pid_file_open(int root_fd, const char *path, PidFile *ret)
{
        _cleanup_pid_file_ PidFile p = PID_FILE_INIT;
        _cleanup_free_ char *parent = NULL;
        const char *name;
        int r;

        r = path_split(path, &parent, &name);
        if (r < 0)
                return r;
        p.name = strdup(name);
        if (!p.name)
                return -ENOMEM;
        p.dir_fd = path_open_in_root(root_fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        if (p.dir_fd < 0)
                return p.dir_fd;
        *ret = p;
        p = (PidFile) PID_FILE_INIT;
        return 0;
}

/* -ENOENT where there is none, -EEXIST where there is something that isn't a pid file of ours. */
static int pid_file_read(const PidFile *p, pid_t *ret)
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        struct stat st;
        uint64_t pid;
        size_t n;

        fd = openat(p->dir_fd, p->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? -ENOENT : errno == ENOMEM ? -ENOMEM : -EEXIST;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size > (off_t) PID_FILE_SIZE_MAX)
                return -EEXIST;
        if (fd_read_file(fd, PID_FILE_SIZE_MAX, &text, &n) < 0 || n < 2 || text[n - 1] != '\n')
                return -EEXIST;
        text[n - 1] = '\0';
        if (strlen(text) != n - 1 || parse_u64_range(text, 1, INT32_MAX, &pid) < 0)
                return -EEXIST;
        *ret = (pid_t) pid;
        return 0;
}

/* Whether the process is a worker whose manager lives, and so the holder of another cache. A worker that lost
 * its manager is about to end and counts for nothing; nor does whoever got a dead worker's number. */
static bool pid_is_live_worker(pid_t pid)
{
        char command[PROCESS_COMMAND_MAX];
        pid_t parent;

        return pid != getpid() && process_get_command(pid, command) >= 0 &&
               streq(command, "iloader-worker") && process_get_parent(pid, &parent) >= 0 &&
               process_get_command(parent, command) >= 0 && streq(command, "iloaderd");
}

int pid_file_write(int root_fd, const char *path, pid_t pid, PidFile *ret, Failure *ret_failure)
{
        _cleanup_pid_file_ PidFile p = PID_FILE_INIT;
        _cleanup_free_ char *text = NULL, *shown = NULL;
        pid_t old = 0;
        int r;

        (void) path_escape(path, &shown);
        r = pid_file_open(root_fd, path, &p);
        if (r < 0)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, path,
                                   "cannot open the directory of the pid file %s: %m: name another pid file",
                                   shown ? shown : path);
        r = pid_file_read(&p, &old);
        if (r == -EEXIST)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, path,
                                   "%s is there already and is no pid file of this user: remove it, or name "
                                   "another pid file",
                                   shown ? shown : path);
        if (r < 0 && r != -ENOENT)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, path,
                                   "cannot read the pid file %s: %m: name another pid file",
                                   shown ? shown : path);
        if (r >= 0 && pid_is_live_worker(old))
                return failure_set(
                        ret_failure, EEXIST, FAILURE_LOAD_FAILED, path,
                        "%s is the pid file of another cache (of its worker, pid %d): stop that, or "
                        "name another pid file",
                        shown ? shown : path, (int) old);
        r = text_format(&text, "%d\n", (int) pid);
        if (r < 0)
                return failure_complete(ret_failure, r, "cannot write the pid file");
        r = fd_write_file_at(p.dir_fd, p.name, text, strlen(text), 0644, false);
        if (r < 0)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, path,
                                   "cannot write the pid file %s: %m: name another pid file",
                                   shown ? shown : path);
        p.pid = pid;
        *ret = p;
        p = (PidFile) PID_FILE_INIT;
        return 0;
}

int pid_file_remove(const PidFile *p)
{
        pid_t pid = 0;
        int r;

        r = pid_file_read(p, &pid);
        if (r == -ENOENT || r == -EEXIST)
                return 0;
        if (r < 0)
                return r;
        if (pid != p->pid)
                return 0;
        if (unlinkat(p->dir_fd, p->name, 0) < 0)
                return errno == ENOENT ? 0 : -errno;
        return 1;
}

int pid_file_remove_path(int root_fd, const char *path, pid_t pid)
{
        _cleanup_pid_file_ PidFile p = PID_FILE_INIT;
        int r;

        r = pid_file_open(root_fd, path, &p);
        if (r < 0)
                return r == -ENOENT || r == -ENOTDIR ? 0 : r;
        p.pid = pid;
        return pid_file_remove(&p);
}
