#include "ctl/options.h"

#include <string.h>

#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "ctl/verb.h"

/* More options than any verb has. */
#define OPTIONS_MAX 64U

void arguments_done(Arguments *a)
{
        free(a->base_dir);
        free(a->socket);
        free(a->name);
        free(a->view);
        free(a->pid_file);
        free(a->log_file);
        free(a->owner);
        free(a->group);
        free(a->cache_root);
        strv_free(a->patterns);
        strv_free(a->excludes);
        strv_free(a->positional);
        *a = (Arguments){0};
}

const char *closest_word(const char *word, const char *const *candidates, size_t n)
{
        const char *best = NULL;
        /* Two edits, or a third of a long word; never all of a short one. */
        size_t best_distance =
                MIN2(MAX2((size_t) 2, strlen(word) / 3), MAX2(strlen(word), (size_t) 1) - 1) + 1;

        for (size_t i = 0; i < n; i++) {
                size_t d = text_distance(word, candidates[i]);

                /* A word begun and not ended is near, however much is missing. */
                if (strlen(word) >= 3 && startswith(candidates[i], word))
                        d = 1;
                if (d < best_distance) {
                        best = candidates[i];
                        best_distance = d;
                }
        }
        return best;
}

static int unknown_option(const struct Verb *verb, const char *given, size_t n, char **ret_error)
{
        const OptionSpec *tables[] = {verb ? verb->options : NULL, global_options};
        const char *names[OPTIONS_MAX], *near;
        _cleanup_free_ char *word = strndup(given, n);
        size_t n_names = 0;
        int r;

        if (!word)
                return -ENOMEM;
        for (size_t t = 0; t < ELEMENTSOF(tables); t++)
                for (const OptionSpec *o = tables[t]; o && o->name && n_names < ELEMENTSOF(names); o++)
                        names[n_names++] = o->name;
        near = closest_word(startswith(word, "--") ? word + 2 : word, names, n_names);
        if (near)
                r = text_format(ret_error, "unknown option '%s'; did you mean '--%s'?", word, near);
        else
                r = text_format(ret_error, "unknown option '%s'", word);
        return r < 0 ? r : -EINVAL;
}

static const OptionSpec *find_in(const OptionSpec *table, const char *name, size_t n, char letter)
{
        for (; table && table->name; table++) {
                if (letter ? table->letter == letter
                           : strlen(table->name) == n && strncmp(table->name, name, n) == 0)
                        return table;
        }
        return NULL;
}

static const OptionSpec *find_option(const struct Verb *verb, const char *name, size_t n, char letter)
{
        const OptionSpec *o = verb ? find_in(verb->options, name, n, letter) : NULL;

        return o ? o : find_in(global_options, name, n, letter);
}

static int parse_number(const OptionSpec *o, const char *text, OptionNumber *ret)
{
        uint64_t v = 0, max = o->max ? o->max : INT64_MAX;
        unsigned mode = 0;
        int r;

        switch (o->kind) {
        case OPTION_SIZE:
                r = parse_size(text, &v);
                break;
        case OPTION_SECONDS:
                r = parse_seconds(text, &v);
                break;
        case OPTION_MODE:
                r = parse_mode(text, &mode);
                v = mode;
                break;
        default:
                r = parse_u64(text, &v);
                break;
        }
        if (r < 0)
                return r;
        if (v < o->min || v > max)
                return -ERANGE;
        if (o->kind == OPTION_MODE && v != 0400 && v != 0440 && v != 0444)
                return -ERANGE;
        *ret = (OptionNumber){true, v};
        return 0;
}

