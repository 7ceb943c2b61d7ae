/* The shared resident quota: one number kept in a file, which outlives the manager. */
#pragma once

#include <stdint.h>

/* UINT64_MAX where there is none. A damaged file is -EBADMSG: it is set aside as FILE.damaged by the caller's
 * choice. */
int quota_load(int dirfd, const char *file, uint64_t *ret);
/* UINT64_MAX removes the file. Written atomically and synced. */
int quota_save(int dirfd, const char *file, uint64_t quota);
