/* SPDX-License-Identifier: Apache-2.0 */
/* UNARY, BINARY, SELECT and CAST, compared with constants that numpy computed. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

#define INF ((float)INFINITY)
#define NIL ((float)NAN)

enum { N = 8 };
static const float xs[N] = {-2.5f, -1, -0.25f, 0, 0.5f, 3, INF, NIL};

struct unary_case {
    enum ir_unary func;
    double a, b, g;
    float want[N];
};

static const struct unary_case unary_cases[] = {
    {IR_UNARY_IDENTITY, 0, 0, 0, {-2.5f, -1, -0.25f, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_RELU, 0, 0, 0, {0, 0, 0, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_LEAKY_RELU, 0.1, 0, 0, {-0.25f, -0.1f, -0.025f, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_ELU, 2, 0, 0, {-1.83583f, -1.2642411f, -0.44239843f, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_SELU, 2, 0, 3, {-5.50749f, -3.7927234f, -1.3271953f, 0, 1.5f, 9, INF, NIL}},
    {IR_UNARY_CELU, 2, 0, 0, {-1.4269904f, -0.78693867f, -0.23500620f, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_SIGMOID,
     0,
     0,
     0,
     {0.075858176f, 0.26894143f, 0.43782350f, 0.5f, 0.62245935f, 0.95257413f, 1, NIL}},
    {IR_UNARY_HARD_SIGMOID, 0.2, 0.5, 0, {0, 0.3f, 0.45f, 0.5f, 0.6f, 1, 1, NIL}},
    {IR_UNARY_HARD_SWISH,
     0,
     0,
     0,
     {-0.20833333f, -0.33333334f, -0.11458333f, 0, 0.29166666f, 3, INF, NIL}},
    {IR_UNARY_SWISH,
     1,
     0,
     0,
     {-0.18964544f, -0.26894143f, -0.10945588f, 0, 0.31122968f, 2.8577223f, INF, NIL}},
    {IR_UNARY_TANH,
     0,
     0,
     0,
     {-0.98661429f, -0.76159418f, -0.24491866f, 0, 0.46211717f, 0.99505478f, 1, NIL}},
    {IR_UNARY_SOFTPLUS,
     0,
     0,
     0,
     {0.078889735f, 0.31326169f, 0.57593942f, 0.69314718f, 0.97407699f, 3.0485873f, INF, NIL}},
    {IR_UNARY_SOFTSIGN, 0, 0, 0, {-0.71428573f, -0.5f, -0.2f, 0, 0.33333334f, 0.75f, NIL, NIL}},
    {IR_UNARY_THRESHOLDED_RELU, 1, 0, 0, {0, 0, 0, 0, 0, 3, INF, NIL}},
    {IR_UNARY_GELU,
     0,
     0,
     0,
     {-0.015524f, -0.15865526f, -0.10032342f, 0, 0.34573123f, 2.9959502f, INF, NIL}},
    {IR_UNARY_GELU_TANH,
     0,
     0,
     0,
     {-0.015084f, -0.15880801f, -0.10032465f, 0, 0.34571402f, 2.9963627f, INF, NIL}},
    {IR_UNARY_MISH,
     0,
     0,
     0,
     {-0.196816f, -0.30340147f, -0.12992696f, 0, 0.37524524f, 2.9865355f, INF, NIL}},
    {IR_UNARY_CLIP, -1, 1, 0, {-1, -1, -0.25f, 0, 0.5f, 1, 1, NIL}},
    {IR_UNARY_LINEAR, 2, 1, 0, {-4, -1, 0.5f, 1, 2, 7, INF, NIL}},
    {IR_UNARY_ABS, 0, 0, 0, {2.5f, 1, 0.25f, 0, 0.5f, 3, INF, NIL}},
    {IR_UNARY_NEG, 0, 0, 0, {2.5f, 1, 0.25f, 0, -0.5f, -3, -INF, NIL}},
    {IR_UNARY_EXP,
     0,
     0,
     0,
     {0.082085f, 0.36787945f, 0.77880079f, 1, 1.6487212f, 20.085537f, INF, NIL}},
    {IR_UNARY_LOG, 0, 0, 0, {NIL, NIL, NIL, -INF, -0.69314718f, 1.0986123f, INF, NIL}},
    {IR_UNARY_SQRT, 0, 0, 0, {NIL, NIL, NIL, 0, 0.70710677f, 1.7320508f, INF, NIL}},
    {IR_UNARY_RECIPROCAL, 0, 0, 0, {-0.4f, -1, -4, INF, 2, 0.33333334f, 0, NIL}},
    {IR_UNARY_ERF,
     0,
     0,
     0,
     {-0.99959305f, -0.84270079f, -0.27632639f, 0, 0.52049988f, 0.99997791f, 1, NIL}},
    {IR_UNARY_FLOOR, 0, 0, 0, {-3, -1, -1, 0, 0, 3, INF, NIL}},
    {IR_UNARY_CEIL, 0, 0, 0, {-2, -1, 0, 0, 1, 3, INF, NIL}},
    {IR_UNARY_ROUND, 0, 0, 0, {-2, -1, 0, 0, 0, 3, INF, NIL}},
    {IR_UNARY_SIGN, 0, 0, 0, {-1, -1, -1, 0, 1, 1, 1, NIL}},
    {IR_UNARY_SIN,
     0,
     0,
     0,
     {-0.59847212f, -0.84147096f, -0.24740396f, 0, 0.47942555f, 0.14112f, NIL, NIL}},
    {IR_UNARY_COS,
     0,
     0,
     0,
     {-0.80114362f, 0.54030228f, 0.96891242f, 1, 0.87758255f, -0.9899925f, NIL, NIL}},
    {IR_UNARY_TAN,
     0,
     0,
     0,
     {0.74702230f, -1.5574077f, -0.25534192f, 0, 0.54630250f, -0.14254655f, NIL, NIL}},
    {IR_UNARY_ASIN, 0, 0, 0, {NIL, -1.5707964f, -0.25268024f, 0, 0.52359879f, NIL, NIL, NIL}},
    {IR_UNARY_ACOS, 0, 0, 0, {NIL, 3.1415927f, 1.8234766f, 1.5707964f, 1.0471976f, NIL, NIL, NIL}},
    {IR_UNARY_ATAN,
     0,
     0,
     0,
     {-1.1902899f, -0.78539819f, -0.24497867f, 0, 0.46364760f, 1.2490457f, 1.5707964f, NIL}},
    {IR_UNARY_SINH,
     0,
     0,
     0,
     {-6.0502043f, -1.1752012f, -0.25261232f, 0, 0.52109528f, 10.017875f, INF, NIL}},
    {IR_UNARY_COSH,
     0,
     0,
     0,
     {6.1322896f, 1.5430807f, 1.0314131f, 1, 1.1276259f, 10.067662f, INF, NIL}},
    {IR_UNARY_ASINH,
     0,
     0,
     0,
     {-1.6472311f, -0.88137358f, -0.24746646f, 0, 0.48121184f, 1.8184465f, INF, NIL}},
    {IR_UNARY_ACOSH, 0, 0, 0, {NIL, NIL, NIL, NIL, NIL, 1.7627472f, INF, NIL}},
    {IR_UNARY_ATANH, 0, 0, 0, {NIL, -INF, -0.25541282f, 0, 0.54930615f, NIL, NIL, NIL}},
    {IR_UNARY_SHRINK, 1, 0.5, 0, {-1.5f, 0, 0, 0, 0, 2, INF, NIL}},
};

static void test_unary_floats(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(unary_cases); i++) {
        const struct unary_case *c = &unary_cases[i];
        float x[N], y[N];
        memcpy(x, xs, sizeof(x));
        struct tensor_view vx = VIEW(DTYPE_F32, x, N), vy = POISONED(DTYPE_F32, y, N);
        ref_unary(c->func, c->a, c->b, c->g, &vx, &vy);
        for (size_t k = 0; k < N; k++) {
            double got = (double)y[k], want = (double)c->want[k];
            bool same = isnan(want) ? isnan(got)
                                    : got == want || fabs(got - want) <= 2e-6 * fmax(1, fabs(want));
            if (!same)
                fail_msg("function %d of %g: got %.9g, want %.9g", (int)c->func, (double)xs[k], got,
                         want);
        }
        ref_unary(c->func, c->a, c->b, c->g, &vx, &vx); /* in place */
        assert_memory_equal(x, y, sizeof(y));
    }
}

