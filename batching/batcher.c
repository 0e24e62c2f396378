/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batcher's decision; see batcher.h for the rules, group.h for the queue of one shape key, and
 * flow.h for whose turn it is.
 *
 * Three kinds of heap make the cost of a step independent of the number of models:
 *
 *   waiting   of the batcher: groups that wait for more requests, by the time when they may go;
 *   ready     of each model and priority: groups that may go, by the turns of their first;
 *   turn      of the batcher: models with a ready group, by the time when their heads were due.
 *
 * A step moves what has come due from `waiting` to `ready` and takes the root of `turn`.
 */
#include "batching/batcher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/compiler.h"
#include "batching/flow.h"
#include "batching/group.h"
#include "batching/pace.h"

enum { IDLE_WORDS = BATCHER_MAX_WORKERS / 64 };

/* The time that what is queued will take, on one worker. */
struct work {
    uint64_t all_ns, firsts_ns; /* all of it; the first request of each flow */
};

struct batcher_model {
    struct batcher *batcher;
    struct batcher_model_config config;
    bool draining;
    uint32_t items, instances;
    struct flows flows;
    uint32_t running; /* batches */
    struct pace pace;
    struct work work;
    uint64_t tallied_firsts; /* instances that work.firsts_ns is for */
    struct group *groups;    /* uthash by key */
    struct group *idle;      /* utlist DL of the empty ones, the longest first */
    struct heap_node *ready[BATCHER_PRIORITIES]; /* of groups */
    uint32_t passed[BATCHER_PRIORITIES];         /* batches since its first could have gone */
    struct heap_node turn;                       /* in batcher->turn while a group is ready */
    bool placed;                                 /* it is there */
    struct batcher_model *prev, *next;
    uint64_t batches, batched_instances, expired, refused, hopeless;
};

struct batcher {
    uint64_t idle[IDLE_WORDS];                       /* a bit for each idle worker */
    uint64_t busy[IDLE_WORDS];                       /* a bit for each worker that has a batch */
    struct batcher_model *runs[BATCHER_MAX_WORKERS]; /* the model of its batch; NULL: none */
    uint64_t busy_until_ns[BATCHER_MAX_WORKERS];     /* an estimate */
    struct work work;                                /* the sum of the models' */
    uint64_t now_ns;                                 /* the latest seen */
    bool draining;
    struct heap_node *waiting; /* of groups */
    struct heap_node *turn;    /* of models */
    struct batcher_model *models;
};

static struct group *waiting_group(struct heap_node *node)
{
    return CONTAINER_OF(node, struct group, waiting);
}

static struct group *ready_group(const struct batcher_model *model, uint32_t priority)
{
    return CONTAINER_OF(model->ready[priority], struct group, ready[priority]);
}

struct batcher *batcher_new(void)
{
    return calloc(1, sizeof(struct batcher));
}

void batcher_free(struct batcher *batcher)
{
    if (!batcher)
        return;
    while (batcher->models)
        batcher_model_remove(batcher->models); /* NOLINT: it leaves the list */
    free(batcher);
}

static uint64_t advance(struct batcher *batcher, uint64_t now_ns)
{
    if (now_ns > batcher->now_ns)
        batcher->now_ns = now_ns;
    return batcher->now_ns;
}

/* --- how long it takes --- */

/* The time of so many instances on one worker. Saturates, so that sums over models stay in
 * range. */
static uint64_t queue_ns(const struct batcher_model *model, uint64_t instances)
{
    enum { MOST = 1 << 16 }; /* models whose sum stays in range */
    return MIN(pace_queue_ns(&model->pace, instances, NULL), UINT64_MAX / MOST);
}

/* Brings the sums of work up to date after the model's queue has changed. */
static void tally(struct batcher_model *model)
{
    struct work now = model->work, *all = &model->batcher->work;
    uint64_t firsts = 0;
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++)
        firsts += model->flows.level[p].first_instances;
    now.all_ns = queue_ns(model, model->instances);
    if (firsts != model->tallied_firsts)
        now.firsts_ns = firsts == model->instances ? now.all_ns : queue_ns(model, firsts);
    model->tallied_firsts = firsts;
    all->all_ns += now.all_ns - model->work.all_ns; /* may wrap on the way */
    all->firsts_ns += now.firsts_ns - model->work.firsts_ns;
    model->work = now;
}

