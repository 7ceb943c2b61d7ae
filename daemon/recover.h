/* What an earlier manager that died left behind. */
#pragma once

#include "daemon/manager.h"

/* Reads the registry: every cache in it is lost with its manager; that is said, its pid file removed, and the
 * entry too. Views stay, to be published again. */
int recover_lost(Manager *m);
