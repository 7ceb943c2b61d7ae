/* attach: the process of a cache's unit. It loads the cache, says in the unit's status what goes on, is
 * active while the cache is resident, and ends when the cache does. It outlives restarts of the manager: it
 * connects again when the manager says, through its file manager.ready, that it serves again; never before,
 * since connecting to a socket of systemd's would start a manager that was stopped on purpose. sd_notify(3),
 * systemd.service(5). */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/base-directory.h"
#include "ctl/cache-text.h"
#include "ctl/connection.h"
#include "ctl/notify.h"
#include "ctl/output.h"
#include "ctl/request.h"
#include "ctl/signals.h"
#include "ctl/verb.h"

#define READY_FILE       "manager.ready"
#define RECONNECT_WITHIN (60 * USEC_PER_SEC)
/* How long the first reply of Monitor, which is immediate where there is the cache, may take. */
#define CURRENT_WITHIN  (5 * USEC_PER_SEC)
#define STATUS_INTERVAL (500 * USEC_PER_MSEC)
/* What a load that has just moved is given until it moves again. */
#define EXTENSION (60 * USEC_PER_SEC)

typedef struct Attach {
        const Invocation *invocation;
        const char *name;     /* not owned */
        const Target *target; /* not owned */
        VarlinkClient *client;
        int signal_fd;
        char *ready_path;  /* RUN/manager.ready */
        char *runtime;     /* RUN */
        char *instance;    /* what the file said while we were connected; NULL: nothing */
        uint64_t progress; /* the most bytes that were seen loaded */
        bool ready;        /* READY=1 was said */
        usec_t notified;
} Attach;

static void attach_done(Attach *a)
{
        varlink_client_free(a->client);
        close_fd(a->signal_fd);
        free(a->ready_path);
        free(a->runtime);
        free(a->instance);
}

static char *read_instance(const Attach *a)
{
        char *text = NULL;

        /* A hint, not an authority: whoever answers is judged by the socket. */
        return fd_read_file_at(AT_FDCWD, a->ready_path, 256, &text, NULL) >= 0 ? text : NULL;
}

static void remember_instance(Attach *a)
{
        free(a->instance);
        a->instance = read_instance(a);
}

static void notify_loading(Attach *a, struct json_object *cache)
{
        char done[SIZE_TEXT_MAX], total[SIZE_TEXT_MAX];
        uint64_t loaded = cache_size(cache, "bytesLoaded"), bytes = cache_size(cache, "bytes");
        usec_t now = now_monotonic();

        if (bytes == 0 || (now - a->notified < STATUS_INTERVAL && loaded < bytes))
                return;
        a->notified = now;
        (void) notify_status("Loading '%s': %.0f%%, %s of %s", a->name,
                             (double) loaded * 100 / (double) bytes, format_size(done, loaded),
                             format_size(total, bytes));
        /* Only what moves is given more time. */
        if (loaded > a->progress)
                (void) notify_send("EXTEND_TIMEOUT_USEC=%" PRIu64, (uint64_t) EXTENSION);
        a->progress = MAX2(a->progress, loaded);
}

/* READY=1 is said once: only a cache that every file was read of is "ready". */
static void notify_resident(Attach *a, struct json_object *cache)
{
        _cleanup_free_ char *size = NULL, *holders = NULL, *view = NULL, *shown = NULL;
        struct json_object *leases = NULL;

        if (!a->ready)
                a->ready = notify_send("READY=1") >= 0;
        (void) json_get_array(cache, "leases", &leases);
        if (cache_size_describe(cache, &size) < 0 || leases_describe(leases, &holders) < 0 ||
            (json_get_path(cache, "view", &view) >= 0 && path_escape(view, &shown) < 0))
                return;
        (void) notify_status("'%s' is resident: %s%s%s; %s%s", a->name, size, shown ? " at " : "",
                             shown ? shown : "", *holders ? "held by " : "not in use", holders);
}

static int connection_failed(const Attach *a, int error)
{
        (void) notify_status("The manager failed to answer: %s", strerror(-error));
        return manager_call_error(a->target, error);
}

