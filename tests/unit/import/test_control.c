/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What If, Loop and Scan become, and which of them are refused, up to the limits of depth,
 * iterations and nodes. Values: tests/zoo/test_control.py.
 */
#include <pthread.h>
#include <stdlib.h>

#include "engine/cpu/eval.h"
#include "engine/import/model.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

enum { FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, OPSET = 16 };

static const int64_t pair[] = {2, 3}, one_more[] = {3, 3};

struct result {
    enum status status;
    struct error err;
    struct ir_graph *graph;
    uint64_t steps;
};

static struct result import_with(const struct wire *graph, struct onnx_options options)
{
    struct result r = {.graph = NULL};
    static struct wire model;
    struct onnx_model *opened = NULL;
    options.batch = 1;
    options.evaluator = (struct ir_evaluator){.eval = cpu_eval_node};
    options.steps = &r.steps;
    wire_model(&model, graph, OPSET);
    r.status = onnx_open_memory(model.data, model.n, &opened, &r.err);
    if (!r.status)
        r.status = onnx_import(opened, &options, &r.graph, &r.err);
    onnx_close(opened);
    return r;
}

static struct result import(const struct wire *graph)
{
    return import_with(graph, (struct onnx_options){.batch = 1});
}

static void assert_imported(const struct result *r)
{
    if (r->status)
        fail_msg("%s", r->err.text);
}

static void assert_refused(const struct wire *graph, enum status want, const char *part)
{
    struct result r = import(graph);
    ir_graph_free(r.graph);
    if (r.status != want || !strstr(r.err.text, part))
        fail_msg("status %d '%s' does not say '%s'", (int)r.status, r.err.text, part);
}

static uint32_t count(const struct ir_graph *graph, enum ir_op op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n += ir_node(graph, i)->op == op;
    return n;
}

static bool has_node(const struct ir_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (!strcmp(ir_node(graph, i)->name, name))
            return true;
    return false;
}

static void attr_graph(struct wire *attrs, const char *name, const struct wire *graph)
{
    struct wire attr = {.n = 0};
    wire_text(&attr, 1, name);
    wire_message(&attr, 6, graph);
    wire_int(&attr, 20, 5);
    wire_message(attrs, 5, &attr);
}

/* A branch of one node over an outer name. */
static struct wire branch(const char *op, const char *input)
{
    struct wire g = {.n = 0};
    wire_node(&g, op, input, "o", NULL);
    wire_output(&g, "o");
    return g;
}

/* y = If (condition): x[2,3] is an input, as is the BOOL c; t and f are constants. */
static struct wire if_of(const char *condition, const struct wire *then, const struct wire *other)
{
    static const uint8_t yes = 1, no = 0;
    struct wire g = {.n = 0}, attrs = {.n = 0};
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "c", BOOL, 0, NULL);
    wire_constant(&g, "t", BOOL, 0, NULL, &yes, 1);
    wire_constant(&g, "f", BOOL, 0, NULL, &no, 1);
    attr_graph(&attrs, "then_branch", then);
    attr_graph(&attrs, "else_branch", other);
    wire_node(&g, "If", condition, "y", &attrs);
    wire_output(&g, "y");
    return g;
}

static void a_known_branch_is_taken(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), other = branch("Strange", "x");
    struct wire yes = if_of("t", &then, &other), no = if_of("f", &other, &then);
    struct result r = import(&yes);
    assert_imported(&r); /* the branch not taken need not be supported */
    assert_int_equal(r.graph->n_nodes, 1);
    assert_string_equal(ir_node(r.graph, 0)->name, "If_0/then/Neg_0");
    assert_string_equal(ir_tensor(r.graph, r.graph->outputs[0])->name, "y");
    ir_graph_free(r.graph);
    r = import(&no);
    assert_imported(&r);
    assert_string_equal(ir_node(r.graph, 0)->name, "If_0/else/Neg_0");
    ir_graph_free(r.graph);
}