/* The same after the model's pace has changed. */
static void tally_anew(struct batcher_model *model)
{
    model->tallied_firsts = UINT64_MAX;
    tally(model);
}

/* The time that other models take before an item of that flow and priority: the first request of
 * each of their flows, and again for each request that goes before the item in its own flow. */
static uint64_t others_ns(const struct batcher_model *model, const struct flow *flow,
                          uint32_t priority)
{
    const struct work *all = &model->batcher->work, *own = &model->work;
    uint64_t rounds = 1, ns;
    if (flow)
        rounds += flow_items_before(flow, priority);
    if (__builtin_mul_overflow(all->firsts_ns - own->firsts_ns, rounds, &ns))
        return all->all_ns - own->all_ns;
    return MIN(ns, all->all_ns - own->all_ns);
}

/* How many workers are idle; how many there are; what the busy ones still have to do. */
struct hands {
    uint32_t idle, all;
    uint64_t busy_ns;
};

static struct hands look_at_workers(const struct batcher *batcher, uint64_t now_ns)
{
    struct hands hands = {0, 0, 0};
    for (uint32_t i = 0; i < IDLE_WORDS; i++) {
        hands.idle += (uint32_t)__builtin_popcountll(batcher->idle[i]);
        for (uint64_t left = batcher->busy[i]; left; left &= left - 1) {
            uint64_t until_ns = batcher->busy_until_ns[i * 64 + (uint32_t)__builtin_ctzll(left)];
            hands.busy_ns = time_add(hands.busy_ns, until_ns - MIN(until_ns, now_ns));
            hands.all++;
        }
    }
    hands.all += hands.idle;
    return hands;
}

/* The time until a worker is free, if `ahead_ns` of work comes before. */
static uint64_t wait_ns(struct hands hands, uint64_t ahead_ns)
{
    uint64_t shared = time_add(hands.busy_ns, ahead_ns) / MAX(hands.all, 1U);
    return hands.idle ? MIN(shared, ahead_ns / hands.idle) : shared;
}

/* By how much a new item will probably miss its deadline; 0: it has a chance. */
static uint64_t late_ns(const struct batcher_model *model, const struct batcher_item *item,
                        const struct flow *flow, uint64_t now_ns)
{
    const struct batcher *batcher = model->batcher;
    if (item->deadline_ns == BATCHER_NEVER)
        return 0;
    uint32_t rest;
    uint64_t before = flow_ahead(&model->flows, flow, item->priority);
    uint64_t ahead_ns = time_add(others_ns(model, flow, item->priority),
                                 pace_queue_ns(&model->pace, before, &rest));
    struct hands hands = look_at_workers(batcher, now_ns);
    uint64_t left_ns = wait_ns(hands, ahead_ns);
    left_ns = time_add(left_ns, left_ns / 4);
    if (model->items > 0 || (model->running > 0 && !hands.idle)) {
        uint32_t with = MIN(rest, model->config.max_batch - item->instances);
        struct pace_time own = pace_batch(&model->pace, with + item->instances);
        left_ns = time_add(left_ns, time_add(own.mean_ns, own.deviation_ns * 4));
    }
    uint64_t end_ns = time_add(now_ns, left_ns);
    return left_ns ? end_ns - MIN(end_ns, item->deadline_ns) : 0;
}

/* --- places --- */

/* Returns the priority that leads the next batch: the best one, or a worse one that has been passed
 * over as often as is allowed. BATCHER_PRIORITIES: nothing is ready. */
static uint32_t model_lead(const struct batcher_model *model)
{
    uint32_t lead = 0;
    while (lead < BATCHER_PRIORITIES && !model->ready[lead])
        lead++;
    for (uint32_t p = lead + 1; p < BATCHER_PRIORITIES; p++)
        if (model->ready[p] && model->passed[p] >= BATCHER_SHARE - 1)
            return p;
    return lead;
}

