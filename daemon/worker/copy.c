/* See copy.h. Work is handed out under one lock from two cursors, so that nothing is planned in memory
 * whatever the sizes: large files first, in pieces, and batches of small ones at the end, where they even out
 * the threads. */
#include "daemon/worker/copy.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "daemon/worker/pack.h"

/* Cores beyond these bring nothing: two or three threads reach the memory's rate. */
#define COPY_THREADS_DEFAULT_MAX 4U
#if defined(__SANITIZE_ADDRESS__)
#define COPY_STACK_SIZE MIB(1)
#else
#define COPY_STACK_SIZE KIB(128)
#endif

typedef struct CopyThread {
        Copy *copy; /* not owned */
        pthread_t id;
        void *stack; /* owned; its lowest page is a guard */
} CopyThread;

struct Copy {
        /* not owned */
        const Source *source;
        const Selection *selection;
        const Layout *layout;
        const Resident *resident;

        uint64_t piece_size;
        TransferShared shared;
        _Atomic uint64_t bytes;
        int done_fd;

        pthread_mutex_t lock;
        size_t next_large, next_small; /* under it: what is handed out next */
        uint64_t next_offset;          /* in that large file */
        unsigned running;
        int result; /* the first error */
        Failure failure;

        size_t guard;
        CopyThread *threads; /* owned */
        unsigned n_threads;  /* started and not joined */
};

/* What a thread takes: n bytes of a large file at offset, or a batch of n small ones. */
typedef struct CopyPiece {
        bool small;
        size_t first;
        uint64_t offset;
        uint64_t n;
} CopyPiece;

/* Pieces begin where huge pages do. */
static uint64_t copy_piece_size(uint64_t chunk_size)
{
        return MAX2(chunk_size / TRANSFER_HUGE_SIZE, UINT64_C(1)) * TRANSFER_HUGE_SIZE;
}

unsigned copy_threads_choose(unsigned workers, uint64_t chunk_size, const Layout *layout,
                             const Selection *selection)
{
        uint64_t pieces = 0, piece = copy_piece_size(chunk_size);
        unsigned wanted = workers;
        cpu_set_t set;

        if (wanted == 0) {
                wanted = 1;
                if (sched_getaffinity(0, sizeof(set), &set) == 0)
                        wanted = MIN2((unsigned) CPU_COUNT(&set), COPY_THREADS_DEFAULT_MAX);
        }
        wanted = MIN2(wanted, COPY_THREADS_MAX);
        for (size_t i = 0; i < layout->n_large && pieces < wanted; i++)
                pieces += (selection->files[layout->large[i]].identity.size + piece - 1) / piece;
        for (size_t i = 0; i < layout->n_small && pieces < wanted; pieces++)
                i += pack_batch(layout, selection, i);
        return (unsigned) MAX2(MIN2(pieces, (uint64_t) wanted), UINT64_C(1));
}

uint64_t copy_overhead(const CopyOptions *options, const Layout *layout, const Selection *selection)
{
        /* its buffer, as much in a full pipe, its stack */
        uint64_t each = 2 * TRANSFER_BUFFER_SIZE + COPY_STACK_SIZE, rounding = 0;
        uint64_t page = options->huge == TRANSFER_HUGE_ALWAYS ? TRANSFER_HUGE_SIZE : KIB(4);

        for (size_t i = 0; i < layout_memories(layout); i++)
                rounding += (page - layout_memory_size(layout, selection, i) % page) % page;
        return add_saturating(mul_saturating(options->threads, each), rounding);
}

/* The next piece: 1, or 0 where there is none left. */
static int copy_take(Copy *c, CopyPiece *ret)
{
        int r = 0;

        pthread_mutex_lock(&c->lock);
        if (c->result < 0)
                goto finish;
        if (c->next_large < c->layout->n_large) {
                uint64_t size = c->selection->files[c->layout->large[c->next_large]].identity.size;

                *ret = (CopyPiece){
                        .first = c->next_large,
                        .offset = c->next_offset,
                        .n = MIN2(size - c->next_offset, c->piece_size),
                };
                c->next_offset += ret->n;
                if (c->next_offset >= size) {
                        c->next_large++;
                        c->next_offset = 0;
                }
                r = 1;
        } else if (c->next_small < c->layout->n_small) {
                size_t n = pack_batch(c->layout, c->selection, c->next_small);

                *ret = (CopyPiece){.small = true, .first = c->next_small, .n = n};
                c->next_small += n;
                r = 1;
        }
finish:
        pthread_mutex_unlock(&c->lock);
        return r;
}

