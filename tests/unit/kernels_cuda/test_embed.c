/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_embed against the reference. */
#include <stdlib.h>

#include "base/compiler.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"
#include "tests/unit/kernels_cuda/cases.h"

enum { STEPS = 40 };

static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};

/* A table with ids or without: `ids` is empty then. */
struct table {
    struct case_tensor rows, ids;
    bool has_ids;
};

/* How ids, or rows, repeat for y's rows [batch, length]. */
static const struct {
    bool batch, length;
} repeats[] = {{true, true}, {false, true}, {true, false}, {false, false}};

static void ids_fill(const struct case_tensor *ids, int64_t rows)
{
    size_t n;
    assert_true(shape_elements(&ids->dense.shape, &n));
    for (size_t i = 0; i < n; i++) {
        int64_t id = (int64_t)case_draw(2 * (uint32_t)rows) - rows;
        if (ids->view.dtype == DTYPE_I64)
            ((int64_t *)ids->dense.data)[i] = id;
        else
            ((int32_t *)ids->dense.data)[i] = (int32_t)id;
    }
}

static void id_break(const struct case_tensor *ids, int64_t rows)
{
    size_t n;
    assert_true(shape_elements(&ids->dense.shape, &n));
    if (ids->view.dtype == DTYPE_I64)
        ((int64_t *)ids->dense.data)[n - 1] = case_draw(2) ? rows : INT64_MIN;
    else
        ((int32_t *)ids->dense.data)[n - 1] = -(int32_t)rows - 1;
}

static struct table table_new(enum dtype dtype, bool first, int64_t batch, int64_t length,
                              int64_t width, struct kernel_table *out)
{
    uint32_t how = first ? 0 : case_draw(ARRAY_LEN(repeats));
    int64_t dims[3] = {repeats[how].batch ? batch : 1, repeats[how].length ? length : 1, width};
    int64_t of_table[2] = {1 + case_draw(40), width};
    struct table t = {.has_ids = first || case_draw(3)};
    t.rows =
        t.has_ids ? case_new(dtype, 2, of_table, CASE_PLAIN) : case_new(dtype, 3, dims, CASE_PLAIN);
    case_fill(&t.rows);
    *out = (struct kernel_table){.data = t.rows.view.data, .rows = of_table[0]};
    out->inner = repeats[how].length ? 1 : length;
    out->n = dims[0] * dims[1];
    if (t.has_ids) {
        t.ids = case_new(case_draw(2) ? DTYPE_I64 : DTYPE_I32, 2, dims, CASE_PLAIN);
        ids_fill(&t.ids, of_table[0]);
        case_scatter(&t.ids);
        out->ids = t.ids.view.data;
        out->ids_type = t.ids.view.dtype;
    }
    return t;
}

/* `strays`: an id of one table is out of range, and so is y's last row at least. */
static void run_case(enum dtype dtype, bool strays)
{
    int64_t batch = 1 + case_draw(5), length = 1 + case_draw(7);
    static const int64_t widths[] = {1, 3, 7, 8, 20, 24, 100, 264};
    int64_t width = widths[case_draw(ARRAY_LEN(widths))];
    uint32_t n = 1 + case_draw(KERNEL_TABLES_MAX), broken = case_draw(n);
    struct table t[KERNEL_TABLES_MAX];
    struct kernel_table in[KERNEL_TABLES_MAX];
    const struct tensor_view *tables[KERNEL_TABLES_MAX], *ids[KERNEL_TABLES_MAX];
    struct case_tensor y = case_new(dtype, 3, (const int64_t[]){batch, length, width}, CASE_PLAIN);
    for (uint32_t k = 0; k < n; k++) {
        t[k] = table_new(dtype, k == 0, batch, length, width, &in[k]);
        tables[k] = &t[k].rows.dense;
        ids[k] = t[k].has_ids ? &t[k].ids.dense : NULL;
    }
    broken = t[broken].has_ids ? broken : 0;
    if (strays) {
        id_break(&t[broken].ids, in[broken].rows);
        case_scatter(&t[broken].ids);
    }
    int32_t bad = 0;
    assert_int_equal(kernel_embed(&case_call, in, (int32_t)n, (int32_t)dtype, batch * length, width,
                                  y.view.data, &bad),
                     cudaSuccess);
    assert_int_equal(bad, strays ? KERNEL_BAD_INDEX : 0);
    struct tensor_view want = case_dense(dtype, &y.dense.shape);
    enum status status = ref_embed(n, tables, ids, &want, NULL);
    assert_int_equal(status, strays ? STATUS_INVALID_ARGUMENT : STATUS_OK);
    if (!strays)
        case_check(&y, &want, 2 * case_precision(dtype));
    free(want.data);
    for (uint32_t k = 0; k < n; k++) {
        case_free(&t[k].rows);
        if (t[k].has_ids)
            case_free(&t[k].ids);
    }
    case_free(&y);
}

