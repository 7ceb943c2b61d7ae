/* Mutations that keep JSON well-formed: half of all inputs get one, so that the code behind the parser is
 * reached. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "tests/fuzz/fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

#define CONTAINERS_MAX 64U

typedef struct Mutation {
        uint64_t random;
        const char *const *words; /* likely keys and strings; ends with NULL */
        size_t n_words;
        struct json_object *containers[CONTAINERS_MAX]; /* not owned */
        size_t n_containers;
} Mutation;

/* xorshift64 */
static inline size_t mutation_pick(Mutation *m, size_t n)
{
        m->random ^= m->random << 13;
        m->random ^= m->random >> 7;
        m->random ^= m->random << 17;
        return (size_t) (m->random % n);
}

static inline void mutation_collect(Mutation *m, struct json_object *o)
{
        if (m->n_containers == CONTAINERS_MAX)
                return;
        if (json_object_is_type(o, json_type_object)) {
                m->containers[m->n_containers++] = o;
                json_object_object_foreach(o, key, value)
                {
                        (void) key;
                        mutation_collect(m, value);
                }
        } else if (json_object_is_type(o, json_type_array)) {
                m->containers[m->n_containers++] = o;
                for (size_t i = 0; i < json_object_array_length(o); i++)
                        mutation_collect(m, json_object_array_get_idx(o, i));
        }
}

static inline struct json_object *mutation_string(Mutation *m, struct json_object *old)
{
        char text[128];
        size_t n;

        if (!json_object_is_type(old, json_type_string) || mutation_pick(m, 2) == 0)
                return json_object_new_string(m->words[mutation_pick(m, m->n_words)]);
        n = MIN2((size_t) json_object_get_string_len(old), sizeof(text) / 2);
        memcpy(text, json_object_get_string(old), n);
        n = LLVMFuzzerMutate((uint8_t *) text, n, sizeof(text));
        return utf8_is_valid(text, n) ? json_object_new_string_len(text, (int) n)
                                      : json_object_new_string("");
}

static inline struct json_object *mutation_number(Mutation *m, struct json_object *old)
{
        static const int64_t likely[] = {0, 1, -1, 256, 1000000, INT64_MAX, INT64_MIN};
        int64_t v = json_object_is_type(old, json_type_int) ? json_object_get_int64(old) : 7;

        switch (mutation_pick(m, 3)) {
        case 0:
                return json_object_new_int64((int64_t) ((uint64_t) v * 3));
        case 1:
                return json_object_new_double((double) v / 2);
        default:
                return json_object_new_int64(likely[mutation_pick(m, ELEMENTSOF(likely))]);
        }
}

/* A new value in place of an old one, most often of the same type; NULL: of any. */
static inline struct json_object *mutation_value(Mutation *m, struct json_object *old)
{
        static const json_type others[] = {json_type_int,  json_type_string, json_type_boolean,
                                           json_type_null, json_type_array,  json_type_object};
        json_type type = old && mutation_pick(m, 4) > 0 ? json_object_get_type(old)
                                                        : others[mutation_pick(m, ELEMENTSOF(others))];

        switch (type) {
        case json_type_boolean:
                return json_object_new_boolean(mutation_pick(m, 2) == 0);
        case json_type_int:
        case json_type_double:
                return mutation_number(m, old);
        case json_type_string:
                return mutation_string(m, old);
        case json_type_array:
                return json_object_new_array();
        case json_type_object:
                return json_object_new_object();
        default:
                return NULL;
        }
}

static inline void mutation_change_array(Mutation *m, struct json_object *array)
{
        size_t n = json_object_array_length(array), i;

        if (n == 0 || mutation_pick(m, 2) == 0) {
                struct json_object *like =
                        n > 0 ? json_object_array_get_idx(array, mutation_pick(m, n)) : NULL;

                json_object_array_add(array, like ? mutation_value(m, like) : mutation_string(m, NULL));
                return;
        }
        i = mutation_pick(m, n);
        if (mutation_pick(m, 3) == 0)
                json_object_array_del_idx(array, i, 1);
        else
                json_object_array_put_idx(array, i, mutation_value(m, json_object_array_get_idx(array, i)));
}

static inline void mutation_change_object(Mutation *m, struct json_object *object)
{
        size_t n = (size_t) json_object_object_length(object), i = 0, wanted;

        if (n == 0 || mutation_pick(m, 4) == 0) {
                const char *key = m->words[mutation_pick(m, m->n_words)];

                json_object_object_add(object, key, mutation_value(m, NULL));
                return;
        }
        wanted = mutation_pick(m, n);
        json_object_object_foreach(object, key, value)
        {
                if (i++ != wanted)
                        continue;
                if (mutation_pick(m, 4) == 0)
                        json_object_object_del(object, key);
                else
                        json_object_object_add(object, key, mutation_value(m, value));
                return;
        }
}

/* One message in place. Returns its new size, 0 where it stays as it is. */
static inline size_t mutate_message(Mutation *m, uint8_t *data, size_t size, size_t max_size)
{
        _cleanup_json_ struct json_object *o = NULL;
        struct json_object *container;
        const char *text;
        size_t n = 0;

        if (json_parse_strict((const char *) data, size, &o, NULL) < 0)
                return 0;
        m->n_containers = 0;
        mutation_collect(m, o);
        if (m->n_containers == 0)
                return 0;
        container = m->containers[mutation_pick(m, m->n_containers)];
        if (json_object_is_type(container, json_type_array))
                mutation_change_array(m, container);
        else
                mutation_change_object(m, container);
        text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN, &n);
        if (!text || n == 0 || n > max_size)
                return 0;
        memcpy(data, text, n);
        return n;
}

/* One of the NUL-terminated messages that follow a prefix; the bytes in any other way where that fails, and
 * half the time. */
static inline size_t mutate_messages(uint8_t *data, size_t size, size_t max_size, size_t prefix,
                                     unsigned seed, const char *const *words)
{
        Mutation m = {.random = ((uint64_t) seed << 1) + 1, .words = words};
        size_t n_messages = 0, start = prefix, wanted, end, n;
        uint8_t *rest;

        while (words[m.n_words])
                m.n_words++;
        for (int i = 0; i < 8; i++)
                (void) mutation_pick(&m, 2);
        if (size <= prefix || mutation_pick(&m, 2) == 0)
                return LLVMFuzzerMutate(data, size, max_size);
        for (size_t i = prefix; i < size; i++)
                n_messages += data[i] == 0;
        wanted = mutation_pick(&m, n_messages + 1);
        for (size_t i = prefix; i < size && wanted > 0; i++)
                if (data[i] == 0) {
                        wanted--;
                        start = i + 1;
                }
        for (end = start; end < size && data[end] != 0;)
                end++;
        /* What follows moves with the message's end. */
        rest = malloc(size - end + 1);
        CHECK(rest);
        memcpy(rest, data + end, size - end);
        n = mutate_message(&m, data + start, end - start, max_size - start - (size - end));
        if (n > 0) {
                memcpy(data + start + n, rest, size - end);
                size = start + n + (size - end);
        } else
                size = LLVMFuzzerMutate(data, size, max_size);
        free(rest);
        return size;
}
