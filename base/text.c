/* Text: UTF-8, base64 and hexadecimal, string vectors, formatting. */
#include "base/text.h"

#include <string.h>

/* The longest word that text_distance() compares. */
#define WORD_MAX 64U

/* The ranges are those of table 3-7 of the Unicode standard, which rule out overlong forms, surrogates and
 * more than U+10FFFF. */
size_t utf8_character(const char *text, size_t n)
{
        const unsigned char *s = (const unsigned char *) text;
        unsigned char low = 0x80, high = 0xbf;
        size_t length, i;

        if (n == 0 || s[0] == 0)
                return 0;
        if (s[0] < 0x80)
                return 1;
        if (s[0] >= 0xc2 && s[0] <= 0xdf)
                length = 2;
        else if (s[0] >= 0xe0 && s[0] <= 0xef)
                length = 3;
        else if (s[0] >= 0xf0 && s[0] <= 0xf4)
                length = 4;
        else
                return 0;

        if (s[0] == 0xe0)
                low = 0xa0;
        else if (s[0] == 0xed)
                high = 0x9f;
        else if (s[0] == 0xf0)
                low = 0x90;
        else if (s[0] == 0xf4)
                high = 0x8f;
        if (n < length || s[1] < low || s[1] > high)
                return 0;
        for (i = 2; i < length; i++)
                if (s[i] < 0x80 || s[i] > 0xbf)
                        return 0;
        return length;
}

bool utf8_is_valid(const char *s, size_t n)
{
        while (n > 0) {
                size_t k = utf8_character(s, n);

                if (k == 0)
                        return false;
                s += k;
                n -= k;
        }
        return true;
}

int utf8_approximate(const char *s, char **ret)
{
        static const char replacement[] = "\xef\xbf\xbd";
        size_t n = strlen(s), at = 0, i = 0;
        char *text;

        if (n > (SIZE_MAX - 1) / 3)
                return -ENOMEM;
        text = malloc(n * 3 + 1);
        if (!text)
                return -ENOMEM;
        while (i < n) {
                size_t k = utf8_character(s + i, n - i);

                if (k > 0) {
                        memcpy(text + at, s + i, k);
                        at += k;
                        i += k;
                } else {
                        memcpy(text + at, replacement, 3);
                        at += 3;
                        i++;
                }
        }
        text[at] = '\0';
        *ret = text;
        return 0;
}

static const char base64_alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *data, size_t n, char **ret)
{
        const unsigned char *p = data;
        char *text, *q;

        if (n > SIZE_MAX / 4 * 3 - 6)
                return -ENOMEM;
        text = q = malloc((n + 2) / 3 * 4 + 1);
        if (!text)
                return -ENOMEM;
        for (; n >= 3; n -= 3, p += 3) {
                *q++ = base64_alphabet[p[0] >> 2];
                *q++ = base64_alphabet[(p[0] & 0x03) << 4 | p[1] >> 4];
                *q++ = base64_alphabet[(p[1] & 0x0f) << 2 | p[2] >> 6];
                *q++ = base64_alphabet[p[2] & 0x3f];
        }
        if (n > 0) {
                *q++ = base64_alphabet[p[0] >> 2];
                *q++ = base64_alphabet[(p[0] & 0x03) << 4 | (n > 1 ? p[1] >> 4 : 0)];
                *q++ = n > 1 ? base64_alphabet[(p[1] & 0x0f) << 2] : '=';
                *q++ = '=';
        }
        *q = '\0';
        *ret = text;
        return 0;
}

static int base64_value(char c)
{
        if (c >= 'A' && c <= 'Z')
                return c - 'A';
        if (c >= 'a' && c <= 'z')
                return c - 'a' + 26;
        if (c >= '0' && c <= '9')
                return c - '0' + 52;
        if (c == '+')
                return 62;
        if (c == '/')
                return 63;
        return -EINVAL;
}

int base64_decode_string(const char *text, char **ret)
{
        size_t n = strlen(text), padding = 0, at = 0, i;
        _cleanup_free_ char *result = NULL;
        uint32_t bits = 0;
        unsigned held = 0;

        if (n % 4 != 0)
                return -EINVAL;
        while (padding < 2 && padding < n && text[n - 1 - padding] == '=')
                padding++;
        result = malloc(n / 4 * 3 + 1);
        if (!result)
                return -ENOMEM;
        for (i = 0; i < n - padding; i++) {
                int value = base64_value(text[i]);
                char c;

                if (value < 0)
                        return -EINVAL;
                bits = bits << 6 | (uint32_t) value;
                held += 6;
                if (held < 8)
                        continue;
                held -= 8;
                c = (char) (bits >> held & 0xff);
                if (c == '\0')
                        return -EINVAL;
                result[at++] = c;
        }
        /* The bits that fill up the last character must be zero, or one value would have several texts. */
        if ((bits & ((1U << held) - 1)) != 0)
                return -EINVAL;
        result[at] = '\0';
        *ret = TAKE_PTR(result);
        return 0;
}

