/* The one way in which a cache ends, whatever ended it: its worker and tasks leave, its files are closed,
 * what it left outside is removed, and only then is anybody told. */
#pragma once

#include "daemon/cache.h"

/* A wished end. waiting_message: what those who wait for it to become ready are told (NULL: a general
 * sentence). */
void teardown_begin(Cache *c, const char *waiting_message);
/* An end by a fault, which is moved out. */
void teardown_fail(Cache *c, Fault *fault);
/* The holder has ended. */
void teardown_worker_ended(Cache *c);
/* Drops the entry of a failed cache. */
void teardown_forget(Cache *c);
