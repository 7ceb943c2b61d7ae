/* daemon/quota: the quota's file, whole and damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "daemon/quota.h"
#include "tests/unit/scratch.h"

static void test_round_trip(void **state)
{
        static const uint64_t values[] = {0, 1, GIB(64), UINT64_MAX - 1};
        const Scratch *d = *state;
        struct stat st;
        uint64_t quota;

        assert_int_equal(quota_load(d->fd, "quota", &quota), 0);
        assert_int_equal(quota, UINT64_MAX);
        for (size_t i = 0; i < ELEMENTSOF(values); i++) {
                assert_int_equal(quota_save(d->fd, "quota", values[i]), 0);
                assert_int_equal(quota_load(d->fd, "quota", &quota), 0);
                assert_int_equal(quota, values[i]);
        }
        assert_int_equal(fstatat(d->fd, "quota", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(quota_save(d->fd, "quota", UINT64_MAX), 0);
        assert_int_equal(fstatat(d->fd, "quota", &st, 0), -1);
        assert_int_equal(quota_load(d->fd, "quota", &quota), 0);
        assert_int_equal(quota, UINT64_MAX);
        /* Removing what isn't there is done. */
        assert_int_equal(quota_save(d->fd, "quota", UINT64_MAX), 0);
}

static void test_damaged(void **state)
{
        static const char *const bad[] = {
                "",
                "\n",
                "12",
                "12\n\n",
                "12 \n",
                " 12\n",
                "-12\n",
                "+12\n",
                "0x12\n",
                "12K\n",
                "x\n",
                "1.5\n",
                "18446744073709551615\n",
                "18446744073709551616\n",
                "1234567890123456789012345\n",
        };
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                uint64_t quota = 42;
                int r;

                assert_int_equal(fd_write_file_at(d->fd, "quota", bad[i], strlen(bad[i]), 0600, false), 0);
                r = quota_load(d->fd, "quota", &quota);
                if (r != -EBADMSG)
                        fail_msg("'%s': %d", bad[i], r);
                assert_int_equal(quota, 42);
        }
        assert_int_equal(fd_write_file_at(d->fd, "quota", "1\0002\n", 4, 0600, false), 0);
        assert_int_equal(quota_load(d->fd, "quota", &(uint64_t){0}), -EBADMSG);
}

static void test_not_files(void **state)
{
        const Scratch *d = *state;
        uint64_t quota;

        assert_int_equal(symlinkat("/proc/sys/vm/swappiness", d->fd, "link"), 0);
        assert_int_equal(quota_load(d->fd, "link", &quota), -EBADMSG);
        assert_int_equal(mkfifoat(d->fd, "fifo", 0600), 0);
        assert_int_equal(quota_load(d->fd, "fifo", &quota), -EBADMSG);
        assert_int_equal(mkdirat(d->fd, "directory", 0700), 0);
        assert_int_equal(quota_load(d->fd, "directory", &quota), -EBADMSG);
        /* A link in the file's place is replaced, not followed. */
        assert_int_equal(quota_save(d->fd, "link", 7), 0);
        assert_int_equal(quota_load(d->fd, "link", &quota), 0);
        assert_int_equal(quota, 7);
}

static void test_unwritable(void **state)
{
        _cleanup_close_ int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);

        assert_true(proc >= 0);
        assert_true(quota_save(proc, "quota", 7) < 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_round_trip),
                TEST(test_damaged),
                TEST(test_not_files),
                TEST(test_unwritable),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
