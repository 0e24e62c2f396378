/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast rows of 8-bit integers that stand for real numbers: q stands for step * (q - zero). bytes.c
 * is compiled once for each instruction set; a table of fast.h points to the table of its own set.
 *
 * A real number becomes the integer nearest to x / step (of two the even one) plus zero, cut to the
 * type; NaN becomes the type's least number. Tables have an entry for INT8 and one for UINT8
 * (enum byte_type). Outputs do not overlap inputs.
 */
#ifndef INFERD_KERNELS_CPU_BYTES_H
#define INFERD_KERNELS_CPU_BYTES_H

#include <stddef.h>
#include <stdint.h>

enum byte_type { BYTE_I8, BYTE_U8, BYTE_TYPES };

/* How two rows become one: the sum of a * factor_a + b * factor_b + shift, or the product
 * (a + shift_a) * (b + shift_b) * factor, cut to low..high, rounded, and then plus zero. */
struct byte_sum {
    float factor_a, factor_b, shift, low, high, zero;
};
struct byte_product {
    float factor, shift_a, shift_b, low, high, zero;
};

struct byte_kernels {
    /* y = step * (x - zero) */
    void (*widen[BYTE_TYPES])(const void *x, float *y, size_t n, float step, float zero);
    void (*narrow[BYTE_TYPES])(const float *x, void *y, size_t n, float step, float zero);
    /* y = table[x], whatever the types are */
    void (*look_up)(const uint8_t *x, uint8_t *y, size_t n, const uint8_t table[256]);
    /* All three rows have this type. */
    void (*sum[BYTE_TYPES])(const void *a, const void *b, void *y, size_t n,
                            const struct byte_sum *by);
    void (*product[BYTE_TYPES])(const void *a, const void *b, void *y, size_t n,
                                const struct byte_product *by);
    /* sums[i] += x[i] */
    void (*add[BYTE_TYPES])(const void *x, int32_t *sums, size_t n);
    /* to[c * to_row + r] = from[r * from_row + c] */
    void (*turn)(const uint8_t *from, int64_t from_row, uint8_t *to, int64_t to_row, int64_t rows,
                 int64_t cols);
    /* The least and the largest number of a row of at least one; NaN is passed over. */
    void (*extremes)(const float *x, size_t n, float *least, float *largest);
};

#endif
