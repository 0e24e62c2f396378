# SPDX-License-Identifier: Apache-2.0
"""One model of many nodes, and what it is run with."""
import numpy as np
from onnx import TensorProto, helper


class Bundle:
    """Independent nodes in one model, each with operands and outputs of its own."""

    def __init__(self, opset, rng):
        self.opset, self.rng = opset, rng
        self.nodes, self.weights, self.feeds, self.outputs, self.told = [], [], {}, {}, {}

    def feed(self, array):
        name = f"x{len(self.feeds)}"
        self.feeds[name] = np.ascontiguousarray(array)
        return name

    def data(self, *shape, scale=1.0, dtype=np.float32):
        return self.feed((self.rng.standard_normal(shape) * scale).astype(dtype))

    def constant(self, value, dtype=np.int64):
        array, name = np.asarray(value, dtype), f"c{len(self.weights)}"
        self.weights.append(helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                               array.shape, array.tobytes(), raw=True))
        return name

    def node(self, op, *inputs, types=(TensorProto.FLOAT,), **attributes):
        """An output of type 0 is left out; one of type None is none of the model's outputs."""
        names = [f"y{len(self.nodes)}_{i}" if kind != 0 else "" for i, kind in enumerate(types)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        for name, dtype in zip(names, types):
            if dtype:
                self.outputs[name] = dtype
                self.told[name] = f"{op} {attributes}"

    def save(self, path):
        graph = helper.make_graph(
            self.nodes, "bundle",
            [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for k, v in self.feeds.items()],
            [helper.make_tensor_value_info(k, t, None) for k, t in self.outputs.items()],
            self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset),
                                                        helper.make_opsetid("com.microsoft", 1)])
        model.ir_version = 9
        with open(path, "wb") as f:
            f.write(model.SerializeToString())
