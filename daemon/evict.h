/* Giving memory back: on request, after idleness, and to make room. Never what is leased, unless forced. */
#pragma once

#include "daemon/cache.h"
#include "wire/server.h"

typedef struct StopOptions {
        bool force, drain, remove_view;
        const char *reason; /* for people; may be NULL */
        uid_t uid;          /* who asks */
        pid_t pid;
} StopOptions;

/* Takes the waiter on success, which is told when all is given back. FAULT_REFUSED: CACHE_LEASED. */
int evict_stop(Cache *c, const StopOptions *options, Waiter *waiter, Fault *fault);
/* A lease has ended: a draining cache may be stopped, an idle one's time begins. */
void evict_lease_ended(Cache *c);
/* (Re)starts the idle timer by the last use; off while leased. */
void evict_rearm(Cache *c);

/* What Collect would do, or did. */
typedef struct CollectPlan {
        Cache **evict;
        size_t n_evict;
        uint64_t evicted_bytes, remaining_bytes;
        Cache **skipped;
        size_t n_skipped;
        bool target_met;
} CollectPlan;
void collect_plan_done(CollectPlan *p);
#define _cleanup_collect_plan_ _cleanup_(collect_plan_done)

/* max_bytes UINT64_MAX: no target; idle USEC_INFINITY: none. */
int evict_plan(struct Manager *m, const VarlinkPeer *peer, uint64_t max_bytes, usec_t idle, CollectPlan *ret);
/* Evicts one of the plan. */
void evict_collected(Cache *c, const VarlinkPeer *peer, Waiter *waiter);
