/* monitor: changes as they happen, until it is interrupted or the manager goes. */
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/size.h"
#include "ctl/cache-text.h"
#include "ctl/connection.h"
#include "ctl/output.h"
#include "ctl/verb.h"

#define FIRST_TIMEOUT (5 * USEC_PER_SEC)

static int print_change(struct json_object *parameters, struct json_object *cache)
{
        _cleanup_free_ char *message = NULL, *holders = NULL;
        char time[TIME_TEXT_MAX], size[SIZE_TEXT_MAX], loaded[SIZE_TEXT_MAX];
        struct json_object *leases = NULL;
        const char *text = NULL;

        (void) printf("%s  %-9s  %s: %s, ", format_time(time, now_realtime()),
                      cache_string(parameters, "kind"), cache_string(cache, "name"),
                      cache_string(cache, "state"));
        if (cache_size(cache, "bytesLoaded") < cache_size(cache, "bytes"))
                (void) printf("%s of ", format_size(loaded, cache_size(cache, "bytesLoaded")));
        (void) printf("%s in %llu files", format_size(size, cache_size(cache, "bytes")),
                      (unsigned long long) cache_size(cache, "files"));
        if (json_get_array(cache, "leases", &leases) >= 0 && leases_describe(leases, &holders) >= 0 &&
            *holders)
                (void) printf(", held by %s", holders);
        if (json_get_string(cache, "message", &text) >= 0 && path_escape(text, &message) >= 0)
                (void) printf(": %s", message);
        (void) fputc('\n', stdout);
        return output_finish();
}

int verb_monitor(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        int r;

        /* The first reply may be long in coming where there is no cache yet: only the manager's presence is
         * bounded, by a call that always answers. */
        r = reading_call(i, a->name ? MANAGER ".Status" : MANAGER ".List", name_parameters(a->name), false,
                         FIRST_TIMEOUT, NULL, &client, NULL, &reply);
        if (r != 0)
                return r;
        r = varlink_client_send(client, MANAGER ".Monitor", name_parameters(a->name), true, NULL, 0);
        while (r >= 0) {
                struct json_object *cache = NULL;

                varlink_reply_done(&reply);
                r = varlink_client_receive(client, USEC_INFINITY, &reply);
                if (r < 0)
                        break;
                if (reply.error) {
                        _cleanup_targets_ Targets targets = {0};

                        r = verb_targets(i, TARGET_READS, &targets);
                        return r != 0 ? r : manager_refusal(&targets.items[0], &reply);
                }
                /* A reply without a cache says only that there is none yet. */
                if (json_get_object(reply.parameters, "cache", &cache) >= 0) {
                        r = a->json ? output_json_line(reply.parameters)
                                    : print_change(reply.parameters, cache);
                        if (r != EXIT_SUCCESS)
                                return r;
                }
                if (!reply.continues)
                        return EXIT_SUCCESS;
        }
        if (r == -ENOTCONN || r == -ECONNRESET)
                return output_error("the manager went away");
        return output_error("monitoring failed: %s", strerror(-r));
}
