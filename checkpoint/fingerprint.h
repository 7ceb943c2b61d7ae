/* The fingerprint: SHA-256 over source path, selection options and the identity of each selected file. Two
 * equal ones mean that nothing that was looked at differs. Deterministic; the order of files is the
 * selection's. */
#pragma once

#include "base/digest.h"
#include "checkpoint/source.h"

int fingerprint_compute(const char *source_path, const SelectionOptions *options, const Selection *selection,
                        char ret[static DIGEST_HEX_MAX]);
