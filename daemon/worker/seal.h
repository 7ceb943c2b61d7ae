/* Sealing: from here on nobody can change a resident file, its owner and this worker included. */
#pragma once

#include <sys/types.h>

#include "daemon/worker/failure.h"
#include "daemon/worker/resident.h"

/* Gives each resident file its mode and group, seals it, and puts a read-only description of it under the
 * same number; the writable one ends. No mapping may be left. gid (gid_t) -1: unchanged. */
int seal_resident(const Resident *resident, mode_t mode, gid_t gid, Failure *ret_failure);
/* The same for one descriptor that has no fixed number: *fd is replaced. */
int seal_one(int *fd, mode_t mode, gid_t gid);
