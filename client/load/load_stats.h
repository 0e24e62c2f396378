/* SPDX-License-Identifier: Apache-2.0 */
/* What `inferctl load` measures: sums over a stretch of time, and what follows from them. */
#ifndef INFERD_CLIENT_LOAD_LOAD_STATS_H
#define INFERD_CLIENT_LOAD_LOAD_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/histogram.h"
#include "client/client.h"

struct load_stats {
    double seconds;
    uint64_t requests;                 /* answered with OK */
    uint64_t instances;                /* in them */
    uint64_t by_status[STATUS_COUNT_]; /* of all answers */
    uint64_t late;                     /* sent over 1 ms after the intended time */
    uint64_t deadline_ns;              /* 0: none; kept by merge */
    uint64_t in_time;                  /* of `requests`, within deadline_ns */
    struct histogram latency;          /* ns; answers with OK alone */
    struct histogram refused;          /* ns; answers with RESOURCE_EXHAUSTED and UNAVAILABLE */
    uint64_t queue_ns, input_ns, compute_ns, output_ns; /* sums of what the server says */
    uint64_t timed_instances; /* instances of requests that came with a timing */
    double batches;           /* that they were in: the sum of their shares of batches */
};

void load_stats_init(struct load_stats *stats);

/* Adds an answer that came `latency_ns` after its request should have been sent. */
void load_stats_record(struct load_stats *stats, const struct inferd_response *response,
                       uint32_t instances, uint64_t latency_ns);

void load_stats_merge(struct load_stats *into, const struct load_stats *from);

uint64_t load_stats_errors(const struct load_stats *stats);
double load_stats_throughput(const struct load_stats *stats); /* instances a second */
double load_stats_mean_batch(const struct load_stats *stats); /* 0 if the server says nothing */

/* Whether the windows agree: throughput and median latency of each are within `share` of the
 * means. */
bool load_stats_stable(const struct load_stats *windows, uint32_t n, double share);

#endif
