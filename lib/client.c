/* The connection of libiloader: opened at once, so that a missing manager is known early, and opened anew by
 * the next call after it broke, so that a program outlives a restart of the manager. */
#include "lib/client.h"

#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "lib/endpoint.h"

#define TIMEOUT_DEFAULT (5 * USEC_PER_SEC)
#define INTERFACE       "io.iloader.Manager"

struct iloader_client {
        char *socket_path;
        VarlinkClient *varlink; /* NULL after it broke */
        usec_t timeout;
        char *error;
        char *error_name;
};

static const struct {
        const char *name;
        int error;
} error_table[] = {
        {INTERFACE ".NoSuchCache", -ENOENT},
        {INTERFACE ".CacheNotReady", -EAGAIN},
        {INTERFACE ".TooManyLeases", -EUSERS},
        {INTERFACE ".InvalidHolder", -ESRCH},
        {INTERFACE ".InvalidName", -EINVAL},
        {"org.varlink.service.PermissionDenied", -EACCES},
        {"org.varlink.service.InvalidParameter", -EINVAL},
        {"org.varlink.service.MethodNotFound", -EOPNOTSUPP},
        {"org.varlink.service.MethodNotImplemented", -EOPNOTSUPP},
        {"org.varlink.service.InterfaceNotFound", -EOPNOTSUPP},
};

static void client_forget_error(iloader_client *c)
{
        free(c->error);
        free(c->error_name);
        c->error = c->error_name = NULL;
}

int client_fail(iloader_client *c, int r, const char *format, ...)
{
        va_list ap;

        client_forget_error(c);
        va_start(ap, format);
        (void) text_vformat(&c->error, format, ap);
        va_end(ap);
        return r;
}

static int open_default(char **ret_path, VarlinkClient **ret)
{
        const char *given = secure_getenv("ILOADER_SOCKET");
        _cleanup_free_ char *base = NULL, *path = NULL;
        int r;

        if (given && *given) {
                r = path_make_absolute(given, &path);
                if (r < 0)
                        return r;
                r = endpoint_connect(path, ret);
        } else {
                r = endpoint_default_base(&base);
                if (r < 0)
                        return r;
                r = endpoint_user_socket(base, &path);
                if (r < 0)
                        return r;
                r = endpoint_connect(path, ret);
                if (endpoint_is_absent(r)) {
                        r = text_format(&path, "%s", ENDPOINT_SYSTEM_SOCKET);
                        if (r < 0)
                                return r;
                        r = endpoint_connect(path, ret);
                }
        }
        if (r < 0)
                return r;
        *ret_path = TAKE_PTR(path);
        return 0;
}

_public_ int iloader_client_open(const char *socket_path, uint64_t timeout_usec, iloader_client **ret)
{
        iloader_client *c;
        int r;

        if (!ret)
                return -EINVAL;
        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->timeout = timeout_usec ? timeout_usec : TIMEOUT_DEFAULT;
        if (socket_path) {
                r = path_make_absolute(socket_path, &c->socket_path);
                if (r >= 0)
                        r = endpoint_connect(c->socket_path, &c->varlink);
        } else
                r = open_default(&c->socket_path, &c->varlink);
        if (r < 0) {
                iloader_client_close(c);
                return r;
        }
        *ret = c;
        return 0;
}

_public_ iloader_client *iloader_client_close(iloader_client *client)
{
        if (!client)
                return NULL;
        varlink_client_free(client->varlink);
        client_forget_error(client);
        free(client->socket_path);
        free(client);
        return NULL;
}

_public_ const char *iloader_client_last_error(const iloader_client *client)
{
        return client && client->error ? client->error : "";
}

_public_ const char *iloader_client_last_error_name(const iloader_client *client)
{
        return client && client->error_name ? client->error_name : "";
}

/* The manager's refusal as an errno value and a sentence. */
static int client_refused(iloader_client *c, const VarlinkReply *reply)
{
        const char *message = NULL;
        int r = -EREMOTEIO;

        for (size_t i = 0; i < ELEMENTSOF(error_table); i++)
                if (streq(reply->error, error_table[i].name))
                        r = error_table[i].error;
        if (json_get_string(reply->parameters, "message", &message) >= 0)
                client_fail(c, r, "%s", message);
        else if (json_get_string(reply->parameters, "name", &message) >= 0 && r == -ENOENT)
                client_fail(c, r, "there is no cache '%s' at %s", message, c->socket_path);
        else if (json_get_string(reply->parameters, "parameter", &message) >= 0)
                client_fail(c, r, "the manager at %s does not take this value of '%s'", c->socket_path,
                            message);
        else if (streq(reply->error, "org.varlink.service.PermissionDenied"))
                client_fail(c, r, "the manager at %s does not allow this to user %u", c->socket_path,
                            (unsigned) geteuid());
        else
                client_fail(c, r, "the manager at %s refused: %s", c->socket_path, reply->error);
        c->error_name = strdup(reply->error);
        return r;
}

int client_call(iloader_client *c, const char *method, struct json_object *parameters, const int *fds,
                size_t n_fds, VarlinkReply *ret)
{
        _cleanup_json_ struct json_object *owned = parameters;
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        int r;

        client_forget_error(c);
        if (!c->varlink) {
                r = endpoint_connect(c->socket_path, &c->varlink);
                if (r < 0)
                        return client_fail(c, r, "cannot connect to the manager at %s: %s", c->socket_path,
                                           strerror(-r));
        }
        r = varlink_client_call(c->varlink, method, TAKE_PTR(owned), fds, n_fds,
                                add_saturating(now_monotonic(), c->timeout), &reply);
        if (r < 0) {
                /* What is left of this connection may hold the late reply to this call: never used again. */
                c->varlink = varlink_client_free(c->varlink);
                if (r == -ENOTCONN || r == -EPIPE)
                        r = -ECONNRESET;
                else if (r == -EBADMSG)
                        r = -EPROTO;
                return client_fail(c, r, "calling the manager at %s failed: %s", c->socket_path,
                                   strerror(-r));
        }
        if (reply.error)
                return client_refused(c, &reply);
        *ret = reply;
        reply = (VarlinkReply){0};
        return 0;
}

int client_name_parameters(iloader_client *c, const char *name, struct json_object **ret)
{
        _cleanup_json_ struct json_object *p = NULL;
        const char *reason = NULL;

        if (!name || !cache_name_is_valid(name, &reason))
                return client_fail(c, -EINVAL, "name '%s' %s", name ? name : "",
                                   reason ? reason : "is missing");
        p = json_object_new_object();
        if (!p || json_add_string(p, "name", name) < 0)
                return client_fail(c, -ENOMEM, "out of memory");
        *ret = TAKE_PTR(p);
        return 0;
}
