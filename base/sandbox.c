/* The worker's system call filters, built with libseccomp (seccomp_rule_add(3), seccomp(2)). Each phase is a
 * list of names, so that it stays right on architectures that lack some of them; calls whose arguments matter
 * have a rule of their own. The second filter is stacked on the first: the kernel takes the stricter answer
 * of the two. */
#include "base/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* What only an intruder calls: answered with the process's end instead of an error that can be tried again.
 */
static const char *const intruder_calls[] = {
        /* other programs and processes */
        "execve",
        "execveat",
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "process_madvise",
        "pidfd_getfd",
        "kcmp",
        "perf_event_open",
        "userfaultfd",
        /* other rights */
        "setuid",
        "setgid",
        "setreuid",
        "setregid",
        "setresuid",
        "setresgid",
        "setfsuid",
        "setfsgid",
        "setgroups",
        "setuid32",
        "setgid32",
        "setreuid32",
        "setregid32",
        "setresuid32",
        "setresgid32",
        "setfsuid32",
        "setfsgid32",
        "setgroups32",
        "capset",
        "add_key",
        "request_key",
        "keyctl",
        /* other namespaces and roots */
        "mount",
        "umount",
        "umount2",
        "pivot_root",
        "chroot",
        "move_mount",
        "open_tree",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "unshare",
        "setns",
        "open_by_handle_at",
        /* the kernel and the machine */
        "bpf",
        "kexec_load",
        "kexec_file_load",
        "init_module",
        "finit_module",
        "delete_module",
        "reboot",
        "swapon",
        "swapoff",
        "syslog",
        "acct",
        "quotactl",
        "quotactl_fd",
        "iopl",
        "ioperm",
        "modify_ldt",
        "settimeofday",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
        "sethostname",
        "setdomainname",
};

/* Waiting, talking on sockets that are there, giving memory back, ending. */
static const char *const holding_calls[] = {
        "read",
        "write",
        "readv",
        "writev",
        "recvmsg",
        "sendmsg",
        "recvfrom",
        "sendto",
        "recv",
        "send",
        "shutdown",
        "poll",
        "ppoll",
        "ppoll_time64",
        "close",
        "fstat",
        "fstat64",
        "futex",
        "futex_time64",
        "munmap",
        "madvise",
        "brk",
        "clock_gettime",
        "clock_gettime64",
        "gettimeofday",
        "time",
        "getpid",
        "gettid",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "sigreturn",
        "restart_syscall",
        "sched_yield",
        "exit",
        "exit_group",
#if defined(__SANITIZE_ADDRESS__)
        /* the sanitizers' own bookkeeping and reports */
        "sigaltstack",
        "getrlimit",
        "prlimit64",
        "sched_getaffinity",
        "nanosleep",
        "clock_nanosleep",
        "pipe",
        "pipe2",
        "readlink",
        "readlinkat",
        "mremap",
#endif
};

