/* Starting a program of our own. Between fork and exec only system calls are made: all memory is had before.
 */
#include "base/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/process.h"
#include "base/text.h"

/* The first number that options->fds become. */
#define FDS_START 3

/* What the child needs, made ready by the parent. */
typedef struct Child {
        const SpawnOptions *options; /* not owned */
        char **environment;          /* owned array of texts that are not owned */
        char listen_pid[32];         /* "LISTEN_PID=…", written by the child */
        char listen_fds[32];
        int *moved; /* owned: numbers that the sources have been moved to, standard ones first */
        pid_t parent;
        int error_fd; /* where a failure goes to; close-on-exec, above all targets */
        int exec_fd;  /* the program, likewise; or -EBADF */
} Child;

static void child_done(Child *c)
{
        (void) close_fd(c->error_fd);
        (void) close_fd(c->exec_fd);
        free(c->environment);
        free(c->moved);
}

static int build_environment(Child *c)
{
        static char *const fallback[] = {
                (char *) "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                (char *) "LANG=C.UTF-8",
                NULL,
        };
        char *const *base = c->options->environment ? c->options->environment : fallback;
        size_t at = 0, i;

        c->environment = calloc(strv_length(base) + 3, sizeof(char *));
        if (!c->environment)
                return -ENOMEM;
        for (i = 0; base[i]; i++)
                if (!c->options->listen_pid ||
                    (!startswith(base[i], "LISTEN_PID=") && !startswith(base[i], "LISTEN_FDS=")))
                        c->environment[at++] = base[i];
        if (c->options->listen_pid) {
                (void) snprintf(c->listen_fds, sizeof(c->listen_fds), "LISTEN_FDS=%zu", c->options->n_fds);
                c->environment[at++] = c->listen_fds;
                c->environment[at++] = c->listen_pid;
        }
        return 0;
}

/* snprintf(3) may allocate, and isn't among what a child may call. */
static void write_listen_pid(char buffer[static 32], pid_t pid)
{
        char digits[16];
        size_t n = 0;
        char *p = mempcpy(buffer, "LISTEN_PID=", 11);

        do
                digits[n++] = (char) ('0' + pid % 10);
        while ((pid /= 10) > 0);
        while (n > 0)
                *p++ = digits[--n];
        *p = '\0';
}

/* Handlers of the parent mean nothing to the program, and what it ignored would stay ignored. */
static int reset_signals(void)
{
        /* The kernel's own structure, all of it zero: SIG_DFL with nothing set. The C library refuses two
         * signals that it keeps to itself, and another one than ours may have left them ignored. */
        static const unsigned char action[64];
        sigset_t none;
        int sig;

        for (sig = 1; sig < NSIG; sig++)
                /* Refused for SIGKILL and SIGSTOP. */
                (void) syscall(SYS_rt_sigaction, sig, action, NULL, NSIG / 8);
        if (sigemptyset(&none) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0)
                return -errno;
        return 0;
}

/* What a standard descriptor is made of: what was given, else /dev/null. -EBADF: it stays what it is. */
static int standard_source(const SpawnOptions *options, int number, int null_fd, bool inherit_stderr)
{
        const int given[] = {options->stdin_fd, options->stdout_fd, options->stderr_fd};

        if (given[number] >= 0)
                return given[number];
        return number == STDERR_FILENO && inherit_stderr ? -EBADF : null_fd;
}

/* Gives every descriptor its number. Sources may have each other's targets as numbers, so all of them are
 * moved above the targets first. */
