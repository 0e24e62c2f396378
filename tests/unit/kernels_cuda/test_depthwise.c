/* SPDX-License-Identifier: Apache-2.0 */
/* Depthwise and direct convolutions against the reference, on random windows and shapes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"

enum epilogue { NONE, RELU, CLIP, SWISH, RESIDUAL_RELU, SCALE, EPILOGUES };

struct conv_case {
    enum dtype dtype;
    int rank; /* spatial dims */
    int64_t n, c, m, groups, size[3];
    int kernel[3], stride[3], dilation[3], pad[3], pad_end[3];
    bool last, biased; /* last: channels-last */
    bool transposed;
    int extra; /* output padding */
    enum epilogue epilogue;
};

static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};

static int64_t out_size(const struct conv_case *c, int i)
{
    int64_t reach = (int64_t)c->dilation[i] * (c->kernel[i] - 1) + 1;
    if (c->transposed)
        return (c->size[i] - 1) * c->stride[i] + reach + c->extra - c->pad[i] - c->pad_end[i];
    return (c->size[i] + c->pad[i] + c->pad_end[i] - reach) / c->stride[i] + 1;
}

static void case_text(const struct conv_case *c, char *out, size_t size)
{
    int n = snprintf(
        out, size, "%s n %d c %d m %d groups %d last %d bias %d epilogue %d:", dtype_name(c->dtype),
        (int)c->n, (int)c->c, (int)c->m, (int)c->groups, c->last, c->biased, (int)c->epilogue);
    for (int i = 0; i < c->rank; i++)
        n += snprintf(out + n, size - (size_t)n, " [%d: kernel %d stride %d dilation %d pad %d,%d]",
                      (int)c->size[i], c->kernel[i], c->stride[i], c->dilation[i], c->pad[i],
                      c->pad_end[i]);
}

static struct array image(const struct conv_case *c, int64_t channels, bool output)
{
    int64_t dims[5] = {c->n, channels};
    for (int i = 0; i < c->rank; i++)
        dims[2 + i] = output ? out_size(c, i) : c->size[i];
    return array_new(c->dtype, c->rank + 2, dims, c->last ? array_channels_last(c->rank + 2) : NULL,
                     1);
}

/* The operands of a convolution, and the expected output (in y's dense form). */
struct world {
    struct array x, w, y, residual, scale;
    float bias[256];
    struct kernel_window window;
    struct kernel_epilogue epilogue;
};

static void convolve(const struct conv_case *c, struct world *t)
{
    struct ref_window win = {.rank = (uint32_t)c->rank};
    for (int i = 0; i < c->rank; i++) {
        win.kernel[i] = c->kernel[i];
        win.strides[i] = c->stride[i];
        win.dilations[i] = c->dilation[i];
        win.pads[i] = c->pad[i];
    }
    struct tensor_view bias = VIEW(DTYPE_F32, t->bias, c->m);
    (c->transposed ? ref_deconv : ref_conv)(&win, c->groups, &t->x.dense, &t->w.dense,
                                            c->biased ? &bias : NULL, &t->y.dense);
}

static float finish(const struct conv_case *c, const struct world *t, float v, size_t i)
{
    size_t inner = array_count(&t->y) / (size_t)(c->n * c->m);
    switch (c->epilogue) {
    case RELU:
        return v < 0 ? 0 : v;
    case CLIP:
        return v < -0.25F ? -0.25F : v > 0.5F ? 0.5F : v;
    case SWISH:
        return v / (1 + expf(-v));
    case RESIDUAL_RELU:
        v += array_values(&t->residual)[i];
        return v < 0 ? 0 : v;
    case SCALE:
        return v * array_values(&t->scale)[i / inner % (size_t)c->m];
    default:
        return v;
    }
}

