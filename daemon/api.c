/* Methods. A handler that refuses answers with a fault; whatever else goes wrong ends in on_error(). */
#include "daemon/api.h"

#include <assert.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/events.h"
#include "daemon/evict.h"
#include "daemon/manifest-stream.h"
#include "daemon/note.h"
#include "daemon/reply.h"
#include "daemon/start.h"
#include "daemon/teardown.h"

/* Refusals */

enum {
        HAS_NAME = 1 << 0,
        HAS_PATH = 1 << 1,
        HAS_MESSAGE = 1 << 2,
        HAS_LEASES = 1 << 3,
        HAS_STATE = 1 << 4,
        HAS_REQUIRED = 1 << 5,
        HAS_AVAILABLE = 1 << 6,
        HAS_LIMIT = 1 << 7,
        HAS_RESIDENT = 1 << 8,
        HAS_QUOTA = 1 << 9,
        HAS_FILES = 1 << 10,
        HAS_MAXIMUM = 1 << 11,
        HAS_LINE = 1 << 12,
};

static const struct {
        const char *error;
        unsigned members;
} error_table[_FAULT_KIND_MAX] = {
        [FAULT_NO_SUCH_CACHE] = {MANAGER_ERROR_NO_SUCH_CACHE, HAS_NAME},
        [FAULT_CACHE_MISMATCH] = {MANAGER_ERROR_CACHE_MISMATCH, HAS_NAME | HAS_MESSAGE},
        [FAULT_SOURCE_CHANGED] = {MANAGER_ERROR_SOURCE_CHANGED, HAS_PATH | HAS_MESSAGE},
        [FAULT_SOURCE_INVALID] = {MANAGER_ERROR_SOURCE_INVALID, HAS_PATH | HAS_MESSAGE},
        [FAULT_CACHE_LEASED] = {MANAGER_ERROR_CACHE_LEASED, HAS_NAME | HAS_LEASES | HAS_MESSAGE},
        [FAULT_CACHE_NOT_READY] = {MANAGER_ERROR_CACHE_NOT_READY, HAS_NAME | HAS_STATE | HAS_MESSAGE},
        [FAULT_NAME_RESERVED] = {MANAGER_ERROR_NAME_RESERVED, HAS_NAME | HAS_MESSAGE},
        [FAULT_INVALID_NAME] = {MANAGER_ERROR_INVALID_NAME, HAS_NAME | HAS_MESSAGE},
        [FAULT_INSUFFICIENT_MEMORY] = {MANAGER_ERROR_INSUFFICIENT_MEMORY,
                                       HAS_REQUIRED | HAS_AVAILABLE | HAS_LIMIT | HAS_MESSAGE},
        [FAULT_QUOTA_EXCEEDED] = {MANAGER_ERROR_QUOTA_EXCEEDED,
                                  HAS_REQUIRED | HAS_RESIDENT | HAS_QUOTA | HAS_MESSAGE},
        [FAULT_TOO_MANY_FILES] = {MANAGER_ERROR_TOO_MANY_FILES, HAS_FILES | HAS_MAXIMUM | HAS_MESSAGE},
        [FAULT_TOO_MANY_LEASES] = {MANAGER_ERROR_TOO_MANY_LEASES, HAS_MAXIMUM | HAS_MESSAGE},
        [FAULT_LIMIT_EXCEEDED] = {MANAGER_ERROR_LIMIT_EXCEEDED, HAS_LIMIT | HAS_MAXIMUM | HAS_MESSAGE},
        [FAULT_VIEW_CONFLICT] = {MANAGER_ERROR_VIEW_CONFLICT, HAS_PATH | HAS_MESSAGE},
        [FAULT_LOAD_FAILED] = {MANAGER_ERROR_LOAD_FAILED, HAS_NAME | HAS_MESSAGE},
        [FAULT_INVALID_HOLDER] = {MANAGER_ERROR_INVALID_HOLDER, HAS_MESSAGE},
        [FAULT_INVALID_CONFIGURATION] = {MANAGER_ERROR_INVALID_CONFIGURATION,
                                         HAS_PATH | HAS_LINE | HAS_MESSAGE},
};

