/* What Start's parameters are where they are not given, and their bounds: the same for whoever asks, who
 * answers and who previews. */
#pragma once

#include "base/cleanup.h"

#define START_WORKERS_MAX             256U
#define START_CHUNK_SIZE_DEFAULT      MIB(64)
#define START_CHUNK_SIZE_MIN          KIB(4)
#define START_CHUNK_SIZE_MAX          GIB(1)
#define START_MEMORY_FRACTION_DEFAULT 0.90
#define START_RESERVE_DEFAULT         MIB(256)
/* Files of one cache, where iloaderd.conf says nothing else. */
#define START_FILES_MAX_DEFAULT 65536U
