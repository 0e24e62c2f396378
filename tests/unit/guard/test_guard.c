/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard holds back, on a simulated device (mock.h), which rounds as 16-bit types do, and
 * makes mistakes as a script says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine.h"
#include "tests/unit/guard/guarded.h"

/* --- tests --- */

static void a_healthy_network_keeps_its_type(void **state UNUSED)
{
    static const struct {
        enum precision precision;
        double least, most;
    } rows[] = {{PRECISION_F16, 1e-5, 2e-3}, {PRECISION_BF16, 1e-4, 2e-2}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *g = chain(2);
        tune_beside(g, rows[i].precision, NULL);
        assert_true(report.measured);
        assert_false(report.beyond);
        assert_int_equal(report.n_held, 0);
        assert_int_equal(report.n_layers, 3);
        assert_int_equal(report.samples, GUARD_SAMPLES);
        assert_int_equal(report.n_outputs, 1);
        assert_true(report.outputs[0].error > rows[i].least);
        assert_true(report.outputs[0].error < rows[i].most);
        assert_true(report.outputs[0].agreement > 0.7);
        for (uint32_t k = 0; k < 3; k++) {
            assert_true(report.layers[k].error > 1e-6 && report.layers[k].error < rows[i].most);
            assert_false(report.layers[k].held);
        }
        assert_true(report.layers[1].gain_ns > 0);
        assert_string_equal(heard, "");
        ir_graph_free(g);
        guard_free(guard);
        guard = NULL;
    }
}

static void fp32_alone_is_not_measured(void **state UNUSED)
{
    struct ir_graph *g = chain(2);
    tune_beside(g, PRECISION_F32, NULL);
    assert_false(report.measured);
    assert_int_equal(report.n_layers, 0);
    ir_graph_free(g);
}

static void a_wrong_layer_is_found_and_named(void **state UNUSED)
{
    static const float factors[] = {1.05F, 0, INFINITY, NAN};
    static const char *const names[] = {"first", "fc", "last"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (size_t k = 0; k < ARRAY_LEN(factors); k++) {
            struct ir_graph *g = chain(2);
            heard[0] = '\0';
            mock_script(device)->wrong_node = names[i];
            mock_script(device)->wrong_tactic = "FP16";
            mock_script(device)->factor = factors[k];
            tune_beside(g, PRECISION_F16, NULL);
            assert_int_equal(report.n_held, 1);
            assert_non_null(held(names[i]));
            assert_int_equal(held(names[i])->type, DTYPE_F16);
            if (isfinite(factors[k]))
                assert_float_equal(held(names[i])->error, fabs(1 - (double)factors[k]), 2e-3);
            else
                assert_true(isinf(held(names[i])->error));
            for (size_t n = 0; n < ARRAY_LEN(names); n++)
                assert_int_equal(type_of(g, names[n]), n == i ? DTYPE_F32 : DTYPE_F16);
            assert_true(report.outputs[0].error < 2e-3);
            assert_false(report.beyond);
            assert_non_null(strstr(heard, names[i]));
            assert_non_null(strstr(heard, isfinite(factors[k]) ? "error" : "not finite"));
            ir_graph_free(g);
            guard_free(guard);
            guard = NULL;
        }
}

/* 300 * 400 is beyond the largest FP16 number, and comes back to 0.3 behind it. */
static struct ir_graph *large(void)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = unary(g, "before", IR_UNARY_SIGMOID, net_input(g, (int64_t[]){4, 8, 0}));
    x = binary(g, "up", IR_BINARY_MUL, x, scalar(g, 400));
    x = binary(g, "further", IR_BINARY_MUL, x, scalar(g, 400));
    x = binary(g, "down", IR_BINARY_DIV, x, scalar(g, 60000));
    net_output(g, unary(g, "after", IR_UNARY_TANH, x));
    return g;
}

static void overflow_stays_in_fp32(void **state UNUSED)
{
    struct ir_graph *g = large();
    tune_beside(g, PRECISION_F16, NULL);
    assert_non_null(held("further"));
    assert_true(isinf(held("further")->error));
    assert_non_null(held("down"));
    assert_null(held("before"));
    assert_null(held("after"));
    assert_int_equal(type_of(g, "further"), DTYPE_F32);
    assert_int_equal(type_of(g, "before"), DTYPE_F16);
    assert_true(report.outputs[0].error < 0.02);
    ir_graph_free(g);
}

