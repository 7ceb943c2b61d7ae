/* See load.h. Steps in the order of ARCHITECTURE.md: look at everything that could refuse the load, report
 * and wait for admission, copy, look a second time, seal, hand up, publish, hold. Until the worker holds,
 * whatever ends it takes away what it made. */
#include "daemon/worker/load.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/path.h"
#include "base/sandbox.h"
#include "base/text.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/view.h"
#include "daemon/worker/copy.h"
#include "daemon/worker/logfile.h"
#include "daemon/worker/pidfile.h"
#include "daemon/worker/publish.h"
#include "daemon/worker/report.h"
#include "daemon/worker/seal.h"
#include "wire/worker-protocol.h"

#define LOAD_PROGRESS_INTERVAL (100 * USEC_PER_MSEC)
/* How long threads that were told to stop may take, until the process ends around them: a read from a file
 * system whose server is gone can't be interrupted. */
#define LOAD_CANCEL_WAIT USEC_PER_SEC

typedef struct Load {
        Control *control; /* not owned */
        Failure *failure; /* not owned */
        Job *job;
        SelectionOptions selecting; /* borrows from the job */
        Source source;
        Selection selection;
        Layout layout;
        CopyOptions copying;
        Resident resident;
        PidFile pid_file;
        LogFile log_file;
        int manifest_fd;
        char fingerprint[DIGEST_HEX_MAX];
        uint64_t bytes;
        usec_t copy_usec;
        bool published, holding;
} Load;

/* Everything that only loading needs. */
static void load_forget(Load *l)
{
        source_done(&l->source);
        selection_done(&l->selection);
        layout_done(&l->layout);
        l->manifest_fd = close_fd(l->manifest_fd);
        l->job = job_free(l->job);
        pid_file_done(&l->pid_file);
        log_file_settle(&l->log_file);
}

/* Takes the view, the pid file and an empty log file away again. */
static void load_retract(Load *l)
{
        _cleanup_view_fault_ ViewFault fault = {};

        if (l->holding)
                return;
        if (l->published)
                (void) view_remove(l->job->root_fd, l->job->name, l->job->view, &fault);
        if (l->pid_file.dir_fd >= 0)
                (void) pid_file_remove(&l->pid_file);
        log_file_discard(&l->log_file);
}

static void load_done(Load *l)
{
        load_retract(l);
        load_forget(l);
        resident_done(&l->resident);
        log_file_done(&l->log_file);
}

/* Pid and log file must lie outside the source: they would be selected next time. */
static int load_check_outside(Load *l, const char *path, const char *what)
{
        _cleanup_free_ char *parent = NULL, *real = NULL, *shown = NULL, *source = NULL;
        const char *name;
        int r;

        r = path_escape(path, &shown);
        if (r >= 0)
                r = path_escape(l->source.real_path, &source);
        if (r < 0)
                return r;
        r = path_split(path, &parent, &name);
        if (r >= 0)
                r = source_real_path(l->job->root_fd, parent, &real);
        if (r < 0)
                return failure_set(l->failure, r, FAILURE_LOAD_FAILED, path,
                                   "cannot open the directory of the %s %s: %m: name another place", what,
                                   shown);
        if (path_is_below(real, l->source.real_path))
                return failure_set(l->failure, EINVAL, FAILURE_LOAD_FAILED, path,
                                   "%s %s is inside the source %s: name another place", what, shown, source);
        return 0;
}

