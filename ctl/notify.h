/* Telling the service manager: the protocol of sd_notify(3). Written out, since libsystemd with the libraries
 * behind it would double the time that every iloader needs to start, for the one verb that a service manager
 * watches. */
#pragma once

#include "base/cleanup.h"

/* Sends newline-separated assignments to $NOTIFY_SOCKET: 1 sent, 0 where nobody listens, or -errno. */
int notify_send(const char *format, ...) _printf_(1, 2);
/* The unit's status line; what a line cannot hold (a path's newline) is escaped, so that nothing is slipped
 * in. */
int notify_status(const char *format, ...) _printf_(1, 2);
