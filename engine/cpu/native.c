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
    uint32_t layout; /* enum ir_layout */
};

static bool (*const makers[IR_OP_COUNT_])(struct native_op *op, const struct ir_graph *graph,
                                          const struct ir_node *node) = {
    [IR_OP_UNARY] = native_chain_make,
    [IR_OP_BINARY] = native_chain_make,
    [IR_OP_SOFTMAX] = native_softmax_make,
    [IR_OP_LAYER_NORM] = native_norm_make,
    [IR_OP_TRANSPOSE] = native_transpose_make,
    [IR_OP_CAST] = native_chain_make,
    [IR_OP_SELECT] = native_chain_make,
    [IR_OP_EXPAND] = native_expand_make,
    [IR_OP_TILE] = native_expand_make,
    [IR_OP_GATHER] = native_gather_make,
    [IR_OP_GATHER_ELEMENTS] = native_gather_elements_make,
    [IR_OP_RECURRENT] = native_recurrent_make,
    [IR_OP_CONV] = native_product_make,
    [IR_OP_MATMUL] = native_product_make,
    [IR_OP_ATTENTION] = native_attention_make,
    [IR_OP_INSTANCE_NORM] = native_groups_make,
    [IR_OP_REDUCE] = native_reduce_make,
    [IR_OP_ARG_REDUCE] = native_arg_make,
    [IR_OP_CUMSUM] = native_cumsum_make,
    [IR_OP_TOPK] = native_topk_make,
    [IR_OP_PAD] = native_pad_make,
    [IR_OP_CONCAT] = native_concat_make,
    [IR_OP_SLICE] = native_slice_make,
    [IR_OP_RESIZE] = native_resize_make,
    [IR_OP_SAMPLE] = native_sample_make,
    [IR_OP_ROI_POOL] = native_roi_make,
    [IR_OP_NMS] = native_nms_make,
    [IR_OP_QUANTIZE] = native_quantize_make,
    [IR_OP_DEQUANTIZE] = native_quantize_make,
    [IR_OP_REFORMAT] = native_reformat_make,
    [IR_OP_EMBED] = native_embed_make,
};

/* The makers of nodes with tensors that are stored in 8 bits by scales. Where there is none, the
 * usual maker takes a node that only moves them. */
static bool (*const scaled_makers[IR_OP_COUNT_])(struct native_op *op, const struct ir_graph *graph,
                                                 const struct ir_node *node) = {
    [IR_OP_UNARY] = native_chain_make,       [IR_OP_BINARY] = native_chain_make,
    [IR_OP_QUANTIZE] = native_quantize_make, [IR_OP_DEQUANTIZE] = native_quantize_make,
    [IR_OP_REFORMAT] = native_reformat_make, [IR_OP_POOL] = native_average_make,
    [IR_OP_PAD] = native_pad_make,           [IR_OP_REDUCE] = native_average_make,
    [IR_OP_CAST] = native_convert_make,      [IR_OP_CONCAT] = native_concat_make,
};

/* The ops whose makers heed op->layout. */
static const bool in_layouts[IR_OP_COUNT_] = {
    [IR_OP_INSTANCE_NORM] = true, [IR_OP_PAD] = true,        [IR_OP_CONCAT] = true,
    [IR_OP_SLICE] = true,         [IR_OP_RESIZE] = true,     [IR_OP_SAMPLE] = true,
    [IR_OP_QUANTIZE] = true,      [IR_OP_DEQUANTIZE] = true,
};

/* ... of nodes with such tensors, beside those; their output may be without the layout. */
static const bool scaled_in_layouts[IR_OP_COUNT_] = {
    [IR_OP_UNARY] = true,
    [IR_OP_BINARY] = true,
    [IR_OP_POOL] = true,
    [IR_OP_REDUCE] = true,
};

/* ... of INT32, in rows of channels, as products of bytes have their sums. */
static const bool sums_in_layouts[IR_OP_COUNT_] = {
    [IR_OP_UNARY] = true,
    [IR_OP_BINARY] = true,
    [IR_OP_CAST] = true,
};

