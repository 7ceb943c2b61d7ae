/* Frames on a stream socket: NUL-terminated JSON objects with the descriptors that came with their bytes. */
#include "wire/frame.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text.h"

/* What a frame's buffer starts with; it is freed between frames, so that an idle stream costs nothing. */
#define BUFFER_MIN KIB(4)

typedef struct Outgoing {
        struct Outgoing *next;
        FdSet fds; /* until the first byte is sent */
        size_t n;
        size_t sent;
        char data[];
} Outgoing;

struct FrameStream {
        int fd;
        size_t max_size;
        size_t max_fds;
        size_t max_queue;
        int broken; /* the error that ended receiving */

        /* the frame that is being received */
        char *buffer;
        size_t used;
        size_t allocated;
        FdSet fds;

        Outgoing *first;
        Outgoing *last;
        size_t queued; /* bytes */
};

void frame_done(Frame *f)
{
        json_object_put(f->object);
        f->object = NULL;
        fd_set_done(&f->fds);
}

int frame_stream_new(int fd, size_t max_size, size_t max_fds, size_t max_queue, FrameStream **ret)
{
        _cleanup_(frame_stream_freep) FrameStream *s = NULL;
        int type = 0, r;
        socklen_t n = sizeof(type);

        assert(ret);

        if (max_fds > FD_PASS_MAX || max_size == 0 || max_size >= SIZE_MAX - 1)
                return -EINVAL;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0)
                return -errno;
        if (type != SOCK_STREAM)
                return -EPROTOTYPE;
        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->fd = -EBADF;
        s->max_size = max_size;
        s->max_fds = max_fds;
        s->max_queue = max_queue;
        r = fd_set_nonblock(fd, true);
        if (r < 0)
                return r;
        s->fd = fd;
        *ret = TAKE_PTR(s);
        return 0;
}

static void drop_buffer(FrameStream *s)
{
        free(s->buffer);
        s->buffer = NULL;
        s->used = s->allocated = 0;
}

static Outgoing *outgoing_free(Outgoing *o)
{
        if (!o)
                return NULL;
        fd_set_done(&o->fds);
        free(o);
        return NULL;
}
DEFINE_CLEANUP(Outgoing *, outgoing_free)

FrameStream *frame_stream_free(FrameStream *s)
{
        if (!s)
                return NULL;
        while (s->first) {
                Outgoing *o = s->first;

                s->first = o->next;
                outgoing_free(o);
        }
        drop_buffer(s);
        fd_set_done(&s->fds);
        close_fd(s->fd);
        free(s);
        return NULL;
}

int frame_stream_get_fd(const FrameStream *s)
{
        return s->fd;
}

bool frame_stream_is_partial(const FrameStream *s)
{
        return s->used > 0;
}

size_t frame_stream_queued(const FrameStream *s)
{
        return s->queued;
}

/* Room for at least one more byte of the frame and its NUL. */
static int make_room(FrameStream *s)
{
        size_t limit = s->max_size + 1, n;
        char *p;

        if (s->used < s->allocated)
                return 0;
        if (s->allocated >= limit)
                return -EMSGSIZE;
        n = s->allocated == 0 ? BUFFER_MIN : s->allocated > limit / 2 ? limit : s->allocated * 2;
        n = MIN2(n, limit);
        p = realloc(s->buffer, n);
        if (!p)
                return -ENOMEM;
        s->buffer = p;
        s->allocated = n;
        return 0;
}

/* Descriptors 0 to 2 mean something everywhere; a peer must not choose what they are, even where ours are
 * closed. */
static int fd_lift(int *fd)
{
        int other;

        if (*fd > STDERR_FILENO)
                return 0;
        other = fd_dup(*fd);
        if (other < 0)
                return other;
        close_fd(*fd);
        *fd = other;
        return 0;
}

