/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fusion must not cost a node its fast kernel: whatever oneDNN runs bare, it runs with the
 * epilogue that the passes gave it. Otherwise a convolution would fall to the reference kernels
 * because of the activation behind it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/random_graph.h"

static enum status count_fast(void *user, const struct tactic *tactic, struct error *err)
{
    uint32_t *n = user;
    (void)err;
    *n += strncmp(tactic->name, "onednn", 6) == 0;
    return STATUS_OK;
}

static uint32_t fast_ways(struct device *device, const struct ir_graph *g,
                          const struct ir_node *node)
{
    uint32_t n = 0;
    struct error err = {0};
    if (backend_cpu.candidates(device, g, node, PRECISION_F32, count_fast, &n, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return n;
}

/* Number of nodes with an epilogue. */
static uint32_t check_graph(struct device *device, struct ir_graph *g, const char *what)
{
    struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
    uint32_t fused = 0;
    assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_node *node = ir_node(g, i);
        if (!node->n_epilogue)
            continue;
        struct ir_node bare = *node;
        bare.n_inputs = ir_node_own_inputs(node);
        bare.n_epilogue = 0;
        fused++;
        if (fast_ways(device, g, &bare) && !fast_ways(device, g, node)) {
            char *text = ir_graph_text(g);
            fail_msg("%s: %s has lost its kernel in\n%s", what, node->name, text);
        }
    }
    ir_graph_free(g);
    return fused;
}

static int open_cpu(void **state)
{
    static struct device *device;
    struct device_options options = {.threads = 1};
    struct error err = {0};
    if (backend_cpu.device_open(&options, &device, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    *state = device;
    return 0;
}

static int close_cpu(void **state)
{
    backend_cpu.device_close(*state);
    return 0;
}

/* Every function, and one of the usual activations after it, behind a convolution, a product and a
 * sum. */
static void activations(void **state)
{
    static const char *const hosts[] = {
        "input x FP32[2,16,8,8]\nc = conv \"host\" (x, w FP32[32,16,3,3], b FP32[32])\n",
        "input x FP32[2,16,8,8]\nc = deconv \"host\" (x, w FP32[16,32,2,2])\n",
        "input x FP32[2,6,16]\nc = matmul \"host\" (x, w FP32[16,32], b FP32[32])\n",
        "input x FP32[2,16,8,8]\ninput z FP32[2,16,8,8]\nc = binary \"host\" (x, z) func=add\n",
    };
    static const int seconds[] = {IR_UNARY_RELU,   IR_UNARY_LEAKY_RELU,   IR_UNARY_CLIP,
                                  IR_UNARY_LINEAR, IR_UNARY_HARD_SIGMOID, IR_UNARY_TANH};
    for (size_t i = 0; i < ARRAY_LEN(hosts) * ARRAY_LEN(seconds) * IR_UNARY_COUNT_; i++) {
        char text[512];
        const char *host = hosts[i % ARRAY_LEN(hosts)];
        int a = (int)(i / ARRAY_LEN(hosts) / ARRAY_LEN(seconds));
        int b = seconds[i / ARRAY_LEN(hosts) % ARRAY_LEN(seconds)];
        if (a == IR_UNARY_NOT || a == IR_UNARY_IS_NAN || a == IR_UNARY_IS_INF ||
            a == IR_UNARY_BITWISE_NOT)
            continue; /* not of numbers, or not to numbers */
        snprintf(text, sizeof(text),
                 "%sd = unary \"%s\" (c) func=%d alpha=0.5 beta=0.75\n"
                 "y = unary \"%s\" (d) func=%d alpha=0.25 beta=0.5\noutput y\n",
                 host, ir_unary_name((enum ir_unary)a), a, ir_unary_name((enum ir_unary)b), b);
        check_graph(*state, graph_parse(text), text);
    }
}

/* Every binary function with every operand, on both sides. */
static void operands(void **state)
{
    static const struct {
        const char *host;
        const char *operands[6];
    } rows[] = {
        {"input x FP32[2,16,8,8]\nc = conv \"host\" (x, w FP32[32,16,1,1])\n",
         {"[2,32,8,8]", "[1,32,8,8]", "[32,1,1]", "[1]", "[8]", "[]"}},
        {"input x FP32[2,6,16]\nc = matmul \"host\" (x, w FP32[16,32])\n",
         {"[2,6,32]", "[1,6,32]", "[32]", "[1,1,1]", "[6,1]", "[]"}},
        {"input x FP32[2,3,6,16]\ninput v FP32[2,3,16,32]\nc = matmul \"host\" (x, v)\n",
         {"[2,3,6,32]", "[1,3,6,32]", "[32]", "[2,1,1,32]", "[3,1,1]", "[]"}},
        {"input x FP32[2,32,8,8]\ninput v FP32[2,32,8,8]\nc = binary \"host\" (x, v) func=mul\n",
         {"[2,32,8,8]", "[1,32,8,8]", "[32,1,1]", "[1]", "[8]", "[]"}},
    };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (size_t o = 0; o < ARRAY_LEN(rows[r].operands); o++) {
            for (int func = 0; func <= IR_BINARY_MOD; func++) {
                for (int side = 0; side < 2; side++) {
                    char text[512];
                    snprintf(text, sizeof(text),
                             "input z FP32%s\n%sy = binary \"%s\" (%s) func=%d\noutput y\n",
                             rows[r].operands[o], rows[r].host,
                             ir_binary_name((enum ir_binary)func), side ? "z, c" : "c, z", func);
                    check_graph(*state, graph_parse(text), text);
                }
            }
        }
    }
}

static void random_graphs(void **state)
{
    uint32_t fused = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        char what[32];
        snprintf(what, sizeof(what), "seed %u", (unsigned)seed);
        fused += check_graph(*state, random_convnet(seed), what);
        fused += check_graph(*state, random_transformer(seed), what);
    }
    assert_true(fused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),
        cmocka_unit_test(operands),
        cmocka_unit_test(random_graphs),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
