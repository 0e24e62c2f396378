/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of what reads or writes by indices, or goes along one axis. */
#include <math.h>

#include "tests/device/make.h"

static enum dtype any_type(uint64_t *random)
{
    return (enum dtype)PICK(random, DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F64, DTYPE_I32,
                            DTYPE_I64, DTYPE_U8);
}

/* An input of any type, or a constant with many equal numbers, both zeros and some NaN. */
static uint32_t add_compared(struct ir_graph *g, uint64_t *random, struct shape shape)
{
    size_t n;
    if (chance(random, 60) || !shape_elements(&shape, &n))
        return add_input(g, any_type(random), shape);
    uint32_t id = add_constant(g, random, shape, 2);
    float *data =
        id == IR_NONE ? NULL : (float *)(uintptr_t)ir_tensor(g, id)->data; /* just drawn */
    for (size_t i = 0; data && i < n; i++)
        data[i] = chance(random, 4) ? NAN : rintf(data[i] * 4) / 4;
    return id;
}

/* Up to four dims, one of which may be long. */
static struct shape line_shape(uint64_t *random, int64_t *axis)
{
    struct shape s = {.rank = (uint32_t)between(random, 1, 4)};
    int64_t line = PICK(random, 1, 5, 16, 33, 100, 256, 300, 1025);
    for (uint32_t i = 0; i < s.rank; i++)
        s.dim[i] = line < 100 ? PICK(random, 1, 2, 3, 5) : PICK(random, 1, 1, 2);
    *axis = between(random, 0, s.rank - 1);
    s.dim[*axis] = line;
    return s;
}

bool make_arg_reduce(struct ir_graph *g, uint64_t *random)
{
    int64_t axis;
    struct shape x = line_shape(random, &axis);
    if (chance(random, 15)) /* neighbours enough for a thread each */
        x = DIMS(2, 19, 64, 32), axis = 1;
    uint32_t in = add_compared(g, random, x);
    uint32_t node = ir_node_add(g, IR_OP_ARG_REDUCE, "arg", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, chance(random, 50)) &&
           ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) &&
           ir_attr_set_int(g, node, IR_ATTR_KEEPDIMS, chance(random, 50)) &&
           ir_attr_set_int(g, node, IR_ATTR_SELECT_LAST, chance(random, 40)) && finish(g, node);
}

bool make_cumsum(struct ir_graph *g, uint64_t *random)
{
    int64_t axis;
    struct shape x = line_shape(random, &axis);
    if (chance(random, 15))
        x = DIMS(2, 19, 64, 32), axis = 1;
    uint32_t in = add_input(g, any_type(random), x);
    uint32_t node = ir_node_add(g, IR_OP_CUMSUM, "cumsum", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) &&
           ir_attr_set_int(g, node, IR_ATTR_EXCLUSIVE, chance(random, 40)) &&
           ir_attr_set_int(g, node, IR_ATTR_REVERSE, chance(random, 40)) && finish(g, node);
}

bool make_topk(struct ir_graph *g, uint64_t *random)
{
    int64_t axis;
    struct shape x = line_shape(random, &axis);
    if (chance(random, 15)) { /* more than are sorted at a time */
        x = chance(random, 50) ? DIMS(1, 5000) : DIMS(4500, 2);
        axis = x.dim[0] == 1;
    }
    int64_t k = MIN(PICK(random, 1, 2, 5, 40, 1024), x.dim[axis]);
    uint32_t in = add_compared(g, random, x);
    uint32_t node = ir_node_add(g, IR_OP_TOPK, "topk", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) &&
           ir_attr_set_int(g, node, IR_ATTR_K, k) &&
           ir_attr_set_int(g, node, IR_ATTR_LARGEST, chance(random, 60)) && finish(g, node);
}

bool make_trilu(struct ir_graph *g, uint64_t *random)
{
    uint32_t in = add_input(g, any_type(random), any_shape(random, 2));
    uint32_t node = ir_node_add(g, IR_OP_TRILU, "trilu", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_UPPER, chance(random, 50)) &&
           ir_attr_set_int(g, node, IR_ATTR_K, between(random, -9, 9)) && finish(g, node);
}

bool make_one_hot(struct ir_graph *g, uint64_t *random)
{
    struct shape at = any_shape(random, 0);
    int64_t depth = PICK(random, 1, 3, 10, 33);
    at.rank = MIN(at.rank, 3U);
    uint32_t in[2] = {chance(random, 50)   ? add_indices(g, random, at, depth + 2)
                      : chance(random, 50) ? add_integers(g, random, at, DTYPE_I32)
                                           : add_input(g, DTYPE_U8, at),
                      add_input(g, any_type(random), DIMS(2))};
    uint32_t node = ir_node_add(g, IR_OP_ONE_HOT, "one hot", 2, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_DEPTH, depth) &&
           ir_attr_set_int(g, node, IR_ATTR_AXIS, between(random, 0, at.rank)) && finish(g, node);
}

