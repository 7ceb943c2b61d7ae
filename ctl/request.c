#include "ctl/request.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "ctl/connection.h"

static int add_number(struct json_object *o, const char *key, const OptionNumber *n)
{
        return n->set ? json_add_size(o, key, n->value) : 0;
}

static int add_path(struct json_object *o, const char *key, const char *path)
{
        return path ? json_add_path(o, key, path) : 0;
}

static int add_strv(struct json_object *o, const char *key, char *const *l)
{
        return l ? json_add_strv(o, key, l) : 0;
}

static int add_all(struct json_object *o, const Arguments *a, const char *source, bool wait)
{
        int r;

        if ((r = json_add_string(o, "name", a->name)) < 0 || (r = add_path(o, "source", source)) < 0 ||
            (r = add_path(o, "view", a->view)) < 0 || (r = add_path(o, "pidFile", a->pid_file)) < 0 ||
            (r = add_path(o, "logFile", a->log_file)) < 0 || (r = add_strv(o, "patterns", a->patterns)) < 0 ||
            (r = add_strv(o, "excludes", a->excludes)) < 0 ||
            (r = add_number(o, "workers", &a->workers)) < 0 ||
            (r = add_number(o, "chunkSize", &a->chunk_size)) < 0 ||
            (r = add_number(o, "maxMemoryBytes", &a->max_memory_bytes)) < 0 ||
            (r = add_number(o, "reserveBytes", &a->reserve_bytes)) < 0 ||
            (r = add_number(o, "maxResidentBytes", &a->max_resident_bytes)) < 0 ||
            (r = add_number(o, "idleTTLUSec", &a->idle_ttl)) < 0 ||
            (r = add_number(o, "mode", &a->mode)) < 0 || (r = json_add_string(o, "owner", a->owner)) < 0 ||
            (r = json_add_string(o, "group", a->group)) < 0)
                return r;
        if (a->max_memory_fraction.set &&
            (r = json_add_double(o, "maxMemoryFraction", a->max_memory_fraction.value)) < 0)
                return r;
        if (a->force && (r = json_add_bool(o, "force", true)) < 0)
                return r;
        return wait ? 0 : json_add_bool(o, "wait", false);
}

int start_request_new(const Arguments *a, const char *source, bool wait, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        r = add_all(o, a, source, wait);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int start_request_send(VarlinkClient *c, struct json_object *parameters)
{
        _cleanup_json_ struct json_object *owned = parameters;
        _cleanup_close_ int root = -EBADF;

        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        return varlink_client_send(c, MANAGER ".Start", TAKE_PTR(owned), true, &root, 1);
}

int start_request_source(const Arguments *a, char **ret)
{
        if (!a->positional || !a->positional[0]) {
                *ret = NULL;
                return 0;
        }
        return path_make_absolute(a->positional[0], ret);
}

int client_wait(VarlinkClient *c, int extra_fd, usec_t deadline, VarlinkReply *ret)
{
        for (;;) {
                struct pollfd p[] = {
                        {.fd = varlink_client_get_fd(c), .events = POLLIN},
                        {.fd = extra_fd, .events = POLLIN},
                };
                struct timespec timeout, *t = NULL;
                usec_t now;
                int r;

                r = varlink_client_process(c, ret);
                if (r != 0)
                        return r;
                if (varlink_client_wants_output(c))
                        p[0].events |= POLLOUT;
                if (deadline != USEC_INFINITY) {
                        now = now_monotonic();
                        if (now >= deadline)
                                return -ETIMEDOUT;
                        timeout.tv_sec = (time_t) ((deadline - now) / USEC_PER_SEC);
                        timeout.tv_nsec = (long) ((deadline - now) % USEC_PER_SEC) * 1000;
                        t = &timeout;
                }
                if (ppoll(p, ELEMENTSOF(p), t, NULL) < 0 && errno != EINTR)
                        return -errno;
                if (p[1].revents)
                        return -EINTR;
        }
}
