#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/process.h"

/* A child that ends when its pipe does, or with the code that comes through it. */
typedef struct Child {
        pid_t pid;
        int pidfd;
        int leash;
} Child;

static _noreturn_ void child_main(int leash, const char *name)
{
        char code;

        if (name)
                (void) prctl(PR_SET_NAME, name);
        if (write(leash, "r", 1) != 1 || read(leash, &code, 1) != 1)
                _exit(0);
        _exit(code);
}

static void child_start(Child *c, const char *name)
{
        int pair[2];
        char ready;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        c->pid = fork();
        assert_true(c->pid >= 0);
        if (c->pid == 0) {
                (void) close_fd(pair[0]);
                child_main(pair[1], name);
        }
        (void) close_fd(pair[1]);
        c->leash = pair[0];
        assert_int_equal(read(c->leash, &ready, 1), 1);
        c->pidfd = pidfd_open_pid(c->pid);
        assert_true(c->pidfd >= 0);
}

static void child_end(Child *c, char code)
{
        assert_int_equal(write(c->leash, &code, 1), 1);
}

static void child_done(Child *c)
{
        c->leash = close_fd(c->leash);
        c->pidfd = close_fd(c->pidfd);
        if (c->pid > 0)
                (void) waitpid(c->pid, NULL, 0);
}

#define CHILD_INIT                                                                                           \
        {                                                                                                    \
                .pid = -1, .pidfd = -EBADF, .leash = -EBADF                                                  \
        }

