/* A server with the manager's interface, whose handlers answer at once, later, never, wrongly; and a client
 * that sends the input in pieces. What comes back must be varlink.
 *
 * Input: eight bytes of control, then what is sent. Control, one a piece, over and over: bits 0-2 length, 3-4
 * descriptors, 5 send on without running the server, 6 answer a call that waits, 7 read the replies. */
#include "tests/fuzz/mutate.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "wire/manager-interface.h"
#include "wire/server.h"

#define WAITING_MAX 8U
#define CONTROLS    8U

typedef struct World {
        sd_event *event;
        VarlinkServer *server;
        FrameStream *client;
        VarlinkCall *waiting[WAITING_MAX];
        size_t n_waiting;
} World;

static struct json_object *object_with(const char *key, const char *value)
{
        struct json_object *o = json_object_new_object();

        CHECK(o && json_add_string(o, key, value) == 0);
        return o;
}

static int answer_at_once(VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        return varlink_call_reply(call, object_with("answer", "now"));
}

static int answer_later(VarlinkCall *call, _unused_ void *parameters, void *userdata)
{
        World *w = userdata;

        if (w->n_waiting == WAITING_MAX)
                return -EBUSY;
        w->waiting[w->n_waiting++] = varlink_call_ref(call);
        return 0;
}

static int answer_in_parts(VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        for (int i = 0; varlink_call_wants_more(call) && i < 3; i++) {
                int r = varlink_call_notify(call, object_with("part", "of it"));

                if (r < 0)
                        return r;
        }
        return varlink_call_reply(call, NULL);
}

static int answer_with_error(VarlinkCall *call, void *parameters, _unused_ void *userdata)
{
        const ManagerStatusParameters *p = parameters;

#ifdef FUZZ_SEEDED_FAULT
        if (varlink_call_n_fds(call) == 2)
                abort();
#endif
        return varlink_call_error(call, MANAGER_ERROR_NO_SUCH_CACHE, object_with("name", p->name));
}

static int answer_with_descriptor(VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        _cleanup_close_ int fd = varlink_call_take_fd(call, 0);

        CHECK(varlink_call_n_fds(call) <= 2);
        return varlink_call_reply_fds(call, NULL, &fd, fd >= 0);
}

static int fail_to_answer(_unused_ VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        return -EIO;
}

static int forget_to_answer(_unused_ VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        return 0;
}

static int on_error(VarlinkCall *call, _unused_ int error, _unused_ void *userdata)
{
        return varlink_call_permission_denied(call);
}

#define METHOD(name, type, prefix, more, handler)                                                            \
        {                                                                                                    \
                name, manager_##prefix##_fields, sizeof(Manager##type##Parameters),                          \
                        manager_##prefix##_parameters_done, more, handler                                    \
        }

static const VarlinkMethod methods[] = {
        METHOD("List", List, list, false, answer_at_once),
        METHOD("Status", Status, status, false, answer_with_error),
        METHOD("Start", Start, start, false, answer_later),
        METHOD("Stop", Stop, stop, false, fail_to_answer),
        METHOD("View", View, view, false, forget_to_answer),
        METHOD("Manifest", Manifest, manifest, false, answer_in_parts),
        METHOD("AcquireLease", AcquireLease, acquire_lease, false, answer_with_descriptor),
        METHOD("ReleaseLease", ReleaseLease, release_lease, false, NULL),
        METHOD("Monitor", Monitor, monitor, true, answer_later),
        {NULL},
};
static const VarlinkInterface interface = {MANAGER_INTERFACE, manager_interface_description, methods};

static void check_reply(struct json_object *o)
{
        bool has_error = false;

        json_object_object_foreach(o, key, value)
        {
                if (strcmp(key, "parameters") == 0)
                        CHECK(json_object_is_type(value, json_type_object));
                else if (strcmp(key, "error") == 0) {
                        CHECK(json_object_is_type(value, json_type_string));
                        has_error = true;
                } else
                        CHECK(strcmp(key, "continues") == 0 && json_object_get_boolean(value) && !has_error);
        }
        CHECK(json_object_object_get_ex(o, "parameters", NULL));
}

