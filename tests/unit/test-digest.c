#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/digest.h"

static void hash(const char *data, size_t n, size_t step, char ret[static DIGEST_HEX_MAX])
{
        _cleanup_(digest_freep) Digest *d = NULL;
        size_t at;

        assert_int_equal(digest_new(&d), 0);
        for (at = 0; at < n; at += step)
                digest_update(d, data + at, MIN2(step, n - at));
        digest_finish_hex(d, ret);
}

/* The examples that come with FIPS 180. */
static void test_vectors(_unused_ void **state)
{
        static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        _cleanup_free_ char *million = NULL;
        char hex[DIGEST_HEX_MAX];

        hash("", 0, 1, hex);
        assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        hash("abc", 3, 3, hex);
        assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        hash(two_blocks, strlen(two_blocks), 7, hex);
        assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        million = malloc(1000000);
        assert_non_null(million);
        memset(million, 'a', 1000000);
        hash(million, 1000000, 4099, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_integers(_unused_ void **state)
{
        _cleanup_(digest_freep) Digest *d = NULL;
        char a[DIGEST_HEX_MAX], b[DIGEST_HEX_MAX];

        assert_int_equal(digest_new(&d), 0);
        digest_update_u64(d, 0x0123456789abcdefULL);
        digest_finish_hex(d, a);
        hash("\xef\xcd\xab\x89\x67\x45\x23\x01", 8, 8, b);
        assert_string_equal(a, b);
}

static void test_strings_are_framed(_unused_ void **state)
{
        _cleanup_(digest_freep) Digest *x = NULL, *y = NULL;
        char a[DIGEST_HEX_MAX], b[DIGEST_HEX_MAX];

        assert_int_equal(digest_new(&x), 0);
        digest_update_string(x, "ab");
        digest_update_string(x, "c");
        digest_finish_hex(x, a);
        assert_int_equal(digest_new(&y), 0);
        digest_update_string(y, "a");
        digest_update_string(y, "bc");
        digest_finish_hex(y, b);
        assert_string_not_equal(a, b);
        assert_null(digest_free(NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_vectors),
                cmocka_unit_test(test_integers),
                cmocka_unit_test(test_strings_are_framed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
