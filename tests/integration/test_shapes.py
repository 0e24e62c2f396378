#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose requests choose sizes: ranges in the configuration, metadata, batches, refusals.

    test_shapes.py INFERD INFERCTL
"""
import random
import struct
import subprocess
import unittest

import harness
import wire
from harness import FLOAT, INT64, node, value

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper
except ImportError:
    onnxruntime = None

SIZES = (3, 8, 17)
FAILED_PRECONDITION = 9


def model(batch="N"):
    """y = x + z, whose middle dimensions are one; w = y's rows, summed up."""
    return harness.model(
        [node("Add", ["x", "z"], ["y"]), node("Add", ["y", "y"], ["w"])],
        [value("x", FLOAT, [batch, "seq", 2]), value("z", FLOAT, [batch, "seq", 2])],
        [value("y", FLOAT, [batch, "seq", 2]), value("w", FLOAT, [batch, "seq", 2])])


def paired():
    """y = x + z, whose second dimensions have two names."""
    return harness.model([node("Add", ["x", "z"], ["y"])],
                         [value("x", FLOAT, ["N", "a"]), value("z", FLOAT, ["N", "b"])],
                         [value("y", FLOAT, ["N", "a"])])


def sums():
    """y = x and z, one behind the other, plus m, which is as long."""
    return harness.model(
        [node("Concat", ["x", "z"], ["both"]) + wire.field(
            5, wire.message((1, "axis"), (3, 1), (20, 2))), node("Add", ["both", "m"], ["y"])],
        [value("x", FLOAT, [1, "old"]), value("z", FLOAT, [1, "new"]),
         value("m", FLOAT, [1, "all"])], [value("y", FLOAT, [1, "all"])])


def scaled():
    """y = x * s, where s is an input without dimensions."""
    return harness.model(
        [node("Mul", ["x", "s"], ["y"])], [value("x", INT64, ["N", 2]), value("s", INT64, [])],
        [value("y", INT64, ["N", 2])])


def mixed():
    """y = softmax of x along seq, which sees what is put behind it."""
    return harness.model([node("Softmax", ["x"], ["y"])], [value("x", FLOAT, ["N", 2, "seq"])],
                         [value("y", FLOAT, ["N", 2, "seq"])])


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def inputs(rng, n, seq, name="xz"):
    count = n * seq * 2
    return [(i, "FP32", [n, seq, 2], floats([rng.randrange(-99, 99) for _ in range(count)]))
            for i in name]


