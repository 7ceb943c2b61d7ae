/* The client against a peer that says whatever it likes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/text.h"
#include "tests/unit/scratch.h"
#include "wire/client.h"

typedef struct Pair {
        VarlinkClient *client;
        int peer;
} Pair;

static void pair_open(Pair *p)
{
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(varlink_client_new_fd(fds[0], &p->client), 0);
        p->peer = fds[1];
}

static void pair_close(Pair *p)
{
        p->client = varlink_client_free(p->client);
        p->peer = close_fd(p->peer);
}

static void say(Pair *p, const char *text)
{
        assert_int_equal(send(p->peer, text, strlen(text) + 1, MSG_NOSIGNAL), strlen(text) + 1);
}

static int ask(Pair *p, bool more)
{
        return varlink_client_send(p->client, "a.b.C", NULL, more, NULL, 0);
}

static void calls_are_varlink(_unused_ void **state)
{
        struct json_object *parameters = json_object_new_object();
        char text[256] = "";
        Pair p;

        pair_open(&p);
        assert_int_equal(json_add_string(parameters, "name", "x/y"), 0);
        assert_int_equal(varlink_client_send(p.client, "a.b.C", parameters, true, NULL, 0), 0);
        assert_true(recv(p.peer, text, sizeof(text), 0) > 0);
        assert_string_equal(text, "{\"method\":\"a.b.C\",\"parameters\":{\"name\":\"x/y\"},\"more\":true}");
        assert_int_equal(ask(&p, false), 0);
        assert_true(recv(p.peer, text, sizeof(text), 0) > 0);
        assert_string_equal(text, "{\"method\":\"a.b.C\",\"parameters\":{}}");
        assert_false(varlink_client_wants_output(p.client));
        pair_close(&p);
}

static void takes_replies(_unused_ void **state)
{
        static const struct {
                const char *text, *error, *parameters;
                bool continues;
        } cases[] = {
                {"{}", NULL, "{}", false},
                {"{\"parameters\":null}", NULL, "{}", false},
                {"{\"parameters\":{\"a\":1}}", NULL, "{\"a\":1}", false},
                {"{\"parameters\":{},\"continues\":true}", NULL, "{}", true},
                {"{\"parameters\":{},\"continues\":false}", NULL, "{}", false},
                {"{\"error\":\"a.b.E\"}", "a.b.E", "{}", false},
                {"{\"error\":\"a.b.E\",\"parameters\":{\"x\":\"y\"}}", "a.b.E", "{\"x\":\"y\"}", false},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_(varlink_reply_done) VarlinkReply reply = {0};
                Pair p;

                pair_open(&p);
                assert_int_equal(ask(&p, true), 0);
                assert_int_equal(varlink_client_process(p.client, &reply), 0);
                say(&p, cases[i].text);
                assert_int_equal(varlink_client_receive(p.client, USEC_INFINITY, &reply), 0);
                assert_true(streq_ptr(reply.error, cases[i].error));
                assert_int_equal(reply.continues, cases[i].continues);
                assert_string_equal(json_object_to_json_string_ext(reply.parameters, JSON_C_TO_STRING_PLAIN),
                                    cases[i].parameters);
                pair_close(&p);
        }
}

static void refuses_what_is_no_reply(_unused_ void **state)
{
        static const char *const cases[] = {
                "{\"parameters\":[]}",
                "{\"parameters\":1}",
                "{\"error\":1}",
                "{\"error\":null}",
                "{\"error\":\"\"}",
                "{\"error\":\"NoDot\"}",
                "{\"error\":\".E\"}",
                "{\"error\":\"a.\"}",
                "{\"continues\":1}",
                "{\"continues\":null}",
                "{\"continues\":true,\"error\":\"a.b.E\"}",
                "{\"unknown\":1}",
                "[]",
                "",
                "{",
                "{\"parameters\":{},\"parameters\":{}}",
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                VarlinkReply reply = {0};
                Pair p;

                pair_open(&p);
                assert_int_equal(ask(&p, true), 0);
                say(&p, cases[i]);
                if (varlink_client_receive(p.client, USEC_INFINITY, &reply) != -EBADMSG)
                        fail_msg("accepted: %s", cases[i]);
                assert_null(reply.parameters);
                assert_null(reply.error);
                /* And it stays so. */
                say(&p, "{}");
                assert_int_equal(varlink_client_process(p.client, &reply), -EBADMSG);
                pair_close(&p);
        }
}

