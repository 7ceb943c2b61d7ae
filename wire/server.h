/* A varlink server on sd-event (varlink.org, "Method Calls"): connections with caps, calls in order, replies with
 * "continues", fds in. A slow or hostile client is closed or waits alone. */
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
        size_t message_size;         /* of one incoming message; 1 MiB */
        size_t queue_size;           /* unsent bytes of one connection; past it the connection is closed; 16 MiB */
        size_t calls_per_connection; /* waiting calls; reading pauses past it; 16 */
        size_t connections;          /* 4096 */
        size_t connections_per_uid;  /* root is exempt; 512 */
        size_t fds_per_message;      /* 2 */
        usec_t write_timeout;        /* a connection that takes nothing of its queue for so long is closed; 30 s */
        usec_t partial_timeout;      /* a message that stays half-sent for so long closes it; 30 s */
} VarlinkLimits;
extern const VarlinkLimits varlink_limits_default;

/* A method: its parameters are dispatched through the table into a zeroed struct of parameters_size, which the server
 * frees with parameters_done after the handler returned. Handlers answer now or later (keep a reference); returning a
 * negative errno without having answered sends io.systemd.System-style "org.varlink.service.…"-less failure: the
 * server's error method, see varlink_server_set_error_handler(). */
typedef struct VarlinkMethod {
        const char *name; /* within the interface */
        const DispatchField *fields;
        size_t parameters_size;
        void (*parameters_done)(void *parameters);
        bool needs_more;  /* refused with ExpectedMore without "more" */
        int (*handler)(VarlinkCall *call, void *parameters, void *userdata);
} VarlinkMethod;

typedef struct VarlinkInterface {
        const char *name;
        const char *description; /* the interface text, for GetInterfaceDescription */
        const VarlinkMethod *methods; /* ends with an entry without a name */
} VarlinkInterface;

typedef struct VarlinkService {
        const char *vendor, *product, *version, *url;
} VarlinkService;

int varlink_server_new(sd_event *event, const VarlinkService *service, const VarlinkLimits *limits, VarlinkServer **ret);
VarlinkServer *varlink_server_free(VarlinkServer *s);
DEFINE_CLEANUP(VarlinkServer *, varlink_server_free)
/* The interface and all it points at must outlive the server. org.varlink.service is built in. */
int varlink_server_add_interface(VarlinkServer *s, const VarlinkInterface *interface, void *userdata);
/* Takes a listening socket on success. */
int varlink_server_listen(VarlinkServer *s, int fd);
size_t varlink_server_connections(const VarlinkServer *s);
/* Called (from the event loop) whenever the number of connections changed; for idle exit. */
typedef void (*VarlinkIdleHandler)(VarlinkServer *s, void *userdata);
void varlink_server_set_idle_handler(VarlinkServer *s, VarlinkIdleHandler handler, void *userdata);
/* What to answer when a handler returned a negative errno without replying. NULL: the connection is closed. */
typedef int (*VarlinkErrorHandler)(VarlinkCall *call, int error, void *userdata);
void varlink_server_set_error_handler(VarlinkServer *s, VarlinkErrorHandler handler, void *userdata);
/* Stops accepting; closes connections once their queues are sent, or at the deadline. */
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
/* Called once when the connection of a call that is not answered yet goes away. */
typedef void (*VarlinkGoneHandler)(VarlinkCall *c, void *userdata);
void varlink_call_set_gone_handler(VarlinkCall *c, VarlinkGoneHandler handler, void *userdata);

/* The final reply; takes parameters in every case (NULL: empty). fds are dup'ed. */
int varlink_call_reply(VarlinkCall *c, struct json_object *parameters);
int varlink_call_reply_fds(VarlinkCall *c, struct json_object *parameters, const int *fds, size_t n_fds);
/* One of several; only where the caller asked for "more". */
int varlink_call_notify(VarlinkCall *c, struct json_object *parameters);
/* error is the full name. Takes parameters in every case. */
int varlink_call_error(VarlinkCall *c, const char *error, struct json_object *parameters);
int varlink_call_invalid_parameter(VarlinkCall *c, const char *field);
int varlink_call_permission_denied(VarlinkCall *c); /* org.varlink.service.PermissionDenied */
/* Bytes waiting on the call's connection, so that a stream of notifications can pace itself. */
size_t varlink_call_queued(const VarlinkCall *c);
