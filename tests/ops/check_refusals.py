#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every refusal of the importer, by a table of small models: check_refusals.py IMPORT_MODELS ROOT

The message of a refused node must name op, node, opset and reason. Every refusal that the sources
make with map_refuse must be in the table; test_control.c covers graphs in graphs.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import onnx
    from onnx import TensorProto as T
    from onnx import helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

IMPORT_MODELS, ROOT = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
F, I, B, U = T.FLOAT, T.INT64, T.BOOL, T.UINT8


def ints(name, *values, dims=None):
    return helper.make_tensor(name, I, dims or [len(values)], values)


def model(op, inputs, attrs=None, held=(), outputs=("y",), opset=21, domain=""):
    """One node named "it"; inputs are (type, shape) or the name of a held constant."""
    names, info = [], []
    for i, given in enumerate(inputs):
        names.append(given if isinstance(given, str) else f"x{i}")
        if not isinstance(given, str):
            info.append(helper.make_tensor_value_info(f"x{i}", *given))
    node = helper.make_node(op, names, list(outputs), "it", domain=domain, **(attrs or {}))
    out = [helper.make_tensor_value_info(name, T.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], "g", info, out, list(held))
    domains = [helper.make_opsetid("", opset)]
    if domain:
        domains.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


x = (F, [2, 3])
image = (F, [1, 2, 6, 6])
nine = [1] * 9
many = ints("many", *([1] * 300))
packed = helper.make_tensor("packed", T.INT4, [2, 3], b"\x12\x34\x56", raw=True)
half = helper.make_tensor("half", F, [4], [0.5] * 4)
eighths = helper.make_tensor("eighths", T.FLOAT8E4M3FN, [2], b"\x38\x40", raw=True)
big = ints("big", 16777217, dims=[])
scales = helper.make_tensor("scales", F, [4], [1, 1, 2, 2])
pads = ints("pads", 0, 0, 1, 1)
one = helper.make_tensor("one", F, [], [1])
nil = helper.make_tensor("nil", U, [], [0])
low = helper.make_tensor("low", F, [], [0])
wide = helper.make_tensor("wide", U, [(1 << 22) + 1], bytes((1 << 22) + 1), raw=True)

MS = "com.microsoft"
tokens = (F, [2, 5, 8])
heads = (F, [2, 3, 5, 4])
row8, row36 = (F, [8]), (F, [36])
five = helper.make_tensor("five", T.INT32, [], [5])
grouped = [(F, [2, 5, 64]), (F, [2, 5, 32]), (F, [2, 5, 32]), "", "", (T.INT32, [2]), "five"]


def of_ms(op, inputs, attrs=None, outputs=("y",), held=()):
    return model(op, inputs, attrs, held, outputs, domain=MS)


