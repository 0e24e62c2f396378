/* SPDX-License-Identifier: Apache-2.0 */
/* Takes points, see history.h: each is the difference of two readings of what the model counts. */
#include "daemon/monitor/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct history *history_new(void)
{
    struct history *h = calloc(1, sizeof(*h));
    if (h)
        h->at_ns = clock_now_ns();
    return h;
}

void history_free(struct history *h)
{
    for (size_t i = 0; h && i < HISTORY_MODELS; i++)
        free(h->models[i]);
    free(h);
}

const char *history_row_name(enum history_row row)
{
    static const char *const names[] = {
#define X(id, name) name,
        HISTORY_ROWS(X)
#undef X
    };
    return names[row];
}

static uint64_t load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* --- differences --- */

/* The value that a share `q` of the counts does not exceed, in ms. */
static float quantile(const uint64_t counts[HISTOGRAM_SHARED_BUCKETS], double q)
{
    uint64_t n = 0, seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        n += counts[i];
    uint64_t rank = (uint64_t)ceil(q * (double)n);
    for (uint32_t i = 0; n && i < HISTOGRAM_SHARED_BUCKETS; i++)
        if ((seen += counts[i]) >= MAX(rank, UINT64_C(1)))
            return (float)((double)(histogram_shared_low(i) + histogram_shared_low(i + 1)) / 2 /
                           (double)NS_PER_MS);
    return NAN;
}

static struct history_sums sums_read(const struct model *model)
{
    const struct model_stats *stats = &model->stats;
    struct history_sums sums = {.requests = load(&stats->ok),
                                .refused = load(&stats->failed),
                                .instances = load(&stats->instances),
                                .batches = load(&stats->batches)};
    for (uint32_t k = 0; k < CAUSE_COUNT_; k++)
        sums.refused += load(&stats->unrun[k]);
    for (uint32_t k = 0; k < BODY_STAGES; k++)
        sums.stage_ns[k] = load(&stats->stage_ns[k]);
    for (uint32_t n = 1; n <= model->max_batch; n++) {
        const struct model_batch_stats *batch = &stats->by_batch[n];
        sums.busy_ns += load(&batch->input_ns) + load(&batch->compute_ns) + load(&batch->output_ns);
    }
    return sums;
}

/* All members are sums of 64 bits, so that they can be added and subtracted as a row. */
enum { SUMS = sizeof(struct history_sums) / sizeof(uint64_t) };

static void sums_add(struct history_sums *to, const struct history_sums *a)
{
    uint64_t x[SUMS], y[SUMS];
    memcpy(x, to, sizeof(x));
    memcpy(y, a, sizeof(y));
    for (size_t i = 0; i < SUMS; i++)
        x[i] += y[i];
    memcpy(to, x, sizeof(x));
}

static struct history_sums sums_since(const struct history_sums *now,
                                      const struct history_sums *before)
{
    struct history_sums out;
    uint64_t x[SUMS], y[SUMS];
    memcpy(x, now, sizeof(x));
    memcpy(y, before, sizeof(y));
    for (size_t i = 0; i < SUMS; i++)
        x[i] -= MIN(x[i], y[i]);
    memcpy(&out, x, sizeof(x));
    return out;
}

/* --- points --- */

static void point_set(const struct history *h, struct history_series *s, enum history_row row,
                      double value)
{
    s->points[row][h->next % HISTORY_POINTS] = (float)value;
}

/* Points that were missed, since the series rested, are empty. */
static void gap_fill(const struct history *h, struct history_series *s)
{
    uint64_t first = MAX(s->last + 1, h->next - MIN(h->next, (uint64_t)HISTORY_POINTS - 1));
    for (uint64_t k = first; k <= h->next; k++)
        for (uint32_t row = 0; row < HISTORY_ROW_COUNT_; row++)
            s->points[row][k % HISTORY_POINTS] = NAN;
    s->last = h->next;
}

static void point_write(const struct history *h, struct history_series *s, double seconds,
                        const struct history_sums *d, const uint64_t *counts, uint64_t waiting,
                        uint32_t workers)
{
    double requests = (double)d->requests;
    gap_fill(h, s);
    point_set(h, s, HISTORY_REQUESTS, requests / seconds);
    point_set(h, s, HISTORY_INSTANCES, (double)d->instances / seconds);
    point_set(h, s, HISTORY_REFUSED, (double)d->refused / seconds);
    point_set(h, s, HISTORY_P50, quantile(counts, 0.5));
    point_set(h, s, HISTORY_P99, quantile(counts, 0.99));
    point_set(h, s, HISTORY_WAITING, (double)waiting);
    point_set(h, s, HISTORY_BATCH,
              d->batches ? (double)d->instances / (double)d->batches : (double)NAN);
    for (uint32_t k = 0; k < BODY_TOTAL; k++)
        point_set(h, s, HISTORY_QUEUE + k,
                  d->requests ? (double)d->stage_ns[k] / requests / (double)NS_PER_MS
                              : (double)NAN);
    point_set(h, s, HISTORY_BUSY,
              MIN((double)d->busy_ns / (double)NS_PER_S / seconds / workers, 1.0));
}

