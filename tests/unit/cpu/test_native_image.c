/* SPDX-License-Identifier: Apache-2.0 */
/* RESIZE, PAD, SLICE, CONCAT and SAMPLE by native kernels, in every layout. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/cpu/native_case.h"

/* Every mode, rule of coordinates and rounding, in sizes that grow, shrink and stay. */
static void test_resize_every_mode(void **state UNUSED)
{
    static const struct {
        int height, width;
        const char *scales;
    } sizes[] = {{14, 18, "1.0,1.0,2.0,2.0"},
                 {7, 5, "1.0,1.0,1.0,0.5555556"},
                 {3, 40, "1.0,1.0,0.43,4.45"},
                 {1, 1, "1.0,1.0,0.1428571,0.1111111"}};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
        for (int how = 0; how < 3 * 7 * 4 * 4; how++) {
            int mode = how % 3, coord = how / 3 % 7, nearest = how / 21 % 4, flags = how / 84;
            if (coord == IR_COORD_TF_CROP || (mode == IR_RESIZE_NEAREST && flags) ||
                (mode != IR_RESIZE_NEAREST && nearest))
                continue;
            char text[512];
            snprintf(text, sizeof(text),
                     "y = resize \"n\" (x FP32[2,16,7,9]) shape=2,16,%d,%d scales=%s mode=%d "
                     "coord=%d nearest=%d exclude_outside=%d antialias=%d",
                     sizes[s].height, sizes[s].width, sizes[s].scales, mode, coord, nearest,
                     flags & 1, flags >> 1);
            /* a single place is the same in every layout */
            assert_layouts(text, native_case(text, 3e-6), s == 3 ? PLAIN : PLAIN | LAST | BLOCKS);
        }
}

static void test_resize_other_dims(void **state UNUSED)
{
    static const struct {
        const char *text;
        uint32_t layouts;
    } rows[] = {
        {"y = resize \"n\" (x FP32[2,32,9]) shape=2,32,20 scales=1.0,1.0,2.2222222 mode=1",
         PLAIN | LAST | BLOCKS},
        {"y = resize \"n\" (x FP32[1,16,3,4,5]) shape=1,16,6,8,10 scales=1.0,1.0,2.0,2.0,2.0 "
         "mode=1",
         PLAIN | LAST | BLOCKS},
        {"y = resize \"n\" (x FP32[1,5,3,4,5]) shape=1,5,6,2,10 scales=1.0,1.0,2.0,0.5,2.0 mode=2",
         PLAIN | LAST},
        {"y = resize \"n\" (x FP32[4,6]) shape=8,3 scales=2.0,0.5 mode=1", PLAIN},
        {"y = resize \"n\" (x FP32[2,8,6,6]) shape=4,4,6,6 scales=2.0,0.5,1.0,1.0 mode=1", PLAIN},
        {"y = resize \"n\" (x FP32[1,8,6,6,2]) shape=1,8,12,6,2 scales=1.0,1.0,2.0,1.0,1.0 mode=2",
         PLAIN | LAST},
        {"y = resize \"n\" (x FP32[1,1,2,5000]) shape=1,1,3,6000 scales=1.0,1.0,1.5,1.2 mode=1",
         PLAIN},
        {"y = resize \"n\" (x FP32[1,16,8,8]) shape=1,16,3,3 scales=1.0,1.0,0.375,0.375 mode=1 "
         "then "
         "add(e FP32[1,16,3,3]), mul(f FP32[16,1,1]), relu",
         PLAIN | LAST | BLOCKS},
        {"y = resize \"n\" (x FP32[1,3,4,4]=inf) shape=1,3,7,7 scales=1.0,1.0,1.75,1.75 mode=1 "
         "coord=2",
         PLAIN | LAST},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t layouts = native_case(rows[i].text, 3e-6);
        assert_layouts(rows[i].text, layouts & ~(uint32_t)(i == 5 ? BLOCKS : 0), rows[i].layouts);
    }
}

