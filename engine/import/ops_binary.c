/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two and more elements, with broadcasting. */
#include "engine/import/ops.h"

/* Before opset 7 attributes aligned the second operand: its dimensions start at `axis`. */
static uint32_t old_broadcast(struct mapper *m, uint32_t a, uint32_t b)
{
    struct shape shape = *map_shape(m, b), out = {.rank = 0};
    uint32_t rank = map_shape(m, a)->rank;
    if (m->opset >= 7 || !map_attr_int(m, "broadcast", 0) || !map_attr(m, "axis"))
        return b;
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), rank);
    if (axis + shape.rank > rank)
        map_invalid(m, "axis %u and rank %u of the second operand go beyond rank %u", axis,
                    shape.rank, rank);
    if (map_failed(m))
        return b;
    out = shape;
    for (out.rank = rank - axis; shape.rank < out.rank; shape.rank++)
        out.dim[shape.rank] = 1;
    return emit_reshape(m, b, &out);
}

void map_binary(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1);
    map_out(m, 0, emit_binary(m, (enum ir_binary)m->row->func, a, old_broadcast(m, a, b)));
}

/* The result has the base's type, whatever the exponent's is. */
void map_pow(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = old_broadcast(m, a, map_in(m, 1));
    enum dtype base = map_dtype(m, a), exponent = map_dtype(m, b);
    enum dtype common = !dtype_is_float(base) && dtype_is_float(exponent) ? exponent : base;
    uint32_t y = emit_binary(m, IR_BINARY_POW, emit_cast(m, a, common), emit_cast(m, b, common));
    map_out(m, 0, emit_cast(m, y, base));
}

/* The slope broadcasts to x. In old files a vector holds one slope for each channel. */
void map_prelu(struct mapper *m)
{
    uint32_t x = map_in(m, 0), slope = map_in(m, 1);
    struct shape shape = *map_shape(m, x);
    if (m->opset < 7 && shape.rank >= 2)
        slope = emit_along(m, slope, 1, shape.rank);
    uint32_t y = emit_binary(m, IR_BINARY_PRELU, x, slope);
    if (!map_failed(m) && !shape_equal(map_shape(m, y), &shape))
        map_invalid(m, "the slope does not broadcast to the input");
    map_out(m, 0, y);
}

void map_bit_shift(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1);
    bool left = map_attr_is(m, "direction", "LEFT", "");
    if (!left && !map_attr_is(m, "direction", "RIGHT", ""))
        map_invalid(m, "attribute 'direction' is neither LEFT nor RIGHT");
    map_out(m, 0, emit_binary(m, left ? IR_BINARY_SHIFT_LEFT : IR_BINARY_SHIFT_RIGHT, a, b));
}

void map_mod(struct mapper *m)
{
    uint32_t operands[] = {map_in(m, 0), map_in(m, 1)};
    bool fmod_form = map_attr_int(m, "fmod", 0) != 0;
    if (!fmod_form && dtype_is_float(map_dtype(m, operands[0])))
        map_invalid(m, "fmod must be 1 for %s", dtype_name(map_dtype(m, operands[0])));
    uint32_t node = emit_begin(m, IR_OP_BINARY, 2, operands);
    emit_int(m, node, IR_ATTR_FUNC, IR_BINARY_MOD);
    emit_float(m, node, IR_ATTR_ALPHA, fmod_form ? 1 : 0);
    map_out(m, 0, emit_end(m, node));
}

/* Applies Sum, Max or Min to any number of operands. */
static uint32_t emit_chain(struct mapper *m, enum ir_binary func)
{
    uint32_t y = map_in(m, 0);
    for (uint32_t i = 1; i < m->node->n_inputs && !map_failed(m); i++)
        y = emit_binary(m, func, y, map_in(m, i));
    return y;
}

void map_variadic(struct mapper *m)
{
    map_out(m, 0, emit_chain(m, (enum ir_binary)m->row->func));
}

void map_mean(struct mapper *m)
{
    uint32_t sum = emit_chain(m, IR_BINARY_ADD);
    uint32_t n = emit_scalar(m, map_dtype(m, sum), m->node->n_inputs);
    map_out(m, 0, m->node->n_inputs == 1 ? sum : emit_binary(m, IR_BINARY_DIV, sum, n));
}

void map_where(struct mapper *m)
{
    uint32_t cond = map_in(m, 0), x = map_in(m, 1), y = map_in(m, 2);
    map_out(m, 0, emit_select(m, cond, x, y));
}
