/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/tail_kernels.h"

#include <stdlib.h>
#include <string.h>

#define HASH_FUNCTION(key, len, hash) ((hash) = hash_fnv1a((key), (len)))
#include "base/cleanup.h"
#include "base/hash.h"

enum {
    KEY_MAX = 1 << 11,        /* bytes; nodes that need more are not kept */
    WORKSPACE_KEPT = 1 << 24, /* a larger one is freed behind its node */
};

struct kernel {
    struct backend_op *op;  /* NULL: not prepared */
    struct ir_graph *graph; /* the node alone, as `op` knows it */
    bool none;              /* no kernel takes such nodes */
    size_t key_size;
    UT_hash_handle hh; /* in the order in which they were used */
    unsigned char key[];
};

struct tail_kernels {
    struct device *device;
    struct backend_stream *stream;
    struct kernel *table;
    void *workspace;
    size_t workspace_bytes;
    uint64_t hits, misses;
};

struct tail_kernels *tail_kernels_new(struct device *device, struct backend_stream *stream)
{
    struct tail_kernels *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    k->device = device;
    k->stream = stream;
    return k;
}

static void kernel_drop(struct tail_kernels *k, struct kernel *kernel)
{
    HASH_DEL(k->table, kernel); /* NOLINT: the analyser loses uthash's list */
    if (kernel->op)
        k->device->backend->op_free(kernel->op);
    ir_graph_free(kernel->graph);
    free(kernel);
}

void tail_kernels_free(struct tail_kernels *k)
{
    struct kernel *kernel, *next;
    if (!k)
        return;
    HASH_ITER(hh, k->table, kernel, next)
    {
        kernel_drop(k, kernel);
    }
    free(k->workspace);
    free(k);
}

struct tail_kernels_figures tail_kernels_look(const struct tail_kernels *k)
{
    return (struct tail_kernels_figures){k->hits, k->misses, HASH_COUNT(k->table)};
}

/* --- keys --- */

struct key {
    size_t size;
    bool fits;
    unsigned char bytes[KEY_MAX];
};

static void key_add(struct key *key, const void *from, size_t size)
{
    key->fits = key->fits && size <= sizeof(key->bytes) - key->size;
    if (!key->fits || !size)
        return;
    memcpy(key->bytes + key->size, from, size);
    key->size += size;
}

static void key_tensor(struct key *key, const struct ir_graph *graph, uint32_t tensor)
{
    uint32_t head[] = {tensor != IR_NONE, 0, 0};
    if (tensor != IR_NONE) {
        head[1] = ir_tensor(graph, tensor)->dtype;
        head[2] = ir_tensor(graph, tensor)->shape.rank;
    }
    key_add(key, head, sizeof(head));
    if (tensor != IR_NONE)
        key_add(key, ir_tensor(graph, tensor)->shape.dim, head[2] * sizeof(int64_t));
}

static void key_make(struct key *key, const struct ir_graph *graph, const struct ir_node *node)
{
    uint32_t head[] = {(uint32_t)node->op, node->n_inputs, node->n_outputs, node->n_attrs};
    key->size = 0;
    key->fits = !node->n_epilogue;
    key_add(key, head, sizeof(head));
    for (uint32_t i = 0; i < node->n_inputs; i++)
        key_tensor(key, graph, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        key_tensor(key, graph, node->outputs[i]);
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const struct ir_attr *attr = &node->attrs[i];
        uint32_t what[] = {(uint32_t)attr->key, attr->is_float, attr->count};
        key_add(key, what, sizeof(what));
        key_add(key, attr->is_float ? (const void *)attr->f : attr->i,
                attr->count * (attr->is_float ? sizeof(float) : sizeof(int64_t)));
    }
}

/* --- preparing --- */

/* The candidate that fits and is thought to be the quickest; candidates are not timed for one
 * request. */
struct choice {
    struct device *device;
    const struct ir_graph *graph;
    const struct ir_node *node;
    bool found;
    uint32_t rank; /* of the candidate at hand */
    uint64_t cost; /* ns */
    struct tactic tactic;
};

static bool port_fits(const struct choice *c, const struct tactic_port *port, uint32_t tensor)
{
    return tensor == IR_NONE || (port->format.layout == IR_LAYOUT_PLAIN && !port->packed_bytes &&
                                 port->format.scale == IR_NO_SCALE &&
                                 port->format.dtype == ir_tensor(c->graph, tensor)->dtype);
}

/* Of a backend that cannot tell, the first one is the best guess. */
static uint64_t cost_of(const struct choice *c, const struct tactic *tactic)
{
    const struct backend *backend = c->device->backend;
    return backend->cost ? backend->cost(c->device, c->graph, c->node, tactic, c->rank) : c->rank;
}

/* Tensors are plain here, and constants are not worth packing for one request. */
static enum status consider(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct choice *c = user;
    bool fits = true;
    for (uint32_t i = 0; i < tactic->n_in && fits; i++)
        fits = port_fits(c, &tactic->in[i], c->node->inputs[i]);
    for (uint32_t i = 0; i < tactic->n_out && fits; i++)
        fits = port_fits(c, &tactic->out[i], c->node->outputs[i]);
    uint64_t cost = fits ? cost_of(c, tactic) : 0;
    c->rank++;
    if (fits && (!c->found || cost < c->cost)) {
        c->tactic = *tactic;
        c->cost = cost;
        c->found = true;
    }
    return STATUS_OK;
}

