/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading images at places that tensors name: SAMPLE (a place for each output position) and
 * ROI_POOL (regions that are cut into bins).
 *
 * A thread takes 16 bytes of channels of one output position of channels-last images. In other
 * layouts neighbouring threads have neighbouring positions, and each walks over some channels, so
 * that what it found out about its position serves all of them. Places come from peers and may be
 * anything: they are folded into the image as doubles, as in the reference, and only then become
 * indices.
 *
 * Refused: more than three spatial dims, types other than F16, BF16, F32, more than 2^31 elements.
 */
#include <math.h>

#include "kernels/cuda/device.cuh"

namespace
{

enum { THREADS = 128, DIMS = 3, TAPS = 4, CHANNELS = 16 /* that a thread walks over at most */ };

/* x and y as images of three spatial dims; absent ones come first and have one element. */
struct images {
    const void *x;
    void *y;
    int32_t channels, in[DIMS];
    int32_t x_n, x_c, x_s[DIMS], y_n, y_c, y_s[DIMS]; /* strides */
    /* The grid's index: chunks of channels inside of positions if `last` is set, else outside. */
    uint32_t total;
    struct divider chunks, out[DIMS];
    int32_t chunk; /* channels of a thread */
    bool last;
};

struct spot {
    int32_t n, channel, at[DIMS];
};

__device__ __forceinline__ struct spot spot_of(const struct images &m, uint32_t i)
{
    struct spot s;
    uint32_t chunk = 0, index[DIMS];
    if (m.last)
        i = divider_split(m.chunks, i, &chunk);
#pragma unroll
    for (int d = DIMS - 1; d >= 0; d--) {
        i = divider_split(m.out[d], i, &index[d]);
        s.at[d] = (int32_t)index[d];
    }
    if (!m.last)
        i = divider_split(m.chunks, i, &chunk);
    s.n = (int32_t)i;
    s.channel = (int32_t)chunk * m.chunk;
    return s;
}

__device__ __forceinline__ int32_t to_of(const struct images &m, const struct spot &s)
{
    int32_t to = s.n * m.y_n;
#pragma unroll
    for (int d = 0; d < DIMS; d++)
        to += s.at[d] * m.y_s[d];
    return to;
}

/* --- SAMPLE --- */

struct sample_job {
    struct images m;
    const void *grid; /* [N,o..,dims], dense */
    int32_t grid_type, dims;
    enum ir_resize mode;
    enum ir_border border;
    enum ir_sample coord;
};

/* What one dim contributes: offsets and weights. A tap that falls outside has weight 0. */
struct taps {
    int32_t n, at[TAPS];
    float weight[TAPS];
};

__device__ double fold_in(const struct sample_job &j, double at, int32_t n)
{
    double edge = j.coord == IR_SAMPLE_ALIGN_CORNERS ? 0 : -0.5, last = (double)(n - 1);
    if (j.border == IR_BORDER_ZEROS || (at >= edge && at <= last - edge))
        return at;
    if (j.border == IR_BORDER_EDGE)
        return at < 0 ? 0 : at > last ? last : at;
    double range = last - 2 * edge, beyond = fmod(fabs(at - edge), 2 * range);
    return edge + (beyond > range ? 2 * range - beyond : beyond);
}

__device__ __forceinline__ float cubic(float t)
{
    const float a = -0.75f;
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
}

__device__ __noinline__ void taps_of(const struct sample_job &j, int d, double coordinate,
                                     struct taps *t)
{
    int32_t n = j.m.in[d], first = j.mode == IR_RESIZE_CUBIC ? -1 : 0;
    double at = j.coord == IR_SAMPLE_HALF_PIXEL      ? ((coordinate + 1) * (double)n - 1) / 2
                : j.coord == IR_SAMPLE_ALIGN_CORNERS ? (coordinate + 1) / 2 * (double)(n - 1)
                                                     : coordinate;
    if (j.mode == IR_RESIZE_NEAREST)
        at = rint(at);
    at = fold_in(j, at, n);
    double low = floor(at);
    float part = (float)(at - low);
    t->n = j.mode == IR_RESIZE_CUBIC ? 4 : j.mode == IR_RESIZE_LINEAR ? 2 : 1;
    if (!(fabs(at) <= 1e300)) { /* NaN and infinity */
        t->n = 1;
        t->at[0] = 0;
        t->weight[0] = j.border != IR_BORDER_ZEROS;
        return;
    }
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
        double place = low + first + k, inside = fold_in(j, place, n);
        bool there = inside >= 0 && inside <= (double)(n - 1);
        float away = fabsf((float)(first + k) - part);
        int32_t index = there ? (int32_t)inside : inside > 0 ? n - 1 : 0;
        t->at[k] = index * j.m.x_s[d];
        t->weight[k] = j.mode == IR_RESIZE_NEAREST  ? 1.0f
                       : j.mode == IR_RESIZE_LINEAR ? 1.0f - away
                                                    : cubic(away);
        if (!there && j.border == IR_BORDER_ZEROS)
            t->weight[k] = 0;
    }
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS) sample(const __grid_constant__ struct sample_job j)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.m.total)
        return;
    struct spot s = spot_of(j.m, i);
    int64_t position = s.n;
    for (int d = 0; d < DIMS; d++)
        position = position * (int32_t)j.m.out[d].by + s.at[d];
    struct taps taps[DIMS];
    for (int d = 0; d < DIMS; d++) {
        taps[d].n = 1;
        taps[d].at[0] = 0;
        taps[d].weight[0] = 1;
        if (d >= DIMS - j.dims)
            taps_of(j, d, number_load(j.grid_type, j.grid, position * j.dims + (DIMS - 1 - d)),
                    &taps[d]);
    }
    int32_t end = min(s.channel + j.m.chunk, j.m.channels), to = to_of(j.m, s);
    for (int32_t c = s.channel; c < end; c += V) {
        const T *x = static_cast<const T *>(j.m.x) + (int64_t)s.n * j.m.x_n + c * j.m.x_c;
        float v[V] = {};
        for (int a = 0; a < taps[0].n; a++)
            for (int b = 0; b < taps[1].n; b++)
                for (int e = 0; e < taps[2].n; e++) {
                    float at[V];
                    float weight = taps[0].weight[a] * taps[1].weight[b] * taps[2].weight[e];
                    if (weight == 0) /* an infinity times 0 would be NaN */
                        continue;
                    vector_read<V>(x + taps[0].at[a] + taps[1].at[b] + taps[2].at[e], at);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        v[k] += weight * at[k];
                }
        vector_write<V>(static_cast<T *>(j.m.y) + to + c * j.m.y_c, v);
    }
}