/* What copying, and making or removing a view, need beside that. */
static const char *const loading_calls[] = {
        /* reading */
        "pread64",
        "preadv",
        "preadv2",
        "lseek",
        "_llseek",
        "readahead",
        "fadvise64",
        "fadvise64_64",
        "arm_fadvise64_64",
        "cachestat",
        /* looking */
        "open",
        "openat",
        "openat2",
        "stat",
        "stat64",
        "lstat",
        "lstat64",
        "newfstatat",
        "fstatat64",
        "statx",
        "statfs",
        "statfs64",
        "fstatfs",
        "fstatfs64",
        "access",
        "faccessat",
        "faccessat2",
        "readlink",
        "readlinkat",
        "getdents",
        "getdents64",
        "getcwd",
        /* writing */
        "pwrite64",
        "pwritev",
        "pwritev2",
        "splice",
        "sendfile",
        "sendfile64",
        "copy_file_range",
        "ftruncate",
        "ftruncate64",
        "fallocate",
        "fsync",
        "fdatasync",
        "sync_file_range",
        "memfd_create",
        /* the view, the pid file and the log file */
        "mkdir",
        "mkdirat",
        "rmdir",
        "unlink",
        "unlinkat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "chmod",
        "fchmod",
        "fchmodat",
        "fchmodat2",
        "chown",
        "chown32",
        "lchown",
        "lchown32",
        "fchown",
        "fchown32",
        "fchownat",
        "fsetxattr",
        "utimensat",
        "utimensat_time64",
        "flock",
        "umask",
        /* descriptors */
        "dup",
        "dup2",
        "dup3",
        "fcntl",
        "fcntl64",
        "close_range",
        "pipe",
        "pipe2",
        "eventfd",
        "eventfd2",
        "select",
        "_newselect",
        "pselect6",
        "pselect6_time64",
        "getsockopt",
        "getsockname",
        /* memory, threads, time, self */
        "mremap",
        "mincore",
        "msync",
        "set_robust_list",
        "get_robust_list",
        "set_tid_address",
        "rseq",
        "membarrier",
        "futex_waitv",
        "sched_getaffinity",
        "sched_getparam",
        "sched_getscheduler",
        "getcpu",
        "sigaltstack",
        "nanosleep",
        "clock_nanosleep",
        "clock_nanosleep_time64",
        "clock_getres",
        "getrandom",
        "getrlimit",
        "ugetrlimit",
        "getrusage",
        "getppid",
        "getuid",
        "getuid32",
        "geteuid",
        "geteuid32",
        "getgid",
        "getgid32",
        "getegid",
        "getegid32",
        "getgroups",
        "getgroups32",
        "uname",
        "sysinfo",
        /* the way into the second phase; a filter can only narrow */
        "seccomp",
};

static int sandbox_add(scmp_filter_ctx context, uint32_t action, const char *name, unsigned n,
                       const struct scmp_arg_cmp *arguments)
{
        int call = seccomp_syscall_resolve_name(name), r;

        if (call == __NR_SCMP_ERROR)
                return 0; /* a name that this libseccomp does not know yet: it stays denied */
        r = seccomp_rule_add_array(context, action, call, n, arguments);
        return r == -EDOM ? 0 : r; /* not on this architecture */
}

static int sandbox_add_all(scmp_filter_ctx context, uint32_t action, const char *const *names, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                int r = sandbox_add(context, action, names[i], 0, NULL);

                if (r < 0)
                        return r;
        }
        return 0;
}

/* One call, allowed where (argument & mask) == value. */
static int sandbox_allow_masked(scmp_filter_ctx context, const char *name, unsigned argument, uint64_t mask,
                                uint64_t value)
{
        struct scmp_arg_cmp a = {
                .arg = argument, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};

        return sandbox_add(context, SCMP_ACT_ALLOW, name, 1, &a);
}

static int sandbox_allow_values(scmp_filter_ctx context, const char *name, unsigned argument,
                                const uint64_t *values, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct scmp_arg_cmp a = {.arg = argument, .op = SCMP_CMP_EQ, .datum_a = values[i]};
                int r = sandbox_add(context, SCMP_ACT_ALLOW, name, 1, &a);

                if (r < 0)
                        return r;
        }
        return 0;
}

/* Memory that is never executable, in both phases. */
static int sandbox_allow_memory(scmp_filter_ctx context, bool files)
{
        struct scmp_arg_cmp map[] = {
                {.arg = 2, .op = SCMP_CMP_MASKED_EQ, .datum_a = PROT_EXEC, .datum_b = 0},
                {.arg = 3, .op = SCMP_CMP_MASKED_EQ, .datum_a = MAP_ANONYMOUS, .datum_b = MAP_ANONYMOUS},
        };
        static const char *const calls[] = {"mmap", "mmap2"};
        int r;

        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                r = sandbox_add(context, SCMP_ACT_ALLOW, calls[i], files ? 1 : 2, map);
                if (r < 0)
                        return r;
        }
        return sandbox_allow_masked(context, "mprotect", 2, PROT_EXEC, 0);
}

/* abort() signals its own process: no other may be. */
static int sandbox_allow_abort(scmp_filter_ctx context)
{
        uint64_t self = (uint64_t) getpid();

        return sandbox_allow_values(context, "tgkill", 0, &self, 1);
}

