/* What a cache is to be made with: from Start's parameters or from a file in /etc/iloader/caches. One struct
 * for both, so that "the same settings" has one meaning. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "wire/defaults.h"

typedef struct CacheSettings {
        char *name;
        char *source;              /* absolute, normal */
        char *view;                /* absolute, normal; NULL: the default place */
        char *pid_file, *log_file; /* absolute; NULL: none (system) or the default (user scope) */
        char **patterns;           /* NULL: all */
        char **excludes;           /* NULL: the default exclusions */
        unsigned workers;          /* 0: chosen by the worker */
        uint64_t chunk_size;
        double memory_fraction;
        uint64_t max_memory_bytes; /* UINT64_MAX: none */
        uint64_t reserve_bytes;
        uint64_t max_resident_bytes; /* UINT64_MAX: not given; else the shared quota is set to it */
        usec_t idle_ttl;             /* USEC_INFINITY: none */
        bool force;
        char *owner, *group; /* names or numbers; NULL: the caller's */
        /* Where the configuration says so; NULL: nowhere. */
        char *owner_file, *group_file;
        unsigned owner_line, group_line;
        mode_t mode; /* 0400, 0440, 0444 */
} CacheSettings;

/* Every default. */
int cache_settings_new(const char *name, CacheSettings **ret);
CacheSettings *cache_settings_free(CacheSettings *s);
DEFINE_CLEANUP(CacheSettings *, cache_settings_free)

/* 1 where a running cache made with a is what a start with b asks for; 0 where not: *ret_difference (owned,
 * may be NULL to not know) then names the first difference for people, with both values, as a clause that
 * completes "cache 'x': "; or -ENOMEM. name, force, max_resident_bytes and wait aren't compared. */
int cache_settings_compare(const CacheSettings *a, const CacheSettings *b, char **ret_difference);
