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
