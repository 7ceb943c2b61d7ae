/* --help, out of the verb table. */
#pragma once

#include <stdio.h>

#include "ctl/verb.h"

void help_program(FILE *f);
void help_verb(FILE *f, const Verb *v);
