#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines: models that are a chain of models, as Triton's ensembles are.

    test_pipelines.py INFERD INFERCTL
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import tempfile
import threading
import time
import unittest

import harness
import wire
from harness import FLOAT, INT64, UINT8, node, value
from wire import message

try:
    import numpy as np
    import tritonclient.grpc as triton
except ImportError:
    triton = None

ADMIN = {"repository_mode": "explicit", "repository_load": ["*"],
         "identities": [{"name": "anonymous", "models": ["*"],
                         "rights": ["infer", "describe", "status", "admin"]}]}
SLOW = {"device": "fault", "workers": 2}
SLOW_ENV = {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=100ms"}
APART = {"INFERD_FAULT_SCRIPT": "on=cpu;apart"}
SLOW_APART = {"INFERD_FAULT_SCRIPT": "on=cpu;apart;launch:delay=100ms"}
WEIGHTS = struct.pack("<12f", *(0.01 * ((7 * i) % 11 - 5) for i in range(12)))
FLOAT_OF = 1  # Cast's `to`


def attributes(*pairs):
    """AttributeProtos of whole numbers, to be put behind a node."""
    return b"".join(wire.field(5, message((1, k), (3, v), (20, 2))) for k, v in pairs)


def cast_model():
    return harness.model([node("Cast", ["raw"], ["pixels"]) + attributes(("to", FLOAT_OF))],
                         [value("raw", UINT8, ["N", 4])], [value("pixels", FLOAT, ["N", 4])])


def classify_model():
    return harness.model(
        [node("MatMul", ["features", "w"], ["logits"])],
        [value("features", FLOAT, ["N", 4])], [value("logits", FLOAT, ["N", 3])],
        [harness.constant("w", FLOAT, [4, 3], WEIGHTS)])


def top_model():
    return harness.model(
        [node("Softmax", ["z"], ["scores"]) + attributes(("axis", 1)),
         node("ArgMax", ["z"], ["label"]) + attributes(("axis", 1), ("keepdims", 1))],
        [value("z", FLOAT, ["N", 3])],
        [value("scores", FLOAT, ["N", 3]), value("label", INT64, ["N", 1])])


def sum_model():
    return harness.model([node("Add", ["a", "b"], ["sum"])],
                         [value("a", FLOAT, ["N", 4]), value("b", FLOAT, ["N", 4])],
                         [value("sum", FLOAT, ["N", 4])])


def narrow_model():
    """x [N, 1<<18] -> y [N, 1]: its first number."""
    return harness.model(
        [node("Gather", ["x", "i"], ["y"]) + attributes(("axis", 1))],
        [value("x", FLOAT, ["N", 1 << 18])], [value("y", FLOAT, ["N", 1])],
        [harness.constant("i", INT64, [1], struct.pack("<q", 0))])


harness.MODELS.update(cast=cast_model, classify=classify_model, top=top_model, sum=sum_model,
                      narrow=narrow_model, broad=lambda: harness.expand_model(1 << 18))


def step(model, inputs, outputs, version=-1):
    maps = "".join(f' {kind}_map {{ key: "{k}" value: "{v}" }}'
                   for kind, links in (("input", inputs), ("output", outputs))
                   for k, v in links.items())
    return f'step {{ model_name: "{model}" model_version: {version}{maps} }}'


def tensors(kind, *items):
    return "".join(f'{kind} {{ name: "{name}" data_type: TYPE_{dtype} dims: [ {dims} ] }}\n'
                   for name, dtype, dims in items)


def ensemble(inputs, outputs, *steps, batch=8):
    return (f'platform: "ensemble"\nmax_batch_size: {batch}\n' + tensors("input", *inputs) +
            tensors("output", *outputs) +
            "ensemble_scheduling {\n" + "\n".join(steps) + "\n}\n")


DIGITS = ensemble([("image", "UINT8", 4)], [("scores", "FP32", 3), ("label", "INT64", 1)],
                  step("cast", {"raw": "image"}, {"pixels": "scaled"}),
                  step("classify", {"features": "scaled"}, {"logits": "logits"}),
                  step("top", {"z": "logits"}, {"scores": "scores", "label": "label"}))
# Two steps side by side, whose results are joined.
DIAMOND = ensemble([("x", "FP32", 4)], [("sum", "FP32", 4)],
                   step("sum", {"a": "left", "b": "right"}, {"sum": "sum"}),
                   step("copy", {"x": "x"}, {"y": "left"}),
                   step("twice", {"x": "x"}, {"y": "right"}))
LINE = ensemble([("x", "FP32", 4)], [("y", "FP32", 4)],
                step("copy", {"x": "x"}, {"y": "t"}), step("twice", {"x": "t"}, {"y": "y"}))


class Repository:
    def __init__(self, plans=(), **pipelines):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        for name in plans:
            self.put(name)
        for name, text in pipelines.items():
            self.write(name, text)

    def put(self, name, source=None, version="1", batches="1,2,4,8"):
        folder = self.path / name / version
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(harness.plan(source or name, batches), folder / "new")
        os.rename(folder / "new", folder / "model.plan")

    def write(self, name, text):
        (self.path / name / "1").mkdir(parents=True, exist_ok=True)
        (self.path / name / "new").write_text(text)
        os.rename(self.path / name / "new", self.path / name / "config.pbtxt")

    def serve(self, config=None, **more):
        doors = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        return harness.Server([self.path], config, arguments=doors, **more)


def door(server, name):
    if name == "metrics":
        return re.search(r"(?m)^metrics (\S+)$", server.log()).group(1)
    return re.search(rf"(?m)^ready (\S+) \({name}\)$", server.log()).group(1)


def http_call(server, path, body=None, method=None, kind="http"):
    connection = http.client.HTTPConnection(door(server, kind), timeout=harness.PATIENCE)
    with contextlib.closing(connection):
        data = None if body is None else json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, data)
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()


