/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of 8 bits that tile.cuh and its relatives multiply: what their sums are, and how
 * results are made of them.
 *
 *   integers  sums are integers, and everything behind them is counted in steps of y, unless there
 *             is an activation that bends. UINT8 is computed as INT8: q - 128 is q with its highest
 *             bit turned
 *   floats    (E4M3) sums are fp32, and what is behind them are real numbers, since an activation
 *             that bends may be among it
 *   wide      results and residuals of 16 bits behind sums of either kind: real numbers as well
 */
#ifndef INFERD_KERNELS_CUDA_TILE_KIND_CUH
#define INFERD_KERNELS_CUDA_TILE_KIND_CUH

#include <cfloat>

#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/hopper_mma.cuh"
#include "kernels/cuda/hopper_window.cuh"

namespace tile
{

struct job {
    int m_tiles, n_tiles;
    struct hopper_depth deep;
    const float *scale, *bias, *ratio; /* ratio: units of the first source in those of the second */
    const float *most;                 /* no sum of the first source is above it, in these units */
    float residual_step, low, high;
    uint32_t residual_turn, turn; /* the highest bits of four bytes of U8 */
    uint32_t cut;                 /* of integers: all bits if negative results are 0 */
    bool residual, limited;       /* limited: by `low` or `high`; integers: not by `cut` alone */
    int func;                     /* enum ir_unary, and all below: of real numbers */
    float alpha, to, zero;        /* zero: of integers */
    bool late, bent, bf16;        /* bent: needs the long code; bf16: else f16, of wide results */
};

constexpr float NEAR_MOST = 4194304.0f; /* 2^22 */

__device__ __forceinline__ int nearest(float x)
{
#ifdef INFERD_EMULATE
    return x != x ? 0 : (int)fminf(fmaxf(rintf(x), -1e9f), 1e9f);
#else
    return __float2int_rn(x);
#endif
}

#ifdef INFERD_EMULATE
inline uint32_t saturated(int v)
{
    return (uint32_t)(uint8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}
#endif

/* Four integers, saturated, the first one lowest. */
__device__ __forceinline__ uint32_t four_bytes(int a, int b, int c, int d)
{
#ifdef INFERD_EMULATE
    return saturated(a) | saturated(b) << 8 | saturated(c) << 16 | saturated(d) << 24;
#else
    uint32_t high, word;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(d), "r"(c));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(b), "r"(a), "r"(high));
    return word;
#endif
}

/* All bits of those bytes of four whose highest one is set. */
__device__ __forceinline__ uint32_t signs_of(uint32_t word)
{
#ifdef INFERD_EMULATE
    return (word >> 7 & 0x01010101u) * 0xffu;
#else
    uint32_t signs;
    asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(signs) : "r"(word));
    return signs;
#endif
}

/* Byte i of four, which are 128 more than what they stand for. Put into the mantissa of 2^23 it is
 * a float after two instructions of the usual kind; there are few units that convert bytes. */
__device__ __forceinline__ float byte_float(uint32_t raised, int i)
{
    return __uint_as_float(__byte_perm(raised, 0x4b000000u, 0x7540 + i)) - 8388736.0f;
}

/* --- results that are computed as real numbers --- */

/* What happens to four of them, z being their residuals. BENT: there may be an activation. */
template <bool RESIDUAL, bool BENT>
__device__ __forceinline__ void bend(const job &j, float (&v)[4], const float (&z)[4])
{
    const float before = BENT && j.late ? 0 : j.residual_step;
    const float behind = j.late ? j.residual_step : 0;
#pragma unroll
    for (int i = 0; i < 4 && RESIDUAL; i++)
        v[i] = fmaf(z[i], before, v[i]);
    if (BENT)
        activate::values(j.func, j.alpha, v);
#pragma unroll
    for (int i = 0; i < 4 && RESIDUAL && BENT; i++)
        v[i] = fmaf(z[i], behind, v[i]);
    if (j.limited)
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] = v[i] < j.low ? j.low : v[i] > j.high ? j.high : v[i]; /* NaN stays */
}

/* Four neighbouring results of 16 bits; z: their residuals as they lie in memory. */
template <bool RESIDUAL, bool BENT>
__device__ __forceinline__ uint2 finish_wide(const job &j, const float (&sum)[4], const float4 &s,
                                             const float4 &b, const uint2 &z)
{
    float v[4] = {fmaf(sum[0], s.x, b.x), fmaf(sum[1], s.y, b.y), fmaf(sum[2], s.z, b.z),
                  fmaf(sum[3], s.w, b.w)};
    float2 low = make_float2(0, 0), high = low;
    if (RESIDUAL) {
        low = j.bf16 ? pair_floats<bf16_t>(z.x) : pair_floats<half_t>(z.x);
        high = j.bf16 ? pair_floats<bf16_t>(z.y) : pair_floats<half_t>(z.y);
    }
    const float w[4] = {low.x, low.y, high.x, high.y};
    bend<RESIDUAL, BENT>(j, v, w);
    return j.bf16 ? make_uint2(pair_of<bf16_t>(v[0], v[1]), pair_of<bf16_t>(v[2], v[3]))
                  : make_uint2(pair_of<half_t>(v[0], v[1]), pair_of<half_t>(v[2], v[3]));
}

