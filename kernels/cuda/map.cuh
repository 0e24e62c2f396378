/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element in, one element out, in the forms that are worth a kernel of their own:
 *
 *   map_vector     both sides have runs of neighbours in the same order: 16 bytes a thread
 *   map_ragged     the same, but runs begin or end anywhere (rows of an odd length): element by
 *                  element, several of them under way
 *   map_transpose  neighbours on one side are far apart on the other: tiles through shared memory
 *   map_image      a few planes to pixels of 4 or 8 channels, the padding zero: a thread a pixel
 *
 * Each has a launcher that gives cudaErrorNotSupported if the case does not fit. TX is converted to
 * TY by way of float; if they are the same type and there is no epilogue, bits are moved.
 */
#ifndef INFERD_KERNELS_CUDA_MAP_CUH
#define INFERD_KERNELS_CUDA_MAP_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/walk.cuh"

enum { MAP_THREADS = 256, MAP_UNROLL = 2, MAP_RAGGED_UNROLL = 8 };

template <class A, class B> struct map_same {
    static const bool value = false;
};
template <class A> struct map_same<A, A> {
    static const bool value = true;
};

/* Brings N neighbours from x to y's offset `at`. */
template <class TX, class TY, int MODE, int N>
__device__ __forceinline__ vector<TY, N> map_convert(const struct epilogue &e,
                                                     const vector<TX, N> &from, uint32_t at)
{
    vector<TY, N> to;
    if constexpr (map_same<TX, TY>::value && MODE == EPILOGUE_NONE) {
        to = from;
    } else {
        float v[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = number_float(from.v[i]);
        epilogue_apply<MODE, N>(e, v, at);
#pragma unroll
        for (int i = 0; i < N; i++)
            to.v[i] = number_from<TY>(v[i]);
    }
    return to;
}

/* --- vectors --- */

/* The narrower type fills 16 bytes, or 8 elements. */
template <class TX, class TY> struct map_width {
    static const int narrow = sizeof(TX) < sizeof(TY) ? (int)sizeof(TX) : (int)sizeof(TY);
    static const int value = map_same<TX, TY>::value || 16 / narrow < 8 ? 16 / narrow : 8;
};

template <class TX, class TY, int MODE>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_vector(const TX *x, TY *y, const __grid_constant__ walk<2> w,
               const __grid_constant__ epilogue e)
{
    const int N = map_width<TX, TY>::value;
    uint32_t first = blockIdx.x * (MAP_THREADS * MAP_UNROLL) + threadIdx.x;
    bool repeats = w.stride[1][w.rank - 1] == 0;
    vector<TX, N> from[MAP_UNROLL];
    int32_t at[MAP_UNROLL]; /* in y */
#pragma unroll
    for (int u = 0; u < MAP_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        int32_t both[2];
        if (i >= w.total)
            break;
        walk_at(w, i, both);
        at[u] = both[0];
        if (repeats) {
            TX value = x[both[1]];
#pragma unroll
            for (int k = 0; k < N; k++)
                from[u].v[k] = value;
        } else {
            from[u] = vector_load<TX, N>(x + both[1]);
        }
    }
    constexpr int COPIES = epilogue_copies(MODE);
#pragma unroll COPIES
    for (int u = 0; u < MAP_UNROLL; u++) {
        if (first + (uint32_t)u * MAP_THREADS >= w.total)
            break;
        int32_t to = vector_pick(at, u);
        vector_store<TY, N>(y + to,
                            map_convert<TX, TY, MODE, N>(e, vector_pick(from, u), (uint32_t)to));
    }
}

/* `w` is over y and x, as made by walk_make. */
template <class TX, class TY, int MODE>
inline cudaError_t map_vector_launch(const struct kernel_call *call, walk<2> w,
                                     const struct kernel_view *x, const struct kernel_view *y,
                                     const struct epilogue &e)
{
    const int N = map_width<TX, TY>::value;
    if (!walk_is_wide(&w, 0, N, y) || !walk_is_wide(&w, 1, N, x))
        return cudaErrorNotSupported;
    walk_widen(&w, N);
    unsigned blocks = (unsigned)kernel_ceil_div(w.total, MAP_THREADS * MAP_UNROLL);
    return KERNEL_LAUNCH((map_vector<TX, TY, MODE>), blocks, MAP_THREADS, 0, call,
                         static_cast<const TX *>(x->data), static_cast<TY *>(y->data), w, e);
}

/* --- elements that are read one by one --- */

template <class T, int N>
__device__ __forceinline__ void map_gather_as(const void *x, const int32_t (&at)[N], float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = number_float(static_cast<const T *>(x)[at[i]]);
}

/* Reads N elements of UINT8 or a short float at any offsets, all of them under way at a time. One
 * branch for all costs less than a kernel for each type, where most of a kernel is its epilogue. */
template <int N>
__device__ __forceinline__ void map_gather(int dtype, const void *x, const int32_t (&at)[N],
                                           float (&v)[N])
{
    if (dtype == DTYPE_F16)
        map_gather_as<half_t, N>(x, at, v);
    else if (dtype == DTYPE_BF16)
        map_gather_as<bf16_t, N>(x, at, v);
    else if (dtype == DTYPE_F32)
        map_gather_as<float, N>(x, at, v);
    else
        map_gather_as<uint8_t, N>(x, at, v);
}

/* --- runs without alignment --- */

/* Finds a thread's elements; the last stands for those behind it. False: there are none. */
__device__ __forceinline__ bool ragged_find(const walk<2> &w, uint32_t first,
                                            int32_t (&from)[MAP_RAGGED_UNROLL],
                                            uint32_t (&to)[MAP_RAGGED_UNROLL])
{
    if (first >= w.total)
        return false;
#pragma unroll
    for (int u = 0; u < MAP_RAGGED_UNROLL; u++) {
        int32_t at[2];
        walk_at(w, min(first + (uint32_t)u * MAP_THREADS, w.total - 1), at);
        to[u] = (uint32_t)at[0];
        from[u] = at[1];
    }
    return true;
}

template <class TX, class TY>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_ragged(const TX *x, TY *y, const __grid_constant__ walk<2> w,
               const __grid_constant__ epilogue e)
{
    uint32_t first = blockIdx.x * (MAP_THREADS * MAP_RAGGED_UNROLL) + threadIdx.x;
    int32_t from[MAP_RAGGED_UNROLL];
    uint32_t to[MAP_RAGGED_UNROLL];
    if (!ragged_find(w, first, from, to))
        return;
    vector<TX, 1> values[MAP_RAGGED_UNROLL];
#pragma unroll
    for (int u = 0; u < MAP_RAGGED_UNROLL; u++)
        values[u].v[0] = x[from[u]];
#pragma unroll
    for (int u = 0; u < MAP_RAGGED_UNROLL; u++)
        if (first + (uint32_t)u * MAP_THREADS < w.total)
            y[to[u]] = map_convert<TX, TY, EPILOGUE_NONE, 1>(e, values[u], to[u]).v[0];
}

template <class TY>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_ragged_any(const void *x, int32_t dtype, TY *y, const __grid_constant__ walk<2> w,
                   const __grid_constant__ epilogue e)
{
    uint32_t first = blockIdx.x * (MAP_THREADS * MAP_RAGGED_UNROLL) + threadIdx.x;
    int32_t from[MAP_RAGGED_UNROLL];
    uint32_t to[MAP_RAGGED_UNROLL];
    float v[MAP_RAGGED_UNROLL];
    if (!ragged_find(w, first, from, to))
        return;
    map_gather(dtype, x, from, v);
    epilogue_apply_apart<false>(e, v, to);
#pragma unroll
    for (int u = 0; u < MAP_RAGGED_UNROLL; u++)
        if (first + (uint32_t)u * MAP_THREADS < w.total)
            y[to[u]] = number_from<TY>(v[u]);
}

/* `w` is over y and x, as made by walk_make. */
template <class TX, class TY, int MODE>
inline cudaError_t map_ragged_launch(const struct kernel_call *call, const walk<2> *w,
                                     const struct kernel_view *x, const struct kernel_view *y,
                                     const struct epilogue &e)
{
    int last = w->rank - 1;
    if (w->stride[0][last] != 1 || w->stride[1][last] != 1)
        return cudaErrorNotSupported;
    unsigned blocks = (unsigned)kernel_ceil_div(w->total, MAP_THREADS * MAP_RAGGED_UNROLL);
    TY *to = static_cast<TY *>(y->data);
    if constexpr (MODE == EPILOGUE_ANY)
        return KERNEL_LAUNCH(map_ragged_any<TY>, blocks, MAP_THREADS, 0, call, x->data, x->dtype,
                             to, *w, e);
    else
        return KERNEL_LAUNCH((map_ragged<TX, TY>), blocks, MAP_THREADS, 0, call,
                             static_cast<const TX *>(x->data), to, *w, e);
}

/* --- transposes --- */

/* A tile has 64 indices of y's innermost dim ("b") and 32 words of 4 bytes along x's ("a"). Rows of
 * 33 words: what a warp writes (4 rows of 8 times 4 words) and what it reads (8 words of every
 * eighth row) lie in different banks. */
enum { TILE_B = 64, TILE_WORDS = 32, TILE_PITCH = 33, TILE_RUN = 8 };

struct tile_plan {
    walk<2> batch; /* of y and x, over the other dims */
    struct divider tiles_a, tiles_b;
    int32_t a, b;     /* extents */
    int32_t b_padded; /* y's extent along b; elements behind b become zero */
    int32_t x_by_b, y_by_a;
    bool wide_x, wide_y;
};

template <class TX> struct tile_size {
    static const int each = 4 / (int)sizeof(TX); /* elements of a word */
    static const int a = TILE_WORDS * each;      /* elements along a */
    static const int vector = 16 / (int)sizeof(TX);
};

/* Loads x's elements of one tile into rows of shared memory. */
template <class TX>
__device__ __forceinline__ void tile_load(const tile_plan &p, const TX *x, int32_t a0, int32_t b0,
                                          uint32_t *tile)
{
    typedef tile_size<TX> size;
    if (p.wide_x) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int i = (int)threadIdx.x + k * MAP_THREADS, row = i / 8, word = i % 8 * 4;
            int32_t a = a0 + i % 8 * size::vector;
            uint4 v = {0, 0, 0, 0};
            if (b0 + row < p.b && a < p.a)
                v = *reinterpret_cast<const uint4 *>(x + (b0 + row) * p.x_by_b + a);
            uint32_t *to = tile + row * TILE_PITCH + word;
            to[0] = v.x;
            to[1] = v.y;
            to[2] = v.z;
            to[3] = v.w;
        }
    } else {
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < TILE_B * size::a; i += MAP_THREADS) {
            int row = i / size::a, column = i % size::a;
            if (b0 + row < p.b && a0 + column < p.a)
                reinterpret_cast<TX *>(tile + row * TILE_PITCH)[column] =
                    x[(b0 + row) * p.x_by_b + a0 + column];
        }
    }
}