static void set_epilogue(const struct conv_case *c, struct world *t)
{
    struct kernel_epilogue *e = &t->epilogue;
    struct kernel_view scale = t->y.view;
    memset(scale.stride, 0, sizeof(scale.stride));
    scale.stride[1] = 1;
    scale.data = t->scale.view.data;
    if (c->epilogue == RESIDUAL_RELU)
        e->step[e->n++] =
            (struct kernel_step){.binary = 1, .func = IR_BINARY_ADD, .operand = t->residual.view};
    if (c->epilogue == SCALE)
        e->step[e->n++] =
            (struct kernel_step){.binary = 1, .func = IR_BINARY_MUL, .operand = scale};
    if (c->epilogue == RELU || c->epilogue == RESIDUAL_RELU)
        e->step[e->n++] = (struct kernel_step){.func = IR_UNARY_RELU};
    if (c->epilogue == SWISH)
        e->step[e->n++] = (struct kernel_step){.func = IR_UNARY_SWISH, .alpha = 1};
    if (c->epilogue == CLIP)
        e->step[e->n++] =
            (struct kernel_step){.func = IR_UNARY_CLIP, .alpha = -0.25F, .beta = 0.5F};
}

static void world_init(const struct conv_case *c, struct world *t)
{
    int64_t first = c->transposed ? c->c : c->m, second = c->transposed ? c->m : c->c;
    int64_t dims[5] = {first, second / c->groups, c->kernel[0], c->kernel[1], c->kernel[2]};
    *t = (struct world){.window = {.spatial = c->rank}};
    for (int i = 0; i < c->rank; i++) {
        t->window.kernel[i] = c->kernel[i];
        t->window.stride[i] = c->stride[i];
        t->window.dilation[i] = c->dilation[i];
        t->window.pad[i] = c->pad[i];
    }
    t->x = image(c, c->c, false);
    t->y = image(c, c->m, true);
    t->residual = image(c, c->m, true);
    t->w = array_new(c->dtype, c->rank + 2, dims, NULL, 0.5F);
    t->scale = ARRAY(c->dtype, NULL, c->m);
    fill_random(t->bias, 256, (uint32_t)array_draw(1000));
    set_epilogue(c, t);
    convolve(c, t);
    for (size_t i = 0; i < array_count(&t->y); i++)
        array_values(&t->y)[i] = finish(c, t, array_values(&t->y)[i], i);
}

static void world_deinit(struct world *t)
{
    array_free(&t->x), array_free(&t->w), array_free(&t->y), array_free(&t->residual);
    array_free(&t->scale);
}

static double tolerance(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 1e-5 : dtype == DTYPE_F16 ? 2e-3 : 2e-2;
}

/* [C,1,k..] as [k.., C] */
static struct array packed(const struct conv_case *c, const struct world *t)
{
    struct array w = ARRAY(c->dtype, NULL, c->kernel[0], c->kernel[1], c->c);
    int64_t window = (int64_t)c->kernel[0] * c->kernel[1];
    for (int64_t i = 0; i < window * c->c; i++)
        array_values(&w)[i] = array_values(&t->w)[i % c->c * window + i / c->c];
    array_store(&w);
    return w;
}

/* kernel_depthwise or kernel_depthwise_strip */
typedef cudaError_t (*depthwise)(const struct kernel_call *call, const struct kernel_window *window,
                                 const struct kernel_view *x, const void *weights,
                                 const float *bias, const struct kernel_view *y,
                                 const struct kernel_epilogue *epilogue);

/* Launches the kernel into a poisoned y, and returns what it and its dry run give. */
static cudaError_t run(depthwise kernel, const struct conv_case *c, const struct kernel_call *call,
                       const struct world *t, const struct array *w, const char *what)
{
    struct kernel_call dry = *call;
    const float *bias = c->biased ? t->bias : NULL;
    dry.dry = true;
    array_poison(&t->y);
    cudaError_t may =
        kernel(&dry, &t->window, &t->x.view, w->view.data, bias, &t->y.view, &t->epilogue);
    cudaError_t did =
        kernel(call, &t->window, &t->x.view, w->view.data, bias, &t->y.view, &t->epilogue);
    if (may != did)
        fail_msg("%s variant %d: dry %d, launched %d", what, (int)call->variant, (int)may,
                 (int)did);
    return did;
}

