/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of tensors: Slice, Split, Concat, Pad, Tile, Trilu. */
#include "engine/import/ops.h"

#include <string.h>

#include "engine/import/assume.h"

void map_concat(struct mapper *m)
{
    uint32_t inputs[IR_MAX_INPUTS] = {IR_NONE}, n = m->node->n_inputs;
    if (!n || n > IR_MAX_INPUTS)
        map_invalid(m, "it has %u inputs", n);
    for (uint32_t i = 0; i < n && !map_failed(m); i++)
        inputs[i] = map_in(m, i);
    if (map_failed(m))
        return;
    if (m->opset >= 4 && !map_attr(m, "axis"))
        map_invalid(m, "attribute 'axis' is missing");
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 1), map_shape(m, inputs[0])->rank);
    map_out(m, 0, n == 1 ? inputs[0] : emit_concat(m, n, inputs, axis));
}

/* The sizes of the parts if none are given. */
static void equal_parts(struct mapper *m, int64_t dim, uint32_t parts, struct ints *sizes)
{
    sizes->n = parts;
    if (!parts || parts > MAP_MAX_INTS || (m->opset < 18 && dim % parts)) {
        map_invalid(m, "%lld cannot be divided into %u equal parts", (long long)dim, parts);
        sizes->n = 0;
        return;
    }
    int64_t size = (dim + parts - 1) / parts;
    for (uint32_t i = 0; i < parts; i++) {
        sizes->v[i] = MIN(size, dim);
        dim -= sizes->v[i];
    }
}

void map_split(struct mapper *m)
{
    struct ints sizes;
    uint32_t x = map_in(m, 0);
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, x)->rank);
    int64_t dim = map_shape(m, x)->dim[axis], at = 0;
    bool given = map_ints(m, m->opset >= 13 || m->opset == 1 ? 1 : UINT32_MAX, "split", &sizes);
    if (map_failed(m))
        return;
    if (!given)
        equal_parts(m, dim, m->node->n_outputs, &sizes);
    if (sizes.n != m->node->n_outputs)
        map_invalid(m, "%u sizes for %u outputs", sizes.n, m->node->n_outputs);
    for (uint32_t i = 0; i < sizes.n && !map_failed(m); i++) {
        if (sizes.v[i] < 0 || sizes.v[i] > dim - at) {
            map_invalid(m, "part %u of size %lld goes beyond %lld", i, (long long)sizes.v[i],
                        (long long)dim);
            return;
        }
        map_out(m, i, emit_slice(m, x, axis, at, at + sizes.v[i]));
        at += sizes.v[i];
    }
    if (!map_failed(m) && at != dim)
        map_invalid(m, "its parts have a size of %lld, the input has %lld", (long long)at,
                    (long long)dim);
}

struct bounds {
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
};

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* Counts negative bounds from the end and cuts them to the dimension; see slice in docs/ir.md. */
static void slice_axis(struct bounds *b, uint32_t axis, int64_t dim, int64_t start, int64_t end,
                       int64_t step)
{
    start = start < 0 ? start + dim : start;
    end = end < 0 ? end + dim : end;
    if (step > 0) {
        start = clamp(start, 0, dim);
        end = MAX(clamp(end, 0, dim), start);
    } else {
        start = clamp(start, -1, dim - 1);
        end = MIN(clamp(end, -1, dim - 1), start);
    }
    b->starts[axis] = start;
    b->ends[axis] = end;
    b->steps[axis] = step;
}

void map_default_axes(struct ints *axes, uint32_t n)
{
    axes->n = n;
    for (uint32_t i = 0; i < n; i++)
        axes->v[i] = i;
}

void map_slice(struct mapper *m)
{
    struct ints starts, ends, axes, steps;
    struct bounds b;
    uint32_t x = map_in(m, 0), at = m->opset >= 10 ? 1 : UINT32_MAX - 3;
    struct shape in = *map_shape(m, x);
    if (assume_slice(m))
        return;
    if (!map_ints(m, at, "starts", &starts) || !map_ints(m, at + 1, "ends", &ends)) {
        if (!map_failed(m))
            map_invalid(m, "it has no starts or no ends");
        return;
    }
    if (!map_ints(m, at + 2, "axes", &axes))
        map_default_axes(&axes, starts.n);
    bool stepped = map_ints(m, at + 3, "steps", &steps);
    if (starts.n > in.rank || ends.n != starts.n || axes.n != starts.n ||
        (stepped && steps.n != starts.n))
        map_invalid(m, "%u starts, %u ends and %u axes for rank %u", starts.n, ends.n, axes.n,
                    in.rank);
    for (uint32_t d = 0; d < in.rank; d++)
        slice_axis(&b, d, in.dim[d], 0, in.dim[d], 1);
    for (uint32_t i = 0; i < starts.n && !map_failed(m); i++) {
        uint32_t axis = map_axis(m, axes.v[i], in.rank);
        int64_t step = stepped ? steps.v[i] : 1;
        if (!step || step == INT64_MIN)
            map_invalid(m, "a step of %lld", (long long)step);
        else if (!map_failed(m))
            slice_axis(&b, axis, in.dim[axis], starts.v[i], ends.v[i], step);
    }
    uint32_t node = emit_begin(m, IR_OP_SLICE, 1, &x);
    emit_ints(m, node, IR_ATTR_STARTS, in.rank, b.starts);
    emit_ints(m, node, IR_ATTR_ENDS, in.rank, b.ends);
    emit_ints(m, node, IR_ATTR_STEPS, in.rank, b.steps);
    map_out(m, 0, emit_end(m, node));
}

