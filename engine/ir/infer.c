/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type and shape inference: the table of ops, the checks that are the same for all of them, and the
 * readers of attributes that the rules use. Everything here may be fed from a damaged plan file:
 * no index, count or dimension is used before it was checked.
 */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BIT(key) (UINT64_C(1) << (key))

enum {
    MANY = IR_MAX_INPUTS,
    EPILOGUE = 1, /* the op's first output may carry an epilogue */
};

struct op_row {
    infer_rule rule;
    uint32_t min_in, max_in;
    uint32_t optional; /* bit i: input i may be absent */
    uint32_t min_out;
    uint32_t flags;
    uint64_t attrs; /* the keys it knows */
};

#define WINDOW (BIT(IR_ATTR_STRIDES) | BIT(IR_ATTR_PADS) | BIT(IR_ATTR_DILATIONS))

static const struct op_row rows[IR_OP_COUNT_] = {
    [IR_OP_CONV] = {infer_conv, 2, 3, 4, 1, EPILOGUE, WINDOW | BIT(IR_ATTR_GROUP)},
    [IR_OP_DECONV] = {infer_deconv, 2, 3, 4, 1, EPILOGUE,
                      WINDOW | BIT(IR_ATTR_GROUP) | BIT(IR_ATTR_OUTPUT_PADDING)},
    [IR_OP_MATMUL] = {infer_matmul, 2, 3, 4, 1, EPILOGUE,
                      BIT(IR_ATTR_TRANS_A) | BIT(IR_ATTR_TRANS_B) | BIT(IR_ATTR_ALPHA)},
    [IR_OP_POOL] = {infer_pool, 1, 1, 0, 1, EPILOGUE,
                    WINDOW | BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_KERNEL) |
                        BIT(IR_ATTR_COUNT_INCLUDE_PAD) | BIT(IR_ATTR_CEIL_MODE) |
                        BIT(IR_ATTR_ALPHA)},
    [IR_OP_REDUCE] = {infer_reduce, 1, 1, 0, 1, EPILOGUE,
                      BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_AXES) | BIT(IR_ATTR_KEEPDIMS)},
    [IR_OP_ARG_REDUCE] = {infer_arg_reduce, 1, 1, 0, 1, 0,
                          BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_KEEPDIMS) |
                              BIT(IR_ATTR_SELECT_LAST)},
    [IR_OP_SOFTMAX] = {infer_softmax, 1, 1, 0, 1, EPILOGUE, BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_LOG)},
    [IR_OP_BATCH_NORM] = {infer_batch_norm, 5, 5, 0, 1, EPILOGUE, BIT(IR_ATTR_EPSILON)},
    [IR_OP_LAYER_NORM] = {infer_layer_norm, 2, 3, 4, 1, EPILOGUE,
                          BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_EPSILON)},
    [IR_OP_INSTANCE_NORM] = {infer_instance_norm, 3, 3, 0, 1, EPILOGUE,
                             BIT(IR_ATTR_GROUP) | BIT(IR_ATTR_EPSILON)},
    [IR_OP_LRN] = {infer_lrn, 1, 1, 0, 1, EPILOGUE,
                   BIT(IR_ATTR_SIZE) | BIT(IR_ATTR_ALPHA) | BIT(IR_ATTR_BETA) | BIT(IR_ATTR_BIAS)},
    [IR_OP_UNARY] = {infer_unary, 1, 1, 0, 1, EPILOGUE,
                     BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_ALPHA) | BIT(IR_ATTR_BETA) |
                         BIT(IR_ATTR_GAMMA)},
    [IR_OP_BINARY] = {infer_binary, 2, 2, 0, 1, EPILOGUE, BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_ALPHA)},
    [IR_OP_SELECT] = {infer_select, 3, 3, 0, 1, EPILOGUE, 0},
    [IR_OP_CAST] = {infer_cast, 1, 1, 0, 1, EPILOGUE, BIT(IR_ATTR_TO)}, /* to floats only */
    [IR_OP_RESHAPE] = {infer_reshape, 1, 1, 0, 1, 0, BIT(IR_ATTR_SHAPE)},
    [IR_OP_TRANSPOSE] = {infer_transpose, 1, 1, 0, 1, 0, BIT(IR_ATTR_PERM)},
    [IR_OP_CONCAT] = {infer_concat, 1, MANY, 0, 1, 0, BIT(IR_ATTR_AXIS)},
    [IR_OP_SLICE] = {infer_slice, 1, 1, 0, 1, 0,
                     BIT(IR_ATTR_STARTS) | BIT(IR_ATTR_ENDS) | BIT(IR_ATTR_STEPS)},
    [IR_OP_PAD] = {infer_pad, 1, 1, 0, 1, 0,
                   BIT(IR_ATTR_PADS) | BIT(IR_ATTR_MODE) | BIT(IR_ATTR_VALUE)},
    [IR_OP_GATHER] = {infer_gather, 2, 2, 0, 1, 0, BIT(IR_ATTR_AXIS)},
    [IR_OP_EXPAND] = {infer_expand, 1, 1, 0, 1, 0, BIT(IR_ATTR_SHAPE)},
    [IR_OP_RESIZE] = {infer_resize, 1, 1, 0, 1, EPILOGUE,
                      BIT(IR_ATTR_SHAPE) | BIT(IR_ATTR_SCALES) | BIT(IR_ATTR_MODE) |
                          BIT(IR_ATTR_COORD) | BIT(IR_ATTR_NEAREST) | BIT(IR_ATTR_CUBIC_A) |
                          BIT(IR_ATTR_EXCLUDE_OUTSIDE) | BIT(IR_ATTR_VALUE) | BIT(IR_ATTR_ROI) |
                          BIT(IR_ATTR_ANTIALIAS)},
    [IR_OP_TILE] = {infer_tile, 1, 1, 0, 1, 0, BIT(IR_ATTR_REPEATS)},
    [IR_OP_CUMSUM] = {infer_cumsum, 1, 1, 0, 1, 0,
                      BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_EXCLUSIVE) | BIT(IR_ATTR_REVERSE)},
    [IR_OP_TOPK] = {infer_topk, 1, 1, 0, 2, 0,
                    BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_K) | BIT(IR_ATTR_LARGEST) |
                        BIT(IR_ATTR_SORTED)},
    [IR_OP_GATHER_ELEMENTS] = {infer_gather_elements, 2, 2, 0, 1, 0, BIT(IR_ATTR_AXIS)},
    [IR_OP_GATHER_ND] = {infer_gather_nd, 2, 2, 0, 1, 0, BIT(IR_ATTR_BATCH_DIMS)},
    [IR_OP_SCATTER_ELEMENTS] = {infer_scatter_elements, 3, 3, 0, 1, 0,
                                BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_FUNC)},
    [IR_OP_SCATTER_ND] = {infer_scatter_nd, 3, 3, 0, 1, 0, BIT(IR_ATTR_FUNC)},
    [IR_OP_ONE_HOT] = {infer_one_hot, 2, 2, 0, 1, 0, BIT(IR_ATTR_AXIS) | BIT(IR_ATTR_DEPTH)},
    [IR_OP_TRILU] = {infer_trilu, 1, 1, 0, 1, 0, BIT(IR_ATTR_UPPER) | BIT(IR_ATTR_K)},
    [IR_OP_REFORMAT] = {infer_reformat, 1, 1, 0, 1, 0, 0},
    [IR_OP_ATTENTION] = {infer_attention, 1, 4, 2 | 4 | 8, 1, 0,
                         BIT(IR_ATTR_HEADS) | BIT(IR_ATTR_ALPHA) | BIT(IR_ATTR_PACKED)},
    [IR_OP_RECURRENT] = {infer_recurrent, 2, 7, 4 | 8 | 16 | 32 | 64, 2, 0,
                         BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_FUNCS) | BIT(IR_ATTR_ALPHAS) |
                             BIT(IR_ATTR_BETAS) | BIT(IR_ATTR_REVERSE) | BIT(IR_ATTR_CLIP) |
                             BIT(IR_ATTR_LINEAR) | BIT(IR_ATTR_COUPLED)},
    [IR_OP_SAMPLE] = {infer_sample, 2, 2, 0, 1, 0,
                      BIT(IR_ATTR_MODE) | BIT(IR_ATTR_BORDER) | BIT(IR_ATTR_COORD)},
    [IR_OP_ROI_POOL] = {infer_roi_pool, 3, 3, 0, 1, 0,
                        BIT(IR_ATTR_SHAPE) | BIT(IR_ATTR_FUNC) | BIT(IR_ATTR_ALPHA) |
                            BIT(IR_ATTR_SIZE) | BIT(IR_ATTR_COORD)},
    [IR_OP_NMS] = {infer_nms, 2, 2, 0, 1, 0,
                   BIT(IR_ATTR_K) | BIT(IR_ATTR_ALPHA) | BIT(IR_ATTR_BETA) | BIT(IR_ATTR_MODE)},
    [IR_OP_DET] = {infer_det, 1, 1, 0, 1, 0, 0},
};