static void check_depthwise(const struct conv_case *c)
{
    struct world t;
    char what[400];
    case_text(c, what, sizeof(what));
    world_init(c, &t);
    struct array w = packed(c, &t);
    for (int variant = 0; variant <= 3; variant++) {
        /* With few multiprocessors even small problems count as large. */
        struct kernel_call call = {.variant = variant, .multiprocessors = 1};
        cudaError_t did = run(kernel_depthwise, c, &call, &t, &w, what);
        if (did != cudaSuccess)
            fail_msg("%s variant %d: launched %d", what, variant, (int)did);
        array_check(&t.y, tolerance(c->dtype), what);
    }
    array_free(&w);
    world_deinit(&t);
}

/* The kernel for Hopper takes all but operands behind the convolution. */
static void check_strip(const struct conv_case *c, int multiprocessors)
{
    struct kernel_call call = {.multiprocessors = multiprocessors, .capability = 90};
    struct world t;
    char what[400];
    case_text(c, what, sizeof(what));
    world_init(c, &t);
    struct array w = packed(c, &t);
    bool binary = c->epilogue == RESIDUAL_RELU || c->epilogue == SCALE;
    cudaError_t did = run(kernel_depthwise_strip, c, &call, &t, &w, what);
    if (did != (binary ? cudaErrorNotSupported : cudaSuccess))
        fail_msg("%s: launched %d", what, (int)did);
    if (!binary)
        array_check(&t.y, tolerance(c->dtype), what);
    array_free(&w);
    world_deinit(&t);
}

static void check_direct(const struct conv_case *c)
{
    struct world t;
    char what[400];
    case_text(c, what, sizeof(what));
    world_init(c, &t);
    struct kernel_call call = {.multiprocessors = 1};
    array_poison(&t.y);
    cudaError_t did =
        kernel_conv_direct(&call, &t.window, (int32_t)c->groups, c->transposed, &t.x.view,
                           t.w.view.data, c->biased ? t.bias : NULL, &t.y.view, &t.epilogue);
    if (did != cudaSuccess)
        fail_msg("%s: launched %d", what, (int)did);
    array_check(&t.y, tolerance(c->dtype), what);
    world_deinit(&t);
}

static int draw(int least, int most)
{
    return least + (int)array_draw((uint32_t)(most - least + 1));
}

static struct conv_case draw_case(int i, int rank)
{
    struct conv_case c = {.dtype = dtypes[i % 3], .rank = rank, .n = draw(1, 2)};
    c.epilogue = (enum epilogue)array_draw(EPILOGUES);
    c.biased = array_draw(3) != 0;
    for (int k = 0; k < rank; k++) {
        c.kernel[k] = draw(1, 4);
        c.stride[k] = draw(1, 3);
        c.dilation[k] = draw(1, 2);
        c.pad[k] = draw(0, 2);
        c.pad_end[k] = draw(0, 2);
        c.size[k] = c.dilation[k] * (c.kernel[k] - 1) + 1 + draw(0, rank == 3 ? 3 : 11);
    }
    return c;
}

static void test_depthwise_of_any_window(void **state UNUSED)
{
    for (int i = 0; i < 60; i++) {
        struct conv_case c = draw_case(i, 2);
        c.c = c.m = c.groups = array_draw(2) ? 8 * draw(1, 4) : draw(1, 40);
        c.last = true;
        check_depthwise(&c);
    }
}

