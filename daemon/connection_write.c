/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection writes. Pieces are gathered during a turn of the loop and offered to the socket
 * together; what it does not take is copied to the backlog, charged and bounded (R22), so that no
 * reply's memory waits for a slow reader.
 */
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "daemon/connection.h"
#include "daemon/loop.h"

enum { BACKLOG_SLAB = 16 * 1024 /* the least that is kept at a time */ };

/* A slab of the backlog holds this. */
struct backlog {
    size_t used;
    uint8_t bytes[];
};

static struct backlog *backlog_of(struct slab *slab)
{
    return (struct backlog *)(void *)slab->data;
}

static void backlog_write(struct connection *c);

static void backlog_written(uv_write_t *write, int status)
{
    struct connection *c = write->data;
    c->writing = false;
    if (c->closing)
        return;
    if (status < 0) {
        connection_close(c);
        return;
    }
    struct slab *slab = c->backlog;
    size_t size = backlog_of(slab)->used;
    c->backlog = slab->next;
    c->backlog_bytes -= size;
    counter_add(&c->loop->counters, COUNTER_BYTES_OUT, size);
    slabs_give(c->loop->slabs, slab);
    if (c->backlog) {
        backlog_write(c);
        return;
    }
    c->loop->n_backlogs--;
    connection_finish(c);
}

static void backlog_write(struct connection *c)
{
    struct backlog *b = backlog_of(c->backlog);
    uv_buf_t buf = uv_buf_init((char *)b->bytes, (unsigned)b->used);
    c->write.data = c;
    c->writing =
        uv_write(&c->write, &c->io.stream, &buf, 1, backlog_written) == 0 && connection_watch(c);
    if (!c->writing)
        connection_close(c);
}

static size_t backlog_room(const struct slab *slab)
{
    size_t used = backlog_of((struct slab *)(uintptr_t)slab)->used;
    return MIN(slab->size - sizeof(struct backlog), (size_t)1 << 30) - used;
}

/* Copies what the socket did not take, so that nobody waits for this peer. */
static bool backlog_add(struct connection *c, const uv_buf_t *buf, size_t skip)
{
    const uint8_t *from = (const uint8_t *)buf->base + skip;
    size_t left = buf->len - skip;
    c->backlog_bytes += left;
    while (left) {
        struct slab *last = c->backlog ? c->backlog_last : NULL;
        /* The first one is being written: its length is settled. */
        if (!last || (last == c->backlog && c->writing) || !backlog_room(last)) {
            size_t want = MIN(MAX(left, (size_t)BACKLOG_SLAB), (size_t)1 << 30);
            struct slab *slab = slabs_take(c->loop->slabs, want + sizeof(struct backlog), false);
            if (!slab)
                return false;
            backlog_of(slab)->used = 0;
            if (last)
                last->next = slab;
            else
                c->backlog = slab;
            c->backlog_last = last = slab;
        }
        struct backlog *b = backlog_of(last);
        size_t n = MIN(left, backlog_room(last));
        memcpy(b->bytes + b->used, from, n);
        b->used += n;
        from += n;
        left -= n;
    }
    return true;
}

/* The rest of the pieces, of which the first `written` bytes have gone. */
static bool backlog_take(struct connection *c, const uv_buf_t *v, uint32_t n, size_t written)
{
    bool first = !c->backlog;
    for (uint32_t i = 0; i < n; i++) {
        size_t skip = MIN(written, v[i].len);
        written -= skip;
        if (skip < v[i].len && !backlog_add(c, &v[i], skip))
            return false;
    }
    if (first && c->backlog) {
        c->loop->n_backlogs++;
        c->write_ms = uv_now(&c->loop->uv);
        c->write_left = c->backlog_bytes;
    }
    return c->backlog_bytes <= c->loop->table->limits.output_bytes;
}

static void pieces_write(struct connection *c, const uv_buf_t *v, uint32_t n, size_t bytes)
{
    int written = 0;
    if (!c->backlog) {
        written = uv_try_write(&c->io.stream, v, n);
        if (written == UV_EAGAIN) {
            written = 0;
        } else if (written < 0) {
            connection_close(c);
            return;
        }
        counter_add(&c->loop->counters, COUNTER_BYTES_OUT, (uint64_t)written);
    }
    if ((size_t)written == bytes)
        return;
    if (!backlog_take(c, v, n, (size_t)written)) {
        counter_add(&c->loop->counters, COUNTER_OUTPUT_LIMIT, 1);
        connection_close(c);
    } else if (!c->writing) {
        backlog_write(c);
    }
}

static void pieces_give(struct connection *c)
{
    if (!c->out)
        return;
    c->out->next = c->loop->free_pieces;
    c->loop->free_pieces = c->out;
    c->out = NULL;
}

void connection_flush(struct connection *c)
{
    struct loop_pieces *out = c->out;
    if (out && !c->closing) {
        if (out->n)
            pieces_write(c, out->v, out->n, out->bytes);
        c->active_ms = uv_now(&c->loop->uv);
    }
    pieces_give(c);
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
    if (c->in_dirty)
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
        if (base >= loop->heads && base < loop->heads + LOOP_HEADS)
            head += iov[i].iov_len;
    }
    loop_head_used(loop, head);
    for (uint32_t i = 0; i < n && !c->closing; i++) {
        if (c->out && c->out->n == LOOP_PIECES) {
            pieces_write(c, c->out->v, c->out->n, c->out->bytes);
            c->out->n = 0;
            c->out->bytes = 0;
        }
        if (!c->out && !(c->out = pieces_take(loop))) {
            connection_close(c); /* a reply that cannot be sent */
            return;
        }
        connection_dirty(c);
        c->out->v[c->out->n++] = uv_buf_init(iov[i].iov_base, (unsigned)iov[i].iov_len);
        c->out->bytes += iov[i].iov_len;
    }
}

/* What the peer has not taken yet, what the kernel holds of it included: a socket with a large
 * buffer becomes writable only now and then, while its reader goes on reading. */
size_t connection_unread(const struct connection *c)
{
    uv_os_fd_t fd;
    int queued = 0;
    size_t left = uv_stream_get_write_queue_size(&c->io.stream);
    for (struct slab *slab = c->backlog->next; slab; slab = slab->next)
        left += backlog_of(slab)->used;
    if (uv_fileno(&c->io.handle, &fd) == 0 && ioctl(fd, SIOCOUTQ, &queued) == 0)
        left += (size_t)MAX(queued, 0);
    return left;
}

void connection_backlog_drop(struct connection *c)
{
    if (c->backlog)
        c->loop->n_backlogs--;
    while (c->backlog) {
        struct slab *slab = c->backlog;
        c->backlog = slab->next;
        slabs_give(c->loop->slabs, slab);
    }
}
