/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batcher's decision, see batcher.h for the rules and group.h for one shape key's queue.
 *
 * Three kinds of heap make a step independent of how many models there are:
 *   waiting   of the batcher: groups that wait for company, by the time at which they may go;
 *   ready     of each model: groups that may go, by (priority, arrival) of their heads;
 *   turn      of the batcher: models with a ready group, by the time their heads were due.
 * A step moves what has come due from `waiting` to `ready` and takes the root of `turn`.
 */
#include "batching/batcher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/compiler.h"
#include "batching/group.h"
#include "batching/pace.h"

enum { IDLE_WORDS = BATCHER_MAX_WORKERS / 64 };

struct batcher_model {
    struct batcher *batcher;
    struct batcher_model_config config;
    bool draining;
    uint32_t items, instances;
    uint32_t waiting[BATCHER_PRIORITIES]; /* instances */
    uint32_t running;                     /* batches */
    struct pace pace;
    uint64_t backlog_ns;         /* what its queue will take on one worker */
    struct group *groups;        /* uthash by key */
    struct group *idle;          /* utlist DL of the empty ones, the longest unused first */
    struct heap_node *ready;     /* of groups */
    struct heap_node turn;       /* in batcher->turn while `ready` is not empty */
    struct heap_node *turn_head; /* the `ready` it was placed for; NULL: not in batcher->turn */
    struct batcher_model *prev, *next;
    uint64_t batches, batched_instances, expired, refused, hopeless;
};

struct batcher {
    uint64_t idle[IDLE_WORDS];                       /* a bit for each idle worker */
    uint64_t busy[IDLE_WORDS];                       /* so for those that have a batch */
    struct batcher_model *runs[BATCHER_MAX_WORKERS]; /* of the batch; NULL: it has ended */
    uint64_t busy_until_ns[BATCHER_MAX_WORKERS];     /* as far as one can tell */
    uint64_t backlog_ns;                             /* the sum of the models' */
    uint64_t now_ns;                                 /* the latest seen */
    bool draining;
    struct heap_node *waiting; /* of groups */
    struct heap_node *turn;    /* of models */
    struct batcher_model *models;
};