static void test_unary_to_bool(void **state UNUSED)
{
    float x[4] = {1, NIL, INF, -INF};
    uint8_t y[4];
    struct tensor_view vx = VIEW(DTYPE_F32, x, 4), vy = POISONED(DTYPE_BOOL, y, 4);
    ref_unary(IR_UNARY_IS_NAN, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){0, 1, 0, 0}, 4);
    ref_unary(IR_UNARY_IS_INF, 1, 1, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){0, 0, 1, 1}, 4);
    ref_unary(IR_UNARY_IS_INF, 0, 1, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){0, 0, 1, 0}, 4);
    ref_unary(IR_UNARY_IS_INF, 1, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){0, 0, 0, 1}, 4);
    uint8_t b[2] = {0, 1};
    struct tensor_view vb = VIEW(DTYPE_BOOL, b, 2), vn = POISONED(DTYPE_BOOL, y, 2);
    ref_unary(IR_UNARY_NOT, 0, 0, 0, &vb, &vn);
    assert_ints(&vn, (const int64_t[]){1, 0}, 2);
}

static void test_unary_ints(void **state UNUSED)
{
    int8_t x[4] = {-128, -3, 0, 100}, y[4];
    struct tensor_view vx = VIEW(DTYPE_I8, x, 4), vy = POISONED(DTYPE_I8, y, 4);
    ref_unary(IR_UNARY_ABS, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){-128, 3, 0, 100}, 4); /* as numpy: it wraps */
    ref_unary(IR_UNARY_NEG, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){-128, 3, 0, -100}, 4);
    ref_unary(IR_UNARY_SIGN, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){-1, -1, 0, 1}, 4);
    ref_unary(IR_UNARY_RELU, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){0, 0, 0, 100}, 4);
    ref_unary(IR_UNARY_CLIP, -5.5, 7.5, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){-5, -3, 0, 7}, 4);
    ref_unary(IR_UNARY_CLIP, -INFINITY, INFINITY, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){-128, -3, 0, 100}, 4);
    ref_unary(IR_UNARY_BITWISE_NOT, 0, 0, 0, &vx, &vy);
    assert_ints(&vy, (const int64_t[]){127, 2, -1, -101}, 4);

    uint64_t u[3] = {UINT64_MAX, 0, 5}, v[3];
    struct tensor_view vu = VIEW(DTYPE_U64, u, 3), vv = POISONED(DTYPE_U64, v, 3);
    ref_unary(IR_UNARY_RELU, 0, 0, 0, &vu, &vv);
    assert_memory_equal(u, v, sizeof(u));
    ref_unary(IR_UNARY_SIGN, 0, 0, 0, &vu, &vv);
    assert_ints(&vv, (const int64_t[]){1, 0, 1}, 3);
    ref_unary(IR_UNARY_CLIP, 1, 10, 0, &vu, &vv);
    assert_ints(&vv, (const int64_t[]){10, 1, 5}, 3);
}

