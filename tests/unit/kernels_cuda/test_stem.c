/* SPDX-License-Identifier: Apache-2.0 */
/* First layers of images on Hopper, with and without the pool behind them: floats against sums in
 * double, bytes against integers, and the kernel with one of its instructions left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/unit/kernels_cuda/left_out.h"
#include "tests/unit/kernels_cuda/probe.h"

struct stem_case {
    enum dtype x, y;
    int64_t images, channels, in[2], filters;
    int32_t kernel[2], pad[2];
    bool last, pool;
    int32_t blocks; /* multiprocessors */
    enum dtype q;   /* what floats become whose answer is in bytes */
};

struct stem_data {
    struct array x, w, bias, scale, y;
    struct kernel_stem p;
    void *packed;
    float *bias_packed, *scale_packed;
};

static bool is_byte(enum dtype dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

/* Integers from lo to hi. */
static void draw_integers(struct array *a, int lo, int hi)
{
    for (size_t i = 0; i < array_count(a); i++)
        array_values(a)[i] = (float)(lo + (int)array_draw((uint32_t)(hi - lo + 1)));
    array_store(a);
}

static void *zeroed(size_t size)
{
    void *to = NULL;
    assert_int_equal(posix_memalign(&to, 16, size), 0);
    memset(to, 0, size);
    return to;
}

static void pack(struct stem_data *d)
{
    const struct kernel_stem *p = &d->p;
    size_t size = is_byte((enum dtype)p->y_dtype) ? 1 : 2, at = 0;
    d->packed = zeroed((size_t)kernel_stem_packed(p) * size);
    d->bias_packed = zeroed((size_t)kernel_stem_filters(p->filters) * sizeof(float));
    d->scale_packed = zeroed((size_t)kernel_stem_filters(p->filters) * sizeof(float));
    for (int64_t m = 0; m < p->filters; m++) {
        d->bias_packed[m] = array_values(&d->bias)[m];
        d->scale_packed[m] = array_values(&d->scale)[m];
        for (int64_t c = 0; c < p->channels; c++)
            for (int64_t r = 0; r < p->kernel[0]; r++)
                for (int64_t s = 0; s < p->kernel[1]; s++, at++)
                    memcpy((char *)d->packed + (size_t)kernel_stem_place(p, m, c, r, s) * size,
                           (const char *)d->w.view.data + at * size, size);
    }
    d->p.weights = d->packed;
    d->p.bias = d->bias_packed;
    d->p.scale = d->scale_packed;
}

static struct stem_data data_new(const struct stem_case *c)
{
    struct stem_data d = {0};
    bool bytes = is_byte(c->y);
    int64_t out[2], rows[2];
    for (int i = 0; i < 2; i++) {
        out[i] = (c->in[i] + 2 * c->pad[i] - c->kernel[i]) / 2 + 1;
        rows[i] = c->pool ? (out[i] - 1) / 2 + 1 : out[i];
    }
    const int *order = c->last ? array_channels_last(4) : NULL;
    d.x = ARRAY(c->x, order, c->images, c->channels, c->in[0], c->in[1]);
    d.w = ARRAY(bytes ? DTYPE_I8 : c->y, NULL, c->filters, c->channels, c->kernel[0], c->kernel[1]);
    d.bias = ARRAY(DTYPE_F32, NULL, c->filters);
    d.scale = ARRAY(DTYPE_F32, NULL, c->filters);
    d.y = ARRAY(c->y, array_channels_last(4), c->images, c->filters, rows[0], rows[1]);
    if (c->x == DTYPE_U8)
        draw_integers(&d.x, 0, 255);
    if (c->x == DTYPE_I8)
        draw_integers(&d.x, -128, 127);
    if (bytes)
        draw_integers(&d.w, -127, 127);
    d.p = (struct kernel_stem){
        .images = c->images,
        .channels = c->channels,
        .filters = c->filters,
        .in = {c->in[0], c->in[1]},
        .out = {out[0], out[1]},
        .kernel = {c->kernel[0], c->kernel[1]},
        .pad = {c->pad[0], c->pad[1]},
        .x_dtype = (int32_t)c->x,
        .q_dtype = (int32_t)c->q,
        .y_dtype = (int32_t)c->y,
        .zero = bytes ? 7 : 0,
        .last = c->last,
        .pool = c->pool,
        .relu = c->filters != 40,
        .step = 0.00625F, /* not all of -1 to 1 fits into 8 bits */
        .low = c->y == DTYPE_U8 ? 3 : -128,
        .high = c->y == DTYPE_U8 ? 255 : 100,
        .x = d.x.view.data,
        .y = d.y.view.data,
    };
    for (int i = 0; i < 4 && c->x == DTYPE_U8 && !bytes; i++)
        d.p.shift[i] = -100.25F - 9 * (float)i;
    for (int64_t m = 0; m < c->filters && bytes; m++) {
        array_values(&d.scale)[m] = (1.5F + array_values(&d.scale)[m]) * 0x1p-9F;
        array_values(&d.bias)[m] *= 60;
    }
    pack(&d);
    return d;
}

static void data_free(struct stem_data *d)
{
    array_free(&d->x), array_free(&d->w), array_free(&d->bias), array_free(&d->scale);
    array_free(&d->y);
    free(d->packed), free(d->bias_packed), free(d->scale_packed);
}

/* A number of the image as it is multiplied. */
static double pixel_at(const struct stem_data *d, int64_t c, size_t at)
{
    const struct kernel_stem *p = &d->p;
    float x = array_values(&d->x)[at];
    if (p->x_dtype == DTYPE_U8 || p->x_dtype == DTYPE_I8)
        return x + (double)p->shift[c];
    if (p->y_dtype == DTYPE_F16)
        return (double)f16_to_f32(f32_to_f16(x));
    if (p->y_dtype == DTYPE_BF16)
        return (double)bf16_to_f32(f32_to_bf16(x));
    float least = p->q_dtype == DTYPE_I8 ? -128 : 0;
    return (double)fminf(fmaxf(rintf(x / p->step) + (float)p->zero, least), least + 255);
}

/* The convolution at one place. */
static double sum_at(const struct stem_data *d, int64_t n, int64_t m, int64_t line, int64_t column)
{
    const struct kernel_stem *p = &d->p;
    bool bytes = is_byte((enum dtype)p->y_dtype);
    double sum = 0;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t r = 0; r < p->kernel[0]; r++)
            for (int64_t s = 0; s < p->kernel[1]; s++) {
                int64_t h = 2 * line - p->pad[0] + r, v = 2 * column - p->pad[1] + s;
                double x = bytes ? p->zero : 0;
                if (h >= 0 && h < p->in[0] && v >= 0 && v < p->in[1])
                    x = pixel_at(d, c,
                                 (size_t)(((n * p->channels + c) * p->in[0] + h) * p->in[1] + v));
                sum +=
                    x * array_values(
                            &d->w)[((m * p->channels + c) * p->kernel[0] + r) * p->kernel[1] + s];
            }
    return sum;
}

