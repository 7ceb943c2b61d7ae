/* The strict reader and the typed getters, on good and on hostile texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

static struct json_object *parse(const char *text)
{
        struct json_object *o = NULL;
        JsonFault fault = {0};
        int r = json_parse_strict(text, strlen(text), &o, &fault);

        if (r < 0)
                fail_msg("%s: %d (%s at %zu)", text, r, fault.reason ? fault.reason : "-", fault.offset);
        return o;
}

static void refuse_n(const char *text, size_t n, const char *reason)
{
        struct json_object *o = (void *) 1;
        JsonFault fault = {0};

        if (json_parse_strict(text, n, &o, &fault) != -EBADMSG)
                fail_msg("accepted: %.*s", (int) n, text);
        assert_ptr_equal(o, (void *) 1);
        assert_non_null(fault.reason);
        if (reason)
                assert_string_equal(fault.reason, reason);
        assert_true(fault.offset <= n);
        assert_int_equal(json_check(text, n, NULL), -EBADMSG);
}

static void refuse(const char *text, const char *reason)
{
        refuse_n(text, strlen(text), reason);
}

static void accepts_values(_unused_ void **state)
{
        static const struct {
                const char *text, *plain;
        } cases[] = {
                {"{}", "{}"},
                {" \t\r\n[ ] \n", "[]"},
                {"null", "null"},
                {"true", "true"},
                {"false", "false"},
                {"\"\"", "\"\""},
                {"0", "0"},
                {"-0", "0"},
                {"-12", "-12"},
                {"9223372036854775807", "9223372036854775807"},
                {"-9223372036854775808", "-9223372036854775808"},
                {"1.5", "1.5"},
                {"0.0", "0.0"},
                {"1e3", "1e3"},
                {"1E+3", "1E+3"},
                {"-2.5e-3", "-2.5e-3"},
                {"0e0", "0e0"},
                {"1e-400", "1e-400"},
                {"{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":\"e\"}",
                 "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":\"e\"}"},
                {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
                {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
                {"\"\x7f\xf4\x8f\xbf\xbf\"", "\"\x7f\xf4\x8f\xbf\xbf\""},
                {"{\"\":1}", "{\"\":1}"},
                {"{\"a\":1,\"A\":2,\"a \":3}", "{\"a\":1,\"A\":2,\"a \":3}"},
                {"[{\"a\":1},{\"a\":1}]", "[{\"a\":1},{\"a\":1}]"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_json_ struct json_object *o = parse(cases[i].text);

                assert_string_equal(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN |
                                                                              JSON_C_TO_STRING_NOSLASHESCAPE),
                                    cases[i].plain);
                assert_int_equal(json_check(cases[i].text, strlen(cases[i].text), NULL), 0);
        }
}

static void refuses_what_is_no_json(_unused_ void **state)
{
        static const char *const cases[] = {
                "",
                " ",
                "{",
                "}",
                "[",
                "]",
                "{]",
                "[}",
                "[1",
                "[1,",
                "[1,]",
                "[,1]",
                "[1 2]",
                "{\"a\"}",
                "{\"a\":}",
                "{\"a\":1,}",
                "{,}",
                "{\"a\" 1}",
                "{a:1}",
                "{'a':1}",
                "{1:1}",
                "{null:1}",
                "[1}",
                "{\"a\":1]",
                "tru",
                "truex",
                "True",
                "NaN",
                "Infinity",
                "-Infinity",
                "nul",
                "+1",
                "01",
                "-01",
                "-",
                "--1",
                ".5",
                "5.",
                "1.e1",
                "1e",
                "1e+",
                "0x10",
                "1_000",
                "00",
                "1.2.3",
                "\"",
                "\"abc",
                "\"\\\"",
                "\"\\",
                "\"\\x41\"",
                "\"\\u\"",
                "\"\\u12\"",
                "\"\\u12g4\"",
                "\"a\tb\"",
                "\"a\nb\"",
                "\"\x01\"",
                "{} {}",
                "{}x",
                "1 2",
                "[] //x",
                "/**/[]",
                "\xef\xbb\xbf{}",
                "{\"a\":1;\"b\":2}",
                "\v1",
                "\f1",
                "\xa0"
                "1",
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                refuse(cases[i], NULL);
}

