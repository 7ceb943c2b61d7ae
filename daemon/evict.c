/* Stop, idle TTL and collection. */
#include "daemon/evict.h"

#include <assert.h>

#include "base/log.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/manager.h"
#include "daemon/note.h"
#include "daemon/teardown.h"

/* How exactly an idle cache's time is kept. */
#define IDLE_ACCURACY (USEC_PER_SEC / 4)

static int set_reason(Cache *c, const StopOptions *o)
{
        _cleanup_free_ char *text = NULL;
        int r;

        if (o->reason && *o->reason) {
                r = path_escape(o->reason, &text);
                if (r < 0)
                        return r;
        }
        return text_format(&c->reason, "%s%sasked for by user %u, process %d", text ? text : "",
                           text ? "; " : "", (unsigned) o->uid, (int) o->pid);
}

static int refuse_leased(const Cache *c, Fault *fault)
{
        _cleanup_free_ char *holders = NULL;
        size_t n = 0;
        int r;

        for (const Lease *l = c->leases; l && n < 8; l = l->next_in_cache, n++) {
                r = text_format(&holders, "%s%s%s (pid %d)", holders ? holders : "", holders ? ", " : "",
                                l->holder.command, (int) l->holder.pid);
                if (r < 0)
                        return r;
        }
        return fault_set(fault, FAULT_CACHE_LEASED, cache_name(c),
                         "cache '%s' is held by %zu process%s: %s%s; end them, or stop it with --force",
                         cache_name(c), c->n_leases, c->n_leases == 1 ? "" : "es", holders ? holders : "",
                         c->n_leases > n ? ", …" : "");
}

int evict_stop(Cache *c, const StopOptions *options, Waiter *waiter, Fault *fault)
{
        const bool held = c->state == MANAGER_CACHE_STATE_READY || c->state == MANAGER_CACHE_STATE_DRAINING;
        _cleanup_free_ char *message = NULL;
        int r;

        assert(c->state != MANAGER_CACHE_STATE_FAILED);

        if (held && c->leases && !options->force && !options->drain)
                return refuse_leased(c, fault);
        r = set_reason(c, options);
        if (r < 0)
                return r;
        c->remove_view = c->remove_view || options->remove_view;
        waiter_append(&c->stop_waiters, waiter);
        if (c->state == MANAGER_CACHE_STATE_STOPPING)
                return 0;
        if (held && c->leases && !options->force) {
                if (c->state == MANAGER_CACHE_STATE_READY) {
                        cache_set_state(c, MANAGER_CACHE_STATE_DRAINING);
                        (void) cache_set_message(c, "stops with its last lease (%s)", c->reason);
                        manager_emit(c->manager, MANAGER_CHANGE_KIND_DRAINING, c);
                        manager_changed(c->manager);
                }
                waiters_progress(c->stop_waiters, c);
                return 0;
        }
        (void) text_format(&message, "was stopped while it was loading (%s)", c->reason);
        teardown_begin(c, message);
        return 0;
}

static void evict_unasked(Cache *c, bool evicted)
{
        c->evicted = evicted;
        teardown_begin(c, NULL);
}

static int on_idle(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        Cache *c = userdata;
        char span[TIMESPAN_TEXT_MAX];

        if (c->state != MANAGER_CACHE_STATE_READY || c->leases)
                return 0;
        if (now_monotonic() < add_saturating(c->used, c->settings->idle_ttl)) {
                evict_rearm(c);
                return 0;
        }
        (void) text_format(&c->reason, "not used for %s", format_timespan(span, c->settings->idle_ttl));
        evict_unasked(c, true);
        return 0;
}

