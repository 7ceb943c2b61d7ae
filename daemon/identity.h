/* Users and groups as numbers: of a caller, of a configured owner. getpwnam_r(3), getgrouplist(3). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/spawn.h"
#include "wire/server.h"

typedef struct Identity {
        uid_t uid;
        gid_t gid;
        gid_t *groups;
        size_t n_groups;
} Identity;
void identity_done(Identity *i);
#define _cleanup_identity_ _cleanup_(identity_done)

int identity_from_peer(const VarlinkPeer *peer, Identity *ret);
/* A name or a number: -ESRCH where there is no such user. */
int identity_from_user(const char *user, Identity *ret);
int identity_self(Identity *ret);
int identity_copy(const Identity *i, Identity *ret);
int group_from_name(const char *group, gid_t *ret);
bool peer_in_group(const VarlinkPeer *peer, gid_t gid);
SpawnCredentials identity_credentials(const Identity *i); /* borrows */
