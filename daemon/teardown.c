/* How a cache ends. States: stopping until everything is given back; then gone, or the entry of a failure,
 * for whoever asks later. */
#include "daemon/teardown.h"

#include <assert.h>

#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/manager.h"
#include "daemon/manifest-stream.h"
#include "daemon/note.h"
#include "daemon/registry.h"
#include "daemon/task.h"

static void teardown_continue(Cache *c);

static void on_task_cancelled(Cache *c, _unused_ const Fault *fault)
{
        teardown_continue(c);
}

/* The story's last chapter. */
static void tell_end(Cache *c)
{
        EventFields fields = EVENT_FIELDS_INIT;
        char size[SIZE_TEXT_MAX], span[TIMESPAN_TEXT_MAX];

        if (c->failed) {
                fields.reason = fault_message(&c->fault);
                note_event(c, c->admitted ? EVENT_CACHE_FAILED : EVENT_CACHE_REFUSED, &fields, "%s",
                           fields.reason);
                return;
        }
        fields.bytes = c->bytes;
        fields.duration = now_monotonic() - c->started;
        fields.reason = c->reason;
        note_event(c, c->evicted ? EVENT_CACHE_EVICTED : EVENT_CACHE_STOPPED, &fields,
                   "Cache '%s' %s after %s (%s); %s given back%s%s.", cache_name(c),
                   c->evicted ? "was evicted" : "was stopped", format_timespan(span, fields.duration),
                   c->reason ? c->reason : "no reason was given", format_size(size, c->bytes),
                   c->message ? "; " : "", c->message ? c->message : "");
}

static void teardown_finish(Cache *c)
{
        Manager *m = c->manager;
        Waiter *next_starts;
        bool told, stopped;

        c->phase = CACHE_GONE;
        (void) registry_remove(m->runtime->registry_fd, cache_name(c));
        tell_end(c);
        if (c->failed) {
                /* The entry may stay for long; its caller's root directory is not to be held for that. */
                c->root_fd = close_fd(c->root_fd);
                cache_set_state(c, MANAGER_CACHE_STATE_FAILED);
                cache_touch(c);
                (void) cache_set_message(c, "%s", fault_message(&c->fault));
                manager_emit(m, MANAGER_CHANGE_KIND_FAILED, c);
        } else
                manager_emit(m, MANAGER_CHANGE_KIND_STOPPED, c);

        told = waiters_finish(&c->ready_waiters, c, &c->fault);
        stopped = waiters_finish(&c->stop_waiters, c, NULL);
        next_starts = TAKE_PTR(c->end_waiters);
        c->heard = told;
        /* A refusal that its caller heard leaves nothing. What was admitted is known by its name, and will be
         * asked for. */
        if (!c->failed || stopped || (told && !c->admitted))
                manager_remove(m, c);
        else
                manager_trim_failed(m);
        /* The name is free now, or free to be taken. */
        (void) waiters_finish(&next_starts, NULL, NULL);
        manager_changed(m);
}

static void on_view_removed(Cache *c, const Fault *fault)
{
        if (fault)
                (void) log_warning(0, "Cache '%s': %s", cache_name(c), fault_message(fault));
        teardown_finish(c);
}

static void remove_default_view(Cache *c)
{
        int r;

        if (!c->remove_view || !c->view_by_manager || !c->view_touched) {
                teardown_finish(c);
                return;
        }
        r = task_run(c, TASK_REMOVE_VIEW, NULL, on_view_removed);
        if (r < 0) {
                (void) log_warning(r, "Cache '%s': cannot remove view %s: %m", cache_name(c), c->view);
                teardown_finish(c);
        }
}

static void on_files_removed(Cache *c, const Fault *fault)
{
        if (fault)
                (void) log_warning(0, "Cache '%s': %s", cache_name(c), fault_message(fault));
        remove_default_view(c);
}

