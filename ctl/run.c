#include "ctl/run.h"

#include <string.h>

#include "base/path.h"
#include "base/text.h"

#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"

static int replace_placeholder(const char *text, const char *path, char **ret)
{
        size_t n_placeholder = strlen(RUN_PLACEHOLDER), n_path = strlen(path), count = 0;
        const char *from = text, *hit;
        char *result, *to;

        for (hit = strstr(text, RUN_PLACEHOLDER); hit; hit = strstr(hit + n_placeholder, RUN_PLACEHOLDER))
                count++;
        result = to = malloc(strlen(text) + count * n_path + 1);
        if (!result)
                return -ENOMEM;
        while ((hit = strstr(from, RUN_PLACEHOLDER))) {
                to = mempcpy(to, from, (size_t) (hit - from));
                to = mempcpy(to, path, n_path);
                from = hit + n_placeholder;
        }
        (void) memcpy(to, from, strlen(from) + 1);
        *ret = result;
        return 0;
}

int run_arguments(char *const *command, const char *path, char ***ret)
{
        _cleanup_strv_ char **argv = NULL;
        size_t n = strv_length(command);
        int r;

        argv = calloc(n + 1, sizeof(char *));
        if (!argv)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                r = replace_placeholder(command[i], path, &argv[i]);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(argv);
        return 0;
}

/* One directory of $PATH, an empty one being the working directory. */
static int execute_in(const char *directory, size_t n, char *const *argv)
{
        _cleanup_free_ char *path = NULL;
        int r;

        r = text_format(&path, "%.*s%s%s", (int) n, directory, n > 0 ? "/" : "", argv[0]);
        if (r < 0)
                return r;
        (void) execv(path, argv);
        return -errno;
}

int run_execute(char *const *argv)
{
        const char *directories = getenv("PATH");
        int found = -ENOENT;

        if (strchr(argv[0], '/')) {
                (void) execv(argv[0], argv);
                return -errno;
        }
        if (!*argv[0])
                return -ENOENT;
        if (!directories)
                directories = PATH_DEFAULT;
        for (;;) {
                size_t n = strcspn(directories, ":");
                int r = execute_in(directories, n, argv);

                /* Something that cannot be executed is remembered, but a later directory may have what can.
                 */
                if (r == -EACCES)
                        found = r;
                else if (r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -ENAMETOOLONG && r != -ESTALE &&
                         r != -ENODEV && r != -ETIMEDOUT)
                        return r;
                if (!directories[n])
                        return found;
                directories += n + 1;
        }
}
