#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 from peers that break its rules or wear the server out, frame by frame.

    test_h2.py INFERD INFERCTL
"""
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

import harness
import h2wire as h2
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)


def infer_body(model="copy", data=X4, shape=(1, 4)):
    dims = b"".join(wire.varint(d) for d in shape)
    given = message((1, "x"), (2, "FP32"), (3, dims))
    return h2.message(message((1, model), (5, given), (7, data)))


class Http2(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(
            {"copy": harness.plan("copy"), "wide": harness.plan("wide")},
            {"limits": {"header_timeout_ms": 1000, "frame_timeout_ms": 2000}},
            arguments=["--grpc", "127.0.0.1:0"])
        cls.address = re.search(r"(?m)^ready (\S+) \(grpc\)$", cls.server.log()).group(1)

    def peer(self, **more):
        peer = h2.Peer(self.address, **more)
        self.addCleanup(peer.close)
        return peer

    def answered(self, peer, stream):
        """The stream's reply holds the numbers that were sent."""
        got = peer.until(lambda k, f, s, p: s == stream and k in (h2.DATA, h2.RESET))
        self.assertEqual(got[0], h2.DATA)
        self.assertIn(X4, got[3])

    def read_whole(self, peer, stream):
        """The data of a stream up to its end, for which the peer grants the windows."""
        got = b""
        while True:
            kind, flags, s, payload = peer.read()
            if kind == h2.DATA and payload:
                leave = struct.pack(">I", len(payload))
                peer.send(h2.frame(h2.WINDOW, 0, 0, leave) + h2.frame(h2.WINDOW, 0, s, leave))
            if s != stream:
                continue
            got += payload if kind == h2.DATA else b""
            if kind == h2.RESET or flags & h2.END_STREAM:
                return got

    def still_serving(self, peer=None):
        peer = peer or self.peer()
        self.answered(peer, peer.call(body=infer_body()))

    def counter(self, name):
        with self.server.client() as client:
            rows = map(wire.decode, client.call(wire.STATUS).body[11])
            return {wire.one(r, 1).decode(): wire.one(r, 2, 0) for r in rows}[name]

    def flooded(self, send, most=200):
        """Sends until the server has had enough, and returns what it said."""
        peer = self.peer()
        before = self.counter("closed_for_flood")
        try:
            for i in range(most):
                send(peer, i)
        except (BrokenPipeError, ConnectionResetError):
            pass
        code = peer.goaway()
        harness.until(lambda: self.counter("closed_for_flood") == before + 1)
        self.still_serving()
        return code

    # --- the usual ---

    def test_settings_and_a_call(self):
        peer = self.peer()
        kind, _, _, payload = peer.settings
        settings = dict(struct.unpack(">HI", payload[i:i + 6]) for i in range(0, len(payload), 6))
        self.assertEqual((kind, settings[3], settings[4], settings[6]),
                         (h2.SETTINGS, 100, 16 << 20, 16 << 10))
        self.still_serving(peer)

    def test_bytes_one_by_one(self):
        peer = self.peer()
        stream, out = peer.call(body=infer_body(), send=False)
        for i in range(len(out)):
            peer.send(out[i:i + 1])
        self.answered(peer, stream)

    def test_a_message_in_many_frames(self):
        peer = self.peer()
        body = infer_body()
        stream = peer.call(body=body[:1], end=False)
        for i in range(1, len(body)):
            peer.send(h2.frame(h2.DATA, h2.END_STREAM if i == len(body) - 1 else 0, stream,
                               body[i:i + 1]))
        self.answered(peer, stream)

    def test_padding_and_an_end_of_its_own(self):
        peer = self.peer()
        stream = peer.call(end=False, body=b"")
        peer.send(h2.frame(h2.DATA, h2.PADDED, stream, b"\x07" + infer_body() + bytes(7)) +
                  h2.frame(h2.DATA, h2.END_STREAM, stream))
        self.answered(peer, stream)

    def test_calls_side_by_side(self):
        peer = self.peer()
        streams = [peer.call(body=infer_body()) for _ in range(100)]
        waiting = set(streams)
        while waiting:
            kind, flags, stream, payload = peer.read()
            if kind == h2.DATA:
                self.assertIn(X4, payload)
            if kind == h2.HEADERS and flags & h2.END_STREAM:
                waiting.remove(stream)

    def test_large_messages_in_mixed_frames(self):
        """Frames of two messages of 1 MiB and small calls between them, sent at once: what lies
        behind a frame is read with it. Some end in the middle of a message."""
        n, size = 1 << 18, 16_384
        peer = self.peer(settings=struct.pack(">HI", 4, 1 << 24))
        peer.send(h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", 1 << 28)))
        for short in (None, 3 * size, 20 * size, 20 * size + 1):
            datas = [random.Random(k).randbytes(4 * n) for k in range(2)]
            bodies = [infer_body("wide", data, (1, n)) for data in datas]
            streams = [peer.call(end=False) for _ in bodies]
            if short:
                bodies[1] = bodies[1][:short]
            out, small, at = b"", [], [0, 0]
            while any(a < len(b) for a, b in zip(at, bodies)):
                for k, body in enumerate(bodies):
                    part = body[at[k]:at[k] + size]
                    at[k] += len(part)
                    last = h2.END_STREAM if at[k] == len(body) else 0
                    out += h2.frame(h2.DATA, last, streams[k], part) if part else b""
                if len(small) < 30 and at[0] // size % 2:
                    stream, call = peer.call(body=infer_body(), send=False)
                    small.append(stream)
                    out += call
            peer.send(out)
            got, waiting = {}, {*streams, *small}
            while waiting:
                kind, flags, stream, payload = peer.read()
                if kind == h2.DATA:
                    got[stream] = got.get(stream, b"") + payload
                if stream and (kind == h2.RESET or flags & h2.END_STREAM):
                    waiting.discard(stream)
            self.assertTrue(got[streams[0]].endswith(datas[0]))
            self.assertEqual(streams[1] in got, not short)
            self.assertTrue(short or got[streams[1]].endswith(datas[1]))
            for stream in small:
                self.assertIn(X4, got[stream])

    def test_a_large_reply_waits_for_the_peers_leave(self):
        n = 1 << 18
        data = bytes(range(256)) * (4 * n // 256)
        peer = self.peer(settings=struct.pack(">HI", 4, 1000))
        peer.send(h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", 64 << 20)))
        stream = peer.call(body=infer_body("wide", data, (1, n)))
        got = b""
        while len(got) < len(data):
            kind, flags, s, payload = peer.read()
            if kind != h2.DATA:
                continue
            self.assertEqual(s, stream)
            got += payload
            peer.send(h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", len(payload) + 30000)))
        self.assertIn(data, got)
        self.still_serving(peer)

    # --- refusals that cost the connection nothing ---

    def test_what_is_no_grpc(self):
        peer = self.peer()
        stream = peer.next_id
        peer.next_id += 2
        headers = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]
        peer.send(h2.frame(h2.HEADERS, 5, stream, h2.block(headers)))
        peer.ends_stream(stream)
        stream = peer.next_id
        peer.next_id += 2
        peer.send(h2.frame(h2.HEADERS, 5, stream, h2.block(
            [(":method", "POST"), *headers[1:], ("content-type", "text/html")])))
        peer.ends_stream(stream)
        self.still_serving(peer)

    def refused(self, body, **more):
        peer = self.peer()
        stream = peer.call(body=body, **more)
        got = peer.ends_stream(stream)
        self.assertEqual(got[0], h2.HEADERS)
        self.still_serving(peer)

    def test_messages_that_are_wrong(self):
        self.refused(infer_body()[:-1])  # cut short
        self.refused(infer_body() + b"\0")  # more than one
        self.refused(infer_body() * 2)
        self.refused(b"\0\xff\xff\xff\xff")  # 4 GiB
        self.refused(b"\1" + infer_body()[1:])  # compressed, by nothing
        self.refused(b"\2" + infer_body()[1:])
        self.refused(h2.message(b"\xff" * 100))
        self.refused(h2.message(b"no gzip", 1), headers=[("grpc-encoding", "gzip")])
        self.refused(infer_body(), headers=[("grpc-encoding", "br")])
        self.refused(infer_body(), headers=[("grpc-timeout", "0n")])
        self.refused(h2.message(b""), path="/nothing")

    def test_r26_a_bomb_is_not_inflated(self):
        squeezed = zlib.compress(bytes(60 << 20), 9)
        begin = time.monotonic()
        self.refused(h2.message(squeezed, 1), headers=[("grpc-encoding", "deflate")])
        self.assertLess(time.monotonic() - begin, 10)

    def test_r26_a_hundred_calls_and_no_more(self):
        peer = self.peer()
        for _ in range(100):
            peer.call(h2.STREAM, end=False)
        self.assertTrue(peer.alive())
        peer.call(h2.STREAM, end=False)
        self.assertEqual(peer.goaway(), h2.PROTOCOL_ERROR)

    def test_r26_headers_have_limits(self):
        peer = self.peer()
        for many in ([("k%d" % i, "v") for i in range(80)], [("long", "v" * 20000)]):
            stream = peer.call(body=infer_body(), headers=many)
            self.assertEqual(peer.ends_stream(stream)[0], h2.RESET)
        self.still_serving(peer)

    def test_r1_a_length_takes_no_memory(self):
        before = self.server_rss()
        peers = [self.peer() for _ in range(20)]
        for peer in peers:
            for _ in range(100):
                peer.call(body=b"\0\x03\x00\x00\x00" + bytes(10), end=False)
        self.still_serving()
        self.assertLess(self.server_rss() - before, 64 << 20)

    def server_rss(self):
        text = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) << 10

    # --- attacks ---

    def test_r26_rapid_reset(self):
        def send(peer, _):
            out = b""
            for _ in range(50):
                stream, call = peer.call(body=infer_body(), send=False)
                out += call + h2.frame(h2.RESET, 0, stream, struct.pack(">I", h2.CANCEL))
            peer.send(out)
        self.assertEqual(self.flooded(send), h2.CALM)

    def test_r26_resets_that_the_server_is_made_to_send(self):
        def send(peer, _):
            out = b""
            for _ in range(50):
                stream, call = peer.call(end=False, send=False)
                out += call + h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", 0))
            peer.send(out)
        self.assertIn(self.flooded(send), (h2.CALM, h2.PROTOCOL_ERROR, None))

    def test_r26_continuations(self):
        def send(peer, i):
            kind = h2.CONTINUATION if i else h2.HEADERS
            peer.send(h2.frame(kind, 0, 1, h2.block([("k", "v")])))
        self.assertEqual(self.flooded(send), h2.CALM)

    def test_r26_frames_that_only_make_work(self):
        zero = struct.pack(">I", 1)
        for payload in (h2.frame(h2.PING, 0, 0, bytes(8)), h2.frame(h2.SETTINGS),
                        h2.frame(h2.PRIORITY, 0, 9, bytes(5)), h2.frame(h2.WINDOW, 0, 0, zero),
                        h2.frame(200, 0, 0)):
            def send(peer, _, payload=payload):
                peer.send(payload * 100)
            self.assertIn(self.flooded(send), (h2.CALM, h2.FLOW_CONTROL), payload)

    def test_r26_empty_data(self):
        def send(peer, i):
            if i == 0:
                peer.call(end=False)
            peer.send(h2.frame(h2.DATA, 0, 1) * 100)
        self.assertEqual(self.flooded(send), h2.CALM)

    def test_a_window_of_nothing_keeps_no_memory_for_ever(self):
        n = 1 << 18
        peer = self.peer(settings=struct.pack(">HI", 4, 0))
        stream = peer.call(body=infer_body("wide", bytes(4 * n), (1, n)))
        begin = time.monotonic()
        while peer.read() is not None:
            pass
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(stream, 1)
        self.still_serving()

    def test_a_window_that_overflows(self):
        peer = self.peer()
        peer.send(h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", 0x7fffffff)))
        self.assertEqual(peer.goaway(), h2.FLOW_CONTROL)
        self.still_serving()

    def test_another_protocol(self):
        for preface in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(100)):
            peer = h2.Peer(self.address, preface=preface)
            while peer.read() is not None:
                pass
            peer.close()
        self.still_serving()

    # --- time ---

    def test_half_a_preface_half_a_head_and_half_a_block_end(self):
        peers = []
        host, port = self.address.rsplit(":", 1)
        for begin in (h2.PREFACE[:10], h2.PREFACE + h2.frame(h2.SETTINGS) + b"\0\0",
                      h2.PREFACE + h2.frame(h2.SETTINGS) +
                      h2.frame(h2.HEADERS, 0, 1, h2.block([(":method", "POST")]))):
            raw = socket.create_connection((host, int(port)), timeout=harness.PATIENCE)
            raw.sendall(begin)
            peers.append(raw)
        for raw in peers:
            while raw.recv(1 << 16):
                pass
            raw.close()
        self.still_serving()

    def test_a_message_that_stalls_ends_its_call_alone(self):
        peer = self.peer()
        body = infer_body()
        slow = peer.call(body=body[:20], end=False)
        self.still_serving(peer)
        got = peer.ends_stream(slow)
        self.assertEqual(got[2], slow)
        self.still_serving(peer)

    def test_r21_messages_that_stall_side_by_side_end_together(self):
        peer = self.peer()
        body = infer_body()
        stalled = {peer.call(body=body[:20], end=False) for _ in range(12)}
        ends = []
        while stalled:
            kind, flags, stream, _ = peer.read()
            if stream in stalled and (kind == h2.RESET or flags & h2.END_STREAM):
                stalled.remove(stream)
                ends.append(time.monotonic())
        self.assertLess(ends[-1] - ends[0], 10)  # one after the other: 11 times two seconds
        self.still_serving(peer)

    def test_r21_a_call_that_does_not_end_keeps_no_memory(self):
        peer = self.peer()
        body = infer_body("wide", bytes(1 << 20), (1, 1 << 18))
        for message in (infer_body(), body):  # which lies in what was read, or in memory of its own
            stream = peer.call(end=False)
            peer.pour(stream, message, end=False)
            got = next((f for f in peer.frames if f[2] == stream and f[0] == h2.HEADERS), None)
            self.assertEqual((got or peer.ends_stream(stream))[0], h2.HEADERS)
        with self.server.client() as client:
            harness.until(lambda: wire.one(client.call(wire.STATUS).body, 8, 0) == 0)
        self.still_serving(peer)

    def test_r21_half_a_head_now_and_then_gives_a_message_no_more_time(self):
        peer = self.peer()
        slow = peer.call(body=infer_body()[:20], end=False)
        ping = h2.frame(h2.PING, 0, 0, b"12345678")
        ended = []

        def pong(kind, flags, stream, _):
            ended.extend([kind] * (stream == slow))
            return kind == h2.PING and flags & h2.ACK
        for _ in range(60):
            if ended:
                break
            peer.send(ping[:5])
            time.sleep(0.3)
            peer.send(ping[5:])
            time.sleep(0.3)
            self.assertIsNotNone(peer.until(pong))
        self.assertTrue(ended)

    def test_small_calls_are_answered_while_large_messages_stall(self):
        n = 1 << 18
        data = bytes(range(256)) * (4 * n // 256)
        body, half = infer_body("wide", data, (1, n)), 2 * n
        peers = [self.peer() for _ in range(3)]
        for _ in range(8):  # they pour in side by side, and stop where nobody expects it
            calls = [(peer, peer.call(body=body[:half], end=False)) for peer in peers]
            for peer, _ in calls:
                self.still_serving(peer)
            for peer, stream in calls:
                peer.send(h2.frame(h2.DATA, h2.END_STREAM, stream, body[half:]))
            for peer, stream in calls:
                self.assertTrue(data in self.read_whole(peer, stream))

    def test_r21_a_call_that_takes_one_message_waits_for_it_for_a_time_only(self):
        peer = self.peer()
        streams = peer.call(h2.STREAM, end=False)
        before = self.counter("timeouts_frame")
        for path in (h2.INFER, "/grpc.health.v1.Health/Watch"):
            self.assertEqual(peer.ends_stream(peer.call(path, end=False))[0], h2.HEADERS)
        self.assertGreaterEqual(self.counter("timeouts_frame"), before + 2)
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, streams, infer_body()))
        self.answered(peer, streams)

    def test_a_stream_may_wait_for_its_messages(self):
        peer = self.peer()
        stream = peer.call(h2.STREAM, end=False)
        time.sleep(3)
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, stream, infer_body() * 3))
        data = b""
        while (got := peer.read())[0] != h2.HEADERS or not got[1] & h2.END_STREAM:
            data += got[3] if got[0] == h2.DATA else b""
        self.assertEqual(data.count(X4), 3)


