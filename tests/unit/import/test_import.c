/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the importer makes of graphs, and what it refuses. tests/ops checks the values; the
 * evaluator here knows two ops, enough for shape arithmetic.
 */
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/wire.h"

static const int64_t pair[] = {2, 3}, image[] = {1, 3, 8, 8}, symbolic[] = {-1, 3},
                     two_symbols[] = {-1, -2};

/* GATHER of a list with one index, and the product of two INT64s. */
static enum status eval(void *user, const struct ir_graph *graph, const struct ir_node *node,
                        const void *const *inputs, void *const *outputs, struct error *err)
{
    (void)graph;
    const int64_t *a = inputs[0], *b = node->n_inputs > 1 ? inputs[1] : NULL;
    ++*(uint32_t *)user;
    if (node->op == IR_OP_GATHER)
        memcpy(outputs[0], &a[*b], sizeof(*a));
    else if (node->op == IR_OP_BINARY)
        *(int64_t *)outputs[0] = *a * *b;
    else
        return error_set(err, STATUS_UNIMPLEMENTED, "not here");
    return STATUS_OK;
}

struct result {
    enum status status;
    struct error err;
    struct ir_graph *graph;
    char *text;
    uint32_t evaluated;
};

static struct result import_with(const struct wire *graph, int64_t opset,
                                 struct onnx_options options)
{
    struct result r = {.graph = NULL};
    static struct wire model; /* outlives the graph */
    struct onnx_model *opened = NULL;
    wire_model(&model, graph, opset);
    options.evaluator = (struct ir_evaluator){eval, &r.evaluated};
    r.status = onnx_open_memory(model.data, model.n, &opened, &r.err);
    if (!r.status)
        r.status = onnx_import(opened, &options, &r.graph, &r.err);
    onnx_close(opened);
    r.text = r.graph ? ir_graph_text(r.graph) : NULL;
    return r;
}

static struct result import(const struct wire *graph, int64_t opset)
{
    return import_with(graph, opset, (struct onnx_options){.batch = 4});
}

static void release(struct result *r)
{
    ir_graph_free(r->graph);
    free(r->text);
}

static void assert_says(const struct result *r, enum status want, const char *part)
{
    assert_int_equal(r->status, want);
    if (!strstr(r->err.text, part))
        fail_msg("'%s' does not say '%s'", r->err.text, part);
    assert_null(r->graph);
}

static void assert_imported(const struct result *r)
{
    if (r->status)
        fail_msg("%s", r->err.text);
}

static const struct ir_node *only_node(const struct result *r, enum ir_op op)
{
    assert_imported(r);
    assert_int_equal(r->graph->n_nodes, 1);
    assert_int_equal(ir_node(r->graph, 0)->op, op);
    return ir_node(r->graph, 0);
}

static void a_node_is_named_after_its_op_and_place(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Identity", "x", "t", NULL);
    wire_node(&g, "Relu", "t", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    const struct ir_node *node = only_node(&r, IR_OP_UNARY);
    assert_string_equal(node->name, "Relu_1");
    assert_string_equal(ir_tensor(r.graph, r.graph->outputs[0])->name, "y");
    assert_string_equal(ir_tensor(r.graph, r.graph->inputs[0])->name, "x");
    release(&r);
}

static void an_input_as_output_is_copied(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Identity", "x", "y", NULL);
    wire_node(&g, "Relu", "x", "z", NULL);
    wire_output(&g, "y");
    wire_output(&g, "z");
    struct result r = import(&g, 13);
    assert_imported(&r);
    assert_int_equal(r.graph->n_nodes, 2);
    assert_int_not_equal(r.graph->outputs[0], r.graph->inputs[0]);
    assert_string_equal(ir_tensor(r.graph, r.graph->outputs[0])->name, "y");
    release(&r);
}

static void one_tensor_under_two_output_names(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Relu", "x", "y", NULL);
    wire_node(&g, "Identity", "y", "z", NULL);
    wire_output(&g, "z");
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_imported(&r);
    assert_int_equal(r.graph->n_outputs, 2);
    assert_string_equal(ir_tensor(r.graph, r.graph->outputs[0])->name, "z");
    assert_string_equal(ir_tensor(r.graph, r.graph->outputs[1])->name, "y");
    release(&r);
}

static struct wire relu_of(uint32_t rank, const int64_t *dims)
{
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, rank, dims);
    wire_node(&g, "Relu", "x", "y", NULL);
    wire_output(&g, "y");
    return g;
}

