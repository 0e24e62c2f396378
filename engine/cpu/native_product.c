/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of 8-bit integers with constant weights, for processors without
 * instructions for them: the integers are multiplied as floats. That is exact as long as a sum
 * stays below 2^24, so the depth is cut into parts, and the parts' sums are added up as INT32. The
 * rows of a convolution are the windows of its output's positions. A unit of work is some rows of
 * one group of one image; a product has one image, and one group. Depthwise convolutions and their
 * like add up integers directly; their unit is a plane of the output.
 */
#include <string.h>

#include "base/checked.h"
#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum {
    PART = 512, /* terms of at most 255 * 128 each */
    ROWS = 32,
    COLS = 4 * FAST_PANEL,
    TAPS_MAX = 512,
    FEW = 4, /* fewer columns than this: a panel would be empty for the most part */
};

void native_product_pack(const struct native_op *op, const void *from, float *to)
{
    const struct native_product *p = &op->matrix;
    int64_t panels = (p->cols + FAST_PANEL - 1) / FAST_PANEL;
    for (int64_t group = 0; group < p->groups; group++) {
        const int8_t *w = (const int8_t *)from + group * p->depth * p->cols;
        for (int64_t at = 0; at < p->depth; at += PART)
            for (int64_t c = 0; c < panels * FAST_PANEL; c += FAST_PANEL)
                for (int64_t k = at; k < MIN(at + PART, p->depth); k++)
                    for (int64_t i = c; i < c + FAST_PANEL; i++)
                        *to++ = i < p->cols ? (float)w[k * p->by_depth + i * p->by_col] : 0;
    }
}

/* Adds what one part of the depth gives to rows of the output; the first part sets them. */
static void add_part(const struct native_product *p, const float *sums, int64_t rows, int64_t cols,
                     const int32_t *bias, bool first, int32_t *y)
{
    for (int64_t r = 0; r < rows; r++, y += p->y_row, sums += COLS)
        for (int64_t c = 0; c < cols; c++) {
            int32_t *to = y + c * p->y_col;
            uint32_t before = first ? (uint32_t)(bias ? bias[c] : 0) : (uint32_t)*to;
            *to = (int32_t)(before + (uint32_t)(int32_t)sums[c]);
        }
}

/* Where the taps of an output's position lie in an image's plane; -1: in the padding. */
static void find_taps(const struct native_product *p, int64_t position, int64_t *taps)
{
    int64_t corner[SHAPE_MAX_RANK] = {0};
    for (uint32_t d = p->rank; d-- > 0; position /= p->out[d])
        corner[d] = position % p->out[d] * p->stride[d] - p->begin[d];
    for (int64_t t = 0; t < p->taps; t++) {
        int64_t rest = t, place = 0, step = 1;
        bool inside = true;
        for (uint32_t d = p->rank; d-- > 0; rest /= p->kernel[d], step *= p->in[d]) {
            int64_t at = corner[d] + rest % p->kernel[d] * p->dilation[d];
            inside = inside && at >= 0 && at < p->in[d];
            place += at * step;
        }
        taps[t] = inside ? place : -1;
    }
}

/* Reads rows of the first operand as floats: what is under the windows of some positions. */
static void read_windows(const struct native_product *p, const uint8_t *planes, int64_t row,
                         int64_t rows, float *x)
{
    int64_t taps[TAPS_MAX];
    for (int64_t r = row; r < row + rows; r++) {
        find_taps(p, r, taps);
        for (int64_t c = 0; c < p->depth / p->taps; c++)
            for (int64_t t = 0; t < p->taps; t++) {
                uint8_t byte = taps[t] < 0 ? 0 : planes[c * p->plane + taps[t]];
                *x++ = p->type == BYTE_I8 ? (float)(int8_t)byte : (float)byte;
            }
    }
}

