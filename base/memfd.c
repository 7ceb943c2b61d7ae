/* Memory files: made, sealed, checked. */
#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

/* Linux 6.3; later than the headers that we build with. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

/* memfd_create(2): NAME_MAX less the "memfd:" that the kernel puts before it. */
#define NAME_LENGTH_MAX 249

unsigned memfd_required_seals(void)
{
        return F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
}

int memfd_new(const char *name)
{
        char cut[NAME_LENGTH_MAX + 1];
        int fd;

        (void) snprintf(cut, sizeof(cut), "%s", name);
        fd = memfd_create(cut, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create(cut, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd < 0 ? -errno : fd;
}

int memfd_seal(int fd, mode_t mode, gid_t gid)
{
        int required = (int) memfd_required_seals();

        if (gid != (gid_t) -1 && fchown(fd, (uid_t) -1, gid) < 0)
                return -errno;
        /* Resident files are data: without the execute bits, which F_SEAL_EXEC would forbid to set. And while
         * there is one, that seal would mean sealing writes at once as well. */
        if (fchmod(fd, mode & 0666) < 0)
                return -errno;
        if (fcntl(fd, F_ADD_SEALS, required | F_SEAL_EXEC) >= 0)
                return 0;
        if (errno != EINVAL)
                return -errno;
        if (fcntl(fd, F_ADD_SEALS, required) < 0)
                return -errno;
        return 0;
}

int memfd_new_sealed_data(const char *name, const void *data, size_t n, mode_t mode)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = memfd_new(name);
        if (fd < 0)
                return fd;
        r = fd_write_full(fd, data, n);
        if (r < 0)
                return r;
        r = memfd_seal(fd, mode, (gid_t) -1);
        if (r < 0)
                return r;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int memfd_verify(int fd, uint64_t size)
{
        int required = (int) memfd_required_seals(), flags, seals;
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -ENOTTY;
        flags = fcntl(fd, F_GETFL);
        if (flags < 0)
                return -errno;
        /* O_PATH counts as read-only by its access mode, but can't be read. */
        if ((flags & O_PATH) || (flags & O_ACCMODE) != O_RDONLY)
                return -EBADF;
        /* EINVAL where the file system knows no seals. An ordinary file of tmpfs does, and has just
         * F_SEAL_SEAL for its whole life, so that it never has them all. */
        seals = fcntl(fd, F_GET_SEALS);
        if (seals < 0)
                return -errno;
        if ((seals & required) != required)
                return -EPERM;
        /* Last, since only a sealed file's size means anything. */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (size != UINT64_MAX && (uint64_t) st.st_size != size)
                return -EFBIG;
        return 0;
}
