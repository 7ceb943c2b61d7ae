/* The journal's vocabulary: one MESSAGE_ID per event that an operator asks about, explained in
 * units/iloader.catalog. systemd.journal-fields(7), catalog: systemd "Message Catalog Developer
 * Documentation". */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

typedef enum EventKind {
        EVENT_MANAGER_STARTED,
        EVENT_MANAGER_STOPPED,
        EVENT_CACHE_REQUESTED, /* by whom, source */
        EVENT_CACHE_ADMITTED,  /* with which figures */
        EVENT_CACHE_REFUSED,
        EVENT_CACHE_LOADED, /* bytes, rate */
        EVENT_CACHE_READY,
        EVENT_CACHE_REUSED,
        EVENT_CACHE_FAILED,
        EVENT_CACHE_STOPPED,
        EVENT_CACHE_EVICTED,
        EVENT_CACHE_LOST, /* found dead after a manager's death */
        EVENT_LEASE_ACQUIRED,
        EVENT_LEASE_RELEASED,
        EVENT_LEASE_REFUSED,
        EVENT_WORKER_DIED,
        EVENT_QUOTA_CHANGED,
        EVENT_CONFIGURATION_INVALID,
        _EVENT_KIND_MAX,
        _EVENT_KIND_INVALID = -22,
} EventKind;

/* 32 hexadecimal digits; the catalog has an entry for each (a test compares). */
const char *event_message_id(EventKind kind);
int event_level(EventKind kind);

typedef struct EventFields {
        const char
                *cache; /* ILOADER_CACHE=; where we are root OBJECT_SYSTEMD_UNIT=iloader@NAME.service too */
        const char *source; /* ILOADER_SOURCE= */
        uint64_t bytes;     /* ILOADER_BYTES=, UINT64_MAX: left out */
        usec_t duration;    /* ILOADER_DURATION_USEC=, USEC_INFINITY: left out */
        pid_t pid;          /* ILOADER_PID=, 0: left out */
        uid_t uid;          /* ILOADER_UID=, (uid_t) -1: left out */
        const char *reason; /* ILOADER_REASON= */
} EventFields;
#define EVENT_FIELDS_INIT                                                                                    \
        {                                                                                                    \
                .bytes = UINT64_MAX, .duration = UINT64_MAX, .uid = (uid_t) -1                               \
        }

/* The fields as "KEY=value" strings, *ret is an owned vector; privileged: with OBJECT_SYSTEMD_UNIT=. */
int event_fields_format(const EventFields *fields, bool privileged, char ***ret);

/* Logs the event; fields may be NULL. */
void event_log(EventKind kind, const EventFields *fields, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
