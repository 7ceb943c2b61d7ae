/* Streaming a manifest. */
#include "daemon/manifest-stream.h"

#include "base/log.h"
#include "checkpoint/manifest.h"
#include "daemon/manager.h"

#define BATCH_FILES 128U
/* Without "more" the whole list is one message, which must be built in memory. */
#define SINGLE_MAX 4096U

typedef struct ManifestStream {
        struct ManifestStream *next;
        Cache *cache;
        VarlinkCall *call;
        ManifestReader *reader;
        sd_event_source *source;
} ManifestStream;

static void stream_free(ManifestStream *s)
{
        for (ManifestStream **p = &s->cache->streams; *p; p = &(*p)->next)
                if (*p == s) {
                        *p = s->next;
                        break;
                }
        sd_event_source_disable_unref(s->source);
        varlink_call_set_drained_handler(s->call, NULL, NULL);
        varlink_call_set_gone_handler(s->call, NULL, NULL);
        manifest_reader_free(s->reader);
        varlink_call_unref(s->call);
        free(s);
}

static int fail(Cache *c, VarlinkCall *call, const char *error, const char *message)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        int r;

        if (!o)
                return -ENOMEM;
        r = json_add_string(o, "name", cache_name(c));
        if (r >= 0)
                r = json_add_string(o, "message", message);
        if (r >= 0)
                r = json_add_string(o, "state", manager_cache_state_to_string(c->state));
        return r < 0 ? r : varlink_call_error(call, error, TAKE_PTR(o));
}

/* Reads up to max files into {"files": […]}. 1: there may be more; 0: that was the end. */
static int read_batch(ManifestReader *reader, size_t max, struct json_object **ret)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();
        struct json_object *files = json_object_new_array();
        int r;

        r = o && files ? 0 : -ENOMEM;
        if (r < 0) {
                json_object_put(files);
                return r;
        }
        r = json_add(o, "files", files);
        for (size_t n = 0; r >= 0 && n < max; n++) {
                _cleanup_manifest_file_ ManifestFile file = {};
                struct json_object *entry;

                r = manifest_reader_next(reader, &file);
                if (r <= 0)
                        break;
                r = manifest_file_to_json(&file, &entry);
                if (r < 0)
                        break;
                if (json_object_array_add(files, entry) < 0) {
                        json_object_put(entry);
                        r = -ENOMEM;
                        break;
                }
                r = 1;
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return r;
}

/* 1: go on; 0: it is over. */
static int stream_step(ManifestStream *s)
{
        struct json_object *o;
        int r;

        r = read_batch(s->reader, BATCH_FILES, &o);
        if (r < 0) {
                (void) log_warning(r, "Cannot read the manifest of cache '%s': %m", cache_name(s->cache));
                (void) fail(s->cache, s->call, MANAGER_ERROR_CACHE_NOT_READY, "its manifest cannot be read");
                return 0;
        }
        if (r == 0) {
                (void) varlink_call_reply(s->call, o);
                return 0;
        }
        return varlink_call_notify(s->call, o) < 0 ? 0 : 1;
}

static int on_step(sd_event_source *source, void *userdata)
{
        ManifestStream *s = userdata;

        if (stream_step(s) == 0) {
                stream_free(s);
                return 0;
        }
        /* One batch at a turn. Where the client is slow the next one waits until it has read this one. */
        if (varlink_call_queued(s->call) == 0 && sd_event_source_set_enabled(source, SD_EVENT_ONESHOT) < 0)
                stream_free(s);
        return 0;
}

static void on_drained(_unused_ VarlinkCall *call, void *userdata)
{
        ManifestStream *s = userdata;

        if (sd_event_source_set_enabled(s->source, SD_EVENT_ONESHOT) < 0)
                stream_free(s);
}

static void on_gone(_unused_ VarlinkCall *call, void *userdata)
{
        stream_free(userdata);
}

static int answer_whole(Cache *c, VarlinkCall *call)
{
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        if (c->files > SINGLE_MAX) {
                o = json_object_new_object();
                if (!o)
                        return -ENOMEM;
                if ((r = json_add_string(o, "limit", "files of one reply")) < 0 ||
                    (r = json_add_size(o, "maximum", SINGLE_MAX)) < 0 ||
                    (r = json_add_string(
                             o, "message",
                             "the list of files is too long for one reply: call Manifest with \"more\"")) < 0)
                        return r;
                return varlink_call_error(call, MANAGER_ERROR_LIMIT_EXCEEDED, TAKE_PTR(o));
        }
        r = manifest_reader_new(cache_manifest_fd(c), &reader);
        if (r < 0)
                return r;
        r = read_batch(reader, SINGLE_MAX + 1, &o);
        if (r < 0)
                return r;
        return varlink_call_reply(call, TAKE_PTR(o));
}

int manifest_stream_begin(Cache *c, VarlinkCall *call)
{
        ManifestStream *s;
        int r;

        if (!varlink_call_wants_more(call))
                return answer_whole(c, call);
        s = malloc(sizeof(*s));
        if (!s)
                return -ENOMEM;
        *s = (ManifestStream){.cache = c};
        r = manifest_reader_new(cache_manifest_fd(c), &s->reader);
        if (r < 0) {
                free(s);
                return r;
        }
        r = sd_event_add_defer(c->manager->event, &s->source, on_step, s);
        if (r < 0) {
                manifest_reader_free(s->reader);
                free(s);
                return r;
        }
        s->call = varlink_call_ref(call);
        varlink_call_set_drained_handler(call, on_drained, s);
        varlink_call_set_gone_handler(call, on_gone, s);
        s->next = c->streams;
        c->streams = s;
        return 0;
}

void manifest_streams_abort(Cache *c)
{
        while (c->streams) {
                (void) fail(c, c->streams->call, MANAGER_ERROR_CACHE_NOT_READY, "the cache is being stopped");
                stream_free(c->streams);
        }
}
