/* Frames: cut in any way, with descriptors, from honest and from hostile peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "wire/frame.h"

#define SIZE_LIMIT  4096
#define FD_LIMIT    3
#define QUEUE_LIMIT 65536

/* A stream, and the raw other end. */
typedef struct Pair {
        FrameStream *stream;
        int peer;
        size_t fds_before;
} Pair;

static size_t count_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        size_t n = 0;

        assert_non_null(d);
        while (readdir(d))
                n++;
        closedir(d);
        return n;
}

static void pair_open(Pair *p, size_t max_fds)
{
        int fds[2];

        p->fds_before = count_fds();
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(frame_stream_new(fds[0], SIZE_LIMIT, max_fds, QUEUE_LIMIT, &p->stream), 0);
        p->peer = fds[1];
}

static void pair_close(Pair *p)
{
        p->stream = frame_stream_free(p->stream);
        p->peer = close_fd(p->peer);
        /* Whatever happened, nothing was kept. */
        assert_int_equal(count_fds(), p->fds_before);
}

static void send_raw(Pair *p, const char *data, size_t n)
{
        assert_int_equal(send(p->peer, data, n, MSG_NOSIGNAL), n);
}

static void send_fds(Pair *p, const char *data, size_t n, const int *fds, size_t n_fds)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(16 * sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = (void *) data, .iov_len = n};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = CMSG_SPACE(n_fds * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        assert_int_equal(sendmsg(p->peer, &m, MSG_NOSIGNAL), n);
}

static int64_t number(const Frame *f)
{
        int64_t v = -1;

        assert_int_equal(json_get_int(f->object, "n", &v), 0);
        return v;
}

static void expect_frame(Pair *p, int64_t n, size_t n_fds)
{
        _cleanup_frame_ Frame f = {0};

        assert_int_equal(frame_stream_receive(p->stream, &f, NULL), 1);
        assert_int_equal(number(&f), n);
        assert_int_equal(f.fds.n, n_fds);
        for (size_t i = 0; i < f.fds.n; i++) {
                assert_true(f.fds.fds[i] > STDERR_FILENO);
                assert_true(fcntl(f.fds.fds[i], F_GETFD) & FD_CLOEXEC);
        }
}

static void expect(Pair *p, int result)
{
        _cleanup_frame_ Frame f = {0};

        assert_int_equal(frame_stream_receive(p->stream, &f, NULL), result);
        assert_null(f.object);
}

static const char three[] = "{\"n\":1}\0{\"n\":2}\0{\"n\":3}";

static void several_frames_in_one_send(_unused_ void **state)
{
        Pair p;

        pair_open(&p, FD_LIMIT);
        expect(&p, 0);
        send_raw(&p, three, sizeof(three));
        for (int i = 1; i <= 3; i++)
                expect_frame(&p, i, 0);
        expect(&p, 0);
        assert_false(frame_stream_is_partial(p.stream));
        pair_close(&p);
}

static void frames_byte_by_byte(_unused_ void **state)
{
        Pair p;

        pair_open(&p, FD_LIMIT);
        for (size_t i = 0; i < sizeof(three); i++) {
                send_raw(&p, three + i, 1);
                if (three[i] == 0)
                        expect_frame(&p, (int64_t) (i + 1) / 8, 0);
                else {
                        expect(&p, 0);
                        assert_true(frame_stream_is_partial(p.stream));
                }
        }
        pair_close(&p);
}

static void end_of_file(_unused_ void **state)
{
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_raw(&p, three, 8);
        p.peer = close_fd(p.peer);
        expect_frame(&p, 1, 0);
        expect(&p, -ENOTCONN);
        expect(&p, -ENOTCONN);
        pair_close(&p);

        pair_open(&p, FD_LIMIT);
        send_raw(&p, three, 10);
        p.peer = close_fd(p.peer);
        expect_frame(&p, 1, 0);
        expect(&p, -ECONNRESET);
        pair_close(&p);
}

static void what_is_no_object_breaks_the_stream(_unused_ void **state)
{
        static const char *const bad[] = {
                "", "1", "[]", "null", "\"x\"", "{", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"};

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                _cleanup_json_ struct json_object *o = json_object_new_object();
                _cleanup_frame_ Frame f = {0};
                JsonFault fault = {0};
                char byte;
                Pair p;

                pair_open(&p, FD_LIMIT);
                send_raw(&p, bad[i], strlen(bad[i]) + 1);
                send_raw(&p, three, 8);
                assert_int_equal(frame_stream_receive(p.stream, &f, &fault), -EBADMSG);
                assert_non_null(fault.reason);
                expect(&p, -EBADMSG);
                /* An answer is still possible. */
                assert_int_equal(frame_stream_send(p.stream, o, NULL, 0), 0);
                assert_int_equal(recv(p.peer, &byte, 1, MSG_DONTWAIT), 1);
                pair_close(&p);
        }
}

