/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of fully connected layers as one kernel. A block brings all weights and biases into its
 * shared memory, then takes tiles of rows through all layers, one tile after the other; what lies
 * between layers alternates between two places in shared memory and is rounded to the type. The
 * first layer begins when its own weights are there.
 *
 * In 16 bits a warp multiplies 16 MR rows by 16 columns at a time on tensor cores, with sums in
 * fp32. Weights are packed in the order of fragments, so that a lane reads its part of a tile as 16
 * bytes. In fp32 a thread multiplies RT rows by four columns; where not all weights fit, they are
 * read where they are. Columns that only fill up a tile are zeros whatever the function makes of
 * them, because the next layer multiplies them by zeros, and infinities would become NaN.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum { THREADS = 256, WARPS = THREADS / KERNEL_WARP, TILE = MLP_TILE, VECTOR = MLP_VECTOR };
constexpr uint64_t SHARED_HOPPER = 227 << 10; /* of a block */

struct layer {
    int32_t func, width, depth, columns; /* depth and columns: padded */
    int32_t weights, bias;               /* where they begin, in elements */
    float alpha, beta, gamma;
};

struct plan {
    const void *x, *weights;
    const float *bias;
    void *y;
    int32_t rows, tile, tiles, layers, depth;       /* depth: of x; tile: rows of one */
    int32_t weights_bytes, bias_bytes, first_bytes; /* in shared memory; of the first layer */
    int32_t pitch[2], at_bias, at_place[2];         /* pitch: in elements; at: in bytes */
    layer layers_of[MLP_LAYERS_MAX];
};

/* --- loading --- */

__device__ __forceinline__ void copy_bytes(unsigned char *to, const void *from, int first, int end)
{
    const unsigned char *bytes = static_cast<const unsigned char *>(from);
    for (int i = first + (int)threadIdx.x * 16; i < end; i += THREADS * 16)
        copy_async_16(to + i, bytes + i);
}

