/* A strict JSON reader that builds json-c objects itself, and typed access to them. json-c's own reader takes
 * the last of two equal keys, saturates numbers and lets more through than RFC 8259 does, so it never sees a
 * peer's bytes. */
#include "base/json.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* What a value costs when it is built, in units of a few dozen bytes: json-c gives each object a hash table
 * of 16. */
#define COST_SCALAR 1U
#define COST_ARRAY  4U
#define COST_OBJECT 16U
/* However short a text is, it may cost this much; beyond, a unit for each two bytes. So a text of "{},{},…"
 * can't take hundreds of times its size in memory. */
#define COST_ALLOWANCE 1024U

/* Doubles end at 1.8e308; what has more digits before its point than this is refused without looking closer.
 */
#define DOUBLE_DIGITS_MAX 308

typedef struct Reader {
        const char *text;
        size_t n;
        size_t at;
        size_t depth;
        size_t cost;
        char *scratch; /* room for the longest unescaped string */
        JsonFault fault;
} Reader;

static int read_value(Reader *r, struct json_object **ret);

static int refuse(Reader *r, const char *reason)
{
        r->fault = (JsonFault){.reason = reason, .offset = r->at};
        return -EBADMSG;
}

static int spend(Reader *r, size_t cost)
{
        r->cost += cost;
        return r->cost > COST_ALLOWANCE + r->n / 2 ? refuse(r, "too many values") : 0;
}

static int peek(const Reader *r)
{
        return r->at < r->n ? (unsigned char) r->text[r->at] : -1;
}

static bool take(Reader *r, char c)
{
        if (peek(r) != (unsigned char) c)
                return false;
        r->at++;
        return true;
}

static void skip_blanks(Reader *r)
{
        for (;; r->at++) {
                int c = peek(r);

                if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
                        return;
        }
}

static bool is_digit(int c)
{
        return c >= '0' && c <= '9';
}

/* Four hexadecimal digits of a \u escape. */
static int read_hex4(Reader *r, uint32_t *ret)
{
        uint32_t v = 0;

        for (int i = 0; i < 4; i++) {
                int c = peek(r);

                if (is_digit(c))
                        v = v << 4 | (uint32_t) (c - '0');
                else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                        v = v << 4 | (uint32_t) ((c | 0x20) - 'a' + 10);
                else
                        return refuse(r, "four hexadecimal digits must follow \\u");
                r->at++;
        }
        *ret = v;
        return 0;
}

static size_t utf8_encode(char *out, uint32_t c)
{
        if (c < 0x80) {
                out[0] = (char) c;
                return 1;
        }
        if (c < 0x800) {
                out[0] = (char) (0xc0 | c >> 6);
                out[1] = (char) (0x80 | (c & 0x3f));
                return 2;
        }
        if (c < 0x10000) {
                out[0] = (char) (0xe0 | c >> 12);
                out[1] = (char) (0x80 | (c >> 6 & 0x3f));
                out[2] = (char) (0x80 | (c & 0x3f));
                return 3;
        }
        out[0] = (char) (0xf0 | c >> 18);
        out[1] = (char) (0x80 | (c >> 12 & 0x3f));
        out[2] = (char) (0x80 | (c >> 6 & 0x3f));
        out[3] = (char) (0x80 | (c & 0x3f));
        return 4;
}

