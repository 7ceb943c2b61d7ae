/* Leases by pidfd. */
#include "daemon/lease.h"

#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"

void lease_free(Lease *l)
{
        if (!l)
                return;
        for (Lease **p = &l->table->first; *p; p = &(*p)->next)
                if (*p == l) {
                        *p = l->next;
                        l->table->n--;
                        break;
                }
        for (Lease **p = &l->cache->leases; *p; p = &(*p)->next_in_cache)
                if (*p == l) {
                        *p = l->next_in_cache;
                        l->cache->n_leases--;
                        break;
                }
        sd_event_source_disable_unref(l->source);
        close_fd(l->pidfd);
        free(l);
}

static int on_holder(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                     void *userdata)
{
        Lease *l = userdata, ended = *l;

        /* The handler sees the cache without the lease, and may end the cache. */
        ended.source = NULL;
        ended.pidfd = -EBADF;
        lease_free(l);
        if (ended.table->ended)
                ended.table->ended(&ended, ended.cache, ended.table->userdata);
        return 0;
}

size_t lease_count_of_user(const LeaseTable *t, uid_t uid)
{
        size_t n = 0;

        for (const Lease *l = t->first; l; l = l->next)
                if (l->asked_by == uid)
                        n++;
        return n;
}

static Lease *lease_find(const Cache *c, const ProcessInfo *holder)
{
        for (Lease *l = c->leases; l; l = l->next_in_cache)
                if (l->holder.pid == holder->pid && l->holder.start_time == holder->start_time)
                        return l;
        return NULL;
}

static int refuse_holder(int error, Fault *fault)
{
        switch (error) {
        case -EINVAL:
        case -EBADF:
                return fault_set(
                        fault, FAULT_INVALID_HOLDER, NULL,
                        "the descriptor that came with the call is no pidfd: send one from pidfd_open(2)");
        case -ESRCH:
                return fault_set(fault, FAULT_INVALID_HOLDER, NULL,
                                 "the process that is to hold the cache has ended");
        case -EREMOTE:
                return fault_set(
                        fault, FAULT_INVALID_HOLDER, NULL,
                        "the process that is to hold the cache is in a process namespace that this manager "
                        "cannot see");
        default:
                return fault_set(fault, FAULT_INVALID_HOLDER, NULL,
                                 "the process that is to hold the cache cannot be examined: %s",
                                 strerror(-error));
        }
}

static int check_holder(const Cache *c, const ProcessInfo *info, uid_t asking_uid, Fault *fault)
{
        if (asking_uid != 0 && info->uid != asking_uid)
                return fault_set(fault, FAULT_INVALID_HOLDER, NULL,
                                 "process %d belongs to user %u and not to the caller, user %u",
                                 (int) info->pid, (unsigned) info->uid, (unsigned) asking_uid);
        /* It would end with what it protects, and so block every stop. */
        if (info->pid == getpid() || info->pid == c->pid)
                return fault_set(
                        fault, FAULT_INVALID_HOLDER, NULL,
                        "process %d is the manager's own and can't hold a cache: send the pidfd of the "
                        "process that reads it",
                        (int) info->pid);
        return 0;
}

/* Who is behind the pidfd: -ESRCH where nobody is any more; FAULT_REFUSED where it is none, or not the
 * asker's to use. */
static int identify_holder(const Cache *c, int pidfd, uid_t asking_uid, ProcessInfo *ret, Fault *fault)
{
        int r;

        r = pidfd_get_info(pidfd, ret);
        if (r == -ESRCH || r == -ENOMEM)
                return r;
        return r < 0 ? refuse_holder(r, fault) : check_holder(c, ret, asking_uid, fault);
}

static int check_caps(const LeaseTable *t, uid_t asking_uid, Fault *fault)
{
        int r = 0;

        if (t->n >= t->max_total)
                r = fault_set(fault, FAULT_TOO_MANY_LEASES, NULL,
                              "this manager's %" PRIu64 " leases are all in use: end some of their holders",
                              t->max_total);
        else if (lease_count_of_user(t, asking_uid) >= t->max_per_user)
                r = fault_set(fault, FAULT_TOO_MANY_LEASES, NULL,
                              "user %u holds %" PRIu64
                              " leases, which is all that one user may: end some of their "
                              "holders, or raise LeasesMaxPerUser= in iloaderd.conf",
                              (unsigned) asking_uid, t->max_per_user);
        if (r < 0)
                fault->maximum = t->n >= t->max_total ? t->max_total : t->max_per_user;
        return r;
}

int lease_acquire(LeaseTable *t, Cache *c, int pidfd, uid_t asking_uid, Fault *fault, Lease **ret)
{
        _cleanup_close_ int fd = pidfd;
        ProcessInfo info;
        Lease *l;
        int r;

        if (c->state != MANAGER_CACHE_STATE_READY)
                return cache_refuse_unready(c, fault);
        r = identify_holder(c, fd, asking_uid, &info, fault);
        if (r < 0)
                return r == -ESRCH ? refuse_holder(r, fault) : r;
        l = lease_find(c, &info);
        if (l) {
                *ret = l;
                return 0;
        }
        r = check_caps(t, asking_uid, fault);
        if (r < 0)
                return r;

        l = malloc(sizeof(*l));
        if (!l)
                return -ENOMEM;
        *l = (Lease){
                .table = t,
                .cache = c,
                .holder = info,
                .asked_by = asking_uid,
                .acquired = now_realtime(),
                .pidfd = fd,
        };
        r = sd_event_add_io(t->event, &l->source, l->pidfd, EPOLLIN, on_holder, l);
        if (r < 0) {
                free(l);
                return r;
        }
        TAKE_FD(fd);
        l->next = t->first;
        t->first = l;
        t->n++;
        l->next_in_cache = c->leases;
        c->leases = l;
        c->n_leases++;
        c->leases_granted++;
        *ret = l;
        return 1;
}

int lease_release(Cache *c, int pidfd, uid_t asking_uid, Fault *fault)
{
        _cleanup_close_ int fd = pidfd;
        ProcessInfo info;
        Lease *l;
        int r;

        r = identify_holder(c, fd, asking_uid, &info, fault);
        if (r < 0)
                return r == -ESRCH ? 0 : r;
        l = lease_find(c, &info);
        if (!l)
                return fault_set(fault, FAULT_INVALID_HOLDER, NULL, "process %d holds no lease of cache '%s'",
                                 (int) info.pid, cache_name(c));
        lease_free(l);
        return 1;
}
