/* Monitor with real subscribers on a socketpair: who sees what, and what a slow one costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "daemon/monitor.h"
#include "wire/client.h"

typedef struct Fixture {
        sd_event *event;
        VarlinkServer *server;
        AccessPolicy policy;
        Monitor monitor;
        Cache *cache;
} Fixture;

static int on_monitor(VarlinkCall *call, void *parameters, void *userdata)
{
        const ManagerMonitorParameters *p = parameters;
        Fixture *f = userdata;

        return monitor_subscribe(&f->monitor, call, p->name);
}

static const VarlinkMethod methods[] = {
        {
                .name = "Monitor",
                .fields = manager_monitor_fields,
                .parameters_size = sizeof(ManagerMonitorParameters),
                .parameters_done = manager_monitor_parameters_done,
                .handler = on_monitor,
        },
        {.name = NULL},
};
static const VarlinkInterface interface = {MANAGER_INTERFACE, "", methods};
static const VarlinkService service = {"v", "p", "1", ""};

static int set_up(void **state)
{
        _cleanup_identity_ Identity owner = {.uid = getuid(), .gid = getgid()};
        Fixture *f = calloc(1, sizeof(*f));
        CacheSettings *s;

        assert_non_null(f);
        f->policy = (AccessPolicy){.scope = SCOPE_USER, .manager_uid = getuid(), .starters_gid = (gid_t) -1};
        f->monitor.policy = &f->policy;
        assert_int_equal(cache_settings_new("qwen", &s), 0);
        s->source = strdup("/m");
        assert_int_equal(cache_new(NULL, s, &owner, &f->cache), 0);
        assert_true(sd_event_new(&f->event) >= 0);
        assert_int_equal(varlink_server_new(f->event, &service, &varlink_limits_default, &f->server), 0);
        assert_int_equal(varlink_server_add_interface(f->server, &interface, f), 0);
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        Fixture *f = *state;

        monitor_done(&f->monitor);
        varlink_server_free(f->server);
        cache_free(f->cache);
        sd_event_unref(f->event);
        free(f);
        return 0;
}

static void run(Fixture *f)
{
        while (sd_event_run(f->event, 0) > 0)
                ;
}

static VarlinkClient *subscribe(Fixture *f, const char *name)
{
        struct json_object *parameters = json_object_new_object();
        size_t before = f->monitor.n;
        VarlinkClient *c;
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(varlink_server_add_connection(f->server, pair[0]), 0);
        assert_int_equal(varlink_client_new_fd(pair[1], &c), 0);
        assert_int_equal(json_add_string(parameters, "name", name), 0);
        assert_int_equal(varlink_client_send(c, MANAGER_METHOD_MONITOR, parameters, true, NULL, 0), 0);
        run(f);
        assert_int_equal(f->monitor.n, before + 1);
        return c;
}

/* The kind of the next reply, or _INVALID where there is none. */
static ManagerChangeKind next_kind(VarlinkClient *c)
{
        VarlinkReply r = {};
        ManagerChangeKind kind = _MANAGER_CHANGE_KIND_INVALID;
        const char *text;

        if (varlink_client_process(c, &r) != 1)
                return kind;
        assert_null(r.error);
        assert_true(r.continues);
        assert_int_equal(manager_validate_reply(MANAGER_METHOD_MONITOR, r.parameters, NULL), 0);
        assert_int_equal(json_get_string(r.parameters, "kind", &text), 0);
        kind = manager_change_kind_from_string(text);
        varlink_reply_done(&r);
        return kind;
}

