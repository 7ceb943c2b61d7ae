/* The manager object. */
#include "daemon/manager.h"

#include <assert.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/events.h"
#include "daemon/evict.h"
#include "daemon/note.h"
#include "daemon/quota.h"
#include "daemon/teardown.h"

/* How long a clean end may take in all, and the answers after it. */
#define STOP_TIMEOUT (60 * USEC_PER_SEC)
/* Entries of failed caches, and for how long one that nobody has heard of keeps a manager that is otherwise
 * idle. */
#define FAILED_MAX  64U
#define FAILED_KEEP (600 * USEC_PER_SEC)
/* Descriptors for all but resident files and leases: connections, workers, the manager's own. */
#define DESCRIPTOR_SPARE 512U

Manager *manager_free(Manager *m)
{
        if (!m)
                return NULL;
        /* Workers and leases were ended by manager_stop(), or die with the process. */
        monitor_done(&m->monitor);
        residue_done(&m->residues);
        varlink_server_free(m->server);
        sd_event_source_disable_unref(m->idle_source);
        sd_event_source_disable_unref(m->stop_source);
        sd_event_source_disable_unref(m->trim_source);
        worker_pool_done(&m->workers);
        identity_done(&m->identity);
        close_fd(m->config_fd);
        close_fd(m->root_fd);
        runtime_free(m->runtime);
        /* What is left are the records of failed ones. */
        for (size_t i = 0; i < m->n_caches; i++)
                if (m->caches[i]->phase == CACHE_GONE)
                        cache_free(m->caches[i]);
        free(m->caches);
        free(m->status);
        sd_event_unref(m->event);
        free(m);
        return NULL;
}

