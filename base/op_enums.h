/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ops are told to do: the functions, modes and layouts that the intermediate representation,
 * the reference kernels and the kernels of a device all speak of. They stand in base/ so that
 * kernels need to know nothing of a graph. C++ and CUDA sources include this header too.
 *
 * Values are stored in plan files: append, never renumber.
 */
#ifndef INFERD_BASE_OP_ENUMS_H
#define INFERD_BASE_OP_ENUMS_H

/*
 * How the elements of a tensor lie in memory. The shape is always the logical one (NCHW). Blocked
 * layouts store channels (dim 1) innermost, in blocks of 8 or 16; the channels are rounded up, and
 * the padding is zero. OPAQUE is a constant in a form that only its node's tactic reads; the tensor
 * says how large it is.
 */
enum ir_layout {
    IR_LAYOUT_PLAIN = 0,         /* dense row-major */
    IR_LAYOUT_CHANNELS_LAST = 1, /* N, spatial.., C */
    IR_LAYOUT_BLOCKED_8 = 2,     /* N, C/8, spatial.., 8 */
    IR_LAYOUT_BLOCKED_16 = 3,    /* N, C/16, spatial.., 16 */
    IR_LAYOUT_OPAQUE = 4,
    IR_LAYOUT_CHANNELS_LAST_4 = 5, /* as CHANNELS_LAST, C rounded up to a multiple of 4 */
    IR_LAYOUT_CHANNELS_LAST_8 = 6, /* ... of 8; the padding is zero */
    IR_LAYOUT_COUNT_
};

enum ir_pool { IR_POOL_MAX = 0, IR_POOL_AVERAGE = 1, IR_POOL_LP = 2 };

enum ir_reduce {
    IR_REDUCE_SUM = 0,
    IR_REDUCE_MEAN = 1,
    IR_REDUCE_MAX = 2,
    IR_REDUCE_MIN = 3,
    IR_REDUCE_PROD = 4,
    IR_REDUCE_L1 = 5,
    IR_REDUCE_L2 = 6,
    IR_REDUCE_SUM_SQUARE = 7,
    IR_REDUCE_LOG_SUM = 8,
    IR_REDUCE_LOG_SUM_EXP = 9,
    IR_REDUCE_COUNT_
};

/* Formulas, constants and types of these functions: docs/ir.md, engine/ir/functions.c. */
enum ir_unary {
    IR_UNARY_IDENTITY = 0,
    IR_UNARY_RELU = 1,
    IR_UNARY_LEAKY_RELU = 2,
    IR_UNARY_ELU = 3,
    IR_UNARY_SELU = 4,
    IR_UNARY_CELU = 5,
    IR_UNARY_SIGMOID = 6,
    IR_UNARY_HARD_SIGMOID = 7,
    IR_UNARY_HARD_SWISH = 8,
    IR_UNARY_SWISH = 9,
    IR_UNARY_TANH = 10,
    IR_UNARY_SOFTPLUS = 11,
    IR_UNARY_SOFTSIGN = 12,
    IR_UNARY_THRESHOLDED_RELU = 13,
    IR_UNARY_GELU = 14,
    IR_UNARY_GELU_TANH = 15,
    IR_UNARY_MISH = 16,
    IR_UNARY_CLIP = 17,
    IR_UNARY_LINEAR = 18,
    IR_UNARY_ABS = 19,
    IR_UNARY_NEG = 20,
    IR_UNARY_EXP = 21,
    IR_UNARY_LOG = 22,
    IR_UNARY_SQRT = 23,
    IR_UNARY_RECIPROCAL = 24,
    IR_UNARY_ERF = 25,
    IR_UNARY_FLOOR = 26,
    IR_UNARY_CEIL = 27,
    IR_UNARY_ROUND = 28,
    IR_UNARY_SIGN = 29,
    IR_UNARY_NOT = 30,
    IR_UNARY_SIN = 31,
    IR_UNARY_COS = 32,
    IR_UNARY_TAN = 33,
    IR_UNARY_ASIN = 34,
    IR_UNARY_ACOS = 35,
    IR_UNARY_ATAN = 36,
    IR_UNARY_SINH = 37,
    IR_UNARY_COSH = 38,
    IR_UNARY_ASINH = 39,
    IR_UNARY_ACOSH = 40,
    IR_UNARY_ATANH = 41,
    IR_UNARY_IS_NAN = 42,
    IR_UNARY_IS_INF = 43,
    IR_UNARY_SHRINK = 44,
    IR_UNARY_BITWISE_NOT = 45,
    IR_UNARY_COUNT_
};

