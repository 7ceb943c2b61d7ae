/* doctor: the kernel's part. Each check does the thing itself, in a private directory. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/path.h"
#include "base/process.h"
#include "base/text.h"
#include "ctl/verb-doctor.h"

static CheckResult check_locks(Checkup *c)
{
        _cleanup_close_ int a = -EBADF, b = -EBADF;
        _cleanup_free_ char *path = NULL;

        if (path_join(c->directory, "lock", &path) < 0)
                return check_says(c, CHECK_FAIL, "out of memory");
        a = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        b = open(path, O_RDWR | O_CLOEXEC);
        if (a < 0 || b < 0 || flock(a, LOCK_EX | LOCK_NB) < 0)
                return check_says(c, CHECK_FAIL, "flock(2) in %s: %s", c->directory, strerror(errno));
        if (flock(b, LOCK_EX | LOCK_NB) == 0)
                return check_says(c, CHECK_FAIL,
                                  "flock(2) in %s does not exclude: use a node-local --base-dir",
                                  c->directory);
        return check_says(c, CHECK_OK, "flock(2) excludes");
}

/* A listening socket and a connection to it. */
static int connect_pair(const char *path, int ret[static 2])
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int listener = -EBADF, client = -EBADF, server = -EBADF;

        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        (void) memcpy(address.sun_path, path, strlen(path) + 1);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listener < 0 || client < 0 || bind(listener, (struct sockaddr *) &address, sizeof(address)) < 0 ||
            listen(listener, 1) < 0 || connect(client, (struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (server < 0)
                return -errno;
        ret[0] = TAKE_FD(client);
        ret[1] = TAKE_FD(server);
        return 0;
}

static int send_fd(int socket, int fd)
{
        union {
                char buffer[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {{0}};
        char byte = 'x';
        struct iovec iov = {&byte, 1};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        (void) memcpy(CMSG_DATA(h), &fd, sizeof(int));
        return sendmsg(socket, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

static int receive_fd(int socket)
{
        union {
                char buffer[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = {{0}};
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        struct cmsghdr *h;
        int fd;

        if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != 1)
                return -EIO;
        h = CMSG_FIRSTHDR(&m);
        if (!h || h->cmsg_type != SCM_RIGHTS)
                return -EIO;
        (void) memcpy(&fd, CMSG_DATA(h), sizeof(int));
        return fd;
}

static CheckResult check_sockets(Checkup *c)
{
        _cleanup_free_ char *path = NULL;
        int fds[2] = {-EBADF, -EBADF}, r;

        if (path_join(c->directory, "socket", &path) < 0)
                return check_says(c, CHECK_FAIL, "out of memory");
        r = connect_pair(path, fds);
        if (r < 0)
                return check_says(c, CHECK_FAIL, "Unix sockets in %s: %s", c->directory, strerror(-r));
        r = send_fd(fds[0], fds[1]);
        if (r >= 0) {
                r = receive_fd(fds[1]);
                close_fd(r);
        }
        close_fd(fds[0]);
        close_fd(fds[1]);
        if (r < 0)
                return check_says(c, CHECK_FAIL, "passing descriptors: %s", strerror(-r));
        return check_says(c, CHECK_OK, "Unix sockets connect and pass descriptors");
}

static CheckResult check_links(Checkup *c)
{
        _cleanup_free_ char *from = NULL, *to = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (path_join(c->directory, "link-from", &from) < 0 || path_join(c->directory, "link-to", &to) < 0)
                return check_says(c, CHECK_FAIL, "out of memory");
        fd = open(from, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || link(from, to) < 0 || link(from, to) == 0 || errno != EEXIST)
                return check_says(c, CHECK_WARN, "hard links in %s: %s", c->directory, strerror(errno));
        return check_says(c, CHECK_OK, "hard links are exclusive");
}

static CheckResult check_memfd(Checkup *c)
{
        static const char text[] = "sealed";
        int fd, r;

        fd = memfd_new_sealed_data("iloader-doctor", text, sizeof(text), 0400);
        if (fd < 0)
                return check_says(c, CHECK_FAIL, "sealed memory files: %s", strerror(-fd));
        r = pwrite(fd, "x", 1, 0) == 1 ? 0 : -errno;
        close_fd(fd);
        if (r != -EPERM)
                return check_says(c, CHECK_FAIL, "a sealed memory file could be written to");
        return check_says(c, CHECK_OK, "memory files can be sealed against writing");
}

/* In another process: the file must open through the holder's /proc entry, as engines open it. */
static _noreturn_ void reopen(pid_t holder, int fd, const char *expected, size_t n)
{
        char path[64], buffer[64];
        int opened;

        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) holder, fd);
        opened = open(path, O_RDONLY | O_CLOEXEC);
        if (opened < 0)
                _exit(errno < 255 ? errno : 255);
        if (read(opened, buffer, sizeof(buffer)) != (ssize_t) n || memcmp(buffer, expected, n) != 0)
                _exit(EIO);
        _exit(0);
}

static CheckResult check_reopen(Checkup *c)
{
        static const char text[] = "resident";
        _cleanup_close_ int fd = -EBADF;
        pid_t holder = getpid(), pid;
        int status = 0;

        fd = memfd_new_sealed_data("iloader-doctor", text, sizeof(text), 0400);
        if (fd < 0)
                return check_says(c, CHECK_FAIL, "sealed memory files: %s", strerror(-fd));
        pid = fork();
        if (pid == 0)
                reopen(holder, fd, text, sizeof(text));
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
                return check_says(c, CHECK_FAIL, "making a process: %s", strerror(errno));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                return check_says(
                        c, CHECK_FAIL,
                        "another process cannot open /proc/PID/fd/N: %s; is /proc mounted, and this the pid "
                        "namespace of its processes?",
                        WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it was killed");
        return check_says(c, CHECK_OK, "another process opens resident files through /proc");
}

static CheckResult check_pidfd(Checkup *c)
{
        _cleanup_close_ int fd = -EBADF;
        pid_t pid;
        int r, status = 0;

        pid = fork();
        if (pid == 0)
                _exit(7);
        if (pid < 0)
                return check_says(c, CHECK_FAIL, "making a process: %s", strerror(errno));
        fd = pidfd_open_pid(pid);
        if (fd < 0) {
                (void) waitpid(pid, NULL, 0);
                return check_says(c, CHECK_FAIL, "pidfd_open(2): %s; leases need it (Linux 5.3)",
                                  strerror(-fd));
        }
        r = pidfd_wait(fd, now_monotonic() + 5 * USEC_PER_SEC, &status);
        if (r < 0 || status != 7)
                return check_says(c, CHECK_FAIL, "a pidfd did not report its process's end");
        return check_says(c, CHECK_OK, "pidfds report the end of processes");
}

static CheckResult check_seccomp(Checkup *c)
{
        if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0)
                return check_says(c, CHECK_FAIL, "seccomp: %s; workers need CONFIG_SECCOMP_FILTER",
                                  strerror(errno));
        /* The filter is checked by an address that cannot be read: EFAULT says that filters exist. */
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) < 0 &&
            errno != EFAULT)
                return check_says(c, CHECK_FAIL, "seccomp filters: %s", strerror(errno));
        return check_says(c, CHECK_OK, "seccomp filters can be installed");
}

static CheckResult check_openat2(Checkup *c)
{
        struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                               .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
        _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = (int) syscall(SYS_openat2, root, "proc", &how, sizeof(how));

        if (fd < 0)
                return check_says(c, CHECK_WARN, "openat2(2): %s; paths are resolved step by step instead",
                                  strerror(errno));
        close_fd(fd);
        return check_says(c, CHECK_OK, "openat2(2) resolves below a root");
}

const Check kernel_checks[] = {
        {"locks", check_locks},         {"sockets", check_sockets},        {"hard links", check_links},
        {"memfd sealing", check_memfd}, {"memfd reopening", check_reopen}, {"pidfds", check_pidfd},
        {"seccomp", check_seccomp},     {"openat2", check_openat2},        {0},
};
