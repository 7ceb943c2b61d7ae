/* daemon/registry: entries that come back, and files that don't count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "daemon/registry.h"
#include "tests/unit/scratch.h"

#define BOOT        "0123456789abcdef0123456789abcdef"
#define FINGERPRINT BOOT BOOT

static void load(const Scratch *d, RegistryEntry ***ret, size_t n, size_t damaged)
{
        size_t found_n = 99, found_damaged = 99;

        assert_int_equal(registry_load(d->fd, ret, &found_n, &found_damaged), 0);
        assert_int_equal(found_n, n);
        assert_int_equal(found_damaged, damaged);
}

static bool exists(const Scratch *d, const char *name)
{
        return faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_round_trip(void **state)
{
        const Scratch *d = *state;
        const RegistryEntry full = {
                .name = (char *) "qwen",
                .boot_id = BOOT,
                .worker_pid = 4321,
                .worker_start_time = 987654321,
                .uid = 1000,
                .gid = 4000000000U,
                .source = (char *) "/models/\xff with\nnewline",
                .view = (char *) "/run/iloader/views/qwen",
                .pid_file = (char *) "/run/qwen.pid",
                .log_file = (char *) "/var/log/qwen.log",
                .fingerprint = (char *) FINGERPRINT,
                .bytes = GIB(500),
                .view_by_manager = true,
        };
        const RegistryEntry bare = {.name = (char *) "a.json.damaged", .boot_id = BOOT};
        RegistryEntry **entries = NULL;
        struct stat st;

        load(d, &entries, 0, 0);
        assert_null(entries);
        assert_int_equal(registry_save(d->fd, &full), 0);
        assert_int_equal(registry_save(d->fd, &bare), 0);
        assert_int_equal(fstatat(d->fd, "qwen.json", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        load(d, &entries, 2, 0);
        assert_string_equal(entries[0]->name, "a.json.damaged");
        assert_null(entries[0]->source);
        assert_null(entries[0]->fingerprint);
        assert_int_equal(entries[0]->worker_pid, 0);
        assert_string_equal(entries[1]->name, "qwen");
        assert_string_equal(entries[1]->boot_id, BOOT);
        assert_int_equal(entries[1]->worker_pid, 4321);
        assert_int_equal(entries[1]->worker_start_time, 987654321);
        assert_int_equal(entries[1]->uid, 1000);
        assert_int_equal(entries[1]->gid, 4000000000U);
        assert_string_equal(entries[1]->source, full.source);
        assert_string_equal(entries[1]->view, full.view);
        assert_string_equal(entries[1]->pid_file, full.pid_file);
        assert_string_equal(entries[1]->log_file, full.log_file);
        assert_string_equal(entries[1]->fingerprint, FINGERPRINT);
        assert_int_equal(entries[1]->bytes, GIB(500));
        assert_true(entries[1]->view_by_manager);
        entries = registry_entries_free(entries, 2);

        assert_int_equal(registry_remove(d->fd, "qwen"), 0);
        assert_int_equal(registry_remove(d->fd, "qwen"), 0);
        load(d, &entries, 1, 0);
        entries = registry_entries_free(entries, 1);
        assert_null(registry_entries_free(NULL, 0));
}

static void test_save_replaces(void **state)
{
        const Scratch *d = *state;
        RegistryEntry e = {.name = (char *) "qwen", .boot_id = BOOT, .bytes = 1};
        RegistryEntry **entries = NULL;

        assert_int_equal(registry_save(d->fd, &e), 0);
        e.bytes = 2;
        assert_int_equal(registry_save(d->fd, &e), 0);
        load(d, &entries, 1, 0);
        assert_int_equal(entries[0]->bytes, 2);
        entries = registry_entries_free(entries, 1);
}

static void test_bad_names(void **state)
{
        static const char *const names[] = {"", "../x", "a/b", ".x", "a..b"};
        const Scratch *d = *state;

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                const RegistryEntry e = {.name = (char *) names[i], .boot_id = BOOT};

                assert_int_equal(registry_save(d->fd, &e), -EINVAL);
                assert_int_equal(registry_remove(d->fd, names[i]), -EINVAL);
        }
}

/* A good entry's fields, of which a case changes one. */
typedef struct Fields {
        const char *head, *name, *boot, *pid, *start, *uid, *gid, *bytes, *by_manager, *rest;
} Fields;

