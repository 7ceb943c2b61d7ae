/* The events' identifiers, levels and fields. The identifiers are random and never change nor come back with
 * another meaning: people's filters name them. */
#include "daemon/events.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

typedef struct EventType {
        const char *message_id;
        int level;
} EventType;

static const EventType event_types[_EVENT_KIND_MAX] = {
        [EVENT_MANAGER_STARTED] = {"08c1918e32884a40955801fa10b05fb7", LOG_INFO},
        [EVENT_MANAGER_STOPPED] = {"e597572920014aaca89f3a2243cef018", LOG_INFO},
        [EVENT_CACHE_REQUESTED] = {"03e364c2a10b40349038793198b9e9ba", LOG_INFO},
        [EVENT_CACHE_ADMITTED] = {"e9faed28523947879a0dbff9ad8b3496", LOG_INFO},
        [EVENT_CACHE_REFUSED] = {"bbd92a8b8aa549ec990f0d060eee3719", LOG_WARNING},
        [EVENT_CACHE_LOADED] = {"b0bc1cf4f7a74c1b9b565004e731247a", LOG_INFO},
        [EVENT_CACHE_READY] = {"f646e04a8a9b4ab69e3cca9fd4763f13", LOG_INFO},
        [EVENT_CACHE_REUSED] = {"9804aacfa10d434eb05861419a55b545", LOG_INFO},
        [EVENT_CACHE_FAILED] = {"f71003988336445190f2799f13373729", LOG_ERR},
        [EVENT_CACHE_STOPPED] = {"670f8185bc1e40e7b8fb4ae6636d630a", LOG_INFO},
        [EVENT_CACHE_EVICTED] = {"dc996c24b8184923850ce27d15bd0eb0", LOG_NOTICE},
        [EVENT_CACHE_LOST] = {"c7391be0182e4e1c972fef9ac3c0250a", LOG_WARNING},
        [EVENT_LEASE_ACQUIRED] = {"0bb4fecfb228416ca21bd9c7ac90b05c", LOG_INFO},
        [EVENT_LEASE_RELEASED] = {"36d0f0466e514aa6baf74a3d16f4aebc", LOG_INFO},
        [EVENT_LEASE_REFUSED] = {"e7f9ce56f9be4dc28cc48b63356fb32f", LOG_WARNING},
        [EVENT_WORKER_DIED] = {"ffeec144de5c44879c3b88392a363624", LOG_WARNING},
        [EVENT_QUOTA_CHANGED] = {"13fef536a571447cb9bae5211b76f5c1", LOG_NOTICE},
        [EVENT_CONFIGURATION_INVALID] = {"5985c2b389de44949676aba26a7cf683", LOG_ERR},
};

const char *event_message_id(EventKind kind)
{
        if (kind < 0 || kind >= _EVENT_KIND_MAX)
                return NULL;
        return event_types[kind].message_id;
}

int event_level(EventKind kind)
{
        if (kind < 0 || kind >= _EVENT_KIND_MAX)
                return LOG_ERR;
        return event_types[kind].level;
}

static int _printf_(2, 3) append(char ***l, const char *format, ...)
{
        _cleanup_free_ char *field = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(&field, format, ap);
        va_end(ap);
        if (r < 0)
                return r;
        return strv_append(l, field);
}

int event_fields_format(const EventFields *f, bool privileged, char ***ret)
{
        _cleanup_strv_ char **l = NULL;
        int r = 0;

        if (f->cache)
                r = append(&l, "ILOADER_CACHE=%s", f->cache);
        /* journalctl -u believes this field from root only. */
        if (r >= 0 && f->cache && privileged)
                r = append(&l, "OBJECT_SYSTEMD_UNIT=iloader@%s.service", f->cache);
        if (r >= 0 && f->source)
                r = append(&l, "ILOADER_SOURCE=%s", f->source);
        if (r >= 0 && f->bytes != UINT64_MAX)
                r = append(&l, "ILOADER_BYTES=%" PRIu64, f->bytes);
        if (r >= 0 && f->duration != USEC_INFINITY)
                r = append(&l, "ILOADER_DURATION_USEC=%" PRIu64, f->duration);
        if (r >= 0 && f->pid > 0)
                r = append(&l, "ILOADER_PID=%" PRId64, (int64_t) f->pid);
        if (r >= 0 && f->uid != (uid_t) -1)
                r = append(&l, "ILOADER_UID=%" PRIu64, (uint64_t) f->uid);
        if (r >= 0 && f->reason)
                r = append(&l, "ILOADER_REASON=%s", f->reason);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(l);
        return 0;
}

void event_log(EventKind kind, const EventFields *fields, const char *format, ...)
{
        static const EventFields none = EVENT_FIELDS_INIT;
        _cleanup_strv_ char **l = NULL;
        _cleanup_free_ char *message = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = text_vformat(&message, format, ap);
        va_end(ap);
        /* Without memory, what can still be said is said: the event itself, or its message without the
         * fields. */
        if (r >= 0)
                (void) event_fields_format(fields ?: &none, geteuid() == 0, &l);
        log_entry(event_level(kind), event_message_id(kind), l, "%s",
                  message ?: "(no memory for the message)");
}
