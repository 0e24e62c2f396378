/* SPDX-License-Identifier: Apache-2.0 */
/* What all threads of the daemon see; owned by the server (server.c), which outlives them. */
#ifndef INFERD_DAEMON_SHARED_H
#define INFERD_DAEMON_SHARED_H

#include <stdatomic.h>

#include "base/log.h"
#include "daemon/counters.h"
#include "daemon/dispatch.h"
#include "daemon/slab.h"

struct loop;
struct regions;
struct shapes;
struct traces;
struct answer_orders;

struct shared {
    struct log_sink log;
    struct counters counters; /* of threads that have none of their own */
    struct budget budget;
    struct device *device;
    char device_name[64]; /* as configured */
    bool reference;       /* the device has plain kernels only, for sanitizers */
    struct dispatch *dispatch;
    uint32_t n_loops;
    struct loop *loops[DISPATCH_MAX_LOOPS];
    const struct answer_orders *orders; /* who loads models on request (answer.h); NULL: nobody */
    struct regions *regions;            /* of shared memory; NULL: there are none */
    _Atomic(struct shapes *) shapes;    /* engines for new sizes; NULL: not yet */
    struct traces *traces;              /* set before the loops start; NULL: nobody wants any */
    uint64_t started_ns, started_ms;    /* the latter since 1970 */
    /* Relaxed: each is a fact of its own, and a reader may hear of it a moment later. */
    _Atomic bool ready, draining, lost;
    _Atomic bool healthy; /* ready but for models that are missing */
    _Atomic uint32_t connections, max_connections, address_connections;
    _Atomic uint64_t foreign_ns; /* when the log was last told of another protocol; 0: never */
};

#endif