static void a_request_may_choose_between_equals(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), other = branch("Sin", "x");
    struct wire g = if_of("c", &then, &other);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 2);
    assert_int_equal(count(r.graph, IR_OP_SELECT), 1);
    assert_int_equal(count(r.graph, IR_OP_UNARY), 2);
    ir_graph_free(r.graph);
}

static void unequal_branches_need_a_value(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), other = branch("Shape", "x");
    struct wire g = if_of("c", &then, &other);
    uint8_t yes = 1;
    const struct onnx_value values[] = {{"c", {DTYPE_BOOL, {.rank = 0}, &yes}, NULL}};
    assert_refused(&g, STATUS_UNIMPLEMENTED, "its branches give FP32 [2,3] and INT64 [2]");
    struct result r = import_with(&g, (struct onnx_options){.values = values, .n_values = 1});
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 1);
    assert_int_equal(count(r.graph, IR_OP_UNARY), 1);
    ir_graph_free(r.graph);
}

/* Both branches run, so an index that is out of range only in the branch not taken would fail the
 * request. */
static void what_may_fail_does_not_run_unasked(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), other = {.n = 0};
    wire_node(&other, "ArgMax", "x", "i", NULL);
    wire_node(&other, "Gather", "x i", "o", NULL);
    wire_output(&other, "o");
    struct wire g = if_of("c", &then, &other);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "'If_0/else/Gather_1' may fail");
}

/* Regions may fail too: RoiAlign fails for an image that is not there. */
static void a_region_may_fail_too(void **state)
{
    (void)state;
    static const int64_t image[] = {1, 1, 4, 4}, three[] = {3, 4};
    static const float numbers[16] = {0, 0, 2, 2};
    struct wire then = branch("Neg", "x"), other = {.n = 0}, keep = {.n = 0};
    wire_constant(&other, "im", FLOAT, 4, image, numbers, sizeof(numbers));
    wire_constant(&other, "rois", FLOAT, 2, three, numbers, 12 * sizeof(*numbers));
    wire_attr_int(&keep, "keepdims", 0);
    wire_node(&other, "ArgMax", "x", "which", &keep);
    wire_node(&other, "RoiAlign", "im rois which", "o", NULL);
    wire_output(&other, "o");
    struct wire g = if_of("c", &then, &other);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "'If_0/else/RoiAlign_1' may fail");
}

/* A condition whose value the caller gives decides after all, either way. */
static void a_value_takes_one_of_the_branches(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), other = {.n = 0};
    wire_node(&other, "ArgMax", "x", "i", NULL);
    wire_node(&other, "Gather", "x i", "o", NULL);
    wire_output(&other, "o");
    struct wire g = if_of("c", &then, &other);
    for (uint8_t yes = 0; yes < 2; yes++) {
        const struct onnx_value values[] = {{"c", {DTYPE_BOOL, {.rank = 0}, &yes}, NULL}};
        struct result r = import_with(&g, (struct onnx_options){.values = values, .n_values = 1});
        assert_imported(&r);
        assert_int_equal(r.graph->n_inputs, 1);
        assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->producer != IR_NONE, 1);
        const struct ir_tensor *y = ir_tensor(r.graph, r.graph->outputs[0]);
        assert_int_equal(ir_node(r.graph, y->producer)->op, yes ? IR_OP_UNARY : IR_OP_GATHER);
        ir_graph_free(r.graph);
    }
}

/* Constant indices were checked already, and a tensor that both branches give needs no choice. */
static void what_cannot_fail_may_run_unasked(void **state)
{
    (void)state;
    static const int64_t index[] = {0, 1};
    struct wire gather = {.n = 0}, other = branch("Neg", "x"), same = branch("Identity", "x");
    wire_constant(&gather, "i", INT64, 1, pair, index, sizeof(index));
    wire_node(&gather, "Gather", "x i", "o", NULL);
    wire_output(&gather, "o");
    struct wire g = if_of("c", &gather, &other), alike = if_of("c", &same, &same);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_SELECT), 1);
    assert_int_equal(count(r.graph, IR_OP_GATHER), 1);
    ir_graph_free(r.graph);
    r = import(&alike);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_SELECT), 0);
    assert_int_equal(r.graph->n_nodes, 1);
    ir_graph_free(r.graph);
}

