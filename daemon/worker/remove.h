/* Job "remove": what a stopped or dead cache left at places that its caller had named. */
#pragma once

#include "daemon/worker/control.h"
#include "daemon/worker/job.h"

int remove_run(Control *control, const Job *job, Failure *ret_failure);
