/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that reduce over dimensions or normalise by such a reduction. */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

/* Drops the dimensions in `axes` (one bit each), or makes them 1. */
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
    uint32_t mask = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (i && list->i[i] <= list->i[i - 1])
            return infer_fail(in, "axes are not in rising order");
        mask |= 1u << list->i[i];
    }
    out[0] = (struct ir_type){ir_tensor_type(x),
                              reduced(&x->shape, mask, infer_int(in, IR_ATTR_KEEPDIMS))};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_arg_reduce(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    int64_t axis = infer_int(in, IR_ATTR_AXIS), keep = infer_int(in, IR_ATTR_KEEPDIMS);
    if (x->shape.dim[axis] == 0)
        return infer_fail(in, "dimension %" PRId64 " is empty", axis);
    out[0] = (struct ir_type){DTYPE_I64, reduced(&x->shape, 1u << axis, keep)};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_softmax(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    return STATUS_OK;
}

/* Checks that the inputs behind X are vectors of length C. */
static enum status per_channel(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
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
    int64_t group = infer_int(in, IR_ATTR_GROUP);
    TRY(per_channel(in, out, n_out));
    if (group && out->shape.dim[1] % group)
        return infer_fail(in, "%" PRId64 " groups do not divide %" PRId64 " channels", group,
                          out->shape.dim[1]);
    return STATUS_OK;
}

enum status infer_layer_norm(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    infer_like_first(in, out, n_out);
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
    infer_like_first(in, out, n_out);
    if (out->shape.rank < 2)
        return infer_fail(in, "input has rank %u, but needs 2 at least", out->shape.rank);
    return STATUS_OK;
}