# the refusal -> a model, and the op's opset if it is not 21
UNSUPPORTED = {
    "this op is not supported": model("TfIdfVectorizer", [x]),
    "this op is supported from opset 7 to 9": model("Upsample", [image, "scales"], held=[scales]),
    "the op's domain 'com.example' is not supported": model("Some", [x], domain="com.example"),
    "this op of domain 'com.microsoft' is not supported": of_ms("CropAndResize", [x, x]),
    "attribute 'bits' is 3, expected 2, 4 or 8":
        of_ms("MatMulNBits", [x, "b", "one"], {"K": 3, "N": 1, "bits": 3, "block_size": 16},
              held=[helper.make_tensor("b", U, [1, 1, 6], bytes(6), raw=True), one]),
    "channels last":
        of_ms("QLinearGlobalAveragePool", [(U, [1, 6, 6, 2]), "one", "nil", "one", "nil"],
              {"channels_last": 1}, held=[one, nil]),
    "over several axes (attribute 'opset' is 12)":
        of_ms("QLinearSoftmax", [(U, [1, 6, 2]), "one", "nil", "one", "nil"],
              {"opset": 12, "axis": 1}, held=[one, nil]),
    "statistics, which only training needs":
        of_ms("SkipLayerNormalization", [tokens, tokens, row8], outputs=("y", "m")),
    "a skip with channels first":
        of_ms("SkipGroupNorm", [image, (F, [2]), (F, [2]), image],
              {"channels_last": 0, "groups": 1}),
    "a scale other than 1, or packed sequences":
        of_ms("RotaryEmbedding", [tokens, (I, [2, 5]), (F, [9, 4]), (F, [9, 4])], {"scale": 2.0}),
    "a cache that is shared (input 6)":
        of_ms("Attention", [tokens, (F, [8, 36]), row36, "", "", "", (T.INT32, [1])],
              {"num_heads": 3}),
    "attribute 'do_rotary' is not 0":
        of_ms("Attention", [tokens, (F, [8, 36]), row36], {"num_heads": 3, "do_rotary": 1}),
    "attribute 'past_present_share_buffer' is not 0":
        of_ms("QAttention", [(U, [2, 5, 8]), (U, [8, 36]), row36, "one", "one"],
              {"num_heads": 3, "past_present_share_buffer": 1}, held=[one]),
    "a mask of 3 lengths for 2 sequences":
        of_ms("Attention", [tokens, (F, [8, 36]), row36, (T.INT32, [3])], {"num_heads": 3}),
    "a mask of rank 5":
        of_ms("Attention", [tokens, (F, [8, 36]), row36, (T.INT32, [1] * 5)], {"num_heads": 3}),
    "its scores as an output":
        of_ms("MultiHeadAttention", [(F, [2, 5, 12])] * 3, {"num_heads": 3},
              outputs=("y", "k", "v", "qk")),
    "attention that is not causal":
        of_ms("GroupQueryAttention", grouped, {"num_heads": 4, "kv_num_heads": 2, "causal": 0},
              held=[five]),
    "'x6' must be known when the plan is built, and is computed from an input":
        of_ms("GroupQueryAttention", grouped[:5] + [(T.INT32, [2]), (T.INT32, [])],
              {"num_heads": 4, "kv_num_heads": 2}),
    "input 0 is BOOL, expected one of FP16, BF16, FP32, FP64": model("Sin", [(B, [2])]),
    "input 0 is INT4, which only DequantizeLinear and Cast read, as a constant":
        model("Neg", ["packed"], held=[packed]),
    "attribute 'axes' has 300 values, the limit is 256":
        model("ReduceSum", [x], {"axes": [0] * 300}, opset=11),
    "'x1' must be known when the plan is built, and is computed from an input":
        model("Reshape", [x, (I, [2])]),
    "'many' has more than 256 values": model("Reshape", [x, "many"], held=[many]),
    "a value that is neither a dense tensor nor numbers":
        model("Constant", [], {"value_string": "s"}),
    "of rank 9, the limit is 8":
        model("ConstantOfShape", ["n"], held=[ints("n", *nine)]),
    "to rank 9, the limit is 8 (Reshape)": model("Reshape", [x, "n"], held=[ints("n", *nine)]),
    "to rank 9, the limit is 8 (Unsqueeze)":
        model("Unsqueeze", [(F, [1] * 8), "n"], held=[ints("n", 0)]),
    "to rank 9, the limit is 8 (Expand)": model("Expand", [x, "n"], held=[ints("n", *nine)]),
    "values, the limit is":
        model("Range", ["a", "b", "c"], held=[ints("a", 0, dims=[]), ints("b", 1 << 40, dims=[]),
                                              ints("c", 1, dims=[])]),
    "input 0 is UINT8, expected one of INT16":
        model("Range", ["a"] * 3, held=[helper.make_tensor("a", U, [], [1])]),
    "of that element type": model("EyeLike", [x], {"dtype": T.STRING}),
    "-1 values, expected 1 to": model("HannWindow", ["a"], held=[ints("a", -1, dims=[])]),
    "of INT32": model("HannWindow", ["a"], {"output_datatype": T.INT32},
                      held=[ints("a", 4, dims=[])]),
    "a term of more than": model("Einsum", [x], {"equation": "abcdefghijklmnop->a"}),
    "operands, expected 1 to": model("Einsum", [(F, [1])] * 40,
                                     {"equation": ",".join(["a"] * 40) + "->a"}),
    "a product of more than": model("Einsum", [(F, [1] * 5), (F, [1] * 5), (F, [1] * 6)],
                                    {"equation": "abcde,fghij,abcdef->ghij"}),
    "attribute 'reduction' is none of none, add, mul, max, min":
        model("ScatterElements", [x, (I, [2, 3]), x], {"reduction": "odd"}),
    "alpha or beta other than 1 with INT32 operands":
        model("Gemm", [(T.INT32, [2, 2])] * 2, {"alpha": 2.0}),
    "output 1, which only training needs":
        model("BatchNormalization", [image] + [(F, [2])] * 4, {"training_mode": 0},
              outputs=("y", "m"), opset=13),
    "in training mode": model("BatchNormalization", [image] + [(F, [2])] * 4,
                              {"is_test": 0}, opset=6),
    "with statistics for each place (spatial = 0)":
        model("BatchNormalization", [image] + [(F, [2])] * 4, {"spatial": 0}, opset=7),
    "p = 3": model("LpNormalization", [x], {"p": 3}),
    "sparse tensors are not supported":
        model("Constant", [], {"sparse_value": helper.make_sparse_tensor(
            helper.make_tensor("", F, [1], [2.0]), helper.make_tensor("", I, [1], [4]), [2, 3])}),
    "an output shape smaller than the one its window gives":
        model("MaxUnpool", [image, (I, [1, 2, 6, 6]), "n"], {"kernel_shape": [2, 2],
                                                             "strides": [2, 2]},
              held=[ints("n", 1, 2, 11, 12)]),
    "quantised to INT32": model("QuantizeLinear", [x, (F, [])], {"output_dtype": T.INT32}),
    "in blocks of a tensor of rank 8":
        model("DequantizeLinear", [(U, [2] * 8), (F, [2] * 8)], {"block_size": 1, "axis": 0}),
    "to FLOAT8E4M3FN without saturation":
        model("QuantizeLinear", [x, (F, [])], {"output_dtype": T.FLOAT8E4M3FN, "saturate": 0}),
    "input 0 is FLOAT8E4M3FN, which only": model("Neg", ["eighths"], held=[eighths]),
    "to FLOAT8E4M3FN without saturation (Cast)":
        model("Cast", [x], {"to": T.FLOAT8E4M3FN, "saturate": 0}),
    "attribute 'output_dtype' is FLOAT8E5M2":
        model("QuantizeLinear", [x, (F, [])], {"output_dtype": T.FLOAT8E5M2}),
    "this value of attribute":
        model("Resize", [image, "", "scales"], {"coordinate_transformation_mode": "odd"},
              held=[scales]),
    "attribute 'coordinate_transformation_mode'":
        model("Resize", [image, "", "scales"], held=[scales], opset=13,
              attrs={"coordinate_transformation_mode": "tf_half_pixel_for_nn"}),
    "attribute 'mode' is none of constant, reflect, edge, wrap":
        model("Pad", [x, "pads"], {"mode": "odd"}, held=[pads]),
    "with the value 16777217, which fp32 does not hold":
        model("Pad", [(I, [2, 3]), "pads", "big"], held=[pads, big]),
    "attribute 'approximate' is neither none nor tanh": model("Gelu", [x], {"approximate": "odd"}),
    "to element type STRING": model("Cast", [x], {"to": T.STRING}),
    "in training mode: its output is random":
        model("Dropout", [x, "one", "yes"],
              held=[one, helper.make_tensor("yes", B, [], [True])]),
    "its mask: what it holds outside of training was not said yet":
        model("Dropout", [x], outputs=("y", "mask"), opset=7),
    "a transform of 8192 points": model("DFT", [(F, [1, 8192, 1])], {"axis": 1}, opset=17),
    "1048576 bands of 64 points":
        model("MelWeightMatrix", ["bands", "points", "points", "low", "one"],
              held=[ints("bands", 1 << 20, dims=[]), ints("points", 64, dims=[]), low, one]),
    "of more than 4194304 values": model("Unique", ["wide"], held=[wide]),
    "activation 'Odd'": model("RNN", [(F, [2, 1, 3]), (F, [1, 4, 3]), (F, [1, 4, 4])],
                                 {"hidden_size": 4, "activations": ["Odd"]}),
}

