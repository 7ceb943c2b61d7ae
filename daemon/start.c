/* Starts. */
#include "daemon/start.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/evict.h"
#include "daemon/load.h"
#include "daemon/note.h"
#include "daemon/parameters.h"
#include "daemon/teardown.h"

/* Of a name that is none, so much is shown. */
#define NAME_SHOWN_MAX ((size_t) 2 * CACHE_NAME_MAX)

StartRequest *start_request_free(StartRequest *r)
{
        if (!r)
                return NULL;
        varlink_call_unref(r->call);
        cache_settings_free(r->settings);
        identity_done(&r->owner);
        close_fd(r->root_fd);
        free(r);
        return NULL;
}

/* Answers and frees. */
static void start_finish(StartRequest *r, Cache *c, const Fault *fault)
{
        if (!r->answered)
                r->answer(r, c, fault);
        start_request_free(r);
}

static int refuse_limit(Fault *fault, const char *limit, uint64_t maximum, const char *what, const char *key)
{
        (void) fault_set(fault, FAULT_LIMIT_EXCEEDED, limit,
                         "no more than %" PRIu64 " %s: stop others first, or raise %s in iloaderd.conf",
                         maximum, what, key);
        fault->maximum = maximum;
        return FAULT_REFUSED;
}

/* Rights and parameters */

static int check_name(const char *name, Fault *fault)
{
        _cleanup_free_ char *text = NULL;
        const char *reason = NULL;
        int r;

        if (cache_name_is_valid(name, &reason))
                return 0;
        r = path_escape(name, &text);
        if (r < 0)
                return r;
        if (strlen(text) > NAME_SHOWN_MAX)
                text[NAME_SHOWN_MAX] = '\0';
        return fault_set(
                fault, FAULT_INVALID_NAME, text,
                "name '%s' %s: a name is a letter or digit, then letters, digits, '.', '_' and '-', without "
                "\"..\", of at most %u characters",
                text, reason ? reason : "is not allowed", CACHE_NAME_MAX);
}

static int fault_configuration(const ConfigFault *f, const char *name, int error, Fault *fault)
{
        const char *path = f->path ? f->path : name, *text = f->message ? f->message : strerror(-error);
        int r;

        /* Where it stands is in the fields, and in the message for those who only show that. */
        r = f->line > 0
                    ? fault_set(fault, FAULT_INVALID_CONFIGURATION, path, "%s:%u: %s", path, f->line, text)
                    : fault_set(fault, FAULT_INVALID_CONFIGURATION, path, "%s: %s", path, text);
        fault->line = f->line;
        return r;
}

/* The uid of the owner under whom the name is reserved, (uid_t) -1 where it isn't. */
static int find_configured_owner(const Manager *m, const char *name, uid_t *ret)
{
        _cleanup_identity_ Identity identity = {};
        _cleanup_free_ char *owner = NULL;
        int r;

        *ret = (uid_t) -1;
        if (m->config_fd < 0)
                return 0;
        r = cache_config_owner(m->config_fd, name, &owner);
        if (r == -ENOENT)
                return 0;
        if (r == -ENOMEM)
                return r;
        if (r >= 0)
                r = identity_from_user(owner, &identity);
        /* A name that is configured badly is still nobody else's: root may have it, as root's. */
        *ret = r >= 0 ? identity.uid : 0;
        return 0;
}

static int check_rights(const Manager *m, const VarlinkPeer *peer, const ManagerStartParameters *p,
                        uid_t configured, Fault *fault)
{
        const bool privileged = access_is_privileged(&m->policy, peer);
        const bool own = p->source || p->source_bytes;

        if (own && !access_may_start(&m->policy, peer))
                return fault_set(fault, FAULT_PERMISSION_DENIED, NULL, "%s",
                                 "only root and group iloader start caches");
        if (!own && !privileged && (configured == (uid_t) -1 || configured != peer->uid))
                return fault_set(fault, FAULT_PERMISSION_DENIED, NULL, "%s",
                                 "a configured cache is started by root and its owner");
        if (!privileged && ((p->force.set && p->force.value) || p->max_resident_bytes.set || p->owner))
                return fault_set(fault, FAULT_PERMISSION_DENIED, NULL, "%s", "that takes root");
        if (own && configured != (uid_t) -1 && peer->uid != 0 && peer->uid != configured)
                return fault_set(fault, FAULT_NAME_RESERVED, p->name,
                                 "name '%s' is reserved to another user by this system's configuration: "
                                 "choose another "
                                 "--name",
                                 p->name);
        return 0;
}

