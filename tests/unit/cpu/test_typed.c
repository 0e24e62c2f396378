/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of typed.h, of every instruction set that this machine has, gives the reference's
 * bytes. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/fast.h"
#include "kernels/cpu/typed.h"
#include "tests/unit/cpu/views.h"

enum { N = 1 << 16 };

static const struct fast_kernels *tables[FAST_MAX];
static size_t n_tables;
static uint64_t as[N], bs[N], cs[N], want[N], got[N + 1];

static int setup(void **state UNUSED)
{
    n_tables = fast_kernels_list(tables);
    return 0;
}

/* Numbers of all sizes, and those at which something changes. Types of 16 bits or less have all
 * their values. */
static double number(size_t i, uint32_t seed)
{
    static const double special[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.5,
                                     -0.5,
                                     255,
                                     256,
                                     -128,
                                     -129,
                                     65504,
                                     65520,
                                     65535.9,
                                     1e-8,
                                     6e-8,
                                     6.1e-5,
                                     0x1p31,
                                     -0x1p31,
                                     0x1p31 - 1,
                                     -0x1p31 - 1,
                                     0x1p63,
                                     -0x1p63,
                                     1e30,
                                     -1e30,
                                     (double)INFINITY,
                                     (double)-INFINITY,
                                     (double)NAN,
                                     1e-40,
                                     3.4e38,
                                     0x1p-14,
                                     0x1p-24,
                                     2049};
    uint32_t bits = ((uint32_t)i * 2654435761U) ^ (seed * 40503U);
    if (i < ARRAY_LEN(special))
        return special[(i + seed) % ARRAY_LEN(special)];
    double unit = (double)(int32_t)(bits * 2246822519U) / 0x1p31;
    return unit * pow(2, (double)(bits % 80) - 20);
}

static void fill(enum dtype dtype, uint64_t *out, uint32_t seed)
{
    size_t size = dtype_size(dtype);
    for (size_t i = 0; i < N; i++) {
        double value = number(i, seed);
        float narrow = (float)value;
        uint64_t bits = dtype_is_float(dtype) && size < 4 ? i * 40503U + seed : 0;
        if (dtype == DTYPE_F32)
            memcpy(&bits, &narrow, sizeof(narrow));
        else if (dtype == DTYPE_F64)
            memcpy(&bits, &value, sizeof(value));
        else if (!dtype_is_float(dtype)) /* many small ones, so that some are equal */
            bits = i % 3 ? (uint64_t)(int64_t)((int)(i * 7 + seed) % 11 - 5)
                         : (i * 0x9e3779b97f4a7c15U) >> (i % 64);
        memcpy((char *)out + i * size, &bits, size);
    }
}

static struct tensor_view all(enum dtype dtype, void *data)
{
    return VIEW(dtype, data, N);
}

static bool is_number(enum dtype dtype, const void *data, size_t i)
{
    float f;
    double d;
    memcpy(&f, (const char *)data + i * 4, sizeof(f));
    if (dtype == DTYPE_F32)
        return !isnan(f);
    memcpy(&d, (const char *)data + (dtype == DTYPE_F64 ? i * 8 : 0), sizeof(d));
    return dtype != DTYPE_F64 || !isnan(d);
}

/* Runs a row of each instruction set on all numbers, and on a few. */
static void check(enum dtype to, typed_row rows[FAST_MAX], const char *what, unsigned number_of)
{
    const void *const operands[TYPED_OPERANDS] = {as, bs, cs};
    size_t size = dtype_size(to);
    for (size_t t = 0; t < n_tables; t++) {
        memset(got, 0xa5, sizeof(got));
        rows[t](operands, got, N);
        for (size_t i = 0; i < N; i++)
            if (memcmp((char *)got + i * size, (char *)want + i * size, size) != 0 &&
                (is_number(to, got, i) || is_number(to, want, i)))
                fail_msg("%s %u to %s, %s: element %zu", what, number_of, dtype_name(to),
                         tables[t]->isa, i);
        memset(got, 0xa5, sizeof(got));
        rows[t](operands, got, 13);
        assert_memory_equal(got, want, to == DTYPE_F32 || to == DTYPE_F64 ? 0 : 13 * size);
        assert_int_equal(((uint8_t *)got)[13 * size], 0xa5); /* nothing is written behind them */
    }
}

