/* Cleaning up after a manager's death. */
#include "daemon/recover.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "daemon/events.h"
#include "daemon/note.h"
#include "daemon/registry.h"

#define LOST_LINE "lost: the manager ended without stopping it"

static void on_message(_unused_ Worker *w, WorkerMessage *m, _unused_ void *userdata)
{
        if (m->event == WORKER_ERROR)
                (void) log_warning(0, "Cannot clean up after a lost cache: %s", fault_message(&m->fault));
}

static void on_ended(_unused_ Worker *w, _unused_ const char *why, void *userdata)
{
        manager_changed(userdata);
}

static int cleaning_job(const RegistryEntry *e, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        _cleanup_free_ char *line = NULL;
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_string(o, "job", "remove")) < 0 || (r = json_add_string(o, "name", e->name)) < 0)
                return r;
        if (e->pid_file && e->worker_pid > 0) {
                r = json_add_path(o, "pidFile", e->pid_file);
                if (r >= 0)
                        r = json_add_int(o, "pid", e->worker_pid);
                if (r < 0)
                        return r;
        }
        if (e->log_file) {
                r = note_line(LOST_LINE, &line);
                if (r >= 0)
                        r = json_add_path(o, "logFile", e->log_file);
                if (r >= 0)
                        r = json_add_string(o, "line", line);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(o);
        return 0;
}

/* By a worker that runs as the owner, as whatever the owner named; below the manager's root, since the
 * owner's own is not known any more. */
static int clean(Manager *m, const RegistryEntry *e)
{
        _cleanup_identity_ Identity owner = {};
        _cleanup_json_ struct json_object *job = NULL;
        char uid[16];
        Worker *w;
        int r;

        if (!e->pid_file && !e->log_file)
                return 0;
        (void) snprintf(uid, sizeof(uid), "%" PRIu32, (uint32_t) e->uid);
        r = identity_from_user(uid, &owner);
        if (r < 0)
                owner = (Identity){.uid = e->uid, .gid = e->gid};
        r = cleaning_job(e, &job);
        if (r < 0)
                return r;
        return worker_spawn(&m->workers,
                            &(const WorkerStart){
                                    .name = e->name,
                                    .identity = &owner,
                                    .job = job,
                                    .fds = &m->root_fd,
                                    .n_fds = 1,
                                    .handlers = {.message = on_message, .ended = on_ended},
                                    .userdata = m,
                                    .transient = true,
                            },
                            &w);
}

static void lose(Manager *m, const RegistryEntry *e)
{
        const bool same_boot = streq(e->boot_id, m->boot_id);
        EventFields fields = EVENT_FIELDS_INIT;
        int r;

        fields.cache = e->name;
        fields.source = e->source;
        fields.bytes = e->bytes;
        fields.uid = e->uid;
        fields.pid = e->worker_pid;
        event_log(EVENT_CACHE_LOST, &fields, "Cache '%s' was lost: %s. Start it again.", e->name,
                  same_boot ? "its manager ended without stopping it" : "the machine was started anew");
        (void) registry_remove(m->runtime->registry_fd, e->name);
        if (!same_boot)
                return;
        r = clean(m, e);
        if (r < 0)
                (void) log_warning(r, "Cannot clean up after lost cache '%s': %m", e->name);
}

int recover_lost(Manager *m)
{
        RegistryEntry **entries = NULL;
        size_t n = 0, damaged = 0;
        int r;

        r = registry_load(m->runtime->registry_fd, &entries, &n, &damaged);
        if (r < 0)
                return log_error(r, "cannot read the registry of caches: %m");
        if (damaged > 0)
                (void) log_warning(
                        0, "%zu damaged file(s) in the registry of caches were set aside as *.damaged.",
                        damaged);
        for (size_t i = 0; i < n; i++)
                lose(m, entries[i]);
        registry_entries_free(entries, n);
        return 0;
}
