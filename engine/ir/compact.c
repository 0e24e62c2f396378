/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a rewritten graph back into order: nodes stand in an order in which they may run, without
 * holes. The time is linear. A graph with a cycle, or one that is already divided into segments, is
 * refused.
 */
#include "engine/ir/ir.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/ir/sort.h"

static uint32_t producer_of_input(const void *user, uint32_t index, uint32_t k)
{
    const struct ir_graph *graph = user;
    const struct ir_node *node = ir_node(graph, index);
    if (node->op == IR_OP_NONE || k == node->n_inputs)
        return SORT_END;
    uint32_t from =
        node->inputs[k] == IR_NONE ? IR_NONE : ir_tensor(graph, node->inputs[k])->producer;
    return from == IR_NONE ? SORT_NONE : from;
}

static enum status sort_nodes(struct ir_graph *graph, uint32_t *order, uint32_t *n_order,
                              struct error *err)
{
    uint32_t through = SORT_NONE;
    enum status status =
        sort_by_need(graph->n_nodes, producer_of_input, graph, order, &through, err);
    if (through != SORT_NONE)
        return error_set(err, status, "graph has a cycle through node \"%s\"",
                         ir_node(graph, through)->name);
    TRY(status);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, order[i])->op != IR_OP_NONE)
            order[(*n_order)++] = order[i];
    return STATUS_OK;
}

/* Puts the nodes into their new order; `moved` has room for all nodes. */
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

/* map[old] becomes the new number of each tensor that a node or the graph names; for others it
 * stays IR_NONE. */
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
            graph->tensors[map[i]] = *t; /* downward: never onto one that must still move */
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

enum status ir_graph_reorder(struct ir_graph *graph, const uint32_t *order, struct error *err)
{
    CLEANUP(cleanup_free) struct ir_node *moved = calloc(MAX(graph->n_nodes, 1), sizeof(*moved));
    if (!moved)
        return error_no_memory(err, "ordering %u nodes", graph->n_nodes);
    place_nodes(graph, moved, order, graph->n_nodes);
    return STATUS_OK;
}

enum status ir_graph_compact(struct ir_graph *graph, struct error *err)
{
    if (graph->n_segments)
        return error_set(err, STATUS_FAILED_PRECONDITION, "graph is already divided into segments");
    uint32_t n_order = 0;
    CLEANUP(cleanup_free) uint32_t *order = calloc(MAX(graph->n_nodes, 1), sizeof(*order));
    CLEANUP(cleanup_free) struct ir_node *moved = calloc(MAX(graph->n_nodes, 1), sizeof(*moved));
    CLEANUP(cleanup_free) uint32_t *map = calloc(MAX(graph->n_tensors, 1), sizeof(*map));
    if (!order || !moved || !map)
        return error_no_memory(err, "compacting %u nodes", graph->n_nodes);
    TRY(sort_nodes(graph, order, &n_order, err));
    place_nodes(graph, moved, order, n_order);
    place_tensors(graph, map, number_tensors(graph, map));
    return STATUS_OK;
}
