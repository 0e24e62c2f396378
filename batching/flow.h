/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flows that wait for one model, what each of them has queued, and which turn a request gets.
 * Private to this folder; flows know nothing of shape keys, batches or workers.
 *
 * Turns are the start times of fair queueing (Goyal, Vin, Cheng: Start-time Fair Queueing, 1996). A
 * request starts where the one before it in its flow ends, which is `instances` after that one's
 * start, but not before the clock of its priority. The request that starts first goes first, and of
 * equals the older one. So each flow gets the same number of instances, and a flow that was away
 * has no claim for that time.
 *
 * When a request leaves for a batch, the clock advances by each flow's share of it: its instances
 * over the number of flows that wait. The clock is never behind a start that has been served. If it
 * were that start alone, flows that keep coming new would go before the second request of any other
 * flow for ever.
 *
 * A request that leaves without having run (cancelled, expired or pushed out) costs its flow
 * nothing.
 */
#ifndef INFERD_BATCHING_FLOW_H
#define INFERD_BATCHING_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "batching/keys.h"

#include "batching/batcher.h"
#include "batching/heap.h"

enum {
    FLOW_UNIT = 4096, /* of the clock, for an instance: 10^15 instances fit into 64 bits */
    FLOW_KEPT = 16,   /* records that are kept in any case */
};

/* What a flow has at one priority. */
struct flow_queue {
    struct batcher_item *first; /* utlist DL by flow_prev, flow_next: in order of arrival */
    uint64_t served;            /* the end of its last request that ran */
    uint32_t instances;
};

struct flow {
    UT_hash_handle hh; /* in its model's table, by key; also while it is idle */
    uint64_t key;
    struct flow_queue queue[BATCHER_PRIORITIES];
    uint32_t items[BATCHER_PRIORITIES]; /* of this priority and worse */
    uint32_t most[BATCHER_PRIORITIES];  /* `items` when `rank` was last set; 0: no rank */
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
/* Makes a record for a flow that has none: the longest idle one once there are `most`, else a new
 * one. NULL: no memory. */
struct flow *flow_make(struct flows *flows, uint64_t key, uint32_t most);

/* Gives the item its turn and adds it to its flow. */
void flow_push(struct flows *flows, struct flow *flow, struct batcher_item *item);
/* Takes the item out; `served`: into a batch. If another item of its flow and priority becomes the
 * first by that, it has been so since `now_ns`. */
void flow_pull(struct flows *flows, struct batcher_item *item, bool served, uint64_t now_ns);

/* Finds the item that makes room in a full queue of `limit` for one of that flow (NULL: a flow that
 * has nothing queued) and priority. NULL: none does. */
struct batcher_item *flow_victim(struct flows *flows, const struct flow *flow, uint32_t priority,
                                 uint32_t limit);

/* The number of items that the flow has queued at that priority and better. */
uint32_t flow_items_before(const struct flow *flow, uint32_t priority);

/* Instances that would go before a new item of that flow (NULL: an unknown one) and priority. */
uint64_t flow_ahead(const struct flows *flows, const struct flow *flow, uint32_t priority);

/* Nothing may be queued. */
void flows_deinit(struct flows *flows);

#endif
