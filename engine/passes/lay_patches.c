/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transposed convolution that lays patches side by side (learned upsampling, in U-Nets and in
 * heads of segmentation and of detectors of text: its strides are its kernel, and nothing is cut
 * off) is a product for each place of its input, as no two patches share an element:
 *
 *   y = deconv(x, w)   becomes   y = lay(matmul(transpose(x), w'))
 *
 * where a row of the product is a patch: what all channels have at the first tap, then what they
 * have at the second one, and so on. `lay` puts the rows of a patch below each other. A patch of
 * one dimension is a row already, and a reshape is enough. The transposes around it put channels
 * last and first again; between other nodes that want channels last they move nothing.
 *
 * Libraries have quick kernels for windows that overlap. oneDNN takes its general ones here, and
 * along one dimension its reference. So this is done for backends that say it pays
 * (pass_context.lays).
 */
#include "engine/passes/weights.h"

/* The weights, and a bias that is repeated and has no more numbers than they. */
static uint64_t copied_bytes(const struct rewrite *rw, const struct ir_node *n)
{
    return 2 * ir_tensor(rw->graph, n->inputs[1])->bytes;
}

/* Says why the node, which lays patches, stays what it is. NULL: it need not. */
static const char *check(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (!weighted_has_constants(rw, node))
        return "its weights are computed";
    if (copied_bytes(rw, n) > rw->room)
        return "its weights, copied once more, would take too much memory";
    return weighted_steps_are_unary(n) ? NULL : "its epilogue reads a tensor";
}

/* Says whether the node is a transposed convolution whose windows lie side by side. */
static bool lays_patches(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_DECONV || !rw_is_float(rw, n->outputs[0]))
        return false;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *w = &ir_tensor(rw->graph, n->inputs[1])->shape;
    uint32_t dims = x->rank - 2;
    bool lays = dims <= 2 && ir_attr_int(n, IR_ATTR_GROUP) == 1 && x->dim[0] > 0 &&
                weighted_side_by_side(n, w);
    for (uint32_t d = 0; d < dims && lays; d++)
        lays = !ir_attr_at(n, IR_ATTR_OUTPUT_PADDING, d);
    return lays;
}

/* From w[C, M, taps] a matrix [C, taps * M]. */
static uint32_t matrix_of(struct rewrite *rw, const char *name, uint32_t weights, int64_t taps)
{
    const struct ir_tensor w = *ir_tensor(rw->graph, weights);
    const struct shape flat = {.rank = 2, .dim = {w.shape.dim[0], taps * w.shape.dim[1]}};
    const size_t size = dtype_size(w.dtype);
    void *data;
    uint32_t matrix = rw_add_constant(rw, name, w.dtype, &flat, &data);
    for (int64_t at = 0; matrix != IR_NONE && at < flat.dim[0] * flat.dim[1]; at++) {
        int64_t m = at % w.shape.dim[1], t = at / w.shape.dim[1] % taps;
        int64_t c = at / flat.dim[1];
        memcpy((char *)data + (size_t)at * size,
               (const char *)w.data + (size_t)((c * w.shape.dim[1] + m) * taps + t) * size, size);
    }
    return matrix;
}

/* The bias once for each tap. */
static uint32_t repeat_bias(struct rewrite *rw, const char *name, uint32_t bias, int64_t taps)
{
    const struct ir_tensor b = *ir_tensor(rw->graph, bias);
    const struct shape all = {.rank = 1, .dim = {taps * b.shape.dim[0]}};
    const size_t bytes = dtype_size(b.dtype) * (size_t)b.shape.dim[0];
    void *data;
    uint32_t repeated = rw_add_constant(rw, name, b.dtype, &all, &data);
    for (int64_t t = 0; repeated != IR_NONE && t < taps; t++)
        memcpy((char *)data + (size_t)t * bytes, b.data, bytes);
    return repeated;
}

/* From rows of patches [N, places.., taps * M] the output with channels last. */
static uint32_t add_layout(struct rewrite *rw, const char *name, uint32_t rows,
                           const struct shape *w)
{
    static const int64_t turn[] = {0, 1, 3, 2, 4, 5};
    const struct shape s = ir_tensor(rw->graph, rows)->shape;
    const int64_t h = s.dim[1], v = s.dim[2];
    if (s.rank == 3) {
        const int64_t line[] = {s.dim[0], h * w->dim[2], w->dim[1]};
        return rw_add_reshape(rw, name, rows, 3, line);
    }
    const int64_t apart[] = {s.dim[0], h, v, w->dim[2], w->dim[3], w->dim[1]};
    const int64_t image[] = {s.dim[0], h * w->dim[2], v * w->dim[3], w->dim[1]};
    uint32_t cut = rw_add_reshape(rw, name, rows, 6, apart);
    return rw_add_reshape(rw, name, rw_add_transpose(rw, name, cut, 6, turn), 4, image);
}

static void lay(struct rewrite *rw, uint32_t node)
{
    static const int64_t last[2][4] = {{0, 2, 1}, {0, 2, 3, 1}},
                         first[2][4] = {{0, 2, 1}, {0, 3, 1, 2}};
    const struct ir_node deconv = *ir_node(rw->graph, node);
    const struct shape w = ir_tensor(rw->graph, deconv.inputs[1])->shape;
    const uint32_t two = w.rank == 4;
    const int64_t taps = w.dim[2] * (two ? w.dim[3] : 1);
    uint32_t bias = weighted_bias(&deconv);
    rw->room -= copied_bytes(rw, &deconv);
    uint32_t x = rw_add_transpose(rw, deconv.name, deconv.inputs[0], w.rank, last[two]);
    uint32_t matrix = matrix_of(rw, deconv.name, deconv.inputs[1], taps);
    if (bias != IR_NONE)
        bias = repeat_bias(rw, deconv.name, bias, taps);
    if (rw->status)
        return;
    uint32_t rows = weighted_multiply(rw, &deconv, x, matrix, bias, false);
    uint32_t y = rows == IR_NONE ? IR_NONE : add_layout(rw, deconv.name, rows, &w);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s is a product that lays patches", deconv.name);
    rw_become_transpose(rw, node, y, w.rank, first[two]);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!lays_patches(rw, node))
        return;
    const char *why = check(rw, node);
    if (why)
        rw_near_miss(rw, "%s stays a transposed convolution: %s", ir_node(rw->graph, node)->name,
                     why);
    else
        lay(rw, node);
}

PASS(lay_patches)
{
    return ctx->lays ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
