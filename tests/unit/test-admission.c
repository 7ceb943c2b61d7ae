/* daemon/admission on tables of snapshots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/admission.h"

#define NONE UINT64_MAX
/* A budget of all that is available, so that the figures of a row can be seen through. */
#define ALL .fraction = 1.0, .reserve = 0

typedef struct RowLimit {
        const char *path;
        uint64_t limit, current, reclaimable;
} RowLimit;

typedef struct Row {
        const char *what;
        uint64_t available; /* MemAvailable */
        RowLimit limits[4]; /* up to the first without a path */
        uint64_t files, view, buffers;
        double fraction;
        uint64_t reserve;
        uint64_t cap;   /* 0: none */
        uint64_t quota; /* 0: none */
        uint64_t resident, reserved, outstanding;
        bool force;
        AdmissionVerdict verdict;
        uint64_t expect_available, expect_budget;
        const char *expect_limit;
} Row;

static const Row rows[] = {
        {"fits exactly", .available = 1000, .files = 1000, ALL, .expect_available = 1000,
         .expect_budget = 1000, .expect_limit = "MemAvailable"},
        {"one byte too many", .available = 1000, .files = 1001, ALL, .verdict = ADMISSION_OVER_AVAILABLE,
         .expect_available = 1000, .expect_budget = 1000, .expect_limit = "MemAvailable"},
        {"the view's copies count", .available = 1000, .files = 900, .view = 101, ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = 1000, .expect_budget = 1000,
         .expect_limit = "MemAvailable"},
        {"buffers count", .available = 1000, .files = 900, .buffers = 101, ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = 1000, .expect_budget = 1000,
         .expect_limit = "MemAvailable"},
        {"nothing asked, nothing there", .available = 0, ALL, .expect_limit = "MemAvailable"},
        {"zero MemAvailable", .available = 0, .files = 1, ALL, .verdict = ADMISSION_OVER_AVAILABLE,
         .expect_limit = "MemAvailable"},
        {"default budget", .available = GIB(10), .files = GIB(8), .fraction = 0.9, .reserve = MIB(256),
         .expect_available = GIB(10), .expect_budget = GIB(9) - MIB(256), .expect_limit = "MemAvailable"},
        {"default budget, the reserve missing", .available = GIB(10), .files = GIB(9) - MIB(256) + 1,
         .fraction = 0.9, .reserve = MIB(256), .verdict = ADMISSION_OVER_AVAILABLE,
         .expect_available = GIB(10), .expect_budget = GIB(9) - MIB(256), .expect_limit = "MemAvailable"},
        {"reserve above what is there", .available = MIB(100), .files = 1, .fraction = 0.9,
         .reserve = MIB(256), .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = MIB(100),
         .expect_limit = "MemAvailable"},
        {"a cgroup binds", .available = GIB(10), .limits = {{"/cg", GIB(2), GIB(1), 0}}, .files = GIB(1) + 1,
         ALL, .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = GIB(1), .expect_budget = GIB(1),
         .expect_limit = "/cg"},
        {"reclaimable file pages are room", .available = GIB(10), .limits = {{"/cg", GIB(2), GIB(2), GIB(1)}},
         .files = GIB(1), ALL, .expect_available = GIB(1), .expect_budget = GIB(1), .expect_limit = "/cg"},
        {"shmem is not", .available = GIB(10), .limits = {{"/cg", GIB(2), GIB(2), 0}}, .files = 1, ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_limit = "/cg"},
        {"the tightest ancestor binds", .available = GIB(10),
         .limits = {{"/a/b/c", GIB(8), 0, 0}, {"/a/b", GIB(3), GIB(2), 0}, {"/a", GIB(4), GIB(1), 0}},
         .files = GIB(1), ALL, .expect_available = GIB(1), .expect_budget = GIB(1), .expect_limit = "/a/b"},
        {"a limit above MemAvailable doesn't bind", .available = GIB(1),
         .limits = {{"/a", GIB(4), GIB(1), 0}}, .files = GIB(1), ALL, .expect_available = GIB(1),
         .expect_budget = GIB(1), .expect_limit = "MemAvailable"},
        {"hybrid: v1 binds before v2", .available = GIB(10),
         .limits = {{"/memory/x", GIB(2), 0, 0}, {"/unified/x", GIB(3), 0, 0}}, .files = GIB(2), ALL,
         .expect_available = GIB(2), .expect_budget = GIB(2), .expect_limit = "/memory/x"},
        {"a limit below current", .available = GIB(10), .limits = {{"/cg", GIB(1), GIB(2), 0}}, .files = 1,
         ALL, .verdict = ADMISSION_OVER_AVAILABLE, .expect_limit = "/cg"},
        {"a limit below current, rescued by cache", .available = GIB(10),
         .limits = {{"/cg", GIB(2), GIB(3), GIB(2)}}, .files = GIB(1), ALL, .expect_available = GIB(1),
         .expect_budget = GIB(1), .expect_limit = "/cg"},
        {"more reclaimable than charged", .available = GIB(10), .limits = {{"/cg", GIB(1), MIB(1), GIB(5)}},
         .files = GIB(1), ALL, .expect_available = GIB(1), .expect_budget = GIB(1), .expect_limit = "/cg"},
        {"a limit of nothing", .available = GIB(10), .limits = {{"/cg", 0, 0, 0}}, .files = 1, ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_limit = "/cg"},
        {"a limit of \"max\"", .available = GIB(10), .limits = {{"/cg", NONE, GIB(5), 0}}, .files = GIB(10),
         ALL, .expect_available = GIB(10), .expect_budget = GIB(10), .expect_limit = "MemAvailable"},
        {"loads in flight are deducted", .available = GIB(10), .files = GIB(6), .outstanding = GIB(4), ALL,
         .expect_available = GIB(6), .expect_budget = GIB(6), .expect_limit = "MemAvailable"},
        {"of two loads only the first fits", .available = GIB(10), .files = GIB(6), .reserved = GIB(6),
         .outstanding = GIB(6), ALL, .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = GIB(4),
         .expect_budget = GIB(4), .expect_limit = "MemAvailable"},
        {"what a load has filled isn't deducted twice", .available = GIB(10), .files = GIB(9),
         .reserved = GIB(6), .outstanding = GIB(1), ALL, .expect_available = GIB(9), .expect_budget = GIB(9),
         .expect_limit = "MemAvailable"},
        {"more in flight than there is", .available = GIB(1), .files = 1, .outstanding = GIB(4), ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_limit = "MemAvailable"},
        {"cap fits exactly, buffers in", .available = GIB(10), .files = 900, .buffers = 100, .cap = 1000, ALL,
         .expect_available = GIB(10), .expect_budget = GIB(10), .expect_limit = "MemAvailable"},
        {"cap missed by the buffers", .available = GIB(10), .files = 900, .buffers = 101, .cap = 1000, ALL,
         .verdict = ADMISSION_OVER_CACHE_CAP, .expect_available = GIB(10), .expect_budget = GIB(10),
         .expect_limit = "MemAvailable"},
        {"quota fits exactly", .available = GIB(10), .files = 300, .resident = 500, .reserved = 200,
         .quota = 1000, ALL, .expect_available = GIB(10), .expect_budget = GIB(10),
         .expect_limit = "MemAvailable"},
        {"quota missed by what is reserved", .available = GIB(10), .files = 300, .resident = 500,
         .reserved = 201, .quota = 1000, ALL, .verdict = ADMISSION_OVER_QUOTA, .expect_available = GIB(10),
         .expect_budget = GIB(10), .expect_limit = "MemAvailable"},
        {"quota below what is resident", .available = GIB(10), .files = 1, .resident = 2000, .quota = 1000,
         ALL, .verdict = ADMISSION_OVER_QUOTA, .expect_available = GIB(10), .expect_budget = GIB(10),
         .expect_limit = "MemAvailable"},
        {"force passes availability", .available = 10, .files = GIB(1), .force = true, ALL,
         .expect_available = 10, .expect_budget = 10, .expect_limit = "MemAvailable"},
        {"force doesn't pass the cap", .available = 10, .files = 1001, .cap = 1000, .force = true, ALL,
         .verdict = ADMISSION_OVER_CACHE_CAP, .expect_available = 10, .expect_budget = 10,
         .expect_limit = "MemAvailable"},
        {"force doesn't pass the quota", .available = 10, .files = 1001, .quota = 1000, .force = true, ALL,
         .verdict = ADMISSION_OVER_QUOTA, .expect_available = 10, .expect_budget = 10,
         .expect_limit = "MemAvailable"},
        {"the cap comes before the quota", .available = 10, .files = 1001, .cap = 1000, .quota = 1000, ALL,
         .verdict = ADMISSION_OVER_CACHE_CAP, .expect_available = 10, .expect_budget = 10,
         .expect_limit = "MemAvailable"},
        {"files and buffers overflow", .available = NONE - 1, .files = NONE - 1, .buffers = NONE - 1, ALL,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = NONE - 1, .expect_budget = NONE - 1,
         .expect_limit = "MemAvailable"},
        {"an overflow passes no quota", .available = NONE, .files = 2, .resident = NONE - 1,
         .reserved = NONE - 1, .quota = NONE - 1, ALL, .verdict = ADMISSION_OVER_QUOTA,
         .expect_available = NONE, .expect_budget = NONE, .expect_limit = "MemAvailable"},
        {"an overflow passes no cap", .available = NONE, .files = NONE, .view = NONE, .cap = NONE - 1, ALL,
         .verdict = ADMISSION_OVER_CACHE_CAP, .expect_available = NONE, .expect_budget = NONE,
         .expect_limit = "MemAvailable"},
        {"without quota all sums are fine", .available = NONE, .files = 1, .resident = NONE, .reserved = NONE,
         ALL, .expect_available = NONE, .expect_budget = NONE, .expect_limit = "MemAvailable"},
        {"a reserve of everything", .available = NONE, .files = 1, .fraction = 1.0, .reserve = NONE,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = NONE, .expect_limit = "MemAvailable"},
        {"a fraction that is no number", .available = GIB(1), .files = 1, .fraction = NAN,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = GIB(1), .expect_limit = "MemAvailable"},
        {"a fraction of none", .available = GIB(1), .files = 1, .fraction = 0,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = GIB(1), .expect_limit = "MemAvailable"},
        {"a fraction above one isn't more", .available = GIB(1), .files = GIB(1) + 1, .fraction = 7,
         .verdict = ADMISSION_OVER_AVAILABLE, .expect_available = GIB(1), .expect_budget = GIB(1),
         .expect_limit = "MemAvailable"},
};

