/* daemon/worker/copy and transfer: every way of copying gives the same bytes, and every failure its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/memfd.h"
#include "daemon/worker/copy.h"
#include "tests/unit/sample.h"

static const uint64_t edges[] = {
        0,          1,      4095,       MIB(1) - 1, MIB(1),     MIB(1) + 1,     MIB(2) - 1, MIB(2),
        MIB(2) + 1, MIB(4), MIB(8) - 1, MIB(8),     MIB(8) + 3, MIB(10) + 4097, MIB(13),
};

static int run(const Sample *s, const CopyOptions *options, Failure *failure)
{
        _cleanup_(copy_freep) Copy *c = NULL;
        struct pollfd p = {.events = POLLIN};
        int r;

        r = copy_start(&s->source, &s->selection, &s->layout, &s->resident, options, &c, failure);
        assert_int_equal(r, 0);
        p.fd = copy_get_fd(c);
        assert_int_equal(poll(&p, 1, 60000), 1);
        r = copy_finish(c, failure);
        assert_true(copy_bytes(c) <= s->selection.bytes);
        if (r == 0)
                assert_int_equal(copy_bytes(c), s->selection.bytes);
        return r;
}

static unsigned count_descriptors(void)
{
        DIR *d = opendir("/proc/self/fd");
        unsigned n = 0;

        assert_non_null(d);
        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

static void test_all_ways(void **state)
{
        static const unsigned threads[] = {1, 3};
        static const uint64_t chunks[] = {KIB(4), MIB(3), MIB(64)};
        unsigned before = count_descriptors();

        for (TransferHuge huge = 0; huge < _TRANSFER_HUGE_MAX; huge++)
                for (size_t t = 0; t < ELEMENTSOF(threads); t++)
                        for (size_t k = 0; k < ELEMENTSOF(chunks); k++) {
                                _cleanup_failure_ Failure failure = FAILURE_INIT;
                                const CopyOptions options = {threads[t], chunks[k], huge};
                                Sample s;

                                sample_make(&s, edges, ELEMENTSOF(edges));
                                if (run(&s, &options, &failure) < 0)
                                        fail_msg("%s", failure.message);
                                for (size_t i = 0; i < ELEMENTSOF(edges); i++)
                                        sample_check(&s, i);
                                sample_done(&s);
                        }
        assert_int_equal(count_descriptors(), before);
}

/* The single ways, without the others to stand in for them. */
static void test_single_ways(void **state)
{
        const uint64_t size = MIB(8);

        /* bits of what is refused: mapping, collapsing, splicing; the buffer is what is left */
        for (unsigned refused = 0; refused < 8; refused++) {
                _cleanup_close_ int memory = memfd_new("test");
                TransferShared shared;
                Transfer t;
                Sample s;
                int fd;

                sample_make(&s, &size, 1);
                fd = openat(s.scratch.fd, "file-00000", O_RDONLY | O_CLOEXEC);
                assert_true(fd >= 0 && memory >= 0);
                assert_int_equal(ftruncate(memory, (off_t) size), 0);
                transfer_shared_init(&shared, TRANSFER_HUGE_ADVISE);
                atomic_store(&shared.refused, refused);
                transfer_init(&t, &shared);
                assert_int_equal(transfer_range(&t, fd, memory, 0, size), TRANSFER_DONE);
                transfer_done(&t);
                (void) dup3(memory, resident_fd(&s.resident, 0), O_CLOEXEC);
                sample_check(&s, 0);
                /* nothing of it may keep the file from being sealed */
                assert_int_equal(memfd_seal(memory, 0400, (gid_t) -1), 0);
                (void) close_fd(fd);
                sample_done(&s);
        }
}

/* A source that ends early is found out by each way. */
static void test_short_source(void **state)
{
        for (unsigned refused = 0; refused < 8; refused++) {
                static const uint64_t ranges[] = {MIB(8), MIB(4), 1000};

                for (size_t i = 0; i < ELEMENTSOF(ranges); i++) {
                        _cleanup_close_ int memory = memfd_new("test");
                        const uint64_t size = ranges[i] - 1;
                        TransferShared shared;
                        Transfer t;
                        Sample s;
                        int fd;

                        sample_make(&s, &size, 1);
                        fd = openat(s.scratch.fd, "file-00000", O_RDONLY | O_CLOEXEC);
                        assert_int_equal(ftruncate(memory, (off_t) ranges[i]), 0);
                        transfer_shared_init(&shared, TRANSFER_HUGE_ADVISE);
                        atomic_store(&shared.refused, refused);
                        transfer_init(&t, &shared);
                        assert_int_equal(transfer_range(&t, fd, memory, 0, ranges[i]), TRANSFER_SHORT);
                        transfer_done(&t);
                        (void) close_fd(fd);
                        sample_done(&s);
                }
        }
}

