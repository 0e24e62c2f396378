/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refusals of products, windows, norms and shapes, and the nodes that integer products become; a
 * line a case.
 */
#include <stdlib.h>

#include "tests/test.h"
#include "tests/unit/import/cases.h"

static const struct refusal refusals[] = {
    /* 8-bit numbers */
    {"QuantizeLinear", 21, "x4,6 X4,3", "block_size:-1", "'block_size' is -1"},
    {"QuantizeLinear", 21, "x4,6 X4,2 U1", "block_size:3 axis:1", "is [1], its scale [4,2]"},
    {"QuantizeLinear", 21, "x1,2 X1,1 U1", "block_size:2 axis:1", "has rank 1, expected 2"},
    {"QuantizeLinear", 21, "x4,6 X4,4", "block_size:3", "for each block of 3"},
    {"QuantizeLinear", 21, "x4,6 f2 z3", "output_dtype:3", "its zero point is UINT8"},
    {"QuantizeLinear", 21, "x4,6 f2", "output_dtype:19", "FLOAT8E5M2"},
    {"QLinearConv", 10, "u1,2,5 f1 z1 U3,2,3 f1 z1 f1", "", "7 inputs"},
    {"QLinearConv", 10, "u1,2,5 f1 z1 U3,2,3 f1 z1 f1 z0", "strides=0", "'strides'"},
    {"ConvInteger", 10, "u1,2 U3,2,3", "", "rank 2"},
    {"MatMulInteger", 10, "x2,3 U3,2", "", "FP32"},
    {"MatMulInteger", 10, "u2,3 U3,2 - U3", "", "MatMulInteger"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 f1", "", "its zero point is FP32, its operand UINT8"},
    {"MatMulInteger", 10, "u2,3 U3,2 - q", "", "its zero point is INT8, its operand UINT8"},
    {"QLinearConv", 10, "u1,2,5 f1 z1 Q3,2,3 X3 Q3 f2 z3 I1", "", "its bias"},
    {"QLinearConv", 10, "u1,2,5 f1 z1 Q3,2,3 X3 Q3 f2 z3 X3", "", "its bias"},
    {"QuantizeLinear", 21, "x1,1,1,1,1,1,1,4 X1,1,1,1,1,1,1,2", "block_size:2 axis:7", "rank 8"},
    {"DequantizeLinear", 21, "u2,3 f2 q", "", "its zero point is INT8, its input UINT8"},
    /* windows */
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_padding=1,1", "2 values, expected 1"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_padding=-1", "a value -1"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_padding=2147483648", "a value 2147483648"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_shape=1,2", "2 values, expected 1"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_shape=-4", "a value -4"},
    {"ConvTranspose", 11, "x1,2,5 x2,3,3", "output_shape=2147483648", "a value 2147483648"},
    {"ConvTranspose", 11, "x1,2,9 x2,3,3", "output_shape=5 strides=2147483647", "is 9"},
    {"ConvTranspose", 11, "x1,2,8589934592 x2,3,3", "strides=2147483647 auto_pad=SAME_UPPER",
     "dimension 2 of its input is 8589934592"},
    {"Conv", 11, "x1,2,5 x2,2,3", "kernel_shape=2", "kernel dimension 0 is 3"},
    {"Conv", 11, "x1,2,5 x2,2,0", "", "kernel dimension 0 is 0"},
    {"Conv", 11, "x1,2,5 x2,2,2147483648", "", "Conv"},
    {"GlobalAveragePool", 1, "x2,3", "", "rank 2"},
    {"MaxUnpool", 11, "x1,1,2 b1,1,2 c1,1", "kernel_shape=2 strides=2", "MaxUnpool"},
    {"MaxUnpool", 11, "x1,1,2 b1,1,2 c1,1,2147483648", "kernel_shape=2 strides=2", "MaxUnpool"},
    {"MaxUnpool", 11, "x1,1,0 b1,1,0", "kernel_shape=2", "dimension 2 of its input is 0"},
    {"MaxUnpool", 11, "x1,1,2147483648 b1,1,2", "kernel_shape=2", "input is 2147483648"},
    {"MaxUnpool", 11, "x1,1,2 b1,1,2", "kernel_shape=2 pads=9,9", "leave no output"},
    /* norms */
    {"GroupNormalization", 18, "x2,4,3 x2 x2", "num_groups:0", "'num_groups' is 0"},
    {"GroupNormalization", 18, "x2,4,3 x2 x2", "num_groups:3", "GroupNormalization"},
    {"GroupNormalization", 18, "x2,4,3 x2,2 x2", "num_groups:2", "GroupNormalization"},
    {"GroupNormalization", 18, "x2,4,3 x3 x2", "num_groups:2", "GroupNormalization"},
    {"LayerNormalization", 17, "x2,3 x3 >y m v", "stash_type:7", "'stash_type' is no float"},
    {"RMSNormalization", 23, "x2,3 x3", "axis:2", "axis 2"},
    {"LpNormalization", 1, "x2,3", "p:3", "p = 3"},
    {"BatchNormalization", 7, "x1,3,4 x3 x3 x3 x3", "spatial:0", "spatial = 0"},
    {"BatchNormalization", 15, "x3 x3 x3 x3 x3", "training_mode:1", "its input has rank 1"},
    {"Gelu", 20, "x2", "approximate=fast", "neither none nor tanh"},
    {"Dropout", 13, "x3 f1 z1", "", "its output is random"},
    {"Dropout", 13, "x3 - z1", "", "its output is random"},
    {"PRelu", 7, "x3 x2,3", "", "does not broadcast to the input"},
    {"Gemm", 13, "i2,3 i3,2", "alpha~2", "alpha or beta other than 1 with INT32"},
    {"Gemm", 13, "i2,3 i3,2 i2", "beta~2", "alpha or beta other than 1 with INT32"},
    {"Gemm", 13, "x2,3 x3,2 x4,2,2", "", "C does not broadcast"},
    {"Gemm", 13, "x2,3 x3", "", "operands of rank 2 and 1"},
    /* shapes */
    {"DepthToSpace", 13, "x1,4,2", "blocksize:2", "rank 3"},
    {"DepthToSpace", 13, "x1,4,2,2", "blocksize:0", "DepthToSpace"},
    {"DepthToSpace", 13, "x1,4,2,2", "blocksize:2147483648", "DepthToSpace"},
    {"DepthToSpace", 13, "x1,5,2,2", "blocksize:2", "DepthToSpace"},
    {"DepthToSpace", 13, "x1,0,1099511627776,0", "blocksize:2147483647", "overflow"},
    {"DepthToSpace", 13, "x1,0,0,1099511627776", "blocksize:2147483647", "overflow"},
    {"SpaceToDepth", 13, "x1,8,0,0", "blocksize:2147483647", "overflow"},
    {"SpaceToDepth", 13, "x1,4,3,2", "blocksize:2", "SpaceToDepth"},
    {"Transpose", 13, "x1,4,3", "perm=0,1", "Transpose"},
    {"Expand", 13, "x2,3 c2,2", "", "Expand"},
    {"Reshape", 13, "x2,3 c4,-1", "", "Reshape"},
    {"Reshape", 13, "x2,3 c-1,-1", "", "Reshape"},
    {"Concat", 13, "x2,3 x2,3", "axis:2", "axis 2"},
    {"Split", 13, "x2,3 c1,-1 >y z", "axis:1", "Split"},
    {"Split", 13, "x2,3 c1,1 >y z", "axis:1", "Split"},
    {"Split", 13, "x2,3 c1,7 >y z", "axis:1", "Split"},
    {"Split", 13, "x2,3 >y z", "axis:1", "Split"},
    {"Split", 13, "x4,3 c1,9223372036854775807 >y z", "", "part 1 of size 9223372036854775807"},
    {"Pad", 18, "x2,3 c0,0 - c5", "", "axis 5"},
    {"Pad", 13, "b2,3 c0,0,1,1 s16777217", "", "the value 16777217, which fp32 does not hold"},
    {"CenterCropPad", 18, "x4,5 b2", "", "must be known"},
    {"CenterCropPad", 18, "x4,5 c3", "", "1 sizes for 2 axes"},
    {"Reshape", 13, "x2,3 I300", "", "more than 256 values"},
    {"Reshape", 13, "x2,3 X2", "", "FP32, expected INT64"},
    {"OneHot", 11, "b3 f10000000000000000 x2", "", "not a whole number"},
    {"OneHot", 11, "b3 f-10000000000000000 x2", "", "not a whole number"},
    {"OneHot", 11, "b3 c2,3 x2", "", "2 elements, expected one"},
    {"Slice", 13, "x2,3 c0 c1 c0 c0", "", "Slice"},
    {"Slice", 13, "x2,3 c0 c1 c0 c-9223372036854775808", "", "Slice"},
    {"ReverseSequence", 10, "x2,3 c1,2", "batch_axis:1 time_axis:1", "ReverseSequence"},
    {"ReverseSequence", 10, "x2,3 c1,2", "batch_axis:2 time_axis:-1", "ReverseSequence"},
    {"ReverseSequence", 10, "x2,3 c1,2", "batch_axis:-1 time_axis:2", "ReverseSequence"},
    {"ReverseSequence", 10, "x2 c1,2", "", "ReverseSequence"},
    {"ReverseSequence", 10, "x2,3 c1,2,3", "", "ReverseSequence"},
    {"ReverseSequence", 10, "x2,3 s1", "", "ReverseSequence"},
    {"EyeLike", 9, "x2,3,4", "", "EyeLike"},
    {"Constant", 13, "", "", "Constant"},
    {"Constant", 13, "", "value_int:1 value_float~2", "Constant"},
    {"ConstantOfShape", 9, "c2,2", "value:3", "'value'"},
    {"ConstantOfShape", 9, "c1,1,1,1,1,1,1,-1", "", "dimension 7 is -1"},
    {"Constant", 13, "", "value_string=text", "neither a dense tensor nor numbers"},
    {"HannWindow", 17, "s8", "output_datatype:10", "of FP16"},
    {"HannWindow", 17, "s0", "", "0 values"},
    {"Add", 6, "x2,3 x3", "broadcast:1 axis:2", "Add"},
    {"Add", 6, "x2,3 x2,3", "broadcast:1 axis:1", "go beyond rank 2"},
    {"Resize", 13, "x1,1,4,4 - - c1,1,0,4", "", "Resize"},
    {"Resize", 13, "x1,1,4,4 - - c1,1,2147483648,4", "", "Resize"},
    {"Resize", 13, "x1,1,0,4 - - c1,1,4,4", "", "Resize"},
    {"Resize", 13, "x1,1,4,4 X3 - c1,1,4,4", "coordinate_transformation_mode=tf_crop_and_resize",
     "Resize"},
    {"Upsample", 7, "x1,1,4,4", "", "Upsample"},
    {"Resize", 13, "x1,1,4,1073741824 - X4", "", "dimension 3 of 1073741824 with a scale of 4"},
    {"Resize", 13, "x1,1,4,4 x8 - c1,1,4,4", "coordinate_transformation_mode=tf_crop_and_resize",
     "must be known"},
    {"Resize", 13, "x1,1,4,4 X4,2 - c1,1,4,4", "coordinate_transformation_mode=tf_crop_and_resize",
     "a region of interest"},
    {"Resize", 13, "x1,1,4,4", "", "scales or sizes"},
    {"Upsample", 7, "x1,1,4,4", "scales:2", "'scales'"},
    {"SoftmaxCrossEntropyLoss", 13, "x2,3 b2,3", "", "SoftmaxCrossEntropyLoss"},
    {"NegativeLogLikelihoodLoss", 13, "x3 b", "", "targets of rank 0 for scores of rank 1"},
    {"Einsum", 12, "x2,3", "", "Einsum"},
    {"Einsum", 12, "x2,3", "equation:1", "'equation'"},
    {"Einsum", 12, "x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1 x1", "equation=a",
     "17 operands, expected 1 to 16"},
    {"Einsum", 12, "x2,3", "equation=ii", "an index of size 2 and 3"},
    {"Einsum", 12, "x2,0,0", "equation=aii->ai", "an index of size 0 and 0"},
    {"Einsum", 12, "x2,3 x4,5", "equation=ij,jk", "an index of size 3 and 4"},
    {"Einsum", 12, "x2,3", "equation=ij->ii", "an index twice"},
    {"Einsum", 12, "x2,3", "equation=ij->i-", "goes on behind its result"},
    {"Einsum", 12, "x2,3", "equation=ij->k", "an index that no operand has"},
    {"Einsum", 12, "x1,1,1,1,1 x1,1,1,1,1 x1,1,1,1,1,1,1,1", "equation=abcde,fghij,abcdefgh->ij",
     "a product of more than 8 indices"},
    {"Einsum", 12, "x1,1,1,1,1 x1,1,1,1,1", "equation=abcde,fghij->abcdefghij",
     "a term of more than 8 indices"},
    /* images and signals */
    {"AffineGrid", 20, "x2,2,3 c2,3", "", "does not fit"},
    {"AffineGrid", 20, "x2,2,3 c2,1,2147483648,4", "", "a size of 2147483648"},
    {"AffineGrid", 20, "x2,3,3 c2,1,4,4", "", "does not fit"},
    {"AffineGrid", 20, "x2,2,4 c2,1,4,4", "", "does not fit"},
    {"AffineGrid", 20, "x2,2 c2,1,4,4", "", "does not fit"},
    {"AffineGrid", 20, "x1,4,5 c1,1,2,2,2,2", "", "does not fit"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x2,18,6,6", "", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6", "", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,6", "group:3", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,1,3,3 x1,18,6,6", "group:4", "do not fit its input"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,6", "offset_group:0", "do not fit its input"},
    {"DeformConv", 19, "x1,4,2,8 x6,4,3,3 x1,18,1,6", "", "does not fit the window"},
    {"DeformConv", 19, "x1,4,8,8 x6,4,3,3 x1,18,6,6", "strides=0,0", "'strides'"},
    {"Col2Im", 18, "x1,5 c5,5 c1,5", "", "an image of 2"},
    {"Col2Im", 18, "x1,5,5 c0,5 c1,5", "", "an image of 0"},
    {"Col2Im", 18, "x1,5,5 c2147483648,5 c1,5", "", "an image of 2147483648"},
    {"Col2Im", 18, "x1,5,5 c5,5 c0,5", "", "in blocks of 0"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,5", "strides=1,2147483648", "'strides'"},
    {"Col2Im", 18, "x1,6,5 c5,5 c1,5", "", "columns of 6"},
    {"Col2Im", 18, "x1,5,5 b2 c1,5", "", "must be known"},
    {"Col2Im", 18, "x1,5,5 c5,5 b2", "", "must be known"},
    {"Col2Im", 18, "x1,5,5 I0 I0", "", "an image of 0 and blocks of 0 dimensions"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1", "", "an image of 2 and blocks of 1 dimensions"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,6", "", "larger than the image"},
    {"Col2Im", 18, "x1,5,5 c5,5 c1,5", "pads=1,1", "expected 4"},
    {"CenterCropPad", 18, "x4,5 c3,2147483648", "", "a size of 2147483648"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,5", "pooled_shape=2", "pooled_shape"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,5,1", "pooled_shape=2,2", "rows of five"},
    {"MaxRoiPool", 13, "x1,2,8,8 x3,4", "pooled_shape=2,2", "rows of five"},
    {"DFT", 17, "x2,8,1 s-4", "", "length -4"},
    {"DFT", 17, "x2,1,1", "inverse:1 onesided:1", "0 points"},
    {"DFT", 17, "x2,0,1 s4", "", "4 points"},
    {"STFT", 17, "x1,64,1 s8 x4,4", "", "its window has rank 2"},
    {"STFT", 17, "x1,2,64,1 s8 x8", "", "its signal has rank 4"},
    {"MelWeightMatrix", 17, "s8 s64 s8000 s0 s100", "output_datatype:9", "element type"},
    {"MelWeightMatrix", 17, "s8 s64 s8000 s0 s100", "output_datatype:8", "element type"},
    {"MelWeightMatrix", 17, "s0 s64 s8000 s0 s100", "", "0 bands"},
    {"MelWeightMatrix", 17, "s8 s0 s8000 s0 s100", "", "of 0 points"},
    {"MelWeightMatrix", 17, "s4194305 s8 s8000 s0 s100", "", "4194305 bands"},
    {"MelWeightMatrix", 17, "s8 s4194305 s8000 s0 s100", "", "of 4194305 points"},
    {"MelWeightMatrix", 17, "s8 s64 s8000 s-1 s100", "", "from -1 to 100"},
    {"MelWeightMatrix", 17, "s8 s64 s8000 s100 s0", "", "from 100 to 0"},
    {"MelWeightMatrix", 17, "s8 s64 s0 s0 s100", "", "at a rate of 0"},
};

static void r14_what_does_not_fit_is_refused(void **state UNUSED)
{
    case_refuse_all(refusals, ARRAY_LEN(refusals));
}

/* Expected are the nodes in order; CONV and MATMUL with the type of their first operand. */
static void nodes_text(const struct ir_graph *graph, char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < graph->n_nodes && at < size; i++) {
        const struct ir_node *node = ir_node(graph, i);
        bool typed = node->op == IR_OP_CONV || node->op == IR_OP_MATMUL;
        at += (size_t)snprintf(text + at, size - at, "%s%s%s%s", at ? " " : "",
                               ir_op_name(node->op), typed ? " " : "",
                               typed ? dtype_name(ir_tensor(graph, node->inputs[0])->dtype) : "");
    }
}

/* If weights are known and fit eight bits, the product stays in bytes; else it is computed in
 * FP64. */
static const struct refusal made[] = {
    {"MatMulInteger", 10, "u2,3 U3,2", "", "matmul UINT8"},
    {"MatMulInteger", 10, "u2,3 U3,2 z5 z1", "", "matmul UINT8"},
    {"MatMulInteger", 10, "u2,3 U3,2 u U2", "", "cast binary matmul UINT8"},
    {"MatMulInteger", 10, "u2,3 U3,2 U2 U2", "", "reshape matmul UINT8 cast binary binary"},
    {"MatMulInteger", 10, "u2,2,3 U2,3,2 z3 z1", "", "matmul UINT8 cast binary binary"},
    {"MatMulInteger", 10, "u2,3 V3,2", "", "matmul UINT8 matmul UINT8 binary binary"},
    {"MatMulInteger", 10, "u2,3 V3,2 - z250", "", "matmul UINT8"},
    {"MatMulInteger", 10, "u2,3 u3,2", "", "cast cast matmul FP64 cast"},
    {"MatMulInteger", 10, "u2,3 U3,2 - u", "", "cast cast cast binary matmul FP64 cast"},
    {"MatMulInteger", 10, "u3 U3,2", "", "cast cast reshape matmul FP64 reshape cast"},
    {"MatMulInteger", 10, "u2,3 U3", "", "cast cast reshape matmul FP64 reshape cast"},
    {"MatMulInteger", 10, "u2,3 U3,1", "", "cast cast matmul FP64 cast"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3", "", "conv UINT8"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 z7", "", "conv UINT8"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 z7 U3", "pads=1,1", "pad conv UINT8"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 u", "", "conv UINT8 reshape cast binary binary"},
    {"ConvInteger", 10, "u1,2,5 U3,2,3 u", "pads=1,0", "conv UINT8 cast binary binary"},
    {"ConvInteger", 10, "u1,1,1050000 U1,1,3 u", "pads=1,0",
     "conv UINT8 conv UINT8 cast binary binary"},
    {"ConvInteger", 10, "u1,2,5 V3,2,3", "", "conv UINT8 conv UINT8 reshape binary binary"},
    {"ConvInteger", 10, "u1,2,5 u3,2,3 z1", "", "cast cast binary cast conv FP64 cast"},
    {"QLinearConv", 10, "u1,2,5 f1 z1 Q3,2,3 X3 Q3 f2 z3 I3", "",
     "dequantise dequantise binary dequantise conv FP32 quantise"},
    {"QLinearConv", 10, "u1,2,5 f1 z0 Q3,2,3 X3 Q3 f2 z3 i3", "",
     "dequantise dequantise binary dequantise conv FP32 quantise"},
    {"QLinearMatMul", 10, "u2,3 f1 z4 U3,2 f1 z1 f2 z3", "",
     "dequantise dequantise matmul FP32 quantise"},
};

static void products_of_bytes(void **state UNUSED)
{
    case_become_all(made, ARRAY_LEN(made), nodes_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r14_what_does_not_fit_is_refused),
        cmocka_unit_test(products_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
