/* Worker processes on the event loop. */
#include "daemon/workers.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/process.h"
#include "base/size.h"
#include "base/text.h"
#include "wire/frame.h"
#include "wire/worker-protocol.h"

/* How long a worker may take to leave by itself; and how long its end may take once it is killed, which
 * includes that the kernel gives back all its memory. */
#define LEAVE_TIMEOUT (3 * USEC_PER_SEC)
#define KILL_TIMEOUT  (120 * USEC_PER_SEC)
/* Log lines that a worker has not read yet, in bytes. */
#define LOG_QUEUE_MAX KIB(64)

struct Worker {
        WorkerPool *pool;
        Worker *next; /* in the pool */
        char *name;
        pid_t pid;
        int pidfd;
        FrameStream *stream;
        sd_event_source *io_source, *exit_source, *stall_source, *end_source;
        WorkerHandlers handlers;
        void *userdata;
        char *why;   /* the first thing that went wrong */
        bool ending; /* asked or made to leave */
        bool killed;
        bool told;
        bool transient;
        int status; /* of its end */
};

int worker_pool_init(WorkerPool *p, sd_event *event, bool switch_user, usec_t stall_timeout)
{
        _cleanup_free_ char *path = NULL;
        int fd;

        fd = program_open_sibling("iloader-worker", &path);
        if (fd < 0)
                return fd;
        *p = (WorkerPool){
                .event = event,
                .exec_fd = fd,
                .path = TAKE_PTR(path),
                .switch_user = switch_user,
                .stall_timeout = stall_timeout,
        };
        return 0;
}

void worker_pool_done(WorkerPool *p)
{
        p->exec_fd = close_fd(p->exec_fd);
        free(p->path);
        p->path = NULL;
}

static Worker *worker_free(Worker *w)
{
        if (!w)
                return NULL;
        sd_event_source_disable_unref(w->io_source);
        sd_event_source_disable_unref(w->exit_source);
        sd_event_source_disable_unref(w->stall_source);
        sd_event_source_disable_unref(w->end_source);
        frame_stream_free(w->stream);
        close_fd(w->pidfd);
        free(w->name);
        free(w->why);
        free(w);
        return NULL;
}
DEFINE_CLEANUP(Worker *, worker_free)

pid_t worker_pid(const Worker *w)
{
        return w->pid;
}

static void pool_remove(WorkerPool *p, Worker *w)
{
        for (Worker **i = &p->first; *i; i = &(*i)->next)
                if (*i == w) {
                        *i = w->next;
                        p->n_workers--;
                        return;
                }
}

void worker_pool_stop_transient(WorkerPool *p)
{
        for (Worker *w = p->first; w; w = w->next)
                if (w->transient)
                        worker_end(w, NULL);
}

bool worker_left_by_itself(const Worker *w)
{
        return w->status == 0 || w->status == 1;
}

static void worker_tell_ended(Worker *w, const char *why)
{
        if (w->told)
                return;
        w->told = true;
        if (w->handlers.ended)
                w->handlers.ended(w, why, w->userdata);
        w->handlers = (WorkerHandlers){};
}

static int on_end_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        Worker *w = userdata;

        if (!w->killed) {
                worker_end(w, NULL);
                return 0;
        }
        (void) log_warning(0, "Worker %d of cache '%s' does not end even after SIGKILL; going on without it.",
                           (int) w->pid, w->name);
        worker_tell_ended(w, "does not end even after SIGKILL; its memory may still be in use");
        return 0;
}

static void worker_arm_end(Worker *w, usec_t timeout)
{
        int r;

        if (w->end_source) {
                r = sd_event_source_set_time_relative(w->end_source, timeout);
                if (r >= 0)
                        r = sd_event_source_set_enabled(w->end_source, SD_EVENT_ONESHOT);
        } else
                r = sd_event_add_time_relative(w->pool->event, &w->end_source, CLOCK_MONOTONIC, timeout, 0,
                                               on_end_timer, w);
        if (r < 0)
                (void) log_warning(r, "Cannot set a timer for the end of worker %d: %m", (int) w->pid);
        /* Without a timer there is no second chance. */
        if (r < 0 && !w->killed) {
                w->killed = true;
                (void) pidfd_send_signal_to(w->pidfd, SIGKILL);
        }
}

static void worker_kill(Worker *w)
{
        if (w->killed)
                return;
        w->killed = true;
        (void) pidfd_send_signal_to(w->pidfd, SIGKILL);
        worker_arm_end(w, KILL_TIMEOUT);
}

