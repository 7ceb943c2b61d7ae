#include "ctl/verb.h"

#include "base/json.h"
#include "base/text.h"
#include "wire/defaults.h"

#define OPT(n, k, field, arg, ...)                                                                           \
        {                                                                                                    \
                .name = n, .kind = k, .offset = offsetof(Arguments, field), .argument = arg, __VA_ARGS__     \
        }
#define END                                                                                                  \
        {                                                                                                    \
                0                                                                                            \
        }

const OptionSpec global_options[] = {
        OPT("help", OPTION_FLAG, help, NULL, .letter = 'h', .help = "Show help and exit"),
        OPT("version", OPTION_FLAG, version, NULL, .letter = 'V', .help = "Show the version and exit"),
        OPT("system", OPTION_FLAG, system, NULL, .help = "Use the system's manager"),
        OPT("user", OPTION_FLAG, user, NULL, .help = "Use the manager of the calling user"),
        OPT("base-dir", OPTION_PATH, base_dir, "PATH",
            .help = "Directory of the user's manager, views and logs (default: $ILOADER_BASE_DIR, "
                    "$XDG_CACHE_HOME/infiniloader, ~/.cache/infiniloader)"),
        OPT("socket", OPTION_PATH, socket, "PATH",
            .help = "Use the manager at this socket (default: $ILOADER_SOCKET)"),
        END,
};

#define OPT_JSON OPT("json", OPTION_FLAG, json, NULL, .help = "Print one JSON document on standard output")
#define OPT_NAME OPT("name", OPTION_STRING, name, "NAME", .help = "The cache's name, instead of the operand")
#define OPT_TIMEOUT(seconds)                                                                                 \
        OPT("timeout", OPTION_SECONDS, timeout, "SECONDS",                                                   \
            .help = "How long to wait for the manager (default: " seconds ")")
#define OPT_QUIET OPT("quiet", OPTION_FLAG, quiet, NULL, .letter = 'q', .help = "Show no progress")
#define OPT_SELECTION                                                                                        \
        OPT("pattern", OPTION_LIST, patterns, "GLOB",                                                        \
            .help = "Select only relative paths that match; may be repeated (default: all files)"),          \
                OPT("exclude", OPTION_LIST, excludes, "GLOB",                                                \
                    .help = "Leave out relative paths that match, instead of the built-in exclusions; may "  \
                            "be repeated")

#define OPT_LOAD                                                                                             \
        OPT("view", OPTION_PATH, view, "PATH",                                                               \
            .help = "Publish the view there (default: BASE/views/NAME, or /run/iloader/views/NAME)"),        \
                OPT("pid-file", OPTION_PATH, pid_file, "PATH",                                               \
                    .help = "File that holds the worker's pid (default: BASE/run/NAME.pid)"),                \
                OPT("log-file", OPTION_PATH, log_file, "PATH",                                               \
                    .help = "File for this cache's events (default: BASE/logs/NAME.log)"),                   \
                OPT_SELECTION,                                                                               \
                OPT("workers", OPTION_NUMBER, workers, "N", .min = 1, .max = START_WORKERS_MAX,              \
                    .help = "Copying threads (default: chosen for the machine)"),                            \
                OPT("chunk-size", OPTION_NUMBER, chunk_size, "BYTES", .min = START_CHUNK_SIZE_MIN,           \
                    .max = START_CHUNK_SIZE_MAX,                                                             \
                    .help = "What a copying thread takes at a time (default: 67108864)"),                    \
                OPT("max-memory-fraction", OPTION_FRACTION, max_memory_fraction, "FRACTION",                 \
                    .help = "Part of the available memory that a load may use (default: 0.90)"),             \
                OPT("max-memory-bytes", OPTION_SIZE, max_memory_bytes, "SIZE",                               \
                    .help = "Cap of this load, copying buffers included (default: none)"),                   \
                OPT("reserve-bytes", OPTION_SIZE, reserve_bytes, "SIZE",                                     \
                    .help = "Memory that the load must leave free (default: 256MiB)"),                       \
                OPT("max-resident-bytes", OPTION_SIZE, max_resident_bytes, "SIZE",                           \
                    .help = "Set the lasting quota that all caches of the manager share (default: "          \
                            "unchanged)"),                                                                   \
                OPT("idle-ttl", OPTION_SECONDS, idle_ttl, "SECONDS", .min = 1,                               \
                    .help = "Evict after so long without a lease (default: never)"),                         \
                OPT("force", OPTION_FLAG, force, NULL,                                                       \
                    .help = "Load even if too little memory is available; caps and quota still hold"),       \
                OPT("owner", OPTION_STRING, owner, "USER", .help = "User to own the cache (root only)"),     \
                OPT("group", OPTION_STRING, group, "GROUP", .help = "Group of the cache's files"),           \
                OPT("mode", OPTION_MODE, mode, "MODE",                                                       \
                    .help = "Permissions of the cache's files: 0400, 0440 or 0444 (default: 0400)")

