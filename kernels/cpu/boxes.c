/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of boxes.h for one instruction set. The build compiles this file several times,
 * with BOXES_TABLE as the table's name.
 */
#include "kernels/cpu/boxes.h"

#include <string.h>

#include "kernels/cpu/fast_inner.h"

/* Whether the box meets one of those at all: most do not, and this costs no division. */
static bool touches(const struct box_cell *cell, const struct box_corners *box)
{
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int k = 0; k < BOX_CELL; k++)
        any |= (cell->low[0][k] < box->high[0]) & (cell->low[1][k] < box->high[1]) &
               (cell->high[0][k] > box->low[0]) & (cell->high[1][k] > box->low[1]);
    return any;
}

static bool meets(const struct box_cell *cell, const struct box_corners *box, float most)
{
    int any = 0;
    if (!touches(cell, box))
        return false;
#pragma omp simd reduction(| : any)
    for (int k = 0; k < BOX_CELL; k++) {
        float a = box->low[0] > cell->low[0][k] ? box->low[0] : cell->low[0][k];
        float b = box->low[1] > cell->low[1][k] ? box->low[1] : cell->low[1][k];
        float c = box->high[0] < cell->high[0][k] ? box->high[0] : cell->high[0][k];
        float d = box->high[1] < cell->high[1][k] ? box->high[1] : cell->high[1][k];
        float shared = (c - a) * (d - b), whole = (box->area + cell->area[k]) - shared;
        any |= (c > a) & (d > b) & (shared > 0) & (box->area > 0) & (cell->area[k] > 0) &
               (whole > 0) & (shared / whole > most);
    }
    return any;
}

enum { CHANNELS = 64 }; /* summed at a time */

/* `n` is CHANNELS where callers are many: a constant keeps the sums in registers. */
static inline void average_some(const float *x, int64_t width, int64_t channels, int n,
                                const struct ref_roi_tap *rows, int64_t n_rows,
                                const struct ref_roi_tap *columns, int64_t n_columns, double count,
                                float *y)
{
    double sum[CHANNELS] = {0};
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_columns; c++) {
            const float *from = x + (rows[r].at * width + columns[c].at) * channels;
            double weight = rows[r].weight * columns[c].weight;
            VECTOR
            for (int i = 0; i < n; i++)
                sum[i] += weight * (double)from[i];
        }
    VECTOR
    for (int i = 0; i < n; i++)
        y[i] = (float)(sum[i] / count);
}

static void average(const float *x, int64_t width, int64_t channels, const struct ref_roi_tap *rows,
                    int64_t n_rows, const struct ref_roi_tap *columns, int64_t n_columns,
                    double count, float *y)
{
    int64_t c = 0;
    for (; c + CHANNELS <= channels; c += CHANNELS)
        average_some(x + c, width, channels, CHANNELS, rows, n_rows, columns, n_columns, count,
                     y + c);
    if (c < channels)
        average_some(x + c, width, channels, (int)(channels - c), rows, n_rows, columns, n_columns,
                     count, y + c);
}

extern const struct box_kernels BOXES_TABLE;

const struct box_kernels BOXES_TABLE = {meets, average};
