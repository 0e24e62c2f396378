#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device that misbehaves (delays, failures, hangs, loss), and how batches form meanwhile.

    test_faults.py INFERD INFERCTL
"""
import signal
import struct
import time
import unittest

import harness
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)


def copy_body():
    return wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])


def rows_body(number):
    return wire.infer_body("rows", [("n", "INT64", [1, 1], struct.pack("<q", number))])


def faulty(script, **config):
    return harness.Server({"copy": harness.plan("copy")}, dict(config, device="fault"),
                          env=dict(harness.FORCED_END, INFERD_FAULT_SCRIPT="on=cpu;" + script))


class Faults(unittest.TestCase):
    def test_r28_a_failed_batch_fails_its_requests_alone(self):
        for action, status in (("fail", wire.INTERNAL), ("fail=unavailable", wire.UNAVAILABLE),
                               ("model", wire.INTERNAL), ("oom", wire.RESOURCE_EXHAUSTED)):
            with faulty(f"launch#2:{action}") as s, s.client() as c:
                statuses = [c.call(wire.INFER, copy_body()).status for _ in range(4)]
                self.assertEqual(statuses, [wire.OK, status, wire.OK, wire.OK], action)
                self.assertEqual(c.call(wire.READY).body, {1: [1]})
                self.assertEqual(c.counters()["failed_in_run"], 1)

    # --- batches that fail for one of their requests ---

    def test_r28_an_index_out_of_range_fails_its_request_alone(self):
        numbers = [0, 3, 9, 1, -1, 2, -7, 3]
        with harness.Server({"rows": harness.plan("rows")}, {"device": "fault"},
                            env={"INFERD_FAULT_SCRIPT": "on=cpu;launch#1:delay=500ms"}) as s:
            with s.client() as c:
                alone = c.start(wire.INFER, rows_body(1))
                harness.until_in_flight(s, running=1)
                sent = {c.start(wire.INFER, rows_body(n)): n for n in numbers}
                replies = [c.receive() for _ in range(9)]  # of two batches in any order
                self.assertEqual({r.id for r in replies}, {alone, *sent})
                for r in replies:
                    if r.id == alone:
                        continue
                    n = sent[r.id]
                    if -4 <= n < 4:
                        row = struct.pack("<2f", 2 * (n % 4), 2 * (n % 4) + 1)
                        self.assertEqual((r.status, r.outputs()["y"][2]), (wire.OK, row))
                    else:
                        self.assertEqual(r.status, wire.INVALID_ARGUMENT)
                        self.assertIn(f"index {n} is out of range", r.message)
                counters = c.counters()
                self.assertEqual((counters["batches_split"], counters["failed_in_run"]), (1, 2))

    def test_r28_what_a_batch_of_eight_makes_of_a_fault(self):
        # a failure that does not recur costs no request its answer; a lasting one costs all
        for script, status, split in (("launch#2:fail", wire.OK, 1), ("launch#2:oom", wire.OK, 1),
                                      ("launch#2+:fail", wire.INTERNAL, 1),
                                      ("launch#2:model", wire.INTERNAL, 0)):
            with faulty("launch#1:delay=500ms;" + script) as s, s.client() as c:
                alone = c.start(wire.INFER, copy_body())
                harness.until_in_flight(s, running=1)
                for _ in range(8):
                    c.start(wire.INFER, copy_body())
                statuses = {r.id: r.status for r in [c.receive() for _ in range(9)]}
                self.assertEqual(statuses.pop(alone), wire.OK)
                self.assertEqual(list(statuses.values()), 8 * [status], script)
                self.assertEqual(c.counters()["batches_split"], split, script)
                self.assertEqual(c.call(wire.READY).body, {1: [1]})

    def test_r24_a_drain_waits_for_the_parts_of_a_batch(self):
        with faulty("launch:delay=800ms;launch#2:fail") as s, s.client() as c:
            c.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1)
            for _ in range(8):
                c.start(wire.INFER, copy_body())
            self.assertEqual(c.receive().status, wire.OK)
            time.sleep(1.0)  # the first half runs again
            s.signal(signal.SIGTERM)
            self.assertEqual({c.receive().status for _ in range(8)}, {wire.OK})
            self.assertEqual(s.wait(), 0)

    def test_short_outputs_are_no_answers(self):
        with faulty("apart;copy#2:short") as s, s.client() as c:
            replies = [c.call(wire.INFER, copy_body()) for _ in range(4)]
            for r in replies:
                self.assertTrue(r.status != wire.OK or r.outputs()["y"][2] == X4)
            self.assertEqual(sum(r.status != wire.OK for r in replies), 1)

    def test_r29_a_lost_device(self):
        with faulty("launch:delay=30ms;launch#3:device", workers=1, max_batch=1) as s:
            c = s.client()
            for _ in range(10):
                c.start(wire.INFER, copy_body())
            begin = time.monotonic()
            replies = [c.receive() for _ in range(10)]
            self.assertLess(time.monotonic() - begin, 15)
            statuses = [r.status for r in replies]
            self.assertEqual(statuses.count(wire.OK), 2)
            self.assertEqual(statuses.count(wire.UNAVAILABLE), 8)
            may = [r for r in replies if "may have been executed" in r.message]
            not_run = [r for r in replies if "not executed" in r.message]
            self.assertEqual((len(may), len(not_run)), (1, 7), [r.message for r in replies])
            self.assertTrue(all(r.retry_after_us for r in may + not_run))
            self.assertEqual(s.wait(), 1)
            self.assertLess(time.monotonic() - begin, 15)
            self.assertIn("device lost", s.log())
            c.close()
            s.stop(code=1)
            s.process.returncode = 0  # the exit code has been checked

    def test_r29_unready_within_a_second(self):
        # the first batch outlives the loss of the device and so keeps the process alive
        with faulty("launch#1:delay=700ms;launch#2:device", workers=2, max_batch=1) as s:
            c = s.client()
            c.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1)
            c.start(wire.INFER, copy_body())
            self.assertEqual(c.receive().status, wire.UNAVAILABLE)
            begin = time.monotonic()
            while c.call_ready():
                self.assertLess(time.monotonic() - begin, 1)
            self.assertEqual(s.wait(), 1)
            c.close()
            s.process.returncode = 0

    def test_a_hung_worker_that_comes_back(self):
        with faulty("launch#2:delay=3s", hang_timeout_ms=1800, workers=2) as s, s.client() as c:
            self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            hung = c.start(wire.INFER, copy_body())
            reply = c.receive()
            self.assertEqual((reply.id, reply.status), (hung, wire.UNAVAILABLE))
            self.assertIn("may have been executed", reply.message)
            self.assertEqual(c.call(wire.READY).body, {})
            # the other worker goes on
            self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            harness.until(lambda: c.call(wire.READY).body == {1: [1]} or s.process.poll())
            self.assertIsNone(s.process.poll())
            self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)

    def test_r30_a_worker_that_hangs_for_good_ends_the_process(self):
        with faulty("launch#2:hang", hang_timeout_ms=150) as s:
            c = s.client()
            self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            c.start(wire.INFER, copy_body())
            c.start(wire.INFER, copy_body())
            replies = [c.receive() for _ in range(2)]
            self.assertEqual({r.status for r in replies}, {wire.UNAVAILABLE})
            self.assertEqual(s.wait(), 1)
            self.assertIn("a worker still hangs", s.log())
            c.close()
            s.process.returncode = 0

    def test_r30_a_hang_of_a_device_of_its_own_is_its_loss(self):
        with faulty("apart;launch#2:hang", hang_timeout_ms=300) as s:
            c = s.client()
            self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            begin = time.monotonic()
            c.start(wire.INFER, copy_body())
            reply = c.receive()
            self.assertEqual(reply.status, wire.UNAVAILABLE)
            self.assertIn("may have been executed", reply.message)
            self.assertEqual(s.wait(), 1)
            self.assertGreater(time.monotonic() - begin, 0.29)
            self.assertIn("device lost: a batch hangs", s.log())
            c.close()
            s.process.returncode = 0

    # --- batching, as seen from outside ---

    def test_requests_gather_while_the_worker_is_busy(self):
        with faulty("launch#1:delay=1500ms") as s, s.client() as c:
            c.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1)
            for _ in range(8):
                c.start(wire.INFER, copy_body())
            batches = sorted(c.receive().batch for _ in range(9))
            self.assertEqual(batches, [1] + [8] * 8)

    def test_t_bounds_the_wait_for_other_requests(self):
        with faulty("launch:delay=1us", max_delay_us=2000000) as s, s.client() as c:
            begin = time.monotonic()
            self.assertEqual(c.call(wire.INFER, copy_body()).batch, 1)
            self.assertGreater(time.monotonic() - begin, 1.99)
            begin = time.monotonic()
            for _ in range(8):  # a full batch does not wait
                c.start(wire.INFER, copy_body())
            self.assertEqual({c.receive().batch for _ in range(8)}, {8})
            self.assertLess(time.monotonic() - begin, 1.99)
            first = c.start(wire.INFER, copy_body())
            time.sleep(0.8)
            c.start(wire.INFER, copy_body())
            begin = time.monotonic()
            self.assertEqual([c.receive().batch for _ in range(2)], [2, 2])
            self.assertLess(time.monotonic() - begin, 1.9)  # T counts from the first request
            self.assertTrue(first)

    def test_workers_run_at_the_same_time(self):
        with faulty("launch:delay=1s", workers=4, max_batch=1) as s, s.client() as c:
            begin = time.monotonic()
            for _ in range(4):
                c.start(wire.INFER, copy_body())
            self.assertEqual({c.receive().status for _ in range(4)}, {wire.OK})
            self.assertLess(time.monotonic() - begin, 2.9)

    def test_priorities(self):
        with faulty("launch#1:delay=1500ms;launch:delay=100ms", max_batch=1) as s, \
                s.client() as c:
            c.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1)
            low = [c.start(wire.INFER, copy_body(), priority=3) for _ in range(3)]
            high = [c.start(wire.INFER, copy_body(), priority=0) for _ in range(3)]
            order = [c.receive().id for _ in range(7)]
            self.assertEqual(order[1:], high + low)

    def test_a_slow_reader_does_not_stall_the_worker(self):
        plans = {"copy": harness.plan("copy"), "wide": harness.plan("wide")}
        with harness.Server(plans) as s, s.client() as slow, s.client() as c:
            body = wire.infer_body("wide", [("x", "FP32", [8, 1 << 18], bytes(8 << 20))])
            for _ in range(4):
                slow.start(wire.INFER, body)
            for _ in range(50):
                self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            for _ in range(4):
                self.assertEqual(slow.receive().status, wire.OK)

    def test_status_while_busy(self):
        with faulty("launch#1:delay=1500ms", max_batch=1) as s, s.client() as c:
            for _ in range(3):
                c.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1, queued=2)
            time.sleep(0.06)
            with s.client() as probe:
                body = probe.call(wire.STATUS).body
            self.assertEqual(wire.one(body, 6), 1)  # workers busy
            self.assertEqual(wire.one(body, 9), 3)  # requests in flight
            self.assertGreater(wire.one(body, 8), 0)  # bytes in flight
            model = wire.decode(body[10][0])
            self.assertEqual(wire.one(model, 7), 2)  # queued
            self.assertGreater(wire.one(model, 8), 50000)  # the oldest one's age, us
            for _ in range(3):
                c.receive()


def call_ready(self):
    """Returns False also when the process has ended."""
    try:
        return self.call(wire.READY).body == {1: [1]}
    except (EOFError, ConnectionResetError, BrokenPipeError):
        return False


wire.Client.call_ready = call_ready

if __name__ == "__main__":
    harness.main()
