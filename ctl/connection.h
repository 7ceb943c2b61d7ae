/* Talking to managers: finding the one that answers, and saying in words what went wrong. */
#pragma once

#include "ctl/target.h"
#include "ctl/verb.h"
#include "wire/client.h"

#define MANAGER "io.iloader.Manager"

/* Connects to one manager; -errno, nothing is printed. */
int manager_connect(const Target *t, VarlinkClient **ret);
/* Says why connecting or a call failed; the exit code. */
int manager_connect_error(const Target *t, int error);
int manager_call_error(const Target *t, int error);
/* Says what the manager refused; the exit code. Holders of leases are listed. */
int manager_refusal(const Target *t, const VarlinkReply *reply);
/* The same of a start, which names the value that was not taken. */
int manager_start_refusal(const Target *t, const VarlinkReply *reply, const Arguments *a);
/* Says that none of the managers that answered has the cache; the exit code. */
int no_such_cache(const char *name, const Target *const *answered, size_t n);
bool reply_is_error(const VarlinkReply *reply, const char *name); /* name without the interface */

/* {} and {"name": name}. NULL on lack of memory. */
struct json_object *name_parameters(const char *name);

/* Resolves the targets of a verb, saying what is wrong with its options; 0 or the exit code. */
int verb_targets(const Invocation *i, TargetUse use, Targets *ret);

/* One call to the only manager that a verb that changes things may use: connects, calls, prints failures.
 * Takes parameters in every case. Returns 0 with a reply that is no error, or the exit code. */
int changing_call(const Invocation *i, const char *method, struct json_object *parameters, usec_t timeout,
                  Targets *ret_targets, VarlinkReply *ret);

/* Whether a reply means that the other manager may know better. */
typedef bool (*ReplyIsMiss)(const VarlinkReply *reply);

/* A call that only reads, to the first manager that has an answer; says which where it was the second one.
 * timeout bounds each first reply. ret_client (may be NULL) is the connection, for replies that follow.
 * is_miss NULL: only NoSuchCache is a miss. Where the manager of the calling user is meant, which nobody
 * named, and there is none, ret_absent (may be NULL) is set instead of failing. Returns 0 with a reply that
 * is no error, or the exit code. */
int reading_call(const Invocation *i, const char *method, struct json_object *parameters, bool more,
                 usec_t timeout, ReplyIsMiss is_miss, VarlinkClient **ret_client, bool *ret_absent,
                 VarlinkReply *ret);

/* The value of a timeout option. */
usec_t timeout_or(const OptionNumber *n, usec_t default_value);
