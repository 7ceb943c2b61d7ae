#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/text.h"

static void test_utf8_valid(_unused_ void **state)
{
        static const char *const good[] = {
                "",
                "plain",
                "\xc3\xa9",
                "\xe2\x82\xac",
                "\xf0\x9f\x90\x8d",
                "\xed\x9f\xbf",     /* U+D7FF, the last before the surrogates */
                "\xee\x80\x80",     /* U+E000, the first after them */
                "\xf4\x8f\xbf\xbf", /* U+10FFFF */
                "\xc2\x80",         /* the smallest of two bytes */
                "\xe0\xa0\x80",     /* … of three */
                "\xf0\x90\x80\x80", /* … of four */
        };
        size_t i;

        for (i = 0; i < ELEMENTSOF(good); i++)
                assert_true(utf8_is_valid(good[i], strlen(good[i])));
}

static void test_utf8_invalid(_unused_ void **state)
{
        static const char *const bad[] = {
                "\x80",             /* a continuation alone */
                "a\xff",            /* never a byte of UTF-8 */
                "\xc3",             /* cut */
                "\xe2\x82",         /* cut */
                "\xf0\x9f\x90",     /* cut */
                "\xc0\xaf",         /* overlong '/' */
                "\xc1\xbf",         /* overlong */
                "\xe0\x9f\xbf",     /* overlong */
                "\xf0\x8f\xbf\xbf", /* overlong */
                "\xed\xa0\x80",     /* a surrogate */
                "\xed\xbf\xbf",     /* a surrogate */
                "\xf4\x90\x80\x80", /* past U+10FFFF */
                "\xf5\x80\x80\x80",
                "\xc3(", /* no continuation */
                "\xe2(\xac",
                "\xf0\x9f(\x8d",
        };
        size_t i;

        for (i = 0; i < ELEMENTSOF(bad); i++)
                assert_false(utf8_is_valid(bad[i], strlen(bad[i])));
        /* NUL is no character of any text here. */
        assert_false(utf8_is_valid("a\0b", 3));
        /* Only what counts is looked at. */
        assert_true(utf8_is_valid("ab\xff", 2));
}

