/* SPDX-License-Identifier: Apache-2.0 */
/* Backend memory, with an account of it when asked for; see memory.h. */
#include "engine/runtime/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "base/clock.h"
#include "base/hash.h"

enum { RECORDS_MAX = 65536 };

struct held {
    const void *key;
    size_t size;
    uint64_t record; /* the number of its record, counted from the start */
    char tag[MEMORY_TAG_MAX];
    UT_hash_handle hh;
};

struct tag_sum {
    struct memory_tag sum;
    UT_hash_handle hh;
};

struct memory_tracker {
    pthread_mutex_t lock;          /* guards everything below */
    struct memory_record *records; /* a ring: number n is at n % RECORDS_MAX */
    uint64_t n_records;
    struct held *held;
    struct tag_sum *tags;
};

enum status memory_track_start(struct device *device, struct error *err)
{
    if (device->tracker)
        return STATUS_OK;
    struct memory_tracker *t = calloc(1, sizeof(*t));
    if (t)
        t->records = calloc(RECORDS_MAX, sizeof(*t->records));
    if (!t || !t->records) {
        free(t);
        return error_no_memory(err, "the memory tracker");
    }
    pthread_mutex_init(&t->lock, NULL);
    device->tracker = t;
    return STATUS_OK;
}

void memory_track_stop(struct device *device)
{
    struct memory_tracker *t = device->tracker;
    struct held *h, *next_held;
    struct tag_sum *s, *next_sum;
    if (!t)
        return;
    device->tracker = NULL;
    HASH_ITER(hh, t->held, h, next_held)
    {
        HASH_DEL(t->held, h); /* NOLINT: the analyser loses uthash's list */
        free(h);
    }
    HASH_ITER(hh, t->tags, s, next_sum)
    {
        HASH_DEL(t->tags, s); /* NOLINT: the same */
        free(s);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->records);
    free(t);
}

static struct tag_sum *tag_sum(struct memory_tracker *t, const char *tag)
{
    struct tag_sum *s;
    HASH_FIND_STR(t->tags, tag, s);
    if (!s && (s = calloc(1, sizeof(*s)))) {
        memcpy(s->sum.tag, tag, strlen(tag) + 1);
        HASH_ADD_STR(t->tags, sum.tag, s);
        if (!HASH_ADDED(s)) {
            free(s);
            s = NULL;
        }
    }
    return s;
}

static void release(struct memory_tracker *t, const void *key)
{
    struct held *h;
    HASH_FIND_PTR(t->held, &key, h);
    if (!h)
        return; /* it was taken before tracking began */
    struct tag_sum *s = tag_sum(t, h->tag);
    if (s)
        s->sum.held -= h->size;
    if (t->n_records - h->record <= RECORDS_MAX)
        t->records[h->record % RECORDS_MAX].released_ns = clock_now_ns();
    HASH_DEL(t->held, h);
    free(h);
}

/* If there is no memory for the account's own entry, the entry is missing; the allocation
 * stands. */
static void take(struct memory_tracker *t, enum memory_kind kind, const void *key, const char *tag,
                 size_t size)
{
    struct held *h = calloc(1, sizeof(*h));
    if (!h)
        return;
    snprintf(h->tag, sizeof(h->tag), "%s", tag);
    h->key = key;
    h->size = size;
    h->record = t->n_records++;
    struct memory_record *r = &t->records[h->record % RECORDS_MAX];
    *r = (struct memory_record){.kind = kind, .size = size, .taken_ns = clock_now_ns()};
    memcpy(r->tag, h->tag, sizeof(r->tag));
    struct tag_sum *s = tag_sum(t, h->tag);
    HASH_ADD_PTR(t->held, key, h);
    if (!HASH_ADDED(h)) {
        free(h);
        return;
    }
    if (s) {
        s->sum.kind = kind;
        s->sum.count++;
        s->sum.held += size;
        s->sum.peak = MAX(s->sum.peak, s->sum.held);
    }
}

void memory_note(struct device *device, enum memory_kind kind, const void *key, const char *tag,
                 size_t size)
{
    struct memory_tracker *t = device->tracker;
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    release(t, key);
    if (size)
        take(t, kind, key, tag, size);
    pthread_mutex_unlock(&t->lock);
}

static enum status ask(const struct memory_allocator *from, enum memory_kind kind, size_t size,
                       const char *tag, void **out, struct error *err)
{
    void *memory = from->take(from->user, kind, MAX(size, (size_t)1), BACKEND_ALIGN, tag);
    if (!memory)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "%s: the allocator has no %zu bytes", tag,
                         size);
    if ((uintptr_t)memory % BACKEND_ALIGN) {
        from->give(from->user, kind, memory);
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%s: the allocator gave an address that is no multiple of %d", tag,
                         BACKEND_ALIGN);
    }
    *out = memory;
    return STATUS_OK;
}

enum status memory_alloc(struct device *device, enum memory_kind kind, size_t size, const char *tag,
                         void **out, struct error *err)
{
    if (device->allocator)
        TRY(ask(device->allocator, kind, size, tag, out, err));
    else
        TRY(device->backend->memory_alloc(device, kind, size, tag, out, err));
    memory_note(device, kind, *out, tag, size);
    return STATUS_OK;
}

void memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    if (!memory)
        return;
    memory_note(device, kind, memory, "", 0);
    if (device->allocator)
        device->allocator->give(device->allocator->user, kind, memory);
    else
        device->backend->memory_free(device, kind, memory);
}

size_t memory_track_records(struct device *device, struct memory_record *out, size_t max)
{
    struct memory_tracker *t = device->tracker;
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    uint64_t n = MIN(t->n_records, (uint64_t)RECORDS_MAX), first = t->n_records - n;
    for (uint64_t i = 0; i < n && i < max; i++)
        out[i] = t->records[(first + i) % RECORDS_MAX];
    pthread_mutex_unlock(&t->lock);
    return n;
}

size_t memory_track_tags(struct device *device, struct memory_tag *out, size_t max)
{
    struct memory_tracker *t = device->tracker;
    size_t n = 0;
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    for (const struct tag_sum *s = t->tags; s; s = s->hh.next, n++)
        if (n < max)
            out[n] = s->sum;
    pthread_mutex_unlock(&t->lock);
    return n;
}
