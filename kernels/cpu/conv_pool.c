/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution of images and the maximum behind it: an image at a time, whose sums are doubles
 * until the largest one is rounded. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { REACH = 1, STEP = 2 }; /* of the pool */

size_t ref_conv_pool_scratch(int64_t filters, const int64_t *out)
{
    size_t n;
    bool fits = !__builtin_mul_overflow(filters, out[0], &n) &&
                !__builtin_mul_overflow(n, out[1], &n) &&
                !__builtin_mul_overflow(n, sizeof(double), &n);
    return fits ? n : SIZE_MAX;
}

/* The largest number of a window that begins above and to the left of a place of twice the row and
 * the column. */
static double largest(const double *plane, const int64_t *out, int64_t row, int64_t column)
{
    double most = -INFINITY;
    for (int64_t h = MAX(STEP * row - REACH, 0); h <= MIN(STEP * row + REACH, out[0] - 1); h++)
        for (int64_t v = MAX(STEP * column - REACH, 0); v <= MIN(STEP * column + REACH, out[1] - 1);
             v++) {
            double sum = plane[h * out[1] + v];
            most = sum > most || isnan(sum) ? sum : most;
        }
    return most;
}

static void pool_plane(const double *plane, const int64_t *out, const struct tensor_view *y,
                       int64_t at)
{
    int64_t rows = y->shape.dim[2], columns = y->shape.dim[3];
    for (int64_t i = 0; i < rows * columns; i++) {
        double most = largest(plane, out, i / columns, i % columns);
        ref_write_f64(y->dtype, y->data, at + i, 1, 1, &most);
    }
}

void ref_conv_pool(const struct ref_window *win, const int64_t *out, void *scratch,
                   const struct tensor_view *x, const struct tensor_view *w,
                   const struct tensor_view *b, const struct tensor_view *y)
{
    int64_t filters = y->shape.dim[1], pixels = y->shape.dim[2] * y->shape.dim[3];
    int64_t of_image = ref_extent(&x->shape, 1, x->shape.rank);
    struct tensor_view one = *x;
    struct tensor_view sums = {.dtype = DTYPE_F64, .data = scratch};
    one.shape.dim[0] = 1;
    sums.shape = (struct shape){.rank = 4, .dim = {1, filters, out[0], out[1]}};
    for (int64_t n = 0; n < y->shape.dim[0]; n++) {
        one.data = (char *)x->data + (size_t)(n * of_image) * dtype_size(x->dtype);
        ref_conv(win, 1, &one, w, b, &sums);
        for (int64_t m = 0; m < filters; m++)
            pool_plane((const double *)scratch + m * out[0] * out[1], out, y,
                       (n * filters + m) * pixels);
    }
}
