#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loops that only a request's numbers end: which of them have bodies that run as plans of their
own, and that all of them give what onnxruntime gives.

    test_loop_bodies.py INFERD INFERCTL
"""
import json
import subprocess
import unittest

import harness
import wire

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper
except ImportError:
    onnxruntime = None

THREADS = ["--threads", "1"] if harness.has_sanitizer("tsan") else []
MANY = (1 << 63) - 1

if onnxruntime:
    N, F, I, B = helper.make_node, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def values(rows):
    return [helper.make_tensor_value_info(*row) for row in rows]


def inner(nodes, inputs, outputs, weights=()):
    return helper.make_graph(nodes, "inner", values(inputs), values(outputs), constants(weights))


def constants(weights):
    return [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in weights]


def model(nodes, inputs, outputs, weights=(), opset=17):
    made = helper.make_graph(nodes, "g", values(inputs), values(outputs), constants(weights))
    return helper.make_model(made, ir_version=9, opset_imports=[helper.make_opsetid("", opset)])


def single(number):
    return np.array(number, np.float32)


def whole(*numbers):
    return np.array(numbers, np.int64)


COUNT, GO = ("i", 7, []), ("go", 9, [])


def decoder():
    """A text is written word by word: what comes next depends on the last word, a state and what
    attention sees of an image, until a word ends it. Weights are states, as exporters write."""
    rng = np.random.default_rng(5)

    def random(*shape):
        return (rng.standard_normal(shape) / 3).astype(np.float32)  # errors do not grow

    body = inner(
        [N("Gather", ["words", "word"], ["e"]), N("MatMul", ["h", "wq"], ["q"]),
         N("Transpose", ["seen"], ["keys"], perm=[1, 0]), N("MatMul", ["q", "keys"], ["s"]),
         N("Softmax", ["s"], ["p"], axis=1), N("MatMul", ["p", "seen"], ["c"]),
         N("Concat", ["e", "c", "h"], ["all"], axis=1), N("MatMul", ["all", "wh"], ["m"]),
         N("Tanh", ["m"], ["h2"]), N("MatMul", ["h2", "wo"], ["o"]),
         N("Add", ["o", "bo"], ["logits"]),
         N("ArgMax", ["logits"], ["word2"], axis=1, keepdims=0),
         N("Equal", ["word2", "stop"], ["ends"]), N("Not", ["ends"], ["on1"]),
         N("Squeeze", ["on1"], ["on"]), N("Softmax", ["logits"], ["scores"], axis=1),
         N("Identity", ["wq"], ["wq2"])],
        [COUNT, GO, ("h", 1, [1, 24]), ("word", 7, [1]), ("wq", 1, [24, 16])],
        [("on", 9, []), ("h2", 1, [1, 24]), ("word2", 7, [1]), ("wq2", 1, [24, 16]),
         ("word2k", 7, [1]), ("scores", 1, [1, 11])],
        [("stop", whole(3)), ("bo", random(11))])
    body.node.append(N("Identity", ["word2"], ["word2k"]))
    return model(
        [N("MatMul", ["x", "we"], ["a"]), N("Tanh", ["a"], ["seen"]),
         N("Loop", ["most", "true", "h0", "first", "wq0"],
           ["h", "last", "same", "text", "scores"], body=body)],
        [("x", F, [9, 8])], [("h", F, [1, 24]), ("text", I, ["n", 1]), ("scores", F, ["n", 1, 11])],
        [("we", random(8, 16)), ("words", random(11, 12)), ("wh", random(52, 24)),
         ("wo", random(24, 11)), ("wq0", random(24, 16)), ("most", np.int64(60)),
         ("true", np.array(True)), ("h0", random(1, 24)), ("first", whole(0))])


def put_at(x, i, y, length, out):
    """x[:, i : min(i + length, end)] = y, as Paddle's exporter writes it."""
    p = out + "_"
    return [N("Unsqueeze", [i, "axis0"], [p + "from"]), N("Add", [p + "from", length], [p + "to0"]),
            N("Shape", [x], [p + "size"]), N("Gather", [p + "size", "axis1"], [p + "end"]),
            N("Min", [p + "end", p + "to0"], [p + "to"]),
            N("Slice", [x, p + "from", p + "to", "axis1"], [p + "part"]),
            N("Shape", [p + "part"], [p + "shape"]), N("Expand", [y, p + "shape"], [p + "y"]),
            N("Squeeze", [p + "from"], [p + "f"]), N("Squeeze", [p + "to"], [p + "t"]),
            N("Range", [p + "f", p + "t", "one"], [p + "range"]),
            N("Reshape", [p + "range", "row"], [p + "rows"]),
            N("Slice", [p + "shape", "axis0", "axis1"], [p + "n"]),
            N("Concat", [p + "n", "axis1"], [p + "times"], axis=0),
            N("Tile", [p + "rows", p + "times"], [p + "at"]),
            N("ScatterElements", [x, p + "at", p + "y"], [out], axis=1)]


