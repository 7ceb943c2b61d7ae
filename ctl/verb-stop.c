/* stop, gc, set-quota: giving memory back. */
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/cache-text.h"
#include "ctl/connection.h"
#include "ctl/help.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include "lib/endpoint.h"

#define TIMEOUT_DEFAULT (5 * USEC_PER_SEC)

static struct json_object *stop_parameters(const Arguments *a, const char *name)
{
        _cleanup_json_ struct json_object *o = name_parameters(name);

        if (!o || (a->force && json_add_bool(o, "force", true) < 0) ||
            (a->remove_view && json_add_bool(o, "removeView", true) < 0))
                return NULL;
        return TAKE_PTR(o);
}

static void say_stopped(const char *name, struct json_object *cache)
{
        _cleanup_free_ char *size = NULL;
        const char *message = NULL;

        if (cache_size_describe(cache, &size) < 0)
                return;
        (void) json_get_string(cache, "message", &message);
        if (streq(cache_string(cache, "state"), "failed")) {
                output_note("'%s' had failed and held nothing; its record is removed%s%s", name,
                            message ? ": " : "", message ? message : "");
                return;
        }
        output_note("'%s' is stopped: %s given back%s%s", name, size, message ? "; " : "",
                    message ? message : "");
}

/* One cache; *ret_cache is owned. 0 or the exit code. */
static int stop_one(const Arguments *a, const Target *t, VarlinkClient *client, const char *name,
                    usec_t deadline, struct json_object **ret_cache)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *parameters = stop_parameters(a, name), *cache = NULL;
        int r;

        if (!parameters)
                return output_error("out of memory");
        r = varlink_client_call(client, MANAGER ".Stop", parameters, NULL, 0, deadline, &reply);
        if (r == -ETIMEDOUT)
                return output_error(
                        "'%s' is not stopped yet, but will be: '%s status %s' shows it, a larger --timeout "
                        "waits longer",
                        name, program_invocation_short_name, name);
        if (r < 0)
                return manager_call_error(t, r);
        if (reply.error)
                return manager_refusal(t, &reply);
        if (json_get_object(reply.parameters, "cache", &cache) < 0)
                return manager_call_error(t, -EBADMSG);
        if (!a->quiet)
                say_stopped(name, cache);
        *ret_cache = json_object_get(cache);
        return 0;
}

/* Each of the listed caches, going on after a refusal. */
static int stop_listed(const Arguments *a, const Target *t, VarlinkClient *client, struct json_object *caches,
                       usec_t timeout, struct json_object *stopped)
{
        int code = EXIT_SUCCESS;

        for (size_t n = 0; n < json_object_array_length(caches); n++) {
                struct json_object *cache = json_object_array_get_idx(caches, n), *after = NULL;

                if (stop_one(a, t, client, cache_string(cache, "name"),
                             add_saturating(now_monotonic(), timeout), &after) != 0)
                        code = EXIT_FAILURE;
                else if (json_object_array_add(stopped, after) < 0)
                        json_object_put(after);
        }
        return code;
}

static int stop_all(const Invocation *i, const Target *t, usec_t timeout)
{
        const Arguments *a = i->arguments;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_json_ struct json_object *document = json_object_new_object(),
                                          *stopped = json_object_new_array();
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *caches = NULL;
        int r, code = EXIT_SUCCESS;

        if (!document || !stopped)
                return output_error("out of memory");
        r = manager_connect(t, &client);
        if (r < 0 && !endpoint_is_absent(r))
                return manager_connect_error(t, r);
        if (r >= 0) {
                r = varlink_client_call(client, MANAGER ".List", NULL, NULL, 0,
                                        add_saturating(now_monotonic(), timeout), &reply);
                if (r < 0)
                        return manager_call_error(t, r);
                if (reply.error)
                        return manager_refusal(t, &reply);
                if (json_get_array(reply.parameters, "caches", &caches) < 0)
                        return manager_call_error(t, -EBADMSG);
                code = stop_listed(a, t, client, caches, timeout, stopped);
        }
        if (!a->quiet && (!caches || json_object_array_length(caches) == 0))
                output_note("no caches to stop");
        if (!a->json)
                return code;
        if (json_add(document, "caches", TAKE_PTR(stopped)) < 0)
                return output_error("out of memory");
        r = output_json(document);
        return r != 0 ? r : code;
}

