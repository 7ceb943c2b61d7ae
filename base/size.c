/* Strict parsers of what people and configuration files write, and formatting for people. */
#include "base/size.h"

#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* Reads the digits at *p and moves behind them. -EINVAL where there are none, -ERANGE past 64 bits. */
static int parse_digits(const char **p, uint64_t *ret)
{
        const char *s = *p;
        uint64_t value = 0;
        bool too_large = false;

        if (!is_digit(*s))
                return -EINVAL;
        for (; is_digit(*s); s++)
                if (__builtin_mul_overflow(value, (uint64_t) 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t) (*s - '0'), &value))
                        too_large = true;
        *p = s;
        *ret = value;
        return too_large ? -ERANGE : 0;
}

int parse_u64(const char *s, uint64_t *ret)
{
        uint64_t value;
        int r;

        r = parse_digits(&s, &value);
        /* Malformed beats too large: "99999999999999999999x" is no number at all. */
        if (r == -EINVAL || *s != '\0')
                return -EINVAL;
        if (r < 0)
                return r;
        *ret = value;
        return 0;
}

int parse_u64_range(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
        uint64_t value;
        int r;

        r = parse_u64(s, &value);
        if (r < 0)
                return r;
        if (value < min || value > max)
                return -ERANGE;
        *ret = value;
        return 0;
}

int parse_size(const char *s, uint64_t *ret)
{
        static const struct {
                const char *name;
                unsigned shift;
        } suffixes[] = {
                {"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
                {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40},
        };
        uint64_t value;
        size_t i;
        int r;

        r = parse_digits(&s, &value);
        if (r == -EINVAL)
                return r;
        for (i = 0; i < ELEMENTSOF(suffixes); i++)
                if (strcmp(s, suffixes[i].name) == 0) {
                        if (r < 0 || value > UINT64_MAX >> suffixes[i].shift)
                                return -ERANGE;
                        *ret = value << suffixes[i].shift;
                        return 0;
                }
        return -EINVAL;
}

/* Reads "digits" or "digits.digits" to the end of the text: the whole part, and the decimals as an integer of
 * *ret_places digits, at most max_places (-EINVAL). */
static int parse_decimal(const char *s, unsigned max_places, uint64_t *ret_whole, uint64_t *ret_decimals,
                         unsigned *ret_places)
{
        uint64_t whole, decimals = 0;
        unsigned places = 0;
        int r;

        r = parse_digits(&s, &whole);
        if (r == -EINVAL)
                return r;
        if (*s == '.') {
                for (s++; is_digit(*s); s++) {
                        if (places >= max_places)
                                return -EINVAL;
                        decimals = decimals * 10 + (uint64_t) (*s - '0');
                        places++;
                }
                if (places == 0)
                        return -EINVAL;
        }
        if (*s != '\0')
                return -EINVAL;
        if (r < 0)
                return r;
        *ret_whole = whole;
        *ret_decimals = decimals;
        *ret_places = places;
        return 0;
}

int parse_fraction(const char *s, double *ret)
{
        uint64_t whole, decimals, scale = 1;
        unsigned places;
        int r;

        /* Not strtod(3), whose decimal point depends on the locale. Up to 15 digits both parts of the
         * quotient are exact as double, so that the result is the nearest one. */
        r = parse_decimal(s, 15, &whole, &decimals, &places);
        if (r < 0)
                return r;
        if (whole > 1 || (whole == 1 && decimals > 0) || (whole == 0 && decimals == 0))
                return -ERANGE;
        for (; places > 0; places--)
                scale *= 10;
        *ret = whole == 1 ? 1.0 : (double) decimals / (double) scale;
        return 0;
}

int parse_seconds(const char *s, usec_t *ret)
{
        uint64_t whole, decimals, t;
        unsigned places;
        int r;

        if (strcmp(s, "infinity") == 0) {
                *ret = USEC_INFINITY;
                return 0;
        }
        r = parse_decimal(s, 6, &whole, &decimals, &places);
        if (r < 0)
                return r;
        for (; places < 6; places++)
                decimals *= 10;
        if (__builtin_mul_overflow(whole, USEC_PER_SEC, &t) || __builtin_add_overflow(t, decimals, &t) ||
            t == USEC_INFINITY)
                return -ERANGE;
        *ret = t;
        return 0;
}

int parse_boolean(const char *s)
{
        static const char *const words[][4] = {
                {"no", "false", "off", "0"},
                {"yes", "true", "on", "1"},
        };
        size_t value, i;

        for (value = 0; value < ELEMENTSOF(words); value++)
                for (i = 0; i < ELEMENTSOF(words[value]); i++)
                        if (strcasecmp(s, words[value][i]) == 0)
                                return (int) value;
        return -EINVAL;
}

int parse_mode(const char *s, unsigned *ret)
{
        unsigned mode = 0;

        if (*s == '\0')
                return -EINVAL;
        for (; *s >= '0' && *s <= '7'; s++)
                /* Stays above the limit once it is, without overflowing, while the rest is looked at. */
                mode = MIN2(mode * 8 + (unsigned) (*s - '0'), 01000U);
        if (*s != '\0')
                return -EINVAL;
        if (mode > 0777)
                return -ERANGE;
        *ret = mode;
        return 0;
}

char *format_size(char buffer[static SIZE_TEXT_MAX], uint64_t bytes)
{
        static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        double value = (double) bytes;
        size_t unit = 0;

        if (bytes < 1024) {
                (void) snprintf(buffer, SIZE_TEXT_MAX, "%u B", (unsigned) bytes);
                return buffer;
        }
        /* 1023.95 and more would be shown as 1024.0. */
        for (value /= 1024; value >= 1023.95 && unit + 1 < ELEMENTSOF(units); unit++)
                value /= 1024;
        (void) snprintf(buffer, SIZE_TEXT_MAX, "%.1f %s", value, units[unit]);
        return buffer;
}

char *format_timespan(char buffer[static TIMESPAN_TEXT_MAX], usec_t t)
{
        static const struct {
                uint64_t seconds;
                const char *name;
        } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
        uint64_t seconds = t / USEC_PER_SEC;
        size_t i;

        if (t == USEC_INFINITY) {
                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, "infinity");
                return buffer;
        }
        if (t < USEC_PER_MSEC) {
                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, "%uus", (unsigned) t);
                return buffer;
        }
        if (t < USEC_PER_SEC) {
                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, "%ums", (unsigned) (t / USEC_PER_MSEC));
                return buffer;
        }
        if (seconds < 60) {
                unsigned tenths = (unsigned) (t % USEC_PER_SEC / 100000);

                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, tenths ? "%u.%us" : "%us", (unsigned) seconds,
                                tenths);
                return buffer;
        }
        /* The largest unit that fits and the next one, which says enough. */
        for (i = 0; seconds < units[i].seconds; i++)
                ;
        if (seconds % units[i].seconds < units[i + 1].seconds)
                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, "%llu%s",
                                (unsigned long long) (seconds / units[i].seconds), units[i].name);
        else
                (void) snprintf(buffer, TIMESPAN_TEXT_MAX, "%llu%s %llu%s",
                                (unsigned long long) (seconds / units[i].seconds), units[i].name,
                                (unsigned long long) (seconds % units[i].seconds / units[i + 1].seconds),
                                units[i + 1].name);
        return buffer;
}

uint64_t add_saturating(uint64_t a, uint64_t b)
{
        uint64_t sum;

        return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t mul_saturating(uint64_t a, uint64_t b)
{
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
