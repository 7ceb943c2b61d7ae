/* Processes by pidfd, and what /proc tells of them. */
#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/size.h"
#include "base/text.h"

/* Files of /proc that are read here are a few hundred bytes; status grows with the number of groups. */
#define PROC_FILE_MAX KIB(1024)

int pidfd_open_pid(pid_t pid)
{
        long fd = syscall(SYS_pidfd_open, pid, 0);

        return fd < 0 ? -errno : (int) fd;
}

int pidfd_send_signal_to(int pidfd, int sig)
{
        return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

static int read_proc(const char *path, char **ret)
{
        int r;

        r = fd_read_file_at(AT_FDCWD, path, PROC_FILE_MAX, ret, NULL);
        /* What is gone before opening, and while reading. */
        return r == -ENOENT ? -ESRCH : r;
}

static int read_proc_of(pid_t pid, const char *name, char **ret)
{
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
        return read_proc(path, ret);
}

/* What follows the key, at the beginning of a line, and blanks; NULL where there is no such line. */
static const char *find_field(const char *text, const char *key)
{
        const char *line = text;

        while (line) {
                const char *value = startswith(line, key);

                if (value)
                        return value + strspn(value, " \t");
                line = strchr(line, '\n');
                if (line)
                        line++;
        }
        return NULL;
}

/* The decimal number that text begins with, up to a blank or the end of the line. */
static int parse_leading_u64(const char *text, uint64_t max, uint64_t *ret)
{
        char digits[24];
        size_t n = strcspn(text, " \t\n");

        if (n >= sizeof(digits))
                return -EBADMSG;
        memcpy(digits, text, n);
        digits[n] = '\0';
        return parse_u64_range(digits, 0, max, ret) < 0 ? -EBADMSG : 0;
}

int pidfd_get_pid(int pidfd, pid_t *ret)
{
        _cleanup_free_ char *text = NULL;
        char path[64];
        const char *value;
        uint64_t pid;
        int r;

        if (pidfd < 0)
                return -EBADF;
        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
        r = fd_read_file_at(AT_FDCWD, path, PROC_FILE_MAX, &text, NULL);
        if (r < 0)
                return r == -ENOENT ? -EBADF : r;
        value = find_field(text, "Pid:");
        if (!value)
                return -EINVAL;
        /* -1: reaped. 0: alive, but with no number in our namespace. */
        if (startswith(value, "-1\n"))
                return -ESRCH;
        r = parse_leading_u64(value, INT32_MAX, &pid);
        if (r < 0)
                return r;
        if (pid == 0)
                return -EREMOTE;
        /* Ended, but not reaped yet: as good as gone. */
        r = pidfd_has_exited(pidfd);
        if (r != 0)
                return r < 0 ? r : -ESRCH;
        *ret = (pid_t) pid;
        return 0;
}

/* A decimal field of /proc/PID/stat, counted from 1 as proc(5) does. */
static int read_stat_field(pid_t pid, unsigned wanted, uint64_t *ret)
{
        _cleanup_free_ char *text = NULL;
        const char *p;
        unsigned field;
        int r;

        r = read_proc_of(pid, "stat", &text);
        if (r < 0)
                return r;
        /* Field 2 is the command in parentheses, which may itself hold blanks and parentheses: the last one
         * counts. */
        p = strrchr(text, ')');
        if (!p)
                return -EBADMSG;
        p++;
        for (field = 3;; field++) {
                p += strspn(p, " ");
                if (*p == '\0')
                        return -EBADMSG;
                if (field == wanted)
                        return parse_leading_u64(p, UINT64_MAX, ret);
                p += strcspn(p, " ");
        }
}

int process_start_time(pid_t pid, uint64_t *ret)
{
        return read_stat_field(pid, 22, ret);
}

int process_get_parent(pid_t pid, pid_t *ret)
{
        uint64_t parent;
        int r;

        r = read_stat_field(pid, 4, &parent);
        if (r < 0)
                return r;
        if (parent > INT32_MAX)
                return -EBADMSG;
        *ret = (pid_t) parent;
        return 0;
}

/* "Uid:" of status has four numbers: real, effective, saved, and of the file system. */
static int read_effective_uid(pid_t pid, uid_t *ret)
{
        _cleanup_free_ char *text = NULL;
        const char *value;
        uint64_t uid;
        int r;

        r = read_proc_of(pid, "status", &text);
        if (r < 0)
                return r;
        value = find_field(text, "Uid:");
        if (!value)
                return -EBADMSG;
        value += strcspn(value, " \t\n");
        value += strspn(value, " \t");
        r = parse_leading_u64(value, UINT32_MAX, &uid);
        if (r < 0)
                return r;
        *ret = (uid_t) uid;
        return 0;
}

/* A process names itself as it likes; what people and JSON get is printable ASCII. */
int process_get_command(pid_t pid, char ret[static PROCESS_COMMAND_MAX])
{
        _cleanup_free_ char *text = NULL;
        size_t n, i;
        int r;

        r = read_proc_of(pid, "comm", &text);
        if (r < 0)
                return r;
        /* Not to the first newline, which may be part of the name: to the last. */
        n = strlen(text);
        if (n > 0 && text[n - 1] == '\n')
                n--;
        n = MIN2(n, (size_t) PROCESS_COMMAND_MAX - 1);
        for (i = 0; i < n; i++)
                ret[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
        ret[n] = '\0';
        return 0;
}

int pidfd_get_info(int pidfd, ProcessInfo *ret)
{
        ProcessInfo info = {0};
        int r;

        r = pidfd_get_pid(pidfd, &info.pid);
        if (r < 0)
                return r;
        r = process_start_time(info.pid, &info.start_time);
        if (r < 0)
                return r;
        r = read_effective_uid(info.pid, &info.uid);
        if (r < 0)
                return r;
        r = process_get_command(info.pid, info.command);
        if (r < 0)
                return r;
        /* As long as the process lives its number isn't given to another, so all that was read is its own. */
        r = pidfd_has_exited(pidfd);
        if (r != 0)
                return r < 0 ? r : -ESRCH;
        *ret = info;
        return 0;
}

int pidfd_has_exited(int pidfd)
{
        int r;

        r = fd_wait(pidfd, POLLIN, 0);
        if (r == -ETIMEDOUT)
                return 0;
        return r < 0 ? r : 1;
}

int pidfd_wait(int pidfd, usec_t deadline, int *ret_status)
{
        siginfo_t si = {0};
        int r;

        r = fd_wait(pidfd, POLLIN, deadline);
        if (r < 0)
                return r;
        do
                r = waitid((idtype_t) P_PIDFD, (id_t) pidfd, &si, WEXITED);
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return -errno;
        if (ret_status)
                *ret_status = si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status;
        return 0;
}

int boot_id_get(char ret[static 33])
{
        _cleanup_free_ char *text = NULL;
        char id[33];
        size_t n = 0;
        const char *p;
        int r;

        r = fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, NULL);
        if (r < 0)
                return r;
        for (p = text; *p && *p != '\n'; p++) {
                if (*p == '-')
                        continue;
                if (n >= 32 || !strchr("0123456789abcdef", *p))
                        return -EBADMSG;
                id[n++] = *p;
        }
        if (n != 32)
                return -EBADMSG;
        id[n] = '\0';
        memcpy(ret, id, sizeof(id));
        return 0;
}