/* Puts the model in its place among the others, by its next batch. */
static void place_model(struct batcher_model *model)
{
    struct batcher *batcher = model->batcher;
    uint32_t lead = model_lead(model);
    if (model->placed)
        heap_remove(&batcher->turn, &model->turn);
    bool full = model->config.max_running && model->running >= model->config.max_running;
    model->placed = lead < BATCHER_PRIORITIES && !full;
    if (!model->placed)
        return;
    uint64_t front_ns = group_first(ready_group(model, lead), lead)->front_ns;
    heap_insert(&batcher->turn, &model->turn, time_add(front_ns, model->config.max_delay_ns),
                front_ns);
}

static void unplace(struct group *group)
{
    struct batcher_model *model = group->model;
    switch (group->place) {
    case GROUP_IDLE:
        DL_DELETE(model->idle, group);
        break;
    case GROUP_WAITING:
        heap_remove(&model->batcher->waiting, &group->waiting);
        break;
    case GROUP_READY:
        for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++)
            if (group->has[p])
                heap_remove(&model->ready[p], &group->ready[p]);
        break;
    }
}

static void make_ready(struct group *group)
{
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++) {
        const struct batcher_item *first = group_first(group, p);
        group->has[p] = first != NULL;
        if (first)
            heap_insert(&group->model->ready[p], &group->ready[p], first->turn.key,
                        first->turn.tie);
    }
    group->place = GROUP_READY;
}

/* Puts the group in its place after the group or its model's limits have changed. */
static void place(struct group *group)
{
    struct batcher_model *model = group->model;
    unplace(group);
    if (group->items == 0) {
        DL_APPEND(model->idle, group);
        group->place = GROUP_IDLE;
    } else {
        uint64_t due_ns = model->draining ? 0 : group_due(group, &model->config);
        if (due_ns == 0) {
            make_ready(group);
        } else {
            heap_insert(&model->batcher->waiting, &group->waiting, due_ns, 0);
            group->place = GROUP_WAITING;
        }
    }
    if (model->placed || group->place == GROUP_READY)
        place_model(model); /* also because another item may now be the first of its flow */
}

static void place_all(struct batcher_model *model)
{
    for (struct group *group = model->groups; group; group = group->hh.next) {
        if (group->items > 0) {
            group_recount(group, &model->config);
            place(group);
        }
    }
}

/* Makes groups ready that have waited long enough. */
static void ripen(struct batcher *batcher, uint64_t now_ns)
{
    while (batcher->waiting && batcher->waiting->key <= now_ns) {
        struct group *group = waiting_group(batcher->waiting);
        unplace(group);
        make_ready(group);
        place_model(group->model);
    }
}

/* --- models --- */

static enum status check_config(const struct batcher_model_config *config, struct error *err)
{
    if (config->max_batch == 0)
        return error_set(err, STATUS_INVALID_ARGUMENT, "max_batch is 0");
    if (config->queue_limit == 0)
        return error_set(err, STATUS_INVALID_ARGUMENT, "queue_limit is 0");
    if (config->n_preferred > BATCHER_MAX_PREFERRED)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u preferred batch sizes, at most %d",
                         config->n_preferred, BATCHER_MAX_PREFERRED);
    uint32_t last = 0;
    for (uint32_t i = 0; i < config->n_preferred; i++) {
        uint32_t size = config->preferred[i];
        if (size <= last || size > config->max_batch)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "preferred batch size %u: they must rise, up to max_batch %u", size,
                             config->max_batch);
        last = size;
    }
    return STATUS_OK;
}

enum status batcher_model_add(struct batcher *batcher, const struct batcher_model_config *config,
                              struct batcher_model **out, struct error *err)
{
    TRY(check_config(config, err));
    struct batcher_model *model = calloc(1, sizeof(*model));
    if (!model)
        return error_no_memory(err, "a model's queue");
    model->batcher = batcher;
    model->config = *config;
    pace_limit(&model->pace, config->max_batch);
    model->draining = batcher->draining;
    DL_APPEND(batcher->models, model);
    *out = model;
    return STATUS_OK;
}