static int load_settings(const Manager *m, const ManagerStartParameters *p, CacheSettings **ret, Fault *fault)
{
        _cleanup_config_fault_ ConfigFault config_fault = {};
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        const char *field = NULL;
        int r;

        if (p->source || p->source_bytes || m->policy.scope == SCOPE_USER) {
                r = settings_from_parameters(p, ret, &field);
                return r == -EINVAL ? fault_set(fault, FAULT_INVALID_PARAMETER, field,
                                                "parameter %s is wrong", field)
                                    : r;
        }
        field = parameters_beyond_configured(p);
        if (field)
                return fault_set(fault, FAULT_INVALID_PARAMETER, field, "%s needs a source", field);
        r = m->config_fd < 0 ? -ENOENT : cache_config_load(m->config_fd, p->name, &s, &config_fault);
        if (r == -ENOENT) {
                if (m->config_fd < 0)
                        (void) text_format(&config_fault.path, "/etc/iloader/caches/%s.conf", p->name);
                else
                        (void) cache_config_path(m->config_fd, p->name, &config_fault.path);
                (void) text_format(&config_fault.message,
                                   "no cache '%s' is configured: write this file, or name the directory of a "
                                   "checkpoint",
                                   p->name);
        }
        if (r == -ENOMEM)
                return r;
        if (r < 0)
                return fault_configuration(&config_fault, p->name, r, fault);
        s->force = s->force || (p->force.set && p->force.value);
        if (p->max_resident_bytes.set) {
                if (p->max_resident_bytes.value < 0)
                        return fault_set(fault, FAULT_INVALID_PARAMETER, "maxResidentBytes",
                                         "it is negative");
                s->max_resident_bytes = (uint64_t) p->max_resident_bytes.value;
        }
        *ret = TAKE_PTR(s);
        return 0;
}

/* An owner or a group that the configuration of a cache names, and that this system doesn't have. file NULL:
 * it names none, and this is the default. */
static int refuse_configured(const StartRequest *r, const char *file, unsigned line, const char *key,
                             const char *what, const char *value, Fault *fault)
{
        _cleanup_config_fault_ ConfigFault f = {.line = file ? line : 0};
        const char *name = r->settings->name;
        int q;

        if (file) {
                f.path = strdup(file);
                q = text_format(&f.message,
                                "cache '%s': %s= names '%s', which is no %s of this system: correct it, or "
                                "create the %s",
                                name, key, value, what, what);
        } else {
                (void) cache_config_path(r->manager->config_fd, name, &f.path);
                q = text_format(
                        &f.message,
                        "cache '%s': there is no %s=, and the default, '%s', is no %s of this system: set "
                        "it, or run systemd-sysusers",
                        name, key, value, what);
        }
        return q < 0 || !f.path ? -ENOMEM : fault_configuration(&f, name, -EINVAL, fault);
}

/* Naming the default place is asking for the default. */
static void forget_default(char **path, const char *standard)
{
        if (*path && standard && streq(*path, standard))
                free(TAKE_PTR(*path));
}

static int normalize_settings(const Manager *m, CacheSettings *s)
{
        _cleanup_free_ char *view = NULL, *pid_file = NULL, *log_file = NULL;
        int r;

        assert(s);
        r = runtime_view(m->runtime, s->name, &view);
        if (r >= 0 && m->policy.scope == SCOPE_USER)
                r = runtime_pid_file(m->runtime, s->name, &pid_file);
        if (r >= 0 && m->policy.scope == SCOPE_USER)
                r = runtime_log_file(m->runtime, s->name, &log_file);
        if (r < 0)
                return r;
        forget_default(&s->view, view);
        forget_default(&s->pid_file, pid_file);
        forget_default(&s->log_file, log_file);
        return 0;
}

