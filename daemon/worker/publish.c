/* See publish.h. */
#include "daemon/worker/publish.h"

#include "checkpoint/view.h"
#include "daemon/worker/report.h"

int publish_view(const Job *job, pid_t holder, int manifest_fd, int pack_fd, Failure *ret_failure)
{
        _cleanup_view_fault_ ViewFault fault = {};
        const ViewOptions options = {
                .name = job->name,
                .path = job->view,
                .pid = holder,
                .mode = job->view_mode,
                .gid = job->gid,
                .has_reader = job->reader != (uid_t) -1,
                .reader = job->reader,
                .parent_mode = job->view_parent_mode,
        };
        int r;

        r = view_publish(job->root_fd, &options, manifest_fd, pack_fd, &fault);
        return r < 0 ? failure_take_view(ret_failure, r, &fault) : 0;
}

int publish_run(Control *control, const Job *job, Failure *ret_failure)
{
        int r;

        r = publish_view(job, job->pid, job->manifest_fd, job->pack_fd, ret_failure);
        return r < 0 ? r : report_event(control, "published");
}
