/* Names and paths: what iloader accepts, and opening below a root directory without being led out of it. */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Longest cache name, in bytes. */
#define CACHE_NAME_MAX 96U

/* An ASCII letter or digit, then ASCII letters, digits, '.', '_', '-'; no "..", at most 96 characters. On
 * refusal *ret_reason (may be NULL) says why, as a static string that completes "name 'x' ". */
bool cache_name_is_valid(const char *name, const char **ret_reason);

/* Whether the path is absolute and below PATH_MAX. */
bool path_is_absolute(const char *path);
/* Whether relative: not empty, no leading '/', no "." or ".." or empty component. */
bool path_is_normal_relative(const char *path);

/* Purely by text: "//" and "/./" removed, trailing '/' removed, ".." resolved. Absolute paths only; *ret is
 * owned. */
int path_normalize(const char *path, char **ret);
/* Makes a path absolute against the working directory and normalizes it, without following links. */
int path_make_absolute(const char *path, char **ret);
/* dir + "/" + name. */
int path_join(const char *dir, const char *name, char **ret);
/* The parent directory of an absolute normal path, and a pointer to its last component (into path). */
int path_split(const char *path, char **ret_parent, const char **ret_name);
/* Whether an absolute normal path is the same as, or below, another: by components. */
bool path_is_below(const char *path, const char *ancestor);

/* openat2(rootfd, path, RESOLVE_IN_ROOT|RESOLVE_NO_MAGICLINKS): absolute links and ".." stay below rootfd.
 * Where the system call is denied or missing (seccomp's EPERM, ENOSYS), resolves component by component with
 * the same result. Returns a close-on-exec descriptor or -errno. flags are open(2)'s, mode counts with
 * O_CREAT and O_TMPFILE. */
int path_open_in_root(int rootfd, const char *path, int flags, mode_t mode);
/* The fallback alone, so that it is tested where openat2 works. */
int path_open_in_root_walk(int rootfd, const char *path, int flags, mode_t mode);

/* mkdir -p below rootfd for an absolute path, each missing directory with mode (less the umask); existing
 * ones are left as they are. Opens the last one O_PATH|O_DIRECTORY. *ret_created (may be NULL) counts what
 * was made. */
int path_make_directories_in_root(int rootfd, const char *path, mode_t mode, unsigned *ret_created);

/* The names in a directory that wanted() says yes to, in byte order, never "." and ".."; *ret is owned. dirfd
 * may be O_PATH and keeps its offset. -E2BIG where there are more than max. */
int path_list_directory(int dirfd, bool (*wanted)(const char *name), size_t max, char ***ret);

/* Removes a file or a tree below dirfd, never following links, at most max entries in all (-E2BIG past it).
 * -ENOENT where there is none. */
int path_remove_tree(int dirfd, const char *name, uint64_t max);

/* A path's bytes as text for people: control characters and invalid UTF-8 as \xNN. *ret is owned. */
int path_escape(const char *path, char **ret);