static struct history_series *series_of(struct history *h, const struct model *model)
{
    struct history_series **free_one = NULL;
    for (size_t i = 0; i < HISTORY_MODELS; i++) {
        struct history_series *s = h->models[i];
        if (!s)
            free_one = free_one ? free_one : &h->models[i];
        else if (!strcmp(s->name, model->name) && !strcmp(s->version, model->version))
            return s;
    }
    if (!free_one || !(load(&model->stats.batches) || load(&model->waiting.requests)))
        return NULL;
    struct history_series *s = *free_one = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    snprintf(s->texts[0], sizeof(s->texts[0]), "%s", model->name);
    snprintf(s->texts[1], sizeof(s->texts[1]), "%s", model->version);
    s->name = s->texts[0];
    s->version = s->texts[1];
    s->since_ms = model->stats.since_ms;
    return s;
}

/* A model that was loaded anew counts from nothing. */
static void reload_heed(struct history_series *s, const struct model *model)
{
    if (s->since_ms == model->stats.since_ms)
        return;
    s->since_ms = model->stats.since_ms;
    s->before = (struct history_sums){0};
    memset(s->total, 0, sizeof(s->total));
}

/* Writes the model's point, and adds it to those of the server. */
static void model_sample(struct history *h, const struct model *model, double seconds,
                         uint32_t workers, struct history_sums *all, uint64_t *counts)
{
    struct history_series *s = series_of(h, model);
    uint64_t own[HISTOGRAM_SHARED_BUCKETS];
    if (!s)
        return;
    reload_heed(s, model);
    struct history_sums now = sums_read(model), since = sums_since(&now, &s->before);
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++) {
        uint64_t count = load(&model->stats.stage_times[BODY_TOTAL].bucket[i]);
        own[i] = count - MIN(count, s->total[i]);
        s->total[i] = count;
        counts[i] += own[i];
    }
    s->before = now;
    sums_add(all, &since);
    point_write(h, s, seconds, &since, own, load(&model->waiting.requests), workers);
}

/* Series of models that are gone make room once nothing of them is to be seen. */
static void series_forget(struct history *h)
{
    for (size_t i = 0; i < HISTORY_MODELS; i++)
        if (h->models[i] && h->next - h->models[i]->last >= HISTORY_POINTS) {
            free(h->models[i]);
            h->models[i] = NULL;
        }
}

static double gpu_load(struct gpus *gpus)
{
    struct gpu list[GPU_MOST];
    double most = NAN;
    uint32_t n = gpus_read(gpus, list);
    for (uint32_t i = 0; i < n; i++)
        if (list[i].has & GPU_UTILIZATION && !(most >= list[i].utilization))
            most = list[i].utilization;
    return most;
}

void history_sample(struct history *h, const struct shared *shared, const struct table *table,
                    struct gpus *gpus)
{
    uint64_t now_ns = clock_now_ns(), waiting = 0;
    uint64_t counts[HISTOGRAM_SHARED_BUCKETS] = {0};
    struct history_sums all = {0};
    uint32_t workers = dispatch_workers(shared->dispatch);
    if (now_ns - h->at_ns < (HISTORY_PERIOD_MS - 100) * NS_PER_MS)
        return;
    double seconds = (double)(now_ns - h->at_ns) / (double)NS_PER_S;
    h->at_ns = now_ns;
    h->at_ms = clock_wall_ms();
    h->next++;
    for (uint32_t i = 0; i < table->n; i++) {
        const struct model *model = table->entries[i].model;
        if (!model)
            continue;
        waiting += load(&model->waiting.requests);
        model_sample(h, model, seconds, workers, &all, counts);
    }
    point_write(h, &h->server, seconds, &all, counts, waiting, workers);
    point_set(h, &h->server, HISTORY_GPU, gpus ? gpu_load(gpus) : (double)NAN);
    series_forget(h);
}

const struct history_series *history_find(const struct history *h, const char *name,
                                          const char *version)
{
    for (size_t i = 0; i < HISTORY_MODELS; i++)
        if (h->models[i] && !strcmp(h->models[i]->name, name) &&
            !strcmp(h->models[i]->version, version))
            return h->models[i];
    return NULL;
}

float history_point(const struct history *h, const struct history_series *s, enum history_row row,
                    uint64_t number)
{
    if (!number || number > s->last || number + HISTORY_POINTS <= h->next)
        return NAN;
    return s->points[row][number % HISTORY_POINTS];
}
