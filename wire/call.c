/* Calls: from a message to a handler, and from its answers to messages. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "wire/server-internal.h"

/* More supplementary groups than Linux allows. */
#define GROUPS_MAX 65536U

static int read_groups(int fd, VarlinkPeer *peer)
{
        socklen_t n = 0;

        /* The first call tells the size. ENODATA, ENOPROTOOPT: there are none to know. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) >= 0)
                return 0;
        if (errno != ERANGE)
                return errno == ENODATA || errno == ENOPROTOOPT ? 0 : -errno;
        if (n / sizeof(gid_t) > GROUPS_MAX)
                return -E2BIG;
        peer->groups = malloc(n);
        if (!peer->groups)
                return -ENOMEM;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &n) < 0)
                return -errno;
        peer->n_groups = n / sizeof(gid_t);
        return 0;
}

int shared_peer_new(int fd, SharedPeer **ret)
{
        _cleanup_(shared_peer_unrefp) SharedPeer *p = NULL;
        struct ucred ucred = {0};
        socklen_t n = sizeof(ucred);
        int r;

        assert(ret);

        p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        p->n_ref = 1;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &n) < 0)
                return -errno;
        p->peer.pid = ucred.pid;
        p->peer.uid = ucred.uid;
        p->peer.gid = ucred.gid;
        r = read_groups(fd, &p->peer);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

SharedPeer *shared_peer_unref(SharedPeer *p)
{
        if (!p || --p->n_ref > 0)
                return NULL;
        free(p->peer.groups);
        free(p);
        return NULL;
}

VarlinkCall *varlink_call_ref(VarlinkCall *c)
{
        assert(c && c->n_ref > 0);

        c->n_ref++;
        return c;
}

static void fail(VarlinkCall *c, int error)
{
        VarlinkServer *s = c->server;

        if (c->answered || !c->connection || c->connection->dead)
                return;
        if (s->error_handler)
                (void) s->error_handler(c, error, s->error_userdata);
        if (!c->answered && c->connection)
                connection_kill(c->connection);
}

VarlinkCall *varlink_call_unref(VarlinkCall *c)
{
        if (!c)
                return NULL;
        assert(c->n_ref > 0);
        if (--c->n_ref > 0) {
                /* The last one who could have answered gave up. */
                if (c->n_ref == 1 && !c->running && c->connection && !c->connection->dead && !c->answered) {
                        c->n_ref++;
                        c->running = true;
                        fail(c, -ECANCELED);
                        c->running = false;
                        return varlink_call_unref(c);
                }
                return NULL;
        }
        shared_peer_unref(c->peer);
        fd_set_done(&c->fds);
        free(c->method);
        free(c);
        return NULL;
}

void call_part(VarlinkCall *call, bool tell)
{
        Connection *c = call->connection;
        VarlinkGoneHandler handler = call->gone_handler;

        if (!c)
                return;
        assert(c->call == call);
        c->call = NULL;
        call->connection = NULL;
        call->server = NULL;
        call->gone_handler = NULL;
        call->drained_handler = NULL;
        if (tell && handler && !call->answered)
                handler(call, call->gone_userdata);
        varlink_call_unref(call);
}

const VarlinkPeer *varlink_call_peer(const VarlinkCall *c)
{
        return &c->peer->peer;
}

bool varlink_call_wants_more(const VarlinkCall *c)
{
        return c->more;
}

bool varlink_call_is_oneway(const VarlinkCall *c)
{
        return c->oneway;
}

bool varlink_call_is_alive(const VarlinkCall *c)
{
        return c->connection && !c->connection->dead && !c->connection->draining;
}

int varlink_call_take_fd(VarlinkCall *c, size_t i)
{
        if (i >= c->fds.n || c->fds.fds[i] < 0)
                return -ENOENT;
        return TAKE_FD(c->fds.fds[i]);
}

size_t varlink_call_n_fds(const VarlinkCall *c)
{
        return c->fds.n;
}

void varlink_call_set_gone_handler(VarlinkCall *c, VarlinkGoneHandler handler, void *userdata)
{
        c->gone_handler = handler;
        c->gone_userdata = userdata;
}

size_t varlink_call_queued(const VarlinkCall *c)
{
        return varlink_call_is_alive(c) ? frame_stream_queued(c->connection->stream) : 0;
}

void varlink_call_set_drained_handler(VarlinkCall *c, VarlinkDrainedHandler handler, void *userdata)
{
        c->drained_handler = handler;
        c->drained_userdata = userdata;
}