/* Errors' paths are for people: text only. */
static int add_text(struct json_object *o, const char *key, const char *bytes)
{
        _cleanup_free_ char *text = NULL;
        int r;

        r = utf8_approximate(bytes ? bytes : "", &text);
        return r < 0 ? r : json_add_string(o, key, text);
}

static int add_cache_members(unsigned members, const Cache *c, struct json_object *o)
{
        struct json_object *leases = NULL;
        int r;

        if (members & HAS_STATE) {
                r = json_add_string(
                        o, "state",
                        manager_cache_state_to_string(c ? c->state : MANAGER_CACHE_STATE_STOPPING));
                if (r < 0)
                        return r;
        }
        if (!(members & HAS_LEASES))
                return 0;
        if (c)
                r = reply_leases(c, &leases);
        else
                r = (leases = json_object_new_array()) ? 0 : -ENOMEM;
        return r < 0 ? r : json_add(o, "leases", leases);
}

static int add_members(unsigned members, const Fault *f, struct json_object *o)
{
        const struct {
                unsigned member;
                const char *key;
                uint64_t value;
        } numbers[] = {
                {HAS_REQUIRED, "requiredBytes", f->required},
                {HAS_AVAILABLE, "availableBytes", f->available},
                {HAS_RESIDENT, "residentBytes", f->resident},
                {HAS_QUOTA, "quotaBytes", f->maximum},
                {HAS_FILES, "files", f->files},
                {HAS_MAXIMUM, "maximum", f->maximum},
                {HAS_LINE, "line", f->line},
        };
        const struct {
                unsigned member;
                const char *key;
                const char *value;
        } texts[] = {
                {HAS_NAME, "name", f->subject},
                {HAS_PATH, "path", f->subject},
                {HAS_LIMIT, "limit", f->subject},
                {HAS_MESSAGE, "message", fault_message(f)},
        };
        int r;

        for (size_t i = 0; i < ELEMENTSOF(texts); i++)
                if (members & texts[i].member) {
                        r = add_text(o, texts[i].key, texts[i].value);
                        if (r < 0)
                                return r;
                }
        for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
                if (members & numbers[i].member) {
                        r = json_add_size(o, numbers[i].key, numbers[i].value);
                        if (r < 0)
                                return r;
                }
        return 0;
}

static int api_refuse(const Manager *m, VarlinkCall *call, const Fault *f)
{
        _cleanup_json_ struct json_object *o = NULL;
        unsigned members;
        int r;

        if (f->kind == FAULT_PERMISSION_DENIED)
                return varlink_call_permission_denied(call);
        if (f->kind == FAULT_INVALID_PARAMETER)
                return varlink_call_invalid_parameter(call, f->subject ? f->subject : "parameters");
        assert(f->kind > FAULT_NONE && f->kind < _FAULT_KIND_MAX && error_table[f->kind].error);
        members = error_table[f->kind].members;
        o = json_object_new_object();
        if (!o)
                return -ENOMEM;
        r = add_members(members, f, o);
        if (r >= 0)
                r = add_cache_members(members, f->subject ? manager_find(m, f->subject) : NULL, o);
        return r < 0 ? r : varlink_call_error(call, error_table[f->kind].error, TAKE_PTR(o));
}

/* A refusal, or an errno that on_error() answers. */
static int api_fail(const Manager *m, VarlinkCall *call, int error, const Fault *f)
{
        return f->kind == FAULT_NONE ? error : api_refuse(m, call, f);
}

static int on_error(VarlinkCall *call, int error, void *userdata)
{
        Manager *m = userdata;
        _cleanup_fault_ Fault fault = {};

        (void) log_warning(error, "A call could not be answered: %m");
        (void) fault_set(&fault, FAULT_LIMIT_EXCEEDED, "resources",
                         "the manager could not answer: %s; try again, or look into its journal",
                         strerror(-error));
        return api_refuse(m, call, &fault);
}

static int no_such_cache(const Manager *m, VarlinkCall *call, const char *name)
{
        _cleanup_fault_ Fault fault = {};

        (void) fault_set(&fault, FAULT_NO_SUCH_CACHE, name, "there is no such cache");
        return api_refuse(m, call, &fault);
}

