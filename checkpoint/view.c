/* Where a view stands: whether the place may be used, making the view appear there, and taking it away. All
 * of it goes through the directory that the view is in, opened once below the root of whoever named the path.
 */
#include "checkpoint/view.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "checkpoint/source.h"
#include "checkpoint/view-marker.h"
#include "checkpoint/view-tree.h"

#define TEMPORARY_SUFFIX ".iloader-new"
/* A view that was being made and never appeared has no more entries than this. */
#define TEMPORARY_ENTRIES_MAX UINT64_C(16777216)

void view_fault_done(ViewFault *f)
{
        free(f->path);
        free(f->message);
        *f = (ViewFault){};
}

int view_fault_set(ViewFault *f, ViewFaultKind kind, int error, const char *path, const char *format, ...)
{
        _cleanup_free_ char *detail = NULL, *message = NULL, *text = NULL, *copy = NULL;
        va_list ap;
        int r;

        if (!f || f->message)
                return error;

        errno = -error;
        va_start(ap, format);
        r = text_vformat(&detail, format, ap);
        va_end(ap);
        if (r < 0)
                return r;
        r = path_escape(path, &text);
        if (r < 0)
                return r;
        r = text_format(&message, "view '%s': %s", text, detail);
        if (r < 0)
                return r;
        copy = strdup(path);
        if (!copy)
                return -ENOMEM;
        f->kind = kind;
        f->path = TAKE_PTR(copy);
        f->message = TAKE_PTR(message);
        return error;
}

static int view_fail(ViewFault *fault, int error, const char *path, const char *what)
{
        if (error == -ENOMEM)
                return error;
        return view_fault_set(fault, VIEW_FAILED, error, path,
                              "cannot %s: %m: see to that, or choose another --view", what);
}

/* The same of a removal, for which there is no other place. */
static int view_remove_fail(ViewFault *fault, int error, const char *path, const char *what)
{
        if (error == -ENOMEM)
                return error;
        return view_fault_set(fault, VIEW_FAILED, error, path, "cannot %s: %m", what);
}

#define view_conflict(fault, path, ...) view_fault_set(fault, VIEW_CONFLICT, -EEXIST, path, __VA_ARGS__)

/* The place of a view: its path taken apart. */
typedef struct Place {
        int root_fd; /* not owned */
        char *path;  /* normal; owned, as is the next */
        char *parent;
        const char *name; /* into path */
        char temporary[NAME_MAX + 1];
} Place;

static void place_done(Place *p)
{
        free(p->path);
        free(p->parent);
}
#define _cleanup_place_ _cleanup_(place_done)

static int place_init(Place *p, int root_fd, const char *path, ViewFault *fault)
{
        int r;

        p->root_fd = root_fd;
        if (!path_is_absolute(path)) {
                r = view_fault_set(fault, VIEW_FAILED, -EINVAL, path,
                                   "is not an absolute path of less than %d bytes", PATH_MAX);
                return r < 0 ? r : -EINVAL;
        }
        r = path_normalize(path, &p->path);
        if (r < 0)
                return r;
        if (streq(p->path, "/")) {
                r = view_conflict(fault, path, "is the root directory: choose another --view");
                return r < 0 ? r : -EEXIST;
        }
        r = path_split(p->path, &p->parent, &p->name);
        if (r < 0)
                return r;
        /* Cut where the name leaves no room; two names that agree so far are told apart by the marker. */
        (void) snprintf(p->temporary, sizeof(p->temporary), ".%.*s%s",
                        (int) (NAME_MAX - 1 - strlen(TEMPORARY_SUFFIX)), p->name, TEMPORARY_SUFFIX);
        return 0;
}

/* What is at a place. */
typedef enum Occupant {
        OCCUPANT_NONE,
        OCCUPANT_EMPTY, /* an empty directory of ours */
        OCCUPANT_OURS,  /* our view of this name */
} Occupant;

static int refuse_occupant(const struct stat *st, const char *path, ViewFault *fault)
{
        const char *what = S_ISLNK(st->st_mode)   ? "a symbolic link"
                           : S_ISREG(st->st_mode) ? "a file"
                                                  : "something that is no directory";

        return view_conflict(fault, path, "%s is there already: remove it or choose another --view", what);
}

