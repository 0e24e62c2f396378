/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cpu/native_op.h"

/* What a tactic's blob holds. */
struct native_blob {
    uint32_t threads;
};

static bool (*const makers[IR_OP_COUNT_])(struct native_op *op, const struct ir_graph *graph,
                                          const struct ir_node *node) = {
    [IR_OP_UNARY] = native_chain_make,         [IR_OP_BINARY] = native_chain_make,
    [IR_OP_SOFTMAX] = native_softmax_make,     [IR_OP_LAYER_NORM] = native_norm_make,
    [IR_OP_TRANSPOSE] = native_transpose_make, [IR_OP_CAST] = native_chain_make,
    [IR_OP_GATHER] = native_gather_make,       [IR_OP_RECURRENT] = native_recurrent_make,
    [IR_OP_ATTENTION] = native_attention_make,
};

bool native_takes(enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ && makers[op];
}

static const struct fast_kernels *best(void)
{
    const struct fast_kernels *tables[FAST_MAX];
    fast_kernels_list(tables);
    return tables[0];
}

const char *native_isa(void)
{
    return best()->isa;
}

/* Returns false if the native kernels do not take such a node. The node has been verified: its
 * types and shapes are as inferred. */
static bool make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node)
{
    size_t elements;
    *op = (struct native_op){.fast = best()};
    return native_takes(node->op) && (node->n_outputs == 1 || node->op == IR_OP_RECURRENT) &&
           shape_elements(&ir_tensor(graph, node->outputs[0])->shape, &elements) && elements > 0 &&
           makers[node->op](op, graph, node);
}

static void fill_tactic(const struct ir_graph *graph, const struct ir_node *node,
                        const struct native_op *op, uint32_t threads, struct tactic *out)
{
    struct native_blob blob = {threads};
    *out = (struct tactic){.backend = "cpu", .id = NATIVE_TACTIC, .blob_size = sizeof(blob)};
    snprintf(out->name, sizeof(out->name), "native %s %u thread%s", op->fast->isa, threads,
             threads == 1 ? "" : "s");
    memcpy(out->blob, &blob, sizeof(blob));
    out->n_in = MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX);
    out->n_out = node->n_outputs; /* the ports stay plain */
    tactic_set_types(out, graph, node, DTYPE_NONE);
    if (op->packed_bytes)
        tactic_port_pack(&out->in[1], op->packed_bytes);
}

enum status native_candidates(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, tactic_visit visit, void *user,
                              struct error *err)
{
    struct native_op op;
    struct tactic tactic;
    if (!make(&op, graph, node))
        return STATUS_OK;
    if (threads > 1 && op.units > 1) {
        fill_tactic(graph, node, &op, threads, &tactic);
        TRY(visit(user, &tactic, err));
    }
    fill_tactic(graph, node, &op, 1, &tactic);
    return visit(user, &tactic, err);
}

/* Whether port and tensor are plain, or packed as this op wants them. */
static bool is_wanted(const struct ir_graph *graph, const struct native_op *op, uint32_t input,
                      uint32_t tensor, const struct tactic_port *port)
{
    bool packed = input == 1 && op->packed_bytes;
    if (tensor == IR_NONE)
        return !port || (port->format.layout == IR_LAYOUT_PLAIN && !port->packed_bytes);
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    if (packed)
        return t->layout == IR_LAYOUT_OPAQUE && t->bytes == op->packed_bytes && port &&
               port->packed_bytes == op->packed_bytes;
    return t->layout == IR_LAYOUT_PLAIN &&
           (!port || (port->format.layout == IR_LAYOUT_PLAIN && !port->packed_bytes));
}

static bool all_wanted(const struct ir_graph *graph, const struct ir_node *node,
                       const struct native_op *op, const struct tactic *tactic)
{
    if (tactic->n_in != MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX) ||
        tactic->n_out != node->n_outputs)
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (!is_wanted(graph, op, i, node->inputs[i], i < tactic->n_in ? &tactic->in[i] : NULL))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!is_wanted(graph, op, IR_NONE, node->outputs[i], &tactic->out[i]))
            return false;
    return true;
}

enum status native_pack(const struct ir_graph *graph, const struct ir_node *node,
                        const struct tactic *tactic, uint32_t input, void *to, struct error *err)
{
    struct native_op op;
    if (input != 1 || !make(&op, graph, node) || !op.packed_bytes ||
        tactic->in[1].packed_bytes != op.packed_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "layer '%s': nothing to pack", node->name);
    native_recurrent_pack(&op, ir_tensor(graph, node->inputs[1])->data, to);
    return STATUS_OK;
}

enum status native_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct native_op **out, struct error *err)
{
    struct native_blob blob;
    CLEANUP(cleanup_free) struct native_op *op = malloc(sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    if (tactic->id != NATIVE_TACTIC || tactic->blob_size != sizeof(blob) ||
        !make(op, graph, node) || !all_wanted(graph, node, op, tactic))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the tactic is not for this node",
                         ir_op_name(node->op), node->name);
    memcpy(&blob, tactic->blob, sizeof(blob));
    if (blob.threads < 1 || blob.threads > threads)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': planned for %u threads, not %u",
                         ir_op_name(node->op), node->name, blob.threads, threads);
    op->threads = blob.threads;
    *out = STEAL(op);
    return STATUS_OK;
}

void native_op_free(struct native_op *op)
{
    free(op);
}

uint64_t native_op_workspace(const struct native_op *op)
{
    return op->workspace_bytes + op->threads * op->thread_bytes;
}

enum status native_op_launch(struct native_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err)
{
    op->inputs = inputs;
    op->outputs = outputs;
    op->output = outputs[0];
    op->workspace = workspace;
    if (op->check)
        TRY(op->check(op, err));
    team_run(op->threads, op->units, op->work, op);
    return STATUS_OK;
}
