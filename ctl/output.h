/* What the command says: results on standard output, everything else on standard error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

struct json_object;

/* "PROGRAM: message" on standard error, control characters escaped; returns EXIT_FAILURE, so that one
 * statement says and returns. */
int output_error(const char *format, ...) _printf_(1, 2);
/* The same for what is no failure. */
void output_note(const char *format, ...) _printf_(1, 2);

/* One document on standard output, for people too; the exit code. */
int output_json(struct json_object *o);
/* The same on one line, sent at once: for streams. */
int output_json_line(struct json_object *o);
/* A path alone on a line, with its exact bytes; the exit code. */
int output_path(const char *path);
/* To be called last: EXIT_FAILURE, with a message, where standard output did not take everything. */
int output_finish(void);

/* The local time of CLOCK_REALTIME microseconds, "2026-01-31 12:00:00"; returns buffer. */
#define TIME_TEXT_MAX 32
char *format_time(char buffer[static TIME_TEXT_MAX], uint64_t realtime_usec);
