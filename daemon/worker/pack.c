/* See pack.h. */
#include "daemon/worker/pack.h"

#include "base/fd.h"
#include "base/path.h"

static const SelectedFile *pack_file(const Selection *selection, const Layout *layout, size_t i)
{
        return &selection->files[layout->small[i]];
}

static uint64_t pack_offset(const Layout *layout, size_t i)
{
        return layout->files[layout->small[i]].offset;
}

size_t pack_batch(const Layout *layout, const Selection *selection, size_t first)
{
        size_t n = 0;

        while (first + n < layout->n_small && n < PACK_BATCH_FILES) {
                uint64_t end = pack_offset(layout, first + n) +
                               pack_file(selection, layout, first + n)->identity.size;

                if (end - pack_offset(layout, first) > TRANSFER_BUFFER_SIZE)
                        break;
                n++;
        }
        return n;
}

static int pack_read(const Source *source, const SelectedFile *file, uint8_t *buffer, Failure *ret_failure)
{
        _cleanup_source_fault_ SourceFault fault = {};
        _cleanup_free_ char *shown = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = source_open_file(source, file, &fd, &fault);
        if (r < 0)
                return failure_take_source(ret_failure, r, &fault);
        r = transfer_read(fd, buffer, file->identity.size, 0);
        if (r == TRANSFER_DONE)
                return 0;
        (void) path_escape(file->path, &shown);
        if (r == TRANSFER_SHORT)
                return failure_set(ret_failure, ESTALE, FAILURE_SOURCE_CHANGED, file->path,
                                   "%s became shorter while it was read", shown ? shown : file->path);
        return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, file->path, "cannot read %s: %m",
                           shown ? shown : file->path);
}

int pack_copy(Transfer *t, const Source *source, const Selection *selection, const Layout *layout,
              size_t first, size_t n, int pack_fd, uint64_t *ret_bytes, Failure *ret_failure)
{
        uint64_t base = pack_offset(layout, first), end = base;
        uint8_t *buffer;
        int r;

        r = transfer_get_buffer(t, &buffer);
        if (r < 0)
                return failure_complete(ret_failure, r, "cannot make a buffer for small files");
        for (size_t i = first; i < first + n; i++) {
                const SelectedFile *file = pack_file(selection, layout, i);

                if (atomic_load_explicit(&t->shared->stop, memory_order_relaxed))
                        return -ECANCELED;
                r = pack_read(source, file, buffer + (end - base), ret_failure);
                if (r < 0)
                        return r;
                end += file->identity.size;
        }
        if (end > base)
                r = fd_pwrite_full(pack_fd, buffer, end - base, base);
        if (r < 0)
                return failure_set_memory(ret_failure, r, NULL, "cannot write small files to memory: %m");
        *ret_bytes = end - base;
        return 0;
}