/* Computes some rows, which x holds, of all columns of a group. */
static void run_rows(const struct native_op *op, const float *w, const float *x, int64_t rows,
                     const int32_t *bias, int32_t *y, float *sums)
{
    static const float nothing[COLS];
    const struct native_product *p = &op->matrix;
    for (int64_t col = 0; col < p->cols; col += COLS) {
        int64_t cols = MIN(p->cols - col, COLS);
        for (int64_t at = 0; at < p->depth; at += PART) {
            int64_t part = MIN(p->depth - at, PART);
            op->fast->product(w + fast_packed_floats(p->cols, at) + col * part, part, cols, rows,
                              x + at, p->depth, nothing, 0, sums, COLS);
            add_part(p, sums, rows, cols, bias ? bias + col : NULL, at == 0, y + col * p->y_col);
        }
    }
}

static void run_product(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_product *p = &op->matrix;
    int64_t blocks = (p->rows + ROWS - 1) / ROWS;
    float *x = (float *)op->workspace + team_thread() * (ROWS * p->depth + ROWS * COLS);
    float *sums = x + ROWS * p->depth;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t row = unit % blocks * ROWS, part = unit / blocks, group = part % p->groups;
        int64_t rows = MIN(p->rows - row, ROWS);
        const uint8_t *from = (const uint8_t *)op->inputs[0] + part * p->x_part;
        const int32_t *bias = p->biased ? (const int32_t *)op->inputs[2] + group * p->cols : NULL;
        if (p->rank)
            read_windows(p, from, row, rows, x);
        else
            op->fast->bytes->widen[p->type](from + row * p->depth, x, (size_t)(rows * p->depth), 1,
                                            0);
        run_rows(op, (const float *)op->inputs[1] + group * fast_packed_floats(p->cols, p->depth),
                 x, rows, bias, (int32_t *)op->output + part * p->y_part + row * p->y_row, sums);
    }
}

/* --- convolutions of few channels a group: row by row of the output, without packed columns --- */

/* y[i] += w x[i * step], modulo 2^32, for numbers of one type. */
static void add_row(const void *x, enum byte_type type, int64_t step, int32_t w, int32_t *y,
                    int64_t n)
{
    const uint8_t *u = x;
    const int8_t *s = x;
    for (int64_t i = 0; type == BYTE_U8 && i < n; i++)
        y[i] = (int32_t)((uint32_t)y[i] + (uint32_t)(w * u[i * step]));
    for (int64_t i = 0; type == BYTE_I8 && i < n; i++)
        y[i] = (int32_t)((uint32_t)y[i] + (uint32_t)(w * s[i * step]));
}

/* Adds what tap t of a plane gives to the output's row number `row`. */
static void add_tap(const struct native_product *p, const uint8_t *plane, int64_t row, int64_t t,
                    int32_t w, int32_t *y)
{
    uint32_t last = p->rank - 1;
    int64_t tap = t % p->kernel[last] * p->dilation[last] - p->begin[last], place = 0;
    int64_t step = p->stride[last], width = p->in[last], by = width;
    t /= p->kernel[last];
    for (uint32_t d = last; d-- > 0; by *= p->in[d]) {
        int64_t at =
            row % p->out[d] * p->stride[d] - p->begin[d] + t % p->kernel[d] * p->dilation[d];
        row /= p->out[d];
        t /= p->kernel[d];
        if (at < 0 || at >= p->in[d])
            return;
        place += at * by;
    }
    int64_t from = tap < 0 ? (step - 1 - tap) / step : 0;
    int64_t end = tap < width ? MIN((width - 1 - tap) / step + 1, p->out[last]) : 0;
    if (from < end)
        add_row(plane + place + tap + from * step, p->type, step, w, y + from, end - from);
}

