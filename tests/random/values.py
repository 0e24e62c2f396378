# SPDX-License-Identifier: Apache-2.0
"""What a node computes, by onnxruntime, and how far another correct implementation may be off.

Every value carries a bound of its error, element by element. A node's bound is made of two parts:

  - the effect of its inputs' bounds: the node runs again, a few times, on inputs moved by their
    bounds with random signs. Floats are taken to be off by at least one unit in the last place, so
    that cancellation within a node (a mean that is subtracted) counts as well;
  - the error that the node itself adds: one unit in the last place of its result; for ops that
    accumulate, of the sum of the magnitudes of what they add, which is the op on absolute values;
    for functions that libraries approximate, some units.

What an implementation is allowed in the end is SLACK times the bound. A node whose result would
be ill-conditioned (bounds large beside values), not finite, or that jumps within its bounds (a
comparison near equality, rounding at .5, a tie in TopK) is refused; the generator tries another.
"""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

ort.set_default_logger_severity(4)
np.seterr(all="ignore")  # what is not finite is refused

SLACK = 8.0
PROBES = 3
LARGEST, ELEMENTS_MAX = 1e4, 40000
EPS = {np.dtype(np.float16): 2.0**-10, np.dtype(np.float32): 2.0**-23,
       np.dtype(np.float64): 2.0**-52}

ACCUMULATE = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean",
              "AveragePool", "GlobalAveragePool", "CumSum", "ReduceL1", "ReduceSumSquare",
              "ReduceL2", "Mean", "Sum"}
APPROXIMATED = {"Sigmoid", "Tanh", "Erf", "Gelu", "Exp", "Log", "Softplus", "Mish", "Elu", "Selu",
                "Celu", "Swish", "Pow", "Softmax", "LogSoftmax", "ReduceLogSumExp", "ReduceLogSum",
                "Sin", "Cos", "Tan", "Sinh", "Cosh", "Asin", "Acos", "Atan", "Asinh", "Acosh",
                "Atanh", "LRN", "Resize", "LSTM",
                "GRU", "RNN", "HardSwish", "LpPool", "GlobalLpPool", "LpNormalization",
                "LayerNormalization", "InstanceNormalization", "GroupNormalization",
                "BatchNormalization", "RMSNormalization", "MeanVarianceNormalization"}
# elementwise, with steps
STEPS = {"Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink", "Cast", "QuantizeLinear",
         "HardSigmoid"}
COMPARISONS = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"}
# inputs that decide about shapes: they are exact
EXACT = {"Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2)}
RANKED = {"ArgMax", "ArgMin", "TopK", "Hardmax"}


class Reject(Exception):
    """The node cannot be used; another one may do."""


class Value:
    """One tensor: its data in each data set, and its bounds (None: exact)."""

    def __init__(self, name, data, bounds=None, constant=False):
        self.name, self.data, self.constant = name, data, constant
        self.bounds = bounds or [rounding(d) for d in data]
        self.uses = 0

    @property
    def shape(self):
        return self.data[0].shape

    @property
    def rank(self):
        return self.data[0].ndim

    @property
    def dtype(self):
        return self.data[0].dtype

    @property
    def is_float(self):
        return self.dtype in EPS


def rounding(data):
    return np.abs(data.astype(np.float64)) * EPS[data.dtype] if data.dtype in EPS else None


def element_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def node_session(node, inputs, opset):
    """inputs: name -> Value. Exact constants stay constants: some ops want that."""
    infos, constants = [], []
    for name, value in inputs.items():
        if value.constant and not value.is_float:
            constants.append(numpy_helper.from_array(value.data[0], name))
        else:
            infos.append(helper.make_tensor_value_info(name, element_type(value.dtype), None))
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", infos, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                              ir_version=10 if opset < 23 else 11)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options,
                                providers=["CPUExecutionProvider"])


class NodeRun:
    """A node that runs alone, on one data set at a time."""

    def __init__(self, node, inputs, opset):
        self.node, self.inputs = node, inputs
        self.names = [name for name in node.output if name]
        try:
            self.session = node_session(node, inputs, opset)
        except Exception as e:
            raise Reject(f"{node.op_type}: {e}") from None
        self.fed = [i.name for i in self.session.get_inputs()]

    def run(self, k, change=lambda name, value: value):
        feeds = {}
        for name in self.fed:
            value = self.inputs[name]
            feeds[name] = np.asarray(change(name, value.data[k]), value.dtype)
        try:
            return self.session.run(self.names, feeds)
        except Exception as e:
            raise Reject(f"{self.node.op_type}: {e}") from None


def attribute(node, name, default):
    for a in node.attribute:
        if a.name == name:
            return helper.get_attribute_value(a)
    return default


# --- jumps ---

def margin(value, k):
    """How far from a jump a value has to be."""
    scale = float(np.max(np.abs(value.data[k]), initial=0.0))
    return 4 * SLACK * value.bounds[k] + 1e-6 * scale


def check_steps(run, k, outputs):
    value = run.inputs[run.node.input[0]]
    if not value.is_float:
        return
    far = margin(value, k)
    for sign in (-1, 1):
        moved = run.run(k, lambda name, d, s=sign:
                        d + s * far if name == run.node.input[0] else d)[0]
        if np.any(np.abs(moved.astype(np.float64) - outputs[0].astype(np.float64)) > 4 * far):
            raise Reject(f"{run.node.op_type} near a step")


