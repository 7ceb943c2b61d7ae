/* The copy: threads that take pieces of large files and batches of small ones until all is in memory. The
 * caller waits for a descriptor and reads a counter meanwhile. */
#pragma once

#include "checkpoint/source.h"
#include "daemon/worker/failure.h"
#include "daemon/worker/layout.h"
#include "daemon/worker/resident.h"
#include "daemon/worker/transfer.h"
#include "wire/defaults.h"

#define COPY_THREADS_MAX START_WORKERS_MAX

typedef struct CopyOptions {
        unsigned threads;    /* at least 1: copy_threads_choose() */
        uint64_t chunk_size; /* what a thread takes at a time */
        TransferHuge huge;
} CopyOptions;

/* How many threads are worth it: workers where that isn't 0, else by cores; never more than there are pieces.
 */
unsigned copy_threads_choose(unsigned workers, uint64_t chunk_size, const Layout *layout,
                             const Selection *selection);
/* Bytes beside the files: the threads' buffers, and what the last page of each memory file rounds up to. */
uint64_t copy_overhead(const CopyOptions *options, const Layout *layout, const Selection *selection);

typedef struct Copy Copy;

/* Starts the threads. What is passed is borrowed until copy_free(). */
int copy_start(const Source *source, const Selection *selection, const Layout *layout,
               const Resident *resident, const CopyOptions *options, Copy **ret, Failure *ret_failure);
/* Readable as soon as the last thread has nothing more to do; borrowed. */
int copy_get_fd(const Copy *c);
/* Bytes of files that are in memory so far. */
uint64_t copy_bytes(const Copy *c);
/* Asks the threads to end early: copy_finish() then gives -ECANCELED. */
void copy_cancel(Copy *c);
/* Waits for the threads. 0 only where every byte was copied. */
int copy_finish(Copy *c, Failure *ret_failure);
/* Cancels and waits where that has not been done. */
Copy *copy_free(Copy *c);
DEFINE_CLEANUP(Copy *, copy_free)