enum ir_binary {
    IR_BINARY_ADD = 0,
    IR_BINARY_SUB = 1,
    IR_BINARY_MUL = 2,
    IR_BINARY_DIV = 3,
    IR_BINARY_MAX = 4,
    IR_BINARY_MIN = 5,
    IR_BINARY_POW = 6,
    IR_BINARY_PRELU = 7,
    IR_BINARY_MOD = 8,
    IR_BINARY_EQUAL = 9,
    IR_BINARY_LESS = 10,
    IR_BINARY_LESS_EQUAL = 11,
    IR_BINARY_GREATER = 12,
    IR_BINARY_GREATER_EQUAL = 13,
    IR_BINARY_AND = 14,
    IR_BINARY_OR = 15,
    IR_BINARY_XOR = 16,
    IR_BINARY_SHIFT_LEFT = 17,
    IR_BINARY_SHIFT_RIGHT = 18,
    IR_BINARY_BITWISE_AND = 19,
    IR_BINARY_BITWISE_OR = 20,
    IR_BINARY_BITWISE_XOR = 21,
    IR_BINARY_COUNT_
};

enum ir_pad { IR_PAD_CONSTANT = 0, IR_PAD_REFLECT = 1, IR_PAD_EDGE = 2, IR_PAD_WRAP = 3 };
enum ir_resize { IR_RESIZE_NEAREST = 0, IR_RESIZE_LINEAR = 1, IR_RESIZE_CUBIC = 2 };
enum ir_coord {
    IR_COORD_HALF_PIXEL = 0,
    IR_COORD_PYTORCH_HALF_PIXEL = 1,
    IR_COORD_ALIGN_CORNERS = 2,
    IR_COORD_ASYMMETRIC = 3,
    IR_COORD_TF_CROP = 4,
    IR_COORD_HALF_PIXEL_SYMMETRIC = 5,
    IR_COORD_TF_HALF_PIXEL_NN = 6,
};
enum ir_nearest {
    IR_NEAREST_ROUND_PREFER_FLOOR = 0,
    IR_NEAREST_ROUND_PREFER_CEIL = 1,
    IR_NEAREST_FLOOR = 2,
    IR_NEAREST_CEIL = 3,
};

/* What a scatter does to the element that it finds. */
enum ir_scatter {
    IR_SCATTER_SET = 0,
    IR_SCATTER_ADD = 1,
    IR_SCATTER_MUL = 2,
    IR_SCATTER_MAX = 3,
    IR_SCATTER_MIN = 4,
    IR_SCATTER_COUNT_
};

/* Cells of RECURRENT, see docs/ir.md. */
enum ir_recurrent {
    IR_RECURRENT_RNN = 0,
    IR_RECURRENT_LSTM = 1,
    IR_RECURRENT_GRU = 2,
    IR_RECURRENT_COUNT_
};
/* In which order RECURRENT takes the steps of a sequence. */
enum ir_way { IR_WAY_AHEAD = 0, IR_WAY_BACK = 1, IR_WAY_BOTH = 2 };

static inline int ir_way_directions(enum ir_way way)
{
    return way == IR_WAY_BOTH ? 2 : 1;
}

/* What SAMPLE finds outside of its input. */
enum ir_border { IR_BORDER_ZEROS = 0, IR_BORDER_EDGE = 1, IR_BORDER_REFLECT = 2 };
/* The unit of SAMPLE's coordinates: -1..1 from the outer border of the first pixel to that of the
 * last, or from the centre of the first to the centre of the last; or pixels, where 0 is the first
 * one's centre. */
enum ir_sample {
    IR_SAMPLE_HALF_PIXEL = 0,
    IR_SAMPLE_ALIGN_CORNERS = 1,
    IR_SAMPLE_PIXELS = 2,
};
/* How ROI_POOL makes one value of a bin: from samples between pixels, or from whole pixels
 * (MAX_QUANTISED). MAX follows ONNX: it takes the greatest of the four weighted pixels around each
 * sample, not of their sums. */
enum ir_roi { IR_ROI_AVERAGE = 0, IR_ROI_MAX = 1, IR_ROI_MAX_QUANTISED = 2 };

#endif
