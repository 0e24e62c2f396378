/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what peers send and what they have not taken yet: slabs of a few size classes, each
 * charged to the budget of all loops.
 *
 * The budget bounds memory, not only what is in use: slabs that were given back and are kept for
 * the next taker count as well, used + kept <= limit at any moment. Nothing more is kept while that
 * sum is above half of the limit. A loop that finds no room first gives back what it keeps itself,
 * of whatever class, and if others keep something, asks them to do the same.
 *
 * Not every slab may use all of the budget. Slabs of large frames leave an eighth of it alone, so
 * that a few of them on their way never keep small requests out; and all that comes in leaves a
 * sixteenth to replies, which have nowhere else to go.
 *
 * Each loop has its own `slabs`, used on its thread only; the budget is shared. Slabs given back
 * are kept because getting pinned memory is slow; those that nobody needed between two trims go
 * back. Where memory can grow in its place (struct slab_memory), slabs beyond SLAB_GROWN do, so
 * that a message that comes piece by piece never lies in two of them; those are not kept, for the
 * next one would not be of their size.
 */
#ifndef INFERD_DAEMON_SLAB_H
#define INFERD_DAEMON_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "config/config.h"

/* Bytes of all connections together. Relaxed: sums; they guard no other data. */
struct budget {
    _Atomic uint64_t limit;
    _Atomic uint64_t used;       /* by somebody */
    _Atomic uint64_t held;       /* used, or kept for later: taken from the system */
    _Atomic uint64_t large;      /* the sum of large messages (turns.h), */
    _Atomic uint32_t large_gone; /* and how many have left it */
    _Atomic uint64_t calls;      /* part of `used`: memory of open calls (slabs_book) */
    /* Rises when a loop finds no room although others keep slabs, which they then let go
     * (slabs_heed). */
    _Atomic uint32_t pressure;
};

static inline uint64_t budget_used(const struct budget *budget)
{
    return atomic_load_explicit(&budget->used, memory_order_relaxed);
}
static inline uint64_t budget_held(const struct budget *budget)
{
    return atomic_load_explicit(&budget->held, memory_order_relaxed);
}

enum {
    SLAB_ALIGN = 64,
    SLAB_LARGE = 64 * 1024, /* slabs beyond this size are large */
    SLAB_SMALL_SHARE = 8,   /* large slabs leave one part in so many of the budget alone, */
    SLAB_REPLY_SHARE = 16,  /* and small requests' slabs one part in so many */
    SLAB_CALLS_SHARE = 8,   /* open calls take one part in so many of the budget at most */
    SLAB_KEPT_SHARE = 2,    /* used and kept slabs together fill one part in so many at most */
    SLAB_GROWN = 4 << 20,   /* what slabs are charged that grow in their place, at least */
};

/* The budget for limits.inflight_bytes: these, or more if one frame of the largest size would not
 * always find room. Its slab may be a quarter larger than the frame; while the frame moves to a
 * larger slab both slabs exist; and large slabs leave a share of the budget alone. */
uint64_t budget_limit(const struct config_limits *limits);

enum slab_use { SLAB_REQUEST, SLAB_REPLY };

struct slab {
    struct slab *next; /* the holder's, to chain slabs */
    uint8_t *data;     /* aligned, unless slab_shift moved it */
    size_t size;       /* usable bytes at data */
    size_t charge;     /* what the budget was charged */
    size_t large;      /* what it adds to budget.large; 0: it is not in that sum */
    bool slow;         /* it has left that sum, see turns.h */
    uint32_t class;
    _Alignas(SLAB_ALIGN) uint8_t room[];
};

/* Where the memory comes from; aligned to SLAB_ALIGN. */
struct slab_memory {
    void *(*alloc)(void *user, size_t size);                /* NULL: none */
    void (*release)(void *user, void *memory, size_t size); /* the size it was asked for */
    /* Gives memory of SLAB_GROWN bytes and more another size, at another address maybe. NULL: there
     * is none, and all stays as it was. May itself be NULL: such memory does not grow. */
    void *(*grow)(void *user, void *memory, size_t size, size_t to);
    void *user;
};

struct slabs;

/* `keep`: the most bytes kept for later, the budget apart. NULL: no memory. */
struct slabs *slabs_new(const struct slab_memory *memory, struct budget *budget, size_t keep);
void slabs_free(struct slabs *slabs); /* all slabs must have been given back */

/* At least `size` usable bytes. NULL: beyond the budget, or no memory. */
struct slab *slabs_take(struct slabs *slabs, size_t size, enum slab_use use) MUST_USE;
void slabs_give(struct slabs *slabs, struct slab *slab); /* NULL is fine */
/* Gives the slab at least `size` usable bytes in its place, or at another address. NULL: it cannot
 * grow so, and stays as it was; what is to grow has to move. */
struct slab *slabs_grow(struct slabs *slabs, struct slab *slab, size_t size,
                        enum slab_use use) MUST_USE;

/* Puts the first `have` bytes of another slab there, as far from its beginning; it takes that
 * slab's place in budget.large. */
void slab_copy(struct slab *slab, struct slab *from, size_t have);
/* Adds the slab, with so many bytes, to budget.large, until it is given back. */
void slab_large(struct budget *budget, struct slab *slab, size_t bytes);
/* Takes it out of the sum for good, since its message comes slowly. */
void slab_large_drop(struct budget *budget, struct slab *slab);
static inline size_t slab_lead(const struct slab *slab)
{
    return (size_t)(slab->data - slab->room);
}

/* Moves the first `have` bytes of the slab, and with them `data`, so that byte `at` becomes
 * aligned; it then has up to SLAB_ALIGN - 1 usable bytes less. */
void slab_shift(struct slab *slab, size_t have, size_t at);

/* Sets a slab aside: it stays held, so that there is memory when it is needed, but is in nobody's
 * use. Claiming it when it is needed never fails; then it is in use like any other slab. */
void slabs_set_aside(struct slabs *slabs, const struct slab *slab);
void slabs_claim(struct slabs *slabs, const struct slab *slab);

/* Charges memory that is no slab: what calls take that are open and in which nothing may come for
 * long. All of them together have a share of the budget, so that they never keep requests out.
 * False: that share or the budget has no room. */
bool slabs_book(struct slabs *slabs, size_t bytes) MUST_USE;
void slabs_unbook(struct slabs *slabs, size_t bytes);

/* What the budget is charged for a slab of `size` usable bytes. */
size_t slab_charge(size_t size);
/* The most usable bytes for which at most `charge` is charged; 0: there is no such slab. */
size_t slab_within(size_t charge);
/* Whether the budget has room for a request's slab now, leaving aside what other loops keep. */
bool slabs_room(const struct slabs *slabs, size_t size);

/* Bytes kept for later. */
size_t slabs_kept(const struct slabs *slabs);
/* Gives back what was not needed since the last trim. Call it now and then. */
void slabs_trim(struct slabs *slabs);
/* Gives back all that is kept if somebody asked for it since the last call (true), and what is
 * beyond the budget if that has become smaller. Call it once a turn. */
bool slabs_heed(struct slabs *slabs);

#endif
