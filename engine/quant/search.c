/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest magnitude that 8 bits should stand for; see histogram.h.
 *
 * The search by entropy compares two distributions for each number i of bins that are kept. P has
 * the counts of these bins, and all that lies beyond them in the last one, where clipping puts it.
 * Q has the kept counts alone, merged into `levels` and spread again evenly over those bins of each
 * level that are not empty. The i whose Q is nearest to P, by the divergence of Kullback and
 * Leibler, wins. Within a level Q is constant, so sums over its bins come from running sums, and an
 * i costs one logarithm a level.
 *
 * A distribution that was seen through a few values looks like noise, and noise seems to lose
 * nothing when it is cut. So bins are merged until they hold enough values each, and the largest
 * magnitude stands if fewer of them are left than there are levels.
 */
#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "engine/quant/histogram.h"

enum { ENOUGH = 64 }; /* values a bin, zeros among them */
#define LITTLE 1e-4   /* share of an empty bin */

/* The counts of `used` bins, and running sums over the bins before bin i. */
struct sums {
    uint32_t used;
    uint64_t bins[QUANT_BINS];
    double count[QUANT_BINS + 1];
    double entropy[QUANT_BINS + 1]; /* of c log c */
    uint32_t filled[QUANT_BINS + 1];
};

static double log_weighted(double x)
{
    return x > 0 ? x * log(x) : 0;
}

static uint32_t used_bins(const struct quant_histogram *h)
{
    uint32_t used = QUANT_BINS;
    while (used && !h->bins[used - 1])
        used--;
    return used;
}

/* Fills the bins with those of the histogram, each 2^n of them merged into one so that there are
 * enough values for each. Returns n, which depends on the number of values alone: devices that
 * round differently agree on it. */
static uint32_t merge(const struct quant_histogram *h, uint32_t used, struct sums *s)
{
    uint32_t by = 0;
    while ((uint64_t)(QUANT_BINS >> by) > h->count / ENOUGH && by < QUANT_BITS)
        by++;
    s->used = ((used - 1) >> by) + 1;
    for (uint32_t i = 0; i < used; i++)
        s->bins[i >> by] += h->bins[i];
    return by;
}

static void sum_up(struct sums *s)
{
    for (uint32_t i = 0; i < s->used; i++) {
        s->count[i + 1] = s->count[i] + (double)s->bins[i];
        s->entropy[i + 1] = s->entropy[i] + log_weighted((double)s->bins[i]);
        s->filled[i + 1] = s->filled[i] + (s->bins[i] != 0);
    }
}

/* The divergence of Q from P if `kept` bins are kept; infinite if Q lacks a bin of P. */
static double divergence(const struct sums *s, uint32_t kept, uint32_t levels)
{
    double total = s->count[s->used], inside = s->count[kept], outside = total - inside;
    double last = (double)s->bins[kept - 1];
    if (last <= 0 && outside > 0)
        return INFINITY;
    /* sum of p log p, with p = c / total and what lies outside in the last bin */
    double sum = s->entropy[kept - 1] + log_weighted(last + outside);
    sum = sum / total - log(total);
    uint32_t from = 0;
    for (uint32_t i = 0; i < levels; i++) {
        uint32_t to = (uint32_t)(((uint64_t)(i + 1) * kept + levels - 1) / levels);
        uint32_t filled = s->filled[to] - s->filled[from];
        double in_q = s->count[to] - s->count[from];
        if (filled) {
            double in_p = to == kept ? in_q + outside : in_q;
            sum -= in_p / total * log(in_q / filled / inside);
        }
        from = to;
    }
    return sum;
}

/* The bins to keep. Of equal divergences the one that keeps most wins. */
static uint32_t search(const struct sums *s, uint32_t levels)
{
    uint32_t best = s->used;
    double least = INFINITY;
    for (uint32_t kept = levels; kept <= s->used; kept++) {
        double d = divergence(s, kept, levels);
        if (d <= least) {
            least = d;
            best = kept;
        }
    }
    return best;
}

/* The number of bins that hold this share of all values, zeros among them. */
static uint32_t reach(const struct quant_histogram *h, double share)
{
    double wanted = share * (double)h->count, sum = (double)h->zeros;
    uint32_t i = 0;
    while (i < QUANT_BINS && sum < wanted)
        sum += (double)h->bins[i++];
    return i;
}

bool quant_limit(const struct quant_histogram *h, enum quant_method method, double percentile,
                 uint32_t levels, float *limit)
{
    float most = h->count ? fmaxf(-h->least, h->most) : 0;
    uint32_t used = used_bins(h), kept;
    *limit = most;
    if (method == QUANT_MINMAX || !used)
        return true;
    if (method == QUANT_PERCENTILE) {
        kept = reach(h, percentile / 100);
    } else {
        struct sums *s = calloc(1, sizeof(*s));
        if (!s)
            return false;
        uint32_t by = merge(h, used, s);
        sum_up(s);
        kept = search(s, levels) << by;
        free(s);
    }
    *limit = fminf(most, ldexpf((float)MAX(kept, 1U), h->exponent));
    return true;
}
