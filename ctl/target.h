/* Which manager a verb means. */
#pragma once

#include <stdbool.h>

#include "base/cleanup.h"

struct Arguments;

typedef enum TargetScope {
        TARGET_USER,   /* the manager of BASE */
        TARGET_SYSTEM, /* the system's */
        TARGET_SOCKET, /* whichever listens at a socket that was named */
        _TARGET_SCOPE_MAX,
        _TARGET_SCOPE_INVALID = -EINVAL,
} TargetScope;

typedef struct Target {
        TargetScope scope;
        char *socket; /* absolute, at most 107 bytes; owned */
        char *base;   /* BASE; NULL in the system scope; owned */
} Target;

/* The places to look at, in order. */
typedef struct Targets {
        Target items[2];
        size_t n;
} Targets;
void targets_done(Targets *t);
#define _cleanup_targets_ _cleanup_(targets_done)

typedef enum TargetUse {
        TARGET_CHANGES, /* one manager, never another */
        TARGET_READS,   /* the first, then the other, where none is named */
        TARGET_MAKES,   /* start: the user's own where none is named and the program is iloader */
} TargetUse;

/* --socket, --base-dir, --system, --user, $ILOADER_SOCKET in this order; else the user's own (iloader) or the
 * system's (iloaderctl, admin). -EINVAL with *ret_error (owned) in words: options that contradict one
 * another, a socket path that is too long. */
int targets_resolve(const struct Arguments *a, bool admin, TargetUse use, Targets *ret, char **ret_error);

/* "your own manager", "the system's manager", "the manager at PATH"-like words: for messages, static. */
const char *target_describe(const Target *t);
