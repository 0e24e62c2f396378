/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that compute element by element, and the matrix product. */
#include "engine/ir/infer.h"

#include <inttypes.h>

static struct shape leading(const struct shape *shape)
{
    struct shape r = *shape;
    r.rank -= 2;
    r.dim[r.rank] = r.dim[r.rank + 1] = 0;
    return r;
}

enum status infer_matmul(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *a = infer_input(in, 0), *b = infer_input(in, 1);
    char as[SHAPE_TEXT_MAX], bs[SHAPE_TEXT_MAX];
    bool trans_a = infer_int(in, IR_ATTR_TRANS_A), trans_b = infer_int(in, IR_ATTR_TRANS_B);
    shape_format(&a->shape, as);
    shape_format(&b->shape, bs);
    if (a->shape.rank < 2 || b->shape.rank < 2)
        return infer_fail(in, "inputs %s and %s need rank 2 at least", as, bs);

    const int64_t *ad = &a->shape.dim[a->shape.rank - 2], *bd = &b->shape.dim[b->shape.rank - 2];
    int64_t m = ad[trans_a], k = ad[!trans_a], kb = bd[trans_b], n = bd[!trans_b];
    struct shape la = leading(&a->shape), lb = leading(&b->shape), r;
    if (k != kb || !shape_broadcast(&la, &lb, &r))
        return infer_fail(in, "inputs %s%s and %s%s do not fit together", as,
                          trans_a ? " transposed" : "", bs, trans_b ? " transposed" : "");
    TRY(infer_vector(in, 2, n));
    r.dim[r.rank++] = m;
    r.dim[r.rank++] = n;
    out[0] = (struct ir_type){infer_sums(in), r};
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_unary(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_func_row *func = ir_unary_row((enum ir_unary)infer_int(in, IR_ATTR_FUNC));
    TRY(infer_class(in, 0, func->class));
    infer_like_first(in, out, n_out);
    if (func->flags & IR_FUNC_TO_BOOL)
        out->dtype = DTYPE_BOOL;
    return STATUS_OK;
}

enum status infer_binary(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *a = infer_input(in, 0), *b = infer_input(in, 1);
    char as[SHAPE_TEXT_MAX], bs[SHAPE_TEXT_MAX];
    const struct ir_func_row *func = ir_binary_row((enum ir_binary)infer_int(in, IR_ATTR_FUNC));
    TRY(infer_class(in, 0, func->class));
    if (!shape_broadcast(&a->shape, &b->shape, &out->shape))
        return infer_fail(in, "shapes %s and %s do not broadcast", shape_format(&a->shape, as),
                          shape_format(&b->shape, bs));
    out->dtype = func->flags & IR_FUNC_TO_BOOL ? DTYPE_BOOL : ir_tensor_type(a);
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_select(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *cond = infer_input(in, 0), *x = infer_input(in, 1),
                           *y = infer_input(in, 2);
    struct shape both;
    if (ir_tensor_type(x) != ir_tensor_type(y))
        return infer_fail(in, "chooses between %s and %s", dtype_name(ir_tensor_type(x)),
                          dtype_name(ir_tensor_type(y)));
    if (!shape_broadcast(&x->shape, &y->shape, &both) ||
        !shape_broadcast(&cond->shape, &both, &out->shape)) {
        char cs[SHAPE_TEXT_MAX], xs[SHAPE_TEXT_MAX], ys[SHAPE_TEXT_MAX];
        return infer_fail(in, "shapes %s, %s and %s do not broadcast",
                          shape_format(&cond->shape, cs), shape_format(&x->shape, xs),
                          shape_format(&y->shape, ys));
    }
    out->dtype = ir_tensor_type(x);
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_cast(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    out->dtype = (enum dtype)infer_int(in, IR_ATTR_TO);
    return STATUS_OK;
}

enum status infer_cumsum(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    return STATUS_OK;
}

enum status infer_trilu(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    infer_like_first(in, out, n_out);
    if (out->shape.rank < 2)
        return infer_fail(in, "input has rank %u, but needs 2 at least", out->shape.rank);
    return STATUS_OK;
}
