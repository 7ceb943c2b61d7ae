/* Descriptors: the loops around read(2) and write(2), atomic replacement of files, duplicates, and closing
 * what a child must not inherit. */
#include "base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One read(2) or write(2) never moves more than this (MAX_RW_COUNT of the kernel), so asking for more gains
 * nothing. */
#define TRANSFER_MAX ((size_t) 0x7ffff000)

/* A descriptor that doesn't block says EAGAIN in the middle of a transfer; whoever asked for all of it wants
 * to wait. */
static int transfer_retry(int fd, short events)
{
        int r;

        if (errno == EINTR)
                return 0;
        if (errno != EAGAIN)
                return -errno;
        r = fd_wait(fd, events, USEC_INFINITY);
        return r < 0 ? r : 0;
}

/* Where the descriptor's own offset counts, and is moved. */
#define OFFSET_OWN ((off_t) -1)

static ssize_t transfer_once(int fd, bool out, unsigned char *p, size_t n, off_t offset)
{
        n = MIN2(n, TRANSFER_MAX);
        if (offset == OFFSET_OWN)
                return out ? write(fd, p, n) : read(fd, p, n);
        return out ? pwrite(fd, p, n, offset) : pread(fd, p, n, offset);
}

/* All n bytes; the buffer is only read from where they go out. */
static int transfer_all(int fd, bool out, unsigned char *p, size_t n, off_t offset)
{
        while (n > 0) {
                ssize_t k = transfer_once(fd, out, p, n, offset);

                if (k < 0) {
                        int r = transfer_retry(fd, out ? POLLOUT : POLLIN);

                        if (r < 0)
                                return r;
                        continue;
                }
                if (k == 0)
                        return -EIO;
                p += k;
                n -= (size_t) k;
                if (offset != OFFSET_OWN)
                        offset += k;
        }
        return 0;
}

static int transfer_at(int fd, bool out, unsigned char *p, size_t n, uint64_t offset)
{
        if (offset > INT64_MAX || n > INT64_MAX - offset)
                return -EOVERFLOW;
        return transfer_all(fd, out, p, n, (off_t) offset);
}

int fd_read_full(int fd, void *buffer, size_t n)
{
        return transfer_all(fd, false, buffer, n, OFFSET_OWN);
}

int fd_pread_full(int fd, void *buffer, size_t n, uint64_t offset)
{
        return transfer_at(fd, false, buffer, n, offset);
}

int fd_write_full(int fd, const void *buffer, size_t n)
{
        return transfer_all(fd, true, (unsigned char *) buffer, n, OFFSET_OWN);
}

int fd_pwrite_full(int fd, const void *buffer, size_t n, uint64_t offset)
{
        return transfer_at(fd, true, (unsigned char *) buffer, n, offset);
}

int fd_read_file(int fd, size_t max, char **ret, size_t *ret_size)
{
        _cleanup_free_ char *buffer = NULL;
        size_t size = 0, allocated = 0;
        struct stat st;
        char *shrunk;

        /* The size is a hint only: files of /proc say 0, and others may grow. One byte more than it finds the
         * end without enlarging, one for the NUL. */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (max > SIZE_MAX - 2)
                max = SIZE_MAX - 2;
        if (S_ISREG(st.st_mode) && st.st_size > 0)
                allocated = (size_t) MIN2((uint64_t) st.st_size, (uint64_t) max) + 2;
        if (allocated < 4096)
                allocated = 4096;
        buffer = malloc(allocated);
        if (!buffer)
                return -ENOMEM;

        for (;;) {
                ssize_t k;

                if (size + 1 >= allocated) {
                        size_t wanted = allocated > SIZE_MAX / 2 ? SIZE_MAX : allocated * 2;
                        char *larger = realloc(buffer, wanted);

                        if (!larger)
                                return -ENOMEM;
                        buffer = larger;
                        allocated = wanted;
                }
                k = read(fd, buffer + size, MIN2(allocated - size - 1, TRANSFER_MAX));
                if (k < 0) {
                        int r = transfer_retry(fd, POLLIN);

                        if (r < 0)
                                return r;
                        continue;
                }
                if (k == 0)
                        break;
                size += (size_t) k;
                if (size > max)
                        return -EFBIG;
        }

        buffer[size] = '\0';
        shrunk = realloc(buffer, size + 1);
        if (shrunk)
                buffer = shrunk;
        *ret = TAKE_PTR(buffer);
        if (ret_size)
                *ret_size = size;
        return 0;
}

