/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of sweep.h, for each instruction set of this machine, beside loops in double. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/fast.h"
#include "kernels/cpu/sweep.h"
#include "tests/unit/cpu/views.h"

enum { MOST = 1 << 14 };

static const struct fast_kernels *tables[FAST_MAX];
static size_t n_tables;
static float x[MOST], y[MOST];

static int setup(void **state UNUSED)
{
    n_tables = fast_kernels_list(tables);
    return 0;
}

/* Rows whose columns lie around `middle`. */
static void check_moments(const struct sweep_kernels *sweep, int64_t rows, size_t lanes,
                          float middle)
{
    double mean[64], squares[64];
    fill_random(x, (size_t)rows * lanes, (uint32_t)(rows * 64 + (int64_t)lanes));
    for (size_t i = 0; i < (size_t)rows * lanes; i++)
        x[i] += middle;
    sweep->moments(x, rows, lanes, mean, squares);
    for (size_t l = 0; l < lanes; l++) {
        double sum = 0, apart = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += (double)x[(size_t)r * lanes + l] / (double)rows;
        for (int64_t r = 0; r < rows; r++)
            apart += pow((double)x[(size_t)r * lanes + l] - sum, 2);
        assert_true(fabs(mean[l] - sum) <= 1e-6);
        assert_true(fabs(squares[l] - apart) <= 1e-5 * apart + 1e-12);
    }
}

static void test_moments(void **state UNUSED)
{
    static const size_t lanes[] = {1, 2, 8, 15, 16, 17, 40, 64};
    static const int64_t rows[] = {1, 2, 255, 256};
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < ARRAY_LEN(lanes); i++)
            for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
                check_moments(tables[t]->sweep, rows[r], lanes[i], 0);
                check_moments(tables[t]->sweep, rows[r], lanes[i], 5000);
            }
    for (size_t t = 0; t < n_tables; t++)
        check_moments(tables[t]->sweep, 9001, 1, -300);
}

static void test_affine(void **state UNUSED)
{
    float mean[64], factor[64], shift[64];
    fill_random(mean, 64, 1);
    fill_random(factor, 64, 2);
    fill_random(shift, 64, 3);
    fill_random(x, MOST, 4);
    for (size_t t = 0; t < n_tables; t++)
        for (size_t lanes = 1; lanes <= 64; lanes++) {
            tables[t]->sweep->affine(x, y, 37, lanes, mean, factor, shift);
            for (size_t i = 0; i < 37 * lanes; i++) {
                size_t l = i % lanes;
                double want =
                    ((double)x[i] - (double)mean[l]) * (double)factor[l] + (double)shift[l];
                assert_true(fabs((double)y[i] - want) <= 1e-6);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_affine),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
