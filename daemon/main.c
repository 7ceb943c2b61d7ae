/* iloaderd: options, files, sockets, signals, and the loop. */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/size.h"
#include "base/text.h"
#include "daemon/api.h"
#include "daemon/events.h"
#include "daemon/recover.h"

/* Another manager has the lock: not a failure of this one (sysexits.h has it as EX_TEMPFAIL). */
#define EXIT_BUSY  75
#define EXIT_USAGE 2
/* EX_CONFIG of sysexits.h: the unit does not try again. */
#define EXIT_CONFIGURATION 78
/* With sockets that systemd holds, a user's manager comes back when it is needed. */
#define IDLE_EXIT_SOCKETS (10 * USEC_PER_SEC)

typedef struct Arguments {
        bool system;
        char *base_dir, *socket, *config_dir, *runtime_dir, *state_dir;
        usec_t idle_exit;
        int ready_fd;
} Arguments;

static void arguments_done(Arguments *a)
{
        free(a->base_dir);
        free(a->socket);
        free(a->config_dir);
        free(a->runtime_dir);
        free(a->state_dir);
}

static void help(void)
{
        (void) puts("iloaderd --system [OPTIONS]\n"
                    "iloaderd --base-dir BASE [--socket PATH] [OPTIONS]\n\n"
                    "Manages caches of model checkpoints in sealed memory; serves io.iloader.Manager.\n\n"
                    "  --system             the system's manager\n"
                    "  --base-dir BASE      a user's own manager, with its files below BASE\n"
                    "  --socket PATH        listen there instead of BASE/run/io.iloader.Manager\n"
                    "  --ready-fd N         write a byte to descriptor N when clients can connect\n"
                    "  --idle-exit SEC      leave when there is no cache and no client for so long\n"
                    "  --config-dir DIR     configuration (/etc/iloader; system scope)\n"
                    "  --runtime-dir DIR    runtime files (/run/iloader; system scope)\n"
                    "  --state-dir DIR      what outlives a reboot ($STATE_DIRECTORY or /var/lib/iloader; "
                    "system scope)\n"
                    "  --version            show the version\n"
                    "  --help               show this\n\n"
                    "Without --socket, sockets that systemd passes are used where there are any.");
}

static int usage(const char *what, const char *option)
{
        (void) fprintf(stderr, "iloaderd: %s%s%s; see --help\n", what, option ? " " : "",
                       option ? option : "");
        return -EINVAL;
}

static int take_path(const char *option, const char *value, char **ret)
{
        int r;

        free(TAKE_PTR(*ret));
        r = *value ? path_make_absolute(value, ret) : -EINVAL;
        return r < 0 ? usage("this is no acceptable path for", option) : 0;
}

