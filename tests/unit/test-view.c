#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/view.h"
#include "tests/unit/scratch.h"

/* What is to be published: files in the order of their paths, those whose text begins with '@' as large ones.
 */
typedef struct Content {
        const char *path, *text;
} Content;

/* A private directory that is the root, with the source "/src" in it, and a cache's memory files, held by
 * this process. */
typedef struct Fixture {
        Scratch scratch;
        FdSet held;
        int manifest, pack;
        ViewOptions options;
        ViewFault fault;
} Fixture;

static void fixture_make(Fixture *f)
{
        scratch_make(&f->scratch);
        assert_int_equal(mkdirat(f->scratch.fd, "src", 0755), 0);
        f->manifest = f->pack = -EBADF;
        f->options = (ViewOptions){
                .name = "qwen",
                .path = "/view",
                .pid = getpid(),
                .mode = 0400,
                .gid = (gid_t) -1,
        };
}

static void fixture_done(Fixture *f)
{
        view_fault_done(&f->fault);
        fd_set_done(&f->held);
        f->manifest = close_fd(f->manifest);
        f->pack = close_fd(f->pack);
        scratch_done(&f->scratch);
}
#define _cleanup_fixture_ _cleanup_(fixture_done)

static int hold(Fixture *f, const char *text)
{
        int fd = memfd_create("test-view", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, text, strlen(text)), 0);
        assert_int_equal(fd_set_take(&f->held, fd), 0);
        return fd;
}

static void load_n(Fixture *f, const Content *content, size_t n)
{
        _cleanup_(manifest_writer_freep) ManifestWriter *w = NULL;
        uint64_t bytes = 0, offset = 0;
        struct stat st;

        f->manifest = close_fd(f->manifest);
        f->pack = close_fd(f->pack);
        f->manifest = memfd_create("test-manifest", MFD_CLOEXEC);
        f->pack = memfd_create("test-pack", MFD_CLOEXEC);
        assert_true(f->manifest >= 0 && f->pack >= 0);
        for (size_t i = 0; i < n; i++)
                bytes += strlen(content[i].text);
        assert_int_equal(manifest_writer_new(f->manifest, n, bytes, n + 1, &w), 0);
        for (size_t i = 0; i < n; i++) {
                ManifestFile file = {.path = (char *) content[i].path,
                                     .identity.size = strlen(content[i].text)};

                file.packed = content[i].text[0] != '@';
                if (file.packed) {
                        assert_int_equal(fd_pwrite_full(f->pack, content[i].text, file.identity.size, offset),
                                         0);
                        file.offset = offset;
                        file.descriptor = (uint32_t) f->pack;
                        offset += file.identity.size + 3;
                } else {
                        file.descriptor = (uint32_t) hold(f, content[i].text);
                        assert_int_equal(fstat((int) file.descriptor, &st), 0);
                        file.memory_device = st.st_dev;
                        file.memory_inode = st.st_ino;
                }
                assert_int_equal(manifest_writer_add(w, &file), 0);
        }
        assert_int_equal(manifest_writer_finish(w), 0);
}
#define load(f, ...)                                                                                         \
        do {                                                                                                 \
                const Content _c[] = {__VA_ARGS__};                                                          \
                load_n(f, _c, ELEMENTSOF(_c));                                                               \
        } while (0)

static int publish(Fixture *f)
{
        view_fault_done(&f->fault);
        return view_publish(f->scratch.fd, &f->options, f->manifest, f->pack, &f->fault);
}

static void assert_publishes(Fixture *f, uint64_t n)
{
        uint64_t files = 0;

        if (publish(f) < 0)
                fail_msg("%s", f->fault.message);
        if (view_probe(f->scratch.fd, f->options.path, f->manifest, &files, &f->fault) < 0)
                fail_msg("%s", f->fault.message);
        assert_int_equal(files, n);
}

static void assert_fault(const Fixture *f, ViewFaultKind kind, const char *text)
{
        assert_non_null(f->fault.message);
        if (f->fault.kind != kind || !strstr(f->fault.message, text))
                fail_msg("%d, '%s' does not say '%s'", f->fault.kind, f->fault.message, text);
}

static void assert_publish_refused(Fixture *f, ViewFaultKind kind, const char *text)
{
        int r = publish(f);

        assert_true(r < 0);
        assert_int_equal(r == -EEXIST, kind == VIEW_CONFLICT);
        assert_fault(f, kind, text);
}

static int check(Fixture *f, const char *source)
{
        view_fault_done(&f->fault);
        return view_check(f->scratch.fd, f->options.name, f->options.path, source, &f->fault);
}

