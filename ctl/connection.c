#include "ctl/connection.h"

#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/cache-text.h"
#include "ctl/output.h"
#include "lib/endpoint.h"

int manager_connect(const Target *t, VarlinkClient **ret)
{
        return endpoint_connect(t->socket, ret);
}

int manager_connect_error(const Target *t, int error)
{
        if (endpoint_is_absent(error) && t->scope == TARGET_SYSTEM)
                return output_error(
                        "no manager listens at %s: the system's manager is started with 'systemctl start "
                        "iloaderd.socket'",
                        t->socket);
        if (endpoint_is_absent(error))
                return output_error(
                        "no manager listens at %s: 'iloader start' starts one with its first cache",
                        t->socket);
        if (error == -EPERM)
                return output_error("the manager at %s belongs neither to you nor to root: not trusting it",
                                    t->socket);
        return output_error("cannot connect to the manager at %s: %s", t->socket, strerror(-error));
}

int manager_call_error(const Target *t, int error)
{
        switch (error) {
        case -ETIMEDOUT:
                return output_error("the manager at %s did not answer in time", t->socket);
        case -ENOTCONN:
        case -ECONNRESET:
        case -EPIPE:
                return output_error("the manager at %s went away: %s, and try again", t->socket,
                                    t->scope == TARGET_SYSTEM
                                            ? "see 'systemctl status iloaderd.service' and its journal"
                                            : "see its log");
        case -EBADMSG:
        case -EPROTO:
                return output_error("what listens at %s does not speak the manager's protocol", t->socket);
        default:
                return output_error("talking to the manager at %s failed: %s", t->socket, strerror(-error));
        }
}

bool reply_is_error(const VarlinkReply *reply, const char *name)
{
        const char *rest = reply->error ? startswith(reply->error, MANAGER ".") : NULL;

        return rest && streq(rest, name);
}

/* The standard error names a parameter and nothing else: what the caller gave it by, and what it must be. */
static const struct {
        const char *parameter, *option, *rule;
        size_t offset; /* of the text in Arguments; 0: none */
} parameter_rules[] = {
        {"source", "MODEL_DIR", "it must be the path of a directory"},
        {"view", "--view", "it must be a path"},
        {"pidFile", "--pid-file", "it must be a path"},
        {"logFile", "--log-file", "it must be a path"},
        {"patterns", "--pattern", "patterns are not empty, not longer than a path, and not very many"},
        {"excludes", "--exclude", "patterns are not empty, not longer than a path, and not very many"},
        {"owner", "--owner", "it must be a user of this system, by name or number",
         offsetof(Arguments, owner)},
        {"group", "--group",
         "it must be a group of this system, by name or number, and one that its owner is in",
         offsetof(Arguments, group)},
        {"mode", "--mode", "it must be 0400, 0440 or 0444"},
        {"idleTTLUSec", "--idle-ttl", "it must be longer than nothing"},
};

static int refuse_parameter(const Target *t, const char *parameter, const Arguments *a)
{
        for (size_t i = 0; i < ELEMENTSOF(parameter_rules); i++) {
                const size_t offset = parameter_rules[i].offset;
                const char *value = a && offset ? *(char *const *) ((const char *) a + offset) : NULL;

                if (!streq(parameter_rules[i].parameter, parameter))
                        continue;
                if (value)
                        return output_error("the manager at %s does not take '%s' for %s: %s", t->socket,
                                            value, parameter_rules[i].option, parameter_rules[i].rule);
                return output_error("the manager at %s does not take this value of %s: %s", t->socket,
                                    parameter_rules[i].option, parameter_rules[i].rule);
        }
        return output_error("the manager at %s does not take this value of '%s': see the options' help",
                            t->socket, parameter);
}

