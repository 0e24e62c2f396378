/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops of image models: sampling at coordinates, pooling of regions, suppression of overlapping
 * boxes; and the determinant. The kernels deal with the values of boxes and coordinates.
 */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

enum { CUBIC_SPATIAL_MAX = 3 };

static enum status do_not_fit(const struct infer *in, uint32_t a, uint32_t b)
{
    char as[SHAPE_TEXT_MAX], bs[SHAPE_TEXT_MAX];
    return infer_fail(in, "inputs %u and %u, %s and %s, do not fit together", a, b,
                      shape_format(&infer_input(in, a)->shape, as),
                      shape_format(&infer_input(in, b)->shape, bs));
}

enum status infer_sample(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct shape *x = &infer_input(in, 0)->shape, *grid = &infer_input(in, 1)->shape;
    if (x->rank < 3 || grid->rank < 2 || grid->dim[grid->rank - 1] != (int64_t)x->rank - 2 ||
        grid->dim[0] != x->dim[0])
        return do_not_fit(in, 0, 1);
    if (infer_int(in, IR_ATTR_MODE) == IR_RESIZE_CUBIC && x->rank - 2 > CUBIC_SPATIAL_MAX)
        return infer_fail(in, "cubic sampling in %u dimensions, at most %d", x->rank - 2,
                          CUBIC_SPATIAL_MAX);
    infer_like_first(in, out, n_out);
    out->shape.rank = grid->rank;
    for (uint32_t i = 2; i < grid->rank; i++)
        out->shape.dim[i] = grid->dim[i - 1];
    for (uint32_t i = 2; i < x->rank; i++)
        if (x->dim[i] == 0)
            return infer_fail(in, "dimension %u is empty and cannot be sampled", i);
    return STATUS_OK;
}

enum status infer_roi_pool(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct shape *x = &infer_input(in, 0)->shape, *rois = &infer_input(in, 1)->shape;
    int64_t size[2];
    TRY(infer_ints(in, IR_ATTR_SHAPE, 2, size));
    if (!isfinite(ir_attr_float(in->node, IR_ATTR_ALPHA)))
        return infer_fail(in, "attribute alpha (the scale) is not finite");
    if (x->rank != 4 || rois->rank != 2 || rois->dim[1] != 4)
        return do_not_fit(in, 0, 1);
    if (x->dim[2] == 0 || x->dim[3] == 0)
        return infer_fail(in, "its image is empty");
    TRY(infer_vector(in, 2, rois->dim[0]));
    infer_like_first(in, out, n_out);
    out->shape.dim[0] = rois->dim[0];
    out->shape.dim[2] = size[0];
    out->shape.dim[3] = size[1];
    return STATUS_OK;
}

enum status infer_nms(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct shape *boxes = &infer_input(in, 0)->shape, *scores = &infer_input(in, 1)->shape;
    int64_t k = infer_int(in, IR_ATTR_K), rows;
    if (isnan(ir_attr_float(in->node, IR_ATTR_ALPHA)) ||
        isnan(ir_attr_float(in->node, IR_ATTR_BETA)))
        return infer_fail(in, "a threshold is not a number");
    if (boxes->rank != 3 || boxes->dim[2] != 4 || scores->rank != 3 ||
        scores->dim[0] != boxes->dim[0] || scores->dim[2] != boxes->dim[1])
        return do_not_fit(in, 0, 1);
    int64_t each = k < boxes->dim[1] ? k : boxes->dim[1];
    if (__builtin_mul_overflow(scores->dim[0], scores->dim[1], &rows) ||
        __builtin_mul_overflow(rows, each, &rows))
        return infer_fail(in, "has too many rows");
    out[0] = (struct ir_type){DTYPE_I64, {.rank = 2, .dim = {rows, 3}}};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_det(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct shape *x = &infer_input(in, 0)->shape;
    char text[SHAPE_TEXT_MAX];
    if (x->rank < 2 || x->dim[x->rank - 1] != x->dim[x->rank - 2])
        return infer_fail(in, "input 0 is %s, not square matrices", shape_format(x, text));
    infer_like_first(in, out, n_out);
    out->shape.rank -= 2;
    return STATUS_OK;
}