static void test_pad_every_mode(void **state UNUSED)
{
    static const char *const pads[] = {"0,0,1,2,0,0,3,1", "0,0,0,4,0,0,0,4", "0,0,-1,-2,0,0,0,5",
                                       "1,3,0,0,0,2,0,0", "0,0,5,0,0,0,0,0", "0,0,0,0,0,0,0,0"};
    static const char *const types[] = {"FP32", "INT64", "FP16", "UINT8"};
    for (size_t p = 0; p < ARRAY_LEN(pads); p++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            for (int mode = 0; mode < 4; mode++) {
                char text[256];
                snprintf(text, sizeof(text),
                         "y = pad \"n\" (x %s[2,16,6,7]) pads=%s mode=%d "
                         "value=3",
                         types[t], pads[p], mode);
                assert_layouts(text, native_case(text, 0),
                               p == 3 ? PLAIN | LAST : PLAIN | LAST | BLOCKS);
            }
    native_case("y = pad \"n\" (x FP32[5]) pads=4,3 mode=1", 0);
    native_case("y = pad \"n\" (x FP32[1]) pads=2,3 mode=2", 0);
    native_case("y = pad \"n\" (x FP32[4,0]) pads=2,3,1,1 value=1", 0);
    native_case("y = pad \"n\" (x FP32[4,6]) pads=-3,0,3,0 value=1", 0);
}

static void test_sample_every_mode(void **state UNUSED)
{
    static const char *const shapes[][2] = {
        {"x FP32[2,16,7,9]", "g FP32[2,5,6,2]"},      {"x FP32[1,3,40,3]", "g FP32[1,30,40,2]"},
        {"x FP32[3,2,4,5,6]", "g FP32[3,2,3,4,3]"},   {"x FP32[2,4,9]", "g FP32[2,20,1]"},
        {"x FP32[1,2,1,1]", "g FP32[1,3,3,2]"},       {"x FP32[4,1,5,5]", "g FP32[4,9,9,2]=nan"},
        {"x FP32[1,2,5,5]", "g FP32[1,9,9,2]=inf"},   {"x FP32[1,2,5,5]", "g FP32[1,9,9,2]=-1e30"},
        {"x FP32[1,2,5,5]=inf", "g FP32[1,9,9,2]=0"}, {"x FP32[1,2,5,6]", "g FP32[1,2,2,2]=5"}};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        for (int how = 0; how < 27; how++)
            assert_int_not_equal(
                native_casef(1e-5, "y = sample \"n\" (%s, %s) mode=%d border=%d coord=%d",
                             shapes[s][0], shapes[s][1], how % 3, how / 3 % 3, how / 9),
                0);
    assert_int_equal(native_case("y = sample \"n\" (x FP32[2,16,7,9], g FP32[2,5,6,2])", 1e-5),
                     PLAIN | LAST);
}

static void test_concat(void **state UNUSED)
{
    static const struct {
        const char *operands;
        int axis;
        uint32_t layouts;
    } rows[] = {
        {"a FP32[2,16,5,7], b FP32[2,32,5,7], c FP32[2,16,5,7]", 1, PLAIN | LAST | BLOCKS},
        {"a FP32[1,64,60,70], b FP32[1,16,60,70]", 1, PLAIN | LAST | BLOCKS},
        {"a FP32[2,3,5,7], b FP32[2,6,5,7]", 1, PLAIN | LAST},
        {"a FP32[2,3,5,7], b FP32[2,1,5,7]", 1, PLAIN},
        {"a FP32[2,16,5,7], b FP32[2,16,9,7]", 2, PLAIN | LAST | BLOCKS},
        {"a FP32[2,16,5,7], b FP32[2,16,5,2]", 3, PLAIN | LAST | BLOCKS},
        {"a FP32[2,16,5,7], b FP32[1,16,5,7], c FP32[0,16,5,7]", 0, PLAIN | LAST | BLOCKS},
        {"a INT64[3,4], b INT64[3,0], c INT64[3,9]", 1, PLAIN},
        {"a UINT8[7], b UINT8[2]", 0, PLAIN},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_layouts(
            rows[i].operands,
            native_casef(0, "y = concat \"n\" (%s) axis=%d", rows[i].operands, rows[i].axis),
            rows[i].layouts);
}

static void test_slice(void **state UNUSED)
{
    static const struct {
        const char *text;
        uint32_t layouts;
    } rows[] = {
        {"(x FP32[2,32,6,7]) starts=0,0,1,2 ends=2,32,5,7 steps=1,1,1,1", PLAIN | LAST | BLOCKS},
        {"(x FP32[2,32,6,7]) starts=1,0,0,0 ends=2,32,6,7 steps=1,1,1,1", PLAIN | LAST | BLOCKS},
        {"(x FP32[2,32,6,7]) starts=0,16,0,0 ends=2,32,6,7 steps=1,1,1,1", PLAIN | LAST},
        {"(x UINT8[2,58,6,7]) starts=0,29,0,0 ends=2,58,6,7 steps=1,1,1,1", PLAIN | LAST},
        {"(x INT64[5,9]) starts=2,3 ends=4,4 steps=1,1", PLAIN},
        {"(x FP16[1,7,9,6]) starts=0,0,3,0 ends=1,7,9,6 steps=1,1,1,1", PLAIN | LAST},
        {"(x FP32[5,9]) starts=0,0 ends=5,9 steps=1,2", PLAIN},
        {"(x FP32[2,32,6,7]) starts=1,31,0,1 ends=2,0,6,7 steps=1,-2,1,3", PLAIN},
        {"(x FP16[3,8,9]) starts=0,1,0 ends=3,8,9 steps=1,3,1", PLAIN},
        {"(x UINT8[3,80]) starts=2,79 ends=0,3 steps=-1,-5", PLAIN},
        {"(x INT64[3,80]) starts=0,3 ends=3,80 steps=2,7", PLAIN},
        {"(x FP32[9]) starts=8 ends=-1 steps=-1", PLAIN},
        {"(x FP32[3,9]) starts=1,2 ends=2,9 steps=4611686018427387904,1", PLAIN},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_layouts(rows[i].text, native_casef(0, "y = slice \"n\" %s", rows[i].text),
                       rows[i].layouts);
}

static void test_expand(void **state UNUSED)
{
    static const struct {
        const char *node;
        uint32_t layouts;
    } rows[] = {
        {"expand \"n\" (x FP32[4,1,7]) shape=4,5,7", PLAIN},
        {"expand \"n\" (x FP16[5,1]) shape=2,3,5,70", PLAIN},
        {"expand \"n\" (x INT64[]) shape=3,4", PLAIN},
        {"expand \"n\" (x BOOL[1,70]) shape=60,70", PLAIN},
        {"tile \"n\" (x FP32[3,1,5]) repeats=1,70,1", PLAIN},
        {"tile \"n\" (x FP32[3,5]) repeats=1,3", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_layouts(rows[i].node, native_casef(0, "y = %s", rows[i].node), rows[i].layouts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resize_every_mode),
        cmocka_unit_test(test_resize_other_dims),
        cmocka_unit_test(test_pad_every_mode),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_sample_every_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
