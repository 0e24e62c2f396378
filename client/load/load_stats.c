/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a load test; see load_stats.h. */
#include "client/load/load_stats.h"

#include <math.h>
#include <string.h>

void load_stats_init(struct load_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    histogram_init(&stats->latency);
    histogram_init(&stats->refused);
}

void load_stats_record(struct load_stats *stats, const struct inferd_response *response,
                       uint32_t instances, uint64_t latency_ns)
{
    uint32_t status = (uint32_t)response->status;
    stats->by_status[status < STATUS_COUNT_ ? status : STATUS_UNKNOWN]++;
    if (response->status == INFERD_RESOURCE_EXHAUSTED || response->status == INFERD_UNAVAILABLE)
        histogram_record(&stats->refused, latency_ns);
    if (response->status != INFERD_OK)
        return;
    stats->requests++;
    stats->in_time += !stats->deadline_ns || latency_ns <= stats->deadline_ns;
    stats->instances += instances;
    histogram_record(&stats->latency, latency_ns);
    const struct inferd_timing *t = &response->timing;
    if (t->batch == 0)
        return;
    stats->queue_ns += t->queue_ns;
    stats->input_ns += t->input_ns;
    stats->compute_ns += t->compute_ns;
    stats->output_ns += t->output_ns;
    stats->timed_instances += instances;
    stats->batches += (double)instances / t->batch;
}

void load_stats_merge(struct load_stats *into, const struct load_stats *from)
{
    into->seconds += from->seconds;
    into->requests += from->requests;
    into->instances += from->instances;
    for (int i = 0; i < STATUS_COUNT_; i++)
        into->by_status[i] += from->by_status[i];
    into->late += from->late;
    into->deadline_ns = from->deadline_ns;
    into->in_time += from->in_time;
    histogram_merge(&into->latency, &from->latency);
    histogram_merge(&into->refused, &from->refused);
    into->queue_ns += from->queue_ns;
    into->input_ns += from->input_ns;
    into->compute_ns += from->compute_ns;
    into->output_ns += from->output_ns;
    into->timed_instances += from->timed_instances;
    into->batches += from->batches;
}

uint64_t load_stats_errors(const struct load_stats *stats)
{
    uint64_t errors = 0;
    for (int i = STATUS_OK + 1; i < STATUS_COUNT_; i++)
        errors += stats->by_status[i];
    return errors;
}

double load_stats_throughput(const struct load_stats *stats)
{
    return stats->seconds > 0 ? (double)stats->instances / stats->seconds : 0;
}

double load_stats_mean_batch(const struct load_stats *stats)
{
    return stats->batches > 0 ? (double)stats->timed_instances / stats->batches : 0;
}

static bool agree(const double *values, uint32_t n, double share)
{
    double mean = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += values[i] / n;
    for (uint32_t i = 0; i < n; i++) {
        if (fabs(values[i] - mean) > share * mean)
            return false;
    }
    return true;
}

bool load_stats_stable(const struct load_stats *windows, uint32_t n, double share)
{
    enum { MOST = 16 };
    double rate[MOST], median[MOST];
    for (uint32_t i = 0; i < n && i < MOST; i++) {
        rate[i] = load_stats_throughput(&windows[i]);
        median[i] = (double)histogram_quantile(&windows[i].latency, 0.5);
        if (windows[i].requests == 0)
            return false;
    }
    return agree(rate, n < MOST ? n : MOST, share) && agree(median, n < MOST ? n : MOST, share);
}
