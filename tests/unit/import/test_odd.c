/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal nodes that files rarely have, a line a case: which of our nodes they become, and the type
 * and shape of the result. Values: tests/ops, and test_folded.c where those have no case.
 */
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/cases.h"

/* Expected are the nodes in order, then the first output. */
static const struct refusal odd[] = {
    /* opset 6 aligned operands by attributes */
    {"Add", 6, "x2,3 x3", "broadcast:1", "binary: FP32 [2,3]"},
    {"Add", 6, "x2,3,4 x3", "broadcast:1 axis:1", "reshape binary: FP32 [2,3,4]"},
    {"PRelu", 6, "x2,3,4 X3", "", "reshape binary: FP32 [2,3,4]"},
    {"PRelu", 6, "x3 X3", "", "binary: FP32 [3]"},
    {"BatchNormalization", 6, "x1,3,4 x3 x3 x3 x3", "is_test:1 spatial:1",
     "batch_norm: FP32 [1,3,4]"},
    /* statistics of a wider type than the operand */
    {"BatchNormalization", 15, "h1,3,4 d3 d3 d3 d3", "", "cast batch_norm cast: FP16 [1,3,4]"},
    {"BatchNormalization", 15, "h1,3,4 h3 h3 x3 x3", "",
     "cast cast cast batch_norm cast: FP16 [1,3,4]"},
    /* a vector is one channel */
    {"BatchNormalization", 15, "x6 x1 x1 x1 x1", "", "reshape batch_norm reshape: FP32 [6]"},
    /* a scale or a bias of more than the normalised dimensions */
    {"LayerNormalization", 17, "x2,6,4,5 x6,1,5 x5", "",
     "expand layer_norm binary binary: FP32 [2,6,4,5]"},
    {"LayerNormalization", 17, "x2,4,5 x5 x4,1", "axis:-1", "layer_norm binary: FP32 [2,4,5]"},
    {"LayerNormalization", 17, "h2,4,5 h1,4,5 h4,5", "axis:1",
     "expand layer_norm binary binary: FP16 [2,4,5]"},
    {"RMSNormalization", 23, "d2,3 d3", "", "binary reduce unary unary binary binary: FP64 [2,3]"},
    /* windows */
    {"ConvTranspose", 11, "x1,2,5 x2,3,3 x3", "", "deconv: FP32 [1,3,7]"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "strides=2 output_shape=1,3,10",
     "deconv: FP32 [1,3,10]"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "strides=2 auto_pad=SAME_LOWER",
     "deconv: FP32 [1,3,10]"},
    {"GlobalLpPool", 2, "x1,2,5", "p:3", "pool: FP32 [1,2,1]"},
    {"RoiAlign", 10, "x1,2,8,8 x3,4 b3", "output_height:2", "roi_pool: FP32 [3,2,2,1]"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,5", "pooled_shape=2,3",
     "slice reshape slice cast roi_pool: FP32 [3,2,2,3]"},
    {"MaxUnpool", 11, "x1,1,2 b1,1,2", "kernel_shape=2 strides=2",
     "expand reshape reshape scatter_elements reshape: FP32 [1,1,4]"},
    /* 8-bit operands that one fast product does not take */
    {"MatMulInteger", 10, "u2,3 U3,2 - z250", "", "matmul matmul binary binary: INT32 [2,2]"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 u2", "",
     "cast cast reshape binary cast conv cast: INT32 [1,3,3]"},
    {"ConvInteger", 10, "u1,2,4,5 U3,2,3,3 z7", "pads=0,1,0,1", "pad conv: INT32 [1,3,2,5]"},
    {"DequantizeLinear", 21, "i2,3 f2", "", "dequantise: FP32 [2,3]"},
    /* nothing to do, yet the identity stays as a node, because each output is made by a node */
    {"ReduceMax", 20, "x2,3", "noop_with_empty_axes:1", "unary: FP32 [2,3]"},
    {"ReduceMin", 20, "x2,3", "noop_with_empty_axes:1", "unary: FP32 [2,3]"},
    {"ReduceProd", 20, "x2,3", "noop_with_empty_axes:1", "unary: FP32 [2,3]"},
    {"ReduceMean", 20, "x2,3", "noop_with_empty_axes:1", "unary: FP32 [2,3]"},
    {"ReduceSumSquare", 20, "x2,3", "noop_with_empty_axes:1", "reduce: FP32 [2,3]"},
    {"Dropout", 13, "x3 f0 z1", "", "unary: FP32 [3]"},
    {"Dropout", 13, "x3 f1 z0", "", "unary: FP32 [3]"},
    {"Clip", 11, "h3", "", "unary: FP16 [3]"},
    {"Clip", 11, "d3 g2", "", "binary: FP64 [3]"},
    {"OptionalHasElement", 18, "", "", "unary: BOOL []"},
    {"NonZero", 13, "X0", "", "unary: INT64 [1,0]"},
    /* a vector has no dimension 1: opset 11 means the whole of it */
    {"Softmax", 11, "x5", "", "softmax: FP32 [5]"},
    {"Hardmax", 13, "x2,0", "", "unary: FP32 [2,0]"},
    {"LogSoftmax", 11, "x5", "axis:0", "softmax: FP32 [5]"},
    {"OneHot", 11, "i3 s4 x2", "", "one_hot: FP32 [3,4]"},
    {"OneHot", 11, "b3 f4 x2", "", "one_hot: FP32 [3,4]"},
    {"ReverseSequence", 10, "x4,2,3 c1,2", "batch_axis:1 time_axis:0",
     "transpose gather_nd transpose: FP32 [4,2,3]"},
    /* indices that name everything, in order */
    {"Gather", 13, "x4 c0,1,2,3", "", "unary: FP32 [4]"},
    {"Gather", 13, "x4 c0,1,3,2", "", "gather: FP32 [4]"},
    {"Gather", 13, "x1 s0", "", "gather: FP32 []"},
    {"GatherND", 13, "x1,1 c0,0", "", "reshape: FP32 []"},
    {"GatherND", 13, "x1,1 c0,-1", "", "gather_nd: FP32 []"},
    /* Resize */
    {"Upsample", 9, "x1,1,4,4 X4", "mode=bilinear", "resize: FP32 [1,2,12,16]"},
    {"Resize", 18, "x1,1,4,8 - - c6,6", "axes=2,3 keep_aspect_ratio_policy=not_larger",
     "resize: FP32 [1,1,3,6]"},
    {"Resize", 18, "x1,1,4,8 - - c6,6", "axes=2,3 keep_aspect_ratio_policy=not_smaller",
     "resize: FP32 [1,1,6,12]"},
    {"Resize", 18, "x1,1,8,4 - - c6,6", "axes=2,3 keep_aspect_ratio_policy=not_larger",
     "resize: FP32 [1,1,6,3]"},
    {"Resize", 18, "x1,1,8,4 - - c6,6", "axes=2,3 keep_aspect_ratio_policy=not_smaller",
     "resize: FP32 [1,1,12,6]"},
    {"Resize", 13, "x1,1,4,4 X0 X0 c1,1,8,8", "", "resize: FP32 [1,1,8,8]"},
    /* Einsum of one operand, of three, and with sizes of 1 that stand against others */
    {"Einsum", 12, "x2,3 x3,4 x4,5", "equation=ij,jk,kl->il",
     "reshape reshape matmul reshape reshape reshape matmul reshape: FP32 [2,5]"},
    {"Einsum", 12, "x1,3 x2,3", "equation=ij,ij->ij",
     "reshape reshape transpose reshape matmul reshape transpose: FP32 [2,3]"},
    {"Einsum", 12, "x2,1 x2,3", "equation=ij,ij->i",
     "reshape reduce reshape reshape matmul reshape: FP32 [2]"},
    {"Einsum", 12, "x2,3,3", "equation=aii->ai", "transpose reshape slice: FP32 [2,3]"},
    {"AffineGrid", 20, "x1,2,3 c1,1,1,2", "align_corners:1", "matmul reshape: FP32 [1,1,2,2]"},
    {"DFT", 17, "x2,8,1 s4", "", "slice reshape matmul reshape: FP32 [2,4,2]"},
    {"DFT", 17, "x2,5,2", "inverse:1 onesided:1", "reshape matmul reshape: FP32 [2,8,1]"},
    {"STFT", 17, "x2,16 s4 - s8", "onesided:0",
     "reshape gather reshape matmul reshape: FP32 [2,3,8,2]"},
    {"STFT", 17, "x2,16,2 s4 - s8", "onesided:0", "gather reshape matmul reshape: FP32 [2,3,8,2]"},
    {"BatchNormalization", 6, "x2,3,4 x3 x3 x3 x3", "is_test:1", "batch_norm: FP32 [2,3,4]"},
    {"BatchNormalization", 8, "x2,3,4 x3 x3 x3 x3", "spatial:1", "batch_norm: FP32 [2,3,4]"},
    {"BatchNormalization", 14, "x2,3 x3 x3 x3 x3", "training_mode:1",
     "reduce binary binary reduce reshape reshape unary unary binary binary binary: FP32 [2,3]"},
    {"STFT", 17, "x2,16 s4 x8", "",
     "reshape gather reshape binary reshape matmul reshape: FP32 [2,3,5,2]"},
    {"BatchNormalization", 15, "x2,3,4 x3 x3 x3 x3", "training_mode:1",
     "reduce binary binary reduce reshape reshape unary unary binary binary binary: FP32 [2,3,4]"},
};

/* "reshape binary: FP32 [2,3]" */
static void graph_text(const struct ir_graph *graph, char *text, size_t size)
{
    const struct ir_tensor *y = ir_tensor(graph, graph->outputs[0]);
    char dims[SHAPE_TEXT_MAX];
    size_t at = 0;
    for (uint32_t i = 0; i < graph->n_nodes && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s", at ? " " : "",
                               ir_op_name(ir_node(graph, i)->op));
    snprintf(text + at, size - at, ": %s %s", dtype_name(y->dtype), shape_format(&y->shape, dims));
}

static void odd_nodes_become_what_they_mean(void **state UNUSED)
{
    case_become_all(odd, ARRAY_LEN(odd), graph_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_nodes_become_what_they_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
