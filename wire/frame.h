/* Frames: JSON objects ended by a NUL byte on a stream socket, each with the descriptors that came with its
 * bytes (varlink.org, "Method Call"; unix(7), SCM_RIGHTS). No events and no meaning here: bytes in, messages
 * out, bounded.
 *
 * Whose are the descriptors? Linux attaches those of one sendmsg() to the first bytes of that send, hands
 * them out with the first of these bytes that a recvmsg() takes, and ends that receive no later than the
 * send's own end; but a receive may *start* with bytes of earlier sends without descriptors
 * (net/unix/af_unix.c: unix_stream_sendmsg(), unix_stream_read_generic()). Neither its first nor its last
 * byte would tell. So a receive here never takes bytes of two frames: it peeks for the end of the frame
 * first. Then descriptors belong exactly to the frame in which the first byte lies that was sent with them,
 * however the sender cut its sends, and everything behind that frame waits in the socket. Our own sends that
 * carry descriptors start with their frame and hold no other frame's bytes, so that receivers which do not
 * peek are right too.
 *
 * Descriptors from two sends in one frame, more than allowed, MSG_CTRUNC (also where this process has no room
 * for them): the stream is broken (-EPROTO), and all of them are closed. Received ones are close-on-exec and
 * 3 or more. */
#pragma once

#include <stdbool.h>
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

/* Takes fd on success and makes it non-blocking. max_size bounds one incoming frame (without its NUL),
 * max_fds the descriptors of one (at most FD_PASS_MAX), max_queue the bytes waiting to be sent. -ENOTSOCK,
 * -EPROTOTYPE: no stream socket. */
int frame_stream_new(int fd, size_t max_size, size_t max_fds, size_t max_queue, FrameStream **ret);
FrameStream *frame_stream_free(FrameStream *s);
DEFINE_CLEANUP(FrameStream *, frame_stream_free)
int frame_stream_get_fd(const FrameStream *s); /* borrowed */

/* Receives what is there of one frame. 1: it was completed into *ret; 0: not complete yet (wait for POLLIN);
 * -ENOTCONN: the peer closed between frames; -ECONNRESET: inside one; -EBADMSG: not acceptable JSON or no
 * object (*ret_fault, which may be NULL, says why); -EMSGSIZE: too large; -EPROTO: descriptors out of order;
 * -ENOMEM. After a failure nothing more can be received; sending still works. */
int frame_stream_receive(FrameStream *s, Frame *ret, JsonFault *ret_fault);
/* Whether a frame has been received in part. Whole frames are never held back: they wait in the socket. */
bool frame_stream_is_partial(const FrameStream *s);
/* Queues one object with descriptors (dup'ed; the caller keeps its own) and sends what the socket takes.
 * -ENOBUFS where the queue would exceed its bound: the peer does not read. -EILSEQ: a string in it is not
 * UTF-8. */
int frame_stream_send(FrameStream *s, struct json_object *object, const int *fds, size_t n_fds);
/* Sends more of the queue: 1 all sent, 0 wait for POLLOUT, or the socket's error. */
int frame_stream_flush(FrameStream *s);
size_t frame_stream_queued(const FrameStream *s);

/* For callers without an event loop: the same, waiting until the deadline (CLOCK_MONOTONIC, USEC_INFINITY:
 * for ever). 1, -ETIMEDOUT, or a failure as above. */
int frame_stream_receive_wait(FrameStream *s, usec_t deadline, Frame *ret, JsonFault *ret_fault);
int frame_stream_flush_wait(FrameStream *s, usec_t deadline);