static void refuses_what_parsers_differ_about(_unused_ void **state)
{
        static const char nul_in_string[] = "\"a\0b\"", nul_after[] = "{}\0";

        refuse("{\"a\":1,\"a\":2}", "a key appears twice in an object");
        refuse("{\"a\":1,\"\\u0061\":2}", "a key appears twice in an object");
        refuse("{\"a\":null,\"a\":null}", "a key appears twice in an object");
        refuse("{\"x\":{\"b\":[{\"k\":0,\"k\":0}]}}", "a key appears twice in an object");
        refuse("9223372036854775808", "an integer does not fit 64 bits");
        refuse("-9223372036854775809", "an integer does not fit 64 bits");
        refuse("18446744073709551615", "an integer does not fit 64 bits");
        refuse("99999999999999999999999999", "an integer does not fit 64 bits");
        refuse("1e400", "a number is out of range");
        refuse("-1e99999999999999999999", "a number is out of range");
        refuse("\"\\u0000\"", "a string holds a NUL character");
        refuse("{\"\\u0000\":1}", "a string holds a NUL character");
        refuse("\"\\ud800\"", "half a surrogate pair");
        refuse("\"\\udc00\"", "half a surrogate pair");
        refuse("\"\\ud800\\u0041\"", "half a surrogate pair");
        refuse("\"\\ud800\\ud800\"", "half a surrogate pair");
        refuse("\"\\ud800x\"", "half a surrogate pair");
        refuse_n(nul_in_string, sizeof(nul_in_string) - 1, "a string holds a control character");
        refuse_n(nul_after, sizeof(nul_after) - 1, "something follows the value");
}

static void refuses_bytes_that_are_no_utf8(_unused_ void **state)
{
        static const char *const cases[] = {
                "\"\x80\"",         "\"\xff\"",         "\"\xc0\xaf\"",
                "\"\xe0\x80\xaf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                "\"\xc3\"",         "\"\xe2\x82\"",     "\"\xf0\x9f\x98\"",
                "{\"\xfe\":1}",
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                refuse(cases[i], "a string is not UTF-8");
}

static void nested(char *out, size_t depth)
{
        memset(out, '[', depth);
        memset(out + depth, ']', depth);
        out[2 * depth] = 0;
}

static void bounds_nesting(_unused_ void **state)
{
        struct json_object *o;
        char text[4096];

        nested(text, JSON_DEPTH_MAX);
        o = parse(text);
        json_object_put(o);
        nested(text, JSON_DEPTH_MAX + 1);
        refuse(text, "nested too deeply");
        memset(text, '[', sizeof(text));
        refuse_n(text, sizeof(text), "nested too deeply");
        for (size_t i = 0; i + 5 < sizeof(text); i += 5)
                memcpy(text + i, "{\"a\":", 5);
        refuse_n(text, 4090, "nested too deeply");
}

static void bounds_what_a_text_costs(_unused_ void **state)
{
        static char text[60000];
        size_t n = 1;

        /* Each empty object takes hundreds of bytes once built. */
        text[0] = '[';
        for (size_t i = 1; i + 3 < sizeof(text); i += 3)
                memcpy(text + i, "{},", 3);
        text[sizeof(text) - 3] = ']';
        refuse_n(text, sizeof(text) - 2, "too many values");
        /* A thousand small values are fine in any form, and any number of ordinary ones. */
        for (size_t i = 1; i < 2000; i += 2)
                memcpy(text + i, "0,", 2);
        memcpy(text + 2001, "0]", 2);
        assert_int_equal(json_check(text, 2003, NULL), 0);
        text[0] = '[';
        for (size_t i = 0; i < 800; i++)
                n += (size_t) snprintf(text + n, sizeof(text) - n,
                                       "{\"pid\":%zu,\"uid\":0,\"command\":\"x\",\"acquiredUSec\":%zu},", i,
                                       1700000000000000 + i);
        text[n - 1] = ']';
        assert_int_equal(json_check(text, n, NULL), 0);
}

static void refuses_each_truncation(_unused_ void **state)
{
        static const char text[] = "{\"a\":[1,-2.5e3,true,null,\"\\u20ac\\n\xc3\xa9\"],\"b\":{\"c\":false}}";

        for (size_t n = 0; n < sizeof(text) - 1; n++)
                assert_int_equal(json_check(text, n, NULL), -EBADMSG);
        assert_int_equal(json_check(text, sizeof(text) - 1, NULL), 0);
}

static void getters_do_not_coerce(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o =
                parse("{\"s\":\"5\",\"i\":5,\"n\":-1,\"d\":1.5,\"b\":true,\"z\":null,\"o\":{},\"l\":[\"x\","
                      "\"y\"],\"m\":[\"x\",1],"
                      "\"e\":[]}");
        struct json_object *sub = NULL;
        _cleanup_strv_ char **l = NULL;
        const char *s = NULL;
        uint64_t u = 0;
        int64_t i = 0;
        double d = 0;
        bool b = false;

        assert_int_equal(json_get_string(o, "s", &s), 0);
        assert_string_equal(s, "5");
        assert_int_equal(json_get_string(o, "i", &s), -EBADMSG);
        assert_int_equal(json_get_string(o, "z", &s), -ENOENT);
        assert_int_equal(json_get_string(o, "absent", &s), -ENOENT);
        assert_int_equal(json_get_int(o, "i", &i), 0);
        assert_int_equal(i, 5);
        assert_int_equal(json_get_int(o, "s", &i), -EBADMSG);
        assert_int_equal(json_get_int(o, "d", &i), -EBADMSG);
        assert_int_equal(json_get_int(o, "b", &i), -EBADMSG);
        assert_int_equal(json_get_size(o, "i", &u), 0);
        assert_int_equal(json_get_size(o, "n", &u), -EBADMSG);
        assert_int_equal(u, 5);
        assert_int_equal(json_get_bool(o, "b", &b), 0);
        assert_true(b);
        assert_int_equal(json_get_bool(o, "i", &b), -EBADMSG);
        assert_int_equal(json_get_double(o, "d", &d), 0);
        assert_true(d == 1.5);
        assert_int_equal(json_get_double(o, "i", &d), 0);
        assert_true(d == 5);
        assert_int_equal(json_get_double(o, "s", &d), -EBADMSG);
        assert_int_equal(json_get_object(o, "o", &sub), 0);
        assert_int_equal(json_get_object(o, "l", &sub), -EBADMSG);
        assert_int_equal(json_get_array(o, "l", &sub), 0);
        assert_int_equal(json_get_array(o, "o", &sub), -EBADMSG);
        assert_int_equal(json_get_strv(o, "m", &l), -EBADMSG);
        assert_null(l);
        assert_int_equal(json_get_strv(o, "absent", &l), -ENOENT);
        assert_int_equal(json_get_strv(o, "e", &l), 0);
        assert_non_null(l);
        assert_int_equal(strv_length(l), 0);
        l = strv_free(l);
        assert_int_equal(json_get_strv(o, "l", &l), 0);
        assert_int_equal(strv_length(l), 2);
        assert_string_equal(l[1], "y");
        assert_int_equal(json_get_int(sub, "i", &i), -EBADMSG);
        assert_int_equal(json_get_int(NULL, "i", &i), -EBADMSG);
}

static void adds_what_it_is_given(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        char *strings[] = {(char *) "a", (char *) "b", NULL};

        assert_int_equal(json_add_string(o, "s", "x"), 0);
        assert_int_equal(json_add_string(o, "none", NULL), 0);
        assert_int_equal(json_add_int(o, "i", INT64_MIN), 0);
        assert_int_equal(json_add_size(o, "u", UINT64_MAX), 0);
        assert_int_equal(json_add_bool(o, "b", false), 0);
        assert_int_equal(json_add_double(o, "d", 0.5), 0);
        assert_int_equal(json_add_double(o, "fraction", 0.9), 0);
        assert_int_equal(json_add_double(o, "inf", INFINITY), -ERANGE);
        assert_int_equal(json_add_double(o, "nan", NAN), -ERANGE);
        assert_int_equal(json_add_strv(o, "l", strings), 0);
        assert_int_equal(json_add_strv(o, "e", NULL), 0);
        assert_int_equal(json_add(o, "x", NULL), -ENOMEM);
        assert_string_equal(
                json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN),
                "{\"s\":\"x\",\"i\":-9223372036854775808,\"u\":9223372036854775807,\"b\":false,\"d\":0.5,"
                "\"fraction\":0.9,\"l\":[\"a\",\"b\"],\"e\":[]}");
}

