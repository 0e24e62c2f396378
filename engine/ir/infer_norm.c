/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that reduce over dimensions or normalise by such a reduction. */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

/* Drops the dimensions in `axes` (a bit each), or makes them 1. */
static struct shape reduced(const struct shape *shape, uint32_t axes, bool keep)
{
    struct shape r = {0};
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!(axes >> i & 1))
            r.dim[r.rank++] = shape->dim[i];
        else if (keep)
            r.dim[r.rank++] = 1;
    }
    return r;
}

enum status infer_reduce(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    const struct ir_attr *list = ir_attr(in->node, IR_ATTR_AXES);
    int64_t func, keep, axes[SHAPE_MAX_RANK];
    uint32_t mask = 0;
    TRY(infer_class(in, 0, CLASS_NUMBER));
    TRY(infer_int_needed(in, IR_ATTR_FUNC, 0, IR_REDUCE_LOG_SUM_EXP, &func));
    TRY(infer_int(in, IR_ATTR_KEEPDIMS, 0, 1, 1, &keep));
    if (!list || list->count > x->shape.rank)
        return infer_fail(in, "needs axes, %u at most", x->shape.rank);
    TRY(infer_ints_needed(in, IR_ATTR_AXES, list->count, 0, (int64_t)x->shape.rank - 1, axes));
    for (uint32_t i = 0; i < list->count; i++) {
        if (i && axes[i] <= axes[i - 1])
            return infer_fail(in, "axes are not in rising order");
        mask |= 1u << axes[i];
    }
    out[0] = (struct ir_type){ir_tensor_type(x), reduced(&x->shape, mask, keep)};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_arg_reduce(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    int64_t func, keep, axis, last;
    TRY(infer_class(in, 0, CLASS_NUMBER));
    TRY(infer_int_needed(in, IR_ATTR_FUNC, 0, 1, &func));
    TRY(infer_int_needed(in, IR_ATTR_AXIS, 0, (int64_t)x->shape.rank - 1, &axis));
    TRY(infer_int(in, IR_ATTR_KEEPDIMS, 0, 1, 1, &keep));
    TRY(infer_int(in, IR_ATTR_SELECT_LAST, 0, 1, 0, &last));
    if (x->shape.dim[axis] == 0)
        return infer_fail(in, "dimension %" PRId64 " is empty", axis);
    out[0] = (struct ir_type){DTYPE_I64, reduced(&x->shape, 1u << axis, keep)};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_softmax(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis, log;
    infer_like_first(in, out, n_out);
    TRY(infer_class(in, 0, CLASS_FLOAT));
    TRY(infer_int_needed(in, IR_ATTR_AXIS, 0, (int64_t)out->shape.rank - 1, &axis));
    return infer_int(in, IR_ATTR_LOG, 0, 1, 0, &log);
}

/* X and the vectors of length C behind it, of one float type. */
static enum status per_channel(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    TRY(infer_class(in, 0, CLASS_FLOAT));
    TRY(infer_same_dtype(in, 1));
    if (out->shape.rank < 2)
        return infer_fail(in, "input has rank %u, but needs 2 at least", out->shape.rank);
    for (uint32_t i = 1; i < in->n_inputs; i++)
        TRY(infer_vector(in, i, out->shape.dim[1]));
    return STATUS_OK;
}

enum status infer_batch_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    return per_channel(in, out, n_out);
}

enum status infer_instance_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t group;
    TRY(per_channel(in, out, n_out));
    TRY(infer_int(in, IR_ATTR_GROUP, 0, IR_MAX_DIM, 0, &group));
    if (group && out->shape.dim[1] % group)
        return infer_fail(in, "%" PRId64 " groups do not divide %" PRId64 " channels", group,
                          out->shape.dim[1]);
    return STATUS_OK;
}

enum status infer_layer_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis;
    infer_like_first(in, out, n_out);
    TRY(infer_class(in, 0, CLASS_FLOAT));
    TRY(infer_same_dtype(in, 1));
    TRY(infer_int_needed(in, IR_ATTR_AXIS, 0, (int64_t)out->shape.rank - 1, &axis));
    struct shape inner = {.rank = out->shape.rank - (uint32_t)axis}, r;
    for (uint32_t i = 0; i < inner.rank; i++)
        inner.dim[i] = out->shape.dim[i + (uint32_t)axis];
    for (uint32_t i = 1; i < in->n_inputs; i++) {
        const struct ir_tensor *t = infer_input(in, i);
        char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
        if (t && (!shape_broadcast(&t->shape, &inner, &r) || !shape_equal(&r, &inner)))
            return infer_fail(in, "input %u is %s, which does not broadcast to %s", i,
                              shape_format(&t->shape, have), shape_format(&inner, want));
    }
    return STATUS_OK;
}

enum status infer_lrn(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t size;
    infer_like_first(in, out, n_out);
    TRY(infer_class(in, 0, CLASS_FLOAT));
    if (out->shape.rank < 2)
        return infer_fail(in, "input has rank %u, but needs 2 at least", out->shape.rank);
    return infer_int_needed(in, IR_ATTR_SIZE, 1, INFER_WINDOW_MAX, &size);
}
