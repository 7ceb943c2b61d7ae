/* Caches and leases as text for people, out of the interface's JSON. A manager of another version may send
 * less or more: what is missing is shown as "-". */
#pragma once

#include <stdio.h>

#include "base/json.h"

/* Every field of one cache, a line each. */
void cache_print(FILE *f, struct json_object *cache);
/* A table with a header. */
void cache_table_print(FILE *f, struct json_object *caches);
/* A line per lease: prefix, pid, command, uid, since when. */
void leases_print(FILE *f, const char *prefix, struct json_object *leases);
/* "1234 (vllm), 1240 (python3)"; *ret is owned, "" where there are none. */
int leases_describe(struct json_object *leases, char **ret);
/* "12 files, 3.1 GiB". */
int cache_size_describe(struct json_object *cache, char **ret);

/* Borrowed; "-" where absent. */
const char *cache_string(struct json_object *cache, const char *key);
/* 0 where absent. */
uint64_t cache_size(struct json_object *cache, const char *key);
