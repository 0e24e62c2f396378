/* SPDX-License-Identifier: Apache-2.0 */
/* One shape key's queue; see group.h. */
#include "batching/group.h"

#include <utlist.h>

#include "base/compiler.h"

/* The item would expire while it waits for others to join its batch, so it does not wait. */
static bool is_urgent(const struct batcher_item *item, const struct batcher_model_config *config)
{
    return item->deadline_ns != BATCHER_NEVER &&
           item->deadline_ns <= time_add(item->arrival_ns, config->max_delay_ns);
}

/* --- lines --- */

static struct batcher_item *stray_of(struct heap_node *node)
{
    return CONTAINER_OF(node, struct batcher_item, turn);
}

static bool earlier(const struct batcher_item *a, const struct batcher_item *b)
{
    return a->turn.key != b->turn.key ? a->turn.key < b->turn.key : a->turn.tie < b->turn.tie;
}

static void line_push(struct line *line, struct batcher_item *item)
{
    if (!line->run || earlier(line->run->prev, item)) {
        DL_APPEND(line->run, item);
    } else {
        item->prev = NULL;
        heap_insert(&line->strays, &item->turn, item->turn.key, item->turn.tie);
    }
}

static void line_pull(struct line *line, struct batcher_item *item)
{
    if (item->prev)
        DL_DELETE(line->run, item);
    else
        heap_remove(&line->strays, &item->turn);
}

static struct batcher_item *line_first(const struct line *line)
{
    struct batcher_item *stray = line->strays ? stray_of(line->strays) : NULL;
    return stray && (!line->run || earlier(stray, line->run)) ? stray : line->run;
}

/* --- all of them --- */

static void enter(struct group *group, struct batcher_item *item,
                  const struct batcher_model_config *config)
{
    DL_APPEND2(group->oldest, item, older, newer);
    group->items++;
    group->instances += item->instances;
    group->urgent += is_urgent(item, config);
}

static void leave(struct group *group, struct batcher_item *item,
                  const struct batcher_model_config *config)
{
    DL_DELETE2(group->oldest, item, older, newer);
    group->items--;
    group->instances -= item->instances;
    group->urgent -= is_urgent(item, config);
}

void group_push(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config)
{
    line_push(&group->line[item->priority], item);
    enter(group, item, config);
}

void group_pull(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config)
{
    line_pull(&group->line[item->priority], item);
    leave(group, item, config);
}

void group_recount(struct group *group, const struct batcher_model_config *config)
{
    const struct batcher_item *item;
    group->urgent = 0;
    DL_FOREACH2(group->oldest, item, newer)
    group->urgent += is_urgent(item, config);
}

struct batcher_item *group_first(const struct group *group, uint32_t priority)
{
    return line_first(&group->line[priority]);
}

uint64_t group_oldest(const struct group *group)
{
    return group->oldest ? group->oldest->arrival_ns : BATCHER_NEVER;
}

/* --- when, and how many --- */

/* The largest of the sizes worth running at once that has been reached; 0: none. */
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

/* --- a batch --- */

/* The item that is the next for a batch, before it is known whether it fits. NULL: none is left. */
static struct batcher_item *next_of(const struct group *group, uint32_t lead, bool led)
{
    struct batcher_item *item = led ? NULL : line_first(&group->line[lead]);
    for (uint32_t p = 0; !item && p < BATCHER_PRIORITIES; p++)
        item = line_first(&group->line[p]);
    return item;
}

/* The item would be answered too late, in a place that another one can use. */
static bool is_in_vain(const struct group *group, const struct batcher_model_config *config,
                       const struct batcher_item *item, uint64_t end_ns)
{
    return item->deadline_ns < end_ns &&
           group->instances >= (uint64_t)config->max_batch + item->instances;
}

/* Puts the items back where they were taken from, before all others. */
static void put_back(struct group *group, struct batcher_item *batch)
{
    while (batch) {
        struct batcher_item *last = batch->prev;
        DL_DELETE(batch, last); /* NOLINT: the analyser loses utlist's ring */
        DL_PREPEND(group->line[last->priority].run, last);
    }
}

uint32_t group_take(struct group *group, const struct batcher_model_config *config, uint32_t lead,
                    uint64_t now_ns, uint64_t end_ns, struct batcher_item **batch,
                    struct batcher_item **expired)
{
    uint32_t limit = reached(group, config), items = 0, instances = 0;
    struct batcher_item *item, *taken = NULL;
    limit = limit ? limit : config->max_batch;
    while (items == 0 || (instances < limit && items < BATCHER_MAX_ITEMS)) {
        item = next_of(group, lead, items > 0);
        if (!item)
            break;
        bool late = item->deadline_ns <= now_ns || is_in_vain(group, config, item, end_ns);
        /* The first item always fits: if it was admitted under a larger limit, or is larger than
         * the preferred size that others made up, it runs alone. */
        if (!late && items > 0 && item->instances > limit - instances)
            break;
        line_pull(&group->line[item->priority], item);
        if (late) {
            leave(group, item, config);
            DL_APPEND(*expired, item);
        } else {
            DL_APPEND(taken, item);
            instances += item->instances;
            items++;
        }
    }
    if (*expired) {
        put_back(group, taken);
        return 0;
    }
    DL_FOREACH(taken, item)
    leave(group, item, config);
    *batch = taken;
    return instances;
}
