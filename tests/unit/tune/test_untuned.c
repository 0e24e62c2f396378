/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans without timing: no layer is left to a reference kernel that a faster one can run, one
 * layout goes through a network, small layers run on one thread and large ones on all.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/engine.h"
#include "engine/passes/pass.h"
#include "engine/tune/tune.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

static void tune(struct ir_graph *graph, uint32_t threads)
{
    struct device *device;
    struct error err = {0};
    const struct device_options device_options = {.threads = threads};
    if (engine_device_open("cpu", &device_options, &device, &err))
        fail_msg("%s", err.text);
    const struct tune_options options = {.device = device, .no_timing = true};
    if (tune_graph(graph, &options, NULL, &err))
        fail_msg("%s", err.text);
    engine_device_close(device);
}

static struct ir_graph *untuned(const char *text, uint32_t threads)
{
    struct ir_graph *graph = graph_parse(text);
    tune(graph, threads);
    return graph;
}

static const char residual_blocks[] =
    "input x FP32[1,3,64,64]\n"
    "a = conv \"stem\" (x, w0 FP32[32,3,3,3], b0 FP32[32]) pads=1,1,1,1 then relu\n"
    "b = conv \"wide\" (a, w1 FP32[64,32,1,1], b1 FP32[64]) then relu\n"
    "c = conv \"depthwise\" (b, w2 FP32[64,1,3,3], b2 FP32[64]) pads=1,1,1,1 group=64 then relu\n"
    "d = conv \"narrow\" (c, w3 FP32[32,64,1,1], b3 FP32[32]) then add(a)\n"
    "e = conv \"square\" (d, w4 FP32[64,32,3,3], b4 FP32[64]) pads=1,1,1,1 strides=2,2 then relu\n"
    "f = instance_norm \"norm\" (e, s FP32[64], t FP32[64]) group=8 then swish(1,0,0)\n"
    "g = pool \"pool\" (f) func=0 kernel=2,2 strides=2,2\n"
    "h = resize \"up\" (g) shape=1,64,32,32 scales=1.0,1.0,2.0,2.0 mode=1 coord=2\n"
    "i = conv \"last\" (h, w5 FP32[64,64,3,3], b5 FP32[64]) pads=1,1,1,1 then relu\n"
    "j = reduce \"mean\" (i) func=1 axes=2,3 keepdims=0\n"
    "y = matmul \"classes\" (j, m FP32[64,1000], n FP32[1000])\n"
    "output y\n";

static const char attention_block[] =
    "input x FP32[1,128,256]\n"
    "n = layer_norm \"norm\" (x, s FP32[256], t FP32[256]) axis=2\n"
    "q = matmul \"q\" (n, wq FP32[256,256], bq FP32[256])\n"
    "k = matmul \"k\" (n, wk FP32[256,256], bk FP32[256])\n"
    "v = matmul \"v\" (n, wv FP32[256,256], bv FP32[256])\n"
    "a = attention \"attention\" (q, k, v, -) heads=4 alpha=0.125\n"
    "o = matmul \"o\" (a, wo FP32[256,256], bo FP32[256]) then add(x)\n"
    "u = matmul \"up\" (o, wu FP32[256,1024], bu FP32[1024]) then gelu\n"
    "y = matmul \"down\" (u, wd FP32[1024,256], bd FP32[256]) then add(o)\n"
    "output y\n";

static void no_reference_kernels_and_few_reformats(void **state UNUSED)
{
    static const struct {
        const char *text;
        uint32_t reformats; /* at most; the input's comes for nothing in the first layer */
    } rows[] = {{residual_blocks, 2}, {attention_block, 0}};
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct ir_graph *graph = untuned(rows[r].text, threads);
            uint32_t reformats = 0;
            for (uint32_t i = 0; i < graph->n_nodes; i++) {
                const struct ir_node *node = ir_node(graph, i);
                reformats += node->op == IR_OP_REFORMAT;
                if (node->tactic && strcmp(node->tactic->name, "reference") == 0)
                    fail_msg("%s '%s' runs on the reference kernel", ir_op_name(node->op),
                             node->name);
            }
            assert_in_range(reformats, 0, rows[r].reformats);
            ir_graph_free(graph);
        }
}