static void write_fields(const Scratch *d, const Fields *f)
{
        _cleanup_free_ char *text = NULL;

        assert_int_equal(text_format(&text, "{%s%s%s%s%s%s%s%s%s%s}", f->head ?: "\"iloaderRegistry\":1",
                                     f->name ?: ",\"name\":\"qwen\"", f->boot ?: ",\"bootId\":\"" BOOT "\"",
                                     f->pid ?: ",\"workerPid\":12", f->start ?: ",\"workerStartTime\":5",
                                     f->uid ?: ",\"uid\":0", f->gid ?: ",\"gid\":0",
                                     f->bytes ?: ",\"bytes\":7", f->by_manager ?: ",\"viewByManager\":false",
                                     f->rest ?: ""),
                         0);
        assert_int_equal(fd_write_file_at(d->fd, "qwen.json", text, strlen(text), 0600, false), 0);
}

static void test_bad_fields(void **state)
{
        static const Fields bad[] = {
                {.head = "\"iloaderRegistry\":2"},
                {.head = "\"iloaderRegistry\":\"1\""},
                {.head = "\"other\":1"},
                {.name = ""},
                {.name = ",\"name\":\"other\""},
                {.name = ",\"name\":[]"},
                {.name = ",\"name\":\"qwen\",\"name\":\"qwen\""},
                {.boot = ""},
                {.boot = ",\"bootId\":\"0123\""},
                {.boot = ",\"bootId\":\"0123456789ABCDEF0123456789ABCDEF\""},
                {.boot = ",\"bootId\":\"" BOOT "0\""},
                {.pid = ""},
                {.pid = ",\"workerPid\":-1"},
                {.pid = ",\"workerPid\":1"},
                {.pid = ",\"workerPid\":2147483648"},
                {.pid = ",\"workerPid\":\"12\""},
                {.pid = ",\"workerPid\":12.5"},
                {.start = ""},
                {.start = ",\"workerStartTime\":-5"},
                {.uid = ""},
                {.uid = ",\"uid\":-1"},
                {.uid = ",\"uid\":4294967295"},
                {.gid = ",\"gid\":4294967296"},
                {.gid = ",\"gid\":true"},
                {.bytes = ""},
                {.bytes = ",\"bytes\":-1"},
                {.bytes = ",\"bytes\":9223372036854775808"},
                {.by_manager = ""},
                {.by_manager = ",\"viewByManager\":1"},
                {.rest = ",\"source\":\"relative\""},
                {.rest = ",\"source\":\"/a/../b\""},
                {.rest = ",\"source\":\"/a/\""},
                {.rest = ",\"view\":\"\""},
                {.rest = ",\"view\":7"},
                {.rest = ",\"pidFile\":\"/a\",\"pidFileBytes\":\"not base64\""},
                {.rest = ",\"logFile\":\"/a\",\"logFileBytes\":\"L2EAYg==\""},
                {.rest = ",\"fingerprint\":\"00\""},
                {.rest = ",\"fingerprint\":\"" BOOT BOOT "z\""},
                {.rest = ",\"fingerprint\":5"},
        };
        const Scratch *d = *state;
        RegistryEntry **entries = NULL;

        write_fields(d, &(Fields){.rest = ",\"fingerprint\":\"" FINGERPRINT "\",\"later\":[{}]"});
        load(d, &entries, 1, 0);
        assert_int_equal(entries[0]->worker_pid, 12);
        entries = registry_entries_free(entries, 1);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                size_t n, damaged;

                write_fields(d, &bad[i]);
                assert_int_equal(registry_load(d->fd, &entries, &n, &damaged), 0);
                if (n != 0 || damaged != 1 || exists(d, "qwen.json") || !exists(d, "qwen.damaged"))
                        fail_msg("case %zu: %zu entries, %zu damaged", i, n, damaged);
        }
}

