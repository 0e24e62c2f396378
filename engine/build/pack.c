/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks are placed largest first, each into the tightest gap between the blocks that are already
 * placed and whose lifetimes meet its own ("greedy by size" in Pisarchyk and Lee, "Efficient Memory
 * Management for Deep Neural Net Inference", 2020). Ties go by index, so the result is always the
 * same.
 *
 * This looks at every pair of blocks that are alive together. A hostile file may have too many such
 * pairs: then blocks are placed in the order in which their lives begin, each into the tightest gap
 * at that moment, which only looks at the blocks that are alive then.
 */
#include "engine/build/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define PAIRS_MAX (UINT64_C(1) << 24)

bool pack_measure(const struct pack_block *blocks, uint32_t n, uint32_t n_steps,
                  struct pack_load *out)
{
    struct pack_load load = {0};
    uint32_t *begin = calloc((size_t)n_steps + 2, sizeof(*begin));
    uint32_t *end = calloc((size_t)n_steps + 2, sizeof(*end));
    bool ok = begin && end;
    for (uint32_t i = 0; ok && i < n; i++) {
        begin[blocks[i].first]++;
        end[blocks[i].last + 1]++;
    }
    uint32_t alive = 0;
    for (uint32_t t = 0; ok && t < n_steps; t++) {
        alive += begin[t] - end[t];
        load.alive = MAX(load.alive, alive);
        load.pairs += (uint64_t)begin[t] * alive;
    }
    free(begin);
    free(end);
    if (ok)
        *out = load;
    return ok;
}

static int by_size(const void *a, const void *b)
{
    const struct pack_block *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Of blocks whose lives begin together, the largest is first. */
static int by_first(const void *a, const void *b)
{
    const struct pack_block *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : by_size(a, b);
}

static int by_offset(const void *a, const void *b)
{
    const struct pack_block *const *x = a, *const *y = b;
    if (*(*x)->offset != *(*y)->offset)
        return *(*x)->offset < *(*y)->offset ? -1 : 1;
    return 0;
}

/* The tightest gap between blocks sorted by offset. */
static uint64_t find_gap(const struct pack_block *const *alive, uint32_t n, uint64_t size)
{
    uint64_t end = 0, best = UINT64_MAX, best_size = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t begin = *alive[i]->offset;
        if (begin > end && begin - end >= size && begin - end < best_size) {
            best = end;
            best_size = begin - end;
        }
        end = MAX(end, begin + alive[i]->size);
    }
    return best != UINT64_MAX ? best : end;
}

/* --- by size --- */

/* The blocks in the order of their `first`, as the leaves of a tree. Each inner node knows the
 * latest end of the placed blocks below it, so the blocks that meet a lifetime are found without a
 * look at the others. */
struct lives {
    const struct pack_block **order;
    uint32_t *place; /* by block: its index in `order` */
    uint32_t *ends;  /* by node (node i has children 2i and 2i + 1): last + 1; 0: none is placed */
    uint32_t n, leaves;
};

static int by_first_of(const void *a, const void *b)
{
    const struct pack_block *const *x = a, *const *y = b;
    return (*x)->first != (*y)->first ? ((*x)->first < (*y)->first ? -1 : 1) : by_size(*x, *y);
}

static void lives_deinit(struct lives *l)
{
    free(l->order);
    free(l->place);
    free(l->ends);
}

static bool lives_init(struct lives *l, const struct pack_block *blocks, uint32_t n)
{
    l->n = n;
    l->leaves = 1;
    while (l->leaves < n)
        l->leaves *= 2;
    l->order = calloc((size_t)n + 1, sizeof(const struct pack_block *));
    l->place = calloc((size_t)n + 1, sizeof(*l->place));
    l->ends = calloc((size_t)l->leaves * 2, sizeof(*l->ends));
    if (!l->order || !l->place || !l->ends)
        return false;
    for (uint32_t i = 0; i < n; i++)
        l->order[i] = &blocks[i];
    qsort(l->order, n, sizeof(const struct pack_block *), by_first_of);
    for (uint32_t i = 0; i < n; i++)
        l->place[l->order[i] - blocks] = i;
    return true;
}

static void lives_add(struct lives *l, uint32_t block, uint32_t last)
{
    for (uint32_t at = l->leaves + l->place[block]; at; at /= 2)
        l->ends[at] = MAX(l->ends[at], last + 1);
}

/* Lists the placed blocks that meet b's lifetime. */
static uint32_t lives_meet(const struct lives *l, const struct pack_block *b,
                           const struct pack_block **out)
{
    uint32_t stack[64], depth = 0, n = 0;
    stack[depth++] = 1;
    while (depth) {
        uint32_t at = stack[--depth], low = at;
        if (l->ends[at] <= b->first)
            continue;
        while (low < l->leaves)
            low *= 2; /* the first leaf below it */
        low -= l->leaves;
        if (low >= l->n || l->order[low]->first > b->last)
            continue;
        if (at >= l->leaves) {
            out[n++] = l->order[low];
        } else {
            stack[depth++] = 2 * at;
            stack[depth++] = 2 * at + 1;
        }
    }
    return n;
}

static bool place_by_size(struct pack_block *blocks, uint32_t n, const struct pack_block **alive,
                          uint64_t *arena)
{
    struct lives lives = {0};
    qsort(blocks, n, sizeof(*blocks), by_size);
    bool ok = lives_init(&lives, blocks, n);
    for (uint32_t i = 0; ok && i < n; i++) {
        uint32_t n_alive = lives_meet(&lives, &blocks[i], alive);
        qsort(alive, n_alive, sizeof(const struct pack_block *), by_offset);
        uint64_t offset = find_gap(alive, n_alive, blocks[i].size);
        *blocks[i].offset = offset;
        *arena = MAX(*arena, offset + blocks[i].size);
        lives_add(&lives, i, blocks[i].last);
    }
    lives_deinit(&lives);
    return ok;
}

/* --- by time --- */

static void place_by_time(struct pack_block *blocks, uint32_t n, const struct pack_block **alive,
                          uint64_t *arena)
{
    uint32_t n_alive = 0;
    qsort(blocks, n, sizeof(*blocks), by_first);
    for (uint32_t i = 0; i < n; i++) {
        const struct pack_block *b = &blocks[i];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < n_alive; k++)
            if (alive[k]->last >= b->first)
                alive[kept++] = alive[k];
        n_alive = kept;
        uint64_t offset = find_gap(alive, n_alive, b->size);
        *b->offset = offset;
        *arena = MAX(*arena, offset + b->size);
        uint32_t at = n_alive++;
        for (; at && *alive[at - 1]->offset > offset; at--)
            alive[at] = alive[at - 1];
        alive[at] = b;
    }
}

bool pack_blocks(struct pack_block *blocks, uint32_t n, const struct pack_load *load,
                 uint64_t *arena)
{
    const struct pack_block **alive = calloc((size_t)n + 1, sizeof(const struct pack_block *));
    bool ok = alive;
    *arena = 0;
    if (ok && load->pairs <= PAIRS_MAX)
        ok = place_by_size(blocks, n, alive, arena);
    else if (ok)
        place_by_time(blocks, n, alive, arena);
    free(alive);
    return ok;
}
