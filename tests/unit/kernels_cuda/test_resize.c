/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_resize against the reference: all modes, coordinates and roundings, sizes, layouts and
 * types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

static int64_t draw(int64_t from, int64_t to)
{
    return from + (int64_t)array_draw((uint32_t)(to - from + 1));
}

struct resize_case {
    struct ref_resize ref;
    struct kernel_resize how;
    int rank;
    int64_t x[5], y[5];
};

/* Ratios that are whole, fractions, and numbers that fit no ratio of the sizes. */
static float any_scale(void)
{
    static const float scales[] = {1, 2, 4, 0.5F, 1.5F, 0.6F, 8, 0.3F, 2.7F, 1.25F};
    return scales[array_draw(sizeof(scales) / sizeof(scales[0]))];
}

static void draw_axis(struct resize_case *c, int d)
{
    c->x[d] = draw(1, c->rank == 5 ? 3 : 11);
    float scale = any_scale();
    c->y[d] = (int64_t)floorf((float)c->x[d] * scale);
    c->y[d] = c->y[d] < 1 ? 1 : c->y[d];
    if (array_draw(2))
        scale = (float)c->y[d] / (float)c->x[d];
    c->ref.scales[d] = c->how.scales[d] = (double)scale;
    c->ref.roi_start[d] = c->how.roi_start[d] = 0.125 * (double)draw(-2, 3);
    c->ref.roi_end[d] = c->how.roi_end[d] = 0.125 * (double)draw(4, 10);
}

static struct resize_case draw_case(int spatial)
{
    struct resize_case c = {.rank = spatial + 2, .x = {draw(1, 3)}};
    c.x[1] = (int64_t[]){1, 3, 8, 16, 20}[array_draw(5)];
    for (int d = 0; d < 2; d++) {
        c.y[d] = c.x[d];
        c.ref.scales[d] = c.how.scales[d] = 1;
        c.ref.roi_end[d] = c.how.roi_end[d] = 1;
    }
    for (int d = 2; d < c.rank; d++)
        draw_axis(&c, d);
    c.ref.mode = c.how.mode = (enum ir_resize)array_draw(3);
    c.ref.coord = c.how.coord = (enum ir_coord)array_draw(7);
    c.ref.nearest = c.how.nearest = (enum ir_nearest)array_draw(4);
    c.ref.exclude_outside = c.how.exclude_outside = array_draw(4) == 0;
    c.ref.antialias = c.how.antialias = c.ref.mode != IR_RESIZE_NEAREST && array_draw(4) == 0;
    c.how.cubic_a = -0.75F;
    c.ref.cubic_a = -0.75;
    c.how.value = 7;
    c.ref.value = 7;
    return c;
}

static void check_case(const struct resize_case *c, enum dtype dtype, const int *x_order,
                       const int *y_order, double tolerance)
{
    char what[200];
    struct array x = array_new(dtype, c->rank, c->x, x_order, 1);
    struct array y = array_new(dtype, c->rank, c->y, y_order, 1);
    void *scratch = malloc(ref_resize_scratch(&c->ref, (uint32_t)c->rank) + 8);
    assert_non_null(scratch);
    if (array_draw(4) == 0) {
        array_values(&x)[array_draw((uint32_t)array_count(&x))] = INFINITY;
        array_store(&x);
    }
    ref_resize(&c->ref, &x.dense, &y.dense, scratch);
    snprintf(what, sizeof(what),
             "%s mode %d coord %d nearest %d exclude %d antialias %d last %d %d: [%d,%d,%d,%d,%d] "
             "to [%d,%d,%d] scales %g %g %g",
             dtype_name(dtype), c->how.mode, c->how.coord, c->how.nearest, c->how.exclude_outside,
             c->how.antialias, x_order != NULL, y_order != NULL, (int)c->x[0], (int)c->x[1],
             (int)c->x[2], (int)c->x[3], (int)c->x[4], (int)c->y[2], (int)c->y[3], (int)c->y[4],
             c->how.scales[2], c->how.scales[3], c->how.scales[4]);
    struct kernel_call dry = {.dry = true}, call = {0};
    array_poison(&y);
    assert_int_equal(kernel_resize(&dry, &c->how, &x.view, &y.view, NULL), cudaSuccess);
    assert_int_equal(kernel_resize(&call, &c->how, &x.view, &y.view, NULL), cudaSuccess);
    array_check(&y, tolerance, what);
    free(scratch);
    array_free(&x), array_free(&y);
}

