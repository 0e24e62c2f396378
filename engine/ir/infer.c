/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type and shape inference: the checks that all ops share, which follow their rows, and helpers of
 * the rules. A damaged plan file may come here, so no index, count or dimension is used before it
 * is checked.
 */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <stdio.h>

#define BIT(key) (UINT64_C(1) << (key))

static const infer_rule rules[IR_OP_COUNT_] = {
#define OP(NAME, number, name, ...) [IR_OP_##NAME] = infer_##name,
#include "engine/ir/ops.def"
};

const struct ir_tensor *infer_input(const struct infer *in, uint32_t i)
{
    if (i >= in->n_inputs || in->node->inputs[i] == IR_NONE)
        return NULL;
    return ir_tensor(in->graph, in->node->inputs[i]);
}

enum status infer_fail(const struct infer *in, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(in->err, STATUS_INVALID_ARGUMENT, fmt, args);
    va_end(args);
    if (in->err)
        error_prefix(in->err, "%s \"%s\"", ir_op_name(in->node->op), in->node->name);
    return STATUS_INVALID_ARGUMENT;
}

int64_t infer_int(const struct infer *in, enum ir_attr_key key)
{
    return ir_attr_int(in->node, key);
}

enum status infer_ints(const struct infer *in, enum ir_attr_key key, uint32_t count, int64_t *out)
{
    const struct ir_attr *attr = ir_attr(in->node, key);
    if (attr && attr->count != count)
        return infer_fail(in, "attribute %s has %u values, not %u", ir_attr_name(key), attr->count,
                          count);
    for (uint32_t i = 0; i < count; i++)
        out[i] = attr ? attr->i[i] : (int64_t)ir_op_attr(in->node->op, key)->fallback;
    return STATUS_OK;
}

static bool class_has(enum ir_class wanted, enum dtype dtype)
{
    switch (wanted) {
    case IR_CLASS_NUMBER:
        return dtype != DTYPE_BOOL && dtype != DTYPE_F8;
    case IR_CLASS_FLOAT:
        return dtype_is_float(dtype);
    case IR_CLASS_INTEGER:
        return dtype != DTYPE_BOOL && dtype != DTYPE_F8 && !dtype_is_float(dtype);
    case IR_CLASS_BOOL:
        return dtype == DTYPE_BOOL;
    case IR_CLASS_INDEX:
        return dtype == DTYPE_I32 || dtype == DTYPE_I64;
    default:
        return true;
    }
}

enum status infer_class(const struct infer *in, uint32_t input, enum ir_class wanted)
{
    enum dtype have = ir_tensor_type(infer_input(in, input)),
               first = ir_tensor_type(infer_input(in, 0));
    if (wanted == IR_CLASS_LIKE && have != first)
        return infer_fail(in, "input %u is %s, not %s as the first one", input, dtype_name(have),
                          dtype_name(first));
    if (class_has(wanted, have))
        return STATUS_OK;
    return infer_fail(in, "input %u is %s, not %s", input, dtype_name(have), ir_class_name(wanted));
}

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

enum dtype infer_sums(const struct infer *in)
{
    enum dtype dtype = ir_tensor_type(infer_input(in, 0));
    return is_byte(dtype) && is_byte(ir_tensor_type(infer_input(in, 1))) ? DTYPE_I32 : dtype;
}

enum status infer_vector(const struct infer *in, uint32_t input, int64_t length)
{
    const struct ir_tensor *t = infer_input(in, input);
    char text[SHAPE_TEXT_MAX];
    if (!t || (t->shape.rank == 1 && t->shape.dim[0] == length))
        return STATUS_OK;
    return infer_fail(in, "input %u is %s, not [%" PRId64 "]", input, shape_format(&t->shape, text),
                      length);
}

void infer_like_first(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *t = infer_input(in, 0);
    out[0] = (struct ir_type){ir_tensor_type(t), t->shape};
    *n_out = 1;
}

static enum status check_count(const struct infer *in, const struct ir_op_row *row)
{
    uint32_t least = 0, most = 0;
    for (uint32_t i = 0; row->operands[i].name; i++) {
        most = row->operands[i].flags & IR_OPERAND_MANY ? IR_MAX_INPUTS : most + 1;
        least = row->operands[i].flags & IR_OPERAND_OPTIONAL ? least : i + 1;
    }
    if (in->node->n_inputs > IR_MAX_INPUTS || in->n_inputs < least || in->n_inputs > most)
        return infer_fail(in, "has %u inputs, not %u to %u", in->n_inputs, least, most);
    return STATUS_OK;
}

/* The row of the op's own input i; NULL for an input of the epilogue. */
static const struct ir_operand *operand_of(const struct infer *in, const struct ir_op_row *row,
                                           uint32_t i)
{
    if (i >= in->n_inputs)
        return NULL;
    return &row->operands[row->operands[0].flags & IR_OPERAND_MANY ? 0 : i];
}

static enum status check_inputs(const struct infer *in, const struct ir_op_row *row)
{
    const struct ir_node *node = in->node;
    TRY(check_count(in, row));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint64_t bytes;
        uint32_t id = node->inputs[i];
        const struct ir_operand *operand = operand_of(in, row, i);
        if (id == IR_NONE) {
            if (operand && operand->flags & IR_OPERAND_OPTIONAL)
                continue;
            return infer_fail(in, "input %u is missing", i);
        }
        if (id >= in->graph->n_tensors)
            return infer_fail(in, "input %u is tensor %u of %u", i, id, in->graph->n_tensors);
        const struct ir_tensor *t = ir_tensor(in->graph, id);
        if (!ir_layout_bytes(&t->shape, t->dtype, IR_LAYOUT_PLAIN, &bytes))
            return infer_fail(in, "input %u has no valid type and shape", i);
    }
    return STATUS_OK;
}