static AdmissionRequest row_request(const Row *row)
{
        return (AdmissionRequest){
                .file_bytes = row->files,
                .view_bytes = row->view,
                .buffer_bytes = row->buffers,
                .memory_fraction = row->fraction,
                .reserve_bytes = row->reserve,
                .max_memory_bytes = row->cap == 0 ? UINT64_MAX : row->cap,
                .force = row->force,
        };
}

static AdmissionState row_state(const Row *row)
{
        return (AdmissionState){
                .resident_bytes = row->resident,
                .reserved_bytes = row->reserved,
                .outstanding_bytes = row->outstanding,
                .quota_bytes = row->quota == 0 ? UINT64_MAX : row->quota,
        };
}

static void test_table(void **state)
{
        for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
                const Row *row = &rows[i];
                AdmissionRequest request = row_request(row);
                AdmissionState counted = row_state(row);
                MemorySnapshot snapshot = {.available = row->available};
                MemoryLimit limits[ELEMENTSOF(row->limits)] = {};
                AdmissionDecision d;

                snapshot.limits = limits;
                for (; snapshot.n_limits < ELEMENTSOF(limits) && row->limits[snapshot.n_limits].path;
                     snapshot.n_limits++) {
                        const RowLimit *l = &row->limits[snapshot.n_limits];

                        limits[snapshot.n_limits] =
                                (MemoryLimit){(char *) l->path, l->limit, l->current, l->reclaimable};
                }
                admission_decide(&request, &snapshot, &counted, &d);
                if (d.verdict != row->verdict || d.available_bytes != row->expect_available ||
                    d.budget_bytes != row->expect_budget || strcmp(d.limit, row->expect_limit) != 0)
                        fail_msg("%s: verdict %d, available %llu, budget %llu, bound by %s", row->what,
                                 d.verdict, (unsigned long long) d.available_bytes,
                                 (unsigned long long) d.budget_bytes, d.limit);
        }
}

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003): the same rounds in each run. */
static uint64_t next(uint64_t *x)
{
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        return *x;
}

