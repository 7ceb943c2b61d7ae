/* The walk over a source directory. It opens directories only; whether a file can be read is asked, not
 * tried, so that no pipe blocks and no device wakes. */
#include "checkpoint/selection.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "checkpoint/source.h"

/* Directories below one another; deeper trees are no checkpoints, and each level holds a descriptor. */
#define SELECTION_DEPTH_MAX 64U

/* What downloads, repositories and desktops leave beside a checkpoint's files. */
const char *const selection_default_excludes[] = {
        /* unfinished or bookkeeping: huggingface_hub, ModelScope, aria2, curl, browsers, rclone, rsync,
         * gsutil, azcopy, llama.cpp */
        "*.incomplete",
        "*.lock",
        "*.tmp",
        "*.temp",
        "*.part",
        "*.partial",
        "*.aria2",
        "*.aria2__temp",
        "*.crdownload",
        "*.download",
        "*.downloading",
        "*.downloadInProgress",
        "*.gstmp",
        ".azDownload-*",
        ".rsync-partial/",
        ".~tmp~/",
        ".cache/",
        ".huggingface/",
        ".locks/",
        ".no_exist/",
        "._____temp/",
        ".msc",
        ".mdl",
        ".mv",
        /* repositories */
        ".git/",
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        ".hg/",
        ".svn/",
        /* file systems, desktops, interpreters */
        ".nfs*",
        ".fuse_hidden*",
        "lost+found/",
        ".Trash-*/",
        ".DS_Store",
        "._*",
        "__MACOSX/",
        "Thumbs.db",
        "desktop.ini",
        "__pycache__/",
        ".ipynb_checkpoints/",
        /* our own */
        ".iloader-*", /* SELECTION_RESERVED_PREFIX */
        "*.iloader-new/",
        NULL,
};

bool file_identity_equal(const FileIdentity *a, const FileIdentity *b)
{
        return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
               a->device == b->device && a->inode == b->inode;
}

static int64_t timespec_to_ns(const struct timespec *t)
{
        int64_t ns;

        /* File systems can claim any time; beyond the year 2262 it stops. */
        if (__builtin_mul_overflow((int64_t) t->tv_sec, INT64_C(1000000000), &ns) ||
            __builtin_add_overflow(ns, (int64_t) t->tv_nsec, &ns))
                return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
        return ns;
}

FileIdentity file_identity_from_stat(const struct stat *st)
{
        return (FileIdentity){
                .size = (uint64_t) st->st_size,
                .mtime_ns = timespec_to_ns(&st->st_mtim),
                .ctime_ns = timespec_to_ns(&st->st_ctim),
                .device = st->st_dev,
                .inode = st->st_ino,
        };
}

void selection_done(Selection *s)
{
        for (size_t i = 0; i < s->n_files; i++)
                free(s->files[i].path);
        free(s->files);
        *s = (Selection){};
}

void source_fault_done(SourceFault *f)
{
        free(f->path);
        free(f->message);
        *f = (SourceFault){};
}

static int source_fault_error(SourceFaultKind kind)
{
        return kind == SOURCE_CHANGED ? -ESTALE : kind == SOURCE_TOO_MANY ? -E2BIG : -EINVAL;
}

static int source_fault_vset(SourceFault *f, SourceFaultKind kind, const char *path, const char *format,
                             va_list ap) _printf_(4, 0);

static int source_fault_vset(SourceFault *f, SourceFaultKind kind, const char *path, const char *format,
                             va_list ap)
{
        _cleanup_free_ char *message = NULL, *copy = NULL;
        int r;

        if (!f || f->message)
                return source_fault_error(kind);

        r = text_vformat(&message, format, ap); /* first, while errno is the caller's */
        if (r < 0)
                return r;
        copy = strdup(path);
        if (!copy)
                return -ENOMEM;

        f->kind = kind;
        f->path = TAKE_PTR(copy);
        f->message = TAKE_PTR(message);
        return source_fault_error(kind);
}

int source_fault_set(SourceFault *f, SourceFaultKind kind, const char *path, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = source_fault_vset(f, kind, path, format, ap);
        va_end(ap);
        return r;
}

