/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix product in blocks of ROWS x COLS sums: a row of b is converted once for ROWS rows of a.
 * Integers wrap around in int64 and are cut to the output's width.
 */
#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { ROWS = 8, COLS = 128 };

/* One pair of matrices of a batch; offsets and steps count elements. */
struct product {
    const struct tensor_view *a, *b, *bias, *y;
    int64_t a_at, b_at, y_at;
    int64_t a_row, a_col, b_row, b_col; /* steps from row to row and from column to column */
    int64_t m, n, k;
    double alpha;
    int64_t alpha_int;
};

static void block_floats(const struct product *p, int64_t m, int64_t n, size_t rows, size_t cols)
{
    double sums[ROWS][COLS] = {{0}}, b[COLS], a[ROWS], bias[COLS] = {0};
    for (int64_t k = 0; k < p->k; k++) {
        ref_read_f64(p->a->dtype, p->a->data, p->a_at + m * p->a_row + k * p->a_col, p->a_row, rows,
                     a);
        ref_read_f64(p->b->dtype, p->b->data, p->b_at + k * p->b_row + n * p->b_col, p->b_col, cols,
                     b);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++)
                sums[r][c] += a[r] * b[c];
    }
    if (p->bias)
        ref_read_f64(p->bias->dtype, p->bias->data, n, 1, cols, bias);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++)
            sums[r][c] = p->alpha * sums[r][c] + bias[c];
        ref_write_f64(p->y->dtype, p->y->data, p->y_at + (m + (int64_t)r) * p->n + n, 1, cols,
                      sums[r]);
    }
}

static void block_ints(const struct product *p, int64_t m, int64_t n, size_t rows, size_t cols)
{
    int64_t b[COLS], a[ROWS], bias[COLS] = {0};
    uint64_t sums[ROWS][COLS] = {{0}};
    for (int64_t k = 0; k < p->k; k++) {
        ref_read_i64(p->a->dtype, p->a->data, p->a_at + m * p->a_row + k * p->a_col, p->a_row, rows,
                     a);
        ref_read_i64(p->b->dtype, p->b->data, p->b_at + k * p->b_row + n * p->b_col, p->b_col, cols,
                     b);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++)
                sums[r][c] += (uint64_t)a[r] * (uint64_t)b[c];
    }
    if (p->bias)
        ref_read_i64(p->bias->dtype, p->bias->data, n, 1, cols, bias);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++)
            b[c] = (int64_t)((uint64_t)p->alpha_int * sums[r][c] + (uint64_t)bias[c]);
        ref_write_i64(p->y->dtype, p->y->data, p->y_at + (m + (int64_t)r) * p->n + n, 1, cols, b);
    }
}

static void multiply(const struct product *p)
{
    bool floats = dtype_is_float(p->y->dtype);
    for (int64_t m = 0; m < p->m; m += ROWS)
        for (int64_t n = 0; n < p->n; n += COLS) {
            size_t rows = (size_t)MIN(p->m - m, ROWS), cols = (size_t)MIN(p->n - n, COLS);
            if (floats)
                block_floats(p, m, n, rows, cols);
            else
                block_ints(p, m, n, rows, cols);
        }
}

void ref_matmul(bool trans_a, bool trans_b, double alpha, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *bias,
                const struct tensor_view *y)
{
    uint32_t rank = y->shape.rank, ra = a->shape.rank;
    struct product p = {.a = a, .b = b, .bias = bias, .y = y, .alpha = alpha};
    ref_read_i64(DTYPE_F64, &alpha, 0, 1, 1, &p.alpha_int);
    p.m = y->shape.dim[rank - 2];
    p.n = y->shape.dim[rank - 1];
    p.k = a->shape.dim[trans_a ? ra - 2 : ra - 1];
    p.a_row = trans_a ? 1 : p.k;
    p.a_col = trans_a ? p.m : 1;
    p.b_row = trans_b ? 1 : p.n;
    p.b_col = trans_b ? p.k : 1;

    /* The batch dims of a and b broadcast to those of y. */
    struct shape batch = y->shape, of_a = a->shape, of_b = b->shape;
    batch.rank -= 2;
    of_a.rank -= 2;
    of_b.rank -= 2;
    int64_t strides[3][SHAPE_MAX_RANK];
    shape_strides(&batch, strides[0]);
    ref_broadcast_strides(&of_a, &batch, strides[1]);
    ref_broadcast_strides(&of_b, &batch, strides[2]);
    struct ref_walk w;
    for (bool row = ref_walk_init(&w, &batch, 3, strides); row; row = ref_walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            p.y_at = (w.at[0] + i * w.step[0]) * p.m * p.n;
            p.a_at = (w.at[1] + i * w.step[1]) * p.m * p.k;
            p.b_at = (w.at[2] + i * w.step[2]) * p.k * p.n;
            multiply(&p);
        }
}
