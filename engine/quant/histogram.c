/* SPDX-License-Identifier: Apache-2.0 */
/* Counts values; see histogram.h. search.c reads the counts. */
#include "engine/quant/histogram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

enum {
    EXPONENT_MIN = -126, /* 2^-EXPONENT is a float, and so is every product with it */
    PIECE = 1 << 14,     /* values that stay in the cache between the two looks at them */
    FEW = 1 << 12,       /* values that are counted without lanes */
};

bool quant_histograms_init(struct quant_histograms *set, uint32_t n)
{
    *set = (struct quant_histograms){.n = n};
    set->list = calloc((size_t)n + 1, sizeof(*set->list));
    set->lanes = calloc((size_t)QUANT_LANES * QUANT_BINS, sizeof(*set->lanes));
    bool ok = set->list && set->lanes;
    for (uint32_t i = 0; ok && i < n; i++) {
        set->list[i] = (struct quant_histogram){.exponent = EXPONENT_MIN};
        ok = (set->list[i].bins = calloc(QUANT_BINS, sizeof(uint64_t)));
    }
    return ok;
}

void quant_histograms_deinit(struct quant_histograms *set)
{
    for (uint32_t i = 0; set->list && i < set->n; i++)
        free(set->list[i].bins);
    free(set->list);
    free(set->lanes);
    *set = (struct quant_histograms){0};
}

/* What one look at some values finds. */
struct look {
    uint32_t most_bits; /* of a magnitude: these order as the floats do */
    float least, most;
    uint64_t zeros;
};

static uint32_t magnitude_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits & 0x7fffffff;
}

static struct look look_at(const float *values, size_t n)
{
    struct look l = {.least = INFINITY, .most = -INFINITY};
    uint32_t zeros = 0;
    for (size_t i = 0; i < n; i++) {
        l.most_bits = MAX(l.most_bits, magnitude_bits(values[i]));
        l.least = values[i] < l.least ? values[i] : l.least;
        l.most = values[i] > l.most ? values[i] : l.most;
        zeros += values[i] == 0;
    }
    l.zeros = zeros;
    return l;
}

/* The exponent of bins that just hold this magnitude. */
static int exponent_for(float magnitude)
{
    return magnitude > 0 ? MAX(ilogb((double)magnitude) + 1 - QUANT_BITS, EXPONENT_MIN)
                         : EXPONENT_MIN;
}

static void widen(struct quant_histogram *h, int exponent)
{
    int by = MIN(exponent - h->exponent, QUANT_BITS);
    h->exponent = exponent;
    for (uint32_t i = 0; i < QUANT_BINS; i++) {
        uint64_t count = h->bins[i];
        h->bins[i] = 0;
        h->bins[i >> by] += count;
    }
}

static void count_few(struct quant_histogram *h, const float *values, size_t n, float per_bin)
{
    for (size_t i = 0; i < n; i++)
        h->bins[(uint32_t)(fabsf(values[i]) * per_bin)]++;
}

/* Several counters a bin, because a counter that was just written is slow to read. */
static void count_many(uint32_t *lanes, const float *values, size_t n, float per_bin)
{
    size_t i = 0;
    for (; i + QUANT_LANES <= n; i += QUANT_LANES) {
        uint32_t at[QUANT_LANES];
        for (int k = 0; k < QUANT_LANES; k++)
            at[k] = (uint32_t)(int32_t)(fabsf(values[i + (size_t)k]) * per_bin);
        for (uint32_t k = 0; k < QUANT_LANES; k++)
            lanes[k * QUANT_BINS + at[k]]++;
    }
    for (; i < n; i++)
        lanes[(uint32_t)(int32_t)(fabsf(values[i]) * per_bin)]++;
}

static void collect_lanes(struct quant_histogram *h, uint32_t *lanes)
{
    for (uint32_t i = 0; i < QUANT_BINS; i++)
        for (uint32_t k = 0; k < QUANT_LANES; k++) {
            h->bins[i] += lanes[k * QUANT_BINS + i];
            lanes[k * QUANT_BINS + i] = 0;
        }
}

/* Counts finite values. If the bins must widen, what the lanes hold is collected before. */
static void add_finite(struct quant_histogram *h, uint32_t *lanes, bool few, const float *values,
                       size_t n, const struct look *l)
{
    int exponent = exponent_for(fmaxf(-l->least, l->most));
    if (exponent > h->exponent) {
        if (!few)
            collect_lanes(h, lanes);
        widen(h, exponent);
    }
    float per_bin = ldexpf(1, -h->exponent);
    if (few)
        count_few(h, values, n, per_bin);
    else
        count_many(lanes, values, n, per_bin);
    h->least = h->count ? fminf(h->least, l->least) : l->least;
    h->most = h->count ? fmaxf(h->most, l->most) : l->most;
    h->count += n;
    h->zeros += l->zeros;
}

/* Counts a piece value by value: some of them are not finite. */
static void add_mixed(struct quant_histogram *h, uint32_t *lanes, bool few, const float *values,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct look one = look_at(&values[i], 1);
        if (isfinite(values[i]))
            add_finite(h, lanes, few, &values[i], 1, &one);
        else
            h->bad++;
    }
}

void quant_histogram_add(struct quant_histograms *set, uint32_t index, const float *values,
                         size_t n)
{
    struct quant_histogram *h = &set->list[index];
    bool few = n <= FEW;
    uint64_t zeros = h->zeros;
    size_t since = 0; /* values in the lanes: fewer than a counter can hold */
    for (size_t at = 0; at < n; at += PIECE) {
        size_t m = MIN(n - at, (size_t)PIECE);
        struct look l = look_at(values + at, m);
        if (magnitude_bits(INFINITY) > l.most_bits)
            add_finite(h, set->lanes, few, values + at, m, &l);
        else
            add_mixed(h, set->lanes, few, values + at, m);
        since += m;
        if (!few && since > UINT32_MAX - PIECE) {
            collect_lanes(h, set->lanes);
            since = 0;
        }
    }
    if (!few)
        collect_lanes(h, set->lanes);
    h->bins[0] -= h->zeros - zeros;
}
