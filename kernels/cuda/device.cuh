/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every kernel file starts from: how a kernel is launched, the element types, conversion
 * between them, vectors of 16 bytes, and division by constants.
 *
 * The same .cu files compile with nvcc, and as plain C++ under tests/emulate, where blocks run one
 * after the other on the CPU (INFERD_EMULATE; the emulator's header is then included first). So
 * kernels are launched only by KERNEL_LAUNCH or kernel_launch_together, get dynamic shared memory
 * only by KERNEL_SHARED, and use instructions that C++ lacks only through the functions of mma.cuh.
 *
 *   math.cuh      the IR's unary and binary functions      epilogue.cuh  a node's epilogue
 *   reduce.cuh    warp and block reductions                mma.cuh       tensor cores, cp.async
 */
#ifndef INFERD_KERNELS_CUDA_DEVICE_CUH
#define INFERD_KERNELS_CUDA_DEVICE_CUH

#include <stddef.h>
#include <stdint.h>

#ifndef INFERD_EMULATE
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef INFERD_EMULATE
#include <cuda_fp8.h>
#endif

#include "base/dtype.h"
#include "kernels/cuda/kernels.h"

/* --- launching --- */

enum { KERNEL_WARP = 32, KERNEL_SHARED_DEFAULT = 48 << 10 };

#ifndef INFERD_EMULATE

/* More than 48 KiB of dynamic shared memory must be asked for once per kernel. Asking again is
 * cheap and may happen while a stream is being captured. */
template <class... P> inline cudaError_t kernel_make_room(void (*kernel)(P...), size_t shared)
{
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared);
}

/* Launches a kernel with attributes. */
template <class... P, class... A>
inline cudaError_t kernel_launch_with(cudaLaunchAttribute *attributes, unsigned n,
                                      void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                      cudaStream_t stream, A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = n;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

#endif

template <class... P, class... A>
inline cudaError_t kernel_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                 [[maybe_unused]] cudaStream_t stream, A... args)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0)
        return cudaSuccess;
#ifdef INFERD_EMULATE
    return emulate_launch(grid, block, shared, [&]() { kernel(static_cast<P>(args)...); });
#else
    cudaError_t code =
        shared > KERNEL_SHARED_DEFAULT ? kernel_make_room(kernel, shared) : cudaSuccess;
    if (code != cudaSuccess)
        return code;
    kernel<<<grid, block, shared, stream>>>(static_cast<P>(args)...);
    return cudaGetLastError();
#endif
}

/* --- one kernel behind another --- */

/* What kernel_launch_early launches may begin before the kernel in front of it has ended, whichever
 * that is: all its threads call grid_wait before they touch what other kernels write or read
 * (weights may be read before), and no thread leaves without it, so that a kernel's end means the
 * end of all before it. grid_go lets the next one begin as soon as there is room. */