/* Stores eight neighbours along b of each element of a word. */
template <class TX, class TY, int MODE>
__device__ __forceinline__ void tile_store_wide(const tile_plan &p, TY *y, int32_t y0, int32_t a0,
                                                int32_t b0, const uint32_t *tile,
                                                const struct epilogue &e)
{
    typedef tile_size<TX> size;
    int lane = (int)threadIdx.x % KERNEL_WARP, warp = (int)threadIdx.x / KERNEL_WARP;
    int run = lane % 4 + warp % 2 * 4, word = lane / 4 + warp / 2 * 8;
    int32_t b = b0 + run * TILE_RUN;
    if (b >= p.b_padded)
        return;
    uint32_t words[TILE_RUN];
#pragma unroll
    for (int i = 0; i < TILE_RUN; i++)
        words[i] = tile[(run * TILE_RUN + i) * TILE_PITCH + word];
    constexpr int COPIES = epilogue_copies(MODE);
#pragma unroll COPIES
    for (int k = 0; k < size::each; k++) {
        int32_t a = a0 + word * size::each + k;
        if (a >= p.a)
            break;
        int32_t at = y0 + a * p.y_by_a + b;
        vector<TX, TILE_RUN> from;
#pragma unroll
        for (int i = 0; i < TILE_RUN; i++) {
            uint32_t bits = words[i] >> k * 8 * (int)sizeof(TX);
            memcpy(static_cast<void *>(&from.v[i]), &bits, sizeof(TX));
        }
        vector_store<TY, TILE_RUN>(y + at,
                                   map_convert<TX, TY, MODE, TILE_RUN>(e, from, (uint32_t)at));
    }
}