/* --- ROI_POOL --- */

struct roi_job {
    struct images m;
    const void *rois, *batch;
    int32_t rois_type, batch_wide, images, samples;
    enum ir_roi func;
    bool half_pixel;
    double scale;
    int32_t *bad;
};

/* One dim of a region, and of one of its bins: the samples that may lie within the image are
 * first..last-1. */
struct side {
    double start, bin, samples;
    int64_t first, last;
    int32_t size, stride;
};

__device__ __forceinline__ double rounded(double v)
{
    return (double)(float)v;
}

__device__ __noinline__ struct side side_of(const struct roi_job &j, int d, double low, double high,
                                            int32_t bins, int32_t bin)
{
    struct side s;
    double offset = j.half_pixel ? 0.5 : 0, start = rounded(rounded(low * j.scale) - offset);
    double length = rounded(rounded(rounded(high * j.scale) - offset) - start);
    if (!j.half_pixel && !(length >= 1))
        length = 1;
    s.size = j.m.in[d];
    s.stride = j.m.x_s[d];
    s.bin = rounded(length / (double)bins);
    s.samples = j.samples ? (double)j.samples : ceil(s.bin);
    s.start = __dadd_rn(start, __dmul_rn((double)bin, s.bin));
    double all = s.samples > 0 ? s.samples : 0, step = s.bin / s.samples;
    s.first = s.last = 0;
    if (!(step > 0) || !isfinite(s.start)) {
        s.last = isfinite(s.start) && all <= 256 ? (int64_t)all : 0;
        return s;
    }
    double first = floor((-1 - s.start) / step) - 2;
    double last = ceil(((double)s.size - s.start) / step) + 2;
    if (fabs(first) <= 0x1p52 && fabs(last) <= 0x1p52) {
        s.first = (int64_t)fmax(first, 0.0);
        s.last = (int64_t)fmin(last, all);
    }
    return s;
}