class Shapes(harness.Served):
    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        (folder / "seq.onnx").write_bytes(model())
        (folder / "mixed.onnx").write_bytes(mixed())
        (folder / "scaled.onnx").write_bytes(scaled())
        (folder / "paired.onnx").write_bytes(paired())
        (folder / "sums.onnx").write_bytes(sums())
        at = str(folder / "seq.onnx")
        cls.server = harness.Server(
            {"seq": {"path": at, "shapes": ["x=1..4x2..20x2"],
                     "profiles": ["seq=" + ",".join(map(str, SIZES))]},
             "mixed": {"path": str(folder / "mixed.onnx"), "shapes": ["x=1..2x2x2..20"],
                       "profiles": ["seq=3,20"]},
             "paired": {"path": str(folder / "paired.onnx"), "batches": [1, 2],
                        "shapes": ["x=*x2..20", "z=*x2..20"], "profiles": ["a=3,20"]},
             "sums": {"path": str(folder / "sums.onnx"),
                      "shapes": ["x=1x2..4", "z=1x2..4", "m=1x4..6"],
                      "profiles": ["old=2,4", "new=2,4", "all=4,6"]},
             "fixed": {"path": at, "dims": ["seq=5"], "batches": [1, 2]},
             "scaled": {"path": str(folder / "scaled.onnx"), "values": ["s=7"]}},
            config={"workers": 2, "max_delay_us": 2000}, arguments=["--http", "127.0.0.1:0"])

    def refused(self, given, status, *words, to="seq"):
        with self.server.client() as client:
            reply = client.infer(to, given)
        self.assertEqual(reply.status, status, reply.message)
        for word in words:
            self.assertIn(word, reply.message)

    def check(self, client, given, to="seq"):
        reply = client.infer(to, given)
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        count = len(given[0][3]) // 4
        x, z = (struct.unpack(f"<{count}f", i[3]) for i in given)
        total = [a + b for a, b in zip(x, z)]
        outputs = reply.outputs()
        self.assertEqual(outputs["y"], ("FP32", given[0][2], floats(total)))
        self.assertEqual(outputs["w"], ("FP32", given[0][2], floats([2 * t for t in total])))
        return reply.batch

    def test_mixed_sizes_share_batches_only_with_their_like(self):
        batches = []

        def send(seed):
            rng = random.Random(seed)
            with self.server.client() as client:
                for _ in range(125):
                    batches.append(self.check(
                        client, inputs(rng, rng.randint(1, 3), rng.choice(SIZES))))
        harness.together(8, send)
        self.assertEqual(len(batches), 1000)
        self.assertLessEqual(max(batches), 4)

    def test_dimensions_of_two_names_may_be_one(self):
        def given(x, z):
            return [("x", "FP32", [2, x], floats(range(2 * x))),
                    ("z", "FP32", [2, z], floats(range(2 * z)))]
        with self.server.client() as client:
            for size in (3, 20, 7):
                reply = client.infer("paired", given(size, size))
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                self.assertEqual(reply.outputs()["y"], (
                    "FP32", [2, size], floats([2 * v for v in range(2 * size)])))
        self.refused(given(3, 20), wire.INVALID_ARGUMENT, "'z'", "20", "3 elsewhere", to="paired")

    def test_what_the_model_cannot_have_is_left_out(self):
        """Sizes of `all` are the sums of `old` and `new`."""
        def given(old, new, every):
            return [(k, "FP32", [1, n], floats([1.0] * n))
                    for k, n in (("x", old), ("z", new), ("m", every))]
        with self.server.client() as client:
            for old, new in ((2, 2), (4, 2), (2, 4)):
                reply = client.infer("sums", given(old, new, old + new))
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                self.assertEqual(reply.outputs()["y"], ("FP32", [1, old + new],
                                                        floats([2.0] * (old + new))))
        self.refused(given(4, 4, 6), FAILED_PRECONDITION, "old=4", "new=4", "all=6", to="sums")

    def test_one_size_by_dims(self):
        rng = random.Random(1)
        with self.server.client() as client:
            self.check(client, inputs(rng, 2, 5), to="fixed")
        self.refused(inputs(rng, 1, 8), wire.INVALID_ARGUMENT, "shape", to="fixed")

    def test_a_value_makes_an_input_a_constant(self):
        with self.server.client() as client:
            reply = client.infer("scaled", [("x", "INT64", [1, 2], struct.pack("<2q", 3, -2))])
            self.assertEqual(reply.outputs()["y"][2], struct.pack("<2q", 21, -14))
        self.refused([("x", "INT64", [1, 2], bytes(16)), ("s", "INT64", [], bytes(8))],
                     wire.INVALID_ARGUMENT, "no input 's'", to="scaled")

    def test_what_no_profile_holds(self):
        rng = random.Random(2)
        self.refused(inputs(rng, 1, 21), wire.INVALID_ARGUMENT, "'seq'", "21", "2 to 20")
        self.refused(inputs(rng, 1, 1), wire.INVALID_ARGUMENT, "2 to 20")
        self.refused([("x", "FP32", [1, 2, 9], floats([0] * 18))], FAILED_PRECONDITION, "seq=9",
                     "--profiles", to="mixed")
        self.refused(inputs(rng, 1, 1), wire.INVALID_ARGUMENT, "2 to 20")
        self.refused(inputs(rng, 5, 8), wire.INVALID_ARGUMENT, "5 instances")
        self.refused(inputs(rng, 1, 8)[:1] + inputs(rng, 1, 3)[1:], wire.INVALID_ARGUMENT,
                     "'z'", "'seq'", "3", "8 elsewhere")
        for size in (0, 1 << 40, (1 << 63) - 1):
            self.refused([("x", "FP32", [1, size, 2], b""), ("z", "FP32", [1, size, 2], b"")],
                         wire.INVALID_ARGUMENT)
        with self.server.client() as client:
            self.check(client, inputs(rng, 4, 17))

    def test_sizes_between_profiles_are_padded_and_cut_back(self):
        batches = []

        def send(seed):
            rng = random.Random(seed)
            with self.server.client() as client:
                for _ in range(60):
                    batches.append(self.check(
                        client, inputs(rng, rng.randint(1, 2), rng.randint(2, 17))))
        harness.together(6, send)
        self.assertGreater(max(batches), 2, "no two requests shared a batch")

    def test_metadata_leaves_sizes_open(self):
        self.assertEqual(self.server.shapes("seq"), {name: [-1, -1, 2] for name in "xzyw"})

    def test_a_build_says_what_contradicts(self):
        at = harness.folder() / "seq.onnx"
        for options, word in (
                (["--shape", "x=1..4x2..9x2", "--shape", "z=1..4x2..8x2"], "elsewhere"),
                (["--shape", "x=1..4x2..9x2", "--profiles", "seq=10"], "not within 2..9"),
                (["--shape", "x=1..4x2..9x2", "--batch", "8"], "at most 4 instances"),
                (["--shape", "x=1..4x2..9x3"], "fixes dimension 2"),
                (["--dim", "seq=3", "--dim", "seq=4"], "given twice"),
                (["--dim", "x:7=3"], "no input has such a dimension"),
                (["--value", "q=3", "--dim", "seq=4"], "no such input"),
                (["--value", "x=a", "--dim", "seq=4"], "expected one FP32")):
            done = subprocess.run(
                [harness.INFERCTL, "build", at, "-o", harness.folder() / "no.plan", "--no-tune",
                 "--timing-cache", "", *options], capture_output=True, text=True, timeout=120,
                check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(word, done.stderr)


# --- beside onnxruntime ---

HIDDEN, HEADS, WORDS, LONGEST = 32, 4, 50, 64


class Graph:
    """A graph in the making; weights are random."""

    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.nodes, self.weights = [], []

    def add(self, op, *given, **attributes):
        self.nodes.append(helper.make_node(op, list(given), [f"t{len(self.nodes)}"],
                                           **attributes))
        return self.nodes[-1].output[0]

    def keep(self, array):
        self.weights.append(onnx.numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def bell(self, *shape):
        scale = np.sqrt(np.prod(shape[1:]) if len(shape) == 4 else shape[0])
        return self.keep((self.rng.standard_normal(shape) / scale).astype(np.float32))

    def ints(self, *numbers):
        return self.keep(np.array(numbers, np.int64))

    def floats(self, *numbers):
        return self.keep(np.array(numbers, np.float32))

    def save(self, path, given, result, shape):
        last = self.nodes[-1]
        assert last.output[0] == result
        last.output[0] = "y"
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info(*g) for g in given],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)], self.weights)
        onnx.save(helper.make_model(graph, ir_version=8,
                                    opset_imports=[helper.make_opsetid("", 17)]), path)


