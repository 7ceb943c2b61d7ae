/* Whether a load fits: one accountant, a pure function of a snapshot, the reservations of loads in flight,
 * the quota and what is asked. Nothing is read or written here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

typedef struct AdmissionRequest {
        uint64_t file_bytes;   /* of the resident files */
        uint64_t view_bytes;   /* small files' copies in the view */
        uint64_t buffer_bytes; /* of the copying threads */
        double memory_fraction;
        uint64_t reserve_bytes;
        uint64_t max_memory_bytes; /* UINT64_MAX: none */
        bool force;
} AdmissionRequest;

typedef struct AdmissionState {
        uint64_t resident_bytes;    /* of ready caches and all that counts until its memory is given back */
        uint64_t reserved_bytes;    /* of loads in flight: whole, for the quota */
        uint64_t outstanding_bytes; /* of them: not filled yet, to be deducted from what is available */
        uint64_t quota_bytes;       /* UINT64_MAX: none */
} AdmissionState;

typedef enum AdmissionVerdict {
        ADMISSION_ADMITTED,
        ADMISSION_OVER_CACHE_CAP, /* --max-memory-bytes */
        ADMISSION_OVER_QUOTA,
        ADMISSION_OVER_AVAILABLE,
        _ADMISSION_VERDICT_MAX,
        _ADMISSION_VERDICT_INVALID = -22,
} AdmissionVerdict;

typedef struct AdmissionDecision {
        AdmissionVerdict verdict;
        uint64_t required_bytes;
        uint64_t available_bytes; /* effective, less outstanding */
        uint64_t budget_bytes;
        const char *limit; /* what bound available_bytes; belongs to the snapshot */
} AdmissionDecision;

void admission_decide(const AdmissionRequest *request, const MemorySnapshot *snapshot,
                      const AdmissionState *state, AdmissionDecision *ret);
/* What the verdict means, with figures and the remedy; *ret is owned. */
int admission_explain(const AdmissionDecision *d, const AdmissionRequest *request,
                      const AdmissionState *state, const char *name, char **ret);
