/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the nodes and constants of the graph that is being built, and evaluates nodes on the way.
 *
 * A node that depends on shapes and small constants only is computed as soon as it is emitted,
 * which makes the shape arithmetic of exporters disappear. Nodes with larger results (a transposed
 * weight) are left to the folding pass. Convolutions and the like are never computed here, because
 * a file of a few bytes could ask for hours of them.
 */
#include "engine/import/map.h"

#include <stdlib.h>
#include <string.h>

#include "engine/import/blocks.h"

enum { FOLD_EAGER_BYTES = 1 << 20, FOLD_WANTED_BYTES = 1 << 26 };

uint32_t emit_begin(struct mapper *m, enum ir_op op, uint32_t n_inputs, const uint32_t *inputs)
{
    if (map_failed(m))
        return IR_NONE;
    const char *name = m->label;
    if (m->n_emitted)
        name = arena_printf(m->graph->arena, "%s.%u", m->label, m->n_emitted);
    m->n_emitted++;
    uint32_t node = name ? ir_node_add(m->graph, op, name, n_inputs, inputs) : IR_NONE;
    if (node == IR_NONE)
        map_exhausted(m);
    return node;
}

void emit_ints(struct mapper *m, uint32_t node, enum ir_attr_key key, uint32_t n,
               const int64_t *values)
{
    if (!map_failed(m) && !ir_attr_set_ints(m->graph, node, key, n, values))
        map_exhausted(m);
}

void emit_int(struct mapper *m, uint32_t node, enum ir_attr_key key, int64_t value)
{
    emit_ints(m, node, key, 1, &value);
}

void emit_float(struct mapper *m, uint32_t node, enum ir_attr_key key, float value)
{
    if (!map_failed(m) && !ir_attr_set_float(m->graph, node, key, value))
        map_exhausted(m);
}

/* Whether the node must be computed here and now. Its operands are known, as all are. */
static bool must_fold(struct mapper *m, const struct ir_node *node)
{
    size_t bytes = 0;
    bool fits = true;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(m->graph, node->outputs[i]);
        fits = fits && t->bytes <= m->fold_budget - bytes;
        bytes += fits ? t->bytes : 0;
    }
    if (!fits)
        map_spent(m);
    return fits;
}

static bool is_foldable(const struct mapper *m, const struct ir_node *node, bool wanted)
{
    size_t limit = wanted ? FOLD_WANTED_BYTES : FOLD_EAGER_BYTES, bytes = 0;
    if (!m->options->evaluator.eval)
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(m->graph, node->inputs[i]);
        if (!ir_tensor_is_constant(t) || (!wanted && t->bytes > FOLD_EAGER_BYTES))
            return false;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(m->graph, node->outputs[i]);
        if (t->bytes > limit - bytes)
            return false;
        bytes += t->bytes;
    }
    return bytes <= m->fold_budget && ir_node_work(m->graph, node) <= m->fold_work;
}

/* Kernels need aligned elements, but a constant may lie anywhere in the file. */
static const void *aligned(struct arena *scratch, const struct ir_tensor *t)
{
    if ((uintptr_t)t->data % dtype_size(t->dtype) == 0)
        return t->data;
    void *copy = arena_alloc(scratch, t->bytes);
    if (copy)
        memcpy(copy, t->data, t->bytes);
    return copy;
}

static bool fold_operands(struct mapper *m, struct arena *scratch, const struct ir_node *node,
                          const void **inputs, void **outputs)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        inputs[i] = NULL;
        if (node->inputs[i] == IR_NONE)
            continue;
        inputs[i] = aligned(scratch, ir_tensor(m->graph, node->inputs[i]));
        if (!inputs[i])
            return false;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(m->graph, node->outputs[i]);
        bool large = m->blocks && t->bytes >= BLOCKS_LEAST;
        outputs[i] =
            large ? blocks_take(m->blocks, t->bytes) : arena_alloc(m->graph->arena, t->bytes);
        if (!outputs[i])
            return false;
        m->fold_budget -= t->bytes;
    }
    return true;
}