static void test_errors(void **state)
{
        _cleanup_close_ int memory = memfd_new("test"), directory = -EBADF, sealed = -EBADF, null = -EBADF;
        static const char data[1000] = "x";
        TransferShared shared;
        _cleanup_transfer_ Transfer t;

        directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        sealed = memfd_new_sealed_data("sealed", data, sizeof(data), 0400);
        assert_true(memory >= 0 && directory >= 0 && sealed >= 0 && null >= 0);
        assert_int_equal(ftruncate(memory, (off_t) MIB(8)), 0);
        for (unsigned refused = 0; refused < 8; refused++) {
                transfer_shared_init(&shared, TRANSFER_HUGE_ADVISE);
                atomic_store(&shared.refused, refused);
                transfer_init(&t, &shared);
                assert_int_equal(transfer_range(&t, directory, memory, 0, MIB(8)), -EISDIR);
                assert_int_equal(transfer_range(&t, -1, memory, 0, MIB(8)), -EBADF);
                assert_int_equal(transfer_range(&t, null, memory, 0, MIB(8)), TRANSFER_SHORT);
                assert_int_equal(transfer_range(&t, null, memory, 0, 5), TRANSFER_SHORT);
                /* the memory file refuses */
                assert_true(transfer_range(&t, memory, sealed, 0, MIB(8)) < 0);
                atomic_store(&shared.stop, true);
                assert_int_equal(transfer_range(&t, memory, memory, 0, MIB(8)), -ECANCELED);
                transfer_done(&t);
        }
        transfer_init(&t, &shared);
}

static void test_huge_parse(void **state)
{
        assert_int_equal(transfer_huge_parse("always within_size advise [never] deny force\n"),
                         TRANSFER_HUGE_COLLAPSE);
        assert_int_equal(transfer_huge_parse("always within_size advise never [deny] force"),
                         TRANSFER_HUGE_COLLAPSE);
        assert_int_equal(transfer_huge_parse("always within_size [advise] never deny force"),
                         TRANSFER_HUGE_ADVISE);
        assert_int_equal(transfer_huge_parse("always [within_size] advise never deny force"),
                         TRANSFER_HUGE_ADVISE);
        assert_int_equal(transfer_huge_parse("[always] within_size advise never deny force"),
                         TRANSFER_HUGE_ALWAYS);
        assert_int_equal(transfer_huge_parse("always within_size advise never deny [force]"),
                         TRANSFER_HUGE_ALWAYS);
        assert_int_equal(transfer_huge_parse("never"), TRANSFER_HUGE_NONE);
        assert_int_equal(transfer_huge_parse(""), TRANSFER_HUGE_NONE);
}

/* Changed between selection and copy, which file whatever its kind. */
static void test_source_changed(void **state)
{
        static const uint64_t sizes[] = {100, MIB(3), 200, MIB(5)};

        for (size_t victim = 0; victim < ELEMENTSOF(sizes); victim++)
                for (unsigned how = 0; how < 3; how++) {
                        _cleanup_failure_ Failure failure = FAILURE_INIT;
                        const CopyOptions options = {2, MIB(64), transfer_huge_detect()};
                        char path[128];
                        Sample s;

                        sample_make(&s, sizes, ELEMENTSOF(sizes));
                        (void) snprintf(path, sizeof(path), "%s/file-%05zu", s.scratch.path, victim);
                        if (how == 0)
                                assert_int_equal(unlink(path), 0);
                        else
                                assert_int_equal(truncate(path, (off_t) sizes[victim] + (how == 1 ? -1 : 1)),
                                                 0);
                        assert_true(run(&s, &options, &failure) < 0);
                        assert_int_equal(failure.kind, FAILURE_SOURCE_CHANGED);
                        assert_non_null(failure.path);
                        assert_non_null(strstr(failure.path, strrchr(path, '/') + 1));
                        sample_done(&s);
                }
}