enum status batcher_model_configure(struct batcher_model *model,
                                    const struct batcher_model_config *config, struct error *err)
{
    TRY(check_config(config, err));
    if (config->max_batch != model->config.max_batch)
        pace_limit(&model->pace, config->max_batch);
    model->config = *config;
    tally_anew(model);
    place_all(model);
    return STATUS_OK;
}

void batcher_model_drain(struct batcher_model *model)
{
    model->draining = true;
    place_all(model);
}

void batcher_model_remove(struct batcher_model *model)
{
    assert(model->items == 0);
    struct group *group, *next;
    HASH_ITER(hh, model->groups, group, next)
    {
        HASH_DEL(model->groups, group); /* NOLINT: the analyser loses uthash's list */
        free(group);
    }
    flows_deinit(&model->flows);
    for (uint32_t i = 0; i < BATCHER_MAX_WORKERS && model->running > 0; i++)
        if (model->batcher->runs[i] == model)
            model->batcher->runs[i] = NULL;
    DL_DELETE(model->batcher->models, model);
    free(model);
}

void *batcher_model_user(const struct batcher_model *model)
{
    return model->config.user;
}

void batcher_model_stats(const struct batcher_model *model, struct batcher_model_stats *out)
{
    uint64_t oldest = BATCHER_NEVER;
    for (const struct group *group = model->groups; group; group = group->hh.next)
        oldest = MIN(oldest, group_oldest(group));
    *out = (struct batcher_model_stats){
        .queued_items = model->items,
        .queued_instances = model->instances,
        .oldest_arrival_ns = oldest,
        .batches = model->batches,
        .instances = model->batched_instances,
        .expired = model->expired,
        .refused = model->refused,
        .hopeless = model->hopeless,
    };
}

void batcher_models_visit(const struct batcher *batcher,
                          void (*visit)(const struct batcher_model *model, uint64_t now_ns),
                          uint64_t now_ns)
{
    for (const struct batcher_model *model = batcher->models; model; model = model->next)
        visit(model, now_ns);
}

void batcher_drain(struct batcher *batcher)
{
    batcher->draining = true;
    for (struct batcher_model *model = batcher->models; model; model = model->next)
        batcher_model_drain(model);
}

/* --- items --- */

static struct group *group_find(struct batcher_model *model, uint64_t key)
{
    struct group *group;
    HASH_FIND(hh, model->groups, &key, sizeof(key), group);
    return group;
}

/* Makes a group for a key that has none: the one unused longest, or a new one while there are few.
 * Shapes come back, so a few groups stay with their keys. NULL: no memory. */
static struct group *group_make(struct batcher_model *model, uint64_t key)
{
    enum { KEPT = 16 };
    struct group *group = NULL;
    if (model->idle && HASH_COUNT(model->groups) >= KEPT) {
        group = model->idle;
        HASH_DEL(model->groups, group);
    } else {
        group = calloc(1, sizeof(*group));
        if (!group)
            return NULL;
        group->model = model;
        group->place = GROUP_IDLE;
        DL_APPEND(model->idle, group);
    }
    group->key = key;
    HASH_ADD(hh, model->groups, key, sizeof(group->key), group);
    if (!HASH_ADDED(group)) {
        DL_DELETE(model->idle, group);
        free(group);
        return NULL;
    }
    return group;
}

/* Whether the item can be taken at all, whoever waits. */
static bool item_fits(const struct batcher_model *model, const struct batcher_item *item)
{
    return item->instances > 0 && item->instances <= model->config.max_batch &&
           item->priority < BATCHER_PRIORITIES;
}

/* Refuses the item, or says who has to make room for it. Sets its late_ns. */
static enum cause admit(struct batcher_model *model, struct batcher_item *item,
                        const struct flow *flow, uint64_t now_ns, struct batcher_item **victim)
{
    uint32_t limit = model->config.queue_limit;
    if (model->draining && !item->admitted)
        return CAUSE_DRAINING;
    if (model->items >= limit) {
        *victim = flow_victim(&model->flows, flow, item->priority, limit);
        if (!*victim)
            return CAUSE_QUEUE_FULL;
    }
    item->late_ns = late_ns(model, item, flow, now_ns);
    if (!item->late_ns)
        return CAUSE_OK;
    model->hopeless++;
    return CAUSE_DEADLINE_HOPELESS;
}