/* Ends a worker that did something wrong; the first reason counts. */
static void worker_break(Worker *w, const char *why)
{
        if (!w->why)
                w->why = strdup(why);
        w->ending = true;
        worker_set_waiting(w, false);
        w->io_source = sd_event_source_disable_unref(w->io_source);
        worker_kill(w);
}

static int on_stall(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        _cleanup_free_ char *why = NULL;
        Worker *w = userdata;
        char span[TIMESPAN_TEXT_MAX];

        (void) text_format(&why, "made no progress for %s", format_timespan(span, w->pool->stall_timeout));
        worker_break(w, why ? why : "made no progress");
        return 0;
}

void worker_set_waiting(Worker *w, bool waiting)
{
        int r = 0;

        if (!waiting) {
                if (w->stall_source)
                        (void) sd_event_source_set_enabled(w->stall_source, SD_EVENT_OFF);
                return;
        }
        if (w->ending)
                return;
        if (w->stall_source) {
                r = sd_event_source_set_time_relative(w->stall_source, w->pool->stall_timeout);
                if (r >= 0)
                        r = sd_event_source_set_enabled(w->stall_source, SD_EVENT_ONESHOT);
        } else
                r = sd_event_add_time_relative(w->pool->event, &w->stall_source, CLOCK_MONOTONIC,
                                               w->pool->stall_timeout, USEC_PER_SEC, on_stall, w);
        if (r < 0)
                worker_break(w, "could not be given a time limit");
}

static void worker_update_events(Worker *w)
{
        if (w->io_source)
                (void) sd_event_source_set_io_events(
                        w->io_source, EPOLLIN | (frame_stream_queued(w->stream) > 0 ? EPOLLOUT : 0));
}

static int send_command(Worker *w, const char *command, const char *line)
{
        _cleanup_json_ struct json_object *o = NULL;
        int r;

        o = json_object_new_object();
        if (!o)
                return -ENOMEM;
        r = json_add_string(o, "command", command);
        if (r >= 0)
                r = json_add_string(o, "line", line);
        if (r >= 0)
                r = frame_stream_send(w->stream, o, NULL, 0);
        worker_update_events(w);
        return r;
}

int worker_send(Worker *w, const char *command)
{
        return send_command(w, command, NULL);
}

int worker_log(Worker *w, const char *line)
{
        return frame_stream_queued(w->stream) > LOG_QUEUE_MAX ? -ENOBUFS : send_command(w, "log", line);
}

/* One frame. Negative where the stream is over. */
static int worker_receive_one(Worker *w)
{
        _cleanup_worker_message_ WorkerMessage message = {};
        _cleanup_frame_ Frame frame = {};
        _cleanup_free_ char *why = NULL;
        const char *reason = NULL;
        JsonFault fault = {};
        int r;

        r = frame_stream_receive(w->stream, &frame, &fault);
        if (r == 0)
                return 0;
        if (r == -ENOTCONN || r == -ECONNRESET) {
                /* Its process is about to end, or is to. */
                w->io_source = sd_event_source_disable_unref(w->io_source);
                if (!w->ending) {
                        w->ending = true;
                        worker_set_waiting(w, false);
                        worker_arm_end(w, LEAVE_TIMEOUT);
                }
                return r;
        }
        if (r < 0) {
                (void) text_format(&why, "sent what cannot be read: %s",
                                   fault.reason ? fault.reason : strerror(-r));
                worker_break(w, why ? why : "sent what cannot be read");
                return r;
        }
        r = worker_message_parse(frame.object, &frame.fds, w->name, &message, &reason);
        if (r < 0) {
                (void) text_format(&why, "sent %s", reason ? reason : strerror(-r));
                worker_break(w, why ? why : "sent what cannot be read");
                return r;
        }
        if (w->stall_source) {
                int enabled;

                if (sd_event_source_get_enabled(w->stall_source, &enabled) > 0)
                        worker_set_waiting(w, true);
        }
        if (w->handlers.message)
                w->handlers.message(w, &message, w->userdata);
        return 1;
}

