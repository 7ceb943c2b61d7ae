/* See probe.h. */
#include "daemon/worker/probe.h"

#include "checkpoint/view.h"
#include "daemon/worker/report.h"

int probe_run(Control *control, const Job *job, Failure *ret_failure)
{
        _cleanup_view_fault_ ViewFault fault = {};
        uint64_t files = 0;
        int r;

        r = view_probe(job->root_fd, job->view, job->manifest_fd, &files, &fault);
        if (r < 0)
                return failure_take_view(ret_failure, r, &fault);
        return report_probed(control, files);
}