__device__ __forceinline__ void grid_wait(void)
{
#if !defined(INFERD_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void grid_go(void)
{
#if !defined(INFERD_EMULATE) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#ifndef INFERD_EMULATE
/* The attribute of a kernel that may begin before the one ahead of it in its stream has ended. */
inline cudaLaunchAttribute kernel_early(void)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    return early;
}
#endif

/* As KERNEL_LAUNCH with a call. Devices before 9.0 begin such kernels as any other. */
template <class... P, class... A>
inline cudaError_t kernel_launch_early(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                       const struct kernel_call *call, A... args)
{
    if (call->dry || grid.x == 0)
        return cudaSuccess;
#ifndef INFERD_EMULATE
    cudaLaunchAttribute early = kernel_early();
    if (call->capability >= 90 && shared <= KERNEL_SHARED_DEFAULT)
        return kernel_launch_with(&early, 1, kernel, grid, block, shared, call->stream, args...);
#endif
    return kernel_launch(kernel, grid, block, shared, call->stream, args...);
}

/* Launches a grid whose blocks wait for each other: all of them are resident at a time, or the
 * launch fails. Such kernels have no static shared memory, which the emulator's blocks would
 * share. */
template <class... P, class... A>
inline cudaError_t kernel_launch_together(void (*kernel)(P...), dim3 grid, dim3 block,
                                          size_t shared, const struct kernel_call *call, A... args)
{
    if (call->dry)
        return cudaSuccess;
#ifdef INFERD_EMULATE
    return emulate_launch_together(grid, block, shared, [&]() { kernel(static_cast<P>(args)...); });
#else
    cudaError_t code = kernel_make_room(kernel, shared);
    if (code != cudaSuccess)
        return code;
    cudaLaunchAttribute together = {};
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
    return kernel_launch_with(&together, 1, kernel, grid, block, shared, call->stream, args...);
#endif
}

/* Takes a call in the place of the stream: a dry call launches nothing. */
template <class... P, class... A>
inline cudaError_t kernel_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                 const struct kernel_call *call, A... args)
{
    return call->dry ? cudaSuccess
                     : kernel_launch(kernel, grid, block, shared, call->stream, args...);
}

/* KERNEL_LAUNCH((name<T, 8>), grid, block, shared_bytes, stream or call, arguments...): an
 * expression of type cudaError_t. An empty grid is no error. */
#define KERNEL_LAUNCH(kernel, grid, block, shared, stream, ...)                                    \
    kernel_launch(kernel, dim3(grid), dim3(block), (size_t)(shared), stream, __VA_ARGS__)

/* Declares `type *name`: the block's dynamic shared memory, aligned to 16 bytes. */
#ifdef INFERD_EMULATE
#define KERNEL_SHARED(type, name) type *name = static_cast<type *>(emulate_shared())
#else
#define KERNEL_SHARED(type, name)                                                                  \
    extern __shared__ __align__(16) unsigned char kernel_shared_bytes[];                           \
    type *name = reinterpret_cast<type *>(kernel_shared_bytes)
#endif

/* --- element types --- */

struct boolean { /* one byte, 0 or 1 */
    unsigned char v;
};
struct f8_t { /* base/dtype.h */
    unsigned char v;
};
typedef __half half_t;
typedef __nv_bfloat16 bf16_t;

template <class T> struct number_of {
    static const int dtype = DTYPE_NONE;
};
#define NUMBER_OF(type, number)                                                                    \
    template <> struct number_of<type> {                                                           \
        static const int dtype = number;                                                           \
    }
NUMBER_OF(boolean, DTYPE_BOOL);
NUMBER_OF(uint8_t, DTYPE_U8);
NUMBER_OF(uint16_t, DTYPE_U16);
NUMBER_OF(uint32_t, DTYPE_U32);
NUMBER_OF(uint64_t, DTYPE_U64);
NUMBER_OF(int8_t, DTYPE_I8);
NUMBER_OF(int16_t, DTYPE_I16);
NUMBER_OF(int32_t, DTYPE_I32);
NUMBER_OF(int64_t, DTYPE_I64);
NUMBER_OF(f8_t, DTYPE_F8);
NUMBER_OF(half_t, DTYPE_F16);
NUMBER_OF(bf16_t, DTYPE_BF16);
NUMBER_OF(float, DTYPE_F32);
NUMBER_OF(double, DTYPE_F64);
#undef NUMBER_OF

/* Bytes of an element by the number of its type; device code cannot call dtype_size(). */
__host__ __device__ inline int number_size(int dtype)
{
    return dtype == DTYPE_BOOL || dtype == DTYPE_U8 || dtype == DTYPE_I8 || dtype == DTYPE_F8 ? 1
           : dtype == DTYPE_U16 || dtype == DTYPE_I16 || dtype == DTYPE_F16 || dtype == DTYPE_BF16
               ? 2
           : dtype == DTYPE_U32 || dtype == DTYPE_I32 || dtype == DTYPE_F32 ? 4
           : dtype == DTYPE_NONE || dtype >= DTYPE_COUNT_                   ? 0
                                                                            : 8;
}

