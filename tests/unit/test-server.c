/* The server on a real event loop, with honest, slow and hostile clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/text.h"
#include "wire/client.h"
#include "wire/server.h"

#define ERROR_LIMIT "test.example.LimitExceeded"

/* A server with one interface, on a socket with an abstract name, and what its handlers saw. */
typedef struct Fixture {
        sd_event *event;
        VarlinkServer *server;
        struct sockaddr_un address;
        socklen_t address_size;
        VarlinkLimits limits;
        size_t fds_before;
        VarlinkCall *kept[4]; /* of Wait */
        size_t n_kept;
        unsigned gone;
        unsigned drained;
        unsigned idle_calls;
        unsigned echoes;
        size_t n_fds; /* of the last Descriptors */
        int error;    /* the error handler's last */
} Fixture;

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

typedef struct EchoParameters {
        char *text;
        OptionalInt times;
} EchoParameters;

static const DispatchField echo_fields[] = {
        {"text", dispatch_string, offsetof(EchoParameters, text), json_type_string, DISPATCH_MANDATORY},
        {"times", dispatch_optional_int, offsetof(EchoParameters, times), json_type_int, 0},
        {NULL},
};
static const DispatchField no_fields[] = {{NULL}};

static void echo_parameters_done(void *p)
{
        free(((EchoParameters *) p)->text);
}

static struct json_object *text_object(const char *text)
{
        struct json_object *o = json_object_new_object();

        assert_int_equal(json_add_string(o, "text", text), 0);
        return o;
}

static int method_echo(VarlinkCall *call, void *parameters, void *userdata)
{
        const EchoParameters *p = parameters;
        Fixture *f = userdata;

        f->echoes++;
        for (int64_t i = 1; p->times.set && i < p->times.value; i++) {
                int r = varlink_call_notify(call, text_object(p->text));

                if (r < 0)
                        return r;
        }
        return varlink_call_reply(call, text_object(p->text));
}

static void on_gone(_unused_ VarlinkCall *call, void *userdata)
{
        ((Fixture *) userdata)->gone++;
}

static void on_drained(_unused_ VarlinkCall *call, void *userdata)
{
        ((Fixture *) userdata)->drained++;
}

static int method_wait(VarlinkCall *call, _unused_ void *parameters, void *userdata)
{
        Fixture *f = userdata;

        assert_true(f->n_kept < ELEMENTSOF(f->kept));
        varlink_call_set_gone_handler(call, on_gone, f);
        varlink_call_set_drained_handler(call, on_drained, f);
        f->kept[f->n_kept++] = varlink_call_ref(call);
        return 0;
}

static int method_descriptors(VarlinkCall *call, _unused_ void *parameters, void *userdata)
{
        Fixture *f = userdata;
        int fd = varlink_call_take_fd(call, 0), r;

        f->n_fds = varlink_call_n_fds(call);
        assert_int_equal(varlink_call_take_fd(call, 0), -ENOENT);
        assert_int_equal(varlink_call_take_fd(call, 7), -ENOENT);
        r = varlink_call_reply_fds(call, NULL, &fd, fd >= 0);
        close_fd(fd);
        return r;
}

static int method_fail(_unused_ VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        return -EIO;
}

static int method_forget(_unused_ VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        return 0;
}

static int method_twice(VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        int r = varlink_call_reply(call, NULL);

        assert_int_equal(varlink_call_reply(call, NULL), -EALREADY);
        assert_int_equal(varlink_call_error(call, "test.example.Other", json_object_new_object()), -EALREADY);
        return r;
}

static int method_who(VarlinkCall *call, _unused_ void *parameters, _unused_ void *userdata)
{
        const VarlinkPeer *peer = varlink_call_peer(call);

        assert_int_equal(peer->uid, geteuid());
        assert_int_equal(peer->gid, getegid());
        assert_int_equal(peer->pid, getpid());
        return varlink_call_permission_denied(call);
}

