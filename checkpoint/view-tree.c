/* The files of a view. Thousands of small ones are the common case: each costs an open, a write and a close,
 * from a directory descriptor that is kept while paths stay in that directory, on two threads. */
#include "checkpoint/view-tree.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "checkpoint/selection.h"

/* One more than a selection is deep. */
#define VIEW_DEPTH_MAX 65U
/* So many entries may stand where a file is to be; a view of ours is never larger. */
#define VIEW_ENTRIES_MAX UINT64_C(16777216)
/* Fewer files than this aren't worth a second thread. */
#define VIEW_ENTRIES_PER_THREAD 256U
#define VIEW_THREADS_MAX        8U
#define VIEW_TEMPORARY          SELECTION_RESERVED_PREFIX "new"

_Static_assert(__builtin_strncmp(VIEW_MARKER, SELECTION_RESERVED_PREFIX,
                                 sizeof(SELECTION_RESERVED_PREFIX) - 1) == 0,
               "the marker must be among the reserved names");

void view_tree_done(ViewTree *t)
{
        for (size_t i = 0; i < t->n; i++)
                free(t->entries[i].path);
        free(t->entries);
        if (t->pack)
                (void) munmap((void *) t->pack, t->pack_size);
        *t = (ViewTree){};
}

static int tree_fail(const ViewTree *t, ViewFault *fault, int error, const char *what, const char *entry)
{
        _cleanup_free_ char *text = NULL;
        char size[SIZE_TEXT_MAX];
        int r;

        if (error == -ENOMEM)
                return error;
        r = path_escape(entry, &text);
        if (r < 0)
                return r;
        if (error == -ENOSPC || error == -EDQUOT)
                return view_fault_set(
                        fault, VIEW_FAILED, error, t->options->path,
                        "cannot %s '%s': %m: its %zu files, of which the small ones are copied, need %s; "
                        "make room or choose another --view",
                        what, text, t->n, format_size(size, t->small_bytes));
        return view_fault_set(fault, VIEW_FAILED, error, t->options->path, "cannot %s '%s': %m", what, text);
}

static bool path_is_reserved(const char *path)
{
        return startswith(path, SELECTION_RESERVED_PREFIX) || strstr(path, "/" SELECTION_RESERVED_PREFIX);
}

static int tree_add(ViewTree *t, ManifestFile *f, ViewFault *fault)
{
        ViewEntry *e;

        if (path_is_reserved(f->path)) {
                _cleanup_free_ char *text = NULL;
                int r = path_escape(f->path, &text);

                return r < 0 ? r
                             : view_fault_set(fault, VIEW_FAILED, -EINVAL, t->options->path,
                                              "the file '%s' has a name that is kept for the view itself: "
                                              "leave it out "
                                              "with --exclude",
                                              text);
        }
        if (f->packed && f->identity.size > 0 &&
            (f->offset > t->pack_size || f->identity.size > t->pack_size - f->offset))
                return view_fault_set(
                        fault, VIEW_FAILED, -EBADMSG, t->options->path,
                        "the manifest has a file that lies outside of the pack: stop the cache and start "
                        "it again");
        if (t->n == t->allocated) {
                size_t n = t->allocated > 0 ? t->allocated * 2 : 64;
                ViewEntry *entries = reallocarray(t->entries, n, sizeof(ViewEntry));

                if (!entries)
                        return -ENOMEM;
                t->entries = entries;
                t->allocated = n;
        }
        e = &t->entries[t->n++];
        *e = (ViewEntry){
                .path = TAKE_PTR(f->path),
                .size = f->identity.size,
                .offset = f->offset,
                .descriptor = f->packed ? -1 : (int64_t) f->descriptor,
        };
        if (f->packed)
                t->small_bytes += f->identity.size;
        return 0;
}

static int fail_manifest(ViewFault *fault, int error, const char *path)
{
        if (error == -ENOMEM)
                return error;
        return view_fault_set(fault, VIEW_FAILED, error, path,
                              "cannot read the cache's manifest: %m: stop the cache and start it again");
}

static int tree_map_pack(ViewTree *t, int pack_fd, ViewFault *fault)
{
        struct stat st;
        void *p;

        if (pack_fd < 0)
                return 0;
        if (fstat(pack_fd, &st) < 0 || st.st_size < 0)
                return view_fault_set(fault, VIEW_FAILED, -EIO, t->options->path,
                                      "cannot look at the small files");
        if (st.st_size == 0)
                return 0;
        /* Private, since older kernels refuse any shared mapping of a sealed file; nothing is written to it.
         */
        p = mmap(NULL, (size_t) st.st_size, PROT_READ, MAP_PRIVATE, pack_fd, 0);
        if (p == MAP_FAILED)
                return view_fault_set(fault, VIEW_FAILED, -errno, t->options->path,
                                      "cannot map the small files: %m");
        (void) madvise(p, (size_t) st.st_size, MADV_DONTDUMP); /* best effort, as is the next */
        (void) madvise(p, (size_t) st.st_size, MADV_POPULATE_READ);
        t->pack = p;
        t->pack_size = (uint64_t) st.st_size;
        return 0;
}

