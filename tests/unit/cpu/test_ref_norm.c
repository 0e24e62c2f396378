/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and normalisations against the formula written out per element. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

#define INF ((float)INFINITY)

static void test_reduce_functions(void **state UNUSED)
{
    static const struct {
        enum ir_reduce func;
        float want[2];
    } cases[] = {
        {IR_REDUCE_SUM, {-2, 15}},
        {IR_REDUCE_MEAN, {-2.0f / 3, 5}},
        {IR_REDUCE_MAX, {2, 6}},
        {IR_REDUCE_MIN, {-5, 4}},
        {IR_REDUCE_PROD, {-10, 120}},
        {IR_REDUCE_L1, {8, 15}},
        {IR_REDUCE_L2, {5.4772256f, 8.7749644f}},
        {IR_REDUCE_SUM_SQUARE, {30, 77}},
        {IR_REDUCE_LOG_SUM, {(float)NAN, 2.7080502f}},
        {IR_REDUCE_LOG_SUM_EXP, {2.3139281f, 6.4076059f}},
    };
    float x[6] = {1, 2, -5, 4, 5, 6}, y[2];
    const int64_t axis = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_view vx = VIEW(DTYPE_F32, x, 2, 3), vy = POISONED(DTYPE_F32, y, 2, 1);
        memset(y, 1, sizeof(y)); /* a NaN is wanted in one place */
        ref_reduce(cases[i].func, &axis, 1, &vx, &vy);
        assert_floats(y, cases[i].want, 2, 1e-6);
    }
}

/* Every subset of the axes of a tensor of rank 4. One dimension is longer than the kernel's row. */
static void test_reduce_every_set_of_axes(void **state UNUSED)
{
    enum { A = 2, B = 3, C = 4, D = 300, ALL = A * B * C * D };
    static float x[ALL];
    static double y[ALL], want[ALL];
    const int64_t dims[4] = {A, B, C, D};
    fill_random(x, ALL, 7);
    for (unsigned mask = 0; mask < 16; mask++) {
        int64_t axes[4], kept[4];
        uint32_t n = 0;
        for (int d = 0; d < 4; d++) {
            kept[d] = mask >> d & 1 ? 1 : dims[d];
            if (mask >> d & 1)
                axes[n++] = d;
        }
        memset(want, 0, sizeof(want));
        int64_t i = 0;
        for (int64_t a = 0; a < A; a++)
            for (int64_t b = 0; b < B; b++)
                for (int64_t c = 0; c < C; c++)
                    for (int64_t d = 0; d < D; d++) {
                        int64_t to = a % kept[0];
                        to = to * kept[1] + b % kept[1];
                        to = to * kept[2] + c % kept[2];
                        to = to * kept[3] + d % kept[3];
                        want[to] += (double)x[i++];
                    }
        struct tensor_view vx = VIEW(DTYPE_F32, x, A, B, C, D);
        struct tensor_view vy = POISONED(DTYPE_F64, y, kept[0], kept[1], kept[2], kept[3]);
        ref_reduce(IR_REDUCE_SUM, axes, n, &vx, &vy);
        assert_doubles(y, want, (size_t)(kept[0] * kept[1] * kept[2] * kept[3]), 1e-12);
    }
}

static void test_reduce_ints(void **state UNUSED)
{
    int32_t x[4] = {7, -3, 2, INT32_MIN}, y[1];
    static const struct {
        enum ir_reduce func;
        int64_t want;
    } cases[] = {
        {IR_REDUCE_SUM, -2147483642}, {IR_REDUCE_MAX, 7},           {IR_REDUCE_MIN, INT32_MIN},
        {IR_REDUCE_PROD, 0},          {IR_REDUCE_MEAN, -536870910},
    };
    const int64_t axis = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_view vx = VIEW(DTYPE_I32, x, 4), vy = POISONED(DTYPE_I32, y, 1);
        ref_reduce(cases[i].func, &axis, 1, &vx, &vy);
        assert_ints(&vy, &cases[i].want, 1);
    }
    uint8_t u[3] = {200, 100, 3}, v[1];
    struct tensor_view vu = VIEW(DTYPE_U8, u, 3), vv = POISONED(DTYPE_U8, v, 1);
    ref_reduce(IR_REDUCE_MAX, &axis, 1, &vu, &vv);
    assert_ints(&vv, (const int64_t[]){200}, 1);
    ref_reduce(IR_REDUCE_MIN, &axis, 1, &vu, &vv);
    assert_ints(&vv, (const int64_t[]){3}, 1);
}