int source_fault_refuse(SourceFault *f, SourceFaultKind kind, const char *source, const char *path,
                        const char *format, ...)
{
        _cleanup_free_ char *source_text = NULL, *path_text = NULL, *detail = NULL;
        va_list ap;
        int r;

        if (!f || f->message)
                return source_fault_error(kind);

        va_start(ap, format);
        r = text_vformat(&detail, format, ap);
        va_end(ap);
        if (r < 0)
                return r;
        r = path_escape(source, &source_text);
        if (r < 0)
                return r;
        if (!path)
                return source_fault_set(f, kind, source, "source '%s' %s", source_text, detail);
        r = path_escape(path, &path_text);
        if (r < 0)
                return r;
        return source_fault_set(f, kind, path, "source '%s': '%s' %s", source_text, path_text, detail);
}

/* A shell pattern, looked at once: nearly all are a name, a beginning or an end, which need no fnmatch(3). */
typedef enum PatternKind {
        PATTERN_EXACT,
        PATTERN_SUFFIX,
        PATTERN_PREFIX,
        PATTERN_GLOB,
} PatternKind;

typedef struct Pattern {
        PatternKind kind;
        bool directory; /* ended in '/' */
        bool whole;     /* holds another '/': for the whole path only */
        size_t length;
        char *text; /* owned; without what the kind stands for */
} Pattern;

typedef struct PatternList {
        Pattern *patterns;
        size_t n;
} PatternList;

static void pattern_list_done(PatternList *l)
{
        for (size_t i = 0; l->patterns && i < l->n; i++)
                free(l->patterns[i].text);
        free(l->patterns);
        *l = (PatternList){};
}
#define _cleanup_pattern_list_ _cleanup_(pattern_list_done)

static int pattern_compile(const char *text, Pattern *ret)
{
        static const char special[] = "*?[\\";
        size_t n = strlen(text), plain;
        Pattern p = {.kind = PATTERN_GLOB};

        if (n > 0 && text[n - 1] == '/') {
                p.directory = true;
                n--;
        }
        p.whole = memchr(text, '/', n);
        plain = strcspn(text, special);
        if (plain >= n)
                p.kind = PATTERN_EXACT;
        else if (plain == n - 1 && text[plain] == '*') {
                p.kind = PATTERN_PREFIX;
                n--;
        } else if (plain == 0 && text[0] == '*' && strcspn(text + 1, special) >= n - 1) {
                p.kind = PATTERN_SUFFIX;
                text++;
                n--;
        }
        p.length = n;
        p.text = strndup(text, n);
        if (!p.text)
                return -ENOMEM;
        *ret = p;
        return 0;
}

/* path has no '/' at its end; last points at its last component. */
static bool pattern_match(const Pattern *p, const char *path, size_t n, const char *last)
{
        switch (p->kind) {
        case PATTERN_EXACT:
                return streq(path, p->text) || (!p->whole && streq(last, p->text));
        case PATTERN_SUFFIX:
                return n >= p->length && memcmp(path + n - p->length, p->text, p->length) == 0;
        case PATTERN_PREFIX:
                return strncmp(path, p->text, p->length) == 0 ||
                       (!p->whole && strncmp(last, p->text, p->length) == 0);
        case PATTERN_GLOB:
                return fnmatch(p->text, path, 0) == 0 ||
                       (!p->whole && last != path && fnmatch(p->text, last, 0) == 0);
        default:
                return false;
        }
}

static int pattern_list_compile(char *const *texts, PatternList *ret)
{
        _cleanup_pattern_list_ PatternList l = {};
        size_t n = strv_length(texts);

        if (n > 0) {
                l.patterns = calloc(n, sizeof(Pattern));
                if (!l.patterns)
                        return -ENOMEM;
        }
        for (; l.n < n; l.n++) {
                int r = pattern_compile(texts[l.n], &l.patterns[l.n]);
                if (r < 0)
                        return r;
        }
        *ret = (PatternList){.patterns = TAKE_PTR(l.patterns), .n = n};
        return 0;
}

