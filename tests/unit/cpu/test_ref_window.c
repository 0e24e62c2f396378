/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution, its transpose, pooling and resizing. The expectation is the definition, written as
 * one loop over every index without any of the kernels' blocking.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

enum { MOST = 1 << 16 };

static float xs[MOST], ws[MOST], bs[64], ys[MOST], want[MOST];

static int setup(void **state UNUSED)
{
    fill_random(xs, MOST, 1);
    fill_random(ws, MOST, 2);
    fill_random(bs, 64, 3);
    return 0;
}

struct conv_case {
    int64_t n, c, h, w, m, group, kh, kw;
    int64_t stride[2], dilation[2], pad[4]; /* top, left, bottom, right */
    bool bias;
};

static const struct conv_case conv_cases[] = {
    {1, 1, 3, 3, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0, 0, 0}, false},
    {2, 3, 7, 9, 5, 1, 3, 3, {1, 1}, {1, 1}, {1, 1, 1, 1}, true},
    {1, 4, 8, 8, 12, 1, 3, 2, {2, 3}, {1, 1}, {0, 1, 2, 0}, true},
    {1, 6, 9, 9, 6, 6, 3, 3, {1, 1}, {2, 2}, {2, 2, 2, 2}, true},
    {2, 6, 5, 7, 9, 3, 2, 3, {2, 1}, {1, 2}, {1, 0, 0, 3}, false},
    {1, 2, 3, 300, 3, 1, 1, 5, {1, 1}, {1, 1}, {0, 2, 0, 2}, true},
    {1, 2, 3, 300, 10, 1, 1, 5, {1, 2}, {1, 3}, {0, 7, 0, 6}, true},
    {1, 1, 2, 2, 1, 1, 3, 3, {1, 1}, {1, 1}, {3, 3, 3, 3}, true}, /* padding wider than the image */
};

static struct ref_window window_of(const struct conv_case *c)
{
    struct ref_window win = {.rank = 2, .kernel = {c->kh, c->kw}};
    for (int d = 0; d < 2; d++) {
        win.strides[d] = c->stride[d];
        win.dilations[d] = c->dilation[d];
        win.pads[d] = c->pad[d];
    }
    return win;
}

static double conv_at(const struct conv_case *c, int64_t n, int64_t m, int64_t oy, int64_t ox)
{
    int64_t per = c->c / c->group, first = m / (c->m / c->group) * per;
    double sum = c->bias ? (double)bs[m] : 0;
    for (int64_t i = 0; i < per; i++)
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t kx = 0; kx < c->kw; kx++) {
                int64_t y = oy * c->stride[0] + ky * c->dilation[0] - c->pad[0];
                int64_t x = ox * c->stride[1] + kx * c->dilation[1] - c->pad[1];
                if (y >= 0 && y < c->h && x >= 0 && x < c->w)
                    sum += (double)xs[((n * c->c + first + i) * c->h + y) * c->w + x] *
                           (double)ws[((m * per + i) * c->kh + ky) * c->kw + kx];
            }
    return sum;
}

static void test_conv(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(conv_cases); i++) {
        const struct conv_case *c = &conv_cases[i];
        struct ref_window win = window_of(c);
        int64_t oh =
            (c->h + c->pad[0] + c->pad[2] - (c->kh - 1) * c->dilation[0] - 1) / c->stride[0];
        int64_t ow =
            (c->w + c->pad[1] + c->pad[3] - (c->kw - 1) * c->dilation[1] - 1) / c->stride[1];
        oh++;
        ow++;
        size_t n = 0;
        for (int64_t image = 0; image < c->n; image++)
            for (int64_t m = 0; m < c->m; m++)
                for (int64_t y = 0; y < oh; y++)
                    for (int64_t x = 0; x < ow; x++)
                        want[n++] = (float)conv_at(c, image, m, y, x);
        struct tensor_view x = VIEW(DTYPE_F32, xs, c->n, c->c, c->h, c->w);
        struct tensor_view w = VIEW(DTYPE_F32, ws, c->m, c->c / c->group, c->kh, c->kw);
        struct tensor_view b = VIEW(DTYPE_F32, bs, c->m);
        struct tensor_view y = POISONED(DTYPE_F32, ys, c->n, c->m, oh, ow);
        ref_conv(&win, c->group, &x, &w, c->bias ? &b : NULL, &y);
        assert_floats(ys, want, n, 1e-6);
    }
}

