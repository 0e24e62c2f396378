/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that move elements. Their output is checked index by index against the definition. */
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

enum { MOST = 4096 };

static int32_t xs[MOST], ys[MOST];

static int setup(void **state UNUSED)
{
    for (int i = 0; i < MOST; i++)
        xs[i] = i + 1;
    return 0;
}

static void test_copy(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 4, 6), y = POISONED(DTYPE_I32, ys, 24);
    ref_copy(&x, &y);
    assert_memory_equal(xs, ys, 24 * sizeof(xs[0]));
    ref_copy(&x, &x);
    struct tensor_view none = VIEW(DTYPE_I32, NULL, 0);
    ref_copy(&none, &none);
}

static void test_transpose(void **state UNUSED)
{
    static const int64_t perms[][4] = {
        {0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {0, 2, 3, 1}, {1, 0, 3, 2}};
    const int64_t dims[4] = {2, 3, 4, 5};
    for (size_t p = 0; p < ARRAY_LEN(perms); p++) {
        const int64_t *perm = perms[p];
        struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 3, 4, 5);
        struct tensor_view y =
            POISONED(DTYPE_I32, ys, dims[perm[0]], dims[perm[1]], dims[perm[2]], dims[perm[3]]);
        ref_transpose(perm, &x, &y);
        int64_t i[4];
        for (i[0] = 0; i[0] < 2; i[0]++)
            for (i[1] = 0; i[1] < 3; i[1]++)
                for (i[2] = 0; i[2] < 4; i[2]++)
                    for (i[3] = 0; i[3] < 5; i[3]++) {
                        int64_t to = 0;
                        for (int d = 0; d < 4; d++)
                            to = to * y.shape.dim[d] + i[perm[d]];
                        int64_t from = ((i[0] * 3 + i[1]) * 4 + i[2]) * 5 + i[3];
                        assert_int_equal(ys[to], xs[from]);
                    }
    }
}

/* Every element size has a path of its own in the kernel. */
static void test_transpose_of_each_size(void **state UNUSED)
{
    static const enum dtype types[] = {DTYPE_U8, DTYPE_F16, DTYPE_F32, DTYPE_F64};
    static uint8_t in[64], out[64];
    for (int i = 0; i < 64; i++)
        in[i] = (uint8_t)i;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        size_t size = dtype_size(types[t]);
        const int64_t perm[2] = {1, 0};
        struct tensor_view x = VIEW(types[t], in, 2, 3), y = POISONED(types[t], out, 3, 2);
        ref_transpose(perm, &x, &y);
        for (size_t r = 0; r < 2; r++)
            for (size_t c = 0; c < 3; c++)
                assert_memory_equal(out + (c * 2 + r) * size, in + (r * 3 + c) * size, size);
    }
}

static void test_transpose_of_nothing(void **state UNUSED)
{
    const int64_t perm[2] = {1, 0};
    struct tensor_view x = VIEW(DTYPE_I32, NULL, 0, 3), y = VIEW(DTYPE_I32, NULL, 3, 0);
    ref_transpose(perm, &x, &y);
    struct tensor_view one = view_scalar(DTYPE_I32, xs), to = poisoned(view_scalar(DTYPE_I32, ys));
    ref_transpose(perm, &one, &to);
    assert_int_equal(ys[0], 1);
}

static void test_concat(void **state UNUSED)
{
    struct tensor_view x[3] = {VIEW(DTYPE_I32, xs, 2, 1, 2), VIEW(DTYPE_I32, xs + 100, 2, 0, 2),
                               VIEW(DTYPE_I32, xs + 200, 2, 3, 2)};
    struct tensor_view y = POISONED(DTYPE_I32, ys, 2, 4, 2);
    ref_concat(1, 3, x, &y);
    assert_ints(
        &y,
        (const int64_t[]){1, 2, 201, 202, 203, 204, 205, 206, 3, 4, 207, 208, 209, 210, 211, 212},
        16);
    struct tensor_view z[2] = {VIEW(DTYPE_I32, xs, 2), VIEW(DTYPE_I32, xs + 10, 1)};
    y = POISONED(DTYPE_I32, ys, 3);
    ref_concat(0, 2, z, &y);
    assert_ints(&y, (const int64_t[]){1, 2, 11}, 3);
}