/* Lengths that only a request knows decide where a recurrent layer reads. */
static void recurrent_layers_may_fail_too(void **state)
{
    (void)state;
    static const float w[1 * 4 * 3];
    static const int64_t w_dims[] = {1, 4, 3}, r_dims[] = {1, 4, 4}, x_dims[] = {2, 1, 3},
                         one[] = {1};
    static const float r_values[1 * 4 * 4];
    for (int given = 0; given < 2; given++) {
        struct wire then = {.n = 0}, g = {.n = 0}, attrs = {.n = 0}, hidden = {.n = 0};
        wire_attr_int(&hidden, "hidden_size", 4);
        wire_constant(&then, "w", FLOAT, 3, w_dims, w, sizeof(w));
        wire_constant(&then, "r", FLOAT, 3, r_dims, r_values, sizeof(r_values));
        wire_node(&then, "RNN", given ? "x w r - l" : "x w r", "o", &hidden);
        wire_output(&then, "o");
        attr_graph(&attrs, "then_branch", &then);
        attr_graph(&attrs, "else_branch", &then);
        wire_input(&g, "x", FLOAT, 3, x_dims);
        wire_input(&g, "l", INT32, 1, one);
        wire_input(&g, "c", BOOL, 0, NULL);
        wire_node(&g, "If", "c", "y", &attrs);
        wire_output(&g, "y");
        if (given) {
            assert_refused(&g, STATUS_UNIMPLEMENTED, "'If_0/then/RNN_0");
            continue;
        }
        struct result r = import(&g);
        assert_imported(&r);
        assert_int_equal(count(r.graph, IR_OP_SELECT), 1);
        ir_graph_free(r.graph);
    }
}

/* A node whose output a branch reads from outside comes before the If. Names that the branch writes
 * are its own, even if the graph around it has the same names. */
static void branches_are_put_in_order(void **state)
{
    (void)state;
    struct wire then = {.n = 0}, other = branch("Neg", "x"), g = {.n = 0}, attrs = {.n = 0};
    wire_node(&then, "Sin", "late", "z", NULL);
    wire_node(&then, "Neg", "outer", "late", NULL);
    wire_output(&then, "z");
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "c", BOOL, 0, NULL);
    attr_graph(&attrs, "then_branch", &then);
    attr_graph(&attrs, "else_branch", &other);
    wire_node(&g, "If", "c", "y", &attrs);
    wire_node(&g, "Abs", "x", "outer", NULL);
    wire_node(&g, "Cos", "y", "z", NULL);
    wire_output(&g, "z");
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_SELECT), 1);
    ir_graph_free(r.graph);

    struct wire cycle = {.n = 0}, inner = branch("Neg", "z");
    attrs.n = 0;
    wire_input(&cycle, "x", FLOAT, 2, pair);
    wire_input(&cycle, "c", BOOL, 0, NULL);
    attr_graph(&attrs, "then_branch", &inner);
    attr_graph(&attrs, "else_branch", &other);
    wire_node(&cycle, "If", "c", "y", &attrs);
    wire_node(&cycle, "Cos", "y", "z", NULL);
    wire_output(&cycle, "z");
    assert_refused(&cycle, STATUS_INVALID_ARGUMENT, "a cycle through node 1, Cos");
}

