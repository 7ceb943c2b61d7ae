/* doctor's checks: each says what was looked at, and how it is. */
#pragma once

#include "ctl/verb.h"

typedef enum CheckResult {
        CHECK_OK,
        CHECK_WARN, /* works, but less well or not everywhere */
        CHECK_FAIL, /* iloader cannot work */
        _CHECK_RESULT_MAX,
        _CHECK_RESULT_INVALID = -EINVAL,
} CheckResult;

typedef struct Checkup {
        const Invocation *invocation;
        char *directory; /* private, for sockets and locks; owned */
        char *base;      /* BASE, as far as it is known; owned, may be NULL */
        char *detail;    /* what the running check found; owned, replaced by each */
} Checkup;

typedef CheckResult (*CheckFunction)(Checkup *c);

typedef struct Check {
        const char *name;
        CheckFunction function;
} Check;

/* Sets the detail and returns the result. */
CheckResult check_says(Checkup *c, CheckResult result, const char *format, ...) _printf_(3, 4);

extern const Check kernel_checks[];  /* what the kernel must do; both end with an entry without a name */
extern const Check machine_checks[]; /* what the machine offers */
