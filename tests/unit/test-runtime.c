/* The manager's files: ours or refused, locked, never over anything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/text.h"
#include "daemon/runtime.h"
#include "tests/unit/scratch.h"

static int open_user(const Scratch *s, const char *socket, Runtime **ret, char **ret_message)
{
        _cleanup_free_ char *base = NULL, *path = NULL;

        assert_int_equal(text_format(&base, "%s/base", s->path), 0);
        if (socket)
                assert_int_equal(text_format(&path, "%s/%s", s->path, socket), 0);
        return runtime_open(
                &(const RuntimeOptions){.scope = SCOPE_USER, .base_dir = base, .socket_path = path}, ret,
                ret_message);
}

static bool is_there(const Scratch *s, const char *name)
{
        struct stat st;

        return fstatat(s->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void a_user_s_layout(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL, *pid = NULL, *log = NULL;
        struct stat st;

        scratch_make(&s);
        assert_int_equal(open_user(&s, NULL, &r, &message), 0);
        assert_int_equal(fstatat(s.fd, "base", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
        assert_true(is_there(&s, "base/run/registry") && is_there(&s, "base/views") &&
                    is_there(&s, "base/logs"));
        assert_int_equal(runtime_lock(r), 0);
        assert_true(is_there(&s, "base/run/manager.lock"));
        assert_int_equal(runtime_pid_file(r, "qwen", &pid), 0);
        assert_non_null(strstr(pid, "/base/run/qwen.pid"));
        assert_int_equal(runtime_log_file(r, "qwen", &log), 0);
        assert_non_null(strstr(log, "/base/logs/qwen.log"));
}

static void a_socket_of_its_own_has_files_of_its_own(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;

        scratch_make(&s);
        assert_int_equal(open_user(&s, "mine", &r, &message), 0);
        assert_int_equal(runtime_lock(r), 0);
        assert_int_equal(runtime_announce(r), 0);
        assert_string_equal(r->quota_file, "mine.quota");
        assert_true(is_there(&s, "mine.manager.lock") && is_there(&s, "mine.manager.ready") &&
                    is_there(&s, "mine.registry"));
        assert_false(is_there(&s, "base/run"));
        runtime_retract(r);
        assert_false(is_there(&s, "mine.manager.ready"));
}

static void the_standard_socket_by_name_is_the_standard_one(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;

        scratch_make(&s);
        assert_int_equal(open_user(&s, "base/run/" RUNTIME_SOCKET_NAME, &r, &message), 0);
        assert_string_equal(r->prefix, "");
}

static void one_manager_at_a_time(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *a = NULL, *b = NULL;
        _cleanup_free_ char *message = NULL;

        scratch_make(&s);
        assert_int_equal(open_user(&s, NULL, &a, &message), 0);
        assert_int_equal(open_user(&s, NULL, &b, &message), 0);
        assert_int_equal(runtime_lock(a), 0);
        assert_int_equal(runtime_lock(b), -EBUSY);
        assert_int_equal(runtime_lock_starters(b), 0);
        assert_int_equal(runtime_lock_starters(a), -EBUSY);
        runtime_unlock_starters(b);
        assert_int_equal(runtime_lock_starters(a), 0);
        a = runtime_free(a);
        assert_int_equal(runtime_lock(b), 0);
}

static void unsafe_places_are_refused(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;

        scratch_make(&s);
        assert_int_equal(mkdirat(s.fd, "base", 0700), 0);
        assert_int_equal(fchmodat(s.fd, "base", 0770, 0), 0);
        assert_int_equal(open_user(&s, NULL, &r, &message), -EPERM);
        assert_non_null(strstr(message, "writable by others"));
        assert_int_equal(fchmodat(s.fd, "base", 0700, 0), 0);
        assert_int_equal(unlinkat(s.fd, "base", AT_REMOVEDIR), 0);
        scratch_write(&s, "base", "x");
        assert_true(open_user(&s, NULL, &r, &message) < 0);
        assert_int_equal(unlinkat(s.fd, "base", 0), 0);
        /* A lock file that leads elsewhere. */
        assert_int_equal(mkdirat(s.fd, "base", 0700), 0);
        assert_int_equal(mkdirat(s.fd, "base/run", 0700), 0);
        assert_int_equal(symlinkat("/etc/passwd", s.fd, "base/run/manager.lock"), 0);
        assert_int_equal(open_user(&s, NULL, &r, &message), 0);
        assert_true(runtime_lock(r) < 0);
}

