/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers: checks that operands fit the cell, and that the cell may have its functions. */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

static const int64_t gates_of[IR_RECURRENT_COUNT_] = {1, 4, 3};
static const uint32_t functions_of[IR_RECURRENT_COUNT_] = {1, 3, 2};

static enum status check_floats(const struct infer *in, enum ir_attr_key key, uint32_t count)
{
    const struct ir_attr *attr = ir_attr(in->node, key);
    if (attr->count != count)
        return infer_fail(in, "attribute %s has %u values, not %u", ir_attr_name(key), attr->count,
                          count);
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(attr->f[i]))
            return infer_fail(in, "attribute %s[%u] is no number", ir_attr_name(key), i);
    return STATUS_OK;
}

static enum status check_functions(const struct infer *in, int64_t cell, int64_t directions)
{
    uint32_t n = functions_of[cell] * (uint32_t)directions;
    int64_t funcs[2 * 3];
    TRY(infer_ints(in, IR_ATTR_FUNCS, n, funcs));
    for (uint32_t i = 0; i < n; i++)
        if (!(ir_unary_row((enum ir_unary)funcs[i])->flags & IR_FUNC_CELL))
            return infer_fail(in, "funcs[%u] is %s, which no cell has", i,
                              ir_unary_name((enum ir_unary)funcs[i]));
    TRY(check_floats(in, IR_ATTR_ALPHAS, n));
    TRY(check_floats(in, IR_ATTR_BETAS, n));
    float clip = ir_attr_float(in->node, IR_ATTR_CLIP);
    if (!isfinite(clip) || clip < 0)
        return infer_fail(in, "attribute clip is %g", (double)clip);
    return STATUS_OK;
}

static enum status check_matrix(const struct infer *in, uint32_t input, int64_t rows, int64_t cols)
{
    const struct ir_tensor *t = infer_input(in, input);
    char text[SHAPE_TEXT_MAX];
    if (!t || (t->shape.rank == 2 && t->shape.dim[0] == rows && t->shape.dim[1] == cols))
        return STATUS_OK;
    return infer_fail(in, "input %u is %s, not [%" PRId64 ",%" PRId64 "]", input,
                      shape_format(&t->shape, text), rows, cols);
}

/* Checks operands that only some cells have. */
static enum status check_extras(const struct infer *in, int64_t cell, int64_t linear)
{
    bool lstm = cell == IR_RECURRENT_LSTM, gru = cell == IR_RECURRENT_GRU;
    if ((infer_input(in, 4) || infer_input(in, 5)) && !lstm)
        return infer_fail(in, "has a cell state or a peephole, but is no LSTM");
    if (infer_input(in, 6) && !(gru && linear))
        return infer_fail(in, "has a bias behind the product, but is no linear GRU");
    return STATUS_OK;
}

enum status infer_recurrent(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t cell = infer_int(in, IR_ATTR_FUNC);
    int64_t ways = ir_way_directions((enum ir_way)infer_int(in, IR_ATTR_REVERSE));
    char text[SHAPE_TEXT_MAX];
    enum dtype dtype = ir_tensor_type(infer_input(in, 0));
    TRY(check_functions(in, cell, ways));
    const struct shape *x = &infer_input(in, 0)->shape;
    if (x->rank != 3 || x->dim[2] % (ways * gates_of[cell]))
        return infer_fail(in, "input 0 is %s, not steps, sequences and %" PRId64 " gates",
                          shape_format(x, text), ways * gates_of[cell]);
    int64_t steps = x->dim[0], n = x->dim[1], h = x->dim[2] / (ways * gates_of[cell]);
    TRY(check_extras(in, cell, infer_int(in, IR_ATTR_LINEAR)));
    if (n > IR_MAX_DIM / ways)
        return infer_fail(in, "has %" PRId64 " sequences in two directions", n);
    TRY(check_matrix(in, 1, x->dim[2], h));
    TRY(infer_vector(in, 2, n));
    TRY(check_matrix(in, 3, ways * n, h));
    TRY(check_matrix(in, 4, ways * n, h));
    TRY(infer_vector(in, 5, ways * 3 * h));
    TRY(infer_vector(in, 6, ways * h));
    out[0] = (struct ir_type){dtype, {.rank = 3, .dim = {steps, n, ways * h}}};
    out[1] = (struct ir_type){dtype, {.rank = 2, .dim = {ways * n, h}}};
    out[2] = out[1];
    *n_out = cell == IR_RECURRENT_LSTM ? 3 : 2;
    return STATUS_OK;
}
