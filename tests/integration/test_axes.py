#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models that count instances elsewhere than in the first dimension, and inputs that all instances
of a batch share: requests are joined, split, and answered as onnxruntime answers them.

    test_axes.py INFERD INFERCTL
"""
import random
import struct
import subprocess
import unittest

import harness
import wire
from harness import FLOAT, node, value

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper
except ImportError:
    onnxruntime = None

STEPS, WIDTH, HIDDEN = 5, 4, 6


def scaled():
    """y [3,batch,2] = x * s, z [batch,2] = a * s; s has no dimensions."""
    return harness.model(
        [node("Mul", ["x", "s"], ["y"]), node("Mul", ["a", "s"], ["z"])],
        [value("x", FLOAT, [3, "batch", 2]), value("a", FLOAT, ["batch", 2]),
         value("s", FLOAT, [])],
        [value("y", FLOAT, [3, "batch", 2]), value("z", FLOAT, ["batch", 2])])


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def unpacked(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class Axes(harness.Served):
    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        (folder / "scaled.onnx").write_bytes(scaled())
        cls.server = harness.Server(
            {"scaled": {"path": str(folder / "scaled.onnx"), "batches": [1, 4]}},
            config={"workers": 2, "max_delay_us": 5000}, arguments=["--http", "127.0.0.1:0"])

    def check(self, client, rng, n, s):
        x = [rng.randrange(-99, 99) for _ in range(3 * n * 2)]
        a = [rng.randrange(-99, 99) for _ in range(n * 2)]
        reply = client.infer("scaled", [("x", "FP32", [3, n, 2], floats(x)),
                                        ("a", "FP32", [n, 2], floats(a)),
                                        ("s", "FP32", [], floats([s]))])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        outputs = reply.outputs()
        self.assertEqual(outputs["y"], ("FP32", [3, n, 2], floats([v * s for v in x])))
        self.assertEqual(outputs["z"], ("FP32", [n, 2], floats([v * s for v in a])))
        return reply.batch

    def test_requests_are_joined_where_they_agree(self):
        batches = []

        def send(seed):
            rng = random.Random(seed)
            with self.server.client() as client:
                for _ in range(60):
                    batches.append(self.check(client, rng, rng.randint(1, 2),
                                              rng.choice((2.0, 2.0, 2.0, -3.0))))
        harness.together(8, send)
        self.assertEqual(len(batches), 480)
        self.assertGreater(max(batches), 2, "no two requests shared a batch")

    def test_what_does_not_fit_is_refused(self):
        with self.server.client() as client:
            for shape, word in (([3, 5, 2], "5 instances"), ([2, 1, 2], "expected shape"),
                                ([3, 0, 2], "0 instances"), ([3, 2, 2], "'a': 1 instances, but 2")):
                count = shape[0] * shape[1] * shape[2]
                reply = client.infer("scaled", [
                    ("x", "FP32", shape, floats([0] * count)),
                    ("a", "FP32", [1, 2], floats([0, 0])), ("s", "FP32", [], floats([1]))])
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
                self.assertIn(word, reply.message)

    def test_metadata_says_where_instances_are_counted(self):
        self.assertEqual(self.server.shapes("scaled"),
                         {"x": [3, -1, 2], "a": [-1, 2], "s": [], "y": [3, -1, 2],
                          "z": [-1, 2]})

    def test_inferctl_runs_and_benches_the_plan(self):
        plan = harness.folder() / "scaled.plan"
        for line in (["build", harness.folder() / "scaled.onnx", "-o", plan, "--no-tune",
                      "--timing-cache", "", "--batch", "1,4"],
                     ["bench", plan, "--batch", "4", "--seconds", "0.1"], ["run", plan]):
            done = subprocess.run([harness.INFERCTL, *line], capture_output=True, text=True,
                                  timeout=harness.PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)


# --- dimensions that nothing is called by ---

def axis(number):
    """An AttributeProto."""
    return wire.field(5, wire.message((1, "axis"), (3, number), (20, 2)))


def mixed(rows):
    """y [rows,2]: a softmax over the rows."""
    return harness.model([node("Softmax", ["x"], ["y"]) + axis(0)],
                         [value("x", FLOAT, [rows, 2])], [value("y", FLOAT, [rows, 2])])


def summed(steps, of_x, of_s):
    """y [steps,B,2]: sums of x over the steps, and of s [2,B,2], which z [2,B,2] shows. What is
    called None has no name."""
    return harness.model(
        [node("CumSum", ["x", "first"], ["sums"]), node("Slice", ["s", "from", "to"], ["one"]),
         node("Add", ["sums", "one"], ["y"]), node("Neg", ["s"], ["z"])],
        [value("x", FLOAT, [steps, of_x, 2]), value("s", FLOAT, [2, of_s, 2])],
        [value("y", FLOAT, [steps, of_x, 2]), value("z", FLOAT, [2, of_s, 2])],
        [harness.constant("first", harness.INT64, [], struct.pack("<q", 0)),
         harness.constant("from", harness.INT64, [1], struct.pack("<q", 0)),
         harness.constant("to", harness.INT64, [1], struct.pack("<q", 1))])


def layered():
    """y [batch,2] = x and each of six states [1,?,2] added up, and what z makes of the last one."""
    states = [f"s{k}" for k in range(6)]
    return harness.model(
        [node("Unsqueeze", ["x", "first"], ["sum0"])] +
        [node("Add", [f"sum{k}", s], [f"sum{k + 1}"]) for k, s in enumerate(states)] +
        [node("Squeeze", ["sum6", "first"], ["y"]), node("Neg", ["s5"], ["z"])],
        [value("x", FLOAT, ["batch", 2]), *(value(s, FLOAT, [1, "?", 2]) for s in states)],
        [value("y", FLOAT, ["batch", 2]), value("z", FLOAT, [1, "batch", 2])],
        [harness.constant("first", harness.INT64, [1], struct.pack("<q", 0))])


class Places(harness.Served):
    """A first dimension is no batch because it is open: what lies along it may be one request's.
    And instances are found behind it."""

    MODELS = {"rows": (mixed("rows"), {}),
              "lengths": (mixed("rows"), {"shapes": ["x=1..8x2"], "profiles": ["rows=3,5"]}),
              "layered": (layered(), {"batches": [1, 4]}),
              "given": (summed("T", "B", "?"), {"dims": ["T=3"], "batches": [1, 4]}),
              "fixed": (summed(3, "?", "?"), {"batches": [1, 4]}),
              "wished": (summed("T", "?", "?"), {"shapes": ["x=1..4xNx2"], "batches": [1, 4],
                                                 "profiles": ["T=1,3,4"]})}

    @classmethod
    def setUpClass(cls):
        folder, entries = harness.folder(), {}
        for name, (model, wishes) in cls.MODELS.items():
            (folder / f"{name}.onnx").write_bytes(model)
            entries[name] = {"path": str(folder / f"{name}.onnx"), **wishes}
        cls.server = harness.Server(entries, config={"workers": 1, "max_delay_us": 5000},
                                    arguments=["--http", "127.0.0.1:0"])

    def test_rows_that_see_each_other_are_one_request(self):
        self.assertEqual(self.server.shapes("rows")["x"], [1, 2])
        self.assertEqual(self.server.shapes("lengths")["x"], [-1, 2])

        def send(_):
            with self.server.client() as client:
                for rows in (3, 5, 3):
                    reply = client.infer("lengths",
                                         [("x", "FP32", [rows, 2], floats([1.0] * 2 * rows))])
                    self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                    for y in unpacked(reply.outputs()["y"][2]):
                        self.assertAlmostEqual(y, 1 / rows, places=5)
        harness.together(4, send)

    def test_instances_are_found_behind_steps(self):
        batches = []

        def send(seed):
            rng = random.Random(seed)
            with self.server.client() as client:
                for k in range(30):
                    name = ("given", "fixed", "wished")[k // 10]
                    steps = rng.choice((1, 3, 4)) if name == "wished" else 3
                    batches.append(self.check_sums(client, rng, name, steps))
        for name, steps in (("given", 3), ("fixed", 3), ("wished", -1)):
            self.assertEqual(self.server.shapes(name), {"x": [steps, -1, 2], "s": [2, -1, 2],
                                                        "y": [steps, -1, 2], "z": [2, -1, 2]})
        harness.together(6, send)
        self.assertGreater(max(batches), 2, "no two requests shared a batch")

    def test_many_states_are_tied(self):
        self.assertEqual(self.server.shapes("layered")["s3"], [1, -1, 2])
        with self.server.client() as client:
            reply = client.infer("layered", [("x", "FP32", [3, 2], floats(range(6)))] + [
                (f"s{k}", "FP32", [1, 3, 2], floats([10.0 ** k] * 6)) for k in range(6)])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        self.assertEqual(reply.outputs()["y"],
                         ("FP32", [3, 2], floats([111111.0 + v for v in range(6)])))
        self.assertEqual(reply.outputs()["z"], ("FP32", [1, 3, 2], floats([-1e5] * 6)))

    def check_sums(self, client, rng, name, steps):
        n = rng.randint(1, 2)
        x = [rng.randrange(-9, 9) for _ in range(steps * n * 2)]
        s = [rng.randrange(-9, 9) for _ in range(2 * n * 2)]
        reply = client.infer(name, [("x", "FP32", [steps, n, 2], floats(x)),
                                    ("s", "FP32", [2, n, 2], floats(s))])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        row = 2 * n
        wanted = [sum(x[i % row:i + 1:row]) + s[i % row] for i in range(steps * row)]
        self.assertEqual(reply.outputs()["y"], ("FP32", [steps, n, 2], floats(wanted)))
        self.assertEqual(reply.outputs()["z"], ("FP32", [2, n, 2], floats([-v for v in s])))
        return reply.batch


# --- beside onnxruntime ---

def recurrent(path, of_h="batch", of_c="batch"):
    """An LSTM with states, whose input and output are [steps,batch,..], and its best classes.
    `of_h` and `of_c`: what the file calls the states' instances."""
    rng = np.random.default_rng(1)

    def weights(name, *shape):
        return onnx.numpy_helper.from_array(
            (rng.standard_normal(shape) / 2).astype(np.float32), name)
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["all", "hn", "cn"],
                         hidden_size=HIDDEN, direction="bidirectional"),
        helper.make_node("Transpose", ["all"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "flat"], ["rows"]),
        helper.make_node("MatMul", ["rows", "p"], ["scores"]),
        helper.make_node("Mul", ["scores", "temperature"], ["warm"]),
        helper.make_node("LogSoftmax", ["warm"], ["y"], axis=-1)]
    given = [("x", [STEPS, "batch", WIDTH]), ("h", [2, of_h, HIDDEN]),
             ("c", [2, of_c, HIDDEN]), ("temperature", [])]
    made = [("y", [STEPS, "batch", 7]), ("hn", [2, "batch", HIDDEN]), ("cn", [2, "batch", HIDDEN])]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, kind, s) for n, s in given],
        [helper.make_tensor_value_info(n, kind, s) for n, s in made],
        [weights("w", 2, 4 * HIDDEN, WIDTH), weights("r", 2, 4 * HIDDEN, HIDDEN),
         weights("b", 2, 8 * HIDDEN), weights("p", 2 * HIDDEN, 7),
         onnx.numpy_helper.from_array(np.array([0, 0, 2 * HIDDEN], np.int64), "flat")])
    onnx.save(helper.make_model(graph, ir_version=8,
                                opset_imports=[helper.make_opsetid("", 17)]), path)


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class BesideOnnxruntime(harness.Served):
    STATES, WISHES = ("batch", "batch"), {}

    @classmethod
    def setUpClass(cls):
        path = harness.folder() / f"{cls.__name__}.onnx"
        recurrent(path, *cls.STATES)
        cls.server = harness.Server({"recurrent": {"path": str(path), "batches": [1, 2, 6],
                                                   **cls.WISHES}},
                                    config={"workers": 2, "max_delay_us": 5000},
                                    arguments=["--http", "127.0.0.1:0"],
                                    env={"INFERD_REFERENCE_KERNELS": None})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        cls.theirs = onnxruntime.InferenceSession(str(path), options,
                                                  providers=["CPUExecutionProvider"])

    def check(self, client, rng):
        n = int(rng.integers(1, 4))
        feeds = {"x": rng.standard_normal((STEPS, n, WIDTH)),
                 "h": rng.standard_normal((2, n, HIDDEN)),
                 "c": rng.standard_normal((2, n, HIDDEN)),
                 "temperature": np.array(rng.choice([1.0, 1.0, 0.5]))}
        feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
        reply = client.infer("recurrent", [(k, "FP32", list(map(int, a.shape)), a.tobytes())
                                           for k, a in feeds.items()])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        expected = dict(zip(("y", "hn", "cn"), self.theirs.run(None, feeds)))
        for name, (_, shape, data) in reply.outputs().items():
            self.assertEqual(tuple(shape), expected[name].shape)
            got = np.frombuffer(data, np.float32).reshape(shape)
            self.assertLess(np.abs(got - expected[name]).max(), 2e-5, name)
        return reply.batch

    def test_states_and_steps_agree(self):
        batches = []

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(40):
                    batches.append(self.check(client, rng))
        harness.together(6, send)
        self.assertGreater(max(batches), 3, "no two requests shared a batch")


