/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast fp32 functions that sweep over several rows: statistics and sums across rows, weighted sums
 * of rows, and elements picked by tables. sweep.c is compiled once for each instruction set, as
 * fast.c is; a table of fast.h points to the table of its own set.
 *
 * Rows are aligned to 4. Outputs do not overlap inputs, except that `affine` may work in place.
 */
#ifndef INFERD_KERNELS_CPU_SWEEP_H
#define INFERD_KERNELS_CPU_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/ref.h"

/* How rows are folded into one. MAX and MIN hand on NaN. */
enum sweep_fold {
    SWEEP_ADD,
    SWEEP_ADD_ABS,
    SWEEP_ADD_SQUARE,
    SWEEP_MAX,
    SWEEP_MIN,
    SWEEP_FOLD_COUNT_
};

/* Where the elements of a row are read: element `at` with its weight, for each of `taps` taps of
 * each of `places` places; tap k of place p is number k * stride + p. Elements whose weight is 0
 * are not read. */
struct sweep_table {
    int64_t places, taps, stride;
    const int32_t *at;
    const float *weight;
};

struct sweep_kernels {
    /* Folds rows of n columns, `step` elements apart, into `sums`. */
    void (*fold[SWEEP_FOLD_COUNT_])(float *sums, const float *x, int64_t rows, int64_t step,
                                    size_t n);
    /* sums[i] += weight * x[i] */
    void (*add_weighted)(float *sums, const float *x, float weight, size_t n);
    /* y[p][i] = factor * the sum over taps of weight * x[at][i], for `inner` elements i; with
     * `add`, this is added to y. */
    void (*pick)(float *y, const float *x, const struct sweep_table *table, size_t inner,
                 float factor, bool add);
    /* The four taps of `places` bilinear samples of a plane of height * width elements; `grid`
     * holds x and y of each place, which are a * x + b in pixels. Beyond the plane there are
     * zeros, or with `edge` its border. */
    void (*bilinear)(const float *grid, int64_t places, int64_t height, int64_t width,
                     const double a[2], const double b[2], bool edge, int64_t stride, int32_t *at,
                     float *weight);
    /* The largest (smallest) element so far of each of n columns, and its row; a NaN wins.
     * arg_begin takes row 0; arg_next takes a later row, which with `last` also wins if it is
     * equal. */
    void (*arg_begin)(const float *x, float *best, int32_t *at, size_t n, bool smallest);
    void (*arg_next)(const float *x, float *best, int32_t *at, size_t n, int32_t row, bool smallest,
                     bool last);
    /* Mean, and sum of the squared deviations from it, of each of the `lanes` columns of `rows` > 0
     * dense rows. */
    void (*moments)(const float *x, int64_t rows, size_t lanes, double *mean, double *squares);
    /* y = (x - mean) factor + shift, where each column has numbers of its own. */
    void (*affine)(const float *x, float *y, int64_t rows, size_t lanes, const float *mean,
                   const float *factor, const float *shift);
};

#endif
