/* Checking JSON objects against the tables that tools/gen-interface.py makes. */
#include "wire/schema.h"

#include <errno.h>

#include "base/text.h"

static bool enum_contains(const char *const *values, const char *s)
{
        for (; *values; values++)
                if (streq(*values, s))
                        return true;
        return false;
}

static int check_element(const SchemaType *type, struct json_object *value, const char *name,
                         const char **ret_field)
{
        json_type t = json_object_get_type(value);
        bool good = false;

        switch (type->kind) {
        case SCHEMA_BOOL:
                good = t == json_type_boolean;
                break;
        case SCHEMA_INT:
                good = t == json_type_int;
                break;
        case SCHEMA_FLOAT:
                good = t == json_type_double || t == json_type_int;
                break;
        case SCHEMA_STRING:
                good = t == json_type_string;
                break;
        case SCHEMA_OBJECT:
                good = t == json_type_object;
                break;
        case SCHEMA_ENUM:
                good = t == json_type_string && enum_contains(type->values, json_object_get_string(value));
                break;
        case SCHEMA_STRUCT:
                if (t == json_type_object)
                        return schema_check(type->fields, value, ret_field);
                break;
        }
        if (good)
                return 0;
        if (ret_field)
                *ret_field = name;
        return -EBADMSG;
}

static int check_field(const SchemaField *field, struct json_object *value, const char **ret_field)
{
        const SchemaType *type = &field->type;
        int r;

        if (type->container == SCHEMA_PLAIN)
                return check_element(type, value, field->name, ret_field);
        if (type->container == SCHEMA_ARRAY && json_object_is_type(value, json_type_array)) {
                for (size_t i = 0; i < json_object_array_length(value); i++) {
                        r = check_element(type, json_object_array_get_idx(value, i), field->name, ret_field);
                        if (r < 0)
                                return r;
                }
                return 0;
        }
        if (type->container == SCHEMA_MAP && json_object_is_type(value, json_type_object)) {
                json_object_object_foreach(value, key, element)
                {
                        (void) key;
                        r = check_element(type, element, field->name, ret_field);
                        if (r < 0)
                                return r;
                }
                return 0;
        }
        if (ret_field)
                *ret_field = field->name;
        return -EBADMSG;
}

static const SchemaField *find_field(const SchemaField *fields, const char *name)
{
        for (; fields->name; fields++)
                if (streq(fields->name, name))
                        return fields;
        return NULL;
}

int schema_check(const SchemaField *fields, struct json_object *object, const char **ret_field)
{
        if (object && !json_object_is_type(object, json_type_object)) {
                if (ret_field)
                        *ret_field = "parameters";
                return -EBADMSG;
        }
        if (object) {
                json_object_object_foreach(object, key, value)
                {
                        const SchemaField *field = find_field(fields, key);
                        int r;

                        if (!field) {
                                if (ret_field)
                                        *ret_field = key;
                                return -EBADMSG;
                        }
                        if (!value)
                                continue;
                        r = check_field(field, value, ret_field);
                        if (r < 0)
                                return r;
                }
        }
        for (const SchemaField *field = fields; field->name; field++) {
                struct json_object *value = NULL;

                if (field->type.optional)
                        continue;
                if (!object || !json_object_object_get_ex(object, field->name, &value) || !value) {
                        if (ret_field)
                                *ret_field = field->name;
                        return -EBADMSG;
                }
        }
        return 0;
}

int schema_check_symbol(const SchemaSymbol *symbols, const char *name, struct json_object *object,
                        const char **ret_field)
{
        for (const SchemaSymbol *s = symbols; s->name; s++)
                if (streq(s->name, name))
                        return schema_check(s->fields, object, ret_field);
        return -ENOENT;
}
