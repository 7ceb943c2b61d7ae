#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/text.h"
#include "checkpoint/source.h"
#include "tests/unit/scratch.h"

/* A private directory that is the root, with the source "/src" in it. */
typedef struct Fixture {
        Scratch scratch;
        Source source;
        SelectedFile file;
} Fixture;

static void fixture_make(Fixture *f)
{
        scratch_make(&f->scratch);
        assert_int_equal(mkdirat(f->scratch.fd, "src", 0755), 0);
        f->source = (Source){.fd = -EBADF};
}

/* Opens the source and selects one file as it is now. */
static void fixture_select(Fixture *f, const char *path)
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *full = NULL;
        struct stat st;

        if (f->source.fd < 0)
                assert_int_equal(source_open(f->scratch.fd, "/src", &f->source, NULL), 0);
        assert_int_equal(path_join("/src", path, &full), 0);
        fd = path_open_in_root(f->scratch.fd, full, O_PATH | O_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        free(f->file.path);
        f->file = (SelectedFile){.path = strdup(path), .identity = file_identity_from_stat(&st)};
}

static void fixture_done(Fixture *f)
{
        free(f->file.path);
        source_done(&f->source);
        scratch_done(&f->scratch);
}
#define _cleanup_fixture_ _cleanup_(fixture_done)

static void assert_reads(const Fixture *f, const char *text)
{
        _cleanup_source_fault_ SourceFault fault = {};
        _cleanup_close_ int fd = -EBADF;
        char buffer[64] = {};

        if (source_open_file(&f->source, &f->file, &fd, &fault) < 0)
                fail_msg("%s", fault.message);
        assert_int_equal(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_ACCMODE), O_RDONLY);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(read(fd, buffer, sizeof(buffer)), (ssize_t) strlen(text));
        assert_string_equal(buffer, text);
        if (source_check_file(&f->source, &f->file, &fault) < 0)
                fail_msg("%s", fault.message);
}

static void assert_changed(const Fixture *f, const char *text)
{
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_source_fault_ SourceFault fault = {};
                _cleanup_close_ int fd = -EBADF;
                int r;

                r = i == 0 ? source_open_file(&f->source, &f->file, &fd, &fault)
                           : source_check_file(&f->source, &f->file, &fault);
                assert_int_equal(r, -ESTALE);
                assert_int_equal(fault.kind, SOURCE_CHANGED);
                assert_string_equal(fault.path, f->file.path);
                assert_int_equal(fd, -EBADF);
                if (!strstr(fault.message, text))
                        fail_msg("'%s' does not say '%s'", fault.message, text);
        }
}

static void assert_no_source(int root_fd, const char *path, const char *text)
{
        _cleanup_source_fault_ SourceFault fault = {};
        _cleanup_source_ Source source = {.fd = -EBADF};

        assert_true(source_open(root_fd, path, &source, &fault) < 0);
        assert_int_equal(fault.kind, SOURCE_INVALID);
        if (!strstr(fault.message, text))
                fail_msg("'%s' does not say '%s'", fault.message, text);
}

static void test_open(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char path[PATH_MAX + 2];

        fixture_make(&f);
        scratch_write(&f.scratch, "file", "");
        assert_int_equal(mkfifoat(f.scratch.fd, "pipe", 0600), 0);
        assert_int_equal(symlinkat("nowhere", f.scratch.fd, "dangling"), 0);
        assert_int_equal(symlinkat("ring", f.scratch.fd, "ring"), 0);
        assert_no_source(f.scratch.fd, "/missing\n", "source '/missing\\x0a' does not exist");
        assert_no_source(f.scratch.fd, "/file", "not a directory");
        assert_no_source(f.scratch.fd, "/pipe", "not a directory");
        assert_no_source(f.scratch.fd, "/dangling", "does not exist");
        assert_no_source(f.scratch.fd, "/ring", "can't be opened");
        assert_no_source(f.scratch.fd, "src", "not an absolute path");
        memset(path, 'a', sizeof(path) - 1);
        path[0] = '/';
        path[sizeof(path) - 1] = '\0';
        assert_no_source(f.scratch.fd, path, "not an absolute path");

        assert_int_equal(source_open(f.scratch.fd, "//src/./x/..//", &f.source, NULL), 0);
        assert_string_equal(f.source.path, "/src");
        assert_string_equal(f.source.real_path, "/src");
}

