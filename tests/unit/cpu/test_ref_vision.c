/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling, regions, suppression of boxes, determinants. Expectations are written down by hand, or
 * computed another way than in the kernel: sampling at whole places reads the tensor, a linear ramp
 * is interpolated exactly, and a suppression is checked by its definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

enum { MOST = 1 << 14 };

static float xs[MOST], ws[MOST], ys[MOST], want[MOST];

static int setup(void **state UNUSED)
{
    fill_random(xs, MOST, 1);
    fill_random(ws, MOST, 2);
    return 0;
}

/* --- sample --- */

static void sample_one(const struct ref_sample *how, float *image, int64_t h, int64_t w, float x,
                       float y, float expected)
{
    float at[2] = {x, y}, out[1];
    struct tensor_view vx = VIEW(DTYPE_F32, image, 1, 1, h, w);
    struct tensor_view grid = VIEW(DTYPE_F32, at, 1, 1, 2);
    struct tensor_view vy = POISONED(DTYPE_F32, out, 1, 1, 1);
    ref_sample(how, &vx, &grid, &vy);
    assert_floats(out, &expected, 1, 1e-6);
}

/* Pixel coordinates: whole ones read one pixel, those between pixels mix them, and those outside
 * follow the padding mode. */
static void test_sample_places(void **state UNUSED)
{
    float image[6] = {1, 2, 4, 8, 16, 32}; /* 2 rows of 3 */
    struct ref_sample how = {IR_RESIZE_LINEAR, IR_BORDER_ZEROS, IR_SAMPLE_PIXELS};
    sample_one(&how, image, 2, 3, 2, 1, 32);
    sample_one(&how, image, 2, 3, 0.25F, 0, 1.25F);
    sample_one(&how, image, 2, 3, 0.5F, 0.5F, 6.75F);
    sample_one(&how, image, 2, 3, -0.25F, 0, 0.75F);
    sample_one(&how, image, 2, 3, 2.5F, 1, 16);
    sample_one(&how, image, 2, 3, 5, 0, 0);
    how.border = IR_BORDER_EDGE;
    sample_one(&how, image, 2, 3, -7, 0, 1);
    sample_one(&how, image, 2, 3, 2.5F, 9, 32);
    how.border = IR_BORDER_REFLECT; /* at -0.5 and 2.5, the borders of the outer pixels */
    sample_one(&how, image, 2, 3, -2, 0, 2);
    sample_one(&how, image, 2, 3, 3.75F, 0, 2.5F);
    sample_one(&how, image, 2, 3, 6, 0, 1);
    sample_one(&how, image, 2, 3, -9, 0, 4);
    how.mode = IR_RESIZE_NEAREST; /* ties to even */
    sample_one(&how, image, 2, 3, 0.5F, 0, 1);
    sample_one(&how, image, 2, 3, 1.5F, 0.75F, 32);
}

static void test_sample_coordinates(void **state UNUSED)
{
    float image[4] = {1, 2, 3, 4};
    struct ref_sample how = {IR_RESIZE_LINEAR, IR_BORDER_EDGE, IR_SAMPLE_HALF_PIXEL};
    sample_one(&how, image, 1, 4, -0.75F, 0, 1);
    sample_one(&how, image, 1, 4, 0.5F, 0, 3.5F);
    how.coord = IR_SAMPLE_ALIGN_CORNERS;
    sample_one(&how, image, 1, 4, -1, 0, 1);
    sample_one(&how, image, 1, 4, 0, 0, 2.5F);
    how.border = IR_BORDER_REFLECT; /* at the centres of the outer pixels */
    sample_one(&how, image, 1, 4, -5.0F / 3, 0, 2);
    how.mode = IR_RESIZE_CUBIC; /* weights of -3/32, 19/32, 19/32, -3/32 */
    sample_one(&how, image, 1, 4, 0, 0, 2.5F);
    image[3] = 20;
    sample_one(&how, image, 1, 4, 0, 0, 1);
}

/* Whatever coordinates a peer sends, only elements that exist are read. */
static void r34_sample_takes_any_coordinate(void **state UNUSED)
{
    static const float strange[] = {NAN, INFINITY, -INFINITY, 1e30F, -1e30F, 3e9F, -0.5F, 0};
    float out[1];
    struct ref_sample how;
    for (int mode = 0; mode <= IR_RESIZE_CUBIC; mode++)
        for (int border = 0; border <= IR_BORDER_REFLECT; border++)
            for (int coord = 0; coord <= IR_SAMPLE_PIXELS; coord++)
                for (int i = 0; i < 64; i++) {
                    float at[2] = {strange[i / 8], strange[i % 8]}, image[3] = {5, 5, 5};
                    how = (struct ref_sample){(enum ir_resize)mode, (enum ir_border)border,
                                              (enum ir_sample)coord};
                    struct tensor_view vx = VIEW(DTYPE_F32, image, 1, 1, 1, 3);
                    struct tensor_view grid = VIEW(DTYPE_F32, at, 1, 1, 2);
                    struct tensor_view vy = POISONED(DTYPE_F32, out, 1, 1, 1);
                    ref_sample(&how, &vx, &grid, &vy);
                    if (border != IR_BORDER_ZEROS && fabsf(out[0] - 5) > 1e-5F)
                        fail_msg("%g at (%g, %g)", (double)out[0], (double)at[0], (double)at[1]);
                }
}