static int refused(const Attach *a, const VarlinkReply *reply)
{
        const char *message = NULL;

        if (json_get_string(reply->parameters, "message", &message) < 0)
                message = reply->error;
        (void) notify_status("%s", message);
        return manager_start_refusal(a->target, reply, a->invocation->arguments);
}

/* Follows Start's replies. 0 once the cache is ready, -EINTR when told to stop, else the exit code. */
static int attach_follow_load(Attach *a)
{
        for (;;) {
                _cleanup_varlink_reply_ VarlinkReply reply = {0};
                struct json_object *cache = NULL;
                int r;

                r = client_wait(a->client, a->signal_fd, USEC_INFINITY, &reply);
                if (r < 0)
                        return r == -EINTR ? r : connection_failed(a, r);
                if (reply.error)
                        return refused(a, &reply);
                if (json_get_object(reply.parameters, "cache", &cache) < 0)
                        return connection_failed(a, -EBADMSG);
                if (!reply.continues) {
                        remember_instance(a);
                        notify_resident(a, cache);
                        return 0;
                }
                notify_loading(a, cache);
        }
}

/* Where nothing says what to load, there must be a cache. 0 or the exit code. */
static int attach_find(Attach *a)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        int r;

        r = varlink_client_call(a->client, MANAGER ".Status", name_parameters(a->name), NULL, 0,
                                now_monotonic() + CURRENT_WITHIN, &reply);
        if (r < 0)
                return connection_failed(a, r);
        if (reply.error)
                return refused(a, &reply);
        remember_instance(a);
        return 0;
}

/* Loads, or finds, the cache. 0 once it is there, -EINTR when told to stop, else the exit code. */
static int attach_load(Attach *a)
{
        const Arguments *arguments = a->invocation->arguments;
        _cleanup_json_ struct json_object *parameters = NULL;
        _cleanup_free_ char *source = NULL;
        int r;

        r = start_request_source(arguments, &source);
        if (r >= 0)
                r = start_request_new(arguments, source, true, &parameters);
        if (r < 0)
                return output_error("cannot build the request: %s", strerror(-r));
        r = manager_connect(a->target, &a->client);
        if (r < 0)
                return manager_connect_error(a->target, r);
        /* Only the system has configured caches. */
        if (!source && a->target->scope != TARGET_SYSTEM)
                return attach_find(a);
        r = start_request_send(a->client, TAKE_PTR(parameters));
        return r < 0 ? connection_failed(a, r) : attach_follow_load(a);
}

/* A manager withdraws its file before it gives up what it has: then it is the manager that ends, and the
 * cache with it, which nobody wanted of the cache. */
static bool manager_is_leaving(const Attach *a)
{
        _cleanup_free_ char *instance = read_instance(a);

        return !streq_ptr(instance, a->instance);
}

/* One change of our cache: 1 to go on, 0 where it ended as it should, or EXIT_FAILURE's negative. */
static int handle_change(Attach *a, struct json_object *parameters)
{
        const char *kind = cache_string(parameters, "kind"), *message = NULL;
        struct json_object *cache = NULL;

        if (json_get_object(parameters, "cache", &cache) < 0)
                return 1;
        (void) json_get_string(cache, "message", &message);
        if (streq(kind, "stopped") && manager_is_leaving(a)) {
                (void) notify_status("'%s' was lost: its manager was stopped or restarted", a->name);
                output_note("'%s' was lost: its manager was stopped or restarted; start it again", a->name);
                return -EIO;
        }
        if (streq(kind, "stopped")) {
                (void) notify_status("'%s' is no longer resident%s%s", a->name, message ? ": " : "",
                                     message ? message : "");
                output_note("'%s' is no longer resident%s%s", a->name, message ? ": " : "",
                            message ? message : "");
                return 0;
        }
        if (streq(kind, "failed") || streq(cache_string(cache, "state"), "failed")) {
                (void) notify_status("%s", message ? message : "The cache failed");
                output_note("'%s' failed: %s", a->name, message ? message : "the manager gave no reason");
                return -EIO;
        }
        if (streq(kind, "draining") || streq(kind, "stopping"))
                (void) notify_status("'%s' is being stopped%s%s", a->name, message ? ": " : "",
                                     message ? message : "");
        else if (streq(cache_string(cache, "state"), "ready"))
                notify_resident(a, cache);
        else
                notify_loading(a, cache);
        return 1;
}

