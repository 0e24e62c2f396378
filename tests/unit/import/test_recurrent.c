/* SPDX-License-Identifier: Apache-2.0 */
/* What RNN, LSTM and GRU become, and which of them are refused. Values:
 * tests/zoo/test_recurrent.py. */
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/wire.h"

static const int64_t x_dims[] = {5, 2, 3};

struct result {
    enum status status;
    struct error err;
    struct ir_graph *graph;
    uint64_t steps;
};

static struct result import(const struct wire *graph)
{
    struct result r = {.graph = NULL};
    static struct wire model;
    struct onnx_model *opened = NULL;
    struct onnx_options options = {.batch = 1, .steps = &r.steps};
    wire_model(&model, graph, 14);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &r.err), STATUS_OK);
    r.status = onnx_import(opened, &options, &r.graph, &r.err);
    onnx_close(opened);
    return r;
}

static void assert_refused(const struct wire *graph, enum status want, const char *part)
{
    struct result r = import(graph);
    if (r.status != want || !strstr(r.err.text, part))
        fail_msg("status %d '%s' does not say '%s'", (int)r.status, r.err.text, part);
    assert_null(r.graph);
}

/* A layer of `gates` gates, `directions` directions and hidden size 4 over x[5,2,3]. */
static struct wire layer(const char *op, const char *inputs, int64_t gates, int64_t directions,
                         const struct wire *attrs)
{
    static const float zeros[512];
    const int64_t w[] = {directions, 4 * gates, 3}, r[] = {directions, 4 * gates, 4},
                  b[] = {directions, 8 * gates}, state[] = {directions, 2, 4},
                  p[] = {directions, 12}, n[] = {2};
    const int32_t full[] = {5, 5}, uneven[] = {5, 4};
    struct wire g = {.n = 0};
    size_t f = sizeof(float), d = (size_t)directions, k = (size_t)gates;
    wire_input(&g, "x", 1, 3, x_dims);
    wire_constant(&g, "w", 1, 3, w, zeros, d * 4 * k * 3 * f);
    wire_constant(&g, "r", 1, 3, r, zeros, d * 4 * k * 4 * f);
    wire_constant(&g, "b", 1, 2, b, zeros, d * 8 * k * f);
    wire_constant(&g, "s", 1, 3, state, zeros, d * 8 * f);
    wire_constant(&g, "p", 1, 2, p, zeros, d * 12 * f);
    wire_constant(&g, "full", 6, 1, n, full, sizeof(full));
    wire_constant(&g, "uneven", 6, 1, n, uneven, sizeof(uneven));
    wire_node(&g, op, inputs, "y", attrs);
    wire_output(&g, "y");
    return g;
}

static void attr_strings(struct wire *attrs, const char *name, uint32_t n, const char *const *texts)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    for (uint32_t i = 0; i < n; i++)
        wire_text(&attr, 9, texts[i]);
    wire_int(&attr, 20, 8);
    wire_message(attrs, 5, &attr);
}

static void attr_floats(struct wire *attrs, const char *name, uint32_t n, const float *values)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    for (uint32_t i = 0; i < n; i++)
        wire_float(&attr, 7, values[i]);
    wire_int(&attr, 20, 6);
    wire_message(attrs, 5, &attr);
}

static const struct ir_node *only(const struct result *r, enum ir_op op)
{
    const struct ir_node *found = NULL;
    if (r->status)
        fail_msg("%s", r->err.text);
    for (uint32_t i = 0; i < r->graph->n_nodes; i++)
        if (ir_node(r->graph, i)->op == op) {
            assert_null(found);
            found = ir_node(r->graph, i);
        }
    assert_non_null(found);
    return found;
}

/* A layer becomes one product for all steps and one node for the recurrence, each with a name of
 * its own. */
static void a_layer_is_a_product_and_a_recurrence(void **state)
{
    (void)state;
    struct wire g = layer("LSTM", "x w r b", 4, 1, NULL);
    struct result r = import(&g);
    const struct ir_node *product = only(&r, IR_OP_MATMUL), *node = only(&r, IR_OP_RECURRENT);
    assert_int_equal(ir_attr_int(product, IR_ATTR_TRANS_B), 1);
    assert_int_equal(node->inputs[0], product->outputs[0]);
    assert_int_equal(node->n_inputs, 2);
    assert_int_equal(node->n_outputs, 3);
    assert_int_equal(ir_attr_int(node, IR_ATTR_FUNC), IR_RECURRENT_LSTM);
    assert_string_not_equal(product->name, node->name);
    assert_int_equal(r.steps, 5);
    ir_graph_free(r.graph);
}

/* Both directions are one product and one node, too, whose operands are the file's as they lie. */
static void directions_share_a_node(void **state)
{
    (void)state;
    struct wire attrs = {.n = 0};
    wire_attr_text(&attrs, "direction", "bidirectional");
    struct wire g = layer("GRU", "x w r b", 3, 2, &attrs);
    struct result r = import(&g);
    const struct ir_node *product = only(&r, IR_OP_MATMUL), *node = only(&r, IR_OP_RECURRENT);
    assert_int_equal(ir_attr_int(node, IR_ATTR_REVERSE), IR_WAY_BOTH);
    assert_int_equal(ir_attr(node, IR_ATTR_FUNCS)->count, 4);
    assert_true(shape_equal(&ir_tensor(r.graph, product->outputs[0])->shape,
                            &(struct shape){3, {5, 2, 24}}));
    assert_true(
        shape_equal(&ir_tensor(r.graph, node->inputs[1])->shape, &(struct shape){2, {24, 4}}));
    const struct shape *y = &ir_tensor(r.graph, r.graph->outputs[0])->shape;
    assert_true(shape_equal(y, &(struct shape){4, {5, 2, 2, 4}}));
    ir_graph_free(r.graph);
    attrs.n = 0;
    wire_attr_text(&attrs, "direction", "reverse");
    g = layer("GRU", "x w r", 3, 1, &attrs);
    r = import(&g);
    assert_int_equal(ir_attr_int(only(&r, IR_OP_RECURRENT), IR_ATTR_REVERSE), IR_WAY_BACK);
    ir_graph_free(r.graph);
}

