#include "ctl/notify.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/path.h"
#include "base/text.h"

int notify_send(const char *format, ...)
{
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_free_ char *text = NULL;
        _cleanup_close_ int fd = -EBADF;
        socklen_t n;
        va_list ap;
        int r;

        if (!path || !*path)
                return 0;
        /* A path, or '@' and a name in the abstract namespace; unix(7). */
        if ((path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(address.sun_path))
                return -EAFNOSUPPORT;
        va_start(ap, format);
        r = text_vformat(&text, format, ap);
        va_end(ap);
        if (r < 0)
                return r;
        memcpy(address.sun_path, path, strlen(path) + 1);
        if (path[0] == '@')
                address.sun_path[0] = '\0';
        n = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] == '/'));
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *) &address, n) < 0)
                return -errno;
        return 1;
}

int notify_status(const char *format, ...)
{
        _cleanup_free_ char *text = NULL, *line = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(&text, format, ap);
        va_end(ap);
        if (r >= 0)
                r = path_escape(text, &line);
        return r < 0 ? r : notify_send("STATUS=%s", line);
}
