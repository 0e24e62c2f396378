/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over the lanes of a warp and over a block. All lanes, or threads, take part. */
#ifndef INFERD_KERNELS_CUDA_REDUCE_CUH
#define INFERD_KERNELS_CUDA_REDUCE_CUH

#include "kernels/cuda/device.cuh"

struct reduce_sum {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a + b;
    }
};
struct reduce_prod {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a * b;
    }
};
/* A NaN wins, as in the reference. */
struct reduce_max {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a != a || a > b ? a : b;
    }
};
struct reduce_min {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a != a || a < b ? a : b;
    }
};

/* Reduces over groups of WIDTH consecutive lanes (a power of two); every lane gets the result. */
template <int WIDTH = KERNEL_WARP, class T, class Op>
__device__ __forceinline__ T reduce_warp(T value, Op op)
{
#pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset /= 2)
        value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

/* Reduces over the block, of a multiple of 32 threads (blockDim.x alone counts); every thread gets
 * the result. `scratch`: 32 elements of shared memory, free to be used again after the call.
 * `empty`: the value that changes nothing (0 for a sum). */
template <class T, class Op>
__device__ __forceinline__ T reduce_block(T value, T empty, T *scratch, Op op)
{
    int lane = (int)(threadIdx.x % KERNEL_WARP), warp = (int)(threadIdx.x / KERNEL_WARP);
    int warps = (int)(blockDim.x / KERNEL_WARP);
    value = reduce_warp(value, op);
    if (warps == 1)
        return value;
    if (lane == 0)
        scratch[warp] = value;
    __syncthreads();
    value = reduce_warp(lane < warps ? scratch[lane] : empty, op);
    __syncthreads();
    return value;
}

#endif