/* Keeps the first error, whose words are moved, and ends the others' work. */
static void copy_fail(Copy *c, int error, Failure *failure)
{
        pthread_mutex_lock(&c->lock);
        if (c->result == 0) {
                c->result = error;
                failure_done(&c->failure);
                c->failure = *failure;
                *failure = (Failure) FAILURE_INIT;
        }
        pthread_mutex_unlock(&c->lock);
        atomic_store_explicit(&c->shared.stop, true, memory_order_relaxed);
}

static int copy_say(const SelectedFile *file, int r, Failure *ret_failure)
{
        _cleanup_free_ char *shown = NULL;

        if (r == TRANSFER_DONE || r == -ECANCELED)
                return r;
        (void) path_escape(file->path, &shown);
        if (r == TRANSFER_SHORT)
                return failure_set(ret_failure, ESTALE, FAILURE_SOURCE_CHANGED, file->path,
                                   "%s became shorter while it was read", shown ? shown : file->path);
        if (r == -ENOMEM || r == -ENOSPC)
                return failure_set(ret_failure, r, FAILURE_INSUFFICIENT_MEMORY, file->path,
                                   "no memory for %s while it was copied: %m", shown ? shown : file->path);
        return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, file->path, "cannot read %s: %m",
                           shown ? shown : file->path);
}

/* A piece of a large file: whole huge pages in ranges, and its tail for itself, which the huge ways don't
 * take. */
static int copy_large(Copy *c, Transfer *t, const CopyPiece *piece, Failure *ret_failure)
{
        _cleanup_source_fault_ SourceFault fault = {};
        size_t index = c->layout->large[piece->first];
        const SelectedFile *file = &c->selection->files[index];
        int memory_fd = resident_fd(c->resident, c->layout->files[index].memory), r;
        uint64_t done = 0;
        _cleanup_close_ int fd = -EBADF;

        r = source_open_file(c->source, file, &fd, &fault);
        if (r < 0)
                return failure_take_source(ret_failure, r, &fault);
        (void) posix_fadvise(fd, (off_t) piece->offset, (off_t) piece->n, POSIX_FADV_SEQUENTIAL);
        while (done < piece->n) {
                uint64_t left = piece->n - done, n = MIN2(left, TRANSFER_RANGE_MAX);

                if (left > TRANSFER_HUGE_SIZE)
                        n -= n % TRANSFER_HUGE_SIZE;
                r = transfer_range(t, fd, memory_fd, piece->offset + done, n);
                if (r != TRANSFER_DONE)
                        return copy_say(file, r, ret_failure);
                done += n;
                atomic_fetch_add_explicit(&c->bytes, n, memory_order_relaxed);
        }
        return 0;
}

static int copy_small(Copy *c, Transfer *t, const CopyPiece *piece, Failure *ret_failure)
{
        uint64_t bytes = 0;
        int r;

        r = pack_copy(t, c->source, c->selection, c->layout, piece->first, piece->n,
                      resident_fd(c->resident, 0), &bytes, ret_failure);
        if (r < 0)
                return r;
        atomic_fetch_add_explicit(&c->bytes, bytes, memory_order_relaxed);
        return 0;
}

static void *copy_thread(void *userdata)
{
        CopyThread *thread = userdata;
        Copy *c = thread->copy;
        _cleanup_transfer_ Transfer t;
        CopyPiece piece;
        bool last;

        transfer_init(&t, &c->shared);
        while (copy_take(c, &piece) > 0) {
                _cleanup_failure_ Failure failure = FAILURE_INIT;
                int r = piece.small ? copy_small(c, &t, &piece, &failure)
                                    : copy_large(c, &t, &piece, &failure);

                if (r < 0) {
                        copy_fail(c, r, &failure);
                        break;
                }
        }
        pthread_mutex_lock(&c->lock);
        last = --c->running == 0;
        pthread_mutex_unlock(&c->lock);
        if (last)
                (void) eventfd_write(c->done_fd, 1);
        return NULL;
}

/* Stacks are our own, because the C library keeps those that it made for later threads, and there will be
 * none. */