static bool identity_has_group(const Identity *i, gid_t gid)
{
        if (i->gid == gid)
                return true;
        for (size_t n = 0; n < i->n_groups; n++)
                if (i->groups[n] == gid)
                        return true;
        return false;
}

/* A worker can give its files only a group that it is in; root may put it there. */
static int add_group(Identity *i, gid_t gid)
{
        gid_t *groups;

        groups = reallocarray(i->groups, i->n_groups + 1, sizeof(*groups));
        if (!groups)
                return -ENOMEM;
        groups[i->n_groups++] = gid;
        i->groups = groups;
        return 0;
}

static int resolve_group(StartRequest *r, const VarlinkPeer *peer, bool configured, Fault *fault)
{
        int q;

        if (!r->settings->group)
                return 0;
        q = group_from_name(r->settings->group, &r->gid);
        if (q == -ENOMEM)
                return q;
        if (q < 0 && configured)
                return refuse_configured(r, r->settings->group_file, r->settings->group_line, "Group",
                                         "group", r->settings->group, fault);
        if (q < 0)
                return fault_set(fault, FAULT_INVALID_PARAMETER, "group", "there is no such group");
        r->gid_given = true;
        if (identity_has_group(&r->owner, r->gid))
                return 0;
        /* Better known now than when the first file is to get it. */
        if (r->manager->identity.uid != 0)
                return fault_set(fault, FAULT_INVALID_PARAMETER, "group",
                                 "this manager's user is not in the group");
        if (!configured && !access_is_privileged(&r->manager->policy, peer))
                return fault_set(fault, FAULT_PERMISSION_DENIED, NULL, "the caller is not in the group");
        return add_group(&r->owner, r->gid);
}

static int resolve_owner(StartRequest *r, const VarlinkPeer *peer, bool configured, Fault *fault)
{
        Manager *m = r->manager;
        int q;

        if (r->settings->owner) {
                q = identity_from_user(r->settings->owner, &r->owner);
                if (q == -ENOMEM)
                        return q;
                if (q < 0 && configured)
                        return refuse_configured(r, r->settings->owner_file, r->settings->owner_line, "User",
                                                 "user", r->settings->owner, fault);
                if (q < 0)
                        return fault_set(fault, FAULT_INVALID_PARAMETER, "owner", "there is no such user");
        } else if (m->policy.scope == SCOPE_USER)
                q = identity_copy(&m->identity, &r->owner);
        else
                q = identity_from_peer(peer, &r->owner);
        if (q < 0)
                return q;
        /* A user's manager has no other user's rights to give. */
        if (!m->workers.switch_user && r->owner.uid != m->identity.uid)
                return fault_set(fault, FAULT_PERMISSION_DENIED, NULL,
                                 "this manager runs caches of its own user only");
        q = resolve_group(r, peer, configured, fault);
        if (q < 0)
                return q;
        /* From here on they are numbers; names would differ where the meaning doesn't. */
        free(TAKE_PTR(r->settings->owner));
        free(TAKE_PTR(r->settings->group));
        return 0;
}

static bool is_directory(int fd)
{
        struct statx st;

        /* Its type does not change, so that the file system, which is the caller's choice, need not be asked.
         */
        return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) >= 0 &&
               S_ISDIR(st.stx_mode);
}

static int take_root(StartRequest *r, Fault *fault)
{
        int fd;

        if (varlink_call_n_fds(r->call) == 0) {
                fd = fd_dup(r->manager->root_fd);
                if (fd < 0)
                        return fd;
                r->root_fd = fd;
                return 0;
        }
        fd = varlink_call_take_fd(r->call, 0);
        if (fd < 0)
                return fd;
        r->root_fd = fd;
        if (varlink_call_n_fds(r->call) > 1 || !is_directory(fd))
                return fault_set(fault, FAULT_INVALID_PARAMETER, "source",
                                 "the descriptor that comes with Start must be the caller's root directory");
        return 0;
}

static void on_waiter_done(Waiter *w, Cache *c, const Fault *fault);
static void on_waiter_progress(Waiter *w, Cache *c);
static bool waiter_is_alive(const Waiter *w);

