/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opportunistic batcher: a bounded queue for each model, and the decision when a batch is
 * formed.
 *
 * It is a pure function of events and time: it never reads a clock, takes a lock, allocates per
 * request or calls back. The caller (daemon/dispatch.c) serialises calls, owns the items (requests)
 * and carries out what comes back. The rules, which are tested one by one, and against a model by
 * random sequences:
 *
 *   - A batch is formed only when a worker is idle. While all are busy, requests gather.
 *   - While a worker is idle, the oldest request of a shape key waits at most max_delay_ns, counted
 *     from its arrival, for others to join its batch. It does not wait at all once max_batch or a
 *     preferred size is there; the batch is then cut at the largest of these sizes that was
 *     reached. With max_delay_ns 0 no request waits, and neither does one whose deadline would come
 *     first.
 *   - Requests carry 1..max_batch instances and are never split; a batch holds one shape key and
 *     never exceeds max_batch instances. It is filled by priority, then by turns, up to the first
 *     request that does not fit. Lower priorities only get room that higher ones of the same key
 *     leave.
 *   - Turns: within a model and priority each flow (who asks) gets the same number of instances
 *     while it has requests queued, whatever their shape keys; within a flow and shape key the
 *     order is that of arrival. So the order is that of arrival, too, if only one flow waits, or if
 *     each flow has one request. The first request of a new flow goes behind the first requests of
 *     the flows that wait, and never behind their backlogs. A flow that was away has gained nothing
 *     by that. Nor has one whose queue runs empty again and again: its next request starts where
 *     its last one that ran has ended.
 *   - Ageing: a batch that leaves the first request of a lower priority behind, though it could go,
 *     passes it over. After 15 such batches in a row that request leads the next batch of the
 *     model, which is otherwise filled as usual, from the best priorities first. Thus no priority
 *     waits for ever, and each of the three lower ones costs those above it at most one batch in
 *     16. Such a share keeps its size under any load, whereas promotion by age would make all
 *     priorities equal as soon as queues are longer than the age.
 *   - Places: a full queue belongs to nobody. An item that arrives at a full queue pushes out an
 *     item of the flow that has most queued, unless that flow would then have less than the new
 *     item's flow: the newest item of its worst priority. Only items of the new item's priority and
 *     worse are counted and pushed out; so n flows keep at least 1/n of those places each. If these
 *     items take less than 1/16 of the queue, all items count, so that a flood of a better priority
 *     does not shut out the worse ones.
 *   - Deadlines are checked when an item is dequeued (here) and right before launch (by the
 *     caller). An item that will hardly meet its deadline is refused when it arrives. That is so if
 *     the work ahead of it, at the pace that batches were seen to have, leaves too little time.
 *     Ahead of it are: what runs; in its model's queue everything of better priorities, and of its
 *     own priority what its flow has queued, as much of each other flow, and the first request of
 *     each; in other models' queues the first request of each flow, once for each request that its
 *     own flow has queued, and once more. Without this rule a queue under overload holds nothing
 *     but requests that are about to expire, and what runs is answered too late. A quarter of the
 *     wait and four deviations of its own batch are kept in reserve. Its own batch counts only if
 *     others of its model wait, or run on the last worker, so that a wrong pace is measured again.
 *   - An item that is dequeued also counts as expired if a full batch would end (its mean time and
 *     two deviations from now) after its deadline, and at least max_batch other instances of its
 *     shape key wait: its place goes to one that meets its deadline. Otherwise, after a moment in
 *     which nothing ran, each request of a first-in-first-out queue would be taken right before its
 *     deadline and answered right after it, until the whole queue is gone.
 *   - Within a model, among the shape keys that may go now, the one whose first request has the
 *     best priority goes first, and among equals the one whose first request has the earliest turn.
 *   - Among models the one goes first whose head (the first request of its next batch) has waited
 *     longest against its max_delay_ns: the one with the least time + max_delay_ns. The time is
 *     that of the head's arrival, or the one at which it became the first of its flow, so that a
 *     backlog does not go before other models.
 *   - A model that has max_running batches on workers forms no further one until one of them ends.
 *   - Draining: no new items, but those of what was admitted before; what is queued no longer waits
 *     for others to join.
 *
 * Costs: a submit, a cancel and a step take a constant number of list operations and O(log n) heap
 * operations over the models, shape keys and flows that have something queued. So does each item
 * that leaves, unless all waiting ones came in the order of their turns; then list operations are
 * enough. When the queue is full, finding who has most queued is O(log n) for each item that has
 * left since the last time. A submit with a deadline looks at each worker. Memory: one small record
 * for each distinct shape key that waits at the same time, kept for reuse, so as many as ever
 * waited at once, and never more than the queue's limit. The same holds for flows, but the record
 * of a flow that has nothing queued is kept until there are as many as the queue's limit, because
 * it knows what the flow has had.
 *
 * Time that goes backwards counts as standing still: callers on several threads read their clocks
 * before they take the lock.
 */
#ifndef INFERD_BATCHING_BATCHER_H
#define INFERD_BATCHING_BATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "batching/heap.h"

