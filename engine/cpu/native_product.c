/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 8-bit integers with constant weights, for processors without instructions for them:
 * the integers are multiplied as floats. That is exact as long as a sum stays below 2^24, so the
 * depth is cut into parts, and the parts' sums are added up as INT32. A unit of work is some rows
 * of some columns of the output.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum {
    PART = 512, /* terms of at most 255 * 128 each */
    ROWS = 32,
    COLS = 4 * FAST_PANEL,
};

/* Floats of the packed weights in front of part `at` of the depth. */
static int64_t packed_before(const struct native_product *p, int64_t at)
{
    return fast_packed_floats(p->cols, at);
}

void native_product_pack(const struct native_op *op, const void *from, float *to)
{
    const struct native_product *p = &op->matrix;
    const int8_t *w = from;
    int64_t panels = (p->cols + FAST_PANEL - 1) / FAST_PANEL;
    for (int64_t at = 0; at < p->depth; at += PART)
        for (int64_t panel = 0; panel < panels; panel++)
            for (int64_t k = at; k < MIN(at + PART, p->depth); k++)
                for (int64_t c = panel * FAST_PANEL; c < (panel + 1) * FAST_PANEL; c++)
                    *to++ = c < p->cols ? (float)w[k * p->cols + c] : 0;
}

/* Adds what one part of the depth gives to rows of the output; the first part sets them. */
static void add_part(const struct native_op *op, const float *sums, int64_t rows, int64_t cols,
                     const int32_t *bias, bool first, int32_t *y)
{
    for (int64_t r = 0; r < rows; r++, y += op->matrix.cols, sums += COLS)
        for (int64_t c = 0; c < cols; c++) {
            uint32_t before = first ? (uint32_t)(bias ? bias[c] : 0) : (uint32_t)y[c];
            y[c] = (int32_t)(before + (uint32_t)(int32_t)sums[c]);
        }
}

static void run_product(void *user, int64_t first, int64_t end)
{
    static const float nothing[COLS];
    const struct native_op *op = user;
    const struct native_product *p = &op->matrix;
    int64_t blocks = (p->cols + COLS - 1) / COLS;
    float *x = (float *)op->workspace + team_thread() * (ROWS * p->depth + ROWS * COLS);
    float *sums = x + ROWS * p->depth;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t row = unit / blocks * ROWS, col = unit % blocks * COLS;
        int64_t rows = MIN(p->rows - row, ROWS), cols = MIN(p->cols - col, COLS);
        const char *from = (const char *)op->inputs[0] + row * p->depth;
        const int32_t *bias = p->biased ? (const int32_t *)op->inputs[2] + col : NULL;
        op->fast->bytes->widen[p->type](from, x, (size_t)(rows * p->depth), 1, 0);
        for (int64_t at = 0; at < p->depth; at += PART) {
            int64_t part = MIN(p->depth - at, PART);
            const float *w = (const float *)op->inputs[1] + packed_before(p, at) + col * part;
            op->fast->product(w, part, cols, rows, x + at, p->depth, nothing, 0, sums, COLS);
            add_part(op, sums, rows, cols, bias, at == 0,
                     (int32_t *)op->output + row * p->cols + col);
        }
    }
}

bool native_product_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *w = ir_tensor(graph, node->inputs[1]);
    struct native_product *p = &op->matrix;
    bool bytes = x->dtype == DTYPE_U8 || x->dtype == DTYPE_I8;
    if (!bytes || w->dtype != DTYPE_I8 || !ir_tensor_is_constant(w) || w->shape.rank != 2 ||
        x->shape.rank < 2 || node->n_epilogue || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        ir_attr_int(node, IR_ATTR_TRANS_B) || ir_attr_float(node, IR_ATTR_ALPHA) != 1)
        return false;
    p->depth = w->shape.dim[0];
    p->cols = w->shape.dim[1];
    p->rows = ref_extent(&x->shape, 0, x->shape.rank - 1);
    p->type = x->dtype == DTYPE_I8 ? BYTE_I8 : BYTE_U8;
    p->biased = node->n_inputs > 2 && node->inputs[2] != IR_NONE;
    if (p->depth < 1 || p->depth > NATIVE_DEPTH_MAX)
        return false;
    op->packed_bytes = (uint64_t)packed_before(p, p->depth) * sizeof(float);
    op->thread_bytes = (uint64_t)(ROWS * p->depth + ROWS * COLS) * sizeof(float);
    op->units = (p->rows + ROWS - 1) / ROWS * ((p->cols + COLS - 1) / COLS);
    op->work = run_product;
    return true;
}