int verb_stop(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_json_ struct json_object *cache = NULL;
        _cleanup_targets_ Targets targets = {0};
        usec_t timeout = timeout_or(&a->timeout, TIMEOUT_DEFAULT);
        int r;

        if (!a->name && !a->all)
                return help_refer(i, "NAME, the cache's name, or --all is missing");
        if (a->name && a->all)
                return help_refer(i, "a name and --all cannot be combined");
        r = verb_targets(i, TARGET_CHANGES, &targets);
        if (r != 0)
                return r;
        if (a->all)
                return stop_all(i, &targets.items[0], timeout);
        r = manager_connect(&targets.items[0], &client);
        if (r < 0)
                return manager_connect_error(&targets.items[0], r);
        r = stop_one(a, &targets.items[0], client, a->name, add_saturating(now_monotonic(), timeout), &cache);
        if (r != 0)
                return r;
        return a->json ? output_json(cache) : EXIT_SUCCESS;
}

static void print_names(const char *label, struct json_object *names)
{
        if (!names || json_object_array_length(names) == 0)
                return;
        (void) printf("%s", label);
        for (size_t n = 0; n < json_object_array_length(names); n++)
                (void) printf(" %s", json_object_get_string(json_object_array_get_idx(names, n)));
        (void) fputc('\n', stdout);
}

static int gc_report(const Arguments *a, struct json_object *o)
{
        struct json_object *evicted = NULL, *skipped = NULL;
        char freed[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX];
        bool met = true;
        int r = EXIT_SUCCESS;

        (void) json_get_bool(o, "targetMet", &met);
        if (a->json)
                r = output_json(o);
        else {
                (void) json_get_array(o, "evicted", &evicted);
                (void) json_get_array(o, "skipped", &skipped);
                print_names(a->apply ? "evicted:" : "would evict:", evicted);
                print_names("skipped:", skipped);
                (void) printf("%s %s, %s %s\n", format_size(freed, cache_size(o, "evictedBytes")),
                              a->apply ? "given back" : "would be given back",
                              format_size(left, cache_size(o, "remainingBytes")),
                              a->apply ? "stay resident" : "would stay resident");
                if (!a->apply)
                        output_note("nothing was changed: --apply does it");
                r = output_finish();
        }
        if (r != EXIT_SUCCESS || met)
                return r;
        return output_error(
                "the target cannot be met: caches that are leased, loading or not yours stay resident");
}

int verb_gc(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_json_ struct json_object *parameters = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        int r;

        if (a->resident && a->cache_root)
                return help_refer(i, "--resident and --cache-root cannot be combined");
        if (!a->resident)
                return output_error(
                        "gc needs --resident, which collects caches in memory: disk generations, which it "
                        "collects without it, are not available in this version");
        parameters = name_parameters(NULL);
        if (!parameters ||
            (a->max_bytes.set && json_add_size(parameters, "maxBytes", a->max_bytes.value) < 0) ||
            (a->ttl.set && json_add_size(parameters, "idleUSec", a->ttl.value) < 0) ||
            json_add_bool(parameters, "apply", a->apply) < 0)
                return output_error("out of memory");
        r = changing_call(i, MANAGER ".Collect", TAKE_PTR(parameters),
                          timeout_or(&a->timeout, TIMEOUT_DEFAULT), NULL, &reply);
        return r != 0 ? r : gc_report(a, reply.parameters);
}

static int refuse_quota(const Invocation *i)
{
        _cleanup_free_ char *message = NULL;

        if (text_format(&message, "SIZE is " SIZE_FORMS ", or 'none', not '%s'",
                        i->arguments->positional[0]) < 0)
                return output_error("out of memory");
        return help_refer(i, message);
}

int verb_set_quota(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_json_ struct json_object *parameters = name_parameters(NULL);
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        char text[SIZE_TEXT_MAX], resident[SIZE_TEXT_MAX];
        uint64_t quota = 0;
        bool exceeded = false;
        int r;

        if (!streq(a->positional[0], "none")) {
                r = parse_size(a->positional[0], &quota);
                if (r < 0 || quota > INT64_MAX)
                        return refuse_quota(i);
                if (!parameters || json_add_size(parameters, "maxResidentBytes", quota) < 0)
                        return output_error("out of memory");
        }
        r = changing_call(i, MANAGER ".SetQuota", TAKE_PTR(parameters),
                          timeout_or(&a->timeout, TIMEOUT_DEFAULT), NULL, &reply);
        if (r != 0)
                return r;
        if (a->json)
                return output_json(reply.parameters);
        if (json_get_size(reply.parameters, "maxResidentBytes", &quota) < 0)
                (void) snprintf(text, sizeof(text), "none");
        else
                format_size(text, quota);
        (void) json_get_bool(reply.parameters, "exceeded", &exceeded);
        (void) printf(
                "quota %s, %s resident%s\n", text,
                format_size(resident, cache_size(reply.parameters, "residentBytes")),
                exceeded ? ", which exceeds it: nothing is evicted for that, but nothing more is admitted"
                         : "");
        return output_finish();
}