static void test_slice(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 3, 4), y = POISONED(DTYPE_I32, ys, 2, 2);
    ref_slice((const int64_t[]){1, 1}, (const int64_t[]){1, 2}, &x, &y);
    assert_ints(&y, (const int64_t[]){6, 8, 10, 12}, 4);
    y = POISONED(DTYPE_I32, ys, 2, 4); /* backwards */
    ref_slice((const int64_t[]){2, 3}, (const int64_t[]){-2, -1}, &x, &y);
    assert_ints(&y, (const int64_t[]){12, 11, 10, 9, 4, 3, 2, 1}, 8);
    y = POISONED(DTYPE_I32, ys, 1, 4); /* a step that is never taken may be of any size */
    ref_slice((const int64_t[]){2, 0}, (const int64_t[]){INT64_MAX, 1}, &x, &y);
    assert_ints(&y, (const int64_t[]){9, 10, 11, 12}, 4);
    y = VIEW(DTYPE_I32, NULL, 0, 4); /* starts behind the end */
    ref_slice((const int64_t[]){3, 0}, (const int64_t[]){1, 1}, &x, &y);
}

static void test_expand(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 1), y = POISONED(DTYPE_I32, ys, 2, 2, 3);
    ref_expand(&x, &y);
    assert_ints(&y, (const int64_t[]){1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}, 12);
}

static void test_tile(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 2), y = POISONED(DTYPE_I32, ys, 4, 6);
    ref_tile(&x, &y);
    assert_ints(&y, (const int64_t[]){1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4,
                                      1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4},
                24);
    y = VIEW(DTYPE_I32, NULL, 0, 2);
    ref_tile(&x, &y);
}

static void test_trilu(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 2, 3), y = POISONED(DTYPE_I32, ys, 2, 2, 3);
    ref_trilu(true, 0, &x, &y);
    assert_ints(&y, (const int64_t[]){1, 2, 3, 0, 5, 6, 7, 8, 9, 0, 11, 12}, 12);
    ref_trilu(true, 1, &x, &y);
    assert_ints(&y, (const int64_t[]){0, 2, 3, 0, 0, 6, 0, 8, 9, 0, 0, 12}, 12);
    ref_trilu(false, 0, &x, &y);
    assert_ints(&y, (const int64_t[]){1, 0, 0, 4, 5, 0, 7, 0, 0, 10, 11, 0}, 12);
    ref_trilu(false, -5, &x, &y);
    assert_ints(&y, (const int64_t[12]){0}, 12);
}

static void test_pad(void **state UNUSED)
{
    static const struct {
        enum ir_pad mode;
        int64_t want[2 * 7];
    } cases[] = {
        {IR_PAD_CONSTANT, {9, 9, 1, 2, 3, 9, 9, 9, 9, 4, 5, 6, 9, 9}},
        {IR_PAD_REFLECT, {3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4}},
        {IR_PAD_EDGE, {1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6, 6, 6}},
        {IR_PAD_WRAP, {2, 3, 1, 2, 3, 1, 2, 5, 6, 4, 5, 6, 4, 5}},
    };
    const int64_t pads[4] = {0, 2, 0, 2};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 3), y = POISONED(DTYPE_I32, ys, 2, 7);
        ref_pad(cases[i].mode, pads, 9, &x, &y);
        assert_ints(&y, cases[i].want, 14);
    }
    const int64_t crop[4] = {0, -1, -1, 1};
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 3), y = POISONED(DTYPE_I32, ys, 1, 3);
    ref_pad(IR_PAD_CONSTANT, crop, 7, &x, &y);
    assert_ints(&y, (const int64_t[]){2, 3, 7}, 3);
    x = VIEW(DTYPE_I32, NULL, 0, 2); /* nothing to repeat: only constants are padded in */
    y = POISONED(DTYPE_I32, ys, 1, 2);
    ref_pad(IR_PAD_CONSTANT, (const int64_t[]){1, 0, 0, 0}, 7, &x, &y);
    assert_ints(&y, (const int64_t[]){7, 7}, 2);
}

