/* Job "probe": a separate process with the owner's rights opens every file of the view, as an engine will. */
#pragma once

#include "daemon/worker/control.h"
#include "daemon/worker/job.h"

int probe_run(Control *control, const Job *job, Failure *ret_failure);