static void the_first_dimension_is_the_batch(void **state)
{
    (void)state;
    struct wire g = relu_of(2, symbolic);
    struct result r = import(&g, 13);
    assert_imported(&r);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.dim[0], 4);
    release(&r);
}

static void symbols_are_bound_by_name(void **state)
{
    (void)state;
    struct wire g = relu_of(2, two_symbols);
    const struct onnx_dim dims[] = {{"m", 5}};
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "'m'");
    release(&r);
    r = import_with(&g, 13, (struct onnx_options){.batch = 4, .dims = dims, .n_dims = 1});
    assert_imported(&r);
    assert_int_equal(ir_tensor(r.graph, r.graph->inputs[0])->shape.dim[0], 4);
    assert_int_equal(ir_tensor(r.graph, r.graph->inputs[0])->shape.dim[1], 5);
    release(&r);
}

static bool is_batched_with(const struct wire *graph, const struct onnx_options *options,
                            bool *named)
{
    struct onnx_model *opened = NULL;
    struct wire model;
    struct error err;
    wire_model(&model, graph, 13);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &err), STATUS_OK);
    bool batched = onnx_is_batched(opened, options, named);
    onnx_close(opened);
    return batched;
}

static bool is_batched(const struct wire *graph)
{
    bool named;
    return is_batched_with(graph, &(struct onnx_options){.batch = 1}, &named);
}

static void places_count_instances_unless_options_say_otherwise(void **state)
{
    static const struct onnx_dim given = {"x:0", 3}, said = {"x:0", ONNX_INSTANCES};
    const struct {
        struct onnx_options options;
        bool batched, named;
    } cases[] = {
        {{.batch = 1}, true, false},
        {{.batch = 1, .dims = &given, .n_dims = 1}, false, false},
        {{.batch = 1, .said = true}, false, false},
        {{.batch = 1, .said = true, .dims = &said, .n_dims = 1}, true, true},
    };
    struct wire open = relu_of(2, symbolic);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool named;
        assert_int_equal(is_batched_with(&open, &cases[i].options, &named), cases[i].batched);
        assert_int_equal(named, cases[i].named);
    }
}

static void batched_means_that_some_dimension_counts_instances(void **state)
{
    (void)state;
    struct wire fixed = relu_of(2, pair), open = relu_of(2, symbolic);
    assert_false(is_batched(&fixed));
    assert_true(is_batched(&open));
    wire_input(&open, "z", 1, 2, pair); /* other inputs may be the same for all instances */
    assert_true(is_batched(&open));
    struct wire listed = relu_of(2, symbolic); /* old files list initializers as inputs */
    const float w[6] = {0};
    wire_input(&listed, "w", 1, 2, pair);
    wire_constant(&listed, "w", 1, 2, pair, w, sizeof(w));
    assert_true(is_batched(&listed));
    struct result r = import(&listed, 7);
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 1);
    release(&r);
}

static void refusals_name_op_node_and_opset(void **state)
{
    (void)state;
    struct wire g = {.n = 0}, old = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "NoSuchOp", "x", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "NoSuchOp \"NoSuchOp_0\" (opset 13): ");
    release(&r);
    wire_input(&old, "x", 1, 2, pair);
    wire_node(&old, "HardSwish", "x", "y", NULL);
    wire_output(&old, "y");
    r = import(&old, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "from opset 14");
    release(&r);
    g = relu_of(2, pair);
    r = import(&g, 99);
    assert_says(&r, STATUS_UNIMPLEMENTED, "99");
    release(&r);
}

