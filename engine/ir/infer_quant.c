/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of QUANTIZE and DEQUANTIZE. */
#include "engine/ir/infer.h"

static bool is_quantised(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8 || dtype == DTYPE_I16 || dtype == DTYPE_U16 ||
           dtype == DTYPE_F8;
}

/* Checks that there is one scale, or one for each index of the axis, and as many zero points. */
static enum status check_scales(const struct infer *in)
{
    const struct ir_tensor *x = infer_input(in, 0), *zero = infer_input(in, 2);
    const struct shape *scale = &infer_input(in, 1)->shape;
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    char text[SHAPE_TEXT_MAX], other[SHAPE_TEXT_MAX];
    bool one = scale->rank == 0 || (scale->rank == 1 && scale->dim[0] == 1);
    if (!one &&
        (scale->rank != 1 || axis >= (int64_t)x->shape.rank || scale->dim[0] != x->shape.dim[axis]))
        return infer_fail(in, "scale %s does not fit dimension %lld of %s",
                          shape_format(scale, text), (long long)axis,
                          shape_format(&x->shape, other));
    if (zero && !shape_equal(&zero->shape, scale))
        return infer_fail(in, "zero is %s, its scale %s", shape_format(&zero->shape, text),
                          shape_format(scale, other));
    return STATUS_OK;
}

enum status infer_quantise(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *zero = infer_input(in, 2);
    enum dtype to = (enum dtype)infer_int(in, IR_ATTR_TO);
    TRY(check_scales(in));
    if (!is_quantised(to) || (to == DTYPE_F8 && zero))
        return infer_fail(in, "quantises to %s%s", dtype_name(to),
                          is_quantised(to) ? " with zero points" : "");
    if (zero && ir_tensor_type(zero) != to)
        return infer_fail(in, "zero is %s, the output %s", dtype_name(ir_tensor_type(zero)),
                          dtype_name(to));
    infer_like_first(in, out, n_out);
    out->dtype = to;
    return STATUS_OK;
}

enum status infer_dequantise(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    enum dtype from = ir_tensor_type(infer_input(in, 0));
    enum dtype to = (enum dtype)infer_int(in, IR_ATTR_TO);
    TRY(check_scales(in));
    if (from == DTYPE_BOOL || dtype_is_float(from))
        return infer_fail(in, "input 0 is %s, not an integer or FP8", dtype_name(from));
    if (!dtype_is_float(to) || dtype_size(from) > 4 || (from == DTYPE_F8 && infer_input(in, 2)))
        return infer_fail(in, "dequantises %s to %s", dtype_name(from), dtype_name(to));
    infer_like_first(in, out, n_out);
    out->dtype = to;
    return STATUS_OK;
}
