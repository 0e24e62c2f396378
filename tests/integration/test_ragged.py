#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ragged batches: sequences of any lengths beside onnxruntime on the padded model, through inferctl
and through the server, and models that cannot be so.

    test_ragged.py INFERD INFERCTL
"""
import re
import subprocess
import unittest

import harness
import wire
from test_shapes import Graph

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper
except ImportError:
    onnxruntime = None

HIDDEN, HEADS, WORDS, LONGEST = 32, 4, 50, 48
INPUTS = ("ids", "mask", "types")


class Encoder(Graph):
    """As BERT is exported: places are a slice of a table, masks are added to scores."""

    def __init__(self, masked=True, causal=False, layers=2):
        super().__init__()
        self.masked = masked
        self.size = self.add("Gather", self.add("Shape", "ids"), self.ints(1), axis=0)
        x = self.add("Add", self.add("Gather", self.bell(WORDS, HIDDEN), "ids", axis=0),
                     self.add("Gather", self.bell(2, HIDDEN), self.embed_types(), axis=0))
        x = self.add("Add", x, self.add("Gather", self.bell(LONGEST + 2, HIDDEN), self.places(),
                                        axis=0))
        self.far = self.hidden_keys(causal)
        for _ in range(layers):
            x = self.layer(x)
        self.x = x

    def places(self):
        return self.add("Slice", self.keep(np.arange(LONGEST)[None]), self.ints(0), self.size,
                        self.ints(1))

    def embed_types(self):
        return "types"

    def scores_of(self, q, k):
        return self.add("Mul", self.add("MatMul", q, k), self.floats(0.35))

    def hidden_keys(self, causal):
        far = None
        if self.masked:
            seen = self.add("Unsqueeze", self.add("Cast", "mask", to=onnx.TensorProto.FLOAT),
                            self.ints(1, 2))
            far = self.add("Mul", self.add("Sub", self.floats(1), seen), self.floats(-1e4))
        if causal:
            square = self.add("Expand", self.floats(-1e9),
                              self.add("Concat", self.size, self.size, axis=0))
            later = self.add("Trilu", square, self.add("Squeeze", self.ints(1)), upper=1)
            far = self.add("Add", later, far) if far else later
        return far

    def layer(self, x):
        split = [self.add("Transpose", self.add(
            "Reshape", self.add("MatMul", x, self.bell(HIDDEN, HIDDEN)),
            self.ints(0, 0, HEADS, HIDDEN // HEADS)), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])]
        scores = self.scores_of(split[0], split[1])
        if self.far:
            scores = self.add("Add", scores, self.far)
        p = self.add("Softmax", self.change_scores(scores), axis=-1)
        joined = self.add("Transpose", self.add("MatMul", p, split[2]), perm=[0, 2, 1, 3])
        flat = self.add("Reshape", joined, self.ints(0, 0, HIDDEN))
        x = self.add("Add", x, self.add("MatMul", flat, self.bell(HIDDEN, HIDDEN)))
        return self.add("LayerNormalization", x, self.keep(np.ones(HIDDEN, np.float32)), axis=-1)

    def change_scores(self, scores):
        return scores

    def write(self, path, outputs):
        """`outputs`: values by name, with their dimensions."""
        nodes = [helper.make_node("Identity", [value], [name])
                 for name, (value, _) in outputs.items()]
        kind = onnx.TensorProto.INT64
        graph = helper.make_graph(
            self.nodes + nodes, "g",
            [helper.make_tensor_value_info(name, kind, ["batch", "seq"]) for name in INPUTS
             if self.masked or name != "mask"],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
             for name, (_, dims) in outputs.items()], self.weights)
        onnx.save(helper.make_model(graph, ir_version=8,
                                    opset_imports=[helper.make_opsetid("", 17)]), path)


class Chosen(Encoder):
    """As newer exports and DistilBERT are: types are zeros of the ids' shape, masks choose, in the
    shape of the scores, and hide by -inf."""

    def embed_types(self):
        zeros = self.add("ConstantOfShape", self.add("Shape", "ids"),
                         value=helper.make_tensor("v", onnx.TensorProto.INT64, [1], [0]))
        return zeros

    def hidden_keys(self, causal):
        return None

    def change_scores(self, scores):
        hidden = self.add("Equal", "mask", self.keep(np.array(0)))
        wide = self.add("Expand", self.add("Unsqueeze", hidden, self.ints(1, 2)),
                        self.add("Shape", scores))
        return self.add("Where", wide, self.floats(-np.inf), scores)


class Turned(Encoder):
    """Queries and keys are turned by angles that are tables by place, as rotary positions are."""

    def turn(self, x):
        half = HIDDEN // HEADS // 2
        parts = [self.add("Slice", x, self.ints(a), self.ints(b), self.ints(3))
                 for a, b in ((0, half), (half, 2 * half))]
        other = self.add("Concat", self.add("Neg", parts[1]), parts[0], axis=3)
        tables = [self.add("Slice", self.keep(table[None, None]), self.ints(0), self.size,
                           self.ints(2)) for table in self.angles()]
        return self.add("Add", self.add("Mul", x, tables[0]), self.add("Mul", other, tables[1]))

    def angles(self):
        size = HIDDEN // HEADS
        angle = np.outer(np.arange(LONGEST), 10.0 ** -np.arange(size // 2)).repeat(2, 0)
        angle = angle.reshape(LONGEST, 2 * (size // 2))
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def scores_of(self, q, k):
        k = self.add("Transpose", self.turn(self.add("Transpose", k, perm=[0, 1, 3, 2])),
                     perm=[0, 1, 3, 2])
        return super().scores_of(self.turn(q), k)


class Counted(Encoder):
    """Positions are counted from the ids, as RoBERTa's are: 0 stands for padding."""

    def places(self):
        there = self.add("Cast", self.add("Not", self.add("Equal", "ids", self.keep(np.array(0)))),
                         to=onnx.TensorProto.INT64)
        counted = self.add("CumSum", there, self.keep(np.array(1)))
        return self.add("Add", self.add("Mul", counted, there), self.keep(np.array(1)))