static void bf16_holds_large_numbers(void **state UNUSED)
{
    struct ir_graph *g = large();
    open_guard(NULL, 0.1, NULL);
    tune_beside(g, PRECISION_BF16, NULL);
    assert_int_equal(report.n_held, 0);
    assert_int_equal(type_of(g, "further"), DTYPE_BF16);
    ir_graph_free(g);
}

/* x / sqrt(x * x + epsilon), where squares and epsilon are below the least FP16 number. */
static void a_vanishing_epsilon_is_found(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x =
        binary(g, "small", IR_BINARY_MUL, net_input(g, (int64_t[]){4, 8, 0}), scalar(g, 1e-5F));
    uint32_t squares = binary(g, "squares", IR_BINARY_MUL, x, x);
    uint32_t sum = binary(g, "sum", IR_BINARY_ADD, squares, scalar(g, 1e-12F));
    uint32_t root = unary(g, "root", IR_UNARY_SQRT, sum);
    net_output(g, binary(g, "quotient", IR_BINARY_DIV, x, root));
    tune_beside(g, PRECISION_F16, NULL);
    assert_non_null(held("squares"));
    assert_non_null(held("sum"));
    assert_null(held("quotient"));
    assert_int_equal(type_of(g, "sum"), DTYPE_F32);
    assert_true(report.outputs[0].error < 0.02);
    ir_graph_free(g);
}

/* x / max(|x|, epsilon), as cosine attention has it, where rows of x are zero (padding): FP16 has
 * no such epsilon and makes 0 / 0 of them. The quotient in FP32 is not enough, since it reads what
 * the maximum has lost. */
static void norms_of_padding_stay_in_fp32(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    const struct shape column = {.rank = 2, .dim = {4, 1}};
    float *rows = arena_array(g->arena, 4, sizeof(*rows));
    for (int i = 0; i < 4; i++)
        rows[i] = i % 2 ? 1.5F : 0;
    uint32_t x = binary(g, "padded", IR_BINARY_MUL, net_input(g, (int64_t[]){4, 8, 0}),
                        ir_constant_add(g, "rows", DTYPE_F32, &column, rows));
    uint32_t norm = net_node(g, IR_OP_REDUCE, "norm", 1, &x);
    net_int(g, norm, IR_ATTR_FUNC, IR_REDUCE_L2);
    net_int(g, norm, IR_ATTR_AXES, 1);
    uint32_t least = binary(g, "least", IR_BINARY_MAX, net_infer(g, norm), scalar(g, 1e-12F));
    net_output(g, binary(g, "quotient", IR_BINARY_DIV, x, least));
    tune_beside(g, PRECISION_F16, NULL);
    assert_non_null(held("quotient"));
    assert_non_null(held("least"));
    assert_int_equal(type_of(g, "least"), DTYPE_F32);
    assert_int_equal(type_of(g, "quotient"), DTYPE_F32);
    assert_false(report.beyond);
    assert_true(report.outputs[0].error < 0.02);
    ir_graph_free(g);
}

/* No small loss that is allowed keeps a layer that is wrong by itself, or not finite. */
static void what_is_wrong_by_itself_is_held_at_any_loss(void **state UNUSED)
{
    struct ir_graph *g = large();
    mock_script(device)->wrong_node = "after";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.05F;
    open_sparing(0.02, 0);
    tune_beside(g, PRECISION_F16, NULL);
    assert_non_null(held("further"));
    assert_non_null(held("after"));
    assert_false(report.beyond);
    ir_graph_free(g);
}