static void test_random(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 400; i++) {
        struct resize_case c = draw_case((int)draw(1, 3));
        const int *last = array_channels_last(c.rank);
        uint32_t layout = array_draw(3);
        check_case(&c, dtypes[i % 3], layout ? last : NULL, layout == 1 ? last : NULL,
                   c.ref.mode == IR_RESIZE_NEAREST ? 0 : 1e-5);
    }
}

/* What networks do most: twice, four and eight times as large, linear, whole rows and vectors. */
static void test_upsampling(void **state)
{
    (void)state;
    for (int i = 0; i < 48; i++) {
        int64_t times = 2 << i % 3;
        struct resize_case c = {.rank = 4,
                                .x = {2, i % 2 ? 24 : 21, 3 + i % 5, 5},
                                .how = {.mode = i / 24 ? IR_RESIZE_NEAREST : IR_RESIZE_LINEAR,
                                        .coord = (enum ir_coord)(i / 6 % 4)}};
        c.ref.mode = c.how.mode;
        c.ref.coord = c.how.coord;
        for (int d = 0; d < 4; d++) {
            c.how.scales[d] = c.ref.scales[d] = d < 2 ? 1 : (double)times;
            c.y[d] = c.x[d] * (d < 2 ? 1 : times);
        }
        const int *last = array_channels_last(4);
        check_case(&c, DTYPE_F16, NULL, NULL, 1e-5);
        check_case(&c, DTYPE_F32, last, last, 1e-5);
        check_case(&c, DTYPE_F16, last, last, 1e-5);
        check_case(&c, DTYPE_BF16, last, NULL, 1e-5);
    }
}

/* Nearest moves elements of any type; numbers are computed of floats alone. */
static void test_types(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_I32, DTYPE_I64, DTYPE_F64};
        struct resize_case c = draw_case(2);
        c.ref.mode = c.how.mode = IR_RESIZE_NEAREST;
        c.ref.antialias = c.how.antialias = false;
        if (c.how.coord == IR_COORD_TF_CROP)
            c.ref.coord = c.how.coord = IR_COORD_HALF_PIXEL;
        const int *order = i / 4 % 2 ? array_channels_last(4) : NULL;
        check_case(&c, dtypes[i % 4], order, order, 0);
    }
}

static void test_refused(void **state)
{
    (void)state;
    float data[64] = {0};
    struct kernel_call dry = {.dry = true};
    struct kernel_resize how = {.mode = IR_RESIZE_LINEAR, .scales = {2, 2, 2, 2}};
    struct kernel_view x = {
        .data = data, .dtype = DTYPE_F32, .rank = 4, .dim = {1, 2, 2, 2}, .stride = {8, 4, 2, 1}};
    struct kernel_view y = {
        .data = data, .dtype = DTYPE_F32, .rank = 4, .dim = {2, 4, 4, 4}, .stride = {64, 16, 4, 1}};
    assert_int_equal(kernel_resize(&dry, &how, &x, &y, NULL), cudaErrorNotSupported);
    y.dim[0] = 1;
    how.scales[0] = 1;
    assert_int_equal(kernel_resize(&dry, &how, &x, &y, NULL), cudaSuccess);
    x.dtype = y.dtype = DTYPE_I32;
    assert_int_equal(kernel_resize(&dry, &how, &x, &y, NULL), cudaErrorNotSupported);
    y.dim[2] = 0;
    assert_int_equal(kernel_resize(&dry, &how, &x, &y, NULL), cudaSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_upsampling),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