def filled(length, size):
    """A row is written `length` places at a time, up to its end and at least `size` times."""
    body = inner(
        [N("Mul", ["sum", "x1"], ["m"]), N("Add", ["m", "half"], ["sum2"]),
         *put_at("line", "at", "sum2", "length", "line2"), N("Add", ["at", "one"], ["at2"]),
         N("Less", ["sum2", "far"], ["near"]), N("Less", ["at2", "size"], ["room"]),
         N("And", ["near", "room"], ["on"])],
        [COUNT, GO, ("line", 1, [1, size]), ("at", 7, []), ("sum", 1, [1, 1])],
        [("on", 9, [1, 1]), ("line2", 1, [1, size]), ("at2", 7, []), ("sum2", 1, [1, 1])])
    return model(
        [N("ReduceMean", ["x"], ["x0"], keepdims=1), N("Abs", ["x0"], ["x1"]),
         N("Loop", ["many", "true", "line0", "at0", "sum0"], ["line", "at", "sum"], body=body)],
        [("x", F, [1, 6])], [("line", F, [1, size]), ("at", I, []), ("sum", F, [1, 1])],
        [("true", np.array(True)), ("many", np.int64(MANY)),
         ("line0", np.zeros((1, size), np.float32)),
         ("at0", np.int64(0)), ("sum0", np.zeros((1, 1), np.float32)), ("half", single(0.5)),
         ("far", single(3.5)), ("size", np.int64(size)), ("one", np.int64(1)),
         ("length", whole(length)), ("axis0", whole(0)), ("axis1", whole(1)),
         ("row", whole(1, -1))])


def one_at_a_time():
    return filled(1, 20)


def cut_at_the_end():
    """The last place has no room for two, so the last iteration is another one."""
    return filled(2, 9)


def broken_off():
    """`if done: break`, whose branches give a flag of other shapes."""
    some = inner([N("Not", ["flag"], ["f0"])], [], [("f0", 9, [])])
    none = inner([N("Reshape", ["flag", "list"], ["f1"])], [], [("f1", 9, [1])])
    body = inner(
        [N("Add", ["sum", "x1"], ["sum2"]), N("Greater", ["sum2", "far"], ["done0"]),
         N("Squeeze", ["done0"], ["done"]), N("Not", ["done"], ["flag"]),
         N("If", ["done"], ["out"], then_branch=some, else_branch=none),
         N("Reshape", ["out", "none"], ["on0"]), N("Not", ["done"], ["on1"]),
         N("And", ["on1", "on1"], ["on"]), N("Cast", ["out"], ["kept0"], to=F),
         N("Reshape", ["kept0", "list"], ["kept"])],
        [COUNT, GO, ("sum", 1, [1])],
        [("on", 9, []), ("sum2", 1, [1]), ("kept", 1, [1])])
    return model(
        [N("ReduceMean", ["x"], ["x0"], keepdims=0), N("Abs", ["x0"], ["x2"]),
         N("Add", ["x2", "tenth"], ["x3"]), N("Reshape", ["x3", "list"], ["x1"]),
         N("Loop", ["many", "true", "sum0"], ["sum", "kept"], body=body)],
        [("x", F, [6])], [("sum", F, [1]), ("kept", F, ["n", 1])],
        [("many", np.int64(MANY)), ("true", np.array(True)), ("sum0", np.zeros(1, np.float32)),
         ("far", single(3)), ("tenth", single(0.1)), ("list", whole(1)),
         ("none", np.zeros(0, np.int64))])


