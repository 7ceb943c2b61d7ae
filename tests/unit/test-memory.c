/* base/memory on trees of files that stand for /proc and /sys/fs/cgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/text.h"

typedef struct Tree {
        char directory[32];
        int fd, proc, sys;
} Tree;

static int setup(void **state)
{
        Tree *t = calloc(1, sizeof(*t));

        assert_non_null(t);
        strcpy(t->directory, "/tmp/test-memory-XXXXXX");
        assert_non_null(mkdtemp(t->directory));
        t->fd = open(t->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(t->fd >= 0);
        assert_int_equal(mkdirat(t->fd, "proc", 0700), 0);
        assert_int_equal(mkdirat(t->fd, "sys", 0700), 0);
        assert_int_equal(mkdirat(t->fd, "proc/self", 0700), 0);
        t->proc = openat(t->fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        t->sys = openat(t->fd, "sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(t->proc >= 0 && t->sys >= 0);
        *state = t;
        return 0;
}

static int teardown(void **state)
{
        Tree *t = *state;

        (void) path_remove_tree(AT_FDCWD, t->directory, 10000);
        (void) close(t->proc);
        (void) close(t->sys);
        (void) close(t->fd);
        free(t);
        return 0;
}

/* Writes a file and makes the directories above it. */
static void put(int dirfd, const char *path, const char *text)
{
        _cleanup_free_ char *copy = strdup(path);
        _cleanup_close_ int fd = -EBADF;

        assert_non_null(copy);
        for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                assert_true(mkdirat(dirfd, copy, 0700) == 0 || errno == EEXIST);
                *slash = '/';
        }
        fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, text, strlen(text)), 0);
}

#define MEMINFO                                                                                              \
        "MemTotal:       16384 kB\nMemFree:         4096 kB\nMemAvailable:    8192 kB\n"                     \
        "SwapTotal:       2048 kB\nSwapFree:        1024 kB\n"
#define MOUNT_V2     "40 30 0:37 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1     "34 30 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define MOUNT_HYBRID "40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

static void proc(Tree *t, const char *meminfo, const char *cgroup, const char *mountinfo)
{
        if (meminfo)
                put(t->proc, "meminfo", meminfo);
        if (cgroup)
                put(t->proc, "self/cgroup", cgroup);
        if (mountinfo)
                put(t->proc, "self/mountinfo", mountinfo);
}

static void group_v2(Tree *t, const char *group, const char *max, const char *current, const char *stat)
{
        char path[256];
        const struct {
                const char *name, *text;
        } files[] = {{"memory.max", max}, {"memory.current", current}, {"memory.stat", stat}};

        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                if (files[i].text) {
                        (void) snprintf(path, sizeof(path), "%s%s%s", group, *group ? "/" : "",
                                        files[i].name);
                        put(t->sys, path, files[i].text);
                }
}

static void group_v1(Tree *t, const char *group, const char *limit, const char *usage, const char *stat)
{
        char path[256];
        const struct {
                const char *name, *text;
        } files[] = {
                {"memory.limit_in_bytes", limit}, {"memory.usage_in_bytes", usage}, {"memory.stat", stat}};

        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                if (files[i].text) {
                        (void) snprintf(path, sizeof(path), "memory/%s%s%s", group, *group ? "/" : "",
                                        files[i].name);
                        put(t->sys, path, files[i].text);
                }
}

static void expect(Tree *t, uint64_t available, const char *limit, size_t n_limits)
{
        _cleanup_memory_snapshot_ MemorySnapshot s = {};
        const char *bound = NULL;

        assert_int_equal(memory_snapshot_read(t->proc, t->sys, &s), 0);
        assert_int_equal(memory_effective_available(&s, &bound), available);
        assert_string_equal(bound, limit);
        assert_int_equal(s.n_limits, n_limits);
}

static void test_meminfo(void **state)
{
        Tree *t = *state;
        _cleanup_memory_snapshot_ MemorySnapshot s = {};

        proc(t, MEMINFO, NULL, NULL);
        assert_int_equal(memory_snapshot_read(t->proc, t->sys, &s), 0);
        assert_int_equal(s.total, MIB(16));
        assert_int_equal(s.available, MIB(8));
        assert_int_equal(s.swap_free, MIB(1));
        assert_int_equal(s.n_limits, 0);
        expect(t, MIB(8), "MemAvailable", 0);
}