static const char *last_component(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

bool selection_match(const char *pattern, const char *path)
{
        _cleanup_pattern_list_ PatternList l = {};
        _cleanup_free_ char *prefix = NULL;
        char *const texts[] = {(char *) pattern, NULL};
        const Pattern *p;

        prefix = strdup(path);
        if (!prefix || pattern_list_compile(texts, &l) < 0)
                return false;
        p = &l.patterns[0];

        /* A directory's pattern matches what is below it, so every ancestor is tried. */
        for (char *slash = strchr(prefix, '/'); p->directory && slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                if (pattern_match(p, prefix, (size_t) (slash - prefix), last_component(prefix)))
                        return true;
                *slash = '/';
        }
        return !p->directory && pattern_match(p, path, strlen(path), last_component(path));
}

typedef struct Walk {
        const Source *source;
        Selection *selection;
        SourceFault *fault;
        PatternList patterns, excludes;
        uint64_t max_files, max_entries;
        uint64_t n_files, n_entries; /* found, selected or not kept; looked at */
        size_t length;               /* of path */
        char path[PATH_MAX];         /* of the entry being looked at */
} Walk;

/* A directory that is being read, and through parent all those that it was reached through. */
typedef struct Level {
        const struct Level *parent;
        int fd; /* not owned */
        unsigned depth;
        bool included; /* by a pattern that names a directory */
        dev_t device;
        ino_t inode;
} Level;

static int walk_directory(Walk *w, int fd, const Level *parent, bool included);

#define walk_refuse(w, ...)                                                                                  \
        source_fault_refuse((w)->fault, SOURCE_INVALID, (w)->source->path,                                   \
                            (w)->length > 0 ? (w)->path : NULL, __VA_ARGS__)

static bool walk_excludes(const Walk *w, const char *name, bool directory)
{
        for (size_t i = 0; i < w->excludes.n; i++) {
                const Pattern *p = &w->excludes.patterns[i];

                if ((directory || !p->directory) && pattern_match(p, w->path, w->length, name))
                        return true;
        }
        return false;
}

static bool walk_includes(const Walk *w, const char *name, bool directory)
{
        for (size_t i = 0; i < w->patterns.n; i++) {
                const Pattern *p = &w->patterns.patterns[i];

                if (p->directory == directory && pattern_match(p, w->path, w->length, name))
                        return true;
        }
        return false;
}

static bool walk_selects(const Walk *w, const Level *level, const char *name)
{
        return w->patterns.n == 0 || level->included || walk_includes(w, name, false);
}

static int walk_add(Walk *w, const struct stat *st)
{
        Selection *s = w->selection;
        SelectedFile *file;

        if (startswith(w->path, SELECTION_RESERVED_PREFIX) || strstr(w->path, "/" SELECTION_RESERVED_PREFIX))
                return walk_refuse(
                        w, "has a name that iloader keeps for its views: leave it out with --exclude");
        /* Past the limit files are only counted, for the message. */
        if (++w->n_files > w->max_files)
                return 0;
        if (s->n_files == s->allocated) {
                size_t n = s->allocated > 0 ? s->allocated * 2 : 64;
                SelectedFile *files = reallocarray(s->files, n, sizeof(SelectedFile));

                if (!files)
                        return -ENOMEM;
                s->files = files;
                s->allocated = n;
        }
        if (__builtin_add_overflow(s->bytes, (uint64_t) st->st_size, &s->bytes) || s->bytes > INT64_MAX)
                return walk_refuse(w, "makes the sum of the sizes overflow: its size can't be true");

        file = &s->files[s->n_files];
        file->path = strndup(w->path, w->length);
        if (!file->path)
                return -ENOMEM;
        file->identity = file_identity_from_stat(st);
        s->n_files++;
        return 0;
}

static int refuse_special(Walk *w, mode_t mode)
{
        const char *what = S_ISFIFO(mode)   ? "a pipe"
                           : S_ISSOCK(mode) ? "a socket"
                           : S_ISCHR(mode)  ? "a character device"
                           : S_ISBLK(mode)  ? "a block device"
                                            : "of an unknown type";

        return walk_refuse(w, "is %s, not a regular file: remove it or leave it out with --exclude", what);
}

static int refuse_unreadable(Walk *w)
{
        errno = EACCES;
        return walk_refuse(w,
                           "can't be read: %m: give the cache's owner read permission or leave it out with "
                           "--exclude");
}

static int visit_regular(Walk *w, const Level *level, const char *name)
{
        struct stat st;

        if (!walk_selects(w, level, name))
                return 0;
        if (fstatat(level->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno == ENOENT) /* gone since the directory was read */
                        return 0;
                return walk_refuse(w, "can't be looked at: %m");
        }
        if (!S_ISREG(st.st_mode))
                return source_fault_refuse(
                        w->fault, SOURCE_CHANGED, w->source->path, w->path,
                        "was replaced while the directory was read: start again when it is at rest");
        /* Only a plain "no" counts: a filter may deny the question. The copy opens every file anyway. */
        if (faccessat(level->fd, name, R_OK, 0) < 0 && errno == EACCES)
                return refuse_unreadable(w);
        return walk_add(w, &st);
}

static int visit_directory(Walk *w, const Level *level, const char *name)
{
        _cleanup_close_ int fd = -EBADF;

        fd = openat(level->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
                if (errno == ENOENT)
                        return 0;
                return walk_refuse(
                        w, "can't be opened as a directory: %m: make it readable or leave it out with "
                           "--exclude");
        }
        return walk_directory(w, TAKE_FD(fd), level, level->included || walk_includes(w, name, true));
}

static int visit_link(Walk *w, const Level *level, const char *name)
{
        _cleanup_close_ int fd = -EBADF, directory = -EBADF;
        _cleanup_free_ char *full = NULL;
        struct stat st;
        int r;

        /* From the root, since that is where an absolute link starts and where ".." ends. */
        r = path_join(w->source->real_path, w->path, &full);
        if (r < 0)
                return r;
        fd = path_open_in_root(w->source->root_fd, full, O_PATH | O_CLOEXEC, 0);
        if (fd < 0) {
                if (fd == -ENOMEM)
                        return fd;
                if (!walk_selects(w, level, name))
                        return 0;
                errno = -fd;
                if (fd == -ENOENT || fd == -ENOTDIR)
                        return walk_refuse(
                                w, "is a symbolic link to nothing: restore what it points at or leave it "
                                   "out with --exclude");
                if (fd == -ELOOP)
                        return walk_refuse(
                                w, "is a symbolic link that leads in a circle or through /proc: replace it "
                                   "or leave it out with --exclude");
                return walk_refuse(w, "is a symbolic link that can't be followed: %m");
        }
        if (fstat(fd, &st) < 0)
                return walk_refuse(w, "can't be looked at: %m");

        if (S_ISDIR(st.st_mode)) {
                directory = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (directory < 0)
                        return walk_refuse(
                                w, "can't be opened as a directory: %m: make it readable or leave it out "
                                   "with --exclude");
                return walk_directory(w, TAKE_FD(directory), level,
                                      level->included || walk_includes(w, name, true));
        }
        if (!walk_selects(w, level, name))
                return 0;
        if (!S_ISREG(st.st_mode))
                return refuse_special(w, st.st_mode);
        if (faccessat(fd, "", R_OK, AT_EMPTY_PATH) < 0 && errno == EACCES)
                return refuse_unreadable(w);
        return walk_add(w, &st);
}

/* w->path ends in name, with its '/' before it. */
static int visit(Walk *w, const Level *level, unsigned char type)
{
        const char *name = last_component(w->path);
        struct stat st;

        if (type == DT_UNKNOWN) { /* some file systems leave it to stat(2) */
                if (fstatat(level->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return errno == ENOENT ? 0 : walk_refuse(w, "can't be looked at: %m");
                type = IFTODT(st.st_mode);
        }
        if (walk_excludes(w, name, type == DT_DIR || type == DT_LNK))
                return 0;

        switch (type) {
        case DT_REG:
                return visit_regular(w, level, name);
        case DT_DIR:
                return visit_directory(w, level, name);
        case DT_LNK:
                return visit_link(w, level, name);
        default:
                return walk_selects(w, level, name) ? refuse_special(w, DTTOIF(type)) : 0;
        }
}

static int visit_entry(Walk *w, const Level *level, const struct dirent *entry)
{
        size_t before = w->length, n = strlen(entry->d_name), separator = before > 0 ? 1 : 0;
        int r;

        if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
                return 0;
        if (++w->n_entries > w->max_entries)
                return source_fault_refuse(w->fault, SOURCE_INVALID, w->source->path, NULL,
                                           "holds more than %" PRIu64
                                           " entries: name the checkpoint's own directory",
                                           w->max_entries);
        if (before + separator + n >= sizeof(w->path))
                return walk_refuse(w, "holds a path of more than %zu bytes: leave it out with --exclude",
                                   sizeof(w->path) - 1);

        if (separator)
                w->path[before] = '/';
        memcpy(w->path + before + separator, entry->d_name, n + 1);
        w->length = before + separator + n;
        r = visit(w, level, entry->d_type);
        w->length = before;
        w->path[before] = '\0';
        return r;
}

/* Reads one directory; consumes fd. */
static int walk_directory(Walk *w, int fd, const Level *parent, bool included)
{
        _cleanup_close_ int owned = fd;
        Level level = {.parent = parent, .depth = parent ? parent->depth + 1 : 0, .included = included};
        struct stat st;
        DIR *d;
        int r = 0;

        if (level.depth > SELECTION_DEPTH_MAX)
                return walk_refuse(w, "is more than %u directories deep: leave it out with --exclude",
                                   SELECTION_DEPTH_MAX);
        if (fstat(owned, &st) < 0)
                return walk_refuse(w, "can't be looked at: %m");
        for (const Level *l = parent; l; l = l->parent)
                if (l->device == st.st_dev && l->inode == st.st_ino)
                        return walk_refuse(
                                w, "is a link to a directory that contains it: remove it or leave it out "
                                   "with --exclude");
        level.device = st.st_dev;
        level.inode = st.st_ino;

        d = fdopendir(owned);
        if (!d)
                return errno == ENOMEM ? -ENOMEM : walk_refuse(w, "can't be read: %m");
        level.fd = TAKE_FD(owned);

        while (r >= 0) {
                struct dirent *entry;

                errno = 0;
                entry = readdir(d);
                if (!entry) {
                        if (errno != 0)
                                r = walk_refuse(w, "can't be read: %m");
                        break;
                }
                r = visit_entry(w, &level, entry);
        }
        (void) closedir(d);
        return r;
}

static int compare_files(const void *a, const void *b)
{
        return strcmp(((const SelectedFile *) a)->path, ((const SelectedFile *) b)->path);
}

static int walk_run(Walk *w)
{
        int fd;

        /* A description of its own: the source's keeps its offset. */
        fd = openat(w->source->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return walk_refuse(w, "can't be opened: %m");
        return walk_directory(w, fd, NULL, false);
}

int selection_read(const Source *source, const SelectionOptions *options, Selection *ret,
                   SourceFault *ret_fault)
{
        _cleanup_selection_ Selection selection = {};
        _cleanup_pattern_list_ PatternList patterns = {}, excludes = {};
        _cleanup_free_ Walk *w = NULL; /* too large for a stack frame beside a deep recursion */
        int r;

        r = pattern_list_compile(options->patterns, &patterns);
        if (r < 0)
                return r;
        r = pattern_list_compile(options->excludes ?: (char *const *) selection_default_excludes, &excludes);
        if (r < 0)
                return r;
        w = calloc(1, sizeof(Walk));
        if (!w)
                return -ENOMEM;
        *w = (Walk){
                .source = source,
                .selection = &selection,
                .fault = ret_fault,
                .patterns = patterns,
                .excludes = excludes,
                .max_files = options->max_files,
                .max_entries =
                        options->max_files < UINT64_MAX / 8 ? options->max_files * 4 + 65536 : UINT64_MAX,
        };

        r = walk_run(w);
        if (r < 0)
                return r;
        if (w->n_files > w->max_files) {
                r = source_fault_refuse(ret_fault, SOURCE_TOO_MANY, source->path, NULL,
                                        "holds %" PRIu64 " files, and one cache may have %" PRIu64
                                        ": narrow it with --pattern or --exclude",
                                        w->n_files, w->max_files);
                if (ret_fault && r == -E2BIG) {
                        ret_fault->maximum = w->max_files;
                        ret_fault->files = w->n_files;
                }
                return r;
        }
        if (selection.n_files == 0 && w->n_entries == 0)
                return walk_refuse(w, "is empty: name the directory that holds the checkpoint's files");
        if (selection.n_files == 0)
                return walk_refuse(w,
                                   "holds no file that is selected (%" PRIu64
                                   " entries were looked at): check "
                                   "--pattern and --exclude, whose patterns are for paths below it",
                                   w->n_entries);

        qsort(selection.files, selection.n_files, sizeof(SelectedFile), compare_files);
        *ret = selection;
        selection = (Selection){};
        return 0;
}
