/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of a ragged model against the model's own for each sequence, with products apart and
 * with one product for queries, keys and values, as backends want them. */
#include <stdio.h>
#include <string.h>

#include "engine/build/ragged.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"
#include "tests/unit/mock/mock.h"

enum { WORDS = 7, LONGEST = 10, HEADS = 2, D = 3, WIDTH = HEADS * D, TOKENS = 16 };

static float numbers[4096];

static const void *next_numbers(size_t n)
{
    static size_t at;
    at = at + n > ARRAY_LEN(numbers) ? 0 : at;
    at += n;
    return numbers + at - n;
}

static void add_weights(struct wire *graph, const char *name, int64_t rows)
{
    const int64_t dims[] = {rows, WIDTH};
    wire_constant(graph, name, 1, 2, dims, next_numbers((size_t)rows * WIDTH),
                  (size_t)rows * WIDTH * sizeof(float));
}

/* A product of x by weights, its heads apart: [n,HEADS,s,D], or keys [n,HEADS,D,s]. */
static void add_heads(struct wire *graph, const char *to, bool keys)
{
    static const int64_t rows[] = {0, 2, 1, 3}, columns[] = {0, 2, 3, 1};
    struct wire perm = {.n = 0};
    char weights[8], product[8], split[8], inputs[32];
    snprintf(weights, sizeof(weights), "w_%s", to);
    snprintf(product, sizeof(product), "p_%s", to);
    snprintf(split, sizeof(split), "s_%s", to);
    add_weights(graph, weights, WIDTH);
    snprintf(inputs, sizeof(inputs), "x %s", weights);
    wire_node(graph, "MatMul", inputs, product, NULL);
    snprintf(inputs, sizeof(inputs), "%s split", product);
    wire_node(graph, "Reshape", inputs, split, NULL);
    wire_attr_ints(&perm, "perm", 4, keys ? columns : rows);
    wire_node(graph, "Transpose", split, to, &perm);
}

/* ids, mask [n,m] -> y [n,m,WIDTH], one layer of attention, and z [n,WIDTH], twice its first. */
static struct onnx_model *model_new(struct wire *bytes)
{
    static const int64_t ids[] = {-1, -2}, four[] = {4}, three[] = {3}, one[] = {1}, two[] = {2};
    static const int64_t split[] = {0, 0, HEADS, D}, joined[] = {0, 0, WIDTH}, axes[] = {1, 2};
    static const int64_t zero = 0, first = 1;
    static const float number = 1, low = -10000;
    static struct wire graph;
    struct wire to = {.n = 0}, last = {.n = 0}, back = {.n = 0}, second = {.n = 0};
    static const int64_t perm[] = {0, 2, 1, 3};
    struct onnx_model *model;
    struct error err;
    graph.n = bytes->n = 0;
    wire_input(&graph, "ids", 7, 2, ids);
    wire_input(&graph, "mask", 7, 2, ids);
    add_weights(&graph, "words", WORDS);
    add_weights(&graph, "places", LONGEST);
    wire_constant(&graph, "split", 7, 1, four, split, sizeof(split));
    wire_constant(&graph, "joined", 7, 1, three, joined, sizeof(joined));
    wire_constant(&graph, "axes", 7, 1, two, axes, sizeof(axes));
    wire_constant(&graph, "zero", 7, 1, one, &zero, sizeof(zero));
    wire_constant(&graph, "one", 7, 1, one, &first, sizeof(first));
    wire_constant(&graph, "none", 7, 0, NULL, &zero, sizeof(zero));
    wire_constant(&graph, "number", 1, 0, NULL, &number, sizeof(number));
    wire_constant(&graph, "low", 1, 0, NULL, &low, sizeof(low));
    wire_node(&graph, "Shape", "ids", "shape", NULL);
    wire_node(&graph, "Gather", "shape one", "size", NULL);
    wire_node(&graph, "Slice", "places zero size zero", "own", NULL);
    wire_node(&graph, "Gather", "words ids", "word", NULL);
    wire_node(&graph, "Add", "word own", "x", NULL);
    wire_attr_int(&to, "to", 1);
    wire_node(&graph, "Cast", "mask", "seen", &to);
    wire_node(&graph, "Unsqueeze", "seen axes", "wide", NULL);
    wire_node(&graph, "Sub", "number wide", "hidden", NULL);
    wire_node(&graph, "Mul", "hidden low", "far", NULL);
    add_heads(&graph, "q", false);
    add_heads(&graph, "k", true);
    add_heads(&graph, "v", false);
    wire_node(&graph, "MatMul", "q k", "scores", NULL);
    wire_node(&graph, "Add", "scores far", "masked", NULL);
    wire_attr_int(&last, "axis", -1);
    wire_node(&graph, "Softmax", "masked", "p", &last);
    wire_node(&graph, "MatMul", "p v", "heads", NULL);
    wire_attr_ints(&back, "perm", 4, perm);
    wire_node(&graph, "Transpose", "heads", "turned", &back);
    wire_node(&graph, "Reshape", "turned joined", "y", NULL);
    wire_attr_int(&second, "axis", 1);
    wire_node(&graph, "Gather", "y none", "z0", &second);
    wire_node(&graph, "Add", "z0 z0", "z", NULL);
    wire_output(&graph, "y");
    wire_output(&graph, "z");
    wire_model(bytes, &graph, 13);
    assert_int_equal(onnx_open_memory(bytes->data, bytes->n, &model, &err), STATUS_OK);
    return model;
}

