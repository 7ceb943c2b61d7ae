/* The command line: kinds of options, their bounds, names, suggestions; and the table of verbs itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "ctl/options.h"
#include "ctl/verb.h"

/* Parses words after a verb; the vector must stay for command. */
static int parse(const char *verb, const char *const *words, Arguments *a, char **error)
{
        const Verb *v = verb_find(verb);
        size_t n = 0;

        assert_non_null(v);
        while (words[n])
                n++;
        return arguments_parse(v, (int) n, (char *const *) words, a, error);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void refuses(const char *verb, const char *const *words, const char *expected)
{
        _cleanup_arguments_ Arguments a = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(parse(verb, words, &a, &error), -EINVAL);
        assert_non_null(error);
        if (!strstr(error, expected))
                fail_msg("'%s' does not hold '%s'", error, expected);
}

static void test_kinds(_unused_ void **state)
{
        const char *const *words =
                WORDS("/model", "--name", "qwen", "--workers=4", "--chunk-size", "1048576", "--force",
                      "--max-memory-bytes=32GiB", "--reserve-bytes", "512MiB", "--idle-ttl=2.5",
                      "--max-memory-fraction", "0.5", "--pattern", "*.json", "--pattern=*.bin", "--view",
                      "/a//b/../c", "--mode=0440", "-q", "--json");
        _cleanup_arguments_ Arguments a = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(parse("start", words, &a, &error), 0);
        assert_string_equal(a.name, "qwen");
        assert_string_equal(a.positional[0], "/model");
        assert_null(a.positional[1]);
        assert_true(a.workers.set && a.workers.value == 4);
        assert_int_equal(a.chunk_size.value, 1048576);
        assert_int_equal(a.max_memory_bytes.value, GIB(32));
        assert_int_equal(a.reserve_bytes.value, MIB(512));
        assert_false(a.max_resident_bytes.set);
        assert_int_equal(a.idle_ttl.value, 2500000);
        assert_true(a.max_memory_fraction.set && a.max_memory_fraction.value == 0.5);
        assert_int_equal(strv_length(a.patterns), 2);
        assert_string_equal(a.patterns[1], "*.bin");
        assert_null(a.excludes);
        assert_string_equal(a.view, "/a/c");
        assert_int_equal(a.mode.value, 0440);
        assert_true(a.force && a.quiet && a.json && !a.no_wait);
}

static void test_values_that_are_refused(_unused_ void **state)
{
        static const char *const sizes[] = {"64MiB",  "-1",    "0",     "4095", "1073741825",          "1e6",
                                            "0x1000", " 4096", "+4096", "",     "99999999999999999999"};
        static const char *const bytes[] = {"-1", "1XiB", "1.5GiB", "9223372036854775808", "99999999TiB", ""};

        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                refuses("start", WORDS("--chunk-size", sizes[i]), "--chunk-size");
        for (size_t i = 0; i < ELEMENTSOF(bytes); i++)
                refuses("start", WORDS("--max-memory-bytes", bytes[i]), "--max-memory-bytes");
        refuses("start", WORDS("--workers=257"), "between 1 and 256");
        refuses("start", WORDS("--mode=0777"), "0400, 0440 or 0444");
        refuses("start", WORDS("--max-memory-fraction=1.5"), "fraction");
        refuses("start", WORDS("--idle-ttl=soon"), "seconds");
        refuses("start", WORDS("--view="), "--view");
        refuses("start", WORDS("--view"), "needs a value");
        refuses("start", WORDS("--force=yes"), "takes no value");
        refuses("start", WORDS("--name", ""), "--name");
        /* Nothing of a value reaches the terminal as it is. */
        refuses("start", WORDS("--workers=\033[2J"), "\\x1b");
}

static void test_names(_unused_ void **state)
{
        _cleanup_arguments_ Arguments a = {0}, b = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(parse("status", WORDS("qwen", "--json"), &a, &error), 0);
        assert_string_equal(a.name, "qwen");
        assert_int_equal(strv_length(a.positional), 0);
        assert_int_equal(parse("status", WORDS("--name=qwen"), &b, &error), 0);
        assert_string_equal(b.name, "qwen");
        refuses("status", WORDS("--json"), "NAME");
        refuses("status", WORDS("a", "b"), "'b'");
        refuses("status", WORDS("--name=a", "b"), "'b'");
        refuses("status", WORDS("../a"), "'../a'");
        refuses("start", WORDS("/m", "--name", "-x"), "'-x'");
        refuses("start", WORDS("/m", "/n", "--name", "x"), "'/n'");
        refuses("start", WORDS("", "--name", "x"), "MODEL_DIR");
}

static void test_unknown(_unused_ void **state)
{
        refuses("start", WORDS("--wrkers=2"), "did you mean '--workers'");
        refuses("start", WORDS("--nmae", "x"), "did you mean '--name'");
        refuses("start", WORDS("--max-mem"), "did you mean '--max-memory-");
        refuses("start", WORDS("--sytem"), "did you mean '--system'");
        refuses("list", WORDS("--utterly-different"), "unknown option '--utterly-different'");
        refuses("list", WORDS("-x"), "'-x'");
        refuses("list", WORDS("-jh"), "'-jh'");
        assert_string_equal(verb_closest("strat"), "start");
        assert_string_equal(verb_closest("stauts"), "status");
        assert_null(verb_closest("xyzzy"));
        assert_null(verb_closest(""));
}

static void test_run(_unused_ void **state)
{
        const char *const *words = WORDS("--socket", "/s", "qwen", "--", "vllm", "--help", "--", "{model}");
        _cleanup_arguments_ Arguments a = {0}, b = {0}, c = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(parse("run", words, &a, &error), 0);
        assert_string_equal(a.name, "qwen");
        assert_string_equal(a.socket, "/s");
        assert_ptr_equal(a.command[0], words[4]);
        assert_ptr_equal(a.command[2], words[6]);
        assert_false(a.help);
        /* The separator may be left out; a second one is the command's. */
        assert_int_equal(parse("run", WORDS("qwen", "true"), &b, &error), 0);
        assert_string_equal(b.command[0], "true");
        assert_int_equal(parse("run", WORDS("qwen", "--", "--", "x"), &c, &error), 0);
        assert_string_equal(c.command[0], "--");
        refuses("run", WORDS("qwen"), "COMMAND");
        refuses("run", WORDS("qwen", "--"), "COMMAND");
        refuses("run", WORDS("--json", "qwen", "--", "true"), "--json");
        refuses("run", WORDS("--", "../x", "true"), "'../x'");
}

static void test_global(_unused_ void **state)
{
        static const char *const argv[] = {"iloader", "--base-dir=/b", "--user", "status", "--socket", "/s",
                                           NULL};
        _cleanup_arguments_ Arguments a = {0}, b = {0};
        _cleanup_free_ char *error = NULL;
        int next = 0;

        assert_int_equal(arguments_parse_global(6, (char *const *) argv, &a, &next, &error), 0);
        assert_int_equal(next, 3);
        assert_string_equal(a.base_dir, "/b");
        assert_true(a.user);
        assert_null(a.socket);
        assert_int_equal(parse("status", WORDS("--system", "q", "--base-dir", "/x"), &b, &error), 0);
        assert_true(b.system);
        assert_string_equal(b.base_dir, "/x");
}

static void test_everything_after_two_dashes_is_an_operand(_unused_ void **state)
{
        _cleanup_arguments_ Arguments a = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(parse("inspect", WORDS("--json", "--", "--odd"), &a, &error), 0);
        assert_string_equal(a.positional[0], "--odd");
}

static void check_table(const Verb *v, const OptionSpec *table)
{
        for (; table && table->name; table++) {
                assert_non_null(table->help);
                assert_true(table->kind < _OPTION_KIND_MAX);
                assert_true((table->kind == OPTION_FLAG) == (table->argument == NULL));
                for (const OptionSpec *o = table + 1; o->name; o++) {
                        assert_string_not_equal(o->name, table->name);
                        if (table->letter)
                                assert_int_not_equal(o->letter, table->letter);
                }
                for (const OptionSpec *o = global_options; v && o->name; o++)
                        assert_string_not_equal(o->name, table->name);
        }
}

static void test_the_table_is_sound(_unused_ void **state)
{
        check_table(NULL, global_options);
        for (const Verb *v = verb_table; v->name; v++) {
                assert_non_null(v->summary);
                assert_non_null(v->synopsis);
                assert_non_null(v->run);
                assert_ptr_equal(verb_find(v->name), v);
                assert_true(v->min_operands <= v->max_operands);
                check_table(v, v->options);
        }
}

/* The part of the manual that begins with the verb's heading and ends at the next. */
static char *manual_section(const char *manual, const char *verb)
{
        _cleanup_free_ char *heading = NULL;
        const char *begin, *end;

        assert_int_equal(text_format(&heading, "\n## %s ", verb), 0);
        begin = strstr(manual, heading);
        if (!begin)
                return NULL;
        begin += strlen(heading) - 1;
        end = strstr(begin, "\n#");
        return end ? strndup(begin, (size_t) (end - begin)) : strdup(begin);
}

/* The rest of the heading, which has no markup. */
static void expect_synopsis(const Verb *v, const char *section)
{
        _cleanup_free_ char *expected = NULL, *found = strndup(section, strcspn(section, "\n"));

        if (!found) {
                fail();
                return;
        }
        assert_int_equal(text_format(&expected, " %s", v->synopsis), 0);
        /* U+2026 is three bytes of UTF-8, as three full stops are. */
        for (char *c; (c = strstr(expected, "…"));)
                c[0] = c[1] = c[2] = '.';
        assert_string_equal(found, expected);
}

static void expect_options(const char *where, const char *text, const OptionSpec *table)
{
        size_t n = 0, documented = 0;

        for (; table && table->name; table++, n++) {
                _cleanup_free_ char *expected = NULL;

                if (table->argument)
                        assert_int_equal(text_format(&expected, "*--%s* _%s_", table->name, table->argument),
                                         0);
                else
                        assert_int_equal(text_format(&expected, "*--%s*", table->name), 0);
                if (!strstr(text, expected))
                        fail_msg("the manual's part on %s lacks %s", where, expected);
        }
        /* Nothing that is not there: an option's entry is a line of its own. */
        for (const char *p = text; (p = strstr(p, "\n*--")); p++)
                documented++;
        for (const char *p = text; (p = strstr(p, "\n*-")); p++)
                if (p[3] != '-')
                        documented++;
        if (documented != n)
                fail_msg("the manual's part on %s has %zu options, the table %zu", where, documented, n);
}

static void test_the_manual_has_every_verb_and_option(_unused_ void **state)
{
        _cleanup_free_ char *manual = NULL, *common = NULL;
        const char *begin;

        if (fd_read_file_at(AT_FDCWD, "man/iloader.1.scd", MIB(1), &manual, NULL) < 0)
                skip();
        begin = strstr(manual, "\n# OPTIONS");
        assert_non_null(begin);
        common = strndup(begin + 1, (size_t) (strstr(begin + 1, "\n# ") - begin - 1));
        if (!common)
                return;
        expect_options("all verbs", common, global_options);
        for (const Verb *v = verb_table; v->name; v++) {
                _cleanup_free_ char *section = manual_section(manual, v->name);

                if (!section) {
                        fail_msg("the manual lacks a part on %s", v->name);
                        return;
                }
                expect_synopsis(v, section);
                if (streq(v->name, "attach"))
                        continue; /* refers to start */
                expect_options(v->name, section, v->options);
        }
}

static void test_dump(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = NULL;
        struct json_object *verbs = NULL;
        size_t n = 0;

        while (verb_table[n].name)
                n++;
        assert_int_equal(verb_table_to_json(&o), 0);
        assert_int_equal(json_get_array(o, "verbs", &verbs), 0);
        assert_int_equal(json_object_array_length(verbs), n);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_kinds),
                cmocka_unit_test(test_values_that_are_refused),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_unknown),
                cmocka_unit_test(test_run),
                cmocka_unit_test(test_global),
                cmocka_unit_test(test_everything_after_two_dashes_is_an_operand),
                cmocka_unit_test(test_the_table_is_sound),
                cmocka_unit_test(test_the_manual_has_every_verb_and_option),
                cmocka_unit_test(test_dump),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