def widened():
    """The first iteration begins with a number where all others have a row; the count and a scan
    of two values besides."""
    body = inner(
        [N("Add", ["a", "x"], ["b"]), N("Mul", ["b", "half"], ["a2"]),
         N("ReduceSum", ["a2"], ["s"], keepdims=0), N("Less", ["s", "far"], ["on"]),
         N("Cast", ["i"], ["f"], to=F), N("Add", ["f", "s"], ["k"]), N("Identity", ["i"], ["j"])],
        [COUNT, GO, ("a", 1, ["n"])],
        [("on", 9, []), ("a2", 1, ["n"]), ("k", 1, []), ("j", 7, [])])
    return model(
        [N("Loop", ["twelve", "", "zero"], ["a", "k", "j"], body=body)],
        [("x", F, [5])], [("a", F, ["m"]), ("k", F, ["n"]), ("j", I, ["n"])],
        [("twelve", np.int64(12)), ("zero", single(0)), ("half", single(0.5)),
         ("far", single(2.5))])


def long():
    """More iterations than a graph is unrolled for, though their number is known."""
    body = inner(
        [N("Mul", ["a", "most"], ["b"]), N("Add", ["b", "x"], ["a2"]),
         N("Identity", ["go"], ["on"]), N("ReduceMax", ["a2"], ["top"], keepdims=0)],
        [COUNT, GO, ("a", 1, [6])], [("on", 9, []), ("a2", 1, [6]), ("top", 1, [])])
    return model(
        [N("Loop", ["many", "", "x"], ["a", "tops"], body=body)],
        [("x", F, [6])], [("a", F, [6]), ("tops", F, ["n"])],
        [("many", np.int64(3000)), ("most", single(0.99))])


def growing():
    """A state that grows has no size that a body could be built for."""
    body = inner(
        [N("Concat", ["a", "x1"], ["a2"], axis=0), N("ReduceSum", ["a2"], ["s"], keepdims=0),
         N("Less", ["s", "far"], ["on"])],
        [COUNT, GO, ("a", 1, ["n"])], [("on", 9, []), ("a2", 1, ["m"])])
    return model(
        [N("Abs", ["x"], ["x0"]), N("ReduceMean", ["x0"], ["x1"], keepdims=1),
         N("Loop", ["many", "true", "none"], ["a"], body=body)],
        [("x", F, [6])], [("a", F, ["n"])],
        [("many", np.int64(40)), ("true", np.array(True)), ("none", np.zeros(1, np.float32)),
         ("far", single(3))])


def picking():
    """A row of a table in each iteration; the last ones may be beyond its end."""
    body = inner(
        [N("Add", ["at", "step"], ["at2"]), N("Gather", ["table", "at2"], ["row"]),
         N("ReduceSum", ["row"], ["s"], keepdims=0), N("Less", ["s", "far"], ["on"])],
        [COUNT, GO, ("at", 7, [])],
        [("on", 9, []), ("at2", 7, []), ("rows", 1, [3])])
    body.node.append(N("Identity", ["row"], ["rows"]))
    return model(
        [N("ReduceSum", ["x"], ["s0"], keepdims=0), N("Cast", ["s0"], ["step"], to=I),
         N("Loop", ["many", "true", "zero"], ["at", "rows"], body=body)],
        [("x", F, [6])], [("at", I, []), ("rows", F, ["n", 3])],
        [("many", np.int64(40)), ("true", np.array(True)), ("zero", np.int64(0)),
         ("far", single(20)), ("table", np.arange(24, dtype=np.float32).reshape(8, 3))])


