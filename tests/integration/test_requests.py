#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a server answers: inferences, descriptions, and everything that can be wrong with them.

    test_requests.py INFERD INFERCTL
"""
import pathlib
import socket
import struct
import subprocess
import unittest

import harness
import wire
from wire import message

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SEEDS = SOURCE / "tests/fuzz/corpus/session"
X4 = struct.pack("<4f", 1, 2, 3, 4)
Y4 = struct.pack("<4f", 2, 4, 6, 8)


def copy_input(data=X4, shape=(1, 4), name="x", datatype="FP32"):
    return (name, datatype, list(shape), data)


class Requests(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            {"copy": harness.plan("copy"), "pair": harness.plan("pair"),
             "fixed": harness.plan("fixed", "1"), "wide": harness.plan("wide"),
             "counted": harness.plan("pair"), "idle": harness.plan("copy")})

    def setUp(self):
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def refused(self, reply, status, *words):
        self.assertEqual(reply.status, status, reply.message)
        for word in words:
            self.assertIn(word, reply.message)

    def still_serving(self):
        with self.server.client() as client:
            self.assertEqual(client.infer("copy", [copy_input()]).outputs()["y"][2], X4)

    # --- inference ---

    def test_an_inference(self):
        reply = self.client.infer("copy", [copy_input()], request_id="my request")
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        self.assertEqual(reply.outputs(), {"y": ("FP32", [1, 4], X4)})
        self.assertEqual(wire.text(reply.body, 1), "copy")
        self.assertEqual(wire.text(reply.body, 2), "1")
        self.assertEqual(wire.text(reply.body, 3), "my request")
        self.assertEqual(reply.batch, 1)

    def test_several_instances(self):
        for n in range(1, 9):
            reply = self.client.infer("copy", [copy_input(X4 * n, (n, 4))])
            self.assertEqual(reply.outputs(), {"y": ("FP32", [n, 4], X4 * n)})

    def test_a_model_that_is_not_batched(self):
        data = struct.pack("<6f", *range(6))
        reply = self.client.infer("fixed", [("x", "FP32", [2, 3], data)])
        self.assertEqual(reply.outputs(), {"y": ("FP32", [2, 3], data)})
        self.refused(self.client.infer("fixed", [("x", "FP32", [4, 3], data * 2)]),
                     wire.INVALID_ARGUMENT, "expected shape [2,3], got [4,3]")

    def test_inputs_in_any_order_and_outputs_as_asked(self):
        a, b, n = (struct.pack("<4f", 1, 2, 3, 4), struct.pack("<4f", 10, 20, 30, 40),
                   struct.pack("<2q", -7, 1 << 40))
        inputs = [("n", "INT64", [2, 1], n), ("b", "FP32", [2, 2], b), ("a", "FP32", [2, 2], a)]
        reply = self.client.infer("pair", inputs)
        self.assertEqual(reply.outputs(), {
            "sum": ("FP32", [2, 2], struct.pack("<4f", 11, 22, 33, 44)),
            "same": ("FP32", [2, 2], a), "m": ("INT64", [2, 1], n)})
        reply = self.client.infer("pair", inputs, outputs=["m", "sum"])
        self.assertEqual(list(reply.outputs()), ["m", "sum"])
        self.assertEqual(reply.outputs()["m"][2], n)
        self.assertEqual(len(reply.body[6]), 2)
        self.refused(self.client.infer("pair", inputs, outputs=["m", "nothing"]),
                     wire.INVALID_ARGUMENT, "no output 'nothing'")
        self.refused(self.client.infer("pair", inputs, outputs=["m", "m"]), wire.INVALID_ARGUMENT,
                     "'m' is there twice")

    def test_large_payloads(self):
        data = bytes(range(256)) * (1 << 12)
        for n in (1, 3, 8):
            reply = self.client.infer("wide", [("x", "FP32", [n, 1 << 18], data * n)])
            self.assertEqual(reply.message, "")
            self.assertEqual(reply.outputs()["y"][2], data * n)

    def test_typed_contents(self):
        floats = message((6, X4))
        body = message((1, "copy"), (5, wire.tensor("x", "FP32", [1, 4], contents=floats)))
        reply = self.client.call(wire.INFER, body)
        self.assertEqual(reply.message, "")
        self.assertEqual(reply.outputs()["y"][2], X4)
        body += wire.field(7, X4)
        self.refused(self.client.call(wire.INFER, body), wire.INVALID_ARGUMENT, "together")
        for contents, reason in ((message((6, X4[:12])), "missing"),
                                 (message((6, Y4 + Y4)), "more"),
                                 (message((2, b"\1\2\3\4")), "fp32_contents")):
            body = message((1, "copy"), (5, wire.tensor("x", "FP32", [1, 4], contents=contents)))
            self.refused(self.client.call(wire.INFER, body), wire.INVALID_ARGUMENT, reason)

    def test_another_implementation_of_protobuf(self):
        """protoc writes the request and reads the reply: Google's library, not ours."""
        proto = pathlib.Path(__file__).resolve().parents[2] / "proto"

        def protoc(option, data):
            return subprocess.run(["protoc", f"-I{proto}", option, proto / "inferd.proto"],
                                  input=data, capture_output=True, check=True).stdout

        text = """id: 77 timeout_us: 5000000 infer {
            model_name: "copy" id: "abc"
            inputs { name: "x" datatype: "FP32" shape: 1 shape: 4
                     parameters { key: "ignored" value { string_param: "yes" } }
                     contents { fp32_contents: [1, 2, 3, 4] } }
            outputs { name: "y" } }"""
        self.client.send(wire.frame(protoc("--encode=inferd.Request", text.encode())))
        size = struct.unpack(">I", self.client.receive_exactly(4))[0]
        reply = protoc("--decode=inferd.Response", self.client.receive_exactly(size)).decode()
        for line in ("id: 77", 'model_name: "copy"', 'model_version: "1"', 'id: "abc"',
                     'name: "y"', 'datatype: "FP32"', "shape: 1", "shape: 4", "batch: 1",
                     r'raw_output_contents: "\000\000\200?\000\000\000@\000\000@@\000\000\200@"'):
            self.assertIn(line, reply)
        for kind in ("server_metadata {}", 'model_metadata { name: "pair" }', "statistics {}",
                     "repository_index {}", "server_status {}", "cancel { target: 3 }"):
            data = protoc("--encode=inferd.Request", f"id: 5 {kind}".encode())
            self.client.send(wire.frame(data))
            size = struct.unpack(">I", self.client.receive_exactly(4))[0]
            reply = protoc("--decode=inferd.Response", self.client.receive_exactly(size)).decode()
            self.assertIn("id: 5", reply)
            self.assertIn(kind.split()[0], reply)
            self.assertNotRegex(reply, r"(?m)^\s*\d+:")  # no field that the schema does not know

    def test_pipelining_and_replies_by_id(self):
        sent = {}
        for i in range(600):
            data = struct.pack("<4f", i, i, i, i)
            sent[self.client.start(wire.INFER, wire.infer_body("copy", [copy_input(data)]))] = data
        for _ in range(600):
            reply = self.client.receive()
            self.assertEqual(reply.outputs()["y"][2], sent.pop(reply.id))
        self.assertFalse(sent)

    # --- what does not fit the model ---

    def test_wrong_model(self):
        self.refused(self.client.infer("nothing", [copy_input()]), wire.NOT_FOUND,
                     "there is no model 'nothing'; there are 'copy', 'counted', 'fixed', "
                     "'idle', 'pair', 'wide'")
        self.refused(self.client.infer("fixd", [copy_input()]), wire.NOT_FOUND,
                     "(did you mean 'fixed'?)")
        self.refused(self.client.infer("copy", [copy_input()], version="9"), wire.NOT_FOUND,
                     "model 'copy' has no version '9'")
        self.refused(self.client.infer("../copy", [copy_input()]), wire.INVALID_ARGUMENT,
                     "no model name")

    def test_wrong_dtype(self):
        self.refused(self.client.infer("copy", [copy_input(datatype="INT32")]),
                     wire.INVALID_ARGUMENT, "'x'", "expected FP32, got INT32")
        self.refused(self.client.infer("copy", [copy_input(datatype="BYTES")]),
                     wire.INVALID_ARGUMENT, "BYTES")

    def test_wrong_shape(self):
        for shape, data in (((1, 5), X4 + X4[:4]), ((4,), X4), ((1, 2, 2), X4)):
            text = "[" + ",".join(map(str, shape)) + "]"
            self.refused(self.client.infer("copy", [copy_input(data, shape)]),
                         wire.INVALID_ARGUMENT, "expected shape [?,4], got " + text)
        self.refused(self.client.infer("copy", [copy_input(X4 * 9, (9, 4))]), wire.INVALID_ARGUMENT,
                     "9 instances", "1 to 8")

    def test_r3_extreme_shapes(self):
        for dims in ((0, 4), (-1, 4), (2**63 - 1, 4), (2**62, 4), (-(2**63), 4)):
            reply = self.client.infer("copy", [copy_input(b"", dims)])
            self.assertEqual(reply.status, wire.INVALID_ARGUMENT, dims)
        self.still_serving()

    def test_wrong_byte_count(self):
        self.refused(self.client.infer("copy", [copy_input(X4[:-1])]), wire.INVALID_ARGUMENT,
                     "takes 16 bytes, 15 came")
        self.refused(self.client.infer("copy", [copy_input(X4 + b"x")]), wire.INVALID_ARGUMENT,
                     "takes 16 bytes, 17 came")

    def test_missing_and_duplicate_inputs(self):
        a, b = ("a", "FP32", [1, 2], X4[:8]), ("b", "FP32", [1, 2], X4[:8])
        n = ("n", "INT64", [1, 1], bytes(8))
        self.refused(self.client.infer("pair", [a, n]), wire.INVALID_ARGUMENT, "'b' is missing")
        self.refused(self.client.infer("pair", []), wire.INVALID_ARGUMENT, "'a' is missing")
        self.refused(self.client.infer("copy", [copy_input(), ("z", "FP32", [1, 4], X4)]),
                     wire.INVALID_ARGUMENT, "the model has no input 'z'; it has 'x'")
        self.refused(self.client.infer("pair", [a, b, n, a]), wire.INVALID_ARGUMENT, "'a'", "twice")
        self.refused(self.client.infer("pair", [a, b, n, ("c", "FP32", [1, 2], X4[:8])]),
                     wire.INVALID_ARGUMENT, "no input 'c'")
        more = ("b", "FP32", [2, 2], X4)
        self.refused(self.client.infer("pair", [a, more, n]), wire.INVALID_ARGUMENT,
                     "'b': 2 instances, but 1")

    def test_wrong_priority(self):
        self.refused(self.client.infer("copy", [copy_input()], priority=4), wire.INVALID_ARGUMENT,
                     "priority 4")
        self.assertEqual(self.client.infer("copy", [copy_input()], priority=3).status, wire.OK)

    def test_r10_errors_leak_no_paths_and_no_control_bytes(self):
        reply = self.client.infer("no\n\x1b[31mmodel", [copy_input()])
        self.assertEqual(reply.status, wire.INVALID_ARGUMENT)
        self.assertTrue(reply.message.isprintable(), reply.message)
        self.assertNotIn("/", self.client.infer("nothing", []).message)

    def test_r10_replies_are_utf8(self):
        """A reply is decoded strictly, as protobuf libraries do it."""
        for bad in (b"\xff", b"caf\xc3", b"\xed\xa0\x80"):
            for fields in ([(1, bad)], [(1, "copy"), (2, bad)], [(1, "copy"), (3, bad)],
                           [(1, "copy"), (6, message((1, bad)))],
                           [(1, "copy"), (5, message((1, bad))), (7, b"")],
                           [(1, "copy"), (5, message((1, "x"), (2, bad))), (7, b"")]):
                self.refused(self.client.call(wire.INFER, message(*fields)),
                             wire.INVALID_ARGUMENT, "\\x")
        reply = self.client.infer("copy", [copy_input()], request_id="caf\u00e9")
        self.assertEqual((reply.status, wire.text(reply.body, 3)), (wire.OK, "caf\u00e9"))

    # --- what the server remembers of them ---

    def buckets(self, model):
        """stage -> {bucket: requests} and the sum of its times, as docs/protocol.md has it."""
        page = self.client.call(wire.STATUS).body
        row = next(m for m in map(wire.decode, page[10]) if wire.text(m, 1) == model)
        found = {}
        for stage, (tag, sum_tag) in {"queue": (19, 13), "input": (20, 14), "compute": (21, 15),
                                      "output": (22, 16), "total": (23, 17)}.items():
            numbers, at, counts = wire.varints(wire.one(row, tag, b"")), 0, {}
            for skip, count in zip(numbers[::2], numbers[1::2]):
                counts[at + skip] = count
                at += skip + 1
            found[stage] = (counts, wire.one(row, sum_tag, 0))
        return found

    def test_histograms_have_what_replies_said(self):
        def low(i):
            return 2 * i if i < 32 else (32 + i % 32) << (i // 32)

        before = self.buckets("counted")
        self.assertEqual(before["total"][0], {})
        inputs = [("a", "FP32", [1, 2], bytes(8)), ("b", "FP32", [1, 2], bytes(8)),
                  ("n", "INT64", [1, 1], bytes(8))]
        timings = [self.client.infer("counted", inputs).timing for _ in range(20)]
        # The status may be a moment old.
        harness.until(lambda: sum(self.buckets("counted")["total"][0].values()) >= len(timings))
        after = self.buckets("counted")
        for tag, stage in enumerate(("queue", "input", "compute", "output"), 1):
            times = [wire.one(t, tag, 0) for t in timings]
            counts = {}
            for ns in times:
                found = [i for i in range(1024) if low(i) <= ns < low(i + 1)]
                counts[found[0]] = counts.get(found[0], 0) + 1
            self.assertEqual(after[stage], (counts, sum(times)), stage)
        self.assertEqual(sum(after["total"][0].values()), len(timings))
        self.assertGreaterEqual(after["total"][1], sum(after[s][1] for s in ("queue", "compute")))
        self.assertEqual(self.buckets("idle")["total"], ({}, 0))

    # --- what is no request ---

    def test_a_message_that_is_no_request(self):
        self.client.send(wire.frame(b"\xff\xff\xff\xff"))
        self.refused(self.client.receive(), wire.INVALID_ARGUMENT, "malformed")
        self.client.send(wire.frame(message((1, 5), (10, b"\x0a\xff"))))
        reply = self.client.receive()
        self.refused(reply, wire.INVALID_ARGUMENT, "malformed")
        self.assertEqual(reply.id, 5)
        self.client.send(wire.frame(b""))
        self.refused(self.client.receive(), wire.INVALID_ARGUMENT, "no body")
        self.assertEqual(self.client.infer("copy", [copy_input()]).status, wire.OK)

    def test_r6_groups(self):
        self.client.send(wire.frame(b"\x08\x07\x63\x64"))
        reply = self.client.receive()
        self.refused(reply, wire.INVALID_ARGUMENT, "malformed")
        self.assertEqual(reply.id, 7)

    def test_r4_counts(self):
        inputs = [(f"x{i}", "UINT8", [1], b"a") for i in range(65)]
        self.refused(self.client.infer("copy", inputs), wire.INVALID_ARGUMENT, "64 inputs")
        self.refused(self.client.infer("copy", [copy_input(shape=(1,) * 9)]), wire.INVALID_ARGUMENT,
                     "8 dimensions")
        self.refused(self.client.infer("copy", [copy_input(name="x" * 65)]), wire.INVALID_ARGUMENT,
                     "64")

    def test_r4_fields(self):
        """A legal request that consists of far too many fields is refused, and the refusal has its
        id."""
        many = 4 << 20
        for kind, body in ((wire.INFER, b"\x22\x00" * many), (wire.INFER, b"\x48\x00" * many),
                           (wire.INFER, b"\x0a\x01m" * many), (wire.LIVE, b"\x48\x00" * many)):
            self.refused(self.client.call(kind, body), wire.INVALID_ARGUMENT, "1024 fields")
        self.refused(self.client.call(wire.INFER, b"\x22\x00" * 65), wire.INVALID_ARGUMENT,
                     "64 parameters")
        typed = message((1, "x"), (2, "FP32"), (3, 1), (3, 4), (5, b"\x32\x00" * many))
        self.refused(self.client.call(wire.INFER, message((1, "copy"), (5, typed))),
                     wire.INVALID_ARGUMENT, "1024 fields without an element")

    # --- descriptions ---

    def test_descriptions(self):
        self.assertEqual(self.client.call(wire.LIVE).body, {1: [1]})
        self.assertEqual(self.client.call(wire.READY).body, {1: [1]})
        self.assertEqual(self.client.call(wire.MODEL_READY, message((1, "copy"))).body, {1: [1]})
        self.assertEqual(wire.text(self.client.call(wire.SERVER_METADATA).body, 1), "inferd")
        metadata = self.client.call(wire.MODEL_METADATA, message((1, "pair"))).body
        self.assertEqual([wire.text(wire.decode(t), 1) for t in metadata[4]], ["a", "b", "n"])
        self.assertEqual([wire.text(wire.decode(t), 1) for t in metadata[5]], ["sum", "same", "m"])
        index = self.client.call(wire.INDEX).body[1]
        self.assertEqual([wire.text(wire.decode(m), 1) for m in index],
                         ["copy", "counted", "fixed", "idle", "pair", "wide"])
        for kind in (wire.MODEL_READY, wire.MODEL_METADATA, wire.STATISTICS):
            self.refused(self.client.call(kind, message((1, "nothing"))), wire.NOT_FOUND)
            self.refused(self.client.call(kind, message((1, "copy"), (2, "2"))), wire.NOT_FOUND)

    def test_statistics_count(self):
        def read():
            body = self.client.call(wire.STATISTICS, message((1, "fixed"))).body
            model = wire.decode(body[1][0])
            return {"instances": wire.one(model, 4, 0), "batches": wire.one(model, 5, 0),
                    "success": wire.one(wire.decode(wire.one(wire.decode(model[6][0]), 1)), 1, 0)}

        before = read()
        for _ in range(5):
            self.client.infer("fixed", [("x", "FP32", [2, 3], bytes(24))])
        after = read()
        self.assertEqual({k: after[k] - before[k] for k in after},
                         {"instances": 5, "batches": 5, "success": 5})

    def test_r27_counters(self):
        before = self.client.counters()
        self.client.infer("copy", [copy_input()])
        self.client.infer("copy", [copy_input(X4[:-1])])
        self.client.infer("copy", [copy_input(datatype="INT32")])
        self.client.infer("nothing", [copy_input()])
        after = self.client.counters()
        delta = {k: after[k] - before[k] for k in after if after[k] != before[k]}
        self.assertEqual(delta["requests_ok"], 1)
        self.assertEqual(delta["requests_invalid"], 2)
        self.assertEqual(delta["requests_not_found"], 1)
        self.assertGreater(delta["bytes_in"], 0)

    # --- what nobody may do ---

    def test_r9_what_a_fuzzer_found_worth_keeping(self):
        seeds = sorted(SEEDS.iterdir())
        self.assertGreater(len(seeds), 10)
        for seed in seeds:
            with self.server.client() as client:
                client.send(seed.read_bytes())
                client.socket.shutdown(socket.SHUT_WR)
                self.assertTrue(client.closed(), seed.name)
        self.still_serving()

    def test_r11_shared_memory_is_not_offered(self):
        region = message((1, "shared_memory_region"), (2, message((3, "somebody's"))))
        tensor = message((1, "x"), (2, "FP32"), (3, 1), (3, 4), (4, region))
        self.refused(self.client.call(wire.INFER, message((1, "copy"), (5, tensor))),
                     wire.INVALID_ARGUMENT, "shared_memory_region", "contents in the request")
        extensions = self.client.call(wire.SERVER_METADATA).body.get(3, [])
        self.assertFalse([e for e in extensions if b"shared_memory" in e])

    def test_r16_no_request_administers(self):
        """Every kind of body that is not served is refused, and changes nothing."""
        before = self.client.call(wire.INDEX).body
        for kind in range(20, 64):
            self.refused(self.client.call(kind, message((1, "copy"), (2, "copy"))),
                         wire.UNIMPLEMENTED, f"the body of field {kind}")
        self.refused(self.client.call(9, b""), wire.INVALID_ARGUMENT, "no body")
        self.assertEqual(self.client.call(wire.INDEX).body, before)

    def test_cancel_of_what_is_unknown(self):
        reply = self.client.call(wire.CANCEL, message((1, 12345)))
        self.assertEqual((reply.status, reply.body), (wire.OK, {}))


if __name__ == "__main__":
    harness.main()
