/* A cache's story: every event goes to the journal and, as a line with its time, to the cache's log file. */
#pragma once

#include "daemon/cache.h"
#include "daemon/events.h"

/* fields may be NULL; cache, source and owner are filled in. */
void note_event(Cache *c, EventKind kind, const EventFields *fields, const char *format, ...) _printf_(4, 5);
/* The worker listens from now on: what waited is sent. */
void note_flush(Cache *c);
/* "2026-01-31T12:00:00Z text"; *ret is owned. */
int note_line(const char *text, char **ret);
