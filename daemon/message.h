/* What a worker says (wire/worker-protocol.h), checked into a struct. A worker runs with its owner's rights:
 * types, ranges and texts are bounded here; what the figures mean in their place is the reader's to check. */
#pragma once

#include "base/fd.h"
#include "base/json.h"
#include "daemon/fault.h"

#define MESSAGE_TEXT_MAX 8192U

typedef enum WorkerEvent {
        WORKER_SELECTED,
        WORKER_PROGRESS,
        WORKER_FILES,
        WORKER_LOADED,
        WORKER_HOLDING,
        WORKER_PUBLISHED,
        WORKER_PROBED,
        WORKER_REMOVED,
        WORKER_ERROR,
        _WORKER_EVENT_MAX,
        _WORKER_EVENT_INVALID = -EINVAL,
} WorkerEvent;

const char *worker_event_to_string(WorkerEvent e);

typedef struct WorkerMessage {
        WorkerEvent event;
        /* selected */
        char *source, *fingerprint;
        uint64_t files, bytes, large_files, pack_bytes, buffer_bytes;
        /* progress, loaded */
        uint64_t bytes_loaded, copy_usec;
        /* files, loaded */
        uint64_t first, descriptors, first_descriptor;
        FdSet fds; /* may be taken from */
        /* error */
        Fault fault;
} WorkerMessage;

void worker_message_done(WorkerMessage *m);
#define _cleanup_worker_message_ _cleanup_(worker_message_done)

/* Takes the descriptors in every case. name: the cache's, for faults. -EBADMSG with *ret_reason (static)
 * where it is no acceptable message. */
int worker_message_parse(struct json_object *object, FdSet *fds, const char *name, WorkerMessage *ret,
                         const char **ret_reason);
