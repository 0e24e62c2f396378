#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What peers can and cannot do to a server: broken streams, limits, overload, slow peers.

    test_limits.py INFERD INFERCTL
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import socket
import struct
import time
import unittest

import harness
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)
MIB = bytes(range(256)) * (1 << 12)  # one instance of `wide`


def copy_body(data=X4, instances=1):
    return wire.infer_body("copy", [("x", "FP32", [instances, 4], data)])


def wide_body(n=1):
    return wire.infer_body("wide", [("x", "FP32", [n, 1 << 18], MIB * n)])


def server(limits=None, models=("copy",), **config):
    return harness.Server({name: harness.plan(name) for name in models},
                          dict(config, limits=limits or {}))


def faulty(script, limits=None, model="copy", **config):
    """A server whose device follows the script. For these models, each batch is one launch."""
    return harness.Server({model: harness.plan(model)},
                          dict(config, device="fault", limits=limits or {}),
                          env={"INFERD_FAULT_SCRIPT": script})


class Streams(unittest.TestCase):
    def serves(self, s):
        with s.client() as client:
            self.assertEqual(client.call(wire.INFER, copy_body()).outputs()["y"][2], X4)

    def test_r1_oversized_frame(self):
        with server({"frame_bytes": 4096}) as s:
            with s.client() as client:
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
                client.send(struct.pack(">I", 4097))
                reply = client.receive()
                self.assertEqual((reply.id, reply.status), (0, wire.INVALID_ARGUMENT))
                self.assertIn("4097", reply.message)
                self.assertTrue(client.closed())
            with s.client() as client:
                client.send(b"\xff\xff\xff\xff")
                self.assertEqual(client.receive().id, 0)
                self.assertTrue(client.closed())
            with s.client() as client:  # the client sees the reason even while it sends more
                client.send(struct.pack(">I", 1 << 30) + bytes(1 << 20))
                self.assertIn("limit", client.receive().message)
            self.serves(s)
            with s.client() as client:
                self.assertEqual(client.counters()["frames_too_large"], 3)

    def test_r1_an_announced_length_costs_nothing(self):
        with server() as s:
            clients = [s.client() for _ in range(50)]
            for client in clients:
                client.send(struct.pack(">I", 60 << 20) + b"\x08\x01")
            self.serves(s)
            with s.client() as client:
                held = wire.one(client.call(wire.STATUS).body, 8, 0)
            self.assertLess(held, 50 * 8192)
            for client in clients:
                client.close()
            self.serves(s)

    def test_truncated_and_reset_connections(self):
        whole = wire.request(1, wire.INFER, copy_body())
        with server() as s:
            for cut in range(len(whole)):
                client = s.client()
                client.send(whole[:cut])
                if cut % 2:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                             struct.pack("ii", 1, 0))  # close with a reset
                client.close()
            with s.client() as client:  # byte by byte
                for byte in whole:
                    client.send(bytes([byte]))
                self.assertEqual(client.receive().status, wire.OK)
            self.serves(s)
            with s.client() as client:
                harness.until(lambda: wire.one(client.call(wire.STATUS).body, 7, 0) == 1)

    def test_half_closed_after_the_request(self):
        with faulty("on=cpu;launch:delay=100ms") as s, s.client() as client:
            for _ in range(3):
                client.start(wire.INFER, copy_body())
            client.socket.shutdown(socket.SHUT_WR)
            for _ in range(3):
                self.assertEqual(client.receive().status, wire.OK)
            self.assertTrue(client.closed())

    def test_garbage(self):
        rng = random.Random(1)
        with server() as s:
            for _ in range(200):
                with s.client() as client:
                    data = rng.randbytes(rng.randrange(1, 600))
                    if rng.randrange(2):
                        data = wire.frame(data)
                    client.send(data)
                    client.socket.shutdown(socket.SHUT_WR)
                    self.assertTrue(client.closed())
            self.serves(s)

    def test_frames_cut_anywhere(self):
        """Pipelined frames of all sizes, written in pieces that end anywhere."""
        rng = random.Random(2)
        with server(models=("copy", "wide")) as s, s.client() as client:
            stream, wanted = b"", {}
            for i in range(1, 200):
                if i % 50 == 0:
                    stream += wire.request(i, wire.INFER, wide_body())
                    wanted[i] = MIB
                else:
                    data = struct.pack("<4f", i, 0, 0, i) * rng.randrange(1, 9)
                    body = copy_body(data, len(data) // 16)
                    # an unknown field gives the request any length
                    stream += wire.request(i, wire.INFER, body + wire.field(
                        900, rng.randbytes(rng.choice([0, 10, 5000, 40000]))))
                    wanted[i] = data

            def feed():
                at = 0
                while at < len(stream):
                    n = rng.choice([1, 3, 100, 4096, 70000, 300000])
                    client.send(stream[at : at + n])
                    at += n

            feeder = harness.Background(feed)
            for _ in range(len(wanted)):
                reply = client.receive()
                self.assertEqual(reply.message, "")
                self.assertEqual(reply.outputs()["y"][2], wanted.pop(reply.id))
            feeder.finish()


class Overload(unittest.TestCase):
    def test_r18_full_queue(self):
        with faulty("on=cpu;launch:delay=200ms", {"queue_requests": 4}, max_batch=1) as s:
            with s.client() as client:
                for _ in range(20):
                    client.start(wire.INFER, copy_body())
                replies = [client.receive() for _ in range(20)]
                full = [r for r in replies if r.status == wire.RESOURCE_EXHAUSTED]
                done = [r for r in replies if r.status == wire.OK]
                self.assertEqual(len(full) + len(done), 20)
                self.assertGreaterEqual(len(full), 14)
                self.assertEqual({(r.message, r.retry_after_us) for r in full},
                                 {("model 'copy': the queue is full", 10000)})
                self.assertEqual(client.counters()["rejected_queue"], len(full))

    def test_r19_deadlines(self):
        with faulty("on=cpu;launch:delay=150ms", max_batch=1) as s, s.client() as client:
            first = client.start(wire.INFER, copy_body())
            late = client.start(wire.INFER, copy_body(), timeout_us=50000)
            past = client.start(wire.INFER, copy_body(), timeout_us=1)
            patient = client.start(wire.INFER, copy_body(), timeout_us=30_000_000)
            replies = {r.id: r for r in (client.receive() for _ in range(4))}
            self.assertEqual(replies[first].status, wire.OK)
            self.assertEqual(replies[late].status, wire.DEADLINE_EXCEEDED)
            self.assertEqual(replies[past].status, wire.DEADLINE_EXCEEDED)
            for i in late, past:
                self.assertEqual((replies[i].message, replies[i].retry_after_us),
                                 ("model 'copy': the deadline passed before the request could run",
                                  0))
            self.assertEqual(replies[patient].status, wire.OK)
            self.assertEqual(client.counters()["expired_before_run"], 2)

    def test_r18_what_cannot_make_its_deadline_is_refused_at_once(self):
        with faulty("on=cpu;launch:delay=50ms", max_batch=1) as s, s.client() as client:
            for _ in range(8):  # teaches the server what a batch takes
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            client.send(b"".join(wire.request(i, wire.INFER, copy_body(), timeout_us=300_000)
                                 for i in range(1, 21)))
            replies = [client.receive() for _ in range(20)]
            refused = [r for r in replies if r.status == wire.RESOURCE_EXHAUSTED]
            late = [r for r in replies if r.status == wire.DEADLINE_EXCEEDED]
            self.assertEqual(sorted(r.id for r in replies), list(range(1, 21)))
            self.assertGreaterEqual(len(refused), 13)  # six at most could run
            self.assertEqual(replies[: len(refused)], refused)  # before any of them has run
            self.assertEqual(refused[0].message, "model 'copy': the queue is too long for the "
                             "request's deadline")
            # what is refused makes nobody wait longer, so the hints shrink while the batch runs
            hints = [r.retry_after_us for r in refused]
            self.assertEqual(hints, sorted(hints, reverse=True))
            self.assertGreaterEqual(hints[-1], 10000)
            self.assertIn(wire.OK, {r.status for r in replies})
            counters = client.counters()
            self.assertEqual(counters["rejected_deadline"], len(refused))
            self.assertEqual(counters["expired_before_run"], len(late))
            # without a deadline there is no hurry
            ids = [client.start(wire.INFER, copy_body()) for _ in range(10)]
            self.assertEqual([client.receive().status for _ in ids], [wire.OK] * 10)

    def test_r18_r27_twice_the_capacity(self):
        """Every request has one answer, whose code says what to do, and counts in one counter."""
        with faulty("on=cpu;launch:delay=10ms", {"queue_requests": 24}, max_batch=4) as s:
            answers = []

            def flood(k):
                rng, sent = random.Random(k), 0
                with s.client() as client:
                    reader = harness.Background(
                        lambda: [answers.append(client.receive()) for _ in range(300)])
                    while sent < 300:  # 4 x 200 a second, where 400 can be served
                        client.start(wire.INFER, copy_body(), priority=rng.randrange(4),
                                     timeout_us=rng.choice([0, 30_000, 100_000]))
                        sent += 1
                        time.sleep(rng.expovariate(200))
                    reader.finish()

            for flooder in [harness.Background(flood, k) for k in range(4)]:
                flooder.finish()
            count = lambda status: sum(r.status == status for r in answers)
            with s.client() as client:
                counters = client.counters()
        refused = count(wire.RESOURCE_EXHAUSTED)
        self.assertEqual(len(answers), 1200)
        self.assertEqual(count(wire.OK) + refused + count(wire.DEADLINE_EXCEEDED), 1200)
        self.assertEqual({r.retry_after_us >= 10000 for r in answers
                          if r.status == wire.RESOURCE_EXHAUSTED}, {True})
        self.assertEqual(counters["requests"], 1200)
        self.assertEqual(counters["requests_ok"], count(wire.OK))
        self.assertEqual(counters["rejected_queue"] + counters["rejected_deadline"], refused)
        self.assertEqual(counters["expired_before_run"], count(wire.DEADLINE_EXCEEDED))

    def test_r19_the_server_s_default_deadline(self):
        with faulty("on=cpu;launch:delay=150ms", max_batch=1, default_timeout_ms=50) as s:
            with s.client() as client:
                ids = [client.start(wire.INFER, copy_body()) for _ in range(3)]
                statuses = {r.id: r.status for r in (client.receive() for _ in ids)}
                self.assertEqual([statuses[i] for i in ids],
                                 [wire.OK, wire.DEADLINE_EXCEEDED, wire.DEADLINE_EXCEEDED])

    def test_r12_cancel(self):
        with faulty("on=cpu;launch:delay=800ms", max_batch=1) as s, s.client() as client:
            running = client.start(wire.INFER, copy_body())
            queued = client.start(wire.INFER, copy_body())
            harness.until_in_flight(s, running=1, queued=1)
            again = client.start(wire.CANCEL, message((1, queued)))
            late = client.start(wire.CANCEL, message((1, running)))
            replies = {r.id: r for r in (client.receive() for _ in range(4))}
            self.assertEqual(replies[queued].status, wire.CANCELLED)
            self.assertEqual(replies[again].body, {1: [1]})
            self.assertEqual(replies[running].status, wire.OK)
            self.assertEqual(replies[late].body, {})
            # in one write, before it can be submitted
            client.send(wire.request(70, wire.INFER, copy_body()) +
                        wire.request(71, wire.CANCEL, message((1, 70))))
            replies = {r.id: r for r in (client.receive() for _ in range(2))}
            self.assertEqual(replies[70].status, wire.CANCELLED)
            self.assertEqual(replies[71].body, {1: [1]})

    def test_r12_disconnect_in_every_state(self):
        rng = random.Random(3)
        with faulty("on=cpu;launch:delay=5ms", max_batch=2) as s:
            for _ in range(60):
                client = s.client()
                for _ in range(rng.randrange(1, 8)):
                    client.start(wire.INFER, copy_body())
                time.sleep(rng.choice([0, 0.001, 0.004, 0.01]))
                client.close()
            with s.client() as client:
                harness.until(lambda: wire.one(client.call(wire.STATUS).body, 9, 0) == 0)
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
                self.assertGreater(client.counters()["cancelled"], 0)

    def test_r20_requests_in_flight_pause_the_reading(self):
        with faulty("on=cpu;launch:delay=2ms", {"connection_requests": 8}, max_batch=4) as s:
            with s.client() as client:
                body = copy_body()
                client.send(b"".join(wire.request(i, wire.INFER, body) for i in range(1, 301)))
                ids = [client.receive() for _ in range(300)]
                self.assertEqual({r.status for r in ids}, {wire.OK})
                self.assertEqual(sorted(r.id for r in ids), list(range(1, 301)))
                counters = client.counters()
                self.assertGreater(counters["reads_paused"], 10)
                self.assertEqual(counters["reads_paused"], counters["reads_resumed"])

    def test_r20_bytes_in_flight_pause_the_reading(self):
        limits = {"connection_inflight_bytes": 4 << 20, "frame_bytes": 2 << 20}
        with faulty("on=cpu;launch:delay=60ms", limits, "wide", max_batch=1) as s:
            with s.client() as client:
                sender = harness.Background(
                    lambda: [client.start(wire.INFER, wide_body()) for _ in range(20)])
                replies = [client.receive() for _ in range(20)]
                sender.finish()
                self.assertEqual({r.message for r in replies}, {""})
                self.assertEqual(replies[-1].outputs()["y"][2], MIB)
                self.assertGreater(client.counters()["reads_paused"], 2)

    def test_a_frame_as_large_as_the_caps(self):
        size = (1 << 20) + 100
        limits = {"frame_bytes": size, "connection_inflight_bytes": size, "inflight_bytes": size}
        with server(limits, models=("copy", "wide")) as s, s.client() as client:
            for _ in range(3):
                self.assertEqual(client.call(wire.INFER, wide_body()).message, "")
            sender = harness.Background(
                lambda: [client.start(wire.INFER, wide_body()) for _ in range(5)])
            for _ in range(5):
                self.assertEqual(client.receive().message, "")
            sender.finish()

    def test_r18_the_global_budget(self):
        limits = {"inflight_bytes": 6 << 20, "connection_inflight_bytes": 6 << 20,
                  "frame_bytes": 2 << 20}
        with faulty("on=cpu;launch:delay=150ms", limits, "wide", max_batch=1) as s:
            clients = [s.client() for _ in range(12)]
            senders = [harness.Background(lambda c=c: [c.start(wire.INFER, wide_body())
                                                       for _ in range(3)]) for c in clients]
            replies = [c.receive() for c in clients for _ in range(3)]
            for sender in senders:
                sender.finish()
            statuses = [r.status for r in replies]
            self.assertLessEqual(set(statuses), {wire.OK, wire.RESOURCE_EXHAUSTED})
            self.assertIn(wire.OK, statuses)
            self.assertIn(wire.RESOURCE_EXHAUSTED, statuses)
            refused = [r for r in replies if r.status == wire.RESOURCE_EXHAUSTED]
            self.assertEqual({r.id in (1, 2, 3) for r in refused}, {True})  # ids are found
            for c in clients:  # and all clients go on
                reply = c.call(wire.INFER, wide_body())
                self.assertIn(reply.status, (wire.OK, wire.RESOURCE_EXHAUSTED))
                c.close()
            with s.client() as client:
                harness.until(lambda: wire.one(client.call(wire.STATUS).body, 8, 0) == 0)


class Slow(unittest.TestCase):
    def test_r21_header_timeout(self):
        with server({"header_timeout_ms": 150}) as s, s.client() as client:
            client.send(b"\0\0")
            self.assertTrue(client.closed())
            with s.client() as other:
                self.assertEqual(other.counters()["timeouts_header"], 1)

    def test_r21_frame_timeout(self):
        with server({"frame_timeout_ms": 200}) as s, s.client() as client:
            client.send(struct.pack(">I", 100) + b"abc")
            self.assertTrue(client.closed())
            with s.client() as other:
                self.assertEqual(other.counters()["timeouts_frame"], 1)

    def test_r21_idle_timeout(self):
        with server({"idle_timeout_ms": 200}) as s, s.client() as client:
            self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            begin = time.monotonic()
            self.assertTrue(client.closed())
            self.assertGreater(time.monotonic() - begin, 0.15)
            with s.client() as other:
                self.assertEqual(other.counters()["timeouts_idle"], 1)

    def test_r21_idle_does_not_count_while_waiting_for_an_answer(self):
        with faulty("on=cpu;launch:delay=600ms", {"idle_timeout_ms": 150}) as s:
            with s.client() as client:
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)

    def test_r21_a_slow_sender_of_a_large_frame(self):
        with server({"receive_rate": 1 << 20}, models=("copy", "wide")) as s:
            with s.client() as client:
                whole = wire.request(1, wire.INFER, wide_body())
                client.send(whole[:100000])
                try:
                    for at in range(100000, len(whole), 2000):
                        client.send(whole[at : at + 2000])
                        time.sleep(0.05)
                    self.fail("was not disconnected")
                except (ConnectionResetError, BrokenPipeError):
                    pass
            with s.client() as other:
                self.assertEqual(other.counters()["slow_senders"], 1)

    def test_r22_a_client_that_never_reads(self):
        """The client's requests are no longer taken. The server closes the connection at the cap on
        output or at the time limit for writing, whichever comes first."""
        limits = {"output_bytes": 3 << 20, "connection_inflight_bytes": 64 << 20,
                  "frame_timeout_ms": 2000}
        with server(limits, models=("copy", "wide")) as s, s.client() as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

            def flood():
                try:
                    for _ in range(100):
                        client.start(wire.INFER, wide_body())
                except (ConnectionResetError, BrokenPipeError):
                    pass

            flooder = harness.Background(flood)
            with s.client() as other:
                def closed():
                    counters = other.counters()
                    return counters["closed_at_output_limit"] + counters["timeouts_write"] == 1

                harness.until(closed)
                self.assertEqual(other.call(wire.INFER, copy_body()).status, wire.OK)
                # the memory of the closed connection is given back: only this one is left, with
                # nothing in flight
                harness.until(lambda: [wire.one(other.call(wire.STATUS).body, tag, 0)
                                       for tag in (7, 8, 9)] == [1, 0, 0])
            flooder.finish()

    def test_r21_a_client_that_stops_reading(self):
        with server({"frame_timeout_ms": 3000}, models=("copy", "wide")) as s:
            with s.client() as client, s.client() as other:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.start(wire.INFER, wide_body(8))
                harness.until(lambda: other.counters()["timeouts_write"] == 1)

    def test_a_slow_reader_gets_everything(self):
        with server(models=("copy", "wide")) as s, s.client() as client, s.client() as other:
            for _ in range(4):
                client.start(wire.INFER, wide_body(8))
            time.sleep(0.3)
            for _ in range(20):  # nobody else waits for it
                self.assertEqual(other.call(wire.INFER, copy_body()).status, wire.OK)
            for _ in range(4):
                self.assertEqual(client.receive().outputs()["y"][2], MIB * 8)

    def test_r21_many_slow_connections_do_not_slow_the_others(self):
        """A second server without slow connections is measured in turn with the first: other work
        on the machine comes and goes alike for both, and only ever adds time."""
        patient = {"header_timeout_ms": 120000, "frame_timeout_ms": 120000}
        with server(patient) as s, server() as quiet, s.client() as client, \
                quiet.client() as without:
            def p99(of):
                times = []
                for _ in range(300):
                    begin = time.monotonic()
                    of.call(wire.INFER, copy_body())
                    times.append(time.monotonic() - begin)
                return sorted(times)[-3]

            slow = [s.client() for _ in range(1000)]
            for i, c in enumerate(slow):
                c.send(struct.pack(">I", 1000)[: i % 4 + 1])
            before = after = float("inf")
            for turn in range(12):
                for c in slow[turn % 3 :: 3]:
                    c.send(b"\0" if len(slow) % 4 else b"\x08")
                before, after = min(before, p99(without)), min(after, p99(client))
                if turn >= 2 and after < 2 * before + 0.005:  # a little for the scheduler
                    break
            self.assertEqual(client.counters()["connections_accepted"], 1001)
            for c in slow:
                c.close()
            self.assertLess(after, 2 * before + 0.005)

    def test_r12_r23_thousands_of_connections_leave_nothing(self):
        rng = random.Random(4)
        whole = wire.request(1, wire.INFER, copy_body())
        with server() as s:
            def left():
                with s.client() as client:
                    body = client.call(wire.STATUS).body
                return [wire.one(body, tag, 0) for tag in (7, 8, 9)]

            descriptors = lambda: len(os.listdir(f"/proc/{s.process.pid}/fd"))
            self.assertEqual(left(), [1, 0, 0])
            time.sleep(0.3)  # its own connection is closed
            before = descriptors()
            for n in range(3000):
                with s.client() as client:
                    if n % 5 == 1:  # half a request
                        client.send(whole[: rng.randrange(1, len(whole))])
                    elif n % 5 in (2, 3):  # its answer comes while the client leaves, or afterwards
                        client.send(whole)
                    elif n % 5 == 4:
                        self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
                    if n % 2:
                        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                                 struct.pack("ii", 1, 0))  # close with a reset
            harness.until(lambda: left() == [1, 0, 0])
            harness.until(lambda: descriptors() == before)

    def test_connections_at_the_limit_wait(self):
        with server({"connections": 3}) as s:
            clients = [s.client() for _ in range(3)]
            for c in clients:
                self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            waiting = s.client(timeout=0.4)
            waiting.start(wire.INFER, copy_body())
            with self.assertRaises(TimeoutError):
                waiting.receive()
            self.assertGreater(clients[1].counters()["accept_paused"], 0)
            clients[0].close()
            waiting.socket.settimeout(10)
            self.assertEqual(waiting.receive().status, wire.OK)
            for c in clients + [waiting]:
                c.close()

    def test_r23_no_descriptors_left(self):
        with server() as s:
            now = len(os.listdir(f"/proc/{s.process.pid}/fd"))
            resource.prlimit(s.process.pid, resource.RLIMIT_NOFILE, (now + 20, now + 20))
            clients = [s.client(timeout=2) for _ in range(40)]
            served, failed = 0, 0
            for c in clients:
                try:
                    c.start(wire.INFER, copy_body())
                    served += c.receive().status == wire.OK
                except (EOFError, TimeoutError, ConnectionResetError, BrokenPipeError):
                    failed += 1
                if failed >= 3:
                    break
            self.assertGreaterEqual(served, 15)
            self.assertEqual(failed, 3)
            self.assertEqual(s.log().count("no descriptors left"), 1)  # however often it happens
            begin = cpu_seconds(s.process.pid)
            time.sleep(0.5)
            self.assertLess(cpu_seconds(s.process.pid) - begin, 0.25)  # no spinning
            for c in clients:
                c.close()
            harness.until(lambda: answers(s))

    def test_an_idle_server_uses_no_processor(self):
        """Waiting for a device may occupy a processor, but only while a batch is running."""
        with faulty("on=cpu;apart;wait:delay=1ms", workers=2) as s, s.client() as client:
            for _ in range(20):
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            time.sleep(0.2)
            begin = cpu_seconds(s.process.pid)
            time.sleep(1)
            self.assertLessEqual(cpu_seconds(s.process.pid) - begin, 0.02)  # two ticks

    def test_a_low_limit_of_descriptors_means_fewer_connections(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        s = harness.Server({"copy": harness.plan("copy")}, preexec_fn=limit)
        with s:
            self.assertIn("at most 50 connections", s.log())
            clients = [s.client(timeout=2) for _ in range(60)]
            for c in clients[:50]:
                self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
            self.assertGreater(clients[0].counters()["accept_paused"], 0)
            for c in clients:
                c.close()


    def test_a_low_limit_of_descriptors_means_fewer_regions(self):
        """What clients register leaves descriptors for those who connect."""
        prefix = f"inferd-limits-{os.getpid()}-"
        path = f"/dev/shm/{prefix}r"
        pathlib.Path(path).write_bytes(bytes(64))
        self.addCleanup(os.unlink, path)
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        s = harness.Server({"copy": harness.plan("copy")}, {"shared_memory": prefix},
                           preexec_fn=limit, arguments=["--http", "127.0.0.1:0"])
        with s:
            self.assertIn("at most 38 connections are taken, and 12 regions", s.log())
            web = http.client.HTTPConnection(s.door("http"), timeout=harness.PATIENCE)
            there, codes = json.dumps({"key": prefix + "r", "offset": 0, "byte_size": 1}), []
            with contextlib.closing(web):
                for i in range(20):
                    web.request("POST", f"/v2/systemsharedmemory/region/r{i}/register", there)
                    answer = web.getresponse()
                    answer.read()
                    codes.append(answer.status)
            self.assertEqual(codes, 12 * [200] + 8 * [429])
            clients = [s.client() for _ in range(30)]
            for c in clients:
                self.assertEqual(c.call(wire.INFER, copy_body()).status, wire.OK)
                c.close()


def answers(s):
    try:
        with s.client(timeout=1) as client:
            return client.call(wire.INFER, copy_body()).status == wire.OK
    except (EOFError, TimeoutError, ConnectionResetError):
        return False


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        parts = f.read().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / 100


if __name__ == "__main__":
    harness.main()