/* A limit on file sizes stands for any memory file that can't take its bytes: the load fails, and says which
 * file. */
static void test_no_room(void **state)
{
        static const uint64_t size = MIB(5) + 1;
        const struct rlimit small = {MIB(1), RLIM_INFINITY};
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        const CopyOptions options = {1, MIB(64), TRANSFER_HUGE_NONE};
        struct rlimit before;
        Sample s;
        int r;

        sample_make(&s, &size, 1);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        r = run(&s, &options, &failure);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(r < 0);
        assert_int_equal(failure.kind, FAILURE_LOAD_FAILED);
        assert_string_equal(failure.path, "file-00000");
        sample_done(&s);
}

static void test_cancel(void **state)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        const CopyOptions options = {2, MIB(2), transfer_huge_detect()};
        _cleanup_(copy_freep) Copy *c = NULL, *left = NULL;
        static const uint64_t sizes[] = {1, 1};
        _cleanup_sample_ Sample s;
        char path[128];

        /* sparse and large: it can't be done before it is cancelled */
        sample_make(&s, sizes, ELEMENTSOF(sizes));
        (void) snprintf(path, sizeof(path), "%s/file-00000", s.scratch.path);
        if (truncate(path, (off_t) GIB(256)) < 0)
                skip();
        resident_done(&s.resident);
        layout_done(&s.layout);
        selection_done(&s.selection);

        _cleanup_source_fault_ SourceFault fault = {};
        const SelectionOptions all = {.max_files = 10};

        assert_int_equal(selection_read(&s.source, &all, &s.selection, &fault), 0);
        assert_int_equal(layout_compute(&s.selection, &s.layout), 0);
        assert_int_equal(
                resident_create(SAMPLE_FIRST, "test", &s.layout, &s.selection, &s.resident, &failure), 0);

        assert_int_equal(copy_start(&s.source, &s.selection, &s.layout, &s.resident, &options, &c, &failure),
                         0);
        copy_cancel(c);
        assert_int_equal(fd_wait(copy_get_fd(c), POLLIN, now_monotonic() + 30 * USEC_PER_SEC), POLLIN);
        assert_int_equal(copy_finish(c, &failure), -ECANCELED);
        assert_true(copy_bytes(c) < GIB(256));
        assert_null(failure.message);

        /* freeing it in the middle is the same */
        assert_int_equal(
                copy_start(&s.source, &s.selection, &s.layout, &s.resident, &options, &left, &failure), 0);
}

static void test_threads_choose(void **state)
{
        static const uint64_t sizes[] = {1, 1, MIB(130), 0};
        SelectedFile files[ELEMENTSOF(sizes)] = {};
        Selection selection = {.files = files, .n_files = ELEMENTSOF(sizes)};
        _cleanup_layout_ Layout layout = {};
        CopyOptions options = {3, MIB(64), TRANSFER_HUGE_COLLAPSE};

        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                files[i].identity.size = sizes[i];
        assert_int_equal(layout_compute(&selection, &layout), 0);
        /* three pieces of the large file, one batch */
        assert_int_equal(copy_threads_choose(3, MIB(64), &layout, &selection), 3);
        assert_int_equal(copy_threads_choose(100, MIB(64), &layout, &selection), 4);
        assert_int_equal(copy_threads_choose(100, GIB(1), &layout, &selection), 2);
        assert_in_range(copy_threads_choose(0, MIB(64), &layout, &selection), 1, 4);
        assert_true(copy_overhead(&options, &layout, &selection) >= 3 * MIB(1));
        options.huge = TRANSFER_HUGE_ALWAYS;
        /* the pack of two bytes takes a huge page then */
        assert_true(copy_overhead(&options, &layout, &selection) >= 3 * MIB(1) + MIB(2) - 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_all_ways),       cmocka_unit_test(test_single_ways),
                cmocka_unit_test(test_short_source),   cmocka_unit_test(test_errors),
                cmocka_unit_test(test_huge_parse),     cmocka_unit_test(test_source_changed),
                cmocka_unit_test(test_no_room),        cmocka_unit_test(test_cancel),
                cmocka_unit_test(test_threads_choose),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
