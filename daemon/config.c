/* What the configuration's keys mean: a table for each section, whose entries fill a struct of defaults. */
#include "daemon/config.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/configkey.h"
#include "daemon/keyfile.h"

#define CONFIG_FILE_MAX      MIB(1)
#define CONFIG_DROPINS_MAX   256U
#define CONFIG_OWNER_DEFAULT "iloader"

void config_fault_done(ConfigFault *f)
{
        free(f->path);
        free(f->message);
        *f = (ConfigFault){};
}

int config_fault_set(ConfigFault *f, const char *path, unsigned line, const char *format, ...)
{
        _cleanup_free_ char *message = NULL, *p = NULL;
        va_list ap;
        int r;

        if (!f)
                return -EINVAL;
        va_start(ap, format);
        r = text_vformat(&message, format, ap);
        va_end(ap);
        if (r < 0)
                return r;
        p = strdup(path);
        if (!p)
                return -ENOMEM;
        config_fault_done(f);
        *f = (ConfigFault){.path = TAKE_PTR(p), .line = line, .message = TAKE_PTR(message)};
        return -EINVAL;
}

/* A fault of the whole file that isn't about its contents: error is the negative errno to return. */
static int fault_errno(ConfigFault *f, const char *path, int error, const char *message)
{
        int r = config_fault_set(f, path, 0, "%s", message);

        return r == -ENOMEM || error >= 0 ? r : error;
}

void manager_config_defaults(ManagerConfig *c)
{
        *c = (ManagerConfig){
                .connection_limits = varlink_limits_default,
                .caches_max = 256,
                .caches_max_per_user = 64,
                .loads_max_per_user = 16,
                .bytes_max_per_user = UINT64_MAX,
                .leases_max_per_user = 1024,
                .files_max = START_FILES_MAX_DEFAULT,
                .descriptors_max = 4096,
                .load_stall_timeout = 120 * USEC_PER_SEC,
                .log_level = LOG_INFO,
        };
}

/* A member's name cannot stand in parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define KEY(type, key, function, field, from, to, what)                                                      \
        {                                                                                                    \
                key, function, offsetof(type, field), from, to, what                                         \
        }
#define MANAGER(...) KEY(ManagerConfig, __VA_ARGS__)
#define CACHE(...)   KEY(CacheSettings, __VA_ARGS__)
#define ANY          0, 0 /* for types without bounds */

#define EXPECT_COUNT "a number from 1 to 65536"
#define EXPECT_PATH  "an absolute path"

static const ConfigKey manager_keys[] = {
        MANAGER("ConnectionsMax", config_parse_size_number, connection_limits.connections, 1, 65536,
                EXPECT_COUNT),
        MANAGER("ConnectionsMaxPerUser", config_parse_size_number, connection_limits.connections_per_uid, 1,
                65536, EXPECT_COUNT),
        MANAGER("MessageSizeMax", config_parse_memory_size, connection_limits.message_size, KIB(4), MIB(64),
                "a size from 4K to 64M: " SIZE_FORMS),
        MANAGER("CachesMax", config_parse_number, caches_max, 1, 65536, EXPECT_COUNT),
        MANAGER("CachesMaxPerUser", config_parse_number, caches_max_per_user, 1, 65536, EXPECT_COUNT),
        MANAGER("LoadsMaxPerUser", config_parse_number, loads_max_per_user, 1, 65536, EXPECT_COUNT),
        MANAGER("BytesMaxPerUser", config_parse_size, bytes_max_per_user, 1, UINT64_MAX,
                SIZE_FORMS ", or 'infinity'"),
        MANAGER("LeasesMaxPerUser", config_parse_number, leases_max_per_user, 1, 65536, EXPECT_COUNT),
        MANAGER("FilesMax", config_parse_number, files_max, 1, 1048576, "a number from 1 to 1048576"),
        MANAGER("DescriptorsMax", config_parse_number, descriptors_max, 1, 65536, EXPECT_COUNT),
        MANAGER("LoadStallTimeoutSec", config_parse_time, load_stall_timeout, USEC_PER_SEC, USEC_INFINITY,
                "seconds, at least 1, or 'infinity'"),
        MANAGER("LogLevel", config_parse_log_level, log_level, ANY,
                "emerg, alert, crit, err, warning, notice, info or debug"),
        {},
};

