/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of two convolutions by weights of one place each, in double until it is rounded. */
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

static double number(const struct tensor_view *t, int64_t at)
{
    double v;
    ref_read_f64(t->dtype, t->data, at, 1, 1, &v);
    return v;
}

/* What filter m makes of the channels of image n at one place. */
static double dot(const struct tensor_view *x, const struct tensor_view *w, int64_t n, int64_t m,
                  int64_t row, int64_t column)
{
    const int64_t *dim = x->shape.dim;
    int64_t plane = dim[2] * dim[3], at = row * dim[3] + column;
    double sum = 0;
    for (int64_t c = 0; c < dim[1]; c++)
        sum += number(x, (n * dim[1] + c) * plane + at) * number(w, m * dim[1] + c);
    return sum;
}

void ref_conv_pair(const int64_t *strides, const struct tensor_view *x, const struct tensor_view *w,
                   const struct tensor_view *x2, const struct tensor_view *w2,
                   const struct tensor_view *b, const struct tensor_view *y)
{
    const int64_t *dim = y->shape.dim;
    int64_t at = 0;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t m = 0; m < dim[1]; m++)
            for (int64_t row = 0; row < dim[2]; row++)
                for (int64_t column = 0; column < dim[3]; column++, at++) {
                    double sum = (b ? number(b, m) : 0) + dot(x, w, n, m, row, column);
                    sum += dot(x2, w2, n, m, row * strides[0], column * strides[1]);
                    ref_write_f64(y->dtype, y->data, at, 1, 1, &sum);
                }
}
