#include "ctl/output.h"

#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

/* What a caller, a file or a manager named may hold anything: a terminal is shown no control characters of
 * it. */
static void _printf_(1, 0) say(const char *format, va_list ap)
{
        _cleanup_free_ char *text = NULL, *shown = NULL;

        if (text_vformat(&text, format, ap) < 0 || path_escape(text, &shown) < 0)
                (void) fprintf(stderr, "%s: out of memory\n", program_invocation_short_name);
        else
                (void) fprintf(stderr, "%s: %s\n", program_invocation_short_name, shown);
}

int output_error(const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        say(format, ap);
        va_end(ap);
        return EXIT_FAILURE;
}

void output_note(const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        say(format, ap);
        va_end(ap);
}

int output_json(struct json_object *o)
{
        const char *text = json_object_to_json_string_ext(
                o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);

        if (!text)
                return output_error("out of memory");
        (void) fprintf(stdout, "%s\n", text);
        return output_finish();
}

int output_json_line(struct json_object *o)
{
        const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE);

        if (!text)
                return output_error("out of memory");
        (void) fprintf(stdout, "%s\n", text);
        return output_finish();
}

int output_path(const char *path)
{
        (void) fprintf(stdout, "%s\n", path);
        return output_finish();
}

int output_finish(void)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return EXIT_SUCCESS;
        return output_error("cannot write to standard output: %s", strerror(errno));
}

char *format_time(char buffer[static TIME_TEXT_MAX], uint64_t realtime_usec)
{
        time_t t = (time_t) (realtime_usec / USEC_PER_SEC);
        struct tm tm;

        if (!localtime_r(&t, &tm) || strftime(buffer, TIME_TEXT_MAX, "%Y-%m-%d %H:%M:%S", &tm) == 0)
                (void) snprintf(buffer, TIME_TEXT_MAX, "-");
        return buffer;
}
