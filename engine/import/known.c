/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are known when the plan is built: what mapping functions read of operands, and what
 * they take from inputs that the caller gave values. */
#include <string.h>

#include "engine/import/map.h"
#include "engine/import/value.h"

double map_element(const struct ir_tensor *tensor, size_t i)
{
    const uint8_t *at = (const uint8_t *)tensor->data + i * dtype_size(tensor->dtype);
    union {
        float f;
        double d;
        uint16_t h;
    } u;
    switch (tensor->dtype) {
    case DTYPE_F32:
        memcpy(&u.f, at, sizeof(u.f));
        return u.f;
    case DTYPE_F64:
        memcpy(&u.d, at, sizeof(u.d));
        return u.d;
    case DTYPE_F8:
        return f8_to_f32(*at);
    case DTYPE_F16:
        memcpy(&u.h, at, sizeof(u.h));
        return f16_to_f32(u.h);
    case DTYPE_BF16:
        memcpy(&u.h, at, sizeof(u.h));
        return bf16_to_f32(u.h);
    case DTYPE_U64:
        return (double)(uint64_t)map_element_int(tensor, i);
    default:
        return (double)map_element_int(tensor, i);
    }
}

int64_t map_element_int(const struct ir_tensor *tensor, size_t i)
{
    size_t size = dtype_size(tensor->dtype);
    const uint8_t *at = (const uint8_t *)tensor->data + i * size;
    uint64_t bits = 0;
    memcpy(&bits, at, size);
    if (dtype_is_signed(tensor->dtype) && size < 8 && bits >> (size * 8 - 1))
        bits |= UINT64_MAX << (size * 8);
    return (int64_t)bits;
}

static bool bind_input(struct mapper *m, uint32_t tensor)
{
    for (uint32_t i = 0; i < m->graph->n_inputs; i++) {
        if (m->graph->inputs[i] != tensor || m->bound[i] == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(m->graph, tensor);
        void *copy = emit_room(m, &t->shape, t->dtype);
        if (!copy)
            return false;
        memcpy(copy, m->options->values[m->bound[i]].view.data, t->bytes);
        ir_tensor(m->graph, tensor)->data = copy;
        m->taken[i] = true;
        return true;
    }
    return false;
}

/* Makes an input a constant; the caller fills what comes back. NULL: the import has failed. */
static void *fix_input(struct mapper *m, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    void *data = map_failed(m) ? NULL : emit_room(m, &t->shape, t->dtype);
    for (uint32_t i = 0; data && i < m->graph->n_inputs; i++)
        if (m->graph->inputs[i] == tensor)
            m->taken[i] = true;
    return data;
}

void map_bind_text(struct mapper *m, uint32_t tensor, const char *text)
{
    void *data = fix_input(m, tensor);
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    size_t n = 0;
    if (!data || !shape_elements(&t->shape, &n))
        return;
    if (value_fill(text, t->dtype, n, data))
        ir_tensor(m->graph, tensor)->data = data;
    else
        map_invalid(m, "--value %s=%.64s: expected one %s, or %zu with commas between", t->name,
                    text, dtype_name(t->dtype), n);
}

/* Follows the operands back to bound inputs, whose values become constants of the graph, and
 * evaluates the nodes behind them. Anything else that can be evaluated was so when it was emitted.
 * The depth is bounded because the file chooses it. */
static bool make_known(struct mapper *m, uint32_t tensor, uint32_t depth)
{
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (ir_tensor_is_constant(t))
        return true;
    if (t->producer == IR_NONE)
        return bind_input(m, tensor);
    uint32_t producer = t->producer;
    const struct ir_node *node = ir_node(m->graph, producer);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t input = node->inputs[i];
        if (input != IR_NONE && (!depth || !make_known(m, input, depth - 1)))
            return false;
    }
    emit_fold(m, producer, true);
    return !map_failed(m) && ir_tensor_is_constant(ir_tensor(m->graph, tensor));
}

enum { KNOWN_DEPTH = 32, KNOWN_STEPS = 4096 };

/* Says whether make_known would succeed, and changes nothing. The walk marks no tensor as seen, so
 * `steps` bounds its cost where operands are shared many times over. */