static void test_unary_half_rounds_once(void **state UNUSED)
{
    uint16_t x[3] = {f32_to_f16(0.5f), f32_to_f16(-1), f32_to_f16(2)}, y[3];
    struct tensor_view vx = VIEW(DTYPE_F16, x, 3), vy = POISONED(DTYPE_F16, y, 3);
    ref_unary(IR_UNARY_EXP, 0, 0, 0, &vx, &vy);
    assert_int_equal(y[0], 0x3e98); /* numpy.exp(numpy.float16(..)) */
    assert_int_equal(y[1], 0x35e3);
    assert_int_equal(y[2], 0x4764);
}

static void test_unary_long_and_empty(void **state UNUSED)
{
    enum { LONG = 1000 };
    double x[LONG], y[LONG];
    for (size_t i = 0; i < LONG; i++)
        x[i] = (double)i;
    struct tensor_view vx = VIEW(DTYPE_F64, x, 10, 100), vy = POISONED(DTYPE_F64, y, 10, 100);
    ref_unary(IR_UNARY_LINEAR, 2, 1, 0, &vx, &vy);
    for (size_t i = 0; i < LONG; i++)
        assert_true(y[i] == 2 * (double)i + 1);
    struct tensor_view none = VIEW(DTYPE_F64, NULL, 0, 5);
    ref_unary(IR_UNARY_EXP, 0, 0, 0, &none, &none);
}

