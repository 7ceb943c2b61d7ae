/* Parsers of configuration values. Numbers, sizes and times are base/size's; here their bounds and the
 * defaults. */
#include "daemon/configkey.h"

#include <limits.h>
#include <string.h>
#include <sys/types.h>
#include <syslog.h>

#include "base/path.h"
#include "base/size.h"
#include "base/text.h"

/* As useradd(8) has it; names of directories (LDAP) may be longer, and are no longer than this. */
#define ACCOUNT_NAME_MAX 256U
/* Keys further away than this many changes aren't what was meant. */
#define SUGGEST_DISTANCE_MAX 4U
#define SUGGESTIONS_MAX      3U

static bool in_range(const ConfigKey *key, uint64_t v)
{
        return v >= key->min && v <= key->max;
}

/* Digits only, or the default, which the caller passes in its own type's widest form. */
static int parse_bounded(const ConfigKey *key, const char *value, uint64_t default_value, uint64_t *ret)
{
        if (*value == '\0') {
                *ret = default_value;
                return 0;
        }
        return parse_u64_range(value, key->min, key->max, ret);
}

int config_parse_number(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        return parse_bounded(key, value, *(const uint64_t *) default_field, field);
}

int config_parse_size_number(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        uint64_t v;
        int r;

        r = parse_bounded(key, value, *(const size_t *) default_field, &v);
        if (r < 0)
                return r;
        *(size_t *) field = (size_t) v;
        return 0;
}

int config_parse_unsigned(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        uint64_t v;
        int r;

        r = parse_bounded(key, value, *(const unsigned *) default_field, &v);
        if (r < 0)
                return r;
        *(unsigned *) field = (unsigned) v;
        return 0;
}

int config_parse_size(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        uint64_t v;
        int r;

        if (*value == '\0')
                v = *(const uint64_t *) default_field;
        else if (streq(value, "infinity")) {
                if (key->max != UINT64_MAX)
                        return -ERANGE;
                v = UINT64_MAX;
        } else {
                r = parse_size(value, &v);
                if (r < 0)
                        return r;
                /* The largest number is "none" and isn't to be had by accident. */
                if (v == UINT64_MAX || !in_range(key, v))
                        return -ERANGE;
        }
        *(uint64_t *) field = v;
        return 0;
}

int config_parse_memory_size(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        uint64_t v, default_value = *(const size_t *) default_field;
        int r;

        r = config_parse_size(key, value, &v, &default_value);
        if (r < 0)
                return r;
        *(size_t *) field = (size_t) v;
        return 0;
}

int config_parse_time(const ConfigKey *key, const char *value, void *field, const void *default_field)
{
        usec_t t = *(const usec_t *) default_field;
        int r;

        if (*value != '\0') {
                r = parse_seconds(value, &t);
                if (r < 0)
                        return r;
                if (!in_range(key, t))
                        return -ERANGE;
        }
        *(usec_t *) field = t;
        return 0;
}

int config_parse_fraction(_unused_ const ConfigKey *key, const char *value, void *field,
                          const void *default_field)
{
        if (*value == '\0') {
                *(double *) field = *(const double *) default_field;
                return 0;
        }
        return parse_fraction(value, field);
}

int config_parse_boolean(_unused_ const ConfigKey *key, const char *value, void *field,
                         const void *default_field)
{
        int r = *value == '\0' ? *(const bool *) default_field : parse_boolean(value);

        if (r < 0)
                return r;
        *(bool *) field = r > 0;
        return 0;
}

int config_parse_access_mode(_unused_ const ConfigKey *key, const char *value, void *field,
                             const void *default_field)
{
        unsigned mode = *(const mode_t *) default_field;
        int r;

        if (*value != '\0') {
                r = parse_mode(value, &mode);
                if (r < 0)
                        return r;
                if (mode != 0400 && mode != 0440 && mode != 0444)
                        return -ERANGE;
        }
        *(mode_t *) field = mode;
        return 0;
}

