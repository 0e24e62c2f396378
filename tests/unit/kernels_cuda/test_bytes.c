/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that become 8 bits by a scale, and come back, are those that a division gives. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "tests/unit/kernels_cuda/array.h"
#include "tests/test.h"

enum { COUNT = 16 * 70 + 5 }; /* a few are left over by kernels that take 16 at a time */

static const enum dtype bytes[] = {DTYPE_I8, DTYPE_U8, DTYPE_F8};

static uint8_t stored(enum dtype dtype, float v, float step, float zero)
{
    if (dtype == DTYPE_F8) {
        uint8_t q = f32_to_f8(v / step);
        return q == 0x80 ? 0 : q; /* the sign of 0 is no matter */
    }
    float least = dtype == DTYPE_I8 ? -128 : 0, most = least + 255;
    float q = isnan(v) ? least : fminf(fmaxf(rintf(v / step) + zero, least), most);
    return dtype == DTYPE_I8 ? (uint8_t)(int8_t)q : (uint8_t)q;
}

static float stands_for(enum dtype dtype, uint8_t q, float step, float zero)
{
    if (dtype == DTYPE_F8)
        return f8_to_f32(q) * step;
    return ((dtype == DTYPE_I8 ? (float)(int8_t)q : (float)q) - zero) * step;
}

/* Ties, their neighbours, numbers beyond the ends, and what is no number. */
static void fill(struct array *x, float step)
{
    static const float special[] = {0,       -0.0F,    NAN,    INFINITY, -INFINITY,
                                    FLT_MAX, -FLT_MAX, 1e-40F, 1e30F,    -1e30F};
    float *v = array_values(x);
    for (size_t i = 0; i < COUNT; i++) {
        float tie = ((float)array_draw(600) - 300.5F) * step;
        v[i] = i % 4 == 0   ? tie
               : i % 4 == 1 ? nextafterf(tie, 0)
               : i % 4 == 2 ? tie * (1 + (float)array_draw(3) * 1e-7F)
                            : v[i] * 300 * step;
    }
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        v[i * 7] = v[COUNT - 1 - i] = special[i];
    array_store(x);
}

/* x becomes bytes, and these become floats; with gaps, the bytes are no neighbours. */
static void check(enum dtype from, enum dtype to, float step, float zero, bool gaps)
{
    struct kernel_call call = {0};
    struct array x = array_new(from, 1, (const int64_t[]){COUNT}, NULL, 1);
    struct array back = array_new(from, 1, (const int64_t[]){COUNT}, NULL, 1);
    uint8_t *room = NULL;
    int64_t stride = gaps ? 2 : 1;
    assert_int_equal(posix_memalign((void **)&room, 16, 2 * COUNT), 0);
    memset(room, 0xa5, 2 * COUNT);
    fill(&x, step);
    struct kernel_view y = {.data = room,
                            .dtype = (int32_t)to,
                            .rank = 1,
                            .dim = {COUNT},
                            .stride = {stride},
                            .step = step,
                            .zero = zero};
    assert_int_equal(kernel_bytes(&call, &x.view, &y, NULL), cudaSuccess);
    for (size_t i = 0; i < COUNT; i++) {
        float v = array_values(&x)[i];
        uint8_t want = stored(to, v, step, zero), have = room[(int64_t)i * stride];
        have = to == DTYPE_F8 && have == 0x80 ? 0 : have;
        if (have != want)
            fail_msg("%s to %s, step %a zero %g: %a became %u, not %u", dtype_name(from),
                     dtype_name(to), (double)step, (double)zero, (double)v, have, want);
        array_values(&back)[i] = stands_for(to, want, step, zero);
    }
    assert_int_equal(room[2 * COUNT - 1], 0xa5);
    struct array want = back;
    assert_int_equal(kernel_bytes(&call, &y, &back.view, NULL), cudaSuccess);
    array_check(&want, 1e-6, "back from bytes");
    array_free(&x), array_free(&back);
    free(room);
}

static void numbers_are_rounded_as_a_division_rounds(void **state)
{
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    (void)state;
    for (size_t i = 0; i < 180; i++) {
        enum dtype to = bytes[i % 3];
        float zero = to == DTYPE_F8 || i % 2 ? 0 : (float)array_draw(120);
        float step = ldexpf(1 + (float)array_draw(1 << 20) / (1 << 20), -(int)array_draw(9));
        check(floats[i / 3 % 3], to, step, zero, i % 5 == 0);
    }
    check(DTYPE_F32, DTYPE_I8, 3e-29F, 0, false);
    check(DTYPE_F32, DTYPE_U8, 7e28F, 5, false);
}

/* A quotient by them may underflow, or overflow, on the way. */
static void extreme_steps_are_left_to_others(void **state)
{
    static const float steps[] = {1e-31F, 1e-45F, 1e31F, INFINITY};
    struct kernel_call call = {.dry = true};
    struct array x = ARRAY(DTYPE_F32, NULL, 32);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct kernel_view y = x.view;
        y.dtype = DTYPE_I8;
        y.step = steps[i];
        assert_int_equal(kernel_bytes(&call, &x.view, &y, NULL), cudaErrorNotSupported);
    }
    array_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_rounded_as_a_division_rounds),
        cmocka_unit_test(extreme_steps_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
