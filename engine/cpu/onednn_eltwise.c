/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary functions, binary functions with broadcasting, and resizing, in any layout. oneDNN
 * broadcasts only its second operand, so the operands of a commutative function change places if
 * the first one is broadcast.
 */
#include <math.h>
#include <string.h>

#include "engine/cpu/onednn_recipe.h"

static enum status pick(const struct subject *s, const_dnnl_op_desc_t desc, struct choice c,
                        struct recipe *r)
{
    const struct shape *y = &subject_out(s, 0)->shape;
    struct output_view view = {.kind = VIEW_SAME, .rank = y->rank, .layout = c.dst};
    memcpy(view.dims, y->dim, sizeof(view.dims));
    dnnl_primitive_attr_t attr;
    TRY(epilogue_attr(s, &view, r, &attr));
    return recipe_pick(s, r, desc, attr);
}

static enum status make_unary(const struct subject *s, struct choice c, struct recipe *r)
{
    uint32_t func = (uint32_t)ir_attr_int(s->node, IR_ATTR_FUNC);
    bool given = ir_attr(s->node, IR_ATTR_ALPHA) && ir_attr(s->node, IR_ATTR_BETA);
    float alpha, beta, gamma;
    ir_unary_constants(s->node, &alpha, &beta, &gamma);
    dnnl_alg_kind_t kind;
    dnnl_memory_desc_t md;
    dnnl_eltwise_desc_t desc;
    if ((func == IR_UNARY_CLIP && !given) || c.src != c.dst ||
        !eltwise_of(func, alpha, beta, &kind, &alpha, &beta) ||
        !desc_tensor(&md, subject_out(s, 0), c.src) ||
        dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_inference, kind, &md, alpha, beta) !=
            dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &md, c.src);
    recipe_out(s, r, DNNL_ARG_DST, 0, &md, c.dst);
    return pick(s, &desc, c, r);
}

static bool commutes(uint32_t func)
{
    return func == IR_BINARY_ADD || func == IR_BINARY_MUL || func == IR_BINARY_MAX ||
           func == IR_BINARY_MIN;
}

/* If a tensor has several instances but only one spatial position, its strides are the same in
 * channels-last and in plain order. oneDNN 2.6 then mistakes a per-channel operand of an epilogue
 * for one of full size, and uses the first instance's values for all. */
static bool confuses_epilogue(const struct subject *s)
{
    const struct shape *y = &subject_out(s, 0)->shape;
    int64_t places = 1;
    bool operands = false;
    for (uint32_t i = 2; i < y->rank; i++)
        places *= y->dim[i];
    for (uint32_t i = 0; i < s->node->n_epilogue; i++)
        operands = operands || s->node->epilogue[i].kind == IR_EPILOGUE_BINARY;
    return operands && y->rank > 2 && y->dim[0] > 1 && places == 1;
}

/* Whether an operand with these dims has a number for each channel alone, and whole blocks of them:
 * then its bytes are the same in plain order and in blocks. */
static bool is_whole_blocks(const int64_t *dims, uint32_t rank, enum ir_layout layout)
{
    int64_t block = ir_layout_block(layout);
    for (uint32_t i = 0; i < rank; i++)
        if (i != 1 && dims[i] != 1)
            return false;
    return block && rank > 2 && dims[1] % block == 0;
}

/* A tensor with one channel lies in memory the same way in plain order and channels last. oneDNN
 * 2.6 takes it for channels last, and if an operand is broadcast it goes from pixel to pixel, 9 ns
 * each. So oneDNN is not told of that dimension, unless operands of an epilogue have it, too. */
static bool has_one_channel(const struct subject *s)
{
    const struct shape *y = &subject_out(s, 0)->shape;
    return y->rank > 2 && y->dim[1] == 1 && !s->node->n_epilogue;
}

/* Takes dimension 1 out. */
static uint32_t without_channel(uint32_t rank, int64_t *dims)
{
    memmove(dims + 1, dims + 2, (rank - 2) * sizeof(*dims));
    return rank - 1;
}

