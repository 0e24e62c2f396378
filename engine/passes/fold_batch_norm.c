/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch normalisation is y = x * s + t with s = scale / sqrt(var + epsilon), t = bias - mean * s
 * for each channel. Behind a convolution or matrix product with constant weights it moves into
 * weights and bias. Anywhere else (the "scale" layers of DenseNet, say) it becomes a product with a
 * sum in its epilogue, which an activation may join.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

#include <math.h>
#include <stdlib.h>

/* Computes scale[c] and shift[c]; false if a variance makes no sense. */
static bool coefficients(const struct rewrite *rw, uint32_t node, size_t channels, float *scale,
                         float *shift)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    double epsilon = (double)ir_attr_float(n, IR_ATTR_EPSILON);
    for (size_t c = 0; c < channels; c++) {
        double mean = (double)constant_at(rw, n->inputs[3], c);
        double root = sqrt((double)constant_at(rw, n->inputs[4], c) + epsilon);
        double s = (double)constant_at(rw, n->inputs[1], c) / root;
        scale[c] = (float)s;
        shift[c] = (float)((double)constant_at(rw, n->inputs[2], c) - mean * s);
        if (!isfinite(scale[c]) || !isfinite(shift[c]))
            return false;
    }
    return true;
}

static void become_scale(struct rewrite *rw, uint32_t node, size_t channels, const float *scale,
                         const float *shift)
{
    struct ir_tensor x = *ir_tensor(rw->graph, rw_input(rw, node, 0));
    struct shape shape = {.rank = x.shape.rank - 1, .dim = {(int64_t)channels}};
    for (uint32_t i = 1; i < shape.rank; i++)
        shape.dim[i] = 1;
    uint32_t s = constant_make(rw, "", x.dtype, &shape, scale);
    uint32_t t = constant_make(rw, "", x.dtype, &shape, shift);
    if (s == IR_NONE || t == IR_NONE)
        return;
    rw_done(rw, "%s becomes a scale", ir_node(rw->graph, node)->name);
    rw_become(rw, node, IR_OP_BINARY, 2, (const uint32_t[]){rw_input(rw, node, 0), s});
    rw_set_int(rw, node, IR_ATTR_FUNC, IR_BINARY_MUL);
    rw_add_epilogue(rw, node,
                    (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, t);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_BATCH_NORM || n->n_epilogue)
        return;
    for (uint32_t i = 1; i < 5; i++) {
        if (!constant_is_float(rw, n->inputs[i])) {
            rw_near_miss(rw, "%s: its statistics are not constant", n->name);
            return;
        }
    }
    size_t channels = (size_t)ir_tensor(rw->graph, n->inputs[0])->shape.dim[1];
    float *scale = calloc(MAX(channels, 1), sizeof(*scale));
    float *shift = calloc(MAX(channels, 1), sizeof(*shift));
    struct weighted w;
    if (!scale || !shift) {
        rw_fail(rw);
    } else if (!coefficients(rw, node, channels, scale, shift)) {
        rw_near_miss(rw, "%s: a variance is negative or not finite", n->name);
    } else if (weighted_find(rw, n->inputs[0], &w) && w.axis == 1 &&
               weighted_has_constants(rw, w.node)) {
        rw_done(rw, "%s + %s", ir_node(rw->graph, w.node)->name, n->name);
        weighted_scale(rw, &w, scale);
        weighted_shift(rw, &w, scale, shift);
        rw_absorb(rw, w.node, node);
    } else {
        become_scale(rw, node, channels, scale, shift);
    }
    free(scale);
    free(shift);
}

PASS(fold_batch_norm)
{
    return rewrite_run(graph, ctx, visit, err);
}