static int load_open_files(Load *l)
{
        int r;

        if (l->job->log_file) {
                r = load_check_outside(l, l->job->log_file, "log file");
                if (r < 0)
                        return r;
                r = log_file_open(l->job->root_fd, l->job->log_file, true, &l->log_file, l->failure);
                if (r < 0)
                        return r;
        }
        if (l->job->pid_file) {
                r = load_check_outside(l, l->job->pid_file, "pid file");
                if (r < 0)
                        return r;
                r = pid_file_write(l->job->root_fd, l->job->pid_file, getpid(), &l->pid_file, l->failure);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int load_select(Load *l)
{
        _cleanup_source_fault_ SourceFault fault = {};
        int r;

        l->selecting = (SelectionOptions){
                .patterns = l->job->patterns,
                .excludes = l->job->excludes,
                .max_files = l->job->max_files,
        };
        r = selection_read(&l->source, &l->selecting, &l->selection, &fault);
        if (r < 0)
                return failure_take_source(l->failure, r, &fault);
        if (l->selection.bytes > l->job->max_bytes) {
                r = failure_set(l->failure, EFBIG, FAILURE_INSUFFICIENT_MEMORY, l->job->source,
                                "the selected files of %s have %" PRIu64 " bytes; at most %" PRIu64
                                " are allowed",
                                l->job->source, l->selection.bytes, l->job->max_bytes);
                l->failure->maximum = l->job->max_bytes;
                return r;
        }
        r = fingerprint_compute(l->source.real_path, &l->selecting, &l->selection, l->fingerprint);
        if (r < 0)
                return failure_complete(l->failure, r, "cannot compute the fingerprint");
        r = layout_compute(&l->selection, &l->layout);
        if (r < 0)
                return failure_complete(l->failure, r, "cannot lay out the files");
        return 0;
}

/* Everything that can be refused before a byte is read; nothing is made but the pid and log file. */
static int load_look(Load *l, TransferHuge huge)
{
        _cleanup_source_fault_ SourceFault source_fault = {};
        _cleanup_view_fault_ ViewFault view_fault = {};
        int r;

        r = source_open(l->job->root_fd, l->job->source, &l->source, &source_fault);
        if (r < 0)
                return failure_take_source(l->failure, r, &source_fault);
        if (l->job->view) {
                r = view_check(l->job->root_fd, l->job->name, l->job->view, l->source.real_path, &view_fault);
                if (r < 0)
                        return failure_take_view(l->failure, r, &view_fault);
        }
        r = load_select(l);
        if (r < 0)
                return r;
        l->copying = (CopyOptions){
                .threads =
                        copy_threads_choose(l->job->workers, l->job->chunk_size, &l->layout, &l->selection),
                .chunk_size = l->job->chunk_size,
                .huge = huge,
        };
        r = resident_check_limit(WORKER_FIRST_DESCRIPTOR, layout_memories(&l->layout), l->copying.threads,
                                 l->failure);
        if (r < 0)
                return r;
        return load_open_files(l);
}

static int load_report_selected(Load *l)
{
        ReportSelected s = {
                .source = l->source.real_path,
                .fingerprint = l->fingerprint,
                .files = l->selection.n_files,
                .bytes = l->selection.bytes,
                .large_files = l->layout.n_large,
                .pack_bytes = l->layout.pack_bytes,
                .buffer_bytes = copy_overhead(&l->copying, &l->layout, &l->selection),
        };

        return report_selected(l->control, &s);
}

/* What may come at any time: 0 done with it; -ENOTCONN where it asks for the end; -EBADMSG where it has no
 * place. */
static int load_handle(Load *l, const Command *command)
{
        switch (command->kind) {
        case COMMAND_LOG:
                /* a log file that can't be written must not cost the cache */
                (void) log_file_append(&l->log_file, command->line);
                return 0;
        case COMMAND_QUIT:
        case COMMAND_STOP:
                return -ENOTCONN;
        default:
                return -EBADMSG;
        }
}

static int load_unexpected(Load *l, int error)
{
        return failure_set(l->failure, error, FAILURE_LOAD_FAILED, NULL,
                           "the manager's command is malformed: %m");
}

/* Until the manager says what is expected. */
static int load_wait(Load *l, CommandKind expected)
{
        for (;;) {
                _cleanup_command_ Command command = {.kind = _COMMAND_KIND_INVALID};
                int r;

                r = control_wait(l->control, &command);
                if (r >= 0) {
                        if (command.kind == expected)
                                return 0;
                        r = load_handle(l, &command);
                }
                if (r == -ENOTCONN)
                        return r;
                if (r < 0)
                        return load_unexpected(l, r);
        }
}

/* Commands that came during the copy. */
static int load_listen(Load *l)
{
        for (;;) {
                _cleanup_command_ Command command = {.kind = _COMMAND_KIND_INVALID};
                int r;

                r = control_receive(l->control, &command);
                if (r == 0)
                        return 0;
                if (r > 0)
                        r = load_handle(l, &command);
                if (r == -ENOTCONN)
                        return r;
                if (r < 0)
                        return load_unexpected(l, r);
        }
}

/* Waits for the copy, the manager and the next moment to report, whichever comes first. */
static int load_watch(Load *l, Copy *copy)
{
        usec_t next = now_monotonic() + LOAD_PROGRESS_INTERVAL;
        uint64_t reported = 0;
        int r;

        r = load_listen(l); /* what came together with the last command */
        if (r < 0)
                return r;
        for (;;) {
                struct pollfd fds[] = {
                        {.fd = copy_get_fd(copy), .events = POLLIN},
                        {.fd = control_get_fd(l->control), .events = POLLIN},
                };
                usec_t now = now_monotonic();

                if (!control_is_idle(l->control))
                        fds[1].events |= POLLOUT;
                r = poll(fds, ELEMENTSOF(fds), now >= next ? 0 : (int) ((next - now + 999) / USEC_PER_MSEC));
                if (r < 0 && errno != EINTR)
                        return failure_complete(l->failure, errno, "cannot wait for the copy");
                if (r > 0 && fds[1].revents) {
                        r = load_listen(l);
                        if (r < 0)
                                return r;
                        r = control_flush(l->control);
                        if (r < 0)
                                return r;
                }
                if (r > 0 && fds[0].revents)
                        return 0;
                now = now_monotonic();
                if (now < next)
                        continue;
                next = now + LOAD_PROGRESS_INTERVAL;
                if (copy_bytes(copy) != reported) {
                        reported = copy_bytes(copy);
                        r = report_progress(l->control, reported);
                        if (r < 0)
                                return r;
                }
        }
}

static int load_copy(Load *l)
{
        _cleanup_(copy_freep) Copy *copy = NULL;
        usec_t start = now_monotonic();
        int r, k;

        r = resident_create(WORKER_FIRST_DESCRIPTOR, l->job->name, &l->layout, &l->selection, &l->resident,
                            l->failure);
        if (r < 0)
                return r;
        r = copy_start(&l->source, &l->selection, &l->layout, &l->resident, &l->copying, &copy, l->failure);
        if (r < 0)
                return r;
        r = load_watch(l, copy);
        if (r < 0) {
                copy_cancel(copy);
                if (fd_wait(copy_get_fd(copy), POLLIN, now_monotonic() + LOAD_CANCEL_WAIT) < 0) {
                        load_retract(l);
                        _exit(r == -ENOTCONN ? EXIT_SUCCESS : EXIT_FAILURE);
                }
        }
        k = copy_finish(copy, l->failure);
        if (r < 0)
                return r;
        if (k < 0)
                return failure_complete(l->failure, k, "cannot copy the files");
        l->copy_usec = now_monotonic() - start;
        l->bytes = copy_bytes(copy);
        return 0;
}

/* The second look: what was read is what was selected. */
static int load_check(Load *l)
{
        for (size_t i = 0; i < l->selection.n_files; i++) {
                _cleanup_source_fault_ SourceFault fault = {};
                int r;

                r = source_check_file(&l->source, &l->selection.files[i], &fault);
                if (r < 0)
                        return failure_take_source(l->failure, r, &fault);
        }
        return 0;
}

static int load_write_files(Load *l, ManifestWriter *writer)
{
        uint32_t known = UINT32_MAX;
        struct stat st = {};

        for (size_t i = 0; i < l->selection.n_files; i++) {
                const SelectedFile *file = &l->selection.files[i];
                const Placement *place = &l->layout.files[i];
                ManifestFile f = {
                        .path = file->path,
                        .identity = file->identity,
                        .packed = place->packed,
                        .offset = place->offset,
                        .descriptor = (uint32_t) WORKER_FIRST_DESCRIPTOR + place->memory,
                };
                int r;

                if (place->packed && l->layout.pack_bytes == 0) {
                        /* empty, and in no memory file: the first number that none has */
                        st = (struct stat){};
                        f.descriptor = WORKER_FIRST_DESCRIPTOR + (uint32_t) l->resident.n;
                        known = UINT32_MAX;
                } else if (place->memory != known) {
                        if (fstat(resident_fd(&l->resident, place->memory), &st) < 0)
                                return -errno;
                        known = place->memory;
                }
                f.memory_device = st.st_dev;
                f.memory_inode = st.st_ino;
                r = manifest_writer_add(writer, &f);
                if (r < 0)
                        return r;
        }
        return manifest_writer_finish(writer);
}

static int load_write_manifest(Load *l)
{
        _cleanup_(manifest_writer_freep) ManifestWriter *writer = NULL;
        _cleanup_free_ char *label = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = text_format(&label, "iloader:%s:manifest", l->job->name);
        if (r < 0)
                return r;
        fd = memfd_new(label);
        if (fd < 0)
                return fd;
        r = manifest_writer_new(fd, l->selection.n_files, l->selection.bytes, l->resident.n, &writer);
        if (r < 0)
                return r;
        r = load_write_files(l, writer);
        if (r < 0)
                return r;
        writer = manifest_writer_free(writer);
        r = seal_one(&fd, l->job->mode, l->job->gid);
        if (r < 0)
                return r;
        l->manifest_fd = TAKE_FD(fd);
        return 0;
}

static int load_seal(Load *l)
{
        int r;

        r = seal_resident(&l->resident, l->job->mode, l->job->gid, l->failure);
        if (r < 0)
                return r;
        r = load_write_manifest(l);
        return r < 0 ? failure_complete(l->failure, r, "cannot write the manifest") : 0;
}

static int load_hand_up(Load *l)
{
        int r;

        r = report_files(l->control, l->manifest_fd, l->resident.first, l->resident.n);
        if (r < 0)
                return r;
        return report_loaded(l->control, l->resident.n + 1, l->resident.first, l->bytes, l->copy_usec);
}

static int load_publish(Load *l)
{
        int r;

        if (!l->job->view)
                return 0;
        r = publish_view(l->job, getpid(), l->manifest_fd,
                         l->layout.pack_bytes > 0 ? resident_fd(&l->resident, 0) : -EBADF, l->failure);
        if (r < 0)
                return r;
        l->published = true;
        return 0;
}

/* From here on only the resident files, the socket and the log file are left. */
static int load_hold(Load *l)
{
        int r;

        r = sandbox_enter_holding();
        if (r < 0)
                return failure_complete(l->failure, r, "cannot enter the holding filter");
        l->holding = true;
        load_forget(l);
        (void) malloc_trim(0);
        r = report_event(l->control, "holding");
        if (r < 0)
                return r;
        for (;;) {
                _cleanup_command_ Command command = {.kind = _COMMAND_KIND_INVALID};

                r = control_wait(l->control, &command);
                if (r >= 0)
                        r = load_handle(l, &command);
                if (r == -ENOTCONN)
                        return 0;
                if (r < 0)
                        return load_unexpected(l, r);
        }
}

static int load_live(Load *l, TransferHuge huge)
{
        int r;

        r = load_look(l, huge);
        if (r < 0)
                return r;
        r = load_report_selected(l);
        if (r < 0)
                return r;
        r = load_wait(l, COMMAND_LOAD);
        if (r < 0)
                return r;
        r = load_copy(l);
        if (r < 0)
                return r;
        r = load_check(l);
        if (r < 0)
                return r;
        r = load_seal(l);
        if (r < 0)
                return r;
        r = load_hand_up(l);
        if (r < 0)
                return r;
        r = load_wait(l, COMMAND_PUBLISH);
        if (r < 0)
                return r;
        r = load_publish(l);
        if (r < 0)
                return r;
        return load_hold(l);
}

int load_run(Control *control, Job *job, TransferHuge huge, Failure *ret_failure)
{
        _cleanup_(load_done) Load l = {
                .control = control,
                .failure = ret_failure,
                .job = job,
                .source = {.root_fd = -EBADF, .fd = -EBADF},
                .pid_file = PID_FILE_INIT,
                .log_file = LOG_FILE_INIT,
                .manifest_fd = -EBADF,
        };

        return load_live(&l, huge);
}
