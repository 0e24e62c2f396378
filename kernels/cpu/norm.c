/* SPDX-License-Identifier: Apache-2.0 */
/* The normalisations. Statistics are taken in two passes: mean, then mean square deviation. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

/* y = (x - mean) factor + shift over n dense elements. */
static void scale_row(const struct tensor_view *x, const struct tensor_view *y, int64_t first,
                      int64_t n, double mean, double factor, double shift)
{
    double row[REF_ROW];
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        ref_read_f64(x->dtype, x->data, first + at, 1, part, row);
        for (size_t i = 0; i < part; i++)
            row[i] = (row[i] - mean) * factor + shift;
        ref_write_f64(y->dtype, y->data, first + at, 1, part, row);
    }
}

/* Mean and 1 / sqrt(variance + epsilon) of n dense elements; with `rms` the mean is 0. */
static void moments(const struct tensor_view *x, int64_t first, int64_t n, bool rms, double epsilon,
                    double *mean, double *inverse)
{
    double row[REF_ROW], sum = 0, squares = 0;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        ref_read_f64(x->dtype, x->data, first + at, 1, part, row);
        for (size_t i = 0; i < part; i++)
            sum += row[i];
    }
    double middle = rms ? 0 : sum / (double)n;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        ref_read_f64(x->dtype, x->data, first + at, 1, part, row);
        for (size_t i = 0; i < part; i++)
            squares += (row[i] - middle) * (row[i] - middle);
    }
    *mean = middle;
    *inverse = 1 / sqrt(squares / (double)n + epsilon);
}

void ref_batch_norm(double epsilon, const struct tensor_view *x, const struct tensor_view *scale,
                    const struct tensor_view *bias, const struct tensor_view *mean,
                    const struct tensor_view *var, const struct tensor_view *y)
{
    int64_t channels = x->shape.dim[1], inner = ref_extent(&x->shape, 2, x->shape.rank);
    for (int64_t n = 0; n < x->shape.dim[0]; n++)
        for (int64_t c = 0; c < channels; c++) {
            double factor = ref_get_f64(scale->dtype, scale->data, c) /
                            sqrt(ref_get_f64(var->dtype, var->data, c) + epsilon);
            scale_row(x, y, (n * channels + c) * inner, inner,
                      ref_get_f64(mean->dtype, mean->data, c), factor,
                      ref_get_f64(bias->dtype, bias->data, c));
        }
}

void ref_layer_norm(uint32_t axis, bool rms, double epsilon, const struct tensor_view *x,
                    const struct tensor_view *scale, const struct tensor_view *bias,
                    const struct tensor_view *y)
{
    struct shape inner = {.rank = x->shape.rank - axis};
    for (uint32_t d = 0; d < inner.rank; d++)
        inner.dim[d] = x->shape.dim[axis + d];
    int64_t outer = ref_extent(&x->shape, 0, axis), n = ref_extent(&inner, 0, inner.rank);
    int64_t strides[3][SHAPE_MAX_RANK] = {{0}};
    shape_strides(&inner, strides[0]);
    ref_broadcast_strides(&scale->shape, &inner, strides[1]);
    if (bias)
        ref_broadcast_strides(&bias->shape, &inner, strides[2]);
    double row[REF_ROW], factor[REF_ROW], shift[REF_ROW] = {0};

    for (int64_t o = 0; o < outer; o++) {
        double mean, inverse;
        moments(x, o * n, n, rms, epsilon, &mean, &inverse);
        struct ref_walk w;
        for (bool more = ref_walk_init(&w, &inner, 3, strides); more; more = ref_walk_next(&w))
            for (int64_t at = 0; at < w.row; at += REF_ROW) {
                size_t part = (size_t)MIN(w.row - at, REF_ROW);
                int64_t to = o * n + w.at[0] + at;
                ref_read_f64(x->dtype, x->data, to, 1, part, row);
                ref_read_f64(scale->dtype, scale->data, w.at[1] + at * w.step[1], w.step[1], part,
                             factor);
                if (bias)
                    ref_read_f64(bias->dtype, bias->data, w.at[2] + at * w.step[2], w.step[2], part,
                                 shift);
                for (size_t i = 0; i < part; i++)
                    row[i] = (row[i] - mean) * inverse * factor[i] + shift[i];
                ref_write_f64(y->dtype, y->data, to, 1, part, row);
            }
    }
}

void ref_instance_norm(int64_t groups, double epsilon, const struct tensor_view *x,
                       const struct tensor_view *scale, const struct tensor_view *bias,
                       const struct tensor_view *y)
{
    int64_t channels = x->shape.dim[1], inner = ref_extent(&x->shape, 2, x->shape.rank);
    int64_t in_group = groups ? channels / groups : 1;
    if (inner == 0 || in_group == 0)
        return;
    for (int64_t n = 0; n < x->shape.dim[0]; n++)
        for (int64_t c = 0; c < channels; c += in_group) {
            double mean, inverse;
            moments(x, (n * channels + c) * inner, in_group * inner, false, epsilon, &mean,
                    &inverse);
            for (int64_t g = c; g < c + in_group; g++)
                scale_row(x, y, (n * channels + g) * inner, inner, mean,
                          inverse * ref_get_f64(scale->dtype, scale->data, g),
                          ref_get_f64(bias->dtype, bias->data, g));
        }
}

void ref_lrn(int64_t size, double alpha, double beta, double bias, const struct tensor_view *x,
             const struct tensor_view *y)
{
    int64_t channels = x->shape.dim[1], inner = ref_extent(&x->shape, 2, x->shape.rank);
    int64_t below = (size - 1) / 2, above = size - 1 - below;
    for (int64_t n = 0; n < x->shape.dim[0]; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < inner; i++) {
                double squares = 0;
                for (int64_t k = MAX(0, c - below); k <= MIN(channels - 1, c + above); k++) {
                    double v = ref_get_f64(x->dtype, x->data, (n * channels + k) * inner + i);
                    squares += v * v;
                }
                int64_t at = (n * channels + c) * inner + i;
                double value = ref_get_f64(x->dtype, x->data, at) /
                               pow(bias + alpha / (double)size * squares, beta);
                ref_write_f64(y->dtype, y->data, at, 1, 1, &value);
            }
}
