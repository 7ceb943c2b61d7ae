/* The one table of verbs: dispatch, operands, options, --help, the completion and the manual's check come
 * from it. */
#pragma once

#include "ctl/options.h"

struct json_object;
struct Verb;

/* What a verb is called with. */
typedef struct Invocation {
        const struct Verb *verb;
        const Arguments *arguments;
        bool admin; /* called as iloaderctl */
} Invocation;

typedef enum VerbFlags {
        VERB_NAME = 1 << 0,          /* takes a cache's name as first operand or by --name */
        VERB_NAME_OPTIONAL = 1 << 1, /* the same, and may do without */
        VERB_COMMAND = 1 << 2,       /* a command follows the name; own failures exit with 125 */
        VERB_LOCAL = 1 << 3,         /* speaks with no manager */
        VERB_BASE = 1 << 4,          /* looks at BASE nevertheless */
} VerbFlags;

typedef struct Verb {
        const char *name;
        const char *synopsis; /* what follows the verb */
        const char *summary;  /* one line */
        const char *details;  /* more lines for --help; NULL: none */
        VerbFlags flags;
        const char *operand; /* how messages call the operands beside the name */
        unsigned min_operands, max_operands;
        const OptionSpec *options;       /* ends with an entry without a name; NULL: none */
        int (*run)(const Invocation *i); /* returns the exit code */
} Verb;

extern const Verb verb_table[];           /* ends with an entry without a name */
extern const OptionSpec global_options[]; /* likewise; before and after every verb */

const Verb *verb_find(const char *name);
/* Whether a global option means anything to a verb (NULL: to some verb). */
bool verb_uses(const Verb *v, const OptionSpec *global);
/* What was probably meant, or NULL. */
const char *verb_closest(const char *name);
/* The table for tests of manual and completion; *ret is owned. */
int verb_table_to_json(struct json_object **ret);

/* Exit codes. */
#define EXIT_USAGE      2
#define EXIT_RUN_FAILED 125 /* as env(1), nohup(1), timeout(1) */
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND  127

int verb_attach(const Invocation *i);
int verb_bench(const Invocation *i);
int verb_completion(const Invocation *i);
int verb_doctor(const Invocation *i);
int verb_gc(const Invocation *i);
int verb_help(const Invocation *i);
int verb_inspect(const Invocation *i);
int verb_list(const Invocation *i);
int verb_manifest(const Invocation *i);
int verb_monitor(const Invocation *i);
int verb_run(const Invocation *i);
int verb_selftest(const Invocation *i);
int verb_set_quota(const Invocation *i);
int verb_start(const Invocation *i);
int verb_status(const Invocation *i);
int verb_stop(const Invocation *i);
int verb_view(const Invocation *i);
