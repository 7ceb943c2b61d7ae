/* What a name stands for, in 64 characters. */
#include "checkpoint/fingerprint.h"

#include <string.h>

#include "base/text.h"

/* Changes when what is hashed does, so that old and new fingerprints never agree by chance. */
#define FINGERPRINT_FORMAT "iloader fingerprint 1"

static int compare_texts(const void *a, const void *b)
{
        return strcmp(*(char *const *) a, *(char *const *) b);
}

/* As a set: neither the order of the options nor repetition changes what is selected. */
static int hash_patterns(Digest *d, char *const *patterns)
{
        _cleanup_free_ const char **sorted = NULL;
        size_t n = strv_length(patterns), unique = 0;

        sorted = calloc(n + 1, sizeof(*sorted));
        if (!sorted)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                sorted[i] = patterns[i];
        qsort(sorted, n, sizeof(*sorted), compare_texts);
        for (size_t i = 0; i < n; i++)
                if (unique == 0 || !streq(sorted[unique - 1], sorted[i]))
                        sorted[unique++] = sorted[i];

        digest_update_u64(d, unique);
        for (size_t i = 0; i < unique; i++)
                digest_update_string(d, sorted[i]);
        return 0;
}

int fingerprint_compute(const char *source_path, const SelectionOptions *options, const Selection *selection,
                        char ret[static DIGEST_HEX_MAX])
{
        _cleanup_(digest_freep) Digest *d = NULL;
        int r;

        r = digest_new(&d);
        if (r < 0)
                return r;
        digest_update_string(d, FINGERPRINT_FORMAT);
        digest_update_string(d, source_path);
        r = hash_patterns(d, options->patterns);
        if (r < 0)
                return r;
        r = hash_patterns(d, options->excludes ?: (char *const *) selection_default_excludes);
        if (r < 0)
                return r;

        digest_update_u64(d, selection->n_files);
        for (size_t i = 0; i < selection->n_files; i++) {
                const SelectedFile *f = &selection->files[i];

                digest_update_string(d, f->path);
                digest_update_u64(d, f->identity.size);
                digest_update_u64(d, (uint64_t) f->identity.mtime_ns);
                digest_update_u64(d, (uint64_t) f->identity.ctime_ns);
                digest_update_u64(d, f->identity.device);
                digest_update_u64(d, f->identity.inode);
        }
        digest_finish_hex(d, ret);
        return 0;
}
