/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One point of a load test: requests over some connections on one loop, until three windows of time
 * in a row agree or there have been max_windows of them.
 *
 * Closed loop: `concurrency` clients, each sending its next request when the last is answered. An
 * error makes a client pause for a few milliseconds, so that a server that refuses is not stormed.
 *
 * Open loop: requests at a rate, whether the server follows or not. Each has a time at which it is
 * meant to be sent, and its latency counts from that: a server that stalls is charged for all who
 * would have come meanwhile. At most `outstanding` are unanswered; beyond that they wait here, with
 * their clocks running.
 */
#ifndef INFERD_CLIENT_LOAD_LOAD_RUN_H
#define INFERD_CLIENT_LOAD_LOAD_RUN_H

#include "client/load/load_stats.h"

enum { LOAD_WINDOWS = 3, LOAD_CONNECTIONS_MAX = 1024, LOAD_OUTSTANDING_MAX = 65536 };

/* The windows' greatest distance from their mean. */
#define LOAD_STABLE 0.1

struct load_plan {
    const char *address;
    uint32_t connections;
    struct inferd_prepared *const *requests; /* sent in turn */
    uint32_t n_requests;
    uint32_t instances;   /* in each */
    uint32_t concurrency; /* closed loop; 0: open loop */
    double rate;          /* open loop: requests a second */
    bool poisson;         /* exponential gaps instead of equal ones */
    uint32_t outstanding; /* open loop */
    uint64_t deadline_ns; /* what counts as answered in time; 0: anything */
    double warm_up_s;     /* not counted */
    double window_s;
    uint32_t max_windows; /* at least LOAD_WINDOWS */
};

struct load_point {
    uint32_t concurrency; /* 0: open loop */
    uint32_t connections;
    double rate;             /* 0: closed loop */
    bool stable;             /* the last LOAD_WINDOWS windows agreed */
    bool cut;                /* the server went away; the point has what came until then */
    struct load_stats stats; /* the sum of these windows */
};

/* UNAVAILABLE and the like: no connection could be made, or all were lost before anything was
 * measured. If they are lost later, the point is cut and `err` says why. Errors of single requests
 * are counted in the point. */
enum status load_run(const struct load_plan *plan, struct load_point *out, struct error *err);

#endif
