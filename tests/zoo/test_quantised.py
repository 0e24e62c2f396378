#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks as onnxruntime.quantization writes them: test_quantised.py INFERCTL. Prints TAP; skipped
without onnx or onnxruntime.

A network is compared layer by layer: it is cut at every quantised activation, each piece gets
onnxruntime's integers, and the integers that it gives may differ by one. Only few do, those that a
slight rounding moves over a half (averages of integers often lie there). Where onnxruntime's
kernels saturate (sums of pairs in 16 bits, on processors without VNNI), ONNX's own evaluator says
what is right. Then the network runs as a whole.
"""
import os
import pathlib
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType,
                                          quantize_dynamic, quantize_static)
    import compare
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

BATCH = 2
INTEGERS = (np.uint8, np.int8, np.uint16, np.int16)


class Net:
    def __init__(self, seed, inputs):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.held, self.count = [], [], 0
        self.inputs = [helper.make_tensor_value_info(name, kind, shape)
                       for name, kind, shape in inputs]

    def weight(self, *shape, fan=1):
        name = f"w{len(self.held)}"
        value = self.rng.normal(0, 1 / np.sqrt(fan), shape).astype(np.float32)
        self.held.append(numpy_helper.from_array(value, name))
        return name

    def known(self, value):
        name = f"k{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, *inputs, **attrs):
        self.count += 1
        self.nodes.append(helper.make_node(op, inputs, [f"t{self.count}"], f"n{self.count}",
                                           **attrs))
        return f"t{self.count}"

    def conv(self, x, cin, cout, k=3, stride=1, group=1):
        w = self.weight(cout, cin // group, k, k, fan=cin // group * k * k / 2)
        return self.node("Conv", x, w, self.weight(cout, fan=20), kernel_shape=[k, k],
                         pads=[k // 2] * 4, strides=[stride] * 2, group=group)

    def model(self, y, shape):
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "net", self.inputs, [out], self.held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cnn():
    """Residual and depthwise blocks, both poolings, a concatenation, gates."""
    n = Net(5, [("x", TensorProto.FLOAT, ["N", 3, 24, 24])])
    x = n.node("Relu", n.conv("x", 3, 16, stride=2))
    x = n.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = n.node("Relu", n.conv(x, 16, 16))
    x = n.node("Relu", n.node("Add", n.conv(y, 16, 16), x))
    y = n.node("LeakyRelu", n.conv(x, 16, 32, k=1), alpha=0.1)
    y = n.node("Clip", n.conv(y, 32, 32, group=32), n.known(np.float32(0)),
               n.known(np.float32(6)))
    y = n.conv(y, 32, 16, k=1)
    x = n.node("Concat", x, y, axis=1)
    g = n.node("GlobalAveragePool", x)
    x = n.node("Mul", x, n.node("Sigmoid", n.conv(g, 32, 32, k=1)))
    x = n.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = n.node("Flatten", x)
    y = n.node("Gemm", x, n.weight(10, 288, fan=288), n.weight(10, fan=9), transB=1)
    return n.model(y, ["N", 10]), {"x": (3, 24, 24)}


def transformer():
    """A layer of BERT over embeddings: attention of two heads, GELU, norms."""
    n = Net(6, [("x", TensorProto.FLOAT, ["N", 12, 32])])

    def dense(x, rows, columns):
        return n.node("Add", n.node("MatMul", x, n.weight(rows, columns, fan=rows)),
                      n.weight(columns, fan=9))

    def heads(x, perm):
        x = n.node("Reshape", x, n.known(np.array([0, 12, 2, 16])))
        return n.node("Transpose", x, perm=perm)

    def norm(x):
        return n.node("LayerNormalization", x, n.known(np.ones(32, np.float32)),
                      n.weight(32, fan=9), axis=-1)

    q, k, v = dense("x", 32, 32), dense("x", 32, 32), dense("x", 32, 32)
    scores = n.node("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
    scores = n.node("Softmax", n.node("Div", scores, n.known(np.float32(4))), axis=-1)
    y = n.node("Transpose", n.node("MatMul", scores, heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    y = n.node("Reshape", y, n.known(np.array([0, 12, 32])))
    x = norm(n.node("Add", dense(y, 32, 32), "x"))
    y = dense(x, 32, 64)
    half = n.node("Mul", y, n.known(np.float32(0.5)))
    erf = n.node("Erf", n.node("Div", y, n.known(np.float32(2 ** 0.5))))
    y = n.node("Mul", half, n.node("Add", erf, n.known(np.float32(1))))
    return n.model(norm(n.node("Add", dense(y, 64, 32), x)), ["N", 12, 32]), {"x": (12, 32)}


def sequences():
    """An LSTM of both directions, then onnxruntime's attention: quantised at run time alone."""
    n = Net(7, [("x", TensorProto.FLOAT, ["N", 12, 32])])
    x = n.node("Transpose", "x", perm=[1, 0, 2])
    x = n.node("LSTM", x, n.weight(2, 64, 32, fan=32), n.weight(2, 64, 16, fan=16),
               n.weight(2, 128, fan=9), direction="bidirectional", hidden_size=16)
    x = n.node("Transpose", x, perm=[2, 0, 1, 3])
    x = n.node("Reshape", x, n.known(np.array([0, 12, 32])))
    y = n.node("Attention", x, n.weight(32, 96, fan=32), n.weight(96, fan=9), num_heads=4)
    n.nodes[-1].domain = "com.microsoft"
    model = n.model(n.node("Add", x, y), ["N", 12, 32])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, {"x": (12, 32)}