int no_such_cache(const char *name, const Target *const *answered, size_t n)
{
        _cleanup_free_ char *places = NULL, *unit = NULL;
        const char *program = program_invocation_short_name;
        bool system = false;
        int r;

        r = text_format(&places, "%s (%s)", target_describe(answered[0]), answered[0]->socket);
        for (size_t i = 0; r >= 0 && i < n; i++) {
                system = system || answered[i]->scope == TARGET_SYSTEM;
                if (i > 0)
                        r = text_format(&places, "%s (%s) nor at %s (%s)", target_describe(answered[0]),
                                        answered[0]->socket, target_describe(answered[i]),
                                        answered[i]->socket);
        }
        /* Its name may be one of the system's configuration, which is not ours to read. */
        if (r >= 0 && system)
                r = text_format(&unit,
                                "; where " ENDPOINT_SYSTEM_CONFIGURATION
                                "/caches/%s.conf describes it, 'systemctl start iloader@%s' loads it",
                                name, name);
        if (r < 0)
                return output_error("out of memory");
        return output_error("there is no cache '%s' at %s: '%s list' shows what there is%s", name, places,
                            program, unit ? unit : "");
}

/* Errors that carry no message of their own. */
static int refusal_without_message(const Target *t, const VarlinkReply *reply, const Arguments *a)
{
        const char *text = NULL;

        if (reply_is_error(reply, "NoSuchCache")) {
                if (json_get_string(reply->parameters, "name", &text) < 0)
                        text = "?";
                return no_such_cache(text, &t, 1);
        }
        if (streq(reply->error, "org.varlink.service.InvalidParameter")) {
                if (json_get_string(reply->parameters, "parameter", &text) < 0)
                        text = "?";
                return refuse_parameter(t, text, a);
        }
        if (streq(reply->error, "org.varlink.service.PermissionDenied") && t->scope != TARGET_SYSTEM)
                return output_error(
                        "the manager at %s does not allow this: a user's manager serves that user and root, "
                        "and all its caches are that user's: use --system for others",
                        t->socket);
        if (streq(reply->error, "org.varlink.service.PermissionDenied"))
                return output_error(
                        "the manager at %s does not allow this to you: its owner, root, or (for starting) "
                        "a member of group 'iloader' may",
                        t->socket);
        if (startswith(reply->error, "org.varlink.service."))
                return output_error(
                        "the manager at %s does not know this call (%s): it may be of another version",
                        t->socket, reply->error);
        return output_error("the manager at %s refused: %s", t->socket, reply->error);
}

int manager_start_refusal(const Target *t, const VarlinkReply *reply, const Arguments *a)
{
        struct json_object *leases = NULL;
        const char *message = NULL;

        if (json_get_string(reply->parameters, "message", &message) < 0 || !*message)
                return refusal_without_message(t, reply, a);
        output_note("%s", message);
        if (json_get_array(reply->parameters, "leases", &leases) >= 0)
                leases_print(stderr, "  held by ", leases);
        return EXIT_FAILURE;
}

int manager_refusal(const Target *t, const VarlinkReply *reply)
{
        return manager_start_refusal(t, reply, NULL);
}

struct json_object *name_parameters(const char *name)
{
        struct json_object *o = json_object_new_object();

        if (o && name && json_add_string(o, "name", name) < 0) {
                json_object_put(o);
                return NULL;
        }
        return o;
}

int verb_targets(const Invocation *i, TargetUse use, Targets *ret)
{
        _cleanup_free_ char *error = NULL;
        int r;

        r = targets_resolve(i->arguments, i->admin, use, ret, &error);
        if (r >= 0)
                return 0;
        output_note("%s: %s", i->verb->name, error ? error : strerror(-r));
        if (i->verb->flags & VERB_COMMAND)
                return EXIT_RUN_FAILED;
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
}