class StatesWithoutNames(BesideOnnxruntime):
    """Nothing says of the states' dimensions that they count instances, but no other size fits."""
    STATES = (None, "c_dynamic_axes_1")

    def test_metadata_says_so(self):
        self.assertEqual(self.server.shapes("recurrent")["c"], [2, -1, HIDDEN])


class StatesByWish(BesideOnnxruntime):
    STATES, WISHES = (None, None), {"shapes": [f"h=2xNx{HIDDEN}", f"c=*xNx{HIDDEN}"]}


class Wishes(unittest.TestCase):
    def build(self, nodes, inputs, outputs, *options):
        path = harness.folder() / "wish.onnx"
        path.write_bytes(harness.model(nodes, inputs, outputs))
        done = subprocess.run(
            [harness.INFERCTL, "build", path, "-o", harness.folder() / "wish.plan", "--no-tune",
             "--timing-cache", "", *options], capture_output=True, text=True, timeout=120,
            check=False)
        return done.returncode, done.stdout + done.stderr

    def added(self, *options):
        """a and b are tied to each other, and to nothing else."""
        return self.build(
            [node("Add", ["a", "b"], ["c"]), node("ReduceMax", ["c"], ["m"]),
             node("Mul", ["x", "m"], ["y"])],
            [value("x", FLOAT, ["batch", 2]), value("a", FLOAT, [2, "?"]),
             value("b", FLOAT, [2, "?"])],
            [value("y", FLOAT, ["batch", 2])], *options)

    def test_what_may_have_another_size_needs_a_value(self):
        code, said = self.added()
        self.assertEqual(code, 1, said)
        self.assertIn("input 'a': dimension 1 needs a value: give --dim a:1=N", said)
        self.assertEqual(self.added("--dim", "a:1=3", "--dim", "b:1=3")[0], 0)

    def test_a_model_without_instances_is_told_what_to_say(self):
        def build(*options):
            return self.build([node("Softmax", ["x"], ["y"]) + axis(0)],
                              [value("x", FLOAT, ["rows", 2])],
                              [value("y", FLOAT, ["rows", 2])], *options)
        code, said = build("--batch", "1,2")
        self.assertEqual(code, 1, said)
        self.assertIn("softmax 'y' may mix what lies along it; if it counts instances, "
                      "say --shape x=Nx*, and give a length a range", said)
        for right in (("--shape", "x=Nx*", "--batch", "1,2"), ("--shape", "x=1..4x2")):
            code, said = build(*right)
            self.assertEqual(code, 0, said)

    def test_a_model_without_instances_runs_at_the_sizes_of_its_inputs(self):
        folder, rows = harness.folder(), 3
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 2), }}".encode()
        (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) +
                                       head.ljust(117) + b"\n" + floats([2.0] * 2 * rows))
        (folder / "mixed.onnx").write_bytes(mixed("rows"))
        done = subprocess.run(
            [harness.INFERCTL, "run", folder / "mixed.onnx", "--input", f"x={folder / 'x.npy'}",
             "--output", folder], capture_output=True, text=True, timeout=harness.PATIENCE,
            check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for y in unpacked((folder / "y.npy").read_bytes()[-8 * rows:]):
            self.assertAlmostEqual(y, 1 / rows, places=5)

    def test_a_wish_must_not_contradict_the_model(self):
        for wish, word in (("a=NxN", "dimension 0 cannot count instances"),
                           ("a=2x3..N", "the form is")):
            code, said = self.added("--shape", wish)
            self.assertEqual(code, 1, said)
            self.assertIn(word, said)
        code, said = self.added("--shape", "a=2xN", "--dim", "a:1=4")
        self.assertEqual(code, 1, said)
        self.assertIn("cannot count instances", said)


if __name__ == "__main__":
    harness.main()