static void test_info(_unused_ void **state)
{
        _cleanup_(child_done) Child c = CHILD_INIT;
        ProcessInfo info, self;
        _cleanup_close_ int me = pidfd_open_pid(getpid());
        uint64_t started;
        pid_t parent;
        pid_t pid = 0;

        child_start(&c, "engine");
        assert_true(fcntl(c.pidfd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(pidfd_get_pid(c.pidfd, &pid), 0);
        assert_int_equal(pid, c.pid);
        assert_int_equal(pidfd_get_info(c.pidfd, &info), 0);
        assert_int_equal(info.pid, c.pid);
        assert_int_equal(info.uid, geteuid());
        assert_string_equal(info.command, "engine");
        assert_int_equal(process_start_time(c.pid, &started), 0);
        assert_int_equal(process_get_parent(c.pid, &parent), 0);
        assert_int_equal(parent, getpid());
        assert_int_equal(info.start_time, started);
        assert_int_equal(pidfd_get_info(me, &self), 0);
        assert_true(self.start_time > 0 && self.start_time <= info.start_time);
}

/* Names that would mislead a careless parser of stat, or a terminal. */
static void test_hostile_names(_unused_ void **state)
{
        static const char *const names[][2] = {
                {") R 1 1 1 (", ") R 1 1 1 ("},
                {"a b c d", "a b c d"},
                {"x\ny\n", "x?y?"},
                {"\x1b[2J\xff", "?[2J?"},
                {"", ""},
                {"fifteen-letters", "fifteen-letters"},
                {"Uid:\t0\t0", "Uid:?0?0"},
                {"\nUid:\t0\t0", "?Uid:?0?0"},
        };
        ProcessInfo self;
        _cleanup_close_ int me = pidfd_open_pid(getpid());
        size_t i;

        assert_int_equal(pidfd_get_info(me, &self), 0);
        for (i = 0; i < ELEMENTSOF(names); i++) {
                _cleanup_(child_done) Child c = CHILD_INIT;
                ProcessInfo info;

                child_start(&c, names[i][0]);
                assert_int_equal(pidfd_get_info(c.pidfd, &info), 0);
                assert_string_equal(info.command, names[i][1]);
                assert_int_equal(info.uid, geteuid());
                assert_true(info.start_time >= self.start_time);
        }
}

static void test_end(_unused_ void **state)
{
        _cleanup_(child_done) Child c = CHILD_INIT;
        ProcessInfo info;
        uint64_t started;
        pid_t parent;
        int status = -1;
        pid_t pid;

        child_start(&c, NULL);
        assert_int_equal(pidfd_has_exited(c.pidfd), 0);
        assert_int_equal(pidfd_wait(c.pidfd, now_monotonic(), &status), -ETIMEDOUT);
        assert_int_equal(status, -1);
        child_end(&c, 3);
        assert_true(fd_wait(c.pidfd, POLLIN, now_monotonic() + 20 * USEC_PER_SEC) > 0);
        /* Not reaped yet, but gone for everybody who asks. */
        assert_int_equal(pidfd_has_exited(c.pidfd), 1);
        assert_int_equal(pidfd_get_pid(c.pidfd, &pid), -ESRCH);
        assert_int_equal(pidfd_get_info(c.pidfd, &info), -ESRCH);
        assert_int_equal(pidfd_wait(c.pidfd, USEC_INFINITY, &status), 0);
        assert_int_equal(status, 3);
        /* Reaped. */
        assert_int_equal(pidfd_has_exited(c.pidfd), 1);
        assert_int_equal(pidfd_get_pid(c.pidfd, &pid), -ESRCH);
        assert_int_equal(pidfd_get_info(c.pidfd, &info), -ESRCH);
        assert_int_equal(pidfd_wait(c.pidfd, USEC_INFINITY, &status), -ECHILD);
        assert_int_equal(pidfd_send_signal_to(c.pidfd, SIGTERM), -ESRCH);
        assert_int_equal(process_start_time(c.pid, &started), -ESRCH);
        assert_int_equal(process_get_parent(c.pid, &parent), -ESRCH);
        c.pid = -1;
}

static void test_signal(_unused_ void **state)
{
        _cleanup_(child_done) Child c = CHILD_INIT;
        int status = -1;

        child_start(&c, NULL);
        assert_int_equal(pidfd_send_signal_to(c.pidfd, 0), 0);
        assert_int_equal(pidfd_send_signal_to(c.pidfd, SIGKILL), 0);
        assert_int_equal(pidfd_wait(c.pidfd, now_monotonic() + 20 * USEC_PER_SEC, &status), 0);
        assert_int_equal(status, 128 + SIGKILL);
        c.pid = -1;
}

/* What a peer might pass for a pidfd. */
static void test_no_pidfd(_unused_ void **state)
{
        _cleanup_close_ int event = eventfd(0, EFD_CLOEXEC), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ProcessInfo info;
        pid_t pid = 7;

        assert_int_equal(pidfd_get_pid(event, &pid), -EINVAL);
        assert_int_equal(pidfd_get_pid(null, &pid), -EINVAL);
        assert_int_equal(pidfd_get_pid(directory, &pid), -EINVAL);
        assert_int_equal(pidfd_get_info(event, &info), -EINVAL);
        assert_int_equal(pidfd_get_pid(-EBADF, &pid), -EBADF);
        assert_int_equal(pidfd_get_pid(1000000, &pid), -EBADF);
        assert_int_equal(pid, 7);
        assert_int_equal(pidfd_open_pid(0), -EINVAL);
        assert_int_equal(pidfd_open_pid(-1), -EINVAL);
}

/* In a pid namespace of its own, with the /proc of that: the parent is there, but has no number. */
static int look_from_inside(int pidfd)
{
        pid_t pid = fork(), seen = 0;
        int status = 0, r;

        if (pid < 0)
                return 1;
        if (pid > 0)
                return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
        if (mount("proc", "/proc", "proc", 0, NULL) < 0)
                _exit(77);
        r = pidfd_get_pid(pidfd, &seen);
        _exit(r == -EREMOTE ? 0 : 3);
}

static void test_other_namespace(_unused_ void **state)
{
        _cleanup_(child_done) Child c = CHILD_INIT;
        int status = 0;
        pid_t pid;

        child_start(&c, NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        _exit(77);
                _exit(look_from_inside(c.pidfd));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
                skip();
        assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_boot_id(_unused_ void **state)
{
        char id[33] = "", again[33] = "";

        assert_int_equal(boot_id_get(id), 0);
        assert_int_equal(strlen(id), 32);
        assert_int_equal(strspn(id, "0123456789abcdef"), 32);
        assert_int_equal(boot_id_get(again), 0);
        assert_string_equal(id, again);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_info),     cmocka_unit_test(test_hostile_names),
                cmocka_unit_test(test_end),      cmocka_unit_test(test_signal),
                cmocka_unit_test(test_no_pidfd), cmocka_unit_test(test_other_namespace),
                cmocka_unit_test(test_boot_id),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
