/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps constants by their contents, and copies graphs that use them; see build.h. */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = (unsigned)XXH3_64bits((key), (len)))

#include "engine/build/build.h"
#include "base/hash.h"

enum { TAKEN_MIN = 1 << 20 };

struct entry {
    struct {
        XXH128_hash_t hash;
        uint64_t size;
    } key;
    const void *data;
    void *block; /* what is freed: the data, or what lies before it */
    UT_hash_handle hh;
};

static void entry_free(struct entry *e)
{
    free(e->block);
    free(e);
}

struct build_store {
    uint32_t refs; /* used by the builder's thread only */
    struct entry *table;
};

enum status build_store_new(struct build_store **out, struct error *err)
{
    struct build_store *store = calloc(1, sizeof(*store));
    if (!store)
        return error_no_memory(err, "the builder");
    store->refs = 1;
    *out = store;
    return STATUS_OK;
}

void build_store_unref(struct build_store *store)
{
    struct entry *e, *next;
    if (!store || --store->refs)
        return;
    HASH_ITER(hh, store->table, e, next)
    {
        HASH_DEL(store->table, e); /* NOLINT: the analyser loses uthash's list */
        entry_free(e);
    }
    free(store);
}

static void release(void *store)
{
    build_store_unref(store);
}

/* Large constants are not copied: the store takes them out of the arena of the graph that is about
 * to be freed. */
static bool hold(struct entry *e, struct arena *from, const void *data, uint64_t size)
{
    e->data = data;
    if (size >= TAKEN_MIN && arena_take(from, data, &e->block))
        return true;
    e->block = aligned_alloc(BACKEND_ALIGN, (size / BACKEND_ALIGN + 1) * BACKEND_ALIGN);
    if (e->block)
        e->data = memcpy(e->block, data, size);
    return e->block;
}

static const void *intern(struct build_store *store, struct arena *from, const void *data,
                          uint64_t size)
{
    struct entry *e, probe = {0};
    probe.key.hash = XXH3_128bits(data, size);
    probe.key.size = size;
    HASH_FIND(hh, store->table, &probe.key, sizeof(probe.key), e);
    if (e)
        return e->data;
    e = malloc(sizeof(*e));
    if (!e)
        return NULL;
    *e = probe;
    if (!hold(e, from, data, size)) {
        free(e);
        return NULL;
    }
    HASH_ADD(hh, store->table, key, sizeof(e->key), e);
    if (HASH_ADDED(e))
        return e->data;
    entry_free(e);
    return NULL;
}

static bool copy_tensor(struct build_store *store, struct ir_graph *to, struct arena *from,
                        const struct ir_tensor *t)
{
    uint32_t id = ir_tensor_copy(to, t);
    if (id == IR_NONE)
        return false;
    struct ir_tensor *copy = ir_tensor(to, id);
    copy->range = IR_NO_SCALE; /* it was for whoever chose types */
    if (ir_tensor_is_constant(t))
        copy->data = intern(store, from, t->data, t->bytes);
    return !ir_tensor_is_constant(t) || copy->data;
}

static bool copy_tactic(struct build_store *store, struct ir_graph *to, struct arena *from,
                        struct ir_node *node)
{
    if (!node->tactic)
        return true;
    struct tactic *tactic = arena_alloc(to->arena, sizeof(*tactic));
    if (!tactic)
        return false;
    *tactic = *node->tactic; /* its backend's name is static */
    if (tactic->code_size)
        tactic->code = intern(store, from, tactic->code, tactic->code_size);
    node->tactic = tactic;
    return !tactic->code_size || tactic->code;
}

static bool copy_node(struct build_store *store, struct ir_graph *to, struct arena *from,
                      const struct ir_node *n)
{
    uint32_t id = ir_node_copy(to, n);
    return id != IR_NONE && copy_tactic(store, to, from, ir_node(to, id));
}

static bool copy_graph(struct build_store *store, struct ir_graph *to, const struct ir_graph *from)
{
    bool ok = true;
    for (uint32_t i = 0; i < from->n_scales && ok; i++)
        ok = ir_scale_add(to, &from->scales[i]) != IR_NO_SCALE;
    to->name = arena_strndup(to->arena, from->name, strlen(from->name));
    for (uint32_t i = 0; i < from->n_tensors && ok; i++)
        ok = copy_tensor(store, to, from->arena, ir_tensor(from, i));
    for (uint32_t i = 0; i < from->n_nodes && ok; i++)
        ok = copy_node(store, to, from->arena, ir_node(from, i));
    to->n_inputs = from->n_inputs;
    to->n_outputs = from->n_outputs;
    memcpy(to->inputs, from->inputs, sizeof(to->inputs));
    memcpy(to->outputs, from->outputs, sizeof(to->outputs));
    if (!ok || !to->name || !ir_segments_copy(to, from) || !ir_graph_hold(to, store, release))
        return false;
    store->refs++;
    return true;
}

enum status build_store_graph(struct build_store *store, struct ir_graph *graph,
                              struct ir_graph **out, struct error *err)
{
    struct ir_graph *copy = ir_graph_new();
    bool ok = copy && copy_graph(store, copy, graph);
    ir_graph_free(graph);
    if (!ok) {
        ir_graph_free(copy);
        return error_no_memory(err, "the builder");
    }
    *out = copy;
    return STATUS_OK;
}
