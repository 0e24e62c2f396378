/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpolation: RESIZE in all its modes, over up to three dims that change; the other dims keep
 * their size, and batch and channels are among them.
 *
 *   resize_vector   16 bytes of neighbours in a dim that keeps its size (channels of channels-last,
 *                   or a row) from 2 taps in each of two dims, unrolled
 *   resize_row      4 neighbours in a dim that changes (the width of plain images) from 2 taps in
 *                   each of two dims; what these taps are is found once for several images
 *   resize_any      any mode and any strides: nearest, linear, cubic, antialias, cropping
 *   resize_words    nearest without an epilogue: words of any type are moved
 *   resize_row_words  the same for 4 neighbours in a dim that changes
 *
 * Where a position of x falls decides ties, so it is a fraction of whole numbers wherever it is one
 * (then no rounding takes part), and otherwise a double that is computed as in the reference.
 *
 * Refused: more than three dims that change, types other than F16, BF16, F32 where numbers are
 * computed, more than 2^31 elements.
 */
#include <math.h>

#include "kernels/cuda/epilogue.cuh"

namespace
{

enum { THREADS = 256, AXES = 3, ROW = 4, PLANES_MAX = 16 };

/* A dim that changes. Position i of y is (i * times + plus) / by - minus of x if `whole` is set,
 * else base + (i + half) * factor * extent / divisor + offset. */
struct axis {
    int32_t in, stride; /* of x */
    bool whole, crop;   /* crop: positions outside of x give `value` */
    int32_t times, plus, minus;
    struct divider by;
    int32_t side; /* taps on either side */
    float scale;  /* of the filter; 1, or less if it is widened */
    double base, half, factor, extent, divisor, offset;
};

/* y's dims in the order of its memory, outermost first. */
struct dim {
    struct divider n;
    int32_t x, y; /* strides; x: 0 if the dim changes */
    int32_t axis; /* -1: it keeps its size */
};

struct job {
    const void *x;
    void *y;
    int32_t rank, n_axes;
    uint32_t total;
    enum ir_resize mode;
    enum ir_nearest nearest;
    bool exclude, divide; /* divide: by the sum of all weights */
    float cubic, value;
    struct dim dim[KERNEL_RANK_MAX];
    struct axis axis[AXES];
};

/* --- positions --- */

/* A position of x: low + part, 0 <= part < 1. `tie`: part against a half, -1, 0 or 1. */
struct place {
    int32_t low, tie;
    bool outside;
    float part;
};

__device__ __forceinline__ struct place place_whole(const struct axis &a, int32_t i)
{
    struct place p;
    uint32_t rest, q = divider_split(a.by, (uint32_t)(i * a.times + a.plus), &rest);
    uint32_t left = a.by.by - rest; /* to the next whole position */
    p.low = (int32_t)q - a.minus;
    p.part = (float)rest / (float)a.by.by;
    p.tie = rest > left ? 1 : rest == left ? 0 : -1;
    p.outside = false;
    return p;
}

__device__ __noinline__ struct place place_real(const struct axis &a, int32_t i)
{
    struct place p;
    double at = __dmul_rn(__dmul_rn(__dadd_rn((double)i, a.half), a.factor), a.extent) / a.divisor;
    at = __dadd_rn(__dadd_rn(a.base, at), a.offset);
    p.outside = a.crop && (at < 0 || at > (double)(a.in - 1));
    /* Positions this far outside have the edge's value in all of their taps. */
    at = at < -(1 << 29) ? -(1 << 29) : at > 1 << 30 ? 1 << 30 : at;
    double low = floor(at), part = at - low;
    p.low = (int32_t)low;
    p.part = (float)part;
    p.tie = part > 0.5 ? 1 : part == 0.5 ? 0 : -1;
    return p;
}

__device__ __forceinline__ struct place place_of(const struct axis &a, int32_t i)
{
    return a.whole ? place_whole(a, i) : place_real(a, i);
}

__device__ __forceinline__ int32_t clamp(int32_t at, int32_t n)
{
    return min(max(at, 0), n - 1);
}

/* The only tap of nearest. */
__device__ __forceinline__ int32_t nearest_of(enum ir_nearest how, const struct axis &a,
                                              const struct place &p)
{
    bool up = how == IR_NEAREST_ROUND_PREFER_FLOOR  ? p.tie > 0
              : how == IR_NEAREST_ROUND_PREFER_CEIL ? p.tie >= 0
              : how == IR_NEAREST_CEIL              ? p.part > 0
                                                    : false;
    return clamp(p.low + up, a.in);
}

/* The two taps of linear: offsets in x and weights. A dim that does not exist has one tap. */
struct pair {
    int32_t at[2];
    float weight[2];
};

__device__ __forceinline__ struct pair pair_of(const struct job &j, int k, int32_t i)
{
    struct pair taps = {{0, 0}, {1, 0}};
    if (k >= j.n_axes)
        return taps;
    const struct axis &a = j.axis[k];
    struct place p = place_of(a, i);
    taps.at[0] = clamp(p.low, a.in) * a.stride;
    taps.at[1] = clamp(p.low + 1, a.in) * a.stride;
    taps.weight[0] = 1 - p.part;
    taps.weight[1] = p.part;
    return taps;
}

/* Takes an index apart: offsets in x and y of the dims that keep their size, and positions along
 * the others. */
struct spot {
    int32_t x, y, at[AXES];
};

__device__ __forceinline__ struct spot spot_of(const struct job &j, uint32_t i)
{
    struct spot s = {0, 0, {0, 0, 0}};
    for (int d = j.rank - 1; d >= 0; d--) {
        uint32_t index;
        i = divider_split(j.dim[d].n, i, &index);
        s.x += (int32_t)index * j.dim[d].x;
        s.y += (int32_t)index * j.dim[d].y;
#pragma unroll
        for (int k = 0; k < AXES; k++)
            s.at[k] = j.dim[d].axis == k ? (int32_t)index : s.at[k];
    }
    return s;
}

template <class T, int N>
__device__ __forceinline__ void store(const struct job &j, const struct epilogue &e, int32_t to,
                                      float (&v)[N])
{
    if (e.n)
        epilogue_apply<EPILOGUE_ANY, N>(e, v, (uint32_t)to);
    vector_write<N>(static_cast<T *>(j.y) + to, v);
}

/* --- two taps in two dims --- */

/* j.total counts vectors. A tap of weight 0 has no part: an infinity times 0 would be NaN. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    resize_vector(const __grid_constant__ struct job j, const __grid_constant__ struct epilogue e)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.total)
        return;
    struct spot s = spot_of(j, i);
    struct pair a = pair_of(j, 0, s.at[0]), b = pair_of(j, 1, s.at[1]);
    const T *x = static_cast<const T *>(j.x) + s.x;
    vector<T, N> raw[4];
    float v[N] = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
        raw[k] = vector_load<T, N>(x + a.at[k / 2] + b.at[k % 2]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float weight = a.weight[k / 2] * b.weight[k % 2];
        if (weight != 0)
#pragma unroll
            for (int c = 0; c < N; c++)
                v[c] += weight * number_float(raw[k].v[c]);
    }
    store<T, N>(j, e, s.y, v);
}

/* The planes are the dims of `planes`, which keep their size; j has the other dims, of which the
 * last one counts ROWs. */
struct planes {
    int32_t rank, each; /* planes of a thread */
    uint32_t n;
    struct dim dim[KERNEL_RANK_MAX];
};

__device__ __forceinline__ void plane_of(const struct planes &p, uint32_t plane, int32_t *x,
                                         int32_t *y)
{
    for (int d = p.rank - 1; d >= 0; d--) {
        uint32_t index;
        plane = divider_split(p.dim[d].n, plane, &index);
        *x += (int32_t)index * p.dim[d].x;
        *y += (int32_t)index * p.dim[d].y;
    }
}

/* The axis along the row is the last one. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    resize_row(const __grid_constant__ struct job j, const __grid_constant__ struct planes p,
               const __grid_constant__ struct epilogue e)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, plane = blockIdx.y * (uint32_t)p.each;
    if (i >= j.total)
        return;
    struct spot s = spot_of(j, i);
    struct pair a = {{0, 0}, {1, 0}}, b[ROW];
    bool two = j.n_axes > 1;
    if (two)
        a = pair_of(j, 0, s.at[0]);
#pragma unroll
    for (int r = 0; r < ROW; r++)
        b[r] = pair_of(j, two ? 1 : 0, (two ? s.at[1] : s.at[0]) * ROW + r);
    uint32_t end = min(plane + (uint32_t)p.each, p.n);
#pragma unroll 1
    for (; plane < end; plane++) {
        int32_t from = s.x, to = s.y;
        plane_of(p, plane, &from, &to);
        const T *x = static_cast<const T *>(j.x) + from;
        float v[ROW];
#pragma unroll
        for (int r = 0; r < ROW; r++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float weight = a.weight[k / 2] * b[r].weight[k % 2];
                float at = number_float(x[a.at[k / 2] + b[r].at[k % 2]]);
                sum += weight != 0 ? weight * at : 0;
            }
            v[r] = sum;
        }
        store<T, ROW>(j, e, to, v);
    }
}

/* --- any taps --- */

/* Keys' cubic convolution kernel, or a triangle, at distance t. */
__device__ __forceinline__ float filter_of(const struct job &j, float t)
{
    float a = j.cubic;
    t = fabsf(t);
    if (j.mode != IR_RESIZE_CUBIC)
        return fmaxf(1 - t, 0);
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* The taps of one dim: so many from `first` on. */
struct taps {
    int32_t n, first;
    float ahead, factor; /* of tap 0 from the position; of all weights */
    bool outside;
};

/* A tap outside of x takes the edge's value, or has no part if `exclude` is set. */
__device__ __forceinline__ float weight_of(const struct job &j, int k, const struct taps &t,
                                           int32_t tap)
{
    if (k >= j.n_axes || j.mode == IR_RESIZE_NEAREST)
        return 1;
    const struct axis &a = j.axis[k];
    int32_t at = t.first + tap;
    if (j.exclude && (at < 0 || at >= a.in))
        return 0;
    return filter_of(j, a.scale * (t.ahead - (float)tap)) * t.factor;
}

__device__ __forceinline__ int32_t offset_of(const struct job &j, int k, const struct taps &t,
                                             int32_t tap)
{
    return k < j.n_axes ? clamp(t.first + tap, j.axis[k].in) * j.axis[k].stride : 0;
}

__device__ __forceinline__ struct taps taps_of(const struct job &j, int k, int32_t i)
{
    struct taps t = {1, 0, 0, 1, false};
    if (k >= j.n_axes)
        return t;
    const struct axis &a = j.axis[k];
    struct place p = place_of(a, i);
    t.outside = p.outside;
    if (j.mode == IR_RESIZE_NEAREST) {
        t.first = nearest_of(j.nearest, a, p);
        return t;
    }
    t.n = 2 * a.side;
    t.first = p.low - a.side + 1;
    t.ahead = p.part + (float)(a.side - 1);
    float sum = 0;
    for (int32_t tap = 0; (j.exclude || a.scale < 1) && tap < t.n; tap++)
        sum += weight_of(j, k, t, tap);
    t.factor = sum != 0 ? 1 / sum : 1;
    return t;
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    resize_any(const __grid_constant__ struct job j, const __grid_constant__ struct epilogue e)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.total)
        return;
    struct spot s = spot_of(j, i);
    struct taps a = taps_of(j, 0, s.at[0]), b = taps_of(j, 1, s.at[1]), c = taps_of(j, 2, s.at[2]);
    bool outside = a.outside || b.outside || c.outside;
    const T *x = static_cast<const T *>(j.x) + s.x;
    float v[N] = {};
    for (int32_t ta = 0; !outside && ta < a.n; ta++) {
        float wa = weight_of(j, 0, a, ta);
        const T *xa = x + offset_of(j, 0, a, ta);
        for (int32_t tb = 0; tb < b.n; tb++) {
            float wb = wa * weight_of(j, 1, b, tb);
            const T *xb = xa + offset_of(j, 1, b, tb);
            for (int32_t tc = 0; tc < c.n; tc++) {
                float weight = wb * weight_of(j, 2, c, tc), at[N];
                if (weight == 0)
                    continue;
                vector_read<N>(xb + offset_of(j, 2, c, tc), at);
#pragma unroll
                for (int n = 0; n < N; n++)
                    v[n] += weight * at[n];
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
        v[n] = outside ? j.value : v[n];
    store<T, N>(j, e, s.y, v);
}

/* --- nearest as a copy --- */

__device__ __forceinline__ int32_t nearest_all(const struct job &j, const struct spot &s)
{
    int32_t from = s.x;
#pragma unroll
    for (int k = 0; k < AXES; k++)
        if (k < j.n_axes)
            from +=
                nearest_of(j.nearest, j.axis[k], place_of(j.axis[k], s.at[k])) * j.axis[k].stride;
    return from;
}

/* Offsets are in elements of `size` bytes. */
template <class W>
__global__ void __launch_bounds__(THREADS)
    resize_words(const __grid_constant__ struct job j, int32_t size)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.total)
        return;
    struct spot s = spot_of(j, i);
    int64_t from = nearest_all(j, s);
    *reinterpret_cast<W *>(static_cast<char *>(j.y) + (int64_t)s.y * size) =
        *reinterpret_cast<const W *>(static_cast<const char *>(j.x) + from * size);
}

template <class W>
__global__ void __launch_bounds__(THREADS)
    resize_row_words(const __grid_constant__ struct job j, const __grid_constant__ struct planes p)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, plane = blockIdx.y * (uint32_t)p.each;
    if (i >= j.total)
        return;
    struct spot s = spot_of(j, i);
    int32_t at[ROW];
#pragma unroll
    for (int r = 0; r < ROW; r++) {
        struct spot one = s;
#pragma unroll
        for (int k = 0; k < AXES; k++) /* `at` stays in registers */
            one.at[k] = k == j.n_axes - 1 ? s.at[k] * ROW + r : s.at[k];
        at[r] = nearest_all(j, one);
    }
    uint32_t end = min(plane + (uint32_t)p.each, p.n);
#pragma unroll 1
    for (; plane < end; plane++) {
        int32_t from = 0, to = s.y;
        plane_of(p, plane, &from, &to);
        vector<W, ROW> word;
#pragma unroll
        for (int r = 0; r < ROW; r++)
            word.v[r] = static_cast<const W *>(j.x)[from + at[r]];
        vector_store<W, ROW>(static_cast<W *>(j.y) + to, word);
    }
}

/* --- launching: the axes --- */

/* A scale as a ratio of sizes where it is one; see ref_resize. */
struct ratio {
    double out, in;
};

struct ratio ratio_of(const struct kernel_resize *how, int d, const struct kernel_view *x,
                      const struct kernel_view *y)
{
    for (int i = 0; i < x->rank; i++) {
        int of = (d + i) % x->rank;
        double in = (double)x->dim[of], out = (double)y->dim[of];
        if (how->scales[of] == how->scales[d] && fabs(how->scales[d] * in - out) <= 1e-6 * out)
            return {out, in};
    }
    return {how->scales[d], 1};
}

/* Position i is (i * times + plus) / by. False: these numbers are too large, or no whole ones. */
bool axis_whole(double times, double plus, double by, int64_t out, struct axis *a)
{
    const double most = 1 << 30;
    if (times != floor(times) || plus != floor(plus) || by != floor(by) || by < 1 || times < 0)
        return false;
    double minus = plus < 0 ? ceil(-plus / by) : 0;
    plus += minus * by;
    if ((double)out * times + plus > most || by > most || minus > most)
        return false;
    a->whole = true;
    a->times = (int32_t)times;
    a->plus = (int32_t)plus;
    a->minus = (int32_t)minus;
    a->by = divider_make((uint32_t)by);
    return true;
}

/* Position i is the one that struct axis gives. */
void axis_real(double half, double factor, double extent, double divisor, double offset,
               struct axis *a)
{
    a->half = half;
    a->factor = factor;
    a->extent = extent;
    a->divisor = divisor;
    a->offset = offset;
}

/* The positions are those of the reference. */
void axis_place(const struct kernel_resize *how, int d, struct ratio s, double in, int64_t n,
                struct axis *a)
{
    double out = (double)n, aligned = s.out * in / s.in - 1, first = how->roi_start[d];
    double last = how->roi_end[d];
    axis_real(0, 0, 0, 1, 0, a);
    switch (how->coord) {
    case IR_COORD_PYTORCH_HALF_PIXEL:
    case IR_COORD_HALF_PIXEL:
    case IR_COORD_HALF_PIXEL_SYMMETRIC:
        if (how->coord == IR_COORD_PYTORCH_HALF_PIXEL && n <= 1)
            return;
        if (how->coord == IR_COORD_HALF_PIXEL_SYMMETRIC)
            a->base = (in - out * s.in / s.out) / 2;
        axis_real(0.5, s.in, 1, s.out, -0.5, a);
        if (a->base == 0)
            axis_whole(2 * s.in, s.in - s.out, 2 * s.out, n, a);
        return;
    case IR_COORD_ALIGN_CORNERS:
        if (n <= 1)
            return;
        axis_real(0, in - 1, 1, aligned, 0, a);
        axis_whole(in - 1, 0, aligned, n, a);
        return;
    case IR_COORD_ASYMMETRIC:
        axis_real(0, s.in, 1, s.out, 0, a);
        axis_whole(s.in, 0, s.out, n, a);
        return;
    case IR_COORD_TF_HALF_PIXEL_NN:
        axis_real(0.5, s.in, 1, s.out, 0, a);
        axis_whole(2 * s.in, s.in, 2 * s.out, n, a);
        return;
    case IR_COORD_TF_CROP:
        a->crop = true;
        a->base = n > 1 ? first * (in - 1) : 0.5 * (first + last) * (in - 1);
        if (n > 1)
            axis_real(0, last - first, in - 1, out - 1, 0, a);
    }
}

/* False: the filter is too wide, or a scale does not fit the sizes at all. */
bool axis_make(const struct kernel_resize *how, int d, const struct kernel_view *x,
               const struct kernel_view *y, struct axis *a)
{
    struct ratio s = ratio_of(how, d, x, y);
    double one = how->mode == IR_RESIZE_CUBIC ? 2 : 1, scale = s.out / s.in;
    bool wide = how->antialias && how->mode != IR_RESIZE_NEAREST && scale < 1;
    *a = axis();
    a->in = (int32_t)x->dim[d];
    a->stride = (int32_t)x->stride[d];
    a->scale = wide ? (float)scale : 1.0f;
    axis_place(how, d, s, (double)x->dim[d], y->dim[d], a);
    double side = wide ? ceil(one / scale) : one;
    double end = a->base + (double)y->dim[d] * a->factor * a->extent / a->divisor;
    if (!(side <= 1 << 20) || !isfinite(end))
        return false;
    a->side = (int32_t)side;
    return true;
}

/* Whether every position of the dim is one of x, the same one. */
bool keeps(const struct kernel_resize *how, int d, const struct kernel_view *x,
           const struct kernel_view *y)
{
    bool all = how->coord != IR_COORD_TF_CROP || (how->roi_start[d] == 0 && how->roi_end[d] == 1);
    return x->dim[d] == y->dim[d] && all && how->scales[d] == 1;
}

/* --- launching: the dims --- */

/* Adds a dim inside of those that are there; it is merged with the last one if both keep their
 * size and lie so. */
void dim_add(struct job *j, uint32_t n, int32_t x, int32_t y, int32_t axis)
{
    struct dim *last = j->rank ? &j->dim[j->rank - 1] : nullptr;
    if (axis < 0 && n == 1)
        return;
    if (last && axis < 0 && last->axis < 0 && last->x == x * (int32_t)n &&
        last->y == y * (int32_t)n) {
        *last = {divider_make(last->n.by * n), x, y, -1};
        return;
    }
    j->dim[j->rank++] = {divider_make(n), x, y, axis};
}

bool job_make(const struct kernel_resize *how, const struct kernel_view *x,
              const struct kernel_view *y, struct job *j)
{
    const int64_t limit = INT64_C(1) << 31;
    int order[KERNEL_RANK_MAX];
    *j = job();
    if (x->rank != y->rank || x->rank > KERNEL_RANK_MAX || x->dtype != y->dtype ||
        kernel_span(x) >= limit || kernel_span(y) >= limit || kernel_elements(y) >= limit)
        return false;
    for (int i = 0; i < y->rank; i++) {
        int at = i;
        if (x->dim[i] < 1 || x->dim[i] > 1 << 30)
            return false;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < y->rank; i++) {
        int d = order[i], axis = keeps(how, d, x, y) ? -1 : j->n_axes;
        if (axis == AXES || (axis >= 0 && !axis_make(how, d, x, y, &j->axis[axis])))
            return false;
        j->n_axes += axis >= 0;
        dim_add(j, (uint32_t)y->dim[d], axis < 0 ? (int32_t)x->stride[d] : 0, (int32_t)y->stride[d],
                axis);
    }
    j->x = x->data;
    j->y = y->data;
    j->total = (uint32_t)kernel_elements(y);
    j->mode = how->mode;
    j->nearest = how->nearest;
    j->exclude = how->exclude_outside;
    j->cubic = how->cubic_a;
    j->value = how->value;
    return true;
}

/* Whether y, and x if it is read so, can be taken n innermost neighbours at a time. */
bool is_wide(const struct job *j, int n, int size)
{
    if (j->rank == 0)
        return false;
    const struct dim *last = &j->dim[j->rank - 1];
    uintptr_t word = (uintptr_t)(n * size), data = (uintptr_t)j->y;
    bool keep = last->axis < 0;
    if (last->y != 1 || last->n.by % (uint32_t)n || (keep && last->x != 1))
        return false;
    for (int d = 0; d < j->rank - 1; d++)
        if (j->dim[d].y % n || (keep && j->dim[d].x % n))
            return false;
    for (int k = 0; keep && k < j->n_axes; k++)
        if (j->axis[k].stride % n)
            return false;
    data |= keep ? (uintptr_t)j->x : 0;
    return data % (word < 16 ? word : 16) == 0;
}

/* Makes every index one of n innermost neighbours. */
void widen(struct job *j, int n)
{
    if (n == 1)
        return;
    struct dim *last = &j->dim[j->rank - 1];
    last->n = divider_make(last->n.by / (uint32_t)n);
    last->y *= n;
    last->x *= n;
    j->total /= (uint32_t)n;
}

/* Whether neighbours in y lie along a dim that changes. */
bool is_row(const struct job *j)
{
    return j->n_axes > 0 && j->rank > 0 && j->dim[j->rank - 1].axis >= 0;
}

/* Splits the dims that keep their size from j, whose last dim already counts ROWs. */
struct planes planes_make(const struct kernel_call *call, struct job *j)
{
    struct planes p = {0, 1, 1, {}};
    struct job rest = *j;
    rest.rank = 0;
    for (int d = 0; d < j->rank; d++)
        if (j->dim[d].axis < 0) {
            p.n *= j->dim[d].n.by;
            p.dim[p.rank++] = j->dim[d];
        } else {
            rest.dim[rest.rank++] = j->dim[d];
        }
    rest.total /= p.n;
    *j = rest;
    int64_t threads = (int64_t)kernel_multiprocessors(call) * 4096;
    int64_t each = (int64_t)j->total * p.n / threads;
    p.each = (int32_t)(each < 1 ? 1 : each > PLANES_MAX ? (int64_t)PLANES_MAX : each);
    while (kernel_ceil_div(p.n, p.each) > 65535)
        p.each *= 2;
    return p;
}

dim3 plane_grid(const struct job *j, const struct planes *p)
{
    return dim3((unsigned)kernel_ceil_div(j->total, THREADS),
                (unsigned)kernel_ceil_div(p->n, p->each));
}

unsigned grid_of(const struct job *j)
{
    return (unsigned)kernel_ceil_div(j->total, THREADS);
}

/* --- launching: the kernels --- */

template <class W>
cudaError_t launch_words(const struct kernel_call *call, struct job *j, int n, int size)
{
    widen(j, n);
    return KERNEL_LAUNCH(resize_words<W>, grid_of(j), THREADS, 0, call, *j, size);
}

template <class W> cudaError_t launch_row_words(const struct kernel_call *call, struct job *j)
{
    widen(j, ROW);
    struct planes p = planes_make(call, j);
    return KERNEL_LAUNCH(resize_row_words<W>, plane_grid(j, &p), THREADS, 0, call, *j, p);
}

cudaError_t launch_nearest(const struct kernel_call *call, struct job *j, int size)
{
    if (is_row(j) && size <= 4 && is_wide(j, ROW, size))
        return size == 1   ? launch_row_words<uint8_t>(call, j)
               : size == 2 ? launch_row_words<uint16_t>(call, j)
                           : launch_row_words<uint32_t>(call, j);
    int n = is_row(j) || j->rank == 0 ? 1 : 16 / size;
    while (n > 1 && !is_wide(j, n, size))
        n /= 2;
    switch (n * size) {
    case 1:
        return launch_words<uint8_t>(call, j, n, size);
    case 2:
        return launch_words<uint16_t>(call, j, n, size);
    case 4:
        return launch_words<uint32_t>(call, j, n, size);
    case 8:
        return launch_words<uint2>(call, j, n, size);
    case 16:
        return launch_words<uint4>(call, j, n, size);
    default:
        return cudaErrorNotSupported;
    }
}

template <class T>
cudaError_t launch_floats(const struct kernel_call *call, struct job *j, const struct epilogue &e)
{
    constexpr int N = 16 / sizeof(T);
    bool crop = false;
    for (int k = 0; k < j->n_axes; k++)
        crop = crop || j->axis[k].crop;
    bool wide = !is_row(j) && is_wide(j, N, sizeof(T));
    bool plain = j->mode == IR_RESIZE_LINEAR && j->n_axes <= 2 && !j->exclude && !crop;
    for (int k = 0; k < j->n_axes; k++)
        plain = plain && j->axis[k].side == 1;
    if (plain && is_row(j) && is_wide(j, ROW, sizeof(T))) {
        widen(j, ROW);
        struct planes p = planes_make(call, j);
        return KERNEL_LAUNCH(resize_row<T>, plane_grid(j, &p), THREADS, 0, call, *j, p, e);
    }
    if (wide)
        widen(j, N);
    if (plain && wide)
        return KERNEL_LAUNCH((resize_vector<T, N>), grid_of(j), THREADS, 0, call, *j, e);
    if (wide)
        return KERNEL_LAUNCH((resize_any<T, N>), grid_of(j), THREADS, 0, call, *j, e);
    return KERNEL_LAUNCH((resize_any<T, 1>), grid_of(j), THREADS, 0, call, *j, e);
}

} // namespace

extern "C" cudaError_t kernel_resize(const struct kernel_call *call,
                                     const struct kernel_resize *how, const struct kernel_view *x,
                                     const struct kernel_view *y,
                                     const struct kernel_epilogue *epilogue)
{
    struct job j;
    struct epilogue e;
    int size = number_size(y->dtype);
    if (size == 0 || !epilogue_make(epilogue, y, &e))
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    if (!job_make(how, x, y, &j))
        return cudaErrorNotSupported;
    if (how->mode == IR_RESIZE_NEAREST && e.n == 0 && how->coord != IR_COORD_TF_CROP)
        return launch_nearest(call, &j, size);
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_floats<half_t>(call, &j, e);
    case DTYPE_BF16:
        return launch_floats<bf16_t>(call, &j, e);
    case DTYPE_F32:
        return launch_floats<float>(call, &j, e);
    default:
        return cudaErrorNotSupported;
    }
}
