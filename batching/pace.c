/* SPDX-License-Identifier: Apache-2.0 */
/* Running means as in RFC 6298, which estimates round trips in the same way; see pace.h. */
#include "batching/pace.h"

#include <assert.h>
#include <stddef.h>

#include "base/compiler.h"

enum { FILL_ONE = 256, FILL_WEIGHT = 8, MEAN_WEIGHT = 8, DEVIATION_WEIGHT = 4 };

static uint32_t class_of(uint32_t instances)
{
    return instances <= 1 ? 0 : 32 - (uint32_t)__builtin_clz(instances - 1);
}

/* Rounds away from `mean`, so that the mean reaches a constant. */
static uint64_t moved(uint64_t mean, uint64_t seen, uint64_t weight)
{
    return seen >= mean ? mean + (seen - mean + weight - 1) / weight
                        : mean - (mean - seen + weight - 1) / weight;
}

void pace_limit(struct pace *pace, uint32_t max_batch)
{
    pace->fill_256 = (uint32_t)MIN((uint64_t)max_batch * FILL_ONE, (uint64_t)UINT32_MAX);
}

void pace_formed(struct pace *pace, uint32_t instances)
{
    uint64_t seen = (uint64_t)instances * FILL_ONE;
    pace->fill_256 = (uint32_t)MAX(moved(pace->fill_256, seen, FILL_WEIGHT), (uint64_t)FILL_ONE);
}

void pace_ran(struct pace *pace, uint32_t instances, uint64_t ran_ns)
{
    assert(instances > 0);
    uint32_t class = class_of(instances);
    struct pace_time *time = &pace->class[class];
    ran_ns = MIN(MAX(ran_ns, UINT64_C(1)), UINT64_MAX / 4);
    if (!(pace->seen >> class & 1)) {
        pace->seen |= UINT64_C(1) << class;
        *time = (struct pace_time){ran_ns, ran_ns / 4};
        return;
    }
    uint64_t off = ran_ns > time->mean_ns ? ran_ns - time->mean_ns : time->mean_ns - ran_ns;
    time->deviation_ns = moved(time->deviation_ns, off, DEVIATION_WEIGHT);
    time->mean_ns = MAX(moved(time->mean_ns, ran_ns, MEAN_WEIGHT), UINT64_C(1));
}

struct pace_time pace_batch(const struct pace *pace, uint32_t instances)
{
    uint64_t smaller = pace->seen & ((UINT64_C(2) << class_of(instances)) - 1);
    if (!pace->seen)
        return (struct pace_time){0, 0};
    return pace->class[smaller ? 63 - __builtin_clzll(smaller) : __builtin_ctzll(pace->seen)];
}

uint64_t pace_queue_ns(const struct pace *pace, uint64_t instances, uint32_t *rest)
{
    uint64_t waiting = instances * FILL_ONE;
    uint64_t full = waiting < pace->fill_256 ? 0 : waiting / pace->fill_256;
    uint32_t left = (uint32_t)((waiting - full * pace->fill_256) / FILL_ONE);
    uint64_t ns = 0, sum;
    if (full) {
        uint64_t each = pace_batch(pace, (pace->fill_256 + FILL_ONE - 1) / FILL_ONE).mean_ns;
        if (__builtin_mul_overflow(full, each, &ns))
            return UINT64_MAX;
    }
    if (rest) {
        *rest = left;
        return ns;
    }
    uint64_t last = left ? pace_batch(pace, left).mean_ns : 0;
    return __builtin_add_overflow(ns, last, &sum) ? UINT64_MAX : sum;
}
