/* Telling of caches. */
#include "daemon/note.h"

#include <string.h>
#include <time.h>

#include "base/text.h"
#include "daemon/workers.h"

/* Lines that wait for a worker that is still loading. */
#define BACKLOG_MAX 32U

int note_line(const char *text, char **ret)
{
        time_t now = (time_t) (now_realtime() / USEC_PER_SEC);
        char stamp[32];
        struct tm tm;

        if (!gmtime_r(&now, &tm) || strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
                return -EINVAL;
        return text_format(ret, "%s %s", stamp, text);
}

/* Nothing is written before the load is admitted: a refused one leaves no file. */
static bool worker_listens(const Cache *c)
{
        return c->worker && c->admitted && c->phase <= CACHE_HELD;
}

static void note_log(Cache *c, const char *text)
{
        _cleanup_free_ char *line = NULL;

        if (!c->log_file || note_line(text, &line) < 0)
                return;
        if (worker_listens(c))
                (void) worker_send(c->worker, "log", line);
        else if (!c->admitted && strv_length(c->log_backlog) < BACKLOG_MAX)
                (void) strv_append(&c->log_backlog, line);
}

void note_flush(Cache *c)
{
        for (char **l = c->log_backlog; l && *l; l++)
                if (c->worker)
                        (void) worker_send(c->worker, "log", *l);
        c->log_backlog = strv_free(c->log_backlog);
}

void note_event(Cache *c, EventKind kind, const EventFields *fields, const char *format, ...)
{
        EventFields all = fields ? *fields : (EventFields) EVENT_FIELDS_INIT;
        _cleanup_free_ char *text = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(&text, format, ap);
        va_end(ap);
        if (r < 0)
                return;
        all.cache = cache_name(c);
        if (!all.source)
                all.source = c->settings->source;
        if (all.uid == (uid_t) -1)
                all.uid = c->owner.uid;
        event_log(kind, &all, "%s", text);
        note_log(c, text);
}