static void test_utf8_approximate(_unused_ void **state)
{
        _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL;

        assert_int_equal(utf8_approximate("a\xff\xc3\xa9\xe2\x82", &a), 0);
        assert_string_equal(a, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd");
        assert_int_equal(utf8_approximate("", &b), 0);
        assert_string_equal(b, "");
        assert_int_equal(utf8_approximate("\xff\xff\xff\xff", &c), 0);
        assert_int_equal(strlen(c), 12);
        assert_true(utf8_is_valid(c, strlen(c)));
}

/* The vectors of RFC 4648, section 10. */
static void test_base64_vectors(_unused_ void **state)
{
        static const struct {
                const char *plain, *encoded;
        } vectors[] = {
                {"", ""},
                {"f", "Zg=="},
                {"fo", "Zm8="},
                {"foo", "Zm9v"},
                {"foob", "Zm9vYg=="},
                {"fooba", "Zm9vYmE="},
                {"foobar", "Zm9vYmFy"},
                {"\xfb\xef\xff", "++//"},
        };
        size_t i;

        for (i = 0; i < ELEMENTSOF(vectors); i++) {
                _cleanup_free_ char *encoded = NULL, *plain = NULL;

                assert_int_equal(base64_encode(vectors[i].plain, strlen(vectors[i].plain), &encoded), 0);
                assert_string_equal(encoded, vectors[i].encoded);
                assert_int_equal(base64_decode_string(vectors[i].encoded, &plain), 0);
                assert_string_equal(plain, vectors[i].plain);
        }
}

static void test_base64_refused(_unused_ void **state)
{
        static const char *const bad[] = {
                "Z",    "Zg",     "Zg=",   "Zg===", "=",    "====",    "A===",     "Zg==Zg==",
                "Zm 9", "Zm9v\n", "Zm9v ", "Zm9-",  "Zm9_", "Z=g=",    "=Zg=",     "Zh==",
                "Zm9=", "AA==",   "AAAA",  "Zm8A",  "ZgBm", "Zm9vYmF", "Zm9v====", "Zm\xc3\xa9",
        };
        size_t i;

        for (i = 0; i < ELEMENTSOF(bad); i++) {
                char *plain = (char *) "untouched";

                assert_int_equal(base64_decode_string(bad[i], &plain), -EINVAL);
                assert_string_equal(plain, "untouched");
        }
}

static void test_base64_all_bytes(_unused_ void **state)
{
        unsigned char bytes[256] = {0};
        _cleanup_free_ char *encoded = NULL, *plain = NULL;
        size_t i;

        for (i = 0; i < 255; i++)
                bytes[i] = (unsigned char) (i + 1);
        assert_int_equal(base64_encode(bytes, 255, &encoded), 0);
        assert_int_equal(base64_decode_string(encoded, &plain), 0);
        assert_memory_equal(plain, bytes, 256);
}

static void test_hex(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL, *empty = NULL;

        assert_int_equal(hex_encode("\x00\x0f\xa5\xff", 4, &text), 0);
        assert_string_equal(text, "000fa5ff");
        assert_int_equal(hex_encode("", 0, &empty), 0);
        assert_string_equal(empty, "");
}

static void test_strv(_unused_ void **state)
{
        _cleanup_strv_ char **l = NULL, **copy = NULL, **none = NULL;
        _cleanup_free_ char *joined = NULL, *nothing = NULL;

        assert_int_equal(strv_length(NULL), 0);
        assert_int_equal(strv_append(&l, "one"), 0);
        assert_int_equal(strv_append(&l, ""), 0);
        assert_int_equal(strv_append(&l, "three"), 0);
        assert_int_equal(strv_length(l), 3);
        assert_null(l[3]);

        assert_int_equal(strv_copy(l, &copy), 0);
        assert_true(strv_equal(l, copy));
        assert_ptr_not_equal(l[0], copy[0]);
        copy[0][0] = 'O';
        assert_false(strv_equal(l, copy));

        assert_int_equal(strv_copy(NULL, &none), 0);
        assert_non_null(none);
        assert_int_equal(strv_length(none), 0);
        assert_true(strv_equal(none, NULL));
        assert_false(strv_equal(none, l));

        assert_int_equal(strv_join(l, ", ", &joined), 0);
        assert_string_equal(joined, "one, , three");
        assert_int_equal(strv_join(NULL, ", ", &nothing), 0);
        assert_string_equal(nothing, "");
        assert_null(strv_free(NULL));
}

static void test_compare(_unused_ void **state)
{
        assert_true(streq_ptr(NULL, NULL));
        assert_false(streq_ptr("", NULL));
        assert_false(streq_ptr(NULL, ""));
        assert_true(streq_ptr("x", "x"));
        assert_false(streq_ptr("x", "y"));
        assert_string_equal(startswith("Uid:\t1", "Uid:"), "\t1");
        assert_string_equal(startswith("x", ""), "x");
        assert_null(startswith("Ui", "Uid:"));
}

static void test_format(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL;

        assert_int_equal(text_format(&text, "%s-%d", "a", 1), 0);
        assert_string_equal(text, "a-1");
        /* The old text may be an argument. */
        assert_int_equal(text_format(&text, "%s+%s", text, text), 0);
        assert_string_equal(text, "a-1+a-1");
}

static void test_distance(_unused_ void **state)
{
        char long_word[128];

        assert_int_equal(text_distance("", ""), 0);
        assert_int_equal(text_distance("source", "Source"), 0);
        assert_int_equal(text_distance("", "abc"), 3);
        assert_int_equal(text_distance("kitten", "sitting"), 3);
        assert_int_equal(text_distance("patern", "pattern"), 1);
        assert_int_equal(text_distance("stauts", "status"), 1);
        assert_int_equal(text_distance("ca", "abc"), 3);
        memset(long_word, 'x', sizeof(long_word) - 1);
        long_word[sizeof(long_word) - 1] = '\0';
        assert_true(text_distance(long_word, "x") == SIZE_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_utf8_valid),
                cmocka_unit_test(test_utf8_invalid),
                cmocka_unit_test(test_utf8_approximate),
                cmocka_unit_test(test_base64_vectors),
                cmocka_unit_test(test_base64_refused),
                cmocka_unit_test(test_base64_all_bytes),
                cmocka_unit_test(test_hex),
                cmocka_unit_test(test_strv),
                cmocka_unit_test(test_compare),
                cmocka_unit_test(test_format),
                cmocka_unit_test(test_distance),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