/* --- kinds --- */

/* X: int8_t or uint8_t, by weights of int8_t. */
template <class X> struct kind {
    typedef int32_t Sum;
    template <int R>
    __device__ static __forceinline__ void multiply(Sum (&sum)[R], uint64_t x, uint64_t weights,
                                                    int keep)
    {
        wgmma_bytes<X, int8_t>(sum, x, weights, keep);
    }
    /* With the weights as the product's rows. */
    template <int R>
    __device__ static __forceinline__ void multiply_turned(Sum (&sum)[R], uint64_t weights,
                                                           uint64_t x, int keep)
    {
        wgmma_bytes<int8_t, X>(sum, weights, x, keep);
    }
    /* sum * ratio, rounded. NEAR: it is less than NEAR_MOST. Then the sum of it and 1.5 * 2^23 has
     * it in its lowest bits: there are few units that convert to integers. */
    template <bool NEAR> __device__ static __forceinline__ Sum converted(float sum, float ratio)
    {
        const float high = 12582912.0f;
        return NEAR ? __float_as_int(fmaf(sum, ratio, high)) - __float_as_int(high)
                    : nearest(sum * ratio);
    }
    /* Four neighbouring results; z: their residuals as they lie in memory. Without BENT their only
     * limits are those of a byte, and 0: conversions keep the first, one operation for four of them
     * the second. There are half as many units for a minimum as for a product. */
    template <bool RESIDUAL, bool BENT>
    __device__ static __forceinline__ uint32_t finish(const job &j, const float (&sum)[4],
                                                      const float4 &s, const float4 &b, uint32_t z)
    {
        float v[4] = {fmaf(sum[0], s.x, b.x), fmaf(sum[1], s.y, b.y), fmaf(sum[2], s.z, b.z),
                      fmaf(sum[3], s.w, b.w)};
        z ^= j.residual_turn ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 4 && RESIDUAL; i++)
            v[i] = fmaf(byte_float(z, i), j.residual_step, v[i]);
        if (BENT && j.func != IR_UNARY_IDENTITY) {
            activate::values(j.func, j.alpha, v);
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = fmaf(v[i], j.to, j.zero);
        }
        if (BENT)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = fminf(fmaxf(v[i], j.low), j.high);
        uint32_t y = four_bytes(nearest(v[0]), nearest(v[1]), nearest(v[2]), nearest(v[3]));
        return (BENT ? y : y & ~(signs_of(y) & j.cut)) ^ j.turn;
    }
};

/* The first one lies lowest. */
__device__ __forceinline__ void four_floats(uint32_t word, float (&v)[4])
{
#ifdef INFERD_EMULATE
    for (int i = 0; i < 4; i++) {
        f8_t one = {(unsigned char)(word >> 8 * i)};
        v[i] = number_float(one);
    }
#else
#pragma unroll
    for (int i = 0; i < 2; i++) {
        __half2_raw raw =
            __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(word >> 16 * i), __NV_E4M3);
        float2 two = __half22float2(__half2(raw));
        v[2 * i] = two.x;
        v[2 * i + 1] = two.y;
    }
#endif
}

/* Rounded, saturated. */
__device__ __forceinline__ uint32_t four_bytes(const float (&v)[4])
{
#ifdef INFERD_EMULATE
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)number_f8(v[i]) << 8 * i;
    return word;
#else
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, __NV_E4M3);
    uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(v[2], v[3]), __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
#endif
}

template <> struct kind<f8_t> {
    typedef float Sum;
    template <int R>
    __device__ static __forceinline__ void multiply(Sum (&sum)[R], uint64_t x, uint64_t weights,
                                                    int keep)
    {
        wgmma<f8_t>(sum, x, weights, keep);
    }
    template <int R>
    __device__ static __forceinline__ void multiply_turned(Sum (&sum)[R], uint64_t weights,
                                                           uint64_t x, int keep)
    {
        wgmma<f8_t>(sum, weights, x, keep);
    }
    template <bool NEAR> __device__ static __forceinline__ Sum converted(float sum, float ratio)
    {
        return sum * ratio;
    }
    template <bool RESIDUAL, bool BENT>
    __device__ static __forceinline__ uint32_t finish(const job &j, const float (&sum)[4],
                                                      const float4 &s, const float4 &b, uint32_t z)
    {
        float v[4] = {fmaf(sum[0], s.x, b.x), fmaf(sum[1], s.y, b.y), fmaf(sum[2], s.z, b.z),
                      fmaf(sum[3], s.w, b.w)};
        float w[4] = {};
        if (RESIDUAL)
            four_floats(z, w);
        bend<RESIDUAL, BENT>(j, v, w);
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] *= j.to;
        return four_bytes(v);
    }
};

} // namespace tile

#endif