struct binary_case {
    enum ir_binary func;
    bool truncate;
    float want[6];
};

static void test_binary_floats(void **state UNUSED)
{
    static const struct binary_case cases[] = {
        {IR_BINARY_ADD, false, {3, 1, -8, 4, NIL, INF}},
        {IR_BINARY_SUB, false, {-1, -5, -6, 12, NIL, INF}},
        {IR_BINARY_MUL, false, {2, -6, 7, -32, NIL, NIL}},
        {IR_BINARY_DIV, false, {0.5f, -0.66666667f, 7, -2, NIL, INF}},
        {IR_BINARY_MAX, false, {2, 3, -1, 8, NIL, INF}},
        {IR_BINARY_MIN, false, {1, -2, -7, -4, NIL, 0}},
        {IR_BINARY_POW, false, {1, -8, -0.14285715f, 0.00024414062f, NIL, 1}},
        {IR_BINARY_PRELU, false, {1, -6, 7, 8, NIL, INF}},
        {IR_BINARY_MOD, false, {1, 1, 0, 0, NIL, NIL}},
        {IR_BINARY_MOD, true, {1, -2, 0, 0, NIL, NIL}},
    };
    float a[6] = {1, -2, -7, 8, NIL, INF}, b[6] = {2, 3, -1, -4, 1, 0};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        float y[6];
        struct tensor_view va = VIEW(DTYPE_F32, a, 6), vb = VIEW(DTYPE_F32, b, 6);
        struct tensor_view vy = POISONED(DTYPE_F32, y, 6);
        ref_binary(cases[i].func, cases[i].truncate, &va, &vb, &vy);
        assert_floats(y, cases[i].want, 6, 1e-6);
    }
}

static void test_binary_max_keeps_either_nan(void **state UNUSED)
{
    float a[2] = {NIL, 1}, b[2] = {1, NIL}, y[2];
    struct tensor_view va = VIEW(DTYPE_F32, a, 2), vb = VIEW(DTYPE_F32, b, 2);
    struct tensor_view vy = POISONED(DTYPE_F32, y, 2);
    const float want[2] = {NIL, NIL};
    ref_binary(IR_BINARY_MAX, false, &va, &vb, &vy);
    assert_floats(y, want, 2, 0);
    vy = poisoned(vy);
    y[0] = y[1] = 0;
    ref_binary(IR_BINARY_MIN, false, &va, &vb, &vy);
    assert_floats(y, want, 2, 0);
}

