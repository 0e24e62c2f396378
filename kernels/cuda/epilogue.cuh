/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's epilogue on the device. A launcher makes a struct epilogue of the caller's steps and
 * hands it to its kernel by value, `const __grid_constant__ struct epilogue`. The kernel calls
 * epilogue_apply on its results, right before it stores them.
 *
 * The offset of a value in y's memory (in elements) decides where its operands are read. An operand
 * that lies like y is read at that offset, one along the innermost dim of y's memory (channels in
 * channels-last, the last dim in plain) at the offset's remainder, one of a single element at 0,
 * and any other by taking the offset apart. So kernels need not know y's dims, only where they
 * store. This takes a y whose elements do not overlap and lie within 2^31 elements; epilogue_make
 * refuses others. Kernels may ask for real elements only, not for a padded layout's padding.
 *
 * EPILOGUE_NONE and EPILOGUE_RELU are template arguments, so that they cost nothing:
 *
 *   struct epilogue e;
 *   if (!epilogue_make(epilogue, y, &e))
 *       return cudaErrorNotSupported;
 *   return epilogue_dispatch(e, [&](auto mode) {
 *       return KERNEL_LAUNCH((name<T, decltype(mode)::value>), grid, block, 0, call, e, ...);
 *   });
 */
#ifndef INFERD_KERNELS_CUDA_EPILOGUE_CUH
#define INFERD_KERNELS_CUDA_EPILOGUE_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"

/* GELU alone follows half the products of a transformer. Only kernels that say so have a case for
 * it; for the others it is one of ANY. */
enum epilogue_mode { EPILOGUE_NONE = 0, EPILOGUE_RELU = 1, EPILOGUE_ANY = 2, EPILOGUE_GELU = 3 };

enum epilogue_place { /* of a binary step's operand */
                      EPILOGUE_DENSE = 0,
                      EPILOGUE_INNER = 1,
                      EPILOGUE_SCALAR = 2,
                      EPILOGUE_STRIDED = 3,
};

struct epilogue_step {
    int32_t func;
    uint8_t binary, place, dtype;
    uint8_t wide; /* so many neighbours, from a multiple of it on, may be read together */
    float alpha, beta, gamma;
    const void *data;
    int32_t stride[KERNEL_RANK_MAX]; /* INNER: [0]; STRIDED: of y's dims, merged, outermost first */
};

struct epilogue {
    int32_t mode, n, rank;
    struct divider inner;                /* elements from one index of the second dim to the next */
    struct divider dim[KERNEL_RANK_MAX]; /* by y's strides, in the order of its memory */
    struct epilogue_step step[KERNEL_STEPS_MAX];
};

/* --- host --- */

/* y's dims and the operands' strides along them, as y's memory has them. */
struct epilogue_dims {
    int rank;
    int64_t dim[KERNEL_RANK_MAX], stride[KERNEL_RANK_MAX];
    int64_t operand[KERNEL_STEPS_MAX][KERNEL_RANK_MAX];
};

inline bool epilogue_mergeable(const struct epilogue_dims *d, int n, int outer, int inner)
{
    if (d->stride[outer] != d->dim[inner] * d->stride[inner])
        return false;
    for (int s = 0; s < n; s++)
        if (d->operand[s][outer] != d->dim[inner] * d->operand[s][inner])
            return false;
    return true;
}

/* Sorts dims by stride, outermost first, drops dims of one element, and merges neighbours where all
 * operands allow it. */
