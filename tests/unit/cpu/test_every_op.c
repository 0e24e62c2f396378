/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One small node of every op runs through the reference: an op without a case, a kernel or the
 * scratch that its kernel needs fails here. The tests of each family check the values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/plugin/sample.h"

/* The line that makes y. Indices and lengths are constants written "=0", one for each such operand
 * in order, so that a test can put in another value. */
static const char *const cases[IR_OP_COUNT_] = {
    [IR_OP_CONV] = "y = conv \"n\" (x FP32[1,2,3,3], w FP32[2,2,2,2])",
    [IR_OP_DECONV] = "y = deconv \"n\" (x FP32[1,2,3,3], w FP32[2,2,2,2])",
    [IR_OP_MATMUL] = "y = matmul \"n\" (x FP32[2,3], w FP32[3,2], b FP32[2])",
    [IR_OP_POOL] = "y, i = pool \"n\" (x FP32[1,2,3,3]) func=0 kernel=2,2",
    [IR_OP_REDUCE] = "y = reduce \"n\" (x FP32[2,3]) func=9 axes=0,1",
    [IR_OP_ARG_REDUCE] = "y = arg_reduce \"n\" (x FP32[2,3]) func=0 axis=1",
    [IR_OP_SOFTMAX] = "y = softmax \"n\" (x FP32[2,3]) axis=1",
    [IR_OP_BATCH_NORM] = "y = batch_norm \"n\" (x FP32[1,2,3], s FP32[2], b FP32[2], m FP32[2], "
                         "v FP32[2]=+)",
    [IR_OP_LAYER_NORM] = "y = layer_norm \"n\" (x FP32[2,3], s FP32[3]) axis=1",
    [IR_OP_INSTANCE_NORM] = "y = instance_norm \"n\" (x FP32[1,2,3], s FP32[2], b FP32[2])",
    [IR_OP_LRN] = "y = lrn \"n\" (x FP32[1,3,2]) size=3",
    [IR_OP_UNARY] = "y = unary \"n\" (x FP32[3]) func=tanh",
    [IR_OP_BINARY] = "y = binary \"n\" (x FP32[3], z FP32[1]) func=add",
    [IR_OP_SELECT] = "y = select \"n\" (c BOOL[3], x FP32[3], z FP32[3])",
    [IR_OP_CAST] = "y = cast \"n\" (x FP32[3]) to=11",
    [IR_OP_RESHAPE] = "y = reshape \"n\" (x FP32[2,3]) shape=6",
    [IR_OP_TRANSPOSE] = "y = transpose \"n\" (x FP32[2,3]) perm=1,0",
    [IR_OP_CONCAT] = "y = concat \"n\" (x FP32[2,3], z FP32[1,3]) axis=0",
    [IR_OP_SLICE] = "y = slice \"n\" (x FP32[5]) starts=4 ends=-1 steps=-2",
    [IR_OP_PAD] = "y = pad \"n\" (x FP32[3]) pads=2,1 mode=1",
    [IR_OP_GATHER] = "y = gather \"n\" (x FP32[2,3], i INT64[2]=0) axis=1",
    [IR_OP_EXPAND] = "y = expand \"n\" (x FP32[1,3]) shape=2,3",
    [IR_OP_RESIZE] = "y = resize \"n\" (x FP32[1,1,4,4]) shape=1,1,2,3 scales=1.0,1.0,0.5,0.75 "
                     "mode=2 antialias=1",
    [IR_OP_TILE] = "y = tile \"n\" (x FP32[2]) repeats=3",
    [IR_OP_CUMSUM] = "y = cumsum \"n\" (x FP32[3]) axis=0",
    [IR_OP_TOPK] = "y, i = topk \"n\" (x FP32[5]) axis=0 k=2",
    [IR_OP_GATHER_ELEMENTS] = "y = gather_elements \"n\" (x FP32[2,3], i INT64[1,3]=0) axis=0",
    [IR_OP_GATHER_ND] = "y = gather_nd \"n\" (x FP32[2,3], i INT64[4,1]=0)",
    [IR_OP_SCATTER_ELEMENTS] =
        "y = scatter_elements \"n\" (x FP32[2,3], i INT64[1,3]=0, u FP32[1,3]) axis=0 func=1",
    [IR_OP_SCATTER_ND] = "y = scatter_nd \"n\" (x FP32[2,3], i INT64[1,1]=0, u FP32[1,3])",
    [IR_OP_ONE_HOT] = "y = one_hot \"n\" (i INT64[2]=0, v FP32[2]) axis=1 depth=4",
    [IR_OP_TRILU] = "y = trilu \"n\" (x FP32[3,3]) k=1",
    [IR_OP_REFORMAT] = "y = reformat \"n\" (x FP32[1,2,3,3])",
    [IR_OP_ATTENTION] =
        "y = attention \"n\" (q FP32[1,2,4], k FP32[1,3,4], v FP32[1,3,4], -) heads=2",
    [IR_OP_RECURRENT] = "y, h, c = recurrent \"n\" (x FP32[2,1,8], r FP32[8,2], l INT64[1]=0) "
                        "func=1 funcs=6,10,10 alphas=0.0,1.0,1.0 betas=0.0,1.0,1.0",
    [IR_OP_SAMPLE] = "y = sample \"n\" (x FP32[1,1,3,3], g FP32[1,2,2,2]) mode=2",
    [IR_OP_ROI_POOL] = "y = roi_pool \"n\" (x FP32[1,1,4,4], r FP32[2,4], b INT64[2]=0) shape=2,2",
    [IR_OP_NMS] = "y = nms \"n\" (b FP32[1,3,4], s FP32[1,2,3]) k=2",
    [IR_OP_QUANTIZE] = "y = quantise \"n\" (x FP32[2,3], s FP32[3]=+, z INT8[3]) to=6 axis=1",
    [IR_OP_DEQUANTIZE] = "y = dequantise \"n\" (x UINT8[2,3], s FP32[], z UINT8[]) to=11",
    [IR_OP_DET] = "y = det \"n\" (x FP32[2,3,3])",
    [IR_OP_MLP] = "y = mlp \"n\" (x FP32[2,3], w FP32[8], b FP32[3]) widths=2,1 funcs=1,6 "
                  "alphas=0.0,0.0 betas=0.0,0.0",
    [IR_OP_CONV_POOL] = "y = conv_pool \"n\" (x UINT8[1,1,4,4], w FP32[2,1,3,3]) strides=2,2 "
                        "pads=1,1,1,1 then relu",
    [IR_OP_CONV_PAIR] = "y = conv_pair \"n\" (x FP32[1,2,2,2], w FP32[3,2,1,1], z FP32[1,1,3,4], v "
                        "FP32[3,1,1,1], b FP32[3]) strides=2,2 then relu",
    [IR_OP_CONV_CHAIN] = "y, t = conv_chain \"n\" (x FP32[1,2,2,2], w FP32[3,2,1,1], u "
                         "FP32[2,3,1,1], z FP32[1,1,3,4], v FP32[3,1,1,1], b FP32[3], "
                         "r FP32[1,3,2,2], a FP32[2]) strides=2,2 funcs=1,1",
    [IR_OP_EMBED] = "y = embed \"n\" (x FP32[2,3], i INT64[2,2]=0, z FP32[4,3], j INT64[2]=0, "
                    "v FP32[1,3], k INT64[2,1]=0)",
    [IR_OP_PLUGIN] = "y = plugin \"n\" (x FP32[2,3]) words=" SAMPLE_WORDS,
};

