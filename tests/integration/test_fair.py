#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections that flood a model, beside a connection that asks now and then: turns, places in the
queue, priorities.

    test_fair.py INFERD INFERCTL
"""
import contextlib
import http.client
import json
import socket
import struct
import time
import unittest

import harness
import wire

DELAY = 0.05  # of a batch
FULL = 8      # instances
ROWS, COLUMNS = 8, 1 << 18  # of "wide"


def copy_body(instances=1):
    return wire.infer_body("copy", [("x", "FP32", [instances, 4],
                                     struct.pack(f"<{4 * instances}f", *range(4 * instances)))])


def slow(**config):
    return harness.Server({"copy": harness.plan("copy"), "other": harness.plan("copy")},
                          dict(config, device="fault", workers=1),
                          env={"INFERD_FAULT_SCRIPT": f"on=cpu;launch:delay={DELAY * 1000:.0f}ms"})


class Flood:
    """A connection that keeps `depth` requests in flight, whatever the answers are."""

    def __init__(self, server, depth=64, instances=FULL, **options):
        self.client, self.body, self.options = server.client(), copy_body(instances), options
        self.replies, self.ended = [], False
        for _ in range(depth):
            self.client.start(wire.INFER, self.body, **options)
        self.thread = harness.Background(self.run)

    def run(self):
        try:
            while True:
                self.replies.append(self.client.receive().status)
                if self.replies[-1] != wire.OK:
                    time.sleep(0.001)
                self.client.start(wire.INFER, self.body, **self.options)
        except (EOFError, OSError):
            if not self.ended:
                raise

    def end(self):
        self.ended = True
        self.client.socket.shutdown(socket.SHUT_RDWR)  # what is left is dropped
        self.thread.finish()
        self.client.socket.close()


class Fair(unittest.TestCase):
    def latency(self, server, count=9, body=None, **options):
        """The median latency of requests sent one after the other, in units of a batch's time: a
        moment in which the machine does other work makes one request late, and unfairness most."""
        times = []
        with server.client() as client:
            for _ in range(count):
                begin = time.monotonic()
                self.assertEqual(client.call(wire.INFER, body or copy_body(), **options).status,
                                 wire.OK)
                times.append((time.monotonic() - begin) / DELAY)
        return sorted(times)[(count - 1) // 2]

    @contextlib.contextmanager
    def flooded(self, s, n=1, **options):
        with contextlib.ExitStack() as stack:
            floods = [Flood(s, **options) for _ in range(n)]
            for flood in floods:
                stack.callback(flood.end)
            with s.client() as probe:  # a full batch runs, and the queue is long
                harness.until(lambda: wire.one(probe.call(wire.STATUS).body, 9, 0) >= 30)
            yield floods

    def test_r18_a_flood_delays_others_by_a_few_batches(self):
        with slow() as s, self.flooded(s) as floods:
            # the running batch, one of the flood, its own
            self.assertLess(self.latency(s), 8)
            self.assertGreater(len(floods[0].replies), 10)

    def test_r18_several_floods_take_a_batch_each(self):
        with slow() as s, self.flooded(s, n=4):
            self.assertLess(self.latency(s), 12)

    def test_r18_a_full_queue_has_a_place_for_others(self):
        with slow(limits={"queue_requests": 32}) as s, self.flooded(s, n=2) as floods:
            self.assertLess(self.latency(s), 10)
            with s.client() as client:
                self.assertGreater(client.counters()["rejected_queue"], 0)
            self.assertIn(wire.RESOURCE_EXHAUSTED, sum((f.replies for f in floods), []))

    def test_r18_a_better_priority_starves_nobody(self):
        with slow(limits={"queue_requests": 32}) as s, self.flooded(s, n=2, priority=0):
            # one batch of 16 is led by a lower one
            self.assertLess(self.latency(s, count=2, priority=3), 24)

    def test_r18_a_deadline_behind_a_flood_is_no_reason_to_refuse(self):
        with slow() as s:
            self.latency(s, count=8)  # teaches the server what a batch takes
            with self.flooded(s):
                self.latency(s, timeout_us=int(12 * DELAY * 1e6))

    def test_r18_a_flood_of_one_model_does_not_close_the_other(self):
        with slow() as s, self.flooded(s):
            body = wire.infer_body("other", [("x", "FP32", [1, 4], struct.pack("<4f", *range(4)))])
            self.assertLess(self.latency(s, body=body), 8)

    def classes(self, server, body, classes):
        """Asks for the best of the values in `body`; returns how long the answer took."""
        head = json.dumps({
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [ROWS, COLUMNS],
                        "parameters": {"binary_data_size": len(body)}}],
            "outputs": [{"name": "y", "parameters": {"classification": classes}}]}).encode()
        connection = http.client.HTTPConnection(server.door("http"), timeout=harness.PATIENCE)
        begin = time.monotonic()
        connection.request("POST", "/v2/models/wide/infer", head + body,
                           {"Inference-Header-Content-Length": str(len(head))})
        best = json.loads(connection.getresponse().read())["outputs"][0]
        taken = time.monotonic() - begin
        connection.close()
        self.assertEqual(best["shape"], [ROWS, classes])
        self.assertEqual(best["data"][0], f"{COLUMNS - 1}.000000:{COLUMNS - 1}")
        return taken

    def longest_wait_beside(self, server, *arguments):
        """The longest wait of a client that asks one thing after the other meanwhile."""
        ask, longest = harness.Background(self.classes, server, *arguments), 0
        with server.client() as client:
            while ask.is_alive():
                begin = time.monotonic()
                self.assertEqual(client.call(wire.LIVE).status, wire.OK)
                longest = max(longest, time.monotonic() - begin)
        ask.finish()
        return longest

    def test_r18_classes_of_a_large_output_hold_up_nobody(self):
        # values that rise cost the most: each is among the best for a while
        body = struct.pack(f"<{COLUMNS}f", *range(COLUMNS)) * ROWS
        doors = {"framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"]}
        with harness.Server({"wide": harness.plan("wide")}, {"listen": doors}) as s:
            self.classes(s, body, 1)
            cost = self.classes(s, body, 1024) - self.classes(s, body, 1)
            # one time of several: that the machine does other work for a moment is no unfairness
            waits = [self.longest_wait_beside(s, body, 1024) for _ in range(7)]
            self.assertLess(min(waits), cost / 3)


if __name__ == "__main__":
    harness.main()
