/* daemon/worker/job: what a job must say, and how a wrong one is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <string.h>

#include "base/text.h"
#include "daemon/worker/job.h"

#define LOAD                                                                                                 \
        "\"job\":\"load\",\"name\":\"qwen\",\"source\":\"/models//qwen/\",\"workers\":3,"                    \
        "\"chunkSize\":67108864,\"mode\":288,\"viewMode\":256,\"maxFiles\":10"

static void frame_make(Frame *f, const char *members, size_t n_fds)
{
        _cleanup_free_ char *text = NULL;
        JsonFault fault = {};

        *f = (Frame){};
        assert_int_equal(text_format(&text, "{%s}", members), 0);
        if (json_parse_strict(text, strlen(text), &f->object, &fault) < 0)
                fail_msg("%s: %s", text, fault.reason);
        for (size_t i = 0; i < n_fds; i++) {
                int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                assert_true(fd >= 0);
                assert_int_equal(fd_set_take(&f->fds, fd), 0);
        }
}

static void accept(const char *members, size_t n_fds, Job **ret)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_frame_ Frame f;
        int r;

        frame_make(&f, members, n_fds);
        r = job_parse(&f, ret, &failure);
        if (r < 0)
                fail_msg("%s: %s", members, failure.message);
        assert_null(failure.message);
        assert_int_equal(f.fds.n, 0);
}

static void refuse(const char *members, size_t n_fds, const char *in_message)
{
        _cleanup_failure_ Failure failure = FAILURE_INIT;
        _cleanup_(job_freep) Job *j = NULL;
        _cleanup_frame_ Frame f;

        frame_make(&f, members, n_fds);
        assert_int_equal(job_parse(&f, &j, &failure), -EBADMSG);
        assert_null(j);
        assert_int_equal(failure.kind, FAILURE_LOAD_FAILED);
        assert_non_null(failure.message);
        if (!strstr(failure.message, in_message))
                fail_msg("%s: '%s' is not in '%s'", members, in_message, failure.message);
}

static void test_load(void **state)
{
        _cleanup_(job_freep) Job *j = NULL;

        accept(LOAD, 1, &j);
        assert_int_equal(j->kind, JOB_LOAD);
        assert_string_equal(j->name, "qwen");
        assert_string_equal(j->source, "/models/qwen");
        assert_int_equal(j->workers, 3);
        assert_int_equal(j->chunk_size, MIB(64));
        assert_int_equal(j->mode, 0440);
        assert_int_equal(j->view_mode, 0400);
        assert_int_equal(j->max_files, 10);
        assert_true(j->root_fd >= 0);
        /* what was left out */
        assert_int_equal(j->max_bytes, UINT64_MAX);
        assert_int_equal(j->gid, (gid_t) -1);
        assert_int_equal(j->view_parent_mode, (mode_t) -1);
        assert_null(j->patterns);
        assert_null(j->excludes);
        assert_null(j->view);
        assert_null(j->pid_file);
        assert_null(j->log_file);
}

static void test_load_all(void **state)
{
        _cleanup_(job_freep) Job *j = NULL;

        accept(LOAD ",\"maxBytes\":0,\"gid\":0,\"viewParentMode\":493,\"patterns\":[\"*.bin\",\"a/"
                    "\"],\"excludes\":[],"
                    "\"view\":\"/v/../w\",\"pidFile\":\"/p\",\"logFile\":\"/l\"",
               1, &j);
        assert_int_equal(j->max_bytes, 0);
        assert_int_equal(j->gid, 0);
        assert_int_equal(j->view_parent_mode, 0755);
        assert_int_equal(strv_length(j->patterns), 2);
        assert_string_equal(j->patterns[1], "a/");
        /* an empty list of exclusions is not the same as none */
        assert_non_null(j->excludes);
        assert_null(j->excludes[0]);
        assert_string_equal(j->view, "/w");
        assert_string_equal(j->pid_file, "/p");
        assert_string_equal(j->log_file, "/l");
}