static int take_option(Arguments *a, int c, const char *option, const char *value)
{
        uint64_t n;

        switch (c) {
        case 's':
                a->system = true;
                return 0;
        case 'b':
                return take_path(option, value, &a->base_dir);
        case 'S':
                return take_path(option, value, &a->socket);
        case 'c':
                return take_path(option, value, &a->config_dir);
        case 'r':
                return take_path(option, value, &a->runtime_dir);
        case 't':
                return take_path(option, value, &a->state_dir);
        case 'f':
                if (parse_u64_range(value, 3, 65535, &n) < 0 || fcntl((int) n, F_GETFD) < 0)
                        return usage("this is no open descriptor for", option);
                a->ready_fd = (int) n;
                return fcntl(a->ready_fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
        case 'i':
                if (parse_seconds(value, &a->idle_exit) < 0)
                        return usage("this is no number of seconds for", option);
                return 0;
        default:
                return usage("unknown option, or one without its value", NULL);
        }
}

/* 1: go on; 0: said what was asked for. */
static int parse_arguments(int argc, char **argv, Arguments *a)
{
        static const struct option options[] = {
                {"system", no_argument, NULL, 's'},
                {"base-dir", required_argument, NULL, 'b'},
                {"socket", required_argument, NULL, 'S'},
                {"ready-fd", required_argument, NULL, 'f'},
                {"idle-exit", required_argument, NULL, 'i'},
                {"config-dir", required_argument, NULL, 'c'},
                {"runtime-dir", required_argument, NULL, 'r'},
                {"state-dir", required_argument, NULL, 't'},
                {"version", no_argument, NULL, 'v'},
                {"help", no_argument, NULL, 'h'},
                {},
        };
        const char *state = getenv("STATE_DIRECTORY");
        int c, index = 0, r;

        while ((c = getopt_long(argc, argv, "h", options, &index)) >= 0) {
                if (c == 'h') {
                        help();
                        return 0;
                }
                if (c == 'v') {
                        (void) puts("iloaderd " ILOADER_VERSION);
                        return 0;
                }
                r = take_option(a, c, options[index].name, optarg);
                if (r < 0)
                        return r;
        }
        if (optind < argc)
                return usage("unknown argument", argv[optind]);
        if (a->system == (a->base_dir != NULL))
                return usage("give --system or --base-dir, and not both", NULL);
        if (a->system && (a->socket || a->idle_exit != USEC_INFINITY))
                return usage("--socket and --idle-exit don't go with --system", NULL);
        if (!a->system && (a->config_dir || a->runtime_dir || a->state_dir))
                return usage("--config-dir, --runtime-dir and --state-dir go with --system only", NULL);
        if (!a->system)
                return 1;
        if (!a->config_dir)
                a->config_dir = strdup("/etc/iloader");
        if (!a->runtime_dir)
                a->runtime_dir = strdup("/run/iloader");
        if (!a->state_dir)
                a->state_dir = strdup(state && path_is_absolute(state) ? state : "/var/lib/iloader");
        return a->config_dir && a->runtime_dir && a->state_dir ? 1 : -ENOMEM;
}

/* One arena and early trimming: this process is to be small beside what it manages. */
static void tune_memory(void)
{
        (void) mallopt(M_ARENA_MAX, 1);
        (void) mallopt(M_TRIM_THRESHOLD, (int) KIB(64));
        (void) mallopt(M_MMAP_THRESHOLD, (int) KIB(64));
        (void) mallopt(M_TOP_PAD, (int) KIB(16));
}

/* Sockets that were passed; each must be what it has to be. */
static int listen_inherited(Manager *m, int n)
{
        int r;

        for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
                r = sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1);
                if (r <= 0)
                        return log_error(r < 0 ? r : -EINVAL,
                                         "descriptor %d that was passed is no listening Unix socket", fd);
                r = varlink_server_listen(m->server, fd);
                if (r < 0)
                        return log_error(r, "cannot listen on the socket that was passed: %m");
        }
        return 0;
}

/* Clients that already wait at the sockets that were passed: left there, systemd would start the next manager
 * for them at once, and again, and again. */
static void turn_away(int n)
{
        for (int listener = SD_LISTEN_FDS_START; listener < SD_LISTEN_FDS_START + n; listener++) {
                int fd;

                if (fcntl(listener, F_SETFL, O_NONBLOCK) < 0)
                        continue;
                while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
                        (void) close(fd);
        }
}

static int listen_own(Manager *m)
{
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = runtime_listen(m->runtime, &fd);
        if (r == -EEXIST)
                return log_error(
                        r, "%s exists and is no socket of ours: move it away, or choose another --socket",
                        m->runtime->socket_path);
        if (r == -EADDRINUSE)
                return log_error(r, "somebody else listens at %s: choose another --socket",
                                 m->runtime->socket_path);
        if (r < 0)
                return log_error(r, "cannot listen at %s: %m", m->runtime->socket_path);
        r = varlink_server_listen(m->server, fd);
        if (r < 0)
                return log_error(r, "cannot serve %s: %m", m->runtime->socket_path);
        TAKE_FD(fd);
        return 0;
}

static int on_signal(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *si,
                     void *userdata)
{
        manager_stop(userdata);
        return 0;
}

