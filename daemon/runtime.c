/* The manager's files. Nothing here follows what it did not make or check: the directories must belong to us
 * and be nobody else's to write, with the one exception of the directory of --socket, which may be a shared
 * one; there each file is opened without following links and checked by itself. */
#include "daemon/runtime.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

#define SOCKET_PATH_MAX (sizeof(((struct sockaddr_un *) NULL)->sun_path) - 1)

Runtime *runtime_free(Runtime *r)
{
        if (!r)
                return NULL;
        close_fd(r->lock_fd);
        close_fd(r->starters_fd);
        close_fd(r->directory_fd);
        close_fd(r->registry_fd);
        close_fd(r->quota_fd);
        free(r->directory);
        free(r->prefix);
        free(r->socket_path);
        free(r->views);
        free(r->logs);
        free(r->quota_file);
        free(r);
        return NULL;
}

/* A directory that is to be ours alone. A link is followed only where we, or root, made it. */
static int open_private_directory(const char *path, mode_t mode, bool shared, int *ret, char **ret_message)
{
        _cleanup_close_ int root_fd = -EBADF, path_fd = -EBADF, fd = -EBADF;
        struct stat st;
        int r;

        root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root_fd < 0)
                return -errno;
        path_fd = path_make_directories_in_root(root_fd, path, mode, NULL);
        if (path_fd < 0) {
                (void) text_format(ret_message, "cannot make directory %s: %s", path, strerror(-path_fd));
                return path_fd;
        }
        fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) {
                r = -errno;
                (void) text_format(ret_message, "cannot open directory %s: %s", path, strerror(-r));
                return r;
        }
        if (!shared) {
                if (lstat(path, &st) < 0)
                        return -errno;
                if (S_ISLNK(st.st_mode) && st.st_uid != geteuid() && st.st_uid != 0) {
                        (void) text_format(ret_message,
                                           "%s is a link that user %u made: choose another --base-dir", path,
                                           (unsigned) st.st_uid);
                        return -EPERM;
                }
                if (fstat(fd, &st) < 0)
                        return -errno;
                if (st.st_uid != geteuid() || (st.st_mode & 0022)) {
                        (void) text_format(
                                ret_message,
                                "%s belongs to user %u and has mode %04o; it must belong to user %u and not "
                                "be writable by others: change that or choose another directory",
                                path, (unsigned) st.st_uid, (unsigned) (st.st_mode & 07777),
                                (unsigned) geteuid());
                        return -EPERM;
                }
        }
        *ret = TAKE_FD(fd);
        return 0;
}

static int open_below(const char *parent, const char *name, mode_t mode, int *ret_fd, char **ret_path,
                      char **ret_message)
{
        _cleanup_free_ char *path = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        r = path_join(parent, name, &path);
        if (r < 0)
                return r;
        r = open_private_directory(path, mode, false, &fd, ret_message);
        if (r < 0)
                return r;
        if (ret_fd)
                *ret_fd = TAKE_FD(fd);
        if (ret_path)
                *ret_path = TAKE_PTR(path);
        return 0;
}

static int open_system(Runtime *r, const RuntimeOptions *options, char **ret_message)
{
        int q;

        q = open_private_directory(options->runtime_dir, 0755, false, &r->directory_fd, ret_message);
        if (q < 0)
                return q;
        q = open_private_directory(options->state_dir, 0755, false, &r->quota_fd, ret_message);
        if (q < 0)
                return q;
        r->directory = strdup(options->runtime_dir);
        r->quota_file = strdup("quota");
        if (!r->directory || !r->quota_file)
                return -ENOMEM;
        q = path_join(r->directory, RUNTIME_SOCKET_NAME, &r->socket_path);
        if (q < 0)
                return q;
        return open_below(r->directory, "views", 0755, NULL, &r->views, ret_message);
}

