/* The accountant. Everything saturates: a sum that doesn't fit 64 bits is too much, never little. */
#include "daemon/admission.h"

#include "base/size.h"
#include "base/text.h"

static uint64_t admission_required(const AdmissionRequest *request)
{
        return add_saturating(add_saturating(request->file_bytes, request->view_bytes),
                              request->buffer_bytes);
}

void admission_decide(const AdmissionRequest *request, const MemorySnapshot *snapshot,
                      const AdmissionState *state, AdmissionDecision *ret)
{
        AdmissionDecision d = {.verdict = ADMISSION_ADMITTED};
        uint64_t effective, counted;

        effective = memory_effective_available(snapshot, &d.limit);
        d.available_bytes = effective > state->outstanding_bytes ? effective - state->outstanding_bytes : 0;
        d.required_bytes = admission_required(request);
        d.budget_bytes = memory_budget(d.available_bytes, request->memory_fraction, request->reserve_bytes);

        counted = add_saturating(add_saturating(state->resident_bytes, state->reserved_bytes),
                                 d.required_bytes);
        /* What was set by hand comes first: it isn't bypassed by force, and the remedy is in the caller's
         * hands. */
        if (request->max_memory_bytes != UINT64_MAX && d.required_bytes > request->max_memory_bytes)
                d.verdict = ADMISSION_OVER_CACHE_CAP;
        else if (state->quota_bytes != UINT64_MAX && counted > state->quota_bytes)
                d.verdict = ADMISSION_OVER_QUOTA;
        else if (!request->force && d.required_bytes > d.budget_bytes)
                d.verdict = ADMISSION_OVER_AVAILABLE;
        *ret = d;
}

static int explain_admitted(const AdmissionDecision *d, const char *name, char **ret)
{
        char required[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX];

        return text_format(ret, "cache '%s' needs %s of a budget of %s; %s are available, bound by %s%s",
                           name, format_size(required, d->required_bytes),
                           format_size(budget, d->budget_bytes), format_size(available, d->available_bytes),
                           d->limit ?: "an unknown limit",
                           d->required_bytes > d->budget_bytes ? " (forced)" : "");
}

static int explain_cache_cap(const AdmissionDecision *d, const AdmissionRequest *request, const char *name,
                             char **ret)
{
        char required[SIZE_TEXT_MAX], cap[SIZE_TEXT_MAX];

        return text_format(
                ret,
                "cache '%s' needs %s with its buffers and small files' copies, more than its own cap of %s: "
                "raise --max-memory-bytes, select fewer files or use fewer workers",
                name, format_size(required, d->required_bytes), format_size(cap, request->max_memory_bytes));
}

static int explain_quota(const AdmissionDecision *d, const AdmissionState *state, const char *name,
                         char **ret)
{
        char required[SIZE_TEXT_MAX], resident[SIZE_TEXT_MAX], reserved[SIZE_TEXT_MAX], quota[SIZE_TEXT_MAX];

        return text_format(
                ret,
                "cache '%s' needs %s; %s are resident and %s reserved by loads in flight, of a shared quota "
                "of %s: stop a cache, or raise the quota with 'iloader set-quota' or --max-resident-bytes",
                name, format_size(required, d->required_bytes), format_size(resident, state->resident_bytes),
                format_size(reserved, state->reserved_bytes), format_size(quota, state->quota_bytes));
}

static int explain_available(const AdmissionDecision *d, const AdmissionRequest *request,
                             const AdmissionState *state, const char *name, char **ret)
{
        char required[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX], reserve[SIZE_TEXT_MAX],
                outstanding[SIZE_TEXT_MAX];
        _cleanup_free_ char *loads = NULL;
        int r;

        if (state->outstanding_bytes > 0) {
                r = text_format(&loads, ", %s of loads in flight deducted",
                                format_size(outstanding, state->outstanding_bytes));
                if (r < 0)
                        return r;
        }
        return text_format(
                ret,
                "cache '%s' needs %s, but may use %s: %g %% of the %s available (bound by %s%s) less %s of "
                "reserve: free memory, raise that limit, lower --reserve-bytes, raise "
                "--max-memory-fraction, or use --force",
                name, format_size(required, d->required_bytes), format_size(budget, d->budget_bytes),
                request->memory_fraction * 100, format_size(available, d->available_bytes),
                d->limit ?: "an unknown limit", loads ?: "", format_size(reserve, request->reserve_bytes));
}

int admission_explain(const AdmissionDecision *d, const AdmissionRequest *request,
                      const AdmissionState *state, const char *name, char **ret)
{
        _cleanup_free_ char *text = NULL;
        int r = -EINVAL;

        switch (d->verdict) {
        case ADMISSION_ADMITTED:
                r = explain_admitted(d, name, &text);
                break;
        case ADMISSION_OVER_CACHE_CAP:
                r = explain_cache_cap(d, request, name, &text);
                break;
        case ADMISSION_OVER_QUOTA:
                r = explain_quota(d, state, name, &text);
                break;
        case ADMISSION_OVER_AVAILABLE:
                r = explain_available(d, request, state, name, &text);
                break;
        case _ADMISSION_VERDICT_MAX:
        case _ADMISSION_VERDICT_INVALID:
                break;
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(text);
        return 0;
}