int start_request_new(Manager *m, VarlinkCall *call, const ManagerStartParameters *p, StartRequest **ret,
                      Fault *fault)
{
        const VarlinkPeer *peer = varlink_call_peer(call);
        _cleanup_(start_request_freep) StartRequest *r = NULL;
        const bool configured = m->policy.scope == SCOPE_SYSTEM && !p->source && !p->source_bytes;
        int q;

        r = malloc(sizeof(*r));
        if (!r)
                return -ENOMEM;
        *r = (StartRequest){
                .waiter = {.done = on_waiter_done,
                           .progress = on_waiter_progress,
                           .is_alive = waiter_is_alive},
                .manager = m,
                .call = varlink_call_ref(call),
                .root_fd = -EBADF,
                .configured_owner = (uid_t) -1,
                .wait = !p->wait.set || p->wait.value,
        };
        if ((q = check_name(p->name, fault)) < 0 ||
            (q = find_configured_owner(m, p->name, &r->configured_owner)) < 0 ||
            (q = check_rights(m, peer, p, r->configured_owner, fault)) < 0 ||
            (q = load_settings(m, p, &r->settings, fault)) < 0 ||
            (q = normalize_settings(m, r->settings)) < 0 ||
            (q = resolve_owner(r, peer, configured, fault)) < 0 || (q = take_root(r, fault)) < 0)
                return q;
        *ret = TAKE_PTR(r);
        return 0;
}

/* Waiting for a cache */

static int start_check(StartRequest *r, Cache *c, Fault *fault);

static StartRequest *request_of(Waiter *w)
{
        return (StartRequest *) w;
}

static void start_resubmit(StartRequest *r)
{
        _cleanup_fault_ Fault fault = {};
        int q;

        q = start_submit(r, &fault);
        if (q >= 0)
                return;
        if (fault.kind == FAULT_NONE)
                (void) fault_set_errno(&fault, q, r->settings ? r->settings->name : "?", "cannot be started");
        start_finish(r, NULL, &fault);
}

static void on_waiter_done(Waiter *w, Cache *c, const Fault *fault)
{
        StartRequest *r = request_of(w);
        _cleanup_fault_ Fault refusal = {};
        int q;

        /* The cache that had the name is gone. */
        if (!c && !fault) {
                start_resubmit(r);
                return;
        }
        if (!fault && r->check_after && !r->answered) {
                r->check_after = false;
                q = start_check(r, c, &refusal);
                if (q >= 0)
                        return;
                if (refusal.kind == FAULT_NONE)
                        (void) fault_set_errno(&refusal, q, cache_name(c),
                                               "cannot be compared with its source");
                start_finish(r, NULL, &refusal);
                return;
        }
        start_finish(r, fault ? NULL : c, fault);
}

static void on_waiter_progress(Waiter *w, Cache *c)
{
        StartRequest *r = request_of(w);

        if (r->answered)
                return;
        if (r->wait) {
                if (r->progress)
                        r->progress(r, c);
                return;
        }
        if (!c->admitted)
                return;
        r->answered = true;
        r->answer(r, c, NULL);
}

static bool waiter_is_alive(const Waiter *w)
{
        const StartRequest *r = (const StartRequest *) w;

        return !r->answered && varlink_call_is_alive(r->call);
}

/* Reuse: the source is looked at again by a worker with the asker's rights, and its fingerprint compared. */

typedef struct Check {
        struct Check *next;
        StartRequest *request;
        uint64_t serial;
        bool selected;
        Fault fault;
} Check;

static void reuse(StartRequest *r, Cache *c)
{
        const VarlinkPeer *peer = varlink_call_peer(r->call);
        EventFields fields = EVENT_FIELDS_INIT;

        if (r->settings->max_resident_bytes != UINT64_MAX)
                (void) manager_set_quota(r->manager, r->settings->max_resident_bytes, peer->uid, peer->pid);
        c->reuses++;
        cache_touch(c);
        evict_rearm(c);
        fields.uid = peer->uid;
        fields.pid = peer->pid;
        note_event(c, EVENT_CACHE_REUSED, &fields, "Cache '%s' is reused by user %u, process %d.",
                   cache_name(c), (unsigned) peer->uid, (int) peer->pid);
        r->reused = true;
        manager_emit(r->manager, MANAGER_CHANGE_KIND_REUSED, c);
        start_finish(r, c, NULL);
}