/* As a model says it that was quantised with a scale for each activation. */
static const char quantised_block[] =
    "input x FP32[1,3,32,32]\n"
    "q0 = quantise \"q0\" (x, sx FP32[]=0.02, zx UINT8[]=128) to=2\n"
    "x0 = dequantise \"d0\" (q0, sx, zx) to=12\n"
    "a = conv \"stem\" (x0, w0 FP32[32,3,3,3], b0 FP32[32]) pads=1,1,1,1 then relu\n"
    "q1 = quantise \"q1\" (a, sa FP32[]=0.03) to=2\n"
    "x1 = dequantise \"d1\" (q1, sa) to=12\n"
    "b = conv \"depthwise\" (x1, w1 FP32[32,1,3,3], b1 FP32[32]) pads=1,1,1,1 group=32 then relu\n"
    "q2 = quantise \"q2\" (b, sb FP32[]=0.04) to=2\n"
    "x2 = dequantise \"d2\" (q2, sb) to=12\n"
    "c = conv \"narrow\" (x2, w2 FP32[32,32,1,1], b2 FP32[32])\n"
    "q3 = quantise \"q3\" (c, sc FP32[]=0.05, zx) to=2\n"
    "x3 = dequantise \"d3\" (q3, sc, zx) to=12\n"
    "d = binary \"sum\" (x3, x1) func=add\n"
    "q4 = quantise \"q4\" (d, sd FP32[]=0.06, zx) to=2\n"
    "x4 = dequantise \"d4\" (q4, sd, zx) to=12\n"
    "e = pool \"mean\" (x4) func=1 kernel=32,32\n"
    "q5 = quantise \"q5\" (e, se FP32[]=0.01, zx) to=2\n"
    "x5 = dequantise \"d5\" (q5, se, zx) to=12\n"
    "f = reshape \"flat\" (x5) shape=1,32\n"
    "g = matmul \"classes\" (f, w3 FP32[32,1000], b3 FP32[1000])\n"
    "q6 = quantise \"q6\" (g, sg FP32[]=0.02, zx) to=2\n"
    "y = dequantise \"d6\" (q6, sg, zx) to=12\n"
    "output y\n";

static bool has_byte(enum dtype dtype)
{
    return dtype == DTYPE_U8 || dtype == DTYPE_I8;
}

/* Products of bytes exist only on machines that get them right. */
static bool has_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni"); /* clang 14 has no name for avxvnni */
}

/* Of a quantised network only the way in and the way out are real numbers. */
static void a_quantised_network_stays_in_bytes(void **state UNUSED)
{
    if (!has_vnni())
        skip();
    struct ir_graph *graph = graph_parse(quantised_block);
    float step = 0.015F;
    const struct ir_scale scale = {.n = 1, .dtype = DTYPE_I8, .step = &step};
    uint32_t reals = 0;
    struct error err;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_op_has(ir_node(graph, i)->op, IR_TRAIT_HEAVY))
            ir_tensor(graph, ir_node(graph, i)->inputs[1])->range = ir_scale_add(graph, &scale);
    assert_int_equal(passes_ranges(graph, &err), STATUS_OK);
    tune(graph, 2);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        bool in = has_byte(ir_tensor(graph, node->inputs[0])->dtype);
        bool out = has_byte(ir_tensor(graph, node->outputs[0])->dtype);
        if (in && out)
            continue;
        reals++;
        if (ir_op_has(node->op, IR_TRAIT_HEAVY))
            fail_msg("'%s' runs on real numbers: %s", node->name, node->tactic->name);
    }
    assert_in_range(reals, 1, 3); /* there, and back */
    ir_graph_free(graph);
}

static bool runs_alone(const char *text)
{
    struct ir_graph *graph = untuned(text, 2);
    bool alone = strstr(ir_node(graph, 0)->tactic->name, "1 thread") != NULL;
    ir_graph_free(graph);
    return alone;
}

static void small_layers_run_on_one_thread(void **state UNUSED)
{
    assert_true(runs_alone("input x FP32[1,16]\n"
                           "y = matmul \"small\" (x, w FP32[16,16])\noutput y\n"));
    assert_false(runs_alone("input x FP32[512,1024]\n"
                            "y = matmul \"large\" (x, w FP32[1024,1024])\noutput y\n"));
    assert_true(runs_alone("input x FP32[100]\ny = unary \"small\" (x) func=relu\noutput y\n"));
    assert_false(runs_alone("input x FP32[8000000]\n"
                            "y = unary \"large\" (x) func=relu\noutput y\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_reference_kernels_and_few_reformats),
        cmocka_unit_test(small_layers_run_on_one_thread),
        cmocka_unit_test(a_quantised_network_stays_in_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
