/* Starting iloaderd without an init system. Under start.lock, so that of many starters one executes it and
 * the others find it; it leaves under the same lock (ARCHITECTURE.md, "Scopes and sockets"), so that a
 * manager that was just connected to is not one that is about to go. */
#include "ctl/embedded.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "base/spawn.h"
#include "base/text.h"
#include "ctl/base-directory.h"
#include "lib/endpoint.h"

/* Seconds that the manager stays without a cache, a load and a connection. */
#define IDLE_EXIT      "3"
#define LOG_NAME       "iloaderd.log"
#define LOG_SIZE_MAX   MIB(4)
#define LOCK_RETRY     (50 * USEC_PER_MSEC)
#define EXIT_IS_LOCKED 75 /* another manager has the lock */

static void on_alarm(_unused_ int sig)
{
}

/* flock(2) has no timeout: a timer interrupts it, again and again, so that one that fires just before the
 * call does no harm. */
static int lock_until(int fd, usec_t deadline)
{
        struct sigaction old_action, action = {.sa_handler = on_alarm};
        struct itimerval off = {0}, on = {.it_interval.tv_usec = LOCK_RETRY, .it_value.tv_usec = LOCK_RETRY};
        sigset_t alarm_only, old_mask;
        int r = 0;

        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                return 0;
        if (errno != EWOULDBLOCK)
                return -errno;
        (void) sigemptyset(&action.sa_mask);
        (void) sigemptyset(&alarm_only);
        (void) sigaddset(&alarm_only, SIGALRM);
        if (sigaction(SIGALRM, &action, &old_action) < 0)
                return -errno;
        (void) sigprocmask(SIG_UNBLOCK, &alarm_only, &old_mask);
        if (setitimer(ITIMER_REAL, &on, NULL) < 0)
                r = -errno;
        while (r == 0 && flock(fd, LOCK_EX) < 0) {
                if (errno != EINTR)
                        r = -errno;
                else if (now_monotonic() >= deadline)
                        r = -ETIMEDOUT;
        }
        (void) setitimer(ITIMER_REAL, &off, NULL);
        (void) sigprocmask(SIG_SETMASK, &old_mask, NULL);
        (void) sigaction(SIGALRM, &old_action, NULL);
        return r;
}

