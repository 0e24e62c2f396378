/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels_cuda/probe.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"

static __global__ void block_sum(const float *x, int n, float *y)
{
    __shared__ float scratch[KERNEL_WARP];
    float sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        sum += x[i];
    sum = reduce_block(sum, 0.0f, scratch, reduce_sum());
    if (threadIdx.x == blockDim.x - 1)
        y[0] = sum;
}

cudaError_t probe_block_sum(const float *x, int n, float *y)
{
    return KERNEL_LAUNCH(block_sum, 1, 96, 0, (cudaStream_t)0, x, n, y);
}

/* a's rows are 16 halves; b is given [16][8]: its fragments come from ldmatrix.trans. */
template <class T> static __global__ void mma_once(const uint16_t *a, const uint16_t *b, float *d)
{
    KERNEL_SHARED(uint16_t, tile);
    uint16_t *to_a = tile, *to_b = tile + 256;
    int lane = (int)threadIdx.x;
    copy_async_16(to_a + lane * 8, a + lane * 8);
    copy_async_commit();
    if (lane < 16)
        copy_async_16(to_b + lane * 8, b + lane * 8);
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
    uint32_t fa[4], fb[2];
    ldmatrix_x4(fa, to_a + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix_x2_trans(fb, to_b + lane % 16 * 8);
    float acc[4] = {0, 0, 0, 0};
    mma_m16n8k16(T(), acc, fa, fb);
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

cudaError_t probe_mma(int bf16, const uint16_t *a, const uint16_t *b, float *d)
{
    return bf16 ? KERNEL_LAUNCH(mma_once<bf16_t>, 1, 32, 768, (cudaStream_t)0, a, b, d)
                : KERNEL_LAUNCH(mma_once<half_t>, 1, 32, 768, (cudaStream_t)0, a, b, d);
}

/* One thread computes a vector of N along the last dim, whose extent is a multiple of N. */
template <int MODE, int N>
static __global__ void epilogue_only(struct kernel_view y, const __grid_constant__ epilogue e)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N, rest = i, at = 0;
    for (int d = 3; d >= 0; d--) {
        at += rest % y.dim[d] * y.stride[d];
        rest /= y.dim[d];
    }
    if (rest)
        return;
    float v[N];
    for (int k = 0; k < N; k++)
        v[k] = 0.5f * (float)(i + k);
    epilogue_apply<MODE, N>(e, v, (uint32_t)at);
    for (int k = 0; k < N; k++)
        static_cast<float *>(y.data)[at + k] = v[k];
}

template <int N> static cudaError_t epilogue_by(const struct kernel_view *y, const epilogue &e)
{
    int64_t threads = kernel_elements(y) / N;
    return epilogue_dispatch(e, [&](auto mode) {
        return KERNEL_LAUNCH((epilogue_only<decltype(mode)::value, N>),
                             (unsigned)kernel_ceil_div(threads, 64), 64, 0, (cudaStream_t)0, *y, e);
    });
}

cudaError_t probe_epilogue(const struct kernel_view *y, int wide,
                           const struct kernel_epilogue *from)
{
    epilogue e;
    if (!epilogue_make(from, y, &e))
        return cudaErrorNotSupported;
    return wide == 1   ? epilogue_by<1>(y, e)
           : wide == 4 ? epilogue_by<4>(y, e)
                       : epilogue_by<8>(y, e);
}

static __global__ void divide(struct divider by, uint32_t *wrong)
{
    uint32_t q = blockIdx.x * blockDim.x + threadIdx.x;
    for (int off = -1; off <= 1; off++) {
        int64_t n = (int64_t)q * by.by + off;
        if (n < 0 || n > INT32_MAX)
            continue;
        uint32_t rest, got = divider_split(by, (uint32_t)n, &rest);
        if (got != (uint32_t)n / by.by || rest != (uint32_t)n % by.by)
            atomicAdd(wrong, 1u);
    }
    uint32_t top = 0x7fffffffu - q;
    if (divider_quotient(by, top) != top / by.by)
        atomicAdd(wrong, 1u);
}

cudaError_t probe_divide(uint32_t by, uint32_t *wrong)
{
    return KERNEL_LAUNCH(divide, 32, 256, 0, (cudaStream_t)0, divider_make(by), wrong);
}

static __global__ void stuck(int)
{
    if (threadIdx.x % 2)
        __syncwarp(0xffffffffu);
    else
        __syncthreads();
}

cudaError_t probe_deadlock(void)
{
    return KERNEL_LAUNCH(stuck, 2, 64, 0, (cudaStream_t)0, 0);
}

static __global__ void fill(float *y, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i <= n)
        y[i] = 1;
}

cudaError_t probe_overrun(float *y, int n)
{
    return KERNEL_LAUNCH(fill, (unsigned)(n + 1), 1, 0, (cudaStream_t)0, y, n);
}

static __global__ void ballot(const float *x, uint32_t *bits)
{
    uint32_t b = __ballot_sync(0xffffffffu, x[threadIdx.x] > 0);
    if (threadIdx.x == 0)
        *bits = b;
}

cudaError_t probe_ballot(const float *x, uint32_t *bits)
{
    return KERNEL_LAUNCH(ballot, 1, 32, 0, (cudaStream_t)0, x, bits);
}

template <class T> static __global__ void convert(int wide, const double *x, int n, T *y)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = wide ? number_from<T>(x[i]) : number_from<T>((float)x[i]);
}

#define CONVERT(number, type)                                                                      \
    case number:                                                                                   \
        return KERNEL_LAUNCH(convert<type>, (unsigned)n, 1, 0, (cudaStream_t)0, wide, x, n,        \
                             static_cast<type *>(y))

cudaError_t probe_convert(int to, int wide, const double *x, int n, void *y)
{
    switch (to) {
        CONVERT(DTYPE_BOOL, boolean);
        CONVERT(DTYPE_U8, uint8_t);
        CONVERT(DTYPE_U16, uint16_t);
        CONVERT(DTYPE_U32, uint32_t);
        CONVERT(DTYPE_U64, uint64_t);
        CONVERT(DTYPE_I8, int8_t);
        CONVERT(DTYPE_I16, int16_t);
        CONVERT(DTYPE_I32, int32_t);
        CONVERT(DTYPE_I64, int64_t);
        CONVERT(DTYPE_F8, f8_t);
        CONVERT(DTYPE_F16, half_t);
        CONVERT(DTYPE_BF16, bf16_t);
        CONVERT(DTYPE_F32, float);
        CONVERT(DTYPE_F64, double);
    default:
        return cudaErrorInvalidValue;
    }
}

int probe_sites(void)
{
    return emulate_sites();
}

const char *probe_site(int site)
{
    return emulate_site(site);
}

bool probe_site_counts(int site)
{
    return emulate_site_counts(site);
}

void probe_leave_out(int site, bool weaker)
{
    emulate_leave_out(site, weaker);
}
