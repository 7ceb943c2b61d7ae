/* bench: how fast files are read one after the other, whether they are a checkpoint's source or a view. Opens
 * them as an engine would, so that links to resident files are followed. */
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "checkpoint/selection.h"
#include "checkpoint/view.h"
#include "ctl/output.h"
#include "ctl/verb.h"

#define REPEAT_DEFAULT     3U
#define CHUNK_SIZE_DEFAULT MIB(64)

typedef struct Files {
        char **paths; /* owned */
        uint64_t bytes;
} Files;

static bool is_selected(const Arguments *a, const char *path)
{
        char *const *excludes = a->excludes ? a->excludes : (char *const *) selection_default_excludes;

        if (streq(path, VIEW_MARKER))
                return false;
        for (char *const *p = excludes; *p; p++)
                if (selection_match(*p, path))
                        return false;
        if (!a->patterns)
                return true;
        for (char *const *p = a->patterns; *p; p++)
                if (selection_match(*p, path))
                        return true;
        return false;
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
        return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int walk_entry(const Arguments *a, const FTSENT *e, const char *root, Files *files)
{
        const char *relative = e->fts_path + strlen(root);

        switch (e->fts_info) {
        case FTS_F:
                /* A file that was named itself has no relative path. */
                relative += strspn(relative, "/");
                if (*relative && !is_selected(a, relative))
                        return 0;
                files->bytes = add_saturating(files->bytes, (uint64_t) e->fts_statp->st_size);
                return strv_append(&files->paths, e->fts_path);
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS:
                return output_error("cannot read %s: %s", e->fts_path, strerror(e->fts_errno));
        case FTS_SLNONE:
                return output_error("%s is a dangling link: is its cache still resident?", e->fts_path);
        case FTS_DC:
                return output_error("%s is a directory loop", e->fts_path);
        default:
                return 0;
        }
}

static int find_files(const Arguments *a, const char *root, Files *files)
{
        char *const roots[] = {(char *) root, NULL};
        FTSENT *e;
        FTS *fts;
        int r = 0;

        fts = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, compare_names);
        if (!fts)
                return output_error("cannot walk %s: %s", root, strerror(errno));
        while (r == 0 && (e = fts_read(fts)))
                r = walk_entry(a, e, root, files);
        (void) fts_close(fts);
        if (r < 0)
                return output_error("cannot walk %s: %s", root, strerror(-r));
        if (r == 0 && !files->paths)
                return output_error("%s has no files to read", root);
        return r;
}

/* Reads everything once; *ret_bytes is what was read. */
static int read_all(const Files *files, char *buffer, size_t n, uint64_t *ret_bytes)
{
        uint64_t bytes = 0;

        for (char *const *p = files->paths; p && *p; p++) {
                _cleanup_close_ int fd = open(*p, O_RDONLY | O_CLOEXEC | O_NOCTTY);
                ssize_t k = fd < 0 ? -1 : 1;

                if (fd >= 0)
                        (void) posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
                while (k > 0) {
                        k = read(fd, buffer, n);
                        if (k < 0 && errno == EINTR)
                                k = 1;
                        else if (k > 0)
                                bytes += (uint64_t) k;
                }
                if (k < 0)
                        return output_error("cannot read %s: %s", *p, strerror(errno));
        }
        *ret_bytes = bytes;
        return 0;
}

static int compare_times(const void *a, const void *b)
{
        usec_t x = *(const usec_t *) a, y = *(const usec_t *) b;

        return x < y ? -1 : x > y;
}

static double rate_of(uint64_t bytes, usec_t t)
{
        return (double) bytes * (double) USEC_PER_SEC / (double) MAX2(t, (usec_t) 1);
}

static int print_json(const char *path, size_t n_files, uint64_t bytes, const usec_t *times, size_t n,
                      usec_t median, usec_t best)
{
        _cleanup_json_ struct json_object *o = json_object_new_object(), *runs = json_object_new_array();

        if (!o || !runs)
                return output_error("out of memory");
        for (size_t i = 0; i < n; i++) {
                _cleanup_json_ struct json_object *run = json_object_new_object();

                if (!run || json_add_double(run, "seconds", (double) times[i] / (double) USEC_PER_SEC) < 0 ||
                    json_add_double(run, "bytesPerSecond", rate_of(bytes, times[i])) < 0 ||
                    json_object_array_add(runs, run) < 0)
                        return output_error("out of memory");
                (void) TAKE_PTR(run);
        }
        if (json_add_path(o, "path", path) < 0 || json_add_size(o, "files", n_files) < 0 ||
            json_add_size(o, "bytes", bytes) < 0 || json_add(o, "runs", TAKE_PTR(runs)) < 0 ||
            json_add_double(o, "firstSeconds", (double) times[0] / (double) USEC_PER_SEC) < 0 ||
            json_add_double(o, "medianSeconds", (double) median / (double) USEC_PER_SEC) < 0 ||
            json_add_double(o, "bestBytesPerSecond", rate_of(bytes, best)) < 0)
                return output_error("out of memory");
        return output_json(o);
}

static int report(const Arguments *a, const char *path, const Files *files, uint64_t bytes,
                  const usec_t *times, size_t n)
{
        char size[SIZE_TEXT_MAX], rate[SIZE_TEXT_MAX], span[TIMESPAN_TEXT_MAX];
        _cleanup_free_ usec_t *sorted = calloc(n, sizeof(usec_t));
        usec_t median, best;

        if (!sorted)
                return output_error("out of memory");
        memcpy(sorted, times, n * sizeof(usec_t));
        qsort(sorted, n, sizeof(usec_t), compare_times);
        best = sorted[0];
        median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
        if (a->json)
                return print_json(path, strv_length(files->paths), bytes, times, n, median, best);
        (void) printf("%zu files, %s\n", strv_length(files->paths), format_size(size, bytes));
        for (size_t i = 0; i < n; i++)
                (void) printf("run %zu     %12s  %12s/s\n", i + 1, format_timespan(span, times[i]),
                              format_size(rate, (uint64_t) rate_of(bytes, times[i])));
        (void) printf("first     %12s\n", format_timespan(span, times[0]));
        (void) printf("median    %12s  %12s/s\n", format_timespan(span, median),
                      format_size(rate, (uint64_t) rate_of(bytes, median)));
        (void) printf("best      %12s  %12s/s\n", format_timespan(span, best),
                      format_size(rate, (uint64_t) rate_of(bytes, best)));
        return output_finish();
}

int verb_bench(const Invocation *i)
{
        const Arguments *a = i->arguments;
        size_t n = a->repeat.set ? (size_t) a->repeat.value : REPEAT_DEFAULT;
        size_t chunk = a->chunk_size.set ? (size_t) a->chunk_size.value : CHUNK_SIZE_DEFAULT;
        _cleanup_free_ usec_t *times = calloc(n, sizeof(usec_t));
        _cleanup_free_ char *buffer = malloc(chunk), *path = NULL;
        Files files = {0};
        uint64_t bytes = 0;
        int r;

        if (!times || !buffer)
                return output_error("out of memory");
        r = path_make_absolute(a->positional[0], &path);
        if (r < 0)
                return output_error("cannot make '%s' an absolute path: %s", a->positional[0], strerror(-r));
        r = find_files(a, path, &files);
        for (size_t k = 0; r == 0 && k < n; k++) {
                usec_t began = now_monotonic();

                r = read_all(&files, buffer, chunk, &bytes);
                times[k] = now_monotonic() - began;
        }
        if (r == 0)
                r = report(a, path, &files, bytes, times, n);
        strv_free(files.paths);
        return r;
}