/* A transposed convolution is the adjoint: scatter what the convolution would gather. */
static void test_deconv(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(conv_cases); i++) {
        const struct conv_case *c = &conv_cases[i];
        if (c->pad[0] > 2) /* its output would be empty */
            continue;
        struct ref_window win = window_of(c);
        int64_t per = c->m / c->group, in_per = c->c / c->group;
        int64_t oh =
            (c->h - 1) * c->stride[0] + (c->kh - 1) * c->dilation[0] + 1 - c->pad[0] - c->pad[2];
        int64_t ow =
            (c->w - 1) * c->stride[1] + (c->kw - 1) * c->dilation[1] + 1 - c->pad[1] - c->pad[3];
        int64_t total = c->n * c->m * oh * ow;
        static double sums[MOST];
        assert_in_range(total, 1, MOST);
        for (int64_t k = 0; k < total; k++)
            sums[k] = c->bias ? (double)bs[k / (oh * ow) % c->m] : 0;
        for (int64_t k = 0; k < c->n * c->c * c->h * c->w * per * c->kh * c->kw; k++) {
            int64_t r = k, kx = r % c->kw, ky = (r /= c->kw) % c->kh, m = (r /= c->kh) % per;
            int64_t x = (r /= per) % c->w, y = (r /= c->w) % c->h, in = (r /= c->h) % c->c;
            int64_t image = r / c->c, out = in / in_per * per + m;
            int64_t oy = y * c->stride[0] + ky * c->dilation[0] - c->pad[0];
            int64_t ox = x * c->stride[1] + kx * c->dilation[1] - c->pad[1];
            if (oy >= 0 && oy < oh && ox >= 0 && ox < ow)
                sums[((image * c->m + out) * oh + oy) * ow + ox] +=
                    (double)xs[((image * c->c + in) * c->h + y) * c->w + x] *
                    (double)ws[((in * per + m) * c->kh + ky) * c->kw + kx];
        }
        for (int64_t k = 0; k < total; k++)
            want[k] = (float)sums[k];
        struct tensor_view x = VIEW(DTYPE_F32, xs, c->n, c->c, c->h, c->w);
        struct tensor_view w = VIEW(DTYPE_F32, ws, c->c, per, c->kh, c->kw);
        struct tensor_view b = VIEW(DTYPE_F32, bs, c->m);
        struct tensor_view y = POISONED(DTYPE_F32, ys, c->n, c->m, oh, ow);
        ref_deconv(&win, c->group, &x, &w, c->bias ? &b : NULL, &y);
        assert_floats(ys, want, (size_t)total, 1e-6);
    }
}

/* One and three spatial dims, by comparison with two: dims of one element change nothing. */
static void test_conv_of_other_ranks(void **state UNUSED)
{
    struct ref_window two = {
        .rank = 2, .kernel = {1, 3}, .strides = {1, 2}, .dilations = {1, 1}, .pads = {0, 1}};
    struct ref_window one = {
        .rank = 1, .kernel = {3}, .strides = {2}, .dilations = {1}, .pads = {1}};
    struct tensor_view x = VIEW(DTYPE_F32, xs, 2, 3, 1, 10), w = VIEW(DTYPE_F32, ws, 4, 3, 1, 3);
    struct tensor_view y = POISONED(DTYPE_F32, want, 2, 4, 1, 5);
    ref_conv(&two, 1, &x, &w, NULL, &y);
    x = VIEW(DTYPE_F32, xs, 2, 3, 10);
    w = VIEW(DTYPE_F32, ws, 4, 3, 3);
    y = POISONED(DTYPE_F32, ys, 2, 4, 5);
    ref_conv(&one, 1, &x, &w, NULL, &y);
    assert_floats(ys, want, 40, 0);

    /* Three dims: each output plane is a sum of plane convolutions over the kernel's depth. */
    struct ref_window three = {.rank = 3,
                               .kernel = {2, 3, 3},
                               .strides = {1, 1, 1},
                               .dilations = {1, 1, 1},
                               .pads = {0, 1, 1}};
    struct ref_window plane = {
        .rank = 2, .kernel = {3, 3}, .strides = {1, 1}, .dilations = {1, 1}, .pads = {1, 1}};
    enum { DEPTH = 3, AREA = 20 };
    x = VIEW(DTYPE_F32, xs, 1, 1, DEPTH, 4, 5);
    w = VIEW(DTYPE_F32, ws, 1, 1, 2, 3, 3);
    y = POISONED(DTYPE_F32, ys, 1, 1, DEPTH - 1, 4, 5);
    ref_conv(&three, 1, &x, &w, NULL, &y);
    for (int d = 0; d < DEPTH - 1; d++) {
        float part[2][AREA];
        for (int k = 0; k < 2; k++) {
            struct tensor_view px = VIEW(DTYPE_F32, xs + (d + k) * AREA, 1, 1, 4, 5);
            struct tensor_view pw = VIEW(DTYPE_F32, ws + k * 9, 1, 1, 3, 3);
            struct tensor_view py = POISONED(DTYPE_F32, part[k], 1, 1, 4, 5);
            ref_conv(&plane, 1, &px, &pw, NULL, &py);
        }
        for (int i = 0; i < AREA; i++)
            want[d * AREA + i] = part[0][i] + part[1][i];
    }
    assert_floats(ys, want, (DEPTH - 1) * AREA, 1e-6);
}

