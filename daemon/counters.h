/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of events (R27 of docs/operations.md). Each thread that counts often has a set of its
 * own, so that sets do not share cache lines; `inferctl status` shows their sums under the names of
 * this table.
 */
#ifndef INFERD_DAEMON_COUNTERS_H
#define INFERD_DAEMON_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/cause.h"

#define COUNTERS(X)                                                                                \
    X(CONNECTIONS_ACCEPTED, "connections_accepted")                                                \
    X(ACCEPT_PAUSED, "accept_paused") /* at the limit of connections */                            \
    X(ACCEPT_NO_DESCRIPTOR, "accept_no_descriptor")                                                \
    X(REFUSED_ADDRESS, "refused_address_connections") /* at the limit of its address */            \
    X(EVICTED, "connections_evicted")                 /* the idlest, when there was no place */    \
    X(BYTES_IN, "bytes_in")                                                                        \
    X(BYTES_OUT, "bytes_out")                                                                      \
    X(FRAMES, "frames")                                                                            \
    X(FRAMES_TOO_LARGE, "frames_too_large")                                                        \
    X(FRAMES_REFUSED, "frames_refused") /* no memory within the budget */                          \
    X(FOREIGN, "foreign_protocol")      /* HTTP, HTTP/2 or TLS came */                             \
    X(FLOODS, "closed_for_flood")       /* HTTP/2: broken, or frames that only make work */        \
    X(REQUESTS, "requests")             /* inferences asked for */                                 \
    X(REQUESTS_OK, "requests_ok")                                                                  \
    X(REQUESTS_INVALID, "requests_invalid")                                                        \
    X(REQUESTS_NOT_FOUND, "requests_not_found")                                                    \
    X(REFUSED_UNAUTHENTICATED, "refused_unauthenticated") /* its token is not known */             \
    X(REFUSED_PERMISSION, "refused_permission")           /* who asks has no right to it */        \
    X(REJECTED_IDENTITY, "rejected_identity")             /* who asks has too much in flight */    \
    X(REJECTED_QUEUE, "rejected_queue")                   /* the model's queue was full */         \
    X(REJECTED_DEADLINE, "rejected_deadline")             /* it would miss its deadline */         \
    X(REJECTED_MEMORY, "rejected_memory")                 /* the in-flight budget was used up */   \
    X(REJECTED_ADDRESS, "rejected_address")               /* too many requests of its address */   \
    X(REJECTED_SHAPE, "rejected_shape")             /* no engine for its sizes, or not yet */      \
    X(REJECTED_UNAVAILABLE, "rejected_unavailable") /* draining, loading, device lost */           \
    X(EXPIRED, "expired_before_run")                                                               \
    X(CANCELLED, "cancelled")                                                                      \
    X(FAILED, "failed_in_run")                                                                     \
    X(BATCHES_SPLIT, "batches_split") /* failed for one of several requests; run again in parts */ \
    X(REPLIES_DROPPED, "replies_dropped") /* the connection was gone */                            \
    X(READS_PAUSED, "reads_paused")                                                                \
    X(READS_RESUMED, "reads_resumed")                                                              \
    X(LARGE_WAITED, "large_waited")    /* large messages that waited for others */                 \
    X(TIMEOUT_TOKEN, "timeouts_token") /* strangers who showed no token in time */                 \
    X(TIMEOUT_TLS, "timeouts_tls")     /* handshakes that did not end in time */                   \
    X(TLS_FAILED, "tls_failed")        /* handshakes that failed */                                \
    X(TIMEOUT_HEADER, "timeouts_header")                                                           \
    X(TIMEOUT_FRAME, "timeouts_frame")                                                             \
    X(TIMEOUT_IDLE, "timeouts_idle")                                                               \
    X(TIMEOUT_WRITE, "timeouts_write")                                                             \
    X(SLOW_SENDERS, "slow_senders")                                                                \
    X(OUTPUT_LIMIT, "closed_at_output_limit")                                                      \
    X(TRACES, "traces")                                                                            \
    X(TRACES_DROPPED, "traces_dropped") /* no room, or collector or disk did not take them */      \
    X(RELOADS, "reloads")                                                                          \
    X(RELOADS_FAILED, "reloads_failed")                                                            \
    X(LOADS_FAILED, "loads_failed")                                                                \
    X(PLANS_BUILT, "plans_built")                                                                  \
    X(SHAPE_HITS, "shape_hits")           /* requests of sizes whose engine was there */           \
    X(SHAPE_MISSES, "shape_misses")       /* and was not */                                        \
    X(SHAPE_FALLBACKS, "shape_fallbacks") /* and which ran on the CPU meanwhile */                 \
    X(SHAPES_BUILT, "shapes_built")       /* engines for new sizes */                              \
    X(SHAPES_LOADED, "shapes_loaded")     /* whose plans were kept */                              \
    X(SHAPES_FAILED, "shapes_failed")     /* could not be built or loaded */                       \
    X(SHAPES_EVICTED, "shapes_evicted")   /* made room for others */                               \
    X(WORKER_HANGS, "worker_hangs")                                                                \
    X(DEVICE_LOST, "device_lost")

enum counter {
#define X(id, name) COUNTER_##id,
    COUNTERS(X)
#undef X
        COUNTER_COUNT_
};

/* All accesses are relaxed: the numbers are for people, and guard nothing else. */
struct counters {
    _Alignas(64) _Atomic uint64_t value[COUNTER_COUNT_];
};

static inline void counter_add(struct counters *counters, enum counter which, uint64_t n)
{
    atomic_fetch_add_explicit(&counters->value[which], n, memory_order_relaxed);
}

static inline uint64_t counter_get(const struct counters *counters, enum counter which)
{
    return atomic_load_explicit(&counters->value[which], memory_order_relaxed);
}

/* Static storage. */
const char *counter_name(enum counter which);

/* The counter of requests that fail for that cause, unless they fail in a run. */
enum counter counter_of_cause(enum cause cause);

#endif
