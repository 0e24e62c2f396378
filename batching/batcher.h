/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opportunistic batcher: bounded per-model queues, and the decision when a batch is formed.
 *
 * It is a pure function of events and time: it never reads a clock, takes a lock, allocates per
 * request or calls back. The caller (daemon/dispatch.c) serialises calls, owns the items and
 * carries out what comes back. The rules (tested one by one, and against a model by random
 * sequences):
 *
 *   - A batch is formed only when a worker is idle. While all are busy, requests gather.
 *   - While one is idle, the oldest request of a shape key waits at most max_delay_ns for company,
 *     counted from its arrival, and not at all once max_batch or a preferred size is there; then
 *     the batch is cut at the largest of those that was reached. max_delay_ns 0: never waits. A
 *     request whose deadline would come first does not wait for company either.
 *   - Requests carry 1..max_batch instances and are never split; a batch holds one shape key and
 *     never exceeds max_batch instances. It is filled by priority, then by turns, up to the first
 *     request that does not fit: lower priorities ride along only in room that higher ones of the
 *     same key leave.
 *   - Turns: within a model and priority each flow (who asks) gets the same number of instances
 *     while it has requests queued, whatever their shape keys; within a flow and shape key the
 *     order is that of arrival. So it is within one flow that waits alone, and among flows that
 *     have one request each. What a new flow asks for goes next but for those that wait for their
 *     turn as it does, one request a flow: never behind a backlog. A flow that was away has gained
 *     nothing, and one whose queue runs empty again and again neither: its next request starts
 *     where the last one that ran has ended.
 *   - Ageing: a batch that leaves the first request of a lower priority behind, though it could go,
 *     passes it over. After 15 of them in a row the next batch of the model is led by that request,
 *     and filled up as any other: of the best priorities first. Thus no priority waits for ever,
 *     and each lower one, of which there are three, costs those above it at most one batch of 16: a
 *     share keeps its size under any load, where promotion by age would make all equal as soon as
 *     queues are longer than the age.
 *   - Places: a full queue belongs to nobody. An item that arrives pushes out the newest one, of
 *     its worst priority, of the flow that has most queued, if that flow still has no less than its
 *     own then. Counted and pushed out are requests of its own priority and worse; so n flows keep
 *     at least 1/n of those places each. If all of them are less than 1/16 of the queue, all
 *     requests count: a flood of a better priority does not shut out the worse ones.
 *   - Deadlines are checked when an item is dequeued (here) and right before launch (by the
 *     caller). And an item that will hardly make its own is refused when it arrives: if what is
 *     ahead of it (what runs; its model's queue of better priorities; of its own priority what its
 *     flow has queued, as much of each other flow, and the first request of each; of other models'
 *     queues as often the first request of each flow as it has requests queued itself, and once
 *     more), at the pace that batches were seen to have, leaves too little time.
 *     Without that a queue under overload holds nothing but requests about to expire, and what runs
 *     is answered too late. A quarter of the wait and four deviations of its own batch are kept in
 *     reserve. Its own batch counts only if others of its model wait, or run on the last worker: so
 *     a pace that was wrong is measured again.
 *   - At its dequeue an item also counts as expired if a full batch would end (its mean time and
 *     two deviations from now) after the deadline, and at least max_batch instances of its shape
 *     key wait besides: its place goes to one that makes it. Else, after a moment in which nothing
 *     ran, each request of a first-in-first-out queue is taken right before its deadline and
 *     answered right after it, until the whole queue is gone.
 *   - Within a model, of the shape keys that may go now, the one whose first request has the best
 *     priority goes first, then the one whose first request has the earliest turn.
 *   - Among models the one whose head (the first request of its next batch) has waited longest
 *     against its max_delay_ns goes first: the least time + max_delay_ns, counted from its arrival,
 *     or from when it became the first of its flow. So a backlog does not go before other models.
 *   - Draining: no new items; what is queued no longer waits for company.
 *
 * Costs: a submit, a cancel and a step take a constant number of list operations and O(log n) heap
 * operations over the models, shape keys and flows that have something queued; so does each item
 * that leaves, but if all waiting ones came in the order of their turns: then it is list operations
 * alone. To find who has most queued, when the queue is full, is O(log n) for each item that has
 * left since. A submit with a deadline looks at each worker. Memory: one small record for each
 * distinct shape key that waits at the same time, kept for reuse: the most that ever waited at
 * once, never more than the queue's limit. So too for flows, but a record is kept for one that has
 * nothing queued until the queue's limit is reached: it knows what the flow has had.
 *
 * Time that goes backwards (callers on several threads read their clocks before they take the lock)
 * counts as standing still.
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
    BATCHER_SHARE = 16,       /* worse priorities keep one batch and one place of so many */
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

    uint64_t arrival_ns;         /* set by batcher_submit */
    uint64_t late_ns;            /* so too: refused for it, it would miss its deadline by so much */
    struct batcher_model *model; /* NULL unless queued */
    struct flow *of;
    struct heap_node turn; /* when it goes, of its priority, and how to know equals apart */
    uint64_t front_ns;     /* since when it is the first of its flow; before that, its arrival */
    struct batcher_item *prev, *next;
    struct batcher_item *older, *newer;
    struct batcher_item *flow_prev, *flow_next;
};

