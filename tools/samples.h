/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured values, kept as they are, so that a median is a value that was measured. Memory is
 * bounded: when it is full, every second value is dropped, and from then on only every second value
 * (then every fourth, and so on) is kept. Count, least, greatest and mean are those of all values.
 * Not thread-safe.
 */
#ifndef INFERD_TOOLS_SAMPLES_H
#define INFERD_TOOLS_SAMPLES_H

#include <stdint.h>

#include "base/error.h"

struct samples {
    uint64_t *kept;
    uint32_t n, capacity;
    uint64_t stride; /* one of so many values is kept; a power of two */
    uint64_t count, min, max;
    double sum;
};

/* RESOURCE_EXHAUSTED: no memory. `capacity` is at least 2. */
enum status samples_init(struct samples *samples, uint32_t capacity, struct error *err);
void samples_deinit(struct samples *samples); /* also of one that is all zeros */

void samples_add(struct samples *samples, uint64_t value);

/* Adds all of `from`. Both may lose values, so that each value kept stands for equally many. */
void samples_merge(struct samples *into, struct samples *from);

/* Sorts the values. After that, samples_quantile may be called, and samples_add no more. */
void samples_sort(struct samples *samples);

/* The least kept value that a share `q` (0 to 1) of them does not exceed. 0 if there are none. */
uint64_t samples_quantile(const struct samples *samples, double q);
double samples_mean(const struct samples *samples);

#endif
