/* What the fuzzers share. With FUZZ_SEEDED_FAULT each has a fault that only certain inputs reach, as proof
 * that it would find one: make check builds and runs both. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                     \
        do {                                                                                                 \
                if (!(condition)) {                                                                          \
                        (void) fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);       \
                        abort();                                                                             \
                }                                                                                            \
        } while (0)

/* The lowest number that is free; the same before and after, where no descriptor leaked. */
static inline int next_free_fd(void)
{
        int fd = dup(STDERR_FILENO);

        CHECK(fd >= 0);
        (void) close(fd);
        return fd;
}
