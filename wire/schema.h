/* Types of a varlink interface as tables, and checking JSON objects against them: what a service says about
 * itself in its description must hold for each reply it sends (varlink.org, "Interface Definition"). */
#pragma once

#include <stdbool.h>

#include "base/json.h"

typedef enum SchemaKind {
        SCHEMA_BOOL,
        SCHEMA_INT,
        SCHEMA_FLOAT, /* integers are floats too */
        SCHEMA_STRING,
        SCHEMA_OBJECT, /* any object */
        SCHEMA_ENUM,
        SCHEMA_STRUCT,
} SchemaKind;

typedef enum SchemaContainer {
        SCHEMA_PLAIN,
        SCHEMA_ARRAY,
        SCHEMA_MAP,
} SchemaContainer;

typedef struct SchemaField SchemaField;

typedef struct SchemaType {
        SchemaKind kind;
        SchemaContainer container;
        bool optional;
        const char *const *values; /* of an enum; ends with NULL */
        const SchemaField *fields; /* of a struct; ends with an entry without a name */
} SchemaType;

struct SchemaField {
        const char *name;
        SchemaType type;
};

/* A method's or error's full name and its members; tables end with an entry without a name. */
typedef struct SchemaSymbol {
        const char *name;
        const SchemaField *fields;
} SchemaSymbol;

/* 0, or -EBADMSG with *ret_field (may be NULL) naming the member that is unknown, missing or of another type;
 * the name belongs to the object or the table. NULL is an object without members. A member that is null
 * counts as absent. */
int schema_check(const SchemaField *fields, struct json_object *object, const char **ret_field);
/* The same by name; -ENOENT where the table does not have it. */
int schema_check_symbol(const SchemaSymbol *symbols, const char *name, struct json_object *object,
                        const char **ret_field);