static const OptionSpec start_options[] = {
        OPT("name", OPTION_STRING, name, "NAME", .help = "The cache's name (required)"),
        OPT_LOAD,
        OPT("wait-timeout", OPTION_SECONDS, wait_timeout, "SECONDS",
            .help = "How long to wait until the cache is ready (default: 600)"),
        OPT("no-wait", OPTION_FLAG, no_wait, NULL,
            .help = "Return once the load is admitted; the view comes later"),
        OPT_QUIET,
        OPT_JSON,
        END,
};
static const OptionSpec attach_options[] = {OPT_NAME, OPT_LOAD, END};
static const OptionSpec name_options[] = {OPT_NAME, OPT_TIMEOUT("5"), END};
static const OptionSpec status_options[] = {OPT_NAME, OPT_TIMEOUT("5"), OPT_JSON, END};
static const OptionSpec list_options[] = {OPT_TIMEOUT("1"), OPT_JSON, END};
static const OptionSpec stop_options[] = {
        OPT_NAME,
        OPT("all", OPTION_FLAG, all, NULL, .help = "Stop every cache of the manager that is yours to stop"),
        OPT("remove-view", OPTION_FLAG, remove_view, NULL, .help = "Remove the published directory too"),
        OPT("force", OPTION_FLAG, force, NULL, .help = "Stop although processes hold leases"),
        OPT("timeout", OPTION_SECONDS, timeout, "SECONDS",
            .help = "How long to wait until the memory is given back (default: 5)"),
        OPT("quiet", OPTION_FLAG, quiet, NULL, .letter = 'q', .help = "Say nothing where all went well"),
        OPT_JSON,
        END,
};
static const OptionSpec inspect_options[] = {OPT_SELECTION, OPT_JSON, END};
static const OptionSpec gc_options[] = {
        OPT("resident", OPTION_FLAG, resident, NULL, .help = "Collect caches in memory"),
        OPT("max-bytes", OPTION_SIZE, max_bytes, "SIZE",
            .help = "Evict the least recently used until at most so much is resident"),
        OPT("ttl", OPTION_SECONDS, ttl, "SECONDS", .help = "Evict what was not used for so long"),
        OPT("apply", OPTION_FLAG, apply, NULL,
            .help = "Do it; without this option only say what would be done"),
        OPT("cache-root", OPTION_PATH, cache_root, "PATH",
            .help = "Root of disk generations; not with --resident"),
        OPT_TIMEOUT("5"),
        OPT_JSON,
        END,
};
static const OptionSpec json_options[] = {OPT_JSON, END};
static const OptionSpec set_quota_options[] = {OPT_TIMEOUT("5"), OPT_JSON, END};
static const OptionSpec bench_options[] = {
        OPT("repeat", OPTION_NUMBER, repeat, "N", .min = 1, .max = 1000,
            .help = "Number of runs (default: 3)"),
        OPT_SELECTION,
        OPT("chunk-size", OPTION_NUMBER, chunk_size, "BYTES", .min = START_CHUNK_SIZE_MIN,
            .max = START_CHUNK_SIZE_MAX, .help = "Bytes of one read (default: 67108864)"),
        OPT_JSON,
        END,
};
static const OptionSpec monitor_options[] = {
        OPT_NAME,
        OPT("json", OPTION_FLAG, json, NULL, .help = "Print one JSON object a line"),
        END,
};

