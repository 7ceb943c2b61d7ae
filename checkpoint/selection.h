/* Which files of a source directory belong to the checkpoint, and what is known of each. Regular files and symbolic
 * links to regular files, in subdirectories too; in byte order of their relative paths. */
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

/* Why a source was refused; path (owned, relative to the source or the source itself) and message (owned) are set
 * with every failure of this module but -ENOMEM. */
typedef enum SourceFaultKind {
        SOURCE_INVALID,    /* missing, unreadable, empty, no directory, dangling link, socket, device, loop */
        SOURCE_CHANGED,
        SOURCE_TOO_MANY,   /* files; maximum says how many */
        _SOURCE_FAULT_MAX,
        _SOURCE_FAULT_INVALID = -22,
} SourceFaultKind;
typedef struct SourceFault {
        SourceFaultKind kind;
        char *path;
        char *message;
        uint64_t maximum;
} SourceFault;
void source_fault_done(SourceFault *f);
#define _cleanup_source_fault_ _cleanup_(source_fault_done)
int source_fault_set(SourceFault *f, SourceFaultKind kind, const char *path, const char *format, ...) _printf_(4, 5);

typedef struct SelectionOptions {
        char *const *patterns; /* NULL: all; not owned */
        char *const *excludes; /* NULL: the default exclusions; not owned; an empty vector excludes nothing */
        uint64_t max_files;
} SelectionOptions;

/* The default exclusions: download debris and repository metadata. NULL-terminated, static. */
extern const char *const selection_default_excludes[];

/* Whether a relative path matches a shell pattern (fnmatch(3)): against the whole path and, for patterns without '/',
 * against the last component; a pattern that ends in '/' matches a directory and all below it. */
bool selection_match(const char *pattern, const char *path);

/* Walks the tree. Names that sort are bytes; directories are opened one level at a time below source.root (never
 * through magic links); depth and number of entries are bounded. Fills ret. */
struct Source;
int selection_read(const struct Source *source, const SelectionOptions *options, Selection *ret, SourceFault *ret_fault);