inline void epilogue_order(const struct kernel_epilogue *from, int n, const struct kernel_view *y,
                           struct epilogue_dims *d)
{
    int order[KERNEL_RANK_MAX], rank = 0;
    for (int i = 0; i < y->rank; i++) {
        if (y->dim[i] == 1)
            continue;
        int at = rank++;
        for (; at > 0 && y->stride[order[at - 1]] < y->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    d->rank = 0;
    for (int i = 0; i < rank; i++) {
        int to = d->rank;
        d->dim[to] = y->dim[order[i]];
        d->stride[to] = y->stride[order[i]];
        for (int s = 0; s < n; s++)
            d->operand[s][to] = from->step[s].binary ? from->step[s].operand.stride[order[i]] : 0;
        if (to > 0 && epilogue_mergeable(d, n, to - 1, to)) {
            d->dim[to - 1] *= d->dim[to];
            d->stride[to - 1] = d->stride[to];
            for (int s = 0; s < n; s++)
                d->operand[s][to - 1] = d->operand[s][to];
        } else {
            d->rank++;
        }
    }
}

/* The largest power of two, at most 16, that divides n. */
inline int epilogue_factor(int64_t n)
{
    int factor = 16;
    while (factor > 1 && n % factor)
        factor /= 2;
    return factor;
}

inline void epilogue_place_operand(const struct epilogue_dims *d, const int64_t *strides,
                                   struct epilogue_step *out)
{
    bool dense = true, scalar = true, inner = true;
    int last = d->rank - 1, wide = d->rank ? epilogue_factor(d->dim[last]) : 1;
    for (int i = 0; i < d->rank; i++) {
        dense = dense && strides[i] == d->stride[i];
        scalar = scalar && strides[i] == 0;
        /* The remainder is the inner index only if all outer strides are multiples. */
        inner =
            inner && (i == last || (strides[i] == 0 && d->stride[i] % d->stride[last - 1] == 0));
        out->stride[i] = (int32_t)strides[i];
        if (i != last)
            wide = epilogue_factor(strides[i]) < wide ? epilogue_factor(strides[i]) : wide;
    }
    if (last >= 0 && (d->stride[last] != 1 || (strides[last] != 1 && strides[last] != 0)))
        wide = 1;
    if (scalar) {
        out->place = EPILOGUE_SCALAR;
    } else if (dense) {
        out->place = EPILOGUE_DENSE;
        wide = 16;
    } else if (inner && d->rank > 1 && d->stride[last] == 1) {
        out->place = EPILOGUE_INNER;
        out->stride[0] = (int32_t)strides[last];
    } else {
        out->place = EPILOGUE_STRIDED;
    }
    int size = number_size(out->dtype);
    while (wide > 1 && (uintptr_t)out->data % (uintptr_t)(wide * size < 16 ? wide * size : 16))
        wide /= 2;
    out->wide = (uint8_t)wide;
}

/* `from` may be NULL: there are no steps. False: y is as the top of this file refuses it, or an
 * operand is no short float or lies beyond 2^31 elements. */
inline bool epilogue_make(const struct kernel_epilogue *from, const struct kernel_view *y,
                          struct epilogue *out)
{
    const int64_t limit = INT64_C(1) << 31;
    *out = epilogue();
    out->n = from ? from->n : 0;
    out->inner = divider_make(1);
    if (out->n < 0 || out->n > KERNEL_STEPS_MAX || y->rank < 0 || y->rank > KERNEL_RANK_MAX ||
        kernel_span(y) >= limit)
        return false;
    if (out->n == 0)
        return true;
    struct epilogue_dims d = epilogue_dims();
    epilogue_order(from, out->n, y, &d);
    for (int i = 0; i < d.rank; i++) {
        if (d.stride[i] < 1 || (i > 0 && d.stride[i - 1] < d.dim[i] * d.stride[i]))
            return false;
        out->dim[i] = divider_make((uint32_t)d.stride[i]);
    }
    out->rank = d.rank;
    if (d.rank > 1)
        out->inner = divider_make((uint32_t)d.stride[d.rank - 2]);
    for (int s = 0; s < out->n; s++) {
        const struct kernel_step *step = &from->step[s];
        struct epilogue_step *to = &out->step[s];
        to->func = step->func;
        to->binary = step->binary != 0;
        to->alpha = step->alpha;
        to->beta = step->beta;
        to->gamma = step->gamma;
        if (!to->binary)
            continue;
        to->dtype = (uint8_t)step->operand.dtype;
        to->data = step->operand.data;
        if (!number_is_short_float(to->dtype) || kernel_span(&step->operand) >= limit)
            return false;
        epilogue_place_operand(&d, d.operand[s], to);
    }
    int alone = out->n == 1 && !out->step[0].binary ? out->step[0].func : IR_UNARY_IDENTITY;
    out->mode = alone == IR_UNARY_RELU   ? EPILOGUE_RELU
                : alone == IR_UNARY_GELU ? EPILOGUE_GELU
                                         : EPILOGUE_ANY;
    return true;
}

/* Whether all that the steps do is to bring results within a range, which is everything if there is
 * no step. */
inline bool epilogue_range(const struct kernel_epilogue *from, float *low, float *high)
{
    const struct kernel_step *step = from ? &from->step[0] : nullptr;
    *low = -INFINITY;
    *high = INFINITY;
    if (!from || from->n == 0)
        return true;
    if (from->n != 1 || step->binary ||
        (step->func != IR_UNARY_RELU && step->func != IR_UNARY_CLIP))
        return false;
    *low = step->func == IR_UNARY_RELU ? 0.0f : step->alpha;
    *high = step->func == IR_UNARY_RELU ? INFINITY : step->beta;
    return true;
}

template <int MODE> struct epilogue_tag {
    static const int value = MODE;
};

/* For `#pragma unroll` of a loop that calls epilogue_apply: most of a kernel's code is
 * what applies any steps, so one of it is enough. vector_pick finds a turn's elements. */
__host__ __device__ constexpr int epilogue_copies(int mode)
{
    return mode == EPILOGUE_ANY ? 1 : 64; /* 64: all turns */
}

/* launch(epilogue_tag<mode>()), see above. */
template <class L> inline cudaError_t epilogue_dispatch(const struct epilogue &e, L launch)
{
    if (e.mode == EPILOGUE_NONE)
        return launch(epilogue_tag<EPILOGUE_NONE>());
    if (e.mode == EPILOGUE_RELU)
        return launch(epilogue_tag<EPILOGUE_RELU>());
    return launch(epilogue_tag<EPILOGUE_ANY>());
}

/* --- device --- */

/* Finds where the operand's elements for y's elements at these offsets are. */
template <int N>
__device__ __forceinline__ void epilogue_index(const struct epilogue &e,
                                               const struct epilogue_step &s,
                                               const uint32_t (&at)[N], uint32_t (&index)[N])
{
    uint32_t rest[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        rest[i] = at[i];
        index[i] = s.place == EPILOGUE_DENSE ? at[i] : 0;
    }
    if (s.place == EPILOGUE_INNER) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            divider_split(e.inner, at[i], &rest[i]);
            index[i] = rest[i] * (uint32_t)s.stride[0];
        }
    } else if (s.place == EPILOGUE_STRIDED) {
#pragma unroll 1
        for (int d = 0; d < e.rank; d++)
#pragma unroll
            for (int i = 0; i < N; i++)
                index[i] += divider_split(e.dim[d], rest[i], &rest[i]) * (uint32_t)s.stride[d];
    }
}

