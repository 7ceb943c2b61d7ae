/* Views and leases. A lease is asked for with a pidfd, so that it means one process and no recycled number,
 * and lasts until that process ends: unix(7) SCM_RIGHTS, pidfd_open(2). */
#include <string.h>

#include "base/process.h"
#include "lib/client.h"

static int path_from_reply(iloader_client *c, struct json_object *o, char **ret)
{
        int r;

        r = json_get_path(o, "view", ret);
        if (r == -ENOMEM)
                return client_fail(c, r, "out of memory");
        if (r < 0)
                return client_fail(c, -EPROTO, "the manager's reply names no view");
        return 0;
}

_public_ int iloader_view(iloader_client *client, const char *name, char **ret)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *parameters = NULL;
        int r;

        if (!client || !ret)
                return -EINVAL;
        r = client_name_parameters(client, name, &parameters);
        if (r < 0)
                return r;
        r = client_call(client, "io.iloader.Manager.View", parameters, NULL, 0, &reply);
        if (r < 0)
                return r;
        return path_from_reply(client, reply.parameters, ret);
}

/* Calls a method with the cache's name and the holder's pidfd. */
static int call_with_holder(iloader_client *c, const char *method, const char *name, int pidfd,
                            VarlinkReply *ret)
{
        _cleanup_close_ int own = -EBADF;
        struct json_object *parameters = NULL;
        int r;

        if (pidfd < 0) {
                own = pidfd_open_pid(getpid());
                if (own < 0)
                        return client_fail(c, own, "cannot open a pidfd of this process: %s", strerror(-own));
                pidfd = own;
        }
        r = client_name_parameters(c, name, &parameters);
        if (r < 0)
                return r;
        return client_call(c, method, parameters, &pidfd, 1, ret);
}

_public_ int iloader_lease_acquire(iloader_client *client, const char *name, int pidfd, char **ret_view)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};
        struct json_object *cache = NULL;
        int r;

        if (!client)
                return -EINVAL;
        r = call_with_holder(client, "io.iloader.Manager.AcquireLease", name, pidfd, &reply);
        if (r < 0)
                return r;
        if (!ret_view)
                return 0;
        if (json_get_object(reply.parameters, "cache", &cache) < 0)
                return client_fail(client, -EPROTO, "the manager's reply describes no cache");
        return path_from_reply(client, cache, ret_view);
}

_public_ int iloader_lease_release(iloader_client *client, const char *name, int pidfd)
{
        _cleanup_varlink_reply_ VarlinkReply reply = {0};

        if (!client)
                return -EINVAL;
        return call_with_holder(client, "io.iloader.Manager.ReleaseLease", name, pidfd, &reply);
}
