/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for one model: its flows, what each has queued, and which turn a request gets. Private
 * to this folder; flows know nothing of shape keys, batches or workers.
 *
 * Turns are the start times of fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996):
 * a request starts where the one before it of its flow ends, `instances` later, but not before the
 * clock of its priority; who starts first goes first, of equals the older. Then each flow gets the
 * same, by instances, and one that was away has no claim for that time.
 *
 * The clock goes on by what each flow gets of a request that leaves for a batch: its instances
 * over the flows that wait. It is never behind a start that has been served. Were it that start
 * alone, flows that come new all the time would go before the second request of any other for ever.
 *
 * What leaves without having run, cancelled, expired or pushed out, costs its flow nothing.
 */
#ifndef INFERD_BATCHING_FLOW_H
#define INFERD_BATCHING_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "batching/keys.h"

#include "batching/batcher.h"
#include "batching/heap.h"

enum {
    FLOW_UNIT = 4096, /* of the clock, for an instance: 10^15 of them fit into 64 bits */
    FLOW_KEPT = 16,   /* records that are there anyway */
};

/* What a flow has at one priority. */
struct flow_lane {
    struct batcher_item *first; /* utlist DL by flow_prev, flow_next: in order of arrival */
    uint64_t served;            /* where what ran of it ended */
    uint32_t instances;
};

struct flow {
    UT_hash_handle hh; /* in its model's table, by key; also while it is idle */
    uint64_t key;
    struct flow_lane lane[BATCHER_PRIORITIES];
    uint32_t items[BATCHER_PRIORITIES]; /* of this priority and worse */
    uint32_t most[BATCHER_PRIORITIES];  /* what that was, when `rank` was last set; 0: not there */
    struct flow *prev, *next;           /* on the list of idle flows, while it has nothing queued */
    struct heap_node rank[BATCHER_PRIORITIES];
};

/* All flows at one priority. */
struct flow_level {
    uint64_t clock;
    uint64_t instances;
    uint64_t first_instances;  /* of the first request of each flow */
    uint32_t flows;            /* that have something queued */
    uint32_t items;            /* of this priority and worse */
    struct heap_node *longest; /* flows by `most` of this priority, the most first */
};

struct flows {
    struct flow_level level[BATCHER_PRIORITIES];
    uint64_t serial;    /* of the next item */
    struct flow *table; /* uthash by key */
    struct flow *idle;  /* utlist DL, the longest idle first */
};

/* NULL: unknown. */
struct flow *flow_find(const struct flows *flows, uint64_t key);
/* A record for a flow that has none: the longest idle one once there are `most`, else a new one.
 * NULL: no memory. */
struct flow *flow_make(struct flows *flows, uint64_t key, uint32_t most);

/* Gives the item its turn and adds it to its flow. */
void flow_push(struct flows *flows, struct flow *flow, struct batcher_item *item);
/* Takes it out; `served`: into a batch. The one behind it of its flow and priority, if it is the
 * first now, has been so since `now_ns`. */
void flow_pull(struct flows *flows, struct batcher_item *item, bool served, uint64_t now_ns);

/* Who makes room in a full queue of `limit` for an item of that flow (NULL: one that has nothing
 * queued) and priority; NULL: nobody. */
struct batcher_item *flow_victim(struct flows *flows, const struct flow *flow, uint32_t priority,
                                 uint32_t limit);

/* What the flow has queued of that priority and better: items. */
uint32_t flow_items_before(const struct flow *flow, uint32_t priority);

/* Instances that would go before an item of that flow (NULL: so too) and priority. */
uint64_t flow_ahead(const struct flows *flows, const struct flow *flow, uint32_t priority);

/* Only when nothing is queued. */
void flows_deinit(struct flows *flows);

#endif
