/* SPDX-License-Identifier: Apache-2.0 */
/* The fast rows of every instruction set that this machine has, against the reference kernels. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/bytes.h"
#include "kernels/cpu/fast.h"
#include "tests/unit/cpu/views.h"

enum { N = 3000 };

static const struct fast_kernels *tables[FAST_MAX];
static size_t n_tables;
static float xs[N], bs[N], ys[N], want[N];

static int setup(void **state UNUSED)
{
    n_tables = fast_kernels_list(tables);
    return 0;
}

static void test_list_ends_with_the_base(void **state UNUSED)
{
    assert_in_range(n_tables, 1, FAST_MAX);
    assert_string_equal(tables[n_tables - 1]->isa, "base");
}

/* Numbers of every size, and infinities, NaN and zeros. */
static void fill_wide(float *out, size_t n, uint32_t seed)
{
    static const float special[] = {0,         -0.0F,     1,      -1,     INFINITY, -INFINITY,
                                    NAN,       1e-40F,    100,    -100,   88.7F,    -88.7F,
                                    1e30F,     -1e30F,    0.63F,  -0.63F, 1e-8F,    -1e-8F,
                                    0.999999F, 1.000001F, 104.5F, -104.5F};
    fill_random(out, n, seed);
    for (size_t i = 0; i < n; i++)
        out[i] *= i % 3 == 0 ? 1 : i % 3 == 1 ? 10 : 100;
    memcpy(out, special, sizeof(special));
}

static void test_bytes_are_looked_up(void **state UNUSED)
{
    uint8_t table[256], x[300], y[301];
    for (uint32_t i = 0; i < 256; i++)
        table[i] = (uint8_t)(i * 167 + 13);
    for (uint32_t i = 0; i < sizeof(x); i++)
        x[i] = (uint8_t)(i * 89 + i / 256);
    for (size_t t = 0; t < n_tables; t++)
        for (size_t n = 0; n <= sizeof(x); n++) {
            memset(y, 0xee, sizeof(y));
            tables[t]->bytes->look_up(x, y, n, table);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(y[i], table[x[i]]);
            assert_int_equal(y[n], 0xee);
        }
}

struct unary_case {
    enum ir_unary func;
    float a, b;
    double tolerance; /* relative to max(|want|, floor) */
    double floor;
};

static const struct unary_case unary_cases[] = {
    {IR_UNARY_RELU, 0, 0, 0, 0},
    {IR_UNARY_LEAKY_RELU, 0.1F, 0, 1e-7, 0},
    {IR_UNARY_SIGMOID, 0, 0, 4e-7, 1e-32},
    {IR_UNARY_HARD_SIGMOID, 0.2F, 0.5F, 1e-7, 0.5},
    {IR_UNARY_HARD_SWISH, 0, 0, 3e-7, 0.5},
    {IR_UNARY_SWISH, 1, 0, 4e-7, 1e-30},
    {IR_UNARY_TANH, 0, 0, 3e-7, 1e-37},
    {IR_UNARY_GELU, 0, 0, 3e-6, 1e-7},
    {IR_UNARY_GELU_TANH, 0, 0, 2e-6, 1e-2},
    {IR_UNARY_CLIP, -0.5F, 0.25F, 0, 0},
    {IR_UNARY_FLOOR, 0, 0, 0, 0},
    {IR_UNARY_CEIL, 0, 0, 0, 0},
    {IR_UNARY_ROUND, 0, 0, 0, 0},
    {IR_UNARY_SIGN, 0, 0, 0, 0},
    {IR_UNARY_LOG, 0, 0, 2e-7, 1e-7},
    {IR_UNARY_SIN, 0, 0, 2e-7, 1e-7},
    {IR_UNARY_COS, 0, 0, 2e-7, 1e-7},
    {IR_UNARY_SOFTPLUS, 0, 0, 3e-7, 1e-36},
    {IR_UNARY_LINEAR, 2.5F, -0.75F, 3e-7, 1},
    {IR_UNARY_ABS, 0, 0, 0, 0},
    {IR_UNARY_NEG, 0, 0, 0, 0},
    {IR_UNARY_EXP, 0, 0, 3e-7, 1e-37},
    {IR_UNARY_SQRT, 0, 0, 1e-7, 0},
    {IR_UNARY_RECIPROCAL, 0, 0, 1e-7, 0},
    {IR_UNARY_ERF, 0, 0, 4e-7, 1e-37},
};

static void compare(const char *isa, int func, const float *x, const float *got,
                    const float *wanted, size_t n, double tolerance, double floor)
{
    for (size_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)wanted[i];
        bool same = isnan(w) ? isnan(g) : g == w;
        if (!same && !(fabs(g - w) <= tolerance * fmax(fabs(w), floor)))
            fail_msg("%s, function %d of %.9g: got %.9g, want %.9g", isa, func, (double)x[i], g, w);
    }
}

