/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce*, ArgMax, ArgMin, Softmax and its kin, CumSum, TopK. */
#include "engine/import/ops.h"

/* The opset from which on the axes are an operand. */
static int axes_operand_since(const struct mapper *m)
{
    return m->row->func == IR_REDUCE_SUM ? 13 : 18;
}

/* Over no axes a plain reduction gives its operand. The other functions still take a square or a
 * logarithm. */
static bool is_plain_reduction(int64_t func)
{
    return func == IR_REDUCE_SUM || func == IR_REDUCE_MEAN || func == IR_REDUCE_MAX ||
           func == IR_REDUCE_MIN || func == IR_REDUCE_PROD;
}

void map_reduce(struct mapper *m)
{
    struct ints axes;
    uint32_t x = map_in(m, 0), rank = map_shape(m, x)->rank;
    uint32_t operand = m->opset >= axes_operand_since(m) ? 1 : UINT32_MAX;
    enum dtype dtype = map_dtype(m, x);
    map_ints(m, operand, "axes", &axes);
    bool keepdims = map_attr_int(m, "keepdims", 1) != 0;
    bool nothing = !axes.n && map_attr_int(m, "noop_with_empty_axes", 0);
    if (nothing && is_plain_reduction(m->row->func)) {
        map_out(m, 0, x);
        return;
    }
    if (!axes.n && !nothing) {
        axes.n = rank;
        for (uint32_t d = 0; d < rank; d++)
            axes.v[d] = d;
    }
    map_axes(m, &axes, rank);
    if (dtype == DTYPE_BOOL) /* Max is "any", Min is "all" */
        x = emit_cast(m, x, DTYPE_U8);
    uint32_t y = emit_reduce(m, (enum ir_reduce)m->row->func, x, &axes, keepdims);
    map_out(m, 0, dtype == DTYPE_BOOL ? emit_cast(m, y, dtype) : y);
}

static uint32_t emit_arg_reduce(struct mapper *m, uint32_t x, int64_t func, uint32_t axis,
                                bool keepdims, bool last)
{
    uint32_t node = emit_begin(m, IR_OP_ARG_REDUCE, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, func);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_KEEPDIMS, keepdims);
    emit_int(m, node, IR_ATTR_SELECT_LAST, last);
    return emit_end(m, node);
}

void map_arg_reduce(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, x)->rank);
    bool keepdims = map_attr_int(m, "keepdims", 1) != 0;
    bool last = map_attr_int(m, "select_last_index", 0) != 0;
    map_out(m, 0, emit_arg_reduce(m, x, m->row->func, axis, keepdims, last));
}

uint32_t emit_softmax(struct mapper *m, uint32_t x, uint32_t axis, bool log_form)
{
    uint32_t node = emit_begin(m, IR_OP_SOFTMAX, 1, &x);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_LOG, log_form);
    return emit_end(m, node);
}

static uint32_t emit_hardmax(struct mapper *m, uint32_t x, uint32_t axis)
{
    enum dtype dtype = map_dtype(m, x);
    int64_t depth = map_shape(m, x)->dim[axis];
    if (depth == 0)
        return x; /* there is nothing to choose from, and no element */
    uint32_t index = emit_arg_reduce(m, x, 0, axis, false, false);
    uint32_t values[] = {emit_scalar(m, dtype, 0), emit_scalar(m, dtype, 1)};
    const struct shape one = {.rank = 1, .dim = {1}};
    for (uint32_t i = 0; i < 2; i++)
        values[i] = emit_reshape(m, values[i], &one);
    const uint32_t inputs[] = {index, emit_concat(m, 2, values, 0)};
    uint32_t node = emit_begin(m, IR_OP_ONE_HOT, 2, inputs);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_DEPTH, depth);
    return emit_end(m, node);
}

static uint32_t emit_max_kind(struct mapper *m, uint32_t x, uint32_t axis)
{
    if (m->row->func == MAP_HARDMAX)
        return emit_hardmax(m, x, axis);
    return emit_softmax(m, x, axis, m->row->func == MAP_LOG_SOFTMAX);
}

/* From opset 13 on the softmax goes over one axis, before that over all dimensions from `axis` on
 * together. */
void map_softmax(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct shape shape = *map_shape(m, x), flat = {.rank = 2};
    bool one_axis = m->opset >= 13;
    uint32_t axis = 0;
    int64_t given = map_attr_int(m, "axis", one_axis ? -1 : 1);
    /* A vector has no dimension 1, but old files say 1 and mean the whole vector. */
    if (!one_axis && given == shape.rank && shape.rank == 1)
        given = 0;
    axis = map_axis(m, given, shape.rank);
    if (map_failed(m))
        return;
    if (one_axis || axis + 1 == shape.rank) {
        map_out(m, 0, emit_max_kind(m, x, axis));
        return;
    }
    flat.dim[0] = map_product(m, &shape, 0, axis);
    flat.dim[1] = map_product(m, &shape, axis, shape.rank);
    uint32_t y = emit_max_kind(m, emit_reshape(m, x, &flat), 1);
    map_out(m, 0, emit_reshape(m, y, &shape));
}

void map_cumsum(struct mapper *m)
{
    uint32_t x = map_in(m, 0), axis = map_in(m, 1);
    uint32_t along = map_axis(m, map_known_int(m, axis), map_shape(m, x)->rank);
    uint32_t node = emit_begin(m, IR_OP_CUMSUM, 1, &x);
    emit_int(m, node, IR_ATTR_AXIS, along);
    emit_int(m, node, IR_ATTR_EXCLUSIVE, map_attr_int(m, "exclusive", 0) != 0);
    emit_int(m, node, IR_ATTR_REVERSE, map_attr_int(m, "reverse", 0) != 0);
    map_out(m, 0, emit_end(m, node));
}

void map_topk(struct mapper *m)
{
    uint32_t x = map_in(m, 0), outputs[2];
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", -1), map_shape(m, x)->rank);
    int64_t k = m->opset >= 10 ? map_known_int(m, map_in(m, 1)) : map_attr_int(m, "k", -1);
    uint32_t node = emit_begin(m, IR_OP_TOPK, 1, &x);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_int(m, node, IR_ATTR_K, k);
    emit_int(m, node, IR_ATTR_LARGEST, map_attr_int(m, "largest", 1) != 0);
    emit_int(m, node, IR_ATTR_SORTED, map_attr_int(m, "sorted", 1) != 0);
    emit_end_all(m, node, 2, outputs);
    map_out(m, 0, outputs[0]);
    map_out(m, 1, outputs[1]);
}