def sliced():
    """Windows of a matrix by the counter, in INT32, from the front and from the end, over two axes
    and over the first ones, as long as the sum of what they show is small."""
    body = inner(
        [N("Cast", ["i"], ["i32"], to=6), N("Reshape", ["i32", "list"], ["at"]),
         N("Add", ["at", "two"], ["to"]), N("Slice", ["m", "at", "to"], ["rows"]),
         N("Concat", ["at", "zero"], ["from2"], axis=0),
         N("Concat", ["to", "far2"], ["to2"], axis=0),
         N("Slice", ["m", "from2", "to2", "axes", "ones"], ["both"]),
         N("Sub", ["at", "nine"], ["back"]), N("Add", ["back", "two"], ["back2"]),
         N("Slice", ["m", "back", "back2", "last"], ["columns"]),
         N("Squeeze", ["at"], ["f"]), N("Squeeze", ["to"], ["l"]),
         N("Range", ["f", "l", "step"], ["r"]),
         N("Cast", ["r"], ["r0"], to=F), N("ReduceSum", ["rows"], ["s0"], keepdims=0),
         N("ReduceSum", ["both"], ["s1"], keepdims=0),
         N("ReduceMax", ["columns"], ["s2"], keepdims=0),
         N("ReduceSum", ["r0"], ["s3"], keepdims=0), N("Sum", ["s0", "s1", "s2", "s3"], ["s"]),
         N("Abs", ["s"], ["t"]), N("Add", ["sum", "t"], ["sum2"]),
         N("Less", ["sum2", "most"], ["on"])],
        [COUNT, GO, ("sum", 1, [])], [("on", 9, []), ("sum2", 1, []), ("t2", 1, [])])
    body.node.append(N("Identity", ["t"], ["t2"]))
    return model(
        [N("MatMul", ["x", "w"], ["m"]),
         N("Loop", ["six", "true", "none"], ["sum", "ts"], body=body)],
        [("x", F, [9, 4])], [("sum", F, []), ("ts", F, ["n"])],
        [("w", np.eye(4, 9, dtype=np.float32)), ("six", np.int64(6)), ("true", np.array(True)),
         ("none", single(0)), ("most", single(40)), ("list", whole(1)),
         ("two", np.array([2], np.int32)), ("zero", np.array([1], np.int32)),
         ("far2", np.array([1 << 30], np.int32)), ("axes", np.array([0, -1], np.int32)),
         ("ones", np.array([1, 1], np.int32)), ("nine", np.array([9], np.int32)),
         ("last", np.array([1], np.int32)), ("step", np.int32(1))])


def strided():
    """Every second element from the counter on: no such size is assumed."""
    body = inner(
        [N("Reshape", ["i", "list"], ["at"]), N("Add", ["at", "four"], ["to"]),
         N("Slice", ["x", "at", "to", "zero", "two"], ["part"]),
         N("ReduceSum", ["part"], ["s"], keepdims=0), N("Abs", ["s"], ["t"]),
         N("Add", ["sum", "t"], ["sum2"]), N("Less", ["sum2", "far"], ["on"])],
        [COUNT, GO, ("sum", 1, [])], [("on", 9, []), ("sum2", 1, [])])
    return model(
        [N("Loop", ["five", "true", "none"], ["sum"], body=body)], [("x", F, [9])],
        [("sum", F, [])],
        [("five", np.int64(5)), ("true", np.array(True)), ("none", single(0)), ("far", single(9)),
         ("list", whole(1)), ("four", whole(4)), ("zero", whole(0)), ("two", whole(2))])


def wrapping():
    """The limit lies below the start by so much that their difference is a small number above 0."""
    body = inner(
        [N("Cast", ["i"], ["f"], to=F), N("Less", ["f", "half"], ["begins"]),
         N("Where", ["begins", "zero", "top"], ["from"]),
         N("Where", ["begins", "two", "low"], ["to"]),
         N("Range", ["from", "to", "one"], ["r"]), N("Cast", ["r"], ["r0"], to=F),
         N("ReduceSum", ["r0"], ["r1"], keepdims=0), N("Abs", ["r1"], ["r2"]),
         N("Add", ["a", "r2"], ["b"]), N("ReduceMax", ["b"], ["m"], keepdims=0),
         N("Less", ["m", "far"], ["on"])],
        [COUNT, GO, ("a", 1, [6])], [("on", 9, []), ("b", 1, [6])])
    return model(
        [N("Loop", ["five", "true", "x"], ["a"], body=body)], [("x", F, [6])], [("a", F, [6])],
        [("five", np.int64(5)), ("true", np.array(True)), ("half", single(0.5)),
         ("far", single(1e6)), ("zero", np.int64(0)), ("two", np.int64(2)), ("one", np.int64(1)),
         ("top", np.int64(MANY)), ("low", np.int64(-MANY))])


