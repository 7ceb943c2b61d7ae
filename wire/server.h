/* A varlink server on sd-event (varlink.org, "Method Calls"): connections with caps, calls in order, replies
 * with "continues", descriptors in both directions. A slow or hostile client is closed or waits alone: a
 * connection's next message is taken out of its socket only when the call before it is answered and the
 * answer has been sent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "wire/dispatch.h"
#include "wire/frame.h"

typedef struct VarlinkServer VarlinkServer;
typedef struct VarlinkCall VarlinkCall; /* one outstanding call, reference-counted */

/* Who is at the other end: SO_PEERCRED and SO_PEERGROUPS at connection time. */
typedef struct VarlinkPeer {
        pid_t pid; /* 0 where not visible */
        uid_t uid;
        gid_t gid;
        gid_t *groups;
        size_t n_groups;
} VarlinkPeer;

typedef struct VarlinkLimits {
        size_t message_size; /* of one incoming message; 1 MiB */
        size_t queue_size;   /* unsent bytes of one connection; past it the connection is closed; 16 MiB */
        size_t connections;  /* in all; a sixteenth of them is kept for root; 4096 */
        size_t connections_per_uid; /* root is exempt; 512 */
        size_t fds_per_message;     /* 2 */
        usec_t write_timeout;   /* a connection that takes nothing of its queue for so long is closed; 30 s */
        usec_t partial_timeout; /* a message that stays half-sent for so long closes it; 30 s */
} VarlinkLimits;
extern const VarlinkLimits varlink_limits_default;

/* A method: its parameters are dispatched through the table into a zeroed struct of parameters_size, which
 * the server frees with parameters_done after the handler returned. Handlers answer now or later (keep a
 * reference). Where one returns a negative errno without having answered, or nobody is left who could answer,
 * the error handler decides: see varlink_server_set_error_handler(). Without a handler a method is answered
 * with MethodNotImplemented. */
typedef struct VarlinkMethod {
        const char *name; /* within the interface */
        const DispatchField *fields;
        size_t parameters_size;
        void (*parameters_done)(void *parameters);
        bool needs_more; /* refused with ExpectedMore without "more" */
        int (*handler)(VarlinkCall *call, void *parameters, void *userdata);
} VarlinkMethod;

typedef struct VarlinkInterface {
        const char *name;
        const char *description;      /* the interface text, for GetInterfaceDescription */
        const VarlinkMethod *methods; /* ends with an entry without a name */
} VarlinkInterface;

typedef struct VarlinkService {
        const char *vendor, *product, *version, *url;
} VarlinkService;

int varlink_server_new(sd_event *event, const VarlinkService *service, const VarlinkLimits *limits,
                       VarlinkServer **ret);
/* Closes all connections; calls that somebody keeps stay valid, but are not alive. No handler is called any
 * more. Not to be called from a handler. */
VarlinkServer *varlink_server_free(VarlinkServer *s);
DEFINE_CLEANUP(VarlinkServer *, varlink_server_free)
/* The interface and all it points at must outlive the server. org.varlink.service is built in. */
int varlink_server_add_interface(VarlinkServer *s, const VarlinkInterface *interface, void *userdata);
/* Takes a listening socket on success. */
int varlink_server_listen(VarlinkServer *s, int fd);
/* Takes a connected socket on success; -EUSERS where it is over the limits. */
int varlink_server_add_connection(VarlinkServer *s, int fd);
/* The full name of an error with the members limit, maximum and message, with which connections over the
 * limits are refused before they are closed; not copied. NULL: they are closed without a word. */
void varlink_server_set_limit_error(VarlinkServer *s, const char *error);
size_t varlink_server_connections(const VarlinkServer *s);
/* Called (from the event loop) whenever the number of connections changed; for idle exit. */
typedef void (*VarlinkIdleHandler)(VarlinkServer *s, void *userdata);
void varlink_server_set_idle_handler(VarlinkServer *s, VarlinkIdleHandler handler, void *userdata);
/* What to answer when a handler returned a negative errno without replying (-ECANCELED: nobody kept the
 * call). NULL, or a handler that doesn't answer either: the connection is closed. */
typedef int (*VarlinkErrorHandler)(VarlinkCall *call, int error, void *userdata);
void varlink_server_set_error_handler(VarlinkServer *s, VarlinkErrorHandler handler, void *userdata);
/* Looks at every reply before it is sent, but those of org.varlink.service: error is NULL for a success. A
 * negative errno makes the replying function fail with it and leaves the call unanswered. For tests and
 * builds with sanitizers. */
typedef int (*VarlinkValidator)(const char *method, const char *error, struct json_object *parameters,
                                void *userdata);
void varlink_server_set_validator(VarlinkServer *s, VarlinkValidator validator, void *userdata);
/* Closes the listening sockets. Who is still in their queues waits there for whoever else has them open. */
void varlink_server_stop_listening(VarlinkServer *s);
/* Stops listening; takes the calls that have come already, so that nobody who got in goes unanswered where
 * the answer needs no waiting; stops reading; closes connections once their queues are sent, after the write
 * timeout in any case. The idle handler tells when none is left. */
void varlink_server_shutdown(VarlinkServer *s);
/* Pending connections wait in the listening sockets' queues: whether there is one. */
bool varlink_server_has_pending(VarlinkServer *s);

VarlinkCall *varlink_call_ref(VarlinkCall *c);
VarlinkCall *varlink_call_unref(VarlinkCall *c);
DEFINE_CLEANUP(VarlinkCall *, varlink_call_unref)
const VarlinkPeer *varlink_call_peer(const VarlinkCall *c);
bool varlink_call_wants_more(const VarlinkCall *c);
/* False once the connection is gone: replies are then dropped without an error. */
bool varlink_call_is_alive(const VarlinkCall *c);
bool varlink_call_is_oneway(const VarlinkCall *c);
/* Takes the i-th descriptor out of the message: -ENOENT where there is none. */
int varlink_call_take_fd(VarlinkCall *c, size_t i);
size_t varlink_call_n_fds(const VarlinkCall *c);
/* Called once, from the event loop, when the connection of a call that is not answered yet has gone. */
typedef void (*VarlinkGoneHandler)(VarlinkCall *c, void *userdata);
void varlink_call_set_gone_handler(VarlinkCall *c, VarlinkGoneHandler handler, void *userdata);
/* Bytes waiting on the call's connection, so that a stream of notifications can pace itself; and what is
 * called from the event loop, while the call is not answered, each time that all waiting bytes have been
 * sent. */
size_t varlink_call_queued(const VarlinkCall *c);
typedef void (*VarlinkDrainedHandler)(VarlinkCall *c, void *userdata);
void varlink_call_set_drained_handler(VarlinkCall *c, VarlinkDrainedHandler handler, void *userdata);

/* The final reply; takes parameters in every case (NULL: empty). fds are dup'ed. -EALREADY where one was
 * sent. */
int varlink_call_reply(VarlinkCall *c, struct json_object *parameters);
int varlink_call_reply_fds(VarlinkCall *c, struct json_object *parameters, const int *fds, size_t n_fds);
/* One of several; -EPROTO where the caller did not ask for "more". */
int varlink_call_notify(VarlinkCall *c, struct json_object *parameters);
/* error is the full name. Takes parameters in every case. */
int varlink_call_error(VarlinkCall *c, const char *error, struct json_object *parameters);
int varlink_call_invalid_parameter(VarlinkCall *c, const char *field);
int varlink_call_permission_denied(VarlinkCall *c); /* org.varlink.service.PermissionDenied */