static void fill_frame(char *out, size_t n)
{
        memset(out, ' ', n);
        memcpy(out, "{\"n\":1}", 7);
        out[n] = 0;
}

static void size_is_bounded(_unused_ void **state)
{
        static char text[SIZE_LIMIT + 2];
        Pair p;

        pair_open(&p, FD_LIMIT);
        fill_frame(text, SIZE_LIMIT);
        send_raw(&p, text, SIZE_LIMIT + 1);
        expect_frame(&p, 1, 0);
        fill_frame(text, SIZE_LIMIT + 1);
        send_raw(&p, text, SIZE_LIMIT + 2);
        expect(&p, -EMSGSIZE);
        pair_close(&p);

        /* Without an end it is refused as soon as it is too long. */
        pair_open(&p, FD_LIMIT);
        memset(text, '[', sizeof(text));
        send_raw(&p, text, SIZE_LIMIT);
        expect(&p, 0);
        send_raw(&p, text, 1);
        expect(&p, -EMSGSIZE);
        pair_close(&p);
}

/* What the stream must live with: a plain receive starts before a send with descriptors, but never ends
 * behind it. */
static void the_kernel_joins_sends_before_descriptors(_unused_ void **state)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(4 * sizeof(int))];
        } control = {0};
        char data[64] = "";
        struct iovec iov = {.iov_base = data, .iov_len = sizeof(data)};
        struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), fd;
        ssize_t n;
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_raw(&p, "aa", 2);
        send_fds(&p, "bb", 2, &null, 1);
        send_raw(&p, "cc", 2);
        do
                n = recvmsg(frame_stream_get_fd(p.stream), &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        while (n > 0 && m.msg_controllen == 0 && (m.msg_controllen = sizeof(control)));
        assert_true(n > 0 && m.msg_controllen > 0);
        assert_int_equal(data[n - 1], 'b');
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
        close_fd(fd);
        n = recv(frame_stream_get_fd(p.stream), data, sizeof(data), MSG_DONTWAIT);
        assert_int_equal(n, 2);
        assert_memory_equal(data, "cc", 2);
        pair_close(&p);
        close_fd(null);
}

static void descriptors_belong_to_the_frame_they_came_with(_unused_ void **state)
{
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), two[2] = {null, null};
        Pair p;

        pair_open(&p, FD_LIMIT);
        /* Between frames without, received together. */
        send_raw(&p, three, 8);
        send_fds(&p, three + 8, 8, &null, 1);
        send_raw(&p, three + 16, 8);
        expect_frame(&p, 1, 0);
        expect_frame(&p, 2, 1);
        expect_frame(&p, 3, 0);
        /* Behind the start of an unfinished frame. */
        send_raw(&p, three, 12);
        send_fds(&p, three + 12, 4, two, 2);
        expect_frame(&p, 1, 0);
        expect_frame(&p, 2, 2);
        /* A send of two frames: the first byte decides. */
        send_fds(&p, three, 16, &null, 1);
        expect_frame(&p, 1, 1);
        expect_frame(&p, 2, 0);
        /* A tail with the next frame: again. */
        send_raw(&p, three, 4);
        send_fds(&p, three + 4, 12, &null, 1);
        expect_frame(&p, 1, 1);
        expect_frame(&p, 2, 0);
        /* Consecutive frames with descriptors of their own. */
        send_fds(&p, three, 8, &null, 1);
        send_fds(&p, three + 8, 8, two, 2);
        expect_frame(&p, 1, 1);
        expect_frame(&p, 2, 2);
        pair_close(&p);
        close_fd(null);
}

static void descriptors_out_of_order_break_the_stream(_unused_ void **state)
{
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), many[FD_LIMIT + 1];
        Pair p;

        for (size_t i = 0; i < ELEMENTSOF(many); i++)
                many[i] = null;
        /* Two batches in one frame. */
        pair_open(&p, FD_LIMIT);
        send_fds(&p, three, 4, &null, 1);
        send_fds(&p, three + 4, 4, &null, 1);
        expect(&p, -EPROTO);
        expect(&p, -EPROTO);
        pair_close(&p);
        /* One too many. */
        pair_open(&p, FD_LIMIT);
        send_fds(&p, three, 8, many, FD_LIMIT);
        send_fds(&p, three + 8, 8, many, FD_LIMIT + 1);
        expect_frame(&p, 1, FD_LIMIT);
        expect(&p, -EPROTO);
        pair_close(&p);
        /* None allowed. */
        pair_open(&p, 0);
        send_fds(&p, three, 8, &null, 1);
        expect(&p, -EPROTO);
        pair_close(&p);
        /* An unfinished frame's are closed with the stream. */
        pair_open(&p, FD_LIMIT);
        send_fds(&p, three, 4, many, FD_LIMIT);
        expect(&p, 0);
        pair_close(&p);
        close_fd(null);
}

