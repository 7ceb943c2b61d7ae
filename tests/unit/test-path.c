#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <linux/openat2.h>
#include <seccomp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/path.h"
#include "base/text.h"
#include "tests/unit/scratch.h"

static void test_names(_unused_ void **state)
{
        static const char *const good[] = {"q", "qwen", "Qwen3-8B", "a.b_c-d", "0", "a-", "a."};
        static const char *const bad[] = {"",     ".",   "..",    ".hidden", "-x",       "_x",
                                          "a..b", "a/b", "a b",   "a\n",     "\xc3\xa9", "a\xc3\xa9",
                                          "a*",   "a\\", "../up", "a/..",    "a\x7f-"};
        char longest[CACHE_NAME_MAX + 2];
        const char *reason = NULL;
        size_t i;

        for (i = 0; i < ELEMENTSOF(good); i++)
                assert_true(cache_name_is_valid(good[i], NULL));
        for (i = 0; i < ELEMENTSOF(bad); i++) {
                reason = NULL;
                assert_false(cache_name_is_valid(bad[i], &reason));
                assert_non_null(reason);
                assert_false(cache_name_is_valid(bad[i], NULL));
        }
        memset(longest, 'a', sizeof(longest));
        longest[CACHE_NAME_MAX] = '\0';
        assert_true(cache_name_is_valid(longest, NULL));
        longest[CACHE_NAME_MAX] = 'a';
        longest[CACHE_NAME_MAX + 1] = '\0';
        assert_false(cache_name_is_valid(longest, &reason));
        assert_non_null(strstr(reason, "longer"));
}

static void test_kinds(_unused_ void **state)
{
        static const char *const normal[] = {"a", "a/b", "...", "a/.b", "a\nb", "..a"};
        static const char *const other[] = {"",     "/",   "/a",  "a/",     ".",   "..",
                                            "a//b", "./a", "a/.", "a/../b", "a/.."};
        char path[PATH_MAX + 1];
        size_t i;

        assert_true(path_is_absolute("/"));
        assert_true(path_is_absolute("/a/../b"));
        assert_false(path_is_absolute(""));
        assert_false(path_is_absolute("a"));
        memset(path, '/', sizeof(path));
        path[PATH_MAX] = '\0';
        assert_false(path_is_absolute(path));
        path[PATH_MAX - 1] = '\0';
        assert_true(path_is_absolute(path));
        for (i = 0; i < ELEMENTSOF(normal); i++)
                assert_true(path_is_normal_relative(normal[i]));
        for (i = 0; i < ELEMENTSOF(other); i++)
                assert_false(path_is_normal_relative(other[i]));
}

static void test_normalize(_unused_ void **state)
{
        static const char *const cases[][2] = {
                {"/", "/"},
                {"//", "/"},
                {"/a", "/a"},
                {"/a/", "/a"},
                {"/a//b///", "/a/b"},
                {"/./a/./b/.", "/a/b"},
                {"/a/../b", "/b"},
                {"/..", "/"},
                {"/../../a", "/a"},
                {"/a/b/../..", "/"},
                {"/a/...", "/a/..."},
                {"/a/.b/..c", "/a/.b/..c"},
                {"/a/b/../../../c/", "/c"},
        };
        _cleanup_free_ char *absolute = NULL, *directory = NULL, *expected = NULL;
        char path[PATH_MAX + 1], *none = NULL;
        size_t i;

        for (i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *normal = NULL;

                assert_int_equal(path_normalize(cases[i][0], &normal), 0);
                assert_string_equal(normal, cases[i][1]);
        }
        assert_int_equal(path_normalize("a", &none), -EINVAL);
        assert_int_equal(path_normalize("", &none), -EINVAL);
        memset(path, '/', sizeof(path));
        path[PATH_MAX] = '\0';
        assert_int_equal(path_normalize(path, &none), -ENAMETOOLONG);
        assert_int_equal(path_make_absolute("", &none), -EINVAL);
        assert_null(none);

        directory = getcwd(NULL, 0);
        assert_non_null(directory);
        assert_int_equal(path_join(directory, "x/y", &expected), 0);
        assert_int_equal(path_make_absolute("x/./z/../y/", &absolute), 0);
        assert_string_equal(absolute, expected);
}

