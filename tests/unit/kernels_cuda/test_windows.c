/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions in 16 bits on Hopper, whose windows tensor copies read: every row of the table of
 * products, against sums in double. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/test.h"

struct window_case {
    enum dtype dtype;
    struct kernel_images i;
    int64_t filters;
    bool residual;
    int32_t blocks; /* multiprocessors */
};

static int64_t taps_of(const struct kernel_images *i)
{
    return (int64_t)i->kernel[0] * i->kernel[1];
}

/* Weights [filters, channels, taps] as kernels.h says; the caller frees them. */
static uint16_t *packed_new(const struct array *w, const struct kernel_matmul *p)
{
    int64_t pitch = kernel_matmul_packed_depth(p), rows = kernel_matmul_packed_rows(p->cols);
    int64_t taps = taps_of(&p->image), deep = kernel_matmul_tap_depth(p->image.channels);
    void *to = NULL;
    assert_int_equal(posix_memalign(&to, 16, (size_t)(rows * pitch * 2)), 0);
    memset(to, 0, (size_t)(rows * pitch * 2));
    for (int64_t m = 0; m < p->cols; m++)
        for (int64_t c = 0; c < p->image.channels; c++)
            for (int64_t t = 0; t < taps; t++)
                ((uint16_t *)to)[kernel_matmul_packed_row(m) * pitch + t * deep + c] =
                    ((const uint16_t *)w->view.data)[(m * p->image.channels + c) * taps + t];
    return to;
}

static double sum_of(const struct kernel_images *i, const float *x, const float *w, int64_t pixel)
{
    int64_t q = pixel % i->out[1], p = pixel / i->out[1] % i->out[0];
    int64_t n = pixel / i->out[1] / i->out[0], taps = taps_of(i);
    double sum = 0;
    for (int64_t t = 0; t < taps; t++) {
        int64_t h = p * i->stride[0] - i->pad[0] + t / i->kernel[1] * i->dilation[0];
        int64_t v = q * i->stride[1] - i->pad[1] + t % i->kernel[1] * i->dilation[1];
        if (h < 0 || h >= i->in[0] || v < 0 || v >= i->in[1])
            continue;
        for (int64_t c = 0; c < i->channels; c++)
            sum +=
                (double)x[((n * i->in[0] + h) * i->in[1] + v) * i->channels + c] * w[c * taps + t];
    }
    return sum;
}

static bool is_taken(const struct kernel_matmul *p, int variant, int32_t blocks)
{
    struct kernel_call dry = {
        .dry = true, .variant = variant, .multiprocessors = blocks, .capability = 90};
    return kernel_matmul(&dry, p) == cudaSuccess;
}

/* Returns how many rows of the table took the case. */
static int check_case(const struct window_case *c)
{
    const struct kernel_images *i = &c->i;
    int64_t rows = i->images * i->out[0] * i->out[1], depth = i->channels * taps_of(i);
    struct array x = ARRAY(c->dtype, NULL, i->images, i->in[0], i->in[1], i->channels);
    struct array w = ARRAY(c->dtype, NULL, c->filters, i->channels, taps_of(i));
    struct array bias = ARRAY(c->dtype, NULL, c->filters);
    struct array residual = ARRAY(c->dtype, NULL, rows, c->filters);
    struct array y = ARRAY(c->dtype, NULL, rows, c->filters);
    struct kernel_matmul p = {.rows = rows,
                              .cols = c->filters,
                              .depth = depth,
                              .image = *i,
                              .dtype = (int32_t)c->dtype,
                              .func = IR_UNARY_RELU,
                              .scale = 1,
                              .a = x.view.data,
                              .bias = bias.view.data,
                              .residual = c->residual ? residual.view.data : NULL,
                              .y = y.view.data};
    uint16_t *packed = packed_new(&w, &p);
    int taken = 0;
    p.b = packed;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t m = 0; m < c->filters; m++) {
            double sum = sum_of(i, array_values(&x), array_values(&w) + m * depth, r) +
                         array_values(&bias)[m];
            sum += c->residual ? array_values(&residual)[r * c->filters + m] : 0;
            array_values(&y)[r * c->filters + m] = sum < 0 ? 0 : (float)sum;
        }
    for (int variant = 1; variant <= KERNEL_MATMUL_VARIANTS; variant++) {
        struct kernel_call call = {
            .variant = variant, .multiprocessors = c->blocks, .capability = 90};
        char what[120];
        snprintf(what, sizeof(what), "variant %d: %s, %d images of %dx%dx%d, %d filters", variant,
                 dtype_name(c->dtype), (int)i->images, (int)i->in[0], (int)i->in[1],
                 (int)i->channels, (int)c->filters);
        if (!is_taken(&p, variant, c->blocks))
            continue;
        array_poison(&y);
        assert_int_equal(kernel_matmul(&call, &p), cudaSuccess);
        array_check(&y, c->dtype == DTYPE_F16 ? 3e-4 : 2e-3, what);
        taken++;
    }
    array_free(&x), array_free(&w), array_free(&bias), array_free(&residual), array_free(&y);
    free(packed);
    return taken;
}

/* Tiles that cross lines and images, taps outside of the image on each side, strides, dilations,
 * windows of one line, channels that leave the last step of a tap unfilled. */
static void test_windows(void **state)
{
    (void)state;
    static const struct window_case cases[] = {
        {DTYPE_F16, {2, 64, {9, 7}, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 72, true, 132},
        {DTYPE_F16, {3, 40, {8, 9}, {4, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, 64, false, 132},
        {DTYPE_BF16, {1, 136, {7, 7}, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 33, true, 132},
        {DTYPE_F16, {2, 8, {12, 11}, {8, 7}, {5, 3}, {1, 1}, {1, 2}, {0, 0}}, 40, false, 132},
        {DTYPE_F16, {2, 192, {6, 6}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, {0, 0}}, 130, false, 132},
        {DTYPE_F16, {2, 72, {1, 50}, {1, 25}, {1, 3}, {1, 2}, {1, 1}, {0, 1}}, 16, true, 132},
        {DTYPE_BF16, {1, 64, {5, 5}, {9, 9}, {3, 3}, {1, 1}, {2, 2}, {4, 4}}, 64, false, 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(check_case(&cases[i]) >= 10);
}

static void test_refused(void **state)
{
    (void)state;
    struct kernel_matmul p = {
        .rows = 49,
        .cols = 64,
        .depth = 576,
        .image = {1, 64, {7, 7}, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        .dtype = DTYPE_F16,
        .func = IR_UNARY_RELU,
        .scale = 1,
    };
    assert_true(is_taken(&p, 8, 132));
    struct kernel_matmul q = p;
    q.image.channels = 60; /* rows of pixels are not whole 16 bytes */
    q.depth = 540;
    assert_false(is_taken(&q, 8, 132));
    q = p;
    q.rows = 50; /* not the pixels of the output */
    assert_false(is_taken(&q, 8, 132));
    q = p;
    q.image.stride[0] = 9;
    assert_false(is_taken(&q, 8, 132));
    q = p;
    q.image.pad[1] = 129;
    assert_false(is_taken(&q, 8, 132));
    q = p;
    q.image.dilation[1] = 128; /* the last tap is further away than a copy can say */
    assert_false(is_taken(&q, 8, 132));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
