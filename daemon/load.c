/* Loads. Phases: selecting -> copying -> handing -> (publishing) -> probing -> held. */
#include "daemon/load.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memfd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "daemon/evict.h"
#include "daemon/note.h"
#include "daemon/registry.h"
#include "daemon/task.h"
#include "daemon/teardown.h"
#include "wire/worker-protocol.h"

/* Progress goes to clients no more often than this. */
#define PROGRESS_INTERVAL (100 * USEC_PER_MSEC)
/* What one file's entry in the manifest can take: a path of PATH_MAX bytes, escaped and once more in base64.
 */
#define MANIFEST_ENTRY_MAX KIB(40)

static int add_selection(const CacheSettings *s, struct json_object *o)
{
        int r;

        r = json_add_path(o, "source", s->source);
        if (r >= 0 && s->patterns)
                r = json_add_strv(o, "patterns", s->patterns);
        if (r >= 0 && s->excludes)
                r = json_add_strv(o, "excludes", s->excludes);
        if (r >= 0)
                r = json_add_int(o, "workers", s->workers);
        if (r >= 0)
                r = json_add_size(o, "chunkSize", s->chunk_size);
        return r;
}

static int add_publication(const Cache *c, struct json_object *o)
{
        /* Directories above the view are entered by those who may read the files. */
        const mode_t read = c->settings->mode & 0044;
        int r = 0;

        if (!c->view_by_manager) {
                r = json_add_path(o, "view", c->view);
                if (r >= 0)
                        r = json_add_int(o, "viewParentMode", 0700 | read | read >> 2);
        }
        if (r >= 0 && c->pid_file)
                r = json_add_path(o, "pidFile", c->pid_file);
        if (r >= 0 && c->log_file)
                r = json_add_path(o, "logFile", c->log_file);
        return r;
}

int load_job(const Manager *m, const CacheSettings *s, const Cache *c, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_string(o, "job", "load")) < 0 || (r = json_add_string(o, "name", s->name)) < 0 ||
            (r = add_selection(s, o)) < 0 || (r = json_add_int(o, "mode", s->mode)) < 0 ||
            (r = json_add_int(o, "viewMode", s->mode)) < 0 ||
            (r = json_add_size(o, "maxFiles", m->config.files_max)) < 0)
                return r;
        if (c && c->gid_given) {
                r = json_add_int(o, "gid", c->gid);
                if (r < 0)
                        return r;
        }
        r = c ? add_publication(c, o) : 0;
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static _printf_(2, 3) void fail_protocol(Cache *c, const char *format, ...)
{
        _cleanup_free_ char *text = NULL;
        Fault fault = {};
        va_list ap;

        va_start(ap, format);
        (void) text_vformat(&text, format, ap);
        va_end(ap);
        (void) fault_set(&fault, FAULT_LOAD_FAILED, cache_name(c),
                         "cache '%s': its worker broke the protocol: %s", cache_name(c), text ? text : "?");
        worker_end(c->worker, NULL);
        teardown_fail(c, &fault);
}

static void fail_errno(Cache *c, int error, const char *what)
{
        Fault fault = {};

        (void) fault_set_errno(&fault, error, cache_name(c), what);
        teardown_fail(c, &fault);
}

/* selected */

static int check_files(Cache *c, const WorkerMessage *s, Fault *fault)
{
        Manager *m = c->manager;
        uint64_t used = manager_descriptors(m, c), needed = 1 + s->large_files + (s->pack_bytes > 0);

        if (s->files > m->config.files_max) {
                (void) fault_set(
                        fault, FAULT_TOO_MANY_FILES, NULL,
                        "cache '%s' would have %" PRIu64 " files, at most %" PRIu64
                        " are allowed (FilesMax= in iloaderd.conf): select fewer with --pattern or --exclude",
                        cache_name(c), s->files, m->config.files_max);
                fault->files = s->files;
                fault->maximum = m->config.files_max;
                return FAULT_REFUSED;
        }
        if (needed > m->descriptors_max || used > m->descriptors_max - needed) {
                (void) fault_set(fault, FAULT_TOO_MANY_FILES, NULL,
                                 "cache '%s' needs %" PRIu64 " descriptors, of the manager's %" PRIu64
                                 " are %" PRIu64 " in use: stop other caches, select fewer files, or raise "
                                 "DescriptorsMax= and LimitNOFILE=",
                                 cache_name(c), needed, m->descriptors_max, used);
                fault->files = needed;
                fault->maximum = m->descriptors_max - MIN2(used, m->descriptors_max);
                return FAULT_REFUSED;
        }
        c->descriptors = needed;
        return 0;
}

