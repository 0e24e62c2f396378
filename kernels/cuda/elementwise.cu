/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise: casts, reformats, chains of unary functions (kernel_map), functions of two numbers
 * (kernel_binary) and choices (kernel_select).
 *
 * Cases that move many bytes in networks have kernels of their own (map.cuh, and binary_vector
 * here). All others go element by element through a kernel that takes any types and strides and
 * computes on float, double or int64 as the reference does: right, not quick. Refused: more than
 * 2^31 elements, outputs that overlap themselves, epilogues on elements that are not floats.
 */
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/walk.cuh"

enum { GENERAL_RESIDENT = 8 };

static unsigned general_grid(const struct kernel_call *call, uint32_t total)
{
    return kernel_grid(call, kernel_ceil_div(total, MAP_THREADS), GENERAL_RESIDENT);
}

/* --- one operand: the general kernels --- */

struct map_types {
    int32_t x, y;
    int32_t channels, padded; /* padded > 0: elements with at % padded >= channels are zero */
};

__device__ __forceinline__ bool is_padding(const map_types &t, int32_t at)
{
    return t.padded > 0 && at % t.padded >= t.channels;
}

/* Computes in C, float or double. In double all steps are unary. */
template <class C>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_any(const void *x, void *y, const map_types t, const __grid_constant__ walk<2> w,
            const __grid_constant__ epilogue e)
{
    for (uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x; i < w.total;
         i += gridDim.x * MAP_THREADS) {
        int32_t at[2];
        walk_at(w, i, at);
        if (is_padding(t, at[0])) {
            number_put<C>(t.y, y, at[0], 0);
            continue;
        }
        C v[1] = {number_get<C>(t.x, x, at[1])};
        if constexpr (map_same<C, float>::value) {
            epilogue_apply<EPILOGUE_ANY, 1>(e, v, (uint32_t)at[0]);
        } else {
            for (int s = 0; s < e.n; s++)
                math_unary_row<1>(e.step[s].func, v, e.step[s].alpha, e.step[s].beta,
                                  e.step[s].gamma);
        }
        number_put<C>(t.y, y, at[0], v[0]);
    }
}

/* Takes integers through at most one step. uint64 to fp32 by way of double would be rounded
 * twice. */
static __global__ void __launch_bounds__(MAP_THREADS)
    map_int(const void *x, void *y, const map_types t, const __grid_constant__ walk<2> w,
            int32_t func, float alpha, float beta)
{
    bool u64 = t.x == DTYPE_U64;
    for (uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x; i < w.total;
         i += gridDim.x * MAP_THREADS) {
        int32_t at[2];
        walk_at(w, i, at);
        if (is_padding(t, at[0])) {
            number_put<int64_t>(t.y, y, at[0], 0);
            continue;
        }
        int64_t v = number_get<int64_t>(t.x, x, at[1]);
        if (u64 && t.y == DTYPE_F32)
            static_cast<float *>(y)[at[0]] = (float)(uint64_t)v;
        else
            number_put<int64_t>(t.y, y, at[0], number_int_unary(func, u64, v, alpha, beta));
    }
}

static bool has_binary(const struct epilogue *e)
{
    for (int i = 0; i < e->n; i++)
        if (e->step[i].binary)
            return true;
    return false;
}

static cudaError_t map_general(const struct kernel_call *call, const struct kernel_view *x,
                               const struct kernel_view *y, int64_t padded,
                               const struct epilogue &e)
{
    struct kernel_view wide = *y, from = *x;
    map_types t = {x->dtype, y->dtype, 0, 0};
    if (padded && padded != y->dim[1]) {
        if (y->stride[1] != 1)
            return cudaErrorNotSupported;
        t.channels = (int32_t)y->dim[1];
        t.padded = (int32_t)padded;
        wide.dim[1] = from.dim[1] = padded;
    }
    walk<2> w;
    const struct kernel_view *const views[2] = {&wide, &from};
    if (!walk_make(views, &w))
        return cudaErrorNotSupported;
    unsigned blocks = general_grid(call, w.total);
    bool ints = !number_is_float(x->dtype), y_float = number_is_float(y->dtype);
    bool wide_int = x->dtype == DTYPE_I64 || x->dtype == DTYPE_U64 || x->dtype == DTYPE_I32 ||
                    x->dtype == DTYPE_U32;
    bool to_u64_float = x->dtype == DTYPE_U64 && y_float && y->dtype != DTYPE_F32;
    int func = e.n ? e.step[0].func : IR_UNARY_IDENTITY;
    if (ints && !to_u64_float &&
        (e.n == 0 || (e.n == 1 && !e.step[0].binary && number_int_unary_known(func) && !y_float)))
        return KERNEL_LAUNCH(map_int, blocks, MAP_THREADS, 0, call, x->data, y->data, t, w, func,
                             e.step[0].alpha, e.step[0].beta);
    bool binary = has_binary(&e);
    bool in_double = x->dtype == DTYPE_F64 || y->dtype == DTYPE_F64 || (wide_int && !binary);
    if (in_double && binary)
        return cudaErrorNotSupported;
    return in_double ? KERNEL_LAUNCH(map_any<double>, blocks, MAP_THREADS, 0, call, x->data,
                                     y->data, t, w, e)
                     : KERNEL_LAUNCH(map_any<float>, blocks, MAP_THREADS, 0, call, x->data, y->data,
                                     t, w, e);
}

