/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function of a tensor of bytes that is rounded to bytes, and then meets this same tensor, is one
 * node: its result depends on one byte alone, and a backend may look it up. Quantised networks have
 * their gates so:
 *
 *   x -> sigmoid -> quantise -> dequantise -> * x
 *
 * becomes sigmoid then / s, clip, round, * s, * x.
 */
#include "engine/passes/host.h"

/* Whether the tensor's numbers are multiples of one step, as bytes. */
static bool is_bytes(const struct rewrite *rw, uint32_t tensor)
{
    const struct ir_scale *scale = ir_scale(rw->graph, ir_tensor(rw->graph, tensor)->range);
    return scale && scale->n == 1 && dtype_size(scale->dtype) == 1;
}

/* The QUANTIZE before the DEQUANTIZE that makes `tensor`, if one step does both; else IR_NONE. */
static uint32_t rounding_of(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t after = rw_made_by(rw, tensor, IR_OP_DEQUANTIZE);
    uint32_t bytes = after == IR_NONE ? IR_NONE : rw_input(rw, after, 0);
    uint32_t node = after == IR_NONE ? IR_NONE : rw_made_by(rw, bytes, IR_OP_QUANTIZE);
    if (node == IR_NONE || rw_uses(rw, tensor) != 1 || rw_uses(rw, bytes) != 1)
        return IR_NONE;
    const struct ir_scale *scale =
        ir_scale(rw->graph, ir_quant_scale(rw->graph, ir_node(rw->graph, after)));
    return scale && scale->n == 1 && dtype_size(scale->dtype) == 1 &&
                   ir_quant_is_scale(rw->graph, ir_node(rw->graph, node), scale)
               ? node
               : IR_NONE;
}

static void add_function(struct rewrite *rw, uint32_t host, enum ir_unary func, float alpha,
                         float beta)
{
    rw_add_epilogue(
        rw, host,
        (struct ir_epilogue){
            .kind = IR_EPILOGUE_UNARY, .func = (uint32_t)func, .alpha = alpha, .beta = beta},
        IR_NONE);
}

static void add_operand(struct rewrite *rw, uint32_t host, uint32_t func, uint32_t tensor)
{
    rw_add_epilogue(rw, host, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = func},
                    tensor);
}

/* The integers are not moved by their zero point, which takes nothing away. */
static void add_rounding(struct rewrite *rw, uint32_t host, uint32_t quantize)
{
    const struct ir_scale *scale =
        ir_scale(rw->graph, ir_quant_scale(rw->graph, ir_node(rw->graph, quantize)));
    float step = scale->step[0], zero = scale->zero ? (float)scale->zero[0] : 0;
    float least = scale->dtype == DTYPE_I8 ? INT8_MIN : 0;
    uint32_t by = rw_input(rw, quantize, 1);
    add_operand(rw, host, IR_BINARY_DIV, by);
    add_function(rw, host, IR_UNARY_CLIP, least - zero, least + UINT8_MAX - zero);
    add_function(rw, host, IR_UNARY_ROUND, 0, 0);
    add_function(rw, host, IR_UNARY_LINEAR, step, 0);
}

/* Joins the function that makes input `i` of the node, if it is one of the other input. */
static bool join(struct rewrite *rw, uint32_t node, uint32_t i)
{
    uint32_t x = rw_input(rw, node, 1 - i), quantize = rounding_of(rw, rw_input(rw, node, i));
    uint32_t host =
        quantize == IR_NONE ? IR_NONE : rw_made_by(rw, rw_input(rw, quantize, 0), IR_OP_UNARY);
    if (host == IR_NONE || rw_input(rw, host, 0) != x || rw_uses(rw, rw_output(rw, host)) != 1)
        return false;
    rw_done(rw, "%s + %s", ir_node(rw->graph, host)->name, ir_node(rw->graph, node)->name);
    add_rounding(rw, host, quantize);
    add_operand(rw, host, (uint32_t)ir_attr_int(ir_node(rw->graph, node), IR_ATTR_FUNC), x);
    rw_set_input(rw, node, i, rw_output(rw, host));
    rw_absorb(rw, host, node);
    return true;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_BINARY || n->n_epilogue || !host_commutes(ir_attr_int(n, IR_ATTR_FUNC)) ||
        ir_tensor(rw->graph, n->outputs[0])->dtype != DTYPE_F32)
        return;
    for (uint32_t i = 0; i < 2; i++)
        if (is_bytes(rw, rw_input(rw, node, 1 - i)) && join(rw, node, i))
            return;
}

PASS(fuse_tables)
{
    return ctx->tables ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