static int check_user_bytes(Cache *c, uint64_t required, Fault *fault)
{
        Manager *m = c->manager;
        uint64_t used;

        if (c->owner.uid == 0 || m->config.bytes_max_per_user == UINT64_MAX)
                return 0;
        used = manager_bytes_of_user(m, c->owner.uid, c);
        if (add_saturating(used, required) <= m->config.bytes_max_per_user)
                return 0;
        (void) fault_set(fault, FAULT_LIMIT_EXCEEDED, "bytes per user",
                         "cache '%s' needs %" PRIu64 " bytes, and user %u has %" PRIu64 " of at most %" PRIu64
                         " resident already: stop other caches, or raise BytesMaxPerUser= in iloaderd.conf",
                         cache_name(c), required, (unsigned) c->owner.uid, used,
                         m->config.bytes_max_per_user);
        fault->maximum = m->config.bytes_max_per_user;
        return FAULT_REFUSED;
}

static void refuse_admission(Cache *c, const AdmissionDecision *d, const AdmissionRequest *request,
                             const AdmissionState *state, Fault *fault)
{
        _cleanup_free_ char *text = NULL;

        (void) admission_explain(d, request, state, cache_name(c), &text);
        (void) fault_set(
                fault, d->verdict == ADMISSION_OVER_QUOTA ? FAULT_QUOTA_EXCEEDED : FAULT_INSUFFICIENT_MEMORY,
                d->verdict == ADMISSION_OVER_CACHE_CAP ? "maxMemoryBytes" : d->limit, "%s",
                text ? text : "it does not fit");
        fault->required = d->required_bytes;
        fault->available =
                d->verdict == ADMISSION_OVER_CACHE_CAP ? request->max_memory_bytes : d->available_bytes;
        fault->resident = add_saturating(state->resident_bytes, state->reserved_bytes);
        fault->maximum = state->quota_bytes;
}

static int admit(Cache *c, Fault *fault)
{
        const CacheSettings *s = c->settings;
        _cleanup_memory_snapshot_ MemorySnapshot snapshot = {};
        AdmissionRequest request = {
                .file_bytes = c->bytes,
                .view_bytes = c->pack_bytes,
                .buffer_bytes = c->buffer_bytes,
                .memory_fraction = s->memory_fraction,
                .reserve_bytes = s->reserve_bytes,
                .max_memory_bytes = s->max_memory_bytes,
                .force = s->force,
        };
        AdmissionDecision decision;
        AdmissionState state;
        int r;

        r = memory_snapshot_read(AT_FDCWD, AT_FDCWD, &snapshot);
        if (r < 0)
                return fault_set_errno(fault, r, cache_name(c),
                                       "cannot find out how much memory is available");
        /* It holds from now on, also where it refuses this very load. */
        if (s->max_resident_bytes != UINT64_MAX) {
                r = manager_set_quota(c->manager, s->max_resident_bytes, c->owner.uid, 0);
                if (r < 0)
                        return fault_set_errno(fault, r, cache_name(c), "cannot save the quota");
        }
        manager_account(c->manager, c, &state);
        admission_decide(&request, &snapshot, &state, &decision);
        r = check_user_bytes(c, decision.required_bytes, fault);
        if (r < 0)
                return r;
        if (decision.verdict != ADMISSION_ADMITTED) {
                refuse_admission(c, &decision, &request, &state, fault);
                return FAULT_REFUSED;
        }
        c->budget = (CacheBudget){
                .required_bytes = decision.required_bytes,
                .available_bytes = decision.available_bytes,
                .budget_bytes = decision.budget_bytes,
                .max_resident_bytes = state.quota_bytes,
                .limit = strdup(decision.limit ? decision.limit : "MemAvailable"),
        };
        c->forced = s->force;
        return c->budget.limit ? 0 : fault_set_errno(fault, -ENOMEM, cache_name(c), "cannot be admitted");
}

