/* The registry's files: NAME.json, one object each. The directory is root's or the user's own, yet what is
 * read back may be cut short, from another version or planted: an entry counts only when every field of it is
 * acceptable. */
#include "daemon/registry.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#define REGISTRY_VERSION  1
#define REGISTRY_SUFFIX   ".json"
#define REGISTRY_FILE_MAX KIB(64)
/* More than any limit on caches allows; a directory with more isn't ours. */
#define REGISTRY_ENTRIES_MAX 65536U
#define FINGERPRINT_LENGTH   64U
#define BOOT_ID_LENGTH       32U

RegistryEntry *registry_entry_free(RegistryEntry *e)
{
        if (!e)
                return NULL;
        free(e->name);
        free(e->source);
        free(e->view);
        free(e->pid_file);
        free(e->log_file);
        free(e->fingerprint);
        free(e);
        return NULL;
}

RegistryEntry **registry_entries_free(RegistryEntry **entries, size_t n)
{
        for (size_t i = 0; i < n; i++)
                registry_entry_free(entries[i]);
        free(entries);
        return NULL;
}

/* Room for a name, its suffixes and the NUL. */
#define FILE_NAME_MAX (CACHE_NAME_MAX + sizeof(REGISTRY_SUFFIX) + sizeof(".damaged"))

static int registry_file_name(const char *name, char ret[static FILE_NAME_MAX])
{
        if (!cache_name_is_valid(name, NULL))
                return -EINVAL;
        (void) snprintf(ret, FILE_NAME_MAX, "%s%s", name, REGISTRY_SUFFIX);
        return 0;
}

static int entry_to_json(const RegistryEntry *e, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        const struct {
                const char *key, *path;
        } paths[] = {
                {"source", e->source},
                {"view", e->view},
                {"pidFile", e->pid_file},
                {"logFile", e->log_file},
        };
        int r;

        if (!o)
                return -ENOMEM;
        r = json_add_int(o, "iloaderRegistry", REGISTRY_VERSION);
        if (r >= 0)
                r = json_add_string(o, "name", e->name);
        if (r >= 0)
                r = json_add_string(o, "bootId", e->boot_id);
        if (r >= 0)
                r = json_add_int(o, "workerPid", e->worker_pid);
        if (r >= 0)
                r = json_add_size(o, "workerStartTime", e->worker_start_time);
        if (r >= 0)
                r = json_add_int(o, "uid", (int64_t) e->uid);
        if (r >= 0)
                r = json_add_int(o, "gid", (int64_t) e->gid);
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(paths); i++)
                if (paths[i].path)
                        r = json_add_path(o, paths[i].key, paths[i].path);
        if (r >= 0)
                r = json_add_string(o, "fingerprint", e->fingerprint);
        if (r >= 0)
                r = json_add_size(o, "bytes", e->bytes);
        if (r >= 0)
                r = json_add_bool(o, "viewByManager", e->view_by_manager);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int registry_save(int dirfd, const RegistryEntry *e)
{
        _cleanup_json_ struct json_object *o = NULL;
        char file[FILE_NAME_MAX];
        const char *text;
        size_t n;
        int r;

        r = registry_file_name(e->name, file);
        if (r < 0)
                return r;
        r = entry_to_json(e, &o);
        if (r < 0)
                return r;
        text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN, &n);
        if (!text)
                return -ENOMEM;
        if (n > REGISTRY_FILE_MAX)
                return -E2BIG;
        /* Entries are of this boot only, so that they needn't outlive it: not synced. */
        return fd_write_file_at(dirfd, file, text, n, 0600, false);
}

int registry_remove(int dirfd, const char *name)
{
        char file[FILE_NAME_MAX];
        int r;

        r = registry_file_name(name, file);
        if (r < 0)
                return r;
        if (unlinkat(dirfd, file, 0) < 0 && errno != ENOENT)
                return -errno;
        return 0;
}

