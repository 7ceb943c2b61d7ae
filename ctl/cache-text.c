#include "ctl/cache-text.h"

#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/output.h"

const char *cache_string(struct json_object *cache, const char *key)
{
        const char *s = NULL;

        return json_get_string(cache, key, &s) >= 0 ? s : "-";
}

uint64_t cache_size(struct json_object *cache, const char *key)
{
        uint64_t v = 0;

        return json_get_size(cache, key, &v) >= 0 ? v : 0;
}

/* Text of a peer's, with nothing in it that a terminal would act on. */
static void print_escaped(FILE *f, const char *s)
{
        _cleanup_free_ char *shown = NULL;

        (void) fputs(path_escape(s, &shown) >= 0 ? shown : "?", f);
}

static void print_path(FILE *f, struct json_object *cache, const char *key)
{
        _cleanup_free_ char *path = NULL;

        if (json_get_path(cache, key, &path) < 0)
                (void) fputs("-", f);
        else
                print_escaped(f, path);
}

/* "uid 996 (vllm)", where the system knows a name. */
static void print_user(FILE *f, uint64_t uid)
{
        const struct passwd *user = getpwuid((uid_t) uid);

        (void) fprintf(f, "uid %" PRIu64, uid);
        if (user) {
                (void) fputs(" (", f);
                print_escaped(f, user->pw_name);
                (void) fputc(')', f);
        }
}

static void print_group(FILE *f, uint64_t gid)
{
        const struct group *group = getgrgid((gid_t) gid);

        (void) fprintf(f, "gid %" PRIu64, gid);
        if (group) {
                (void) fputs(" (", f);
                print_escaped(f, group->gr_name);
                (void) fputc(')', f);
        }
}

static void print_label(FILE *f, const char *label)
{
        (void) fprintf(f, "  %-12s ", label);
}

static void print_time(FILE *f, uint64_t usec)
{
        char time[TIME_TEXT_MAX], span[TIMESPAN_TEXT_MAX];
        usec_t now = now_realtime();

        (void) fputs(format_time(time, usec), f);
        if (usec <= now)
                (void) fprintf(f, " (%s ago)", format_timespan(span, now - usec));
}

static void print_time_field(FILE *f, struct json_object *cache, const char *key, const char *label)
{
        uint64_t usec = 0;

        if (json_get_size(cache, key, &usec) < 0)
                return;
        print_label(f, label);
        print_time(f, usec);
        (void) fputc('\n', f);
}

void leases_print(FILE *f, const char *prefix, struct json_object *leases)
{
        for (size_t i = 0; i < json_object_array_length(leases); i++) {
                struct json_object *lease = json_object_array_get_idx(leases, i);
                uint64_t since = 0;

                if (!json_object_is_type(lease, json_type_object))
                        continue;
                (void) fprintf(f, "%spid %llu (", prefix, (unsigned long long) cache_size(lease, "pid"));
                print_escaped(f, cache_string(lease, "command"));
                (void) fputs("), ", f);
                print_user(f, cache_size(lease, "uid"));
                if (json_get_size(lease, "acquiredUSec", &since) >= 0) {
                        (void) fputs(", since ", f);
                        print_time(f, since);
                }
                (void) fputc('\n', f);
        }
}

int leases_describe(struct json_object *leases, char **ret)
{
        _cleanup_free_ char *text = strdup("");
        int r;

        if (!text)
                return -ENOMEM;
        for (size_t i = 0; leases && i < json_object_array_length(leases); i++) {
                struct json_object *lease = json_object_array_get_idx(leases, i);
                _cleanup_free_ char *command = NULL, *longer = NULL;

                if (!json_object_is_type(lease, json_type_object))
                        continue;
                r = path_escape(cache_string(lease, "command"), &command);
                if (r >= 0)
                        r = text_format(&longer, "%s%s%llu (%s)", text, *text ? ", " : "",
                                        (unsigned long long) cache_size(lease, "pid"), command);
                if (r < 0)
                        return r;
                free(text);
                text = TAKE_PTR(longer);
        }
        *ret = TAKE_PTR(text);
        return 0;
}

int cache_size_describe(struct json_object *cache, char **ret)
{
        char size[SIZE_TEXT_MAX];
        uint64_t files = cache_size(cache, "files");
        char *text = NULL;
        int r;

        r = text_format(&text, "%llu %s, %s", (unsigned long long) files, files == 1 ? "file" : "files",
                        format_size(size, cache_size(cache, "bytes")));
        if (r < 0)
                return r;
        *ret = text;
        return 0;
}

