/* SPDX-License-Identifier: Apache-2.0 */
/* See pipeline_sizes.h: a forest, in which each free size points at the one that it became. */
#include "daemon/pipeline_sizes.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/compiler.h"

static uint32_t root(const struct sizes *sizes, int64_t free)
{
    uint32_t at = (uint32_t)free;
    while (sizes->free[at].up != at)
        at = sizes->free[at].up;
    return at;
}

struct size sizes_now(const struct sizes *sizes, struct size size)
{
    if (size.kind != SIZE_FREE)
        return size;
    uint32_t at = root(sizes, size.n);
    const struct size_range *range = &sizes->free[at].range;
    if (range->low == range->high)
        return (struct size){SIZE_NUMBER, range->low};
    return (struct size){SIZE_FREE, at};
}

const struct size_free *sizes_free(const struct sizes *sizes, struct size size)
{
    return &sizes->free[root(sizes, size.n)];
}

static bool narrow(struct sizes *sizes, int64_t free, const struct size_range *range)
{
    struct size_range *own = &sizes->free[root(sizes, free)].range;
    int64_t low = MAX(own->low, range->low), high = MIN(own->high, range->high);
    if (low > high)
        return false;
    own->low = low;
    own->high = high;
    own->instances = own->instances && range->instances;
    return true;
}

static bool free_make(struct sizes *sizes, const struct size_range *range, struct size *out)
{
    if (sizes->n == SIZES_MOST || range->low > range->high)
        return false;
    *out = (struct size){SIZE_FREE, sizes->n};
    sizes->free[sizes->n] = (struct size_free){*range, sizes->n, 0};
    sizes->n++;
    return true;
}

static bool frees_join(struct sizes *sizes, int64_t a, int64_t b)
{
    uint32_t first = root(sizes, a), second = root(sizes, b);
    if (first == second)
        return true;
    if (!narrow(sizes, first, &sizes->free[second].range))
        return false;
    sizes->free[second].up = first;
    return true;
}

bool sizes_be(struct sizes *sizes, struct size *tensor, struct size said)
{
    if (said.kind == SIZE_OPEN || tensor->kind == SIZE_OPEN)
        return true; /* the run tells whether it is so */
    if (tensor->kind == SIZE_UNSAID) {
        *tensor = said;
        return true;
    }
    if (tensor->kind == SIZE_FREE && said.kind == SIZE_FREE)
        return frees_join(sizes, tensor->n, said.n);
    if (tensor->kind == SIZE_FREE || said.kind == SIZE_FREE) {
        bool given = tensor->kind == SIZE_FREE;
        const struct size *number = given ? &said : tensor;
        const struct size_range range = {NULL, number->n, number->n, true};
        return number->kind == SIZE_NUMBER && narrow(sizes, given ? tensor->n : said.n, &range);
    }
    return tensor->kind == said.kind && tensor->n == said.n;
}

bool sizes_meet(struct sizes *sizes, struct size *tensor, struct size *own,
                const struct size_range *range)
{
    if (own->kind != SIZE_UNSAID && own->kind != SIZE_OPEN)
        return sizes_be(sizes, tensor, *own);
    if (tensor->kind == SIZE_UNSAID && !free_make(sizes, range, tensor))
        return false;
    if (tensor->kind == SIZE_COUNT ||
        (tensor->kind == SIZE_FREE && !narrow(sizes, tensor->n, range)) ||
        (tensor->kind == SIZE_NUMBER && (tensor->n < range->low || tensor->n > range->high)))
        return false;
    *own = *tensor;
    return true;
}

uint32_t sizes_number(struct sizes *sizes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizes->n; i++) {
        struct size_free *free = &sizes->free[i];
        free->number = free->up == i && free->range.low < free->range.high ? ++n : 0;
    }
    return n;
}

const char *sizes_text(const struct sizes *sizes, struct size size, char out[SIZE_TEXT_MAX])
{
    size = sizes_now(sizes, size);
    if (size.kind == SIZE_NUMBER)
        snprintf(out, SIZE_TEXT_MAX, "%" PRId64, size.n);
    else if (size.kind == SIZE_FREE)
        snprintf(out, SIZE_TEXT_MAX, "%" PRId64 " to %" PRId64, sizes->free[size.n].range.low,
                 sizes->free[size.n].range.high);
    else
        snprintf(out, SIZE_TEXT_MAX, "%s",
                 size.kind == SIZE_COUNT ? "the request's instances" : "what a run makes");
    return out;
}
