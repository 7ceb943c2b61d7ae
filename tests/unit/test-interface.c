/* What is generated from the interface's description: its text, names, enums, tables and checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "wire/manager-interface.h"

static struct json_object *parse(const char *text)
{
        struct json_object *o = NULL;

        if (json_parse_strict(text, strlen(text), &o, NULL) < 0)
                fail_msg("bad text: %s", text);
        return o;
}

static void the_description_is_the_file(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL;
        size_t n = 0;

        /* The tests run in the top of the tree. */
        if (fd_read_file_at(AT_FDCWD, "wire/" MANAGER_INTERFACE ".varlink", MIB(1), &text, &n) < 0)
                skip();
        assert_string_equal(manager_interface_description, text);
        assert_int_equal(strlen(manager_interface_description), n);
}

static void names_are_in_the_description(_unused_ void **state)
{
        assert_string_equal(MANAGER_METHOD_ACQUIRE_LEASE, "io.iloader.Manager.AcquireLease");
        assert_string_equal(MANAGER_ERROR_NO_SUCH_CACHE, "io.iloader.Manager.NoSuchCache");
        assert_non_null(strstr(manager_interface_description, "\nmethod AcquireLease("));
        assert_non_null(strstr(manager_interface_description, "\nerror NoSuchCache ("));
}

static void enums_go_both_ways(_unused_ void **state)
{
        for (int i = 0; i < _MANAGER_CACHE_STATE_MAX; i++) {
                const char *s = manager_cache_state_to_string((ManagerCacheState) i);

                assert_non_null(s);
                assert_int_equal(manager_cache_state_from_string(s), i);
        }
        assert_string_equal(manager_cache_state_to_string(MANAGER_CACHE_STATE_READY), "ready");
        assert_null(manager_cache_state_to_string(_MANAGER_CACHE_STATE_MAX));
        assert_null(manager_cache_state_to_string(_MANAGER_CACHE_STATE_INVALID));
        assert_int_equal(manager_cache_state_from_string("Ready"), _MANAGER_CACHE_STATE_INVALID);
        assert_int_equal(manager_cache_state_from_string(NULL), _MANAGER_CACHE_STATE_INVALID);
        assert_int_equal(manager_change_kind_from_string("released"), MANAGER_CHANGE_KIND_RELEASED);
}

static void parameters_are_dispatched(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o =
                parse("{\"name\":\"q\",\"source\":\"/"
                      "s\",\"patterns\":[\"*.json\"],\"excludes\":[],\"idleTTLUSec\":5,"
                      "\"maxMemoryFraction\":0.5,\"force\":false,\"pidFileBytes\":\"Lw==\"}");
        ManagerStartParameters p = {0};
        const char *field = NULL;

        assert_int_equal(dispatch_object(o, manager_start_fields, &p, &field), 0);
        assert_string_equal(p.name, "q");
        assert_string_equal(p.source, "/s");
        assert_string_equal(p.pid_file_bytes, "Lw==");
        assert_string_equal(p.patterns[0], "*.json");
        assert_non_null(p.excludes);
        assert_true(p.idle_ttl_usec.set && p.idle_ttl_usec.value == 5);
        assert_true(p.max_memory_fraction.set && p.force.set && !p.force.value && !p.wait.set);
        manager_start_parameters_done(&p);
        /* Twice is no harm. */
        manager_start_parameters_done(&p);
        assert_null(p.name);
}

static void methods_without_parameters_take_none(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = parse("{\"x\":1}");
        ManagerListParameters p = {0};
        const char *field = NULL;

        assert_int_equal(dispatch_object(NULL, manager_list_fields, &p, &field), 0);
        assert_int_equal(dispatch_object(o, manager_list_fields, &p, &field), -EINVAL);
        assert_string_equal(field, "x");
        manager_list_parameters_done(&p);
}

#define CACHE                                                                                                \
        "\"name\":\"q\",\"source\":\"/"                                                                      \
        "s\",\"uid\":0,\"gid\":0,\"mode\":256,\"files\":1,\"bytes\":2,\"bytesLoaded\":2,"                    \
        "\"reuses\":0,\"leasesGranted\":1,\"startedUSec\":1,\"lastUsedUSec\":1"

