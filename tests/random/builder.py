# SPDX-License-Identifier: Apache-2.0
"""A graph that grows node by node; each node is computed when it is added (values.py)."""
import os

import numpy as np
import onnx
from onnx import helper, numpy_helper

import values
from values import Reject, Value, element_type

SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 17, 33]
OPSETS = [11, 12, 13, 15, 17, 18, 20, 21, 23]
# the opset since which axes (of these ops) are an input
AXES_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13, "ReduceMax": 18, "ReduceMin": 18,
              "ReduceMean": 18, "ReduceProd": 18, "ReduceL1": 18, "ReduceL2": 18,
              "ReduceSumSquare": 18, "ReduceLogSum": 18, "ReduceLogSumExp": 18}


class Graph:
    def __init__(self, seed, opset=None, batches=None):
        """`batches` has the number of instances in each data set; None: the model is not
        batched."""
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.probe_rng = np.random.Generator(np.random.PCG64([seed, 1]))
        self.opset = opset or int(self.rng.choice(OPSETS))
        self.batches, self.sets = batches, len(batches) if batches else 2
        self.nodes, self.inputs, self.outputs, self.constants = [], [], [], []
        self.pool, self.by_name, self.count = [], {}, 0
        self.rejected = {}

    @property
    def batched(self):
        return self.batches is not None

    @property
    def first_axis(self):
        """The first axis that a node may change."""
        return 1 if self.batched else 0

    # --- choices ---

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def size(self, most=33):
        return self.choice([s for s in SIZES if s <= most])

    def pick(self, ok=lambda v: True):
        """Picks an existing value; late values more often."""
        found = [v for v in self.pool if ok(v)]
        if not found:
            raise Reject("no such value")
        late = found[-4:]
        return self.choice(late if self.chance(0.7) else found)

    def axis(self, value, negative=True):
        if value.rank <= self.first_axis:
            raise Reject("no axis")
        axis = self.integer(self.first_axis, value.rank - 1)
        return axis - value.rank if negative and self.chance(0.4) else axis

    # --- tensors ---

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def numbers(self, shape, dtype=np.float32, low=None, high=None):
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            low = (0 if dtype.kind == "u" else -9) if low is None else low
            return self.rng.integers(low, 9 if high is None else high, size=shape).astype(dtype)
        if low is not None:
            return self.rng.uniform(low, high, size=shape).astype(dtype)
        return self.rng.standard_normal(shape).astype(dtype)

    def input(self, shape, dtype=np.float32, **limits):
        """In a batched graph, `shape` is the shape of one instance."""
        if self.batched:
            data = [self.numbers((n, *shape), dtype, **limits) for n in self.batches]
        else:
            data = [self.numbers(shape, dtype, **limits) for _ in range(self.sets)]
        return self.enter(Value(self.name("x"), data), self.inputs)

    def constant(self, array):
        """Given as an initializer, or now and then by a Constant node."""
        array = np.asarray(array)
        value = Value(self.name("c"), [array] * self.sets, constant=True)
        self.by_name[value.name] = value
        if self.chance(0.1):
            self.nodes.append(helper.make_node("Constant", [], [value.name],
                                               value=numpy_helper.from_array(array)))
        else:
            self.constants.append(value)
        return value

    def weight(self, shape, fan=None, dtype=np.float32):
        """Numbers that keep the size of their factor; at times the numbers of an earlier
        constant."""
        shape = tuple(shape)
        same = [c for c in self.constants if c.shape == shape and c.dtype == np.dtype(dtype)]
        if same and self.chance(0.2):
            return self.choice(same)
        fan = fan or max(1, int(np.prod(shape[1:], dtype=np.int64)))
        return self.constant(self.numbers(shape, dtype) / np.dtype(dtype).type(np.sqrt(fan)))

    def positive(self, shape, low=0.5, high=1.5):
        return self.constant(self.numbers(shape, low=low, high=high))

    def ints(self, *items):
        return self.constant(np.array(items, np.int64))

    def enter(self, value, into=None):
        if into is not None:
            into.append(value)
        self.by_name[value.name] = value
        if self.is_open(value):
            self.pool.append(value)
        return value

    def is_open(self, value):
        """In a batched graph, blocks use only values that have their instances in front. No node
        may mix instances, or an instance's answer would depend on the others in the batch."""
        return not self.batched or (value.rank > 0 and all(
            d.shape[0] == n for d, n in zip(value.data, self.batches)))

    # --- nodes ---

    def ops(self, op, inputs, outputs=1, **attributes):
        """Adds a node; inputs are Values or None. Gives its Values, or raises Reject."""
        names = [v.name if v is not None else "" for v in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.name("t") for _ in range(outputs)]
        node = helper.make_node(op, names, made, name=f"{op}_{self.count}", **attributes)
        given = {v.name: v for v in inputs if v is not None}
        results = values.evaluate(node, given, self.opset, self.sets, self.probe_rng)
        self.nodes.append(node)
        for v in given.values():
            v.uses += 1
        for v in results:
            self.enter(v)
        return results

    def op(self, name, *inputs, **attributes):
        return self.ops(name, inputs, 1, **attributes)[0]

    def with_axes(self, op, value, axes, **attributes):
        """Adds an op whose axes were an attribute in earlier opsets."""
        if self.opset >= AXES_INPUT[op]:
            return self.op(op, value, self.ints(*axes), **attributes)
        return self.op(op, value, axes=list(axes), **attributes)

    def split(self, value, axis, sizes):
        if self.opset >= 13:
            return self.ops("Split", [value, self.ints(*sizes)], len(sizes), axis=axis)
        return self.ops("Split", [value], len(sizes), axis=axis, split=list(sizes))

    def reshape(self, value, shape):
        """The first dimension of a batched graph is given as 0 or -1."""
        shape = list(shape)
        if self.batched:
            shape = [-1 if self.chance(0.3) and -1 not in shape else 0] + shape[1:]
        elif self.chance(0.3) and shape and -1 not in shape and 0 not in value.shape:
            shape[self.integer(0, len(shape) - 1)] = -1
        return self.op("Reshape", value, self.ints(*shape))

    def transpose(self, value, perm):
        return self.op("Transpose", value, perm=list(perm))

    # --- growing ---

    def grow(self, blocks, nodes):
        """blocks: (weight, function of the graph). The nodes that a block made before it failed
        stay."""
        weights = np.array([w for w, _ in blocks], float)
        weights /= weights.sum()
        for _ in range(nodes * 4):
            if len(self.nodes) >= nodes:
                break
            block = blocks[int(self.rng.choice(len(blocks), p=weights))][1]
            try:
                block(self)
            except Reject as e:
                key = f"{block.__name__}: {str(e)[:160]}"
                self.rejected[key] = self.rejected.get(key, 0) + 1

    def choose_outputs(self, most=6):
        """Mostly values that no node reads, and some that nodes read as well."""
        made = [v for v in self.pool if not v.constant and v not in self.inputs]
        if self.batched:
            made = [v for v in made if self.depends(v)]
        ends = [v for v in made if not v.uses]
        read = [v for v in made if v.uses]
        self.rng.shuffle(ends)
        chosen = ends[: self.integer(max(1, len(ends) - 2), max(1, len(ends)))][:most]
        while read and self.chance(0.3):
            chosen.append(read.pop(self.integer(0, len(read) - 1)))
        if not chosen:
            raise Reject("no outputs")
        if self.inputs and self.chance(0.05):
            chosen.append(self.choice(self.inputs))
        self.outputs = chosen

    def depends(self, value):
        """Whether the value depends on an input, not on constants alone."""
        needed = {value.name}
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
        return any(v.name in needed for v in self.inputs)

    # --- the whole ---

    def info(self, value):
        shape = list(value.shape)
        if self.batched and value.rank:
            shape[0] = "N"
        return helper.make_tensor_value_info(value.name, element_type(value.dtype), shape)

    def model(self):
        graph = helper.make_graph(
            self.nodes, "random", [self.info(v) for v in self.inputs],
            [self.info(v) for v in self.outputs],
            [numpy_helper.from_array(v.data[0], v.name) for v in self.constants])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                 ir_version=10 if self.opset < 23 else 11)

    def check_whole(self, model):
        """onnxruntime's answer for the whole graph, with its own optimisations, is the one that
        counts; it has to agree with onnxruntime's answers node by node."""
        try:
            whole = values.session(model.SerializeToString())
        except Exception as e:
            raise Reject(f"onnxruntime refuses the whole: {e}") from None
        names = [v.name for v in self.outputs]
        for k in range(self.sets):
            try:
                got = whole.run(names, {v.name: v.data[k] for v in self.inputs})
            except Exception as e:  # what its own fusions made of the graph
                raise Reject(f"onnxruntime refuses the whole: {e}") from None
            for v, y in zip(self.outputs, got):
                if not agrees(v, k, y):
                    raise Reject(f"onnxruntime disagrees with itself about {v.name}")
                v.data[k] = y

    def write(self, folder, profiles=None):
        model = self.model()
        self.check_whole(model)
        os.makedirs(folder, exist_ok=True)
        onnx.save(model, os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "case.txt"), "w", encoding="ascii") as f:
            for batch in (profiles or []) if self.batched else []:
                f.write(f"profile {batch}\n")
            for k in range(self.sets):
                f.write(f"set {self.batches[k] if self.batched else 1}\n")
        for k in range(self.sets):
            write_set(os.path.join(folder, f"set_{k}"), self.inputs, self.outputs, k)


def agrees(value, k, y):
    x = value.data[k]
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if value.bounds[k] is None:
        return bool(np.array_equal(x, y))
    off = np.abs(x.astype(np.float64) - y.astype(np.float64))
    return bool(np.all(off <= values.SLACK * value.bounds[k]))


def write_set(folder, inputs, outputs, k):
    os.makedirs(folder, exist_ok=True)

    def save(kind, i, name, array):
        with open(os.path.join(folder, f"{kind}_{i}.pb"), "wb") as f:
            f.write(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape),
                                            name).SerializeToString())

    for i, v in enumerate(inputs):
        save("input", i, v.name, v.data[k])
    for i, v in enumerate(outputs):
        save("output", i, v.name, v.data[k])
        if v.bounds[k] is not None:
            save("tolerance", i, v.name, values.SLACK * np.asarray(v.bounds[k], np.float64))