int hex_encode(const void *data, size_t n, char **ret)
{
        static const char digits[] = "0123456789abcdef";
        const unsigned char *p = data;
        char *text;
        size_t i;

        if (n > (SIZE_MAX - 1) / 2)
                return -ENOMEM;
        text = malloc(n * 2 + 1);
        if (!text)
                return -ENOMEM;
        for (i = 0; i < n; i++) {
                text[i * 2] = digits[p[i] >> 4];
                text[i * 2 + 1] = digits[p[i] & 0x0f];
        }
        text[n * 2] = '\0';
        *ret = text;
        return 0;
}

char **strv_free(char **l)
{
        size_t i;

        for (i = 0; l && l[i]; i++)
                free(l[i]);
        free(l);
        return NULL;
}

size_t strv_length(char *const *l)
{
        size_t n = 0;

        while (l && l[n])
                n++;
        return n;
}

int strv_append(char ***l, const char *s)
{
        _cleanup_free_ char *copy = NULL;
        size_t n = strv_length(*l);
        char **larger;

        copy = strdup(s);
        if (!copy)
                return -ENOMEM;
        larger = reallocarray(*l, n + 2, sizeof(char *));
        if (!larger)
                return -ENOMEM;
        larger[n] = TAKE_PTR(copy);
        larger[n + 1] = NULL;
        *l = larger;
        return 0;
}

int strv_copy(char *const *l, char ***ret)
{
        _cleanup_strv_ char **copy = NULL;
        size_t n = strv_length(l), i;

        copy = calloc(n + 1, sizeof(char *));
        if (!copy)
                return -ENOMEM;
        for (i = 0; i < n; i++) {
                copy[i] = strdup(l[i]);
                if (!copy[i])
                        return -ENOMEM;
        }
        *ret = TAKE_PTR(copy);
        return 0;
}

bool strv_equal(char *const *a, char *const *b)
{
        size_t n = strv_length(a), i;

        if (n != strv_length(b))
                return false;
        for (i = 0; i < n; i++)
                if (!streq(a[i], b[i]))
                        return false;
        return true;
}

int strv_join(char *const *l, const char *separator, char **ret)
{
        size_t n = strv_length(l), between = strlen(separator), total = 1, i;
        char *text, *p;

        for (i = 0; i < n; i++)
                total += strlen(l[i]) + (i > 0 ? between : 0);
        text = p = malloc(total);
        if (!text)
                return -ENOMEM;
        for (i = 0; i < n; i++) {
                if (i > 0)
                        p = mempcpy(p, separator, between);
                p = mempcpy(p, l[i], strlen(l[i]));
        }
        *p = '\0';
        *ret = text;
        return 0;
}

bool streq_ptr(const char *a, const char *b)
{
        if (!a || !b)
                return a == b;
        return streq(a, b);
}

const char *startswith(const char *s, const char *prefix)
{
        size_t n = strlen(prefix);

        return strncmp(s, prefix, n) == 0 ? s + n : NULL;
}

static char lower(char c)
{
        return (char) (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* Levenshtein's distance in which an exchange counts once (optimal string alignment): the usual table, of
 * which three rows are kept. */
size_t text_distance(const char *a, const char *b)
{
        size_t rows[3][WORD_MAX + 1], n = strlen(a), m = strlen(b);

        if (n > WORD_MAX || m > WORD_MAX)
                return SIZE_MAX;
        for (size_t j = 0; j <= m; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= n; i++) {
                size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];

                row[0] = i;
                for (size_t j = 1; j <= m; j++) {
                        bool same = lower(a[i - 1]) == lower(b[j - 1]);

                        row[j] = MIN2(MIN2(above[j], row[j - 1]) + 1, above[j - 1] + !same);
                        if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                            lower(a[i - 2]) == lower(b[j - 1]))
                                row[j] = MIN2(row[j], second[j - 2] + 1);
                }
        }
        return rows[n % 3][m];
}

int text_vformat(char **ret, const char *format, va_list ap)
{
        char *text;

        if (vasprintf(&text, format, ap) < 0)
                return -ENOMEM;
        /* Only now: the old text may have been among the arguments. */
        free(*ret);
        *ret = text;
        return 0;
}

int text_format(char **ret, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(ret, format, ap);
        va_end(ap);
        return r;
}
