/* Starting a program of our own: executed with closed descriptors, reset signals, its own credentials and,
 * where wanted, a death signal; watched through a pidfd. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/cleanup.h"

typedef struct SpawnCredentials {
        uid_t uid;
        gid_t gid;
        const gid_t *groups; /* supplementary groups, not owned */
        size_t n_groups;
} SpawnCredentials;

typedef struct SpawnOptions {
        int exec_fd;              /* the program as an open descriptor (execveat), or -EBADF for path */
        const char *path;         /* else: the program's path */
        char *const *argv;        /* not owned; NULL-terminated */
        char *const *environment; /* not owned; NULL: empty but for PATH and LANG */
        const int *fds;           /* become 3, 4, … in this order; not owned */
        size_t n_fds;
        int stdin_fd, stdout_fd, stderr_fd;  /* -EBADF: /dev/null (stderr: inherited) */
        const SpawnCredentials *credentials; /* NULL: unchanged */
        bool death_signal; /* SIGKILL when the parent dies; set after the uid change, the parent rechecked */
        bool new_session;  /* setsid */
        bool listen_pid;   /* sets LISTEN_PID to the child's pid and LISTEN_FDS to n_fds */
        const char *chdir_path; /* NULL: "/" */
} SpawnOptions;

#define SPAWN_OPTIONS_INIT                                                                                   \
        {                                                                                                    \
                .exec_fd = -EBADF, .stdin_fd = -EBADF, .stdout_fd = -EBADF, .stderr_fd = -EBADF              \
        }

/* Kernels before 6.14 name what was executed by exec_fd after the descriptor's number; the program calls
 * prctl(PR_SET_NAME) where its name matters. Returns 0 once the program has been executed: failures in the
 * child up to and including exec are the negative errno returned here. *ret_pidfd is the caller's; the child
 * must be reaped (pidfd_wait or an event source). */
int spawn_program(const SpawnOptions *options, pid_t *ret_pid, int *ret_pidfd);

/* Opens a program installed beside the running one (iloader-worker beside iloaderd), or in ../lib/iloader
 * next to the directory of the running one, O_PATH; so that a replaced package still finds its own version's
 * files open. */
int program_open_sibling(const char *name, char **ret_path);
