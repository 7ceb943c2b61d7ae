/* daemon/settings: defaults, and which settings are the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/text.h"
#include "daemon/settings.h"

static CacheSettings *new_settings(void)
{
        CacheSettings *s = NULL;

        assert_int_equal(cache_settings_new("qwen", &s), 0);
        s->source = strdup("/models/qwen");
        assert_non_null(s->source);
        return s;
}

static void test_defaults(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *s = NULL;

        assert_int_equal(cache_settings_new("qwen", &s), 0);
        assert_string_equal(s->name, "qwen");
        assert_null(s->source);
        assert_null(s->view);
        assert_null(s->pid_file);
        assert_null(s->log_file);
        assert_null(s->patterns);
        assert_null(s->excludes);
        assert_null(s->owner);
        assert_null(s->group);
        assert_int_equal(s->workers, 0);
        assert_int_equal(s->chunk_size, 67108864);
        assert_true(s->memory_fraction == 0.90);
        assert_int_equal(s->max_memory_bytes, UINT64_MAX);
        assert_int_equal(s->reserve_bytes, 268435456);
        assert_int_equal(s->max_resident_bytes, UINT64_MAX);
        assert_int_equal(s->idle_ttl, USEC_INFINITY);
        assert_false(s->force);
        assert_int_equal(s->mode, 0400);
        assert_null(cache_settings_free(NULL));
}

static void test_same(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *a = new_settings(), *b = new_settings();
        char *difference = NULL;

        assert_int_equal(cache_settings_compare(a, b, &difference), 1);
        assert_null(difference);
        /* Not part of what a cache is. */
        b->force = true;
        b->max_resident_bytes = 5;
        free(b->name);
        b->name = strdup("other");
        assert_int_equal(cache_settings_compare(a, b, &difference), 1);
        /* Written in another way. */
        b->memory_fraction = 9.0 / 10.0 + 1e-12;
        assert_int_equal(cache_settings_compare(a, b, &difference), 1);
        assert_int_equal(strv_append(&a->patterns, "*.bin"), 0);
        assert_int_equal(strv_append(&b->patterns, "*.bin"), 0);
        assert_int_equal(cache_settings_compare(a, b, &difference), 1);
}

/* Both values must be named, whichever side asked. */
static void differ(const CacheSettings *a, const CacheSettings *b, const char *what, const char *va,
                   const char *vb)
{
        _cleanup_free_ char *forth = NULL, *back = NULL, *expect_forth = NULL, *expect_back = NULL;

        assert_int_equal(cache_settings_compare(a, b, &forth), 0);
        assert_int_equal(cache_settings_compare(b, a, &back), 0);
        assert_int_equal(text_format(&expect_forth, "%s %s, %s was asked for", what, va, vb), 0);
        assert_int_equal(text_format(&expect_back, "%s %s, %s was asked for", what, vb, va), 0);
        assert_string_equal(forth, expect_forth);
        assert_string_equal(back, expect_back);
        assert_int_equal(cache_settings_compare(a, b, NULL), 0);
}

static void replace(char **field, const char *value)
{
        free(*field);
        *field = value ? strdup(value) : NULL;
}

static void test_texts_differ(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *a = new_settings(), *b = new_settings();

        replace(&b->source, "/models/with\nnewline");
        differ(a, b, "its source is", "'/models/qwen'", "'/models/with\\x0anewline'");
        replace(&b->source, "/models/qwen");
        replace(&b->view, "/views/q");
        differ(a, b, "its view is", "the default one", "'/views/q'");
        replace(&b->view, NULL);
        replace(&b->pid_file, "/run/q.pid");
        differ(a, b, "its PID file is", "the default one", "'/run/q.pid'");
        replace(&b->pid_file, NULL);
        replace(&b->log_file, "/run/q.log");
        differ(a, b, "its log file is", "the default one", "'/run/q.log'");
        replace(&b->log_file, NULL);
        replace(&b->owner, "alice");
        differ(a, b, "its owner is", "the caller", "'alice'");
        replace(&b->owner, NULL);
        replace(&b->group, "models");
        differ(a, b, "its group is", "the owner's", "'models'");
}

static void test_lists_differ(void **state)
{
        _cleanup_(cache_settings_freep) CacheSettings *a = new_settings(), *b = new_settings();

        assert_int_equal(strv_append(&b->patterns, "*.safetensors"), 0);
        assert_int_equal(strv_append(&b->patterns, "*.json"), 0);
        differ(a, b, "its patterns are", "all files", "'*.safetensors *.json'");
        b->patterns = strv_free(b->patterns);
        b->excludes = calloc(1, sizeof(char *));
        assert_non_null(b->excludes);
        /* Excluding nothing isn't excluding the default. */
        differ(a, b, "its exclusions are", "the default ones", "''");
}

static void test_numbers_differ(void **state)
{
        _cleanup_free_ char *difference = NULL;
        _cleanup_(cache_settings_freep) CacheSettings *a = new_settings(), *b = new_settings();

        b->workers = 4;
        differ(a, b, "the number of its workers is", "the default", "4");
        b->workers = 0;
        b->chunk_size = 4096;
        differ(a, b, "its chunk size is", "64.0 MiB", "4.0 KiB");
        b->chunk_size = a->chunk_size;
        b->memory_fraction = 0.5;
        differ(a, b, "its memory fraction is", "0.9", "0.5");
        b->memory_fraction = a->memory_fraction;
        b->max_memory_bytes = GIB(32);
        differ(a, b, "its memory cap is", "none", "32.0 GiB");
        b->max_memory_bytes = UINT64_MAX;
        b->reserve_bytes = 0;
        differ(a, b, "its memory reserve is", "256.0 MiB", "0 B");
        /* Where rounding would make the two look alike, to the byte. */
        b->reserve_bytes = a->reserve_bytes + 1;
        assert_int_equal(cache_settings_compare(a, b, &difference), 0);
        assert_string_equal(difference, "its memory reserve is 268435456 bytes, 268435457 were asked for");
        b->reserve_bytes = a->reserve_bytes;
        b->idle_ttl = 3600 * USEC_PER_SEC;
        differ(a, b, "its idle TTL is", "none", "1h");
        b->idle_ttl = USEC_INFINITY;
        b->mode = 0440;
        differ(a, b, "its mode is", "0400", "0440");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_defaults),       cmocka_unit_test(test_same),
                cmocka_unit_test(test_texts_differ),   cmocka_unit_test(test_lists_differ),
                cmocka_unit_test(test_numbers_differ),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
