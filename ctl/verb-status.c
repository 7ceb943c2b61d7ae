/* status, view, manifest, list: what there is. */
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/size.h"
#include "ctl/cache-text.h"
#include "ctl/connection.h"
#include "ctl/output.h"
#include "ctl/verb.h"

#define TIMEOUT_DEFAULT      (5 * USEC_PER_SEC)
#define LIST_TIMEOUT_DEFAULT (1 * USEC_PER_SEC)

static int protocol_error(void)
{
        return output_error("the manager's reply lacks what was asked for: it may be of another version");
}

/* What a manager says of the cache that was named. 0 or the exit code. */
static int ask(const Invocation *i, const char *method, VarlinkReply *ret)
{
        const Arguments *a = i->arguments;

        return reading_call(i, method, name_parameters(a->name), false,
                            timeout_or(&a->timeout, TIMEOUT_DEFAULT), NULL, NULL, NULL, ret);
}

int verb_status(const Invocation *i)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *cache = NULL;
        int r;

        r = ask(i, MANAGER ".Status", &reply);
        if (r != 0)
                return r;
        if (json_get_object(reply.parameters, "cache", &cache) < 0)
                return protocol_error();
        if (i->arguments->json)
                return output_json(cache);
        cache_print(stdout, cache);
        return output_finish();
}

int verb_view(const Invocation *i)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        _cleanup_free_ char *path = NULL;
        int r;

        r = ask(i, MANAGER ".View", &reply);
        if (r != 0)
                return r;
        if (json_get_path(reply.parameters, "view", &path) < 0)
                return protocol_error();
        return output_path(path);
}

/* A row per file, as they come: a manifest may be long. */
static int print_files(struct json_object *parameters, bool *first)
{
        struct json_object *files = NULL;

        if (json_get_array(parameters, "files", &files) < 0)
                return -EBADMSG;
        for (size_t n = 0; n < json_object_array_length(files); n++) {
                const char *text = json_object_to_json_string_ext(json_object_array_get_idx(files, n),
                                                                  JSON_C_TO_STRING_NOSLASHESCAPE);

                if (!text)
                        return -ENOMEM;
                (void) printf("%s\n    %s", *first ? "" : ",", text);
                *first = false;
        }
        return 0;
}

int verb_manifest(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        usec_t timeout = timeout_or(&a->timeout, TIMEOUT_DEFAULT);
        bool first = true, more;
        int r;

        r = reading_call(i, MANAGER ".Manifest", name_parameters(a->name), true, timeout, NULL, &client, NULL,
                         &reply);
        if (r != 0)
                return r;
        (void) fputs("{\n  \"files\": [", stdout);
        for (;;) {
                r = print_files(reply.parameters, &first);
                if (r < 0)
                        return protocol_error();
                more = reply.continues;
                varlink_reply_done(&reply);
                if (!more)
                        break;
                r = varlink_client_receive(client, add_saturating(now_monotonic(), timeout), &reply);
                if (r < 0)
                        return output_error("the manager broke off in the middle of the manifest: %s",
                                            strerror(-r));
                if (reply.error)
                        return output_error("the manager broke off in the middle of the manifest: %s",
                                            reply.error);
        }
        (void) fputs(first ? "]\n}\n" : "\n  ]\n}\n", stdout);
        return output_finish();
}

/* A manager without caches: the other one may have some. */
static bool is_empty_list(const VarlinkReply *reply)
{
        struct json_object *caches = NULL;

        return !reply->error && json_get_array(reply->parameters, "caches", &caches) >= 0 &&
               json_object_array_length(caches) == 0;
}

int verb_list(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_json_ struct json_object *document = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *caches = NULL;
        bool absent = false;
        int r;

        document = json_object_new_object();
        if (!document)
                return output_error("out of memory");
        r = reading_call(i, MANAGER ".List", name_parameters(NULL), false,
                         timeout_or(&a->timeout, LIST_TIMEOUT_DEFAULT), is_empty_list, NULL, &absent, &reply);
        if (r != 0)
                return r;
        /* Without a manager of the user's own he has no cache: that is an answer, not a failure. */
        if (absent)
                caches = json_object_new_array();
        else if (json_get_array(reply.parameters, "caches", &caches) < 0)
                return protocol_error();
        else
                json_object_get(caches);
        if (json_add(document, "caches", caches) < 0)
                return output_error("out of memory");
        if (a->json)
                return output_json(document);
        if (json_object_array_length(caches) == 0) {
                output_note("no caches%s", absent ? " (no manager is running)" : "");
                return EXIT_SUCCESS;
        }
        cache_table_print(stdout, caches);
        return output_finish();
}