def order(server, model, what, **parameters):
    body = {"parameters": parameters} if parameters else {}
    return http_call(server, f"/v2/repository/models/{model}/{what}", body)


def states(server):
    code, index = http_call(server, "/v2/repository/index", {})
    assert code == 200, index
    return {e["name"]: (e.get("state"), e.get("reason", "")) for e in index}


def statistics(server, model):
    code, found = http_call(server, f"/v2/models/{model}/stats")
    assert code == 200, found
    return found["model_stats"][0]


def floats(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def one_by_one(client, image, n):
    """The three models, called one after the other."""
    for model, name, dtype, width in (("cast", "raw", "UINT8", 4),
                                      ("classify", "features", "FP32", 4), ("top", "z", "FP32", 3)):
        reply = client.infer(model, [(name, dtype, [n, width], image)])
        assert reply.status == wire.OK, reply.message
        outputs = reply.outputs()
        image = next(iter(outputs.values()))[2]
    return outputs


class Digits(harness.Served):
    """Preprocessing, a classifier, postprocessing."""

    @classmethod
    def setUpClass(cls):
        cls.r = Repository(["cast", "classify", "top", "copy", "twice", "sum", "rows"],
                           digits=DIGITS, diamond=DIAMOND,
                           lookup=ensemble([("n", "INT64", 1)], [("y", "FP32", "1, 2")],
                                           step("rows", {"n": "n"}, {"y": "y"})))
        cls.server = cls.r.serve(dict({"workers": 2, "io_threads": 2, "max_delay_us": 200},
                                      **cls.device), env=cls.env)

    device, env = {}, None

    def test_the_result_is_that_of_its_models_in_a_row(self):
        numbers = random.Random(1)
        with self.server.client() as c:
            for n in (1, 2, 3, 8):
                image = numbers.randbytes(4 * n)
                reply = c.infer("digits", [("image", "UINT8", [n, 4], image)])
                self.assertEqual(reply.status, wire.OK, reply.message)
                self.assertEqual(reply.outputs(), one_by_one(c, image, n))
                self.assertEqual(wire.text(reply.body, 1), "digits")
            only = c.infer("digits", [("image", "UINT8", [1, 4], image[:4])], outputs=["label"])
            self.assertEqual(list(only.outputs()), ["label"])

    def test_steps_side_by_side_are_joined(self):
        with self.server.client() as c:
            for n in (1, 5):
                x = floats(*range(4 * n))
                reply = c.infer("diamond", [("x", "FP32", [n, 4], x)])
                self.assertEqual(reply.outputs()["sum"],
                                 ("FP32", [n, 4], floats(*(3 * i for i in range(4 * n)))))

    def test_requests_of_many_clients_share_batches_and_keep_apart(self):
        def ask(seed):
            numbers = random.Random(seed)
            with self.server.client() as c:
                for _ in range(30):
                    n = numbers.randint(1, 3)
                    x = [numbers.randint(-9, 9) for _ in range(4 * n)]
                    y = c.infer("diamond", [("x", "FP32", [n, 4], floats(*x))]).outputs()["sum"]
                    self.assertEqual(y[2], floats(*(3 * v for v in x)))
        threads = [harness.Background(ask, seed) for seed in range(8)]
        for thread in threads:
            thread.finish()

    def test_many_at_once_on_one_connection(self):
        with self.server.client() as c:
            images = {}
            for k in range(200):
                image = bytes([k, 1, 2, 255 - k])
                images[c.start(wire.INFER, wire.infer_body(
                    "digits", [("image", "UINT8", [1, 4], image)]))] = image
            replies = [c.receive() for _ in range(200)]
            self.assertEqual({r.status for r in replies}, {wire.OK})
            for r in random.Random(2).sample(replies, 10):
                self.assertEqual(r.outputs(), one_by_one(c, images[r.id], 1))

    def test_the_other_doors(self):
        image = [3, 250, 7, 0]
        with self.server.client() as c:
            want = one_by_one(c, bytes(image), 1)
        code, reply = http_call(self.server, "/v2/models/digits/infer", {
            "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 4], "data": image}]})
        self.assertEqual(code, 200, reply)
        got = {o["name"]: o for o in reply["outputs"]}
        self.assertEqual(struct.pack("<q", *got["label"]["data"]), want["label"][2])
        self.assertEqual(floats(*got["scores"]["data"]), want["scores"][2])
        code, ranked = http_call(self.server, "/v2/models/digits/infer", {
            "inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 4], "data": image}],
            "outputs": [{"name": "scores", "parameters": {"classification": 1}}]})
        best = ranked["outputs"][0]["data"][0]
        self.assertEqual(int(best.split(":")[1]), got["label"]["data"][0])
        if not triton:
            return
        client = triton.InferenceServerClient(door(self.server, "grpc"))
        given = triton.InferInput("image", [1, 4], "UINT8")
        given.set_data_from_numpy(np.array([image], dtype=np.uint8))
        result = client.infer("digits", [given])
        self.assertEqual(result.as_numpy("scores").tobytes(), want["scores"][2])
        config = client.get_model_config("digits").config
        self.assertEqual([s.model_name for s in config.ensemble_scheduling.step],
                         ["cast", "classify", "top"])
        self.assertEqual(dict(config.ensemble_scheduling.step[0].input_map), {"raw": "image"})
        self.assertTrue(client.is_model_ready("digits"))

    def test_what_is_told_of_it(self):
        code, told = http_call(self.server, "/v2/models/digits")
        self.assertEqual((code, told["platform"]), (200, "ensemble"))
        self.assertEqual(told["inputs"],
                         [{"name": "image", "datatype": "UINT8", "shape": [-1, 4]}])
        code, config = http_call(self.server, "/v2/models/digits/config")
        self.assertEqual((config["platform"], config["max_batch_size"]), ("ensemble", 8))
        steps = config["ensemble_scheduling"]["step"]
        self.assertEqual(steps[1], {"model_name": "classify", "model_version": -1,
                                    "input_map": {"features": "scaled"},
                                    "output_map": {"logits": "logits"}})
        self.assertNotIn("dynamic_batching", config)
        self.assertEqual(states(self.server)["digits"], ("READY", ""))
        code, _ = http_call(self.server, "/v2/models/digits/ready")
        self.assertEqual(code, 200)

    def test_numbers_of_it_and_of_its_steps(self):
        names = ("diamond", "copy", "twice", "sum")
        before = {m: statistics(self.server, m) for m in names}
        with self.server.client() as c:
            for _ in range(5):
                c.infer("diamond", [("x", "FP32", [2, 4], bytes(32))])
        for m in names:
            after = statistics(self.server, m)
            self.assertEqual(after["inference_count"] - before[m]["inference_count"], 10, m)
            self.assertEqual(after["inference_stats"]["success"]["count"] -
                             before[m]["inference_stats"]["success"]["count"], 5, m)
        stats = statistics(self.server, "diamond")["inference_stats"]
        self.assertGreater(stats["success"]["ns"], 0)
        code, text = http_call(self.server, "/metrics", kind="metrics")
        self.assertRegex(text, r'nv_inference_request_success\{model="diamond",version="1"\} \d')
        code, page = http_call(self.server, "/model/digits/1", kind="metrics")
        self.assertEqual(code, 200)
        self.assertIn("<td>classify</td><td>features = scaled</td>", page)

    def test_a_step_that_fails_is_named_and_hurts_nobody_else(self):
        before = statistics(self.server, "lookup")["inference_stats"]["fail"]["count"]
        with self.server.client() as c, self.server.client() as other:
            bad = [c.start(wire.INFER, wire.infer_body(
                "lookup", [("n", "INT64", [1, 1], struct.pack("<q", 99))])) for _ in range(8)]
            good = [other.start(wire.INFER, wire.infer_body(
                "lookup", [("n", "INT64", [1, 1], struct.pack("<q", 2))])) for _ in range(8)]
            for _ in bad:
                reply = c.receive()
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT, reply.message)
                self.assertRegex(reply.message, r"^step 1 'rows': .*99")
            for _ in good:
                self.assertEqual(other.receive().outputs()["y"][2], floats(4, 5))
        after = statistics(self.server, "lookup")["inference_stats"]["fail"]["count"]
        self.assertEqual(after - before, 8)

    def test_requests_that_do_not_fit_are_refused_as_of_any_model(self):
        with self.server.client() as c:
            for inputs, why in (([("image", "FP32", [1, 4], bytes(16))], "expected UINT8"),
                                ([("image", "UINT8", [1, 5], bytes(5))], "expected shape"),
                                ([("image", "UINT8", [9, 4], bytes(36))], "takes 1 to 8"),
                                ([("scaled", "FP32", [1, 4], bytes(16))], "'image' is missing")):
                reply = c.infer("digits", inputs)
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
                self.assertIn(why, reply.message)


class DigitsApart(Digits):
    """The same on a device with memory of its own, on which tensors stay between the steps."""
    device, env = {"device": "fault"}, APART


class Changes(unittest.TestCase):
    """Steps' models come, go and fail while requests are on their way."""
    env = SLOW_ENV

    def start(self, r, delay="100ms", **more):
        """A server whose steps take so long."""
        env = {k: v.replace("100ms", delay) for k, v in self.env.items()}
        return r.serve(dict(ADMIN, **SLOW, **more.pop("config", {})), env=env, **more)

    def test_a_step_that_is_unloaded_or_exchanged_serves_what_has_begun(self):
        r = Repository(["copy", "twice"], line=LINE)
        x = [("x", "FP32", [1, 4], floats(1, 2, 3, 4))]
        with self.start(r, delay="800ms") as s, s.client() as c:
            c.start(wire.INFER, wire.infer_body("line", x))
            harness.until_in_flight(s, 2)  # the request, and its first step
            self.assertEqual(order(s, "twice", "unload")[0], 200)
            self.assertEqual(states(s)["line"][0], "UNAVAILABLE")
            self.assertIn("step 2 'twice'", states(s)["line"][1])
            self.assertEqual(http_call(s, "/v2/models/line/ready")[0], 503)
            self.assertEqual(c.receive().outputs()["y"][2], floats(2, 4, 6, 8))
            refused = c.infer("line", x)
            self.assertEqual(refused.status, wire.UNAVAILABLE)
            self.assertIn("step 2 'twice'", refused.message)
            s.wait_log("model 'twice' version '1' unloaded")
            self.assertEqual(order(s, "twice", "load")[0], 200)
            self.assertEqual(states(s)["line"], ("READY", ""))
            c.start(wire.INFER, wire.infer_body("line", x))
            harness.until_in_flight(s, 2)
            r.put("twice", "copy")  # the same name and shape, another result
            self.assertEqual(order(s, "twice", "load")[0], 200)
            self.assertEqual(c.receive().outputs()["y"][2], floats(2, 4, 6, 8))
            self.assertEqual(c.infer("line", x).outputs()["y"][2], floats(1, 2, 3, 4))

    def test_a_pipeline_is_unloaded_while_it_runs(self):
        r = Repository(["copy", "twice"], line=LINE)
        x = [("x", "FP32", [1, 4], floats(1, 2, 3, 4))]
        with self.start(r, delay="800ms") as s, s.client() as c:
            c.start(wire.INFER, wire.infer_body("line", x))
            harness.until_in_flight(s, 2)
            self.assertEqual(order(s, "line", "unload")[0], 200)
            self.assertEqual(order(s, "copy", "unload")[0], 200)
            self.assertEqual(c.receive().outputs()["y"][2], floats(2, 4, 6, 8))
            for model in ("line", "copy"):
                s.wait_log(f"model '{model}' version '1' unloaded")

    def test_an_order_to_load_a_pipeline_brings_its_models(self):
        nested = ensemble([("x", "FP32", 4)], [("y", "FP32", 4)],
                          step("line", {"x": "x"}, {"y": "t"}),
                          step("copy", {"x": "t"}, {"y": "y"}))
        r = Repository(["copy", "twice", "sum"], line=LINE, nested=nested, lost=ensemble(
            [("x", "FP32", 4)], [("y", "FP32", 4)], step("none", {"x": "x"}, {"y": "y"})))
        everything = {"copy", "twice", "line", "nested"}

        def ready(s):
            return {k for k, v in states(s).items() if v[0] == "READY"}
        for at_start in ([], ["nested"]):
            with r.serve(dict(ADMIN, repository_load=at_start)) as s, s.client() as c:
                if not at_start:
                    self.assertEqual(ready(s), set())
                    self.assertEqual(order(s, "nested", "load")[0], 200)
                self.assertEqual(ready(s), everything)
                self.assertEqual(c.infer("nested", [("x", "FP32", [1, 4], floats(1, 2, 3, 4))])
                                 .outputs()["y"][2], floats(2, 4, 6, 8))
                code, why = order(s, "lost", "load")
                self.assertEqual(code, 400, why)
                self.assertIn("there is no such model", why["error"])
                self.assertEqual(order(s, "nested", "unload")[0], 200)
                self.assertEqual(ready(s), everything - {"nested"})
                self.assertEqual(order(s, "line", "unload", unload_dependents=True)[0], 200)
                self.assertEqual(ready(s), set())

    def test_a_drain_finishes_what_has_begun(self):
        r = Repository(["copy", "twice"], line=LINE)
        with self.start(r) as s, s.client() as c:
            for _ in range(6):
                c.start(wire.INFER, wire.infer_body("line", [("x", "FP32", [1, 4], bytes(16))]))
            with s.client() as probe:  # six requests, and a step at least
                harness.until(lambda: wire.one(probe.call(wire.STATUS).body, 9, 0) > 6)
            s.signal(signal.SIGTERM)
            for _ in range(6):
                self.assertEqual(c.receive().status, wire.OK)

    def test_deadlines_cancels_and_lost_clients(self):
        r = Repository(["copy", "twice"], line=LINE)
        line = wire.infer_body("line", [("x", "FP32", [1, 4], bytes(16))])
        with self.start(r, delay="800ms") as s, s.client() as c:
            late = c.call(wire.INFER, line, timeout_us=50000)
            self.assertEqual(late.status, wire.DEADLINE_EXCEEDED, late.message)
            self.assertIn("step 2 'twice'", late.message)
            target = c.start(wire.INFER, line)
            harness.until_in_flight(s, 2)
            c.start(wire.CANCEL, message((1, target)))
            replies = {r.id: r for r in (c.receive(), c.receive())}
            self.assertEqual(replies[target].status, wire.CANCELLED)
            for _ in range(3):  # clients that leave in the middle
                with s.client() as gone:
                    for _ in range(20):
                        gone.start(wire.INFER, line)
                    time.sleep(0.05)
            self.assertEqual(c.call(wire.INFER, line).status, wire.OK)
            harness.until(lambda: wire.one(c.call(wire.STATUS).body, 9, 0) == 0)
            self.assertEqual(wire.one(c.call(wire.STATUS).body, 8, 0), 0)  # bytes


class ChangesApart(Changes):
    """The same on a device with memory of its own."""
    env = SLOW_APART


class Traces(unittest.TestCase):
    def test_each_step_is_a_span_with_stages_below_its_request(self):
        r = Repository(["copy", "twice"], line=LINE)
        file = pathlib.Path(tempfile.mkdtemp(dir=harness.folder())) / "trace.json"
        with r.serve({"trace_rate": 1, "trace_file": str(file)}) as s, s.client() as c:
            reply = c.infer("line", [("x", "FP32", [3, 4], bytes(48))])
            self.assertEqual(reply.status, wire.OK)
        events = json.loads(file.read_text().rstrip().rstrip(",").rstrip("]").rstrip(",\n") + "]")
        begun = [e for e in events if e.get("ph") == "b"]
        whole = [e for e in begun if e["name"] == "request"]
        steps = [e for e in begun if e["name"] == "step"]
        self.assertEqual([e["args"]["model"] for e in whole], ["line"])
        self.assertEqual({e["args"]["id"]: e["args"]["model"] for e in steps},
                         {"step 1 'copy'": "copy", "step 2 'twice'": "twice"})
        self.assertEqual({e["args"]["trace"] for e in steps}, {whole[0]["args"]["trace"]})
        for e in steps:
            stages = {o["name"] for o in begun if o["id"] == e["id"]}
            self.assertGreaterEqual(stages, {"step", "queue", "gather", "compute", "output"})
            self.assertEqual(e["args"]["instances"], 3)
            self.assertGreaterEqual(e["ts"], whole[0]["ts"])


class Configurations(unittest.TestCase):
    def test_what_does_not_fit_is_refused_with_the_reason(self):
        x, y = ("x", "FP32", 4), ("y", "FP32", 4)
        copy = step("copy", {"x": "x"}, {"y": "t"})
        last = step("twice", {"x": "t"}, {"y": "y"})
        cases = [
            (ensemble([x], [y], copy, step("missing", {"x": "t"}, {"y": "y"})),
             "step 2 'missing': there is no such model"),
            (ensemble([x], [y], copy, step("twice", {"x": "t"}, {"y": "y"}, version=7)),
             "step 2 'twice': there is no such model, version 7"),
            (ensemble([x], [y], copy, step("twice", {"x": "u"}, {"y": "y"})),
             "tensor 'u' is made by no step"),
            (ensemble([x], [y], copy, step("copy", {"x": "x"}, {"y": "t"}), last),
             "step 2 'copy': tensor 't' is made twice"),
            (ensemble([x], [y], copy, step("twice", {"x": "t"}, {"y": "x"})),
             "tensor 'x' is an input, and is made here"),
            (ensemble([x], [y], step("sum", {"a": "x", "b": "u"}, {"sum": "t"}),
                      step("copy", {"x": "t"}, {"y": "u"}), last), "go in a circle"),
            (ensemble([x], [("z", "FP32", 4)], copy, last), "output 'z' is made by no step"),
            (ensemble([x], [x], copy), "output 'x' is an input"),
            (ensemble([x, y], [("t", "FP32", 4)], copy), "input 'y' is read by no step"),
            (ensemble([x], [y], copy, step("twice", {"X": "t"}, {"y": "y"})),
             "the model has no input 'X'; it has"),
            (ensemble([x], [y], copy, step("twice", {"x": "t"}, {"Y": "y"})),
             "the model has no output 'Y'; it has"),
            (ensemble([x], [("t", "FP32", 4)], step("sum", {"a": "x"}, {"sum": "t"})),
             "input 'b' gets no tensor"),
            (ensemble([("x", "FP32", 5)], [y], copy, last), "declared with dims"),
            (ensemble([("x", "INT64", 4)], [y], copy, last), "declared as TYPE_INT64"),
            (ensemble([x], [("y", "FP16", 4)], copy, last), "declared as TYPE_FP16"),
            (ensemble([x], [y], copy, step("wide", {"x": "t"}, {"y": "y"})),
             "step 2 'wide': input 'x': expected FP32"),
            (ensemble([x], [y], copy, step("cast", {"raw": "t"}, {"pixels": "y"})),
             "step 2 'cast': input 'raw': expected UINT8"),
            (ensemble([x], [y], copy, last, batch=9), "max_batch_size is 9; this model takes"),
            (ensemble([("x", "FP32", "2, 3")], [("y", "FP32", "2, 3")],
                      step("fixed", {"x": "x"}, {"y": "y"})), "does not count instances"),
            (ensemble([x], [y], step("itself", {"x": "x"}, {"y": "y"})), "made of itself"),
            (ensemble([x], [y]), "ensemble_scheduling with a step"),
            (ensemble([x], [y], step("../copy", {"x": "x"}, {"y": "y"})),
             "expected the name of a model"),
            (ensemble([x], [y], copy, last).replace('platform: "ensemble"',
                                                    'platform: "tensorrt_plan"'),
             'expected platform "ensemble"')]
        r = Repository(["copy", "twice", "sum", "cast", "wide"], good=LINE)
        r.put("fixed", batches="1")
        names = [why == "made of itself" and "itself" or f"p{k}"
                 for k, (_, why) in enumerate(cases)]
        for name, (text, _) in zip(names, cases):
            r.write(name, text)
        with r.serve() as s, s.client() as c:
            found, log = states(s), s.log()
            for name, (_, why) in zip(names, cases):
                with self.subTest(why):
                    told = [line for line in log.splitlines() if f"'{name}'" in line]
                    self.assertTrue(any(why in line for line in told), told)
                    self.assertEqual(found[name][0], "UNAVAILABLE")
                    self.assertNotIn("/", found[name][1])
            reply = c.infer("good", [("x", "FP32", [1, 4], bytes(16))])
            self.assertEqual(reply.status, wire.OK)

    def test_a_pipeline_is_named_in_the_configuration(self):
        file = pathlib.Path(tempfile.mkdtemp(dir=harness.folder())) / "line.pbtxt"
        file.write_text(LINE)
        models = {"copy": harness.plan("copy"), "twice": harness.plan("twice"), "line": file}
        x = [("x", "FP32", [1, 4], floats(1, 2, 3, 4))]
        with harness.Server(models) as s, s.client() as c:
            self.assertEqual(c.infer("line", x).outputs()["y"][2], floats(2, 4, 6, 8))
            before = wire.one(wire.decode(c.call(wire.STATISTICS, message((1, "line"))).body[1][0]),
                              4, 0)
            self.assertEqual(before, 1)
            s.signal(signal.SIGHUP)  # nothing has changed, so its numbers go on
            s.wait_log("reloaded")
            c.infer("line", x)
            now = wire.one(wire.decode(c.call(wire.STATISTICS, message((1, "line"))).body[1][0]),
                           4, 0)
            self.assertEqual(now, 2)
            del s.models["twice"]  # a reload is taken as a whole or not at all
            s.write_config()
            s.signal(signal.SIGHUP)
            s.wait_log("model 'line' version '1': step 2 'twice': there is no such model")
            self.assertEqual(c.infer("line", x).outputs()["y"][2], floats(2, 4, 6, 8))
        models["line"] = {"path": str(file), "max_batch": 4}
        s = harness.Server(models, wait=False)
        self.assertNotEqual(s.wait(), 0)
        self.assertIn("a pipeline's settings are in its .pbtxt", s.log())

    def test_a_check_of_the_configuration_binds_pipelines(self):
        wrong = ensemble([("x", "FP32", 4)], [("y", "FP32", 4)],
                         step("line", {"x": "x"}, {"y": "t"}),
                         step("sum", {"a": "t"}, {"sum": "y"}))
        for pipelines, code, said in (
                ({"line": LINE}, 0, "model 'line' version '1': pipeline, 2 steps, ok"),
                ({"line": LINE, "a": wrong}, 1,
                 "step 2 'sum': the model's input 'b' gets no tensor"),
                ({"line": LINE, "a": LINE.replace("copy", "a")}, 1, "made of itself")):
            r = Repository(["copy", "twice", "sum"], **pipelines)
            s = harness.Server([r.path], arguments=["--check-config"], wait=False)
            self.assertEqual(s.wait(), code, s.log())
            self.assertIn(said, s.log())

    def test_pipelines_of_pipelines(self):
        x, y = [("x", "FP32", 4)], [("y", "FP32", 4)]
        r = Repository(["copy", "twice"], p1=LINE)
        for k in range(2, 6):
            r.write(f"p{k}", ensemble(x, y, step(f"p{k - 1}", {"x": "x"}, {"y": "t"}),
                                      step("twice", {"x": "t"}, {"y": "y"})))
        r.write("a", ensemble(x, y, step("b", {"x": "x"}, {"y": "y"})))
        r.write("b", ensemble(x, y, step("a", {"x": "x"}, {"y": "y"})))
        with r.serve() as s, s.client() as c:
            found = states(s)
            self.assertEqual({k for k, v in found.items() if v[0] == "READY"},
                             {"copy", "twice", "p1", "p2", "p3", "p4"})
            self.assertIn("at most 4 pipelines within each other", found["p5"][1])
            self.assertIn("made of itself", found["a"][1])
            reply = c.infer("p4", [("x", "FP32", [2, 4], floats(*range(8)))])
            self.assertEqual(reply.outputs()["y"][2], floats(*(16 * i for i in range(8))))
            for k in range(1, 5):
                stats = statistics(s, f"p{k}")
                self.assertEqual((stats["inference_count"], stats["execution_count"]), (2, 1))
            self.assertEqual(statistics(s, "twice")["inference_count"], 8)

    def test_models_that_count_instances_and_models_that_do_not(self):
        whole = harness.model(
            [node("Identity", ["a"], ["b"])], [value("a", FLOAT, [1, 4])],
            [value("b", FLOAT, [1, 4])])
        harness.MODELS["whole"] = lambda: whole
        r = Repository(["copy"], p=ensemble(
            [("a", "FP32", "1, 4")], [("y", "FP32", "1, 4")],
            step("whole", {"a": "a"}, {"b": "t"}), step("copy", {"x": "t"}, {"y": "y"}), batch=0))
        r.put("whole", batches="1")
        with r.serve() as s, s.client() as c:
            reply = c.infer("p", [("a", "FP32", [1, 4], floats(1, 2, 3, 4))])
            self.assertEqual(reply.outputs()["y"], ("FP32", [1, 4], floats(1, 2, 3, 4)))
            self.assertEqual(http_call(s, "/v2/models/p/config")[1]["max_batch_size"], 0)


def resident(s):
    text = pathlib.Path(f"/proc/{s.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) << 10


# A request of four bytes becomes a mebibyte on its way, several times.
BLOWN_UP = ensemble([("x", "FP32", 1)], [("y", "FP32", 1)],
                    step("broad", {"x": "x"}, {"y": "t"}),
                    step("wide", {"x": "t"}, {"y": "u"}), step("wide", {"x": "t"}, {"y": "v"}),
                    step("narrow", {"x": "u"}, {"y": "y"}))


class Memory(unittest.TestCase):
    def test_what_steps_make_is_charged_and_given_back(self):
        r = Repository(["broad", "wide", "narrow", "copy", "twice"], blown=BLOWN_UP, line=LINE)
        limits = {"frame_bytes": "4MiB", "inflight_bytes": "64MiB",
                  "connection_inflight_bytes": "32MiB"}
        one = wire.infer_body("blown", [("x", "FP32", [1, 1], floats(7))])
        with r.serve({"workers": 2, "limits": limits}) as s, s.client() as c:
            self.assertEqual(c.call(wire.INFER, one).outputs()["y"][2], floats(7))

            def flood():
                with s.client() as hostile:
                    ids = [hostile.start(wire.INFER, one) for _ in range(150)]
                    replies = [hostile.receive() for _ in ids]
                    self.assertLessEqual({r.status for r in replies},
                                         {wire.OK, wire.RESOURCE_EXHAUSTED})
                    return sum(r.status == wire.OK for r in replies)
            self.assertGreater(flood(), 0)
            before, most = resident(s), 0
            for _ in range(2):
                threads = [harness.Background(flood) for _ in range(3)]
                while any(t.is_alive() for t in threads):
                    used = wire.one(c.call(wire.STATUS).body, 8, 0)
                    most = max(most, used)
                    small = c.infer("line", [("x", "FP32", [1, 4], bytes(16))])
                    self.assertIn(small.status, (wire.OK, wire.RESOURCE_EXHAUSTED))
                for thread in threads:
                    thread.finish()
            self.assertGreater(most, 8 << 20)
            self.assertLessEqual(most, 64 << 20)
            harness.until(lambda: wire.one(c.call(wire.STATUS).body, 9, 0) == 0)
            self.assertEqual(wire.one(c.call(wire.STATUS).body, 8, 0), 0)
            self.assertLess(resident(s) - before, 400 << 20 if harness.sanitized() else 64 << 20)

    def test_a_pipeline_whose_tensors_no_memory_would_hold_is_not_ready(self):
        steps = [step("broad", {"x": "x"}, {"y": "t0"})]
        steps += [step("wide", {"x": f"t{k}"}, {"y": f"t{k + 1}"}) for k in range(5)]
        r = Repository(["broad", "wide", "narrow"], long=ensemble(
            [("x", "FP32", 1)], [("y", "FP32", 1)], *steps,
            step("narrow", {"x": "t5"}, {"y": "y"}), batch=1))
        limits = {"frame_bytes": "1100KiB", "connection_inflight_bytes": "2MiB",
                  "inflight_bytes": "2MiB"}
        with r.serve({"limits": limits}) as s:
            self.assertEqual(states(s)["narrow"][0], "READY")
            self.assertIn("the tensors between the steps take", states(s)["long"][1])


if __name__ == "__main__":
    harness.main()