/* Where the runtime files of a user's manager are: BASE/run, or beside the socket that was named. */
static int place_user_files(Runtime *r, const RuntimeOptions *options, bool *ret_shared)
{
        _cleanup_free_ char *run = NULL, *standard = NULL;
        const char *name;
        int q;

        q = path_join(options->base_dir, "run", &run);
        if (q < 0)
                return q;
        q = path_join(run, RUNTIME_SOCKET_NAME, &standard);
        if (q < 0)
                return q;
        if (!options->socket_path || streq(options->socket_path, standard)) {
                r->directory = TAKE_PTR(run);
                r->socket_path = TAKE_PTR(standard);
                *ret_shared = false;
                return 0;
        }
        r->socket_path = strdup(options->socket_path);
        if (!r->socket_path)
                return -ENOMEM;
        q = path_split(r->socket_path, &r->directory, &name);
        if (q < 0)
                return q;
        *ret_shared = true;
        return text_format(&r->prefix, "%s.", name);
}

static int open_user(Runtime *r, const RuntimeOptions *options, char **ret_message)
{
        _cleanup_close_ int base_fd = -EBADF;
        bool shared;
        int q;

        q = open_private_directory(options->base_dir, 0700, false, &base_fd, ret_message);
        if (q < 0)
                return q;
        q = place_user_files(r, options, &shared);
        if (q < 0)
                return q;
        q = open_private_directory(r->directory, 0700, shared, &r->directory_fd, ret_message);
        if (q < 0)
                return q;
        q = open_below(options->base_dir, "views", 0700, NULL, &r->views, ret_message);
        if (q < 0)
                return q;
        q = open_below(options->base_dir, "logs", 0700, NULL, &r->logs, ret_message);
        if (q < 0)
                return q;
        r->quota_fd = fd_dup(r->directory_fd);
        if (r->quota_fd < 0)
                return r->quota_fd;
        return text_format(&r->quota_file, "%squota", r->prefix);
}

int runtime_open(const RuntimeOptions *options, Runtime **ret, char **ret_message)
{
        _cleanup_(runtime_freep) Runtime *r = NULL;
        _cleanup_free_ char *registry = NULL;
        int q;

        r = malloc(sizeof(*r));
        if (!r)
                return -ENOMEM;
        *r = (Runtime){
                .scope = options->scope,
                .directory_fd = -EBADF,
                .registry_fd = -EBADF,
                .quota_fd = -EBADF,
                .lock_fd = -EBADF,
                .starters_fd = -EBADF,
                .prefix = strdup(""),
        };
        if (!r->prefix)
                return -ENOMEM;
        q = options->scope == SCOPE_SYSTEM ? open_system(r, options, ret_message)
                                           : open_user(r, options, ret_message);
        if (q < 0)
                return q;
        if (strlen(r->socket_path) > SOCKET_PATH_MAX) {
                (void) text_format(
                        ret_message,
                        "the socket's path %s has %zu bytes, more than the %zu that a socket's address "
                        "holds: choose a shorter --base-dir or --socket",
                        r->socket_path, strlen(r->socket_path), SOCKET_PATH_MAX);
                return -ENAMETOOLONG;
        }
        q = text_format(&registry, "%sregistry", r->prefix);
        if (q < 0)
                return q;
        q = open_below(r->directory, registry, 0700, &r->registry_fd, NULL, ret_message);
        if (q < 0)
                return q;
        *ret = TAKE_PTR(r);
        return 0;
}