template <int N, class T>
__device__ __forceinline__ void epilogue_read(const void *data, const uint32_t (&index)[N],
                                              float (&to)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = number_float(static_cast<const T *>(data)[index[i]]);
}

/* Loads the operand's elements for y's elements at any offsets. */
template <int N>
__device__ __forceinline__ void epilogue_gather(const struct epilogue &e,
                                                const struct epilogue_step &s,
                                                const uint32_t (&at)[N], float (&to)[N])
{
    uint32_t index[N];
    epilogue_index<N>(e, s, at, index);
    if (s.dtype == DTYPE_F16)
        epilogue_read<N, half_t>(s.data, index, to);
    else if (s.dtype == DTYPE_BF16)
        epilogue_read<N, bf16_t>(s.data, index, to);
    else
        epilogue_read<N, float>(s.data, index, to);
}

template <int N>
__device__ __forceinline__ void epilogue_read_wide(const struct epilogue_step &s, uint32_t index,
                                                   float (&to)[N])
{
    if (s.dtype == DTYPE_F16)
        vector_read<N>(static_cast<const half_t *>(s.data) + index, to);
    else if (s.dtype == DTYPE_BF16)
        vector_read<N>(static_cast<const bf16_t *>(s.data) + index, to);
    else
        vector_read<N>(static_cast<const float *>(s.data) + index, to);
}

