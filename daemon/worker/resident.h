/* The resident files: memory files under a run of descriptor numbers that stay theirs from creation to the
 * end. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "daemon/worker/failure.h"
#include "daemon/worker/layout.h"

typedef struct Resident {
        int first; /* descriptors first .. first + n - 1, owned */
        size_t n;
} Resident;

/* Whether n memory files and what the copying threads need fit below the limit on descriptors: TooManyFiles
 * with the figures where not. */
int resident_check_limit(int first, size_t n, unsigned threads, Failure *ret_failure);
/* Makes them, empty but of full size. The numbers must be free. Call while there is only one thread: it also
 * makes the descriptor table as large as it will get, since a table that grows while threads share it waits
 * for RCU. name is the cache's. */
int resident_create(int first, const char *name, const Layout *layout, const Selection *selection,
                    Resident *ret, Failure *ret_failure);
void resident_done(Resident *r);
#define _cleanup_resident_ _cleanup_(resident_done)
/* The descriptor of one memory file; borrowed. */
int resident_fd(const Resident *r, size_t memory);
