/* Messages for the operator, to the journal or to stderr. */
#include "base/log.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Who called is said by the messages themselves. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "base/text.h"

/* Where journald listens. */
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Settings of the process: an exception to "no globals", since a log that had to be handed through every call
 * would be in the way of every signature. Written by main() only, before there are threads. */
static struct {
        bool journal;
        int max_level;
        const char *identifier; /* not owned: main()'s */
} settings = {.max_level = LOG_INFO};

/* systemd.exec(5): $JOURNAL_STREAM names the device and inode of the journal stream that a service's stdout
 * or stderr was connected to. It is inherited, so that only a comparison tells whether it still is. */
static bool stderr_is_journal(void)
{
        const char *stream = getenv("JOURNAL_STREAM");
        _cleanup_free_ char *text = NULL;
        struct stat st;

        if (!stream || fstat(STDERR_FILENO, &st) < 0)
                return false;
        if (text_format(&text, "%llu:%llu", (unsigned long long) st.st_dev, (unsigned long long) st.st_ino) <
            0)
                return false;
        return streq(stream, text);
}

void log_setup(LogTarget target, int max_level, const char *identifier)
{
        settings.journal = target == LOG_TARGET_JOURNAL || (target == LOG_TARGET_AUTO && stderr_is_journal());
        settings.max_level = LOG_PRI(max_level);
        settings.identifier = identifier;
}

void log_set_max_level(int level)
{
        settings.max_level = LOG_PRI(level);
}

static const char *identifier(void)
{
        return settings.identifier ? settings.identifier : program_invocation_short_name;
}

/* One line and one write(2), so that lines of several processes don't mix. A message may quote what a peer
 * said: control characters must not reach a terminal, nor begin a line of their own. */
static void write_stderr(const char *message)
{
        _cleanup_free_ char *line = NULL;
        size_t n, at = 0;
        char *p;

        if (text_format(&line, "%s: %s\n", identifier(), message) < 0)
                return;
        n = strlen(line);
        for (p = line; p < line + n - 1; p++)
                if ((unsigned char) *p < 0x20 || *p == 0x7f)
                        *p = *p == '\t' ? ' ' : '?';
        while (at < n) {
                ssize_t k = write(STDERR_FILENO, line + at, n - at);

                if (k < 0 && errno == EINTR)
                        continue;
                /* There is nobody left to tell. */
                if (k <= 0)
                        return;
                at += (size_t) k;
        }
}

/* Adds a field to the vector; the text must live as long as that does. */
static void add_field(struct iovec *vector, int *n, char *text)
{
        if (text)
                vector[(*n)++] = (struct iovec){.iov_base = text, .iov_len = strlen(text)};
}

static int write_journal(int level, int error, const char *message_id, char *const *fields,
                         const char *message)
{
        _cleanup_free_ char *text = NULL, *priority = NULL, *name = NULL, *id = NULL, *number = NULL;
        _cleanup_free_ struct iovec *vector = NULL;
        size_t i;
        int n = 0;

        /* sd_journal_sendv() says nothing where no journald listens, and the message would be lost. */
        if (access(JOURNAL_SOCKET, F_OK) < 0)
                return -errno;
        vector = calloc(strv_length(fields) + 5, sizeof(*vector));
        if (!vector || text_format(&text, "MESSAGE=%s", message) < 0 ||
            text_format(&priority, "PRIORITY=%d", LOG_PRI(level)) < 0 ||
            text_format(&name, "SYSLOG_IDENTIFIER=%s", identifier()) < 0)
                return -ENOMEM;
        if (message_id && text_format(&id, "MESSAGE_ID=%s", message_id) < 0)
                return -ENOMEM;
        if (error != 0 && text_format(&number, "ERRNO=%d", error) < 0)
                return -ENOMEM;
        add_field(vector, &n, text);
        add_field(vector, &n, priority);
        add_field(vector, &n, name);
        add_field(vector, &n, id);
        add_field(vector, &n, number);
        for (i = 0; fields && fields[i]; i++)
                add_field(vector, &n, fields[i]);
        return sd_journal_sendv(vector, n);
}

static void dispatch(int level, int error, const char *message_id, char *const *fields, const char *message)
{
        if (settings.journal && write_journal(level, error, message_id, fields, message) >= 0)
                return;
        write_stderr(message);
}

static void _printf_(5, 0) log_format(int level, int error, const char *message_id, char *const *fields,
                                      const char *format, va_list ap)
{
        _cleanup_free_ char *message = NULL;
        int saved = errno;

        if (LOG_PRI(level) > settings.max_level)
                return;
        /* What %m is to say. */
        if (error != 0)
                errno = error;
        /* Without memory the bare format still tells where we were. */
        dispatch(level, error, message_id, fields, text_vformat(&message, format, ap) < 0 ? format : message);
        errno = saved;
}

int log_full(int level, int error, const char *format, ...)
{
        va_list ap;

        error = abs(error);
        va_start(ap, format);
        log_format(level, error, NULL, NULL, format, ap);
        va_end(ap);
        return -error;
}

void log_entry(int level, const char *message_id, char *const *fields, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        log_format(level, 0, message_id, fields, format, ap);
        va_end(ap);
}
