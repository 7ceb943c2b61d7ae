/* See control.h. */
#include "daemon/worker/control.h"

#include <string.h>

#include "base/text.h"
#include "wire/worker-protocol.h"

/* Nothing that the worker sends is large, but a manager that is busy may leave some events unread. */
#define CONTROL_QUEUE_MAX MIB(1)
/* The root directory, the manifest and the pack; one more, so that a surplus one is named instead of cut off.
 */
#define CONTROL_FDS_MAX 4

struct Control {
        FrameStream *stream;
};

static const char *const command_names[_COMMAND_KIND_MAX] = {
        [COMMAND_LOAD] = "load", [COMMAND_QUIT] = "quit", [COMMAND_PUBLISH] = "publish",
        [COMMAND_LOG] = "log",   [COMMAND_STOP] = "stop",
};

void command_done(Command *c)
{
        free(c->line);
        *c = (Command){.kind = _COMMAND_KIND_INVALID};
}

int control_new(int fd, Control **ret)
{
        _cleanup_(control_freep) Control *c = NULL;
        int r;

        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        r = frame_stream_new(fd, WORKER_FRAME_MAX, CONTROL_FDS_MAX, CONTROL_QUEUE_MAX, &c->stream);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

Control *control_free(Control *c)
{
        if (!c)
                return NULL;
        frame_stream_free(c->stream);
        free(c);
        return NULL;
}

int control_get_fd(const Control *c)
{
        return frame_stream_get_fd(c->stream);
}

/* Every way in which the other end can be gone is one to the worker. */
static int control_error(int r)
{
        return r == -ECONNRESET || r == -EPIPE ? -ENOTCONN : r;
}

int control_receive_job(Control *c, Frame *ret)
{
        int r = frame_stream_receive_wait(c->stream, USEC_INFINITY, ret, NULL);

        return r < 0 ? control_error(r) : 0;
}

static int command_from_frame(const Frame *frame, Command *ret)
{
        const char *name, *line;
        CommandKind kind;
        int r;

        r = json_get_string(frame->object, "command", &name);
        if (r < 0)
                return -EBADMSG;
        for (kind = 0; kind < _COMMAND_KIND_MAX; kind++)
                if (streq(name, command_names[kind]))
                        break;
        if (kind == _COMMAND_KIND_MAX)
                return -EBADMSG;
        *ret = (Command){.kind = kind};
        if (kind != COMMAND_LOG)
                return 0;
        r = json_get_string(frame->object, "line", &line);
        if (r < 0)
                return -EBADMSG;
        ret->line = strdup(line);
        return ret->line ? 0 : -ENOMEM;
}

int control_receive(Control *c, Command *ret)
{
        _cleanup_frame_ Frame frame = {};
        int r;

        r = frame_stream_receive(c->stream, &frame, NULL);
        if (r <= 0)
                return control_error(r);
        r = command_from_frame(&frame, ret);
        return r < 0 ? r : 1;
}

int control_wait(Control *c, Command *ret)
{
        _cleanup_frame_ Frame frame = {};
        int r;

        r = frame_stream_receive_wait(c->stream, USEC_INFINITY, &frame, NULL);
        if (r < 0)
                return control_error(r);
        return command_from_frame(&frame, ret);
}

int control_offer(Control *c, struct json_object *event)
{
        _cleanup_json_ struct json_object *e = event;
        int r;

        if (!e)
                return -ENOMEM;
        r = frame_stream_send(c->stream, e, NULL, 0);
        return r < 0 ? control_error(r) : 0;
}

int control_send(Control *c, struct json_object *event, const int *fds, size_t n_fds)
{
        _cleanup_json_ struct json_object *e = event;
        int r;

        if (!e)
                return -ENOMEM;
        r = frame_stream_send(c->stream, e, fds, n_fds);
        if (r < 0)
                return control_error(r);
        r = frame_stream_flush_wait(c->stream, USEC_INFINITY);
        return r < 0 ? control_error(r) : 0;
}

bool control_is_idle(const Control *c)
{
        return frame_stream_queued(c->stream) == 0;
}

int control_flush(Control *c)
{
        int r = frame_stream_flush(c->stream);

        return r < 0 ? control_error(r) : r;
}