static void test_bad_files(void **state)
{
        static const char *const bad[] = {"", "{", "[]", "7", "null", "\"text\"", "{}", "{}x", "not JSON"};
        const Scratch *d = *state;
        _cleanup_free_ char *large = NULL;
        RegistryEntry **entries = NULL;
        const RegistryEntry good = {.name = (char *) "good", .boot_id = BOOT};

        assert_int_equal(registry_save(d->fd, &good), 0);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                assert_int_equal(fd_write_file_at(d->fd, "qwen.json", bad[i], strlen(bad[i]), 0600, false),
                                 0);
                load(d, &entries, 1, 1);
                assert_string_equal(entries[0]->name, "good");
                entries = registry_entries_free(entries, 1);
                assert_false(exists(d, "qwen.json"));
        }
        large = malloc(KIB(64) + 2);
        assert_non_null(large);
        memset(large, ' ', KIB(64) + 1);
        memcpy(large, "{}", 2);
        assert_int_equal(fd_write_file_at(d->fd, "qwen.json", large, KIB(64) + 1, 0600, false), 0);
        load(d, &entries, 1, 1);
        entries = registry_entries_free(entries, 1);
}

/* Other files in the directory aren't looked at; what stands in an entry's place isn't followed nor waited
 * for. */
static void test_planted(void **state)
{
        const Scratch *d = *state;
        RegistryEntry **entries = NULL;
        const RegistryEntry good = {.name = (char *) "good", .boot_id = BOOT};

        assert_int_equal(registry_save(d->fd, &good), 0);
        assert_int_equal(fd_write_file_at(d->fd, "README", "x", 1, 0600, false), 0);
        assert_int_equal(fd_write_file_at(d->fd, ".x.json", "x", 1, 0600, false), 0);
        assert_int_equal(fd_write_file_at(d->fd, ".json", "x", 1, 0600, false), 0);
        assert_int_equal(fd_write_file_at(d->fd, "old.damaged", "x", 1, 0600, false), 0);
        assert_int_equal(symlinkat("good.json", d->fd, "link.json"), 0);
        assert_int_equal(mkfifoat(d->fd, "fifo.json", 0600), 0);
        assert_int_equal(mkdirat(d->fd, "directory.json", 0700), 0);
        load(d, &entries, 1, 3);
        entries = registry_entries_free(entries, 1);
        assert_true(exists(d, "README"));
        assert_true(exists(d, ".x.json"));
        assert_true(exists(d, "link.damaged"));

        /* Writable by others, so anybody may have written it. */
        assert_int_equal(fchmodat(d->fd, "good.json", 0622, 0), 0);
        load(d, &entries, 0, 1);
        /* One that can't even be set aside is no reason to lose the others. */
        assert_int_equal(registry_save(d->fd, &good), 0);
        assert_int_equal(mkdirat(d->fd, "stuck.damaged", 0700), 0);
        assert_int_equal(fd_write_file_at(d->fd, "stuck.json", "x", 1, 0600, false), 0);
        load(d, &entries, 1, 1);
        entries = registry_entries_free(entries, 1);
}

static void test_foreign_owner(void **state)
{
        const Scratch *d = *state;
        const RegistryEntry e = {.name = (char *) "qwen", .boot_id = BOOT};
        RegistryEntry **entries = NULL;

        if (geteuid() != 0)
                skip();
        assert_int_equal(registry_save(d->fd, &e), 0);
        assert_int_equal(fchownat(d->fd, "qwen.json", 65534, 65534, 0), 0);
        load(d, &entries, 0, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_round_trip),    TEST(test_save_replaces), TEST(test_bad_names),
                TEST(test_bad_fields),    TEST(test_bad_files),     TEST(test_planted),
                TEST(test_foreign_owner),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
