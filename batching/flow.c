/* SPDX-License-Identifier: Apache-2.0 */
/* Turns and places of flows; see flow.h. */
#include "batching/flow.h"

#include <stddef.h>
#include <stdlib.h>

#include <utlist.h>

#include "base/compiler.h"

/* --- who has the most --- */

/* A rank is lowered only when somebody asks who has the most. So queues that grow and shrink cost
 * nothing, and each rank that is lowered stands for at least one item that has left. */
static void rank_set(struct flows *flows, struct flow *flow, uint32_t priority)
{
    struct flow_level *level = &flows->level[priority];
    if (flow->most[priority])
        heap_remove(&level->longest, &flow->rank[priority]);
    flow->most[priority] = flow->items[priority];
    if (flow->most[priority])
        heap_insert(&level->longest, &flow->rank[priority], UINT32_MAX - flow->most[priority], 0);
}

static struct flow *longest_of(struct flows *flows, uint32_t priority)
{
    struct flow_level *level = &flows->level[priority];
    while (level->longest) {
        struct flow *flow = CONTAINER_OF(level->longest, struct flow, rank[priority]);
        if (flow->items[priority] == flow->most[priority])
            return flow;
        rank_set(flows, flow, priority);
    }
    return NULL;
}

/* --- records --- */

struct flow *flow_find(const struct flows *flows, uint64_t key)
{
    struct flow *flow;
    HASH_FIND(hh, flows->table, &key, sizeof(key), flow);
    return flow;
}

struct flow *flow_make(struct flows *flows, uint64_t key, uint32_t most)
{
    struct flow *flow = NULL;
    if (flows->idle && HASH_COUNT(flows->table) >= MAX(most, (uint32_t)FLOW_KEPT)) {
        flow = flows->idle;
        HASH_DEL(flows->table, flow);
        DL_DELETE(flows->idle, flow);
        for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++)
            rank_set(flows, flow, p);
        memset(flow, 0, sizeof(*flow));
    } else {
        flow = calloc(1, sizeof(*flow));
        if (!flow)
            return NULL;
    }
    flow->key = key;
    HASH_ADD(hh, flows->table, key, sizeof(flow->key), flow);
    if (!HASH_ADDED(flow)) {
        free(flow);
        return NULL;
    }
    DL_APPEND(flows->idle, flow);
    return flow;
}

void flows_deinit(struct flows *flows)
{
    struct flow *flow, *next;
    HASH_ITER(hh, flows->table, flow, next)
    {
        HASH_DEL(flows->table, flow); /* NOLINT: the analyser loses uthash's list */
        free(flow);
    }
}

/* --- turns --- */

static uint64_t length_of(const struct batcher_item *item)
{
    return (uint64_t)item->instances * FLOW_UNIT;
}

/* Where the next request of the flow would start. */
static uint64_t start_of(const struct flow_level *level, const struct flow_queue *queue)
{
    const struct batcher_item *last = queue->first ? queue->first->flow_prev : NULL;
    return MAX(level->clock, last ? last->turn.key + length_of(last) : queue->served);
}

static void clock_advance(struct flow_level *level, const struct batcher_item *item)
{
    uint64_t each = length_of(item);
    if (level->flows > 1)
        each = (each + level->flows - 1) / level->flows;
    level->clock = MAX(level->clock, item->turn.key) + each;
}

/* --- what is queued --- */

void flow_push(struct flows *flows, struct flow *flow, struct batcher_item *item)
{
    struct flow_level *level = &flows->level[item->priority];
    struct flow_queue *queue = &flow->queue[item->priority];
    item->turn.key = start_of(level, queue);
    item->turn.tie = flows->serial++;
    item->front_ns = item->arrival_ns;
    item->of = flow;
    if (!flow->items[0])
        DL_DELETE(flows->idle, flow);
    if (!queue->first) {
        level->flows++;
        level->first_instances += item->instances;
    }
    level->instances += item->instances;
    queue->instances += item->instances;
    DL_APPEND2(queue->first, item, flow_prev, flow_next);
    for (uint32_t p = 0; p <= item->priority; p++) {
        flows->level[p].items++;
        if (++flow->items[p] > flow->most[p])
            rank_set(flows, flow, p);
    }
}

void flow_pull(struct flows *flows, struct batcher_item *item, bool served, uint64_t now_ns)
{
    struct flow *flow = STEAL(item->of);
    struct flow_level *level = &flows->level[item->priority];
    struct flow_queue *queue = &flow->queue[item->priority];
    bool first = queue->first == item;
    if (served) {
        queue->served = MAX(queue->served, item->turn.key + length_of(item));
        clock_advance(level, item);
    }
    DL_DELETE2(queue->first, item, flow_prev, flow_next);
    level->instances -= item->instances;
    queue->instances -= item->instances;
    if (first) {
        level->first_instances -= item->instances;
        if (queue->first) {
            level->first_instances += queue->first->instances;
            queue->first->front_ns = now_ns;
        } else {
            level->flows--;
        }
    }
    for (uint32_t p = 0; p <= item->priority; p++) {
        flows->level[p].items--;
        flow->items[p]--;
    }
    if (!flow->items[0])
        DL_APPEND(flows->idle, flow);
}

/* --- places --- */

/* Finds the newest item, of the worst priority, of the flow that has most queued at `priority` and
 * worse, if that flow then still has no less than `flow`. */
static struct batcher_item *longest_last(struct flows *flows, const struct flow *flow,
                                         uint32_t priority)
{
    const struct flow *longest = longest_of(flows, priority);
    if (!longest || longest->items[priority] < (flow ? flow->items[priority] : 0) + 2)
        return NULL;
    uint32_t p = BATCHER_PRIORITIES - 1;
    while (!longest->queue[p].first)
        p--;
    return longest->queue[p].first->flow_prev;
}

struct batcher_item *flow_victim(struct flows *flows, const struct flow *flow, uint32_t priority,
                                 uint32_t limit)
{
    struct batcher_item *victim = longest_last(flows, flow, priority);
    if (!victim && flows->level[priority].items < MAX(limit / BATCHER_SHARE, 1U))
        victim = longest_last(flows, flow, 0);
    return victim;
}

/* --- how many go first --- */

uint32_t flow_items_before(const struct flow *flow, uint32_t priority)
{
    return flow->items[0] - (priority + 1 < BATCHER_PRIORITIES ? flow->items[priority + 1] : 0);
}

uint64_t flow_ahead(const struct flows *flows, const struct flow *flow, uint32_t priority)
{
    static const struct flow_queue nothing;
    const struct flow_level *level = &flows->level[priority];
    const struct flow_queue *queue = flow ? &flow->queue[priority] : &nothing;
    uint64_t others = level->flows - (queue->first != NULL), better = 0;
    uint64_t firsts = level->first_instances - (queue->first ? queue->first->instances : 0);
    /* Until the item starts, each other flow gets as many instances as this one is ahead of the
     * clock, and finishes what it has begun. */
    uint64_t lag = (start_of(level, queue) - level->clock) / FLOW_UNIT;
    uint64_t before, own = queue->instances;
    if (__builtin_mul_overflow(lag, others, &before))
        before = level->instances;
    before = MIN(MIN(before, level->instances) + firsts + own, level->instances);
    for (uint32_t p = 0; p < priority; p++)
        better += flows->level[p].instances;
    return better + before;
}
