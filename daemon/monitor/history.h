/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last quarter of an hour, as the status page draws it: every HISTORY_PERIOD_MS a point of the
 * whole server and of each model that has had requests. What is kept is bounded: HISTORY_MODELS
 * series of about 35 KB, each made when its model gets its first request.
 */
#ifndef INFERD_DAEMON_MONITOR_HISTORY_H
#define INFERD_DAEMON_MONITOR_HISTORY_H

#include "daemon/monitor/snapshot.h"

enum {
    HISTORY_PERIOD_MS = 2000,
    HISTORY_POINTS = 450,
    HISTORY_MODELS = 64,
};

/* X(ID, name in JSON); NAN: there was nothing to measure */
#define HISTORY_ROWS(X)                                                                            \
    X(REQUESTS, "requests")   /* answered, a second */                                             \
    X(INSTANCES, "instances") /* a second */                                                       \
    X(REFUSED, "refused")     /* and failed, a second */                                           \
    X(P50, "p50")             /* ms */                                                             \
    X(P99, "p99")                                                                                  \
    X(WAITING, "waiting") /* requests in the queue */                                              \
    X(BATCH, "batch")     /* mean instances */                                                     \
    X(QUEUE, "queue")     /* mean ms of a request; these four in the order of the stages */        \
    X(INPUT, "input")                                                                              \
    X(COMPUTE, "compute")                                                                          \
    X(OUTPUT, "output")                                                                            \
    X(BUSY, "busy") /* share of the workers' time, 0 to 1 */                                       \
    X(GPU, "gpu")   /* the busiest one's load, 0 to 1; the server's series alone */

enum history_row {
#define X(id, name) HISTORY_##id,
    HISTORY_ROWS(X)
#undef X
        HISTORY_ROW_COUNT_
};

/* What had been counted at the last point. */
struct history_sums {
    uint64_t requests, refused, instances, batches, busy_ns;
    uint64_t stage_ns[BODY_STAGES];
};

struct history_series {
    const char *name, *version; /* NULL: the server */
    char texts[2][72];
    uint64_t since_ms; /* of the load */
    uint64_t last;     /* number of the last point that was written */
    struct history_sums before;
    float points[HISTORY_ROW_COUNT_][HISTORY_POINTS]; /* point k at k % HISTORY_POINTS */
    uint64_t total[HISTOGRAM_SHARED_BUCKETS];         /* of the last point */
};

struct history {
    uint64_t next; /* number of the next point */
    uint64_t at_ns;
    uint64_t at_ms; /* wall clock of the last point */
    struct history_series server;
    struct history_series *models[HISTORY_MODELS];
};

/* NULL: no memory. */
struct history *history_new(void);
void history_free(struct history *history); /* NULL is fine */

/* Adds a point if it is time for one. */
void history_sample(struct history *history, const struct shared *shared, const struct table *table,
                    struct gpus *gpus);

/* NULL: it has none (yet). */
const struct history_series *history_find(const struct history *history, const char *name,
                                          const char *version);
/* Point `number` of a row; NAN where there is none. */
float history_point(const struct history *history, const struct history_series *series,
                    enum history_row row, uint64_t number);
const char *history_row_name(enum history_row row);

#endif