int view_tree_load(ViewTree *t, const ViewOptions *options, int manifest_fd, int pack_fd,
                   ViewFault *ret_fault)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        int r;

        t->options = options;
        t->directory_mode = 0700 | (options->mode & 0444) | (options->mode & 0444) >> 2;
        r = tree_map_pack(t, pack_fd, ret_fault);
        if (r < 0)
                return r;
        r = manifest_reader_new(manifest_fd, &reader);
        if (r < 0)
                return fail_manifest(ret_fault, r, options->path);
        for (;;) {
                _cleanup_manifest_file_ ManifestFile f = {};

                r = manifest_reader_next(reader, &f);
                if (r < 0)
                        return fail_manifest(ret_fault, r, options->path);
                if (r == 0)
                        return 0;
                r = tree_add(t, &f, ret_fault);
                if (r < 0)
                        return r;
        }
}

/* The kernel's own form of a list: linux/posix_acl_xattr.h, whose names differ over versions of its header.
 */
typedef struct AclEntry {
        uint16_t tag, permissions;
        uint32_t id;
} AclEntry;
_Static_assert(sizeof(AclEntry) == 8, "entries follow each other without gaps");
enum {
        ACL_VERSION = 2,
        ACL_OWNER = 0x01,
        ACL_USER = 0x02,
        ACL_GROUP = 0x04,
        ACL_MASK = 0x10,
        ACL_OTHER = 0x20,
};
#define ACL_NO_ID UINT32_MAX

static AclEntry acl_entry(unsigned tag, mode_t permissions, uint32_t id)
{
        return (AclEntry){htole16((uint16_t) tag), htole16((uint16_t) (permissions & 7)), htole32(id)};
}

/* The mode, and the reader, who may do what the owner may but write. What stat(2) shows as the group's
 * permissions is the list's mask from then on, and the group's own are in the list. */
static int set_reader(const ViewOptions *o, int fd, mode_t mode)
{
        const mode_t reads = mode >> 6 & 5, group = mode >> 3 & 7;
        struct {
                uint32_t version;
                AclEntry entries[5];
        } list = {
                .version = htole32(ACL_VERSION),
                .entries =
                        {
                                acl_entry(ACL_OWNER, mode >> 6, ACL_NO_ID),
                                acl_entry(ACL_USER, reads, o->reader),
                                acl_entry(ACL_GROUP, group, ACL_NO_ID),
                                acl_entry(ACL_MASK, reads | group, ACL_NO_ID),
                                acl_entry(ACL_OTHER, mode, ACL_NO_ID),
                        },
        };

        return fsetxattr(fd, "system.posix_acl_access", &list, sizeof(list), 0) < 0 ? -errno : 0;
}

int view_tree_adjust(const ViewTree *t, int fd, mode_t mode)
{
        const ViewOptions *o = t->options;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (o->gid != (gid_t) -1 && st.st_gid != o->gid && fchown(fd, (uid_t) -1, o->gid) < 0)
                return -errno;
        if ((st.st_mode & 0777) != mode && fchmod(fd, mode) < 0)
                return -errno;
        return o->has_reader ? set_reader(o, fd, mode) : 0;
}

/* The directory that the last path was in, with all above it: paths come sorted, so that the next one mostly
 * shares it. */
typedef struct Cursor {
        const ViewTree *tree; /* NULL: directories are only opened */
        int top_fd;           /* not owned */
        unsigned depth;
        int fds[VIEW_DEPTH_MAX];
        size_t ends[VIEW_DEPTH_MAX]; /* of each directory's path, in path */
        char path[PATH_MAX];
} Cursor;

static void cursor_done(Cursor *c)
{
        while (c->depth > 0)
                (void) close_fd(c->fds[--c->depth]);
}
#define _cleanup_cursor_ _cleanup_(cursor_done)

