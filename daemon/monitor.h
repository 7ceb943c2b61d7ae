/* Who watches: Monitor's subscribers. A slow one costs no memory: progress is left out for it, and one that
 * does not read at all loses its subscription. */
#pragma once

#include "daemon/access.h"
#include "daemon/cache.h"
#include "wire/server.h"

/* Past this many unread bytes progress is left out, past that many the subscription ends. */
#define MONITOR_QUEUE_SLOW KIB(64)
#define MONITOR_QUEUE_MAX  MIB(1)

typedef struct Monitor {
        const AccessPolicy *policy; /* not owned */
        struct Subscriber *first;
        size_t n;
        uint64_t change, removals; /* counters */
} Monitor;

/* Remembers the call until it is gone; name may be NULL. */
int monitor_subscribe(Monitor *m, VarlinkCall *call, const char *name);
/* Tells those who may see the cache. */
void monitor_emit(Monitor *m, ManagerChangeKind kind, const Cache *c);
/* Only this call, with or without "more"; -EPERM where it may not see it. */
int monitor_tell(const Monitor *m, VarlinkCall *call, ManagerChangeKind kind, const Cache *c);
void monitor_done(Monitor *m);