static int examine_directory(int fd, const char *name, const char *path, ViewFault *fault)
{
        _cleanup_free_ char *marked = NULL, *text = NULL;
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return view_fail(fault, -errno, path, "look at it");
        if (st.st_uid != geteuid())
                return view_conflict(fault, path,
                                     "a directory of another user (uid %u) is there: choose another --view",
                                     (unsigned) st.st_uid);
        r = view_marker_check(fd, name, &marked);
        if (r == 0)
                return OCCUPANT_OURS;
        if (r == -EREMCHG && marked) {
                r = path_escape(marked, &text);
                return r < 0 ? r
                             : view_conflict(fault, path,
                                             "the view of cache '%s' is there: stop that with --remove-view "
                                             "or choose "
                                             "another --view",
                                             text);
        }
        if (r != -ENODATA && r != -EEXIST)
                return view_fail(fault, r, path, "read its marker " VIEW_MARKER);
        if (r == -EEXIST || r == -ENODATA) {
                int k = view_marker_directory_is_empty(fd);

                if (k < 0)
                        return view_fail(fault, k, path, "read the directory that is there");
                if (k > 0)
                        return OCCUPANT_EMPTY;
        }
        if (r == -EEXIST)
                return view_conflict(fault, path,
                                     "the directory that is there has a marker " VIEW_MARKER
                                     " that is not valid: remove it or choose another --view");
        return view_conflict(
                fault, path,
                "a directory that is not an iloader view is there, and it is not empty: choose another "
                "--view");
}

