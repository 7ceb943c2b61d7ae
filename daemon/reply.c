/* The interface's types, built from the manager's objects. */
#include "daemon/reply.h"

#include "base/text.h"
#include "daemon/lease.h"
#include "daemon/workers.h"

/* Messages and paths of cgroups may hold any bytes; JSON may not. */
static int add_text(struct json_object *o, const char *key, const char *bytes)
{
        _cleanup_free_ char *text = NULL;
        int r;

        if (!bytes)
                return 0;
        r = utf8_approximate(bytes, &text);
        return r < 0 ? r : json_add_string(o, key, text);
}

static int reply_lease(const Lease *l, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_int(o, "pid", l->holder.pid)) < 0 ||
            (r = json_add_int(o, "uid", l->holder.uid)) < 0 ||
            (r = json_add_string(o, "command", l->holder.command)) < 0 ||
            (r = json_add_size(o, "acquiredUSec", l->acquired)) < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int reply_leases(const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *array = json_object_new_array();
        int r;

        if (!array)
                return -ENOMEM;
        for (const Lease *l = c->leases; l; l = l->next_in_cache) {
                struct json_object *o;

                r = reply_lease(l, &o);
                if (r < 0)
                        return r;
                if (json_object_array_add(array, o) < 0) {
                        json_object_put(o);
                        return -ENOMEM;
                }
        }
        *ret = TAKE_PTR(array);
        return 0;
}

static int reply_budget(const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        const CacheSettings *s = c->settings;
        const CacheBudget *b = &c->budget;
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_size(o, "requiredBytes", b->required_bytes)) < 0 ||
            (r = json_add_size(o, "availableBytes", b->available_bytes)) < 0 ||
            (r = json_add_size(o, "budgetBytes", b->budget_bytes)) < 0 ||
            (r = add_text(o, "limit", b->limit)) < 0 ||
            (r = json_add_double(o, "memoryFraction", s->memory_fraction)) < 0 ||
            (r = json_add_size(o, "reserveBytes", s->reserve_bytes)) < 0 ||
            (r = json_add_bool(o, "forced", c->forced)) < 0)
                return r;
        if (s->max_memory_bytes != UINT64_MAX) {
                r = json_add_size(o, "maxMemoryBytes", s->max_memory_bytes);
                if (r < 0)
                        return r;
        }
        if (b->max_resident_bytes != UINT64_MAX) {
                r = json_add_size(o, "maxResidentBytes", b->max_resident_bytes);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(o);
        return 0;
}

static int add_optional(const Cache *c, struct json_object *o)
{
        int r;

        if (c->view_published) {
                r = json_add_path(o, "view", c->view);
                if (r < 0)
                        return r;
        }
        r = json_add_string(o, "fingerprint", c->fingerprint);
        if (r < 0)
                return r;
        if (c->worker) {
                r = json_add_int(o, "pid", worker_pid(c->worker));
                if (r < 0)
                        return r;
        }
        if (c->ready_realtime > 0) {
                r = json_add_size(o, "readyUSec", c->ready_realtime);
                if (r < 0)
                        return r;
        }
        if (c->settings->idle_ttl != USEC_INFINITY) {
                r = json_add_size(o, "idleTTLUSec", c->settings->idle_ttl);
                if (r < 0)
                        return r;
        }
        if (c->budget.limit) {
                struct json_object *budget;

                r = reply_budget(c, &budget);
                if (r < 0)
                        return r;
                r = json_add(o, "budget", budget);
                if (r < 0)
                        return r;
        }
        return add_text(o, "message", c->message);
}

int reply_cache(const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        struct json_object *leases;
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_string(o, "name", cache_name(c))) < 0 ||
            (r = json_add_string(o, "state", manager_cache_state_to_string(c->state))) < 0 ||
            (r = json_add_path(o, "source", c->settings->source)) < 0 ||
            (r = json_add_int(o, "uid", c->owner.uid)) < 0 || (r = json_add_int(o, "gid", c->gid)) < 0 ||
            (r = json_add_int(o, "mode", c->settings->mode)) < 0 ||
            (r = json_add_size(o, "files", c->files)) < 0 || (r = json_add_size(o, "bytes", c->bytes)) < 0 ||
            (r = json_add_size(o, "bytesLoaded", c->bytes_loaded)) < 0 ||
            (r = json_add_size(o, "reuses", c->reuses)) < 0 ||
            (r = json_add_size(o, "leasesGranted", c->leases_granted)) < 0 ||
            (r = json_add_size(o, "startedUSec", c->started_realtime)) < 0 ||
            (r = json_add_size(o, "lastUsedUSec", c->used_realtime)) < 0)
                return r;
        r = reply_leases(c, &leases);
        if (r < 0)
                return r;
        r = json_add(o, "leases", leases);
        if (r < 0)
                return r;
        r = add_optional(c, o);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int reply_with_cache(const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        struct json_object *cache;
        int r;

        if (!o)
                return -ENOMEM;
        r = reply_cache(c, &cache);
        if (r < 0)
                return r;
        r = json_add(o, "cache", cache);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int reply_append_string(struct json_object *array, const char *s)
{
        struct json_object *o = NULL;

        if (s) {
                o = json_object_new_string(s);
                if (!o)
                        return -ENOMEM;
        }
        if (json_object_array_add(array, o) < 0) {
                json_object_put(o);
                return -ENOMEM;
        }
        return 0;
}
