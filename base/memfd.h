/* Memory files: made, sealed, checked. memfd_create(2), fcntl(2) F_ADD_SEALS. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What every resident file carries: F_SEAL_WRITE|GROW|SHRINK|SEAL. */
unsigned memfd_required_seals(void);

/* A new memfd that allows sealing and, where the kernel has it, is not executable (MFD_NOEXEC_SEAL). The name
 * is cut to what the kernel takes and shows in /proc/PID/fd. */
int memfd_new(const char *name);
/* fchmod to mode (and fchown to gid unless (gid_t) -1), then the required seals, F_SEAL_EXEC too where the
 * kernel has it. No writable mapping may exist (-EBUSY). */
int memfd_seal(int fd, mode_t mode, gid_t gid);
/* A sealed memfd of n bytes, at offset 0. The description is the one that wrote: fd_reopen it O_RDONLY to
 * hand it on. */
int memfd_new_sealed_data(const char *name, const void *data, size_t n, mode_t mode);
/* Checks what a peer passed: a memfd (-ENOTTY or -EINVAL where not), of this size (-EFBIG; UINT64_MAX: any),
 * read-only (-EBADF), with the required seals (-EPERM). */
int memfd_verify(int fd, uint64_t size);