static enum status make_binary(const struct subject *s, struct choice c, struct recipe *r)
{
    uint32_t func = (uint32_t)ir_attr_int(s->node, IR_ATTR_FUNC);
    const struct ir_tensor *y = subject_out(s, 0);
    uint32_t wide = 0; /* index of the operand that has the output's shape */
    if (!shape_equal(&subject_in(s, 0)->shape, &y->shape)) {
        if (!commutes(func))
            return STATUS_UNIMPLEMENTED;
        wide = 1;
    }
    const struct ir_tensor *a = subject_in(s, wide), *b = subject_in(s, 1 - wide);
    bool same = shape_equal(&b->shape, &y->shape);
    enum ir_layout b_layout = same ? c.src : IR_LAYOUT_PLAIN;
    dnnl_alg_kind_t kind;
    dnnl_memory_desc_t md, b_md;
    int64_t dims[SHAPE_MAX_RANK], y_dims[SHAPE_MAX_RANK];
    dnnl_binary_desc_t desc;
    uint32_t rank = y->shape.rank;
    bool hides_channel = has_one_channel(s);
    if (c.src != c.dst || rank == 0 || !shape_equal(&a->shape, &y->shape) || confuses_epilogue(s) ||
        !binary_of(func, &kind) || !dims_padded(&b->shape, rank, dims) ||
        !dims_padded(&y->shape, rank, y_dims) || (hides_channel && c.src != IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    if (hides_channel) {
        without_channel(rank, dims);
        rank = without_channel(rank, y_dims);
    }
    if (!desc_layout(&md, rank, y_dims, c.src) ||
        !desc_layout(&b_md, rank, dims, is_whole_blocks(dims, rank, c.src) ? c.src : b_layout))
        return STATUS_UNIMPLEMENTED;
    desc_type(&md, y);
    if (dnnl_binary_desc_init(&desc, kind, &md, &b_md, &md) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC_0, wide, &md, c.src);
    recipe_in(s, r, DNNL_ARG_SRC_1, 1 - wide, &b_md, b_layout);
    recipe_out(s, r, DNNL_ARG_DST, 0, &md, c.dst);
    return pick(s, &desc, c, r);
}

/* oneDNN maps pixel centres (half pixel) and rounds to nearest. For nearest neighbours and a whole
 * factor, every usual rule of ONNX picks the same neighbour as oneDNN. For linear interpolation
 * only the half-pixel rule is the same. */
static bool resize_known(const struct subject *s, const struct shape *x, const struct shape *y)
{
    int64_t mode = ir_attr_int(s->node, IR_ATTR_MODE);
    int64_t coord = ir_attr_int(s->node, IR_ATTR_COORD);
    int64_t nearest = ir_attr_int(s->node, IR_ATTR_NEAREST);
    const struct ir_attr *scales = ir_attr(s->node, IR_ATTR_SCALES);
    if (x->rank < 3 || x->rank > 5 || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1] ||
        ir_attr_int(s->node, IR_ATTR_EXCLUDE_OUTSIDE) || ir_attr_int(s->node, IR_ATTR_ANTIALIAS))
        return false;
    bool whole = true;
    for (uint32_t i = 2; i < x->rank; i++) {
        whole = whole && y->dim[i] % x->dim[i] == 0;
        float factor = (float)y->dim[i] / (float)x->dim[i];
        if (scales && (i >= scales->count || fabsf(scales->f[i] - factor) > 1e-6F * factor))
            return false;
    }
    if (mode == IR_RESIZE_LINEAR)
        return coord == IR_COORD_HALF_PIXEL;
    bool centre = coord == IR_COORD_HALF_PIXEL && (nearest == IR_NEAREST_ROUND_PREFER_FLOOR ||
                                                   nearest == IR_NEAREST_ROUND_PREFER_CEIL);
    bool corner = coord == IR_COORD_ASYMMETRIC && nearest == IR_NEAREST_FLOOR;
    return mode == IR_RESIZE_NEAREST && whole && (centre || corner);
}

static enum status make_resize(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct ir_tensor *x = subject_in(s, 0), *y = subject_out(s, 0);
    if (c.src != c.dst || !resize_known(s, &x->shape, &y->shape))
        return STATUS_UNIMPLEMENTED;
    bool linear = ir_attr_int(s->node, IR_ATTR_MODE) == IR_RESIZE_LINEAR;
    dnnl_memory_desc_t src, dst;
    dnnl_resampling_desc_t desc;
    if (!desc_tensor(&src, x, c.src) || !desc_tensor(&dst, y, c.dst) ||
        dnnl_resampling_forward_desc_init(&desc, dnnl_forward_inference,
                                          linear ? dnnl_resampling_linear : dnnl_resampling_nearest,
                                          NULL, &src, &dst) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &src, c.src);
    recipe_out(s, r, DNNL_ARG_DST, 0, &dst, c.dst);
    return pick(s, &desc, c, r);
}

const struct onednn_row onednn_unary = {
    .op = IR_OP_UNARY, .list = list_layouts, .make = make_unary, .impls = 1};
const struct onednn_row onednn_binary = {
    .op = IR_OP_BINARY, .list = list_layouts, .make = make_binary, .impls = 1};
const struct onednn_row onednn_resize = {
    .op = IR_OP_RESIZE, .list = list_layouts, .make = make_resize, .impls = 1};
