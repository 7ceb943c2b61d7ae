/* See job.h. A job comes from the manager, which is trusted with our lives but not to be free of mistakes:
 * whatever is missing, unknown or out of range is named instead of guessed. */
#include "daemon/worker/job.h"

#include <string.h>

#include "base/path.h"
#include "base/text.h"
#include "wire/defaults.h"

typedef enum JobFields {
        FIELD_SOURCE = 1 << 0, /* source and everything that says how to load it */
        FIELD_VIEW = 1 << 1,   /* allowed */
        FIELD_VIEW_MUST = 1 << 2,
        FIELD_VIEW_MODE = 1 << 3,
        FIELD_FILES = 1 << 4, /* pidFile, logFile */
        FIELD_PID = 1 << 5,   /* allowed */
        FIELD_PID_MUST = 1 << 6,
        FIELD_LINE = 1 << 7,
} JobFields;

static const struct JobShape {
        const char *name;
        unsigned fields;
        size_t min_fds, max_fds; /* root, manifest, pack */
} job_shapes[_JOB_KIND_MAX] = {
        [JOB_LOAD] = {"load", FIELD_SOURCE | FIELD_VIEW | FIELD_VIEW_MODE | FIELD_FILES, 1, 1},
        [JOB_PUBLISH] = {"publish",
                         FIELD_VIEW | FIELD_VIEW_MUST | FIELD_VIEW_MODE | FIELD_PID | FIELD_PID_MUST, 2, 3},
        [JOB_PROBE] = {"probe", FIELD_VIEW | FIELD_VIEW_MUST, 2, 2},
        [JOB_REMOVE] = {"remove", FIELD_VIEW | FIELD_FILES | FIELD_PID | FIELD_LINE, 1, 1},
};

Job *job_free(Job *j)
{
        if (!j)
                return NULL;
        close_fd(j->root_fd);
        close_fd(j->manifest_fd);
        close_fd(j->pack_fd);
        free(j->name);
        free(j->source);
        free(j->view);
        free(j->pid_file);
        free(j->log_file);
        strv_free(j->patterns);
        strv_free(j->excludes);
        free(j->line);
        free(j);
        return NULL;
}

static int job_wrong(Failure *f, int error, const char *field)
{
        if (error == -ENOMEM)
                return failure_complete(f, error, "cannot take the job");
        return failure_set(f, EBADMSG, FAILURE_LOAD_FAILED, NULL,
                           "the manager's job is malformed: field '%s' is %s", field,
                           error == -ENOENT ? "missing" : "wrong");
}

/* Absolute and normal paths only; an absent one stays NULL where it may be absent. */
static int job_get_path(struct json_object *o, const char *key, bool mandatory, char **field, Failure *f)
{
        _cleanup_free_ char *path = NULL, *normal = NULL;
        int r;

        r = json_get_path(o, key, &path);
        if (r == -ENOENT && !mandatory)
                return 0;
        if (r < 0)
                return job_wrong(f, r, key);
        if (!path_is_absolute(path))
                return job_wrong(f, -EBADMSG, key);
        r = path_normalize(path, &normal);
        if (r < 0)
                return job_wrong(f, r, key);
        *field = TAKE_PTR(normal);
        return 0;
}

/* A number of min..max; where absent, what is in *ret stays, unless it is mandatory. */
static int job_get_number(struct json_object *o, const char *key, bool mandatory, uint64_t min, uint64_t max,
                          uint64_t *ret, Failure *f)
{
        uint64_t v;
        int r;

        r = json_get_size(o, key, &v);
        if (r == -ENOENT && !mandatory)
                return 0;
        if (r < 0)
                return job_wrong(f, r, key);
        if (v < min || v > max)
                return job_wrong(f, -EBADMSG, key);
        *ret = v;
        return 0;
}

/* Read permissions only, the owner's among them. */
static int job_get_mode(struct json_object *o, const char *key, mode_t *ret, Failure *f)
{
        uint64_t v = 0;
        int r;

        r = job_get_number(o, key, true, 0, 0777, &v, f);
        if (r < 0)
                return r;
        if ((v & ~(uint64_t) 0444) != 0 || (v & 0400) == 0)
                return job_wrong(f, -EBADMSG, key);
        *ret = (mode_t) v;
        return 0;
}

static int job_get_strv(struct json_object *o, const char *key, char ***ret, Failure *f)
{
        _cleanup_strv_ char **l = NULL;
        int r;

        r = json_get_strv(o, key, &l);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return job_wrong(f, r, key);
        if (!l) {
                /* "given, but empty" differs from "not given" */
                l = calloc(1, sizeof(*l));
                if (!l)
                        return job_wrong(f, -ENOMEM, key);
        }
        *ret = TAKE_PTR(l);
        return 0;
}

static int job_parse_source(struct json_object *o, Job *j, Failure *f)
{
        uint64_t workers = 0;
        int r;

        r = job_get_path(o, "source", true, &j->source, f);
        if (r < 0)
                return r;
        r = job_get_strv(o, "patterns", &j->patterns, f);
        if (r < 0)
                return r;
        r = job_get_strv(o, "excludes", &j->excludes, f);
        if (r < 0)
                return r;
        r = job_get_number(o, "workers", true, 0, START_WORKERS_MAX, &workers, f);
        if (r < 0)
                return r;
        j->workers = (unsigned) workers;
        r = job_get_number(o, "chunkSize", true, START_CHUNK_SIZE_MIN, START_CHUNK_SIZE_MAX, &j->chunk_size,
                           f);
        if (r < 0)
                return r;
        r = job_get_number(o, "maxFiles", true, 1, UINT32_MAX, &j->max_files, f);
        if (r < 0)
                return r;
        r = job_get_number(o, "maxBytes", false, 0, INT64_MAX, &j->max_bytes, f);
        if (r < 0)
                return r;
        return job_get_mode(o, "mode", &j->mode, f);
}

