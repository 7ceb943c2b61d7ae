/* The pid file that a caller asked for: one decimal number and a newline, replaced atomically. */
#pragma once

#include <sys/types.h>

#include "daemon/worker/failure.h"

typedef struct PidFile {
        int dir_fd; /* owned; -EBADF: there is no pid file */
        char *name; /* owned */
        pid_t pid;
} PidFile;
#define PID_FILE_INIT                                                                                        \
        {                                                                                                    \
                .dir_fd = -EBADF                                                                             \
        }
void pid_file_done(PidFile *p);
#define _cleanup_pid_file_ _cleanup_(pid_file_done)

/* Writes it, path being absolute below root_fd. What is there already is replaced only if it is a pid file of
 * ours, and not of a worker that lives. */
int pid_file_write(int root_fd, const char *path, pid_t pid, PidFile *ret, Failure *ret_failure);
/* Removes it if it is still ours and holds this pid: 1 removed, 0 left alone. */
int pid_file_remove(const PidFile *p);
/* The same by path, after the process's death. */
int pid_file_remove_path(int root_fd, const char *path, pid_t pid);
