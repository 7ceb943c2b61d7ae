/* completion: a script for bash, made from the verb table. Names of caches are asked of the program itself.
 */
#include <string.h>

#include "base/text.h"
#include "ctl/output.h"
#include "ctl/verb.h"

/* verb: of the global table, only what that verb uses; NULL: all. */
static void print_option_names(const OptionSpec *table, const Verb *verb)
{
        for (; table && table->name; table++)
                if (verb_uses(verb, table))
                        (void) printf(" --%s", table->name);
}

/* Options whose value is something else than a file. */
static void print_valued(const OptionSpec *table, bool files, bool *first)
{
        for (; table && table->name; table++)
                if (table->kind != OPTION_FLAG && (table->kind == OPTION_PATH) == files) {
                        (void) printf("%s--%s", *first ? "" : "|", table->name);
                        *first = false;
                }
}

static void print_all_valued(bool files)
{
        bool first = true;

        print_valued(global_options, files, &first);
        for (const Verb *v = verb_table; v->name; v++)
                print_valued(v->options, files, &first);
}

static void print_cases(void)
{
        for (const Verb *v = verb_table; v->name; v++) {
                (void) printf("                %s)\n                        options='", v->name);
                print_option_names(v->options, NULL);
                (void) fputs("'\n", stdout);
                if (v->flags & VERB_LOCAL) {
                        (void) fputs("                        globals='", stdout);
                        print_option_names(global_options, v);
                        (void) fputs("'\n", stdout);
                }
                if (v->flags & (VERB_NAME | VERB_NAME_OPTIONAL))
                        (void) fputs("                        operands=names\n", stdout);
                else if (streq(v->name, "help"))
                        (void) fputs("                        operands=verbs\n", stdout);
                else if (streq(v->name, "completion"))
                        (void) fputs("                        operands=shells\n", stdout);
                else if (v->max_operands > 0 && !streq(v->name, "set-quota"))
                        (void) fputs("                        operands=files\n", stdout);
                (void) fputs("                        ;;\n", stdout);
        }
}

static const char head[] =
        "# Completion of iloader and iloaderctl for bash; made by 'iloader completion bash'.\n"
        "_iloader() {\n"
        "        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= options= "
        "operands= i\n"
        "        local -a where=()\n"
        "        COMPREPLY=()\n"
        "        # '--option=value' arrives as three words.\n"
        "        if [[ $cur == = ]]; then cur=; elif [[ $prev == = && COMP_CWORD -ge 2 ]]; then "
        "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
        "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "                case ${COMP_WORDS[i]} in\n"
        "                --system|--user) where+=(\"${COMP_WORDS[i]}\");;\n"
        "                --base-dir|--socket)\n"
        "                        [[ ${COMP_WORDS[i+1]} == = ]] && i=$((i + 1))\n"
        "                        where+=(\"${COMP_WORDS[i]/#=/${COMP_WORDS[i-1]}}\" \"${COMP_WORDS[i+1]}\"); "
        "i=$((i + "
        "1));;\n"
        "                --)\n"
        "                        if [[ $verb == run ]]; then\n"
        "                                COMPREPLY=($(compgen -c -f -- \"$cur\")); return; fi;;\n"
        "                -*|=) ;;\n"
        "                *) [[ -z $verb && $i -ge 1 ]] && verb=${COMP_WORDS[i]};;\n"
        "                esac\n"
        "        done\n";

static const char tail[] =
        "        esac\n"
        "        if [[ $cur == -* ]]; then\n"
        "                COMPREPLY=($(compgen -W \"$options $globals\" -- \"$cur\")); return; fi\n"
        "        case $operands in\n"
        "        names)\n"
        "                COMPREPLY=($(compgen -W \"$(\"${COMP_WORDS[0]}\" \"${where[@]}\" list 2>/dev/null "
        "|\n"
        "                        sed -n '2,$s/ .*//p')\" -- \"$cur\"));;\n"
        "        verbs) COMPREPLY=($(compgen -W \"$verbs\" -- \"$cur\"));;\n"
        "        shells) COMPREPLY=($(compgen -W bash -- \"$cur\"));;\n"
        "        files) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\"));;\n"
        "        esac\n"
        "}\n"
        "complete -F _iloader iloader iloaderctl\n";

int verb_completion(const Invocation *i)
{
        if (!streq(i->arguments->positional[0], "bash")) {
                output_note("completion: there is a script for bash, none for '%s'",
                            i->arguments->positional[0]);
                return EXIT_USAGE;
        }
        (void) fputs(head, stdout);
        (void) fputs("        local globals='", stdout);
        print_option_names(global_options, NULL);
        (void) fputs("' verbs='", stdout);
        for (const Verb *v = verb_table; v->name; v++)
                (void) printf("%s%s", v == verb_table ? "" : " ", v->name);
        (void) fputs("'\n        case $prev in\n        ", stdout);
        print_all_valued(true);
        (void) fputs(
                ")\n                compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\")); "
                "return;;\n        ",
                stdout);
        print_all_valued(false);
        (void) fputs(")\n                return;;\n        esac\n        case $verb in\n"
                     "                '') options= operands=verbs;;\n",
                     stdout);
        print_cases();
        (void) fputs(tail, stdout);
        return output_finish();
}