static void test_binary_comparisons(void **state UNUSED)
{
    static const struct {
        enum ir_binary func;
        int64_t want[4];
    } cases[] = {
        {IR_BINARY_EQUAL, {0, 1, 0, 0}},         {IR_BINARY_LESS, {1, 0, 0, 0}},
        {IR_BINARY_LESS_EQUAL, {1, 1, 0, 0}},    {IR_BINARY_GREATER, {0, 0, 1, 0}},
        {IR_BINARY_GREATER_EQUAL, {0, 1, 1, 0}},
    };
    float a[4] = {1, 2, 3, NIL}, b[4] = {2, 2, 2, NIL};
    int64_t ia[4] = {INT64_MAX - 1, 5, INT64_MAX, INT64_MAX - 1}; /* not exact in double */
    int64_t ib[4] = {INT64_MAX, 5, INT64_MAX - 1, INT64_MIN};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t y[4];
        struct tensor_view va = VIEW(DTYPE_F32, a, 4), vb = VIEW(DTYPE_F32, b, 4);
        struct tensor_view vy = POISONED(DTYPE_BOOL, y, 4);
        ref_binary(cases[i].func, false, &va, &vb, &vy);
        assert_ints(&vy, cases[i].want, 4);
        struct tensor_view via = VIEW(DTYPE_I64, ia, 3), vib = VIEW(DTYPE_I64, ib, 3);
        vy = POISONED(DTYPE_BOOL, y, 3);
        ref_binary(cases[i].func, false, &via, &vib, &vy);
        assert_ints(&vy, cases[i].want, 3);
    }
    uint64_t ua[2] = {UINT64_MAX, 1}, ub[2] = {1, UINT64_MAX};
    uint8_t y[2];
    struct tensor_view va = VIEW(DTYPE_U64, ua, 2), vb = VIEW(DTYPE_U64, ub, 2);
    struct tensor_view vy = POISONED(DTYPE_BOOL, y, 2);
    ref_binary(IR_BINARY_GREATER, false, &va, &vb, &vy);
    assert_ints(&vy, (const int64_t[]){1, 0}, 2);
}

static void test_binary_ints(void **state UNUSED)
{
    static const struct {
        enum ir_binary func;
        bool truncate;
        int64_t want[5];
    } cases[] = {
        {IR_BINARY_ADD, false, {10, -4, 7, INT32_MAX, -3}},
        {IR_BINARY_MUL, false, {21, -21, 0, INT32_MIN, -4}},
        {IR_BINARY_DIV, false, {2, -2, 0, INT32_MIN, -4}},
        {IR_BINARY_MOD, false, {1, 2, 0, 0, 0}},
        {IR_BINARY_MOD, true, {1, -1, 0, 0, 0}},
        {IR_BINARY_POW, false, {343, -343, 1, 0, -4}},
        {IR_BINARY_MAX, false, {7, 3, 7, -1, 1}},
    };
    int32_t a[5] = {7, -7, 7, INT32_MIN, -4}, b[5] = {3, 3, 0, -1, 1}, y[5];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_view va = VIEW(DTYPE_I32, a, 5), vb = VIEW(DTYPE_I32, b, 5);
        struct tensor_view vy = POISONED(DTYPE_I32, y, 5);
        ref_binary(cases[i].func, cases[i].truncate, &va, &vb, &vy);
        assert_ints(&vy, cases[i].want, 5);
    }
    int64_t lowest = INT64_MIN, minus = -1, q = 0;
    struct tensor_view va = VIEW(DTYPE_I64, &lowest, 1), vb = VIEW(DTYPE_I64, &minus, 1);
    struct tensor_view vy = POISONED(DTYPE_I64, &q, 1);
    ref_binary(IR_BINARY_DIV, false, &va, &vb, &vy); /* would trap if the CPU's division did it */
    assert_ints(&vy, &lowest, 1);
    ref_binary(IR_BINARY_MOD, false, &va, &vb, &vy);
    assert_ints(&vy, (const int64_t[]){0}, 1);
}