static void nodes_are_put_in_order(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Relu", "t", "y", NULL);
    wire_node(&g, "Neg", "s", "t", NULL);
    wire_node(&g, "Sin", "x", "s", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_int_equal(r.status, STATUS_OK);
    assert_int_equal(r.graph->n_nodes, 3);
    assert_non_null(strstr(r.text, "y FP32[2,3] = unary \"Relu_2\" (t) func=relu"));
    release(&r);
}

static void a_cycle_is_refused_by_a_node_of_it(void **state)
{
    (void)state;
    struct wire g = {.n = 0}, own = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Relu", "x", "a", NULL);
    wire_node(&g, "Add", "a d", "b", NULL);
    wire_node(&g, "Neg", "b", "c", NULL);
    wire_node(&g, "Sin", "c", "d", NULL);
    wire_node(&g, "Relu", "d", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "a cycle through node 2, Neg");
    release(&r);
    wire_input(&own, "x", 1, 2, pair);
    wire_node(&own, "Add", "x y", "y", NULL);
    wire_output(&own, "y");
    r = import(&own, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "a cycle through node 0, Add");
    release(&r);
}

static void r4_names_are_written_once(void **state)
{
    (void)state;
    struct wire g = {.n = 0}, twice = relu_of(2, pair);
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Relu", "x", "y", NULL);
    wire_node(&g, "Neg", "x", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "twice");
    release(&r);
    wire_input(&twice, "x", 1, 2, pair);
    r = import(&twice, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "twice");
    release(&r);
}

static void r4_inputs_are_counted(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    for (int i = 0; i <= IR_MAX_IO; i++)
        wire_input(&g, (const char[]){'x', (char)('0' + i), 0}, 1, 2, pair);
    wire_node(&g, "Relu", "x0", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "64 inputs");
    release(&r);
}

static void automatic_pads_are_resolved(void **state)
{
    (void)state;
    static const float w[2 * 3 * 2 * 2];
    const int64_t w_dims[] = {2, 3, 2, 2}, want_upper[] = {0, 0, 1, 1}, want_lower[] = {1, 1, 0, 0};
    for (int lower = 0; lower < 2; lower++) {
        struct wire g = {.n = 0}, attrs = {.n = 0};
        wire_attr_text(&attrs, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
        wire_input(&g, "x", 1, 4, image);
        wire_constant(&g, "w", 1, 4, w_dims, w, sizeof(w));
        wire_node(&g, "Conv", "x w", "y", &attrs);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        const struct ir_node *node = only_node(&r, IR_OP_CONV);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(ir_attr_at(node, IR_ATTR_PADS, i),
                             lower ? want_lower[i] : want_upper[i]);
        release(&r);
    }
}

static void r14_attributes_are_checked(void **state)
{
    (void)state;
    static const float w[2 * 3 * 2 * 2];
    const int64_t w_dims[] = {2, 3, 2, 2};
    static const struct {
        const char *name;
        uint32_t n;
        int64_t values[4];
    } rows[] = {
        {"strides", 2, {0, 1}},
        {"strides", 1, {1}},
        {"dilations", 2, {-1, 1}},
        {"pads", 4, {-1, 0, 0, 0}},
        {"pads", 3, {0, 0, 0}},
        {"kernel_shape", 2, {3, 3}},
        {"strides", 2, {INT64_MAX, 1}},
        {"dilations", 2, {1, INT64_MIN}},
        {"kernel_shape", 2, {1LL << 40, 2}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct wire g = {.n = 0}, attrs = {.n = 0};
        wire_attr_ints(&attrs, rows[i].name, rows[i].n, rows[i].values);
        wire_input(&g, "x", 1, 4, image);
        wire_constant(&g, "w", 1, 4, w_dims, w, sizeof(w));
        wire_node(&g, "Conv", "x w", "y", &attrs);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        assert_says(&r, STATUS_INVALID_ARGUMENT, "Conv_0");
        release(&r);
    }
}

static void r14_axes_are_below_the_rank(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int64_t axis;
    } rows[] = {{"Softmax", 2},    {"Softmax", -3},       {"ArgMax", 2},
                {"Flatten", 3},    {"ArgMin", INT64_MIN}, {"LpNormalization", INT64_MAX},
                {"Hardmax", 1000}, {"Concat", -4}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct wire g = {.n = 0}, attrs = {.n = 0};
        wire_attr_int(&attrs, "axis", rows[i].axis);
        wire_input(&g, "x", 1, 2, pair);
        wire_node(&g, rows[i].op, "x", "y", &attrs);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        assert_says(&r, STATUS_INVALID_ARGUMENT, "axis");
        release(&r);
    }
}

static void old_softmax_takes_all_dimensions_behind(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 4, image);
    wire_node(&g, "Softmax", "x", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 11);
    assert_imported(&r);
    assert_int_equal(r.graph->n_nodes, 3); /* to a matrix and back */
    assert_int_equal(ir_node(r.graph, 1)->op, IR_OP_SOFTMAX);
    assert_int_equal(ir_tensor(r.graph, ir_node(r.graph, 1)->inputs[0])->shape.dim[1], 192);
    release(&r);
    r = import(&g, 13);
    assert_int_equal(ir_attr_int(only_node(&r, IR_OP_SOFTMAX), IR_ATTR_AXIS), 3);
    release(&r);
}

static void attributes_and_operands_mean_the_same(void **state)
{
    (void)state;
    struct wire old = {.n = 0}, new = {.n = 0}, attrs = {.n = 0};
    const int64_t axes[] = {0}, one[] = {1};
    wire_attr_ints(&attrs, "axes", 1, axes);
    wire_input(&old, "x", 1, 4, image);
    wire_node(&old, "Squeeze", "x", "y", &attrs);
    wire_output(&old, "y");
    wire_input(&new, "x", 1, 4, image);
    wire_constant(&new, "a", 7, 1, one, axes, sizeof(axes));
    wire_node(&new, "Squeeze", "x a", "y", NULL);
    wire_output(&new, "y");
    struct result r = import(&old, 11), s = import(&new, 13);
    assert_imported(&r);
    assert_imported(&s);
    assert_string_equal(r.text, s.text);
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.rank, 3);
    release(&r);
    release(&s);
}