static void branches_must_be_there(void **state)
{
    (void)state;
    struct wire then = branch("Neg", "x"), empty = {.n = 0}, g = {.n = 0}, attrs = {.n = 0};
    struct wire none = if_of("t", &empty, &then), type = if_of("x", &then, &then);
    assert_refused(&none, STATUS_INVALID_ARGUMENT, "then_branch has 0 inputs and 0 outputs");
    assert_refused(&type, STATUS_UNIMPLEMENTED, "FP32, expected one of BOOL");
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "c", BOOL, 2, pair);
    attr_graph(&attrs, "then_branch", &then);
    wire_node(&g, "If", "c", "y", &attrs);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "attribute 'else_branch' is missing");
    g.n = 0;
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "c", BOOL, 2, pair);
    attr_graph(&attrs, "else_branch", &then);
    wire_node(&g, "If", "c", "y", &attrs);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'c' is not one BOOL");
    /* a branch has no inputs: it sees the names around it */
    wire_input(&empty, "v", FLOAT, 2, pair);
    wire_output(&empty, "v");
    none = if_of("t", &empty, &then);
    assert_refused(&none, STATUS_INVALID_ARGUMENT, "then_branch has 1 inputs and 1 outputs");
}

/* --- loops --- */

/* t = op (s, x), k = Neg (t); the loop goes on while `goes_on` says so: the
 * name of i or c, or a node of both. */
static struct wire body_of(const char *op, const char *goes_on)
{
    struct wire g = {.n = 0};
    wire_input(&g, "i", INT64, 0, NULL);
    wire_input(&g, "c", BOOL, 0, NULL);
    wire_input(&g, "s", FLOAT, 2, pair);
    wire_node(&g, "Identity", goes_on, "d", NULL);
    wire_node(&g, op, "s x", "t", NULL);
    wire_node(&g, "Neg", "t", "k", NULL);
    wire_output(&g, "d");
    wire_output(&g, "t");
    wire_value(&g, 12, "k", FLOAT, 2, pair);
    return g;
}

/* y, z = Loop (inputs): five and many are numbers, n and c inputs, t and f conditions. */
static struct wire loop_of(const char *inputs, const struct wire *body)
{
    static const int64_t zero = 0, five = 5, many = 1025, full = 1024;
    static const uint8_t yes = 1, no = 0;
    struct wire g = {.n = 0}, attrs = {.n = 0};
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "c", BOOL, 0, NULL);
    wire_input(&g, "n", INT64, 0, NULL);
    wire_constant(&g, "t", BOOL, 0, NULL, &yes, 1);
    wire_constant(&g, "f", BOOL, 0, NULL, &no, 1);
    wire_constant(&g, "zero", INT64, 0, NULL, &zero, sizeof(zero));
    wire_constant(&g, "five", INT64, 0, NULL, &five, sizeof(five));
    wire_constant(&g, "full", INT64, 0, NULL, &full, sizeof(full));
    wire_constant(&g, "many", INT64, 0, NULL, &many, sizeof(many));
    attr_graph(&attrs, "body", body);
    wire_node(&g, "Loop", inputs, "y z", &attrs);
    wire_output(&g, "y");
    wire_output(&g, "z");
    return g;
}

static void a_loop_is_unrolled(void **state)
{
    (void)state;
    struct wire body = body_of("Add", "c"), g = loop_of("five t x", &body);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_BINARY), 5);
    assert_int_equal(count(r.graph, IR_OP_UNARY), 5);
    assert_int_equal(count(r.graph, IR_OP_CONCAT), 1);
    assert_true(has_node(r.graph, "Loop_0/3/Add_1"));
    assert_int_equal(r.steps, 5);
    const struct shape *z = &ir_tensor(r.graph, r.graph->outputs[1])->shape;
    assert_true(shape_equal(z, &(struct shape){3, {5, 2, 3}}));
    ir_graph_free(r.graph);
}

/* A loop gives more parts than a node may have inputs. */
static void the_largest_loop(void **state)
{
    (void)state;
    struct wire body = body_of("Add", "c"), g = loop_of("full - x", &body);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_BINARY), 1024);
    assert_int_equal(count(r.graph, IR_OP_CONCAT), 5);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[1])->shape.dim[0], 1024);
    ir_graph_free(r.graph);
}