def scale_of(*values, dims=()):
    return helper.make_tensor("s", F, dims, values)


def quantised(op, kind, scale, zero=None, **attrs):
    operands = [(kind, [2, 3]), "s"] + ([zero] if zero else [])
    return model(op, operands, attrs, [scale])


QCONV = [(U, [1, 2, 4, 4]), "s", (U, []), (T.INT8, [3, 2, 1, 1]), (F, []), (T.INT8, []), (F, []),
         (U, [])]

def nbits(weights=(U, [2, 2, 8]), scales=4, zeros=None, groups=None, a=(F, [5, 20]), more=(),
          **attrs):
    """MatMulNBits of 20 rows and 2 columns in blocks of 16, but for what is given."""
    def held_one(name, kind, shape, value=1):
        n = 1
        for d in shape:
            n *= d
        return helper.make_tensor(name, kind, shape, [value] * n)
    held = [held_one("b", *weights), held_one("s", F, [scales], *more)]
    names = [a, "b", "s", "z" if zeros else "", "g" if groups else ""]
    held += [held_one("z", *zeros)] if zeros else []
    held += [held_one("g", *groups)] if groups else []
    return of_ms("MatMulNBits", names, {"K": 20, "N": 2, "block_size": 16, **attrs}, held=held)


INVALID = {
    "attributes 'N' and 'K' are 0 and 20": nbits(N=0),
    "attributes 'N' and 'K' are 2 and -3": nbits(K=-3),
    "attribute 'block_size' is 8, expected a power of two from 16 on": nbits(block_size=8),
    "attribute 'block_size' is 24, expected a power of two from 16 on": nbits(block_size=24),
    "its input has 20 columns, attribute 'K' is 21": nbits(K=21),
    "its input has 0 columns, attribute 'K' is 20": nbits(a=(F, [])),
    "its weights have 48 elements, expected 32": nbits(weights=(U, [2, 3, 8])),
    "its weights are INT32, expected UINT8": nbits(weights=(T.INT32, [2, 2, 8])),
    "its scales have 5 elements, expected 4": nbits(scales=5),
    "its zero points have 4 elements, expected 2": nbits(zeros=(U, [4])),
    "its zero points have 2 elements, expected 4": nbits(zeros=(F, [2])),
    "its zero points are INT32": nbits(zeros=(T.INT32, [4])),
    "its groups have 19 elements, expected 20": nbits(groups=(T.INT32, [19])),
    "row 0 is in group 2 of 2": nbits(groups=(T.INT32, [20], 2)),
    "row 0 is in group -1 of 2": nbits(groups=(T.INT32, [20], -1)),
    "a weight is": nbits(more=(float("inf"),)),
    "its scale is 0, expected a number above 0": quantised("QuantizeLinear", F, scale_of(0)),
    "its scale is 0, expected a number": quantised("DequantizeLinear", U, scale_of(0)),
    "its scale is -1, expected a number": quantised("DequantizeLinear", U, scale_of(-1)),
    "its scale is nan, expected a number":
        quantised("DequantizeLinear", U, scale_of(1, float("nan"), 1, dims=[3])),
    "its scale is inf, expected a number": quantised("QuantizeLinear", F, scale_of(float("inf"))),
    "its scale is -2, expected a number": model("QLinearConv", QCONV, held=[scale_of(-2)]),
    "its scale is INT32, expected a float": model("DequantizeLinear", [(U, [2]), (T.INT32, [])]),
    "its zero point is [2], its scale [3]":
        quantised("DequantizeLinear", U, scale_of(1, 1, 1, dims=[3]), (U, [2])),
    "its scale is [2], expected a value for each of 3 along axis 1":
        quantised("DequantizeLinear", U, scale_of(1, 1, dims=[2])),
    "its scale is [2,3], expected a value for each of 3 along axis 1":
        quantised("QuantizeLinear", F, scale_of(*[1] * 6, dims=[2, 3])),
    "its scale is [3], expected a value for each of 1 along axis 0":
        model("DequantizeLinear", [(U, [1, 3]), "s"], {"axis": 0},
              [scale_of(1, 1, 1, dims=[3])]),
    "36 columns are not those of queries, keys and values":
        of_ms("Attention", [tokens, (F, [8, 36]), row36],
              {"num_heads": 3, "qkv_hidden_sizes": [12, 6, 18]}),
    "whose last dimension 15 does not divide":
        of_ms("Attention", [tokens, (F, [8, 36]), row36], {"num_heads": 5}),
    "attribute 'num_heads' is 0, expected 1 to":
        of_ms("Attention", [tokens, (F, [8, 36]), row36]),
    "attribute 'kv_num_heads' is 9223372036854775807, expected 1 to":
        of_ms("GroupQueryAttention", grouped, {"num_heads": 4, "kv_num_heads": 2**63 - 1},
              held=[five]),
    "a window from -2 before a query to -1 behind it":
        model("Attention", [heads] * 3, {"left_window_size": -2}, opset=23),
    "a scale or zero point of its weights is [3], expected 1 or [1,16]":
        of_ms("DynamicQuantizeLSTM",
              [(F, [2, 1, 3]), (U, [1, 3, 16]), (U, [1, 4, 16]), *[""] * 5, (F, [3]), (U, [1]),
               (F, [1]), (U, [1])], {"hidden_size": 4}),
    "a scale or zero point of its weights is [1,4], expected 1 or [1,16]":
        of_ms("DynamicQuantizeLSTM",
              [(F, [2, 1, 3]), (U, [1, 3, 16]), (U, [1, 4, 16]), *[""] * 5, (F, [1]), (U, [1]),
               (F, [1]), (U, [1, 4])], {"hidden_size": 4}),
    "W is [1,3], expected rank 3":
        of_ms("DynamicQuantizeLSTM",
              [(F, [2, 1, 3]), (U, [1, 3]), (U, [1, 4, 16]), *[""] * 5, (F, [1]), (U, [1]),
               (F, [1]), (U, [1])], {"hidden_size": 4}),
    "attribute 'hidden_size' is 9223372036854775807":
        model("LSTM", [(F, [2, 1, 3]), (F, [1, 16, 3]), (F, [1, 16, 4])],
              {"hidden_size": 2**63 - 1}),
    "a past of rank 4, expected [2,B,H,P,D]":
        of_ms("Attention", [tokens, (F, [8, 36]), row36, "", heads], {"num_heads": 3}),
    "past keys and past values come together":
        of_ms("MultiHeadAttention", [(F, [2, 5, 12])] * 3 + ["", "", "", heads], {"num_heads": 3}),
    "its bias does not fit queries, keys and values":
        of_ms("MultiHeadAttention", [(F, [2, 5, 12])] * 3 + [(F, [30])], {"num_heads": 3}),
    "an operand of rank 3, expected 5 with 3 parts":
        of_ms("MultiHeadAttention", [(F, [2, 5, 12])], {"num_heads": 3}),
    "5 keys for 6 queries":
        of_ms("GroupQueryAttention", [(F, [2, 6, 64]), (F, [2, 6, 32]), (F, [2, 6, 32])] +
              grouped[3:], {"num_heads": 4, "kv_num_heads": 2}, held=[five]),
    "queries of rank 3 for 5 heads and 2 of the keys":
        of_ms("GroupQueryAttention", grouped, {"num_heads": 5, "kv_num_heads": 2}, held=[five]),
    "4 heads do not divide by 3 of the keys":
        model("Attention", [(F, [2, 4, 5, 4]), (F, [2, 3, 5, 4]), (F, [2, 3, 5, 4])], opset=23),
    "attribute 'qk_matmul_output_mode' is 4":
        model("Attention", [heads] * 3, {"qk_matmul_output_mode": 4}, opset=23),
    "mask [5,6] does not broadcast to [2,3,5,5]":
        model("Attention", [heads] * 3 + [(F, [5, 6])], opset=23),
    "angles for 10 columns of a head that has 4":
        model("RotaryEmbedding", [heads, (F, [9, 5]), (F, [9, 5]), (I, [2, 5])], opset=23),
    "attribute 'rotary_embedding_dim' is 2, and there are 2 angles":
        model("RotaryEmbedding", [heads, (F, [9, 2]), (F, [9, 2]), (I, [2, 5])],
              {"rotary_embedding_dim": 2}, opset=23),
    "an input of rank 3 and 0 heads":
        model("RotaryEmbedding", [tokens, (F, [9, 2]), (F, [9, 2]), (I, [2, 5])], opset=23),
    "Z has another shape than the result":
        of_ms("FusedConv", [image, (F, [4, 2, 3, 3]), "", image], {"activation": "Relu"}),
    "its last dimension, 3, has no two halves": of_ms("BiasSplitGelu", [x, (F, [3])]),
    "skip or bias does not broadcast to the input":
        of_ms("SkipLayerNormalization", [(F, [1, 5, 8]), tokens, row8]),
    "9 positions, and a table that has fewer":
        of_ms("EmbedLayerNormalization", [(T.INT32, [2, 9]), "", (F, [7, 8]), (F, [4, 8]), "",
                                          row8, row8]),
    "its mask has another shape than the token ids":
        of_ms("EmbedLayerNormalization", [(T.INT32, [2, 4]), "", (F, [7, 8]), (F, [4, 8]), "",
                                          row8, row8, (T.INT32, [2, 5])]),
    "attribute 'activation' is 2, expected 0 or 1":
        of_ms("GroupNorm", [(F, [1, 4, 4, 8]), row8, row8], {"groups": 2, "activation": 2}),
    "and 0 groups, expected rank 4 and a group":
        of_ms("GroupNorm", [(F, [1, 4, 4, 8]), row8, row8]),
    "1 inputs, expected at least 2": model("Add", [x]),
    "an index of size 3 and 2": model("Einsum", [x, (F, [2, 2])], {"equation": "ab,bc->ac"}),
    "3 inputs, expected at most 2": model("Add", [x, x, x]),
    "2 outputs, expected at most 1": model("Add", [x, x], outputs=("y", "z")),
    "input 0 is missing": model("Add", ["", x]),
    "attribute 'colour' is none of this op's": model("Add", [x, x], {"colour": 1}),
    "attribute 'keepdims' is 2, expected 0 or 1": model("ReduceMean", [x], {"keepdims": 2}),
    "attribute 'is_causal' is -1, expected 0 or 1":
        model("Attention", [heads] * 3, {"is_causal": -1}, opset=23),
    "attribute 'keepdims' is FLOAT, expected INT": model("ReduceMean", [x], {"keepdims": 1.5}),
    "attribute 'alpha' is not a number": model("Elu", [x], {"alpha": float("nan")}),
    "attribute 'axis' is FLOAT, expected INT": model("Softmax", [x], {"axis": 1.5}),
    "attribute 'axis' is INTS, expected INT": model("Softmax", [x], {"axis": [1]}),
    "attribute 'mode' is INT, expected STRING": model("Pad", [x, "pads"], {"mode": 1}, held=[pads]),
    "axis 2 is outside a tensor of rank 2": model("Softmax", [x], {"axis": 2}),
    "inputs [2,3] and [2,3] do not fit together": model("MatMul", [x, x]),
    "shapes [2,3] and [2,4] do not broadcast": model("Add", [x, (F, [2, 4])]),
    "input 1 is INT64, not FP32 as the first one": model("Add", [x, (I, [2, 3])]),
    "('nobody') is written by no node before it": model("Add", [x, "nobody"]),
    "kernel dimension": model("Conv", [image, (F, [4, 2, 3, 3])], {"kernel_shape": [2, 2]}),
    "its zero point is INT8, its input UINT8":
        model("DequantizeLinear", [(U, [2]), (F, []), (T.INT8, [])]),
    "does not have a value for each block of 2":
        model("DequantizeLinear", [(U, [4, 3]), (F, [3, 3])], {"block_size": 2, "axis": 0}),
}