static int copy_thread_start(Copy *c, CopyThread *thread)
{
        pthread_attr_t attributes;
        void *stack;
        int r;

        stack = mmap(NULL, COPY_STACK_SIZE + c->guard, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED)
                return -errno;
        r = mprotect(stack, c->guard, PROT_NONE) < 0 ? errno : pthread_attr_init(&attributes);
        if (r == 0) {
                r = pthread_attr_setstack(&attributes, (uint8_t *) stack + c->guard, COPY_STACK_SIZE);
                if (r == 0) {
                        *thread = (CopyThread){.copy = c, .stack = stack};
                        r = pthread_create(&thread->id, &attributes, copy_thread, thread);
                }
                (void) pthread_attr_destroy(&attributes);
        }
        if (r != 0)
                (void) munmap(stack, COPY_STACK_SIZE + c->guard);
        return -r;
}

static void copy_join(Copy *c)
{
        while (c->n_threads > 0) {
                CopyThread *thread = &c->threads[--c->n_threads];

                (void) pthread_join(thread->id, NULL);
                (void) munmap(thread->stack, COPY_STACK_SIZE + c->guard);
        }
}

/* Fewer threads than wanted are no failure; none is. */
static int copy_start_threads(Copy *c, unsigned n)
{
        int r = 0;

        /* counts this thread too until all are started, so that "last" is said once */
        c->running = 1;
        while (c->n_threads < n) {
                pthread_mutex_lock(&c->lock);
                c->running++;
                pthread_mutex_unlock(&c->lock);
                r = copy_thread_start(c, &c->threads[c->n_threads]);
                if (r < 0) {
                        pthread_mutex_lock(&c->lock);
                        c->running--;
                        pthread_mutex_unlock(&c->lock);
                        break;
                }
                c->n_threads++;
        }
        if (c->n_threads == 0)
                return r < 0 ? r : -EINVAL;
        pthread_mutex_lock(&c->lock);
        bool last = --c->running == 0;
        pthread_mutex_unlock(&c->lock);
        if (last)
                (void) eventfd_write(c->done_fd, 1);
        return 0;
}

int copy_start(const Source *source, const Selection *selection, const Layout *layout,
               const Resident *resident, const CopyOptions *options, Copy **ret, Failure *ret_failure)
{
        _cleanup_(copy_freep) Copy *c = NULL;
        unsigned n = MIN2(MAX2(options->threads, 1U), COPY_THREADS_MAX);
        long page = sysconf(_SC_PAGESIZE);
        int r;

        c = calloc(1, sizeof(*c));
        if (!c)
                return failure_complete(ret_failure, ENOMEM, "cannot start copying");
        c->source = source;
        c->selection = selection;
        c->layout = layout;
        c->resident = resident;
        c->failure = (Failure) FAILURE_INIT;
        c->done_fd = -EBADF;
        c->guard = page > 0 ? (size_t) page : KIB(4);
        /* two threads on one memory file of small pages wait for one lock: then each takes files of its own
         */
        c->piece_size = options->huge == TRANSFER_HUGE_NONE && layout->n_large >= n
                                ? UINT64_MAX
                                : copy_piece_size(options->chunk_size);
        transfer_shared_init(&c->shared, options->huge);
        (void) pthread_mutex_init(&c->lock, NULL);

        c->threads = calloc(n, sizeof(*c->threads));
        if (!c->threads)
                return failure_complete(ret_failure, ENOMEM, "cannot start copying");
        c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (c->done_fd < 0)
                return failure_complete(ret_failure, errno, "cannot start copying");
        r = copy_start_threads(c, n);
        if (r < 0)
                return failure_complete(ret_failure, r, "cannot start a copying thread");
        *ret = TAKE_PTR(c);
        return 0;
}

int copy_get_fd(const Copy *c)
{
        return c->done_fd;
}

uint64_t copy_bytes(const Copy *c)
{
        return atomic_load_explicit(&c->bytes, memory_order_relaxed);
}

void copy_cancel(Copy *c)
{
        Failure none = FAILURE_INIT;

        copy_fail(c, -ECANCELED, &none);
}

int copy_finish(Copy *c, Failure *ret_failure)
{
        copy_join(c);
        if (c->result < 0 && c->failure.message && !ret_failure->message) {
                failure_done(ret_failure);
                *ret_failure = c->failure;
                c->failure = (Failure) FAILURE_INIT;
        }
        return c->result;
}

Copy *copy_free(Copy *c)
{
        if (!c)
                return NULL;
        if (c->n_threads > 0)
                copy_cancel(c);
        copy_join(c);
        close_fd(c->done_fd);
        failure_done(&c->failure);
        (void) pthread_mutex_destroy(&c->lock);
        free(c->threads);
        free(c);
        return NULL;
}
