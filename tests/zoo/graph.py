# SPDX-License-Identifier: Apache-2.0
"""What the model scripts share: an ONNX graph under construction, and weights made from integers.

Weights come from a 64-bit integer mix of their position and end in one correctly rounded
multiplication, so the files have the same bytes on every machine: no random library, no
transcendental function. Only numpy and onnx are used.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
_STD = np.float64(65536) / np.sqrt(np.float64(3))  # of the sum of four uniform 16-bit numbers


def _mix(seed, n):
    """splitmix64 of n consecutive positions behind a seed."""
    with np.errstate(over="ignore"):
        x = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return x


def bell(seed, shape, std, mean=0.0):
    """fp32 numbers with about a normal distribution: the sum of four uniform ones."""
    n = int(np.prod(shape, dtype=np.int64))
    total = _mix(seed, n).view(np.uint16).reshape(n, 4).sum(axis=1, dtype=np.int64) - 2 * 65535
    out = total.astype(np.float32) * np.float32(std / _STD)
    return (out + np.float32(mean)).reshape(shape) if mean else out.reshape(shape)


def flat(seed, shape, low, high):
    """fp32 numbers spread evenly over [low, high)."""
    n = int(np.prod(shape, dtype=np.int64))
    top = (_mix(seed, n) >> np.uint64(48)).astype(np.float32)
    return (top * np.float32((high - low) / 65536) + np.float32(low)).reshape(shape)


class Graph:
    """Nodes and initializers in order; names in the manner of PyTorch's exporter."""

    def __init__(self, name, opset, seed):
        self.name, self.opset, self.seed = name, opset, seed
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.n_weights = self.n_values = 0

    def input(self, name, shape, dtype=FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, value, name, shape, dtype=FLOAT):
        for node in self.nodes:
            node.output[:] = [name if o == value else o for o in node.output]
            node.input[:] = [name if i == value else i for i in node.input]
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def weight(self, array, name=None):
        """An initializer of these very bytes."""
        name = name or f"onnx::Const_{len(self.weights)}"
        array = np.asarray(array, order="C")
        self.weights.append(helper.make_tensor(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape,
            array.astype(array.dtype.newbyteorder("<")).tobytes(), raw=True))
        return name

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def scalar(self, value, dtype=np.float32):
        return self.weight(np.array(value, dtype))

    def bell(self, shape, std, mean=0.0, name=None):
        self.n_weights += 1
        return self.weight(bell(self.seed + self.n_weights, shape, std, mean), name)

    def flat(self, shape, low, high, name=None):
        self.n_weights += 1
        return self.weight(flat(self.seed + self.n_weights, shape, low, high), name)

    def node(self, op, *inputs, scope="", n_out=1, **attributes):
        self.n_values += 1
        outs = [f"{scope}/{op}_{self.n_values}_output_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(op, list(inputs), outs,
                                           name=f"{scope}/{op}_{self.n_values}", **attributes))
        return outs[0] if n_out == 1 else outs

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, producer_name="inferd-zoo",
                                  opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        return model

    def save(self, path):
        model = self.model()
        with open(path, "wb") as f:
            f.write(model.SerializeToString(deterministic=True))
        return model