static void test_meminfo_refused(void **state)
{
        static const char *const bad[] = {
                "",
                "MemTotal: 1 kB\n",
                "MemAvailable: 1 kB\n",
                "MemTotal: 1 kB\nMemAvailable: x kB\n",
                "MemTotal: 1 kB\nMemAvailable: -1 kB\n",
                "MemTotal: 1 kB\nMemAvailable: 99999999999999999999999999 kB\n",
                "XMemTotal: 1 kB\nXMemAvailable: 1 kB\n",
        };
        Tree *t = *state;
        MemorySnapshot s = {};

        assert_int_equal(memory_snapshot_read(t->proc, t->sys, &s), -ENOENT);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                proc(t, bad[i], NULL, NULL);
                assert_int_equal(memory_snapshot_read(t->proc, t->sys, &s), -ENODATA);
        }
        /* A figure that overflows when it becomes bytes stays large. */
        proc(t, "MemTotal: 18446744073709551615 kB\nMemAvailable: 18446744073709551615 kB\n", NULL, NULL);
        expect(t, UINT64_MAX, "MemAvailable", 0);
}

static void test_v2_nested(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a.slice/b.service/c\n", MOUNT_V2);
        group_v2(t, "a.slice/b.service/c", "max\n", "1048576\n", "inactive_file 0\n");
        group_v2(t, "a.slice/b.service", "4194304\n", "1048576\n",
                 "file 900000\ninactive_file 0\nactive_file 0\n");
        group_v2(t, "a.slice", "5242880\n", "4194304\n", "inactive_file 524288\nactive_file 524288\n");
        put(t->sys, "memory.stat", "inactive_file 1\n");
        /* b allows 3 MiB, a 5 - (4 - 1) = 2 MiB. */
        expect(t, MIB(2), "/sys/fs/cgroup/a.slice", 2);
}

static void test_v2_high(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a\n", MOUNT_V2);
        group_v2(t, "a", "max\n", "1048576\n", NULL);
        put(t->sys, "a/memory.high", "2097152\n");
        expect(t, MIB(1), "/sys/fs/cgroup/a", 1);
        put(t->sys, "a/memory.max", "1572864\n");
        expect(t, MIB(1) / 2, "/sys/fs/cgroup/a", 1);
}

/* shmem counts under "file" and "shmem", and can't be given back: only the file lists count. */
static void test_v2_shmem(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a\n", MOUNT_V2);
        group_v2(t, "a", "8388608\n", "7340032\n",
                 "anon 0\nfile 7340032\nshmem 6291456\ninactive_anon 6291456\ninactive_file 262144\n"
                 "active_file 786432\nunevictable 0\n");
        expect(t, MIB(2), "/sys/fs/cgroup/a", 1);
}

static void test_below_current(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a\n", MOUNT_V2);
        group_v2(t, "a", "1048576\n", "2097152\n", "inactive_file 0\n");
        expect(t, 0, "/sys/fs/cgroup/a", 1);
        /* More reclaimable than charged (read at different moments) is all of it, and no more. */
        group_v2(t, "a", "1048576\n", "2097152\n", "inactive_file 18446744073709551615\nactive_file 5\n");
        expect(t, MIB(1), "/sys/fs/cgroup/a", 1);
}

/* A limit whose use can't be read counts as used up; one without memory.stat has nothing to reclaim. */
static void test_missing_files(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a/b\n", MOUNT_V2);
        group_v2(t, "a", "4194304\n", "1048576\n", NULL);
        expect(t, MIB(3), "/sys/fs/cgroup/a", 1);
        group_v2(t, "a/b", "4194304\n", NULL, "inactive_file 4194304\n");
        expect(t, 0, "/sys/fs/cgroup/a/b", 2);
        put(t->sys, "a/b/memory.current", "no number\n");
        expect(t, 0, "/sys/fs/cgroup/a/b", 2);
        /* A directory in a file's place is a file that can't be read. */
        assert_int_equal(unlinkat(t->sys, "a/b/memory.max", 0), 0);
        assert_int_equal(mkdirat(t->sys, "a/b/memory.max", 0700), 0);
        expect(t, MIB(3), "/sys/fs/cgroup/a", 1);
}

static void test_v1(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "9:name=systemd:/\n4:memory:/x/y\n3:cpuset,cpu:/z\n0::/\n", MOUNT_V1 MOUNT_HYBRID);
        group_v1(t, "", "9223372036854771712\n", "8388608\n", "total_inactive_file 0\n");
        group_v1(t, "x", "6291456\n", "4194304\n",
                 "cache 4194304\ninactive_file 4194304\ntotal_inactive_file 524288\ntotal_active_file "
                 "524288\n");
        group_v1(t, "x/y", "9223372036854771712\n", "1048576\n", "total_inactive_file 0\n");
        /* 6 - (4 - 1): the group's own figures without "total_" leave out its children. */
        expect(t, MIB(3), "/sys/fs/cgroup/memory/x", 1);
}

