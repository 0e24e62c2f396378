/* SPDX-License-Identifier: Apache-2.0 */
/* Normalised rows times a matrix: a few rows at a time, in double until they are rounded. */
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { ROWS = 8 };

size_t ref_norm_matmul_scratch(int64_t columns)
{
    return (size_t)columns * ROWS * sizeof(double);
}

/* Rows `first` to `first + rows` of a tensor, as a matrix. */
static struct tensor_view rows_of(const struct tensor_view *t, int64_t first, int64_t rows)
{
    int64_t columns = t->shape.dim[t->shape.rank - 1];
    size_t skipped = (size_t)(first * columns) * dtype_size(t->dtype);
    return (struct tensor_view){
        t->dtype, {.rank = 2, .dim = {rows, columns}}, (char *)t->data + skipped};
}

void ref_norm_matmul(const struct ref_norm_matmul *how, void *scratch)
{
    const struct shape *x = &how->x->shape;
    int64_t n = ref_extent(x, 0, x->rank - 1);
    for (int64_t first = 0; first < n; first += ROWS) {
        int64_t rows = MIN(n - first, ROWS);
        struct tensor_view in = rows_of(how->x, first, rows), y = rows_of(how->y, first, rows);
        struct tensor_view h = {DTYPE_F64, in.shape, scratch};
        ref_layer_norm(1, how->rms, how->epsilon, &in, how->scale, how->shift, &h);
        ref_matmul(false, how->trans_b, 1, &h, how->w, how->bias, &y);
        if (!how->h)
            continue;
        struct tensor_view stored = rows_of(how->h, first, rows);
        ref_cast(&h, &stored);
    }
}