/* Converts as x86 does, and so the reference: a value that does not fit becomes the smallest
 * number. */
__device__ __forceinline__ int32_t number_truncate_32(double v)
{
    return v > -2147483649.0 && v < 2147483648.0 ? (int32_t)v : INT32_MIN;
}
__device__ __forceinline__ int32_t number_truncate_32(float v)
{
    return v >= -2147483648.0f && v < 2147483648.0f ? (int32_t)v : INT32_MIN;
}

__device__ __forceinline__ int64_t number_truncate_64(double v)
{
    return v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN;
}

__device__ __forceinline__ uint64_t number_truncate_u64(double v)
{
    if (v >= 9223372036854775808.0)
        return v < 18446744073709551616.0 ? (uint64_t)v : 0;
    return (uint64_t)number_truncate_64(v);
}

/* number_to<float>(x), number_to<double>(x): floats are converted exactly, integers rounded to
 * nearest even. */
template <class F, class T> __device__ __forceinline__ F number_to(T x)
{
    return (F)x;
}
template <> __device__ __forceinline__ float number_to<float, boolean>(boolean x)
{
    return x.v ? 1.0f : 0.0f;
}
template <> __device__ __forceinline__ double number_to<double, boolean>(boolean x)
{
    return x.v ? 1.0 : 0.0;
}
template <> __device__ __forceinline__ float number_to<float, f8_t>(f8_t x)
{
    /* as fp16, but with another bias of the exponent */
    __half_raw raw;
    raw.x = (unsigned short)((x.v & 0x80) << 8 | (x.v & 0x7f) << 7);
    return (x.v & 0x7f) == 0x7f ? NAN : __half2float(__half(raw)) * 256.0f;
}
template <> __device__ __forceinline__ double number_to<double, f8_t>(f8_t x)
{
    return (double)number_to<float, f8_t>(x);
}
template <> __device__ __forceinline__ float number_to<float, half_t>(half_t x)
{
    return __half2float(x);
}
template <> __device__ __forceinline__ double number_to<double, half_t>(half_t x)
{
    return (double)__half2float(x);
}
template <> __device__ __forceinline__ float number_to<float, bf16_t>(bf16_t x)
{
    return __bfloat162float(x);
}
template <> __device__ __forceinline__ double number_to<double, bf16_t>(bf16_t x)
{
    return (double)__bfloat162float(x);
}
template <class T> __device__ __forceinline__ float number_float(T x)
{
    return number_to<float, T>(x);
}

#ifndef __CUDA_ARCH__
/* f32_to_f8, where the device's instruction is not there. */
inline unsigned char number_f8(float v)
{
    float size = fabsf(v);
    unsigned char sign = copysignf(1.0f, v) < 0 ? 0x80 : 0;
    if (v != v)
        return 0x7f;
    if (size >= DTYPE_F8_MAX)
        return (unsigned char)(sign | 0x7e);
    int exponent = 0;
    frexpf(size, &exponent); /* size < 2^exponent */
    int unit = exponent - 4 < -9 ? -9 : exponent - 4;
    float steps = rintf(ldexpf(size, -unit)); /* at most 16 */
    return (unsigned char)(sign + (steps == 0   ? 0
                                   : unit == -9 ? (int)steps
                                                : ((unit + 10) << 3) + (int)steps - 8));
}
#endif

/* number_from<T>(float or double) rounds to nearest even once. To integers it converts as the
 * reference's ref_cast: towards zero, and a value that does not fit becomes the smallest int32 or
 * int64 cut to the width. */
