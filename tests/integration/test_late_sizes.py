#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose outputs have sizes that only a request tells: metadata, replies, limits, and results
beside onnxruntime's.

    test_late_sizes.py INFERD INFERCTL
"""
import json
import struct
import subprocess
import unittest
import urllib.request

import harness
import wire
from harness import FLOAT, INT64, node, value

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except ImportError:
    onnxruntime = None

RESOURCE_EXHAUSTED = 8
# TSan does not see how OpenMP's threads meet: beside one another they look like races
THREADS = ["--threads", "1"] if harness.has_sanitizer("tsan") else []


def found():
    """The places and the values of what is not zero in 2x, and 2x itself."""
    return harness.model(
        [node("Add", ["x", "x"], ["twice"]), node("NonZero", ["twice"], ["nz"]),
         node("Transpose", ["nz"], ["at"]), node("GatherND", ["twice", "at"], ["values"])],
        [value("x", FLOAT, ["N", 4])],
        [value("at", INT64, ["n", 2]), value("values", FLOAT, ["n"]),
         value("twice", FLOAT, ["N", 4])])


def counted():
    """0, 1, .. up to n, which a request tells."""
    return harness.model(
        [node("Identity", ["n"], ["m"]), node("Range", ["zero", "m", "one"], ["y"])],
        [value("n", INT64, [])], [value("y", INT64, ["count"])],
        [harness.constant("zero", INT64, [], bytes(8)),
         harness.constant("one", INT64, [], struct.pack("<q", 1))])


def rows():
    """Rows of a table by the places of what is not zero: an index may be out of range."""
    return harness.model(
        [node("NonZero", ["x"], ["nz"]), node("Gather", ["table", "nz"], ["y"])],
        [value("x", FLOAT, [8])], [value("y", FLOAT, [1, "n"])],
        [harness.constant("table", FLOAT, [4], struct.pack("<4f", *range(4)))])


class Daemon(harness.Served):
    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        models = {}
        for make in (found, counted, rows):
            path = folder / f"late_{make.__name__}.onnx"
            path.write_bytes(make())
            models[make.__name__] = {"path": str(path)}
        models["some"] = {"path": str(folder / "late_found.onnx"), "shapes": ["x=1..3x4"],
                          "profiles": ["N=1,2,3"]}
        cls.server = harness.Server(
            models, config={"workers": 2, "limits": {"tail_bytes": "1MiB",
                                                     "output_bytes": "256KiB"}},
            arguments=["--http", "127.0.0.1:0"])

    def check_found(self, client, numbers):
        reply = client.infer("found", [("x", "FP32", [1, 4], struct.pack("<4f", *numbers))])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        at = [i for i, x in enumerate(numbers) if x]
        outputs = reply.outputs()
        self.assertEqual(outputs["values"], ("FP32", [len(at)], struct.pack(
            f"<{len(at)}f", *(2 * numbers[i] for i in at))))
        self.assertEqual(outputs["at"], ("INT64", [len(at), 2], struct.pack(
            f"<{2 * len(at)}q", *(k for i in at for k in (0, i)))))
        self.assertEqual(outputs["twice"][:2], ("FP32", [1, 4]))

    def count(self, client, n):
        return client.infer("counted", [("n", "INT64", [], struct.pack("<q", n))])

    def test_sizes_differ_from_request_to_request(self):
        with self.server.client() as client:
            for numbers in ((1, 2, 3, 4), (0, 0, 0, 0), (0, 5, 0, 0), (7, 0, 0, -2)):
                self.check_found(client, numbers)

    def test_many_at_once(self):
        def send(seed):
            with self.server.client() as client:
                for k in range(40):
                    bits = seed * 7 + k
                    self.check_found(client, [bits >> d & 1 for d in range(4)])
        harness.together(6, send)

    def test_what_looks_like_a_batch_is_a_size(self):
        with self.server.client() as client:
            for n in (1, 3, 2):
                numbers = [k % 3 for k in range(4 * n)]
                reply = client.infer("some", [("x", "FP32", [n, 4],
                                               struct.pack(f"<{4 * n}f", *numbers))])
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                at = [i for i, x in enumerate(numbers) if x]
                self.assertEqual(reply.outputs()["at"], ("INT64", [len(at), 2], struct.pack(
                    f"<{2 * len(at)}q", *(k for i in at for k in divmod(i, 4)))))
        self.assertEqual(self.server.shapes("some")["x"], [-1, 4])

    def test_metadata_leaves_sizes_open(self):
        self.assertEqual(self.server.shapes("found"),
                         {"x": [1, 4], "at": [-1, 2], "values": [-1], "twice": [1, 4]})

    def test_http_replies_have_real_sizes(self):
        where = self.server.door("http")
        asked = {"inputs": [{"name": "n", "shape": [], "datatype": "INT64", "data": [3]}]}
        with urllib.request.urlopen(f"http://{where}/v2/models/counted/infer",
                                    json.dumps(asked).encode(), timeout=10) as answer:
            said = json.load(answer)
        self.assertEqual(said["outputs"], [{"name": "y", "datatype": "INT64", "shape": [3],
                                            "data": [0, 1, 2]}])

    def test_what_is_beyond_a_limit_fails_alone(self):
        with self.server.client() as client:
            for n, word in ((1 << 16, "limits.output_bytes"), (1 << 18, "memory"),
                            (1 << 40, "memory"), ((1 << 63) - 1, "memory")):
                reply = self.count(client, n)
                self.assertEqual(reply.status, RESOURCE_EXHAUSTED, reply.message)
                self.assertIn(word, reply.message)
            for n in (5, 0, -3):
                reply = self.count(client, n)
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                count = max(n, 0)
                self.assertEqual(reply.outputs()["y"], (
                    "INT64", [count], struct.pack(f"<{count}q", *range(count))))

    def test_memory_alone_limits_what_a_request_counts(self):
        path, n = harness.folder() / "n.npy", (1 << 20) + 3
        head = b"{'descr': '<i8', 'fortran_order': False, 'shape': (), }"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + head.ljust(117) + b"\n" +
                         struct.pack("<q", n))
        done = subprocess.run(
            [harness.INFERCTL, "run", harness.folder() / "late_counted.onnx", "--input",
             f"n={path}", "--output", harness.folder(), "--quiet"],
            capture_output=True, text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        made = (harness.folder() / "y.npy").read_bytes()
        self.assertEqual(struct.unpack("<q", made[-8:])[0], n - 1)

    def test_a_bad_index_fails_alone(self):
        good, bad = struct.pack("<8f", 1, 0, 0, 1, 0, 0, 0, 0), struct.pack("<8f", *[0] * 7, 1)
        with self.server.client() as client:
            for _ in range(3):
                reply = client.infer("rows", [("x", "FP32", [8], bad)])
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
                self.assertIn("Gather", reply.message)
                reply = client.infer("rows", [("x", "FP32", [8], good)])
                self.assertEqual(reply.outputs()["y"], ("FP32", [1, 2], struct.pack("<2f", 0, 3)))


# --- beside onnxruntime ---

def graph(nodes, inputs, outputs, weights=(), opset=17):
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [onnx.numpy_helper.from_array(a, name) for name, a in weights])
    return helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def ints(*numbers):
    return np.array(numbers, np.int64)


def one(number):
    return np.array(number, np.int64)


if onnxruntime:
    N, F, I, B = helper.make_node, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def inner(nodes, inputs, outputs):
    return helper.make_graph(nodes, "inner", [helper.make_tensor_value_info(*i) for i in inputs],
                             [helper.make_tensor_value_info(*o) for o in outputs])


def detector():
    """A head as YOLO exports have it: boxes from a convolution, selected and gathered."""
    rng = np.random.default_rng(3)
    weights = [("w", rng.standard_normal((9, 3, 3, 3)).astype(np.float32)),
               ("four", ints(4, 5)), ("shape", ints(1, 9, 64)), ("k", ints(20)),
               ("iou", np.array([0.4], np.float32)), ("least", np.array([0.55], np.float32)),
               ("axis0", ints(0)), ("axis1", ints(1)),
               ("two", ints(2)), ("three", ints(3)), ("zero", one(0))]
    nodes = [N("Conv", ["x", "w"], ["c"], pads=[1] * 4, strides=[2, 2]),
             N("Reshape", ["c", "shape"], ["r"]),
             N("Split", ["r", "four"], ["b", "s"], axis=1),
             N("Sigmoid", ["s"], ["scores"]), N("Sigmoid", ["b"], ["sb"]),
             N("Transpose", ["sb"], ["boxes"], perm=[0, 2, 1]),
             N("NonMaxSuppression", ["boxes", "scores", "k", "iou", "least"], ["selected"],
               center_point_box=1),
             N("Slice", ["selected", "two", "three", "axis1"], ["column"]),
             N("Squeeze", ["column", "axis1"], ["rows"]),
             N("Squeeze", ["boxes", "axis0"], ["flat"]),
             N("Gather", ["flat", "rows"], ["found"], axis=0),
             N("Shape", ["found"], ["size"]), N("Gather", ["size", "zero"], ["count"])]
    return graph(nodes, [("x", F, [1, 3, 16, 16])],
                 [("found", F, ["n", 4]), ("selected", I, ["n", 3]), ("count", I, [])], weights)


def rois():
    """Boxes that pass a test, pooled from a feature map and scattered into a tensor of zeros."""
    weights = [("half", np.array(0.5, np.float32)), ("axis1", ints(1)), ("zero1", ints(0)),
               ("scale", np.array(3.0, np.float32)), ("shape", ints(-1, 12)),
               ("m", np.ones((12, 5), np.float32))]
    nodes = [N("Relu", ["x"], ["f"]), N("ReduceMax", ["boxes"], ["top"], axes=[1], keepdims=0),
             N("Greater", ["top", "half"], ["keep"]),
             N("Compress", ["boxes", "keep"], ["kept"], axis=0),
             N("Mul", ["kept", "scale"], ["scaled"]),
             N("Shape", ["kept"], ["size"]), N("Slice", ["size", "zero1", "axis1"], ["n"]),
             N("ConstantOfShape", ["n"], ["image"],
               value=helper.make_tensor("v", I, [1], [0])),
             N("RoiAlign", ["f", "scaled", "image"], ["pooled"], output_height=2, output_width=2,
               sampling_ratio=2),
             N("Reshape", ["pooled", "shape"], ["rows"]), N("MatMul", ["rows", "m"], ["y"]),
             N("NonZero", ["keep"], ["nz"]), N("Transpose", ["nz"], ["at"], perm=[1, 0]),
             N("Shape", ["keep"], ["all"]), N("Concat", ["all", "five"], ["wide"], axis=0),
             N("Expand", ["zero", "wide"], ["blank"]),
             N("ScatterND", ["blank", "at", "y"], ["z"])]
    weights += [("five", ints(5)), ("zero", np.array(0, np.float32))]
    return graph(nodes, [("x", F, [1, 3, 6, 6]), ("boxes", F, [7, 4])],
                 [("y", F, ["n", 5]), ("z", F, [7, 5])], weights)


def best():
    """TopK with a k that is computed, and what is different among integers of the best."""
    weights = [("limit", one(6)), ("half", np.array(0.5, np.float32)), ("ten",
                                                                        np.array(10, np.float32))]
    nodes = [N("Greater", ["x", "half"], ["hot"]), N("Cast", ["hot"], ["hots"], to=I),
             N("ReduceSum", ["hots"], ["sum"], keepdims=0), N("Min", ["sum", "limit"], ["k0"]),
             N("Reshape", ["k0", "flat"], ["k"]), N("TopK", ["x", "k"], ["v", "i"]),
             N("Mul", ["v", "ten"], ["tens"]), N("Cast", ["tens"], ["whole"], to=I),
             N("Unique", ["whole"], ["u", "first", "inverse", "counts"])]
    return graph(nodes, [("x", F, [12])],
                 [("v", F, ["k"]), ("i", I, ["k"]), ("u", I, ["u"]), ("inverse", I, ["k"]),
                  ("counts", I, ["u"])], weights + [("flat", ints(-1))])


def loops():
    """A loop that ends when a sum is large enough, with a value for each step, behind a branch that
    the data choose."""
    body = inner([N("Add", ["sum", "step"], ["more"]), N("Less", ["more", "far"], ["on"]),
                  N("Identity", ["more"], ["seen"])],
                 [("i", I, []), ("go", B, []), ("sum", F, [])],
                 [("on", B, []), ("more", F, []), ("seen", F, [])])
    some = inner([N("ReduceSum", ["steps"], ["t"], keepdims=0),
                  N("Unsqueeze", ["t", "axis0"], ["then_y"])], [], [("then_y", F, ["n"])])
    none = inner([N("Identity", ["steps"], ["else_y"])], [], [("else_y", F, ["n"])])
    weights = [("trips", one((1 << 63) - 1)), ("true", np.array(True)),
               ("far", np.array(4.0, np.float32)), ("axis0", ints(0)),
               ("start", np.array(0, np.float32))]
    nodes = [N("ReduceMean", ["x"], ["mean"], keepdims=0), N("Abs", ["mean"], ["size"]),
             N("Max", ["size", "tiny"], ["step"]),
             N("Loop", ["trips", "true", "start"], ["sum", "steps"], body=body),
             N("Greater", ["mean", "start"], ["positive"]),
             N("If", ["positive"], ["y"], then_branch=some, else_branch=none)]
    return graph(nodes, [("x", F, [9])], [("sum", F, []), ("steps", F, ["n"]), ("y", F, ["m"])],
                 weights + [("tiny", np.array(0.05, np.float32))])


def arithmetic():
    """Shapes from shapes: what is found becomes a range, a table and a sum over pairs."""
    weights = [("zero", one(0)), ("first", one(1)), ("axis1", ints(1)),
               ("axis0", ints(0)), ("two", one(2))]
    nodes = [N("NonZero", ["x"], ["nz"]), N("Shape", ["nz"], ["size"]),
             N("Gather", ["size", "first"], ["n"]), N("Range", ["zero", "n", "two"], ["even"]),
             N("Squeeze", ["nz", "axis0"], ["flat"]), N("Gather", ["x", "flat"], ["v"]),
             N("Unsqueeze", ["v", "axis1"], ["column"]), N("Unsqueeze", ["v", "axis0"], ["row"]),
             N("Mul", ["column", "row"], ["pairs"]),
             N("ReduceSum", ["pairs", "axis1"], ["sums"], keepdims=0),
             N("Gather", ["sums", "even"], ["half"]),
             N("Concat", ["half", "v"], ["both"], axis=0),
             N("Pad", ["both", "pads"], ["padded"]), N("Softmax", ["padded"], ["soft"], axis=0)]
    return graph(nodes, [("x", F, [10])],
                 [("pairs", F, ["n", "n"]), ("soft", F, ["m"]), ("even", I, ["h"])],
                 weights + [("pads", ints(1, 2))])


def many():
    """More values than a graph hands on: each of a hundred columns is searched for itself."""
    nodes, weights = [], [("half", np.array(0.5, np.float32)), ("axis0", ints(0))]
    for k in range(100):
        weights.append((f"k{k}", one(k)))
        nodes += [N("Gather", ["soft", f"k{k}"], [f"c{k}"], axis=1),
                  N("Greater", [f"c{k}", "half"], [f"g{k}"]),
                  N("NonZero", [f"g{k}"], [f"z{k}"]), N("Squeeze", [f"z{k}", "axis0"], [f"s{k}"]),
                  N("Gather", [f"c{k}", f"s{k}"], [f"y{k}"])]
    nodes = [N("Sigmoid", ["x"], ["soft"])] + nodes
    nodes.append(N("Concat", [f"y{k}" for k in range(100)], ["y"], axis=0))
    return graph(nodes, [("x", F, [5, 100])], [("y", F, ["n"])], weights)


MODELS = (detector, rois, best, loops, arithmetic, many)


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class BesideOnnxruntime(unittest.TestCase):
    REQUESTS = 4

    def run_one(self, name, session, plan, seed):
        folder, rng = harness.folder(), np.random.default_rng(seed)
        feeds, command = {}, [harness.INFERCTL, "run", plan, "--quiet", *THREADS]
        for i in session.get_inputs():
            feeds[i.name] = (rng.random(i.shape) - 0.2 * (seed % 2)).astype(np.float32)
            if name in ("arithmetic", "loops"):
                feeds[i.name] = (feeds[i.name] - 0.4).round(1)
            path = folder / f"{name}_{i.name}.npy"
            np.save(path, feeds[i.name])
            command += ["--input", f"{i.name}={path}"]
        for o, wanted in zip(session.get_outputs(), session.run(None, feeds)):
            path = folder / f"{name}_{o.name}.npy"
            np.save(path, wanted)
            command += ["--check", f"{o.name}={path}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, f"{name}, seed {seed}: {done.stdout}{done.stderr}")
        return [w.shape for w in session.run(None, feeds)]

    def test_each_model_agrees(self):
        for make in MODELS:
            name = make.__name__
            path, plan = (harness.folder() / f"late_{name}.{e}" for e in ("onnx", "plan"))
            onnx.save(make(), path)
            subprocess.run([harness.INFERCTL, "build", path, "-o", plan, "--no-tune", *THREADS,
                            "--timing-cache", ""], check=True, timeout=120, capture_output=True)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            shapes = {str(self.run_one(name, session, plan, seed))
                      for seed in range(self.REQUESTS)}
            self.assertGreater(len(shapes), 1, f"{name}: sizes did not change: {shapes}")


def reused():
    """Values large enough to be given to others once nothing reads them: under two names, reshaped,
    read by a branch and a loop late, scattered, and given out as they are."""
    weights = [("axis0", ints(0)), ("axis1", ints(1)), ("flat", ints(-1)), ("four", one(4)),
               ("true", np.array(True)), ("last", ints(1)), ("end", ints(2)),
               ("half", np.array(0.5, np.float32))]
    body = inner([N("Mul", ["a", "half"], ["b0"]), N("Add", ["b0", "early"], ["b"]),
                  N("Identity", ["go"], ["on"])],
                 [("i", I, []), ("go", B, []), ("a", F, ["n"])],
                 [("on", B, []), ("b", F, ["n"])])
    some = inner([N("Add", ["early", "looped"], ["then_y"])], [], [("then_y", F, ["n"])])
    none = inner([N("Identity", ["looped"], ["else_y"])], [], [("else_y", F, ["n"])])
    nodes = [N("NonZero", ["x"], ["nz"]), N("Transpose", ["nz"], ["at"]),
             N("GatherND", ["x", "at"], ["v"]), N("Identity", ["v"], ["early"]),
             N("Sigmoid", ["v"], ["s"]), N("Reshape", ["s", "flat"], ["same"]),
             N("Mul", ["same", "same"], ["squares"]), N("Unsqueeze", ["squares", "axis1"], ["u"]),
             N("Squeeze", ["u", "axis1"], ["again"]),
             N("Loop", ["four", "true", "again"], ["looped"], body=body),
             N("ReduceMean", ["looped"], ["mean"], keepdims=0),
             N("Greater", ["mean", "half"], ["big"]),
             N("If", ["big"], ["y"], then_branch=some, else_branch=none),
             N("Shape", ["x"], ["size"]),
             N("ConstantOfShape", ["size"], ["blank"]),
             N("ScatterND", ["blank", "at", "y"], ["z"]),
             N("Slice", ["nz", "last", "end", "axis0"], ["c0"]),
             N("Gather", ["z", "columns"], ["picked"], axis=1),
             N("Squeeze", ["c0", "axis0"], ["columns"]),
             N("ReduceMax", ["picked"], ["tops"], axes=[1], keepdims=0)]
    return graph(nodes, [("x", F, [64, 64])],
                 [("v", F, ["n"]), ("y", F, ["n"]), ("z", F, [64, 64]), ("at", I, ["n", 2]),
                  ("tops", F, [64])], weights)


def iterated():
    """Values of iterations, large enough to be given to others: states that change, that stay and
    that change places, values that every iteration keeps, a loop and a branch within, a walk."""
    weights = [("axis0", ints(0)), ("two", one(2)), ("five", one(5)),
               ("true", np.array(True)), ("half", np.array(0.5, np.float32))]
    within = inner([N("Add", ["c", "base"], ["d0"]), N("Mul", ["d0", "half"], ["d"]),
                    N("Identity", ["go2"], ["on2"]), N("Sigmoid", ["d"], ["e"])],
                   [("j", I, []), ("go2", B, []), ("c", F, ["n"])],
                   [("on2", B, []), ("d", F, ["n"]), ("e", F, ["n"])])
    some = inner([N("Tanh", ["t3"], ["then_y"])], [], [("then_y", F, ["n"])])
    none = inner([N("Neg", ["t3"], ["else_y"])], [], [("else_y", F, ["n"])])
    body = inner([N("Mul", ["a", "half"], ["t"]), N("Add", ["t", "base"], ["t2"]),
                  N("Loop", ["two", "true", "t2"], ["t3", "es"], body=within),
                  N("ReduceMean", ["t3"], ["mean"], keepdims=0),
                  N("Greater", ["mean", "half"], ["big"]),
                  N("If", ["big"], ["new"], then_branch=some, else_branch=none),
                  N("ReduceSum", ["es", "axis0"], ["sum"], keepdims=0),
                  N("Identity", ["base"], ["stays"]), N("Identity", ["go"], ["on"])],
                 [("i", I, []), ("go", B, []), ("a", F, ["n"]), ("b", F, ["n"]),
                  ("base", F, ["n"])],
                 [("on", B, []), ("b", F, ["n"]), ("new", F, ["n"]), ("stays", F, ["n"]),
                  ("t2", F, ["n"]), ("sum", F, ["n"])])
    step = inner([N("Add", ["s", "r"], ["s2"]), N("Abs", ["s2"], ["k"])],
                 [("s", F, ["n"]), ("r", F, ["n"])], [("s2", F, ["n"]), ("k", F, ["n"])])
    nodes = [N("NonZero", ["x"], ["nz"]), N("Transpose", ["nz"], ["at"]),
             N("GatherND", ["x", "at"], ["v"]), N("Abs", ["v"], ["w"]),
             N("Loop", ["five", "true", "v", "w", "w"], ["p", "q", "same", "ts", "sums"],
               body=body),
             N("Scan", ["p", "ts"], ["walked", "ks"], body=step, num_scan_inputs=1)]
    return graph(nodes, [("x", F, [64, 64])],
                 [("p", F, ["n"]), ("q", F, ["n"]), ("same", F, ["n"]), ("ts", F, [5, "n"]),
                  ("sums", F, [5, "n"]), ("walked", F, ["n"]), ("ks", F, [5, "n"])], weights)


def long():
    """300 iterations, each of which makes 64 KiB more than once, and hands on what it read."""
    weights = [("many", one(300)), ("true", np.array(True)), ("size", ints(16384)),
               ("last", np.array(1, np.float32))]
    tenth = onnx.numpy_helper.from_array(np.array(0.1, np.float32))
    body = inner([N("Constant", [], ["tenth"], value=tenth), N("Mul", ["kept", "tenth"], ["d"]),
                  N("Add", ["d", "last"], ["e"]), N("Mul", ["a", "tenth"], ["f"]),
                  N("Add", ["f", "e"], ["b"]), N("Identity", ["go"], ["on"])],
                 [("i", I, []), ("go", B, []), ("a", F, [16384]), ("kept", F, [16384])],
                 [("on", B, []), ("b", F, [16384]), ("kept", F, [16384])])
    nodes = [N("NonZero", ["x"], ["nz"]), N("Cast", ["nz"], ["places"], to=F),
             N("ReduceSum", ["places"], ["sum"], keepdims=0),
             N("Expand", ["sum", "size"], ["begin"]),
             N("Loop", ["many", "true", "begin", "begin"], ["y", "same"], body=body)]
    return graph(nodes, [("x", F, [64, 64])], [("y", F, [16384]), ("same", F, [16384])], weights)


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class RequestAfterRequest(harness.Served):
    """What a request, or an iteration, leaves to the next one, memory and kernels, changes no
    value."""
    @classmethod
    def setUpClass(cls):
        cls.paths = {}
        for make in reused, iterated, long:
            cls.paths[make.__name__] = harness.folder() / f"late_{make.__name__}.onnx"
            onnx.save(make(), cls.paths[make.__name__])
        cls.server = harness.Server({name: {"path": str(path)} for name, path in cls.paths.items()},
                                    config={"workers": 2, "limits": {"tail_bytes": "3MiB"}})

    def test_values_stay_those_of_onnxruntime(self):
        self.check("reused")

    def test_values_of_iterations_are_those_of_onnxruntime(self):
        self.check("iterated")

    def test_iterations_do_not_add_up(self):
        self.check("long")

    def check(self, model):
        session = onnxruntime.InferenceSession(str(self.paths[model]),
                                               providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for dense in (0.9, 0.5, 0.9, 0.02, 1, 0.5, 0.5, 0):
                    x = rng.standard_normal((64, 64)).astype(np.float32)
                    x[rng.random((64, 64)) >= dense] = 0
                    x[0, 0] = 1  # a mean of nothing is no number
                    reply = client.infer(model, [("x", "FP32", [64, 64], x.tobytes())])
                    self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                    got = reply.outputs()
                    for name, wanted in zip(names, session.run(None, {"x": x})):
                        kind, shape, data = got[name]
                        self.assertEqual(shape, list(wanted.shape), name)
                        np.testing.assert_allclose(
                            np.frombuffer(data, wanted.dtype).reshape(shape), wanted, rtol=1e-4,
                            atol=1e-4, err_msg=f"{name}, {dense}, {kind}")
        harness.together(3, send)


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class Refused(unittest.TestCase):
    def check(self, model, *words):
        path = harness.folder() / "refused.onnx"
        onnx.save(model, path)
        done = subprocess.run(
            [harness.INFERCTL, "build", path, "-o", harness.folder() / "no.plan", "--no-tune",
             "--timing-cache", ""], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_what_is_no_tensor_of_known_rank(self):
        nz = [N("NonZero", ["x"], ["y"])]
        made = graph(nz, [("x", F, [4])], [("y", I, ["one", "n"])])
        made = graph([*nz, N("GatherND", ["x", "table"], ["z"])], [("x", F, [4])],
                     [("y", I, ["one", "n"]), ("z", F, [1])], [("table", ints([9]))])
        made.graph.node[1].input[1] = "t"
        made.graph.node.insert(1, N("Expand", ["table", "shape"], ["t"]))
        made.graph.node.insert(1, N("Shape", ["y"], ["shape"]))
        for output in made.graph.output:
            output.type.tensor_type.ClearField("shape")
        self.check(made, "the rank of output 'y'", "declare its shape")
        made = graph(nz, [("x", F, [4])], [("y", TensorProto.STRING, ["n"])])
        self.check(made, "output 'y' is declared as STRING", "outputs of its own")

    def test_sequences_and_strings_are_told_what_to_do(self):
        for op, words in (("SequenceConstruct", "Concat"), ("SplitToSequence", "Split gives"),
                          ("StringNormalizer", "texts into numbers"),
                          ("Optional", "export the model")):
            self.check(graph([N("NonZero", ["x"], ["nz"]), N(op, ["nz"], ["y"])],
                             [("x", F, [4])], [("y", I, ["n"])]), op, words)

    def test_an_unknown_op_in_a_late_branch(self):
        then = inner([N("Mystery", ["x"], ["a"])], [], [("a", F, ["n"])])
        other = inner([N("Slice", ["x", "begin", "end"], ["b"])], [], [("b", F, ["m"])])
        self.check(graph([N("ReduceMax", ["x"], ["top"], keepdims=0),
                          N("Cast", ["top"], ["c"], to=B),
                          N("If", ["c"], ["y"], then_branch=then, else_branch=other)],
                         [("x", F, [4])], [("y", F, ["n"])],
                         [("begin", ints(0)), ("end", ints(2))]), "Mystery", "not supported")

    def test_too_much_crosses(self):
        nodes = []
        for k in range(70):
            nodes += [N("MatMul", ["x", f"w{k}"], [f"m{k}"]), N("NonZero", [f"m{k}"], [f"z{k}"])]
        nodes.append(N("Concat", [f"z{k}" for k in range(70)], ["y"], axis=1))
        rng = np.random.default_rng(1)
        self.check(graph(nodes, [("x", F, [2, 3])], [("y", I, [2, "n"])],
                         [(f"w{k}", rng.random((3, 2), np.float32)) for k in range(70)]),
                   "more than 64 values")


if __name__ == "__main__":
    harness.main()
