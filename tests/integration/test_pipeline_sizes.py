#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines of models whose sizes are not known beforehand: those that requests choose, those that
only a run tells, and instances that are counted elsewhere than first.

    test_pipeline_sizes.py INFERD INFERCTL
"""
import random
import struct
import subprocess
import unittest

import harness
import test_pipelines as pipelines
import wire
from harness import FLOAT, INT64, node, value
from test_pipelines import ensemble, step
from wire import message

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError:
    onnxruntime = None

FULL, FAILED_PRECONDITION, UNAVAILABLE = 8, 9, 14


def add():
    """y = x + z, [N,seq,2] each: nobody sees what is put behind."""
    return harness.model([node("Add", ["x", "z"], ["y"])],
                         [value("x", FLOAT, ["N", "seq", 2]), value("z", FLOAT, ["N", "seq", 2])],
                         [value("y", FLOAT, ["N", "seq", 2])])


def softmax():
    """Along its free dimension, which is called otherwise here and cannot be padded."""
    return harness.model(
        [node("Softmax", ["a"], ["b"]) + pipelines.attributes(("axis", 1))],
        [value("a", FLOAT, ["N", "len", 2])], [value("b", FLOAT, ["N", "len", 2])])


def pairs():
    """Means of two neighbours: half as long, which no name says."""
    return harness.model(
        [node("AveragePool", ["a"], ["b"]) +
         pipelines.message((5, message((1, "kernel_shape"), (8, 2), (20, 7)))) +
         pipelines.message((5, message((1, "strides"), (8, 2), (20, 7))))],
        [value("a", FLOAT, ["N", 2, "w"])], [value("b", FLOAT, ["N", 2, "half"])])


def nonzero():
    """The rows of x [8,2] whose first number is not zero: as many as a request tells."""
    return harness.model(
        [node("Gather", ["x", "zero"], ["first"]) + pipelines.attributes(("axis", 1)),
         node("NonZero", ["first"], ["at"]),
         node("Gather", ["x", "at"], ["two"]), node("Squeeze", ["two", "axis"], ["rows"])],
        [value("x", FLOAT, [8, 2])], [value("rows", FLOAT, ["n", 2])],
        [harness.constant("zero", INT64, [], bytes(8)),
         harness.constant("axis", INT64, [1], bytes(8))])


def counted():
    """0, 1, .. up to n, which a request tells."""
    return harness.model(
        [node("Identity", ["n"], ["m"]), node("Range", ["zero", "m", "one"], ["y"])],
        [value("n", INT64, [])], [value("y", INT64, ["count"])],
        [harness.constant("zero", INT64, [], bytes(8)),
         harness.constant("one", INT64, [], struct.pack("<q", 1))])


def double():
    """y = 2x for rows of two, which are instances."""
    return harness.model([node("Add", ["x", "x"], ["y"])], [value("x", FLOAT, ["N", 2])],
                         [value("y", FLOAT, ["N", 2])])


def scaled():
    """y [3,batch,2] = x * s; s has no dimensions."""
    return harness.model(
        [node("Mul", ["x", "s"], ["y"])],
        [value("x", FLOAT, [3, "batch", 2]), value("s", FLOAT, [])],
        [value("y", FLOAT, [3, "batch", 2])])


MODELS = {"add": add, "softmax": softmax, "pairs": pairs, "nonzero": nonzero, "counted": counted,
          "double": double, "scaled": scaled}
LISTS = {"N": {"batches": [1, 2, 4]}, "scaled": {"batches": [1, 4]}}


def entry(name, **settings):
    path = harness.folder() / f"sizes_{name}.onnx"
    if not path.exists():
        path.write_bytes(MODELS[name]())
    return dict(settings, path=str(path))


def pipeline(name, inputs, outputs, *steps, dims=None):
    """A pipeline whose file leaves types and shapes out, but for what `dims` has."""
    path = harness.folder() / f"{name}.pbtxt"

    def list_of(kind, names):
        return "".join(f'{kind} {{ name: "{n}" {dims[n] if dims and n in dims else ""} }}\n'
                       for n in names)
    path.write_text('platform: "ensemble"\n' + list_of("input", inputs) +
                    list_of("output", outputs) + "ensemble_scheduling {\n" + "\n".join(steps) +
                    "\n}\n")
    return str(path)


ADD = {"shapes": ["x=1..4x1..300x2"], "profiles": ["seq=4,16,300"]}
SOFTMAX = {"shapes": ["a=1..4x2..200x2"], "profiles": ["len=4,16"], "on_new_shape": "wait"}
CHAIN = (step("add", {"x": "x", "z": "z"}, {"y": "sum"}), step("softmax", {"a": "sum"}, {"b": "p"}),
         step("add", {"x": "p", "z": "x"}, {"y": "y"}))


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def array(tensor):
    kind, shape, data = tensor
    return np.frombuffer(data, {"FP32": np.float32, "INT64": np.int64}[kind]).reshape(shape)


def same(case, reply, name, want):
    case.assertEqual((reply.status, reply.message), (wire.OK, ""))
    got = array(reply.outputs()[name])
    case.assertEqual(got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


class Graph:
    """The same chain, by onnxruntime."""

    def __init__(self, *steps):
        self.steps = [(onnxruntime.InferenceSession(MODELS[model](),
                                                    providers=["CPUExecutionProvider"]), i, o)
                      for model, i, o in steps]

    def run(self, **values):
        for session, inputs, outputs in self.steps:
            made = session.run(list(outputs), {k: values[v] for k, v in inputs.items()})
            values.update(zip(outputs.values(), made))
        return values


def idle(case, server):
    """Nothing is in flight any more, and no byte is charged."""
    with server.client() as client:
        harness.until(lambda: wire.one(client.call(wire.STATUS).body, 9, 0) == 0)
        case.assertEqual(wire.one(client.call(wire.STATUS).body, 8, 0), 0)


@unittest.skipUnless(onnxruntime, "onnxruntime is the judge")
class Chosen(harness.Served):
    """Sizes that requests choose, through three steps: padded, exact, and new ones."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            {"add": entry("add", **ADD), "softmax": entry("softmax", **SOFTMAX),
             "pairs": entry("pairs", shapes=["a=1..4x2x2..64"], profiles=["w=8,64"],
                            on_new_shape="wait"),
             "chain": pipeline("chain", "xz", "y", *CHAIN),
             "small": pipeline("small", "xz", "y", *CHAIN, dims={"x": "dims: [ -1, 16, 2 ]"}),
             "halves": pipeline("halves", "a", "c", step("pairs", {"a": "a"}, {"b": "b"}),
                                step("pairs", {"a": "b"}, {"b": "c"})),
             "outer": pipeline("outer", "xz", "y", step("chain", {"x": "x", "z": "z"}, {"y": "t"}),
                               step("add", {"x": "t", "z": "z"}, {"y": "y"}))},
            config={"workers": 2, "max_delay_us": 1000, "shape_engines": 64,
                    "limits": {"shape_builds": 64}},
            arguments=["--http", "127.0.0.1:0"])
        cls.graph = Graph(("add", {"x": "x", "z": "z"}, {"y": "sum"}),
                          ("softmax", {"a": "sum"}, {"b": "p"}),
                          ("add", {"x": "p", "z": "x"}, {"y": "y"}))

    def ask(self, client, rng, n, seq, model="chain"):
        x, z = (rng.standard_normal((n, seq, 2), dtype=np.float32) for _ in range(2))
        reply = client.infer(model, [("x", "FP32", [n, seq, 2], x.tobytes()),
                                     ("z", "FP32", [n, seq, 2], z.tobytes())])
        want = self.graph.run(x=x, z=z)["y"]
        same(self, reply, "y", want if model != "outer" else want + z)

    def test_metadata_leaves_sizes_open(self):
        self.assertEqual(self.server.shapes("chain"),
                         {"x": [-1, -1, 2], "z": [-1, -1, 2], "y": [-1, -1, 2]})
        self.assertEqual(self.server.shapes("small"),
                         {"x": [-1, 16, 2], "z": [-1, 16, 2], "y": [-1, 16, 2]})
        self.assertEqual(self.server.shapes("halves"), {"a": [-1, 2, -1], "c": [-1, 2, -1]})

    def test_results_are_onnxruntimes_at_mixed_sizes(self):
        sizes = (2, 3, 4, 9, 16, 30)

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(30):
                    self.ask(client, rng, int(rng.integers(1, 5)), int(rng.choice(sizes)))
        harness.together(4, send)
        idle(self, self.server)

    def test_pipelines_in_pipelines_choose_too(self):
        rng = np.random.default_rng(1)
        with self.server.client() as client:
            for n, seq in ((1, 4), (3, 16), (2, 5)):
                self.ask(client, rng, n, seq, "outer")
            self.ask(client, rng, 2, 16, "small")

    def test_what_a_step_makes_of_a_size_is_the_next_ones_size(self):
        graph = Graph(("pairs", {"a": "a"}, {"b": "b"}), ("pairs", {"a": "b"}, {"b": "c"}))
        rng = np.random.default_rng(2)
        with self.server.client() as client:
            for n, w in ((1, 8), (2, 64), (1, 20), (4, 12)):
                a = rng.standard_normal((n, 2, w), dtype=np.float32)
                reply = client.infer("halves", [("a", "FP32", [n, 2, w], a.tobytes())])
                same(self, reply, "c", graph.run(a=a)["c"])
            # 2 becomes 1, which the second step does not take
            reply = client.infer("halves", [("a", "FP32", [1, 2, 2], floats([1] * 4))])
            self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
            self.assertRegex(reply.message, r"^step 2 'pairs': .*'w'\) is 1.* 2 to 64")
        idle(self, self.server)

    def test_r3_sizes_out_of_range_are_refused_before_anything_runs(self):
        with self.server.client() as client:
            before = client.counters()
            for x, z, why in (([1, 201, 2], [1, 201, 2], "takes 2 to 200"),
                              ([1, 1, 2], [1, 1, 2], "takes 2 to 200"),
                              ([1, 1 << 40, 2], [1, 1 << 40, 2], "takes 2 to 200"),
                              ([1, (1 << 63) - 1, 2], [1, 4, 2], "is not a shape"),
                              ([1, -4, 2], [1, 4, 2], "is not a shape"),
                              ([1, 0, 2], [1, 0, 2], "takes 2 to 200"),
                              ([1, 4, 2], [1, 5, 2], "but 4 elsewhere"),
                              ([5, 4, 2], [5, 4, 2], "takes 1 to 4")):
                for model in ("chain", "outer"):
                    reply = client.infer(model, [("x", "FP32", x, b""), ("z", "FP32", z, b"")])
                    self.assertEqual(reply.status, wire.INVALID_ARGUMENT, reply.message)
                    if reply.message.find("bytes") < 0:
                        self.assertIn(why, reply.message)
            after = client.counters()
            self.assertEqual(after["shape_misses"], before["shape_misses"])
        idle(self, self.server)