const Verb verb_table[] = {
        {"inspect", "MODEL_DIR [OPTION…]",
         "Show which files a checkpoint has and whether they fit into memory", NULL, VERB_LOCAL, "MODEL_DIR",
         1, 1, inspect_options, verb_inspect},
        {"start", "[MODEL_DIR] --name NAME [OPTION…]", "Make a checkpoint resident and print its view",
         "Prints the published directory alone on stdout: VIEW=$(iloader start MODEL_DIR --name NAME).\n"
         "Without a manager of the user's own, one is started. In the system scope MODEL_DIR may be left\n"
         "out for a cache that /etc/iloader/caches/NAME.conf describes.",
         0, "MODEL_DIR", 0, 1, start_options, verb_start},
        {"status", "NAME [OPTION…]", "Show a cache's state, size, leases and budget", NULL, VERB_NAME, "NAME",
         0, 0, status_options, verb_status},
        {"view", "NAME [OPTION…]", "Print a cache's published directory", NULL, VERB_NAME, "NAME", 0, 0,
         name_options, verb_view},
        {"manifest", "NAME [OPTION…]", "Print a cache's files as JSON", NULL, VERB_NAME, "NAME", 0, 0,
         name_options, verb_manifest},
        {"list", "[OPTION…]", "List resident caches", NULL, 0, "NAME", 0, 0, list_options, verb_list},
        {"stop", "NAME|--all [OPTION…]", "Give a cache's memory back", NULL, VERB_NAME_OPTIONAL, "NAME", 0, 0,
         stop_options, verb_stop},
        {"run", "[OPTION…] NAME -- COMMAND [ARGUMENT…]",
         "Run a command that reads a cache, protected by a lease",
         "Replaces every {model} in COMMAND and its arguments by the published directory, and sets\n"
         "$ILOADER_MODEL_PATH to it. Own options come before NAME. Exits with the command's code, 128+N "
         "where\n"
         "signal N ended it, 125 where iloader itself failed, 126 where the command cannot be executed, 127\n"
         "where it is not found.",
         VERB_NAME | VERB_COMMAND, "NAME", 0, 0, NULL, verb_run},
        {"gc", "--resident [--max-bytes SIZE] [--ttl SECONDS] [--apply] [OPTION…]",
         "Evict caches that nobody uses",
         "Leased caches are skipped. Exits with 1 where the target of --max-bytes cannot be met.", 0, "NAME",
         0, 0, gc_options, verb_gc},
        {"set-quota", "SIZE|none [OPTION…]", "Set the quota that all caches of a manager share", NULL, 0,
         "SIZE or 'none'", 1, 1, set_quota_options, verb_set_quota},
        {"doctor", "[OPTION…]", "Check whether this machine has what iloader needs", NULL,
         VERB_LOCAL | VERB_BASE, "NAME", 0, 0, json_options, verb_doctor},
        {"selftest", "[OPTION…]", "Load, read, lease and stop a small checkpoint of its own", NULL,
         VERB_LOCAL, "NAME", 0, 0, NULL, verb_selftest},
        {"bench", "PATH [OPTION…]", "Measure sequential reading of a directory or file",
         "Drops no page caches, and measures no engine's start.", VERB_LOCAL, "PATH", 1, 1, bench_options,
         verb_bench},
        {"monitor", "[NAME] [OPTION…]", "Show changes of caches as they happen", NULL, VERB_NAME_OPTIONAL,
         "NAME", 0, 0, monitor_options, verb_monitor},
        {"attach", "NAME [MODEL_DIR] [OPTION…]", "Be the service of one cache: for unit files", NULL,
         VERB_NAME, "MODEL_DIR", 0, 1, attach_options, verb_attach},
        {"completion", "bash", "Print the completion script of a shell", NULL, VERB_LOCAL,
         "the shell's name, bash,", 1, 1, NULL, verb_completion},
        {"help", "[VERB]", "Show help", NULL, VERB_LOCAL, "VERB", 0, 1, NULL, verb_help},
        {0},
};

const Verb *verb_find(const char *name)
{
        for (const Verb *v = verb_table; v->name; v++)
                if (streq(v->name, name))
                        return v;
        return NULL;
}

bool verb_uses(const Verb *v, const OptionSpec *global)
{
        if (!v || !(v->flags & VERB_LOCAL) || streq(global->name, "help") || streq(global->name, "version"))
                return true;
        return (v->flags & VERB_BASE) && streq(global->name, "base-dir");
}

const char *verb_closest(const char *name)
{
        const char *names[ELEMENTSOF(verb_table)];
        size_t n = 0;

        for (const Verb *v = verb_table; v->name; v++)
                names[n++] = v->name;
        return closest_word(name, names, n);
}

static int options_to_json(const OptionSpec *table, struct json_object **ret)
{
        _cleanup_json_ struct json_object *array = json_object_new_array();

        if (!array)
                return -ENOMEM;
        for (; table && table->name; table++) {
                _cleanup_json_ struct json_object *o = json_object_new_object();
                const char letter[] = {table->letter, '\0'};

                if (!o || json_add_string(o, "name", table->name) < 0 ||
                    json_add_string(o, "letter", table->letter ? letter : NULL) < 0 ||
                    json_add_string(o, "argument", table->argument) < 0 ||
                    json_add_string(o, "help", table->help) < 0 || json_object_array_add(array, o) < 0)
                        return -ENOMEM;
                (void) TAKE_PTR(o);
        }
        *ret = TAKE_PTR(array);
        return 0;
}

int verb_table_to_json(struct json_object **ret)
{
        _cleanup_json_ struct json_object *root = json_object_new_object(), *verbs = json_object_new_array(),
                                          *globals = NULL;

        if (!root || !verbs || options_to_json(global_options, &globals) < 0 ||
            json_add(root, "options", TAKE_PTR(globals)) < 0)
                return -ENOMEM;
        for (const Verb *v = verb_table; v->name; v++) {
                _cleanup_json_ struct json_object *o = json_object_new_object(), *options = NULL;

                if (!o || options_to_json(v->options, &options) < 0 ||
                    json_add_string(o, "name", v->name) < 0 ||
                    json_add_string(o, "synopsis", v->synopsis) < 0 ||
                    json_add_string(o, "summary", v->summary) < 0 ||
                    json_add(o, "options", TAKE_PTR(options)) < 0 || json_object_array_add(verbs, o) < 0)
                        return -ENOMEM;
                (void) TAKE_PTR(o);
        }
        if (json_add(root, "verbs", TAKE_PTR(verbs)) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(root);
        return 0;
}
