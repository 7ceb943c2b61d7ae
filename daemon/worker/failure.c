/* See failure.h. */
#include "daemon/worker/failure.h"

#include <string.h>

#include "base/text.h"
#include "checkpoint/selection.h"
#include "checkpoint/view.h"

static const char *const failure_kind_names[_FAILURE_KIND_MAX] = {
        [FAILURE_LOAD_FAILED] = "LoadFailed",       [FAILURE_SOURCE_INVALID] = "SourceInvalid",
        [FAILURE_SOURCE_CHANGED] = "SourceChanged", [FAILURE_TOO_MANY_FILES] = "TooManyFiles",
        [FAILURE_VIEW_CONFLICT] = "ViewConflict",   [FAILURE_INSUFFICIENT_MEMORY] = "InsufficientMemory",
};

const char *failure_kind_to_string(FailureKind kind)
{
        return kind >= 0 && kind < _FAILURE_KIND_MAX ? failure_kind_names[kind] : "LoadFailed";
}

void failure_done(Failure *f)
{
        free(f->message);
        free(f->path);
        *f = (Failure) FAILURE_INIT;
}

static int failure_vset(Failure *f, int error, FailureKind kind, const char *path, const char *format,
                        va_list ap)
{
        int e = error < 0 ? -error : error;

        if (f->message)
                return -e;
        f->kind = kind;
        errno = e;
        (void) text_vformat(&f->message, format, ap);
        if (path) {
                free(f->path);
                f->path = strdup(path);
        }
        return -e;
}

int failure_set(Failure *f, int error, FailureKind kind, const char *path, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = failure_vset(f, error, kind, path, format, ap);
        va_end(ap);
        return r;
}

static FailureKind failure_kind_of(int error)
{
        switch (error < 0 ? -error : error) {
        case ENOMEM:
        case ENOSPC:
        case EMFILE:
        case ENFILE:
                return FAILURE_INSUFFICIENT_MEMORY;
        default:
                return FAILURE_LOAD_FAILED;
        }
}

int failure_set_memory(Failure *f, int error, const char *path, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = failure_vset(f, error, failure_kind_of(error), path, format, ap);
        va_end(ap);
        return r;
}

int failure_complete(Failure *f, int error, const char *what)
{
        return failure_set_memory(f, error, NULL, "%s: %m", what);
}

int failure_take_source(Failure *f, int error, SourceFault *source)
{
        static const FailureKind kinds[_SOURCE_FAULT_MAX] = {
                [SOURCE_INVALID] = FAILURE_SOURCE_INVALID,
                [SOURCE_CHANGED] = FAILURE_SOURCE_CHANGED,
                [SOURCE_TOO_MANY] = FAILURE_TOO_MANY_FILES,
        };

        if (!source->message)
                return failure_complete(f, error, "cannot look at the source");
        if (!f->message) {
                f->kind = source->kind >= 0 && source->kind < _SOURCE_FAULT_MAX ? kinds[source->kind]
                                                                                : FAILURE_SOURCE_INVALID;
                if (f->kind == FAILURE_TOO_MANY_FILES) {
                        f->maximum = source->maximum;
                        f->files = source->files;
                }
                f->message = TAKE_PTR(source->message);
                free(f->path);
                f->path = TAKE_PTR(source->path);
        }
        return error < 0 ? error : -error;
}

int failure_take_view(Failure *f, int error, ViewFault *view)
{
        if (!view->message)
                return failure_complete(f, error, "cannot make the view");
        if (!f->message) {
                f->kind = view->kind == VIEW_CONFLICT ? FAILURE_VIEW_CONFLICT : FAILURE_LOAD_FAILED;
                f->message = TAKE_PTR(view->message);
                free(f->path);
                f->path = TAKE_PTR(view->path);
        }
        return error < 0 ? error : -error;
}
