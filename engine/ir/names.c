/* SPDX-License-Identifier: Apache-2.0 */
/* The words for ops, attributes and functions: what people read in logs, plans and tests. */
#include "engine/ir/op.h"

#include <stddef.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"

static const char *const op_names[IR_OP_COUNT_] = {
    [IR_OP_NONE] = "none",
    [IR_OP_CONV] = "conv",
    [IR_OP_DECONV] = "deconv",
    [IR_OP_MATMUL] = "matmul",
    [IR_OP_POOL] = "pool",
    [IR_OP_REDUCE] = "reduce",
    [IR_OP_ARG_REDUCE] = "arg_reduce",
    [IR_OP_SOFTMAX] = "softmax",
    [IR_OP_BATCH_NORM] = "batch_norm",
    [IR_OP_LAYER_NORM] = "layer_norm",
    [IR_OP_INSTANCE_NORM] = "instance_norm",
    [IR_OP_LRN] = "lrn",
    [IR_OP_UNARY] = "unary",
    [IR_OP_BINARY] = "binary",
    [IR_OP_SELECT] = "select",
    [IR_OP_CAST] = "cast",
    [IR_OP_RESHAPE] = "reshape",
    [IR_OP_TRANSPOSE] = "transpose",
    [IR_OP_CONCAT] = "concat",
    [IR_OP_SLICE] = "slice",
    [IR_OP_PAD] = "pad",
    [IR_OP_GATHER] = "gather",
    [IR_OP_EXPAND] = "expand",
    [IR_OP_RESIZE] = "resize",
    [IR_OP_TILE] = "tile",
    [IR_OP_CUMSUM] = "cumsum",
    [IR_OP_TOPK] = "topk",
    [IR_OP_GATHER_ELEMENTS] = "gather_elements",
    [IR_OP_GATHER_ND] = "gather_nd",
    [IR_OP_SCATTER_ELEMENTS] = "scatter_elements",
    [IR_OP_SCATTER_ND] = "scatter_nd",
    [IR_OP_ONE_HOT] = "one_hot",
    [IR_OP_TRILU] = "trilu",
    [IR_OP_REFORMAT] = "reformat",
    [IR_OP_ATTENTION] = "attention",
    [IR_OP_RECURRENT] = "recurrent",
    [IR_OP_SAMPLE] = "sample",
    [IR_OP_ROI_POOL] = "roi_pool",
    [IR_OP_NMS] = "nms",
    [IR_OP_DET] = "det",
};

static const char *const attr_names[IR_ATTR_COUNT_] = {
    [IR_ATTR_FUNC] = "func",
    [IR_ATTR_AXIS] = "axis",
    [IR_ATTR_AXES] = "axes",
    [IR_ATTR_KEEPDIMS] = "keepdims",
    [IR_ATTR_KERNEL] = "kernel",
    [IR_ATTR_STRIDES] = "strides",
    [IR_ATTR_PADS] = "pads",
    [IR_ATTR_DILATIONS] = "dilations",
    [IR_ATTR_GROUP] = "group",
    [IR_ATTR_OUTPUT_PADDING] = "output_padding",
    [IR_ATTR_TRANS_A] = "trans_a",
    [IR_ATTR_TRANS_B] = "trans_b",
    [IR_ATTR_COUNT_INCLUDE_PAD] = "count_include_pad",
    [IR_ATTR_CEIL_MODE] = "ceil_mode",
    [IR_ATTR_SELECT_LAST] = "select_last",
    [IR_ATTR_LOG] = "log",
    [IR_ATTR_TO] = "to",
    [IR_ATTR_SHAPE] = "shape",
    [IR_ATTR_PERM] = "perm",
    [IR_ATTR_STARTS] = "starts",
    [IR_ATTR_ENDS] = "ends",
    [IR_ATTR_STEPS] = "steps",
    [IR_ATTR_MODE] = "mode",
    [IR_ATTR_COORD] = "coord",
    [IR_ATTR_NEAREST] = "nearest",
    [IR_ATTR_EXCLUDE_OUTSIDE] = "exclude_outside",
    [IR_ATTR_REPEATS] = "repeats",
    [IR_ATTR_EXCLUSIVE] = "exclusive",
    [IR_ATTR_REVERSE] = "reverse",
    [IR_ATTR_K] = "k",
    [IR_ATTR_LARGEST] = "largest",
    [IR_ATTR_SORTED] = "sorted",
    [IR_ATTR_BATCH_DIMS] = "batch_dims",
    [IR_ATTR_DEPTH] = "depth",
    [IR_ATTR_UPPER] = "upper",
    [IR_ATTR_SIZE] = "size",
    [IR_ATTR_ALPHA] = "alpha",
    [IR_ATTR_BETA] = "beta",
    [IR_ATTR_GAMMA] = "gamma",
    [IR_ATTR_EPSILON] = "epsilon",
    [IR_ATTR_BIAS] = "bias",
    [IR_ATTR_VALUE] = "value",
    [IR_ATTR_SCALES] = "scales",
    [IR_ATTR_CUBIC_A] = "cubic_a",
    [IR_ATTR_ROI] = "roi",
    [IR_ATTR_HEADS] = "heads",
    [IR_ATTR_PACKED] = "packed",
    [IR_ATTR_FUNCS] = "funcs",
    [IR_ATTR_ALPHAS] = "alphas",
    [IR_ATTR_BETAS] = "betas",
    [IR_ATTR_CLIP] = "clip",
    [IR_ATTR_LINEAR] = "linear",
    [IR_ATTR_COUPLED] = "coupled",
    [IR_ATTR_BORDER] = "border",
    [IR_ATTR_ANTIALIAS] = "antialias",
};