/* Against a sum over every element, weighted by its distance. */
static void test_sample_volumes(void **state UNUSED)
{
    enum { N = 2, C = 3, D = 4, H = 5, W = 6, P = 40 };
    struct tensor_view vx = VIEW(DTYPE_F32, xs, N, C, D, H, W);
    struct tensor_view grid = VIEW(DTYPE_F32, ws, N, P / 2, 2, 3);
    struct tensor_view vy = POISONED(DTYPE_F32, ys, N, C, P / 2, 2);
    struct ref_sample how = {IR_RESIZE_LINEAR, IR_BORDER_ZEROS, IR_SAMPLE_HALF_PIXEL};
    static const int64_t sizes[3] = {W, H, D};
    for (int64_t i = 0; i < N * P * 3; i++)
        ws[i] *= 1.2F;
    ref_sample(&how, &vx, &grid, &vy);
    for (int64_t i = 0; i < N * C * P; i++) {
        int64_t n = i / (C * P), p = i % P;
        double sum = 0, at[3];
        for (int k = 0; k < 3; k++)
            at[k] = (((double)ws[(n * P + p) * 3 + k] + 1) * (double)sizes[k] - 1) / 2;
        for (int64_t e = 0; e < D * H * W; e++) {
            double weight = fmax(0, 1 - fabs(at[0] - (double)(e % W)));
            weight *= fmax(0, 1 - fabs(at[1] - (double)(e / W % H)));
            weight *= fmax(0, 1 - fabs(at[2] - (double)(e / W / H)));
            sum += weight * (double)xs[i / P * D * H * W + e];
        }
        want[i] = (float)sum;
    }
    assert_floats(ys, want, N * C * P, 1e-5);
}

/* --- regions --- */

static enum status pool(const struct ref_roi_pool *how, const float roi[4], int64_t image,
                        int64_t h, int64_t w)
{
    static float rois[4];
    struct tensor_view x = VIEW(DTYPE_F32, xs, 2, 1, 6, 8);
    struct tensor_view v = VIEW(DTYPE_F32, rois, 1, 4), b = VIEW(DTYPE_I64, &image, 1);
    struct tensor_view y = POISONED(DTYPE_F32, ys, 1, 1, h, w);
    memcpy(rois, roi, sizeof(rois));
    return ref_roi_pool(how, &x, &v, &b, &y, NULL);
}

/* On a ramp the mean of a bin's samples is the ramp at its centre. */
static void test_roi_average(void **state UNUSED)
{
    struct ref_roi_pool how = {.func = IR_ROI_AVERAGE, .scale = 0.5};
    const float roi[4] = {2, 2, 10, 8};
    for (int64_t i = 0; i < 96; i++)
        xs[i] = (float)(i % 8 + 10 * (i / 8 % 6) + 100 * (i / 48));
    for (int64_t samples = 0; samples < 4; samples++) {
        how.samples = samples;
        assert_int_equal(pool(&how, roi, 1, 3, 2), STATUS_OK);
        for (int64_t i = 0; i < 6; i++)
            want[i] = (float)(100 + 1 + 2 * (i % 2) + 1 + 10 * (1 + (double)(i / 2) + 0.5));
        assert_floats(ys, want, 6, 1e-5);
    }
    how.half_pixel = true; /* half a pixel up and to the left */
    assert_int_equal(pool(&how, roi, 0, 3, 2), STATUS_OK);
    for (int64_t i = 0; i < 6; i++)
        want[i] += -100 - 0.5F - 5;
    assert_floats(ys, want, 6, 1e-5);
    setup(NULL);
}