static void test_v1_swap_and_hierarchy(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "4:memory:/x/y\n", MOUNT_V1);
        group_v1(t, "x/y", "6291456\n", "1048576\n", NULL);
        put(t->sys, "memory/x/y/memory.memsw.limit_in_bytes", "6291456\n");
        put(t->sys, "memory/x/y/memory.memsw.usage_in_bytes", "5242880\n");
        expect(t, MIB(1), "/sys/fs/cgroup/memory/x/y", 2);
        /* An ancestor without hierarchy limits only its own processes. */
        group_v1(t, "x", "1048576\n", "1048576\n", NULL);
        expect(t, 0, "/sys/fs/cgroup/memory/x", 3);
        put(t->sys, "memory/x/memory.use_hierarchy", "0\n");
        expect(t, MIB(1), "/sys/fs/cgroup/memory/x/y", 2);
        put(t->sys, "memory/x/memory.use_hierarchy", "1\n");
        expect(t, 0, "/sys/fs/cgroup/memory/x", 3);
}

static void test_hybrid(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "4:pids,memory:/x\n0::/u\n", MOUNT_V1 MOUNT_HYBRID);
        group_v1(t, "x", "4194304\n", "0\n", NULL);
        group_v2(t, "unified/u", "2097152\n", "0\n", NULL);
        expect(t, MIB(2), "/sys/fs/cgroup/unified/u", 2);
}