static void sums_of_rows(void **state)
{
    (void)state;
    case_seed(11);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int k = 0; k < STEPS; k++)
            run_case(types[i], false);
}

static void ids_out_of_range(void **state)
{
    (void)state;
    case_seed(12);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int k = 0; k < STEPS; k++)
            run_case(types[i], true);
}

/* Only the rows that an id out of range is for become NaN. */
static void other_rows_are_right(void **state)
{
    (void)state;
    _Alignas(16) float x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, y[12];
    int64_t ids[3] = {-3, 3, 2};
    int32_t bad = 0;
    struct kernel_table t = {
        .data = x, .ids = ids, .ids_type = DTYPE_I64, .rows = 3, .inner = 1, .n = 3};
    assert_int_equal(kernel_embed(&case_call, &t, 1, DTYPE_F32, 3, 4, y, &bad), cudaSuccess);
    assert_int_equal(bad, KERNEL_BAD_INDEX);
    for (int i = 0; i < 4; i++) {
        assert_true(y[i] == x[i] && y[8 + i] == x[8 + i]);
        assert_true(y[4 + i] != y[4 + i]);
    }
    assert_int_equal(kernel_embed(&case_call, &t, 1, DTYPE_F32, 3, 4, y, NULL), cudaSuccess);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct kernel_call dry = case_call;
    dry.dry = true;
    const struct kernel_table good = {.ids_type = DTYPE_I64, .rows = 3, .inner = 1, .n = 3};
    struct kernel_table t[4] = {good, good, good, good};
    assert_int_equal(kernel_embed(&dry, t, 3, DTYPE_BF16, 3, 4, NULL, NULL), cudaSuccess);
    assert_int_equal(kernel_embed(&dry, t, 3, DTYPE_BF16, 0, 4, NULL, NULL), cudaSuccess);
    assert_int_equal(kernel_embed(&dry, t, 0, DTYPE_F16, 3, 4, NULL, NULL), cudaErrorNotSupported);
    assert_int_equal(kernel_embed(&dry, t, 4, DTYPE_F16, 3, 4, NULL, NULL), cudaErrorNotSupported);
    assert_int_equal(kernel_embed(&dry, t, 1, DTYPE_F64, 3, 4, NULL, NULL), cudaErrorNotSupported);
    assert_int_equal(kernel_embed(&dry, t, 1, DTYPE_F16, 1 << 30, 9, NULL, NULL),
                     cudaErrorNotSupported);
    t[1].ids_type = DTYPE_I8;
    assert_int_equal(kernel_embed(&dry, t, 2, DTYPE_F16, 3, 4, NULL, NULL), cudaErrorNotSupported);
    t[1] = good;
    t[1].n = INT64_C(1) << 31;
    assert_int_equal(kernel_embed(&dry, t, 2, DTYPE_F16, 3, 4, NULL, NULL), cudaErrorNotSupported);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_rows),
        cmocka_unit_test(ids_out_of_range),
        cmocka_unit_test(other_rows_are_right),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