template <class TX, class TY, int MODE>
__device__ __forceinline__ void tile_store(const tile_plan &p, TY *y, int32_t y0, int32_t a0,
                                           int32_t b0, const uint32_t *tile,
                                           const struct epilogue &e)
{
    typedef tile_size<TX> size;
    constexpr int COPIES = MODE == EPILOGUE_ANY ? 1 : 4;
#pragma unroll COPIES
    for (int i = (int)threadIdx.x; i < TILE_B * size::a; i += MAP_THREADS) {
        int column = i / TILE_B, row = i % TILE_B;
        int32_t a = a0 + column, b = b0 + row, at = y0 + a * p.y_by_a + b;
        if (a >= p.a || b >= p.b_padded)
            continue;
        vector<TY, 1> to;
        if (b < p.b) {
            vector<TX, 1> from;
            from.v[0] = reinterpret_cast<const TX *>(tile + row * TILE_PITCH)[column];
            to = map_convert<TX, TY, MODE, 1>(e, from, (uint32_t)at);
        } else {
            memset(&to, 0, sizeof(to));
        }
        y[at] = to.v[0];
    }
}

template <class TX, class TY, int MODE>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_transpose(const TX *x, TY *y, const __grid_constant__ tile_plan p,
                  const __grid_constant__ epilogue e)
{
    __shared__ uint32_t tile[TILE_B * TILE_PITCH];
    uint32_t tile_a, tile_b, rest = divider_split(p.tiles_b, blockIdx.x, &tile_b);
    int32_t at[2];
    rest = divider_split(p.tiles_a, rest, &tile_a);
    walk_at(p.batch, rest, at);
    int32_t a0 = (int32_t)tile_a * tile_size<TX>::a, b0 = (int32_t)tile_b * TILE_B;
    tile_load(p, x + at[1], a0, b0, tile);
    __syncthreads();
    if (p.wide_y)
        tile_store_wide<TX, TY, MODE>(p, y, at[0], a0, b0, tile, e);
    else
        tile_store<TX, TY, MODE>(p, y, at[0], a0, b0, tile, e);
}

