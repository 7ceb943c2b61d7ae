/* The manager: all caches, what they share, and when it may leave. */
#pragma once

#include "daemon/access.h"
#include "daemon/admission.h"
#include "daemon/cache.h"
#include "daemon/config.h"
#include "daemon/lease.h"
#include "daemon/monitor.h"
#include "daemon/residue.h"
#include "daemon/runtime.h"
#include "daemon/workers.h"

typedef struct Manager {
        sd_event *event;
        AccessPolicy policy;
        ManagerConfig config;
        Runtime *runtime;  /* owned */
        int config_fd;     /* /etc/iloader, or -EBADF; owned */
        int root_fd;       /* the manager's own root; owned */
        Identity identity; /* the manager's own */
        char boot_id[33];
        WorkerPool workers;
        LeaseTable leases;
        Monitor monitor;
        ResidueTable residues;
        VarlinkServer *server; /* owned */
        struct Check *checks;  /* starts that compare a source with a resident cache */

        Cache **caches; /* owned, by name */
        size_t n_caches;
        uint64_t last_serial;
        uint64_t quota; /* UINT64_MAX: none */
        uint64_t descriptors_max;

        usec_t idle_exit; /* USEC_INFINITY: never */
        sd_event_source *idle_source, *stop_source, *trim_source;
        bool stopping, shut;
        char *status; /* last told to systemd */
} Manager;

typedef struct ManagerOptions {
        Scope scope;
        const char *config_dir; /* NULL: none */
        usec_t idle_exit;
} ManagerOptions;

/* Takes runtime on success. Logs what fails. -EBADMSG: the configuration is not valid, and trying again is of
 * no use. */
int manager_new(sd_event *event, const ManagerOptions *options, Runtime *runtime, Manager **ret);
Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager *, manager_free)
/* Begins the clean end; the event loop is left when all is given back, or after a bounded time. */
void manager_stop(Manager *m);

Cache *manager_find(const Manager *m, const char *name);
/* Only what the peer may see. */
Cache *manager_find_for(const Manager *m, const VarlinkPeer *peer, const char *name);
/* Takes the cache on success. */
int manager_add(Manager *m, Cache *c);
/* Frees it. */
void manager_remove(Manager *m, Cache *c);
/* Entries of failed caches are kept for whoever asks, but only so many: forgets the oldest. */
void manager_trim_failed(Manager *m);

/* The figures that admission needs, without the cache that is to be admitted (may be NULL). */
void manager_account(const Manager *m, const Cache *except, AdmissionState *ret);
uint64_t manager_descriptors(const Manager *m, const Cache *except);
uint64_t manager_bytes_of_user(const Manager *m, uid_t uid, const Cache *except);
size_t manager_caches_of_user(const Manager *m, uid_t uid);
size_t manager_loads_of_user(const Manager *m, uid_t uid);
size_t manager_caches(const Manager *m);
/* Sets and saves. */
int manager_set_quota(Manager *m, uint64_t quota, uid_t uid, pid_t pid);

/* Something changed: the status for systemd, whether the manager may leave. */
void manager_changed(Manager *m);
void manager_emit(Manager *m, ManagerChangeKind kind, const Cache *c);