def check_comparison(run, k):
    a, b = (run.inputs[name] for name in run.node.input[:2])
    if not a.is_float:
        return
    gap = np.abs(a.data[k].astype(np.float64) - b.data[k])
    if a is b:
        return
    if np.any(gap <= margin(a, k) + margin(b, k)):
        raise Reject(f"{run.node.op_type} near equality")


def check_ranks(run, k):
    value = run.inputs[run.node.input[0]]
    data = value.data[k]
    axis = attribute(run.node, "axis", -1 if run.node.op_type in ("TopK", "Hardmax") else 0)
    if data.ndim == 0:
        return
    gaps = np.diff(np.sort(data.astype(np.float64), axis=axis), axis=axis)
    limit = float(np.max(margin(value, k), initial=0.0)) * 2 if value.is_float else 0.0
    if np.any(gaps <= limit):
        raise Reject(f"{run.node.op_type} near a tie")


def check_jumps(run, k, outputs):
    op = run.node.op_type
    if op in STEPS:
        check_steps(run, k, outputs)
    elif op in COMPARISONS:
        check_comparison(run, k)
    elif op in RANKED:
        check_ranks(run, k)


# --- bounds ---

def moved_outputs(run, k, rng):
    """The outputs for inputs that are off by their bounds."""
    exact = [run.node.input[i] for i in EXACT.get(run.node.op_type, ()) if i < len(run.node.input)]

    def move(name, data):
        bounds = run.inputs[name].bounds[k]
        if bounds is None or name in exact:
            return data
        signs = rng.choice([-1.0, 1.0], size=data.shape) * rng.uniform(0.5, 1, size=data.shape)
        return data + bounds * signs

    return run.run(k, move)


def is_winograd(node, weight):
    """Whether a kernel may compute the node by Winograd's algorithm. The algorithm computes whole
    tiles, so an element's error follows its neighbours' magnitudes, and is several times as
    large."""
    return tuple(weight[2:]) == (3, 3) and all(
        set(attribute(node, key, [1])) == {1} for key in ("strides", "dilations"))


def own_error(run, k, output):
    """What the node itself adds to the error of a float output."""
    op, eps = run.node.op_type, EPS[output.dtype]
    magnitude = np.abs(output.astype(np.float64))
    if op in ACCUMULATE:
        positive = run.run(k, lambda name, d: np.abs(d) if d.dtype in EPS else d)[0]
        magnitude = np.maximum(magnitude, np.abs(positive.astype(np.float64)))
    if op == "DequantizeLinear":  # may be a x + b instead of (x - zero) a
        magnitude = magnitude + 256 * np.max(np.abs(run.inputs[run.node.input[1]].data[k]))
    if op == "LogSoftmax":
        magnitude = magnitude + 1 + float(np.max(np.abs(run.inputs[run.node.input[0]].data[k])))
    if op == "Conv" and is_winograd(run.node, run.inputs[run.node.input[1]].shape):
        magnitude = magnitude + 2 * np.max(magnitude, initial=0.0)
    if op in APPROXIMATED:
        return eps * (4 * magnitude + 4 * min(1.0, float(np.max(magnitude, initial=0.0))))
    return 2 * eps * magnitude


def output_bounds(run, k, outputs, rng):
    bounds = [own_error(run, k, y) if y.dtype in EPS else None for y in outputs]
    if all(b is None for b in bounds):
        return bounds
    for _ in range(PROBES):
        for i, (y, moved) in enumerate(zip(outputs, moved_outputs(run, k, rng))):
            if bounds[i] is not None:
                off = np.abs(moved.astype(np.float64) - y.astype(np.float64))
                bounds[i] = np.maximum(bounds[i], 2 * off)
    # an element's errors may have cancelled in all probes by chance, so each bound has a floor
    return [b if b is None or not b.size else np.maximum(b, 0.3 * np.mean(b)) for b in bounds]


def check_condition(node, y, bounds):
    if y.size > ELEMENTS_MAX:
        raise Reject(f"{node.op_type}: too large")
    if y.dtype not in EPS:
        return
    largest = float(np.max(np.abs(y.astype(np.float64)), initial=0.0))
    worst = float(np.max(bounds, initial=0.0))
    if not np.isfinite(largest) or not np.isfinite(worst) or largest > LARGEST:
        raise Reject(f"{node.op_type}: not finite, or large")
    limit = 2e-2 if y.dtype == np.float16 else 1e-4
    if worst > limit * largest + 1e-12:
        raise Reject(f"{node.op_type}: ill-conditioned")


def evaluate(node, inputs, opset, sets, rng):
    """inputs: name -> Value. Gives a list of Values for the node's outputs, or raises Reject."""
    run = NodeRun(node, inputs, opset)
    data, bounds = [], []
    for k in range(sets):
        outputs = run.run(k)
        check_jumps(run, k, outputs)
        own = output_bounds(run, k, outputs, rng)
        for y, b in zip(outputs, own):
            check_condition(node, y, b)
        data.append(outputs)
        bounds.append(own)
    return [Value(name, [d[i] for d in data], [b[i] for b in bounds])
            for i, name in enumerate(run.names)]