/* Follows the cache. The exit code where it ended; -EINTR when told to stop; -ENOTCONN where the manager went
 * away. */
static int attach_watch(Attach *a)
{
        usec_t deadline = now_monotonic() + CURRENT_WITHIN;
        int r;

        r = varlink_client_send(a->client, MANAGER ".Monitor", name_parameters(a->name), true, NULL, 0);
        while (r >= 0) {
                _cleanup_varlink_reply_ VarlinkReply reply = {0};

                r = client_wait(a->client, a->signal_fd, deadline, &reply);
                if (r == -ETIMEDOUT || (r > 0 && reply_is_error(&reply, "NoSuchCache"))) {
                        output_note("'%s' is no longer resident", a->name);
                        (void) notify_status("'%s' is no longer resident", a->name);
                        return EXIT_SUCCESS;
                }
                if (r < 0)
                        break;
                if (reply.error)
                        return refused(a, &reply);
                deadline = USEC_INFINITY;
                r = handle_change(a, reply.parameters);
                if (r <= 0)
                        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
                if (!reply.continues)
                        return output_error("the manager stopped reporting on '%s'", a->name);
        }
        if (r == -EINTR)
                return r;
        if (r == -ECONNRESET || r == -ENOTCONN || r == -EPIPE)
                return -ENOTCONN;
        return connection_failed(a, r);
}

/* Connects if the file says that another manager serves now. 1 connected, 0 not yet. */
static int try_reconnect(Attach *a)
{
        _cleanup_free_ char *instance = read_instance(a);
        VarlinkClient *client = NULL;
        int r;

        if (!instance || streq_ptr(instance, a->instance))
                return 0;
        r = manager_connect(a->target, &client);
        if (r < 0)
                return r == -ENOENT || r == -ECONNREFUSED ? 0 : r;
        varlink_client_free(a->client);
        a->client = client;
        free(a->instance);
        a->instance = TAKE_PTR(instance);
        return 1;
}

/* Waits for the file to change, or to appear. 0 connected, -EINTR when told to stop, else the exit code. */
static int attach_reconnect(Attach *a)
{
        usec_t deadline = now_monotonic() + RECONNECT_WITHIN;
        _cleanup_close_ int fd = -EBADF;
        char events[4096];
        int r;

        (void) notify_status("The manager went away; waiting for it to come back");
        output_note("the manager at %s went away; waiting for it to come back", a->target->socket);
        fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (fd < 0)
                return output_error("cannot watch for the manager: %s", strerror(errno));
        if (inotify_add_watch(fd, a->runtime, IN_MOVED_TO | IN_CREATE | IN_CLOSE_WRITE | IN_ONLYDIR) < 0)
                return output_error("cannot watch %s: %s; '%s list' shows what is left", a->runtime,
                                    strerror(errno), program_invocation_short_name);
        for (;;) {
                struct pollfd p[] = {
                        {.fd = fd, .events = POLLIN},
                        {.fd = a->signal_fd, .events = POLLIN},
                };
                usec_t now;

                r = try_reconnect(a);
                if (r < 0)
                        return manager_connect_error(a->target, r);
                if (r > 0)
                        return 0;
                now = now_monotonic();
                if (now >= deadline)
                        return output_error(
                                "the manager at %s did not come back within 60s: the cache '%s' is lost to "
                                "this service",
                                a->target->socket, a->name);
                if (poll(p, ELEMENTSOF(p), (int) ((deadline - now) / USEC_PER_MSEC) + 1) < 0 &&
                    errno != EINTR)
                        return output_error("cannot wait for the manager: %s", strerror(errno));
                if (p[1].revents)
                        return -EINTR;
                while (read(fd, events, sizeof(events)) > 0)
                        ;
        }
}

/* Told to stop: no new leases, and the memory goes with the last one. However long that takes is for
 * TimeoutStopSec= to bound. */
