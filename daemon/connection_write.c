/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection writes. Pieces are gathered during a turn of the loop and offered to the socket
 * together. What the socket does not take is copied to the backlog, which is charged and bounded
 * (R22 of docs/operations.md), so that no reply's memory waits for a slow reader.
 *
 * A peer that leaves too much unread gets no more work done until it has read half of that.
 * UNREAD_STOP bytes of descriptions are too much, since they cost next to nothing to ask for. Of
 * results, too much is half of the limit at which a peer is disconnected: one that sends many large
 * requests before it reads its first reply must not find that the server does not read either.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "daemon/connection.h"
#include "daemon/loop.h"
#include "daemon/tls.h"

enum {
    BACKLOG_SLAB = 16 * 1024, /* the least that is kept at a time */
    UNREAD_STOP = 256 * 1024,
    WRITE_AT_ONCE = 16,   /* slabs of the backlog offered to the socket in one turn */
    FLUSH_FROM = 1 << 20, /* bytes that do not wait for the turn's end: copying takes time */
};

/* What a slab of the backlog holds. */
struct backlog {
    size_t sent, used;
    uint8_t bytes[];
};

static struct backlog *backlog_of(const struct slab *slab)
{
    return (struct backlog *)(uintptr_t)slab->data;
}

static void backlog_count(struct connection *c, size_t came, size_t went)
{
    c->backlog_bytes += came - went;
    c->backlog_taken += went;
    atomic_fetch_add_explicit(&c->loop->backlog_bytes, came - went, memory_order_relaxed);
}

/* Says whether more than 1/share of what may be unread is unread. */
static bool unread_beyond(const struct connection *c, uint64_t share)
{
    uint64_t most = c->loop->table->limits.output_bytes / 2;
    return c->backlog && (c->told_bytes > UNREAD_STOP / share ||
                          c->backlog_bytes > MAX(most, (uint64_t)UNREAD_STOP) / share);
}

/* --- what the socket takes --- */

/* Returns how many bytes were taken; the connection dies if there was an error. */
static size_t offer(struct connection *c, const struct iovec *iov, uint32_t n)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n};
    ssize_t sent;
    do
        sent = c->tls ? tls_send(c->tls, iov, n)
                      : sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) {
        counter_add(&c->loop->counters, COUNTER_BYTES_OUT, (uint64_t)sent);
        return (size_t)sent;
    }
    if (errno != EAGAIN && errno != ENOBUFS)
        connection_die(c);
    return 0;
}

/* The kernel has taken everything that was written. */
static void all_written(struct connection *c)
{
    c->n_told = 0;
    c->told_bytes = 0;
    connection_cap_ease(c);
}

static void backlog_pop(struct connection *c)
{
    struct slab *slab = c->backlog;
    c->backlog = slab->next;
    if (!c->backlog)
        c->backlog_last = NULL;
    slabs_give(c->loop->slabs, slab);
}

void connection_writable(struct connection *c)
{
    for (uint32_t k = 0; k < WRITE_AT_ONCE && c->backlog; k++) {
        struct backlog *b = backlog_of(c->backlog);
        const struct iovec iov = {b->bytes + b->sent, b->used - b->sent};
        size_t sent = offer(c, &iov, 1);
        b->sent += sent;
        backlog_count(c, 0, sent);
        if (sent)
            c->served_ms = uv_now(&c->loop->uv);
        if (sent < iov.iov_len)
            break;
        backlog_pop(c);
    }
    if (c->phase >= CONNECTION_DYING)
        return;
    if (!c->backlog) {
        c->loop->n_backlogs--;
        c->active_ms = uv_now(&c->loop->uv);
        all_written(c);
        connection_dirty(c); /* it may be finished */
    }
    if (!unread_beyond(c, 2))
        connection_resume(c, STOP_UNREAD);
}

/* --- what it does not take --- */

static size_t backlog_room(const struct slab *slab)
{
    return slab->size - sizeof(struct backlog) - backlog_of(slab)->used;
}

static struct slab *backlog_push(struct connection *c, size_t size)
{
    struct slab *slab = slabs_take(c->loop->slabs, size + sizeof(struct backlog), SLAB_REPLY);
    if (!slab)
        return NULL;
    backlog_of(slab)->sent = backlog_of(slab)->used = 0;
    if (c->backlog_last)
        c->backlog_last->next = slab;
    else
        c->backlog = slab;
    c->backlog_last = slab;
    return slab;
}