static int load_config(Manager *m, const ManagerOptions *options)
{
        _cleanup_config_fault_ ConfigFault fault = {};
        int r;

        manager_config_defaults(&m->config);
        if (!options->config_dir)
                return 0;
        m->config_fd = open(options->config_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (m->config_fd < 0)
                return errno == ENOENT ? 0
                                       : log_error(-errno, "cannot open the configuration directory %s: %m",
                                                   options->config_dir);
        r = manager_config_load(m->config_fd, &m->config, &fault);
        if (r < 0 && fault.message) {
                EventFields fields = EVENT_FIELDS_INIT;
                _cleanup_free_ char *text = NULL;

                (void) text_format(&text, "%s:%u: %s", fault.path ? fault.path : "iloaderd.conf", fault.line,
                                   fault.message);
                fields.reason = text ? text : fault.message;
                event_log(EVENT_CONFIGURATION_INVALID, &fields, "%s", fields.reason);
                return r == -ENOMEM ? r : -EBADMSG;
        }
        if (r < 0)
                return log_error(r, "cannot read %s/iloaderd.conf: %m", options->config_dir);
        log_set_max_level(m->config.log_level);
        return 0;
}

static int load_quota(Manager *m)
{
        _cleanup_free_ char *aside = NULL;
        int r;

        r = quota_load(m->runtime->quota_fd, m->runtime->quota_file, &m->quota);
        if (r != -EBADMSG)
                return r < 0 ? log_error(r, "cannot read the quota: %m") : 0;
        /* Better a manager without a quota, that says so, than no manager. */
        m->quota = UINT64_MAX;
        if (text_format(&aside, "%s.damaged", m->runtime->quota_file) >= 0)
                (void) renameat(m->runtime->quota_fd, m->runtime->quota_file, m->runtime->quota_fd, aside);
        (void) log_warning(
                0, "The quota file was damaged; it is kept as '%s', and no quota holds until one is set.",
                aside ? aside : "quota.damaged");
        return 0;
}

/* What the limit on open files leaves for resident files and for leases. */
static void divide_descriptors(Manager *m)
{
        struct rlimit limit;
        uint64_t room = UINT64_MAX;

        (void) fd_limit_raise(NULL);
        if (getrlimit(RLIMIT_NOFILE, &limit) >= 0 && limit.rlim_cur != RLIM_INFINITY)
                room = limit.rlim_cur > DESCRIPTOR_SPARE + 64 ? limit.rlim_cur - DESCRIPTOR_SPARE : 64;
        m->descriptors_max = MIN2(m->config.descriptors_max, room / 2);
        m->leases.max_per_user = m->config.leases_max_per_user;
        m->leases.max_total = room / 4;
}

static void on_lease_ended(const Lease *lease, Cache *c, _unused_ void *userdata)
{
        EventFields fields = EVENT_FIELDS_INIT;

        fields.pid = lease->holder.pid;
        note_event(c, EVENT_LEASE_RELEASED, &fields, "Cache '%s': its reader %s (pid %d) has ended.",
                   cache_name(c), lease->holder.command, (int) lease->holder.pid);
        evict_lease_ended(c);
}

static int set_up(Manager *m, const ManagerOptions *options)
{
        gid_t starters;
        int r;

        r = load_config(m, options);
        if (r < 0)
                return r;
        m->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (m->root_fd < 0)
                return log_error(-errno, "cannot open the root directory: %m");
        r = identity_self(&m->identity);
        if (r < 0)
                return log_error(r, "cannot find out who this is: %m");
        r = boot_id_get(m->boot_id);
        if (r < 0)
                return log_error(r, "cannot read this boot's id: %m");
        m->policy.manager_uid = m->identity.uid;
        m->policy.starters_gid = (gid_t) -1;
        if (m->policy.scope == SCOPE_SYSTEM) {
                r = group_from_name("iloader", &starters);
                if (r >= 0)
                        m->policy.starters_gid = starters;
                else
                        log_notice("There is no group 'iloader': only root may start caches.");
        }
        divide_descriptors(m);
        m->leases.event = m->residues.event = m->event;
        m->leases.ended = on_lease_ended;
        m->leases.userdata = m;
        m->monitor.policy = &m->policy;
        r = worker_pool_init(&m->workers, m->event, m->policy.scope == SCOPE_SYSTEM && m->identity.uid == 0,
                             m->config.load_stall_timeout);
        if (r < 0)
                return log_error(r, "cannot find the program iloader-worker beside this one: %m");
        return 0;
}

int manager_new(sd_event *event, const ManagerOptions *options, Runtime *runtime, Manager **ret)
{
        _cleanup_(manager_freep) Manager *m = NULL;
        int r;

        m = malloc(sizeof(*m));
        if (!m)
                return log_error(-ENOMEM, "cannot start: %m");
        *m = (Manager){
                .event = sd_event_ref(event),
                .policy.scope = options->scope,
                .idle_exit = options->idle_exit,
                .config_fd = -EBADF,
                .root_fd = -EBADF,
                .workers.exec_fd = -EBADF,
                .quota = UINT64_MAX,
        };
        r = set_up(m, options);
        if (r < 0)
                return r;
        m->runtime = runtime;
        r = load_quota(m);
        if (r < 0) {
                m->runtime = NULL;
                return r;
        }
        *ret = TAKE_PTR(m);
        return 0;
}

Cache *manager_find(const Manager *m, const char *name)
{
        for (size_t i = 0; i < m->n_caches; i++)
                if (streq(cache_name(m->caches[i]), name))
                        return m->caches[i];
        return NULL;
}

Cache *manager_find_for(const Manager *m, const VarlinkPeer *peer, const char *name)
{
        Cache *c = manager_find(m, name);

        return c && access_may_see(&m->policy, peer, c->owner.uid, c->gid, c->settings->mode) ? c : NULL;
}

int manager_add(Manager *m, Cache *c)
{
        Cache **caches;
        size_t i = 0;

        caches = reallocarray(m->caches, m->n_caches + 1, sizeof(Cache *));
        if (!caches)
                return -ENOMEM;
        m->caches = caches;
        while (i < m->n_caches && strcmp(cache_name(caches[i]), cache_name(c)) < 0)
                i++;
        memmove(caches + i + 1, caches + i, (m->n_caches - i) * sizeof(Cache *));
        caches[i] = c;
        m->n_caches++;
        c->serial = ++m->last_serial;
        return 0;
}

static int on_trim(_unused_ sd_event_source *source, _unused_ void *userdata)
{
        (void) malloc_trim(0);
        return 0;
}

/* After what took much memory for a moment: give it back to the system once the event is over. */
static void trim_soon(Manager *m)
{
        if (!m->trim_source) {
                if (sd_event_add_defer(m->event, &m->trim_source, on_trim, m) < 0)
                        return;
                (void) sd_event_source_set_priority(m->trim_source, SD_EVENT_PRIORITY_IDLE);
        }
        (void) sd_event_source_set_enabled(m->trim_source, SD_EVENT_ONESHOT);
}

void manager_remove(Manager *m, Cache *c)
{
        for (size_t i = 0; i < m->n_caches; i++)
                if (m->caches[i] == c) {
                        memmove(m->caches + i, m->caches + i + 1, (m->n_caches - i - 1) * sizeof(Cache *));
                        m->n_caches--;
                        break;
                }
        cache_free(c);
        trim_soon(m);
}

static bool is_failed(const Cache *c)
{
        return c->state == MANAGER_CACHE_STATE_FAILED;
}

void manager_trim_failed(Manager *m)
{
        Cache *oldest = NULL;
        size_t n = 0;

        for (size_t i = 0; i < m->n_caches; i++)
                if (is_failed(m->caches[i])) {
                        n++;
                        if (!oldest || m->caches[i]->serial < oldest->serial)
                                oldest = m->caches[i];
                }
        if (n > FAILED_MAX)
                teardown_forget(oldest);
}

void manager_account(const Manager *m, const Cache *except, AdmissionState *ret)
{
        AdmissionState s = {.quota_bytes = m->quota, .resident_bytes = residue_bytes(&m->residues)};

        for (size_t i = 0; i < m->n_caches; i++) {
                const Cache *c = m->caches[i];

                if (c == except)
                        continue;
                s.resident_bytes = add_saturating(s.resident_bytes, cache_resident_bytes(c));
                s.reserved_bytes = add_saturating(s.reserved_bytes, cache_reserved_bytes(c));
                s.outstanding_bytes = add_saturating(s.outstanding_bytes, cache_outstanding_bytes(c));
        }
        *ret = s;
}

uint64_t manager_descriptors(const Manager *m, const Cache *except)
{
        uint64_t n = 0;

        for (size_t i = 0; i < m->n_caches; i++)
                if (m->caches[i] != except && !is_failed(m->caches[i]))
                        n = add_saturating(n, m->caches[i]->descriptors);
        return n;
}

uint64_t manager_bytes_of_user(const Manager *m, uid_t uid, const Cache *except)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < m->n_caches; i++) {
                const Cache *c = m->caches[i];

                if (c != except && c->owner.uid == uid)
                        bytes = add_saturating(
                                bytes, add_saturating(cache_resident_bytes(c), cache_reserved_bytes(c)));
        }
        return bytes;
}

