/* A cache's settings: defaults, and what "the same settings" means when a name is started again. */
#include "daemon/settings.h"

#include <inttypes.h>
#include <string.h>

#include "base/path.h"
#include "base/size.h"
#include "base/text.h"

int cache_settings_new(const char *name, CacheSettings **ret)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        s = malloc(sizeof(*s));
        if (!s)
                return -ENOMEM;
        *s = (CacheSettings){
                .chunk_size = START_CHUNK_SIZE_DEFAULT,
                .memory_fraction = START_MEMORY_FRACTION_DEFAULT,
                .max_memory_bytes = UINT64_MAX,
                .reserve_bytes = START_RESERVE_DEFAULT,
                .max_resident_bytes = UINT64_MAX,
                .idle_ttl = USEC_INFINITY,
                .mode = 0400,
        };
        s->name = strdup(name);
        if (!s->name)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

CacheSettings *cache_settings_free(CacheSettings *s)
{
        if (!s)
                return NULL;
        free(s->name);
        free(s->source);
        free(s->view);
        free(s->pid_file);
        free(s->log_file);
        strv_free(s->patterns);
        strv_free(s->excludes);
        free(s->owner);
        free(s->group);
        free(s->owner_file);
        free(s->group_file);
        free(s);
        return NULL;
}

/* Each compares one pair: 1 where equal, 0 with *ret_difference set where not, or -ENOMEM. */

/* Names both values, those that are there (NULL: absent) in quotes. */
static int describe_texts(const char *what, const char *a, const char *b, const char *absent,
                          char **ret_difference)
{
        _cleanup_free_ char *ea = NULL, *eb = NULL;
        int r = 0;

        if (a)
                r = path_escape(a, &ea);
        if (r >= 0 && b)
                r = path_escape(b, &eb);
        if (r < 0)
                return r;
        return text_format(ret_difference, "%s %s%s%s, %s%s%s was asked for", what, ea ? "'" : "",
                           ea ?: absent, ea ? "'" : "", eb ? "'" : "", eb ?: absent, eb ? "'" : "");
}

static int compare_text(const char *what, const char *a, const char *b, const char *absent,
                        char **ret_difference)
{
        if (streq_ptr(a, b))
                return 1;
        return describe_texts(what, a, b, absent, ret_difference);
}

static int compare_list(const char *what, char *const *a, char *const *b, const char *absent,
                        char **ret_difference)
{
        _cleanup_free_ char *ja = NULL, *jb = NULL;
        int r = 0;

        /* No list (the default) is not the same as an empty one. */
        if (!a == !b && strv_equal(a, b))
                return 1;
        if (a)
                r = strv_join(a, " ", &ja);
        if (r >= 0 && b)
                r = strv_join(b, " ", &jb);
        if (r < 0)
                return r;
        return describe_texts(what, ja, jb, absent, ret_difference);
}

static int compare_number(const char *what, uint64_t a, uint64_t b, uint64_t absent_value, const char *absent,
                          char **ret_difference)
{
        char ta[24], tb[24];

        if (a == b)
                return 1;
        (void) snprintf(ta, sizeof(ta), "%" PRIu64, a);
        (void) snprintf(tb, sizeof(tb), "%" PRIu64, b);
        return text_format(ret_difference, "%s %s, %s was asked for", what, a == absent_value ? absent : ta,
                           b == absent_value ? absent : tb);
}

/* Rounded for people, unless that makes the two look alike. */
static int compare_size(const char *what, uint64_t a, uint64_t b, char **ret_difference)
{
        char ta[SIZE_TEXT_MAX], tb[SIZE_TEXT_MAX];

        if (a == b)
                return 1;
        if (a == UINT64_MAX || b == UINT64_MAX || !streq(format_size(ta, a), format_size(tb, b)))
                return text_format(ret_difference, "%s %s, %s was asked for", what,
                                   a == UINT64_MAX ? "none" : format_size(ta, a),
                                   b == UINT64_MAX ? "none" : format_size(tb, b));
        return text_format(ret_difference, "%s %" PRIu64 " bytes, %" PRIu64 " were asked for", what, a, b);
}

