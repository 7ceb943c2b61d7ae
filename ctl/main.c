/* iloader, and iloaderctl under its other name: finds the verb, parses its options, calls it. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "ctl/help.h"
#include "ctl/output.h"
#include "ctl/verb.h"

#define ADMIN_NAME "iloaderctl"

/* The hidden --dump-verbs: the table as JSON, for the check of manual and completion against it. */
static int dump_verbs(void)
{
        _cleanup_json_ struct json_object *o = NULL;

        if (verb_table_to_json(&o) < 0)
                return output_error("out of memory");
        return output_json(o);
}

static int show_version(void)
{
        (void) printf("%s %s\n", program_invocation_short_name, ILOADER_VERSION);
        return output_finish();
}

static int usage_error(const Verb *v, int error, const char *message)
{
        const char *verb = v ? v->name : NULL;

        if (error != -EINVAL || !message)
                (void) output_error("cannot read the command line: %s", strerror(-error));
        else
                output_note("%s%s%s; see '%s%s%s --help'", verb ? verb : "", verb ? ": " : "", message,
                            program_invocation_short_name, verb ? " " : "", verb ? verb : "");
        return v && (v->flags & VERB_COMMAND) ? EXIT_RUN_FAILED : EXIT_USAGE;
}

static int unknown_verb(const char *name)
{
        _cleanup_free_ char *message = NULL, *near = NULL;
        const char *closest = verb_closest(name);

        if (closest && text_format(&near, "; did you mean '%s'?", closest) < 0)
                return output_error("out of memory");
        if (text_format(&message, "unknown verb '%s'%s", name, near ? near : "") < 0)
                return output_error("out of memory");
        return usage_error(NULL, -EINVAL, message);
}

static int run_verb(const Verb *v, int argc, char *const *argv, Arguments *a)
{
        _cleanup_free_ char *error = NULL;
        Invocation invocation = {
                .verb = v,
                .arguments = a,
                .admin = streq(program_invocation_short_name, ADMIN_NAME),
        };
        int r;

        r = arguments_parse(v, argc, argv, a, &error);
        if (r < 0)
                return usage_error(v, r, error);
        if (a->version)
                return show_version();
        if (a->help) {
                help_verb(stdout, v);
                return output_finish();
        }
        return v->run(&invocation);
}

int main(int argc, char *argv[])
{
        _cleanup_arguments_ Arguments a = {0};
        _cleanup_free_ char *error = NULL;
        const Verb *v;
        int next = 0, r;

        r = fd_reserve_standard();
        if (r < 0)
                return EXIT_FAILURE;
        if (argc == 2 && streq(argv[1], "--dump-verbs"))
                return dump_verbs();
        r = arguments_parse_global(argc, argv, &a, &next, &error);
        if (r < 0)
                return usage_error(NULL, r, error);
        if (a.version)
                return show_version();
        if (a.help) {
                help_program(stdout);
                return output_finish();
        }
        if (next >= argc) {
                help_program(stderr);
                return EXIT_USAGE;
        }
        v = verb_find(argv[next]);
        if (!v)
                return unknown_verb(argv[next]);
        return run_verb(v, argc - next - 1, argv + next + 1, &a);
}
