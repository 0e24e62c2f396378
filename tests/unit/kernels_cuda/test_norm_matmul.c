/* SPDX-License-Identifier: Apache-2.0 */
/* Products of rows that are normalised first: every row of the kernel's table, against sums in
 * double, with the normalised rows and without. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/op_enums.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"
#include "tests/unit/kernels_cuda/probe.h"

struct norm_case {
    enum dtype dtype;
    int64_t rows, cols, depth;
    enum ir_unary func;
    bool biased, residual, shifted, rms, stored;
    float mean; /* about which the rows lie */
};

struct norm_data {
    struct array a, w, bias, residual, scale, shift, y, h;
    uint16_t *packed;
    float *slope, *offset;
};

static void pack(const struct norm_case *c, struct norm_data *d)
{
    size_t rows = (size_t)kernel_matmul_packed_rows(c->cols), bytes = rows * (size_t)c->depth * 2;
    void *to = NULL;
    assert_int_equal(posix_memalign(&to, 16, bytes), 0);
    memset(to, 0, bytes);
    d->packed = to;
    assert_int_equal(posix_memalign(&to, 16, rows * sizeof(float)), 0);
    d->slope = memset(to, 0, rows * sizeof(float));
    assert_int_equal(posix_memalign(&to, 16, rows * sizeof(float)), 0);
    d->offset = memset(to, 0, rows * sizeof(float));
    for (int64_t n = 0; n < c->cols; n++) {
        double sum = 0;
        for (int64_t k = 0; k < c->depth; k++)
            sum += array_values(&d->w)[n * c->depth + k];
        d->slope[n] = (float)sum;
        d->offset[n] = c->shifted ? (float)(n % 7) * 0.25F - 0.5F : 0;
        memcpy(d->packed + kernel_matmul_packed_row(1, n) * c->depth,
               (const uint16_t *)d->w.view.data + n * c->depth, (size_t)c->depth * 2);
    }
}

static struct norm_data data_new(const struct norm_case *c)
{
    struct norm_data d = {
        .a = ARRAY(c->dtype, NULL, c->rows, c->depth),
        .w = ARRAY(c->dtype, NULL, c->cols, c->depth),
        .bias = ARRAY(c->dtype, NULL, c->cols),
        .residual = ARRAY(c->dtype, NULL, c->rows, c->cols),
        .scale = ARRAY(DTYPE_F32, NULL, c->depth),
        .shift = ARRAY(DTYPE_F32, NULL, c->depth),
        .y = ARRAY(c->dtype, NULL, c->rows, c->cols),
        .h = ARRAY(c->dtype, NULL, c->rows, c->depth),
    };
    for (int64_t i = 0; i < c->rows * c->depth; i++)
        array_values(&d.a)[i] += c->mean;
    for (int64_t i = 0; i < c->rows; i++) /* one number far from the others, as models have */
        array_values(&d.a)[i * c->depth] += i % 3 ? 0 : 20;
    array_store(&d.a);
    pack(c, &d);
    return d;
}

static void data_free(struct norm_data *d)
{
    array_free(&d->a), array_free(&d->w), array_free(&d->bias), array_free(&d->residual);
    array_free(&d->scale), array_free(&d->shift), array_free(&d->y), array_free(&d->h);
    free(d->packed), free(d->slope), free(d->offset);
}

static double activate(enum ir_unary func, double x)
{
    return func == IR_UNARY_RELU   ? (x < 0 ? 0 : x)
           : func == IR_UNARY_GELU ? 0.5 * x * (1 + erf(x * M_SQRT1_2))
                                   : x;
}

static void reference_row(const struct norm_case *c, struct norm_data *d, int64_t row)
{
    const float *a = array_values(&d->a) + row * c->depth;
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < c->depth && !c->rms; k++)
        mean += (double)a[k] / (double)c->depth;
    for (int64_t k = 0; k < c->depth; k++)
        squares += (a[k] - mean) * (a[k] - mean);
    double inverse = 1 / sqrt(squares / (double)c->depth + 1e-5);
    for (int64_t k = 0; k < c->depth; k++)
        array_values(&d->h)[row * c->depth + k] =
            (float)((a[k] - mean) * inverse * array_values(&d->scale)[k] +
                    (c->shifted ? array_values(&d->shift)[k] : 0));
    for (int64_t n = 0; n < c->cols; n++) {
        double sum = d->offset[n] + (c->biased ? array_values(&d->bias)[n] : 0);
        for (int64_t k = 0; k < c->depth; k++)
            sum += (a[k] - mean) * inverse * array_values(&d->w)[n * c->depth + k];
        sum += c->residual ? array_values(&d->residual)[row * c->cols + n] : 0;
        array_values(&d->y)[row * c->cols + n] = (float)activate(c->func, sum);
    }
}

