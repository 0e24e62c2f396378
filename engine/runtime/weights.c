/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See weights.h. A region is a part of a plan's weight section in which constants lie: one of them,
 * as a rule, or several that have bytes in common. A large region is a blob, which the family's
 * table knows by its hash; blobs are counted. On a device each blob is an allocation, and what is
 * no blob is one more. On the host a blob lies where the plan was read that had it first: that
 * memory is a home, which stays while one of its blobs is used, without the pages of the others.
 */
#include "engine/runtime/weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = hash_fnv1a((key), (len)))
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/upload.h"

/* The memory that a plan was read into. */
struct home {
    struct file_map map;
    uint32_t users; /* blobs, and the plan */
};

struct blob_key {
    XXH128_hash_t hash;
    uint64_t size;
};

struct blob {
    struct blob_key key;
    void *data;        /* the device's address */
    struct home *home; /* NULL: `data` is an allocation */
    uint32_t users;
    bool of_first; /* the family's first plan has it */
    UT_hash_handle hh;
};

/* The lock guards all of it, and is held while weights are uploaded: what is in the table is there.
 */
struct family {
    pthread_mutex_t lock;
    uint32_t users;
    struct blob *table;
};

struct region {
    uint64_t offset, size;
    const char *address;
    struct blob *blob; /* NULL: too small for one */
};

struct weights {
    struct device *device;
    struct family *family;
    struct region *regions; /* by rising offset, apart from each other */
    uint32_t n;
    void *rest;        /* a device's allocation for what is no blob, or NULL */
    struct home *home; /* NULL: a device has its own memory, or nothing was read */
    uint64_t common;
};

/* --- regions --- */

static int by_offset(const void *a, const void *b)
{
    const struct region *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t regions_list(const struct plan *plan, struct region *out)
{
    uint64_t n = 0;
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        const struct ir_graph *graph = plan->profiles[p].graph;
        for (uint32_t i = 0; i < graph->n_tensors; i++) {
            const struct ir_tensor *t = ir_tensor(graph, i);
            if (t->place != IR_PLACE_CONSTANT || !t->bytes)
                continue;
            if (out)
                out[n] = (struct region){.offset = t->offset, .size = t->bytes};
            n++;
        }
    }
    return n;
}

/* Makes one of those that have bytes in common. */
static uint32_t regions_join(struct region *list, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct region *last = kept ? &list[kept - 1] : NULL;
        if (last && list[i].offset < last->offset + last->size)
            last->size = MAX(last->size, list[i].offset + list[i].size - last->offset);
        else
            list[kept++] = list[i];
    }
    return kept;
}

static enum status regions_make(struct weights *w, const struct plan *plan, struct error *err)
{
    uint64_t n = regions_list(plan, NULL);
    if (n > UINT32_MAX || !(w->regions = calloc(n ? n : 1, sizeof(*w->regions))))
        return error_no_memory(err, "weights");
    regions_list(plan, w->regions);
    qsort(w->regions, n, sizeof(*w->regions), by_offset);
    w->n = regions_join(w->regions, (uint32_t)n);
    return STATUS_OK;
}

