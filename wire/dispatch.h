/* From a JSON object to a C struct by a static table: every field typed, unknown and missing ones named. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

typedef struct DispatchField DispatchField;

/* Checks the value and stores it at target; -EBADMSG where the type or range is wrong, -ENOMEM. */
typedef int (*DispatchParser)(struct json_object *value, void *target);

typedef enum DispatchFlags {
        DISPATCH_MANDATORY = 1 << 0,
} DispatchFlags;

struct DispatchField {
        const char *name;
        DispatchParser parser;
        size_t offset;  /* into the target struct */
        json_type type; /* what it must be; json_type_double also takes integers */
        DispatchFlags flags;
};

/* Tables end with an entry without a name. JSON null counts as absent; a NULL object has no members. -EINVAL
 * with *ret_field naming the field (borrowed from the object or the table; copy it to keep) where one is
 * unknown, missing or wrong. What was stored before a failure stays stored; the struct's destructor frees it.
 * -ENOMEM. ret_field may be NULL. */
int dispatch_object(struct json_object *object, const DispatchField *table, void *target,
                    const char **ret_field);

/* Parsers. Optional numbers and booleans are stored as structs that say whether they were there. */
typedef struct OptionalInt {
        bool set;
        int64_t value;
} OptionalInt;
typedef struct OptionalDouble {
        bool set;
        double value;
} OptionalDouble;
typedef struct OptionalBool {
        bool set;
        bool value;
} OptionalBool;
int dispatch_string(struct json_object *value, void *target); /* char *, owned copy */
/* char **, owned; elements must be strings. An empty array is an empty vector, an absent one leaves NULL. */
int dispatch_strv(struct json_object *value, void *target);
int dispatch_optional_int(struct json_object *value, void *target);    /* OptionalInt */
int dispatch_optional_double(struct json_object *value, void *target); /* OptionalDouble */
int dispatch_optional_bool(struct json_object *value, void *target);   /* OptionalBool */