static bool is_hex(const char *s, size_t n)
{
        return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

/* An absolute, normal path, or nothing: 0 with *ret NULL where absent. */
static int get_path(struct json_object *o, const char *key, char **ret)
{
        _cleanup_free_ char *path = NULL, *normal = NULL;
        int r;

        r = json_get_path(o, key, &path);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return r;
        if (!path_is_absolute(path))
                return -EBADMSG;
        r = path_normalize(path, &normal);
        if (r < 0)
                return r == -ENOMEM ? r : -EBADMSG;
        if (!streq(path, normal))
                return -EBADMSG;
        *ret = TAKE_PTR(path);
        return 0;
}

/* A number below UINT32_MAX, whose type uid_t and gid_t keep for "none". */
static int get_id(struct json_object *o, const char *key, uint32_t *ret)
{
        uint64_t v;
        int r;

        r = json_get_size(o, key, &v);
        if (r < 0)
                return r;
        if (v >= UINT32_MAX)
                return -EBADMSG;
        *ret = (uint32_t) v;
        return 0;
}

static int get_identity(struct json_object *o, const char *name, RegistryEntry *e)
{
        const char *text;
        int64_t pid, version;
        int r;

        r = json_get_int(o, "iloaderRegistry", &version);
        if (r < 0)
                return r;
        if (version != REGISTRY_VERSION)
                return -EBADMSG;
        r = json_get_string(o, "name", &text);
        if (r < 0)
                return r;
        if (!streq(text, name))
                return -EBADMSG;
        e->name = strdup(text);
        if (!e->name)
                return -ENOMEM;
        r = json_get_string(o, "bootId", &text);
        if (r < 0)
                return r;
        if (!is_hex(text, BOOT_ID_LENGTH))
                return -EBADMSG;
        memcpy(e->boot_id, text, BOOT_ID_LENGTH + 1);
        /* 0 where there was no worker; 1 is never ours. */
        r = json_get_int(o, "workerPid", &pid);
        if (r < 0)
                return r;
        if (pid < 0 || pid == 1 || pid > INT_MAX)
                return -EBADMSG;
        e->worker_pid = (pid_t) pid;
        r = json_get_size(o, "workerStartTime", &e->worker_start_time);
        if (r < 0)
                return r;
        r = get_id(o, "uid", &e->uid);
        if (r < 0)
                return r;
        return get_id(o, "gid", &e->gid);
}

static int get_contents(struct json_object *o, RegistryEntry *e)
{
        const char *text;
        int r;

        r = get_path(o, "source", &e->source);
        if (r >= 0)
                r = get_path(o, "view", &e->view);
        if (r >= 0)
                r = get_path(o, "pidFile", &e->pid_file);
        if (r >= 0)
                r = get_path(o, "logFile", &e->log_file);
        if (r >= 0)
                r = json_get_size(o, "bytes", &e->bytes);
        if (r >= 0)
                r = json_get_bool(o, "viewByManager", &e->view_by_manager);
        if (r < 0)
                return r;
        r = json_get_string(o, "fingerprint", &text);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return r;
        if (!is_hex(text, FINGERPRINT_LENGTH))
                return -EBADMSG;
        e->fingerprint = strdup(text);
        return e->fingerprint ? 0 : -ENOMEM;
}

/* Opens a regular file of ours (or root's) that nobody else may write; -EBADMSG where it is something else.
 */
static int open_own(int dirfd, const char *file)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 0022) != 0)
                return -EBADMSG;
        return TAKE_FD(fd);
}

/* -EBADMSG where the entry is damaged; other errors where it can't be read for now. */
static int registry_load_one(int dirfd, const char *file, const char *name, RegistryEntry **ret)
{
        _cleanup_(registry_entry_freep) RegistryEntry *e = NULL;
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r;

        fd = open_own(dirfd, file);
        if (fd < 0)
                return fd;
        r = fd_read_file(fd, REGISTRY_FILE_MAX, &text, &n);
        if (r < 0)
                return r == -EFBIG ? -EBADMSG : r;
        r = json_parse_strict(text, n, &o, NULL);
        if (r < 0)
                return r;
        if (!json_object_is_type(o, json_type_object))
                return -EBADMSG;
        e = calloc(1, sizeof(*e));
        if (!e)
                return -ENOMEM;
        r = get_identity(o, name, e);
        if (r >= 0)
                r = get_contents(o, e);
        if (r < 0)
                return r == -ENOENT ? -EBADMSG : r;
        *ret = TAKE_PTR(e);
        return 0;
}

