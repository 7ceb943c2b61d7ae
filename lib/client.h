/* What libiloader's calls share: one call to the manager, with its failure kept in words. */
#pragma once

#include "iloader/iloader.h"
#include "wire/client.h"

/* One call within the client's timeout; takes parameters in every case. Failures of both kinds (the
 * connection's, the manager's) are recorded and returned as the negative errno values that iloader.h names.
 */
int client_call(iloader_client *c, const char *method, struct json_object *parameters, const int *fds,
                size_t n_fds, VarlinkReply *ret);
/* Records a failure that is no varlink error; returns r. */
int client_fail(iloader_client *c, int r, const char *format, ...) _printf_(3, 4);
/* {"name": name}, with the name checked. */
int client_name_parameters(iloader_client *c, const char *name, struct json_object **ret);