static void tell_admitted(Cache *c)
{
        EventFields fields = EVENT_FIELDS_INIT;
        char required[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX];

        fields.bytes = c->budget.required_bytes;
        note_event(c, EVENT_CACHE_ADMITTED, &fields,
                   "Cache '%s' was admitted: %" PRIu64
                   " file%s, %s required, %s available (bound by %s), %s budget%s.",
                   cache_name(c), c->files, c->files == 1 ? "" : "s",
                   format_size(required, c->budget.required_bytes),
                   format_size(available, c->budget.available_bytes), c->budget.limit,
                   format_size(budget, c->budget.budget_bytes), c->forced ? ", forced" : "");
}

static void on_selected(Cache *c, WorkerMessage *m)
{
        Fault fault = {};
        int r;

        if (c->phase != CACHE_SELECTING) {
                fail_protocol(c, "it selected twice");
                return;
        }
        r = check_files(c, m, &fault);
        if (r < 0) {
                c->descriptors = 0;
                teardown_fail(c, &fault);
                return;
        }
        c->fingerprint = TAKE_PTR(m->fingerprint);
        c->files = m->files;
        c->bytes = m->bytes;
        c->large_files = m->large_files;
        c->pack_bytes = m->pack_bytes;
        c->buffer_bytes = m->buffer_bytes;
        r = admit(c, &fault);
        if (r < 0) {
                teardown_fail(c, &fault);
                return;
        }
        r = worker_send(c->worker, "load");
        if (r < 0) {
                fail_errno(c, r, "cannot tell the worker to load");
                return;
        }
        c->admitted = true;
        c->phase = CACHE_COPYING;
        note_flush(c);
        tell_admitted(c);
        /* Those who only wait for this are told now. */
        waiters_progress(c->ready_waiters, c);
        manager_emit(c->manager, MANAGER_CHANGE_KIND_PROGRESS, c);
        manager_changed(c->manager);
}

/* progress */

static void on_progress(Cache *c, const WorkerMessage *m)
{
        usec_t now = now_monotonic();

        if (c->phase != CACHE_COPYING || m->bytes_loaded < c->bytes_loaded || m->bytes_loaded > c->bytes) {
                fail_protocol(c, "it reported %" PRIu64 " bytes of %" PRIu64 " after %" PRIu64,
                              m->bytes_loaded, c->bytes, c->bytes_loaded);
                return;
        }
        c->bytes_loaded = m->bytes_loaded;
        if (now - c->progressed < PROGRESS_INTERVAL)
                return;
        c->progressed = now;
        waiters_progress(c->ready_waiters, c);
        manager_emit(c->manager, MANAGER_CHANGE_KIND_PROGRESS, c);
}

/* files, loaded */

static int verify_file(Cache *c, int fd)
{
        struct stat st;
        int r;

        r = memfd_verify(fd, UINT64_MAX);
        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0)
                return -errno;
        /* The manifest, whose size is only bounded. */
        if (c->fds.n == 0)
                return (uint64_t) st.st_size <=
                                       add_saturating(mul_saturating(c->files, MANIFEST_ENTRY_MAX), KIB(4))
                               ? 0
                               : -EFBIG;
        if (c->fds.n == 1 && c->pack_bytes > 0 && (uint64_t) st.st_size != c->pack_bytes)
                return -EBADMSG;
        c->received_bytes = add_saturating(c->received_bytes, (uint64_t) st.st_size);
        return 0;
}

static void on_files(Cache *c, WorkerMessage *m)
{
        int r;

        if (c->phase != CACHE_COPYING || m->first != c->fds.n || m->fds.n > c->descriptors - c->fds.n) {
                fail_protocol(c,
                              "%zu descriptors from number %" PRIu64 " on came where %" PRIu64 " of %" PRIu64
                              " were due",
                              m->fds.n, m->first, c->descriptors - c->fds.n, c->descriptors);
                return;
        }
        while (m->fds.n > 0) {
                int fd = fd_set_steal_first(&m->fds);

                r = verify_file(c, fd);
                if (r >= 0) {
                        r = fd_set_take(&c->fds, fd);
                        if (r == -ENOMEM) {
                                close_fd(fd);
                                fail_errno(c, r, "cannot keep its files");
                                return;
                        }
                }
                if (r < 0) {
                        close_fd(fd);
                        fail_protocol(c, "descriptor %zu is not the sealed memory file that it must be: %s",
                                      c->fds.n, strerror(-r));
                        return;
                }
        }
}

