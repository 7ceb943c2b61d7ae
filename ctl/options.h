/* The command line as values. Every option of every verb is a row of a table (ctl/verb.c), from which the
 * parser, --help, the completion and the manual's check are made. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

typedef enum OptionKind {
        OPTION_FLAG,     /* bool */
        OPTION_STRING,   /* char *, owned */
        OPTION_PATH,     /* char *, owned, made absolute */
        OPTION_LIST,     /* char **, owned; may be repeated */
        OPTION_NUMBER,   /* OptionNumber: digits only, between min and max */
        OPTION_SIZE,     /* OptionNumber: bytes, binary suffixes */
        OPTION_SECONDS,  /* OptionNumber, in microseconds */
        OPTION_MODE,     /* OptionNumber, octal */
        OPTION_FRACTION, /* OptionFraction */
        _OPTION_KIND_MAX,
        _OPTION_KIND_INVALID = -EINVAL,
} OptionKind;

typedef struct OptionNumber {
        bool set;
        uint64_t value;
} OptionNumber;

typedef struct OptionFraction {
        bool set;
        double value;
} OptionFraction;

typedef struct OptionSpec {
        const char *name; /* without "--" */
        char letter;      /* '\0': none */
        OptionKind kind;
        size_t offset;        /* into Arguments */
        const char *argument; /* what --help calls its value; NULL for flags */
        const char *help;
        uint64_t min, max; /* of numbers; max 0: INT64_MAX */
} OptionSpec;

typedef struct Arguments {
        bool help, version;
        bool system, user;
        bool json, quiet, force, all, remove_view, no_wait, resident, apply;
        char *base_dir, *socket;
        char *name, *view, *pid_file, *log_file, *owner, *group, *cache_root;
        char **patterns, **excludes;
        OptionNumber workers, chunk_size, max_memory_bytes, reserve_bytes, max_resident_bytes, max_bytes,
                repeat, mode;
        OptionNumber idle_ttl, ttl, wait_timeout, timeout; /* microseconds */
        OptionFraction max_memory_fraction;
        char **positional;    /* owned; without a name that was given first */
        char *const *command; /* what follows run's NAME; not owned */
} Arguments;

void arguments_done(Arguments *a);
#define _cleanup_arguments_ _cleanup_(arguments_done)

struct Verb;

/* Options before the verb: *ret_next is the verb's index in argv, or argc. On -EINVAL *ret_error (owned) says
 * what is wrong and what to do. */
int arguments_parse_global(int argc, char *const *argv, Arguments *a, int *ret_next, char **ret_error);
/* Options and operands after the verb, adding to what was found before it; argv[0] is the first of them.
 * Checks the number of operands and the cache's name. Returns at --help at once. */
int arguments_parse(const struct Verb *verb, int argc, char *const *argv, Arguments *a, char **ret_error);

/* What was probably meant: the candidate with the least edit distance, NULL where none is near. */
const char *closest_word(const char *word, const char *const *candidates, size_t n);