static struct kernel_norm_matmul arguments(const struct norm_case *c, const struct norm_data *d)
{
    return (struct kernel_norm_matmul){
        .product = {.rows = c->rows,
                    .cols = c->cols,
                    .depth = c->depth,
                    .dtype = (int32_t)c->dtype,
                    .func = (int32_t)c->func,
                    .scale = 1,
                    .a = d->a.view.data,
                    .b = d->packed,
                    .bias = c->biased ? d->bias.view.data : NULL,
                    .residual = c->residual ? d->residual.view.data : NULL,
                    .y = d->y.view.data},
        .scale = d->scale.view.data,
        .shift = c->shifted ? d->shift.view.data : NULL,
        .slope = d->slope,
        .offset = d->offset,
        .h = c->stored ? d->h.view.data : NULL,
        .epsilon = 1e-5F,
        .rms = c->rms,
    };
}

/* By variant: a tile's columns, and the blocks that share its depth. */
static bool is_taken(const struct norm_case *c, int variant)
{
    enum { ALONE = 7 };
    int64_t columns = INT64_C(32) << (variant < ALONE ? (variant - 1) / 3 : variant - ALONE);
    int64_t blocks = variant < ALONE ? INT64_C(2) << (variant - 1) % 3 : 1;
    return (c->depth + 63) / 64 >= blocks &&
           (c->rows + 63) / 64 * ((c->cols + columns - 1) / columns) * blocks <= 8 * 132;
}

static void check_case(const struct norm_case *c)
{
    static int turn;
    struct norm_data d = data_new(c);
    struct kernel_norm_matmul p = arguments(c, &d);
    for (int64_t row = 0; row < c->rows; row++)
        reference_row(c, &d, row);
    turn++;
    for (int variant = 1; variant <= KERNEL_NORM_MATMUL_VARIANTS; variant++) {
        char what[120];
        if ((variant + turn) % EMULATED_SHARE != 0)
            continue;
        struct kernel_call call = {.variant = variant, .multiprocessors = 132, .capability = 90};
        snprintf(what, sizeof(what), "variant %d: %s %dx%dx%d rms %d", variant,
                 dtype_name(c->dtype), (int)c->rows, (int)c->cols, (int)c->depth, c->rms);
        array_poison(&d.y), array_poison(&d.h);
        assert_int_equal(kernel_norm_matmul(&call, &p),
                         is_taken(c, variant) ? cudaSuccess : cudaErrorNotSupported);
        if (!is_taken(c, variant))
            continue;
        double digits = 1 + fabs((double)c->mean) / 8; /* which a mean takes away */
        array_check(&d.y, (c->dtype == DTYPE_F16 ? 3e-4 : 2e-3) * digits, what);
        if (c->stored)
            array_check(&d.h, 3e-5 * digits, what);
    }
    data_free(&d);
}

/* Depths that blocks share unevenly and that end within a step, in its first half too; rows of one
 * unit, of a tile and of more; more of h than all threads have chunks for; blocks that have no unit
 * to finish. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct norm_case cases[] = {
        {DTYPE_F16, 128, 192, 768, IR_UNARY_IDENTITY, true, false, true, false, true, 0},
        {DTYPE_F16, 1, 32, 520, IR_UNARY_GELU, true, true, true, false, true, 0},
        {DTYPE_BF16, 9, 136, 1032, IR_UNARY_IDENTITY, true, true, false, false, true, 1},
        {DTYPE_F16, 67, 64, 2496, IR_UNARY_RELU, false, false, true, false, true, -3},
        {DTYPE_BF16, 130, 40, 560, IR_UNARY_GELU, true, true, true, false, false, 0},
        {DTYPE_F16, 3, 104, 136, IR_UNARY_IDENTITY, true, false, true, false, true, 8},
        {DTYPE_F16, 65, 101, 520, IR_UNARY_RELU, true, true, true, false, true, 0},
        {DTYPE_F16, 64, 8, 8, IR_UNARY_IDENTITY, true, false, true, false, true, 0},
        {DTYPE_BF16, 20, 1000, 96, IR_UNARY_IDENTITY, false, false, true, false, true, 0},
        {DTYPE_F16, 66, 72, 328, IR_UNARY_IDENTITY, true, true, true, false, true, 40},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

static void test_rms(void **state)
{
    (void)state;
    static const struct norm_case cases[] = {
        {DTYPE_F16, 70, 96, 776, IR_UNARY_IDENTITY, true, true, false, true, true, 2},
        {DTYPE_BF16, 5, 64, 1024, IR_UNARY_GELU, false, false, true, true, true, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* A row of equal numbers has no deviation but epsilon's; other rows know nothing of one that is
 * not finite. */