size_t manager_caches_of_user(const Manager *m, uid_t uid)
{
        size_t n = 0;

        for (size_t i = 0; i < m->n_caches; i++)
                n += m->caches[i]->owner.uid == uid && !is_failed(m->caches[i]);
        return n;
}

size_t manager_loads_of_user(const Manager *m, uid_t uid)
{
        size_t n = 0;

        for (size_t i = 0; i < m->n_caches; i++)
                n += m->caches[i]->owner.uid == uid && m->caches[i]->state == MANAGER_CACHE_STATE_LOADING;
        return n;
}

size_t manager_caches(const Manager *m)
{
        size_t n = 0;

        for (size_t i = 0; i < m->n_caches; i++)
                n += !is_failed(m->caches[i]);
        return n;
}

int manager_set_quota(Manager *m, uint64_t quota, uid_t uid, pid_t pid)
{
        EventFields fields = EVENT_FIELDS_INIT;
        char size[SIZE_TEXT_MAX];
        int r;

        if (quota == m->quota)
                return 0;
        r = quota_save(m->runtime->quota_fd, m->runtime->quota_file, quota);
        if (r < 0)
                return log_error(r, "cannot save the quota: %m");
        m->quota = quota;
        fields.uid = uid;
        fields.pid = pid;
        fields.bytes = quota;
        if (quota == UINT64_MAX)
                event_log(EVENT_QUOTA_CHANGED, &fields, "User %u removed the quota of resident bytes.",
                          (unsigned) uid);
        else
                event_log(EVENT_QUOTA_CHANGED, &fields, "User %u set the quota of resident bytes to %s.",
                          (unsigned) uid, format_size(size, quota));
        return 0;
}

static void tell_systemd(Manager *m)
{
        _cleanup_free_ char *status = NULL;
        uint64_t bytes = 0;
        size_t ready = 0, loading = 0;
        char size[SIZE_TEXT_MAX];

        for (size_t i = 0; i < m->n_caches; i++) {
                loading += m->caches[i]->state == MANAGER_CACHE_STATE_LOADING;
                ready += m->caches[i]->phase == CACHE_HELD;
                bytes = add_saturating(bytes, cache_resident_bytes(m->caches[i]));
        }
        if (text_format(&status, "%zu cache%s resident (%s), %zu loading, %zu lease%s", ready,
                        ready == 1 ? "" : "s", format_size(size, bytes), loading, m->leases.n,
                        m->leases.n == 1 ? "" : "s") < 0 ||
            streq_ptr(status, m->status))
                return;
        (void) sd_notifyf(0, "STATUS=%s", status);
        free(m->status);
        m->status = TAKE_PTR(status);
}

