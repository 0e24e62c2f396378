/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 16-bit floats of few rows: split.cuh, with what matmul.cuh does to sums. */
#ifndef INFERD_KERNELS_CUDA_MATMUL_SPLIT_CUH
#define INFERD_KERNELS_CUDA_MATMUL_SPLIT_CUH

#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/split.cuh"

namespace matmul
{

/* One row's 8 columns. */
template <class T> struct split_operands {
    uint4 bias, residual;
    int left; /* columns that there are */
    float v[LANE];
    __device__ __forceinline__ split_operands(const job &j, int row, int column)
        : bias(make_uint4(0, 0, 0, 0)), residual(bias),
          left(row < j.rows ? j.cols - column : 0), v{}
    {
        if (left > 0 && j.bias)
            bias = fetch<any_results>(j.bias, column, left, j.whole);
        if (left > 0 && j.residual)
            residual =
                fetch<any_results>(j.residual, (int64_t)row * j.cols + column, left, j.whole);
    }
    __device__ __forceinline__ void add(const job &, const uint4 &low, const uint4 &high)
    {
        const uint32_t w[LANE] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < LANE; i++)
            v[i] += __uint_as_float(w[i]);
    }
    __device__ __forceinline__ void store(const job &j, int row, int column)
    {
        if (left <= 0)
            return;
        row_steps<T>(j, bias, residual, v);
        const int64_t at = (int64_t)row * j.cols + column;
        if (j.wide)
            put_wide(j, at);
        else
            put<T, any_results>(j.y, at, left, j.whole, v, 0);
    }
    __device__ __forceinline__ void put_wide(const job &j, int64_t at) const
    {
        float *to = static_cast<float *>(j.y) + at;
        if (j.whole) { /* columns are multiples of LANE */
            reinterpret_cast<float4 *>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
            reinterpret_cast<float4 *>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
            return;
        }
#pragma unroll
        for (int i = 0; i < LANE; i++)
            if (i < left)
                to[i] = v[i];
    }
};

template <class T_, int COLUMNS, int STAGES>
struct split_shape : split::shape<COLUMNS, STAGES, LINE> {
    typedef T_ T;
    typedef float Sum;
    typedef struct job job;
    typedef split_operands<T> operands;
    __device__ static __forceinline__ void product(Sum (&sum)[COLUMNS / 2], uint64_t a, uint64_t b,
                                                   int keep)
    {
        wgmma<T>(sum, a, b, keep);
    }
    __device__ static __forceinline__ void multiply(split::work<split_shape> &steps, int,
                                                    Sum (&sum)[COLUMNS / 2])
    {
        steps.until(steps.j.job.deep.steps, sum);
    }
};

template <class S, int BLOCKS>
cudaError_t launch_split(const struct kernel_call *call, const struct kernel_matmul &p)
{
    if (!counts(p, SLAB, S::COLUMNS))
        return cudaErrorNotSupported;
    struct split::todo<job> j = {
        job_of(p, SLAB, S::COLUMNS), BLOCKS, (int)min(p.rows, (int64_t)SLAB)
    };
    struct hopper_sources from = sources_of(p, number_of<typename S::T>::dtype, j.tall, S::COLUMNS);
    if (!hopper_sources_fit(&from))
        return cudaErrorNotSupported;
    j.job.deep = hopper_sources_depth(&from);
    if (!split::is_for(call, BLOCKS, (int64_t)j.job.m_tiles * j.job.n_tiles, j.job.deep.steps))
        return cudaErrorNotSupported;
    return call->dry ? cudaSuccess : split::launch<S>(call, from, j);
}

} // namespace matmul

#endif
