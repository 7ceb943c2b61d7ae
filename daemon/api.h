/* io.iloader.Manager as it is served: the methods, and the only place where refusals become errors of the
 * interface. */
#pragma once

#include "daemon/manager.h"

/* Makes the manager's server and adds the interface; sockets are the caller's to add. */
int api_serve(Manager *m);
