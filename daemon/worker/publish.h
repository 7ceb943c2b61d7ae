/* Publishing: the worker's side of the view, and the job that does only that. */
#pragma once

#include "daemon/worker/control.h"
#include "daemon/worker/job.h"

/* Makes the view's missing parents, if the job says how, and the view. On failure what was made is removed.
 */
int publish_view(const Job *job, pid_t holder, int manifest_fd, int pack_fd, Failure *ret_failure);
/* Job "publish". */
int publish_run(Control *control, const Job *job, Failure *ret_failure);