/* The cache, as far as the caller may see it: otherwise the call has been answered and *ret_r is the
 * handler's. */
static Cache *api_find(Manager *m, VarlinkCall *call, const char *name, int *ret_r)
{
        Cache *c;

        if (!access_may_connect(&m->policy, varlink_call_peer(call))) {
                *ret_r = varlink_call_permission_denied(call);
                return NULL;
        }
        c = manager_find_for(m, varlink_call_peer(call), name);
        if (!c)
                *ret_r = no_such_cache(m, call, name);
        return c;
}

static Cache *api_find_ready(Manager *m, VarlinkCall *call, const char *name, int *ret_r)
{
        _cleanup_fault_ Fault fault = {};
        Cache *c = api_find(m, call, name, ret_r);

        if (!c || c->state == MANAGER_CACHE_STATE_READY)
                return c;
        (void) cache_refuse_unready(c, &fault);
        *ret_r = api_refuse(m, call, &fault);
        return NULL;
}

static int answer_with_cache(VarlinkCall *call, const Cache *c)
{
        struct json_object *o;
        int r;

        r = reply_with_cache(c, &o);
        return r < 0 ? r : varlink_call_reply(call, o);
}

/* List, Status, View, Manifest, Monitor */

static int on_list(VarlinkCall *call, _unused_ void *parameters, void *userdata)
{
        Manager *m = userdata;
        _cleanup_json_ struct json_object *o = json_object_new_object();
        struct json_object *array, *entry;
        int r;

        if (!access_may_connect(&m->policy, varlink_call_peer(call)))
                return varlink_call_permission_denied(call);
        array = json_object_new_array();
        if (!o || !array) {
                json_object_put(array);
                return -ENOMEM;
        }
        r = json_add(o, "caches", array);
        if (r < 0)
                return r;
        for (size_t i = 0; i < m->n_caches; i++) {
                Cache *c = m->caches[i];

                if (!access_may_see(&m->policy, varlink_call_peer(call), c->owner.uid, c->gid,
                                    c->settings->mode))
                        continue;
                c->heard = true;
                r = reply_cache(c, &entry);
                if (r < 0)
                        return r;
                if (json_object_array_add(array, entry) < 0) {
                        json_object_put(entry);
                        return -ENOMEM;
                }
        }
        return varlink_call_reply(call, TAKE_PTR(o));
}

static int on_status(VarlinkCall *call, void *parameters, void *userdata)
{
        const ManagerStatusParameters *p = parameters;
        Cache *c;
        int r;

        c = api_find(userdata, call, p->name, &r);
        if (!c)
                return r;
        c->heard = true;
        return answer_with_cache(call, c);
}

static int on_view(VarlinkCall *call, void *parameters, void *userdata)
{
        _cleanup_json_ struct json_object *o = NULL;
        const ManagerViewParameters *p = parameters;
        Cache *c;
        int r;

        c = api_find_ready(userdata, call, p->name, &r);
        if (!c)
                return r;
        o = json_object_new_object();
        if (!o)
                return -ENOMEM;
        r = json_add_path(o, "view", c->view);
        return r < 0 ? r : varlink_call_reply(call, TAKE_PTR(o));
}

static int on_manifest(VarlinkCall *call, void *parameters, void *userdata)
{
        const ManagerManifestParameters *p = parameters;
        Cache *c;
        int r;

        c = api_find_ready(userdata, call, p->name, &r);
        return c ? manifest_stream_begin(c, call) : r;
}

static int on_monitor(VarlinkCall *call, void *parameters, void *userdata)
{
        const ManagerMonitorParameters *p = parameters;
        Manager *m = userdata;
        int r;

        if (!access_may_connect(&m->policy, varlink_call_peer(call)))
                return varlink_call_permission_denied(call);
        for (size_t i = 0; i < m->n_caches; i++) {
                if (p->name && !streq(p->name, cache_name(m->caches[i])))
                        continue;
                r = monitor_tell(&m->monitor, call, MANAGER_CHANGE_KIND_CURRENT, m->caches[i]);
                if (r == -EPERM)
                        continue;
                if (r < 0 || !varlink_call_wants_more(call))
                        return r;
        }
        if (!varlink_call_wants_more(call))
                return varlink_call_reply(call, NULL);
        return monitor_subscribe(&m->monitor, call, p->name);
}

