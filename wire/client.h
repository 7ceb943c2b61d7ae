/* A varlink client: blocking calls with a deadline, and the pieces to run it in an event loop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/frame.h"

typedef struct VarlinkClient VarlinkClient;

/* Connects to a Unix socket path (-ENAMETOOLONG past 107 bytes; -ENOENT, -ECONNREFUSED, -EACCES as connect(2)
 * says; -ETIMEDOUT where the listener's queue stays full). */
int varlink_client_connect(const char *path, VarlinkClient **ret);
/* Takes a connected socket on success. */
int varlink_client_new_fd(int fd, VarlinkClient **ret);
VarlinkClient *varlink_client_free(VarlinkClient *c);
DEFINE_CLEANUP(VarlinkClient *, varlink_client_free)
int varlink_client_get_fd(const VarlinkClient *c);
/* Whether bytes wait to be sent: an event loop then watches for POLLOUT too. */
bool varlink_client_wants_output(const VarlinkClient *c);
/* The uid of the listening process, by SO_PEERCRED. */
int varlink_client_peer_uid(const VarlinkClient *c, uid_t *ret);

typedef struct VarlinkReply {
        struct json_object *parameters; /* owned; never NULL after success */
        char *error;                    /* full name, owned; NULL on success */
        bool continues;
        FdSet fds;
} VarlinkReply;
void varlink_reply_done(VarlinkReply *r);
#define _cleanup_varlink_reply_ _cleanup_(varlink_reply_done)

/* Sends a call; takes parameters in every case (NULL: empty). fds are dup'ed. Replies come in order. A
 * server that has gone is reported by the receiving functions, since its last words may still be there. */
int varlink_client_send(VarlinkClient *c, const char *method, struct json_object *parameters, bool more,
                        const int *fds, size_t n_fds);
/* The next reply, waiting until the deadline (CLOCK_MONOTONIC): 0, -ETIMEDOUT, -ENOTCONN or -ECONNRESET where
 * the server went away, -EBADMSG where it does not speak varlink (after which the connection is unusable). A
 * varlink error is a success here: see r->error. */
int varlink_client_receive(VarlinkClient *c, usec_t deadline, VarlinkReply *ret);
/* The next reply, without waiting: 1 one was there, 0 none yet. For event loops: on POLLIN of the fd, call
 * until 0. */
int varlink_client_process(VarlinkClient *c, VarlinkReply *ret);
/* send and receive in one. */
int varlink_client_call(VarlinkClient *c, const char *method, struct json_object *parameters, const int *fds,
                        size_t n_fds, usec_t deadline, VarlinkReply *ret);
