/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that are compiled once for each instruction set share: vectors of the set's own
 * width, exp, and rows of exponentials. Private to kernels/cpu.
 */
#ifndef INFERD_KERNELS_CPU_FAST_INNER_H
#define INFERD_KERNELS_CPU_FAST_INNER_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#define VECTOR _Pragma("omp simd")

static inline float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* 2^k for k in -126..127 */
static inline float power_of_two(int32_t k)
{
    return float_of((uint32_t)(k + 127) << 23);
}

/* exp(x) = 2^k exp(r) with |r| <= ln(2)/2; adding 1.5 * 2^23 rounds to the integer k and leaves it
 * in the low bits. Returns exp(r). */
static inline float exp_split(float x, int32_t *k)
{
    const float magic = 12582912.0F;
    float shifted = x * 1.44269504F + magic;
    float whole = shifted - magic;
    float r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F; /* ln 2 in two parts */
    float p = 0.00138358115F;
    p = p * r + 0.0083756357F;
    p = p * r + 0.0416682881F;
    p = p * r + 0.166664104F;
    p = p * r + 0.499999916F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    *k = (int32_t)(bits_of(shifted) - bits_of(magic)); /* any number if x is NaN */
    return p;
}

/* 2^k is applied in two halves, so that subnormal and infinite results come out right. */
static inline float exp_of(float x)
{
    int32_t k;
    x = x < -104.0F ? -104.0F : x;
    x = x > 89.0F ? 89.0F : x;
    float p = exp_split(x, &k);
    k = k < -150 ? -150 : k;
    k = k > 128 ? 128 : k;
    int32_t half = k >> 1;
    return p * power_of_two(half) * power_of_two(k - half);
}

/* exp(x) for x <= 0. Results that would be subnormal are 0. */
static inline float exp_of_negative(float x)
{
    int32_t k;
    float p = exp_split(x, &k);
    float e = float_of(bits_of(p) + ((uint32_t)k << 23)); /* p is within 0.7..1.42 */
    e = x < -87.0F ? 0.0F : e;
    return x != x ? x : e;
}

/* The largest element that is not NaN. It is computed in lanes, because compilers that honour NaN
 * do not split a plain maximum. */
static inline float highest_of(const float *x, size_t n)
{
    enum { WIDE = 16 };
    float lanes[WIDE];
    size_t whole = n - n % WIDE;
    for (size_t l = 0; l < WIDE; l++)
        lanes[l] = -INFINITY;
    for (size_t i = 0; i < whole; i += WIDE) {
        VECTOR
        for (size_t l = 0; l < WIDE; l++)
            lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    float highest = -INFINITY;
    for (size_t l = 0; l < WIDE; l++)
        highest = lanes[l] > highest ? lanes[l] : highest;
    for (size_t i = whole; i < n; i++)
        highest = x[i] > highest ? x[i] : highest;
    return highest;
}

/* Rows are summed in parts of this length, so that the error of adding in fp32 does not grow with a
 * row's length. */
enum { PART = 256 };

/* y = exp(x - highest); returns the sum. */
static inline float exp_part(const float *x, float *y, size_t n, float highest)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        float e = exp_of_negative(x[i] - highest);
        y[i] = e;
        sum += e;
    }
    return sum;
}

/* --- vectors --- */

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float vec __attribute__((vector_size(sizeof(float) * LANES), aligned(4), may_alias));

#define VEC_AT(p, i) (((vec *)(uintptr_t)(p))[i])

/* --- transposes of LANES x LANES numbers --- */

#define SHUFFLE __builtin_shufflevector
/* clang-format off */
#ifdef __AVX512F__
#define EACH_LANE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) \
    DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOW_1(x, y) SHUFFLE(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define HIGH_1(x, y) SHUFFLE(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#define LOW_2(x, y) SHUFFLE(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_2(x, y) SHUFFLE(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LOW_4(x, y) SHUFFLE(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define HIGH_4(x, y) SHUFFLE(x, y, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LOW_8(x, y) SHUFFLE(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH_8(x, y) SHUFFLE(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#else
#define EACH_LANE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define LOW_1(x, y) SHUFFLE(x, y, 0, 8, 2, 10, 4, 12, 6, 14)
#define HIGH_1(x, y) SHUFFLE(x, y, 1, 9, 3, 11, 5, 13, 7, 15)
#define LOW_2(x, y) SHUFFLE(x, y, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_2(x, y) SHUFFLE(x, y, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_4(x, y) SHUFFLE(x, y, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_4(x, y) SHUFFLE(x, y, 4, 5, 6, 7, 12, 13, 14, 15)
#endif

#define TURN_READ(r)  vec v##r = VEC_AT(from[r], 0);
#define TURN_WRITE(c) VEC_AT(to[c], 0) = v##c;
/* Swaps blocks of s x s numbers that lie across the diagonal. */
#define EXCHANGE(s, a, b) \
    do { vec x_ = v##a, y_ = v##b; v##a = LOW_##s(x_, y_); v##b = HIGH_##s(x_, y_); } while (0);

/* to[c][r] = from[r][c] */
static inline void turn_block(const float *const from[LANES], float *const to[LANES])
{
    EACH_LANE(TURN_READ)
#ifdef __AVX512F__
    EXCHANGE(8, 0, 8) EXCHANGE(8, 1, 9) EXCHANGE(8, 2, 10) EXCHANGE(8, 3, 11)
    EXCHANGE(8, 4, 12) EXCHANGE(8, 5, 13) EXCHANGE(8, 6, 14) EXCHANGE(8, 7, 15)
    EXCHANGE(4, 0, 4) EXCHANGE(4, 1, 5) EXCHANGE(4, 2, 6) EXCHANGE(4, 3, 7)
    EXCHANGE(4, 8, 12) EXCHANGE(4, 9, 13) EXCHANGE(4, 10, 14) EXCHANGE(4, 11, 15)
    EXCHANGE(2, 0, 2) EXCHANGE(2, 1, 3) EXCHANGE(2, 4, 6) EXCHANGE(2, 5, 7)
    EXCHANGE(2, 8, 10) EXCHANGE(2, 9, 11) EXCHANGE(2, 12, 14) EXCHANGE(2, 13, 15)
    EXCHANGE(1, 0, 1) EXCHANGE(1, 2, 3) EXCHANGE(1, 4, 5) EXCHANGE(1, 6, 7)
    EXCHANGE(1, 8, 9) EXCHANGE(1, 10, 11) EXCHANGE(1, 12, 13) EXCHANGE(1, 14, 15)
#else
    EXCHANGE(4, 0, 4) EXCHANGE(4, 1, 5) EXCHANGE(4, 2, 6) EXCHANGE(4, 3, 7)
    EXCHANGE(2, 0, 2) EXCHANGE(2, 1, 3) EXCHANGE(2, 4, 6) EXCHANGE(2, 5, 7)
    EXCHANGE(1, 0, 1) EXCHANGE(1, 2, 3) EXCHANGE(1, 4, 5) EXCHANGE(1, 6, 7)
#endif
    EACH_LANE(TURN_WRITE)
}
/* clang-format on */

#endif
