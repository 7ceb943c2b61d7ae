/* SHA-256 through libgcrypt. */
#include "base/digest.h"

#include <gcrypt.h>
#include <string.h>

struct Digest {
        gcry_md_hd_t handle;
};

/* The application's part of libgcrypt's initialization, unless something else in the process has done it. No
 * secrets are hashed here, so no locked memory is set aside. */
static int library_init(void)
{
        if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P))
                return 0;
        if (!gcry_check_version(NULL))
                return -ENOSYS;
        (void) gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
        (void) gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
        return 0;
}

int digest_new(Digest **ret)
{
        Digest *d;
        gcry_error_t error;
        int r;

        r = library_init();
        if (r < 0)
                return r;
        d = calloc(1, sizeof(Digest));
        if (!d)
                return -ENOMEM;
        error = gcry_md_open(&d->handle, GCRY_MD_SHA256, 0);
        if (error) {
                free(d);
                return gcry_err_code(error) == GPG_ERR_ENOMEM ? -ENOMEM : -EIO;
        }
        *ret = d;
        return 0;
}

Digest *digest_free(Digest *d)
{
        if (!d)
                return NULL;
        gcry_md_close(d->handle);
        free(d);
        return NULL;
}

void digest_update(Digest *d, const void *data, size_t n)
{
        if (n > 0)
                gcry_md_write(d->handle, data, n);
}

void digest_update_u64(Digest *d, uint64_t v)
{
        unsigned char bytes[8];
        size_t i;

        for (i = 0; i < sizeof(bytes); i++)
                bytes[i] = (unsigned char) (v >> (8 * i));
        digest_update(d, bytes, sizeof(bytes));
}

void digest_update_string(Digest *d, const char *s)
{
        size_t n = strlen(s);

        digest_update_u64(d, n);
        digest_update(d, s, n);
}

void digest_finish_hex(Digest *d, char ret[static DIGEST_HEX_MAX])
{
        static const char digits[] = "0123456789abcdef";
        const unsigned char *value = gcry_md_read(d->handle, GCRY_MD_SHA256);
        size_t i;

        for (i = 0; i < DIGEST_SIZE; i++) {
                ret[2 * i] = digits[value[i] >> 4];
                ret[2 * i + 1] = digits[value[i] & 0x0f];
        }
        ret[DIGEST_HEX_MAX - 1] = '\0';
}
