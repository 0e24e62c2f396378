/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast fp32 rows for what a library leaves slow: elementwise functions, softmax, layer norm,
 * transposes and products of few rows. They are plain C that compilers vectorise;
 * fast.c is compiled once for each instruction set, and fast_kernels_list tells which of the tables
 * this machine can run.
 *
 * Each function agrees with the reference (ref.h) within a few units in the last place of its
 * largest term. Results differ between instruction sets, never between runs. Rows are dense and
 * aligned to 4; `y` may be `x` or an operand itself, but must not overlap them otherwise.
 */
#ifndef INFERD_KERNELS_CPU_FAST_H
#define INFERD_KERNELS_CPU_FAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/attend.h"
#include "kernels/cpu/ref.h"

typedef void (*fast_unary)(const float *x, float *y, size_t n, float alpha, float beta);
typedef void (*fast_binary)(const float *a, const float *b, float *y, size_t n);

struct sweep_kernels;
struct typed_kernels;
struct byte_kernels;
struct box_kernels;

enum { FAST_ACROSS = 256 };

struct fast_kernels {
    const char *isa;                      /* "avx512" */
    const struct sweep_kernels *sweep;    /* sweep.h, for the same instruction set */
    const struct typed_kernels *typed;    /* typed.h, too */
    const struct byte_kernels *bytes;     /* bytes.h, too */
    const struct box_kernels *boxes;      /* boxes.h, likewise */
    enum ir_layout blocked;               /* the blocked layout that suits its registers */
    fast_unary unary[IR_UNARY_COUNT_];    /* NULL: not here */
    fast_binary binary[IR_BINARY_COUNT_]; /* NULL: not here */
    void (*softmax)(const float *x, float *y, size_t n, bool log_of);
    /* Softmax over each of n <= FAST_ACROSS columns of rows that are `step` elements apart. */
    void (*softmax_across)(const float *x, float *y, int64_t rows, int64_t step, size_t n,
                           bool log_of);
    /* bias may be NULL; `rms`: the mean counts as 0 */
    void (*layer_norm)(const float *x, const float *scale, const float *bias, bool rms,
                       float epsilon, float *y, size_t n);
    /* y[c][r] = x[r][c]; the steps from row to row count elements. */
    void (*transpose_32)(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row, int64_t rows,
                         int64_t cols);
    /* y[r][c] = start[r][c] + the sum over k of x[r][k] m[c][k], with `m` packed by fast_pack. A
     * step of 0 from row to row of `start` repeats the row. Steps count elements. */
    void (*product)(const float *packed, int64_t depth, int64_t cols, int64_t rows, const float *x,
                    int64_t x_row, const float *start, int64_t start_row, float *y, int64_t y_row);
    attend_run attend; /* attend.h */
};

/* A packed matrix consists of panels of FAST_PANEL columns, with zeros behind the last column. For
 * each k in turn a panel holds the numbers of all its columns. `m` may be unaligned. */
enum { FAST_PANEL = 64 };
static inline int64_t fast_packed_floats(int64_t cols, int64_t depth)
{
    return (cols + FAST_PANEL - 1) / FAST_PANEL * FAST_PANEL * depth;
}
void fast_pack(const void *m, int64_t cols, int64_t depth, float *packed);

enum { FAST_MAX = 3 };

/* Lists the tables that this machine can run, best first; returns their number (at least 1). */
size_t fast_kernels_list(const struct fast_kernels *out[FAST_MAX]);

#endif
