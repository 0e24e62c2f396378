/* SPDX-License-Identifier: Apache-2.0 */
/* A fusion for which only the reference has a kernel in fp32 runs as the nodes that it was made of:
 * sums of two convolutions of many images would take minutes on the host. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/guard/internal.h"
#include "engine/tune/internal.h"

/* A graph of the fused node and, beside it, its parts, which make `between` and the output. */
struct parts {
    struct ir_graph *graph;
    uint32_t first, second, between;
};

static void parts_cleanup(struct parts *p)
{
    ir_graph_free(p->graph);
}

static uint32_t add_node(struct ir_graph *graph, enum ir_op op, uint32_t n, const uint32_t *inputs,
                         const struct ir_tensor *like)
{
    uint32_t node = ir_node_add(graph, op, "", n, inputs);
    if (node == IR_NONE ||
        ir_node_output_add(graph, node, "", ir_tensor_type(like), &like->shape) == IR_NONE)
        return IR_NONE;
    return node;
}

/* Adds to the node what the fused one does with its sums. */
static bool add_epilogue(struct ir_graph *graph, uint32_t node, const struct ir_node *fused)
{
    bool ok = true;
    for (uint32_t i = 0; i < fused->n_epilogue && ok; i++) {
        const struct ir_epilogue *step = &fused->epilogue[i];
        bool binary = step->kind == IR_EPILOGUE_BINARY;
        ok = ir_epilogue_add(graph, node, *step, binary ? fused->inputs[step->input] : IR_NONE);
    }
    return ok;
}

/* conv_pair: the second convolution adds what the first one has made. */
static bool split(struct parts *p)
{
    struct ir_graph *g = p->graph;
    const struct ir_node fused = *ir_node(g, 0);
    const struct ir_tensor y = *ir_tensor(g, fused.outputs[0]);
    const int64_t strides[2] = {ir_attr_at(&fused, IR_ATTR_STRIDES, 0),
                                ir_attr_at(&fused, IR_ATTR_STRIDES, 1)};
    uint32_t in[3] = {fused.inputs[2], fused.inputs[3],
                      ir_node_own_inputs(&fused) > 4 ? fused.inputs[4] : IR_NONE};
    p->first = add_node(g, IR_OP_CONV, 2, fused.inputs, &y);
    p->second = add_node(g, IR_OP_CONV, in[2] == IR_NONE ? 2 : 3, in, &y);
    if (p->first == IR_NONE || p->second == IR_NONE ||
        !ir_attr_set_ints(g, p->second, IR_ATTR_STRIDES, 2, strides))
        return false;
    p->between = ir_node(g, p->first)->outputs[0];
    const struct ir_epilogue sum = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    return ir_epilogue_add(g, p->second, sum, p->between) && add_epilogue(g, p->second, &fused);
}

static enum status run_once(struct layer_machine *machine, const struct parts *p,
                            const struct ir_node *node, void **values, struct layer_run *run,
                            struct error *err)
{
    const struct ir_node *fused = ir_node(p->graph, 0);
    for (uint32_t i = 0; i < fused->n_inputs; i++)
        if (fused->inputs[i] != IR_NONE && node->inputs[i] != IR_NONE)
            values[fused->inputs[i]] = run->from[node->inputs[i]];
    struct layer_run first = {.from = values, .to = {values[p->between]}};
    struct layer_run second = {.from = values, .to = {run->to[0]}};
    TRY(layer_run_wide(machine, p->graph, ir_node(p->graph, p->first), &first, 1, err));
    return layer_run_wide(machine, p->graph, ir_node(p->graph, p->second), &second, 1, err);
}

bool parts_has(const struct ir_node *node)
{
    return node->op == IR_OP_CONV_PAIR;
}

enum status parts_run_wide(struct layer_machine *machine, const struct ir_graph *graph,
                           const struct ir_node *node, struct layer_run *runs, uint32_t n,
                           struct error *err)
{
    CLEANUP(parts_cleanup) struct parts p = {0};
    CLEANUP(cleanup_free) void **values = NULL;
    CLEANUP(cleanup_free) void *between = NULL;
    TRY(tune_sample_new(graph, node, &p.graph, err));
    if (!split(&p) || !(values = calloc(p.graph->n_tensors, sizeof(*values))) ||
        !(between = value_new(ir_tensor(p.graph, p.between))))
        return error_no_memory(err, "the comparison with fp32");
    values[p.between] = between;
    for (uint32_t i = 0; i < n; i++)
        TRY(run_once(machine, &p, node, values, &runs[i], err));
    return STATUS_OK;
}
