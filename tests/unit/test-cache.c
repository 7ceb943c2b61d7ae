/* The cache object: states, what counts, who waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "daemon/cache.h"

static Cache *make(const char *name)
{
        _cleanup_identity_ Identity owner = {.uid = 1000, .gid = 1001};
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        Cache *c;

        assert_int_equal(cache_settings_new(name, &s), 0);
        assert_int_equal(cache_new(NULL, s, &owner, &c), 0);
        s = NULL;
        return c;
}

static void transitions(void **state)
{
        static const ManagerCacheState legal[][2] = {
                {MANAGER_CACHE_STATE_LOADING, MANAGER_CACHE_STATE_READY},
                {MANAGER_CACHE_STATE_LOADING, MANAGER_CACHE_STATE_STOPPING},
                {MANAGER_CACHE_STATE_READY, MANAGER_CACHE_STATE_DRAINING},
                {MANAGER_CACHE_STATE_READY, MANAGER_CACHE_STATE_STOPPING},
                {MANAGER_CACHE_STATE_DRAINING, MANAGER_CACHE_STATE_STOPPING},
                {MANAGER_CACHE_STATE_STOPPING, MANAGER_CACHE_STATE_FAILED},
        };
        size_t n = 0;

        for (ManagerCacheState from = 0; from < _MANAGER_CACHE_STATE_MAX; from++)
                for (ManagerCacheState to = 0; to < _MANAGER_CACHE_STATE_MAX; to++)
                        n += cache_state_may_follow(from, to);
        for (size_t i = 0; i < ELEMENTSOF(legal); i++)
                assert_true(cache_state_may_follow(legal[i][0], legal[i][1]));
        assert_int_equal(n, ELEMENTSOF(legal));
}

static void a_new_one_loads(void **state)
{
        _cleanup_(cache_freep) Cache *c = make("qwen");

        assert_int_equal(c->state, MANAGER_CACHE_STATE_LOADING);
        assert_string_equal(cache_name(c), "qwen");
        assert_int_equal(c->gid, 1001);
        assert_int_equal(cache_manifest_fd(c), -EBADF);
        assert_int_equal(cache_pack_fd(c), -EBADF);
        assert_int_equal(cache_resident_bytes(c), 0);
        assert_int_equal(cache_reserved_bytes(c), 0);
        cache_set_state(c, MANAGER_CACHE_STATE_READY);
        assert_int_equal(c->state, MANAGER_CACHE_STATE_READY);
}

static void bytes_are_counted_once_and_in_their_phase(void **state)
{
        _cleanup_(cache_freep) Cache *c = make("qwen");

        c->bytes = 1000;
        c->pack_bytes = 100;
        c->buffer_bytes = 50;
        /* Not admitted yet. */
        assert_int_equal(cache_reserved_bytes(c), 0);
        c->admitted = true;
        for (c->phase = CACHE_COPYING; c->phase <= CACHE_PROBING; c->phase++) {
                c->bytes_loaded = 400;
                assert_int_equal(cache_reserved_bytes(c), 1150);
                assert_int_equal(cache_outstanding_bytes(c), 750);
                assert_int_equal(cache_resident_bytes(c), 0);
                c->bytes_loaded = 5000;
                assert_int_equal(cache_outstanding_bytes(c), 0);
        }
        c->phase = CACHE_HELD;
        assert_int_equal(cache_reserved_bytes(c), 0);
        assert_int_equal(cache_outstanding_bytes(c), 0);
        assert_int_equal(cache_resident_bytes(c), 1000);
        /* Until the worker is gone it is there. */
        c->phase = CACHE_ENDING;
        assert_int_equal(cache_resident_bytes(c), 1000);
        c->phase = CACHE_CLEANING;
        assert_int_equal(cache_resident_bytes(c), 0);
        c->phase = CACHE_GONE;
        assert_int_equal(cache_resident_bytes(c), 0);
        /* A refused one never had any. */
        c->admitted = false;
        c->phase = CACHE_ENDING;
        assert_int_equal(cache_resident_bytes(c), 0);
}

static void sums_do_not_overflow(void **state)
{
        _cleanup_(cache_freep) Cache *c = make("qwen");

        c->admitted = true;
        c->phase = CACHE_COPYING;
        c->bytes = UINT64_MAX - 1;
        c->pack_bytes = c->buffer_bytes = UINT64_MAX - 1;
        assert_true(cache_reserved_bytes(c) == UINT64_MAX);
        assert_true(cache_outstanding_bytes(c) == UINT64_MAX);
}

static void files_are_found_and_closed(void **state)
{
        _cleanup_(cache_freep) Cache *c = make("qwen");
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(fd_set_take(&c->fds, fds[0]), 0);
        assert_int_equal(fd_set_take(&c->fds, fds[1]), 0);
        assert_int_equal(cache_manifest_fd(c), fds[0]);
        assert_int_equal(cache_pack_fd(c), -EBADF);
        c->pack_bytes = 1;
        assert_int_equal(cache_pack_fd(c), fds[1]);
        cache_release_files(c);
        assert_int_equal(cache_manifest_fd(c), -EBADF);
        assert_int_equal(fcntl(fds[0], F_GETFD), -1);
        assert_int_equal(fcntl(fds[1], F_GETFD), -1);
}

typedef struct TestWaiter {
        Waiter waiter;
        unsigned order, progressed;
        bool alive;
        const Fault *fault;
} TestWaiter;

static unsigned told;

static void on_done(Waiter *w, Cache *c, const Fault *fault)
{
        ((TestWaiter *) w)->order = ++told;
        ((TestWaiter *) w)->fault = fault;
}

static void on_progress(Waiter *w, Cache *c)
{
        ((TestWaiter *) w)->progressed++;
}

static bool is_alive(const Waiter *w)
{
        return ((const TestWaiter *) w)->alive;
}

static void waiters_are_told_in_order(void **state)
{
        TestWaiter a = {{NULL, on_done, on_progress, is_alive}, 0, 0, false, NULL},
                   b = {{NULL, on_done, NULL, is_alive}, 0, 0, false, NULL};
        const Fault fault = {.kind = FAULT_LOAD_FAILED};
        Waiter *list = NULL;

        told = 0;
        assert_false(waiters_finish(&list, NULL, NULL));
        waiter_append(&list, &a.waiter);
        waiter_append(&list, &b.waiter);
        waiters_progress(list, NULL);
        assert_int_equal(a.progressed, 1);
        /* Nobody is there any more to hear it. */
        assert_false(waiters_finish(&list, NULL, &fault));
        assert_null(list);
        assert_int_equal(a.order, 1);
        assert_int_equal(b.order, 2);
        assert_ptr_equal(b.fault, &fault);

        waiter_append(&list, &a.waiter);
        waiter_append(&list, &b.waiter);
        a.alive = true;
        assert_true(waiters_finish(&list, NULL, NULL));
        assert_int_equal(b.order, 4);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(transitions),
                cmocka_unit_test(a_new_one_loads),
                cmocka_unit_test(bytes_are_counted_once_and_in_their_phase),
                cmocka_unit_test(sums_do_not_overflow),
                cmocka_unit_test(files_are_found_and_closed),
                cmocka_unit_test(waiters_are_told_in_order),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
