/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that compute the same become one: equal ops, attributes and epilogues, and the same inputs.
 * Exporters repeat what a layer needs, the arithmetic of a mask, say, in each layer.
 *
 * The walk keeps the nodes that it has seen in a table by hash. Equal small constants count as one,
 * so that two additions of 1 are the same. Every op of the IR gives the same result each time, so
 * none is left out.
 */
#include "engine/passes/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* Larger constants are not compared: weights are hardly ever stored twice, and reading them takes
 * time. A mask of 1024 x 1024 bytes is still a small one. */
enum { CONSTANT_MAX = 1 << 20 };

/* Open addressing; a place holds the number of a node or constant, or IR_NONE. */
struct table {
    uint32_t *at;
    uint32_t mask; /* the number of places, a power of two, less 1 */
};

struct seen {
    struct table nodes, constants;
    uint32_t *first; /* for each constant that has been looked up: the first one equal to it */
    uint32_t n_first;
};

static bool table_init(struct table *t, uint32_t entries)
{
    uint32_t places = 16;
    while (places < 2 * entries)
        places *= 2;
    t->at = malloc(places * sizeof(*t->at));
    t->mask = places - 1;
    if (t->at)
        memset(t->at, 0xff, places * sizeof(*t->at));
    return t->at != NULL;
}

static uint32_t mix(uint32_t hash, uint32_t value)
{
    return (hash ^ value) * 16777619U;
}

static uint32_t hash_bytes(uint32_t hash, const void *bytes, size_t n)
{
    return mix(hash, (uint32_t)XXH3_64bits(bytes, n));
}

static bool same_type(const struct ir_graph *graph, const struct ir_tensor *a,
                      const struct ir_tensor *b)
{
    return a->dtype == b->dtype && a->real == b->real && a->layout == b->layout &&
           a->scale == b->scale && shape_equal(&a->shape, &b->shape) &&
           ir_scale_equal(ir_scale(graph, a->range), ir_scale(graph, b->range));
}

/* The first constant that is equal to this one: the tensor itself if there is no other. */
static uint32_t first_constant(const struct rewrite *rw, struct seen *seen, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, tensor);
    if (!t->data || t->bytes > CONSTANT_MAX || tensor >= seen->n_first)
        return tensor;
    if (seen->first[tensor] != IR_NONE)
        return seen->first[tensor];
    uint32_t hash = hash_bytes(mix(0, t->dtype), t->data, t->bytes), at = hash;
    uint32_t found = tensor;
    for (;; at++) {
        uint32_t *place = &seen->constants.at[at & seen->constants.mask];
        if (*place == IR_NONE) {
            *place = tensor;
            break;
        }
        const struct ir_tensor *other = ir_tensor(rw->graph, *place);
        if (same_type(rw->graph, t, other) && memcmp(t->data, other->data, t->bytes) == 0) {
            found = *place;
            break;
        }
    }
    seen->first[tensor] = found;
    return found;
}

/* Attributes count in any order. */
static uint32_t hash_attrs(const struct ir_node *node)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const struct ir_attr *attr = &node->attrs[i];
        size_t bytes = attr->count * (attr->is_float ? sizeof(*attr->f) : sizeof(*attr->i));
        sum += hash_bytes(mix(0, attr->key), attr->i, bytes);
    }
    return sum;
}

static uint32_t hash_node(const struct ir_node *node)
{
    uint32_t hash = mix(mix(0, node->op), hash_attrs(node));
    return hash_bytes(hash, node->inputs, node->n_inputs * sizeof(*node->inputs));
}

static bool same_attr(const struct ir_attr *a, const struct ir_attr *b)
{
    size_t size = a->is_float ? sizeof(*a->f) : sizeof(*a->i);
    return b && a->is_float == b->is_float && a->count == b->count &&
           (a->count == 0 || memcmp(a->i, b->i, a->count * size) == 0);
}

static bool same_step(const struct ir_epilogue *a, const struct ir_epilogue *b)
{
    return a->kind == b->kind && a->func == b->func && a->input == b->input &&
           memcmp(&a->alpha, &b->alpha, sizeof(a->alpha)) == 0 &&
           memcmp(&a->beta, &b->beta, sizeof(a->beta)) == 0 &&
           memcmp(&a->gamma, &b->gamma, sizeof(a->gamma)) == 0;
}

static bool same_node(const struct ir_graph *graph, const struct ir_node *a,
                      const struct ir_node *b)
{
    if (a->op != b->op || a->n_inputs != b->n_inputs || a->n_attrs != b->n_attrs ||
        a->n_epilogue != b->n_epilogue || a->n_outputs != b->n_outputs ||
        memcmp(a->inputs, b->inputs, a->n_inputs * sizeof(*a->inputs)) != 0)
        return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], ir_attr(b, a->attrs[i].key)))
            return false;
    for (uint32_t i = 0; i < a->n_epilogue; i++)
        if (!same_step(&a->epilogue[i], &b->epilogue[i]))
            return false;
    for (uint32_t i = 0; i < a->n_outputs; i++)
        if (!same_type(graph, ir_tensor(graph, a->outputs[i]), ir_tensor(graph, b->outputs[i])))
            return false;
    return true;
}

/* The node seen before that equals this one. If there is none, the node is noted, and the answer is
 * IR_NONE. */
static uint32_t first_node(const struct rewrite *rw, struct seen *seen, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    for (uint32_t at = hash_node(n);; at++) {
        uint32_t *place = &seen->nodes.at[at & seen->nodes.mask];
        if (*place == IR_NONE) {
            *place = node;
            return IR_NONE;
        }
        if (same_node(rw->graph, n, ir_node(rw->graph, *place)))
            return *place;
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    struct seen *seen = rw->state;
    bool unread = true;
    for (uint32_t i = 0; i < ir_node(rw->graph, node)->n_inputs; i++) {
        uint32_t input = rw_input(rw, node, i);
        uint32_t first = input == IR_NONE ? IR_NONE : first_constant(rw, seen, input);
        if (first != input)
            rw_set_input(rw, node, i, first);
    }
    uint32_t first = rw->status ? IR_NONE : first_node(rw, seen, node);
    if (first == IR_NONE)
        return;
    for (uint32_t i = 0; i < ir_node(rw->graph, node)->n_outputs; i++) {
        uint32_t from = ir_node(rw->graph, node)->outputs[i];
        unread = rw_replace(rw, from, ir_node(rw->graph, first)->outputs[i]) && unread;
    }
    if (!unread)
        return; /* both are outputs of the graph */
    rw_done(rw, "%s is the same as %s", ir_node(rw->graph, node)->name,
            ir_node(rw->graph, first)->name);
    rw_remove(rw, node);
}

PASS(merge_equal)
{
    struct seen seen = {.n_first = graph->n_tensors};
    enum status status;
    seen.first = malloc(MAX(seen.n_first, 1) * sizeof(*seen.first));
    if (seen.first && table_init(&seen.nodes, graph->n_nodes) &&
        table_init(&seen.constants, graph->n_tensors)) {
        memset(seen.first, 0xff, seen.n_first * sizeof(*seen.first));
        status = rewrite_run_with(graph, ctx, visit, &seen, err);
    } else {
        status = error_no_memory(err, "pass %s", ctx->pass->name);
    }
    free(seen.first);
    free(seen.nodes.at);
    free(seen.constants.at);
    return status;
}
