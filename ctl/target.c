#include "ctl/target.h"

#include <string.h>

#include "base/path.h"
#include "base/text.h"
#include "ctl/options.h"
#include "lib/endpoint.h"

void targets_done(Targets *t)
{
        for (size_t i = 0; i < t->n; i++) {
                free(t->items[i].socket);
                free(t->items[i].base);
        }
        *t = (Targets){0};
}

static int target_add(Targets *t, TargetScope scope, const char *socket, const char *base)
{
        _cleanup_free_ char *s = NULL, *b = NULL;

        s = strdup(socket);
        b = base ? strdup(base) : NULL;
        if (!s || (base && !b))
                return -ENOMEM;
        t->items[t->n++] = (Target){.scope = scope, .socket = TAKE_PTR(s), .base = TAKE_PTR(b)};
        return 0;
}

static int base_of(const Arguments *a, char **ret)
{
        if (!a->base_dir)
                return endpoint_default_base(ret);
        *ret = strdup(a->base_dir);
        return *ret ? 0 : -ENOMEM;
}

static int add_system(Targets *t)
{
        return target_add(t, TARGET_SYSTEM, ENDPOINT_SYSTEM_SOCKET, NULL);
}

static int add_user(Targets *t, const Arguments *a)
{
        _cleanup_free_ char *base = NULL, *socket = NULL;
        int r;

        r = base_of(a, &base);
        if (r >= 0)
                r = endpoint_user_socket(base, &socket);
        return r < 0 ? r : target_add(t, TARGET_USER, socket, base);
}

static int add_socket(Targets *t, const Arguments *a, const char *path)
{
        _cleanup_free_ char *base = NULL, *socket = NULL;
        int r;

        r = path_make_absolute(path, &socket);
        if (r < 0)
                return r;
        if (streq(socket, ENDPOINT_SYSTEM_SOCKET))
                return add_system(t);
        r = base_of(a, &base);
        return r < 0 ? r : target_add(t, TARGET_SOCKET, socket, base);
}

/* Options that name two managers at once. */
static int check_contradiction(const Arguments *a, char **ret_error)
{
        const char *first = NULL, *second = NULL;
        int r;

        if (a->system) {
                first = "--system";
                second = a->user ? "--user" : a->socket ? "--socket" : a->base_dir ? "--base-dir" : NULL;
        } else if (a->user && a->socket) {
                first = "--user";
                second = "--socket";
        }
        if (!second)
                return 0;
        r = text_format(ret_error, "%s and %s cannot be combined: give one of them", first, second);
        return r < 0 ? r : -EINVAL;
}

static int check_length(const Target *t, char **ret_error)
{
        size_t n = strlen(t->socket);
        int r;

        if (n <= ENDPOINT_SOCKET_MAX)
                return 0;
        r = text_format(
                ret_error,
                "socket path %s has %zu bytes, but at most %u fit a Unix socket's address: use a shorter "
                "--base-dir or --socket",
                t->socket, n, ENDPOINT_SOCKET_MAX);
        return r < 0 ? r : -EINVAL;
}

static int add_default(Targets *t, const Arguments *a, bool admin, TargetUse use)
{
        int r;

        r = admin ? add_system(t) : add_user(t, a);
        if (r < 0 || use != TARGET_READS)
                return r;
        return admin ? add_user(t, a) : add_system(t);
}

int targets_resolve(const Arguments *a, bool admin, TargetUse use, Targets *ret, char **ret_error)
{
        _cleanup_targets_ Targets t = {0};
        const char *environment = getenv("ILOADER_SOCKET");
        int r;

        r = check_contradiction(a, ret_error);
        if (r < 0)
                return r;
        if (a->socket)
                r = add_socket(&t, a, a->socket);
        else if (a->base_dir || a->user)
                r = add_user(&t, a);
        else if (a->system)
                r = add_system(&t);
        else if (environment && *environment)
                r = add_socket(&t, a, environment);
        else
                r = add_default(&t, a, admin, use);
        if (r < 0)
                return r;
        r = check_length(&t.items[0], ret_error);
        if (r < 0)
                return r;
        /* A second place that cannot exist is just not looked at. */
        if (t.n == 2 && strlen(t.items[1].socket) > ENDPOINT_SOCKET_MAX) {
                free(t.items[1].socket);
                free(t.items[1].base);
                t.n = 1;
        }
        *ret = t;
        t = (Targets){0};
        return 0;
}

const char *target_describe(const Target *t)
{
        switch (t->scope) {
        case TARGET_USER:
                return "your own manager";
        case TARGET_SYSTEM:
                return "the system's manager";
        default:
                return "the manager";
        }
}
