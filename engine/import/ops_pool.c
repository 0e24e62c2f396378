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

/* The order of LP pooling; a float in the first opset. */
static float pool_order(struct mapper *m)
{
    const struct onnx_attr *p = map_attr(m, "p");
    if (p && p->type == ONNX_ATTR_FLOAT)
        return map_attr_float(m, "p", 2);
    return (float)map_attr_int(m, "p", 2);
}

void map_pool(struct mapper *m)
{
    struct window w;
    uint32_t x = map_in(m, 0), outputs[2];
    bool indices = map_out_used(m, 1);
    window_read(m, x, IR_NONE, &w);
    window_auto_pad(m, x, &w);
    if (indices && map_attr_int(m, "storage_order", 0))
        map_refuse(m, "indices in column-major order");
    uint32_t node = begin_pool(m, x, &w);
    emit_int(m, node, IR_ATTR_CEIL_MODE, map_attr_int(m, "ceil_mode", 0) != 0);
    if (m->row->func == IR_POOL_AVERAGE)
        emit_int(m, node, IR_ATTR_COUNT_INCLUDE_PAD, map_attr_int(m, "count_include_pad", 0) != 0);
    if (m->row->func == IR_POOL_LP)
        emit_float(m, node, IR_ATTR_ALPHA, pool_order(m));
    emit_end_all(m, node, indices ? 2 : 1, outputs);
    map_out(m, 0, outputs[0]);
    if (indices)
        map_out(m, 1, outputs[1]);
}

/* One window over everything. */
void map_global_pool(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
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
    map_out(m, 0, emit_end(m, node));
}

/* Scatters the values to the places (in the flat output) that MaxPool's indices name. */
void map_max_unpool(struct mapper *m)
{
    struct window w;
    struct ints sizes;
    size_t n;
    uint32_t x = map_in(m, 0), indices = map_in(m, 1), wanted = map_in_opt(m, 2);
    struct shape out = *map_shape(m, x);
    window_read(m, x, IR_NONE, &w);
    for (uint32_t i = 0; i < w.n && !map_failed(m); i++) {
        if (out.dim[2 + i] < 1 || out.dim[2 + i] > INT32_MAX)
            map_invalid(m, "dimension %u of its input is %lld", 2 + i, (long long)out.dim[2 + i]);
        out.dim[2 + i] =
            (out.dim[2 + i] - 1) * w.strides[i] + w.kernel[i] - w.pads[i] - w.pads[w.n + i];
    }
    if (wanted != IR_NONE && map_known_ints(m, wanted, &sizes)) {
        for (uint32_t d = 0; d < out.rank; d++) {
            if (sizes.n != out.rank || sizes.v[d] != out.dim[d])
                map_refuse(m, "an output shape other than the one its window gives");
        }
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
    map_out(m, 0, emit_reshape(m, emit_end(m, node), &out));
}
