/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/quant/emulate.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/quant/weights.h"

static const struct ir_scale *f8_scale(const struct ir_graph *g, uint32_t tensor)
{
    const struct ir_scale *scale = ir_scale(g, ir_tensor(g, tensor)->range);
    return scale && scale->dtype == DTYPE_F8 ? scale : NULL;
}

/* A copy of the constant, rounded; IR_NONE: no memory. */
static uint32_t round_constant(struct ir_graph *g, uint32_t tensor, const struct ir_scale *scale)
{
    const struct ir_tensor *t = ir_tensor(g, tensor);
    const struct shape shape = t->shape;
    const float *from = t->data;
    size_t n = 0, inner = 1;
    if (!shape_elements(&shape, &n))
        return IR_NONE;
    float *to = arena_array(g->arena, n + 1, sizeof(*to));
    for (uint32_t d = scale->axis + 1; scale->n > 1 && d < shape.rank; d++)
        inner *= (size_t)shape.dim[d];
    for (size_t i = 0; to && i < n; i++) {
        float value, step = scale->step[scale->n > 1 ? i / inner % scale->n : 0];
        memcpy(&value, &from[i], sizeof(value)); /* a file's data may be unaligned */
        to[i] = f8_to_f32(f32_to_f8(value / step)) * step;
    }
    return to ? ir_constant_add(g, t->name, DTYPE_F32, &shape, to) : IR_NONE;
}

static uint32_t add_step(struct ir_graph *g, enum ir_op op, uint32_t x, uint32_t step,
                         enum dtype to)
{
    const struct shape shape = ir_tensor(g, x)->shape;
    const uint32_t inputs[] = {x, step};
    char *name = arena_printf(g->arena, "%s/%s", ir_tensor(g, x)->name, ir_op_name(op));
    uint32_t node = name ? ir_node_add(g, op, name, 2, inputs) : IR_NONE;
    if (node == IR_NONE || !ir_attr_set_int(g, node, IR_ATTR_TO, to))
        return IR_NONE;
    return ir_node_output_add(g, node, name, to, &shape);
}

/* The tensor as FP8 would hold it; IR_NONE: no memory. */
static uint32_t round_data(struct ir_graph *g, uint32_t tensor, const struct ir_scale *scale)
{
    const struct shape scalar = {.rank = 0};
    uint32_t step = ir_constant_add(g, "", DTYPE_F32, &scalar, scale->step);
    uint32_t q = step == IR_NONE ? step : add_step(g, IR_OP_QUANTIZE, tensor, step, DTYPE_F8);
    return q == IR_NONE ? q : add_step(g, IR_OP_DEQUANTIZE, q, step, DTYPE_F32);
}

enum status quant_emulate(struct ir_graph *g, struct error *err)
{
    uint32_t n_nodes = g->n_nodes, n_tensors = g->n_tensors;
    CLEANUP(cleanup_free) uint32_t *rounded = malloc(((size_t)n_tensors + 1) * sizeof(*rounded));
    if (!rounded)
        return error_no_memory(err, "8-bit floats");
    for (uint32_t i = 0; i < n_tensors; i++)
        rounded[i] = IR_NONE;
    for (uint32_t i = 0; i < n_nodes; i++) {
        uint32_t at = quant_product_data(g, ir_node(g, i));
        if (at == IR_NONE)
            continue;
        uint32_t x = ir_node(g, i)->inputs[at], w = ir_node(g, i)->inputs[1 - at];
        const struct ir_scale *of_x = f8_scale(g, x), *of_w = f8_scale(g, w);
        if (!of_x || !of_w || ir_tensor(g, x)->dtype != DTYPE_F32 ||
            ir_tensor(g, w)->dtype != DTYPE_F32 || of_x->n != 1)
            continue;
        if (rounded[w] == IR_NONE)
            rounded[w] = round_constant(g, w, of_w);
        if (rounded[x] == IR_NONE)
            rounded[x] = round_data(g, x, of_x);
        if (rounded[w] == IR_NONE || rounded[x] == IR_NONE)
            return error_no_memory(err, "8-bit floats");
        ir_node(g, i)->inputs[at] = rounded[x];
        ir_node(g, i)->inputs[1 - at] = rounded[w];
    }
    for (uint32_t i = 0; i < n_tensors; i++)
        if (f8_scale(g, i))
            ir_tensor(g, i)->range = IR_NO_SCALE;
    return ir_graph_compact(g, err);
}
