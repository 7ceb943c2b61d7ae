/* What must be known of each cache after the manager's death: one small JSON file per cache in RUNTIME/registry/,
 * replaced atomically, valid for one boot. Read at start, hostile until checked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

typedef struct RegistryEntry {
        char *name;
        char boot_id[33];
        pid_t worker_pid;
        uint64_t worker_start_time;
        uid_t uid;
        gid_t gid;
        char *source, *view, *pid_file, *log_file; /* owned, may be NULL */
        char *fingerprint;
        uint64_t bytes;
        bool view_by_manager;
} RegistryEntry;
RegistryEntry *registry_entry_free(RegistryEntry *e);
DEFINE_CLEANUP(RegistryEntry *, registry_entry_free)

int registry_save(int dirfd, const RegistryEntry *e);
int registry_remove(int dirfd, const char *name);
/* Every readable entry; damaged files are renamed to NAME.damaged and counted. *ret is an owned array of owned entries. */
int registry_load(int dirfd, RegistryEntry ***ret, size_t *ret_n, size_t *ret_damaged);
