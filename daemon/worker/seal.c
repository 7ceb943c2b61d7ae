/* See seal.h. */
#include "daemon/worker/seal.h"

#include <fcntl.h>

#include "base/fd.h"
#include "base/memfd.h"

/* A sealed, read-only description; the writable one stays the caller's to end. */
static int seal_reopen(int fd, mode_t mode, gid_t gid)
{
        int r;

        r = memfd_seal(fd, mode, gid);
        if (r < 0)
                return r;
        return fd_reopen(fd, O_RDONLY | O_CLOEXEC);
}

int seal_one(int *fd, mode_t mode, gid_t gid)
{
        int sealed = seal_reopen(*fd, mode, gid);

        if (sealed < 0)
                return sealed;
        close_fd(*fd);
        *fd = sealed;
        return 0;
}

int seal_resident(const Resident *resident, mode_t mode, gid_t gid, Failure *ret_failure)
{
        for (size_t i = 0; i < resident->n; i++) {
                int number = resident_fd(resident, i);
                _cleanup_close_ int sealed = seal_reopen(number, mode, gid);

                if (sealed >= 0 && dup3(sealed, number, O_CLOEXEC) < 0)
                        sealed = -errno;
                if (sealed < 0)
                        return failure_set_memory(ret_failure, sealed, NULL,
                                                  "cannot seal a resident file: %m");
        }
        return 0;
}