def convolutions(path):
    g = Graph()
    a = g.add("Relu", g.add("Conv", "x", g.bell(8, 3, 3, 3), pads=[1] * 4, strides=[2, 2]))
    b = g.add("Relu", g.add("Conv", a, g.bell(8, 8, 3, 3), pads=[1] * 4))
    y = g.add("Conv", g.add("Add", a, b), g.bell(5, 8, 1, 1))
    g.save(path, [("x", onnx.TensorProto.FLOAT, ["batch", 3, "h", "w"])], y,
           ["batch", 5, None, None])


def encoder(path, layers=2, causal=False):
    """As BERT is exported: reshapes that keep dimensions, masks that are added to scores. Causal:
    as decoders are, with a triangle that hides later keys, and by the mask others."""
    g = Graph()
    size = g.add("Gather", g.add("Shape", "ids"), g.ints(1), axis=0)
    places = g.add("Slice", g.bell(LONGEST, HIDDEN), g.ints(0), size, g.ints(0))
    x = g.add("Add", g.add("Gather", g.bell(WORDS, HIDDEN), "ids", axis=0), places)
    seen = g.add("Unsqueeze", g.add("Cast", "mask", to=onnx.TensorProto.FLOAT), g.ints(1, 2))
    far = g.add("Mul", g.add("Sub", g.floats(1), seen), g.floats(-1e4))
    if causal:
        square = g.add("Expand", g.floats(-1e9), g.add("Concat", size, size, axis=0))
        later = g.add("Trilu", square, g.add("Squeeze", g.ints(1)), upper=1)
        hidden = g.add("Equal", g.add("Add", later, seen), g.floats(0))
        far = g.add("Where", hidden, g.floats(-1e9), later)
    for _ in range(layers):
        split = [g.add("Transpose", g.add("Reshape", g.add("MatMul", x, g.bell(HIDDEN, HIDDEN)),
                                          g.ints(0, 0, HEADS, HIDDEN // HEADS)),
                       perm=perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])]
        scores = g.add("Mul", g.add("MatMul", split[0], split[1]), g.floats(0.35))
        p = g.add("Softmax", g.add("Add", scores, far), axis=-1)
        joined = g.add("Transpose", g.add("MatMul", p, split[2]), perm=[0, 2, 1, 3])
        flat = g.add("Reshape", joined, g.ints(0, 0, HIDDEN))
        x = g.add("Add", x, g.add("MatMul", flat, g.bell(HIDDEN, HIDDEN)))
        gain = g.keep(np.ones(HIDDEN, np.float32))
        x = g.add("LayerNormalization", x, gain, axis=-1)
    y = g.add("MatMul", x, g.bell(HIDDEN, 7))
    kind = onnx.TensorProto.INT64
    g.save(path, [("ids", kind, ["batch", "seq"]), ("mask", kind, ["batch", "seq"])], y,
           ["batch", "seq", 7])


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class BesideOnnxruntime(harness.Served):
    LENGTHS, SIDES = (1, 5, 16, 33, 64), (8, 15, 32)

    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        encoder(folder / "encoder.onnx")
        encoder(folder / "decoder.onnx", causal=True)
        convolutions(folder / "convolutions.onnx")
        sides = ",".join(map(str, cls.SIDES))
        cls.server = harness.Server({
            **{name: {"path": str(folder / f"{name}.onnx"), "shapes": ["ids=1..4x1..64"],
                      "profiles": ["seq=" + ",".join(map(str, cls.LENGTHS))]}
               for name in ("encoder", "decoder")},
            "convolutions": {"path": str(folder / "convolutions.onnx"),
                             "shapes": ["x=1..2x3x8..32x8..32"],
                             "profiles": [f"h={sides}", f"w={sides}"]}},
            config={"workers": 2, "max_delay_us": 1000}, env={"INFERD_REFERENCE_KERNELS": None})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        cls.theirs = {name: onnxruntime.InferenceSession(
            str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder", "convolutions")}

    def feeds(self, rng, name, padded=False):
        if name == "convolutions":
            shape = (rng.integers(1, 3), 3, rng.choice(self.SIDES), rng.choice(self.SIDES))
            return {"x": rng.standard_normal(shape).astype(np.float32)}
        shape = (rng.integers(1, 5), rng.integers(2, 65) if padded else rng.choice(self.LENGTHS))
        mask = np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))
        return {"ids": rng.integers(0, WORDS, shape), "mask": mask.astype(np.int64)}

    KINDS = {"float32": "FP32", "int64": "INT64"}

    def check(self, client, name, feeds):
        reply = client.infer(name, [(k, self.KINDS[str(a.dtype)], list(map(int, a.shape)),
                                     a.tobytes()) for k, a in feeds.items()])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        _, shape, data = reply.outputs()["y"]
        expected = self.theirs[name].run(None, feeds)[0]
        self.assertEqual(tuple(shape), expected.shape)
        got = np.frombuffer(data, np.float32).reshape(shape)
        self.assertLess(np.abs(got - expected).max(), 2e-5 * max(1.0, np.abs(expected).max()))
        return reply.batch

    def test_a_thousand_requests_agree(self):
        rng = np.random.default_rng(2)
        with self.server.client() as client:
            for i in range(harness.fewer(1000)):
                name = ("encoder", "convolutions")[i % 2]
                self.check(client, name, self.feeds(rng, name))

    def test_a_mask_of_zeros_alone_is_not_padded(self):
        rng = np.random.default_rng(4)
        for length in (7, 16):
            feeds = {"ids": rng.integers(0, WORDS, (2, length)),
                     "mask": np.ones((2, length), np.int64)}
            feeds["mask"][1] = 0
            given = [(k, "INT64", [2, length], a.tobytes()) for k, a in feeds.items()]
            with self.server.client() as client:
                reply = client.infer("encoder", given)
                if length in self.LENGTHS:  # it runs; FP32 keeps little of scores less 1e4
                    self.assertEqual(reply.status, wire.OK, reply.message)
                    continue
                self.assertEqual(reply.status, FAILED_PRECONDITION)
                self.assertIn("'mask' has a row of zeros alone", reply.message)
                feeds["mask"][1, 3] = 1
                self.check(client, "encoder", feeds)

    def test_queries_that_see_nothing_are_not_padded(self):
        """Of a causal model, the first ones if what comes first is hidden."""
        rng = np.random.default_rng(6)
        with self.server.client() as client:
            for length in (7, 12, 40):
                ids = rng.integers(0, WORDS, (2, length))
                for zeros in (slice(length - 3, length), slice(2, 4), slice(0, 2)):
                    feeds = {"ids": ids, "mask": np.ones((2, length), np.int64)}
                    feeds["mask"][1, zeros] = 0
                    if zeros.start:
                        self.check(client, "decoder", feeds)
                        continue
                    reply = client.infer("decoder", [(k, "INT64", [2, length], a.tobytes())
                                                     for k, a in feeds.items()])
                    self.assertEqual(reply.status, FAILED_PRECONDITION)
                    self.assertIn("'mask' has a row that begins with a zero", reply.message)

    def test_mixed_lengths_are_joined_in_padded_batches(self):
        batches = []

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(harness.fewer(50)):
                    batches.append(self.check(client, "encoder",
                                              self.feeds(rng, "encoder", padded=True)))
        harness.together(6, send)
        self.assertEqual(len(batches), 6 * harness.fewer(50))


def gates(path):
    """Squeeze-excite: convolutions of one pixel, whose layouts are one."""
    g = Graph()
    small = g.add("Relu", g.add("Conv", g.add("GlobalAveragePool", "x"), g.bell(6, 24, 1, 1)))
    gate = g.add("Sigmoid", g.add("Conv", small, g.bell(24, 6, 1, 1)))
    g.save(path, [("x", onnx.TensorProto.FLOAT, ["batch", 24, "h", 8])], g.add("Mul", "x", gate),
           ["batch", 24, None, 8])


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class InAnotherProcess(unittest.TestCase):
    def test_what_a_build_found_in_a_cache_runs_without(self):
        """Several profiles have the same convolutions: oneDNN's cache held them when the second was
        built, and named kernels that a plain look does not find."""
        model, plan = (harness.folder() / f"gates.{end}" for end in ("onnx", "plan"))
        gates(model)
        x = np.random.default_rng(3).standard_normal((2, 24, 12, 8)).astype(np.float32)
        np.save(harness.folder() / "x.npy", x)
        theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        for words in (
                ["build", model, "-o", plan, "--no-tune", "--timing-cache", "", "--batch", "1,2",
                 "--shape", "x=*x*x8..12x8"],
                ["run", plan, "--quiet", "--input", f"x={harness.folder()}/x.npy", "--output",
                 harness.folder()]):
            done = subprocess.run([harness.INFERCTL, *words, "--threads", "1"], text=True,
                                  capture_output=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        got, expected = np.load(harness.folder() / "y.npy"), theirs.run(None, {"x": x})[0]
        self.assertLess(np.abs(got - expected).max(), 2e-5)


if __name__ == "__main__":
    harness.main()