/* Where layout `layout` puts element (n, c, s), by definition. */
static int64_t place(enum ir_layout layout, int64_t channels, int64_t spatial, int64_t n, int64_t c,
                     int64_t s)
{
    int64_t b = layout == IR_LAYOUT_BLOCKED_8 ? 8 : 16;
    int64_t blocks = (channels + b - 1) / b;
    switch (layout) {
    case IR_LAYOUT_PLAIN:
        return (n * channels + c) * spatial + s;
    case IR_LAYOUT_CHANNELS_LAST:
        return (n * spatial + s) * channels + c;
    case IR_LAYOUT_CHANNELS_LAST_4:
        return (n * spatial + s) * ((channels + 3) / 4 * 4) + c;
    case IR_LAYOUT_CHANNELS_LAST_8:
        return (n * spatial + s) * ((channels + 7) / 8 * 8) + c;
    default:
        return ((n * blocks + c / b) * spatial + s) * b + c % b;
    }
}

static int64_t stored(enum ir_layout layout, int64_t channels)
{
    static const int64_t multiples[IR_LAYOUT_COUNT_] = {1, 1, 8, 16, 0, 4, 8};
    int64_t b = multiples[layout];
    return (channels + b - 1) / b * b;
}

static void test_reformat_between_all(void **state UNUSED)
{
    static int32_t middle[MOST];
    enum { IMAGES = 2, HEIGHT = 3, WIDTH = 2, AREA = HEIGHT * WIDTH };
    for (int64_t channels = 1; channels <= 33; channels += 4)
        for (int from = IR_LAYOUT_PLAIN; from < IR_LAYOUT_COUNT_; from++)
            for (int to = IR_LAYOUT_PLAIN; to < IR_LAYOUT_COUNT_; to++) {
                enum ir_layout a = (enum ir_layout)from, b = (enum ir_layout)to;
                /* the layout is opaque to the reference kernel, which refuses it */
                if (from == 4 || to == 4)
                    continue;
                struct tensor_view x = VIEW(DTYPE_I32, xs, IMAGES, channels, HEIGHT, WIDTH);
                struct tensor_view m = x, y = x;
                m.data = middle;
                y.data = ys;
                memset(middle, 0xff, sizeof(middle));
                memset(ys, 0xff, sizeof(ys));
                ref_reformat(IR_LAYOUT_PLAIN, a, &x, &m);
                ref_reformat(a, b, &m, &y);
                for (int64_t n = 0; n < IMAGES; n++)
                    for (int64_t c = 0; c < stored(b, channels); c++)
                        for (int64_t s = 0; s < AREA; s++) {
                            int32_t want = c < channels ? xs[(n * channels + c) * AREA + s] : 0;
                            int64_t at = place(b, channels, AREA, n, c, s);
                            if (ys[at] != want)
                                fail_msg("%d channels, layout %d to %d: [%d,%d,%d] is %d, not %d",
                                         (int)channels, from, to, (int)n, (int)c, (int)s, ys[at],
                                         want);
                        }
                size_t end = (size_t)(IMAGES * stored(b, channels) * AREA);
                assert_int_equal(ys[end], -1); /* nothing behind it */
            }
}

/* Halves of small integers are exact in all three types. */
static void test_reformat_to_another_type(void **state UNUSED)
{
    enum { CHANNELS = 5, AREA = 300 };
    static float plain[CHANNELS * AREA], back[CHANNELS * AREA];
    static uint16_t low[8 * AREA + 1];
    static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < CHANNELS * AREA; i++)
        plain[i] = (float)(i % 251 - 125) / 2;
    for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++) {
        struct tensor_view x = VIEW(DTYPE_F32, plain, 1, CHANNELS, AREA), y = x, z = x;
        y.dtype = types[k];
        y.data = low;
        z.data = back;
        memset(low, 0xff, sizeof(low));
        memset(back, 0xff, sizeof(back));
        ref_reformat(IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST_8, &x, &y);
        for (int s = 0; s < AREA; s++)
            for (int c = CHANNELS; c < 8; c++)
                assert_int_equal(low[8 * s + c], 0);
        assert_int_equal(low[8 * AREA], 0xffff);
        ref_reformat(IR_LAYOUT_CHANNELS_LAST_8, IR_LAYOUT_PLAIN, &y, &z);
        for (int i = 0; i < CHANNELS * AREA; i++)
            if (back[i] != plain[i])
                fail_msg("%s: [%d] is %g, not %g", dtype_name(types[k]), i, (double)back[i],
                         (double)plain[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_transpose_of_each_size),
        cmocka_unit_test(test_transpose_of_nothing),
        cmocka_unit_test(test_concat),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_tile),
        cmocka_unit_test(test_trilu),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_reformat_between_all),
        cmocka_unit_test(test_reformat_to_another_type),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
