/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prepares nodes for the reference kernels and launches them. A node is checked once against type
 * inference; each launch puts its addresses into the views. An epilogue runs after the kernel, step
 * by step and in place; until its last step a half-precision output is kept in fp32.
 */
#include "engine/cpu/reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cpu/call.h"
#include "engine/stored.h"
#include "kernels/cpu/ref.h"

struct reference_op {
    const struct ir_graph *graph;
    const struct ir_node *node;
    uint64_t scratch_bytes; /* of the kernel, at the start of the workspace */
    uint64_t wide_bytes;    /* of an fp32 output behind it; 0: the kernel writes to the output */
    struct tensor_view *in;
    struct tensor_view out[IR_MAX_OUTPUTS];
};

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': %s", ir_op_name(node->op), node->name,
                     why);
}

/* Checks that the outputs have the types and shapes that inference gives. */
static enum status check_node(const struct ir_graph *graph, const struct ir_node *node,
                              struct error *err)
{
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(ir_infer_node(graph, node, types, &n, err));
    if (node->n_outputs == 0 || node->n_outputs > n ||
        node->n_outputs < ir_op_row(node->op)->min_out)
        return refuse(node, err, "wrong number of outputs");
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i] >= graph->n_tensors)
            return refuse(node, err, "an output is out of range");
        const struct ir_tensor *t = ir_tensor(graph, node->outputs[i]);
        if (ir_tensor_type(t) != types[i].dtype || !shape_equal(&t->shape, &types[i].shape))
            return refuse(node, err, "an output is not of the type it should have");
    }
    return ir_node_is_uniform(graph, node) || stored_moves(graph, node)
               ? STATUS_OK
               : refuse(node, err, "its tensors are of several types");
}

static enum status check_epilogue(const struct ir_node *node, struct error *err)
{
    if (node->n_epilogue > IR_MAX_EPILOGUE)
        return refuse(node, err, "its epilogue is too long");
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *step = &node->epilogue[i];
        bool unary = step->kind == IR_EPILOGUE_UNARY;
        if (unary ? step->func >= IR_UNARY_COUNT_
                  : step->func >= IR_BINARY_COUNT_ || step->input >= node->n_inputs)
            return refuse(node, err, "its epilogue is out of range");
    }
    return STATUS_OK;
}

static enum ir_layout wanted_layout(const struct ir_graph *graph, const struct ir_node *node,
                                    uint32_t tensor)
{
    return node->op == IR_OP_REFORMAT ? ir_tensor(graph, tensor)->layout : IR_LAYOUT_PLAIN;
}

static enum status check_layout(const struct ir_graph *graph, const struct ir_node *node,
                                uint32_t tensor, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    uint64_t bytes;
    if (t->layout != wanted_layout(graph, node, tensor) || t->layout == IR_LAYOUT_OPAQUE)
        return refuse(node, err, "the reference kernel takes plain tensors only");
    if (!ir_layout_bytes(&t->shape, t->dtype, t->layout, &bytes))
        return refuse(node, err, "a tensor cannot have its layout");
    return STATUS_OK;
}

static enum status check_layouts(const struct ir_graph *graph, const struct ir_node *node,
                                 struct error *err)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            TRY(check_layout(graph, node, node->inputs[i], err));
    for (uint32_t i = 0; i < node->n_outputs; i++)
        TRY(check_layout(graph, node, node->outputs[i], err));
    return STATUS_OK;
}

static enum status check_ports(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic, struct error *err)
{
    if (tactic->id != REFERENCE_TACTIC || tactic->blob_size != 0 ||
        tactic->n_in != MIN(node->n_inputs, TACTIC_PORTS_MAX) || tactic->n_out != node->n_outputs)
        return refuse(node, err, "the tactic is not the reference's");
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes ||
            (node->inputs[i] != IR_NONE &&
             tactic->in[i].format.layout != wanted_layout(graph, node, node->inputs[i])))
            return refuse(node, err, "the tactic's inputs are not plain");
    for (uint32_t i = 0; i < tactic->n_out; i++)
        if (tactic->out[i].packed_bytes ||
            tactic->out[i].format.layout != wanted_layout(graph, node, node->outputs[i]))
            return refuse(node, err, "the tactic's outputs are not plain");
    return STATUS_OK;
}

