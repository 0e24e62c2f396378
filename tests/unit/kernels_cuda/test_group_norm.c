/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_group_norm against the reference: groups, layouts, types, and images so large that many
 * blocks share a channel. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/kernels_cuda/array.h"

struct norm_case {
    enum dtype dtype;
    int rank;
    int64_t dims[5], groups;
    bool last, relu;
    float shift; /* of all of x: the variance must keep its digits */
    int multiprocessors;
};

static void check_case(const struct norm_case *c)
{
    char what[160];
    const int *order = c->last ? array_channels_last(c->rank) : NULL;
    struct array x = array_new(c->dtype, c->rank, c->dims, order, 1);
    struct array y = array_new(c->dtype, c->rank, c->dims, order, 1);
    struct array scale = ARRAY(c->dtype, NULL, c->dims[1]);
    struct array bias = ARRAY(DTYPE_F32, NULL, c->dims[1]);
    for (size_t i = 0; i < array_count(&x); i++)
        array_values(&x)[i] += c->shift;
    array_store(&x);
    ref_instance_norm(c->groups, 1e-5, &x.dense, &scale.dense, &bias.dense, &y.dense);
    struct kernel_epilogue epilogue = {.n = 1, .step = {{.func = IR_UNARY_RELU}}};
    if (c->relu)
        ref_unary(IR_UNARY_RELU, 0, 0, 0, &y.dense, &y.dense);
    snprintf(what, sizeof(what), "%s groups %d last %d: [%d,%d,%d,%d]", dtype_name(c->dtype),
             (int)c->groups, c->last, (int)c->dims[0], (int)c->dims[1], (int)c->dims[2],
             (int)c->dims[3]);
    struct kernel_call call = {.multiprocessors = c->multiprocessors}, dry = {.dry = true};
    size_t bytes = kernel_group_norm_workspace(&call, &x.view);
    void *workspace = NULL;
    assert_int_equal(posix_memalign(&workspace, 16, bytes), 0);
    array_poison(&y);
    assert_int_equal(kernel_group_norm(&dry, c->groups, 1e-5F, &x.view, &scale.view, &bias.view,
                                       &y.view, c->relu ? &epilogue : NULL, NULL),
                     cudaSuccess);
    assert_int_equal(kernel_group_norm(&call, c->groups, 1e-5F, &x.view, &scale.view, &bias.view,
                                       &y.view, c->relu ? &epilogue : NULL, workspace),
                     cudaSuccess);
    array_check(&y, c->shift != 0 ? 1e-4 : 1e-5, what);
    free(workspace);
    array_free(&x), array_free(&y), array_free(&scale), array_free(&bias);
}

static void test_random(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    for (int i = 0; i < 120; i++) {
        struct norm_case c = {.dtype = dtypes[i % 3],
                              .rank = 2 + (int)array_draw(4),
                              .last = array_draw(2),
                              .relu = array_draw(3) == 0,
                              .multiprocessors = 132};
        int64_t per = 1 + array_draw(6);
        c.groups = (int64_t[]){0, 1, 2, 3, 8}[array_draw(5)];
        c.dims[0] = 1 + array_draw(3);
        c.dims[1] = c.groups ? c.groups * per : 8 * per - array_draw(2);
        for (int d = 2; d < c.rank; d++)
            c.dims[d] = 1 + array_draw(9);
        c.dims[c.rank - 1] += c.rank == 2 ? 0 : 3;
        if (c.rank == 2) { /* one pixel: only groups of several channels have a variance */
            c.groups = 2;
            c.dims[1] = 2 * (1 + per);
            c.last = false;
        }
        check_case(&c);
    }
}

static void test_large_images(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct norm_case c = {.dtype = i % 2 ? DTYPE_F32 : DTYPE_F16,
                              .rank = 4,
                              .dims = {1, i & 2 ? 16 : 3, 130, 270},
                              .groups = i & 2 ? 4 : 0,
                              .last = i / 4,
                              .multiprocessors = 132};
        check_case(&c);
    }
}

static void test_far_from_zero(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct norm_case c = {.dtype = DTYPE_F32,
                              .rank = 4,
                              .dims = {2, 8, 30, 40},
                              .groups = 2,
                              .last = i,
                              .shift = 300};
        check_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_large_images),
        cmocka_unit_test(test_far_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