def data(shapes, seed, batch):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(0, 1, (batch, *s)).astype(np.float32) for k, s in shapes.items()}


class Reader(CalibrationDataReader):
    def __init__(self, shapes):
        self.rest = [data(shapes, seed, 4) for seed in range(4)]

    def get_next(self):
        return self.rest.pop() if self.rest else None


def open_session(model, level, **entries):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def session(model):
    """Products of UINT8 and INT8 are wrong on processors without VNNI, unless right ones are asked
    for; what sees to that is a pass, which leaves products of INT8 alone without a kernel."""
    levels = onnxruntime.GraphOptimizationLevel
    integers = any(n.op_type.startswith("QLinear") or n.op_type.endswith("Integer")
                   for n in model.graph.node)
    if integers:
        try:
            return open_session(model, levels.ORT_ENABLE_EXTENDED, x64quantprecision="1")
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            pass
    return open_session(model, levels.ORT_DISABLE_ALL)


def run_all(model, feeds):
    """Every value of the network."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    names = [o for node in whole.graph.node for o in node.output if o]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in names)
    return dict(zip(names, session(whole).run(names, feeds)))


def cut(model, values):
    """The model with an input and an output in place of each quantised activation; its feeds."""
    pieces = onnx.ModelProto()
    pieces.CopyFrom(model)
    graph = pieces.graph
    ints = [n for n, v in values.items() if v.dtype in INTEGERS and v.ndim]
    read = {i for node in graph.node for i in node.input}
    del graph.output[:]
    for given in graph.input:
        given.type.tensor_type.shape.dim[0].dim_value = BATCH
    feeds = {}
    for name in ints:
        v = values[name]
        kind = helper.np_dtype_to_tensor_dtype(v.dtype)
        graph.output.append(helper.make_tensor_value_info(name, kind, v.shape))
        if name not in read:
            continue
        feeds[f"in_{name}"] = v
        graph.input.append(helper.make_tensor_value_info(f"in_{name}", kind, v.shape))
        for node in graph.node:
            node.input[:] = [f"in_{name}" if i == name else i for i in node.input]
    del graph.value_info[:]
    return pieces, feeds


def evaluated(model, feeds):
    """ONNX's own evaluator; None where it does not know an operator."""
    from onnx.reference import ReferenceEvaluator
    names = [o.name for o in model.graph.output]
    try:
        return dict(zip(names, ReferenceEvaluator(model).run(names, feeds)))
    except (NotImplementedError, RuntimeError):
        return None


def steps_off(mine, want):
    return np.abs(mine.astype(np.int64) - want.astype(np.int64))


def check_pieces(inferctl, folder, model, feeds):
    values = run_all(model, feeds)
    pieces, more = cut(model, values)
    path = os.path.join(folder, "pieces.onnx")
    onnx.save(pieces, path)
    mine = compare.ours(inferctl, path, {**feeds, **more}, [])
    judge, errors = None, []
    for o in pieces.graph.output:
        off = steps_off(mine[o.name], values[o.name])
        if off.max(initial=0) > 1:
            judge = judge or evaluated(pieces, {**feeds, **more}) or {}
            off = steps_off(mine[o.name], judge.get(o.name, values[o.name]))
        if off.max(initial=0) > 1 or (off > 0).mean() > 0.03:
            errors.append(f"{o.name}: {off.max()} steps, {(off > 0).mean():.2%} differ")
    return errors, len(pieces.graph.output)


def check_whole(inferctl, folder, model, feeds, bound):
    path = os.path.join(folder, "whole.onnx")
    onnx.save(model, path)
    name = model.graph.output[0].name
    want = session(model).run([name], feeds)[0]
    mine = compare.ours(inferctl, path, feeds, [])[name]
    error = compare.relative_error(mine, want)
    return [] if error <= bound else [f"whole: relative error {error:.1e}"]


