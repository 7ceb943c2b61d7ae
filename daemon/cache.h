/* One cache: what it was asked to be, what it holds, and where in its life it is. The object and its state
 * machine only; load, publish, evict and lease move it along. */
#pragma once

#include <systemd/sd-event.h>

#include "base/fd.h"
#include "daemon/fault.h"
#include "daemon/identity.h"
#include "daemon/settings.h"
#include "wire/manager-interface.h"

typedef struct Cache Cache;
struct Manager;
struct Worker;
struct Lease;
struct Task;
struct ManifestStream;

/* What of its state a cache is at: finer than what clients see. */
typedef enum CachePhase {
        CACHE_SELECTING,  /* the worker looks at the source */
        CACHE_COPYING,    /* admitted */
        CACHE_HANDING,    /* all descriptors are here; the worker publishes and enters its second filter */
        CACHE_PUBLISHING, /* a worker of the manager's own publishes the default view */
        CACHE_PROBING,    /* a worker with the owner's rights opens the view */
        CACHE_HELD,       /* ready or draining */
        CACHE_ENDING,     /* its worker and jobs are on their way out */
        CACHE_CLEANING,   /* pid file, log, views */
        CACHE_GONE,       /* nothing is left but the entry of a failed one */
        _CACHE_PHASE_MAX,
        _CACHE_PHASE_INVALID = -EINVAL,
} CachePhase;

/* What the accountant saw and decided, for Cache.budget. */
typedef struct CacheBudget {
        uint64_t required_bytes, available_bytes, budget_bytes, max_resident_bytes;
        char *limit; /* owned; NULL: not admitted yet */
} CacheBudget;

/* Somebody who waits for a cache to become ready or to end; the object belongs to the list that it is in
 * until done is called, which frees it. cache is NULL where it is gone. */
typedef struct Waiter {
        struct Waiter *next;
        void (*done)(struct Waiter *w, struct Cache *cache, const Fault *fault);
        void (*progress)(struct Waiter *w, struct Cache *cache); /* may be NULL */
        bool (*is_alive)(const struct Waiter *w);
} Waiter;

struct Cache {
        struct Manager *manager; /* not owned */
        uint64_t serial;         /* names are used again, serials aren't */
        CacheSettings *settings;
        Identity owner;
        ManagerCacheState state;
        CachePhase phase;
        gid_t gid;   /* of the resident files */
        int root_fd; /* the caller's root directory */
        pid_t pid;   /* of the worker; kept when it has ended, for its pid file */

        bool gid_given;
        bool forced;
        bool admitted;
        bool held;            /* its worker has entered the second filter, and cannot tidy up any more */
        bool untidy;          /* its worker ended in a way that left its pid file or a part of a view */
        bool view_by_manager; /* published by a worker of the manager's */
        bool view_touched;    /* a publication was begun */
        bool view_published;
        bool remove_view;
        bool evicted;
        bool failed; /* ends by a fault, not by a wish */
        bool heard;  /* somebody was told of its failure */

        struct Worker *worker;     /* the holder */
        struct Task *task;         /* what another worker does for it: publishing, probing, removing */
        char *view;                /* where it is, or is to be, published */
        char *pid_file, *log_file; /* NULL: none */

        char *fingerprint;
        uint64_t files, bytes, large_files, pack_bytes, buffer_bytes;
        uint64_t bytes_loaded;
        uint64_t descriptors;    /* that it has or will have */
        FdSet fds;               /* in the manifest's order: the manifest, the pack if any, large files */
        uint64_t received_bytes; /* in them, without the manifest */
        uint64_t copy_usec;
        CacheBudget budget;

        Fault fault;        /* what those who wait for it to become ready are told */
        char *message;      /* for people */
        char *reason;       /* of a stop, for the log */
        char **log_backlog; /* lines that wait until it is admitted */
        usec_t log_window;  /* when its present period of counting lines began */
        uint64_t log_lines; /* in it */

        struct Lease *leases;
        size_t n_leases;
        Waiter *ready_waiters;
        Waiter *stop_waiters;
        Waiter *end_waiters; /* starts of the same name that wait for its end */
        struct ManifestStream *streams;

        uint64_t reuses, leases_granted;
        usec_t started_realtime, ready_realtime, used_realtime; /* 0: not yet */
        usec_t started, used, progressed;                       /* CLOCK_MONOTONIC */
        sd_event_source *idle_source;
        sd_event_source *release_source; /* closes its files */
};

/* Takes settings and owner on success. */
int cache_new(struct Manager *manager, CacheSettings *settings, Identity *owner, Cache **ret);
/* Nothing may run, wait or lease any more. */
Cache *cache_free(Cache *c);
DEFINE_CLEANUP(Cache *, cache_free)

const char *cache_name(const Cache *c);
bool cache_state_may_follow(ManagerCacheState from, ManagerCacheState to);
/* Illegal transitions assert. */
void cache_set_state(Cache *c, ManagerCacheState state);
/* Closes all descriptors of resident files. */
void cache_release_files(Cache *c);
int cache_manifest_fd(const Cache *c);
int cache_pack_fd(const Cache *c); /* -EBADF: none */

/* In use now: a start, a lease or its end. */
void cache_touch(Cache *c);
int cache_set_message(Cache *c, const char *format, ...) _printf_(2, 3);
/* FAULT_CACHE_NOT_READY, saying why it is not, and what to do. */
int cache_refuse_unready(const Cache *c, Fault *fault);

bool cache_is_resident(const Cache *c);
/* Bytes that count against quotas: those of a load in flight, and those that are resident. */
uint64_t cache_reserved_bytes(const Cache *c);
uint64_t cache_resident_bytes(const Cache *c);
/* Of a load in flight, what has not been filled yet. */
uint64_t cache_outstanding_bytes(const Cache *c);

/* Waiters. The lists are told in the order in which they came. */
void waiter_append(Waiter **list, Waiter *w);
/* Calls done on each and empties the list; whether one that is still connected was told. */
bool waiters_finish(Waiter **list, Cache *cache, const Fault *fault);
void waiters_progress(Waiter *list, Cache *cache);
