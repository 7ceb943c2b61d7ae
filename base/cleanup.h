/* Ownership by scope: every owned pointer, descriptor, lock and mapping is declared with one of these, so
 * that an early return can't leak it. Handing on is said with TAKE_PTR() and TAKE_FD(). */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _unused_       __attribute__((unused))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _sentinel_     __attribute__((sentinel))
#define _noreturn_     __attribute__((noreturn))
#define _public_       __attribute__((visibility("default")))

#define ELEMENTSOF(x) (sizeof(x) / sizeof((x)[0]))
#define MIN2(a, b)    ((a) < (b) ? (a) : (b))
#define MAX2(a, b)    ((a) > (b) ? (a) : (b))

/* 1 KiB, 1 MiB, 1 GiB, and times in microseconds, which is what usec_t counts everywhere in this project. */
typedef uint64_t usec_t;
#define USEC_PER_MSEC ((usec_t) 1000ULL)
#define USEC_PER_SEC  ((usec_t) 1000000ULL)
#define USEC_INFINITY UINT64_MAX
#define KIB(n)        ((uint64_t) (n) << 10)
#define MIB(n)        ((uint64_t) (n) << 20)
#define GIB(n)        ((uint64_t) (n) << 30)

#define TAKE_PTR(p)                                                                                          \
        ({                                                                                                   \
                __typeof__(p) *_pp = &(p);                                                                   \
                __typeof__(p) _v = *_pp;                                                                     \
                *_pp = NULL;                                                                                 \
                _v;                                                                                          \
        })
#define TAKE_FD(fd)                                                                                          \
        ({                                                                                                   \
                int *_fp = &(fd);                                                                            \
                int _f = *_fp;                                                                               \
                *_fp = -EBADF;                                                                               \
                _f;                                                                                          \
        })

/* Makes NAME_freep() for _cleanup_() out of a destructor that takes and returns a pointer and accepts NULL.
 */
#define DEFINE_CLEANUP(type, destructor)                                                                     \
        static inline void destructor##p(type *p)                                                            \
        {                                                                                                    \
                if (*p)                                                                                      \
                        destructor(*p);                                                                      \
        }

static inline void freep(void *p)
{
        free(*(void **) p);
}

static inline void fclosep(FILE **f)
{
        if (*f)
                fclose(*f);
}

/* close() that keeps errno and accepts "no descriptor"; returns -EBADF, to be assigned. */
static inline int close_fd(int fd)
{
        if (fd >= 0) {
                int saved = errno;

                (void) close(fd);
                errno = saved;
        }
        return -EBADF;
}

static inline void close_fdp(int *fd)
{
        *fd = close_fd(*fd);
}

#define _cleanup_free_   _cleanup_(freep)
#define _cleanup_close_  _cleanup_(close_fdp)
#define _cleanup_fclose_ _cleanup_(fclosep)
