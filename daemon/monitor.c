/* Subscribers and changes. */
#include "daemon/monitor.h"

#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "daemon/reply.h"

typedef struct Subscriber {
        struct Subscriber *next;
        VarlinkCall *call;
        char *name;    /* NULL: all */
        uint64_t told; /* the last change that it was told of, or spared */
} Subscriber;

static Subscriber *subscriber_free(Subscriber *s)
{
        if (!s)
                return NULL;
        varlink_call_unref(s->call);
        free(s->name);
        free(s);
        return NULL;
}

static bool subscriber_sees(const Monitor *m, const Subscriber *s, const Cache *c)
{
        if (s->name && !streq(s->name, cache_name(c)))
                return false;
        return access_may_see(m->policy, varlink_call_peer(s->call), c->owner.uid, c->gid, c->settings->mode);
}

static void monitor_drop(Monitor *m, Subscriber *s)
{
        for (Subscriber **p = &m->first; *p; p = &(*p)->next)
                if (*p == s) {
                        *p = s->next;
                        m->n--;
                        m->removals++;
                        break;
                }
        subscriber_free(s);
}

static void on_gone(VarlinkCall *call, void *userdata)
{
        Monitor *m = userdata;

        for (Subscriber *s = m->first; s; s = s->next)
                if (s->call == call) {
                        monitor_drop(m, s);
                        return;
                }
}

int monitor_subscribe(Monitor *m, VarlinkCall *call, const char *name)
{
        Subscriber *s, **end = &m->first;

        s = malloc(sizeof(*s));
        if (!s)
                return -ENOMEM;
        *s = (Subscriber){.name = name ? strdup(name) : NULL};
        if (name && !s->name) {
                free(s);
                return -ENOMEM;
        }
        s->call = varlink_call_ref(call);
        while (*end)
                end = &(*end)->next;
        *end = s;
        m->n++;
        varlink_call_set_gone_handler(call, on_gone, m);
        return 0;
}

static int change_new(ManagerChangeKind kind, const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = reply_with_cache(c, &o);
        if (r < 0)
                return r;
        r = json_add_string(o, "kind", manager_change_kind_to_string(kind));
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int monitor_tell(const Monitor *m, VarlinkCall *call, ManagerChangeKind kind, const Cache *c)
{
        struct json_object *o;
        int r;

        if (!access_may_see(m->policy, varlink_call_peer(call), c->owner.uid, c->gid, c->settings->mode))
                return -EPERM;
        r = change_new(kind, c, &o);
        if (r < 0)
                return r;
        return varlink_call_wants_more(call) ? varlink_call_notify(call, o) : varlink_call_reply(call, o);
}

static void end_slow(VarlinkCall *call)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();

        if (!o || json_add_string(o, "limit", "monitorQueue") < 0 ||
            json_add_size(o, "maximum", MONITOR_QUEUE_MAX) < 0 ||
            json_add_string(o, "message",
                            "changes came faster than they were read: read them as they come, and call "
                            "Monitor again") < 0)
                return;
        (void) varlink_call_error(call, MANAGER_ERROR_LIMIT_EXCEEDED, TAKE_PTR(o));
}

/* Tells one. False where its subscription ends. */
static bool emit_one(Subscriber *s, ManagerChangeKind kind, const Cache *c, struct json_object **change)
{
        size_t queued = varlink_call_queued(s->call);
        int r;

        if (queued > MONITOR_QUEUE_SLOW && kind == MANAGER_CHANGE_KIND_PROGRESS)
                return true;
        /* It cannot be told what it missed any other way than by starting again. */
        if (queued > MONITOR_QUEUE_MAX)
                return false;
        if (!*change) {
                r = change_new(kind, c, change);
                if (r < 0) {
                        (void) log_warning(r, "Cannot tell those who monitor of a change: %m");
                        return true;
                }
        }
        (void) varlink_call_notify(s->call, json_object_get(*change));
        return true;
}

void monitor_emit(Monitor *m, ManagerChangeKind kind, const Cache *c)
{
        _cleanup_json_ struct json_object *change = NULL;
        Subscriber *s = m->first;

        m->change++;
        while (s) {
                uint64_t removals = m->removals;

                if (s->told != m->change && subscriber_sees(m, s, c)) {
                        s->told = m->change;
                        if (!emit_one(s, kind, c, &change)) {
                                _cleanup_(varlink_call_unrefp) VarlinkCall *call = varlink_call_ref(s->call);

                                monitor_drop(m, s);
                                end_slow(call);
                        }
                }
                /* Sending may find connections gone, which ends their subscriptions: then look from the
                 * front. */
                s = m->removals != removals ? m->first : s->next;
        }
}

void monitor_done(Monitor *m)
{
        while (m->first)
                monitor_drop(m, m->first);
}
