/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions and scans along any dims by native kernels. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/cpu/native_case.h"

/* Every set of axes of each shape, by every function that has a kernel. */
static void test_every_set_of_axes(void **state UNUSED)
{
    static const char *const shapes[] = {"3,4,5,70", "2,3,130,2", "1,600,1,3", "7,1,1,1"};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        for (int func = 0; func < IR_REDUCE_COUNT_; func++)
            for (unsigned set = 1; set < 16; set++) {
                char axes[16] = "";
                for (unsigned d = 0; d < 4; d++)
                    if (set >> d & 1)
                        snprintf(axes + strlen(axes), sizeof(axes) - strlen(axes), "%s%u",
                                 *axes ? "," : "", d);
                uint32_t layouts = native_casef(
                    3e-6, "y = reduce \"n\" (x FP32[%s]%s) func=%d axes=%s keepdims=%u", shapes[s],
                    func == IR_REDUCE_LOG_SUM ? "=+" : "", func, axes, set % 2);
                assert_int_equal(layouts, func == IR_REDUCE_PROD ? 0 : PLAIN);
            }
}

static void test_reductions_with_epilogues(void **state UNUSED)
{
    native_case("y = reduce \"n\" (x FP32[2,300,40]) func=1 axes=1 then "
                "linear(0.5,1,0), add(e FP32[40]), mul(f FP32[2,1,40])",
                3e-6);
    native_case("y = reduce \"n\" (x FP32[6,7,40]) func=6 axes=2 keepdims=0 then "
                "sqrt, add(e FP32[6,1])",
                3e-6);
    native_case("y = reduce \"n\" (x FP32[200000]) func=1 axes=0", 3e-6);
    native_case("y = reduce \"n\" (x FP32[100000,2]=0.1) func=1 axes=0", 3e-6);
}

/* Rows that are folded in pieces, of which none is of whole lanes. Numbers are positive where sums
 * would cancel. */
static void test_long_rows(void **state UNUSED)
{
    for (int func = 0; func < IR_REDUCE_COUNT_; func++) {
        const char *value = func == IR_REDUCE_MAX || func == IR_REDUCE_MIN ? "" : "=+";
        uint32_t layouts = func == IR_REDUCE_PROD ? 0 : PLAIN;
        assert_int_equal(native_casef(3e-6,
                                      "y = reduce \"n\" (x FP32[3,16411]%s) func=%d axes=1 then "
                                      "linear(0.5,1,0), add(e FP32[3,1])",
                                      value, func),
                         layouts);
        assert_int_equal(native_casef(3e-6,
                                      "y = reduce \"n\" (x FP32[70,9,100]%s) func=%d axes=0,1,2",
                                      value, func),
                         layouts);
        native_casef(0, "y = reduce \"n\" (x FP32[2,20000]=nan) func=%d axes=1", func);
        native_casef(0, "y = reduce \"n\" (x FP32[2,20000]=-inf) func=%d axes=1", func);
    }
}

/* Equal elements, infinities and NaN are what a comparison can get wrong. */
static void test_infinities(void **state UNUSED)
{
    for (int func = 0; func < IR_REDUCE_COUNT_; func++)
        for (int axis = 0; axis < 2; axis++) {
            native_casef(0, "y = reduce \"n\" (x FP32[4,70]=inf) func=%d axes=%d", func, axis);
            native_casef(0, "y = reduce \"n\" (x FP32[4,70]=-inf) func=%d axes=%d", func, axis);
            native_casef(0, "y = reduce \"n\" (x FP32[4,70]=nan) func=%d axes=%d", func, axis);
        }
}

static void test_arg_reduce(void **state UNUSED)
{
    static const char *const shapes[] = {"3,40,5", "2,1,600", "130,2,3", "1,1,2000", "65,1,1"};
    static const char *const values[] = {"", "=0", "=nan", "=-inf"};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
        for (size_t v = 0; v < ARRAY_LEN(values); v++)
            for (int how = 0; how < 12; how++)
                assert_int_not_equal(
                    native_casef(0,
                                 "y = arg_reduce \"n\" (x FP32[%s]%s) func=%d axis=%d "
                                 "select_last=%d keepdims=%d",
                                 shapes[s], values[v], how & 1, how / 4, how >> 1 & 1, how & 1),
                    0);
}

static void test_cumsum(void **state UNUSED)
{
    static const char *const types[] = {"FP32", "INT32", "INT64"};
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int how = 0; how < 12; how++)
            assert_int_not_equal(
                native_casef(1e-6,
                             "y = cumsum \"n\" (x %s[5,7,300]) axis=%d exclusive=%d "
                             "reverse=%d",
                             types[t], how / 4, how & 1, how >> 1 & 1),
                0);
    assert_int_equal(native_case("y = cumsum \"n\" (x FP16[5,7]) axis=0", 0), 0);
}

static void test_topk(void **state UNUSED)
{
    static const char *const values[] = {"", "=0", "=nan", "=+"};
    for (size_t v = 0; v < ARRAY_LEN(values); v++)
        for (int how = 0; how < 6; how++) {
            assert_int_not_equal(native_casef(0,
                                              "y, i = topk \"n\" (x FP32[9,11,10]%s) axis=%d k=5 "
                                              "largest=%d",
                                              values[v], how / 2, how & 1),
                                 0);
            assert_int_not_equal(native_casef(0,
                                              "y, i = topk \"n\" (x FP32[3,3,3]%s) axis=%d k=3 "
                                              "largest=%d",
                                              values[v], how / 2, how & 1),
                                 0);
        }
    assert_int_not_equal(native_case("y, i = topk \"n\" (x FP32[2,5000]) axis=1 k=1", 0), 0);
    assert_int_not_equal(native_case("y, i = topk \"n\" (x FP32[2,5000]) axis=1 k=5000", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set_of_axes),
        cmocka_unit_test(test_reductions_with_epilogues),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_infinities),
        cmocka_unit_test(test_arg_reduce),
        cmocka_unit_test(test_cumsum),
        cmocka_unit_test(test_topk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
