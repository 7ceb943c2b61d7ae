/* BASE: made private, and used only while it is. */
#pragma once

#include "ctl/target.h"

/* Opens (making it and what is missing above it with mode 0700) a directory that must belong to the caller,
 * not be writable by others and not be a link itself. A directory descriptor, or -errno with *ret_error
 * (owned) in words. */
int private_directory_open(const char *path, char **ret_error);

/* Where a target's runtime files are: the directory, opened, and the prefix of their names ("" but for
 * --socket). Makes BASE/run where it is missing; the directory of a --socket PATH may be shared (/tmp), then
 * it must be sticky. */
typedef struct RuntimeDirectory {
        int fd;
        char *path;   /* owned */
        char *prefix; /* owned */
} RuntimeDirectory;
void runtime_directory_done(RuntimeDirectory *d);
#define _cleanup_runtime_directory_ _cleanup_(runtime_directory_done)
#define RUNTIME_DIRECTORY_INIT                                                                               \
        {                                                                                                    \
                .fd = -EBADF                                                                                 \
        }

int runtime_directory_open(const Target *t, RuntimeDirectory *ret, char **ret_error);
/* The path alone, and the prefix: looks at nothing. */
int runtime_directory_place(const Target *t, RuntimeDirectory *ret);
