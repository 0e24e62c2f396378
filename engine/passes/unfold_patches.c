/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution that cuts an image into patches (ViT, Swin, ConvNeXt: its strides are its kernel,
 * and nothing is padded) is a product over patches:
 *
 *   y = conv(x, w)   becomes   y = transpose(matmul(patches(x), w'))
 *
 * where a row of patches(x) has the numbers of one patch, as the filter's are stored: a reshape, a
 * transpose and a reshape. The transpose behind it puts channels where they were; it meets the one
 * that makes tokens of them, or is a name for channels-last.
 *
 * Images have three channels or four. Tensor cores sum eight or more at a time, so a convolution
 * of an image leaves most of its work undone, or is a kernel of another kind; in the product the
 * sum is over all of a patch. This costs a copy of the image, which is small beside what is made of
 * it. It is done for backends that say it pays (pass_context.patches).
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

enum {
    CHANNELS_MAX = 4,
    WHOLE = 8, /* what tensor cores sum, and write side by side */
};

/* Says why the convolution, which cuts its input into patches, stays one. NULL: it need not. */
static const char *check(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *w = &ir_tensor(rw->graph, n->inputs[1])->shape;
    if (!weighted_has_constants(rw, node))
        return "its weights are computed";
    if (x->dim[2] % w->dim[2] || x->dim[3] % w->dim[3])
        return "patches leave a rest of the image";
    if (w->dim[1] * w->dim[2] * w->dim[3] % WHOLE || w->dim[0] % WHOLE)
        return "patches or channels are no multiple of 8";
    return weighted_steps_are_unary(n) ? NULL : "its epilogue reads a tensor";
}

/* Says whether the node is a convolution of an image whose windows lie side by side. */
static bool cuts_image(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_CONV || !rw_is_float(rw, n->outputs[0]))
        return false;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *w = &ir_tensor(rw->graph, n->inputs[1])->shape;
    return x->rank == 4 && w->dim[2] * w->dim[3] > 1 && weighted_side_by_side(n, w) &&
           x->dim[1] <= CHANNELS_MAX && ir_attr_int(n, IR_ATTR_GROUP) == 1 && x->dim[0] > 0;
}

/* The image's patches: [N, rows, columns, numbers of a patch]. */
static uint32_t add_patches(struct rewrite *rw, const char *name, uint32_t x, const struct shape *w)
{
    static const int64_t turn[] = {0, 2, 4, 1, 3, 5};
    const struct shape s = ir_tensor(rw->graph, x)->shape;
    const int64_t rows = s.dim[2] / w->dim[2], columns = s.dim[3] / w->dim[3];
    const int64_t cut[] = {s.dim[0], s.dim[1], rows, w->dim[2], columns, w->dim[3]};
    const int64_t flat[] = {s.dim[0], rows, columns, w->dim[1] * w->dim[2] * w->dim[3]};
    uint32_t apart = rw_add_reshape(rw, name, x, 6, cut);
    return rw_add_reshape(rw, name, rw_add_transpose(rw, name, apart, 6, turn), 4, flat);
}

static void unfold(struct rewrite *rw, uint32_t node)
{
    static const int64_t turn[] = {0, 3, 1, 2};
    const struct ir_node conv = *ir_node(rw->graph, node);
    const struct shape w = ir_tensor(rw->graph, conv.inputs[1])->shape;
    const struct shape rows = {.rank = 2, .dim = {w.dim[0], w.dim[1] * w.dim[2] * w.dim[3]}};
    uint32_t patches = add_patches(rw, conv.name, conv.inputs[0], &w);
    uint32_t matrix = patches == IR_NONE ? IR_NONE : rw_share_constant(rw, conv.inputs[1], &rows);
    if (matrix == IR_NONE)
        return;
    uint32_t y = weighted_multiply(rw, &conv, patches, matrix, weighted_bias(&conv), true);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s is a product over patches", conv.name);
    rw_become_transpose(rw, node, y, 4, turn);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!cuts_image(rw, node))
        return;
    const char *why = check(rw, node);
    if (why)
        rw_near_miss(rw, "%s stays a convolution: %s", ir_node(rw->graph, node)->name, why);
    else
        unfold(rw, node);
}

PASS(unfold_patches)
{
    return ctx->patches ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
