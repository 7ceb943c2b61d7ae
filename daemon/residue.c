/* What readers keep of caches that are gone. */
#include "daemon/residue.h"

#include <sys/epoll.h>

#include "base/size.h"
#include "base/text.h"
#include "daemon/lease.h"

typedef struct Holder {
        struct Residue *residue;
        struct Holder *next;
        int pidfd;
        sd_event_source *source;
} Holder;

typedef struct Residue {
        struct Residue *next;
        ResidueTable *table;
        uint64_t bytes;
        Holder *holders;
} Residue;

/* Named to people at most. */
#define NAMED_MAX 8

static void holder_free(Holder *h)
{
        for (Holder **p = &h->residue->holders; *p; p = &(*p)->next)
                if (*p == h) {
                        *p = h->next;
                        break;
                }
        sd_event_source_disable_unref(h->source);
        close_fd(h->pidfd);
        free(h);
}

static void residue_free(Residue *r)
{
        while (r->holders)
                holder_free(r->holders);
        for (Residue **p = &r->table->first; *p; p = &(*p)->next)
                if (*p == r) {
                        *p = r->next;
                        break;
                }
        free(r);
}

static int on_holder(_unused_ sd_event_source *source, _unused_ int fd, _unused_ uint32_t revents,
                     void *userdata)
{
        Holder *h = userdata;
        Residue *r = h->residue;

        holder_free(h);
        if (!r->holders)
                residue_free(r);
        return 0;
}

static int holder_add(Residue *residue, Lease *l)
{
        Holder *h;
        int r;

        h = malloc(sizeof(*h));
        if (!h)
                return -ENOMEM;
        *h = (Holder){.residue = residue, .pidfd = TAKE_FD(l->pidfd), .next = residue->holders};
        residue->holders = h;
        l->source = sd_event_source_disable_unref(l->source);
        r = sd_event_add_io(residue->table->event, &h->source, h->pidfd, EPOLLIN, on_holder, h);
        if (r < 0)
                holder_free(h);
        return r;
}

static int describe(const Cache *c, char **ret)
{
        _cleanup_free_ char *text = NULL;
        size_t n = 0;
        int r;

        for (const Lease *l = c->leases; l && n < NAMED_MAX; l = l->next_in_cache, n++) {
                r = text_format(&text, "%s%s%s (pid %d)", text ? text : "", text ? ", " : "",
                                l->holder.command, (int) l->holder.pid);
                if (r < 0)
                        return r;
        }
        if (c->n_leases > n) {
                r = text_format(&text, "%s and %zu more", text, c->n_leases - n);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(text);
        return 0;
}

int residue_take(ResidueTable *t, Cache *c, char **ret_holders)
{
        _cleanup_free_ char *holders = NULL;
        Residue *residue = NULL;
        int r;

        r = describe(c, &holders);
        if (r >= 0 && c->leases) {
                residue = malloc(sizeof(*residue));
                r = residue ? 0 : -ENOMEM;
        }
        if (residue) {
                *residue = (Residue){.table = t, .bytes = c->bytes, .next = t->first};
                t->first = residue;
        }
        while (c->leases) {
                if (r >= 0)
                        r = holder_add(residue, c->leases);
                lease_free(c->leases);
        }
        if (residue && !residue->holders)
                residue_free(residue);
        if (r < 0)
                return r;
        *ret_holders = TAKE_PTR(holders);
        return 0;
}

uint64_t residue_bytes(const ResidueTable *t)
{
        uint64_t bytes = 0;

        for (const Residue *r = t->first; r; r = r->next)
                bytes = add_saturating(bytes, r->bytes);
        return bytes;
}

void residue_done(ResidueTable *t)
{
        while (t->first)
                residue_free(t->first);
}