static const struct ir_node *only_node(const struct ir_graph *graph, enum ir_op op)
{
    assert_int_equal(graph->n_nodes, 1);
    assert_int_equal(ir_node(graph, 0)->op, op);
    return ir_node(graph, 0);
}

/* Computes the node's outputs from constants alone. */
static enum status compute(const char *text, enum ir_op op, struct error *err)
{
    struct ir_graph *graph = graph_parse(text);
    const struct ir_node *node = only_node(graph, op);
    const void *inputs[IR_OPERANDS_MAX] = {0};
    void *outputs[IR_MAX_OUTPUTS] = {0};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        inputs[i] = node->inputs[i] == IR_NONE ? NULL : ir_tensor(graph, node->inputs[i])->data;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        assert_non_null(outputs[i] = malloc(ir_tensor(graph, node->outputs[i])->bytes));
    enum status status = cpu_eval_node(NULL, graph, node, inputs, outputs, err);
    for (uint32_t i = 0; i < IR_MAX_OUTPUTS; i++)
        free(outputs[i]);
    ir_graph_free(graph);
    return status;
}

static void every_op_has_a_kernel(void **state UNUSED)
{
    for (enum ir_op op = 1; op < IR_OP_COUNT_; op++) {
        struct error err = {0};
        char text[512];
        if (!cases[op])
            fail_msg("%s has no case", ir_op_name(op));
        snprintf(text, sizeof(text), "%s\noutput y\n", cases[op]);
        if (compute(text, op, &err))
            fail_msg("%s: %s", ir_op_name(op), err.text);
    }
}

/* The case with another number in place of the "=0" of its k-th INT64 constant. */
static bool with_number(const char *text, uint32_t k, char *out, size_t size)
{
    const char *at = text;
    for (uint32_t i = 0; (at = strstr(at, "]=0")); at += 3, i++)
        if (i == k) {
            snprintf(out, size, "%.*s]=77%s\noutput y\n", (int)(at - text), text, at + 3);
            return true;
        }
    return false;
}

/* Exactly the operands that the table marks make an op fail when their value is out of every
 * range. */
static void what_may_fail_is_in_the_table(void **state UNUSED)
{
    for (enum ir_op op = 1; op < IR_OP_COUNT_; op++) {
        const struct ir_operand *o = ir_op_row(op)->operands;
        uint32_t k = 0, marked = 0, failing = 0;
        char text[512];
        for (; o->name; o++)
            marked += (o->flags & IR_OPERAND_FAILS) != 0;
        for (; with_number(cases[op], k, text, sizeof(text)); k++) {
            struct error err = {0};
            failing += compute(text, op, &err) != STATUS_OK;
        }
        if (failing != marked || k < marked)
            fail_msg("%s: %u operands may fail, %u of %u do", ir_op_name(op), marked, failing, k);
    }
}

int main(void)
{
    if (sample_load(NULL))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_kernel),
        cmocka_unit_test(what_may_fail_is_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
