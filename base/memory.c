/* Memory figures of this host and of the control groups above this process. Everything read here may be
 * missing or strange (containers, hidden files, several hierarchies), so that each piece is optional but
 * /proc/meminfo; what is unknown never makes more memory available. proc(5), cgroups(7), cgroup-v2.rst,
 * cgroup-v1/memory.rst. */
#include "base/memory.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"

#define SYSFS_CGROUP  "/sys/fs/cgroup"
#define FILE_MAX_SIZE MIB(4) /* mountinfo of a busy container host is the largest of them */
#define MOUNTS_MAX    16U
#define DEPTH_MAX     64U
/* v1 says "no limit" with the largest page count times the page size; nothing real is near it. */
#define V1_LIMIT_IS_MAX (UINT64_C(1) << 62)
/* Fractions are applied in billionths, in integers, so that the same snapshot gives the same budget
 * everywhere. */
#define FRACTION_UNIT 1000000000U

typedef enum CgroupVersion {
        CGROUP_V1,
        CGROUP_V2,
        _CGROUP_VERSION_MAX,
} CgroupVersion;

/* A mounted hierarchy that may account memory. */
typedef struct CgroupMount {
        CgroupVersion version;
        char *root;  /* which group of the hierarchy is mounted, as this namespace names it; owned */
        char *point; /* below SYSFS_CGROUP: "" or "/memory"; owned */
} CgroupMount;

typedef struct CgroupMounts {
        CgroupMount mounts[MOUNTS_MAX];
        size_t n;
} CgroupMounts;

static void cgroup_mounts_done(CgroupMounts *m)
{
        for (size_t i = 0; i < m->n; i++) {
                free(m->mounts[i].root);
                free(m->mounts[i].point);
        }
        m->n = 0;
}

/* The group this process is in, for each hierarchy; NULL where there is none. */
typedef struct CgroupPaths {
        char *paths[_CGROUP_VERSION_MAX];
} CgroupPaths;

static void cgroup_paths_done(CgroupPaths *p)
{
        free(p->paths[CGROUP_V1]);
        free(p->paths[CGROUP_V2]);
}

/* 1 and the text, 0 where the file cannot be had, -ENOMEM. */
static int read_optional(int dirfd, const char *path, char **ret)
{
        int r;

        r = fd_read_file_at(dirfd, path, FILE_MAX_SIZE, ret, NULL);
        if (r == -ENOMEM)
                return r;
        return r >= 0;
}

/* The number a file of one line holds; "max" is UINT64_MAX. 1, 0 where there is none, -ENOMEM. */
static int read_number(int dirfd, const char *path, uint64_t *ret)
{
        _cleanup_free_ char *text = NULL;
        int r;

        r = read_optional(dirfd, path, &text);
        if (r <= 0)
                return r;
        text[strcspn(text, "\n")] = '\0';
        if (streq(text, "max")) {
                *ret = UINT64_MAX;
                return 1;
        }
        return parse_u64(text, ret) >= 0;
}

/* The number after "KEY" and blanks at the start of a line; false where there is none. */
static bool find_number(const char *text, const char *key, uint64_t *ret)
{
        size_t n = strlen(key);

        for (const char *line = text; line && *line;) {
                const char *end = strchr(line, '\n');

                if (strncmp(line, key, n) == 0 && (line[n] == ' ' || line[n] == '\t')) {
                        const char *digits = line + n + strspn(line + n, " \t");
                        char number[24] = {};
                        size_t length = strspn(digits, "0123456789");

                        if (length == 0 || length >= sizeof(number))
                                return false;
                        memcpy(number, digits, length);
                        return parse_u64(number, ret) >= 0;
                }
                line = end ? end + 1 : NULL;
        }
        return false;
}

static int read_meminfo(int procfd, MemorySnapshot *s)
{
        _cleanup_free_ char *text = NULL;
        uint64_t total, available, swap = 0;
        int r;

        r = fd_read_file_at(procfd, "meminfo", FILE_MAX_SIZE, &text, NULL);
        if (r < 0)
                return r;
        if (!find_number(text, "MemTotal:", &total) || !find_number(text, "MemAvailable:", &available))
                return -ENODATA;
        (void) find_number(text, "SwapFree:", &swap);
        /* "kB" there means KiB. */
        s->total = mul_saturating(total, 1024);
        s->available = mul_saturating(available, 1024);
        s->swap_free = mul_saturating(swap, 1024);
        return 0;
}

