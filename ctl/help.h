/* --help, out of the verb table. */
#pragma once

#include <stdio.h>

#include "ctl/verb.h"

void help_program(FILE *f);
void help_verb(FILE *f, const Verb *v);
/* Says what is wrong with a verb's command line, and where its help is; returns EXIT_USAGE. */
int help_refer(const Invocation *i, const char *message);
