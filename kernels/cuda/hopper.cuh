/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Hopper (compute capability 9.0) has beyond mma.cuh, as functions: PTX for sm_90a under nvcc,
 * the emulator's models (tests/emulate/hopper.h) otherwise. hopper_mma.cuh has the matrix products,
 * hopper_map.cuh the maps of tensor copies; docs/kernels.md says how a kernel uses them.
 *
 * Files that include this are compiled for sm_90a alone, and their launchers refuse other devices.
 *
 * Two proxies read and write shared memory: threads, and the asynchronous one of tensor copies and
 * matrix products. What a thread writes for the other proxy, it writes by shared_put, and then
 * calls proxy_fence before the barrier behind which the product or the copy is issued.
 */
#ifndef INFERD_KERNELS_CUDA_HOPPER_CUH
#define INFERD_KERNELS_CUDA_HOPPER_CUH

#include <cuda.h>

#include "kernels/cuda/device.cuh"

enum { HOPPER_WARPGROUP = 128, HOPPER_SHARED_MAX = 227 << 10, HOPPER_ALIGN = 1024 };

/* The address of shared memory, as descriptors and instructions have it. */
__device__ __forceinline__ uint32_t shared_address(const void *shared)
{
#ifdef INFERD_EMULATE
    return emulate_address(shared);
#else
    return (uint32_t)__cvta_generic_to_shared(shared);
#endif
}

/* The first place from `shared` on where swizzled tiles may begin. A kernel asks for HOPPER_ALIGN
 * bytes more than it uses. */
__device__ __forceinline__ unsigned char *shared_aligned(unsigned char *shared)
{
    return shared +
           ((HOPPER_ALIGN - (shared_address(shared) & (HOPPER_ALIGN - 1))) & (HOPPER_ALIGN - 1));
}

/* The same place, in a register of its own. The other one is computed anew for each use, from a
 * special register that takes long to read; what a warp has exchanged is kept. Called by whole
 * warps. */
__device__ __forceinline__ unsigned char *shared_kept(unsigned char *shared)
{
    unsigned char *at = shared_aligned(shared);
#ifdef INFERD_EMULATE
    return at;
#else
    uint32_t kept = __shfl_sync(UINT32_MAX, shared_address(at), 0);
    return static_cast<unsigned char *>(__cvta_shared_to_generic(kept));
#endif
}

/* A store to shared memory that the asynchronous proxy is to read. */
template <class T> __device__ __forceinline__ void shared_put(void *to, const T &value)
{
#ifdef INFERD_EMULATE
    emulate_put(to, &value, sizeof(value));
#else
    *static_cast<T *>(to) = value;
#endif
}

__device__ __forceinline__ void proxy_fence(void)
{
#ifdef INFERD_EMULATE
    emulate_proxy_fence();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* --- barriers --- */

/* An mbarrier is 8 bytes of shared memory. It counts phases; a phase is over when `count` arrivals
 * and all bytes that were announced have come. One thread initialises a block's mbarriers, then
 * calls mbarrier_fence, and then the block meets. */
__device__ __forceinline__ void mbarrier_init(uint64_t *barrier, uint32_t count)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_init(barrier, count);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count));
#endif
}

__device__ __forceinline__ void mbarrier_fence(void)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_fence();
#else
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/* Arrives, and announces bytes that tensor loads will bring. */
__device__ __forceinline__ void mbarrier_expect(uint64_t *barrier, uint32_t bytes)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_expect(barrier, bytes);
#else
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
#endif
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t *barrier)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_arrive(barrier);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
#endif
}

/* Waits until a phase of this parity is over: the first phase has parity 0. */
__device__ __forceinline__ void mbarrier_wait(uint64_t *barrier, uint32_t parity)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_wait(barrier, parity);
#else
    asm volatile("{\n.reg .pred p;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
#endif
}

