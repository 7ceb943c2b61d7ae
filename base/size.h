/* Strict parsers of sizes, numbers, fractions and times, and their formatting for people. None accepts signs,
 * blanks, hexadecimal, exponents or anything after the value: -EINVAL; -ERANGE where it does not fit. */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"

/* Decimal digits only. */
int parse_u64(const char *s, uint64_t *ret);
int parse_u64_range(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
/* What parse_size() takes, for messages. */
#define SIZE_FORMS "a number of bytes, or one with a suffix K, M, G, T, KiB, MiB, GiB or TiB (powers of 1024)"
/* Decimal digits with an optional binary suffix B, K, KiB, M, MiB, G, GiB, T, TiB. The unit is 1024-based. */
int parse_size(const char *s, uint64_t *ret);
/* "0.9", "1", "0.05": 0 < f <= 1, digits and at most one point. */
int parse_fraction(const char *s, double *ret);
/* Seconds with up to six decimals ("3600", "2.5"), into microseconds; "infinity" is USEC_INFINITY, which
 * callers that need an end refuse. */
int parse_seconds(const char *s, usec_t *ret);
/* yes/no, true/false, on/off, 1/0. */
int parse_boolean(const char *s);
/* Octal file permissions, at most 0777. */
int parse_mode(const char *s, unsigned *ret);

/* "1.5 GiB", "512 B", into the caller's buffer; returns it. */
#define SIZE_TEXT_MAX 32
char *format_size(char buffer[static SIZE_TEXT_MAX], uint64_t bytes);
/* "2h 3min", "1.2s", "15ms". */
#define TIMESPAN_TEXT_MAX 48
char *format_timespan(char buffer[static TIMESPAN_TEXT_MAX], usec_t t);
/* a + b and a * b that stop at UINT64_MAX. */
uint64_t add_saturating(uint64_t a, uint64_t b);
uint64_t mul_saturating(uint64_t a, uint64_t b);
