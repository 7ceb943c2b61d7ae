/* The test executes itself: with an argument it is one of the programs below, which write what they see to a
 * descriptor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/process.h"
#include "base/spawn.h"
#include "base/text.h"
#include "tests/unit/scratch.h"

#define SELF "/proc/self/exe"

extern char **environ;

/* "report FD": open descriptors, signals, credentials, environment, directory, one "key=value" a line. */
static int report_main(int out)
{
        _cleanup_free_ char *status = NULL, *directory = getcwd(NULL, 0);
        static const char *const fields[] = {
                "SigBlk:", "SigIgn:", "SigCgt:", "Uid:", "Gid:", "Groups:", "CapEff:"};
        struct dirent *entry;
        gid_t groups[64];
        size_t i;
        DIR *d;
        int n;

        dprintf(out, "fds=");
        d = opendir("/proc/self/fd");
        while (d && (entry = readdir(d)))
                if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(d))
                        dprintf(out, "%s ", entry->d_name);
        if (d)
                (void) closedir(d);
        dprintf(out, "\nppid=%d\npid=%d\nsid=%d\ncwd=%s\n", getppid(), getpid(), getsid(0), directory);
        n = getgroups(64, groups);
        dprintf(out, "groups=");
        for (i = 0; (int) i < n; i++)
                dprintf(out, "%u ", groups[i]);
        dprintf(out, "\n");
        if (fd_read_file_at(AT_FDCWD, "/proc/self/status", 65536, &status, NULL) < 0)
                return 1;
        for (i = 0; i < ELEMENTSOF(fields); i++) {
                char *line = strstr(status, fields[i]);

                if (line)
                        dprintf(out, "%.*s\n", (int) strcspn(line, "\n"), line);
        }
        for (i = 0; environ[i]; i++)
                dprintf(out, "env:%s\n", environ[i]);
        return 0;
}

/* "sibling NAME FD": removes itself, as an upgrade does, and opens what lies beside it. */
static int sibling_main(const char *name, int out)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        char self[4096];
        ssize_t n;

        n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
                return 1;
        self[n] = '\0';
        if (unlink(self) < 0)
                return 2;
        fd = program_open_sibling(name, &path);
        dprintf(out, "%s", fd < 0 ? strerror(-fd) : path);
        return 0;
}

/* "orphan FD": starts a child that holds FD, with a death signal and, where that can be, as another user,
 * which clears a signal that was set too early; and ends itself. */
static int orphan_main(int out)
{
        char *const argv[] = {(char *) "test", (char *) "hold", (char *) "3", NULL};
        const SpawnCredentials credentials = {.uid = 65534, .gid = 65534};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        int pidfd;

        options.exec_fd = open(SELF, O_PATH | O_CLOEXEC);
        if (geteuid() == 0)
                options.credentials = &credentials;
        options.argv = argv;
        options.fds = &out;
        options.n_fds = 1;
        options.death_signal = true;
        return spawn_program(&options, NULL, &pidfd) < 0 ? 1 : 0;
}

static int hold_main(int out)
{
        /* Ends some day, should the death signal not come. */
        (void) alarm(60);
        if (write(out, "r", 1) != 1)
                return 1;
        for (;;)
                (void) pause();
}

static int program_main(char **argv)
{
        if (streq(argv[1], "report"))
                return report_main(atoi(argv[2]));
        if (streq(argv[1], "exit"))
                return atoi(argv[2]);
        if (streq(argv[1], "cat")) {
                char c;

                while (read(atoi(argv[2]), &c, 1) == 1)
                        if (write(atoi(argv[3]), &c, 1) != 1)
                                return 1;
                return 0;
        }
        if (streq(argv[1], "sibling"))
                return sibling_main(argv[2], atoi(argv[3]));
        if (streq(argv[1], "orphan"))
                return orphan_main(atoi(argv[2]));
        if (streq(argv[1], "hold"))
                return hold_main(atoi(argv[2]));
        return 99;
}

/* Waits for the end; the exit code. */
static int finish(int pidfd)
{
        int status = -1;

        assert_int_equal(pidfd_wait(pidfd, now_monotonic() + 30 * USEC_PER_SEC, &status), 0);
        (void) close_fd(pidfd);
        return status;
}