typedef struct EntryList {
        RegistryEntry **entries;
        size_t n;
        size_t allocated;
} EntryList;

static void entry_list_done(EntryList *l)
{
        registry_entries_free(l->entries, l->n);
}

static int entry_list_take(EntryList *l, RegistryEntry *e)
{
        if (l->n == l->allocated) {
                size_t n = l->allocated ? l->allocated * 2 : 16;
                /* An array of pointers. NOLINTNEXTLINE(bugprone-sizeof-expression) */
                RegistryEntry **entries = reallocarray(l->entries, n, sizeof(*entries));

                if (!entries)
                        return -ENOMEM;
                l->entries = entries;
                l->allocated = n;
        }
        l->entries[l->n++] = e;
        return 0;
}

static int compare_entries(const void *a, const void *b)
{
        const RegistryEntry *const *x = a, *const *y = b;

        return strcmp((*x)->name, (*y)->name);
}

/* The cache's name in a file's name: 1, or 0 where the file isn't an entry (another suffix, a temporary one).
 */
static int entry_name(const char *file, char ret[static CACHE_NAME_MAX + 1])
{
        size_t n = strlen(file), suffix = strlen(REGISTRY_SUFFIX);

        if (n <= suffix || n - suffix > CACHE_NAME_MAX || !streq(file + n - suffix, REGISTRY_SUFFIX))
                return 0;
        memcpy(ret, file, n - suffix);
        ret[n - suffix] = '\0';
        return cache_name_is_valid(ret, NULL);
}

static int load_file(int dirfd, const char *file, EntryList *list, size_t *damaged)
{
        _cleanup_(registry_entry_freep) RegistryEntry *e = NULL;
        char name[CACHE_NAME_MAX + 1], aside[FILE_NAME_MAX];
        int r;

        if (!entry_name(file, name))
                return 0;
        r = registry_load_one(dirfd, file, name, &e);
        if (r == -EBADMSG) {
                /* Kept for a look, out of the way of the next save; an older one of the name is replaced. */
                (void) snprintf(aside, sizeof(aside), "%s.damaged", name);
                (*damaged)++;
                /* Where even that fails, it stays, and stays damaged: no reason to lose the others. */
                (void) renameat(dirfd, file, dirfd, aside);
                return 0;
        }
        if (r == -ENOENT)
                return 0;
        if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
                return r;
        if (r < 0) {
                (*damaged)++;
                return 0;
        }
        r = entry_list_take(list, e);
        if (r >= 0)
                e = NULL;
        return r;
}

static bool is_entry(const char *file)
{
        char name[CACHE_NAME_MAX + 1];

        return entry_name(file, name);
}

int registry_load(int dirfd, RegistryEntry ***ret, size_t *ret_n, size_t *ret_damaged)
{
        _cleanup_(entry_list_done) EntryList list = {};
        _cleanup_strv_ char **names = NULL;
        size_t damaged = 0;
        int r;

        /* All names first, since renaming while a directory is read may show a file twice or not at all. */
        r = path_list_directory(dirfd, is_entry, REGISTRY_ENTRIES_MAX, &names);
        if (r < 0)
                return r;
        for (char **name = names; name && *name; name++) {
                r = load_file(dirfd, *name, &list, &damaged);
                if (r < 0)
                        return r;
        }
        if (list.n > 1)
                /* Of pointers. NOLINTNEXTLINE(bugprone-sizeof-expression) */
                qsort(list.entries, list.n, sizeof(*list.entries), compare_entries);
        *ret = TAKE_PTR(list.entries);
        *ret_n = list.n;
        *ret_damaged = damaged;
        list.n = 0;
        return 0;
}
