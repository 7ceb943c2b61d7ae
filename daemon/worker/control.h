/* The link with the manager: commands in, events out. Its end is the worker's end. */
#pragma once

#include <stdbool.h>

#include "wire/frame.h"

typedef struct Control Control;

typedef enum CommandKind {
        COMMAND_LOAD,
        COMMAND_QUIT,
        COMMAND_PUBLISH,
        COMMAND_LOG,
        COMMAND_STOP,
        _COMMAND_KIND_MAX,
        _COMMAND_KIND_INVALID = -EINVAL,
} CommandKind;

typedef struct Command {
        CommandKind kind;
        char *line; /* owned; of COMMAND_LOG only */
} Command;
void command_done(Command *c);
#define _cleanup_command_ _cleanup_(command_done)

/* Takes the socket on success. */
int control_new(int fd, Control **ret);
Control *control_free(Control *c);
DEFINE_CLEANUP(Control *, control_free)
int control_get_fd(const Control *c); /* borrowed */

/* The first frame, waiting for it. -ENOTCONN where the manager went away instead. */
int control_receive_job(Control *c, Frame *ret);
/* The next command: 1 one was there, 0 none yet. The manager's end is -ENOTCONN, whether it came inside a
 * frame or not; -EBADMSG is what isn't a command. */
int control_receive(Control *c, Command *ret);
/* The same, waiting. */
int control_wait(Control *c, Command *ret);

/* Sends an event and waits until the socket has taken all of it. Takes the object in every case. -ENOTCONN
 * where nobody reads any more. fds stay the caller's. */
int control_send(Control *c, struct json_object *event, const int *fds, size_t n_fds);
/* Sends what the socket takes now. For events that may be left out: check control_is_idle() first. */
int control_offer(Control *c, struct json_object *event);
/* Whether everything that was offered has been taken. */
bool control_is_idle(const Control *c);
int control_flush(Control *c);
