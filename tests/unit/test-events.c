/* daemon/events: the table, its fields, and the shipped catalog. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <syslog.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/events.h"

static void test_table(void **state)
{
        for (int i = 0; i < _EVENT_KIND_MAX; i++) {
                const char *id = event_message_id(i);

                assert_non_null(id);
                assert_int_equal(strlen(id), 32);
                assert_int_equal(strspn(id, "0123456789abcdef"), 32);
                for (int j = 0; j < i; j++)
                        assert_string_not_equal(id, event_message_id(j));
                assert_in_range(event_level(i), LOG_ERR, LOG_INFO);
        }
        assert_null(event_message_id(_EVENT_KIND_MAX));
        assert_null(event_message_id(_EVENT_KIND_INVALID));
        assert_int_equal(event_level(_EVENT_KIND_INVALID), LOG_ERR);
}

/* Each identifier has an entry with a subject and a text, and there are no others. */
static void test_catalog(void **state)
{
        _cleanup_free_ char *text = NULL;
        size_t entries = 0;

        assert_int_equal(fd_read_file_at(AT_FDCWD, "units/iloader.catalog", MIB(1), &text, NULL), 0);
        for (const char *p = text; (p = strstr(p, "\n-- ")); p++)
                entries++;
        assert_int_equal(entries, _EVENT_KIND_MAX);
        for (int i = 0; i < _EVENT_KIND_MAX; i++) {
                _cleanup_free_ char *head = NULL;
                const char *entry, *end, *body;

                assert_int_equal(text_format(&head, "\n-- %s\nSubject: ", event_message_id(i)), 0);
                entry = strstr(text, head);
                if (!entry)
                        fail_msg("event %d has no entry", i);
                end = strstr(entry + 1, "\n-- ");
                body = strstr(entry, "\n\n");
                assert_non_null(body);
                assert_true(body[2] != '\0' && (!end || body + 2 < end));
        }
}

static void expect_fields(const EventFields *f, bool privileged, const char *const *expected, size_t n)
{
        _cleanup_strv_ char **fields = NULL;

        assert_int_equal(event_fields_format(f, privileged, &fields), 0);
        assert_int_equal(strv_length(fields), n);
        for (size_t i = 0; i < n; i++)
                assert_string_equal(fields[i], expected[i]);
}

static void test_fields(void **state)
{
        static const char *const all[] = {
                "ILOADER_CACHE=qwen",
                "OBJECT_SYSTEMD_UNIT=iloader@qwen.service",
                "ILOADER_SOURCE=/models/with\nnewline",
                "ILOADER_BYTES=18446744073709551614",
                "ILOADER_DURATION_USEC=0",
                "ILOADER_PID=4321",
                "ILOADER_UID=4294967294",
                "ILOADER_REASON=because",
        };
        static const char *const user[] = {"ILOADER_CACHE=qwen"};
        const EventFields none = EVENT_FIELDS_INIT;
        EventFields f = EVENT_FIELDS_INIT;

        expect_fields(&none, true, NULL, 0);
        f.cache = "qwen";
        /* journald would believe it of root only. */
        expect_fields(&f, false, user, ELEMENTSOF(user));
        f.source = "/models/with\nnewline";
        f.bytes = UINT64_MAX - 1;
        f.duration = 0;
        f.pid = 4321;
        f.uid = UINT32_MAX - 1;
        f.reason = "because";
        expect_fields(&f, true, all, ELEMENTSOF(all));
}

static void test_log(void **state)
{
        const EventFields f = {
                .cache = "qwen", .bytes = UINT64_MAX, .duration = USEC_INFINITY, .uid = (uid_t) -1};
        char said[256] = {};
        int pipes[2], saved;

        assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
        saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        assert_true(saved >= 0);
        assert_true(dup2(pipes[1], STDERR_FILENO) >= 0);
        log_setup(LOG_TARGET_STDERR, LOG_INFO, "test-events");
        event_log(EVENT_CACHE_READY, &f, "cache '%s' is ready: %d%%", "qwen", 100);
        event_log(EVENT_MANAGER_STARTED, NULL, "%s", "it started");
        assert_true(dup2(saved, STDERR_FILENO) >= 0);
        assert_true(read(pipes[0], said, sizeof(said) - 1) > 0);
        (void) close(saved);
        (void) close(pipes[0]);
        (void) close(pipes[1]);
        assert_non_null(strstr(said, "cache 'qwen' is ready: 100%\n"));
        assert_non_null(strstr(said, "it started\n"));
        assert_null(strstr(said, "ILOADER_"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_catalog),
                cmocka_unit_test(test_fields),
                cmocka_unit_test(test_log),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
