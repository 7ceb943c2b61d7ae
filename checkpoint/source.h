/* A checkpoint's directory, opened below the root directory of whoever named it. */
#pragma once

#include "checkpoint/selection.h"

typedef struct Source {
        int root_fd;     /* not owned */
        int fd;          /* the directory, O_RDONLY|O_DIRECTORY; owned */
        char *path;      /* absolute and normal, as it was named; owned */
        char *real_path; /* with links resolved below the root, for comparing with the view; owned */
} Source;
void source_done(Source *s);
#define _cleanup_source_ _cleanup_(source_done)

/* path is absolute. */
int source_open(int root_fd, const char *path, Source *ret, SourceFault *ret_fault);

/* Opens one selected file for reading, O_NONBLOCK cleared, links followed below the root; checks that it is a
 * regular file of the identity that was selected (SOURCE_CHANGED where not). */
int source_open_file(const Source *s, const SelectedFile *file, int *ret_fd, SourceFault *ret_fault);
/* Stats it anew by path: after the copy, for the second look. */
int source_check_file(const Source *s, const SelectedFile *file, SourceFault *ret_fault);
/* The path with links resolved below root_fd, absolute in that root: for any existing path. *ret is owned. */
int source_real_path(int root_fd, const char *path, char **ret);
