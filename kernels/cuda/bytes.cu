/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real numbers that are stored in 8 bits by a scale: chains of functions over them, which also turn
 * them into floats and back.
 *
 * One thread reads 8 neighbours of each tensor, if all tensors have runs of 8 neighbours in the
 * same order, or stand still along them; else one element. Types are chosen at run time, except
 * where numbers only change their type (bytes_flat). Refused: 64-bit types, more than 2^31
 * elements, more operands than BYTES_OPERANDS.
 */
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/side.cuh"
#include "kernels/cuda/walk.cuh"

enum {
    BYTES_THREADS = 256,
    BYTES_RESIDENT = 8,
    BYTES_WIDE = 8,
    BYTES_FLAT = 16,
    BYTES_OPERANDS = 6,
};

/* --- chains --- */

struct bytes_step {
    int32_t func, operand; /* operand: of the job's tensors; 0: a unary function */
    float alpha, beta, gamma;
};

/* Tensor 0 is y, 1 is x, and operands follow. */
struct bytes_job {
    walk<2 + BYTES_OPERANDS> w;
    bytes_side side[2 + BYTES_OPERANDS];
    bytes_step step[KERNEL_STEPS_MAX];
    int32_t n;
};

template <int N>
static __global__ void __launch_bounds__(BYTES_THREADS)
    bytes_chain(const __grid_constant__ bytes_job j)
{
    for (uint32_t i = blockIdx.x * BYTES_THREADS + threadIdx.x; i < j.w.total;
         i += gridDim.x * BYTES_THREADS) {
        int32_t at[2 + BYTES_OPERANDS];
        int last = j.w.rank - 1;
        float v[N];
        walk_at(j.w, i, at);
        side_load<N>(j.side[1], at[1], j.w.stride[1][last] == 0, v);
        for (int k = 0; k < j.n; k++) {
            const bytes_step &s = j.step[k];
            if (s.operand == 0) {
                math_unary_row<N>(s.func, v, s.alpha, s.beta, s.gamma);
                continue;
            }
            float o[N];
            int32_t from = 0;
            bool repeats = false;
#pragma unroll
            for (int t = 2; t < 2 + BYTES_OPERANDS; t++) /* at[] stays in registers */
                if (t == s.operand) {
                    from = at[t];
                    repeats = j.w.stride[t][last] == 0;
                }
            side_load<N>(j.side[s.operand], from, repeats, o);
            math_binary_row<N>(s.func, v, o);
        }
        side_store<N>(j.side[0], at[0], v);
    }
}

/* Without steps, and with x as dense as y: BYTES_FLAT neighbours a thread, so that enough reads are
 * under way at a time to keep the memory busy. */
template <class TX, class TY>
static __global__ void __launch_bounds__(BYTES_THREADS)
    bytes_flat(const bytes_side x, const bytes_side y, uint32_t total)
{
    uint32_t at = (blockIdx.x * BYTES_THREADS + threadIdx.x) * BYTES_FLAT;
    if (at + BYTES_FLAT <= total) {
        float v[BYTES_FLAT];
        side_read<TX, BYTES_FLAT>(x, (int32_t)at, v);
        side_scale<BYTES_FLAT>(x, v);
        side_write<TY, BYTES_FLAT>(y, (int32_t)at, v);
        return;
    }
    for (; at < total; at++) {
        float v[1];
        side_read<TX, 1>(x, (int32_t)at, v);
        side_scale<1>(x, v);
        side_write<TY, 1>(y, (int32_t)at, v);
    }
}

/* Fills steps and sides; views[k] becomes tensor k. False: a step or an operand too many. */
static bool job_steps(const struct kernel_epilogue *epilogue, const struct kernel_view **views,
                      bytes_job *j)
{
    int used = 2;
    for (int i = 0; epilogue && i < epilogue->n; i++) {
        const struct kernel_step *from = &epilogue->step[i];
        bytes_step to = {from->func, 0, from->alpha, from->beta, from->gamma};
        if (from->binary) {
            if (used == 2 + BYTES_OPERANDS || !side_known(&from->operand))
                return false;
            views[used] = &from->operand;
            j->side[used] = side_of(&from->operand);
            to.operand = used++;
        }
        j->step[j->n++] = to;
    }
    return true;
}