/* Computes the node. False: it is left as it is, or the import has failed. */
static bool fold_run(struct mapper *m, const struct ir_node *n, void **outputs)
{
    const struct ir_evaluator *evaluator = &m->options->evaluator;
    const void *inputs[IR_MAX_INPUTS];
    struct error err;
    struct arena *scratch = arena_new(0);
    if (!scratch || !fold_operands(m, scratch, n, inputs, outputs)) {
        arena_free(scratch);
        map_exhausted(m);
        return false;
    }
    enum status status = evaluator->eval(evaluator->user, m->graph, n, inputs, outputs, &err);
    arena_free(scratch);
    if (status == STATUS_UNIMPLEMENTED && !m->computes)
        return false; /* it stays a node: a backend may be able to run it */
    if (status) {
        error_prefix(&err, "cannot be computed");
        map_failed_with(m, status, &err);
    }
    return !status;
}

/* Whether the node's output has the bytes of its input, as they lie. */
static bool renames(const struct mapper *m, const struct ir_node *n)
{
    if (!m->computes || n->n_epilogue || !ir_op_has(n->op, IR_TRAIT_RENAMES))
        return false;
    const struct ir_tensor *x = ir_tensor(m->graph, n->inputs[0]);
    const struct ir_tensor *y = ir_tensor(m->graph, n->outputs[0]);
    return x->bytes == y->bytes && ir_node_renames(m->graph, n, x->format, y->format);
}

void emit_fold(struct mapper *m, uint32_t node, bool wanted)
{
    void *outputs[IR_MAX_OUTPUTS];
    uint32_t made[IR_MAX_OUTPUTS];
    const struct ir_node *n = ir_node(m->graph, node);
    if (map_failed(m) || !(m->computes ? must_fold(m, n) : is_foldable(m, n, wanted)))
        return;
    if (!m->computes)
        m->fold_work -= ir_node_work(m->graph, n);
    const void *same = renames(m, n) ? ir_tensor(m->graph, n->inputs[0])->data : NULL;
    if (!same && !fold_run(m, n, outputs))
        return;
    uint32_t n_made = n->n_outputs, range = ir_range_follows(m->graph, n);
    memcpy(made, n->outputs, sizeof(made));
    ir_tensor(m->graph, made[0])->range = range;
    ir_node_remove(m->graph, node);
    for (uint32_t i = 0; i < n_made; i++)
        ir_tensor(m->graph, made[i])->data = same ? same : outputs[i];
}

void emit_end_all(struct mapper *m, uint32_t node, uint32_t n, uint32_t *outputs)
{
    static const char *const unnamed[IR_MAX_OUTPUTS] = {"", "", "", ""};
    struct error err;
    for (uint32_t i = 0; i < n; i++)
        outputs[i] = IR_NONE;
    if (map_failed(m))
        return;
    enum status status = ir_infer_apply(m->graph, node, unnamed, n, &err);
    if (status) {
        map_failed_with(m, status, &err);
        return;
    }
    const struct ir_node *made = ir_node(m->graph, node);
    for (uint32_t i = 0; i < n && i < made->n_outputs; i++)
        outputs[i] = made->outputs[i];
    emit_fold(m, node, false);
    if (ir_node(m->graph, node)->op == IR_OP_NONE)
        m->n_emitted--; /* its name is free again */
}

uint32_t emit_end(struct mapper *m, uint32_t node)
{
    uint32_t output;
    emit_end_all(m, node, 1, &output);
    return output;
}

uint32_t emit_unary(struct mapper *m, enum ir_unary func, uint32_t x)
{
    uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, func);
    return emit_end(m, node);
}

uint32_t emit_unary_ab(struct mapper *m, enum ir_unary func, uint32_t x, float alpha, float beta)
{
    uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, func);
    emit_float(m, node, IR_ATTR_ALPHA, alpha);
    emit_float(m, node, IR_ATTR_BETA, beta);
    return emit_end(m, node);
}

uint32_t emit_binary(struct mapper *m, enum ir_binary func, uint32_t a, uint32_t b)
{
    uint32_t node = emit_begin(m, IR_OP_BINARY, 2, (const uint32_t[]){a, b});
    emit_int(m, node, IR_ATTR_FUNC, func);
    return emit_end(m, node);
}