static void a_bound_that_nothing_meets_gives_fp32(void **state UNUSED)
{
    struct ir_graph *g = chain(2);
    open_guard(NULL, 1e-9, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(report.n_held, 3);
    assert_false(report.beyond);
    assert_true(report.outputs[0].error == 0);
    assert_true(report.outputs[0].agreement == 1);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_int_equal(ir_node(g, i)->tactic->out[0].format.dtype, DTYPE_F32);
    ir_graph_free(g);
}

static void without_a_bound_it_only_measures(void **state UNUSED)
{
    struct ir_graph *g = chain(2);
    mock_script(device)->wrong_node = "fc";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = NAN;
    open_guard(NULL, GUARD_NO_BOUND, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(report.n_held, 0);
    assert_true(isinf(report.outputs[0].error));
    assert_int_equal(type_of(g, "fc"), DTYPE_F16);
    ir_graph_free(g);
}

static void what_has_no_other_kernel_stays_and_is_told(void **state UNUSED)
{
    struct ir_graph *g = chain(2);
    mock_script(device)->no_wide = true;
    mock_script(device)->wrong_node = "fc";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.5F;
    struct device *cpu = net_device(); /* the mock alone has candidates in one type */
    open_guard(cpu, 0.02, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(type_of(g, "fc"), DTYPE_F16);
    assert_int_equal(report.n_held, 0);
    assert_true(report.beyond);
    assert_true(report.outputs[0].error > 0.02);
    assert_non_null(strstr(heard, "nothing more can be held back"));
    ir_graph_free(g);
    engine_device_close(cpu);
}

static void the_host_runs_what_the_device_can_only_do_in_short_types(void **state UNUSED)
{
    struct ir_graph *g = chain(2);
    mock_script(device)->no_wide = true;
    mock_script(device)->wrong_node = "fc";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.5F;
    struct device *cpu = net_device();
    open_guard(cpu, 0.02, NULL);
    tune_beside(g, PRECISION_F16, cpu);
    assert_int_equal(type_of(g, "fc"), DTYPE_F32);
    assert_int_equal(type_of(g, "first"), DTYPE_F16);
    assert_false(report.beyond);
    assert_true(report.outputs[0].error < 0.02);
    ir_graph_free(g);
    engine_device_close(cpu);
}

/* It does so only if the device has nothing wider: here it has, if it is asked for FP32 alone. */
static void the_device_runs_what_it_offers_in_fp32_alone(void **state UNUSED)
{
    mock_script(device)->no_wide = mock_script(device)->wide_apart = true;
    mock_script(device)->wrong_node = "fc";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.5F;
    struct device *cpu = net_device();
    struct tune_cache *cache;
    uint32_t timed[2];
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    for (int again = 0; again < 2; again++) {
        struct ir_graph *g = chain(2);
        struct tune_report tuned = {0};
        open_guard(cpu, 0.02, NULL);
        const struct tune_options options = {device, cpu, .precision = PRECISION_F16,
                                             .judge = guard_judge(guard), .cache = cache};
        assert_int_equal(tune_graph(g, &options, &tuned, NULL), STATUS_OK);
        guard_read(guard, &report);
        assert_int_equal(type_of(g, "fc"), DTYPE_F32);
        for (uint32_t i = 0; i < g->n_nodes; i++)
            assert_string_equal(ir_node(g, i)->tactic->backend, "mock");
        assert_false(report.beyond);
        timed[again] = tuned.timed;
        ir_graph_free(g);
        guard_free(guard);
        guard = NULL;
    }
    assert_true(timed[0] > 0 && timed[1] == 0);
    tune_cache_free(cache);
    engine_device_close(cpu);
}

static void other_profiles_begin_with_what_is_held(void **state UNUSED)
{
    mock_script(device)->wrong_node = "fc";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 2;
    for (int64_t rows = 1; rows <= 16; rows *= 4) {
        struct ir_graph *g = chain(rows);
        if (!guard)
            open_guard(NULL, 0.02, NULL);
        guard_set_batch(guard, (uint32_t)rows);
        tune_beside(g, PRECISION_F16, NULL);
        assert_int_equal(report.n_held, 1);
        assert_int_equal(type_of(g, "fc"), DTYPE_F32);
        assert_int_equal(report.samples, MAX(rows, GUARD_SAMPLES));
        ir_graph_free(g);
    }
    assert_ptr_equal(strstr(strstr(heard, "held back") + 1, "held back"), NULL); /* told once */
}

/* Large profiles are measured only where a smaller one has left something open. */
static void what_is_known_is_not_measured_again(void **state UNUSED)
{
    const struct guard_options options = {
        .bound = 0.02, .most_loss = 1, .seed = 1, .many_bytes = 64 * 40 * 4, .log = &ear};
    assert_int_equal(guard_new(&options, &guard, NULL), STATUS_OK);
    for (int64_t rows = 1; rows <= 64; rows *= 8) {
        struct ir_graph *g = chain(rows);
        guard_set_batch(guard, (uint32_t)rows);
        tune_beside(g, PRECISION_F16, NULL);
        assert_int_equal(type_of(g, "fc"), DTYPE_F16);
        assert_int_equal(report.samples, rows < 64 ? MAX(rows, GUARD_SAMPLES) : 8);
        ir_graph_free(g);
    }
    struct ir_graph *g = chain(64);
    ir_node(g, 1)->name = "fd"; /* another layer */
    guard_set_batch(guard, 64);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(report.samples, 64);
    ir_graph_free(g);
}

/* Two layers that one kernel runs are as good as apart. */
static void what_is_joined_is_known_by_its_parts(void **state UNUSED)
{
    const struct guard_options options = {
        .bound = 0.02, .most_loss = 1, .seed = 1, .many_bytes = 64 * 40 * 4, .log = &ear};
    static const struct {
        const char *name;
        uint32_t samples;
    } rows[] = {{"first + fc", 4}, {"fc + last", 4}, {"fc + fd", 64}};
    assert_int_equal(guard_new(&options, &guard, NULL), STATUS_OK);
    struct ir_graph *g = chain(1);
    tune_beside(g, PRECISION_F16, NULL);
    ir_graph_free(g);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        g = chain(64);
        ir_node(g, 1)->name = rows[i].name;
        guard_set_batch(guard, 64);
        tune_beside(g, PRECISION_F16, NULL);
        assert_int_equal(report.samples, rows[i].samples);
        ir_graph_free(g);
    }
}

/* --- 8 bits --- */

/* What reads or writes 8 bits is fastest, then 16 bits. */
static uint64_t bytes_are_fast(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic UNUSED)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    if (node->op == IR_OP_REFORMAT)
        return 100;
    if (x->scale || y->scale)
        return 500;
    return 1000 * (dtype_size(x->dtype) + dtype_size(y->dtype));
}

static void set_range(struct ir_graph *g, uint32_t tensor, float largest)
{
    const float step = largest / 127;
    const struct ir_scale scale = {.n = 1, .step = &step};
    ir_tensor(g, tensor)->range = ir_scale_add(g, &scale);
}

/* x -> first -> fc -> last -> y, where what `first` makes may be stored in 8 bits. */
static struct ir_graph *ranged(float largest)
{
    struct ir_graph *g = chain(4);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!strcmp(ir_node(g, i)->name, "first"))
            set_range(g, ir_node(g, i)->outputs[0], largest);
        else if (!strcmp(ir_node(g, i)->name, "fc"))
            set_range(g, ir_node(g, i)->inputs[1], 1);
    mock_script(device)->bytes = true;
    mock_script(device)->cost = bytes_are_fast;
    return g;
}

