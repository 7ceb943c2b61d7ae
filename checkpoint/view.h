/* The view: the directory that engines read. Links to /proc/PID/fd/N for large files, real read-only files
 * for small ones. Made in a temporary sibling (".NAME.iloader-new") and renamed into place, so that it
 * appears complete; published again by renaming each new link over the old one, so that bind mounts and open
 * directories stay good. A file ".iloader-view" in it says that it is ours, of which name and which owner:
 * {"iloaderView":1,"name":NAME,"uid":UID}. Nothing without it is ever touched, with one exception: an empty
 * directory that we own is taken over as it is, since it may be the target of a bind mount. Whatever else is
 * put into a view goes with its next publication. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define VIEW_MARKER ".iloader-view"

typedef struct ViewOptions {
        const char *name; /* of the cache */
        const char *path; /* absolute and normal */
        pid_t pid;        /* holder of the descriptors */
        mode_t mode; /* of small files (0400, 0440, 0444); directories get x where it has r, and owner rwx */
        gid_t gid;   /* (gid_t) -1: unchanged */
        bool has_reader; /* one user more may read, whatever mode and group say: by a list, acl(5) */
        uid_t reader;
        mode_t parent_mode; /* of missing parent directories, which are made: 0: as the view's own
                             * directories; (mode_t) -1: none is made, they must be there */
        unsigned threads;   /* that write small files; 0: chosen */
} ViewOptions;

typedef enum ViewFaultKind {
        VIEW_CONFLICT, /* something that is not ours, or of another name, is there; or it overlaps the source
                        */
        VIEW_FAILED,   /* could not be made: message says what */
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
/* Fills a fault (NULL: nothing is kept; the first one stands) with the text "view 'PATH': …" and returns
 * error, or -ENOMEM. error is negative; %m in format is its text. */
int view_fault_set(ViewFault *f, ViewFaultKind kind, int error, const char *path, const char *format, ...)
        _printf_(5, 6);

/* All that follow fail with a fault and -EEXIST (VIEW_CONFLICT) or another error (VIEW_FAILED); with -ENOMEM
 * alone there may be none. path is absolute. */

/* Whether a view of this name may be published at path, given the source's resolved path: nothing there, an
 * empty directory of ours, or our own view of this name; neither inside nor around the source; and what has
 * to be made can be made. Looks only. */
int view_check(int root_fd, const char *name, const char *path, const char *source_real_path,
               ViewFault *ret_fault);
/* Publishes (or publishes again) from the manifest and the pack (-EBADF where there is none). On failure what
 * was made is removed: of a view that was there before, the marked and empty directory is left. */
int view_publish(int root_fd, const ViewOptions *options, int manifest_fd, int pack_fd, ViewFault *ret_fault);
/* Opens every file of the view by its path and compares size, and for links device and inode, with the
 * manifest. *ret_files counts them. */
int view_probe(int root_fd, const char *path, int manifest_fd, uint64_t *ret_files, ViewFault *ret_fault);
/* Removes our view of this name, and nothing else: 1 removed, 0 there was none; VIEW_CONFLICT where it is not
 * ours. A directory that is a mount point, or whose parent isn't ours, is left empty. */
int view_remove(int root_fd, const char *name, const char *path, ViewFault *ret_fault);
