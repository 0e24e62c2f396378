/* SPDX-License-Identifier: Apache-2.0 */
/* MaxPool, AveragePool, LpPool and their global forms, MaxUnpool. */
#include "engine/import/ops.h"
#include "engine/import/window.h"

static uint32_t begin_pool(struct mapper *m, uint32_t x, const struct window *w)
{
    uint32_t node = emit_begin(m, IR_OP_POOL, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, m->row->func);
    emit_ints(m, node, IR_ATTR_KERNEL, w->n, w->kernel);
    window_emit(m, node, w);
    return node;
}

/* The order p of LP pooling, which is a float in the first opset. */
static float pool_order(struct mapper *m)
{
    const struct onnx_attr *p = map_attr(m, "p");
    if (p && p->type == ONNX_ATTR_FLOAT)
        return map_attr_float(m, "p", 2);
    return (float)map_attr_int(m, "p", 2);
}

static uint32_t with_number(struct mapper *m, enum ir_binary func, uint32_t x, int64_t value)
{
    return emit_binary(m, func, x, emit_int_list(m, 1, &value));
}

/* Turns positions in x into ONNX's column-major ones, in which the first spatial dimension counts
 * fastest within each plane. */
static uint32_t column_major(struct mapper *m, uint32_t x, uint32_t indices)
{
    struct shape in = *map_shape(m, x);
    int64_t plane = map_product(m, &in, 2, in.rank), row = plane, column = 1;
    uint32_t within = with_number(m, IR_BINARY_MOD, indices, plane);
    uint32_t sum = emit_binary(m, IR_BINARY_SUB, indices, within);
    for (uint32_t d = 2; d < in.rank && !map_failed(m); d++) {
        row /= in.dim[d];
        uint32_t at =
            with_number(m, IR_BINARY_MOD, with_number(m, IR_BINARY_DIV, within, row), in.dim[d]);
        sum = emit_binary(m, IR_BINARY_ADD, sum, with_number(m, IR_BINARY_MUL, at, column));
        column *= in.dim[d];
    }
    return sum;
}

/* Makes the values, and in `n` 2 their positions. */
static void emit_pooled(struct mapper *m, uint32_t x, uint32_t n, uint32_t *outputs)
{
    struct window w;
    window_read(m, x, IR_NONE, &w);
    window_auto_pad(m, x, &w);
    uint32_t node = begin_pool(m, x, &w);
    emit_int(m, node, IR_ATTR_CEIL_MODE, map_attr_int(m, "ceil_mode", 0) != 0);
    if (m->row->func == IR_POOL_AVERAGE)
        emit_int(m, node, IR_ATTR_COUNT_INCLUDE_PAD, map_attr_int(m, "count_include_pad", 0) != 0);
    if (m->row->func == IR_POOL_LP)
        emit_float(m, node, IR_ATTR_ALPHA, pool_order(m));
    emit_end_all(m, node, n, outputs);
}

uint32_t emit_pool(struct mapper *m, uint32_t x)
{
    uint32_t y;
    emit_pooled(m, x, 1, &y);
    return y;
}

void map_pool(struct mapper *m)
{
    uint32_t x = map_in(m, 0), outputs[2];
    bool indices = map_out_used(m, 1);
    emit_pooled(m, x, indices ? 2 : 1, outputs);
    map_out(m, 0, outputs[0]);
    if (!indices)
        return;
    bool columns = map_attr_int(m, "storage_order", 0) != 0 &&
                   map_product(m, map_shape(m, x), 2, map_shape(m, x)->rank) > 0;
    map_out(m, 1, columns ? column_major(m, x, outputs[1]) : outputs[1]);
}

/* One window lies over the whole image. */
uint32_t emit_global_pool(struct mapper *m, uint32_t x)
{
    const struct shape *shape = map_shape(m, x);
    struct window w = {.n = shape->rank >= 3 ? shape->rank - 2 : 0};
    if (shape->rank < 3)
        map_invalid(m, "its input has rank %u, expected 3 at least", shape->rank);
    for (uint32_t i = 0; i < w.n; i++) {
        w.kernel[i] = shape->dim[2 + i];
        w.strides[i] = w.dilations[i] = 1;
    }
    uint32_t node = begin_pool(m, x, &w);
    if (m->row->func == IR_POOL_LP)
        emit_float(m, node, IR_ATTR_ALPHA, pool_order(m));
    return emit_end(m, node);
}

void map_global_pool(struct mapper *m)
{
    map_out(m, 0, emit_global_pool(m, map_in(m, 0)));
}

/* Appends zeros to each dimension up to the output shape that operand 2 asks for. In the published
 * cases indices are places in the shape that the window gives, not in the larger one. */
static uint32_t stretched(struct mapper *m, uint32_t y)
{
    struct ints sizes;
    struct shape shape = *map_shape(m, y);
    int64_t pads[2 * SHAPE_MAX_RANK] = {0};
    if (map_in_opt(m, 2) == IR_NONE || !map_known_ints(m, map_in(m, 2), &sizes))
        return y;
    if (sizes.n != shape.rank)
        map_invalid(m, "an output shape of %u values, expected %u", sizes.n, shape.rank);
    bool same = true;
    for (uint32_t d = 0; d < shape.rank && !map_failed(m); d++) {
        if (sizes.v[d] < shape.dim[d] || sizes.v[d] > INT32_MAX)
            map_refuse(m, "an output shape smaller than the one its window gives");
        pads[shape.rank + d] = sizes.v[d] - shape.dim[d];
        same = same && !pads[shape.rank + d];
    }
    if (same)
        return y;
    uint32_t node = emit_begin(m, IR_OP_PAD, 1, &y);
    emit_ints(m, node, IR_ATTR_PADS, 2 * shape.rank, pads);
    emit_int(m, node, IR_ATTR_MODE, IR_PAD_CONSTANT);
    return emit_end(m, node);
}

/* Scatters the values to the places of the flat output that MaxPool's indices name. */
void map_max_unpool(struct mapper *m)
{
    struct window w;
    size_t n;
    uint32_t x = map_in(m, 0), indices = map_in(m, 1);
    struct shape out = *map_shape(m, x);
    window_read(m, x, IR_NONE, &w);
    for (uint32_t i = 0; i < w.n && !map_failed(m); i++) {
        if (out.dim[2 + i] < 1 || out.dim[2 + i] > INT32_MAX)
            map_invalid(m, "dimension %u of its input is %lld", 2 + i, (long long)out.dim[2 + i]);
        out.dim[2 + i] =
            (out.dim[2 + i] - 1) * w.strides[i] + w.kernel[i] - w.pads[i] - w.pads[w.n + i];
    }
    if (!shape_elements(&out, &n))
        map_invalid(m, "its window and pads leave no output");
    if (map_failed(m))
        return;
    uint32_t zeros = emit_expand(m, emit_scalar(m, map_dtype(m, x), 0),
                                 &(struct shape){.rank = 1, .dim = {(int64_t)n}});
    const uint32_t inputs[] = {zeros, emit_flat(m, indices), emit_flat(m, x)};
    uint32_t node = emit_begin(m, IR_OP_SCATTER_ELEMENTS, 3, inputs);
    emit_int(m, node, IR_ATTR_AXIS, 0);
    map_out(m, 0, stretched(m, emit_reshape(m, emit_end(m, node), &out)));
}
