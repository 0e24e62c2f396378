/* SPDX-License-Identifier: Apache-2.0 */
/* Values in all formats and back, and how they are compared. */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

enum { N = 2 * 3 * 4 * 5 };

static void values_come_back_from_every_format(void **state UNUSED)
{
    static const struct {
        enum ir_layout layout;
        enum dtype dtype;
        double most;
    } rows[] = {
        {IR_LAYOUT_PLAIN, DTYPE_F32, 0},        {IR_LAYOUT_CHANNELS_LAST_8, DTYPE_F32, 0},
        {IR_LAYOUT_BLOCKED_8, DTYPE_F16, 5e-4}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_BF16, 4e-3},
        {IR_LAYOUT_PLAIN, DTYPE_I8, 4e-3},      {IR_LAYOUT_CHANNELS_LAST_4, DTYPE_U8, 4e-3},
    };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct ir_graph *g = ir_graph_new();
        uint32_t id = net_input(g, (int64_t[]){2, 3, 4, 5, 0});
        struct ir_format format = {rows[r].layout, rows[r].dtype, IR_NO_SCALE};
        float values[N], back[N];
        bool u8 = rows[r].dtype == DTYPE_U8;
        for (int i = 0; i < N; i++)
            values[i] = (float)(i % 61 - 30) / 31;
        if (u8 || rows[r].dtype == DTYPE_I8) {
            float step[3] = {1.0F / 127, 1.0F / 126, 1.0F / 125};
            int32_t zero[3] = {128, 127, 126};
            const struct ir_scale scale = {
                .n = 3, .axis = 1, .step = step, .zero = u8 ? zero : NULL};
            format.scale = ir_scale_add(g, &scale);
        }
        assert_true(ir_tensor_set_format(g, id, format));
        const struct ir_tensor *t = ir_tensor(g, id);
        void *stored = malloc(t->bytes);
        assert_true(value_store(g, t, values, stored) && value_load(g, t, stored, back));
        assert_int_equal(value_bytes(t), sizeof(values));
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)values[i] - (double)back[i]) <= rows[r].most);
        free(stored);
        ir_graph_free(g);
    }
}

static float noise(uint32_t i)
{
    return (float)((int32_t)(i * 2654435761u) >> 8) / (float)(1 << 23);
}

/* What many threads do in pieces is what the reference kernels do at once. */
static void large_values_are_done_in_pieces(void **state UNUSED)
{
    static const struct {
        int64_t dim[5];
        struct ir_format format;
    } rows[] = {
        {{70, 33, 13, 17, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_F16, IR_NO_SCALE}},
        {{3, 40, 56, 56, 0}, {IR_LAYOUT_BLOCKED_16, DTYPE_F32, IR_NO_SCALE}},
        {{300, 1001, 0}, {IR_LAYOUT_PLAIN, DTYPE_BF16, IR_NO_SCALE}},
        {{131, 5, 501, 0}, {IR_LAYOUT_PLAIN, DTYPE_I8, 1}},
        {{2, 48, 57, 57, 0}, {IR_LAYOUT_BLOCKED_16, DTYPE_F32, IR_NO_SCALE}},
        {{2, 64, 31, 31, 0}, {IR_LAYOUT_BLOCKED_8, DTYPE_BF16, IR_NO_SCALE}},
        {{5, 24, 40, 41, 0}, {IR_LAYOUT_CHANNELS_LAST_8, DTYPE_F16, IR_NO_SCALE}},
        {{2, 3001, 3, 5, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_F16, IR_NO_SCALE}}, /* too many */
        {{2, 2999, 3, 5, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_F16, IR_NO_SCALE}},
        {{3, 33, 70, 70, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_I8, 1}},
        {{2, 3001, 3, 5, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_I8, 1}}, /* too many */
        {{2, 2999, 3, 5, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_U8, 1}},
        {{9, 48, 23, 29, 0}, {IR_LAYOUT_CHANNELS_LAST_8, DTYPE_U8, 1}},
        {{2, 48, 57, 57, 0}, {IR_LAYOUT_BLOCKED_16, DTYPE_I8, 1}},
        {{1, 7, 1, 1, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_U8, 1}},
        {{4, 50, 700, 0}, {IR_LAYOUT_CHANNELS_LAST, DTYPE_F32, IR_NO_SCALE}},
    };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct ir_graph *g = ir_graph_new();
        uint32_t id = net_input(g, rows[r].dim);
        struct ir_format format = rows[r].format;
        float step[1] = {1.0F / 100};
        int32_t zero[1] = {137};
        bool centred = format.dtype != DTYPE_U8;
        const struct ir_scale scale = {.n = 1, .step = step, .zero = centred ? NULL : zero};
        format.scale = format.scale ? ir_scale_add(g, &scale) : IR_NO_SCALE;
        assert_true(ir_tensor_set_format(g, id, format));
        const struct ir_tensor *t = ir_tensor(g, id);
        size_t n = value_bytes(t) / sizeof(float);
        float *values = value_new(t), *back = value_new(t), *again = value_new(t);
        char *stored = malloc(t->bytes), *want = malloc(t->bytes);
        for (size_t i = 0; i < n; i++)
            values[i] = noise((uint32_t)i);
        const struct tensor_view x = {DTYPE_F32, t->shape, values};
        const struct tensor_view y = {format.dtype, t->shape, want};
        const struct tensor_view steps = {DTYPE_F32, {.rank = 1, .dim = {1}}, step};
        const struct tensor_view zeros = {DTYPE_I32, {.rank = 1, .dim = {1}}, zero};
        char *bytes = malloc(n);
        const struct tensor_view q = {format.dtype, t->shape, bytes};
        if (format.scale)
            ref_quantize(0, &x, &steps, centred ? NULL : &zeros, &q);
        ref_reformat(IR_LAYOUT_PLAIN, format.layout, format.scale ? &q : &x, &y);
        assert_true(value_store(g, t, values, stored) && value_load(g, t, stored, back));
        assert_memory_equal(stored, want, t->bytes);
        if (format.scale) {
            const struct tensor_view whole = {DTYPE_F32, t->shape, again};
            ref_dequantize(0, &q, &steps, centred ? NULL : &zeros, &whole);
            assert_memory_equal(back, again, n * sizeof(float));
        }
        free(bytes);
        free(again);
        struct value_error sum = {0}, none = {0};
        assert_true(value_compare(t, back, values, &sum) && value_compare(t, back, back, &none));
        double difference = 0;
        for (size_t i = 0; i < n; i++)
            difference += ((double)back[i] - values[i]) * ((double)back[i] - values[i]);
        assert_true(fabs(sum.difference - difference) <= 1e-9 * difference);
        assert_true(value_relative(&sum) < 0.01 && value_relative(&none) == 0);
        back[n - 1] = NAN; /* in the last piece */
        sum = (struct value_error){0};
        assert_true(value_compare(t, back, values, &sum));
        assert_int_equal(sum.broken, 1);
        free(values);
        free(back);
        free(stored);
        free(want);
        ir_graph_free(g);
    }
}