/* The two pixels around a sample, as offsets, and the weight of the second. False: the sample is
 * outside. */
struct pair {
    int64_t low, high;
    float t;
};

__device__ __forceinline__ bool pair_of(const struct side &s, int64_t i, struct pair *p)
{
    double more = __dmul_rn((double)i + 0.5, s.bin) / s.samples, at = __dadd_rn(s.start, more);
    if (!(at >= -1 && at <= (double)s.size))
        return false;
    double clamped = at > 0 ? at : 0;
    int64_t low = (int64_t)clamped;
    bool end = low >= s.size - 1;
    low = end ? s.size - 1 : low;
    p->t = end ? 0.0f : (float)(clamped - (double)low);
    p->low = low * s.stride;
    p->high = (low + !end) * s.stride;
    return true;
}

template <class T, int V>
__device__ __forceinline__ void aligned_bin(const struct roi_job &j, const T *x,
                                            const struct side &sy, const struct side &sx,
                                            float (&v)[V])
{
    bool average = j.func == IR_ROI_AVERAGE;
    double n = 0, count = fmax(sy.samples, 0.0) * fmax(sx.samples, 0.0);
    struct pair py, px;
#pragma unroll
    for (int k = 0; k < V; k++)
        v[k] = average ? 0.0f : -INFINITY;
    for (int64_t iy = sy.first; iy < sy.last; iy++) {
        if (!pair_of(sy, iy, &py))
            continue;
        for (int64_t ix = sx.first; ix < sx.last; ix++) {
            if (!pair_of(sx, ix, &px))
                continue;
            n++;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                float at[V];
                float weight = (q / 2 ? py.t : 1 - py.t) * (q % 2 ? px.t : 1 - px.t);
                vector_read<V>(x + (q / 2 ? py.high : py.low) + (q % 2 ? px.high : px.low), at);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    float value = weight * at[k];
                    v[k] = average ? v[k] + value : !(v[k] >= value) ? value : v[k];
                }
            }
        }
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (average)
            v[k] = n > 0 ? (float)((double)v[k] / count) : 0.0f;
        else if (!(n > 0 && n >= count))
            v[k] = fmaxf(v[k], 0.0f);
}

/* Whole pixels low..high-1 of a bin. */
__device__ void pixels_of(double a, double b, int32_t bin, int32_t bins, int32_t size, int32_t *low,
                          int32_t *high)
{
    double length = b - a + 1 >= 1 ? b - a + 1 : 1, each = rounded(length / (double)bins);
    double first = floor(rounded((double)bin * each)) + a;
    double last = ceil(rounded((double)(bin + 1) * each)) + a;
    *low = first > 0 ? (int32_t)fmin(first, (double)size) : 0;
    *high = last > 0 ? (int32_t)fmin(last, (double)size) : 0;
}

template <class T, int V>
__device__ __forceinline__ void quantised_bin(const struct roi_job &j, const T *x,
                                              const float (&roi)[4], const struct spot &s,
                                              float (&v)[V])
{
    int32_t low[2], high[2];
    for (int d = 0; d < 2; d++)
        pixels_of(round(rounded(roi[1 - d] * j.scale)), round(rounded(roi[3 - d] * j.scale)),
                  s.at[d + 1], (int32_t)j.m.out[d + 1].by, j.m.in[d + 1], &low[d], &high[d]);
    bool empty = low[0] >= high[0] || low[1] >= high[1];
#pragma unroll
    for (int k = 0; k < V; k++)
        v[k] = empty ? 0.0f : -INFINITY;
    for (int32_t r = low[0]; r < high[0]; r++)
        for (int32_t c = low[1]; c < high[1]; c++) {
            float at[V];
            vector_read<V>(x + (int64_t)r * j.m.x_s[1] + (int64_t)c * j.m.x_s[2], at);
#pragma unroll
            for (int k = 0; k < V; k++)
                v[k] = !(v[k] >= at[k]) ? at[k] : v[k];
        }
}

