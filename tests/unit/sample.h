/* A source directory for tests of the worker's copying modules, opened and selected. */
#pragma once

#include <string.h>

#include "base/fd.h"
#include "checkpoint/source.h"
#include "daemon/worker/layout.h"
#include "daemon/worker/resident.h"
#include "tests/unit/scratch.h"

/* Numbers that nothing else in a test takes. */
#define SAMPLE_FIRST 200

typedef struct Sample {
        Scratch scratch;
        int root_fd;
        Source source;
        Selection selection;
        Layout layout;
        Resident resident;
} Sample;

static inline uint8_t sample_byte(uint64_t i, size_t file)
{
        return (uint8_t) ((i * 2654435761U) >> 11 ^ i ^ file * 37);
}

/* File number i is named so that its number is its place in the order of the selection. */
static inline void sample_write(const Sample *s, size_t i, uint64_t size)
{
        _cleanup_free_ uint8_t *data = malloc(size + 1);
        _cleanup_close_ int fd = -EBADF;
        char name[32];

        assert_non_null(data);
        for (uint64_t k = 0; k < size; k++)
                data[k] = sample_byte(k, i);
        (void) snprintf(name, sizeof(name), "file-%05zu", i);
        fd = openat(s->scratch.fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(fd_write_full(fd, data, size), 0);
}

static inline void sample_make(Sample *s, const uint64_t *sizes, size_t n)
{
        _cleanup_source_fault_ SourceFault fault = {};
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        const SelectionOptions options = {.max_files = 100000};

        *s = (Sample){.source = {.root_fd = -EBADF, .fd = -EBADF}};
        scratch_make(&s->scratch);
        s->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(s->root_fd >= 0);
        for (size_t i = 0; i < n; i++)
                sample_write(s, i, sizes[i]);
        if (source_open(s->root_fd, s->scratch.path, &s->source, &fault) < 0 ||
            selection_read(&s->source, &options, &s->selection, &fault) < 0)
                fail_msg("%s", fault.message);
        assert_int_equal(s->selection.n_files, n);
        assert_int_equal(layout_compute(&s->selection, &s->layout), 0);
        if (resident_create(SAMPLE_FIRST, "test", &s->layout, &s->selection, &s->resident, &failure) < 0)
                fail_msg("%s", failure.message);
}

static inline void sample_done(Sample *s)
{
        resident_done(&s->resident);
        layout_done(&s->layout);
        selection_done(&s->selection);
        source_done(&s->source);
        close_fd(s->root_fd);
        scratch_done(&s->scratch);
}
#define _cleanup_sample_ _cleanup_(sample_done)

/* The bytes of one file, wherever they lie in memory. */
static inline void sample_check(const Sample *s, size_t i)
{
        const Placement *place = &s->layout.files[i];
        uint64_t size = s->selection.files[i].identity.size;
        _cleanup_free_ uint8_t *data = malloc(size + 1);

        assert_non_null(data);
        if (size == 0)
                return;
        assert_int_equal(fd_pread_full(resident_fd(&s->resident, place->memory), data, size, place->offset),
                         0);
        for (uint64_t k = 0; k < size; k++)
                if (data[k] != sample_byte(k, i))
                        fail_msg("file %zu differs at byte %llu of %llu", i, (unsigned long long) k,
                                 (unsigned long long) size);
}
