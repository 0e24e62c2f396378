/* SPDX-License-Identifier: Apache-2.0 */
/* NMS and ROI_POOL by native kernels: what the reference selects, and the averages that it has. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/cpu/native_case.h"

enum { BOXES_MAX = 1500, CLASSES_MAX = 3, IMAGES_MAX = 2 };

static float box_data[IMAGES_MAX * BOXES_MAX * 4];
static float score_data[IMAGES_MAX * CLASSES_MAX * BOXES_MAX];

static uint64_t state_of_random = 1;

static float random_in(float low, float high)
{
    state_of_random = state_of_random * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return low + (high - low) * (float)(state_of_random >> 40) / (float)(1 << 24);
}

/* How boxes lie: around few places; wide apart; on a raster, where overlaps meet thresholds. */
enum lie { CLUSTERS, SCATTERED, RASTER, LIES };

static void fill(enum lie lie, int n)
{
    for (int i = 0; i < n; i++) {
        float *v = box_data + 4 * i, extent = lie == SCATTERED ? 30000.0F : 300.0F;
        float at[2] = {random_in(-extent, extent), random_in(-10, 310)};
        float size[2] = {random_in(1, 60), random_in(1, 90)};
        for (int d = 0; d < 2; d++) {
            if (lie == CLUSTERS)
                at[d] = floorf(at[d] / 40) * 40 + random_in(-4, 4);
            if (lie == RASTER) {
                at[d] = floorf(at[d] / 8) * 4;
                size[d] = 8;
            }
            v[d] = at[d];
            v[2 + d] = at[d] + (i % 7 ? size[d] : -size[d]); /* any two opposite corners will do */
        }
    }
}

static void fill_scores(int n, bool ties)
{
    for (int i = 0; i < n; i++) {
        float score = random_in(-0.2F, 1);
        score_data[i] = ties ? floorf(score * 8) / 8 : score;
    }
}

static uint32_t nms(int images, int classes, int n, const char *more)
{
    char text[256];
    const void *operands[IR_MAX_INPUTS] = {box_data, score_data};
    snprintf(text, sizeof(text), "y = nms \"n\" (b FP32[%d,%d,4], s FP32[%d,%d,%d]) %s", images, n,
             images, classes, n, more);
    return native_case_on(text, 0, operands);
}

static const char *const rules[] = {
    "k=1500 alpha=0.5 beta=0.05",
    "k=1500 alpha=0",
    "k=20 alpha=0.3333333432674408 mode=1",
    "k=7 alpha=1 beta=0.5",
    "k=1500 alpha=0.6000000238418579 beta=-1 mode=1",
};

static void test_nms_selects_as_the_reference_does(void **state UNUSED)
{
    static const int sizes[] = {1, 16, 31, 33, 250, BOXES_MAX};
    for (size_t r = 0; r < ARRAY_LEN(rules); r++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            for (int lie = 0; lie < LIES; lie++) {
                int n = sizes[s], images = n < 100 ? 2 : 1, classes = n < 500 ? 3 : 1;
                fill((enum lie)lie, images * n);
                fill_scores(images * classes * n, (s + r) % 2);
                assert_int_equal(nms(images, classes, n, rules[r]), PLAIN);
            }
}

static void test_nms_of_odd_numbers(void **state UNUSED)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e30F, -0.0F, 3e38F, 0};
    for (size_t r = 0; r < ARRAY_LEN(rules); r++)
        for (size_t k = 0; k < ARRAY_LEN(odd); k++)
            for (int where = 0; where < 5; where++) {
                fill(SCATTERED, 400);
                fill_scores(400, false);
                for (int i = where; i < 400; i += 41)
                    *(where == 4 ? &score_data[i] : &box_data[4 * i + where]) = odd[k];
                assert_int_equal(nms(1, 1, 400, rules[r]), PLAIN);
            }
}

static void test_nms_of_boxes_much_wider_than_others(void **state UNUSED)
{
    fill(SCATTERED, 600);
    fill_scores(600, false);
    for (int i = 5; i < 600; i += 100)
        for (int d = 0; d < 2; d++) {
            box_data[4 * i + d] = -20000;
            box_data[4 * i + 2 + d] = 20000 + (float)i;
        }
    for (size_t r = 0; r < ARRAY_LEN(rules); r++)
        assert_int_equal(nms(1, 1, 600, rules[r]), PLAIN);
}

/* --- ROI_POOL --- */

static const float regions[][4] = {
    {0, 0, 10, 8},       {2.5F, 1.25F, 7.75F, 6},
    {-4, -4, 3, 3},      {8, 6, 40, 40},
    {5, 5, 5, 5},        {7, 7, 2, 3},
    {100, 100, 120, 90}, {-1e6F, -1e6F, 1e6F, 1e6F},
    {0, 0, 1e30F, 10},   {NAN, 0, 4, 4},
    {0, 0, INFINITY, 1}, {3, 3, 3.001F, 9},
};

static void test_roi_averages_as_the_reference_does(void **state UNUSED)
{
    static const int channels[] = {1, 16, 64, 70};
    static const char *const batches[] = {"INT64", "INT32"};
    static int64_t longs[ARRAY_LEN(regions)];
    static int32_t ints[ARRAY_LEN(regions)];
    for (size_t i = 0; i < ARRAY_LEN(regions); i++)
        longs[i] = ints[i] = (int32_t)(i % 2);
    for (size_t c = 0; c < ARRAY_LEN(channels); c++)
        for (int size = 0; size < 4; size++)
            for (int coord = 0; coord < 2; coord++)
                for (int b = 0; b < 2; b++) {
                    char text[256];
                    const void *operands[IR_MAX_INPUTS] = {NULL, regions, b ? (void *)ints : longs};
                    snprintf(text, sizeof(text),
                             "y = roi_pool \"n\" (x FP32[2,%d,9,11], r FP32[%zu,4], i %s[%zu]) "
                             "shape=%d,7 alpha=%g size=%d coord=%d",
                             channels[c], ARRAY_LEN(regions), batches[b], ARRAY_LEN(regions),
                             b ? 7 : 2, b ? 0.5 : 1.0, size, coord);
                    assert_int_equal(native_case_on(text, 2e-7, operands), PLAIN);
                }
}

static void test_roi_leaves_other_functions_to_the_reference(void **state UNUSED)
{
    assert_int_equal(native_case("y = roi_pool \"n\" (x FP32[1,4,9,9], r FP32[2,4]=0.5, i "
                                 "INT64[2]=0) shape=7,7 func=1",
                                 0),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nms_selects_as_the_reference_does),
        cmocka_unit_test(test_nms_of_odd_numbers),
        cmocka_unit_test(test_nms_of_boxes_much_wider_than_others),
        cmocka_unit_test(test_roi_averages_as_the_reference_does),
        cmocka_unit_test(test_roi_leaves_other_functions_to_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
