/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bytes of few rows: split.cuh, with what tile.cuh does to sums. Blocks send each other
 * integers, so that a result does not depend on how many there are. Of two sources they send floats
 * in units of the second one: for integers each block would have to round its part. 8 columns of a
 * row are 8 bytes, or 16 if results are wide, which a thread reads of the residual and writes by
 * itself.
 */
#ifndef INFERD_KERNELS_CUDA_TILE_SPLIT_CUH
#define INFERD_KERNELS_CUDA_TILE_SPLIT_CUH

#include "kernels/cuda/split.cuh"
#include "kernels/cuda/tile.cuh"

namespace tile
{

struct split_job : job {
    int rows, cols;
    bool floats; /* that blocks send, in place of integers */
    bool wide;
    const unsigned char *from; /* residuals */
    unsigned char *y;
};

/* One row's 8 columns. Columns are multiples of 8: all of them are there, or none. */
template <class K> struct split_operands {
    static constexpr int FOURS = split::LANE / 4;
    float4 scale[FOURS], bias[FOURS];
    uint2 z[FOURS];           /* 0 without a residual; y: of wide ones */
    int32_t sum[split::LANE]; /* or floats as they lie */
    bool there;
    __device__ __forceinline__ split_operands(const split_job &j, int row, int column)
        : z{}, sum{}, there(row < j.rows && column < j.cols)
    {
        /* The first 4 of each of a line's four threads lie in front of their last 4. */
        int number = column - column % split::PART + column % split::PART / split::LANE * 4;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            scale[i] = __ldg(reinterpret_cast<const float4 *>(j.scale + number + 16 * i));
            bias[i] = __ldg(reinterpret_cast<const float4 *>(j.bias + number + 16 * i));
        }
        if (there && j.residual) {
            const int64_t at = (int64_t)row * j.cols + column;
            if (j.wide) {
                uint4 v = __ldg(reinterpret_cast<const uint4 *>(j.from + 2 * at));
                z[0] = make_uint2(v.x, v.y), z[1] = make_uint2(v.z, v.w);
            } else {
                uint2 v = __ldg(reinterpret_cast<const uint2 *>(j.from + at));
                z[0].x = v.x, z[1].x = v.y;
            }
        }
    }
    __device__ __forceinline__ void add(const split_job &j, const uint4 &low, const uint4 &high)
    {
        const uint32_t w[split::LANE] = {low.x,  low.y,  low.z,  low.w,
                                         high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < split::LANE; i++)
            sum[i] = j.floats ? __float_as_int(__int_as_float(sum[i]) + __uint_as_float(w[i]))
                              : sum[i] + (int32_t)w[i];
    }
    __device__ __forceinline__ void store(const split_job &j, int row, int column)
    {
        uint2 out[FOURS] = {};
        const int64_t at = (int64_t)row * j.cols + column;
        if (!there)
            return;
#pragma unroll
        for (int i = 0; i < FOURS; i++) {
            float four[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                four[k] = j.floats ? __int_as_float(sum[4 * i + k]) : (float)sum[4 * i + k];
            if (j.wide)
                out[i] = finish_wide<true, true>(j, four, scale[i], bias[i], z[i]);
            else
                out[i].x = K::template finish<true, true>(j, four, scale[i], bias[i], z[i].x);
        }
        if (j.wide)
            *reinterpret_cast<uint4 *>(j.y + 2 * at) =
                make_uint4(out[0].x, out[0].y, out[1].x, out[1].y);
        else
            *reinterpret_cast<uint2 *>(j.y + at) = make_uint2(out[0].x, out[1].x);
    }
};

template <class X, int COLUMNS, int STAGES, int LINE>
struct split_shape : split::shape<COLUMNS, STAGES, LINE> {
    typedef kind<X> K;
    typedef typename K::Sum Sum;
    typedef split_job job;
    typedef split_operands<K> operands;
    static constexpr bool FLOATS = number_of<X>::dtype == DTYPE_F8;
    static constexpr int TALL = split::SLAB;
    __device__ static __forceinline__ void product(Sum (&sum)[COLUMNS / 2], uint64_t a, uint64_t b,
                                                   int keep)
    {
        K::multiply(sum, a, b, keep);
    }
    /* The block's products of a source, of whose steps it may have none. */
    __device__ static __forceinline__ void source(split::work<split_shape> &steps, int end,
                                                  Sum (&sum)[COLUMNS / 2])
    {
        if (steps.k < end) {
            steps.until(end, sum);
            return;
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            sum[i] = 0;
    }
    __device__ static __forceinline__ void multiply(split::work<split_shape> &steps, int column,
                                                    Sum (&sum)[COLUMNS / 2])
    {
        const job &j = steps.j.job;
        if (j.deep.first == j.deep.steps) { /* one source */
            steps.until(j.deep.steps, sum);
            return;
        }
        float first[COLUMNS / 2];
        source(steps, j.deep.first, sum);
        each_ratio<COLUMNS / 2>(j, column,
                                [&](int i, float ratio) { first[i] = (float)sum[i] * ratio; });
        source(steps, j.deep.steps, sum);
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++)
            if constexpr (FLOATS)
                sum[i] += first[i];
            else
                sum[i] = (Sum)word_of(first[i] + (float)sum[i]);
    }
};

/* Results and residuals of a lane at a time. */
inline bool split_stores(const struct kernel_tile &p)
{
    const uintptr_t whole = split::LANE * (is_wide(p) ? 2 : 1);
    return p.cols % split::LANE == 0 && (uintptr_t)p.y % whole == 0 &&
           (uintptr_t)p.residual % whole == 0;
}

template <class S, int BLOCKS>
cudaError_t launch_split(const struct kernel_call *call, const struct kernel_tile &p)
{
    if (!counts(p, S::LINE, S::COLUMNS) || !split_stores(p))
        return cudaErrorNotSupported;
    struct split::todo<split_job> j = {
        {}, BLOCKS, (int)min(p.rows, (int64_t)split::SLAB)
    };
    struct hopper_sources from = sources_of<S>(p, j.tall);
    if (!hopper_sources_fit(&from))
        return cudaErrorNotSupported;
    static_cast<job &>(j.job) = job_of<S>(p, from);
    j.job.rows = (int)p.rows;
    j.job.cols = (int)p.cols;
    j.job.wide = is_wide(p);
    j.job.floats = S::FLOATS || from.n > 1;
    j.job.from = static_cast<const unsigned char *>(p.residual);
    j.job.y = static_cast<unsigned char *>(p.y);
    if (!split::is_for(call, BLOCKS, (int64_t)j.job.m_tiles * j.job.n_tiles, j.job.deep.steps))
        return cudaErrorNotSupported;
    return call->dry ? cudaSuccess : split::launch<S>(call, from, j);
}

} // namespace tile

#endif