static int lock_file(const Runtime *r, const char *name, int *ret_fd)
{
        _cleanup_free_ char *file = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int q;

        q = text_format(&file, "%s%s", r->prefix, name);
        if (q < 0)
                return q;
        fd = openat(r->directory_fd, file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
                    0600);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
                return -EPERM;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? -EBUSY : -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int runtime_lock(Runtime *r)
{
        return lock_file(r, "manager.lock", &r->lock_fd);
}

int runtime_lock_starters(Runtime *r)
{
        return lock_file(r, "start.lock", &r->starters_fd);
}

void runtime_unlock_starters(Runtime *r)
{
        r->starters_fd = close_fd(r->starters_fd);
}

static int address_set(struct sockaddr_un *address, const char *path)
{
        size_t n = strlen(path);

        if (n > SOCKET_PATH_MAX)
                return -ENAMETOOLONG;
        *address = (struct sockaddr_un){.sun_family = AF_UNIX};
        memcpy(address->sun_path, path, n + 1);
        return 0;
}

/* Whether the socket's place may be taken. A socket of ours on which somebody listens isn't stale, whatever
 * it is. */
static int check_place(const Runtime *r, const char *name)
{
        _cleanup_close_ int fd = -EBADF;
        struct sockaddr_un address;
        struct stat st;
        int q;

        if (fstatat(r->directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
                return -EEXIST;
        q = address_set(&address, r->socket_path);
        if (q < 0)
                return q;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) >= 0 || errno == EAGAIN)
                return -EADDRINUSE;
        return errno == ECONNREFUSED || errno == ENOENT ? 0 : -EEXIST;
}

static int bind_temporary(const Runtime *r, int fd, const char *temporary)
{
        _cleanup_free_ char *path = NULL;
        struct sockaddr_un address;
        int q;

        q = path_join(r->directory, temporary, &path);
        if (q < 0)
                return q;
        q = address_set(&address, path);
        if (q == -ENAMETOOLONG) {
                /* The final name fits and this one does not: go through the directory's descriptor. */
                q = text_format(&path, "/proc/self/fd/%d/%s", r->directory_fd, temporary);
                if (q < 0)
                        return q;
                q = address_set(&address, path);
        }
        if (q < 0)
                return q;
        return bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? -errno : 0;
}

int runtime_listen(Runtime *r, int *ret_fd)
{
        _cleanup_free_ char *temporary = NULL, *parent = NULL;
        _cleanup_close_ int fd = -EBADF;
        const mode_t mode = r->scope == SCOPE_SYSTEM ? 0666 : 0600;
        const char *name;
        struct stat st;
        int q;

        if (r->lock_fd < 0)
                return -ENOLCK;
        q = path_split(r->socket_path, &parent, &name);
        if (q < 0)
                return q;
        q = check_place(r, name);
        if (q < 0)
                return q;
        q = text_format(&temporary, ".%d.socket", (int) getpid());
        if (q < 0)
                return q;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        (void) unlinkat(r->directory_fd, temporary, 0);
        /* A socket file takes the descriptor's mode less the umask (unix(7)); so it is never wider than it
         * shall be. */
        (void) fchmod(fd, mode);
        q = bind_temporary(r, fd, temporary);
        if (q < 0)
                return q;
        if (fchmodat(r->directory_fd, temporary, mode, 0) < 0 || listen(fd, SOMAXCONN) < 0 ||
            fstatat(r->directory_fd, temporary, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            renameat(r->directory_fd, temporary, r->directory_fd, name) < 0) {
                q = -errno;
                (void) unlinkat(r->directory_fd, temporary, 0);
                return q;
        }
        r->socket_made = true;
        r->socket_device = st.st_dev;
        r->socket_inode = st.st_ino;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

void runtime_remove_socket(Runtime *r)
{
        _cleanup_free_ char *parent = NULL;
        const char *name;
        struct stat st;

        if (!r->socket_made || path_split(r->socket_path, &parent, &name) < 0)
                return;
        r->socket_made = false;
        if (fstatat(r->directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) >= 0 && st.st_dev == r->socket_device &&
            st.st_ino == r->socket_inode)
                (void) unlinkat(r->directory_fd, name, 0);
}

int runtime_announce(const Runtime *r)
{
        _cleanup_free_ char *file = NULL, *id = NULL, *line = NULL;
        unsigned char random[16];
        int q;

        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -errno;
        q = hex_encode(random, sizeof(random), &id);
        if (q < 0)
                return q;
        q = text_format(&line, "%s\n", id);
        if (q < 0)
                return q;
        q = text_format(&file, "%smanager.ready", r->prefix);
        if (q < 0)
                return q;
        return fd_write_file_at(r->directory_fd, file, line, strlen(line), 0644, false);
}

void runtime_retract(const Runtime *r)
{
        _cleanup_free_ char *file = NULL;

        if (text_format(&file, "%smanager.ready", r->prefix) >= 0)
                (void) unlinkat(r->directory_fd, file, 0);
}

int runtime_pid_file(const Runtime *r, const char *name, char **ret)
{
        return text_format(ret, "%s/%s%s.pid", r->directory, r->prefix, name);
}

int runtime_log_file(const Runtime *r, const char *name, char **ret)
{
        return text_format(ret, "%s/%s.log", r->logs, name);
}

int runtime_view(const Runtime *r, const char *name, char **ret)
{
        return text_format(ret, "%s/%s", r->views, name);
}