static size_t checks_of_user(const Manager *m, uid_t uid)
{
        size_t n = 0;

        for (const Check *i = m->checks; i; i = i->next)
                n += i->request->owner.uid == uid;
        return n;
}

static void check_remove(Manager *m, Check *check)
{
        for (Check **i = &m->checks; *i; i = &(*i)->next)
                if (*i == check) {
                        *i = check->next;
                        break;
                }
        free(check);
}

static void on_check_message(Worker *w, WorkerMessage *m, void *userdata)
{
        Check *check = userdata;
        StartRequest *r = check->request;
        Cache *c = manager_find(r->manager, r->settings->name);
        char had[SIZE_TEXT_MAX], has[SIZE_TEXT_MAX];

        if (m->event == WORKER_ERROR) {
                if (check->fault.kind == FAULT_NONE) {
                        check->fault = m->fault;
                        m->fault = (Fault){};
                }
                return;
        }
        if (m->event != WORKER_SELECTED || check->selected) {
                worker_end(w, NULL);
                return;
        }
        check->selected = true;
        if (c && c->serial == check->serial && !streq_ptr(c->fingerprint, m->fingerprint))
                (void) fault_set(&check->fault, FAULT_CACHE_MISMATCH, cache_name(c),
                                 "cache '%s' holds its source as it was: %" PRIu64
                                 " files, %s; the source has changed "
                                 "since (%" PRIu64
                                 " files, %s now): stop the cache first, or choose another --name",
                                 cache_name(c), c->files, format_size(had, c->bytes), m->files,
                                 format_size(has, m->bytes));
        worker_end(w, "quit");
}

static void on_check_ended(_unused_ Worker *w, const char *why, void *userdata)
{
        Check *check = userdata;
        StartRequest *r = check->request;
        _cleanup_fault_ Fault fault = check->fault;
        const bool selected = check->selected;
        const uint64_t serial = check->serial;
        Manager *m = r->manager;
        Cache *c = manager_find(m, r->settings->name);

        check_remove(m, check);
        if (fault.kind == FAULT_NONE && !selected)
                (void) fault_set(&fault, FAULT_LOAD_FAILED, r->settings->name,
                                 "cache '%s' cannot be compared with its source: the worker %s",
                                 r->settings->name, why ? why : "was stopped");
        if (fault.kind != FAULT_NONE)
                start_finish(r, NULL, &fault);
        else if (c && c->serial == serial && c->state == MANAGER_CACHE_STATE_READY)
                reuse(r, c);
        else
                /* It ended meanwhile, or is ending. */
                start_resubmit(r);
        manager_changed(m);
}

static int start_check(StartRequest *r, Cache *c, Fault *fault)
{
        _cleanup_json_ struct json_object *job = NULL;
        Manager *m = r->manager;
        Check *check;
        Worker *w;
        int q;

        if (r->owner.uid != 0 && checks_of_user(m, r->owner.uid) >= m->config.loads_max_per_user)
                return refuse_limit(fault, "loads per user", m->config.loads_max_per_user,
                                    "comparisons of one user at a time", "LoadsMaxPerUser=");
        q = load_job(m, r->settings, NULL, &job);
        if (q < 0)
                return q;
        check = malloc(sizeof(*check));
        if (!check)
                return -ENOMEM;
        *check = (Check){.request = r, .serial = c->serial};
        q = worker_spawn(&m->workers,
                         &(const WorkerStart){
                                 .name = r->settings->name,
                                 .identity = &r->owner,
                                 .job = job,
                                 .fds = &r->root_fd,
                                 .n_fds = 1,
                                 .handlers = {.message = on_check_message, .ended = on_check_ended},
                                 .userdata = check,
                                 .transient = true,
                         },
                         &w);
        if (q < 0) {
                free(check);
                return fault_set_errno(fault, q, r->settings->name,
                                       "cannot start a worker that looks at its source");
        }
        /* Not to be evicted while it is being asked for. */
        cache_touch(c);
        evict_rearm(c);
        check->next = m->checks;
        m->checks = check;
        return 0;
}

/* Decisions */

