/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log-linear histogram of whole numbers (latencies in ns, sizes): each power of two is divided
 * into 64 buckets of equal width, so a quantile is within 0.8% of a true one over the whole range
 * of 64 bits. Recording is a few instructions; histograms of several threads or windows are merged
 * by addition. Least, greatest, sum and count are exact. Not thread-safe; 30 KB, so not for the
 * stack of a deep call.
 */
#ifndef INFERD_BASE_HISTOGRAM_H
#define INFERD_BASE_HISTOGRAM_H

#include <stdint.h>

enum {
    HISTOGRAM_SUB = 64,                               /* buckets to a power of two */
    HISTOGRAM_BUCKETS = HISTOGRAM_SUB * (64 - 6 + 1), /* those below 128 are exact */
};

struct histogram {
    uint64_t count, min, max; /* min is UINT64_MAX while it is empty */
    double sum;
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

/* Empties it. */
void histogram_init(struct histogram *h);

void histogram_record(struct histogram *h, uint64_t value);

/* Adds all of `from` to `into`. */
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that a share `q` (0 to 1) of the records does not exceed: q 0 gives min, 1 gives max.
 * 0 if it is empty. */
uint64_t histogram_quantile(const struct histogram *h, double q);

/* 0 if it is empty. */
double histogram_mean(const struct histogram *h);

#endif
