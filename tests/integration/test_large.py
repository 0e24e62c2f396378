#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Large messages that come at once take turns (limits.large_inflight_bytes), on every door.

    test_large.py INFERD INFERCTL
"""
import contextlib
import functools
import http.client
import json
import socket
import struct
import time
import unittest

import harness
import h2wire as h2
import wire
from wire import message

WIDTH = 6 << 20  # floats, so that a message is larger than a window of HTTP/2
SHAPE = b"".join(map(wire.varint, (1, WIDTH)))
LARGE = WIDTH * 4
WINDOW = 16 << 20
X4 = struct.pack("<4f", 1, 2, 3, 4)
STILL, MOST = 1, 3  # seconds, of daemon/turns.h
SLACK = 15 if harness.sanitized() else 3


@functools.lru_cache
def data(i):
    """What client i sends, unlike that of any other."""
    return struct.pack("<II", i, ~i & 0xFFFFFFFF) * (LARGE // 8)


@functools.lru_cache
def grpc_body(i):
    given = message((1, "x"), (2, "FP32"), (3, SHAPE))
    return h2.message(message((1, "large"), (5, given), (7, data(i))))


@functools.lru_cache
def framed_body(i):
    return wire.request(1, wire.INFER,
                        wire.infer_body("large", [("x", "FP32", [1, WIDTH], data(i))]))


class Large(harness.Served):
    @classmethod
    def setUpClass(cls):
        harness.MODELS["large"] = lambda: harness.copy_model(WIDTH)
        cls.server = harness.Server(
            {"copy": harness.plan("copy"), "large": harness.plan("large", "1")},
            {"limits": {"large_inflight_bytes": LARGE + (1 << 20), "receive_rate": 0}},
            arguments=["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"])

    def waited(self):
        with self.server.client() as client:
            return client.counters().get("large_waited", 0)

    def framed(self, i):
        with self.server.client(timeout=60) as client:
            reply = client.infer("large", [("x", "FP32", [1, WIDTH], data(i))])
            self.assertEqual(reply.status, wire.OK, reply.message)
            self.assertTrue(reply.outputs()["y"][2] == data(i))

    def http(self, i):
        text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, WIDTH],
                                       "parameters": {"binary_data_size": LARGE}}],
                           "parameters": {"binary_data_output": True}}).encode()
        host, port = self.server.door("http").rsplit(":", 1)
        client = http.client.HTTPConnection(host, int(port), timeout=60)
        client.request("POST", "/v2/models/large/infer", text + data(i),
                       {"Inference-Header-Content-Length": str(len(text))})
        answer = client.getresponse()
        got = answer.read()
        client.close()
        self.assertEqual(answer.status, 200, got[:300])
        self.assertTrue(got.endswith(data(i)))

    def peer(self):
        wide = struct.pack(">HI", 4, 1 << 30)
        peer = h2.Peer(self.server.door("grpc"), settings=wide)
        self.addCleanup(peer.close)
        peer.socket.settimeout(60)
        peer.send(h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", 1 << 30)))
        while peer.window(0) < WINDOW:
            peer.read()
        return peer

    def answered(self, peer, stream, i):
        got = bytearray()
        while True:
            kind, flags, s, payload = peer.read()
            if s == stream and kind == h2.DATA:
                got += payload
            if s == stream and (kind == h2.RESET or flags & h2.END_STREAM and
                                kind in (h2.HEADERS, h2.DATA)):
                break
        self.assertTrue(got.endswith(data(i)), (len(got), bytes(got[:300])))

    def grpc(self, i):
        peer = self.peer()
        stream = peer.call(end=False)
        peer.pour(stream, grpc_body(i))
        self.answered(peer, stream, i)

    def test_all_are_answered_with_their_own(self):
        before = self.waited()
        doors = (self.framed, self.http, self.grpc)
        harness.together(6, lambda i: doors[i % 3](i))
        self.assertGreater(self.waited(), before)

    def stalled(self):
        """A peer that has sent half of a large message, and sends no more; with what is missing."""
        raw = framed_body(99)
        client = self.server.client(timeout=60)
        self.addCleanup(client.close)
        before = self.held()
        client.send(raw[:LARGE // 2])
        harness.until(lambda: self.held() > before)
        return client, raw[LARGE // 2:]

    def behind_a_stalled(self, send, stall=None):
        """Sends a message that has to wait for one that stands still, which is given back. On a
        machine that is busy `send` may come more than STILL behind it, and then need not wait:
        that is tried again."""
        for _ in range(8):
            before, begin = self.waited(), time.monotonic()
            first = (stall or self.stalled)()
            send()
            while self.waited() == before and time.monotonic() - begin < STILL + 1:
                time.sleep(0.01)
            if self.waited() > before:
                return first
        raise AssertionError("nobody waited")

    def half_sent(self, peer, i=3):
        """Half of a large message of a new call: its stream."""
        stream = peer.call(end=False)
        peer.pour(stream, grpc_body(i)[:WINDOW // 2], end=False)
        return stream

    def half_sender(self):
        """A peer that has sent half of a large message."""
        peer = self.peer()
        self.half_sent(peer)
        return peer

    def held(self):
        """Bytes that messages take."""
        with self.server.client() as client:
            return wire.one(client.call(wire.STATUS).body, 8, 0)

    def nobody_waits(self):
        before = self.waited()
        for door in (self.framed, self.http, self.grpc):
            door(1)
        self.assertEqual(self.waited(), before)

    def test_one_that_stands_still_is_waited_for_once(self):
        def framed():
            begin, before = time.monotonic(), self.waited()
            self.framed(1)
            self.assertLess(time.monotonic() - begin, STILL + SLACK)
            counts.append(self.waited() - before)
        counts = []
        client, rest = self.behind_a_stalled(framed)
        self.assertEqual(counts[-1], 1)
        self.nobody_waits()
        client.send(rest)
        reply = client.receive()
        self.assertEqual(reply.status, wire.OK, reply.message)
        self.assertTrue(reply.outputs()["y"][2] == data(99))

    def test_small_calls_of_its_connection_go_on_while_one_waits(self):
        body = grpc_body(7)
        given = message((1, "x"), (2, "FP32"), (3, wire.varint(1) + wire.varint(4)))
        small = h2.message(message((1, "copy"), (5, given), (7, X4)))

        def send():
            peers.append(self.peer())
            streams.append(peers[-1].call(end=False))
            peers[-1].pour(streams[-1], body[:WINDOW], end=False)
        for _ in range(8):
            peers, streams = [], []
            self.behind_a_stalled(send)
            peer, stream, begin = peers[-1], streams[-1], time.monotonic()
            number = peer.call(body=small)
            got = peer.until(lambda k, f, s, p: k == h2.DATA or (k, s) == (h2.WINDOW, stream))
            took = time.monotonic() - begin
            if got[0] == h2.DATA and took < STILL:  # and no leave to send more
                break
        self.assertEqual(got[:1] + got[2:3], (h2.DATA, number))
        self.assertIn(X4, got[3])
        self.assertLess(took, STILL)
        peer.pour(stream, body[WINDOW:])
        self.answered(peer, stream, 7)

    def test_who_leaves_while_it_waits_is_forgotten(self):
        peers = []
        for door in self.half_sender, lambda: self.stalled()[0]:
            self.behind_a_stalled(lambda: peers.append(door()))
        for peer in peers:
            peer.close()
        self.framed(5)

    # --- what strangers do ---

    def test_many_that_announce_and_do_not_send(self):
        many = 12
        for i in range(many):
            if i % 2:
                self.stalled()
            else:
                self.half_sender()
        time.sleep(MOST + STILL + 0.5)
        self.nobody_waits()
        self.assertLess(self.held(), many * (LARGE + (1 << 20)))

    def reset(self, client):
        """Ends the connection at once, and throws away what has not gone."""
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()

    def test_connections_that_are_reset_leave_nothing(self):
        for _ in range(8):
            peers = []
            self.behind_a_stalled(lambda: peers.append(self.half_sender()),
                                  lambda: peers.append(self.stalled()[0]))
            for peer in peers:
                self.reset(peer)
            harness.until(lambda: self.held() == 0)
        self.nobody_waits()

    def test_calls_that_are_reset_leave_nothing(self):
        """One that comes, and one that waits for it; then so often that the peer is sent away."""
        peer, streams = self.peer(), []

        def half():
            streams.append(self.half_sent(peer))
        for _ in range(3):
            streams.clear()
            self.behind_a_stalled(half, half)
            for stream in streams:
                peer.send(h2.frame(h2.RESET, 0, stream, struct.pack(">I", h2.CANCEL)))
            harness.until(lambda: self.held() == 0)
        stream = peer.call(end=False)
        peer.pour(stream, grpc_body(4))
        self.answered(peer, stream, 4)
        self.nobody_waits()
        with contextlib.suppress(OSError):
            for _ in range(2000):
                stream, call = peer.call(end=False, send=False)
                peer.send(call + h2.frame(h2.RESET, 0, stream, struct.pack(">I", h2.CANCEL)))
        self.assertEqual(peer.goaway(), h2.CALM)
        self.nobody_waits()

    def test_replies_that_nobody_reads_are_waited_for_once(self):
        before = self.served()
        unread = h2.Peer(self.server.door("grpc"), settings=struct.pack(">HI", 4, 0))
        self.addCleanup(unread.close)
        unread.pour(unread.call(end=False), grpc_body(3))
        client = self.server.client(timeout=60)
        self.addCleanup(client.close)
        client.send(wire.request(1, wire.INFER, wire.infer_body(
            "large", [("x", "FP32", [1, WIDTH], data(9))])))
        harness.until(lambda: self.served() == before + 2, 60)
        time.sleep(STILL + 1.5)  # a loop in which nobody waits looks once a second
        self.assertGreater(self.held(), LARGE)
        self.nobody_waits()

    def served(self):
        with self.server.client() as client:
            return client.counters().get("requests_ok", 0)

    def tearDown(self):
        """Nothing is left of what was on its way."""
        self.doCleanups()
        harness.until(lambda: self.held() == 0)


if __name__ == "__main__":
    harness.main()
