/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CPU that runs CUDA kernels, for tests: the .cu files of kernels/cuda are compiled as C++ with
 * this header included first (see meson.build), and their launchers then run the kernel before they
 * return. Sanitizers see every access, so an index that is wrong by one is found here.
 *
 * Blocks run one after the other, but those of emulate_launch_together and those of a cluster side
 * by side, each with its own dynamic shared memory (static shared memory is one for all). A block's
 * threads are fibers, each of which runs until it waits (at a barrier, or for the other lanes of a
 * warp). They run in ascending order at first and reverse the order after each round of waiting, so
 * that a missing barrier has a good chance to show. Blocks of a cluster begin as late as they can.
 * Asynchronous copies arrive when they are waited for and not before. A block whose threads all
 * wait for something that cannot come, and lanes that meet in different operations, end the program
 * with a line that says where.
 *
 * hopper.h has what is Hopper's own. Memory order between blocks and textures are not emulated.
 */
#ifndef INFERD_TESTS_EMULATE_EMULATE_H
#define INFERD_TESTS_EMULATE_EMULATE_H

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "tests/emulate/hopper.h"

#undef __shared__
#define __shared__ static /* blocks do not overlap */
#undef __constant__
#define __constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __noinline__
#define __noinline__ __attribute__((noinline))

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

/* --- what stands behind the functions below --- */

typedef void (*emulate_body)(void *user);
cudaError_t emulate_run(dim3 grid, dim3 block, size_t shared, emulate_body body, void *user);

template <class F> inline cudaError_t emulate_launch(dim3 grid, dim3 block, size_t shared, F body)
{
    return emulate_run(
        grid, block, shared, [](void *user) { (*static_cast<F *>(user))(); }, &body);
}

/* Runs all blocks of a one-dimensional grid side by side; whole warps only. */
cudaError_t emulate_run_together(dim3 grid, dim3 block, size_t shared, emulate_body body,
                                 void *user);

template <class F>
inline cudaError_t emulate_launch_together(dim3 grid, dim3 block, size_t shared, F body)
{
    return emulate_run_together(
        grid, block, shared, [](void *user) { (*static_cast<F *>(user))(); }, &body);
}

/* Runs the blocks of a one-dimensional grid in clusters, those of one side by side. */
cudaError_t emulate_run_cluster(dim3 grid, dim3 block, size_t shared, int cluster,
                                emulate_body body, void *user);

template <class F>
inline cudaError_t emulate_launch_cluster(dim3 grid, dim3 block, size_t shared, int cluster, F body)
{
    return emulate_run_cluster(
        grid, block, shared, cluster, [](void *user) { (*static_cast<F *>(user))(); }, &body);
}

/* Lets other threads run. A kernel calls this where it asks memory again and again for what another
 * block will write; if all threads do nothing else for long, the program ends. */
void emulate_yield(void);

void *emulate_shared(void); /* the block's dynamic shared memory, poisoned when it starts */

/* The calling lane hands in `size` (at most 64) bytes and gets what all lanes of `mask` handed in:
 * lane l's at [l * 64]. The result is valid until the lane's next exchange. `what` must be the same
 * for all. */
const char *emulate_exchange(unsigned mask, const char *what, const void *in, size_t size);
void emulate_fail(const char *what); /* says where the error is, and ends the program */
int emulate_lane(void);

void __syncthreads(void);
int __syncthreads_count(int predicate);
int __syncthreads_and(int predicate);
int __syncthreads_or(int predicate);

void emulate_mma_m16n8k16(bool bf16, float *d, const uint32_t *a, const uint32_t *b);
void emulate_mma_m16n8k32(bool is_signed, int32_t *d, const uint32_t *a, const uint32_t *b);
void emulate_ldmatrix(int matrices, bool transposed, uint32_t *r, const void *row);
void emulate_copy_async(void *shared, const void *global, size_t size, bool valid);
void emulate_copy_commit(void);
void emulate_copy_wait(int pending);

/* --- warps --- */

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulate_exchange(mask, "__syncwarp", nullptr, 0);
}

template <class T> inline T emulate_lane_value(const char *all, int lane)
{
    T value;
    memcpy(&value, all + lane * 64, sizeof(value));
    return value;
}

template <class T> inline T __shfl_sync(unsigned mask, T value, int from, int width = 32)
{
    int lane = emulate_lane(), first = lane & ~(width - 1);
    const char *all = emulate_exchange(mask, "__shfl_sync", &value, sizeof(value));
    return emulate_lane_value<T>(all, first + (from & (width - 1)));
}

template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int lane = emulate_lane(), from = lane ^ bits;
    const char *all = emulate_exchange(mask, "__shfl_xor_sync", &value, sizeof(value));
    return (from & ~(width - 1)) > (lane & ~(width - 1)) ? value : emulate_lane_value<T>(all, from);
}

template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane = emulate_lane(), from = lane - (int)by;
    const char *all = emulate_exchange(mask, "__shfl_up_sync", &value, sizeof(value));
    return from < (lane & ~(width - 1)) ? value : emulate_lane_value<T>(all, from);
}

template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32)
{
    int lane = emulate_lane(), from = lane + (int)by;
    const char *all = emulate_exchange(mask, "__shfl_down_sync", &value, sizeof(value));
    return from >= (lane & ~(width - 1)) + width ? value : emulate_lane_value<T>(all, from);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const char *all = emulate_exchange(mask, "__ballot_sync", &predicate, sizeof(predicate));
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && emulate_lane_value<int>(all, lane))
            bits |= 1u << lane;
    return bits;
}

inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

#define EMULATE_REDUCE(name, type, expr)                                                           \
    inline type name(unsigned mask, type value)                                                    \
    {                                                                                              \
        const char *all = emulate_exchange(mask, #name, &value, sizeof(value));                    \
        bool first = true;                                                                         \
        type a = 0;                                                                                \
        for (int lane = 0; lane < 32; lane++)                                                      \
            if (mask >> lane & 1) {                                                                \
                type b = emulate_lane_value<type>(all, lane);                                      \
                a = first ? b : (expr);                                                            \
                first = false;                                                                     \
            }                                                                                      \
        return a;                                                                                  \
    }
EMULATE_REDUCE(__reduce_add_sync, unsigned, a + b)
EMULATE_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
EMULATE_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
EMULATE_REDUCE(__reduce_or_sync, unsigned, a | b)
EMULATE_REDUCE(__reduce_and_sync, unsigned, a &b)
EMULATE_REDUCE(__reduce_add_sync, int, a + b)
EMULATE_REDUCE(__reduce_max_sync, int, a > b ? a : b)
EMULATE_REDUCE(__reduce_min_sync, int, a < b ? a : b)
#undef EMULATE_REDUCE

/* --- memory --- */

template <class T> inline T __ldg(const T *from)
{
    return *from;
}
template <class T> inline T __ldcs(const T *from)
{
    return *from;
}
template <class T> inline T __ldcg(const T *from)
{
    return *from;
}
template <class T> inline T __ldca(const T *from)
{
    return *from;
}
template <class T> inline void __stcs(T *to, T value)
{
    *to = value;
}
template <class T> inline void __stcg(T *to, T value)
{
    *to = value;
}
inline void __threadfence(void)
{
}
inline void __threadfence_block(void)
{
}

#define EMULATE_ATOMIC(name, expr)                                                                 \
    template <class T> inline T name(T *at, T b)                                                   \
    {                                                                                              \
        T a = *at;                                                                                 \
        *at = (T)(expr);                                                                           \
        return a;                                                                                  \
    }
EMULATE_ATOMIC(atomicAdd, a + b)
EMULATE_ATOMIC(atomicSub, a - b)
EMULATE_ATOMIC(atomicMax, a > b ? a : b)
EMULATE_ATOMIC(atomicMin, a < b ? a : b)
EMULATE_ATOMIC(atomicOr, a | b)
EMULATE_ATOMIC(atomicAnd, a &b)
EMULATE_ATOMIC(atomicExch, b)
#undef EMULATE_ATOMIC
template <class T> inline T atomicCAS(T *at, T expected, T value)
{
    T old = *at;
    if (old == expected)
        *at = value;
    return old;
}

/* --- arithmetic --- */

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)
{
    uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned to = 0;
    for (int i = 0; i < 4; i++) /* the sign bit of a selector is not emulated */
        to |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return to;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
#define EMULATE_BITS(name, from_type, to_type)                                                     \
    inline to_type name(from_type from)                                                            \
    {                                                                                              \
        to_type to;                                                                                \
        memcpy(&to, &from, sizeof(to));                                                            \
        return to;                                                                                 \
    }
EMULATE_BITS(__float_as_int, float, int)
EMULATE_BITS(__float_as_uint, float, unsigned)
EMULATE_BITS(__int_as_float, int, float)
EMULATE_BITS(__uint_as_float, unsigned, float)
#undef EMULATE_BITS

#define EMULATE_FLOAT(name, expr)                                                                  \
    inline float name(float x)                                                                     \
    {                                                                                              \
        return expr;                                                                               \
    }
EMULATE_FLOAT(rsqrtf, 1 / sqrtf(x))
EMULATE_FLOAT(__expf, expf(x))
EMULATE_FLOAT(__logf, logf(x))
EMULATE_FLOAT(__log2f, log2f(x))
EMULATE_FLOAT(__sinf, sinf(x))
EMULATE_FLOAT(__cosf, cosf(x))
EMULATE_FLOAT(__tanhf, tanhf(x))
EMULATE_FLOAT(__frcp_rn, 1 / x)
EMULATE_FLOAT(__fsqrt_rn, sqrtf(x))
EMULATE_FLOAT(__frsqrt_rn, 1 / sqrtf(x))
EMULATE_FLOAT(__saturatef, x > 0 ? (x < 1 ? x : 1) : 0)
#undef EMULATE_FLOAT
inline float __powf(float x, float y)
{
    return powf(x, y);
}
inline float __fdividef(float x, float y)
{
    return fabsf(y) > 0x1p126f && !std::isinf(x) && y == y ? 0 : x / y;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline double __dadd_rn(double x, double y)
{
    return x + y;
}
inline double __dmul_rn(double x, double y)
{
    return x * y;
}

#define EMULATE_MIN_MAX(type)                                                                      \
    inline type min(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? a : b;                                                                      \
    }                                                                                              \
    inline type max(type a, type b)                                                                \
    {                                                                                              \
        return a > b ? a : b;                                                                      \
    }
EMULATE_MIN_MAX(int)
EMULATE_MIN_MAX(unsigned)
EMULATE_MIN_MAX(long)
EMULATE_MIN_MAX(unsigned long)
EMULATE_MIN_MAX(long long)
EMULATE_MIN_MAX(unsigned long long)
#undef EMULATE_MIN_MAX
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}

#endif