static void test_namespaced_root(void **state)
{
        Tree *t = *state;

        /* The namespace's root is the mount's root: its own limit is at the top. */
        proc(t, MEMINFO, "0::/\n", MOUNT_V2);
        group_v2(t, "", "3145728\n", "1048576\n", NULL);
        expect(t, MIB(2), "/sys/fs/cgroup", 1);

        /* No namespace, but only the container's group is mounted. */
        proc(t, NULL, "0::/docker/abc/worker\n",
             "40 30 0:37 /docker/abc /sys/fs/cgroup ro master:1 - cgroup2 cgroup rw\n");
        group_v2(t, "worker", "2097152\n", "1048576\n", NULL);
        expect(t, MIB(1), "/sys/fs/cgroup/worker", 2);

        /* /docker/abcd isn't below /docker/abc. */
        proc(t, NULL, "0::/docker/abcd/worker\n", NULL);
        expect(t, MIB(2), "/sys/fs/cgroup", 1);

        /* The mount shows more than the namespace, and the group lies outside it: only the top is known. */
        proc(t, NULL, "0::/\n", "40 30 0:37 /../.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
        expect(t, MIB(2), "/sys/fs/cgroup", 1);
        proc(t, NULL, "0::/../worker\n", MOUNT_V2);
        expect(t, MIB(2), "/sys/fs/cgroup", 1);
}

static void test_mountinfo_oddities(void **state)
{
        Tree *t = *state;

        /* Another file system, another place, another controller, cut lines, an escaped name; the last of two
         * mounts on one point is the one that is seen. */
        proc(t, MEMINFO, "0::/a b/c\n",
             "\n1 2 3\n30 22 0:27 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
             "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
             "32 30 0:28 / /sys/fs/cgroupx rw - cgroup2 cgroup2 rw\n33 30 0:28 / /mnt rw - cgroup2 cgroup2 "
             "rw\n"
             "34 30 0:28 / /sys/fs/cgroup rw -\n35 30 0:28 / /sys/fs/cgroup rw - cgroup2\n"
             "36 30 0:28 /other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
             "37 30 0:28 /a\\040b /sys/fs/cgroup rw shared:1 master:2 - cgroup2 cgroup2 rw");
        group_v2(t, "c", "2097152\n", "1048576\n", NULL);
        expect(t, MIB(1), "/sys/fs/cgroup/c", 1);
}

static void test_no_mountinfo(void **state)
{
        Tree *t = *state;

        proc(t, MEMINFO, "0::/a\n4:memory:/b\n", NULL);
        group_v2(t, "a", "2097152\n", "0\n", NULL);
        group_v1(t, "b", "1048576\n", "0\n", NULL);
        expect(t, MIB(1), "/sys/fs/cgroup/memory/b", 2);
}

/* Names that would lead out, and depth without end. */
static void test_hostile_groups(void **state)
{
        Tree *t = *state;
        char deep[2048] = "0::";

        put(t->fd, "memory.max", "1\n");
        put(t->fd, "memory.current", "1\n");
        proc(t, MEMINFO, "0::/../..\n", MOUNT_V2);
        expect(t, MIB(8), "MemAvailable", 0);
        proc(t, NULL, "0::relative\n", NULL);
        expect(t, MIB(8), "MemAvailable", 0);
        proc(t, NULL, "0:\n:\n\n0::/nowhere\n", NULL);
        expect(t, MIB(8), "MemAvailable", 0);
        for (size_t i = 0; i < 500; i++)
                strcat(deep, "/d");
        strcat(deep, "\n");
        proc(t, NULL, deep, NULL);
        expect(t, MIB(8), "MemAvailable", 0);
}

static void test_real(void **state)
{
        _cleanup_memory_snapshot_ MemorySnapshot s = {};
        const char *limit = NULL;

        assert_int_equal(memory_snapshot_read(AT_FDCWD, AT_FDCWD, &s), 0);
        assert_true(s.total > 0 && s.available <= s.total);
        assert_true(memory_effective_available(&s, &limit) <= s.available);
        assert_non_null(limit);
        assert_true(memory_effective_available(&s, NULL) <= s.available);
}

/* The kernel's own figures, on a hierarchy of version 1 where this machine has one and we may make groups. */
static void test_real_v1(void **state)
{
        _cleanup_memory_snapshot_ MemorySnapshot s = {};
        char group[] = "/sys/fs/cgroup/memory/iloader-test-XXXXXX", path[128], text[64];
        _cleanup_close_ int sys = -EBADF;
        Tree *t = *state;
        bool found = false;

        if (!mkdtemp(group))
                skip();
        (void) snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", group);
        sys = open(path, O_WRONLY | O_CLOEXEC);
        if (sys < 0 || write(sys, "67108864", 8) != 8) {
                (void) rmdir(group);
                skip();
        }
        sys = close_fd(sys);
        sys = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
        (void) snprintf(text, sizeof(text), "4:memory:/%s\n", strrchr(group, '/') + 1);
        proc(t, MEMINFO, text, MOUNT_V1);
        assert_int_equal(memory_snapshot_read(t->proc, sys, &s), 0);
        (void) rmdir(group);
        for (size_t i = 0; i < s.n_limits; i++)
                if (streq(s.limits[i].path, group)) {
                        found = true;
                        assert_int_equal(s.limits[i].limit, MIB(64));
                        assert_true(s.limits[i].current < MIB(1));
                }
        assert_true(found);
}

static void test_budget(void **state)
{
        /* In integers: 0.7 as double is less than 7/10, and all of 64 bits stay exact. */
        assert_int_equal(memory_budget(10, 0.7, 0), 7);
        assert_int_equal(memory_budget(1000, 0.9, 0), 900);
        assert_int_equal(memory_budget(3, 0.5, 0), 1);
        assert_int_equal(memory_budget(UINT64_MAX, 1.0, 0), UINT64_MAX);
        assert_int_equal(memory_budget(UINT64_MAX, 0.5, 0), UINT64_MAX / 2);
        assert_int_equal(memory_budget(UINT64_MAX, 0.9999999999, 0), UINT64_MAX);
        assert_int_equal(memory_budget(100, 0.9, 89), 1);
        assert_int_equal(memory_budget(100, 0.9, 90), 0);
        assert_int_equal(memory_budget(100, 0.9, UINT64_MAX), 0);
        assert_int_equal(memory_budget(0, 0.9, 0), 0);
        assert_int_equal(memory_budget(100, -0.5, 0), 0);
        assert_int_equal(memory_budget(100, NAN, 0), 0);
        assert_int_equal(memory_budget(100, INFINITY, 0), 100);
        assert_int_equal(memory_budget(100, -INFINITY, 0), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_meminfo),
                TEST(test_meminfo_refused),
                TEST(test_v2_nested),
                TEST(test_v2_high),
                TEST(test_v2_shmem),
                TEST(test_below_current),
                TEST(test_missing_files),
                TEST(test_v1),
                TEST(test_v1_swap_and_hierarchy),
                TEST(test_hybrid),
                TEST(test_namespaced_root),
                TEST(test_mountinfo_oddities),
                TEST(test_no_mountinfo),
                TEST(test_hostile_groups),
                TEST(test_real),
                TEST(test_real_v1),
                cmocka_unit_test(test_budget),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