static void test_join_split(_unused_ void **state)
{
        _cleanup_free_ char *a = NULL, *b = NULL, *parent = NULL, *root = NULL, *none = NULL;
        const char *name = NULL, *path = "/a/bc";

        assert_int_equal(path_join("/a", "b", &a), 0);
        assert_string_equal(a, "/a/b");
        assert_int_equal(path_join("/", "b", &b), 0);
        assert_string_equal(b, "/b");
        assert_int_equal(path_split(path, &parent, &name), 0);
        assert_string_equal(parent, "/a");
        assert_ptr_equal(name, path + 3);
        assert_int_equal(path_split("/a", &root, &name), 0);
        assert_string_equal(root, "/");
        assert_string_equal(name, "a");
        assert_int_equal(path_split("/", &none, &name), -EINVAL);
        assert_int_equal(path_split("a/b", &none, &name), -EINVAL);
        assert_int_equal(path_split("", &none, &name), -EINVAL);
        assert_null(none);
}

static void test_below(_unused_ void **state)
{
        assert_true(path_is_below("/a", "/a"));
        assert_true(path_is_below("/a/b", "/a"));
        assert_true(path_is_below("/a", "/"));
        assert_true(path_is_below("/", "/"));
        assert_false(path_is_below("/", "/a"));
        assert_false(path_is_below("/ab", "/a"));
        assert_false(path_is_below("/a", "/ab"));
        assert_false(path_is_below("/a", "/a/b"));
}

