/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpolation of any rank: each output element sums over the grid of taps that its dims' weights
 * span (1 tap a dim for nearest, 2 for linear, 4 for cubic, and with antialias as many more as the
 * dim shrinks). Dims that keep their size have one tap.
 */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/window.h"

enum { TAPS_MAX = 4 };

struct ratio {
    double out, in;
};

/* What one dim contributes to one output position. */
struct taps {
    int64_t n;
    int64_t *at;
    double *weight;
    bool outside;       /* IR_COORD_TF_CROP: beyond the input */
    struct ratio scale; /* of the dim, the same for all positions */
};

struct room {
    int64_t at[TAPS_MAX];
    double weight[TAPS_MAX];
};

/*
 * A scale that differs from out / in only by its own rounding is taken as out / in, because ties
 * are decided by it. Dims whose ratio is kept share the scale of the dim that decided it, and only
 * for that dim the scale is out / in.
 */
static struct ratio exact_scale(const struct ref_resize *how, uint32_t d, const struct shape *x,
                                const struct shape *y)
{
    for (uint32_t i = 0; i < x->rank; i++) {
        uint32_t of = (d + i) % x->rank; /* dim d itself first */
        double in = (double)x->dim[of], out = (double)y->dim[of];
        if (how->scales[of] == how->scales[d] && fabs(how->scales[d] * in - out) <= 1e-6 * out)
            return (struct ratio){out, in};
    }
    return (struct ratio){how->scales[d], 1};
}

/* n / scale, exact if possible: a result that is half way, or whole, must stay so. */
static double shrink(double n, struct ratio scale)
{
    return n * scale.in / scale.out;
}

/* The position in x that output position i of dim d stands for. */
static double source(const struct ref_resize *how, uint32_t d, struct ratio scale, int64_t i,
                     int64_t in, int64_t out)
{
    double at = (double)i;
    switch (how->coord) {
    case IR_COORD_HALF_PIXEL:
        return shrink(at + 0.5, scale) - 0.5;
    case IR_COORD_HALF_PIXEL_SYMMETRIC: /* the centres of x and y coincide */
        return ((double)in - shrink((double)out, scale)) / 2 + shrink(at + 0.5, scale) - 0.5;
    case IR_COORD_PYTORCH_HALF_PIXEL:
        return out > 1 ? shrink(at + 0.5, scale) - 0.5 : 0;
    case IR_COORD_ALIGN_CORNERS: /* the output has size scale * in, which need not be whole */
        return out > 1 ? at * (double)(in - 1) / (scale.out * (double)in / scale.in - 1) : 0;
    case IR_COORD_ASYMMETRIC:
        return shrink(at, scale);
    case IR_COORD_TF_HALF_PIXEL_NN:
        return shrink(at + 0.5, scale);
    case IR_COORD_TF_CROP: {
        double first = how->roi_start[d], last = how->roi_end[d], n = (double)(in - 1);
        return out > 1 ? first * n + at * (last - first) * n / (double)(out - 1)
                       : 0.5 * (first + last) * n;
    }
    }
    return 0;
}

static double nearest(enum ir_nearest how, double at)
{
    switch (how) {
    case IR_NEAREST_ROUND_PREFER_FLOOR:
        return ceil(at - 0.5);
    case IR_NEAREST_ROUND_PREFER_CEIL:
        return floor(at + 0.5);
    case IR_NEAREST_FLOOR:
        return floor(at);
    case IR_NEAREST_CEIL:
        return ceil(at);
    }
    return at;
}

/* The index at a position. NaN, which scales that do not fit the sizes may give, becomes 0. */
static int64_t clamp(double at, int64_t n)
{
    return !(at > 0) ? 0 : at > (double)(n - 1) ? n - 1 : (int64_t)at;
}

