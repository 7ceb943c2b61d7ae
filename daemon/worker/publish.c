/* See publish.h. */
#include "daemon/worker/publish.h"

#include <fcntl.h>
#include <string.h>

#include "base/path.h"
#include "checkpoint/view.h"
#include "daemon/worker/report.h"

/* Removes the n last directories of a path, as far as they are empty. */
static void directories_remove(int root_fd, const char *path, unsigned n)
{
        _cleanup_free_ char *current = strdup(path);

        for (; current && n > 0; n--) {
                _cleanup_free_ char *parent = NULL;
                _cleanup_close_ int fd = -EBADF;
                const char *name;

                if (path_split(current, &parent, &name) < 0)
                        return;
                fd = path_open_in_root(root_fd, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
                if (fd < 0 || unlinkat(fd, name, AT_REMOVEDIR) < 0)
                        return;
                free(current);
                current = TAKE_PTR(parent);
        }
}

static int publish_parents(const Job *job, const char *parent, unsigned *ret_created, Failure *ret_failure)
{
        _cleanup_close_ int fd = -EBADF;

        fd = path_make_directories_in_root(job->root_fd, parent, job->view_parent_mode, ret_created);
        if (fd < 0)
                return failure_set(ret_failure, fd, FAILURE_LOAD_FAILED, parent,
                                   "cannot make the directory of the view %s: %m", job->view);
        return 0;
}

int publish_view(const Job *job, pid_t holder, int manifest_fd, int pack_fd, Failure *ret_failure)
{
        _cleanup_view_fault_ ViewFault fault = {};
        _cleanup_free_ char *parent = NULL;
        const ViewOptions options = {
                .name = job->name,
                .path = job->view,
                .pid = holder,
                .mode = job->view_mode,
                .gid = job->gid,
                .has_reader = job->reader != (uid_t) -1,
                .reader = job->reader,
        };
        unsigned created = 0;
        const char *name;
        int r;

        r = path_split(job->view, &parent, &name);
        if (r < 0)
                return failure_set(ret_failure, r, FAILURE_VIEW_CONFLICT, job->view,
                                   "view %s has no place in a directory", job->view);
        if (job->view_parent_mode != (mode_t) -1) {
                r = publish_parents(job, parent, &created, ret_failure);
                if (r < 0)
                        return r;
        }
        r = view_publish(job->root_fd, &options, manifest_fd, pack_fd, &fault);
        if (r < 0) {
                directories_remove(job->root_fd, parent, created);
                return failure_take_view(ret_failure, r, &fault);
        }
        return 0;
}

int publish_run(Control *control, const Job *job, Failure *ret_failure)
{
        int r;

        r = publish_view(job, job->pid, job->manifest_fd, job->pack_fd, ret_failure);
        return r < 0 ? r : report_event(control, "published");
}