/* Start */

static int start_reply(const StartRequest *r, const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = NULL;
        int q;

        q = reply_with_cache(c, &o);
        if (q >= 0)
                q = json_add_bool(o, "reused", r->reused);
        if (q < 0)
                return q;
        *ret = TAKE_PTR(o);
        return 0;
}

static void on_start_answer(StartRequest *r, Cache *c, const Fault *fault)
{
        struct json_object *o;
        int q;

        if (fault)
                q = api_refuse(r->manager, r->call, fault);
        else {
                q = start_reply(r, c, &o);
                if (q >= 0)
                        q = varlink_call_reply(r->call, o);
        }
        if (q < 0)
                (void) on_error(r->call, q, r->manager);
}

static void on_start_progress(StartRequest *r, Cache *c)
{
        struct json_object *o;

        if (!varlink_call_wants_more(r->call) || varlink_call_queued(r->call) > MONITOR_QUEUE_SLOW)
                return;
        if (start_reply(r, c, &o) >= 0)
                (void) varlink_call_notify(r->call, o);
}

static int on_start(VarlinkCall *call, void *parameters, void *userdata)
{
        _cleanup_(start_request_freep) StartRequest *request = NULL;
        _cleanup_fault_ Fault fault = {};
        Manager *m = userdata;
        int r;

        if (!access_may_connect(&m->policy, varlink_call_peer(call)))
                return varlink_call_permission_denied(call);
        r = start_request_new(m, call, parameters, &request, &fault);
        if (r < 0)
                return api_fail(m, call, r, &fault);
        request->answer = on_start_answer;
        request->progress = on_start_progress;
        r = start_submit(request, &fault);
        if (r < 0)
                return api_fail(m, call, r, &fault);
        TAKE_PTR(request);
        return 0;
}

/* Stop */

typedef struct StopWaiter {
        Waiter waiter; /* first */
        Manager *manager;
        VarlinkCall *call;
} StopWaiter;

static StopWaiter *stop_waiter_free(StopWaiter *s)
{
        if (!s)
                return NULL;
        varlink_call_unref(s->call);
        free(s);
        return NULL;
}
DEFINE_CLEANUP(StopWaiter *, stop_waiter_free)

static void on_stop_done(Waiter *w, Cache *c, _unused_ const Fault *fault)
{
        StopWaiter *s = (StopWaiter *) w;
        int r;

        r = answer_with_cache(s->call, c);
        if (r < 0)
                (void) on_error(s->call, r, s->manager);
        stop_waiter_free(s);
}

static void on_stop_progress(Waiter *w, Cache *c)
{
        StopWaiter *s = (StopWaiter *) w;
        struct json_object *o;

        if (varlink_call_wants_more(s->call) && varlink_call_queued(s->call) <= MONITOR_QUEUE_SLOW &&
            reply_with_cache(c, &o) >= 0)
                (void) varlink_call_notify(s->call, o);
}

static bool stop_is_alive(const Waiter *w)
{
        return varlink_call_is_alive(((const StopWaiter *) w)->call);
}

