/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows for what detectors do with boxes. boxes.c is compiled once for each instruction set, as
 * fast.c is, but without products and sums that become one: overlaps that meet a threshold exactly
 * are common, and are decided as the reference decides them.
 */
#ifndef INFERD_KERNELS_CPU_BOXES_H
#define INFERD_KERNELS_CPU_BOXES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/roi.h"

enum { BOX_CELL = 16 };

/* A box: its low corner, its high corner, and its area. */
struct box_corners {
    float low[2], high[2], area;
};

/* Some boxes, corner by corner, so that a box is compared with all of them at once. Places without
 * a box have a low corner of infinity, which meets nothing. */
struct box_cell {
    float low[2][BOX_CELL], high[2][BOX_CELL], area[BOX_CELL];
    int32_t n, next; /* boxes; another cell of the same list, or -1 */
};

struct box_kernels {
    /* Whether one of the boxes of the cell shares more than `most` with the box: the quotient of
     * intersection and union. No corner is NaN. */
    bool (*meets)(const struct box_cell *cell, const struct box_corners *box, float most);
    /* y[c] = the sum over `rows` and `columns` of the weights' products times
     * x[row][column][c] with `width` columns, divided by `count`. */
    void (*average)(const float *x, int64_t width, int64_t channels, const struct ref_roi_tap *rows,
                    int64_t n_rows, const struct ref_roi_tap *columns, int64_t n_columns,
                    double count, float *y);
};

#endif