class Biased(Encoder):
    """Scores have a bias by distance, as T5 has it."""

    def change_scores(self, scores):
        row = self.add("Slice", self.bell(LONGEST), self.ints(0), self.size, self.ints(0))
        return self.add("Add", scores, row)


ROWS = ["batch", "seq", HIDDEN]


def first(g, sliced=False):
    """Classes of the first token."""
    if sliced:
        x = g.add("Slice", g.x, g.ints(0), g.ints(1), g.ints(1))
        x = g.add("Reshape", x, g.ints(-1, HIDDEN))
    else:
        x = g.add("Gather", g.x, g.keep(np.array(0)), axis=1)
    x = g.add("Tanh", g.add("MatMul", x, g.bell(HIDDEN, HIDDEN)))
    return g.add("MatMul", x, g.bell(HIDDEN, 3)), ["batch", 3]


def tokens_and_first(path):
    g = Encoder()
    g.write(path, {"y": (g.x, ROWS), "classes": first(g)})


def only_first(path):
    g = Encoder()
    g.write(path, {"classes": first(g, sliced=True)})


def causal(path):
    g = Encoder(causal=True)
    g.write(path, {"y": (g.x, ROWS)})


def maskless(path):
    g = Encoder(masked=False)
    g.write(path, {"y": (g.add("MatMul", g.x, g.bell(HIDDEN, 5)), ["batch", "seq", 5])})


def chosen(path):
    g = Chosen()
    g.write(path, {"y": (g.x, ROWS)})


def turned(path):
    g = Turned()
    g.write(path, {"y": (g.x, ROWS)})


def counted(path):
    g = Counted()
    g.write(path, {"y": (g.x, ROWS), "classes": first(g)})


def means(path):
    """As sentence embeddings are: a mean of what the mask shows, and its direction."""
    g = Encoder()
    seen = g.add("Cast", g.add("Expand", g.add("Unsqueeze", "mask", g.ints(2)),
                               g.add("Shape", g.x)), to=onnx.TensorProto.FLOAT)
    total = g.add("ReduceSum", g.add("Mul", g.x, seen), g.ints(1), keepdims=0)
    count = g.add("Clip", g.add("ReduceSum", seen, g.ints(1), keepdims=0),
                  g.keep(np.array(1e-9, np.float32)))
    mean = g.add("Div", total, count)
    length = g.add("ReduceL2", mean, axes=[1], keepdims=1)
    g.write(path, {"mean": (mean, ["batch", HIDDEN]),
                   "embedding": (g.add("Div", mean, length), ["batch", HIDDEN])})