enum {
    BATCHER_MAX_WORKERS = 256,
    BATCHER_MAX_PREFERRED = 8,
    BATCHER_PRIORITIES = 4,   /* 0 is served first */
    BATCHER_SHARE = 16,       /* worse priorities keep one batch and one place in so many */
    BATCHER_MAX_ITEMS = 1024, /* in one batch */
};

#define BATCHER_NEVER UINT64_MAX

struct batcher;
struct batcher_model;

/* Embedded in the caller's request. The caller fills the first part and may not touch the rest
 * while the item is queued. */
struct batcher_item {
    uint32_t instances;
    uint32_t priority;    /* 0..BATCHER_PRIORITIES-1 */
    uint64_t flow;        /* who asks: the caller's number for it */
    uint64_t shape_key;   /* only equal keys share a batch */
    uint64_t deadline_ns; /* BATCHER_NEVER: none */
    bool admitted; /* part of something that was taken before: is taken while draining, too */

    uint64_t arrival_ns;         /* set by batcher_submit */
    uint64_t late_ns;            /* set too: refused, as it would miss its deadline by so much */
    struct batcher_model *model; /* NULL unless queued */
    struct flow *of;
    struct heap_node turn; /* its turn among those of its priority, and a tie-breaker */
    uint64_t front_ns;     /* since when it is the first of its flow; until then, its arrival */
    struct batcher_item *prev, *next;
    struct batcher_item *older, *newer;
    struct batcher_item *flow_prev, *flow_next;
};

struct batcher_model_config {
    uint32_t max_batch;
    uint64_t max_delay_ns;
    uint32_t queue_limit; /* items */
    uint32_t max_running; /* batches at a time; 0: any number */
    uint32_t n_preferred;
    uint32_t preferred[BATCHER_MAX_PREFERRED]; /* rising, each <= max_batch */
    void *user;
};

/* What one call decided: at most one batch, and the items that were found expired. */
struct batcher_decision {
    struct batcher_model *model; /* NULL: no batch now */
    uint32_t worker;             /* who runs it; no longer idle */
    uint32_t instances;
    struct batcher_item *batch;   /* linked by ->next, in order; NULL if model is NULL */
    struct batcher_item *expired; /* linked by ->next; too late for their deadlines */
    uint64_t wake_ns;             /* call batcher_step again by then; BATCHER_NEVER: no need */
};

struct batcher *batcher_new(void);
void batcher_free(struct batcher *batcher); /* all queues must be empty */

enum status batcher_model_add(struct batcher *batcher, const struct batcher_model_config *config,
                              struct batcher_model **out, struct error *err);
/* Changes limits while requests are queued (a reload). What is queued stays: a request that is now
 * larger than max_batch runs alone, and one that is now beyond queue_limit keeps its place. */
enum status batcher_model_configure(struct batcher_model *model,
                                    const struct batcher_model_config *config, struct error *err);
/* Takes no new items; what is queued runs without waiting for others to join. */
void batcher_model_drain(struct batcher_model *model);
/* The model's queue must be empty. */
void batcher_model_remove(struct batcher_model *model);
void *batcher_model_user(const struct batcher_model *model);

struct batcher_model_stats {
    uint32_t queued_items, queued_instances;
    uint64_t oldest_arrival_ns; /* BATCHER_NEVER if empty */
    uint64_t batches, instances, expired, refused;
    uint64_t hopeless; /* those of the refused that had no chance to meet their deadlines */
};
void batcher_model_stats(const struct batcher_model *model, struct batcher_model_stats *out);
/* Calls `visit` for each model. */
void batcher_models_visit(const struct batcher *batcher,
                          void (*visit)(const struct batcher_model *model, uint64_t now_ns),
                          uint64_t now_ns);

/* Event: an item arrives. Returns why it is refused, or CAUSE_OK. The causes are QUEUE_FULL;
 * DEADLINE_HOPELESS, with item->late_ns > 0; DRAINING; OUT_OF_MEMORY; INVALID_ARGUMENT (instances
 * or priority out of range). `*evicted` is the item that was pushed out for it, which counts as
 * refused, or NULL. To be followed by batcher_step. */
enum cause batcher_submit(struct batcher_model *model, struct batcher_item *item, uint64_t now_ns,
                          struct batcher_item **evicted);

/* Event: the item is no longer wanted. True: it was queued and now is not. False: it had left the
 * queue already. */
bool batcher_cancel(struct batcher_item *item);

/* Events: a worker can take a batch; a worker can no longer (it stops). */
void batcher_worker_idle(struct batcher *batcher, uint32_t worker);
void batcher_worker_gone(struct batcher *batcher, uint32_t worker);

/* Event: the worker's batch has ended, `ran_ns` after the step that formed it; `instances` of it
 * really ran, perhaps none. Comes before the worker is idle again. */
void batcher_worker_ran(struct batcher *batcher, uint32_t worker, uint32_t instances,
                        uint64_t ran_ns);

/* Drains all models. */
void batcher_drain(struct batcher *batcher);

/* Event: time has passed. Decides at most one batch; to be called again as long as there is one. */
void batcher_step(struct batcher *batcher, uint64_t now_ns, struct batcher_decision *out);

#endif