static void print_budget(FILE *f, struct json_object *budget)
{
        char required[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX], allowed[SIZE_TEXT_MAX], other[SIZE_TEXT_MAX];
        bool forced = false;
        uint64_t limit = 0;

        print_label(f, "budget");
        (void) fprintf(f, "needed %s of %s allowed; %s available (",
                       format_size(required, cache_size(budget, "requiredBytes")),
                       format_size(allowed, cache_size(budget, "budgetBytes")),
                       format_size(available, cache_size(budget, "availableBytes")));
        print_escaped(f, cache_string(budget, "limit"));
        (void) fputs(")", f);
        if (json_get_size(budget, "maxMemoryBytes", &limit) >= 0)
                (void) fprintf(f, ", cap %s", format_size(other, limit));
        if (json_get_size(budget, "maxResidentBytes", &limit) >= 0)
                (void) fprintf(f, ", shared quota %s", format_size(other, limit));
        if (json_get_bool(budget, "forced", &forced) >= 0 && forced)
                (void) fputs(", forced", f);
        (void) fputc('\n', f);
}

static void print_sizes(FILE *f, struct json_object *cache)
{
        char size[SIZE_TEXT_MAX], loaded[SIZE_TEXT_MAX];
        uint64_t bytes = cache_size(cache, "bytes"), done = cache_size(cache, "bytesLoaded");

        print_label(f, "files");
        (void) fprintf(f, "%llu (%s)", (unsigned long long) cache_size(cache, "files"),
                       format_size(size, bytes));
        if (done < bytes)
                (void) fprintf(f, ", %s loaded (%.0f%%)", format_size(loaded, done),
                               (double) done * 100 / (double) bytes);
        (void) fputc('\n', f);
}

static void print_people(FILE *f, struct json_object *cache)
{
        uint64_t pid = 0;

        print_label(f, "owner");
        print_user(f, cache_size(cache, "uid"));
        (void) fputs(", ", f);
        print_group(f, cache_size(cache, "gid"));
        (void) fprintf(f, ", mode %04llo\n", (unsigned long long) cache_size(cache, "mode"));
        if (json_get_size(cache, "pid", &pid) >= 0) {
                print_label(f, "worker");
                (void) fprintf(f, "pid %llu\n", (unsigned long long) pid);
        }
}

void cache_print(FILE *f, struct json_object *cache)
{
        struct json_object *budget = NULL, *leases = NULL;
        char span[TIMESPAN_TEXT_MAX];
        const char *text = NULL;
        uint64_t ttl = 0;

        print_escaped(f, cache_string(cache, "name"));
        (void) fprintf(f, ": %s\n", cache_string(cache, "state"));
        if (json_get_string(cache, "message", &text) >= 0) {
                print_label(f, "message");
                print_escaped(f, text);
                (void) fputc('\n', f);
        }
        print_label(f, "source");
        print_path(f, cache, "source");
        (void) fputc('\n', f);
        print_label(f, "view");
        print_path(f, cache, "view");
        (void) fputc('\n', f);
        print_sizes(f, cache);
        if (json_get_string(cache, "fingerprint", &text) >= 0) {
                print_label(f, "fingerprint");
                (void) fprintf(f, "%s\n", text);
        }
        print_people(f, cache);
        print_time_field(f, cache, "startedUSec", "started");
        print_time_field(f, cache, "readyUSec", "ready");
        print_time_field(f, cache, "lastUsedUSec", "last used");
        if (json_get_size(cache, "idleTTLUSec", &ttl) >= 0) {
                print_label(f, "idle TTL");
                (void) fprintf(f, "%s\n", format_timespan(span, ttl));
        }
        print_label(f, "reuses");
        (void) fprintf(f, "%llu, %llu leases granted\n", (unsigned long long) cache_size(cache, "reuses"),
                       (unsigned long long) cache_size(cache, "leasesGranted"));
        if (json_get_object(cache, "budget", &budget) >= 0)
                print_budget(f, budget);
        if (json_get_array(cache, "leases", &leases) >= 0) {
                print_label(f, "leases");
                (void) fprintf(f, "%zu\n", json_object_array_length(leases));
                leases_print(f, "               ", leases);
        }
}

void cache_table_print(FILE *f, struct json_object *caches)
{
        size_t n = json_object_array_length(caches), width = strlen("NAME");

        for (size_t i = 0; i < n; i++)
                width = MAX2(width, strlen(cache_string(json_object_array_get_idx(caches, i), "name")));
        (void) fprintf(f, "%-*s  %-8s  %6s  %10s  %6s  %s\n", (int) width, "NAME", "STATE", "FILES", "SIZE",
                       "LEASES", "VIEW");
        for (size_t i = 0; i < n; i++) {
                struct json_object *cache = json_object_array_get_idx(caches, i), *leases = NULL;
                char size[SIZE_TEXT_MAX];

                (void) json_get_array(cache, "leases", &leases);
                (void) fprintf(f, "%-*s  %-8s  %6llu  %10s  %6zu  ", (int) width, cache_string(cache, "name"),
                               cache_string(cache, "state"), (unsigned long long) cache_size(cache, "files"),
                               format_size(size, cache_size(cache, "bytes")),
                               leases ? json_object_array_length(leases) : 0);
                print_path(f, cache, "view");
                (void) fputc('\n', f);
        }
}
