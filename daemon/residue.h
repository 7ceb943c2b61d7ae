/* Bytes that a forced stop, or a death, gave back only in part: readers that held leases may still map them.
 * They count as resident until those processes have ended. */
#pragma once

#include "daemon/cache.h"

typedef struct ResidueTable {
        sd_event *event; /* not owned */
        struct Residue *first;
} ResidueTable;

/* Moves the cache's leases into a new residue; *ret_holders (owned) lists them for people, NULL where there
 * were none. The cache has no leases afterwards, whatever is returned. */
int residue_take(ResidueTable *t, Cache *c, char **ret_holders);
uint64_t residue_bytes(const ResidueTable *t);
void residue_done(ResidueTable *t);