bool native_takes(enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ && (makers[op] || scaled_makers[op]);
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

uint32_t native_lanes(void)
{
    return (uint32_t)ir_layout_block(best()->blocked);
}

uint32_t native_tactic_threads(const struct tactic *tactic)
{
    struct native_blob blob;
    memcpy(&blob, tactic->blob, sizeof(blob));
    return blob.threads;
}

bool native_has_layout(const struct shape *shape, enum ir_layout layout)
{
    struct native_stored stored;
    return native_stored_make(shape, layout, &stored);
}

/* The tensor whose shape says whether a layout is of use. The smaller operand may come first. */
static uint32_t leading(const struct ir_node *node)
{
    return node->op == IR_OP_BINARY ? node->outputs[0] : node->inputs[0];
}

/* Whether the node may run in the layout. */
static bool in_layout(const struct ir_graph *graph, const struct ir_node *node,
                      enum ir_layout layout)
{
    bool scaled = stored_any(graph, node);
    bool quantised = scaled || ir_quant_real(node) != IR_NONE; /* no product wants that in blocks */
    if (layout == IR_LAYOUT_PLAIN)
        return true;
    if (layout >= IR_LAYOUT_COUNT_ || node->n_inputs == 0 ||
        (ir_layout_block(layout) && quantised) ||
        !native_has_layout(&ir_tensor(graph, leading(node))->shape, layout))
        return false;
    if (scaled && scaled_in_layouts[node->op])
        return true;
    bool sums = !scaled && layout == IR_LAYOUT_CHANNELS_LAST &&
                ir_tensor(graph, node->inputs[0])->dtype == DTYPE_I32;
    return (in_layouts[node->op] || (sums && sums_in_layouts[node->op])) &&
           native_has_layout(&ir_tensor(graph, node->outputs[0])->shape, layout);
}

/* Returns false if the native kernels do not take such a node. The node has been verified: its
 * types and shapes are as inferred. */
static bool make(struct native_op *op, const struct ir_graph *graph, const struct ir_node *node,
                 enum ir_layout layout)
{
    size_t elements;
    *op = (struct native_op){.fast = best(), .layout = layout};
    if (!native_takes(node->op) || node->n_outputs < 1 || !in_layout(graph, node, layout) ||
        !shape_elements(&ir_tensor(graph, node->outputs[0])->shape, &elements) || elements == 0)
        return false;
    if (!stored_any(graph, node))
        return makers[node->op] && makers[node->op](op, graph, node);
    if (scaled_makers[node->op])
        return scaled_makers[node->op](op, graph, node);
    return stored_moves(graph, node) && makers[node->op](op, graph, node);
}

static enum ir_layout wanted_layout(const struct ir_graph *graph, const struct ir_node *node,
                                    const struct native_op *op, uint32_t tensor)
{
    if (node->op == IR_OP_REFORMAT)
        return ir_tensor(graph, tensor)->layout;
    return native_follows(graph, node, op, tensor) &&
                   native_has_layout(&ir_tensor(graph, tensor)->shape, op->layout)
               ? op->layout
               : IR_LAYOUT_PLAIN;
}

static void fill_tactic(const struct ir_graph *graph, const struct ir_node *node,
                        const struct native_op *op, uint32_t threads, struct tactic *out)
{
    struct native_blob blob = {threads, op->layout};
    bool plain = op->layout == IR_LAYOUT_PLAIN;
    *out = (struct tactic){.backend = "cpu", .id = NATIVE_TACTIC, .blob_size = sizeof(blob)};
    snprintf(out->name, sizeof(out->name), "native %s%s%s %u thread%s", op->fast->isa,
             plain ? "" : " ", plain ? "" : ir_layout_name(op->layout), threads,
             threads == 1 ? "" : "s");
    memcpy(out->blob, &blob, sizeof(blob));
    out->n_in = MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX);
    out->n_out = node->n_outputs;
    tactic_set_types(out, graph, node, DTYPE_NONE);
    stored_set_scales(out, graph, node);
    for (uint32_t i = 0; i < out->n_in; i++)
        out->in[i].format.layout = wanted_layout(graph, node, op, node->inputs[i]);
    for (uint32_t i = 0; i < out->n_out; i++)
        out->out[i].format.layout = wanted_layout(graph, node, op, node->outputs[i]);
    if (op->packed_bytes)
        tactic_port_pack(&out->in[1], op->packed_bytes);
}

