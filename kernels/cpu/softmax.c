/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax along one axis, relative to the row's maximum so that exp cannot overflow. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

static double highest_of(const struct tensor_view *x, int64_t first, int64_t step, int64_t n)
{
    double row[REF_ROW], highest = -INFINITY;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        ref_read_f64(x->dtype, x->data, first + at * step, step, part, row);
        for (size_t i = 0; i < part; i++)
            highest = isnan(highest) || highest > row[i] ? highest : row[i];
    }
    return highest;
}

static double sum_of_exp(const struct tensor_view *x, int64_t first, int64_t step, int64_t n,
                         double highest)
{
    double row[REF_ROW], sum = 0;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        ref_read_f64(x->dtype, x->data, first + at * step, step, part, row);
        for (size_t i = 0; i < part; i++)
            sum += exp(row[i] - highest);
    }
    return sum;
}

void ref_softmax(uint32_t axis, bool log_of, const struct tensor_view *x,
                 const struct tensor_view *y)
{
    int64_t outer = ref_extent(&x->shape, 0, axis), n = x->shape.dim[axis];
    int64_t step = ref_extent(&x->shape, axis + 1, x->shape.rank);
    double row[REF_ROW];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t s = 0; s < step; s++) {
            int64_t first = o * n * step + s;
            double highest = highest_of(x, first, step, n);
            double sum = sum_of_exp(x, first, step, n, highest), log_sum = log(sum);
            for (int64_t at = 0; at < n; at += REF_ROW) {
                size_t part = (size_t)MIN(n - at, REF_ROW);
                ref_read_f64(x->dtype, x->data, first + at * step, step, part, row);
                for (size_t i = 0; i < part; i++)
                    row[i] = log_of ? row[i] - highest - log_sum : exp(row[i] - highest) / sum;
                ref_write_f64(y->dtype, y->data, first + at * step, step, part, row);
            }
        }
}
