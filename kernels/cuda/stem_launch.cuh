/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of stem.cuh, and its launcher. */
#ifndef INFERD_KERNELS_CUDA_STEM_LAUNCH_CUH
#define INFERD_KERNELS_CUDA_STEM_LAUNCH_CUH

#include "kernels/cuda/stem_build.cuh"
#include "kernels/cuda/stem_keep.cuh"

namespace stem
{

/* Weights are packed as they lie in shared memory. */
template <class S>
__device__ __forceinline__ void fetch_weights(unsigned char *to, const job &j, int group)
{
    const uint4 *from = static_cast<const uint4 *>(j.weights) + group * (S::WEIGHTS / 16);
    for (int i = (int)threadIdx.x; i < S::WEIGHTS / 16; i += THREADS)
        shared_put(to + i * 16, __ldg(from + i));
    proxy_fence();
}

template <class S>
__global__ void __launch_bounds__(THREADS, BLOCKS) kernel(const __grid_constant__ job j)
{
    KERNEL_SHARED(unsigned char, raw);
    room<S> r(raw);
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            mbarrier_init(r.full + i, HALVES);
            mbarrier_init(r.empty + i, WARPS);
        }
    } /* no copies know of these: __syncthreads is enough */
    fetch_weights<S>(r.weights, j, (int)blockIdx.x % j.groups); /* no kernel writes weights */
    __syncthreads();
    grid_go();
    grid_wait();
    if (threadIdx.x < HOPPER_WARPGROUP)
        consumer<S>(r, j).run();
    else
        build<S>(r, j);
}

/* --- launching --- */

/* The first tap's cell, and the pixels of its cell that the window begins behind. */
inline int first_cell(int pad)
{
    return -((pad + 1) / 2);
}

template <class S> struct job job_of(const struct kernel_stem &p)
{
    struct job j = {};
    int left = first_cell(p.pad[1]);
    j.x = p.x, j.weights = p.weights, j.bias = p.bias, j.scale = p.scale, j.y = p.y;
    j.height = (int)p.in[0], j.width = (int)p.in[1], j.channels = (int)p.channels;
    j.tall = (int)p.out[0], j.wide = (int)p.out[1];
    j.rows = p.pool ? (j.tall + 1) / 2 : j.tall;
    j.columns = p.pool ? (j.wide + 1) / 2 : j.wide;
    j.filters = (int)p.filters;
    j.tiles = p.pool ? max((j.columns - 1 + COLUMNS / 2 - 2) / (COLUMNS / 2 - 1), 1)
                     : (j.wide + COLUMNS - 1) / COLUMNS;
    j.groups = (j.filters + SLAB - 1) / SLAB;
    j.up = first_cell(p.pad[0]);
    j.odd = left & 1;
    j.left = left - j.odd;
    j.pool = p.pool, j.relu = p.relu;
    j.whole = j.width % 4 == 0;
    j.last = p.last && j.whole;
    j.plane = p.last ? 1 : j.height * j.width;
    j.down = p.last ? j.width * j.channels : j.width;
    j.right = p.last ? j.channels : 1;
    for (int i = 0; i < 4; i++)
        j.shift[i] = p.shift[i];
    j.outside = (uint32_t)(p.zero & 0xff) * 0x01010101u;
    j.step = p.step, j.inverse = 1 / p.step, j.zero = (float)p.zero;
    j.least = ((p.q_dtype == DTYPE_I8 ? -128.0f : 0.0f) - j.zero) * p.step;
    j.most = ((p.q_dtype == DTYPE_I8 ? 127.0f : 255.0f) - j.zero) * p.step;
    j.low = p.low, j.high = p.high;
    return j;
}

/* The kernel counts lines in 31 bits. */
inline bool counts(const struct kernel_stem &p)
{
    const int64_t most = INT32_MAX / 4, side = 1 << 20;
    bool fits = p.images >= 1 && p.filters >= 2 && p.filters <= most && p.filters % 2 == 0;
    fits = fits && p.in[0] * p.in[1] <= most;
    for (int i = 0; i < 2; i++)
        fits = fits && p.in[i] >= 1 && p.in[i] <= side && p.out[i] >= 1 && p.out[i] <= side;
    return fits && p.images <= most / (p.out[0] * ((p.out[1] + COLUMNS - 1) / COLUMNS + 1));
}

template <class S>
cudaError_t launch_of(const struct kernel_call *call, const struct kernel_stem &p)
{
    if (!counts(p))
        return cudaErrorNotSupported;
    struct job j = job_of<S>(p);
    int64_t items = p.images * j.tiles * j.rows;
    int multiprocessors = kernel_multiprocessors(call);
    j.items = (int)items;
    int blocks = max(min((int)items, BLOCKS * multiprocessors / j.groups), 1) * j.groups;
    return hopper_launch(kernel<S>, (unsigned)blocks, 1, THREADS, S::SHARED, call, j);
}

/* The kernel with so many taps of cells along a side. */
template <class T, class X, bool DEEP>
cudaError_t launch_taps(const struct kernel_call *call, const struct kernel_stem &p)
{
    return kernel_stem_taps(&p) == 2 ? launch_of<shape<T, X, 2, DEEP>>(call, p)
                                     : launch_of<shape<T, X, 4, DEEP>>(call, p);
}

template <class T, class X>
cudaError_t launch(const struct kernel_call *call, const struct kernel_stem &p)
{
    if constexpr (sizeof(T) == 1)
        return launch_taps<T, X, false>(call, p);
    else
        return p.channels == 4 ? launch_taps<T, X, true>(call, p)
                               : launch_taps<T, X, false>(call, p);
}

} // namespace stem

#endif
