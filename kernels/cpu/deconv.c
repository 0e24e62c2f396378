/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transposed convolution: output o gathers every input i and kernel position k with
 * o = i * stride + k * dilation - pad. In the last dim inputs are scattered over a row of sums.
 */
#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/window.h"

struct deconv {
    const struct ref_window *win;
    const struct tensor_view *x, *w;
    int64_t in_per_group, out_per_group, in_size, kernel_size;
};

/* Finds the row of x that reaches output row o through kernel position k: ref_window_row the other
 * way round. */
static bool source_row(const struct ref_window *win, const int64_t *in, const int64_t *o,
                       const int64_t *k, int64_t *out)
{
    int64_t row = 0;
    for (uint32_t d = 0; d + 1 < win->rank; d++) {
        int64_t at = o[d] + win->pads[d] - k[d] * win->dilations[d];
        if (at < 0 || at % win->strides[d] || at / win->strides[d] >= in[d])
            return false;
        row = row * in[d] + at / win->strides[d];
    }
    *out = row * in[win->rank - 1];
    return true;
}

/* Adds the products of a row of x with a row of the kernel to `sums`, which are outputs
 * first..first+n-1 of a row. */
static void add_row(const struct deconv *c, int64_t x_at, int64_t w_at, int64_t first, int64_t n,
                    double *sums)
{
    uint32_t last = c->win->rank - 1;
    int64_t in = c->x->shape.dim[2 + last], stride = c->win->strides[last];
    double x[REF_ROW];
    for (int64_t k = 0; k < c->win->kernel[last]; k++) {
        int64_t shift = k * c->win->dilations[last] - c->win->pads[last] - first;
        double w = ref_get_f64(c->w->dtype, c->w->data, w_at + k);
        int64_t from = shift < 0 ? (-shift + stride - 1) / stride : 0;
        int64_t to = n > shift ? MIN(in, (n - shift + stride - 1) / stride) : 0;
        for (int64_t at = from; at < to; at += REF_ROW) {
            size_t part = (size_t)MIN(to - at, REF_ROW);
            ref_read_f64(c->x->dtype, c->x->data, x_at + at, 1, part, x);
            for (size_t i = 0; i < part; i++)
                sums[(at + (int64_t)i) * stride + shift] += w * x[i];
        }
    }
}

/* Computes outputs first..first+n-1 of row o in channel m of image `image`. */
static void fill(const struct deconv *c, int64_t image, int64_t m, const int64_t *o, int64_t first,
                 int64_t n, double *sums)
{
    uint32_t outer = c->win->rank - 1;
    int64_t group = m / c->out_per_group, channels = c->x->shape.dim[1];
    for (int64_t i = group * c->in_per_group; i < (group + 1) * c->in_per_group; i++) {
        int64_t w_at = (i * c->out_per_group + m % c->out_per_group) * c->kernel_size;
        int64_t k[SHAPE_MAX_RANK] = {0}, row;
        do {
            if (source_row(c->win, &c->x->shape.dim[2], o, k, &row))
                add_row(c, (image * channels + i) * c->in_size + row, w_at, first, n, sums);
            w_at += c->win->kernel[outer];
        } while (ref_window_next(outer, c->win->kernel, k));
    }
}

void ref_deconv(const struct ref_window *win, int64_t group, const struct tensor_view *x,
                const struct tensor_view *w, const struct tensor_view *b,
                const struct tensor_view *y)
{
    struct deconv c = {.win = win, .x = x, .w = w};
    c.in_per_group = x->shape.dim[1] / group;
    c.out_per_group = w->shape.dim[1];
    c.in_size = ref_extent(&x->shape, 2, x->shape.rank);
    c.kernel_size = ref_extent(&w->shape, 2, w->shape.rank);
    if (ref_extent(&y->shape, 0, y->shape.rank) == 0)
        return;
    int64_t out = y->shape.dim[1 + win->rank], channels = y->shape.dim[1], to = 0;
    double sums[REF_ROW];
    for (int64_t nm = 0; nm < y->shape.dim[0] * channels; nm++) {
        int64_t o[SHAPE_MAX_RANK] = {0};
        double bias = b ? ref_get_f64(b->dtype, b->data, nm % channels) : 0;
        do {
            for (int64_t first = 0; first < out; first += REF_ROW) {
                int64_t n = MIN(out - first, REF_ROW);
                for (int64_t i = 0; i < n; i++)
                    sums[i] = bias;
                fill(&c, nm / channels, nm % channels, o, first, n, sums);
                ref_write_f64(y->dtype, y->data, to, 1, (size_t)n, sums);
                to += n;
            }
        } while (ref_window_next(win->rank - 1, &y->shape.dim[2], o));
    }
}
