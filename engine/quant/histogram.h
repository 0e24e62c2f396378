/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histograms of magnitudes, which widen as they meet larger values, and the largest magnitude that
 * 8 bits should stand for, found from such a histogram.
 *
 * A bin's width is a power of two, so that a histogram depends on its values alone and not on the
 * order in which they came, or in how many parts. At least half of the bins are used. Zeros are
 * counted apart: any scale holds them exactly.
 */
#ifndef INFERD_ENGINE_QUANT_HISTOGRAM_H
#define INFERD_ENGINE_QUANT_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum {
    QUANT_BITS = 12,
    QUANT_BINS = 1 << QUANT_BITS,
    QUANT_LANES = 4, /* of counters, so that equal neighbours do not wait for one another */
};

struct quant_histogram {
    uint64_t *bins; /* bin i counts i w <= |value| < (i + 1) w, w = 2^exponent */
    int exponent;
    uint64_t count; /* of finite values */
    uint64_t zeros;
    uint64_t bad; /* values that are infinite or NaN: they count nowhere else */
    float least, most;
};

/* Histograms of several tensors, and what is needed while values are counted. */
struct quant_histograms {
    struct quant_histogram *list;
    uint32_t n;
    uint32_t *lanes; /* QUANT_LANES * QUANT_BINS counters, 0 between calls */
};

/* False: no memory. quant_histograms_deinit frees what there is, also then. */
bool quant_histograms_init(struct quant_histograms *set, uint32_t n);
void quant_histograms_deinit(struct quant_histograms *set); /* {0} is fine */

void quant_histogram_add(struct quant_histograms *set, uint32_t index, const float *values,
                         size_t n);

/* How the largest magnitude is chosen. */
enum quant_method {
    QUANT_MINMAX = 0,     /* the largest that was seen */
    QUANT_PERCENTILE = 1, /* the least that `percentile` per cent of all values do not exceed */
    QUANT_ENTROPY = 2,    /* where 8 bits lose the least information about the values' distribution:
                             "8-bit Inference with TensorRT" (Migacz, 2017) has the search */
};

/* *limit: the largest magnitude, which is at most the largest that was seen, and 0 if all values
 * were 0. `levels`: the steps from 0 to it, 128 if values have signs, 256 if not. False: no
 * memory. */
bool quant_limit(const struct quant_histogram *histogram, enum quant_method method,
                 double percentile, uint32_t levels, float *limit) MUST_USE;

#endif
