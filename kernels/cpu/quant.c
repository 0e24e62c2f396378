/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantisation and its inverse. A tensor is seen as [outer, channels, inner], where each channel
 * has a scale and a zero point of its own; with one scale for all there is one channel.
 */
#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

/* Adding and subtracting it rounds a double below 2^51 to a whole number, half to even. */
#define ROUND_BY 0x1.8p52

struct channels {
    int64_t n, inner;
    const struct tensor_view *scale, *zero; /* zero may be NULL */
    int64_t at, left;                       /* the channel at hand, and its elements to come */
    double step, start;                     /* its scale and its zero point */
};

static void read_channel(struct channels *c)
{
    c->step = ref_get_f64(c->scale->dtype, c->scale->data, c->at);
    c->start = c->zero ? ref_get_f64(c->zero->dtype, c->zero->data, c->at) : 0;
    c->left = c->inner;
}

static struct channels begin(uint32_t axis, const struct shape *shape,
                             const struct tensor_view *scale, const struct tensor_view *zero)
{
    struct channels c = {.n = 1, .scale = scale, .zero = zero};
    bool each = scale->shape.rank && scale->shape.dim[0] != 1;
    if (each)
        c.n = shape->dim[axis];
    c.inner = ref_extent(shape, each ? axis + 1 : 0, shape->rank);
    read_channel(&c);
    return c;
}

/* The number of the next elements, at most `most`, that are of one channel. */
static int64_t next_run(struct channels *c, int64_t most)
{
    if (c->left == 0) {
        c->at = c->at + 1 < c->n ? c->at + 1 : 0;
        if (c->n > 1)
            read_channel(c);
        c->left = c->inner;
    }
    int64_t run = MIN(c->left, most);
    c->left -= run;
    return run;
}

static bool is_wide(const struct tensor_view *scale)
{
    return scale->dtype == DTYPE_F64;
}

/* Rounds the quotients to the scale's type. */
static void divide(double *row, int64_t n, double step, enum dtype type)
{
    uint64_t quotients[REF_ROW];
    for (int64_t i = 0; i < n; i++)
        row[i] /= step;
    if (type == DTYPE_F32) {
        for (int64_t i = 0; i < n; i++)
            row[i] = (double)(float)row[i];
    } else if (type != DTYPE_F64) {
        ref_write_f64(type, quotients, 0, 1, (size_t)n, row);
        ref_read_f64(type, quotients, 0, 1, (size_t)n, row);
    }
}

void ref_quantize(uint32_t axis, const struct tensor_view *x, const struct tensor_view *scale,
                  const struct tensor_view *zero, const struct tensor_view *y)
{
    bool negative = y->dtype == DTYPE_I8 || y->dtype == DTYPE_I16;
    double count = dtype_size(y->dtype) == 1 ? 256 : 65536, least = negative ? -count / 2 : 0;
    double row[REF_ROW];
    size_t total = 0;
    if (!shape_elements(&x->shape, &total) || total == 0)
        return;
    struct channels c = begin(axis, &x->shape, scale, zero);
    for (int64_t at = 0, run; at < (int64_t)total; at += run) {
        run = next_run(&c, MIN((int64_t)total - at, REF_ROW));
        double low = least - c.start, high = low + count - 1;
        ref_read_f64(x->dtype, x->data, at, 1, (size_t)run, row);
        divide(row, run, c.step, scale->dtype);
        for (int64_t i = 0; i < run; i++) {
            if (y->dtype == DTYPE_F8)
                break; /* what is written is rounded and saturates */
            double v = row[i] > low ? row[i] : low;
            v = v < high ? v : high;
            row[i] = v + ROUND_BY - ROUND_BY + c.start;
        }
        ref_write_f64(y->dtype, y->data, at, 1, (size_t)run, row);
    }
}

void ref_dequantize(uint32_t axis, const struct tensor_view *x, const struct tensor_view *scale,
                    const struct tensor_view *zero, const struct tensor_view *y)
{
    double row[REF_ROW];
    size_t total = 0;
    if (!shape_elements(&x->shape, &total) || total == 0)
        return;
    struct channels c = begin(axis, &x->shape, scale, zero);
    for (int64_t at = 0, run; at < (int64_t)total; at += run) {
        run = next_run(&c, MIN((int64_t)total - at, REF_ROW));
        ref_read_f64(x->dtype, x->data, at, 1, (size_t)run, row);
        if (is_wide(scale))
            for (int64_t i = 0; i < run; i++)
                row[i] = (row[i] - c.start) * c.step;
        else
            for (int64_t i = 0; i < run; i++)
                row[i] = (double)((float)(row[i] - c.start) * (float)c.step);
        ref_write_f64(y->dtype, y->data, at, 1, (size_t)run, row);
    }
}
