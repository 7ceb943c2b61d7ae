/* The job: what the manager's first frame asks for, checked and typed. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "daemon/worker/failure.h"
#include "wire/frame.h"

typedef enum JobKind {
        JOB_LOAD,
        JOB_PUBLISH,
        JOB_PROBE,
        JOB_REMOVE,
        _JOB_KIND_MAX,
        _JOB_KIND_INVALID = -EINVAL,
} JobKind;

typedef struct Job {
        JobKind kind;
        int root_fd;     /* owned */
        int manifest_fd; /* owned; -EBADF where the job has none */
        int pack_fd;     /* the same */

        char *name;
        char *source;
        char *view;                  /* NULL: none */
        char *pid_file, *log_file;   /* NULL: none */
        char **patterns, **excludes; /* NULL: all, the default ones; an empty vector stays one */
        unsigned workers;            /* 0: chosen */
        uint64_t chunk_size;
        uint64_t max_files;
        uint64_t max_bytes; /* UINT64_MAX: none */
        mode_t mode;        /* of the resident files */
        mode_t view_mode;
        mode_t view_parent_mode; /* of the view's missing parents; (mode_t) -1: chosen by the view */
        gid_t gid;               /* (gid_t) -1: unchanged */
        uid_t reader;            /* of the view; (uid_t) -1: none */
        pid_t pid;               /* publish: the holder; remove: whose pid file it is; 0: none */
        char *line;              /* NULL: none */
} Job;

/* Takes the descriptors out of the frame. -EBADMSG with the fault naming the field where the frame is no job.
 */
int job_parse(Frame *frame, Job **ret, Failure *ret_failure);
Job *job_free(Job *j);
DEFINE_CLEANUP(Job *, job_free)
