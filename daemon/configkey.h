/* The types of values in configuration files, and finding keys by name. An empty value restores the default.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct ConfigKey ConfigKey;
struct ConfigKey {
        const char *name; /* NULL ends a table */
        /* Fills the field, whose default has the same type; -EINVAL or -ERANGE where the value isn't
         * acceptable. */
        int (*parse)(const ConfigKey *key, const char *value, void *field, const void *default_field);
        size_t offset;
        uint64_t min, max;    /* of numbers, sizes and times; "infinity" is allowed where max is UINT64_MAX */
        const char *expected; /* completes "expected …" */
};

typedef int ConfigParser(const ConfigKey *key, const char *value, void *field, const void *default_field);

ConfigParser config_parse_number;      /* uint64_t, digits only */
ConfigParser config_parse_size_number; /* size_t, digits only */
ConfigParser config_parse_unsigned;    /* unsigned, digits only */
ConfigParser config_parse_size;        /* uint64_t, with a suffix */
ConfigParser config_parse_memory_size; /* size_t, with a suffix */
ConfigParser config_parse_time;        /* usec_t, seconds */
ConfigParser config_parse_fraction;    /* double */
ConfigParser config_parse_boolean;     /* bool */
ConfigParser config_parse_access_mode; /* mode_t: 0400, 0440, 0444 */
ConfigParser config_parse_path;        /* char *, absolute; made normal */
ConfigParser config_parse_account;     /* char *, a user's or group's name or number; not looked up */
ConfigParser config_parse_list;        /* char **, each assignment appends; max: of elements */
ConfigParser config_parse_log_level;   /* int of syslog(3) */

const ConfigKey *config_key_find(const ConfigKey *keys, const char *name);
/* For a name that there isn't: "did you mean 'A=' or 'B='?", or all there are where none is near. *ret is
 * owned. */
int config_key_suggest(const ConfigKey *keys, const char *name, char **ret);