static void a_path_that_does_not_fit(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;
        char name[108];

        scratch_make(&s);
        memset(name, 'x', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        assert_int_equal(open_user(&s, name, &r, &message), -ENAMETOOLONG);
        assert_non_null(strstr(message, "107"));
}

static int connect_to(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

        assert_true(fd >= 0 && strlen(path) < sizeof(address.sun_path));
        strcpy(address.sun_path,
               path); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): checked above */
        r = connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
        (void) close_fd(fd);
        return r;
}

static void the_socket_is_put_in_place_and_taken_away(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        scratch_make(&s);
        assert_int_equal(open_user(&s, NULL, &r, &message), 0);
        assert_int_equal(runtime_listen(r, &fd), -ENOLCK);
        assert_int_equal(runtime_lock(r), 0);
        assert_int_equal(runtime_listen(r, &fd), 0);
        assert_int_equal(connect_to(r->socket_path), 0);
        assert_int_equal(stat(r->socket_path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        runtime_remove_socket(r);
        assert_int_equal(connect_to(r->socket_path), -ENOENT);
}

static void only_a_stale_socket_of_ours_is_replaced(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL;
        _cleanup_close_ int fd = -EBADF, second = -EBADF;

        scratch_make(&s);
        assert_int_equal(open_user(&s, NULL, &r, &message), 0);
        assert_int_equal(runtime_lock(r), 0);
        scratch_write(&s, "base/run/" RUNTIME_SOCKET_NAME, "precious");
        assert_int_equal(runtime_listen(r, &fd), -EEXIST);
        assert_true(is_there(&s, "base/run/" RUNTIME_SOCKET_NAME));
        assert_int_equal(unlinkat(s.fd, "base/run/" RUNTIME_SOCKET_NAME, 0), 0);
        assert_int_equal(symlinkat("elsewhere", s.fd, "base/run/" RUNTIME_SOCKET_NAME), 0);
        assert_int_equal(runtime_listen(r, &fd), -EEXIST);
        assert_int_equal(unlinkat(s.fd, "base/run/" RUNTIME_SOCKET_NAME, 0), 0);

        assert_int_equal(runtime_listen(r, &fd), 0);
        /* Somebody listens. */
        assert_int_equal(runtime_listen(r, &second), -EADDRINUSE);
        /* Nobody does any more. */
        fd = close_fd(fd);
        assert_int_equal(runtime_listen(r, &second), 0);
        assert_int_equal(connect_to(r->socket_path), 0);
        /* One that another put there meanwhile stays. */
        assert_int_equal(unlinkat(s.fd, "base/run/" RUNTIME_SOCKET_NAME, 0), 0);
        scratch_write(&s, "base/run/" RUNTIME_SOCKET_NAME, "another's");
        runtime_remove_socket(r);
        assert_true(is_there(&s, "base/run/" RUNTIME_SOCKET_NAME));
}

static void each_instance_has_an_id(void **state)
{
        _cleanup_scratch_ Scratch s = {};
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *message = NULL, *first = NULL, *second = NULL;
        size_t n;

        scratch_make(&s);
        assert_int_equal(open_user(&s, NULL, &r, &message), 0);
        assert_int_equal(runtime_announce(r), 0);
        assert_int_equal(fd_read_file_at(s.fd, "base/run/manager.ready", 100, &first, &n), 0);
        assert_int_equal(n, 33);
        assert_int_equal(first[32], '\n');
        assert_int_equal(runtime_announce(r), 0);
        assert_int_equal(fd_read_file_at(s.fd, "base/run/manager.ready", 100, &second, &n), 0);
        assert_string_not_equal(first, second);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_user_s_layout),
                cmocka_unit_test(a_socket_of_its_own_has_files_of_its_own),
                cmocka_unit_test(the_standard_socket_by_name_is_the_standard_one),
                cmocka_unit_test(one_manager_at_a_time),
                cmocka_unit_test(unsafe_places_are_refused),
                cmocka_unit_test(a_path_that_does_not_fit),
                cmocka_unit_test(the_socket_is_put_in_place_and_taken_away),
                cmocka_unit_test(only_a_stale_socket_of_ours_is_replaced),
                cmocka_unit_test(each_instance_has_an_id),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
