/* Rights: who may do what, from a peer's credentials alone. Pure functions; ARCHITECTURE.md, "Rights". */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "wire/server.h"

typedef enum Scope {
        SCOPE_SYSTEM,
        SCOPE_USER,
        _SCOPE_MAX,
        _SCOPE_INVALID = -EINVAL,
} Scope;

typedef struct AccessPolicy {
        Scope scope;
        uid_t manager_uid;
        gid_t starters_gid; /* group "iloader"; (gid_t) -1 where there is none */
} AccessPolicy;

/* Whether the peer may speak to this manager at all: anyone in the system scope. */
bool access_may_connect(const AccessPolicy *p, const VarlinkPeer *peer);
/* Force, quotas, another owner: root, and in the user scope also the user. */
bool access_is_privileged(const AccessPolicy *p, const VarlinkPeer *peer);
/* Start with a source of one's own. */
bool access_may_start(const AccessPolicy *p, const VarlinkPeer *peer);
/* See and lease a cache of this owner, group and mode. */
bool access_may_see(const AccessPolicy *p, const VarlinkPeer *peer, uid_t uid, gid_t gid, mode_t mode);
/* Stop and change a cache of this owner. */
bool access_may_change(const AccessPolicy *p, const VarlinkPeer *peer, uid_t uid);
/* Whether a start for this owner may end at a cache of that one. A worker is as trustworthy as its uid: only
 * root's, the same owner's, or that of the owner configured for the name ((uid_t) -1: none). */
bool access_may_reuse(uid_t asking_owner, uid_t cache_owner, uid_t configured_owner);