static int on_stop(VarlinkCall *call, void *parameters, void *userdata)
{
        _cleanup_(stop_waiter_freep) StopWaiter *waiter = NULL;
        const VarlinkPeer *peer = varlink_call_peer(call);
        const ManagerStopParameters *p = parameters;
        _cleanup_fault_ Fault fault = {};
        Manager *m = userdata;
        StopOptions options = {
                .force = p->force.set && p->force.value,
                .drain = p->drain.set && p->drain.value,
                .remove_view = p->remove_view.set && p->remove_view.value,
                .reason = p->reason,
                .uid = peer->uid,
                .pid = peer->pid,
        };
        Cache *c;
        int r;

        c = api_find(m, call, p->name, &r);
        if (!c)
                return r;
        if (!access_may_change(&m->policy, peer, c->owner.uid) ||
            (options.force && !access_is_privileged(&m->policy, peer)))
                return varlink_call_permission_denied(call);
        if (p->reason && strlen(p->reason) > 1024)
                return varlink_call_invalid_parameter(call, "reason");
        if (c->state == MANAGER_CACHE_STATE_FAILED) {
                r = answer_with_cache(call, c);
                if (r >= 0)
                        teardown_forget(c);
                return r;
        }
        waiter = malloc(sizeof(*waiter));
        if (!waiter)
                return -ENOMEM;
        *waiter = (StopWaiter){
                .waiter = {.done = on_stop_done, .progress = on_stop_progress, .is_alive = stop_is_alive},
                .manager = m,
                .call = varlink_call_ref(call),
        };
        r = evict_stop(c, &options, &waiter->waiter, &fault);
        if (r < 0)
                return api_fail(m, call, r, &fault);
        TAKE_PTR(waiter);
        return 0;
}

/* Leases */

static int answer_lease(VarlinkCall *call, const Cache *c, const Lease *l)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = reply_with_cache(c, &o);
        if (r >= 0)
                r = json_add_int(o, "pid", l->holder.pid);
        return r < 0 ? r : varlink_call_reply(call, TAKE_PTR(o));
}

static int take_pidfd(VarlinkCall *call, Fault *fault)
{
        if (varlink_call_n_fds(call) != 1)
                return fault_set(fault, FAULT_INVALID_HOLDER, NULL,
                                 "the call must come with one descriptor: a pidfd of the process that is to "
                                 "hold the cache");
        return varlink_call_take_fd(call, 0);
}

static int on_acquire(VarlinkCall *call, void *parameters, void *userdata)
{
        const VarlinkPeer *peer = varlink_call_peer(call);
        const ManagerAcquireLeaseParameters *p = parameters;
        EventFields fields = EVENT_FIELDS_INIT;
        _cleanup_fault_ Fault fault = {};
        Manager *m = userdata;
        Lease *l;
        Cache *c;
        int r;

        c = api_find(m, call, p->name, &r);
        if (!c)
                return r;
        r = take_pidfd(call, &fault);
        if (r >= 0)
                r = lease_acquire(&m->leases, c, r, peer->uid, &fault, &l);
        if (r < 0) {
                fields.cache = cache_name(c);
                fields.uid = peer->uid;
                fields.pid = peer->pid;
                if (fault.kind != FAULT_NONE) {
                        fields.reason = fault_message(&fault);
                        /* To the journal alone, which limits rates. */
                        event_log(EVENT_LEASE_REFUSED, &fields, "Cache '%s': a lease was refused: %s",
                                  cache_name(c), fault_message(&fault));
                }
                return api_fail(m, call, r, &fault);
        }
        if (r > 0) {
                cache_touch(c);
                evict_rearm(c);
                fields.uid = l->holder.uid;
                fields.pid = l->holder.pid;
                note_event(c, EVENT_LEASE_ACQUIRED, &fields, "Cache '%s' is held by %s (pid %d, user %u).",
                           cache_name(c), l->holder.command, (int) l->holder.pid, (unsigned) l->holder.uid);
                manager_emit(m, MANAGER_CHANGE_KIND_LEASED, c);
                manager_changed(m);
        }
        return answer_lease(call, c, l);
}

static int on_release(VarlinkCall *call, void *parameters, void *userdata)
{
        const VarlinkPeer *peer = varlink_call_peer(call);
        const ManagerReleaseLeaseParameters *p = parameters;
        EventFields fields = EVENT_FIELDS_INIT;
        _cleanup_fault_ Fault fault = {};
        Manager *m = userdata;
        Cache *c;
        int r, q;

        c = api_find(m, call, p->name, &r);
        if (!c)
                return r;
        r = take_pidfd(call, &fault);
        if (r >= 0)
                r = lease_release(c, r, peer->uid, &fault);
        if (r < 0)
                return api_fail(m, call, r, &fault);
        q = answer_with_cache(call, c);
        if (r > 0) {
                fields.uid = peer->uid;
                fields.pid = peer->pid;
                note_event(c, EVENT_LEASE_RELEASED, &fields, "Cache '%s': a lease was given back.",
                           cache_name(c));
                evict_lease_ended(c);
                manager_changed(m);
        }
        return q;
}

