/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of other types than fp32, and softmax over any axis, by native kernels. */
#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "tests/test.h"
#include "tests/unit/cpu/native_case.h"

static void test_softmax_over_any_axis(void **state UNUSED)
{
    for (int log_of = 0; log_of < 2; log_of++)
        for (int axis = 0; axis < 4; axis++)
            assert_int_equal(native_casef(2e-6,
                                          "y = softmax \"n\" (x FP32[3,16,5,70]) axis=%d log=%d",
                                          axis, log_of),
                             PLAIN);
    assert_int_equal(native_case("y = softmax \"n\" (x FP32[2,4,16,900]) axis=2", 2e-6), PLAIN);
    assert_int_equal(native_case("y = softmax \"n\" (x FP32[4,10,2]) axis=1 then linear(2,1,0)"
                                 ", mul(e FP32[10,1]), add(f FP32[4,1,2])",
                                 5e-6),
                     PLAIN);
}

static void test_select_broadcasts(void **state UNUSED)
{
    static const char *const shapes[] = {"3,1,40,600", "1,1,40,600", "3,2,40,1", "600", ""};
    for (size_t c = 0; c < ARRAY_LEN(shapes); c++)
        for (size_t x = 0; x < ARRAY_LEN(shapes); x++)
            assert_int_equal(native_casef(0,
                                          "y = select \"n\" (c BOOL[%s], a FP32[%s],"
                                          " b FP32[3,2,40,600])",
                                          shapes[c], shapes[x]),
                             PLAIN);
    assert_int_equal(native_case("y = select \"n\" (c BOOL[700], a FP32[3,1]=2, b FP32[700])"
                                 " then add(e FP32[3,1]), relu",
                                 1e-6),
                     PLAIN);
    static const char *const types[] = {"BOOL", "UINT8", "FP16", "INT64"};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        assert_int_equal(native_casef(0, "y = select \"n\" (c BOOL[5,1], a %s[90], b %s[5,90])",
                                      types[i], types[i]),
                         PLAIN);
}

static void test_functions(void **state UNUSED)
{
    static const char *const nodes[] = {
        "unary \"n\" (x FP32[3,700]) func=is_nan",
        "unary \"n\" (x FP32[3,700]) func=is_inf",
        "unary \"n\" (x BOOL[3,700]) func=not",
        "unary \"n\" (x INT64[3,700]) func=neg",
        "binary \"n\" (a FP32[3,1], b FP32[700]) func=less",
        "binary \"n\" (a INT64[3,700], b INT64[]=0) func=equal",
        "binary \"n\" (a INT32[3,5,1], b INT32[1,5,9]) func=greater_equal",
        "binary \"n\" (a BOOL[3,5,1], b BOOL[9]) func=and",
        "binary \"n\" (a BOOL[3,5,1], b BOOL[9]) func=xor",
        "binary \"n\" (a INT64[3,700], b INT64[700]) func=add",
    };
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        assert_int_equal(native_casef(0, "y = %s", nodes[i]), PLAIN);
}

static void test_casts(void **state UNUSED)
{
    static const char *const from[] = {"BOOL", "UINT8", "INT32", "INT64", "FP32"};
    static const enum dtype to[] = {DTYPE_BOOL, DTYPE_U8, DTYPE_I8, DTYPE_I32, DTYPE_I64};
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        for (size_t k = 0; k < ARRAY_LEN(to); k++)
            assert_int_equal(native_casef(0, "y = cast \"n\" (x %s[3,700]) to=%d", from[i], to[k]),
                             PLAIN);
    assert_int_equal(native_casef(0, "y = cast \"n\" (x FP32[3,700]) to=%d", DTYPE_F16), PLAIN);
}

/* What follows a product of bytes. */
static void test_sums_in_rows_of_channels(void **state UNUSED)
{
    static const struct {
        const char *node;
        uint32_t layouts;
    } rows[] = {
        {"binary \"n\" (x INT32[2,5,6,70], b INT32[5,1,1]) func=sub", PLAIN | LAST},
        {"binary \"n\" (x INT32[2,5,6,70], b INT32[2,1,6,70]) func=sub", PLAIN | LAST},
        {"binary \"n\" (b INT32[1,5,1,1], x INT32[2,5,6,70]) func=sub", PLAIN | LAST},
        {"binary \"n\" (b INT32[], x INT32[1,5,6,7]) func=mul", PLAIN | LAST},
        {"binary \"n\" (x INT32[2,5,6,70], b INT32[2,5,6,70]) func=add", PLAIN | LAST},
        {"binary \"n\" (x INT32[2,5,6,1], b INT32[2,5,1,7]) func=add", PLAIN},
        {"binary \"n\" (x INT64[2,5,6,70], b INT64[5,1,1]) func=sub", PLAIN},
        {"unary \"n\" (x INT32[2,5,6,70]) func=neg", PLAIN | LAST},
        {"cast \"n\" (x INT32[2,5,6,70]) to=12 then mul(f FP32[]), add(e FP32[5,1,1]), relu",
         PLAIN | LAST},
        {"cast \"n\" (x INT32[2,5,6,70]) to=12 then mul(f FP32[2,5,6,70])", PLAIN | LAST},
        {"cast \"n\" (x INT32[30,70]) to=12", PLAIN},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_layouts(rows[i].node, native_casef(1e-6, "y = %s", rows[i].node), rows[i].layouts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_over_any_axis),
        cmocka_unit_test(test_select_broadcasts),
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_sums_in_rows_of_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
