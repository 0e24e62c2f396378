/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, layer normalisation and reductions against the reference. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};

static int64_t draw(int64_t from, int64_t to)
{
    return from + array_draw((uint32_t)(to - from + 1));
}

/* Lengths around what a warp's and a block's registers hold. */
static int64_t draw_length(void)
{
    static const int64_t lengths[] = {1,   8,   64,  128,  197,  256,  257,  512,
                                      768, 776, 997, 1000, 1024, 1025, 2048, 8200};
    return lengths[array_draw(ARRAY_LEN(lengths))];
}

static void softmax_case(struct array *x, struct array *y, int axis, bool log, const char *what)
{
    struct kernel_call call = {0};
    ref_softmax((uint32_t)axis, log, &x->dense, &y->dense);
    array_poison(y);
    assert_int_equal(kernel_softmax(&call, axis, log, &x->view, &y->view, NULL), cudaSuccess);
    double tolerance = log ? 1e-5 : 1e-6;
    if (x->view.dtype != DTYPE_F32)
        tolerance = x->view.dtype == DTYPE_F16 ? 1e-3 : 8e-3;
    array_check(y, tolerance, what);
}

static void test_softmax_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int64_t rows = draw(1, 6), length = draw_length();
        enum dtype dtype = dtypes[i % 3];
        struct array x = array_new(dtype, 2, (const int64_t[]){rows, length}, NULL, 8);
        struct array y = ARRAY(dtype, NULL, rows, length);
        char what[96];
        snprintf(what, sizeof(what), "softmax %s %d of %d log %d", dtype_name(dtype), (int)rows,
                 (int)length, i / 3 % 2);
        softmax_case(&x, &y, 1, i / 3 % 2, what);
        array_free(&x), array_free(&y);
    }
}

static void test_softmax_axes(void **state)
{
    (void)state;
    for (int i = 0; i < 36; i++) {
        enum dtype dtype = dtypes[i % 3];
        int axis = i / 3 % 4;
        const int *from = draw(0, 1) ? array_channels_last(4) : NULL;
        const int *to = draw(0, 1) ? array_channels_last(4) : NULL;
        const int64_t dims[] = {draw(1, 3), draw(1, 16), draw(1, 7), draw(1, 7)};
        struct array x = array_new(dtype, 4, dims, from, 4), y = array_new(dtype, 4, dims, to, 1);
        softmax_case(&x, &y, axis, i / 12 % 2, "softmax along an axis");
        array_free(&x), array_free(&y);
    }
}

/* Masked rows: some of the elements are infinite, or all of them, or NaN. */
static void test_softmax_not_finite(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        enum dtype dtype = dtypes[i % 3];
        int64_t length = (const int64_t[]){40, 33, 1500, 9000}[i / 3];
        struct array x = ARRAY(dtype, NULL, 4, length), y = ARRAY(dtype, NULL, 4, length);
        float *v = array_values(&x);
        for (int64_t k = 0; k < length; k++) {
            v[k] = k % 3 ? -INFINITY : v[k];
            v[length + k] = -INFINITY;
        }
        v[2 * length + 5] = NAN;
        v[3 * length + 7] = INFINITY;
        array_store(&x);
        softmax_case(&x, &y, 1, false, "softmax of infinities");
        array_free(&x), array_free(&y);
    }
}

static void norm_case(enum dtype dtype, enum dtype to, int64_t rows, int64_t length, bool biased,
                      bool rms)
{
    struct array x = ARRAY(dtype, NULL, rows, length), y = ARRAY(to, NULL, rows, length);
    struct array scale = ARRAY(DTYPE_F32, NULL, length), bias = ARRAY(DTYPE_F32, NULL, length);
    struct kernel_call call = {0};
    for (int64_t i = 0; i < rows * length; i++)
        array_values(&x)[i] = array_values(&x)[i] * 2 + 3;
    array_store(&x);
    ref_layer_norm(1, rms, 1e-5, &x.dense, &scale.dense, biased ? &bias.dense : NULL, &y.dense);
    char what[96];
    snprintf(what, sizeof(what), "norm %s to %s %d of %d bias %d rms %d", dtype_name(dtype),
             dtype_name(to), (int)rows, (int)length, biased, rms);
    array_poison(&y);
    assert_int_equal(kernel_layer_norm(&call, 1, rms, 1e-5f, &x.view, scale.view.data,
                                       biased ? bias.view.data : NULL, &y.view, NULL),
                     cudaSuccess);
    array_check(&y, 2e-5, what);
    array_free(&x), array_free(&y), array_free(&scale), array_free(&bias);
}

static void test_layer_norm(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        int64_t length = draw_length();
        norm_case(dtypes[i % 3], dtypes[i % 3], draw(1, 6), length == 1 ? 2 : length, draw(0, 1),
                  i / 3 % 2);
    }
}

/* Rows of a warp with vectors and without, each size of kernel, to FP32 too. */
static void test_layer_norm_short(void **state)
{
    (void)state;
    static const int64_t lengths[] = {8, 250, 256, 384, 500, 512, 768, 1000, 1021, 1024};
    for (int i = 0; i < 3 * (int)ARRAY_LEN(lengths); i++)
        for (int wide = 0; wide < 2; wide++)
            norm_case(dtypes[i % 3], wide ? DTYPE_F32 : dtypes[i % 3], draw(1, 6), lengths[i / 3],
                      draw(0, 1), draw(0, 1));
}