static const VarlinkMethod methods[] = {
        {"Echo", echo_fields, sizeof(EchoParameters), echo_parameters_done, false, method_echo},
        {"Wait", no_fields, 0, NULL, false, method_wait},
        {"Stream", no_fields, 0, NULL, true, method_wait},
        {"Descriptors", no_fields, 0, NULL, false, method_descriptors},
        {"Fail", no_fields, 0, NULL, false, method_fail},
        {"Forget", no_fields, 0, NULL, false, method_forget},
        {"Twice", no_fields, 0, NULL, false, method_twice},
        {"Who", no_fields, 0, NULL, false, method_who},
        {"Missing", no_fields, 0, NULL, false, NULL},
        {NULL},
};
static const VarlinkInterface interface = {"test.example", "interface test.example\n", methods};

static void on_idle(_unused_ VarlinkServer *s, void *userdata)
{
        ((Fixture *) userdata)->idle_calls++;
}

static int on_error(VarlinkCall *call, int error, void *userdata)
{
        ((Fixture *) userdata)->error = error;
        return varlink_call_error(call, "test.example.Failed", NULL);
}

static void fixture_start(Fixture *f)
{
        static const VarlinkService service = {"v", "p", "1", "u"};
        int fd;

        f->fds_before = count_fds();
        f->address.sun_family = AF_UNIX;
        f->address_size = sizeof(sa_family_t);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        /* The kernel chooses an abstract name. */
        assert_int_equal(bind(fd, (struct sockaddr *) &f->address, f->address_size), 0);
        f->address_size = sizeof(f->address);
        assert_int_equal(getsockname(fd, (struct sockaddr *) &f->address, &f->address_size), 0);
        assert_int_equal(listen(fd, 128), 0);
        assert_int_equal(sd_event_new(&f->event), 0);
        assert_int_equal(varlink_server_new(f->event, &service, &f->limits, &f->server), 0);
        assert_int_equal(varlink_server_add_interface(f->server, &interface, f), 0);
        assert_int_equal(varlink_server_add_interface(f->server, &interface, f), -EEXIST);
        varlink_server_set_idle_handler(f->server, on_idle, f);
        varlink_server_set_error_handler(f->server, on_error, f);
        varlink_server_set_limit_error(f->server, ERROR_LIMIT);
        assert_int_equal(varlink_server_listen(f->server, fd), 0);
}

static int setup(void **state)
{
        Fixture *f = calloc(1, sizeof(*f));

        assert_non_null(f);
        f->limits = varlink_limits_default;
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        Fixture *f = *state;
        int r;

        f->server = varlink_server_free(f->server);
        for (size_t i = 0; i < f->n_kept; i++) {
                assert_false(varlink_call_is_alive(f->kept[i]));
                /* Answering comes too late, which is no harm. */
                r = varlink_call_reply(f->kept[i], NULL);
                assert_true(r == 0 || r == -EALREADY);
                varlink_call_unref(f->kept[i]);
        }
        f->event = sd_event_unref(f->event);
        if (f->fds_before > 0)
                assert_int_equal(count_fds(), f->fds_before);
        free(f);
        return 0;
}

/* Runs the loop until it has nothing more to do. */
static void settle(Fixture *f)
{
        while (sd_event_run(f->event, 0) > 0)
                ;
}

static int raw_connect(Fixture *f)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        assert_true(fd >= 0);
        assert_int_equal(connect(fd, (struct sockaddr *) &f->address, f->address_size), 0);
        return fd;
}

static void raw_send(int fd, const char *text)
{
        assert_int_equal(send(fd, text, strlen(text) + 1, MSG_NOSIGNAL), strlen(text) + 1);
}

static VarlinkClient *client(Fixture *f)
{
        VarlinkClient *c = NULL;

        assert_int_equal(varlink_client_new_fd(raw_connect(f), &c), 0);
        return c;
}

/* The next reply as "error|continues|parameters", or the failure. */
static const char *next_reply(Fixture *f, VarlinkClient *c, char **text)
{
        _cleanup_(varlink_reply_done) VarlinkReply reply = {0};
        int r;

        settle(f);
        r = varlink_client_process(c, &reply);
        if (r <= 0)
                assert_int_equal(text_format(text, "%d", r), 0);
        else
                assert_int_equal(
                        text_format(text, "%s%s%s", reply.error ? reply.error : "",
                                    reply.continues ? "+" : "",
                                    json_object_to_json_string_ext(reply.parameters, JSON_C_TO_STRING_PLAIN)),
                        0);
        return *text;
}

