/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of fully connected layers: some rows of X go through all layers, then the next ones, so
 * that what lies between layers takes little memory and weights are read once for these rows.
 */
#include "kernels/cpu/ref.h"

#include <string.h>

#include "kernels/cpu/number.h"

enum { ROWS = 16 }; /* at a time */

static int64_t widest(int64_t depth, uint32_t layers, const int64_t *widths)
{
    int64_t most = depth;
    for (uint32_t i = 0; i < layers; i++)
        most = widths[i] > most ? widths[i] : most;
    return most;
}

size_t ref_mlp_scratch(int64_t depth, uint32_t layers, const int64_t *widths)
{
    return (size_t)(widest(depth, layers, widths) * (2 * ROWS + 1)) * sizeof(double);
}

/* Places of the layer's weights and biases. */
struct place {
    int64_t weights, bias, depth, width;
};

/* to[rows,width] = from[rows,depth] W + bias; `row` holds a row of W. */
static void multiply(const struct ref_mlp *how, const struct place *p, int64_t rows,
                     const double *from, double *to, double *row)
{
    size_t width = (size_t)p->width;
    ref_read_f64(how->bias->dtype, how->bias->data, p->bias, 1, width, row);
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * p->width, row, width * sizeof(*row));
    for (int64_t k = 0; k < p->depth; k++) {
        ref_read_f64(how->weights->dtype, how->weights->data, p->weights + k * p->width, 1, width,
                     row);
        for (int64_t r = 0; r < rows; r++) {
            double x = from[r * p->depth + k], *y = to + r * p->width;
            for (size_t n = 0; n < width; n++)
                y[n] += x * row[n];
        }
    }
}

void ref_mlp(const struct ref_mlp *how, void *scratch)
{
    const struct shape *x = &how->x->shape;
    int64_t depth = x->dim[x->rank - 1], all = 1, most = widest(depth, how->layers, how->widths);
    double *row = scratch, *here = row + most, *there = here + ROWS * most;
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        all *= x->dim[d];
    for (int64_t first = 0; first < all; first += ROWS) {
        int64_t rows = all - first < ROWS ? all - first : ROWS;
        struct place p = {.depth = depth};
        ref_read_f64(how->x->dtype, how->x->data, first * depth, 1, (size_t)(rows * depth), here);
        for (uint32_t i = 0; i < how->layers; i++) {
            p.width = how->widths[i];
            multiply(how, &p, rows, here, there, row);
            const struct tensor_view v = {DTYPE_F64, {.rank = 1, .dim = {rows * p.width}}, there};
            ref_unary((enum ir_unary)how->funcs[i], (double)how->alphas[i], (double)how->betas[i],
                      (double)how->gammas[i], &v, &v);
            p.weights += p.depth * p.width;
            p.bias += p.width;
            p.depth = p.width;
            double *last = here;
            here = there;
            there = last;
        }
        ref_write_f64(how->y->dtype, how->y->data, first * p.depth, 1, (size_t)(rows * p.depth),
                      here);
    }
}