static int on_io(_unused_ sd_event_source *source, _unused_ int fd, uint32_t revents, void *userdata)
{
        Worker *w = userdata;

        if (revents & EPOLLOUT) {
                (void) frame_stream_flush(w->stream);
                worker_update_events(w);
        }
        if (!(revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
                return 0;
        /* One frame at a time, so that a chatty worker takes turns with everybody else. */
        (void) worker_receive_one(w);
        return 0;
}

static void describe_end(const Worker *w, int status, char **ret)
{
        int sig = status - 128;

        if (w->why) {
                *ret = strdup(w->why);
                return;
        }
        if (status == 0 || (w->killed && sig == SIGKILL))
                return;
        if (sig == SIGKILL)
                (void) text_format(
                        ret, "was killed (SIGKILL): by the kernel for want of memory (see 'journalctl -k'), "
                             "or by somebody");
        else if (sig > 0)
                (void) text_format(ret, "was ended by signal %d (%s)", sig,
                                   sigabbrev_np(sig) ? sigabbrev_np(sig) : "?");
        else
                (void) text_format(ret, "exited with status %d", status);
}

static int on_process_end(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                          void *userdata)
{
        _cleanup_(worker_freep) Worker *w = userdata;
        _cleanup_free_ char *why = NULL;
        int r;

        r = pidfd_wait(w->pidfd, now_monotonic(), &w->status);
        if (r == -ETIMEDOUT) {
                w = NULL;
                return 0;
        }
        if (r < 0)
                (void) text_format(&why, "could not be waited for: %s", strerror(-r));
        /* Its last words are still in the socket: read them before telling. */
        while (w->io_source && worker_receive_one(w) > 0)
                ;
        if (r >= 0)
                describe_end(w, w->status, &why);
        pool_remove(w->pool, w);
        worker_tell_ended(w, why);
        return 0;
}

static int worker_watch(Worker *w)
{
        int r;

        r = sd_event_add_io(w->pool->event, &w->io_source, frame_stream_get_fd(w->stream), EPOLLIN, on_io, w);
        if (r < 0)
                return r;
        r = sd_event_add_io(w->pool->event, &w->exit_source, w->pidfd, EPOLLIN, on_process_end, w);
        if (r < 0)
                return r;
        /* After what it sent before it ended. */
        return sd_event_source_set_priority(w->exit_source, SD_EVENT_PRIORITY_NORMAL + 10);
}

static int worker_execute(Worker *w, const WorkerStart *start, int fd)
{
        char *argv[] = {(char *) "iloader-worker", NULL};
        SpawnOptions options = SPAWN_OPTIONS_INIT;
        SpawnCredentials credentials = identity_credentials(start->identity);

        options.exec_fd = w->pool->exec_fd;
        options.argv = argv;
        options.fds = &fd;
        options.n_fds = 1;
        options.death_signal = true;
        if (w->pool->switch_user)
                options.credentials = &credentials;
        return spawn_program(&options, &w->pid, &w->pidfd);
}

int worker_spawn(WorkerPool *p, const WorkerStart *start, Worker **ret)
{
        _cleanup_close_ int ours = -EBADF, theirs = -EBADF;
        _cleanup_(worker_freep) Worker *w = NULL;
        int pair[2], status, r;

        w = malloc(sizeof(*w));
        if (!w)
                return -ENOMEM;
        *w = (Worker){
                .pool = p,
                .pidfd = -EBADF,
                .status = -ECHILD,
                .handlers = start->handlers,
                .userdata = start->userdata,
                .transient = start->transient,
        };
        w->name = strdup(start->name);
        if (!w->name)
                return -ENOMEM;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        ours = pair[0];
        theirs = pair[1];
        r = frame_stream_new(ours, WORKER_FRAME_MAX, WORKER_FDS_PER_FRAME, WORKER_FRAME_MAX, &w->stream);
        if (r < 0)
                return r;
        TAKE_FD(ours);
        r = worker_execute(w, start, theirs);
        if (r < 0)
                return r;
        r = worker_watch(w);
        if (r >= 0)
                r = frame_stream_send(w->stream, start->job, start->fds, start->n_fds);
        if (r < 0) {
                (void) pidfd_send_signal_to(w->pidfd, SIGKILL);
                (void) pidfd_wait(w->pidfd, now_monotonic() + USEC_PER_SEC, &status);
                return r;
        }
        w->next = p->first;
        p->first = w;
        p->n_workers++;
        worker_update_events(w);
        worker_set_waiting(w, true);
        *ret = TAKE_PTR(w);
        return 0;
}

void worker_end(Worker *w, const char *command)
{
        w->ending = true;
        worker_set_waiting(w, false);
        if (!command || worker_send(w, command) < 0) {
                worker_kill(w);
                return;
        }
        if (!w->killed)
                worker_arm_end(w, LEAVE_TIMEOUT);
}
