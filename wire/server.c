/* The server: its listening sockets, who may connect, and its end. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/text.h"
#include "wire/server-internal.h"

/* So many connections are accepted before others have their turn. */
#define ACCEPTS_PER_WAKEUP 16U
/* After a failure that only time mends (no memory, no descriptors in the whole system). */
#define RESUME_USEC USEC_PER_SEC

const VarlinkLimits varlink_limits_default = {
        .message_size = FRAME_SIZE_MAX_DEFAULT,
        .queue_size = MIB(16),
        .connections = 4096,
        .connections_per_uid = 512,
        .fds_per_message = 2,
        .write_timeout = 30 * USEC_PER_SEC,
        .partial_timeout = 30 * USEC_PER_SEC,
};

static void tell_idle_handler(VarlinkServer *s)
{
        if (s->idle_handler)
                s->idle_handler(s, s->idle_userdata);
}

static void free_dead(VarlinkServer *s, bool tell)
{
        while (s->dead) {
                Connection *c = s->dead;

                s->dead = c->next;
                if (c->call)
                        call_part(c->call, tell);
                connection_free(c);
        }
}

static int on_reap(_unused_ sd_event_source *source, void *userdata)
{
        VarlinkServer *s = userdata;

        free_dead(s, true);
        tell_idle_handler(s);
        return 0;
}

static void listeners_enable(VarlinkServer *s, bool enable)
{
        for (size_t i = 0; i < s->n_listeners; i++)
                (void) sd_event_source_set_enabled(s->listeners[i].source,
                                                   enable ? SD_EVENT_ON : SD_EVENT_OFF);
}

static int on_resume(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        VarlinkServer *s = userdata;

        if (!s->stopped)
                listeners_enable(s, true);
        return 0;
}

static int on_give_up(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
        VarlinkServer *s = userdata;

        while (s->live)
                connection_kill(s->live);
        return 0;
}

static int add_timer(VarlinkServer *s, sd_event_time_handler_t handler, sd_event_source **ret)
{
        _cleanup_(sd_event_source_unrefp) sd_event_source *source = NULL;
        int r;

        r = sd_event_add_time(s->event, &source, CLOCK_MONOTONIC, USEC_INFINITY, 0, handler, s);
        if (r < 0)
                return r;
        r = sd_event_source_set_enabled(source, SD_EVENT_OFF);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(source);
        return 0;
}

static void timer_fire_in(sd_event_source *timer, usec_t delay)
{
        (void) sd_event_source_set_time_relative(timer, delay);
        (void) sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

static int copy_service(VarlinkServer *s, const VarlinkService *service)
{
        const char *from[] = {service->vendor, service->product, service->version, service->url};
        char **to[] = {&s->vendor, &s->product, &s->version, &s->url};

        for (size_t i = 0; i < ELEMENTSOF(from); i++) {
                *to[i] = strdup(from[i] ? from[i] : "");
                if (!*to[i])
                        return -ENOMEM;
        }
        return 0;
}

static int open_spare(VarlinkServer *s)
{
        s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NOCTTY);
        return s->spare_fd < 0 ? -errno : 0;
}