static void test_real_path(_unused_ void **state)
{
        static const struct {
                const char *path, *real;
                int error;
        } cases[] = {
                {"/", "/", 0},
                {"/src", "/src", 0},
                {"/src/", "/src", 0},
                {"/../../src/./sub/..", "/src", 0},
                {"/rel", "/src/sub", 0},
                {"/abs", "/src/sub", 0},
                {"/up", "/src", 0},
                {"/chain/file", "/src/sub/file", 0},
                {"/toroot/src", "/src", 0},
                {"/src/sub/file", "/src/sub/file", 0},
                {"/missing", NULL, -ENOENT},
                {"/src/sub/file/x", NULL, -ENOTDIR},
                {"/src/sub/file/", NULL, -ENOTDIR},
                {"/ring", NULL, -ELOOP},
                {"src", NULL, -EINVAL},
        };
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        assert_int_equal(mkdirat(f.scratch.fd, "src/sub", 0755), 0);
        scratch_write(&f.scratch, "src/sub/file", "");
        assert_int_equal(symlinkat("src/sub", f.scratch.fd, "rel"), 0);
        assert_int_equal(symlinkat("/src/sub", f.scratch.fd, "abs"), 0);
        assert_int_equal(symlinkat("../../rel/..", f.scratch.fd, "up"), 0);
        assert_int_equal(symlinkat("up/../abs/../sub/", f.scratch.fd, "chain"), 0);
        assert_int_equal(symlinkat("/", f.scratch.fd, "toroot"), 0);
        assert_int_equal(symlinkat("ring", f.scratch.fd, "ring"), 0);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *real = NULL;
                int r = source_real_path(f.scratch.fd, cases[i].path, &real);

                if (r != cases[i].error || (cases[i].real && !streq(real, cases[i].real)))
                        fail_msg("%s: %d %s", cases[i].path, r, real ? real : "");
        }

        assert_int_equal(source_open(f.scratch.fd, "/chain", &f.source, NULL), 0);
        assert_string_equal(f.source.path, "/chain");
        assert_string_equal(f.source.real_path, "/src/sub");
}

static void test_open_file(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        assert_int_equal(mkdirat(f.scratch.fd, "src/sub", 0755), 0);
        assert_int_equal(mkdirat(f.scratch.fd, "blobs", 0755), 0);
        scratch_write(&f.scratch, "src/a\n\377", "plain");
        scratch_write(&f.scratch, "src/sub/b", "deep");
        scratch_write(&f.scratch, "blobs/c", "blob");
        assert_int_equal(symlinkat("../blobs/c", f.scratch.fd, "src/relative"), 0);
        assert_int_equal(symlinkat("/blobs/c", f.scratch.fd, "src/absolute"), 0);
        assert_int_equal(symlinkat("/blobs", f.scratch.fd, "src/dir"), 0);
        assert_int_equal(symlinkat("../../blobs/c", f.scratch.fd, "src/sub/link"), 0);

        fixture_select(&f, "a\n\377");
        assert_reads(&f, "plain");
        fixture_select(&f, "sub/b");
        assert_reads(&f, "deep");
        fixture_select(&f, "relative");
        assert_reads(&f, "blob");
        fixture_select(&f, "absolute");
        assert_reads(&f, "blob");
        fixture_select(&f, "dir/c");
        assert_reads(&f, "blob");
        fixture_select(&f, "sub/link");
        assert_reads(&f, "blob");
}