/* Collect, SetQuota */

typedef struct Collection {
        VarlinkCall *call;
        struct json_object *reply;
        size_t pending;
} Collection;

typedef struct CollectWaiter {
        Waiter waiter; /* first */
        Collection *collection;
} CollectWaiter;

static void collection_step(Collection *k)
{
        if (--k->pending > 0)
                return;
        (void) varlink_call_reply(k->call, k->reply);
        varlink_call_unref(k->call);
        free(k);
}

static void on_collected(Waiter *w, _unused_ Cache *c, _unused_ const Fault *fault)
{
        collection_step(((CollectWaiter *) w)->collection);
        free(w);
}

static bool collect_is_alive(const Waiter *w)
{
        return varlink_call_is_alive(((const CollectWaiter *) w)->collection->call);
}

static int add_names(struct json_object *o, const char *key, Cache **caches, size_t n)
{
        struct json_object *array = json_object_new_array();
        int r = array ? 0 : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < n; i++)
                r = reply_append_string(array, cache_name(caches[i]));
        if (r < 0) {
                json_object_put(array);
                return r;
        }
        return json_add(o, key, array);
}

static int collect_reply(const CollectPlan *p, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = add_names(o, "evicted", p->evict, p->n_evict)) < 0 ||
            (r = json_add_size(o, "evictedBytes", p->evicted_bytes)) < 0 ||
            (r = json_add_size(o, "remainingBytes", p->remaining_bytes)) < 0 ||
            (r = add_names(o, "skipped", p->skipped, p->n_skipped)) < 0 ||
            (r = json_add_bool(o, "targetMet", p->target_met)) < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static int collect_apply(VarlinkCall *call, const CollectPlan *plan, struct json_object *reply)
{
        Collection *k;

        k = malloc(sizeof(*k));
        if (!k) {
                json_object_put(reply);
                return -ENOMEM;
        }
        *k = (Collection){.call = varlink_call_ref(call), .reply = reply, .pending = 1};
        for (size_t i = 0; i < plan->n_evict; i++) {
                CollectWaiter *w = malloc(sizeof(*w));

                /* What there is no memory to wait for is not given back; the next call will. */
                if (!w)
                        break;
                *w = (CollectWaiter){
                        .waiter = {.done = on_collected, .is_alive = collect_is_alive},
                        .collection = k,
                };
                k->pending++;
                evict_collected(plan->evict[i], varlink_call_peer(call), &w->waiter);
        }
        collection_step(k);
        return 0;
}

static int on_collect(VarlinkCall *call, void *parameters, void *userdata)
{
        const ManagerCollectParameters *p = parameters;
        _cleanup_collect_plan_ CollectPlan plan = {};
        struct json_object *o;
        Manager *m = userdata;
        int r;

        if (!access_may_connect(&m->policy, varlink_call_peer(call)))
                return varlink_call_permission_denied(call);
        if (p->max_bytes.set && p->max_bytes.value < 0)
                return varlink_call_invalid_parameter(call, "maxBytes");
        if (p->idle_usec.set && p->idle_usec.value < 0)
                return varlink_call_invalid_parameter(call, "idleUSec");
        r = evict_plan(m, varlink_call_peer(call),
                       p->max_bytes.set ? (uint64_t) p->max_bytes.value : UINT64_MAX,
                       p->idle_usec.set ? (usec_t) p->idle_usec.value : USEC_INFINITY, &plan);
        if (r < 0)
                return r;
        r = collect_reply(&plan, &o);
        if (r < 0)
                return r;
        if (p->apply.set && p->apply.value)
                return collect_apply(call, &plan, o);
        return varlink_call_reply(call, o);
}

