/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor cores and asynchronous copies, as functions: PTX under nvcc, the emulator's lane-exact
 * versions otherwise. All lanes of a warp call the mma and ldmatrix functions together.
 *
 * Fragments of m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type"),
 * with g = lane / 4, t = lane % 4; a register holds two neighbours, the lower index in the low
 * half: A (16x16, row-major): a[0] = row g,   columns 2t, 2t+1     a[1] = row g+8, the same columns
 *                         a[2] = row g,   columns 2t+8, 2t+9   a[3] = row g+8
 *   B (16x8):             b[0] = column g, rows 2t, 2t+1       b[1] = column g, rows 2t+8, 2t+9
 *   C, D (16x8, fp32):    d[0], d[1] = row g, columns 2t, 2t+1 d[2], d[3] = row g+8
 *
 * Fragments of m16n8k32 for bytes are the same registers, with four neighbours in each: A (16x32)
 * columns 4t..4t+3 and 16 further, B (32x8) rows likewise; C and D hold INT32.
 */
#ifndef INFERD_KERNELS_CUDA_MMA_CUH
#define INFERD_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/device.cuh"

#ifndef INFERD_EMULATE
#define MMA_M16N8K16(type)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                           \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

/* d += a b */
__device__ __forceinline__ void mma_m16n8k16(half_t, float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2])
{
#ifdef INFERD_EMULATE
    emulate_mma_m16n8k16(false, d, a, b);
#else
    MMA_M16N8K16("f16");
#endif
}

__device__ __forceinline__ void mma_m16n8k16(bf16_t, float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2])
{
#ifdef INFERD_EMULATE
    emulate_mma_m16n8k16(true, d, a, b);
#else
    MMA_M16N8K16("bf16");
#endif
}
#undef MMA_M16N8K16

/* mma_m16n8k16_f16(d, a, b) and mma_m16n8k16_bf16(d, a, b) name the type. */
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2])
{
    mma_m16n8k16(half_t(), d, a, b);
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2])
{
    mma_m16n8k16(bf16_t(), d, a, b);
}

/* d += a b, where a has I8 if it is SIGNED and else U8, and b has I8; modulo 2^32 */
template <bool SIGNED>
__device__ __forceinline__ void mma_m16n8k32(int32_t (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2])
{
#ifdef INFERD_EMULATE
    emulate_mma_m16n8k32(SIGNED, d, a, b);
#else
#define MMA_M16N8K32(type)                                                                         \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 "                          \
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                           \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (SIGNED)
        MMA_M16N8K32("s8");
    else
        MMA_M16N8K32("u8");
#undef MMA_M16N8K32
#endif
}

/* Returns c plus the products of four INT8 pairs, modulo 2^32. */
__device__ __forceinline__ int32_t dot_bytes(uint32_t a, uint32_t b, int32_t c)
{
#ifdef INFERD_EMULATE
    for (int i = 0; i < 32; i += 8)
        c = (int32_t)((uint32_t)c + (uint32_t)((int8_t)(a >> i) * (int8_t)(b >> i)));
    return c;
#else
    return __dp4a((int32_t)a, (int32_t)b, c);
#endif
}

/* Returns the maxima of two pairs of INT16. */
__device__ __forceinline__ uint32_t max_pairs(uint32_t a, uint32_t b)
{
#ifdef INFERD_EMULATE
    uint32_t high = (int32_t)a >> 16 > (int32_t)b >> 16 ? a : b;
    return (high & 0xffff0000) | ((int16_t)a > (int16_t)b ? a & 0xffff : b & 0xffff);
#else
    return __vmaxs2(a, b);
#endif
}

#ifndef INFERD_EMULATE
__device__ __forceinline__ uint32_t mma_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}
#endif

/* Loads four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address (16-byte
 * aligned) of row l % 8 of matrix l / 8. r[i] gets row lane / 4 of matrix i, columns 2 (lane % 4)
 * and the next: the fragments above. trans: the matrices are transposed. */
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
#ifdef INFERD_EMULATE
    emulate_ldmatrix(4, false, r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
#ifdef INFERD_EMULATE
    emulate_ldmatrix(4, true, r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(mma_shared_address(row))
                 : "memory");
#endif
}

/* Does the same with two matrices; lanes 16..31 give addresses that are not used but must be
 * valid. */
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void *row)
{
#ifdef INFERD_EMULATE
    emulate_ldmatrix(2, false, r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(mma_shared_address(row))
                 : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row)
{
#ifdef INFERD_EMULATE
    emulate_ldmatrix(2, true, r, row);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(mma_shared_address(row))
                 : "memory");
#endif
}

/* Starts a copy of 16 bytes from global to shared memory (both aligned), through L2 alone; if not
 * `valid`, zeros are written and `global` is not read. The bytes are there after copy_async_wait
 * and, for other threads, a barrier. */
__device__ __forceinline__ void copy_async_16(void *shared, const void *global, bool valid = true)
{
#ifdef INFERD_EMULATE
    emulate_copy_async(shared, global, 16, valid);
#else
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(mma_shared_address(shared)),
                 "l"(global), "r"(bytes)
                 : "memory");
#endif
}

/* Closes a group of the copies that this thread has started. */
__device__ __forceinline__ void copy_async_commit(void)
{
#ifdef INFERD_EMULATE
    emulate_copy_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until at most the PENDING latest groups of this thread are still under way. */
template <int PENDING> __device__ __forceinline__ void copy_async_wait(void)
{
#ifdef INFERD_EMULATE
    emulate_copy_wait(PENDING);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

#endif
