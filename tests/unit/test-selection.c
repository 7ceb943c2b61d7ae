#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <grp.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/text.h"
#include "checkpoint/source.h"
#include "tests/unit/scratch.h"

/* A vector of patterns, for as long as the block that it stands in. */
#define LIST(...) ((char *const *) (const char *const[]){__VA_ARGS__ NULL})

/* A private directory with "src" in it, opened as the source, and "/" as the root. */
typedef struct Fixture {
        Scratch scratch;
        int root_fd;
        char path[96];
} Fixture;

static void fixture_make(Fixture *f)
{
        scratch_make(&f->scratch);
        f->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(f->root_fd >= 0);
        (void) snprintf(f->path, sizeof(f->path), "%s/src", f->scratch.path);
        assert_int_equal(mkdir(f->path, 0755), 0);
}

static void fixture_done(Fixture *f)
{
        scratch_done(&f->scratch);
        f->root_fd = close_fd(f->root_fd);
}
#define _cleanup_fixture_ _cleanup_(fixture_done)

static void make_directory(const Fixture *f, const char *name)
{
        assert_int_equal(mkdirat(f->scratch.fd, name, 0755), 0);
}

static void make_link(const Fixture *f, const char *target, const char *name)
{
        assert_int_equal(symlinkat(target, f->scratch.fd, name), 0);
}

static int read_with(const Fixture *f, char *const *patterns, char *const *excludes, uint64_t max,
                     Selection *ret, SourceFault *fault)
{
        _cleanup_source_ Source source = {.fd = -EBADF};
        const SelectionOptions options = {.patterns = patterns, .excludes = excludes, .max_files = max};

        assert_int_equal(source_open(f->root_fd, f->path, &source, fault), 0);
        return selection_read(&source, &options, ret, fault);
}

#define assert_selects(f, patterns, excludes, ...)                                                           \
        do {                                                                                                 \
                _cleanup_selection_ Selection _s = {};                                                       \
                _cleanup_source_fault_ SourceFault _f = {};                                                  \
                const char *const _want[] = {__VA_ARGS__};                                                   \
                int _r = read_with((f), patterns, excludes, 1000, &_s, &_f);                                 \
                if (_r < 0)                                                                                  \
                        fail_msg("refused: %s", _f.message ? _f.message : "(no message)");                   \
                assert_int_equal(_s.n_files, ELEMENTSOF(_want));                                             \
                for (size_t _i = 0; _i < _s.n_files; _i++)                                                   \
                        assert_string_equal(_s.files[_i].path, _want[_i]);                                   \
        } while (0)

static void assert_refuses_with(const Fixture *f, char *const *patterns, char *const *excludes,
                                SourceFaultKind kind, const char *path, const char *text)
{
        _cleanup_selection_ Selection s = {};
        _cleanup_source_fault_ SourceFault fault = {};

        assert_true(read_with(f, patterns, excludes, 1000, &s, &fault) < 0);
        assert_int_equal(s.n_files, 0);
        assert_int_equal(fault.kind, kind);
        assert_non_null(fault.message);
        assert_string_equal(fault.path, path ?: f->path);
        if (!strstr(fault.message, text))
                fail_msg("'%s' does not say '%s'", fault.message, text);
        assert_non_null(strstr(fault.message, f->path));
}

static void assert_refuses(const Fixture *f, const char *path, const char *text)
{
        assert_refuses_with(f, NULL, NULL, SOURCE_INVALID, path, text);
}

static void test_match(_unused_ void **state)
{
        static const struct {
                const char *pattern, *path;
                bool matches;
        } cases[] = {
                {"*", "a", true},
                {"*", "a/b", true},
                {"*.safetensors", "a.safetensors", true},
                {"*.safetensors", "sub/a.safetensors", true},
                {"*.safetensors", "a.safetensors.tmp", false},
                {"config.json", "config.json", true},
                {"config.json", "sub/config.json", true},
                {"config.json", "xconfig.json", false},
                {"sub/config.json", "sub/config.json", true},
                {"sub/config.json", "a/sub/config.json", false},
                {"sub/*", "sub/a/b", true},
                {"*/b", "a/b", true},
                {"*/b", "b", false},
                {"model-*", "model-1", true},
                {"model-*", "sub/model-1", true},
                {"model-*", "sub-model-1", false},
                {"sub/m*", "sub/m1", true},
                {"sub/m*", "x/sub/m1", false},
                {"model-0000[12]-of-?", "model-00002-of-9", true},
                {"model-0000[12]-of-?", "x/model-00002-of-9", true},
                {"model-0000[12]-of-?", "model-00003-of-9", false},
                {"\\*", "*", true},
                {"\\*", "a", false},
                {".git/", ".git/config", true},
                {".git/", "a/.git/hooks/x", true},
                {".git/", ".git/", true},
                {".git/", ".git", false},
                {".git/", ".github/x", false},
                {"a/b/", "a/b/c", true},
                {"a/b/", "x/a/b/c", false},
                {"*.d/", "x/y.d/z", true},
                {"", "a", false},
                {"/", "a", false},
                {".hidden", ".hidden", true},
                {"*", ".hidden", true},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (selection_match(cases[i].pattern, cases[i].path) != cases[i].matches)
                        fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].path);
}

