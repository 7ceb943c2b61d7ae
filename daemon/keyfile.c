/* Reading configuration files with libinih. That library has its own idea of continued lines, inline comments
 * and of "key: value", and its handlers aren't told lines: so it is given one whole logical line at a time,
 * already checked, by a reader that counts. */
#include "daemon/keyfile.h"

#include <ini.h>
#include <string.h>

#include "daemon/config.h"

#define KEYFILE_LINE_MAX 65536

typedef struct KeyfileReader {
        const char *path; /* not owned, as all pointers here */
        const char *next, *end;
        unsigned line;       /* of the last physical line read */
        unsigned first_line; /* where the logical line began */
        KeyfileHandler handler;
        void *userdata;
        ConfigFault *fault;
        int error;
} KeyfileReader;

static char *reader_fail(KeyfileReader *r, const char *message)
{
        r->error = config_fault_set(r->fault, r->path, r->first_line, "%s", message);
        return NULL;
}

static bool is_blank(char c)
{
        return c == ' ' || c == '\t';
}

/* The next physical line without its end, and whether there was one. */
static bool next_physical(KeyfileReader *r, const char **ret, size_t *ret_n)
{
        const char *newline;
        size_t n;

        if (r->next >= r->end)
                return false;
        newline = memchr(r->next, '\n', (size_t) (r->end - r->next));
        n = (size_t) ((newline ?: r->end) - r->next);
        *ret = r->next;
        r->next += n + (newline ? 1 : 0);
        if (n > 0 && (*ret)[n - 1] == '\r')
                n--;
        *ret_n = n;
        r->line++;
        return true;
}

static bool is_comment(const char *line, size_t n)
{
        while (n > 0 && is_blank(*line)) {
                line++;
                n--;
        }
        return n > 0 && (*line == '#' || *line == ';');
}

/* A logical line into buffer: 1, 0 at the end, -1 after a fault. Lines that end in a backslash go on in the
 * next line that is no comment, with a blank in the backslash's place. */
static int next_logical(KeyfileReader *r, char *buffer, size_t size)
{
        size_t length = 0, n;
        const char *line;
        bool continued = false;

        while (next_physical(r, &line, &n)) {
                if (!continued)
                        r->first_line = r->line;
                if (is_comment(line, n)) {
                        if (continued)
                                continue;
                        n = 0;
                }
                for (size_t i = 0; i < n; i++)
                        if (((unsigned char) line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f) {
                                reader_fail(r, "the line holds a control character");
                                return -1;
                        }
                continued = n > 0 && line[n - 1] == '\\';
                if (n + 2 > size - length) {
                        reader_fail(r, "the line is longer than 65536 bytes");
                        return -1;
                }
                memcpy(buffer + length, line, n);
                length += n;
                if (!continued) {
                        buffer[length] = '\0';
                        return 1;
                }
                buffer[length - 1] = ' ';
        }
        buffer[length] = '\0';
        return continued;
}

/* Removes blanks around it, in place. */
static void strip(char *s)
{
        size_t lead = strspn(s, " \t"), n = strlen(s + lead);

        memmove(s, s + lead, n + 1);
        while (n > 0 && is_blank(s[n - 1]))
                s[--n] = '\0';
}

/* ini_reader: a line that the library takes as we mean it, or NULL at the end and after a fault. */
static char *reader_line(char *buffer, int size, void *stream)
{
        KeyfileReader *r = stream;

        while (r->error >= 0 && next_logical(r, buffer, (size_t) size) > 0) {
                size_t n;

                strip(buffer);
                n = strlen(buffer);
                if (n == 0)
                        continue;
                if (buffer[0] == '[') {
                        if (n < 3 || strchr(buffer, ']') != buffer + n - 1)
                                return reader_fail(r, "a section's line must be '[NAME]'");
                        buffer[n - 1] = '\0';
                        r->error = r->handler(buffer + 1, NULL, NULL, r->first_line, r->userdata);
                        if (r->error < 0)
                                return NULL;
                        buffer[n - 1] = ']';
                } else if (strcspn(buffer, ":=") == n || buffer[strcspn(buffer, ":=")] == ':')
                        return reader_fail(r, "expected 'KEY=value', '[SECTION]' or a comment");
                else if (buffer[0] == '=')
                        return reader_fail(r, "there is no key before '='");
                return buffer;
        }
        return NULL;
}

/* ini_handler: non-zero goes on. */
static int reader_assignment(void *userdata, const char *section, const char *key, const char *value)
{
        KeyfileReader *r = userdata;

        r->error = *section == '\0'
                           ? config_fault_set(r->fault, r->path, r->first_line,
                                              "'%s=' stands before any section: begin the file with one", key)
                           : r->handler(section, key, value, r->first_line, r->userdata);
        return r->error >= 0;
}

int keyfile_parse(const char *path, const char *text, size_t n, KeyfileHandler handler, void *userdata,
                  ConfigFault *ret_fault)
{
        static const char bom[] = "\xef\xbb\xbf";
        KeyfileReader reader = {
                .path = path,
                .next = text,
                .end = text + n,
                .handler = handler,
                .userdata = userdata,
                .fault = ret_fault,
        };
        int r;

        if (n >= strlen(bom) && memcmp(text, bom, strlen(bom)) == 0)
                reader.next += strlen(bom);
        /* The library is configured by variables of its own; nothing else in the program uses it. */
        ini_use_stack = false;
        ini_max_line = KEYFILE_LINE_MAX;
        ini_initial_alloc = KEYFILE_LINE_MAX;
        ini_allow_realloc = false;
        ini_allow_multiline = false;
        ini_allow_inline_comments = false;
        ini_allow_no_value = false;
        ini_stop_on_first_error = true;

        r = ini_parse_stream(reader_line, &reader, reader_assignment, &reader);
        if (reader.error < 0)
                return reader.error;
        if (r == -2)
                return -ENOMEM;
        if (r != 0)
                return config_fault_set(ret_fault, path, reader.first_line, "the line cannot be read");
        return 0;
}
