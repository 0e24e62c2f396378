/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of numbers behind a request; see along.h. */
#include <math.h>

#include "engine/build/along_internal.h"

#define LOW (-1e4)

struct along_value along_const(double c)
{
    if (isfinite(c))
        return (struct along_value){.kind = ALONG_CONST, .c = c};
    return along_of(c < 0 ? ALONG_LOW : ALONG_WILD); /* NaN is wild */
}

struct along_value along_of(enum along_kind kind)
{
    return (struct along_value){.kind = kind};
}

bool along_is_low(struct along_value v)
{
    return v.kind == ALONG_LOW || (v.kind == ALONG_CONST && v.c <= LOW);
}

bool along_is_tame(struct along_value v)
{
    return v.kind == ALONG_FINITE || v.kind == ALONG_CONST;
}

bool along_is_zero(struct along_value v)
{
    return v.kind == ALONG_CONST && v.c == 0;
}

static struct along_value from(struct along_value v, uint64_t inputs)
{
    v.from |= inputs;
    return v;
}

struct along_value along_join(struct along_value a, struct along_value b)
{
    uint64_t both = a.from | b.from;
    if (a.kind == ALONG_CONST && b.kind == ALONG_CONST && a.c == b.c)
        return from(a, both);
    if (along_is_low(a) && along_is_low(b))
        return from(along_of(ALONG_LOW), both);
    if (along_is_tame(a) && along_is_tame(b))
        return from(along_of(ALONG_FINITE), both);
    return from(along_of(ALONG_WILD), both);
}

/* --- functions of one argument --- */

/* The function of a number; NAN: it is not computed here. */
static double unary_number(enum ir_unary func, double x, const float k[3])
{
    switch (func) {
    case IR_UNARY_IDENTITY:
        return x;
    case IR_UNARY_RELU:
        return x < 0 ? 0 : x;
    case IR_UNARY_NEG:
        return -x;
    case IR_UNARY_ABS:
        return fabs(x);
    case IR_UNARY_NOT:
        return x == 0;
    case IR_UNARY_LINEAR:
        return (double)k[0] * x + (double)k[1];
    case IR_UNARY_CLIP:
        return fmin(fmax(x, (double)k[0]), (double)k[1]);
    case IR_UNARY_SIGN:
        return (x > 0) - (x < 0);
    case IR_UNARY_IS_NAN:
    case IR_UNARY_IS_INF:
        return 0;
    default:
        return NAN;
    }
}

bool along_unary_grows(enum ir_unary func)
{
    switch (func) {
    case IR_UNARY_EXP:
    case IR_UNARY_LOG:
    case IR_UNARY_SQRT:
    case IR_UNARY_RECIPROCAL:
    case IR_UNARY_TAN:
    case IR_UNARY_ASIN:
    case IR_UNARY_ACOS:
    case IR_UNARY_SINH:
    case IR_UNARY_COSH:
    case IR_UNARY_ACOSH:
    case IR_UNARY_ATANH:
        return true;
    default:
        return false;
    }
}

static struct along_value unary_low(enum ir_unary func, const float k[3])
{
    if (func == IR_UNARY_IDENTITY || (func == IR_UNARY_LINEAR && k[0] >= 1))
        return along_of(ALONG_LOW);
    if (func == IR_UNARY_EXP || func == IR_UNARY_RELU || func == IR_UNARY_SIGMOID)
        return along_const(0);
    return along_of(func == IR_UNARY_IS_NAN || func == IR_UNARY_IS_INF ? ALONG_FINITE : ALONG_WILD);
}

struct along_value along_unary(enum ir_unary func, struct along_value x, const float constants[3])
{
    uint64_t inputs = x.from;
    double number = x.kind == ALONG_CONST ? unary_number(func, x.c, constants) : (double)NAN;
    if (!isnan(number))
        return from(along_const(number), inputs);
    if (func == IR_UNARY_IS_NAN || func == IR_UNARY_IS_INF)
        return from(along_of(ALONG_FINITE), inputs);
    if (along_is_low(x))
        return from(unary_low(func, constants), inputs);
    if (x.kind == ALONG_WILD || along_unary_grows(func))
        return from(along_of(ALONG_WILD), inputs);
    return from(along_of(ALONG_FINITE), inputs);
}

/* --- functions of two arguments --- */

bool along_binary_grows(enum ir_binary func)
{
    return func == IR_BINARY_DIV || func == IR_BINARY_POW || func == IR_BINARY_MOD;
}

