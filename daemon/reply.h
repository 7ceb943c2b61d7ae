/* Caches and leases as the interface's types. Each makes a new object in *ret, which is the caller's, or
 * -ENOMEM. */
#pragma once

#include "base/json.h"
#include "daemon/cache.h"

int reply_cache(const Cache *c, struct json_object **ret);
int reply_leases(const Cache *c, struct json_object **ret);
/* {"cache": …} */
int reply_with_cache(const Cache *c, struct json_object **ret);
/* A string, or null for NULL; adds to an array. */
int reply_append_string(struct json_object *array, const char *s);
