/* See report.h. */
#include "daemon/worker/report.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "wire/worker-protocol.h"

#define REPORT_MESSAGE_MAX 4096U

static int event_new(const char *event, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        r = json_add_string(o, "event", event);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

int report_selected(Control *c, const ReportSelected *s)
{
        _cleanup_json_ struct json_object *o = NULL;
        const struct {
                const char *key;
                uint64_t value;
        } figures[] = {
                {"files", s->files},
                {"bytes", s->bytes},
                {"largeFiles", s->large_files},
                {"packBytes", s->pack_bytes},
                {"bufferBytes", s->buffer_bytes},
        };
        int r;

        r = event_new("selected", &o);
        if (r < 0)
                return r;
        r = json_add_path(o, "source", s->source);
        if (r < 0)
                return r;
        r = json_add_string(o, "fingerprint", s->fingerprint);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTSOF(figures); i++) {
                r = json_add_size(o, figures[i].key, figures[i].value);
                if (r < 0)
                        return r;
        }
        return control_send(c, TAKE_PTR(o), NULL, 0);
}

int report_progress(Control *c, uint64_t bytes_loaded)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        if (!control_is_idle(c))
                return 0;
        r = event_new("progress", &o);
        if (r < 0)
                return r;
        r = json_add_size(o, "bytesLoaded", bytes_loaded);
        if (r < 0)
                return r;
        return control_offer(c, TAKE_PTR(o));
}

int report_files(Control *c, int manifest_fd, int first_fd, size_t n)
{
        int fds[WORKER_FDS_PER_FRAME];

        for (size_t first = 0; first < n + 1;) {
                _cleanup_json_ struct json_object *o = NULL;
                size_t n_fds;
                int r;

                for (n_fds = 0; n_fds < ELEMENTSOF(fds) && first + n_fds < n + 1; n_fds++)
                        fds[n_fds] = first + n_fds == 0 ? manifest_fd : first_fd + (int) (first + n_fds) - 1;
                r = event_new("files", &o);
                if (r < 0)
                        return r;
                r = json_add_size(o, "first", first);
                if (r < 0)
                        return r;
                r = control_send(c, TAKE_PTR(o), fds, n_fds);
                if (r < 0)
                        return r;
                first += n_fds;
        }
        return 0;
}

int report_loaded(Control *c, uint64_t descriptors, int first_descriptor, uint64_t bytes_loaded,
                  usec_t copy_usec)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = event_new("loaded", &o);
        if (r < 0)
                return r;
        r = json_add_size(o, "descriptors", descriptors);
        if (r < 0)
                return r;
        r = json_add_int(o, "firstDescriptor", first_descriptor);
        if (r < 0)
                return r;
        r = json_add_size(o, "bytesLoaded", bytes_loaded);
        if (r < 0)
                return r;
        r = json_add_size(o, "copyUSec", copy_usec);
        if (r < 0)
                return r;
        return control_send(c, TAKE_PTR(o), NULL, 0);
}

int report_event(Control *c, const char *event)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = event_new(event, &o);
        if (r < 0)
                return r;
        return control_send(c, TAKE_PTR(o), NULL, 0);
}

int report_probed(Control *c, uint64_t files)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = event_new("probed", &o);
        if (r < 0)
                return r;
        r = json_add_size(o, "files", files);
        if (r < 0)
                return r;
        return control_send(c, TAKE_PTR(o), NULL, 0);
}

/* Messages quote paths, whose bytes are anything and many: what is sent is UTF-8 of a length that the manager
 * takes. */
static int add_message(struct json_object *o, const char *message)
{
        _cleanup_free_ char *text = NULL;
        size_t n;
        int r;

        r = utf8_approximate(message, &text);
        if (r < 0)
                return r;
        n = strlen(text);
        if (n > REPORT_MESSAGE_MAX) {
                for (n = REPORT_MESSAGE_MAX; n > 0 && ((unsigned char) text[n] & 0xc0) == 0x80; n--)
                        ;
                text[n] = '\0';
        }
        return json_add_string(o, "message", text);
}

int report_error(Control *c, const Failure *f)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        r = event_new("error", &o);
        if (r < 0)
                return r;
        r = json_add_string(o, "error", failure_kind_to_string(f->kind));
        if (r < 0)
                return r;
        r = add_message(o, f->message ? f->message : "out of memory");
        if (r < 0)
                return r;
        if (f->path) {
                r = json_add_path(o, "path", f->path);
                if (r < 0)
                        return r;
        }
        if (f->files != UINT64_MAX) {
                r = json_add_size(o, "files", f->files);
                if (r < 0)
                        return r;
        }
        if (f->maximum != UINT64_MAX) {
                r = json_add_size(o, "maximum", f->maximum);
                if (r < 0)
                        return r;
        }
        return control_send(c, TAKE_PTR(o), NULL, 0);
}
