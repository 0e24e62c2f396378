/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs, see slab.h. Four classes an octave from 1 KiB on, the header included, so that at most a
 * fifth of a slab is unused.
 */
#include "daemon/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/account.h"

enum { BUDGET_EXTRA = 256 * 1024 }; /* so that the smallest budget has room for leftovers */
enum { MIN_SHIFT = 10, MAX_SHIFT = 34, CLASSES = (MAX_SHIFT - MIN_SHIFT) * 4 + 1 };

struct slabs {
    struct slab_memory memory;
    struct budget *budget;
    size_t keep, kept; /* bytes */
    uint32_t heeded;   /* the pressure that was last given way to */
    struct {
        struct slab *free;
        uint32_t n, low; /* free now; the least since the last trim */
    } class[CLASSES];
};

/* --- the budget --- */

static uint64_t limit_of(const struct budget *budget)
{
    return atomic_load_explicit(&budget->limit, memory_order_relaxed);
}

uint64_t budget_limit(const struct config_limits *limits)
{
    uint64_t two = 2 * (limits->frame_bytes + limits->frame_bytes / 4);
    return MAX(limits->inflight_bytes, two + two / (SLAB_SMALL_SHARE - 1) + BUDGET_EXTRA);
}

/* How much slabs of this charge and use may take, together with all others. */
static uint64_t share(const struct budget *budget, size_t charge, enum slab_use use)
{
    uint64_t limit = limit_of(budget);
    bool large = charge > SLAB_LARGE + SLAB_LARGE / 4;
    if (use == SLAB_REPLY)
        return limit;
    return limit - limit / (large ? SLAB_SMALL_SHARE : SLAB_REPLY_SHARE);
}

/* --- classes --- */

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

size_t slab_charge(size_t size)
{
    return class_size(class_of(size + sizeof(struct slab)));
}

size_t slab_within(size_t charge)
{
    uint32_t above = class_of(charge + 1); /* the first class that is charged more */
    return above ? class_size(above - 1) - sizeof(struct slab) : 0;
}

/* Takes a free slab out of the class. It still counts as held, but is in nobody's use. */
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

static void release(struct slabs *slabs, struct slab *slab)
{
    size_t charge = slab->charge;
    slabs->memory.release(slabs->memory.user, slab, charge);
    account_sub(&slabs->budget->held, charge);
}

/* Lets kept slabs go, the largest first, until `held` has room for `bytes` more. */
static void evict(struct slabs *slabs, uint64_t bytes)
{
    uint64_t limit = limit_of(slabs->budget);
    for (uint32_t class = CLASSES; class -- > 0 && slabs->kept;)
        while (budget_held(slabs->budget) + bytes > limit) {
            struct slab *slab = pop(slabs, class);
            if (!slab)
                break;
            release(slabs, slab);
        }
}

/* Books `charge` bytes more of the system's memory; false: there is no room. */
static bool held_add(struct slabs *slabs, size_t charge)
{
    uint64_t limit = limit_of(slabs->budget);
    if (account_add(&slabs->budget->held, charge, limit))
        return true;
    evict(slabs, charge);
    return account_add(&slabs->budget->held, charge, limit);
}

/* The same of what `used` counts already; asks others to give back what they keep. */
static bool used_held_add(struct slabs *slabs, size_t charge)
{
    struct budget *budget = slabs->budget;
    if (held_add(slabs, charge))
        return true;
    if (budget_held(budget) + charge > budget_used(budget))
        atomic_fetch_add_explicit(&budget->pressure, 1, memory_order_relaxed);
    return false;
}

/* Takes a new slab from the system. NULL: no room, or no memory. */
static struct slab *fresh(struct slabs *slabs, size_t charge)
{
    struct budget *budget = slabs->budget;
    if (!used_held_add(slabs, charge))
        return NULL;
    struct slab *slab = slabs->memory.alloc(slabs->memory.user, charge);
    if (!slab)
        account_sub(&budget->held, charge);
    return slab;
}

/* --- the interface --- */

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

static void drop_all(struct slabs *slabs)
{
    for (uint32_t class = 0; class < CLASSES && slabs->kept; class ++)
        for (struct slab *slab; (slab = pop(slabs, class));)
            release(slabs, slab);
}

void slabs_free(struct slabs *slabs)
{
    if (!slabs)
        return;
    drop_all(slabs);
    free(slabs);
}

static void size_set(struct slab *slab, uint32_t class, size_t lead)
{
    slab->class = class;
    slab->charge = class_size(class);
    slab->data = slab->room + lead;
    slab->size = slab->charge - sizeof(struct slab) - lead;
}

struct slab *slabs_take(struct slabs *slabs, size_t size, enum slab_use use)
{
    if (size > ((size_t)1 << MAX_SHIFT) - sizeof(struct slab))
        return NULL;
    uint32_t class = class_of(size + sizeof(struct slab));
    size_t charge = class_size(class);
    struct budget *budget = slabs->budget;
    if (!account_add(&budget->used, charge, share(budget, charge, use)))
        return NULL;
    struct slab *slab = pop(slabs, class);
    if (!slab && !(slab = fresh(slabs, charge))) {
        account_sub(&budget->used, charge);
        return NULL;
    }
    slab->next = NULL;
    slab->large = 0;
    slab->slow = false;
    size_set(slab, class, 0);
    return slab;
}

