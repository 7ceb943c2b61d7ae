/* The parameters of Start, out of the command line; and its replies, with signals in between. */
#pragma once

#include "ctl/options.h"
#include "wire/client.h"

struct json_object;

/* source: absolute; NULL for the configured cache. */
int start_request_new(const Arguments *a, const char *source, bool wait, struct json_object **ret);
/* Sends it with a descriptor of this process's root directory, below which the manager resolves the paths.
 * Takes parameters in every case. */
int start_request_send(VarlinkClient *c, struct json_object *parameters);
/* The source as the command line names it, made absolute; *ret is owned and NULL where none is named. */
int start_request_source(const Arguments *a, char **ret);

/* The next reply: 1; -EINTR once extra_fd is readable; -ETIMEDOUT, or what the connection says. */
int client_wait(VarlinkClient *c, int extra_fd, usec_t deadline, VarlinkReply *ret);