/* Position (0, bin y, bin x) of "image" n is a bin of region n. An image that is not there makes
 * NaN and sets *bad. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS) roi_pool(const __grid_constant__ struct roi_job j)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.m.total)
        return;
    struct spot s = spot_of(j.m, i);
    int64_t image = j.batch_wide ? static_cast<const int64_t *>(j.batch)[s.n]
                                 : static_cast<const int32_t *>(j.batch)[s.n];
    bool there = image >= 0 && image < j.images;
    float roi[4];
    for (int k = 0; k < 4; k++)
        roi[k] = number_load(j.rois_type, j.rois, (int64_t)s.n * 4 + k);
    struct side sy = side_of(j, 1, roi[1], roi[3], (int32_t)j.m.out[1].by, s.at[1]);
    struct side sx = side_of(j, 2, roi[0], roi[2], (int32_t)j.m.out[2].by, s.at[2]);
    int32_t end = min(s.channel + j.m.chunk, j.m.channels), to = to_of(j.m, s);
    if (!there && j.bad)
        *j.bad = 1;
    for (int32_t c = s.channel; c < end; c += V) {
        const T *x = static_cast<const T *>(j.m.x) + (there ? image : 0) * j.m.x_n + c * j.m.x_c;
        float v[V];
        if (j.func == IR_ROI_MAX_QUANTISED)
            quantised_bin<T, V>(j, x, roi, s, v);
        else
            aligned_bin<T, V>(j, x, sy, sx, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            v[k] = there ? v[k] : NAN;
        vector_write<V>(static_cast<T *>(j.m.y) + to + c * j.m.y_c, v);
    }
}

/* --- launching --- */

bool images_make(const struct kernel_view *x, const struct kernel_view *y, struct images *m)
{
    const int64_t limit = INT64_C(1) << 31;
    int spatial = x->rank - 2, absent = DIMS - spatial;
    *m = images();
    if (spatial < 1 || spatial > DIMS || y->rank != x->rank || x->dtype != y->dtype ||
        x->dim[1] != y->dim[1] || kernel_span(x) >= limit || kernel_span(y) >= limit)
        return false;
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d] < 1 || x->dim[d] > 1 << 30 || y->dim[d] < 1 || y->dim[d] > 1 << 30)
            return false;
    m->x = x->data;
    m->y = y->data;
    m->channels = (int32_t)x->dim[1];
    m->x_n = (int32_t)x->stride[0];
    m->x_c = (int32_t)x->stride[1];
    m->y_n = (int32_t)y->stride[0];
    m->y_c = (int32_t)y->stride[1];
    m->last = y->stride[1] == 1 && y->dim[1] > 1;
    for (int d = 0; d < DIMS; d++) {
        int from = d - absent + 2;
        bool there = d >= absent;
        m->in[d] = there ? (int32_t)x->dim[from] : 1;
        m->x_s[d] = there ? (int32_t)x->stride[from] : 0;
        m->y_s[d] = there ? (int32_t)y->stride[from] : 0;
        m->out[d] = divider_make(there ? (uint32_t)y->dim[from] : 1);
    }
    return true;
}

/* Whether chunks of `n` channels can be read and written at once. */
bool in_chunks(const struct images *m, int n)
{
    bool fits = m->last && m->x_c == 1 && m->channels % n == 0 && m->x_n % n == 0 &&
                m->y_n % n == 0 && ((uintptr_t)m->x | (uintptr_t)m->y) % 16 == 0;
    for (int d = 0; d < DIMS; d++)
        fits = fits && m->x_s[d] % n == 0 && m->y_s[d] % n == 0;
    return fits;
}

/* Shares out channels among threads; false: there are too many. */
bool images_share(struct images *m, int64_t positions, int vector)
{
    m->chunk = m->last || m->channels < CHANNELS ? vector : (int32_t)CHANNELS;
    int64_t chunks = kernel_ceil_div(m->channels, m->chunk);
    m->chunks = divider_make((uint32_t)chunks);
    m->total = (uint32_t)(positions * chunks);
    return positions * chunks < INT32_MAX;
}