static int on_set_quota(VarlinkCall *call, void *parameters, void *userdata)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        const VarlinkPeer *peer = varlink_call_peer(call);
        const ManagerSetQuotaParameters *p = parameters;
        Manager *m = userdata;
        AdmissionState state;
        uint64_t resident;
        int r;

        if (!access_may_connect(&m->policy, peer) || !access_is_privileged(&m->policy, peer))
                return varlink_call_permission_denied(call);
        if (p->max_resident_bytes.set && p->max_resident_bytes.value < 0)
                return varlink_call_invalid_parameter(call, "maxResidentBytes");
        r = manager_set_quota(m,
                              p->max_resident_bytes.set ? (uint64_t) p->max_resident_bytes.value : UINT64_MAX,
                              peer->uid, peer->pid);
        if (r < 0)
                return r;
        manager_account(m, NULL, &state);
        resident = add_saturating(state.resident_bytes, state.reserved_bytes);
        if (!o)
                return -ENOMEM;
        if (m->quota != UINT64_MAX) {
                r = json_add_size(o, "maxResidentBytes", m->quota);
                if (r < 0)
                        return r;
        }
        if ((r = json_add_size(o, "residentBytes", resident)) < 0 ||
            (r = json_add_bool(o, "exceeded", resident > m->quota)) < 0)
                return r;
        return varlink_call_reply(call, TAKE_PTR(o));
}

#define METHOD(n, prefix, type, h)                                                                           \
        {                                                                                                    \
                .name = (n), .fields = prefix##_fields, .parameters_size = sizeof(type),                     \
                .parameters_done = prefix##_parameters_done, .handler = (h)                                  \
        }

static const VarlinkMethod methods[] = {
        METHOD("List", manager_list, ManagerListParameters, on_list),
        METHOD("Status", manager_status, ManagerStatusParameters, on_status),
        METHOD("Start", manager_start, ManagerStartParameters, on_start),
        METHOD("Stop", manager_stop, ManagerStopParameters, on_stop),
        METHOD("View", manager_view, ManagerViewParameters, on_view),
        METHOD("Manifest", manager_manifest, ManagerManifestParameters, on_manifest),
        METHOD("AcquireLease", manager_acquire_lease, ManagerAcquireLeaseParameters, on_acquire),
        METHOD("ReleaseLease", manager_release_lease, ManagerReleaseLeaseParameters, on_release),
        METHOD("Collect", manager_collect, ManagerCollectParameters, on_collect),
        METHOD("SetQuota", manager_set_quota, ManagerSetQuotaParameters, on_set_quota),
        METHOD("Monitor", manager_monitor, ManagerMonitorParameters, on_monitor),
        {.name = NULL},
};

static const VarlinkInterface interface = {
        .name = MANAGER_INTERFACE,
        .description = manager_interface_description,
        .methods = methods,
};

static const VarlinkService service = {
        .vendor = "iloader",
        .product = "iloaderd",
        .version = ILOADER_VERSION,
        .url = "",
};

#ifdef __SANITIZE_ADDRESS__
/* Builds that look for mistakes find those in replies too. */
static int validate(const char *method, const char *error, struct json_object *parameters, void *userdata)
{
        const char *field = NULL;
        int r;

        if (error && !startswith(error, MANAGER_INTERFACE "."))
                return 0;
        r = error ? manager_validate_error(error, parameters, &field)
                  : manager_validate_reply(method, parameters, &field);
        if (r < 0) {
                (void) log_error(r, "%s: the answer's field '%s' is not what the interface says: %s",
                                 error ? error : method, field ? field : "?",
                                 json_object_to_json_string(parameters));
                abort();
        }
        return 0;
}
#endif

static void on_connections(_unused_ VarlinkServer *s, void *userdata)
{
        manager_changed(userdata);
}

int api_serve(Manager *m)
{
        int r;

        r = varlink_server_new(m->event, &service, &m->config.connection_limits, &m->server);
        if (r < 0)
                return r;
        varlink_server_set_error_handler(m->server, on_error, m);
        varlink_server_set_idle_handler(m->server, on_connections, m);
        varlink_server_set_limit_error(m->server, MANAGER_ERROR_LIMIT_EXCEEDED);
#ifdef __SANITIZE_ADDRESS__
        varlink_server_set_validator(m->server, validate, NULL);
#endif
        return varlink_server_add_interface(m->server, &interface, m);
}
