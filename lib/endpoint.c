#include "lib/endpoint.h"

#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"

#define BASE_NAME "infiniloader"

/* Whether the directory is there or could be made: the nearest ancestor that exists lets us write. */
static bool directory_is_usable(const char *path)
{
        _cleanup_free_ char *p = strdup(path);
        struct stat st;

        while (p) {
                char *slash;

                if (stat(p, &st) == 0) {
                        /* What exists is used whatever its mode: its owner and mode are judged by whoever
                         * opens it. */
                        if (streq(p, path))
                                return S_ISDIR(st.st_mode);
                        return S_ISDIR(st.st_mode) && faccessat(AT_FDCWD, p, W_OK | X_OK, AT_EACCESS) == 0;
                }
                if (errno != ENOENT)
                        return false;
                slash = strrchr(p, '/');
                if (!slash || slash == p)
                        return false;
                *slash = '\0';
        }
        return false;
}

static int home_base(char **ret)
{
        const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
        _cleanup_free_ char *path = NULL, *normal = NULL;
        struct stat st;
        int r;

        if (cache && path_is_absolute(cache))
                r = text_format(&path, "%s/" BASE_NAME, cache);
        else if (home && path_is_absolute(home) && stat(home, &st) == 0)
                /* A home that does not exist (/nonexistent) isn't made. */
                r = text_format(&path, "%s/.cache/" BASE_NAME, home);
        else
                return -ENOENT;
        if (r < 0)
                return r;
        r = path_normalize(path, &normal);
        if (r < 0)
                return r;
        if (!directory_is_usable(normal))
                return -ENOENT;
        *ret = TAKE_PTR(normal);
        return 0;
}

int endpoint_default_base(char **ret)
{
        const char *given = secure_getenv("ILOADER_BASE_DIR");
        char *fallback = NULL;
        int r;

        if (given && *given)
                return path_make_absolute(given, ret);
        r = home_base(ret);
        if (r != -ENOENT)
                return r;
        r = text_format(&fallback, "/tmp/iloader-%u", (unsigned) geteuid());
        if (r < 0)
                return r;
        *ret = fallback;
        return 0;
}

int endpoint_user_socket(const char *base, char **ret)
{
        char *path = NULL;
        int r;

        r = text_format(&path, "%s/run/" ENDPOINT_SOCKET_NAME, base);
        if (r < 0)
                return r;
        *ret = path;
        return 0;
}

bool endpoint_is_absent(int error)
{
        return error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR;
}

int endpoint_connect(const char *socket_path, VarlinkClient **ret)
{
        _cleanup_(varlink_client_freep) VarlinkClient *client = NULL;
        uid_t uid = (uid_t) -1;
        int r;

        if (strlen(socket_path) > ENDPOINT_SOCKET_MAX)
                return -ENAMETOOLONG;
        r = varlink_client_connect(socket_path, &client);
        if (r < 0)
                return r;
        r = varlink_client_peer_uid(client, &uid);
        if (r < 0)
                return r;
        if (uid != 0 && uid != geteuid())
                return -EPERM;
        *ret = TAKE_PTR(client);
        return 0;
}