static void paths_keep_their_bytes(_unused_ void **state)
{
        static const char *const paths[] = {"/a/b", "/with \"quotes\"\n", "/\xc3\xa9", "/\xff\xfe/x",
                                            "/\x01\x7f"};

        for (size_t i = 0; i < ELEMENTSOF(paths); i++) {
                _cleanup_json_ struct json_object *o = json_object_new_object(), *again = NULL;
                _cleanup_free_ char *path = NULL;
                const char *text;

                assert_int_equal(json_add_path(o, "p", paths[i]), 0);
                text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
                again = parse(text);
                assert_int_equal(json_get_path(again, "p", &path), 0);
                assert_string_equal(path, paths[i]);
                assert_int_equal(json_object_object_get_ex(again, "pBytes", NULL),
                                 !utf8_is_valid(paths[i], strlen(paths[i])));
        }
}

static void refuses_bad_path_bytes(_unused_ void **state)
{
        static const char *const bad[] = {
                "{\"p\":1}",
                "{\"p\":\"/a\",\"pBytes\":1}",
                "{\"pBytes\":\"!!!!\"}",
                "{\"pBytes\":\"AA==\"}",
                "{\"p\":\"/a\",\"pBytes\":\"YQ\"}",
                "{\"pBytes\":\"YQ==YQ==\"}",
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_json_ struct json_object *o = parse(bad[i]);
                char *path = NULL;

                if (json_get_path(o, "p", &path) != -EBADMSG)
                        fail_msg("accepted: %s", bad[i]);
                assert_null(path);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(accepts_values),
                cmocka_unit_test(refuses_what_is_no_json),
                cmocka_unit_test(refuses_what_parsers_differ_about),
                cmocka_unit_test(refuses_bytes_that_are_no_utf8),
                cmocka_unit_test(bounds_nesting),
                cmocka_unit_test(bounds_what_a_text_costs),
                cmocka_unit_test(refuses_each_truncation),
                cmocka_unit_test(getters_do_not_coerce),
                cmocka_unit_test(adds_what_it_is_given),
                cmocka_unit_test(paths_keep_their_bytes),
                cmocka_unit_test(refuses_bad_path_bytes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
