# SPDX-License-Identifier: Apache-2.0
"""Makes a failing case smaller for as long as the same variant fails: data sets and outputs are
dropped, nodes replaced by what they computed or by their inputs, sizes and attributes reduced. Each
step is a whole case again, with onnxruntime's answer and bounds of its own.
"""
import glob
import os
import re
import shutil
import subprocess
import tempfile

import numpy as np
import onnx
import values
from builder import Graph
from onnx import TensorProto, helper, numpy_helper, printer, reference
from values import Reject, Value


class Case:
    """What a case is made of; everything else follows from it."""

    def __init__(self, nodes, inputs, constants, outputs, opset, batches, profiles):
        self.nodes, self.inputs, self.constants = nodes, inputs, constants
        self.outputs, self.opset = outputs, opset
        self.batches, self.profiles = batches, profiles

    def copy(self, **changes):
        c = Case(list(self.nodes), dict(self.inputs), dict(self.constants), list(self.outputs),
                 self.opset, self.batches, self.profiles)
        for key, value in changes.items():
            setattr(c, key, value)
        return c

    @property
    def sets(self):
        return len(next(iter(self.inputs.values()))) if self.inputs else 1

    def prune(self):
        """The case without the nodes and inputs that no output needs."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        return self.copy(nodes=kept[::-1],
                         inputs={n: d for n, d in self.inputs.items() if n in needed},
                         constants={n: d for n, d in self.constants.items() if n in needed})

    def graph(self):
        """The Graph, computed; Reject if onnxruntime does not take it."""
        g = Graph(0, self.opset, self.batches)
        g.sets = self.sets
        g.nodes = self.nodes
        known = {}
        for name, data in self.inputs.items():
            known[name] = Value(name, data)
            g.inputs.append(known[name])
        for name, array in self.constants.items():
            known[name] = Value(name, [array] * g.sets, constant=True)
            g.constants.append(known[name])
        for node in self.nodes:
            given = {n: known[n] for n in node.input if n}
            for v in values.evaluate(node, given, self.opset, g.sets, g.probe_rng):
                v.constant = node.op_type == "Constant"
                known[v.name] = v
        g.outputs = [known[n] for n in self.outputs]
        return g, known


def load(folder):
    model = onnx.load(os.path.join(folder, "model.onnx"))
    lines = [line.split() for line in open(os.path.join(folder, "case.txt"), encoding="ascii")]
    profiles = [int(n) for word, n in lines if word == "profile"]
    batches = [int(n) for word, n in lines if word == "set"]
    inputs = {}
    for k in range(len(batches)):
        for path in sorted(glob.glob(os.path.join(folder, f"set_{k}", "input_*.pb"))):
            tensor = onnx.load_tensor(path)
            inputs.setdefault(tensor.name, []).append(numpy_helper.to_array(tensor))
    return Case(list(model.graph.node), inputs,
                {t.name: numpy_helper.to_array(t) for t in model.graph.initializer},
                [o.name for o in model.graph.output], model.opset_import[0].version,
                batches if profiles else None, profiles)


class Shrinker:
    def __init__(self, command, variant, work):
        self.command, self.variant, self.work = command, variant, work
        self.tries = 0

    def fails(self, case):
        """Whether the variant still fails; None if it is no case."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.tries += 1
        try:
            case.graph()[0].write(self.work, case.profiles)
        except (Reject, ValueError, KeyError, IndexError):
            return None
        except Exception as e:  # onnxruntime's own classes
            if "onnxruntime" not in type(e).__module__:
                raise
            return None
        done = subprocess.run([*self.command, "--variant", self.variant, self.work],
                              capture_output=True, text=True, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
        return bool(failed)

    def first(self, case, smaller):
        """The first of the smaller cases that still fails, or the case itself."""
        for other in smaller:
            if self.fails(other):
                return other
        return case


def fewer_sets(case):
    for k in range(case.sets if case.sets > 1 else 0):
        inputs = {n: [d[k]] for n, d in case.inputs.items()}
        if case.batches is None:
            yield case.copy(inputs=inputs)
            continue
        yield case.copy(inputs=inputs, batches=None, profiles=[])
        yield case.copy(inputs=inputs, batches=[case.batches[k]], profiles=[case.batches[k]])
        yield case.copy(inputs=inputs, batches=[case.batches[k]])


def other_outputs(case):
    """Keeps one output alone: any tensor, the earliest first."""
    for node in case.nodes:
        for name in node.output:
            if name and case.outputs != [name]:
                smaller = case.copy(outputs=[name]).prune()
                if len(smaller.nodes) < len(case.nodes) or len(case.outputs) > 1:
                    yield smaller


def cut_nodes(case):
    """A node's results become inputs or constants; nodes nearest to the end come first."""
    try:
        known = case.graph()[1]
    except Reject:
        return
    for i in range(len(case.nodes) - 1, -1, -1):
        names = [n for n in case.nodes[i].output if n]
        if all(n in case.outputs for n in names):
            continue
        rest = case.nodes[:i] + case.nodes[i + 1:]
        data = {n: known[n].data for n in names}
        if all(fits_batches(case, d) for d in data.values()):
            yield case.copy(nodes=rest, inputs={**case.inputs, **data}).prune()
        if all(np.array_equal(d[0], e) for d in data.values() for e in d):
            arrays = {n: d[0] for n, d in data.items()}
            yield case.copy(nodes=rest, constants={**case.constants, **arrays}).prune()


def fits_batches(case, data):
    return case.batches is None or all(d.ndim and d.shape[0] == n
                                       for d, n in zip(data, case.batches))


def bypass_nodes(case):
    """A node's result is one of its inputs instead."""
    try:
        known = case.graph()[1]
    except Reject:
        return
    for i, node in enumerate(case.nodes):
        out = node.output[0]
        for name in node.input:
            same = name and known[name].shape == known[out].shape \
                and known[name].dtype == known[out].dtype
            if same and out not in case.outputs:
                rest = [replace(n, out, name) for n in case.nodes[:i] + case.nodes[i + 1:]]
                yield case.copy(nodes=rest).prune()


def replace(node, old, new):
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for i, name in enumerate(copy.input):
        if name == old:
            copy.input[i] = new
    return copy


def fewer_attributes(case):
    for i, node in enumerate(case.nodes):
        for a in node.attribute:
            if node.op_type == "Constant":
                continue
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            del copy.attribute[:]
            copy.attribute.extend(b for b in node.attribute if b.name != a.name)
            yield case.copy(nodes=case.nodes[:i] + [copy] + case.nodes[i + 1:])


def smaller_sizes(case):
    """Changes one size wherever it occurs, in shapes and as a number."""
    arrays = [d[0] for d in case.inputs.values()] + list(case.constants.values())
    for n in sorted({n for a in arrays for n in a.shape}, reverse=True):
        for m in (1, 2, n // 2):
            if 0 < m < n and n not in (case.batches or []):
                yield case.copy(
                    inputs={k: [resized(a, n, m) for a in d] for k, d in case.inputs.items()},
                    constants={k: renumbered(resized(a, n, m), n, m)
                               for k, a in case.constants.items()})


def resized(array, n, m):
    return np.ascontiguousarray(array[tuple(slice(0, m if k == n else k) for k in array.shape)]) \
        .reshape([m if k == n else k for k in array.shape])


def renumbered(array, n, m):
    return np.where(array == n, array.dtype.type(m), array) if array.dtype.kind == "i" else array


STEPS = [fewer_sets, other_outputs, cut_nodes, bypass_nodes, fewer_attributes, smaller_sizes]


def shrink(folder, variant, target, command):
    """Leaves the smallest case in the folder `target`, and says what it is."""
    with tempfile.TemporaryDirectory(prefix="shrink.") as work:
        shrinker = Shrinker(command, variant, os.path.join(work, "case"))
        case = load(folder)
        shutil.rmtree(target, ignore_errors=True)
        if not shrinker.fails(case):
            shutil.copytree(folder, target)
            print(f"{folder}: {variant} does not fail again; left as it is in {target}")
            return
        changed = True
        while changed:
            changed = False
            for step in STEPS:
                while (smaller := shrinker.first(case, step(case))) is not case:
                    case, changed = smaller, True
        case.graph()[0].write(target, case.profiles)
    again = " ".join([*command, "--variant", variant, target])
    text = describe(target)
    with open(os.path.join(target, "repeat.txt"), "w", encoding="utf-8") as f:
        f.write(f"{again}\n\n{text}\n")
    print(f"shrunk {os.path.basename(folder)} to {len(case.nodes)} nodes in {shrinker.tries} "
          f"tries; again: {again}", flush=True)


def describe(folder):
    """Prints the model as text, without the numbers in it; gives the text."""
    text = printer.to_text(onnx.load(os.path.join(folder, "model.onnx")))
    text = re.sub(r"\{[^{}]{300,}\}(?=[,>])", "{...}", text)
    print(text)
    return text


# --- disputes ---

def in_doubles(model):
    """The model with FP64 in place of FP32."""
    g = model.graph
    for t in g.initializer:
        if t.data_type == TensorProto.FLOAT:
            wide = numpy_helper.to_array(t).astype(np.float64)
            t.CopyFrom(numpy_helper.from_array(wide, t.name))
    for v in [*g.input, *g.output]:
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in g.node:
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                a.i = TensorProto.DOUBLE
            if a.HasField("t") and a.t.data_type == TensorProto.FLOAT:
                wide = numpy_helper.to_array(a.t).astype(np.float64)
                a.CopyFrom(helper.make_attribute(a.name, numpy_helper.from_array(wide)))
    return model


def judge(folder):
    """How far onnxruntime's answers are from the same graph's in FP64, as onnx computes it, as a
    share of our tolerance. Exits with 1 if a difference is beyond the tolerance."""
    model = in_doubles(onnx.load(os.path.join(folder, "model.onnx")))
    case, bad = load(folder), False
    evaluator = reference.ReferenceEvaluator(model)
    for k in range(case.sets):
        feeds = {n: d[k].astype(np.float64) if d[k].dtype == np.float32 else d[k]
                 for n, d in case.inputs.items()}
        for i, (name, exact) in enumerate(zip(case.outputs, evaluator.run(None, feeds))):
            have = onnx.load_tensor(os.path.join(folder, f"set_{k}", f"output_{i}.pb"))
            path = os.path.join(folder, f"set_{k}", f"tolerance_{i}.pb")
            off = np.abs(numpy_helper.to_array(have).astype(np.float64) - exact)
            if os.path.exists(path):
                allowed = numpy_helper.to_array(onnx.load_tensor(path))
                off = off / np.maximum(allowed, np.finfo(float).tiny)
            worst = float(np.max(off, initial=0.0))
            bad = bad or worst > 1
            print(f"set {k} {name}: at most {worst:.3f} of the tolerance")
    return 1 if bad else 0
