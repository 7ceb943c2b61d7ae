/* Collection as a plan: least recently used first, never the leased or another's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "daemon/evict.h"
#include "daemon/manager.h"

typedef struct Fixture {
        Manager manager;
        Cache *array[4];
} Fixture;

static const VarlinkPeer root = {.uid = 0};
static const VarlinkPeer alice = {.uid = 1000};

/* Four of 100 bytes each, used one after the other: d is the oldest. */
static int set_up(void **state)
{
        static const char *const names[] = {"a", "b", "c", "d"};
        Fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        f->manager.policy = (AccessPolicy){.scope = SCOPE_SYSTEM, .starters_gid = (gid_t) -1};
        f->manager.caches = f->array;
        f->manager.n_caches = 4;
        for (size_t i = 0; i < 4; i++) {
                Identity owner = {.uid = 1000, .gid = 1000};
                CacheSettings *s;
                Cache *c;

                assert_int_equal(cache_settings_new(names[i], &s), 0);
                assert_int_equal(cache_new(&f->manager, s, &owner, &c), 0);
                cache_set_state(c, MANAGER_CACHE_STATE_READY);
                c->phase = CACHE_HELD;
                c->admitted = true;
                c->bytes = 100;
                c->used = now_monotonic() - (i + 1) * 10 * USEC_PER_SEC;
                f->array[i] = c;
        }
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        Fixture *f = *state;

        for (size_t i = 0; i < 4; i++)
                cache_free(f->array[i]);
        free(f);
        return 0;
}

static void check(Fixture *f, const VarlinkPeer *peer, uint64_t max, usec_t idle, const char *evicted,
                  const char *skipped, uint64_t remaining, bool met)
{
        _cleanup_collect_plan_ CollectPlan p = {};
        char text[8] = "";

        assert_int_equal(evict_plan(&f->manager, peer, max, idle, &p), 0);
        for (size_t i = 0; i < p.n_evict; i++)
                text[i] = *cache_name(p.evict[i]);
        assert_string_equal(text, evicted);
        memset(text, 0, sizeof(text));
        for (size_t i = 0; i < p.n_skipped; i++)
                text[i] = *cache_name(p.skipped[i]);
        assert_string_equal(text, skipped);
        assert_int_equal(p.evicted_bytes, 100 * strlen(evicted));
        assert_int_equal(p.remaining_bytes, remaining);
        assert_int_equal(p.target_met, met);
}

static void least_recently_used_first(void **state)
{
        Fixture *f = *state;

        check(f, &root, UINT64_MAX, USEC_INFINITY, "", "", 400, true);
        check(f, &root, 400, USEC_INFINITY, "", "", 400, true);
        check(f, &root, 399, USEC_INFINITY, "d", "", 300, true);
        check(f, &root, 150, USEC_INFINITY, "dcb", "", 100, true);
        check(f, &root, 0, USEC_INFINITY, "dcba", "", 0, true);
        /* Use makes young again. */
        cache_touch(f->array[3]);
        check(f, &root, 300, USEC_INFINITY, "c", "", 300, true);
}

static void the_idle_go_whatever_the_target(void **state)
{
        Fixture *f = *state;

        check(f, &root, UINT64_MAX, 25 * USEC_PER_SEC, "dc", "", 200, true);
        check(f, &root, 100, 35 * USEC_PER_SEC, "dcb", "", 100, true);
        check(f, &root, UINT64_MAX, 3600 * USEC_PER_SEC, "", "", 400, true);
        check(f, &root, UINT64_MAX, 0, "dcba", "", 0, true);
}

static void what_is_in_use_stays(void **state)
{
        Fixture *f = *state;
        Lease lease = {};

        f->array[3]->leases = &lease;
        check(f, &root, 300, USEC_INFINITY, "c", "d", 300, true);
        check(f, &root, 0, USEC_INFINITY, "cba", "d", 100, false);
        f->array[3]->leases = NULL;
        cache_set_state(f->array[2], MANAGER_CACHE_STATE_DRAINING);
        check(f, &root, 0, 0, "dba", "c", 100, false);
}

static void others_are_not_his(void **state)
{
        Fixture *f = *state;

        f->array[0]->owner.uid = 1001;
        f->array[1]->owner.uid = 1001;
        f->array[1]->settings->mode = 0444;
        /* a is not seen at all, b is seen but not his. */
        check(f, &alice, 0, USEC_INFINITY, "dc", "b", 100, false);
}

static void accounts(void **state)
{
        Fixture *f = *state;
        AdmissionState a;

        f->manager.quota = 7;
        f->array[0]->phase = CACHE_COPYING;
        f->array[0]->buffer_bytes = 10;
        f->array[0]->bytes_loaded = 30;
        manager_account(&f->manager, NULL, &a);
        assert_int_equal(a.resident_bytes, 300);
        assert_int_equal(a.reserved_bytes, 110);
        assert_int_equal(a.outstanding_bytes, 80);
        assert_int_equal(a.quota_bytes, 7);
        manager_account(&f->manager, f->array[0], &a);
        assert_int_equal(a.reserved_bytes, 0);
        assert_int_equal(manager_bytes_of_user(&f->manager, 1000, NULL), 410);
        assert_int_equal(manager_bytes_of_user(&f->manager, 1000, f->array[1]), 310);
        assert_int_equal(manager_bytes_of_user(&f->manager, 5, NULL), 0);
        f->array[1]->descriptors = 3;
        f->array[2]->descriptors = 4;
        assert_int_equal(manager_descriptors(&f->manager, f->array[1]), 4);
        assert_int_equal(manager_caches_of_user(&f->manager, 1000), 4);
        assert_ptr_equal(manager_find(&f->manager, "c"), f->array[2]);
        assert_null(manager_find(&f->manager, "e"));
        assert_null(manager_find_for(&f->manager, &(const VarlinkPeer){.uid = 5}, "c"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(least_recently_used_first, set_up, tear_down),
                cmocka_unit_test_setup_teardown(the_idle_go_whatever_the_target, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_is_in_use_stays, set_up, tear_down),
                cmocka_unit_test_setup_teardown(others_are_not_his, set_up, tear_down),
                cmocka_unit_test_setup_teardown(accounts, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