/* The records for an item's shape and flow; NULL in either: no memory. */
struct records {
    struct group *group;
    struct flow *flow;
};

static void enqueue(struct batcher_model *model, struct batcher_item *item, struct records to,
                    uint64_t now_ns)
{
    item->arrival_ns = now_ns;
    item->model = model;
    flow_push(&model->flows, to.flow, item);
    group_push(to.group, item, &model->config);
    model->items++;
    model->instances += item->instances;
    tally(model);
    /* Behind others of its priority in a group that is ready anyway, the item changes no order. */
    if (to.group->place != GROUP_READY || group_first(to.group, item->priority) == item)
        place(to.group);
}

enum cause batcher_submit(struct batcher_model *model, struct batcher_item *item, uint64_t now_ns,
                          struct batcher_item **evicted)
{
    struct records to = {.flow = flow_find(&model->flows, item->flow)};
    struct batcher_item *victim = NULL;
    now_ns = advance(model->batcher, now_ns);
    item->late_ns = 0;
    if (!item_fits(model, item))
        return CAUSE_INVALID_ARGUMENT;
    enum cause cause = admit(model, item, to.flow, now_ns, &victim);
    if (cause) {
        model->refused++;
        return cause;
    }
    to.group = group_find(model, item->shape_key);
    if (!to.group)
        to.group = group_make(model, item->shape_key);
    if (to.group && !to.flow)
        to.flow = flow_make(&model->flows, item->flow, model->config.queue_limit);
    if (!to.group || !to.flow) {
        model->refused++;
        return CAUSE_OUT_OF_MEMORY;
    }
    if (victim) {
        batcher_cancel(victim);
        model->refused++;
    }
    enqueue(model, item, to, now_ns);
    *evicted = victim;
    return CAUSE_OK;
}

/* Books out the items of a list, which have left the queue, into a batch (`served`) or not. */
static uint32_t release(struct batcher_model *model, struct batcher_item *list, bool served)
{
    uint32_t count = 0;
    for (struct batcher_item *item = list; item; item = item->next) {
        flow_pull(&model->flows, item, served, model->batcher->now_ns);
        item->model = NULL;
        model->items--;
        model->instances -= item->instances;
        count++;
    }
    tally(model);
    return count;
}

bool batcher_cancel(struct batcher_item *item)
{
    struct batcher_model *model = item->model;
    if (!model)
        return false;
    struct group *group = group_find(model, item->shape_key);
    group_pull(group, item, &model->config);
    item->next = item->prev = NULL;
    release(model, item, false);
    place(group);
    return true;
}

/* --- workers --- */

void batcher_worker_idle(struct batcher *batcher, uint32_t worker)
{
    assert(worker < BATCHER_MAX_WORKERS);
    batcher->idle[worker / 64] |= UINT64_C(1) << worker % 64;
    batcher->busy[worker / 64] &= ~(UINT64_C(1) << worker % 64);
}

void batcher_worker_gone(struct batcher *batcher, uint32_t worker)
{
    assert(worker < BATCHER_MAX_WORKERS);
    batcher->idle[worker / 64] &= ~(UINT64_C(1) << worker % 64);
    batcher->busy[worker / 64] &= ~(UINT64_C(1) << worker % 64);
}

/* Books a batch of the model for the worker. */
static void worker_runs(struct batcher *batcher, uint32_t worker, struct batcher_model *model,
                        uint32_t instances, uint64_t now_ns)
{
    batcher_worker_gone(batcher, worker);
    batcher->busy[worker / 64] |= UINT64_C(1) << worker % 64;
    batcher->busy_until_ns[worker] = time_add(now_ns, pace_batch(&model->pace, instances).mean_ns);
    batcher->runs[worker] = model;
    model->running++;
}

void batcher_worker_ran(struct batcher *batcher, uint32_t worker, uint32_t instances,
                        uint64_t ran_ns)
{
    assert(worker < BATCHER_MAX_WORKERS);
    struct batcher_model *model = batcher->runs[worker];
    batcher->runs[worker] = NULL;
    batcher->busy_until_ns[worker] = 0;
    if (!model)
        return;
    model->running--;
    if (instances > 0)
        pace_ran(&model->pace, instances, ran_ns);
    tally_anew(model);
    place_model(model); /* it may have been at its max_running */
}

