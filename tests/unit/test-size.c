#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/size.h"

/* No parser takes these, whatever it parses. */
static const char *const never[] = {"",     " ",   "-1",  "+1", " 1",       "1 ",  "1\n",
                                    "0x10", "1e3", "1,5", "x",  "\xd9\xa1", "--1", "nan"};

static void test_u64(_unused_ void **state)
{
        uint64_t v = 7;
        size_t i;

        for (i = 0; i < ELEMENTSOF(never); i++)
                assert_int_equal(parse_u64(never[i], &v), -EINVAL);
        assert_int_equal(parse_u64("1.0", &v), -EINVAL);
        assert_int_equal(parse_u64("1K", &v), -EINVAL);
        assert_int_equal(parse_u64("18446744073709551616", &v), -ERANGE);
        assert_int_equal(parse_u64("99999999999999999999999999999999", &v), -ERANGE);
        /* Malformed, however large. */
        assert_int_equal(parse_u64("99999999999999999999999999999999x", &v), -EINVAL);
        assert_int_equal(v, 7);

        assert_int_equal(parse_u64("0", &v), 0);
        assert_int_equal(v, 0);
        assert_int_equal(parse_u64("007", &v), 0);
        assert_int_equal(v, 7);
        assert_int_equal(parse_u64("18446744073709551615", &v), 0);
        assert_true(v == UINT64_MAX);
}

static void test_u64_range(_unused_ void **state)
{
        uint64_t v = 0;

        assert_int_equal(parse_u64_range("1", 1, 64, &v), 0);
        assert_int_equal(v, 1);
        assert_int_equal(parse_u64_range("64", 1, 64, &v), 0);
        assert_int_equal(v, 64);
        assert_int_equal(parse_u64_range("0", 1, 64, &v), -ERANGE);
        assert_int_equal(parse_u64_range("65", 1, 64, &v), -ERANGE);
        assert_int_equal(parse_u64_range("", 0, 64, &v), -EINVAL);
        assert_int_equal(v, 64);
}

