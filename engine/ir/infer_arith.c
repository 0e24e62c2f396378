/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that compute element by element, the matrix product, and chains of layers. */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

#include "base/checked.h"
#include "base/mlp.h"

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

/* Checks the functions of the layers: from floats to floats, and with no third constant but the
 * usual one. */
static enum status check_functions(const struct infer *in, uint32_t layers)
{
    const struct ir_attr *funcs = ir_attr(in->node, IR_ATTR_FUNCS);
    const struct ir_attr *constants[2] = {ir_attr(in->node, IR_ATTR_ALPHAS),
                                          ir_attr(in->node, IR_ATTR_BETAS)};
    for (uint32_t c = 0; c < 2; c++)
        if (constants[c]->count != layers)
            return infer_fail(in, "attribute %s has %u values, not %u",
                              ir_attr_name(constants[c]->key), constants[c]->count, layers);
    if (funcs->count != layers)
        return infer_fail(in, "attribute funcs has %u values, not %u", funcs->count, layers);
    for (uint32_t i = 0; i < layers; i++) {
        const struct ir_func_row *row = ir_unary_row((enum ir_unary)funcs->i[i]);
        if (row->class == IR_CLASS_BOOL || row->class == IR_CLASS_INTEGER ||
            row->flags & IR_FUNC_TO_BOOL)
            return infer_fail(in, "funcs[%u] is %s, which is no function of floats", i, row->name);
        if (isnan(constants[0]->f[i]) || isnan(constants[1]->f[i]))
            return infer_fail(in, "a constant of funcs[%u] is no number", i);
    }
    return STATUS_OK;
}

enum status infer_mlp(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_attr *widths = ir_attr(in->node, IR_ATTR_WIDTHS);
    const struct shape *x = &infer_input(in, 0)->shape;
    char text[SHAPE_TEXT_MAX];
    size_t weights = 0, columns = 0, matrix;
    if (x->rank < 1 || x->dim[x->rank - 1] < 1)
        return infer_fail(in, "input 0 is %s, which has no rows", shape_format(x, text));
    if (widths->count < 1 || widths->count > MLP_LAYERS_MAX)
        return infer_fail(in, "has %u layers, not 1 to %d", widths->count, MLP_LAYERS_MAX);
    TRY(check_functions(in, widths->count));
    size_t depth = (size_t)x->dim[x->rank - 1];
    for (uint32_t i = 0; i < widths->count; i++) {
        size_t width = (size_t)widths->i[i];
        if (!checked_mul(depth, width, &matrix) || !checked_add(weights, matrix, &weights) ||
            weights > IR_MAX_DIM)
            return infer_fail(in, "layer %u has too many weights", i);
        columns += width;
        depth = width;
    }
    TRY(infer_vector(in, 1, (int64_t)weights));
    TRY(infer_vector(in, 2, (int64_t)columns));
    infer_like_first(in, out, n_out);
    out->shape.dim[x->rank - 1] = (int64_t)depth;
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
