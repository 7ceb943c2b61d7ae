/* Parameters through every generated table. The tables and the interface's types are made from one
 * description by different ways, so they must agree on what is acceptable. */
#include "tests/fuzz/mutate.h"
#include "wire/manager-interface.h"

typedef struct Target {
        const char *method;
        const DispatchField *fields;
        size_t size;
        void (*done)(void *p);
} Target;

#define TARGET(macro, type, prefix)                                                                          \
        {                                                                                                    \
                MANAGER_METHOD_##macro, manager_##prefix##_fields, sizeof(Manager##type##Parameters),        \
                        manager_##prefix##_parameters_done                                                   \
        }

static const Target targets[] = {
        TARGET(LIST, List, list),
        TARGET(STATUS, Status, status),
        TARGET(START, Start, start),
        TARGET(STOP, Stop, stop),
        TARGET(VIEW, View, view),
        TARGET(MANIFEST, Manifest, manifest),
        TARGET(ACQUIRE_LEASE, AcquireLease, acquire_lease),
        TARGET(RELEASE_LEASE, ReleaseLease, release_lease),
        TARGET(COLLECT, Collect, collect),
        TARGET(SET_QUOTA, SetQuota, set_quota),
        TARGET(MONITOR, Monitor, monitor),
};

static const char *const errors[] = {
        MANAGER_ERROR_NO_SUCH_CACHE,   MANAGER_ERROR_CACHE_LEASED,   MANAGER_ERROR_INSUFFICIENT_MEMORY,
        MANAGER_ERROR_CACHE_NOT_READY, MANAGER_ERROR_INVALID_HOLDER,
};

#ifdef FUZZ_SEEDED_FAULT
static void seeded_fault(const Target *t, const void *parameters)
{
        const ManagerStartParameters *p = parameters;

        if (t->fields == manager_start_fields && strlen(p->name) > 12)
                abort();
}
#endif

static void dispatch(const Target *t, struct json_object *o)
{
        const char *field = NULL, *other = NULL;
        void *parameters = calloc(1, t->size);
        int r, k;

        CHECK(parameters);
        r = dispatch_object(o, t->fields, parameters, &field);
        CHECK(r == 0 || (r == -EINVAL && field));
        k = manager_validate_call(t->method, o, &other);
        CHECK((r == 0) == (k == 0));
        CHECK(k == 0 || (k == -EBADMSG && other));
#ifdef FUZZ_SEEDED_FAULT
        if (r == 0)
                seeded_fault(t, parameters);
#endif
        t->done(parameters);
        free(parameters);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_json_ struct json_object *o = NULL;

        if (json_parse_strict((const char *) data, size, &o, NULL) < 0)
                return 0;
        for (size_t i = 0; i < ELEMENTSOF(targets); i++) {
                const char *field = NULL;
                int r;

                dispatch(&targets[i], o);
                r = manager_validate_reply(targets[i].method, o, &field);
                CHECK(r == 0 || (r == -EBADMSG && field));
        }
        for (size_t i = 0; i < ELEMENTSOF(errors); i++) {
                int r = manager_validate_error(errors[i], o, NULL);

                CHECK(r == 0 || r == -EBADMSG);
        }
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
        static const char *const words[] = {
                "name",    "source",    "sourceBytes", "view",        "patterns", "excludes",
                "workers", "chunkSize", "force",       "idleTTLUSec", "drain",    "maxBytes",
                "apply",   "caches",    "cache",       "leases",      "budget",   "state",
                "ready",   "failed",    "files",       "kind",        "evicted",  "maxMemoryFraction",
                "message", "bytes",     "pid",         "limit",       NULL,
        };

        return mutate_messages(data, size, max_size, 0, seed, words);
}