static int compare_time(const char *what, usec_t a, usec_t b, char **ret_difference)
{
        char ta[TIMESPAN_TEXT_MAX], tb[TIMESPAN_TEXT_MAX];

        if (a == b)
                return 1;
        return text_format(ret_difference, "%s %s, %s was asked for", what,
                           a == USEC_INFINITY ? "none" : format_timespan(ta, a),
                           b == USEC_INFINITY ? "none" : format_timespan(tb, b));
}

/* Fractions come from text of few digits: what differs by less than a billionth was written differently at
 * most. */
static bool fraction_equal(double a, double b)
{
        return a - b < 1e-9 && b - a < 1e-9;
}

static int compare_selection(const CacheSettings *a, const CacheSettings *b, char **ret_difference)
{
        int r;

        r = compare_text("its source is", a->source, b->source, "none", ret_difference);
        if (r <= 0)
                return r;
        r = compare_list("its patterns are", a->patterns, b->patterns, "all files", ret_difference);
        if (r <= 0)
                return r;
        return compare_list("its exclusions are", a->excludes, b->excludes, "the default ones",
                            ret_difference);
}

static int compare_memory(const CacheSettings *a, const CacheSettings *b, char **ret_difference)
{
        int r;

        r = compare_number("the number of its workers is", a->workers, b->workers, 0, "the default",
                           ret_difference);
        if (r <= 0)
                return r;
        r = compare_size("its chunk size is", a->chunk_size, b->chunk_size, ret_difference);
        if (r <= 0)
                return r;
        if (!fraction_equal(a->memory_fraction, b->memory_fraction))
                return text_format(ret_difference, "its memory fraction is %g, %g was asked for",
                                   a->memory_fraction, b->memory_fraction);
        r = compare_size("its memory cap is", a->max_memory_bytes, b->max_memory_bytes, ret_difference);
        if (r <= 0)
                return r;
        r = compare_size("its memory reserve is", a->reserve_bytes, b->reserve_bytes, ret_difference);
        if (r <= 0)
                return r;
        return compare_time("its idle TTL is", a->idle_ttl, b->idle_ttl, ret_difference);
}

static int compare_files(const CacheSettings *a, const CacheSettings *b, char **ret_difference)
{
        int r;

        r = compare_text("its view is", a->view, b->view, "the default one", ret_difference);
        if (r <= 0)
                return r;
        r = compare_text("its PID file is", a->pid_file, b->pid_file, "the default one", ret_difference);
        if (r <= 0)
                return r;
        return compare_text("its log file is", a->log_file, b->log_file, "the default one", ret_difference);
}

static int compare_access(const CacheSettings *a, const CacheSettings *b, char **ret_difference)
{
        int r;

        r = compare_text("its owner is", a->owner, b->owner, "the caller", ret_difference);
        if (r <= 0)
                return r;
        r = compare_text("its group is", a->group, b->group, "the owner's", ret_difference);
        if (r <= 0)
                return r;
        if (a->mode != b->mode)
                return text_format(ret_difference, "its mode is %04o, %04o was asked for", (unsigned) a->mode,
                                   (unsigned) b->mode);
        return 1;
}

int cache_settings_compare(const CacheSettings *a, const CacheSettings *b, char **ret_difference)
{
        /* In the order in which people would want to hear of them. */
        static int (*const comparers[])(const CacheSettings *, const CacheSettings *, char **) = {
                compare_selection,
                compare_files,
                compare_memory,
                compare_access,
        };
        _cleanup_free_ char *difference = NULL;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(comparers); i++) {
                r = comparers[i](a, b, &difference);
                if (r < 0)
                        return r;
                if (difference) {
                        if (ret_difference)
                                *ret_difference = TAKE_PTR(difference);
                        return 0;
                }
        }
        return 1;
}
