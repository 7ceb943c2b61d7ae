/* Where each selected file will lie: small ones one after the other in the pack, each large one in a memory
 * file of its own. Pure arithmetic. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "checkpoint/selection.h"

typedef struct Placement {
        uint64_t offset; /* in the pack; 0 otherwise */
        uint32_t memory; /* index of the memory file; the pack, where there is one, is 0 */
        bool packed;
} Placement;

typedef struct Layout {
        Placement *files; /* one per selected file, in its order; owned */
        size_t n_files;
        uint32_t *large; /* the large files' indexes in the selection, owned */
        size_t n_large;
        uint32_t *small; /* the packed ones', owned */
        size_t n_small;
        uint64_t pack_bytes; /* 0: there is no pack; packed files, if any, are empty then */
} Layout;

/* -ENOMEM; -E2BIG past UINT32_MAX files. */
int layout_compute(const Selection *selection, Layout *ret);
void layout_done(Layout *l);
#define _cleanup_layout_ _cleanup_(layout_done)

/* How many memory files there are, the pack among them. */
size_t layout_memories(const Layout *l);
/* The size of one of them. */
uint64_t layout_memory_size(const Layout *l, const Selection *selection, size_t memory);
/* The large file that one of them holds; NULL for the pack. */
const SelectedFile *layout_memory_file(const Layout *l, const Selection *selection, size_t memory);