static int check_manifest(Cache *c)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        int r;

        r = manifest_reader_new(cache_manifest_fd(c), &reader);
        if (r < 0)
                return r;
        return manifest_reader_files(reader) == c->files && manifest_reader_bytes(reader) == c->bytes &&
                               manifest_reader_descriptors(reader) + 1 == c->descriptors
                       ? 0
                       : -EBADMSG;
}

static void on_loaded(Cache *c, const WorkerMessage *m)
{
        EventFields fields = EVENT_FIELDS_INIT;
        char size[SIZE_TEXT_MAX], rate[SIZE_TEXT_MAX], span[TIMESPAN_TEXT_MAX];
        int r;

        if (c->phase != CACHE_COPYING || m->descriptors != c->descriptors || c->fds.n != c->descriptors ||
            m->first_descriptor != WORKER_FIRST_DESCRIPTOR || m->bytes_loaded != c->bytes ||
            c->received_bytes != c->bytes) {
                fail_protocol(c,
                              "it loaded %" PRIu64 " bytes into %" PRIu64
                              " descriptors; %zu descriptors with %" PRIu64 " bytes came, %" PRIu64
                              " with %" PRIu64 " were due",
                              m->bytes_loaded, m->descriptors, c->fds.n, c->received_bytes, c->descriptors,
                              c->bytes);
                return;
        }
        r = check_manifest(c);
        if (r < 0) {
                fail_protocol(c, "its manifest cannot be read, or does not fit: %s", strerror(-r));
                return;
        }
        c->bytes_loaded = c->bytes;
        c->copy_usec = m->copy_usec;
        fields.bytes = c->bytes;
        fields.duration = c->copy_usec;
        note_event(c, EVENT_CACHE_LOADED, &fields, "Cache '%s' was loaded: %s copied in %s (%s/s).",
                   cache_name(c), format_size(size, c->bytes), format_timespan(span, fields.duration),
                   format_size(rate, (uint64_t) ((double) c->bytes * 1e6 / (double) MAX2(c->copy_usec, 1U))));
        c->phase = CACHE_HANDING;
        c->view_touched = !c->view_by_manager;
        r = worker_send(c->worker, "publish");
        if (r < 0)
                fail_errno(c, r, "cannot tell the worker to publish");
}

/* holding, and what follows */

static void save_registry(Cache *c)
{
        Manager *m = c->manager;
        RegistryEntry e = {
                .name = c->settings->name,
                .worker_pid = c->pid,
                .uid = c->owner.uid,
                .gid = c->gid,
                .source = c->settings->source,
                .view = c->view,
                .pid_file = c->pid_file,
                .log_file = c->log_file,
                .fingerprint = c->fingerprint,
                .bytes = c->bytes,
                .view_by_manager = c->view_by_manager,
        };
        int r;

        memcpy(e.boot_id, m->boot_id, sizeof(e.boot_id));
        r = process_start_time(c->pid, &e.worker_start_time);
        if (r >= 0)
                r = registry_save(m->runtime->registry_fd, &e);
        if (r < 0)
                (void) log_warning(r, "Cache '%s': cannot write its registry entry: %m", cache_name(c));
}

static void on_probed(Cache *c, const Fault *fault)
{
        EventFields fields = EVENT_FIELDS_INIT;
        _cleanup_free_ char *view = NULL;
        char span[TIMESPAN_TEXT_MAX];
        Fault copy = {};

        if (fault) {
                if (fault_copy(fault, &copy) < 0)
                        (void) fault_set(&copy, FAULT_LOAD_FAILED, cache_name(c), "the view cannot be read");
                teardown_fail(c, &copy);
                return;
        }
        c->phase = CACHE_HELD;
        c->view_published = true;
        c->ready_realtime = now_realtime();
        cache_touch(c);
        cache_set_state(c, MANAGER_CACHE_STATE_READY);
        (void) path_escape(c->view, &view);
        fields.bytes = c->bytes;
        fields.duration = now_monotonic() - c->started;
        fields.pid = c->pid;
        note_event(c, EVENT_CACHE_READY, &fields, "Cache '%s' is ready after %s: %s", cache_name(c),
                   format_timespan(span, fields.duration), view ? view : "");
        manager_emit(c->manager, MANAGER_CHANGE_KIND_READY, c);
        evict_rearm(c);
        (void) waiters_finish(&c->ready_waiters, c, NULL);
        manager_changed(c->manager);
}

