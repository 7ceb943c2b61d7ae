/* doctor: the machine's part: memory, space, limits, and which managers there are. */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/size.h"
#include "base/spawn.h"
#include "base/text.h"
#include "ctl/base-directory.h"
#include "ctl/verb-doctor.h"
#include "lib/endpoint.h"

/* Below these a load of any size, or of many files, would fail. */
#define MEMORY_LOW      MIB(512)
#define SPACE_LOW       MIB(64)
#define DESCRIPTORS_LOW 4096U

static CheckResult check_memory(Checkup *c)
{
        _cleanup_memory_snapshot_ MemorySnapshot s = {0};
        char available[SIZE_TEXT_MAX], total[SIZE_TEXT_MAX];
        const char *limit = NULL;
        uint64_t bytes;
        int r;

        r = memory_snapshot_read(AT_FDCWD, AT_FDCWD, &s);
        if (r < 0)
                return check_says(c, CHECK_FAIL, "cannot read /proc/meminfo and the cgroups: %s",
                                  strerror(-r));
        bytes = memory_effective_available(&s, &limit);
        return check_says(c, bytes < MEMORY_LOW ? CHECK_WARN : CHECK_OK,
                          "%s of %s available, bound by %s; %zu cgroup limits apply",
                          format_size(available, bytes), format_size(total, s.total), limit ? limit : "-",
                          s.n_limits);
}

static CheckResult check_swap(Checkup *c)
{
        _cleanup_memory_snapshot_ MemorySnapshot s = {0};
        char size[SIZE_TEXT_MAX];

        if (memory_snapshot_read(AT_FDCWD, AT_FDCWD, &s) < 0 || s.swap_free == 0)
                return check_says(c, CHECK_OK, "no swap: resident files stay in memory");
        return check_says(c, CHECK_WARN,
                          "%s of swap: under memory pressure resident files may be swapped out",
                          format_size(size, s.swap_free));
}

/* The nearest directory above BASE that exists. */
static int existing_ancestor(const char *path, char **ret)
{
        _cleanup_free_ char *p = strdup(path);
        char *slash;

        while (p && access(p, F_OK) < 0 && (slash = strrchr(p, '/')))
                slash[slash == p] = '\0';
        if (!p)
                return -ENOMEM;
        *ret = TAKE_PTR(p);
        return 0;
}

static CheckResult check_base(Checkup *c)
{
        _cleanup_free_ char *error = NULL, *ancestor = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (!c->base || existing_ancestor(c->base, &ancestor) < 0)
                return check_says(c, CHECK_FAIL, "BASE cannot be told: give --base-dir");
        if (!streq(ancestor, c->base)) {
                if (access(ancestor, W_OK | X_OK) < 0)
                        return check_says(c, CHECK_FAIL,
                                          "%s is missing and %s does not let you make it: give --base-dir",
                                          c->base, ancestor);
                return check_says(c, CHECK_OK, "%s will be made by the first start", c->base);
        }
        fd = private_directory_open(c->base, &error);
        if (fd < 0)
                return check_says(c, CHECK_FAIL, "%s", error ? error : strerror(-fd));
        return check_says(c, CHECK_OK, "%s is yours alone", c->base);
}

static CheckResult check_socket_length(Checkup *c)
{
        _cleanup_free_ char *socket = NULL;

        if (!c->base || endpoint_user_socket(c->base, &socket) < 0)
                return check_says(c, CHECK_FAIL, "BASE cannot be told: give --base-dir");
        if (strlen(socket) > ENDPOINT_SOCKET_MAX)
                return check_says(c, CHECK_FAIL,
                                  "%s has %zu bytes, at most %u fit: give a shorter --base-dir", socket,
                                  strlen(socket), ENDPOINT_SOCKET_MAX);
        return check_says(c, CHECK_OK, "%s", socket);
}

static CheckResult check_space(Checkup *c)
{
        _cleanup_free_ char *ancestor = NULL;
        char size[SIZE_TEXT_MAX];
        struct statvfs fs;
        uint64_t bytes;

        if (!c->base || existing_ancestor(c->base, &ancestor) < 0 || statvfs(ancestor, &fs) < 0)
                return check_says(c, CHECK_WARN, "free space below BASE cannot be told");
        bytes = mul_saturating(fs.f_bavail, fs.f_frsize);
        return check_says(c, bytes < SPACE_LOW ? CHECK_WARN : CHECK_OK,
                          "%s free in %s, for views' small files and logs", format_size(size, bytes),
                          ancestor);
}