static int attach_stop(const Attach *a)
{
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        struct json_object *parameters = name_parameters(a->name);
        int r;

        (void) notify_send("STOPPING=1");
        (void) notify_status("Giving '%s' back", a->name);
        if (!parameters || json_add_bool(parameters, "drain", true) < 0) {
                json_object_put(parameters);
                return output_error("out of memory");
        }
        /* Where the manager is not connected, it is not to be started only to be told this. */
        r = a->client ? manager_connect(a->target, &client) : -ENOTCONN;
        if (r < 0) {
                json_object_put(parameters);
                return output_error("the manager is not there to give '%s' back", a->name);
        }
        r = varlink_client_send(client, MANAGER ".Stop", parameters, true, NULL, 0);
        while (r >= 0) {
                _cleanup_varlink_reply_ VarlinkReply reply = {0};
                _cleanup_free_ char *holders = NULL;
                struct json_object *cache = NULL, *leases = NULL;

                r = client_wait(client, -1, USEC_INFINITY, &reply);
                if (r < 0)
                        break;
                if (reply_is_error(&reply, "NoSuchCache"))
                        return EXIT_SUCCESS;
                if (reply.error)
                        return refused(a, &reply);
                if (!reply.continues)
                        return EXIT_SUCCESS;
                if (json_get_object(reply.parameters, "cache", &cache) >= 0 &&
                    json_get_array(cache, "leases", &leases) >= 0 && leases_describe(leases, &holders) >= 0)
                        (void) notify_status("'%s' is held by %s", a->name,
                                             *holders ? holders : "nobody any more");
        }
        return connection_failed(a, r);
}

/* Whether a manager that came back has the cache; otherwise it is lost. 0 or the exit code; -ENOTCONN where
 * the manager is gone again. */
static int attach_find_again(Attach *a)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        int r;

        r = varlink_client_call(a->client, MANAGER ".Status", name_parameters(a->name), NULL, 0,
                                now_monotonic() + CURRENT_WITHIN, &reply);
        if (r == -ECONNRESET || r == -ENOTCONN || r == -EPIPE)
                return -ENOTCONN;
        if (r < 0)
                return connection_failed(a, r);
        if (!reply_is_error(&reply, "NoSuchCache"))
                return reply.error ? refused(a, &reply) : 0;
        (void) notify_status("'%s' is no longer resident: it ended with the manager that had it", a->name);
        return output_error("'%s' is no longer resident: it ended with the manager that had it", a->name);
}

static int attach_run(Attach *a)
{
        int r;

        (void) notify_status("Asking for '%s'", a->name);
        r = attach_load(a);
        if (r != 0)
                return r == -EINTR ? attach_stop(a) : r;
        r = attach_watch(a);
        while (r == -ENOTCONN) {
                a->client = varlink_client_free(a->client);
                r = attach_reconnect(a);
                if (r == 0)
                        r = attach_find_again(a);
                if (r == 0)
                        r = attach_watch(a);
        }
        return r == -EINTR ? attach_stop(a) : r;
}

int verb_attach(const Invocation *i)
{
        const int watched[] = {SIGTERM, SIGINT};
        _cleanup_(attach_done) Attach a = {
                .invocation = i,
                .name = i->arguments->name,
                .signal_fd = -EBADF,
        };
        _cleanup_runtime_directory_ RuntimeDirectory directory = RUNTIME_DIRECTORY_INIT;
        _cleanup_targets_ Targets targets = {0};
        int r;

        r = verb_targets(i, TARGET_CHANGES, &targets);
        if (r != 0)
                return r;
        a.target = &targets.items[0];
        r = runtime_directory_place(a.target, &directory);
        if (r >= 0)
                r = text_format(&a.ready_path, "%s/%s" READY_FILE, directory.path, directory.prefix);
        if (r < 0)
                return output_error("cannot name the manager's directory: %s", strerror(-r));
        a.runtime = TAKE_PTR(directory.path);
        a.signal_fd = signals_watch(watched, ELEMENTSOF(watched), NULL);
        if (a.signal_fd < 0)
                return output_error("cannot watch for signals: %s", strerror(-a.signal_fd));
        return attach_run(&a);
}
