/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that read indices from tensors, which a peer may have chosen, and kernels along an
 * axis. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref.h"
#include "tests/unit/cpu/views.h"

static int32_t xs[64], ys[64];

static int setup(void **state UNUSED)
{
    for (int i = 0; i < 64; i++)
        xs[i] = i + 1;
    return 0;
}

static void test_gather(void **state UNUSED)
{
    int64_t wide[4] = {2, 0, -1, 1};
    int32_t narrow[4] = {2, 0, -1, 1};
    static const int64_t rows[8] = {5, 6, 1, 2, 5, 6, 3, 4};
    static const int64_t cols[8] = {3, 1, 3, 2, 6, 4, 6, 5};
    struct error err;
    for (int k = 0; k < 2; k++) {
        void *data = k ? (void *)narrow : (void *)wide;
        struct tensor_view indices = VIEW(k ? DTYPE_I32 : DTYPE_I64, data, 2, 2);
        struct tensor_view x = VIEW(DTYPE_I32, xs, 3, 2), y = POISONED(DTYPE_I32, ys, 2, 2, 2);
        assert_int_equal(ref_gather(0, &x, &indices, &y, &err), STATUS_OK);
        assert_ints(&y, rows, 8);
        x = VIEW(DTYPE_I32, xs, 2, 3);
        y = POISONED(DTYPE_I32, ys, 2, 2, 2);
        assert_int_equal(ref_gather(1, &x, &indices, &y, &err), STATUS_OK);
        assert_ints(&y, cols, 8);
    }
}

/* Indices just outside on either side, and the most extreme ones. */
static const int64_t bad[] = {3, -4, INT64_MAX, INT64_MIN};

static void test_gather_refuses_indices(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int64_t index = bad[i];
        struct error err = {0};
        struct tensor_view x = VIEW(DTYPE_I32, xs, 3, 3), y = POISONED(DTYPE_I32, ys, 1, 3);
        struct tensor_view indices = VIEW(DTYPE_I64, &index, 1);
        assert_int_equal(ref_gather(0, &x, &indices, &y, &err), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "out of range"));
        indices = VIEW(DTYPE_I64, &index, 1, 1);
        y = POISONED(DTYPE_I32, ys, 1, 1);
        assert_int_equal(ref_gather_elements(0, &x, &indices, &y, &err), STATUS_INVALID_ARGUMENT);
        y = POISONED(DTYPE_I32, ys, 1, 3);
        assert_int_equal(ref_gather_nd(0, &x, &indices, &y, &err), STATUS_INVALID_ARGUMENT);
    }
    int64_t index = 0; /* there is no element at all */
    struct error err = {0};
    struct tensor_view none = VIEW(DTYPE_I32, NULL, 0, 3), y = POISONED(DTYPE_I32, ys, 1, 3);
    struct tensor_view indices = VIEW(DTYPE_I64, &index, 1);
    assert_int_equal(ref_gather(0, &none, &indices, &y, &err), STATUS_INVALID_ARGUMENT);
}

static void test_scatter_refuses_indices(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int64_t index = bad[i];
        int32_t update[3] = {-1, -1, -1};
        struct error err = {0};
        struct tensor_view x = VIEW(DTYPE_I32, xs, 3, 3), y = POISONED(DTYPE_I32, ys, 3, 3);
        struct tensor_view indices = VIEW(DTYPE_I64, &index, 1, 1);
        struct tensor_view updates = VIEW(DTYPE_I32, update, 1, 1);
        assert_int_equal(ref_scatter_elements(1, IR_SCATTER_SET, &x, &indices, &updates, &y, &err),
                         STATUS_INVALID_ARGUMENT);
        updates = VIEW(DTYPE_I32, update, 1, 3);
        assert_int_equal(ref_scatter_nd(IR_SCATTER_ADD, &x, &indices, &updates, &y, &err),
                         STATUS_INVALID_ARGUMENT);
        assert_memory_equal(xs, ys, 9 * sizeof(xs[0]));
    }
}

static void test_gather_elements(void **state UNUSED)
{
    int64_t index[4] = {0, 0, -1, 1};
    struct error err;
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 3), y = POISONED(DTYPE_I32, ys, 2, 2);
    struct tensor_view indices = VIEW(DTYPE_I64, index, 2, 2);
    assert_int_equal(ref_gather_elements(1, &x, &indices, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){1, 1, 6, 5}, 4);
    assert_int_equal(ref_gather_elements(0, &x, &indices, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){1, 2, 4, 5}, 4);
}