static enum status visit_layout(uint32_t threads, const struct ir_graph *graph,
                                const struct ir_node *node, enum ir_layout layout,
                                tactic_visit visit, void *user, struct error *err)
{
    struct native_op op;
    struct tactic tactic;
    if (!make(&op, graph, node, layout))
        return STATUS_OK;
    if (threads > 1 && op.units > 1) {
        fill_tactic(graph, node, &op, threads, &tactic);
        TRY(visit(user, &tactic, err));
    }
    fill_tactic(graph, node, &op, 1, &tactic);
    return visit(user, &tactic, err);
}

enum status native_candidates(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, tactic_visit visit, void *user,
                              struct error *err)
{
    const enum ir_layout layouts[] = {best()->blocked, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN};
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++)
        TRY(visit_layout(threads, graph, node, layouts[i], visit, user, err));
    return STATUS_OK;
}

/* Whether port and tensor have the layout that this op wants, or are packed as it wants. */
static bool is_wanted(const struct ir_graph *graph, const struct ir_node *node,
                      const struct native_op *op, uint32_t input, uint32_t tensor,
                      const struct tactic_port *port)
{
    bool packed = input == 1 && op->packed_bytes;
    enum ir_layout layout = wanted_layout(graph, node, op, tensor);
    if (tensor == IR_NONE)
        return !port || (port->format.layout == IR_LAYOUT_PLAIN && !port->packed_bytes);
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    if (packed)
        return t->layout == IR_LAYOUT_OPAQUE && t->bytes == op->packed_bytes && port &&
               port->packed_bytes == op->packed_bytes;
    return t->layout == layout && (!port || (port->format.layout == layout && !port->packed_bytes));
}

static bool all_wanted(const struct ir_graph *graph, const struct ir_node *node,
                       const struct native_op *op, const struct tactic *tactic)
{
    if (tactic->n_in != MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX) ||
        tactic->n_out != node->n_outputs)
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (!is_wanted(graph, node, op, i, node->inputs[i],
                       i < tactic->n_in ? &tactic->in[i] : NULL))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!is_wanted(graph, node, op, IR_NONE, node->outputs[i], &tactic->out[i]))
            return false;
    return true;
}

enum status native_pack(const struct ir_graph *graph, const struct ir_node *node,
                        const struct tactic *tactic, uint32_t input, void *to, struct error *err)
{
    struct native_op op;
    if (input != 1 || !make(&op, graph, node, IR_LAYOUT_PLAIN) || !op.packed_bytes ||
        tactic->in[1].packed_bytes != op.packed_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "layer '%s': nothing to pack", node->name);
    if (ir_op_has(node->op, IR_TRAIT_BYTES))
        native_product_pack(&op, ir_tensor(graph, node->inputs[1])->data, to);
    else
        native_recurrent_pack(&op, ir_tensor(graph, node->inputs[1])->data, to);
    return STATUS_OK;
}

void native_op_free(struct native_op *op)
{
    if (op)
        free(op->owned);
    free(op);
}

static void op_cleanup(struct native_op **at)
{
    native_op_free(*at);
}

enum status native_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct native_op **out, struct error *err)
{
    struct native_blob blob;
    CLEANUP(op_cleanup) struct native_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    memcpy(&blob, tactic->blob, sizeof(blob));
    if (tactic->id != NATIVE_TACTIC || tactic->blob_size != sizeof(blob) ||
        !stored_fits(tactic, graph, node) || !make(op, graph, node, (enum ir_layout)blob.layout) ||
        !all_wanted(graph, node, op, tactic))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': the tactic is not for this node",
                         ir_op_name(node->op), node->name);
    if (blob.threads < 1 || blob.threads > threads)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s': planned for %u threads, not %u",
                         ir_op_name(node->op), node->name, blob.threads, threads);
    op->threads = blob.threads;
    if (op->keep)
        TRY(op->keep(op, graph, node, err));
    *out = STEAL(op);
    return STATUS_OK;
}

uint64_t native_op_workspace(const struct native_op *op)
{
    return op->workspace_bytes + op->threads * op->thread_bytes;
}

uint32_t native_op_threads(const struct native_op *op)
{
    return op->threads;
}

enum status native_op_launch(struct native_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err)
{
    op->inputs = inputs;
    op->outputs = outputs;
    op->output = outputs[0];
    op->workspace = workspace;
    if (op->begin)
        op->begin(op);
    if (op->check)
        TRY(op->check(op, err));
    team_run(op->threads, op->units, op->work, op);
    if (op->middle)
        op->middle(op);
    if (op->rest)
        team_run(op->threads, op->units, op->rest, op);
    return STATUS_OK;
}