static const ConfigKey cache_keys[] = {
        CACHE("Source", config_parse_path, source, ANY, EXPECT_PATH),
        CACHE("View", config_parse_path, view, ANY, EXPECT_PATH),
        CACHE("PIDFile", config_parse_path, pid_file, ANY, EXPECT_PATH),
        CACHE("LogFile", config_parse_path, log_file, ANY, EXPECT_PATH),
        CACHE("Pattern", config_parse_list, patterns, 0, 1024, "a shell pattern, at most 1024 of them"),
        CACHE("Exclude", config_parse_list, excludes, 0, 1024, "a shell pattern, at most 1024 of them"),
        CACHE("Workers", config_parse_unsigned, workers, 1, START_WORKERS_MAX, "a number from 1 to 256"),
        CACHE("ChunkSize", config_parse_number, chunk_size, START_CHUNK_SIZE_MIN, START_CHUNK_SIZE_MAX,
              "a number of bytes from 4096 to 1073741824, without a suffix"),
        CACHE("MaxMemoryFraction", config_parse_fraction, memory_fraction, ANY,
              "a fraction above 0, at most 1"),
        CACHE("MaxMemoryBytes", config_parse_size, max_memory_bytes, 1, UINT64_MAX,
              SIZE_FORMS ", or 'infinity'"),
        CACHE("ReserveBytes", config_parse_size, reserve_bytes, 0, UINT64_MAX - 1, SIZE_FORMS),
        CACHE("MaxResidentBytes", config_parse_size, max_resident_bytes, 1, UINT64_MAX - 1, SIZE_FORMS),
        CACHE("IdleTTLSec", config_parse_time, idle_ttl, 1, USEC_INFINITY,
              "seconds, more than 0, or 'infinity'"),
        CACHE("Force", config_parse_boolean, force, ANY, "yes or no"),
        CACHE("User", config_parse_account, owner, ANY, "a user's name or number"),
        CACHE("Group", config_parse_account, group, ANY, "a group's name or number"),
        CACHE("Mode", config_parse_access_mode, mode, ANY, "0400, 0440 or 0444"),
        {},
};

/* One file being read into one struct. */
typedef struct ConfigTarget {
        const char *path;    /* for faults */
        const char *section; /* the only one there is */
        const ConfigKey *keys;
        void *values;
        const void *defaults;
        CacheSettings *settings; /* values, where they are a cache's */
        ConfigFault *fault;
} ConfigTarget;

/* Whether an account exists is found out later: then it is good to know who named it. */
static int remember_place(const ConfigTarget *t, const char *key, unsigned line)
{
        CacheSettings *s = t->settings;
        char **file, *copy;

        if (!s || !(streq(key, "User") || streq(key, "Group")))
                return 0;
        copy = strdup(t->path);
        if (!copy)
                return -ENOMEM;
        file = streq(key, "User") ? &s->owner_file : &s->group_file;
        free(*file);
        *file = copy;
        *(streq(key, "User") ? &s->owner_line : &s->group_line) = line;
        return 0;
}

static int config_assign(const char *section, const char *key, const char *value, unsigned line,
                         void *userdata)
{
        const ConfigTarget *t = userdata;
        _cleanup_free_ char *hint = NULL, *shown = NULL;
        const ConfigKey *k;
        int r;

        /* Unknown sections end the reading where they begin, so that keys are always in the known one. */
        if (!key) {
                if (streq(section, t->section))
                        return 0;
                return config_fault_set(t->fault, t->path, line,
                                        "unknown section '[%s]': this file has only [%s]", section,
                                        t->section);
        }
        r = remember_place(t, key, line);
        if (r < 0)
                return r;
        k = config_key_find(t->keys, key);
        if (!k) {
                r = config_key_suggest(t->keys, key, &hint);
                if (r < 0)
                        return r;
                return config_fault_set(t->fault, t->path, line, "unknown key '%s=' in section [%s]: %s", key,
                                        t->section, hint);
        }
        r = k->parse(k, value, (char *) t->values + k->offset, (const char *) t->defaults + k->offset);
        if (r >= 0 || r == -ENOMEM)
                return r;
        r = path_escape(value, &shown);
        if (r < 0)
                return r;
        return config_fault_set(t->fault, t->path, line, "'%s=%s' is not acceptable: expected %s", k->name,
                                shown, k->expected);
}