/* Every descriptor of the message ends in the set or closed, whatever fails. */
static int collect_descriptors(struct msghdr *m, FdSet *set)
{
        int result = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                size_t n;

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (size_t i = 0; i < n; i++) {
                        _cleanup_close_ int fd = -EBADF;
                        int r;

                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        r = fd_lift(&fd);
                        if (r >= 0)
                                r = fd_set_take(set, fd);
                        if (r >= 0)
                                TAKE_FD(fd);
                        else if (result == 0)
                                result = r;
                }
        }
        return result;
}

static int take_descriptors(FrameStream *s, struct msghdr *m)
{
        _cleanup_fd_set_ FdSet batch = {0};
        int r;

        r = collect_descriptors(m, &batch);
        if (r < 0)
                return r;
        /* Truncated also where this process has no descriptors left. */
        if (m->msg_flags & MSG_CTRUNC)
                return -EPROTO;
        if (batch.n == 0)
                return 0;
        if (s->fds.n > 0 || batch.n > s->max_fds)
                return -EPROTO;
        fd_set_done(&s->fds);
        s->fds = batch;
        batch = (FdSet){0};
        return 0;
}

/* Consumes up to n bytes, all of one frame, and the descriptors with them. */
static ssize_t receive_bytes(FrameStream *s, size_t n)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
        } control;
        struct iovec iov = {.iov_base = s->buffer + s->used, .iov_len = n};
        struct msghdr m = {
                .msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = s->max_fds > 0 ? &control : NULL,
                .msg_controllen = s->max_fds > 0 ? CMSG_LEN(s->max_fds * sizeof(int)) : 0,
        };
        ssize_t k;
        int r;

        do
                k = recvmsg(s->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        while (k < 0 && errno == EINTR);
        if (k < 0)
                return -errno;
        r = take_descriptors(s, &m);
        return r < 0 ? r : k;
}

/* 1: the buffer holds a whole frame; 0: no more bytes there. */
static int fill(FrameStream *s)
{
        for (;;) {
                char *start, *end;
                ssize_t n;
                int r;

                r = make_room(s);
                if (r < 0)
                        return r;
                start = s->buffer + s->used;
                n = recv(s->fd, start, s->allocated - s->used, MSG_PEEK | MSG_DONTWAIT);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return errno == EAGAIN ? 0 : -errno;
                }
                if (n == 0)
                        return s->used > 0 ? -ECONNRESET : -ENOTCONN;
                end = memchr(start, 0, (size_t) n);
                n = receive_bytes(s, end ? (size_t) (end - start) + 1 : (size_t) n);
                if (n <= 0)
                        return n < 0 ? (int) n : -EPROTO;
                s->used += (size_t) n;
                /* What was peeked is what was received, unless the peer plays with out-of-band bytes. */
                end = memchr(start, 0, (size_t) n);
                if (end && end != start + n - 1)
                        return -EPROTO;
                if (end)
                        return 1;
        }
}

static int receive_frame(FrameStream *s, Frame *ret, JsonFault *ret_fault)
{
        _cleanup_json_ struct json_object *object = NULL;
        int r;

        r = fill(s);
        if (r <= 0) {
                if (r == 0 && s->used == 0)
                        drop_buffer(s);
                return r;
        }
        r = json_parse_strict(s->buffer, s->used - 1, &object, ret_fault);
        if (r < 0)
                return r;
        if (!json_object_is_type(object, json_type_object)) {
                if (ret_fault)
                        *ret_fault = (JsonFault){.reason = "not an object"};
                return -EBADMSG;
        }
        drop_buffer(s);
        *ret = (Frame){.object = TAKE_PTR(object), .fds = s->fds};
        s->fds = (FdSet){0};
        return 1;
}

int frame_stream_receive(FrameStream *s, Frame *ret, JsonFault *ret_fault)
{
        int r;

        assert(s);
        assert(ret);

        if (s->broken < 0)
                return s->broken;
        r = receive_frame(s, ret, ret_fault);
        if (r < 0) {
                s->broken = r;
                drop_buffer(s);
                fd_set_done(&s->fds);
        }
        return r;
}

