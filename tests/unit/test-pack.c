/* daemon/worker/layout and pack: where small files go, and that they get there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "daemon/worker/pack.h"
#include "tests/unit/sample.h"
#include "wire/worker-protocol.h"

static void selection_fake(Selection *s, SelectedFile *files, const uint64_t *sizes, size_t n)
{
        memset(files, 0, n * sizeof(*files));
        for (size_t i = 0; i < n; i++)
                files[i].identity.size = sizes[i];
        *s = (Selection){.files = files, .n_files = n};
}

static void test_layout(void **state)
{
        static const uint64_t sizes[] = {
                10, WORKER_PACK_LIMIT, 0, WORKER_PACK_LIMIT - 1, 5 * WORKER_PACK_LIMIT, 7};
        SelectedFile files[ELEMENTSOF(sizes)];
        _cleanup_layout_ Layout l = {};
        Selection s;

        selection_fake(&s, files, sizes, ELEMENTSOF(sizes));
        assert_int_equal(layout_compute(&s, &l), 0);
        assert_int_equal(l.n_small, 4);
        assert_int_equal(l.n_large, 2);
        assert_int_equal(l.pack_bytes, 10 + WORKER_PACK_LIMIT - 1 + 7);
        assert_int_equal(layout_memories(&l), 3);
        assert_null(layout_memory_file(&l, &s, 0));
        assert_int_equal(layout_memory_size(&l, &s, 0), l.pack_bytes);
        assert_ptr_equal(layout_memory_file(&l, &s, 1), &files[1]);
        assert_ptr_equal(layout_memory_file(&l, &s, 2), &files[4]);
        assert_true(l.files[0].packed && l.files[2].packed && l.files[3].packed && l.files[5].packed);
        assert_int_equal(l.files[0].offset, 0);
        assert_int_equal(l.files[2].offset, 10);
        assert_int_equal(l.files[3].offset, 10);
        assert_int_equal(l.files[5].offset, 10 + WORKER_PACK_LIMIT - 1);
        assert_int_equal(l.files[1].memory, 1);
        assert_int_equal(l.files[4].memory, 2);
        assert_int_equal(l.files[5].memory, 0);
}

static void test_layout_one_kind(void **state)
{
        static const uint64_t large[] = {WORKER_PACK_LIMIT, WORKER_PACK_LIMIT}, empty[] = {0, 0};
        _cleanup_layout_ Layout l = {}, e = {}, none = {};
        SelectedFile files[2];
        Selection s;

        /* no pack: the first large file is memory file 0 */
        selection_fake(&s, files, large, 2);
        assert_int_equal(layout_compute(&s, &l), 0);
        assert_int_equal(l.pack_bytes, 0);
        assert_int_equal(l.files[0].memory, 0);
        assert_int_equal(l.files[1].memory, 1);
        assert_ptr_equal(layout_memory_file(&l, &s, 1), &files[1]);
        /* nothing to keep in a pack */
        selection_fake(&s, files, empty, 2);
        assert_int_equal(layout_compute(&s, &e), 0);
        assert_int_equal(layout_memories(&e), 0);
        assert_int_equal(e.n_small, 2);
        selection_fake(&s, files, empty, 0);
        assert_int_equal(layout_compute(&s, &none), 0);
        assert_int_equal(layout_memories(&none), 0);
}

/* Batches cover every small file once, and each fits the buffer. */
static void test_batches(void **state)
{
        enum { N = 1000 };
        _cleanup_free_ SelectedFile *files = calloc(N, sizeof(*files));
        _cleanup_free_ uint64_t *sizes = calloc(N, sizeof(*sizes));
        _cleanup_layout_ Layout l = {};
        Selection s;

        assert_non_null(files);
        assert_non_null(sizes);
        for (size_t i = 0; i < N; i++)
                sizes[i] = i % 7 == 0 ? WORKER_PACK_LIMIT - 1 : i % 11 == 0 ? 0 : i * 100;
        selection_fake(&s, files, sizes, N);
        assert_int_equal(layout_compute(&s, &l), 0);
        for (size_t first = 0, n; first < l.n_small; first += n) {
                uint64_t bytes = 0;

                n = pack_batch(&l, &s, first);
                assert_in_range(n, 1, PACK_BATCH_FILES);
                assert_true(first + n <= l.n_small);
                for (size_t i = first; i < first + n; i++)
                        bytes += sizes[l.small[i]];
                assert_true(bytes <= TRANSFER_BUFFER_SIZE);
        }
        assert_int_equal(pack_batch(&l, &s, l.n_small), 0);
}

static uint64_t copy_all(const Sample *s, Failure *failure, int *ret)
{
        TransferShared shared;
        _cleanup_transfer_ Transfer t;
        uint64_t sum = 0;

        transfer_shared_init(&shared, TRANSFER_HUGE_NONE);
        transfer_init(&t, &shared);
        *ret = 0;
        for (size_t first = 0, n; first < s->layout.n_small && *ret == 0; first += n) {
                uint64_t bytes = 0;

                n = pack_batch(&s->layout, &s->selection, first);
                *ret = pack_copy(&t, &s->source, &s->selection, &s->layout, first, n,
                                 resident_fd(&s->resident, 0), &bytes, failure);
                sum += bytes;
        }
        return sum;
}

static void test_copy(void **state)
{
        enum { N = 400 };
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        uint64_t sizes[N];
        _cleanup_sample_ Sample s;
        struct stat st;
        int r;

        for (size_t i = 0; i < N; i++)
                sizes[i] = i % 50 == 0 ? WORKER_PACK_LIMIT - 1 - i : i % 3 == 0 ? 0 : i * 31;
        sample_make(&s, sizes, N);
        assert_int_equal(copy_all(&s, &failure, &r), s.layout.pack_bytes);
        assert_int_equal(r, 0);
        for (size_t i = 0; i < N; i++)
                sample_check(&s, i);
        assert_int_equal(fstat(resident_fd(&s.resident, 0), &st), 0);
        assert_int_equal(st.st_size, s.layout.pack_bytes);
}

static void test_changed(void **state)
{
        static const uint64_t sizes[] = {10, 20, 30};
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        int r;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        sample_write(&s, 1, 19);
        assert_int_equal(copy_all(&s, &failure, &r), 0);
        assert_true(r < 0);
        assert_int_equal(failure.kind, FAILURE_SOURCE_CHANGED);
        assert_non_null(strstr(failure.message, "file-00001"));
}

static void test_stop(void **state)
{
        static const uint64_t sizes[] = {10};
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_sample_ Sample s;
        TransferShared shared;
        _cleanup_transfer_ Transfer t;
        uint64_t bytes = 0;

        sample_make(&s, sizes, ELEMENTSOF(sizes));
        transfer_shared_init(&shared, TRANSFER_HUGE_NONE);
        transfer_init(&t, &shared);
        atomic_store(&shared.stop, true);
        assert_int_equal(pack_copy(&t, &s.source, &s.selection, &s.layout, 0, 1, resident_fd(&s.resident, 0),
                                   &bytes, &failure),
                         -ECANCELED);
        assert_null(failure.message);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_layout),  cmocka_unit_test(test_layout_one_kind),
                cmocka_unit_test(test_batches), cmocka_unit_test(test_copy),
                cmocka_unit_test(test_changed), cmocka_unit_test(test_stop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
