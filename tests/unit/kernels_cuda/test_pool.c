/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling kernels against the reference: every variant on random windows, layouts and types. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

struct pool_case {
    enum dtype dtype;
    int32_t func;
    bool count_pad, last;
    int64_t n, c;
    int32_t spatial;
    int32_t in[3], kernel[3], stride[3], dilation[3], pad[3], end[3],
        extra[3]; /* extra: ceil mode */
};

static void case_text(const struct pool_case *c, int variant, char *out, size_t size)
{
    snprintf(
        out, size,
        "%s func %d count %d last %d [%d,%d,%d,%d,%d] kernel %d %d %d stride %d %d %d dilation "
        "%d %d %d pad %d %d %d variant %d",
        dtype_name(c->dtype), c->func, c->count_pad, c->last, (int)c->n, (int)c->c, c->in[0],
        c->in[1], c->in[2], c->kernel[0], c->kernel[1], c->kernel[2], c->stride[0], c->stride[1],
        c->stride[2], c->dilation[0], c->dilation[1], c->dilation[2], c->pad[0], c->pad[1],
        c->pad[2], variant);
}

/* Outputs of a dim; 0: the window does not fit. */
static int64_t out_of(const struct pool_case *c, int d)
{
    int64_t reach = (int64_t)(c->kernel[d] - 1) * c->dilation[d] + 1;
    int64_t room = c->in[d] + c->pad[d] + c->end[d] - reach;
    int64_t n = room < 0 ? 0 : room / c->stride[d] + 1;
    /* A last window that begins inside the image may reach out of it. */
    return n && c->extra[d] && n * c->stride[d] < c->in[d] + c->pad[d] ? n + 1 : n;
}

static bool takes(const struct pool_case *c, int variant, cudaError_t did)
{
    if (variant == 0 || variant == KERNEL_POOL_GENERAL)
        return true;
    bool chunks =
        c->func != IR_POOL_LP && c->last && c->c > 1 && c->c % (c->dtype == DTYPE_F32 ? 4 : 8) == 0;
    return variant == KERNEL_POOL_SINGLE ? chunks : chunks && did == cudaSuccess;
}

static void check_case(const struct pool_case *c)
{
    int rank = c->spatial + 2;
    int64_t in[5] = {c->n, c->c}, out[5] = {c->n, c->c};
    struct kernel_window window = {.spatial = c->spatial};
    struct ref_pooling ref = {.func = (enum ir_pool)c->func,
                              .win = {.rank = (uint32_t)c->spatial},
                              .count_include_pad = c->count_pad,
                              .p = 3};
    for (int d = 0; d < c->spatial; d++) {
        in[d + 2] = c->in[d];
        out[d + 2] = out_of(c, d);
        if (out[d + 2] == 0)
            return;
        ref.win.kernel[d] = window.kernel[d] = c->kernel[d];
        ref.win.strides[d] = window.stride[d] = c->stride[d];
        ref.win.dilations[d] = window.dilation[d] = c->dilation[d];
        ref.win.pads[d] = window.pad[d] = c->pad[d];
        ref.ends[d] = window.end[d] = c->end[d];
    }
    const int *order = c->last ? array_channels_last(rank) : NULL;
    struct array x = array_new(c->dtype, rank, in, order, 1);
    struct array y = array_new(c->dtype, rank, out, order, 1);
    if (array_draw(3) == 0) {
        array_values(&x)[array_draw((uint32_t)array_count(&x))] = NAN;
        array_values(&x)[array_draw((uint32_t)array_count(&x))] = -INFINITY;
        array_store(&x);
    }
    ref_pool(&ref, &x.dense, &y.dense, NULL);
    double tolerance = c->func == IR_POOL_MAX ? 0 : 1e-6;
    for (int variant = 0; variant <= 5; variant++) {
        char what[240];
        case_text(c, variant, what, sizeof(what));
        struct kernel_call dry = {.variant = variant, .dry = true}, call = {.variant = variant};
        array_poison(&y);
        cudaError_t may =
            kernel_pool(&dry, c->func, 3, c->count_pad, &window, &x.view, &y.view, NULL);
        cudaError_t did =
            kernel_pool(&call, c->func, 3, c->count_pad, &window, &x.view, &y.view, NULL);
        if (may != did || did != (takes(c, variant, did) ? cudaSuccess : cudaErrorNotSupported))
            fail_msg("%s: dry %d, launched %d", what, (int)may, (int)did);
        if (did == cudaSuccess)
            array_check(&y, tolerance, what);
    }
    array_free(&x), array_free(&y);
}