static void test_size(_unused_ void **state)
{
        static const struct {
                const char *text;
                uint64_t value;
        } good[] = {
                {"0", 0},
                {"512", 512},
                {"512B", 512},
                {"1K", KIB(1)},
                {"1KiB", KIB(1)},
                {"512MiB", MIB(512)},
                {"512M", MIB(512)},
                {"32GiB", GIB(32)},
                {"32G", GIB(32)},
                {"2T", GIB(2048)},
                {"2TiB", GIB(2048)},
                {"18446744073709551615", UINT64_MAX},
                {"16777215TiB", UINT64_MAX - GIB(1024) + 1},
        };
        static const char *const bad[] = {
                "1k",  "1kib",  "1KB",  "1MB",   "1Ki", "1 GiB", "1.5GiB",
                "GiB", "1GiBB", "1PiB", "1GiB ", "1Gi", "1b",    "18446744073709551616x"};
        static const char *const large[] = {"18446744073709551616", "16777216TiB", "99999999999999999999GiB",
                                            "18014398509481984K"};
        uint64_t v = 7;
        size_t i;

        for (i = 0; i < ELEMENTSOF(never); i++)
                assert_int_equal(parse_size(never[i], &v), -EINVAL);
        for (i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(parse_size(bad[i], &v), -EINVAL);
        for (i = 0; i < ELEMENTSOF(large); i++)
                assert_int_equal(parse_size(large[i], &v), -ERANGE);
        assert_int_equal(v, 7);
        for (i = 0; i < ELEMENTSOF(good); i++) {
                assert_int_equal(parse_size(good[i].text, &v), 0);
                assert_true(v == good[i].value);
        }
}

static void test_fraction(_unused_ void **state)
{
        static const char *const bad[] = {".5",   "1.", ".", "0..5", "0.5.5", "0.1234567890123456",
                                          "0.5x", "inf"};
        static const char *const out[] = {"0", "0.0", "1.1", "2", "1.000000001", "99999999999999999999"};
        double v = 7;
        size_t i;

        for (i = 0; i < ELEMENTSOF(never); i++)
                assert_int_equal(parse_fraction(never[i], &v), -EINVAL);
        for (i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(parse_fraction(bad[i], &v), -EINVAL);
        for (i = 0; i < ELEMENTSOF(out); i++)
                assert_int_equal(parse_fraction(out[i], &v), -ERANGE);
        assert_true(v == 7);
        /* The nearest double, as the compiler reads it. */
        assert_int_equal(parse_fraction("0.9", &v), 0);
        assert_true(v == 0.9);
        assert_int_equal(parse_fraction("0.05", &v), 0);
        assert_true(v == 0.05);
        assert_int_equal(parse_fraction("0.123456789012345", &v), 0);
        assert_true(v == 0.123456789012345);
        assert_int_equal(parse_fraction("1", &v), 0);
        assert_true(v == 1.0);
        assert_int_equal(parse_fraction("1.00", &v), 0);
        assert_true(v == 1.0);
}

static void test_seconds(_unused_ void **state)
{
        static const char *const bad[] = {".5", "1.", "1.0000000", "1s", "Infinity", "inf"};
        usec_t v = 7;
        size_t i;

        for (i = 0; i < ELEMENTSOF(never); i++)
                assert_int_equal(parse_seconds(never[i], &v), -EINVAL);
        for (i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(parse_seconds(bad[i], &v), -EINVAL);
        assert_int_equal(parse_seconds("18446744073710", &v), -ERANGE);
        assert_int_equal(parse_seconds("18446744073709.551615", &v), -ERANGE);
        assert_int_equal(v, 7);
        assert_int_equal(parse_seconds("3600", &v), 0);
        assert_int_equal(v, 3600 * USEC_PER_SEC);
        assert_int_equal(parse_seconds("2.5", &v), 0);
        assert_int_equal(v, 2500000);
        assert_int_equal(parse_seconds("0.000001", &v), 0);
        assert_int_equal(v, 1);
        assert_int_equal(parse_seconds("0", &v), 0);
        assert_int_equal(v, 0);
        assert_int_equal(parse_seconds("infinity", &v), 0);
        assert_true(v == USEC_INFINITY);
        assert_int_equal(parse_seconds("18446744073709.551614", &v), 0);
        assert_true(v == USEC_INFINITY - 1);
}

static void test_boolean(_unused_ void **state)
{
        static const char *const yes[] = {"yes", "true", "on", "1", "Yes", "TRUE"};
        static const char *const no[] = {"no", "false", "off", "0", "No"};
        static const char *const bad[] = {"", "2", "y", "yes ", " no", "00", "enable"};
        size_t i;

        for (i = 0; i < ELEMENTSOF(yes); i++)
                assert_int_equal(parse_boolean(yes[i]), 1);
        for (i = 0; i < ELEMENTSOF(no); i++)
                assert_int_equal(parse_boolean(no[i]), 0);
        for (i = 0; i < ELEMENTSOF(bad); i++)
                assert_int_equal(parse_boolean(bad[i]), -EINVAL);
}

static void test_mode(_unused_ void **state)
{
        unsigned mode = 7;

        assert_int_equal(parse_mode("", &mode), -EINVAL);
        assert_int_equal(parse_mode("8", &mode), -EINVAL);
        assert_int_equal(parse_mode("0o400", &mode), -EINVAL);
        assert_int_equal(parse_mode("u=r", &mode), -EINVAL);
        assert_int_equal(parse_mode("-400", &mode), -EINVAL);
        assert_int_equal(parse_mode("1000", &mode), -ERANGE);
        assert_int_equal(parse_mode("4755", &mode), -ERANGE);
        assert_int_equal(parse_mode("7777777777777777777777777", &mode), -ERANGE);
        /* What would be small again after an overflow of 32 bits. */
        assert_int_equal(parse_mode("40000000400", &mode), -ERANGE);
        assert_int_equal(parse_mode("99", &mode), -EINVAL);
        assert_int_equal(mode, 7);
        assert_int_equal(parse_mode("0440", &mode), 0);
        assert_int_equal(mode, 0440);
        assert_int_equal(parse_mode("777", &mode), 0);
        assert_int_equal(mode, 0777);
        assert_int_equal(parse_mode("0", &mode), 0);
        assert_int_equal(mode, 0);
}

static void test_format_size(_unused_ void **state)
{
        static const struct {
                uint64_t bytes;
                const char *text;
        } cases[] = {
                {0, "0 B"},
                {512, "512 B"},
                {1023, "1023 B"},
                {1024, "1.0 KiB"},
                {KIB(1024) - 1, "1.0 MiB"},
                {MIB(1) + KIB(512), "1.5 MiB"},
                {GIB(1) + MIB(512), "1.5 GiB"},
                {GIB(1023), "1023.0 GiB"},
                {GIB(2048), "2.0 TiB"},
                {UINT64_MAX, "16.0 EiB"},
        };
        char buffer[SIZE_TEXT_MAX];
        size_t i;

        for (i = 0; i < ELEMENTSOF(cases); i++)
                assert_string_equal(format_size(buffer, cases[i].bytes), cases[i].text);
}

static void test_format_timespan(_unused_ void **state)
{
        static const struct {
                usec_t t;
                const char *text;
        } cases[] = {
                {0, "0us"},
                {999, "999us"},
                {15 * USEC_PER_MSEC, "15ms"},
                {USEC_PER_SEC - 1, "999ms"},
                {1200 * USEC_PER_MSEC, "1.2s"},
                {3 * USEC_PER_SEC, "3s"},
                {60 * USEC_PER_SEC - 1, "59.9s"},
                {60 * USEC_PER_SEC, "1min"},
                {90 * USEC_PER_SEC, "1min 30s"},
                {7380 * USEC_PER_SEC, "2h 3min"},
                {7200 * USEC_PER_SEC, "2h"},
                {90000 * USEC_PER_SEC, "1d 1h"},
                {86400 * USEC_PER_SEC, "1d"},
                {USEC_INFINITY, "infinity"},
                {USEC_INFINITY - 1, "213503982d 8h"},
        };
        char buffer[TIMESPAN_TEXT_MAX];
        size_t i;

        for (i = 0; i < ELEMENTSOF(cases); i++)
                assert_string_equal(format_timespan(buffer, cases[i].t), cases[i].text);
}

static void test_saturating(_unused_ void **state)
{
        assert_true(add_saturating(1, 2) == 3);
        assert_true(add_saturating(UINT64_MAX, 0) == UINT64_MAX);
        assert_true(add_saturating(UINT64_MAX, 1) == UINT64_MAX);
        assert_true(add_saturating(UINT64_MAX - 1, 1) == UINT64_MAX);
        assert_true(mul_saturating(3, 4) == 12);
        assert_true(mul_saturating(UINT64_MAX, 0) == 0);
        assert_true(mul_saturating(UINT64_MAX, 2) == UINT64_MAX);
        assert_true(mul_saturating(GIB(4), GIB(4)) == UINT64_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_u64),
                cmocka_unit_test(test_u64_range),
                cmocka_unit_test(test_size),
                cmocka_unit_test(test_fraction),
                cmocka_unit_test(test_seconds),
                cmocka_unit_test(test_boolean),
                cmocka_unit_test(test_mode),
                cmocka_unit_test(test_format_size),
                cmocka_unit_test(test_format_timespan),
                cmocka_unit_test(test_saturating),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
