/* Tasks: workers that do one thing and leave. */
#include "daemon/task.h"

#include "base/text.h"
#include "daemon/manager.h"
#include "daemon/workers.h"

typedef struct Task {
        Cache *cache;
        TaskKind kind;
        TaskDone done;
        Worker *worker;
        bool completed;
        Fault fault;
} Task;

static const struct {
        const char *job;
        const char *doing;
        WorkerEvent event;
} task_table[_TASK_KIND_MAX] = {
        [TASK_PUBLISH] = {"publish", "publishing the view", WORKER_PUBLISHED},
        [TASK_PROBE] = {"probe", "checking the view", WORKER_PROBED},
        [TASK_REMOVE] = {"remove", "removing its files", WORKER_REMOVED},
        [TASK_REMOVE_VIEW] = {"remove", "removing the view", WORKER_REMOVED},
};

static int add_remove(const Cache *c, pid_t pid, const char *line, struct json_object *o)
{
        int r;

        if (c->remove_view && !c->view_by_manager && c->view_touched && c->untidy) {
                r = json_add_path(o, "view", c->view);
                if (r < 0)
                        return r;
        }
        if (c->pid_file && pid > 0 && c->untidy) {
                r = json_add_path(o, "pidFile", c->pid_file);
                if (r >= 0)
                        r = json_add_int(o, "pid", pid);
                if (r < 0)
                        return r;
        }
        if (c->log_file && line) {
                r = json_add_path(o, "logFile", c->log_file);
                if (r >= 0)
                        r = json_add_string(o, "line", line);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int add_publish(const Cache *c, struct json_object *o)
{
        int r;

        if ((r = json_add_path(o, "view", c->view)) < 0 ||
            (r = json_add_int(o, "viewMode", c->settings->mode)) < 0 ||
            (r = json_add_int(o, "pid", c->pid)) < 0)
                return r;
        /* A view of root's has the cache's group and mode, and beside them the cache's owner may read it. */
        if (c->gid_given || c->manager->policy.scope == SCOPE_SYSTEM) {
                r = json_add_int(o, "gid", c->gid);
                if (r < 0)
                        return r;
        }
        return c->owner.uid != c->manager->identity.uid ? json_add_int(o, "reader", c->owner.uid) : 0;
}

static int task_job(const Cache *c, TaskKind kind, const char *line, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        if ((r = json_add_string(o, "job", task_table[kind].job)) < 0 ||
            (r = json_add_string(o, "name", cache_name(c))) < 0)
                return r;
        switch (kind) {
        case TASK_PUBLISH:
                r = add_publish(c, o);
                break;
        case TASK_REMOVE:
                r = add_remove(c, c->pid, line, o);
                break;
        default:
                r = json_add_path(o, "view", c->view);
                break;
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

static void on_message(Worker *w, WorkerMessage *m, void *userdata)
{
        Task *t = userdata;

        if (m->event == WORKER_ERROR) {
                if (t->fault.kind == FAULT_NONE) {
                        t->fault = m->fault;
                        m->fault = (Fault){};
                }
        } else if (m->event == task_table[t->kind].event && !t->completed)
                t->completed = true;
        else {
                (void) fault_set(&t->fault, FAULT_LOAD_FAILED, cache_name(t->cache),
                                 "cache '%s': %s: the worker answered '%s' out of turn", cache_name(t->cache),
                                 task_table[t->kind].doing, worker_event_to_string(m->event));
                worker_end(w, NULL);
        }
}

static void on_ended(_unused_ Worker *w, const char *why, void *userdata)
{
        _cleanup_free_ Task *t = userdata;
        _cleanup_fault_ Fault fault = t->fault;
        Cache *c = t->cache;

        c->task = NULL;
        if (fault.kind == FAULT_NONE && (why || !t->completed))
                (void) fault_set(&fault, FAULT_LOAD_FAILED, cache_name(c), "cache '%s': %s: the worker %s",
                                 cache_name(c), task_table[t->kind].doing,
                                 why ? why : "left without having done it");
        t->done(c, fault.kind == FAULT_NONE ? NULL : &fault);
}

int task_run(Cache *c, TaskKind kind, const char *line, TaskDone done)
{
        const bool by_manager = kind == TASK_PUBLISH || kind == TASK_REMOVE_VIEW;
        _cleanup_json_ struct json_object *job = NULL;
        Manager *m = c->manager;
        int fds[3], r;
        size_t n = 0;
        Task *t;

        r = task_job(c, kind, line, &job);
        if (r < 0)
                return r;
        fds[n++] = by_manager || (kind == TASK_PROBE && c->view_by_manager) ? m->root_fd : c->root_fd;
        if (kind == TASK_PUBLISH || kind == TASK_PROBE)
                fds[n++] = cache_manifest_fd(c);
        if (kind == TASK_PUBLISH && cache_pack_fd(c) >= 0)
                fds[n++] = cache_pack_fd(c);

        t = malloc(sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = (Task){.cache = c, .kind = kind, .done = done};
        r = worker_spawn(&m->workers,
                         &(const WorkerStart){
                                 .name = cache_name(c),
                                 .identity = by_manager ? &m->identity : &c->owner,
                                 .job = job,
                                 .fds = fds,
                                 .n_fds = n,
                                 .handlers = {.message = on_message, .ended = on_ended},
                                 .userdata = t,
                         },
                         &t->worker);
        if (r < 0) {
                free(t);
                return r;
        }
        c->task = t;
        return 0;
}

void task_cancel(Cache *c, TaskDone done)
{
        c->task->done = done;
        worker_end(c->task->worker, NULL);
}
