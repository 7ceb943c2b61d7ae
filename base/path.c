/* Names and paths: what is accepted, working on them by text, and opening below a root
 * directory, making and removing directories. */
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

/* How deep a tree path_remove_tree() follows: deeper ones can't be named by any path. */
#define DEPTH_MAX (PATH_MAX / 2)
/* What openat2(2) follows in one resolution (MAXSYMLINKS of the kernel). */
#define LINKS_MAX 40U
/* The inode of the root directory of every procfs (PROC_ROOT_INO of the kernel). */
#define PROC_ROOT_INODE 1U
/* fstatfs(2)'s flag of mounts with nosymfollow, which the C library doesn't name. */
#ifndef ST_NOSYMFOLLOW
#define ST_NOSYMFOLLOW 0x2000
#endif

static void closedirp(DIR **d)
{
        if (*d)
                (void) closedir(*d);
}

/* Not isalnum(3), which depends on the locale. */
static bool is_name_start(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool cache_name_is_valid(const char *name, const char **ret_reason)
{
        const char *reason = NULL, *p;

        if (*name == '\0')
                reason = "is empty";
        else if (!is_name_start(*name))
                reason = "does not start with an ASCII letter or digit";
        else if (strnlen(name, CACHE_NAME_MAX + 1) > CACHE_NAME_MAX)
                reason = "is longer than 96 characters";
        else if (strstr(name, ".."))
                reason = "contains '..'";
        for (p = name; !reason && *p; p++)
                if (!is_name_start(*p) && *p != '.' && *p != '_' && *p != '-')
                        reason = "contains a character other than ASCII letters, digits, '.', '_' and '-'";
        if (reason && ret_reason)
                *ret_reason = reason;
        return !reason;
}

bool path_is_absolute(const char *path)
{
        return path[0] == '/' && strnlen(path, PATH_MAX) < PATH_MAX;
}

/* The next component of *p, which moves behind it: its length, and *ret where it begins; 0 at the end. */
static size_t next_component(const char **p, const char **ret)
{
        const char *s = *p + strspn(*p, "/");
        size_t n = strcspn(s, "/");

        *p = s + n;
        *ret = s;
        return n;
}

static bool is_dot(const char *s, size_t n)
{
        return n == 1 && s[0] == '.';
}

static bool is_dot_dot(const char *s, size_t n)
{
        return n == 2 && s[0] == '.' && s[1] == '.';
}

bool path_is_normal_relative(const char *path)
{
        const char *p = path, *s;
        size_t n = strnlen(path, PATH_MAX);

        if (n == 0 || n >= PATH_MAX || path[0] == '/' || path[n - 1] == '/' || strstr(path, "//"))
                return false;
        while ((n = next_component(&p, &s)) > 0)
                if (is_dot(s, n) || is_dot_dot(s, n))
                        return false;
        return true;
}

int path_normalize(const char *path, char **ret)
{
        _cleanup_free_ char *result = NULL;
        const char *p = path, *s;
        size_t length = 0, n;

        if (path[0] != '/')
                return -EINVAL;
        if (!path_is_absolute(path))
                return -ENAMETOOLONG;
        result = malloc(strlen(path) + 1);
        if (!result)
                return -ENOMEM;
        while ((n = next_component(&p, &s)) > 0) {
                if (is_dot(s, n))
                        continue;
                if (is_dot_dot(s, n)) {
                        while (length > 0 && result[--length] != '/')
                                ;
                        continue;
                }
                result[length++] = '/';
                memcpy(result + length, s, n);
                length += n;
        }
        if (length == 0)
                result[length++] = '/';
        result[length] = '\0';
        *ret = TAKE_PTR(result);
        return 0;
}

int path_join(const char *dir, const char *name, char **ret)
{
        size_t n = strlen(dir);
        _cleanup_free_ char *result = NULL;
        int r;

        r = text_format(&result, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(result);
        return 0;
}

int path_make_absolute(const char *path, char **ret)
{
        _cleanup_free_ char *directory = NULL, *joined = NULL;
        int r;

        if (path[0] == '\0')
                return -EINVAL;
        if (path[0] == '/')
                return path_normalize(path, ret);
        directory = getcwd(NULL, 0);
        if (!directory)
                return -errno;
        /* The kernel says "(unreachable)/…" where the working directory is outside of the root. */
        if (directory[0] != '/')
                return -ENOENT;
        r = path_join(directory, path, &joined);
        if (r < 0)
                return r;
        return path_normalize(joined, ret);
}

int path_split(const char *path, char **ret_parent, const char **ret_name)
{
        const char *slash = strrchr(path, '/');
        char *parent;

        if (path[0] != '/' || slash[1] == '\0')
                return -EINVAL;
        parent = slash == path ? strdup("/") : strndup(path, (size_t) (slash - path));
        if (!parent)
                return -ENOMEM;
        *ret_parent = parent;
        *ret_name = slash + 1;
        return 0;
}

bool path_is_below(const char *path, const char *ancestor)
{
        const char *a, *b;
        size_t n, m;

        while ((m = next_component(&ancestor, &b)) > 0) {
                n = next_component(&path, &a);
                if (n != m || memcmp(a, b, n) != 0)
                        return false;
        }
        return true;
}

/* A resolution by hand. dirs holds every directory that we went down through, so that ".." goes back the way
 * we came: asking the kernel for ".." could lead out of the root when a directory is moved meanwhile. */
typedef struct Walk {
        int root; /* not owned; or AT_FDCWD */
        FdSet dirs;
        char *path;       /* owned: what rest points into since the first link */
        const char *rest; /* what is still to be resolved */
        unsigned links;
} Walk;

static void walk_done(Walk *w)
{
        fd_set_done(&w->dirs);
        free(w->path);
}

static int walk_top(const Walk *w)
{
        return w->dirs.n > 0 ? w->dirs.fds[w->dirs.n - 1] : w->root;
}

static void walk_up(Walk *w)
{
        if (w->dirs.n > 0)
                (void) close_fd(w->dirs.fds[--w->dirs.n]);
}

/* Whether a link, opened O_PATH, may be followed out of the directory that holds it. Links that jump (those
 * below /proc/PID, and AppArmor's) are recognized by their file system; the root of a procfs, with "self" and
 * "mounts", has only ordinary ones. last: it is the end of the path. */
static int walk_check_link(int link, int dir, const struct stat *st, bool last)
{
        struct statfs fs;
        struct stat dir_st;

        if (fstatfs(link, &fs) < 0 || fstatat(dir, "", &dir_st, AT_EMPTY_PATH) < 0)
                return -errno;
        if (fs.f_type == AAFS_MAGIC)
                return -ELOOP;
        if (fs.f_type == PROC_SUPER_MAGIC &&
            (dir_st.st_dev != st->st_dev || dir_st.st_ino != PROC_ROOT_INODE))
                return -ELOOP;
        if (fs.f_flags & ST_NOSYMFOLLOW)
                return -ELOOP;
        /* The rule of fs.protected_symlinks, which the kernel can't apply to a link that it doesn't follow
         * itself. */
        if (last && (dir_st.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH) &&
            st->st_uid != geteuid() && st->st_uid != dir_st.st_uid)
                return -EACCES;
        return 0;
}

/* Puts the target of the link called name, in the topmost directory, before what is left of the path.
 * -ENOLINK where it is no link (any more). */
static int walk_follow(Walk *w, const char *name)
{
        _cleanup_close_ int link = -EBADF;
        char target[PATH_MAX], *path = NULL;
        struct stat st;
        ssize_t n;
        int r;

        link = openat(walk_top(w), name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (link < 0 || fstat(link, &st) < 0)
                return -errno;
        if (!S_ISLNK(st.st_mode))
                return -ENOLINK;
        if (++w->links > LINKS_MAX)
                return -ELOOP;
        r = walk_check_link(link, walk_top(w), &st, w->rest[0] == '\0');
        if (r < 0)
                return r;
        n = readlinkat(link, "", target, sizeof(target));
        if (n < 0)
                return -errno;
        if (n == 0)
                return -ENOENT;
        if ((size_t) n >= sizeof(target))
                return -ENAMETOOLONG;
        r = text_format(&path, "%.*s%s", (int) n, target, w->rest);
        if (r < 0)
                return r;
        free(w->path);
        w->path = path;
        w->rest = path;
        if (target[0] == '/')
                fd_set_done(&w->dirs);
        return 0;
}

/* Goes through a component that isn't the last one: a directory, or a link that is followed. */
static int walk_step(Walk *w, const char *name)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (streq(name, ".") || streq(name, "..")) {
                /* Going through a directory needs the right to search it, up and down alike. */
                fd = openat(walk_top(w), ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        return -errno;
                if (name[1] == '.')
                        walk_up(w);
                return 0;
        }
        /* O_DIRECTORY also sets off automounts, which O_PATH alone does not. */
        fd = openat(walk_top(w), name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
                if (errno != ENOTDIR && errno != ELOOP)
                        return -errno;
                r = walk_follow(w, name);
                return r == -ENOLINK ? -ENOTDIR : r;
        }
        r = fd_set_take(&w->dirs, fd);
        if (r < 0)
                return r;
        (void) TAKE_FD(fd);
        return 0;
}

/* Opens the last component. *ret_again: it was a link, and the path goes on with its target. */
static int walk_open_last(Walk *w, const char *name, bool slashes, int flags, mode_t mode, bool *ret_again)
{
        bool follow = slashes || !(flags & O_NOFOLLOW);
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r, error;

        if (slashes) {
                if (flags & O_CREAT)
                        return -EISDIR;
                flags |= O_DIRECTORY;
        }
        if ((flags & O_CREAT) && (flags & O_EXCL))
                follow = false;
        if (streq(name, "..")) {
                r = walk_step(w, name);
                if (r < 0)
                        return r;
                name = ".";
        }
        fd = openat(walk_top(w), name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
        error = fd < 0 ? errno : 0;
        if (fd >= 0) {
                /* Only O_PATH opens the link itself. */
                if (!follow || !(flags & O_PATH))
                        return TAKE_FD(fd);
                if (fstat(fd, &st) < 0)
                        return -errno;
                if (!S_ISLNK(st.st_mode))
                        return TAKE_FD(fd);
        } else if (!follow || (error != ELOOP && error != ENOTDIR))
                return -error;
        r = walk_follow(w, name);
        if (r == -ENOLINK)
                return error != 0 ? -error : -ELOOP;
        *ret_again = r >= 0;
        return r;
}

int path_open_in_root_walk(int rootfd, const char *path, int flags, mode_t mode)
{
        _cleanup_(walk_done) Walk w = {.root = rootfd, .rest = path};
        char name[NAME_MAX + 1];
        int r;

        if (path[0] == '\0')
                return -ENOENT;
        if (strnlen(path, PATH_MAX) >= PATH_MAX)
                return -ENAMETOOLONG;
        for (;;) {
                const char *s;
                size_t n, slashes;
                bool again = false;

                n = next_component(&w.rest, &s);
                if (n == 0)
                        /* Nothing but slashes, there or behind a link. */
                        return walk_open_last(&w, ".", false, flags, mode, &again);
                if (n > NAME_MAX)
                        return -ENAMETOOLONG;
                memcpy(name, s, n);
                name[n] = '\0';
                slashes = strspn(w.rest, "/");
                if (w.rest[slashes] != '\0')
                        r = walk_step(&w, name);
                else {
                        r = walk_open_last(&w, name, slashes > 0, flags, mode, &again);
                        if (!again)
                                return r;
                }
                if (r < 0)
                        return r;
        }
}

int path_open_in_root(int rootfd, const char *path, int flags, mode_t mode)
{
        struct open_how how = {
                .flags = (uint64_t) (unsigned) (flags | O_CLOEXEC),
                .mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? mode & 07777 : 0,
                .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
        };
        unsigned attempt;

        /* EAGAIN: something, anywhere, was renamed or mounted while ".." was resolved, so the kernel can't
         * vouch for the result. The walk has no such doubt, so that it is the way out of a machine that never
         * rests. */
        for (attempt = 0; attempt < 16; attempt++) {
                long fd = syscall(SYS_openat2, rootfd, path, &how, sizeof(how));

                if (fd >= 0)
                        return (int) fd;
                if (errno == EAGAIN || errno == EINTR)
                        continue;
                if (errno != ENOSYS && errno != EPERM)
                        return -errno;
                break;
        }
        return path_open_in_root_walk(rootfd, path, flags, mode);
}

/* Makes the directory at the end of path, which the parent's descriptor leads to, and opens it. */
static int make_directory(int rootfd, int parent, const char *path, const char *name, mode_t mode,
                          unsigned *created)
{
        int fd;

        if (mkdirat(parent, name, mode) < 0) {
                /* Made by another meanwhile, or a link that points to nothing: opening tells. */
                if (errno != EEXIST)
                        return -errno;
                return path_open_in_root(rootfd, path, O_PATH | O_DIRECTORY, 0);
        }
        (*created)++;
        fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int path_make_directories_in_root(int rootfd, const char *path, mode_t mode, unsigned *ret_created)
{
        _cleanup_close_ int current = -EBADF;
        char prefix[PATH_MAX], name[NAME_MAX + 1];
        const char *p = path, *s;
        unsigned created = 0;
        size_t n;

        if (path[0] != '/')
                return -EINVAL;
        if (!path_is_absolute(path))
                return -ENAMETOOLONG;
        current = path_open_in_root(rootfd, "/", O_PATH | O_DIRECTORY, 0);
        if (current < 0)
                return current;
        /* Each prefix is resolved from the root again, so that links among the existing directories mean what
         * they mean to everyone. */
        while ((n = next_component(&p, &s)) > 0) {
                int fd;

                if (n > NAME_MAX)
                        return -ENAMETOOLONG;
                memcpy(name, s, n);
                name[n] = '\0';
                memcpy(prefix, path, (size_t) (p - path));
                prefix[p - path] = '\0';
                fd = path_open_in_root(rootfd, prefix, O_PATH | O_DIRECTORY, 0);
                if (fd == -ENOENT)
                        fd = make_directory(rootfd, current, prefix, name, mode, &created);
                if (fd < 0)
                        return fd;
                (void) close_fd(current);
                current = fd;
        }
        if (ret_created)
                *ret_created = created;
        return TAKE_FD(current);
}

/* Opens a directory below parent for readdir(3), without following a link; NULL with errno. */
static DIR *open_listing(int parent, const char *name)
{
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d)
                (void) close_fd(fd);
        return d;
}

/* The next entry but "." and "..": 1, or 0 at the end. */
static int next_entry(DIR *d, const char **ret)
{
        const struct dirent *entry;

        do {
                errno = 0;
                entry = readdir(d);
                if (!entry)
                        return errno > 0 ? -errno : 0;
        } while (is_dot(entry->d_name, strlen(entry->d_name)) ||
                 is_dot_dot(entry->d_name, strlen(entry->d_name)));
        *ret = entry->d_name;
        return 1;
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(char *const *) a, *(char *const *) b);
}

int path_list_directory(int dirfd, bool (*wanted)(const char *name), size_t max, char ***ret)
{
        _cleanup_(closedirp) DIR *d = NULL;
        _cleanup_strv_ char **names = NULL;
        size_t n = 0, allocated = 16;
        const char *name = "";
        int r;

        d = open_listing(dirfd, ".");
        if (!d)
                return -errno;
        names = calloc(allocated, sizeof(char *));
        if (!names)
                return -ENOMEM;
        while ((r = next_entry(d, &name)) > 0) {
                if (!wanted(name))
                        continue;
                if (n >= max)
                        return -E2BIG;
                if (n + 1 == allocated) {
                        char **larger = reallocarray(names, allocated * 2, sizeof(char *));

                        if (!larger)
                                return -ENOMEM;
                        names = larger;
                        allocated *= 2;
                }
                names[n] = strdup(name);
                if (!names[n])
                        return -ENOMEM;
                names[++n] = NULL;
        }
        if (r < 0)
                return r;
        qsort(names, n, sizeof(char *), compare_names);
        *ret = TAKE_PTR(names);
        return 0;
}

static int remove_entry(int dirfd, const char *name, unsigned depth, uint64_t *left);

/* Removes what is in a directory, once through. *ret_removed: whether anything was. */
static int remove_entries(DIR *d, unsigned depth, uint64_t *left, bool *ret_removed)
{
        bool removed = false;
        const char *name = "";
        int r;

        while ((r = next_entry(d, &name)) > 0) {
                r = remove_entry(dirfd(d), name, depth, left);
                if (r < 0 && r != -ENOENT)
                        return r;
                removed = true;
        }
        if (r < 0)
                return r;
        *ret_removed = removed;
        return 0;
}

static int remove_directory(int parent, const char *name, unsigned depth, uint64_t *left)
{
        _cleanup_(closedirp) DIR *d = NULL;

        if (depth >= DEPTH_MAX)
                return -ELOOP;
        d = open_listing(parent, name);
        if (!d)
                return -errno;
        for (;;) {
                bool removed = false;
                int r;

                r = remove_entries(d, depth + 1, left, &removed);
                if (r < 0)
                        return r;
                if (*left == 0)
                        return -E2BIG;
                if (unlinkat(parent, name, AT_REMOVEDIR) >= 0)
                        break;
                /* Some file systems skip entries when others are removed during the reading: again, as long
                 * as that helps. */
                if (errno != ENOTEMPTY || !removed)
                        return -errno;
                rewinddir(d);
        }
        (*left)--;
        return 0;
}

/* As deep as the tree, which DEPTH_MAX and the number of descriptors bound. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static int remove_entry(int dirfd, const char *name, unsigned depth, uint64_t *left)
{
        if (*left == 0)
                return -E2BIG;
        if (unlinkat(dirfd, name, 0) < 0) {
                if (errno != EISDIR)
                        return -errno;
                return remove_directory(dirfd, name, depth, left);
        }
        (*left)--;
        return 0;
}

int path_remove_tree(int dirfd, const char *name, uint64_t max)
{
        return remove_entry(dirfd, name, 0, &max);
}

/* How many bytes at s are one printable character; 0: the first must be escaped. */
static size_t printable(const char *s)
{
        const unsigned char *u = (const unsigned char *) s;

        if (u[0] < 0x20 || u[0] == 0x7f)
                return 0;
        /* The C1 control characters, U+0080 to U+009F, can steer a terminal like those below U+0020. */
        if (u[0] == 0xc2 && u[1] < 0xa0)
                return 0;
        return utf8_character(s, strnlen(s, 4));
}

int path_escape(const char *path, char **ret)
{
        const char *s = path;
        char *text, *p;

        text = p = malloc(strlen(path) * 4 + 1);
        if (!text)
                return -ENOMEM;
        while (*s != '\0') {
                size_t k = printable(s);

                if (k == 0) {
                        p += snprintf(p, 5, "\\x%02x", (unsigned char) *s);
                        s++;
                } else {
                        p = mempcpy(p, s, k);
                        s += k;
                }
        }
        *p = '\0';
        *ret = text;
        return 0;
}
