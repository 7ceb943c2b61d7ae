/* doctor: whether this machine, for this user, has what iloader needs. */
#include "ctl/verb-doctor.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "ctl/output.h"
#include "lib/endpoint.h"

static const char *const result_table[_CHECK_RESULT_MAX] = {
        [CHECK_OK] = "ok",
        [CHECK_WARN] = "warn",
        [CHECK_FAIL] = "fail",
};

CheckResult check_says(Checkup *c, CheckResult result, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        (void) text_vformat(&c->detail, format, ap);
        va_end(ap);
        return result;
}

static int record(struct json_object *array, const char *name, CheckResult result, const char *detail)
{
        _cleanup_json_ struct json_object *o = json_object_new_object();

        if (!o || json_add_string(o, "check", name) < 0 ||
            json_add_string(o, "result", result_table[result]) < 0 ||
            json_add_string(o, "detail", detail) < 0 || json_object_array_add(array, o) < 0)
                return -ENOMEM;
        (void) TAKE_PTR(o);
        return 0;
}

static int run_checks(Checkup *c, const Check *checks, struct json_object *array,
                      unsigned counts[static _CHECK_RESULT_MAX])
{
        for (; checks->name; checks++) {
                CheckResult result;

                free(c->detail);
                c->detail = NULL;
                result = checks->function(c);
                counts[result]++;
                if (!c->invocation->arguments->json)
                        (void) printf("%-5s %-20s %s\n", result_table[result], checks->name,
                                      c->detail ? c->detail : "");
                else if (record(array, checks->name, result, c->detail) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int report(const Checkup *c, struct json_object *checks,
                  const unsigned counts[static _CHECK_RESULT_MAX])
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        if (c->invocation->arguments->json) {
                o = json_object_new_object();
                if (!o || json_add_bool(o, "ok", counts[CHECK_FAIL] == 0) < 0 ||
                    json_add(o, "checks", json_object_get(checks)) < 0)
                        return output_error("out of memory");
                r = output_json(o);
        } else {
                (void) printf("%u ok, %u warnings, %u failures\n", counts[CHECK_OK], counts[CHECK_WARN],
                              counts[CHECK_FAIL]);
                r = output_finish();
        }
        return r != 0 ? r : counts[CHECK_FAIL] > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int verb_doctor(const Invocation *i)
{
        const Arguments *a = i->arguments;
        _cleanup_json_ struct json_object *checks = json_object_new_array();
        unsigned counts[_CHECK_RESULT_MAX] = {0};
        const char *tmp = getenv("TMPDIR");
        Checkup c = {.invocation = i};
        int r;

        if (!checks)
                return output_error("out of memory");
        r = text_format(&c.directory, "%s/iloader-doctor-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
        if (r < 0 || !mkdtemp(c.directory)) {
                free(c.directory);
                return output_error("cannot make a temporary directory below %s: %s", tmp ? tmp : "/tmp",
                                    strerror(errno));
        }
        if (a->base_dir)
                c.base = strdup(a->base_dir);
        else
                (void) endpoint_default_base(&c.base);
        r = run_checks(&c, kernel_checks, checks, counts);
        if (r >= 0)
                r = run_checks(&c, machine_checks, checks, counts);
        (void) path_remove_tree(AT_FDCWD, c.directory, 100);
        r = r < 0 ? output_error("out of memory") : report(&c, checks, counts);
        free(c.directory);
        free(c.base);
        free(c.detail);
        return r;
}
