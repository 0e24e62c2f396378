/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products against the sum over k, in every arrangement of operands. */
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

enum { M = 19, N = 131, K = 70, MOST = 6 * N * K };

static float as[MOST], bs[MOST], bias[N], ys[6 * M * N], want[6 * M * N];

static int setup(void **state UNUSED)
{
    fill_random(as, MOST, 1);
    fill_random(bs, MOST, 2);
    fill_random(bias, N, 3);
    return 0;
}

static float at(const float *data, bool transposed, int rows, int cols, int r, int c)
{
    return transposed ? data[c * rows + r] : data[r * cols + c];
}

static void product(const float *a, bool ta, const float *b, bool tb, double alpha,
                    const float *add, float *out)
{
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)at(a, ta, M, K, m, k) * (double)at(b, tb, K, N, k, n);
            out[m * N + n] = (float)(alpha * sum + (add ? (double)add[n] : 0));
        }
}

static void test_matmul_transposed_or_not(void **state UNUSED)
{
    for (int i = 0; i < 8; i++) {
        bool ta = i & 1, tb = i & 2, with_bias = i & 4;
        product(as, ta, bs, tb, 0.5, with_bias ? bias : NULL, want);
        struct tensor_view a = ta ? VIEW(DTYPE_F32, as, K, M) : VIEW(DTYPE_F32, as, M, K);
        struct tensor_view b = tb ? VIEW(DTYPE_F32, bs, N, K) : VIEW(DTYPE_F32, bs, K, N);
        struct tensor_view v = VIEW(DTYPE_F32, bias, N), y = POISONED(DTYPE_F32, ys, M, N);
        ref_matmul(ta, tb, 0.5, &a, &b, with_bias ? &v : NULL, &y);
        assert_floats(ys, want, M * N, 1e-6);
    }
}

static void test_matmul_broadcasts_batches(void **state UNUSED)
{
    /* [2,1,M,K] x [3,K,N] -> [2,3,M,N] */
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            product(as + i * M * K, false, bs + j * K * N, false, 1, NULL,
                    want + (i * 3 + j) * M * N);
    struct tensor_view a = VIEW(DTYPE_F32, as, 2, 1, M, K), b = VIEW(DTYPE_F32, bs, 3, K, N);
    struct tensor_view y = POISONED(DTYPE_F32, ys, 2, 3, M, N);
    ref_matmul(false, false, 1, &a, &b, NULL, &y);
    assert_floats(ys, want, 6 * M * N, 1e-6);
}

static void test_matmul_of_nothing_is_zero(void **state UNUSED)
{
    float y[6];
    const float zero[6] = {0}, rows[6] = {1, 2, 3, 1, 2, 3};
    float add[3] = {1, 2, 3};
    struct tensor_view a = VIEW(DTYPE_F32, NULL, 2, 0), b = VIEW(DTYPE_F32, NULL, 0, 3);
    struct tensor_view vy = POISONED(DTYPE_F32, y, 2, 3), v = VIEW(DTYPE_F32, add, 3);
    ref_matmul(false, false, 1, &a, &b, NULL, &vy);
    assert_floats(y, zero, 6, 0);
    ref_matmul(false, false, 1, &a, &b, &v, &vy);
    assert_floats(y, rows, 6, 0);
}

static void test_matmul_ints(void **state UNUSED)
{
    int32_t a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 1 << 30}, y[4];
    struct tensor_view va = VIEW(DTYPE_I32, a, 2, 2), vb = VIEW(DTYPE_I32, b, 2, 2);
    struct tensor_view vy = POISONED(DTYPE_I32, y, 2, 2);
    ref_matmul(false, false, 1, &va, &vb, NULL, &vy);
    /* 6 + 2^31 and 18 + 2^32 wrap around */
    assert_ints(&vy, (const int64_t[]){19, INT32_MIN + INT64_C(6), 43, 18}, 4);
    ref_matmul(true, true, 1, &va, &vb, NULL, &vy);
    assert_ints(&vy, (const int64_t[]){23, 7 - (INT64_C(1) << 30), 34, 14}, 4);
    int64_t c[2] = {INT64_C(1) << 53, 1}, d[2] = {1, 1}, e[1]; /* inexact in double */
    struct tensor_view vc = VIEW(DTYPE_I64, c, 1, 2), vd = VIEW(DTYPE_I64, d, 2, 1);
    struct tensor_view ve = POISONED(DTYPE_I64, e, 1, 1);
    ref_matmul(false, false, 1, &vc, &vd, NULL, &ve);
    assert_ints(&ve, (const int64_t[]){(INT64_C(1) << 53) + 1}, 1);
}

/* A chain is what its layers are one after the other, with no rounding in between. There are more
 * rows than the reference takes at a time. */
static void test_mlp_is_its_layers(void **state UNUSED)
{
    enum { DEPTH = 7, WIDE = 9, LAST = 5 };
    static const int64_t widths[] = {WIDE, LAST}, funcs[] = {IR_UNARY_RELU, IR_UNARY_LINEAR};
    static const float alphas[] = {0, 0.5F}, betas[] = {0, 0.25F}, gammas[] = {0, 0};
    static double scratch[2 * 16 * WIDE + WIDE];
    struct tensor_view x = VIEW(DTYPE_F32, as, M, DEPTH);
    struct tensor_view w = VIEW(DTYPE_F32, bs, WIDE * (DEPTH + LAST));
    struct tensor_view b = VIEW(DTYPE_F32, bias, WIDE + LAST), y = POISONED(DTYPE_F32, ys, M, LAST);
    const struct ref_mlp how = {.layers = 2,
                                .widths = widths,
                                .funcs = funcs,
                                .alphas = alphas,
                                .betas = betas,
                                .gammas = gammas,
                                .x = &x,
                                .weights = &w,
                                .bias = &b,
                                .y = &y};
    for (int m = 0; m < M; m++) {
        double between[WIDE];
        for (int n = 0; n < WIDE; n++) {
            between[n] = (double)bias[n];
            for (int k = 0; k < DEPTH; k++)
                between[n] += (double)as[m * DEPTH + k] * (double)bs[k * WIDE + n];
            between[n] = between[n] < 0 ? 0 : between[n];
        }
        for (int n = 0; n < LAST; n++) {
            double sum = (double)bias[WIDE + n];
            for (int k = 0; k < WIDE; k++)
                sum += between[k] * (double)bs[WIDE * DEPTH + k * LAST + n];
            want[m * LAST + n] = (float)(0.5 * sum + 0.25);
        }
    }
    assert_int_equal(ref_mlp_scratch(DEPTH, 2, widths), sizeof(scratch));
    ref_mlp(&how, scratch);
    assert_floats(ys, want, M * LAST, 1e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_transposed_or_not),
        cmocka_unit_test(test_matmul_broadcasts_batches),
        cmocka_unit_test(test_matmul_of_nothing_is_zero),
        cmocka_unit_test(test_matmul_ints),
        cmocka_unit_test(test_mlp_is_its_layers),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