uint32_t emit_select(struct mapper *m, uint32_t cond, uint32_t x, uint32_t y)
{
    return emit_end(m, emit_begin(m, IR_OP_SELECT, 3, (const uint32_t[]){cond, x, y}));
}

/* Only scales lead to and from 8-bit floats, in the end that of 1. */
static uint32_t emit_scaled_by_1(struct mapper *m, enum ir_op op, uint32_t x, enum dtype to)
{
    const uint32_t inputs[] = {x, emit_scalar(m, DTYPE_F32, 1)};
    uint32_t node = emit_begin(m, op, 2, inputs);
    emit_int(m, node, IR_ATTR_TO, to);
    return emit_end(m, node);
}

uint32_t emit_cast(struct mapper *m, uint32_t x, enum dtype to)
{
    if (map_dtype(m, x) == to)
        return x;
    if (map_dtype(m, x) == DTYPE_F8)
        return emit_cast(m, emit_scaled_by_1(m, IR_OP_DEQUANTIZE, x, DTYPE_F32), to);
    if (to == DTYPE_F8)
        return emit_scaled_by_1(m, IR_OP_QUANTIZE, emit_cast(m, x, DTYPE_F32), to);
    uint32_t node = emit_begin(m, IR_OP_CAST, 1, &x);
    emit_int(m, node, IR_ATTR_TO, to);
    return emit_end(m, node);
}

uint32_t emit_reshape(struct mapper *m, uint32_t x, const struct shape *shape)
{
    if (map_failed(m) || shape_equal(map_shape(m, x), shape))
        return x;
    uint32_t node = emit_begin(m, IR_OP_RESHAPE, 1, &x);
    emit_ints(m, node, IR_ATTR_SHAPE, shape->rank, shape->dim);
    return emit_end(m, node);
}

uint32_t emit_transpose(struct mapper *m, uint32_t x, uint32_t n, const int64_t *perm)
{
    uint32_t node = emit_begin(m, IR_OP_TRANSPOSE, 1, &x);
    emit_ints(m, node, IR_ATTR_PERM, n, perm);
    return emit_end(m, node);
}

uint32_t emit_expand(struct mapper *m, uint32_t x, const struct shape *shape)
{
    if (map_failed(m) || shape_equal(map_shape(m, x), shape))
        return x;
    uint32_t node = emit_begin(m, IR_OP_EXPAND, 1, &x);
    emit_ints(m, node, IR_ATTR_SHAPE, shape->rank, shape->dim);
    return emit_end(m, node);
}

uint32_t emit_reduce(struct mapper *m, enum ir_reduce func, uint32_t x, const struct ints *axes,
                     bool keepdims)
{
    uint32_t node = emit_begin(m, IR_OP_REDUCE, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, func);
    emit_ints(m, node, IR_ATTR_AXES, axes->n, axes->v);
    emit_int(m, node, IR_ATTR_KEEPDIMS, keepdims);
    return emit_end(m, node);
}

uint32_t emit_matmul(struct mapper *m, uint32_t a, uint32_t b, uint32_t bias)
{
    const uint32_t inputs[] = {a, b, bias};
    return emit_end(m, emit_begin(m, IR_OP_MATMUL, bias == IR_NONE ? 2 : 3, inputs));
}

uint32_t emit_concat(struct mapper *m, uint32_t n, const uint32_t *inputs, uint32_t axis)
{
    uint32_t node = emit_begin(m, IR_OP_CONCAT, n, inputs);
    emit_int(m, node, IR_ATTR_AXIS, axis);
    return emit_end(m, node);
}

uint32_t emit_slice(struct mapper *m, uint32_t x, uint32_t axis, int64_t start, int64_t end)
{
    int64_t starts[SHAPE_MAX_RANK] = {0}, ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    struct shape shape = *map_shape(m, x);
    for (uint32_t d = 0; d < shape.rank; d++) {
        ends[d] = shape.dim[d];
        steps[d] = 1;
    }
    starts[axis] = start;
    ends[axis] = end;
    uint32_t node = emit_begin(m, IR_OP_SLICE, 1, &x);
    emit_ints(m, node, IR_ATTR_STARTS, shape.rank, starts);
    emit_ints(m, node, IR_ATTR_ENDS, shape.rank, ends);
    emit_ints(m, node, IR_ATTR_STEPS, shape.rank, steps);
    return emit_end(m, node);
}

