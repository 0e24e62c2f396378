#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors without elements, and of rank 0: check_empty.py RUN_CASES

Each operator for which ONNX allows them is run node by node and through builder, plan and runtime,
and compared with onnx's reference. No case may be wrong, be refused or crash.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def f32(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) - 2


def i64(*values):
    return np.asarray(values, np.int64)


EMPTY = [(0,), (0, 3), (2, 0), (2, 0, 4)]
ONE_OPERAND = ["Relu", "Sigmoid", "Exp", "Neg", "Identity", "Abs", "Floor", "Gelu", "Softplus",
               "IsNaN", "Shape", "Size", "NonZero"]
TWO_OPERANDS = ["Add", "Sub", "Mul", "Div", "Max", "Pow", "Less", "Equal"]

# operator, operands (a tuple: held constants), attributes
CASES = []
for x in [*EMPTY, ()]:
    CASES += [(op, [f32(*x)], {}) for op in ONE_OPERAND if op != "NonZero" or x]
    CASES += [(op, [f32(*x), f32(*x)], {}) for op in TWO_OPERANDS]
    CASES += [(op, [f32(*x), f32()], {}) for op in TWO_OPERANDS]
    CASES += [("Cast", [f32(*x)], {"to": onnx.TensorProto.INT64}),
              ("Clip", [f32(*x), f32(), f32()], {}),
              ("Where", [f32(*x) > 0, f32(*x), f32(*x)], {}),
              ("Reshape", [f32(*x), (i64(*x, 1),)], {"allowzero": 1}),
              ("Unsqueeze", [f32(*x), (i64(0),)], {}),
              ("Transpose", [f32(*x)], {}),
              ("Expand", [f32(*x), (i64(*x),)], {}),
              ("ReduceSum", [f32(*x)], {"keepdims": 0}),
              ("ReduceProd", [f32(*x)], {"keepdims": 1}),
              ("QuantizeLinear", [f32(*x), f32() + 3, np.uint8(3)], {})]
for x in EMPTY:
    rank = len(x)
    CASES += [("Concat", [f32(*x), f32(*x)], {"axis": rank - 1}),
              ("Hardmax", [f32(*x)], {}),
              ("Softmax", [f32(*x)], {"axis": 0}),
              ("Slice", [f32(*x), (i64(0),), (i64(9),), (i64(0),)], {}),
              ("Pad", [f32(*x), (i64(*[1] * 2 * rank),)], {}),
              ("Tile", [f32(*x), (i64(*[2] * rank),)], {}),
              ("CumSum", [f32(*x), (np.asarray(0, np.int64),)], {}),
              ("Gather", [f32(*x), i64()], {}),
              ("Flatten", [f32(*x)], {})]
CASES += [("MatMul", [f32(0, 3), f32(3, 4)], {}), ("MatMul", [f32(2, 0), f32(0, 4)], {}),
          ("MatMul", [f32(2, 3), f32(3, 0)], {}), ("MatMul", [f32(0, 2, 3), f32(3, 2)], {}),
          ("Gemm", [f32(0, 3), f32(3, 4), f32(4)], {}),
          ("Gemm", [f32(2, 0), f32(0, 4), f32(4)], {}),
          ("Conv", [f32(0, 2, 5, 5), f32(3, 2, 3, 3)], {}),
          ("MaxPool", [f32(0, 2, 4, 4)], {"kernel_shape": [2, 2]}),
          ("GlobalAveragePool", [f32(0, 2, 4, 4)], {}),
          ("BatchNormalization", [f32(0, 2, 3)] + [abs(f32(2))] * 4, {}),
          ("LayerNormalization", [f32(0, 3), f32(3)], {}),
          ("Gather", [f32(3, 2), i64().reshape(0, 2)], {}),
          ("ScatterND", [f32(3, 2), i64().reshape(0, 1), f32(0, 2)], {}),
          ("MatMulInteger", [np.zeros((0, 3), np.uint8), (np.ones((3, 2), np.int8),)], {}),
          ("MatMulInteger", [np.zeros((2, 0), np.uint8), (np.ones((0, 2), np.int8),)], {}),
          ("ConvInteger", [np.zeros((0, 2, 5, 5), np.uint8), (np.ones((3, 2, 3, 3), np.int8),)],
           {}),
          ("TopK", [f32(0, 3), (i64(2),)], {}), ("OneHot", [i64(), (i64(4),), f32(2)], {})]


def model(op, operands, attrs):
    info, held, names = [], [], []
    for i, operand in enumerate(operands):
        names.append(f"x{i}")
        if isinstance(operand, tuple):
            held.append(numpy_helper.from_array(operand[0], f"x{i}"))
        else:
            kind = helper.np_dtype_to_tensor_dtype(operand.dtype)
            info.append(helper.make_tensor_value_info(f"x{i}", kind, operand.shape))
    outputs = [f"y{i}" for i in range(2 if op == "TopK" else 1)]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attrs)], "g", info,
                              [onnx.ValueInfoProto(name=name) for name in outputs], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write(folder, op, operands, attrs):
    made = model(op, operands, attrs)
    inputs = {f"x{i}": x for i, x in enumerate(operands) if not isinstance(x, tuple)}
    with np.errstate(all="ignore"):
        outputs = ReferenceEvaluator(made).run(None, inputs)
    for info, y in zip(made.graph.output, outputs):
        y = np.asarray(y)
        kind = helper.np_dtype_to_tensor_dtype(y.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, y.shape))
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(made, folder / "model.onnx")
    for kind, arrays in (("input", inputs.items()),
                         ("output", zip([o.name for o in made.graph.output], outputs))):
        for i, (name, array) in enumerate(arrays):
            tensor = numpy_helper.from_array(np.asarray(array), name)
            (data / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def main():
    made = 0
    with tempfile.TemporaryDirectory() as root:
        for i, (op, operands, attrs) in enumerate(CASES):
            shapes = ",".join(str(list(np.shape(x[0] if isinstance(x, tuple) else x)))
                              for x in operands)
            try:
                write(pathlib.Path(root, f"{i:03} {op}({shapes})"), op, operands, attrs)
                made += 1
            except Exception as error:  # the reference fails: nothing to compare
                print(f"{op}({shapes}): no reference: {str(error)[:80]}", flush=True)
        code = 0
        for how in ([], ["--engine"]):
            code |= subprocess.run([sys.argv[1], *how, "--floor", str(made), root],
                                   check=False).returncode
    return code or made < len(CASES) * 9 // 10


if __name__ == "__main__":
    sys.exit(main())
