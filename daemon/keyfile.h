/* The syntax of configuration files, systemd.syntax(7): sections, KEY=value, comments, lines continued by a
 * backslash. What keys mean is daemon/config's. */
#pragma once

#include <stddef.h>

struct ConfigFault;

/* Called for each assignment, and with key and value NULL where a section begins. line is that of the file,
 * the first one of a continued line. A negative errno ends the reading; the handler sets the fault then. */
typedef int (*KeyfileHandler)(const char *section, const char *key, const char *value, unsigned line,
                              void *userdata);

/* Reads a file's n bytes; path is for the fault only. -EINVAL with the fault set, the handler's error, or
 * -ENOMEM. */
int keyfile_parse(const char *path, const char *text, size_t n, KeyfileHandler handler, void *userdata,
                  struct ConfigFault *ret_fault);