uint32_t emit_strided(struct mapper *m, uint32_t x, uint32_t axis, int64_t step)
{
    int64_t starts[SHAPE_MAX_RANK] = {0}, ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    struct shape shape = *map_shape(m, x);
    for (uint32_t d = 0; d < shape.rank; d++) {
        bool reverse = d == axis && step < 0;
        starts[d] = reverse ? shape.dim[d] - 1 : 0;
        ends[d] = reverse ? -1 : shape.dim[d];
        steps[d] = d == axis ? step : 1;
    }
    uint32_t node = emit_begin(m, IR_OP_SLICE, 1, &x);
    emit_ints(m, node, IR_ATTR_STARTS, shape.rank, starts);
    emit_ints(m, node, IR_ATTR_ENDS, shape.rank, ends);
    emit_ints(m, node, IR_ATTR_STEPS, shape.rank, steps);
    return emit_end(m, node);
}

uint32_t emit_gather(struct mapper *m, uint32_t x, uint32_t indices, uint32_t axis)
{
    uint32_t node = emit_begin(m, IR_OP_GATHER, 2, (const uint32_t[]){x, indices});
    emit_int(m, node, IR_ATTR_AXIS, axis);
    return emit_end(m, node);
}

/* --- constants --- */

void *emit_room(struct mapper *m, const struct shape *shape, enum dtype dtype)
{
    size_t bytes;
    void *room = NULL;
    if (map_failed(m))
        return NULL;
    if (shape_bytes(shape, dtype, &bytes) && bytes <= m->fold_budget)
        room = arena_alloc(m->graph->arena, bytes);
    else if (m->computes)
        map_spent(m);
    if (!room)
        map_exhausted(m);
    else
        m->fold_budget -= bytes;
    return room;
}

void *emit_brief_room(struct mapper *m, const struct shape *shape, enum dtype dtype)
{
    size_t bytes;
    if (map_failed(m) || !m->blocks || !shape_bytes(shape, dtype, &bytes) || bytes < BLOCKS_LEAST ||
        bytes > m->fold_budget)
        return emit_room(m, shape, dtype);
    void *room = blocks_take(m->blocks, bytes);
    if (!room)
        map_exhausted(m);
    else
        m->fold_budget -= bytes;
    return room;
}

uint32_t emit_constant(struct mapper *m, enum dtype dtype, const struct shape *shape,
                       const void *data)
{
    uint32_t tensor = map_failed(m) ? IR_NONE : ir_constant_add(m->graph, "", dtype, shape, data);
    if (tensor == IR_NONE)
        map_exhausted(m);
    return tensor;
}

void emit_number(void *room, enum dtype dtype, size_t index, double value)
{
    float f = (float)value;
    int64_t i = value >= -9.2e18 && value <= 9.2e18 ? (int64_t)value : 0;
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
    const void *from = &i;
    if (dtype == DTYPE_F32)
        from = &f;
    else if (dtype == DTYPE_F64)
        from = &value;
    else if (dtype == DTYPE_F16 || dtype == DTYPE_BF16)
        from = &half;
    memcpy((char *)room + index * dtype_size(dtype), from, dtype_size(dtype));
}

uint32_t emit_scalar(struct mapper *m, enum dtype dtype, double value)
{
    const struct shape scalar = {0};
    void *room = emit_room(m, &scalar, dtype);
    if (!room)
        return IR_NONE;
    emit_number(room, dtype, 0, value);
    return emit_constant(m, dtype, &scalar, room);
}

uint32_t emit_int_list(struct mapper *m, uint32_t n, const int64_t *values)
{
    const struct shape shape = {.rank = 1, .dim = {n}};
    void *room = emit_room(m, &shape, DTYPE_I64);
    if (!room)
        return IR_NONE;
    if (n)
        memcpy(room, values, n * sizeof(*values));
    return emit_constant(m, DTYPE_I64, &shape, room);
}
