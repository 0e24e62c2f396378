/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs, see slab.h. Four classes an octave from 1 KiB on, the header included, so that at most a
 * fifth of a slab is unused.
 */
#include "daemon/slab.h"

#include <stdlib.h>

enum { MIN_SHIFT = 10, MAX_SHIFT = 34, CLASSES = (MAX_SHIFT - MIN_SHIFT) * 4 + 1 };

struct slabs {
    struct slab_memory memory;
    struct budget *budget;
    size_t keep, kept; /* bytes */
    struct {
        struct slab *free;
        uint32_t n, low; /* free now; the least since the last trim */
    } class[CLASSES];
};

bool budget_take(struct budget *budget, uint64_t bytes)
{
    uint64_t limit = atomic_load_explicit(&budget->limit, memory_order_relaxed);
    uint64_t used = atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
    if (used <= limit && bytes <= limit - used)
        return true;
    budget_give(budget, bytes);
    return false;
}

void budget_give(struct budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

static uint32_t class_of(size_t total)
{
    if (total <= (size_t)1 << MIN_SHIFT)
        return 0;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(total - 1);
    uint32_t quarter = (uint32_t)((total - 1) >> (top - 2)) & 3;
    return (top - MIN_SHIFT) * 4 + quarter + 1;
}

static size_t class_size(uint32_t class)
{
    if (class == 0)
        return (size_t)1 << MIN_SHIFT;
    return (size_t)(5 + (class - 1) % 4) << (MIN_SHIFT - 2 + (class - 1) / 4);
}

struct slabs *slabs_new(const struct slab_memory *memory, struct budget *budget, size_t keep)
{
    struct slabs *slabs = calloc(1, sizeof(*slabs));
    if (slabs) {
        slabs->memory = *memory;
        slabs->budget = budget;
        slabs->keep = keep;
    }
    return slabs;
}

/* Takes a free slab of the class out. */
static struct slab *pop(struct slabs *slabs, uint32_t class)
{
    struct slab *slab = slabs->class[class].free;
    if (slab) {
        slabs->class[class].free = slab->next;
        slabs->class[class].n--;
        slabs->class[class].low = MIN(slabs->class[class].low, slabs->class[class].n);
        slabs->kept -= slab->charge;
    }
    return slab;
}

void slabs_free(struct slabs *slabs)
{
    if (!slabs)
        return;
    for (uint32_t class = 0; class < CLASSES; class ++)
        for (struct slab *slab; (slab = pop(slabs, class));)
            slabs->memory.release(slabs->memory.user, slab, slab->charge);
    free(slabs);
}

struct slab *slabs_take(struct slabs *slabs, size_t size, bool force)
{
    if (size > ((size_t)1 << MAX_SHIFT) - sizeof(struct slab))
        return NULL;
    uint32_t class = class_of(size + sizeof(struct slab));
    size_t charge = class_size(class);
    if (force)
        atomic_fetch_add_explicit(&slabs->budget->used, charge, memory_order_relaxed);
    else if (!budget_take(slabs->budget, charge))
        return NULL;
    struct slab *slab = pop(slabs, class);
    if (!slab && !(slab = slabs->memory.alloc(slabs->memory.user, charge))) {
        budget_give(slabs->budget, charge);
        return NULL;
    }
    slab->next = NULL;
    slab->size = charge - sizeof(struct slab);
    slab->charge = charge;
    slab->class = class;
    return slab;
}

void slabs_give(struct slabs *slabs, struct slab *slab)
{
    if (!slab)
        return;
    budget_give(slabs->budget, slab->charge);
    if (slab->charge > slabs->keep - slabs->kept) {
        slabs->memory.release(slabs->memory.user, slab, slab->charge);
        return;
    }
    slab->next = slabs->class[slab->class].free;
    slabs->class[slab->class].free = slab;
    slabs->class[slab->class].n++;
    slabs->kept += slab->charge;
}

void slabs_trim(struct slabs *slabs)
{
    for (uint32_t class = 0; class < CLASSES; class ++) {
        for (uint32_t n = slabs->class[class].low; n > 0; n--) {
            struct slab *slab = pop(slabs, class);
            slabs->memory.release(slabs->memory.user, slab, slab->charge);
        }
        slabs->class[class].low = slabs->class[class].n;
    }
}
