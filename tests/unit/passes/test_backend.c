/* SPDX-License-Identifier: Apache-2.0 */
/* Every epilogue that the passes can make, on every host; see kept.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/kept.h"
#include "tests/unit/passes/parse.h"

/* Number of nodes with an epilogue. */
static uint32_t check_graph(struct device *device, const char *text)
{
    struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
    struct error err = {0};
    uint32_t fused = 0;
    struct ir_graph *g = graph_parse(text);
    assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
    if (kept_check(device, g, KEPT_BY_ONEDNN, &fused, &err))
        fail_msg("%s\n%s", err.text, ir_graph_text(g));
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
    uint32_t fused = 0;
    for (size_t i = 0; i < ARRAY_LEN(hosts) * ARRAY_LEN(seconds) * IR_UNARY_COUNT_; i++) {
        char text[512];
        const char *host = hosts[i % ARRAY_LEN(hosts)];
        int a = (int)(i / ARRAY_LEN(hosts) / ARRAY_LEN(seconds));
        int b = seconds[i / ARRAY_LEN(hosts) % ARRAY_LEN(seconds)];
        if (a == IR_UNARY_NOT || a == IR_UNARY_IS_NAN || a == IR_UNARY_IS_INF ||
            a == IR_UNARY_BITWISE_NOT)
            continue; /* functions that do not map numbers to numbers */
        snprintf(text, sizeof(text),
                 "%sd = unary \"%s\" (c) func=%d alpha=0.5 beta=0.75\n"
                 "y = unary \"%s\" (d) func=%d alpha=0.25 beta=0.5\noutput y\n",
                 host, ir_unary_name((enum ir_unary)a), a, ir_unary_name((enum ir_unary)b), b);
        fused += check_graph(*state, text);
    }
    assert_true(fused > 100);
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
    uint32_t fused = 0;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        for (size_t o = 0; o < ARRAY_LEN(rows[r].operands); o++) {
            for (int func = 0; func <= IR_BINARY_MOD; func++) {
                for (int side = 0; side < 2; side++) {
                    char text[512];
                    snprintf(text, sizeof(text),
                             "input z FP32%s\n%sy = binary \"%s\" (%s) func=%d\noutput y\n",
                             rows[r].operands[o], rows[r].host,
                             ir_binary_name((enum ir_binary)func), side ? "z, c" : "c, z", func);
                    fused += check_graph(*state, text);
                }
            }
        }
    }
    assert_true(fused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),
        cmocka_unit_test(operands),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