static int check_limits(const StartRequest *r, Fault *fault)
{
        const Manager *m = r->manager;
        const ManagerConfig *k = &m->config;

        if (manager_caches(m) >= k->caches_max)
                return refuse_limit(fault, "caches", k->caches_max, "caches at a time", "CachesMax=");
        if (r->owner.uid == 0)
                return 0;
        if (manager_caches_of_user(m, r->owner.uid) >= k->caches_max_per_user)
                return refuse_limit(fault, "caches per user", k->caches_max_per_user, "caches of one user",
                                    "CachesMaxPerUser=");
        if (manager_loads_of_user(m, r->owner.uid) >= k->loads_max_per_user)
                return refuse_limit(fault, "loads per user", k->loads_max_per_user,
                                    "loads of one user at a time", "LoadsMaxPerUser=");
        return 0;
}

static int mismatch(const Cache *c, const char *difference, Fault *fault)
{
        return fault_set(fault, FAULT_CACHE_MISMATCH, cache_name(c),
                         "cache '%s': %s: stop it first, or choose another --name", cache_name(c),
                         difference);
}

static int compare(const StartRequest *r, const Cache *c, Fault *fault)
{
        _cleanup_free_ char *difference = NULL;
        int q;

        q = cache_settings_compare(c->settings, r->settings, &difference);
        if (q < 0)
                return q;
        if (q == 0)
                return mismatch(c, difference, fault);
        if (r->gid_given && r->gid != c->gid) {
                q = text_format(&difference, "its group is %u, %u was asked for", (unsigned) c->gid,
                                (unsigned) r->gid);
                return q < 0 ? q : mismatch(c, difference, fault);
        }
        return 0;
}

static int use_existing(StartRequest *r, Cache *c, Fault *fault)
{
        const VarlinkPeer *peer = varlink_call_peer(r->call);
        int q;

        if (c->state == MANAGER_CACHE_STATE_STOPPING) {
                waiter_append(&c->end_waiters, &r->waiter);
                return 0;
        }
        if (!access_may_see(&r->manager->policy, peer, c->owner.uid, c->gid, c->settings->mode) ||
            !access_may_reuse(r->owner.uid, c->owner.uid, r->configured_owner))
                return fault_set(fault, FAULT_NAME_RESERVED, cache_name(c),
                                 "name '%s' is in use by another user: choose another --name", cache_name(c));
        if (c->state == MANAGER_CACHE_STATE_DRAINING)
                return fault_set(
                        fault, FAULT_CACHE_NOT_READY, cache_name(c),
                        "cache '%s' stops as soon as its last reader ends: wait for that, or choose another "
                        "--name",
                        cache_name(c));
        q = compare(r, c, fault);
        if (q < 0)
                return q;
        if (c->state == MANAGER_CACHE_STATE_READY)
                return start_check(r, c, fault);

        r->reused = true;
        r->check_after = r->owner.uid != c->owner.uid || !load_same_root(r->root_fd, c->root_fd);
        c->reuses++;
        waiter_append(&c->ready_waiters, &r->waiter);
        /* One who doesn't wait, and came after the admission. */
        on_waiter_progress(&r->waiter, c);
        return 0;
}

int start_submit(StartRequest *r, Fault *fault)
{
        Manager *m = r->manager;
        LoadRequest request = {
                .settings = r->settings,
                .owner = &r->owner,
                .gid = r->gid,
                .gid_given = r->gid_given,
                .root_fd = &r->root_fd,
                .peer = varlink_call_peer(r->call),
                .waiter = &r->waiter,
        };
        Cache *c;
        int q;

        if (m->stopping)
                return fault_set(fault, FAULT_LOAD_FAILED, r->settings->name,
                                 "cache '%s' was not loaded: the manager is being stopped",
                                 r->settings->name);
        c = manager_find(m, r->settings->name);
        if (c && c->state != MANAGER_CACHE_STATE_FAILED)
                return use_existing(r, c, fault);
        q = check_limits(r, fault);
        if (q < 0)
                return q;
        if (c)
                teardown_forget(c);
        q = load_begin(m, &request, fault);
        if (q < 0)
                return q;
        /* The cache has them now. */
        r->settings = NULL;
        return 0;
}