void evict_rearm(Cache *c)
{
        usec_t when = add_saturating(c->used, c->settings->idle_ttl);
        int r;

        if (c->settings->idle_ttl == USEC_INFINITY || when == UINT64_MAX)
                return;
        if (c->state != MANAGER_CACHE_STATE_READY || c->leases) {
                if (c->idle_source)
                        (void) sd_event_source_set_enabled(c->idle_source, SD_EVENT_OFF);
                return;
        }
        if (c->idle_source) {
                r = sd_event_source_set_time(c->idle_source, when);
                if (r >= 0)
                        r = sd_event_source_set_enabled(c->idle_source, SD_EVENT_ONESHOT);
        } else
                r = sd_event_add_time(c->manager->event, &c->idle_source, CLOCK_MONOTONIC, when,
                                      IDLE_ACCURACY, on_idle, c);
        if (r < 0)
                (void) log_warning(r, "Cache '%s': cannot set its idle timer: %m", cache_name(c));
}

void evict_lease_ended(Cache *c)
{
        cache_touch(c);
        manager_emit(c->manager, MANAGER_CHANGE_KIND_RELEASED, c);
        if (c->state == MANAGER_CACHE_STATE_DRAINING) {
                waiters_progress(c->stop_waiters, c);
                if (!c->leases)
                        evict_unasked(c, false);
                return;
        }
        evict_rearm(c);
}

void collect_plan_done(CollectPlan *p)
{
        free(p->evict);
        free(p->skipped);
        *p = (CollectPlan){};
}

static int compare_use(const void *a, const void *b)
{
        const Cache *x = *(Cache *const *) a, *y = *(Cache *const *) b;

        return x->used < y->used ? -1 : x->used > y->used;
}

static bool may_collect(const struct Manager *m, const VarlinkPeer *peer, const Cache *c)
{
        return c->state == MANAGER_CACHE_STATE_READY && !c->leases &&
               access_may_change(&m->policy, peer, c->owner.uid);
}

static void choose(CollectPlan *p, uint64_t max_bytes, usec_t idle, Cache **candidates, size_t n)
{
        const usec_t now = now_monotonic();

        for (size_t i = 0; i < n; i++) {
                Cache *c = candidates[i];
                uint64_t bytes = cache_resident_bytes(c);
                const bool is_idle = idle != USEC_INFINITY && now - c->used > idle;

                if (!is_idle && p->remaining_bytes <= max_bytes)
                        continue;
                p->evict[p->n_evict++] = c;
                p->evicted_bytes = add_saturating(p->evicted_bytes, bytes);
                p->remaining_bytes -= bytes;
        }
}

int evict_plan(struct Manager *m, const VarlinkPeer *peer, uint64_t max_bytes, usec_t idle, CollectPlan *ret)
{
        _cleanup_collect_plan_ CollectPlan p = {};
        _cleanup_free_ Cache **candidates = NULL;
        size_t n = 0;

        candidates = reallocarray(NULL, m->n_caches + 1, sizeof(Cache *));
        p.evict = reallocarray(NULL, m->n_caches + 1, sizeof(Cache *));
        p.skipped = reallocarray(NULL, m->n_caches + 1, sizeof(Cache *));
        if (!candidates || !p.evict || !p.skipped)
                return -ENOMEM;
        for (size_t i = 0; i < m->n_caches; i++) {
                Cache *c = m->caches[i];

                /* What the caller may not see does not exist for him, neither in names nor in bytes. */
                if (c->state == MANAGER_CACHE_STATE_FAILED ||
                    !access_may_see(&m->policy, peer, c->owner.uid, c->gid, c->settings->mode))
                        continue;
                p.remaining_bytes = add_saturating(p.remaining_bytes, cache_resident_bytes(c));
                if (may_collect(m, peer, c))
                        candidates[n++] = c;
                else
                        p.skipped[p.n_skipped++] = c;
        }
        qsort(candidates, n, sizeof(Cache *), compare_use);
        choose(&p, max_bytes, idle, candidates, n);
        p.target_met = p.remaining_bytes <= max_bytes;
        *ret = p;
        p = (CollectPlan){};
        return 0;
}

void evict_collected(Cache *c, const VarlinkPeer *peer, Waiter *waiter)
{
        (void) text_format(&c->reason, "collected for user %u", (unsigned) peer->uid);
        waiter_append(&c->stop_waiters, waiter);
        evict_unasked(c, true);
}