/* New threads, never new processes or namespaces. clone3's flags are behind a pointer that a filter can't
 * follow: ENOSYS makes the C library use clone. */
static int sandbox_allow_threads(scmp_filter_ctx context)
{
        const uint64_t wanted = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
        const uint64_t refused = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
                                 CLONE_NEWNET | CLONE_NEWCGROUP | CLONE_PTRACE;
#if defined(__s390__) || defined(__s390x__)
        const unsigned flags = 1;
#else
        const unsigned flags = 0;
#endif
        int r = sandbox_allow_masked(context, "clone", flags, wanted | refused, wanted);

        return r < 0 ? r : sandbox_add(context, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);
}

static int sandbox_rules_loading(scmp_filter_ctx context)
{
        static const uint64_t prctls[] = {PR_SET_NAME,         PR_GET_NAME,     PR_SET_NO_NEW_PRIVS,
                                          PR_GET_NO_NEW_PRIVS, PR_GET_DUMPABLE, PR_SET_VMA,
                                          PR_GET_SECCOMP};
        /* reading a limit of our own, not setting any */
        static const struct scmp_arg_cmp limits[] = {
                {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = 0},
                {.arg = 2, .op = SCMP_CMP_EQ, .datum_a = 0},
        };
        int r;

        r = sandbox_add_all(context, SCMP_ACT_ALLOW, loading_calls, ELEMENTSOF(loading_calls));
        if (r < 0)
                return r;
        r = sandbox_allow_values(context, "prctl", 0, prctls, ELEMENTSOF(prctls));
        if (r < 0)
                return r;
#if !defined(__SANITIZE_ADDRESS__) /* where all of it is allowed already */
        r = sandbox_add(context, SCMP_ACT_ALLOW, "prlimit64", ELEMENTSOF(limits), limits);
        if (r < 0)
                return r;
#else
        (void) limits;
#endif
        return sandbox_allow_threads(context);
}

static int sandbox_rules_holding(scmp_filter_ctx context)
{
        /* no F_DUPFD: no new descriptors */
        static const uint64_t fcntls[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL};
        int r;

        r = sandbox_allow_values(context, "fcntl", 1, fcntls, ELEMENTSOF(fcntls));
        return r < 0 ? r : sandbox_allow_values(context, "fcntl64", 1, fcntls, ELEMENTSOF(fcntls));
}

static void sandbox_releasep(scmp_filter_ctx *context)
{
        if (*context)
                seccomp_release(*context);
}

static int sandbox_enter(bool loading)
{
        _cleanup_(sandbox_releasep) scmp_filter_ctx context = NULL;
        int r;

        context = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        if (!context)
                return -ENOMEM;
        r = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        if (r < 0)
                return r;
        r = seccomp_attr_set(context, SCMP_FLTATR_CTL_NNP, 1);
        if (r < 0)
                return r;
        r = seccomp_attr_set(context, SCMP_FLTATR_CTL_TSYNC, 1);
        if (r < 0)
                return r;
        /* a tree instead of a list of comparisons, where this libseccomp can; only speed depends on it */
        (void) seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);

        r = sandbox_add_all(context, SCMP_ACT_KILL_PROCESS, intruder_calls, ELEMENTSOF(intruder_calls));
        if (r < 0)
                return r;
        r = sandbox_add_all(context, SCMP_ACT_ALLOW, holding_calls, ELEMENTSOF(holding_calls));
        if (r < 0)
                return r;
        r = sandbox_allow_memory(context, loading);
        if (r < 0)
                return r;
        r = sandbox_allow_abort(context);
        if (r < 0)
                return r;
        r = loading ? sandbox_rules_loading(context) : sandbox_rules_holding(context);
        if (r < 0)
                return r;
        r = seccomp_load(context);
        return r < 0 ? r : 0;
}

int sandbox_enter_loading(void)
{
        return sandbox_enter(true);
}

int sandbox_enter_holding(void)
{
        return sandbox_enter(false);
}