static int validate(const VarlinkCall *c, const char *error, struct json_object *parameters)
{
        const VarlinkServer *s = c->server;

        if (!s->validator || startswith(error ? error : c->method, SERVICE_INTERFACE "."))
                return 0;
        return s->validator(c->method, error, parameters, s->validator_userdata);
}

static int build_message(const char *error, struct json_object *parameters, bool continues,
                         struct json_object **ret)
{
        _cleanup_json_ struct json_object *message = NULL;
        int r;

        message = json_object_new_object();
        if (!message)
                return -ENOMEM;
        r = json_add_string(message, "error", error);
        if (r < 0)
                return r;
        r = json_add(message, "parameters", json_object_get(parameters));
        if (r < 0)
                return r;
        if (continues) {
                r = json_add_bool(message, "continues", true);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(message);
        return 0;
}

static int answer(VarlinkCall *c, const char *error, struct json_object *parameters, bool continues,
                  const int *fds, size_t n_fds)
{
        _cleanup_json_ struct json_object *owned = parameters, *message = NULL;
        Connection *connection = c->connection;
        int r;

        if (c->answered)
                return -EALREADY;
        if (continues && !c->more)
                return -EPROTO;
        if (varlink_call_is_alive(c) && !c->oneway) {
                if (!owned)
                        owned = json_object_new_object();
                if (!owned)
                        return -ENOMEM;
                r = validate(c, error, owned);
                if (r < 0)
                        return r;
                r = build_message(error, owned, continues, &message);
                if (r < 0)
                        return r;
                r = connection_send(connection, message, fds, n_fds);
                if (r < 0)
                        return r;
        }
        if (continues)
                return 0;
        c->answered = true;
        if (connection) {
                call_part(c, false);
                connection_update(connection);
        }
        return 0;
}

int varlink_call_reply_fds(VarlinkCall *c, struct json_object *parameters, const int *fds, size_t n_fds)
{
        return answer(c, NULL, parameters, false, fds, n_fds);
}

int varlink_call_reply(VarlinkCall *c, struct json_object *parameters)
{
        return answer(c, NULL, parameters, false, NULL, 0);
}

int varlink_call_notify(VarlinkCall *c, struct json_object *parameters)
{
        return answer(c, NULL, parameters, true, NULL, 0);
}

int varlink_call_error(VarlinkCall *c, const char *error, struct json_object *parameters)
{
        assert(error);

        return answer(c, error, parameters, false, NULL, 0);
}

static int error_with(VarlinkCall *c, const char *error, const char *key, const char *value)
{
        _cleanup_json_ struct json_object *parameters = NULL;
        int r;

        parameters = json_object_new_object();
        if (!parameters)
                return -ENOMEM;
        r = json_add_string(parameters, key, value);
        if (r < 0)
                return r;
        return varlink_call_error(c, error, TAKE_PTR(parameters));
}

int varlink_call_invalid_parameter(VarlinkCall *c, const char *field)
{
        return error_with(c, ERROR_INVALID_PARAMETER, "parameter", field);
}

int varlink_call_permission_denied(VarlinkCall *c)
{
        return varlink_call_error(c, ERROR_PERMISSION_DENIED, NULL);
}

/* A call message's members; the texts belong to the message. */
typedef struct Envelope {
        const char *method;
        struct json_object *parameters;
        bool oneway;
        bool more;
        bool upgrade;
} Envelope;

static int parse_envelope(struct json_object *message, Envelope *ret, const char **ret_field)
{
        const struct {
                const char *name;
                bool *target;
        } switches[] = {{"oneway", &ret->oneway}, {"more", &ret->more}, {"upgrade", &ret->upgrade}};

        *ret = (Envelope){0};
        *ret_field = "method";
        json_object_object_foreach(message, key, value)
        {
                bool known = true;

                if (streq(key, "method"))
                        known = json_string_value(value, &ret->method) >= 0;
                else if (streq(key, "parameters")) {
                        known = !value || json_object_is_type(value, json_type_object);
                        ret->parameters = value;
                } else {
                        size_t i = 0;

                        while (i < ELEMENTSOF(switches) && !streq(switches[i].name, key))
                                i++;
                        known = i < ELEMENTSOF(switches) && json_object_is_type(value, json_type_boolean);
                        if (known)
                                *switches[i].target = json_object_get_boolean(value);
                }
                if (!known) {
                        *ret_field = key;
                        return -EBADMSG;
                }
        }
        if (!ret->method)
                return -EBADMSG;
        if (ret->oneway && (ret->more || ret->upgrade)) {
                *ret_field = "oneway";
                return -EBADMSG;
        }
        return 0;
}

static const VarlinkMethod *find_method(const VarlinkServer *s, const char *full, size_t n_interface,
                                        const ServedInterface **ret_interface)
{
        *ret_interface = NULL;
        for (size_t i = 0; i < s->n_interfaces; i++) {
                const VarlinkInterface *interface = s->interfaces[i].interface;

                if (strlen(interface->name) != n_interface || memcmp(interface->name, full, n_interface) != 0)
                        continue;
                *ret_interface = &s->interfaces[i];
                for (const VarlinkMethod *m = interface->methods; m->name; m++)
                        if (streq(m->name, full + n_interface + 1))
                                return m;
                return NULL;
        }
        return NULL;
}

static int run_handler(VarlinkCall *call, const VarlinkMethod *method, void *parameters, void *userdata)
{
        int r;

        call->running = true;
        r = method->handler(call, parameters, userdata);
        call->running = false;
        /* One reference is the connection's, one the caller's of this function. */
        if (r >= 0 && !call->answered && call->n_ref == 2)
                r = -ECANCELED;
        return r;
}

/* Consumes the message: it is not needed any more while the handler runs. */
static int run_method(VarlinkCall *call, const VarlinkMethod *method, void *userdata,
                      struct json_object *parameters, struct json_object **message)
{
        _cleanup_free_ void *target = NULL;
        const char *field = NULL;
        int r;