static void test_conv_half_and_double(void **state UNUSED)
{
    struct ref_window win = {.rank = 1, .kernel = {2}, .strides = {1}, .dilations = {1}};
    uint16_t x[3] = {f32_to_f16(1), f32_to_f16(2048), f32_to_f16(1)}, w[2], y[2];
    w[0] = w[1] = f32_to_f16(1);
    struct tensor_view vx = VIEW(DTYPE_F16, x, 1, 1, 3), vw = VIEW(DTYPE_F16, w, 1, 1, 2);
    struct tensor_view vy = POISONED(DTYPE_F16, y, 1, 1, 2);
    ref_conv(&win, 1, &vx, &vw, NULL, &vy);
    /* 2049 is half way between two halves: rounded to even */
    assert_int_equal(y[0], f32_to_f16(2048));
    double dx[3] = {1, 0x1p40, 3}, dw[2] = {1, 1}, dy[2];
    const double sums[2] = {0x1p40 + 1, 0x1p40 + 3};
    vx = VIEW(DTYPE_F64, dx, 1, 1, 3);
    vw = VIEW(DTYPE_F64, dw, 1, 1, 2);
    vy = POISONED(DTYPE_F64, dy, 1, 1, 2);
    ref_conv(&win, 1, &vx, &vw, NULL, &vy);
    assert_doubles(dy, sums, 2, 0);
}

/* --- pooling --- */

static void test_pool(void **state UNUSED)
{
    enum { H = 5, W = 6, OH = 3, OW = 3 };
    struct ref_pooling pool = {
        .win =
            {.rank = 2, .kernel = {3, 2}, .strides = {2, 2}, .dilations = {1, 1}, .pads = {1, 0}},
        .ends = {1, 0},
        .p = 2,
    };
    static int64_t index[2 * OH * OW];
    for (int kind = 0; kind < 4; kind++) { /* max, average, average with padding, Lp */
        pool.func = kind == 0 ? IR_POOL_MAX : kind == 3 ? IR_POOL_LP : IR_POOL_AVERAGE;
        pool.count_include_pad = kind == 2;
        int64_t best_at[2 * OH * OW];
        for (int o = 0; o < 2 * OH * OW; o++) {
            int plane = o / (OH * OW), oy = o / OW % OH, ox = o % OW, count = 0;
            double sum = 0, squares = 0, best = -INFINITY;
            for (int y = oy * 2 - 1; y < oy * 2 + 2; y++)
                for (int x = ox * 2; x < ox * 2 + 2; x++) {
                    if (y < 0 || y >= H)
                        continue;
                    double v = (double)xs[(plane * H + y) * W + x];
                    count++;
                    sum += v;
                    squares += v * v;
                    if (v > best) {
                        best = v;
                        best_at[o] = (plane * H + y) * W + x;
                    }
                }
            const double values[4] = {best, sum / count, sum / 6, sqrt(squares)};
            want[o] = (float)values[kind];
        }
        struct tensor_view x = VIEW(DTYPE_F32, xs, 1, 2, H, W);
        struct tensor_view y = POISONED(DTYPE_F32, ys, 1, 2, OH, OW);
        struct tensor_view at = POISONED(DTYPE_I64, index, 1, 2, OH, OW);
        ref_pool(&pool, &x, &y, kind == 0 ? &at : NULL);
        assert_floats(ys, want, 2 * OH * OW, 1e-6);
        if (kind == 0)
            assert_ints(&at, best_at, 2 * OH * OW);
    }
}

