/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes whose inputs are all constants are computed while the model is imported. The expected
 * values were worked out by hand, which is the shortest way to hold a mapping to its formula.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/cpu/eval.h"
#include "engine/import/map.h"
#include "tests/test.h"
#include "tests/unit/import/cases.h"

enum { MOST = 12 };

struct folded {
    struct refusal node; /* `says`: type and shape */
    double values[MOST];
};

/* X and U count 1, 2, 3 .. 7 and begin again; V is 250, 249, 248 .. */
static const struct folded cases[] = {
    {{"Gemm", 13, "X3,2 X3,2", "transA:1", "FP32 [2,2]"}, {35, 44, 44, 56}},
    {{"MatMul", 13, "X2,3 X3", "", "FP32 [2]"}, {14, 32}},
    {{"Det", 11, "X2,2", "", "FP32 []"}, {-2}},
    /* products of bytes, with and without zero points, in each way that they are computed */
    {{"MatMulInteger", 10, "U2,3 U3,2", "", "INT32 [2,2]"}, {22, 28, 49, 64}},
    {{"MatMulInteger", 10, "U2,3 U3,2 z1 z1", "", "INT32 [2,2]"}, {10, 13, 28, 40}},
    {{"MatMulInteger", 10, "U2,3 U3,2 - U2", "", "INT32 [2,2]"}, {16, 16, 34, 34}},
    {{"MatMulInteger", 10, "U2,3 U3,2 U2", "", "INT32 [2,2]"}, {13, 16, 31, 40}},
    {{"MatMulInteger", 10, "U2,3 V3,2", "", "INT32 [2,2]"}, {1493, 1493, 3734, 3734}},
    {{"MatMulInteger", 10, "U2,3 U3,2 - z250", "", "INT32 [2,2]"}, {-1478, -1472, -3701, -3686}},
    /* Einsum: three operands, sizes of 1, diagonals, an implied result */
    {{"Einsum", 12, "X2,3 X3,2 X2,2", "equation=ij,jk,kl->il", "FP32 [2,2]"}, {106, 156, 241, 354}},
    {{"Einsum", 12, "X1,3 X2,3", "equation=ij,ij->ij", "FP32 [2,3]"}, {1, 4, 9, 4, 10, 18}},
    {{"Einsum", 12, "X2,1 X2,3", "equation=ij,ij->i", "FP32 [2]"}, {6, 30}},
    {{"Einsum", 12, "X2,3,3", "equation=aii->ai", "FP32 [2,3]"}, {1, 5, 2, 3, 7, 4}},
    {{"Einsum", 12, "X2,3", "equation=ji", "FP32 [3,2]"}, {1, 4, 2, 5, 3, 6}},
    {{"Einsum", 12, "X2,3 X2,3", "equation=...j,...j", "FP32 [2]"}, {14, 77}},
    /* half a spectrum back: 1+2i, 3+4i, 5+6i of four real points */
    {{"DFT", 17, "X1,3,2", "inverse:1 onesided:1", "FP32 [1,4,1]"}, {3, -3, 0, 1}},
    {{"DFT", 17, "X1,4,1 s2", "", "FP32 [1,2,2]"}, {3, 0, -1, 0}},
    /* a diagonal at several places, and outside of the matrix */
    {{"EyeLike", 9, "X2,3", "k:1", "FP32 [2,3]"}, {0, 1, 0, 0, 0, 1}},
    {{"EyeLike", 9, "X2,3", "k:-1 dtype:7", "INT64 [2,3]"}, {0, 0, 0, 1, 0, 0}},
    {{"EyeLike", 9, "X2,3", "k:9223372036854775807", "FP32 [2,3]"}, {0}},
    {{"EyeLike", 9, "X2,3", "k:-9223372036854775808", "FP32 [2,3]"}, {0}},
    {{"HannWindow", 17, "s4", "", "FP32 [4]"}, {0, 0.5, 1, 0.5}},
    {{"HannWindow", 17, "s3", "periodic:0 output_datatype:11", "FP64 [3]"}, {0, 1, 0}},
    {{"HannWindow", 17, "s1", "periodic:0", "FP32 [1]"}, {0}},
    {{"Range", 11, "s8 s1 s-3", "", "INT64 [3]"}, {8, 5, 2}},
    {{"Range", 11, "g1 g3 g1", "", "FP64 [2]"}, {1, 2}},
    {{"Shape", 15, "X2,3,4", "start:-2 end:-1", "INT64 [1]"}, {3}},
    {{"Shape", 15, "X2,3,4", "start:2 end:1", "INT64 [0]"}, {0}},
    /* parts */
    {{"CenterCropPad", 18, "X4 c2", "", "FP32 [2]"}, {2, 3}},
    {{"CenterCropPad", 18, "X4 c7", "", "FP32 [7]"}, {0, 1, 2, 3, 4}},
    {{"Pad", 13, "X4 c-1,1", "mode=reflect", "FP32 [4]"}, {2, 3, 4, 3}},
    {{"Pad", 13, "X4 c-1,1 f9", "", "FP32 [4]"}, {2, 3, 4, 9}},
    {{"Trilu", 14, "X2,3 s1", "", "FP32 [2,3]"}, {0, 2, 3, 0, 0, 6}},
    {{"Slice", 13, "X5 c-1 c-9223372036854775808 c0 c-2", "", "FP32 [3]"}, {5, 3, 1}},
    {{"ReverseSequence", 10, "X2,3 c2,1", "batch_axis:0 time_axis:1", "FP32 [2,3]"},
     {2, 1, 3, 4, 5, 6}},
    {{"Unique", 11, "X8", "", "FP32 [7]"}, {1, 2, 3, 4, 5, 6, 7}},
    {{"Compress", 9, "X4 I2", "", "FP32 [2]"}, {1, 2}},
    {{"NonZero", 9, "X2,2", "", "INT64 [2,4]"}, {0, 0, 1, 1, 0, 1, 0, 1}},
    {{"OneHot", 11, "I2 s4 X2", "", "FP32 [2,4]"}, {1, 2, 1, 1, 1, 1, 2, 1}},
    /* of two boxes the one of the higher score */
    {{"NonMaxSuppression", 10, "X1,2,4 X1,1,2 s1", "", "INT64 [1,3]"}, {0, 0, 1}},
    {{"AffineGrid", 20, "X1,2,3 c1,1,1,2", "align_corners:1", "FP32 [1,1,2,2]"}, {2, 2, 4, 10}},
};

