/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and products of two tensors of bytes that are stored as bytes again, in one pass over them.
 * In steps of the output the sum is a line in each of both: a sa / sy + b sb / sy and a constant.
 * ReLU behind it only raises the least number.
 */
#include <math.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

/* Rows are dense in all three tensors. */
static const uint8_t *operand(const struct native_op *op, const struct ref_walk *w, uint32_t k,
                              int64_t at)
{
    return (const uint8_t *)op->inputs[op->input[k]] + w->at[k] + at;
}

static uint8_t *result(const struct native_op *op, const struct ref_walk *w, int64_t at)
{
    return (uint8_t *)op->output + w->at[0] + at;
}

static void add_chunk(const struct native_op *op, const struct ref_walk *w, int64_t at, size_t n)
{
    op->fast->bytes->sum[native_byte(&op->stored[0])](operand(op, w, 1, at), operand(op, w, 2, at),
                                                      result(op, w, at), n, &op->sum);
}

static void multiply_chunk(const struct native_op *op, const struct ref_walk *w, int64_t at,
                           size_t n)
{
    op->fast->bytes->product[native_byte(&op->stored[0])](
        operand(op, w, 1, at), operand(op, w, 2, at), result(op, w, at), n, &op->product);
}

static void run_sum(void *user, int64_t first, int64_t end)
{
    native_each_chunk(user, first, end, add_chunk);
}

static void run_product(void *user, int64_t first, int64_t end)
{
    native_each_chunk(user, first, end, multiply_chunk);
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