static void no_children(void)
{
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
}

/* Runs "report 3" with these options; what it wrote is the caller's. */
static char *run_report(const SpawnOptions *given, pid_t *ret_pid)
{
        SpawnOptions options = *given;
        _cleanup_close_ int out = memfd_create("report", MFD_CLOEXEC);
        char *const argv[] = {(char *) "test", (char *) "report", (char *) "3", NULL};
        char *text = NULL;
        int pidfd = -EBADF;

        assert_true(out >= 0);
        if (options.exec_fd < 0 && !options.path)
                options.path = SELF;
        options.argv = argv;
        options.fds = &out;
        options.n_fds = 1;
        assert_int_equal(spawn_program(&options, ret_pid, &pidfd), 0);
        assert_true(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(finish(pidfd), 0);
        assert_int_equal(lseek(out, 0, SEEK_SET), 0);
        assert_int_equal(fd_read_file(out, 1 << 20, &text, NULL), 0);
        return text;
}

static void assert_line(const char *text, const char *line)
{
        _cleanup_free_ char *framed = NULL, *all = NULL;

        assert_int_equal(text_format(&framed, "\n%s\n", line), 0);
        assert_int_equal(text_format(&all, "\n%s", text), 0);
        if (!strstr(all, framed))
                fail_msg("no line '%s' in: %s", line, text);
}

static void on_signal(int sig)
{
        (void) sig;
}

static void test_clean_child(_unused_ void **state)
{
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_free_ char *text = NULL, *line = NULL;
        _cleanup_close_ int leaked = fcntl(STDIN_FILENO, F_DUPFD, 50), low = fcntl(STDIN_FILENO, F_DUPFD, 3);
        /* The kernel's structure begins with the handler. */
        struct {
                void (*handler)(int);
                unsigned long rest[7];
        } ignore = {.handler = SIG_IGN};
        sigset_t set, before;
        pid_t pid = 0;

        /* All that must not be inherited. */
        assert_true(leaked >= 50 && low >= 3);
        assert_ptr_not_equal(signal(SIGPIPE, SIG_IGN), SIG_ERR);
        assert_ptr_not_equal(signal(SIGUSR1, on_signal), SIG_ERR);
        assert_ptr_not_equal(signal(SIGRTMIN + 3, SIG_IGN), SIG_ERR);
        /* One that glibc keeps to itself, as runtimes that bypass it leave it. */
        assert_int_equal(syscall(SYS_rt_sigaction, 32, &ignore, NULL, NSIG / 8), 0);
        assert_int_equal(sigemptyset(&set), 0);
        assert_int_equal(sigaddset(&set, SIGTERM), 0);
        assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
        assert_int_equal(setenv("SECRET", "1", 1), 0);

        text = run_report(&options, &pid);
        assert_line(text, "fds=0 1 2 3 ");
        assert_line(text, "SigBlk:\t0000000000000000");
        assert_line(text, "SigIgn:\t0000000000000000");
        assert_line(text, "cwd=/");
        assert_line(text, "env:LANG=C.UTF-8");
        assert_non_null(strstr(text, "\nenv:PATH=/"));
        assert_null(strstr(text, "SECRET"));
        assert_null(strstr(text, "LISTEN_"));
        assert_int_equal(text_format(&line, "pid=%d", pid), 0);
        assert_line(text, line);
        assert_int_equal(text_format(&line, "ppid=%d", getpid()), 0);
        assert_line(text, line);

        /* And the parent is as it was. */
        assert_int_equal(sigprocmask(SIG_UNBLOCK, &set, &before), 0);
        assert_int_equal(sigismember(&before, SIGTERM), 1);
        assert_int_equal(sigismember(&before, SIGINT), 0);
        assert_ptr_equal(signal(SIGPIPE, SIG_DFL), SIG_IGN);
        assert_ptr_equal(signal(SIGUSR1, SIG_DFL), on_signal);
        (void) signal(SIGRTMIN + 3, SIG_DFL);
        no_children();
}

static void test_environment(_unused_ void **state)
{
        char *const environment[] = {(char *) "A=1", (char *) "LISTEN_PID=1", (char *) "LISTEN_FDS=9",
                                     (char *) "LISTEN_FDNAMES=x", NULL};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_free_ char *text = NULL, *plain = NULL, *line = NULL;
        pid_t pid = 0;

        options.environment = environment;
        options.listen_pid = true;
        options.new_session = true;
        options.chdir_path = "/proc";
        text = run_report(&options, &pid);
        assert_line(text, "env:A=1");
        assert_line(text, "env:LISTEN_FDS=1");
        assert_line(text, "env:LISTEN_FDNAMES=x");
        assert_null(strstr(text, "LISTEN_FDS=9"));
        assert_null(strstr(text, "LISTEN_PID=1\n"));
        assert_null(strstr(text, "PATH="));
        assert_int_equal(text_format(&line, "env:LISTEN_PID=%d", pid), 0);
        assert_line(text, line);
        assert_int_equal(text_format(&line, "sid=%d", pid), 0);
        assert_line(text, line);
        assert_line(text, "cwd=/proc");

        options.listen_pid = false;
        plain = run_report(&options, NULL);
        assert_line(plain, "env:LISTEN_FDS=9");
}

static int text_file(const char *text)
{
        int fd = memfd_create("text", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        return fd;
}

/* The child of "cat FROM TO" with these descriptors; what came out of out. */
static void run_cat(const SpawnOptions *given, const char *from, const char *to, int out,
                    const char *expected)
{
        char *const argv[] = {(char *) "test", (char *) "cat", (char *) from, (char *) to, NULL};
        SpawnOptions options = *given;
        _cleanup_free_ char *text = NULL;
        int pidfd = -EBADF;

        options.path = SELF;
        options.argv = argv;
        assert_int_equal(spawn_program(&options, NULL, &pidfd), 0);
        assert_int_equal(finish(pidfd), 0);
        assert_int_equal(lseek(out, 0, SEEK_SET), 0);
        assert_int_equal(fd_read_file(out, 4096, &text, NULL), 0);
        assert_string_equal(text, expected);
        assert_int_equal(ftruncate(out, 0), 0);
        assert_int_equal(lseek(out, 0, SEEK_SET), 0);
}

/* Sources whose numbers are one another's targets. */
static void test_shuffle(_unused_ void **state)
{
        static const char *const numbers[] = {"3", "4", "5", "6"};
        char texts[4][2] = {"a", "b", "c", "d"};
        int sources[4], targets[5], i, k;
        _cleanup_close_ int out = memfd_create("out", MFD_CLOEXEC);

        for (i = 0; i < 4; i++)
                sources[i] = text_file(texts[i]);
        /* Turned around, and turned by one: whatever the numbers are, they overlap with 3 to 6 or with each
         * other. */
        for (k = 0; k < 2; k++)
                for (i = 0; i < 4; i++) {
                        SpawnOptions options = SPAWN_OPTIONS_INIT;
                        int j;

                        for (j = 0; j < 4; j++) {
                                targets[j] = sources[k ? (j + 1) % 4 : 3 - j];
                                assert_int_equal(lseek(sources[j], 0, SEEK_SET), 0);
                        }
                        targets[4] = out;
                        options.fds = targets;
                        options.n_fds = 5;
                        run_cat(&options, numbers[i], "7", out, texts[k ? (i + 1) % 4 : 3 - i]);
                }
        for (i = 0; i < 4; i++)
                (void) close_fd(sources[i]);
}

static void test_same_twice(_unused_ void **state)
{
        _cleanup_close_ int in = text_file("twice"), out = memfd_create("out", MFD_CLOEXEC);
        int fds[] = {out, in, out, in};
        SpawnOptions options = SPAWN_OPTIONS_INIT;

        options.fds = fds;
        options.n_fds = ELEMENTSOF(fds);
        run_cat(&options, "6", "5", out, "twice");
}

static void test_standard(_unused_ void **state)
{
        _cleanup_close_ int in = text_file("hello"), out = memfd_create("out", MFD_CLOEXEC);
        SpawnOptions options = SPAWN_OPTIONS_INIT, quiet = SPAWN_OPTIONS_INIT;

        options.stdin_fd = in;
        options.stdout_fd = out;
        run_cat(&options, "0", "1", out, "hello");
        /* stderr in place of stdout's source, and stdin from one of the standard numbers themselves. */
        assert_int_equal(lseek(in, 0, SEEK_SET), 0);
        options.stdout_fd = STDERR_FILENO;
        options.stderr_fd = out;
        run_cat(&options, "0", "2", out, "hello");
        /* Nothing comes from /dev/null, and nothing is to be seen of what goes there. */
        quiet.fds = &out;
        quiet.n_fds = 1;
        run_cat(&quiet, "0", "3", out, "");
}

static void test_exec_fd(_unused_ void **state)
{
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_close_ int program = open(SELF, O_PATH | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;

        assert_true(program >= 0);
        options.exec_fd = program;
        text = run_report(&options, NULL);
        assert_line(text, "fds=0 1 2 3 ");
        /* Still the parent's. */
        assert_true(fcntl(program, F_GETFD) >= 0);
}

static void test_failures(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        char *const argv[] = {(char *) "test", (char *) "exit", (char *) "7", NULL};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_close_ int text = -EBADF;
        int pidfd = -EBADF, bad = 100000;
        pid_t pid = -1;

        options.argv = argv;
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -EINVAL);
        options.path = "/nonexistent/program";
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -ENOENT);
        scratch_make(&s);
        scratch_write(&s, "text", "not a program");
        text = openat(s.fd, "text", O_PATH | O_CLOEXEC);
        assert_true(text >= 0);
        options.exec_fd = text;
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -EACCES);
        assert_int_equal(fchmodat(s.fd, "text", 0755, 0), 0);
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -ENOEXEC);
        options.exec_fd = -EBADF;
        options.path = SELF;
        options.chdir_path = "/nonexistent";
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -ENOENT);
        options.chdir_path = NULL;
        options.fds = &bad;
        options.n_fds = 1;
        assert_int_equal(spawn_program(&options, &pid, &pidfd), -EBADF);
        options.n_fds = 0;
        /* Nothing was written, nobody is left. */
        assert_int_equal(pid, -1);
        assert_int_equal(pidfd, -EBADF);
        no_children();

        assert_int_equal(spawn_program(&options, &pid, &pidfd), 0);
        assert_int_equal(finish(pidfd), 7);
}

