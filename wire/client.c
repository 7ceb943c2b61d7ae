/* A varlink client on a frame stream. */
#include "wire/client.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/text.h"

/* A manifest of tens of thousands of files may come in one reply. */
#define REPLY_SIZE_MAX MIB(64)
#define QUEUE_SIZE_MAX MIB(16)
/* How long a listener with a full backlog is given. */
#define CONNECT_TIMEOUT_SEC 5

struct VarlinkClient {
        FrameStream *stream;
        bool *calls; /* which of the calls that wait for their last reply asked for more; the oldest is first
                      */
        size_t n_calls;
        size_t allocated;
        int broken;
};

VarlinkClient *varlink_client_free(VarlinkClient *c)
{
        if (!c)
                return NULL;
        frame_stream_free(c->stream);
        free(c->calls);
        free(c);
        return NULL;
}

int varlink_client_new_fd(int fd, VarlinkClient **ret)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        int r;

        assert(ret);

        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        r = frame_stream_new(fd, REPLY_SIZE_MAX, FD_PASS_MAX, QUEUE_SIZE_MAX, &c->stream);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

int varlink_client_connect(const char *path, VarlinkClient **ret)
{
        struct timeval timeout = {.tv_sec = CONNECT_TIMEOUT_SEC};
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int any = -EBADF, fd = -EBADF;
        size_t n;
        int r;

        assert(path);

        n = strlen(path);
        if (n == 0)
                return -ENOENT;
        if (n >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, n + 1);
        any = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (any < 0)
                return -errno;
        fd = fd_dup(any);
        if (fd < 0)
                return fd;
        any = close_fd(any);
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
                return -errno;
        while (connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0) {
                if (errno != EINTR)
                        return errno == EAGAIN ? -ETIMEDOUT : -errno;
        }
        r = varlink_client_new_fd(fd, ret);
        if (r < 0)
                return r;
        TAKE_FD(fd);
        return 0;
}

int varlink_client_get_fd(const VarlinkClient *c)
{
        return frame_stream_get_fd(c->stream);
}

bool varlink_client_wants_output(const VarlinkClient *c)
{
        return frame_stream_queued(c->stream) > 0;
}

int varlink_client_peer_uid(const VarlinkClient *c, uid_t *ret)
{
        struct ucred ucred = {0};
        socklen_t n = sizeof(ucred);

        assert(ret);

        if (getsockopt(varlink_client_get_fd(c), SOL_SOCKET, SO_PEERCRED, &ucred, &n) < 0)
                return -errno;
        *ret = ucred.uid;
        return 0;
}

void varlink_reply_done(VarlinkReply *r)
{
        json_object_put(r->parameters);
        free(r->error);
        fd_set_done(&r->fds);
        *r = (VarlinkReply){0};
}

static int note_call(VarlinkClient *c, bool more)
{
        if (c->n_calls == c->allocated) {
                size_t n = c->allocated == 0 ? 4 : c->allocated * 2;
                bool *p = reallocarray(c->calls, n, sizeof(bool));

                if (!p)
                        return -ENOMEM;
                c->calls = p;
                c->allocated = n;
        }
        c->calls[c->n_calls++] = more;
        return 0;
}

static void forget_first_call(VarlinkClient *c)
{
        c->n_calls--;
        memmove(c->calls, c->calls + 1, c->n_calls * sizeof(bool));
}

static bool is_gone(int r)
{
        return r == -EPIPE || r == -ECONNRESET;
}

int varlink_client_send(VarlinkClient *c, const char *method, struct json_object *parameters, bool more,
                        const int *fds, size_t n_fds)
{
        _cleanup_json_ struct json_object *owned = parameters, *message = NULL;
        int r;

        assert(c);
        assert(method);

        message = json_object_new_object();
        if (!message)
                return -ENOMEM;
        r = json_add_string(message, "method", method);
        if (r < 0)
                return r;
        r = json_add(message, "parameters", owned ? TAKE_PTR(owned) : json_object_new_object());
        if (r < 0)
                return r;
        if (more) {
                r = json_add_bool(message, "more", true);
                if (r < 0)
                        return r;
        }
        r = note_call(c, more);
        if (r < 0)
                return r;
        r = frame_stream_send(c->stream, message, fds, n_fds);
        /* A server that refuses a connection says why before it closes: receiving tells. */
        if (r < 0 && !is_gone(r)) {
                c->n_calls--;
                return r;
        }
        return 0;
}

/* A varlink error is qualified by its interface. */
static bool error_name_is_valid(const char *s)
{
        const char *dot = strrchr(s, '.');

        return dot && dot != s && dot[1] != 0;
}

static int parse_reply(VarlinkClient *c, Frame *frame, VarlinkReply *ret)
{
        _cleanup_(varlink_reply_done) VarlinkReply reply = {0};

        json_object_object_foreach(frame->object, key, value)
        {
                if (streq(key, "parameters")) {
                        if (value && !json_object_is_type(value, json_type_object))
                                return -EBADMSG;
                        reply.parameters = json_object_get(value);
                } else if (streq(key, "error")) {
                        const char *s = NULL;

                        if (json_string_value(value, &s) < 0 || !error_name_is_valid(s))
                                return -EBADMSG;
                        reply.error = strdup(s);
                        if (!reply.error)
                                return -ENOMEM;
                } else if (streq(key, "continues")) {
                        if (!json_object_is_type(value, json_type_boolean))
                                return -EBADMSG;
                        reply.continues = json_object_get_boolean(value);
                } else
                        return -EBADMSG;
        }
        if (c->n_calls == 0 || (reply.continues && (reply.error || !c->calls[0])))
                return -EBADMSG;
        if (!reply.parameters)
                reply.parameters = json_object_new_object();
        if (!reply.parameters)
                return -ENOMEM;
        if (!reply.continues)
                forget_first_call(c);
        reply.fds = frame->fds;
        frame->fds = (FdSet){0};
        *ret = reply;
        reply = (VarlinkReply){0};
        return 1;
}

int varlink_client_process(VarlinkClient *c, VarlinkReply *ret)
{
        _cleanup_frame_ Frame frame = {0};
        int r;

        assert(c);
        assert(ret);

        if (c->broken < 0)
                return c->broken;
        r = frame_stream_flush(c->stream);
        if (r < 0 && !is_gone(r))
                return r;
        r = frame_stream_receive(c->stream, &frame, NULL);
        if (r > 0)
                r = parse_reply(c, &frame, ret);
        else if (r == -EMSGSIZE || r == -EPROTO)
                r = -EBADMSG;
        if (r < 0)
                c->broken = r;
        return r;
}

int varlink_client_receive(VarlinkClient *c, usec_t deadline, VarlinkReply *ret)
{
        for (;;) {
                short events;
                int r;

                r = varlink_client_process(c, ret);
                if (r != 0)
                        return r < 0 ? r : 0;
                events = varlink_client_wants_output(c) ? POLLIN | POLLOUT : POLLIN;
                r = fd_wait(varlink_client_get_fd(c), events, deadline);
                if (r < 0)
                        return r;
        }
}

int varlink_client_call(VarlinkClient *c, const char *method, struct json_object *parameters, const int *fds,
                        size_t n_fds, usec_t deadline, VarlinkReply *ret)
{
        int r;

        r = varlink_client_send(c, method, parameters, false, fds, n_fds);
        return r < 0 ? r : varlink_client_receive(c, deadline, ret);
}