int changing_call(const Invocation *i, const char *method, struct json_object *parameters, usec_t timeout,
                  Targets *ret_targets, VarlinkReply *ret)
{
        _cleanup_json_ struct json_object *owned = parameters;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        _cleanup_targets_ Targets targets = {0};
        int r;

        if (!owned)
                return output_error("out of memory");
        r = verb_targets(i, TARGET_CHANGES, &targets);
        if (r != 0)
                return r;
        r = manager_connect(&targets.items[0], &client);
        if (r < 0)
                return manager_connect_error(&targets.items[0], r);
        r = varlink_client_call(client, method, TAKE_PTR(owned), NULL, 0,
                                add_saturating(now_monotonic(), timeout), &reply);
        if (r < 0)
                return manager_call_error(&targets.items[0], r);
        if (reply.error)
                return manager_refusal(&targets.items[0], &reply);
        if (ret_targets) {
                *ret_targets = targets;
                targets = (Targets){0};
        }
        *ret = reply;
        reply = (VarlinkReply){0};
        return 0;
}

static bool is_no_such_cache(const VarlinkReply *reply)
{
        return reply_is_error(reply, "NoSuchCache");
}

static int ask_one(const Target *t, const char *method, struct json_object *parameters, bool more,
                   usec_t timeout, VarlinkClient **ret_client, VarlinkReply *ret)
{
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        int r;

        r = manager_connect(t, &client);
        if (r < 0)
                return r;
        r = varlink_client_send(client, method, json_object_get(parameters), more, NULL, 0);
        if (r >= 0)
                r = varlink_client_receive(client, add_saturating(now_monotonic(), timeout), ret);
        if (r < 0)
                /* Told apart from "nobody listens", which another manager may make up for. */
                return endpoint_is_absent(r) ? -ECONNRESET : r;
        *ret_client = TAKE_PTR(client);
        return 0;
}

int reading_call(const Invocation *i, const char *method, struct json_object *parameters, bool more,
                 usec_t timeout, ReplyIsMiss is_miss, VarlinkClient **ret_client, bool *ret_absent,
                 VarlinkReply *ret)
{
        _cleanup_json_ struct json_object *owned = parameters;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        _cleanup_targets_ Targets targets = {0};
        const Target *answered = NULL, *missed[2];
        size_t n_missed = 0;
        int r, first_error = 0;

        if (!owned)
                return output_error("out of memory");
        if (!is_miss)
                is_miss = is_no_such_cache;
        r = verb_targets(i, TARGET_READS, &targets);
        if (r != 0)
                return r;
        for (size_t n = 0; n < targets.n; n++) {
                _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
                _cleanup_varlink_reply_ VarlinkReply p = {0};
                const Target *t = &targets.items[n];

                r = ask_one(t, method, owned, more, timeout, &c, &p);
                if (r < 0) {
                        if (n == 0)
                                first_error = r;
                        if (!answered && !endpoint_is_absent(r))
                                return r == -EPERM || r == -EACCES ? manager_connect_error(t, r)
                                                                   : manager_call_error(t, r);
                        continue;
                }
                if (reply_is_error(&p, "NoSuchCache"))
                        missed[n_missed++] = t;
                /* Where both miss, the first one's words count. */
                if (n > 0 && is_miss(&p) && answered)
                        break;
                varlink_client_free(client);
                varlink_reply_done(&reply);
                client = TAKE_PTR(c);
                reply = p;
                p = (VarlinkReply){0};
                answered = t;
                if (!is_miss(&reply))
                        break;
        }
        if (!answered && ret_absent && targets.n > 1 && targets.items[0].scope == TARGET_USER) {
                *ret_absent = true;
                return 0;
        }
        if (!answered)
                return manager_connect_error(&targets.items[0], first_error);
        if (answered != &targets.items[0] && !is_miss(&reply))
                output_note("answered by %s (%s)", target_describe(answered), answered->socket);
        if (n_missed > 0 && reply_is_error(&reply, "NoSuchCache") && i->arguments->name)
                return no_such_cache(i->arguments->name, missed, n_missed);
        if (reply.error)
                return manager_refusal(answered, &reply);
        if (ret_client)
                *ret_client = TAKE_PTR(client);
        *ret = reply;
        reply = (VarlinkReply){0};
        return 0;
}

usec_t timeout_or(const OptionNumber *n, usec_t default_value)
{
        return n->set ? n->value : default_value;
}
