/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one model that wait with one shape key: a list for each priority, and what the
 * rules of batcher.h say about them as a whole. Private to this folder; groups know nothing of
 * heaps, workers or other groups.
 */
#ifndef INFERD_BATCHING_GROUP_H
#define INFERD_BATCHING_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Keys are one number: Fibonacci hashing; the upper half is well mixed. */
static inline unsigned group_hash(const void *key)
{
    uint64_t k;
    memcpy(&k, key, sizeof(k));
    return (unsigned)(k * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}
#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = group_hash(keyptr))

#include "base/hash.h"
#include "batching/batcher.h"
#include "batching/heap.h"

enum group_place {
    GROUP_IDLE,    /* empty, on its model's list of idle groups */
    GROUP_WAITING, /* for company, in the batcher's heap by time */
    GROUP_READY,   /* may go, in its model's heap by priority and age */
};

struct group {
    uint64_t key;
    struct batcher_model *model;
    struct batcher_item *queue[BATCHER_PRIORITIES]; /* utlist DL */
    uint32_t items, instances;
    uint32_t urgent; /* items that cannot wait max_delay_ns */
    enum group_place place;
    struct heap_node node;     /* in the heap that `place` says */
    struct group *prev, *next; /* on the list of idle groups */
    UT_hash_handle hh;         /* in its model's table, by key; also while it is idle */
};

/* a + b, or BATCHER_NEVER if that is beyond it. */
static inline uint64_t time_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? BATCHER_NEVER : sum;
}

/* Adds at the end of its priority; takes out. Both keep the counts; `config` is the model's. */
void group_push(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);
void group_pull(struct group *group, struct batcher_item *item,
                const struct batcher_model_config *config);

/* After max_delay_ns changed: counts the urgent anew. */
void group_recount(struct group *group, const struct batcher_model_config *config);

/* Who goes first: the oldest of the best priority. The group is not empty. */
const struct batcher_item *group_head(const struct group *group);

/* When the oldest of any priority arrived; BATCHER_NEVER if empty. */
uint64_t group_oldest(const struct group *group);

/* When it may go: 0 for at once (but for the drain, which its model knows). Not empty. */
uint64_t group_due(const struct group *group, const struct batcher_model_config *config);

/* Takes out what has expired of those that the next batch would look at, and what will before
 * `end_ns`, when that batch ends, while it leaves max_batch instances; onto `*expired` (utlist DL).
 * Returns how many. */
uint32_t group_expire(struct group *group, const struct batcher_model_config *config,
                      uint64_t now_ns, uint64_t end_ns, struct batcher_item **expired);

/* Takes out the next batch, onto `*batch` (utlist DL), and returns its instances. Not empty. */
uint32_t group_take(struct group *group, const struct batcher_model_config *config,
                    struct batcher_item **batch);

#endif
