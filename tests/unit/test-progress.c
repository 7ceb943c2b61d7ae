/* The progress line: what it says, that it fits, and when it is shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "ctl/progress.h"

static void test_line(_unused_ void **state)
{
        char line[256];

        progress_format(line, sizeof(line), 100, "qwen", GIB(1), GIB(4), (double) GIB(1));
        assert_non_null(startswith(line, "qwen ["));
        assert_non_null(strstr(line, " 25%"));
        assert_non_null(strstr(line, "1.0 GiB of 4.0 GiB"));
        assert_non_null(strstr(line, "1.0 GiB/s"));
        assert_non_null(strstr(line, "left"));
        assert_non_null(strstr(line, "##"));
        assert_non_null(strstr(line, ".."));
}

static void test_unknown_rate(_unused_ void **state)
{
        char line[256];

        progress_format(line, sizeof(line), 100, "qwen", 0, GIB(4), 0);
        assert_null(strstr(line, "/s"));
        assert_null(strstr(line, "left"));
        assert_null(strchr(line, '#'));
}

static void test_the_end(_unused_ void **state)
{
        char line[256];

        progress_format(line, sizeof(line), 100, "qwen", GIB(4), GIB(4), 1e9);
        assert_non_null(strstr(line, "100%"));
        assert_null(strstr(line, "left"));
        /* More than all, and nothing at all, are no catastrophe. */
        progress_format(line, sizeof(line), 100, "qwen", GIB(5), GIB(4), 1e9);
        assert_non_null(strstr(line, "100%"));
        progress_format(line, sizeof(line), 100, "qwen", 0, 0, 1e9);
        assert_non_null(strstr(line, "100%"));
}

static void test_width(_unused_ void **state)
{
        char name[97], line[512];

        memset(name, 'n', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        for (size_t width = 1; width < 250; width++) {
                progress_format(line, sizeof(line), width, name, GIB(3), GIB(1000), 1.5);
                assert_true(strlen(line) <= width);
                progress_format(line, sizeof(line), width, "q", UINT64_MAX / 2, UINT64_MAX, 1e18);
                assert_true(strlen(line) <= width);
        }
}

static void test_lines_elsewhere(_unused_ void **state)
{
        char *text = NULL;
        size_t n = 0;
        FILE *f = open_memstream(&text, &n);
        Progress p;

        assert_non_null(f);
        p = (Progress){.file = f, .name = "qwen"};
        for (unsigned i = 0; i <= 200; i++)
                progress_update(&p, MIB(i), MIB(200), (usec_t) (i + 1) * 100 * USEC_PER_MSEC);
        progress_clear(&p);
        assert_int_equal(fclose(f), 0);
        assert_null(strchr(text, '\r'));
        assert_null(strchr(text, '\033'));
        /* Twenty seconds: a line each five. */
        n = 0;
        for (const char *c = text; (c = strchr(c, '\n')); c++)
                n++;
        assert_int_equal(n, 4);
        assert_non_null(strstr(text, "10.0 MiB/s"));
        free(text);
}

static void test_terminal(_unused_ void **state)
{
        char *text = NULL;
        size_t n = 0, draws = 0;
        FILE *f = open_memstream(&text, &n);
        Progress p;

        assert_non_null(f);
        p = (Progress){.file = f, .name = "qwen", .terminal = true};
        for (unsigned i = 0; i <= 1000; i++)
                progress_update(&p, MIB(i), MIB(1000), (usec_t) (i + 1) * USEC_PER_MSEC);
        progress_clear(&p);
        assert_int_equal(fclose(f), 0);
        for (const char *c = text; (c = strchr(c, '\r')); c++)
                draws++;
        /* One second, at most ten draws, and the end. */
        assert_true(draws >= 9 && draws <= 12);
        assert_null(strchr(text, '\n'));
        assert_string_equal(text + strlen(text) - 4, "\r\033[K");
        free(text);
}

static void test_quiet(_unused_ void **state)
{
        Progress p;

        progress_init(&p, "qwen", stderr, true);
        assert_null(p.file);
        progress_update(&p, 1, 2, USEC_PER_SEC);
        progress_clear(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_line),
                cmocka_unit_test(test_unknown_rate),
                cmocka_unit_test(test_the_end),
                cmocka_unit_test(test_width),
                cmocka_unit_test(test_lines_elsewhere),
                cmocka_unit_test(test_terminal),
                cmocka_unit_test(test_quiet),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
