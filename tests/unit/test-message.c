/* What workers say, and what lying ones might. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>

#include "base/text.h"
#include "daemon/message.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int parse(const char *text, size_t n_fds, WorkerMessage *ret)
{
        _cleanup_json_ struct json_object *o = NULL;
        const char *reason = NULL;
        FdSet fds = {};
        int r;

        assert_int_equal(json_parse_strict(text, strlen(text), &o, NULL), 0);
        for (size_t i = 0; i < n_fds; i++) {
                int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                assert_true(fd >= 0);
                assert_int_equal(fd_set_take(&fds, fd), 0);
        }
        r = worker_message_parse(o, &fds, "qwen", ret, &reason);
        /* They are taken, or closed, in every case. */
        assert_int_equal(fds.n, 0);
        assert_true((r == -EBADMSG) == (reason != NULL));
        return r;
}

static void selected_is_read(void **state)
{
        _cleanup_worker_message_ WorkerMessage m = {};

        assert_int_equal(
                parse("{\"event\":\"selected\",\"source\":\"/m\",\"fingerprint\":\"" HEX64
                      "\",\"files\":3,\"bytes\":100,\"largeFiles\":1,\"packBytes\":20,\"bufferBytes\":5}",
                      0, &m),
                0);
        assert_int_equal(m.event, WORKER_SELECTED);
        assert_string_equal(m.source, "/m");
        assert_string_equal(m.fingerprint, HEX64);
        assert_int_equal(m.files, 3);
        assert_int_equal(m.bytes, 100);
        assert_int_equal(m.large_files, 1);
        assert_int_equal(m.pack_bytes, 20);
        assert_int_equal(m.buffer_bytes, 5);
}

static void lies_are_refused(void **state)
{
        static const char *const lies[] = {
                "{}",
                "{\"event\":5}",
                "{\"event\":\"unheard\"}",
                "{\"event\":\"progress\"}",
                "{\"event\":\"progress\",\"bytesLoaded\":-1}",
                "{\"event\":\"progress\",\"bytesLoaded\":\"1\"}",
                "{\"event\":\"progress\",\"bytesLoaded\":1.5}",
                "{\"event\":\"loaded\",\"descriptors\":1,\"firstDescriptor\":64,\"bytesLoaded\":1}",
                "{\"event\":\"loaded\",\"descriptors\":-1,\"firstDescriptor\":64,\"bytesLoaded\":1,"
                "\"copyUSec\":1}",
                "{\"event\":\"error\"}",
                "{\"event\":\"error\",\"error\":\"LoadFailed\"}",
                "{\"event\":\"error\",\"error\":\"NoSuchCache\",\"message\":\"x\"}",
                "{\"event\":\"error\",\"error\":\"LoadFailed\",\"message\":\"x\",\"files\":\"many\"}",
                "{\"event\":\"error\",\"error\":\"LoadFailed\",\"message\":7}",
                "{\"event\":\"probed\"}",
                /* no file; more large files than files; a pack larger than all; no fingerprint; a relative
                   source */
                "{\"event\":\"selected\",\"source\":\"/m\",\"fingerprint\":\"" HEX64
                "\",\"files\":0,\"bytes\":0,\"largeFiles\":0,\"packBytes\":0,\"bufferBytes\":0}",
                "{\"event\":\"selected\",\"source\":\"/m\",\"fingerprint\":\"" HEX64
                "\",\"files\":1,\"bytes\":9,\"largeFiles\":2,\"packBytes\":0,\"bufferBytes\":0}",
                "{\"event\":\"selected\",\"source\":\"/m\",\"fingerprint\":\"" HEX64
                "\",\"files\":1,\"bytes\":9,\"largeFiles\":0,\"packBytes\":10,\"bufferBytes\":0}",
                "{\"event\":\"selected\",\"source\":\"/m\",\"fingerprint\":\"abc"
                "\",\"files\":1,\"bytes\":9,\"largeFiles\":0,\"packBytes\":9,\"bufferBytes\":0}",
                "{\"event\":\"selected\",\"source\":\"m\",\"fingerprint\":\"" HEX64
                "\",\"files\":1,\"bytes\":9,\"largeFiles\":0,\"packBytes\":9,\"bufferBytes\":0}",
        };

        for (size_t i = 0; i < ELEMENTSOF(lies); i++) {
                _cleanup_worker_message_ WorkerMessage m = {};

                if (parse(lies[i], 0, &m) != -EBADMSG)
                        fail_msg("accepted: %s", lies[i]);
        }
}

static void descriptors_come_with_files_and_only_there(void **state)
{
        _cleanup_worker_message_ WorkerMessage m = {}, n = {};

        assert_int_equal(parse("{\"event\":\"files\",\"first\":4}", 3, &m), 0);
        assert_int_equal(m.first, 4);
        assert_int_equal(m.fds.n, 3);
        assert_int_equal(parse("{\"event\":\"files\",\"first\":4}", 0, &n), -EBADMSG);
        assert_int_equal(parse("{\"event\":\"holding\"}", 1, &n), -EBADMSG);
        assert_int_equal(parse("{\"event\":\"nonsense\"}", 2, &n), -EBADMSG);
}

static void errors_become_faults(void **state)
{
        _cleanup_worker_message_ WorkerMessage m = {};

        assert_int_equal(
                parse("{\"event\":\"error\",\"error\":\"TooManyFiles\",\"message\":\"too many\\n\\u001b[2J\","
                      "\"path\":\"/m\",\"files\":9,\"maximum\":3}",
                      0, &m),
                0);
        assert_int_equal(m.fault.kind, FAULT_TOO_MANY_FILES);
        assert_string_equal(m.fault.subject, "/m");
        assert_int_equal(m.fault.files, 9);
        assert_int_equal(m.fault.maximum, 3);
        assert_non_null(strstr(m.fault.message, "qwen"));
        /* Nothing that a terminal would obey. */
        for (const char *c = m.fault.message; *c; c++)
                assert_true((unsigned char) *c >= 0x20);
        worker_message_done(&m);
        /* The subject is what bounds the memory, and not the file that was being read. */
        assert_int_equal(
                parse("{\"event\":\"error\",\"error\":\"InsufficientMemory\",\"message\":\"no memory\","
                      "\"path\":\"/m/a.safetensors\"}",
                      0, &m),
                0);
        assert_int_equal(m.fault.kind, FAULT_INSUFFICIENT_MEMORY);
        assert_string_equal(m.fault.subject, "MemAvailable");
}

static void long_texts_are_refused(void **state)
{
        _cleanup_worker_message_ WorkerMessage m = {};
        _cleanup_free_ char *text = NULL, *long_text = malloc(MESSAGE_TEXT_MAX + 2);

        assert_non_null(long_text);
        memset(long_text, 'x', MESSAGE_TEXT_MAX + 1);
        long_text[MESSAGE_TEXT_MAX + 1] = '\0';
        assert_int_equal(text_format(&text,
                                     "{\"event\":\"error\",\"error\":\"LoadFailed\",\"message\":\"%s\"}",
                                     long_text),
                         0);
        assert_int_equal(parse(text, 0, &m), -EBADMSG);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(selected_is_read),
                cmocka_unit_test(lies_are_refused),
                cmocka_unit_test(descriptors_come_with_files_and_only_there),
                cmocka_unit_test(errors_become_faults),
                cmocka_unit_test(long_texts_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