/* Copies what the socket did not take, so that nobody waits for this peer. */
static bool backlog_add(struct connection *c, const uint8_t *from, size_t left)
{
    while (left) {
        struct slab *last = c->backlog_last;
        if ((!last || !backlog_room(last)) &&
            !(last = backlog_push(c, MIN(MAX(left, (size_t)BACKLOG_SLAB), (size_t)SLAB_LARGE))))
            return false;
        struct backlog *b = backlog_of(last);
        size_t n = MIN(left, backlog_room(last));
        memcpy(b->bytes + b->used, from, n);
        b->used += n;
        backlog_count(c, n, 0);
        from += n;
        left -= n;
    }
    return true;
}

/* Adds the pieces to the backlog, without the first `written` bytes, which have gone. False: too
 * much is unread, or there is no memory. */
static bool backlog_take(struct connection *c, const struct iovec *v, uint32_t n, size_t written)
{
    bool first = !c->backlog, room = true;
    for (uint32_t i = 0; i < n && room; i++) {
        size_t skip = MIN(written, v[i].iov_len);
        written -= skip;
        if (skip < v[i].iov_len)
            room = backlog_add(c, (const uint8_t *)v[i].iov_base + skip, v[i].iov_len - skip);
    }
    if (first && c->backlog) {
        c->loop->n_backlogs++;
        c->write_ms = c->backlog_ms = uv_now(&c->loop->uv);
        c->write_left = c->backlog_bytes;
        c->backlog_taken = 0;
    }
    if (unread_beyond(c, 1))
        connection_stop(c, STOP_UNREAD);
    return room && c->backlog_bytes <= c->loop->table->limits.output_bytes;
}

/* --- pieces --- */

static void pieces_write(struct connection *c, struct loop_pieces *out)
{
    size_t written = c->backlog ? 0 : offer(c, out->v, out->n);
    if (c->phase < CONNECTION_DYING && written == out->bytes) {
        all_written(c);
    } else if (c->phase < CONNECTION_DYING && !backlog_take(c, out->v, out->n, written)) {
        counter_add(&c->loop->counters, COUNTER_OUTPUT_LIMIT, 1);
        connection_die(c);
    }
    out->n = 0;
    out->bytes = 0;
}

void connection_flush(struct connection *c)
{
    struct loop_pieces *out = STEAL(c->out);
    if (!out)
        return;
    if (c->phase < CONNECTION_DYING) {
        if (out->n)
            pieces_write(c, out);
        c->active_ms = uv_now(&c->loop->uv);
    }
    out->next = c->loop->free_pieces;
    c->loop->free_pieces = out;
}

static struct loop_pieces *pieces_take(struct loop *loop)
{
    struct loop_pieces *p = loop->free_pieces;
    if (p)
        loop->free_pieces = p->next;
    else if (!(p = malloc(sizeof(*p))))
        return NULL;
    p->n = 0;
    p->bytes = 0;
    return p;
}

void connection_dirty(struct connection *c)
{
    if (c->in_dirty || c->phase >= CONNECTION_DYING)
        return;
    c->in_dirty = true;
    c->next_dirty = c->loop->dirty;
    c->loop->dirty = c;
}

void connection_write(struct connection *c, const struct iovec *iov, uint32_t n)
{
    struct loop *loop = c->loop;
    size_t head = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *base = iov[i].iov_base;
        if (base >= loop->heads + loop->heads_used && base < loop->heads + LOOP_HEADS)
            head += iov[i].iov_len;
    }
    loop_head_used(loop, head);
    for (uint32_t i = 0; i < n && c->phase < CONNECTION_DYING; i++) {
        if (c->out && c->out->n == LOOP_PIECES)
            pieces_write(c, c->out);
        if (!c->out && !(c->out = pieces_take(loop))) {
            connection_die(c); /* a reply that cannot be sent */
            return;
        }
        connection_dirty(c);
        c->out->v[c->out->n++] = iov[i];
        c->out->bytes += iov[i].iov_len;
        c->told_bytes += c->telling ? iov[i].iov_len : 0;
    }
    if (c->out && c->out->bytes >= FLUSH_FROM && c->phase < CONNECTION_DYING)
        pieces_write(c, c->out);
}

/* A socket with a large buffer becomes writable only now and then, although its reader goes on
 * reading; so what the kernel holds counts as unread, too. */
size_t connection_unread(const struct connection *c)
{
    int queued = 0;
    size_t left = c->backlog_bytes;
    if (ioctl(c->fd, SIOCOUTQ, &queued) == 0)
        left += (size_t)MAX(queued, 0);
    return left;
}

void connection_backlog_drop(struct connection *c)
{
    if (c->backlog)
        c->loop->n_backlogs--;
    while (c->backlog)
        backlog_pop(c);
    backlog_count(c, 0, c->backlog_bytes);
}