static void test_reduce_nothing_and_infinity(void **state UNUSED)
{
    const int64_t axis = 1;
    float y[2];
    struct tensor_view none = VIEW(DTYPE_F32, NULL, 2, 0), vy = POISONED(DTYPE_F32, y, 2);
    ref_reduce(IR_REDUCE_SUM, &axis, 1, &none, &vy);
    assert_floats(y, (const float[]){0, 0}, 2, 0);
    ref_reduce(IR_REDUCE_PROD, &axis, 1, &none, &vy);
    assert_floats(y, (const float[]){1, 1}, 2, 0);
    ref_reduce(IR_REDUCE_MAX, &axis, 1, &none, &vy);
    assert_floats(y, (const float[]){-INF, -INF}, 2, 0);

    float x[6] = {INF, 1, 2, -INF, -INF, -INF};
    struct tensor_view vx = VIEW(DTYPE_F32, x, 2, 3);
    ref_reduce(IR_REDUCE_LOG_SUM_EXP, &axis, 1, &vx, &vy);
    assert_floats(y, (const float[]){INF, -INF}, 2, 0);
    float large[2] = {1000, 1000}; /* exp overflows */
    struct tensor_view vl = VIEW(DTYPE_F32, large, 1, 2), vone = POISONED(DTYPE_F32, y, 1);
    ref_reduce(IR_REDUCE_LOG_SUM_EXP, &axis, 1, &vl, &vone);
    assert_floats(y, (const float[]){1000.6931f}, 1, 1e-6);
}

static void test_softmax(void **state UNUSED)
{
    enum { OUTER = 2, AXIS = 300, INNER = 3, ALL = OUTER * AXIS * INNER };
    static float x[ALL], y[ALL], want[ALL];
    fill_random(x, ALL, 5);
    for (int log_of = 0; log_of < 2; log_of++) {
        for (int o = 0; o < OUTER; o++)
            for (int i = 0; i < INNER; i++) {
                double sum = 0;
                for (int a = 0; a < AXIS; a++)
                    sum += exp((double)x[(o * AXIS + a) * INNER + i]);
                for (int a = 0; a < AXIS; a++) {
                    double p = exp((double)x[(o * AXIS + a) * INNER + i]) / sum;
                    want[(o * AXIS + a) * INNER + i] = (float)(log_of ? log(p) : p);
                }
            }
        struct tensor_view vx = VIEW(DTYPE_F32, x, OUTER, AXIS, INNER);
        struct tensor_view vy = POISONED(DTYPE_F32, y, OUTER, AXIS, INNER);
        ref_softmax(1, log_of, &vx, &vy);
        assert_floats(y, want, ALL, 1e-7);
    }
    float far[2] = {10000, -10000}, near[2];
    struct tensor_view vx = VIEW(DTYPE_F32, far, 2), vy = POISONED(DTYPE_F32, near, 2);
    ref_softmax(0, false, &vx, &vy);
    assert_floats(near, (const float[]){1, 0}, 2, 0);
}

static void test_batch_norm(void **state UNUSED)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    float scale[2] = {2, -1}, bias[2] = {10, 0}, mean[2] = {2, 3}, var[2] = {4, 0.25f};
    const float want[8] = {9, 10, 0, -2, 13, 14, -8, -10};
    struct tensor_view vx = VIEW(DTYPE_F32, x, 2, 2, 2), vy = POISONED(DTYPE_F32, y, 2, 2, 2);
    struct tensor_view s = VIEW(DTYPE_F32, scale, 2), b = VIEW(DTYPE_F32, bias, 2);
    struct tensor_view m = VIEW(DTYPE_F32, mean, 2), v = VIEW(DTYPE_F32, var, 2);
    ref_batch_norm(0, &vx, &s, &b, &m, &v, &vy);
    assert_floats(y, want, 8, 1e-7);
    ref_batch_norm(12, &vx, &s, &b, &m, &v, &vy); /* sqrt(4 + 12) */
    assert_floats(y, (const float[]){9.5f, 10}, 2, 1e-7);
}

/* Mean and standard deviation over `n` elements, by the textbook. */
static void moments_of(const float *x, size_t n, double epsilon, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean + epsilon);
}

