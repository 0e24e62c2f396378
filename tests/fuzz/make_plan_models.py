#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models that together have most kinds of layers, and their plans, from which fuzz_plan
starts.

    make_plan_models.py INFERCTL FOLDER    writes the plans; then make_plan_seeds CORPUS FOLDER/*

Run by hand when the format of plans changes. Needs the onnx package.
"""
import pathlib
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, INT32, BOOL = (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32,
                             TensorProto.BOOL)
RANDOM = np.random.default_rng(1)
N = helper.make_node


def given(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def known(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype), name)


def ints(name, *values):
    return known(name, values, np.int64)


def weights(name, *shape):
    return known(name, RANDOM.standard_normal(shape))


def models():
    """name, nodes, inputs, outputs, constants, batches"""
    yield ("conv", [N("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), N("Relu", ["c"], ["r"]),
           N("Add", ["r", "x"], ["s"]), N("MaxPool", ["s"], ["p"], kernel_shape=[2, 2],
           strides=[2, 2]), N("GlobalAveragePool", ["p"], ["y"])], [given("x", ["N", 4, 6, 6])],
           [("y", FLOAT)], [weights("w", 4, 4, 3, 3), weights("b", 4)], "1,3")
    yield ("deconv", [N("ConvTranspose", ["x", "w"], ["c"], strides=[2, 2], output_padding=[1,
           1]), N("LRN", ["c"], ["l"], size=3), N("AveragePool", ["l"], ["y"], kernel_shape=[3,
           3], pads=[1, 1, 1, 1], ceil_mode=1)], [given("x", ["N", 2, 3, 3])], [("y", FLOAT)],
           [weights("w", 2, 3, 3, 3)], "1,3")
    yield ("gemm", [N("Gemm", ["x", "w", "b"], ["g"], transB=1), N("Softmax", ["g"], ["s"]),
           N("TopK", ["s", "k"], ["v", "i"])], [given("x", ["N", 8])], [("v", FLOAT), ("i",
           INT64)], [weights("w", 10, 8), weights("b", 10), ints("k", 3)], "1,3")
    yield ("norm", [N("LayerNormalization", ["x", "g", "b"], ["l"]), N("InstanceNormalization",
           ["l", "g3", "b3"], ["y"])], [given("x", ["N", 3, 5])], [("y", FLOAT)], [weights("g",
           5), weights("b", 5), weights("g3", 3), weights("b3", 3)], "1,3")
    yield ("lstm", [N("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=3)], [given("x",
           [4, 2, 5])], [("y", FLOAT), ("h", FLOAT)], [weights("w", 1, 12, 5), weights("r", 1, 12,
           3), weights("b", 1, 24)], "1")
    yield ("gru", [N("GRU", ["x", "w", "r"], ["y", "h"], hidden_size=3, direction="bidirectional",
           linear_before_reset=1)], [given("x", [4, 2, 5])], [("y", FLOAT), ("h", FLOAT)],
           [weights("w", 2, 9, 5), weights("r", 2, 9, 3)], "1")
    yield ("rnn", [N("RNN", ["x", "w", "r", "", "n"], ["y"], hidden_size=3)], [given("x", [4, 2,
           5]), given("n", [2], INT32)], [("y", FLOAT)], [weights("w", 1, 3, 5), weights("r", 1,
           3, 3)], "1")
    yield ("gather", [N("Gather", ["t", "i"], ["a"], axis=0), N("GatherElements", ["a", "j"],
           ["b"], axis=1), N("GatherND", ["b", "k"], ["y"])], [given("i", ["N"], INT64),
           given("j", ["N", 4], INT64), given("k", ["N", 1], INT64)], [("y", FLOAT)],
           [weights("t", 6, 4)], "2")
    yield ("scatter", [N("ScatterElements", ["x", "i", "u"], ["a"], axis=1, reduction="add"),
           N("ScatterND", ["a", "k", "v"], ["y"])], [given("x", [3, 5]), given("i", [3, 2],
           INT64), given("u", [3, 2]), given("k", [2, 1], INT64), given("v", [2, 5])], [("y",
           FLOAT)], [], "1")
    yield ("resize", [N("Resize", ["x", "", "z"], ["a"], mode="linear"), N("Resize", ["a", "",
           "z"], ["y"], mode="cubic", coordinate_transformation_mode="align_corners")],
           [given("x", ["N", 1, 3, 4])], [("y", FLOAT)], [known("z", [1, 1, 2, 1.5], np.float32)],
           "1,3")
    yield ("nms", [N("NonMaxSuppression", ["b", "s", "k", "o", "t"], ["y"])], [given("b", [1, 6,
           4]), given("s", [1, 2, 6])], [("y", INT64)], [ints("k", 3), known("o", [0.5],
           np.float32), known("t", [0.1], np.float32)], "1")
    yield ("roi", [N("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2,
           sampling_ratio=2)], [given("x", [2, 3, 5, 5]), given("r", [4, 4]), given("i", [4],
           INT64)], [("y", FLOAT)], [], "1")
    yield ("sample", [N("GridSample", ["x", "g"], ["y"], mode="bilinear",
           padding_mode="reflection")], [given("x", ["N", 2, 4, 4]), given("g", ["N", 3, 3, 2])],
           [("y", FLOAT)], [], "1,3")
    yield ("shuffle", [N("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]), N("Slice", ["a", "s", "e",
           "ax", "st"], ["b"]), N("Concat", ["b", "b"], ["c"], axis=2), N("Pad", ["c", "p"],
           ["d"], mode="reflect"), N("Tile", ["d", "t"], ["e2"]), N("Expand", ["e2", "ex"],
           ["y"])], [given("x", ["N", 2, 3, 4])], [("y", FLOAT)], [ints("s", 2, -1), ints("e", 0,
           -9), ints("ax", 1, 2), ints("st", -1, -1), ints("p", 0, 1, 0, 0, 0, 1, 0, 0), ints("t",
           1, 1, 2, 1), ints("ex", 1, 1, 1, 1)], "1,3")
    yield ("index", [N("OneHot", ["i", "d", "v"], ["a"]), N("CumSum", ["a", "ax"], ["b"],
           exclusive=1, reverse=1), N("Trilu", ["b"], ["c"], upper=0), N("ArgMax", ["c"], ["y"],
           axis=2)], [given("i", ["N", 5], INT64)], [("y", INT64), ("c", FLOAT)], [ints("d", 6),
           known("v", [0, 1], np.float32), ints("ax", 2)], "1,3")
    yield ("arith", [N("Where", ["m", "x", "z"], ["a"]), N("Cast", ["a"], ["i"], to=INT32),
           N("Mod", ["i", "k"], ["j"]), N("Cast", ["j"], ["q"], to=FLOAT), N("Pow", ["x", "q"],
           ["p"]), N("Clip", ["p"], ["l"]), N("PRelu", ["l", "s"], ["y"])], [given("x", ["N", 4]),
           given("z", ["N", 4]), given("m", ["N", 4], BOOL)], [("y", FLOAT)], [known("k", [3],
           np.int32), weights("s", 4)], "1,3")
    yield ("reduce", [N("ReduceSum", ["x", "a"], ["s"]), N("ReduceMax", ["x"], ["m"], axes=[2]),
           N("ReduceL2", ["x"], ["l"], axes=[1, 2]), N("ReduceProd", ["x"], ["p"], axes=[1])],
           [given("x", ["N", 3, 4])], [("s", FLOAT), ("m", FLOAT), ("l", FLOAT), ("p", FLOAT)],
           [ints("a", 1)], "1,3")
    yield ("quant", [N("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), N("MatMulInteger", ["q",
           "w", "z"], ["y"])], [given("x", [3, 4])], [("y", INT32), ("s", FLOAT)], [known("w",
           np.arange(8).reshape(4, 2), np.int8)], "1")
    yield ("qconv", [N("QuantizeLinear", ["x", "xs", "xz"], ["q"]), N("QLinearConv", ["q", "xs",
           "xz", "w", "ws", "wz", "ys", "yz"], ["c"]), N("DequantizeLinear", ["c", "ys", "yz"],
           ["y"])], [given("x", ["N", 2, 4, 4])], [("y", FLOAT)], [known("xs", 0.1, np.float32),
           known("xz", 3, np.uint8), known("w", np.ones((3, 2, 3, 3)), np.int8), known("ws", 0.2,
           np.float32), known("wz", 0, np.int8), known("ys", 0.3, np.float32), known("yz", 7,
           np.uint8)], "1,3")
    yield ("det", [N("Det", ["x"], ["y"])], [given("x", ["N", 3, 3])], [("y", FLOAT)], [], "1,3")
    yield ("attention", [N("MatMul", ["x", "wq"], ["q"]), N("MatMul", ["x", "wk"], ["k"]),
           N("MatMul", ["x", "wv"], ["v"]), *[N("Reshape", [a, "sh"], [a + "r"]) for a in "qkv"],
           N("Transpose", ["qr"], ["qt"], perm=[0, 2, 1, 3]), N("Transpose", ["kr"], ["kt"],
           perm=[0, 2, 3, 1]), N("Transpose", ["vr"], ["vt"], perm=[0, 2, 1, 3]), N("MatMul",
           ["qt", "kt"], ["sc"]), N("Mul", ["sc", "al"], ["sc2"]), N("Softmax", ["sc2"], ["sm"]),
           N("MatMul", ["sm", "vt"], ["o"]), N("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
           N("Reshape", ["ot", "so"], ["y"])], [given("x", ["N", 4, 8])], [("y", FLOAT)],
           [weights("wq", 8, 8), weights("wk", 8, 8), weights("wv", 8, 8), ints("sh", 0, 4, 2, 4),
           ints("so", 0, 4, 8), known("al", 0.5, np.float32)], "1,3")
    yield ("maxunpool", [N("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]),
           N("MaxUnpool", ["p", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])], [given("x",
           ["N", 1, 4, 4])], [("y", FLOAT)], [], "1,3")
    yield ("depthwise", [N("Conv", ["x", "w"], ["c"], group=8, pads=[1, 1, 1, 1]),
           N("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]), N("HardSwish", ["n"],
           ["h"]), N("Conv", ["h", "p"], ["y"])], [given("x", ["N", 8, 5, 5])], [("y", FLOAT)],
           [weights("w", 8, 1, 3, 3), weights("s", 8), weights("b", 8), weights("m", 8),
           known("v", np.ones(8), np.float32), weights("p", 16, 8, 1, 1)], "1,3")
    yield ("late", [N("Relu", ["x"], ["r"]), N("NonZero", ["r"], ["n"]), N("Transpose", ["n"],
           ["t"]), N("GatherND", ["r", "t"], ["v"]), N("Mul", ["v", "k"], ["y"])], [given("x", [3,
           4])], [("y", FLOAT, ["n"]), ("t", INT64, ["n", 2]), ("r", FLOAT, [3, 4])], [known("k",
           0.5)], "1")
    yield ("late_boxes", [N("Sigmoid", ["s"], ["p"]), N("NonMaxSuppression", ["b", "p", "k", "o"],
           ["i"]), N("Shape", ["i"], ["h"]), N("Gather", ["h", "z"], ["c"]), N("Range", ["z", "c",
           "u"], ["y"])], [given("b", [1, 6, 4]), given("s", [1, 2, 6])], [("i", INT64, ["n", 3]),
           ("y", INT64, ["n"])], [ints("k", 3), known("o", 0.5), known("z", 0, np.int64),
           known("u", 1, np.int64)], "1")
    body = helper.make_graph(
        [N("Add", ["a", "d"], ["b"]), N("Less", ["b", "f"], ["w"]), N("Identity", ["b"], ["e"])],
        "body", [given("i", [], INT64), given("g", [], BOOL), given("a", [])],
        [given("w", [], BOOL), given("b", []), given("e", [])])
    yield ("late_loop", [N("ReduceMax", ["x"], ["m"], keepdims=0), N("Max", ["m", "f4"], ["d"]),
           N("Loop", ["n", "t", "f4"], ["s", "y"], body=body)], [given("x", [5])], [("s", FLOAT,
           []), ("y", FLOAT, ["n"])], [known("n", 9, np.int64), known("t", True, bool), known("f",
           2.0), known("f4", 0.25)], "1")


def write(inferctl, folder, name, nodes, inputs, outputs, constants, batches):
    ends = [helper.make_tensor_value_info(n, dtype, shape[0] if shape else None)
            for n, dtype, *shape in outputs]
    graph = helper.make_graph(nodes, name, inputs, ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    for kind, options in (("reference", ["--reference-only"]), ("all", [])):
        subprocess.run([inferctl, "build", path, "-o", folder / f"{name}-{kind}", "--no-tune",
                        "--threads", "1", "--timing-cache", "", "--batch", batches, *options],
                       check=True)
    path.unlink()


def main():
    inferctl, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    for row in models():
        write(inferctl, folder, *row)


if __name__ == "__main__":
    main()
