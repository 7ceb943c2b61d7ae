/* selftest: everything once, for real: a small checkpoint, a manager of its own in a temporary BASE, the view
 * read and compared, a lease that refuses the stop, the stop, and nothing left. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/process.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/cache-text.h"
#include "ctl/connection.h"
#include "ctl/embedded.h"
#include "ctl/output.h"
#include "ctl/request.h"
#include "ctl/verb.h"
#include "iloader/iloader.h"
#include "lib/endpoint.h"

#define NAME    "selftest"
#define TIMEOUT (60 * USEC_PER_SEC)
/* Files that iloader may have made below the temporary directory, generously. */
#define ENTRIES_MAX 1000U

typedef struct Selftest {
        const Invocation *invocation;
        char *directory, *model, *view; /* owned */
        Target target;                  /* owns its strings */
        VarlinkClient *client;
        EmbeddedManager manager;
        char *failure; /* why the running step failed */
} Selftest;

typedef int (*StepFunction)(Selftest *s);

/* What a checkpoint has: small texts, large weights, and odd ones. */
static const struct {
        const char *path;
        size_t size;
} model_files[] = {
        {"config.json", 512},
        {"tokenizer.json", 20000},
        {"model-00001-of-00002.safetensors", MIB(3) + 17},
        {"model-00002-of-00002.safetensors", MIB(1)},
        {"extra/a file with spaces", 1},
        {"extra/empty", 0},
};

static void selftest_done(Selftest *s)
{
        varlink_client_free(s->client);
        close_fd(s->manager.pidfd);
        free(s->directory);
        free(s->model);
        free(s->view);
        free(s->target.socket);
        free(s->target.base);
        free(s->failure);
}

static int _printf_(3, 4) fails(Selftest *s, int r, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void) text_vformat(&s->failure, format, ap);
        va_end(ap);
        return r < 0 ? r : -EIO;
}

/* Bytes that no two files share, without a source of randomness. */
static void fill(unsigned char *data, size_t n, uint64_t seed)
{
        uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;

        for (size_t i = 0; i < n; i++) {
                /* xorshift64, Marsaglia 2003 */
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                data[i] = (unsigned char) x;
        }
}

static int step_model(Selftest *s)
{
        _cleanup_close_ int dir = -EBADF;
        int r;

        if (mkdir(s->model, 0700) < 0)
                return fails(s, -errno, "cannot make %s: %s", s->model, strerror(errno));
        dir = open(s->model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 || mkdirat(dir, "extra", 0700) < 0)
                return fails(s, -errno, "cannot make %s/extra: %s", s->model, strerror(errno));
        for (size_t i = 0; i < ELEMENTSOF(model_files); i++) {
                _cleanup_free_ unsigned char *data = malloc(model_files[i].size + 1);
                _cleanup_close_ int fd =
                        openat(dir, model_files[i].path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

                if (!data || fd < 0)
                        return fails(s, -errno, "cannot make %s: %s", model_files[i].path, strerror(errno));
                fill(data, model_files[i].size, i + 1);
                r = fd_write_full(fd, data, model_files[i].size);
                if (r < 0)
                        return fails(s, r, "cannot write %s: %s", model_files[i].path, strerror(-r));
        }
        return 0;
}

static int step_manager(Selftest *s)
{
        int r;

        r = embedded_connect(&s->target, now_monotonic() + TIMEOUT, &s->client, &s->manager, &s->failure);
        if (r >= 0 && s->manager.pidfd < 0)
                return fails(s, -EEXIST, "a manager was there already at %s", s->target.socket);
        return r;
}

/* A call that must succeed. */
static int call(Selftest *s, const char *method, struct json_object *parameters, VarlinkReply *ret)
{
        const char *message = NULL;
        int r;

        r = varlink_client_call(s->client, method, parameters, NULL, 0, now_monotonic() + TIMEOUT, ret);
        if (r < 0)
                return fails(s, r, "%s: %s", method, strerror(-r));
        if (!ret->error)
                return 0;
        if (json_get_string(ret->parameters, "message", &message) < 0)
                message = "no message";
        return fails(s, -EREMOTEIO, "%s: %s: %s", method, ret->error, message);
}

static int step_load(Selftest *s)
{
        const Arguments arguments = {.name = (char *) NAME};
        struct json_object *parameters = NULL, *cache = NULL;
        const char *message = NULL;
        int r;

        r = start_request_new(&arguments, s->model, true, &parameters);
        if (r >= 0)
                r = start_request_send(s->client, parameters);
        while (r >= 0) {
                _cleanup_varlink_reply_ VarlinkReply reply = {0};

                r = client_wait(s->client, -1, now_monotonic() + TIMEOUT, &reply);
                if (r < 0)
                        break;
                if (reply.error) {
                        if (json_get_string(reply.parameters, "message", &message) < 0)
                                message = "no message";
                        return fails(s, -EREMOTEIO, "%s: %s", reply.error, message);
                }
                if (reply.continues)
                        continue;
                if (json_get_object(reply.parameters, "cache", &cache) < 0 ||
                    !streq(cache_string(cache, "state"), "ready") ||
                    json_get_path(cache, "view", &s->view) < 0)
                        return fails(s, -EPROTO, "the cache is not ready, or has no view");
                return 0;
        }
        return fails(s, r, "%s", strerror(-r));
}

static int read_file(const char *directory, const char *name, char **ret, size_t *ret_n)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = path_join(directory, name, &path);
        if (r < 0)
                return r;
        /* Links are followed: that is what a view is about. */
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd_read_file(fd, MIB(8), ret, ret_n);
}