static int arrange_fds(Child *c)
{
        const SpawnOptions *options = c->options;
        int above = FDS_START + (int) options->n_fds;
        const int keep[] = {c->error_fd, c->exec_fd};
        int null_fd, flags, i;
        size_t k;

        /* Where the parent runs without a stderr, that number may be anything of ours, which closes on exec.
         */
        flags = fcntl(STDERR_FILENO, F_GETFD);
        null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_fd < 0)
                return -errno;
        for (i = 0; i < 3; i++) {
                int source = standard_source(options, i, null_fd, flags >= 0 && !(flags & FD_CLOEXEC));

                c->moved[i] = source < 0 ? -EBADF : fcntl(source, F_DUPFD_CLOEXEC, above);
                if (source >= 0 && c->moved[i] < 0)
                        return -errno;
        }
        for (k = 0; k < options->n_fds; k++) {
                c->moved[3 + k] = fcntl(options->fds[k], F_DUPFD_CLOEXEC, above);
                if (c->moved[3 + k] < 0)
                        return -errno;
        }
        /* dup2(2) leaves the targets open across exec. */
        for (i = 0; i < 3; i++)
                if (c->moved[i] >= 0 && dup2(c->moved[i], i) < 0)
                        return -errno;
        for (k = 0; k < options->n_fds; k++)
                if (dup2(c->moved[3 + k], FDS_START + (int) k) < 0)
                        return -errno;
        return fd_close_from_except(above, keep, ELEMENTSOF(keep));
}

static int change_credentials(const SpawnCredentials *credentials)
{
        if (setgroups(credentials->n_groups, credentials->groups) < 0 ||
            setresgid(credentials->gid, credentials->gid, credentials->gid) < 0 ||
            setresuid(credentials->uid, credentials->uid, credentials->uid) < 0)
                return -errno;
        return 0;
}

/* The child's part: returns only on failure. */
static int child_run(Child *c)
{
        const SpawnOptions *options = c->options;
        int r;

        r = reset_signals();
        if (r < 0)
                return r;
        if (options->new_session && setsid() < 0)
                return -errno;
        r = arrange_fds(c);
        if (r < 0)
                return r;
        if (options->credentials) {
                r = change_credentials(options->credentials);
                if (r < 0)
                        return r;
        }
        if (chdir(options->chdir_path ? options->chdir_path : "/") < 0)
                return -errno;
        if (options->death_signal) {
                /* A change of uid clears the signal, so it comes after; and a parent that has died before it
                 * was set sends none, so we look who the parent is now. */
                if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                        return -errno;
                if (getppid() != c->parent)
                        return -ESRCH;
        }
        if (options->listen_pid)
                write_listen_pid(c->listen_pid, getpid());
        if (c->exec_fd >= 0)
                (void) execveat(c->exec_fd, "", options->argv, c->environment, AT_EMPTY_PATH);
        else
                (void) execve(options->path, options->argv, c->environment);
        return -errno;
}

static _noreturn_ void child_main(Child *c)
{
        int r = child_run(c);

        /* Nothing can be done where even that fails; the parent then sees an exit instead. */
        if (write(c->error_fd, &r, sizeof(r)) != (ssize_t) sizeof(r))
                _exit(126);
        _exit(127);
}

/* Forks with all signals blocked, so that no handler of the parent runs in the child. */
static int fork_child(Child *c, pid_t *ret)
{
        sigset_t all, saved;
        pid_t pid;
        int r;

        if (sigfillset(&all) < 0)
                return -errno;
        r = pthread_sigmask(SIG_SETMASK, &all, &saved);
        if (r != 0)
                return -r;
        pid = fork();
        if (pid == 0)
                child_main(c);
        r = pid < 0 ? -errno : 0;
        (void) pthread_sigmask(SIG_SETMASK, &saved, NULL);
        if (r < 0)
                return r;
        *ret = pid;
        return 0;
}

/* Moves a descriptor of ours above the numbers that the child's descriptors get. */
static int move_above(const SpawnOptions *options, int fd)
{
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, FDS_START + (int) options->n_fds);

        return moved < 0 ? -errno : moved;
}

/* Waits for the end of the pipe, which exec closes, or for the errno that the child sends. */
static int read_outcome(int fd)
{
        int outcome;
        ssize_t n;

        do
                n = read(fd, &outcome, sizeof(outcome));
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        if (n == 0)
                return 0;
        /* Writes of this size to a pipe are whole. */
        return n == (ssize_t) sizeof(outcome) && outcome < 0 ? outcome : -EIO;
}

