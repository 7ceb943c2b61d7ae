/* run: a command that reads a cache. The command's process is made first and held on a pipe; the manager is
 * given its pidfd; only when the lease is acknowledged does the process learn where the view is and execute
 * the command. So there is no moment in which it reads unprotected, and the lease ends with it, whatever
 * becomes of this wrapper. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "ctl/connection.h"
#include "ctl/output.h"
#include "ctl/run.h"
#include "ctl/signals.h"
#include "ctl/verb.h"
#include "iloader/iloader.h"
#include "lib/endpoint.h"

/* What a command gets between a forwarded signal and SIGKILL. */
#define GRACE       (3 * USEC_PER_SEC)
#define PROCESS_MAX 16U /* of a process's name, prctl(2) */

typedef struct Run {
        const Invocation *invocation;
        pid_t pid;
        int pidfd;
        int hold_fd;                   /* the child waits for the view's path on the other end */
        int signal_fd;                 /* SIGTERM and SIGHUP, where they weren't ignored */
        struct sigaction child_action; /* SIGCHLD's, as inherited */
} Run;

static void run_done(Run *run)
{
        close_fd(run->pidfd);
        close_fd(run->hold_fd);
        close_fd(run->signal_fd);
}

/* In the child: reads the view's path. End of file before its NUL means that there is no lease, and that
 * nothing may be executed. */