/* What the value should have been. */
static int refuse_value(const OptionSpec *o, const char *text, int error, char **ret_error)
{
        _cleanup_free_ char *range = NULL, *shown = NULL;
        const char *what = "";
        int r = 0;

        switch (o->kind) {
        case OPTION_NUMBER:
                what = streq(o->argument, "BYTES") ? "a whole number of bytes without a suffix"
                                                   : "a whole number";
                break;
        case OPTION_SIZE:
                what = SIZE_FORMS;
                break;
        case OPTION_SECONDS:
                what = "a number of seconds such as 30 or 2.5";
                break;
        case OPTION_MODE:
                what = "0400, 0440 or 0444";
                break;
        case OPTION_FRACTION:
                what = "a fraction above 0 and at most 1, such as 0.9";
                break;
        default:
                what = "another value";
                break;
        }
        if (error == -ERANGE && (o->min || o->max) && o->kind == OPTION_NUMBER)
                r = text_format(&range, " between %llu and %llu", (unsigned long long) o->min,
                                (unsigned long long) (o->max ? o->max : INT64_MAX));
        if (r >= 0)
                r = path_escape(text, &shown);
        if (r >= 0)
                r = text_format(
                        ret_error, "--%s takes %s%s, not '%s'%s", o->name, what, range ? range : "", shown,
                        error == -ERANGE && !range && o->kind != OPTION_MODE ? ", which is out of range"
                                                                             : "");
        return r < 0 ? r : -EINVAL;
}

static int set_value(const OptionSpec *o, const char *text, Arguments *a, char **ret_error)
{
        void *target = (char *) a + o->offset;
        char *copy = NULL;
        double fraction = 0;
        int r;

        switch (o->kind) {
        case OPTION_FLAG:
                *(bool *) target = true;
                return 0;
        case OPTION_LIST:
                if (!*text) {
                        r = text_format(ret_error, "--%s needs a value that is not empty", o->name);
                        return r < 0 ? r : -EINVAL;
                }
                return strv_append(target, text);
        case OPTION_STRING:
        case OPTION_PATH:
                if (!*text) {
                        r = text_format(ret_error, "--%s needs a value that is not empty", o->name);
                        return r < 0 ? r : -EINVAL;
                }
                if (o->kind == OPTION_PATH) {
                        r = path_make_absolute(text, &copy);
                        if (r < 0) {
                                (void) text_format(ret_error,
                                                   "--%s: '%s' cannot be made an absolute path: %s", o->name,
                                                   text, strerror(-r));
                                return r == -ENOMEM ? r : -EINVAL;
                        }
                } else {
                        copy = strdup(text);
                        if (!copy)
                                return -ENOMEM;
                }
                free(*(char **) target);
                *(char **) target = copy;
                return 0;
        case OPTION_FRACTION:
                r = parse_fraction(text, &fraction);
                if (r < 0)
                        return refuse_value(o, text, r, ret_error);
                *(OptionFraction *) target = (OptionFraction){true, fraction};
                return 0;
        default:
                r = parse_number(o, text, target);
                return r < 0 ? refuse_value(o, text, r, ret_error) : 0;
        }
}

/* One option at argv[*i]; moves *i behind it and its value. */
static int parse_option(const struct Verb *verb, int argc, char *const *argv, int *i, Arguments *a,
                        char **ret_error)
{
        const char *word = argv[*i], *value = NULL, *equals = NULL;
        const OptionSpec *o;
        size_t n;
        int r;

        if (startswith(word, "--")) {
                equals = strchr(word, '=');
                n = equals ? (size_t) (equals - word) : strlen(word);
                o = find_option(verb, word + 2, n - 2, '\0');
        } else {
                /* Letters are few and take no values: they are not combined. */
                n = strlen(word);
                o = n == 2 ? find_option(verb, NULL, 0, word[1]) : NULL;
        }
        if (!o)
                return unknown_option(verb, word, n, ret_error);
        (*i)++;
        if (o->kind == OPTION_FLAG) {
                if (!equals)
                        return set_value(o, NULL, a, ret_error);
                r = text_format(ret_error, "--%s takes no value", o->name);
                return r < 0 ? r : -EINVAL;
        }
        if (equals)
                value = equals + 1;
        else if (*i < argc)
                value = argv[(*i)++];
        if (!value) {
                r = text_format(ret_error, "--%s needs a value: --%s %s", o->name, o->name, o->argument);
                return r < 0 ? r : -EINVAL;
        }
        return set_value(o, value, a, ret_error);
}