/* *out: a graph of that node alone, whose operands are no constants: kernels would want to pack
 * those, which is not worth it for one request. */
static enum status isolate(const struct ir_graph *graph, const struct ir_node *node,
                           struct ir_graph **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *alone = ir_graph_new();
    if (!alone)
        return error_no_memory(err, "a layer");
    uint32_t made = ir_node_copy(alone, node);
    bool ok = made != IR_NONE;
    for (uint32_t i = 0; i < node->n_inputs && ok; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        uint32_t tensor = ir_tensor_copy(alone, ir_tensor(graph, node->inputs[i]));
        ok = tensor != IR_NONE;
        if (ok)
            ir_tensor(alone, tensor)->data = NULL;
        ir_node(alone, made)->inputs[i] = tensor;
    }
    for (uint32_t i = 0; i < node->n_outputs && ok; i++) {
        uint32_t tensor = ir_tensor_copy(alone, ir_tensor(graph, node->outputs[i]));
        ok = tensor != IR_NONE;
        if (ok)
            ir_tensor(alone, tensor)->producer = made;
        ir_node(alone, made)->outputs[i] = tensor;
    }
    if (!ok)
        return error_no_memory(err, "a layer");
    *out = STEAL(alone);
    return STATUS_OK;
}

static enum status prepare(struct tail_kernels *k, struct kernel *kernel,
                           const struct ir_graph *graph, const struct ir_node *node,
                           struct error *err)
{
    const struct backend *backend = k->device->backend;
    CLEANUP(ir_graph_cleanup) struct ir_graph *alone = NULL;
    TRY(isolate(graph, node, &alone, err));
    struct choice c = {.device = k->device, .graph = alone, .node = ir_node(alone, 0)};
    TRY(backend->candidates(k->device, alone, c.node, PRECISION_F32, consider, &c, err));
    if (c.found)
        TRY(backend->op_prepare(k->stream, alone, c.node, &c.tactic, &kernel->op, err));
    kernel->none = !c.found;
    kernel->graph = STEAL(alone);
    return STATUS_OK;
}

/* --- running --- */

static bool workspace_fits(struct tail_kernels *k, size_t bytes)
{
    size_t rounded = (bytes + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
    if (rounded <= k->workspace_bytes)
        return true;
    free(k->workspace);
    k->workspace = aligned_alloc(BACKEND_ALIGN, rounded);
    k->workspace_bytes = k->workspace ? rounded : 0;
    return k->workspace;
}

static enum status launch(struct tail_kernels *k, const struct kernel *kernel, uint32_t n,
                          const void *const *inputs, void *const *outputs, struct error *err)
{
    const struct backend *backend = k->device->backend;
    void *in[IR_MAX_INPUTS];
    if (!workspace_fits(k, backend->op_workspace(kernel->op)))
        return error_no_memory(err, "a layer's workspace");
    memcpy(in, inputs, n * sizeof(in[0])); /* kernels do not write to inputs */
    enum status status = backend->op_launch(kernel->op, k->stream, in, outputs, k->workspace, err);
    if (k->workspace_bytes > WORKSPACE_KEPT) {
        free(STEAL(k->workspace));
        k->workspace_bytes = 0;
    }
    return status;
}

/* A new one, not prepared, which is the last to go. NULL: no memory. */
static struct kernel *kernel_add(struct tail_kernels *k, const struct key *key)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel) + key->size);
    if (!kernel)
        return NULL;
    kernel->key_size = key->size;
    memcpy(kernel->key, key->bytes, key->size);
    while (HASH_COUNT(k->table) >= TAIL_KERNELS_MAX) /* NOLINT: as above */
        kernel_drop(k, k->table);
    HASH_ADD_KEYPTR(hh, k->table, kernel->key, kernel->key_size, kernel);
    if (!HASH_ADDED(kernel)) {
        free(kernel);
        return NULL;
    }
    return kernel;
}

static struct kernel *kernel_used(struct tail_kernels *k, const struct key *key)
{
    struct kernel *kernel;
    HASH_FIND(hh, k->table, key->bytes, key->size, kernel);
    if (!kernel)
        return NULL;
    HASH_DEL(k->table, kernel); /* NOLINT: the analyser loses uthash's list */
    HASH_ADD_KEYPTR(hh, k->table, kernel->key, kernel->key_size, kernel);
    if (HASH_ADDED(kernel))
        return kernel;
    if (kernel->op)
        k->device->backend->op_free(kernel->op);
    ir_graph_free(kernel->graph);
    free(kernel);
    return NULL;
}

enum status tail_kernels_run(struct tail_kernels *k, const struct ir_graph *graph,
                             const struct ir_node *node, bool eager, const void *const *inputs,
                             void *const *outputs, bool *done, struct error *err)
{
    struct key key;
    *done = false;
    key_make(&key, graph, node);
    if (!key.fits)
        return STATUS_OK;
    struct kernel *kernel = kernel_used(k, &key);
    bool known = kernel;
    if (!known && !(kernel = kernel_add(k, &key)))
        return error_no_memory(err, "a layer");
    k->hits += kernel->op || kernel->none;
    k->misses += !kernel->op && !kernel->none;
    if (!kernel->op && !kernel->none && (known || eager)) {
        enum status status = prepare(k, kernel, graph, node, err);
        if (status) {
            kernel_drop(k, kernel);
            return status;
        }
    }
    *done = kernel->op;
    return *done ? launch(k, kernel, node->n_inputs, inputs, outputs, err) : STATUS_OK;
}