template <class T, class F> struct number_maker {
    static __device__ __forceinline__ T make(F v)
    {
        return sizeof(T) < 4 ? (T)(uint32_t)number_truncate_32(v) : (T)number_truncate_64(v);
    }
};
template <class F> struct number_maker<int32_t, F> {
    static __device__ __forceinline__ int32_t make(F v)
    {
        return number_truncate_32(v);
    }
};
template <class F> struct number_maker<uint64_t, F> {
    static __device__ __forceinline__ uint64_t make(F v)
    {
        return number_truncate_u64(v);
    }
};
template <class F> struct number_maker<boolean, F> {
    static __device__ __forceinline__ boolean make(F v)
    {
        boolean b = {(unsigned char)(v != 0)};
        return b;
    }
};
template <class F> struct number_maker<float, F> {
    static __device__ __forceinline__ float make(F v)
    {
        return (float)v;
    }
};
template <class F> struct number_maker<double, F> {
    static __device__ __forceinline__ double make(F v)
    {
        return (double)v;
    }
};
template <> struct number_maker<f8_t, float> {
    static __device__ __forceinline__ f8_t make(float v)
    {
#ifdef __CUDA_ARCH__
        f8_t y = {(unsigned char)__nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3)};
#else
        f8_t y = {number_f8(v)};
#endif
        return y;
    }
};
template <> struct number_maker<f8_t, double> {
    static __device__ __forceinline__ f8_t make(double v)
    {
#ifdef __CUDA_ARCH__
        f8_t y = {(unsigned char)__nv_cvt_double_to_fp8(v, __NV_SATFINITE, __NV_E4M3)};
#else
        f8_t y = {number_f8((float)v)};
#endif
        return y;
    }
};
template <> struct number_maker<half_t, float> {
    static __device__ __forceinline__ half_t make(float v)
    {
        return __float2half_rn(v);
    }
};
template <> struct number_maker<half_t, double> {
    static __device__ __forceinline__ half_t make(double v)
    {
        return __double2half(v);
    }
};
template <> struct number_maker<bf16_t, float> {
    static __device__ __forceinline__ bf16_t make(float v)
    {
        return __float2bfloat16_rn(v);
    }
};
template <> struct number_maker<bf16_t, double> {
    static __device__ __forceinline__ bf16_t make(double v)
    {
        return __double2bfloat16(v);
    }
};
template <class T, class F> __device__ __forceinline__ T number_from(F v)
{
    return number_maker<T, F>::make(v);
}

/* The types that kernels compute in: F16, BF16, F32. */
__host__ __device__ inline bool number_is_short_float(int dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F32;
}

/* Loads one element of one of these types, known at run time, as float. */
__device__ inline float number_load(int dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_F16:
        return number_float(static_cast<const half_t *>(data)[i]);
    case DTYPE_BF16:
        return number_float(static_cast<const bf16_t *>(data)[i]);
    default:
        return static_cast<const float *>(data)[i];
    }
}

/* --- vectors --- */

/* N elements that are loaded and stored together, by one instruction if they have at most 16 bytes.
 * The address must be a multiple of their size (of 16 bytes, if it is larger). */
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vector {
    T v[N];
};

/* Vectors are moved by words of up to 16 bytes: at lower levels of optimisation the compiler does
 * not find out by itself that elements are neighbours. */
template <int BYTES> struct vector_word {
    typedef uint4 type;
};
template <> struct vector_word<8> {
    typedef uint2 type;
};
template <> struct vector_word<4> {
    typedef uint32_t type;
};
template <> struct vector_word<2> {
    typedef uint16_t type;
};
template <> struct vector_word<1> {
    typedef uint8_t type;
};

template <class T, int N> __device__ __forceinline__ vector<T, N> vector_load(const T *from)
{
    typedef typename vector_word<(int)sizeof(T) * N>::type word;
    vector<T, N> value;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(value) / sizeof(word)); i++) {
        word raw = reinterpret_cast<const word *>(from)[i];
        memcpy(reinterpret_cast<word *>(&value) + i, &raw, sizeof(raw));
    }
    return value;
}