class Slow(unittest.TestCase):
    def test_r21_a_slow_message_ends_alone(self):
        """However much comes in other calls of its connection."""
        refused = infer_body("copy", bytes(1 << 20))  # for a reply that fits into any window
        with harness.Server({"copy": harness.plan("copy")},
                            {"limits": {"frame_timeout_ms": 600_000}},
                            arguments=["--grpc", "127.0.0.1:0"]) as server:
            address = re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)
            with h2.Peer(address) as peer, server.client() as client:
                slow = peer.call(end=False)
                peer.pour(slow, refused[:80_000], end=False)
                end = time.monotonic() + harness.PATIENCE
                while not client.counters()["slow_senders"] and time.monotonic() < end:
                    peer.pour(peer.call(end=False), refused)
                got = next((f for f in peer.frames if f[2] == slow and f[0] != h2.WINDOW), None)
                self.assertEqual((got or peer.ends_stream(slow))[0], h2.HEADERS)
                self.assertTrue(peer.alive())


class OpenCalls(unittest.TestCase):
    """Streams may wait for their messages, but what they take is counted and has a limit."""
    LIMITS = {"inflight_bytes": 4 << 20, "connection_inflight_bytes": 2 << 20,
              "frame_bytes": 1 << 20, "output_bytes": 1 << 20}

    def held(self, client):
        return wire.one(client.call(wire.STATUS).body, 8, 0)

    def test_r1_open_calls_have_a_share_of_the_budget(self):
        with harness.Server({"copy": harness.plan("copy")}, {"limits": self.LIMITS},
                            arguments=["--grpc", "127.0.0.1:0"]) as server:
            address = re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)
            few, *peers = [h2.Peer(address) for _ in range(16)]
            for peer in [few, *peers]:
                self.addCleanup(peer.close)
            with server.client() as client:
                for _ in range(15):
                    few.call(h2.STREAM, end=False)
                self.assertTrue(few.alive())
                self.assertEqual(self.held(client), 0)  # so few are the connection's
                for peer in peers:
                    for _ in range(100):
                        peer.call(h2.STREAM, end=False)
                    self.assertTrue(peer.alive())
                self.assertGreater(self.held(client), 300_000)
                self.assertLessEqual(self.held(client), (4 << 20) // 8)
                self.assertGreater(client.counters()["rejected_memory"], 0)
                while sum(k == h2.HEADERS and f & h2.END_STREAM for k, f, _, _ in peer.frames) < 50:
                    self.assertIsNotNone(peer.read())  # the last one's calls are refused
                # who has few of them hears nothing of that
                stream = few.call(body=infer_body())
                few.until(lambda k, f, s, p: s == stream and k == h2.DATA and X4 in p)
                with h2.Peer(address) as other:
                    stream = other.call(body=infer_body())
                    other.until(lambda k, f, s, p: s == stream and k == h2.DATA and X4 in p)
                for peer in [few, *peers]:
                    peer.close()
                harness.until(lambda: self.held(client) == 0)

    def test_r1_texts_of_calls_count_where_they_are_kept(self):
        """Without identities and traces nobody needs them."""
        done = subprocess.run([harness.INFERCTL, "token", "team"], capture_output=True, text=True,
                              check=True, timeout=harness.PATIENCE)
        token, line = done.stdout.splitlines()
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(line + "\n")
            file.flush()
            kept = {"tokens": file.name,
                    "identities": [{"name": "team", "models": ["*"],
                                     "rights": ["infer", "status"]}]}
            held = [self.held_by_calls(config, token) for config in ({}, kept)]
        self.assertGreater(held[1], held[0] + 80 * 1000)
        self.assertLess(held[1], held[0] + 120 * 1000)  # the token alone

    def held_by_calls(self, config, token):
        texts = [("authorization", "Bearer " + "t" * 1000), ("traceparent", "p" * 100)]
        with harness.Server({"copy": harness.plan("copy")}, config,
                            arguments=["--grpc", "127.0.0.1:0"]) as server:
            address = re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)
            with h2.Peer(address) as peer, server.client() as client:
                known = peer.call(body=infer_body(), headers=[("authorization", "Bearer " + token)])
                peer.until(lambda k, f, s, p: s == known and k == h2.DATA and X4 in p)
                for _ in range(100):
                    peer.call(h2.STREAM, end=False, headers=texts)
                self.assertTrue(peer.alive())
                return wire.one(client.call(wire.STATUS, token=token).body, 8, 0)