static void test_unary(void **state UNUSED)
{
    fill_wide(xs, N, 1);
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < ARRAY_LEN(unary_cases); i++) {
            const struct unary_case *c = &unary_cases[i];
            struct tensor_view x = VIEW(DTYPE_F32, xs, N), y = POISONED(DTYPE_F32, want, N);
            ref_unary(c->func, (double)c->a, (double)c->b, 0, &x, &y);
            memset(ys, 0xff, sizeof(ys));
            assert_non_null(tables[t]->unary[c->func]);
            tables[t]->unary[c->func](xs, ys, N, c->a, c->b);
            compare(tables[t]->isa, (int)c->func, xs, ys, want, N, c->tolerance, c->floor);
            memcpy(ys, xs, sizeof(ys)); /* in place, and an odd length */
            tables[t]->unary[c->func](ys, ys, N - 5, c->a, c->b);
            compare(tables[t]->isa, (int)c->func, xs, ys, want, N - 5, c->tolerance, c->floor);
            assert_memory_equal(ys + N - 5, xs + N - 5, 5 * sizeof(float));
        }
}

static void test_every_unary_is_tested(void **state UNUSED)
{
    size_t n = 0;
    for (int f = 0; f < IR_UNARY_COUNT_; f++)
        n += tables[0]->unary[f] != NULL;
    assert_int_equal(n, ARRAY_LEN(unary_cases));
}

static void test_binary(void **state UNUSED)
{
    fill_wide(xs, N, 1);
    fill_wide(bs, N, 2);
    for (size_t i = 0; i < 40; i++) /* each special value meets the neighbours of the others */
        bs[i] = bs[(i + 1) % 22];
    for (size_t t = 0; t < n_tables; t++)
        for (int f = 0; f < IR_BINARY_COUNT_; f++) {
            if (!tables[t]->binary[f])
                continue;
            struct tensor_view a = VIEW(DTYPE_F32, xs, N), b = VIEW(DTYPE_F32, bs, N);
            struct tensor_view y = POISONED(DTYPE_F32, want, N);
            ref_binary((enum ir_binary)f, false, &a, &b, &y);
            memset(ys, 0x7f, sizeof(ys));
            tables[t]->binary[f](xs, bs, ys, N);
            compare(tables[t]->isa, f, xs, ys, want, N, f == IR_BINARY_POW ? 2e-7 : 0, 1e-37);
            memcpy(ys, bs, sizeof(ys));
            tables[t]->binary[f](xs, ys, ys, N);
            compare(tables[t]->isa, f, xs, ys, want, N, f == IR_BINARY_POW ? 2e-7 : 0, 1e-37);
        }
    for (size_t i = 0; i < N; i++)
        bs[i] = 2;
    for (size_t t = 0; t < n_tables; t++) {
        tables[t]->binary[IR_BINARY_POW](xs, bs, ys, N);
        for (size_t i = 0; i < N; i++)
            want[i] = xs[i] * xs[i];
        compare(tables[t]->isa, IR_BINARY_POW, xs, ys, want, N, 0, 0);
    }
}

static void test_softmax(void **state UNUSED)
{
    static const size_t lengths[] = {1, 2, 15, 16, 17, 128, 197, 1000, N};
    for (size_t t = 0; t < n_tables; t++)
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
            for (int log_of = 0; log_of < 2; log_of++) {
                size_t n = lengths[l];
                fill_random(xs, n, (uint32_t)n);
                for (size_t i = 0; i < n; i++)
                    xs[i] *= 8;
                if (n > 100)
                    xs[3] = -INFINITY; /* a mask */
                struct tensor_view x = VIEW(DTYPE_F32, xs, (int64_t)n);
                struct tensor_view y = POISONED(DTYPE_F32, want, (int64_t)n);
                ref_softmax(0, log_of, &x, &y);
                memset(ys, 0xff, sizeof(ys));
                tables[t]->softmax(xs, ys, n, log_of);
                compare(tables[t]->isa, log_of, xs, ys, want, n, 2e-6, log_of ? 1 : 1e-30);
            }
}

static void test_softmax_of_infinities_is_no_number(void **state UNUSED)
{
    for (size_t t = 0; t < n_tables; t++) {
        float x[3] = {-INFINITY, -INFINITY, -INFINITY}, y[3] = {0};
        const float none[3] = {NAN, NAN, NAN};
        tables[t]->softmax(x, y, 3, false);
        assert_floats(y, none, 3, 0);
        x[1] = INFINITY;
        y[0] = y[1] = y[2] = 0;
        tables[t]->softmax(x, y, 3, false);
        assert_true(isnan(y[1]));
    }
}