static void replies_belong_to_calls(_unused_ void **state)
{
        VarlinkReply reply = {0};
        Pair p;

        /* Nothing was asked. */
        pair_open(&p);
        say(&p, "{}");
        assert_int_equal(varlink_client_process(p.client, &reply), -EBADMSG);
        pair_close(&p);
        /* More than was asked for. */
        pair_open(&p);
        assert_int_equal(ask(&p, false), 0);
        say(&p, "{\"continues\":true}");
        assert_int_equal(varlink_client_process(p.client, &reply), -EBADMSG);
        pair_close(&p);
        /* In order: the second call asked for more, the first did not. */
        pair_open(&p);
        assert_int_equal(ask(&p, false), 0);
        assert_int_equal(ask(&p, true), 0);
        for (int i = 0; i < 4; i++)
                say(&p, i == 1 || i == 2 ? "{\"continues\":true}" : "{}");
        say(&p, "{}");
        for (int i = 0; i < 4; i++) {
                assert_int_equal(varlink_client_process(p.client, &reply), 1);
                assert_int_equal(reply.continues, i == 1 || i == 2);
                varlink_reply_done(&reply);
        }
        assert_int_equal(varlink_client_process(p.client, &reply), -EBADMSG);
        pair_close(&p);
}

static void deadlines_hold(_unused_ void **state)
{
        usec_t start = now_monotonic();
        VarlinkReply reply = {0};
        Pair p;

        pair_open(&p);
        assert_int_equal(
                varlink_client_call(p.client, "a.b.C", NULL, NULL, 0, start + 30 * USEC_PER_MSEC, &reply),
                -ETIMEDOUT);
        assert_true(now_monotonic() - start >= 30 * USEC_PER_MSEC);
        /* A late reply still is the reply. */
        say(&p, "{}");
        assert_int_equal(varlink_client_receive(p.client, USEC_INFINITY, &reply), 0);
        varlink_reply_done(&reply);
        /* Also where the peer does not read. */
        for (;;) {
                static char large[1 << 16];
                struct json_object *o = json_object_new_object();

                memset(large, 'x', sizeof(large) - 1);
                assert_int_equal(json_add_string(o, "x", large), 0);
                assert_int_equal(varlink_client_send(p.client, "a.b.C", o, false, NULL, 0), 0);
                if (varlink_client_wants_output(p.client))
                        break;
        }
        assert_int_equal(varlink_client_receive(p.client, now_monotonic() + 30 * USEC_PER_MSEC, &reply),
                         -ETIMEDOUT);
        pair_close(&p);
}

static void a_server_that_goes(_unused_ void **state)
{
        VarlinkReply reply = {0};
        Pair p;

        pair_open(&p);
        assert_int_equal(ask(&p, false), 0);
        p.peer = close_fd(p.peer);
        /* Unread bytes make it a reset. */
        assert_int_equal(varlink_client_receive(p.client, USEC_INFINITY, &reply), -ECONNRESET);
        pair_close(&p);
        /* Its last words are heard, even when the call could not be sent any more. */
        pair_open(&p);
        say(&p, "{\"error\":\"a.b.Busy\"}");
        p.peer = close_fd(p.peer);
        assert_int_equal(ask(&p, false), 0);
        assert_int_equal(varlink_client_receive(p.client, USEC_INFINITY, &reply), 0);
        assert_string_equal(reply.error, "a.b.Busy");
        varlink_reply_done(&reply);
        assert_int_equal(ask(&p, false), 0);
        assert_int_equal(varlink_client_receive(p.client, USEC_INFINITY, &reply), -ENOTCONN);
        pair_close(&p);
}

static void connects(_unused_ void **state)
{
        _cleanup_(varlink_client_freep) VarlinkClient *c = NULL;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_scratch_ Scratch scratch;
        _cleanup_close_ int fd = -EBADF;
        uid_t uid = (uid_t) -1;
        char longer[109];

        scratch_make(&scratch);
        assert_true(snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", scratch.path) > 0);
        assert_int_equal(varlink_client_connect(address.sun_path, &c), -ENOENT);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(varlink_client_connect(address.sun_path, &c), -ECONNREFUSED);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(varlink_client_connect(address.sun_path, &c), 0);
        assert_int_equal(varlink_client_peer_uid(c, &uid), 0);
        assert_int_equal(uid, geteuid());
        assert_true(varlink_client_get_fd(c) > STDERR_FILENO);
        assert_true(fcntl(varlink_client_get_fd(c), F_GETFD) & FD_CLOEXEC);
        c = varlink_client_free(c);
        memset(longer, 'x', sizeof(longer));
        longer[108] = 0;
        assert_int_equal(varlink_client_connect(longer, &c), -ENAMETOOLONG);
        longer[107] = 0;
        assert_int_equal(varlink_client_connect(longer, &c), -ENOENT);
        assert_int_equal(varlink_client_connect("", &c), -ENOENT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(calls_are_varlink),
                cmocka_unit_test(takes_replies),
                cmocka_unit_test(refuses_what_is_no_reply),
                cmocka_unit_test(replies_belong_to_calls),
                cmocka_unit_test(deadlines_hold),
                cmocka_unit_test(a_server_that_goes),
                cmocka_unit_test(connects),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