/* In ceil mode a window may reach beyond the padding. Places beyond the padding are never
 * counted. */
static void test_pool_ceil_mode_counts_padding_only(void **state UNUSED)
{
    struct ref_pooling pool = {
        .func = IR_POOL_AVERAGE,
        .win = {.rank = 1, .kernel = {3}, .strides = {2}, .dilations = {1}, .pads = {1}},
        .ends = {1},
        .count_include_pad = true,
    };
    float x[6] = {3, 6, 9, 12, 15, 18}, y[4];
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 6), vy = POISONED(DTYPE_F32, y, 1, 1, 4);
    ref_pool(&pool, &vx, &vy, NULL);
    assert_floats(y, (const float[]){3, 9, 15, 9}, 4, 1e-6); /* the last: (18 + 0) / 2 */
}

static void test_pool_max_of_ints_and_nan(void **state UNUSED)
{
    struct ref_pooling pool = {
        .func = IR_POOL_MAX,
        .win = {.rank = 1, .kernel = {2}, .strides = {2}, .dilations = {2}, .pads = {1}},
    };
    int8_t x[4] = {-100, -50, -128, -127}, y[2];
    struct tensor_view vx = VIEW(DTYPE_I8, x, 1, 1, 4), vy = POISONED(DTYPE_I8, y, 1, 1, 2);
    ref_pool(&pool, &vx, &vy, NULL);
    assert_ints(&vy, (const int64_t[]){-50, -50}, 2);
    uint8_t u[4] = {1, 200, 3, 100}, v[2];
    struct tensor_view vu = VIEW(DTYPE_U8, u, 1, 1, 4), vv = POISONED(DTYPE_U8, v, 1, 1, 2);
    ref_pool(&pool, &vu, &vv, NULL);
    assert_ints(&vv, (const int64_t[]){200, 200}, 2);
    float f[4] = {1, NAN, 2, 5}, g[2];
    struct tensor_view vf = VIEW(DTYPE_F32, f, 1, 1, 4), vg = POISONED(DTYPE_F32, g, 1, 1, 2);
    memset(g, 0, sizeof(g));
    ref_pool(&pool, &vf, &vg, NULL);
    assert_floats(g, (const float[]){(float)NAN, (float)NAN}, 2, 0);
}

/* --- resize --- */

static struct ref_resize resize_of(enum ir_resize mode, enum ir_coord coord, double sy, double sx)
{
    return (struct ref_resize){
        .mode = mode, .coord = coord, .cubic_a = -0.75, .scales = {1, 1, sy, sx}};
}

static void test_resize_nearest(void **state UNUSED)
{
    float x[4] = {1, 2, 3, 4}, y[16];
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_ASYMMETRIC, 2, 2);
    how.nearest = IR_NEAREST_FLOOR;
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 2, 2), vy = POISONED(DTYPE_F32, y, 1, 1, 4, 4);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, 16, 0);
    how.nearest = IR_NEAREST_CEIL;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){1, 2, 2, 2, 3, 4, 4, 4, 3, 4, 4, 4, 3, 4, 4, 4}, 16, 0);
}

/* Half way between samples the two rounding modes differ. */
static void test_resize_nearest_prefers(void **state UNUSED)
{
    float x[4] = {1, 2, 3, 4}, y[2];
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL, 1, 0.5);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 4), vy = POISONED(DTYPE_F32, y, 1, 1, 1, 2);
    how.nearest = IR_NEAREST_ROUND_PREFER_FLOOR; /* at 0.5 and 2.5 */
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){1, 3}, 2, 0);
    how.nearest = IR_NEAREST_ROUND_PREFER_CEIL;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){2, 4}, 2, 0);
}

