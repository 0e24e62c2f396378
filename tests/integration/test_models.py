#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models: several, in versions, from plans, ONNX files and a repository; reloads; what is broken.

    test_models.py INFERD INFERCTL
"""
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


def infer(client, model="m", version=""):
    reply = client.infer(model, [("x", "FP32", [1, 4], X4)], version=version)
    if reply.status != wire.OK:
        return reply
    return {X4: "copy", TWICE: "twice"}[reply.outputs()["y"][2]]


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

    def remove(self, name, version):
        shutil.rmtree(self.path / name / version)


class Models(unittest.TestCase):
    def reload(self, server, good=True):
        done = server.log().count("reloaded"), server.log().count("reload failed")
        server.signal(signal.SIGHUP)
        server.wait_log("reloaded" if good else "reload failed", count=done[not good] + 1)
        self.assertEqual(server.log().count("reload failed" if good else "reloaded"), done[good])

    # --- served types ---

    def test_served_types(self):
        """Serves a float input as bytes and as halves; each type has a plan of its own."""
        scaled = {"path": str(harness.onnx("copy")), "batches": [1],
                  "inputs": [{"name": "x", "type": "uint8", "scale": [0.5, 1, 2, 4],
                              "bias": [-1]}]}
        halves = {"path": str(harness.onnx("copy")), "batches": [1],
                  "inputs": [{"name": "x", "type": "fp16"}]}
        models = {"bytes": scaled, "halves": halves, "plain": dict(halves, inputs=[])}
        with harness.Server(models) as s, s.client() as c:
            reply = c.infer("bytes", [("x", "UINT8", [1, 4], bytes([2, 3, 5, 255]))])
            self.assertEqual(reply.status, wire.OK, reply.message)
            self.assertEqual(struct.unpack("<4f", reply.outputs()["y"][2]), (0, 2, 9, 1019))
            reply = c.infer("bytes", [("x", "FP32", [1, 4], X4)])
            self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
            self.assertIn("UINT8", reply.message)
            reply = c.infer("halves", [("x", "FP16", [1, 4], struct.pack("<4e", 1, 2, 3, 4))])
            self.assertEqual(reply.outputs()["y"][2], X4)
            self.assertEqual(infer(c, "plain"), "copy")
            self.assertEqual(len(list((s.folder / "cache").glob("*.plan"))), 3)
            # Another scale makes another plan, and a wrong number of scales is an error.
            scaled["inputs"][0]["scale"] = [2]
            s.models["bytes"] = scaled
            s.write_config()
            self.reload(s)
            reply = c.infer("bytes", [("x", "UINT8", [1, 4], bytes([2, 3, 5, 255]))])
            self.assertEqual(struct.unpack("<4f", reply.outputs()["y"][2]), (3, 5, 9, 509))
            scaled["inputs"][0]["scale"] = [1, 2]
            s.write_config()
            s.signal(signal.SIGHUP)
            s.wait_log("2 numbers as scale")
            reply = c.infer("bytes", [("x", "UINT8", [1, 4], bytes([2, 3, 5, 255]))])
            self.assertEqual(struct.unpack("<4f", reply.outputs()["y"][2]), (3, 5, 9, 509))

    # --- which are there ---

    def test_versions(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        r.put("m", "2", harness.plan("twice"))
        r.put("m", "10", harness.plan("copy"))
        r.put("other", "v1.0", harness.plan("twice"))
        with harness.Server([r.path, f"given={harness.plan('twice')}"]) as s, s.client() as c:
            self.assertEqual(infer(c, "m", "1"), "copy")
            self.assertEqual(infer(c, "m", "2"), "twice")
            self.assertEqual(infer(c, "m"), "copy")  # 10 is newer than 2
            self.assertEqual(infer(c, "other"), "twice")
            self.assertEqual(infer(c, "given"), "twice")
            self.assertEqual(infer(c, "given", "1"), "twice")
            self.assertEqual({k: v[0] for k, v in states(c).items()},
                             {("m", "1"): "READY", ("m", "2"): "READY", ("m", "10"): "READY",
                              ("other", "v1.0"): "READY", ("given", "1"): "READY"})
            metadata = c.call(wire.MODEL_METADATA, message((1, "m"))).body
            self.assertEqual(metadata[2], [b"1", b"2", b"10"])

    def test_several_models_at_once(self):
        names = [f"m{i}" for i in range(8)]
        plans = {n: harness.plan("twice" if i % 2 else "copy") for i, n in enumerate(names)}
        with harness.Server(plans, {"workers": 2}) as s:
            def load(i):
                with s.client() as c:
                    for k in range(100):
                        n = (i + k) % 8
                        self.assertEqual(infer(c, names[n]), "twice" if n % 2 else "copy")

            for t in [harness.Background(load, i) for i in range(4)]:
                t.finish()

    def test_r13_links_and_strange_names_are_left_out(self):
        r = Repository()
        r.put("good", "1", harness.plan("copy"))
        (r.path / "linked").symlink_to(r.path / "good")
        (r.path / "inner").mkdir()
        (r.path / "inner" / "1").symlink_to(r.path / "good" / "1")
        (r.path / "file" / "1").mkdir(parents=True)
        (r.path / "file" / "1" / "model.plan").symlink_to(harness.plan("copy"))
        r.put("strange name", "1", harness.plan("copy"))
        r.put(".hidden", "1", harness.plan("copy"))
        (r.path / "two" / "1").mkdir(parents=True)
        twin = harness.folder() / "twin.plan"
        shutil.copy(harness.plan("copy"), twin)
        os.link(twin, r.path / "two" / "1" / "model.plan")
        (r.path / "pipe" / "1").mkdir(parents=True)
        os.mkfifo(r.path / "pipe" / "1" / "model.plan")
        (r.path / "empty" / "1").mkdir(parents=True)
        with harness.Server([r.path]) as s, s.client() as c:
            found = states(c)
            self.assertEqual(found[("good", "1")], ("READY", ""))
            ready = [k for k, v in found.items() if v[0] == "READY"]
            self.assertEqual(ready, [("good", "1")])
            self.assertEqual({k[0] for k in found} - {"good"}, {"file", "two", "pipe"})
            for state, reason in found.values():
                self.assertNotIn("/", reason)  # R10
            self.assertIn("no name for a model", s.log())
            self.assertIn("/inner/1: a symbolic link: left out", s.log())

    def test_duplicates_are_refused(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        s = harness.Server([r.path, f"m={harness.plan('twice')}"], wait=False)
        self.assertEqual(s.wait(), 1)
        self.assertIn("'m' version '1' is there twice", s.log())

    def test_an_empty_repository_can_be_filled(self):
        r = Repository()
        with harness.Server([r.path]) as s, s.client() as c:
            self.assertIn("no models", s.log())
            self.assertEqual(states(c), {})
            self.assertEqual(infer(c).status, wire.NOT_FOUND)
            r.put("m", "1", harness.plan("copy"))
            self.reload(s)
            self.assertEqual(infer(c), "copy")

    # --- broken ones ---

    def test_a_corrupt_model_beside_a_good_one(self):
        whole = harness.plan("copy").read_bytes()
        broken = {"empty": b"", "garbage": b"\x7fELF" * 1000, "short": whole[: len(whole) // 2],
                  "flipped": whole[:100] + bytes([whole[100] ^ 4]) + whole[101:]}
        plans = {"m": harness.plan("copy")}
        for name, data in broken.items():
            plans[name] = harness.folder() / f"corrupt-{name}.plan"
            plans[name].write_bytes(data)
        plans["gone"] = harness.folder() / "gone.plan"
        plans["bad_onnx"] = harness.folder() / "bad.onnx"
        plans["bad_onnx"].write_bytes(b"\xff\xfe" * 500)
        with harness.Server(plans) as s, s.client() as c:
            self.assertEqual(infer(c), "copy")
            for name in [*broken, "gone", "bad_onnx"]:
                reply = infer(c, name)
                self.assertEqual(reply.status, wire.UNAVAILABLE, name)
                self.assertNotIn(str(harness.folder()), reply.message)
                self.assertEqual(c.call(wire.MODEL_READY, message((1, name))).body, {})
                self.assertIn(f"model '{name}'", s.log())
            self.assertEqual(c.counters()["loads_failed"], len(broken) + 2)

    def test_r31_out_of_memory_fails_only_that_load(self):
        # "m" makes about the first three memory calls; the second model finds no memory
        for nth in range(1, 12):
            s = harness.Server({"a": harness.plan("copy"), "b": harness.plan("twice")},
                               {"device": "fault"}, wait=False,
                               env={"INFERD_FAULT_SCRIPT": f"on=cpu;memory#{nth}:oom"})
            try:
                s.wait_log(r"ready |no model could|\berror\b")
                time.sleep(0.05)
                if s.process.poll() is None and "ready " in s.log():
                    s.wait_ready()
                    with s.client() as c:
                        answers = [infer(c, "a"), infer(c, "b")]
                        self.assertTrue(set(map(str, answers)) & {"copy", "twice"}, answers)
                    s.stop()
                else:
                    self.assertEqual(s.wait(), 1)
            finally:
                s.kill()

    # --- ONNX files ---

    def test_onnx_files_are_built_once(self):
        with harness.Server({"m": harness.onnx("twice")}) as s, s.client() as c:
            self.assertEqual(infer(c), "twice")
            self.assertEqual(c.counters()["plans_built"], 1)
            cache = s.folder / "cache"
            kept = list(cache.glob("*.plan"))
            self.assertEqual(len(kept), 1)
            s.stop()
            again = harness.Server({"m": harness.onnx("twice")}, {"cache": str(cache)})
            with again, again.client() as c:
                self.assertEqual(infer(c), "twice")
                self.assertEqual(c.counters()["plans_built"], 0)
            kept[0].write_bytes(b"damaged" * 100)
            again = harness.Server({"m": harness.onnx("twice")}, {"cache": str(cache)})
            with again, again.client() as c:
                self.assertEqual(infer(c), "twice")
                self.assertEqual(c.counters()["plans_built"], 1)

    def test_external_data_beside_a_model_counts(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        (folder / "sub").mkdir()
        data = folder / "sub" / "weights.bin"
        plain = pathlib.Path(harness.onnx("twice")).read_bytes()
        entry = message((1, "location"), (2, "sub/weights.bin"))
        # ModelProto.doc_string (6) with the bytes that external data would bring, and with the word
        # alone, for which every file in the folder counts
        for kind, text, changed in (("named", entry, data),
                                    ("word", b"\x0a\x08location?", folder / "any.bin")):
            model, cache = folder / f"{kind}.onnx", str(folder / f"cache-{kind}")
            model.write_bytes(plain + message((6, text)))
            changed.write_bytes(b"old")
            built = []
            for content in (None, None, b"newer"):
                if content:
                    changed.write_bytes(content)
                if kind == "named":
                    (folder / "unrelated").write_bytes(os.urandom(8))
                with harness.Server({"m": model}, {"cache": cache}) as s, s.client() as c:
                    self.assertEqual(infer(c), "twice")
                    built.append(c.counters()["plans_built"])
            self.assertEqual(built, [1, 0, 1], kind)

    def test_r35_two_servers_build_a_plan_once(self):
        cache = str(harness.folder() / "shared-cache")
        both = [harness.Server({"m": harness.onnx("twice")}, {"cache": cache}, wait=False)
                for _ in range(2)]
        built = 0
        try:
            for s in both:
                s.wait_ready()
                with s.client() as c:
                    self.assertEqual(infer(c), "twice")
                    built += c.counters()["plans_built"]
                s.stop()
        finally:
            for s in both:
                s.kill()
        self.assertEqual(built, 1)

    def test_r35_without_a_cache_plans_are_served_too(self):
        blocked = harness.folder() / "a-file"
        blocked.write_text("")
        for cache in (blocked / "below", "/proc/nothing"):
            s = harness.Server({"m": harness.onnx("twice")}, {"cache": str(cache)})
            with s, s.client() as c:
                self.assertEqual(infer(c), "twice")
                self.assertIn("plan cache cannot be used", s.log())

    def test_r36_orphans_are_swept(self):
        cache = harness.folder() / "swept-cache"
        cache.mkdir()
        orphan = cache / ".m.plan.inferd-tmp"
        orphan.write_bytes(b"half a plan")
        with harness.Server({"m": harness.onnx("twice")}, {"cache": str(cache)}):
            self.assertFalse(orphan.exists())

    # --- reloads ---

    def test_reload_new_changed_and_removed(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        with harness.Server([r.path]) as s, s.client() as c:
            r.put("n", "1", harness.plan("twice"))
            self.reload(s)
            self.assertEqual((infer(c), infer(c, "n")), ("copy", "twice"))
            self.assertEqual(s.log().count("model 'm' version '1' loaded"), 1)  # not again
            r.put("m", "1", harness.plan("twice"))
            self.reload(s)
            self.assertEqual(infer(c), "twice")
            s.wait_log("model 'm' version '1' unloaded")
            r.put("m", "2", harness.plan("copy"))
            self.reload(s)
            self.assertEqual((infer(c), infer(c, "m", "1")), ("copy", "twice"))
            r.remove("m", "2")
            self.reload(s)
            self.assertEqual(infer(c), "twice")
            self.assertEqual(infer(c, "m", "2").status, wire.NOT_FOUND)
            self.assertEqual(c.counters()["reloads"], 4)

    def test_reload_of_limits(self):
        with harness.Server({"m": harness.plan("copy")}) as s, s.client() as c:
            s.config.update({"max_delay_us": 123, "limits": {"frame_bytes": 1024}})
            s.write_config()
            self.reload(s)
            model = wire.decode(c.call(wire.STATUS).body[10][0])
            self.assertEqual(wire.one(model, 6), 123)
            self.assertEqual(s.log().count("loaded in"), 1)
            c.send(struct.pack(">I", 1025))
            self.assertEqual(c.receive().status, wire.INVALID_ARGUMENT)
            self.assertTrue(c.closed())

    # --- what cannot be served ---

    def memory(self, server):
        """The most that the process has held, in MiB."""
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) >> 10

    def test_models_whose_answers_cannot_be_sent_are_refused(self):
        batch = {"batches": [1]}
        with harness.Server({"m": harness.plan("copy"),
                             "huge": dict(batch, path=str(harness.onnx("huge"))),
                             "blown": dict(batch, path=str(harness.onnx("blown_up")))}) as s, \
                s.client() as c:
            # On a machine with less memory than that, the builder reports it.
            self.assertRegex(s.log(), "output 'y' takes 5.0 GiB for one instance; limits.output_"
                                      "bytes is 64.0 MiB|needs 5120.0 MiB of memory")
            self.assertIn("output 'y' takes 100.0 MiB for one instance; limits.output_bytes is "
                          "64.0 MiB", s.log())
            for name in ("huge", "blown"):
                self.assertEqual(states(c)[name, "1"][0], "UNAVAILABLE")
                reply = c.infer(name, [("x", "FP32", [1, 1], b"1234")])
                self.assertEqual(reply.status, wire.UNAVAILABLE)
            self.assertEqual(infer(c), "copy")
            self.assertLess(self.memory(s), 512)

    def test_a_request_carries_what_an_answer_can(self):
        with harness.Server({"m": harness.plan("grown", "1,8")},
                            {"limits": {"output_bytes": 10 << 20}}) as s, s.client() as c:
            self.assertIn("a request carries at most 3 instances, a batch 8", s.log())
            for n in (1, 3):
                reply = c.infer("m", [("x", "FP32", [n, 1], struct.pack(f"<{n}f", *range(n)))])
                self.assertEqual(reply.status, wire.OK)
                self.assertEqual(len(reply.outputs()["y"][2]), n * 3 << 20)
            reply = c.infer("m", [("x", "FP32", [4, 1], bytes(16))])
            self.assertEqual((reply.status, reply.message),
                             (wire.INVALID_ARGUMENT,
                              "input 'x': 4 instances; this model takes 1 to 3"))

    def test_r25_a_reload_to_limits_that_a_model_does_not_fit_is_refused(self):
        with harness.Server({"m": harness.plan("copy"), "w": harness.plan("grown", "1")}) as s, \
                s.client() as c:
            for limits, says in (
                    ({"output_bytes": 2 << 20}, "output 'y' takes 3.0 MiB for one instance; "
                                                "limits.output_bytes is 2.0 MiB"),
                    ({"model_bytes": 4 << 20}, "limits.model_bytes is 4.0 MiB")):
                s.config["limits"] = limits
                s.write_config()
                self.reload(s, good=False)
                self.assertIn(says, s.log())
                reply = c.infer("w", [("x", "FP32", [1, 1], bytes(4))])
                self.assertEqual((reply.status, infer(c)), (wire.OK, "copy"))
            s.config["limits"] = {"output_bytes": 4 << 20}
            s.write_config()
            self.reload(s)
            self.assertEqual(s.log().count("loaded in"), 2)

    def test_a_reload_names_what_takes_a_restart(self):
        with harness.Server({"m": harness.plan("copy")}) as s, s.client() as c:
            s.config.update({"workers": 2, "device": "fault", "max_delay_us": 7})
            s.write_config()
            self.reload(s)
            self.assertIn("takes a restart to change: device, workers\n", s.log())
            s.config.update({"workers": 1, "device": "cpu"})
            s.write_config()
            self.reload(s)
            self.assertEqual(s.log().count("takes a restart"), 1)
            self.assertEqual(infer(c), "copy")

    def test_errors_of_a_plan_name_its_file(self):
        foreign = harness.folder() / "foreign.plan"
        foreign.write_bytes(b"this is no plan" * 100)
        with harness.Server({"m": harness.plan("copy"), "foreign": foreign}) as s:
            self.assertRegex(s.log(), r"'foreign' version '1' \(\S+/foreign.plan\): foreign.plan: ")
            self.assertNotIn("/proc/self", s.log())

    def test_reload_with_other_profiles(self):
        entry = {"path": str(harness.onnx("copy")), "batches": [1, 2]}
        with harness.Server({"m": entry}) as s, s.client() as c:
            def most():
                return wire.one(wire.decode(c.call(wire.STATUS).body[10][0]), 5)

            self.assertEqual(most(), 2)
            s.models["m"] = dict(entry, batches=[1, 4])
            s.write_config()
            self.reload(s)
            self.assertEqual((most(), infer(c)), (4, "copy"))
            s.models["m"] = dict(entry, batches=[1, 4], max_batch=3)
            s.write_config()
            self.reload(s)
            self.assertEqual((most(), infer(c)), (3, "copy"))

    def test_r25_a_failed_reload_leaves_the_old_serving(self):
        with harness.Server({"m": harness.plan("copy")}, {"max_delay_us": 5}) as s, s.client() as c:
            def unchanged():
                self.assertEqual(infer(c), "copy")
                self.assertEqual(set(states(c)), {("m", "1")})
                model = wire.decode(c.call(wire.STATUS).body[10][0])
                self.assertEqual(wire.one(model, 6), 5)
                self.assertEqual(c.call(wire.READY).body, {1: [1]})

            s.config_path.write_text("max_delay_us: [\n")
            self.reload(s, good=False)
            unchanged()
            s.config["max_delay_us"] = 99
            s.models["n"] = harness.folder() / "not-there.plan"
            s.write_config()
            self.reload(s, good=False)
            unchanged()
            del s.models["n"]
            garbage = harness.folder() / "garbage.plan"
            garbage.write_bytes(b"garbage" * 999)
            s.models["m"] = garbage
            s.write_config()
            self.reload(s, good=False)
            unchanged()
            s.models["m"] = harness.plan("twice")
            s.write_config()
            self.reload(s)
            self.assertEqual(infer(c), "twice")
            counters = c.counters()
            self.assertEqual((counters["reloads"], counters["reloads_failed"]), (1, 3))

    def test_reload_under_load_loses_nothing(self):
        r = Repository()
        r.put("m", "1", harness.plan("copy"))
        config = {"workers": 2, "io_threads": 2}
        with harness.Server([r.path], config) as s:
            stop, answers = threading.Event(), []

            def load():
                with s.client() as c:
                    while not stop.is_set():
                        sent = {c.start(wire.INFER, wire.infer_body("m", [
                            ("x", "FP32", [1, 4], X4)])) for _ in range(16)}
                        for _ in range(16):
                            reply = c.receive()
                            sent.remove(reply.id)
                            answers.append((reply.status, reply.message))

            threads = [harness.Background(load) for _ in range(3)]
            for i in range(12):
                r.put("m", "1", harness.plan("twice" if i % 2 else "copy"))
                if i % 3 == 2:
                    r.put("more", str(i), harness.plan("wide"))  # larger outputs than before
                self.reload(s)
            stop.set()
            for t in threads:
                t.finish()
            self.assertGreater(len(answers), 100)
            self.assertEqual(set(answers), {(wire.OK, "")})
            with s.client() as c:
                self.assertEqual(infer(c), "twice")
            s.wait_log("model 'm' version '1' unloaded", count=6)

    def test_many_signals_at_once(self):
        with harness.Server({"m": harness.plan("copy")}) as s:
            for _ in range(50):
                s.signal(signal.SIGHUP)
                time.sleep(0.002)
            s.wait_log("reloaded")
            with s.client() as c:
                self.assertEqual(infer(c), "copy")


if __name__ == "__main__":
    harness.main()
