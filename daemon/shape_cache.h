/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which engines there are, or are to be built, for sizes that no point of a plan has: a table by
 * model and sizes, whose engines are bounded in number and bytes. Engines that were not used for
 * the longest time make room for new ones.
 *
 * An entry is queued until its turn comes, then it is being built, then it is ready or has failed.
 * Who asks takes at most half of the queue's places, and those who wait take turns, so that nobody
 * who asks for many sizes keeps the others' from being built. A failure is remembered for a while,
 * so that asking again costs nothing.
 *
 * Pure: it reads no clock, takes no lock, and knows neither threads nor engines. The caller
 * serialises calls, and owns what entries hold.
 */
#ifndef INFERD_DAEMON_SHAPE_CACHE_H
#define INFERD_DAEMON_SHAPE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cause.h"
#include "base/error.h"
#include "engine/engine.h"

enum {
    SHAPE_FAILURES = 256, /* remembered at a time, the latest */
    SHAPE_FAILURE_S = 30, /* and for so long */
};

struct shape_key {
    const void *owner; /* the model that has the sizes */
    uint32_t n;
    int64_t values[ENGINE_MAX_FREE]; /* of its free dimensions; the rest is zero */
};

enum shape_state { SHAPE_QUEUED, SHAPE_BUILDING, SHAPE_READY, SHAPE_FAILED, SHAPE_STATES };

struct shape_entry {
    struct shape_key key;
    enum shape_state state;
    void *held;             /* by the caller: while it is queued or built, and when it is ready */
    void *aside;            /* likewise, while it is built: what serves until then; or NULL */
    uint64_t asker;         /* who wanted it first */
    uint64_t bytes;         /* once it is ready */
    uint64_t failed_ns;     /* when it failed, */
    enum status why_status; /* and how */
    struct shape_entry *next_of_bucket;
    struct shape_entry *prev,
        *next; /* of its state: the oldest first, or the least recently used */
};

struct shape_limits {
    uint32_t engines; /* ready ones */
    uint64_t bytes;   /* of these */
    uint32_t queued;
};

struct shape_cache;

/* NULL: no memory. */
struct shape_cache *shape_cache_new(void);
void shape_cache_free(struct shape_cache *cache); /* and all entries; NULL is fine */

/* NULL: there is none. One that failed long ago is forgotten. */
struct shape_entry *shape_cache_find(struct shape_cache *cache, const struct shape_key *key,
                                     uint64_t now_ns);
/* A ready one was used: it is the last to go. */
void shape_cache_used(struct shape_cache *cache, struct shape_entry *shape);

/* Puts a new entry into the queue. SHAPES_FULL: there are enough, of this asker or of all;
 * OUT_OF_MEMORY. */
enum cause shape_cache_queue(struct shape_cache *cache, const struct shape_key *key, uint64_t asker,
                             const struct shape_limits *limits, struct shape_entry **out);
/* Whose turn it is: from now on it is being built. NULL: the queue is empty. */
struct shape_entry *shape_cache_next(struct shape_cache *cache);

/* Takes out as many ready ones as must go so that one of `bytes` has room; a chain by ->next, whose
 * entries are the caller's to free. False: it is larger than all together may be; none goes. */
bool shape_cache_room(struct shape_cache *cache, uint64_t bytes, const struct shape_limits *limits,
                      struct shape_entry **out) MUST_USE;
void shape_cache_ready(struct shape_cache *cache, struct shape_entry *shape, void *held,
                       uint64_t bytes);
/* What it held is the caller's again. */
void shape_cache_failed(struct shape_cache *cache, struct shape_entry *shape,
                        enum status why_status, uint64_t now_ns);
/* Forgets one that is being built: nothing is known of it. */
void shape_cache_forget(struct shape_cache *cache, struct shape_entry *shape);

/* Takes out all entries of a model, or of all models (NULL), but those that are being built; a
 * chain by ->next, the caller's to free. */
struct shape_entry *shape_cache_take(struct shape_cache *cache, const void *owner);

/* How many there are in a state, and how large those are that are ready. */
uint32_t shape_cache_count(const struct shape_cache *cache, enum shape_state state);
uint64_t shape_cache_bytes(const struct shape_cache *cache);

#endif