static void test_resize_linear(void **state UNUSED)
{
    float x[4] = {1, 2, 3, 4}, y[16];
    struct ref_resize how = resize_of(IR_RESIZE_LINEAR, IR_COORD_HALF_PIXEL, 1, 2);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 2, 2), vy = POISONED(DTYPE_F32, y, 1, 1, 2, 4);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){1, 1.25f, 1.75f, 2, 3, 3.25f, 3.75f, 4}, 8, 1e-6);
    how = resize_of(IR_RESIZE_LINEAR, IR_COORD_ALIGN_CORNERS, 2, 2);
    vy = POISONED(DTYPE_F32, y, 1, 1, 4, 4);
    ref_resize(&how, &vx, &vy, NULL);
    for (int i = 0; i < 16; i++) {
        float v = 1 + (float)(i % 4) / 3 + 2 * (float)(i / 4) / 3;
        assert_floats(y + i, &v, 1, 1e-6);
    }
}

/* The weights of a cubic sum to one, and a straight line stays straight away from the borders. */
static void test_resize_cubic(void **state UNUSED)
{
    enum { IN = 12, OUT = 30 };
    float x[IN], y[OUT];
    for (int i = 0; i < IN; i++)
        x[i] = (float)i;
    struct ref_resize how = resize_of(IR_RESIZE_CUBIC, IR_COORD_HALF_PIXEL, 1, 2.5);
    how.cubic_a = -0.5; /* for which lines are exact */
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, IN);
    struct tensor_view vy = POISONED(DTYPE_F32, y, 1, 1, 1, OUT);
    ref_resize(&how, &vx, &vy, NULL);
    for (int i = 4; i < OUT - 5; i++) {
        float v = ((float)i + 0.5f) / 2.5f - 0.5f;
        assert_floats(y + i, &v, 1, 1e-5);
    }
    for (int i = 0; i < IN; i++)
        x[i] = 3;
    for (int exclude = 0; exclude < 2; exclude++) {
        how.exclude_outside = exclude;
        how.cubic_a = -0.75;
        vy = POISONED(DTYPE_F32, y, 1, 1, 1, OUT);
        ref_resize(&how, &vx, &vy, NULL);
        for (int i = 0; i < OUT; i++)
            assert_floats(y + i, (const float[]){3}, 1, 1e-6);
    }
}

static void test_resize_crop(void **state UNUSED)
{
    float x[5] = {0, 1, 2, 3, 4}, y[3];
    struct ref_resize how = resize_of(IR_RESIZE_LINEAR, IR_COORD_TF_CROP, 1, 1);
    how.value = -7;
    for (int d = 0; d < 4; d++)
        how.roi_end[d] = 1;
    how.roi_start[3] = 0.5; /* from 2 to 6: the last one is outside */
    how.roi_end[3] = 1.5;
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 5), vy = POISONED(DTYPE_F32, y, 1, 1, 1, 3);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(y, (const float[]){2, 4, -7}, 3, 1e-6);
}

/* Half the size: each output pixel is a weighted mean of the pixels that it covers and a few around
 * them. */
static void test_resize_antialias(void **state UNUSED)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint64_t scratch[128];
    struct ref_resize how = resize_of(IR_RESIZE_LINEAR, IR_COORD_HALF_PIXEL, 1, 0.5);
    how.antialias = true;
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 8),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 4);
    assert_true(ref_resize_scratch(&how, 4) <= sizeof(scratch));
    ref_resize(&how, &vx, &vy, scratch);
    /* taps at 1/4, 3/4, 3/4, 1/4 of half their weight; the first one lies outside */
    assert_floats(ys, (float[]){1.625F, 3.5F, 5.5F, 7.375F}, 4, 1e-6);
    how.exclude_outside = true;
    ref_resize(&how, &vx, &vy, scratch);
    assert_floats(
        ys,
        (float[]){(0.75F + 1.5F + 0.75F) / 1.75F, 3.5F, 5.5F, 9 - (0.75F + 1.5F + 0.75F) / 1.75F},
        4, 1e-6);
    how.mode = IR_RESIZE_CUBIC; /* a constant stays one, whatever the factor */
    for (int i = 0; i < 8; i++)
        x[i] = 3;
    how.scales[3] = 3.0 / 8;
    vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 3);
    ref_resize(&how, &vx, &vy, scratch);
    assert_floats(ys, (float[]){3, 3, 3}, 3, 1e-6);
}