static struct group *group_of(struct heap_node *node)
{
    return CONTAINER_OF(node, struct group, node);
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

/* ---- how long it takes ---- */

/* After the queue or the pace of the model changed. Saturates: what will take for ever. */
static void tally(struct batcher_model *model)
{
    enum { MOST = 1 << 16 }; /* models whose sum stays in range */
    uint64_t now = pace_queue_ns(&model->pace, model->instances, NULL);
    now = MIN(now, UINT64_MAX / MOST);
    model->batcher->backlog_ns += now - model->backlog_ns; /* may wrap on the way */
    model->backlog_ns = now;
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

/* Until a worker is free for what comes behind `ahead_ns` of work. */
static uint64_t wait_ns(struct hands hands, uint64_t ahead_ns)
{
    uint64_t shared = time_add(hands.busy_ns, ahead_ns) / MAX(hands.all, 1U);
    return hands.idle ? MIN(shared, ahead_ns / hands.idle) : shared;
}

/* By how much a new item would miss its deadline, for all one can tell; 0: it has a chance. */
static uint64_t late_ns(const struct batcher_model *model, const struct batcher_item *item,
                        uint64_t now_ns)
{
    const struct batcher *batcher = model->batcher;
    if (item->deadline_ns == BATCHER_NEVER)
        return 0;
    uint32_t rest;
    uint64_t before = 0;
    for (uint32_t p = 0; p <= item->priority; p++)
        before += model->waiting[p];
    uint64_t ahead_ns = time_add(batcher->backlog_ns - model->backlog_ns,
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

/* ---- places ---- */

/* Puts the model where its best ready group belongs among the others. */
static void place_model(struct batcher_model *model)
{
    struct batcher *batcher = model->batcher;
    if (model->turn_head)
        heap_remove(&batcher->turn, &model->turn);
    model->turn_head = model->ready;
    if (!model->ready)
        return;
    uint64_t arrival_ns = group_head(group_of(model->ready))->arrival_ns;
    heap_insert(&batcher->turn, &model->turn, time_add(arrival_ns, model->config.max_delay_ns),
                arrival_ns);
}

static void unplace(struct group *group)
{
    switch (group->place) {
    case GROUP_IDLE:
        DL_DELETE(group->model->idle, group);
        break;
    case GROUP_WAITING:
        heap_remove(&group->model->batcher->waiting, &group->node);
        break;
    case GROUP_READY:
        heap_remove(&group->model->ready, &group->node);
        break;
    }
}

static void make_ready(struct group *group)
{
    const struct batcher_item *head = group_head(group);
    heap_insert(&group->model->ready, &group->node, head->priority, head->arrival_ns);
    group->place = GROUP_READY;
}

/* After the group or its model's limits changed. */
static void place(struct group *group)
{
    struct batcher_model *model = group->model;
    bool was_ready = group->place == GROUP_READY;
    unplace(group);
    if (group->items == 0) {
        DL_APPEND(model->idle, group);
        group->place = GROUP_IDLE;
    } else {
        uint64_t due_ns = model->draining ? 0 : group_due(group, &model->config);
        if (due_ns == 0) {
            make_ready(group);
        } else {
            heap_insert(&model->batcher->waiting, &group->node, due_ns, 0);
            group->place = GROUP_WAITING;
        }
    }
    if (was_ready || group->place == GROUP_READY)
        place_model(model);
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

/* What has waited long enough may go. */
static void ripen(struct batcher *batcher, uint64_t now_ns)
{
    while (batcher->waiting && batcher->waiting->key <= now_ns) {
        struct group *group = group_of(batcher->waiting);
        unplace(group);
        make_ready(group);
        place_model(group->model);
    }
}

/* ---- models ---- */

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
    enum status status = check_config(config, err);
    if (status)
        return status;
    struct batcher_model *model = calloc(1, sizeof(*model));
    if (!model)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a model's queue");
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
    enum status status = check_config(config, err);
    if (status)
        return status;
    if (config->max_batch != model->config.max_batch)
        pace_limit(&model->pace, config->max_batch);
    model->config = *config;
    tally(model);
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

void batcher_drain(struct batcher *batcher)
{
    batcher->draining = true;
    for (struct batcher_model *model = batcher->models; model; model = model->next)
        batcher_model_drain(model);
}

/* ---- items ---- */

static struct group *group_find(struct batcher_model *model, uint64_t key)
{
    struct group *group;
    HASH_FIND(hh, model->groups, &key, sizeof(key), group);
    return group;
}

/* An idle group for a key that has none: the longest unused one, or a new one while there are few;
 * shapes come back, so a few stay with their keys. NULL: no memory. */
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

enum status batcher_submit(struct batcher_model *model, struct batcher_item *item, uint64_t now_ns,
                           struct error *err)
{
    const struct batcher_model_config *config = &model->config;
    now_ns = advance(model->batcher, now_ns);
    item->late_ns = 0;
    if (item->instances == 0 || item->instances > config->max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u instances; this model takes 1 to %u",
                         item->instances, config->max_batch);
    if (item->priority >= BATCHER_PRIORITIES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "priority %u; they are 0 (first) to %d",
                         item->priority, BATCHER_PRIORITIES - 1);
    if (model->draining) {
        model->refused++;
        return error_set(err, STATUS_UNAVAILABLE, "the model is being drained");
    }
    if (model->items >= config->queue_limit) {
        model->refused++;
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "the model's queue of %u requests is full",
                         config->queue_limit);
    }
    item->late_ns = late_ns(model, item, now_ns);
    if (item->late_ns) {
        model->refused++;
        model->hopeless++;
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "the model's queue is too long for the request's deadline");
    }
    struct group *group = group_find(model, item->shape_key);
    if (!group && !(group = group_make(model, item->shape_key))) {
        model->refused++;
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for another input shape");
    }
    item->arrival_ns = now_ns;
    item->model = model;
    group_push(group, item, config);
    model->items++;
    model->instances += item->instances;
    model->waiting[item->priority] += item->instances;
    tally(model);
    /* Behind others of its priority in a group that is ready anyway it changes no order. */
    if (group->place != GROUP_READY || group->queue[item->priority] == item)
        place(group);
    return STATUS_OK;
}

/* The items of a list that left the queue are nobody's. */
static uint32_t release(struct batcher_model *model, struct batcher_item *list)
{
    uint32_t count = 0;
    for (struct batcher_item *item = list; item; item = item->next) {
        item->model = NULL;
        model->items--;
        model->instances -= item->instances;
        model->waiting[item->priority] -= item->instances;
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
    release(model, item);
    place(group);
    return true;
}

/* ---- workers ---- */

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

/* It has a batch of the model. */
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
    tally(model);
}

/* The idle worker of the lowest number, so that few stay warm under a light load; or
 * BATCHER_MAX_WORKERS. */
static uint32_t idle_worker(const struct batcher *batcher)
{
    for (uint32_t i = 0; i < IDLE_WORDS; i++) {
        if (batcher->idle[i])
            return i * 64 + (uint32_t)__builtin_ctzll(batcher->idle[i]);
    }
    return BATCHER_MAX_WORKERS;
}

/* ---- the step ---- */

/* When a full batch that starts now will have ended, for all one can tell. */
static uint64_t full_end_ns(const struct batcher_model *model, uint64_t now_ns)
{
    struct pace_time own = pace_batch(&model->pace, model->config.max_batch);
    return time_add(now_ns, time_add(own.mean_ns, own.deviation_ns * 2));
}

/* Forms the batch of the model whose turn it is, if any may go. */
static void form(struct batcher *batcher, uint64_t now_ns, uint32_t worker,
                 struct batcher_decision *out)
{
    while (batcher->turn && !out->model) {
        struct batcher_model *model = CONTAINER_OF(batcher->turn, struct batcher_model, turn);
        struct group *group = group_of(model->ready);
        struct batcher_item *expired = NULL;
        if (group_expire(group, &model->config, now_ns, full_end_ns(model, now_ns), &expired)) {
            /* What made it ready may have gone with them: look again. */
            model->expired += release(model, expired);
            DL_CONCAT(out->expired, expired);
        } else {
            out->model = model;
            out->worker = worker;
            bool enough = model->instances >= model->config.max_batch;
            out->instances = group_take(group, &model->config, &out->batch);
            release(model, out->batch);
            model->batches++;
            model->batched_instances += out->instances;
            if (enough)
                pace_formed(&model->pace, out->instances);
            worker_runs(batcher, worker, model, out->instances, now_ns);
        }
        place(group);
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
