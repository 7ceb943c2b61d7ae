/* What is in a view: writing it, removing what doesn't belong, comparing. Part of checkpoint/view; all of it
 * works below one directory descriptor and through no link. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "checkpoint/view.h"

typedef struct ViewEntry {
        char *path;         /* owned */
        uint64_t size;      /* of a small file */
        uint64_t offset;    /* in the pack */
        int64_t descriptor; /* of a large file; -1: small */
} ViewEntry;

typedef struct ViewTree {
        const ViewOptions *options; /* not owned */
        ViewEntry *entries;         /* ascending by path */
        size_t n, allocated;
        uint64_t small_bytes;
        const char *pack; /* mapped; NULL where there is none */
        uint64_t pack_size;
        mode_t directory_mode;
        bool replace;  /* into a view that is there: by renaming over it */
        bool fix_mode; /* the file system or the umask gives new files another mode, or another group */
        bool fix_group;
} ViewTree;

/* Reads the manifest and maps the pack. */
int view_tree_load(ViewTree *t, const ViewOptions *options, int manifest_fd, int pack_fd,
                   ViewFault *ret_fault);
void view_tree_done(ViewTree *t);
#define _cleanup_view_tree_ _cleanup_(view_tree_done)

/* Gives a directory or file of ours the view's permissions. */
int view_tree_adjust(const ViewTree *t, int fd, mode_t mode);
/* Writes every entry. The marker is there already: what new files look like is learnt from it. */
int view_tree_write(ViewTree *t, int directory_fd, ViewFault *ret_fault);
/* Removes all but the marker and what t (NULL: nothing) holds. */
int view_tree_prune(const ViewTree *t, int directory_fd);
/* Opens every file that the manifest has. */
int view_tree_probe(int directory_fd, const char *path, int manifest_fd, uint64_t *ret_files,
                    ViewFault *ret_fault);
