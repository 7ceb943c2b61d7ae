/* How a cache becomes resident: selection, admission, copy, verification, publication, probe. Driven by what
 * its worker says; each message is believed only in its place and within what was announced. */
#pragma once

#include "daemon/manager.h"

typedef struct LoadRequest {
        CacheSettings *settings; /* taken on success */
        const Identity *owner;
        gid_t gid; /* of the resident files, where given */
        bool gid_given;
        int *root_fd;            /* taken on success */
        const VarlinkPeer *peer; /* who asks */
        Waiter *waiter;          /* taken on success */
} LoadRequest;

/* Makes the cache and starts its worker. FAULT_REFUSED or a negative errno where it can't be begun. */
int load_begin(Manager *m, LoadRequest *request, Fault *fault);
/* Whether two root directories are one and the same, mount and all. */
bool load_same_root(int a, int b);
/* The job of looking at a source: of a load, and of a start that compares (c NULL: no view, pid or log file).
 */
int load_job(const Manager *m, const CacheSettings *s, const Cache *c, struct json_object **ret);