static void no_room_for_descriptors(_unused_ void **state)
{
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), two[2] = {null, null}, next;
        struct rlimit before, few;
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_fds(&p, three, 8, two, 2);
        next = dup(null);
        close_fd(next);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        few = before;
        few.rlim_cur = (rlim_t) next + 1;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        expect(&p, -EPROTO);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        pair_close(&p);
        close_fd(null);
}

static void descriptors_are_never_standard_ones(_unused_ void **state)
{
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_fds(&p, three, 8, &null, 1);
        (void) close(STDIN_FILENO);
        expect_frame(&p, 1, 1);
        assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
        assert_int_equal(dup2(saved >= 0 ? saved : null, STDIN_FILENO), STDIN_FILENO);
        pair_close(&p);
        close_fd(saved);
        close_fd(null);
}

static void out_of_band_bytes_do_no_harm(_unused_ void **state)
{
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_raw(&p, three, 4);
        if (send(p.peer, "x", 1, MSG_OOB | MSG_NOSIGNAL) < 0) {
                pair_close(&p);
                skip();
        }
        send_raw(&p, three + 4, 4);
        for (int i = 0; i < 8; i++) {
                _cleanup_frame_ Frame f = {0};

                if (frame_stream_receive(p.stream, &f, NULL) < 0)
                        break;
        }
        pair_close(&p);
}

static struct json_object *numbered(int64_t n, size_t padding)
{
        struct json_object *o = json_object_new_object();
        char *text = malloc(padding + 1);

        assert_non_null(text);
        memset(text, 'x', padding);
        text[padding] = 0;
        assert_int_equal(json_add_int(o, "n", n), 0);
        assert_int_equal(json_add_string(o, "padding", text), 0);
        free(text);
        return o;
}

static void the_queue_is_bounded(_unused_ void **state)
{
        _cleanup_json_ struct json_object *o = numbered(1, 10000);
        int r = 0, sent = 0, flushed = 0;
        static char sink[65536];
        Pair p;

        pair_open(&p, FD_LIMIT);
        while (r == 0 && sent < 1000) {
                r = frame_stream_send(p.stream, o, NULL, 0);
                sent += r == 0;
        }
        assert_int_equal(r, -ENOBUFS);
        assert_in_range(frame_stream_queued(p.stream), QUEUE_LIMIT - 10100, QUEUE_LIMIT);
        assert_int_equal(frame_stream_flush(p.stream), 0);
        /* What was accepted arrives, and nothing else. */
        for (;;) {
                ssize_t n = recv(p.peer, sink, sizeof(sink), MSG_DONTWAIT);

                if (n < 0 && frame_stream_queued(p.stream) == 0)
                        break;
                for (ssize_t i = 0; i < n; i++)
                        flushed += sink[i] == 0;
                assert_true(frame_stream_flush(p.stream) >= 0);
        }
        assert_int_equal(flushed, sent);
        pair_close(&p);

        pair_open(&p, FD_LIMIT);
        json_object_put(o);
        o = numbered(1, QUEUE_LIMIT);
        assert_int_equal(frame_stream_send(p.stream, o, NULL, 0), -ENOBUFS);
        assert_int_equal(frame_stream_queued(p.stream), 0);
        pair_close(&p);
}

/* Frames of many sizes, some with descriptors, through small socket buffers: each descriptor is the right
 * file. */
