#include "ctl/help.h"

#include <string.h>

#include "base/text.h"
#include "ctl/output.h"

#define COLUMN     34U
#define LINE_WIDTH 100U

/* Help texts hold no bytes but ASCII, except "…" in synopses, which is never wrapped. */
static void print_wrapped(FILE *f, const char *text, size_t indent)
{
        size_t at = indent;

        while (*text) {
                size_t n = strcspn(text, " ");

                if (at > indent && at + n >= LINE_WIDTH) {
                        (void) fprintf(f, "\n%*s", (int) indent, "");
                        at = indent;
                } else if (at > indent) {
                        (void) fputc(' ', f);
                        at++;
                }
                (void) fwrite(text, 1, n, f);
                at += n;
                text += n;
                text += strspn(text, " ");
        }
        (void) fputc('\n', f);
}

/* verb: of the global table, only what that verb uses; NULL: all. */
static void print_options(FILE *f, const OptionSpec *table, const Verb *verb)
{
        for (; table && table->name; table++) {
                char left[64], letter[] = "-x, ";

                if (!verb_uses(verb, table))
                        continue;
                letter[1] = table->letter;
                (void) snprintf(left, sizeof(left), "  %s--%s%s%s", table->letter ? letter : "    ",
                                table->name, table->argument ? "=" : "",
                                table->argument ? table->argument : "");
                (void) fprintf(f, "%-*s", (int) COLUMN - 1, left);
                if (strlen(left) >= COLUMN - 1)
                        (void) fprintf(f, "\n%*s", (int) COLUMN - 1, "");
                (void) fputc(' ', f);
                print_wrapped(f, table->help, COLUMN);
        }
}

void help_program(FILE *f)
{
        (void) fprintf(
                f,
                "Usage: %s [OPTION…] VERB [OPTION…] [OPERAND…]\n"
                "Keep model checkpoints resident in sealed memory, so that engines restart from memory.\n\n"
                "Verbs:\n",
                program_invocation_short_name);
        for (const Verb *v = verb_table; v->name; v++) {
                (void) fprintf(f, "  %-14s ", v->name);
                print_wrapped(f, v->summary, 17);
        }
        (void) fputs("\nOptions, before or after the verb:\n", f);
        print_options(f, global_options, NULL);
        (void) fprintf(f, "\n'%s VERB --help' shows a verb's options; iloader(1) describes them all.\n",
                       program_invocation_short_name);
}

void help_verb(FILE *f, const Verb *v)
{
        (void) fprintf(f, "Usage: %s %s %s\n%s.\n", program_invocation_short_name, v->name, v->synopsis,
                       v->summary);
        if (v->details)
                (void) fprintf(f, "\n%s\n", v->details);
        if (v->options) {
                (void) fputs("\nOptions:\n", f);
                print_options(f, v->options, NULL);
        }
        (void) fprintf(f, "\n%s:\n",
                       v->flags & VERB_LOCAL ? "Common options" : "Which manager, and common options");
        print_options(f, global_options, v);
}

int help_refer(const Invocation *i, const char *message)
{
        output_note("%s: %s; see '%s %s --help'", i->verb->name, message, program_invocation_short_name,
                    i->verb->name);
        return EXIT_USAGE;
}

int verb_help(const Invocation *i)
{
        const char *name = i->arguments->positional ? i->arguments->positional[0] : NULL;
        const Verb *v = name ? verb_find(name) : NULL;
        const char *near;

        if (name && !v) {
                near = verb_closest(name);
                output_note("help: unknown verb '%s'%s%s%s", name, near ? "; did you mean '" : "",
                            near ? near : "", near ? "'?" : "");
                return EXIT_USAGE;
        }
        if (v)
                help_verb(stdout, v);
        else
                help_program(stdout);
        return output_finish();
}