static void call(VarlinkClient *c, const char *method, const char *parameters, bool more)
{
        struct json_object *o = NULL;

        if (parameters)
                assert_int_equal(json_parse_strict(parameters, strlen(parameters), &o, NULL), 0);
        assert_int_equal(varlink_client_send(c, method, o, more, NULL, 0), 0);
}

static void answers(void **state)
{
        static const struct {
                const char *method, *parameters, *reply;
        } cases[] = {
                {"test.example.Echo", "{\"text\":\"x\"}", "{\"text\":\"x\"}"},
                {"test.example.Echo", "{}", "org.varlink.service.InvalidParameter{\"parameter\":\"text\"}"},
                {"test.example.Echo", "{\"text\":1}",
                 "org.varlink.service.InvalidParameter{\"parameter\":\"text\"}"},
                {"test.example.Echo", "{\"text\":\"x\",\"y\":1}",
                 "org.varlink.service.InvalidParameter{\"parameter\":\"y\"}"},
                {"test.example.Fail", NULL, "test.example.Failed{}"},
                {"test.example.Forget", NULL, "test.example.Failed{}"},
                {"test.example.Twice", NULL, "{}"},
                {"test.example.Who", NULL, "org.varlink.service.PermissionDenied{}"},
                {"test.example.Stream", NULL, "org.varlink.service.ExpectedMore{}"},
                {"test.example.Missing", NULL,
                 "org.varlink.service.MethodNotImplemented{\"method\":\"test.example.Missing\"}"},
                {"test.example.Other", NULL,
                 "org.varlink.service.MethodNotFound{\"method\":\"test.example.Other\"}"},
                {"test.other.Echo", NULL,
                 "org.varlink.service.InterfaceNotFound{\"interface\":\"test.other\"}"},
                {"Echo", NULL, "org.varlink.service.InvalidParameter{\"parameter\":\"method\"}"},
                {".Echo", NULL, "org.varlink.service.InvalidParameter{\"parameter\":\"method\"}"},
                {"test.example.", NULL, "org.varlink.service.InvalidParameter{\"parameter\":\"method\"}"},
                {"", NULL, "org.varlink.service.InvalidParameter{\"parameter\":\"method\"}"},
                {"org.varlink.service.GetInfo", NULL,
                 "{\"vendor\":\"v\",\"product\":\"p\",\"version\":\"1\",\"url\":\"u\",\"interfaces\":[\"org."
                 "varlink."
                 "service\",\"test.example\"]}"},
                {"org.varlink.service.GetInterfaceDescription", "{\"interface\":\"test.example\"}",
                 "{\"description\":\"interface test.example\\n\"}"},
                {"org.varlink.service.GetInterfaceDescription", "{\"interface\":\"x\"}",
                 "org.varlink.service.InterfaceNotFound{\"interface\":\"x\"}"},
                {"org.varlink.service.GetInterfaceDescription", "{}",
                 "org.varlink.service.InvalidParameter{\"parameter\":\"interface\"}"},
        };
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        c = client(f);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                call(c, cases[i].method, cases[i].parameters, false);
                assert_string_equal(next_reply(f, c, &text), cases[i].reply);
        }
        assert_int_equal(varlink_server_connections(f->server), 1);
        c = varlink_client_free(c);
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 0);
        assert_true(f->idle_calls >= 2);
}

static void describes_itself(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        c = client(f);
        call(c, "org.varlink.service.GetInterfaceDescription", "{\"interface\":\"org.varlink.service\"}",
             false);
        assert_non_null(strstr(next_reply(f, c, &text), "method GetInfo() -> ("));
        assert_non_null(strstr(text, "error ExpectedMore ()"));
}