static int watch_signals(sd_event *event, Manager *m)
{
        static const int signals[] = {SIGTERM, SIGINT};
        sigset_t set;
        int r;

        (void) sigemptyset(&set);
        for (size_t i = 0; i < ELEMENTSOF(signals); i++)
                (void) sigaddset(&set, signals[i]);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;
        for (size_t i = 0; i < ELEMENTSOF(signals); i++) {
                r = sd_event_add_signal(event, NULL, signals[i], on_signal, m);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void tell_ready(Manager *m, int ready_fd)
{
        EventFields fields = EVENT_FIELDS_INIT;
        int r;

        r = runtime_announce(m->runtime);
        if (r < 0)
                (void) log_warning(
                        r, "Cannot write manager.ready; attached units will not notice this manager: %m");
        (void) sd_notify(0, "READY=1");
        event_log(EVENT_MANAGER_STARTED, &fields, "iloaderd " ILOADER_VERSION " serves %s.",
                  m->runtime->socket_path);
        if (ready_fd >= 0) {
                if (write(ready_fd, "1", 1) < 0)
                        (void) log_warning(-errno, "Cannot tell the starter that the manager is ready: %m");
                (void) close(ready_fd);
        }
        manager_changed(m);
}

static int serve(sd_event *event, Manager *m, const Arguments *a, int n_sockets)
{
        EventFields fields = EVENT_FIELDS_INIT;
        int r;

        r = watch_signals(event, m);
        if (r < 0)
                return log_error(r, "cannot watch signals: %m");
        r = sd_event_set_watchdog(event, true);
        if (r < 0)
                return log_error(r, "cannot set up the watchdog: %m");
        r = recover_lost(m);
        if (r < 0)
                return r;
        r = api_serve(m);
        if (r < 0)
                return log_error(r, "cannot set up the server: %m");
        r = n_sockets > 0 ? listen_inherited(m, n_sockets) : listen_own(m);
        if (r < 0)
                return r;
        tell_ready(m, a->ready_fd);
        r = sd_event_loop(event);
        event_log(EVENT_MANAGER_STOPPED, &fields, "iloaderd has ended.");
        return r < 0 ? log_error(r, "the event loop failed: %m") : 0;
}

static int run(const Arguments *a)
{
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        _cleanup_(manager_freep) Manager *m = NULL;
        _cleanup_(runtime_freep) Runtime *runtime = NULL;
        _cleanup_free_ char *message = NULL;
        ManagerOptions options = {
                .scope = a->system ? SCOPE_SYSTEM : SCOPE_USER,
                .config_dir = a->config_dir,
                .idle_exit = a->idle_exit,
        };
        int n_sockets, r;

        n_sockets = sd_listen_fds(true);
        if (n_sockets < 0)
                return log_error(n_sockets, "cannot take the sockets that were passed: %m");
        if (n_sockets > 0 && a->socket)
                return log_error(-EINVAL, "sockets were passed, and --socket names another");
        if (n_sockets > 0 && !a->system && a->idle_exit == USEC_INFINITY)
                options.idle_exit = IDLE_EXIT_SOCKETS;
        r = runtime_open(
                &(const RuntimeOptions){
                        .scope = options.scope,
                        .base_dir = a->base_dir,
                        .socket_path = a->socket,
                        .runtime_dir = a->runtime_dir,
                        .state_dir = a->state_dir,
                },
                &runtime, &message);
        if (r < 0)
                return log_error(r, "%s", message ? message : strerror(-r));
        r = runtime_lock(runtime);
        if (r == -EBUSY) {
                log_notice("Another manager serves %s already.", runtime->directory);
                return r;
        }
        if (r < 0)
                return log_error(r, "cannot lock manager.lock in %s: %m", runtime->directory);
        r = sd_event_default(&event);
        if (r < 0)
                return log_error(r, "cannot make an event loop: %m");
        r = manager_new(event, &options, runtime, &m);
        if (r == -EBADMSG)
                turn_away(n_sockets);
        if (r < 0)
                return r;
        TAKE_PTR(runtime);
        r = serve(event, m, a, n_sockets);
        if (r < 0) {
                runtime_retract(m->runtime);
                runtime_remove_socket(m->runtime);
        }
        return r;
}

int main(int argc, char **argv)
{
        _cleanup_(arguments_done) Arguments a = {.idle_exit = USEC_INFINITY, .ready_fd = -EBADF};
        int r;

        if (fd_reserve_standard() < 0)
                return EXIT_FAILURE;
        tune_memory();
        log_setup(LOG_TARGET_AUTO, LOG_INFO, "iloaderd");
        r = parse_arguments(argc, argv, &a);
        if (r <= 0)
                return r == 0 ? EXIT_SUCCESS : EXIT_USAGE;
        (void) umask(0022);
        (void) signal(SIGPIPE, SIG_IGN);
        /* Where our parent ignored it, the kernel would reap our children itself. */
        (void) signal(SIGCHLD, SIG_DFL);
        /* A limit on the size of files is an error where it strikes, not the end. */
        (void) signal(SIGXFSZ, SIG_IGN);
        r = run(&a);
        switch (r) {
        case -EBUSY:
                return EXIT_BUSY;
        case -EBADMSG:
                return EXIT_CONFIGURATION;
        default:
                return r >= 0 ? EXIT_SUCCESS : EXIT_FAILURE;
        }
}
