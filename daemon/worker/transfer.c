/* See transfer.h. The ways are tried in the order of the table; one that the kernel or the file system
 * refuses is left out from then on, by all threads. */
#include "daemon/worker/transfer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A way that keeps failing for want of huge pages is given up after so many ranges in a row. */
#define TRANSFER_FAILURES_MAX 8U
/* A page of each huge page is enough to make the kernel collapse it. */
#define TRANSFER_TOUCH KIB(4)

typedef enum TransferWay {
        WAY_ADVISE,
        WAY_COLLAPSE,
        WAY_SPLICE,
        WAY_BUFFER,
        _WAY_MAX,
} TransferWay;

TransferHuge transfer_huge_parse(const char *text)
{
        static const struct {
                const char *word;
                TransferHuge huge;
        } words[] = {
                {"[always]", TRANSFER_HUGE_ALWAYS},  {"[force]", TRANSFER_HUGE_ALWAYS},
                {"[advise]", TRANSFER_HUGE_ADVISE},  {"[within_size]", TRANSFER_HUGE_ADVISE},
                {"[never]", TRANSFER_HUGE_COLLAPSE}, {"[deny]", TRANSFER_HUGE_COLLAPSE},
        };

        for (size_t i = 0; i < ELEMENTSOF(words); i++)
                if (strstr(text, words[i].word))
                        return words[i].huge;
        return TRANSFER_HUGE_NONE;
}

TransferHuge transfer_huge_detect(void)
{
        _cleanup_free_ char *text = NULL;
        size_t n;

        if (fd_read_file_at(AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", KIB(4), &text,
                            &n) < 0)
                return TRANSFER_HUGE_NONE;
        return transfer_huge_parse(text);
}

void transfer_shared_init(TransferShared *s, TransferHuge huge)
{
        unsigned refused = 0;

        if (huge != TRANSFER_HUGE_ADVISE && huge != TRANSFER_HUGE_ALWAYS)
                refused |= 1U << WAY_ADVISE;
        if (huge != TRANSFER_HUGE_COLLAPSE)
                refused |= 1U << WAY_COLLAPSE;
        atomic_init(&s->refused, refused);
        atomic_init(&s->stop, false);
}

void transfer_init(Transfer *t, TransferShared *shared)
{
        *t = (Transfer){.shared = shared, .pipe = {-EBADF, -EBADF}};
}

static void transfer_drop_pipe(Transfer *t)
{
        t->pipe[0] = close_fd(t->pipe[0]);
        t->pipe[1] = close_fd(t->pipe[1]);
}

void transfer_done(Transfer *t)
{
        transfer_drop_pipe(t);
        if (t->reserved)
                (void) munmap(t->reserved, t->reserved_size);
        if (t->buffer)
                (void) munmap(t->buffer, TRANSFER_BUFFER_SIZE);
        transfer_init(t, t->shared);
}

