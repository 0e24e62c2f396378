/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a rewritten graph back into order: nodes in an order in which they may run, without holes.
 *
 * The order is the one of a depth-first walk that starts from the nodes as they stand and emits
 * what a node reads before the node: a graph that was in order stays as it was. Linear time; the
 * walk keeps its own stack, so that a chain of 2^18 nodes costs memory and not the thread's stack.
 * Refuses graphs with cycles and graphs that were already divided into segments.
 */
#include "engine/ir/ir.h"

#include <stdlib.h>
#include <string.h>

enum mark { UNSEEN, OPEN, DONE };

struct walk {
    uint32_t *stack;  /* nodes being visited */
    uint32_t *cursor; /* for each node: the next input to look at */
    uint8_t *marks;
    uint32_t *order; /* the result: old node numbers */
    uint32_t n_order;
};

static enum status walk_from(const struct ir_graph *graph, struct walk *w, uint32_t root,
                             struct error *err)
{
    uint32_t depth = 0;
    w->stack[depth++] = root;
    w->marks[root] = OPEN;
    while (depth) {
        uint32_t at = w->stack[depth - 1];
        const struct ir_node *node = ir_node(graph, at);
        if (w->cursor[at] == node->n_inputs) {
            w->marks[at] = DONE;
            w->order[w->n_order++] = at;
            depth--;
            continue;
        }
        uint32_t tensor = node->inputs[w->cursor[at]++];
        uint32_t from = tensor == IR_NONE ? IR_NONE : ir_tensor(graph, tensor)->producer;
        if (from == IR_NONE || w->marks[from] == DONE)
            continue;
        if (w->marks[from] == OPEN)
            return error_set(err, STATUS_INVALID_ARGUMENT, "graph has a cycle through node \"%s\"",
                             node->name);
        w->marks[from] = OPEN;
        w->stack[depth++] = from;
    }
    return STATUS_OK;
}

static enum status sort_nodes(struct ir_graph *graph, uint32_t *order, uint32_t *n_order,
                              struct error *err)
{
    size_t n = MAX(graph->n_nodes, 1);
    enum status status = STATUS_RESOURCE_EXHAUSTED;
    struct walk w = {
        .stack = calloc(n, sizeof(uint32_t)),
        .cursor = calloc(n, sizeof(uint32_t)),
        .marks = calloc(n, 1),
        .order = order,
    };
    if (!w.stack || !w.cursor || !w.marks) {
        error_set(err, status, "no memory to sort %u nodes", graph->n_nodes);
        goto out;
    }
    status = STATUS_OK;
    for (uint32_t i = 0; i < graph->n_nodes && status == STATUS_OK; i++)
        if (ir_node(graph, i)->op != IR_OP_NONE && w.marks[i] == UNSEEN)
            status = walk_from(graph, &w, i, err);
    *n_order = w.n_order;
out:
    free(w.stack);
    free(w.cursor);
    free(w.marks);
    return status;
}

/* Puts the nodes into their new order; `moved` has room for all of them. */
static void place_nodes(struct ir_graph *graph, struct ir_node *moved, const uint32_t *order,
                        uint32_t n_order)
{
    for (uint32_t i = 0; i < n_order; i++) {
        moved[i] = graph->nodes[order[i]];
        for (uint32_t j = 0; j < moved[i].n_outputs; j++)
            ir_tensor(graph, moved[i].outputs[j])->producer = i;
    }
    if (n_order)
        memcpy(graph->nodes, moved, n_order * sizeof(*moved));
    graph->n_nodes = n_order;
}

static void keep(uint32_t *map, uint32_t tensor)
{
    if (tensor != IR_NONE)
        map[tensor] = 0;
}

/* map[old] becomes the new number of each tensor that somebody names, else stays IR_NONE. */
static uint32_t number_tensors(const struct ir_graph *graph, uint32_t *map)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        map[i] = IR_NONE;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        for (uint32_t j = 0; j < node->n_inputs; j++)
            keep(map, node->inputs[j]);
        for (uint32_t j = 0; j < node->n_outputs; j++)
            keep(map, node->outputs[j]);
    }
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        keep(map, graph->inputs[i]);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        keep(map, graph->outputs[i]);
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (map[i] != IR_NONE)
            map[i] = n++;
    return n;
}

static void renumber(uint32_t *ids, uint32_t n, const uint32_t *map)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] != IR_NONE)
            ids[i] = map[ids[i]];
}

static void place_tensors(struct ir_graph *graph, const uint32_t *map, uint32_t kept)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(graph, i);
        renumber(&t->alias_of, 1, map);
        if (map[i] != IR_NONE)
            graph->tensors[map[i]] = *t; /* downward: never onto one still to be moved */
    }
    graph->n_tensors = kept;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ir_node *node = ir_node(graph, i);
        renumber(node->inputs, node->n_inputs, map);
        renumber(node->outputs, node->n_outputs, map);
    }
    renumber(graph->inputs, graph->n_inputs, map);
    renumber(graph->outputs, graph->n_outputs, map);
}

enum status ir_graph_compact(struct ir_graph *graph, struct error *err)
{
    if (graph->n_segments)
        return error_set(err, STATUS_FAILED_PRECONDITION, "graph is already divided into segments");

    enum status status = STATUS_RESOURCE_EXHAUSTED;
    uint32_t n_order = 0;
    uint32_t *order = calloc(MAX(graph->n_nodes, 1), sizeof(*order));
    struct ir_node *moved = calloc(MAX(graph->n_nodes, 1), sizeof(*moved));
    uint32_t *map = calloc(MAX(graph->n_tensors, 1), sizeof(*map));
    if (!order || !moved || !map) {
        error_set(err, status, "no memory to compact %u nodes", graph->n_nodes);
        goto out;
    }
    status = sort_nodes(graph, order, &n_order, err);
    if (status != STATUS_OK)
        goto out;
    place_nodes(graph, moved, order, n_order);
    place_tensors(graph, map, number_tensors(graph, map));
out:
    free(order);
    free(moved);
    free(map);
    return status;
}
