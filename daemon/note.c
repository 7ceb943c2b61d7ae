/* Telling of caches. */
#include "daemon/note.h"

#include <string.h>
#include <time.h>

#include "base/text.h"
#include "daemon/workers.h"

/* Lines that wait for a worker that is still loading. */
#define BACKLOG_MAX 32U
/* So many lines in so long a time. */
#define WINDOW_LINES 1000U
#define WINDOW       (60 * USEC_PER_SEC)

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

/* Whoever may lease a cache can make lines; the owner's disk is not his to fill. */
static bool may_log(Cache *c)
{
        usec_t now = now_monotonic();

        if (now - c->log_window > WINDOW) {
                c->log_window = now;
                c->log_lines = 0;
        }
        return c->log_lines++ < WINDOW_LINES;
}

static void note_log(Cache *c, const char *text)
{
        _cleanup_free_ char *line = NULL;

        if (!c->log_file || !may_log(c) || note_line(text, &line) < 0)
                return;
        if (worker_listens(c))
                (void) worker_log(c->worker, line);
        else if (!c->admitted && strv_length(c->log_backlog) < BACKLOG_MAX)
                (void) strv_append(&c->log_backlog, line);
}

void note_flush(Cache *c)
{
        for (char **l = c->log_backlog; l && *l; l++)
                if (c->worker)
                        (void) worker_log(c->worker, *l);
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