static void test_credentials(_unused_ void **state)
{
        static const gid_t groups[] = {1001, 1002};
        SpawnCredentials credentials = {.uid = 65534, .gid = 65533, .groups = groups, .n_groups = 2};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_free_ char *text = NULL;
        char *const argv[] = {(char *) "test", NULL};
        int pidfd = -EBADF;
        /* The program itself may lie where that uid can't go. */
        _cleanup_close_ int program = open(SELF, O_PATH | O_CLOEXEC);

        options.credentials = &credentials;
        options.exec_fd = program;
        options.death_signal = true;
        if (geteuid() != 0) {
                options.argv = argv;
                assert_int_equal(spawn_program(&options, NULL, &pidfd), -EPERM);
                no_children();
                skip();
        }
        text = run_report(&options, NULL);
        assert_line(text, "Uid:\t65534\t65534\t65534\t65534");
        assert_line(text, "Gid:\t65533\t65533\t65533\t65533");
        assert_line(text, "groups=1001 1002 ");
        assert_line(text, "CapEff:\t0000000000000000");
}

static void test_credentials_without_groups(_unused_ void **state)
{
        SpawnCredentials credentials = {.uid = 65534, .gid = 65534};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int program = open(SELF, O_PATH | O_CLOEXEC);

        if (geteuid() != 0)
                skip();
        options.credentials = &credentials;
        options.exec_fd = program;
        text = run_report(&options, NULL);
        assert_line(text, "groups=");
}

