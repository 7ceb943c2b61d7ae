/* Leases of real processes, and holders that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "daemon/lease.h"
#include "daemon/residue.h"

typedef struct Fixture {
        sd_event *event;
        LeaseTable table;
        Cache *cache;
        unsigned ended;
        pid_t last_pid;
} Fixture;

static void on_ended(const Lease *lease, Cache *c, void *userdata)
{
        Fixture *f = userdata;

        f->ended++;
        f->last_pid = lease->holder.pid;
        assert_ptr_equal(c, f->cache);
}

static int set_up(void **state)
{
        _cleanup_identity_ Identity owner = {.uid = getuid(), .gid = getgid()};
        Fixture *f = calloc(1, sizeof(*f));
        CacheSettings *s;

        assert_non_null(f);
        assert_int_equal(cache_settings_new("qwen", &s), 0);
        assert_int_equal(cache_new(NULL, s, &owner, &f->cache), 0);
        cache_set_state(f->cache, MANAGER_CACHE_STATE_READY);
        assert_true(sd_event_new(&f->event) >= 0);
        f->table = (LeaseTable){
                .event = f->event, .max_per_user = 3, .max_total = 100, .ended = on_ended, .userdata = f};
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        Fixture *f = *state;

        while (f->table.first)
                lease_free(f->table.first);
        cache_free(f->cache);
        sd_event_unref(f->event);
        free(f);
        return 0;
}

static pid_t spawn(void)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                (void) pause();
                _exit(0);
        }
        return pid;
}

static void end(pid_t pid)
{
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int acquire(Fixture *f, int fd, Fault *fault, Lease **ret)
{
        return lease_acquire(&f->table, f->cache, fd, getuid(), fault, ret);
}

static void one_per_process(void **state)
{
        Fixture *f = *state;
        _cleanup_fault_ Fault fault = {};
        Lease *a = NULL, *b = NULL;
        pid_t pid = spawn();

        assert_int_equal(acquire(f, pidfd_open_pid(pid), &fault, &a), 1);
        assert_int_equal(a->holder.pid, pid);
        assert_int_equal(acquire(f, pidfd_open_pid(pid), &fault, &b), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(f->cache->n_leases, 1);
        assert_int_equal(f->cache->leases_granted, 1);
        assert_int_equal(lease_count_of_user(&f->table, getuid()), 1);
        end(pid);
}

static void it_ends_with_the_process(void **state)
{
        Fixture *f = *state;
        _cleanup_fault_ Fault fault = {};
        Lease *l = NULL;
        pid_t pid = spawn();

        assert_int_equal(acquire(f, pidfd_open_pid(pid), &fault, &l), 1);
        assert_int_equal(sd_event_run(f->event, 0), 0);
        assert_int_equal(f->ended, 0);
        end(pid);
        assert_true(sd_event_run(f->event, 5 * USEC_PER_SEC) > 0);
        assert_int_equal(f->ended, 1);
        assert_int_equal(f->last_pid, pid);
        assert_int_equal(f->cache->n_leases, 0);
        assert_null(f->cache->leases);
        assert_null(f->table.first);
        assert_int_equal(f->table.n, 0);
}

static void it_can_be_given_back(void **state)
{
        Fixture *f = *state;
        _cleanup_fault_ Fault fault = {};
        Lease *l = NULL;
        pid_t pid = spawn();
        int fd;

        assert_int_equal(acquire(f, pidfd_open_pid(pid), &fault, &l), 1);
        assert_int_equal(lease_release(f->cache, pidfd_open_pid(pid), getuid(), &fault), 1);
        assert_int_equal(f->cache->n_leases, 0);
        assert_int_equal(lease_release(f->cache, pidfd_open_pid(pid), getuid(), &fault), FAULT_REFUSED);
        assert_int_equal(fault.kind, FAULT_INVALID_HOLDER);
        fd = pidfd_open_pid(pid);
        end(pid);
        /* Its lease, if it had one, ends with it: nothing to complain of. */
        fault_done(&fault);
        assert_int_equal(lease_release(f->cache, fd, getuid(), &fault), 0);
        assert_int_equal(f->ended, 0);
}

