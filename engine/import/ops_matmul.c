/* SPDX-License-Identifier: Apache-2.0 */
/* MatMul, Gemm, Det. */
#include "engine/import/ops.h"

uint32_t emit_along(struct mapper *m, uint32_t x, uint32_t axis, uint32_t rank)
{
    const struct shape *shape = map_shape(m, x);
    struct shape out = {.rank = rank};
    if (shape->rank != 1 || axis >= rank || rank > SHAPE_MAX_RANK)
        return x;
    int64_t n = shape->dim[0];
    for (uint32_t d = 0; d < rank; d++)
        out.dim[d] = d == axis ? n : 1;
    return emit_reshape(m, x, &out);
}

/* Follows numpy's rule: a vector on the left is a row, a vector on the right a column, and the
 * result does not have that dimension. */
uint32_t emit_matmul_any(struct mapper *m, uint32_t a, uint32_t b)
{
    bool row = map_shape(m, a)->rank == 1, column = map_shape(m, b)->rank == 1;
    if (row)
        a = emit_along(m, a, 1, 2);
    if (column)
        b = emit_along(m, b, 0, 2);
    uint32_t y = emit_matmul(m, a, b, IR_NONE);
    struct shape shape = *map_shape(m, y), out = {.rank = 0};
    for (uint32_t d = 0; d < shape.rank; d++) {
        if (!(row && d + 2 == shape.rank) && !(column && d + 1 == shape.rank))
            out.dim[out.rank++] = shape.dim[d];
    }
    return row || column ? emit_reshape(m, y, &out) : y;
}

void map_matmul(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1);
    map_out(m, 0, emit_matmul_any(m, a, b));
}

/* The C of a Gemm as the bias of a product with n columns; IR_NONE if it does not have that
 * form. */
static uint32_t row_bias(struct mapper *m, uint32_t c, int64_t n)
{
    const struct shape *shape = map_shape(m, c);
    bool row = (shape->rank == 1 && shape->dim[0] == n) ||
               (shape->rank == 2 && shape->dim[0] == 1 && shape->dim[1] == n);
    return row ? emit_reshape(m, c, &(struct shape){.rank = 1, .dim = {n}}) : IR_NONE;
}

uint32_t emit_scaled(struct mapper *m, uint32_t x, float factor)
{
    if (factor == 1 || map_failed(m))
        return x;
    if (dtype_is_float(map_dtype(m, x)))
        return emit_unary_ab(m, IR_UNARY_LINEAR, x, factor, 0);
    map_refuse(m, "alpha or beta other than 1 with %s operands", dtype_name(map_dtype(m, x)));
    return IR_NONE;
}

/* alpha A' B' + beta C. A scale stands alone, so that passes can fold it into weights. */
uint32_t emit_gemm(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1), c = map_in_opt(m, 2), bias = IR_NONE;
    bool trans_a = map_attr_int(m, "transA", 0) != 0, trans_b = map_attr_int(m, "transB", 0) != 0;
    float alpha = map_attr_float(m, "alpha", 1), beta = map_attr_float(m, "beta", 1);
    const struct shape *shape_b = map_shape(m, b);
    if (!map_failed(m) && (map_shape(m, a)->rank != 2 || shape_b->rank != 2)) {
        map_invalid(m, "operands of rank %u and %u, expected 2", map_shape(m, a)->rank,
                    shape_b->rank);
        return IR_NONE;
    }
    c = beta == 0 ? IR_NONE : c;
    if (c != IR_NONE) {
        int64_t n = shape_b->dim[trans_b ? 0 : 1];
        c = emit_scaled(m, c, beta);
        bias = alpha == 1 ? row_bias(m, c, n) : IR_NONE;
    }
    uint32_t node =
        emit_begin(m, IR_OP_MATMUL, bias == IR_NONE ? 2 : 3, (const uint32_t[]){a, b, bias});
    emit_int(m, node, IR_ATTR_TRANS_A, trans_a);
    emit_int(m, node, IR_ATTR_TRANS_B, trans_b);
    uint32_t y = emit_scaled(m, emit_end(m, node), alpha);
    if (c == IR_NONE || bias != IR_NONE)
        return y;
    struct shape product = *map_shape(m, y);
    y = emit_binary(m, IR_BINARY_ADD, y, c);
    if (!map_failed(m) && !shape_equal(map_shape(m, y), &product))
        map_invalid(m, "C does not broadcast to the product");
    return y;
}

void map_gemm(struct mapper *m)
{
    map_out(m, 0, emit_gemm(m));
}

void map_det(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    map_out(m, 0, emit_end(m, emit_begin(m, IR_OP_DET, 1, &x)));
}
