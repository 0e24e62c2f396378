/* SPDX-License-Identifier: Apache-2.0 */
/* What a fused node makes in parts, beside the reference's one kernel for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "engine/guard/internal.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"

static struct device *device;

static int set_up(void **state UNUSED)
{
    const struct device_options options = {.threads = 1};
    return engine_device_open("cpu", &options, &device, NULL);
}

static int tear_down(void **state UNUSED)
{
    engine_device_close(device);
    return 0;
}

/* z = relu(pair(x, w, x2, w2 at `strides` [, bias])) * m */
static struct ir_graph *pair(bool biased, const int64_t *strides)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t in[5] = {net_input(g, (int64_t[]){2, 5, 4, 3, 0}),
                      net_constant(g, (int64_t[]){7, 5, 1, 1, 0}),
                      net_input(g, (int64_t[]){2, 9, 3 * strides[0] + 1, 2 * strides[1] + 1, 0}),
                      net_constant(g, (int64_t[]){7, 9, 1, 1, 0}), IR_NONE};
    uint32_t m = net_input(g, (int64_t[]){2, 7, 4, 3, 0});
    if (biased)
        in[4] = net_constant(g, (int64_t[]){7, 0});
    uint32_t node = net_node(g, IR_OP_CONV_PAIR, "pair", biased ? 5 : 4, in);
    net_ints(g, node, IR_ATTR_STRIDES, 2, strides);
    uint32_t y = net_infer(g, node);
    net_unary(g, node, IR_UNARY_RELU, 0, 0);
    net_binary(g, node, IR_BINARY_MUL, m);
    net_output(g, y);
    return g;
}

enum { RUNS = 2 };

/* What a run reads, and what the reference makes of it. */
struct sample {
    struct ir_graph *graph;
    const struct ir_node *node;
    void **values, *wanted[IR_MAX_OUTPUTS];
    struct layer_run run;
};

static void sample_init(struct sample *s, struct ir_graph *g, uint64_t seed)
{
    const void *in[IR_MAX_INPUTS] = {NULL};
    struct error err;
    *s = (struct sample){.graph = g, .node = ir_node(g, 0)};
    s->values = calloc(g->n_tensors, sizeof(void *));
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(g, g->inputs[i]);
        s->values[g->inputs[i]] = value_new(t);
        if (!input_fill(g, i, seed, s->values[g->inputs[i]]))
            fail();
    }
    for (uint32_t i = 0; i < s->node->n_inputs; i++) {
        if (s->node->inputs[i] == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(g, s->node->inputs[i]);
        in[i] = ir_tensor_is_constant(t) ? t->data : s->values[s->node->inputs[i]];
    }
    s->run.from = s->values;
    for (uint32_t i = 0; i < s->node->n_outputs; i++) {
        s->wanted[i] = value_new(ir_tensor(g, s->node->outputs[i]));
        s->run.to[i] = value_new(ir_tensor(g, s->node->outputs[i]));
    }
    if (cpu_eval_node(NULL, g, s->node, in, s->wanted, &err))
        fail_msg("%s", err.text);
}

static void sample_check(struct sample *s)
{
    for (uint32_t i = 0; i < s->node->n_outputs; i++) {
        struct value_error sum = {0};
        const struct ir_tensor *y = ir_tensor(s->graph, s->node->outputs[i]);
        assert_true(value_compare(y, s->run.to[i], s->wanted[i], &sum));
        assert_true(sum.norm > 1 && value_relative(&sum) < 1e-6);
        free(s->wanted[i]);
        free(s->run.to[i]);
    }
    for (uint32_t i = 0; i < s->graph->n_inputs; i++)
        free(s->values[s->graph->inputs[i]]);
    free(s->values);
}

/* Runs the graph's node in parts, and the reference's kernel for it. */
static void check(struct ir_graph *g)
{
    struct layer_machine machine = {.device = device};
    struct sample samples[RUNS];
    struct layer_run runs[RUNS];
    struct error err;
    for (uint32_t k = 0; k < RUNS; k++) {
        sample_init(&samples[k], g, k + 1);
        runs[k] = samples[k].run;
    }
    assert_true(parts_has(ir_node(g, 0)));
    if (layer_run_wide(&machine, g, ir_node(g, 0), runs, RUNS, &err))
        fail_msg("%s", err.text);
    layer_machine_close(&machine);
    for (uint32_t k = 0; k < RUNS; k++)
        sample_check(&samples[k]);
    ir_graph_free(g);
}

