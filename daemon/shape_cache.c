/* SPDX-License-Identifier: Apache-2.0 */
/* Engines by sizes, see shape_cache.h: a hash table, and a list for each state. */
#include "daemon/shape_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#include <xxhash.h>

#include "base/clock.h"

enum { BUCKETS = 512 };

struct shape_cache {
    struct shape_entry *buckets[BUCKETS];
    struct shape_entry *lists[SHAPE_STATES];
    uint32_t counts[SHAPE_STATES];
    uint64_t bytes;      /* of those that are ready */
    uint64_t last_asker; /* whose entry was built last */
};

struct shape_cache *shape_cache_new(void)
{
    return calloc(1, sizeof(struct shape_cache));
}

void shape_cache_free(struct shape_cache *cache)
{
    for (uint32_t i = 0; cache && i < SHAPE_STATES; i++)
        while (cache->lists[i]) {
            struct shape_entry *shape = cache->lists[i];
            DL_DELETE(cache->lists[i], shape);
            free(shape);
        }
    free(cache);
}

/* --- the table --- */

static bool key_equal(const struct shape_key *a, const struct shape_key *b)
{
    return a->owner == b->owner && a->n == b->n &&
           memcmp(a->values, b->values, a->n * sizeof(a->values[0])) == 0;
}

static struct shape_entry **bucket_of(struct shape_cache *cache, const struct shape_key *key)
{
    uint64_t hash =
        XXH3_64bits_withSeed(key->values, key->n * sizeof(key->values[0]), (uintptr_t)key->owner);
    return &cache->buckets[hash % BUCKETS];
}

static void list_in(struct shape_cache *cache, struct shape_entry *shape, enum shape_state state)
{
    shape->state = state;
    DL_APPEND(cache->lists[state], shape);
    cache->counts[state]++;
    if (state == SHAPE_READY)
        cache->bytes += shape->bytes;
}

static void list_out(struct shape_cache *cache, struct shape_entry *shape)
{
    DL_DELETE(cache->lists[shape->state], shape); /* NOLINT: the analyser loses utlist's ring */
    cache->counts[shape->state]--;
    if (shape->state == SHAPE_READY)
        cache->bytes -= shape->bytes;
    shape->prev = shape->next = NULL;
}

/* Takes it out of the table and of its list; it is the caller's to free. */
static void take_out(struct shape_cache *cache, struct shape_entry *shape)
{
    struct shape_entry **at = bucket_of(cache, &shape->key);
    while (*at != shape)
        at = &(*at)->next_of_bucket;
    *at = shape->next_of_bucket;
    list_out(cache, shape);
}

void shape_cache_forget(struct shape_cache *cache, struct shape_entry *shape)
{
    take_out(cache, shape);
    free(shape);
}

struct shape_entry *shape_cache_find(struct shape_cache *cache, const struct shape_key *key,
                                     uint64_t now_ns)
{
    struct shape_entry *shape = *bucket_of(cache, key);
    while (shape && !key_equal(&shape->key, key))
        shape = shape->next_of_bucket;
    if (!shape || shape->state != SHAPE_FAILED ||
        now_ns - MIN(now_ns, shape->failed_ns) < SHAPE_FAILURE_S * NS_PER_S)
        return shape;
    shape_cache_forget(cache, shape);
    return NULL;
}

void shape_cache_used(struct shape_cache *cache, struct shape_entry *shape)
{
    assert(shape->state == SHAPE_READY);
    if (shape->next) { /* else it is the last already */
        list_out(cache, shape);
        list_in(cache, shape, SHAPE_READY);
    }
}

/* --- the queue --- */

enum cause shape_cache_queue(struct shape_cache *cache, const struct shape_key *key, uint64_t asker,
                             const struct shape_limits *limits, struct shape_entry **out)
{
    uint32_t own = 0;
    const struct shape_entry *each;
    DL_FOREACH(cache->lists[SHAPE_QUEUED], each)
    own += each->asker == asker;
    if (cache->counts[SHAPE_QUEUED] >= limits->queued || own >= (limits->queued + 1) / 2)
        return CAUSE_SHAPES_FULL;
    struct shape_entry *shape = calloc(1, sizeof(*shape));
    if (!shape)
        return CAUSE_OUT_OF_MEMORY;
    struct shape_entry **bucket = bucket_of(cache, key);
    shape->key = *key;
    shape->asker = asker;
    shape->next_of_bucket = *bucket;
    *bucket = shape;
    list_in(cache, shape, SHAPE_QUEUED);
    *out = shape;
    return CAUSE_OK;
}

/* The oldest of those that ask, but not twice the same one while others wait. */
struct shape_entry *shape_cache_next(struct shape_cache *cache)
{
    struct shape_entry *shape = cache->lists[SHAPE_QUEUED];
    while (shape && shape->asker == cache->last_asker)
        shape = shape->next;
    if (!shape)
        shape = cache->lists[SHAPE_QUEUED];
    if (!shape)
        return NULL;
    cache->last_asker = shape->asker;
    list_out(cache, shape);
    list_in(cache, shape, SHAPE_BUILDING);
    return shape;
}

/* --- what became of it --- */

bool shape_cache_room(struct shape_cache *cache, uint64_t bytes, const struct shape_limits *limits,
                      struct shape_entry **out)
{
    struct shape_entry *chain = NULL;
    if (bytes > limits->bytes || !limits->engines)
        return false;
    while (cache->lists[SHAPE_READY] && (cache->counts[SHAPE_READY] >= limits->engines ||
                                         cache->bytes > limits->bytes - bytes)) {
        struct shape_entry *oldest = cache->lists[SHAPE_READY];
        take_out(cache, oldest);
        oldest->next = chain;
        chain = oldest;
    }
    *out = chain;
    return true;
}

void shape_cache_ready(struct shape_cache *cache, struct shape_entry *shape, void *held,
                       uint64_t bytes)
{
    list_out(cache, shape);
    shape->held = held;
    shape->bytes = bytes;
    list_in(cache, shape, SHAPE_READY);
}

void shape_cache_failed(struct shape_cache *cache, struct shape_entry *shape,
                        enum status why_status, uint64_t now_ns)
{
    if (cache->counts[SHAPE_FAILED] == SHAPE_FAILURES)
        shape_cache_forget(cache, cache->lists[SHAPE_FAILED]);
    list_out(cache, shape);
    shape->held = NULL;
    shape->why_status = why_status;
    shape->failed_ns = now_ns;
    list_in(cache, shape, SHAPE_FAILED);
}

struct shape_entry *shape_cache_take(struct shape_cache *cache, const void *owner)
{
    struct shape_entry *chain = NULL, *shape, *next;
    for (uint32_t i = 0; i < SHAPE_STATES; i++) {
        if (i == SHAPE_BUILDING)
            continue;
        DL_FOREACH_SAFE(cache->lists[i], shape, next)
        {
            if (owner && shape->key.owner != owner)
                continue;
            take_out(cache, shape);
            shape->next = chain;
            chain = shape;
        }
    }
    return chain;
}

uint32_t shape_cache_count(const struct shape_cache *cache, enum shape_state state)
{
    return cache->counts[state];
}

uint64_t shape_cache_bytes(const struct shape_cache *cache)
{
    return cache->bytes;
}
