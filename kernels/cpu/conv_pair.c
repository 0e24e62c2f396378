/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by weights of one place: the sum of two, and two in a row, in double until they are
 * rounded. */
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

/* What a convolution of one or two sources makes of a place, its function included. */
struct summed {
    const struct tensor_view *x, *w, *x2, *w2, *b, *z, *y;
    const int64_t *strides;
    bool relu;
};

static void sum_all(const struct summed *s)
{
    const int64_t *dim = s->y->shape.dim;
    int64_t at = 0;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t m = 0; m < dim[1]; m++)
            for (int64_t row = 0; row < dim[2]; row++)
                for (int64_t column = 0; column < dim[3]; column++, at++) {
                    double sum = (s->b ? number(s->b, m) : 0) + (s->z ? number(s->z, at) : 0);
                    sum += dot(s->x, s->w, n, m, row, column);
                    if (s->x2)
                        sum += dot(s->x2, s->w2, n, m, row * s->strides[0], column * s->strides[1]);
                    sum = s->relu && sum < 0 ? 0 : sum; /* NaN stays */
                    ref_write_f64(s->y->dtype, s->y->data, at, 1, 1, &sum);
                }
}

void ref_conv_chain(const struct ref_chain *c)
{
    sum_all(&(struct summed){c->x, c->w, c->x2, c->w2, c->b, c->z, c->y, c->strides, c->relu[0]});
    sum_all(&(struct summed){.x = c->y, .w = c->v, .b = c->a, .y = c->t, .relu = c->relu[1]});
}

void ref_conv_pair(const int64_t *strides, const struct tensor_view *x, const struct tensor_view *w,
                   const struct tensor_view *x2, const struct tensor_view *w2,
                   const struct tensor_view *b, const struct tensor_view *y)
{
    sum_all(
        &(struct summed){.x = x, .w = w, .x2 = x2, .w2 = w2, .b = b, .y = y, .strides = strides});
}
