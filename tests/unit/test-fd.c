#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "tests/unit/scratch.h"

static void test_read_full(_unused_ void **state)
{
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        int pair[2];
        char buffer[8] = "";

        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        in = pair[0];
        out = pair[1];
        assert_int_equal(fd_write_full(out, "abcdef", 6), 0);
        assert_int_equal(fd_read_full(in, buffer, 4), 0);
        assert_memory_equal(buffer, "abcd", 4);
        assert_int_equal(fd_read_full(in, buffer, 0), 0);
        /* Two bytes are there, and then the end. */
        (void) close_fd(TAKE_FD(out));
        assert_int_equal(fd_read_full(in, buffer, 3), -EIO);
        assert_int_equal(fd_read_full(-EBADF, buffer, 1), -EBADF);
        assert_int_equal(fd_write_full(in, "x", 1), -EBADF);
}

static void *write_slowly(void *p)
{
        static const char text[] = "0123456789";
        const int *fd = p;
        size_t i;

        for (i = 0; i < 10; i++)
                if (write(*fd, text + i, 1) != 1)
                        return p;
        return NULL;
}

static void test_read_full_nonblocking(_unused_ void **state)
{
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        char buffer[11] = "";
        pthread_t thread;
        void *failed;
        int pair[2];

        assert_int_equal(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
        in = pair[0];
        out = pair[1];
        assert_int_equal(pthread_create(&thread, NULL, write_slowly, &out), 0);
        assert_int_equal(fd_read_full(in, buffer, 10), 0);
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        assert_string_equal(buffer, "0123456789");
}

static void test_offsets(_unused_ void **state)
{
        _cleanup_close_ int fd = memfd_create("test", MFD_CLOEXEC);
        char buffer[4] = "";

        assert_true(fd >= 0);
        assert_int_equal(fd_pwrite_full(fd, "abcd", 4, 10), 0);
        assert_int_equal(fd_pread_full(fd, buffer, 4, 10), 0);
        assert_memory_equal(buffer, "abcd", 4);
        assert_int_equal(fd_pread_full(fd, buffer, 4, 11), -EIO);
        assert_int_equal(fd_pread_full(fd, buffer, 1, UINT64_MAX), -EOVERFLOW);
        assert_int_equal(fd_pwrite_full(fd, buffer, 1, (uint64_t) INT64_MAX), -EOVERFLOW);
        assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
}

static void test_read_file(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_free_ char *text = NULL, *empty = NULL, *proc = NULL, *large = NULL, *pattern = NULL;
        char *none = NULL;
        size_t n = 7;

        scratch_make(&s);
        scratch_write(&s, "five", "12345");
        scratch_write(&s, "empty", "");
        assert_int_equal(fd_read_file_at(s.fd, "five", 5, &text, &n), 0);
        assert_int_equal(n, 5);
        assert_string_equal(text, "12345");
        assert_int_equal(fd_read_file_at(s.fd, "five", 4, &none, NULL), -EFBIG);
        assert_int_equal(fd_read_file_at(s.fd, "five", 0, &none, NULL), -EFBIG);
        assert_int_equal(fd_read_file_at(s.fd, "empty", 0, &empty, &n), 0);
        assert_int_equal(n, 0);
        assert_string_equal(empty, "");
        /* Says that it has no bytes. */
        assert_int_equal(fd_read_file_at(AT_FDCWD, "/proc/self/status", SIZE_MAX, &proc, &n), 0);
        assert_true(n > 0 && n == strlen(proc));

        /* More than one turn of the loop. */
        pattern = malloc(100001);
        assert_non_null(pattern);
        memset(pattern, 'p', 100000);
        pattern[100000] = '\0';
        scratch_write(&s, "large", pattern);
        assert_int_equal(fd_read_file_at(s.fd, "large", 99999, &none, NULL), -EFBIG);
        assert_int_equal(fd_read_file_at(s.fd, "large", 100000, &large, &n), 0);
        assert_string_equal(large, pattern);
        assert_null(none);
}

static void test_read_file_refusals(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        char *none = NULL;

        scratch_make(&s);
        scratch_write(&s, "file", "x");
        assert_int_equal(symlinkat("file", s.fd, "link"), 0);
        assert_int_equal(mkdirat(s.fd, "directory", 0755), 0);
        assert_int_equal(mkfifoat(s.fd, "fifo", 0600), 0);
        assert_int_equal(fd_read_file_at(s.fd, "link", 9, &none, NULL), -ELOOP);
        assert_int_equal(fd_read_file_at(s.fd, "directory", 9, &none, NULL), -EISDIR);
        /* Would block for ever, with nobody at its other end. */
        assert_int_equal(fd_read_file_at(s.fd, "fifo", 9, &none, NULL), -EINVAL);
        assert_int_equal(fd_read_file_at(AT_FDCWD, "/dev/null", 9, &none, NULL), -EINVAL);
        assert_int_equal(fd_read_file_at(s.fd, "missing", 9, &none, NULL), -ENOENT);
        assert_null(none);
}

/* How many entries the directory has. */
static unsigned count(const Scratch *s)
{
        char path[80];
        unsigned n = 0;
        FILE *p;
        int c;

        (void) snprintf(path, sizeof(path), "ls -A %s", s->path);
        p = popen(path, "re");
        assert_non_null(p);
        while ((c = fgetc(p)) != EOF)
                n += c == '\n';
        assert_int_equal(pclose(p), 0);
        return n;
}

static void test_write_file(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_close_ int old = -EBADF, path_fd = -EBADF;
        _cleanup_free_ char *text = NULL, *before = NULL, *nested = NULL;
        char name[256];
        struct stat st;
        mode_t mask;

        scratch_make(&s);
        scratch_write(&s, "file", "old");
        old = openat(s.fd, "file", O_RDONLY | O_CLOEXEC);
        mask = umask(077);
        assert_int_equal(fd_write_file_at(s.fd, "file", "new one", 7, 0644, true), 0);
        (void) umask(mask);
        assert_int_equal(fd_read_file_at(s.fd, "file", 99, &text, NULL), 0);
        assert_string_equal(text, "new one");
        assert_int_equal(fstatat(s.fd, "file", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
        /* Replaced, not overwritten: who has the old one open reads the old one. */
        assert_int_equal(fd_read_file(old, 99, &before, NULL), 0);
        assert_string_equal(before, "old");
        assert_int_equal(count(&s), 1);

        /* The longest name there is, below a directory that can't be synchronized itself. */
        memset(name, 'n', 255);
        name[255] = '\0';
        path_fd = open(s.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(path_fd >= 0);
        assert_int_equal(fd_write_file_at(path_fd, name, "", 0, 0600, true), 0);
        assert_int_equal(mkdirat(s.fd, "sub", 0755), 0);
        assert_int_equal(fd_write_file_at(path_fd, "sub/file", "nested", 6, 0600, true), 0);
        assert_int_equal(fd_read_file_at(s.fd, "sub/file", 99, &nested, NULL), 0);
        assert_string_equal(nested, "nested");
        assert_int_equal(count(&s), 3);
}

static void test_write_file_refusals(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF}, outside = {.fd = -EBADF};
        _cleanup_free_ char *text = NULL;
        char target[96];
        struct stat st;

        scratch_make(&s);
        scratch_make(&outside);
        scratch_write(&outside, "precious", "kept");
        assert_int_equal(mkdirat(s.fd, "directory", 0755), 0);
        /* And leaves nothing behind. */
        assert_int_equal(fd_write_file_at(s.fd, "directory", "x", 1, 0600, false), -EISDIR);
        assert_int_equal(fd_write_file_at(s.fd, "", "x", 1, 0600, false), -EINVAL);
        assert_int_equal(fd_write_file_at(s.fd, "directory/", "x", 1, 0600, false), -EINVAL);
        assert_int_equal(fd_write_file_at(s.fd, "missing/x", "x", 1, 0600, false), -ENOENT);
        assert_int_equal(count(&s), 1);

        /* A link is replaced, never written through. */
        (void) snprintf(target, sizeof(target), "%s/precious", outside.path);
        assert_int_equal(symlinkat(target, s.fd, "link"), 0);
        assert_int_equal(fd_write_file_at(s.fd, "link", "x", 1, 0600, false), 0);
        assert_int_equal(fstatat(s.fd, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(fd_read_file_at(outside.fd, "precious", 99, &text, NULL), 0);
        assert_string_equal(text, "kept");
}

static void test_duplicates(_unused_ void **state)
{
        _cleanup_close_ int fd = memfd_create("test", 0), dup = -EBADF, own = -EBADF;
        char c = 0;

        assert_true(fd >= 0);
        assert_int_equal(write(fd, "ab", 2), 2);
        dup = fd_dup(fd);
        assert_true(dup >= 3);
        assert_true(fcntl(dup, F_GETFD) & FD_CLOEXEC);
        own = fd_reopen(fd, O_RDONLY | O_NOFOLLOW);
        assert_true(own >= 0);
        assert_true(fcntl(own, F_GETFD) & FD_CLOEXEC);
        /* An offset of its own, and no right to write. */
        assert_int_equal(read(own, &c, 1), 1);
        assert_int_equal(c, 'a');
        assert_int_equal(lseek(dup, 0, SEEK_CUR), 2);
        assert_int_equal(write(own, "x", 1), -1);
        assert_int_equal(errno, EBADF);
        assert_int_equal(fd_dup(-EBADF), -EBADF);
        assert_int_equal(fd_reopen(-EBADF, O_RDONLY), -EBADF);

        assert_int_equal(fd_set_cloexec(fd, true), 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fd_set_cloexec(fd, false), 0);
        assert_false(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fd_set_nonblock(fd, true), 0);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(fd_set_nonblock(fd, false), 0);
        assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(fd_set_nonblock(-EBADF, true), -EBADF);
        assert_int_equal(fd_set_cloexec(-EBADF, true), -EBADF);
}

static void test_set(_unused_ void **state)
{
        FdSet set = {0};
        int fds[20], stolen;
        size_t i;

        assert_int_equal(fd_set_steal_first(&set), -ENOENT);
        assert_int_equal(fd_set_take(&set, -EBADF), -EBADF);
        for (i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = memfd_create("test", MFD_CLOEXEC);
                assert_true(fds[i] >= 0);
                assert_int_equal(fd_set_take(&set, fds[i]), 0);
        }
        assert_int_equal(set.n, ELEMENTSOF(fds));
        stolen = fd_set_steal_first(&set);
        assert_int_equal(stolen, fds[0]);
        assert_int_equal(fd_set_steal_first(&set), fds[1]);
        fd_set_done(&set);
        assert_int_equal(set.n, 0);
        assert_null(set.fds);
        /* The stolen ones are ours to close, the others are closed. */
        assert_true(fcntl(fds[0], F_GETFD) >= 0);
        assert_true(fcntl(fds[1], F_GETFD) >= 0);
        for (i = 2; i < ELEMENTSOF(fds); i++)
                assert_int_equal(fcntl(fds[i], F_GETFD), -1);
        (void) close_fd(fds[0]);
        (void) close_fd(fds[1]);
        fd_set_done(&set);
}

/* Runs in a child, since it can't be undone here; the child's exit code names the step that failed. */
static int run_child(int (*f)(void))
{
        int status = 0;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(f());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static int raise_limit(void)
{
        struct rlimit limit;
        uint64_t previous = 0;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return 1;
        limit.rlim_cur = 64;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                return 2;
        if (fd_limit_raise(&previous) != 0 || previous != 64)
                return 3;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur != limit.rlim_max)
                return 4;
        return fd_limit_raise(NULL) == 0 ? 0 : 5;
}

static int close_all(void)
{
        int fds[40], keep[3], i;

        for (i = 0; i < 40; i++) {
                fds[i] = fcntl(STDIN_FILENO, F_DUPFD, i < 20 ? 3 : 200);
                if (fds[i] < 0)
                        return 1;
        }
        /* Not sorted, one of them twice. */
        keep[0] = fds[30];
        keep[1] = fds[5];
        keep[2] = fds[30];
        if (fd_close_all_except(keep, 3) != 0)
                return 2;
        for (i = 0; i < 40; i++)
                if ((fcntl(fds[i], F_GETFD) >= 0) != (i == 5 || i == 30))
                        return 3;
        for (i = 0; i < 3; i++)
                if (fcntl(i, F_GETFD) < 0)
                        return 4;
        if (fd_close_from_except(fds[30], NULL, 0) != 0 || fcntl(fds[30], F_GETFD) >= 0 ||
            fcntl(fds[5], F_GETFD) < 0)
                return 5;
        return 0;
}

static int close_all_by_listing(void)
{
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

        if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(close_range), 0) < 0 ||
            seccomp_load(filter) < 0)
                return 77;
        seccomp_release(filter);
        if (close_range(1000, 1001, 0) == 0)
                return 78;
        return close_all();
}

static void test_limits(_unused_ void **state)
{
        assert_int_equal(run_child(raise_limit), 0);
}

static void test_close_all(_unused_ void **state)
{
        assert_int_equal(run_child(close_all), 0);
}

static void test_close_all_by_listing(_unused_ void **state)
{
        int r = run_child(close_all_by_listing);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static void test_wait(_unused_ void **state)
{
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        usec_t start = now_monotonic();
        int pair[2];

        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        in = pair[0];
        out = pair[1];
        assert_int_equal(fd_wait(in, POLLIN, 0), -ETIMEDOUT);
        assert_int_equal(fd_wait(in, POLLIN, start), -ETIMEDOUT);
        assert_int_equal(fd_wait(in, POLLIN, now_monotonic() + 20 * USEC_PER_MSEC), -ETIMEDOUT);
        assert_true(now_monotonic() >= start + 20 * USEC_PER_MSEC);
        assert_int_equal(fd_wait(out, POLLOUT, USEC_INFINITY), POLLOUT);
        assert_int_equal(write(out, "x", 1), 1);
        /* What is ready is told even past the deadline. */
        assert_int_equal(fd_wait(in, POLLIN, 0), POLLIN);
        assert_int_equal(fd_wait(in, POLLIN, USEC_INFINITY - 1), POLLIN);
        (void) close_fd(TAKE_FD(out));
        assert_true(fd_wait(in, POLLIN, USEC_INFINITY) & POLLHUP);
        assert_int_equal(fd_wait(-EBADF, POLLIN, USEC_INFINITY), -EBADF);
        assert_int_equal(fd_wait(pair[1], POLLIN, USEC_INFINITY), -EBADF);
        assert_true(now_realtime() > 1000000000 * USEC_PER_SEC);
}

static void test_reserve_standard(_unused_ void **state)
{
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                char byte;

                (void) close(STDIN_FILENO);
                (void) close(STDERR_FILENO);
                /* All three numbers are taken now; those that were closed refuse what closed ones refuse. */
                _exit(fd_reserve_standard() == 0 && read(STDIN_FILENO, &byte, 1) < 0 && errno == EBADF &&
                                      write(STDERR_FILENO, "x", 1) < 0 && errno == EBADF &&
                                      (fcntl(STDIN_FILENO, F_GETFD) & FD_CLOEXEC) &&
                                      (fcntl(STDERR_FILENO, F_GETFD) & FD_CLOEXEC) && dup(STDOUT_FILENO) > 2
                              ? 0
                              : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        /* Where they are open nothing changes. */
        assert_int_equal(fd_reserve_standard(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_read_full),
                cmocka_unit_test(test_read_full_nonblocking),
                cmocka_unit_test(test_offsets),
                cmocka_unit_test(test_read_file),
                cmocka_unit_test(test_read_file_refusals),
                cmocka_unit_test(test_write_file),
                cmocka_unit_test(test_write_file_refusals),
                cmocka_unit_test(test_duplicates),
                cmocka_unit_test(test_set),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_close_all),
                cmocka_unit_test(test_close_all_by_listing),
                cmocka_unit_test(test_wait),
                cmocka_unit_test(test_reserve_standard),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
