/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for what peers send and what they have not taken yet: slabs of a few size classes, each
 * charged to the budget of all loops for as long as somebody holds it.
 *
 * Each loop has its own `slabs`, used on its thread only; the budget is shared. Slabs given back
 * are kept for the next taker, because getting pinned memory is slow; those that nobody needed
 * between two trims go back.
 */
#ifndef INFERD_DAEMON_SLAB_H
#define INFERD_DAEMON_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Bytes that all connections together may hold. Relaxed: a sum; it guards no other data. */
struct budget {
    _Atomic uint64_t used, limit;
};

/* False if it would go beyond the limit; nothing is taken then. */
bool budget_take(struct budget *budget, uint64_t bytes) MUST_USE;
void budget_give(struct budget *budget, uint64_t bytes);
static inline uint64_t budget_used(const struct budget *budget)
{
    return atomic_load_explicit(&budget->used, memory_order_relaxed);
}

enum { SLAB_ALIGN = 64 };

struct slab {
    struct slab *next; /* the holder's, to chain slabs */
    size_t size;       /* usable bytes at data */
    size_t charge;     /* what the budget was charged */
    uint32_t class;
    _Alignas(SLAB_ALIGN) uint8_t data[];
};

/* Where the memory comes from; aligned to SLAB_ALIGN. */
struct slab_memory {
    void *(*alloc)(void *user, size_t size);                /* NULL: none */
    void (*release)(void *user, void *memory, size_t size); /* the size it was asked for */
    void *user;
};

struct slabs;

/* `keep`: the most bytes kept for later. NULL: no memory. */
struct slabs *slabs_new(const struct slab_memory *memory, struct budget *budget, size_t keep);
void slabs_free(struct slabs *slabs); /* all slabs must have been given back */

/* At least `size` usable bytes. NULL: beyond the budget, or no memory. `force` charges the budget
 * beyond its limit: for what is already here and would be lost. */
struct slab *slabs_take(struct slabs *slabs, size_t size, bool force) MUST_USE;
void slabs_give(struct slabs *slabs, struct slab *slab); /* NULL is fine */

/* Gives back what was not needed since the last trim. Call it now and then. */
void slabs_trim(struct slabs *slabs);

#endif