static void test_roi_max(void **state UNUSED)
{
    struct ref_roi_pool how = {.func = IR_ROI_MAX_QUANTISED, .scale = 1};
    const float whole[4] = {0, 0, 7, 5}, corner[4] = {6, 4, 20, 20}, outside[4] = {9, 0, 12, 3};
    float most = xs[0];
    for (int i = 0; i < 48; i++) {
        xs[i] += 2;
        most = fmaxf(most, xs[i]);
    }
    assert_int_equal(pool(&how, whole, 0, 1, 1), STATUS_OK);
    assert_floats(ys, &most, 1, 0);
    assert_int_equal(pool(&how, whole, 0, 6, 8), STATUS_OK);
    assert_floats(ys, xs, 48, 0); /* a bin a pixel */
    assert_int_equal(pool(&how, corner, 0, 1, 1), STATUS_OK);
    most = fmaxf(fmaxf(xs[38], xs[39]), fmaxf(xs[46], xs[47]));
    assert_floats(ys, &most, 1, 0);
    assert_int_equal(pool(&how, outside, 0, 1, 1), STATUS_OK);
    assert_floats(ys, (float[]){0}, 1, 0);
    how.func = IR_ROI_MAX; /* one sample at a pixel's centre: that pixel */
    how.samples = 1;
    assert_int_equal(pool(&how, (float[]){2.5F, 1.5F, 3.5F, 2.5F}, 0, 1, 1), STATUS_OK);
    assert_floats(ys, &xs[2 * 8 + 3], 1, 0);
    setup(NULL);
}

/* A region of any size costs no more than the image, and a region of an image that is not there is
 * refused. */
static void r34_roi_takes_any_region(void **state UNUSED)
{
    static const float strange[] = {NAN, INFINITY, -INFINITY, 1e30F, -1e30F, 1e9F, -1e9F, 3};
    struct ref_roi_pool how = {.scale = 1};
    for (int func = 0; func <= IR_ROI_MAX_QUANTISED; func++)
        for (int i = 0; i < 8 * 8 * 8 * 8; i++) {
            const float roi[4] = {strange[i % 8], strange[i / 8 % 8], strange[i / 64 % 8],
                                  strange[i / 512]};
            how.func = (enum ir_roi)func;
            how.half_pixel = i % 3 == 0;
            how.samples = i % 5 == 0 ? 2 : 0;
            assert_int_equal(pool(&how, roi, i % 2, 2, 3), STATUS_OK);
            for (int k = 0; k < 6; k++)
                assert_true(fabsf(ys[k]) <= 1);
        }
    assert_int_equal(pool(&how, strange, 2, 1, 1), STATUS_INVALID_ARGUMENT);
    assert_int_equal(pool(&how, strange, -1, 1, 1), STATUS_INVALID_ARGUMENT);
}

/* --- boxes --- */

enum { BOXES = 60, CLASSES = 3, BATCH = 2 };

static double overlap_of(const float *a, const float *b)
{
    double h = fmin((double)a[2], (double)b[2]) - fmax((double)a[0], (double)b[0]);
    double w = fmin((double)a[3], (double)b[3]) - fmax((double)a[1], (double)b[1]);
    double shared = h > 0 && w > 0 ? h * w : 0;
    double one = (double)((a[2] - a[0]) * (a[3] - a[1]));
    double two = (double)((b[2] - b[0]) * (b[3] - b[1]));
    return shared / (one + two - shared);
}

/* The definition: the best box that is left and overlaps none of the chosen ones is next. */
static int64_t define(const float *boxes, const float *scores, int64_t most, int64_t *chosen)
{
    bool gone[BOXES] = {false};
    for (int64_t n = 0;; n++) {
        int64_t best = -1;
        for (int64_t i = 0; i < BOXES; i++) {
            for (int64_t k = 0; k < n; k++)
                gone[i] |= overlap_of(&boxes[i * 4], &boxes[chosen[k] * 4]) > 0.3;
            if (!gone[i] && scores[i] > 0.2F && (best < 0 || scores[i] > scores[best]))
                best = i;
        }
        if (best < 0 || n == most)
            return n;
        gone[best] = true;
        chosen[n] = best;
    }
}

static void make_boxes(void)
{
    for (int64_t i = 0; i < BATCH * BOXES; i++) {
        float *box = &ws[i * 4];
        box[0] = xs[i * 4] * 1.5F;
        box[1] = xs[i * 4 + 1] * 1.5F;
        box[2] = box[0] + 1.5F + xs[i * 4 + 2];
        box[3] = box[1] + 1.5F + xs[i * 4 + 3];
    }
    for (int64_t i = 0; i < BATCH * CLASSES * BOXES; i++) /* coarse: there are ties */
        ws[1024 + i] = floorf(xs[1024 + i] * 8) / 8;
}