/* What the model itself gives for one sequence. */
static void run_alone(struct onnx_model *model, const int64_t *ids, int64_t length, float *y,
                      float *z)
{
    const struct onnx_dim dim = {"m", length};
    const struct build_options options = {
        .evaluator = {.eval = cpu_eval_node}, .dims = &dim, .n_dims = 1};
    int64_t ones[LONGEST];
    struct ir_graph *graph = NULL;
    struct error err;
    for (int i = 0; i < LONGEST; i++)
        ones[i] = 1;
    if (build_graph(model, &options, 1, false, &graph, &err))
        fail_msg("%s", err.text);
    const struct shape rows = {2, {1, length}}, all = {3, {1, length, WIDTH}},
                       one = {2, {1, WIDTH}};
    struct tensor_view in[] = {{DTYPE_I64, rows, (void *)(uintptr_t)ids}, {DTYPE_I64, rows, ones}};
    struct tensor_view out[] = {{DTYPE_F32, all, y}, {DTYPE_F32, one, z}};
    if (cpu_eval_graph(graph, in, out, &err))
        fail_msg("%s", err.text);
    ir_graph_free(graph);
}

/* Fills the inputs that the runtime makes. */
static void number_tokens(const int32_t *lengths, size_t n, int32_t positions[TOKENS],
                          int32_t spans[TOKENS][2], int32_t starts[TOKENS])
{
    for (int32_t i = 0, at = 0; i < (int32_t)n; i++) {
        starts[i] = at;
        for (int32_t k = 0; k < lengths[i]; k++) {
            positions[at + k] = k;
            spans[at + k][0] = at;
            spans[at + k][1] = at + lengths[i];
        }
        at += lengths[i];
    }
}

static struct tensor_view input_of(const struct ir_tensor *t, int64_t *ids, int32_t *positions,
                                   int32_t *spans, int32_t *starts)
{
    void *data = !strcmp(t->name, "ids")                ? (void *)ids
                 : !strcmp(t->name, "ragged.positions") ? (void *)positions
                 : !strcmp(t->name, "ragged.spans")     ? (void *)spans
                 : !strcmp(t->name, "ragged.starts")    ? (void *)starts
                                                        : NULL;
    assert_non_null(data);
    return (struct tensor_view){t->dtype, t->shape, data};
}

static uint32_t count(const struct ir_graph *graph, enum ir_op op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n += ir_node(graph, i)->op == op;
    return n;
}

static const char *const ragged_inputs[] = {"ids", "mask"};
static const struct build_ragged ragged = {ragged_inputs, 2};
static const struct build_range range = {"ids", 2, {0, 1}, {0, LONGEST}};

