#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

/* stderr goes to a file between these two; the text is the caller's. */
typedef struct Capture {
        int saved;
        int file;
} Capture;

static void capture_start(Capture *c)
{
        c->saved = fd_dup(STDERR_FILENO);
        c->file = memfd_create("stderr", MFD_CLOEXEC);
        assert_true(c->saved >= 0 && c->file >= 0);
        assert_int_equal(dup2(c->file, STDERR_FILENO), STDERR_FILENO);
}

static char *capture_end(Capture *c)
{
        char *text = NULL;

        assert_int_equal(dup2(c->saved, STDERR_FILENO), STDERR_FILENO);
        assert_int_equal(lseek(c->file, 0, SEEK_SET), 0);
        assert_int_equal(fd_read_file(c->file, 1 << 20, &text, NULL), 0);
        c->saved = close_fd(c->saved);
        c->file = close_fd(c->file);
        return text;
}

static void test_stderr(_unused_ void **state)
{
        char *const fields[] = {(char *) "ILOADER_CACHE=qwen", NULL};
        _cleanup_free_ char *text = NULL;
        Capture c;
        int r[4];

        log_setup(LOG_TARGET_STDERR, LOG_INFO, "tester");
        capture_start(&c);
        errno = ERANGE;
        r[0] = log_error(-ENOENT, "cannot open '%s': %m", "/a");
        r[1] = log_warning(ENOSPC, "positive: %m");
        r[2] = log_full(LOG_NOTICE, 0, "nothing wrong");
        log_debug("not to be seen");
        r[3] = errno;
        log_entry(LOG_INFO, "0123456789abcdef0123456789abcdef", fields, "cache %s is ready", "qwen");
        log_entry(LOG_DEBUG, NULL, NULL, "not this either");
        text = capture_end(&c);
        assert_string_equal(text, "tester: cannot open '/a': No such file or directory\n"
                                  "tester: positive: No space left on device\n"
                                  "tester: nothing wrong\n"
                                  "tester: cache qwen is ready\n");
        assert_int_equal(r[0], -ENOENT);
        assert_int_equal(r[1], -ENOSPC);
        assert_int_equal(r[2], 0);
        assert_int_equal(r[3], ERANGE);
}

static void test_levels(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL, *nothing = NULL;
        Capture c;
        int r;

        log_setup(LOG_TARGET_STDERR, LOG_ERR, "tester");
        capture_start(&c);
        /* Unseen, but the value is returned all the same. */
        r = log_warning(-EIO, "unseen");
        nothing = capture_end(&c);
        assert_int_equal(r, -EIO);
        assert_string_equal(nothing, "");
        log_set_max_level(LOG_DEBUG);
        capture_start(&c);
        log_debug("seen %d", 1);
        text = capture_end(&c);
        assert_string_equal(text, "tester: seen 1\n");
}

static void test_control_characters(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL, *large = NULL, *long_text = NULL;
        Capture c;

        log_setup(LOG_TARGET_STDERR, LOG_INFO, "tester");
        capture_start(&c);
        log_info("name '%s' refused", "a\nroot: faked\r\x1b[2J\x7f\tb");
        text = capture_end(&c);
        assert_string_equal(text, "tester: name 'a?root: faked??[2J? b' refused\n");

        large = malloc(100001);
        assert_non_null(large);
        memset(large, 'l', 100000);
        large[100000] = '\0';
        capture_start(&c);
        log_info("%s", large);
        long_text = capture_end(&c);
        assert_int_equal(strlen(long_text), 100000 + strlen("tester: \n"));
}

/* $JOURNAL_STREAM of a parent whose stderr is no longer ours says nothing. */
static void test_stale_stream(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL, *stream = NULL;
        struct stat st;
        Capture c;

        capture_start(&c);
        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        assert_int_equal(text_format(&stream, "%llu:%llu", (unsigned long long) st.st_dev,
                                     (unsigned long long) st.st_ino + 1),
                         0);
        assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
        log_setup(LOG_TARGET_AUTO, LOG_INFO, "tester");
        log_info("here");
        text = capture_end(&c);
        assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
        assert_string_equal(text, "tester: here\n");
}

/* Puts another /run over the real one, in a mount namespace of its own. 77 where that isn't allowed. */
static int enter_private_run(void)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
                return 77;
        return 0;
}

