/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a tensor at real coordinates. Each output position sums over the grid of taps that its
 * coordinates span (1 tap a dim for nearest, 2 for linear, 4 for cubic); the taps are the same for
 * all channels.
 *
 * Coordinates come from peers and may be anything. They are folded into the input while they are
 * doubles, and only a coordinate inside of it becomes an index. NaN reads element 0 of its dim, or
 * nothing if the border is zeros.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/window.h"

enum { DIM_TAPS = 4 };

/* What one dim contributes: positions and weights. The weight of a tap that falls outside is 0. */
struct dim_taps {
    int64_t n;
    int64_t at[DIM_TAPS];
    double weight[DIM_TAPS];
};

/* Maps a coordinate from -1..1 to pixels of a dim of n. */
static double in_pixels(enum ir_sample coord, double at, int64_t n)
{
    if (coord == IR_SAMPLE_HALF_PIXEL)
        return ((at + 1) * (double)n - 1) / 2;
    return coord == IR_SAMPLE_ALIGN_CORNERS ? (at + 1) / 2 * (double)(n - 1) : at;
}

/* Mirrors `at` at low and high until it lies between. */
static double reflect(double at, double low, double high)
{
    double range = high - low;
    double beyond = fmod(fabs(at - low), 2 * range); /* NaN for a range of 0 */
    return low + (beyond > range ? 2 * range - beyond : beyond);
}

static double fold_in(const struct ref_sample *how, double at, int64_t n)
{
    double edge = how->coord == IR_SAMPLE_ALIGN_CORNERS ? 0 : -0.5, last = (double)(n - 1);
    if (how->border == IR_BORDER_ZEROS || (at >= edge && at <= last - edge))
        return at;
    if (how->border == IR_BORDER_EDGE)
        return at < 0 ? 0 : at > last ? last : at;
    return reflect(at, edge, last - edge);
}

/* Turns a whole position into an index. False: the position is outside and counts as zero. */
static bool index_of(const struct ref_sample *how, double at, int64_t n, int64_t *out)
{
    double inside = fold_in(how, at, n);
    bool there = inside >= 0 && inside <= (double)(n - 1);
    *out = there ? (int64_t)inside : inside > 0 ? n - 1 : 0;
    return there || how->border != IR_BORDER_ZEROS;
}

static void cubic_weights(double t, double weight[4])
{
    const double a = -0.75;
    double s = 1 - t;
    weight[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weight[2] = ((a + 2) * s - (a + 3)) * s * s + 1;
    weight[3] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
}

static void dim_taps(const struct ref_sample *how, double coordinate, int64_t n,
                     struct dim_taps *taps)
{
    double at = in_pixels(how->coord, coordinate, n), first = 0;
    if (how->mode == IR_RESIZE_NEAREST)
        at = nearbyint(at);
    at = fold_in(how, at, n);
    double low = floor(at), t = at - low;
    *taps = (struct dim_taps){.n = 1, .weight = {1}};
    if (!isfinite(at)) {
        taps->weight[0] = how->border != IR_BORDER_ZEROS;
        return;
    }
    if (how->mode == IR_RESIZE_LINEAR) {
        taps->n = 2;
        taps->weight[0] = 1 - t;
        taps->weight[1] = t;
    } else if (how->mode == IR_RESIZE_CUBIC) {
        taps->n = 4;
        first = -1;
        cubic_weights(t, taps->weight);
    }
    for (int64_t k = 0; k < taps->n; k++)
        if (!index_of(how, low + first + (double)k, n, &taps->at[k]))
            taps->weight[k] = 0;
}

void ref_sample_taps(const struct ref_sample *how, const struct shape *x,
                     const struct tensor_view *grid, int64_t position, struct ref_taps *taps)
{
    uint32_t rank = x->rank - 2;
    int64_t strides[SHAPE_MAX_RANK];
    struct dim_taps dims[SHAPE_MAX_RANK];
    int64_t k[SHAPE_MAX_RANK] = {0}, n[SHAPE_MAX_RANK];
    shape_strides(x, strides);
    for (uint32_t d = 0; d < rank; d++) {
        double at = ref_get_f64(grid->dtype, grid->data, position * rank + (rank - 1 - d));
        dim_taps(how, at, x->dim[2 + d], &dims[d]);
        n[d] = dims[d].n;
    }
    taps->n = 0;
    do {
        int64_t at = 0;
        double weight = 1;
        for (uint32_t d = 0; d < rank; d++) {
            at += dims[d].at[k[d]] * strides[2 + d];
            weight *= dims[d].weight[k[d]];
        }
        if (weight == 0) /* an infinity times 0 would be NaN */
            continue;
        taps->at[taps->n] = at;
        taps->weight[taps->n++] = weight;
    } while (ref_window_next(rank, n, k));
}

static double sum_taps(const struct ref_taps *taps, const struct tensor_view *x, int64_t plane)
{
    double sum = 0;
    float single;
    for (uint32_t i = 0; i < taps->n; i++) {
        if (x->dtype == DTYPE_F32) {
            memcpy(&single, (const char *)x->data + (size_t)(plane + taps->at[i]) * sizeof(single),
                   sizeof(single));
            sum += taps->weight[i] * (double)single;
        } else {
            sum += taps->weight[i] * ref_get_f64(x->dtype, x->data, plane + taps->at[i]);
        }
    }
    return sum;
}

void ref_sample(const struct ref_sample *how, const struct tensor_view *x,
                const struct tensor_view *grid, const struct tensor_view *y)
{
    int64_t images = x->shape.dim[0], channels = x->shape.dim[1];
    int64_t positions = ref_extent(&grid->shape, 1, grid->shape.rank - 1);
    int64_t strides[SHAPE_MAX_RANK];
    struct ref_taps taps;
    shape_strides(&x->shape, strides);
    for (int64_t n = 0; n < images; n++)
        for (int64_t p = 0; p < positions; p++) {
            ref_sample_taps(how, &x->shape, grid, n * positions + p, &taps);
            for (int64_t c = 0; c < channels; c++) {
                double value = sum_taps(&taps, x, n * strides[0] + c * strides[1]);
                ref_write_f64(y->dtype, y->data, (n * channels + c) * positions + p, 1, 1, &value);
            }
        }
}
