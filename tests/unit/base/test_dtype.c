/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "base/dtype.h"
#include "tests/test.h"

static void every_half_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x10000; i++) {
        float f = f16_to_f32((uint16_t)i);
        if (isnan(f))
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
        else
            assert_int_equal(f32_to_f16(f), i);
    }
}

/* The nearer neighbour wins. If both are equally near, the even one wins. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7bff; i++) {
        float low = f16_to_f32((uint16_t)i), high = f16_to_f32((uint16_t)(i + 1));
        float middle = low + (high - low) / 2; /* exact: one bit more than binary16 has */
        assert_int_equal(f32_to_f16(middle), i + (i & 1));
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), i);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), i + 1);
        assert_int_equal(f32_to_f16(-middle), (i + (i & 1)) | 0x8000);
    }
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
}

static void bfloat_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(f32_to_bf16(1.00390625f), 0x3f80); /* half way, to even */
    assert_int_equal(f32_to_bf16(1.01171875f), 0x3f82); /* half way, to even */
    assert_int_equal(f32_to_bf16(1.00390637f), 0x3f81);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    assert_true(isinf(bf16_to_f32(f32_to_bf16(3.4e38f))));
}

/* The nearer neighbour wins, the even one of two that are equally near; what is too large
 * saturates. */
static void eighths_round_to_nearest_even_and_saturate(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7e; i++) {
        float low = f8_to_f32((uint8_t)i), high = f8_to_f32((uint8_t)(i + 1));
        float middle = low + (high - low) / 2;
        assert_true(low < high);
        assert_int_equal(f32_to_f8(low), i);
        assert_int_equal(f32_to_f8(-low), i | 0x80);
        assert_int_equal(f32_to_f8(middle), i + (i & 1));
        assert_int_equal(f32_to_f8(nextafterf(middle, 0)), i);
        assert_int_equal(f32_to_f8(nextafterf(middle, INFINITY)), i + 1);
    }
    assert_true(f8_to_f32(0x01) == 0x1p-9f && f8_to_f32(0x38) == 1 && f8_to_f32(0xb9) == -1.125f);
    assert_true(f8_to_f32(0x7e) == DTYPE_F8_MAX && isnan(f8_to_f32(0x7f)) &&
                isnan(f8_to_f32(0xff)));
    assert_int_equal(f32_to_f8(1e30f), 0x7e);
    assert_int_equal(f32_to_f8(-INFINITY), 0xfe);
    assert_int_equal(f32_to_f8(NAN), 0x7f);
}

static void names_are_the_protocols(void **state)
{
    (void)state;
    for (int i = DTYPE_NONE + 1; i < DTYPE_COUNT_; i++) {
        const char *name = dtype_name((enum dtype)i);
        /* that of what no input has is not one of the protocol's */
        assert_int_equal(dtype_parse(name, strlen(name)), i == DTYPE_F8 ? DTYPE_NONE : i);
        assert_true(dtype_size((enum dtype)i) > 0);
    }
    assert_int_equal(dtype_parse("fp32", 4), DTYPE_NONE);
    assert_int_equal(dtype_parse("FP3", 3), DTYPE_NONE);
    assert_int_equal(dtype_size((enum dtype)99), 0);
    assert_string_equal(dtype_name((enum dtype)99), "NONE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_survives_the_round_trip),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bfloat_rounds_to_nearest_even),
        cmocka_unit_test(eighths_round_to_nearest_even_and_saturate),
        cmocka_unit_test(names_are_the_protocols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
