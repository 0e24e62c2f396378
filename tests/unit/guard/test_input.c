/* SPDX-License-Identifier: Apache-2.0 */
/* Random inputs that fit what a model does with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

enum { N = 4096 };

static uint32_t input(struct ir_graph *g, const char *name, enum dtype dtype, int64_t n)
{
    const struct shape shape = {.rank = 2, .dim = {1, n}};
    uint32_t id = ir_tensor_add(g, name, dtype, &shape);
    assert_int_not_equal(id, IR_NONE);
    g->inputs[g->n_inputs++] = id;
    return id;
}

static void floats_are_normal(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    static float values[N], again[N];
    double sum = 0, squares = 0;
    input(g, "image", DTYPE_F32, N);
    assert_true(input_fill(g, 0, 7, values) && input_fill(g, 0, 7, again));
    assert_memory_equal(values, again, sizeof(values));
    for (int i = 0; i < N; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(sum / N) < 0.1);
    assert_true(fabs(squares / N - 1) < 0.1);
    assert_true(input_fill(g, 0, 8, again));
    assert_memory_not_equal(values, again, sizeof(values));
    ir_graph_free(g);
}

/* Neighbours are alike, samples and channels differ, and all are normal in the end. */
static void check_image(const struct shape *shape, size_t channel, size_t pixel)
{
    struct ir_graph *g = ir_graph_new();
    size_t n = 0, side = 40, samples = (size_t)shape->dim[0];
    assert_true(shape_elements(shape, &n));
    float *values = malloc(sizeof(*values) * n);
    double squares = 0, near = 0, channels = 0, images = 0;
    assert_non_null(values);
    g->inputs[g->n_inputs++] = ir_tensor_add(g, "image", DTYPE_F32, shape);
    assert_true(input_fill(g, 0, 7, values));
    for (size_t s = 0; s + 1 < samples; s++)
        for (size_t i = 0; i + 1 < side * side; i++) {
            const float *x = values + s * (n / samples) + i * pixel;
            squares += (double)x[0] * (double)x[0];
            near += (double)x[0] * (double)x[pixel];
            channels += (double)x[0] * (double)x[channel];
            images += (double)x[0] * (double)x[n / samples];
        }
    assert_true(fabs(squares / (double)((samples - 1) * side * side) - 1) < 0.1);
    assert_true(near / squares > 0.7);
    assert_true(fabs(channels / squares) < 0.1);
    assert_true(fabs(images / squares) < 0.1);
    ir_graph_free(g);
    free(values);
}

static void images_have_structures(void **state UNUSED)
{
    check_image(&(struct shape){.rank = 4, .dim = {128, 3, 40, 40}}, 40 * 40, 1);
    check_image(&(struct shape){.rank = 4, .dim = {128, 40, 40, 3}}, 1, 3);
}

/* Calibration has seen these alone: others would be cut off, and look like errors. */
static void floats_fit_the_range(void **state UNUSED)
{
    static const float step = 16.0F / 255;
    const struct ir_scale scale = {.n = 1, .dtype = DTYPE_U8, .step = &step};
    struct ir_graph *g = ir_graph_new();
    static float values[N];
    float least = 99, most = -99;
    uint32_t x = input(g, "image", DTYPE_F32, N);
    ir_tensor(g, x)->range = ir_scale_add(g, &scale);
    assert_true(input_fill(g, 0, 7, values));
    for (int i = 0; i < N; i++) {
        assert_true(values[i] >= 0 && values[i] <= 16.001F);
        least = fminf(least, values[i]);
        most = fmaxf(most, values[i]);
    }
    assert_true(least < 3 && most > 13);
    ir_graph_free(g);
}

static void masks_are_ones(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    static float floats[N];
    static int64_t whole[N];
    input(g, "attention_Mask", DTYPE_F32, N);
    input(g, "attention_mask", DTYPE_I64, N);
    assert_true(input_fill(g, 0, 7, floats) && input_fill(g, 1, 7, whole));
    for (int i = 0; i < N; i++) {
        assert_true(floats[i] == 1.0F);
        assert_int_equal(whole[i], 1);
    }
    ir_graph_free(g);
}

static void bytes_are_any(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    static uint8_t bytes[N];
    uint32_t seen[256] = {0}, different = 0;
    input(g, "pixels", DTYPE_U8, N);
    assert_true(input_fill(g, 0, 7, bytes));
    for (int i = 0; i < N; i++)
        different += !seen[bytes[i]]++;
    assert_true(different > 250);
    ir_graph_free(g);
}

/* Also through a reshape between the input and the table. */
static void token_ids_are_within_the_vocabulary(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    static int64_t ids[N];
    int64_t largest = 0;
    uint32_t x = input(g, "input_ids", DTYPE_I64, N);
    uint32_t flat = net_node(g, IR_OP_RESHAPE, "flat", 1, &x);
    net_ints(g, flat, IR_ATTR_SHAPE, 1, (int64_t[]){N});
    x = net_infer(g, flat);
    uint32_t in[2] = {net_constant(g, (int64_t[]){37, 8, 0}), x};
    uint32_t table = net_node(g, IR_OP_GATHER, "table", 2, in);
    net_int(g, table, IR_ATTR_AXIS, 0);
    net_output(g, net_infer(g, table));
    assert_true(input_fill(g, 0, 7, ids));
    for (int i = 0; i < N; i++) {
        assert_true(ids[i] >= 0 && ids[i] < 37);
        largest = MAX(largest, ids[i]);
    }
    assert_int_equal(largest, 36);
    ir_graph_free(g);
}

/* Each kind of ids fits the table that it is for. */
static void ids_of_several_tables_fit_theirs(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    static int64_t ids[N];
    uint32_t words = input(g, "input_ids", DTYPE_I64, N);
    uint32_t types = input(g, "token_type_ids", DTYPE_I64, N);
    uint32_t in[4] = {net_constant(g, (int64_t[]){37, 8, 0}), words,
                      net_constant(g, (int64_t[]){2, 8, 0}), types};
    net_output(g, net_infer(g, net_node(g, IR_OP_EMBED, "embed", 4, in)));
    for (uint32_t k = 0; k < 2; k++) {
        int64_t largest = 0;
        assert_true(input_fill(g, k, 7, ids));
        for (int i = 0; i < N; i++) {
            assert_true(ids[i] >= 0);
            largest = MAX(largest, ids[i]);
        }
        assert_int_equal(largest, k ? 1 : 36);
    }
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_normal),
        cmocka_unit_test(images_have_structures),
        cmocka_unit_test(floats_fit_the_range),
        cmocka_unit_test(masks_are_ones),
        cmocka_unit_test(bytes_are_any),
        cmocka_unit_test(token_ids_are_within_the_vocabulary),
        cmocka_unit_test(ids_of_several_tables_fit_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
