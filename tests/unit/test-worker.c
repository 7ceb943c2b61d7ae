/* The real iloader-worker, driven over a socketpair as the manager does it. The program is found in
 * ILOADER_TEST_BUILD, else beside the directory of this test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "tests/unit/scratch.h"
#include "wire/frame.h"
#include "wire/worker-protocol.h"

#define PATIENCE (60 * USEC_PER_SEC)

typedef struct Worker {
        pid_t pid;
        FrameStream *stream;
} Worker;

static void find_program(char *path, size_t n)
{
        const char *build = getenv("ILOADER_TEST_BUILD");
        ssize_t k;
        char *slash;

        if (build) {
                assert_true((size_t) snprintf(path, n, "%s/iloader-worker", build) < n);
                return;
        }
        k = readlink("/proc/self/exe", path, n - 1);
        assert_true(k > 0);
        path[k] = '\0';
        slash = strrchr(path, '/');
        assert_true((size_t) (slash - path) + sizeof("/../iloader-worker") < n);
        memcpy(slash, "/../iloader-worker", sizeof("/../iloader-worker"));
}

/* files: a limit on descriptors; 0: as it is. */
static Worker worker_start(rlim_t files)
{
        char program[4096];
        int pair[2];
        Worker w;

        find_program(program, sizeof(program));
        assert_int_equal(access(program, X_OK), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        w.pid = fork();
        assert_true(w.pid >= 0);
        if (w.pid == 0) {
                char *argv[] = {program, NULL}, *environment[] = {NULL};
                const struct rlimit rl = {files, files};

                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                if ((files > 0 && setrlimit(RLIMIT_NOFILE, &rl) < 0) || dup2(pair[1], 3) < 0)
                        _exit(99);
                (void) fcntl(3, F_SETFD, 0);
                execve(program, argv, environment);
                _exit(98);
        }
        (void) close_fd(pair[1]);
        assert_int_equal(frame_stream_new(pair[0], WORKER_FRAME_MAX, FD_PASS_MAX, MIB(1), &w.stream), 0);
        return w;
}

static void worker_send(Worker *w, struct json_object *o, const int *fds, size_t n)
{
        assert_non_null(o);
        assert_int_equal(frame_stream_send(w->stream, o, fds, n), 0);
        assert_true(frame_stream_flush_wait(w->stream, now_monotonic() + PATIENCE) >= 0);
        json_object_put(o);
}

static void worker_command(Worker *w, const char *command)
{
        struct json_object *o = json_object_new_object();

        assert_int_equal(json_add_string(o, "command", command), 0);
        worker_send(w, o, NULL, 0);
}

static void worker_log(Worker *w, const char *line)
{
        struct json_object *o = json_object_new_object();

        assert_int_equal(json_add_string(o, "command", "log"), 0);
        assert_int_equal(json_add_string(o, "line", line), 0);
        worker_send(w, o, NULL, 0);
}

static void worker_receive(Worker *w, Frame *ret)
{
        int r = frame_stream_receive_wait(w->stream, now_monotonic() + PATIENCE, ret, NULL);

        if (r < 0)
                fail_msg("no event: %s", strerror(-r));
}

/* The next event, which must be this one. */
static void worker_expect(Worker *w, const char *event, Frame *ret)
{
        const char *got;

        worker_receive(w, ret);
        assert_int_equal(json_get_string(ret->object, "event", &got), 0);
        if (!streq(got, event))
                fail_msg("expected event '%s', got %s", event, json_object_to_json_string(ret->object));
}

static void worker_expect_plain(Worker *w, const char *event)
{
        _cleanup_frame_ Frame f = {};

        worker_expect(w, event, &f);
        assert_int_equal(f.fds.n, 0);
}

static int worker_wait(Worker *w)
{
        int status;

        w->stream = frame_stream_free(w->stream);
        assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
        if (WIFSIGNALED(status))
                return 1000 + WTERMSIG(status);
        return WEXITSTATUS(status);
}

/* Nothing more comes, and it ends with this code by itself. */
static void worker_expect_end(Worker *w, int code)
{
        _cleanup_frame_ Frame f = {};
        int r = frame_stream_receive_wait(w->stream, now_monotonic() + PATIENCE, &f, NULL);

        assert_int_equal(r, -ENOTCONN);
        assert_int_equal(worker_wait(w), code);
}

static uint64_t get(const Frame *f, const char *key)
{
        uint64_t v = 0;

        if (json_get_size(f->object, key, &v) < 0)
                fail_msg("no '%s' in %s", key, json_object_to_json_string(f->object));
        return v;
}

static void worker_expect_error(Worker *w, const char *error, const char *in_message)
{
        _cleanup_frame_ Frame f = {};
        const char *got, *message;

        worker_expect(w, "error", &f);
        assert_int_equal(json_get_string(f.object, "error", &got), 0);
        assert_int_equal(json_get_string(f.object, "message", &message), 0);
        assert_string_equal(got, error);
        if (!strstr(message, in_message))
                fail_msg("'%s' is not in '%s'", in_message, message);
        if (streq(error, "TooManyFiles"))
                assert_true(get(&f, "files") > get(&f, "maximum"));
        worker_expect_end(w, 1);
}

/* A checkpoint in SCRATCH/model, and where its parts go. */
typedef struct Checkpoint {
        Scratch scratch;
        int root_fd;
        char source[128], view[128], pid_file[128], log_file[128];
} Checkpoint;

#define LARGE_A (MIB(5) + 4321)
#define LARGE_B MIB(1)

static uint8_t pattern(uint64_t i, unsigned seed)
{
        return (uint8_t) ((i * 2654435761U) >> 13 ^ i ^ seed);
}

static void write_large(const Checkpoint *c, const char *name, uint64_t size, unsigned seed)
{
        _cleanup_free_ uint8_t *data = malloc(size);
        _cleanup_close_ int fd = openat(c->scratch.fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_non_null(data);
        assert_true(fd >= 0);
        for (uint64_t i = 0; i < size; i++)
                data[i] = pattern(i, seed);
        assert_int_equal(fd_write_full(fd, data, size), 0);
}

static void checkpoint_make(Checkpoint *c)
{
        scratch_make(&c->scratch);
        c->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_true(c->root_fd >= 0);
        (void) snprintf(c->source, sizeof(c->source), "%s/model", c->scratch.path);
        (void) snprintf(c->view, sizeof(c->view), "%s/view", c->scratch.path);
        (void) snprintf(c->pid_file, sizeof(c->pid_file), "%s/worker.pid", c->scratch.path);
        (void) snprintf(c->log_file, sizeof(c->log_file), "%s/worker.log", c->scratch.path);
        assert_int_equal(mkdirat(c->scratch.fd, "model", 0755), 0);
        assert_int_equal(mkdirat(c->scratch.fd, "model/sub", 0755), 0);
        scratch_write(&c->scratch, "model/config.json", "{\"a\": 1}");
        scratch_write(&c->scratch, "model/empty", "");
        scratch_write(&c->scratch, "model/sub/odd \n name", "odd");
        write_large(c, "model/a.safetensors", LARGE_A, 1);
        write_large(c, "model/sub/b.safetensors", LARGE_B, 2);
        assert_int_equal(symlinkat("a.safetensors", c->scratch.fd, "model/z-link"), 0);
}

static void checkpoint_done(Checkpoint *c)
{
        close_fd(c->root_fd);
        scratch_done(&c->scratch);
}
#define _cleanup_checkpoint_ _cleanup_(checkpoint_done)

static struct json_object *job_new(const char *job)
{
        struct json_object *o = json_object_new_object();

        assert_int_equal(json_add_string(o, "job", job), 0);
        assert_int_equal(json_add_string(o, "name", "qwen"), 0);
        return o;
}

/* A load with everything but view, pid file and log file. */
static struct json_object *job_load(const Checkpoint *c)
{
        struct json_object *o = job_new("load");

        assert_int_equal(json_add_path(o, "source", c->source), 0);
        assert_int_equal(json_add_int(o, "workers", 2), 0);
        assert_int_equal(json_add_int(o, "chunkSize", 4096), 0);
        assert_int_equal(json_add_int(o, "mode", 0400), 0);
        assert_int_equal(json_add_int(o, "viewMode", 0400), 0);
        assert_int_equal(json_add_int(o, "maxFiles", 1000), 0);
        return o;
}

static void job_add_paths(struct json_object *o, const Checkpoint *c)
{
        assert_int_equal(json_add_path(o, "view", c->view), 0);
        assert_int_equal(json_add_path(o, "pidFile", c->pid_file), 0);
        assert_int_equal(json_add_path(o, "logFile", c->log_file), 0);
}

static void expect_selected(Worker *w)
{
        _cleanup_frame_ Frame f = {};
        const char *fingerprint;

        worker_expect(w, "selected", &f);
        assert_int_equal(get(&f, "files"), 6);
        assert_int_equal(get(&f, "largeFiles"), 3);
        assert_int_equal(get(&f, "packBytes"), 8 + 3);
        assert_int_equal(get(&f, "bytes"), 2 * LARGE_A + LARGE_B + 8 + 3);
        assert_true(get(&f, "bufferBytes") >= MIB(1));
        assert_int_equal(json_get_string(f.object, "fingerprint", &fingerprint), 0);
        assert_int_equal(strlen(fingerprint), 64);
}

/* All of "progress", "files" and "loaded": the descriptors, the manifest first. */
static void expect_loaded(Worker *w, uint64_t bytes, FdSet *ret)
{
        uint64_t last = 0;

        for (;;) {
                _cleanup_frame_ Frame f = {};
                const char *event;

                worker_receive(w, &f);
                assert_int_equal(json_get_string(f.object, "event", &event), 0);
                if (streq(event, "progress")) {
                        assert_true(get(&f, "bytesLoaded") > last);
                        last = get(&f, "bytesLoaded");
                        assert_true(last <= bytes);
                } else if (streq(event, "files")) {
                        assert_int_equal(get(&f, "first"), ret->n);
                        assert_true(f.fds.n > 0 && f.fds.n <= WORKER_FDS_PER_FRAME);
                        for (int fd; (fd = fd_set_steal_first(&f.fds)) >= 0;)
                                assert_int_equal(fd_set_take(ret, fd), 0);
                } else {
                        if (!streq(event, "loaded"))
                                fail_msg("got %s", json_object_to_json_string(f.object));
                        assert_int_equal(get(&f, "descriptors"), ret->n);
                        assert_int_equal(get(&f, "firstDescriptor"), WORKER_FIRST_DESCRIPTOR);
                        assert_int_equal(get(&f, "bytesLoaded"), bytes);
                        assert_true(get(&f, "copyUSec") > 0);
                        return;
                }
        }
}

static void check_large(int fd, uint64_t offset, uint64_t size, unsigned seed)
{
        _cleanup_free_ uint8_t *data = malloc(size);

        assert_non_null(data);
        assert_int_equal(fd_pread_full(fd, data, size, offset), 0);
        for (uint64_t i = 0; i < size; i++)
                if (data[i] != pattern(i, seed))
                        fail_msg("byte %" PRIu64 " differs", i);
}

/* Manifest and descriptors agree, and the bytes are the source's. */
static void check_files(const FdSet *fds)
{
        static const struct {
                const char *path;
                bool packed;
                uint64_t size;
                size_t index; /* among the descriptors after the manifest */
        } expected[] = {
                {"a.safetensors", false, LARGE_A, 1},
                {"config.json", true, 8, 0},
                {"empty", true, 0, 0},
                {"sub/b.safetensors", false, LARGE_B, 2},
                {"sub/odd \n name", true, 3, 0},
                {"z-link", false, LARGE_A, 3},
        };
        _cleanup_(manifest_reader_freep) ManifestReader *reader = NULL;

        assert_int_equal(fds->n, 5);
        for (size_t i = 0; i < fds->n; i++)
                assert_int_equal(memfd_verify(fds->fds[i], UINT64_MAX), 0);
        assert_int_equal(manifest_reader_new(fds->fds[0], &reader), 0);
        assert_int_equal(manifest_reader_descriptors(reader), 4);
        assert_int_equal(manifest_reader_files(reader), ELEMENTSOF(expected));
        for (size_t i = 0; i < ELEMENTSOF(expected); i++) {
                _cleanup_manifest_file_ ManifestFile f = {};
                char small[16] = "";
                struct stat st;
                int fd;

                assert_int_equal(manifest_reader_next(reader, &f), 1);
                assert_string_equal(f.path, expected[i].path);
                assert_int_equal(f.packed, expected[i].packed);
                assert_int_equal(f.identity.size, expected[i].size);
                assert_int_equal(f.descriptor, WORKER_FIRST_DESCRIPTOR + expected[i].index);
                fd = fds->fds[1 + expected[i].index];
                assert_int_equal(fstat(fd, &st), 0);
                assert_int_equal(st.st_mode & 07777, 0400);
                assert_int_equal(st.st_ino, f.memory_inode);
                assert_int_equal(st.st_dev, f.memory_device);
                if (!f.packed) {
                        check_large(fd, 0, f.identity.size, streq(f.path, "sub/b.safetensors") ? 2 : 1);
                        continue;
                }
                assert_int_equal(fd_pread_full(fd, small, f.identity.size, f.offset), 0);
                assert_string_equal(small, i == 1 ? "{\"a\": 1}" : i == 4 ? "odd" : "");
        }
}

static void check_text(const Checkpoint *c, const char *name, const char *text)
{
        _cleanup_free_ char *got = NULL;
        size_t n;

        assert_int_equal(fd_read_file_at(c->scratch.fd, name, 4096, &got, &n), 0);
        assert_string_equal(got, text);
}

static bool there_is(const Checkpoint *c, const char *name)
{
        struct stat st;

        return fstatat(c->scratch.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void check_view(const Checkpoint *c, pid_t pid)
{
        _cleanup_close_ int a = -EBADF, b = -EBADF;
        char target[64], expected[64];
        ssize_t n;

        a = openat(c->scratch.fd, "view/a.safetensors", O_RDONLY | O_CLOEXEC);
        b = openat(c->scratch.fd, "view/sub/b.safetensors", O_RDONLY | O_CLOEXEC);
        assert_true(a >= 0 && b >= 0);
        check_large(a, 0, LARGE_A, 1);
        check_large(b, 0, LARGE_B, 2);
        check_text(c, "view/config.json", "{\"a\": 1}");
        check_text(c, "view/empty", "");
        n = readlinkat(c->scratch.fd, "view/sub/b.safetensors", target, sizeof(target) - 1);
        assert_true(n > 0);
        target[n] = '\0';
        (void) snprintf(expected, sizeof(expected), "/proc/%d/fd/%d", (int) pid, WORKER_FIRST_DESCRIPTOR + 2);
        assert_string_equal(target, expected);
}

/* A number behind a key in one of the process's files. */
static long proc_number(pid_t pid, const char *file, const char *key)
{
        _cleanup_fclose_ FILE *f = NULL;
        char path[64], line[512];
        long sum = -1;

        (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f))
                if (startswith(line, key))
                        sum = strtol(line + strlen(key), NULL, 10);
        return sum;
}

static void check_holder(pid_t pid, bool has_log)
{
        char path[64], comm[32] = "";
        _cleanup_fclose_ FILE *f = NULL;
        unsigned low = 0, resident = 0, other = 0;
        struct dirent *e;
        DIR *d;

        assert_int_equal(proc_number(pid, "status", "Seccomp:\t"), 2);
        assert_int_equal(proc_number(pid, "status", "NoNewPrivs:\t"), 1);
        assert_int_equal(proc_number(pid, "status", "Threads:\t"), 1);
        (void) snprintf(path, sizeof(path), "/proc/%d/comm", (int) pid);
        f = fopen(path, "re");
        assert_non_null(f);
        assert_non_null(fgets(comm, sizeof(comm), f));
        assert_string_equal(comm, "iloader-worker\n");

        (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
        d = opendir(path);
        assert_non_null(d);
        while ((e = readdir(d))) {
                long n = strtol(e->d_name, NULL, 10);

                if (e->d_name[0] == '.')
                        continue;
                if (n <= 3)
                        low++;
                else if (n >= WORKER_FIRST_DESCRIPTOR && n < WORKER_FIRST_DESCRIPTOR + 4)
                        resident++;
                else
                        other++;
        }
        closedir(d);
        assert_int_equal(low, 4);
        assert_int_equal(resident, 4);
        assert_int_equal(other, has_log ? 1 : 0);
#if !defined(__SANITIZE_ADDRESS__)
        long private = proc_number(pid, "smaps_rollup", "Private_Clean:") +
                       proc_number(pid, "smaps_rollup", "Private_Dirty:");

        print_message("private memory of a ready worker: %ld KiB\n", private);
        assert_in_range(private, 1, 2047);
#endif
}

static void test_life(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;
        _cleanup_fd_set_ FdSet fds = {};
        struct json_object *job;
        char pid[32];
        Worker w;

        checkpoint_make(&c);
        w = worker_start(0);
        job = job_load(&c);
        job_add_paths(job, &c);
        worker_send(&w, job, &c.root_fd, 1);
        expect_selected(&w);
        assert_false(there_is(&c, "view"));
        worker_log(&w, "asked");
        worker_command(&w, "load");
        expect_loaded(&w, 2 * LARGE_A + LARGE_B + 11, &fds);
        check_files(&fds);
        assert_false(there_is(&c, "view"));
        worker_command(&w, "publish");
        worker_expect_plain(&w, "holding");
        check_view(&c, w.pid);
        (void) snprintf(pid, sizeof(pid), "%d\n", (int) w.pid);
        check_text(&c, "worker.pid", pid);
        worker_log(&w, "one\ntwo \033[31m");
        worker_log(&w, "three");
        check_holder(w.pid, true);
        worker_command(&w, "stop");
        worker_expect_end(&w, 0);
        check_text(&c, "worker.log", "asked\none?two ?[31m\nthree\n");
        /* a holder can't remove files any more: that is another job's */
        assert_true(there_is(&c, "worker.pid"));
        check_files(&fds);
}

static void run_remove(const Checkpoint *c, pid_t pid, int code)
{
        Worker w = worker_start(0);
        struct json_object *job = job_new("remove");

        job_add_paths(job, c);
        assert_int_equal(json_add_int(job, "pid", pid), 0);
        assert_int_equal(json_add_string(job, "line", "stopped"), 0);
        worker_send(&w, job, &c->root_fd, 1);
        if (code == 0) {
                worker_expect_plain(&w, "removed");
                worker_expect_end(&w, 0);
        } else
                worker_expect_error(&w, "ViewConflict", "view");
}

static void run_probe(const Checkpoint *c, int manifest_fd, const char *error)
{
        int fds[] = {c->root_fd, manifest_fd};
        struct json_object *job = job_new("probe");
        Worker w = worker_start(0);

        assert_int_equal(json_add_path(job, "view", c->view), 0);
        worker_send(&w, job, fds, 2);
        if (error) {
                worker_expect_error(&w, error, "view");
                return;
        }

        _cleanup_frame_ Frame f = {};

        worker_expect(&w, "probed", &f);
        assert_int_equal(get(&f, "files"), 6);
        worker_expect_end(&w, 0);
}

static void run_publish(const Checkpoint *c, const FdSet *files, pid_t pid)
{
        int fds[] = {c->root_fd, files->fds[0], files->fds[1]};
        struct json_object *job = job_new("publish");
        Worker w = worker_start(0);

        assert_int_equal(json_add_path(job, "view", c->view), 0);
        assert_int_equal(json_add_int(job, "viewMode", 0444), 0);
        assert_int_equal(json_add_int(job, "pid", pid), 0);
        worker_send(&w, job, fds, 3);
        worker_expect_plain(&w, "published");
        worker_expect_end(&w, 0);
}

/* The way of the system scope: another worker publishes, a third probes, a fourth cleans up. */
static void test_other_jobs(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;
        _cleanup_fd_set_ FdSet fds = {};
        struct json_object *job;
        Worker w;

        checkpoint_make(&c);
        w = worker_start(0);
        job = job_load(&c);
        assert_int_equal(json_add_path(job, "pidFile", c.pid_file), 0);
        assert_int_equal(json_add_path(job, "logFile", c.log_file), 0);
        worker_send(&w, job, &c.root_fd, 1);
        expect_selected(&w);
        worker_command(&w, "load");
        expect_loaded(&w, 2 * LARGE_A + LARGE_B + 11, &fds);
        worker_command(&w, "publish");
        worker_expect_plain(&w, "holding");
        assert_false(there_is(&c, "view"));
        run_publish(&c, &fds, w.pid);
        check_view(&c, w.pid);
        run_probe(&c, fds.fds[0], NULL);

        /* a worker that dies by a signal */
        assert_int_equal(kill(w.pid, SIGKILL), 0);
        worker_expect_end(&w, 1000 + SIGKILL);
        run_probe(&c, fds.fds[0], "LoadFailed");
        run_remove(&c, w.pid + 1, 0); /* not its pid: the file stays */
        assert_true(there_is(&c, "worker.pid"));
        assert_false(there_is(&c, "view"));
        run_remove(&c, w.pid, 0);
        assert_false(there_is(&c, "worker.pid"));
        check_text(&c, "worker.log", "stopped\nstopped\n");
        run_remove(&c, w.pid, 0); /* nothing there any more */

        assert_int_equal(mkdirat(c.scratch.fd, "view", 0755), 0);
        scratch_write(&c.scratch, "view/precious", "mine");
        run_remove(&c, w.pid, 1);
        check_text(&c, "view/precious", "mine");
}

/* The manager goes away at every moment of a load. */
static void test_manager_gone(void **state)
{
        for (unsigned stage = 0; stage < 5; stage++) {
                _cleanup_checkpoint_ Checkpoint c;
                _cleanup_fd_set_ FdSet fds = {};
                struct json_object *job;
                Worker w;

                checkpoint_make(&c);
                w = worker_start(0);
                if (stage > 0) {
                        job = job_load(&c);
                        job_add_paths(job, &c);
                        worker_send(&w, job, &c.root_fd, 1);
                }
                if (stage > 1)
                        expect_selected(&w);
                if (stage > 2)
                        worker_command(&w, "load");
                if (stage > 3)
                        expect_loaded(&w, 2 * LARGE_A + LARGE_B + 11, &fds);
                assert_int_equal(worker_wait(&w), 0);
                assert_false(there_is(&c, "view"));
                assert_false(there_is(&c, "worker.pid"));
                assert_false(there_is(&c, "worker.log"));
        }
}

/* Half a frame, and then nothing. */
static void test_half_frame(void **state)
{
        Worker w = worker_start(0);

        assert_int_equal(send(frame_stream_get_fd(w.stream), "{\"job\":", 7, MSG_NOSIGNAL), 7);
        assert_int_equal(worker_wait(&w), 0);
}

static void test_quit(void **state)
{
        static const char *const words[] = {"quit", "stop"};

        for (size_t i = 0; i < ELEMENTSOF(words); i++) {
                _cleanup_checkpoint_ Checkpoint c;
                struct json_object *job;
                Worker w;

                checkpoint_make(&c);
                w = worker_start(0);
                job = job_load(&c);
                job_add_paths(job, &c);
                worker_send(&w, job, &c.root_fd, 1);
                expect_selected(&w);
                worker_command(&w, words[i]);
                worker_expect_end(&w, 0);
                assert_false(there_is(&c, "worker.pid"));
                assert_false(there_is(&c, "worker.log"));
        }
}

/* Large enough that the copy can't be over before the command arrives; sparse, so that the source costs
 * nothing. */
static void test_quit_while_copying(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;
        _cleanup_frame_ Frame selected = {};
        _cleanup_close_ int fd = -EBADF;
        struct json_object *job;
        usec_t start;
        Worker w;

        checkpoint_make(&c);
        fd = openat(c.scratch.fd, "model/huge", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        if (ftruncate(fd, (off_t) GIB(256)) < 0)
                skip();
        w = worker_start(0);
        job = job_load(&c);
        job_add_paths(job, &c);
        worker_send(&w, job, &c.root_fd, 1);
        worker_expect(&w, "selected", &selected);
        worker_command(&w, "load");
        worker_expect_plain(&w, "progress");
        start = now_monotonic();
        worker_command(&w, "quit");
        for (;;) {
                _cleanup_frame_ Frame f = {};
                int r = frame_stream_receive_wait(w.stream, start + PATIENCE, &f, NULL);
                const char *event;

                if (r == -ENOTCONN)
                        break;
                assert_int_equal(r, 0);
                assert_int_equal(json_get_string(f.object, "event", &event), 0);
                assert_string_equal(event, "progress");
        }
        assert_int_equal(worker_wait(&w), 0);
        assert_true(now_monotonic() - start < 10 * USEC_PER_SEC);
        assert_false(there_is(&c, "worker.pid"));
}

/* A manager that asks for things at the wrong time, or in words that aren't. */
static void test_out_of_turn(void **state)
{
        static const char *const words[] = {"publish", "load it", ""};

        for (size_t i = 0; i < ELEMENTSOF(words); i++) {
                _cleanup_checkpoint_ Checkpoint c;
                Worker w;

                checkpoint_make(&c);
                w = worker_start(0);
                worker_send(&w, job_load(&c), &c.root_fd, 1);
                expect_selected(&w);
                worker_command(&w, words[i]);
                worker_expect_error(&w, "LoadFailed", "command");
        }
}

static void test_garbage(void **state)
{
        static const char *const texts[] = {"garbage",
                                            "[]",
                                            "{}",
                                            "{\"job\":1}",
                                            "{\"job\":\"load\"}",
                                            "{\"job\":\"dance\",\"name\":\"qwen\"}",
                                            "{\"job\":\"load\",\"job\":\"load\"}"};

        for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
                Worker w = worker_start(0);
                size_t n = strlen(texts[i]) + 1;

                assert_int_equal(send(frame_stream_get_fd(w.stream), texts[i], n, MSG_NOSIGNAL), n);
                worker_expect_error(&w, "LoadFailed", "job");
        }
}

static void test_no_manager(void **state)
{
        char program[4096];
        pid_t pid;
        int status;

        find_program(program, sizeof(program));
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                char *argv[] = {program, NULL}, *environment[] = {NULL};

                (void) close(3);
                (void) dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 2);
                execve(program, argv, environment);
                _exit(98);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 2);
}

/* Sends the job, changed by one pair, and expects the error; nothing may be left behind. */
static void refuse(Checkpoint *c, const char *key, struct json_object *value, rlim_t files, const char *error,
                   const char *in_message)
{
        Worker w = worker_start(files);
        struct json_object *job = job_load(c);

        job_add_paths(job, c);
        assert_int_equal(json_add(job, key, value), 0);
        worker_send(&w, job, &c->root_fd, 1);
        worker_expect_error(&w, error, in_message);
        if (!streq(key, "pidFile"))
                assert_false(there_is(c, "worker.pid"));
        if (!streq(key, "logFile"))
                assert_false(there_is(c, "worker.log"));
}

static struct json_object *below(const Checkpoint *c, const char *name)
{
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/%s", c->scratch.path, name);
        return json_object_new_string(path);
}

static void test_refusals(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;

        checkpoint_make(&c);
        refuse(&c, "source", below(&c, "nowhere"), 0, "SourceInvalid", "nowhere");
        refuse(&c, "source", json_object_new_string("relative"), 0, "LoadFailed", "source");
        refuse(&c, "mode", json_object_new_int(0600), 0, "LoadFailed", "mode");
        refuse(&c, "maxFiles", json_object_new_int(5), 0, "TooManyFiles", "5");
        refuse(&c, "maxBytes", json_object_new_int(1000), 0, "InsufficientMemory", "1000");
        refuse(&c, "mode", json_object_new_int(0400), WORKER_FIRST_DESCRIPTOR + 20, "TooManyFiles",
               "RLIMIT_NOFILE");

        refuse(&c, "view", below(&c, "model/view"), 0, "ViewConflict", "view");
        refuse(&c, "view", json_object_new_string(c.scratch.path), 0, "ViewConflict", "view");
        refuse(&c, "pidFile", below(&c, "model/worker.pid"), 0, "LoadFailed", "inside the source");
        refuse(&c, "logFile", below(&c, "model/worker.log"), 0, "LoadFailed", "inside the source");
        refuse(&c, "pidFile", below(&c, "nowhere/worker.pid"), 0, "LoadFailed", "pid file");
        refuse(&c, "logFile", below(&c, "nowhere/worker.log"), 0, "LoadFailed", "log file");
}

/* Missing directories above the view: made with the mode that is given whatever the umask, else refused. */
static void test_view_parents(void **state)
{
        for (int given = 0; given < 2; given++) {
                _cleanup_checkpoint_ Checkpoint c;
                _cleanup_fd_set_ FdSet fds = {};
                struct json_object *job;
                struct stat st;
                Worker w;

                checkpoint_make(&c);
                w = worker_start(0);
                job = job_load(&c);
                assert_int_equal(json_add(job, "view", below(&c, "new/deep/view")), 0);
                if (given)
                        assert_int_equal(json_add_int(job, "viewParentMode", 0775), 0);
                worker_send(&w, job, &c.root_fd, 1);
                expect_selected(&w);
                worker_command(&w, "load");
                expect_loaded(&w, 2 * LARGE_A + LARGE_B + 11, &fds);
                worker_command(&w, "publish");
                if (!given) {
                        worker_expect_error(&w, "LoadFailed", "new/deep/view");
                        assert_false(there_is(&c, "new"));
                        continue;
                }
                worker_expect_plain(&w, "holding");
                assert_true(there_is(&c, "new/deep/view"));
                assert_int_equal(fstatat(c.scratch.fd, "new/deep", &st, 0), 0);
                assert_int_equal(st.st_mode & 07777, 0775);
                worker_command(&w, "stop");
                worker_expect_end(&w, 0);
        }
}

/* What is there and isn't ours stays as it is. */
static void test_not_ours(void **state)
{
        static const char *const no_pid_files[] = {"precious", "12", "12\n\n", "-12\n", "12 \n",
                                                   "0\n",      "",   "\n",     " 12\n"};
        _cleanup_checkpoint_ Checkpoint c;

        checkpoint_make(&c);
        for (size_t i = 0; i < ELEMENTSOF(no_pid_files); i++) {
                scratch_write(&c.scratch, "file", no_pid_files[i]);
                refuse(&c, "pidFile", below(&c, "file"), 0, "LoadFailed", "no pid file");
                check_text(&c, "file", no_pid_files[i]);
        }
        assert_int_equal(mkdirat(c.scratch.fd, "directory", 0755), 0);
        refuse(&c, "pidFile", below(&c, "directory"), 0, "LoadFailed", "no pid file");
        refuse(&c, "logFile", below(&c, "directory"), 0, "LoadFailed", "directory");
        refuse(&c, "view", below(&c, "file"), 0, "ViewConflict", "view");

        assert_int_equal(symlinkat("elsewhere", c.scratch.fd, "link"), 0);
        refuse(&c, "logFile", below(&c, "link"), 0, "LoadFailed", "symbolic link");
        refuse(&c, "pidFile", below(&c, "link"), 0, "LoadFailed", "no pid file");
        assert_false(there_is(&c, "elsewhere"));
        assert_int_equal(mkfifoat(c.scratch.fd, "fifo", 0600), 0);
        refuse(&c, "logFile", below(&c, "fifo"), 0, "LoadFailed", "log file");
        refuse(&c, "pidFile", below(&c, "fifo"), 0, "LoadFailed", "no pid file");
}

/* A pid file of an earlier worker of ours is replaced, and an old log file is appended to. */
static void test_ours(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;
        struct json_object *job;
        char pid[32];
        Worker w;

        checkpoint_make(&c);
        scratch_write(&c.scratch, "worker.pid", "4000000\n");
        scratch_write(&c.scratch, "worker.log", "old\n");
        w = worker_start(0);
        job = job_load(&c);
        job_add_paths(job, &c);
        worker_send(&w, job, &c.root_fd, 1);
        expect_selected(&w);
        (void) snprintf(pid, sizeof(pid), "%d\n", (int) w.pid);
        check_text(&c, "worker.pid", pid);
        worker_log(&w, "new");
        worker_command(&w, "quit");
        worker_expect_end(&w, 0);
        assert_false(there_is(&c, "worker.pid"));
        check_text(&c, "worker.log", "old\nnew\n");
}

typedef enum Change {
        CHANGE_TOUCH,
        CHANGE_SHRINK,
        CHANGE_GROW,
        CHANGE_REMOVE,
        CHANGE_REPLACE,
        CHANGE_SMALL,
        _CHANGE_MAX,
} Change;

static void change(const Checkpoint *c, Change what)
{
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/a.safetensors", c->source);
        switch (what) {
        case CHANGE_TOUCH:
                assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0);
                break;
        case CHANGE_SHRINK:
                assert_int_equal(truncate(path, 100), 0);
                break;
        case CHANGE_GROW:
                assert_int_equal(truncate(path, LARGE_A + 1), 0);
                break;
        case CHANGE_REMOVE:
                assert_int_equal(unlink(path), 0);
                break;
        case CHANGE_REPLACE:
                write_large(c, "model/new", LARGE_A, 1);
                assert_int_equal(renameat(c->scratch.fd, "model/new", c->scratch.fd, "model/a.safetensors"),
                                 0);
                break;
        default:
                scratch_write(&c->scratch, "model/config.json", "{\"b\": 1}");
                break;
        }
}

static void test_source_changed(void **state)
{
        for (Change what = 0; what < _CHANGE_MAX; what++) {
                _cleanup_checkpoint_ Checkpoint c;
                struct json_object *job;
                Worker w;

                checkpoint_make(&c);
                w = worker_start(0);
                job = job_load(&c);
                job_add_paths(job, &c);
                worker_send(&w, job, &c.root_fd, 1);
                expect_selected(&w);
                change(&c, what);
                worker_command(&w, "load");
                worker_expect_error(&w, "SourceChanged", what == CHANGE_SMALL ? "config.json" : "");
                assert_false(there_is(&c, "view"));
                assert_false(there_is(&c, "worker.pid"));
        }
}

/* More descriptors than one frame takes; each file exactly at the limit of the pack. */
static void test_many_files(void **state)
{
        const unsigned n = 230;
        _cleanup_checkpoint_ Checkpoint c;
        _cleanup_fd_set_ FdSet fds = {};
        _cleanup_frame_ Frame f = {};
        struct json_object *job;
        Worker w;

        checkpoint_make(&c);
        assert_int_equal(mkdirat(c.scratch.fd, "many", 0755), 0);
        (void) snprintf(c.source, sizeof(c.source), "%s/many", c.scratch.path);
        for (unsigned i = 0; i < n; i++) {
                _cleanup_close_ int fd = -EBADF;
                char name[32];

                (void) snprintf(name, sizeof(name), "many/%05u", i);
                fd = openat(c.scratch.fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
                assert_true(fd >= 0);
                assert_int_equal(ftruncate(fd, WORKER_PACK_LIMIT), 0);
                assert_int_equal(fd_pwrite_full(fd, name, strlen(name), 1000), 0);
        }
        (void) fd_limit_raise(NULL);
        w = worker_start(0);
        job = job_load(&c);
        worker_send(&w, job, &c.root_fd, 1);
        worker_expect(&w, "selected", &f);
        assert_int_equal(get(&f, "largeFiles"), n);
        assert_int_equal(get(&f, "packBytes"), 0);
        worker_command(&w, "load");
        expect_loaded(&w, n * WORKER_PACK_LIMIT, &fds);
        assert_int_equal(fds.n, n + 1);
        for (unsigned i = 0; i < n; i++) {
                char name[32], got[32] = "";

                (void) snprintf(name, sizeof(name), "many/%05u", i);
                assert_int_equal(memfd_verify(fds.fds[i + 1], WORKER_PACK_LIMIT), 0);
                assert_int_equal(fd_pread_full(fds.fds[i + 1], got, strlen(name), 1000), 0);
                assert_string_equal(got, name);
        }
        worker_command(&w, "publish");
        worker_expect_plain(&w, "holding");
        worker_command(&w, "stop");
        worker_expect_end(&w, 0);
}

/* Nothing but empty files: no pack, no resident file, and still a view. */
static void test_empty_files(void **state)
{
        _cleanup_checkpoint_ Checkpoint c;
        _cleanup_fd_set_ FdSet fds = {};
        _cleanup_frame_ Frame f = {};
        struct json_object *job;
        Worker w;

        checkpoint_make(&c);
        assert_int_equal(mkdirat(c.scratch.fd, "none", 0755), 0);
        (void) snprintf(c.source, sizeof(c.source), "%s/none", c.scratch.path);
        scratch_write(&c.scratch, "none/a", "");
        scratch_write(&c.scratch, "none/b", "");
        w = worker_start(0);
        job = job_load(&c);
        job_add_paths(job, &c);
        worker_send(&w, job, &c.root_fd, 1);
        worker_expect(&w, "selected", &f);
        assert_int_equal(get(&f, "packBytes"), 0);
        worker_command(&w, "load");
        expect_loaded(&w, 0, &fds);
        assert_int_equal(fds.n, 1);
        worker_command(&w, "publish");
        worker_expect_plain(&w, "holding");
        check_text(&c, "view/b", "");
        worker_command(&w, "stop");
        worker_expect_end(&w, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_life),           cmocka_unit_test(test_other_jobs),
                cmocka_unit_test(test_manager_gone),   cmocka_unit_test(test_half_frame),
                cmocka_unit_test(test_quit),           cmocka_unit_test(test_quit_while_copying),
                cmocka_unit_test(test_out_of_turn),    cmocka_unit_test(test_garbage),
                cmocka_unit_test(test_no_manager),     cmocka_unit_test(test_refusals),
                cmocka_unit_test(test_not_ours),       cmocka_unit_test(test_ours),
                cmocka_unit_test(test_source_changed), cmocka_unit_test(test_many_files),
                cmocka_unit_test(test_empty_files),    cmocka_unit_test(test_view_parents),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