/* Keys whose values are floats, and keys that have a list of values: the others have one integer.
 */
static const uint64_t float_keys = BIT(IR_ATTR_ALPHA) | BIT(IR_ATTR_BETA) | BIT(IR_ATTR_GAMMA) |
                                   BIT(IR_ATTR_EPSILON) | BIT(IR_ATTR_BIAS) | BIT(IR_ATTR_VALUE) |
                                   BIT(IR_ATTR_SCALES) | BIT(IR_ATTR_CUBIC_A) | BIT(IR_ATTR_ROI) |
                                   BIT(IR_ATTR_ALPHAS) | BIT(IR_ATTR_BETAS) | BIT(IR_ATTR_CLIP);
static const uint64_t list_keys =
    BIT(IR_ATTR_AXES) | BIT(IR_ATTR_KERNEL) | BIT(IR_ATTR_STRIDES) | BIT(IR_ATTR_PADS) |
    BIT(IR_ATTR_DILATIONS) | BIT(IR_ATTR_OUTPUT_PADDING) | BIT(IR_ATTR_SHAPE) | BIT(IR_ATTR_PERM) |
    BIT(IR_ATTR_STARTS) | BIT(IR_ATTR_ENDS) | BIT(IR_ATTR_STEPS) | BIT(IR_ATTR_REPEATS) |
    BIT(IR_ATTR_SCALES) | BIT(IR_ATTR_ROI) | BIT(IR_ATTR_FUNCS) | BIT(IR_ATTR_ALPHAS) |
    BIT(IR_ATTR_BETAS);

