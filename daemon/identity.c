/* Who somebody is, as numbers. The user database is asked by the reentrant calls, with buffers that grow to a
 * bound. */
#include "daemon/identity.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>

#include "base/size.h"

#define NSS_BUFFER_MIN KIB(4)
#define NSS_BUFFER_MAX MIB(1)
/* NGROUPS_MAX of the kernel. */
#define GROUPS_MAX 65536

void identity_done(Identity *i)
{
        free(i->groups);
        *i = (Identity){};
}

static int identity_new(uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups, Identity *ret)
{
        _cleanup_free_ gid_t *copy = NULL;

        if (n_groups > 0) {
                copy = reallocarray(NULL, n_groups, sizeof(*copy));
                if (!copy)
                        return -ENOMEM;
                memcpy(copy, groups, n_groups * sizeof(*copy));
        }
        *ret = (Identity){.uid = uid, .gid = gid, .groups = TAKE_PTR(copy), .n_groups = n_groups};
        return 0;
}

int identity_from_peer(const VarlinkPeer *peer, Identity *ret)
{
        return identity_new(peer->uid, peer->gid, peer->groups, peer->n_groups, ret);
}

int identity_copy(const Identity *i, Identity *ret)
{
        return identity_new(i->uid, i->gid, i->groups, i->n_groups, ret);
}

/* Only digits: a number, and no other name. (uid_t) -1 means "unchanged" to the kernel and is nobody. */
static int parse_id(const char *s, uint32_t *ret)
{
        uint64_t v;
        int r;

        r = parse_u64(s, &v);
        if (r < 0)
                return r;
        if (v >= UINT32_MAX)
                return -ESRCH;
        *ret = (uint32_t) v;
        return 0;
}

/* What the getXXnam_r family returns for "no such entry" (getpwnam(3), ERRORS). */
static int nss_error(int error)
{
        switch (error) {
        case 0:
        case ENOENT:
        case ESRCH:
        case EBADF:
        case EPERM:
                return -ESRCH;
        default:
                return -error;
        }
}

/* *ret_buffer is owned and holds what the entry points at. */
static int find_user(const char *user, struct passwd *ret, char **ret_buffer)
{
        uint32_t uid = 0;
        int by_number, r;

        by_number = parse_id(user, &uid);
        if (by_number < 0 && by_number != -EINVAL)
                return -ESRCH;
        for (size_t size = NSS_BUFFER_MIN; size <= NSS_BUFFER_MAX; size *= 2) {
                _cleanup_free_ char *buffer = malloc(size);
                struct passwd *found = NULL;

                if (!buffer)
                        return -ENOMEM;
                r = by_number >= 0 ? getpwuid_r(uid, ret, buffer, size, &found)
                                   : getpwnam_r(user, ret, buffer, size, &found);
                if (r == ERANGE)
                        continue;
                if (!found)
                        return nss_error(r);
                *ret_buffer = TAKE_PTR(buffer);
                return 0;
        }
        return -E2BIG;
}

int identity_from_user(const char *user, Identity *ret)
{
        _cleanup_free_ char *buffer = NULL;
        _cleanup_free_ gid_t *groups = NULL;
        struct passwd entry;
        int n = 64, r;

        r = find_user(user, &entry, &buffer);
        if (r < 0)
                return r;
        for (;;) {
                gid_t *larger = reallocarray(groups, (size_t) n, sizeof(*groups));
                int room = n;

                if (!larger)
                        return -ENOMEM;
                groups = larger;
                if (getgrouplist(entry.pw_name, entry.pw_gid, groups, &n) >= 0)
                        break;
                if (n <= room)
                        n = room * 2;
                if (n > GROUPS_MAX)
                        return -E2BIG;
        }
        *ret = (Identity){
                .uid = entry.pw_uid,
                .gid = entry.pw_gid,
                .groups = TAKE_PTR(groups),
                .n_groups = (size_t) n,
        };
        return 0;
}

int identity_self(Identity *ret)
{
        _cleanup_free_ gid_t *groups = NULL;
        int n;

        n = getgroups(0, NULL);
        if (n < 0)
                return -errno;
        if (n > 0) {
                groups = reallocarray(NULL, (size_t) n, sizeof(*groups));
                if (!groups)
                        return -ENOMEM;
                n = getgroups(n, groups);
                if (n < 0)
                        return -errno;
        }
        *ret = (Identity){
                .uid = geteuid(),
                .gid = getegid(),
                .groups = TAKE_PTR(groups),
                .n_groups = (size_t) n,
        };
        return 0;
}

int group_from_name(const char *group, gid_t *ret)
{
        uint32_t number = 0;
        int r;

        /* A number needs no entry: files can have groups that the database doesn't know. */
        r = parse_id(group, &number);
        if (r >= 0) {
                *ret = number;
                return 0;
        }
        if (r != -EINVAL)
                return -ESRCH;
        for (size_t size = NSS_BUFFER_MIN; size <= NSS_BUFFER_MAX; size *= 2) {
                _cleanup_free_ char *buffer = malloc(size);
                struct group entry, *found = NULL;

                if (!buffer)
                        return -ENOMEM;
                r = getgrnam_r(group, &entry, buffer, size, &found);
                if (r == ERANGE)
                        continue;
                if (!found)
                        return nss_error(r);
                *ret = found->gr_gid;
                return 0;
        }
        return -E2BIG;
}

bool peer_in_group(const VarlinkPeer *peer, gid_t gid)
{
        if (gid == (gid_t) -1)
                return false;
        if (peer->gid == gid)
                return true;
        for (size_t i = 0; i < peer->n_groups; i++)
                if (peer->groups[i] == gid)
                        return true;
        return false;
}

SpawnCredentials identity_credentials(const Identity *i)
{
        return (SpawnCredentials){
                .uid = i->uid,
                .gid = i->gid,
                .groups = i->groups,
                .n_groups = i->n_groups,
        };
}
