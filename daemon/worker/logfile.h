/* The log file that a caller asked for: a regular file, appended to, never followed through a last link. */
#pragma once

#include <stdbool.h>

#include "daemon/worker/failure.h"

typedef struct LogFile {
        int fd;       /* owned; -EBADF: there is none */
        int dir_fd;   /* owned */
        char *name;   /* owned */
        bool created; /* by us */
} LogFile;
#define LOG_FILE_INIT                                                                                        \
        {                                                                                                    \
                .fd = -EBADF, .dir_fd = -EBADF                                                               \
        }
void log_file_done(LogFile *l);
#define _cleanup_log_file_ _cleanup_(log_file_done)

/* path is absolute below root_fd. Makes the file where there is none, if create is set; -ENOENT else. */
int log_file_open(int root_fd, const char *path, bool create, LogFile *ret, Failure *ret_failure);
/* Appends one line; control characters in it become '?'. No file: nothing happens. */
int log_file_append(const LogFile *l, const char *line);
/* From here on lines can only be appended. */
void log_file_settle(LogFile *l);
/* Takes an empty file that we made away again. */
void log_file_discard(const LogFile *l);