static void test_others(void **state)
{
        _cleanup_(job_freep) Job *publish = NULL, *probe = NULL, *remove = NULL, *nothing = NULL;

        accept("\"job\":\"publish\",\"name\":\"a\",\"view\":\"/v\",\"viewMode\":292,\"pid\":17", 3, &publish);
        assert_int_equal(publish->kind, JOB_PUBLISH);
        assert_int_equal(publish->pid, 17);
        assert_true(publish->root_fd >= 0 && publish->manifest_fd >= 0 && publish->pack_fd >= 0);

        accept("\"job\":\"probe\",\"name\":\"a\",\"view\":\"/v\"", 2, &probe);
        assert_int_equal(probe->kind, JOB_PROBE);
        assert_true(probe->manifest_fd >= 0);
        assert_int_equal(probe->pack_fd, -EBADF);

        accept("\"job\":\"remove\",\"name\":\"a\",\"pidFile\":\"/p\",\"pid\":17,\"logFile\":\"/"
               "l\",\"line\":\"x\"",
               1, &remove);
        assert_int_equal(remove->kind, JOB_REMOVE);
        assert_string_equal(remove->line, "x");
        assert_null(remove->view);
        accept("\"job\":\"remove\",\"name\":\"a\"", 1, &nothing);
}

/* Everything that must be there, left out one by one. */
static void test_missing(void **state)
{
        static const char *const fields[] = {"job",       "name", "source",   "workers",
                                             "chunkSize", "mode", "viewMode", "maxFiles"};

        for (size_t i = 0; i < ELEMENTSOF(fields); i++) {
                _cleanup_failure_ Failure failure = FAILURE_INIT;
                _cleanup_(job_freep) Job *j = NULL;
                _cleanup_frame_ Frame f;

                frame_make(&f, LOAD ",\"view\":\"/v\"", 1);
                json_object_object_del(f.object, fields[i]);
                assert_int_equal(job_parse(&f, &j, &failure), -EBADMSG);
                assert_non_null(strstr(failure.message, fields[i]));
                assert_non_null(strstr(failure.message, "missing"));
        }
        refuse("\"job\":\"publish\",\"name\":\"a\",\"view\":\"/v\",\"viewMode\":292", 3, "pid");
        refuse("\"job\":\"probe\",\"name\":\"a\"", 2, "view");
}

static void test_wrong(void **state)
{
        static const struct {
                const char *field, *value;
        } wrong[] = {
                {"name", "\"../x\""},     {"name", "7"},           {"name", "\"\""},
                {"source", "\"models\""}, {"source", "\"\""},      {"source", "[]"},
                {"workers", "-1"},        {"workers", "257"},      {"workers", "\"2\""},
                {"workers", "1.5"},       {"chunkSize", "4095"},   {"chunkSize", "1073741825"},
                {"mode", "511"},          {"mode", "36"},          {"mode", "384"},
                {"mode", "true"},         {"viewMode", "0"},       {"maxFiles", "0"},
                {"maxBytes", "-5"},       {"gid", "4294967295"},   {"gid", "-1"},
                {"view", "\"v\""},        {"view", "{}"},          {"pidFile", "\"p\""},
                {"logFile", "1"},         {"patterns", "\"*\""},   {"patterns", "[1]"},
                {"excludes", "{}"},       {"viewParentMode", "0"}, {"viewParentMode", "4095"},
        };

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                _cleanup_failure_ Failure failure = FAILURE_INIT;
                _cleanup_(job_freep) Job *j = NULL;
                _cleanup_frame_ Frame f;
                struct json_object *value;

                frame_make(&f, LOAD, 1);
                value = json_tokener_parse(wrong[i].value);
                assert_int_equal(json_object_object_add(f.object, wrong[i].field, value), 0);
                if (job_parse(&f, &j, &failure) != -EBADMSG)
                        fail_msg("%s = %s was taken", wrong[i].field, wrong[i].value);
                if (!strstr(failure.message, wrong[i].field))
                        fail_msg("'%s' does not name %s", failure.message, wrong[i].field);
        }
        refuse("\"job\":\"dance\",\"name\":\"a\"", 1, "job");
}

/* Descriptors are counted before they are believed to be what they should be. */
static void test_descriptors(void **state)
{
        refuse(LOAD, 0, "0 descriptors");
        refuse(LOAD, 2, "2 descriptors");
        refuse("\"job\":\"publish\",\"name\":\"a\",\"view\":\"/v\",\"viewMode\":292,\"pid\":1", 1,
               "1 descriptors");
        refuse("\"job\":\"publish\",\"name\":\"a\",\"view\":\"/v\",\"viewMode\":292,\"pid\":1", 4,
               "4 descriptors");
        refuse("\"job\":\"probe\",\"name\":\"a\",\"view\":\"/v\"", 3, "3 descriptors");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_load),   cmocka_unit_test(test_load_all),
                cmocka_unit_test(test_others), cmocka_unit_test(test_missing),
                cmocka_unit_test(test_wrong),  cmocka_unit_test(test_descriptors),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
