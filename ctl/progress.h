/* The progress of a load on standard error: one line that is drawn over on a terminal, a line every few
 * seconds elsewhere, nothing where it is switched off. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/cleanup.h"

typedef struct Progress {
        FILE *file;       /* not owned; NULL: quiet */
        const char *name; /* of the cache; not owned */
        bool terminal;
        bool drawn;           /* a line stands on the terminal that must be removed */
        usec_t started;       /* of the first bytes; 0 before */
        usec_t shown;         /* when something was last shown */
        usec_t measured;      /* of the last rate sample */
        uint64_t first, last; /* bytes at started, at measured */
        double rate;          /* bytes a second, smoothed; 0: not known yet */
} Progress;

/* quiet shows nothing. A terminal that cannot move its cursor (TERM=dumb or unset) counts as none. */
void progress_init(Progress *p, const char *name, FILE *file, bool quiet);
/* now: CLOCK_MONOTONIC. Draws at most ten times a second, or a line every five seconds. */
void progress_update(Progress *p, uint64_t done, uint64_t total, usec_t now);
/* Removes the line, so that other text can follow. */
void progress_clear(Progress *p);

/* The line itself, at most width columns: name, bar, percentage, bytes, rate and time left, as much as fits.
 * The name must be plain ASCII, as cache names are. Returns buffer. */
char *progress_format(char *buffer, size_t n, size_t width, const char *name, uint64_t done, uint64_t total,
                      double rate);