/* Messages as bytes: what comes back, and whether the connection lives on. */
static void envelopes(void **state)
{
#define INVALID(p)                                                                                           \
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"" p "\"}}"
        static const struct {
                const char *message, *reply;
                bool closed;
        } cases[] = {
                {"{\"method\":\"test.example.Twice\"}", "{\"parameters\":{}}", false},
                {"{\"method\":\"test.example.Twice\",\"parameters\":null}", "{\"parameters\":{}}", false},
                {"{\"method\":\"test.example.Twice\",\"more\":false,\"oneway\":false,\"upgrade\":false}",
                 "{\"parameters\":{}}", false},
                {"{\"method\":\"test.example.Twice\",\"oneway\":true}", "", false},
                {"{\"method\":\"no.such.Thing\",\"oneway\":true}", "", false},
                {"{\"method\":\"test.example.Twice\",\"upgrade\":true}", INVALID("upgrade"), false},
                {"{}", INVALID("method"), true},
                {"{\"method\":7}", INVALID("method"), true},
                {"{\"method\":null}", INVALID("method"), true},
                {"{\"method\":\"test.example.Twice\",\"parameters\":[]}", INVALID("parameters"), true},
                {"{\"method\":\"test.example.Twice\",\"parameters\":\"\"}", INVALID("parameters"), true},
                {"{\"method\":\"test.example.Twice\",\"more\":1}", INVALID("more"), true},
                {"{\"method\":\"test.example.Twice\",\"oneway\":\"true\"}", INVALID("oneway"), true},
                {"{\"method\":\"test.example.Twice\",\"upgrade\":null}", INVALID("upgrade"), true},
                {"{\"method\":\"test.example.Twice\",\"extra\":null}", INVALID("extra"), true},
                {"{\"method\":\"test.example.Twice\",\"oneway\":true,\"more\":true}", INVALID("oneway"),
                 true},
                {"{\"method\":\"test.example.Twice\",\"method\":\"test.example.Fail\"}", "", true},
                {"", "", true},
                {"[]", "", true},
                {"null", "", true},
                {"{\"method\":\"test.example.Twice\"", "", true},
                {"{\"method\":\"\xff\"}", "", true},
        };
        Fixture *f = *state;

        fixture_start(f);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                int fd = raw_connect(f);
                char reply[512] = "";
                ssize_t n;

                raw_send(fd, cases[i].message);
                settle(f);
                n = recv(fd, reply, sizeof(reply) - 1, 0);
                if (strcmp(reply, cases[i].reply) != 0)
                        fail_msg("%s: %s", cases[i].message, reply);
                if (n > 0)
                        n = recv(fd, reply, sizeof(reply) - 1, 0);
                assert_int_equal(n, cases[i].closed ? 0 : -1);
                assert_int_equal(varlink_server_connections(f->server), cases[i].closed ? 0 : 1);
                close_fd(fd);
                settle(f);
        }
}

static void calls_are_answered_in_order(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        c = client(f);
        call(c, "test.example.Wait", NULL, false);
        call(c, "test.example.Echo", "{\"text\":\"2\"}", false);
        call(c, "test.example.Wait", NULL, false);
        call(c, "test.example.Echo", "{\"text\":\"4\"}", false);
        assert_string_equal(next_reply(f, c, &text), "0");
        assert_int_equal(f->n_kept, 1);
        assert_int_equal(f->echoes, 0);
        assert_int_equal(varlink_call_reply(f->kept[0], text_object("1")), 0);
        assert_string_equal(next_reply(f, c, &text), "{\"text\":\"1\"}");
        assert_string_equal(next_reply(f, c, &text), "{\"text\":\"2\"}");
        assert_string_equal(next_reply(f, c, &text), "0");
        assert_int_equal(f->n_kept, 2);
        /* Giving a call up is an answer too. */
        f->kept[1] = varlink_call_unref(f->kept[1]);
        f->n_kept = 1;
        assert_string_equal(next_reply(f, c, &text), "test.example.Failed{}");
        assert_int_equal(f->error, -ECANCELED);
        assert_string_equal(next_reply(f, c, &text), "{\"text\":\"4\"}");
        assert_int_equal(f->gone, 0);
}