static const char *const unary_names[IR_UNARY_COUNT_] = {
    [IR_UNARY_IDENTITY] = "identity",
    [IR_UNARY_RELU] = "relu",
    [IR_UNARY_LEAKY_RELU] = "leaky_relu",
    [IR_UNARY_ELU] = "elu",
    [IR_UNARY_SELU] = "selu",
    [IR_UNARY_CELU] = "celu",
    [IR_UNARY_SIGMOID] = "sigmoid",
    [IR_UNARY_HARD_SIGMOID] = "hard_sigmoid",
    [IR_UNARY_HARD_SWISH] = "hard_swish",
    [IR_UNARY_SWISH] = "swish",
    [IR_UNARY_TANH] = "tanh",
    [IR_UNARY_SOFTPLUS] = "softplus",
    [IR_UNARY_SOFTSIGN] = "softsign",
    [IR_UNARY_THRESHOLDED_RELU] = "thresholded_relu",
    [IR_UNARY_GELU] = "gelu",
    [IR_UNARY_GELU_TANH] = "gelu_tanh",
    [IR_UNARY_MISH] = "mish",
    [IR_UNARY_CLIP] = "clip",
    [IR_UNARY_LINEAR] = "linear",
    [IR_UNARY_ABS] = "abs",
    [IR_UNARY_NEG] = "neg",
    [IR_UNARY_EXP] = "exp",
    [IR_UNARY_LOG] = "log",
    [IR_UNARY_SQRT] = "sqrt",
    [IR_UNARY_RECIPROCAL] = "reciprocal",
    [IR_UNARY_ERF] = "erf",
    [IR_UNARY_FLOOR] = "floor",
    [IR_UNARY_CEIL] = "ceil",
    [IR_UNARY_ROUND] = "round",
    [IR_UNARY_SIGN] = "sign",
    [IR_UNARY_NOT] = "not",
    [IR_UNARY_SIN] = "sin",
    [IR_UNARY_COS] = "cos",
    [IR_UNARY_TAN] = "tan",
    [IR_UNARY_ASIN] = "asin",
    [IR_UNARY_ACOS] = "acos",
    [IR_UNARY_ATAN] = "atan",
    [IR_UNARY_SINH] = "sinh",
    [IR_UNARY_COSH] = "cosh",
    [IR_UNARY_ASINH] = "asinh",
    [IR_UNARY_ACOSH] = "acosh",
    [IR_UNARY_ATANH] = "atanh",
    [IR_UNARY_IS_NAN] = "is_nan",
    [IR_UNARY_IS_INF] = "is_inf",
    [IR_UNARY_SHRINK] = "shrink",
    [IR_UNARY_BITWISE_NOT] = "bitwise_not",
};

static const char *const binary_names[IR_BINARY_COUNT_] = {
    [IR_BINARY_ADD] = "add",
    [IR_BINARY_SUB] = "sub",
    [IR_BINARY_MUL] = "mul",
    [IR_BINARY_DIV] = "div",
    [IR_BINARY_MAX] = "max",
    [IR_BINARY_MIN] = "min",
    [IR_BINARY_POW] = "pow",
    [IR_BINARY_PRELU] = "prelu",
    [IR_BINARY_MOD] = "mod",
    [IR_BINARY_EQUAL] = "equal",
    [IR_BINARY_LESS] = "less",
    [IR_BINARY_LESS_EQUAL] = "less_equal",
    [IR_BINARY_GREATER] = "greater",
    [IR_BINARY_GREATER_EQUAL] = "greater_equal",
    [IR_BINARY_AND] = "and",
    [IR_BINARY_OR] = "or",
    [IR_BINARY_XOR] = "xor",
    [IR_BINARY_SHIFT_LEFT] = "shift_left",
    [IR_BINARY_SHIFT_RIGHT] = "shift_right",
    [IR_BINARY_BITWISE_AND] = "bitwise_and",
    [IR_BINARY_BITWISE_OR] = "bitwise_or",
    [IR_BINARY_BITWISE_XOR] = "bitwise_xor",
};

static const char *const layout_names[IR_LAYOUT_COUNT_] = {
    [IR_LAYOUT_PLAIN] = "nchw",
    [IR_LAYOUT_CHANNELS_LAST] = "nhwc",
    [IR_LAYOUT_BLOCKED_8] = "nChw8c",
    [IR_LAYOUT_BLOCKED_16] = "nChw16c",
    [IR_LAYOUT_OPAQUE] = "opaque",
    [IR_LAYOUT_CHANNELS_LAST_4] = "nhwc4",
    [IR_LAYOUT_CHANNELS_LAST_8] = "nhwc8",
};

static const char *lookup(const char *const *names, size_t count, uint32_t index)
{
    return index < count && names[index] ? names[index] : "?";
}

const char *ir_op_name(enum ir_op op)
{
    return lookup(op_names, ARRAY_LEN(op_names), (uint32_t)op);
}

const char *ir_attr_name(enum ir_attr_key key)
{
    return lookup(attr_names, ARRAY_LEN(attr_names), (uint32_t)key);
}

const char *ir_unary_name(enum ir_unary func)
{
    return lookup(unary_names, ARRAY_LEN(unary_names), (uint32_t)func);
}

const char *ir_binary_name(enum ir_binary func)
{
    return lookup(binary_names, ARRAY_LEN(binary_names), (uint32_t)func);
}

const char *ir_layout_name(enum ir_layout layout)
{
    return lookup(layout_names, ARRAY_LEN(layout_names), (uint32_t)layout);
}