static void test_escape(_unused_ void **state)
{
        static const char *const cases[][2] = {
                {"/plain path/\xc3\xa9", "/plain path/\xc3\xa9"},
                {"a\nb\tc", "a\\x0ab\\x09c"},
                {"\x1b[2J", "\\x1b[2J"},
                {"\x7f", "\\x7f"},
                {"\xff\xfe", "\\xff\\xfe"},
                {"\xc2\x9b"
                 "2J",
                 "\\xc2\\x9b2J"}, /* the C1 form of ESC [ */
                {"\xc2\xa0", "\xc2\xa0"},
                {"\xc3\xa9\x80x", "\xc3\xa9\\x80x"}, /* a stray byte spoils itself only */
                {"\xe2\x82", "\\xe2\\x82"},
                {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
                {"", ""},
        };
        size_t i;

        for (i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *text = NULL;

                assert_int_equal(path_escape(cases[i][0], &text), 0);
                assert_string_equal(text, cases[i][1]);
        }
}

/* A tree with a link of every kind. */
static void make_tree(Scratch *s)
{
        static const char *const links[][2] = {
                {"/a/b", "absolute"},
                {"../../../../a", "clamped"},
                {"/../../a/file", "clamped-absolute"},
                {"/etc/passwd", "escape"},
                {"../../../../../../../../etc/passwd", "escape-relative"},
                {"loop2", "loop1"},
                {"loop1", "loop2"},
                {"self/x", "self"},
                {"missing", "dangling"},
                {"a/file", "to-file"},
                {"a/", "to-slash"},
                {"a/file/", "file-slash"},
                {"/", "to-root"},
                {"//", "to-root-twice"},
                {".", "to-dot"},
                {"..", "to-up"},
                {"a/./b/../b/", "winding"},
                {"../../absolute/c/deep", "a/b/back"},
                {"a/b/c/../../file", "up-in-link"},
                {"/a/new", "create-here"},
                {"a/file", "chain40"},
        };
        char name[32], target[32];
        size_t i;

        scratch_make(s);
        assert_int_equal(mkdirat(s->fd, "a", 0755), 0);
        assert_int_equal(mkdirat(s->fd, "a/b", 0755), 0);
        assert_int_equal(mkdirat(s->fd, "a/b/c", 0755), 0);
        assert_int_equal(mkdirat(s->fd, "a/na\nme", 0755), 0);
        scratch_write(s, "a/file", "file");
        scratch_write(s, "a/b/c/deep", "deep");
        for (i = 0; i < ELEMENTSOF(links); i++)
                assert_int_equal(symlinkat(links[i][0], s->fd, links[i][1]), 0);
        /* chain0 goes through 41 links, chain1 through the 40 that are allowed. */
        for (i = 0; i < 40; i++) {
                (void) snprintf(name, sizeof(name), "chain%zu", i);
                (void) snprintf(target, sizeof(target), "chain%zu", i + 1);
                assert_int_equal(symlinkat(target, s->fd, name), 0);
        }
}

static const char *const tree_paths[] = {
        "",
        "/",
        "//",
        ".",
        "..",
        "../..",
        "/..",
        "a",
        "/a",
        "a/",
        "/a//b/./c",
        "a/b/c/deep",
        "/a/b/c/deep/",
        "a/file",
        "a/file/",
        "a/file/x",
        "a/file/.",
        "a/file/..",
        "a/..",
        "a/../..",
        "a/../../../a/b/..",
        "missing",
        "missing/",
        "missing/x",
        "missing/..",
        "a/missing",
        "absolute",
        "absolute/",
        "absolute/c",
        "absolute/c/deep",
        "absolute/..",
        "absolute/../file",
        "clamped",
        "clamped/b",
        "clamped-absolute",
        "escape",
        "escape-relative",
        "/escape/",
        "../../../../../../../../../../etc/passwd",
        "/etc/passwd",
        "loop1",
        "loop1/x",
        "self",
        "self/",
        "dangling",
        "dangling/",
        "dangling/x",
        "to-file",
        "to-file/",
        "to-file/x",
        "to-slash",
        "to-slash/",
        "to-slash/b",
        "file-slash",
        "to-root",
        "to-root/",
        "to-root/to-root/to-root/a",
        "to-root-twice",
        "to-root-twice/a/file",
        "to-dot",
        "to-dot/to-dot/a",
        "to-up",
        "to-up/",
        "to-up/a/file",
        "a/b/../../to-up/a",
        "winding",
        "winding/c/deep",
        "a/b/back",
        "up-in-link",
        "chain0",
        "chain1",
        "chain1/",
        "chain0/x",
        "a/na\nme",
};

/* What a call led to: the error, or the kind, device and inode. */
static void describe(int fd, char *buffer, size_t size)
{
        struct stat st;

        if (fd < 0) {
                (void) snprintf(buffer, size, "error %s", strerror(-fd));
                return;
        }
        assert_int_equal(fstat(fd, &st), 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        (void) snprintf(buffer, size, "%o %llx %llu", st.st_mode & S_IFMT, (unsigned long long) st.st_dev,
                        (unsigned long long) st.st_ino);
        (void) close_fd(fd);
}

static bool have_openat2(void)
{
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
        long fd = syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

        if (fd < 0)
                return false;
        (void) close_fd((int) fd);
        return true;
}

/* The walk, against the kernel's own resolution. */
static void compare(int rootfd, const char *path, int flags)
{
        struct open_how how = {.flags = (unsigned) (flags | O_CLOEXEC),
                               .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        char kernel[128], walk[128];
        long fd;

        fd = syscall(SYS_openat2, rootfd, path, &how, sizeof(how));
        describe(fd < 0 ? -errno : (int) fd, kernel, sizeof(kernel));
        describe(path_open_in_root_walk(rootfd, path, flags, 0), walk, sizeof(walk));
        if (!streq(kernel, walk))
                fail_msg("path '%s', flags %x: the kernel says %s, the walk %s", path, (unsigned) flags,
                         kernel, walk);
}

static void test_walk_equals_kernel(_unused_ void **state)
{
        static const int flags[] = {
                O_RDONLY,
                O_RDONLY | O_NOFOLLOW,
                O_RDONLY | O_DIRECTORY,
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
                O_WRONLY,
                O_PATH,
                O_PATH | O_NOFOLLOW,
                O_PATH | O_DIRECTORY,
                O_PATH | O_DIRECTORY | O_NOFOLLOW,
        };
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        size_t i, k;

        if (!have_openat2())
                skip();
        make_tree(&s);
        for (i = 0; i < ELEMENTSOF(tree_paths); i++)
                for (k = 0; k < ELEMENTSOF(flags); k++)
                        compare(s.fd, tree_paths[i], flags[k]);
}

static void test_walk_equals_kernel_in_proc(_unused_ void **state)
{
        static const char *const paths[] = {
                "proc/self/exe",    "proc/self/cwd",    "proc/self/cwd/",    "proc/self/root/etc",
                "proc/self/fd/0",   "proc/self/ns/mnt", "proc/self/status",  "proc/self",
                "proc/self/",       "proc/mounts",      "proc/self/../self", "proc/thread-self/fd",
                "proc/self/fd/0/x", "proc/net/dev",
        };
        static const int flags[] = {O_PATH, O_PATH | O_NOFOLLOW, O_RDONLY | O_NOFOLLOW};
        _cleanup_close_ int root = -EBADF;
        size_t i, k;

        if (!have_openat2() || access("/proc/self/status", F_OK) < 0)
                skip();
        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(root >= 0);
        for (i = 0; i < ELEMENTSOF(paths); i++)
                for (k = 0; k < ELEMENTSOF(flags); k++)
                        compare(root, paths[i], flags[k]);
        /* And not only like the kernel: no jump at all. */
        assert_int_equal(path_open_in_root_walk(root, "/proc/self/cwd", O_PATH, 0), -ELOOP);
        assert_int_equal(path_open_in_root_walk(root, "/proc/self/root/etc", O_PATH, 0), -ELOOP);
}

typedef int (*OpenInRoot)(int rootfd, const char *path, int flags, mode_t mode);
static const OpenInRoot both[] = {path_open_in_root, path_open_in_root_walk};

static void test_stays_below(_unused_ void **state)
{
        size_t i;

        for (i = 0; i < ELEMENTSOF(both); i++) {
                _cleanup_scratch_ Scratch s = {.fd = -EBADF};
                _cleanup_close_ int fd = -EBADF;
                char text[8] = "";

                make_tree(&s);
                assert_int_equal(both[i](s.fd, "escape", O_RDONLY, 0), -ENOENT);
                assert_int_equal(both[i](s.fd, "escape-relative", O_RDONLY, 0), -ENOENT);
                /* Where the root has one, its own is meant. */
                assert_int_equal(mkdirat(s.fd, "etc", 0755), 0);
                scratch_write(&s, "etc/passwd", "inside");
                fd = both[i](s.fd, "escape-relative", O_RDONLY, 0);
                assert_true(fd >= 0);
                assert_int_equal(read(fd, text, sizeof(text)), 6);
                assert_memory_equal(text, "inside", 6);
                assert_int_equal(both[i](-EBADF, "a", O_RDONLY, 0), -EBADF);
        }
}

static void test_create(_unused_ void **state)
{
        size_t i;

        for (i = 0; i < ELEMENTSOF(both); i++) {
                _cleanup_scratch_ Scratch s = {.fd = -EBADF};
                _cleanup_close_ int fd = -EBADF, temporary = -EBADF;
                struct stat st;

                make_tree(&s);
                /* Through a link to nothing, which is absolute, into the root. */
                fd = both[i](s.fd, "create-here", O_WRONLY | O_CREAT, 0640);
                assert_true(fd >= 0);
                assert_int_equal(fstatat(s.fd, "a/new", &st, AT_SYMLINK_NOFOLLOW), 0);
                assert_true(S_ISREG(st.st_mode));
                assert_int_equal(st.st_mode & 0077 & ~0040, 0);

                assert_int_equal(both[i](s.fd, "dangling", O_WRONLY | O_CREAT | O_EXCL, 0600), -EEXIST);
                assert_int_equal(both[i](s.fd, "dangling", O_WRONLY | O_CREAT | O_NOFOLLOW, 0600), -ELOOP);
                assert_int_equal(both[i](s.fd, "a/file", O_WRONLY | O_CREAT | O_EXCL, 0600), -EEXIST);
                assert_int_equal(both[i](s.fd, "fresh/", O_WRONLY | O_CREAT, 0600), -EISDIR);
                assert_int_equal(both[i](s.fd, "a", O_WRONLY | O_CREAT, 0600), -EISDIR);
                assert_int_equal(both[i](s.fd, "loop1", O_WRONLY | O_CREAT, 0600), -ELOOP);
                assert_int_equal(fstatat(s.fd, "missing", &st, 0), -1);
                assert_int_equal(fstatat(s.fd, "fresh", &st, 0), -1);

                temporary = both[i](s.fd, "absolute", O_TMPFILE | O_WRONLY, 0600);
                if (temporary != -EOPNOTSUPP)
                        assert_true(temporary >= 0);
        }
}

static void test_too_long(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        char path[PATH_MAX + 2];
        size_t i;

        make_tree(&s);
        for (i = 0; i < ELEMENTSOF(both); i++) {
                memset(path, 'x', sizeof(path));
                path[NAME_MAX + 1] = '\0';
                assert_int_equal(both[i](s.fd, path, O_PATH, 0), -ENAMETOOLONG);
                memset(path, '/', sizeof(path));
                path[PATH_MAX] = '\0';
                assert_int_equal(both[i](s.fd, path, O_PATH, 0), -ENAMETOOLONG);
        }
}

/* A link that somebody else put into a directory like /tmp. */
static void test_protected_link(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_close_ int through = -EBADF, mine = -EBADF;

        if (geteuid() != 0)
                skip();
        make_tree(&s);
        assert_int_equal(mkdirat(s.fd, "shared", 0755), 0);
        assert_int_equal(fchmodat(s.fd, "shared", 01777, 0), 0);
        assert_int_equal(symlinkat("../a", s.fd, "shared/theirs"), 0);
        assert_int_equal(fchownat(s.fd, "shared/theirs", 65534, (gid_t) -1, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(symlinkat("../a", s.fd, "shared/mine"), 0);
        assert_int_equal(path_open_in_root_walk(s.fd, "shared/theirs", O_PATH, 0), -EACCES);
        mine = path_open_in_root_walk(s.fd, "shared/mine", O_PATH, 0);
        assert_true(mine >= 0);
        through = path_open_in_root_walk(s.fd, "shared/theirs/file", O_PATH, 0);
        assert_true(through >= 0);
}

/* In a child that may not call openat2(2), with the error given. */
static int run_denied(int rootfd, uint32_t error)
{
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        int fd;

        if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(error), SCMP_SYS(openat2), 0) < 0 ||
            seccomp_load(filter) < 0)
                return 77;
        seccomp_release(filter);
        fd = path_open_in_root(rootfd, "/clamped/b/back", O_RDONLY, 0);
        return fd < 0 ? -fd : 0;
}

static void test_falls_back(_unused_ void **state)
{
        static const uint32_t errors[] = {EPERM, ENOSYS};
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        size_t i;

        make_tree(&s);
        for (i = 0; i < ELEMENTSOF(errors); i++) {
                int status = 0;
                pid_t pid = fork();

                assert_true(pid >= 0);
                if (pid == 0)
                        _exit(run_denied(s.fd, errors[i]));
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_true(WIFEXITED(status));
                if (WEXITSTATUS(status) == 77)
                        skip();
                assert_int_equal(WEXITSTATUS(status), 0);
        }
}

static void test_make_directories(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_close_ int fd = -EBADF, again = -EBADF, linked = -EBADF, root = -EBADF;
        struct stat st, made;
        unsigned created = 7;

        make_tree(&s);
        fd = path_make_directories_in_root(s.fd, "/a/x//y/./z", 0700, &created);
        assert_true(fd >= 0);
        assert_int_equal(created, 3);
        assert_int_equal(fstatat(s.fd, "a/x/y/z", &st, 0), 0);
        assert_int_equal(fstat(fd, &made), 0);
        assert_true(st.st_ino == made.st_ino && S_ISDIR(st.st_mode));
        assert_int_equal(st.st_mode & 07777, 0700);
        assert_int_equal(fstatat(s.fd, "a", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0755);

        again = path_make_directories_in_root(s.fd, "/a/x/y/z", 0755, &created);
        assert_true(again >= 0);
        assert_int_equal(created, 0);
        root = path_make_directories_in_root(s.fd, "/", 0755, NULL);
        assert_true(root >= 0);

        /* A link that points far up still leads to the root only. */
        linked = path_make_directories_in_root(s.fd, "/clamped/made", 0755, &created);
        assert_true(linked >= 0);
        assert_int_equal(created, 1);
        assert_int_equal(fstatat(s.fd, "a/made", &st, AT_SYMLINK_NOFOLLOW), 0);

        assert_int_equal(path_make_directories_in_root(s.fd, "a", 0755, NULL), -EINVAL);
        assert_int_equal(path_make_directories_in_root(s.fd, "/dangling/x", 0755, NULL), -ENOENT);
        assert_int_equal(path_make_directories_in_root(s.fd, "/a/file/x", 0755, NULL), -ENOTDIR);
        assert_int_equal(path_make_directories_in_root(s.fd, "/loop1/x", 0755, NULL), -ELOOP);
        assert_int_equal(fstatat(s.fd, "missing", &st, 0), -1);
}

static bool is_text(const char *name)
{
        return strstr(name, ".txt") != NULL;
}

static void test_list_directory(_unused_ void **state)
{
        static const char *const files[] = {"b.txt", "a.txt", ".c.txt", "other", "\xff.txt"};
        static const char *const expected[] = {".c.txt", "a.txt", "b.txt", "\xff.txt", NULL};
        _cleanup_scratch_ Scratch s = {.fd = -EBADF};
        _cleanup_strv_ char **names = NULL, **none = NULL;
        _cleanup_close_ int path_fd = -EBADF;

        scratch_make(&s);
        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                scratch_write(&s, files[i], "");
        path_fd = openat(s.fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(path_fd >= 0);
        assert_int_equal(path_list_directory(path_fd, is_text, 3, &names), -E2BIG);
        assert_int_equal(path_list_directory(path_fd, is_text, 4, &names), 0);
        assert_true(strv_equal(names, (char *const *) expected));

        assert_int_equal(mkdirat(s.fd, "empty", 0700), 0);
        (void) close(path_fd);
        path_fd = openat(s.fd, "empty", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(path_list_directory(path_fd, is_text, 0, &none), 0);
        assert_non_null(none);
        assert_null(none[0]);
        (void) close(path_fd);
        path_fd = openat(s.fd, "other", O_RDONLY | O_CLOEXEC);
        assert_int_equal(path_list_directory(path_fd, is_text, 1, &none), -ENOTDIR);
}

static void test_remove_tree(_unused_ void **state)
{
        _cleanup_scratch_ Scratch s = {.fd = -EBADF}, outside = {.fd = -EBADF};
        struct stat st;
        char name[32];
        int i;

        make_tree(&s);
        scratch_make(&outside);
        scratch_write(&outside, "precious", "x");
        assert_int_equal(mkdirat(s.fd, "tree", 0755), 0);
        assert_int_equal(mkdirat(s.fd, "tree/sub", 0755), 0);
        assert_int_equal(symlinkat(outside.path, s.fd, "tree/sub/out"), 0);
        assert_int_equal(symlinkat(outside.path, s.fd, "out"), 0);
        for (i = 0; i < 700; i++) {
                (void) snprintf(name, sizeof(name), "tree/sub/%d", i);
                scratch_write(&s, name, "");
        }
        /* 700 files, a link and two directories. */
        assert_int_equal(path_remove_tree(s.fd, "tree", 0), -E2BIG);
        assert_int_equal(path_remove_tree(s.fd, "tree", 10), -E2BIG);
        assert_int_equal(fstatat(s.fd, "tree", &st, 0), 0);
        assert_int_equal(path_remove_tree(s.fd, "tree", 692), -E2BIG);
        /* The bound is exact: of the 703, one is left after 10 and 692. */
        assert_int_equal(path_remove_tree(s.fd, "tree", 1), 0);
        assert_int_equal(fstatat(s.fd, "tree", &st, 0), -1);

        assert_int_equal(path_remove_tree(s.fd, "out", 1), 0);
        assert_int_equal(fstatat(outside.fd, "precious", &st, 0), 0);
        assert_int_equal(path_remove_tree(s.fd, "a/file", 1), 0);
        assert_int_equal(path_remove_tree(s.fd, "tree", 1), -ENOENT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_kinds),
                cmocka_unit_test(test_normalize),
                cmocka_unit_test(test_join_split),
                cmocka_unit_test(test_below),
                cmocka_unit_test(test_escape),
                cmocka_unit_test(test_walk_equals_kernel),
                cmocka_unit_test(test_walk_equals_kernel_in_proc),
                cmocka_unit_test(test_stays_below),
                cmocka_unit_test(test_create),
                cmocka_unit_test(test_too_long),
                cmocka_unit_test(test_protected_link),
                cmocka_unit_test(test_falls_back),
                cmocka_unit_test(test_make_directories),
                cmocka_unit_test(test_list_directory),
                cmocka_unit_test(test_remove_tree),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