static void test_casts(void **state UNUSED)
{
    unsigned n = 0;
    for (uint32_t from = 0; from < DTYPE_COUNT_; from++)
        for (uint32_t to = 0; to < DTYPE_COUNT_; to++) {
            typed_row rows[FAST_MAX];
            for (size_t t = 0; t < n_tables; t++)
                rows[t] = tables[t]->typed->cast[from][to];
            if (!rows[0])
                continue;
            fill((enum dtype)from, as, 1);
            struct tensor_view x = all((enum dtype)from, as), y = all((enum dtype)to, want);
            ref_cast(&x, &y);
            check((enum dtype)to, rows, "cast", from);
            n++;
        }
    assert_in_range(n, 100, DTYPE_COUNT_ * DTYPE_COUNT_);
}

static enum dtype result_of(bool compares, uint32_t type)
{
    return compares ? DTYPE_BOOL : (enum dtype)type;
}

static void test_unary(void **state UNUSED)
{
    unsigned n = 0;
    for (uint32_t func = 0; func < IR_UNARY_COUNT_; func++)
        for (uint32_t type = 0; type < DTYPE_COUNT_; type++) {
            typed_row rows[FAST_MAX];
            for (size_t t = 0; t < n_tables; t++)
                rows[t] = tables[t]->typed->unary[func][type];
            if (!rows[0])
                continue;
            enum dtype to = result_of(func == IR_UNARY_IS_NAN || func == IR_UNARY_IS_INF, type);
            fill((enum dtype)type, as, 2);
            struct tensor_view x = all((enum dtype)type, as), y = all(to, want);
            ref_unary((enum ir_unary)func, 1, 1, 0, &x, &y);
            check(to, rows, "unary", func);
            n++;
        }
    assert_int_equal(n, 7);
}

static void test_binary(void **state UNUSED)
{
    unsigned n = 0;
    for (uint32_t func = 0; func < IR_BINARY_COUNT_; func++)
        for (uint32_t type = 0; type < DTYPE_COUNT_; type++) {
            typed_row rows[FAST_MAX];
            for (size_t t = 0; t < n_tables; t++)
                rows[t] = tables[t]->typed->binary[func][type];
            if (!rows[0])
                continue;
            enum dtype to =
                result_of(func >= IR_BINARY_EQUAL && func <= IR_BINARY_GREATER_EQUAL, type);
            fill((enum dtype)type, as, 3);
            fill((enum dtype)type, bs, 4);
            struct tensor_view a = all((enum dtype)type, as), b = all((enum dtype)type, bs);
            struct tensor_view y = all(to, want);
            ref_binary((enum ir_binary)func, false, &a, &b, &y);
            check(to, rows, "binary", func);
            n++;
        }
    assert_int_equal(n, 5 * 6 + 4 + 7 * 2);
}

/* The condition comes first, so it lies where the other tests have the first operand. */
static void test_select(void **state UNUSED)
{
    static const enum dtype types[] = {DTYPE_U8, DTYPE_I16, DTYPE_I32, DTYPE_I64};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        typed_row rows[FAST_MAX];
        for (size_t t = 0; t < n_tables; t++)
            rows[t] = tables[t]->typed->select[dtype_size(types[i])];
        fill(DTYPE_U8, as, 5);
        fill(types[i], bs, 6);
        fill(types[i], cs, 7);
        struct tensor_view c = all(DTYPE_BOOL, as), a = all(types[i], bs);
        struct tensor_view b = all(types[i], cs), y = all(types[i], want);
        ref_select(&c, &a, &b, &y);
        check(types[i], rows, "select", types[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_select),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
