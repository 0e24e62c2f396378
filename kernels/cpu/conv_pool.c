/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution of images and the maximum behind it, a number of the output at a time. Sums are
 * doubles, and the largest one is rounded. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum { REACH = 1, STEP = 2 }; /* of the pool */

struct layer {
    const struct ref_window *win;
    const struct tensor_view *x, *w, *b;
};

/* The taps of one channel that lie over the image. */
static double sum_channel(const struct layer *l, int64_t plane, int64_t filter, int64_t top,
                          int64_t left)
{
    const struct ref_window *win = l->win;
    int64_t height = l->x->shape.dim[2], width = l->x->shape.dim[3];
    double sum = 0;
    for (int64_t r = 0; r < win->kernel[0]; r++)
        for (int64_t s = 0; s < win->kernel[1]; s++) {
            int64_t h = top + r * win->dilations[0], v = left + s * win->dilations[1];
            if (h >= 0 && v >= 0 && h < height && v < width)
                sum += ref_get_f64(l->x->dtype, l->x->data, (plane * height + h) * width + v) *
                       ref_get_f64(l->w->dtype, l->w->data,
                                   (filter * win->kernel[0] + r) * win->kernel[1] + s);
        }
    return sum;
}

/* The convolution of image n by filter m at a place. */
static double sum_at(const struct layer *l, int64_t n, int64_t m, int64_t row, int64_t column)
{
    int64_t channels = l->x->shape.dim[1];
    double sum = l->b ? ref_get_f64(l->b->dtype, l->b->data, m) : 0;
    for (int64_t c = 0; c < channels; c++)
        sum += sum_channel(l, n * channels + c, m * channels + c,
                           row * l->win->strides[0] - l->win->pads[0],
                           column * l->win->strides[1] - l->win->pads[1]);
    return sum;
}

void ref_conv_pool(const struct ref_window *win, const int64_t *out, const struct tensor_view *x,
                   const struct tensor_view *w, const struct tensor_view *b,
                   const struct tensor_view *y)
{
    const struct layer l = {win, x, w, b};
    const int64_t *dim = y->shape.dim;
    int64_t n = ref_extent(&y->shape, 0, y->shape.rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t column = i % dim[3] * STEP, row = i / dim[3] % dim[2] * STEP;
        int64_t plane = i / dim[3] / dim[2];
        double most = -INFINITY;
        for (int64_t h = MAX(row - REACH, 0); h <= MIN(row + REACH, out[0] - 1); h++)
            for (int64_t v = MAX(column - REACH, 0); v <= MIN(column + REACH, out[1] - 1); v++) {
                double sum = sum_at(&l, plane / dim[1], plane % dim[1], h, v);
                most = sum > most || isnan(sum) ? sum : most;
            }
        ref_write_f64(y->dtype, y->data, i, 1, 1, &most);
    }
}
