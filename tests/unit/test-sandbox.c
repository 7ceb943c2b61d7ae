/* base/sandbox: what each phase allows, refuses and punishes. Every try has a process of its own, because a
 * filter can't be left again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sandbox.h"

typedef enum Phase {
        LOADING,
        HOLDING, /* after loading, as the worker does it */
        _PHASE_MAX,
} Phase;

/* How a try ended: 0 it worked, an errno, or KILLED. */
#define KILLED (-1)
#define BROKEN (-2)

typedef int (*Try)(int sockets[2]);

static int result(long r)
{
        return r < 0 ? errno : 0;
}

static int in_phase(Phase phase, Try try)
{
        int sockets[2], status;
        pid_t pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                if (sandbox_enter_loading() < 0 || (phase == HOLDING && sandbox_enter_holding() < 0))
                        _exit(200);
                _exit(try(sockets));
        }
        (void) close_fd(sockets[0]);
        (void) close_fd(sockets[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFSIGNALED(status))
                return WTERMSIG(status) == SIGSYS ? KILLED : BROKEN;
        assert_int_not_equal(WEXITSTATUS(status), 200);
        return WEXITSTATUS(status);
}

static int try_execve(int sockets[2])
{
        char *argv[] = {(char *) "true", NULL}, *none[] = {NULL};

        return result(syscall(SYS_execve, "/bin/true", argv, none));
}

static int try_execveat(int sockets[2])
{
        char *argv[] = {(char *) "true", NULL}, *none[] = {NULL};

        return result(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, none, 0));
}