enum status reference_candidate(const struct ir_graph *graph, const struct ir_node *node,
                                struct tactic *out, struct error *err)
{
    TRY(check_node(graph, node, err));
    struct tactic tactic = {.id = REFERENCE_TACTIC, .n_out = node->n_outputs};
    tactic.n_in = MIN(node->n_inputs, TACTIC_PORTS_MAX);
    memcpy(tactic.name, "reference", sizeof("reference"));
    for (uint32_t i = 0; i < tactic.n_in; i++)
        if (node->inputs[i] != IR_NONE)
            tactic.in[i].format.layout = wanted_layout(graph, node, node->inputs[i]);
    for (uint32_t i = 0; i < tactic.n_out; i++)
        tactic.out[i].format.layout = wanted_layout(graph, node, node->outputs[i]);
    tactic_set_types(&tactic, graph, node, DTYPE_NONE);
    stored_set_scales(&tactic, graph, node);
    *out = tactic;
    return STATUS_OK;
}

/* Whether an output is kept in fp32 until its epilogue has run. An op that only moves elements
 * cannot change their type on the way. */
static bool is_wide(const struct ir_node *node, enum dtype dtype)
{
    return node->n_epilogue && !ir_op_has(node->op, IR_TRAIT_MOVES) &&
           (dtype == DTYPE_F16 || dtype == DTYPE_BF16);
}

static struct tensor_view view_of(const struct ir_graph *graph, uint32_t tensor)
{
    if (tensor == IR_NONE)
        return (struct tensor_view){0};
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    return (struct tensor_view){t->dtype, t->shape, NULL};
}

static enum status size_workspace(struct reference_op *op, struct error *err)
{
    size_t scratch = call_scratch(op->graph, op->node), wide = 0;
    const struct ir_tensor *y = ir_tensor(op->graph, op->node->outputs[0]);
    if (!checked_round_up(scratch, BACKEND_ALIGN, &scratch) ||
        (is_wide(op->node, y->dtype) && !shape_bytes(&y->shape, DTYPE_F32, &wide)))
        return refuse(op->node, err, "its workspace is too large");
    op->scratch_bytes = scratch;
    op->wide_bytes = wide;
    return STATUS_OK;
}

enum status reference_op_prepare(const struct ir_graph *graph, const struct ir_node *node,
                                 const struct tactic *tactic, struct reference_op **out,
                                 struct error *err)
{
    TRY(check_node(graph, node, err));
    TRY(check_epilogue(node, err));
    TRY(check_layouts(graph, node, err));
    if (tactic)
        TRY(check_ports(graph, node, tactic, err));
    size_t size = sizeof(struct reference_op) + node->n_inputs * sizeof(struct tensor_view);
    CLEANUP(cleanup_free) struct reference_op *op = calloc(1, size);
    if (!op)
        return error_no_memory(err, "an op");
    op->graph = graph;
    op->node = node;
    op->in = (struct tensor_view *)(op + 1);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        op->in[i] = view_of(graph, node->inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        op->out[i] = view_of(graph, node->outputs[i]);
    TRY(size_workspace(op, err));
    *out = STEAL(op);
    return STATUS_OK;
}

uint64_t reference_op_workspace(const struct reference_op *op)
{
    return op->scratch_bytes + op->wide_bytes;
}

void reference_op_free(struct reference_op *op)
{
    free(op);
}

enum status reference_op_launch(struct reference_op *op, void *const *inputs, void *const *outputs,
                                void *workspace, struct error *err)
{
    const struct ir_node *node = op->node;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        op->in[i].data = inputs[i];
    for (uint32_t i = 0; i < node->n_outputs; i++)
        op->out[i].data = outputs[i];
    struct tensor_view out[IR_MAX_OUTPUTS];
    memcpy(out, op->out, sizeof(out));
    if (op->wide_bytes) {
        out[0].dtype = DTYPE_F32;
        out[0].data = (char *)workspace + op->scratch_bytes;
    }
    struct call call = {op->graph, node, op->in, out, workspace, err};
    enum status status = call_run(&call);
    if (status) {
        error_prefix(err, "%s '%s'", ir_op_name(node->op), node->name);
        return status;
    }
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *step = &node->epilogue[i];
        bool binary = step->kind == IR_EPILOGUE_BINARY;
        call_epilogue(step, binary ? &op->in[step->input] : NULL, &out[0]);
    }
    if (op->wide_bytes)
        ref_cast(&out[0], &op->out[0]);
    return STATUS_OK;
}
