/* Rights by uid, gid and mode. */
#include "daemon/access.h"

#include "daemon/identity.h"

bool access_may_connect(const AccessPolicy *p, const VarlinkPeer *peer)
{
        return p->scope == SCOPE_SYSTEM || peer->uid == 0 || peer->uid == p->manager_uid;
}

bool access_is_privileged(const AccessPolicy *p, const VarlinkPeer *peer)
{
        return peer->uid == 0 || (p->scope == SCOPE_USER && peer->uid == p->manager_uid);
}

bool access_may_start(const AccessPolicy *p, const VarlinkPeer *peer)
{
        return access_is_privileged(p, peer) ||
               (p->scope == SCOPE_SYSTEM && peer_in_group(peer, p->starters_gid));
}

bool access_may_see(const AccessPolicy *p, const VarlinkPeer *peer, uid_t uid, gid_t gid, mode_t mode)
{
        if (!access_may_connect(p, peer))
                return false;
        if (access_may_change(p, peer, uid))
                return true;
        if ((mode & 0040) && peer_in_group(peer, gid))
                return true;
        return mode & 0004;
}

bool access_may_change(const AccessPolicy *p, const VarlinkPeer *peer, uid_t uid)
{
        return access_is_privileged(p, peer) || peer->uid == uid;
}

bool access_may_reuse(uid_t asking_owner, uid_t cache_owner, uid_t configured_owner)
{
        if (cache_owner == 0 || cache_owner == asking_owner)
                return true;
        return configured_owner != (uid_t) -1 && cache_owner == configured_owner;
}
