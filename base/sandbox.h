/* System call filters (seccomp(2)) of the worker, in two phases; the only user of libseccomp. Each call sets
 * no_new_privs and applies to all threads (TSYNC). Denied calls fail with EPERM, except that those which only
 * an intruder makes (execve, ptrace, …) kill the process. */
#pragma once

/* What copying needs: open, stat, read, mmap, memfd_create, threads, rename and link for the view. No sockets
 * made, no exec, no ptrace, no setuid, no mount, no namespaces. */
int sandbox_enter_loading(void);
/* What holding needs: send and receive on sockets that are there, poll, read, write, close, exit, futex,
 * memory release, clock. No open, no new descriptors, no new processes. */
int sandbox_enter_holding(void);