/* Keys' cubic convolution kernel at distance t. */
static double cubic(double a, double t)
{
    t = fabs(t);
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* Fills consecutive taps from `first` on, weighted by their distance from `at` under a filter that
 * is 1/scale times as wide as usual. A tap outside of x takes the edge's value, or has no part if
 * exclude_outside is set. */
static void filter_taps(const struct ref_resize *how, double at, double first, double scale,
                        int64_t in, struct taps *taps)
{
    double sum = 0;
    for (int64_t k = 0; k < taps->n; k++) {
        double p = first + (double)k, t = scale * (at - p);
        bool inside = p >= 0 && p <= (double)(in - 1);
        double weight =
            how->mode == IR_RESIZE_CUBIC ? cubic(how->cubic_a, t) : fmax(1 - fabs(t), 0);
        taps->at[k] = clamp(p, in);
        taps->weight[k] = !inside && how->exclude_outside ? 0 : weight;
        sum += taps->weight[k];
    }
    for (int64_t k = 0; k < taps->n && (how->exclude_outside || scale < 1) && sum != 0; k++)
        taps->weight[k] /= sum;
}

/* The number of taps on either side of a position. */
static int64_t reach(const struct ref_resize *how, double scale)
{
    int64_t one = how->mode == IR_RESIZE_CUBIC ? 2 : 1;
    return how->antialias && scale < 1 ? (int64_t)ceil((double)one / scale) : one;
}

static void taps_of(const struct ref_resize *how, uint32_t d, int64_t i, int64_t in, int64_t out,
                    struct taps *taps)
{
    taps->n = 1;
    taps->at[0] = i;
    taps->weight[0] = 1;
    taps->outside = false;
    if (in == out && how->scales[d] == 1 && how->coord != IR_COORD_TF_CROP)
        return;
    double at = source(how, d, taps->scale, i, in, out), scale = 1;
    if (how->coord == IR_COORD_TF_CROP)
        taps->outside = at < 0 || at > (double)(in - 1);
    if (how->mode == IR_RESIZE_NEAREST) {
        taps->at[0] = clamp(nearest(how->nearest, at), in);
        return;
    }
    if (how->antialias)
        scale = fmin(taps->scale.out / taps->scale.in, 1);
    int64_t side = reach(how, scale);
    taps->n = 2 * side;
    filter_taps(how, at, floor(at) - (double)side + 1, scale, in, taps);
}

static double sum_taps(const struct tensor_view *x, const int64_t *strides,
                       const struct taps taps[SHAPE_MAX_RANK])
{
    int64_t k[SHAPE_MAX_RANK] = {0}, dims[SHAPE_MAX_RANK];
    double sum = 0;
    for (uint32_t d = 0; d < x->shape.rank; d++)
        dims[d] = taps[d].n;
    do {
        int64_t at = 0;
        double weight = 1;
        for (uint32_t d = 0; d < x->shape.rank; d++) {
            at += taps[d].at[k[d]] * strides[d];
            weight *= taps[d].weight[k[d]];
        }
        if (weight != 0) /* an infinity times 0 would be NaN */
            sum += weight * ref_get_f64(x->dtype, x->data, at);
    } while (ref_window_next(x->shape.rank, dims, k));
    return sum;
}

/* The most taps that a dim can have. exact_scale changes a scale by a millionth at most. */
static int64_t most_taps(const struct ref_resize *how, uint32_t d)
{
    return 2 * reach(how, how->scales[d] * (1 - 2e-6)) + 2;
}

int64_t ref_resize_most_taps(const struct ref_resize *how, uint32_t d)
{
    return how->antialias ? most_taps(how, d) : TAPS_MAX;
}

int64_t ref_resize_taps(const struct ref_resize *how, uint32_t d, int64_t i, const struct shape *x,
                        const struct shape *y, int64_t *at, double *weight)
{
    struct taps taps = {.at = at, .weight = weight, .scale = exact_scale(how, d, x, y)};
    taps_of(how, d, i, x->dim[d], y->dim[d], &taps);
    return taps.n;
}

size_t ref_resize_scratch(const struct ref_resize *how, uint32_t rank)
{
    size_t taps = 0;
    for (uint32_t d = 0; d < rank && how->antialias; d++)
        taps += (size_t)most_taps(how, d);
    return taps * (sizeof(int64_t) + sizeof(double));
}

static void taps_init(const struct ref_resize *how, const struct shape *x, const struct shape *y,
                      void *scratch, struct room *rooms, struct taps *taps)
{
    char *at = scratch;
    for (uint32_t d = 0; d < x->rank; d++) {
        taps[d] = (struct taps){
            .at = rooms[d].at, .weight = rooms[d].weight, .scale = exact_scale(how, d, x, y)};
        if (!how->antialias)
            continue;
        size_t n = (size_t)most_taps(how, d);
        taps[d].at = (int64_t *)(void *)at;
        taps[d].weight = (double *)(void *)(at + n * sizeof(int64_t));
        at += n * (sizeof(int64_t) + sizeof(double));
    }
}

void ref_resize(const struct ref_resize *how, const struct tensor_view *x,
                const struct tensor_view *y, void *scratch)
{
    uint32_t rank = x->shape.rank;
    int64_t strides[SHAPE_MAX_RANK], o[SHAPE_MAX_RANK] = {0}, to = 0;
    struct room rooms[SHAPE_MAX_RANK];
    struct taps taps[SHAPE_MAX_RANK];
    if (ref_extent(&y->shape, 0, rank) == 0)
        return;
    shape_strides(&x->shape, strides);
    taps_init(how, &x->shape, &y->shape, scratch, rooms, taps);
    for (uint32_t d = 0; d < rank; d++)
        taps_of(how, d, 0, x->shape.dim[d], y->shape.dim[d], &taps[d]);
    bool more;
    do {
        bool outside = false;
        for (uint32_t d = 0; d < rank; d++)
            outside |= taps[d].outside;
        double value = outside ? how->value : sum_taps(x, strides, taps);
        ref_write_f64(y->dtype, y->data, to++, 1, 1, &value);
        more = ref_window_next(rank, y->shape.dim, o);
        /* Only the dims that moved have new taps: the last dim, and after a carry the dims before
         * it. */
        for (uint32_t d = rank; more && d-- > 0;) {
            taps_of(how, d, o[d], x->shape.dim[d], y->shape.dim[d], &taps[d]);
            if (o[d] != 0)
                break;
        }
    } while (more);
}