static int bind_journal(void)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
        int fd;

        if (mkdir("/run/systemd", 0755) < 0 || mkdir("/run/systemd/journal", 0755) < 0)
                return -errno;
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
                return -errno;
        return fd;
}

/* Whether the datagram, in the journal's native protocol, has this line. */
static bool has_line(const char *datagram, const char *line)
{
        const char *at = datagram;
        size_t n = strlen(line);

        while ((at = strstr(at, line))) {
                if ((at == datagram || at[-1] == '\n') && at[n] == '\n')
                        return true;
                at += n;
        }
        return false;
}

/* With stderr connected to what $JOURNAL_STREAM names and a socket in journald's place: the step that failed.
 */
static int log_to_journal(void)
{
        static const char *const lines[] = {
                "MESSAGE=cache qwen is ready", "PRIORITY=5",
                "SYSLOG_IDENTIFIER=tester",    "MESSAGE_ID=0123456789abcdef0123456789abcdef",
                "ILOADER_CACHE=qwen",          "ILOADER_BYTES=42",
        };
        char *const fields[] = {(char *) "ILOADER_CACHE=qwen", (char *) "ILOADER_BYTES=42", NULL};
        _cleanup_close_ int journal = -EBADF;
        _cleanup_free_ char *stream = NULL;
        char datagram[4096];
        struct stat st;
        ssize_t n;
        size_t i;

        if (enter_private_run() != 0)
                return 77;
        journal = bind_journal();
        if (journal < 0 || fstat(STDERR_FILENO, &st) < 0)
                return 1;
        if (text_format(&stream, "%llu:%llu", (unsigned long long) st.st_dev,
                        (unsigned long long) st.st_ino) < 0 ||
            setenv("JOURNAL_STREAM", stream, 1) < 0)
                return 2;
        log_setup(LOG_TARGET_AUTO, LOG_INFO, "tester");
        log_entry(LOG_NOTICE, "0123456789abcdef0123456789abcdef", fields, "cache %s is ready", "qwen");
        n = recv(journal, datagram, sizeof(datagram) - 1, MSG_DONTWAIT);
        if (n <= 0)
                return 3;
        datagram[n] = '\0';
        for (i = 0; i < ELEMENTSOF(lines); i++)
                if (!has_line(datagram, lines[i]))
                        return 10 + (int) i;
        if (strstr(datagram, "CODE_FILE"))
                return 4;
        if (log_error(-ENOENT, "no: %m") != -ENOENT)
                return 5;
        n = recv(journal, datagram, sizeof(datagram) - 1, MSG_DONTWAIT);
        if (n <= 0)
                return 6;
        datagram[n] = '\0';
        if (!has_line(datagram, "ERRNO=2") || !has_line(datagram, "PRIORITY=3") ||
            !has_line(datagram, "MESSAGE=no: No such file or directory"))
                return 7;
        return 0;
}

/* Nobody listens: the message must not be lost. */
static int log_without_journal(void)
{
        int r = enter_private_run();

        if (r != 0)
                return r;
        log_setup(LOG_TARGET_JOURNAL, LOG_INFO, "tester");
        log_info("kept");
        /* And there, but nobody reads. */
        if (close_fd(bind_journal()) != -EBADF)
                return 1;
        log_info("kept too");
        return 0;
}

static int run_child(int (*f)(void))
{
        int status = 0;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(f());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void test_journal(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL;
        Capture c;
        int r;

        capture_start(&c);
        r = run_child(log_to_journal);
        text = capture_end(&c);
        if (r == 77)
                skip();
        assert_int_equal(r, 0);
        assert_string_equal(text, "");
}

static void test_without_journal(_unused_ void **state)
{
        _cleanup_free_ char *text = NULL;
        Capture c;
        int r;

        capture_start(&c);
        r = run_child(log_without_journal);
        text = capture_end(&c);
        if (r == 77)
                skip();
        assert_int_equal(r, 0);
        assert_string_equal(text, "tester: kept\ntester: kept too\n");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_stderr),
                cmocka_unit_test(test_levels),
                cmocka_unit_test(test_control_characters),
                cmocka_unit_test(test_stale_stream),
                cmocka_unit_test(test_journal),
                cmocka_unit_test(test_without_journal),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