int fd_read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        /* O_NONBLOCK: a FIFO in the file's place must not hold us. */
        fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        return fd_read_file(fd, max, ret, ret_size);
}

/* Makes and opens a new file beside name with a random name, which ret receives. */
static int open_temporary(int dirfd, const char *name, char ret[static PATH_MAX])
{
        const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
        size_t directory = (size_t) (last - name);
        unsigned attempt;

        if (*last == '\0')
                return -EINVAL;
        if (directory + NAME_MAX >= PATH_MAX)
                return -ENAMETOOLONG;
        for (attempt = 0; attempt < 64; attempt++) {
                uint64_t random;
                int fd;

                if (getrandom(&random, sizeof(random), 0) != (ssize_t) sizeof(random))
                        return -EIO;
                /* Cut so that a name of any allowed length leaves room for the rest. */
                (void) snprintf(ret, PATH_MAX, "%.*s.#%.200s-%016llx", (int) directory, name, last,
                                (unsigned long long) random);
                fd = openat(dirfd, ret, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY,
                            0600);
                if (fd >= 0)
                        return fd;
                if (errno != EEXIST)
                        return -errno;
        }
        return -EEXIST;
}

/* Makes a rename below dirfd durable: dirfd itself may be O_PATH, which can't be synchronized. */
static int sync_parent(int dirfd, const char *name)
{
        const char *slash = strrchr(name, '/');
        char parent[PATH_MAX] = ".";
        _cleanup_close_ int fd = -EBADF;

        if (slash) {
                size_t n = (size_t) (slash - name) + 1;

                memcpy(parent, name, n);
                parent[n] = '\0';
        }
        fd = openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
                return -errno;
        return 0;
}

int fd_write_file_at(int dirfd, const char *name, const void *data, size_t n, mode_t mode, bool sync)
{
        _cleanup_close_ int fd = -EBADF;
        char temporary[PATH_MAX];
        int r;

        fd = open_temporary(dirfd, name, temporary);
        if (fd < 0)
                return fd;
        r = fd_write_full(fd, data, n);
        if (r >= 0 && fchmod(fd, mode) < 0)
                r = -errno;
        if (r >= 0 && sync && fsync(fd) < 0)
                r = -errno;
        if (r >= 0 && renameat(dirfd, temporary, dirfd, name) < 0)
                r = -errno;
        if (r < 0) {
                (void) unlinkat(dirfd, temporary, 0);
                return r;
        }
        return sync ? sync_parent(dirfd, name) : 0;
}

int fd_dup(int fd)
{
        int r = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        return r < 0 ? -errno : r;
}

int fd_reopen(int fd, int flags)
{
        char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
        int r;

        if (fd < 0)
                return -EBADF;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        /* The entry in /proc is itself a link that must be followed. */
        r = open(path, (flags & ~O_NOFOLLOW) | O_CLOEXEC);
        return r < 0 ? -errno : r;
}

int fd_set_nonblock(int fd, bool nonblock)
{
        int flags = fcntl(fd, F_GETFL), wanted;

        if (flags < 0)
                return -errno;
        wanted = nonblock ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        if (wanted != flags && fcntl(fd, F_SETFL, wanted) < 0)
                return -errno;
        return 0;
}

int fd_set_cloexec(int fd, bool cloexec)
{
        int flags = fcntl(fd, F_GETFD), wanted;

        if (flags < 0)
                return -errno;
        wanted = cloexec ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC;
        if (wanted != flags && fcntl(fd, F_SETFD, wanted) < 0)
                return -errno;
        return 0;
}

void fd_set_done(FdSet *set)
{
        size_t i;

        for (i = 0; i < set->n; i++)
                (void) close_fd(set->fds[i]);
        free(set->fds);
        *set = (FdSet){0};
}

int fd_set_take(FdSet *set, int fd)
{
        if (fd < 0)
                return -EBADF;
        if (set->n >= set->allocated) {
                size_t wanted = set->allocated ? set->allocated * 2 : 8;
                int *larger = reallocarray(set->fds, wanted, sizeof(int));

                if (!larger)
                        return -ENOMEM;
                set->fds = larger;
                set->allocated = wanted;
        }
        set->fds[set->n++] = fd;
        return 0;
}

int fd_set_steal_first(FdSet *set)
{
        int fd;

        if (set->n == 0)
                return -ENOENT;
        fd = set->fds[0];
        set->n--;
        memmove(set->fds, set->fds + 1, set->n * sizeof(int));
        return fd;
}

