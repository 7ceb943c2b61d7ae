/* The quota's file: decimal digits and one newline, so that a file cut short isn't taken for a smaller
 * number. */
#include "daemon/quota.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/size.h"

/* Of 2^64, with newline. */
#define QUOTA_TEXT_MAX 24U

int quota_load(int dirfd, const char *file, uint64_t *ret)
{
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t size;
        uint64_t quota;
        int r;

        fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0) {
                if (errno == ENOENT) {
                        *ret = UINT64_MAX;
                        return 0;
                }
                return errno == ELOOP ? -EBADMSG : -errno;
        }
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADMSG;
        r = fd_read_file(fd, QUOTA_TEXT_MAX, &text, &size);
        if (r == -EFBIG)
                return -EBADMSG;
        if (r < 0)
                return r;
        if (size < 2 || text[size - 1] != '\n')
                return -EBADMSG;
        text[size - 1] = '\0';
        if (strlen(text) != size - 1 || parse_u64(text, &quota) < 0 || quota == UINT64_MAX)
                return -EBADMSG;
        *ret = quota;
        return 0;
}

int quota_save(int dirfd, const char *file, uint64_t quota)
{
        char text[QUOTA_TEXT_MAX];
        int n;

        if (quota == UINT64_MAX) {
                if (unlinkat(dirfd, file, 0) < 0 && errno != ENOENT)
                        return -errno;
                /* Removal must outlive a power cut as setting does. dirfd may be O_PATH, so it is opened
                 * anew. */
                _cleanup_close_ int dir = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (dir < 0 || fsync(dir) < 0)
                        return errno == EINVAL ? 0 : -errno;
                return 0;
        }
        n = snprintf(text, sizeof(text), "%" PRIu64 "\n", quota);
        return fd_write_file_at(dirfd, file, text, (size_t) n, 0600, true);
}