/* Splits the walk into b, a and the rest. False: the case is no transpose, or too thin to be worth
 * a kernel. */
inline bool tile_split(const walk<2> *w, tile_plan *p)
{
    int b = w->rank - 1, a = -1;
    for (int i = 0; i < b; i++)
        if (w->stride[1][i] == 1)
            a = i;
    if (a < 0 || w->stride[0][b] != 1 || w->stride[1][b] <= 1 || w->dim[a].by < 8 ||
        w->dim[b].by < 8)
        return false;
    p->a = (int32_t)w->dim[a].by;
    p->b = (int32_t)w->dim[b].by;
    p->y_by_a = w->stride[0][a];
    p->x_by_b = w->stride[1][b];
    p->batch = walk<2>();
    for (int i = 0; i < b; i++) {
        if (i == a)
            continue;
        p->batch.dim[p->batch.rank] = w->dim[i];
        p->batch.stride[0][p->batch.rank] = w->stride[0][i];
        p->batch.stride[1][p->batch.rank++] = w->stride[1][i];
    }
    p->batch.total = w->total / (uint32_t)p->a / (uint32_t)p->b;
    if (p->batch.rank == 0) {
        p->batch.dim[0] = divider_make(1);
        p->batch.rank = 1;
    }
    return true;
}

inline bool tile_multiple(const walk<2> *w, int k, int n)
{
    for (int i = 0; i < w->rank; i++)
        if (w->stride[k][i] % n)
            return false;
    return true;
}

/* `padded`: the elements that y's innermost dim holds with its padding; 0: it has none. */
template <class TX, class TY, int MODE>
inline cudaError_t map_transpose_launch(const struct kernel_call *call, const walk<2> *w,
                                        int64_t padded, const struct kernel_view *x,
                                        const struct kernel_view *y, const struct epilogue &e)
{
    typedef tile_size<TX> size;
    tile_plan p;
    if (sizeof(TX) > 4 || !tile_split(w, &p))
        return cudaErrorNotSupported;
    p.b_padded = padded ? (int32_t)padded : p.b;
    uint32_t tiles_a = (uint32_t)kernel_ceil_div(p.a, size::a);
    uint32_t tiles_b = (uint32_t)kernel_ceil_div(p.b_padded, TILE_B);
    p.tiles_a = divider_make(tiles_a);
    p.tiles_b = divider_make(tiles_b);
    p.wide_x = p.a % size::vector == 0 && p.x_by_b % size::vector == 0 &&
               tile_multiple(&p.batch, 1, size::vector) && (uintptr_t)x->data % 16 == 0;
    int bytes = TILE_RUN * (int)sizeof(TY) < 16 ? TILE_RUN * (int)sizeof(TY) : 16;
    p.wide_y = p.b % TILE_RUN == 0 && p.b == p.b_padded && p.y_by_a % TILE_RUN == 0 &&
               tile_multiple(&p.batch, 0, TILE_RUN) && (uintptr_t)y->data % (uintptr_t)bytes == 0;
    return KERNEL_LAUNCH((map_transpose<TX, TY, MODE>), p.batch.total * tiles_a * tiles_b,
                         MAP_THREADS, 0, call, static_cast<const TX *>(x->data),
                         static_cast<TY *>(y->data), p, e);
}

