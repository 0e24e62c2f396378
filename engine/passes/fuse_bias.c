/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum with a constant, uniform or per output channel, becomes the bias of the convolution or
 * matrix product before it. If the node has a constant bias already, the two are added.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

#include <stdlib.h>

static void add_bias(struct rewrite *rw, const struct weighted *w, uint32_t node,
                     const float *shift)
{
    rw_done(rw, "%s + %s", ir_node(rw->graph, w->node)->name, ir_node(rw->graph, node)->name);
    weighted_shift(rw, w, NULL, shift);
    rw_absorb(rw, w->node, node);
}

/* Takes y + c, c + y or y - c. */
static void visit_sum(struct rewrite *rw, uint32_t node, bool subtract)
{
    for (uint32_t i = 0; i < (subtract ? 1 : 2); i++) {
        uint32_t y = rw_input(rw, node, i), c = rw_input(rw, node, 1 - i);
        struct weighted w;
        float *shift = NULL;
        if (!constant_is_float(rw, c) || !weighted_find(rw, y, &w))
            continue;
        if (!weighted_has_plain_bias(rw, w.node)) {
            rw_near_miss(rw, "%s: the bias of %s is computed", ir_node(rw->graph, node)->name,
                         ir_node(rw->graph, w.node)->name);
            continue;
        }
        if (!constant_per_channel(rw, c, &ir_tensor(rw->graph, y)->shape, w.axis, &shift)) {
            rw_near_miss(rw, "%s: its constant is not per channel of %s",
                         ir_node(rw->graph, node)->name, ir_node(rw->graph, w.node)->name);
            continue;
        }
        for (size_t k = 0; subtract && k < w.channels; k++)
            shift[k] = -shift[k];
        add_bias(rw, &w, node, shift);
        free(shift);
        return;
    }
}

static void visit_linear(struct rewrite *rw, uint32_t node, float shift)
{
    struct weighted w;
    if (!weighted_find(rw, rw_input(rw, node, 0), &w) || !weighted_has_plain_bias(rw, w.node) ||
        rw_shift_rounds(shift))
        return;
    float *values = calloc(MAX(w.channels, 1), sizeof(*values));
    if (!values) {
        rw_fail(rw);
        return;
    }
    for (size_t i = 0; i < w.channels; i++)
        values[i] = shift;
    add_bias(rw, &w, node, values);
    free(values);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    float scale, shift;
    if (rw_is_binary(rw, node, IR_BINARY_ADD))
        visit_sum(rw, node, false);
    else if (rw_is_binary(rw, node, IR_BINARY_SUB))
        visit_sum(rw, node, true);
    else if (rw_linear(rw, node, &scale, &shift) && scale == 1)
        visit_linear(rw, node, shift);
}

PASS(fuse_bias)
{
    return rewrite_run(graph, ctx, visit, err);
}