static int open_directory(int parent, const char *name)
{
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

static int make_directory(const ViewTree *t, int parent, const char *name)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (mkdirat(parent, name, t->directory_mode) < 0 && errno != EEXIST)
                return -errno;
        fd = open_directory(parent, name);
        if ((fd == -ENOTDIR || fd == -ELOOP) && t->replace) {
                /* A file or link of the view that was. The other thread may be doing the same. */
                if (unlinkat(parent, name, 0) < 0 && errno != ENOENT && errno != EISDIR)
                        return -errno;
                if (mkdirat(parent, name, t->directory_mode) < 0 && errno != EEXIST)
                        return -errno;
                fd = open_directory(parent, name);
        }
        if (fd < 0)
                return fd;
        r = view_tree_adjust(t, fd, t->directory_mode);
        if (r < 0)
                return r;
        return TAKE_FD(fd);
}

/* Opens (or makes) the directory of a file: its descriptor, which the cursor keeps, and the file's name in
 * it. */
static int cursor_seek(Cursor *c, const char *path, const char **ret_name)
{
        const char *slash = strrchr(path, '/');
        size_t n = slash ? (size_t) (slash - path) : 0, start, end;

        while (c->depth > 0) {
                end = c->ends[c->depth - 1];
                if (end <= n && path[end] == '/' && memcmp(c->path, path, end) == 0)
                        break;
                (void) close_fd(c->fds[--c->depth]);
        }
        for (start = c->depth > 0 ? c->ends[c->depth - 1] + 1 : 0; start < n; start = end + 1) {
                int parent = c->depth > 0 ? c->fds[c->depth - 1] : c->top_fd, fd;

                if (c->depth == VIEW_DEPTH_MAX || n >= sizeof(c->path))
                        return -ENAMETOOLONG;
                end = start + strcspn(path + start, "/");
                if (start > 0)
                        c->path[start - 1] = '/';
                memcpy(c->path + start, path + start, end - start);
                c->path[end] = '\0';
                fd = c->tree ? make_directory(c->tree, parent, c->path + start)
                             : open_directory(parent, c->path + start);
                if (fd < 0)
                        return fd;
                c->fds[c->depth] = fd;
                c->ends[c->depth++] = end;
        }
        *ret_name = slash ? slash + 1 : path;
        return c->depth > 0 ? c->fds[c->depth - 1] : c->top_fd;
}

/* A thread's share. */
typedef struct Writer {
        const ViewTree *tree;
        size_t begin, end;
        unsigned number;
        atomic_bool *stop; /* another one failed */
        Cursor cursor;
        ViewFault fault;
        int result;
} Writer;

static int write_small(const ViewTree *t, const ViewEntry *e, int directory, const char *name)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, t->options->mode);
        if (fd < 0)
                return -errno;
        r = e->size > 0 ? fd_write_full(fd, t->pack + e->offset, e->size) : 0;
        if (r >= 0 && (t->fix_mode || t->fix_group || t->options->has_reader))
                r = view_tree_adjust(t, fd, t->options->mode);
        /* Some file systems say only now that there is no room. */
        if (close(TAKE_FD(fd)) < 0 && r >= 0 && errno != EINTR)
                r = -errno;
        if (r < 0)
                (void) unlinkat(directory, name, 0);
        return r;
}

static int write_link(const ViewTree *t, const ViewEntry *e, int directory, const char *name)
{
        char target[64];

        (void) snprintf(target, sizeof(target), "/proc/%lld/fd/%lld", (long long) t->options->pid,
                        (long long) e->descriptor);
        return symlinkat(target, directory, name) < 0 ? -errno : 0;
}

static int write_new(const ViewTree *t, const ViewEntry *e, int directory, const char *name)
{
        return e->descriptor < 0 ? write_small(t, e, directory, name) : write_link(t, e, directory, name);
}

static int write_over(const Writer *w, const ViewEntry *e, int directory, const char *name)
{
        char temporary[sizeof(VIEW_TEMPORARY) + 16];
        int r;

        (void) snprintf(temporary, sizeof(temporary), "%s-%u", VIEW_TEMPORARY, w->number);
        r = write_new(w->tree, e, directory, temporary);
        if (r == -EEXIST) { /* of a publication that was killed */
                r = path_remove_tree(directory, temporary, VIEW_ENTRIES_MAX);
                if (r >= 0 || r == -ENOENT)
                        r = write_new(w->tree, e, directory, temporary);
        }
        if (r < 0)
                return r;
        if (renameat(directory, temporary, directory, name) >= 0)
                return 0;
        r = -errno;
        if (r == -EISDIR || r == -ENOTEMPTY || r == -EEXIST) { /* a directory of the view that was */
                r = path_remove_tree(directory, name, VIEW_ENTRIES_MAX);
                if (r >= 0)
                        r = renameat(directory, temporary, directory, name) < 0 ? -errno : 0;
        }
        if (r < 0)
                (void) unlinkat(directory, temporary, 0);
        return r;
}