static enum ir_pad pad_mode(struct mapper *m)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
        if (map_attr_is(m, "mode", names[i], "constant"))
            return (enum ir_pad)i;
    }
    map_refuse(m, "attribute 'mode' is none of constant, reflect, edge, wrap");
    return IR_PAD_CONSTANT;
}

/* The value to pad with, which our attribute holds as fp32. */
static float pad_value(struct mapper *m)
{
    uint32_t tensor = m->opset >= 11 ? map_in_opt(m, 2) : IR_NONE;
    if (tensor == IR_NONE)
        return m->opset >= 11 ? 0 : map_attr_float(m, "value", 0);
    double value = map_known_number(m, tensor);
    if (!dtype_is_float(map_dtype(m, tensor)) && (double)(float)value != value)
        map_refuse(m, "with the value %.17g, which fp32 does not hold", value);
    return (float)value;
}

/* Spreads the pads, which may name some axes only, over all axes; the others get 0. */
static void pads_spread(struct mapper *m, const struct ints *pads, struct ints *axes, uint32_t rank,
                        int64_t *out)
{
    memset(out, 0, 2 * SHAPE_MAX_RANK * sizeof(*out));
    if (pads->n != 2 * axes->n)
        map_invalid(m, "%u pads, expected %u", pads->n, 2 * axes->n);
    for (uint32_t i = 0; i < axes->n && !map_failed(m); i++) {
        uint32_t axis = map_axis(m, axes->v[i], rank);
        if (map_failed(m))
            return;
        out[axis] = pads->v[i];
        out[rank + axis] = pads->v[axes->n + i];
    }
}

/* Negative pads cut x before the other pads repeat parts of it. */
static uint32_t emit_cut(struct mapper *m, uint32_t x, int64_t *pads)
{
    struct shape shape = *map_shape(m, x);
    for (uint32_t d = 0; d < shape.rank && !map_failed(m); d++) {
        int64_t start = pads[d] < 0 && pads[d] > INT64_MIN ? -pads[d] : 0;
        int64_t end = pads[shape.rank + d] < 0 ? shape.dim[d] + pads[shape.rank + d] : shape.dim[d];
        if (pads[d] >= 0 && end == shape.dim[d])
            continue;
        if (start > end || pads[d] == INT64_MIN)
            map_invalid(m, "it cuts more of dimension %u than there is", d);
        else
            x = emit_slice(m, x, d, start, end);
        pads[d] = MAX(pads[d], 0);
        pads[shape.rank + d] = MAX(pads[shape.rank + d], 0);
    }
    return x;
}

void map_pad(struct mapper *m)
{
    struct ints pads, axes;
    int64_t all[2 * SHAPE_MAX_RANK];
    uint32_t x = map_in(m, 0), rank = map_shape(m, x)->rank, operand = m->opset >= 11;
    const char *name = m->opset >= 2 ? "pads" : "paddings";
    if (!map_ints(m, operand ? 1 : UINT32_MAX, name, &pads) && !map_failed(m))
        map_invalid(m, "it has no pads");
    if (!map_ints(m, m->opset >= 18 ? 3 : UINT32_MAX, "axes", &axes))
        map_default_axes(&axes, rank);
    pads_spread(m, &pads, &axes, rank, all);
    enum ir_pad mode = pad_mode(m);
    float value = pad_value(m);
    if (mode != IR_PAD_CONSTANT)
        x = emit_cut(m, x, all);
    uint32_t node = emit_begin(m, IR_OP_PAD, 1, &x);
    emit_ints(m, node, IR_ATTR_PADS, 2 * rank, all);
    emit_int(m, node, IR_ATTR_MODE, mode);
    emit_float(m, node, IR_ATTR_VALUE, value);
    map_out(m, 0, emit_end(m, node));
}

void map_tile(struct mapper *m)
{
    struct ints repeats;
    uint32_t x = map_in(m, 0);
    map_known_ints(m, map_in(m, 1), &repeats);
    if (!map_failed(m) && repeats.n != map_shape(m, x)->rank)
        map_invalid(m, "%u repeats for rank %u", repeats.n, map_shape(m, x)->rank);
    uint32_t node = emit_begin(m, IR_OP_TILE, 1, &x);
    emit_ints(m, node, IR_ATTR_REPEATS, repeats.n, repeats.v);
    map_out(m, 0, emit_end(m, node));
}

void map_trilu(struct mapper *m)
{
    uint32_t x = map_in(m, 0), k = map_in_opt(m, 1);
    int64_t diagonal = k == IR_NONE ? 0 : map_known_int(m, k);
    uint32_t node = emit_begin(m, IR_OP_TRILU, 1, &x);
    emit_int(m, node, IR_ATTR_UPPER, map_attr_int(m, "upper", 1) != 0);
    emit_int(m, node, IR_ATTR_K, diagonal);
    map_out(m, 0, emit_end(m, node));
}
