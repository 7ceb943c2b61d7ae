/* SHA-256 (FIPS 180-4) through libgcrypt; the only user of that library. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

#define DIGEST_SIZE    32U
#define DIGEST_HEX_MAX 65

typedef struct Digest Digest;

int digest_new(Digest **ret);
Digest *digest_free(Digest *d);
DEFINE_CLEANUP(Digest *, digest_free)
void digest_update(Digest *d, const void *data, size_t n);
/* Each integer as 8 bytes, little endian. */
void digest_update_u64(Digest *d, uint64_t v);
/* The length, then the bytes, so that no two sequences of strings hash alike. */
void digest_update_string(Digest *d, const char *s);
/* Ends the digest; hexadecimal, lower case. */
void digest_finish_hex(Digest *d, char ret[static DIGEST_HEX_MAX]);