static void reap(pid_t pid)
{
        pid_t r;

        do
                r = waitpid(pid, NULL, 0);
        while (r < 0 && errno == EINTR);
}

int spawn_program(const SpawnOptions *options, pid_t *ret_pid, int *ret_pidfd)
{
        _cleanup_(child_done) Child c = {.options = options, .error_fd = -EBADF, .exec_fd = -EBADF};
        _cleanup_close_ int pidfd = -EBADF, outcome_fd = -EBADF, pipe_end = -EBADF;
        int pair[2], r;
        pid_t pid = -1;

        if (options->n_fds > INT_MAX / 2 || (options->exec_fd < 0 && !options->path))
                return -EINVAL;
        c.parent = getpid();
        c.moved = calloc(options->n_fds + 3, sizeof(int));
        if (!c.moved)
                return -ENOMEM;
        r = build_environment(&c);
        if (r < 0)
                return r;
        if (pipe2(pair, O_CLOEXEC) < 0)
                return -errno;
        outcome_fd = pair[0];
        pipe_end = pair[1];
        c.error_fd = move_above(options, pipe_end);
        if (c.error_fd < 0)
                return c.error_fd;
        (void) close_fd(TAKE_FD(pipe_end));
        if (options->exec_fd >= 0) {
                c.exec_fd = move_above(options, options->exec_fd);
                if (c.exec_fd < 0)
                        return c.exec_fd;
        }

        r = fork_child(&c, &pid);
        if (r < 0)
                return r;
        c.error_fd = close_fd(c.error_fd);
        /* The number can't be another's: the child isn't reaped by anybody but us. */
        pidfd = pidfd_open_pid(pid);
        r = pidfd < 0 ? pidfd : read_outcome(outcome_fd);
        if (r < 0) {
                (void) kill(pid, SIGKILL);
                reap(pid);
                return r;
        }
        if (ret_pid)
                *ret_pid = pid;
        *ret_pidfd = TAKE_FD(pidfd);
        return 0;
}

/* The running program's path, also where a package upgrade has replaced the file meanwhile: the kernel then
 * appends " (deleted)". */
static int running_program(char **ret)
{
        static const char mark[] = " (deleted)";
        char path[PATH_MAX];
        struct stat st;
        ssize_t n;

        n = readlink("/proc/self/exe", path, sizeof(path));
        if (n < 0)
                return -errno;
        if ((size_t) n >= sizeof(path))
                return -ENAMETOOLONG;
        path[n] = '\0';
        /* Unless the file is really called so. */
        if ((size_t) n > strlen(mark) && streq(path + n - strlen(mark), mark) && lstat(path, &st) < 0)
                path[(size_t) n - strlen(mark)] = '\0';
        /* Also "(unreachable)…", and what has no name. */
        if (path[0] != '/')
                return -ENOENT;
        *ret = strdup(path);
        return *ret ? 0 : -ENOMEM;
}

static int open_program(const char *directory, const char *name, char **ret_path)
{
        _cleanup_free_ char *joined = NULL, *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r;

        r = path_join(directory, name, &joined);
        if (r < 0)
                return r;
        r = path_normalize(joined, &path);
        if (r < 0)
                return r;
        fd = open(path, O_PATH | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -ENOENT;
        if (ret_path)
                *ret_path = TAKE_PTR(path);
        return TAKE_FD(fd);
}

int program_open_sibling(const char *name, char **ret_path)
{
        _cleanup_free_ char *program = NULL, *directory = NULL, *library = NULL;
        const char *last;
        int r;

        if (name[0] == '\0' || strchr(name, '/'))
                return -EINVAL;
        r = running_program(&program);
        if (r < 0)
                return r;
        r = path_split(program, &directory, &last);
        if (r < 0)
                return r;
        r = open_program(directory, name, ret_path);
        if (r != -ENOENT)
                return r;
        r = path_join(directory, "../lib/iloader", &library);
        if (r < 0)
                return r;
        return open_program(library, name, ret_path);
}