/* Root's, or the manager's own, and nobody else's to write. */
static int check_owner(int fd, const char *path, ConfigFault *fault)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return fault_errno(fault, path, -errno, "its owner and mode cannot be read");
        if (st.st_uid != 0 && st.st_uid != geteuid())
                return fault_errno(fault, path, -EPERM,
                                   "it belongs to another user than root: chown it to root");
        if ((st.st_mode & 0022) != 0)
                return fault_errno(fault, path, -EPERM, "its group or others may write it: chmod go-w it");
        return 0;
}

static int open_failed(ConfigFault *fault, const char *path, int error)
{
        _cleanup_free_ char *message = NULL;

        if (error == ELOOP)
                return fault_errno(fault, path, -EPERM,
                                   "it is a symbolic link, which is not followed: put the file itself there");
        if (text_format(&message, "it cannot be opened: %s", strerror(error)) < 0)
                return -ENOMEM;
        return fault_errno(fault, path, -error, message);
}

/* -ENOENT without a fault where it is missing. */
static int open_directory(int dirfd, const char *name, const char *path, ConfigFault *fault)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
                if (errno == ENOENT)
                        return -ENOENT;
                if (errno == ENOTDIR)
                        return fault_errno(fault, path, -EPERM,
                                           "it is no directory, or a symbolic link to one");
                return open_failed(fault, path, errno);
        }
        r = check_owner(fd, path, fault);
        if (r < 0)
                return r;
        return TAKE_FD(fd);
}

/* Reads one file into the target. -ENOENT without a fault where it is missing. */
static int config_read(int dirfd, const char *name, const ConfigTarget *target)
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t n;
        int r;

        fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return errno == ENOENT ? -ENOENT : open_failed(target->fault, target->path, errno);
        r = check_owner(fd, target->path, target->fault);
        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return config_fault_set(target->fault, target->path, 0, "it is no regular file");
        r = fd_read_file(fd, CONFIG_FILE_MAX, &text, &n);
        if (r == -EFBIG)
                return config_fault_set(target->fault, target->path, 0, "it is larger than 1 MiB");
        if (r == -ENOMEM)
                return r;
        if (r < 0)
                return fault_errno(target->fault, target->path, r, "it cannot be read");
        return keyfile_parse(target->path, text, n, config_assign, (void *) target, target->fault);
}

/* The directory's path, for faults; "." where the kernel doesn't say. */
static int directory_path(int dirfd, char **ret)
{
        char link[64], path[PATH_MAX];
        ssize_t n = -1;

        if (dirfd >= 0) {
                (void) snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
                n = readlink(link, path, sizeof(path) - 1);
        }
        return text_format(ret, "%.*s", n > 0 ? (int) n : 1, n > 0 ? path : ".");
}

int manager_config_load(int dirfd, ManagerConfig *c, ConfigFault *ret_fault)
{
        _cleanup_free_ char *directory = NULL, *path = NULL;
        ManagerConfig defaults, values = *c;
        ConfigTarget target = {
                .section = "Manager",
                .keys = manager_keys,
                .values = &values,
                .defaults = &defaults,
                .fault = ret_fault,
        };
        int r;

        manager_config_defaults(&defaults);
        r = directory_path(dirfd, &directory);
        if (r < 0)
                return r;
        r = text_format(&path, "%s/iloaderd.conf", directory);
        if (r < 0)
                return r;
        target.path = path;
        r = check_owner(dirfd, directory, ret_fault);
        if (r < 0)
                return r;
        r = config_read(dirfd, "iloaderd.conf", &target);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return r;
        *c = values;
        return 0;
}

static bool is_dropin(const char *name)
{
        size_t n = strlen(name), suffix = strlen(".conf");

        return name[0] != '.' && n > suffix && streq(name + n - suffix, ".conf");
}