template <int N> static cudaError_t chain_launch(const struct kernel_call *call, const bytes_job &j)
{
    int64_t blocks = kernel_ceil_div(j.w.total, BYTES_THREADS);
    return KERNEL_LAUNCH(bytes_chain<N>, kernel_grid(call, blocks, BYTES_RESIDENT), BYTES_THREADS,
                         0, call, j);
}

template <class TX, class TY>
static cudaError_t flat_launch(const struct kernel_call *call, const bytes_job &j)
{
    int64_t blocks = kernel_ceil_div(j.w.total, (int64_t)BYTES_THREADS * BYTES_FLAT);
    return KERNEL_LAUNCH((bytes_flat<TX, TY>), (unsigned)blocks, BYTES_THREADS, 0, call, j.side[1],
                         j.side[0], j.w.total);
}

template <class TX> static cudaError_t flat_to(const struct kernel_call *call, const bytes_job &j)
{
    switch (j.side[0].type) {
    case DTYPE_U8:
        return flat_launch<TX, uint8_t>(call, j);
    case DTYPE_I8:
        return flat_launch<TX, int8_t>(call, j);
    case DTYPE_F8:
        return flat_launch<TX, f8_t>(call, j);
    case DTYPE_F16:
        return flat_launch<TX, half_t>(call, j);
    case DTYPE_BF16:
        return flat_launch<TX, bf16_t>(call, j);
    default:
        return flat_launch<TX, float>(call, j);
    }
}

static cudaError_t flat_from(const struct kernel_call *call, const bytes_job &j)
{
    switch (j.side[1].type) {
    case DTYPE_U8:
        return flat_to<uint8_t>(call, j);
    case DTYPE_I8:
        return flat_to<int8_t>(call, j);
    case DTYPE_F8:
        return flat_to<f8_t>(call, j);
    case DTYPE_F16:
        return flat_to<half_t>(call, j);
    case DTYPE_BF16:
        return flat_to<bf16_t>(call, j);
    default:
        return flat_to<float>(call, j);
    }
}

static bool is_flat(const bytes_job &j, const struct kernel_view *x, const struct kernel_view *y)
{
    return j.n == 0 && j.w.rank == 1 && j.w.stride[0][0] == 1 && j.w.stride[1][0] == 1 &&
           x->dtype != DTYPE_I32 && (uintptr_t)x->data % 16 == 0 && (uintptr_t)y->data % 16 == 0;
}

cudaError_t kernel_bytes(const struct kernel_call *call, const struct kernel_view *x,
                         const struct kernel_view *y, const struct kernel_epilogue *epilogue)
{
    const int K = 2 + BYTES_OPERANDS;
    bytes_job j = bytes_job();
    const struct kernel_view *views[K] = {y, x, x, x, x, x, x, x}; /* unused ones change nothing */
    j.side[0] = side_of(y);
    j.side[1] = side_of(x);
    bool wide = true;
    if (!side_known(x) || !side_known(y) || y->dtype == DTYPE_I32 ||
        (epilogue && (epilogue->n < 0 || epilogue->n > KERNEL_STEPS_MAX)) ||
        !job_steps(epilogue, views, &j))
        return cudaErrorNotSupported;
    const struct kernel_view *const all[K] = {views[0], views[1], views[2], views[3],
                                              views[4], views[5], views[6], views[7]};
    if (!walk_make(all, &j.w))
        return cudaErrorNotSupported;
    if (j.w.total == 0)
        return cudaSuccess;
    if (is_flat(j, x, y))
        return flat_from(call, j);
    for (int k = 0; k < K; k++)
        wide = wide && walk_is_wide(&j.w, k, BYTES_WIDE, all[k]);
    if (!wide)
        return chain_launch<1>(call, j);
    walk_widen(&j.w, BYTES_WIDE);
    return chain_launch<BYTES_WIDE>(call, j);
}
