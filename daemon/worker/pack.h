/* Filling the pack: many small files, read one after the other into a buffer that is written in one go. */
#pragma once

#include "checkpoint/source.h"
#include "daemon/worker/failure.h"
#include "daemon/worker/layout.h"
#include "daemon/worker/transfer.h"

/* A batch that one thread takes: so many small files at most, and no more than fit TRANSFER_BUFFER_SIZE. */
#define PACK_BATCH_FILES 128U

/* How many of the layout's small files, from number first on, make a batch. At least 1 where there is one. */
size_t pack_batch(const Layout *layout, const Selection *selection, size_t first);
/* Reads small files first .. first + n - 1, a batch, and writes them to their places in the pack. The bytes
 * of the files are added up in *ret_bytes. */
int pack_copy(Transfer *t, const Source *source, const Selection *selection, const Layout *layout,
              size_t first, size_t n, int pack_fd, uint64_t *ret_bytes, Failure *ret_failure);
