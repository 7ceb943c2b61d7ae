#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "tests/unit/scratch.h"

static void test_sealed(_unused_ void **state)
{
        _cleanup_close_ int fd = -EBADF, reader = -EBADF;
        char link[64], target[512];
        struct stat st;
        ssize_t n;
        void *map;

        fd = memfd_new("weights");
        assert_true(fd >= 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(fd_write_full(fd, "12345678", 8), 0);
        assert_int_equal(memfd_seal(fd, 0440, (gid_t) -1), 0);
        assert_true(((unsigned) fcntl(fd, F_GET_SEALS) & memfd_required_seals()) == memfd_required_seals());
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0440);

        assert_int_equal(pwrite(fd, "x", 1, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fd, 4), -1);
        assert_int_equal(ftruncate(fd, 16), -1);
        assert_ptr_equal(mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
        map = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        assert_int_not_equal(mprotect(map, 8, PROT_READ | PROT_WRITE), 0);
        assert_int_equal(munmap(map, 8), 0);
        /* Sealed for good. */
        assert_int_equal(memfd_seal(fd, 0440, (gid_t) -1), -EPERM);

        (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, target, sizeof(target) - 1);
        assert_true(n > 0);
        target[n] = '\0';
        assert_non_null(strstr(target, "memfd:weights"));

        /* What the owner may read, it may open anew. */
        reader = fd_reopen(fd, O_RDONLY);
        assert_true(reader >= 0);
        assert_int_equal(memfd_verify(reader, 8), 0);
}

static void test_name_is_cut(_unused_ void **state)
{
        _cleanup_close_ int fd = -EBADF, empty = -EBADF;
        char name[1000];

        memset(name, 'n', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        fd = memfd_new(name);
        assert_true(fd >= 0);
        empty = memfd_new("");
        assert_true(empty >= 0);
}

static void test_no_execute_bits(_unused_ void **state)
{
        _cleanup_close_ int fd = memfd_new("code");
        struct stat st;

        assert_true(fd >= 0);
        assert_int_equal(memfd_seal(fd, 04755, (gid_t) -1), 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0644);
}

static void test_group(_unused_ void **state)
{
        _cleanup_close_ int fd = memfd_new("grouped");
        struct stat st;

        assert_true(fd >= 0);
        if (geteuid() != 0)
                skip();
        assert_int_equal(memfd_seal(fd, 0440, 4242), 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_gid, 4242);
        assert_int_equal(st.st_mode & 07777, 0440);
}

static void test_busy(_unused_ void **state)
{
        _cleanup_close_ int fd = memfd_new("mapped");
        void *map;

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 4096), 0);
        map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(map, MAP_FAILED);
        assert_int_equal(memfd_seal(fd, 0400, (gid_t) -1), -EBUSY);
        assert_int_equal(munmap(map, 4096), 0);
        assert_int_equal(memfd_seal(fd, 0400, (gid_t) -1), 0);
}

static void test_data(_unused_ void **state)
{
        _cleanup_close_ int fd = -EBADF, reader = -EBADF, empty = -EBADF;
        char buffer[4] = "";

        fd = memfd_new_sealed_data("data", "abc", 3, 0400);
        assert_true(fd >= 0);
        /* From the beginning, not from where the writing ended. */
        assert_int_equal(read(fd, buffer, sizeof(buffer)), 3);
        assert_string_equal(buffer, "abc");
        reader = fd_reopen(fd, O_RDONLY);
        assert_true(reader >= 0);
        assert_int_equal(memfd_verify(reader, 3), 0);
        assert_int_equal(memfd_verify(reader, UINT64_MAX), 0);
        assert_int_equal(memfd_verify(reader, 2), -EFBIG);
        assert_int_equal(memfd_verify(reader, 4), -EFBIG);
        empty = memfd_new_sealed_data("empty", NULL, 0, 0400);
        assert_true(empty >= 0);
}

/* What a peer might try to pass for a resident file. */
static void test_verify_refuses(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_close_ int writable = -EBADF, unsealed = -EBADF, unsealed_reader = -EBADF, partly = -EBADF;
        _cleanup_close_ int partly_reader = -EBADF, path = -EBADF, write_only = -EBADF, file = -EBADF,
                            null = -EBADF;
        _cleanup_close_ int in = -EBADF, out = -EBADF, shm = -EBADF;
        int pair[2];

        writable = memfd_new_sealed_data("writable", "abc", 3, 0600);
        assert_true(writable >= 0);
        assert_int_equal(memfd_verify(writable, 3), -EBADF);
        path = fd_reopen(writable, O_PATH);
        assert_true(path >= 0);
        assert_int_equal(memfd_verify(path, 3), -EBADF);

        unsealed = memfd_new("unsealed");
        assert_int_equal(ftruncate(unsealed, 3), 0);
        unsealed_reader = fd_reopen(unsealed, O_RDONLY);
        assert_int_equal(memfd_verify(unsealed_reader, 3), -EPERM);
        write_only = fd_reopen(unsealed, O_WRONLY);
        assert_int_equal(memfd_verify(write_only, 3), -EBADF);

        /* Everything but the writes that a mapping made before could still do. */
        partly = memfd_new("partly");
        assert_int_equal(
                fcntl(partly, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL),
                0);
        partly_reader = fd_reopen(partly, O_RDONLY);
        assert_int_equal(memfd_verify(partly_reader, 0), -EPERM);

        scratch_make(&s);
        scratch_write(&s, "file", "abc");
        file = openat(s.fd, "file", O_RDONLY | O_CLOEXEC);
        assert_true(file >= 0);
        /* On tmpfs seals are known, but such files never have them. */
        assert_true(memfd_verify(file, 3) == -EINVAL || memfd_verify(file, 3) == -EPERM);
        shm = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (shm >= 0) {
                _cleanup_close_ int reader = fd_reopen(shm, O_RDONLY);

                assert_true(memfd_verify(reader, 0) == -EINVAL || memfd_verify(reader, 0) == -EPERM);
        }

        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(memfd_verify(null, UINT64_MAX), -ENOTTY);
        assert_int_equal(memfd_verify(s.fd, UINT64_MAX), -ENOTTY);
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        in = pair[0];
        out = pair[1];
        assert_int_equal(memfd_verify(in, 0), -ENOTTY);
        assert_int_equal(memfd_verify(-EBADF, 0), -EBADF);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sealed),
                cmocka_unit_test(test_name_is_cut),
                cmocka_unit_test(test_no_execute_bits),
                cmocka_unit_test(test_group),
                cmocka_unit_test(test_busy),
                cmocka_unit_test(test_data),
                cmocka_unit_test(test_verify_refuses),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