static CheckResult check_descriptors(Checkup *c)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return check_says(c, CHECK_WARN, "limit of descriptors: %s", strerror(errno));
        return check_says(c, limit.rlim_max < DESCRIPTORS_LOW ? CHECK_WARN : CHECK_OK,
                          "%llu descriptors a process (hard limit %llu): one for each file of 1 MiB and more",
                          (unsigned long long) limit.rlim_cur, (unsigned long long) limit.rlim_max);
}

static CheckResult check_memlock(Checkup *c)
{
        char size[SIZE_TEXT_MAX];
        struct rlimit limit;

        if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
                return check_says(c, CHECK_WARN, "limit of locked memory: %s", strerror(errno));
        return check_says(c, CHECK_OK, "%s of locked memory: for engines, iloader locks none",
                          limit.rlim_cur == RLIM_INFINITY ? "any amount" : format_size(size, limit.rlim_cur));
}

static CheckResult check_huge_pages(Checkup *c)
{
        _cleanup_free_ char *text = NULL;
        char *begin, *end;

        if (fd_read_file_at(AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", 256, &text, NULL) <
            0)
                return check_says(c, CHECK_WARN,
                                  "no huge pages for memory files: loading is several times slower");
        begin = strchr(text, '[');
        end = begin ? strchr(begin, ']') : NULL;
        if (!end)
                return check_says(c, CHECK_WARN, "shmem_enabled cannot be understood");
        *end = '\0';
        if (streq(begin + 1, "deny"))
                return check_says(c, CHECK_WARN, "shmem_enabled is 'deny': loading is several times slower");
        if (streq(begin + 1, "never"))
                return check_says(c, CHECK_OK,
                                  "shmem_enabled is 'never': pages are collapsed while loading; 'advise' "
                                  "would be faster");
        return check_says(c, CHECK_OK, "shmem_enabled is '%s'", begin + 1);
}

static CheckResult check_systemd(Checkup *c)
{
        _cleanup_free_ char *user = NULL;
        bool system = access("/run/systemd/system", F_OK) == 0, manager;

        if (text_format(&user, "/run/user/%u/systemd/private", (unsigned) geteuid()) < 0)
                return check_says(c, CHECK_FAIL, "out of memory");
        manager = access(user, F_OK) == 0;
        return check_says(c, CHECK_OK, "systemd %s, user manager %s%s", system ? "runs" : "does not run",
                          manager ? "runs" : "does not run",
                          manager || system ? "" : ": 'iloader start' brings its own manager");
}

static CheckResult check_programs(Checkup *c)
{
        static const char *const names[] = {"iloaderd", "iloader-worker"};

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                _cleanup_free_ char *path = NULL;
                int fd = program_open_sibling(names[i], &path);

                if (fd < 0)
                        return check_says(c, CHECK_FAIL,
                                          "%s is not beside this program: %s; install iloader whole",
                                          names[i], strerror(-fd));
                close_fd(fd);
        }
        return check_says(c, CHECK_OK, "iloaderd and iloader-worker are installed");
}

static CheckResult check_managers(Checkup *c)
{
        _cleanup_(varlink_client_freep) VarlinkClient *own = NULL;
        _cleanup_free_ char *socket = NULL;
        bool user = false, system = access(ENDPOINT_SYSTEM_SOCKET, F_OK) == 0;
        int r = -ENOENT;

        /* The system's socket is only looked at: connecting might start a manager. */
        if (c->base && endpoint_user_socket(c->base, &socket) >= 0)
                r = endpoint_connect(socket, &own);
        if (r == -EPERM)
                return check_says(c, CHECK_FAIL, "the manager at %s is another user's", socket);
        user = r >= 0;
        return check_says(c, CHECK_OK, "your own manager %s; the system's socket %s",
                          user ? "runs" : "does not run", system ? "is there" : "is not there");
}

const Check machine_checks[] = {
        {"memory", check_memory},         {"swap", check_swap},
        {"base directory", check_base},   {"socket path", check_socket_length},
        {"space", check_space},           {"descriptors", check_descriptors},
        {"locked memory", check_memlock}, {"huge pages", check_huge_pages},
        {"systemd", check_systemd},       {"programs", check_programs},
        {"managers", check_managers},     {0},
};