static void spare_values_are_used_again(void **state UNUSED)
{
    struct value_memory m;
    struct ir_graph *g = ir_graph_new();
    uint32_t tiny = net_input(g, (int64_t[]){2, 3, 0}), small = net_input(g, (int64_t[]){50, 3, 0});
    uint32_t middle = net_input(g, (int64_t[]){99, 3, 0}),
             large = net_input(g, (int64_t[]){99, 5, 0});
    assert_true(value_memory_init(&m, g->n_tensors));
    void *first = value_take(&m, ir_tensor(g, small));
    value_give(&m, first);
    value_give(&m, NULL);
    void *other = value_take(&m, ir_tensor(g, large));
    assert_ptr_not_equal(other, first);
    assert_ptr_equal(value_take(&m, ir_tensor(g, small)), first);
    assert_int_equal(m.n_spare, 0);
    value_give(&m, first);
    value_give(&m, other);
    assert_ptr_equal(value_take(&m, ir_tensor(g, small)), first); /* the smaller one */
    void *small_in_large = value_take(&m, ir_tensor(g, middle));
    assert_ptr_equal(small_in_large, other);
    value_give(&m, other);
    void *new = value_take(&m, ir_tensor(g, tiny)); /* for which the spare is too large */
    assert_ptr_not_equal(new, other);
    value_give(&m, new);
    value_give(&m, first);
    for (int i = 0; i < VALUE_SPARES; i++)
        value_give(&m, value_new(ir_tensor(g, small)));
    assert_int_equal(m.n_spare, VALUE_SPARES);
    assert_int_equal(m.spare_bytes, VALUE_SPARES * malloc_usable_size(m.spare[0].value));
    value_memory_deinit(&m);
    ir_graph_free(g);
}

static void values_are_kept_while_there_is_room(void **state UNUSED)
{
    struct value_memory m;
    struct ir_graph *g = ir_graph_new();
    uint32_t id = net_input(g, (int64_t[]){2, 3, 0});
    const struct ir_tensor *t = ir_tensor(g, id);
    assert_true(value_memory_init(&m, g->n_tensors));
    void *first = value_new(t), *second = value_new(t);
    m.kept_most = malloc_usable_size(first);
    value_keep(&m, 0, id, first);
    value_keep(&m, 1, id, second);
    assert_ptr_equal(m.kept[0][id], first);
    assert_null(m.kept[1][id]);
    free(second);
    value_memory_deinit(&m);
    ir_graph_free(g);
}

static double error_of(const float *value, const float *wanted, int64_t rows, int64_t columns,
                       struct value_error *sum)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t id = net_input(g, (int64_t[]){rows, columns, 0});
    *sum = (struct value_error){0};
    assert_true(value_compare(ir_tensor(g, id), value, wanted, sum));
    ir_graph_free(g);
    return value_relative(sum);
}

static void errors_are_relative(void **state UNUSED)
{
    const float wanted[4] = {3, 4, -INFINITY, 0}, value[4] = {3, 4.5F, -65504, 0};
    const float nothing[4] = {0}, broken[4] = {3, NAN, 0, 0};
    struct value_error sum;
    assert_float_equal(error_of(value, wanted, 1, 4, &sum), 0.1, 1e-6);
    assert_float_equal(error_of(wanted, wanted, 1, 4, &sum), 0, 0);
    assert_float_equal(error_of(nothing, wanted, 1, 4, &sum), 1, 1e-6);
    assert_true(isinf(error_of(broken, wanted, 1, 4, &sum)));
    assert_float_equal(error_of(nothing, nothing, 1, 4, &sum), 0, 0);
}

static void rows_agree_by_their_largest_element(void **state UNUSED)
{
    const float wanted[6] = {1, 2, 3, 9, 8, 7}, value[6] = {1, 2, 3, 7, 8, 9};
    struct value_error sum;
    error_of(value, wanted, 2, 3, &sum);
    assert_true(sum.classes);
    assert_int_equal(sum.rows, 2);
    assert_int_equal(sum.agree, 1);
    error_of(value, wanted, 6, 1, &sum);
    assert_false(sum.classes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back_from_every_format),
        cmocka_unit_test(large_values_are_done_in_pieces),
        cmocka_unit_test(spare_values_are_used_again),
        cmocka_unit_test(values_are_kept_while_there_is_room),
        cmocka_unit_test(errors_are_relative),
        cmocka_unit_test(rows_agree_by_their_largest_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
