/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller may give values to inputs when a plan is built. How far back the importer then looks for
 * known values, and that a file of a few bytes cannot make it look for long.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

enum { FLOAT = 1, INT64 = 7, OPSET = 16 };

static const int64_t two[] = {2}, image[] = {1, 3, 8, 8}, boxes_dims[] = {1, 2, 4},
                     scores_dims[] = {1, 1, 2};
static int64_t shape_value[] = {-1, 64};
static float boxes_value[] = {0, 0, 1, 1, 5, 5, 6, 6}, scores_value[] = {0.5f, 0.75f};

static const struct onnx_value values[] = {
    {"s", {DTYPE_I64, {.rank = 1, .dim = {2}}, shape_value}, NULL},
    {"b", {DTYPE_F32, {.rank = 3, .dim = {1, 2, 4}}, boxes_value}, NULL},
    {"p", {DTYPE_F32, {.rank = 3, .dim = {1, 1, 2}}, scores_value}, NULL},
};

struct result {
    enum status status;
    struct error err;
    struct ir_graph *graph;
};

static struct result import(const struct wire *graph, uint32_t n_values)
{
    struct result r = {.graph = NULL};
    static struct wire model;
    struct onnx_model *opened = NULL;
    const struct onnx_options options = {
        .batch = 1, .values = values, .n_values = n_values, .evaluator = {.eval = cpu_eval_node}};
    wire_model(&model, graph, OPSET);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &r.err), STATUS_OK);
    r.status = onnx_import(opened, &options, &r.graph, &r.err);
    onnx_close(opened);
    return r;
}

static void assert_imported(const struct result *r)
{
    if (r->status)
        fail_msg("%s", r->err.text);
}

static void assert_refused(const struct result *r, const char *part)
{
    ir_graph_free(r->graph);
    if (r->status != STATUS_UNIMPLEMENTED || !strstr(r->err.text, part))
        fail_msg("status %d '%s' does not say '%s'", (int)r->status, r->err.text, part);
}

/* y = Reshape (x, s), where s comes from a chain of `n` nodes of one kind: t_i = op (t_i-1 [,
 * t_i-1]). */
static struct wire chain(const char *op, const char *operands, int n)
{
    struct wire g = {.n = 0};
    char in[32] = "s s", out[16];
    wire_input(&g, "x", FLOAT, 4, image);
    wire_input(&g, "s", INT64, 1, two);
    if (operands[1] == 0)
        in[1] = 0;
    for (int i = 0; i < n; i++) {
        snprintf(out, sizeof(out), "t%d", i);
        wire_node(&g, op, in, out, NULL);
        snprintf(in, sizeof(in), operands[1] ? "t%d t%d" : "t%d", i, i);
    }
    snprintf(out, sizeof(out), "x t%d", n - 1);
    wire_node(&g, "Reshape", out, "y", NULL);
    wire_output(&g, "y");
    return g;
}

static void a_value_is_found_behind_nodes(void **state)
{
    (void)state;
    struct wire g = chain("Abs", "a", 10);
    shape_value[0] = -3;
    struct result r = import(&g, 1);
    shape_value[0] = -1;
    assert_imported(&r);
    assert_int_equal(r.graph->n_nodes, 1);
    assert_int_equal(r.graph->n_inputs, 1);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.dim[0], 3);
    ir_graph_free(r.graph);
    r = import(&g, 0);
    assert_refused(&r, "'t9' must be known when the plan is built");
}

/* The file chooses how deep the chain is, but the importer's stack has an end. */
static void r5_values_are_not_looked_for_forever(void **state)
{
    (void)state;
    struct wire g = chain("Abs", "a", 40);
    struct result r = import(&g, 1);
    assert_refused(&r, "'t39' must be known when the plan is built");
}

/* Two ways to each of 30 nodes make 2^30 ways, but each node is computed once. */
static void r14_operands_shared_many_times_cost_one_look(void **state)
{
    (void)state;
    struct wire g = chain("Min", "two", 30);
    struct result r = import(&g, 1);
    assert_imported(&r);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.dim[1], 64);
    ir_graph_free(r.graph);
}

/* y = NonMaxSuppression (boxes, scores): b and p are inputs; "n" is b behind `nodes` of
 * Min (t, t). */
static struct wire nms_of(const char *operands, int nodes)
{
    static const int64_t most = 2;
    static const float overlap = 0.5f;
    struct wire g = {.n = 0};
    char in[32] = "b b", out[16] = "b";
    wire_input(&g, "b", FLOAT, 3, boxes_dims);
    wire_input(&g, "p", FLOAT, 3, scores_dims);
    wire_constant(&g, "k", INT64, 0, NULL, &most, sizeof(most));
    wire_constant(&g, "o", FLOAT, 0, NULL, &overlap, sizeof(overlap));
    for (int i = 0; i < nodes; i++) {
        snprintf(out, sizeof(out), i + 1 == nodes ? "n" : "t%d", i);
        wire_node(&g, "Min", in, out, NULL);
        snprintf(in, sizeof(in), "%s %s", out, out);
    }
    wire_node(&g, "NonMaxSuppression", operands, "y", NULL);
    wire_output(&g, "y");
    return g;
}

/* The selected rows, best first: {image, class, box}. */
static void boxes_that_are_given_are_selected_from(void **state)
{
    (void)state;
    static const int64_t want[] = {0, 0, 1, 0, 0, 0};
    struct wire direct = nms_of("b p k o", 0), behind = nms_of("n p k o", 3);
    const struct wire *both[] = {&direct, &behind};
    for (int i = 0; i < 2; i++) {
        struct result r = import(both[i], 3);
        assert_imported(&r);
        assert_int_equal(r.graph->n_inputs, 0);
        assert_int_equal(r.graph->n_nodes, 1);
        const struct ir_tensor *t = ir_tensor(r.graph, ir_node(r.graph, 0)->inputs[0]);
        assert_true(shape_equal(&t->shape, &(struct shape){2, {2, 3}}));
        assert_memory_equal(t->data, want, sizeof(want));
        ir_graph_free(r.graph);
    }
}

/* If a request gives one of the two, or to compute them would take too many steps, the node stays,
 * and its inputs too. */
static void boxes_of_requests_stay_inputs(void **state)
{
    (void)state;
    struct wire direct = nms_of("b p k o", 0), shared = nms_of("n p k o", 30),
                deep = nms_of("n p k o", 40);
    struct result r = import(&direct, 2);
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 2);
    assert_int_equal(ir_node(r.graph, r.graph->n_nodes - 1)->op, IR_OP_NMS);
    ir_graph_free(r.graph);
    r = import(&shared, 3);
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 2);
    assert_int_equal(r.graph->n_nodes, 31);
    ir_graph_free(r.graph);
    r = import(&deep, 3);
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 2);
    assert_int_equal(r.graph->n_nodes, 41);
    ir_graph_free(r.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_found_behind_nodes),
        cmocka_unit_test(r5_values_are_not_looked_for_forever),
        cmocka_unit_test(r14_operands_shared_many_times_cost_one_look),
        cmocka_unit_test(boxes_that_are_given_are_selected_from),
        cmocka_unit_test(boxes_of_requests_stay_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
