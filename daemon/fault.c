/* Typed refusals. */
#include "daemon/fault.h"

#include <string.h>

#include "base/text.h"

void fault_done(Fault *f)
{
        free(f->subject);
        free(f->message);
        *f = (Fault){};
}

int fault_set(Fault *f, FaultKind kind, const char *subject, const char *format, ...)
{
        va_list ap;

        if (f->kind != FAULT_NONE)
                return FAULT_REFUSED;
        f->kind = kind;
        if (subject)
                f->subject = strdup(subject);
        va_start(ap, format);
        (void) text_vformat(&f->message, format, ap);
        va_end(ap);
        return FAULT_REFUSED;
}

int fault_set_errno(Fault *f, int error, const char *name, const char *what)
{
        return fault_set(f, FAULT_LOAD_FAILED, name, "cache '%s': %s: %s", name, what,
                         strerror(error < 0 ? -error : error));
}

int fault_copy(const Fault *f, Fault *ret)
{
        Fault copy = *f;

        copy.subject = f->subject ? strdup(f->subject) : NULL;
        copy.message = f->message ? strdup(f->message) : NULL;
        if ((f->subject && !copy.subject) || (f->message && !copy.message)) {
                fault_done(&copy);
                return -ENOMEM;
        }
        *ret = copy;
        return 0;
}

FaultKind fault_kind_from_worker(const char *error)
{
        static const struct {
                const char *error;
                FaultKind kind;
        } table[] = {
                {"SourceInvalid", FAULT_SOURCE_INVALID}, {"SourceChanged", FAULT_SOURCE_CHANGED},
                {"TooManyFiles", FAULT_TOO_MANY_FILES},  {"ViewConflict", FAULT_VIEW_CONFLICT},
                {"LoadFailed", FAULT_LOAD_FAILED},       {"InsufficientMemory", FAULT_INSUFFICIENT_MEMORY},
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (streq(error, table[i].error))
                        return table[i].kind;
        return _FAULT_KIND_INVALID;
}

const char *fault_message(const Fault *f)
{
        return f->message ? f->message : "no memory was left to say why";
}
