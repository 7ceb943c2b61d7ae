/* Messages for the operator: structured journal entries where journald listens, plain lines on stderr
 * elsewhere. sd_journal_sendv(3), systemd.journal-fields(7). Only programs log; libraries return. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <syslog.h>

#include "base/cleanup.h"

typedef enum LogTarget {
        LOG_TARGET_AUTO, /* the journal where stderr is connected to it ($JOURNAL_STREAM), else stderr */
        LOG_TARGET_JOURNAL,
        LOG_TARGET_STDERR,
} LogTarget;

/* Settings of the process, set once by main(). */
void log_setup(LogTarget target, int max_level, const char *identifier);
void log_set_max_level(int level);

/* One line. Returns the negative of |error| (0 stays 0), so that one statement logs and returns:
 * return log_error(r, "cannot open %s: %m", path);  — %m is error's text. */
int log_full(int level, int error, const char *format, ...) _printf_(3, 4);
#define log_error(error, ...)   log_full(LOG_ERR, error, __VA_ARGS__)
#define log_warning(error, ...) log_full(LOG_WARNING, error, __VA_ARGS__)
#define log_notice(...)         ((void) log_full(LOG_NOTICE, 0, __VA_ARGS__))
#define log_info(...)           ((void) log_full(LOG_INFO, 0, __VA_ARGS__))
#define log_debug(...)          ((void) log_full(LOG_DEBUG, 0, __VA_ARGS__))

/* One structured entry. fields: NULL-terminated "KEY=value" strings beside MESSAGE and MESSAGE_ID (32 hex
 * digits, NULL: none). On stderr only the message is shown. */
void log_entry(int level, const char *message_id, char *const *fields, const char *format, ...)
        _printf_(4, 5);
