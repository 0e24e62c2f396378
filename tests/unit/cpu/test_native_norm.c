/* SPDX-License-Identifier: Apache-2.0 */
/* Instance and group normalisation by native kernels, in every layout. */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/cpu/native_case.h"

static void test_groups_in_every_layout(void **state UNUSED)
{
    static const struct {
        long long images, channels, groups, height, width;
        uint32_t layouts;
    } rows[] = {
        {1, 32, 4, 9, 7, PLAIN | LAST | BLOCKS},
        {2, 64, 2, 5, 5, PLAIN | LAST | BLOCKS},
        {1, 48, 1, 3, 11, PLAIN | LAST | BLOCKS},
        {3, 12, 0, 6, 4, PLAIN | LAST},
        {1, 1, 1, 70, 300, PLAIN},
        {1, 3, 1, 150, 150, PLAIN | LAST},
        {2, 80, 16, 40, 40, PLAIN | LAST | BLOCKS},
        {1, 7, 7, 1, 1, PLAIN},
        {1, 2080, 65, 2, 9, PLAIN | LAST | BLOCKS},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "y = instance_norm \"n\" (x FP32[%lld,%lld,%lld,%lld], s FP32[%lld], b FP32[%lld])"
                 " group=%lld",
                 rows[i].images, rows[i].channels, rows[i].height, rows[i].width, rows[i].channels,
                 rows[i].channels, rows[i].groups);
        assert_layouts(text, native_case(text, 3e-6), rows[i].layouts);
    }
}

static void test_other_ranks(void **state UNUSED)
{
    native_case("y = instance_norm \"n\" (x FP32[2,16], s FP32[16], b FP32[16]) group=4", 3e-6);
    native_case("y = instance_norm \"n\" (x FP32[2,16,50], s FP32[16], b FP32[16])", 3e-6);
    native_case("y = instance_norm \"n\" (x FP32[1,16,3,4,5], s FP32[16], b FP32[16]) group=2",
                3e-6);
    native_case("y = instance_norm \"n\" (x FP32[1,4,3,2,2,3], s FP32[4], b FP32[4]) group=2",
                3e-6);
    /* equal numbers, and one number in each group */
    native_case("y = instance_norm \"n\" (x FP32[1,16,50]=3, s FP32[16], b FP32[16])", 3e-6);
    native_case("y = instance_norm \"n\" (x FP32[2,16,1], s FP32[16], b FP32[16])", 3e-6);
}

/* An epilogue whose operands have the output's shape, one number a channel, or one in all. */
static void test_epilogues(void **state UNUSED)
{
    static const char *const shapes[] = {"2,32,9,40", "2,32,1,1", "32,1,1", "1,32,1,40", "1", "40"};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int groups = 0; groups <= 32; groups += 16)
            assert_int_not_equal(
                native_casef(5e-6,
                             "y = instance_norm \"n\" (x FP32[2,32,9,40], s FP32[32], b FP32[32])"
                             " group=%d then add(e FP32[%s]), swish(1,0,0)",
                             groups, shapes[i]),
                0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_in_every_layout),
        cmocka_unit_test(test_other_ranks),
        cmocka_unit_test(test_epilogues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