static void read_replies(World *w)
{
        for (;;) {
                _cleanup_frame_ Frame f = {0};
                int r = frame_stream_receive(w->client, &f, NULL);

                CHECK(r == 1 || r == 0 || r == -ENOTCONN || r == -ECONNRESET);
                if (r <= 0)
                        return;
                check_reply(f.object);
        }
}

static void settle(World *w)
{
        int r;

        do
                r = sd_event_run(w->event, 0);
        while (r > 0);
        CHECK(r == 0);
}

static void answer_one(World *w)
{
        VarlinkCall *call;

        if (w->n_waiting == 0)
                return;
        call = w->waiting[--w->n_waiting];
        if (varlink_call_wants_more(call))
                CHECK(varlink_call_notify(call, NULL) == 0);
        /* Or give it up unanswered. */
        if (w->n_waiting % 2 == 0)
                CHECK(varlink_call_reply(call, object_with("answer", "late")) == 0);
        varlink_call_unref(call);
}

static void send_piece(int fd, const uint8_t *data, size_t n, size_t n_fds)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(4 * sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = (void *) data, .iov_len = n};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        int fds[4] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};

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
        /* What the server has closed, or does not take, is lost. */
        (void) sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void world_open(World *w)
{
        static const VarlinkService service = {"v", "p", "1", "u"};
        VarlinkLimits limits = varlink_limits_default;
        int fds[2];

        limits.message_size = 8192;
        limits.queue_size = 65536;
        CHECK(sd_event_new(&w->event) == 0);
        CHECK(varlink_server_new(w->event, &service, &limits, &w->server) == 0);
        CHECK(varlink_server_add_interface(w->server, &interface, w) == 0);
        varlink_server_set_error_handler(w->server, on_error, w);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        CHECK(varlink_server_add_connection(w->server, fds[0]) == 0);
        CHECK(frame_stream_new(fds[1], MIB(1), 2, MIB(1), &w->client) == 0);
}

static void run(World *w, const uint8_t *control, const uint8_t *data, size_t size)
{
        static const size_t lengths[] = {2, 7, 20, 60, 200, 700, 3000, 20000};

        for (size_t i = 0, at = 0; at < size; i++) {
                uint8_t c = control[i % CONTROLS];
                size_t n = MIN2(lengths[c & 7], size - at);

                send_piece(frame_stream_get_fd(w->client), data + at, n, c >> 3 & 3);
                at += n;
                if (!(c & 32))
                        settle(w);
                if (c & 64)
                        answer_one(w);
                if (c & 128)
                        read_replies(w);
        }
        settle(w);
        read_replies(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        World w = {0};
        int before;

        if (size < CONTROLS)
                return 0;
        before = next_free_fd();
        world_open(&w);
        run(&w, data, data + CONTROLS, size - CONTROLS);
        /* Some calls are answered after their connection has gone. */
        if (size % 2 == 0)
                answer_one(&w);
        w.client = frame_stream_free(w.client);
        settle(&w);
        CHECK(varlink_server_connections(w.server) == 0);
        if (size % 3 == 0)
                w.server = varlink_server_free(w.server);
        while (w.n_waiting > 0)
                answer_one(&w);
        w.server = varlink_server_free(w.server);
        w.event = sd_event_unref(w.event);
        CHECK(next_free_fd() == before);
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
        static const char *const words[] = {
                "method",
                "parameters",
                "more",
                "oneway",
                "upgrade",
                "name",
                "force",
                "interface",
                "org.varlink.service.GetInfo",
                "org.varlink.service.GetInterfaceDescription",
                MANAGER_METHOD_LIST,
                MANAGER_METHOD_STATUS,
                MANAGER_METHOD_START,
                MANAGER_METHOD_STOP,
                MANAGER_METHOD_VIEW,
                MANAGER_METHOD_MANIFEST,
                MANAGER_METHOD_ACQUIRE_LEASE,
                MANAGER_METHOD_RELEASE_LEASE,
                MANAGER_METHOD_MONITOR,
                NULL,
        };
        size_t control = MIN2((size_t) seed % 8, size);

        /* Now and then only how it is sent. */
        if (seed % 5 == 0 && size >= CONTROLS) {
                data[control] = (uint8_t) (seed >> 8);
                return size;
        }
        return mutate_messages(data, size, max_size, CONTROLS, seed, words);
}