static char *read_view(int fd)
{
        _cleanup_free_ char *path = NULL;
        size_t n = 0, allocated = 0;

        for (;;) {
                ssize_t k;

                if (n == allocated) {
                        char *p = realloc(path, allocated + 4096);

                        if (!p)
                                return NULL;
                        path = p;
                        allocated += 4096;
                }
                k = read(fd, path + n, allocated - n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return NULL;
                n += (size_t) k;
                if (path[n - 1] == '\0')
                        return TAKE_PTR(path);
        }
}

static _noreturn_ void child(const Run *run, int fd)
{
        char *const *command = run->invocation->arguments->command;
        _cleanup_strv_ char **argv = NULL;
        _cleanup_free_ char *view = NULL;
        int r;

        /* The command begins with signals as this program found them. */
        (void) sigaction(SIGCHLD, &run->child_action, NULL);
        view = read_view(fd);
        if (!view)
                _exit(EXIT_RUN_FAILED);
        r = setenv(RUN_VARIABLE, view, 1) < 0 ? -errno : run_arguments(command, view, &argv);
        if (r < 0 || !argv) {
                output_note("run: cannot prepare the command: %s", strerror(-r));
                _exit(EXIT_RUN_FAILED);
        }
        r = run_execute(argv);
        output_note("run: cannot execute '%s': %s%s", argv[0], strerror(-r),
                    argv[0][0] == '-'
                            ? "; options of run itself come before NAME: 'iloader run --help' shows them"
                            : "");
        _exit(r == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

/* The manager notes the holder's name when it grants the lease, which is before the command is executed: so
 * the child bears the command's name from its first moment. */
static pid_t fork_named(const char *command)
{
        const char *slash = strrchr(command, '/');
        char own[PROCESS_MAX] = "";
        pid_t pid;

        (void) prctl(PR_GET_NAME, own);
        (void) prctl(PR_SET_NAME, slash ? slash + 1 : command);
        pid = fork();
        if (pid != 0)
                (void) prctl(PR_SET_NAME, own);
        return pid;
}

/* Makes the held child. */
static int run_fork(Run *run)
{
        struct sigaction standard = {.sa_handler = SIG_DFL};
        _cleanup_close_ int read_fd = -EBADF;
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return output_error("run: cannot make a pipe: %s", strerror(errno));
        read_fd = fds[0];
        run->hold_fd = fds[1];
        /* Ignored, SIGCHLD would take the child's exit code from us. */
        if (sigaction(SIGCHLD, &standard, &run->child_action) < 0)
                return output_error("run: cannot watch for signals: %s", strerror(errno));
        run->pid = fork_named(run->invocation->arguments->command[0]);
        if (run->pid < 0)
                return output_error("run: cannot make a process: %s", strerror(errno));
        if (run->pid == 0) {
                run->hold_fd = close_fd(run->hold_fd);
                child(run, read_fd);
        }
        run->pidfd = pidfd_open_pid(run->pid);
        if (run->pidfd < 0)
                return output_error("run: cannot open a pidfd: %s", strerror(-run->pidfd));
        return 0;
}

/* Asks one manager; what it says is kept in client. */
static int lease_from(const Target *t, const Run *run, iloader_client **ret_client, char **ret_view)
{
        int r;

        r = iloader_client_open(t->socket, 0, ret_client);
        return r < 0 ? r
                     : iloader_lease_acquire(*ret_client, run->invocation->arguments->name, run->pidfd,
                                             ret_view);
}

static void say_failure(const Target *t, const iloader_client *client, int error)
{
        if (client)
                output_note("run: %s", iloader_client_last_error(client));
        else
                (void) manager_connect_error(t, error);
}

/* The lease, from the first manager that has the cache. */
static int run_lease(const Run *run, const Targets *targets, char **ret_view)
{
        const char *name = run->invocation->arguments->name;
        int first_error = 0, r = -ENOENT;
        iloader_client *first = NULL;
        const Target *missed[2];
        size_t n_missed = 0;

        for (size_t n = 0; n < targets->n; n++) {
                iloader_client *client = NULL;

                r = lease_from(&targets->items[n], run, &client, ret_view);
                if (r >= 0 && n > 0)
                        output_note("answered by %s (%s)", target_describe(&targets->items[n]),
                                    targets->items[n].socket);
                if (r < 0 && client && streq(iloader_client_last_error_name(client), MANAGER ".NoSuchCache"))
                        missed[n_missed++] = &targets->items[n];
                if (n == 0) {
                        first = client;
                        first_error = r;
                } else {
                        /* A refusal by the second counts where the first had nothing to say. */
                        if (r < 0 && client && !endpoint_is_absent(r)) {
                                iloader_client_close(first);
                                first = client;
                                first_error = r;
                        } else
                                iloader_client_close(client);
                }
                /* Only where there is no manager or no such cache is there another place to look. */
                if (r >= 0 || !endpoint_is_absent(r))
                        break;
        }
        if (r < 0 && n_missed > 0 && endpoint_is_absent(first_error))
                (void) no_such_cache(name, missed, n_missed);
        else if (r < 0)
                say_failure(&targets->items[0], first, first_error);
        iloader_client_close(first);
        return r;
}

/* The terminal sends SIGINT and SIGQUIT to the command too: what it makes of them is its own, and its exit
 * code is to be reported. */
static void leave_to_command(int sig)
{
        struct sigaction ignore = {.sa_handler = SIG_IGN};

        (void) sigaction(sig, &ignore, NULL);
}

/* From here on signals are the command's. Before, while nothing was executed, they ended this program as they
 * end any other, however long the manager took; and the held child saw that and left. */
static int run_watch(Run *run)
{
        const int watched[] = {SIGTERM, SIGHUP};

        leave_to_command(SIGINT);
        leave_to_command(SIGQUIT);
        run->signal_fd = signals_watch(watched, ELEMENTSOF(watched), NULL);
        if (run->signal_fd < 0)
                (void) output_error("run: cannot watch for signals: %s", strerror(-run->signal_fd));
        return MIN2(run->signal_fd, 0);
}

/* Lets the child go on; where it has ended meanwhile, waiting tells. */
static int run_release(Run *run, const char *view)
{
        struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
        int r;

        if (sigaction(SIGPIPE, &ignore, &old) < 0)
                return -errno;
        r = fd_write_full(run->hold_fd, view, strlen(view) + 1);
        (void) sigaction(SIGPIPE, &old, NULL);
        run->hold_fd = close_fd(run->hold_fd);
        return r == -EPIPE ? 0 : r;
}

static int exit_code(const Run *run)
{
        siginfo_t info = {0};

        while (waitid(P_PID, (id_t) run->pid, &info, WEXITED) < 0) {
                if (errno == EINTR)
                        continue;
                (void) output_error("run: cannot wait for the command: %s", strerror(errno));
                return EXIT_RUN_FAILED;
        }
        return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static int remaining_msec(usec_t deadline)
{
        usec_t now = now_monotonic();

        if (deadline == USEC_INFINITY)
                return -1;
        return now >= deadline ? 0 : (int) ((deadline - now) / USEC_PER_MSEC) + 1;
}

/* Until the command ends: forwards SIGTERM and SIGHUP, and kills it where it does not end within the grace.
 */
static int run_wait(const Run *run)
{
        usec_t deadline = USEC_INFINITY;

        for (;;) {
                struct pollfd p[] = {
                        {.fd = run->pidfd, .events = POLLIN},
                        {.fd = run->signal_fd, .events = POLLIN},
                };
                int n;

                n = poll(p, ELEMENTSOF(p), remaining_msec(deadline));
                if (n < 0 && errno != EINTR)
                        return exit_code(run);
                if (n > 0 && p[0].revents)
                        return exit_code(run);
                if (n > 0 && p[1].revents) {
                        int sig = signals_take(run->signal_fd);

                        if (sig > 0)
                                (void) pidfd_send_signal_to(run->pidfd, sig);
                        if (sig > 0 && deadline == USEC_INFINITY)
                                deadline = now_monotonic() + GRACE;
                }
                if (n == 0 && now_monotonic() >= deadline) {
                        (void) pidfd_send_signal_to(run->pidfd, SIGKILL);
                        return exit_code(run);
                }
        }
}

int verb_run(const Invocation *i)
{
        _cleanup_(run_done)
                Run run = {.invocation = i, .pidfd = -EBADF, .hold_fd = -EBADF, .signal_fd = -EBADF};
        _cleanup_targets_ Targets targets = {0};
        _cleanup_free_ char *view = NULL;
        int r;

        r = verb_targets(i, TARGET_READS, &targets);
        if (r != 0)
                return r;
        r = run_fork(&run);
        if (r == 0) {
                r = run_lease(&run, &targets, &view);
                if (r >= 0)
                        r = run_watch(&run);
                if (r >= 0)
                        r = run_release(&run, view);
                if (r >= 0)
                        return run_wait(&run);
        }
        /* No lease: the child reads end of file and leaves without having executed anything. */
        run.hold_fd = close_fd(run.hold_fd);
        if (run.pid > 0)
                (void) exit_code(&run);
        return EXIT_RUN_FAILED;
}