/* After "\u": one code point, of two escapes where it is beyond the first plane. */
static int read_unicode(Reader *r, char *out, size_t *n)
{
        uint32_t c = 0, low = 0;
        int k;

        k = read_hex4(r, &c);
        if (k < 0)
                return k;
        if (c == 0)
                return refuse(r, "a string holds a NUL character");
        if (c >= 0xdc00 && c <= 0xdfff)
                return refuse(r, "half a surrogate pair");
        if (c >= 0xd800 && c <= 0xdbff) {
                if (!take(r, '\\') || !take(r, 'u'))
                        return refuse(r, "half a surrogate pair");
                k = read_hex4(r, &low);
                if (k < 0)
                        return k;
                if (low < 0xdc00 || low > 0xdfff)
                        return refuse(r, "half a surrogate pair");
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
        *n += utf8_encode(out + *n, c);
        return 0;
}

static int read_escape(Reader *r, char *out, size_t *n)
{
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        int c = peek(r);
        const char *p;

        if (c < 0)
                return refuse(r, "a string does not end");
        r->at++;
        if (c == 'u')
                return read_unicode(r, out, n);
        p = c == 0 ? NULL : strchr(names, c);
        if (!p) {
                r->at--;
                return refuse(r, "an unknown escape");
        }
        out[(*n)++] = values[p - names];
        return 0;
}

/* The unescaped string is in r->scratch, NUL-terminated, until the next one is read. No escape is shorter
 * than what it stands for, so the text's own length is room enough. */
static int read_string(Reader *r, size_t *ret)
{
        size_t n = 0, start = r->at;

        if (!take(r, '"'))
                return refuse(r, "a string must start here");
        for (;;) {
                size_t run = r->at;
                int c;

                while (r->at < r->n && r->text[r->at] != '"' && r->text[r->at] != '\\' &&
                       (unsigned char) r->text[r->at] >= 0x20)
                        r->at++;
                memcpy(r->scratch + n, r->text + run, r->at - run);
                n += r->at - run;
                c = peek(r);
                if (c == '"')
                        break;
                if (c < 0)
                        return refuse(r, "a string does not end");
                if (c != '\\')
                        return refuse(r, "a string holds a control character");
                r->at++;
                c = read_escape(r, r->scratch, &n);
                if (c < 0)
                        return c;
        }
        r->at++;
        r->scratch[n] = 0;
        if (!utf8_is_valid(r->scratch, n)) {
                r->at = start;
                return refuse(r, "a string is not UTF-8");
        }
        *ret = n;
        return 0;
}

static int read_double(Reader *r, size_t start, struct json_object **ret)
{
        size_t n = r->at - start;
        char buffer[512], *end = NULL;
        locale_t c_locale;
        double v;

        if (n >= sizeof(buffer))
                return refuse(r, "a number has too many digits");
        memcpy(buffer, r->text + start, n);
        buffer[n] = 0;
        /* The process may have set a locale whose decimal point is a comma. */
        c_locale = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
        if (!c_locale)
                return -ENOMEM;
        v = strtod_l(buffer, &end, c_locale);
        freelocale(c_locale);
        if (*end || !isfinite(v))
                return refuse(r, "a number is out of range");
        *ret = json_object_new_double_s(v, buffer);
        return *ret ? 0 : -ENOMEM;
}

static int read_int(Reader *r, size_t start, struct json_object **ret)
{
        bool negative = r->text[start] == '-';
        uint64_t v = 0, max = negative ? (uint64_t) INT64_MAX + 1 : (uint64_t) INT64_MAX;

        for (size_t i = start + negative; i < r->at; i++) {
                uint64_t digit = (uint64_t) (r->text[i] - '0');

                if (v > (max - digit) / 10)
                        return refuse(r, "an integer does not fit 64 bits");
                v = v * 10 + digit;
        }
        *ret = json_object_new_int64(negative ? (int64_t) (0 - v) : (int64_t) v);
        return *ret ? 0 : -ENOMEM;
}

static size_t skip_digits(Reader *r)
{
        size_t start = r->at;

        while (is_digit(peek(r)))
                r->at++;
        return r->at - start;
}

static int read_number(Reader *r, struct json_object **ret)
{
        size_t start = r->at, whole;
        bool is_double = false;
        long exponent = 0;

        (void) take(r, '-');
        if (take(r, '0'))
                whole = 1;
        else
                whole = skip_digits(r);
        if (whole == 0 || is_digit(peek(r)))
                return refuse(r, "a malformed number");
        if (take(r, '.')) {
                is_double = true;
                if (skip_digits(r) == 0)
                        return refuse(r, "a malformed number");
        }
        if (take(r, 'e') || take(r, 'E')) {
                bool negative;

                is_double = true;
                negative = take(r, '-');
                if (!negative)
                        (void) take(r, '+');
                if (!is_digit(peek(r)))
                        return refuse(r, "a malformed number");
                for (; is_digit(peek(r)); r->at++)
                        exponent = MIN2(exponent * 10 + (peek(r) - '0'), 100000L);
                if (negative)
                        exponent = -exponent;
        }
        if (!is_double)
                return read_int(r, start, ret);
        if (whole > DOUBLE_DIGITS_MAX || (long) whole + exponent > DOUBLE_DIGITS_MAX)
                return refuse(r, "a number is out of range");
        return read_double(r, start, ret);
}

static int read_array(Reader *r, struct json_object **ret)
{
        _cleanup_json_ struct json_object *array = NULL;
        int k;

        k = spend(r, COST_ARRAY);
        if (k < 0)
                return k;
        array = json_object_new_array_ext(4);
        if (!array)
                return -ENOMEM;
        skip_blanks(r);
        if (!take(r, ']'))
                for (;;) {
                        _cleanup_json_ struct json_object *value = NULL;

                        k = read_value(r, &value);
                        if (k < 0)
                                return k;
                        if (json_object_array_add(array, value) < 0)
                                return -ENOMEM;
                        TAKE_PTR(value);
                        skip_blanks(r);
                        if (take(r, ']'))
                                break;
                        if (!take(r, ','))
                                return refuse(r, "a comma or ] must follow");
                }
        *ret = TAKE_PTR(array);
        return 0;
}

static int read_member(Reader *r, struct json_object *object)
{
        _cleanup_json_ struct json_object *value = NULL;
        _cleanup_free_ char *key = NULL;
        size_t n = 0, start;
        int k;

        skip_blanks(r);
        start = r->at;
        k = read_string(r, &n);
        if (k < 0)
                return k;
        if (json_object_object_get_ex(object, r->scratch, NULL)) {
                r->at = start;
                return refuse(r, "a key appears twice in an object");
        }
        key = strdup(r->scratch);
        if (!key)
                return -ENOMEM;
        skip_blanks(r);
        if (!take(r, ':'))
                return refuse(r, "a colon must follow");
        k = read_value(r, &value);
        if (k < 0)
                return k;
        if (json_object_object_add_ex(object, key, value, JSON_C_OBJECT_ADD_KEY_IS_NEW) < 0)
                return -ENOMEM;
        TAKE_PTR(value);
        return 0;
}

static int read_object(Reader *r, struct json_object **ret)
{
        _cleanup_json_ struct json_object *object = NULL;
        int k;

        k = spend(r, COST_OBJECT);
        if (k < 0)
                return k;
        object = json_object_new_object();
        if (!object)
                return -ENOMEM;
        skip_blanks(r);
        if (!take(r, '}'))
                for (;;) {
                        k = read_member(r, object);
                        if (k < 0)
                                return k;
                        skip_blanks(r);
                        if (take(r, '}'))
                                break;
                        if (!take(r, ','))
                                return refuse(r, "a comma or } must follow");
                }
        *ret = TAKE_PTR(object);
        return 0;
}

static int read_word(Reader *r, const char *word, struct json_object *value, struct json_object **ret)
{
        size_t n = strlen(word);

        if (r->n - r->at < n || memcmp(r->text + r->at, word, n) != 0) {
                json_object_put(value);
                return refuse(r, "a value must start here");
        }
        r->at += n;
        *ret = value;
        /* json-c's null is no object at all. */
        return value || *word == 'n' ? 0 : -ENOMEM;
}

static int read_container(Reader *r, struct json_object **ret)
{
        int k;

        if (r->depth >= JSON_DEPTH_MAX)
                return refuse(r, "nested too deeply");
        r->depth++;
        k = r->text[r->at++] == '[' ? read_array(r, ret) : read_object(r, ret);
        r->depth--;
        return k;
}

static int read_value(Reader *r, struct json_object **ret)
{
        size_t n = 0;
        int k;

        skip_blanks(r);
        k = spend(r, COST_SCALAR);
        if (k < 0)
                return k;
        switch (peek(r)) {
        case '{':
        case '[':
                return read_container(r, ret);
        case '"':
                k = read_string(r, &n);
                if (k < 0)
                        return k;
                if (n > INT_MAX)
                        return refuse(r, "a string is too long");
                *ret = json_object_new_string_len(r->scratch, (int) n);
                return *ret ? 0 : -ENOMEM;
        case 't':
                return read_word(r, "true", json_object_new_boolean(true), ret);
        case 'f':
                return read_word(r, "false", json_object_new_boolean(false), ret);
        case 'n':
                return read_word(r, "null", NULL, ret);
        case '-':
        case '0' ... '9':
                return read_number(r, ret);
        default:
                return refuse(r, "a value must start here");
        }
}

int json_parse_strict(const char *text, size_t n, struct json_object **ret, JsonFault *ret_fault)
{
        _cleanup_json_ struct json_object *value = NULL;
        _cleanup_free_ char *scratch = NULL;
        Reader r = {.text = text, .n = n};
        int k;

        assert(ret);

        r.scratch = scratch = malloc(n + 1);
        if (!scratch)
                return -ENOMEM;
        k = read_value(&r, &value);
        if (k == 0) {
                skip_blanks(&r);
                if (r.at < n)
                        k = refuse(&r, "something follows the value");
        }
        if (k < 0) {
                if (k == -EBADMSG && ret_fault)
                        *ret_fault = r.fault;
                return k;
        }
        *ret = TAKE_PTR(value);
        return 0;
}

int json_check(const char *text, size_t n, JsonFault *ret_fault)
{
        _cleanup_json_ struct json_object *value = NULL;

        return json_parse_strict(text, n, &value, ret_fault);
}

int json_add(struct json_object *o, const char *key, struct json_object *value)
{
        if (!value)
                return -ENOMEM;
        if (json_object_object_add(o, key, value) < 0) {
                json_object_put(value);
                return -ENOMEM;
        }
        return 0;
}

int json_add_string(struct json_object *o, const char *key, const char *value)
{
        return value ? json_add(o, key, json_object_new_string(value)) : 0;
}

int json_add_int(struct json_object *o, const char *key, int64_t value)
{
        return json_add(o, key, json_object_new_int64(value));
}

int json_add_size(struct json_object *o, const char *key, uint64_t value)
{
        return json_add_int(o, key, value > INT64_MAX ? INT64_MAX : (int64_t) value);
}

int json_add_bool(struct json_object *o, const char *key, bool value)
{
        return json_add(o, key, json_object_new_boolean(value));
}

int json_add_double(struct json_object *o, const char *key, double value)
{
        char text[32];

        /* JSON has no words for these. */
        if (!isfinite(value))
                return -ERANGE;
        /* The shortest text that reads back as the same number. */
        for (int digits = 15; digits <= 17; digits++) {
                (void) snprintf(text, sizeof(text), "%.*g", digits, value);
                if (strtod(text, NULL) == value)
                        break;
        }
        return json_add(o, key, json_object_new_double_s(value, text));
}

int json_add_strv(struct json_object *o, const char *key, char *const *l)
{
        _cleanup_json_ struct json_object *array = NULL;

        array = json_object_new_array();
        if (!array)
                return -ENOMEM;
        for (; l && *l; l++) {
                struct json_object *s = json_object_new_string(*l);

                if (!s)
                        return -ENOMEM;
                if (json_object_array_add(array, s) < 0) {
                        json_object_put(s);
                        return -ENOMEM;
                }
        }
        return json_add(o, key, TAKE_PTR(array));
}

int json_add_path(struct json_object *o, const char *key, const char *path)
{
        _cleanup_free_ char *approximate = NULL, *encoded = NULL, *bytes_key = NULL;
        int r;

        if (!path)
                return 0;
        if (utf8_is_valid(path, strlen(path)))
                return json_add_string(o, key, path);
        r = utf8_approximate(path, &approximate);
        if (r < 0)
                return r;
        r = base64_encode(path, strlen(path), &encoded);
        if (r < 0)
                return r;
        r = text_format(&bytes_key, "%sBytes", key);
        if (r < 0)
                return r;
        r = json_add_string(o, key, approximate);
        if (r < 0)
                return r;
        return json_add_string(o, bytes_key, encoded);
}

static int get_typed(struct json_object *o, const char *key, json_type type, struct json_object **ret)
{
        struct json_object *value = NULL;

        if (!json_object_is_type(o, json_type_object))
                return -EBADMSG;
        if (!json_object_object_get_ex(o, key, &value) || !value)
                return -ENOENT;
        if (!json_object_is_type(value, type) &&
            !(type == json_type_double && json_object_is_type(value, json_type_int)))
                return -EBADMSG;
        *ret = value;
        return 0;
}

int json_string_value(struct json_object *value, const char **ret)
{
        const char *s;

        if (!json_object_is_type(value, json_type_string))
                return -EBADMSG;
        s = json_object_get_string(value);
        if (!s || strlen(s) != (size_t) json_object_get_string_len(value))
                return -EBADMSG;
        *ret = s;
        return 0;
}

int json_get_string(struct json_object *o, const char *key, const char **ret)
{
        struct json_object *value = NULL;
        int r;

        r = get_typed(o, key, json_type_string, &value);
        return r < 0 ? r : json_string_value(value, ret);
}

int json_get_int(struct json_object *o, const char *key, int64_t *ret)
{
        struct json_object *value = NULL;
        int r;

        r = get_typed(o, key, json_type_int, &value);
        if (r == 0)
                *ret = json_object_get_int64(value);
        return r;
}

int json_get_size(struct json_object *o, const char *key, uint64_t *ret)
{
        int64_t v = 0;
        int r;

        r = json_get_int(o, key, &v);
        if (r < 0)
                return r;
        if (v < 0)
                return -EBADMSG;
        *ret = (uint64_t) v;
        return 0;
}

int json_get_bool(struct json_object *o, const char *key, bool *ret)
{
        struct json_object *value = NULL;
        int r;

        r = get_typed(o, key, json_type_boolean, &value);
        if (r == 0)
                *ret = json_object_get_boolean(value);
        return r;
}

int json_get_double(struct json_object *o, const char *key, double *ret)
{
        struct json_object *value = NULL;
        int r;

        r = get_typed(o, key, json_type_double, &value);
        if (r == 0)
                *ret = json_object_get_double(value);
        return r;
}

int json_get_object(struct json_object *o, const char *key, struct json_object **ret)
{
        return get_typed(o, key, json_type_object, ret);
}

int json_get_array(struct json_object *o, const char *key, struct json_object **ret)
{
        return get_typed(o, key, json_type_array, ret);
}

int json_strv_value(struct json_object *value, char ***ret)
{
        _cleanup_strv_ char **l = NULL;
        size_t n;

        if (!json_object_is_type(value, json_type_array))
                return -EBADMSG;
        /* Not strv_append(), whose cost may grow with the vector: a peer chooses the length. */
        n = json_object_array_length(value);
        l = calloc(n + 1, sizeof(char *));
        if (!l)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                const char *s = NULL;
                int r;

                r = json_string_value(json_object_array_get_idx(value, i), &s);
                if (r < 0)
                        return r;
                l[i] = strdup(s);
                if (!l[i])
                        return -ENOMEM;
        }
        *ret = TAKE_PTR(l);
        return 0;
}

int json_get_strv(struct json_object *o, const char *key, char ***ret)
{
        struct json_object *value = NULL;
        int r;

        r = get_typed(o, key, json_type_array, &value);
        return r < 0 ? r : json_strv_value(value, ret);
}

int json_get_path(struct json_object *o, const char *key, char **ret)
{
        _cleanup_free_ char *bytes_key = NULL, *path = NULL;
        const char *s = NULL;
        int r;

        r = text_format(&bytes_key, "%sBytes", key);
        if (r < 0)
                return r;
        r = json_get_string(o, bytes_key, &s);
        if (r == 0) {
                r = base64_decode_string(s, &path);
                if (r < 0)
                        return r == -ENOMEM ? r : -EBADMSG;
        } else if (r == -ENOENT) {
                r = json_get_string(o, key, &s);
                if (r < 0)
                        return r;
                path = strdup(s);
                if (!path)
                        return -ENOMEM;
        } else
                return r;
        *ret = TAKE_PTR(path);
        return 0;
}
