/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions in 16 bits on Hopper, whose windows tensor copies read: every row of the table of
 * products, against sums in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "kernels/cuda/kernels_hopper.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/test.h"
#include "tests/unit/kernels_cuda/left_out.h"

struct window_case {
    enum dtype dtype;
    struct kernel_images i;
    int64_t filters;
    bool residual;
    int32_t blocks; /* multiprocessors */
    enum ir_unary func;
    bool late;
};

static int64_t taps_of(const struct kernel_images *i)
{
    return (int64_t)i->kernel[0] * i->kernel[1];
}

/* Weights [filters, channels, taps] as kernels.h says; the caller frees them. */
static uint16_t *packed_new(const struct array *w, const struct kernel_matmul *p, int32_t variant)
{
    int64_t pitch = kernel_matmul_packed_depth(&p->image, p->depth),
            rows = kernel_matmul_packed_rows(p->cols);
    int64_t taps = taps_of(&p->image), deep = kernel_matmul_tap_depth(p->image.channels);
    void *to = NULL;
    assert_int_equal(posix_memalign(&to, 16, (size_t)(rows * pitch * 2)), 0);
    memset(to, 0, (size_t)(rows * pitch * 2));
    for (int64_t m = 0; m < p->cols; m++)
        for (int64_t c = 0; c < p->image.channels; c++)
            for (int64_t t = 0; t < taps; t++)
                ((uint16_t *)to)[kernel_matmul_packed_row(variant, m) * pitch + t * deep + c] =
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

static double apply(enum ir_unary func, double v)
{
    return func == IR_UNARY_RELU ? fmax(v, 0) : func == IR_UNARY_SWISH ? v / (1 + exp(-v)) : v;
}

struct data {
    struct array x, w, bias, residual, y;
};

static struct data data_new(const struct window_case *c)
{
    const struct kernel_images *i = &c->i;
    int64_t rows = i->images * i->out[0] * i->out[1], depth = i->channels * taps_of(i);
    struct data d = {
        .x = ARRAY(c->dtype, NULL, i->images, i->in[0], i->in[1], i->channels),
        .w = ARRAY(c->dtype, NULL, c->filters, i->channels, taps_of(i)),
        .bias = ARRAY(c->dtype, NULL, c->filters),
        .residual = ARRAY(c->dtype, NULL, rows, c->filters),
        .y = ARRAY(c->dtype, NULL, rows, c->filters),
    };
    for (int64_t r = 0; r < rows; r++)
        for (int64_t m = 0; m < c->filters; m++) {
            double v = sum_of(i, array_values(&d.x), array_values(&d.w) + m * depth, r) +
                       array_values(&d.bias)[m];
            double z = c->residual ? array_values(&d.residual)[r * c->filters + m] : 0;
            array_values(&d.y)[r * c->filters + m] =
                (float)(c->late ? apply(c->func, v) + z : apply(c->func, v + z));
        }
    return d;
}

static void data_free(struct data *d)
{
    array_free(&d->x), array_free(&d->w), array_free(&d->bias), array_free(&d->residual);
    array_free(&d->y);
}

static struct kernel_matmul arguments(const struct window_case *c, const struct data *d)
{
    const struct kernel_images *i = &c->i;
    return (struct kernel_matmul){.rows = i->images * i->out[0] * i->out[1],
                                  .cols = c->filters,
                                  .depth = i->channels * taps_of(i),
                                  .image = *i,
                                  .dtype = (int32_t)c->dtype,
                                  .func = (int32_t)c->func,
                                  .scale = 1,
                                  .alpha = 1,
                                  .late = c->late,
                                  .a = d->x.view.data,
                                  .bias = d->bias.view.data,
                                  .residual = c->residual ? d->residual.view.data : NULL,
                                  .y = d->y.view.data};
}

/* Returns how many rows of the table took the case; `patch`: whether the last one did. */
static int check_case(const struct window_case *c, bool *patch)
{
    struct data d = data_new(c);
    struct kernel_matmul p = arguments(c, &d);
    int taken = 0;
    for (int variant = 1; variant <= KERNEL_MATMUL_VARIANTS; variant++) {
        struct kernel_call call = {
            .variant = variant, .multiprocessors = c->blocks, .capability = 90};
        char what[120];
        snprintf(what, sizeof(what), "variant %d: %s, %d images of %dx%dx%d, %d filters", variant,
                 dtype_name(c->dtype), (int)c->i.images, (int)c->i.in[0], (int)c->i.in[1],
                 (int)c->i.channels, (int)c->filters);
        *patch = is_taken(&p, variant, c->blocks);
        if (!*patch)
            continue;
        uint16_t *packed = packed_new(&d.w, &p, variant);
        p.b = packed;
        array_poison(&d.y);
        assert_int_equal(kernel_matmul(&call, &p), cudaSuccess);
        array_check(&d.y, c->dtype == DTYPE_F16 ? 3e-4 : 2e-3, what);
        free(packed);
        taken++;
    }
    data_free(&d);
    return taken;
}

/* Tiles that cross lines and images, taps outside of the image on each side, strides, dilations,
 * windows of one line, channels that leave the last step of a tap unfilled. */
static void test_windows(void **state)
{
    (void)state;
    static const struct window_case cases[] = {
        {DTYPE_F16,
         {2, 64, {9, 7}, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         72,
         true,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_F16,
         {3, 40, {8, 9}, {4, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
         64,
         false,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_BF16,
         {1, 136, {7, 7}, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         33,
         true,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_F16,
         {2, 8, {12, 11}, {8, 7}, {5, 3}, {1, 1}, {1, 2}, {0, 0}},
         40,
         false,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_F16,
         {2, 192, {6, 6}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, {0, 0}},
         130,
         false,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_F16,
         {2, 72, {1, 50}, {1, 25}, {1, 3}, {1, 2}, {1, 1}, {0, 1}},
         16,
         true,
         132,
         IR_UNARY_RELU,
         false},
        {DTYPE_BF16,
         {1, 64, {5, 5}, {9, 9}, {3, 3}, {1, 1}, {2, 2}, {4, 4}},
         64,
         false,
         3,
         IR_UNARY_SWISH,
         false},
    };
    bool patch;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(check_case(&cases[i], &patch) >= 10);
}

/* Patches at each edge of images, blocks with no tile, with one and with several, more than one
 * tile of filters, channels and filters that do not fill theirs. */
static void test_patches(void **state)
{
    (void)state;
    static const struct window_case cases[] = {
        {DTYPE_F16,
         {2, 64, {30, 17}, {30, 17}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         64,
         false,
         2,
         IR_UNARY_RELU,
         false},
        {DTYPE_BF16,
         {3, 40, {15, 9}, {13, 7}, {3, 3}, {1, 1}, {1, 1}, {0, 0}},
         136,
         true,
         5,
         IR_UNARY_RELU,
         false},
        {DTYPE_F16,
         {1, 8, {3, 40}, {5, 43}, {3, 3}, {1, 1}, {1, 1}, {2, 3}},
         24,
         true,
         132,
         IR_UNARY_SWISH,
         true},
        {DTYPE_F16,
         {9, 16, {14, 8}, {14, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         64,
         true,
         1,
         IR_UNARY_IDENTITY,
         false},
        {DTYPE_F16,
         {1, 64, {1, 1}, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         8,
         false,
         132,
         IR_UNARY_RELU,
         false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool patch;
        check_case(&cases[i], &patch);
        assert_true(patch);
    }
}

/* What is run again and again; sums are taken once. */
struct left_out {
    struct kernel_call call;
    struct kernel_matmul p;
    struct data d;
};

static int run_left_out(const void *user)
{
    const struct left_out *k = user;
    array_poison(&k->d.y);
    return kernel_matmul(&k->call, &k->p) == cudaSuccess && !array_f16_is_near(&k->d.y);
}

static int left_out_of(const struct window_case *c)
{
    struct left_out k = {
        .call = {.variant = KERNEL_MATMUL_PATCH, .multiprocessors = c->blocks, .capability = 90},
        .d = data_new(c),
    };
    k.p = arguments(c, &k.d);
    uint16_t *packed = packed_new(&k.d.w, &k.p, KERNEL_MATMUL_PATCH);
    k.p.b = packed;
    int faults = left_out_all("patches", run_left_out, &k);
    free(packed);
    data_free(&k.d);
    return faults;
}

/* Leaves out one wait, arrival, fence or commit after the other. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct window_case cases[] = {
        {DTYPE_F16,
         {9, 16, {14, 8}, {14, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         64,
         true,
         1,
         IR_UNARY_IDENTITY,
         false},
        {DTYPE_F16,
         {9, 16, {14, 8}, {14, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
         64,
         false,
         1,
         IR_UNARY_IDENTITY,
         false},
    };
    int faults = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        faults += left_out_of(&cases[i]);
    assert_true(faults >= 10);
    print_message("%d faults found\n", faults);
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
    assert_true(is_taken(&p, KERNEL_MATMUL_PATCH, 132));
    q = p;
    q.image.channels = 72; /* more than the lines of a patch have */
    q.depth = 648;
    assert_false(is_taken(&q, KERNEL_MATMUL_PATCH, 132));
    q = p;
    q.cols = 60; /* rows of y are not whole 16 bytes */
    assert_false(is_taken(&q, KERNEL_MATMUL_PATCH, 132));
    q = p;
    q.image.dilation[1] = 128; /* the last tap is further away than a copy can say */
    assert_false(is_taken(&q, 8, 132));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_patches),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
