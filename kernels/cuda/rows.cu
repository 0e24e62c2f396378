/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax and layer normalisation: operations that read a row, compute something over all of it,
 * and write the row again.
 *
 *   softmax_kernel, norm_kernel   rows whose elements are neighbours, held in registers: a warp a
 *                                 row of up to 1,024, a block of 256 threads a row of up to 8,192
 *   norm_many                     the same without an epilogue, a warp a row: warps walk from row
 *                                 to row, and ask for the next ones before they have done this one
 *   softmax_long, norm_long       a block a row of any length, read again for each step
 *   softmax_strided               any other axis: a thread a row
 *
 * Vectors of 16 bytes are used where rows begin at multiples of them. Statistics are taken as in
 * the reference: the mean first, then deviations from it; exponentials relative to the maximum.
 */
#include <math.h>

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/side.cuh"

namespace
{

constexpr int BLOCK = 256, WARPS = 4; /* threads of a long row's block; short rows a block */

/* --- rows in registers --- */

/* Which elements of a row a thread has: N elements in vectors of V; neighbouring threads have
 * neighbouring vectors. */
template <int N, int V, int THREADS> struct slots {
    static __device__ __forceinline__ int at(int i)
    {
        return (i / V * THREADS + (int)threadIdx.x % THREADS) * V + i % V;
    }
};

template <class T, int N, int V, int THREADS>
__device__ __forceinline__ void row_read(const T *row, int length, float empty, float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += V) {
        int at = slots<N, V, THREADS>::at(i);
        float part[V] = {};
        if (at < length)
            vector_read<V>(row + at, part);
#pragma unroll
        for (int j = 0; j < V; j++)
            v[i + j] = at < length ? part[j] : empty;
    }
}

/* `first`: the row's offset in y. Before an epilogue the values go through memory, so that a
 * thread's vectors share one copy of the interpreter. The few rows with an epilogue can bear the
 * cost. */