static void several_replies(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        c = client(f);
        call(c, "test.example.Echo", "{\"text\":\"x\",\"times\":3}", true);
        assert_string_equal(next_reply(f, c, &text), "+{\"text\":\"x\"}");
        assert_string_equal(next_reply(f, c, &text), "+{\"text\":\"x\"}");
        assert_string_equal(next_reply(f, c, &text), "{\"text\":\"x\"}");
        /* A handler that says more than was asked for has failed. */
        call(c, "test.example.Echo", "{\"text\":\"x\",\"times\":3}", false);
        assert_string_equal(next_reply(f, c, &text), "test.example.Failed{}");
        assert_int_equal(f->error, -EPROTO);
}

static void a_call_without_its_connection(void **state)
{
        VarlinkClient *c = NULL;
        Fixture *f = *state;

        fixture_start(f);
        c = client(f);
        call(c, "test.example.Stream", NULL, true);
        settle(f);
        assert_int_equal(f->n_kept, 1);
        assert_true(varlink_call_is_alive(f->kept[0]));
        assert_true(varlink_call_wants_more(f->kept[0]));
        assert_false(varlink_call_is_oneway(f->kept[0]));
        varlink_client_free(c);
        settle(f);
        assert_int_equal(f->gone, 1);
        assert_false(varlink_call_is_alive(f->kept[0]));
        assert_int_equal(varlink_call_queued(f->kept[0]), 0);
        assert_int_equal(varlink_call_notify(f->kept[0], text_object("x")), 0);
        assert_int_equal(varlink_call_peer(f->kept[0])->uid, geteuid());
        assert_int_equal(varlink_server_connections(f->server), 0);
        settle(f);
        assert_int_equal(f->gone, 1);
}

static void a_half_closed_client_gets_its_answer(void **state)
{
        char reply[64] = "";
        Fixture *f = *state;
        int fd;

        fixture_start(f);
        fd = raw_connect(f);
        raw_send(fd, "{\"method\":\"test.example.Wait\"}");
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        settle(f);
        assert_int_equal(f->gone, 0);
        assert_int_equal(varlink_call_reply(f->kept[0], NULL), 0);
        settle(f);
        assert_true(recv(fd, reply, sizeof(reply), 0) > 0);
        assert_string_equal(reply, "{\"parameters\":{}}");
        assert_int_equal(recv(fd, reply, sizeof(reply), 0), 0);
        close_fd(fd);
}

static void descriptors_both_ways(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        int null[3], n = open("/dev/null", O_RDONLY | O_CLOEXEC);
        Fixture *f = *state;

        f->fds_before = 0;
        fixture_start(f);
        f->fds_before--; /* null */
        c = client(f);
        for (size_t i = 0; i < ELEMENTSOF(null); i++)
                null[i] = n;
        for (size_t i = 0; i <= 2; i++) {
                _cleanup_(varlink_reply_done) VarlinkReply reply = {0};

                assert_int_equal(varlink_client_send(c, "test.example.Descriptors", NULL, false, null, i), 0);
                settle(f);
                assert_int_equal(varlink_client_process(c, &reply), 1);
                assert_int_equal(f->n_fds, i);
                assert_int_equal(reply.fds.n, i > 0);
        }
        /* One more than fds_per_message. */
        assert_int_equal(varlink_client_send(c, "test.example.Descriptors", NULL, false, null, 3), 0);
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 0);
        close_fd(n);
}

static void connections_are_limited(void **state)
{
        VarlinkClient *c[5] = {NULL};
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        f->limits.connections = 4;
        f->limits.connections_per_uid = geteuid() == 0 ? 1 : 4;
        fixture_start(f);
        for (size_t i = 0; i < ELEMENTSOF(c); i++) {
                c[i] = client(f);
                call(c[i], "test.example.Echo", "{\"text\":\"x\"}", false);
        }
        for (size_t i = 0; i < 4; i++)
                assert_string_equal(next_reply(f, c[i], &text), "{\"text\":\"x\"}");
        assert_non_null(startswith(next_reply(f, c[4], &text), ERROR_LIMIT "{\"limit\":\"connections"));
        assert_true(varlink_client_process(c[4], &(VarlinkReply){0}) < 0);
        assert_int_equal(varlink_server_connections(f->server), 4);
        /* One goes, one comes. */
        c[0] = varlink_client_free(c[0]);
        settle(f);
        c[4] = varlink_client_free(c[4]);
        c[4] = client(f);
        call(c[4], "test.example.Echo", "{\"text\":\"x\"}", false);
        assert_string_equal(next_reply(f, c[4], &text), "{\"text\":\"x\"}");
        for (size_t i = 0; i < ELEMENTSOF(c); i++)
                varlink_client_free(c[i]);
}