/* Loads that are admitted one after the other never need more together than there was, in any order. */
static void test_never_more_than_there_is(void **state)
{
        uint64_t seed = 0x9e3779b97f4a7c15;

        for (unsigned round = 0; round < 2000; round++) {
                MemoryLimit limit = {(char *) "/cg", next(&seed) % GIB(8), next(&seed) % GIB(8),
                                     next(&seed) % GIB(8)};
                MemorySnapshot snapshot = {
                        .available = next(&seed) % GIB(8), .limits = &limit, .n_limits = 1};
                AdmissionState counted = {.quota_bytes = next(&seed) % GIB(8)};
                uint64_t effective = memory_effective_available(&snapshot, NULL);

                assert_true(effective <= snapshot.available && effective <= limit.limit);
                for (unsigned load = 0; load < 20; load++) {
                        AdmissionRequest request = {
                                .file_bytes = next(&seed) % GIB(2),
                                .view_bytes = next(&seed) % MIB(1),
                                .buffer_bytes = next(&seed) % MIB(64),
                                .memory_fraction = (double) (next(&seed) % 1000) / 1000,
                                .reserve_bytes = next(&seed) % MIB(512),
                                .max_memory_bytes = UINT64_MAX,
                        };
                        AdmissionDecision d;

                        admission_decide(&request, &snapshot, &counted, &d);
                        if (d.verdict != ADMISSION_ADMITTED)
                                continue;
                        counted.reserved_bytes += d.required_bytes;
                        counted.outstanding_bytes += d.required_bytes;
                        assert_true(counted.outstanding_bytes <= effective);
                        assert_true(counted.reserved_bytes <= counted.quota_bytes);
                }
        }
}

