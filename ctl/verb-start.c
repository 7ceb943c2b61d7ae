/* start: a checkpoint becomes resident; its view is printed. */
#include <signal.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/cache-text.h"
#include "ctl/checkpoint-note.h"
#include "ctl/connection.h"
#include "ctl/embedded.h"
#include "ctl/help.h"
#include "ctl/output.h"
#include "ctl/progress.h"
#include "ctl/request.h"
#include "ctl/signals.h"
#include "ctl/verb.h"
#include "lib/endpoint.h"

#define WAIT_TIMEOUT_DEFAULT (600 * USEC_PER_SEC)

/* Connects; in the user's own scope a manager is started where none is. 0 or the exit code. */
static int start_connect(const Target *t, usec_t deadline, VarlinkClient **ret)
{
        _cleanup_free_ char *error = NULL;
        int r;

        r = manager_connect(t, ret);
        if (r >= 0)
                return 0;
        if (t->scope == TARGET_SYSTEM || !endpoint_is_absent(r))
                return manager_connect_error(t, r);
        r = embedded_connect(t, deadline, ret, NULL, &error);
        if (r >= 0)
                return 0;
        return output_error("%s", error ? error : strerror(-r));
}

/* Where the view is or will be: as the manager says, as was asked for, or the default place. NULL: not known.
 */
static int view_of(const Invocation *i, const Target *t, struct json_object *cache, char **ret)
{
        _cleanup_free_ char *path = NULL;
        int r;

        r = json_get_path(cache, "view", &path);
        if (r < 0 && r != -ENOENT)
                return r;
        if (r == -ENOENT && i->arguments->view)
                r = text_format(&path, "%s", i->arguments->view);
        else if (r == -ENOENT && t->scope == TARGET_SYSTEM)
                r = text_format(&path, ENDPOINT_SYSTEM_RUNTIME "/views/%s", i->arguments->name);
        else if (r == -ENOENT && t->scope == TARGET_USER)
                r = text_format(&path, "%s/views/%s", t->base, i->arguments->name);
        if (r < 0 && r != -ENOENT)
                return r;
        *ret = TAKE_PTR(path);
        return 0;
}

static void say_summary(const char *name, struct json_object *cache, bool reused, usec_t duration)
{
        char span[TIMESPAN_TEXT_MAX], rate[SIZE_TEXT_MAX];
        _cleanup_free_ char *size = NULL;
        uint64_t bytes = cache_size(cache, "bytes");

        if (cache_size_describe(cache, &size) < 0)
                return;
        if (reused)
                output_note("'%s' is resident already: %s", name, size);
        else
                output_note("'%s' is resident: %s in %s (%s/s)", name, size, format_timespan(span, duration),
                            format_size(rate, (uint64_t) ((double) bytes * (double) USEC_PER_SEC /
                                                          (double) MAX2(duration, (usec_t) 1))));
}

static int finish(const Invocation *i, const Target *t, struct json_object *parameters, usec_t began)
{
        const Arguments *a = i->arguments;
        _cleanup_free_ char *view = NULL;
        struct json_object *cache = NULL;
        bool reused = false, ready;

        if (json_get_object(parameters, "cache", &cache) < 0 || view_of(i, t, cache, &view) < 0)
                return manager_call_error(t, -EBADMSG);
        (void) json_get_bool(parameters, "reused", &reused);
        ready = streq(cache_string(cache, "state"), "ready");
        if (!a->quiet && ready)
                say_summary(a->name, cache, reused, now_monotonic() - began);
        else if (!ready)
                output_note("'%s' is %s; '%s status %s' tells how far it is", a->name,
                            cache_string(cache, "state"), program_invocation_short_name, a->name);
        if (a->json)
                return output_json(cache);
        return view ? output_path(view) : EXIT_SUCCESS;
}

/* The load belongs to the manager and goes on without us. */
static int give_up(const Invocation *i, int error, int signal_fd)
{
        const char *name = i->arguments->name;
        char span[TIMESPAN_TEXT_MAX];

        if (error == -EINTR) {
                int sig = signals_take(signal_fd);

                output_note(
                        "interrupted; '%s' goes on loading: '%s status %s' shows it, '%s stop %s' ends it",
                        name, program_invocation_short_name, name, program_invocation_short_name, name);
                return 128 + sig;
        }
        return output_error(
                "'%s' was not ready within %s; it goes on loading: '%s status %s' shows it, a larger "
                "--wait-timeout waits longer, '%s stop %s' ends it",
                name, format_timespan(span, timeout_or(&i->arguments->wait_timeout, WAIT_TIMEOUT_DEFAULT)),
                program_invocation_short_name, name, program_invocation_short_name, name);
}

static int follow(const Invocation *i, const Target *t, VarlinkClient *client, usec_t began, usec_t deadline)
{
        const int watched[] = {SIGINT, SIGTERM, SIGHUP};
        _cleanup_close_ int signal_fd = -EBADF;
        Progress progress;

        signal_fd = signals_watch(watched, ELEMENTSOF(watched), NULL);
        if (signal_fd < 0)
                return output_error("cannot watch for signals: %s", strerror(-signal_fd));
        progress_init(&progress, i->arguments->name, stderr, i->arguments->quiet);
        for (;;) {
                _cleanup_varlink_reply_ VarlinkReply reply = {0};
                struct json_object *cache = NULL;
                int r;

                r = client_wait(client, signal_fd, deadline, &reply);
                if (r < 0)
                        progress_clear(&progress);
                if (r == -EINTR || r == -ETIMEDOUT)
                        return give_up(i, r, signal_fd);
                if (r < 0)
                        return manager_call_error(t, r);
                if (reply.error || !reply.continues) {
                        progress_clear(&progress);
                        return reply.error ? manager_start_refusal(t, &reply, i->arguments)
                                           : finish(i, t, reply.parameters, began);
                }
                if (json_get_object(reply.parameters, "cache", &cache) >= 0 && cache_size(cache, "bytes") > 0)
                        progress_update(&progress, cache_size(cache, "bytesLoaded"),
                                        cache_size(cache, "bytes"), now_monotonic());
        }
}

int verb_start(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_json_ struct json_object *parameters = NULL;
        _cleanup_targets_ Targets targets = {0};
        _cleanup_free_ char *source = NULL;
        usec_t began, deadline;
        int r;

        if (!a->name)
                return help_refer(i, "--name NAME is missing");
        r = verb_targets(i, TARGET_MAKES, &targets);
        if (r != 0)
                return r;
        r = start_request_source(a, &source);
        if (r < 0)
                return output_error("cannot make '%s' an absolute path: %s", a->positional[0], strerror(-r));
        if (!source && targets.items[0].scope != TARGET_SYSTEM)
                return help_refer(i, "MODEL_DIR is missing");
        r = start_request_new(a, source, !a->no_wait, &parameters);
        if (r < 0)
                return output_error("cannot build the request: %s", strerror(-r));
        if (source && !a->patterns && !a->quiet)
                checkpoint_note(source);
        began = now_monotonic();
        deadline = add_saturating(began, timeout_or(&a->wait_timeout, WAIT_TIMEOUT_DEFAULT));
        r = start_connect(&targets.items[0], deadline, &client);
        if (r != 0)
                return r;
        r = start_request_send(client, TAKE_PTR(parameters));
        if (r < 0)
                return manager_call_error(&targets.items[0], r);
        return follow(i, &targets.items[0], client, began, deadline);
}
