/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation and its inverse: by constant scales, one or one for each index of an axis. */
#include "tests/device/make.h"

/* Scales far from 0, and zero points around 0, or none. */
static bool add_scales(struct ir_graph *g, uint64_t *random, int64_t n, enum dtype dtype,
                       uint32_t *scale, uint32_t *zero)
{
    struct shape shape = {.rank = n > 1, .dim = {n}};
    float *steps = arena_array(g->arena, (size_t)n, sizeof(*steps));
    uint8_t *starts = arena_array(g->arena, (size_t)n, dtype_size(dtype));
    if (!steps || !starts)
        return false;
    memset(starts, 0, (size_t)n * dtype_size(dtype));
    for (int64_t i = 0; i < n; i++) {
        steps[i] = (float)between(random, 50, 150) / 10000;
        starts[(size_t)i * dtype_size(dtype)] = (uint8_t)between(random, 0, 100);
    }
    *scale = ir_constant_add(g, "s", DTYPE_F32, &shape, steps);
    *zero = chance(random, 30) ? IR_NONE : ir_constant_add(g, "z", dtype, &shape, starts);
    return *scale != IR_NONE;
}

static bool add_node(struct ir_graph *g, uint64_t *random, enum ir_op op, const struct shape *x,
                     uint32_t input, enum dtype integers, enum dtype to)
{
    uint32_t axis = (uint32_t)between(random, 0, x->rank - 1), in[3] = {input};
    int64_t n = chance(random, 50) ? x->dim[axis] : 1;
    if (!add_scales(g, random, n, integers, &in[1], &in[2]))
        return false;
    uint32_t node = ir_node_add(g, op, "quant", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TO, to) &&
           ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) && finish(g, node);
}

bool make_quantise(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    enum dtype to = (enum dtype)PICK(random, DTYPE_U8, DTYPE_I8, DTYPE_U8, DTYPE_I8, DTYPE_I16);
    return add_node(g, random, IR_OP_QUANTIZE, &x, add_input(g, DTYPE_F32, x), to, to);
}

bool make_dequantise(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    enum dtype from = (enum dtype)PICK(random, DTYPE_U8, DTYPE_I8, DTYPE_U8, DTYPE_I8, DTYPE_I32);
    return add_node(g, random, IR_OP_DEQUANTIZE, &x, add_input(g, from, x), from, DTYPE_F32);
}