/* Loads the operand's elements for y's N elements from offset `at` on, a multiple of N. */
template <int N>
__device__ __forceinline__ void epilogue_operand(const struct epilogue &e,
                                                 const struct epilogue_step &s, uint32_t at,
                                                 float (&to)[N])
{
    bool same = s.place == EPILOGUE_SCALAR ||
                (s.place == EPILOGUE_STRIDED && s.wide >= N && s.stride[e.rank - 1] == 0);
    if (!same && s.wide < N) {
        uint32_t all[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            all[i] = at + (uint32_t)i;
        epilogue_gather<N>(e, s, all, to);
        return;
    }
    const uint32_t first[1] = {at};
    uint32_t index[1];
    epilogue_index<1>(e, s, first, index);
    if (!same) {
        epilogue_read_wide<N>(s, index[0], to);
        return;
    }
    float value = number_load(s.dtype, s.data, index[0]);
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = value;
}

/* Applies the steps to v, the N (1, 2, 4, 8, 16) neighbours in y's memory from offset `at` on. `at`
 * is a multiple of N, and none of the neighbours is padding. The `data` pointers of y need not be
 * aligned for this. */
template <int MODE, int N>
__device__ __forceinline__ void epilogue_apply(const struct epilogue &e, float (&v)[N], uint32_t at)
{
    if constexpr (MODE == EPILOGUE_RELU) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = v[i] < 0 ? 0 : v[i];
    } else if constexpr (MODE == EPILOGUE_GELU) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = math_gelu(v[i]);
    } else if constexpr (MODE == EPILOGUE_ANY) {
#pragma unroll 1
        for (int i = 0; i < e.n; i++) {
            const struct epilogue_step &s = e.step[i];
            if (s.binary) {
                float operand[N];
                epilogue_operand<N>(e, s, at, operand);
                math_binary_row<N>(s.func, v, operand);
            } else {
                math_unary_row<N>(s.func, v, s.alpha, s.beta, s.gamma);
            }
        }
    } else {
        (void)e, (void)v, (void)at;
    }
}

/* Applies the steps to N elements at any offsets `at`. COLUMN: they have the same index along the
 * innermost dim of y's memory, such as those of one channel, and operands that depend on this index
 * alone are read once. */
template <bool COLUMN, int N>
__device__ __forceinline__ void epilogue_apply_apart(const struct epilogue &e, float (&v)[N],
                                                     const uint32_t (&at)[N])
{
#pragma unroll 1
    for (int i = 0; i < e.n; i++) {
        const struct epilogue_step &s = e.step[i];
        if (!s.binary) {
            math_unary_row<N>(s.func, v, s.alpha, s.beta, s.gamma);
            continue;
        }
        float operand[N];
        if (s.place == EPILOGUE_SCALAR || (COLUMN && s.place == EPILOGUE_INNER)) {
            const uint32_t first[1] = {at[0]};
            float value[1];
            epilogue_gather<1>(e, s, first, value);
#pragma unroll
            for (int k = 0; k < N; k++)
                operand[k] = value[0];
        } else {
            epilogue_gather<N>(e, s, at, operand);
        }
        math_binary_row<N>(s.func, v, operand);
    }
}

/* Applies the steps to one value. */
template <int MODE>
__device__ __forceinline__ float epilogue_apply_one(const struct epilogue &e, float value,
                                                    uint32_t at)
{
    float v[1] = {value};
    epilogue_apply<MODE, 1>(e, v, at);
    return v[0];
}

#endif