/* Reshape(x, C * H * W), computed as exporters write it. */
static void shape_arithmetic_disappears(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    const int64_t one[] = {1}, two = 2;
    wire_input(&g, "x", 1, 4, image);
    wire_constant(&g, "one", 7, 1, one, one, sizeof(one));
    wire_constant(&g, "two", 7, 1, one, &two, sizeof(two));
    wire_node(&g, "Shape", "x", "s", NULL);
    wire_node(&g, "Gather", "s one", "c", NULL);
    wire_node(&g, "Gather", "s two", "h", NULL);
    wire_node(&g, "Mul", "h h", "hw", NULL);
    wire_node(&g, "Mul", "c hw", "n", NULL);
    wire_node(&g, "Reshape", "x n", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    const struct ir_node *node = only_node(&r, IR_OP_RESHAPE);
    assert_int_equal(ir_attr_int(node, IR_ATTR_SHAPE), 192);
    assert_int_equal(r.evaluated, 4);
    release(&r);
}

/* mask[batch, key] of PyTorch; when two indices change places, it is a gather. */
static void indices_of_all_elements_in_order_are_a_reshape(void **state)
{
    (void)state;
    const int64_t x[] = {2, 2}, dims[] = {2, 1, 2, 2};
    static const int64_t places[2][8] = {{0, 0, 0, 1, 1, 0, 1, 1}, {0, 0, 1, 0, 0, 1, 1, 1}};
    for (int swapped = 0; swapped < 2; swapped++) {
        struct wire g = {.n = 0};
        wire_input(&g, "x", 1, 2, x);
        wire_constant(&g, "i", 7, 4, dims, places[swapped], sizeof(places[0]));
        wire_node(&g, "GatherND", "x i", "y", NULL);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        only_node(&r, swapped ? IR_OP_GATHER_ND : IR_OP_RESHAPE);
        assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.rank, 3);
        release(&r);
    }
}

/* An op that the evaluator does not know is no failure as long as nobody needs its value. */
static void what_cannot_be_evaluated_stays_a_node(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    static const float w[6];
    wire_constant(&g, "w", 1, 2, pair, w, sizeof(w));
    wire_node(&g, "Relu", "w", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    only_node(&r, IR_OP_UNARY);
    release(&r);
}

static void a_shape_operand_may_be_given(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    const int64_t two[] = {2};
    int64_t shape[] = {-1, 64};
    const struct onnx_value values[] = {
        {"s", {DTYPE_I64, {.rank = 1, .dim = {2}}, shape}, NULL},
        {"x", {DTYPE_F32, {.rank = 4, .dim = {1, 3, 8, 8}}, shape}, NULL},
    };
    wire_input(&g, "x", 1, 4, image);
    wire_input(&g, "s", 7, 1, two);
    wire_node(&g, "Reshape", "x s", "y", NULL);
    wire_output(&g, "y");
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "'s' must be known");
    release(&r);
    r = import_with(&g, 13, (struct onnx_options){.batch = 1, .values = values, .n_values = 2});
    assert_imported(&r);
    assert_int_equal(r.graph->n_inputs, 1); /* s became part of the graph; x did not have to */
    assert_string_equal(ir_tensor(r.graph, r.graph->inputs[0])->name, "x");
    assert_int_equal(ir_tensor(r.graph, r.graph->outputs[0])->shape.dim[0], 3);
    release(&r);
}

