/* The view: the directory that engines read. Links to /proc/PID/fd/N for large files, real read-only files for small
 * ones. Made in a temporary sibling and renamed into place, so that it appears complete; published again by renaming
 * each new link over the old one, so that bind mounts and open directories stay good. A file ".iloader-view" in it
 * says that it is ours, of which name and which owner; nothing without it is ever touched. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define VIEW_MARKER ".iloader-view"

typedef struct ViewOptions {
        const char *name;   /* of the cache */
        const char *path;   /* absolute and normal */
        pid_t pid;          /* holder of the descriptors */
        mode_t mode;        /* of small files (0400, 0440, 0444); directories get x where it has r, and owner rwx */
        gid_t gid;          /* (gid_t) -1: unchanged */
        unsigned threads;   /* that write small files; 0: chosen */
} ViewOptions;

typedef enum ViewFaultKind {
        VIEW_CONFLICT,  /* something that is not ours, or of another name, is there; or it overlaps the source */
        VIEW_FAILED,    /* could not be made: message says what */
        _VIEW_FAULT_MAX,
        _VIEW_FAULT_INVALID = -22,
} ViewFaultKind;
typedef struct ViewFault {
        ViewFaultKind kind;
        char *path;    /* owned */
        char *message; /* owned */
} ViewFault;
void view_fault_done(ViewFault *f);
#define _cleanup_view_fault_ _cleanup_(view_fault_done)

/* Whether a view of this name may be published at path, given the source's resolved path: nothing there, or our own
 * view of this name; neither inside nor around the source. Looks only. */
int view_check(int root_fd, const char *name, const char *path, const char *source_real_path, ViewFault *ret_fault);
/* Publishes (or publishes again) from the manifest and the pack (-EBADF where there is none). On failure what was
 * made is removed. */
int view_publish(int root_fd, const ViewOptions *options, int manifest_fd, int pack_fd, ViewFault *ret_fault);
/* Opens every file of the view by its path and compares size, and for links device and inode, with the manifest.
 * *ret_files counts them. */
int view_probe(int root_fd, const char *path, int manifest_fd, uint64_t *ret_files, ViewFault *ret_fault);
/* Removes our view of this name, and nothing else: 1 removed, 0 there was none; VIEW_CONFLICT where it is not ours. */
int view_remove(int root_fd, const char *name, const char *path, ViewFault *ret_fault);