def graph_level():
    """Refusals that do not concern a node."""
    sequence = helper.make_tensor_sequence_value_info("x0", F, [2])
    a = model("Neg", [x])
    a.graph.input[0].CopyFrom(sequence)
    b = model("Neg", [(T.STRING, [2])])
    c = model("Neg", [(F, None)])
    d = model("Neg", [x], opset=99)
    e = model("Concat", [(F, [1])] * 70, {"axis": 0})
    f = helper.make_model(helper.make_graph(
        [helper.make_node("Neg", ["x0"], [f"y{i}"]) for i in range(70)], "g",
        [helper.make_tensor_value_info("x0", F, [1])],
        [helper.make_tensor_value_info(f"y{i}", F, [1]) for i in range(70)]), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21)])
    g = model("Neg", [x])
    g.graph.sparse_initializer.add()
    to = {"to": T.FLOAT8E4M3FN}
    i = model("Cast", [x], to)
    j = model("QuantizeLinear", [x, (F, []), "zero"])
    j.graph.input.append(helper.make_tensor_value_info("z", F, []))
    j.graph.node.insert(0, helper.make_node("Cast", ["z"], ["zero"], **to))
    k = model("Foo", [x], domain="my")
    k.functions.append(helper.make_function("my", "Bar", ["a"], ["b"], [], []))
    k.functions.append(helper.make_function("my", "Foo", ["a"], ["b"],
                                            [helper.make_node("Neg", ["a"], ["b"])],
                                            [helper.make_opsetid("", 21)]))
    h = model("Neg", ["s"], held=[helper.make_tensor("s", T.STRING, [1], [b"s"])])
    return {"input 'x0' is not a tensor": a, "input 'x0' has element type STRING (8)": b,
            "input 'x0' has no shape": c, "opset 99, the newest that is known is": d,
            "more than 64 inputs": e, "more than 64 outputs": f, "sparse initializers": g,
            "tensor 's': element type STRING (8)": h, "output 'y' has element type": i,
            "a zero point in FP8 that is computed": j,
            "'Foo' of domain 'my' is a function of the model; inline it": k}


