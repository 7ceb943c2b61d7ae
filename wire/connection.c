/* One connection of the server: reading calls one at a time, sending, and the timers that end what hangs. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "wire/server-internal.h"

/* So many calls of one connection are taken before the others have their turn. */
#define CALLS_PER_WAKEUP 8U

static bool connection_reads(const Connection *c)
{
        return !c->dead && !c->draining && !c->call && frame_stream_queued(c->stream) == 0;
}

Connection *connection_free(Connection *c)
{
        if (!c)
                return NULL;
        sd_event_source_disable_unref(c->io);
        sd_event_source_disable_unref(c->write_timer);
        sd_event_source_disable_unref(c->partial_timer);
        frame_stream_free(c->stream);
        shared_peer_unref(c->peer);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(Connection *, connection_free)

static void unlink_live(Connection *c)
{
        VarlinkServer *s = c->server;

        if (c->previous)
                c->previous->next = c->next;
        else
                s->live = c->next;
        if (c->next)
                c->next->previous = c->previous;
        s->n_live--;
}

void connection_kill(Connection *c)
{
        VarlinkServer *s = c->server;

        if (c->dead)
                return;
        c->dead = true;
        /* Each of them may be what is being dispatched. */
        c->io = sd_event_source_disable_unref(c->io);
        c->write_timer = sd_event_source_disable_unref(c->write_timer);
        c->partial_timer = sd_event_source_disable_unref(c->partial_timer);
        unlink_live(c);
        c->previous = NULL;
        c->next = s->dead;
        s->dead = c;
        (void) sd_event_source_set_enabled(s->reaper, SD_EVENT_ONESHOT);
}

static int on_timeout(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        connection_kill(userdata);
        return 0;
}

static int timer_start(Connection *c, sd_event_source **timer, usec_t timeout)
{
        if (*timer)
                return 0;
        return sd_event_add_time_relative(c->server->event, timer, CLOCK_MONOTONIC, timeout, USEC_PER_SEC / 4,
                                          on_timeout, c);
}

static int update(Connection *c)
{
        size_t queued = frame_stream_queued(c->stream);
        int r;

        if (queued == 0)
                c->write_timer = sd_event_source_disable_unref(c->write_timer);
        else {
                r = timer_start(c, &c->write_timer, c->server->limits.write_timeout);
                if (r < 0)
                        return r;
        }
        /* Counted from a message's first byte: one that comes drop by drop does not last longer. */
        if (frame_stream_is_partial(c->stream)) {
                r = timer_start(c, &c->partial_timer, c->server->limits.partial_timeout);
                if (r < 0)
                        return r;
        }
        return sd_event_source_set_io_events(c->io, (connection_reads(c) ? EPOLLIN : 0) |
                                                            (queued > 0 ? EPOLLOUT : 0));
}

void connection_update(Connection *c)
{
        if (c->dead)
                return;
        if ((c->draining && frame_stream_queued(c->stream) == 0) || update(c) < 0)
                connection_kill(c);
}

void connection_drain(Connection *c)
{
        c->draining = true;
        connection_update(c);
}

/* What is wrong with the message, or with what the process can do now, and not with the connection. */
static bool is_senders_fault(int r)
{
        return r == -EINVAL || r == -EILSEQ || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EBADF;
}

int connection_send(Connection *c, struct json_object *object, const int *fds, size_t n_fds)
{
        size_t before;
        int r;

        if (c->dead)
                return 0;
        before = frame_stream_queued(c->stream);
        r = frame_stream_send(c->stream, object, fds, n_fds);
        if (r < 0 && is_senders_fault(r) && frame_stream_queued(c->stream) == before)
                return r;
        if (r < 0)
                connection_kill(c);
        else
                connection_update(c);
        return 0;
}

/* Whether everything has been sent. */
static void connection_flush(Connection *c)
{
        size_t before = frame_stream_queued(c->stream);
        int r;

        r = frame_stream_flush(c->stream);
        if (r < 0) {
                connection_kill(c);
                return;
        }
        /* Any progress gives it time again. */
        if (frame_stream_queued(c->stream) < before)
                c->write_timer = sd_event_source_disable_unref(c->write_timer);
        if (r > 0 && before > 0 && c->call && c->call->drained_handler) {
                _cleanup_(varlink_call_unrefp) VarlinkCall *call = varlink_call_ref(c->call);

                call->drained_handler(call, call->drained_userdata);
        }
}

void connection_read(Connection *c)
{
        for (unsigned i = 0; i < CALLS_PER_WAKEUP && connection_reads(c); i++) {
                _cleanup_frame_ Frame frame = {0};
                int r;

                r = frame_stream_receive(c->stream, &frame, NULL);
                if (r == 0)
                        return;
                c->partial_timer = sd_event_source_disable_unref(c->partial_timer);
                if (r < 0) {
                        /* Closed, or not varlink: the answers that are still queued may be wanted. */
                        connection_drain(c);
                        return;
                }
                call_start(c, &frame);
        }
}

static int on_io(_unused_ sd_event_source *source, _unused_ int fd, uint32_t revents, void *userdata)
{
        Connection *c = userdata;

        if (revents & EPOLLOUT)
                connection_flush(c);
        if (connection_reads(c))
                connection_read(c);
        else if (!c->dead && (revents & (EPOLLHUP | EPOLLERR)))
                /* Nobody is there any more who could take an answer. */
                connection_kill(c);
        connection_update(c);
        return 0;
}

int connection_new(VarlinkServer *s, int fd, SharedPeer *peer)
{
        _cleanup_(connection_freep) Connection *c = NULL;
        int r;

        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->server = s;
        c->peer = peer;
        peer->n_ref++;
        r = sd_event_add_io(s->event, &c->io, fd, EPOLLIN, on_io, c);
        if (r < 0)
                return r;
        /* Last, since it takes the descriptor. */
        r = frame_stream_new(fd, s->limits.message_size, s->limits.fds_per_message, s->limits.queue_size,
                             &c->stream);
        if (r < 0)
                return r;
        c->next = s->live;
        if (s->live)
                s->live->previous = c;
        s->live = c;
        s->n_live++;
        TAKE_PTR(c);
        return 0;
}