template <class T, int N> __device__ __forceinline__ void vector_store(T *to, vector<T, N> value)
{
    typedef typename vector_word<(int)sizeof(T) * N>::type word;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(value) / sizeof(word)); i++) {
        word raw;
        memcpy(&raw, reinterpret_cast<const word *>(&value) + i, sizeof(raw));
        reinterpret_cast<word *>(to)[i] = raw;
    }
}

/* Read N elements from `from` as floats, and write them. */
template <int N, class T> __device__ __forceinline__ void vector_read(const T *from, float (&to)[N])
{
    vector<T, N> raw = vector_load<T, N>(from);
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = number_float(raw.v[i]);
}

template <int N, class T>
__device__ __forceinline__ void vector_write(T *to, const float (&from)[N])
{
    vector<T, N> raw;
#pragma unroll
    for (int i = 0; i < N; i++)
        raw.v[i] = number_from<T>(from[i]);
    vector_store<T, N>(to, raw);
}

/* all[i] where the compiler does not know i: chosen, so that `all` need not have an address. */
template <class V, int N> __device__ __forceinline__ V vector_pick(const V (&all)[N], int i)
{
    V value = all[0];
#pragma unroll
    for (int k = 1; k < N; k++)
        if (i == k)
            value = all[k];
    return value;
}

template <class V, int N, int M>
__device__ __forceinline__ void vector_pick(const V (&all)[N][M], int i, V (&to)[M])
{
#pragma unroll
    for (int j = 0; j < M; j++) {
        to[j] = all[0][j];
#pragma unroll
        for (int k = 1; k < N; k++)
            to[j] = i == k ? all[k][j] : to[j];
    }
}

/* --- index arithmetic --- */

/* n / by for n < 2^31 without a division: Granlund and Montgomery, "Division by invariant integers
 * using multiplication", PLDI 1994. */
struct divider {
    uint32_t by, magic, shift;
};

inline struct divider divider_make(uint32_t by)
{
    struct divider d = {by ? by : 1, 0, 0};
    while (d.shift < 31 && (UINT32_C(1) << d.shift) < d.by)
        d.shift++;
    uint64_t power = UINT64_C(1) << d.shift;
    d.magic = (uint32_t)(((power - d.by) << 32) / d.by + 1);
    return d;
}

__device__ __forceinline__ uint32_t divider_quotient(const struct divider &d, uint32_t n)
{
    return (__umulhi(n, d.magic) + n) >> d.shift;
}

__device__ __forceinline__ uint32_t divider_split(const struct divider &d, uint32_t n,
                                                  uint32_t *rest)
{
    uint32_t q = divider_quotient(d, n);
    *rest = n - q * d.by;
    return q;
}

/* --- host-side helpers of launchers --- */

inline int64_t kernel_elements(const struct kernel_view *view)
{
    int64_t n = 1;
    for (int i = 0; i < view->rank; i++)
        n *= view->dim[i];
    return n;
}

/* One more than the largest offset in the view's memory, which indices must hold. */
inline int64_t kernel_span(const struct kernel_view *view)
{
    int64_t span = 1;
    for (int i = 0; i < view->rank; i++) {
        if (view->dim[i] == 0)
            return 0;
        span += (view->dim[i] - 1) * (view->stride[i] < 0 ? -view->stride[i] : view->stride[i]);
    }
    return span;
}

inline int64_t kernel_ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* The multiprocessors to fill. */
inline int kernel_multiprocessors(const struct kernel_call *call)
{
    return call->multiprocessors > 0 ? call->multiprocessors : 132;
}

/* The blocks of a grid-stride loop: as many as there is `work` for, but at most `resident` on each
 * multiprocessor. */
inline unsigned kernel_grid(const struct kernel_call *call, int64_t work, int resident)
{
    int64_t most = (int64_t)kernel_multiprocessors(call) * resident;
    return (unsigned)(work < most ? work : most);
}

#endif
