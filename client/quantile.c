/* SPDX-License-Identifier: Apache-2.0 */
/* Quantiles of a server's histograms: of all requests, or of those between two looks at them. */
#include "base/compiler.h"
#include "client/client.h"

/* How many requests of a bucket are new. `*k` walks over the buckets of `before`. */
static uint64_t fresh(const struct inferd_bucket *bucket, const struct inferd_histogram *before,
                      uint32_t *k)
{
    uint32_t n = before ? before->n_buckets : 0;
    while (*k < n && before->buckets[*k].low_ns < bucket->low_ns)
        ++*k;
    bool both = *k < n && before->buckets[*k].low_ns == bucket->low_ns;
    return bucket->count - MIN(bucket->count, both ? before->buckets[*k].count : 0);
}

uint64_t inferd_histogram_quantile(const struct inferd_histogram *now,
                                   const struct inferd_histogram *before, double q)
{
    uint64_t all = 0, seen = 0;
    for (uint32_t i = 0, k = 0; i < now->n_buckets; i++)
        all += fresh(&now->buckets[i], before, &k);
    /* The rank, from 1; the small step down keeps 0.99 of 100 at 99 and not 100. */
    double rank = (q > 0 ? MIN(q, 1.0) : 0) * (double)all * (1 - 1e-12);
    for (uint32_t i = 0, k = 0; i < now->n_buckets; i++) {
        const struct inferd_bucket *b = &now->buckets[i];
        uint64_t n = fresh(b, before, &k);
        /* Requests are taken to be spread evenly over their bucket. */
        if (n && (double)(seen + n) >= rank) {
            uint64_t place = rank > (double)seen ? (uint64_t)(rank - (double)seen) : 0;
            double share = ((double)MIN(place, n - 1) + 0.5) / (double)n;
            return b->low_ns + (uint64_t)(share * (double)(b->high_ns - b->low_ns));
        }
        seen += n;
    }
    return 0;
}
