/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions of all protocols share; see session.h. */
#include "daemon/session.h"

#include <string.h>

enum {
    FIRST_SLAB = 4 * 1024,
    BELIEVED_FIRST = 128 * 1024,
    BELIEVED = 4,          /* a slab is so many times as large as what has come; */
    BELIEVED_STEP = 3,     /* with the rounding of its size, so many times at least; */
    BELIEVED_GROWN = 2,    /* beyond BELIEVED_FIRST of a message that grows in its place, so many */
    NEARLY_ALL = 1 << 20,  /* a message of which less is missing waits for nobody */
    RATE_GRACE_MS = 2000,  /* before a sender's rate is looked at */
    RATE_FROM = 64 * 1024, /* bytes of a message, before its sender's rate counts */
};

/* A message that ends in a slab that grows in its place leaves all those behind that it lay in
 * before, where they are kept for the next one; so it takes none but those that the next one takes
 * as well. */
static size_t few_sizes(size_t size, size_t have)
{
    size_t power = (size_t)1 << (63 - __builtin_clzll(size));
    size_t within = slab_within(power);
    return within > have ? within : size;
}

/* The largest size up to `most` from which the message gets to its last slab in whole steps: so
 * little of it moves when it grows for the last time. */
static size_t on_the_way(size_t room, size_t most)
{
    while (room > most)
        room = (room + BELIEVED_STEP - 1) / BELIEVED_STEP;
    return room;
}

size_t session_slab_size(struct session_host *host, size_t have, size_t need)
{
    size_t came = have + host->ops->queued(host);
    size_t most = slab_within(BELIEVED * came); /* what a size class adds is charged as well */
    size_t room = need > SESSION_LARGE ? need + SLAB_ALIGN : need;
    bool grown = room >= SLAB_GROWN;
    size_t times = grown && have > BELIEVED_FIRST ? BELIEVED_GROWN : BELIEVED;
    size_t believed = MAX(have * times, came + SLAB_ALIGN);
    size_t size = MAX(MIN(believed, most), (size_t)FIRST_SLAB);
    if (!grown)
        size = MAX(on_the_way(room, size), have + 1);
    size = MIN(room, MAX(size, (size_t)FIRST_SLAB));
    return grown && size < SLAB_GROWN ? few_sizes(size, have) : size;
}

bool session_slab_move(struct session_host *host, struct slab **slab, size_t have, size_t size)
{
    const struct session_host_ops *ops = host->ops;
    struct slab *old = *slab, *new = NULL;
    if (old && ops->slab_grow)
        new = ops->slab_grow(host, old, size);
    if (!new) {
        new = ops->slab_take(host, size + (old ? slab_lead(old) : 0));
        if (!new)
            return false;
        if (old)
            slab_copy(new, old, have);
        ops->slab_give(host, old);
    }
    *slab = new;
    return true;
}

bool session_turn(struct session_host *host, struct slab **slab, size_t have, size_t need,
                  struct turn *turn)
{
    const struct session_host_ops *ops = host->ops;
    if ((*slab)->charge < SLAB_GROWN || need - have < NEARLY_ALL || !ops->turn)
        return true;
    return ops->turn(host, slab, need, turn);
}

uint64_t session_clock_tick(struct session_clock *clock, size_t received, uint32_t sharers,
                            bool held, const struct session_pace *pace)
{
    clock->sharers = MAX(clock->sharers, sharers);
    if (!clock->begin_ms) {
        clock->begin_ms = pace->now_ms;
        clock->begin = received;
    } else if (held) {
        clock->begin_ms += MIN(pace->passed_ms, pace->now_ms - clock->begin_ms);
    }
    return pace->now_ms - clock->begin_ms;
}

enum session_lateness session_lateness(const struct session_clock *clock, size_t received,
                                       const struct session_pace *pace)
{
    uint64_t age_ms = pace->now_ms - clock->begin_ms;
    uint64_t came = received - MIN(clock->begin, received);
    if (age_ms > pace->timeout_ms)
        return SESSION_LATE;
    bool slow = received >= RATE_FROM && age_ms >= RATE_GRACE_MS &&
                came * 1000 * MAX(clock->sharers, 1u) < age_ms * pace->rate;
    return slow ? SESSION_SLOW : SESSION_IN_TIME;
}

struct slab *session_left_keep(struct session_host *host, const void *data, size_t size)
{
    struct slab *slab = host->ops->slab_left(host, size);
    if (slab)
        memcpy(slab->data, data, size);
    return slab;
}
