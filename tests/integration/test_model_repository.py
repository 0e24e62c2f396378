#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model repository: config.pbtxt, polls, and models that are loaded by request alone.

    test_model_repository.py INFERD INFERCTL
"""
import base64
import contextlib
import http.client
import json
import os
import pathlib
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
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)
TWICE = struct.pack("<4f", 2, 4, 6, 8)
ADMIN = {"identities": [{"name": "anonymous", "models": ["*"],
                         "rights": ["infer", "describe", "status", "admin"]}]}
POLL = {"repository_mode": "poll", "repository_poll_ms": 100}


def infer(client, model="m", version="", n=1, **more):
    reply = client.infer(model, [("x", "FP32", [n, 4], X4 * n)], version=version, **more)
    if reply.status != wire.OK:
        return reply
    return {X4: "copy", TWICE: "twice"}[reply.outputs()["y"][2][:16]]


def states(client):
    """(name, version) -> (state, reason)"""
    entries = map(wire.decode, client.call(wire.INDEX).body.get(1, []))
    return {(wire.text(e, 1), wire.text(e, 2)): (wire.text(e, 3), wire.text(e, 4)) for e in entries}


class Repository:
    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))

    def put(self, name, version, source, file="model.plan"):
        """Places a file as operators should: completed in another place first, then renamed."""
        folder = self.path / name / version
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "new")
        os.rename(folder / "new", folder / file)

    def write(self, name, text):
        (self.path / name).mkdir(exist_ok=True)
        (self.path / name / "new").write_text(text)
        os.rename(self.path / name / "new", self.path / name / "config.pbtxt")

    def remove(self, name):
        shutil.rmtree(self.path / name)


class ModelFile(unittest.TestCase):
    def setUp(self):
        self.r = Repository()

    def test_a_file_of_triton_is_obeyed(self):
        self.r.put("m", "1", harness.onnx("copy"), "model.onnx")
        self.r.put("m", "2", harness.onnx("copy"), "model.onnx")
        self.r.put("m", "10", harness.onnx("twice"), "model.onnx")
        self.r.write("m", """
            name: "m"
            platform: "onnxruntime_onnx"
            max_batch_size: 4
            input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
            output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
            version_policy { latest { num_versions: 2 } }
            dynamic_batching { max_queue_delay_microseconds: 77 }
            optimization { graph { level: 1 } }
            maximal_batch: 3
            """)
        with harness.Server([self.r.path]) as s, s.client() as c:
            self.assertEqual(set(states(c)), {("m", "2"), ("m", "10")})
            self.assertEqual((infer(c), infer(c, version="2")), ("twice", "copy"))
            self.assertEqual(infer(c, n=4), "twice")
            self.assertEqual(infer(c, n=5).status, wire.INVALID_ARGUMENT)
            row = wire.decode(c.call(wire.STATUS).body[10][0])
            self.assertEqual((wire.one(row, 5), wire.one(row, 6)), (4, 77))
            self.assertRegex(s.log(), r"config.pbtxt:\d+: 'optimization' has no effect")
            self.assertRegex(s.log(), r"config.pbtxt:\d+: unknown field 'maximal_batch'")

    def test_a_wrong_file_keeps_only_its_model_out(self):
        self.r.put("good", "1", harness.plan("copy"))
        wrong = {"syntax": 'name: "x', "type": "max_batch_size: 'many'",
                 "backend": 'backend: "python"', "sequence": "sequence_batching { }",
                 "input": 'input { name: "z" }',
                 "dtype": 'input { name: "x" data_type: TYPE_INT8 }',
                 "dims": 'input { name: "x" dims: [ 1, 5 ] }', "batch": "max_batch_size: 64",
                 "other": 'name: "good"'}
        for name, text in wrong.items():
            self.r.put(name, "1", harness.plan("copy"))
            self.r.write(name, text)
        with harness.Server([self.r.path]) as s, s.client() as c:
            found = states(c)
            self.assertEqual({k[0] for k, v in found.items() if v[0] == "READY"}, {"good"})
            self.assertEqual(len(found), len(wrong) + 1)
            for name in wrong:
                self.assertRegex(s.log(), rf"model '{name}' version '1' .*config.pbtxt")
                self.assertNotIn("/", found[(name, "1")][1])
            self.r.write("dims", 'input { name: "x" dims: [ -1, 4 ] }')
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            self.assertEqual(infer(c, "dims"), "copy")

    def test_dims_leave_the_batch_out_if_there_is_one(self):
        for name, text, ready in (
                ("a", 'max_batch_size: 8 input { name: "x" dims: [ 4 ] }', True),
                ("b", 'max_batch_size: 8 input { name: "x" dims: [ -1, 4 ] }', False),
                ("c", 'max_batch_size: 0 input { name: "x" dims: [ -1, 4 ] }', True)):
            self.r.put(name, "1", harness.plan("copy"))
            self.r.write(name, text)
            with self.subTest(name):
                server = harness.Server([self.r.path])
                with server, server.client() as c:
                    self.assertEqual(states(c)[(name, "1")][0] == "READY", ready)

    def test_a_file_of_its_own_name(self):
        self.r.put("m", "1", harness.plan("twice"), "net.plan")
        self.r.write("m", 'default_model_filename: "net.plan"')
        with harness.Server([self.r.path]) as s, s.client() as c:
            self.assertEqual(infer(c), "twice")

    def test_links_lead_nowhere(self):
        self.r.put("m", "1", harness.plan("copy"))
        target = harness.folder() / "outside.pbtxt"
        target.write_text("max_batch_size: 2")
        (self.r.path / "m" / "config.pbtxt").symlink_to(target)
        self.r.put("n", "1", harness.plan("copy"))
        with harness.Server([self.r.path]) as s, s.client() as c:
            self.assertEqual({k: v[0] for k, v in states(c).items()},
                             {("m", "1"): "UNAVAILABLE", ("n", "1"): "READY"})

    def test_sizes_that_requests_choose(self):
        at = harness.folder() / "free.onnx"
        at.write_bytes(harness.model(
            [harness.node("Add", ["x", "x"], ["y"])],
            [harness.value("x", harness.FLOAT, ["N", "seq"])],
            [harness.value("y", harness.FLOAT, ["N", "seq"])]))
        self.r.put("m", "1", at, "model.onnx")
        self.r.write("m", """
            max_batch_size: 2
            input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
            output { name: "y" dims: [ -1 ] }
            parameters { key: "shape:x" value { string_value: "*x2..9" } }
            parameters { key: "profiles:seq" value { string_value: "4,9" } }""")
        with harness.Server([self.r.path]) as s, s.client() as c:
            for size, status in ((4, wire.OK), (9, wire.OK), (7, wire.OK),
                                 (10, wire.INVALID_ARGUMENT), (1, wire.INVALID_ARGUMENT)):
                given = struct.pack(f"<{size}f", *range(size))
                reply = c.infer("m", [("x", "FP32", [1, size], given)])
                self.assertEqual(reply.status, status, reply.message)
                if status == wire.OK:
                    self.assertEqual(reply.outputs()["y"], (
                        "FP32", [1, size], struct.pack(f"<{size}f", *range(0, 2 * size, 2))))

    def test_precision_and_profiles_go_to_the_build(self):
        self.r.put("m", "1", harness.onnx("copy"), "model.onnx")
        self.r.write("m", """
            parameters { key: "profiles" value { string_value: "1,3" } }
            parameters { key: "precision" value { string_value: "fp16" } }
            parameters { key: "input_type:x" value { string_value: "uint8" } }
            parameters { key: "input_scale:x" value { string_value: "2" } }""")
        with harness.Server([self.r.path]) as s, s.client() as c:
            self.assertEqual(wire.one(wire.decode(c.call(wire.STATUS).body[10][0]), 5), 3)
            reply = c.infer("m", [("x", "UINT8", [1, 4], bytes([1, 2, 3, 4]))])
            self.assertEqual(struct.unpack("<4f", reply.outputs()["y"][2]), (2, 4, 6, 8))
            self.assertEqual(c.counters()["plans_built"], 1)
            # a change of what the plan does not depend on needs no other plan
            self.r.write("m", (self.r.path / "m" / "config.pbtxt").read_text() +
                         "\ndynamic_batching { max_queue_delay_microseconds: 9 }")
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            row = wire.decode(c.call(wire.STATUS).body[10][0])
            self.assertEqual((wire.one(row, 5), wire.one(row, 6)), (3, 9))
            self.assertEqual(c.counters()["plans_built"], 1)

    def test_warm_up_comes_before_the_switch(self):
        self.r.put("m", "1", harness.plan("copy"))
        (self.r.path / "m" / "warmup").mkdir()
        (self.r.path / "m" / "warmup" / "x.bin").write_bytes(X4 * 2)
        inputs = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 4 ] %s } }'
        self.r.write("m", "max_batch_size: 8 model_warmup [" + ", ".join(
            "{ name: 'w' batch_size: %d count: %d %s }" % (n, k, inputs % data) for n, k, data in (
                (8, 3, "zero_data: true"), (2, 1, "input_data_file: 'x.bin'"),
                (4, 2, "random_data: true"))) + "]")
        with harness.Server([self.r.path, f"k={harness.plan('copy')}"],
                            {"device": "fault", "workers": 2},
                            env={"INFERD_FAULT_SCRIPT": "on=cpu;launch#12:fail"}) as s:
            with s.client() as c:  # 2 workers x 6 runs: the last of them fails, once
                self.assertEqual(states(c)[("m", "1")][0], "UNAVAILABLE")
                s.signal(signal.SIGHUP)
                s.wait_log("reloaded")
                self.assertEqual(infer(c), "copy")
        for wrong, expected in (("batch_size: 9 " + inputs % "zero_data: true", "at most 8"),
                                (inputs.replace('"x"', '"z"') % "zero_data: true", "input 'x'"),
                                (inputs.replace("4", "5") % "zero_data: true", "dims of 16 bytes"),
                                (inputs % "input_data_file: 'x.bin'", "x.bin: 32 bytes"),
                                (inputs % "input_data_file: 'gone'", "gone"), ("", "1 inputs")):
            self.r.write("m", "max_batch_size: 8 model_warmup { name: 'w' %s }" % wrong)
            server = harness.Server([self.r.path, f"k={harness.plan('copy')}"])
            with self.subTest(wrong), server as s:
                self.assertRegex(s.log(), f"model 'm' .*{expected}")

    def test_one_instance_runs_one_batch_at_a_time(self):
        self.r.put("m", "1", harness.plan("copy"))
        self.r.write("m", "instance_group { count: 1 } max_batch_size: 1")
        script = "on=cpu;launch:delay=200ms"
        with harness.Server([self.r.path], {"workers": 2, "device": "fault"},
                            env={"INFERD_FAULT_SCRIPT": script}) as s, s.client() as c:
            start = time.monotonic()
            sent = {c.start(wire.INFER, wire.infer_body("m", [("x", "FP32", [1, 4], X4)]))
                    for _ in range(4)}
            for _ in range(4):
                reply = c.receive()
                self.assertEqual(reply.status, wire.OK, reply.message)
                sent.remove(reply.id)
            self.assertGreater(time.monotonic() - start, 0.8)


class Polls(unittest.TestCase):
    def wait(self, what, seconds=20):
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_new_changed_and_gone(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        with harness.Server([r.path], POLL) as s, s.client() as c:
            r.put("n", "1", harness.plan("twice"))
            self.wait(lambda: infer(c, "n") == "twice")
            r.put("m", "1", harness.plan("twice"))
            self.wait(lambda: infer(c) == "twice")
            s.wait_log("model 'm' version '1' unloaded")
            r.remove("n")
            self.wait(lambda: ("n", "1") not in states(c))
            self.assertEqual(infer(c), "twice")
            r.write("m", "max_batch_size: 2")
            self.wait(lambda: infer(c, n=3) != "twice")
            self.assertEqual(infer(c, n=2), "twice")
            self.assertEqual(s.log().count("model 'm' version '1' loaded"), 3)

    def test_r25_what_cannot_be_loaded_leaves_the_old_serving(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        with harness.Server([r.path], POLL) as s, s.client() as c:
            garbage = harness.folder() / "garbage.plan"
            garbage.write_bytes(b"garbage" * 999)
            r.put("m", "1", garbage)
            r.put("n", "1", harness.plan("twice"))
            s.wait_log("model 'm': ")
            self.wait(lambda: infer(c, "n") == "twice")
            self.assertEqual(infer(c), "copy")
            time.sleep(0.5)  # several polls
            self.assertEqual(c.counters()["loads_failed"], 1)  # tried once
            r.put("m", "1", harness.plan("twice"))
            self.wait(lambda: infer(c) == "twice")

    def test_a_repository_that_is_away_for_a_while_unloads_nothing(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        with harness.Server([r.path], POLL) as s, s.client() as c:
            os.rename(r.path, str(r.path) + "-away")
            s.wait_log("poll: ")
            time.sleep(0.3)
            self.assertEqual(s.log().count("poll: "), 1)
            self.assertEqual(infer(c), "copy")
            os.rename(str(r.path) + "-away", r.path)
            r.put("m", "1", harness.plan("twice"))
            self.wait(lambda: infer(c) == "twice")

    def test_polls_under_load_lose_nothing(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        with harness.Server([r.path], dict(POLL, workers=2, io_threads=2)) as s:
            stop, answers = threading.Event(), []

            def load():
                with s.client() as c:
                    while not stop.is_set():
                        for _ in range(16):
                            c.start(wire.INFER, wire.infer_body("m", [("x", "FP32", [1, 4], X4)]))
                        for _ in range(16):
                            reply = c.receive()
                            answers.append((reply.status, reply.message))

            threads = [harness.Background(load) for _ in range(2)]
            for i in range(4):
                r.put("m", "1", harness.plan("copy" if i % 2 else "twice"))
                s.wait_log("model 'm' version '1' unloaded", count=i + 1)
            stop.set()
            for t in threads:
                t.finish()
            self.assertGreater(len(answers), 100)
            self.assertEqual(set(answers), {(wire.OK, "")})


class Explicit(unittest.TestCase):
    def test_only_what_is_named_is_loaded_at_the_start(self):
        r = Repository()
        for name in ("a", "b", "c"):
            r.put(name, "1", harness.plan("copy"))
        config = {"repository_mode": "explicit", "repository_load": ["a", "c"]}
        with harness.Server([r.path], config) as s, s.client() as c:
            self.assertEqual({k[0]: v for k, v in states(c).items()},
                             {"a": ("READY", ""), "b": ("UNAVAILABLE", "unloaded"),
                              "c": ("READY", "")})
            self.assertEqual(infer(c, "b").status, wire.UNAVAILABLE)
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            self.assertEqual(states(c)[("b", "1")][0], "UNAVAILABLE")
            self.assertEqual(infer(c, "a"), "copy")

    def ask(self, server, path, body=b"{}"):
        """Posts; returns the status and the answer."""
        end = time.monotonic() + 20
        while not (found := re.search(r"(?m)^ready (\S+) \(http\)$", server.log())):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        connection = http.client.HTTPConnection(found[1], timeout=harness.PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", path, body)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    def order(self, server, what, name, code=200):
        got, text = self.ask(server, f"/v2/repository/models/{name}/{what}")
        self.assertEqual(got, code, text)
        if code == 200:
            self.assertEqual(json.loads(text), {"name": name, what: True})
        return text

    def test_clients_load_and_unload(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        config = dict(ADMIN, repository_mode="explicit", repository_load=["a"], workers=2)
        with harness.Server([r.path], config, arguments=["--http", "127.0.0.1:0"]) as s:
            with s.client() as c:
                r.put("later", "1", harness.plan("twice"))
                self.order(s, "load", "later")
                self.assertEqual(infer(c, "later"), "twice")
                self.order(s, "unload", "a")
                self.assertEqual(states(c)[("a", "1")], ("UNAVAILABLE", "unloaded"))
                self.assertEqual(infer(c, "a").status, wire.UNAVAILABLE)
                s.signal(signal.SIGHUP)
                s.wait_log("reloaded")
                self.assertEqual(states(c)[("a", "1")], ("UNAVAILABLE", "unloaded"))
                self.order(s, "load", "a")
                self.assertEqual(infer(c, "a"), "copy")
                # a new version of what is loaded, and one that cannot be loaded
                r.put("a", "2", harness.plan("twice"))
                self.order(s, "load", "a")
                self.assertEqual((infer(c, "a"), infer(c, "a", "1")), ("twice", "copy"))
                garbage = harness.folder() / "garbage2.plan"
                garbage.write_bytes(b"garbage" * 999)
                r.put("a", "2", garbage)
                text = self.order(s, "load", "a", 500)
                self.assertNotIn(str(r.path), text)
                self.assertEqual((infer(c, "a"), infer(c, "a", "1")), ("twice", "copy"))
                for name in ("nothing", "..", "%2e%2e", "later%2f1"):
                    self.assertIn(self.ask(s, f"/v2/repository/models/{name}/load")[0], (400, 404))
                self.order(s, "unload", "nothing", 404)

    def test_a_load_may_bring_a_configuration(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        r.put("a", "2", harness.plan("twice"))
        r.write("a", "max_batch_size: 8")
        config = dict(ADMIN, repository_mode="explicit", repository_load=["a"])
        with harness.Server([r.path], config, arguments=["--http", "127.0.0.1:0"]) as s, \
                s.client() as c:
            def load(config, code=200, **more):
                body = {"parameters": dict({"config": config}, **more)}
                got, text = self.ask(s, "/v2/repository/models/a/load",
                                     json.dumps(body).encode())
                self.assertEqual(got, code, text)
                return text

            def told():
                connection = http.client.HTTPConnection(s.door("http"), timeout=harness.PATIENCE)
                with contextlib.closing(connection):
                    connection.request("GET", "/v2/models/a/config")
                    return json.loads(connection.getresponse().read())

            self.assertEqual((infer(c, "a"), told()["max_batch_size"]), ("twice", 8))
            wanted = {"name": "a", "maxBatchSize": 4,
                      "version_policy": {"specific": {"versions": ["1"]}},
                      "dynamic_batching": {"preferred_batch_size": [2, 4],
                                           "max_queue_delay_microseconds": "700"},
                      "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
                      "parameters": {"mine": {"string_value": "x"}}}
            load(json.dumps(wanted))
            self.assertEqual(infer(c, "a"), "copy")
            now = told()
            self.assertEqual((now["max_batch_size"], now["dynamic_batching"]
                              ["max_queue_delay_microseconds"]), (4, 700))
            self.assertEqual(now["dynamic_batching"]["preferred_batch_size"], [2, 4])
            # what the server tells can be sent back
            load(json.dumps(now))
            self.assertEqual(told()["max_batch_size"], 4)
            for bad, words in (("{", "JSON"), ("[]", "object"), ('{"name": "b"}', "expected"),
                               ('{"max_batch_size": "many"}', "whole number"),
                               ('{"max_batch_size": -1}', "whole number"),
                               ('{"instance_group": [{"kind": "KIND_TPU"}]}', "KIND_CPU"),
                               ('{"input": [[]]}', "list")):
                text = self.ask(s, "/v2/repository/models/a/load",
                                json.dumps({"parameters": {"config": bad}}).encode())
                self.assertNotEqual(text[0], 200, bad)
                self.assertIn(words, text[1])
            self.assertEqual(told()["max_batch_size"], 4)
            load(3, 400)
            # without it, and at a reload, the file counts again
            self.order(s, "load", "a")
            self.assertEqual((infer(c, "a"), told()["max_batch_size"]), ("twice", 8))
            load('{"max_batch_size": 2}')
            self.assertEqual(told()["max_batch_size"], 2)
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            self.assertEqual(told()["max_batch_size"], 8)

    def test_a_load_may_bring_files(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        cache = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        stale = cache / "inferd-load-stale" / "a" / "1"
        stale.mkdir(parents=True)
        (stale / "model.onnx").write_text("left by a daemon that was killed")
        config = dict(ADMIN, repository_mode="explicit", repository_load=["a"], cache=str(cache))

        def coded(path):
            return base64.b64encode(path.read_bytes()).decode()
        with harness.Server([r.path], config, arguments=["--http", "127.0.0.1:0"]) as s, \
                s.client() as c:
            def load(model, code=200, way="load", **parameters):
                got, text = self.ask(s, f"/v2/repository/models/{model}/{way}",
                                     json.dumps({"parameters": parameters}).encode())
                self.assertEqual(got, code, text)
                self.assertEqual(list(cache.glob("inferd-load-*")), [])
                return text
            twice = {"file:1/model.onnx": coded(harness.onnx("twice"))}
            self.assertEqual(infer(c, "a"), "copy")
            load("a", **twice)
            self.assertEqual(infer(c, "a"), "twice")
            load("a", config='{"max_batch_size": 2}', **twice,
                 **{"file:1/more/large.bin": base64.b64encode(os.urandom(1 << 20)).decode()})
            self.assertEqual(infer(c, "a"), "twice")
            # all versions are those that came
            load("a", **{"file:3/model.plan": coded(harness.plan("copy")),
                         "file:config.pbtxt": base64.b64encode(b"max_batch_size: 4").decode()})
            self.assertEqual(infer(c, "a"), "copy")
            self.assertEqual(infer(c, "a", "3"), "copy")
            self.assertEqual(infer(c, "a", "1").status, wire.NOT_FOUND)
            # what cannot be loaded changes nothing
            load("a", 400, **{"file:1/model.onnx": "AAAA"})
            load("a", 400, **{"file:1/model.txt": "AAAA"})
            load("a", 400, **{"file:1/model.onnx": "A"})
            load("a", 400, **{"file:1/model.onnx": 3})
            for path in ("", "..", "../x", "1/../../x", "/etc/x", "1//x", "1/", "1/.x", "1/a b",
                         "1/2/3/4/5"):
                self.assertIn("file:", load("a", 400, **{f"file:{path}": "AAAA"}))
            load("a", 400, "unload", **twice)
            self.assertEqual(infer(c, "a", "3"), "copy")
            # a model that the repository does not have
            load("fresh", **twice)
            self.assertEqual(infer(c, "fresh"), "twice")
            self.order(s, "unload", "fresh")
            self.assertEqual(infer(c, "fresh").status, wire.UNAVAILABLE)
            self.order(s, "load", "fresh", 404)
            # without files, and at a reload, the repository counts again
            load("a", **twice)
            self.order(s, "load", "a")
            self.assertEqual(infer(c, "a"), "copy")
            load("a", **twice)
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            self.assertEqual(infer(c, "a"), "copy")

    def test_r16_it_takes_a_right_of_its_own(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        config = {"repository_mode": "explicit", "repository_load": ["*"]}
        with harness.Server([r.path], config, arguments=["--http", "127.0.0.1:0"]) as s:
            self.order(s, "unload", "a", 403)
            with s.client() as c:
                self.assertEqual(infer(c, "a"), "copy")

    def test_only_in_this_mode(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        for mode in ("reload", "poll"):
            with harness.Server([r.path], dict(ADMIN, repository_mode=mode),
                                arguments=["--http", "127.0.0.1:0"]) as s, s.client() as c:
                for what in ("load", "unload"):
                    self.assertIn("repository_mode: explicit", self.order(s, what, "a", 400))
                self.assertEqual(infer(c, "a"), "copy")

    def test_loads_and_unloads_under_load(self):
        r = Repository()
        for name in ("a", "b"):
            r.put(name, "1", harness.plan("copy"))
        config = dict(ADMIN, repository_mode="explicit", repository_load=["*"], workers=2,
                      io_threads=2)
        with harness.Server([r.path], config, arguments=["--http", "127.0.0.1:0"]) as s:
            stop, answers = threading.Event(), []

            def load(name):
                with s.client() as c:
                    while not stop.is_set():
                        for _ in range(8):
                            c.start(wire.INFER, wire.infer_body(name, [("x", "FP32", [1, 4], X4)]))
                        for _ in range(8):
                            answers.append((name, c.receive().status))

            threads = [harness.Background(load, name) for name in ("a", "b")]
            for i in range(100):
                self.order(s, "load" if i % 2 else "unload", "b")
            stop.set()
            for t in threads:
                t.finish()
            self.assertEqual({code for name, code in answers if name == "a"}, {wire.OK})
            self.assertLessEqual({code for name, code in answers if name == "b"},
                                 {wire.OK, wire.UNAVAILABLE})

    def test_all_or_none_at_the_start(self):
        r = Repository()
        r.put("a", "1", harness.plan("copy"))
        for load, state in ((["*"], "READY"), ([], "UNAVAILABLE")):
            config = {"repository_mode": "explicit", "repository_load": load}
            with harness.Server([r.path], config) as s, s.client() as c:
                self.assertEqual(states(c)[("a", "1")][0], state)


def held(server):
    """Descriptors and resident kilobytes of the process; None if it is closed to us."""
    proc = pathlib.Path(f"/proc/{server.process.pid}")
    try:
        descriptors = len(os.listdir(proc / "fd"))
    except PermissionError:
        return None
    return descriptors, int(re.search(r"VmRSS:\s+(\d+)", (proc / "status").read_text()).group(1))


class Cycles(unittest.TestCase):
    def test_a_thousand_loads_and_unloads_leave_nothing_behind(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        r.put("comes-and-goes", "1", harness.plan("twice"))
        r.write("comes-and-goes", "max_batch_size: 8 parameters { key: 'profiles' "
                                  "value { string_value: '1,8' } }")
        there, away = r.path / "comes-and-goes", r.path.parent / (r.path.name + "-away")
        # what ends late, and what sanitizers keep of memory that was freed
        spare_kb = 300 << 10 if harness.sanitized() else 2 << 10
        with harness.Server([r.path]) as s, s.client() as c:
            def reload():
                done = c.counters()["reloads"]
                s.signal(signal.SIGHUP)
                harness.until(lambda: c.counters()["reloads"] > done)

            before = None
            cycles = harness.fewer(1000)
            for i in range(cycles):
                os.rename(there, away)
                reload()
                os.rename(away, there)
                reload()
                if i == 100:
                    before = held(s)
            self.assertEqual((infer(c, "comes-and-goes"), infer(c)), ("twice", "copy"))
            after = held(s)
            self.assertGreaterEqual(s.log().count("'comes-and-goes' version '1' unloaded"),
                                    cycles)
            if before is None:
                self.skipTest("the process is closed to this account")
            self.assertLessEqual(after[0], before[0] + 2)
            self.assertLess(after[1], before[1] + spare_kb)


if __name__ == "__main__":
    harness.main()
