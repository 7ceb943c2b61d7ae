/* What the server's own files share: the server, its connections, its calls. */
#pragma once

#include "wire/server.h"

#define SERVICE_INTERFACE            "org.varlink.service"
#define ERROR_INTERFACE_NOT_FOUND    "org.varlink.service.InterfaceNotFound"
#define ERROR_METHOD_NOT_FOUND       "org.varlink.service.MethodNotFound"
#define ERROR_METHOD_NOT_IMPLEMENTED "org.varlink.service.MethodNotImplemented"
#define ERROR_INVALID_PARAMETER      "org.varlink.service.InvalidParameter"
#define ERROR_PERMISSION_DENIED      "org.varlink.service.PermissionDenied"
#define ERROR_EXPECTED_MORE          "org.varlink.service.ExpectedMore"

typedef struct Connection Connection;

/* Kept by the connection and by each of its calls, which may outlive it. */
typedef struct SharedPeer {
        unsigned n_ref;
        VarlinkPeer peer;
} SharedPeer;

typedef struct ServedInterface {
        const VarlinkInterface *interface; /* not owned */
        void *userdata;
} ServedInterface;

typedef struct Listener {
        int fd;
        sd_event_source *source;
} Listener;

struct VarlinkServer {
        sd_event *event;
        VarlinkLimits limits;
        char *vendor, *product, *version, *url;
        const char *limit_error; /* not owned */

        ServedInterface *interfaces;
        size_t n_interfaces;
        Listener *listeners;
        size_t n_listeners;
        int spare_fd;             /* given up to refuse a connection when there are no descriptors left */
        sd_event_source *resume;  /* listens again after a failure that only time mends */
        sd_event_source *reaper;  /* frees dead connections, when none of them is in use on the stack */
        sd_event_source *give_up; /* ends a shutdown */
        bool stopped;

        Connection *live;
        Connection *dead;
        size_t n_live;

        VarlinkIdleHandler idle_handler;
        void *idle_userdata;
        VarlinkErrorHandler error_handler;
        void *error_userdata;
        VarlinkValidator validator;
        void *validator_userdata;
};

struct Connection {
        VarlinkServer *server; /* not owned */
        FrameStream *stream;
        SharedPeer *peer;
        VarlinkCall *call; /* the one that is not answered yet; referenced */
        sd_event_source *io;
        sd_event_source *write_timer;   /* while something is queued */
        sd_event_source *partial_timer; /* while a message has come in part */
        bool draining;                  /* nothing more is read; ends when the queue is sent */
        bool last_read;                 /* of a shutdown */
        bool dead;
        Connection *previous;
        Connection *next;
};

struct VarlinkCall {
        unsigned n_ref;
        Connection *connection; /* not owned; NULL once answered, or when the connection has gone */
        VarlinkServer *server;  /* not owned; NULL with the connection */
        SharedPeer *peer;
        char *method;
        FdSet fds;
        bool more;
        bool oneway;
        bool answered;
        bool running; /* its handler is on the stack */
        VarlinkGoneHandler gone_handler;
        void *gone_userdata;
        VarlinkDrainedHandler drained_handler;
        void *drained_userdata;
};

/* connection.c */
/* Takes fd on success, and a reference of its own to peer. The server owns what was made. */
int connection_new(VarlinkServer *s, int fd, SharedPeer *peer);
/* Sends or queues. A connection that fails dies, which is no error; one is an object that can't be sent. */
int connection_send(Connection *c, struct json_object *object, const int *fds, size_t n_fds);
/* Ends it; it is freed, and its call told, from the event loop. */
void connection_kill(Connection *c);
/* Reads no more, and ends it once its queue is sent. */
/* Takes calls that have come, some at a time. */
void connection_read(Connection *c);
void connection_drain(Connection *c);
/* Watches for what the connection now waits for. */
void connection_update(Connection *c);
/* Frees a dead one. */
Connection *connection_free(Connection *c);

/* call.c */
int shared_peer_new(int fd, SharedPeer **ret);
SharedPeer *shared_peer_unref(SharedPeer *p);
DEFINE_CLEANUP(SharedPeer *, shared_peer_unref)
/* Starts the call that the frame holds; what can't be one is answered where possible and ends the connection.
 */
void call_start(Connection *c, Frame *frame);
/* Parts a call from its connection; with tell, its owner is told. */
void call_part(VarlinkCall *call, bool tell);

/* service.c */
extern const VarlinkInterface service_interface;