/* The same, for bytes that other blocks of the cluster have sent. */
__device__ __forceinline__ void mbarrier_wait_cluster(uint64_t *barrier, uint32_t parity)
{
#ifdef INFERD_EMULATE
    emulate_mbarrier_wait(barrier, parity);
#else
    asm volatile("{\n.reg .pred p;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
#endif
}

/* Meets `threads` threads, whole warps, at barrier 1 to 15 of the block; 0 is __syncthreads'. */
__device__ __forceinline__ void named_sync(int id, int threads)
{
#ifdef INFERD_EMULATE
    emulate_named_sync(id, threads);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

/* Registers of a thread from here on: all warps of a warpgroup call one of these, in code that no
 * other warpgroup reaches. The kernel is launched by __launch_bounds__(threads, 1). */
template <int N> __device__ __forceinline__ void registers_more(void)
{
#ifdef INFERD_EMULATE
    emulate_registers(N);
#else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

template <int N> __device__ __forceinline__ void registers_fewer(void)
{
#ifdef INFERD_EMULATE
    emulate_registers(N);
#else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* --- clusters --- */

/* A cluster's blocks run at the same time and write into each other's shared memory. All threads
 * arrive at the cluster's barrier; who waits knows then that every block has begun and has done
 * what it did before it arrived. A thread that has ended need not wait. */
__device__ __forceinline__ int cluster_rank(void)
{
#ifdef INFERD_EMULATE
    return emulate_cluster_rank();
#else
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#endif
}

__device__ __forceinline__ void cluster_arrive(void)
{
#ifdef INFERD_EMULATE
    emulate_cluster_arrive();
#else
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait(void)
{
#ifdef INFERD_EMULATE
    emulate_cluster_wait();
#else
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ uint32_t word_of(float v)
{
    return __float_as_uint(v);
}

__device__ __forceinline__ uint32_t word_of(int32_t v)
{
    return (uint32_t)v;
}

/* Sends 16 bytes to the place of block `rank` that has the address `to` here. That block's mbarrier
 * at `barrier` counts them; it must not end before they have come. In a kernel that is launched
 * without clusters this is an illegal instruction. */
__device__ __forceinline__ void peer_push(void *to, const uint4 &from, uint64_t *barrier, int rank)
{
#ifdef INFERD_EMULATE
    const uint32_t words[4] = {from.x, from.y, from.z, from.w};
    emulate_peer_push(to, words, barrier, rank);
#else
    asm volatile("{\n.reg .b32 to, at;\n"
                 "mapa.shared::cluster.u32 to, %0, %6;\n"
                 "mapa.shared::cluster.u32 at, %1, %6;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
                 "[to], {%2, %3, %4, %5}, [at];\n}\n" ::"r"(shared_address(to)),
                 "r"(shared_address(barrier)), "r"(from.x), "r"(from.y), "r"(from.z), "r"(from.w),
                 "r"(rank)
                 : "memory");
#endif
}

/* --- launching --- */

/* After grid_wait, in a thread that loads by tensor copies what a kernel before stored. */
__device__ __forceinline__ void grid_fence(void)
{
#ifndef INFERD_EMULATE
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

/* Launches a one-dimensional grid, in clusters of up to 8 blocks if `cluster` is more than 1. It
 * may begin early, as what kernel_launch_early launches. */
template <class... P, class... A>
inline cudaError_t hopper_launch(void (*kernel)(P...), unsigned blocks, int cluster,
                                 unsigned threads, size_t shared, const struct kernel_call *call,
                                 A... args)
{
    if (call->dry)
        return cudaSuccess;
#ifdef INFERD_EMULATE
    auto run = [&]() { kernel(static_cast<P>(args)...); };
    return cluster > 1 ? emulate_launch_cluster(dim3(blocks), dim3(threads), shared, cluster, run)
                       : emulate_launch(dim3(blocks), dim3(threads), shared, run);
#else
    cudaError_t code = kernel_make_room(kernel, shared);
    if (code != cudaSuccess)
        return code;
    cudaLaunchAttribute attributes[2] = {kernel_early(), {}};
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = (unsigned)cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    return kernel_launch_with(attributes, cluster > 1 ? 2 : 1, kernel, dim3(blocks), dim3(threads),
                              shared, call->stream, args...);
#endif
}

/* --- tensor copies --- */

/* By one thread. The box at c.. (elements of dim 0, 1, ..) of the map's tensor; what lies outside
 * of the tensor is read as 0 and not written. A map is a __grid_constant__ parameter. */
__device__ __forceinline__ void tensor_prefetch(const CUtensorMap *map)
{
#ifdef INFERD_EMULATE
    (void)map;
#else
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

__device__ __forceinline__ void tensor_load_2d(void *to, const CUtensorMap *map, uint64_t *barrier,
                                               int c0, int c1)
{
#ifdef INFERD_EMULATE
    const int32_t c[2] = {c0, c1};
    emulate_tensor_load(to, map, barrier, 2, c);
#else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
                 : "memory");
#endif
}

/* The same, of what is not read again before much else is: the L2 cache makes room by it first. */
__device__ __forceinline__ void tensor_load_2d_once(void *to, const CUtensorMap *map,
                                                    uint64_t *barrier, int c0, int c1)
{
#ifdef INFERD_EMULATE
    tensor_load_2d(to, map, barrier, c0, c1);
#else
    asm volatile(
        "{\n.reg .b64 first;\n"
        "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], first;\n}\n" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
        : "memory");
#endif
}

__device__ __forceinline__ void tensor_load_4d(void *to, const CUtensorMap *map, uint64_t *barrier,
                                               int c0, int c1, int c2, int c3)
{
#ifdef INFERD_EMULATE
    const int32_t c[4] = {c0, c1, c2, c3};
    emulate_tensor_load(to, map, barrier, 4, c);
#else
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
#endif
}

/* Rows of pixels of an image [N, H, W, C] as a convolution reads them, by a map of
 * hopper_map_images: (w, h, n) is the first pixel's place under the window's first tap, and
 * (right, down) the tap. Rows go on along W, H and N as the window does. */
__device__ __forceinline__ void tensor_load_images(void *to, const CUtensorMap *map,
                                                   uint64_t *barrier, int c, int w, int h, int n,
                                                   int right, int down)
{
#ifdef INFERD_EMULATE
    const int32_t first[4] = {c, w, h, n};
    emulate_tensor_load_images(to, map, barrier, first, right, down);
#else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(c), "r"(w), "r"(h), "r"(n),
        "h"((uint16_t)right), "h"((uint16_t)down)
        : "memory");
#endif
}

__device__ __forceinline__ void tensor_store_2d(const CUtensorMap *map, const void *from, int c0,
                                                int c1)
{
#ifdef INFERD_EMULATE
    const int32_t c[2] = {c0, c1};
    emulate_tensor_store(map, from, 2, c);
#else
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], "
                 "[%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1)
                 : "memory");
#endif
}

__device__ __forceinline__ void tensor_store_4d(const CUtensorMap *map, const void *from, int c0,
                                                int c1, int c2, int c3)
{
#ifdef INFERD_EMULATE
    const int32_t c[4] = {c0, c1, c2, c3};
    emulate_tensor_store(map, from, 4, c);
#else
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, "
                 "%5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
#endif
}

/* Closes a group of the thread's stores. */
__device__ __forceinline__ void store_commit(void)
{
#ifdef INFERD_EMULATE
    emulate_bulk_commit();
#else
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}

/* Waits until all but the PENDING latest groups have read shared memory. */
template <int PENDING> __device__ __forceinline__ void store_wait_read(void)
{
#ifdef INFERD_EMULATE
    emulate_bulk_wait(PENDING);
#else
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
#endif
}

/* Waits until all stores are done; a thread that stored does so before the kernel ends. */
__device__ __forceinline__ void store_wait_all(void)
{
#ifdef INFERD_EMULATE
    emulate_bulk_wait(0);
#else
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

/* A place in a ring of `n` stages, and the parity of its mbarriers' present phase. */
struct hopper_turn {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next(int n)
    {
        if (++at == n) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* --- arithmetic --- */

__device__ __forceinline__ float exp2_fast(float x)
{
#ifdef INFERD_EMULATE
    return exp2f(x);
#else
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

__device__ __forceinline__ float tanh_fast(float x)
{
#ifdef INFERD_EMULATE
    return tanhf(x);
#else
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
#endif
}

/* a b + c, not below 0 and not above 1; NaN gives 0. */
__device__ __forceinline__ float fma_saturated(float a, float b, float c)
{
#ifdef INFERD_EMULATE
    float r = fmaf(a, b, c);
    return r > 1 ? 1 : r > 0 ? r : 0;
#else
    float r;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    return r;
#endif
}

/* The compiler knows nothing of the number from here on, so it computes nothing from it before. */
__device__ __forceinline__ void own_path(int &number)
{
#ifdef INFERD_EMULATE
    (void)number;
#else
    asm volatile("" : "+r"(number));
#endif
}

/* The larger one; NaN if x is. */
__device__ __forceinline__ float max_or_nan(float x, float floor)
{
#ifdef INFERD_EMULATE
    return x < floor ? floor : x;
#else
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(floor));
    return r;
#endif
}

/* Two numbers of 16 bits in a word, the first one in the low half. */
template <class T> __device__ __forceinline__ uint32_t pair_of(float first, float second);
template <> __device__ __forceinline__ uint32_t pair_of<half_t>(float first, float second)
{
    __half2 both = __floats2half2_rn(first, second);
    uint32_t word;
    memcpy(&word, &both, sizeof(word));
    return word;
}
template <> __device__ __forceinline__ uint32_t pair_of<bf16_t>(float first, float second)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    uint32_t word;
    memcpy(&word, &both, sizeof(word));
    return word;
}

template <class T> __device__ __forceinline__ float2 pair_floats(uint32_t word);
template <> __device__ __forceinline__ float2 pair_floats<half_t>(uint32_t word)
{
    __half2 both;
    memcpy(static_cast<void *>(&both), &word, sizeof(both));
    return __half22float2(both);
}
template <> __device__ __forceinline__ float2 pair_floats<bf16_t>(uint32_t word)
{
    float2 both;
    both.x = __uint_as_float(word << 16);
    both.y = __uint_as_float(word & 0xffff0000u);
    return both;
}

/* Each number of x not below that of `low` and not above that of `high`; NaN stays. */
template <class T>
__device__ __forceinline__ uint32_t pair_within(uint32_t x, uint32_t low, uint32_t high)
{
#ifdef INFERD_EMULATE
    float2 v = pair_floats<T>(x), l = pair_floats<T>(low), h = pair_floats<T>(high);
    v.x = v.x < l.x ? l.x : v.x > h.x ? h.x : v.x;
    v.y = v.y < l.y ? l.y : v.y > h.y ? h.y : v.y;
    return pair_of<T>(v.x, v.y);
#else
    if constexpr (number_of<T>::dtype == DTYPE_F16)
        asm("max.NaN.f16x2 %0, %0, %1;\nmin.NaN.f16x2 %0, %0, %2;" : "+r"(x) : "r"(low), "r"(high));
    else
        asm("max.NaN.bf16x2 %0, %0, %1;\nmin.NaN.bf16x2 %0, %0, %2;"
            : "+r"(x)
            : "r"(low), "r"(high));
    return x;
#endif
}

/* Over the four lanes that share a row of a product's result. */
__device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

__device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

#endif
