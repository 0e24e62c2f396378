/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one model that wait with one shape key: a line for each priority, in the order of
 * their turns (flow.h), and what the rules of batcher.h say about them as a whole. Private to this
 * folder; groups know nothing of flows, workers or other groups.
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
    GROUP_WAITING, /* for company, in the batcher's heap by time */
    GROUP_READY,   /* may go, in its model's heaps, of each priority that it has, by turn */
};

/* In the order of turns. Mostly each comes behind all others, as when one flow sends, or each flow
 * has one request: they are the run. Who comes to stand before others is a stray. */
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
    struct heap_node ready[BATCHER_PRIORITIES]; /* in its model's, */
    bool has[BATCHER_PRIORITIES];               /* if it is in that one */
    struct group *prev, *next;                  /* on the list of idle groups */
    UT_hash_handle hh; /* in its model's table, by key; also while it is idle */
};

/* a + b, or BATCHER_NEVER if that is beyond it. */
static inline uint64_t time_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? BATCHER_NEVER : sum;
}

/* Adds where its turn says; takes out. Both keep the counts; `config` is the model's. */
void group_push(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);
void group_pull(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);

/* After max_delay_ns changed: counts the urgent anew. */
void group_recount(struct group *group, const struct batcher_model_config *config);

/* Who goes first of a priority; NULL if none is there. */
struct batcher_item *group_first(const struct group *group, uint32_t priority);

/* When the oldest of any priority arrived; BATCHER_NEVER if empty. */
uint64_t group_oldest(const struct group *group);

/* When it may go: 0 for at once (but for the drain, which its model knows). Not empty. */
uint64_t group_due(const struct group *group, const struct batcher_model_config *config);

/*
 * Takes out the next batch, onto `*batch` (utlist DL), and returns its instances: first of all who
 * is first of the priority `lead`, then by priority. The group has requests of that priority.
 *
 * If some that it looks at have expired, or will before `end_ns`, when that batch ends, while they
 * leave max_batch instances, then it takes out these alone, onto `*expired`, and returns 0: what
 * is left may want to wait for company.
 */
uint32_t group_take(struct group *group, const struct batcher_model_config *config, uint32_t lead,
                    uint64_t now_ns, uint64_t end_ns, struct batcher_item **batch,
                    struct batcher_item **expired);

#endif
