/* JSON (RFC 8259) from peers: checked strictly before json-c sees it, since json-c coerces, keeps the last of
 * two equal keys and saturates large numbers. */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define JSON_DEPTH_MAX 16

static inline void json_putp(struct json_object **o)
{
        if (*o)
                json_object_put(*o);
}
#define _cleanup_json_ _cleanup_(json_putp)

/* Why a text was refused, as a static string for people. */
typedef struct JsonFault {
        const char *reason;
        size_t offset;
} JsonFault;

/* One JSON value filling all n bytes: valid UTF-8, no duplicate keys (compared after unescaping) in any
 * object, at most JSON_DEPTH_MAX deep, integers within int64_t, finite numbers, no \u0000, no trailing bytes,
 * and not so many tiny values that it would take far more memory than its text. -EBADMSG with *ret_fault (may
 * be NULL) where not. *ret is the caller's; the value null is NULL. */
int json_parse_strict(const char *text, size_t n, struct json_object **ret, JsonFault *ret_fault);
/* The same where only the verdict is wanted. */
int json_check(const char *text, size_t n, JsonFault *ret_fault);

/* Adding to an object; each takes the value in every case and returns -ENOMEM on failure. */
int json_add(struct json_object *o, const char *key, struct json_object *value);
int json_add_string(struct json_object *o, const char *key, const char *value); /* NULL: nothing is added */
int json_add_int(struct json_object *o, const char *key, int64_t value);
int json_add_size(struct json_object *o, const char *key, uint64_t value); /* saturates at INT64_MAX */
int json_add_bool(struct json_object *o, const char *key, bool value);
/* -ERANGE where infinite or not a number. */
int json_add_double(struct json_object *o, const char *key, double value);
int json_add_strv(struct json_object *o, const char *key, char *const *l);
/* A path: key holds the text (invalid bytes approximated) and, only where that differs, keyBytes the base64;
 * NULL: nothing is added. */
int json_add_path(struct json_object *o, const char *key, const char *path);

/* Typed getters that never coerce: -ENOENT where absent or null, -EBADMSG where of another type. Strings are
 * borrowed from the object. */
int json_get_string(struct json_object *o, const char *key, const char **ret);
int json_get_int(struct json_object *o, const char *key, int64_t *ret);
int json_get_size(struct json_object *o, const char *key, uint64_t *ret); /* 0..INT64_MAX */
int json_get_bool(struct json_object *o, const char *key, bool *ret);
int json_get_double(struct json_object *o, const char *key, double *ret); /* takes integers too */
int json_get_object(struct json_object *o, const char *key, struct json_object **ret); /* borrowed */
int json_get_array(struct json_object *o, const char *key, struct json_object **ret);  /* borrowed */
/* *ret is owned, and never NULL on success: an empty array is an empty vector, an absent one is -ENOENT. */
int json_get_strv(struct json_object *o, const char *key, char ***ret);
/* The counterpart of json_add_path; *ret is owned. -EBADMSG also where keyBytes isn't strict base64 or holds
 * NUL. */
int json_get_path(struct json_object *o, const char *key, char **ret);

/* The same for a value at hand. */
int json_string_value(struct json_object *value, const char **ret); /* borrowed */
int json_strv_value(struct json_object *value, char ***ret);        /* owned */