bool ir_op_has_epilogue(enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ && (rows[op].flags & EPILOGUE);
}

uint32_t ir_op_min_outputs(enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ ? rows[op].min_out : 0;
}

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

enum status infer_ints(const struct infer *in, enum ir_attr_key key, uint32_t count, int64_t lo,
                       int64_t hi, int64_t fallback, int64_t *out)
{
    const struct ir_attr *attr = ir_attr(in->node, key);
    if (!attr) {
        for (uint32_t i = 0; i < count; i++)
            out[i] = fallback;
        return STATUS_OK;
    }
    if (attr->count != count)
        return infer_fail(in, "attribute %s has %u values, not %u", ir_attr_name(key), attr->count,
                          count);
    for (uint32_t i = 0; i < count; i++) {
        if (attr->i[i] < lo || attr->i[i] > hi)
            return infer_fail(in,
                              "attribute %s[%u] is %" PRId64 ", not within %" PRId64 "..%" PRId64,
                              ir_attr_name(key), i, attr->i[i], lo, hi);
        out[i] = attr->i[i];
    }
    return STATUS_OK;
}

enum status infer_ints_needed(const struct infer *in, enum ir_attr_key key, uint32_t count,
                              int64_t lo, int64_t hi, int64_t *out)
{
    if (!ir_attr(in->node, key))
        return infer_fail(in, "attribute %s is missing", ir_attr_name(key));
    return infer_ints(in, key, count, lo, hi, 0, out);
}

enum status infer_int(const struct infer *in, enum ir_attr_key key, int64_t lo, int64_t hi,
                      int64_t fallback, int64_t *out)
{
    return infer_ints(in, key, 1, lo, hi, fallback, out);
}

enum status infer_int_needed(const struct infer *in, enum ir_attr_key key, int64_t lo, int64_t hi,
                             int64_t *out)
{
    return infer_ints_needed(in, key, 1, lo, hi, out);
}

static bool class_has(enum infer_class wanted, enum dtype dtype)
{
    switch (wanted) {
    case CLASS_ANY:
        return true;
    case CLASS_NUMBER:
        return dtype != DTYPE_BOOL;
    case CLASS_FLOAT:
        return dtype_is_float(dtype);
    case CLASS_INTEGER:
        return dtype != DTYPE_BOOL && !dtype_is_float(dtype);
    case CLASS_BOOL:
        return dtype == DTYPE_BOOL;
    case CLASS_INDEX:
        return dtype == DTYPE_I32 || dtype == DTYPE_I64;
    }
    return false;
}