/* --- one operand: the choice --- */

struct map_job {
    const struct kernel_call *call;
    const struct kernel_view *x, *y;
    int64_t padded;
    const struct epilogue *e;
    const walk<2> *w; /* over the elements, without padding */
};

template <class TX, class TY, int MODE> static cudaError_t map_quick(const map_job &j)
{
    cudaError_t code = cudaErrorNotSupported;
    if (!j.padded)
        code = map_vector_launch<TX, TY, MODE>(j.call, *j.w, j.x, j.y, *j.e);
    if (code == cudaErrorNotSupported)
        code = map_transpose_launch<TX, TY, MODE>(j.call, j.w, j.padded, j.x, j.y, *j.e);
    if (code == cudaErrorNotSupported && !j.padded)
        code = map_ragged_launch<TX, TY, MODE>(j.call, j.w, j.x, j.y, *j.e);
    return code;
}

template <class TY> static cudaError_t map_image_typed(const map_job &j)
{
    return j.padded == 4   ? map_image_launch<TY, 4>(j.call, j.x, j.y, *j.e)
           : j.padded == 8 ? map_image_launch<TY, 8>(j.call, j.x, j.y, *j.e)
                           : cudaErrorNotSupported;
}

template <class TX, class TY> static cudaError_t map_typed(const map_job &j)
{
    cudaError_t code = map_image_typed<TY>(j);
    if (code != cudaErrorNotSupported)
        return code;
    return j.e->n ? map_quick<TX, TY, EPILOGUE_ANY>(j) : map_quick<TX, TY, EPILOGUE_NONE>(j);
}

/* Casts without padding and epilogue; from integers also without a transpose. */
template <class TX, class TY> static cudaError_t map_cast(const map_job &j)
{
    if (j.padded)
        return cudaErrorNotSupported;
    return j.e->n ? map_vector_launch<TX, TY, EPILOGUE_ANY>(j.call, *j.w, j.x, j.y, *j.e)
                  : map_vector_launch<TX, TY, EPILOGUE_NONE>(j.call, *j.w, j.x, j.y, *j.e);
}

/* Moves the bits of elements that stay what they are. */
template <class T> static cudaError_t map_bits(const map_job &j)
{
    return map_quick<T, T, EPILOGUE_NONE>(j);
}

template <class T> static cudaError_t map_gelu_typed(const map_job &j)
{
    return map_vector_launch<T, T, EPILOGUE_GELU>(j.call, *j.w, j.x, j.y, *j.e);
}

static cudaError_t map_gelu(const map_job &j)
{
    if (j.padded)
        return cudaErrorNotSupported;
    switch (j.x->dtype) {
    case DTYPE_F16:
        return map_gelu_typed<half_t>(j);
    case DTYPE_BF16:
        return map_gelu_typed<bf16_t>(j);
    case DTYPE_F32:
        return map_gelu_typed<float>(j);
    default:
        return cudaErrorNotSupported;
    }
}

