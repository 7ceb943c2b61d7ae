/* A word to who names a directory of checkpoints where one checkpoint was meant. */
#pragma once

/* Says on standard error that the directory at path looks like several checkpoints: neither a configuration
 * nor weights are at its top, but files are in several of its directories. What cannot be read is not judged.
 */
void checkpoint_note(const char *path);