static bool is_option(const char *word)
{
        return word[0] == '-' && word[1];
}

int arguments_parse_global(int argc, char *const *argv, Arguments *a, int *ret_next, char **ret_error)
{
        int i = 1, r;

        while (i < argc && is_option(argv[i])) {
                if (streq(argv[i], "--")) {
                        i++;
                        break;
                }
                r = parse_option(NULL, argc, argv, &i, a, ret_error);
                if (r < 0)
                        return r;
                if (a->help || a->version)
                        break;
        }
        *ret_next = i;
        return 0;
}

static int check_name(Arguments *a, char **ret_error)
{
        _cleanup_free_ char *shown = NULL;
        const char *reason = NULL;
        int r;

        if (!a->name || cache_name_is_valid(a->name, &reason))
                return 0;
        r = path_escape(a->name, &shown);
        if (r >= 0)
                r = text_format(ret_error, "name '%s' %s", shown, reason);
        return r < 0 ? r : -EINVAL;
}

/* The name is the first operand, unless --name gave it. */
static int take_name(const struct Verb *verb, Arguments *a, char **ret_error)
{
        int r;

        if (!(verb->flags & (VERB_NAME | VERB_NAME_OPTIONAL)))
                return check_name(a, ret_error);
        if (!a->name && a->positional && a->positional[0]) {
                a->name = a->positional[0];
                memmove(a->positional, a->positional + 1, strv_length(a->positional) * sizeof(char *));
        }
        if (!a->name && (verb->flags & VERB_NAME)) {
                r = text_format(ret_error,
                                "NAME, the cache's name, is missing: '%s list' shows what there is",
                                program_invocation_short_name);
                return r < 0 ? r : -EINVAL;
        }
        return check_name(a, ret_error);
}

static int check_operands(const struct Verb *verb, const Arguments *a, char **ret_error)
{
        size_t n = strv_length(a->positional);
        int r;

        if (n > verb->max_operands)
                r = text_format(ret_error, "unexpected operand '%s'", a->positional[verb->max_operands]);
        else if (n < verb->min_operands)
                r = text_format(ret_error, "%s is missing", verb->operand);
        else {
                for (size_t i = 0; i < n; i++)
                        if (!*a->positional[i]) {
                                r = text_format(ret_error, "%s is empty", verb->operand);
                                return r < 0 ? r : -EINVAL;
                        }
                return 0;
        }
        return r < 0 ? r : -EINVAL;
}

int arguments_parse(const struct Verb *verb, int argc, char *const *argv, Arguments *a, char **ret_error)
{
        bool options_ended = false;
        int i = 0, r;

        while (i < argc) {
                if (!options_ended && streq(argv[i], "--")) {
                        options_ended = true;
                        i++;
                        continue;
                }
                if (!options_ended && is_option(argv[i])) {
                        r = parse_option(verb, argc, argv, &i, a, ret_error);
                        if (r < 0)
                                return r;
                        if (a->help || a->version)
                                return 0;
                        continue;
                }
                r = strv_append(&a->positional, argv[i++]);
                if (r < 0)
                        return r;
                if (verb->flags & VERB_COMMAND) {
                        /* Options of ours end at the name; all that follows one "--" belongs to the command.
                         */
                        if (!options_ended && i < argc && streq(argv[i], "--"))
                                i++;
                        a->command = argv + i;
                        break;
                }
        }
        r = take_name(verb, a, ret_error);
        if (r < 0)
                return r;
        if ((verb->flags & VERB_COMMAND) && !a->command[0]) {
                r = text_format(ret_error, "COMMAND is missing: %s NAME -- COMMAND [ARGUMENT…]", verb->name);
                return r < 0 ? r : -EINVAL;
        }
        return check_operands(verb, a, ret_error);
}
