/* The JSON reader: what it accepts, json-c's own strict reader accepts too and understands alike, and it
 * survives being written and read again. */
#include "tests/fuzz/mutate.h"

static void compare_with_json_c(const char *text, size_t n, struct json_object *ours)
{
        struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
        struct json_object *theirs;

        CHECK(tokener);
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        /* With the NUL, so that a number at the end is known to be over. */
        theirs = json_tokener_parse_ex(tokener, text, (int) n + 1);
        CHECK(json_tokener_get_error(tokener) == json_tokener_success);
        CHECK(json_object_equal(ours, theirs));
        json_object_put(theirs);
        json_tokener_free(tokener);
}

/* What was read is written and read once more. Blanks make up for those that went: what a value may cost in
 * memory grows with its text. */
static void read_again(struct json_object *o, size_t size)
{
        struct json_object *again = NULL;
        size_t n = 0, padded;
        const char *text = json_object_to_json_string_length(o, JSON_C_TO_STRING_PLAIN, &n);
        char *copy;

        CHECK(utf8_is_valid(text, n));
        padded = n > size ? n : size;
        copy = malloc(padded);
        CHECK(copy);
        memset(copy, ' ', padded);
        memcpy(copy, text, n);
        CHECK(json_parse_strict(copy, padded, &again, NULL) == 0);
        CHECK(json_object_equal(o, again));
        json_object_put(again);
        free(copy);
}

static void use(struct json_object *o)
{
        static const char *const keys[] = {"name", "path", "n", "list"};

        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                _cleanup_free_ char *path = NULL;
                _cleanup_strv_ char **l = NULL;
                struct json_object *sub = NULL;
                const char *s = NULL;
                int64_t n = 0;
                uint64_t u = 0;
                double d = 0;
                bool b = false;

                (void) json_get_string(o, keys[i], &s);
                (void) json_get_int(o, keys[i], &n);
                (void) json_get_size(o, keys[i], &u);
                (void) json_get_double(o, keys[i], &d);
                (void) json_get_bool(o, keys[i], &b);
                (void) json_get_object(o, keys[i], &sub);
                (void) json_get_array(o, keys[i], &sub);
                if (json_get_strv(o, keys[i], &l) == 0)
                        CHECK(l);
                if (json_get_path(o, keys[i], &path) == 0)
                        CHECK(path);
        }
}

#ifdef FUZZ_SEEDED_FAULT
static void seeded_fault(struct json_object *o)
{
        int64_t n = 0;

        if (json_get_int(o, "n", &n) == 0 && n > 1000)
                abort();
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_json_ struct json_object *o = NULL;
        _cleanup_free_ char *text = malloc(size + 1);
        JsonFault fault = {0};
        int r;

        CHECK(text);
        memcpy(text, data, size);
        text[size] = 0;
        r = json_parse_strict(text, size, &o, &fault);
        CHECK(r == 0 || (r == -EBADMSG && fault.reason && fault.offset <= size && !o));
        CHECK(json_check(text, size, NULL) == r);
        if (r < 0)
                return 0;
        compare_with_json_c(text, size, o);
        if (!o)
                return 0;
        read_again(o, size);
        use(o);
#ifdef FUZZ_SEEDED_FAULT
        seeded_fault(o);
#endif
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
        static const char *const words[] = {"name", "path", "pathBytes", "n", "list", "L3g=", "", NULL};

        return mutate_messages(data, size, max_size, 0, seed, words);
}
