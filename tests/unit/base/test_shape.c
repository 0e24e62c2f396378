/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shape.h"
#include "tests/test.h"

static const struct shape big = {.rank = 3, .dim = {INT64_MAX, INT64_MAX, 2}};
static const struct shape any = {.rank = 2, .dim = {-1, 3}};
static const struct shape nothing = {.rank = 2, .dim = {0, INT64_MAX}};
static const struct shape image = {.rank = 4, .dim = {2, 3, 4, 5}};
static const struct shape scalar = {0};

static void r3_sizes_are_checked(void **state)
{
    (void)state;
    size_t n = 7;
    assert_false(shape_elements(&big, &n));
    assert_false(shape_elements(&any, &n));
    assert_int_equal(n, 7);
    assert_true(shape_elements(&nothing, &n));
    assert_int_equal(n, 0);
    assert_true(shape_elements(&scalar, &n));
    assert_int_equal(n, 1);
    assert_true(shape_bytes(&image, DTYPE_F32, &n));
    assert_int_equal(n, 480);
    assert_false(shape_bytes(&image, DTYPE_NONE, &n));
    struct shape wide = {.rank = 1, .dim = {INT64_MAX}};
    assert_false(shape_bytes(&wide, DTYPE_F32, &n));
}

static void broadcasting(void **state)
{
    (void)state;
    struct shape a = {.rank = 3, .dim = {8, 1, 6}}, b = {.rank = 2, .dim = {7, 1}}, out;
    struct shape want = {.rank = 3, .dim = {8, 7, 6}};
    assert_true(shape_broadcast(&a, &b, &out));
    assert_true(shape_equal(&out, &want));
    assert_true(shape_broadcast(&scalar, &a, &out));
    assert_true(shape_equal(&out, &a));
    struct shape c = {.rank = 1, .dim = {5}};
    assert_false(shape_broadcast(&a, &c, &out));
    struct shape zero = {.rank = 1, .dim = {0}}, one = {.rank = 1, .dim = {1}};
    assert_true(shape_broadcast(&zero, &one, &out));
    assert_true(shape_equal(&out, &zero));
}

static void text(void **state)
{
    (void)state;
    char buffer[SHAPE_TEXT_MAX];
    assert_string_equal(shape_format(&image, buffer), "[2,3,4,5]");
    assert_string_equal(shape_format(&any, buffer), "[?,3]");
    assert_string_equal(shape_format(&scalar, buffer), "[]");
    struct shape longest = {.rank = 8};
    for (int i = 0; i < 8; i++)
        longest.dim[i] = INT64_MIN;
    assert_int_equal(strlen(shape_format(&longest, buffer)), 8 * 20 + 7 + 2);
}

static void strides(void **state)
{
    (void)state;
    int64_t s[SHAPE_MAX_RANK];
    shape_strides(&image, s);
    assert_int_equal(s[0], 60);
    assert_int_equal(s[3], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r3_sizes_are_checked),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(text),
        cmocka_unit_test(strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
