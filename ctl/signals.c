#include "ctl/signals.h"

#include <sys/signalfd.h>

int signals_watch(const int *signals, size_t n, sigset_t *ret_previous)
{
        sigset_t set;
        int fd;

        (void) sigemptyset(&set);
        for (size_t i = 0; i < n; i++) {
                struct sigaction action;

                if (sigaction(signals[i], NULL, &action) < 0)
                        return -errno;
                /* Blocked, an ignored signal would be delivered after all. */
                if (action.sa_handler != SIG_IGN)
                        (void) sigaddset(&set, signals[i]);
        }
        fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd < 0)
                return -errno;
        if (sigprocmask(SIG_BLOCK, &set, ret_previous) < 0) {
                int r = -errno;

                close_fd(fd);
                return r;
        }
        return fd;
}

int signals_take(int fd)
{
        struct signalfd_siginfo info;
        ssize_t n;

        do
                n = read(fd, &info, sizeof(info));
        while (n < 0 && errno == EINTR);
        return n == (ssize_t) sizeof(info) ? (int) info.ssi_signo : 0;
}
