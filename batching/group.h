/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one model that wait with one shape key: a line for each priority, in the order of
 * turns (flow.h), and what the rules of batcher.h say about all of them. Private to this folder;
 * groups know nothing of flows, workers or other groups.
 */
#ifndef INFERD_BATCHING_GROUP_H
#define INFERD_BATCHING_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batching/keys.h"

#include "batching/batcher.h"
#include "batching/heap.h"

enum group_place {
    GROUP_IDLE,    /* empty, on its model's list of idle groups */
    GROUP_WAITING, /* for more requests, in the batcher's heap by time */
    GROUP_READY,   /* may go; in its model's heap of each priority that it has, by turn */
};

/* The items of one priority in the order of turns. Mostly each item goes behind all others, as when
 * one flow sends, or each flow has one request: such items form the run. An item that goes before
 * others of the run is a stray. */
struct line {
    struct batcher_item *run; /* utlist DL by prev, next; rising */
    struct heap_node *strays; /* by item->turn; their prev is NULL */
};

struct group {
    uint64_t key;
    struct batcher_model *model;
    struct line line[BATCHER_PRIORITIES];
    struct batcher_item *oldest; /* utlist DL by older, newer: all, in order of arrival */
    uint32_t items, instances;
    uint32_t urgent; /* items that cannot wait max_delay_ns */
    enum group_place place;
    struct heap_node waiting;                   /* in the batcher's heap */
    struct heap_node ready[BATCHER_PRIORITIES]; /* in its model's heaps */
    bool has[BATCHER_PRIORITIES];               /* whether it is in that heap */
    struct group *prev, *next;                  /* on the list of idle groups */
    UT_hash_handle hh; /* in its model's table, by key; also while it is idle */
};

/* Returns a + b, or BATCHER_NEVER if the sum is beyond that. */
static inline uint64_t time_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? BATCHER_NEVER : sum;
}

/* Add an item by its turn, and take it out. Both keep the counts; `config` is the model's. */
void group_push(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);
void group_pull(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);

/* Counts the urgent items anew, after max_delay_ns has changed. */
void group_recount(struct group *group, const struct batcher_model_config *config);

/* The item of a priority that goes first; NULL: there is none. */
struct batcher_item *group_first(const struct group *group, uint32_t priority);

/* When the oldest item of any priority arrived; BATCHER_NEVER: none is there. */
uint64_t group_oldest(const struct group *group);

/* When a group that is not empty may go; 0: at once. That its model drains is not considered. */
uint64_t group_due(const struct group *group, const struct batcher_model_config *config);

/*
 * Takes out the next batch, onto `*batch` (utlist DL), and returns its instances. The first item of
 * the priority `lead` goes first, and the others follow by priority. The group has items of that
 * priority.
 *
 * An item that it looks at counts as expired if its deadline has passed, or will pass before
 * `end_ns`, the end of that batch, while max_batch other instances wait. If there are such items,
 * only these are taken out, onto `*expired`, and 0 is returned: what is left may want to wait for
 * others.
 */
uint32_t group_take(struct group *group, const struct batcher_model_config *config, uint32_t lead,
                    uint64_t now_ns, uint64_t end_ns, struct batcher_item **batch,
                    struct batcher_item **expired);

#endif