static void test_order_and_identity(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        _cleanup_selection_ Selection s = {};
        struct stat st;

        fixture_make(&f);
        make_directory(&f, "src/a");
        make_directory(&f, "src/a/deep");
        make_directory(&f, "src/empty");
        scratch_write(&f.scratch, "src/a/x", "12345");
        scratch_write(&f.scratch, "src/a/deep/y", "");
        scratch_write(&f.scratch, "src/a.b", "123");
        scratch_write(&f.scratch, "src/\377", "1");
        scratch_write(&f.scratch, "src/B", "1");
        /* By bytes: '.' comes before '/', capitals before small letters, 0xff last. */
        assert_selects(&f, NULL, NULL, "B", "a.b", "a/deep/y", "a/x", "\377");

        assert_int_equal(read_with(&f, NULL, NULL, 5, &s, NULL), 0);
        assert_int_equal(s.bytes, 10);
        assert_int_equal(fstatat(f.scratch.fd, "src/a/x", &st, 0), 0);
        assert_int_equal(s.files[3].identity.size, 5);
        assert_int_equal(s.files[3].identity.device, st.st_dev);
        assert_int_equal(s.files[3].identity.inode, st.st_ino);
        assert_int_equal(s.files[3].identity.mtime_ns,
                         (int64_t) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
        assert_int_equal(s.files[3].identity.ctime_ns,
                         (int64_t) st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec);
}

static void test_odd_names(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char longest[NAME_MAX + 1], path[NAME_MAX + 8];

        fixture_make(&f);
        memset(longest, 'z', NAME_MAX);
        longest[NAME_MAX] = '\0';
        (void) snprintf(path, sizeof(path), "src/%s", longest);
        scratch_write(&f.scratch, path, "1");
        scratch_write(&f.scratch, "src/ ", "1");
        scratch_write(&f.scratch, "src/a\nb", "1");
        scratch_write(&f.scratch, "src/a\\b\"'$(x)", "1");
        scratch_write(&f.scratch, "src/-rf", "1");
        scratch_write(&f.scratch, "src/\xc3\x28", "1");
        scratch_write(&f.scratch, "src/...", "1");
        assert_selects(&f, NULL, NULL, " ", "-rf", "...", "a\nb", "a\\b\"'$(x)", longest, "\xc3\x28");
}

static void test_hub_layout(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        _cleanup_free_ char *absolute = NULL;

        fixture_make(&f);
        /* The hub's own cache lies below a ".cache", which is not the checkpoint's. */
        make_directory(&f, ".cache");
        make_directory(&f, ".cache/hub");
        make_directory(&f, ".cache/hub/blobs");
        make_directory(&f, ".cache/hub/snapshots");
        make_directory(&f, ".cache/hub/snapshots/rev");
        make_directory(&f, ".cache/hub/snapshots/rev/sub");
        scratch_write(&f.scratch, ".cache/hub/blobs/aaaa", "weights");
        scratch_write(&f.scratch, ".cache/hub/blobs/bbbb", "{}");
        scratch_write(&f.scratch, ".cache/hub/blobs/cccc.incomplete", "wei");
        make_link(&f, "../../blobs/aaaa", ".cache/hub/snapshots/rev/model.safetensors");
        make_link(&f, "../../../blobs/bbbb", ".cache/hub/snapshots/rev/sub/config.json");
        assert_int_equal(text_format(&absolute, "%s/.cache/hub/blobs/bbbb", f.scratch.path), 0);
        make_link(&f, absolute, ".cache/hub/snapshots/rev/absolute.json");
        (void) snprintf(f.path, sizeof(f.path), "%s/.cache/hub/snapshots/rev", f.scratch.path);
        assert_selects(&f, NULL, NULL, "absolute.json", "model.safetensors", "sub/config.json");

        /* And through a link to the revision, whose own ".." are the target's. */
        make_link(&f, ".cache/hub/snapshots/rev", "main");
        (void) snprintf(f.path, sizeof(f.path), "%s/main", f.scratch.path);
        assert_selects(&f, NULL, NULL, "absolute.json", "model.safetensors", "sub/config.json");
}

static void test_root_directory(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        /* Absolute links and ".." mean the caller's root, here the private directory. */
        f.root_fd = close_fd(f.root_fd);
        f.root_fd = fcntl(f.scratch.fd, F_DUPFD_CLOEXEC, 3);
        (void) snprintf(f.path, sizeof(f.path), "/src");
        make_directory(&f, "blobs");
        scratch_write(&f.scratch, "blobs/a", "12");
        make_link(&f, "/blobs/a", "src/absolute");
        make_link(&f, "../../../../../../blobs/a", "src/up");
        assert_selects(&f, NULL, NULL, "absolute", "up");

        make_link(&f, "/etc/passwd", "src/escape");
        assert_refuses(&f, "escape", "link to nothing");
}

static void test_default_exclusions(_unused_ void **state)
{
        static const char *const debris[] = {
                "x.incomplete", "x.lock", "x.tmp",  "x.part",   "x.partial",      "x.aria2",
                ".DS_Store",    ".msc",   ".nfs01", "._m.json", ".gitattributes", ".iloader-view",
        };
        static const char *const directories[] = {".cache", ".git", ".huggingface", "__pycache__",
                                                  ".iloader-new"};
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        make_directory(&f, "src/sub");
        for (size_t i = 0; i < ELEMENTSOF(debris); i++) {
                char path[64];

                (void) snprintf(path, sizeof(path), "src/%s", debris[i]);
                scratch_write(&f.scratch, path, "1");
                (void) snprintf(path, sizeof(path), "src/sub/%s", debris[i]);
                scratch_write(&f.scratch, path, "1");
        }
        for (size_t i = 0; i < ELEMENTSOF(directories); i++) {
                char path[64];

                (void) snprintf(path, sizeof(path), "src/%s", directories[i]);
                make_directory(&f, path);
                (void) snprintf(path, sizeof(path), "src/%s/inside", directories[i]);
                scratch_write(&f.scratch, path, "1");
                /* Not even what would be refused. */
                (void) snprintf(path, sizeof(path), "src/%s/fifo", directories[i]);
                assert_int_equal(mkfifoat(f.scratch.fd, path, 0600), 0);
        }
        make_link(&f, "nowhere", "src/dangling.lock");
        scratch_write(&f.scratch, "src/config.json", "1");
        scratch_write(&f.scratch, "src/.hidden", "1");
        scratch_write(&f.scratch, "src/lock", "1");
        scratch_write(&f.scratch, "src/git", "1");
        assert_selects(&f, NULL, NULL, ".hidden", "config.json", "git", "lock");

        /* An exclusion of one's own replaces them all. */
        {
                char *const *excludes = LIST("dangling.lock", ".iloader-*", "fifo", "sub/", );
                _cleanup_selection_ Selection s = {};

                assert_int_equal(read_with(&f, NULL, excludes, 1000, &s, NULL), 0);
                assert_int_equal(s.n_files, ELEMENTSOF(debris) - 1 + ELEMENTSOF(directories) - 1 + 4);
        }
}

static void test_patterns(_unused_ void **state)
{
        char *const *weights = LIST("*.safetensors", );
        char *const *two = LIST("*.json", "w*", );
        char *const *directory = LIST("sub/", );
        char *const *nothing = LIST("*.gguf", );
        char *const *not_sub = LIST("sub", );
        char *const *not_weights = LIST("*.safetensors", );
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        make_directory(&f, "src/sub");
        make_directory(&f, "src/sub/sub2");
        make_directory(&f, "src/other");
        scratch_write(&f.scratch, "src/w1.safetensors", "1");
        scratch_write(&f.scratch, "src/c.json", "1");
        scratch_write(&f.scratch, "src/sub/w2.safetensors", "1");
        scratch_write(&f.scratch, "src/sub/sub2/x", "1");
        scratch_write(&f.scratch, "src/other/y.json", "1");
        assert_selects(&f, weights, NULL, "sub/w2.safetensors", "w1.safetensors");
        assert_selects(&f, two, NULL, "c.json", "other/y.json", "sub/w2.safetensors", "w1.safetensors");
        assert_selects(&f, directory, NULL, "sub/sub2/x", "sub/w2.safetensors");
        assert_selects(&f, NULL, not_sub, "c.json", "other/y.json", "w1.safetensors");
        assert_selects(&f, weights, not_sub, "w1.safetensors");
        assert_selects(&f, NULL, LIST(), "c.json", "other/y.json", "sub/sub2/x", "sub/w2.safetensors",
                       "w1.safetensors");
        assert_refuses_with(&f, nothing, NULL, SOURCE_INVALID, NULL, "--pattern");
        assert_refuses_with(&f, weights, not_weights, SOURCE_INVALID, NULL, "no file that is selected");
}

static void test_empty(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        assert_refuses(&f, NULL, "is empty");
        make_directory(&f, "src/sub");
        assert_refuses(&f, NULL, "no file");
}

static void test_links(_unused_ void **state)
{
        char *const *json = LIST("*.json", );
        char *const *not_ring = LIST("ring", );
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        make_directory(&f, "elsewhere");
        scratch_write(&f.scratch, "elsewhere/in", "1");
        scratch_write(&f.scratch, "src/a.json", "1");
        make_link(&f, "../elsewhere", "src/dir");
        make_link(&f, "../elsewhere", "src/dir2");
        make_link(&f, "a.json", "src/again");
        make_link(&f, "again", "src/twice");
        assert_selects(&f, NULL, NULL, "a.json", "again", "dir/in", "dir2/in", "twice");

        make_link(&f, "nothing\n", "src/dangling\377");
        assert_refuses(&f, "dangling\377", "'dangling\\xff' is a symbolic link to nothing");
        assert_selects(&f, json, NULL, "a.json");
        assert_int_equal(unlinkat(f.scratch.fd, "src/dangling\377", 0), 0);

        make_link(&f, "ring", "src/ring");
        assert_refuses(&f, "ring", "in a circle");
        assert_selects(&f, NULL, not_ring, "a.json", "again", "dir/in", "dir2/in", "twice");
        assert_int_equal(unlinkat(f.scratch.fd, "src/ring", 0), 0);

        make_link(&f, "/proc/self/exe", "src/magic");
        assert_refuses(&f, "magic", "/proc");
}

static void test_loops(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char *const *not_up = LIST("up/", );

        fixture_make(&f);
        make_directory(&f, "src/sub");
        scratch_write(&f.scratch, "src/a", "1");
        make_link(&f, ".", "src/self");
        assert_refuses(&f, "self", "contains it");
        assert_int_equal(unlinkat(f.scratch.fd, "src/self", 0), 0);

        make_link(&f, "..", "src/sub/up");
        assert_refuses(&f, "sub/up", "contains it");
        assert_selects(&f, NULL, not_up, "a");
        assert_int_equal(unlinkat(f.scratch.fd, "src/sub/up", 0), 0);

        /* Up past the source, and down into it again. */
        make_link(&f, "../..", "src/sub/up");
        assert_refuses(&f, "sub/up/src", "contains it");
}

static void test_special_files(_unused_ void **state)
{
        char *const *json = LIST("*.json", );
        char *const *not_fifo = LIST("pipe", );
        _cleanup_fixture_ Fixture f = {};
        _cleanup_close_ int s = -EBADF;
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        fixture_make(&f);
        scratch_write(&f.scratch, "src/a.json", "1");
        assert_int_equal(mkfifoat(f.scratch.fd, "src/pipe", 0600), 0);
        assert_refuses(&f, "pipe", "is a pipe");
        assert_selects(&f, json, NULL, "a.json");
        assert_selects(&f, NULL, not_fifo, "a.json");
        make_link(&f, "pipe", "src/link.json");
        assert_refuses_with(&f, json, NULL, SOURCE_INVALID, "link.json", "is a pipe");
        assert_int_equal(unlinkat(f.scratch.fd, "src/link.json", 0), 0);
        assert_int_equal(unlinkat(f.scratch.fd, "src/pipe", 0), 0);

        s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s/src/s", f.scratch.path);
        assert_int_equal(bind(s, (const struct sockaddr *) &address, sizeof(address)), 0);
        assert_refuses(&f, "s", "is a socket");
        assert_int_equal(unlinkat(f.scratch.fd, "src/s", 0), 0);

        make_link(&f, "/dev/null", "src/null");
        assert_refuses(&f, "null", "is a character device");
}

static void test_reserved_names(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        make_directory(&f, "src/sub");
        scratch_write(&f.scratch, "src/a", "1");
        scratch_write(&f.scratch, "src/sub/.iloader-view", "1");
        assert_selects(&f, NULL, NULL, "a");
        assert_refuses_with(&f, NULL, LIST(), SOURCE_INVALID, "sub/.iloader-view", "--exclude");
}

static void test_bounds(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        _cleanup_selection_ Selection s = {};
        _cleanup_source_fault_ SourceFault fault = {};
        _cleanup_close_ int fd = -EBADF;
        char path[32];

        fixture_make(&f);
        for (unsigned i = 0; i < 7; i++) {
                (void) snprintf(path, sizeof(path), "src/f%u", i);
                scratch_write(&f.scratch, path, "1");
        }
        assert_int_equal(read_with(&f, NULL, NULL, 6, &s, &fault), -E2BIG);
        assert_int_equal(fault.kind, SOURCE_TOO_MANY);
        assert_int_equal(fault.maximum, 6);
        assert_int_equal(fault.files, 7);
        assert_non_null(strstr(fault.message, "7 files"));
        source_fault_done(&fault);
        assert_int_equal(read_with(&f, NULL, NULL, 7, &s, &fault), 0);

        /* Sixty-four directories are enough for everybody; a hundred are one too many, and so on. */
        fd = openat(f.scratch.fd, "src", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (unsigned i = 0; i < 100; i++) {
                int next;

                assert_int_equal(mkdirat(fd, "d", 0755), 0);
                next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                (void) close_fd(fd);
                fd = next;
                if (i == 63) {
                        _cleanup_selection_ Selection deep = {};
                        int file = openat(fd, "deepest", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

                        assert_true(file >= 0);
                        (void) close_fd(file);
                        assert_int_equal(read_with(&f, NULL, NULL, 100, &deep, &fault), 0);
                        assert_int_equal(deep.n_files, 8);
                }
        }
        assert_true(read_with(&f, NULL, NULL, 100, &s, &fault) < 0);
        assert_non_null(strstr(fault.message, "64 directories deep"));
}

static void run_as_nobody(const Fixture *f, const char *path, const char *text)
{
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                _cleanup_source_ Source source = {.fd = -EBADF};
                _cleanup_selection_ Selection s = {};
                _cleanup_source_fault_ SourceFault fault = {};
                const SelectionOptions options = {.max_files = 10};

                if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
                    setresuid(65534, 65534, 65534) < 0)
                        _exit(2);
                if (source_open(f->root_fd, f->path, &source, &fault) >= 0 &&
                    selection_read(&source, &options, &s, &fault) >= 0)
                        _exit(3);
                _exit(fault.message && streq(fault.path, path) && strstr(fault.message, text) ? 0 : 4);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void test_unreadable(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        assert_int_equal(fchmod(f.scratch.fd, 0755), 0);
        scratch_write(&f.scratch, "src/secret", "1");
        assert_int_equal(fchmodat(f.scratch.fd, "src/secret", 0600, 0), 0);
        run_as_nobody(&f, "secret", "can't be read");
        assert_int_equal(unlinkat(f.scratch.fd, "src/secret", 0), 0);

        scratch_write(&f.scratch, "secret", "1");
        assert_int_equal(fchmodat(f.scratch.fd, "secret", 0600, 0), 0);
        make_link(&f, "../secret", "src/link");
        run_as_nobody(&f, "link", "can't be read");
        assert_int_equal(unlinkat(f.scratch.fd, "src/link", 0), 0);

        assert_int_equal(mkdirat(f.scratch.fd, "src/dir", 0700), 0);
        run_as_nobody(&f, "dir", "can't be opened");
        assert_int_equal(fchmodat(f.scratch.fd, "src", 0700, 0), 0);
        run_as_nobody(&f, f.path, "can't be opened");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_match),          cmocka_unit_test(test_order_and_identity),
                cmocka_unit_test(test_odd_names),      cmocka_unit_test(test_hub_layout),
                cmocka_unit_test(test_root_directory), cmocka_unit_test(test_default_exclusions),
                cmocka_unit_test(test_patterns),       cmocka_unit_test(test_empty),
                cmocka_unit_test(test_links),          cmocka_unit_test(test_loops),
                cmocka_unit_test(test_special_files),  cmocka_unit_test(test_reserved_names),
                cmocka_unit_test(test_bounds),         cmocka_unit_test(test_unreadable),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
