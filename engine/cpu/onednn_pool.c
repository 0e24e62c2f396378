/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling and reductions. A mean or maximum over all pixels runs as pooling too, in whatever layout
 * the tensor has. Three things are refused: the argmax output, LP pooling, and an average that
 * counts padding if the last window reaches past the padding (ceil mode), because ONNX and oneDNN
 * divide such a sum by different counts.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/onednn_recipe.h"

enum way { WAY_REDUCTION, WAY_POOL };

struct window {
    dnnl_alg_kind_t kind;
    dnnl_dims_t kernel, strides, dilates, begins, ends;
};

static bool read_window(const struct subject *s, struct window *w)
{
    const struct shape *x = &subject_in(s, 0)->shape, *y = &subject_out(s, 0)->shape;
    int64_t func = ir_attr_int(s->node, IR_ATTR_FUNC);
    bool counts = ir_attr_int(s->node, IR_ATTR_COUNT_INCLUDE_PAD) != 0;
    if (x->rank < 3 || x->rank > 5 || s->node->n_outputs != 1 || func == IR_POOL_LP)
        return false;
    w->kind = func == IR_POOL_MAX ? dnnl_pooling_max
              : counts            ? dnnl_pooling_avg_include_padding
                                  : dnnl_pooling_avg_exclude_padding;
    for (uint32_t i = 0; i < x->rank - 2; i++) {
        w->kernel[i] = ir_attr_at(s->node, IR_ATTR_KERNEL, i);
        w->strides[i] = ir_attr_at(s->node, IR_ATTR_STRIDES, i);
        w->dilates[i] = ir_attr_at(s->node, IR_ATTR_DILATIONS, i) - 1;
        w->begins[i] = ir_attr_at(s->node, IR_ATTR_PADS, i);
        int64_t end = ir_attr_at(s->node, IR_ATTR_PADS, x->rank - 2 + i);
        int64_t reach =
            (y->dim[2 + i] - 1) * w->strides[i] + (w->kernel[i] - 1) * (w->dilates[i] + 1) + 1;
        w->ends[i] = reach - x->dim[2 + i] - w->begins[i];
        if (w->begins[i] < 0 || end < 0)
            return false;
        if (w->ends[i] < 0) /* pixels that no window touches */
            w->ends[i] = 0;
        if (w->ends[i] > end && w->kind == dnnl_pooling_avg_include_padding)
            return false;
    }
    return true;
}

static enum status make_window(const struct subject *s, const struct window *w, struct choice c,
                               const struct shape *out, struct recipe *r)
{
    dnnl_memory_desc_t src, dst;
    /* oneDNN 2.6's generator for SSE4.1 crashes over a post-op. */
    if ((!s->dnn->avx && s->node->n_epilogue > 0) || !desc_tensor(&src, subject_in(s, 0), c.src) ||
        !desc_layout(&dst, out->rank, out->dim, c.dst))
        return STATUS_UNIMPLEMENTED;
    desc_type(&dst, subject_out(s, 0));
    dnnl_pooling_v2_desc_t desc;
    if (dnnl_pooling_v2_forward_desc_init(&desc, dnnl_forward_inference, w->kind, &src, &dst,
                                          w->strides, w->kernel, w->dilates, w->begins,
                                          w->ends) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &src, c.src);
    recipe_out(s, r, DNNL_ARG_DST, 0, &dst, c.dst);
    struct output_view view = {.kind = VIEW_SAME, .rank = out->rank, .layout = c.dst};
    memcpy(view.dims, out->dim, sizeof(view.dims));
    dnnl_primitive_attr_t attr;
    TRY(epilogue_attr(s, &view, r, &attr));
    return recipe_pick(s, r, &desc, attr);
}

static enum status make_pool(const struct subject *s, struct choice c, struct recipe *r)
{
    struct window w;
    if (!read_window(s, &w) || c.src != c.dst)
        return STATUS_UNIMPLEMENTED;
    return make_window(s, &w, c, &subject_out(s, 0)->shape, r);
}

struct reduction {
    dnnl_alg_kind_t kind;
    bool known;
    float p;
};

/* Maximum and minimum are left out: oneDNN 2.6 gives the largest finite number for a row of
 * infinities, and attention masks are full of such rows. */
static const struct reduction reductions[] = {
    [IR_REDUCE_SUM] = {dnnl_reduction_sum, true, 0},
    [IR_REDUCE_MEAN] = {dnnl_reduction_mean, true, 0},
    [IR_REDUCE_PROD] = {dnnl_reduction_mul, true, 0},
    [IR_REDUCE_L1] = {dnnl_reduction_norm_lp_power_p_sum, true, 1},
    [IR_REDUCE_L2] = {dnnl_reduction_norm_lp_sum, true, 2},
    [IR_REDUCE_SUM_SQUARE] = {dnnl_reduction_norm_lp_power_p_sum, true, 2},
    [IR_REDUCE_LOG_SUM_EXP] = {dnnl_alg_kind_undef, false, 0},
};

