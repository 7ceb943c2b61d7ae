/* What must be known of each cache after the manager's death: one small JSON file per cache in
 * RUNTIME/registry/, replaced atomically, valid for one boot. Read at start, hostile until checked. */
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

/* Replaces the entry's file; -EINVAL where its name is no cache's name. */
int registry_save(int dirfd, const RegistryEntry *e);
int registry_remove(int dirfd, const char *name);
/* Every readable entry, sorted by name; damaged files (of another version too) are renamed to NAME.damaged
 * and counted. Only syntax is checked: whether boot, worker and paths are still what they were is the
 * caller's to find out. *ret is an owned array of owned entries (NULL where there are none), see
 * registry_entries_free(). */
int registry_load(int dirfd, RegistryEntry ***ret, size_t *ret_n, size_t *ret_damaged);
RegistryEntry **registry_entries_free(RegistryEntry **entries, size_t n);