/* Connections of another uid, made by a child that gave up root. */
static void one_user_leaves_room_for_others(void **state)
{
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;
        VarlinkClient *mine = NULL;
        int pairs[3][2];

        if (geteuid() != 0)
                skip();
        f->limits.connections = 32;
        f->limits.connections_per_uid = 2;
        fixture_start(f);
        /* A socketpair's credentials are those of its maker at that moment. */
        assert_int_equal(seteuid(65534), 0);
        for (size_t i = 0; i < ELEMENTSOF(pairs); i++)
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]), 0);
        assert_int_equal(seteuid(0), 0);
        for (size_t i = 0; i < ELEMENTSOF(pairs); i++)
                assert_int_equal(varlink_server_add_connection(f->server, pairs[i][0]), i < 2 ? 0 : -EUSERS);
        mine = client(f);
        call(mine, "test.example.Echo", "{\"text\":\"x\"}", false);
        assert_string_equal(next_reply(f, mine, &text), "{\"text\":\"x\"}");
        varlink_client_free(mine);
        close_fd(pairs[2][0]);
        for (size_t i = 0; i < ELEMENTSOF(pairs); i++)
                close_fd(pairs[i][1]);
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 0);
}

static void without_descriptors_clients_are_told(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL, *later = NULL;
        _cleanup_free_ char *text = NULL;
        struct rlimit before, few;
        Fixture *f = *state;
        int next;

        fixture_start(f);
        c = client(f);
        next = dup(STDERR_FILENO);
        close_fd(next);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        few = before;
        few.rlim_cur = (rlim_t) next;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        settle(f);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        call(c, "test.example.Twice", NULL, false);
        assert_non_null(startswith(next_reply(f, c, &text), ERROR_LIMIT "{\"limit\":\"descriptors\""));
        /* And the spare one is there again. */
        later = client(f);
        call(later, "test.example.Twice", NULL, false);
        assert_string_equal(next_reply(f, later, &text), "{}");
}

static void a_client_that_does_not_read_is_closed(void **state)
{
        Fixture *f = *state;
        usec_t start = now_monotonic();
        unsigned i = 0;
        int fd;

        f->limits.write_timeout = 100 * USEC_PER_MSEC;
        fixture_start(f);
        fd = raw_connect(f);
        /* It sends as long as somebody reads. */
        for (;;) {
                static const char message[] = "{\"method\":\"org.varlink.service.GetInterfaceDescription\","
                                              "\"parameters\":{\"interface\":\"org."
                                              "varlink.service\"}}";
                ssize_t n = send(fd, message, sizeof(message), MSG_NOSIGNAL);

                if (n != (ssize_t) sizeof(message))
                        break;
                settle(f);
                assert_true(++i < 100000);
        }
        while (varlink_server_connections(f->server) > 0)
                assert_true(sd_event_run(f->event, 5 * USEC_PER_SEC) > 0);
        assert_true(now_monotonic() - start >= f->limits.write_timeout);
        close_fd(fd);
}

static void a_full_queue_closes(void **state)
{
        Fixture *f = *state;
        int fd;

        f->limits.queue_size = 4096;
        fixture_start(f);
        fd = raw_connect(f);
        raw_send(
                fd,
                "{\"method\":\"test.example.Echo\",\"parameters\":{\"text\":\"0123456789\",\"times\":100000},"
                "\"more\":true}");
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 0);
        close_fd(fd);
}