static void test_binary_bits(void **state UNUSED)
{
    uint8_t a[4] = {0x0f, 0x80, 1, 0xff}, b[4] = {4, 1, 8, 0x3c}, y[4];
    static const struct {
        enum ir_binary func;
        int64_t want[4];
    } cases[] = {
        {IR_BINARY_SHIFT_LEFT, {0xf0, 0, 0, 0}},
        {IR_BINARY_SHIFT_RIGHT, {0, 0x40, 0, 0}},
        {IR_BINARY_BITWISE_AND, {4, 0, 0, 0x3c}},
        {IR_BINARY_BITWISE_OR, {0x0f, 0x81, 9, 0xff}},
        {IR_BINARY_BITWISE_XOR, {0x0b, 0x81, 9, 0xc3}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_view va = VIEW(DTYPE_U8, a, 4), vb = VIEW(DTYPE_U8, b, 4);
        struct tensor_view vy = POISONED(DTYPE_U8, y, 4);
        ref_binary(cases[i].func, false, &va, &vb, &vy);
        assert_ints(&vy, cases[i].want, 4);
    }
    uint8_t p[4] = {0, 0, 1, 1}, q[4] = {0, 1, 0, 1};
    static const int64_t logic[3][4] = {{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 1, 0}};
    for (int i = 0; i < 3; i++) {
        struct tensor_view vp = VIEW(DTYPE_BOOL, p, 4), vq = VIEW(DTYPE_BOOL, q, 4);
        struct tensor_view vy = POISONED(DTYPE_BOOL, y, 4);
        ref_binary((enum ir_binary)(IR_BINARY_AND + i), false, &vp, &vq, &vy);
        assert_ints(&vy, logic[i], 4);
    }
}

static void test_binary_broadcasts(void **state UNUSED)
{
    /* [2,1,3] + [4,1] -> [2,4,3] */
    float a[6], b[4], y[24], want[24];
    fill_random(a, 6, 1);
    fill_random(b, 4, 2);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 3; k++)
                want[(i * 4 + j) * 3 + k] = a[i * 3 + k] + b[j];
    struct tensor_view va = VIEW(DTYPE_F32, a, 2, 1, 3), vb = VIEW(DTYPE_F32, b, 4, 1);
    struct tensor_view vy = POISONED(DTYPE_F32, y, 2, 4, 3);
    ref_binary(IR_BINARY_ADD, false, &va, &vb, &vy);
    assert_memory_equal(y, want, sizeof(want));
    float ten = 10;
    struct tensor_view scalar = view_scalar(DTYPE_F32, &ten);
    ref_binary(IR_BINARY_ADD, false, &vy, &scalar, &vy); /* in place */
    for (size_t i = 0; i < 24; i++)
        assert_true(y[i] == want[i] + 10);
}

static void test_select_broadcasts(void **state UNUSED)
{
    uint8_t cond[2] = {1, 0};
    int64_t a[3] = {1, 2, 3}, b = -9, y[6];
    struct tensor_view vc = VIEW(DTYPE_BOOL, cond, 2, 1), va = VIEW(DTYPE_I64, a, 3);
    struct tensor_view vb = view_scalar(DTYPE_I64, &b), vy = POISONED(DTYPE_I64, y, 2, 3);
    ref_select(&vc, &va, &vb, &vy);
    assert_ints(&vy, (const int64_t[]){1, 2, 3, -9, -9, -9}, 6);
}

