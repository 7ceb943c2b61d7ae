/* Where managers are found: the system's socket, a user's own below BASE, and whom to believe there. */
#pragma once

#include <stdbool.h>

#include "wire/client.h"

#define ENDPOINT_SYSTEM_RUNTIME       "/run/iloader"
#define ENDPOINT_SYSTEM_CONFIGURATION "/etc/iloader"
#define ENDPOINT_SOCKET_NAME          "io.iloader.Manager"
#define ENDPOINT_SYSTEM_SOCKET        ENDPOINT_SYSTEM_RUNTIME "/" ENDPOINT_SOCKET_NAME
/* What fits sockaddr_un beside its NUL, unix(7). */
#define ENDPOINT_SOCKET_MAX 107U

/* BASE where no option names one: $ILOADER_BASE_DIR, $XDG_CACHE_HOME/infiniloader, ~/.cache/infiniloader, or,
 * where that neither exists nor could be made, /tmp/iloader-UID. Looks at no user database: start-up stays
 * cheap, and a home directory is what $HOME says. Absolute and normal; *ret is owned. */
int endpoint_default_base(char **ret);
/* BASE/run/io.iloader.Manager; *ret is owned. */
int endpoint_user_socket(const char *base, char **ret);
/* Whether errno values of connecting mean that nobody listens there, so that another place may be tried. */
bool endpoint_is_absent(int error);

/* Connects and checks that the listener is the caller's own or root's: -EPERM where it is not, -ENAMETOOLONG
 * past 107 bytes, else as connect(2) says. */
int endpoint_connect(const char *socket_path, VarlinkClient **ret);
