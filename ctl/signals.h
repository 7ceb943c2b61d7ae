/* Signals as descriptors: signalfd(2). */
#pragma once

#include <signal.h>
#include <stddef.h>

#include "base/cleanup.h"

/* Blocks the given signals and opens a descriptor that delivers them. Those that were ignored when the
 * program began stay ignored (nohup, background jobs). *ret_previous (may be NULL) is the mask before. */
int signals_watch(const int *signals, size_t n, sigset_t *ret_previous);
/* The next signal that was delivered, or 0. */
int signals_take(int fd);