struct slab *slabs_grow(struct slabs *slabs, struct slab *slab, size_t size, enum slab_use use)
{
    size_t lead = slab_lead(slab), before = slab->charge;
    if (!slabs->memory.grow || before < SLAB_GROWN ||
        size > ((size_t)1 << MAX_SHIFT) - sizeof(struct slab) - lead)
        return NULL;
    uint32_t class = class_of(size + lead + sizeof(struct slab));
    size_t charge = class_size(class), more = charge - MIN(before, charge);
    struct budget *budget = slabs->budget;
    if (!more)
        return NULL;
    if (!account_add(&budget->used, more, share(budget, charge, use)))
        return NULL;
    struct slab *grown = NULL;
    if (held_add(slabs, more) &&
        !(grown = slabs->memory.grow(slabs->memory.user, slab, before, charge)))
        account_sub(&budget->held, more);
    if (grown)
        size_set(grown, class, lead);
    else
        account_sub(&budget->used, more);
    return grown;
}

void slab_large(struct budget *budget, struct slab *slab, size_t bytes)
{
    account_force(&budget->large, bytes);
    slab->large = bytes;
}

void slab_large_drop(struct budget *budget, struct slab *slab)
{
    account_sub(&budget->large, slab->large);
    slab->slow = slab->large;
    slab->large = 0;
}

void slab_copy(struct slab *slab, struct slab *from, size_t have)
{
    slab->large = from->large;
    slab->slow = from->slow;
    from->large = 0;
    size_set(slab, slab->class, slab_lead(from));
    memcpy(slab->data, from->data, have);
}

void slab_shift(struct slab *slab, size_t have, size_t at)
{
    size_t lead = (SLAB_ALIGN - at % SLAB_ALIGN) % SLAB_ALIGN;
    const uint8_t *from = slab->data;
    size_set(slab, slab->class, lead);
    memmove(slab->data, from, have);
}

bool slabs_room(const struct slabs *slabs, size_t size)
{
    size_t charge = slab_charge(size);
    uint64_t most = share(slabs->budget, charge, SLAB_REQUEST), used = budget_used(slabs->budget);
    return used <= most && charge <= most - used;
}

bool slabs_book(struct slabs *slabs, size_t bytes)
{
    struct budget *budget = slabs->budget;
    if (!account_add(&budget->calls, bytes, limit_of(budget) / SLAB_CALLS_SHARE))
        return false;
    bool used = account_add(&budget->used, bytes, share(budget, bytes, SLAB_REQUEST));
    if (used && used_held_add(slabs, bytes))
        return true;
    if (used)
        account_sub(&budget->used, bytes);
    account_sub(&budget->calls, bytes);
    return false;
}

void slabs_unbook(struct slabs *slabs, size_t bytes)
{
    account_sub(&slabs->budget->held, bytes);
    account_sub(&slabs->budget->used, bytes);
    account_sub(&slabs->budget->calls, bytes);
}

void slabs_set_aside(struct slabs *slabs, const struct slab *slab)
{
    account_sub(&slabs->budget->used, slab->charge);
}

void slabs_claim(struct slabs *slabs, const struct slab *slab)
{
    account_force(&slabs->budget->used, slab->charge);
}

void slabs_give(struct slabs *slabs, struct slab *slab)
{
    if (!slab)
        return;
    account_sub(&slabs->budget->used, slab->charge);
    if (slab->large) {
        account_sub(&slabs->budget->large, slab->large);
        atomic_fetch_add_explicit(&slabs->budget->large_gone, 1, memory_order_relaxed);
    }
    /* Other loops cannot use what is kept here, so it leaves them half of the budget. */
    bool much = budget_held(slabs->budget) > limit_of(slabs->budget) / SLAB_KEPT_SHARE;
    bool grows = slabs->memory.grow && slab->charge >= SLAB_GROWN;
    if (much || grows || slab->charge > slabs->keep - slabs->kept) {
        release(slabs, slab);
        return;
    }
    slab->next = slabs->class[slab->class].free;
    slabs->class[slab->class].free = slab;
    slabs->class[slab->class].n++;
    slabs->kept += slab->charge;
}

size_t slabs_kept(const struct slabs *slabs)
{
    return slabs->kept;
}

void slabs_trim(struct slabs *slabs)
{
    for (uint32_t class = 0; class < CLASSES; class ++) {
        for (uint32_t n = slabs->class[class].low; n > 0; n--)
            release(slabs, pop(slabs, class));
        slabs->class[class].low = slabs->class[class].n;
    }
}

bool slabs_heed(struct slabs *slabs)
{
    uint32_t pressure = atomic_load_explicit(&slabs->budget->pressure, memory_order_relaxed);
    bool asked = pressure != slabs->heeded;
    slabs->heeded = pressure;
    if (asked)
        drop_all(slabs);
    else if (budget_held(slabs->budget) > limit_of(slabs->budget))
        evict(slabs, 0);
    return asked;
}