static void changes_are_told(void **state)
{
        Fixture *f = *state;
        _cleanup_(varlink_client_freep) VarlinkClient *all = subscribe(f, NULL),
                                                      *named = subscribe(f, "qwen"),
                                                      *another = subscribe(f, "other");

        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_STARTED, f->cache);
        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_READY, f->cache);
        run(f);
        assert_int_equal(next_kind(all), MANAGER_CHANGE_KIND_STARTED);
        assert_int_equal(next_kind(all), MANAGER_CHANGE_KIND_READY);
        assert_int_equal(next_kind(named), MANAGER_CHANGE_KIND_STARTED);
        assert_int_equal(next_kind(named), MANAGER_CHANGE_KIND_READY);
        assert_int_equal(next_kind(another), _MANAGER_CHANGE_KIND_INVALID);
}

static void what_may_not_be_seen_is_not_told(void **state)
{
        Fixture *f = *state;
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;

        f->policy.scope = SCOPE_SYSTEM;
        f->cache->owner.uid = getuid() == 0 ? 0 : getuid() + 1;
        f->cache->gid = getgid() + 1;
        /* Root sees everything: the peer must be somebody else, which a socket pair's ends take from its
         * maker. */
        if (getuid() == 0)
                assert_int_equal(seteuid(65534), 0);
        c = subscribe(f, NULL);
        if (getuid() == 0)
                assert_int_equal(seteuid(0), 0);
        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_STARTED, f->cache);
        run(f);
        assert_int_equal(next_kind(c), _MANAGER_CHANGE_KIND_INVALID);
        f->cache->settings->mode = 0444;
        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_READY, f->cache);
        run(f);
        assert_int_equal(next_kind(c), MANAGER_CHANGE_KIND_READY);
}

static void those_who_leave_are_forgotten(void **state)
{
        Fixture *f = *state;
        VarlinkClient *a = subscribe(f, NULL);
        _cleanup_(varlink_client_freep) VarlinkClient *b = subscribe(f, NULL);

        varlink_client_free(a);
        run(f);
        assert_int_equal(f->monitor.n, 1);
        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_LEASED, f->cache);
        run(f);
        assert_int_equal(next_kind(b), MANAGER_CHANGE_KIND_LEASED);
}

static void a_slow_one_is_spared_progress_and_then_dropped(void **state)
{
        Fixture *f = *state;
        _cleanup_(varlink_client_freep) VarlinkClient *slow = subscribe(f, NULL), *good = subscribe(f, NULL);
        VarlinkReply r = {};
        size_t n = 0;

        /* Far more than socket and bounds hold: progress alone never costs the subscription. */
        for (size_t i = 0; i < 20000; i++) {
                monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_PROGRESS, f->cache);
                if (i % 64 == 0) {
                        run(f);
                        while (next_kind(good) >= 0)
                                ;
                }
        }
        assert_int_equal(f->monitor.n, 2);
        for (size_t i = 0; i < 20000; i++) {
                monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_LEASED, f->cache);
                if (i % 64 == 0) {
                        run(f);
                        while (next_kind(good) >= 0)
                                ;
                }
        }
        assert_int_equal(f->monitor.n, 1);
        /* It reads what was queued, and at the end why it is the end. */
        for (;;) {
                int q;

                run(f);
                q = varlink_client_process(slow, &r);
                assert_true(q >= 0);
                if (q == 0)
                        continue;
                n++;
                if (!r.continues)
                        break;
                varlink_reply_done(&r);
        }
        assert_string_equal(r.error, MANAGER_ERROR_LIMIT_EXCEEDED);
        assert_int_equal(manager_validate_error(r.error, r.parameters, NULL), 0);
        varlink_reply_done(&r);
        assert_true(n < 20000);
        /* The other one misses nothing. */
        monitor_emit(&f->monitor, MANAGER_CHANGE_KIND_STOPPED, f->cache);
        run(f);
        while (next_kind(good) == MANAGER_CHANGE_KIND_LEASED)
                ;
        assert_int_equal(f->monitor.n, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(changes_are_told, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_may_not_be_seen_is_not_told, set_up, tear_down),
                cmocka_unit_test_setup_teardown(those_who_leave_are_forgotten, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_slow_one_is_spared_progress_and_then_dropped, set_up,
                                                tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