MODELS = {"both": tokens_and_first, "first": only_first, "causal": causal, "maskless": maskless,
          "chosen": chosen, "turned": turned, "counted": counted,
          "means": means}


def ragged(name):
    return ",".join(i for i in INPUTS if name != "maskless" or i != "mask")


def feeds_of(rng, name, lengths, size):
    shape = (len(lengths), size)
    mask = np.arange(size) < np.array(lengths)[:, None]
    feeds = {"ids": rng.integers(0, WORDS, shape), "mask": mask.astype(np.int64),
             "types": rng.integers(0, 2, shape)}
    if name == "maskless":
        del feeds["mask"]
    return feeds


def random_feeds(rng, name):
    count = int(rng.integers(1, 4))
    lengths = rng.integers(1, LONGEST + 1, count)
    if name == "maskless":
        lengths[:] = lengths[0]
    size = int(rng.integers(lengths.max(), LONGEST + 1)) if name != "maskless" else int(lengths[0])
    return feeds_of(rng, name, lengths, size)


class Theirs:
    """onnxruntime, whose outputs of tokens that are not there become zeros."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.sessions = {}
        for name, write in MODELS.items():
            path = harness.folder() / f"{name}.onnx"
            write(path)
            self.sessions[name] = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"])

    def run(self, name, feeds):
        session = self.sessions[name]
        outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
        if "y" in outputs and "mask" in feeds:
            outputs["y"] = outputs["y"] * feeds["mask"][:, :, None].astype(np.float32)
        return outputs


def build(*options, model="both", expect=0):
    done = subprocess.run(
        [harness.INFERCTL, "build", harness.folder() / f"{model}.onnx", "--no-tune",
         "--timing-cache", "", *options], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != expect:
        raise AssertionError(f"{done.returncode}: {done.stderr}")
    return done.stderr + done.stdout


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class Offline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.theirs = Theirs()

    def outputs(self, plan, feeds, *options):
        """By name, of both kinds that a model may have."""
        folder = harness.folder() / "outputs"
        folder.mkdir(exist_ok=True)
        words = []
        for key, array in feeds.items():
            np.save(harness.folder() / f"{key}.npy", array)
            words += ["--input", f"{key}={harness.folder()}/{key}.npy"]
        done = subprocess.run([harness.INFERCTL, "run", plan, "--quiet", *words, "--output", folder,
                               *options], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {path.stem: np.load(path) for path in folder.glob("*.npy")}

    def check(self, name, plan, feeds, *options):
        outputs = self.outputs(plan, feeds, *options)
        for key, expected in self.theirs.run(name, feeds).items():
            self.assertEqual(outputs[key].shape, expected.shape)
            self.assertLess(np.abs(outputs[key] - expected).max(), 2e-5)

    def test_plans_run_what_the_padded_model_gives(self):
        rng = np.random.default_rng(1)
        for name in MODELS:
            for kernels in ([], ["--reference-only"]):
                plan = harness.folder() / f"{name}.plan"
                build("-o", plan, "--ragged", ragged(name), "--shape", f"ids=*x1..{LONGEST}",
                      "--batch", "16,96,336", *kernels, model=name)
                for _ in range(harness.fewer(10)):
                    self.check(name, plan, random_feeds(rng, name), *kernels)
                self.check(name, plan, feeds_of(rng, name, [LONGEST] * 7, LONGEST), *kernels)
                self.check(name, plan, feeds_of(rng, name, [1], 1), *kernels)

    def test_sequences_stay_apart_where_numbers_are_infinite(self):
        g = Encoder(layers=1)
        g.write(harness.folder() / "infinite.onnx", {"y": (g.x, ROWS)})
        model = onnx.load(harness.folder() / "infinite.onnx")
        table = next(w for w in model.graph.initializer if list(w.dims) == [WORDS, HIDDEN])
        words = np.array(onnx.numpy_helper.to_array(table))
        words[7] = np.inf
        table.CopyFrom(onnx.numpy_helper.from_array(words, table.name))
        onnx.save(model, harness.folder() / "infinite.onnx")
        feeds = feeds_of(np.random.default_rng(5), "both", [9, 20, 17, 5], 20)
        feeds["ids"][feeds["ids"] == 7] = 8
        feeds["ids"][1, 3] = 7
        for kernels in ([], ["--reference-only"]):
            plan = harness.folder() / "infinite.plan"
            build("-o", plan, "--ragged", ragged("both"), "--shape", f"ids=*x1..{LONGEST}",
                  "--batch", "96", *kernels, model="infinite")
            y = self.outputs(plan, feeds, *kernels)["y"]
            self.assertTrue(np.isnan(y[1]).any())
            for row in (0, 2, 3):
                self.assertTrue(np.isfinite(y[row]).all(), f"sequence {row}, {kernels}")

    def test_large_batches(self):
        """What vanishes, or becomes a table, is large before it does: masks like scores, and types
        of all tokens."""
        plan = harness.folder() / "large.plan"
        build("-o", plan, "--ragged", ragged("chosen"), "--shape", f"ids=*x1..{LONGEST}", "--batch",
              "16,16384", model="chosen")
        self.assertLess(plan.stat().st_size, 1 << 20)
        self.check("chosen", plan, feeds_of(np.random.default_rng(3), "chosen", [3, 7], 9))

    def test_eight_bits(self):
        """Ranges that padded samples gave hold for the same tensors of a ragged plan. Its answers
        are those of the padded plan in 8 bits, up to what rounding to steps makes of the last bits
        in front of it."""
        rng = np.random.default_rng(4)
        folder = harness.folder() / "samples"
        folder.mkdir()
        for key, array in feeds_of(rng, "both", [LONGEST] * 16, LONGEST).items():
            np.save(folder / f"{key}.npy", array)
        table = harness.folder() / "both.ranges"
        subprocess.run([harness.INFERCTL, "calibrate", harness.folder() / "both.onnx", "--data",
                        folder, "-o", table, "--method", "minmax"], check=True, timeout=120,
                       capture_output=True)
        for precision in ("int8", "fp8"):
            common = ["--precision", precision, "--ranges", table, "--max-error", "none", "--pin",
                      f"*=~{precision}", "-v"]
            plan, padded = (harness.folder() / f"{precision}.{kind}.plan"
                            for kind in ("ragged", "padded"))
            said = build("-o", plan, "--ragged", ragged("both"), "--shape",
                         f"ids=*x1..{LONGEST}", "--batch", "96", *common)
            self.assertRegex(said, "ranges: [1-9][0-9]* tensors")
            build("-o", padded, "--batch", "4", "--shape", f"ids=*x1..{LONGEST}", *common)
            if precision == "int8":  # the CPU rounds to FP8's numbers, and computes in FP32
                self.assertIn("INT8", self.inspected(plan))
            feeds = feeds_of(rng, "both", [5, 17, 1, 24], 24)
            one, other = self.outputs(plan, feeds), self.outputs(padded, feeds)
            for key, exact in self.theirs.run("both", feeds).items():
                seen = feeds["mask"][:, :, None] if key == "y" else 1
                size = np.linalg.norm(exact)
                self.assertLess(np.linalg.norm((one[key] - other[key]) * seen), 5e-3 * size)
                error = np.linalg.norm((one[key] - exact) * seen)
                self.assertTrue(1e-4 * size < error < 0.1 * size, error / size)

    def test_a_model_that_is_built_on_the_way(self):
        rng = np.random.default_rng(2)
        self.check("both", harness.folder() / "both.onnx", feeds_of(rng, "both", [5, 9, 2], 9),
                   "--no-tune", "--timing-cache", "", "--ragged", "ids,mask", "--ragged", "types",
                   "--shape", "ids=*x1..32")

    def test_inspect_says_that_a_plan_is_ragged(self):
        plan = harness.folder() / "told.plan"
        build("-o", plan, "--ragged", ragged("both"), "--shape", f"ids=*x1..{LONGEST}", "--batch",
              "64")
        self.assertIn("ragged   batches of tokens, of sequences of up to 48, by the mask mask",
                      self.inspected(plan))

    @staticmethod
    def inspected(plan):
        return subprocess.run([harness.INFERCTL, "inspect", plan], capture_output=True, text=True,
                              timeout=120, check=True).stdout

    def test_bench_draws_sequences(self):
        plan = harness.folder() / "drawn.plan"
        build("-o", plan, "--ragged", ragged("both"), "--shape", f"ids=*x1..{LONGEST}", "--batch",
              "96")
        command = [harness.INFERCTL, "bench", plan, "--batch", "96", "--seconds", "0.05"]
        said = subprocess.run([*command, "--lengths", "5..20"], capture_output=True, text=True,
                              timeout=120, check=True).stdout
        found = re.search(r"(\d+) sequences of ([\d.]+) tokens in the mean", said)
        self.assertTrue(96 / 20 <= int(found.group(1)) <= 96 / 5 + 1, said)
        self.assertAlmostEqual(float(found.group(2)), 96 / int(found.group(1)), delta=0.1)
        for lengths in ("5..60", "0..5", "9..5", "x"):
            done = subprocess.run([*command, "--lengths", lengths], capture_output=True, text=True,
                                  timeout=120, check=False)
            self.assertIn("takes up to 48", done.stderr)

    def refused(self, model, options, *words):
        why = build("-o", harness.folder() / "no.plan", *options, model=model, expect=1)
        for word in words:
            self.assertIn(word, why)

    def test_options_that_do_not_fit(self):
        names = ["--ragged", "ids,mask,types"]
        for options, word in (
                (["--ragged", "ids,mask"], "input 'types' is not among them"),
                (["--ragged", "ids,mask,types,more"], "no input 'more'"),
                (["--ragged", "ids,ids"], "given twice"), (["--ragged", "ids,"], "the form is"),
                ([*names, "--batch", "100"], "multiples of 16"),
                ([*names, "--shape", "ids=2x1..8"], "the form is INPUT=*x1..N"),
                ([*names, "--shape", "ids=*x1..8", "--shape", "mask=*x1..9"], "elsewhere"),
                ([*names, "--profiles", "seq=8"], "goes without"),
                ([*names, "--shape", "ids=*x1..64"], "64 tokens")):
            self.refused("both", options, word)

    def test_models_that_cannot_be_ragged(self):
        def most(g):
            return g.add("ReduceMax", g.x, axes=[1], keepdims=0), ["batch", HIDDEN]

        def last(g):
            x = g.add("Gather", g.x, g.keep(np.array(-1)), axis=1)
            return g.add("MatMul", x, g.bell(HIDDEN, 3)), ["batch", 3]

        def over_tokens(g):
            return g.add("Softmax", g.x, axis=1), ROWS

        def sums(g):
            return g.add("CumSum", g.x, g.keep(np.array(1))), ROWS  # of floats

        def turned(g):
            return g.add("Transpose", g.x, perm=[0, 2, 1]), ["batch", HIDDEN, "seq"]

        def neighbours(g):
            x = g.add("Conv", g.add("Transpose", g.x, perm=[0, 2, 1]), g.keep(
                np.ones((HIDDEN, HIDDEN, 3), np.float32)), pads=[1, 1])
            return g.add("Transpose", x, perm=[0, 2, 1]), ROWS

        def first_of_neighbours(g):
            g.x, _ = neighbours(g)
            return first(g)

        def other_sequences(g):
            return g.add("Softmax", g.x, axis=0), ROWS

        for make, words in ((most, ["tokens are not apart", "ReduceMax"]),
                            (last, ["tokens are not apart"]),
                            (over_tokens, ["tokens are not apart", "Softmax"]),
                            (sums, ["tokens are not apart", "CumSum"]),
                            (turned, ["output 'y'"]), (neighbours, ["tokens are not apart"]),
                            (first_of_neighbours, ["tokens are not apart"]),
                            (other_sequences, ["sequences are not apart"])):
            g = Encoder(layers=1)
            g.write(harness.folder() / "odd.onnx", {"y": make(g)})
            with self.subTest(make.__name__):
                self.refused("odd", ["--ragged", "ids,mask,types", "--shape", "ids=*x1..16",
                                     "--batch", "64"], "unsupported", "--ragged", *words)
        g = Biased(layers=1)
        g.write(harness.folder() / "odd.onnx", {"y": (g.x, ROWS)})
        self.refused("odd", ["--ragged", "ids,mask,types", "--shape", "ids=*x1..16", "--batch",
                             "64"], "unsupported", "adds numbers to its scores")


@unittest.skipUnless(onnxruntime, "needs onnxruntime, onnx and numpy")
class Server(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.theirs = Theirs()
        cls.server = harness.Server(
            {name: {"path": str(harness.folder() / f"{name}.onnx"), "batches": [64, 192],
                    "ragged": ragged(name).split(","), "shapes": [f"ids=*x1..{LONGEST}"]}
             for name in MODELS},
            config={"workers": 2, "max_delay_us": 3000}, arguments=["--http", "127.0.0.1:0"],
            env={"INFERD_REFERENCE_KERNELS": None})

    def ask(self, client, name, feeds):
        return client.infer(name, [(k, "INT64", list(map(int, a.shape)),
                                    a.astype(np.int64).tobytes()) for k, a in feeds.items()])

    def check(self, client, name, feeds):
        reply = self.ask(client, name, feeds)
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        for key, expected in self.theirs.run(name, feeds).items():
            _, shape, data = reply.outputs()[key]
            self.assertEqual(tuple(shape), expected.shape)
            got = np.frombuffer(data, np.float32).reshape(shape)
            self.assertLess(np.abs(got - expected).max(), 2e-5)
        return reply.batch

    def test_requests_of_different_lengths_share_batches(self):
        batches = []

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(harness.fewer(40)):
                    name = list(MODELS)[int(rng.integers(len(MODELS)))]
                    feeds = random_feeds(rng, name)
                    own = sum(map(len, feeds["ids"])) if name == "maskless" else feeds["mask"].sum()
                    batches.append((self.check(client, name, feeds), int(own)))
        harness.together(8, send)
        self.assertEqual(len(batches), 8 * harness.fewer(40))
        self.assertLessEqual(max(b for b, _ in batches), 192)
        self.assertTrue(any(b > own + 48 for b, own in batches), "no two requests shared a batch")

    def refused(self, name, feeds, *words):
        with self.server.client() as client:
            reply = self.ask(client, name, feeds)
        self.assertEqual(reply.status, wire.INVALID_ARGUMENT, reply.message)
        for word in words:
            self.assertIn(word, reply.message)

    def test_what_is_no_sequence_is_refused(self):
        rng = np.random.default_rng(5)
        feeds = feeds_of(rng, "both", [5, 7], 9)
        feeds["mask"][1, 2] = 0
        self.refused("both", feeds, "row 1 hides token 2 and shows token 3")
        feeds["mask"][1] = 0
        self.refused("both", feeds, "row 1 shows no token")
        self.refused("both", feeds_of(rng, "both", [LONGEST], LONGEST + 1), "'tokens'", "1 to 48")
        self.refused("both", feeds_of(rng, "both", [LONGEST] * 5, LONGEST), "240 tokens",
                     "at most 192")
        self.refused("both", feeds_of(rng, "both", [1] * 20, LONGEST), "pad them less")
        self.refused("both", feeds_of(rng, "both", [1] * 193, 1), "'sequences'", "1 to 192")
        feeds = feeds_of(rng, "both", [5, 7], 9)
        feeds["types"] = feeds["types"][:, :8]
        self.refused("both", feeds, "'tokens'", "9 elsewhere")
        with self.server.client() as client:  # padding costs nothing where no output has it
            self.check(client, "first", feeds_of(rng, "first", [1] * 20, LONGEST))

    def test_an_index_out_of_range_fails_its_own_request(self):
        rng = np.random.default_rng(6)
        failed = []

        def send(seed):
            own = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(10):
                    feeds = random_feeds(own, "both")
                    if seed:
                        self.check(client, "both", feeds)
                        continue
                    feeds["ids"][0, 0] = WORDS
                    failed.append(self.ask(client, "both", feeds).status)
        harness.together(5, send)
        self.assertNotIn(wire.OK, failed)
        with self.server.client() as client:
            self.check(client, "both", random_feeds(rng, "both"))

    def test_metadata_leaves_sequences_and_tokens_open(self):
        self.assertEqual(self.server.shapes("both"), {
            "ids": [-1, -1], "mask": [-1, -1], "types": [-1, -1], "y": [-1, -1, HIDDEN],
            "classes": [-1, 3]})


if __name__ == "__main__":
    harness.main()