static int try_ptrace(int sockets[2])
{
        return result(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int try_process_vm(int sockets[2])
{
        char a = 0, b = 0;
        struct iovec local = {&a, 1}, remote = {&b, 1};

        return result(process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
}

static int try_setuid(int sockets[2])
{
        return result(syscall(SYS_setuid, getuid()));
}

static int try_mount(int sockets[2])
{
        return result(mount("none", "/nowhere", "tmpfs", 0, NULL));
}

static int try_unshare(int sockets[2])
{
        return result(unshare(CLONE_NEWNS));
}

static int try_bpf(int sockets[2])
{
        return result(syscall(SYS_bpf, 0, NULL, 0));
}

static int try_init_module(int sockets[2])
{
        return result(syscall(SYS_init_module, NULL, 0, ""));
}

static int try_socket(int sockets[2])
{
        return result(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int try_inet_socket(int sockets[2])
{
        return result(socket(AF_INET, SOCK_STREAM, 0));
}

static int try_socketpair(int sockets[2])
{
        int pair[2];

        return result(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}

static int try_fork(int sockets[2])
{
        pid_t pid = fork();

        if (pid == 0)
                _exit(0);
        return result(pid);
}

/* The parameters' struct is behind a pointer, so no filter can tell threads from processes. */
static int try_clone3(int sockets[2])
{
        return result(syscall(SYS_clone3, NULL, 0));
}

static int try_kill(int sockets[2])
{
        return result(kill(getpid(), 0));
}

static int try_exec_memory(int sockets[2])
{
        return result((long) mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1
                              ? -1
                              : 0);
}

static int try_exec_protect(int sockets[2])
{
        void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? errno : result(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int try_undumpable(int sockets[2])
{
        return result(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
}

static int try_openat(int sockets[2])
{
        return result(openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int try_memfd(int sockets[2])
{
        return result(syscall(SYS_memfd_create, "try", 1U));
}

static int try_dup(int sockets[2])
{
        return result(fcntl(sockets[0], F_DUPFD_CLOEXEC, 10));
}

static int try_eventfd(int sockets[2])
{
        return result(eventfd(0, EFD_CLOEXEC));
}

static int try_unlink(int sockets[2])
{
        return result(unlink("/nowhere/at/all")) == ENOENT ? 0 : errno;
}

static int try_connect(int sockets[2])
{
        struct sockaddr address = {.sa_family = AF_UNIX};

        return result(connect(sockets[0], &address, sizeof(address)));
}

static void *thread_main(void *userdata)
{
        return userdata;
}

static int try_thread(int sockets[2])
{
        pthread_t id;
        int r = pthread_create(&id, NULL, thread_main, NULL);

        return r != 0 ? r : pthread_join(id, NULL);
}

static int try_talk(int sockets[2])
{
        char c = 'x';
        struct iovec iov = {&c, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        if (sendmsg(sockets[0], &m, MSG_NOSIGNAL) != 1 || recvmsg(sockets[1], &m, MSG_CMSG_CLOEXEC) != 1)
                return errno;
        return close(sockets[1]) < 0 ? errno : 0;
}

static int try_memory(int sockets[2])
{
        void *p = malloc(1 << 20), *q = malloc(100);

        if (!p || !q)
                return ENOMEM;
        memset(p, 1, 1 << 20);
        free(p);
        free(q);
        return 0;
}

static int try_anonymous_fd(int sockets[2])
{
        return result((long) mmap(NULL, 4096, PROT_READ, MAP_SHARED, sockets[0], 0) == -1 ? -1 : 0);
}

static const struct {
        const char *name;
        Try try;
        int expected[_PHASE_MAX];
} tries[] = {
        {"execve", try_execve, {KILLED, KILLED}},
        {"execveat", try_execveat, {KILLED, KILLED}},
        {"ptrace", try_ptrace, {KILLED, KILLED}},
        {"process_vm_readv", try_process_vm, {KILLED, KILLED}},
        {"setuid", try_setuid, {KILLED, KILLED}},
        {"mount", try_mount, {KILLED, KILLED}},
        {"unshare", try_unshare, {KILLED, KILLED}},
        {"bpf", try_bpf, {KILLED, KILLED}},
        {"init_module", try_init_module, {KILLED, KILLED}},
        {"socket", try_socket, {EPERM, EPERM}},
        {"inet socket", try_inet_socket, {EPERM, EPERM}},
        {"socketpair", try_socketpair, {EPERM, EPERM}},
        {"connect", try_connect, {EPERM, EPERM}},
        {"fork", try_fork, {EPERM, EPERM}},
        {"clone3", try_clone3, {ENOSYS, EPERM}},
        {"kill", try_kill, {EPERM, EPERM}},
        {"executable mapping", try_exec_memory, {EPERM, EPERM}},
        {"executable mprotect", try_exec_protect, {EPERM, EPERM}},
        {"PR_SET_DUMPABLE", try_undumpable, {EPERM, EPERM}},
        {"openat", try_openat, {0, EPERM}},
        {"memfd_create", try_memfd, {0, EPERM}},
        {"F_DUPFD", try_dup, {0, EPERM}},
        {"eventfd", try_eventfd, {0, EPERM}},
        {"unlink", try_unlink, {0, EPERM}},
        {"mapping a descriptor", try_anonymous_fd, {ENODEV, EPERM}},
        {"thread", try_thread, {0, EPERM}},
        {"sendmsg, recvmsg, close", try_talk, {0, 0}},
        {"malloc, free", try_memory, {0, 0}},
};

static void check_phase(Phase phase)
{
        bool good = true;

        for (size_t i = 0; i < ELEMENTSOF(tries); i++) {
                int got = in_phase(phase, tries[i].try);

                if (got == tries[i].expected[phase])
                        continue;
                print_error("%s in phase %d: got %d, expected %d\n", tries[i].name, (int) phase, got,
                            tries[i].expected[phase]);
                good = false;
        }
        assert_true(good);
}

static void test_loading(void **state)
{
        check_phase(LOADING);
}

static void test_holding(void **state)
{
        check_phase(HOLDING);
}

static int try_widen(int sockets[2])
{
        return sandbox_enter_loading() < 0 ? EPERM : 0;
}

static int try_no_new_privs(int sockets[2])
{
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : EINVAL;
}

static int try_abort(int sockets[2])
{
        struct sigaction ignore = {.sa_handler = SIG_DFL};

        (void) sigaction(SIGABRT, &ignore, NULL);
        abort();
}

static void test_no_way_back(void **state)
{
        assert_int_equal(in_phase(HOLDING, try_widen), EPERM);
        assert_int_equal(in_phase(LOADING, try_no_new_privs), 0);
        /* a failed assertion must end the process by SIGABRT, in either phase, rather than hang in abort() */
        assert_int_equal(in_phase(LOADING, try_abort), BROKEN);
        assert_int_equal(in_phase(HOLDING, try_abort), BROKEN);
}

typedef struct Waiting {
        int ready, go, got;
} Waiting;

static void *thread_open(void *userdata)
{
        Waiting *w = userdata;
        eventfd_t v;

        (void) eventfd_write(w->ready, 1);
        (void) eventfd_read(w->go, &v);
        w->got = openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 ? errno : 0;
        return NULL;
}

/* A filter that left another thread out would be none. */
static int all_threads(void)
{
        Waiting w = {.ready = eventfd(0, EFD_CLOEXEC), .go = eventfd(0, EFD_CLOEXEC), .got = -1};
        pthread_t id;
        eventfd_t v;

        if (pthread_create(&id, NULL, thread_open, &w) != 0 || eventfd_read(w.ready, &v) < 0)
                return 201;
        if (sandbox_enter_holding() < 0)
                return 202;
        (void) eventfd_write(w.go, 1);
        if (pthread_join(id, NULL) != 0)
                return 203;
        return w.got;
}

static void test_threads(void **state)
{
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(all_threads());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), EPERM);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_loading),
                cmocka_unit_test(test_holding),
                cmocka_unit_test(test_no_way_back),
                cmocka_unit_test(test_threads),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