static void a_given_value_must_fit(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    const int64_t two[] = {2};
    int32_t shape[] = {-1, 64};
    const struct onnx_value values[] = {{"s", {DTYPE_I32, {.rank = 1, .dim = {2}}, shape}, NULL}};
    wire_input(&g, "s", 7, 1, two);
    wire_node(&g, "Neg", "s", "y", NULL);
    wire_output(&g, "y");
    struct result r = import_with(&g, 13, (struct onnx_options){.values = values, .n_values = 1});
    assert_says(&r, STATUS_INVALID_ARGUMENT, "'s'");
    release(&r);
}

/* A file of a few bytes may not make the importer use gigabytes, nor hours. */
static void r14_small_files_get_little_memory(void **state)
{
    (void)state;
    const int64_t zero = 0, one = 1, many = 1000000000, single[] = {1},
                  large[] = {1LL << 14, 1LL << 15};
    struct wire range = {.n = 0}, eye = {.n = 0}, filled = {.n = 0};
    wire_constant(&range, "a", 7, 0, NULL, &zero, sizeof(zero));
    wire_constant(&range, "b", 7, 0, NULL, &many, sizeof(many));
    wire_constant(&range, "c", 7, 0, NULL, &one, sizeof(one));
    wire_node(&range, "Range", "a b c", "y", NULL);
    wire_output(&range, "y");
    struct result r = import(&range, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "1000000000 values");
    release(&r);
    wire_input(&eye, "x", 1, 2, large);
    wire_node(&eye, "EyeLike", "x", "y", NULL);
    wire_output(&eye, "y");
    r = import(&eye, 13);
    assert_says(&r, STATUS_RESOURCE_EXHAUSTED, "EyeLike");
    release(&r);
    wire_constant(&filled, "s", 7, 1, single, &many, sizeof(many));
    wire_node(&filled, "ConstantOfShape", "s", "y", NULL);
    wire_output(&filled, "y");
    r = import(&filled, 13);
    only_node(&r, IR_OP_EXPAND); /* not computed on the way */
    release(&r);
}

static void gemm_keeps_its_bias_where_it_is_one(void **state)
{
    (void)state;
    static const float w[12], row[4], full[8];
    const int64_t w_dims[] = {3, 4}, row_dims[] = {4}, full_dims[] = {2, 4};
    for (int is_row = 0; is_row < 2; is_row++) {
        struct wire g = {.n = 0};
        wire_input(&g, "x", 1, 2, pair);
        wire_constant(&g, "w", 1, 2, w_dims, w, sizeof(w));
        if (is_row)
            wire_constant(&g, "c", 1, 1, row_dims, row, sizeof(row));
        else
            wire_constant(&g, "c", 1, 2, full_dims, full, sizeof(full));
        wire_node(&g, "Gemm", "x w c", "y", NULL);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        assert_imported(&r);
        assert_int_equal(r.graph->n_nodes, is_row ? 1 : 2);
        assert_int_equal(ir_node(r.graph, 0)->n_inputs, is_row ? 3 : 2);
        release(&r);
    }
}

static void weights_stay_in_the_file(void **state)
{
    (void)state;
    struct wire g = {.n = 0}, model;
    const float w[6] = {1, 2, 3, 4, 5, 6};
    struct onnx_model *opened = NULL;
    struct ir_graph *graph = NULL;
    struct error err;
    wire_input(&g, "x", 1, 2, pair);
    wire_constant(&g, "w", 1, 2, pair, w, sizeof(w));
    wire_node(&g, "Add", "x w", "y", NULL);
    wire_output(&g, "y");
    wire_model(&model, &g, 13);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &err), STATUS_OK);
    struct onnx_options options = {.batch = 1};
    assert_int_equal(onnx_import(opened, &options, &graph, &err), STATUS_OK);
    onnx_close(opened); /* the graph keeps the model open */
    const struct ir_tensor *t = ir_tensor(graph, ir_node(graph, 0)->inputs[1]);
    assert_in_range((uintptr_t)t->data, (uintptr_t)model.data, (uintptr_t)model.data + model.n);
    assert_memory_equal(t->data, w, sizeof(w));
    ir_graph_free(graph);
}

