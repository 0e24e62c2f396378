/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that came compressed, see inflate.h. */
#include "daemon/inflate.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

enum {
    RATIO = 256,           /* the most that a byte may stand for, */
    SMALL = 4 << 20,       /* unless all of it is no more than this */
    STEP = 64 << 10,       /* bytes that come out between two looks at the clock */
    FIRST = 4 << 10,       /* the least slab */
    GZIP_WINDOW = 15 + 16, /* zlib's word for a gzip head */
};

struct inflate {
    struct session_host *host;
    z_stream z;
    size_t size; /* of what came, and what of it has been used */
    size_t used;
    struct slab *slab;
    size_t have, most;
};

struct inflate *inflate_new(struct session_host *host, enum inflate_coding coding, size_t size)
{
    struct inflate *i = calloc(1, sizeof(*i));
    size_t ratio_most = size > SIZE_MAX / RATIO ? SIZE_MAX : size * RATIO;
    if (!i || inflateInit2(&i->z, coding == INFLATE_GZIP ? GZIP_WINDOW : MAX_WBITS) != Z_OK) {
        free(i);
        return NULL;
    }
    i->host = host;
    i->size = size;
    i->most = MIN(host->ops->frame_limit(host), MAX(ratio_most, (size_t)SMALL));
    return i;
}

void inflate_free(struct inflate *i)
{
    if (!i)
        return;
    inflateEnd(&i->z);
    i->host->ops->slab_give(i->host, i->slab);
    free(i);
}

/* Makes room for more. */
static enum status grow(struct inflate *i, struct error *err)
{
    struct session_host *host = i->host;
    size_t want = i->slab ? 2 * i->slab->size : MAX(4 * i->size, (size_t)FIRST);
    if (i->have >= i->most)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "a message of %zu bytes holds more than %zu when it is inflated", i->size,
                         i->most);
    if (!session_slab_move(host, &i->slab, i->have, MIN(want, i->most)))
        return error_plain(err, CAUSE_OVER_BUDGET);
    return STATUS_OK;
}

/* Inflates up to STEP bytes. */
static enum status step(struct inflate *i, const uint8_t *from, bool *done, struct error *err)
{
    if (!i->slab || i->have == MIN(i->slab->size, i->most))
        TRY(grow(i, err));
    assert(i->slab);
    size_t in = MIN(i->size - i->used, (size_t)UINT_MAX);
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
    if (*done ? i->used == i->size : r == Z_OK && !stuck)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "a compressed message is damaged%s%s",
                     i->z.msg ? ": " : "", i->z.msg ? i->z.msg : "");
}

enum status inflate_go_on(struct inflate *i, const uint8_t *from, bool *done, struct error *err)
{
    *done = false;
    do {
        TRY(step(i, from, done, err));
    } while (!*done && !i->host->ops->tired(i->host));
    return STATUS_OK;
}

struct slab *inflate_take(struct inflate *i, size_t *size)
{
    struct slab *slab = STEAL(i->slab);
    *size = i->have;
    inflate_free(i);
    return slab;
}
