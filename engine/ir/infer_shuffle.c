/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that move elements without looking at them. */
#include "engine/ir/infer.h"

#include <inttypes.h>

/* Reads SHAPE as a shape of any rank. */
static enum status read_shape(const struct infer *in, struct shape *out)
{
    const struct ir_attr *attr = ir_attr(in->node, IR_ATTR_SHAPE);
    if (attr->count > SHAPE_MAX_RANK)
        return infer_fail(in, "needs a shape of rank %u at most", SHAPE_MAX_RANK);
    *out = (struct shape){.rank = attr->count};
    return infer_ints(in, IR_ATTR_SHAPE, attr->count, out->dim);
}

enum status infer_reshape(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    size_t before, after;
    infer_like_first(in, out, n_out);
    TRY(read_shape(in, &out->shape));
    if (!shape_elements(&x->shape, &before) || !shape_elements(&out->shape, &after) ||
        before != after) {
        char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
        return infer_fail(in, "%s cannot become %s", shape_format(&x->shape, from),
                          shape_format(&out->shape, to));
    }
    return STATUS_OK;
}

enum status infer_transpose(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    uint32_t rank = x->shape.rank, seen = 0;
    int64_t perm[SHAPE_MAX_RANK];
    infer_like_first(in, out, n_out);
    TRY(infer_ints(in, IR_ATTR_PERM, rank, perm));
    for (uint32_t i = 0; i < rank; i++) {
        if (seen >> perm[i] & 1)
            return infer_fail(in, "perm names dimension %" PRId64 " twice", perm[i]);
        seen |= 1u << perm[i];
        out->shape.dim[i] = x->shape.dim[perm[i]];
    }
    return STATUS_OK;
}

enum status infer_concat(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis = infer_int(in, IR_ATTR_AXIS);
    infer_like_first(in, out, n_out);
    for (uint32_t i = 1; i < in->n_inputs; i++) {
        const struct ir_tensor *t = infer_input(in, i);
        struct shape same = t->shape;
        TRY(infer_class(in, i, IR_CLASS_LIKE));
        if (same.rank == out->shape.rank)
            same.dim[axis] = out->shape.dim[axis];
        if (!shape_equal(&same, &out->shape)) {
            char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
            return infer_fail(in, "input %u is %s and does not fit %s", i,
                              shape_format(&t->shape, have), shape_format(&out->shape, want));
        }
        out->shape.dim[axis] += t->shape.dim[axis]; /* at most 256 * 2^40 */
    }
    return STATUS_OK;
}

static bool slice_ok(int64_t start, int64_t end, int64_t step, int64_t dim)
{
    if (step > 0)
        return 0 <= start && start <= end && end <= dim;
    return step < 0 && step > INT64_MIN && -1 <= end && end <= start && start < dim;
}

enum status infer_slice(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    infer_like_first(in, out, n_out);
    uint32_t rank = out->shape.rank;
    TRY(infer_ints(in, IR_ATTR_STARTS, rank, starts));
    TRY(infer_ints(in, IR_ATTR_ENDS, rank, ends));
    TRY(infer_ints(in, IR_ATTR_STEPS, rank, steps));
    for (uint32_t i = 0; i < rank; i++) {
        int64_t dim = out->shape.dim[i];
        if (!slice_ok(starts[i], ends[i], steps[i], dim))
            return infer_fail(in,
                              "%" PRId64 ":%" PRId64 ":%" PRId64
                              " is no slice of dimension %u, which is %" PRId64,
                              starts[i], ends[i], steps[i], i, dim);
        int64_t span = steps[i] > 0 ? ends[i] - starts[i] : starts[i] - ends[i];
        int64_t step = steps[i] > 0 ? steps[i] : -steps[i];
        out->shape.dim[i] = span ? (span - 1) / step + 1 : 0;
    }
    return STATUS_OK;
}

enum status infer_pad(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t mode = infer_int(in, IR_ATTR_MODE), pads[2 * SHAPE_MAX_RANK];
    infer_like_first(in, out, n_out);
    uint32_t rank = out->shape.rank;
    TRY(infer_ints(in, IR_ATTR_PADS, 2 * rank, pads));
    for (uint32_t i = 0; i < rank; i++) {
        int64_t dim = out->shape.dim[i], before = pads[i], after = pads[rank + i];
        /* Mirrored padding takes elements beyond the edge element, of which there is one less than
         * the dimension has. The other modes except the constant one need an element to repeat. */
        int64_t most = mode == IR_PAD_REFLECT ? dim - 1 : IR_MAX_DIM;
        bool grows = before > 0 || after > 0;
        if (dim + before + after < 0 || dim + MIN(before, 0) + MIN(after, 0) < 0 ||
            (mode != IR_PAD_CONSTANT && grows && (before > most || after > most || dim == 0)))
            return infer_fail(
                in, "dimension %u of %" PRId64 " cannot be padded by %" PRId64 " and %" PRId64, i,
                dim, before, after);
        out->shape.dim[i] = dim + before + after;
    }
    return STATUS_OK;
}

enum status infer_expand(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    struct shape wanted, r;
    infer_like_first(in, out, n_out);
    TRY(read_shape(in, &wanted));
    if (!shape_broadcast(&x->shape, &wanted, &r) || !shape_equal(&r, &wanted)) {
        char from[SHAPE_TEXT_MAX], to[SHAPE_TEXT_MAX];
        return infer_fail(in, "%s does not broadcast to %s", shape_format(&x->shape, from),
                          shape_format(&wanted, to));
    }
    out->shape = wanted;
    return STATUS_OK;
}

enum status infer_tile(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t repeats[SHAPE_MAX_RANK];
    infer_like_first(in, out, n_out);
    TRY(infer_ints(in, IR_ATTR_REPEATS, out->shape.rank, repeats));
    for (uint32_t i = 0; i < out->shape.rank; i++)
        if (__builtin_mul_overflow(out->shape.dim[i], repeats[i], &out->shape.dim[i]))
            return infer_fail(in, "dimension %u overflows", i);
    return STATUS_OK;
}

enum status infer_reformat(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    return STATUS_OK;
}
