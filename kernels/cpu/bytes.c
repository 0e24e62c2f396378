/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of bytes.h for one instruction set. The build compiles this file several times,
 * with BYTES_TABLE as the table's name.
 */
#include "kernels/cpu/bytes.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

#include "kernels/cpu/fast_inner.h"

/* Adding 1.5 * 2^23 to a number of less than 2^22 rounds it to an integer, and halves to even. */
static inline float whole_of(float x)
{
    const float magic = 12582912.0F;
    return (x + magic) - magic;
}

#define WIDEN(name, type)                                                                          \
    static void name(const void *from, float *y, size_t n, float step, float zero)                 \
    {                                                                                              \
        const type *x = from;                                                                      \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = step * ((float)x[i] - zero);                                                    \
    }

/* The quotient is cut before it is rounded, and comparisons with NaN are false. */
#define NARROW(name, type, least, most)                                                            \
    static void name(const float *x, void *to, size_t n, float step, float zero)                   \
    {                                                                                              \
        type *y = to;                                                                              \
        const float low = (least)-zero, high = (most)-zero;                                        \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            float v = x[i] / step;                                                                 \
            v = v > low ? v : low;                                                                 \
            v = v < high ? v : high;                                                               \
            y[i] = (type)(int32_t)(whole_of(v) + zero);                                            \
        }                                                                                          \
    }

/* Two rows of `type` become one. */
#define COMBINE(name, type, constants, expr)                                                       \
    static void name(const void *from_a, const void *from_b, void *to, size_t n,                   \
                     const struct constants *by)                                                   \
    {                                                                                              \
        const type *as = from_a, *bs = from_b;                                                     \
        type *y = to;                                                                              \
        const struct constants k = *by;                                                            \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            float a = (float)as[i], b = (float)bs[i];                                              \
            float v = (expr);                                                                      \
            v = v > k.low ? v : k.low;                                                             \
            v = v < k.high ? v : k.high;                                                           \
            y[i] = (type)(int32_t)(whole_of(v) + k.zero);                                          \
        }                                                                                          \
    }

#define ADD(name, type)                                                                            \
    static void name(const void *from, int32_t *sums, size_t n)                                    \
    {                                                                                              \
        const type *x = from;                                                                      \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            sums[i] += x[i];                                                                       \
    }

/* clang-format off */
WIDEN(widen_i8, int8_t)
WIDEN(widen_u8, uint8_t)
NARROW(narrow_i8, int8_t, -128.0F, 127.0F)
NARROW(narrow_u8, uint8_t, 0.0F, 255.0F)
COMBINE(sum_i8, int8_t, byte_sum, a * k.factor_a + (b * k.factor_b + k.shift))
COMBINE(sum_u8, uint8_t, byte_sum, a * k.factor_a + (b * k.factor_b + k.shift))
COMBINE(product_i8, int8_t, byte_product, (a + k.shift_a) * (b + k.shift_b) * k.factor)
COMBINE(product_u8, uint8_t, byte_product, (a + k.shift_a) * (b + k.shift_b) * k.factor)
ADD(add_i8, int8_t)
ADD(add_u8, uint8_t)
/* clang-format on */

#ifdef __AVX512BW__
/* Registers hold the whole table where the processor can pick bytes out of two of them at once.
 * Returns how many bytes are done. */
__attribute__((target("avx512vbmi"))) static size_t look_up_registers(const uint8_t *x, uint8_t *y,
                                                                      size_t n,
                                                                      const uint8_t table[256])
{
    enum { WIDE = 64 };
    size_t i = 0;
    const __m512i a = _mm512_loadu_si512(table), b = _mm512_loadu_si512(table + WIDE);
    const __m512i c = _mm512_loadu_si512(table + 2 * WIDE);
    const __m512i d = _mm512_loadu_si512(table + 3 * WIDE);
    for (; i + WIDE <= n; i += WIDE) {
        __m512i at = _mm512_loadu_si512(x + i);
        __m512i low = _mm512_permutex2var_epi8(a, at, b);
        __m512i high = _mm512_permutex2var_epi8(c, at, d);
        _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
    return i;
}
#endif

static void look_up(const uint8_t *x, uint8_t *y, size_t n, const uint8_t table[256])
{
    size_t i = 0;
#ifdef __AVX512BW__
    if (__builtin_cpu_supports("avx512vbmi"))
        i = look_up_registers(x, y, n, table);
#endif
    for (; i < n; i++)
        y[i] = table[x[i]];
}

/* Colours one behind the other become pixels. */
static void turn_three(const uint8_t *from, int64_t from_row, uint8_t *to, int64_t cols)
{
    const uint8_t *a = from, *b = from + from_row, *c = b + from_row;
    VECTOR
    for (int64_t i = 0; i < cols; i++) {
        to[3 * i] = a[i];
        to[3 * i + 1] = b[i];
        to[3 * i + 2] = c[i];
    }
}

/* Blocks keep the lines that are written to in the first-level cache. */
static void turn(const uint8_t *from, int64_t from_row, uint8_t *to, int64_t to_row, int64_t rows,
                 int64_t cols)
{
    enum { BLOCK = 32 };
    if (rows == 3 && to_row == 3) {
        turn_three(from, from_row, to, cols);
        return;
    }
    for (int64_t block = 0; block < rows; block += BLOCK) {
        int64_t end = MIN(rows, block + BLOCK);
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = block; r < end; r++)
                to[c * to_row + r] = from[r * from_row + c];
    }
}

static void extremes(const float *x, size_t n, float *least, float *largest)
{
    enum { WIDE = 64 };
    float low[WIDE], high[WIDE];
    size_t whole = n - n % WIDE;
    for (size_t l = 0; l < WIDE; l++) {
        low[l] = INFINITY;
        high[l] = -INFINITY;
    }
    for (size_t i = 0; i < whole; i += WIDE) {
        VECTOR
        for (size_t l = 0; l < WIDE; l++) {
            low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
            high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
        }
    }
    for (size_t i = whole; i < n; i++) {
        low[0] = x[i] < low[0] ? x[i] : low[0];
        high[0] = x[i] > high[0] ? x[i] : high[0];
    }
    *least = INFINITY;
    *largest = -INFINITY;
    for (size_t l = 0; l < WIDE; l++) {
        *least = low[l] < *least ? low[l] : *least;
        *largest = high[l] > *largest ? high[l] : *largest;
    }
}

extern const struct byte_kernels BYTES_TABLE;
const struct byte_kernels BYTES_TABLE = {
    .widen = {[BYTE_I8] = widen_i8, [BYTE_U8] = widen_u8},
    .narrow = {[BYTE_I8] = narrow_i8, [BYTE_U8] = narrow_u8},
    .sum = {[BYTE_I8] = sum_i8, [BYTE_U8] = sum_u8},
    .product = {[BYTE_I8] = product_i8, [BYTE_U8] = product_u8},
    .look_up = look_up,
    .add = {[BYTE_I8] = add_i8, [BYTE_U8] = add_u8},
    .turn = turn,
    .extremes = extremes,
};
