/* run: the placeholder, and executing without a shell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "ctl/run.h"

static void expect(const char *argument, const char *path, const char *expected)
{
        const char *const command[] = {argument, NULL};
        _cleanup_strv_ char **argv = NULL;

        assert_int_equal(run_arguments((char *const *) command, path, &argv), 0);
        assert_string_equal(argv[0], expected);
        assert_null(argv[1]);
}

static void test_placeholder(_unused_ void **state)
{
        expect("{model}", "/v", "/v");
        expect("a{model}b{model}c", "/v", "a/vb/vc");
        expect("{model}{model}", "/longer/than/the/placeholder",
               "/longer/than/the/placeholder/longer/than/the/placeholder");
        expect("{{model}}", "/v", "{/v}");
        expect("{mod{model}el}", "/v", "{mod/vel}");
        expect("{Model} {model {model", "/v", "{Model} {model {model");
        expect("", "/v", "");
        /* What was put in is not looked at again. */
        expect("{model}", "/a/{model}/b", "/a/{model}/b");
        expect("\xff{model}\n", "/v", "\xff/v\n");
}

static void test_all_arguments(_unused_ void **state)
{
        const char *const command[] = {"{model}/bin/x", "--", "", "{model}", NULL};
        _cleanup_strv_ char **argv = NULL;

        assert_int_equal(run_arguments((char *const *) command, "/v", &argv), 0);
        assert_int_equal(strv_length(argv), 4);
        assert_string_equal(argv[0], "/v/bin/x");
        assert_string_equal(argv[2], "");
        assert_string_equal(argv[3], "/v");
}

/* Executes in a child: its exit code, or 200 and the errno of the failure. */
static int execute(const char *path, const char *const *argv)
{
        int status = 0;
        pid_t pid;

        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (path ? setenv("PATH", path, 1) < 0 : unsetenv("PATH") < 0)
                        _exit(199);
                _exit(200 - run_execute((char *const *) argv));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void write_script(const char *directory, const char *name, const char *text, mode_t mode)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;

        assert_int_equal(path_join(directory, name, &path), 0);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, text, strlen(text)), 0);
        assert_int_equal(fchmod(fd, mode), 0);
}

static void test_execute(_unused_ void **state)
{
        char directory[] = "/tmp/iloader-test-XXXXXX";
        _cleanup_free_ char *path = NULL, *absolute = NULL;

        assert_non_null(mkdtemp(directory));
        write_script(directory, "seven", "#!/bin/sh\nexit 7\n", 0755);
        write_script(directory, "formless", "exit 3\n", 0755);
        write_script(directory, "closed", "#!/bin/sh\nexit 7\n", 0644);
        write_script(directory, "true", "not executable, and so passed over", 0644);
        assert_int_equal(text_format(&path, "/nonexistent:%s:/usr/bin:/bin", directory), 0);
        assert_int_equal(text_format(&absolute, "%s/seven", directory), 0);
        assert_int_equal(execute(path, (const char *const[]){"seven", NULL}), 7);
        assert_int_equal(execute("/nonexistent", (const char *const[]){absolute, NULL}), 7);
        /* No shell is asked to make sense of it. */
        assert_int_equal(execute(path, (const char *const[]){"formless", NULL}), 200 + ENOEXEC);
        assert_int_equal(execute(path, (const char *const[]){"closed", NULL}), 200 + EACCES);
        assert_int_equal(execute(path, (const char *const[]){"true", NULL}), 0);
        assert_int_equal(execute(path, (const char *const[]){"no-such-program", NULL}), 200 + ENOENT);
        assert_int_equal(execute(path, (const char *const[]){"", NULL}), 200 + ENOENT);
        assert_int_equal(execute(path, (const char *const[]){"/", NULL}), 200 + EACCES);
        assert_int_equal(execute(NULL, (const char *const[]){"true", NULL}), 0);
        assert_int_equal(path_remove_tree(AT_FDCWD, directory, 100), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_placeholder),
                cmocka_unit_test(test_all_arguments),
                cmocka_unit_test(test_execute),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