static void test_changes(_unused_ void **state)
{
        const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 5}};
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        scratch_write(&f.scratch, "src/a", "first");
        fixture_select(&f, "a");
        scratch_write(&f.scratch, "src/a", "longer than first");
        assert_changed(&f, "another size");

        scratch_write(&f.scratch, "src/a", "first");
        fixture_select(&f, "a");
        assert_int_equal(utimensat(f.scratch.fd, "src/a", times, 0), 0);
        assert_changed(&f, "was written to");

        fixture_select(&f, "a");
        assert_int_equal(f.file.identity.mtime_ns, 1000000005);
        f.file.identity.ctime_ns--;
        assert_changed(&f, "metadata");

        fixture_select(&f, "a");
        scratch_write(&f.scratch, "src/b", "first");
        assert_int_equal(utimensat(f.scratch.fd, "src/b", times, 0), 0);
        assert_int_equal(renameat(f.scratch.fd, "src/b", f.scratch.fd, "src/a"), 0);
        assert_changed(&f, "replaced");

        fixture_select(&f, "a");
        assert_int_equal(unlinkat(f.scratch.fd, "src/a", 0), 0);
        assert_changed(&f, "is gone");

        /* A pipe in the file's place is neither read nor waited for, a directory neither. */
        assert_int_equal(mkfifoat(f.scratch.fd, "src/a", 0600), 0);
        assert_changed(&f, "no regular file");
        assert_int_equal(unlinkat(f.scratch.fd, "src/a", 0), 0);
        assert_int_equal(mkdirat(f.scratch.fd, "src/a", 0700), 0);
        assert_changed(&f, "no regular file");
}

static void test_changed_links(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        scratch_write(&f.scratch, "one", "1");
        scratch_write(&f.scratch, "two", "1");
        assert_int_equal(symlinkat("../one", f.scratch.fd, "src/l"), 0);
        fixture_select(&f, "l");
        assert_reads(&f, "1");
        assert_int_equal(unlinkat(f.scratch.fd, "src/l", 0), 0);
        assert_int_equal(symlinkat("../two", f.scratch.fd, "src/l"), 0);
        assert_changed(&f, "replaced");
        assert_int_equal(unlinkat(f.scratch.fd, "src/l", 0), 0);
        assert_int_equal(symlinkat("/etc/passwd", f.scratch.fd, "src/l"), 0);
        assert_changed(&f, "is gone");
        assert_int_equal(unlinkat(f.scratch.fd, "src/l", 0), 0);

        /* The same file by another way is the same file. */
        assert_int_equal(symlinkat("/one", f.scratch.fd, "src/l"), 0);
        assert_reads(&f, "1");
}

static void test_moved_source(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        scratch_write(&f.scratch, "src/a", "1");
        fixture_select(&f, "a");
        /* What was selected is still there, below the directory that was opened. */
        assert_int_equal(renameat(f.scratch.fd, "src", f.scratch.fd, "moved"), 0);
        assert_reads(&f, "1");
        assert_int_equal(unlinkat(f.scratch.fd, "moved/a", 0), 0);
        assert_changed(&f, "is gone");
}

static void test_unreadable(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        int status;
        pid_t pid;

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        assert_int_equal(fchmod(f.scratch.fd, 0755), 0);
        scratch_write(&f.scratch, "src/a", "1");
        assert_int_equal(fchmodat(f.scratch.fd, "src/a", 0, 0), 0);
        fixture_select(&f, "a");
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                _cleanup_source_fault_ SourceFault fault = {};
                _cleanup_close_ int fd = -EBADF;

                if (setresuid(65534, 65534, 65534) < 0 ||
                    source_open_file(&f.source, &f.file, &fd, &fault) != -EINVAL ||
                    fault.kind != SOURCE_INVALID)
                        _exit(1);
                _exit(strstr(fault.message, "read permission") ? 0 : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_open),          cmocka_unit_test(test_real_path),
                cmocka_unit_test(test_open_file),     cmocka_unit_test(test_changes),
                cmocka_unit_test(test_changed_links), cmocka_unit_test(test_moved_source),
                cmocka_unit_test(test_unreadable),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