static ssize_t send_bytes(int fd, Outgoing *o)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = o->data + o->sent, .iov_len = o->n - o->sent};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        ssize_t n;

        if (o->fds.n > 0) {
                struct cmsghdr *c;

                m.msg_control = &control;
                m.msg_controllen = CMSG_SPACE(o->fds.n * sizeof(int));
                c = CMSG_FIRSTHDR(&m);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(o->fds.n * sizeof(int));
                memcpy(CMSG_DATA(c), o->fds.fds, o->fds.n * sizeof(int));
        }
        do
                n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

int frame_stream_flush(FrameStream *s)
{
        assert(s);

        while (s->first) {
                Outgoing *o = s->first;
                ssize_t n;

                /* One frame a call, so that descriptors never share a send with another frame's bytes. */
                n = send_bytes(s->fd, o);
                if (n == -EAGAIN)
                        return 0;
                if (n < 0)
                        return (int) n;
                /* The kernel attaches them to the first byte. */
                fd_set_done(&o->fds);
                o->sent += (size_t) n;
                s->queued -= (size_t) n;
                if (o->sent < o->n)
                        continue;
                s->first = o->next;
                if (!s->first)
                        s->last = NULL;
                outgoing_free(o);
        }
        return 1;
}

static int outgoing_new(struct json_object *object, const int *fds, size_t n_fds, Outgoing **ret)
{
        _cleanup_(outgoing_freep) Outgoing *o = NULL;
        const char *text;
        size_t n = 0;

        text = json_object_to_json_string_length(object,
                                                 JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
        if (!text)
                return -ENOMEM;
        /* json-c passes on whatever bytes a string was made of. */
        if (!utf8_is_valid(text, n))
                return -EILSEQ;
        o = malloc(sizeof(*o) + n + 1);
        if (!o)
                return -ENOMEM;
        *o = (Outgoing){.n = n + 1};
        memcpy(o->data, text, n);
        o->data[n] = 0;
        for (size_t i = 0; i < n_fds; i++) {
                _cleanup_close_ int fd = -EBADF;
                int r;

                fd = fd_dup(fds[i]);
                if (fd < 0)
                        return fd;
                r = fd_set_take(&o->fds, fd);
                if (r < 0)
                        return r;
                TAKE_FD(fd);
        }
        *ret = TAKE_PTR(o);
        return 0;
}

int frame_stream_send(FrameStream *s, struct json_object *object, const int *fds, size_t n_fds)
{
        _cleanup_(outgoing_freep) Outgoing *o = NULL;
        int r;

        assert(s);

        if (!json_object_is_type(object, json_type_object) || n_fds > FD_PASS_MAX)
                return -EINVAL;
        r = outgoing_new(object, fds, n_fds, &o);
        if (r < 0)
                return r;
        if (s->queued > 0 && o->n > s->max_queue - MIN2(s->queued, s->max_queue)) {
                r = frame_stream_flush(s);
                if (r < 0)
                        return r;
        }
        if (o->n > s->max_queue - MIN2(s->queued, s->max_queue))
                return -ENOBUFS;
        s->queued += o->n;
        if (s->last)
                s->last->next = o;
        else
                s->first = o;
        s->last = TAKE_PTR(o);
        r = frame_stream_flush(s);
        return r < 0 ? r : 0;
}

int frame_stream_receive_wait(FrameStream *s, usec_t deadline, Frame *ret, JsonFault *ret_fault)
{
        for (;;) {
                int r;

                r = frame_stream_receive(s, ret, ret_fault);
                if (r != 0)
                        return r;
                r = fd_wait(s->fd, POLLIN, deadline);
                if (r < 0)
                        return r;
        }
}

int frame_stream_flush_wait(FrameStream *s, usec_t deadline)
{
        for (;;) {
                int r;

                r = frame_stream_flush(s);
                if (r != 0)
                        return r;
                r = fd_wait(s->fd, POLLOUT, deadline);
                if (r < 0)
                        return r;
        }
}