static void test_layer_norm(void **state UNUSED)
{
    enum { ROWS = 3, LONG = 520 };
    static float x[ROWS * LONG], y[ROWS * LONG], want[ROWS * LONG], scale[LONG], bias[LONG];
    fill_random(x, ROWS * LONG, 1);
    fill_random(scale, LONG, 2);
    fill_random(bias, LONG, 3);
    for (int form = 0; form < 4; form++) {
        bool with_bias = form & 1, rms = form & 2;
        for (int r = 0; r < ROWS; r++) {
            double mean, deviation;
            moments_of(x + r * LONG, LONG, 1e-3, &mean, &deviation);
            if (rms) {
                deviation = sqrt(deviation * deviation + mean * mean);
                mean = 0;
            }
            for (int i = 0; i < LONG; i++)
                want[r * LONG + i] =
                    (float)(((double)x[r * LONG + i] - mean) / deviation * (double)scale[i] +
                            (with_bias ? (double)bias[i] : 0));
        }
        struct tensor_view vx = VIEW(DTYPE_F32, x, ROWS, 2, LONG / 2);
        struct tensor_view vy = POISONED(DTYPE_F32, y, ROWS, 2, LONG / 2);
        struct tensor_view s = VIEW(DTYPE_F32, scale, 2, LONG / 2);
        struct tensor_view b = VIEW(DTYPE_F32, bias, 2, LONG / 2);
        ref_layer_norm(1, rms, 1e-3, &vx, &s, with_bias ? &b : NULL, &vy);
        assert_floats(y, want, ROWS * LONG, 1e-6);
    }
    float two = 2; /* scale and bias broadcast */
    struct tensor_view vx = VIEW(DTYPE_F32, x, ROWS, 2, LONG / 2);
    struct tensor_view vy = POISONED(DTYPE_F32, y, ROWS, 2, LONG / 2);
    struct tensor_view s = VIEW(DTYPE_F32, &two, 1), b = VIEW(DTYPE_F32, bias, LONG / 2);
    ref_layer_norm(2, false, 0, &vx, &s, &b, &vy);
    double mean, deviation;
    moments_of(x, LONG / 2, 0, &mean, &deviation);
    float first = (float)(((double)x[7] - mean) / deviation * 2 + (double)bias[7]);
    assert_floats(y + 7, &first, 1, 1e-6);
}

static void test_instance_and_group_norm(void **state UNUSED)
{
    enum { IMAGES = 2, CHANNELS = 4, AREA = 15, ALL = IMAGES * CHANNELS * AREA };
    float x[ALL], y[ALL], want[ALL], scale[CHANNELS], bias[CHANNELS];
    fill_random(x, ALL, 1);
    fill_random(scale, CHANNELS, 2);
    fill_random(bias, CHANNELS, 3);
    static const int64_t groups[] = {0, 4, 2, 1};
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        int per = (int)(CHANNELS / (groups[g] ? groups[g] : CHANNELS));
        for (int c = 0; c < IMAGES * CHANNELS; c++) {
            double mean, deviation;
            moments_of(x + c / per * per * AREA, (size_t)(per * AREA), 1e-5, &mean, &deviation);
            for (int i = c * AREA; i < (c + 1) * AREA; i++)
                want[i] = (float)(((double)x[i] - mean) / deviation * (double)scale[c % CHANNELS] +
                                  (double)bias[c % CHANNELS]);
        }
        struct tensor_view vx = VIEW(DTYPE_F32, x, IMAGES, CHANNELS, 3, 5);
        struct tensor_view vy = POISONED(DTYPE_F32, y, IMAGES, CHANNELS, 3, 5);
        struct tensor_view s = VIEW(DTYPE_F32, scale, CHANNELS),
                           b = VIEW(DTYPE_F32, bias, CHANNELS);
        ref_instance_norm(groups[g], 1e-5, &vx, &s, &b, &vy);
        assert_floats(y, want, ALL, 1e-5);
    }
}

static void test_lrn(void **state UNUSED)
{
    enum { C = 6, AREA = 4 };
    float x[C * AREA], y[C * AREA], want[C * AREA];
    fill_random(x, C * AREA, 9);
    for (int size = 1; size <= 4; size++) {
        for (int c = 0; c < C; c++)
            for (int i = 0; i < AREA; i++) {
                double sum = 0;
                for (int k = 0; k < C; k++)
                    if (k >= c - (size - 1) / 2 && k <= c + (size - 1) - (size - 1) / 2)
                        sum += (double)x[k * AREA + i] * (double)x[k * AREA + i];
                want[c * AREA + i] =
                    (float)((double)x[c * AREA + i] / pow(2 + 0.5 / size * sum, 0.75));
            }
        struct tensor_view vx = VIEW(DTYPE_F32, x, 1, C, 2, 2),
                           vy = POISONED(DTYPE_F32, y, 1, C, 2, 2);
        ref_lrn(size, 0.5, 0.75, 2, &vx, &vy);
        assert_floats(y, want, C * AREA, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduce_functions),
        cmocka_unit_test(test_reduce_every_set_of_axes),
        cmocka_unit_test(test_reduce_ints),
        cmocka_unit_test(test_reduce_nothing_and_infinity),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_instance_and_group_norm),
        cmocka_unit_test(test_lrn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