/* A grandchild with a death signal ends with its parent: then nobody holds the pipe any more. */
static void test_death_signal(_unused_ void **state)
{
        char *const argv[] = {(char *) "test", (char *) "orphan", (char *) "3", NULL};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        int pair[2], pidfd = -EBADF;
        char c = 0;

        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        in = pair[0];
        out = pair[1];
        options.path = SELF;
        options.argv = argv;
        options.fds = &out;
        options.n_fds = 1;
        assert_int_equal(spawn_program(&options, NULL, &pidfd), 0);
        (void) close_fd(TAKE_FD(out));
        assert_int_equal(finish(pidfd), 0);
        /* It may have been killed before it could write. */
        do
                assert_true(fd_wait(in, POLLIN, now_monotonic() + 30 * USEC_PER_SEC) > 0);
        while (read(in, &c, 1) == 1);
}

/* A copy of this program below the scratch directory. */
static void copy_self(const Scratch *s, const char *name)
{
        _cleanup_free_ char *bytes = NULL;
        _cleanup_close_ int self = open(SELF, O_RDONLY | O_CLOEXEC);
        size_t n;

        assert_true(self >= 0);
        assert_int_equal(fd_read_file(self, SIZE_MAX, &bytes, &n), 0);
        assert_int_equal(fd_write_file_at(s->fd, name, bytes, n, 0755, false), 0);
}

