/* SPDX-License-Identifier: Apache-2.0 */
/* One shape key's queue; see group.h. */
#include "batching/group.h"

#include <utlist.h>

/* It would expire while it waits for company, so it does not wait. */
static bool is_urgent(const struct batcher_item *item, const struct batcher_model_config *config)
{
    return item->deadline_ns != BATCHER_NEVER &&
           item->deadline_ns <= time_add(item->arrival_ns, config->max_delay_ns);
}

void group_push(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config)
{
    DL_APPEND(group->queue[item->priority], item);
    group->items++;
    group->instances += item->instances;
    group->urgent += is_urgent(item, config);
}

void group_pull(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config)
{
    DL_DELETE(group->queue[item->priority], item);
    group->items--;
    group->instances -= item->instances;
    group->urgent -= is_urgent(item, config);
}

void group_recount(struct group *group, const struct batcher_model_config *config)
{
    group->urgent = 0;
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++) {
        const struct batcher_item *item;
        DL_FOREACH(group->queue[p], item)
        group->urgent += is_urgent(item, config);
    }
}

const struct batcher_item *group_head(const struct group *group)
{
    uint32_t p = 0;
    while (!group->queue[p])
        p++;
    return group->queue[p];
}

uint64_t group_oldest(const struct group *group)
{
    uint64_t oldest = BATCHER_NEVER;
    for (uint32_t p = 0; p < BATCHER_PRIORITIES; p++) {
        if (group->queue[p] && group->queue[p]->arrival_ns < oldest)
            oldest = group->queue[p]->arrival_ns;
    }
    return oldest;
}

/* The largest size worth running at once that has been reached; 0 if none has. */
static uint32_t reached(const struct group *group, const struct batcher_model_config *config)
{
    if (group->instances >= config->max_batch)
        return config->max_batch;
    for (uint32_t i = config->n_preferred; i > 0; i--) {
        if (group->instances >= config->preferred[i - 1])
            return config->preferred[i - 1];
    }
    return 0;
}

uint64_t group_due(const struct group *group, const struct batcher_model_config *config)
{
    if (config->max_delay_ns == 0 || group->urgent > 0 || group->items >= BATCHER_MAX_ITEMS ||
        reached(group, config))
        return 0;
    return time_add(group_oldest(group), config->max_delay_ns);
}

/* Walks the items of a batch in their order. */
struct walk {
    uint32_t limit, items, instances;
    uint32_t priority;
    struct batcher_item *next;
};

static struct walk walk_start(const struct group *group, const struct batcher_model_config *config)
{
    uint32_t limit = reached(group, config);
    return (struct walk){.limit = limit ? limit : config->max_batch, .next = group->queue[0]};
}

/* The next candidate, before it is known whether it fits; NULL at the end or once full. */
static struct batcher_item *walk_peek(struct walk *walk, const struct group *group)
{
    if (walk->items > 0 && (walk->instances >= walk->limit || walk->items >= BATCHER_MAX_ITEMS))
        return NULL;
    while (!walk->next && walk->priority + 1 < BATCHER_PRIORITIES)
        walk->next = group->queue[++walk->priority];
    return walk->next;
}

/* The first always fits: admitted under a larger limit, or larger than the preferred size that
 * others made up, it runs alone. */
static bool walk_fits(const struct walk *walk, const struct batcher_item *item)
{
    return walk->items == 0 || item->instances <= walk->limit - walk->instances;
}

static void walk_count(struct walk *walk, const struct batcher_item *item)
{
    walk->items++;
    walk->instances += item->instances;
}

/* It would be answered too late, in a place that another one can have. */
static bool is_in_vain(const struct group *group, const struct batcher_model_config *config,
                       const struct batcher_item *item, uint64_t end_ns)
{
    return item->deadline_ns < end_ns &&
           group->instances >= (uint64_t)config->max_batch + item->instances;
}

uint32_t group_expire(struct group *group, const struct batcher_model_config *config,
                      uint64_t now_ns, uint64_t end_ns, struct batcher_item **expired)
{
    uint32_t count = 0;
    struct walk walk = walk_start(group, config);
    for (struct batcher_item *item; (item = walk_peek(&walk, group)) != NULL;) {
        walk.next = item->next;
        if (item->deadline_ns <= now_ns || is_in_vain(group, config, item, end_ns)) {
            group_pull(group, item, config);
            DL_APPEND(*expired, item);
            count++;
        } else if (walk_fits(&walk, item)) {
            walk_count(&walk, item);
        } else {
            break;
        }
    }
    return count;
}

uint32_t group_take(struct group *group, const struct batcher_model_config *config,
                    struct batcher_item **batch)
{
    struct walk walk = walk_start(group, config);
    for (struct batcher_item *item; (item = walk_peek(&walk, group)) != NULL;) {
        if (!walk_fits(&walk, item))
            break;
        walk.next = item->next;
        walk_count(&walk, item);
        group_pull(group, item, config);
        DL_APPEND(*batch, item);
    }
    return walk.instances;
}