static void a_sum_of_two_convolutions(void **state UNUSED)
{
    check(pair(true, (int64_t[]){1, 1}));
    check(pair(true, (int64_t[]){2, 3}));
    check(pair(false, (int64_t[]){2, 2}));
}

enum { SECOND = 1, BIASED = 2, RESIDUAL = 4, CHAIN_FORMS = 8 };

/* y = f(conv(x, w) [+ conv(x2, w2 at steps)] [+ b] [+ z]), t = g(conv(y, v) [+ a]) */
static struct ir_graph *chain(uint32_t form, const int64_t *funcs)
{
    static const int64_t strides[] = {2, 3};
    struct ir_graph *g = ir_graph_new();
    uint32_t in[IR_CHAIN_INPUTS], n = IR_CHAIN_INPUTS;
    for (uint32_t i = 0; i < n; i++)
        in[i] = IR_NONE;
    in[0] = net_input(g, (int64_t[]){2, 5, 4, 3, 0});
    in[1] = net_constant(g, (int64_t[]){7, 5, 1, 1, 0});
    in[IR_CHAIN_NEXT] = net_constant(g, (int64_t[]){6, 7, 1, 1, 0});
    if (form & SECOND) {
        in[IR_CHAIN_X2] = net_input(g, (int64_t[]){2, 9, 7, 8, 0});
        in[IR_CHAIN_W2] = net_constant(g, (int64_t[]){7, 9, 1, 1, 0});
    }
    if (form & BIASED) {
        in[IR_CHAIN_BIAS] = net_constant(g, (int64_t[]){7, 0});
        in[IR_CHAIN_NEXT_BIAS] = net_constant(g, (int64_t[]){6, 0});
    }
    if (form & RESIDUAL)
        in[IR_CHAIN_RESIDUAL] = net_input(g, (int64_t[]){2, 7, 4, 3, 0});
    while (in[n - 1] == IR_NONE)
        n--;
    uint32_t node = net_node(g, IR_OP_CONV_CHAIN, "chain", n, in);
    net_ints(g, node, IR_ATTR_FUNCS, 2, funcs);
    if (form & SECOND)
        net_ints(g, node, IR_ATTR_STRIDES, 2, strides);
    net_output(g, net_infer(g, node));
    net_output(g, ir_node(g, node)->outputs[1]);
    return g;
}

/* Both results are the fused node's. */
static void two_convolutions_in_a_row(void **state UNUSED)
{
    for (uint32_t form = 0; form < CHAIN_FORMS; form++)
        for (int64_t funcs = 0; funcs < 4; funcs++)
            check(chain(form, (int64_t[]){funcs & 1 ? IR_UNARY_RELU : IR_UNARY_IDENTITY,
                                          funcs & 2 ? IR_UNARY_RELU : IR_UNARY_IDENTITY}));
}

/* relu(pool(conv(x, w [, bias]))) of images of FP32, or of bytes */
static struct ir_graph *stem(bool biased, enum dtype type)
{
    static const int64_t strides[] = {2, 2}, pads[] = {3, 2, 1, 3};
    struct ir_graph *g = ir_graph_new();
    const struct shape images = {.rank = 4, .dim = {2, 3, 21, 18}};
    uint32_t in[3] = {ir_tensor_add(g, "x", type, &images),
                      net_constant(g, (int64_t[]){5, 3, 7, 7, 0}), IR_NONE};
    if (biased)
        in[2] = net_constant(g, (int64_t[]){5, 0});
    g->inputs[g->n_inputs++] = in[0];
    uint32_t node = net_node(g, IR_OP_CONV_POOL, "stem", biased ? 3 : 2, in);
    net_ints(g, node, IR_ATTR_STRIDES, 2, strides);
    net_ints(g, node, IR_ATTR_PADS, 4, pads);
    uint32_t y = net_infer(g, node);
    net_unary(g, node, IR_UNARY_RELU, 0, 0);
    net_output(g, y);
    return g;
}

static void a_convolution_and_its_pool(void **state UNUSED)
{
    check(stem(true, DTYPE_F32));
    check(stem(false, DTYPE_F32));
    check(stem(true, DTYPE_U8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sum_of_two_convolutions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_convolution_and_its_pool, set_up, tear_down),
        cmocka_unit_test_setup_teardown(two_convolutions_in_a_row, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
