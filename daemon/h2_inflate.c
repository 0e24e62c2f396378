/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that came compressed, see h2.h. A few bytes can stand for many: a message is inflated in
 * slices of the loop's time, into a slab that grows with what comes out, up to the largest message
 * and up to so many times what came in.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "daemon/h2.h"

enum {
    RATIO = 256,           /* the most that a byte may stand for, */
    SMALL = 4 << 20,       /* unless all of it is no more than this */
    STEP = 64 << 10,       /* bytes that come out between two looks at the clock */
    FIRST = 4 << 10,       /* the least slab */
    GZIP_WINDOW = 15 + 16, /* zlib's word for a gzip head */
};

struct h2_inflate {
    z_stream z;
    size_t used; /* of what came; where that lies may change between two slices */
    struct slab *slab;
    size_t have, most;
};

void h2_inflate_drop(struct h2_stream *stream)
{
    struct h2_inflate *i = STEAL(stream->inflate);
    if (!i)
        return;
    inflateEnd(&i->z);
    stream->session->host->ops->slab_give(stream->session->host, i->slab);
    free(i);
}

static enum status begin(struct h2_stream *stream, struct error *err)
{
    struct session_host *host = stream->session->host;
    struct h2_inflate *i = calloc(1, sizeof(*i));
    size_t ratio_most = stream->need > SIZE_MAX / RATIO ? SIZE_MAX : stream->need * RATIO;
    if (!i)
        return error_plain(err, CAUSE_OVER_BUDGET);
    i->most = MIN(host->ops->frame_limit(host), MAX(ratio_most, (size_t)SMALL));
    if (inflateInit2(&i->z, stream->encoding == H2_GZIP ? GZIP_WINDOW : MAX_WBITS) != Z_OK) {
        free(i);
        return error_plain(err, CAUSE_OVER_BUDGET);
    }
    stream->inflate = i;
    return STATUS_OK;
}

/* Makes room for more. */
static enum status grow(struct h2_stream *stream, struct h2_inflate *i, struct error *err)
{
    struct session_host *host = stream->session->host;
    size_t want = i->slab ? 2 * i->slab->size : MAX(4 * stream->need, (size_t)FIRST);
    if (i->have >= i->most)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "a message of %zu bytes holds more than %zu when it is inflated",
                         stream->need, i->most);
    struct slab *slab = host->ops->slab_take(host, MIN(want, i->most));
    if (!slab)
        return error_plain(err, CAUSE_OVER_BUDGET);
    if (i->have)
        memcpy(slab->data, i->slab->data, i->have);
    host->ops->slab_give(host, i->slab);
    i->slab = slab;
    return STATUS_OK;
}

/* Inflates up to STEP bytes. */
static enum status step(struct h2_stream *stream, struct h2_inflate *i, const uint8_t *from,
                        bool *done, struct error *err)
{
    if (!i->slab || i->have == MIN(i->slab->size, i->most))
        TRY(grow(stream, i, err));
    size_t in = MIN(stream->need - i->used, (size_t)UINT_MAX);
    size_t out = MIN(MIN(i->slab->size, i->most) - i->have, (size_t)STEP);
    i->z.next_in = (Bytef *)(uintptr_t)(from + i->used);
    i->z.avail_in = (uInt)in;
    i->z.next_out = i->slab->data + i->have;
    i->z.avail_out = (uInt)out;
    int r = inflate(&i->z, Z_NO_FLUSH);
    size_t ate = in - i->z.avail_in, made = out - i->z.avail_out;
    i->used += ate;
    i->have += made;
    *done = r == Z_STREAM_END;
    if (r == Z_MEM_ERROR)
        return error_plain(err, CAUSE_OVER_BUDGET);
    bool stuck = r == Z_BUF_ERROR || (!ate && !made);
    if (*done ? i->used == stream->need : r == Z_OK && !stuck)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "a compressed message is damaged%s%s",
                     i->z.msg ? ": " : "", i->z.msg ? i->z.msg : "");
}

enum status h2_inflate_go_on(struct h2_stream *stream, const uint8_t *from, bool *done,
                             struct error *err)
{
    struct session_host *host = stream->session->host;
    *done = false;
    if (!stream->inflate)
        TRY(begin(stream, err));
    do {
        TRY(step(stream, stream->inflate, from, done, err));
    } while (!*done && !host->ops->tired(host));
    return STATUS_OK;
}

struct slab *h2_inflate_take(struct h2_stream *stream, size_t *size)
{
    struct slab *slab = STEAL(stream->inflate->slab);
    *size = stream->inflate->have;
    h2_inflate_drop(stream);
    return slab;
}