def refuse_texts():
    """The formats given to map_refuse, as regular expressions."""
    for path in sorted((ROOT / "engine/import").glob("*.c")):
        for call in re.findall(r'\bmap_refuse\(m,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', path.read_text()):
            text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call))
            if text != "%s":
                parts = re.split(r"%[.*0-9]*(?:ll|l|z)?[a-z]", text)
                yield path.name, text, ".*".join(re.escape(part) for part in parts)


def outcomes(models):
    """Returns the importer's line for each model."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, f"{i:03}.onnx") for i in range(len(models))]
        for path, one_model in zip(paths, models):
            onnx.save(one_model, path)
        done = subprocess.run([IMPORT_MODELS, *paths], capture_output=True, text=True, timeout=200)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, len(models)), done.stdout + done.stderr
    return lines


class Refusals(unittest.TestCase):
    def check(self, table, status):
        said = outcomes(list(table.values()))
        for (reason, given), text in zip(table.items(), said):
            with self.subTest(reason):
                node, opset = given.graph.node[0], given.opset_import[0].version
                opset = given.opset_import[1].version if node.domain else opset
                if reason.startswith("to "):
                    reason = reason.split(" (")[0]
                self.assertIn(reason, text)
                where = f'{status}: {node.op_type} "it" (opset {opset}): '
                self.assertTrue(text.startswith(where), f"{text}: expected {where}")
        return said

    def test_what_is_not_supported(self):
        said = self.check(UNSUPPORTED, "UNIMPLEMENTED")
        said += outcomes(list(graph_level().values()))
        for file, text, pattern in refuse_texts():
            # tests of their own: of branches, of plugins, and of late sizes
            if file in ("ops_control.c", "ops_plugin.c", "late.c") or \
                    re.search("branches|graphs within", text):
                continue
            with self.subTest(file=file, text=text):
                self.assertTrue(any(re.search(pattern, line) for line in said),
                                "no model is refused with this")

    def test_what_is_wrong(self):
        self.check(INVALID, "INVALID_ARGUMENT")

    def test_what_is_about_no_node(self):
        table = graph_level()
        for reason, text in zip(table, outcomes(list(table.values()))):
            self.assertIn(reason, text)
            self.assertTrue(text.startswith("UNIMPLEMENTED: "), text)


if __name__ == "__main__":
    unittest.main()
