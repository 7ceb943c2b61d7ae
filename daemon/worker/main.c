/* iloader-worker: one job, with the rights of whoever the manager started it as. It talks to its manager over
 * descriptor 3 and ends with it; see wire/worker-protocol.h. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/sandbox.h"
#include "base/text.h"
#include "daemon/worker/control.h"
#include "daemon/worker/job.h"
#include "daemon/worker/load.h"
#include "daemon/worker/probe.h"
#include "daemon/worker/publish.h"
#include "daemon/worker/remove.h"
#include "daemon/worker/report.h"
#include "wire/worker-protocol.h"

#define EXIT_USAGE 2

#if defined(__SANITIZE_ADDRESS__)
/* Looking for leaks stops the process with ptrace, which the filter answers with its end. */
_public_ const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
        return "detect_leaks=0";
}
#endif

/* The process's own state, before the job is known. */
static int worker_prepare(void)
{
        const struct rlimit no_core = {0, 0};
        const int keep[] = {WORKER_CONTROL_FD};
        int r;

        r = fd_close_all_except(keep, ELEMENTSOF(keep));
        if (r < 0)
                return r;
        if (prctl(PR_SET_NAME, "iloader-worker") < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -errno;
        /* readers open our descriptors through /proc, which needs a dumpable process; the memory of models in
         * a core file helps nobody */
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0)
                return -errno;
        (void) umask(0022);
        /* answered as EPIPE and EFBIG where they happen */
        if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
                return -errno;
        /* a worker lives for weeks and does nothing: memory that was freed goes back at once */
        (void) mallopt(M_ARENA_MAX, 1);
        (void) mallopt(M_MMAP_THRESHOLD, 64 * 1024);
        (void) mallopt(M_TRIM_THRESHOLD, 64 * 1024);
        return fd_limit_raise(NULL);
}

static int worker_run(Control *control, Failure *ret_failure)
{
        _cleanup_(job_freep) Job *job = NULL;
        _cleanup_frame_ Frame frame = {};
        TransferHuge huge;
        int r;

        r = control_receive_job(control, &frame);
        if (r < 0)
                return r == -ENOTCONN ? r : failure_complete(ret_failure, r, "cannot receive a job");
        r = job_parse(&frame, &job, ret_failure);
        if (r < 0)
                return r;
        frame_done(&frame);
        huge = transfer_huge_detect();
        r = sandbox_enter_loading();
        if (r < 0)
                return failure_complete(ret_failure, r, "cannot enter the loading filter");
        switch (job->kind) {
        case JOB_LOAD:
                return load_run(control, TAKE_PTR(job), huge, ret_failure);
        case JOB_PUBLISH:
                return publish_run(control, job, ret_failure);
        case JOB_PROBE:
                return probe_run(control, job, ret_failure);
        case JOB_REMOVE:
                return remove_run(control, job, ret_failure);
        default:
                return failure_set(ret_failure, EINVAL, FAILURE_LOAD_FAILED, NULL, "unknown job");
        }
}

static bool control_is_there(void)
{
        struct stat st;

        return fstat(WORKER_CONTROL_FD, &st) == 0 && S_ISSOCK(st.st_mode);
}

int main(int argc, char *argv[])
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_(control_freep) Control *control = NULL;
        int r;

        if (argc == 2 && streq(argv[1], "--version")) {
                puts("iloader-worker " ILOADER_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc > 1 || !control_is_there()) {
                fputs("iloader-worker is started by iloaderd, with a socket as descriptor 3, and takes no "
                      "arguments\n",
                      stderr);
                return EXIT_USAGE;
        }
        r = worker_prepare();
        if (r < 0) {
                fprintf(stderr, "iloader-worker: cannot prepare the process: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        r = control_new(WORKER_CONTROL_FD, &control);
        if (r < 0) {
                fprintf(stderr, "iloader-worker: cannot use descriptor 3: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        r = worker_run(control, &failure);
        if (r >= 0 || (r == -ENOTCONN && !failure.message))
                return EXIT_SUCCESS;
        (void) failure_complete(&failure, r, "the job failed");
        (void) report_error(control, &failure);
        return EXIT_FAILURE;
}
