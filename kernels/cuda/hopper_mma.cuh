/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hopper's matrix products, wgmma: 64 rows of A times n columns of B by a warpgroup, one k step of
 * 32 bytes (16 numbers of 16 bits, or 32 bytes) each, summed in fp32 registers; of integers in
 * int32.
 *
 * Result fragment, for thread t of the warpgroup, w = t / 32, g = t % 32 / 4, q = t % 4:
 *   d[4j + e]      row 16w + g,      column 8j + 2q + e     (e = 0, 1)
 *   d[4j + 2 + e]  row 16w + g + 8,  the same column
 * A in registers: a[0] = row g, columns 2q, 2q + 1; a[1] = row g + 8, the same; a[2] and a[3] = the
 * same rows, columns 2q + 8, 2q + 9. So the results 8k .. 8k + 7 of one product, packed in pairs,
 * are the A of step k of another.
 *
 * An operand in shared memory is named by a descriptor: start >> 4 in bits 0-13, LBO >> 4 in 16-29,
 * SBO >> 4 in 32-45, the swizzle in 62-63 (1: of 128 bytes, 2: of 64, 3: of 32, 0: none). With
 * swz(a) = a ^ (a >> 7 & 7) << 4 for 128 bytes, & 3 for 64, & 1 for 32, of absolute addresses:
 *   K-major       byte k of row r at swz(start + r / 8 SBO + r % 8 line + k); the next k step 32
 *                 bytes further
 *   bricks        byte k of row r at start + r / 8 SBO + k / 16 LBO + r % 8 16 + k % 16, without a
 *                 swizzle; they may overlap, so that rows of 16 bytes are taps of one another
 *   transposed B  number n of row k at swz(start + n / (line / 2) LBO + k / 8 SBO + k % 8 line
 *                 + n % (line / 2) 2): rows of memory are K, as the values of attention lie
 * Tensor copies of boxes whose lines are as long as the swizzle write just this.
 */
#ifndef INFERD_KERNELS_CUDA_HOPPER_MMA_CUH
#define INFERD_KERNELS_CUDA_HOPPER_MMA_CUH

#include "kernels/cuda/hopper.cuh"

__host__ __device__ constexpr uint64_t hopper_swizzle(int line)
{
    return line == 128 ? 1 : line == 64 ? 2 : 3;
}

/* K-major: rows of LINE bytes, dense by eights; the next eight begin `pitch` rows further on. */
template <int LINE>
__device__ __forceinline__ uint64_t descriptor_rows(uint32_t address, int pitch = 8)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)(pitch * LINE >> 4) << 32 | hopper_swizzle(LINE) << 62;
}

/* The operand that lies so many units of 16 bytes further on. One addition is enough: an address
 * does not fill its field. */
__device__ __forceinline__ uint64_t descriptor_moved(uint64_t descriptor, uint32_t units)
{
    return (descriptor & ~(uint64_t)UINT32_MAX) | ((uint32_t)descriptor + units);
}

/* The operand that lies `bytes` further on, a multiple of 16. */
__device__ __forceinline__ uint64_t descriptor_beyond(uint64_t descriptor, int bytes)
{
    return descriptor_moved(descriptor, (uint32_t)(bytes >> 4));
}

/* Without a swizzle: the next 16 bytes of K `lead` bytes further, the next 8 rows `stride`. */
__device__ __forceinline__ uint64_t descriptor_bricks(uint32_t address, int lead, int stride)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32;
}

/* Transposed: dense rows of LINE bytes, the next LINE / 2 columns `box` bytes further. A k step is
 * 16 rows. */
template <int LINE>
__device__ __forceinline__ uint64_t descriptor_columns(uint32_t address, int box)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(box >> 4) << 16 |
           (uint64_t)(8 * LINE >> 4) << 32 | hopper_swizzle(LINE) << 62;
}

/* Before the first of some products, and after every change of their registers. */
__device__ __forceinline__ void wgmma_fence(void)
{
#ifdef INFERD_EMULATE
    emulate_wgmma_fence();
#else
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Closes a group of products. */
__device__ __forceinline__ void wgmma_commit(void)
{
#ifdef INFERD_EMULATE
    emulate_wgmma_commit();
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Waits for all but the PENDING latest groups. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait(void)
{
#ifdef INFERD_EMULATE
    emulate_wgmma_wait(PENDING);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
}

/* Keeps the compiler from moving registers across this place while products use them. */
template <int N> __device__ __forceinline__ void wgmma_hold([[maybe_unused]] float (&d)[N])
{
#ifndef INFERD_EMULATE
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
#endif
}

template <int N> __device__ __forceinline__ void wgmma_hold([[maybe_unused]] uint32_t (&a)[N])
{
#ifndef INFERD_EMULATE
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i])::"memory");
#endif
}

template <int N> __device__ __forceinline__ void wgmma_hold([[maybe_unused]] int32_t (&d)[N])
{
#ifndef INFERD_EMULATE
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
#endif
}