int fd_limit_raise(uint64_t *ret_previous)
{
        struct rlimit limit;
        rlim_t previous;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return -errno;
        previous = limit.rlim_cur;
        if (limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                        return -errno;
        }
        if (ret_previous)
                *ret_previous = (uint64_t) previous;
        return 0;
}

static bool is_kept(int fd, const int *keep, size_t n_keep)
{
        size_t i;

        for (i = 0; i < n_keep; i++)
                if (keep[i] == fd)
                        return true;
        return false;
}

/* For kernels and filters without close_range(2). Reads the directory by the system call, since opendir(3)
 * allocates, which is not allowed after a fork; closing while reading is fine, as /proc goes on from the
 * number it has reached. */
static int close_by_listing(int first, const int *keep, size_t n_keep)
{
        /* As getdents64(2) has it; 8-byte aligned by the union. */
        struct Entry {
                uint64_t inode;
                int64_t offset;
                unsigned short length;
                unsigned char type;
                char name[];
        };
        union {
                uint64_t align;
                char bytes[2048];
        } buffer;
        _cleanup_close_ int directory = -EBADF;

        directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
                return -errno;
        for (;;) {
                long n = syscall(SYS_getdents64, directory, buffer.bytes, sizeof(buffer.bytes));
                long at = 0;

                if (n < 0)
                        return -errno;
                if (n == 0)
                        return 0;
                while (at < n) {
                        const struct Entry *entry = (const struct Entry *) (const void *) (buffer.bytes + at);
                        const char *p = entry->name;
                        int fd = 0;

                        at += entry->length;
                        if (*p < '0' || *p > '9')
                                continue;
                        for (; *p >= '0' && *p <= '9'; p++)
                                fd = fd * 10 + (*p - '0');
                        if (fd >= first && fd != directory && !is_kept(fd, keep, n_keep))
                                (void) close(fd);
                }
        }
}

int fd_close_from_except(int first, const int *keep, size_t n_keep)
{
        unsigned start = first < 0 ? 0 : (unsigned) first;

        for (;;) {
                unsigned next = UINT_MAX;
                size_t i;

                /* The smallest kept one that is still ahead: quadratic, but without memory, and the lists are
                 * short. */
                for (i = 0; i < n_keep; i++)
                        if (keep[i] >= 0 && (unsigned) keep[i] >= start && (unsigned) keep[i] < next)
                                next = (unsigned) keep[i];
                if (next == UINT_MAX)
                        break;
                if (next > start && close_range(start, next - 1, 0) < 0)
                        return close_by_listing(first, keep, n_keep);
                start = next + 1;
        }
        if (close_range(start, UINT_MAX, 0) < 0)
                return close_by_listing(first, keep, n_keep);
        return 0;
}

int fd_close_all_except(const int *keep, size_t n_keep)
{
        return fd_close_from_except(3, keep, n_keep);
}

int fd_reserve_standard(void)
{
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
                if (fcntl(fd, F_GETFD) >= 0)
                        continue;
                /* The lowest free number is this one. */
                if (open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0)
                        return -errno;
        }
        return 0;
}

int fd_wait(int fd, short events, usec_t deadline)
{
        struct pollfd p = {.fd = fd, .events = events};

        if (fd < 0)
                return -EBADF;
        for (;;) {
                struct timespec ts = {0}, *timeout = NULL;
                int r;

                if (deadline != USEC_INFINITY) {
                        usec_t now = now_monotonic(), left = deadline > now ? deadline - now : 0;

                        /* More seconds than a century are as good as for ever, and fit any time_t. */
                        ts.tv_sec = (time_t) MIN2(left / USEC_PER_SEC, (usec_t) 3200000000U / 2);
                        ts.tv_nsec = (long) (left % USEC_PER_SEC * 1000);
                        timeout = &ts;
                }
                r = ppoll(&p, 1, timeout, NULL);
                if (r < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (r > 0)
                        return p.revents & POLLNVAL ? -EBADF : p.revents;
                if (now_monotonic() >= deadline)
                        return -ETIMEDOUT;
        }
}

static usec_t now_of(clockid_t clock)
{
        struct timespec ts;

        /* Can't fail for the clocks asked for. */
        (void) clock_gettime(clock, &ts);
        return (usec_t) ts.tv_sec * USEC_PER_SEC + (usec_t) ts.tv_nsec / 1000;
}

usec_t now_monotonic(void)
{
        return now_of(CLOCK_MONOTONIC);
}

usec_t now_realtime(void)
{
        return now_of(CLOCK_REALTIME);
}