static float finish(const struct stem_data *d, int64_t m, double sum)
{
    const struct kernel_stem *p = &d->p;
    if (is_byte((enum dtype)p->y_dtype))
        return rintf(
            fminf(fmaxf(fmaf((float)sum, d->scale_packed[m], d->bias_packed[m]), p->low), p->high));
    sum += d->bias_packed[m];
    return (float)(p->relu && sum < 0 ? 0 : sum);
}

static void reference(struct stem_data *d)
{
    const struct kernel_stem *p = &d->p;
    int64_t rows = d->y.view.dim[2], columns = d->y.view.dim[3], reach = p->pool ? 1 : 0;
    float *y = array_values(&d->y);
    for (int64_t i = 0; i < (int64_t)array_count(&d->y); i++) {
        int64_t q = i % columns, h = i / columns % rows, m = i / columns / rows % p->filters;
        int64_t n = i / columns / rows / p->filters, step = p->pool ? 2 : 1;
        double most = -INFINITY;
        for (int64_t a = h * step - reach; a <= h * step + reach; a++)
            for (int64_t b = q * step - reach; b <= q * step + reach; b++)
                if (a >= 0 && b >= 0 && a < p->out[0] && b < p->out[1])
                    most = fmax(most, sum_at(d, n, m, a, b));
        y[i] = finish(d, m, most);
    }
}

static bool is_taken(const struct kernel_stem *p)
{
    struct kernel_call dry = {.dry = true, .multiprocessors = 132, .capability = 90};
    return kernel_stem(&dry, p) == cudaSuccess;
}

static void check_case(const struct stem_case *c)
{
    struct stem_data d = data_new(c);
    struct kernel_call call = {.multiprocessors = c->blocks, .capability = 90};
    char what[120];
    snprintf(what, sizeof(what), "%s to %s, %d images of %dx%dx%d, %d filters of %dx%d%s%s",
             dtype_name(c->x), dtype_name(c->y), (int)c->images, (int)c->in[0], (int)c->in[1],
             (int)c->channels, (int)c->filters, (int)c->kernel[0], (int)c->kernel[1],
             c->last ? ", channels last" : "", c->pool ? ", pool" : "");
    reference(&d);
    array_poison(&d.y);
    assert_true(is_taken(&d.p));
    assert_int_equal(kernel_stem(&call, &d.p), cudaSuccess);
    double rounding = c->y == DTYPE_F16 ? 0x1p-11 : 0x1p-8, wide = c->x == DTYPE_U8 ? 255 : 1;
    /* what a shifted byte is rounded by */
    double each = c->x == DTYPE_U8 ? rounding * wide * 2 : 0;
    array_check(&d.y, is_byte(c->y) ? 0 : 3e-4 + each, what);
    data_free(&d);
}

