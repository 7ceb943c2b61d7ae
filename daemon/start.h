/* Start: who may, with what, and whether a cache of the name is reused, joined, waited for or made. */
#pragma once

#include "daemon/manager.h"

typedef struct StartRequest {
        Waiter waiter; /* first: a waiter of a cache is its request */
        Manager *manager;
        VarlinkCall *call; /* referenced */
        CacheSettings *settings;
        Identity owner;
        gid_t gid;
        bool gid_given;
        uid_t configured_owner; /* of the name; (uid_t) -1: none */
        int root_fd;
        bool wait;
        bool reused;      /* the answer */
        bool check_after; /* joined a load of other roots or rights: compare when it is ready */
        bool answered;    /* to one who doesn't wait */
        /* The answer; the request is freed after it. cache NULL: refused. */
        void (*answer)(struct StartRequest *r, Cache *cache, const Fault *fault);
        /* The load has been admitted or goes on. */
        void (*progress)(struct StartRequest *r, Cache *cache);
} StartRequest;

/* Checks name, rights and parameters. FAULT_REFUSED or a negative errno where it may not be. */
int start_request_new(Manager *m, VarlinkCall *call, const ManagerStartParameters *p, StartRequest **ret,
                      Fault *fault);
StartRequest *start_request_free(StartRequest *r);
DEFINE_CLEANUP(StartRequest *, start_request_free)

/* Goes on with it. Takes the request on success: it will be answered. */
int start_submit(StartRequest *r, Fault *fault);
