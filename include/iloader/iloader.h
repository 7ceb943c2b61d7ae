/* libiloader: the client side of iloader for C programs. Functions return 0 or more on success and a negative
 * errno value on failure; what failed is then said in words by iloader_client_last_error(). Nothing here is
 * thread-safe on one object; separate objects are independent. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct iloader_client iloader_client;

/* Connects to a manager. socket_path NULL: $ILOADER_SOCKET, else the user's own manager, else the system's.
 * timeout_usec bounds each later call (microseconds; 0: 5 seconds). *ret is the caller's, to be closed.
 * -ENOENT, -ECONNREFUSED: no manager there; -EPERM: the socket belongs to neither the caller nor root;
 * -ENAMETOOLONG: the path is longer than 107 bytes. */
int iloader_client_open(const char *socket_path, uint64_t timeout_usec, iloader_client **ret);
iloader_client *iloader_client_close(iloader_client *client); /* accepts NULL, returns NULL */
/* The last failure in words, "" where there was none; valid until the next call. */
const char *iloader_client_last_error(const iloader_client *client);
/* The varlink error of the last failure, e.g. "io.iloader.Manager.NoSuchCache"; "" where it was none. */
const char *iloader_client_last_error_name(const iloader_client *client);

/* The calls below fail with -ENOENT (no such cache), -EAGAIN (the cache is there, but not ready), -EACCES
 * (not allowed), -EUSERS (too many leases), -EINVAL (a parameter is refused), -ESRCH (the holder has ended),
 * -ETIMEDOUT, -ECONNRESET (the manager went away; the next call connects anew), -EPROTO (it does not speak
 * the protocol), or -EREMOTEIO for every other refusal: see iloader_client_last_error_name(). */

/* The published directory of a ready cache; *ret is the caller's to free(3). */
int iloader_view(iloader_client *client, const char *name, char **ret);

/* Protects a ready cache while a process lives: the one of pidfd (see pidfd_open(2)), or the caller for -1.
 * The lease is the process's, not the connection's: the client may be closed. The same process leasing again
 * has one lease. *ret_view (may be NULL) is the published directory, the caller's to free(3). */
int iloader_lease_acquire(iloader_client *client, const char *name, int pidfd, char **ret_view);
/* Ends a lease before its process ends. */
int iloader_lease_release(iloader_client *client, const char *name, int pidfd);

#ifdef __cplusplus
}
#endif