static void half_a_message_ends_by_time(void **state)
{
        Fixture *f = *state;
        usec_t start;
        int fd, idle;

        f->limits.partial_timeout = 200 * USEC_PER_MSEC;
        fixture_start(f);
        idle = raw_connect(f);
        fd = raw_connect(f);
        settle(f);
        start = now_monotonic();
        /* A byte now and then is no excuse. */
        while (varlink_server_connections(f->server) == 2) {
                (void) send(fd, "{", 1, MSG_NOSIGNAL);
                assert_true(sd_event_run(f->event, 20 * USEC_PER_MSEC) >= 0);
                assert_true(now_monotonic() - start < 10 * USEC_PER_SEC);
        }
        assert_true(now_monotonic() - start >= f->limits.partial_timeout);
        /* Who sends nothing may stay. */
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 1);
        close_fd(fd);
        close_fd(idle);
}

static void one_client_does_not_starve_others(void **state)
{
        Fixture *f = *state;
        char reply[64];
        int busy, other, runs = 0;

        fixture_start(f);
        busy = raw_connect(f);
        other = raw_connect(f);
        settle(f);
        for (size_t i = 0; i < 100; i++)
                raw_send(
                        busy,
                        "{\"method\":\"test.example.Echo\",\"parameters\":{\"text\":\"x\"},\"oneway\":true}");
        raw_send(other, "{\"method\":\"test.example.Twice\"}");
        while (recv(other, reply, sizeof(reply), 0) < 0) {
                assert_true(sd_event_run(f->event, 0) > 0);
                runs++;
        }
        assert_true(runs <= 4);
        assert_true(f->echoes < 50);
        settle(f);
        assert_int_equal(f->echoes, 100);
        close_fd(busy);
        close_fd(other);
}

static void a_stream_paces_itself(void **state)
{
        static char sink[1 << 16];
        Fixture *f = *state;
        int fd, i = 0;

        fixture_start(f);
        fd = raw_connect(f);
        raw_send(fd, "{\"method\":\"test.example.Stream\",\"more\":true}");
        settle(f);
        while (varlink_call_queued(f->kept[0]) == 0 && i++ < 100000)
                assert_int_equal(varlink_call_notify(f->kept[0], text_object("x")), 0);
        assert_true(varlink_call_queued(f->kept[0]) > 0);
        assert_int_equal(f->drained, 0);
        while (f->drained == 0) {
                assert_true(recv(fd, sink, sizeof(sink), 0) > 0);
                settle(f);
        }
        assert_int_equal(varlink_call_queued(f->kept[0]), 0);
        assert_int_equal(f->drained, 1);
        close_fd(fd);
        settle(f);
        assert_int_equal(f->gone, 1);
}

static int refuse_text(_unused_ const char *method, const char *error, struct json_object *parameters,
                       _unused_ void *userdata)
{
        return !error && json_object_object_get_ex(parameters, "text", NULL) ? -EBADMSG : 0;
}

static void replies_are_validated(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        varlink_server_set_validator(f->server, refuse_text, NULL);
        c = client(f);
        call(c, "test.example.Echo", "{\"text\":\"x\"}", false);
        assert_string_equal(next_reply(f, c, &text), "test.example.Failed{}");
        assert_int_equal(f->error, -EBADMSG);
        call(c, "test.example.Twice", NULL, false);
        assert_string_equal(next_reply(f, c, &text), "{}");
}

static void without_error_handler_the_connection_ends(void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        _cleanup_free_ char *text = NULL;
        Fixture *f = *state;

        fixture_start(f);
        varlink_server_set_error_handler(f->server, NULL, NULL);
        c = client(f);
        call(c, "test.example.Fail", NULL, false);
        (void) next_reply(f, c, &text);
        assert_true(text[0] == '-');
        assert_int_equal(varlink_server_connections(f->server), 0);
}

