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

static void check(bool biased, const int64_t *strides)
{
    enum { RUNS = 2 };
    struct ir_graph *g = pair(biased, strides);
    const struct ir_node *node = ir_node(g, 0);
    const struct ir_tensor *y = ir_tensor(g, node->outputs[0]);
    void **values[RUNS], *wanted[RUNS];
    struct layer_run runs[RUNS];
    struct error err;
    for (uint32_t k = 0; k < RUNS; k++) {
        const void *in[IR_MAX_INPUTS] = {NULL};
        values[k] = calloc(g->n_tensors, sizeof(void *));
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            const struct ir_tensor *t = ir_tensor(g, g->inputs[i]);
            values[k][g->inputs[i]] = value_new(t);
            net_input_fill(t, i + k * g->n_inputs, values[k][g->inputs[i]]);
        }
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            const struct ir_tensor *t = ir_tensor(g, node->inputs[i]);
            in[i] = ir_tensor_is_constant(t) ? t->data : values[k][node->inputs[i]];
        }
        wanted[k] = value_new(y);
        runs[k] = (struct layer_run){.from = values[k], .to = {value_new(y)}};
        assert_int_equal(cpu_eval_node(NULL, g, node, in, &wanted[k], &err), STATUS_OK);
    }
    assert_true(parts_has(node));
    struct layer_machine machine = {.device = device};
    if (layer_run_wide(&machine, g, node, runs, RUNS, &err))
        fail_msg("%s", err.text);
    layer_machine_close(&machine);
    for (uint32_t k = 0; k < RUNS; k++) {
        struct value_error sum = {0};
        assert_true(value_compare(y, runs[k].to[0], wanted[k], &sum));
        assert_true(sum.norm > 1 && value_relative(&sum) < 1e-6);
        for (uint32_t i = 0; i < g->n_inputs; i++)
            free(values[k][g->inputs[i]]);
        free(values[k]);
        free(wanted[k]);
        free(runs[k].to[0]);
    }
    ir_graph_free(g);
}

static void a_sum_of_two_convolutions(void **state UNUSED)
{
    check(true, (int64_t[]){1, 1});
    check(true, (int64_t[]){2, 3});
    check(false, (int64_t[]){2, 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sum_of_two_convolutions, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