static void no_iteration_keeps_nothing(void **state)
{
    (void)state;
    static const char *const inputs[] = {"zero t x", "five f x", "- f x"};
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        struct wire body = body_of("Add", "c"), g = loop_of(inputs[i], &body);
        struct result r = import(&g);
        assert_imported(&r);
        const struct shape *z = &ir_tensor(r.graph, r.graph->outputs[1])->shape;
        assert_true(shape_equal(z, &(struct shape){3, {0, 2, 3}}));
        assert_int_equal(r.steps, 0);
        ir_graph_free(r.graph);
    }
    struct wire open = {.n = 0};
    wire_input(&open, "i", INT64, 0, NULL);
    wire_input(&open, "c", BOOL, 0, NULL);
    wire_input(&open, "s", FLOAT, 2, pair);
    wire_output(&open, "c");
    wire_output(&open, "s");
    wire_output(&open, "s");
    struct wire g = loop_of("zero t x", &open);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "the shape of 's' is not declared");
}

static void r14_endless_loops_are_refused(void **state)
{
    (void)state;
    struct wire body = body_of("Add", "c"), reads = body_of("Add", "outer");
    static const struct {
        const char *inputs, *says;
    } rows[] = {
        {"many - x", "1025 iterations, the limit is 1024"},
        {"many t x", "more than 1024 iterations"},
        {"- t x", "more than 1024 iterations"},
        {"- - x", "more than 1024 iterations"},
        {"n t x", "its number of iterations is computed from an input"},
        {"five c x", "whether it goes on is computed from an input"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct wire g = loop_of(rows[i].inputs, &body);
        assert_refused(&g, STATUS_UNIMPLEMENTED, rows[i].says);
    }
    struct wire g = loop_of("five t x", &reads);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'outer'");
    reads = body_of("Add", "n");
    g = loop_of("five t x", &reads);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "whether it goes on is computed from an input");
}

static void bodies_must_fit(void **state)
{
    (void)state;
    struct wire body = body_of("Add", "c"), grows = {.n = 0};
    struct wire few = loop_of("five t", &body), type = loop_of("five five x", &body);
    assert_refused(&few, STATUS_INVALID_ARGUMENT, "for a body of 3 inputs and 3 outputs");
    assert_refused(&type, STATUS_INVALID_ARGUMENT, "is not one BOOL");
    /* outputs kept from each iteration have one shape; a state may grow */
    wire_input(&grows, "i", INT64, 0, NULL);
    wire_input(&grows, "c", BOOL, 0, NULL);
    wire_input(&grows, "s", FLOAT, 2, pair);
    struct wire axis = {.n = 0};
    wire_attr_int(&axis, "axis", 0);
    wire_node(&grows, "Concat", "s x", "t", &axis);
    wire_output(&grows, "c");
    wire_output(&grows, "t");
    wire_output(&grows, "t");
    struct wire g = loop_of("five t x", &grows);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "iterations give 't' different types or shapes");
}

/* Condition "b" is two BOOLs. A body lacks a state, or an output that the node names. */
static void r14_loops_are_measured(void **state)
{
    (void)state;
    static const int64_t seventeen = 17;
    static const uint8_t both[] = {1, 1};
    struct wire body = body_of("Add", "c"), g = {.n = 0}, attrs = {.n = 0}, short_body = {.n = 0};
    attr_graph(&attrs, "body", &body);
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_constant(&g, "b", BOOL, 1, pair, both, sizeof(both));
    wire_constant(&g, "n", INT64, 0, NULL, &seventeen, sizeof(seventeen));
    wire_node(&g, "Loop", "n b x", "y z", &attrs);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'b' is not one BOOL");
    g.n = 0;
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_constant(&g, "n", INT64, 0, NULL, &seventeen, sizeof(seventeen));
    wire_node(&g, "Loop", "n - x", "y z w", &attrs);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "3 outputs for a body of 3 inputs and 3 outputs");
    wire_input(&short_body, "i", INT64, 0, NULL);
    wire_input(&short_body, "c", BOOL, 0, NULL);
    wire_input(&short_body, "s", FLOAT, 2, pair);
    wire_output(&short_body, "c");
    struct wire loop = loop_of("five t x", &short_body);
    assert_refused(&loop, STATUS_INVALID_ARGUMENT, "for a body of 3 inputs and 1 outputs");
}