class Policies(unittest.TestCase):
    """on_new_shape of a step's model is what happens to the pipeline's request."""

    def serve(self, policy, limits=None, **config):
        softmax = dict(SOFTMAX, on_new_shape=policy) if policy else \
            {k: v for k, v in SOFTMAX.items() if k != "on_new_shape"}
        return harness.Server(
            {"add": entry("add", **ADD), "softmax": entry("softmax", **softmax),
             "chain": pipeline("chain", "xz", "y", *CHAIN)},
            config=dict({"workers": 2, "limits": limits or {}}, **config))

    def ask(self, client, seq, **options):
        data = floats([1] * (2 * seq))
        return client.infer("chain", [("x", "FP32", [1, seq, 2], data),
                                      ("z", "FP32", [1, seq, 2], data)], **options)

    def right(self, reply, seq):
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        got = struct.unpack(f"<{2 * seq}f", reply.outputs()["y"][2])
        for number in got:
            self.assertAlmostEqual(number, 1 + 1 / seq, 5)

    def test_without_the_key_a_step_refuses(self):
        with self.serve(None) as server, server.client() as client:
            self.right(self.ask(client, 4), 4)
            reply = self.ask(client, 5)
            self.assertEqual(reply.status, FAILED_PRECONDITION)
            self.assertRegex(reply.message, r"^step 2 'softmax': no profile .*len=5")
            idle(self, server)

    def test_refuse_says_so_and_later_it_is_there(self):
        with self.serve("refuse") as server, server.client() as client:
            reply = self.ask(client, 7)
            self.assertEqual(reply.status, UNAVAILABLE)
            self.assertRegex(reply.message, r"^step 2 'softmax': an engine for len=7 is being")

            def there():
                answer = self.ask(client, 7)
                return answer.status == wire.OK and not self.right(answer, 7)
            harness.until(there)
            idle(self, server)

    def test_a_step_falls_back_to_the_cpu(self):
        with self.serve("fallback", device="fault") as server:
            with server.client() as client:
                for seq in range(30, 50):  # a loop that gets no time may find the engine at once
                    self.right(self.ask(client, seq), seq)
                    if client.counters()["shape_fallbacks"]:
                        break
                self.assertGreaterEqual(client.counters()["shape_fallbacks"], 1)
                idle(self, server)

    def test_r12_who_waits_for_an_engine_expires_cancels_and_leaves(self):
        with self.serve("wait") as server, server.client() as client:
            self.assertEqual(self.ask(client, 50, timeout_us=1000).status, wire.DEADLINE_EXCEEDED)
            for seq in (51, 52):
                with server.client() as gone:
                    data = floats([1] * (2 * seq))
                    gone.start(wire.INFER, wire.infer_body(
                        "chain", [("x", "FP32", [1, seq, 2], data),
                                  ("z", "FP32", [1, seq, 2], data)]))
            data = floats([1] * (2 * 53))
            number = client.start(wire.INFER, wire.infer_body(
                "chain", [("x", "FP32", [1, 53, 2], data), ("z", "FP32", [1, 53, 2], data)]))
            client.start(wire.CANCEL, message((1, number)))
            statuses = sorted(client.receive().status for _ in range(2))
            self.assertIn(statuses, ([wire.OK, wire.OK], [wire.OK, wire.CANCELLED]))
            for seq in (50, 51, 52, 53):
                self.right(self.ask(client, seq), seq)
            idle(self, server)

    def test_r24_a_drain_answers_who_waits(self):
        import signal
        with self.serve("wait") as server, server.client() as client:
            for seq in range(60, 66):
                data = floats([1] * (2 * seq))
                client.start(wire.INFER, wire.infer_body(
                    "chain", [("x", "FP32", [1, seq, 2], data), ("z", "FP32", [1, seq, 2], data)]))
            with server.client() as other:
                harness.until(lambda: other.counters()["shape_misses"] >= 1)
            server.signal(signal.SIGTERM)
            statuses = [client.receive().status for _ in range(6)]
            self.assertLessEqual(set(statuses), {wire.OK, UNAVAILABLE})

    def test_r18_a_bomb_of_sizes_through_a_pipeline_costs_bounded_work(self):
        limits = {"shape_builds": 4, "shape_requests": 6}
        with self.serve("wait", limits, shape_engines=4) as server:
            with server.client() as bomb, server.client() as other:
                for seq in range(20, 180):
                    data = floats([1] * (2 * seq))
                    bomb.start(wire.INFER, wire.infer_body(
                        "chain", [("x", "FP32", [1, seq, 2], data),
                                  ("z", "FP32", [1, seq, 2], data)]))
                for _ in range(10):
                    self.right(self.ask(other, 4), 4)
                replies = [bomb.receive() for _ in range(160)]
                statuses = [r.status for r in replies]
                self.assertLessEqual(set(statuses), {wire.OK, FULL})
                self.assertGreater(statuses.count(FULL), 100)
                self.assertGreater(statuses.count(wire.OK), 0)
                for reply in replies:
                    if reply.status == FULL:
                        self.assertRegex(reply.message, "^step 2 'softmax': ")
            idle(self, server)