static void explain(const Row *row, const char *const *words, size_t n)
{
        AdmissionRequest request = row_request(row);
        AdmissionState counted = row_state(row);
        MemorySnapshot snapshot = {.available = row->available};
        _cleanup_free_ char *text = NULL;
        AdmissionDecision d;

        admission_decide(&request, &snapshot, &counted, &d);
        assert_int_equal(admission_explain(&d, &request, &counted, "qwen", &text), 0);
        for (size_t i = 0; i < n; i++)
                if (!strstr(text, words[i]))
                        fail_msg("'%s' isn't in: %s", words[i], text);
}
#define EXPLAIN(row, ...)                                                                                    \
        explain(&(row), (const char *const[]){__VA_ARGS__}, ELEMENTSOF(((const char *[]){__VA_ARGS__})))

static void test_explain(void **state)
{
        const Row fits = {.available = GIB(8), .files = GIB(2), .fraction = 0.5};
        const Row forced = {.available = GIB(1), .files = GIB(2), .fraction = 0.5, .force = true};
        const Row large = {.available = GIB(8),
                           .files = GIB(5),
                           .fraction = 0.5,
                           .reserve = MIB(256),
                           .outstanding = GIB(2)};
        const Row capped = {.available = GIB(8), .files = GIB(2), .fraction = 1, .cap = GIB(1)};
        const Row over = {.available = GIB(8),
                          .files = GIB(2),
                          .fraction = 1,
                          .resident = GIB(3),
                          .reserved = GIB(1),
                          .quota = GIB(5)};
        const AdmissionDecision wrong = {.verdict = _ADMISSION_VERDICT_MAX};
        char *untouched = (char *) 1;

        EXPLAIN(fits, "'qwen'", "2.0 GiB", "4.0 GiB", "8.0 GiB", "MemAvailable");
        EXPLAIN(forced, "forced");
        EXPLAIN(large, "'qwen'", "5.0 GiB", "50 %", "6.0 GiB", "2.0 GiB of loads", "256.0 MiB",
                "MemAvailable", "--reserve-bytes", "--max-memory-fraction", "--force");
        EXPLAIN(capped, "2.0 GiB", "1.0 GiB", "--max-memory-bytes");
        EXPLAIN(over, "2.0 GiB", "3.0 GiB are resident", "1.0 GiB reserved", "5.0 GiB",
                "--max-resident-bytes");
        assert_int_equal(admission_explain(&wrong, NULL, NULL, "qwen", &untouched), -EINVAL);
        assert_ptr_equal(untouched, (char *) 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_never_more_than_there_is),
                cmocka_unit_test(test_explain),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
