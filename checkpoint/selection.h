/* Which files of a source directory belong to the checkpoint, and what is known of each. Regular files and
 * symbolic links to regular files, in subdirectories too; in byte order of their relative paths. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* What makes one file the one that was read: compared again after the copy. */
typedef struct FileIdentity {
        uint64_t size;
        int64_t mtime_ns, ctime_ns; /* since the epoch */
        uint64_t device, inode;
} FileIdentity;
bool file_identity_equal(const FileIdentity *a, const FileIdentity *b);
struct stat;
FileIdentity file_identity_from_stat(const struct stat *st);

typedef struct SelectedFile {
        char *path; /* relative, owned */
        FileIdentity identity;
} SelectedFile;

typedef struct Selection {
        SelectedFile *files;
        size_t n_files;
        size_t allocated;
        uint64_t bytes;
} Selection;
void selection_done(Selection *s);
#define _cleanup_selection_ _cleanup_(selection_done)

/* Why a source was refused; path (owned, relative to the source or the source itself) and message (owned) are
 * set with every failure of this module but -ENOMEM. */
typedef enum SourceFaultKind {
        SOURCE_INVALID, /* missing, unreadable, empty, no directory, dangling link, socket, device, loop */
        SOURCE_CHANGED,
        SOURCE_TOO_MANY, /* files; maximum says how many */
        _SOURCE_FAULT_MAX,
        _SOURCE_FAULT_INVALID = -22,
} SourceFaultKind;
typedef struct SourceFault {
        SourceFaultKind kind;
        char *path;
        char *message;
        uint64_t maximum;
        uint64_t files; /* SOURCE_TOO_MANY: so many were counted */
} SourceFault;
void source_fault_done(SourceFault *f);
#define _cleanup_source_fault_ _cleanup_(source_fault_done)
/* Fills a fault (NULL: nothing is kept; the first one stands) and returns what the function then fails with:
 * -EINVAL, -ESTALE or -E2BIG by kind, or -ENOMEM. %m in format is errno's text. */
int source_fault_set(SourceFault *f, SourceFaultKind kind, const char *path, const char *format, ...)
        _printf_(4, 5);
/* The same with "source 'SOURCE': 'PATH' " before the text, both made fit for people. path NULL: the source
 * itself. */
int source_fault_refuse(SourceFault *f, SourceFaultKind kind, const char *source, const char *path,
                        const char *format, ...) _printf_(5, 6);

typedef struct SelectionOptions {
        char *const *patterns; /* NULL: all; not owned */
        char *const *excludes; /* NULL: the default exclusions; not owned; an empty vector excludes nothing */
        uint64_t max_files;
} SelectionOptions;

/* Names that begin so are the view's own: a file that has one in its path is refused where it is selected. */
#define SELECTION_RESERVED_PREFIX ".iloader-"

/* The default exclusions: download debris and repository metadata. NULL-terminated, static. */
extern const char *const selection_default_excludes[];

/* Whether a relative path matches a shell pattern (fnmatch(3), '*' matches '/' too): against the whole path
 * and, for patterns without '/', against the last component; a pattern that ends in '/' matches a directory
 * and all below it. A path that ends in '/' is a directory's. */
bool selection_match(const char *pattern, const char *path);

/* Walks the tree. Names that sort are bytes; directories are opened one level at a time below source.root
 * (never through magic links); depth and number of entries are bounded. Fills ret.
 *
 * Exclusions match files and directories (an excluded directory isn't looked into); patterns match files, and
 * with a '/' at their end directories. Symbolic links lead on to regular files and to directories, wherever
 * below the root those are. What neither is excluded nor readable as a regular file is refused if it is
 * selected: dangling links, sockets, pipes, devices, files without read permission; and a directory that
 * contains itself always. Nothing but directories is opened. */
struct Source;
int selection_read(const struct Source *source, const SelectionOptions *options, Selection *ret,
                   SourceFault *ret_fault);