/* Both layouts and types of images, tiles of which a line has several, lines and images in one
 * block's share, odd sides, every number of channels, windows of one side to eight. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct stem_case cases[] = {
        {DTYPE_F16, DTYPE_F16, 2, 3, {24, 32}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 2, 3, {20, 24}, 64, {7, 7}, {3, 3}, true, true, 2, DTYPE_NONE},
        {DTYPE_U8, DTYPE_F16, 1, 3, {12, 260}, 64, {7, 7}, {3, 3}, false, true, 3, DTYPE_NONE},
        {DTYPE_U8, DTYPE_F16, 2, 3, {13, 36}, 40, {7, 7}, {3, 3}, true, true, 132, DTYPE_NONE},
        {DTYPE_U8, DTYPE_F16, 2, 3, {17, 19}, 96, {7, 7}, {3, 3}, true, true, 2, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 2, 3, {11, 13}, 32, {3, 3}, {1, 1}, false, false, 2, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 1, 3, {6, 236}, 40, {3, 3}, {0, 0}, true, false, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_F16, 1, 1, {9, 28}, 64, {5, 5}, {2, 2}, false, false, 1, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 1, 2, {10, 12}, 64, {4, 4}, {1, 1}, true, true, 1, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 1, 4, {14, 16}, 64, {7, 7}, {3, 3}, true, true, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_F16, 1, 4, {8, 10}, 64, {3, 3}, {1, 1}, false, true, 1, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 1, 3, {16, 14}, 34, {8, 6}, {2, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_BF16, DTYPE_BF16, 1, 3, {12, 20}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_BF16, 1, 3, {8, 12}, 64, {3, 3}, {1, 1}, true, false, 1, DTYPE_NONE},
        {DTYPE_F16, DTYPE_F16, 1, 3, {1, 1}, 64, {1, 2}, {0, 1}, false, true, 1, DTYPE_NONE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

/* Images in FP32, as models have them: no kernel has brought them to another type or layout. */
static void test_floats(void **state)
{
    (void)state;
    static const struct stem_case cases[] = {
        {DTYPE_F32, DTYPE_F16, 2, 3, {24, 32}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 3, {13, 15}, 40, {7, 7}, {3, 3}, false, true, 2, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 4, {10, 12}, 64, {3, 3}, {1, 1}, true, false, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 4, {9, 11}, 34, {5, 5}, {2, 2}, false, true, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 4, {14, 16}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 1, {8, 236}, 64, {3, 3}, {1, 1}, false, false, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_F16, 1, 2, {11, 10}, 64, {4, 6}, {1, 2}, true, true, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_BF16, 1, 3, {12, 260}, 64, {7, 7}, {3, 3}, false, true, 3, DTYPE_NONE},
        {DTYPE_F32, DTYPE_U8, 2, 3, {20, 32}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_U8},
        {DTYPE_F32, DTYPE_I8, 1, 3, {12, 236}, 96, {7, 7}, {3, 3}, false, true, 2, DTYPE_I8},
        {DTYPE_F32, DTYPE_U8, 1, 3, {15, 17}, 64, {7, 7}, {3, 3}, false, true, 1, DTYPE_I8},
        {DTYPE_F32, DTYPE_I8, 1, 4, {10, 12}, 32, {3, 3}, {1, 1}, true, false, 1, DTYPE_U8},
        {DTYPE_F32, DTYPE_U8, 1, 1, {9, 11}, 34, {5, 5}, {2, 2}, true, true, 1, DTYPE_I8},
        {DTYPE_F32, DTYPE_I8, 1, 2, {9, 13}, 64, {3, 3}, {0, 1}, true, false, 1, DTYPE_U8},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct stem_case cases[] = {
        {DTYPE_U8, DTYPE_U8, 2, 3, {20, 32}, 64, {7, 7}, {3, 3}, true, true, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_I8, 1, 3, {12, 236}, 96, {7, 7}, {3, 3}, false, true, 2, DTYPE_NONE},
        {DTYPE_I8, DTYPE_I8, 2, 3, {15, 17}, 64, {7, 7}, {3, 3}, true, true, 1, DTYPE_NONE},
        {DTYPE_I8, DTYPE_U8, 1, 4, {10, 12}, 32, {3, 3}, {1, 1}, true, false, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_U8, 1, 1, {9, 11}, 34, {5, 5}, {2, 2}, false, true, 1, DTYPE_NONE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&cases[i]);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct kernel_stem taken = {
        .images = 2,
        .channels = 3,
        .filters = 64,
        .in = {16, 16},
        .out = {8, 8},
        .kernel = {7, 7},
        .pad = {3, 3},
        .x_dtype = DTYPE_F16,
        .y_dtype = DTYPE_F16,
    };
    struct kernel_stem p = taken;
    assert_true(is_taken(&p));
    p.channels = 5;
    assert_false(is_taken(&p));
    p = taken, p.filters = 63;
    assert_false(is_taken(&p));
    p = taken, p.kernel[0] = 8; /* with an odd pad, five taps of cells */
    assert_false(is_taken(&p));
    p = taken, p.kernel[1] = 9, p.pad[1] = 0;
    assert_false(is_taken(&p));
    p = taken, p.pad[1] = 7;
    assert_false(is_taken(&p));
    p = taken, p.x_dtype = DTYPE_I8;
    assert_false(is_taken(&p));
    p = taken, p.x_dtype = DTYPE_F32;
    assert_true(is_taken(&p));
    p.y_dtype = DTYPE_U8; /* of which type, by which step */
    assert_false(is_taken(&p));
    p.q_dtype = DTYPE_U8;
    assert_false(is_taken(&p));
    p.step = 0.5F;
    assert_true(is_taken(&p));
    p.zero = -1;
    assert_false(is_taken(&p));
    p = taken, p.y_dtype = DTYPE_F32;
    assert_false(is_taken(&p));
    p = taken, p.images = INT64_C(1) << 31;
    assert_false(is_taken(&p));
    p = taken;
    struct kernel_call older = {.dry = true, .multiprocessors = 132, .capability = 80};
    assert_int_equal(kernel_stem(&older, &p), cudaErrorNotSupported);
}

/* --- faults on purpose --- */

static bool answer_is_right(const struct stem_data *d)
{
    const float *want = array_values(&d->y);
    const void *got = d->y.view.data;
    bool bytes = d->p.y_dtype == DTYPE_U8;
    for (size_t i = 0; i < array_count(&d->y); i++) {
        size_t columns = (size_t)d->y.view.dim[3], rows = (size_t)d->y.view.dim[2];
        size_t m = i / columns / rows % (size_t)d->p.filters;
        size_t n = i / columns / rows / (size_t)d->p.filters;
        size_t pixel = (n * rows + i / columns % rows) * columns + i % columns;
        size_t at = pixel * (size_t)d->p.filters + m;
        float v = bytes ? ((const uint8_t *)got)[at] : f16_to_f32(((const uint16_t *)got)[at]);
        if (!(fabsf(v - want[i]) <= (bytes ? 0 : 2e-3F * fmaxf(1, fabsf(want[i])))))
            return false;
    }
    return true;
}

/* What is run again and again; sums are taken once. */
struct left_out {
    struct kernel_call call;
    struct stem_data d;
};

static int run_left_out(const void *user)
{
    const struct left_out *k = user;
    array_poison(&k->d.y);
    return kernel_stem(&k->call, &k->d.p) != cudaSuccess || !answer_is_right(&k->d);
}

static int left_out_of(const struct stem_case *c, const char *what)
{
    struct left_out k = {{.multiprocessors = c->blocks, .capability = 90}, data_new(c)};
    reference(&k.d);
    int faults = left_out_all(what, run_left_out, &k);
    data_free(&k.d);
    return faults;
}

/* Leaves out one wait, arrival, fence or commit after the other. A block has lines of two images,
 * and more of them than shared memory, so that each of these is needed. */
static void test_left_out(void **state)
{
    (void)state;
    static const struct stem_case cases[] = {
        {DTYPE_F16, DTYPE_F16, 3, 3, {36, 12}, 16, {7, 7}, {3, 3}, true, true, 1, DTYPE_NONE},
        {DTYPE_U8, DTYPE_U8, 3, 3, {36, 12}, 16, {7, 7}, {3, 3}, false, true, 1, DTYPE_NONE},
        {DTYPE_F32, DTYPE_U8, 3, 3, {36, 12}, 16, {7, 7}, {3, 3}, false, true, 1, DTYPE_I8},
    };
    int faults = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int first = probe_sites(), least = 8;
        char what[32];
        snprintf(what, sizeof(what), "case %d", (int)i);
        faults += left_out_of(&cases[i], what);
        assert_true(probe_sites() - first >= least);
    }
    print_message("%d faults found\n", faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out), /* first: places that have not been seen are its own */
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_floats),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
