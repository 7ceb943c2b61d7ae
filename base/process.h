/* Processes by pidfd. pidfd_open(2), /proc/PID/fdinfo; a pid alone is never believed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

#define PROCESS_COMMAND_MAX 16U

typedef struct ProcessInfo {
        pid_t pid;                         /* in our pid namespace */
        uid_t uid;                         /* effective uid */
        uint64_t start_time;               /* field 22 of /proc/PID/stat, clock ticks since boot */
        char command[PROCESS_COMMAND_MAX]; /* comm, NUL-terminated, control characters replaced */
} ProcessInfo;

int pidfd_open_pid(pid_t pid);
int pidfd_send_signal_to(int pidfd, int sig);
/* Whether the descriptor is a pidfd at all, and which pid: -EINVAL where it is none, -ESRCH where the process
 * has ended, -EREMOTE where it isn't visible in our pid namespace. */
int pidfd_get_pid(int pidfd, pid_t *ret);
/* Fills the whole record for a live process, checked after reading that it is still the same one. */
int pidfd_get_info(int pidfd, ProcessInfo *ret);
/* 1 where the process has ended (zombies count), 0 where it lives. */
int pidfd_has_exited(int pidfd);
/* Waits for a child by pidfd; *ret_status is as waitid's: exit code, or 128 + signal. -ETIMEDOUT past the
 * deadline. */
int pidfd_wait(int pidfd, usec_t deadline, int *ret_status);

int process_start_time(pid_t pid, uint64_t *ret);
int process_get_parent(pid_t pid, pid_t *ret);
/* comm, as in ProcessInfo. */
int process_get_command(pid_t pid, char ret[static PROCESS_COMMAND_MAX]);
/* 32 hexadecimal characters of /proc/sys/kernel/random/boot_id, without dashes. */
int boot_id_get(char ret[static 33]);