static void shutdown_sends_what_is_queued(void **state)
{
        static char sink[1 << 16];
        size_t received = 0, sent = 0;
        Fixture *f = *state;
        int fd, idle;
        ssize_t n;

        fixture_start(f);
        idle = raw_connect(f);
        fd = raw_connect(f);
        raw_send(fd, "{\"method\":\"test.example.Stream\",\"more\":true}");
        settle(f);
        for (; varlink_call_queued(f->kept[0]) == 0; sent++)
                assert_int_equal(varlink_call_notify(f->kept[0], text_object("x")), 0);
        assert_false(varlink_server_has_pending(f->server));
        varlink_server_shutdown(f->server);
        settle(f);
        /* The idle one has gone, the other is given time; nobody new comes in. */
        assert_int_equal(varlink_server_connections(f->server), 1);
        assert_int_equal(recv(idle, sink, 1, 0), 0);
        assert_int_equal(varlink_server_add_connection(f->server, idle), -ESHUTDOWN);
        while ((n = recv(fd, sink, sizeof(sink), 0)) > 0) {
                for (ssize_t i = 0; i < n; i++)
                        received += sink[i] == 0;
                settle(f);
        }
        assert_int_equal(n, 0);
        assert_int_equal(received, sent);
        assert_int_equal(varlink_server_connections(f->server), 0);
        assert_int_equal(f->gone, 1);
        close_fd(idle);
        close_fd(fd);
}

static void shutdown_answers_what_has_come(void **state)
{
        static const char listed[] = "{\"method\":\"org.varlink.service.GetInfo\"}";
        Fixture *f = *state;
        char sink[1024];
        int fds[3];

        fixture_start(f);
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++)
                fds[i] = raw_connect(f);
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 3);
        /* Two have said something that nobody has read yet; the third has nothing to say. */
        raw_send(fds[0], listed);
        raw_send(fds[1], listed);
        varlink_server_shutdown(f->server);
        settle(f);
        for (unsigned i = 0; i < 2; i++) {
                assert_true(recv(fds[i], sink, sizeof(sink), 0) > 10);
                assert_int_equal(recv(fds[i], sink, sizeof(sink), 0), 0);
        }
        assert_int_equal(recv(fds[2], sink, sizeof(sink), 0), 0);
        assert_int_equal(varlink_server_connections(f->server), 0);
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++)
                close_fd(fds[i]);
}

static void a_server_that_stops_listening_leaves_the_queue(void **state)
{
        Fixture *f = *state;
        char sink[16];
        int in;

        fixture_start(f);
        in = raw_connect(f);
        settle(f);
        varlink_server_stop_listening(f->server);
        assert_int_equal(varlink_server_connections(f->server), 1);
        raw_send(in, "{\"method\":\"org.varlink.service.GetInfo\"}");
        settle(f);
        assert_true(recv(in, sink, sizeof(sink), 0) > 0);
        varlink_server_shutdown(f->server);
        settle(f);
        assert_int_equal(varlink_server_connections(f->server), 0);
        close_fd(in);
}

static void pending_connections_are_seen(void **state)
{
        Fixture *f = *state;
        int fd;

        fixture_start(f);
        assert_false(varlink_server_has_pending(f->server));
        fd = raw_connect(f);
        assert_true(varlink_server_has_pending(f->server));
        settle(f);
        assert_false(varlink_server_has_pending(f->server));
        close_fd(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(answers),
                TEST(describes_itself),
                TEST(envelopes),
                TEST(calls_are_answered_in_order),
                TEST(several_replies),
                TEST(a_call_without_its_connection),
                TEST(a_half_closed_client_gets_its_answer),
                TEST(descriptors_both_ways),
                TEST(connections_are_limited),
                TEST(one_user_leaves_room_for_others),
                TEST(without_descriptors_clients_are_told),
                TEST(a_client_that_does_not_read_is_closed),
                TEST(a_full_queue_closes),
                TEST(half_a_message_ends_by_time),
                TEST(one_client_does_not_starve_others),
                TEST(a_stream_paces_itself),
                TEST(replies_are_validated),
                TEST(without_error_handler_the_connection_ends),
                TEST(shutdown_sends_what_is_queued),
                TEST(pending_connections_are_seen),
                TEST(shutdown_answers_what_has_come),
                TEST(a_server_that_stops_listening_leaves_the_queue),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