static void writer_run(Writer *w)
{
        for (size_t i = w->begin; i < w->end && !atomic_load_explicit(w->stop, memory_order_relaxed); i++) {
                const ViewEntry *e = &w->tree->entries[i];
                const char *name;
                int directory, r;

                directory = cursor_seek(&w->cursor, e->path, &name);
                if (directory < 0)
                        r = tree_fail(w->tree, &w->fault, directory, "make the directory of", e->path);
                else {
                        r = w->tree->replace ? write_over(w, e, directory, name)
                                             : write_new(w->tree, e, directory, name);
                        if (r < 0)
                                r = tree_fail(w->tree, &w->fault, r, "make", e->path);
                }
                if (r < 0) {
                        w->result = r;
                        atomic_store_explicit(w->stop, true, memory_order_relaxed);
                        return;
                }
        }
}

static void *writer_thread(void *userdata)
{
        writer_run(userdata);
        return NULL;
}

/* Whether new files get the permissions that they are made with: the umask, default ACLs and set-group-ID
 * directories have a say, and the marker has met them all. */
static int tree_learn(ViewTree *t, int directory_fd)
{
        struct stat st;

        if (fstatat(directory_fd, VIEW_MARKER, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        t->fix_mode = (st.st_mode & 07777) != t->options->mode;
        t->fix_group = t->options->gid != (gid_t) -1 && st.st_gid != t->options->gid;
        if (t->fix_mode || t->fix_group || t->options->has_reader) {
                _cleanup_close_ int fd = openat(directory_fd, VIEW_MARKER, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

                return fd < 0 ? -errno : view_tree_adjust(t, fd, t->options->mode);
        }
        return 0;
}

static unsigned tree_threads(const ViewTree *t)
{
        unsigned n = t->options->threads;
        cpu_set_t cpus;

        if (n == 0)
                n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 1 ? 2 : 1;
        n = MIN2(n, VIEW_THREADS_MAX);
        return (unsigned) MIN2((size_t) n, t->n / VIEW_ENTRIES_PER_THREAD + 1);
}

int view_tree_write(ViewTree *t, int directory_fd, ViewFault *ret_fault)
{
        unsigned n = tree_threads(t);
        _cleanup_free_ Writer *writers = NULL;
        pthread_t threads[VIEW_THREADS_MAX];
        bool started[VIEW_THREADS_MAX] = {};
        atomic_bool stop = false;
        int r;

        r = tree_learn(t, directory_fd);
        if (r < 0)
                return tree_fail(t, ret_fault, r, "set the permissions of", VIEW_MARKER);
        writers = calloc(n, sizeof(Writer));
        if (!writers)
                return -ENOMEM;
        for (unsigned i = 0; i < n; i++) {
                writers[i].tree = t;
                writers[i].number = i;
                writers[i].begin = t->n * i / n;
                writers[i].end = t->n * (i + 1) / n;
                writers[i].stop = &stop;
                writers[i].cursor.tree = t;
                writers[i].cursor.top_fd = directory_fd;
        }
        for (unsigned i = 1; i < n; i++)
                started[i] = pthread_create(&threads[i], NULL, writer_thread, &writers[i]) == 0;
        writer_run(&writers[0]);
        for (unsigned i = 1; i < n; i++) {
                if (started[i])
                        (void) pthread_join(threads[i], NULL);
                else
                        writer_run(&writers[i]);
        }

        r = 0;
        for (unsigned i = 0; i < n; i++) {
                cursor_done(&writers[i].cursor);
                if (r >= 0 && writers[i].result < 0) {
                        r = writers[i].result;
                        if (ret_fault && !ret_fault->message) {
                                *ret_fault = writers[i].fault;
                                writers[i].fault = (ViewFault){};
                        }
                }
                view_fault_done(&writers[i].fault);
        }
        return r;
}

/* Where path is, or would be, among the entries. */
static size_t tree_find(const ViewTree *t, const char *path)
{
        size_t low = 0, high = t->n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (strcmp(t->entries[middle].path, path) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static bool tree_has(const ViewTree *t, const char *path, bool directory)
{
        size_t i = t ? tree_find(t, path) : 0;

        if (!t || i == t->n)
                return false;
        /* A directory's path ends in '/', and so sorts before all that is in it. */
        return directory ? startswith(t->entries[i].path, path) != NULL : streq(t->entries[i].path, path);
}

static int prune_directory(const ViewTree *t, int fd, char *path, size_t length, uint64_t *n_removed);

/* path[length] is where the entry's own name is put. */
static int prune_entry(const ViewTree *t, int fd, const char *name, char *path, size_t length,
                       uint64_t *n_removed)
{
        size_t n = strlen(name);
        struct stat st;
        int r;

        if (streq(name, ".") || streq(name, "..") || (length == 0 && streq(name, VIEW_MARKER)))
                return 0;
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (length + n + 1 < PATH_MAX) {
                memcpy(path + length, name, n + 1);
                if (!S_ISDIR(st.st_mode)) {
                        if (tree_has(t, path, false))
                                return 0;
                } else {
                        path[length + n] = '/';
                        path[length + n + 1] = '\0';
                        if (tree_has(t, path, true)) {
                                _cleanup_close_ int child = open_directory(fd, name);
                                return child < 0 ? child
                                                 : prune_directory(t, TAKE_FD(child), path, length + n + 1,
                                                                   n_removed);
                        }
                }
        }
        ++*n_removed;
        if (!S_ISDIR(st.st_mode) && unlinkat(fd, name, 0) >= 0)
                return 0;
        r = path_remove_tree(fd, name, VIEW_ENTRIES_MAX);
        return r == -ENOENT ? 0 : r;
}

/* Consumes fd. As deep as the manifest's paths, so at most VIEW_DEPTH_MAX. */
static int prune_directory(const ViewTree *t, int fd, char *path, size_t length, uint64_t *n_removed)
{
        const struct dirent *entry;
        int r = 0;
        DIR *d;

        d = fdopendir(fd);
        if (!d) {
                r = -errno;
                (void) close_fd(fd);
                return r;
        }
        while (r >= 0) {
                errno = 0;
                entry = readdir(d);
                if (!entry) {
                        r = -errno;
                        break;
                }
                r = prune_entry(t, fd, entry->d_name, path, length, n_removed);
        }
        (void) closedir(d);
        return r;
}

int view_tree_prune(const ViewTree *t, int directory_fd)
{
        char path[PATH_MAX];

        /* Removing while reading may hide entries from readdir(3), so until a pass finds nothing; bounded,
         * since somebody may be putting in new ones. */
        for (unsigned pass = 0; pass < 16; pass++) {
                uint64_t n_removed = 0;
                int fd, r;

                fd = open_directory(directory_fd, ".");
                if (fd < 0)
                        return fd;
                r = prune_directory(t, fd, path, 0, &n_removed);
                if (r < 0)
                        return r;
                if (n_removed == 0)
                        return 0;
        }
        return -ENOTEMPTY;
}

static int probe_file(Cursor *c, const ManifestFile *f, const char **ret_reason)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        const char *name;
        int directory;

        *ret_reason = NULL;
        directory = cursor_seek(c, f->path, &name);
        if (directory < 0)
                return directory;
        /* A large file's link is to be followed: through /proc, as every reader does. */
        fd = openat(directory, name,
                    O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (f->packed ? O_NOFOLLOW : 0));
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != f->identity.size)
                *ret_reason = "has another size than the cache's file";
        else if (!f->packed && (st.st_dev != f->memory_device || st.st_ino != f->memory_inode))
                *ret_reason = "leads to another file than the cache's";
        return *ret_reason ? -ESTALE : 0;
}

int view_tree_probe(int directory_fd, const char *path, int manifest_fd, uint64_t *ret_files,
                    ViewFault *ret_fault)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        _cleanup_cursor_ Cursor cursor = {.top_fd = directory_fd};
        uint64_t n = 0;
        int r;

        r = manifest_reader_new(manifest_fd, &reader);
        if (r < 0)
                return fail_manifest(ret_fault, r, path);
        for (;; n++) {
                _cleanup_manifest_file_ ManifestFile f = {};
                _cleanup_free_ char *text = NULL;
                const char *reason;
                int k;

                r = manifest_reader_next(reader, &f);
                if (r < 0)
                        return fail_manifest(ret_fault, r, path);
                if (r == 0)
                        break;
                r = probe_file(&cursor, &f, &reason);
                if (r >= 0)
                        continue;
                k = path_escape(f.path, &text);
                if (k < 0)
                        return k;
                if (reason)
                        return view_fault_set(ret_fault, VIEW_FAILED, r, path,
                                              "'%s' %s: start the cache again", text, reason);
                return view_fault_set(
                        ret_fault, VIEW_FAILED, r, path,
                        "'%s' can't be opened: %m: readers must have the owner's user and see its "
                        "processes in /proc",
                        text);
        }
        *ret_files = n;
        return 0;
}
