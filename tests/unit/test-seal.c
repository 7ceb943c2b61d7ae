/* daemon/worker/seal and resident: numbers that stay, bytes that can't change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/memfd.h"
#include "daemon/worker/seal.h"
#include "tests/unit/sample.h"

static const uint64_t sizes[] = {100, MIB(1), MIB(2) + 5};

static void test_numbers(void **state)
{
        _cleanup_sample_ Sample s;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        assert_int_equal(s.resident.n, 3);
        for (size_t i = 0; i < 3; i++) {
                struct stat st;

                assert_int_equal(resident_fd(&s.resident, i), SAMPLE_FIRST + (int) i);
                assert_int_equal(fstat(SAMPLE_FIRST + (int) i, &st), 0);
                assert_int_equal(st.st_size, sizes[i]);
                assert_true(fcntl(SAMPLE_FIRST + (int) i, F_GETFD) & FD_CLOEXEC);
        }
        assert_int_equal(resident_fd(&s.resident, 3), -EBADF);
        assert_int_equal(fcntl(SAMPLE_FIRST + 3, F_GETFD), -1);
}

/* A number that is taken is never closed over. */
static void test_number_taken(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        Resident other = {};
        struct stat a, b;
        int taken;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        resident_done(&s.resident);
        assert_int_equal(fcntl(SAMPLE_FIRST, F_GETFD), -1);
        taken = fcntl(s.root_fd, F_DUPFD_CLOEXEC, SAMPLE_FIRST + 1);
        assert_int_equal(taken, SAMPLE_FIRST + 1);
        assert_int_equal(resident_create(SAMPLE_FIRST, "test", &s.layout, &s.selection, &other, &failure),
                         -EBUSY);
        assert_int_equal(other.n, 0);
        assert_int_equal(fcntl(SAMPLE_FIRST, F_GETFD), -1);
        assert_int_equal(fstat(taken, &a), 0);
        assert_int_equal(fstat(s.root_fd, &b), 0);
        assert_int_equal(a.st_ino, b.st_ino);
        (void) close_fd(taken);
}

static void test_seal(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        ino_t inodes[3];
        struct stat st;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        for (size_t i = 0; i < 3; i++) {
                assert_int_equal(fd_pwrite_full(resident_fd(&s.resident, i), "before", 6, 10), 0);
                assert_int_equal(fstat(resident_fd(&s.resident, i), &st), 0);
                inodes[i] = st.st_ino;
        }
        assert_int_equal(seal_resident(&s.resident, 0440, (gid_t) -1, &failure), 0);
        for (size_t i = 0; i < 3; i++) {
                int fd = resident_fd(&s.resident, i), writable;
                char got[7] = "", path[64];

                assert_int_equal(fd, SAMPLE_FIRST + (int) i);
                assert_int_equal(memfd_verify(fd, sizes[i]), 0);
                assert_int_equal(fstat(fd, &st), 0);
                assert_int_equal(st.st_ino, inodes[i]);
                assert_int_equal(st.st_mode & 07777, 0440);
                assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
                assert_int_equal(pwrite(fd, "x", 1, 0), -1);
                assert_int_equal(fd_pread_full(fd, got, 6, 10), 0);
                assert_string_equal(got, "before");

                /* root can reopen it for writing, whatever the mode: the seals still hold */
                (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                writable = open(path, O_RDWR | O_CLOEXEC);
                if (writable < 0)
                        continue;
                assert_int_equal(pwrite(writable, "x", 1, 0), -1);
                assert_int_equal(errno, EPERM);
                assert_int_equal(ftruncate(writable, 0), -1);
                assert_int_equal(ftruncate(writable, (off_t) GIB(1)), -1);
                assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0),
                                 MAP_FAILED);
                (void) close_fd(writable);
        }
}

/* A mapping that was forgotten is found out rather than sealed around. */
static void test_mapped(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        void *p;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, resident_fd(&s.resident, 1), 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        assert_int_equal(seal_resident(&s.resident, 0400, (gid_t) -1, &failure), -EBUSY);
        assert_non_null(failure.message);
        assert_int_equal(munmap(p, 4096), 0);
}

static void test_group(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        struct stat st;

        if (geteuid() != 0)
                skip();
        sample_make(&s, sizes, ELEMENTSOF(sizes));
        assert_int_equal(seal_resident(&s.resident, 0440, 12345, &failure), 0);
        assert_int_equal(fstat(resident_fd(&s.resident, 0), &st), 0);
        assert_int_equal(st.st_gid, 12345);
}

static void test_one(void **state)
{
        int fd = memfd_new("one"), writable = -EBADF;

        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, "abc", 3), 0);
        writable = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        assert_int_equal(seal_one(&fd, 0400, (gid_t) -1), 0);
        assert_int_equal(memfd_verify(fd, 3), 0);
        assert_int_equal(memfd_verify(writable, 3), -EBADF);
        /* already sealed */
        assert_true(seal_one(&fd, 0400, (gid_t) -1) < 0);
        (void) close_fd(fd);
        (void) close_fd(writable);
}

static void test_limit(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        struct rlimit before, low;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = (struct rlimit){MIN2((rlim_t) 1000, before.rlim_cur), before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        assert_int_equal(resident_check_limit(64, 10, 4, &failure), 0);
        assert_int_equal(resident_check_limit(64, low.rlim_cur, 4, &failure), -E2BIG);
        assert_int_equal(failure.kind, FAILURE_TOO_MANY_FILES);
        assert_int_equal(failure.files, low.rlim_cur);
        assert_in_range(failure.maximum, 100, low.rlim_cur - 64);
        failure_done(&failure);
        /* threads need some too */
        assert_int_equal(resident_check_limit(64, 10, 256, &failure), -E2BIG);
        assert_int_equal(failure.maximum, 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_numbers), cmocka_unit_test(test_number_taken),
                cmocka_unit_test(test_seal),    cmocka_unit_test(test_mapped),
                cmocka_unit_test(test_group),   cmocka_unit_test(test_one),
                cmocka_unit_test(test_limit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