static int open_start_lock(const RuntimeDirectory *d, usec_t deadline, int *ret, char **ret_error)
{
        _cleanup_free_ char *name = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = text_format(&name, "%sstart.lock", d->prefix);
        if (r < 0)
                return r;
        fd = openat(d->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
        if (fd < 0) {
                r = -errno;
                (void) text_format(ret_error,
                                   "cannot open %s/%s: %s: make room for it, or choose another --base-dir",
                                   d->path, name, strerror(-r));
                return r;
        }
        r = lock_until(fd, deadline);
        if (r == -ETIMEDOUT)
                (void) text_format(
                        ret_error,
                        "another start has held %s/%s for too long: try again, or see which process it is "
                        "with 'fuser %s/%s'",
                        d->path, name, d->path, name);
        else if (r < 0)
                (void) text_format(ret_error, "cannot lock %s/%s: %s", d->path, name, strerror(-r));
        if (r < 0)
                return r;
        *ret = TAKE_FD(fd);
        return 0;
}

/* What the manager says before it serves, and after, goes to BASE/logs; one older file is kept. */
static int open_log(const Target *t, char **ret_path, char **ret_error)
{
        _cleanup_free_ char *logs = NULL;
        _cleanup_close_ int dir = -EBADF, fd = -EBADF;
        struct stat st;
        int r;

        r = path_join(t->base, "logs", &logs);
        if (r < 0)
                return r;
        dir = private_directory_open(logs, ret_error);
        if (dir < 0)
                return dir;
        r = path_join(logs, LOG_NAME, ret_path);
        if (r < 0)
                return r;
        if (fstatat(dir, LOG_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            (uint64_t) st.st_size > LOG_SIZE_MAX)
                (void) renameat(dir, LOG_NAME, dir, LOG_NAME ".1");
        fd = openat(dir, LOG_NAME,
                    O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
        if (fd < 0) {
                r = -errno;
                (void) text_format(ret_error,
                                   "cannot open log %s: %s: make room for it, or choose another --base-dir",
                                   *ret_path, strerror(-r));
                return r;
        }
        return TAKE_FD(fd);
}

/* The manager's memory is not to be charged to, nor to end with, the shell or unit that happened to start it:
 * it gets a cgroup beside ours, named after BASE, where the caller may make one. Best effort, on the unified
 * hierarchy only. */
static void move_to_own_cgroup(pid_t pid, const Target *t)
{
        _cleanup_free_ char *text = NULL, *path = NULL, *number = NULL, *limit = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct statfs fs;
        struct stat st;
        char *own, *end;

        if (statfs("/sys/fs/cgroup", &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC || stat(t->base, &st) < 0 ||
            fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", KIB(64), &text, NULL) < 0)
                return;
        own = strstr(text, "0::/");
        if (!own)
                return;
        own += strlen("0::");
        end = strchr(own, '\n');
        if (end)
                *end = '\0';
        /* A limit that was put on the caller goes on to hold for what he starts. */
        if (text_format(&path, "/sys/fs/cgroup%s/memory.max", own) < 0)
                return;
        if (fd_read_file_at(AT_FDCWD, path, 64, &limit, NULL) >= 0 && !startswith(limit, "max"))
                return;
        /* The parent: what follows the last component is cut off. */
        end = strrchr(own, '/');
        *end = '\0';
        if (text_format(&path, "/sys/fs/cgroup%s/iloader-%llx-%llx", own, (unsigned long long) st.st_dev,
                        (unsigned long long) st.st_ino) < 0)
                return;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
                return;
        if (text_format(&number, "%s/cgroup.procs", path) < 0)
                return;
        fd = open(number, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && text_format(&number, "%d", (int) pid) >= 0 &&
            fd_write_full(fd, number, strlen(number)) >= 0)
                return;
        (void) rmdir(path);
}

/* The last line of the manager's log that is not empty, for the message; NULL where there is none. */
static char *last_words(const char *log_path, off_t from)
{
        _cleanup_free_ char *text = NULL, *line = NULL;
        size_t n = 0;
        char *start;

        if (fd_read_file_at(AT_FDCWD, log_path, 2 * LOG_SIZE_MAX, &text, &n) < 0 || (off_t) n <= from)
                return NULL;
        while (n > (size_t) from && text[n - 1] == '\n')
                text[--n] = '\0';
        start = strrchr(text + from, '\n');
        if (path_escape(start ? start + 1 : text + from, &line) < 0 || !*line)
                return NULL;
        return TAKE_PTR(line);
}

/* The manager writes a byte once it serves; end of file means that it ended before. 1: ready, 0: another
 * manager was there already. */
static int wait_until_ready(int fd, int pidfd, usec_t deadline, const char *log_path, off_t log_start,
                            char **ret_error)
{
        _cleanup_free_ char *words = NULL;
        int r, status = 0;
        ssize_t n;
        char byte;

        r = fd_wait(fd, POLLIN, deadline);
        if (r < 0) {
                (void) pidfd_send_signal_to(pidfd, SIGTERM);
                (void) text_format(ret_error, "the manager was not ready in time: see %s", log_path);
                return r;
        }
        do
                n = read(fd, &byte, 1);
        while (n < 0 && errno == EINTR);
        if (n == 1)
                return 1;
        r = pidfd_wait(pidfd, deadline, &status);
        if (r >= 0 && status == EXIT_IS_LOCKED)
                return 0;
        words = last_words(log_path, log_start);
        (void) text_format(ret_error,
                           "the manager ended before it was ready (exit code %d)%s%s; its log is %s", status,
                           words ? ": " : "", words ? words : "", log_path);
        return -ESRCH;
}

static int spawn_manager(const Target *t, int ready_fd, int log_fd, pid_t *ret_pid, int *ret_pidfd,
                         char **ret_error)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int exec_fd = -EBADF;
        const char *const argv[] = {
                "iloaderd", "--base-dir",  t->base,   "--ready-fd",
                "3",        "--idle-exit", IDLE_EXIT, t->scope == TARGET_SOCKET ? "--socket" : NULL,
                t->socket,  NULL,
        };
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        int r;

        exec_fd = program_open_sibling("iloaderd", &path);
        if (exec_fd < 0) {
                (void) text_format(ret_error,
                                   "cannot find iloaderd, the manager's program, beside this one: %s",
                                   strerror(-exec_fd));
                return exec_fd;
        }
        options.path = path;
        options.argv = (char *const *) argv;
        options.fds = &ready_fd;
        options.n_fds = 1;
        options.stderr_fd = log_fd;
        options.new_session = true;
        r = spawn_program(&options, ret_pid, ret_pidfd);
        if (r < 0)
                (void) text_format(ret_error, "cannot execute the manager %s: %s", path, strerror(-r));
        return r;
}

static int start_manager(const Target *t, usec_t deadline, EmbeddedManager *m, char **ret_error)
{
        _cleanup_close_ int log_fd = -EBADF, read_fd = -EBADF, write_fd = -EBADF, pidfd = -EBADF;
        _cleanup_free_ char *log_path = NULL;
        int r, fds[2];
        struct stat st;
        pid_t pid = 0;

        log_fd = open_log(t, &log_path, ret_error);
        if (log_fd < 0)
                return log_fd;
        if (fstat(log_fd, &st) < 0 || pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        read_fd = fds[0];
        write_fd = fds[1];
        r = spawn_manager(t, write_fd, log_fd, &pid, &pidfd, ret_error);
        if (r < 0)
                return r;
        write_fd = close_fd(write_fd);
        move_to_own_cgroup(pid, t);
        r = wait_until_ready(read_fd, pidfd, deadline, log_path, st.st_size, ret_error);
        if (r > 0)
                m->pidfd = TAKE_FD(pidfd);
        return r < 0 ? r : 0;
}

static int connect_with_words(const Target *t, VarlinkClient **ret, char **ret_error)
{
        int r;

        r = endpoint_connect(t->socket, ret);
        if (r == -EPERM)
                (void) text_format(ret_error,
                                   "the manager at %s belongs neither to you nor to root: not trusting it",
                                   t->socket);
        else if (r < 0)
                (void) text_format(ret_error, "cannot connect to the manager at %s: %s", t->socket,
                                   strerror(-r));
        return r;
}

int embedded_connect(const Target *t, usec_t deadline, VarlinkClient **ret, EmbeddedManager *ret_manager,
                     char **ret_error)
{
        _cleanup_runtime_directory_ RuntimeDirectory directory = RUNTIME_DIRECTORY_INIT;
        _cleanup_close_ int lock = -EBADF, base = -EBADF;
        EmbeddedManager m = EMBEDDED_MANAGER_INIT;
        int r;

        base = private_directory_open(t->base, ret_error);
        if (base < 0)
                return base;
        r = runtime_directory_open(t, &directory, ret_error);
        if (r < 0)
                return r;
        r = open_start_lock(&directory, deadline, &lock, ret_error);
        if (r < 0)
                return r;
        r = endpoint_connect(t->socket, ret);
        if (endpoint_is_absent(r)) {
                r = start_manager(t, deadline, &m, ret_error);
                if (r >= 0)
                        r = connect_with_words(t, ret, ret_error);
        } else if (r < 0)
                r = connect_with_words(t, ret, ret_error);
        if (r < 0 || !ret_manager)
                close_fd(m.pidfd);
        else
                *ret_manager = m;
        return r < 0 ? r : 0;
}
