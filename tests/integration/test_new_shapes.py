#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests of sizes that no profile has: engines are built for them, kept, bounded, and given up.

    test_new_shapes.py INFERD INFERCTL
"""
import json
import pathlib
import random
import re
import signal
import struct
import threading
import time
import unittest
import urllib.request

import harness
import test_shapes as shapes
import wire

EXPIRED, FULL, FAILED_PRECONDITION, UNAVAILABLE = 4, 8, 9, 14


def model():
    path = harness.folder() / "seq.onnx"
    if not path.exists():
        path.write_bytes(shapes.model())
    return path


def serve(policy, limits=None, **config):
    entry = {"path": str(model()), "shapes": ["x=1..4x1..4000x2"], "profiles": ["seq=3,8"]}
    if policy:
        entry["on_new_shape"] = policy
    config = dict({"workers": 2, "limits": limits or {}}, **config)
    return harness.Server({"seq": entry}, config=config, arguments=["--http", "127.0.0.1:0"])


def given(seq, n=1):
    return shapes.inputs(random.Random(seq), n, seq)


def right(reply, seq, n=1):
    """Whether an answer is what the inputs make."""
    count = n * seq * 2
    x, z = (struct.unpack(f"<{count}f", i[3]) for i in given(seq, n))
    return reply.outputs()["y"] == ("FP32", [n, seq, 2],
                                    shapes.floats([a + b for a, b in zip(x, z)]))


def ask(client, seq, n=1, **options):
    """A request whose answer is checked."""
    reply = client.infer("seq", given(seq, n), **options)
    if reply.status == wire.OK and not right(reply, seq, n):
        raise AssertionError(f"seq={seq}: another answer")
    return reply


def grown(before, after):
    return {k: after[k] - before[k] for k in after if "shape" in k and after[k] != before[k]}


def until_answered(client, seq, seconds=60):
    end = time.monotonic() + seconds
    while (reply := ask(client, seq)).status != wire.OK:
        if reply.status != UNAVAILABLE or time.monotonic() > end:
            raise AssertionError(f"{reply.status}: {reply.message}")
        time.sleep(0.02)


def resident(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10


def kept(server):
    return sorted((server.folder / "cache" / "shapes").glob("*.plan"))


class Waiting(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = serve("wait")

    def test_a_new_size_is_answered_and_then_known(self):
        with self.server.client() as client:
            before = client.counters()
            for n in (2, 4, 1):
                reply = ask(client, 21, n)
                self.assertEqual((reply.status, reply.message), (wire.OK, ""))
            self.assertEqual(grown(before, client.counters()),
                             {"shape_misses": 1, "shape_hits": 2, "shapes_built": 1})

    def test_those_who_wait_are_answered_together(self):
        with self.server.client() as client:
            before = client.counters()
            for n in (1, 2, 1):
                client.start(wire.INFER, wire.infer_body("seq", given(33, n)))
            sizes = [client.receive() for _ in range(3)]
            self.assertEqual([r.status for r in sizes], [wire.OK] * 3)
            self.assertEqual(grown(before, client.counters()),
                             {"shape_misses": 3, "shapes_built": 1})

    def test_a_deadline_holds_while_an_engine_is_built(self):
        with self.server.client() as client:
            reply = ask(client, 45, timeout_us=1000)
            self.assertEqual(reply.status, EXPIRED, reply.message)
            self.assertEqual(ask(client, 45).status, wire.OK)

    def test_sizes_out_of_range_and_too_many_instances_build_nothing(self):
        with self.server.client() as client:
            before = client.counters()
            for seq, n in ((4001, 1), (1, 5), (9, 5)):
                self.assertEqual(ask(client, seq, n).status, wire.INVALID_ARGUMENT)
            for size in (0, 1 << 40, (1 << 63) - 1):
                reply = client.infer("seq", [("x", "FP32", [1, size, 2], b""),
                                             ("z", "FP32", [1, size, 2], b"")])
                self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
            self.assertEqual(grown(before, client.counters()), {})

    def test_who_leaves_or_cancels_is_forgotten(self):
        with self.server.client() as client:
            for seq in (51, 52):
                with self.server.client() as gone:
                    gone.start(wire.INFER, wire.infer_body("seq", given(seq)))
            number = client.start(wire.INFER, wire.infer_body("seq", given(53)))
            client.start(wire.CANCEL, wire.message((1, number)))
            statuses = sorted(client.receive().status for _ in range(2))
            self.assertIn(statuses, ([wire.OK, wire.OK], [wire.OK, wire.CANCELLED]))
            harness.until(lambda: wire.one(client.call(wire.STATUS).body, 9, 0) == 1)
            for seq in (51, 52, 53):
                self.assertEqual(ask(client, seq).status, wire.OK)

    def test_seen_sizes_are_served_while_others_are_built(self):
        slowest, wrong, stop = [0.0], [], threading.Event()

        def seen():
            with self.server.client() as client:
                while not stop.is_set():
                    begun = time.monotonic()
                    reply = ask(client, 3)
                    slowest[0] = max(slowest[0], time.monotonic() - begun)
                    if reply.status != wire.OK:
                        wrong.append(reply.message)
        background = harness.Background(seen)
        with self.server.client() as client:
            begun = time.monotonic()
            for seq in range(60, 66):
                self.assertEqual(ask(client, seq).status, wire.OK)
            took = time.monotonic() - begun
        stop.set()
        background.finish()
        self.assertEqual(wrong, [])
        self.assertLess(slowest[0], took / 2)  # no seen size has waited for several new ones

    def test_large_ones_wait_too_as_json_as_well(self):
        with self.server.client() as client:
            self.assertEqual(ask(client, 3999, 4).status, wire.OK)
        seq, where = 3500, self.server.door("http")
        inputs = [{"name": name, "datatype": kind, "shape": shape,
                   "data": struct.unpack(f"<{len(data) // 4}f", data)}
                  for name, kind, shape, data in given(seq)]
        request = urllib.request.Request(f"http://{where}/v2/models/seq/infer",
                                         json.dumps({"inputs": inputs}).encode())
        with urllib.request.urlopen(request, timeout=harness.PATIENCE) as answer:
            y = {o["name"]: o["data"] for o in json.load(answer)["outputs"]}["y"]
        self.assertEqual(y, [a + b for a, b in zip(inputs[0]["data"], inputs[1]["data"])])


class Refusing(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = serve("refuse")

    def test_a_new_size_is_refused_until_its_engine_is_there(self):
        with self.server.client() as client:
            before = client.counters()
            reply = ask(client, 9)
            self.assertEqual(reply.status, UNAVAILABLE)
            for words in ("seq=9", "being built", "seq=3; seq=8"):
                self.assertIn(words, reply.message)
            self.assertGreater(reply.retry_after_us, 0)
            until_answered(client, 9)
            self.assertEqual(client.counters()["shapes_built"] - before["shapes_built"], 1)


class FallingBack(unittest.TestCase):
    def test_requests_run_on_the_cpu_until_the_engine_is_there(self):
        with serve("fallback", device="fault") as server, server.client() as client:
            for seq in range(30, 50):  # a loop that gets no time may find the engine at once
                self.assertEqual(ask(client, seq).status, wire.OK)
                if client.counters()["shape_fallbacks"]:
                    break
            built = client.counters()["shapes_built"]
            harness.until(lambda: client.counters()["shapes_built"] >= max(built, 1))
            self.assertEqual(ask(client, 30).status, wire.OK)
            counters = client.counters()
            self.assertGreaterEqual(counters["shape_fallbacks"], 1)
            self.assertGreaterEqual(counters["shape_hits"], 1)

    def test_where_the_cpu_is_the_device_they_wait(self):
        with serve("fallback") as server, server.client() as client:
            self.assertEqual(ask(client, 30).status, wire.OK)
            self.assertEqual(client.counters()["shape_fallbacks"], 0)
            self.assertEqual(len(kept(server)), 1)


class Nothing(unittest.TestCase):
    def test_without_the_key_nothing_is_built(self):
        with serve(None) as server, server.client() as client:
            reply = ask(client, 9)
            self.assertEqual(reply.status, FAILED_PRECONDITION)
            self.assertIn("on_new_shape", reply.message)
            self.assertEqual(client.counters()["shapes_built"], 0)
            self.assertEqual(kept(server), [])

    def test_a_plan_has_no_engines_but_its_own(self):
        server = harness.Server(
            {"copy": {"path": str(harness.plan("copy")), "on_new_shape": "wait"}}, wait=False)
        server.wait_log("on_new_shape: expected nothing: engines are built from an .onnx")
        self.assertNotEqual(server.wait(), 0)


class Bounds(unittest.TestCase):
    def test_the_least_used_makes_room_also_on_disk(self):
        with serve("wait", shape_engines=2) as server, server.client() as client:
            for seq in (20, 21, 20, 22, 20):
                self.assertEqual(ask(client, seq).status, wire.OK)
            counters = client.counters()
            self.assertEqual((counters["shapes_built"], counters["shapes_evicted"]), (3, 1))
            self.assertEqual(counters["shape_hits"], 2)
            self.assertEqual(ask(client, 21).status, wire.OK)
            counters = client.counters()
            self.assertEqual((counters["shapes_built"], counters["shapes_loaded"]), (3, 1))
            for seq in range(100, 136):
                self.assertEqual(ask(client, seq).status, wire.OK)
            self.assertLessEqual(len(kept(server)), 2 * 16)

    def test_an_engine_that_is_too_large_is_refused_and_not_tried_again(self):
        with serve("wait", shape_bytes=2000) as server, server.client() as client:
            for _ in range(3):
                reply = ask(client, 500)
                self.assertEqual(reply.status, FAILED_PRECONDITION)
                self.assertIn("no engine can be built", reply.message)
            counters = client.counters()
            self.assertEqual((counters["shapes_failed"], counters["shapes_built"]), (1, 0))
            self.assertEqual(ask(client, 3).status, wire.OK)

    def test_many_sizes_at_once_cost_bounded_work(self):
        limits = {"shape_builds": 4, "shape_requests": 6}
        with serve("wait", limits, shape_engines=4) as server:
            with server.client() as bomb, server.client() as other:
                for seq in range(200, 600):
                    bomb.start(wire.INFER, wire.infer_body("seq", given(seq)))
                begun = time.monotonic()
                for _ in range(20):
                    self.assertEqual(ask(other, 8).status, wire.OK)
                self.assertLess(time.monotonic() - begun, 60)
                statuses = [bomb.receive().status for _ in range(400)]
                self.assertLessEqual(set(statuses), {wire.OK, FULL})
                self.assertGreater(statuses.count(FULL), 300)
                self.assertGreater(statuses.count(wire.OK), 0)
                self.assertGreaterEqual(other.counters()["rejected_shape"], 300)
                self.assertEqual(ask(other, 9).status, wire.OK)

    def test_bytes_that_wait_are_bounded(self):
        limits = {"shape_request_bytes": 10000}
        with serve("wait", limits) as server, server.client() as client:
            reply = ask(client, 2000)
            self.assertEqual(reply.status, FULL)
            self.assertIn("too many requests wait", reply.message)
            self.assertEqual(ask(client, 20).status, wire.OK)


class Lasting(unittest.TestCase):
    def test_engines_outlive_the_server_unless_they_are_damaged(self):
        first = serve("wait")
        cache = str(first.folder / "cache")
        with first, first.client() as client:
            for seq in (9, 10):
                self.assertEqual(ask(client, seq).status, wire.OK)
        plans = kept(first)
        self.assertEqual(len(plans), 2)
        with serve("wait", cache=cache) as server, server.client() as client:
            for seq in (9, 10):
                self.assertEqual(ask(client, seq).status, wire.OK)
            counters = client.counters()
            self.assertEqual((counters["shapes_loaded"], counters["shapes_built"]), (2, 0))
        for path in plans:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 255
            path.write_bytes(data)
        with serve("wait", cache=cache) as server, server.client() as client:
            for seq in (9, 10):
                self.assertEqual(ask(client, seq).status, wire.OK)
            counters = client.counters()
            self.assertEqual((counters["shapes_loaded"], counters["shapes_built"]), (0, 2))

    def test_a_reload_keeps_engines_and_changes_what_is_done(self):
        with serve("wait") as server, server.client() as client:
            self.assertEqual(ask(client, 9).status, wire.OK)
            server.models["seq"]["on_new_shape"] = "refuse"
            server.write_config()
            server.signal(signal.SIGHUP)
            server.wait_log("reloaded: ")
            self.assertEqual(ask(client, 9).status, wire.OK)
            self.assertEqual(ask(client, 10).status, UNAVAILABLE)
            until_answered(client, 10)
            counters = client.counters()
            self.assertEqual((counters["shapes_built"], counters["shapes_loaded"]), (2, 0))
            server.models["seq"]["queue_limit"] = 7
            server.write_config()
            server.signal(signal.SIGHUP)
            server.wait_log("reloaded: ", count=2)
            until_answered(client, 9)
            self.assertEqual(client.counters()["shapes_loaded"], 1)

    def test_the_model_may_go_while_its_engine_is_built_or_used(self):
        with serve("wait") as server, server.client() as client:
            for round_ in range(2):
                for seq in (40 + round_, 50 + round_):
                    client.start(wire.INFER, wire.infer_body("seq", given(seq)))
                server.models["seq"]["profiles"] = [f"seq=3,{7 - round_}"]
                server.write_config()
                server.signal(signal.SIGHUP)
                server.wait_log("reloaded: ", count=round_ + 1)
                self.assertEqual({client.receive().status for _ in range(2)}, {wire.OK})

    def test_who_waits_hears_of_the_end(self):
        with serve("wait") as server, server.client() as client:
            for seq in range(70, 74):
                client.start(wire.INFER, wire.infer_body("seq", given(seq)))
            harness.until(lambda: "building a plan" in server.log() or True)
            server.signal(signal.SIGTERM)
            statuses = {client.receive().status for _ in range(4)}
            self.assertLessEqual(statuses, {wire.OK, UNAVAILABLE})
            self.assertEqual(server.wait(), 0)


# ThreadSanitizer, to which every byte of the weights is an access, has the smaller ones
WIDTH, FACTORS = 512 if harness.has_sanitizer("tsan") else 1024, (2, 3, 5, 7)
WEIGHTS = 4 * WIDTH * WIDTH  # bytes of each product's


def heavy():
    """y = 210 x for rows of WIDTH, by four products."""
    path = harness.folder() / "heavy.onnx"
    if path.exists():
        return path
    weights = [bytearray(WEIGHTS) for _ in FACTORS]
    for data, factor in zip(weights, FACTORS):
        for i in range(WIDTH):
            struct.pack_into("<f", data, 4 * i * (WIDTH + 1), factor)
    names = ["x", "a", "b", "c", "y"]
    path.write_bytes(harness.model(
        [harness.node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(4)],
        [harness.value("x", harness.FLOAT, ["N", "seq", WIDTH])],
        [harness.value("y", harness.FLOAT, ["N", "seq", WIDTH])],
        [harness.constant(f"w{k}", harness.FLOAT, [WIDTH, WIDTH], bytes(data))
         for k, data in enumerate(weights)]))
    return path


class OneCopy(unittest.TestCase):
    """Engines of one model have their weights in common."""

    def ask(self, client, seq):
        x = [float((seq * 31 + i) % 17) for i in range(seq * WIDTH)]
        reply = client.infer("heavy", [("x", "FP32", [1, seq, WIDTH], shapes.floats(x))])
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        self.assertEqual(reply.outputs()["y"],
                         ("FP32", [1, seq, WIDTH], shapes.floats([210 * v for v in x])))

    def check(self, script=None, **config):
        entry = {"path": str(heavy()), "shapes": [f"x=1..2x1..64x{WIDTH}"], "profiles": ["seq=1"],
                 "on_new_shape": "wait"}
        server = harness.Server({"heavy": entry}, config=dict(
            {"workers": 1, "shape_engines": 6, "cache": ""}, **config),
            env={"INFERD_REFERENCE_KERNELS": None, "INFERD_FAULT_SCRIPT": script},
            arguments=["--metrics", "127.0.0.1:0"])
        with server, server.client(timeout=120) as client:
            self.ask(client, 1)
            before = resident(server)
            for seq in range(2, 12):  # more than there is room for
                self.ask(client, seq)
            self.ask(client, 2)
            self.assertGreater(client.counters()["shapes_evicted"], 0)
            door = re.search(r"(?m)^metrics (\S+)$", server.log())[1]
            with urllib.request.urlopen(f"http://{door}/metrics") as page:
                text = page.read().decode()
            engines, taken = (float(re.search(rf"(?m)^{name} (\S+)$", text)[1]) for name in (
                "inferd_shape_engines", "inferd_shape_engine_bytes"))
            self.assertEqual(engines, 6)
            self.assertLess(taken, WEIGHTS * len(FACTORS), "each counts its own copy of them")
            if not harness.sanitized():  # which keep what was freed
                self.assertLess(resident(server) - before, 40 << 20, "six copies are 96 MiB")

    def test_on_the_host(self):
        self.check()

    def test_on_a_device_with_memory_of_its_own(self):
        self.check("on=cpu;apart", device="fault")


@unittest.skipUnless(shapes.onnxruntime, "needs onnxruntime, onnx and numpy")
class BesideOnnxruntime(harness.Served):
    """Sizes of which most have no profile, with room for few engines at a time."""
    LENGTHS, SIDES = (1, 7, 19, 24, 40, 57, 63), (8, 13, 21, 30)

    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        shapes.encoder(folder / "encoder.onnx")
        shapes.convolutions(folder / "convolutions.onnx")
        cls.server = harness.Server({
            "encoder": {"path": str(folder / "encoder.onnx"), "shapes": ["ids=1..4x1..64"],
                        "profiles": ["seq=32"], "on_new_shape": "wait"},
            "convolutions": {"path": str(folder / "convolutions.onnx"),
                             "shapes": ["x=1..2x3x8..32x8..32"], "profiles": ["h=32", "w=32"],
                             "on_new_shape": "wait"}},
            config={"workers": 2, "max_delay_us": 1000, "shape_engines": 12},
            env={"INFERD_REFERENCE_KERNELS": None})
        options = shapes.onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        cls.theirs = {name: shapes.onnxruntime.InferenceSession(
            str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "convolutions")}

    KINDS = shapes.BesideOnnxruntime.KINDS
    feeds, check = shapes.BesideOnnxruntime.feeds, shapes.BesideOnnxruntime.check

    def test_a_thousand_requests_agree(self):
        rng = shapes.np.random.default_rng(2)
        with self.server.client() as client:
            for i in range(harness.fewer(1000)):
                name = ("encoder", "convolutions")[i % 2]
                self.check(client, name, self.feeds(rng, name))
                if i == 300:
                    early = resident(self.server)
            counters = client.counters()
        self.assertGreater(counters["shapes_evicted"], 0)
        self.assertLessEqual(counters["shapes_built"], len(self.LENGTHS) + len(self.SIDES) ** 2)
        if not harness.sanitized():  # which keep what was freed
            self.assertLess(resident(self.server) - early, 64 << 20)


if __name__ == "__main__":
    harness.main()