U8, S8, U16, S4 = QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16, QuantType.QInt4
CONTRIB = {"UseQDQContribOps": True}  # 16 and 4 bits before opset 21
WAYS = {  # of activations and weights, per channel, further options
    "U8": (U8, S8, False, {}),
    "U8_channels": (U8, S8, True, {}),
    "U8_U8": (U8, U8, False, {}),
    "S8": (S8, S8, False, {}),
    "S8_channels": (S8, S8, True, {"ActivationSymmetric": True}),
}
PAIRS = {  # what only QuantizeLinear and DequantizeLinear say
    "weights_rounded_there": (U8, S8, True, {"AddQDQPairToWeight": True}),
    "16_bits": (U16, S8, False, CONTRIB),
    "4_bits": (U8, S4, False, CONTRIB),
}


def static_variants(floats, shapes):
    """Name and file of each way to quantise the network once for all."""
    folder = os.path.dirname(floats)
    rows = [(f"QDQ_{k}", QuantFormat.QDQ, v) for k, v in {**WAYS, **PAIRS}.items()]
    rows += [(f"QOperator_{k}", QuantFormat.QOperator, v) for k, v in WAYS.items()]
    for name, form, (activations, weights, per_channel, options) in rows:
        path = os.path.join(folder, name + ".onnx")
        quantize_static(floats, path, Reader(shapes), quant_format=form, weight_type=weights,
                        activation_type=activations, per_channel=per_channel,
                        extra_options=options)
        yield name, path


def dynamic_variants(floats):
    for kind, channels in ((U8, False), (S8, False), (S8, True)):
        name = f"dynamic_{kind}" + "_channels" * channels
        path = os.path.join(os.path.dirname(floats), name + ".onnx")
        quantize_dynamic(floats, path, weight_type=kind, per_channel=channels)
        yield name, path


def variants(make, floats, shapes):
    if make != sequences:
        yield from static_variants(floats, shapes)
    yield from dynamic_variants(floats)


TRAINED = sorted((pathlib.Path(__file__).resolve().parents[2] / "models").glob("*_aware.onnx"))


def trained(inferctl, path):
    """A bundled network, which learnt while it was quantised, on smooth pictures."""
    model = onnx.load(path)
    for node in model.graph.node:  # names become names of files
        node.input[:] = [name.replace("/", "_") for name in node.input]
        node.output[:] = [name.replace("/", "_") for name in node.output]
    for held in model.graph.initializer:
        held.name = held.name.replace("/", "_")
    del model.graph.value_info[:]
    coarse = np.random.default_rng(3).integers(0, 256, (BATCH, 1, 8, 8))
    feeds = {"image": np.kron(coarse, np.ones((8, 8))).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        errors, n = check_pieces(inferctl, folder, model, feeds)
        return errors + check_whole(inferctl, folder, model, feeds, 3e-2), n


def saturates():
    """Whether this processor has onnxruntime add up products of UINT8 and INT8 in 16 bits."""
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])
    w = numpy_helper.from_array(np.full((4, 1), 127, np.int8), "w")
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "g", [x],
                              [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    plain = open_session(model, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return plain.run(None, {"x": np.full((1, 4), 255, np.uint8)})[0][0, 0] != 4 * 255 * 127


def is_beyond(model):
    """Whether onnxruntime has no right answer: its LSTM cannot be asked for right products, and
    with a scale for each channel all weights fill their range, so that two products are too much
    for 16 bits."""
    rank = {t.name: len(t.dims) for t in model.graph.initializer}
    w_scale = 8  # its input; [directions], or [directions, channels]
    return any(n.op_type == "DynamicQuantizeLSTM" and rank.get(n.input[w_scale]) == 2
               for n in model.graph.node) and saturates()


def main():
    inferctl, number, failed = sys.argv[1], 0, 0
    for path in TRAINED:
        errors, n = trained(inferctl, path)
        number += 1
        failed += bool(errors)
        print(f"{'not ok' if errors else 'ok'} {number} - {path.stem}, {n} layers")
        for line in errors:
            print(f"# {line}")
    for make in (cnn, transformer, sequences):
        with tempfile.TemporaryDirectory() as folder:
            floats = os.path.join(folder, "float.onnx")
            model, shapes = make()
            onnx.save(model, floats)
            feeds = data(shapes, 99, BATCH)
            for name, path in variants(make, floats, shapes):
                model = onnx.load(path)
                dynamic = name.startswith("dynamic")
                if is_beyond(model):
                    number += 1
                    print(f"ok {number} - {make.__name__} {name} # SKIP onnxruntime saturates here")
                    continue
                errors, n = ([], 0) if dynamic else check_pieces(inferctl, folder, model, feeds)
                errors += check_whole(inferctl, folder, model, feeds, 5e-3 if dynamic else 3e-2)
                number += 1
                failed += bool(errors)
                said = "not ok" if errors else "ok"
                print(f"{said} {number} - {make.__name__} {name}, {n} layers")
                for line in errors:
                    print(f"# {line}")
                sys.stdout.flush()
    print(f"1..{number}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