static int step_read(Selftest *s)
{
        for (size_t i = 0; i < ELEMENTSOF(model_files); i++) {
                _cleanup_free_ char *source = NULL, *view = NULL;
                const char *path = model_files[i].path;
                size_t n_source = 0, n_view = 0;
                int r;

                r = read_file(s->model, path, &source, &n_source);
                if (r >= 0)
                        r = read_file(s->view, path, &view, &n_view);
                if (r < 0)
                        return fails(s, r, "cannot read %s: %s", path, strerror(-r));
                if (n_source != n_view || !source || !view || memcmp(source, view, n_view) != 0)
                        return fails(s, -EIO, "%s reads differently out of the view", path);
        }
        return 0;
}

static int step_lease(Selftest *s)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        iloader_client *client = NULL;
        int r;

        r = iloader_client_open(s->target.socket, TIMEOUT, &client);
        if (r < 0)
                return fails(s, r, "cannot connect a second time: %s", strerror(-r));
        r = iloader_lease_acquire(client, NAME, -1, NULL);
        if (r < 0)
                fails(s, r, "cannot acquire a lease: %s", iloader_client_last_error(client));
        else {
                r = varlink_client_call(s->client, MANAGER ".Stop", name_parameters(NAME), NULL, 0,
                                        now_monotonic() + TIMEOUT, &reply);
                if (r < 0)
                        fails(s, r, "stop: %s", strerror(-r));
                else if (!reply_is_error(&reply, "CacheLeased"))
                        r = fails(s, -EPROTO, "a leased cache was stopped");
        }
        if (r >= 0) {
                r = iloader_lease_release(client, NAME, -1);
                if (r < 0)
                        fails(s, r, "cannot release the lease: %s", iloader_client_last_error(client));
        }
        iloader_client_close(client);
        return r;
}

static int step_stop(Selftest *s)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0}, list = {0};
        struct json_object *parameters = name_parameters(NAME), *caches = NULL;
        int r;

        if (!parameters || json_add_bool(parameters, "removeView", true) < 0) {
                json_object_put(parameters);
                return fails(s, -ENOMEM, "out of memory");
        }
        r = call(s, MANAGER ".Stop", parameters, &reply);
        if (r >= 0)
                r = call(s, MANAGER ".List", NULL, &list);
        if (r < 0)
                return r;
        if (json_get_array(list.parameters, "caches", &caches) < 0 || json_object_array_length(caches) != 0)
                return fails(s, -EPROTO, "the cache is still listed");
        if (faccessat(AT_FDCWD, s->view, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return fails(s, -EEXIST, "the view %s is still there", s->view);
        return 0;
}

static int step_leave(Selftest *s)
{
        int r, status = 0;

        s->client = varlink_client_free(s->client);
        r = pidfd_send_signal_to(s->manager.pidfd, SIGTERM);
        if (r >= 0)
                r = pidfd_wait(s->manager.pidfd, now_monotonic() + TIMEOUT, &status);
        if (r < 0)
                return fails(s, r, "the manager does not end: %s", strerror(-r));
        s->manager.pidfd = close_fd(s->manager.pidfd);
        if (status != 0)
                return fails(s, -EIO, "the manager ended with exit code %d", status);
        if (faccessat(AT_FDCWD, s->target.socket, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return fails(s, -EEXIST, "the manager left its socket");
        return 0;
}

static const struct {
        const char *name;
        StepFunction function;
} steps[] = {
        {"make a small checkpoint", step_model},
        {"start a manager", step_manager},
        {"load the checkpoint", step_load},
        {"read every file out of the view", step_read},
        {"lease the cache, and be refused to stop it", step_lease},
        {"stop it, with nothing left", step_stop},
        {"end the manager", step_leave},
};

static int prepare(Selftest *s)
{
        const char *tmp = getenv("TMPDIR");
        int r;

        r = text_format(&s->directory, "%s/iloader-selftest-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
        if (r < 0)
                return r;
        if (!mkdtemp(s->directory)) {
                r = -errno;
                (void) output_error("cannot make %s: %s", s->directory, strerror(errno));
                return r;
        }
        s->target.scope = TARGET_USER;
        if ((r = path_join(s->directory, "model", &s->model)) < 0 ||
            (r = path_join(s->directory, "base", &s->target.base)) < 0)
                return r;
        return endpoint_user_socket(s->target.base, &s->target.socket);
}

/* Whatever step failed, nothing may run on. */
static void end_manager(Selftest *s)
{
        int status;

        if (s->manager.pidfd < 0)
                return;
        (void) pidfd_send_signal_to(s->manager.pidfd, SIGTERM);
        if (pidfd_wait(s->manager.pidfd, now_monotonic() + 5 * USEC_PER_SEC, &status) < 0)
                (void) pidfd_send_signal_to(s->manager.pidfd, SIGKILL);
}

int verb_selftest(const Invocation *i)
{
        _cleanup_(selftest_done) Selftest s = {.invocation = i, .manager = EMBEDDED_MANAGER_INIT};
        char span[TIMESPAN_TEXT_MAX];
        usec_t began = now_monotonic();
        int r;

        r = prepare(&s);
        for (size_t n = 0; r >= 0 && n < ELEMENTSOF(steps); n++) {
                r = steps[n].function(&s);
                (void) printf("%-5s %s%s%s\n", r >= 0 ? "ok" : "fail", steps[n].name, s.failure ? ": " : "",
                              s.failure ? s.failure : "");
        }
        end_manager(&s);
        if (s.directory && r >= 0)
                (void) path_remove_tree(AT_FDCWD, s.directory, ENTRIES_MAX);
        if (r < 0)
                return output_error("the self-test failed%s%s",
                                    s.directory ? "; what it left for inspection is in " : "",
                                    s.directory ? s.directory : "");
        (void) printf("everything works (%s)\n", format_timespan(span, now_monotonic() - began));
        return output_finish();
}
