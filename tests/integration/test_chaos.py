#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything at once for a few seconds: all kinds of peers, faults, tight limits, reloads. Each
request of a peer that stays is answered exactly once, answers have the right values, and nothing is
left over.

    test_chaos.py INFERD INFERCTL
"""
import random
import signal
import socket
import struct
import threading
import time
import unittest

import harness
import wire
from wire import message

SECONDS = 5
MAY_COME = {wire.OK, wire.CANCELLED, wire.DEADLINE_EXCEEDED, wire.RESOURCE_EXHAUSTED,
            wire.INTERNAL, wire.INVALID_ARGUMENT}


class Peer:
    """One connection that sends for a while and, if it stays, waits for all answers."""

    def __init__(self, server, rng):
        self.client, self.rng = server.client(), rng
        self.sent = {}

    def infer(self):
        if self.rng.random() < 0.1:
            model, width = "wide", 1 << 18
        else:
            model, width = "copy", 4
        n = self.rng.randrange(1, 4)
        data = struct.pack("<f", self.rng.random()) * (width * n)
        body = wire.infer_body(model, [("x", "FP32", [n, width], data)])
        if self.rng.random() < 0.1:
            body = wire.infer_body(model, [("x", "INT32", [n, width], data)])
            data = None
        timeout = self.rng.choice([0, 0, 0, 200, 3000])
        self.sent[self.client.start(wire.INFER, body, timeout_us=timeout,
                                    priority=self.rng.randrange(4))] = data

    def other(self):
        kind = self.rng.choice([wire.STATUS, wire.STATISTICS, wire.INDEX, wire.READY, wire.CANCEL])
        body = b""
        if kind == wire.CANCEL and self.client.next_id:
            body = message((1, self.rng.randrange(1, self.client.next_id + 1)))
        self.sent[self.client.start(kind, body)] = None

    def garbage(self):
        self.client.send(wire.frame(b"\xff" * self.rng.randrange(1, 100)))

    def receive(self):
        reply = self.client.receive()
        if reply.id == 0:
            return
        data = self.sent.pop(reply.id)  # a second answer has no entry
        assert reply.status in MAY_COME, (reply.status, reply.message)
        if reply.status == wire.OK and data is not None:
            assert reply.outputs()["y"][2] == data

    def run(self):
        stays = self.rng.random() < 0.6
        for _ in range(self.rng.randrange(1, 30)):
            self.rng.choices([self.infer, self.other, self.garbage], [10, 2, 0.5])[0]()
            if self.rng.random() < 0.5 and self.sent:
                self.receive()
        if stays:
            if self.rng.random() < 0.3:
                self.client.socket.shutdown(socket.SHUT_WR)
            while self.sent:
                self.receive()
        elif self.rng.random() < 0.5:
            self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                          struct.pack("ii", 1, 0))
        self.client.close()


class Chaos(unittest.TestCase):
    def run_with(self, seed, script, **config):
        limits = {"inflight_bytes": 24 << 20, "connection_inflight_bytes": 6 << 20,
                  "frame_bytes": 4 << 20, "connection_requests": 12, "queue_requests": 40}
        plans = {"copy": harness.plan("copy"), "wide": harness.plan("wide")}
        settings = dict(config, device="fault", workers=2, io_threads=3, limits=limits)
        with harness.Server(plans, settings, env={"INFERD_FAULT_SCRIPT": script}) as s:
            stop, served = threading.Event(), [0] * 8

            def peers(k):
                rng = random.Random(seed * 100 + k)
                while not stop.is_set():
                    Peer(s, rng).run()
                    served[k] += 1

            def reloads():
                while not stop.wait(0.4):
                    s.signal(signal.SIGHUP)

            threads = [harness.Background(peers, k) for k in range(8)] + [
                harness.Background(reloads)]
            stop.wait(SECONDS)
            stop.set()
            for t in threads:
                t.finish()
            self.assertGreater(sum(served), 20)
            with s.client() as client:
                def left():
                    body = client.call(wire.STATUS).body
                    return [wire.one(body, tag, 0) for tag in (7, 8, 9)]

                harness.until(lambda: left() == [1, 0, 0])
                self.assertGreater(client.counters()["requests_ok"], 0)

    def test_requests_that_wait_for_others_to_join_their_batch(self):
        self.run_with(1, "on=cpu;launch:delay=1ms", max_delay_us=500)

    def test_failing_batches(self):
        self.run_with(2, "on=cpu;launch#7:fail;launch#30:oom;launch#50:model;launch#90:fail")


if __name__ == "__main__":
    harness.main()
