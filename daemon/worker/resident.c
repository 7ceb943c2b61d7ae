/* See resident.h. */
#include "daemon/worker/resident.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "base/memfd.h"
#include "base/path.h"
#include "base/text.h"
#include "wire/worker-protocol.h"

/* Beside the resident files: duplicates in one frame that waits to be sent, and a few of each thread (source,
 * pipe). */
#define RESIDENT_SPARE(threads) (WORKER_FDS_PER_FRAME + 16U + 4U * (threads))

int resident_check_limit(int first, size_t n, unsigned threads, Failure *ret_failure)
{
        uint64_t spare = (uint64_t) first + RESIDENT_SPARE(threads), limit;
        struct rlimit rl;
        int r;

        if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
                return failure_complete(ret_failure, errno, "cannot read the limit on open files");
        limit = rl.rlim_cur > (rlim_t) INT32_MAX ? INT32_MAX : (uint64_t) rl.rlim_cur;
        if (limit >= spare && n <= limit - spare)
                return 0;
        r = failure_set(ret_failure, E2BIG, FAILURE_TOO_MANY_FILES, NULL,
                        "%zu files need a memory file each, and the limit on open files (%" PRIu64
                        ", RLIMIT_NOFILE) has room for %" PRIu64 ": raise it, or select fewer files",
                        n, limit, limit > spare ? limit - spare : 0);
        ret_failure->files = n;
        ret_failure->maximum = limit > spare ? limit - spare : 0;
        return r;
}

void resident_done(Resident *r)
{
        for (size_t i = 0; i < r->n; i++)
                close_fd(r->first + (int) i);
        r->n = 0;
}

int resident_fd(const Resident *r, size_t memory)
{
        return memory < r->n ? r->first + (int) memory : -EBADF;
}

/* The name shows as /memfd:iloader:CACHE:FILE in /proc/PID/fd and maps. */
static int resident_make(int number, const char *name, const char *file, uint64_t size)
{
        _cleanup_free_ char *label = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (size > INT64_MAX)
                return -EFBIG;
        r = text_format(&label, "iloader:%s:%s", name, file);
        if (r < 0)
                return r;
        if (fcntl(number, F_GETFD) >= 0)
                return -EBUSY;
        fd = memfd_new(label);
        if (fd < 0)
                return fd;
        if (ftruncate(fd, (off_t) size) < 0)
                return -errno;
        if (fd == number) {
                (void) TAKE_FD(fd);
                return 0;
        }
        return dup3(fd, number, O_CLOEXEC) < 0 ? -errno : 0;
}

int resident_create(int first, const char *name, const Layout *layout, const Selection *selection,
                    Resident *ret, Failure *ret_failure)
{
        _cleanup_resident_ Resident res = {.first = first};
        size_t n = layout_memories(layout);
        int r, last;

        for (size_t i = 0; i < n; i++) {
                const SelectedFile *f = layout_memory_file(layout, selection, i);
                _cleanup_free_ char *shown = NULL;
                uint64_t size = layout_memory_size(layout, selection, i);

                r = resident_make(first + (int) i, name, f ? f->path : "pack", size);
                if (r < 0) {
                        if (f)
                                (void) path_escape(f->path, &shown);
                        return failure_set_memory(ret_failure, r, f ? f->path : NULL,
                                                  "cannot make a memory file of %" PRIu64 " bytes for %s: %m",
                                                  size, f ? (shown ? shown : f->path) : "the small files");
                }
                res.n++;
        }
        last = fcntl(first, F_DUPFD_CLOEXEC, first + (int) n + WORKER_FDS_PER_FRAME);
        close_fd(last); /* whether or not there was one so high: only speed depends on it */
        *ret = res;
        res.n = 0;
        return 0;
}