/* The outputs kept from a loop of no iterations have only their declaration: rank, type and
 * sizes. */
static void r14_what_is_declared_may_be_wrong(void **state)
{
    (void)state;
    static const int64_t open[] = {2, -1}, deep[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const struct {
        int type;
        uint32_t rank;
        const int64_t *dims;
    } rows[] = {{FLOAT, 2, open}, {FLOAT, 8, deep}, {99, 2, pair}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct wire body = {.n = 0};
        wire_input(&body, "i", INT64, 0, NULL);
        wire_input(&body, "c", BOOL, 0, NULL);
        wire_input(&body, "s", FLOAT, 2, pair);
        wire_output(&body, "c");
        wire_output(&body, "s");
        wire_value(&body, 12, "s", rows[i].type, rows[i].rank, rows[i].dims);
        struct wire g = loop_of("zero t x", &body);
        assert_refused(&g, STATUS_UNIMPLEMENTED, "the shape of 's' is not declared");
    }
}

/* Stacks `n` negatives of an input. */
static struct wire stack_of(int64_t n, uint32_t rank, const int64_t *dims)
{
    struct wire body = {.n = 0}, g = {.n = 0}, attrs = {.n = 0};
    wire_input(&body, "i", INT64, 0, NULL);
    wire_input(&body, "c", BOOL, 0, NULL);
    wire_node(&body, "Neg", "x", "o", NULL);
    wire_output(&body, "c");
    wire_output(&body, "o");
    attr_graph(&attrs, "body", &body);
    wire_input(&g, "x", FLOAT, rank, dims);
    wire_constant(&g, "n", INT64, 0, NULL, &n, sizeof(n));
    wire_node(&g, "Loop", "n", "y", &attrs);
    wire_output(&g, "y");
    return g;
}

/* Stacking adds a dimension to tensors that have as many as there can be. */
static void r14_stacks_have_a_rank(void **state)
{
    (void)state;
    static const int64_t deep[] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct wire g = stack_of(5, 8, deep);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "outputs of rank 9");
}

/* 257 parts: one more than a node can have as inputs, so the last is a part of its own. */
static void one_part_more_than_a_node_takes(void **state)
{
    (void)state;
    static const int64_t many = IR_MAX_INPUTS + 1;
    struct wire g = stack_of(many, 2, pair);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_CONCAT), 2);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.dim[0], many);
    ir_graph_free(r.graph);
}

/* A thousand times a thousand nodes, of a few bytes. */
static void r14_nodes_are_counted_over_all_loops(void **state)
{
    (void)state;
    struct wire inner = body_of("Add", "c"), outer = {.n = 0}, attrs = {.n = 0};
    wire_input(&outer, "j", INT64, 0, NULL);
    wire_input(&outer, "e", BOOL, 0, NULL);
    wire_input(&outer, "v", FLOAT, 2, pair);
    attr_graph(&attrs, "body", &inner);
    wire_node(&outer, "Loop", "full t v", "w l", &attrs);
    wire_output(&outer, "t");
    wire_output(&outer, "w");
    wire_output(&outer, "l");
    struct wire g = loop_of("full t x", &outer);
    assert_refused(&g, STATUS_UNIMPLEMENTED, "more than 65536 nodes");
}