/* The constant that the output is the identity of; NULL: something was left to compute. */
static const struct ir_tensor *constant_of(const struct ir_graph *graph)
{
    const struct ir_node *node = ir_node(graph, 0);
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[0]);
    return graph->n_nodes == 1 && ir_tensor_is_constant(t) ? t : NULL;
}

static bool is_right(const struct ir_tensor *t, const struct folded *want)
{
    char text[SHAPE_TEXT_MAX + 16], dims[SHAPE_TEXT_MAX];
    size_t n = 0;
    snprintf(text, sizeof(text), "%s %s", dtype_name(t->dtype), shape_format(&t->shape, dims));
    bool right = !strcmp(text, want->node.says) && shape_elements(&t->shape, &n) && n <= MOST;
    for (size_t i = 0; right && i < n; i++)
        right = fabs(map_element(t, i) - want->values[i]) < 1e-5;
    if (right)
        return true;
    print_error("%s (%s) %s: %s", want->node.op, want->node.operands, want->node.attrs, text);
    for (size_t i = 0; i < n && i < MOST; i++)
        print_error(" %g", map_element(t, i));
    print_error(", not %s", want->node.says);
    for (size_t i = 0; i < n && i < MOST; i++)
        print_error(" %g", want->values[i]);
    print_error("\n");
    return false;
}

static void constants_are_computed(void **state UNUSED)
{
    const struct onnx_options options = {.batch = 1, .evaluator = {.eval = cpu_eval_node}};
    static struct built b;
    uint32_t wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ir_graph *graph = NULL;
        struct error err;
        if (case_import(&b, &cases[i].node, &options, &graph, &err))
            fail_msg("%s (%s): %s", cases[i].node.op, cases[i].node.operands, err.text);
        const struct ir_tensor *t = constant_of(graph);
        if (!t)
            print_error("%s (%s) is left as %u nodes\n", cases[i].node.op, cases[i].node.operands,
                        graph->n_nodes);
        wrong += !t || !is_right(t, &cases[i]);
        ir_graph_free(graph);
    }
    assert_int_equal(wrong, 0);
}

/* If the work does not follow from the sizes, the node is left to the plan, whatever its operands
 * are. */
static void endless_work_is_left(void **state UNUSED)
{
    static const struct {
        struct refusal node;
        enum ir_op op;
    } left[] = {
        {{"RNN", 14, "X2,1,3 X1,2,3 X1,2,2", "hidden_size:2", NULL}, IR_OP_RECURRENT},
        {{"LSTM", 14, "X2,1,3 X1,8,3 X1,8,2", "hidden_size:2", NULL}, IR_OP_RECURRENT},
        {{"Conv", 11, "X1,1,3,3 X1,1,2,2", "", NULL}, IR_OP_CONV},
        {{"ConvTranspose", 11, "X1,1,3,3 X1,1,2,2", "", NULL}, IR_OP_DECONV},
        {{"MaxPool", 12, "X1,1,3,3", "kernel_shape=2,2", NULL}, IR_OP_POOL},
        {{"LRN", 13, "X1,3,2,2", "size:3", NULL}, IR_OP_LRN},
        {{"RoiAlign", 16, "X1,1,4,4 X1,4 c0", "", NULL}, IR_OP_ROI_POOL},
    };
    const struct onnx_options options = {.batch = 1, .evaluator = {.eval = cpu_eval_node}};
    static struct built b;
    for (size_t i = 0; i < ARRAY_LEN(left); i++) {
        struct ir_graph *graph = NULL;
        struct error err;
        uint32_t n = 0;
        if (case_import(&b, &left[i].node, &options, &graph, &err))
            fail_msg("%s: %s", left[i].node.op, err.text);
        for (uint32_t k = 0; k < graph->n_nodes; k++)
            n += ir_node(graph, k)->op == left[i].op;
        if (n != 1)
            fail_msg("%s has become %u nodes of %s", left[i].node.op, n, ir_op_name(left[i].op));
        ir_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_computed),
        cmocka_unit_test(endless_work_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
