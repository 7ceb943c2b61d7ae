/* The embedded default: a manager of the user's own, started when the first cache is. */
#pragma once

#include "ctl/target.h"
#include "wire/client.h"

typedef struct EmbeddedManager {
        int pidfd; /* of the manager where this call started it, -EBADF where one was there; owned */
} EmbeddedManager;
#define EMBEDDED_MANAGER_INIT                                                                                \
        {                                                                                                    \
                .pidfd = -EBADF                                                                              \
        }

/* Connects, starting a manager where nobody listens. One starter at a time (start.lock); waits at most until
 * the deadline. -errno with *ret_error (owned) in words. ret_manager may be NULL. */
int embedded_connect(const Target *t, usec_t deadline, VarlinkClient **ret, EmbeddedManager *ret_manager,
                     char **ret_error);