/* Gives the input's shape with ones in the reduced dims. Returns false if there is nothing to
 * reduce. */
static bool reduced(const struct subject *s, struct shape *out)
{
    *out = subject_in(s, 0)->shape;
    const struct ir_attr *axes = ir_attr(s->node, IR_ATTR_AXES);
    if (!axes || out->rank == 0)
        return false;
    bool any = false;
    for (uint32_t i = 0; i < axes->count; i++) {
        any = any || out->dim[axes->i[i]] > 1;
        out->dim[axes->i[i]] = 1;
    }
    return any;
}

/* Whether exactly the pixels are reduced, and pooling can do this. */
static bool over_pixels(const struct subject *s, const struct shape *out, int64_t func)
{
    const struct shape *x = &subject_in(s, 0)->shape;
    if ((func != IR_REDUCE_MEAN && func != IR_REDUCE_MAX) || x->rank < 3 || x->rank > 5)
        return false;
    bool all = out->dim[0] == x->dim[0] && out->dim[1] == x->dim[1];
    for (uint32_t i = 2; i < x->rank; i++)
        all = all && out->dim[i] == 1;
    return all;
}

static uint32_t list_reduce(const struct subject *s, struct choice out[CHOICES_MAX])
{
    struct shape shape;
    if (!reduced(s, &shape))
        return 0;
    uint32_t n = 0;
    if (over_pixels(s, &shape, ir_attr_int(s->node, IR_ATTR_FUNC))) {
        struct choice blocked = {.way = WAY_POOL};
        blocked.src = blocked.dst = s->dnn->avx512 ? IR_LAYOUT_BLOCKED_16 : IR_LAYOUT_BLOCKED_8;
        out[n++] = blocked;
        out[n++] = (struct choice){
            .way = WAY_POOL, .src = IR_LAYOUT_CHANNELS_LAST, .dst = IR_LAYOUT_CHANNELS_LAST};
        out[n++] = (struct choice){.way = WAY_POOL};
    }
    out[n++] = (struct choice){.way = WAY_REDUCTION};
    return n;
}

static enum status make_reduction(const struct subject *s, const struct shape *out,
                                  struct recipe *r)
{
    int64_t func = ir_attr_int(s->node, IR_ATTR_FUNC);
    dnnl_memory_desc_t src, dst;
    if (func < 0 || func >= (int64_t)ARRAY_LEN(reductions) || !reductions[func].known ||
        !desc_tensor(&src, subject_in(s, 0), IR_LAYOUT_PLAIN) ||
        !desc_layout(&dst, out->rank, out->dim, IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    dnnl_reduction_desc_t desc;
    if (dnnl_reduction_desc_init(&desc, reductions[func].kind, &src, &dst, reductions[func].p, 0) !=
        dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &src, IR_LAYOUT_PLAIN);
    recipe_out(s, r, DNNL_ARG_DST, 0, &dst, IR_LAYOUT_PLAIN);
    struct output_view view = {.kind = VIEW_SAME, .rank = out->rank};
    memcpy(view.dims, out->dim, sizeof(view.dims));
    dnnl_primitive_attr_t attr;
    TRY(epilogue_attr(s, &view, r, &attr));
    return recipe_pick(s, r, &desc, attr);
}

static enum status make_reduce(const struct subject *s, struct choice c, struct recipe *r)
{
    struct shape out;
    int64_t func = ir_attr_int(s->node, IR_ATTR_FUNC);
    if (!reduced(s, &out))
        return STATUS_UNIMPLEMENTED;
    /* An operand of the epilogue broadcasts against the node's output, so the output must have kept
     * the reduced dims. */
    if (s->node->n_epilogue > 0 && !shape_equal(&out, &subject_out(s, 0)->shape))
        return STATUS_UNIMPLEMENTED;
    if (c.way == WAY_REDUCTION)
        return make_reduction(s, &out, r);
    if (!over_pixels(s, &out, func) || c.src != c.dst)
        return STATUS_UNIMPLEMENTED;
    /* An output without the reduced dims is plain, so the layout must mean the same bytes. */
    if (!shape_equal(&out, &subject_out(s, 0)->shape) &&
        layout_canonical(&out, c.dst) != IR_LAYOUT_PLAIN)
        return STATUS_UNIMPLEMENTED;
    struct window w = {.kind = func == IR_REDUCE_MAX ? dnnl_pooling_max
                                                     : dnnl_pooling_avg_exclude_padding};
    for (uint32_t i = 0; i + 2 < out.rank; i++) {
        w.kernel[i] = subject_in(s, 0)->shape.dim[2 + i];
        w.strides[i] = 1;
    }
    TRY(make_window(s, &w, c, &out, r));
    r->out[0].format.layout = layout_canonical(&out, c.dst);
    return STATUS_OK;
}

const struct onednn_row onednn_pool = {
    .op = IR_OP_POOL, .list = list_layouts, .make = make_pool, .impls = 1};
const struct onednn_row onednn_reduce = {
    .op = IR_OP_REDUCE, .list = list_reduce, .make = make_reduce, .impls = 1};