static void refused(Fixture *f, int fd, uid_t uid, FaultKind kind)
{
        _cleanup_fault_ Fault fault = {};
        Lease *l = NULL;

        assert_int_equal(lease_acquire(&f->table, f->cache, fd, uid, &fault, &l), FAULT_REFUSED);
        assert_int_equal(fault.kind, kind);
        assert_non_null(fault.message);
        assert_null(l);
        /* It was taken, and is closed. */
        assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void holders_that_are_none(void **state)
{
        Fixture *f = *state;
        pid_t pid = spawn();
        int fd = pidfd_open_pid(pid), pipes[2];

        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        refused(f, pipes[0], getuid(), FAULT_INVALID_HOLDER);
        refused(f, open("/", O_PATH | O_CLOEXEC), getuid(), FAULT_INVALID_HOLDER);
        (void) close(pipes[1]);
        /* somebody else's process */
        refused(f, pidfd_open_pid(pid), getuid() + 12345, FAULT_INVALID_HOLDER);
        /* the manager itself, and the worker that holds the memory: either would outlast every stop */
        refused(f, pidfd_open_pid(getpid()), getuid(), FAULT_INVALID_HOLDER);
        f->cache->pid = pid;
        refused(f, pidfd_open_pid(pid), getuid(), FAULT_INVALID_HOLDER);
        f->cache->pid = 0;
        end(pid);
        refused(f, fd, getuid(), FAULT_INVALID_HOLDER);
        assert_int_equal(f->table.n, 0);
}

static void a_zombie_holds_nothing(void **state)
{
        Fixture *f = *state;
        pid_t pid = spawn();
        int fd = pidfd_open_pid(pid);
        siginfo_t info;

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t) pid, &info, WEXITED | WNOWAIT), 0);
        refused(f, fd, getuid(), FAULT_INVALID_HOLDER);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void only_ready_caches_are_leased(void **state)
{
        Fixture *f = *state;
        pid_t pid = spawn();

        cache_set_state(f->cache, MANAGER_CACHE_STATE_DRAINING);
        refused(f, pidfd_open_pid(pid), getuid(), FAULT_CACHE_NOT_READY);
        end(pid);
}

static void caps(void **state)
{
        Fixture *f = *state;
        pid_t pids[4];
        Fault fault = {};
        Lease *l;

        for (size_t i = 0; i < ELEMENTSOF(pids); i++)
                pids[i] = spawn();
        for (size_t i = 0; i < 3; i++)
                assert_int_equal(acquire(f, pidfd_open_pid(pids[i]), &fault, &l), 1);
        /* One that holds already is no further one. */
        assert_int_equal(acquire(f, pidfd_open_pid(pids[0]), &fault, &l), 0);
        assert_int_equal(acquire(f, pidfd_open_pid(pids[3]), &fault, &l), FAULT_REFUSED);
        assert_int_equal(fault.kind, FAULT_TOO_MANY_LEASES);
        assert_int_equal(fault.maximum, 3);
        fault_done(&fault);
        f->table.max_per_user = 100;
        f->table.max_total = 3;
        assert_int_equal(acquire(f, pidfd_open_pid(pids[3]), &fault, &l), FAULT_REFUSED);
        assert_int_equal(fault.kind, FAULT_TOO_MANY_LEASES);
        fault_done(&fault);
        /* The end of one makes room. */
        end(pids[0]);
        assert_true(sd_event_run(f->event, 5 * USEC_PER_SEC) > 0);
        assert_int_equal(acquire(f, pidfd_open_pid(pids[3]), &fault, &l), 1);
        for (size_t i = 1; i < ELEMENTSOF(pids); i++)
                end(pids[i]);
}

static void a_forced_end_counts_until_the_readers_end(void **state)
{
        Fixture *f = *state;
        ResidueTable residues = {.event = f->event};
        _cleanup_fault_ Fault fault = {};
        _cleanup_free_ char *holders = NULL;
        pid_t pids[2];
        Lease *l;

        f->cache->bytes = 4096;
        for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
                pids[i] = spawn();
                assert_int_equal(acquire(f, pidfd_open_pid(pids[i]), &fault, &l), 1);
        }
        assert_int_equal(residue_take(&residues, f->cache, &holders), 0);
        assert_int_equal(f->cache->n_leases, 0);
        assert_int_equal(f->table.n, 0);
        assert_non_null(strstr(holders, "pid"));
        assert_int_equal(residue_bytes(&residues), 4096);
        end(pids[0]);
        assert_true(sd_event_run(f->event, 5 * USEC_PER_SEC) > 0);
        assert_int_equal(residue_bytes(&residues), 4096);
        end(pids[1]);
        assert_true(sd_event_run(f->event, 5 * USEC_PER_SEC) > 0);
        assert_int_equal(residue_bytes(&residues), 0);
        assert_null(residues.first);
        assert_int_equal(f->ended, 0);
        residue_done(&residues);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(one_per_process, set_up, tear_down),
                cmocka_unit_test_setup_teardown(it_ends_with_the_process, set_up, tear_down),
                cmocka_unit_test_setup_teardown(it_can_be_given_back, set_up, tear_down),
                cmocka_unit_test_setup_teardown(holders_that_are_none, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_zombie_holds_nothing, set_up, tear_down),
                cmocka_unit_test_setup_teardown(only_ready_caches_are_leased, set_up, tear_down),
                cmocka_unit_test_setup_teardown(caps, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_forced_end_counts_until_the_readers_end, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