template <int MODE, class T, int N, int V, int THREADS>
__device__ __forceinline__ void row_write(T *y, uint32_t first, int length, const float (&v)[N],
                                          const struct epilogue &epilogue)
{
    if (MODE != EPILOGUE_NONE && epilogue.n > 0) {
        float all[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            all[i] = v[i];
#pragma unroll 1
        for (int i = 0, at = slots<N, V, THREADS>::at(0); i < N && at < length; i += V) {
            float part[V];
#pragma unroll
            for (int j = 0; j < V; j++)
                part[j] = all[i + j];
            epilogue_apply<EPILOGUE_ANY, V>(epilogue, part, first + (uint32_t)at);
            vector_write<V>(y + first + at, part);
            at += THREADS * V;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i += V) {
        int at = slots<N, V, THREADS>::at(i);
        if (at >= length)
            continue;
        float part[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            part[j] = v[i + j];
        vector_write<V>(y + first + at, part);
    }
}

/* The same, in 8 bits. */
template <int N, int V, int THREADS>
__device__ __forceinline__ void row_write_bytes(const struct bytes_side &y, uint32_t first,
                                                int length, const float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += V) {
        int at = slots<N, V, THREADS>::at(i);
        if (at >= length)
            continue;
        float part[V];
#pragma unroll
        for (int j = 0; j < V; j++)
            part[j] = v[i + j];
        side_store_scaled<V>(y, (int32_t)first + at, part);
    }
}

/* Reduces over all threads of a row. */
template <int THREADS, class Op>
__device__ __forceinline__ float row_reduce(float v, float empty, float *scratch, Op op)
{
    if (THREADS == KERNEL_WARP)
        return reduce_warp(v, op);
    return reduce_block(v, empty, scratch, op);
}

template <class T> __device__ __forceinline__ float exp_of(float x)
{
    return sizeof(T) == 4 ? expf(x) : __expf(x);
}

struct rows {
    const void *x;
    void *y;
    struct bytes_side to; /* y of a layer normalisation that stores 8 bits */
    const float *scale, *bias;
    int64_t n, x_stride;
    uint32_t y_stride;
    int32_t length;
    float epsilon, share; /* share: 1 / length */
    bool log, rms;        /* rms: the mean counts as 0 */
    bool widen;           /* x has 16 bits, and y is FP32 */
};

/* --- softmax --- */

template <class T, int N, int V, int THREADS, int MODE>
__global__ void __launch_bounds__(THREADS == KERNEL_WARP ? WARPS * KERNEL_WARP : THREADS)
    softmax_kernel(struct rows r, const __grid_constant__ struct epilogue epilogue)
{
    KERNEL_SHARED(float, scratch);
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    if (row >= r.n)
        return;
    float v[N], most = -INFINITY, total = 0;
    row_read<T, N, V, THREADS>(static_cast<const T *>(r.x) + row * r.x_stride, r.length, -INFINITY,
                               v);
#pragma unroll
    for (int i = 0; i < N; i++)
        most = fmaxf(most, v[i]);
    /* A NaN need not win here, because it makes the sum NaN. */
    most = row_reduce<THREADS>(most, -INFINITY, scratch, reduce_max());
#pragma unroll
    for (int i = 0; i < N; i++) {
        float e = exp_of<T>(v[i] - most);
        total += slots<N, V, THREADS>::at(i) < r.length ? e : 0;
        v[i] = r.log ? v[i] - most : e;
    }
    total = row_reduce<THREADS>(total, 0, scratch, reduce_sum());
    float factor = 1.0f / total, shift = logf(total);
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = r.log ? v[i] - shift : v[i] * factor;
    row_write<MODE, T, N, V, THREADS>(static_cast<T *>(r.y), (uint32_t)row * r.y_stride, r.length,
                                      v, epilogue);
}

template <class T>
__global__ void __launch_bounds__(BLOCK)
    softmax_long(struct rows r, const __grid_constant__ struct epilogue epilogue)
{
    KERNEL_SHARED(float, scratch);
    const T *x = static_cast<const T *>(r.x) + blockIdx.x * r.x_stride;
    uint32_t first = blockIdx.x * r.y_stride;
    float most = -INFINITY, total = 0;
    for (int i = (int)threadIdx.x; i < r.length; i += BLOCK)
        most = fmaxf(most, number_float(x[i]));
    most = reduce_block(most, -INFINITY, scratch, reduce_max());
    for (int i = (int)threadIdx.x; i < r.length; i += BLOCK)
        total += exp_of<T>(number_float(x[i]) - most);
    total = reduce_block(total, 0.0f, scratch, reduce_sum());
    float factor = 1.0f / total, shift = logf(total);
    for (int i = (int)threadIdx.x; i < r.length; i += BLOCK) {
        float v = number_float(x[i]) - most;
        v = r.log ? v - shift : exp_of<T>(v) * factor;
        static_cast<T *>(r.y)[first + i] =
            number_from<T>(epilogue_apply_one<EPILOGUE_ANY>(epilogue, v, first + (uint32_t)i));
    }
}

/* Rows by their index, over the dims other than the axis, innermost in y's memory first. */
struct outer {
    int32_t rank;
    struct divider dim[KERNEL_RANK_MAX];
    int64_t x[KERNEL_RANK_MAX];
    uint32_t y[KERNEL_RANK_MAX];
};

template <class T>
__global__ void __launch_bounds__(BLOCK)
    softmax_strided(struct rows r, struct outer outer,
                    const __grid_constant__ struct epilogue epilogue)
{
    uint32_t row = blockIdx.x * BLOCK + threadIdx.x, to = 0, at;
    if (row >= r.n)
        return;
    const T *x = static_cast<const T *>(r.x);
    for (int d = 0; d < outer.rank; d++) {
        row = divider_split(outer.dim[d], row, &at);
        x += at * outer.x[d];
        to += at * outer.y[d];
    }
    float most = -INFINITY, total = 0;
    for (int i = 0; i < r.length; i++)
        most = fmaxf(most, number_float(x[i * r.x_stride]));
    for (int i = 0; i < r.length; i++)
        total += exp_of<T>(number_float(x[i * r.x_stride]) - most);
    float factor = 1.0f / total, shift = logf(total);
    for (int i = 0; i < r.length; i++, to += r.y_stride) {
        float v = number_float(x[i * r.x_stride]) - most;
        v = r.log ? v - shift : exp_of<T>(v) * factor;
        static_cast<T *>(r.y)[to] =
            number_from<T>(epilogue_apply_one<EPILOGUE_ANY>(epilogue, v, to));
    }
}

/* --- layer normalisation --- */

/* scale and bias are the same for all rows, so they come from L1 and need no registers for long. */
template <int N, int V, int THREADS>
__device__ __forceinline__ void norm_scale(const struct rows &r, float inverse, float (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N; i += V) {
        int at = slots<N, V, THREADS>::at(i);
        if (at >= r.length)
            continue;
        float scale[V], bias[V] = {};
        vector_read<V>(r.scale + at, scale);
        if (r.bias)
            vector_read<V>(r.bias + at, bias);
#pragma unroll
        for (int j = 0; j < V; j++)
            v[i + j] = v[i + j] * inverse * scale[j] + bias[j];
    }
}

/* Keeps the compiler from knowing how the value came about. */
__device__ __forceinline__ void value_hide(float &v)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+f"(v));
#else
    (void)v;
#endif
}

/* Takes the row's mean from its elements; gives 1 / their deviation. Where the row has ended, v is
 * 0 before. */
template <int N, int V, int THREADS>
__device__ __forceinline__ float norm_centre(const struct rows &r, float (&v)[N], float *scratch)
{
    float total = 0, squares = 0, mean = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        total += v[i];
    if (!r.rms)
        mean = row_reduce<THREADS>(total, 0, scratch, reduce_sum()) * r.share;
#pragma unroll
    for (int i = 0; i < N; i += V) {
        float off = slots<N, V, THREADS>::at(i) < r.length ? mean : 0;
        value_hide(off); /* or there is a choice for each element */
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[i + j] -= off;
            squares = fmaf(v[i + j], v[i + j], squares);
        }
    }
    squares = row_reduce<THREADS>(squares, 0, scratch, reduce_sum()) * r.share;
    return rsqrtf(squares + r.epsilon);
}