static void streams_understand_each_other(_unused_ void **state)
{
        int files[4], fds[2], small = 4608, sent = 0, received = 0;
        _cleanup_(frame_stream_freep) FrameStream *a = NULL, *b = NULL;
        struct stat st[4];

        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                files[i] = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
                assert_true(files[i] >= 0);
                assert_int_equal(fstat(files[i], &st[i]), 0);
        }
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
        assert_int_equal(frame_stream_new(fds[0], MIB(1), 4, MIB(4), &a), 0);
        assert_int_equal(frame_stream_new(fds[1], MIB(1), 4, MIB(4), &b), 0);
        while (received < 300) {
                Frame f = {0};
                int r;

                if (sent < 300) {
                        _cleanup_json_ struct json_object *o =
                                numbered(sent, (size_t) sent * 7919 % 20000 * (sent % 3 != 0));

                        assert_int_equal(frame_stream_send(a, o, files, (size_t) sent % 5), 0);
                        sent++;
                }
                assert_true(frame_stream_flush(a) >= 0);
                while ((r = frame_stream_receive(b, &f, NULL)) > 0) {
                        assert_int_equal(number(&f), received);
                        assert_int_equal(f.fds.n, received % 5);
                        for (size_t i = 0; i < f.fds.n; i++) {
                                struct stat other;

                                assert_int_equal(fstat(f.fds.fds[i], &other), 0);
                                assert_int_equal(other.st_ino, st[i].st_ino);
                        }
                        frame_done(&f);
                        received++;
                }
                assert_int_equal(r, 0);
        }
        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                close_fd(files[i]);
}

static void sending_refuses_what_is_no_frame(_unused_ void **state)
{
        _cleanup_json_ struct json_object *array = json_object_new_array(), *bytes = json_object_new_object(),
                                          *good = json_object_new_object();
        int many[FD_PASS_MAX + 1] = {0}, bad = 100000;
        Pair p;

        pair_open(&p, FD_LIMIT);
        assert_int_equal(json_add_string(bytes, "s", "\xff"), 0);
        assert_int_equal(frame_stream_send(p.stream, array, NULL, 0), -EINVAL);
        assert_int_equal(frame_stream_send(p.stream, NULL, NULL, 0), -EINVAL);
        assert_int_equal(frame_stream_send(p.stream, bytes, NULL, 0), -EILSEQ);
        assert_int_equal(frame_stream_send(p.stream, good, many, FD_PASS_MAX + 1), -EINVAL);
        assert_int_equal(frame_stream_send(p.stream, good, &bad, 1), -EBADF);
        assert_int_equal(frame_stream_queued(p.stream), 0);
        expect(&p, 0);
        p.peer = close_fd(p.peer);
        assert_int_equal(frame_stream_send(p.stream, good, NULL, 0), -EPIPE);
        pair_close(&p);
}

static void only_stream_sockets(_unused_ void **state)
{
        FrameStream *s = NULL;
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC), fds[2];

        assert_int_equal(frame_stream_new(null, 100, 0, 100, &s), -ENOTSOCK);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(frame_stream_new(fds[0], 100, 0, 100, &s), -EPROTOTYPE);
        assert_int_equal(frame_stream_new(fds[0], 100, FD_PASS_MAX + 1, 100, &s), -EINVAL);
        assert_null(s);
        close_fd(null);
        close_fd(fds[0]);
        close_fd(fds[1]);
}

static void waiting_ends_at_the_deadline(_unused_ void **state)
{
        usec_t start = now_monotonic();
        Frame f = {0};
        Pair p;

        pair_open(&p, FD_LIMIT);
        send_raw(&p, three, 4);
        assert_int_equal(frame_stream_receive_wait(p.stream, start + 50 * USEC_PER_MSEC, &f, NULL),
                         -ETIMEDOUT);
        assert_true(now_monotonic() >= start + 50 * USEC_PER_MSEC);
        send_raw(&p, three + 4, 4);
        assert_int_equal(frame_stream_receive_wait(p.stream, USEC_INFINITY, &f, NULL), 1);
        frame_done(&f);
        assert_int_equal(frame_stream_flush_wait(p.stream, now_monotonic()), 1);
        pair_close(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(several_frames_in_one_send),
                cmocka_unit_test(frames_byte_by_byte),
                cmocka_unit_test(end_of_file),
                cmocka_unit_test(what_is_no_object_breaks_the_stream),
                cmocka_unit_test(size_is_bounded),
                cmocka_unit_test(the_kernel_joins_sends_before_descriptors),
                cmocka_unit_test(descriptors_belong_to_the_frame_they_came_with),
                cmocka_unit_test(descriptors_out_of_order_break_the_stream),
                cmocka_unit_test(no_room_for_descriptors),
                cmocka_unit_test(descriptors_are_never_standard_ones),
                cmocka_unit_test(out_of_band_bytes_do_no_harm),
                cmocka_unit_test(the_queue_is_bounded),
                cmocka_unit_test(streams_understand_each_other),
                cmocka_unit_test(sending_refuses_what_is_no_frame),
                cmocka_unit_test(only_stream_sockets),
                cmocka_unit_test(waiting_ends_at_the_deadline),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