static void test_gather_nd(void **state UNUSED)
{
    int64_t index[4] = {1, 0, 0, -1};
    struct error err;
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 2, 2), y = POISONED(DTYPE_I32, ys, 2, 2);
    struct tensor_view indices = VIEW(DTYPE_I64, index, 2, 2);
    assert_int_equal(ref_gather_nd(0, &x, &indices, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){5, 6, 3, 4}, 4);
    int64_t batched[2] = {1, 0};
    indices = VIEW(DTYPE_I64, batched, 2, 1);
    assert_int_equal(ref_gather_nd(1, &x, &indices, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){3, 4, 5, 6}, 4);
}

static void test_scatter_elements(void **state UNUSED)
{
    int64_t index[2] = {1, -1};
    int32_t update[2] = {10, 20};
    static const int64_t wants[5][5] = {{1, 10, 3, 4, 20},
                                        {1, 12, 3, 4, 25},
                                        {1, 20, 3, 4, 100},
                                        {1, 10, 3, 4, 20},
                                        {1, 2, 3, 4, 5}};
    struct error err;
    for (int f = IR_SCATTER_SET; f <= IR_SCATTER_MIN; f++) {
        struct tensor_view x = VIEW(DTYPE_I32, xs, 1, 5), y = POISONED(DTYPE_I32, ys, 1, 5);
        struct tensor_view indices = VIEW(DTYPE_I64, index, 1, 2);
        struct tensor_view updates = VIEW(DTYPE_I32, update, 1, 2);
        assert_int_equal(
            ref_scatter_elements(1, (enum ir_scatter)f, &x, &indices, &updates, &y, &err),
            STATUS_OK);
        assert_ints(&y, wants[f], 5);
    }
}

static void test_scatter_nd(void **state UNUSED)
{
    int64_t index[3] = {2, 0, 2};
    int32_t update[6] = {10, 20, 30, 40, 50, 60};
    struct error err;
    struct tensor_view x = VIEW(DTYPE_I32, xs, 3, 2), y = POISONED(DTYPE_I32, ys, 3, 2);
    struct tensor_view indices = VIEW(DTYPE_I64, index, 3, 1);
    struct tensor_view updates = VIEW(DTYPE_I32, update, 3, 2);
    assert_int_equal(ref_scatter_nd(IR_SCATTER_SET, &x, &indices, &updates, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){30, 40, 3, 4, 50, 60}, 6); /* the last one wins */
    assert_int_equal(ref_scatter_nd(IR_SCATTER_ADD, &x, &indices, &updates, &y, &err), STATUS_OK);
    assert_ints(&y, (const int64_t[]){31, 42, 3, 4, 65, 86}, 6);
}

static void test_one_hot(void **state UNUSED)
{
    int64_t index[3] = {1, -1, 3};
    int32_t values[2] = {7, 9};
    struct tensor_view indices = VIEW(DTYPE_I64, index, 3), v = VIEW(DTYPE_I32, values, 2);
    struct tensor_view y = POISONED(DTYPE_I32, ys, 3, 3);
    ref_one_hot(1, &indices, &v, &y);
    assert_ints(&y, (const int64_t[]){7, 9, 7, 7, 7, 9, 7, 7, 7}, 9);
    ref_one_hot(0, &indices, &v, &y);
    assert_ints(&y, (const int64_t[]){7, 7, 7, 9, 7, 7, 7, 9, 7}, 9);
}

static void test_arg_reduce(void **state UNUSED)
{
    float x[6] = {1, 3, 3, 2, NAN, 5};
    int64_t at[3];
    struct tensor_view vx = VIEW(DTYPE_F32, x, 2, 3), y = POISONED(DTYPE_I64, at, 2, 1);
    ref_arg_reduce(false, false, 1, &vx, &y);
    assert_ints(&y, (const int64_t[]){1, 1}, 2);
    ref_arg_reduce(false, true, 1, &vx, &y);
    assert_ints(&y, (const int64_t[]){2, 1}, 2);
    ref_arg_reduce(true, false, 1, &vx, &y);
    assert_ints(&y, (const int64_t[]){0, 1}, 2); /* numpy.argmin stops at the NaN too */
    y = POISONED(DTYPE_I64, at, 1, 3);
    ref_arg_reduce(false, false, 0, &vx, &y);
    assert_ints(&y, (const int64_t[]){1, 1, 1}, 3);
    uint64_t u[2] = {5, UINT64_MAX};
    struct tensor_view vu = VIEW(DTYPE_U64, u, 2);
    y = POISONED(DTYPE_I64, at, 1);
    ref_arg_reduce(false, false, 0, &vu, &y);
    assert_ints(&y, (const int64_t[]){1}, 1);
}

