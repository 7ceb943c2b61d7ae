/* Job "load": the whole life of one cache in the worker, from the first look at the source to the end of
 * holding. */
#pragma once

#include "daemon/worker/control.h"
#include "daemon/worker/job.h"
#include "daemon/worker/transfer.h"

/* 0 after a life that ended as it should; -ENOTCONN where the manager went away or asked for the end before
 * the cache was held, which is no failure either; another errno, with the failure, where the load failed.
 * Takes the job. */
int load_run(Control *control, Job *job, TransferHuge huge, Failure *ret_failure);