static const struct region *region_at(const struct weights *w, uint64_t offset)
{
    uint32_t low = 0, high = w->n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (w->regions[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return &w->regions[low];
}

const void *weights_at(const struct weights *w, uint64_t offset)
{
    if (!w->n)
        return NULL; /* of a constant without bytes */
    const struct region *region = region_at(w, offset);
    return region->address + (offset - region->offset);
}

uint64_t weights_common(const struct weights *w)
{
    return w->common;
}

/* --- pages --- */

/* Gives back whole pages. The addresses stay taken, so a stray read of them faults at once. */
static void pages_drop(const void *data, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + size) / page * page;
    if (begin < end && mprotect((void *)begin, end - begin, PROT_NONE) == 0)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static void home_leave(struct home *home)
{
    if (home && --home->users == 0) {
        file_unmap(&home->map);
        free(home);
    }
}

/* --- blobs --- */

static void blob_leave(struct weights *w, struct blob *blob)
{
    if (--blob->users)
        return;
    HASH_DEL(w->family->table, blob); /* NOLINT: the analyser loses uthash's list */
    if (blob->home) {
        memory_note(w->device, MEMORY_DEVICE, blob, "weights", 0);
        pages_drop(blob->data, blob->key.size);
        home_leave(blob->home);
    } else {
        memory_free(w->device, MEMORY_DEVICE, blob->data);
    }
    free(blob);
}

/* A blob like these bytes that somebody has already; NULL: there is none. */
static struct blob *blob_find(const struct weights *w, const struct blob_key *key,
                              const void *bytes)
{
    struct blob *blob;
    HASH_FIND(hh, w->family->table, key, sizeof(*key), blob);
    if (blob && blob->home && memcmp(blob->data, bytes, key->size) != 0)
        return NULL;
    return blob;
}

static enum status blob_memory(struct weights *w, struct blob *blob, const void *bytes,
                               struct error *err)
{
    if (w->home) {
        blob->data = (void *)(uintptr_t)bytes;
        blob->home = w->home;
        w->home->users++;
        memory_note(w->device, MEMORY_DEVICE, blob, "weights", blob->key.size);
        return STATUS_OK;
    }
    return memory_alloc(w->device, MEMORY_DEVICE, blob->key.size, "weights", &blob->data, err);
}

static enum status blob_make(struct weights *w, const struct blob_key *key, const void *bytes,
                             struct blob **out, struct error *err)
{
    struct blob *blob = calloc(1, sizeof(*blob));
    if (!blob)
        return error_no_memory(err, "weights");
    blob->key = *key;
    blob->of_first = w->family->users == 1;
    HASH_ADD(hh, w->family->table, key, sizeof(blob->key), blob);
    if (!HASH_ADDED(blob)) {
        free(blob);
        return error_no_memory(err, "weights");
    }
    enum status status = blob_memory(w, blob, bytes, err);
    if (status) {
        HASH_DEL(w->family->table, blob); /* NOLINT: the analyser loses uthash's list */
        free(blob);
        return status;
    }
    *out = blob;
    return STATUS_OK;
}

/* *made: the region's bytes are not there yet. */
static enum status region_settle(struct weights *w, struct region *region, const char *bytes,
                                 bool *made, struct error *err)
{
    struct blob_key key = {.size = region->size};
    key.hash = XXH3_128bits(bytes, region->size);
    struct blob *blob = blob_find(w, &key, bytes);
    *made = !blob;
    if (!blob)
        TRY(blob_make(w, &key, bytes, &blob, err));
    blob->users++;
    region->blob = blob;
    region->address = blob->data;
    if (blob->of_first && w->family->users > 1)
        w->common += region->size;
    if (w->home && blob->home != w->home)
        pages_drop(bytes, region->size);
    return STATUS_OK;
}

/* --- a host's --- */

static enum status home_make(struct weights *w, struct plan *plan, struct error *err)
{
    if (!plan->map.size)
        return STATUS_OK; /* the memory is another's */
    w->home = calloc(1, sizeof(*w->home));
    if (!w->home)
        return error_no_memory(err, "weights");
    w->home->users = 1;
    w->home->map = plan->map;
    plan->map = (struct file_map){0};
    return STATUS_OK;
}

/* The constants that others have lie there. */
static void constants_move(const struct weights *w, const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->n_profiles; p++) {
        struct ir_graph *graph = plan->profiles[p].graph;
        for (uint32_t i = 0; i < graph->n_tensors; i++) {
            struct ir_tensor *t = ir_tensor(graph, i);
            if (t->place == IR_PLACE_CONSTANT && t->bytes)
                t->data = weights_at(w, t->offset);
        }
    }
}

static enum status host_fill(struct weights *w, struct plan *plan, struct error *err)
{
    TRY(home_make(w, plan, err));
    uint64_t small = 0;
    bool made;
    for (uint32_t i = 0; i < w->n; i++) {
        struct region *region = &w->regions[i];
        region->address = (const char *)plan->weights + region->offset;
        if (w->home && region->size >= WEIGHTS_LARGE)
            TRY(region_settle(w, region, region->address, &made, err));
        else
            small += region->size;
    }
    constants_move(w, plan);
    memory_note(w->device, MEMORY_DEVICE, w, "weights", small);
    return STATUS_OK;
}

/* --- a device's --- */

/* What is no blob lies together. */
static enum status rest_make(struct weights *w, struct error *err)
{
    size_t size = 0;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->regions[i].size < WEIGHTS_LARGE && (!checked_add(size, w->regions[i].size, &size) ||
                                                   !checked_round_up(size, BACKEND_ALIGN, &size)))
            return error_no_memory(err, "weights");
    return size ? memory_alloc(w->device, MEMORY_DEVICE, size, "weights", &w->rest, err)
                : STATUS_OK;
}

static enum status device_fill(struct weights *w, const struct plan *plan, struct error *err)
{
    CLEANUP(cleanup_free) struct backend_copy *copies = calloc(w->n + 1u, sizeof(*copies));
    char *rest;
    uint32_t n = 0;
    if (!copies)
        return error_no_memory(err, "weights");
    TRY(rest_make(w, err));
    rest = w->rest;
    for (uint32_t i = 0; i < w->n; i++) {
        struct region *region = &w->regions[i];
        const char *bytes = (const char *)plan->weights + region->offset;
        bool made = true;
        if (region->size >= WEIGHTS_LARGE) {
            TRY(region_settle(w, region, bytes, &made, err));
        } else {
            region->address = rest;
            rest += (region->size + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
        }
        if (made)
            copies[n++] = (struct backend_copy){(void *)(uintptr_t)region->address,
                                                (void *)(uintptr_t)bytes, region->size};
    }
    return n ? upload(w->device, copies, n, err) : STATUS_OK;
}

/* --- life --- */

static enum status fill(struct weights *w, struct plan *plan, struct error *err)
{
    TRY(regions_make(w, plan, err));
    return w->device->backend->host_memory ? host_fill(w, plan, err) : device_fill(w, plan, err);
}

static struct family *family_new(void)
{
    struct family *family = calloc(1, sizeof(*family));
    if (family)
        pthread_mutex_init(&family->lock, NULL);
    return family;
}

enum status weights_new(struct device *device, struct plan *plan, struct weights *like,
                        struct weights **out, struct error *err)
{
    struct weights *w = calloc(1, sizeof(*w));
    if (!w || !(w->family = like ? like->family : family_new())) {
        free(w);
        return error_no_memory(err, "weights");
    }
    w->device = device;
    pthread_mutex_lock(&w->family->lock);
    w->family->users++;
    enum status status = fill(w, plan, err);
    pthread_mutex_unlock(&w->family->lock);
    if (status)
        weights_free(w);
    else
        *out = w;
    return status;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    struct family *family = w->family;
    pthread_mutex_lock(&family->lock);
    for (uint32_t i = 0; i < w->n; i++)
        if (w->regions[i].blob)
            blob_leave(w, w->regions[i].blob);
    home_leave(w->home);
    bool last = --family->users == 0;
    pthread_mutex_unlock(&family->lock);
    memory_note(w->device, MEMORY_DEVICE, w, "weights", 0);
    memory_free(w->device, MEMORY_DEVICE, w->rest);
    free(w->regions);
    free(w);
    if (last) {
        pthread_mutex_destroy(&family->lock);
        free(family);
    }
}
