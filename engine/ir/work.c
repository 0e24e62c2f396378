/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what a node costs, for code that may decide not to compute the node. */
#include <math.h>

#include "engine/ir/ir.h"

enum { STEP_BYTES = 8 }; /* bytes that a step of a loop counts for where sizes do not tell */

static double elements(const struct shape *shape)
{
    double n = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        n *= (double)shape->dim[i];
    return n;
}

/* The length of the rows of a product's first operand: each element of the output reads one row. */
static double row_length(const struct ir_node *node, const struct shape *a)
{
    bool swapped = ir_attr_int(node, IR_ATTR_TRANS_A) != 0;
    return (double)a->dim[a->rank - (swapped ? 2 : 1)];
}

/* How many elements of X each element of a resized tensor is made of. */
static double taps(const struct ir_node *node, const struct shape *x, const struct shape *y)
{
    int64_t mode = ir_attr_int(node, IR_ATTR_MODE);
    bool widens = ir_attr_int(node, IR_ATTR_ANTIALIAS) != 0;
    const float *scales = ir_attr(node, IR_ATTR_SCALES)->f;
    double n = 1, one = mode == IR_RESIZE_CUBIC ? 2 : 1;
    for (uint32_t i = 0; i < x->rank && mode != IR_RESIZE_NEAREST; i++)
        if (x->dim[i] != y->dim[i] || scales[i] != 1)
            n *= 2 * (widens && scales[i] < 1 ? ceil(one / (double)scales[i]) : one);
    return n;
}

uint64_t ir_node_work(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape,
                       *y = &ir_tensor(graph, node->outputs[0])->shape;
    double in = 0, out = 0, steps = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in += node->inputs[i] == IR_NONE ? 0 : (double)ir_tensor(graph, node->inputs[i])->bytes;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out += (double)ir_tensor(graph, node->outputs[i])->bytes;
    switch (ir_op_row(node->op)->work) {
    case IR_WORK_SIZES:
        break;
    case IR_WORK_PRODUCT:
        out *= row_length(node, x);
        break;
    case IR_WORK_PAIRS:
        steps = elements(&ir_tensor(graph, node->inputs[1])->shape) * (double)x->dim[1];
        break;
    case IR_WORK_CUBES:
        steps = elements(x) * (double)x->dim[x->rank - 1];
        break;
    case IR_WORK_TAPS:
        steps = elements(y) * taps(node, x, y);
        break;
    case IR_WORK_ENDLESS:
        return UINT64_MAX;
    }
    double sum = in + out + STEP_BYTES * steps;
    return sum < 0x1p63 ? (uint64_t)sum : UINT64_MAX;
}
