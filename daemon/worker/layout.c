/* See layout.h. */
#include "daemon/worker/layout.h"

#include "wire/worker-protocol.h"

void layout_done(Layout *l)
{
        free(l->files);
        free(l->large);
        free(l->small);
        *l = (Layout){};
}

static bool file_is_small(const SelectedFile *f)
{
        return f->identity.size < WORKER_PACK_LIMIT;
}

int layout_compute(const Selection *selection, Layout *ret)
{
        _cleanup_layout_ Layout l = {};
        uint64_t pack_bytes = 0;
        size_t n_small = 0;

        if (selection->n_files > UINT32_MAX - 1)
                return -E2BIG;
        for (size_t i = 0; i < selection->n_files; i++) {
                if (file_is_small(&selection->files[i])) {
                        n_small++;
                        pack_bytes +=
                                selection->files[i].identity.size; /* at most 2^32 files of 2^20 bytes */
                }
        }

        l.n_files = selection->n_files;
        l.files = calloc(MAX2(l.n_files, (size_t) 1), sizeof(*l.files));
        l.large = calloc(MAX2(l.n_files - n_small, (size_t) 1), sizeof(*l.large));
        l.small = calloc(MAX2(n_small, (size_t) 1), sizeof(*l.small));
        if (!l.files || !l.large || !l.small)
                return -ENOMEM;
        for (size_t i = 0; i < selection->n_files; i++) {
                const SelectedFile *f = &selection->files[i];

                if (file_is_small(f)) {
                        l.files[i] = (Placement){.packed = true, .offset = l.pack_bytes};
                        l.pack_bytes += f->identity.size;
                        l.small[l.n_small++] = (uint32_t) i;
                } else {
                        l.files[i].memory = (uint32_t) (l.n_large + (pack_bytes > 0));
                        l.large[l.n_large++] = (uint32_t) i;
                }
        }
        *ret = l;
        l = (Layout){};
        return 0;
}

size_t layout_memories(const Layout *l)
{
        return l->n_large + (l->pack_bytes > 0);
}

const SelectedFile *layout_memory_file(const Layout *l, const Selection *selection, size_t memory)
{
        if (l->pack_bytes > 0) {
                if (memory == 0)
                        return NULL;
                memory--;
        }
        return &selection->files[l->large[memory]];
}

uint64_t layout_memory_size(const Layout *l, const Selection *selection, size_t memory)
{
        const SelectedFile *f = layout_memory_file(l, selection, memory);

        return f ? f->identity.size : l->pack_bytes;
}
