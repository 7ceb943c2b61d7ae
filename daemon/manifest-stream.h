/* Manifest's replies: a cache's list of files read in batches as the client takes them, so that neither the
 * list nor the client's slowness costs the manager memory. */
#pragma once

#include "daemon/cache.h"
#include "wire/server.h"

/* Answers the call, now or over time. Negative errno where nothing was answered. */
int manifest_stream_begin(Cache *c, VarlinkCall *call);
/* The files are about to be closed. */
void manifest_streams_abort(Cache *c);