int varlink_server_new(sd_event *event, const VarlinkService *service, const VarlinkLimits *limits,
                       VarlinkServer **ret)
{
        _cleanup_(varlink_server_freep) VarlinkServer *s = NULL;
        int r;

        assert(event);
        assert(service);
        assert(ret);

        s = calloc(1, sizeof(*s));
        if (!s)
                return -ENOMEM;
        s->spare_fd = -EBADF;
        s->event = sd_event_ref(event);
        s->limits = limits ? *limits : varlink_limits_default;
        r = copy_service(s, service);
        if (r < 0)
                return r;
        r = open_spare(s);
        if (r < 0)
                return r;
        r = add_timer(s, on_resume, &s->resume);
        if (r < 0)
                return r;
        r = add_timer(s, on_give_up, &s->give_up);
        if (r < 0)
                return r;
        r = sd_event_add_defer(event, &s->reaper, on_reap, s);
        if (r < 0)
                return r;
        r = sd_event_source_set_enabled(s->reaper, SD_EVENT_OFF);
        if (r < 0)
                return r;
        r = varlink_server_add_interface(s, &service_interface, s);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

static void close_listeners(VarlinkServer *s)
{
        for (size_t i = 0; i < s->n_listeners; i++) {
                sd_event_source_disable_unref(s->listeners[i].source);
                close_fd(s->listeners[i].fd);
        }
        free(s->listeners);
        s->listeners = NULL;
        s->n_listeners = 0;
}

void varlink_server_stop_listening(VarlinkServer *s)
{
        close_listeners(s);
}

VarlinkServer *varlink_server_free(VarlinkServer *s)
{
        if (!s)
                return NULL;
        close_listeners(s);
        while (s->live)
                connection_kill(s->live);
        free_dead(s, false);
        sd_event_source_disable_unref(s->resume);
        sd_event_source_disable_unref(s->give_up);
        sd_event_source_disable_unref(s->reaper);
        close_fd(s->spare_fd);
        free(s->interfaces);
        free(s->vendor);
        free(s->product);
        free(s->version);
        free(s->url);
        sd_event_unref(s->event);
        free(s);
        return NULL;
}

int varlink_server_add_interface(VarlinkServer *s, const VarlinkInterface *interface, void *userdata)
{
        ServedInterface *p;

        assert(s);
        assert(interface);

        for (size_t i = 0; i < s->n_interfaces; i++)
                if (streq(s->interfaces[i].interface->name, interface->name))
                        return -EEXIST;
        p = reallocarray(s->interfaces, s->n_interfaces + 1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        s->interfaces = p;
        s->interfaces[s->n_interfaces++] = (ServedInterface){.interface = interface, .userdata = userdata};
        return 0;
}

/* Why a connection is refused; limit is NULL where it is not. */
typedef struct Refusal {
        const char *limit;
        uint64_t maximum;
        const char *message;
} Refusal;

static void check_limits(const VarlinkServer *s, const VarlinkPeer *peer, Refusal *ret)
{
        size_t mine = 0, everybody = s->limits.connections;

        *ret = (Refusal){0};
        if (peer->uid != 0) {
                /* Some are kept, so that an administrator gets in when all others are taken. */
                everybody -= everybody / 16;
                for (const Connection *c = s->live; c; c = c->next)
                        mine += c->peer->peer.uid == peer->uid;
                if (mine >= s->limits.connections_per_uid)
                        *ret = (Refusal){
                                "connections of one user", s->limits.connections_per_uid,
                                "this user has as many connections as one user may have: close some"};
        }
        if (s->n_live >= everybody)
                *ret = (Refusal){"connections", everybody,
                                 "there are as many connections as the manager serves: try again later"};
}

/* One message into the fresh socket's empty buffer, where it fits or is lost. */
static void refuse(const VarlinkServer *s, int fd, const Refusal *refusal)
{
        _cleanup_json_ struct json_object *message = NULL, *parameters = NULL;
        const char *text;
        size_t n = 0;

        if (!s->limit_error)
                return;
        message = json_object_new_object();
        parameters = json_object_new_object();
        if (!message || !parameters || json_add_string(message, "error", s->limit_error) < 0 ||
            json_add_string(parameters, "limit", refusal->limit) < 0 ||
            json_add_size(parameters, "maximum", refusal->maximum) < 0 ||
            json_add_string(parameters, "message", refusal->message) < 0 ||
            json_add(message, "parameters", json_object_get(parameters)) < 0)
                return;
        text = json_object_to_json_string_length(message, JSON_C_TO_STRING_PLAIN, &n);
        if (text)
                (void) send(fd, text, n + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int varlink_server_add_connection(VarlinkServer *s, int fd)
{
        _cleanup_(shared_peer_unrefp) SharedPeer *peer = NULL;
        Refusal refusal;
        int r;

        assert(s);

        if (s->stopped)
                return -ESHUTDOWN;
        r = shared_peer_new(fd, &peer);
        if (r < 0)
                return r;
        check_limits(s, &peer->peer, &refusal);
        if (refusal.limit) {
                refuse(s, fd, &refusal);
                return -EUSERS;
        }
        return connection_new(s, fd, peer);
}

static bool is_out_of_descriptors(int r)
{
        return r == -EMFILE || r == -ENFILE;
}

static int accept_fd(int listener)
{
        _cleanup_close_ int fd = -EBADF;

        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
                return -errno;
        /* 0 to 2 are free where the process was started without them. */
        return fd <= STDERR_FILENO ? fd_dup(fd) : TAKE_FD(fd);
}

/* With the spare descriptor's place: a client learns why, and the listening socket's queue gets shorter, so
 * that the loop does not spin on it. */
static int refuse_for_descriptors(VarlinkServer *s, int listener)
{
        _cleanup_close_ int fd = -EBADF;
        struct rlimit limit = {0};
        Refusal refusal = {.limit = "descriptors",
                           .message = "the manager has no descriptors left: try again later"};

        if (s->spare_fd < 0)
                return -EMFILE;
        s->spare_fd = close_fd(s->spare_fd);
        fd = accept_fd(listener);
        if (fd >= 0) {
                (void) getrlimit(RLIMIT_NOFILE, &limit);
                refusal.maximum = limit.rlim_cur;
                refuse(s, fd, &refusal);
                fd = close_fd(fd);
        }
        /* Where another took its place meanwhile, the next failure pauses listening and this is tried again.
         */
        (void) open_spare(s);
        return 0;
}

static int accept_one(VarlinkServer *s, int listener)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        fd = accept_fd(listener);
        if (is_out_of_descriptors(fd))
                return refuse_for_descriptors(s, listener);
        if (fd < 0)
                return fd;
        r = varlink_server_add_connection(s, fd);
        if (r >= 0)
                TAKE_FD(fd);
        return r == -ENOMEM ? r : 0;
}

static int on_listener(_unused_ sd_event_source *source, int fd, _unused_ uint32_t revents, void *userdata)
{
        VarlinkServer *s = userdata;
        size_t before = s->n_live;
        int r = 0;

        for (unsigned i = 0; i < ACCEPTS_PER_WAKEUP && r >= 0; i++) {
                r = accept_one(s, fd);
                if (r == -EINTR || r == -ECONNABORTED)
                        r = 0;
        }
        if (r < 0 && r != -EAGAIN) {
                /* It would wake us again at once. */
                listeners_enable(s, false);
                if (s->spare_fd < 0)
                        (void) open_spare(s);
                timer_fire_in(s->resume, RESUME_USEC);
        }
        if (s->n_live != before)
                tell_idle_handler(s);
        return 0;
}

int varlink_server_listen(VarlinkServer *s, int fd)
{
        int listening = 0, r;
        socklen_t n = sizeof(listening);
        Listener *p;

        assert(s);

        if (s->stopped)
                return -ESHUTDOWN;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0)
                return -errno;
        if (!listening)
                return -EINVAL;
        r = fd_set_nonblock(fd, true);
        if (r < 0)
                return r;
        r = fd_set_cloexec(fd, true);
        if (r < 0)
                return r;
        p = reallocarray(s->listeners, s->n_listeners + 1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        s->listeners = p;
        p = &s->listeners[s->n_listeners];
        *p = (Listener){.fd = fd};
        r = sd_event_add_io(s->event, &p->source, fd, EPOLLIN, on_listener, s);
        if (r < 0)
                return r;
        s->n_listeners++;
        return 0;
}

size_t varlink_server_connections(const VarlinkServer *s)
{
        return s->n_live;
}

void varlink_server_set_limit_error(VarlinkServer *s, const char *error)
{
        s->limit_error = error;
}

void varlink_server_set_idle_handler(VarlinkServer *s, VarlinkIdleHandler handler, void *userdata)
{
        s->idle_handler = handler;
        s->idle_userdata = userdata;
}

void varlink_server_set_error_handler(VarlinkServer *s, VarlinkErrorHandler handler, void *userdata)
{
        s->error_handler = handler;
        s->error_userdata = userdata;
}

void varlink_server_set_validator(VarlinkServer *s, VarlinkValidator validator, void *userdata)
{
        s->validator = validator;
        s->validator_userdata = userdata;
}

/* From the start for each, since a call may end other connections than its own. */
static void read_last_calls(VarlinkServer *s)
{
        Connection *c;

        do {
                for (c = s->live; c && c->last_read; c = c->next)
                        ;
                if (c) {
                        c->last_read = true;
                        connection_read(c);
                }
        } while (c);
}

void varlink_server_shutdown(VarlinkServer *s)
{
        Connection *next;

        if (s->stopped)
                return;
        s->stopped = true;
        close_listeners(s);
        read_last_calls(s);
        for (Connection *c = s->live; c; c = next) {
                next = c->next;
                connection_drain(c);
        }
        timer_fire_in(s->give_up, s->limits.write_timeout);
        /* Also where there was none: the idle handler is called in any case. */
        (void) sd_event_source_set_enabled(s->reaper, SD_EVENT_ONESHOT);
}

bool varlink_server_has_pending(VarlinkServer *s)
{
        for (size_t i = 0; i < s->n_listeners; i++) {
                struct pollfd p = {.fd = s->listeners[i].fd, .events = POLLIN};

                if (poll(&p, 1, 0) > 0)
                        return true;
        }
        return false;
}
