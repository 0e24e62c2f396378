/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds how much memory a graph needs at least, before any is taken: a file of a hundred bytes can
 * ask for a tensor of a terabyte. The sum is made of all constants, the graph's inputs, and the
 * tensors that are alive at the worst node, outputs included; no way to place them needs less. A
 * tensor has at most IR_MAX_TENSOR_BYTES and a graph at most IR_MAX_TENSORS of them, so sums fit 64
 * bits.
 */
#include <stdlib.h>

#include "base/compiler.h"
#include "engine/build/build.h"

struct sums {
    uint64_t constants, ends, alive;
    uint32_t worst; /* the node at which `alive` bytes are alive */
};

/* last[i]: the last node that reads tensor i, or else the node that makes it. */
static void find_last_uses(const struct ir_graph *g, uint32_t *last)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        last[i] = ir_tensor(g, i)->producer;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(g, i)->n_inputs; k++)
            if (ir_node(g, i)->inputs[k] != IR_NONE)
                last[ir_node(g, i)->inputs[k]] = i;
}

/* What nodes have made of the inputs of a node, each of which counts once. */
static uint64_t joined_bytes(const struct ir_graph *g, const struct ir_node *node)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        bool again = false;
        for (uint32_t k = 0; k < i && !again; k++)
            again = node->inputs[k] == node->inputs[i];
        if (!again && ir_tensor(g, node->inputs[i])->producer != IR_NONE)
            bytes += ir_tensor(g, node->inputs[i])->bytes;
    }
    return bytes;
}

/* A reshape, or a cast to the type that is there, renames the bytes of its input and adds none. A
 * slice may be read where it is, and what is joined may be written where it is to be (parts.h). */
static uint64_t made_bytes(const struct ir_graph *g, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(g, tensor);
    const struct ir_node *node = t->producer == IR_NONE ? NULL : ir_node(g, t->producer);
    if (!node || ir_op_has(node->op, IR_TRAIT_CUTS) ||
        (ir_op_has(node->op, IR_TRAIT_RENAMES) &&
         (node->op != IR_OP_CAST || ir_tensor(g, node->inputs[0])->bytes == t->bytes)))
        return 0;
    bool joins = ir_op_has(node->op, IR_TRAIT_JOINS) && !node->n_epilogue;
    uint64_t there = joins ? joined_bytes(g, node) : 0;
    return t->bytes - MIN(t->bytes, there);
}

static void add_alive(const struct ir_graph *g, const uint32_t *last, struct sums *sums)
{
    uint64_t now = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *n = ir_node(g, i);
        if (n->op == IR_OP_NONE)
            continue;
        for (uint32_t k = 0; k < n->n_outputs; k++)
            now += made_bytes(g, n->outputs[k]);
        if (now > sums->alive) {
            sums->alive = now;
            sums->worst = i;
        }
        for (uint32_t k = 0; k < n->n_inputs; k++) {
            bool again = false; /* a node may read one tensor twice */
            for (uint32_t j = 0; j < k && !again; j++)
                again = n->inputs[j] == n->inputs[k];
            if (!again && n->inputs[k] != IR_NONE && last[n->inputs[k]] == i)
                now -= made_bytes(g, n->inputs[k]);
        }
        for (uint32_t k = 0; k < n->n_outputs; k++)
            if (last[n->outputs[k]] == i)
                now -= made_bytes(g, n->outputs[k]);
    }
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

enum status build_bounds_check(const struct ir_graph *graph, uint64_t max_bytes, struct error *err)
{
    struct sums sums = {0};
    uint32_t *last = calloc((size_t)graph->n_tensors + 1, sizeof(*last));
    if (!last)
        return error_no_memory(err, "the builder");
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor_is_constant(ir_tensor(graph, i)))
            sums.constants += ir_tensor(graph, i)->bytes;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        sums.ends += ir_tensor(graph, graph->inputs[i])->bytes;
    find_last_uses(graph, last);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        last[graph->outputs[i]] = graph->n_nodes; /* alive to the end */
    add_alive(graph, last, &sums);
    free(last);
    uint64_t needs = sums.constants + sums.ends + sums.alive;
    if (!max_bytes || needs <= max_bytes)
        return STATUS_OK;
    return error_set(
        err, STATUS_FAILED_PRECONDITION,
        "needs %.1f MiB of memory: constants %.1f, inputs %.1f, tensors alive at layer "
        "'%s' (%s) %.1f; at most %.1f MiB are allowed",
        mib(needs), mib(sums.constants), mib(sums.ends),
        graph->n_nodes ? ir_node(graph, sums.worst)->name : "",
        graph->n_nodes ? ir_op_name(ir_node(graph, sums.worst)->op) : "", mib(sums.alive),
        mib(max_bytes));
}

/* --- once it is placed --- */

static const struct ir_node *hungriest(const struct ir_graph *g)
{
    const struct ir_node *most = NULL;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!most || ir_node(g, i)->workspace_bytes > most->workspace_bytes)
            most = ir_node(g, i);
    return most;
}

enum status build_fits_check(const struct ir_graph *graph, uint64_t max_bytes, struct error *err)
{
    uint64_t constants = 0, ends = 0, arena = 0;
    const struct ir_node *most = hungriest(graph);
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor_is_constant(ir_tensor(graph, i)))
            constants += ir_tensor(graph, i)->bytes;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        ends += ir_tensor(graph, graph->inputs[i])->bytes;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        ends += ir_tensor(graph, graph->outputs[i])->bytes;
    for (uint32_t i = 0; i < graph->n_segments; i++)
        arena = MAX(arena, graph->segments[i].arena_bytes);
    uint64_t needs = constants + ends + arena;
    if (!max_bytes || needs <= max_bytes)
        return STATUS_OK;
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "needs %.1f MiB of memory: constants %.1f, inputs and outputs %.1f, tensors "
                     "and workspaces %.1f, of which the workspace of layer '%s' (%s) is %.1f "
                     "(--workspace leaves kernels out); at most %.1f MiB are allowed",
                     mib(needs), mib(constants), mib(ends), mib(arena), most ? most->name : "",
                     most && most->tactic ? most->tactic->name : "",
                     most ? mib(most->workspace_bytes) : 0.0, mib(max_bytes));
}