static void test_cumsum(void **state UNUSED)
{
    struct tensor_view x = VIEW(DTYPE_I32, xs, 2, 3), y = POISONED(DTYPE_I32, ys, 2, 3);
    ref_cumsum(1, false, false, &x, &y);
    assert_ints(&y, (const int64_t[]){1, 3, 6, 4, 9, 15}, 6);
    ref_cumsum(1, true, false, &x, &y);
    assert_ints(&y, (const int64_t[]){0, 1, 3, 0, 4, 9}, 6);
    ref_cumsum(1, false, true, &x, &y);
    assert_ints(&y, (const int64_t[]){6, 5, 3, 15, 11, 6}, 6);
    ref_cumsum(0, true, true, &x, &y);
    assert_ints(&y, (const int64_t[]){4, 5, 6, 0, 0, 0}, 6);
    float f[3] = {0.5f, 1, -3}, g[3];
    const float want[3] = {0.5f, 1.5f, -1.5f};
    struct tensor_view vf = VIEW(DTYPE_F32, f, 3), vg = POISONED(DTYPE_F32, g, 3);
    ref_cumsum(0, false, false, &vf, &vg);
    assert_floats(g, want, 3, 0);
}

static void test_topk(void **state UNUSED)
{
    float x[6] = {1, 5, 5, NAN, -2, 5}, v[4];
    int64_t at[4], scratch[64];
    assert_true(ref_topk_scratch(6) <= sizeof(scratch));
    struct tensor_view vx = VIEW(DTYPE_F32, x, 6), values = POISONED(DTYPE_F32, v, 4);
    struct tensor_view indices = POISONED(DTYPE_I64, at, 4);
    ref_topk(0, true, &vx, &values, &indices, scratch);
    const float largest[4] = {NAN, 5, 5, 5}, smallest[4] = {-2, 1, 5, 5};
    assert_floats(v, largest, 4, 0);
    assert_ints(&indices, (const int64_t[]){3, 1, 2, 5}, 4);
    ref_topk(0, false, &vx, &values, &indices, scratch);
    assert_floats(v, smallest, 4, 0);
    assert_ints(&indices, (const int64_t[]){4, 0, 1, 2}, 4);
    int32_t y[2];
    struct tensor_view m = VIEW(DTYPE_I32, xs, 3, 2), top = POISONED(DTYPE_I32, y, 1, 2);
    indices = POISONED(DTYPE_I64, at, 1, 2);
    ref_topk(0, true, &m, &top, &indices, scratch);
    assert_ints(&top, (const int64_t[]){5, 6}, 2);
    assert_ints(&indices, (const int64_t[]){2, 2}, 2);
}

/* Against a sort done another way: rank by counting. */
static void test_topk_sorts_much(void **state UNUSED)
{
    enum { N = 500 };
    static float x[N], v[N];
    static int64_t at[N], scratch[N * 4];
    assert_true(ref_topk_scratch(N) <= sizeof(scratch));
    fill_random(x, N, 3);
    for (int i = 0; i < N; i += 3)
        x[i] = roundf(x[i] * 4); /* many are equal */
    struct tensor_view vx = VIEW(DTYPE_F32, x, N), values = POISONED(DTYPE_F32, v, N);
    struct tensor_view indices = POISONED(DTYPE_I64, at, N);
    ref_topk(0, true, &vx, &values, &indices, scratch);
    for (int i = 0; i < N; i++) {
        int rank = 0;
        for (int k = 0; k < N; k++)
            rank += x[k] > x[i] || (x[k] == x[i] && k < i);
        assert_int_equal(at[rank], i);
        assert_true(v[rank] == x[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_refuses_indices),
        cmocka_unit_test(test_scatter_refuses_indices),
        cmocka_unit_test(test_gather_elements),
        cmocka_unit_test(test_gather_nd),
        cmocka_unit_test(test_scatter_elements),
        cmocka_unit_test(test_scatter_nd),
        cmocka_unit_test(test_one_hot),
        cmocka_unit_test(test_arg_reduce),
        cmocka_unit_test(test_cumsum),
        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_topk_sorts_much),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