static cudaError_t map_same_type(const map_job &j)
{
    if (j.e->n == 0) {
        switch (number_size(j.x->dtype)) {
        case 1:
            return map_bits<uint8_t>(j);
        case 2:
            return map_bits<uint16_t>(j);
        case 4:
            return map_bits<uint32_t>(j);
        default:
            return j.padded ? cudaErrorNotSupported
                            : map_vector_launch<uint64_t, uint64_t, EPILOGUE_NONE>(j.call, *j.w,
                                                                                   j.x, j.y, *j.e);
        }
    }
    cudaError_t code = j.e->mode == EPILOGUE_GELU ? map_gelu(j) : cudaErrorNotSupported;
    if (code != cudaErrorNotSupported)
        return code;
    switch (j.x->dtype) {
    case DTYPE_F16:
        return map_quick<half_t, half_t, EPILOGUE_ANY>(j);
    case DTYPE_BF16:
        return map_quick<bf16_t, bf16_t, EPILOGUE_ANY>(j);
    case DTYPE_F32:
        return map_quick<float, float, EPILOGUE_ANY>(j);
    default:
        return cudaErrorNotSupported;
    }
}

static cudaError_t map_images(const map_job &j)
{
    switch (j.x->dtype) {
    case DTYPE_F16:
        return map_image_typed<half_t>(j);
    case DTYPE_BF16:
        return map_image_typed<bf16_t>(j);
    case DTYPE_F32:
        return map_image_typed<float>(j);
    default:
        return cudaErrorNotSupported;
    }
}

typedef cudaError_t (*map_typed_fn)(const map_job &j);

/* The launcher for pairs of types that are quick; NULL: the general kernel. */
static map_typed_fn typed_for(int x, int y)
{
    static const struct {
        int x, y;
        map_typed_fn run;
    } table[] = {
        {DTYPE_F32, DTYPE_F16, map_typed<float, half_t>},
        {DTYPE_F32, DTYPE_BF16, map_typed<float, bf16_t>},
        {DTYPE_F16, DTYPE_F32, map_typed<half_t, float>},
        {DTYPE_BF16, DTYPE_F32, map_typed<bf16_t, float>},
        {DTYPE_U8, DTYPE_F16, map_typed<uint8_t, half_t>},
        {DTYPE_U8, DTYPE_BF16, map_typed<uint8_t, bf16_t>},
        {DTYPE_U8, DTYPE_F32, map_typed<uint8_t, float>},
        {DTYPE_BOOL, DTYPE_F16, map_cast<boolean, half_t>},
        {DTYPE_BOOL, DTYPE_BF16, map_cast<boolean, bf16_t>},
        {DTYPE_BOOL, DTYPE_F32, map_cast<boolean, float>},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].x == x && table[i].y == y)
            return table[i].run;
    return NULL;
}

cudaError_t kernel_map(const struct kernel_call *call, const struct kernel_view *x,
                       const struct kernel_view *y, int64_t pad_channels,
                       const struct kernel_epilogue *epilogue)
{
    struct epilogue e;
    walk<2> w;
    const struct kernel_view *const views[2] = {y, x};
    bool padded = pad_channels > 0 && y->rank > 1 && pad_channels != y->dim[1];
    if (!epilogue_make(epilogue, y, &e) || !walk_make(views, &w))
        return cudaErrorNotSupported;
    map_job j = {call, x, y, padded ? pad_channels : 0, &e, &w};
    cudaError_t code = cudaErrorNotSupported;
    map_typed_fn typed = typed_for(x->dtype, y->dtype);
    if (w.total == 0 && !padded)
        return cudaSuccess;
    if (w.total > 0 && x->dtype == y->dtype)
        code = padded ? map_images(j) : cudaErrorNotSupported;
    if (w.total > 0 && x->dtype == y->dtype && code == cudaErrorNotSupported)
        code = map_same_type(j);
    else if (w.total > 0 && typed)
        code = typed(j);
    return code == cudaErrorNotSupported ? map_general(call, x, y, j.padded, e) : code;
}

/* --- two operands --- */

enum { BINARY_UNROLL = 2 };

template <class T, int N>
__device__ __forceinline__ vector<T, N> operand_load(const T *from, int32_t at, bool repeats)
{
    if (!repeats)
        return vector_load<T, N>(from + at);
    vector<T, N> v;
    T value = from[at];
#pragma unroll
    for (int i = 0; i < N; i++)
        v.v[i] = value;
    return v;
}

