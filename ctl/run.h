/* What run makes of the command it is given. */
#pragma once

#include "base/cleanup.h"

#define RUN_PLACEHOLDER "{model}"
#define RUN_VARIABLE    "ILOADER_MODEL_PATH"

/* Every "{model}" in every argument replaced by path, in one pass: what the path itself holds is not looked
 * at. *ret is an owned vector. */
int run_arguments(char *const *command, const char *path, char ***ret);

/* Executes without ever involving a shell: names without '/' are looked for in $PATH as execvp(3) does, but a
 * file that has no format of its own is not handed to one. Returns only on failure: -ENOENT where nothing was
 * found, else why what was found cannot be executed. */
int run_execute(char *const *argv);
