/* inspect: what a start of this checkpoint would select, and whether it would fit. Speaks with no manager. */
#include <fcntl.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/size.h"
#include "checkpoint/selection.h"
#include "checkpoint/source.h"
#include "ctl/checkpoint-note.h"
#include "ctl/connection.h"
#include "ctl/output.h"
#include "ctl/verb.h"
#include "wire/defaults.h"

typedef struct Inspection {
        const Selection *selection;
        const char *source;
        const MemorySnapshot *memory;
        uint64_t available, budget;
        const char *limit;
} Inspection;

static int files_to_json(const Selection *s, struct json_object **ret)
{
        _cleanup_json_ struct json_object *array =
                json_object_new_array_ext((int) MIN2(s->n_files, (size_t) INT32_MAX));

        if (!array)
                return -ENOMEM;
        for (size_t i = 0; i < s->n_files; i++) {
                _cleanup_json_ struct json_object *o = json_object_new_object();

                if (!o || json_add_path(o, "path", s->files[i].path) < 0 ||
                    json_add_size(o, "size", s->files[i].identity.size) < 0 ||
                    json_object_array_add(array, o) < 0)
                        return -ENOMEM;
                (void) TAKE_PTR(o);
        }
        *ret = TAKE_PTR(array);
        return 0;
}

static int print_json(const Inspection *n)
{
        _cleanup_json_ struct json_object *o = json_object_new_object(), *files = NULL;

        if (!o || files_to_json(n->selection, &files) < 0 || json_add_path(o, "source", n->source) < 0 ||
            json_add_size(o, "bytes", n->selection->bytes) < 0 ||
            json_add_size(o, "totalBytes", n->memory->total) < 0 ||
            json_add_size(o, "availableBytes", n->available) < 0 ||
            json_add_string(o, "limit", n->limit) < 0 ||
            json_add_double(o, "memoryFraction", START_MEMORY_FRACTION_DEFAULT) < 0 ||
            json_add_size(o, "reserveBytes", START_RESERVE_DEFAULT) < 0 ||
            json_add_size(o, "budgetBytes", n->budget) < 0 ||
            json_add_bool(o, "fits", n->selection->bytes <= n->budget) < 0 ||
            json_add(o, "files", TAKE_PTR(files)) < 0)
                return output_error("out of memory");
        return output_json(o);
}

static int print_text(const Inspection *n)
{
        char bytes[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX], budget[SIZE_TEXT_MAX], reserve[SIZE_TEXT_MAX];
        const Selection *s = n->selection;

        for (size_t i = 0; i < s->n_files; i++) {
                _cleanup_free_ char *shown = NULL;

                if (path_escape(s->files[i].path, &shown) < 0)
                        return output_error("out of memory");
                (void) printf("%12s  %s\n", format_size(bytes, s->files[i].identity.size), shown);
        }
        (void) printf("%12s  in %zu %s\n\n", format_size(bytes, s->bytes), s->n_files,
                      s->n_files == 1 ? "file" : "files");
        (void) printf("%12s  of memory available (%s)\n", format_size(available, n->available), n->limit);
        (void) printf("%12s  a load may use by default: %.0f%% of it less %s\n",
                      format_size(budget, n->budget), START_MEMORY_FRACTION_DEFAULT * 100,
                      format_size(reserve, START_RESERVE_DEFAULT));
        if (s->bytes <= n->budget)
                (void) printf("fits\n");
        else
                (void) printf("does not fit: free memory, raise that limit, select fewer files (--pattern, "
                              "--exclude), "
                              "or\nstart it with a larger --max-memory-fraction, a smaller --reserve-bytes "
                              "or --force\n");
        return output_finish();
}

int verb_inspect(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_memory_snapshot_ MemorySnapshot memory = {0};
        _cleanup_source_fault_ SourceFault fault = {0};
        _cleanup_selection_ Selection selection = {0};
        _cleanup_(source_done) Source source = {.root_fd = -EBADF, .fd = -EBADF};
        _cleanup_close_ int root = -EBADF;
        _cleanup_free_ char *path = NULL;
        SelectionOptions options = {
                .patterns = a->patterns, .excludes = a->excludes, .max_files = START_FILES_MAX_DEFAULT};
        Inspection n = {.selection = &selection, .memory = &memory};
        int r;

        r = path_make_absolute(a->positional[0], &path);
        if (r < 0)
                return output_error("cannot make '%s' an absolute path: %s", a->positional[0], strerror(-r));
        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return output_error("cannot open /: %s", strerror(errno));
        r = source_open(root, path, &source, &fault);
        if (r >= 0)
                r = selection_read(&source, &options, &selection, &fault);
        if (r < 0)
                return output_error("%s", fault.message ? fault.message : strerror(-r));
        r = memory_snapshot_read(AT_FDCWD, AT_FDCWD, &memory);
        if (r < 0)
                return output_error("cannot read how much memory is available: %s", strerror(-r));
        if (!a->patterns)
                checkpoint_note(path);
        n.source = source.path;
        n.available = memory_effective_available(&memory, &n.limit);
        n.budget = memory_budget(n.available, START_MEMORY_FRACTION_DEFAULT, START_RESERVE_DEFAULT);
        return a->json ? print_json(&n) : print_text(&n);
}