struct batcher_model_config {
    uint32_t max_batch;
    uint64_t max_delay_ns;
    uint32_t queue_limit; /* items */
    uint32_t n_preferred;
    uint32_t preferred[BATCHER_MAX_PREFERRED]; /* rising, each <= max_batch */
    void *user;
};

/* What one call decided: at most one batch, and the items that expired while it looked. */
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
 * larger than max_batch runs alone, and one that is beyond queue_limit keeps its place. */
enum status batcher_model_configure(struct batcher_model *model,
                                    const struct batcher_model_config *config, struct error *err);
/* No new items; what is queued runs without waiting for company. */
void batcher_model_drain(struct batcher_model *model);
/* Only when its queue is empty. */
void batcher_model_remove(struct batcher_model *model);
void *batcher_model_user(const struct batcher_model *model);

struct batcher_model_stats {
    uint32_t queued_items, queued_instances;
    uint64_t oldest_arrival_ns; /* BATCHER_NEVER if empty */
    uint64_t batches, instances, expired, refused;
    uint64_t hopeless; /* of the refused: for their deadlines */
};
void batcher_model_stats(const struct batcher_model *model, struct batcher_model_stats *out);

/* Event: an item arrives. Returns why it is refused, or CAUSE_OK: QUEUE_FULL; DEADLINE_HOPELESS,
 * with item->late_ns > 0; DRAINING; OUT_OF_MEMORY; INVALID_ARGUMENT (instances or priority out of
 * range). `*evicted`: the item that was pushed out for it, which counts as refused, or NULL. Follow
 * with batcher_step. */
enum cause batcher_submit(struct batcher_model *model, struct batcher_item *item, uint64_t now_ns,
                          struct batcher_item **evicted);

/* Event: the item is no longer wanted. True: it was queued and now is not; false: it had left. */
bool batcher_cancel(struct batcher_item *item);

/* Events: a worker can take a batch; a worker no longer can (it stops). */
void batcher_worker_idle(struct batcher *batcher, uint32_t worker);
void batcher_worker_gone(struct batcher *batcher, uint32_t worker);

/* Event: the worker's batch has ended, `ran_ns` after the step that formed it; `instances` of it
 * really ran, which may be none. Before the worker is idle again. */
void batcher_worker_ran(struct batcher *batcher, uint32_t worker, uint32_t instances,
                        uint64_t ran_ns);

/* Everything drains. */
void batcher_drain(struct batcher *batcher);

/* Event: time. Decides at most one batch; call again while it gives one. */
void batcher_step(struct batcher *batcher, uint64_t now_ns, struct batcher_decision *out);

#endif