static void test_strange_rows(void **state)
{
    (void)state;
    const struct norm_case c = {DTYPE_F16, 6,     64,   256, IR_UNARY_IDENTITY, true, false,
                                true,      false, true, 0};
    struct norm_data d = data_new(&c);
    for (int64_t k = 0; k < c.depth; k++)
        array_values(&d.a)[k] = 0.125F;
    array_values(&d.a)[2 * c.depth + 7] = INFINITY;
    array_store(&d.a);
    struct kernel_norm_matmul p = arguments(&c, &d);
    for (int64_t row = 0; row < c.rows; row++)
        reference_row(&c, &d, row);
    for (int64_t k = 0; k < c.depth; k++)
        array_values(&d.h)[2 * c.depth + k] = NAN;
    for (int64_t n = 0; n < c.cols; n++)
        array_values(&d.y)[2 * c.cols + n] = NAN;
    for (int variant = 1; variant <= KERNEL_NORM_MATMUL_VARIANTS; variant++) {
        struct kernel_call call = {.variant = variant, .multiprocessors = 132, .capability = 90};
        if (!is_taken(&c, variant))
            continue;
        array_poison(&d.y), array_poison(&d.h);
        assert_int_equal(kernel_norm_matmul(&call, &p), cudaSuccess);
        array_check(&d.y, 3e-4, "rows beside strange ones");
        array_check(&d.h, 3e-5, "normalised rows beside strange ones");
    }
    data_free(&d);
}

/* --- each instruction that orders is needed --- */

struct left_out {
    struct kernel_call call;
    struct kernel_norm_matmul p;
    struct norm_data d;
};

static int run_left_out(const void *user)
{
    const struct left_out *k = user;
    array_poison(&k->d.y), array_poison(&k->d.h);
    return kernel_norm_matmul(&k->call, &k->p) == cudaSuccess &&
           !(array_f16_is_near(&k->d.y) && array_f16_is_near(&k->d.h));
}

/* Leaves out one wait, arrival, fence or commit after the other. */
static void test_left_out(void **state)
{
    (void)state;
    const struct norm_case c = {DTYPE_F16, 65,    72,   2584, IR_UNARY_RELU, true, true,
                                true,      false, true, 0};
    static const struct {
        int32_t variant;
        int least;
    } kernels[] = {{2, 8}, {8, 5}};
    for (size_t i = 0; i < ARRAY_LEN(kernels); i++) {
        int first = probe_sites();
        struct left_out k = {
            .call = {.variant = kernels[i].variant, .multiprocessors = 132, .capability = 90},
            .d = data_new(&c)};
        k.p = arguments(&c, &k.d);
        for (int64_t row = 0; row < c.rows; row++)
            reference_row(&c, &k.d, row);
        print_message("%d faults found\n", left_out_all("norm", run_left_out, &k));
        assert_true(probe_sites() - first >= kernels[i].least);
        data_free(&k.d);
    }
}

static void test_refused(void **state)
{
    (void)state;
    const struct norm_case c = {DTYPE_F16, 6,     64,   256, IR_UNARY_IDENTITY, true, false,
                                true,      false, true, 0};
    struct norm_data d = data_new(&c);
    struct kernel_norm_matmul p = arguments(&c, &d), other = p;
    struct kernel_call call = {.variant = 1, .multiprocessors = 132, .capability = 90, .dry = true};
    assert_int_equal(kernel_norm_matmul(&call, &p), cudaSuccess);
    other.product.scale = 0.5F;
    assert_int_equal(kernel_norm_matmul(&call, &other), cudaErrorNotSupported);
    other = p;
    other.product.depth = 252;
    assert_int_equal(kernel_norm_matmul(&call, &other), cudaErrorNotSupported);
    other = p;
    other.product.dtype = DTYPE_F32;
    assert_int_equal(kernel_norm_matmul(&call, &other), cudaErrorNotSupported);
    other = p;
    other.product.rows = 100000;
    assert_int_equal(kernel_norm_matmul(&call, &other), cudaErrorNotSupported);
    call.capability = 80;
    assert_int_equal(kernel_norm_matmul(&call, &p), cudaErrorNotSupported);
    call.capability = 90;
    call.variant = KERNEL_NORM_MATMUL_VARIANTS + 1;
    assert_int_equal(kernel_norm_matmul(&call, &p), cudaErrorNotSupported);
    data_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_rms),
        cmocka_unit_test(test_strange_rows), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