static int32_t draw(int32_t from, int32_t to)
{
    return from + (int32_t)array_draw((uint32_t)(to - from + 1));
}

static void test_random(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 150; i++) {
        struct pool_case c = {.dtype = dtypes[i % 3],
                              .func = (int32_t)array_draw(3),
                              .count_pad = array_draw(2),
                              .last = array_draw(3) != 0,
                              .n = draw(1, 2),
                              .c = array_draw(3) ? 8 * draw(1, 3) : draw(1, 9),
                              .spatial = draw(1, 3)};
        for (int d = 0; d < c.spatial; d++) {
            c.in[d] = draw(1, 9);
            c.kernel[d] = draw(1, 3);
            c.stride[d] = draw(1, 3);
            c.dilation[d] = draw(1, 2);
            c.pad[d] = draw(0, c.kernel[d] - 1);
            c.end[d] = draw(0, c.kernel[d] - 1);
            c.extra[d] = draw(0, 1);
        }
        check_case(&c);
    }
}

/* The windows that have kernels of their own, on even and odd images. */
static void test_tiles(void **state)
{
    (void)state;
    static const int32_t windows[][3] = {{3, 2, 1}, {2, 2, 0}, {3, 1, 1}, {3, 2, 0}, {2, 2, 1}};
    for (int i = 0; i < 120; i++) {
        const int32_t *w = windows[i % 5];
        struct pool_case c = {.dtype = i % 2   ? DTYPE_F16
                                       : i % 3 ? DTYPE_BF16
                                               : DTYPE_F32,
                              .func = i / 5 % 2,
                              .count_pad = i / 10 % 2,
                              .last = true,
                              .n = draw(1, 3),
                              .c = 8 * draw(1, 3),
                              .spatial = 2,
                              .in = {draw(1, 19), draw(1, 19)},
                              .kernel = {w[0], w[0]},
                              .stride = {w[1], w[1]},
                              .dilation = {1, 1},
                              .pad = {w[2], w[2]},
                              .end = {w[2], w[2]},
                              .extra = {draw(0, 1), draw(0, 1)}};
        check_case(&c);
    }
}

/* x + operand, then ReLU: the operand per channel, and as large as y. */
static void test_epilogue(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        enum dtype dtype = i % 2 ? DTYPE_F16 : DTYPE_F32;
        bool last = i / 2 % 2, dense = i / 4 % 2;
        const int *order = last ? array_channels_last(4) : NULL;
        int64_t channels = i < 8 ? 16 : 5;
        struct array x = ARRAY(dtype, order, 2, channels, 6, 6);
        struct array y = ARRAY(dtype, order, 2, channels, 3, 3);
        struct array z = ARRAY(dtype, order, dense ? 2 : 1, channels, dense ? 3 : 1, dense ? 3 : 1);
        struct kernel_view operand = y.view;
        for (int d = 0; d < 4; d++)
            operand.stride[d] = z.view.dim[d] == 1 ? 0 : z.view.stride[d];
        operand.data = z.view.data;
        struct kernel_epilogue epilogue = {
            .n = 2,
            .step = {{.binary = 1, .func = IR_BINARY_ADD, .operand = operand},
                     {.func = IR_UNARY_RELU}}};
        struct ref_pooling ref = {
            .win = {.rank = 2, .kernel = {2, 2}, .strides = {2, 2}, .dilations = {1, 1}}};
        struct kernel_window window = {
            .spatial = 2, .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}};
        ref_pool(&ref, &x.dense, &y.dense, NULL);
        ref_binary(IR_BINARY_ADD, false, &y.dense, &z.dense, &y.dense);
        ref_unary(IR_UNARY_RELU, 0, 0, 0, &y.dense, &y.dense);
        struct kernel_call call = {0};
        array_poison(&y);
        assert_int_equal(
            kernel_pool(&call, IR_POOL_MAX, 0, false, &window, &x.view, &y.view, &epilogue),
            cudaSuccess);
        array_check(&y, 1e-6, "epilogue");
        array_free(&x), array_free(&y), array_free(&z);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_epilogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
