/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and products of two tensors of bytes that are stored as bytes again, in one pass over them.
 * In steps of the output the sum is a line in each of both: a sa / sy + b sb / sy and a constant.
 * ReLU behind it only raises the least number.
 */
#include <math.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

/* Calls `run` for each row of the walk; rows are dense in all three tensors. */
static void each_row(const struct native_op *op, int64_t first, int64_t end,
                     void (*run)(const struct native_op *op, const uint8_t *a, const uint8_t *b,
                                 uint8_t *y, size_t n))
{
    struct ref_walk w = op->walk;
    int64_t per_row = (w.row + NATIVE_CHUNK - 1) / NATIVE_CHUNK;
    ref_walk_seek(&w, first / per_row);
    int64_t chunk = first % per_row;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t at = chunk * NATIVE_CHUNK;
        run(op, (const uint8_t *)op->inputs[op->input[1]] + w.at[1] + at,
            (const uint8_t *)op->inputs[op->input[2]] + w.at[2] + at,
            (uint8_t *)op->output + w.at[0] + at, (size_t)MIN(w.row - at, NATIVE_CHUNK));
        if (++chunk == per_row) {
            chunk = 0;
            ref_walk_next(&w);
        }
    }
}

static void add_row(const struct native_op *op, const uint8_t *a, const uint8_t *b, uint8_t *y,
                    size_t n)
{
    op->fast->bytes->sum[native_byte(&op->stored[0])](a, b, y, n, &op->sum);
}

static void multiply_row(const struct native_op *op, const uint8_t *a, const uint8_t *b, uint8_t *y,
                         size_t n)
{
    op->fast->bytes->product[native_byte(&op->stored[0])](a, b, y, n, &op->product);
}

static void run_sum(void *user, int64_t first, int64_t end)
{
    each_row(user, first, end, add_row);
}

static void run_product(void *user, int64_t first, int64_t end)
{
    each_row(user, first, end, multiply_row);
}

static bool all_bytes(const struct native_op *op)
{
    for (uint32_t k = 0; k < 3; k++)
        if (op->stored[k].dtype == DTYPE_NONE || op->stored[k].dtype != op->stored[0].dtype ||
            op->walk.step[k] != 1)
            return false;
    return true;
}

void native_bytes_make(struct native_op *op, uint32_t n)
{
    const struct native_step *steps = op->steps;
    const struct stored *y = &op->stored[0], *a = &op->stored[1], *b = &op->stored[2];
    bool relu =
        op->n_steps == 2 && steps[1].unary && steps[1].unary == op->fast->unary[IR_UNARY_RELU];
    if (n != 3 || !steps[0].binary || steps[0].operand != 2 || (op->n_steps != 1 && !relu) ||
        !all_bytes(op))
        return;
    float zero = (float)y->zero, low = (float)stored_least(y->dtype) - zero, high = low + 255;
    low = relu ? MAX(low, 0) : low;
    if (steps[0].binary == op->fast->binary[IR_BINARY_ADD]) {
        float of_a = a->step / y->step, of_b = b->step / y->step;
        float shift = -(of_a * (float)a->zero + of_b * (float)b->zero);
        if (!isfinite(of_a) || !isfinite(of_b))
            return;
        op->sum = (struct byte_sum){of_a, of_b, shift, low, high, zero};
        op->work = run_sum;
    } else if (steps[0].binary == op->fast->binary[IR_BINARY_MUL]) {
        float factor = a->step * b->step / y->step;
        if (!isfinite(factor))
            return;
        op->product =
            (struct byte_product){factor, (float)-a->zero, (float)-b->zero, low, high, zero};
        op->work = run_product;
    }
}