@unittest.skipUnless(shutil.which("h2load"), "h2load (Debian: nghttp2-client) is not here")
class Load(unittest.TestCase):
    def test_h2load_has_every_call_answered(self):
        with harness.Server({"copy": harness.plan("copy")},
                            arguments=["--grpc", "127.0.0.1:0"]) as server:
            address = re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)
            body = server.folder / "body"
            body.write_bytes(infer_body())
            done = subprocess.run(
                ["h2load", "-n", "4000", "-c", "4", "-m", "32", "-d", body, "-H",
                 "content-type: application/grpc", "-H", "te: trailers",
                 f"http://{address}{h2.INFER}"],
                capture_output=True, text=True, timeout=harness.PATIENCE, check=True)
            self.assertIn("4000 succeeded, 0 failed, 0 errored, 0 timeout", done.stdout)
            self.assertIn("status codes: 4000 2xx", done.stdout)
            with server.client() as client:
                model = wire.decode(client.call(wire.STATUS).body[10][0])
                self.assertEqual(wire.one(model, 9), 4000)


class Drain(unittest.TestCase):
    def goodbye(self, answers_pings):
        """Ends a server with a stream open; returns the GOAWAYs and how long they took."""
        with harness.Server({"copy": harness.plan("copy")},
                            arguments=["--grpc", "127.0.0.1:0"]) as server:
            address = re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)
            peer = h2.Peer(address)
            stream = peer.call(h2.STREAM, infer_body(), end=False)
            peer.until(lambda k, f, s, p: k == h2.DATA and X4 in p)
            begin = time.monotonic()
            server.signal(15)
            while (got := peer.read()) is not None:
                kind, flags, number, payload = got
                if kind == h2.PING and not flags & h2.ACK:
                    late = peer.call(body=infer_body())
                    refused = peer.ends_stream(late)
                    self.assertEqual((refused[0], refused[3]),
                                     (h2.RESET, struct.pack(">I", h2.REFUSED)))
                    if answers_pings:
                        peer.send(h2.frame(h2.PING, h2.ACK, 0, payload))
                if kind == h2.HEADERS and flags & h2.END_STREAM:
                    self.assertEqual(number, stream)
                    self.assertIn(b"14", payload)  # UNAVAILABLE
            seconds = time.monotonic() - begin
            said = [struct.unpack(">II", p[:8]) for k, _, _, p in peer.frames if k == h2.GOAWAY]
            self.assertEqual(server.wait(), 0)
            peer.close()
        return said, seconds

    def test_a_goodbye_in_two_steps(self):
        said, _ = self.goodbye(answers_pings=True)
        self.assertEqual(said, [(0x7fffffff, h2.NO_ERROR), (3, h2.NO_ERROR)])

    def test_a_peer_that_does_not_listen_is_waited_for_a_moment(self):
        said, seconds = self.goodbye(answers_pings=False)
        self.assertEqual(said, [(0x7fffffff, h2.NO_ERROR), (3, h2.NO_ERROR)])
        self.assertGreater(seconds, 0.4)
        self.assertLess(seconds, 10)


if __name__ == "__main__":
    harness.main()
