/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, layer norm and batch norm. Softmax and layer norm see the tensor as a matrix (or, for a
 * softmax over a middle axis, as three dimensions), because their kernels are best on such shapes.
 */
#include <string.h>

#include "engine/cpu/onednn_recipe.h"

static uint32_t list_plain(const struct subject *s UNUSED, struct choice out[CHOICES_MAX])
{
    out[0] = (struct choice){0};
    return 1;
}

static enum status pick_plain(const struct subject *s, const_dnnl_op_desc_t desc, struct choice c,
                              struct recipe *r)
{
    struct output_view view = {
        .kind = VIEW_SAME, .rank = subject_out(s, 0)->shape.rank, .layout = c.dst};
    memcpy(view.dims, subject_out(s, 0)->shape.dim, sizeof(view.dims));
    dnnl_primitive_attr_t attr;
    TRY(epilogue_attr(s, &view, r, &attr));
    return recipe_pick(s, r, desc, attr);
}

static enum status make_softmax(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct shape *x = &subject_in(s, 0)->shape;
    int64_t axis = ir_attr_int(s->node, IR_ATTR_AXIS);
    if (s->node->n_epilogue > 0 || x->rank == 0)
        return STATUS_UNIMPLEMENTED;
    int64_t dims[3] = {1, x->dim[axis], 1};
    for (int64_t i = 0; i < (int64_t)x->rank; i++)
        dims[i < axis ? 0 : 2] *= i == axis ? 1 : x->dim[i];
    dnnl_memory_desc_t md;
    if (!desc_layout(&md, dims[2] == 1 ? 2 : 3, dims, IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    bool log = ir_attr_int(s->node, IR_ATTR_LOG) != 0;
    if (log && dims[1] == 1) /* the answer is 0, but oneDNN 2.6 gives 1.4e-6 */
        return STATUS_UNIMPLEMENTED;
    dnnl_softmax_v2_desc_t desc;
    if (dnnl_softmax_v2_forward_desc_init(&desc, dnnl_forward_inference,
                                          log ? dnnl_softmax_log : dnnl_softmax_accurate, &md, &md,
                                          1) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &md, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &md, IR_LAYOUT_PLAIN);
    return pick_plain(s, &desc, c, r);
}

/* Whether scale or bias has one value for each normalised element. */
static bool covers(const struct shape *shape, int64_t inner)
{
    size_t n;
    return shape_elements(shape, &n) && n == (size_t)inner;
}

static enum status make_layer_norm(const struct subject *s, struct choice c, struct recipe *r)
{
    const struct ir_tensor *x = subject_in(s, 0), *scale = subject_in(s, 1);
    const struct ir_tensor *bias = ir_node_own_inputs(s->node) > 2 ? subject_in(s, 2) : NULL;
    int64_t axis = ir_attr_int(s->node, IR_ATTR_AXIS), dims[2] = {1, 1};
    for (int64_t i = 0; i < (int64_t)x->shape.rank; i++)
        dims[i < axis ? 0 : 1] *= x->shape.dim[i];
    dnnl_memory_desc_t md, vector;
    if (ir_attr_int(s->node, IR_ATTR_RMS) || s->node->n_epilogue > 0 || s->node->n_outputs != 1 ||
        !covers(&scale->shape, dims[1]) || (bias && !covers(&bias->shape, dims[1])) ||
        !desc_layout(&md, 2, dims, IR_LAYOUT_PLAIN) ||
        !desc_layout(&vector, 1, &dims[1], IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    unsigned flags = (unsigned)dnnl_use_scale | (bias ? (unsigned)dnnl_use_shift : 0);
    dnnl_layer_normalization_desc_t desc;
    if (dnnl_layer_normalization_forward_desc_init(&desc, dnnl_forward_inference, &md, NULL,
                                                   ir_attr_float(s->node, IR_ATTR_EPSILON),
                                                   flags) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &md, IR_LAYOUT_PLAIN);
    recipe_in(s, r, DNNL_ARG_SCALE, 1, &vector, IR_LAYOUT_PLAIN);
    if (bias)
        recipe_in(s, r, DNNL_ARG_SHIFT, 2, &vector, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &md, IR_LAYOUT_PLAIN);
    return pick_plain(s, &desc, c, r);
}

static enum status make_batch_norm(const struct subject *s, struct choice c, struct recipe *r)
{
    static const int args[] = {DNNL_ARG_SCALE, DNNL_ARG_SHIFT, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE};
    const struct ir_tensor *x = subject_in(s, 0);
    dnnl_memory_desc_t md, vector;
    dnnl_batch_normalization_desc_t desc;
    if (c.src != c.dst || x->shape.rank < 2 || x->shape.rank > 5 || !desc_tensor(&md, x, c.src) ||
        !desc_layout(&vector, 1, &x->shape.dim[1], IR_LAYOUT_PLAIN) ||
        dnnl_batch_normalization_forward_desc_init(
            &desc, dnnl_forward_inference, &md, ir_attr_float(s->node, IR_ATTR_EPSILON),
            (unsigned)dnnl_use_global_stats | (unsigned)dnnl_use_scale |
                (unsigned)dnnl_use_shift) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &md, c.src);
    for (uint32_t i = 0; i < 4; i++)
        recipe_in(s, r, args[i], 1 + i, &vector, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &md, c.dst);
    return pick_plain(s, &desc, c, r);
}

const struct onednn_row onednn_softmax = {
    .op = IR_OP_SOFTMAX, .list = list_plain, .make = make_softmax, .impls = 1};
const struct onednn_row onednn_layer_norm = {
    .op = IR_OP_LAYER_NORM, .list = list_plain, .make = make_layer_norm, .impls = 1};
const struct onednn_row onednn_batch_norm = {
    .op = IR_OP_BATCH_NORM, .list = list_layouts, .make = make_batch_norm, .impls = 1};
