/* Worker processes: started as the cache's owner, spoken with over one socketpair, watched by pidfd. Nothing
 * of what a worker does or fails to do can block or crash the manager: frames are bounded, silence has a
 * limit, and the end of the process, however it comes, is told once. */
#pragma once

#include <systemd/sd-event.h>

#include "daemon/identity.h"
#include "daemon/message.h"

typedef struct WorkerPool {
        sd_event *event;      /* not owned */
        int exec_fd;          /* the program, opened when the manager started; owned */
        char *path;           /* of it, for people; owned */
        bool switch_user;     /* system scope: workers run as the caches' owners */
        usec_t stall_timeout; /* silence for longer ends a worker that is being waited for */
        struct Worker *first;
        size_t n_workers;
} WorkerPool;

int worker_pool_init(WorkerPool *p, sd_event *event, bool switch_user, usec_t stall_timeout);
void worker_pool_done(WorkerPool *p);
void worker_pool_stop_transient(WorkerPool *p);

typedef struct Worker Worker;

typedef struct WorkerHandlers {
        /* A message; what is in it may be taken. The worker may be ended from here, but is freed later. */
        void (*message)(Worker *w, WorkerMessage *m, void *userdata);
        /* The process is gone, and the object will be when this returns. why: NULL where it exited with 0,
         * else what happened, to follow "the worker". */
        void (*ended)(Worker *w, const char *why, void *userdata);
} WorkerHandlers;

typedef struct WorkerStart {
        const char *name; /* of the cache */
        const Identity *identity;
        struct json_object *job; /* not taken */
        const int *fds;          /* that go with the job; dup'ed */
        size_t n_fds;
        WorkerHandlers handlers;
        void *userdata;
        bool transient; /* may be killed when the manager stops: nothing depends on its result */
} WorkerStart;

/* Starts one and sends the job. The stall limit holds until worker_set_waiting(w, false). */
int worker_spawn(WorkerPool *p, const WorkerStart *start, Worker **ret);
pid_t worker_pid(const Worker *w);
/* A command of the protocol. Errors mean that the worker is on its way out: its end
 * will be told. */
int worker_send(Worker *w, const char *command);
/* A line for its log file. -ENOBUFS where it doesn't read: log lines are not worth memory. */
int worker_log(Worker *w, const char *line);
/* Whether something is expected of the worker, so that silence is a fault. */
void worker_set_waiting(Worker *w, bool waiting);
/* Sends the command and gives the process some seconds to leave before it is killed; NULL: killed at once.
 * Its end is told as any other; one that even SIGKILL does not end is reported as ended after a while and
 * forgotten. */
void worker_end(Worker *w, const char *command);
/* When told of its end: whether it exited as programs do, so that it has taken away what it made before it
 * held. */
bool worker_left_by_itself(const Worker *w);
