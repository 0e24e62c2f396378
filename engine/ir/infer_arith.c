/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that compute element by element, and the matrix product. */
#include "engine/ir/infer.h"

#include <inttypes.h>

static enum status flag(const struct infer *in, enum ir_attr_key key, int64_t fallback, bool *out)
{
    int64_t value;
    TRY(infer_int(in, key, 0, 1, fallback, &value));
    *out = value;
    return STATUS_OK;
}

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
    bool trans_a, trans_b;
    enum dtype sums;
    TRY(infer_product(in, CLASS_NUMBER, &sums));
    TRY(flag(in, IR_ATTR_TRANS_A, 0, &trans_a));
    TRY(flag(in, IR_ATTR_TRANS_B, 0, &trans_b));
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
    out[0] = (struct ir_type){sums, r};
    *n_out = 1;
    return STATUS_OK;
}

/* What a function of one argument takes; FLOAT where not named. */
static enum infer_class unary_class(int64_t func)
{
    switch (func) {
    case IR_UNARY_IDENTITY:
        return CLASS_ANY;
    case IR_UNARY_RELU:
    case IR_UNARY_CLIP:
    case IR_UNARY_ABS:
    case IR_UNARY_NEG:
    case IR_UNARY_SIGN:
    case IR_UNARY_SHRINK:
    case IR_UNARY_LINEAR:
        return CLASS_NUMBER;
    case IR_UNARY_NOT:
        return CLASS_BOOL;
    case IR_UNARY_BITWISE_NOT:
        return CLASS_INTEGER;
    default:
        return CLASS_FLOAT;
    }
}

enum status infer_unary(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t func;
    TRY(infer_int_needed(in, IR_ATTR_FUNC, 0, IR_UNARY_COUNT_ - 1, &func));
    TRY(infer_class(in, 0, unary_class(func)));
    infer_like_first(in, out, n_out);
    if (func == IR_UNARY_IS_NAN || func == IR_UNARY_IS_INF)
        out->dtype = DTYPE_BOOL;
    return STATUS_OK;
}

static enum infer_class binary_class(int64_t func)
{
    switch (func) {
    case IR_BINARY_EQUAL:
        return CLASS_ANY;
    case IR_BINARY_AND:
    case IR_BINARY_OR:
    case IR_BINARY_XOR:
        return CLASS_BOOL;
    case IR_BINARY_SHIFT_LEFT:
    case IR_BINARY_SHIFT_RIGHT:
    case IR_BINARY_BITWISE_AND:
    case IR_BINARY_BITWISE_OR:
    case IR_BINARY_BITWISE_XOR:
        return CLASS_INTEGER;
    default:
        return CLASS_NUMBER;
    }
}

enum status infer_binary(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *a = infer_input(in, 0), *b = infer_input(in, 1);
    char as[SHAPE_TEXT_MAX], bs[SHAPE_TEXT_MAX];
    int64_t func;
    TRY(infer_int_needed(in, IR_ATTR_FUNC, 0, IR_BINARY_COUNT_ - 1, &func));
    TRY(infer_class(in, 0, binary_class(func)));
    TRY(infer_same_dtype(in, 1));
    if (!shape_broadcast(&a->shape, &b->shape, &out->shape))
        return infer_fail(in, "shapes %s and %s do not broadcast", shape_format(&a->shape, as),
                          shape_format(&b->shape, bs));
    out->dtype = func >= IR_BINARY_EQUAL && func <= IR_BINARY_XOR ? DTYPE_BOOL : ir_tensor_type(a);
    *n_out = 1;
    return STATUS_OK;
}

enum status infer_select(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *cond = infer_input(in, 0), *x = infer_input(in, 1),
                           *y = infer_input(in, 2);
    struct shape both;
    TRY(infer_class(in, 0, CLASS_BOOL));
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
    int64_t to;
    TRY(infer_int_needed(in, IR_ATTR_TO, DTYPE_BOOL, DTYPE_COUNT_ - 1, &to));
    infer_like_first(in, out, n_out);
    out->dtype = (enum dtype)to;
    return STATUS_OK;
}

enum status infer_cumsum(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t axis;
    bool exclusive, reverse;
    infer_like_first(in, out, n_out);
    TRY(infer_class(in, 0, CLASS_NUMBER));
    TRY(infer_int_needed(in, IR_ATTR_AXIS, 0, (int64_t)out->shape.rank - 1, &axis));
    TRY(flag(in, IR_ATTR_EXCLUSIVE, 0, &exclusive));
    return flag(in, IR_ATTR_REVERSE, 0, &reverse);
}

enum status infer_trilu(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    bool upper;
    int64_t k;
    infer_like_first(in, out, n_out);
    if (out->shape.rank < 2)
        return infer_fail(in, "input has rank %u, but needs 2 at least", out->shape.rank);
    TRY(flag(in, IR_ATTR_UPPER, 1, &upper));
    return infer_int(in, IR_ATTR_K, -IR_MAX_DIM, IR_MAX_DIM, 0, &k);
}