static void probe(Cache *c)
{
        int r;

        c->phase = CACHE_PROBING;
        r = task_run(c, TASK_PROBE, NULL, on_probed);
        if (r < 0)
                fail_errno(c, r, "cannot start a worker that checks the view");
}

static void on_published(Cache *c, const Fault *fault)
{
        Fault copy = {};

        if (!fault) {
                probe(c);
                return;
        }
        if (fault_copy(fault, &copy) < 0)
                (void) fault_set(&copy, FAULT_LOAD_FAILED, cache_name(c), "the view cannot be published");
        /* What is there isn't ours to remove. */
        if (copy.kind == FAULT_VIEW_CONFLICT)
                c->view_touched = false;
        teardown_fail(c, &copy);
}

static void on_holding(Cache *c)
{
        int r;

        if (c->phase != CACHE_HANDING) {
                fail_protocol(c, "it holds what it has not loaded");
                return;
        }
        worker_set_waiting(c->worker, false);
        c->held = true;
        c->phase = CACHE_PUBLISHING;
        save_registry(c);
        if (!c->view_by_manager) {
                probe(c);
                return;
        }
        c->view_touched = true;
        r = task_run(c, TASK_PUBLISH, NULL, on_published);
        if (r < 0)
                fail_errno(c, r, "cannot start a worker that publishes the view");
}

static void on_error(Cache *c, WorkerMessage *m)
{
        Fault fault = m->fault;

        m->fault = (Fault){};
        if (fault.kind == FAULT_INSUFFICIENT_MEMORY) {
                fault.required = c->budget.required_bytes;
                fault.available = c->budget.available_bytes;
                if (c->budget.limit) {
                        free(fault.subject);
                        fault.subject = strdup(c->budget.limit);
                }
        }
        if (fault.kind == FAULT_VIEW_CONFLICT && !c->view_by_manager)
                c->view_touched = false;
        teardown_fail(c, &fault);
}

static void on_message(_unused_ Worker *w, WorkerMessage *m, void *userdata)
{
        Cache *c = userdata;

        /* What it still says on its way out. */
        if (c->phase >= CACHE_ENDING)
                return;
        switch (m->event) {
        case WORKER_SELECTED:
                on_selected(c, m);
                break;
        case WORKER_PROGRESS:
                on_progress(c, m);
                break;
        case WORKER_FILES:
                on_files(c, m);
                break;
        case WORKER_LOADED:
                on_loaded(c, m);
                break;
        case WORKER_HOLDING:
                on_holding(c);
                break;
        case WORKER_ERROR:
                on_error(c, m);
                break;
        default:
                fail_protocol(c, "it said '%s'", worker_event_to_string(m->event));
                break;
        }
}

static void on_ended(Worker *w, const char *why, void *userdata)
{
        EventFields fields = EVENT_FIELDS_INIT;
        Cache *c = userdata;
        Fault fault = {};

        c->worker = NULL;
        c->untidy = c->held || !worker_left_by_itself(w);
        if (c->phase >= CACHE_ENDING) {
                teardown_worker_ended(c);
                return;
        }
        if (!why)
                why = "left by itself";
        fields.pid = c->pid;
        fields.reason = why;
        note_event(c, EVENT_WORKER_DIED, &fields, "Cache '%s': its worker (pid %d) %s.", cache_name(c),
                   (int) c->pid, why);
        (void) fault_set(&fault, FAULT_LOAD_FAILED, cache_name(c), "cache '%s': its worker (pid %d) %s",
                         cache_name(c), (int) c->pid, why);
        teardown_fail(c, &fault);
}

/* begin */

/* Whether the caller sees the same tree as the manager, so that the manager's own paths mean the same to him.
 */