enum status infer_class(const struct infer *in, uint32_t input, enum infer_class wanted)
{
    static const char *const names[] = {
        [CLASS_ANY] = "anything",  [CLASS_NUMBER] = "a number",
        [CLASS_FLOAT] = "a float", [CLASS_INTEGER] = "an integer",
        [CLASS_BOOL] = "BOOL",     [CLASS_INDEX] = "INT32 or INT64",
    };
    const struct ir_tensor *t = infer_input(in, input);
    if (!t || class_has(wanted, ir_tensor_type(t)))
        return STATUS_OK;
    return infer_fail(in, "input %u is %s, not %s", input, dtype_name(ir_tensor_type(t)),
                      names[wanted]);
}

enum status infer_same_dtype(const struct infer *in, uint32_t first)
{
    enum dtype dtype = ir_tensor_type(infer_input(in, 0));
    for (uint32_t i = first; i < in->n_inputs; i++) {
        const struct ir_tensor *t = infer_input(in, i);
        if (t && ir_tensor_type(t) != dtype)
            return infer_fail(in, "input %u is %s, not %s as the first one", i,
                              dtype_name(ir_tensor_type(t)), dtype_name(dtype));
    }
    return STATUS_OK;
}

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

enum status infer_product(const struct infer *in, enum infer_class of, enum dtype *sums)
{
    const struct ir_tensor *bias = in->n_inputs > 2 ? infer_input(in, 2) : NULL;
    *sums = ir_tensor_type(infer_input(in, 0));
    if (is_byte(*sums) && is_byte(ir_tensor_type(infer_input(in, 1)))) {
        *sums = DTYPE_I32;
        return !bias || bias->dtype == DTYPE_I32
                   ? STATUS_OK
                   : infer_fail(in, "input 2 is %s, not INT32", dtype_name(bias->dtype));
    }
    TRY(infer_class(in, 0, of));
    return infer_same_dtype(in, 1);
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

static enum status check_inputs(const struct infer *in, const struct op_row *row)
{
    const struct ir_node *node = in->node;
    if (node->n_inputs > IR_MAX_INPUTS || in->n_inputs < row->min_in || in->n_inputs > row->max_in)
        return infer_fail(in, "has %u inputs, not %u to %u", in->n_inputs, row->min_in,
                          row->max_in);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint64_t bytes;
        uint32_t id = node->inputs[i];
        if (id == IR_NONE) {
            if (i < 32 && i < in->n_inputs && (row->optional >> i & 1))
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

static enum status check_attrs(const struct infer *in, const struct op_row *row)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < in->node->n_attrs; i++) {
        const struct ir_attr *attr = &in->node->attrs[i];
        if ((uint32_t)attr->key >= IR_ATTR_COUNT_ || !(row->attrs & BIT(attr->key)))
            return infer_fail(in, "has no attribute %s (%u)", ir_attr_name(attr->key),
                              (unsigned)attr->key);
        if (seen & BIT(attr->key))
            return infer_fail(in, "has attribute %s twice", ir_attr_name(attr->key));
        seen |= BIT(attr->key);
        if (attr->is_float != !!(float_keys & BIT(attr->key)))
            return infer_fail(in, "attribute %s is of the wrong kind", ir_attr_name(attr->key));
        if (!(list_keys & BIT(attr->key)) && attr->count != 1)
            return infer_fail(in, "attribute %s has %u values, not 1", ir_attr_name(attr->key),
                              attr->count);
        if (attr->count && !attr->i)
            return infer_fail(in, "attribute %s has no values", ir_attr_name(attr->key));
    }
    return STATUS_OK;
}

enum status ir_infer_node(const struct ir_graph *graph, const struct ir_node *node,
                          struct ir_type out[IR_MAX_OUTPUTS], uint32_t *n_out, struct error *err)
{
    struct infer in = {graph, node, ir_node_own_inputs(node), err};
    if ((uint32_t)node->op >= IR_OP_COUNT_ || !rows[node->op].rule)
        return infer_fail(&in, "no such op: %u", (unsigned)node->op);
    const struct op_row *row = &rows[node->op];
    TRY(check_inputs(&in, row));
    TRY(check_attrs(&in, row));

    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(row->rule(&in, types, &n));
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
    uint32_t wanted = MAX(n_names, ir_op_min_outputs(in.node->op));
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