/* Checks the classes of the inputs' types. Two 8-bit operands have no class; a bias then has the
 * type of the sums. */
static enum status check_classes(const struct infer *in, const struct ir_op_row *row)
{
    const struct ir_tensor *bias = infer_input(in, 2);
    bool bytes =
        row->traits & IR_TRAIT_BYTES && infer_sums(in) != ir_tensor_type(infer_input(in, 0));
    if (bytes && bias && ir_tensor_type(bias) != DTYPE_I32)
        return infer_fail(in, "input 2 is %s, not INT32", dtype_name(ir_tensor_type(bias)));
    for (uint32_t i = 0; i < in->n_inputs && !bytes; i++)
        if (infer_input(in, i))
            TRY(infer_class(in, i, operand_of(in, row, i)->class));
    return STATUS_OK;
}

static enum status check_range(const struct infer *in, const struct ir_op_attr *of,
                               const struct ir_attr *attr)
{
    int64_t hi = of->flags & IR_OP_ATTR_DIM ? (int64_t)infer_input(in, 0)->shape.rank - 1 : of->hi;
    for (uint32_t i = 0; i < attr->count; i++)
        if (attr->i[i] < of->lo || attr->i[i] > hi)
            return infer_fail(in,
                              "attribute %s[%u] is %" PRId64 ", not within %" PRId64 "..%" PRId64,
                              ir_attr_name(attr->key), i, attr->i[i], of->lo, hi);
    return STATUS_OK;
}

static enum status check_attr(const struct infer *in, const struct ir_attr *attr)
{
    const struct ir_attr_row *row = ir_attr_row(attr->key);
    const struct ir_op_attr *of = ir_op_attr(in->node->op, attr->key);
    if (!of)
        return infer_fail(in, "has no attribute %s (%u)", row->name, (unsigned)attr->key);
    if (attr->is_float != row->is_float)
        return infer_fail(in, "attribute %s is of the wrong kind", row->name);
    if (!row->is_list && attr->count != 1)
        return infer_fail(in, "attribute %s has %u values, not 1", row->name, attr->count);
    if (attr->count && !attr->i)
        return infer_fail(in, "attribute %s has no values", row->name);
    return attr->is_float ? STATUS_OK : check_range(in, of, attr);
}

static enum status check_attrs(const struct infer *in, const struct ir_op_row *row)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < in->node->n_attrs; i++) {
        const struct ir_attr *attr = &in->node->attrs[i];
        TRY(check_attr(in, attr));
        if (seen & BIT(attr->key))
            return infer_fail(in, "has attribute %s twice", ir_attr_name(attr->key));
        seen |= BIT(attr->key);
    }
    for (const struct ir_op_attr *of = row->attrs; of->key; of++)
        if (of->flags & IR_OP_ATTR_NEEDED && !(seen & BIT(of->key)))
            return infer_fail(in, "attribute %s is missing", ir_attr_name(of->key));
    return STATUS_OK;
}

enum status ir_infer_node(const struct ir_graph *graph, const struct ir_node *node,
                          struct ir_type out[IR_MAX_OUTPUTS], uint32_t *n_out, struct error *err)
{
    struct infer in = {graph, node, ir_node_own_inputs(node), err};
    if ((uint32_t)node->op >= IR_OP_COUNT_ || !rules[node->op])
        return infer_fail(&in, "no such op: %u", (unsigned)node->op);
    const struct ir_op_row *row = ir_op_row(node->op);
    TRY(check_inputs(&in, row));
    TRY(check_classes(&in, row));
    TRY(check_attrs(&in, row));

    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(rules[node->op](&in, types, &n));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes;
        char text[SHAPE_TEXT_MAX];
        if (!ir_layout_bytes(&types[i].shape, types[i].dtype, IR_LAYOUT_PLAIN, &bytes))
            return infer_fail(&in, "output %u would be %s %s, which is too large", i,
                              dtype_name(types[i].dtype), shape_format(&types[i].shape, text));
        out[i] = types[i];
    }
    *n_out = n;
    return STATUS_OK;
}

static enum status check_output(const struct infer *in, uint32_t i, const struct ir_type *type)
{
    const struct ir_tensor *t = ir_tensor(in->graph, in->node->outputs[i]);
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (ir_tensor_type(t) == type->dtype && shape_equal(&t->shape, &type->shape))
        return STATUS_OK;
    return infer_fail(in, "output %u is %s %s, not %s %s", i, dtype_name(ir_tensor_type(t)),
                      shape_format(&t->shape, have), dtype_name(type->dtype),
                      shape_format(&type->shape, want));
}

enum status ir_infer_apply(struct ir_graph *graph, uint32_t node, const char *const *names,
                           uint32_t n_names, struct error *err)
{
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(ir_infer_node(graph, ir_node(graph, node), types, &n, err));
    struct infer in = {graph, ir_node(graph, node), 0, err};
    uint32_t wanted = MAX(n_names, ir_op_row(in.node->op)->min_out);
    if (wanted > n)
        return infer_fail(&in, "has at most %u outputs, not %u", n, wanted);
    for (uint32_t i = 0; i < wanted; i++) {
        if (i < in.node->n_outputs) {
            TRY(check_output(&in, i, &types[i]));
            continue;
        }
        const char *name = i < n_names ? names[i] : NULL;
        if (ir_node_output_add(graph, node, name, types[i].dtype, &types[i].shape) == IR_NONE)
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "graph has too many tensors");
    }
    return STATUS_OK;
}