/* Replaces an owned string; NULL default: none. Takes value. */
static void replace(char **field, char *value)
{
        free(*field);
        *field = value;
}

static int restore_string(char **field, const char *default_value)
{
        char *copy = NULL;

        if (default_value) {
                copy = strdup(default_value);
                if (!copy)
                        return -ENOMEM;
        }
        replace(field, copy);
        return 0;
}

int config_parse_path(_unused_ const ConfigKey *key, const char *value, void *field,
                      const void *default_field)
{
        char *path;
        int r;

        if (*value == '\0')
                return restore_string(field, *(char *const *) default_field);
        if (!path_is_absolute(value))
                return -EINVAL;
        r = path_normalize(value, &path);
        if (r < 0)
                return r;
        replace(field, path);
        return 0;
}

int config_parse_account(_unused_ const ConfigKey *key, const char *value, void *field,
                         const void *default_field)
{
        if (*value == '\0')
                return restore_string(field, *(char *const *) default_field);
        /* What no account's name can hold, as it would end a field of passwd(5) or look like an option. */
        if (strlen(value) > ACCOUNT_NAME_MAX || strpbrk(value, ": \t/,") || *value == '-' || *value == '+')
                return -EINVAL;
        return restore_string(field, value);
}

int config_parse_list(const ConfigKey *key, const char *value, void *field,
                      _unused_ const void *default_field)
{
        char ***list = field;

        if (*value != '\0')
                return strv_length(*list) < key->max ? strv_append(list, value) : -ERANGE;
        /* All lists are empty by default. */
        *list = strv_free(*list);
        return 0;
}

int config_parse_log_level(_unused_ const ConfigKey *key, const char *value, void *field,
                           const void *default_field)
{
        static const char *const levels[] = {
                [LOG_EMERG] = "emerg", [LOG_ALERT] = "alert",     [LOG_CRIT] = "crit",
                [LOG_ERR] = "err",     [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice",
                [LOG_INFO] = "info",   [LOG_DEBUG] = "debug",
        };

        if (*value == '\0') {
                *(int *) field = *(const int *) default_field;
                return 0;
        }
        for (int i = 0; i < (int) ELEMENTSOF(levels); i++)
                if (streq(value, levels[i])) {
                        *(int *) field = i;
                        return 0;
                }
        return -EINVAL;
}

const ConfigKey *config_key_find(const ConfigKey *keys, const char *name)
{
        for (const ConfigKey *k = keys; k->name; k++)
                if (streq(k->name, name))
                        return k;
        return NULL;
}

static int append_name(char **text, const char *separator, const char *name)
{
        return text_format(text, "%s%s'%s='", *text ?: "", *text ? separator : "", name);
}

int config_key_suggest(const ConfigKey *keys, const char *name, char **ret)
{
        _cleanup_free_ char *names = NULL, *text = NULL;
        size_t found = 0, farthest = SUGGEST_DISTANCE_MAX;
        int r;

        /* The nearest and those one change further, in that order; among equals the table's order. A change
         * of half the key makes another one of it. */
        for (size_t d = 0; d <= farthest; d++)
                for (const ConfigKey *k = keys; k->name && found < SUGGESTIONS_MAX; k++) {
                        if (text_distance(name, k->name) != d || d * 2 > strlen(k->name))
                                continue;
                        r = append_name(&names, " or ", k->name);
                        if (r < 0)
                                return r;
                        if (found++ == 0)
                                farthest = MIN2(farthest, d + 1);
                }
        for (const ConfigKey *k = keys; k->name && found == 0; k++) {
                r = append_name(&names, ", ", k->name);
                if (r < 0)
                        return r;
        }
        r = found > 0 ? text_format(&text, "did you mean %s?", names ?: "")
                      : text_format(&text, "there are %s", names ?: "none");
        if (r < 0)
                return r;
        *ret = TAKE_PTR(text);
        return 0;
}