/* --- the instruction --- */

#ifdef INFERD_EMULATE

template <class T> constexpr int hopper_type(void)
{
    return sizeof(T) == 1                          ? EMULATE_E4M3
           : (int)number_of<T>::dtype == DTYPE_F16 ? EMULATE_F16
                                                   : EMULATE_BF16;
}

template <class T, int R> void wgmma(float (&d)[R], uint64_t a, uint64_t b, int keep)
{
    emulate_wgmma(hopper_type<T>(), 2 * R, d, a, nullptr, b, false, keep);
}

/* A and B: int8_t or uint8_t, one of them int8_t. */
template <class A, class B, int R>
void wgmma_bytes(int32_t (&d)[R], uint64_t a, uint64_t b, int keep)
{
    const bool u_a = (int)number_of<A>::dtype == DTYPE_U8,
               u_b = (int)number_of<B>::dtype == DTYPE_U8;
    static_assert(!u_a || !u_b, "one of them is signed");
    emulate_wgmma(u_a   ? EMULATE_U8_S8
                  : u_b ? EMULATE_S8_U8
                        : EMULATE_S8,
                  2 * R, d, a, nullptr, b, false, keep);
}

template <class T, int R, int P>
void wgmma_registers(float (&d)[R], const uint32_t (&a)[P], int at, uint64_t b, int keep)
{
    emulate_wgmma(hopper_type<T>(), 2 * R, d, 0, a + at, b, true, keep);
}

#else

/* clang-format off */
#define HOPPER_NAMES_16                                                                            \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define HOPPER_NAMES_32                                                                            \
    HOPPER_NAMES_16                                                                                \
    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HOPPER_NAMES_48                                                                            \
    HOPPER_NAMES_32                                                                                \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HOPPER_NAMES_56                                                                            \
    HOPPER_NAMES_48                                                                                \
    ",%48,%49,%50,%51,%52,%53,%54,%55"
#define HOPPER_NAMES_64                                                                            \
    HOPPER_NAMES_48                                                                                \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HOPPER_NAMES_96                                                                            \
    HOPPER_NAMES_64                                                                                \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"                             \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HOPPER_NAMES_104                                                                           \
    HOPPER_NAMES_96                                                                                \
    ",%96,%97,%98,%99,%100,%101,%102,%103"
#define HOPPER_NAMES_128                                                                           \
    HOPPER_NAMES_104                                                                               \
    ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119"             \
    ",%120,%121,%122,%123,%124,%125,%126,%127"
#define HOPPER_SUMS_8(i)                                                                           \
    HOPPER_SUM(d[i]), HOPPER_SUM(d[i + 1]), HOPPER_SUM(d[i + 2]), HOPPER_SUM(d[i + 3]),            \
        HOPPER_SUM(d[i + 4]), HOPPER_SUM(d[i + 5]), HOPPER_SUM(d[i + 6]), HOPPER_SUM(d[i + 7])
#define HOPPER_SUMS_16                                                                             \
    HOPPER_SUMS_8(0), HOPPER_SUMS_8(8)
#define HOPPER_SUMS_32                                                                             \
    HOPPER_SUMS_16, HOPPER_SUMS_8(16), HOPPER_SUMS_8(24)
#define HOPPER_SUMS_48                                                                             \
    HOPPER_SUMS_32, HOPPER_SUMS_8(32), HOPPER_SUMS_8(40)
#define HOPPER_SUMS_56                                                                             \
    HOPPER_SUMS_48, HOPPER_SUMS_8(48)
#define HOPPER_SUMS_64                                                                             \
    HOPPER_SUMS_48, HOPPER_SUMS_8(48), HOPPER_SUMS_8(56)
#define HOPPER_SUMS_96                                                                             \
    HOPPER_SUMS_64, HOPPER_SUMS_8(64), HOPPER_SUMS_8(72), HOPPER_SUMS_8(80), HOPPER_SUMS_8(88)
#define HOPPER_SUMS_104                                                                            \
    HOPPER_SUMS_96, HOPPER_SUMS_8(96)
#define HOPPER_SUMS_128                                                                            \
    HOPPER_SUMS_104, HOPPER_SUMS_8(104), HOPPER_SUMS_8(112), HOPPER_SUMS_8(120)
/* clang-format on */

#define HOPPER_SUM(x) "+f"(x)
/* n columns, r = n / 2 registers d; a, b, k: the numbers of the operands behind them */
#define HOPPER_PRODUCT(n, r, a_at, b_at, k_at, type)                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k_at ", 0;\n"                                \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type                    \
                 " {" HOPPER_NAMES_##r "}, %" a_at ", %" b_at ", p, 1, 1, 0, 0;\n}\n"              \
                 : HOPPER_SUMS_##r                                                                 \
                 : "l"(a), "l"(b), "r"(keep))