static void nms_is_its_definition(void **state UNUSED)
{
    enum { MOST_BOXES = 12, ROWS = BATCH * CLASSES * MOST_BOXES };
    static int64_t out[ROWS * 3];
    struct ref_nms how = {.most = MOST_BOXES, .overlap = 0.3, .least = 0.2, .has_least = true};
    int64_t row = 0, chosen[BOXES];
    make_boxes();
    void *scratch = malloc(ref_nms_scratch(BOXES));
    struct tensor_view boxes = VIEW(DTYPE_F32, ws, BATCH, BOXES, 4);
    struct tensor_view scores = VIEW(DTYPE_F32, &ws[1024], BATCH, CLASSES, BOXES);
    struct tensor_view y = POISONED(DTYPE_I64, out, ROWS, 3);
    ref_nms(&how, &boxes, &scores, &y, scratch);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t c = 0; c < CLASSES; c++) {
            int64_t n = define(&ws[b * BOXES * 4], &ws[1024 + (b * CLASSES + c) * BOXES],
                               MOST_BOXES, chosen);
            for (int64_t k = 0; k < n; k++, row++) {
                const int64_t expected[3] = {b, c, chosen[k]};
                assert_ints(
                    &(struct tensor_view){DTYPE_I64, {.rank = 1, .dim = {3}}, &out[row * 3]},
                    expected, 3);
            }
        }
    assert_in_range(row, BATCH * CLASSES, ROWS - 1);
    for (int64_t i = row * 3; i < ROWS * 3; i++)
        assert_int_equal(out[i], -1);
    free(scratch);
    setup(NULL);
}

/* Two boxes that meet the threshold exactly both stay; corners may be any two opposite ones; equal
 * scores go by index; a box with NaN is never chosen. */
static void nms_of_few(void **state UNUSED)
{
    float boxes[] = {0, 0, 1, 2, 1, 3, 0, 1, 5, 5, 6, 6, 0, 0, 1, 2}, scores[] = {1, 1, 2, NAN};
    float centred[] = {1, 0.5F, 2, 1, 2, 0.5F, 2, 1, 5.5F, 5.5F, 1, 1, 1, 0.5F, 2, 1};
    int64_t out[12];
    uint64_t scratch[64];
    for (int centre = 0; centre < 2; centre++) {
        struct ref_nms how = {.most = 9, .overlap = (double)(1.0F / 3), .centre = centre};
        struct tensor_view x = VIEW(DTYPE_F32, centre ? centred : boxes, 1, 4, 4);
        struct tensor_view s = VIEW(DTYPE_F32, scores, 1, 1, 4);
        struct tensor_view y = POISONED(DTYPE_I64, out, 4, 3);
        assert_true(ref_nms_scratch(4) <= sizeof(scratch));
        ref_nms(&how, &x, &s, &y, scratch);
        assert_ints(&y, (const int64_t[]){0, 0, 2, 0, 0, 0, 0, 0, 1, -1, -1, -1}, 12);
        how.overlap = 0.33;
        ref_nms(&how, &x, &s, &y, scratch);
        assert_ints(&y, (const int64_t[]){0, 0, 2, 0, 0, 0, -1, -1, -1, -1, -1, -1}, 12);
        how.has_least = true;
        how.least = 1;
        ref_nms(&how, &x, &s, &y, scratch);
        assert_ints(&y, (const int64_t[]){0, 0, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1}, 12);
    }
}

/* --- determinants --- */

/* Expansion along the first row. */
static double expand(const double *a, int64_t n)
{
    double minor[36], sum = 0;
    if (n == 0)
        return 1;
    for (int64_t k = 0; k < n; k++) {
        for (int64_t i = 0; i < (n - 1) * (n - 1); i++)
            minor[i] = a[(i / (n - 1) + 1) * n + i % (n - 1) + (i % (n - 1) >= k)];
        sum += (k % 2 ? -1 : 1) * a[k] * expand(minor, n - 1);
    }
    return sum;
}

static void test_det(void **state UNUSED)
{
    double a[36], scratch[36];
    for (int64_t n = 1; n <= 6; n++) {
        struct tensor_view x = VIEW(DTYPE_F32, xs, 3, n, n);
        struct tensor_view y = POISONED(DTYPE_F32, ys, 3);
        assert_true(ref_det_scratch(n) <= sizeof(scratch));
        xs[0] = 0; /* the first pivot is in another row */
        ref_det(&x, &y, scratch);
        for (int64_t m = 0; m < 3; m++) {
            for (int64_t i = 0; i < n * n; i++)
                a[i] = (double)xs[m * n * n + i];
            want[m] = (float)expand(a, n);
        }
        assert_floats(ys, want, 3, 1e-6);
    }
    float twice[4] = {1, 2, 2, 4};
    struct tensor_view x = VIEW(DTYPE_F32, twice, 1, 2, 2), y = POISONED(DTYPE_F32, ys, 1);
    ref_det(&x, &y, scratch);
    assert_floats(ys, (float[]){0}, 1, 0);
    setup(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_places),
        cmocka_unit_test(test_sample_coordinates),
        cmocka_unit_test(r34_sample_takes_any_coordinate),
        cmocka_unit_test(test_sample_volumes),
        cmocka_unit_test(test_roi_average),
        cmocka_unit_test(test_roi_max),
        cmocka_unit_test(r34_roi_takes_any_region),
        cmocka_unit_test(nms_is_its_definition),
        cmocka_unit_test(nms_of_few),
        cmocka_unit_test(test_det),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
