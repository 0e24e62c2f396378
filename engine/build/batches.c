/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/batches.h"

#include <stdlib.h>

static const uint32_t default_batches[] = {1, 2, 4, 8, 16, 32};
static const uint32_t default_tokens[] = {128, 512, 2048}; /* of ragged batches */

static int by_value(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The sizes that --batch or --shape ask for: powers of two up to the most instances, if that
 * is what is said. */
static enum status wanted_batches(const struct build_batching *b, uint32_t list[PLAN_MAX_PROFILES],
                                  uint32_t *n, struct error *err)
{
    const struct build_options *o = b->options;
    const uint32_t *from = o->batches ? o->batches : o->ragged ? default_tokens : default_batches;
    uint32_t n_from = o->batches  ? o->n_batches
                      : o->ragged ? (uint32_t)ARRAY_LEN(default_tokens)
                                  : (uint32_t)ARRAY_LEN(default_batches);
    int64_t low = b->space->batch_low, high = b->space->batch_high;
    if (high > PLAN_MAX_BATCH)
        return error_set(err, STATUS_INVALID_ARGUMENT, "--shape: at most %d instances",
                         PLAN_MAX_BATCH);
    if (n_from == 0 || n_from > PLAN_MAX_PROFILES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "batch: 1 to %d sizes", PLAN_MAX_PROFILES);
    *n = 0;
    for (int64_t size = low == high ? high : 1; !o->batches && size < high; size *= 2)
        list[(*n)++] = (uint32_t)size;
    if (high && !o->batches) {
        list[(*n)++] = (uint32_t)high;
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < n_from; i++) {
        if (high && from[i] > high)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "batch %u: --shape says at most %lld instances", from[i],
                             (long long)high);
        list[(*n)++] = from[i];
    }
    return STATUS_OK;
}

enum status build_batches_choose(const struct build_batching *b, uint32_t list[PLAN_MAX_PROFILES],
                                 uint32_t *n, struct error *err)
{
    bool asked = b->options->batches || b->space->batch_high;
    uint32_t n_from = 0, kept = 1;
    TRY(wanted_batches(b, list, &n_from, err));
    for (uint32_t i = 0; i < n_from; i++) {
        if (list[i] == 0 || list[i] > PLAN_MAX_BATCH)
            return error_set(err, STATUS_INVALID_ARGUMENT, "batch: %u is not within 1..%d", list[i],
                             PLAN_MAX_BATCH);
        if (!b->batched && asked && list[i] != 1)
            return error_set(err, STATUS_INVALID_ARGUMENT, "batch %u: the model is not batched: %s",
                             list[i], b->why);
    }
    if (!b->batched) {
        *n = 1;
        list[0] = 1;
        return STATUS_OK;
    }
    qsort(list, n_from, sizeof(*list), by_value);
    for (uint32_t i = 1; i < n_from; i++)
        if (list[i] != list[kept - 1])
            list[kept++] = list[i];
    *n = kept;
    return STATUS_OK;
}
