#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/text.h"
#include "checkpoint/fingerprint.h"

#define LIST(...) ((char *const *) (const char *const[]){__VA_ARGS__ NULL})

/* Two files; every call makes them anew, so that a test can change one thing. */
typedef struct Case {
        const char *source;
        SelectionOptions options;
        char paths[2][16];
        SelectedFile files[2];
        Selection selection;
} Case;

static void case_make(Case *c)
{
        *c = (Case){.source = "/models/a", .paths = {"config.json", "model"}};
        for (size_t i = 0; i < 2; i++)
                c->files[i] = (SelectedFile){
                        .path = c->paths[i],
                        .identity =
                                {.size = 10 + i, .mtime_ns = -1, .ctime_ns = 7, .device = 3, .inode = 4 + i},
                };
        c->selection = (Selection){.files = c->files, .n_files = 2, .bytes = 21};
}

static void case_compute(const Case *c, char ret[static DIGEST_HEX_MAX])
{
        assert_int_equal(fingerprint_compute(c->source, &c->options, &c->selection, ret), 0);
        assert_int_equal(strlen(ret), 64);
        assert_int_equal(strspn(ret, "0123456789abcdef"), 64);
}

static void assert_same(const Case *a, const Case *b, bool same)
{
        char x[DIGEST_HEX_MAX], y[DIGEST_HEX_MAX];

        case_compute(a, x);
        case_compute(b, y);
        assert_int_equal(streq(x, y), same);
}

static void test_deterministic(_unused_ void **state)
{
        char hex[DIGEST_HEX_MAX];
        Case a, b;

        case_make(&a);
        case_make(&b);
        assert_same(&a, &b, true);
        /* A cache outlives the program's upgrade: what one version computed the next one must. */
        a.options.excludes = LIST("x", );
        case_compute(&a, hex);
        assert_string_equal(hex, "ab9d1191987acefbccb881429a1dfdf948275f5471ee2e6b5fbd623f17cacae1");
}

static void test_everything_counts(_unused_ void **state)
{
        Case a, b;

        case_make(&a);
#define assert_differs(change)                                                                               \
        do {                                                                                                 \
                case_make(&b);                                                                               \
                change;                                                                                      \
                assert_same(&a, &b, false);                                                                  \
        } while (0)
        assert_differs(b.source = "/models/b");
        assert_differs(b.files[1].identity.size++);
        assert_differs(b.files[1].identity.mtime_ns++);
        assert_differs(b.files[0].identity.ctime_ns++);
        assert_differs(b.files[0].identity.device++);
        assert_differs(b.files[1].identity.inode++);
        assert_differs(b.paths[1][0] = 'M');
        assert_differs(b.selection.n_files = 1);
        assert_differs(b.options.patterns = LIST("*.json", ));
        assert_differs(b.options.excludes = LIST());
        assert_differs(b.options.excludes = LIST("x", ));
}

static void test_selection_is_a_set(_unused_ void **state)
{
        Case a, b;

        case_make(&a);
        case_make(&b);
        a.options.patterns = LIST("b", "a", "b", );
        b.options.patterns = LIST("a", "b", );
        assert_same(&a, &b, true);
        b.options.patterns = LIST("ab", );
        assert_same(&a, &b, false);
        /* What selects is hashed, not how it was said; and the limit on files selects nothing. */
        b.options.patterns = a.options.patterns;
        b.options.excludes = (char *const *) selection_default_excludes;
        b.options.max_files = 5;
        assert_same(&a, &b, true);
        /* Patterns and exclusions don't run into one another. */
        a.options = (SelectionOptions){.patterns = LIST("a", ), .excludes = LIST("b", )};
        b.options = (SelectionOptions){.patterns = LIST("a", "b", ), .excludes = LIST()};
        assert_same(&a, &b, false);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_deterministic),
                cmocka_unit_test(test_everything_counts),
                cmocka_unit_test(test_selection_is_a_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