/* "ai.onnx" is another name of "", in a file's opset and in a node's domain. */
static void the_default_domain_has_two_names(void **state)
{
    (void)state;
    struct wire graph = {.n = 0}, node = {.n = 0}, set = {.n = 0}, model = {.n = 0};
    struct onnx_model *opened = NULL;
    struct ir_graph *made = NULL;
    const struct onnx_options options = {.batch = 1};
    struct error err;
    wire_input(&graph, "x", 1, 2, pair);
    wire_text(&node, 1, "x");
    wire_text(&node, 2, "y");
    wire_text(&node, 4, "Gelu"); /* from opset 20 on */
    wire_text(&node, 7, "ai.onnx");
    wire_message(&graph, 1, &node);
    wire_output(&graph, "y");
    wire_int(&model, 1, 8);
    wire_message(&model, 7, &graph);
    wire_text(&set, 1, "ai.onnx");
    wire_int(&set, 2, 20);
    wire_message(&model, 8, &set);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &err), STATUS_OK);
    if (onnx_import(opened, &options, &made, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ir_node(made, 0)->op, IR_OP_UNARY);
    ir_graph_free(made);
    onnx_close(opened);
}

static void r4_outputs_are_counted(void **state)
{
    (void)state;
    struct wire g = {.n = 0};
    wire_input(&g, "x", 1, 2, pair);
    for (int i = 0; i <= IR_MAX_IO; i++) {
        const char name[] = {'y', (char)('0' + i), 0};
        wire_node(&g, "Neg", "x", name, NULL);
        wire_output(&g, name);
    }
    struct result r = import(&g, 13);
    assert_says(&r, STATUS_UNIMPLEMENTED, "more than 64 outputs");
    release(&r);
}

/* A dimension with a name and one below 0 have neither a value nor the meaning of a batch. */
static void open_dimensions_need_a_value(void **state)
{
    (void)state;
    struct wire g = relu_of(2, symbolic), negative = {.n = 0}, dim = {.n = 0}, shape = {.n = 0},
                tensor = {.n = 0}, outer = {.n = 0}, value = {.n = 0};
    struct result r = import_with(&g, 13, (struct onnx_options){.batch = 0});
    assert_says(&r, STATUS_INVALID_ARGUMENT, "dimension 0 ('n') needs a value: give --dim n=N");
    release(&r);
    const struct onnx_dim mistyped[] = {{"n", 4}, {"N", 4}};
    r = import_with(&g, 13, (struct onnx_options){.dims = mistyped, .n_dims = 2});
    assert_says(
        &r, STATUS_INVALID_ARGUMENT,
        "--dim N: no input has such a dimension; those with names: 'n' (did you mean 'n'?); "
        "others are reached as INPUT:AXIS");
    release(&r);
    wire_int(&dim, 1, 2);
    wire_message(&shape, 1, &dim);
    dim.n = 0;
    wire_int(&dim, 1, -1);
    wire_message(&shape, 1, &dim);
    wire_int(&tensor, 1, 1);
    wire_message(&tensor, 2, &shape);
    wire_message(&outer, 1, &tensor);
    wire_text(&value, 1, "x");
    wire_message(&value, 2, &outer);
    wire_message(&negative, 11, &value);
    wire_node(&negative, "Relu", "x", "y", NULL);
    wire_output(&negative, "y");
    r = import(&negative, 13);
    assert_says(&r, STATUS_INVALID_ARGUMENT, "dimension 1 needs a value");
    release(&r);
}

static void r14_lists_have_a_length(void **state)
{
    (void)state;
    static const int64_t zeros[300];
    struct wire g = {.n = 0}, attrs = {.n = 0}, concat = {.n = 0}, axis = {.n = 0};
    char names[1024] = "";
    wire_attr_ints(&attrs, "axes", 257, zeros);
    wire_input(&g, "x", 1, 2, pair);
    wire_node(&g, "Squeeze", "x", "y", &attrs);
    wire_output(&g, "y");
    struct result r = import(&g, 11);
    assert_says(&r, STATUS_UNIMPLEMENTED, "attribute 'axes' has 257 values, the limit is 256");
    release(&r);
    for (int i = 0; i < 257; i++)
        strcat(names, "x ");
    wire_attr_int(&axis, "axis", 0);
    wire_input(&concat, "x", 1, 2, pair);
    wire_node(&concat, "Concat", names, "y", &axis);
    wire_output(&concat, "y");
    struct wire model;
    struct onnx_model *opened = NULL;
    struct error err = {.text = ""};
    wire_model(&model, &concat, 13);
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "too many of a field"));
    assert_null(opened);
}