/* So many rows that a warp has several, and one row less than all warps have. */
static void test_layer_norm_many(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        norm_case(dtypes[i], dtypes[i], 132 * 8 * 4 * 2 + 3, 16, true, false);
        norm_case(dtypes[i], dtypes[i], 132 * 4 * 4 * 2 - 1, 520, i == 0, i == 1);
    }
}

/* The tolerance is that of sums in fp32, relative to the sum of the terms' magnitudes. */
static void reduce_case(struct array *x, int func, const int32_t *axes, int n_axes,
                        const int *order, const char *what)
{
    int64_t dims[5], ref_axes[5];
    memcpy(dims, x->view.dim, sizeof(dims));
    for (int i = 0; i < n_axes; i++)
        dims[ref_axes[i] = axes[i]] = 1;
    struct array y = array_new((enum dtype)x->view.dtype, x->view.rank, dims, order, 1);
    struct kernel_call call = {0};
    ref_reduce((enum ir_reduce)func, ref_axes, (uint32_t)n_axes, &x->dense, &y.dense);
    array_poison(&y);
    assert_int_equal(kernel_reduce(&call, func, axes, n_axes, &x->view, &y.view, NULL),
                     cudaSuccess);
    array_check(&y, func == IR_REDUCE_MAX || func == IR_REDUCE_MIN ? 0 : 2e-5, what);
    array_free(&y);
}

static void test_reduce(void **state)
{
    (void)state;
    for (int i = 0; i < 150; i++) {
        enum dtype dtype = dtypes[i % 3];
        int func = i % IR_REDUCE_COUNT_, rank = (int)draw(3, 5), n_axes = 0;
        const int *order = draw(0, 1) ? array_channels_last(rank) : NULL;
        int64_t dims[5];
        int32_t axes[5];
        for (int d = 0; d < rank; d++)
            dims[d] = d == 1 && draw(0, 1) ? 8 * draw(1, 5) : draw(1, 6);
        unsigned pick = array_draw(1u << rank);
        for (int d = 0; d < rank; d++)
            if (pick >> d & 1)
                axes[n_axes++] = d;
        struct array x = array_new(dtype, rank, dims, order, 1);
        for (size_t k = 0; func == IR_REDUCE_LOG_SUM && k < array_count(&x); k++)
            array_values(&x)[k] = fabsf(array_values(&x)[k]) + 0.125f;
        array_store(&x);
        char what[160];
        snprintf(what, sizeof(what), "reduce %s func %d rank %d [%d,%d,%d,..] last %d axes %x",
                 dtype_name(dtype), func, rank, (int)dims[0], (int)dims[1], (int)dims[2],
                 order != NULL, pick);
        reduce_case(&x, func, axes, n_axes, order, what);
        array_free(&x);
    }
}

/* Long rows, and the pixels of channels-last images. */
static void test_reduce_large(void **state)
{
    (void)state;
    static const int32_t last[] = {1}, pixels[] = {2, 3}, first[] = {0};
    for (int i = 0; i < 3; i++) {
        struct array rows = ARRAY(dtypes[i], NULL, 3, 3000), odd = ARRAY(dtypes[i], NULL, 5, 1111);
        struct array image = ARRAY(dtypes[i], array_channels_last(4), 2, 264, 7, 7);
        struct array plain = ARRAY(dtypes[i], NULL, 2, 40, 7, 7);
        struct array tall = ARRAY(dtypes[i], NULL, 300, 24);
        for (int func = 0; func < IR_REDUCE_COUNT_; func++) {
            if (func == IR_REDUCE_LOG_SUM)
                continue;
            reduce_case(&rows, func, last, 1, NULL, "long rows");
            reduce_case(&odd, func, last, 1, NULL, "odd rows");
            reduce_case(&image, func, pixels, 2, array_channels_last(4), "pixels, channels last");
            reduce_case(&image, func, pixels, 2, NULL, "pixels to plain");
            reduce_case(&plain, func, pixels, 2, NULL, "pixels, plain");
            reduce_case(&tall, func, first, 1, NULL, "columns");
        }
        array_free(&rows), array_free(&odd), array_free(&image), array_free(&plain);
        array_free(&tall);
    }
}

static void test_reduce_not_finite(void **state)
{
    (void)state;
    static const int32_t last[] = {1};
    for (int i = 0; i < 3; i++)
        for (int func = 0; func < IR_REDUCE_COUNT_; func++) {
            struct array x = ARRAY(dtypes[i], NULL, 5, 70);
            float *v = array_values(&x);
            v[3] = NAN;
            v[70 + 3] = INFINITY;
            v[140 + 3] = -INFINITY;
            for (int k = 0; k < 70; k++)
                v[210 + k] = -INFINITY;
            array_store(&x);
            reduce_case(&x, func, last, 1, NULL, "not finite");
            array_free(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_rows),
        cmocka_unit_test(test_softmax_axes),
        cmocka_unit_test(test_softmax_not_finite),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_layer_norm_short),
        cmocka_unit_test(test_layer_norm_many),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_reduce_large),
        cmocka_unit_test(test_reduce_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
