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

#if defined(__AVX512F__)
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float vec __attribute__((vector_size(sizeof(float) * LANES), aligned(4), may_alias));

#define VEC_AT(p, i) (((vec *)(uintptr_t)(p))[i])

#endif
