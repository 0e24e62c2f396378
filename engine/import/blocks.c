/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/blocks.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum {
    ALIGN = 64,
    ROUNDED = 1 << 12,    /* sizes are multiples of it, so that similar values share blocks */
    KEPT_BYTES = 1 << 26, /* of all that is kept from one request to the next */
    KEPT_REQUESTS = 8,    /* without use */
};

struct block {
    char *at;
    size_t size, asked;
    uint32_t names; /* that have it */
    uint32_t age;   /* of a free one: requests since it was used */
};

struct list {
    struct block *items;
    uint32_t n, cap;
};

struct blocks {
    struct list used; /* by address */
    struct list idle; /* by size */
    uint32_t unnamed; /* used ones that no name has */
};

struct blocks *blocks_new(void)
{
    return calloc(1, sizeof(struct blocks));
}

void blocks_free(struct blocks *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; i < b->used.n; i++)
        free(b->used.items[i].at);
    for (uint32_t i = 0; i < b->idle.n; i++)
        free(b->idle.items[i].at);
    free(b->used.items);
    free(b->idle.items);
    free(b);
}

/* --- lists --- */

static bool make_room(struct list *list)
{
    if (list->n < list->cap)
        return true;
    uint32_t cap = list->cap ? 2 * list->cap : 32;
    struct block *items = realloc(list->items, cap * sizeof(*items));
    if (!items)
        return false;
    list->items = items;
    list->cap = cap;
    return true;
}

static void insert(struct list *list, uint32_t at, const struct block *block)
{
    memmove(list->items + at + 1, list->items + at, (list->n++ - at) * sizeof(*block));
    list->items[at] = *block;
}

static struct block take_out(struct list *list, uint32_t at)
{
    struct block block = list->items[at];
    memmove(list->items + at, list->items + at + 1, (--list->n - at) * sizeof(block));
    return block;
}

/* The first used block behind `at`. */
static uint32_t behind(const struct list *used, const char *at)
{
    uint32_t low = 0, high = used->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)used->items[middle].at <= (uintptr_t)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first idle block of at least this size. */
static uint32_t of_size(const struct list *idle, size_t size)
{
    uint32_t low = 0, high = idle->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (idle->items[middle].size < size)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* --- blocks --- */

static bool block_new(size_t size, struct block *out)
{
    *out = (struct block){.size = size, .at = aligned_alloc(ALIGN, size)};
    return out->at;
}

void *blocks_take(struct blocks *b, size_t asked)
{
    size_t size;
    struct block block;
    if (!checked_round_up(MAX(asked, 1), ROUNDED, &size) || !make_room(&b->used))
        return NULL;
    uint32_t i = of_size(&b->idle, size);
    if (i < b->idle.n && b->idle.items[i].size / 2 <= size)
        block = take_out(&b->idle, i);
    else if (!block_new(size, &block))
        return NULL;
    block.asked = asked;
    block.names = block.age = 0;
    insert(&b->used, behind(&b->used, block.at), &block);
    b->unnamed++;
    return block.at;
}

/* The block that `data` lies in, or NULL. */
static struct block *block_of(struct blocks *b, const void *data)
{
    uint32_t i = behind(&b->used, data);
    if (!i)
        return NULL;
    struct block *block = &b->used.items[i - 1];
    return (uintptr_t)data - (uintptr_t)block->at < block->size ? block : NULL;
}

bool blocks_hold(struct blocks *b, const void *data)
{
    struct block *block = data ? block_of(b, data) : NULL;
    if (block && !block->names++)
        b->unnamed--;
    return block;
}

void blocks_drop(struct blocks *b, const void *data)
{
    struct block *block = block_of(b, data);
    if (block && !--block->names)
        b->unnamed++;
}

/* A block for which the list has no room is freed. */
static void put_aside(struct blocks *b, const struct block *block)
{
    if (make_room(&b->idle))
        insert(&b->idle, of_size(&b->idle, block->size), block);
    else
        free(block->at);
}

size_t blocks_sweep(struct blocks *b)
{
    size_t bytes = 0;
    uint32_t kept = 0, n = b->used.n;
    if (!b->unnamed)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        struct block block = b->used.items[i];
        if (block.names) {
            b->used.items[kept++] = block;
            continue;
        }
        bytes += block.asked;
        put_aside(b, &block);
    }
    b->used.n = kept;
    b->unnamed = 0;
    return bytes;
}

/* The largest go first: they cost most to keep. */
void blocks_rest(struct blocks *b)
{
    size_t bytes = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->used.n; i++)
        put_aside(b, &b->used.items[i]);
    b->used.n = b->unnamed = 0;
    for (uint32_t i = 0; i < b->idle.n; i++) {
        struct block *block = &b->idle.items[i];
        if (block->size > KEPT_BYTES - bytes || ++block->age > KEPT_REQUESTS) {
            free(block->at);
            continue;
        }
        bytes += block->size;
        b->idle.items[kept++] = *block;
    }
    b->idle.n = kept;
}
