/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log-linear histogram of whole numbers (latencies in ns, sizes): each power of two is divided
 * into 64 buckets of equal width, so a quantile is within 0.8% of a true one over the whole range
 * of 64 bits. Recording is a few instructions; histograms of several threads or windows are merged
 * by addition. Least, greatest, sum and count are exact. Not thread-safe; 30 KB, so not for the
 * stack of a deep call.
 *
 * A `struct histogram_shared` is a histogram that several threads record to, and that is sent to
 * others. Each of its buckets covers two of a struct histogram's, so a quantile is within 1.6%. Its
 * 8 KB reach to 2^37, which is 137 s in ns; the last bucket takes what is beyond. Its counts only
 * grow, so the difference of two readings is what came between them.
 */
#ifndef INFERD_BASE_HISTOGRAM_H
#define INFERD_BASE_HISTOGRAM_H

#include <stdatomic.h>
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

enum {
    HISTOGRAM_SHARED_SUB = HISTOGRAM_SUB / 2,
    HISTOGRAM_SHARED_BUCKETS = HISTOGRAM_SHARED_SUB * (37 - 5),
};

/* Relaxed: the buckets are numbers for people, and independent of each other. All zero is empty. */
struct histogram_shared {
    _Atomic uint64_t bucket[HISTOGRAM_SHARED_BUCKETS];
};

/* The bucket of a value in a struct histogram. A value below 128 is its own bucket. A value whose
 * highest bit is b >= 7 keeps its 7 highest bits, value >> (b - 6), which lie in 64..127; the
 * buckets of b follow the buckets of b - 1. */
static inline uint32_t histogram_bucket(uint64_t value)
{
    if (value < 2 * HISTOGRAM_SUB)
        return (uint32_t)value;
    uint32_t shift = 63 - 6 - (uint32_t)__builtin_clzll(value);
    return shift * HISTOGRAM_SUB + (uint32_t)(value >> shift);
}

static inline uint32_t histogram_shared_bucket(uint64_t value)
{
    uint32_t bucket = histogram_bucket(value) / 2;
    return bucket < HISTOGRAM_SHARED_BUCKETS ? bucket : HISTOGRAM_SHARED_BUCKETS - 1;
}

/* The least value of a bucket; the bucket before it ends just below. */
static inline uint64_t histogram_shared_low(uint32_t bucket)
{
    uint32_t octave = bucket / HISTOGRAM_SHARED_SUB, within = bucket % HISTOGRAM_SHARED_SUB;
    return octave ? (uint64_t)(HISTOGRAM_SHARED_SUB + within) << octave : 2 * within;
}

/* Adds `n` values to a bucket. Any thread. */
static inline void histogram_shared_add(struct histogram_shared *h, uint32_t bucket, uint64_t n)
{
    atomic_fetch_add_explicit(&h->bucket[bucket], n, memory_order_relaxed);
}

/* Makes `h` empty. */
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
