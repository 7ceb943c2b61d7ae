/* Tables: every field typed, what is wrong named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/text.h"
#include "wire/dispatch.h"

typedef struct Sample {
        char *name;
        char **list;
        OptionalInt count;
        OptionalDouble fraction;
        OptionalBool flag;
} Sample;

static const DispatchField fields[] = {
        {"name", dispatch_string, offsetof(Sample, name), json_type_string, DISPATCH_MANDATORY},
        {"list", dispatch_strv, offsetof(Sample, list), json_type_array, 0},
        {"count", dispatch_optional_int, offsetof(Sample, count), json_type_int, 0},
        {"fraction", dispatch_optional_double, offsetof(Sample, fraction), json_type_double, 0},
        {"flag", dispatch_optional_bool, offsetof(Sample, flag), json_type_boolean, 0},
        {NULL},
};

static void sample_done(Sample *s)
{
        free(s->name);
        s->list = strv_free(s->list);
        *s = (Sample){0};
}

static int dispatch(const char *text, Sample *ret, const char **ret_field, struct json_object **ret_object)
{
        assert_int_equal(json_parse_strict(text, strlen(text), ret_object, NULL), 0);
        return dispatch_object(*ret_object, fields, ret, ret_field);
}

static void fills_a_struct(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_(sample_done) Sample s = {0};
        const char *field = NULL;

        assert_int_equal(
                dispatch("{\"name\":\"x\",\"list\":[\"a\",\"b\"],\"count\":-3,\"fraction\":2,\"flag\":false}",
                         &s, &field, &o),
                0);
        assert_null(field);
        assert_string_equal(s.name, "x");
        assert_int_equal(strv_length(s.list), 2);
        assert_true(s.count.set && s.count.value == -3);
        assert_true(s.fraction.set && s.fraction.value == 2.0);
        assert_true(s.flag.set && !s.flag.value);
}

static void absent_and_null_are_the_same(_unused_ void **state)
{
        static const char *const texts[] = {
                "{\"name\":\"\"}",
                "{\"name\":\"\",\"list\":null,\"count\":null,\"fraction\":null,\"flag\":null}",
        };

        for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
                _cleanup_json_ struct json_object *o = NULL;
                _cleanup_(sample_done) Sample s = {0};

                assert_int_equal(dispatch(texts[i], &s, NULL, &o), 0);
                assert_string_equal(s.name, "");
                assert_null(s.list);
                assert_false(s.count.set || s.fraction.set || s.flag.set);
        }
}

static void an_empty_array_is_not_an_absent_one(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_(sample_done) Sample s = {0};

        assert_int_equal(dispatch("{\"name\":\"x\",\"list\":[]}", &s, NULL, &o), 0);
        assert_non_null(s.list);
        assert_null(s.list[0]);
}

static void names_what_is_wrong(_unused_ void **state)
{
        static const struct {
                const char *text, *field;
        } cases[] = {
                {"{}", "name"},
                {"{\"name\":null}", "name"},
                {"{\"name\":1}", "name"},
                {"{\"name\":[\"x\"]}", "name"},
                {"{\"name\":\"x\",\"Name\":\"y\"}", "Name"},
                {"{\"name\":\"x\",\"unknown\":null}", "unknown"},
                {"{\"name\":\"x\",\"list\":\"a\"}", "list"},
                {"{\"name\":\"x\",\"list\":[1]}", "list"},
                {"{\"name\":\"x\",\"list\":[null]}", "list"},
                {"{\"name\":\"x\",\"list\":[\"a\",[]]}", "list"},
                {"{\"name\":\"x\",\"count\":\"1\"}", "count"},
                {"{\"name\":\"x\",\"count\":1.0}", "count"},
                {"{\"name\":\"x\",\"count\":true}", "count"},
                {"{\"name\":\"x\",\"fraction\":\"0.5\"}", "fraction"},
                {"{\"name\":\"x\",\"flag\":0}", "flag"},
                {"{\"name\":\"x\",\"flag\":\"true\"}", "flag"},
                {"[]", "parameters"},
                {"7", "parameters"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_json_ struct json_object *o = NULL;
                _cleanup_(sample_done) Sample s = {0};
                const char *field = NULL;

                if (dispatch(cases[i].text, &s, &field, &o) != -EINVAL)
                        fail_msg("accepted: %s", cases[i].text);
                assert_string_equal(field, cases[i].field);
        }
}

static void no_object_has_no_members(_unused_ void **state)
{
        static const DispatchField none[] = {{NULL}};
        _cleanup_(sample_done) Sample s = {0};
        const char *field = NULL;

        assert_int_equal(dispatch_object(NULL, none, &s, &field), 0);
        assert_int_equal(dispatch_object(NULL, fields, &s, &field), -EINVAL);
        assert_string_equal(field, "name");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(fills_a_struct),
                cmocka_unit_test(absent_and_null_are_the_same),
                cmocka_unit_test(names_what_is_wrong),
                cmocka_unit_test(an_empty_array_is_not_an_absent_one),
                cmocka_unit_test(no_object_has_no_members),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
