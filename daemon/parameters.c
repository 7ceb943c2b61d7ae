/* From Start's parameters to settings. */
#include "daemon/parameters.h"

#include <string.h>

#include "base/path.h"
#include "base/text.h"

/* Patterns: how many, and how long each. */
#define PATTERNS_MAX     1024U
#define PATTERN_SIZE_MAX 4096U

static int wrong(const char *field, const char **ret_field)
{
        *ret_field = field;
        return -EINVAL;
}

/* The bytes count where both are given; the text is then for people. */
static int take_path(const char *field, const char *text, const char *bytes, char **path,
                     const char **ret_field)
{
        _cleanup_free_ char *decoded = NULL;
        int r;

        if (!text && !bytes)
                return 0;
        if (bytes) {
                r = base64_decode_string(bytes, &decoded);
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        return wrong(field, ret_field);
                text = decoded;
        }
        if (!path_is_absolute(text))
                return wrong(field, ret_field);
        r = path_normalize(text, path);
        return r == -ENOMEM || r >= 0 ? r : wrong(field, ret_field);
}

static int take_patterns(const char *field, char *const *list, bool empty_counts, char ***ret,
                         const char **ret_field)
{
        if (!list || (!*list && !empty_counts))
                return 0;
        if (strv_length(list) > PATTERNS_MAX)
                return wrong(field, ret_field);
        for (char *const *l = list; *l; l++)
                if (!**l || strlen(*l) > PATTERN_SIZE_MAX)
                        return wrong(field, ret_field);
        return strv_copy(list, ret);
}

static int take_number(const char *field, OptionalInt value, uint64_t min, uint64_t max, uint64_t *ret,
                       const char **ret_field)
{
        if (!value.set)
                return 0;
        if (value.value < 0 || (uint64_t) value.value < min || (uint64_t) value.value > max)
                return wrong(field, ret_field);
        *ret = (uint64_t) value.value;
        return 0;
}

static int take_paths(const ManagerStartParameters *p, CacheSettings *s, const char **ret_field)
{
        int r;

        if (!p->source && !p->source_bytes)
                return wrong("source", ret_field);
        if ((r = take_path("source", p->source, p->source_bytes, &s->source, ret_field)) < 0 ||
            (r = take_path("view", p->view, p->view_bytes, &s->view, ret_field)) < 0 ||
            (r = take_path("pidFile", p->pid_file, p->pid_file_bytes, &s->pid_file, ret_field)) < 0 ||
            (r = take_path("logFile", p->log_file, p->log_file_bytes, &s->log_file, ret_field)) < 0)
                return r;
        return 0;
}

static int take_numbers(const ManagerStartParameters *p, CacheSettings *s, const char **ret_field)
{
        uint64_t workers = 0, mode = s->mode;
        int r;

        if ((r = take_number("workers", p->workers, 1, START_WORKERS_MAX, &workers, ret_field)) < 0 ||
            (r = take_number("chunkSize", p->chunk_size, START_CHUNK_SIZE_MIN, START_CHUNK_SIZE_MAX,
                             &s->chunk_size, ret_field)) < 0 ||
            (r = take_number("maxMemoryBytes", p->max_memory_bytes, 0, INT64_MAX, &s->max_memory_bytes,
                             ret_field)) < 0 ||
            (r = take_number("reserveBytes", p->reserve_bytes, 0, INT64_MAX, &s->reserve_bytes, ret_field)) <
                    0 ||
            (r = take_number("maxResidentBytes", p->max_resident_bytes, 0, INT64_MAX, &s->max_resident_bytes,
                             ret_field)) < 0 ||
            (r = take_number("idleTTLUSec", p->idle_ttl_usec, 1, INT64_MAX, &s->idle_ttl, ret_field)) < 0 ||
            (r = take_number("mode", p->mode, 0, 0777, &mode, ret_field)) < 0)
                return r;
        if (mode != 0400 && mode != 0440 && mode != 0444)
                return wrong("mode", ret_field);
        s->workers = (unsigned) workers;
        s->mode = (mode_t) mode;
        if (p->max_memory_fraction.set) {
                /* Written so that it refuses NaN too. */
                if (!(p->max_memory_fraction.value > 0 && p->max_memory_fraction.value <= 1))
                        return wrong("maxMemoryFraction", ret_field);
                s->memory_fraction = p->max_memory_fraction.value;
        }
        return 0;
}

static int take_text(const char *field, const char *value, char **ret, const char **ret_field)
{
        if (!value)
                return 0;
        if (!*value || strlen(value) > 256)
                return wrong(field, ret_field);
        *ret = strdup(value);
        return *ret ? 0 : -ENOMEM;
}

int settings_from_parameters(const ManagerStartParameters *p, CacheSettings **ret, const char **ret_field)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;
        int r;

        r = cache_settings_new(p->name, &s);
        if (r < 0)
                return r;
        if ((r = take_paths(p, s, ret_field)) < 0 || (r = take_numbers(p, s, ret_field)) < 0 ||
            (r = take_patterns("patterns", p->patterns, false, &s->patterns, ret_field)) < 0 ||
            (r = take_patterns("excludes", p->excludes, true, &s->excludes, ret_field)) < 0 ||
            (r = take_text("owner", p->owner, &s->owner, ret_field)) < 0 ||
            (r = take_text("group", p->group, &s->group, ret_field)) < 0)
                return r;
        s->force = p->force.set && p->force.value;
        *ret = TAKE_PTR(s);
        return 0;
}

const char *parameters_beyond_configured(const ManagerStartParameters *p)
{
        const struct {
                const char *field;
                bool given;
        } fields[] = {
                {"view", p->view || p->view_bytes},
                {"pidFile", p->pid_file || p->pid_file_bytes},
                {"logFile", p->log_file || p->log_file_bytes},
                {"patterns", p->patterns},
                {"excludes", p->excludes},
                {"workers", p->workers.set},
                {"chunkSize", p->chunk_size.set},
                {"maxMemoryFraction", p->max_memory_fraction.set},
                {"maxMemoryBytes", p->max_memory_bytes.set},
                {"reserveBytes", p->reserve_bytes.set},
                {"idleTTLUSec", p->idle_ttl_usec.set},
                {"owner", p->owner},
                {"group", p->group},
                {"mode", p->mode.set},
        };

        for (size_t i = 0; i < ELEMENTSOF(fields); i++)
                if (fields[i].given)
                        return fields[i].field;
        return NULL;
}
