/* The file that says that a directory is a view of ours. Part of checkpoint/view. */
#pragma once

#include <sys/types.h>

#include "base/cleanup.h"

/* Writes it into an empty directory. */
int view_marker_write(int directory_fd, const char *name, mode_t mode);
/* 0: the directory is ours, of this name. -ENODATA: it has no marker. -EEXIST: its marker is no regular file,
 * not of the effective uid or root, malformed, or says another uid; *ret_name NULL. -EREMCHG: it is ours, of
 * another name, which is then *ret_name (owned). Other errors as they come. */
int view_marker_check(int directory_fd, const char *name, char **ret_name);
/* 1 where nothing is in the directory, or only a marker that was never written to; else 0. */
int view_marker_directory_is_empty(int directory_fd);