static void test_cast_from_float(void **state UNUSED)
{
    float x[6] = {-1.9f, 2.9f, 300, 3e9f, 1e20f, NIL};
    static const struct {
        enum dtype to;
        int64_t want[6];
    } cases[] = {
        {DTYPE_I8, {-1, 2, 44, 0, 0, 0}},
        {DTYPE_U8, {255, 2, 44, 0, 0, 0}},
        {DTYPE_I16, {-1, 2, 300, 0, 0, 0}},
        {DTYPE_I32, {-1, 2, 300, INT32_MIN, INT32_MIN, INT32_MIN}},
        {DTYPE_I64, {-1, 2, 300, 3000000000, INT64_MIN, INT64_MIN}},
        {DTYPE_U32, {4294967295, 2, 300, 3000000000, 0, 0}},
        {DTYPE_BOOL, {1, 1, 1, 1, 1, 1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t y[6];
        struct tensor_view vx = VIEW(DTYPE_F32, x, 6), vy = POISONED(cases[i].to, y, 6);
        ref_cast(&vx, &vy);
        assert_ints(&vy, cases[i].want, 6);
    }
}

static void test_cast_rounds_once(void **state UNUSED)
{
    /* Just above the middle of two halves: a detour through fp32 would round to even instead of
     * up. */
    double x = 1 + 0x1p-11 + 0x1p-40;
    uint16_t y;
    struct tensor_view vx = VIEW(DTYPE_F64, &x, 1), vy = POISONED(DTYPE_F16, &y, 1);
    ref_cast(&vx, &vy);
    assert_int_equal(y, 0x3c01);
    x = -x;
    ref_cast(&vx, &vy);
    assert_int_equal(y, 0xbc01);
    /* 2^63 + 2^39 + 1 rounds up in fp32; through double it would tie to even. */
    uint64_t u = (UINT64_C(1) << 63) + (UINT64_C(1) << 39) + 1;
    float f;
    struct tensor_view vu = VIEW(DTYPE_U64, &u, 1), vf = POISONED(DTYPE_F32, &f, 1);
    ref_cast(&vu, &vf);
    assert_true(f == 0x1.000002p63f);
    int64_t s = (INT64_C(1) << 62) + (INT64_C(1) << 38) + 1;
    struct tensor_view vs = VIEW(DTYPE_I64, &s, 1);
    ref_cast(&vs, &vf);
    assert_true(f == 0x1.000002p62f);
}

static void test_cast_between_ints(void **state UNUSED)
{
    int64_t x[3] = {-1, 65536 + 7, INT64_MAX}, y[3];
    struct tensor_view vx = VIEW(DTYPE_I64, x, 3), vy = POISONED(DTYPE_U16, y, 3);
    ref_cast(&vx, &vy);
    assert_ints(&vy, (const int64_t[]){65535, 7, 65535}, 3);
    vy = POISONED(DTYPE_BOOL, y, 3);
    ref_cast(&vx, &vy);
    assert_ints(&vy, (const int64_t[]){1, 1, 1}, 3);
    double d[3];
    const double want[3] = {-1, 65543, 0x1p63};
    vy = POISONED(DTYPE_F64, d, 3);
    ref_cast(&vx, &vy);
    assert_doubles(d, want, 3, 0);
}

static void test_unaligned_data(void **state UNUSED)
{
    char memory[1 + 4 * sizeof(float)], result[1 + 4 * sizeof(float)];
    const float x[4] = {1, -2, 3, -4}, want[4] = {0, 2, 0, 4};
    memcpy(memory + 1, x, sizeof(x));
    struct tensor_view vx = VIEW(DTYPE_F32, memory + 1, 4), vy = POISONED(DTYPE_F32, result + 1, 4);
    ref_unary(IR_UNARY_NEG, 0, 0, 0, &vx, &vy);
    ref_unary(IR_UNARY_RELU, 0, 0, 0, &vy, &vy);
    assert_memory_equal(result + 1, want, sizeof(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_floats),
        cmocka_unit_test(test_unary_to_bool),
        cmocka_unit_test(test_unary_ints),
        cmocka_unit_test(test_unary_half_rounds_once),
        cmocka_unit_test(test_unary_long_and_empty),
        cmocka_unit_test(test_binary_floats),
        cmocka_unit_test(test_binary_max_keeps_either_nan),
        cmocka_unit_test(test_binary_comparisons),
        cmocka_unit_test(test_binary_ints),
        cmocka_unit_test(test_binary_bits),
        cmocka_unit_test(test_binary_broadcasts),
        cmocka_unit_test(test_select_broadcasts),
        cmocka_unit_test(test_cast_from_float),
        cmocka_unit_test(test_cast_rounds_once),
        cmocka_unit_test(test_cast_between_ints),
        cmocka_unit_test(test_unaligned_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
