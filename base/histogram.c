/* SPDX-License-Identifier: Apache-2.0 */
/* Log-linear buckets; see histogram.h. The idea is that of HdrHistogram (Gil Tene), with a fixed
 * precision and no range to configure. */
#include "base/histogram.h"

#include <string.h>

/* The middle of a bucket's values. */
static uint64_t value_of(uint32_t bucket)
{
    if (bucket < 2 * HISTOGRAM_SUB)
        return bucket;
    uint32_t shift = bucket / HISTOGRAM_SUB - 1;
    uint64_t low = (uint64_t)(bucket - shift * HISTOGRAM_SUB) << shift;
    return low + (UINT64_C(1) << shift) / 2;
}

void histogram_init(struct histogram *h)
{
    memset(h, 0, sizeof(*h));
    h->min = UINT64_MAX;
}

void histogram_record(struct histogram *h, uint64_t value)
{
    h->count++;
    h->sum += (double)value;
    if (value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
    h->bucket[histogram_bucket(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        into->bucket[i] += from->bucket[i];
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
    if (h->count == 0)
        return 0;
    if (!(q > 0))
        return h->min;
    /* The rank, from 1, rounded up; the small step down keeps 0.99 of 100 at 99 and not 100. */
    double exact = q * (double)h->count;
    uint64_t rank = (uint64_t)(exact - exact * 1e-12);
    if ((double)rank < exact - exact * 1e-12)
        rank++;
    if (rank >= h->count)
        return h->max;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= rank) {
            uint64_t value = value_of(i);
            return value < h->min ? h->min : value > h->max ? h->max : value;
        }
    }
    return h->max;
}

double histogram_mean(const struct histogram *h)
{
    return h->count ? h->sum / (double)h->count : 0;
}