static void full_lengths_are_no_operand(void **state)
{
    (void)state;
    struct wire full = layer("RNN", "x w r - full s", 1, 1, NULL);
    struct wire uneven = layer("RNN", "x w r - uneven", 1, 1, NULL);
    struct result r = import(&full);
    assert_int_equal(only(&r, IR_OP_RECURRENT)->inputs[2], IR_NONE);
    ir_graph_free(r.graph);
    r = import(&uneven);
    assert_int_not_equal(only(&r, IR_OP_RECURRENT)->inputs[2], IR_NONE);
    ir_graph_free(r.graph);
}

/* Values go to the functions that take one, in order; words are read in any case. */
static void activations_take_their_values_in_order(void **state)
{
    (void)state;
    static const char *const names[] = {"LEAKYRELU", "tanh", "Affine"};
    static const float alphas[] = {0.5F, 0.25F}, betas[] = {0.125F};
    struct wire attrs = {.n = 0};
    attr_strings(&attrs, "activations", 3, names);
    attr_floats(&attrs, "activation_alpha", 2, alphas);
    attr_floats(&attrs, "activation_beta", 1, betas);
    struct wire g = layer("LSTM", "x w r - - s s p", 4, 1, &attrs);
    struct result r = import(&g);
    const struct ir_node *node = only(&r, IR_OP_RECURRENT);
    const struct ir_attr *funcs = ir_attr(node, IR_ATTR_FUNCS);
    assert_int_equal(funcs->i[0], IR_UNARY_LEAKY_RELU);
    assert_int_equal(funcs->i[1], IR_UNARY_TANH);
    assert_int_equal(funcs->i[2], IR_UNARY_LINEAR);
    assert_true(ir_attr(node, IR_ATTR_ALPHAS)->f[0] == 0.5F);
    assert_true(ir_attr(node, IR_ATTR_ALPHAS)->f[1] == 1);
    assert_true(ir_attr(node, IR_ATTR_ALPHAS)->f[2] == 0.25F);
    assert_true(ir_attr(node, IR_ATTR_BETAS)->f[2] == 0.125F);
    assert_int_equal(node->n_inputs, 6);
    ir_graph_free(r.graph);
}

static void wrong_attributes_are_refused(void **state)
{
    (void)state;
    static const char *const strange[] = {"Sine"}, *const many[] = {"Tanh", "Tanh"};
    struct wire direction = {.n = 0}, word = {.n = 0}, count = {.n = 0}, hidden = {.n = 0};
    wire_attr_text(&direction, "direction", "sideways");
    struct wire g = layer("RNN", "x w r", 1, 1, &direction);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "none of forward, reverse, bidirectional");
    attr_strings(&word, "activations", 1, strange);
    g = layer("RNN", "x w r", 1, 1, &word);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "activation 'Sine'");
    attr_strings(&count, "activations", 2, many);
    g = layer("RNN", "x w r", 1, 1, &count);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "2 activations, expected 1");
    wire_attr_int(&hidden, "hidden_size", 5);
    g = layer("RNN", "x w r", 1, 1, &hidden);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "R is [1,4,4]");
    count.n = 0;
    wire_attr_int(&count, "activations", 1);
    g = layer("RNN", "x w r", 1, 1, &count);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "attribute 'activations' is INT");
}

static void r14_operands_must_fit(void **state)
{
    (void)state;
    static const struct {
        const char *inputs;
        int64_t gates, directions;
        const char *says;
    } rows[] = {
        {"x w r", 3, 1, "expected rank 3 and 16 as dimension 1"},
        {"x w r", 4, 2, "expected rank 3 and 1 as dimension 0"},
        {"x r r", 4, 1, "do not fit"},
        {"r w r", 4, 1, "fit"},
        {"x w w", 4, 1, "R is [1,16,3]"},
        {"x w b", 4, 1, "expected rank 3"},
        {"x w r s", 4, 1, "B is [1,2,4]"},
        {"x w r - uneven b", 4, 1, "initial_h is [1,32]"},
        {"x w r - - - - s", 4, 1, "P is [1,2,4]"},
        {"p w r", 4, 1, "X has rank 2"},
        {"x - r", 4, 1, "input 1 is missing"},
        {"x w", 4, 1, "2 inputs, expected at least 3"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct wire attrs = {.n = 0};
        if (rows[i].gates == 4)
            wire_attr_int(&attrs, "hidden_size", 4);
        struct wire g = layer("LSTM", rows[i].inputs, rows[i].gates, rows[i].directions, &attrs);
        struct result r = import(&g);
        ir_graph_free(r.graph);
        if (r.status != STATUS_INVALID_ARGUMENT || !strstr(r.err.text, rows[i].says))
            print_error("%zu: %s\n", i, r.err.text);
        assert_int_equal(r.status, STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(r.err.text, rows[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_is_a_product_and_a_recurrence),
        cmocka_unit_test(directions_share_a_node),
        cmocka_unit_test(full_lengths_are_no_operand),
        cmocka_unit_test(activations_take_their_values_in_order),
        cmocka_unit_test(wrong_attributes_are_refused),
        cmocka_unit_test(r14_operands_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
