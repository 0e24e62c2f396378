/* SPDX-License-Identifier: Apache-2.0 */
/* QUANTIZE and DEQUANTIZE, compared with what their formulas give. */
#include <float.h>
#include <math.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

#define INF ((float)INFINITY)

static void halves_go_to_the_even_neighbour(void **state UNUSED)
{
    float x[9] = {-1.25F, -0.75F, -0.25F, 0.25F, 0.75F, 1.25F, 63.75F, 64, 1e30F}, step = 0.5F;
    int8_t zero = 1, y[9];
    static const int64_t want[9] = {-1, -1, 1, 1, 3, 3, 127, 127, 127};
    const struct tensor_view in = VIEW(DTYPE_F32, x, 9), scale = view_scalar(DTYPE_F32, &step);
    const struct tensor_view start = view_scalar(DTYPE_I8, &zero), out = VIEW(DTYPE_I8, y, 9);
    ref_quantize(0, &in, &scale, &start, &out);
    assert_ints(&out, want, 9);
}

static void every_type_saturates(void **state UNUSED)
{
    static const struct {
        enum dtype dtype;
        int64_t least, most;
    } rows[] = {{DTYPE_U8, 0, 255},
                {DTYPE_I8, -128, 127},
                {DTYPE_U16, 0, 65535},
                {DTYPE_I16, -32768, 32767}};
    float x[6] = {-INF, -FLT_MAX, NAN, 0, FLT_MAX, INF}, step = 0.25F;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int16_t y[6];
        const int64_t low = rows[i].least, high = rows[i].most;
        const int64_t want[6] = {low, low, low, 0, high, high};
        const struct tensor_view in = VIEW(DTYPE_F32, x, 6), scale = view_scalar(DTYPE_F32, &step);
        const struct tensor_view out = VIEW(rows[i].dtype, y, 6);
        ref_quantize(0, &in, &scale, NULL, &out);
        assert_ints(&out, want, 6);
    }
}

/* Quotients that are halves in fp32, and beside a half in fp64. */
static void quotients_have_the_type_of_the_scale(void **state UNUSED)
{
    float x[2] = {0.49999997F * 0.1F, 2.5F * 0.1F}, step = 0.1F;
    double wide[2] = {(double)x[0], (double)x[1]}, fine = (double)step;
    uint8_t y[2], z[2];
    const struct tensor_view in = VIEW(DTYPE_F32, x, 2), scale = view_scalar(DTYPE_F32, &step);
    const struct tensor_view out = VIEW(DTYPE_U8, y, 2);
    ref_quantize(0, &in, &scale, NULL, &out);
    for (int i = 0; i < 2; i++)
        assert_int_equal(y[i], (int)rintf(x[i] / step));
    const struct tensor_view in64 = VIEW(DTYPE_F64, wide, 2), out64 = VIEW(DTYPE_U8, z, 2);
    const struct tensor_view scale64 = view_scalar(DTYPE_F64, &fine);
    ref_quantize(0, &in64, &scale64, NULL, &out64);
    for (int i = 0; i < 2; i++)
        assert_int_equal(z[i], (int)rint(wide[i] / fine));
}

static void each_index_of_an_axis_has_a_scale(void **state UNUSED)
{
    float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, steps[3] = {1, 0.5F, 2}, back[12];
    uint8_t zeros[3] = {0, 10, 100}, y[12];
    static const int64_t middle[12] = {1, 2, 16, 18, 102, 103, 7, 8, 28, 30, 106, 106};
    static const int64_t last[12] = {1, 14, 102, 4, 20, 103, 7, 26, 104, 10, 32, 106};
    const struct tensor_view scale = VIEW(DTYPE_F32, steps, 3), zero = VIEW(DTYPE_U8, zeros, 3);
    const struct tensor_view in = VIEW(DTYPE_F32, x, 2, 3, 2), out = VIEW(DTYPE_U8, y, 2, 3, 2);
    ref_quantize(1, &in, &scale, &zero, &out);
    assert_ints(&out, middle, 12);
    const struct tensor_view real = VIEW(DTYPE_F32, back, 2, 3, 2);
    ref_dequantize(1, &out, &scale, &zero, &real);
    for (int i = 0; i < 12; i++)
        assert_true(back[i] == (float)((int)middle[i] - zeros[i / 2 % 3]) * steps[i / 2 % 3]);
    const struct tensor_view flat = VIEW(DTYPE_F32, x, 4, 3), bytes = VIEW(DTYPE_U8, y, 4, 3);
    ref_quantize(1, &flat, &scale, &zero, &bytes);
    assert_ints(&bytes, last, 12);
}

/* The difference is exact before it is rounded to fp32, and the product is rounded once more. */
static void long_integers_are_subtracted_exactly(void **state UNUSED)
{
    int32_t x[3] = {16777217, INT32_MIN, 5}, zero = 16777216;
    float step = 0.3F, y[3];
    const struct tensor_view in = VIEW(DTYPE_I32, x, 3), scale = view_scalar(DTYPE_F32, &step);
    const struct tensor_view start = view_scalar(DTYPE_I32, &zero), out = VIEW(DTYPE_F32, y, 3);
    ref_dequantize(0, &in, &scale, &start, &out);
    for (int i = 0; i < 3; i++)
        assert_true(y[i] == (float)((int64_t)x[i] - zero) * step);
}

static void nothing_stays_nothing(void **state UNUSED)
{
    float step = 1;
    uint8_t none[1] = {7};
    const struct tensor_view in = VIEW(DTYPE_F32, &step, 0, 3),
                             scale = view_scalar(DTYPE_F32, &step);
    const struct tensor_view out = VIEW(DTYPE_U8, none, 0, 3);
    ref_quantize(0, &in, &scale, NULL, &out);
    assert_int_equal(none[0], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_go_to_the_even_neighbour),
        cmocka_unit_test(every_type_saturates),
        cmocka_unit_test(quotients_have_the_type_of_the_scale),
        cmocka_unit_test(each_index_of_an_axis_has_a_scale),
        cmocka_unit_test(long_integers_are_subtracted_exactly),
        cmocka_unit_test(nothing_stays_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