static void run_sibling(const Scratch *s, const char *program, const char *name, const char *expected)
{
        _cleanup_close_ int out = memfd_create("out", MFD_CLOEXEC);
        char *const argv[] = {(char *) "test", (char *) "sibling", (char *) name, (char *) "3", NULL};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        _cleanup_free_ char *path = NULL, *text = NULL;
        int pidfd = -EBADF;

        copy_self(s, program);
        assert_int_equal(path_join(s->path, program, &path), 0);
        options.path = path;
        options.argv = argv;
        options.fds = &out;
        options.n_fds = 1;
        assert_int_equal(spawn_program(&options, NULL, &pidfd), 0);
        assert_int_equal(finish(pidfd), 0);
        assert_int_equal(lseek(out, 0, SEEK_SET), 0);
        assert_int_equal(fd_read_file(out, 4096, &text, NULL), 0);
        assert_string_equal(text, expected);
}

static void test_sibling(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_free_ char *beside = NULL, *library = NULL, *own = NULL;
        _cleanup_close_ int fd = -EBADF;
        char *none = NULL;
        const char *name;

        scratch_make(&s);
        assert_int_equal(mkdirat(s.fd, "bin", 0755), 0);
        assert_int_equal(mkdirat(s.fd, "bin/directory", 0755), 0);
        assert_int_equal(mkdirat(s.fd, "lib", 0755), 0);
        assert_int_equal(mkdirat(s.fd, "lib/iloader", 0755), 0);
        scratch_write(&s, "bin/helper", "");
        scratch_write(&s, "lib/iloader/helper", "");
        scratch_write(&s, "lib/iloader/other", "");
        assert_int_equal(path_join(s.path, "bin/helper", &beside), 0);
        assert_int_equal(path_join(s.path, "lib/iloader/other", &library), 0);
        run_sibling(&s, "bin/program", "helper", beside);
        run_sibling(&s, "bin/program", "other", library);
        run_sibling(&s, "bin/program", "missing", strerror(ENOENT));
        run_sibling(&s, "bin/program", "directory", strerror(ENOENT));
        /* A program that is really called so. */
        run_sibling(&s, "bin/program (deleted)", "helper", beside);

        assert_int_equal(program_open_sibling("", &none), -EINVAL);
        assert_int_equal(program_open_sibling("../sh", &none), -EINVAL);
        assert_null(none);
        /* Not deleted. */
        own = realpath(SELF, NULL);
        assert_non_null(own);
        name = strrchr(own, '/') + 1;
        fd = program_open_sibling(name, NULL);
        assert_true(fd >= 0);
        assert_true(fcntl(fd, F_GETFL) & O_PATH);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_clean_child),
                cmocka_unit_test(test_environment),
                cmocka_unit_test(test_shuffle),
                cmocka_unit_test(test_same_twice),
                cmocka_unit_test(test_standard),
                cmocka_unit_test(test_exec_fd),
                cmocka_unit_test(test_failures),
                cmocka_unit_test(test_credentials),
                cmocka_unit_test(test_credentials_without_groups),
                cmocka_unit_test(test_death_signal),
                cmocka_unit_test(test_sibling),
        };

        if (argc > 1)
                return program_main(argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
