/* Text: UTF-8, string vectors, formatting. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* Whether n bytes are UTF-8 as RFC 3629 has it (no surrogates, no overlong forms, no NUL). */
bool utf8_is_valid(const char *s, size_t n);
/* The length (1 to 4) of the character that the n bytes begin with; 0 where they begin with none. */
size_t utf8_character(const char *s, size_t n);
/* A copy in which each invalid byte is U+FFFD. */
int utf8_approximate(const char *s, char **ret);

/* Base64 of RFC 4648 with padding. Decoding is strict and refuses NUL bytes in the result with -EINVAL. */
int base64_encode(const void *data, size_t n, char **ret);
int base64_decode_string(const char *text, char **ret);

/* Lower-case hexadecimal of n bytes. */
int hex_encode(const void *data, size_t n, char **ret);

/* NULL-terminated vectors of strings; NULL is the empty one. */
char **strv_free(char **l);
static inline void strv_freep(char ***l)
{
        strv_free(*l);
}
#define _cleanup_strv_ _cleanup_(strv_freep)
size_t strv_length(char *const *l);
int strv_append(char ***l, const char *s);
int strv_copy(char *const *l, char ***ret);
bool strv_equal(char *const *a, char *const *b);
/* The elements with the separator between them. */
int strv_join(char *const *l, const char *separator, char **ret);

static inline bool streq(const char *a, const char *b)
{
        return __builtin_strcmp(a, b) == 0;
}
/* NULL equals only NULL. */
bool streq_ptr(const char *a, const char *b);
const char *startswith(const char *s, const char *prefix);

/* How many insertions, deletions, replacements and exchanges of two neighbours lead from one word to the
 * other, the case of ASCII letters ignored: for telling what was probably meant. SIZE_MAX for what is too
 * long to be a word. */
size_t text_distance(const char *a, const char *b);

/* asprintf that returns 0 or -ENOMEM and always sets *ret on success; replaces (frees) an old *ret. */
int text_format(char **ret, const char *format, ...) _printf_(2, 3);
int text_vformat(char **ret, const char *format, va_list ap) _printf_(2, 0);