static void replies_are_checked(_unused_ void **state)
{
        static const struct {
                const char *method, *parameters, *field;
        } cases[] = {
                {MANAGER_METHOD_LIST, "{\"caches\":[]}", NULL},
                {MANAGER_METHOD_LIST, "{\"caches\":[{" CACHE ",\"state\":\"ready\",\"leases\":[]}]}", NULL},
                {MANAGER_METHOD_LIST,
                 "{\"caches\":[{" CACHE ",\"state\":\"ready\",\"leases\":[],\"view\":null}]}", NULL},
                {MANAGER_METHOD_LIST,
                 "{\"caches\":[{" CACHE
                 ",\"state\":\"ready\",\"leases\":[{\"pid\":1,\"uid\":0,\"command\":\"x\","
                 "\"acquiredUSec\":1}]}]}",
                 NULL},
                {MANAGER_METHOD_LIST, "{}", "caches"},
                {MANAGER_METHOD_LIST, "{\"caches\":null}", "caches"},
                {MANAGER_METHOD_LIST, "{\"caches\":{}}", "caches"},
                {MANAGER_METHOD_LIST, "{\"caches\":[],\"more\":1}", "more"},
                {MANAGER_METHOD_LIST, "{\"caches\":[null]}", "caches"},
                {MANAGER_METHOD_LIST, "{\"caches\":[{" CACHE ",\"leases\":[]}]}", "state"},
                {MANAGER_METHOD_LIST, "{\"caches\":[{" CACHE ",\"state\":\"gone\",\"leases\":[]}]}", "state"},
                {MANAGER_METHOD_LIST, "{\"caches\":[{" CACHE ",\"state\":\"ready\",\"leases\":[1]}]}",
                 "leases"},
                {MANAGER_METHOD_LIST,
                 "{\"caches\":[{" CACHE ",\"state\":\"ready\",\"leases\":[{\"pid\":1}]}]}", "uid"},
                {MANAGER_METHOD_LIST,
                 "{\"caches\":[{" CACHE ",\"state\":\"ready\",\"leases\":[],\"pid\":\"1\"}]}", "pid"},
                {MANAGER_METHOD_MONITOR, "{}", NULL},
                {MANAGER_METHOD_MONITOR, "{\"kind\":\"ready\"}", NULL},
                {MANAGER_METHOD_MONITOR, "{\"kind\":7}", "kind"},
                {MANAGER_METHOD_COLLECT,
                 "{\"evicted\":[\"a\"],\"evictedBytes\":1,\"remainingBytes\":0,\"skipped\":[],\"targetMet\":"
                 "true}",
                 NULL},
                {MANAGER_METHOD_COLLECT,
                 "{\"evicted\":[1],\"evictedBytes\":1,\"remainingBytes\":0,\"skipped\":[],\"targetMet\":"
                 "true}",
                 "evicted"},
                {MANAGER_METHOD_COLLECT,
                 "{\"evicted\":[],\"evictedBytes\":1.5,\"remainingBytes\":0,\"skipped\":[],\"targetMet\":"
                 "true}",
                 "evictedBytes"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_json_ struct json_object *o = parse(cases[i].parameters);
                const char *field = NULL;
                int r = manager_validate_reply(cases[i].method, o, &field);

                if (r != (cases[i].field ? -EBADMSG : 0))
                        fail_msg("%s: %d, %s", cases[i].parameters, r, field ? field : "-");
                if (cases[i].field)
                        assert_string_equal(field, cases[i].field);
        }
        assert_int_equal(manager_validate_reply("io.iloader.Manager.Nothing", NULL, NULL), -ENOENT);
        assert_int_equal(manager_validate_reply(MANAGER_METHOD_LIST, NULL, NULL), -EBADMSG);
        assert_int_equal(manager_validate_reply(MANAGER_METHOD_MONITOR, NULL, NULL), 0);
}

static void errors_and_calls_are_checked(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = parse("{\"name\":\"x\"}");
        const char *field = NULL;

        assert_int_equal(manager_validate_error(MANAGER_ERROR_NO_SUCH_CACHE, o, NULL), 0);
        assert_int_equal(manager_validate_error(MANAGER_ERROR_NO_SUCH_CACHE, NULL, &field), -EBADMSG);
        assert_string_equal(field, "name");
        assert_int_equal(manager_validate_error(MANAGER_ERROR_CACHE_MISMATCH, o, &field), -EBADMSG);
        assert_string_equal(field, "message");
        assert_int_equal(manager_validate_error("io.iloader.Manager.Nothing", o, NULL), -ENOENT);
        assert_int_equal(manager_validate_call(MANAGER_METHOD_STATUS, o, NULL), 0);
        assert_int_equal(manager_validate_call(MANAGER_METHOD_LIST, o, &field), -EBADMSG);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_description_is_the_file),
                cmocka_unit_test(names_are_in_the_description),
                cmocka_unit_test(enums_go_both_ways),
                cmocka_unit_test(parameters_are_dispatched),
                cmocka_unit_test(methods_without_parameters_take_none),
                cmocka_unit_test(replies_are_checked),
                cmocka_unit_test(errors_and_calls_are_checked),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
