/* Frames: JSON objects ended by a NUL byte on a stream socket, each with the descriptors that came with its bytes
 * (varlink.org/Method-Call, unix(7) SCM_RIGHTS). No events and no meaning here: bytes in, messages out, bounded.
 *
 * The kernel never merges bytes of two sends that carry descriptors in one receive, and a receive that returns
 * descriptors starts at or after the end of the previous ancillary send; so the descriptors of a receive belong to the
 * frame that the *first* byte of that receive is in. More than one ancillary batch for one frame, more descriptors
 * than allowed, MSG_CTRUNC: the stream is broken (-EPROTO). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/fd.h"
#include "base/json.h"

#define FRAME_SIZE_MAX_DEFAULT MIB(1)

typedef struct Frame {
        struct json_object *object; /* owned */
        FdSet fds;                  /* owned */
} Frame;

void frame_done(Frame *f);
#define _cleanup_frame_ _cleanup_(frame_done)

typedef struct FrameStream FrameStream;

/* Takes fd on success and makes it non-blocking. max_size bounds one incoming frame, max_fds the descriptors of one,
 * max_queue the bytes waiting to be sent. */
int frame_stream_new(int fd, size_t max_size, size_t max_fds, size_t max_queue, FrameStream **ret);
FrameStream *frame_stream_free(FrameStream *s);
DEFINE_CLEANUP(FrameStream *, frame_stream_free)
int frame_stream_get_fd(const FrameStream *s); /* borrowed */

/* Receives what is there. 1: a frame was completed into *ret; 0: nothing complete yet (wait for POLLIN); -ENOTCONN:
 * the peer closed between frames; -ECONNRESET: inside one; -EBADMSG: not acceptable JSON or no object (the fault says
 * why); -EMSGSIZE: too large; -EPROTO: descriptors out of order. After a failure the stream is unusable. */
int frame_stream_receive(FrameStream *s, Frame *ret, JsonFault *ret_fault);
/* Whether a complete frame or undelivered bytes are buffered, so that receive should be called without polling. */
bool frame_stream_has_input(const FrameStream *s);
/* Queues one object with descriptors (dup'ed; the caller keeps its own) and sends what the socket takes. -ENOBUFS
 * where the queue would exceed its bound: the peer does not read. */
int frame_stream_send(FrameStream *s, struct json_object *object, const int *fds, size_t n_fds);
/* Sends more of the queue: 1 all sent, 0 wait for POLLOUT, or the socket's error. */
int frame_stream_flush(FrameStream *s);
size_t frame_stream_queued(const FrameStream *s);

/* For callers without an event loop: the same, waiting until the deadline (CLOCK_MONOTONIC): -ETIMEDOUT. */
int frame_stream_receive_wait(FrameStream *s, usec_t deadline, Frame *ret, JsonFault *ret_fault);
int frame_stream_flush_wait(FrameStream *s, usec_t deadline);
