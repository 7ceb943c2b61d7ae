/* Descriptors: whole reads and writes, duplicates, sets of them, and passing them over sockets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* The kernel's SCM_MAX_FD: so many descriptors fit one message. */
#define FD_PASS_MAX 253U

/* Reads exactly n bytes (at offset, for fd_pread_full); -EIO where the file ends before. */
int fd_read_full(int fd, void *buffer, size_t n);
int fd_pread_full(int fd, void *buffer, size_t n, uint64_t offset);
/* Writes all n bytes. */
int fd_write_full(int fd, const void *buffer, size_t n);
int fd_pwrite_full(int fd, const void *buffer, size_t n, uint64_t offset);

/* Reads a whole file of at most max bytes; *ret is NUL-terminated and the caller's to free. -EFBIG where
 * larger. ret_size may be NULL. */
int fd_read_file(int fd, size_t max, char **ret, size_t *ret_size);
/* The same for a path below a directory (AT_FDCWD allowed), opened O_NOFOLLOW. Only regular files: -EISDIR,
 * -EINVAL. */
int fd_read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size);

/* Replaces the file atomically: a temporary file beside it, fsync where sync is set, rename. mode as it is,
 * whatever the umask. */
int fd_write_file_at(int dirfd, const char *name, const void *data, size_t n, mode_t mode, bool sync);

/* A close-on-exec duplicate, numbered 3 or more. */
int fd_dup(int fd);
/* A description of its own of the same file, opened anew through /proc/self/fd with the flags. */
int fd_reopen(int fd, int flags);
int fd_set_nonblock(int fd, bool nonblock);
int fd_set_cloexec(int fd, bool cloexec);

/* Takes the numbers 0 to 2 where they are closed, so that nothing opened later gets one and is then read or
 * written as a standard stream. What stands there refuses both with EBADF, as a closed one does, and closes
 * on exec. To be called first. */
int fd_reserve_standard(void);

/* An owned array of descriptors. */
typedef struct FdSet {
        int *fds;
        size_t n;
        size_t allocated;
} FdSet;

/* Closes all that are left and frees the array; leaves an empty set. */
void fd_set_done(FdSet *set);
/* Appends; takes fd on success. */
int fd_set_take(FdSet *set, int fd);
/* Takes the first out of the set: the descriptor, or -ENOENT. */
int fd_set_steal_first(FdSet *set);
#define _cleanup_fd_set_ _cleanup_(fd_set_done)

/* Raises the soft RLIMIT_NOFILE to the hard one; returns 0 and the previous soft limit in *ret_previous (may
 * be NULL). */
int fd_limit_raise(uint64_t *ret_previous);

/* Closes every descriptor of 3 and more except the listed ones (sorted or not). For use between fork and
 * exec. */
int fd_close_all_except(const int *keep, size_t n_keep);
/* The same from first on instead of 3. Allocates nothing. */
int fd_close_from_except(int first, const int *keep, size_t n_keep);

/* poll(2) on one descriptor until the deadline (CLOCK_MONOTONIC, USEC_INFINITY: for ever): the events, or
 * -ETIMEDOUT. EINTR is retried. */
int fd_wait(int fd, short events, usec_t deadline);

/* CLOCK_MONOTONIC and CLOCK_REALTIME in microseconds. */
usec_t now_monotonic(void);
usec_t now_realtime(void);