/* Dims that indices along `axis` may have, and the indices. */
static uint32_t add_positions(struct ir_graph *g, uint64_t *random, struct shape x, int64_t axis)
{
    struct shape at = x;
    for (uint32_t i = 0; i < at.rank; i++)
        at.dim[i] = i == (uint32_t)axis ? PICK(random, 1, 4, 19) : between(random, 1, x.dim[i]);
    return add_indices(g, random, at, x.dim[axis]);
}

bool make_gather_elements(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    int64_t axis = between(random, 0, x.rank - 1);
    uint32_t in[2] = {add_input(g, any_type(random), x), add_positions(g, random, x, axis)};
    uint32_t node = ir_node_add(g, IR_OP_GATHER_ELEMENTS, "gather", 2, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) && finish(g, node);
}

bool make_scatter_elements(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    int64_t axis = between(random, 0, x.rank - 1);
    enum dtype dtype = any_type(random);
    uint32_t in[3] = {add_input(g, dtype, x), add_positions(g, random, x, axis), IR_NONE};
    if (in[1] == IR_NONE)
        return false;
    in[2] = add_input(g, dtype, ir_tensor(g, in[1])->shape);
    uint32_t node = ir_node_add(g, IR_OP_SCATTER_ELEMENTS, "scatter", 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC, between(random, 0, IR_SCATTER_COUNT_ - 1)) &&
           finish(g, node);
}

/* Tuples of `numbers` numbers; `batch` leading dims are those of x. */
static uint32_t add_tuples(struct ir_graph *g, uint64_t *random, struct shape x, int64_t batch,
                           int64_t numbers)
{
    struct shape at = {.rank = (uint32_t)batch};
    int64_t least = x.dim[batch];
    for (int64_t i = 0; i < batch; i++)
        at.dim[i] = x.dim[i];
    for (int64_t i = 0; i < numbers; i++)
        least = MIN(least, x.dim[batch + i]);
    at.dim[at.rank++] = PICK(random, 1, 5, 12);
    at.dim[at.rank++] = numbers;
    return add_indices(g, random, at, least);
}

bool make_gather_nd(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    int64_t batch = between(random, 0, x.rank - 1), numbers = between(random, 1, x.rank - batch);
    uint32_t in[2] = {add_input(g, any_type(random), x), add_tuples(g, random, x, batch, numbers)};
    uint32_t node = ir_node_add(g, IR_OP_GATHER_ND, "gather", 2, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_BATCH_DIMS, batch) &&
           finish(g, node);
}

bool make_scatter_nd(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    int64_t numbers = between(random, 1, x.rank);
    enum dtype dtype = any_type(random);
    uint32_t in[3] = {add_input(g, dtype, x), add_tuples(g, random, x, 0, numbers), IR_NONE};
    if (in[1] == IR_NONE)
        return false;
    struct shape updates = DIMS(ir_tensor(g, in[1])->shape.dim[0]);
    for (int64_t i = numbers; i < (int64_t)x.rank; i++)
        updates.dim[updates.rank++] = x.dim[i];
    in[2] = add_input(g, dtype, updates);
    uint32_t node = ir_node_add(g, IR_OP_SCATTER_ND, "scatter", 3, in);
    return node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC, between(random, 0, IR_SCATTER_COUNT_ - 1)) &&
           finish(g, node);
}

/* Reductions of types that are no FP32. */
bool make_reduce_any(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    enum dtype dtype = (enum dtype)PICK(random, DTYPE_F64, DTYPE_I32, DTYPE_I64, DTYPE_U8);
    uint32_t in = add_input(g, dtype, x), node = ir_node_add(g, IR_OP_REDUCE, "red", 1, &in);
    int64_t axes[SHAPE_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x.rank; i++)
        if (chance(random, 50))
            axes[n++] = i;
    return n && node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC,
                           PICK(random, IR_REDUCE_SUM, IR_REDUCE_MEAN, IR_REDUCE_MAX, IR_REDUCE_MIN,
                                IR_REDUCE_PROD, IR_REDUCE_L1, IR_REDUCE_L2, IR_REDUCE_SUM_SQUARE,
                                IR_REDUCE_LOG_SUM_EXP)) &&
           ir_attr_set_ints(g, node, IR_ATTR_AXES, n, axes) &&
           ir_attr_set_int(g, node, IR_ATTR_KEEPDIMS, chance(random, 70)) && finish(g, node);
}
