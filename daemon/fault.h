/* Why a request was refused or a load failed: one typed value that carries its figures from where they are
 * known to daemon/api.c, the only place that turns it into an error of the interface. */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"

typedef enum FaultKind {
        FAULT_NONE,
        FAULT_NO_SUCH_CACHE,       /* subject: name */
        FAULT_CACHE_MISMATCH,      /* subject: name */
        FAULT_SOURCE_CHANGED,      /* subject: path */
        FAULT_SOURCE_INVALID,      /* subject: path */
        FAULT_CACHE_LEASED,        /* subject: name */
        FAULT_CACHE_NOT_READY,     /* subject: name */
        FAULT_NAME_RESERVED,       /* subject: name */
        FAULT_INVALID_NAME,        /* subject: name */
        FAULT_INSUFFICIENT_MEMORY, /* subject: limit; required, available */
        FAULT_QUOTA_EXCEEDED,      /* required, resident, maximum */
        FAULT_TOO_MANY_FILES,      /* files, maximum */
        FAULT_TOO_MANY_LEASES,     /* maximum */
        FAULT_LIMIT_EXCEEDED,      /* subject: limit; maximum */
        FAULT_VIEW_CONFLICT,       /* subject: path */
        FAULT_LOAD_FAILED,         /* subject: name */
        FAULT_INVALID_HOLDER,
        FAULT_INVALID_CONFIGURATION, /* subject: path; line */
        FAULT_INVALID_PARAMETER,     /* subject: field */
        FAULT_PERMISSION_DENIED,
        _FAULT_KIND_MAX,
        _FAULT_KIND_INVALID = -EINVAL,
} FaultKind;

typedef struct Fault {
        FaultKind kind;
        char *subject; /* what the kind's comment says; owned, may be NULL */
        char *message; /* for people: what, why, remedy; owned, may be NULL */
        uint64_t required, available, resident, maximum, files;
        unsigned line;
} Fault;

#define FAULT_REFUSED (-ECANCELED)

void fault_done(Fault *f);
#define _cleanup_fault_ _cleanup_(fault_done)

/* Sets kind, subject (copied, may be NULL) and message; a fault that is set already stays, since the first
 * cause is what counts. Returns FAULT_REFUSED always, so that "return fault_set(…)" says both; a failed
 * allocation costs the text only. */
int fault_set(Fault *f, FaultKind kind, const char *subject, const char *format, ...) _printf_(4, 5);
/* For an errno that is nobody's refusal: a load that failed for the system's reasons. */
int fault_set_errno(Fault *f, int error, const char *name, const char *what);
int fault_copy(const Fault *f, Fault *ret);
/* What a worker calls its error ("SourceInvalid"), as far as workers may: _FAULT_KIND_INVALID for anything
 * else. */
FaultKind fault_kind_from_worker(const char *error);
/* The message, or a general sentence where there is none. */
const char *fault_message(const Fault *f);