/* caches is the directory's descriptor; path that of NAME.conf, for faults. */
static int read_dropins(int caches, const char *name, const char *path, ConfigTarget *target)
{
        _cleanup_free_ char *directory_name = NULL, *directory = NULL;
        _cleanup_close_ int fd = -EBADF;
        _cleanup_strv_ char **names = NULL;
        int r;

        r = text_format(&directory_name, "%s.conf.d", name);
        if (r >= 0)
                r = text_format(&directory, "%s.d", path);
        if (r < 0)
                return r;
        fd = open_directory(caches, directory_name, directory, target->fault);
        if (fd < 0)
                return fd == -ENOENT ? 0 : fd;
        r = path_list_directory(fd, is_dropin, CONFIG_DROPINS_MAX, &names);
        if (r == -ENOMEM)
                return r;
        if (r == -E2BIG)
                return config_fault_set(target->fault, directory, 0, "it holds more than %u files",
                                        CONFIG_DROPINS_MAX);
        if (r < 0)
                return fault_errno(target->fault, directory, r, "it cannot be listed");
        for (char **n = names; n && *n; n++) {
                _cleanup_free_ char *file = NULL;

                r = path_join(directory, *n, &file);
                if (r < 0)
                        return r;
                target->path = file;
                r = config_read(fd, *n, target);
                target->path = path;
                /* One that vanished meanwhile is none. */
                if (r < 0 && r != -ENOENT)
                        return r;
        }
        return 0;
}

static int cache_settings_new_configured(const char *name, CacheSettings **ret)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        int r;

        r = cache_settings_new(name, &s);
        if (r < 0)
                return r;
        s->owner = strdup(CONFIG_OWNER_DEFAULT);
        if (!s->owner)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

static int read_cache(int caches, const char *name, const char *path, CacheSettings **ret,
                      ConfigFault *ret_fault)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL, *defaults = NULL;
        _cleanup_free_ char *file = NULL;
        ConfigTarget target = {
                .path = path,
                .section = "Cache",
                .keys = cache_keys,
                .fault = ret_fault,
        };
        int r;

        r = cache_settings_new_configured(name, &s);
        if (r >= 0)
                r = cache_settings_new_configured(name, &defaults);
        if (r >= 0)
                r = text_format(&file, "%s.conf", name);
        if (r < 0)
                return r;
        target.values = s;
        target.defaults = defaults;
        target.settings = s;
        r = config_read(caches, file, &target);
        if (r >= 0)
                r = read_dropins(caches, name, path, &target);
        if (r < 0)
                return r;
        if (!s->source) {
                r = config_fault_set(
                        ret_fault, path, 0,
                        "there is no 'Source=' in section [Cache]: name the checkpoint's directory");
                return r < 0 ? r : -EINVAL;
        }
        *ret = TAKE_PTR(s);
        return 0;
}

int cache_config_path(int dirfd, const char *name, char **ret)
{
        _cleanup_free_ char *directory = NULL;
        int r;

        r = directory_path(dirfd, &directory);
        return r < 0 ? r : text_format(ret, "%s/caches/%s.conf", directory, name);
}

int cache_config_load(int dirfd, const char *name, CacheSettings **ret, ConfigFault *ret_fault)
{
        _cleanup_free_ char *directory = NULL, *caches_path = NULL, *path = NULL;
        _cleanup_close_ int caches = -EBADF;
        const char *reason;
        int r;

        if (!cache_name_is_valid(name, &reason)) {
                r = config_fault_set(ret_fault, name, 0, "the name %s", reason);
                return r < 0 ? r : -EINVAL;
        }
        r = directory_path(dirfd, &directory);
        if (r >= 0)
                r = text_format(&caches_path, "%s/caches", directory);
        if (r >= 0)
                r = text_format(&path, "%s/%s.conf", caches_path, name);
        if (r >= 0)
                r = check_owner(dirfd, directory, ret_fault);
        if (r < 0)
                return r;
        caches = open_directory(dirfd, "caches", caches_path, ret_fault);
        if (caches < 0)
                return caches;
        return read_cache(caches, name, path, ret, ret_fault);
}

int cache_config_owner(int dirfd, const char *name, char **ret)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        int r;

        r = cache_config_load(dirfd, name, &s, NULL);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s->owner);
        return 0;
}