/* --- images --- */

enum { IMAGE_UNROLL = 4 };

struct image_plan {
    uint32_t pixels;                        /* of all images */
    struct divider plane;                   /* pixels of one */
    int32_t channels, by_image, by_channel; /* strides of x, whose pixels are neighbours */
};

/* Writes P channels per pixel in y; those from plan.channels on are zero. */
template <class TY, int P>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_image(const void *x, int32_t dtype, TY *y, const image_plan p,
              const __grid_constant__ epilogue e)
{
    uint32_t first = blockIdx.x * (MAP_THREADS * IMAGE_UNROLL) + threadIdx.x;
    int32_t from[IMAGE_UNROLL];
#pragma unroll
    for (int u = 0; u < IMAGE_UNROLL; u++) {
        uint32_t pixel = min(first + (uint32_t)u * MAP_THREADS, p.pixels - 1), at;
        from[u] = (int32_t)divider_split(p.plane, pixel, &at) * p.by_image;
        from[u] += (int32_t)at;
    }
    vector<TY, P> to[IMAGE_UNROLL];
#pragma unroll
    for (int u = 0; u < IMAGE_UNROLL; u++)
#pragma unroll
        for (int c = 0; c < P; c++)
            to[u].v[c] = number_from<TY>(0.0f);
#pragma unroll 1
    for (int c = 0; c < p.channels; c++) {
        float v[IMAGE_UNROLL];
        int32_t here[IMAGE_UNROLL];
        uint32_t at[IMAGE_UNROLL];
#pragma unroll
        for (int u = 0; u < IMAGE_UNROLL; u++) {
            uint32_t pixel = min(first + (uint32_t)u * MAP_THREADS, p.pixels - 1);
            here[u] = from[u] + c * p.by_channel;
            at[u] = pixel * P + (uint32_t)c;
        }
        map_gather(dtype, x, here, v);
        epilogue_apply_apart<true>(e, v, at);
#pragma unroll
        for (int u = 0; u < IMAGE_UNROLL; u++)
#pragma unroll
            for (int k = 0; k < P; k++) /* they stay in registers */
                to[u].v[k] = k == c ? number_from<TY>(v[u]) : to[u].v[k];
    }
#pragma unroll
    for (int u = 0; u < IMAGE_UNROLL; u++) {
        uint32_t pixel = first + (uint32_t)u * MAP_THREADS;
        if (pixel < p.pixels)
            vector_store<TY, P>(y + pixel * P, to[u]);
    }
}

/* Reads the spatial dims of a view (from the third on) as one dim; false: they are not in row-major
 * order. */
inline bool image_spatial(const struct kernel_view *v, int64_t *n, int64_t *step)
{
    *n = 1;
    *step = v->stride[v->rank - 1];
    for (int i = v->rank - 1; i >= 2; i--) {
        if (v->dim[i] != 1 && v->stride[i] != *n * *step)
            return false;
        *n *= v->dim[i];
    }
    return true;
}

/* Launches map_image: y has pixels of P channels, x planes of UINT8 or a short float. */
template <class TY, int P>
inline cudaError_t map_image_launch(const struct kernel_call *call, const struct kernel_view *x,
                                    const struct kernel_view *y, const struct epilogue &e)
{
    int64_t plane, by_x, same, by_y;
    if (y->rank < 3 || y->dim[1] > P || y->stride[1] != 1 || !image_spatial(x, &plane, &by_x) ||
        !image_spatial(y, &same, &by_y) || (plane > 1 && (by_x != 1 || by_y != P)) ||
        (y->dim[0] > 1 && y->stride[0] != plane * P) || y->dim[0] * plane * P >= INT32_MAX ||
        (uintptr_t)y->data % (P * sizeof(TY) < 16 ? P * sizeof(TY) : 16))
        return cudaErrorNotSupported;
    image_plan p = {(uint32_t)(y->dim[0] * plane), divider_make((uint32_t)plane),
                    (int32_t)y->dim[1], (int32_t)x->stride[0], (int32_t)x->stride[1]};
    unsigned blocks = (unsigned)kernel_ceil_div(p.pixels, MAP_THREADS * IMAGE_UNROLL);
    return KERNEL_LAUNCH((map_image<TY, P>), blocks, MAP_THREADS, 0, call, x->data, x->dtype,
                         static_cast<TY *>(y->data), p, e);
}

#endif
