# SPDX-License-Identifier: Apache-2.0
"""Networks as ONNX: weights are stored as FP16 behind a Cast, those of quantised ones as INT8."""
import io
import warnings

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
SMALL = 256  # weights that are not worth a Cast


def exported(network):
    warnings.simplefilter("ignore")
    file = io.BytesIO()
    torch.onnx.export(network, torch.zeros(2, 1, 64, 64), file, input_names=["image"],
                      output_names=["scores"], dynamic_axes={"image": {0: "N"}, "scores": {0: "N"}},
                      opset_version=OPSET, dynamo=False)
    return onnx.load_from_string(file.getvalue())


def weights_to_halves(model):
    """Those that FP16 holds exactly."""
    graph, casts = model.graph, []
    for i, tensor in enumerate(graph.initializer):
        value = numpy_helper.to_array(tensor)
        if value.dtype != np.float32 or value.size < SMALL:
            continue
        half = value.astype(np.float16)
        if (half.astype(np.float32) != value).any():
            continue
        name = tensor.name
        graph.initializer[i].CopyFrom(numpy_helper.from_array(half, name + ".half"))
        casts.append(helper.make_node("Cast", [name + ".half"], [name], name=name,
                                      to=TensorProto.FLOAT))
    for cast in reversed(casts):
        graph.node.insert(0, cast)


def fold_casts(graph):
    """Constants, casts and copies of them become initialisers; all of these by name."""
    known = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "Constant":
            value = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Cast" and node.input[0] in known:
            value = known[node.input[0]].astype(
                helper.tensor_dtype_to_np_dtype(node.attribute[0].i))
        elif node.op_type == "Identity" and node.input[0] in known:
            value = known[node.input[0]]
        else:
            continue
        known[node.output[0]] = value
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        graph.node.remove(node)
    return known


def weights_to_bytes(model):
    """QuantizeLinear of a constant becomes the integers that it makes."""
    graph = model.graph
    known = fold_casts(graph)
    for node in list(graph.node):
        if node.op_type != "QuantizeLinear" or node.input[0] not in known:
            continue
        value, scale, zero = (known[name] for name in node.input)
        steps = np.rint(value / scale.reshape([-1] + [1] * (value.ndim - 1)))
        graph.initializer.append(numpy_helper.from_array(
            np.clip(steps, -128, 127).astype(zero.dtype), node.output[0]))
        graph.node.remove(node)
    used = {name for node in graph.node for name in node.input}
    for tensor in list(graph.initializer):
        if tensor.name not in used:
            graph.initializer.remove(tensor)


def save(network, path):
    model = exported(network)
    weights_to_bytes(model)
    weights_to_halves(model)
    model.producer_name, model.producer_version = "inferd models/glyphs/train.py", ""
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
