/* The manager's files: its directories, the lock of its whole life, its own socket, and the file that says
 * that it serves. ARCHITECTURE.md, "Scopes and sockets". */
#pragma once

#include "daemon/access.h"

#define RUNTIME_SOCKET_NAME "io.iloader.Manager"

typedef struct RuntimeOptions {
        Scope scope;
        const char *base_dir;    /* user scope; absolute and normal */
        const char *socket_path; /* user scope; absolute and normal; NULL: BASE/run/io.iloader.Manager */
        const char *runtime_dir; /* system scope; absolute and normal */
        const char *state_dir;   /* system scope; absolute and normal */
} RuntimeOptions;

typedef struct Runtime {
        Scope scope;
        char *directory; /* of the runtime files */
        char *prefix;    /* of their names; "" but for --socket */
        char *socket_path;
        char *views;      /* where default views are published */
        char *logs;       /* default log files; NULL in the system scope */
        char *quota_file; /* below quota_fd */
        int directory_fd;
        int registry_fd;
        int quota_fd; /* directory */
        int lock_fd, starters_fd;
        bool socket_made; /* by us, to be removed by us */
        dev_t socket_device;
        ino_t socket_inode;
} Runtime;

/* Makes what is missing and checks that it is ours. On failure *ret_message (owned) says what to do. */
int runtime_open(const RuntimeOptions *options, Runtime **ret, char **ret_message);
Runtime *runtime_free(Runtime *r);
DEFINE_CLEANUP(Runtime *, runtime_free)

/* Takes manager.lock for as long as the object lives: -EBUSY where another manager has it. */
int runtime_lock(Runtime *r);
/* start.lock, without waiting: -EBUSY where a starter has it. It is kept until it is given back, or the
 * object goes; then it is the last lock to go, so that a starter who gets it finds manager.lock free. */
int runtime_lock_starters(Runtime *r);
void runtime_unlock_starters(Runtime *r);
/* The manager's own listening socket, put in place complete; needs the lock. A stale socket of ours is
 * replaced, and nothing else: -EEXIST, or -EADDRINUSE where somebody listens there. */
int runtime_listen(Runtime *r, int *ret_fd);
/* Removes the socket if it is still the one that we made. */
void runtime_remove_socket(Runtime *r);
/* Replaces manager.ready by a fresh instance id, or removes it. */
int runtime_announce(const Runtime *r);
void runtime_retract(const Runtime *r);
/* DIRECTORY/PREFIXNAME.pid, and where default logs and views are; *ret is owned. */
int runtime_pid_file(const Runtime *r, const char *name, char **ret);
int runtime_log_file(const Runtime *r, const char *name, char **ret);
int runtime_view(const Runtime *r, const char *name, char **ret);