static bool can_make_known(const struct mapper *m, uint32_t tensor, uint32_t depth, uint32_t *steps)
{
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (ir_tensor_is_constant(t))
        return true;
    if (t->producer == IR_NONE) {
        for (uint32_t i = 0; i < m->graph->n_inputs; i++) {
            if (m->graph->inputs[i] == tensor)
                return m->bound[i] != IR_NONE;
        }
        return false;
    }
    const struct ir_node *node = ir_node(m->graph, t->producer);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        if (!depth || !*steps || !(--*steps, can_make_known(m, node->inputs[i], depth - 1, steps)))
            return false;
    }
    return m->options->evaluator.eval != NULL;
}

bool map_can_make_known(const struct mapper *m, uint32_t tensor)
{
    uint32_t steps = KNOWN_STEPS;
    return !map_failed(m) && tensor != IR_NONE && can_make_known(m, tensor, KNOWN_DEPTH, &steps);
}

bool map_make_known(struct mapper *m, uint32_t tensor)
{
    return !map_failed(m) && tensor != IR_NONE && make_known(m, tensor, KNOWN_DEPTH);
}

const struct ir_tensor *map_known(struct mapper *m, uint32_t tensor)
{
    if (map_make_known(m, tensor))
        return ir_tensor(m->graph, tensor);
    if (map_failed(m) || tensor == IR_NONE)
        return NULL;
    map_unknown(m, "'%s' must be known when the plan is built, and is computed from an input",
                ir_tensor(m->graph, tensor)->name);
    return NULL;
}

bool map_known_ints(struct mapper *m, uint32_t tensor, struct ints *out)
{
    const struct ir_tensor *t = map_known(m, tensor);
    size_t n = 0;
    out->n = 0;
    if (!t)
        return false;
    if (t->dtype != DTYPE_I64 && t->dtype != DTYPE_I32)
        map_invalid(m, "'%s' is %s, expected INT64", t->name, dtype_name(t->dtype));
    else if (!shape_elements(&t->shape, &n) || n > MAP_MAX_INTS)
        map_refuse(m, "'%s' has more than %d values", t->name, MAP_MAX_INTS);
    if (map_failed(m))
        return false;
    out->n = (uint32_t)n;
    for (uint32_t i = 0; i < out->n; i++)
        out->v[i] = map_element_int(t, i);
    return true;
}

double map_known_number(struct mapper *m, uint32_t tensor)
{
    const struct ir_tensor *t = map_known(m, tensor);
    size_t n;
    if (!t)
        return 0;
    if (!shape_elements(&t->shape, &n) || n != 1) {
        map_invalid(m, "'%s' has %zu elements, expected one", t->name, n);
        return 0;
    }
    return map_element(t, 0);
}

int64_t map_known_int(struct mapper *m, uint32_t tensor)
{
    double value = map_known_number(m, tensor);
    if (map_failed(m))
        return 0;
    if (!dtype_is_float(map_dtype(m, tensor)))
        return map_element_int(ir_tensor(m->graph, tensor), 0);
    if (value > -9e15 && value < 9e15 && value == (double)(int64_t)value)
        return (int64_t)value;
    map_invalid(m, "'%s' is not a whole number", ir_tensor(m->graph, tensor)->name);
    return 0;
}

bool map_ints(struct mapper *m, uint32_t i, const char *name, struct ints *out)
{
    uint32_t tensor = map_in_opt(m, i);
    out->n = 0;
    if (tensor != IR_NONE)
        return map_known_ints(m, tensor, out);
    return !map_failed(m) && map_attr_ints(m, name, out);
}

uint32_t map_axis(struct mapper *m, int64_t axis, uint32_t rank)
{
    if (axis >= -(int64_t)rank && axis < (int64_t)rank)
        return (uint32_t)(axis < 0 ? axis + rank : axis);
    map_invalid(m, "axis %lld is outside a tensor of rank %u", (long long)axis, rank);
    return 0;
}

void map_axes(struct mapper *m, struct ints *axes, uint32_t rank)
{
    bool there[SHAPE_MAX_RANK] = {false};
    for (uint32_t i = 0; i < axes->n && !map_failed(m); i++) {
        uint32_t axis = map_axis(m, axes->v[i], rank);
        if (there[axis])
            map_invalid(m, "axis %u is given twice", axis);
        there[axis] = true;
    }
    axes->n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        if (there[d])
            axes->v[axes->n++] = d;
    }
}