/* BYTES: y is stored in 8 bits, and there is no epilogue. */
template <class T, class Y, int N, int V, int THREADS, int MODE, bool BYTES>
__global__ void __launch_bounds__(THREADS == KERNEL_WARP ? WARPS * KERNEL_WARP : THREADS)
    norm_kernel(struct rows r, const __grid_constant__ struct epilogue epilogue)
{
    KERNEL_SHARED(float, scratch);
    grid_go();
    grid_wait();
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    if (row >= r.n)
        return;
    int64_t first = row * r.length;
    float v[N];
    row_read<T, N, V, THREADS>(static_cast<const T *>(r.x) + first, r.length, 0, v);
    norm_scale<N, V, THREADS>(r, norm_centre<N, V, THREADS>(r, v, scratch), v);
    if (BYTES)
        row_write_bytes<N, V, THREADS>(r.to, (uint32_t)first, r.length, v);
    else
        row_write<MODE, Y, N, V, THREADS>(static_cast<Y *>(r.y), (uint32_t)first, r.length, v,
                                          epilogue);
}

/* A row as it lies in memory, in vectors of 16 bytes; zeros behind its end. */
template <class T, int N> struct row_raw {
    static constexpr int V = 16 / sizeof(T);
    uint4 part[N / V];

    __device__ __forceinline__ void load(const T *row, int length)
    {
#pragma unroll
        for (int i = 0; i < N; i += V) {
            int at = slots<N, V, KERNEL_WARP>::at(i);
            part[i / V] =
                at < length ? *reinterpret_cast<const uint4 *>(row + at) : make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void floats(float (&v)[N]) const
    {
#pragma unroll
        for (int i = 0; i < N; i += V) {
            vector<T, V> values;
            memcpy(&values, &part[i / V], sizeof(values));
#pragma unroll
            for (int j = 0; j < V; j++)
                v[i + j] = number_float(values.v[j]);
        }
    }
};

/* Rows that a warp has asked for, beside the one it works at. */
template <class T> constexpr int NORM_AHEAD = sizeof(T) == 2 ? 2 : 1;

/* Blocks of a multiprocessor: as many as registers allow for scale, bias, a row of floats and the
 * next rows. */
constexpr int norm_blocks(int n, bool large)
{
    return n <= 8 ? 8 : n <= 16 ? 5 : n <= 24 ? 4 - large : 3 - large;
}

/* Scale and bias are constants, so they are read while the kernel in front still runs. */
template <class T, class Y, int N, bool BYTES>
__global__ void __launch_bounds__(WARPS *KERNEL_WARP, norm_blocks(N, sizeof(T) == 4))
    norm_many(struct rows r)
{
    constexpr int AHEAD = NORM_AHEAD<T>, V = 16 / sizeof(T);
    const T *x = static_cast<const T *>(r.x);
    float scale[N], bias[N];
    row_read<float, N, V, KERNEL_WARP>(r.scale, r.length, 0, scale);
    row_read<float, N, V, KERNEL_WARP>(r.bias, r.bias ? r.length : 0, 0, bias);
    grid_go();
    grid_wait();
    int warps = (int)(blockDim.x / KERNEL_WARP);
    const int n = (int)r.n, step = (int)gridDim.x * warps;
    int row = (int)blockIdx.x * warps + (int)threadIdx.x / KERNEL_WARP;
    row_raw<T, N> raw[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (row + i * step < n)
            raw[i].load(x + (int64_t)(row + i * step) * r.length, r.length);
    while (row < n) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (row >= n)
                break;
            float v[N];
            raw[i].floats(v);
            if (row + AHEAD * step < n)
                raw[i].load(x + (int64_t)(row + AHEAD * step) * r.length, r.length);
            float inverse = norm_centre<N, V, KERNEL_WARP>(r, v, nullptr);
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = v[k] * inverse * scale[k] + bias[k];
            uint32_t first = (uint32_t)row * (uint32_t)r.length;
            if (BYTES)
                row_write_bytes<N, V, KERNEL_WARP>(r.to, first, r.length, v);
            else
                row_write<EPILOGUE_NONE, Y, N, V, KERNEL_WARP>(static_cast<Y *>(r.y), first,
                                                               r.length, v, {});
            row += step;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(BLOCK)
    norm_long(struct rows r, const __grid_constant__ struct epilogue epilogue)
{
    KERNEL_SHARED(float, scratch);
    int64_t first = (int64_t)blockIdx.x * r.length;
    const T *x = static_cast<const T *>(r.x) + first;
    float mean = 0, squares = 0;
    if (!r.rms) {
        for (int i = (int)threadIdx.x; i < r.length; i += BLOCK)
            mean += number_float(x[i]);
        mean = reduce_block(mean, 0.0f, scratch, reduce_sum()) / (float)r.length;
    }
    for (int i = (int)threadIdx.x; i < r.length; i += BLOCK) {
        float off = number_float(x[i]) - mean;
        squares += off * off;
    }
    squares = reduce_block(squares, 0.0f, scratch, reduce_sum()) / (float)r.length;
    float inverse = 1.0f / sqrtf(squares + r.epsilon);
    for (int i = (int)threadIdx.x; i < r.length; i += BLOCK) {
        float v = (number_float(x[i]) - mean) * inverse * r.scale[i] + (r.bias ? r.bias[i] : 0.0f);
        static_cast<T *>(r.y)[first + i] =
            number_from<T>(epilogue_apply_one<EPILOGUE_ANY>(epilogue, v, (uint32_t)(first + i)));
    }
}

/* --- launching --- */

constexpr int LONGEST_OF_WARP = 32 * KERNEL_WARP;

/* The dispatchers call launch(tag<N, V, THREADS>()) for rows of this length, with vectors of V
 * elements: short rows have a warp each, long ones a block. cudaErrorNotSupported: a thread would
 * have more than 32 elements. */
template <int N, int V, int THREADS> struct tag {
    static const int elements = N, wide = V, threads = THREADS;
};

template <int V, class L> cudaError_t row_dispatch_short(int64_t length, L launch)
{
    if (length <= 8 * KERNEL_WARP)
        return launch(tag<8, V, KERNEL_WARP>());
    if (length <= 16 * KERNEL_WARP)
        return launch(tag<16, V, KERNEL_WARP>());
    if (length <= 24 * KERNEL_WARP)
        return launch(tag<24, V, KERNEL_WARP>());
    return length <= 32 * KERNEL_WARP ? launch(tag<32, V, KERNEL_WARP>()) : cudaErrorNotSupported;
}

template <int V, class L> cudaError_t row_dispatch_long(int64_t length, L launch)
{
    if (length <= 16 * BLOCK)
        return launch(tag<16, V, BLOCK>());
    return length <= 32 * BLOCK ? launch(tag<32, V, BLOCK>()) : cudaErrorNotSupported;
}

/* The same with fewer kernels, for what is rare: rows that begin anywhere, and epilogues. */
template <int V, class L> cudaError_t row_dispatch_few_short(int64_t length, L launch)
{
    if (length <= 8 * KERNEL_WARP)
        return launch(tag<8, V, KERNEL_WARP>());
    return length <= 32 * KERNEL_WARP ? launch(tag<32, V, KERNEL_WARP>()) : cudaErrorNotSupported;
}

template <int V, class L> cudaError_t row_dispatch_few(int64_t length, L launch)
{
    if (length <= 32 * KERNEL_WARP)
        return row_dispatch_few_short<V>(length, launch);
    return length <= 32 * BLOCK ? launch(tag<32, V, BLOCK>()) : cudaErrorNotSupported;
}

/* Calls launch(tag, epilogue_tag). Kernels for rows that begin anywhere ask for an epilogue as they
 * run. */
template <class T, class L>
cudaError_t row_dispatch(int64_t length, bool wide, const struct epilogue &e, L launch)
{
    epilogue_tag<EPILOGUE_ANY> any;
    epilogue_tag<EPILOGUE_NONE> none;
    if (!wide)
        return row_dispatch_few<1>(length, [&](auto t) { return launch(t, any); });
    if (e.mode != EPILOGUE_NONE)
        return row_dispatch_few<16 / sizeof(T)>(length, [&](auto t) { return launch(t, any); });
    auto plain = [&](auto t) { return launch(t, none); };
    return length <= LONGEST_OF_WARP ? row_dispatch_short<16 / sizeof(T)>(length, plain)
                                     : row_dispatch_long<16 / sizeof(T)>(length, plain);
}

/* Short rows have a warp each, and blocks have one warp while there are fewer rows than the device
 * could run at a time. */
dim3 block_of(const struct kernel_call *call, int64_t rows, int threads)
{
    int64_t processors = kernel_multiprocessors(call);
    int rows_a_block = threads == BLOCK || rows < 4 * WARPS * processors ? 1 : WARPS;
    return dim3((unsigned)(threads * rows_a_block));
}

bool aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

constexpr size_t SCRATCH = KERNEL_WARP * sizeof(float);

/* The dims of y without those of `axis`, innermost first, merged where both x and y allow it. */
void outer_make(const struct kernel_view *x, const struct kernel_view *y, int32_t axis,
                struct outer *out)
{
    int64_t dim[KERNEL_RANK_MAX];
    int order[KERNEL_RANK_MAX], n = 0;
    *out = outer();
    for (int d = 0; d < y->rank; d++) {
        if (d == axis || y->dim[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && y->stride[order[at - 1]] > y->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < n; i++) {
        int d = order[i], last = out->rank - 1;
        if (last >= 0 && x->stride[d] == out->x[last] * dim[last] &&
            y->stride[d] == (int64_t)out->y[last] * dim[last]) {
            dim[last] *= y->dim[d];
            continue;
        }
        out->x[out->rank] = x->stride[d];
        out->y[out->rank] = (uint32_t)y->stride[d];
        dim[out->rank++] = y->dim[d];
    }
    for (int i = 0; i < out->rank; i++)
        out->dim[i] = divider_make((uint32_t)dim[i]);
}

template <class T>
cudaError_t launch_softmax(const struct kernel_call *call, const struct rows &r,
                           const struct outer &outer, bool side_by_side, const struct epilogue &e)
{
    if (!side_by_side || outer.rank > 1)
        return KERNEL_LAUNCH(softmax_strided<T>, (unsigned)kernel_ceil_div(r.n, BLOCK), BLOCK, 0,
                             call, r, outer, e);
    struct rows dense = r; /* from here on strides lead from row to row */
    dense.x_stride = outer.rank ? outer.x[0] : r.length;
    dense.y_stride = outer.rank ? outer.y[0] : (uint32_t)r.length;
    constexpr int V = 16 / sizeof(T);
    bool wide = r.length % V == 0 && dense.x_stride % V == 0 && dense.y_stride % V == 0 &&
                aligned(r.x) && aligned(r.y);
    if (r.length > 32 * BLOCK)
        return KERNEL_LAUNCH(softmax_long<T>, (unsigned)r.n, BLOCK, SCRATCH, call, dense, e);
    return row_dispatch<T>(r.length, wide, e, [&](auto t, auto mode) {
        using S = decltype(t);
        dim3 block = block_of(call, r.n, S::threads);
        int64_t blocks = kernel_ceil_div(r.n, block.x / S::threads);
        return KERNEL_LAUNCH(
            (softmax_kernel<T, S::elements, S::wide, S::threads, decltype(mode)::value>),
            (unsigned)blocks, block, SCRATCH, call, dense, e);
    });
}

/* Launches as many blocks as the device has room for at a time. No warp has two rows more than
 * another one. */
template <class T, class Y, bool BYTES, class S>
cudaError_t launch_norm_many(const struct kernel_call *call, const struct rows &r, S)
{
    dim3 block = block_of(call, r.n, KERNEL_WARP);
    int64_t warps = block.x / KERNEL_WARP, processors = kernel_multiprocessors(call),
            room = processors * norm_blocks(S::elements, sizeof(T) == 4) * WARPS;
    int64_t walkers = kernel_ceil_div(r.n, kernel_ceil_div(r.n, room));
    return kernel_launch_early(norm_many<T, Y, S::elements, BYTES>,
                               dim3((unsigned)kernel_ceil_div(walkers, warps)), block, 0, call, r);
}

template <class T, class Y, int MODE, bool BYTES, class S>
cudaError_t launch_norm_kernel(const struct kernel_call *call, const struct rows &r,
                               const struct epilogue &e, S)
{
    dim3 block = block_of(call, r.n, S::threads);
    int64_t blocks = kernel_ceil_div(r.n, block.x / S::threads);
    return kernel_launch_early(norm_kernel<T, Y, S::elements, S::wide, S::threads, MODE, BYTES>,
                               dim3((unsigned)blocks), block, SCRATCH, call, r, e);
}

/* `wide`: with vectors. */
template <class T>
cudaError_t launch_norm_widened(const struct kernel_call *call, const struct rows &r, bool wide)
{
    if (wide)
        return row_dispatch_short<16 / sizeof(T)>(
            r.length, [&](auto t) { return launch_norm_many<T, float, false>(call, r, t); });
    return row_dispatch_few_short<1>(r.length, [&](auto t) {
        return launch_norm_kernel<T, float, EPILOGUE_NONE, false>(call, r, {}, t);
    });
}

template <class T, bool BYTES>
cudaError_t launch_norm(const struct kernel_call *call, const struct rows &r,
                        const struct epilogue &e)
{
    constexpr int V = 16 / sizeof(T);
    bool wide =
        r.length % V == 0 && aligned(r.x) && aligned(r.y) && aligned(r.scale) && aligned(r.bias);
    auto plain = [&](auto t) {
        return launch_norm_kernel<T, T, EPILOGUE_NONE, BYTES>(call, r, e, t);
    };
    constexpr int ANY = BYTES ? EPILOGUE_NONE : EPILOGUE_ANY;
    auto any = [&](auto t) { return launch_norm_kernel<T, T, ANY, BYTES>(call, r, e, t); };
    if constexpr (!BYTES && sizeof(T) == 2)
        if (r.widen)
            return launch_norm_widened<T>(call, r, wide);
    if (!BYTES && r.length > 32 * BLOCK)
        return KERNEL_LAUNCH(norm_long<T>, (unsigned)r.n, BLOCK, SCRATCH, call, r, e);
    if (!wide)
        return row_dispatch_few<1>(r.length, any);
    if (!BYTES && e.mode != EPILOGUE_NONE)
        return row_dispatch_few<V>(r.length, any);
    if (r.length > LONGEST_OF_WARP)
        return row_dispatch_long<V>(r.length, plain);
    return row_dispatch_short<V>(r.length,
                                 [&](auto t) { return launch_norm_many<T, T, BYTES>(call, r, t); });
}

template <class T>
cudaError_t launch_norm_to(const struct kernel_call *call, const struct rows &r,
                           const struct epilogue &e)
{
    return r.to.step != 0 ? launch_norm<T, true>(call, r, e) : launch_norm<T, false>(call, r, e);
}

/* Whether the view is row-major without gaps; strides along dims of one element do not matter. */
bool is_dense(const struct kernel_view *v)
{
    int64_t n = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->dim[d] != 1 && v->stride[d] != n)
            return false;
        n *= v->dim[d];
    }
    return true;
}

bool same_dims(const struct kernel_view *a, const struct kernel_view *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

} // namespace

extern "C" cudaError_t kernel_softmax(const struct kernel_call *call, int32_t axis, bool log,
                                      const struct kernel_view *x, const struct kernel_view *y,
                                      const struct kernel_epilogue *epilogue)
{
    struct epilogue e;
    struct rows r = {};
    struct outer outer;
    if (axis < 0 || axis >= x->rank || y->step != 0 || x->dtype != y->dtype || !same_dims(x, y) ||
        !epilogue_make(epilogue, y, &e) || kernel_elements(y) >= INT32_MAX)
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    r.x = x->data;
    r.y = y->data;
    r.length = (int32_t)x->dim[axis];
    r.n = kernel_elements(y) / r.length;
    r.log = log;
    r.x_stride = x->stride[axis];
    r.y_stride = (uint32_t)y->stride[axis];
    outer_make(x, y, axis, &outer);
    bool side_by_side = r.length == 1 || (r.x_stride == 1 && r.y_stride == 1);
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_softmax<half_t>(call, r, outer, side_by_side, e);
    case DTYPE_BF16:
        return launch_softmax<bf16_t>(call, r, outer, side_by_side, e);
    case DTYPE_F32:
        return launch_softmax<float>(call, r, outer, side_by_side, e);
    default:
        return cudaErrorNotSupported;
    }
}

extern "C" cudaError_t kernel_layer_norm(const struct kernel_call *call, int32_t axis, bool rms,
                                         float epsilon, const struct kernel_view *x,
                                         const float *scale, const float *bias,
                                         const struct kernel_view *y,
                                         const struct kernel_epilogue *epilogue)
{
    struct epilogue e;
    struct rows r = {};
    r.widen = y->dtype == DTYPE_F32 && x->dtype != DTYPE_F32;
    bool same = x->dtype == y->dtype && y->step == 0;
    if (axis < 0 || axis > x->rank || !same_dims(x, y) || !is_dense(x) || !is_dense(y) ||
        !epilogue_make(epilogue, y, &e) || kernel_elements(y) >= INT32_MAX ||
        (!same && !(y->step != 0 ? side_scaled(y) : r.widen)) || (!same && e.n > 0))
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    r.to = side_of(y);
    r.length = 1;
    for (int d = axis; d < x->rank; d++)
        r.length *= (int32_t)x->dim[d];
    r.n = kernel_elements(y) / r.length;
    r.x = x->data;
    r.y = y->data;
    r.scale = scale;
    r.bias = bias;
    r.epsilon = epsilon;
    r.share = 1.0f / (float)r.length;
    r.rms = rms;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_norm_to<half_t>(call, r, e);
    case DTYPE_BF16:
        return launch_norm_to<bf16_t>(call, r, e);
    case DTYPE_F32:
        return launch_norm_to<float>(call, r, e);
    default:
        return cudaErrorNotSupported;
    }
}