static void check(uint32_t features, uint32_t products)
{
    static const int32_t lengths[] = {5, 1, 8}; /* two tokens are nobody's */
    int32_t positions[TOKENS] = {0}, spans[TOKENS][2] = {{0}}, starts[TOKENS] = {0};
    int64_t ids[TOKENS] = {0};
    float y[TOKENS][WIDTH], z[TOKENS][WIDTH], want_y[TOKENS][WIDTH], want_z[WIDTH];
    static struct wire bytes;
    struct onnx_model *model = model_new(&bytes);
    struct device *device = mock_simulate();
    struct ir_graph *graph = NULL;
    struct error err;
    mock_add_features(device, features);
    const struct build_options options = {.device = device,
                                          .evaluator = {.eval = cpu_eval_node},
                                          .ragged = &ragged,
                                          .shapes = &range,
                                          .n_shapes = 1};
    if (build_graph(model, &options, TOKENS, true, &graph, &err))
        fail_msg("%s", err.text);
    assert_int_equal(count(graph, IR_OP_ATTENTION), 1);
    assert_int_equal(count(graph, IR_OP_SOFTMAX), 0);
    assert_int_equal(count(graph, IR_OP_MATMUL), products);
    assert_int_equal(count(graph, IR_OP_EMBED), 1); /* words and places, which no gather reads */
    assert_int_equal(count(graph, IR_OP_GATHER), 1);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (3 * i + 1) % WORDS;
    number_tokens(lengths, ARRAY_LEN(lengths), positions, spans, starts);
    struct tensor_view in[IR_MAX_IO], out[2];
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        in[i] = input_of(ir_tensor(graph, graph->inputs[i]), ids, positions, &spans[0][0], starts);
    for (uint32_t i = 0; i < 2; i++) {
        const struct shape rows = {2, {TOKENS, WIDTH}};
        out[i] = (struct tensor_view){DTYPE_F32, rows, i ? z : y};
        assert_true(shape_equal(&ir_tensor(graph, graph->outputs[i])->shape, &rows));
    }
    if (cpu_eval_graph(graph, in, out, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0, at = 0; i < ARRAY_LEN(lengths); at += (size_t)lengths[i++]) {
        run_alone(model, ids + at, lengths[i], &want_y[0][0], want_z);
        for (int k = 0; k < lengths[i] * WIDTH; k++)
            assert_float_equal((&y[at][0])[k], (&want_y[0][0])[k], 1e-5);
        for (int k = 0; k < WIDTH; k++)
            assert_float_equal(z[i][k], want_z[k], 1e-5);
    }
    ir_graph_free(graph);
    engine_device_close(device);
    onnx_close(model);
}

static void sequences_are_what_they_are_alone(void **state UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        numbers[i] = (float)((int)(i * 2654435761u >> 20) % 200 - 100) / 100;
    check(BACKEND_ATTENTION, 3);
    check(BACKEND_ATTENTION | BACKEND_MERGE, 1);
}

static void what_does_not_go_together_is_refused(void **state UNUSED)
{
    static struct wire bytes;
    static const char *const one[] = {"ids"}, *const masks[] = {"mask"}, *const other[] = {"x"};
    const struct build_ragged lists[] = {{one, 1}, {masks, 1}, {other, 1}};
    struct onnx_model *model = model_new(&bytes);
    struct device *device = mock_simulate();
    struct build_options options = {.device = device, .evaluator = {.eval = cpu_eval_node}};
    struct error err;
    options.ragged = &ragged;
    assert_int_equal(build_ragged_check(model, &options, &err), STATUS_UNIMPLEMENTED);
    mock_add_features(device, BACKEND_ATTENTION);
    assert_int_equal(build_ragged_check(model, &options, &err), STATUS_OK);
    options.precision = PRECISION_I8;
    assert_int_equal(build_ragged_check(model, &options, &err), STATUS_OK);
    options.precision = PRECISION_F32;
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        options.ragged = &lists[i];
        assert_int_equal(build_ragged_check(model, &options, &err), STATUS_INVALID_ARGUMENT);
    }
    engine_device_close(device);
    onnx_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_are_what_they_are_alone),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