/* Starts loading a tile of x, filled up with zeros. */
template <class T> __device__ __forceinline__ void load_rows(const plan &p, int tile, T *to)
{
    constexpr int CHUNK = 16 / sizeof(T);
    const int padded = p.layers_of[0].depth, left = p.rows - tile * p.tile;
    const T *x = static_cast<const T *>(p.x) + (int64_t)tile * p.tile * p.depth;
    if (p.depth % CHUNK == 0) {
        for (int i = (int)threadIdx.x; i < p.tile * (padded / CHUNK); i += THREADS) {
            int row = i / (padded / CHUNK), column = i % (padded / CHUNK) * CHUNK;
            bool valid = row < left && column < p.depth;
            copy_async_16(to + row * p.pitch[0] + column,
                          x + (valid ? (int64_t)row * p.depth + column : 0), valid);
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < p.tile * padded; i += THREADS) {
        int row = i / padded, column = i % padded;
        bool valid = row < left && column < p.depth;
        to[row * p.pitch[0] + column] =
            valid ? x[(int64_t)row * p.depth + column] : number_from<T>(0.0f);
    }
}

/* --- what follows the sums of a layer --- */

template <int N> __device__ __forceinline__ void activate(const layer &l, float (&v)[N])
{
    if (l.func != IR_UNARY_IDENTITY)
        math_unary_row<N>(l.func, v, l.alpha, l.beta, l.gamma);
}

/* Stores N neighbours of a row, at once if that leaves no row unaligned. */
template <class T, int N>
__device__ __forceinline__ void store_row(T *y, int column, int width, const float (&v)[N])
{
    if (width % N == 0 && column + N <= width) {
        vector_write<N>(y + column, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (column + i < width)
            y[column + i] = number_from<T>(v[i]);
}

/* Stores N neighbours of row `row` of the tile, in y behind the last layer. */
template <class T, int N>
__device__ __forceinline__ void put(const plan &p, int i, int tile, T *to, int row, int column,
                                    float (&v)[N])
{
    const layer &l = p.layers_of[i];
    if (i + 1 < p.layers) {
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = column + k < l.width ? v[k] : 0;
        vector_write<N>(to + row * p.pitch[(i + 1) % 2] + column, v);
        return;
    }
    int at = tile * p.tile + row;
    if (at < p.rows)
        store_row<T, N>(static_cast<T *>(p.y) + (int64_t)at * l.width, column, l.width, v);
}

/* --- a layer in 16 bits --- */

/* Bias, function and store for the 16 rows from `row` on. */
template <class T>
__device__ __forceinline__ void finish_short(const plan &p, int i, int tile, const float *bias,
                                             T *to, int row, int column, const float (&sum)[2][4])
{
    const layer &l = p.layers_of[i];
    int lane = (int)threadIdx.x % KERNEL_WARP;
    float v[8];
    column += lane % 4 * 2;
    row += lane / 4;
#pragma unroll
    for (int k = 0; k < 8; k++)
        v[k] = sum[k / 4][k % 4] + bias[l.bias + column + k / 4 * 8 + k % 2];
    activate<8>(l, v);
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
        float pair[2] = {v[k], v[k + 1]};
        put<T, 2>(p, i, tile, to, row + k / 2 % 2 * 8, column + k / 4 * 8, pair);
    }
}

template <class T, int MR>
__device__ __forceinline__ void multiply_short(const plan &p, int i, int tile, const T *weights,
                                               const float *bias, const T *from, T *to)
{
    const layer &l = p.layers_of[i];
    const int pitch = p.pitch[i % 2], steps = l.depth / TILE, groups = p.tile / (TILE * MR);
    const int warp = (int)threadIdx.x / KERNEL_WARP, lane = (int)threadIdx.x % KERNEL_WARP;
    for (int item = warp; item < groups * (l.columns / TILE); item += WARPS) {
        int row = item % groups * TILE * MR, column = item / groups * TILE;
        const T *a = from + (row + lane % 16) * pitch + lane / 16 * 8;
        const uint4 *b = reinterpret_cast<const uint4 *>(weights + l.weights + column * l.depth);
        float sum[MR][2][4] = {};
#pragma unroll 4
        for (int s = 0; s < steps; s++) {
            uint4 w = b[s * KERNEL_WARP + lane];
            const uint32_t left[2] = {w.x, w.y}, right[2] = {w.z, w.w};
#pragma unroll
            for (int r = 0; r < MR; r++) {
                uint32_t f[4];
                ldmatrix_x4(f, a + r * TILE * pitch + s * TILE);
                mma_m16n8k16(T(), sum[r][0], f, left);
                mma_m16n8k16(T(), sum[r][1], f, right);
            }
        }
#pragma unroll
        for (int r = 0; r < MR; r++)
            finish_short<T>(p, i, tile, bias, to, row + r * TILE, column, sum[r]);
    }
}

/* --- a layer in fp32 --- */

template <int RT>
__device__ __forceinline__ void multiply_wide(const plan &p, int i, int tile, const float *weights,
                                              const float *bias, const float *from, float *to)
{
    const layer &l = p.layers_of[i];
    const int pitch = p.pitch[i % 2], quads = l.columns / VECTOR;
    for (int item = (int)threadIdx.x; item < p.tile / RT * quads; item += THREADS) {
        int row = item / quads * RT, column = item % quads * VECTOR;
        const float *w = weights + l.weights + column;
        float sum[RT][VECTOR] = {};
        for (int k = 0; k < l.depth; k += VECTOR) {
            float x[RT][VECTOR];
#pragma unroll
            for (int r = 0; r < RT; r++)
                vector_read<VECTOR>(from + (row + r) * pitch + k, x[r]);
#pragma unroll
            for (int d = 0; d < VECTOR; d++) {
                float b[VECTOR];
                vector_read<VECTOR>(w + (k + d) * l.columns, b);
#pragma unroll
                for (int r = 0; r < RT; r++)
#pragma unroll
                    for (int c = 0; c < VECTOR; c++)
                        sum[r][c] = fmaf(x[r][d], b[c], sum[r][c]);
            }
        }
#pragma unroll
        for (int r = 0; r < RT; r++) {
#pragma unroll
            for (int c = 0; c < VECTOR; c++)
                sum[r][c] += bias[l.bias + column + c];
            activate<VECTOR>(l, sum[r]);
            put<float, VECTOR>(p, i, tile, to, row + r, column, sum[r]);
        }
    }
}

/* --- the kernel --- */

template <class T, int R> struct multiply {
    static __device__ __forceinline__ void layer(const plan &p, int i, int tile, const T *weights,
                                                 const float *bias, const T *from, T *to)
    {
        multiply_short<T, R>(p, i, tile, weights, bias, from, to);
    }
};
template <int R> struct multiply<float, R> {
    static __device__ __forceinline__ void layer(const plan &p, int i, int tile,
                                                 const float *weights, const float *bias,
                                                 const float *from, float *to)
    {
        multiply_wide<R>(p, i, tile, weights, bias, from, to);
    }
};

/* R: MR or RT, as the top of this file has them. */
template <class T, int R>
__global__ void __launch_bounds__(THREADS) mlp_kernel(const __grid_constant__ plan p)
{
    KERNEL_SHARED(unsigned char, shared);
    const float *bias = reinterpret_cast<const float *>(shared + p.at_bias);
    const T *weights =
        p.weights_bytes ? reinterpret_cast<const T *>(shared) : static_cast<const T *>(p.weights);
    T *place[2] = {reinterpret_cast<T *>(shared + p.at_place[0]),
                   reinterpret_cast<T *>(shared + p.at_place[1])};
    copy_bytes(shared + p.at_bias, p.bias, 0, p.bias_bytes);
    copy_bytes(shared, p.weights, 0, min(p.first_bytes, p.weights_bytes));
    for (int tile = (int)blockIdx.x; tile < p.tiles; tile += (int)gridDim.x) {
        bool first = tile == (int)blockIdx.x;
        __syncthreads(); /* the last layer of the tile before may have read place 0 */
        load_rows<T>(p, tile, place[0]);
        copy_async_commit();
        if (first) {
            copy_bytes(shared, p.weights, p.first_bytes, p.weights_bytes);
            copy_async_commit();
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        for (int i = 0; i < p.layers; i++) {
            multiply<T, R>::layer(p, i, tile, weights, bias, place[i % 2], place[(i + 1) % 2]);
            if (i == 0)
                copy_async_wait<0>();
            if (i + 1 < p.layers)
                __syncthreads();
        }
    }
}

/* --- launching --- */

/* A tile's rows, and what a warp or a thread multiplies at a time. */
struct way {
    int32_t tile, at_once;
};
const way short_ways[KERNEL_MLP_VARIANTS] = {{16, 1}, {32, 2}, {64, 2}, {64, 4}, {128, 4}};
const way wide_ways[KERNEL_MLP_VARIANTS] = {{4, 1}, {16, 1}, {16, 2}, {32, 4}, {64, 4}};

/* False: it does not fit. *shared: bytes of shared memory. */
inline bool plan_make(const struct kernel_call *call, const struct kernel_mlp *m, int32_t tile,
                      plan *p, uint64_t *shared)
{
    const uint32_t size = m->dtype == DTYPE_F32 ? 4 : 2;
    const uint64_t most = call->shared > 0 ? (uint64_t)call->shared : SHARED_HOPPER;
    struct mlp_room room;
    int32_t weights = 0, bias = 0;
    if (!mlp_room(m->widths, (uint32_t)m->layers, size, &room))
        return false;
    bool resident = mlp_room_bytes(&room, (uint64_t)tile) <= most;
    *shared = mlp_room_bytes(&room, (uint64_t)tile) - (resident ? 0 : room.weights);
    if (*shared > most || (!resident && size == 2))
        return false;
    *p = plan();
    p->x = m->x;
    p->weights = m->weights;
    p->bias = m->bias;
    p->y = m->y;
    p->rows = (int32_t)m->rows;
    p->tile = tile;
    p->tiles = (int32_t)kernel_ceil_div(m->rows, tile);
    p->layers = m->layers;
    p->depth = m->widths[0];
    for (int i = 0; i < m->layers; i++) {
        layer l = {m->funcs[i],
                   m->widths[i + 1],
                   (int32_t)mlp_padded(m->widths[i], size),
                   (int32_t)mlp_padded(m->widths[i + 1], size),
                   weights,
                   bias,
                   m->alphas[i],
                   m->betas[i],
                   m->gammas[i]};
        weights += l.depth * l.columns;
        bias += l.columns;
        p->layers_of[i] = l;
    }
    p->weights_bytes = resident ? (int32_t)room.weights : 0;
    p->bias_bytes = (int32_t)room.bias;
    p->first_bytes = p->layers_of[0].depth * p->layers_of[0].columns * (int32_t)size;
    p->at_bias = p->weights_bytes;
    p->at_place[0] = p->at_bias + p->bias_bytes;
    p->at_place[1] = p->at_place[0] + tile * (int32_t)room.row[0];
    for (int i = 0; i < 2; i++)
        p->pitch[i] = (int32_t)(room.row[i] / size);
    return true;
}

template <class T, int R>
cudaError_t launch_of(const struct kernel_call *call, const plan &p, uint64_t shared)
{
    const int64_t resident = (228 << 10) / (int64_t)(shared + 1024); /* 1 KiB is the system's */
    return KERNEL_LAUNCH(
        (mlp_kernel<T, R>),
        kernel_grid(call, p.tiles, (int)min(max(resident, (int64_t)1), (int64_t)8)), THREADS,
        shared, call, p);
}

template <class T>
cudaError_t launch_with(const struct kernel_call *call, const struct kernel_mlp *m, const way &how)
{
    plan p;
    uint64_t shared;
    if (!plan_make(call, m, how.tile, &p, &shared))
        return cudaErrorNotSupported;
    return how.at_once == 1   ? launch_of<T, 1>(call, p, shared)
           : how.at_once == 2 ? launch_of<T, 2>(call, p, shared)
                              : launch_of<T, 4>(call, p, shared);
}

} // namespace

int32_t kernel_mlp_rows(int32_t dtype, int32_t variant)
{
    if (variant < 1 || variant > KERNEL_MLP_VARIANTS)
        return 0;
    return (dtype == DTYPE_F32 ? wide_ways : short_ways)[variant - 1].tile;
}

cudaError_t kernel_mlp(const struct kernel_call *call, const struct kernel_mlp *m)
{
    if (!kernel_mlp_rows(m->dtype, call->variant) || m->rows < 1 || m->rows > INT32_MAX / 2)
        return cudaErrorNotSupported;
    switch (m->dtype) {
    case DTYPE_F16:
        return launch_with<half_t>(call, m, short_ways[call->variant - 1]);
    case DTYPE_BF16:
        return launch_with<bf16_t>(call, m, short_ways[call->variant - 1]);
    case DTYPE_F32:
        return launch_with<float>(call, m, wide_ways[call->variant - 1]);
    default:
        return cudaErrorNotSupported;
    }
}
