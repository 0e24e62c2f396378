/* SPDX-License-Identifier: Apache-2.0 */
/* Measured values; see samples.h. */
#include "tools/samples.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum status samples_init(struct samples *samples, uint32_t capacity, struct error *err)
{
    size_t bytes = capacity * sizeof(*samples->kept);
    uint64_t *kept = malloc(bytes);
    if (!kept)
        return error_no_memory(err, "%u samples", capacity);
    memset(kept, 1, bytes); /* takes the pages now, and not while it is measured */
    *samples = (struct samples){.kept = kept, .capacity = capacity, .stride = 1, .min = UINT64_MAX};
    return STATUS_OK;
}

void samples_deinit(struct samples *samples)
{
    free(STEAL(samples->kept));
}

static void thin(struct samples *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i += 2)
        s->kept[n++] = s->kept[i];
    s->n = n;
    s->stride *= 2;
}

void samples_add(struct samples *s, uint64_t value)
{
    if (s->count % s->stride == 0) {
        if (s->n == s->capacity)
            thin(s);
        if (s->count % s->stride == 0)
            s->kept[s->n++] = value;
    }
    s->count++;
    s->sum += (double)value;
    s->min = MIN(s->min, value);
    s->max = MAX(s->max, value);
}

void samples_merge(struct samples *into, struct samples *from)
{
    while (into->stride != from->stride || into->n + from->n > into->capacity) {
        bool both = into->stride == from->stride;
        if (both || into->stride < from->stride)
            thin(into);
        if (both || from->stride < into->stride)
            thin(from);
    }
    memcpy(into->kept + into->n, from->kept, from->n * sizeof(*from->kept));
    into->n += from->n;
    into->count += from->count;
    into->sum += from->sum;
    into->min = MIN(into->min, from->min);
    into->max = MAX(into->max, from->max);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void samples_sort(struct samples *samples)
{
    qsort(samples->kept, samples->n, sizeof(*samples->kept), by_value);
}

uint64_t samples_quantile(const struct samples *samples, double q)
{
    if (samples->n == 0)
        return 0;
    /* The rank, rounded up; the small step down keeps 0.99 of 100 at 99 and not 100. */
    double exact = (q > 0 ? MIN(q, 1.0) : 0) * samples->n * (1 - 1e-12);
    uint32_t below = (uint32_t)exact; /* whole ranks below it, since exact is no whole number */
    return samples->kept[MIN(below, samples->n - 1)];
}

double samples_mean(const struct samples *samples)
{
    return samples->count ? samples->sum / (double)samples->count : 0;
}
