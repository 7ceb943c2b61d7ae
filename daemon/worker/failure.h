/* Why a job failed, as the manager is told: one of the interface's errors with its text and figures. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

struct SourceFault;
struct ViewFault;

typedef enum FailureKind {
        FAILURE_LOAD_FAILED,
        FAILURE_SOURCE_INVALID,
        FAILURE_SOURCE_CHANGED,
        FAILURE_TOO_MANY_FILES,
        FAILURE_VIEW_CONFLICT,
        FAILURE_INSUFFICIENT_MEMORY,
        _FAILURE_KIND_MAX,
        _FAILURE_KIND_INVALID = -EINVAL,
} FailureKind;

typedef struct Failure {
        FailureKind kind;
        char *message;           /* owned; NULL: nothing has failed yet */
        char *path;              /* owned; NULL: none is concerned */
        uint64_t files, maximum; /* UINT64_MAX: not known */
} Failure;
#define FAILURE_INIT                                                                                         \
        {                                                                                                    \
                .files = UINT64_MAX, .maximum = UINT64_MAX                                                   \
        }

void failure_done(Failure *f);
#define _cleanup_failure_ _cleanup_(failure_done)

/* The error's name in io.iloader.Manager, without the prefix. */
const char *failure_kind_to_string(FailureKind kind);

/* Records the fault unless one is recorded already: the first one is the cause. Returns the negative of
 * |error|, whose text is %m. */
int failure_set(Failure *f, int error, FailureKind kind, const char *path, const char *format, ...)
        _printf_(5, 6);
/* The same, with the kind chosen by the error: no memory, no space and no descriptors are InsufficientMemory.
 */
int failure_set_memory(Failure *f, int error, const char *path, const char *format, ...) _printf_(4, 5);
/* Takes over what checkpoint said; its strings are moved. files is how many there are, where that is known.
 */
int failure_take_source(Failure *f, int error, struct SourceFault *source);
int failure_take_view(Failure *f, int error, struct ViewFault *view);
/* What is said where a failure brought no words of its own. */
int failure_complete(Failure *f, int error, const char *what);