static void run_few(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_product *p = &op->matrix;
    int64_t width = p->out[p->rank - 1];
    for (int64_t unit = first; unit < end; unit++) {
        int64_t part = unit / p->cols, c = unit % p->cols, channel = part % p->groups * p->cols + c;
        const uint8_t *x = (const uint8_t *)op->inputs[0] + part * p->x_part;
        const int8_t *w = (const int8_t *)op->inputs[1] + channel * p->depth;
        int32_t *y = (int32_t *)op->output + part * p->y_part + c * p->y_col;
        int32_t bias = p->biased ? ((const int32_t *)op->inputs[2])[channel] : 0;
        for (int64_t row = 0; row < p->rows / width; row++, y += width) {
            for (int64_t i = 0; i < width; i++)
                y[i] = bias;
            for (int64_t k = 0; k < p->depth; k++)
                add_tap(p, x + k / p->taps * p->plane, row, k % p->taps, w[k], y);
        }
    }
}

/* --- making --- */

static bool set_product(struct native_product *p, const struct ir_node *node, const struct shape *x,
                        const struct shape *w)
{
    if (w->rank != 2 || x->rank < 2 || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        ir_attr_int(node, IR_ATTR_TRANS_B) || ir_attr_float(node, IR_ATTR_ALPHA) != 1)
        return false;
    p->images = p->groups = 1;
    p->depth = w->dim[0];
    p->cols = w->dim[1];
    p->rows = ref_extent(x, 0, x->rank - 1);
    p->by_depth = p->y_row = p->cols;
    p->by_col = p->y_col = 1;
    return true;
}

static bool set_conv(struct native_product *p, const struct ir_node *node, const struct shape *x,
                     const struct shape *w, const struct shape *y)
{
    p->rank = x->rank - 2;
    p->images = x->dim[0];
    p->groups = ir_attr_int(node, IR_ATTR_GROUP);
    p->cols = w->dim[0] / p->groups;
    p->depth = ref_extent(w, 1, w->rank);
    p->taps = ref_extent(w, 2, w->rank);
    p->plane = ref_extent(x, 2, x->rank);
    p->rows = p->y_col = ref_extent(y, 2, y->rank);
    p->by_depth = p->y_row = 1;
    p->by_col = p->depth;
    p->x_part = w->dim[1] * p->plane;
    p->y_part = p->cols * p->rows;
    for (uint32_t d = 0; d < p->rank; d++) {
        p->in[d] = x->dim[2 + d];
        p->out[d] = y->dim[2 + d];
        p->kernel[d] = w->dim[2 + d];
        p->stride[d] = ir_attr_at(node, IR_ATTR_STRIDES, d);
        p->dilation[d] = ir_attr_at(node, IR_ATTR_DILATIONS, d);
        p->begin[d] = ir_attr_at(node, IR_ATTR_PADS, d);
    }
    return p->taps <= TAPS_MAX;
}

bool native_product_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *w = ir_tensor(graph, node->inputs[1]);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    struct native_product *p = &op->matrix;
    bool bytes = x->dtype == DTYPE_U8 || x->dtype == DTYPE_I8;
    if (!bytes || w->dtype != DTYPE_I8 || !ir_tensor_is_constant(w) || node->n_epilogue ||
        !(node->op == IR_OP_CONV ? set_conv(p, node, &x->shape, &w->shape, y)
                                 : set_product(p, node, &x->shape, &w->shape)))
        return false;
    p->type = x->dtype == DTYPE_I8 ? BYTE_I8 : BYTE_U8;
    p->biased = node->n_inputs > 2 && node->inputs[2] != IR_NONE;
    if (p->depth < 1 || p->depth > NATIVE_DEPTH_MAX || p->cols < 1)
        return false;
    if (node->op == IR_OP_CONV && p->cols < FEW) {
        op->units = p->images * p->groups * p->cols;
        op->work = run_few;
        return p->rank > 0;
    }
    size_t floats = (size_t)fast_packed_floats(p->cols, p->depth);
    if (!checked_mul(floats, (size_t)p->groups, &floats) || floats > NATIVE_PACKED_MAX)
        return false;
    op->packed_bytes = floats * sizeof(float);
    op->thread_bytes = (uint64_t)(ROWS * p->depth + ROWS * COLS) * sizeof(float);
    op->units = (p->rows + ROWS - 1) / ROWS * p->images * p->groups;
    op->work = run_product;
    return true;
}