/* A failure that nobody has heard of yet keeps the manager for a while, so that it can be told. */
static bool has_untold_failure(const Manager *m)
{
        for (size_t i = 0; i < m->n_caches; i++)
                if (is_failed(m->caches[i]) && !m->caches[i]->heard &&
                    now_monotonic() - m->caches[i]->used < FAILED_KEEP)
                        return true;
        return false;
}

static int leave(Manager *m)
{
        varlink_server_shutdown(m->server);
        return sd_event_exit(m->event, 0);
}

static int on_idle(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        Manager *m = userdata;
        int r;

        if (m->stopping || manager_caches(m) > 0 || varlink_server_connections(m->server) > 0)
                return 0;
        if (has_untold_failure(m)) {
                manager_changed(m);
                return 0;
        }
        /* Under the starters' lock nobody can be about to connect, except those who wait in the socket's
         * queue. Where the directory has been removed there is neither lock nor socket to find us by. */
        r = runtime_lock_starters(m->runtime);
        if ((r < 0 && r != -ENOENT) || varlink_server_has_pending(m->server)) {
                runtime_unlock_starters(m->runtime);
                manager_changed(m);
                return 0;
        }
        log_debug("Idle; leaving.");
        m->stopping = true;
        runtime_retract(m->runtime);
        runtime_remove_socket(m->runtime);
        return leave(m);
}

static void update_idle(Manager *m)
{
        const bool idle = m->idle_exit != USEC_INFINITY && !m->stopping && m->server &&
                          manager_caches(m) == 0 && !m->checks && !m->residues.first &&
                          varlink_server_connections(m->server) == 0;
        int r;

        if (!idle) {
                if (m->idle_source)
                        (void) sd_event_source_set_enabled(m->idle_source, SD_EVENT_OFF);
                return;
        }
        if (m->idle_source) {
                r = sd_event_source_set_time_relative(m->idle_source, m->idle_exit);
                if (r >= 0)
                        r = sd_event_source_set_enabled(m->idle_source, SD_EVENT_ONESHOT);
        } else
                r = sd_event_add_time_relative(m->event, &m->idle_source, CLOCK_MONOTONIC, m->idle_exit,
                                               USEC_PER_SEC / 4, on_idle, m);
        if (r < 0)
                (void) log_warning(r, "Cannot set the idle timer: %m");
}

static int on_stop_timeout(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        Manager *m = userdata;

        (void) log_warning(0, "Not everything ended in time; leaving nevertheless.");
        return leave(m);
}

static void continue_stop(Manager *m)
{
        if (manager_caches(m) > 0 || m->workers.n_workers > 0)
                return;
        /* What the callers were told last is still to be sent. */
        if (!m->shut) {
                m->shut = true;
                varlink_server_shutdown(m->server);
        }
        if (varlink_server_connections(m->server) == 0)
                (void) sd_event_exit(m->event, 0);
}

void manager_changed(Manager *m)
{
        tell_systemd(m);
        if (m->stopping)
                continue_stop(m);
        else
                update_idle(m);
}

void manager_emit(Manager *m, ManagerChangeKind kind, const Cache *c)
{
        monitor_emit(&m->monitor, kind, c);
}

void manager_stop(Manager *m)
{
        int r;

        if (m->stopping)
                return;
        m->stopping = true;
        (void) sd_notify(0, "STOPPING=1");
        runtime_retract(m->runtime);
        /* Who comes now waits in the queue of systemd's socket for the next manager; one of our own has no
         * next. */
        if (!m->runtime->socket_made)
                varlink_server_stop_listening(m->server);
        runtime_remove_socket(m->runtime);
        r = sd_event_add_time_relative(m->event, &m->stop_source, CLOCK_MONOTONIC, STOP_TIMEOUT, 0,
                                       on_stop_timeout, m);
        if (r < 0)
                (void) log_warning(r, "Cannot set a timer for the end: %m");
        worker_pool_stop_transient(&m->workers);
        /* From the end, since one that ends at once leaves the array. */
        for (size_t i = m->n_caches; i-- > 0;) {
                Cache *c = m->caches[i];

                if (!c->reason)
                        c->reason = strdup("the manager is being stopped");
                teardown_begin(c, "was not loaded: the manager is being stopped");
        }
        manager_changed(m);
}