#define HOPPER_PRODUCT_F8(n, r, a_at, b_at, k_at)                                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k_at ", 0;\n"                                \
                 "wgmma.mma_async.sync.aligned.m64n" n "k32.f32.e4m3.e4m3 {" HOPPER_NAMES_##r      \
                 "}, %" a_at ", %" b_at ", p, 1, 1;\n}\n"                                          \
                 : HOPPER_SUMS_##r                                                                 \
                 : "l"(a), "l"(b), "r"(keep))
/* n, r, and the numbers of three operands behind r registers */
#define HOPPER_WGMMA(n, r, a_at, b_at, k_at)                                                       \
    template <class T>                                                                             \
    __device__ __forceinline__ void wgmma(float(&d)[r], uint64_t a, uint64_t b, int keep)          \
    {                                                                                              \
        if constexpr (number_of<T>::dtype == DTYPE_F16)                                            \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "f16");                                         \
        else if constexpr (number_of<T>::dtype == DTYPE_BF16)                                      \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "bf16");                                        \
        else                                                                                       \
            HOPPER_PRODUCT_F8(n, r, a_at, b_at, k_at);                                             \
    }
/* d = a b + (keep ? d : 0) */
HOPPER_WGMMA("32", 16, "16", "17", "18")
HOPPER_WGMMA("64", 32, "32", "33", "34")
HOPPER_WGMMA("96", 48, "48", "49", "50")
HOPPER_WGMMA("112", 56, "56", "57", "58")
HOPPER_WGMMA("128", 64, "64", "65", "66")
HOPPER_WGMMA("192", 96, "96", "97", "98")
HOPPER_WGMMA("208", 104, "104", "105", "106")
HOPPER_WGMMA("256", 128, "128", "129", "130")
#undef HOPPER_WGMMA
#undef HOPPER_PRODUCT
#undef HOPPER_PRODUCT_F8

#define HOPPER_PRODUCT(n, r, a_at, b_at, k_at, type)                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k_at ", 0;\n"                                \
                 "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type                    \
                 " {" HOPPER_NAMES_##r "}, {" a_at "}, %" b_at ", p, 1, 1, 1;\n}\n"                \
                 : HOPPER_SUMS_##r                                                                 \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(keep))
#define HOPPER_WGMMA(n, r, a_at, b_at, k_at)                                                       \
    template <class T, int P>                                                                      \
    __device__ __forceinline__ void wgmma_registers(float(&d)[r], const uint32_t(&a)[P], int at,   \
                                                    uint64_t b, int keep)                          \
    {                                                                                              \
        uint32_t a0 = a[at], a1 = a[at + 1], a2 = a[at + 2], a3 = a[at + 3];                       \
        if constexpr (number_of<T>::dtype == DTYPE_F16)                                            \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "f16");                                         \
        else                                                                                       \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "bf16");                                        \
    }
/* The same with a[at .. at + 3] as A, and B transposed. */
HOPPER_WGMMA("32", 16, "%16, %17, %18, %19", "20", "21")
HOPPER_WGMMA("64", 32, "%32, %33, %34, %35", "36", "37")
HOPPER_WGMMA("96", 48, "%48, %49, %50, %51", "52", "53")
HOPPER_WGMMA("128", 64, "%64, %65, %66, %67", "68", "69")
#undef HOPPER_WGMMA
#undef HOPPER_PRODUCT
#undef HOPPER_SUM

#define HOPPER_SUM(x) "+r"(x)
#define HOPPER_PRODUCT(n, r, a_at, b_at, k_at, types)                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" k_at ", 0;\n"                                \
                 "wgmma.mma_async.sync.aligned.m64n" n "k32.s32." types " {" HOPPER_NAMES_##r      \
                 "}, %" a_at ", %" b_at ", p;\n}\n"                                                \
                 : HOPPER_SUMS_##r                                                                 \
                 : "l"(a), "l"(b), "r"(keep))
#define HOPPER_WGMMA(n, r, a_at, b_at, k_at)                                                       \
    template <class A, class B>                                                                    \
    __device__ __forceinline__ void wgmma_bytes(int32_t(&d)[r], uint64_t a, uint64_t b, int keep)  \
    {                                                                                              \
        if constexpr (number_of<A>::dtype == DTYPE_U8)                                             \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "u8.s8");                                       \
        else if constexpr (number_of<B>::dtype == DTYPE_U8)                                        \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "s8.u8");                                       \
        else                                                                                       \
            HOPPER_PRODUCT(n, r, a_at, b_at, k_at, "s8.s8");                                       \
    }
/* The same of bytes, int8_t or uint8_t, one of A and B int8_t. */
HOPPER_WGMMA("32", 16, "16", "17", "18")
HOPPER_WGMMA("64", 32, "32", "33", "34")
HOPPER_WGMMA("112", 56, "56", "57", "58")
HOPPER_WGMMA("128", 64, "64", "65", "66")
HOPPER_WGMMA("192", 96, "96", "97", "98")
HOPPER_WGMMA("256", 128, "128", "129", "130")
#undef HOPPER_WGMMA
#undef HOPPER_PRODUCT
#undef HOPPER_SUM

#endif

#endif