/* 5 pixels at a scale of 0.5 are 2.5, of which the middle two are given. */
static void test_resize_symmetric(void **state UNUSED)
{
    float x[5] = {1, 2, 3, 4, 5};
    struct ref_resize how = resize_of(IR_RESIZE_LINEAR, IR_COORD_HALF_PIXEL_SYMMETRIC, 1, 0.5);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 5),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 2);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){2, 4}, 2, 1e-6);
}

/* 0.9 is not a float. Its rounding must not decide where half way between two samples is. */
static void test_resize_symmetric_ties(void **state UNUSED)
{
    float x[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL_SYMMETRIC, 1, 0.9f);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 10),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 9);
    how.nearest = IR_NEAREST_ROUND_PREFER_CEIL;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){0, 1, 2, 3, 5, 6, 7, 8, 9}, 9, 0);
    how.nearest = IR_NEAREST_ROUND_PREFER_FLOOR;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){0, 1, 2, 3, 4, 6, 7, 8, 9}, 9, 0);
}

/* A place that falls on a sample gives that sample, in each rounding mode: 10.5 * 10 / 14 - 0.5 is
 * 7. */
static void test_resize_whole_positions(void **state UNUSED)
{
    float x[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL, 1, 1.4f);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 10),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 14);
    how.nearest = IR_NEAREST_CEIL;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9}, 14, 0);
    how = resize_of(IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL_SYMMETRIC, 1, 0.5); /* 7 to 3.5 */
    how.nearest = IR_NEAREST_CEIL;
    vx = VIEW(DTYPE_F32, x, 1, 1, 1, 7);
    vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 3);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){1, 3, 5}, 3, 0);
}

/* The place of the pixel's centre is rounded down, without taking off the half pixel again. */
static void test_resize_tf_half_pixel(void **state UNUSED)
{
    float x[5] = {0, 1, 2, 3, 4};
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_TF_HALF_PIXEL_NN, 1, 0.6f);
    struct tensor_view vx = VIEW(DTYPE_F32, x, 1, 1, 1, 5),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 1, 3);
    how.nearest = IR_NEAREST_FLOOR; /* 0.83, 2.5, 4.17 */
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){0, 2, 4}, 3, 0);
    how.nearest = IR_NEAREST_CEIL;
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, (float[]){1, 3, 4}, 3, 0);
}

/* 12 x 11 to 10 x 9 at a scale of 10 / 12 for both: the third of the 9 is half way, at 2.5. */
static void test_resize_kept_ratio_ties(void **state UNUSED)
{
    float scale = (float)(10.0 / 12);
    const int rows[10] = {0, 1, 2, 4, 5, 6, 7, 8, 10, 11},
              columns[9] = {0, 1, 2, 4, 5, 6, 7, 8, 10};
    struct ref_resize how = resize_of(IR_RESIZE_NEAREST, IR_COORD_HALF_PIXEL, scale, scale);
    struct tensor_view vx = VIEW(DTYPE_F32, xs, 1, 1, 12, 11),
                       vy = POISONED(DTYPE_F32, ys, 1, 1, 10, 9);
    for (int i = 0; i < 12 * 11; i++)
        xs[i] = (float)i;
    for (int i = 0; i < 10 * 9; i++)
        want[i] = (float)(rows[i / 9] * 11 + columns[i % 9]);
    ref_resize(&how, &vx, &vy, NULL);
    assert_floats(ys, want, 10 * 9, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_deconv),
        cmocka_unit_test(test_conv_of_other_ranks),
        cmocka_unit_test(test_conv_half_and_double),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_ceil_mode_counts_padding_only),
        cmocka_unit_test(test_pool_max_of_ints_and_nan),
        cmocka_unit_test(test_resize_nearest),
        cmocka_unit_test(test_resize_nearest_prefers),
        cmocka_unit_test(test_resize_linear),
        cmocka_unit_test(test_resize_cubic),
        cmocka_unit_test(test_resize_crop),
        cmocka_unit_test(test_resize_antialias),
        cmocka_unit_test(test_resize_symmetric),
        cmocka_unit_test(test_resize_symmetric_ties),
        cmocka_unit_test(test_resize_whole_positions),
        cmocka_unit_test(test_resize_tf_half_pixel),
        cmocka_unit_test(test_resize_kept_ratio_ties),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
