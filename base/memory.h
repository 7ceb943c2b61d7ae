/* How much memory this host and its cgroups still allow: a snapshot read from /proc and the cgroup tree, and
 * the figure derived from it, which is a pure function. Kernel documentation: cgroup-v2.rst, memory.rst (v1),
 * proc(5). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

typedef struct MemoryLimit {
        char *path;           /* of the cgroup, for people */
        uint64_t limit;       /* bytes; UINT64_MAX: none */
        uint64_t current;     /* bytes charged */
        uint64_t reclaimable; /* of them: file pages that are not shmem (inactive_file + active_file) */
} MemoryLimit;

typedef struct MemorySnapshot {
        uint64_t total;      /* MemTotal */
        uint64_t available;  /* MemAvailable */
        uint64_t swap_free;  /* SwapFree */
        MemoryLimit *limits; /* every visible ancestor of both hierarchies that has a limit */
        size_t n_limits;
} MemorySnapshot;

/* Reads it below procfd ("/proc") and sysfd ("/sys/fs/cgroup"), for the cgroup of "self"; AT_FDCWD: the real
 * ones. */
int memory_snapshot_read(int procfd, int sysfd, MemorySnapshot *ret);
void memory_snapshot_done(MemorySnapshot *s);
#define _cleanup_memory_snapshot_ _cleanup_(memory_snapshot_done)

/* The least of available and each limit's headroom: limit - (current - reclaimable), never below 0.
 * *ret_limit is "MemAvailable" or the path of the binding cgroup, and belongs to the snapshot. */
uint64_t memory_effective_available(const MemorySnapshot *s, const char **ret_limit);
/* How much of what is available may be used: the fraction of it, less the reserve, never below 0. A fraction
 * that is not positive gives nothing, one of 1 or more everything. */
uint64_t memory_budget(uint64_t available, double fraction, uint64_t reserve);