def bytes_of_floats():
    """8-bit floats are kept of each iteration, by a zero that is a constant of the model's."""
    body = inner(
        [N("Add", ["a", "x"], ["a2"]), N("QuantizeLinear", ["a2", "step", "zero"], ["q"]),
         N("ReduceMax", ["a2"], ["m"], keepdims=0), N("Less", ["m", "far"], ["on"])],
        [COUNT, GO, ("a", 1, [6])], [("on", 9, []), ("a2", 1, [6]), ("q", 17, [6])])
    made = model(
        [N("Loop", ["ten", "true", "x"], ["a", "qs"], body=body),
         N("DequantizeLinear", ["qs", "step", "zero"], ["y"])],
        [("x", F, [6])], [("a", F, [6]), ("y", F, ["n", 6])],
        [("ten", np.int64(10)), ("true", np.array(True)), ("far", single(9)),
         ("step", single(0.25))], opset=19)
    made.graph.initializer.append(
        helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, [], b"\0", raw=True))
    return made


# by name, and whether the body is a plan of its own
MODELS = {decoder: True, one_at_a_time: True, cut_at_the_end: True, broken_off: True,
          widened: True, long: True, growing: False, picking: True,
          wrapping: True, bytes_of_floats: False, sliced: True,
          strided: False}