/* Takes tensors of one float type that have runs of neighbours in the same order. */
template <class T, int MODE>
static __global__ void __launch_bounds__(MAP_THREADS)
    binary_vector(const T *a, const T *b, T *y, int32_t func, const __grid_constant__ walk<3> w,
                  const __grid_constant__ epilogue e)
{
    const int N = 16 / (int)sizeof(T);
    uint32_t first = blockIdx.x * (MAP_THREADS * BINARY_UNROLL) + threadIdx.x;
    bool repeats_a = w.stride[1][w.rank - 1] == 0, repeats_b = w.stride[2][w.rank - 1] == 0;
    vector<T, N> as[BINARY_UNROLL], bs[BINARY_UNROLL];
    int32_t at[BINARY_UNROLL]; /* in y */
#pragma unroll
    for (int u = 0; u < BINARY_UNROLL; u++) {
        uint32_t i = first + (uint32_t)u * MAP_THREADS;
        int32_t all[3];
        if (i >= w.total)
            break;
        walk_at(w, i, all);
        at[u] = all[0];
        as[u] = operand_load<T, N>(a, all[1], repeats_a);
        bs[u] = operand_load<T, N>(b, all[2], repeats_b);
    }
    constexpr int COPIES = epilogue_copies(MODE);
#pragma unroll COPIES
    for (int u = 0; u < BINARY_UNROLL; u++) {
        if (first + (uint32_t)u * MAP_THREADS >= w.total)
            break;
        vector<T, N> va = vector_pick(as, u), vb = vector_pick(bs, u);
        int32_t to = vector_pick(at, u);
        float v[N], o[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = number_float(va.v[i]);
            o[i] = number_float(vb.v[i]);
        }
        math_binary_row<N>(func, v, o);
        epilogue_apply<MODE, N>(e, v, (uint32_t)to);
        vector_write<N>(y + to, v);
    }
}

struct binary_types {
    int32_t func, a, b, y;
    bool fmod, u64;
};

template <class C>
static __global__ void __launch_bounds__(MAP_THREADS)
    binary_any(const void *a, const void *b, void *y, const binary_types t,
               const __grid_constant__ walk<3> w, const __grid_constant__ epilogue e)
{
    for (uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x; i < w.total;
         i += gridDim.x * MAP_THREADS) {
        int32_t at[3];
        walk_at(w, i, at);
        C va = number_get<C>(t.a, a, at[1]), vb = number_get<C>(t.b, b, at[2]);
        C v[1];
        if constexpr (map_same<C, int64_t>::value)
            v[0] = number_int_binary(t.func, t.fmod, t.u64, va, vb);
        else
            v[0] =
                t.func == IR_BINARY_MOD && t.fmod ? math_fmod(va, vb) : math_binary(t.func, va, vb);
        if constexpr (map_same<C, float>::value)
            epilogue_apply<EPILOGUE_ANY, 1>(e, v, (uint32_t)at[0]);
        number_put<C>(t.y, y, at[0], v[0]);
    }
}

struct binary_job {
    const struct kernel_call *call;
    const struct kernel_view *a, *b, *y;
    binary_types types;
    walk<3> w;
    struct epilogue e;
};

template <class T> static cudaError_t binary_quick(const binary_job &j)
{
    const int N = 16 / (int)sizeof(T);
    if (!walk_is_wide(&j.w, 0, N, j.y) || !walk_is_wide(&j.w, 1, N, j.a) ||
        !walk_is_wide(&j.w, 2, N, j.b) || (j.types.func == IR_BINARY_MOD && j.types.fmod))
        return cudaErrorNotSupported;
    walk<3> w = j.w;
    walk_widen(&w, N);
    unsigned blocks = (unsigned)kernel_ceil_div(w.total, MAP_THREADS * BINARY_UNROLL);
    return epilogue_dispatch(j.e, [&](auto mode) {
        return KERNEL_LAUNCH((binary_vector<T, decltype(mode)::value>), blocks, MAP_THREADS, 0,
                             j.call, static_cast<const T *>(j.a->data),
                             static_cast<const T *>(j.b->data), static_cast<T *>(j.y->data),
                             j.types.func, w, j.e);
    });
}

template <class C> static cudaError_t binary_general(const binary_job &j)
{
    return KERNEL_LAUNCH(binary_any<C>, general_grid(j.call, j.w.total), MAP_THREADS, 0, j.call,
                         j.a->data, j.b->data, j.y->data, j.types, j.w, j.e);
}