/* The constants of a body exist once, whatever the number of iterations. */
static void r14_iterations_share_constants(void **state)
{
    (void)state;
    static const float row[3] = {1, 2, 3};
    struct wire body = {.n = 0}, typed = {.n = 0};
    wire_int(&typed, 1, 3);
    wire_int(&typed, 2, FLOAT);
    wire_text(&typed, 8, "w");
    for (int i = 0; i < 3; i++)
        wire_float(&typed, 4, row[i]);
    wire_message(&body, 5, &typed);
    wire_input(&body, "i", INT64, 0, NULL);
    wire_input(&body, "c", BOOL, 0, NULL);
    wire_input(&body, "s", FLOAT, 2, pair);
    wire_node(&body, "Mul", "s w", "u", NULL);
    wire_output(&body, "c");
    wire_output(&body, "u");
    wire_output(&body, "u");
    struct wire g = loop_of("five t x", &body);
    struct result r = import(&g);
    uint32_t constant = IR_NONE, n = 0;
    assert_imported(&r);
    for (uint32_t i = 0; i < r.graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(r.graph, i);
        if (node->op != IR_OP_BINARY)
            continue;
        assert_true(!n || node->inputs[1] == constant);
        constant = node->inputs[1];
        n++;
    }
    assert_int_equal(n, 5);
    ir_graph_free(r.graph);
}

/* --- scan --- */

static struct wire scan_of(const int64_t *y_dims, const struct wire *attrs)
{
    struct wire g = {.n = 0};
    wire_input(&g, "x", FLOAT, 2, pair);
    wire_input(&g, "y", FLOAT, 2, y_dims);
    wire_node(&g, "Scan", "x y", "z", attrs);
    wire_output(&g, "z");
    return g;
}

static void scans_are_unrolled(void **state)
{
    (void)state;
    struct wire body = {.n = 0}, attrs = {.n = 0}, wrong = {.n = 0};
    const int64_t axes[] = {1, 2};
    wire_input(&body, "u", FLOAT, 1, pair);
    wire_input(&body, "v", FLOAT, 1, pair);
    wire_node(&body, "Add", "u v", "w", NULL);
    wire_output(&body, "w");
    attr_graph(&attrs, "body", &body);
    wire_raw(&wrong, attrs.data, attrs.n);
    wire_attr_int(&attrs, "num_scan_inputs", 2);
    struct wire g = scan_of(pair, &attrs);
    struct result r = import(&g);
    assert_imported(&r);
    assert_int_equal(count(r.graph, IR_OP_BINARY), 2);
    assert_true(has_node(r.graph, "Scan_0/1/Add_0"));
    assert_int_equal(r.steps, 2);
    ir_graph_free(r.graph);
    g = scan_of(one_more, &attrs);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "2 and 3 long");
    g = scan_of(pair, &wrong);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'num_scan_inputs' is 0 for 2 inputs");
    wire_attr_int(&wrong, "num_scan_inputs", 3);
    g = scan_of(pair, &wrong);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'num_scan_inputs' is 3 for 2 inputs");
    wire_attr_ints(&attrs, "scan_input_axes", 2, axes);
    g = scan_of(pair, &attrs);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "axis 2 is outside");
    wire_attr_ints(&attrs, "scan_output_axes", 2, axes);
    g = scan_of(pair, &attrs);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'scan_output_axes' has 2 values, expected 1");
}

/* Backward, along another axis, and too long. */
static void scans_have_directions_and_an_end(void **state)
{
    (void)state;
    struct wire body = {.n = 0}, attrs = {.n = 0}, short_body = {.n = 0}, few = {.n = 0};
    static const int64_t one[] = {1}, long_dims[] = {1025, 3};
    wire_input(&body, "u", FLOAT, 1, pair);
    wire_node(&body, "Neg", "u", "w", NULL);
    wire_output(&body, "w");
    attr_graph(&attrs, "body", &body);
    wire_attr_int(&attrs, "num_scan_inputs", 1);
    struct wire g = {.n = 0}, forward = {.n = 0}, fits = {.n = 0};
    wire_input(&g, "x", FLOAT, 2, long_dims);
    wire_node(&g, "Scan", "x", "z", &attrs);
    wire_output(&g, "z");
    assert_refused(&g, STATUS_UNIMPLEMENTED, "1025 iterations, the limit is 1024");
    wire_attr_ints(&attrs, "scan_input_directions", 1, one);
    wire_attr_ints(&attrs, "scan_output_directions", 1, one);
    wire_attr_ints(&attrs, "scan_output_axes", 1, one);
    wire_input(&forward, "x", FLOAT, 2, pair);
    wire_node(&forward, "Scan", "x", "z", &attrs);
    wire_output(&forward, "z");
    struct result r = import(&forward);
    assert_imported(&r);
    assert_true(
        shape_equal(&ir_tensor(r.graph, r.graph->outputs[0])->shape, &(struct shape){2, {3, 2}}));
    /* a scan backward reads the last element first */
    assert_int_equal(ir_attr_at(ir_node(r.graph, 0), IR_ATTR_STARTS, 0), 1);
    ir_graph_free(r.graph);
    wire_input(&short_body, "u", FLOAT, 1, pair);
    attr_graph(&few, "body", &short_body);
    wire_attr_int(&few, "num_scan_inputs", 1);
    wire_input(&fits, "x", FLOAT, 2, pair);
    wire_node(&fits, "Scan", "x", "z", &few);
    wire_output(&fits, "z");
    assert_refused(&fits, STATUS_INVALID_ARGUMENT, "for a body of 1 inputs and 0 outputs");
}