static void test_depthwise_of_usual_windows(void **state UNUSED)
{
    for (int i = 0; i < 72; i++) {
        struct conv_case c = draw_case(i, 2);
        int k = 3 + i / 3 % 3 * 2, s = k == 7 ? 1 : i / 9 % 2 + 1;
        c.c = c.m = c.groups = 8 * draw(1, 20);
        c.last = true;
        for (int d = 0; d < 2; d++) {
            c.kernel[d] = k;
            c.stride[d] = s;
            c.dilation[d] = 1;
            c.size[d] = k + draw(0, 14);
        }
        check_depthwise(&c);
    }
}

/* Windows, steps, functions, and images of one tile, of several, and of several strips; many blocks
 * and few. */
static void test_strips(void **state UNUSED)
{
    static const int sizes[][2] = {{7, 7}, {14, 14}, {1, 1}, {5, 30}, {20, 9}, {3, 120}, {40, 57}};
    for (int i = 0; i < 112; i++) {
        struct conv_case c = draw_case(i, 2);
        const int *size = sizes[i % 7];
        c.dtype = dtypes[i % 2];
        c.n = draw(1, 5);
        c.c = c.m = c.groups = 8 * draw(1, 9);
        c.last = true;
        for (int d = 0; d < 2; d++) {
            c.kernel[d] = 3 + i / 2 % 2 * 2;
            c.stride[d] = 1 + i / 4 % 2;
            c.dilation[d] = 1;
            c.size[d] = size[d];
            while (out_size(&c, d) < 1)
                c.pad[d]++;
        }
        check_strip(&c, i % 3 ? 132 : 1);
    }
}

static void test_strips_refuse_what_they_do_not_do(void **state UNUSED)
{
    const struct conv_case good = {.dtype = DTYPE_F16,
                                   .rank = 2,
                                   .n = 1,
                                   .c = 8,
                                   .m = 8,
                                   .groups = 8,
                                   .size = {9, 9},
                                   .kernel = {3, 3},
                                   .stride = {1, 1},
                                   .dilation = {1, 1},
                                   .last = true};
    struct conv_case bad[6] = {good, good, good, good, good, good};
    bad[0].dtype = DTYPE_F32;
    bad[1].c = bad[1].m = bad[1].groups = 12;
    bad[2].kernel[0] = 5;
    bad[3].stride[0] = bad[3].stride[1] = 3;
    bad[4].dilation[1] = 2;
    bad[5].last = false;
    for (int i = -1; i < 7; i++) {
        const struct conv_case *c = i < 0 || i > 5 ? &good : &bad[i];
        struct kernel_call call = {.multiprocessors = 132, .capability = i == 6 ? 80 : 90};
        struct world t;
        world_init(c, &t);
        struct array w = packed(c, &t);
        assert_int_equal(run(kernel_depthwise_strip, c, &call, &t, &w, "refused"),
                         i < 0 ? cudaSuccess : cudaErrorNotSupported);
        array_free(&w);
        world_deinit(&t);
    }
}

struct left_out_case {
    const struct conv_case *c;
    struct world t;
    struct array w;
};

static int run_left_out(const void *user)
{
    const struct left_out_case *k = user;
    struct kernel_call call = {.multiprocessors = 1, .capability = 90};
    run(kernel_depthwise_strip, k->c, &call, &k->t, &k->w, "left out");
    return !array_f16_is_near(&k->t.y);
}

static void test_left_out(void **state UNUSED)
{
    const struct conv_case c = {.dtype = DTYPE_F16,
                                .rank = 2,
                                .n = 3,
                                .c = 40,
                                .m = 40,
                                .groups = 40,
                                .size = {40, 20},
                                .kernel = {3, 3},
                                .stride = {1, 1},
                                .dilation = {1, 1},
                                .pad = {1, 1},
                                .pad_end = {1, 1},
                                .last = true,
                                .biased = true};
    struct left_out_case k = {.c = &c};
    world_init(&c, &k.t);
    k.w = packed(&c, &k.t);
    assert_true(left_out_all("strip", run_left_out, &k) >= 4);
    array_free(&k.w);
    world_deinit(&k.t);
}

