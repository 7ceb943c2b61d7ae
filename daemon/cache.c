/* The cache object and its states. */
#include "daemon/cache.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "base/text.h"

int cache_new(struct Manager *manager, CacheSettings *settings, Identity *owner, Cache **ret)
{
        Cache *c;

        c = malloc(sizeof(*c));
        if (!c)
                return -ENOMEM;
        *c = (Cache){
                .manager = manager,
                .settings = settings,
                .state = MANAGER_CACHE_STATE_LOADING,
                .phase = CACHE_SELECTING,
                .owner = *owner,
                .gid = owner->gid,
                .root_fd = -EBADF,
                .started_realtime = now_realtime(),
                .used_realtime = now_realtime(),
                .started = now_monotonic(),
                .used = now_monotonic(),
        };
        *owner = (Identity){};
        *ret = c;
        return 0;
}

Cache *cache_free(Cache *c)
{
        if (!c)
                return NULL;
        assert(!c->worker && !c->task && !c->leases && !c->ready_waiters && !c->stop_waiters &&
               !c->end_waiters);
        sd_event_source_disable_unref(c->idle_source);
        sd_event_source_disable_unref(c->release_source);
        cache_release_files(c);
        close_fd(c->root_fd);
        cache_settings_free(c->settings);
        identity_done(&c->owner);
        fault_done(&c->fault);
        free(c->view);
        free(c->pid_file);
        free(c->log_file);
        free(c->fingerprint);
        free(c->budget.limit);
        free(c->message);
        free(c->reason);
        strv_free(c->log_backlog);
        free(c);
        return NULL;
}

const char *cache_name(const Cache *c)
{
        return c->settings->name;
}

bool cache_state_may_follow(ManagerCacheState from, ManagerCacheState to)
{
        switch (from) {
        case MANAGER_CACHE_STATE_LOADING:
                return to == MANAGER_CACHE_STATE_READY || to == MANAGER_CACHE_STATE_STOPPING;
        case MANAGER_CACHE_STATE_READY:
                return to == MANAGER_CACHE_STATE_DRAINING || to == MANAGER_CACHE_STATE_STOPPING;
        case MANAGER_CACHE_STATE_DRAINING:
                return to == MANAGER_CACHE_STATE_STOPPING;
        case MANAGER_CACHE_STATE_STOPPING:
                /* A load that failed gives everything back before it is called failed. */
                return to == MANAGER_CACHE_STATE_FAILED;
        default:
                return false;
        }
}

void cache_set_state(Cache *c, ManagerCacheState state)
{
        assert(cache_state_may_follow(c->state, state));
        log_debug("Cache '%s': %s -> %s.", cache_name(c), manager_cache_state_to_string(c->state),
                  manager_cache_state_to_string(state));
        c->state = state;
}

void cache_release_files(Cache *c)
{
        fd_set_done(&c->fds);
}

int cache_manifest_fd(const Cache *c)
{
        return c->fds.n > 0 ? c->fds.fds[0] : -EBADF;
}

int cache_pack_fd(const Cache *c)
{
        return c->pack_bytes > 0 && c->fds.n > 1 ? c->fds.fds[1] : -EBADF;
}

void cache_touch(Cache *c)
{
        c->used = now_monotonic();
        c->used_realtime = now_realtime();
}

int cache_set_message(Cache *c, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(&c->message, format, ap);
        va_end(ap);
        return r;
}

int cache_refuse_unready(const Cache *c, Fault *fault)
{
        const char *name = cache_name(c), *text = fault_message(&c->fault), *rest = NULL;
        _cleanup_free_ char *prefix = NULL;

        switch (c->state) {
        case MANAGER_CACHE_STATE_LOADING:
                return fault_set(
                        fault, FAULT_CACHE_NOT_READY, name,
                        "cache '%s' is loading, not ready: wait until it is; 'iloader monitor %s' shows "
                        "how far it is",
                        name, name);
        case MANAGER_CACHE_STATE_FAILED:
                if (text_format(&prefix, "cache '%s': ", name) >= 0)
                        rest = startswith(text, prefix);
                return fault_set(fault, FAULT_CACHE_NOT_READY, name,
                                 "cache '%s' has failed: %s: start it again", name, rest ? rest : text);
        default:
                return fault_set(fault, FAULT_CACHE_NOT_READY, name, "cache '%s' is %s, not ready%s%s", name,
                                 manager_cache_state_to_string(c->state), c->message ? ": " : "",
                                 c->message ? c->message : "");
        }
}

bool cache_is_resident(const Cache *c)
{
        return c->phase == CACHE_HELD || (c->phase == CACHE_ENDING && c->admitted);
}

/* Whether admitted and not ready yet. */
static bool cache_is_filling(const Cache *c)
{
        return c->phase >= CACHE_COPYING && c->phase <= CACHE_PROBING;
}

/* The small files will be there twice: in the pack and as real files in the view. */
uint64_t cache_reserved_bytes(const Cache *c)
{
        return cache_is_filling(c) ? add_saturating(add_saturating(c->bytes, c->pack_bytes), c->buffer_bytes)
                                   : 0;
}

uint64_t cache_resident_bytes(const Cache *c)
{
        return cache_is_resident(c) ? c->bytes : 0;
}

uint64_t cache_outstanding_bytes(const Cache *c)
{
        uint64_t reserved = cache_reserved_bytes(c);

        return reserved > c->bytes_loaded ? reserved - c->bytes_loaded : 0;
}

void waiter_append(Waiter **list, Waiter *w)
{
        while (*list)
                list = &(*list)->next;
        w->next = NULL;
        *list = w;
}

bool waiters_finish(Waiter **list, Cache *cache, const Fault *fault)
{
        Waiter *todo = TAKE_PTR(*list), *next;
        bool told = false;

        for (; todo; todo = next) {
                next = todo->next;
                told = todo->is_alive(todo) || told;
                todo->done(todo, cache, fault);
        }
        return told;
}

void waiters_progress(Waiter *list, Cache *cache)
{
        for (; list; list = list->next)
                if (list->progress)
                        list->progress(list, cache);
}
