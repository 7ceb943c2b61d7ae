/* Moving a range of a source file into a memory file, one thread's way: the fastest that this kernel takes.
 * What makes loading slow is allocating and clearing 4 KiB pages one fault at a time, not the copy; so huge
 * pages come first. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define TRANSFER_HUGE_SIZE MIB(2)
/* The most that one call moves, a multiple of TRANSFER_HUGE_SIZE. */
#define TRANSFER_RANGE_MAX MIB(8)

/* What the kernel does about huge pages in memory files: Documentation/admin-guide/mm/transhuge.rst,
 * shmem_enabled. */
typedef enum TransferHuge {
        TRANSFER_HUGE_NONE,     /* no such setting: a kernel without them */
        TRANSFER_HUGE_COLLAPSE, /* never, deny: only where MADV_COLLAPSE asks for them */
        TRANSFER_HUGE_ADVISE,   /* advise, within_size: MADV_HUGEPAGE is enough */
        TRANSFER_HUGE_ALWAYS,   /* always, force: any memory file, whose size is rounded up */
        _TRANSFER_HUGE_MAX,
        _TRANSFER_HUGE_INVALID = -EINVAL,
} TransferHuge;

/* "always within_size advise [never] deny force". */
TransferHuge transfer_huge_parse(const char *text);
/* Reads the setting; TRANSFER_HUGE_NONE where it can't be read. */
TransferHuge transfer_huge_detect(void);

/* What the threads of one load have found out together: a bit for each way that does not work here. */
typedef struct TransferShared {
        _Atomic unsigned refused;
        _Atomic bool stop; /* set: transfers end with -ECANCELED */
} TransferShared;
void transfer_shared_init(TransferShared *s, TransferHuge huge);

/* One thread's means: address space, a pipe, a buffer; each made when first needed. */
typedef struct Transfer {
        TransferShared *shared; /* not owned */
        uint8_t *reserved;      /* owned address space */
        size_t reserved_size;
        uint8_t *window; /* in it, aligned to huge pages */
        uint8_t *buffer; /* owned */
        int pipe[2];
        unsigned failures; /* of the collapsing way, in a row */
        bool collapsed;    /* it has worked before, so that a refusal is one of this range only */
} Transfer;
/* What one thread takes at most, in bytes. */
#define TRANSFER_BUFFER_SIZE MIB(1)
void transfer_init(Transfer *t, TransferShared *shared);
void transfer_done(Transfer *t);
#define _cleanup_transfer_ _cleanup_(transfer_done)
/* The buffer of TRANSFER_BUFFER_SIZE bytes, for other uses between two transfers; borrowed. */
int transfer_get_buffer(Transfer *t, uint8_t **ret);

typedef enum TransferResult {
        TRANSFER_DONE,
        TRANSFER_SHORT, /* the source ended before */
} TransferResult;

/* Moves n bytes (at most TRANSFER_RANGE_MAX) at the same offset of both, an offset that is a multiple of
 * TRANSFER_HUGE_SIZE. The memory file has its full size. A TransferResult, or the errno: -ECANCELED; -ENOMEM,
 * -ENOSPC of the memory file; anything else of the source. */
int transfer_range(Transfer *t, int source_fd, int memory_fd, uint64_t offset, uint64_t n);
/* Exactly n bytes into a buffer: a TransferResult or the errno. */
int transfer_read(int source_fd, void *buffer, uint64_t n, uint64_t offset);