int transfer_get_buffer(Transfer *t, uint8_t **ret)
{
        if (!t->buffer) {
                void *p = mmap(NULL, TRANSFER_BUFFER_SIZE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

                if (p == MAP_FAILED)
                        return -errno;
                t->buffer = p;
        }
        *ret = t->buffer;
        return 0;
}

static bool transfer_stopped(const Transfer *t)
{
        return atomic_load_explicit(&t->shared->stop, memory_order_relaxed);
}

int transfer_read(int source_fd, void *buffer, uint64_t n, uint64_t offset)
{
        uint8_t *p = buffer;

        while (n > 0) {
                ssize_t got = pread(source_fd, p, n, (off_t) offset);

                if (got < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (got == 0)
                        return TRANSFER_SHORT;
                p += got;
                offset += (uint64_t) got;
                n -= (uint64_t) got;
        }
        return TRANSFER_DONE;
}

/* Address space that each range is mapped into in turn. */
static int transfer_reserve(Transfer *t)
{
        size_t size = TRANSFER_RANGE_MAX + TRANSFER_HUGE_SIZE;
        uintptr_t start;
        void *p;

        if (t->window)
                return 0;
        p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
                return -errno;
        start = ((uintptr_t) p + TRANSFER_HUGE_SIZE - 1) / TRANSFER_HUGE_SIZE * TRANSFER_HUGE_SIZE;
        t->reserved = p;
        t->reserved_size = size;
        t->window = t->reserved + (start - (uintptr_t) p);
        return 0;
}

static int transfer_map(Transfer *t, int memory_fd, uint64_t offset, uint64_t n)
{
        int r;

        r = transfer_reserve(t);
        if (r < 0)
                return r;
        if (mmap(t->window, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory_fd, (off_t) offset) ==
            MAP_FAILED)
                return -errno;
        return 0;
}

/* Gives the mapping up but keeps its place. */
static void transfer_unmap(Transfer *t, uint64_t n)
{
        (void) mmap(t->window, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Straight from the source into the window, in steps that stay in the processor's cache. */
static int transfer_fill(Transfer *t, int source_fd, uint64_t offset, uint64_t n)
{
        for (uint64_t done = 0; done < n; done += TRANSFER_HUGE_SIZE) {
                int r;

                if (transfer_stopped(t))
                        return -ECANCELED;
                r = transfer_read(source_fd, t->window + done, MIN2(n - done, TRANSFER_HUGE_SIZE),
                                  offset + done);
                if (r == -EFAULT)
                        return -ENOMEM; /* a page of the window could not be had */
                if (r != TRANSFER_DONE)
                        return r;
        }
        return TRANSFER_DONE;
}

static int way_advise(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n)
{
        int r;

        if (transfer_map(t, memory_fd, offset, n) < 0)
                return -EAGAIN;
        if (madvise(t->window, n, MADV_HUGEPAGE) < 0)
                r = -EOPNOTSUPP;
        else
                r = transfer_fill(t, source_fd, offset, n);
        transfer_unmap(t, n);
        return r;
}

/* Each huge page's first page is touched by the kernel rather than by us: for want of memory it then answers
 * with an error instead of SIGBUS. */
static int window_collapse(uint8_t *window, uint64_t n)
{
        for (uint64_t done = 0; done < n; done += TRANSFER_HUGE_SIZE)
                if (madvise(window + done, TRANSFER_TOUCH, MADV_POPULATE_WRITE) < 0)
                        return errno == EINVAL ? -EOPNOTSUPP : -EAGAIN;
        if (madvise(window, n, MADV_COLLAPSE) < 0)
                return errno == EINVAL ? -EOPNOTSUPP : -EAGAIN;
        return 0;
}

static int way_collapse(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n)
{
        int r;

        if (transfer_map(t, memory_fd, offset, n) < 0)
                return -EAGAIN;
        r = window_collapse(t->window, n);
        if (r == 0) {
                t->failures = 0;
                t->collapsed = true;
                r = transfer_fill(t, source_fd, offset, n);
        } else if (r == -EAGAIN || t->collapsed)
                r = ++t->failures < TRANSFER_FAILURES_MAX ? -EAGAIN : -EOPNOTSUPP;
        transfer_unmap(t, n);
        return r;
}

static int transfer_open_pipe(Transfer *t)
{
        if (t->pipe[0] >= 0)
                return 0;
        if (pipe2(t->pipe, O_CLOEXEC) < 0)
                return -errno;
        /* users without privilege may be held to less; only speed depends on it */
        (void) fcntl(t->pipe[1], F_SETPIPE_SZ, (int) TRANSFER_BUFFER_SIZE);
        return 0;
}

/* Empties the pipe into the memory file. */
static int splice_out(int pipe_fd, int memory_fd, off_t *offset, size_t n)
{
        while (n > 0) {
                ssize_t put = splice(pipe_fd, NULL, memory_fd, offset, n, 0);

                if (put < 0) {
                        if (errno == EINTR)
                                continue;
                        return errno == EINVAL ? -EOPNOTSUPP : -errno;
                }
                if (put == 0)
                        return -EOPNOTSUPP;
                n -= (size_t) put;
        }
        return 0;
}

static int way_splice(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n)
{
        off_t in = (off_t) offset, out = (off_t) offset;
        int r;

        r = transfer_open_pipe(t);
        if (r < 0)
                return -EAGAIN;
        while ((uint64_t) in < offset + n) {
                size_t want = MIN2(offset + n - (uint64_t) in, TRANSFER_BUFFER_SIZE);
                ssize_t got;

                if (transfer_stopped(t))
                        return -ECANCELED;
                got = splice(source_fd, &in, t->pipe[1], NULL, want, 0);
                if (got < 0) {
                        if (errno == EINTR)
                                continue;
                        return errno == EINVAL ? -EOPNOTSUPP : -errno;
                }
                if (got == 0)
                        return TRANSFER_SHORT;
                r = splice_out(t->pipe[0], memory_fd, &out, (size_t) got);
                if (r < 0) {
                        transfer_drop_pipe(t); /* what is left in it belongs to nothing */
                        return r;
                }
        }
        return TRANSFER_DONE;
}

static int way_buffer(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n)
{
        uint8_t *buffer = NULL;
        int r;

        r = transfer_get_buffer(t, &buffer);
        if (r < 0)
                return r;
        for (uint64_t done = 0; done < n; done += TRANSFER_BUFFER_SIZE) {
                uint64_t step = MIN2(n - done, TRANSFER_BUFFER_SIZE);

                if (transfer_stopped(t))
                        return -ECANCELED;
                r = transfer_read(source_fd, buffer, step, offset + done);
                if (r != TRANSFER_DONE)
                        return r;
                r = fd_pwrite_full(memory_fd, buffer, step, offset + done);
                if (r < 0)
                        return r;
        }
        return TRANSFER_DONE;
}

/* -EOPNOTSUPP: never again; -EAGAIN: not this time; either way the next one copies the whole range. */
static const struct {
        uint64_t granule; /* only for ranges of a multiple of so many bytes */
        int (*run)(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n);
} ways[_WAY_MAX] = {
        [WAY_ADVISE] = {TRANSFER_HUGE_SIZE, way_advise},
        [WAY_COLLAPSE] = {TRANSFER_HUGE_SIZE, way_collapse},
        [WAY_SPLICE] = {1, way_splice},
        [WAY_BUFFER] = {1, way_buffer},
};

int transfer_range(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n)
{
        int r = -EOPNOTSUPP;

        for (TransferWay w = 0; w < _WAY_MAX; w++) {
                if ((atomic_load_explicit(&t->shared->refused, memory_order_relaxed) & (1U << w)) ||
                    n % ways[w].granule != 0)
                        continue;
                r = ways[w].run(t, source_fd, memory_fd, offset, n);
                if (r == -EOPNOTSUPP && w != WAY_BUFFER)
                        atomic_fetch_or_explicit(&t->shared->refused, 1U << w, memory_order_relaxed);
                else if (r != -EAGAIN)
                        return r;
        }
        return r;
}