/* --- depth --- */

/* If within If; the innermost is a Neg. */
static struct wire nested(int depth)
{
    struct wire leaf = branch("Neg", "x"), g = leaf;
    for (int i = 1; i < depth; i++) {
        struct wire attrs = {.n = 0}, outer = {.n = 0};
        attr_graph(&attrs, "then_branch", &g);
        attr_graph(&attrs, "else_branch", &leaf);
        wire_node(&outer, "If", "t", "o", &attrs);
        wire_output(&outer, "o");
        g = outer;
    }
    return if_of("t", &g, &leaf);
}

/* The buffers are static, to leave the stack to the importer. */
static void *import_nested(void *arg)
{
    static struct result r;
    r = import(arg);
    return &r;
}

static struct result import_on_small_stack(struct wire *graph)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 64 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, import_nested, graph), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal(pthread_attr_destroy(&attr), 0);
    return *(struct result *)result;
}

static void r5_graphs_in_graphs_have_a_limit(void **state)
{
    (void)state;
    static struct wire g;
    g = nested(ONNX_MAX_DEPTH);
    struct result r = import_on_small_stack(&g);
    assert_imported(&r);
    assert_int_equal(r.graph->n_nodes, 1);
    ir_graph_free(r.graph);
    g = nested(ONNX_MAX_DEPTH + 1);
    r = import_on_small_stack(&g);
    if (r.status != STATUS_UNIMPLEMENTED || !strstr(r.err.text, "more than 8 deep"))
        fail_msg("status %d: %s", (int)r.status, r.err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_branch_is_taken),
        cmocka_unit_test(a_request_may_choose_between_equals),
        cmocka_unit_test(unequal_branches_need_a_value),
        cmocka_unit_test(what_may_fail_does_not_run_unasked),
        cmocka_unit_test(a_region_may_fail_too),
        cmocka_unit_test(branches_are_put_in_order),
        cmocka_unit_test(branches_must_be_there),
        cmocka_unit_test(a_loop_is_unrolled),
        cmocka_unit_test(the_largest_loop),
        cmocka_unit_test(no_iteration_keeps_nothing),
        cmocka_unit_test(r14_endless_loops_are_refused),
        cmocka_unit_test(bodies_must_fit),
        cmocka_unit_test(r14_nodes_are_counted_over_all_loops),
        cmocka_unit_test(r14_iterations_share_constants),
        cmocka_unit_test(scans_are_unrolled),
        cmocka_unit_test(r5_graphs_in_graphs_have_a_limit),
        cmocka_unit_test(a_value_takes_one_of_the_branches),
        cmocka_unit_test(what_cannot_fail_may_run_unasked),
        cmocka_unit_test(recurrent_layers_may_fail_too),
        cmocka_unit_test(r14_loops_are_measured),
        cmocka_unit_test(r14_what_is_declared_may_be_wrong),
        cmocka_unit_test(r14_stacks_have_a_rank),
        cmocka_unit_test(one_part_more_than_a_node_takes),
        cmocka_unit_test(scans_have_directions_and_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