/* Calls launch(tag<V>()) with the width of vectors. */
template <int V> struct tag {
    static const int value = V;
};

template <class T, class L> cudaError_t launch_type(struct images *m, int64_t positions, L launch)
{
    constexpr int V = 16 / sizeof(T);
    bool wide = in_chunks(m, V);
    if (!images_share(m, positions, wide ? V : 1))
        return cudaErrorNotSupported;
    return wide ? launch(tag<V>()) : launch(tag<1>());
}

unsigned grid_of(const struct images *m)
{
    return (unsigned)kernel_ceil_div(m->total, THREADS);
}

template <class T>
cudaError_t launch_sample(const struct kernel_call *call, struct sample_job *j, int64_t positions)
{
    return launch_type<T>(&j->m, positions, [&](auto t) {
        return KERNEL_LAUNCH((sample<T, decltype(t)::value>), grid_of(&j->m), THREADS, 0, call, *j);
    });
}

template <class T>
cudaError_t launch_roi(const struct kernel_call *call, struct roi_job *j, int64_t positions)
{
    return launch_type<T>(&j->m, positions, [&](auto t) {
        return KERNEL_LAUNCH((roi_pool<T, decltype(t)::value>), grid_of(&j->m), THREADS, 0, call,
                             *j);
    });
}

bool is_dense(const struct kernel_view *v)
{
    int64_t n = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->dim[d] != 1 && v->stride[d] != n)
            return false;
        n *= v->dim[d];
    }
    return number_is_short_float(v->dtype);
}

int64_t positions_of(const struct kernel_view *y)
{
    return kernel_elements(y) / y->dim[1];
}

} // namespace

extern "C" cudaError_t kernel_sample(const struct kernel_call *call, enum ir_resize mode,
                                     enum ir_border border, enum ir_sample coord,
                                     const struct kernel_view *x, const struct kernel_view *grid,
                                     const struct kernel_view *y)
{
    struct sample_job j = {};
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    if (!images_make(x, y, &j.m) || !is_dense(grid) || x->dim[0] != y->dim[0] ||
        kernel_elements(grid) != positions_of(y) * (x->rank - 2))
        return cudaErrorNotSupported;
    j.grid = grid->data;
    j.grid_type = grid->dtype;
    j.dims = x->rank - 2;
    j.mode = mode;
    j.border = border;
    j.coord = coord;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_sample<half_t>(call, &j, positions_of(y));
    case DTYPE_BF16:
        return launch_sample<bf16_t>(call, &j, positions_of(y));
    case DTYPE_F32:
        return launch_sample<float>(call, &j, positions_of(y));
    default:
        return cudaErrorNotSupported;
    }
}

extern "C" cudaError_t kernel_roi_pool(const struct kernel_call *call,
                                       const struct kernel_roi_pool *how,
                                       const struct kernel_view *x, const struct kernel_view *rois,
                                       const struct kernel_view *batch, const struct kernel_view *y,
                                       int32_t *bad)
{
    struct roi_job j = {};
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    if (!images_make(x, y, &j.m) || x->rank != 4 || !is_dense(rois) ||
        kernel_elements(rois) != 4 * y->dim[0] || kernel_elements(batch) != y->dim[0] ||
        (batch->dtype != DTYPE_I64 && batch->dtype != DTYPE_I32))
        return cudaErrorNotSupported;
    j.rois = rois->data;
    j.rois_type = rois->dtype;
    j.batch = batch->data;
    j.batch_wide = batch->dtype == DTYPE_I64;
    j.images = (int32_t)x->dim[0];
    j.samples = how->samples;
    j.func = how->func;
    j.half_pixel = how->half_pixel;
    j.scale = (double)how->scale;
    j.bad = bad;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_roi<half_t>(call, &j, positions_of(y));
    case DTYPE_BF16:
        return launch_roi<bf16_t>(call, &j, positions_of(y));
    case DTYPE_F32:
        return launch_roi<float>(call, &j, positions_of(y));
    default:
        return cudaErrorNotSupported;
    }
}
