/* See remove.h. Each thing is tried whatever became of the others; the first failure is reported. */
#include "daemon/worker/remove.h"

#include "checkpoint/view.h"
#include "daemon/worker/logfile.h"
#include "daemon/worker/pidfile.h"
#include "daemon/worker/report.h"

static int remove_view(const Job *job, Failure *ret_failure)
{
        _cleanup_view_fault_ ViewFault fault = {};
        int r;

        r = view_remove(job->root_fd, job->name, job->view, &fault);
        return r < 0 ? failure_take_view(ret_failure, r, &fault) : 0;
}

static int remove_pid_file(const Job *job, Failure *ret_failure)
{
        int r = pid_file_remove_path(job->root_fd, job->pid_file, job->pid);

        if (r < 0)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, job->pid_file,
                                   "cannot remove the pid file %s: %m", job->pid_file);
        return 0;
}

static int remove_log(const Job *job, Failure *ret_failure)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_log_file_ LogFile log = LOG_FILE_INIT;
        int r;

        r = log_file_open(job->root_fd, job->log_file, false, &log, &failure);
        if (r == -ENOENT)
                return 0; /* somebody took it away, which is theirs to do */
        if (r < 0) {
                if (!ret_failure->message) {
                        *ret_failure = failure;
                        failure = (Failure) FAILURE_INIT;
                }
                return r;
        }
        r = log_file_append(&log, job->line);
        if (r < 0)
                return failure_set(ret_failure, r, FAILURE_LOAD_FAILED, job->log_file,
                                   "cannot write to the log file %s: %m", job->log_file);
        return 0;
}

int remove_run(Control *control, const Job *job, Failure *ret_failure)
{
        int r = 0, k;

        if (job->view)
                r = remove_view(job, ret_failure);
        if (job->pid_file && job->pid > 0) {
                k = remove_pid_file(job, ret_failure);
                r = r < 0 ? r : k;
        }
        if (job->log_file && job->line) {
                k = remove_log(job, ret_failure);
                r = r < 0 ? r : k;
        }
        return r < 0 ? r : report_event(control, "removed");
}
