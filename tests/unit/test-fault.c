/* Typed refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/text.h"
#include "daemon/fault.h"

static void the_first_cause_counts(void **state)
{
        _cleanup_fault_ Fault f = {};

        assert_int_equal(fault_set(&f, FAULT_SOURCE_INVALID, "/a", "first %d", 1), FAULT_REFUSED);
        assert_int_equal(fault_set(&f, FAULT_LOAD_FAILED, "b", "second"), FAULT_REFUSED);
        assert_int_equal(f.kind, FAULT_SOURCE_INVALID);
        assert_string_equal(f.subject, "/a");
        assert_string_equal(fault_message(&f), "first 1");
}

static void done_leaves_an_empty_one(void **state)
{
        Fault f = {};

        (void) fault_set(&f, FAULT_QUOTA_EXCEEDED, NULL, "x");
        f.maximum = 5;
        fault_done(&f);
        assert_int_equal(f.kind, FAULT_NONE);
        assert_null(f.message);
        assert_int_equal(f.maximum, 0);
        fault_done(&f);
        assert_non_null(fault_message(&f));
}

static void copies_are_their_own(void **state)
{
        _cleanup_fault_ Fault copy = {};
        Fault f = {};

        (void) fault_set(&f, FAULT_TOO_MANY_FILES, "s", "m");
        f.files = 7;
        assert_int_equal(fault_copy(&f, &copy), 0);
        fault_done(&f);
        assert_int_equal(copy.kind, FAULT_TOO_MANY_FILES);
        assert_string_equal(copy.subject, "s");
        assert_string_equal(copy.message, "m");
        assert_int_equal(copy.files, 7);
}

static void workers_may_name_only_their_errors(void **state)
{
        static const char *const foreign[] = {
                "CacheLeased",   "NoSuchCache",    "QuotaExceeded", "",
                "sourceInvalid", "SourceInvalid ", "LimitExceeded", "InvalidName"};

        assert_int_equal(fault_kind_from_worker("SourceInvalid"), FAULT_SOURCE_INVALID);
        assert_int_equal(fault_kind_from_worker("SourceChanged"), FAULT_SOURCE_CHANGED);
        assert_int_equal(fault_kind_from_worker("TooManyFiles"), FAULT_TOO_MANY_FILES);
        assert_int_equal(fault_kind_from_worker("ViewConflict"), FAULT_VIEW_CONFLICT);
        assert_int_equal(fault_kind_from_worker("LoadFailed"), FAULT_LOAD_FAILED);
        assert_int_equal(fault_kind_from_worker("InsufficientMemory"), FAULT_INSUFFICIENT_MEMORY);
        for (size_t i = 0; i < ELEMENTSOF(foreign); i++)
                assert_int_equal(fault_kind_from_worker(foreign[i]), _FAULT_KIND_INVALID);
}

static void an_errno_is_told_in_words(void **state)
{
        _cleanup_fault_ Fault f = {};

        assert_int_equal(fault_set_errno(&f, -ENOSPC, "qwen", "cannot do it"), FAULT_REFUSED);
        assert_int_equal(f.kind, FAULT_LOAD_FAILED);
        assert_non_null(strstr(f.message, "qwen"));
        assert_non_null(strstr(f.message, strerror(ENOSPC)));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_first_cause_counts),
                cmocka_unit_test(done_leaves_an_empty_one),
                cmocka_unit_test(copies_are_their_own),
                cmocka_unit_test(workers_may_name_only_their_errors),
                cmocka_unit_test(an_errno_is_told_in_words),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