bool load_same_root(int a, int b)
{
        /* What the file system remembers is enough; one whose server hangs must not hold the manager. */
        const int flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
        struct statx x, y;

        if (statx(a, "", flags, STATX_INO | STATX_MNT_ID, &x) < 0 ||
            statx(b, "", flags, STATX_INO | STATX_MNT_ID, &y) < 0)
                return false;
        return x.stx_ino == y.stx_ino && x.stx_dev_major == y.stx_dev_major &&
               x.stx_dev_minor == y.stx_dev_minor && x.stx_mnt_id == y.stx_mnt_id;
}

static int copy_path(const char *path, char **ret)
{
        if (path) {
                *ret = strdup(path);
                if (!*ret)
                        return -ENOMEM;
        }
        return 0;
}

/* Default files are the manager's to place: a worker below the caller's root can write them only where that
 * is the manager's own root too. */
static int place_files(Cache *c)
{
        const Runtime *runtime = c->manager->runtime;
        const CacheSettings *s = c->settings;
        const bool own_root = load_same_root(c->root_fd, c->manager->root_fd);
        const bool defaults = runtime->scope == SCOPE_USER && own_root;
        int r;

        c->view_by_manager = !s->view && !defaults;
        r = s->view ? copy_path(s->view, &c->view) : runtime_view(runtime, s->name, &c->view);
        if (r < 0)
                return r;
        if (s->pid_file || !defaults)
                r = copy_path(s->pid_file, &c->pid_file);
        else
                r = runtime_pid_file(runtime, s->name, &c->pid_file);
        if (r < 0)
                return r;
        if (s->log_file || !defaults)
                return copy_path(s->log_file, &c->log_file);
        return runtime_log_file(runtime, s->name, &c->log_file);
}

static int spawn_loader(Manager *m, Cache *c)
{
        _cleanup_json_ struct json_object *job = NULL;
        int r;

        r = load_job(m, c->settings, c, &job);
        if (r < 0)
                return r;
        r = worker_spawn(&m->workers,
                         &(const WorkerStart){
                                 .name = cache_name(c),
                                 .identity = &c->owner,
                                 .job = job,
                                 .fds = &c->root_fd,
                                 .n_fds = 1,
                                 .handlers = {.message = on_message, .ended = on_ended},
                                 .userdata = c,
                         },
                         &c->worker);
        if (r >= 0)
                c->pid = worker_pid(c->worker);
        return r;
}

static int load_create(Manager *m, LoadRequest *request, Cache **ret)
{
        _cleanup_(cache_freep) Cache *c = NULL;
        _cleanup_identity_ Identity owner = {};
        int r;

        r = identity_copy(request->owner, &owner);
        if (r < 0)
                return r;
        r = cache_new(m, request->settings, &owner, &c);
        if (r < 0)
                return r;
        if (request->gid_given) {
                c->gid = request->gid;
                c->gid_given = true;
        }
        c->root_fd = *request->root_fd;
        r = place_files(c);
        if (r >= 0)
                r = manager_add(m, c);
        if (r < 0) {
                /* Both stay the caller's. */
                c->settings = NULL;
                c->root_fd = -EBADF;
                return r;
        }
        *ret = TAKE_PTR(c);
        return 0;
}

int load_begin(Manager *m, LoadRequest *request, Fault *fault)
{
        EventFields fields = EVENT_FIELDS_INIT;
        _cleanup_free_ char *source = NULL;
        Cache *c;
        int r;

        r = load_create(m, request, &c);
        if (r < 0)
                return r;
        r = spawn_loader(m, c);
        if (r < 0) {
                (void) fault_set_errno(fault, r, cache_name(c), "cannot start its worker");
                c->settings = NULL;
                c->root_fd = -EBADF;
                manager_remove(m, c);
                return FAULT_REFUSED;
        }
        request->settings = NULL;
        *request->root_fd = -EBADF;
        waiter_append(&c->ready_waiters, TAKE_PTR(request->waiter));
        (void) path_escape(c->settings->source, &source);
        fields.pid = request->peer->pid;
        fields.uid = request->peer->uid;
        note_event(c, EVENT_CACHE_REQUESTED, &fields,
                   "Cache '%s' of %s was asked for by user %u, process %d.", cache_name(c),
                   source ? source : "?", (unsigned) request->peer->uid, (int) request->peer->pid);
        manager_emit(m, MANAGER_CHANGE_KIND_STARTED, c);
        manager_changed(m);
        return 0;
}
