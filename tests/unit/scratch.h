/* A private directory for one unit test, removed at its end. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/path.h"

typedef struct Scratch {
        char path[64];
        int fd;
} Scratch;

static inline void scratch_make(Scratch *s)
{
        (void) snprintf(s->path, sizeof(s->path), "/tmp/iloader-test-XXXXXX");
        assert_non_null(mkdtemp(s->path));
        s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(s->fd >= 0);
}

static inline void scratch_done(Scratch *s)
{
        (void) path_remove_tree(AT_FDCWD, s->path, UINT64_MAX);
        s->fd = close_fd(s->fd);
}
#define _cleanup_scratch_ _cleanup_(scratch_done)

/* The same as cmocka's fixture: *state is the Scratch. */
static inline int scratch_setup(void **state)
{
        Scratch *s = calloc(1, sizeof(*s));

        assert_non_null(s);
        scratch_make(s);
        *state = s;
        return 0;
}

static inline int scratch_teardown(void **state)
{
        scratch_done(*state);
        free(*state);
        return 0;
}

/* A file with this text below the directory. */
static inline void scratch_write(const Scratch *s, const char *name, const char *text)
{
        int fd = openat(s->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t) strlen(text));
        (void) close_fd(fd);
}
