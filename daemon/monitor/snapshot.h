/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that the daemon tells of itself at one moment, as plain numbers: the metrics
 * (daemon/monitor/metrics.h) and the status page (daemon/monitor/page.h) are made of this. Taking a
 * snapshot reads atomics and /proc, and asks NVML; it takes no lock that a request needs.
 */
#ifndef INFERD_DAEMON_MONITOR_SNAPSHOT_H
#define INFERD_DAEMON_MONITOR_SNAPSHOT_H

#include "base/arena.h"
#include "daemon/monitor/gpu.h"
#include "daemon/monitor/host.h"
#include "daemon/shared.h"

enum {
    SNAPSHOT_BOUNDS = 19,
    SNAPSHOT_SIZES = 13,
    SNAPSHOT_MODELS = 1024, /* models x versions; what is beyond is counted, not told */
};

/* Upper bounds of times, in ns, and of batch sizes; the same for all models and all daemons, so
 * that histograms can be added up. */
extern const uint64_t snapshot_bounds[SNAPSHOT_BOUNDS];
extern const uint32_t snapshot_sizes[SNAPSHOT_SIZES];

/* How many values lie up to each bound and above the one before it; the last one counts those above
 * all bounds. */
struct snapshot_times {
    uint64_t sum_ns;
    uint64_t count[SNAPSHOT_BOUNDS + 1];
};

struct snapshot_model {
    const char *name, *version, *state, *reason;
    bool ready;  /* takes requests now */
    bool loaded; /* what follows is known */
    uint32_t max_batch;
    uint64_t max_delay_ns, weight_bytes, load_ns;
    uint64_t queued, queue_limit, queue_age_ns; /* requests; the age of the oldest */
    uint64_t ok, failed, failed_ns, instances, batches, last_ms, since_ms;
    uint64_t unrun[CAUSE_COUNT_];
    struct snapshot_times times[BODY_STAGES];
    uint64_t sizes[SNAPSHOT_SIZES + 1]; /* batches, in the same way */
};

struct snapshot {
    uint64_t wall_ms, started_ms, uptime_ns;
    const char *device;
    bool ready, draining, lost, apart; /* apart: the device has memory of its own */
    uint32_t workers, workers_busy, loops, connections, connections_limit;
    uint64_t in_flight;
    uint64_t inflight_bytes, inflight_limit;
    uint32_t regions; /* of shared memory, */
    uint64_t region_bytes;
    uint64_t shape_engines, shape_bytes, shape_waiting; /* for new sizes; requests */
    const struct config_limits *limits;
    uint64_t counters[COUNTER_COUNT_];
    struct body_memory memory[8]; /* FIGURES_MEMORY */
    struct host host;
    uint32_t n_gpus, n_models, models_left_out;
    struct gpu gpus[GPU_MOST];
    const struct snapshot_model *models;
};

/* What outlives a snapshot. */
struct snapshot_sources {
    const struct shared *shared;
    struct host_ticks ticks;
    struct gpus *gpus; /* NULL: none */
};

/* The texts in *out are the table's, the rest is the arena's. False: no memory. */
bool snapshot_take(struct snapshot_sources *sources, const struct table *table, struct arena *arena,
                   struct snapshot *out);

/* Which of the bounds a time belongs to; SNAPSHOT_BOUNDS: it lies above all. */
uint32_t snapshot_bound(uint64_t ns);

/* "queue_full": the name of a cause, in small letters. */
enum { SNAPSHOT_CAUSE = 32 };
const char *snapshot_cause_name(enum cause cause, char out[SNAPSHOT_CAUSE]);
const char *snapshot_cause_sentence(enum cause cause);
const char *snapshot_stage_name(enum body_stage_name stage);

/* Requests of a model that failed for any cause, whether or not they ran. */
uint64_t snapshot_failures(const struct snapshot_model *model);

#endif
