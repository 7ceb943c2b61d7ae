#include "ctl/progress.h"

#include <string.h>
#include <sys/ioctl.h>

#include "base/size.h"
#include "base/text.h"

#define DRAW_INTERVAL   (100 * USEC_PER_MSEC)
#define LINE_INTERVAL   (5 * USEC_PER_SEC)
#define SAMPLE_INTERVAL (250 * USEC_PER_MSEC)
/* Weight of the newest sample: a rate that follows within two seconds and does not jump. */
#define SMOOTHING     0.25
#define WIDTH_DEFAULT 80U
#define WIDTH_MAX     200U
#define BAR_MIN       10U
#define BAR_MAX       40U

void progress_init(Progress *p, const char *name, FILE *file, bool quiet)
{
        const char *term = getenv("TERM");

        *p = (Progress){.file = quiet ? NULL : file, .name = name};
        p->terminal = p->file && isatty(fileno(file)) && term && *term && !streq(term, "dumb");
}

static size_t terminal_width(FILE *f)
{
        struct winsize ws = {0};

        if (ioctl(fileno(f), TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0)
                return WIDTH_DEFAULT;
        return MIN2((size_t) ws.ws_col, (size_t) WIDTH_MAX);
}

/* " 1.2 GiB/s, 3s left": what is not known is left out. */
static void format_rate(char *buffer, size_t n, uint64_t done, uint64_t total, double rate)
{
        char size[SIZE_TEXT_MAX], span[TIMESPAN_TEXT_MAX];
        uint64_t seconds;
        size_t used;

        buffer[0] = '\0';
        if (rate < 1)
                return;
        (void) snprintf(buffer, n, "  %s/s", format_size(size, (uint64_t) rate));
        if (done >= total)
                return;
        /* Whole seconds: fractions would only flicker. */
        seconds = (uint64_t) ((double) (total - done) / rate) + 1;
        used = strlen(buffer);
        (void) snprintf(buffer + used, n - used, "  %s left",
                        format_timespan(span, MIN2(seconds, (uint64_t) UINT32_MAX) * USEC_PER_SEC));
}

static void draw_bar(char *buffer, size_t width, uint64_t done, uint64_t total)
{
        size_t full = total > 0 ? (size_t) ((double) done / (double) total * (double) width) : 0;

        buffer[0] = '[';
        for (size_t i = 0; i < width; i++)
                buffer[i + 1] = (char) (i < full ? '#' : '.');
        buffer[width + 1] = ']';
        buffer[width + 2] = '\0';
}

char *progress_format(char *buffer, size_t n, size_t width, const char *name, uint64_t done, uint64_t total,
                      double rate)
{
        char size_done[SIZE_TEXT_MAX], size_total[SIZE_TEXT_MAX], tail[128], figures[160],
                bar[BAR_MAX + 3] = "";
        size_t room;

        done = MIN2(done, total);
        format_rate(tail, sizeof(tail), done, total, rate);
        (void) snprintf(figures, sizeof(figures), "%3u%%  %s of %s",
                        total > 0 ? (unsigned) ((double) done / (double) total * 100) : 100U,
                        format_size(size_done, done), format_size(size_total, total));
        room = strlen(name) + 1 + strlen(figures) + strlen(tail);
        if (width > room + BAR_MIN + 3)
                draw_bar(bar, MIN2(width - room - 3, (size_t) BAR_MAX), done, total);
        if (room > width)
                tail[0] = '\0';
        (void) snprintf(buffer, n, "%s %s%s%s%s", name, bar, bar[0] ? " " : "", figures, tail);
        if (strlen(buffer) > width && width < n)
                buffer[width] = '\0';
        return buffer;
}

static void measure(Progress *p, uint64_t done, usec_t now)
{
        double sample;

        if (p->started == 0 || done < p->last) {
                p->started = p->measured = now;
                p->first = p->last = done;
                return;
        }
        if (now - p->measured < SAMPLE_INTERVAL)
                return;
        sample = (double) (done - p->last) * (double) USEC_PER_SEC / (double) (now - p->measured);
        p->rate = p->rate < 1 ? sample : p->rate + SMOOTHING * (sample - p->rate);
        p->measured = now;
        p->last = done;
}

void progress_update(Progress *p, uint64_t done, uint64_t total, usec_t now)
{
        char line[WIDTH_MAX + 64];

        if (!p->file)
                return;
        measure(p, done, now);
        if (p->shown == 0 && !p->terminal) {
                /* A load that takes less than the interval says nothing but its end. */
                p->shown = now;
                return;
        }
        if (now - p->shown < (p->terminal ? DRAW_INTERVAL : LINE_INTERVAL))
                return;
        p->shown = now;
        if (p->terminal) {
                /* One column stays free: a full line would wrap on some terminals. Drawn over, then the rest
                 * erased, so that nothing flickers. */
                progress_format(line, sizeof(line), terminal_width(p->file) - 1, p->name, done, total,
                                p->rate);
                (void) fprintf(p->file, "\r%s\033[K", line);
                p->drawn = true;
        } else
                (void) fprintf(
                        p->file, "%s\n",
                        progress_format(line, sizeof(line), WIDTH_DEFAULT, p->name, done, total, p->rate));
        (void) fflush(p->file);
}

void progress_clear(Progress *p)
{
        if (!p->drawn)
                return;
        (void) fputs("\r\033[K", p->file);
        (void) fflush(p->file);
        p->drawn = false;
}