@unittest.skipUnless(onnxruntime, "onnxruntime is the judge")
class Late(harness.Served):
    """Sizes that only a run tells are the next step's number of instances, or its sizes."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            {"nonzero": entry("nonzero"), "counted": entry("counted"),
             "double": entry("double", batches=[1, 2, 4]),
             "rows": pipeline("rows", "x", ["y", "rows"],
                              step("nonzero", {"x": "x"}, {"rows": "rows"}),
                              step("double", {"x": "rows"}, {"y": "y"})),
             "twice": pipeline("twice", "x", "y", step("double", {"x": "x"}, {"y": "t"}),
                               step("nonzero", {"x": "t"}, {"rows": "y"}),
                               dims={"x": "dims: [ 8, 2 ]"}),
             "count": pipeline("count", "n", "y", step("counted", {"n": "n"}, {"y": "y"}))},
            config={"workers": 2, "limits": {"tail_bytes": "1MiB", "output_bytes": "64KiB"}},
            arguments=["--http", "127.0.0.1:0"])

    def test_metadata_leaves_late_sizes_open(self):
        self.assertEqual(self.server.shapes("rows"),
                         {"x": [8, 2], "y": [-1, 2], "rows": [-1, 2]})

    def test_as_many_instances_as_were_found(self):
        graph = Graph(("nonzero", {"x": "x"}, {"rows": "rows"}),
                      ("double", {"x": "rows"}, {"y": "y"}))

        def send(seed):
            rng = np.random.default_rng(seed)
            with self.server.client() as client:
                for _ in range(20):
                    x = rng.standard_normal((8, 2), dtype=np.float32)
                    x[rng.permutation(8)[rng.integers(1, 5):], 0] = 0
                    reply = client.infer("rows", [("x", "FP32", [8, 2], x.tobytes())])
                    want = graph.run(x=x)
                    same(self, reply, "y", want["y"])
                    same(self, reply, "rows", want["rows"])
        harness.together(6, send)
        idle(self, self.server)

    def test_more_instances_than_the_next_step_takes_are_refused_with_its_name(self):
        with self.server.client() as client:
            for n in (0, 5, 8):
                x = [float(k < 2 * n) for k in range(16)]
                reply = client.infer("rows", [("x", "FP32", [8, 2], floats(x))])
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
                self.assertRegex(reply.message, rf"^step 2 'double': .*{n} instances; .* 1 to 4")
        idle(self, self.server)

    def test_r3_a_size_that_a_run_tells_is_bounded(self):
        with self.server.client() as client:
            for n, word in ((1 << 14, "limits.output_bytes"), (1 << 18, "memory"), (1 << 40, "")):
                reply = client.infer("count", [("n", "INT64", [], struct.pack("<q", n))])
                self.assertNotEqual(reply.status, wire.OK)
                self.assertIn(word, reply.message)
                if word:
                    self.assertEqual(reply.status, FULL)
            reply = client.infer("count", [("n", "INT64", [], struct.pack("<q", 3))])
            self.assertEqual(reply.outputs()["y"], ("INT64", [3], struct.pack("<3q", 0, 1, 2)))
        idle(self, self.server)


class Axes(harness.Served):
    """Instances in the second dimension, and an input that all of a batch share."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            {"scaled": entry("scaled", batches=[1, 4]),
             "squared": pipeline("squared", "xs", "y", step("scaled", {"x": "x", "s": "s"},
                                                            {"y": "t"}),
                                 step("scaled", {"x": "t", "s": "s"}, {"y": "y"}))},
            config={"workers": 2, "max_delay_us": 5000}, arguments=["--http", "127.0.0.1:0"])

    def test_requests_are_joined_and_kept_apart(self):
        batches = []

        def send(seed):
            rng = random.Random(seed)
            with self.server.client() as client:
                for _ in range(40):
                    n, s = rng.randint(1, 2), rng.choice((2.0, 2.0, -3.0))
                    x = [float(rng.randrange(-99, 99)) for _ in range(6 * n)]
                    reply = client.infer("squared", [("x", "FP32", [3, n, 2], floats(x)),
                                                     ("s", "FP32", [], floats([s]))])
                    self.assertEqual((reply.status, reply.message), (wire.OK, ""))
                    self.assertEqual(reply.outputs()["y"],
                                     ("FP32", [3, n, 2], floats([v * s * s for v in x])))
                    batches.append(reply.batch)
        harness.together(8, send)
        self.assertGreater(max(batches), 2, "no two requests shared a batch")
        idle(self, self.server)

    def test_metadata_and_refusals(self):
        self.assertEqual(self.server.shapes("squared"),
                         {"x": [3, -1, 2], "s": [], "y": [3, -1, 2]})
        with self.server.client() as client:
            reply = client.infer("squared", [("x", "FP32", [3, 5, 2], floats([0] * 30)),
                                             ("s", "FP32", [], floats([1]))])
            self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
            self.assertIn("5 instances", reply.message)


class Contradictions(unittest.TestCase):
    def test_steps_whose_sizes_contradict_are_refused_when_they_are_bound(self):
        models = {"add": entry("add", **ADD),
                  "long": entry("softmax", shapes=["a=1..4x301..400x2"], profiles=["len=400"]),
                  "none": pipeline("none", "xz", "y", step("add", {"x": "x", "z": "z"},
                                                           {"y": "t"}),
                                   step("long", {"a": "t"}, {"b": "y"}))}
        server = harness.Server(models, arguments=["--check-config"], wait=False)
        self.assertEqual(server.wait(), 1, server.log())
        self.assertIn("step 2 'long': input 'a', dimension 1 ('len'): expected 301 to 400, but "
                      "tensor 't' has 1 to 300", server.log())


if __name__ == "__main__":
    harness.main()
