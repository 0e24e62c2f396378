/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of any spatial rank. A max over nothing but padding is the type's lowest value. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/window.h"

/* What one output has seen so far. */
struct seen {
    double sum;     /* or the sum of |x|^p */
    int64_t count;  /* elements of x */
    int64_t best;   /* where the maximum is; -1: nothing yet */
    double highest; /* the maximum of floats */
    int64_t most;   /* the maximum of integers */
};

static void see(const struct ref_pooling *pool, const struct tensor_view *x, int64_t at,
                struct seen *seen)
{
    seen->count++;
    if (pool->func == IR_POOL_AVERAGE) {
        seen->sum += ref_get_f64(x->dtype, x->data, at);
    } else if (pool->func == IR_POOL_LP) {
        seen->sum += pow(fabs(ref_get_f64(x->dtype, x->data, at)), pool->p);
    } else if (dtype_is_float(x->dtype)) {
        double v = ref_get_f64(x->dtype, x->data, at);
        if (seen->best < 0 || v > seen->highest || (isnan(v) && !isnan(seen->highest))) {
            seen->highest = v;
            seen->best = at;
        }
    } else {
        int64_t v = ref_get_i64(x->dtype, x->data, at);
        if (seen->best < 0 || v > seen->most) {
            seen->most = v;
            seen->best = at;
        }
    }
}

/* Looks at the elements of x in the window of output o; the plane of x starts at `plane`. */
static void look(const struct ref_pooling *pool, const struct tensor_view *x, int64_t plane,
                 const int64_t *o, struct seen *seen)
{
    const struct ref_window *win = &pool->win;
    uint32_t last = win->rank - 1;
    const int64_t *in = &x->shape.dim[2];
    int64_t k[SHAPE_MAX_RANK] = {0}, row;
    do {
        if (!ref_window_row(win, in, o, k, &row))
            continue;
        int64_t i = o[last] * win->strides[last] - win->pads[last];
        for (int64_t j = 0; j < win->kernel[last]; j++, i += win->dilations[last])
            if (i >= 0 && i < in[last])
                see(pool, x, plane + row + i, seen);
    } while (ref_window_next(last, win->kernel, k));
}

/* Counts the kernel positions that fall on x or its padding; in ceil mode the last windows reach
 * further. */
static int64_t covered(const struct ref_pooling *pool, const int64_t *in, const int64_t *o)
{
    const struct ref_window *win = &pool->win;
    int64_t n = 1;
    for (uint32_t d = 0; d < win->rank; d++) {
        int64_t first = o[d] * win->strides[d] - win->pads[d], inside = 0;
        for (int64_t k = 0; k < win->kernel[d]; k++)
            inside += first + k * win->dilations[d] < in[d] + pool->ends[d];
        n *= inside;
    }
    return n;
}

static void store(const struct ref_pooling *pool, const struct tensor_view *y, int64_t to,
                  const struct seen *seen, int64_t divisor)
{
    double value = seen->sum;
    if (pool->func == IR_POOL_AVERAGE)
        value = divisor ? value / (double)divisor : 0;
    else if (pool->func == IR_POOL_LP)
        value = pow(value, 1 / pool->p);
    else if (dtype_is_float(y->dtype))
        value = seen->best < 0 ? -INFINITY : seen->highest;
    else {
        int64_t most = seen->best < 0 && dtype_is_signed(y->dtype)
                           ? INT64_MIN >> (64 - 8 * dtype_size(y->dtype))
                           : seen->most;
        ref_write_i64(y->dtype, y->data, to, 1, 1, &most);
        return;
    }
    ref_write_f64(y->dtype, y->data, to, 1, 1, &value);
}

void ref_pool(const struct ref_pooling *pool, const struct tensor_view *x,
              const struct tensor_view *y, const struct tensor_view *indices)
{
    int64_t planes = y->shape.dim[0] * y->shape.dim[1], to = 0;
    int64_t in_size = ref_extent(&x->shape, 2, x->shape.rank);
    if (ref_extent(&y->shape, 0, y->shape.rank) == 0)
        return;
    for (int64_t p = 0; p < planes; p++) {
        int64_t o[SHAPE_MAX_RANK] = {0};
        do {
            struct seen seen = {.best = -1};
            look(pool, x, p * in_size, o, &seen);
            int64_t divisor =
                pool->count_include_pad ? covered(pool, &x->shape.dim[2], o) : seen.count;
            store(pool, y, to, &seen, divisor);
            if (indices)
                ref_write_i64(indices->dtype, indices->data, to, 1, 1, &seen.best);
            to++;
        } while (ref_window_next(pool->win.rank, &y->shape.dim[2], o));
    }
}
