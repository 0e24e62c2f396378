/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels do with INT32 sums of products of bytes: scale and bias of the channel, the node's
 * own steps, and the result, which may be floats or 8 bits by a scale. The output is dense rows of
 * channels. Operands lie as it does, or along its channels, or are one number.
 */
#ifndef INFERD_KERNELS_CUDA_FINISH_CUH
#define INFERD_KERNELS_CUDA_FINISH_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/side.cuh"

enum { FINISH_OPERANDS = 3, FINISH_WIDE = 8 };

enum finish_kind { FINISH_ROWS, FINISH_CHANNELS, FINISH_ONE };

struct finish_step {
    int32_t func, operand; /* operand: its number, or -1 for a unary function */
    float alpha, beta, gamma;
};

struct finish {
    bytes_side y, side[FINISH_OPERANDS];
    int32_t kind[FINISH_OPERANDS]; /* enum finish_kind */
    finish_step step[KERNEL_STEPS_MAX];
    int32_t n;
    const float *scale, *bias; /* of each channel; bias may be NULL */
};

/* Stores N neighbouring channels, which lie at `at` in y; with N > 1 all addresses are aligned. */
template <int N>
__device__ __forceinline__ void finish_store(const finish &f, int channel, int32_t at,
                                             const int32_t (&sums)[N])
{
    float v[N], scale[N], bias[N] = {};
    vector_read<N>(f.scale + channel, scale);
    if (f.bias)
        vector_read<N>(f.bias + channel, bias);
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = fmaf((float)sums[i], scale[i], bias[i]);
    for (int k = 0; k < f.n; k++) {
        const finish_step &s = f.step[k];
        if (s.operand < 0) {
            math_unary_row<N>(s.func, v, s.alpha, s.beta, s.gamma);
            continue;
        }
        float o[N];
        int kind = f.kind[s.operand];
        side_load<N>(f.side[s.operand],
                     kind == FINISH_ROWS       ? at
                     : kind == FINISH_CHANNELS ? channel
                                               : 0,
                     kind == FINISH_ONE, o);
        math_binary_row<N>(s.func, v, o);
    }
    side_store<N>(f.y, at, v);
}

/* --- host --- */

/* Whether the view has the channels of dim `axis` innermost, and no gaps. */
inline bool finish_is_dense(const struct kernel_view *y, int axis)
{
    int64_t next = y->dim[axis];
    if (y->stride[axis] != 1 && y->dim[axis] != 1)
        return false;
    for (int d = y->rank - 1; d >= 0; d--) {
        if (d == axis || y->dim[d] == 1)
            continue;
        if (y->stride[d] != next)
            return false;
        next *= y->dim[d];
    }
    return true;
}

inline bool finish_operand(const struct kernel_view *from, const struct kernel_view *y, int axis,
                           int32_t *kind)
{
    bool rows = true, rest = true;
    for (int d = 0; d < y->rank; d++) {
        if (y->dim[d] == 1)
            continue;
        rows = rows && from->stride[d] == y->stride[d];
        rest = rest && (d == axis || from->stride[d] == 0);
    }
    int64_t along = y->dim[axis] == 1 ? 0 : from->stride[axis];
    *kind = rows ? FINISH_ROWS : along ? FINISH_CHANNELS : FINISH_ONE;
    return rows || (rest && (along == 0 || along == 1));
}

inline bool finish_is_aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

/* Reads what comes behind the sums. *wide: finish_store may take FINISH_WIDE channels, if the
 * kernel's own are a multiple of that. False: it cannot be done. */
inline bool finish_make(const struct kernel_view *y, int axis, const float *scale,
                        const float *bias, const struct kernel_epilogue *epilogue, finish *out,
                        bool *wide)
{
    finish f = finish();
    int used = 0;
    f.y = side_of(y);
    f.scale = scale;
    f.bias = bias;
    *wide = finish_is_aligned(y->data) && finish_is_aligned(scale) && finish_is_aligned(bias);
    if (!side_known(y) || y->dtype == DTYPE_I32 || axis >= y->rank || !finish_is_dense(y, axis) ||
        (epilogue && (epilogue->n < 0 || epilogue->n > KERNEL_STEPS_MAX)))
        return false;
    for (int i = 0; epilogue && i < epilogue->n; i++) {
        const struct kernel_step *from = &epilogue->step[i];
        finish_step step = {from->func, -1, from->alpha, from->beta, from->gamma};
        if (from->binary) {
            if (used == FINISH_OPERANDS || !side_known(&from->operand) ||
                !finish_operand(&from->operand, y, axis, &f.kind[used]))
                return false;
            *wide = *wide && finish_is_aligned(from->operand.data);
            f.side[used] = side_of(&from->operand);
            step.operand = used++;
        }
        f.step[f.n++] = step;
    }
    *out = f;
    return true;
}

#endif