/* What the caller named is removed by a worker that runs as the owner. */
static void remove_files(Cache *c)
{
        const bool view = c->remove_view && !c->view_by_manager && c->view_touched && c->untidy;
        _cleanup_free_ char *text = NULL, *line = NULL;
        int r;

        if (c->admitted && c->log_file) {
                r = text_format(&text, "%s",
                                c->failed    ? fault_message(&c->fault)
                                : c->evicted ? "evicted, memory given back"
                                             : "stopped, memory given back");
                if (r >= 0)
                        (void) note_line(text, &line);
        }
        if (!view && !line && !(c->pid_file && c->untidy)) {
                remove_default_view(c);
                return;
        }
        r = task_run(c, TASK_REMOVE, line, on_files_removed);
        if (r < 0) {
                (void) log_warning(r, "Cache '%s': cannot remove its files: %m", cache_name(c));
                remove_default_view(c);
        }
}

static int on_release(_unused_ sd_event_source *source, void *userdata)
{
        Cache *c = userdata;
        int fd = fd_set_steal_first(&c->fds);

        if (fd >= 0) {
                close_fd(fd);
                return 0;
        }
        c->release_source = sd_event_source_disable_unref(c->release_source);
        cache_release_files(c);
        c->phase = CACHE_CLEANING;
        remove_files(c);
        return 0;
}

static void teardown_continue(Cache *c)
{
        int r;

        assert(c->phase == CACHE_ENDING);

        if (c->worker || c->task || c->release_source)
                return;
        /* Where the worker died, the last reference to each file is ours, and closing it takes the kernel as
         * long as giving back all its pages does: one at a turn, so that everybody else is served meanwhile.
         */
        r = sd_event_add_defer(c->manager->event, &c->release_source, on_release, c);
        if (r >= 0)
                r = sd_event_source_set_enabled(c->release_source, SD_EVENT_ON);
        if (r >= 0)
                return;
        c->release_source = sd_event_source_disable_unref(c->release_source);
        cache_release_files(c);
        c->phase = CACHE_CLEANING;
        remove_files(c);
}

static void release_leases(Cache *c)
{
        _cleanup_free_ char *holders = NULL;
        char size[SIZE_TEXT_MAX];
        int r;

        if (!c->leases)
                return;
        r = residue_take(&c->manager->residues, c, &holders);
        if (r < 0)
                (void) log_warning(r, "Cache '%s': cannot watch those who hold it: %m", cache_name(c));
        (void) cache_set_message(
                c, "readers that have its files mapped keep up to %s in memory until they end: %s",
                format_size(size, c->bytes), holders ? holders : "unknown");
}

static void teardown(Cache *c)
{
        cache_set_state(c, MANAGER_CACHE_STATE_STOPPING);
        c->phase = CACHE_ENDING;
        c->idle_source = sd_event_source_disable_unref(c->idle_source);
        release_leases(c);
        manifest_streams_abort(c);
        if (!c->failed)
                manager_emit(c->manager, MANAGER_CHANGE_KIND_STOPPING, c);
        manager_changed(c->manager);
        /* It is given time, so that it takes away what it made; where it broke a rule it has been killed
         * already. */
        if (c->worker) {
                /* The worker's end gives back the memory then, not our closing. */
                cache_release_files(c);
                worker_end(c->worker, "stop");
        }
        if (c->task)
                task_cancel(c, on_task_cancelled);
        teardown_continue(c);
}

void teardown_begin(Cache *c, const char *waiting_message)
{
        if (c->phase >= CACHE_ENDING)
                return;
        (void) fault_set(&c->fault, FAULT_LOAD_FAILED, cache_name(c), "cache '%s' %s", cache_name(c),
                         waiting_message ? waiting_message : "was stopped while it was loading");
        teardown(c);
}

void teardown_fail(Cache *c, Fault *fault)
{
        if (c->phase >= CACHE_ENDING) {
                fault_done(fault);
                return;
        }
        fault_done(&c->fault);
        c->fault = *fault;
        *fault = (Fault){};
        c->failed = true;
        /* A view that was made for nothing. */
        if (c->phase < CACHE_HELD)
                c->remove_view = true;
        teardown(c);
}

void teardown_worker_ended(Cache *c)
{
        if (c->phase == CACHE_ENDING)
                teardown_continue(c);
}

void teardown_forget(Cache *c)
{
        assert(c->phase == CACHE_GONE);
        manager_remove(c->manager, c);
}