/* The occupant, or a refusal where it isn't ours; *ret_fd: the directory, -EBADF where there is none. */
static int examine(int parent_fd, const char *entry, const char *name, const char *path, int *ret_fd,
                   ViewFault *fault)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r;

        *ret_fd = -EBADF;
        if (fstatat(parent_fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? OCCUPANT_NONE : view_fail(fault, -errno, path, "look at it");
        if (!S_ISDIR(st.st_mode))
                return refuse_occupant(&st, path, fault);
        fd = openat(parent_fd, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
                if (errno == EACCES && st.st_uid != geteuid())
                        return view_conflict(
                                fault, path,
                                "a directory of another user (uid %u) is there: choose another --view",
                                (unsigned) st.st_uid);
                return view_fail(fault, -errno, path, "open the directory that is there");
        }
        r = examine_directory(fd, name, path, fault);
        if (r >= 0)
                *ret_fd = TAKE_FD(fd);
        return r;
}

/* The nearest directory above the place that is there: a descriptor; *ret_path is its path, as it was named.
 */
static int open_nearest(const Place *p, char **ret_path, unsigned *ret_missing, ViewFault *fault)
{
        _cleanup_free_ char *path = NULL;
        unsigned missing = 0;

        path = strdup(p->parent);
        if (!path)
                return -ENOMEM;
        for (;;) {
                int fd = path_open_in_root(p->root_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
                char *slash;

                if (fd >= 0) {
                        *ret_path = TAKE_PTR(path);
                        *ret_missing = missing;
                        return fd;
                }
                slash = strrchr(path, '/');
                if (fd == -ENOTDIR || fd == -ELOOP)
                        return view_conflict(fault, p->path,
                                             "what it would be in is not a directory: choose another --view");
                if (fd != -ENOENT || slash[1] == '\0')
                        return view_fail(fault, fd, p->path, "open the directory that it is to be in");
                slash[slash == path ? 1 : 0] = '\0';
                missing++;
        }
}

/* The path that the place has or will have, with links resolved. */
static int resolve_place(const Place *p, const char *nearest, char **ret)
{
        _cleanup_free_ char *real = NULL;
        int r;

        r = source_real_path(p->root_fd, nearest, &real);
        if (r < 0)
                return r;
        return path_join(real, p->path + (streq(nearest, "/") ? 1 : strlen(nearest) + 1), ret);
}

/* Whether the directory, or one above it, is the one of st: a bind mount gives one directory two paths. */
static int is_at_or_above(int root_fd, const char *path, const struct stat *st)
{
        _cleanup_free_ char *copy = strdup(path);

        if (!copy)
                return -ENOMEM;
        for (;;) {
                _cleanup_close_ int fd = path_open_in_root(root_fd, copy, O_PATH | O_CLOEXEC, 0);
                struct stat at;
                char *slash;

                if (fd >= 0 && fstat(fd, &at) >= 0 && at.st_dev == st->st_dev && at.st_ino == st->st_ino)
                        return 1;
                slash = strrchr(copy, '/');
                if (slash[1] == '\0')
                        return 0;
                slash[slash == copy ? 1 : 0] = '\0';
        }
}

static int check_overlap(const Place *p, const char *nearest, const char *source, ViewFault *fault)
{
        _cleanup_free_ char *real = NULL, *text = NULL;
        _cleanup_close_ int fd = -EBADF;
        const char *how = NULL;
        struct stat st;
        int r;

        r = resolve_place(p, nearest, &real);
        if (r < 0)
                return view_fail(fault, r, p->path, "resolve its path");
        if (path_is_below(real, source))
                how = "is inside";
        else if (path_is_below(source, real))
                how = "is around";
        else {
                fd = path_open_in_root(p->root_fd, source, O_PATH | O_CLOEXEC, 0);
                if (fd >= 0 && fstat(fd, &st) >= 0) {
                        r = is_at_or_above(p->root_fd, real, &st);
                        if (r < 0)
                                return r;
                        if (r > 0)
                                how = "is inside";
                }
                close_fdp(&fd);
                fd = path_open_in_root(p->root_fd, real, O_PATH | O_CLOEXEC, 0);
                if (!how && fd >= 0 && fstat(fd, &st) >= 0) {
                        r = is_at_or_above(p->root_fd, source, &st);
                        if (r < 0)
                                return r;
                        if (r > 0)
                                how = "is around";
                }
        }
        if (!how)
                return 0;
        r = path_escape(source, &text);
        return r < 0 ? r
                     : view_conflict(fault, p->path, "it %s the source '%s': choose another --view", how,
                                     text);
}

/* A view inside another one would go with that one's next publication or its end. */
static int check_not_in_view(const Place *p, const char *name, const char *nearest, ViewFault *fault)
{
        _cleanup_free_ char *path = NULL;
        int r;

        r = source_real_path(p->root_fd, nearest, &path);
        if (r < 0)
                return view_fail(fault, r, p->path, "resolve its path");
        for (;;) {
                _cleanup_free_ char *marked = NULL, *shown = NULL, *shown_name = NULL;
                _cleanup_close_ int fd =
                        path_open_in_root(p->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
                char *slash;

                r = fd >= 0 ? view_marker_check(fd, name, &marked) : -ENODATA;
                if (r == 0 || r == -EREMCHG) {
                        r = path_escape(path, &shown);
                        if (r >= 0)
                                r = path_escape(marked ? marked : name, &shown_name);
                        return r < 0 ? r
                                     : view_conflict(
                                               fault, p->path,
                                               "it is inside the view of cache '%s', %s: choose another "
                                               "--view",
                                               shown_name, shown);
                }
                if (r == -ENOMEM)
                        return r;
                slash = strrchr(path, '/');
                if (slash[1] == '\0')
                        return 0;
                slash[slash == path ? 1 : 0] = '\0';
        }
}

int view_check(int root_fd, const char *name, const char *path, const char *source_real_path,
               ViewFault *ret_fault)
{
        _cleanup_place_ Place p = {};
        _cleanup_close_ int parent_fd = -EBADF, fd = -EBADF;
        _cleanup_free_ char *nearest = NULL;
        unsigned missing;
        int r;

        r = place_init(&p, root_fd, path, ret_fault);
        if (r < 0)
                return r;
        parent_fd = open_nearest(&p, &nearest, &missing, ret_fault);
        if (parent_fd < 0)
                return parent_fd;
        r = check_overlap(&p, nearest, source_real_path, ret_fault);
        if (r >= 0)
                r = check_not_in_view(&p, name, nearest, ret_fault);
        if (r < 0)
                return r;
        if (missing == 0) {
                r = examine(parent_fd, p.name, name, p.path, &fd, ret_fault);
                if (r != OCCUPANT_NONE)
                        return r < 0 ? r : 0;
        }
        /* Better known before gigabytes are read. */
        if (faccessat(parent_fd, ".", W_OK | X_OK, 0) < 0 && (errno == EACCES || errno == EROFS))
                return view_fault_set(
                        ret_fault, VIEW_FAILED, -errno, p.path,
                        "cannot be made: %m: the cache's owner must be able to write to the directory "
                        "above it; or choose another --view");
        return 0;
}

/* Gives the parents that were made the view's permissions, or removes them again. Best effort: they are in
 * nobody's way. */
static void parents_finish(const Place *p, const ViewTree *t, unsigned created, bool remove)
{
        mode_t mode = t->options->parent_mode;
        _cleanup_free_ char *path = strdup(p->parent);

        for (; path && created > 0 && !streq(path, "/"); created--) {
                _cleanup_close_ int fd = -EBADF;
                char *slash = strrchr(path, '/');
                char *name = slash + 1;

                if (!remove) {
                        fd = path_open_in_root(p->root_fd, path,
                                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
                        if (fd >= 0 && mode == 0)
                                (void) view_tree_adjust(t, fd, t->directory_mode);
                        else if (fd >= 0)
                                (void) fchmod(fd, mode);
                        *slash = '\0';
                } else {
                        *slash = '\0';
                        fd = path_open_in_root(p->root_fd, path[0] ? path : "/",
                                               O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
                        if (fd >= 0)
                                (void) unlinkat(fd, name, AT_REMOVEDIR);
                }
                if (path[0] == '\0')
                        return;
        }
}

/* Removes what a publication that was killed left beside the place. */
static int remove_stale(const Place *p, int parent_fd, const char *name, ViewFault *fault)
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *path = NULL;
        int r;

        r = path_join(p->parent, p->temporary, &path);
        if (r < 0)
                return r;
        r = examine(parent_fd, p->temporary, name, path, &fd, fault);
        if (r <= OCCUPANT_NONE)
                return r;
        /* Whoever makes one holds its lock for as long as it lives. */
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
                return view_conflict(fault, p->path,
                                     "another process is publishing it: wait for that to end");
        r = path_remove_tree(parent_fd, p->temporary, TEMPORARY_ENTRIES_MAX);
        return r < 0 && r != -ENOENT ? view_fail(fault, r, path, "remove what an earlier start left") : 0;
}

/* Gives the finished directory its name, which must be free. */
static int appear(const Place *p, int parent_fd)
{
        int r;

        if (renameat2(parent_fd, p->temporary, parent_fd, p->name, RENAME_NOREPLACE) >= 0)
                return 0;
        if (errno != EINVAL && errno != ENOSYS && errno != EPERM)
                return -errno;
        /* A file system that can't: an empty directory of our own claims the name, and rename(2) replaces it
         * only while it is empty. */
        if (mkdirat(parent_fd, p->name, 0700) < 0)
                return -errno;
        if (renameat(parent_fd, p->temporary, parent_fd, p->name) >= 0)
                return 0;
        r = -errno;
        (void) unlinkat(parent_fd, p->name, AT_REMOVEDIR);
        return r;
}

static int fill(ViewTree *t, int fd, ViewFault *fault)
{
        const ViewOptions *o = t->options;
        int r;

        if (!t->replace) {
                r = view_marker_write(fd, o->name, o->mode);
                if (r < 0)
                        return view_fail(fault, r, o->path, "write its marker " VIEW_MARKER);
        }
        r = view_tree_write(t, fd, fault);
        if (r < 0)
                return r;
        if (t->replace) {
                r = view_tree_prune(t, fd);
                if (r < 0)
                        return view_fail(fault, r, o->path, "remove files that are no longer part of it");
        }
        r = view_tree_adjust(t, fd, t->directory_mode);
        return r < 0 ? view_fail(fault, r, o->path, "set its permissions") : 0;
}

static int publish_new(const Place *p, int parent_fd, ViewTree *t, ViewFault *fault)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = remove_stale(p, parent_fd, t->options->name, fault);
        if (r < 0)
                return r;
        if (mkdirat(parent_fd, p->temporary, 0700) < 0)
                return view_fail(fault, -errno, p->path, "make its directory");
        fd = openat(parent_fd, p->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
                r = view_fail(fault, -errno, p->path, "open its directory");
                (void) unlinkat(parent_fd, p->temporary, AT_REMOVEDIR);
                return r;
        }
        (void) flock(fd, LOCK_EX | LOCK_NB); /* not every file system has it */
        r = fill(t, fd, fault);
        if (r >= 0) {
                r = appear(p, parent_fd);
                if (r == -EEXIST || r == -ENOTEMPTY)
                        r = view_conflict(
                                fault, p->path,
                                "something was put there meanwhile: remove it or choose another --view");
                else if (r < 0)
                        r = view_fail(fault, r, p->path, "rename the finished directory to it");
        }
        if (r < 0)
                (void) path_remove_tree(parent_fd, p->temporary, TEMPORARY_ENTRIES_MAX);
        return r;
}

static int publish_into(int fd, ViewTree *t, Occupant occupant, ViewFault *fault)
{
        int r;

        t->replace = occupant == OCCUPANT_OURS;
        r = fill(t, fd, fault);
        if (r < 0) {
                /* Half a view must not be taken for one, and its space is wanted back. */
                (void) view_tree_prune(NULL, fd);
                if (occupant == OCCUPANT_EMPTY)
                        (void) unlinkat(fd, VIEW_MARKER, 0);
        }
        return r;
}

int view_publish(int root_fd, const ViewOptions *options, int manifest_fd, int pack_fd, ViewFault *ret_fault)
{
        _cleanup_view_tree_ ViewTree t = {};
        _cleanup_place_ Place p = {};
        _cleanup_close_ int parent_fd = -EBADF, fd = -EBADF;
        _cleanup_free_ char *nearest = NULL;
        unsigned missing = 0, created = 0;
        int r;

        r = place_init(&p, root_fd, options->path, ret_fault);
        if (r < 0)
                return r;
        r = view_tree_load(&t, options, manifest_fd, pack_fd, ret_fault);
        if (r < 0)
                return r;
        parent_fd = open_nearest(&p, &nearest, &missing, ret_fault);
        if (parent_fd < 0)
                return parent_fd;
        if (missing > 0 && options->parent_mode == (mode_t) -1)
                return view_fail(ret_fault, -ENOENT, p.path,
                                 "make it, since the directory above it is missing");
        if (missing > 0) {
                close_fdp(&parent_fd);
                parent_fd = path_make_directories_in_root(root_fd, p.parent,
                                                          options->parent_mode ?: t.directory_mode, &created);
                if (parent_fd < 0) {
                        r = view_fail(ret_fault, parent_fd, p.path, "make the directories above it");
                        parents_finish(&p, &t, missing, true);
                        return r;
                }
                parents_finish(&p, &t, created, false);
        }

        r = examine(parent_fd, p.name, options->name, p.path, &fd, ret_fault);
        if (r == OCCUPANT_NONE)
                r = publish_new(&p, parent_fd, &t, ret_fault);
        else if (r > OCCUPANT_NONE)
                r = publish_into(fd, &t, (Occupant) r, ret_fault);
        if (r < 0) {
                parents_finish(&p, &t, created, true);
                return r;
        }
        return 0;
}

int view_probe(int root_fd, const char *path, int manifest_fd, uint64_t *ret_files, ViewFault *ret_fault)
{
        _cleanup_place_ Place p = {};
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = place_init(&p, root_fd, path, ret_fault);
        if (r < 0)
                return r;
        /* The directory alone is resolved without magic links; what is in it consists of them. */
        fd = path_open_in_root(root_fd, p.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (fd < 0)
                return view_fail(ret_fault, fd, p.path, "open it");
        return view_tree_probe(fd, p.path, manifest_fd, ret_files, ret_fault);
}

int view_remove(int root_fd, const char *name, const char *path, ViewFault *ret_fault)
{
        _cleanup_place_ Place p = {};
        _cleanup_close_ int parent_fd = -EBADF, fd = -EBADF;
        int r;

        r = place_init(&p, root_fd, path, ret_fault);
        if (r < 0)
                return r;
        parent_fd = path_open_in_root(root_fd, p.parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        if (parent_fd < 0)
                return parent_fd == -ENOENT || parent_fd == -ENOTDIR
                               ? 0
                               : view_remove_fail(ret_fault, parent_fd, p.path,
                                                  "open the directory that it is in");
        /* Nobody is harmed by what can't be removed here; the next publication says so. */
        (void) remove_stale(&p, parent_fd, name, NULL);

        r = examine(parent_fd, p.name, name, p.path, &fd, ret_fault);
        if (r < 0)
                return r;
        if (r != OCCUPANT_OURS)
                return 0;
        /* The marker goes last, so that an interrupted removal can be taken up again. */
        r = view_tree_prune(NULL, fd);
        if (r < 0)
                return view_remove_fail(ret_fault, r, p.path, "remove its files");
        if (unlinkat(fd, VIEW_MARKER, 0) < 0 && errno != ENOENT)
                return view_remove_fail(ret_fault, -errno, p.path, "remove its marker " VIEW_MARKER);
        if (unlinkat(parent_fd, p.name, AT_REMOVEDIR) < 0 && errno != EBUSY && errno != EACCES &&
            errno != EPERM && errno != ENOENT)
                return view_remove_fail(ret_fault, -errno, p.path, "remove its directory");
        return 1;
}
