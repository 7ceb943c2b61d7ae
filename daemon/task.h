/* What another worker does for a cache: publishing its default view, probing its view, removing what it left.
 * One at a time for each cache. */
#pragma once

#include "daemon/cache.h"

typedef enum TaskKind {
        TASK_PUBLISH, /* the default view, by the manager's user, below the manager's root */
        TASK_PROBE,   /* by the owner */
        TASK_REMOVE,  /* what the caller named: pid file, view; a last line for the log file; by the owner */
        TASK_REMOVE_VIEW, /* the default view, as it was published */
        _TASK_KIND_MAX,
        _TASK_KIND_INVALID = -EINVAL,
} TaskKind;

/* fault: NULL where it was done. The task is over when this is called. */
typedef void (*TaskDone)(Cache *c, const Fault *fault);

/* line: of TASK_REMOVE, for the log file; may be NULL. */
int task_run(Cache *c, TaskKind kind, const char *line, TaskDone done);
/* Kills the task's worker; done is then called instead of what was to be. */
void task_cancel(Cache *c, TaskDone done);
