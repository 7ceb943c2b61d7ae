/* Leases: a process holds a cache, known by its pidfd, for as long as it lives. One per process and cache;
 * capped for each user who asks. */
#pragma once

#include <systemd/sd-event.h>

#include "base/process.h"
#include "daemon/cache.h"

typedef struct LeaseTable LeaseTable;

typedef struct Lease {
        struct Lease *next, *next_in_cache;
        LeaseTable *table;
        Cache *cache;
        ProcessInfo holder;
        uid_t asked_by;  /* who is charged */
        usec_t acquired; /* CLOCK_REALTIME */
        int pidfd;
        sd_event_source *source;
} Lease;

/* The process is gone; the lease is no longer the cache's and is freed after the call. */
typedef void (*LeaseEndedHandler)(const Lease *lease, Cache *cache, void *userdata);

struct LeaseTable {
        sd_event *event; /* not owned */
        Lease *first;
        size_t n;
        uint64_t max_per_user, max_total;
        LeaseEndedHandler ended;
        void *userdata;
};

/* Takes pidfd in every case. 1: granted; 0: the process had it already; FAULT_REFUSED: INVALID_HOLDER,
 * TOO_MANY_LEASES, CACHE_NOT_READY. */
int lease_acquire(LeaseTable *t, Cache *c, int pidfd, uid_t asking_uid, Fault *fault, Lease **ret);
/* Ends the lease of the pidfd's process. Takes pidfd in every case. 1: ended; 0: the process is gone already,
 * and with it the lease; FAULT_REFUSED: no such lease, or not the asker's. */
int lease_release(Cache *c, int pidfd, uid_t asking_uid, Fault *fault);
/* Drops one, without calling the handler. */
void lease_free(Lease *l);
size_t lease_count_of_user(const LeaseTable *t, uid_t uid);
