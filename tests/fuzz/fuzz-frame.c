/* A frame stream whose peer cuts its bytes and sends descriptors as the input says. A model that knows where
 * each send began says whose the descriptors must be.
 *
 * Input: eight bytes of control, used over and over, one a send; then what is sent.
 * Control: bits 0-2 length, 3-4 descriptors, 5 send on without receiving. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/frame.h"

#define SIZE_LIMIT 6000U
#define FD_LIMIT   2U
#define FRAMES_MAX 512U
#define INPUT_MAX  16384U
#define CONTROLS   8U

typedef struct Model {
        FrameStream *stream;
        int peer;
        int file;
        uint8_t batches[FRAMES_MAX]; /* how many sends with descriptors began in the frame */
        uint8_t fds[FRAMES_MAX];     /* how many descriptors the last of them had */
        size_t sending;              /* the frame that the next byte sent is in */
        size_t received;
        bool broken;
} Model;

static void check_frame(Model *m, const Frame *f)
{
        CHECK(m->batches[m->received] <= 1);
        CHECK(f->fds.n == m->fds[m->received]);
        CHECK(f->fds.n <= FD_LIMIT);
        for (size_t i = 0; i < f->fds.n; i++)
                CHECK(f->fds.fds[i] > STDERR_FILENO);
        CHECK(json_object_is_type(f->object, json_type_object));
#ifdef FUZZ_SEEDED_FAULT
        if (m->received == 2 && f->fds.n == 2)
                abort();
#endif
}

static void receive_all(Model *m)
{
        while (!m->broken) {
                _cleanup_frame_ Frame f = {0};
                JsonFault fault = {0};
                int r = frame_stream_receive(m->stream, &f, &fault);

                if (r == 0)
                        return;
                if (r == 1) {
                        check_frame(m, &f);
                        m->received++;
                        continue;
                }
                m->broken = true;
                CHECK(!f.object && f.fds.n == 0);
                CHECK(r == -EBADMSG || r == -EMSGSIZE || r == -EPROTO || r == -ENOTCONN || r == -ECONNRESET);
                if (r == -EBADMSG)
                        CHECK(fault.reason);
                if (r == -EPROTO)
                        CHECK(m->batches[m->received] > 1 || m->fds[m->received] > FD_LIMIT);
                CHECK(frame_stream_receive(m->stream, &f, &fault) == r);
        }
}

/* One send; false where the socket, or the model, is full. */
static bool send_chunk(Model *m, const uint8_t *data, size_t n, size_t n_fds)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(4 * sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = (void *) data, .iov_len = n};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        int fds[4] = {m->file, m->file, m->file, m->file};
        size_t zeros = 0;

        if (n_fds > 0) {
                struct cmsghdr *c;

                message.msg_control = &control;
                message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                c = CMSG_FIRSTHDR(&message);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        }
        for (size_t i = 0; i < n; i++)
                zeros += data[i] == 0;
        if (m->sending + zeros >= FRAMES_MAX)
                return false;
        if (sendmsg(m->peer, &message, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t) n)
                return false;
        if (n_fds > 0) {
                m->batches[m->sending] = (uint8_t) MIN2(m->batches[m->sending] + 1, 2);
                m->fds[m->sending] = (uint8_t) n_fds;
        }
        m->sending += zeros;
        return true;
}

static void run(Model *m, const uint8_t *control, const uint8_t *data, size_t size)
{
        static const size_t lengths[] = {1, 2, 5, 13, 64, 300, 1500, 5000};

        for (size_t i = 0, at = 0; at < size && !m->broken; i++) {
                uint8_t c = control[i % CONTROLS];
                size_t n = MIN2(lengths[c & 7], size - at);

                if (!send_chunk(m, data + at, n, c >> 3 & 3)) {
                        receive_all(m);
                        if (m->broken || !send_chunk(m, data + at, n, c >> 3 & 3))
                                return;
                }
                at += n;
                if (!(c & 32))
                        receive_all(m);
        }
        receive_all(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        int fds[2], before;
        Model *m;

        if (size < CONTROLS || size > INPUT_MAX)
                return 0;
        m = calloc(1, sizeof(*m));
        CHECK(m);
        before = next_free_fd();
        m->file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(m->file >= 0);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        CHECK(frame_stream_new(fds[0], SIZE_LIMIT, FD_LIMIT, SIZE_LIMIT, &m->stream) == 0);
        m->peer = fds[1];
        run(m, data, data + CONTROLS, size - CONTROLS);
        m->peer = close_fd(m->peer);
        receive_all(m);
        CHECK(m->broken);
        frame_stream_free(m->stream);
        close_fd(m->file);
        CHECK(next_free_fd() == before);
        free(m);
        return 0;
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
        /* Now and then only how it is cut. */
        if (seed % 3 > 0 || size < CONTROLS)
                return LLVMFuzzerMutate(data, size, max_size);
        data[seed / 3 % CONTROLS] = (uint8_t) (seed >> 8);
        return size;
}