/* The idle worker of the lowest number, so that few stay warm under a light load.
 * BATCHER_MAX_WORKERS: none is idle. */
static uint32_t idle_worker(const struct batcher *batcher)
{
    for (uint32_t i = 0; i < IDLE_WORDS; i++) {
        if (batcher->idle[i])
            return i * 64 + (uint32_t)__builtin_ctzll(batcher->idle[i]);
    }
    return BATCHER_MAX_WORKERS;
}

/* --- the step --- */

/* An estimate of when a full batch that starts now will end. */
static uint64_t full_end_ns(const struct batcher_model *model, uint64_t now_ns)
{
    struct pace_time own = pace_batch(&model->pace, model->config.max_batch);
    return time_add(now_ns, time_add(own.mean_ns, own.deviation_ns * 2));
}

/* The first item of each worse priority, if it could go. */
struct firsts {
    const struct batcher_item *item[BATCHER_PRIORITIES];
};

static struct firsts look_at_firsts(const struct batcher_model *model)
{
    struct firsts firsts = {{NULL}};
    for (uint32_t p = 1; p < BATCHER_PRIORITIES; p++)
        if (model->ready[p])
            firsts.item[p] = group_first(ready_group(model, p), p);
    return firsts;
}

/* Counts a batch as passing over the first items that it left behind. True: a priority that was
 * passed over has a right to the next batch. */
static bool count_passed(struct batcher_model *model, const struct firsts *firsts)
{
    bool due = false;
    for (uint32_t p = 1; p < BATCHER_PRIORITIES; p++) {
        const struct batcher_item *first = firsts->item[p];
        if (first && first->model)
            due |= ++model->passed[p] >= BATCHER_SHARE - 1;
        else if (first || model->flows.level[p].flows == 0)
            model->passed[p] = 0;
    }
    return due;
}

/* Gives the batch that was taken to the worker. */
static void give(struct batcher_model *model, uint32_t worker, uint64_t now_ns,
                 struct batcher_decision *out)
{
    bool enough = model->instances >= model->config.max_batch;
    out->model = model;
    out->worker = worker;
    release(model, out->batch, true);
    model->batches++;
    model->batched_instances += out->instances;
    if (enough)
        pace_formed(&model->pace, out->instances);
    worker_runs(model->batcher, worker, model, out->instances, now_ns);
}

/* Forms the batch of the model whose turn it is, if any model may go. */
static void form(struct batcher *batcher, uint64_t now_ns, uint32_t worker,
                 struct batcher_decision *out)
{
    while (batcher->turn && !out->model) {
        struct batcher_model *model = CONTAINER_OF(batcher->turn, struct batcher_model, turn);
        uint32_t lead = model_lead(model);
        struct group *group = ready_group(model, lead);
        struct firsts firsts = look_at_firsts(model);
        struct batcher_item *expired = NULL;
        out->instances = group_take(group, &model->config, lead, now_ns, full_end_ns(model, now_ns),
                                    &out->batch, &expired);
        if (expired) {
            /* What made the group ready may have gone with the expired items, so look again. */
            model->expired += release(model, expired, false);
            DL_CONCAT(out->expired, expired);
        } else {
            give(model, worker, now_ns, out);
        }
        place(group);
        if (out->model && count_passed(model, &firsts))
            place_model(model);
        ripen(batcher, now_ns);
    }
}

void batcher_step(struct batcher *batcher, uint64_t now_ns, struct batcher_decision *out)
{
    *out = (struct batcher_decision){.wake_ns = BATCHER_NEVER};
    now_ns = advance(batcher, now_ns);
    uint32_t worker = idle_worker(batcher);
    if (worker == BATCHER_MAX_WORKERS)
        return;
    ripen(batcher, now_ns);
    form(batcher, now_ns, worker, out);
    if (idle_worker(batcher) == BATCHER_MAX_WORKERS)
        return;
    if (batcher->turn)
        out->wake_ns = now_ns;
    else if (batcher->waiting)
        out->wake_ns = batcher->waiting->key;
}
