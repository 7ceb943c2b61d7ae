/* Which manager a command line and an environment mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "ctl/base-directory.h"
#include "ctl/options.h"
#include "ctl/target.h"
#include "lib/endpoint.h"

#define SYSTEM "/run/iloader/io.iloader.Manager"

static int setup(_unused_ void **state)
{
        return setenv("ILOADER_BASE_DIR", "/b", 1) < 0 || unsetenv("ILOADER_SOCKET") < 0;
}

static void expect(const Arguments *a, bool admin, TargetUse use, const char *first, const char *second)
{
        _cleanup_targets_ Targets t = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(targets_resolve(a, admin, use, &t, &error), 0);
        assert_string_equal(t.items[0].socket, first);
        assert_int_equal(t.n, second ? 2 : 1);
        if (second)
                assert_string_equal(t.items[1].socket, second);
        for (size_t i = 0; i < t.n; i++)
                assert_true((t.items[i].scope == TARGET_SYSTEM) == (t.items[i].base == NULL));
}

static void test_defaults(_unused_ void **state)
{
        const Arguments none = {0};

        expect(&none, false, TARGET_READS, "/b/run/io.iloader.Manager", SYSTEM);
        expect(&none, true, TARGET_READS, SYSTEM, "/b/run/io.iloader.Manager");
        expect(&none, false, TARGET_CHANGES, "/b/run/io.iloader.Manager", NULL);
        expect(&none, true, TARGET_CHANGES, SYSTEM, NULL);
        expect(&none, false, TARGET_MAKES, "/b/run/io.iloader.Manager", NULL);
        expect(&none, true, TARGET_MAKES, SYSTEM, NULL);
}

static void test_what_is_named_is_meant(_unused_ void **state)
{
        expect(&(Arguments){.system = true}, false, TARGET_READS, SYSTEM, NULL);
        expect(&(Arguments){.user = true}, true, TARGET_READS, "/b/run/io.iloader.Manager", NULL);
        expect(&(Arguments){.base_dir = (char *) "/c"}, true, TARGET_READS, "/c/run/io.iloader.Manager",
               NULL);
        expect(&(Arguments){.socket = (char *) "/s"}, false, TARGET_READS, "/s", NULL);
        expect(&(Arguments){.socket = (char *) "/s", .base_dir = (char *) "/c"}, false, TARGET_MAKES, "/s",
               NULL);
        expect(&(Arguments){.socket = (char *) SYSTEM}, false, TARGET_READS, SYSTEM, NULL);
}

static void test_the_environment(_unused_ void **state)
{
        assert_int_equal(setenv("ILOADER_SOCKET", "/e", 1), 0);
        expect(&(Arguments){0}, false, TARGET_READS, "/e", NULL);
        expect(&(Arguments){0}, true, TARGET_CHANGES, "/e", NULL);
        expect(&(Arguments){.system = true}, false, TARGET_READS, SYSTEM, NULL);
        expect(&(Arguments){.base_dir = (char *) "/c"}, false, TARGET_READS, "/c/run/io.iloader.Manager",
               NULL);
        assert_int_equal(setenv("ILOADER_SOCKET", "", 1), 0);
        expect(&(Arguments){0}, false, TARGET_READS, "/b/run/io.iloader.Manager", SYSTEM);
}

static void refuses(const Arguments *a, const char *expected)
{
        _cleanup_targets_ Targets t = {0};
        _cleanup_free_ char *error = NULL;

        assert_int_equal(targets_resolve(a, false, TARGET_READS, &t, &error), -EINVAL);
        assert_non_null(strstr(error, expected));
        assert_int_equal(t.n, 0);
}

static void test_contradictions(_unused_ void **state)
{
        refuses(&(Arguments){.system = true, .user = true}, "--user");
        refuses(&(Arguments){.system = true, .socket = (char *) "/s"}, "--socket");
        refuses(&(Arguments){.system = true, .base_dir = (char *) "/s"}, "--base-dir");
        refuses(&(Arguments){.user = true, .socket = (char *) "/s"}, "--socket");
}

static void test_length(_unused_ void **state)
{
        char fits[ENDPOINT_SOCKET_MAX + 1], longer[ENDPOINT_SOCKET_MAX + 2];

        memset(fits, 'x', sizeof(fits));
        memset(longer, 'x', sizeof(longer));
        fits[0] = longer[0] = '/';
        fits[sizeof(fits) - 1] = longer[sizeof(longer) - 1] = '\0';
        expect(&(Arguments){.socket = fits}, false, TARGET_READS, fits, NULL);
        refuses(&(Arguments){.socket = longer}, "107");
        refuses(&(Arguments){.base_dir = longer}, "107");
        /* A second place that cannot exist does no harm to the first. */
        assert_int_equal(setenv("ILOADER_BASE_DIR", longer, 1), 0);
        expect(&(Arguments){0}, true, TARGET_READS, SYSTEM, NULL);
}