static double binary_number(enum ir_binary func, double a, double b)
{
    switch (func) {
    case IR_BINARY_ADD:
        return a + b;
    case IR_BINARY_SUB:
        return a - b;
    case IR_BINARY_MUL:
        return a * b;
    case IR_BINARY_MAX:
        return fmax(a, b);
    case IR_BINARY_MIN:
        return fmin(a, b);
    case IR_BINARY_EQUAL:
        return a == b;
    case IR_BINARY_LESS:
        return a < b;
    case IR_BINARY_LESS_EQUAL:
        return a <= b;
    case IR_BINARY_GREATER:
        return a > b;
    case IR_BINARY_GREATER_EQUAL:
        return a >= b;
    case IR_BINARY_AND:
        return a != 0 && b != 0;
    case IR_BINARY_OR:
        return a != 0 || b != 0;
    case IR_BINARY_XOR:
        return (a != 0) != (b != 0);
    default:
        return NAN;
    }
}

static bool is_truth(struct along_value v, bool what)
{
    return v.kind == ALONG_CONST && (v.c != 0) == what;
}

static struct along_value product(struct along_value a, struct along_value b)
{
    if (along_is_tame(a) && along_is_tame(b))
        return along_is_zero(a) || along_is_zero(b) ? along_const(0) : along_of(ALONG_FINITE);
    bool low = (along_is_low(a) && b.kind == ALONG_CONST && b.c >= 1) ||
               (along_is_low(b) && a.kind == ALONG_CONST && a.c >= 1);
    return along_of(low ? ALONG_LOW : ALONG_WILD);
}

static struct along_value quotient(struct along_value a, struct along_value b)
{
    bool number = b.kind == ALONG_CONST && b.c != 0;
    if (number && along_is_tame(a))
        return along_is_zero(a) ? a : along_of(ALONG_FINITE);
    return along_of(ALONG_WILD);
}

/* A sum with something low is low: it was the model's intention. */
static struct along_value sum(struct along_value a, struct along_value b)
{
    bool low = along_is_low(a) || along_is_low(b);
    if (a.kind == ALONG_WILD || b.kind == ALONG_WILD)
        return along_of(ALONG_WILD);
    return along_of(low ? ALONG_LOW : ALONG_FINITE);
}

static struct along_value lesser(struct along_value a, struct along_value b)
{
    if (a.kind == ALONG_WILD || b.kind == ALONG_WILD)
        return along_of(ALONG_WILD);
    return along_of(along_is_low(a) || along_is_low(b) ? ALONG_LOW : ALONG_FINITE);
}

static struct along_value binary_other(enum ir_binary func, struct along_value a,
                                       struct along_value b)
{
    bool tame = along_is_tame(a) && along_is_tame(b);
    switch (func) {
    case IR_BINARY_ADD:
        return sum(a, b);
    case IR_BINARY_SUB: /* what is low stays on the left */
        return along_is_tame(b) && !along_is_low(b) ? sum(a, along_of(ALONG_FINITE))
                                                    : along_of(tame ? ALONG_FINITE : ALONG_WILD);
    case IR_BINARY_MUL:
        return product(a, b);
    case IR_BINARY_DIV:
        return quotient(a, b);
    case IR_BINARY_MIN:
        return lesser(a, b);
    case IR_BINARY_POW:
    case IR_BINARY_MOD:
        return along_of(ALONG_WILD);
    case IR_BINARY_AND:
        return is_truth(a, false) || is_truth(b, false) ? along_const(0) : along_of(ALONG_FINITE);
    case IR_BINARY_OR:
        return is_truth(a, true) || is_truth(b, true) ? along_const(1) : along_of(ALONG_FINITE);
    default:
        return along_of(ir_binary_row(func)->flags & IR_FUNC_TO_BOOL || tame ? ALONG_FINITE
                                                                             : ALONG_WILD);
    }
}

struct along_value along_binary(enum ir_binary func, struct along_value a, struct along_value b)
{
    double number = a.kind == ALONG_CONST && b.kind == ALONG_CONST ? binary_number(func, a.c, b.c)
                                                                   : (double)NAN;
    struct along_value v = isnan(number) ? binary_other(func, a, b) : along_const(number);
    /* What made it low, or zero, is what counts. */
    if (along_is_low(v) && (along_is_low(a) || along_is_low(b)))
        return from(v, (along_is_low(a) ? a.from : 0) | (along_is_low(b) ? b.from : 0));
    if (func == IR_BINARY_MUL && along_is_zero(v) && (along_is_zero(a) || along_is_zero(b)))
        return from(v, (along_is_zero(a) ? a.from : 0) | (along_is_zero(b) ? b.from : 0));
    return from(v, a.from | b.from);
}