/* Whether the function takes floats; the others work on integers only. */
static bool has_floats(int func)
{
    return func >= IR_BINARY_ADD && func <= IR_BINARY_GREATER_EQUAL;
}

cudaError_t kernel_binary(const struct kernel_call *call, enum ir_binary func, bool fmod,
                          const struct kernel_view *a, const struct kernel_view *b,
                          const struct kernel_view *y, const struct kernel_epilogue *epilogue)
{
    bool floats = (number_is_float(a->dtype) || number_is_float(b->dtype)) && has_floats(func);
    bool in_double = a->dtype == DTYPE_F64 || b->dtype == DTYPE_F64;
    binary_job j = {call, a, b, y, {func, a->dtype, b->dtype, y->dtype, fmod, false}, {}, {}};
    const struct kernel_view *const views[3] = {y, a, b};
    if (!walk_make(views, &j.w) || !epilogue_make(epilogue, y, &j.e) ||
        (j.e.n && (!floats || in_double)))
        return cudaErrorNotSupported;
    if (j.w.total == 0)
        return cudaSuccess;
    j.types.u64 = a->dtype == DTYPE_U64;
    cudaError_t code = cudaErrorNotSupported;
    if (floats && a->dtype == b->dtype && b->dtype == y->dtype) {
        if (y->dtype == DTYPE_F16)
            code = binary_quick<half_t>(j);
        else if (y->dtype == DTYPE_BF16)
            code = binary_quick<bf16_t>(j);
        else if (y->dtype == DTYPE_F32)
            code = binary_quick<float>(j);
    }
    if (code != cudaErrorNotSupported)
        return code;
    return !floats     ? binary_general<int64_t>(j)
           : in_double ? binary_general<double>(j)
                       : binary_general<float>(j);
}

/* --- a choice --- */

/* T: what moves elements of this size. */
template <class T>
static __global__ void __launch_bounds__(MAP_THREADS)
    select_any(const uint8_t *cond, const T *a, const T *b, T *y, int32_t dtype,
               const __grid_constant__ walk<4> w, const __grid_constant__ epilogue e)
{
    for (uint32_t i = blockIdx.x * MAP_THREADS + threadIdx.x; i < w.total;
         i += gridDim.x * MAP_THREADS) {
        int32_t at[4];
        walk_at(w, i, at);
        const T *from = cond[at[1]] ? a + at[2] : b + at[3];
        if (e.n == 0) {
            y[at[0]] = *from;
            continue;
        }
        float v[1] = {number_load(dtype, from, 0)};
        epilogue_apply<EPILOGUE_ANY, 1>(e, v, (uint32_t)at[0]);
        number_put<float>(dtype, y, at[0], v[0]);
    }
}

template <class T>
static cudaError_t select_run(const struct kernel_call *call, const struct kernel_view *cond,
                              const struct kernel_view *a, const struct kernel_view *b,
                              const struct kernel_view *y, const walk<4> &w,
                              const struct epilogue &e)
{
    return KERNEL_LAUNCH(select_any<T>, general_grid(call, w.total), MAP_THREADS, 0, call,
                         static_cast<const uint8_t *>(cond->data), static_cast<const T *>(a->data),
                         static_cast<const T *>(b->data), static_cast<T *>(y->data), y->dtype, w,
                         e);
}

cudaError_t kernel_select(const struct kernel_call *call, const struct kernel_view *cond,
                          const struct kernel_view *a, const struct kernel_view *b,
                          const struct kernel_view *y, const struct kernel_epilogue *epilogue)
{
    struct epilogue e;
    walk<4> w;
    const struct kernel_view *const views[4] = {y, cond, a, b};
    if (!walk_make(views, &w) || !epilogue_make(epilogue, y, &e) || cond->dtype != DTYPE_BOOL ||
        a->dtype != y->dtype || b->dtype != y->dtype || (e.n && !number_is_short_float(y->dtype)))
        return cudaErrorNotSupported;
    if (w.total == 0)
        return cudaSuccess;
    switch (number_size(y->dtype)) {
    case 1:
        return select_run<uint8_t>(call, cond, a, b, y, w, e);
    case 2:
        return select_run<uint16_t>(call, cond, a, b, y, w, e);
    case 4:
        return select_run<uint32_t>(call, cond, a, b, y, w, e);
    case 8:
        return select_run<uint64_t>(call, cond, a, b, y, w, e);
    default:
        return cudaErrorNotSupported;
    }
}