/* Far more rows and columns than a block has. */
static void test_depthwise_of_large_images(void **state UNUSED)
{
    struct conv_case c = {.dtype = DTYPE_F16,
                          .rank = 2,
                          .n = 2,
                          .c = 16,
                          .m = 16,
                          .groups = 16,
                          .size = {70, 45},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .pad = {1, 1},
                          .pad_end = {1, 1},
                          .last = true,
                          .biased = true,
                          .epilogue = CLIP};
    check_depthwise(&c);
    c.c = c.m = c.groups = 3;
    c.size[0] = 200;
    check_depthwise(&c);
    c.c = c.m = c.groups = 256;
    c.size[0] = c.size[1] = 7;
    check_depthwise(&c);
}

static void test_depthwise_refuses_what_it_does_not_do(void **state UNUSED)
{
    struct conv_case c = {.dtype = DTYPE_F16,
                          .rank = 2,
                          .n = 1,
                          .c = 8,
                          .m = 8,
                          .groups = 8,
                          .size = {5, 5},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .dilation = {1, 1}};
    struct world t;
    struct kernel_call call = {0};
    world_init(&c, &t); /* not channels-last */
    array_poison(&t.y);
    assert_int_equal(
        kernel_depthwise(&call, &t.window, &t.x.view, t.w.view.data, NULL, &t.y.view, &t.epilogue),
        cudaErrorNotSupported);
    world_deinit(&t);
    c.last = true;
    world_init(&c, &t);
    struct kernel_view mixed = t.y.view;
    mixed.dtype = DTYPE_F32;
    assert_int_equal(
        kernel_depthwise(&call, &t.window, &t.x.view, t.w.view.data, NULL, &mixed, &t.epilogue),
        cudaErrorNotSupported);
    struct kernel_window line = t.window;
    line.spatial = 1;
    assert_int_equal(
        kernel_depthwise(&call, &line, &t.x.view, t.w.view.data, NULL, &t.y.view, &t.epilogue),
        cudaErrorNotSupported);
    assert_int_equal(kernel_conv_direct(&call, &t.window, 3, false, &t.x.view, t.w.view.data, NULL,
                                        &t.y.view, &t.epilogue),
                     cudaErrorNotSupported);
    world_deinit(&t);
}

static void test_direct_does_every_convolution(void **state UNUSED)
{
    for (int i = 0; i < 90; i++) {
        struct conv_case c = draw_case(i, 1 + i / 3 % 3);
        c.groups = array_draw(2) ? 1 : draw(1, 4);
        c.c = c.groups * draw(1, 5);
        c.m = c.groups * draw(1, 5);
        c.last = array_draw(2);
        check_direct(&c);
    }
}

static void test_direct_does_every_transposed_convolution(void **state UNUSED)
{
    for (int i = 0; i < 90; i++) {
        struct conv_case c = draw_case(i, 1 + i / 3 % 3);
        bool empty = false;
        c.transposed = true;
        c.groups = array_draw(2) ? 1 : draw(1, 4);
        c.c = c.groups * draw(1, 5);
        c.m = c.groups * draw(1, 5);
        c.last = array_draw(2);
        c.extra = (int)array_draw(3);
        for (int d = 0; d < c.rank; d++) {
            c.size[d] = draw(1, 5);
            empty = empty || out_size(&c, d) < 1;
        }
        if (!empty)
            check_direct(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_depthwise_of_any_window),
        cmocka_unit_test(test_depthwise_of_usual_windows),
        cmocka_unit_test(test_depthwise_of_large_images),
        cmocka_unit_test(test_depthwise_refuses_what_it_does_not_do),
        cmocka_unit_test(test_strips),
        cmocka_unit_test(test_strips_refuse_what_they_do_not_do),
        cmocka_unit_test(test_direct_does_every_convolution),
        cmocka_unit_test(test_direct_does_every_transposed_convolution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