static void assert_check_refused(Fixture *f, const char *source, const char *text)
{
        assert_int_equal(check(f, source), -EEXIST);
        assert_fault(f, VIEW_CONFLICT, text);
}

static int view_removed(Fixture *f)
{
        view_fault_done(&f->fault);
        return view_remove(f->scratch.fd, f->options.name, f->options.path, &f->fault);
}

static void assert_text(const Fixture *f, const char *path, const char *text)
{
        _cleanup_close_ int fd = openat(f->scratch.fd, path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *is = NULL;
        size_t n;

        if (fd < 0)
                fail_msg("no %s", path);
        assert_int_equal(fd_read_file(fd, 1 << 20, &is, &n), 0);
        assert_string_equal(is, text);
}

static void assert_missing(const Fixture *f, const char *path)
{
        struct stat st;

        if (fstatat(f->scratch.fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
                fail_msg("%s is there", path);
}

static mode_t mode_of(const Fixture *f, const char *path)
{
        struct stat st;

        assert_int_equal(fstatat(f->scratch.fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st.st_mode;
}

static ino_t inode_of(const Fixture *f, const char *path)
{
        struct stat st;

        assert_int_equal(fstatat(f->scratch.fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st.st_ino;
}

static unsigned count_entries(const Fixture *f, const char *path)
{
        DIR *d = fdopendir(openat(f->scratch.fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        unsigned n = 0;

        assert_non_null(d);
        while (readdir(d))
                n++;
        (void) closedir(d);
        return n - 2;
}

static void test_publish(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char target[64], want[64];
        ssize_t n;

        fixture_make(&f);
        load(&f, {"a\nb", "odd"}, {"config.json", "{}"}, {"empty", ""}, {"model", "@weights"},
             {"sub/deep/x", "x"}, {"sub/large", "@more"}, {"z\377", "bytes"});
        assert_int_equal(check(&f, "/src"), 0);
        assert_missing(&f, "view");
        assert_publishes(&f, 7);
        assert_text(&f, "view/a\nb", "odd");
        assert_text(&f, "view/config.json", "{}");
        assert_text(&f, "view/empty", "");
        assert_text(&f, "view/model", "@weights");
        assert_text(&f, "view/sub/deep/x", "x");
        assert_text(&f, "view/sub/large", "@more");
        assert_text(&f, "view/z\377", "bytes");
        assert_int_equal(mode_of(&f, "view"), S_IFDIR | 0700);
        assert_int_equal(mode_of(&f, "view/sub/deep"), S_IFDIR | 0700);
        assert_int_equal(mode_of(&f, "view/config.json"), S_IFREG | 0400);
        assert_int_equal(mode_of(&f, "view/model") & S_IFMT, S_IFLNK);
        n = readlinkat(f.scratch.fd, "view/model", target, sizeof(target) - 1);
        assert_true(n > 0);
        target[n] = '\0';
        (void) snprintf(want, sizeof(want), "/proc/%d/fd/%d", (int) getpid(), f.held.fds[0]);
        assert_string_equal(target, want);
        (void) snprintf(want, sizeof(want), "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":%u}\n", geteuid());
        assert_text(&f, "view/" VIEW_MARKER, want);
        assert_int_equal(count_entries(&f, "view"), 7);
        assert_int_equal(count_entries(&f, "."), 2); /* nothing temporary is left */
        assert_int_equal(check(&f, "/src"), 0);

        assert_int_equal(view_removed(&f), 1);
        assert_missing(&f, "view");
        assert_int_equal(view_removed(&f), 0);
        assert_int_equal(count_entries(&f, "."), 1);
}

static void test_permissions(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        mode_t mask;

        fixture_make(&f);
        load(&f, {"a", "1"}, {"sub/b", "2"});
        f.options.path = "/p/q/view";
        f.options.mode = 0444;
        mask = umask(0777);
        assert_int_equal(publish(&f), geteuid() == 0 ? 0 : -EACCES);
        (void) umask(mask);
        if (geteuid() != 0) { /* the parents that this umask makes can't be used by their owner */
                fixture_done(&f);
                skip();
        }
        assert_int_equal(mode_of(&f, "p"), S_IFDIR | 0755);
        assert_int_equal(mode_of(&f, "p/q"), S_IFDIR | 0755);
        assert_int_equal(mode_of(&f, "p/q/view"), S_IFDIR | 0755);
        assert_int_equal(mode_of(&f, "p/q/view/sub"), S_IFDIR | 0755);
        assert_int_equal(mode_of(&f, "p/q/view/sub/b"), S_IFREG | 0444);
        assert_int_equal(mode_of(&f, "p/q/view/" VIEW_MARKER), S_IFREG | 0444);

        /* Published again for a group. */
        f.options.mode = 0440;
        f.options.gid = 4321;
        assert_publishes(&f, 2);
        for (unsigned i = 0; i < 5; i++) {
                static const char marker[] = "p/q/view/" VIEW_MARKER;
                static const char *const paths[] = {"p/q/view", "p/q/view/sub", "p/q/view/a",
                                                    "p/q/view/sub/b", marker};
                struct stat st;

                assert_int_equal(fstatat(f.scratch.fd, paths[i], &st, 0), 0);
                assert_int_equal(st.st_gid, 4321);
                assert_int_equal(st.st_mode & 0777, i < 2 ? 0750 : 0440);
        }
        assert_int_equal(mode_of(&f, "p/q"), S_IFDIR | 0755);

        f.options.path = "/group/view";
        assert_publishes(&f, 2);
        assert_int_equal(mode_of(&f, "group"), S_IFDIR | 0750);
        f.options.path = "/other/view";
        f.options.parent_mode = 0711;
        assert_publishes(&f, 2);
        assert_int_equal(mode_of(&f, "other"), S_IFDIR | 0711);
        f.options.path = "/none/view";
        f.options.parent_mode = (mode_t) -1;
        assert_publish_refused(&f, VIEW_FAILED, "missing");
        assert_missing(&f, "none");
}

/* What open(2) says to a user who has no other rights: 0 or a negative errno. */
static int open_as(const Fixture *f, uid_t uid, const char *path, int flags)
{
        int status = -1;
        pid_t pid;

        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                int fd;

                if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
                        _exit(255);
                fd = openat(f->scratch.fd, path, flags, 0600);
                _exit(fd < 0 ? errno : 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
        return -WEXITSTATUS(status);
}

static void test_reader(_unused_ void **state)
{
        static const char *const paths[] = {"view", "view/a", "view/sub", "view/sub/b", "view/" VIEW_MARKER};
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        if (geteuid() != 0) {
                fixture_done(&f);
                skip();
        }
        assert_int_equal(fchmod(f.scratch.fd, 0755), 0);
        load(&f, {"a", "1"}, {"sub/b", "2"});
        f.options.has_reader = true;
        f.options.reader = 65432;
        /* The second time into the view that is there. */
        for (unsigned pass = 0; pass < 2; pass++) {
                assert_publishes(&f, 2);
                for (unsigned i = 0; i < ELEMENTSOF(paths); i++) {
                        assert_int_equal(open_as(&f, 65432, paths[i], O_RDONLY), 0);
                        assert_int_equal(open_as(&f, 65433, paths[i], O_RDONLY), -EACCES);
                }
                assert_int_equal(open_as(&f, 65432, "view/a", O_WRONLY), -EACCES);
                assert_int_equal(open_as(&f, 65432, "view/new", O_WRONLY | O_CREAT), -EACCES);
        }
        /* Beside the group, and the mode's own readers. */
        f.options.mode = 0440;
        f.options.gid = 4321;
        assert_publishes(&f, 2);
        assert_int_equal(open_as(&f, 4321, "view/sub/b", O_RDONLY), 0);
        assert_int_equal(open_as(&f, 65432, "view/sub/b", O_RDONLY), 0);
        assert_int_equal(open_as(&f, 65433, "view/sub/b", O_RDONLY), -EACCES);
        f.options.mode = 0444;
        assert_publishes(&f, 2);
        assert_int_equal(open_as(&f, 65433, "view/sub/b", O_RDONLY), 0);
}

static void test_publish_again(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        _cleanup_close_ int directory = -EBADF, old = -EBADF;
        char buffer[8] = {};
        ino_t before;

        fixture_make(&f);
        load(&f, {"a", "first"}, {"becomes-dir", "1"}, {"becomes-file/in", "1"}, {"gone/deep/x", "1"},
             {"kept/x", "1"}, {"large", "@1"}, {"small-then-large", "s"});
        assert_publishes(&f, 7);
        before = inode_of(&f, "view");
        directory = openat(f.scratch.fd, "view", O_PATH | O_DIRECTORY | O_CLOEXEC);
        old = openat(directory, "a", O_RDONLY | O_CLOEXEC);

        /* What a publication that was killed, and a careless user, leave. */
        scratch_write(&f.scratch, "view/.iloader-new-0", "half");
        scratch_write(&f.scratch, "view/kept/.iloader-new-1", "half");
        assert_int_equal(mkdirat(f.scratch.fd, "view/__pycache__", 0755), 0);
        scratch_write(&f.scratch, "view/__pycache__/x.pyc", "1");

        load(&f, {"a", "second"}, {"becomes-dir/in", "@2"}, {"becomes-file", "2"}, {"kept/x", "2"},
             {"kept/y", "@2"}, {"large", "@2"}, {"small-then-large", "@l"});
        assert_int_equal(check(&f, "/src"), 0);
        assert_publishes(&f, 7);
        assert_int_equal(inode_of(&f, "view"), before);
        assert_text(&f, "view/a", "second");
        assert_text(&f, "view/becomes-dir/in", "@2");
        assert_text(&f, "view/becomes-file", "2");
        assert_text(&f, "view/large", "@2");
        assert_int_equal(count_entries(&f, "view"), 7);
        assert_int_equal(count_entries(&f, "view/kept"), 2);
        assert_int_equal(faccessat(directory, "kept/y", R_OK, 0), 0);
        /* Whoever has the old file open keeps it. */
        assert_int_equal(read(old, buffer, sizeof(buffer)), 5);
        assert_string_equal(buffer, "first");
}

static void test_planted_links(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        load(&f, {"a", "1"}, {"sub/b", "2"}, {"sub2/c", "3"});
        assert_publishes(&f, 3);
        assert_int_equal(mkdirat(f.scratch.fd, "victim", 0755), 0);
        scratch_write(&f.scratch, "victim/b", "precious");
        scratch_write(&f.scratch, "victim/c", "precious");
        assert_int_equal(path_remove_tree(f.scratch.fd, "view/sub", 100), 0);
        assert_int_equal(symlinkat("../victim", f.scratch.fd, "view/sub"), 0);
        assert_int_equal(unlinkat(f.scratch.fd, "view/a", 0), 0);
        assert_int_equal(symlinkat("../victim/b", f.scratch.fd, "view/a"), 0);
        assert_int_equal(symlinkat("../victim", f.scratch.fd, "view/extra"), 0);
        assert_int_equal(symlinkat("../victim/c", f.scratch.fd, "view/.iloader-new-0"), 0);

        /* A prober isn't led out by them, either. */
        assert_true(view_probe(f.scratch.fd, "/view", f.manifest, &(uint64_t){0}, &f.fault) < 0);
        assert_publishes(&f, 3);
        assert_text(&f, "victim/b", "precious");
        assert_text(&f, "victim/c", "precious");
        assert_int_equal(count_entries(&f, "victim"), 2);
        assert_int_equal(mode_of(&f, "view/sub") & S_IFMT, S_IFDIR);
        assert_missing(&f, "view/extra");

        assert_int_equal(symlinkat("../victim", f.scratch.fd, "view/extra"), 0);
        assert_int_equal(view_removed(&f), 1);
        assert_int_equal(count_entries(&f, "victim"), 2);
}

/* Nothing that isn't ours is touched, whatever is asked. */
static void assert_conflict(Fixture *f, const char *text)
{
        assert_check_refused(f, "/src", text);
        assert_publish_refused(f, VIEW_CONFLICT, text);
        assert_int_equal(view_removed(f), -EEXIST);
        assert_fault(f, VIEW_CONFLICT, text);
        assert_non_null(strstr(f->fault.message, "--view"));
}

static void test_conflicts(_unused_ void **state)
{
        static const char *const markers[] = {
                "x",
                "{}",
                "[]",
                "{\"iloaderView\":2,\"name\":\"qwen\",\"uid\":%u}",
                "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":4242}",
                "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":\"%u\"}",
                "{\"iloaderView\":1,\"name\":[\"qwen\"],\"uid\":%u}",
                "{\"iloaderView\":1,\"name\":\"other\",\"name\":\"qwen\",\"uid\":%u}",
        };
        _cleanup_fixture_ Fixture f = {};
        char text[256];

        fixture_make(&f);
        load(&f, {"a", "1"});
        scratch_write(&f.scratch, "view", "precious");
        assert_conflict(&f, "a file is there");
        assert_text(&f, "view", "precious");
        assert_int_equal(unlinkat(f.scratch.fd, "view", 0), 0);

        assert_int_equal(mkfifoat(f.scratch.fd, "view", 0600), 0);
        assert_conflict(&f, "no directory");
        assert_int_equal(unlinkat(f.scratch.fd, "view", 0), 0);

        assert_int_equal(mkdirat(f.scratch.fd, "dir", 0755), 0);
        assert_int_equal(symlinkat("dir", f.scratch.fd, "view"), 0);
        assert_conflict(&f, "a symbolic link is there");
        assert_int_equal(count_entries(&f, "dir"), 0);
        assert_int_equal(unlinkat(f.scratch.fd, "view", 0), 0);

        assert_int_equal(mkdirat(f.scratch.fd, "view", 0755), 0);
        scratch_write(&f.scratch, "view/precious", "1");
        assert_conflict(&f, "not an iloader view");

        for (size_t i = 0; i < ELEMENTSOF(markers); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
                (void) snprintf(text, sizeof(text), markers[i], geteuid());
#pragma GCC diagnostic pop
                scratch_write(&f.scratch, "view/" VIEW_MARKER, text);
                assert_conflict(&f, "not valid");
        }
        memset(text, ' ', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        for (unsigned i = 0; i < 8; i++) { /* a valid one, but for its size */
                int fd = openat(f.scratch.fd, "view/" VIEW_MARKER,
                                O_WRONLY | O_APPEND | (i == 0 ? O_TRUNC : 0));

                assert_true(fd >= 0);
                assert_true(write(fd, text, sizeof(text) - 1) > 0);
                (void) close_fd(fd);
        }
        assert_conflict(&f, "not valid");
        assert_int_equal(unlinkat(f.scratch.fd, "view/" VIEW_MARKER, 0), 0);
        assert_int_equal(mkfifoat(f.scratch.fd, "view/" VIEW_MARKER, 0600), 0);
        assert_conflict(&f, "not valid");
        assert_int_equal(unlinkat(f.scratch.fd, "view/" VIEW_MARKER, 0), 0);
        (void) snprintf(text, sizeof(text), "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":%u}", geteuid());
        scratch_write(&f.scratch, "valid", text);
        assert_int_equal(symlinkat("../valid", f.scratch.fd, "view/" VIEW_MARKER), 0);
        assert_conflict(&f, "not valid");
        assert_text(&f, "view/precious", "1");
        assert_int_equal(path_remove_tree(f.scratch.fd, "view", 100), 0);

        assert_publishes(&f, 1);
        f.options.name = "other";
        assert_conflict(&f, "the view of cache 'qwen' is there");
        assert_text(&f, "view/a", "1");
        f.options.path = "/";
        assert_int_equal(check(&f, "/src"), -EEXIST);
        f.options.path = "view";
        assert_int_equal(check(&f, "/src"), -EINVAL);
}

static void test_other_owner(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char text[128];

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        load(&f, {"a", "1"});
        /* Even an empty directory, and one with a marker that says all that it should. */
        assert_int_equal(mkdirat(f.scratch.fd, "view", 0755), 0);
        assert_int_equal(fchownat(f.scratch.fd, "view", 1234, 1234, 0), 0);
        assert_conflict(&f, "another user (uid 1234)");
        (void) snprintf(text, sizeof(text), "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":%u}", geteuid());
        scratch_write(&f.scratch, "view/" VIEW_MARKER, text);
        assert_conflict(&f, "another user (uid 1234)");
        assert_int_equal(fchownat(f.scratch.fd, "view", 0, 0, 0), 0);
        assert_int_equal(fchownat(f.scratch.fd, "view/" VIEW_MARKER, 1234, 0, 0), 0);
        assert_conflict(&f, "not valid");
}

static void test_empty_directory(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        ino_t before;

        fixture_make(&f);
        load(&f, {"a", "1"}, {"sub/b", "@2"});
        assert_int_equal(mkdirat(f.scratch.fd, "view", 0711), 0);
        before = inode_of(&f, "view");
        assert_int_equal(view_removed(&f), 0);
        assert_int_equal(check(&f, "/src"), 0);
        assert_publishes(&f, 2);
        assert_int_equal(inode_of(&f, "view"), before);
        assert_int_equal(mode_of(&f, "view"), S_IFDIR | 0700);
        assert_int_equal(view_removed(&f), 1);

        /* Whoever began and was killed before it wrote the marker's text left an empty directory, too. */
        assert_int_equal(mkdirat(f.scratch.fd, "view", 0700), 0);
        scratch_write(&f.scratch, "view/" VIEW_MARKER, "");
        assert_int_equal(check(&f, "/src"), 0);
        assert_publishes(&f, 2);
}

static void test_overlap(_unused_ void **state)
{
        static const struct {
                const char *view, *source, *text; /* text NULL: all is well */
        } cases[] = {
                {"/src/view", "/src", "inside"},
                {"/src/a/b/view", "/src", "inside"},
                {"/src", "/src", "inside"},
                {"/s/view", "/src", "inside"},
                {"/x/../src/view", "/src", "inside"},
                {"/models", "/models/a/b", "around"},
                {"/view", "/", "inside"},
                {"/src-view", "/src", NULL},
                {"/srcs/src", "/src", NULL},
                {"/new/view", "/src", NULL},
        };
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        assert_int_equal(symlinkat("src", f.scratch.fd, "s"), 0);
        assert_int_equal(mkdirat(f.scratch.fd, "models", 0755), 0);
        assert_int_equal(mkdirat(f.scratch.fd, "models/a", 0755), 0);
        assert_int_equal(mkdirat(f.scratch.fd, "models/a/b", 0755), 0);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                f.options.path = cases[i].view;
                if (cases[i].text)
                        assert_check_refused(&f, cases[i].source, cases[i].text);
                else if (check(&f, cases[i].source) < 0)
                        fail_msg("%s", f.fault.message);
        }
        assert_int_equal(count_entries(&f, "."), 3);

        scratch_write(&f.scratch, "file", "1");
        f.options.path = "/file/view";
        assert_check_refused(&f, "/src", "not a directory");
        f.options.path = "/file/a/view";
        assert_check_refused(&f, "/src", "not a directory");
}

static void test_overlap_by_mount(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char from[96], to[96];

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        assert_int_equal(mkdirat(f.scratch.fd, "bound", 0755), 0);
        (void) snprintf(from, sizeof(from), "%s/src", f.scratch.path);
        (void) snprintf(to, sizeof(to), "%s/bound", f.scratch.path);
        if (mount(from, to, NULL, MS_BIND, NULL) < 0) {
                fixture_done(&f);
                skip();
        }
        f.options.path = "/bound/view";
        view_fault_done(&f.fault);
        assert_int_equal(check(&f, "/src"), -EEXIST);
        assert_int_equal(umount2(to, MNT_DETACH), 0);
        assert_fault(&f, VIEW_CONFLICT, "inside");
}

static void test_unwritable(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        int status;
        pid_t pid;

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        assert_int_equal(fchmod(f.scratch.fd, 0755), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (setresuid(65534, 65534, 65534) < 0 || check(&f, "/src") != -EACCES)
                        _exit(1);
                _exit(f.fault.kind == VIEW_FAILED && strstr(f.fault.message, "must be able to write") ? 0
                                                                                                      : 2);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void test_leftovers(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        _cleanup_close_ int lock = -EBADF;
        char text[128];

        fixture_make(&f);
        load(&f, {"a", "1"});
        /* Of a publication that was killed: gone with the next one, and with a removal. */
        (void) snprintf(text, sizeof(text), "{\"iloaderView\":1,\"name\":\"qwen\",\"uid\":%u}", geteuid());
        for (unsigned i = 0; i < 4; i++) {
                assert_int_equal(mkdirat(f.scratch.fd, ".view.iloader-new", 0700), 0);
                if (i % 2 == 0) {
                        scratch_write(&f.scratch, ".view.iloader-new/" VIEW_MARKER, text);
                        scratch_write(&f.scratch, ".view.iloader-new/half", "1");
                }
                if (i < 2)
                        assert_publishes(&f, 1);
                assert_int_equal(view_removed(&f), i < 2 ? 1 : 0);
                assert_int_equal(count_entries(&f, "."), 1);
        }

        /* While its maker lives it is left alone. */
        assert_int_equal(mkdirat(f.scratch.fd, ".view.iloader-new", 0700), 0);
        lock = openat(f.scratch.fd, ".view.iloader-new", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
        assert_publish_refused(&f, VIEW_CONFLICT, "another process");
        assert_int_equal(view_removed(&f), 0);
        assert_int_equal(mode_of(&f, ".view.iloader-new") & S_IFMT, S_IFDIR);
        close_fdp(&lock);

        /* And what is somebody's own stays, too. */
        scratch_write(&f.scratch, ".view.iloader-new/precious", "1");
        assert_publish_refused(&f, VIEW_CONFLICT, ".view.iloader-new");
        assert_text(&f, ".view.iloader-new/precious", "1");
        assert_missing(&f, "view");
}

static void test_bad_manifests(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char deep[200];

        fixture_make(&f);
        f.options.path = "/p/q/view";
        load(&f, {VIEW_MARKER, "1"});
        assert_publish_refused(&f, VIEW_FAILED, "kept for the view");
        load(&f, {"sub/.iloader-new-0", "1"});
        assert_publish_refused(&f, VIEW_FAILED, "kept for the view");
        /* A file that is a directory of another. */
        load(&f, {"a", "1"}, {"a/b", "2"});
        assert_publish_refused(&f, VIEW_FAILED, "a/b");
        for (size_t i = 0; i < sizeof(deep) - 1; i += 2)
                memcpy(deep + i, "d/", 2);
        deep[sizeof(deep) - 1] = '\0';
        load(&f, {deep, "1"});
        assert_publish_refused(&f, VIEW_FAILED, "too long");
        load(&f, {"a", "1"}, {"b", "2"});
        assert_int_equal(ftruncate(f.pack, 1), 0);
        assert_publish_refused(&f, VIEW_FAILED, "outside of the pack");
        f.pack = close_fd(f.pack);
        assert_publish_refused(&f, VIEW_FAILED, "outside of the pack");
        assert_int_equal(ftruncate(f.manifest, 10), 0);
        assert_publish_refused(&f, VIEW_FAILED, "manifest");
        assert_int_equal(count_entries(&f, "."), 1); /* nor the parents */

        /* Empty small files need no pack. */
        load(&f, {"empty", ""});
        f.pack = close_fd(f.pack);
        assert_publishes(&f, 1);
}

static void test_no_room(_unused_ void **state)
{
        static char large[8192];
        _cleanup_fixture_ Fixture f = {};
        Content content[64];
        char paths[64][16], mounted[96];

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        memset(large, 'x', sizeof(large) - 1);
        for (unsigned i = 0; i < 64; i++) {
                (void) snprintf(paths[i], sizeof(paths[i]), "sub%u/f%02u", i / 32, i);
                content[i] = (Content){paths[i], large};
        }
        load_n(&f, content, 64);
        assert_int_equal(mkdirat(f.scratch.fd, "small", 0755), 0);
        (void) snprintf(mounted, sizeof(mounted), "%s/small", f.scratch.path);
        if (mount("none", mounted, "tmpfs", 0, "size=128k") < 0) {
                fixture_done(&f);
                skip();
        }
        f.options.path = "/small/p/view";
        assert_int_equal(publish(&f), -ENOSPC);
        assert_fault(&f, VIEW_FAILED, "make room");
        assert_int_equal(count_entries(&f, "small"), 0);

        /* Into an empty directory, and over a view. */
        assert_int_equal(mkdirat(f.scratch.fd, "small/view", 0755), 0);
        f.options.path = "/small/view";
        assert_int_equal(publish(&f), -ENOSPC);
        assert_int_equal(count_entries(&f, "small/view"), 0);
        load(&f, {"a", "1"});
        assert_publishes(&f, 1);
        load_n(&f, content, 64);
        assert_int_equal(publish(&f), -ENOSPC);
        assert_int_equal(count_entries(&f, "small/view"), 1);
        load(&f, {"a", "1"});
        assert_publishes(&f, 1);
        assert_int_equal(view_removed(&f), 1);
        assert_int_equal(umount2(mounted, MNT_DETACH), 0);
}

static void test_mount_point(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char mounted[96];

        if (geteuid() != 0)
                skip();
        fixture_make(&f);
        load(&f, {"a", "1"}, {"sub/b", "@2"});
        assert_int_equal(mkdirat(f.scratch.fd, "view", 0755), 0);
        (void) snprintf(mounted, sizeof(mounted), "%s/view", f.scratch.path);
        if (mount("none", mounted, "tmpfs", 0, "size=1m") < 0) {
                fixture_done(&f);
                skip();
        }
        assert_publishes(&f, 2);
        assert_publishes(&f, 2);
        assert_int_equal(view_removed(&f), 1);
        assert_int_equal(count_entries(&f, "view"), 0);
        assert_int_equal(umount2(mounted, MNT_DETACH), 0);
}

static void test_probe(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        uint64_t files;
        char target[64];

        fixture_make(&f);
        load(&f, {"a", "12"}, {"large", "@12"}, {"sub/b", "34"});
#define assert_probe_fails(text)                                                                             \
        do {                                                                                                 \
                view_fault_done(&f.fault);                                                                   \
                assert_true(view_probe(f.scratch.fd, "/view", f.manifest, &files, &f.fault) < 0);            \
                assert_fault(&f, VIEW_FAILED, text);                                                         \
                assert_publishes(&f, 3);                                                                     \
        } while (0)
        assert_probe_fails("cannot open it");
        assert_int_equal(unlinkat(f.scratch.fd, "view/a", 0), 0);
        assert_probe_fails("'a' can't be opened: No such file");
        assert_int_equal(unlinkat(f.scratch.fd, "view/a", 0), 0);
        scratch_write(&f.scratch, "view/a", "123");
        assert_probe_fails("'a' has another size");
        assert_int_equal(unlinkat(f.scratch.fd, "view/a", 0), 0);
        assert_int_equal(symlinkat("sub/b", f.scratch.fd, "view/a"), 0);
        assert_probe_fails("'a' can't be opened");
        assert_int_equal(unlinkat(f.scratch.fd, "view/a", 0), 0);
        assert_int_equal(mkfifoat(f.scratch.fd, "view/a", 0600), 0);
        assert_probe_fails("'a' has another size");

        assert_int_equal(unlinkat(f.scratch.fd, "view/large", 0), 0);
        (void) snprintf(target, sizeof(target), "/proc/%d/fd/%d", (int) getpid(), hold(&f, "@12"));
        assert_int_equal(symlinkat(target, f.scratch.fd, "view/large"), 0);
        assert_probe_fails("'large' leads to another file");
        assert_int_equal(unlinkat(f.scratch.fd, "view/large", 0), 0);
        assert_int_equal(symlinkat("/proc/1/fd/99999", f.scratch.fd, "view/large"), 0);
        assert_probe_fails("'large' can't be opened");

        assert_int_equal(renameat(f.scratch.fd, "view/sub", f.scratch.fd, "aside"), 0);
        assert_int_equal(symlinkat("../aside", f.scratch.fd, "view/sub"), 0);
        assert_probe_fails("'sub/b' can't be opened");

        /* Nor is the view itself one that a link leads to. */
        assert_int_equal(symlinkat("view", f.scratch.fd, "v"), 0);
        view_fault_done(&f.fault);
        assert_true(view_probe(f.scratch.fd, "/v", f.manifest, &files, &f.fault) < 0);
        assert_int_equal(view_probe(f.scratch.fd, "/view", f.manifest, &files, NULL), 0);
        assert_int_equal(files, 3);
}

static void test_many_files(_unused_ void **state)
{
        enum { N = 3000 };
        static char paths[N][48], texts[N][24];
        static Content content[N];
        _cleanup_fixture_ Fixture f = {};

        fixture_make(&f);
        for (unsigned i = 0; i < N; i++) {
                (void) snprintf(paths[i], sizeof(paths[i]), "%c%03u/%u/file-%04u", i < N / 2 ? 'a' : 'b',
                                i / 100, i / 10 % 10, i);
                (void) snprintf(texts[i], sizeof(texts[i]), "%s%u", i % 500 == 7 ? "@" : "", i * 977);
                content[i] = (Content){paths[i], texts[i]};
        }
        load_n(&f, content, N);
        for (unsigned threads = 0; threads < 5; threads++) {
                f.options.threads = threads;
                assert_publishes(&f, N);
                for (unsigned i = 0; i < N; i += 7) {
                        _cleanup_free_ char *path = NULL;

                        assert_int_equal(path_join("view", paths[i], &path), 0);
                        assert_text(&f, path, texts[i]);
                }
        }
        /* All but two files go, with their directories. */
        load(&f, {"a000/0/file-0000", "x"}, {"c", "y"});
        assert_publishes(&f, 2);
        assert_int_equal(count_entries(&f, "view"), 3);
        assert_int_equal(count_entries(&f, "view/a000"), 1);
        assert_int_equal(count_entries(&f, "view/a000/0"), 1);
}

/* A file system that can't rename without replacing answers EINVAL. */
static void test_plain_rename(_unused_ void **state)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {.len = ELEMENTSOF(code), .filter = code};
        _cleanup_fixture_ Fixture f = {};
        int status;
        pid_t pid;

        fixture_make(&f);
        load(&f, {"a", "1"});
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                        _exit(77);
                _exit(publish(&f) < 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                fixture_done(&f);
                skip();
        }
        assert_int_equal(status, 0);
        assert_text(&f, "view/a", "1");
        assert_int_equal(count_entries(&f, "."), 2);
        assert_int_equal(view_removed(&f), 1);
}

static void test_long_name(_unused_ void **state)
{
        _cleanup_fixture_ Fixture f = {};
        char path[257];

        fixture_make(&f);
        load(&f, {"a", "1"});
        memset(path, 'n', sizeof(path) - 1);
        path[0] = '/';
        path[sizeof(path) - 1] = '\0';
        f.options.path = path;
        assert_publishes(&f, 1);
        assert_publishes(&f, 1);
        assert_int_equal(view_removed(&f), 1);
        assert_int_equal(count_entries(&f, "."), 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_publish),       cmocka_unit_test(test_permissions),
                cmocka_unit_test(test_reader),        cmocka_unit_test(test_publish_again),
                cmocka_unit_test(test_planted_links), cmocka_unit_test(test_conflicts),
                cmocka_unit_test(test_other_owner),   cmocka_unit_test(test_empty_directory),
                cmocka_unit_test(test_overlap),       cmocka_unit_test(test_overlap_by_mount),
                cmocka_unit_test(test_unwritable),    cmocka_unit_test(test_leftovers),
                cmocka_unit_test(test_bad_manifests), cmocka_unit_test(test_no_room),
                cmocka_unit_test(test_mount_point),   cmocka_unit_test(test_probe),
                cmocka_unit_test(test_many_files),    cmocka_unit_test(test_plain_rename),
                cmocka_unit_test(test_long_name),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
