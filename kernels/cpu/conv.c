/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct convolution of any spatial rank. COLS outputs of a row are computed for ROWS output
 * channels at a time, so that a row of x is converted to double once for several channels.
 * Depthwise and grouped convolutions take the same path with fewer channels at a time.
 */
#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/window.h"

enum { ROWS = 8, COLS = 128 };

struct conv {
    const struct ref_window *win;
    const struct tensor_view *x, *w, *b, *y;
    int64_t in_per_group, out_per_group;
    int64_t in_size, out_size, kernel_size; /* elements of one channel */
};

/* Sums of `rows` channels from m on; outputs first..first+cols-1 of the row of y at index o. */
struct tile {
    int64_t n, m, first;
    size_t rows, cols;
    int64_t o[SHAPE_MAX_RANK];
    double sums[ROWS][COLS];
};

/* Adds the products of one row of x with one row of the kernel, whose offset in a filter is
 * w_at. */
static void add_row(const struct conv *c, struct tile *t, int64_t x_at, int64_t w_at)
{
    uint32_t last = c->win->rank - 1;
    int64_t in = c->x->shape.dim[2 + last], out = c->y->shape.dim[2 + last];
    int64_t stride = c->win->strides[last];
    int64_t filter = c->in_per_group * c->kernel_size;
    double x[COLS], w[ROWS];
    for (int64_t k = 0; k < c->win->kernel[last]; k++) {
        int64_t from, to;
        ref_window_span(c->win, k, in, out, &from, &to);
        from = MAX(from, t->first);
        to = MIN(to, t->first + (int64_t)t->cols);
        if (from >= to)
            continue;
        size_t n = (size_t)(to - from), at = (size_t)(from - t->first);
        int64_t i = from * stride + k * c->win->dilations[last] - c->win->pads[last];
        ref_read_f64(c->x->dtype, c->x->data, x_at + i, stride, n, x);
        ref_read_f64(c->w->dtype, c->w->data, t->m * filter + w_at + k, filter, t->rows, w);
        for (size_t r = 0; r < t->rows; r++)
            for (size_t j = 0; j < n; j++)
                t->sums[r][at + j] += w[r] * x[j];
    }
}

static void fill_tile(const struct conv *c, struct tile *t)
{
    uint32_t outer = c->win->rank - 1;
    int64_t last_kernel = c->win->kernel[outer], channels = c->x->shape.dim[1];
    int64_t group = t->m / c->out_per_group;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t j = 0; j < t->cols; j++)
            t->sums[r][j] = c->b ? ref_get_f64(c->b->dtype, c->b->data, t->m + (int64_t)r) : 0;
    for (int64_t i = 0; i < c->in_per_group; i++) {
        int64_t plane = (t->n * channels + group * c->in_per_group + i) * c->in_size;
        int64_t k[SHAPE_MAX_RANK] = {0}, w_at = i * c->kernel_size, row;
        do {
            if (ref_window_row(c->win, &c->x->shape.dim[2], t->o, k, &row))
                add_row(c, t, plane + row, w_at);
            w_at += last_kernel;
        } while (ref_window_next(outer, c->win->kernel, k));
    }
}

/* Computes all output channels of one row of y; `row` is the row's offset in a channel. */
static void fill_row(const struct conv *c, struct tile *t, int64_t row)
{
    int64_t channels = c->y->shape.dim[1], out = c->y->shape.dim[1 + c->win->rank];
    for (t->m = 0; t->m < channels; t->m += (int64_t)t->rows) {
        int64_t left_in_group = c->out_per_group - t->m % c->out_per_group;
        t->rows = (size_t)MIN(left_in_group, ROWS);
        for (t->first = 0; t->first < out; t->first += COLS) {
            t->cols = (size_t)MIN(out - t->first, COLS);
            fill_tile(c, t);
            for (size_t r = 0; r < t->rows; r++) {
                int64_t plane = (t->n * channels + t->m + (int64_t)r) * c->out_size;
                ref_write_f64(c->y->dtype, c->y->data, plane + row + t->first, 1, t->cols,
                              t->sums[r]);
            }
        }
    }
}

void ref_conv(const struct ref_window *win, int64_t group, const struct tensor_view *x,
              const struct tensor_view *w, const struct tensor_view *b, const struct tensor_view *y)
{
    struct conv c = {.win = win, .x = x, .w = w, .b = b, .y = y};
    c.in_per_group = w->shape.dim[1];
    c.out_per_group = w->shape.dim[0] / group;
    c.in_size = ref_extent(&x->shape, 2, x->shape.rank);
    c.out_size = ref_extent(&y->shape, 2, y->shape.rank);
    c.kernel_size = ref_extent(&w->shape, 2, w->shape.rank);
    if (c.out_size == 0)
        return;
    struct tile tile = {.n = 0};
    for (; tile.n < y->shape.dim[0]; tile.n++) {
        int64_t row = 0;
        do {
            fill_row(&c, &tile, row);
            row += y->shape.dim[1 + win->rank];
        } while (ref_window_next(win->rank - 1, &y->shape.dim[2], tile.o));
    }
}