        target = calloc(1, MAX2(method->parameters_size, (size_t) 1));
        if (!target)
                return -ENOMEM;
        r = dispatch_object(parameters, method->fields, target, &field);
        if (r == -EINVAL)
                r = varlink_call_invalid_parameter(call, field);
        else if (r >= 0) {
                json_object_put(TAKE_PTR(*message));
                r = run_handler(call, method, target, userdata);
        }
        if (method->parameters_done)
                method->parameters_done(target);
        return r;
}

static int route(VarlinkCall *call, const Envelope *e, struct json_object **message)
{
        const char *dot = strrchr(call->method, '.');
        const ServedInterface *interface = NULL;
        const VarlinkMethod *method;

        if (!dot || dot == call->method || dot[1] == 0)
                return varlink_call_invalid_parameter(call, "method");
        method = find_method(call->server, call->method, (size_t) (dot - call->method), &interface);
        if (!interface) {
                _cleanup_free_ char *name = strndup(call->method, (size_t) (dot - call->method));

                return name ? error_with(call, ERROR_INTERFACE_NOT_FOUND, "interface", name) : -ENOMEM;
        }
        if (!method)
                return error_with(call, ERROR_METHOD_NOT_FOUND, "method", call->method);
        if (!method->handler)
                return error_with(call, ERROR_METHOD_NOT_IMPLEMENTED, "method", call->method);
        if (e->upgrade)
                return varlink_call_invalid_parameter(call, "upgrade");
        if (method->needs_more && !e->more)
                return varlink_call_error(call, ERROR_EXPECTED_MORE, NULL);
        return run_method(call, method, interface->userdata, e->parameters, message);
}

/* A message that is no call. Only a client with a fault sends one: it is told which member is wrong, and
 * closed. */
static void refuse_message(Connection *c, const char *field)
{
        _cleanup_json_ struct json_object *parameters = NULL, *message = NULL;

        parameters = json_object_new_object();
        if (parameters && json_add_string(parameters, "parameter", field) >= 0 &&
            build_message(ERROR_INVALID_PARAMETER, parameters, false, &message) >= 0)
                (void) connection_send(c, message, NULL, 0);
        connection_drain(c);
}

void call_start(Connection *c, Frame *frame)
{
        _cleanup_json_ struct json_object *message = TAKE_PTR(frame->object);
        _cleanup_(varlink_call_unrefp) VarlinkCall *call = NULL;
        const char *field = NULL;
        Envelope e;
        int r;

        assert(!c->call);

        r = parse_envelope(message, &e, &field);
        if (r < 0) {
                refuse_message(c, field);
                return;
        }
        call = calloc(1, sizeof(*call));
        if (!call || !(call->method = strdup(e.method))) {
                free(TAKE_PTR(call));
                connection_kill(c);
                return;
        }
        call->n_ref = 2;
        call->connection = c;
        call->server = c->server;
        call->peer = c->peer;
        call->peer->n_ref++;
        call->more = e.more;
        call->oneway = e.oneway;
        call->fds = frame->fds;
        frame->fds = (FdSet){0};
        c->call = call;
        r = route(call, &e, &message);
        if (r < 0)
                fail(call, r);
}
