/* Configuration files: iloaderd.conf (section [Manager]) and caches/NAME.conf (section [Cache]) with drop-ins
 * in NAME.conf.d/ (names ending in .conf), INI as systemd has it (systemd.syntax(7)), read with libinih below
 * one directory. Every fault names file and line. */
#pragma once

#include "daemon/settings.h"
#include "wire/server.h"

typedef struct ConfigFault {
        char *path;    /* of the file, absolute where the kernel tells the directory's path */
        unsigned line; /* 0: the whole file */
        char *message;
} ConfigFault;
void config_fault_done(ConfigFault *f);
#define _cleanup_config_fault_ _cleanup_(config_fault_done)
/* Sets the fault (f may be NULL) in place of what it held; returns -EINVAL, or -ENOMEM. */
int config_fault_set(ConfigFault *f, const char *path, unsigned line, const char *format, ...) _printf_(4, 5);

typedef struct ManagerConfig {
        VarlinkLimits connection_limits; /* ConnectionsMax=, ConnectionsMaxPerUser=, MessageSizeMax= */
        uint64_t caches_max;             /* CachesMax= 256 */
        uint64_t caches_max_per_user;    /* CachesMaxPerUser= 64; root is exempt */
        uint64_t loads_max_per_user;     /* LoadsMaxPerUser= 16 */
        uint64_t bytes_max_per_user;     /* BytesMaxPerUser= none (UINT64_MAX) */
        uint64_t leases_max_per_user;    /* LeasesMaxPerUser= 1024 */
        uint64_t files_max;              /* FilesMax= files of one cache, 65536 */
        uint64_t descriptors_max;        /* DescriptorsMax= of all caches together, 4096 */
        usec_t load_stall_timeout; /* LoadStallTimeoutSec= a load without progress is ended after it, 120 s */
        int log_level;             /* LogLevel= name of syslog(3), info */
} ManagerConfig;

void manager_config_defaults(ManagerConfig *c);
/* Files and their directories must belong to root or to the manager's own user and not be writable by others,
 * and are no symbolic links: -EPERM with the fault set. Files of more than 1 MiB and everything that is wrong
 * in them: -EINVAL with the fault set. Where a file is there but can't be read: its errno with the fault set.
 * -ENOMEM. dirfd: /etc/iloader. Unset keys keep their defaults, an empty value restores it. */

/* iloaderd.conf. A missing file is not a fault. */
int manager_config_load(int dirfd, ManagerConfig *c, ConfigFault *ret_fault);

/* caches/NAME.conf and caches/NAME.conf.d/: -ENOENT where there is none (drop-ins alone are none). Owner
 * defaults to "iloader". */
int cache_config_load(int dirfd, const char *name, CacheSettings **ret, ConfigFault *ret_fault);
/* The path of caches/NAME.conf, there or not; *ret is owned. */
int cache_config_path(int dirfd, const char *name, char **ret);
/* Only the owner (User=) under which a name is reserved; *ret is owned; -ENOENT where the name isn't
 * configured. A file with a fault reserves its name for nobody: its error is returned. */
int cache_config_owner(int dirfd, const char *name, char **ret);