static void test_layer_norm(void **state UNUSED)
{
    static const size_t lengths[] = {1, 7, 64, 768, 1024, 1025, N};
    for (size_t t = 0; t < n_tables; t++)
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++)
            for (int form = 0; form < 4; form++) {
                bool with_bias = form & 1, rms = form & 2;
                size_t n = lengths[l];
                static float scale[N];
                fill_random(xs, n, 1);
                fill_random(bs, n, 2);
                fill_random(scale, n, 3);
                for (size_t i = 0; i < n; i++)
                    xs[i] += 5; /* the mean is large against the deviation */
                struct tensor_view x = VIEW(DTYPE_F32, xs, (int64_t)n),
                                   b = VIEW(DTYPE_F32, bs, (int64_t)n);
                struct tensor_view s = VIEW(DTYPE_F32, scale, (int64_t)n);
                struct tensor_view y = POISONED(DTYPE_F32, want, (int64_t)n);
                ref_layer_norm(0, rms, 1e-5, &x, &s, with_bias ? &b : NULL, &y);
                memset(ys, 0xff, sizeof(ys));
                tables[t]->layer_norm(xs, scale, with_bias ? bs : NULL, rms, 1e-5F, ys, n);
                compare(tables[t]->isa, (int)n, xs, ys, want, n, 3e-6, 1);
            }
}

static void test_transpose(void **state UNUSED)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {16, 16}, {17, 33}, {40, 64}, {64, 15}};
    static uint32_t in[64 * 80], out[64 * 80];
    for (uint32_t i = 0; i < ARRAY_LEN(in); i++)
        in[i] = i;
    for (size_t t = 0; t < n_tables; t++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
            int64_t rows = sizes[s][0], cols = sizes[s][1], wide = cols + 3, tall = rows + 2;
            memset(out, 0xff, sizeof(out));
            tables[t]->transpose_32(in, wide, out, tall, rows, cols);
            for (int64_t c = 0; c < cols; c++)
                for (int64_t r = 0; r < tall; r++)
                    assert_int_equal(out[c * tall + r], r < rows ? in[r * wide + c] : UINT32_MAX);
        }
}

/* Numbers of rows and columns around those of tiles. A step of 0 repeats the initial sums for each
 * row. */
static void test_product(void **state UNUSED)
{
    enum { MOST_ROWS = 9, MOST_COLS = 130, MOST_DEPTH = 33 };
    static const int64_t rows[] = {1, 2, 3, 4, 5, 9}, cols[] = {1, 63, 64, 65, 130},
                         depths[] = {1, 2, 33};
    static float x[MOST_ROWS * MOST_DEPTH], m[MOST_COLS * MOST_DEPTH], start[MOST_COLS * MOST_ROWS],
        y[MOST_ROWS * (MOST_COLS + 1)], packed[192 * MOST_DEPTH];
    fill_random(x, ARRAY_LEN(x), 1);
    fill_random(m, ARRAY_LEN(m), 2);
    fill_random(start, ARRAY_LEN(start), 3);
    for (size_t t = 0; t < n_tables; t++)
        for (size_t i = 0; i < ARRAY_LEN(rows) * ARRAY_LEN(cols) * ARRAY_LEN(depths); i++) {
            int64_t n = rows[i % 6], c = cols[i / 6 % 5], d = depths[i / 30], step = i % 2 ? c : 0;
            assert_in_range(fast_packed_floats(c, d), 1, ARRAY_LEN(packed));
            fast_pack(m, c, d, packed);
            memset(y, 0xff, sizeof(y));
            tables[t]->product(packed, d, c, n, x, d, start, step, y, c + 1);
            for (int64_t r = 0; r < n; r++) {
                for (int64_t j = 0; j < c; j++) {
                    double sum = (double)start[r * step + j];
                    for (int64_t k = 0; k < d; k++)
                        sum += (double)x[r * d + k] * (double)m[j * d + k];
                    float expected = (float)sum;
                    assert_floats(&y[r * (c + 1) + j], &expected, 1, 5e-6);
                }
                assert_true(isnan(y[r * (c + 1) + c])); /* nothing is written behind a row */
            }
        }
}

/* A softmax across rows is the softmax of the transposed matrix. */
static void test_softmax_across(void **state UNUSED)
{
    static const struct {
        int64_t rows, step;
        size_t n;
        bool log_of;
    } cases[] = {{16, 100, 100, false}, {16, 100, 70, true}, {3, 5, 1, false}, {600, 4, 4, true}};
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t t = 0; t < n_tables; t++) {
            int64_t rows = cases[c].rows, step = cases[c].step;
            fill_random(xs, (size_t)(rows * step), 3);
            memset(ys, 0xff, sizeof(ys));
            struct tensor_view x = VIEW(DTYPE_F32, xs, rows, step);
            struct tensor_view y = POISONED(DTYPE_F32, want, rows, step);
            ref_softmax(0, cases[c].log_of, &x, &y);
            tables[t]->softmax_across(xs, ys, rows, step, cases[c].n, cases[c].log_of);
            for (int64_t r = 0; r < rows; r++) {
                assert_floats(ys + r * step, want + r * step, cases[c].n, 1e-6);
                if ((int64_t)cases[c].n < step)
                    assert_true(isnan(ys[r * step + (int64_t)cases[c].n]));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_ends_with_the_base),
        cmocka_unit_test(test_bytes_are_looked_up),
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_every_unary_is_tested),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_of_infinities_is_no_number),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_product),
        cmocka_unit_test(test_softmax_across),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
