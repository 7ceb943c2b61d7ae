/* Events to the manager, one function each: wire/worker-protocol.h. All return 0, -ENOTCONN where the manager
 * has gone, or another errno. */
#pragma once

#include <stdint.h>

#include "base/cleanup.h"
#include "daemon/worker/control.h"
#include "daemon/worker/failure.h"

typedef struct ReportSelected {
        const char *source;
        const char *fingerprint;
        uint64_t files, bytes, large_files, pack_bytes, buffer_bytes;
} ReportSelected;

int report_selected(Control *c, const ReportSelected *s);
/* Left out without an error where the manager hasn't read the last one yet. */
int report_progress(Control *c, uint64_t bytes_loaded);
/* The manifest, then the numbers first_fd .. first_fd + n - 1, in frames of WORKER_FDS_PER_FRAME. */
int report_files(Control *c, int manifest_fd, int first_fd, size_t n);
int report_loaded(Control *c, uint64_t descriptors, int first_descriptor, uint64_t bytes_loaded,
                  usec_t copy_usec);
/* An event without fields: "holding", "published", "removed". */
int report_event(Control *c, const char *event);
int report_probed(Control *c, uint64_t files);
int report_error(Control *c, const Failure *f);