/* Whether a comma-separated list holds a word. */
static bool list_contains(const char *list, size_t n_list, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = list; p < list + n_list;) {
                size_t length = strcspn(p, ",\n ");

                if (p + length > list + n_list)
                        length = (size_t) (list + n_list - p);
                if (length == n && memcmp(p, word, n) == 0)
                        return true;
                p += length + 1;
        }
        return false;
}

/* /proc/self/cgroup: lines "ID:CONTROLLERS:PATH", with 0 and no controllers for v2. */
static int read_cgroup_paths(int procfd, CgroupPaths *ret)
{
        _cleanup_free_ char *text = NULL;
        char *saved = NULL;
        int r;

        r = read_optional(procfd, "self/cgroup", &text);
        if (r <= 0)
                return r;
        for (char *line = strtok_r(text, "\n", &saved); line; line = strtok_r(NULL, "\n", &saved)) {
                char *controllers = strchr(line, ':');
                char *path = controllers ? strchr(controllers + 1, ':') : NULL;
                CgroupVersion version = CGROUP_V1;

                if (!path || path[1] != '/')
                        continue;
                controllers++;
                if (path == controllers)
                        version = CGROUP_V2;
                else if (!list_contains(controllers, (size_t) (path - controllers), "memory"))
                        continue;
                free(ret->paths[version]);
                ret->paths[version] = strdup(path + 1);
                if (!ret->paths[version])
                        return -ENOMEM;
        }
        return 0;
}

/* mountinfo writes blanks, newlines and backslashes as \NNN, octal. In place. */
static void unescape_octal(char *s)
{
        char *out = s;

        for (const char *p = s; *p; out++) {
                if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' &&
                    p[3] <= '7') {
                        *out = (char) (((p[1] - '0') << 6) | ((p[2] - '0') << 3) | (p[3] - '0'));
                        p += 4;
                } else
                        *out = *p++;
        }
        *out = '\0';
}

static int cgroup_mounts_add(CgroupMounts *m, CgroupVersion version, const char *root, const char *point)
{
        _cleanup_free_ char *r = strdup(root), *p = strdup(point);

        if (!r || !p)
                return -ENOMEM;
        /* What is mounted last on a point hides what was there. */
        for (size_t i = 0; i < m->n; i++)
                if (streq(m->mounts[i].point, p)) {
                        free(m->mounts[i].root);
                        m->mounts[i].root = TAKE_PTR(r);
                        m->mounts[i].version = version;
                        return 0;
                }
        if (m->n >= MOUNTS_MAX)
                return 0;
        m->mounts[m->n++] = (CgroupMount){version, TAKE_PTR(r), TAKE_PTR(p)};
        return 0;
}

/* One line of mountinfo (proc(5)): ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAG…] - TYPE SOURCE SUPEROPTIONS */
static int parse_mount(char *line, CgroupMounts *m)
{
        char *fields[5] = {}, *saved = NULL, *field, *type, *super;
        char *rest = strstr(line, " - ");
        CgroupVersion version = CGROUP_V1;
        const char *point;

        if (!rest)
                return 0;
        *rest = '\0';
        type = strtok_r(rest + 3, " ", &saved);
        (void) strtok_r(NULL, " ", &saved);
        super = strtok_r(NULL, " ", &saved);
        if (!type)
                return 0;
        if (streq(type, "cgroup2"))
                version = CGROUP_V2;
        else if (!streq(type, "cgroup") || !super || !list_contains(super, strlen(super), "memory"))
                return 0;
        saved = NULL;
        field = strtok_r(line, " ", &saved);
        for (size_t i = 0; i < ELEMENTSOF(fields) && field; i++, field = strtok_r(NULL, " ", &saved))
                fields[i] = field;
        if (!fields[4])
                return 0;
        unescape_octal(fields[3]);
        unescape_octal(fields[4]);
        point = startswith(fields[4], SYSFS_CGROUP);
        if (!point || (*point != '\0' && *point != '/'))
                return 0;
        return cgroup_mounts_add(m, version, fields[3], point);
}

