/* Reading a worker's messages. */
#include "daemon/message.h"

#include <string.h>

#include "base/digest.h"
#include "base/path.h"
#include "base/text.h"

static const char *const event_table[_WORKER_EVENT_MAX] = {
        [WORKER_SELECTED] = "selected", [WORKER_PROGRESS] = "progress", [WORKER_FILES] = "files",
        [WORKER_LOADED] = "loaded",     [WORKER_HOLDING] = "holding",   [WORKER_PUBLISHED] = "published",
        [WORKER_PROBED] = "probed",     [WORKER_REMOVED] = "removed",   [WORKER_ERROR] = "error",
};

const char *worker_event_to_string(WorkerEvent e)
{
        return e >= 0 && e < _WORKER_EVENT_MAX ? event_table[e] : NULL;
}

static WorkerEvent worker_event_from_string(const char *s)
{
        for (WorkerEvent e = 0; e < _WORKER_EVENT_MAX; e++)
                if (streq(s, event_table[e]))
                        return e;
        return _WORKER_EVENT_INVALID;
}

void worker_message_done(WorkerMessage *m)
{
        free(m->source);
        free(m->fingerprint);
        fd_set_done(&m->fds);
        fault_done(&m->fault);
        *m = (WorkerMessage){};
}

static bool fingerprint_is_valid(const char *s)
{
        return strlen(s) == DIGEST_HEX_MAX - 1 && strspn(s, "0123456789abcdef") == DIGEST_HEX_MAX - 1;
}

static int parse_selected(struct json_object *o, WorkerMessage *m)
{
        const char *fingerprint;
        int r;

        r = json_get_path(o, "source", &m->source);
        if (r < 0)
                return r;
        if (!path_is_absolute(m->source))
                return -EBADMSG;
        r = json_get_string(o, "fingerprint", &fingerprint);
        if (r < 0)
                return r;
        if (!fingerprint_is_valid(fingerprint))
                return -EBADMSG;
        m->fingerprint = strdup(fingerprint);
        if (!m->fingerprint)
                return -ENOMEM;
        if ((r = json_get_size(o, "files", &m->files)) < 0 ||
            (r = json_get_size(o, "bytes", &m->bytes)) < 0 ||
            (r = json_get_size(o, "largeFiles", &m->large_files)) < 0 ||
            (r = json_get_size(o, "packBytes", &m->pack_bytes)) < 0 ||
            (r = json_get_size(o, "bufferBytes", &m->buffer_bytes)) < 0)
                return r;
        if (m->files == 0 || m->large_files > m->files || m->pack_bytes > m->bytes)
                return -EBADMSG;
        return 0;
}

/* What daemon/fault.h says for the kind. */
static const char *subject_of(FaultKind kind, const char *name, const char *path)
{
        if (kind == FAULT_LOAD_FAILED)
                return name;
        if (kind == FAULT_INSUFFICIENT_MEMORY)
                return "MemAvailable";
        return path ? path : "";
}

static int parse_error(struct json_object *o, const char *name, WorkerMessage *m)
{
        _cleanup_free_ char *path = NULL, *text = NULL;
        const char *error, *message;
        FaultKind kind;
        int r;

        r = json_get_string(o, "error", &error);
        if (r < 0)
                return r;
        kind = fault_kind_from_worker(error);
        if (kind < 0)
                return -EBADMSG;
        r = json_get_string(o, "message", &message);
        if (r < 0)
                return r;
        if (strlen(message) > MESSAGE_TEXT_MAX)
                return -EBADMSG;
        /* The text goes to terminals and logs: no control characters. */
        r = path_escape(message, &text);
        if (r < 0)
                return r;
        r = json_get_path(o, "path", &path);
        if (r < 0 && r != -ENOENT)
                return r;
        if (path && strlen(path) > MESSAGE_TEXT_MAX)
                return -EBADMSG;
        (void) fault_set(&m->fault, kind, subject_of(kind, name, path), "cache '%s': %s", name, text);
        r = json_get_size(o, "files", &m->fault.files);
        if (r < 0 && r != -ENOENT)
                return r;
        r = json_get_size(o, "maximum", &m->fault.maximum);
        return r == -ENOENT ? 0 : r;
}

static int parse_event(struct json_object *o, const char *name, WorkerMessage *m)
{
        int r;

        switch (m->event) {
        case WORKER_SELECTED:
                return parse_selected(o, m);
        case WORKER_PROGRESS:
                return json_get_size(o, "bytesLoaded", &m->bytes_loaded);
        case WORKER_FILES:
                return json_get_size(o, "first", &m->first);
        case WORKER_LOADED:
                if ((r = json_get_size(o, "descriptors", &m->descriptors)) < 0 ||
                    (r = json_get_size(o, "firstDescriptor", &m->first_descriptor)) < 0 ||
                    (r = json_get_size(o, "bytesLoaded", &m->bytes_loaded)) < 0)
                        return r;
                return json_get_size(o, "copyUSec", &m->copy_usec);
        case WORKER_PROBED:
                return json_get_size(o, "files", &m->files);
        case WORKER_ERROR:
                return parse_error(o, name, m);
        default:
                return 0;
        }
}

int worker_message_parse(struct json_object *object, FdSet *fds, const char *name, WorkerMessage *ret,
                         const char **ret_reason)
{
        _cleanup_worker_message_ WorkerMessage m = {.fds = *fds};
        const char *event;
        int r;

        *fds = (FdSet){};
        r = json_get_string(object, "event", &event);
        if (r < 0) {
                *ret_reason = "a message without an event";
                return -EBADMSG;
        }
        m.event = worker_event_from_string(event);
        if (m.event < 0) {
                *ret_reason = "an unknown event";
                return -EBADMSG;
        }
        r = parse_event(object, name, &m);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                *ret_reason = "an event with missing or unacceptable fields";
                return -EBADMSG;
        }
        if ((m.event == WORKER_FILES) != (m.fds.n > 0)) {
                *ret_reason = m.event == WORKER_FILES ? "files without descriptors"
                                                      : "descriptors where none are due";
                return -EBADMSG;
        }
        *ret = m;
        m = (WorkerMessage){};
        return 0;
}