static void a_range_that_fits_gives_8_bits(void **state UNUSED)
{
    struct ir_graph *g = ranged(1);
    open_guard(NULL, 0.1, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(report.n_held, 0);
    assert_int_equal(type_of(g, "first"), DTYPE_I8);
    assert_true(report.outputs[0].error > 1e-4 && report.outputs[0].error < 0.02);
    ir_graph_free(g);
}

static void a_range_that_is_too_small_costs_the_8_bits_alone(void **state UNUSED)
{
    struct ir_graph *g = ranged(0.1F);
    open_guard(NULL, 0.1, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(report.n_held, 2);
    assert_non_null(held("first"));
    assert_non_null(held("fc"));
    assert_int_equal(held("first")->type, DTYPE_I8);
    assert_int_equal(held("fc")->type, DTYPE_I8);
    assert_true(held("fc")->error > 0.5);
    assert_int_equal(type_of(g, "first"), DTYPE_F16);
    assert_int_equal(type_of(g, "fc"), DTYPE_F16);
    ir_graph_free(g);
}

/* x -> first -> quantise -> dequantise -> last -> y: a coarse scale, which is the model's own. */
static void what_the_model_rounds_itself_is_no_error(void **state UNUSED)
{
    static const float step = 0.3F;
    const struct shape one = {.rank = 0};
    struct ir_graph *g = ir_graph_new();
    uint32_t x = unary(g, "first", IR_UNARY_TANH, net_input(g, (int64_t[]){4, 32, 0}));
    uint32_t scale = ir_constant_add(g, "scale", DTYPE_F32, &one, &step);
    uint32_t to = net_node(g, IR_OP_QUANTIZE, "to", 2, (uint32_t[]){x, scale});
    net_int(g, to, IR_ATTR_TO, DTYPE_I8);
    uint32_t q = net_infer(g, to);
    uint32_t from = net_node(g, IR_OP_DEQUANTIZE, "from", 2, (uint32_t[]){q, scale});
    net_int(g, from, IR_ATTR_TO, DTYPE_F32);
    uint32_t y = net_infer(g, from);
    ir_tensor(g, x)->range = ir_quant_scale(g, ir_node(g, to));
    ir_tensor(g, y)->range = ir_quant_scale(g, ir_node(g, from));
    assert_int_not_equal(ir_tensor(g, x)->range, IR_NO_SCALE);
    net_output(g, unary(g, "last", IR_UNARY_SIGMOID, y));
    mock_script(device)->bytes = true;
    mock_script(device)->cost = bytes_are_fast;
    tune_beside(g, PRECISION_F32, NULL);
    assert_true(report.measured);
    assert_int_equal(type_of(g, "first"), DTYPE_I8);
    assert_int_equal(report.n_held, 0);
    assert_true(report.outputs[0].error < 1e-5);
    ir_graph_free(g);
}

/* --- decisions --- */

/* The largest of numbers that are nearly equal: rounding may choose another one, but then the rest
 * of the model would do the same with it. */
static void decisions_are_fp32s(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_input(g, (int64_t[]){4, 64, 0});
    x = binary(g, "nearly", IR_BINARY_MUL, x, scalar(g, 1e-4F));
    x = binary(g, "equal", IR_BINARY_ADD, x, scalar(g, 1));
    uint32_t node = net_node(g, IR_OP_UNARY, "floor", 1, &x);
    net_int(g, node, IR_ATTR_FUNC, IR_UNARY_FLOOR);
    net_output(g, net_infer(g, node));
    tune_beside(g, PRECISION_F16, NULL);
    assert_true(report.measured);
    assert_null(held("nearly"));
    assert_null(held("equal"));
    assert_int_equal(type_of(g, "equal"), DTYPE_F16);
    assert_true(report.outputs[0].error < 1e-3); /* of what was decided on */
    ir_graph_free(g);
}

/* A step of the model's own rounding becomes a large difference behind it, as it does between any
 * two programs that run the model. */
static void the_models_own_rounding_is_fp32s(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_input(g, (int64_t[]){4, 64, 0}), step = scalar(g, 0.02F);
    x = unary(g, "before", IR_UNARY_SIN, x);
    uint32_t q = net_node(g, IR_OP_QUANTIZE, "q", 2, (uint32_t[]){x, step});
    net_int(g, q, IR_ATTR_TO, DTYPE_I8);
    uint32_t y = net_infer(g, q);
    uint32_t d = net_node(g, IR_OP_DEQUANTIZE, "d", 2, (uint32_t[]){y, step});
    net_int(g, d, IR_ATTR_TO, DTYPE_F32);
    y = binary(g, "much", IR_BINARY_MUL, net_infer(g, d), scalar(g, 64));
    net_output(g, unary(g, "more", IR_UNARY_SIN, y));
    tune_beside(g, PRECISION_F16, NULL);
    assert_true(report.measured);
    assert_null(held("before"));
    assert_int_equal(type_of(g, "before"), DTYPE_F16);
    assert_true(report.outputs[0].error < 2e-2);
    ir_graph_free(g);
}

/* Integers of a kernel that rounds otherwise are an error that the outputs behind them have, and no
 * others, though what comes behind goes on with fp32's. */
static void roundings_are_shown(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_input(g, (int64_t[]){4, 64, 0}), step = scalar(g, 0.02F);
    uint32_t apart = unary(g, "apart", IR_UNARY_NEG, x);
    x = unary(g, "before", IR_UNARY_SIN, x);
    uint32_t q = net_node(g, IR_OP_QUANTIZE, "q", 2, (uint32_t[]){x, step});
    net_int(g, q, IR_ATTR_TO, DTYPE_I8);
    uint32_t y = net_infer(g, q);
    uint32_t d = net_node(g, IR_OP_DEQUANTIZE, "d", 2, (uint32_t[]){y, step});
    net_int(g, d, IR_ATTR_TO, DTYPE_F32);
    net_output(g, net_infer(g, d));
    net_output(g, apart);
    mock_script(device)->wrong_node = "before";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.01F;
    open_guard(NULL, GUARD_NO_BOUND, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(type_of(g, "before"), DTYPE_F16);
    assert_true(report.outputs[0].error > 5e-3 && report.outputs[0].error < 5e-2);
    assert_true(report.outputs[1].error < 1e-3);
    ir_graph_free(g);
}

/* --- samples --- */

static uint32_t reads;

static enum status read_ones(void *user, const struct ir_graph *graph, uint32_t batch,
                             uint32_t index, void *const *to, struct error *err)
{
    size_t n = 0;
    assert_int_equal(index, reads++);
    assert_int_equal(batch, 2);
    if (user)
        return error_set(err, STATUS_INVALID_ARGUMENT, "no such data");
    assert_true(shape_elements(&ir_tensor(graph, graph->inputs[0])->shape, &n));
    for (size_t i = 0; i < n; i++)
        ((float *)to[0])[i] = 1;
    return STATUS_OK;
}

static void samples_come_from_the_source(void **state UNUSED)
{
    const struct guard_source source = {.read = read_ones};
    struct ir_graph *g = chain(2);
    reads = 0;
    open_guard(NULL, 0.02, &source);
    guard_set_batch(guard, 2);
    tune_beside(g, PRECISION_F16, NULL);
    assert_int_equal(reads, GUARD_SAMPLES / 2);
    assert_int_equal(report.samples, GUARD_SAMPLES);
    ir_graph_free(g);
}

static void bad_samples_are_an_error(void **state UNUSED)
{
    const struct guard_source source = {.read = read_ones, .user = device};
    struct ir_graph *g = chain(2);
    struct error err;
    reads = 0;
    open_guard(NULL, 0.02, &source);
    guard_set_batch(guard, 2);
    const struct tune_options options = {
        .device = device, .precision = PRECISION_F16, .judge = guard_judge(guard), .seed = 3};
    assert_int_equal(tune_graph(g, &options, NULL, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "no such data"));
    ir_graph_free(g);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_healthy_network_keeps_its_type),
        TEST(fp32_alone_is_not_measured),
        TEST(a_wrong_layer_is_found_and_named),
        TEST(overflow_stays_in_fp32),
        TEST(bf16_holds_large_numbers),
        TEST(a_vanishing_epsilon_is_found),
        TEST(norms_of_padding_stay_in_fp32),
        TEST(what_is_wrong_by_itself_is_held_at_any_loss),
        TEST(a_bound_that_nothing_meets_gives_fp32),
        TEST(without_a_bound_it_only_measures),
        TEST(what_has_no_other_kernel_stays_and_is_told),
        TEST(the_host_runs_what_the_device_can_only_do_in_short_types),
        TEST(the_device_runs_what_it_offers_in_fp32_alone),
        TEST(other_profiles_begin_with_what_is_held),
        TEST(what_is_known_is_not_measured_again),
        TEST(what_is_joined_is_known_by_its_parts),
        TEST(a_range_that_fits_gives_8_bits),
        TEST(a_range_that_is_too_small_costs_the_8_bits_alone),
        TEST(what_the_model_rounds_itself_is_no_error),
        TEST(decisions_are_fp32s),
        TEST(the_models_own_rounding_is_fp32s),
        TEST(roundings_are_shown),
        TEST(samples_come_from_the_source),
        TEST(bad_samples_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