static int read_mounts(int procfd, CgroupMounts *ret)
{
        _cleanup_free_ char *text = NULL;
        char *saved = NULL;
        int r;

        r = read_optional(procfd, "self/mountinfo", &text);
        if (r < 0)
                return r;
        if (r == 0) {
                /* Without the list, the usual places: what isn't there is passed over later. */
                r = cgroup_mounts_add(ret, CGROUP_V2, "/", "");
                if (r >= 0)
                        r = cgroup_mounts_add(ret, CGROUP_V1, "/", "/memory");
                return r;
        }
        for (char *line = strtok_r(text, "\n", &saved); line; line = strtok_r(NULL, "\n", &saved)) {
                r = parse_mount(line, ret);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int snapshot_add(MemorySnapshot *s, const char *path, uint64_t limit, uint64_t current,
                        uint64_t reclaimable)
{
        _cleanup_free_ char *p = NULL;
        MemoryLimit *limits;

        p = strdup(path);
        if (!p)
                return -ENOMEM;
        limits = reallocarray(s->limits, s->n_limits + 1, sizeof(*limits));
        if (!limits)
                return -ENOMEM;
        s->limits = limits;
        s->limits[s->n_limits++] = (MemoryLimit){TAKE_PTR(p), limit, current, reclaimable};
        return 0;
}

/* File pages that aren't shmem: the file LRU lists. "file" (v2) and "cache" (v1) count shmem too, which can't
 * be given back without swap; shmem's pages are on the anonymous lists, and locked ones on the unevictable
 * one. */
static int read_reclaimable(int dirfd, CgroupVersion version, uint64_t *ret)
{
        static const char *const keys[_CGROUP_VERSION_MAX][2] = {
                [CGROUP_V1] = {"total_inactive_file", "total_active_file"},
                [CGROUP_V2] = {"inactive_file", "active_file"},
        };
        _cleanup_free_ char *text = NULL;
        uint64_t inactive = 0, active = 0;
        int r;

        *ret = 0;
        r = read_optional(dirfd, "memory.stat", &text);
        if (r <= 0)
                return r;
        (void) find_number(text, keys[version][0], &inactive);
        (void) find_number(text, keys[version][1], &active);
        *ret = add_saturating(inactive, active);
        return 0;
}

/* Adds a limit whose use is in another file. Where that can't be read, all of the limit counts as used. */
static int add_limit(MemorySnapshot *s, int dirfd, const char *path, CgroupVersion version, uint64_t limit,
                     const char *current_file)
{
        uint64_t current, reclaimable;
        int r;

        r = read_number(dirfd, current_file, &current);
        if (r < 0)
                return r;
        if (r == 0)
                return snapshot_add(s, path, limit, limit, 0);
        r = read_reclaimable(dirfd, version, &reclaimable);
        if (r < 0)
                return r;
        /* Both are read at different moments. */
        return snapshot_add(s, path, limit, current, MIN2(reclaimable, current));
}

static int read_group_v2(MemorySnapshot *s, int dirfd, const char *path)
{
        uint64_t max = UINT64_MAX, high = UINT64_MAX;
        int r;

        r = read_number(dirfd, "memory.max", &max);
        if (r < 0)
                return r;
        /* Past memory.high nothing fails, but every allocation waits for reclaim that finds nothing in shmem.
         */
        r = read_number(dirfd, "memory.high", &high);
        if (r < 0)
                return r;
        if (MIN2(max, high) == UINT64_MAX)
                return 0;
        return add_limit(s, dirfd, path, CGROUP_V2, MIN2(max, high), "memory.current");
}

static int read_group_v1(MemorySnapshot *s, int dirfd, const char *path, bool leaf)
{
        static const struct {
                const char *limit, *current;
        } files[] = {
                {"memory.limit_in_bytes", "memory.usage_in_bytes"},
                {"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"},
        };
        uint64_t hierarchy, limit;
        int r;

        /* Old kernels: such an ancestor's limit is for its own processes only. */
        r = read_number(dirfd, "memory.use_hierarchy", &hierarchy);
        if (r < 0)
                return r;
        if (r > 0 && hierarchy == 0 && !leaf)
                return 0;
        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                r = read_number(dirfd, files[i].limit, &limit);
                if (r < 0)
                        return r;
                if (r == 0 || limit >= V1_LIMIT_IS_MAX)
                        continue;
                r = add_limit(s, dirfd, path, CGROUP_V1, limit, files[i].current);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Where the process's group is below a mount's root: a pointer into group to "" or "a/b". When the mount
 * shows another part of the tree (its root or the group begin with "/.." in a cgroup namespace, or aren't
 * related), only the mount's own top is known to be an ancestor, or stands for one. */
static const char *group_below(const char *group, const char *root)
{
        const char *rest = streq(root, "/") ? group : startswith(group, root);

        if (!rest || (*rest != '\0' && *rest != '/'))
                return "";
        rest += strspn(rest, "/");
        return path_is_normal_relative(rest) ? rest : "";
}

static int read_hierarchy(MemorySnapshot *s, int sysfd, const CgroupMount *mount, const char *group)
{
        const char *below = group_below(group, mount->root);
        _cleanup_free_ char *path = NULL;
        size_t top = strlen(SYSFS_CGROUP) + strlen(mount->point);
        int r;

        r = text_format(&path, "%s%s%s%s", SYSFS_CGROUP, mount->point, *below ? "/" : "", below);
        if (r < 0)
                return r;
        for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
                const char *relative = path + strlen(SYSFS_CGROUP);
                _cleanup_close_ int fd = -EBADF;
                char *slash;

                relative += strspn(relative, "/");
                fd = openat(sysfd, *relative ? relative : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0) {
                        if (mount->version == CGROUP_V2)
                                r = read_group_v2(s, fd, path);
                        else
                                r = read_group_v1(s, fd, path, depth == 0);
                        if (r < 0)
                                return r;
                }
                slash = strrchr(path, '/');
                if (strlen(path) <= top || !slash)
                        break;
                *slash = '\0';
        }
        return 0;
}

static int open_default(int fd, const char *path, int *ret_owned)
{
        if (fd != AT_FDCWD) {
                *ret_owned = -EBADF;
                return fd;
        }
        *ret_owned = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return *ret_owned < 0 ? -errno : *ret_owned;
}

int memory_snapshot_read(int procfd, int sysfd, MemorySnapshot *ret)
{
        _cleanup_close_ int proc_owned = -EBADF, sys_owned = -EBADF;
        _cleanup_(cgroup_paths_done) CgroupPaths groups = {};
        _cleanup_(cgroup_mounts_done) CgroupMounts mounts = {};
        _cleanup_memory_snapshot_ MemorySnapshot s = {};
        int r;

        procfd = open_default(procfd, "/proc", &proc_owned);
        if (procfd < 0)
                return procfd;
        r = read_meminfo(procfd, &s);
        if (r < 0)
                return r;
        r = read_cgroup_paths(procfd, &groups);
        if (r < 0)
                return r;
        r = read_mounts(procfd, &mounts);
        if (r < 0)
                return r;
        sysfd = open_default(sysfd, SYSFS_CGROUP, &sys_owned);
        for (size_t i = 0; sysfd >= 0 && i < mounts.n; i++) {
                const CgroupMount *mount = &mounts.mounts[i];

                r = read_hierarchy(&s, sysfd, mount, groups.paths[mount->version] ?: "/");
                if (r < 0)
                        return r;
        }
        *ret = s;
        s = (MemorySnapshot){};
        return 0;
}

void memory_snapshot_done(MemorySnapshot *s)
{
        for (size_t i = 0; i < s->n_limits; i++)
                free(s->limits[i].path);
        free(s->limits);
        *s = (MemorySnapshot){};
}

uint64_t memory_effective_available(const MemorySnapshot *s, const char **ret_limit)
{
        uint64_t available = s->available;
        const char *limit = "MemAvailable";

        for (size_t i = 0; i < s->n_limits; i++) {
                const MemoryLimit *l = &s->limits[i];
                uint64_t used = l->current > l->reclaimable ? l->current - l->reclaimable : 0;
                uint64_t headroom = l->limit > used ? l->limit - used : 0;

                if (headroom < available) {
                        available = headroom;
                        limit = l->path;
                }
        }
        if (ret_limit)
                *ret_limit = limit;
        return available;
}

uint64_t memory_budget(uint64_t available, double fraction, uint64_t reserve)
{
        uint64_t part = available, n;

        /* Written so that it refuses what is not a number too. */
        if (!(fraction > 0))
                return 0;
        if (fraction < 1) {
                n = (uint64_t) (fraction * FRACTION_UNIT);
                if (fraction * FRACTION_UNIT - (double) n >= 0.5)
                        n++;
                part = (uint64_t) ((unsigned __int128) available * n / FRACTION_UNIT);
        }
        return part > reserve ? part - reserve : 0;
}