static void r14_models_have_a_size(void **state)
{
    (void)state;
    static const uint8_t byte = 0;
    struct onnx_model *opened = NULL;
    struct error err = {.text = ""};
    assert_int_equal(onnx_open_memory(&byte, 0, &opened, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "a model of 0 bytes"));
    /* refused before any byte is read */
    assert_int_equal(onnx_open_memory(&byte, ((size_t)1 << 31) + 1, &opened, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "a model of 2147483649 bytes"));
    assert_null(opened);
}

/* ConstantOfShape may fill with a value of any type. */
static void constants_of_shape_have_any_type(void **state)
{
    (void)state;
    static const struct {
        int type;
        size_t size;
        uint8_t one[8];
        enum dtype dtype;
    } rows[] = {
        {16, 2, {0x80, 0x3f}, DTYPE_BF16}, {10, 2, {0, 0x3c}, DTYPE_F16},
        {13, 8, {1}, DTYPE_U64},           {11, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, DTYPE_F64},
        {9, 1, {1}, DTYPE_BOOL},
    };
    const int64_t one[] = {1}, two[] = {2};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct wire g = {.n = 0}, tensor = {.n = 0}, attr = {.n = 0}, attrs = {.n = 0};
        wire_tensor(&tensor, "", rows[i].type, 1, one, rows[i].one, rows[i].size);
        wire_text(&attr, 1, "value");
        wire_message(&attr, 5, &tensor);
        wire_int(&attr, 20, 4);
        wire_message(&attrs, 5, &attr);
        wire_constant(&g, "s", 7, 1, one, two, sizeof(two[0]));
        wire_node(&g, "ConstantOfShape", "s", "y", &attrs);
        wire_output(&g, "y");
        struct result r = import(&g, 13);
        assert_imported(&r);
        const struct ir_tensor *y = ir_tensor(r.graph, r.graph->outputs[0]);
        assert_int_equal(y->dtype, rows[i].dtype);
        assert_int_equal(y->shape.dim[0], 2);
        release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_is_named_after_its_op_and_place),
        cmocka_unit_test(an_input_as_output_is_copied),
        cmocka_unit_test(one_tensor_under_two_output_names),
        cmocka_unit_test(the_first_dimension_is_the_batch),
        cmocka_unit_test(symbols_are_bound_by_name),
        cmocka_unit_test(batched_means_that_some_dimension_counts_instances),
        cmocka_unit_test(places_count_instances_unless_options_say_otherwise),
        cmocka_unit_test(refusals_name_op_node_and_opset),
        cmocka_unit_test(nodes_are_put_in_order),
        cmocka_unit_test(a_cycle_is_refused_by_a_node_of_it),
        cmocka_unit_test(r4_names_are_written_once),
        cmocka_unit_test(r4_inputs_are_counted),
        cmocka_unit_test(automatic_pads_are_resolved),
        cmocka_unit_test(r14_attributes_are_checked),
        cmocka_unit_test(r14_axes_are_below_the_rank),
        cmocka_unit_test(old_softmax_takes_all_dimensions_behind),
        cmocka_unit_test(attributes_and_operands_mean_the_same),
        cmocka_unit_test(shape_arithmetic_disappears),
        cmocka_unit_test(indices_of_all_elements_in_order_are_a_reshape),
        cmocka_unit_test(what_cannot_be_evaluated_stays_a_node),
        cmocka_unit_test(a_shape_operand_may_be_given),
        cmocka_unit_test(a_given_value_must_fit),
        cmocka_unit_test(r14_small_files_get_little_memory),
        cmocka_unit_test(gemm_keeps_its_bias_where_it_is_one),
        cmocka_unit_test(weights_stay_in_the_file),
        cmocka_unit_test(the_default_domain_has_two_names),
        cmocka_unit_test(r4_outputs_are_counted),
        cmocka_unit_test(open_dimensions_need_a_value),
        cmocka_unit_test(r14_lists_have_a_length),
        cmocka_unit_test(r14_models_have_a_size),
        cmocka_unit_test(constants_of_shape_have_any_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
