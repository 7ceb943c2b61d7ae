/* From JSON objects to C structs, by static tables. */
#include "wire/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const DispatchField *find_field(const DispatchField *table, const char *name)
{
        for (; table->name; table++)
                if (streq(table->name, name))
                        return table;
        return NULL;
}

static int blame(const char *name, const char **ret_field)
{
        if (ret_field)
                *ret_field = name;
        return -EINVAL;
}

static int dispatch_value(const DispatchField *field, struct json_object *value, void *target)
{
        if (!json_object_is_type(value, field->type) &&
            !(field->type == json_type_double && json_object_is_type(value, json_type_int)))
                return -EBADMSG;
        return field->parser(value, (char *) target + field->offset);
}

int dispatch_object(struct json_object *object, const DispatchField *table, void *target,
                    const char **ret_field)
{
        assert(table);
        assert(target);

        if (object && !json_object_is_type(object, json_type_object))
                return blame("parameters", ret_field);
        if (object) {
                json_object_object_foreach(object, key, value)
                {
                        const DispatchField *field = find_field(table, key);
                        int r;

                        if (!field)
                                return blame(key, ret_field);
                        if (!value)
                                continue;
                        r = dispatch_value(field, value, target);
                        if (r == -EBADMSG)
                                return blame(field->name, ret_field);
                        if (r < 0)
                                return r;
                }
        }
        for (const DispatchField *field = table; field->name; field++) {
                struct json_object *value = NULL;

                if (!(field->flags & DISPATCH_MANDATORY))
                        continue;
                if (!object || !json_object_object_get_ex(object, field->name, &value) || !value)
                        return blame(field->name, ret_field);
        }
        return 0;
}

int dispatch_string(struct json_object *value, void *target)
{
        char **s = target, *copy;
        const char *text = NULL;
        int r;

        r = json_string_value(value, &text);
        if (r < 0)
                return r;
        copy = strdup(text);
        if (!copy)
                return -ENOMEM;
        free(*s);
        *s = copy;
        return 0;
}

int dispatch_strv(struct json_object *value, void *target)
{
        char ***l = target, **copy = NULL;
        int r;

        r = json_strv_value(value, &copy);
        if (r < 0)
                return r;
        strv_free(*l);
        *l = copy;
        return 0;
}

int dispatch_optional_int(struct json_object *value, void *target)
{
        if (!json_object_is_type(value, json_type_int))
                return -EBADMSG;
        *(OptionalInt *) target = (OptionalInt){.set = true, .value = json_object_get_int64(value)};
        return 0;
}

int dispatch_optional_double(struct json_object *value, void *target)
{
        if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
                return -EBADMSG;
        *(OptionalDouble *) target = (OptionalDouble){.set = true, .value = json_object_get_double(value)};
        return 0;
}

int dispatch_optional_bool(struct json_object *value, void *target)
{
        if (!json_object_is_type(value, json_type_boolean))
                return -EBADMSG;
        *(OptionalBool *) target = (OptionalBool){.set = true, .value = json_object_get_boolean(value)};
        return 0;
}