def feed(name, session, seed):
    rng = np.random.default_rng(seed)
    feeds = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    if name == "picking":
        feeds = {"x": np.eye(6, dtype=np.float32)[0] * (1 + seed % 3)}
    return feeds


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class BesideOnnxruntime(unittest.TestCase):
    REQUESTS = 4

    @classmethod
    def setUpClass(cls):
        cls.said = {}
        for make in MODELS:
            path = cls.path(make)
            onnx.save(make(), path)
            done = subprocess.run(
                [harness.INFERCTL, "build", path, "-o", path.with_suffix(".plan"), "--no-tune",
                 "-vvv", *THREADS, "--timing-cache", ""], timeout=120, capture_output=True,
                text=True,
                check=False)
            cls.said[make] = done.stderr
            assert done.returncode == 0, done.stderr

    @classmethod
    def path(cls, make):
        return harness.folder() / f"body_{make.__name__}.onnx"

    def test_bodies_that_can_be_are_plans(self):
        for make, is_plan in MODELS.items():
            with self.subTest(make.__name__):
                word = "runs as a plan of its own" if is_plan else "runs node by node"
                self.assertIn(word, self.said[make])

    def run_one(self, make, session, feeds):
        folder, name = harness.folder(), make.__name__
        command = [harness.INFERCTL, "run", self.path(make).with_suffix(".plan"), "--quiet",
                   *THREADS]
        for i, x in feeds.items():
            np.save(folder / f"{name}_{i}.npy", x)
            command += ["--input", f"{i}={folder}/{name}_{i}.npy"]
        wanted = session.run(None, feeds)
        for o, y in zip(session.get_outputs(), wanted):
            np.save(folder / f"{name}_{o.name}.npy", y)
            command += ["--check", f"{o.name}={folder}/{name}_{o.name}.npy"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}{done.stderr}")
        return str([wanted[0].shape, *(y.ravel()[:2] for y in wanted)])

    def test_bench_shows_the_layers_of_iterations(self):
        plan = self.path(long).with_suffix(".plan")
        command = [harness.INFERCTL, "bench", plan, "--layers", "--seconds", "0.2", *THREADS]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120,
                              check=True)
        said = json.loads(done.stdout)
        (loop,) = said["loops"]
        self.assertEqual((loop["name"], loop["iterations"]), ("a", 3000))
        spent = loop["iterations"] * sum(layer["mean_us"] for layer in loop["layers"])
        self.assertGreater(len(loop["layers"]), 1)
        self.assertLess(0, spent)
        self.assertLess(spent, said["tail_us"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        self.assertIn("3000.0 iterations of loop 'a'", done.stdout)
        plain = subprocess.run([harness.INFERCTL, "bench", plan, "--json", "--seconds", "0.1",
                                *THREADS], capture_output=True, text=True, timeout=120, check=True)
        self.assertNotIn("tail_us", json.loads(plain.stdout))

    def test_each_model_agrees(self):
        for make in MODELS:
            with self.subTest(make.__name__):
                session = onnxruntime.InferenceSession(str(self.path(make)),
                                                       providers=["CPUExecutionProvider"])
                seen = {self.run_one(make, session, feed(make.__name__, session, seed))
                        for seed in range(self.REQUESTS)}
                self.assertGreater(len(seen), 1, f"nothing changed: {seen}")


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class Daemon(harness.Served):
    """Requests one after the other, and beside one another."""
    @classmethod
    def setUpClass(cls):
        cls.paths = {}
        for make in MODELS:
            cls.paths[make.__name__] = path = harness.folder() / f"served_{make.__name__}.onnx"
            onnx.save(make(), path)
        cls.server = harness.Server({name: {"path": str(path)} for name, path in cls.paths.items()},
                                    config={"workers": 2, "limits": {"tail_bytes": "1MiB"}})

    def test_what_inferd_builds_has_the_bodies_too(self):
        """The child that builds models may do less than inferctl."""
        plans = [p for p in (self.server.folder / "cache").rglob("*") if p.suffix == ".plan"]
        said = [subprocess.run([harness.INFERCTL, "inspect", plan], capture_output=True, text=True,
                               timeout=60, check=True).stdout for plan in plans]
        self.assertEqual(len(said), len(MODELS))
        self.assertEqual(sum("iterations run as a whole" in text for text in said),
                         sum(MODELS.values()))

    def ask(self, client, name, feeds):
        return client.infer(name, [(i, "FP32", list(x.shape), x.tobytes())
                                   for i, x in feeds.items()])

    def test_each_request_gets_its_own_values(self):
        sessions = {name: onnxruntime.InferenceSession(str(path),
                                                       providers=["CPUExecutionProvider"])
                    for name, path in self.paths.items()}

        def send(seed):
            with self.server.client() as client:
                for k in range(3):
                    for name, session in sessions.items():
                        feeds = feed(name, session, seed * 3 + k)
                        reply = self.ask(client, name, feeds)
                        self.assertEqual((reply.status, reply.message), (wire.OK, ""), name)
                        self.compare(name, reply.outputs(), session, feeds)
        harness.together(3, send)

    def compare(self, name, got, session, feeds):
        for o, wanted in zip(session.get_outputs(), session.run(None, feeds)):
            _, shape, data = got[o.name]
            self.assertEqual(shape, list(wanted.shape), (name, o.name))
            np.testing.assert_allclose(np.frombuffer(data, wanted.dtype).reshape(shape), wanted,
                                       rtol=1e-3, atol=1e-5, err_msg=f"{name}, {o.name}")

    def test_what_fails_in_an_iteration_fails_alone(self):
        with self.server.client() as client:
            for step in (0, 3, 1, -40, 2):
                x = np.zeros(6, np.float32)
                x[0] = step
                reply = self.ask(client, "picking", {"x": x})
                if step in (1, 2, 3):
                    self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                elif step:
                    self.assertEqual(reply.status, wire.INVALID_ARGUMENT, reply.message)
                    self.assertIn("cannot be computed", reply.message)
                else:
                    self.assertEqual(len(reply.outputs()["rows"][2]), 40 * 3 * 4)

    def test_memory_is_limited(self):
        """Beyond what a request may take; and where node by node there is room, but not else."""
        path = harness.folder() / "served_kept.onnx"
        same = harness.folder() / "served_same.onnx"
        body = inner([N("Identity", ["big"], ["k"]), N("Identity", ["go"], ["on"]),
                      N("Add", ["a", "x"], ["a2"])],
                     [COUNT, GO, ("a", 1, [4])], [("on", 9, []), ("a2", 1, [4]),
                                                  ("k", 1, [16384])])
        onnx.save(model([N("Loop", ["many", "true", "x"], ["a"], body=body)],
                        [("x", F, [4]), ("many", I, [])], [("a", F, [4])],
                        [("true", np.array(True)), ("big", np.zeros(16384, np.float32))]), same)
        body = inner([N("Add", ["a", "x"], ["a2"]), N("Identity", ["a2"], ["k"]),
                      N("Identity", ["go"], ["on"])],
                     [COUNT, GO, ("a", 1, [512])],
                     [("on", 9, []), ("a2", 1, [512]), ("k", 1, [512])])
        onnx.save(model([N("Loop", ["many", "", "x"], ["a", "ks"], body=body)],
                        [("x", F, [512])], [("a", F, [512]), ("ks", F, ["n", 512])],
                        [("many", np.int64(5000))]), path)
        with harness.Server({"kept": {"path": str(path)}, "same": {"path": str(same)}},
                            config={"limits": {"tail_bytes": "1MiB"}}) as server, \
                server.client() as client:
            for n in (3, 100):
                reply = client.infer("same", [("x", "FP32", [4], np.ones(4, np.float32).tobytes()),
                                              ("many", "INT64", [], np.int64(n).tobytes())])
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                self.assertEqual(np.frombuffer(reply.outputs()["a"][2], np.float32)[0], n + 1)
            for _ in range(2):
                reply = self.ask(client, "kept", {"x": np.zeros(512, np.float32)})
                self.assertEqual(reply.status, 8, reply.message)
                self.assertIn("memory", reply.message)


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class Odd(unittest.TestCase):
    """What builds must run; what is wrong is refused, and no more."""

    def build(self, made, code=0):
        path = harness.folder() / "odd.onnx"
        onnx.save(made, path)
        done = subprocess.run(
            [harness.INFERCTL, "build", path, "-o", path.with_suffix(".plan"), "--no-tune", "-vvv",
             *THREADS, "--timing-cache", ""], timeout=120, capture_output=True, text=True,
            check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        if code == 0:
            subprocess.run([harness.INFERCTL, "run", path.with_suffix(".plan"), "--quiet",
                            *THREADS], check=True, timeout=120)
        return done.stderr

    def loop(self, nodes, states=(), weights=()):
        body = inner([N("Add", ["a", "x"], ["a2"]), N("ReduceMax", ["a2"], ["m"], keepdims=0),
                      N("Less", ["m", "far"], ["on"]), *nodes],
                     [COUNT, GO, ("a", 1, [6]), *states],
                     [("on", 9, []), ("a2", 1, [6]), *((n + "2", *r) for n, *r in states)])
        return model([N("Loop", ["ten", "true", "x", *(n + "0" for n, *_ in states)],
                        ["a", *(n for n, *_ in states)], body=body)],
                     [("x", F, [6])], [("a", F, [6])],
                     [("ten", np.int64(10)), ("true", np.array(True)), ("far", single(9)),
                      *weights])

    def test_nodes_without_outputs(self):
        for op in (N("Slice", ["x", "s0", "s0"], []), N("Range", ["i", "ten", "ten"], [])):
            said = self.build(self.loop([op], weights=[("s0", whole(0))]))
            self.assertIn("runs", said)

    def test_an_axis_given_twice(self):
        cut = [N("Add", ["p", "one"], ["p2"]), N("Concat", ["p", "p"], ["from"], axis=0),
               N("Concat", ["p2", "p2"], ["to"], axis=0), N("Reshape", ["x", "form"], ["x2"]),
               N("Slice", ["x2", "from", "to", "axes"], ["part"])]
        said = self.build(self.loop(cut, [("p", 7, [1])], [("p0", whole(0)), ("one", whole(1)),
                                                           ("axes", whole(1, -1)),
                                                           ("form", whole(1, 6))]))
        self.assertIn("runs node by node", said)

    def test_more_values_than_a_plan_has_inputs(self):
        many = [N("Add", ["x", f"v{k}"], [f"s{k}"]) for k in range(70)]
        made = self.loop([N("Sum", [f"s{k}" for k in range(60)], ["sum"])])
        made.graph.node[0].attribute[0].g.node.extend(many)
        made.graph.node.extend(
            [N("Mul", ["x", f"w{k}"], [f"v{k}"]) for k in range(70)])
        made.graph.initializer.extend(constants([(f"w{k}", single(k)) for k in range(70)]))
        self.assertIn("runs node by node", self.build(made))


if __name__ == "__main__":
    harness.main()
