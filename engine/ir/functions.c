/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the functions that UNARY, BINARY, epilogues and cells have. */
#include <math.h>

#include "base/compiler.h"
#include "engine/ir/ops.h"

enum {
    A = IR_FUNC_ALPHA,
    B = IR_FUNC_BETA,
    G = IR_FUNC_GAMMA,
    BOOLS = IR_FUNC_TO_BOOL,
    JUMPS = IR_FUNC_JUMPS,
    CELL = IR_FUNC_CELL,
};

/* clang-format off */
#define ROW(FUNC, name, class, flags, a, b, g, formula)                                            \
    [IR_UNARY_##FUNC] = {name, IR_CLASS_##class, flags, a, b, g, formula}
static const struct ir_func_row unary[IR_UNARY_COUNT_] = {
    ROW(IDENTITY, "identity", ANY, CELL, 0, 0, 0, "x"),
    ROW(RELU, "relu", NUMBER, CELL, 0, 0, 0, "x < 0 ? 0 : x"),
    ROW(LEAKY_RELU, "leaky_relu", FLOAT, A | CELL, 0.01F, 0, 0, "x < 0 ? a x : x"),
    ROW(ELU, "elu", FLOAT, A | CELL, 1, 0, 0, "x < 0 ? a (exp(x) - 1) : x"),
    ROW(SELU, "selu", FLOAT, A | G, 1.67326319F, 0, 1.05070102F, "g (x < 0 ? a (exp(x) - 1) : x)"),
    ROW(CELU, "celu", FLOAT, A, 1, 0, 0, "x < 0 ? a (exp(x / a) - 1) : x"),
    ROW(SIGMOID, "sigmoid", FLOAT, CELL, 0, 0, 0, "1 / (1 + exp(-x))"),
    ROW(HARD_SIGMOID, "hard_sigmoid", FLOAT, A | B | CELL, 0.2F, 0.5F, 0, "clip(a x + b, 0, 1)"),
    ROW(HARD_SWISH, "hard_swish", FLOAT, 0, 0, 0, 0, "x clip(x / 6 + 1/2, 0, 1)"),
    ROW(SWISH, "swish", FLOAT, A, 1, 0, 0, "x sigmoid(a x)"),
    ROW(TANH, "tanh", FLOAT, CELL, 0, 0, 0, "tanh(x)"),
    ROW(SOFTPLUS, "softplus", FLOAT, CELL, 0, 0, 0, "log(1 + exp(x))"),
    ROW(SOFTSIGN, "softsign", FLOAT, CELL, 0, 0, 0, "x / (1 + abs(x))"),
    ROW(THRESHOLDED_RELU, "thresholded_relu", FLOAT, A | CELL, 1, 0, 0, "x > a ? x : 0"),
    ROW(GELU, "gelu", FLOAT, 0, 0, 0, 0, "x/2 (1 + erf(x / sqrt(2)))"),
    ROW(GELU_TANH, "gelu_tanh", FLOAT, 0, 0, 0, 0,
        "x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"),
    ROW(MISH, "mish", FLOAT, 0, 0, 0, 0, "x tanh(softplus(x))"),
    ROW(CLIP, "clip", NUMBER, A | B, -INFINITY, INFINITY, 0, "min(max(x, a), b)"),
    ROW(LINEAR, "linear", NUMBER, A | B | CELL, 1, 0, 0, "a x + b"),
    ROW(ABS, "abs", NUMBER, 0, 0, 0, 0, "x < 0 ? -x : x"),
    ROW(NEG, "neg", NUMBER, 0, 0, 0, 0, "-x"),
    ROW(EXP, "exp", FLOAT, 0, 0, 0, 0, "exp(x)"),
    ROW(LOG, "log", FLOAT, 0, 0, 0, 0, "log(x)"),
    ROW(SQRT, "sqrt", FLOAT, 0, 0, 0, 0, "sqrt(x)"),
    ROW(RECIPROCAL, "reciprocal", FLOAT, 0, 0, 0, 0, "1 / x"),
    ROW(ERF, "erf", FLOAT, 0, 0, 0, 0, "erf(x)"),
    ROW(FLOOR, "floor", FLOAT, JUMPS, 0, 0, 0, "floor(x)"),
    ROW(CEIL, "ceil", FLOAT, JUMPS, 0, 0, 0, "ceil(x)"),
    ROW(ROUND, "round", FLOAT, JUMPS, 0, 0, 0, "x rounded, half to even"),
    ROW(SIGN, "sign", NUMBER, JUMPS, 0, 0, 0, "-1, 0 or 1"),
    ROW(NOT, "not", BOOL, 0, 0, 0, 0, "not x"),
    ROW(SIN, "sin", FLOAT, 0, 0, 0, 0, "sin(x)"),
    ROW(COS, "cos", FLOAT, 0, 0, 0, 0, "cos(x)"),
    ROW(TAN, "tan", FLOAT, 0, 0, 0, 0, "tan(x)"),
    ROW(ASIN, "asin", FLOAT, 0, 0, 0, 0, "asin(x)"),
    ROW(ACOS, "acos", FLOAT, 0, 0, 0, 0, "acos(x)"),
    ROW(ATAN, "atan", FLOAT, 0, 0, 0, 0, "atan(x)"),
    ROW(SINH, "sinh", FLOAT, 0, 0, 0, 0, "sinh(x)"),
    ROW(COSH, "cosh", FLOAT, 0, 0, 0, 0, "cosh(x)"),
    ROW(ASINH, "asinh", FLOAT, 0, 0, 0, 0, "asinh(x)"),
    ROW(ACOSH, "acosh", FLOAT, 0, 0, 0, 0, "acosh(x)"),
    ROW(ATANH, "atanh", FLOAT, 0, 0, 0, 0, "atanh(x)"),
    ROW(IS_NAN, "is_nan", FLOAT, BOOLS, 0, 0, 0, "x is NaN"),
    ROW(IS_INF, "is_inf", FLOAT, A | B | BOOLS, 1, 1, 0,
        "x is infinite: a = 1 finds the negative one, b = 1 the positive one"),
    ROW(SHRINK, "shrink", NUMBER, A | B, 0, 0.5F, 0, "x < -b ? x + a : x > b ? x - a : 0"),
    ROW(BITWISE_NOT, "bitwise_not", INTEGER, 0, 0, 0, 0, "all bits turned"),
};
#undef ROW

#define ROW(FUNC, name, class, flags, formula)                                                     \
    [IR_BINARY_##FUNC] = {name, IR_CLASS_##class, flags, 0, 0, 0, formula}
static const struct ir_func_row binary[IR_BINARY_COUNT_] = {
    ROW(ADD, "add", NUMBER, 0, "a + b"),
    ROW(SUB, "sub", NUMBER, 0, "a - b"),
    ROW(MUL, "mul", NUMBER, 0, "a b"),
    ROW(DIV, "div", NUMBER, 0, "a / b; of integers cut, and x / 0 = 0"),
    ROW(MAX, "max", NUMBER, 0, "the larger one; NaN if one is"),
    ROW(MIN, "min", NUMBER, 0, "the smaller one; NaN if one is"),
    ROW(POW, "pow", NUMBER, 0, "a^b"),
    ROW(PRELU, "prelu", NUMBER, 0, "a < 0 ? a b : a"),
    ROW(MOD, "mod", NUMBER, JUMPS, "the rest of a / b, with the sign of b"),
    ROW(EQUAL, "equal", ANY, BOOLS | JUMPS, "a = b"),
    ROW(LESS, "less", NUMBER, BOOLS | JUMPS, "a < b"),
    ROW(LESS_EQUAL, "less_equal", NUMBER, BOOLS | JUMPS, "a <= b"),
    ROW(GREATER, "greater", NUMBER, BOOLS | JUMPS, "a > b"),
    ROW(GREATER_EQUAL, "greater_equal", NUMBER, BOOLS | JUMPS, "a >= b"),
    ROW(AND, "and", BOOL, BOOLS, "a and b"),
    ROW(OR, "or", BOOL, BOOLS, "a or b"),
    ROW(XOR, "xor", BOOL, BOOLS, "either a or b"),
    ROW(SHIFT_LEFT, "shift_left", INTEGER, 0, "a << b; 0 by the width or more"),
    ROW(SHIFT_RIGHT, "shift_right", INTEGER, 0, "a >> b; 0 by the width or more"),
    ROW(BITWISE_AND, "bitwise_and", INTEGER, 0, "the bits of both"),
    ROW(BITWISE_OR, "bitwise_or", INTEGER, 0, "the bits of either"),
    ROW(BITWISE_XOR, "bitwise_xor", INTEGER, 0, "the bits of one of them"),
};
/* clang-format on */

static const struct ir_func_row unknown = {.name = "?"};

const struct ir_func_row *ir_unary_row(enum ir_unary func)
{
    return (uint32_t)func < IR_UNARY_COUNT_ ? &unary[func] : &unknown;
}

const struct ir_func_row *ir_binary_row(enum ir_binary func)
{
    return (uint32_t)func < IR_BINARY_COUNT_ ? &binary[func] : &unknown;
}

const char *ir_unary_name(enum ir_unary func)
{
    return ir_unary_row(func)->name;
}

const char *ir_binary_name(enum ir_binary func)
{
    return ir_binary_row(func)->name;
}