static int job_parse_view(struct json_object *o, unsigned fields, Job *j, Failure *f)
{
        uint64_t parent = UINT64_MAX;
        int r;

        r = job_get_path(o, "view", fields & FIELD_VIEW_MUST, &j->view, f);
        if (r < 0 || !(fields & FIELD_VIEW_MODE))
                return r;
        r = job_get_mode(o, "viewMode", &j->view_mode, f);
        if (r < 0)
                return r;
        r = job_get_number(o, "viewParentMode", false, 0700, 0777, &parent, f);
        if (r < 0)
                return r;
        if (parent != UINT64_MAX)
                j->view_parent_mode = (mode_t) parent;
        return 0;
}

static int job_parse_line(struct json_object *o, Job *j, Failure *f)
{
        const char *line;
        int r;

        r = json_get_string(o, "line", &line);
        if (r == -ENOENT)
                return 0;
        if (r < 0)
                return job_wrong(f, r, "line");
        j->line = strdup(line);
        return j->line ? 0 : job_wrong(f, -ENOMEM, "line");
}

static int job_parse_fields(struct json_object *o, unsigned fields, Job *j, Failure *f)
{
        uint64_t gid = UINT64_MAX, reader = UINT64_MAX, pid = 0;
        const char *name;
        int r;

        r = json_get_string(o, "name", &name);
        if (r < 0)
                return job_wrong(f, r, "name");
        if (!cache_name_is_valid(name, NULL))
                return job_wrong(f, -EBADMSG, "name");
        j->name = strdup(name);
        if (!j->name)
                return job_wrong(f, -ENOMEM, "name");

        r = job_get_number(o, "gid", false, 0, UINT32_MAX - 1, &gid, f);
        if (r < 0)
                return r;
        if (gid != UINT64_MAX)
                j->gid = (gid_t) gid;
        r = job_get_number(o, "reader", false, 0, UINT32_MAX - 1, &reader, f);
        if (r < 0)
                return r;
        if (reader != UINT64_MAX)
                j->reader = (uid_t) reader;
        if (fields & FIELD_SOURCE) {
                r = job_parse_source(o, j, f);
                if (r < 0)
                        return r;
        }
        if (fields & FIELD_VIEW) {
                r = job_parse_view(o, fields, j, f);
                if (r < 0)
                        return r;
        }
        if (fields & FIELD_FILES) {
                r = job_get_path(o, "pidFile", false, &j->pid_file, f);
                if (r < 0)
                        return r;
                r = job_get_path(o, "logFile", false, &j->log_file, f);
                if (r < 0)
                        return r;
        }
        if (fields & FIELD_PID) {
                r = job_get_number(o, "pid", fields & FIELD_PID_MUST, 1, INT32_MAX, &pid, f);
                if (r < 0)
                        return r;
                j->pid = (pid_t) pid;
        }
        return fields & FIELD_LINE ? job_parse_line(o, j, f) : 0;
}

int job_parse(Frame *frame, Job **ret, Failure *ret_failure)
{
        _cleanup_(job_freep) Job *j = NULL;
        const char *kind;
        int r;

        j = malloc(sizeof(*j));
        if (!j)
                return job_wrong(ret_failure, -ENOMEM, "job");
        *j = (Job){
                .kind = _JOB_KIND_INVALID,
                .root_fd = -EBADF,
                .manifest_fd = -EBADF,
                .pack_fd = -EBADF,
                .max_bytes = UINT64_MAX,
                .view_parent_mode = (mode_t) -1,
                .gid = (gid_t) -1,
                .reader = (uid_t) -1,
        };
        r = json_get_string(frame->object, "job", &kind);
        if (r < 0)
                return job_wrong(ret_failure, r, "job");
        for (JobKind k = 0; k < _JOB_KIND_MAX; k++)
                if (streq(kind, job_shapes[k].name))
                        j->kind = k;
        if (j->kind < 0)
                return job_wrong(ret_failure, -EBADMSG, "job");

        const struct JobShape *shape = &job_shapes[j->kind];

        if (frame->fds.n < shape->min_fds || frame->fds.n > shape->max_fds)
                return failure_set(ret_failure, EBADMSG, FAILURE_LOAD_FAILED, NULL,
                                   "the manager's job is malformed: %zu descriptors came with job '%s'",
                                   frame->fds.n, shape->name);
        r = job_parse_fields(frame->object, shape->fields, j, ret_failure);
        if (r < 0)
                return r;

        j->root_fd = fd_set_steal_first(&frame->fds);
        if (frame->fds.n > 0)
                j->manifest_fd = fd_set_steal_first(&frame->fds);
        if (frame->fds.n > 0)
                j->pack_fd = fd_set_steal_first(&frame->fds);
        *ret = TAKE_PTR(j);
        return 0;
}
