/* Start's parameters: ranges, names of what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "daemon/parameters.h"

/* 0 with settings, or the field that was wrong. */
static const char *parse(const char *text, CacheSettings **ret)
{
        _cleanup_(manager_start_parameters_done) ManagerStartParameters p = {};
        _cleanup_json_ struct json_object *o = NULL;
        const char *field = NULL;
        int r;

        assert_int_equal(json_parse_strict(text, strlen(text), &o, NULL), 0);
        assert_int_equal(dispatch_object(o, manager_start_fields, &p, &field), 0);
        r = settings_from_parameters(&p, ret, &field);
        assert_true(r == 0 || r == -EINVAL);
        return r == 0 ? NULL : field;
}

static void defaults(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        assert_null(parse("{\"name\":\"qwen\",\"source\":\"/m//a/../b/\"}", &s));
        assert_string_equal(s->name, "qwen");
        assert_string_equal(s->source, "/m/b");
        assert_null(s->view);
        assert_null(s->patterns);
        assert_null(s->excludes);
        assert_int_equal(s->workers, 0);
        assert_int_equal(s->chunk_size, START_CHUNK_SIZE_DEFAULT);
        assert_true(s->max_memory_bytes == UINT64_MAX);
        assert_true(s->max_resident_bytes == UINT64_MAX);
        assert_true(s->idle_ttl == USEC_INFINITY);
        assert_int_equal(s->mode, 0400);
        assert_false(s->force);
}

static void everything(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        assert_null(parse(
                "{\"name\":\"q\",\"source\":\"x\",\"sourceBytes\":\"L20v/w==\",\"view\":\"/"
                "v\",\"pidFile\":\"/p\","
                "\"logFile\":\"/"
                "l\",\"patterns\":[\"*.json\"],\"excludes\":[],\"workers\":256,\"chunkSize\":4096,"
                "\"maxMemoryFraction\":1,\"maxMemoryBytes\":0,\"reserveBytes\":5,\"maxResidentBytes\":6,"
                "\"idleTTLUSec\":1,\"force\":true,\"owner\":\"o\",\"group\":\"g\",\"mode\":288}",
                &s));
        /* The bytes count, not the text beside them. */
        assert_string_equal(s->source, "/m/\xff");
        assert_string_equal(s->view, "/v");
        assert_string_equal(s->pid_file, "/p");
        assert_string_equal(s->log_file, "/l");
        assert_int_equal(strv_length(s->patterns), 1);
        /* An empty list of exclusions excludes nothing, and is not the default one. */
        assert_non_null(s->excludes);
        assert_int_equal(strv_length(s->excludes), 0);
        assert_int_equal(s->workers, 256);
        assert_int_equal(s->chunk_size, 4096);
        assert_int_equal(s->max_memory_bytes, 0);
        assert_int_equal(s->mode, 0440);
        assert_true(s->force);
        assert_string_equal(s->owner, "o");
}

static void what_is_wrong_is_named(void **state)
{
        static const struct {
                const char *rest;
                const char *field;
        } table[] = {
                {"", "source"},
                {",\"source\":\"relative\"", "source"},
                {",\"source\":\"\"", "source"},
                {",\"source\":\"/m\",\"sourceBytes\":\"!\"", "source"},
                {",\"source\":\"/m\",\"sourceBytes\":\"AA==\"", "source"},
                {",\"source\":\"/m\",\"view\":\"v\"", "view"},
                {",\"source\":\"/m\",\"pidFile\":\"v\"", "pidFile"},
                {",\"source\":\"/m\",\"logFile\":\"v\"", "logFile"},
                {",\"source\":\"/m\",\"workers\":0", "workers"},
                {",\"source\":\"/m\",\"workers\":257", "workers"},
                {",\"source\":\"/m\",\"workers\":-1", "workers"},
                {",\"source\":\"/m\",\"chunkSize\":4095", "chunkSize"},
                {",\"source\":\"/m\",\"chunkSize\":1073741825", "chunkSize"},
                {",\"source\":\"/m\",\"maxMemoryFraction\":0", "maxMemoryFraction"},
                {",\"source\":\"/m\",\"maxMemoryFraction\":1.01", "maxMemoryFraction"},
                {",\"source\":\"/m\",\"maxMemoryFraction\":-0.5", "maxMemoryFraction"},
                {",\"source\":\"/m\",\"maxMemoryBytes\":-1", "maxMemoryBytes"},
                {",\"source\":\"/m\",\"reserveBytes\":-1", "reserveBytes"},
                {",\"source\":\"/m\",\"maxResidentBytes\":-1", "maxResidentBytes"},
                {",\"source\":\"/m\",\"idleTTLUSec\":0", "idleTTLUSec"},
                {",\"source\":\"/m\",\"mode\":420", "mode"},
                {",\"source\":\"/m\",\"mode\":-1", "mode"},
                {",\"source\":\"/m\",\"mode\":32", "mode"},
                {",\"source\":\"/m\",\"patterns\":[\"\"]", "patterns"},
                {",\"source\":\"/m\",\"owner\":\"\"", "owner"},
                {",\"source\":\"/m\",\"group\":\"\"", "group"},
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
                _cleanup_free_ char *text = NULL;
                const char *field;

                assert_int_equal(text_format(&text, "{\"name\":\"qwen\"%s}", table[i].rest), 0);
                field = parse(text, &s);
                if (!field || !streq(field, table[i].field))
                        fail_msg("%s: %s", text, field ? field : "accepted");
        }
}

static void a_configured_cache_takes_nothing_else(void **state)
{
        ManagerStartParameters p = {};

        assert_null(parameters_beyond_configured(&p));
        p.force = (OptionalBool){true, true};
        p.wait = (OptionalBool){true, false};
        p.max_resident_bytes = (OptionalInt){true, 5};
        assert_null(parameters_beyond_configured(&p));
        p.mode = (OptionalInt){true, 0400};
        assert_string_equal(parameters_beyond_configured(&p), "mode");
        p.mode.set = false;
        p.view_bytes = (char *) "L3Y=";
        assert_string_equal(parameters_beyond_configured(&p), "view");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(defaults),
                cmocka_unit_test(everything),
                cmocka_unit_test(what_is_wrong_is_named),
                cmocka_unit_test(a_configured_cache_takes_nothing_else),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