static void test_base(_unused_ void **state)
{
        char home[] = "/tmp/iloader-test-XXXXXX";
        _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL, *d = NULL, *expected = NULL, *fallback = NULL;

        assert_non_null(mkdtemp(home));
        assert_int_equal(unsetenv("ILOADER_BASE_DIR"), 0);
        assert_int_equal(setenv("HOME", home, 1), 0);
        assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
        assert_int_equal(endpoint_default_base(&a), 0);
        assert_int_equal(text_format(&expected, "%s/.cache/infiniloader", home), 0);
        assert_string_equal(a, expected);
        assert_int_equal(setenv("XDG_CACHE_HOME", "/tmp//x/", 1), 0);
        assert_int_equal(endpoint_default_base(&b), 0);
        assert_string_equal(b, "/tmp/x/infiniloader");
        /* Relative ones are ignored, as the XDG specification has it. */
        assert_int_equal(setenv("XDG_CACHE_HOME", "x", 1), 0);
        assert_int_equal(endpoint_default_base(&c), 0);
        assert_string_equal(c, expected);
        /* A home that is not there. */
        assert_int_equal(setenv("HOME", "/nonexistent-home", 1), 0);
        assert_int_equal(endpoint_default_base(&d), 0);
        assert_int_equal(text_format(&fallback, "/tmp/iloader-%u", (unsigned) geteuid()), 0);
        assert_string_equal(d, fallback);
        assert_int_equal(rmdir(home), 0);
}

static void test_private_directories(_unused_ void **state)
{
        char root[] = "/tmp/iloader-test-XXXXXX";
        _cleanup_free_ char *made = NULL, *link = NULL, *open_to_all = NULL, *file = NULL, *error = NULL;
        struct stat st;
        int fd;

        assert_non_null(mkdtemp(root));
        assert_int_equal(text_format(&made, "%s/a/b", root), 0);
        assert_int_equal(text_format(&link, "%s/link", root), 0);
        assert_int_equal(text_format(&open_to_all, "%s/open", root), 0);
        assert_int_equal(text_format(&file, "%s/file", root), 0);
        fd = private_directory_open(made, &error);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        close_fd(fd);
        assert_int_equal(symlink(made, link), 0);
        assert_true(private_directory_open(link, &error) < 0);
        assert_non_null(strstr(error, link));
        assert_int_equal(mkdir(open_to_all, 0700), 0);
        assert_int_equal(chmod(open_to_all, 0777), 0);
        assert_int_equal(private_directory_open(open_to_all, &error), -EPERM);
        assert_non_null(strstr(error, "0777"));
        fd = creat(file, 0600);
        assert_true(fd >= 0);
        close_fd(fd);
        assert_true(private_directory_open(file, &error) < 0);
        assert_non_null(strstr(error, file));
        assert_int_equal(path_remove_tree(AT_FDCWD, root, 100), 0);
}

static void test_runtime_files(_unused_ void **state)
{
        _cleanup_runtime_directory_ RuntimeDirectory d = RUNTIME_DIRECTORY_INIT, e = RUNTIME_DIRECTORY_INIT;
        const Target user = {
                .scope = TARGET_USER, .socket = (char *) "/b/run/io.iloader.Manager", .base = (char *) "/b"};
        const Target socket = {.scope = TARGET_SOCKET, .socket = (char *) "/d/s", .base = (char *) "/b"};

        assert_int_equal(runtime_directory_place(&user, &d), 0);
        assert_string_equal(d.path, "/b/run");
        assert_string_equal(d.prefix, "");
        assert_int_equal(runtime_directory_place(&socket, &e), 0);
        assert_string_equal(e.path, "/d");
        assert_string_equal(e.prefix, "s.");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_defaults, setup),
                cmocka_unit_test_setup(test_what_is_named_is_meant, setup),
                cmocka_unit_test_setup(test_the_environment, setup),
                cmocka_unit_test_setup(test_contradictions, setup),
                cmocka_unit_test_setup(test_length, setup),
                cmocka_unit_test_setup(test_base, setup),
                cmocka_unit_test(test_private_directories),
                cmocka_unit_test(test_runtime_files),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
