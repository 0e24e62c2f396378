#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No sequence of connects, sends and leaves denies others the service. The sequences are random
ones against a small budget, and those that once did harm. At the end of each all peers are gone,
nothing of the budget is used, descriptors are as before, and the next request is answered.

tests/unit/daemon/test_sequences.c plays many more, against a loop in virtual time.

    test_sequences.py INFERD INFERCTL [SEED]
"""
import os
import random
import select
import socket
import struct
import sys
import time
import unittest

import harness
import wire
from wire import message

KIB, MIB = 1 << 10, 1 << 20
WIDTH = 1 << 16  # 256 KiB an instance
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 32)
PATIENCE = wire.PATIENCE

harness.MODELS["broad"] = lambda: harness.copy_model(WIDTH)

LIMITS = {"frame_bytes": MIB + 64 * KIB, "connection_inflight_bytes": 2 * MIB,
          "inflight_bytes": 6 * MIB, "connection_requests": 32, "queue_requests": 64,
          "output_bytes": MIB + 64 * KIB, "header_timeout_ms": 700, "frame_timeout_ms": 1000,
          "idle_timeout_ms": 1500}


def small(number, instances=1):
    return wire.request(number, wire.INFER, wire.infer_body(
        "copy", [("x", "FP32", [instances, 4], struct.pack("<4f", number, 1, 2, 3) * instances)]))


def large(number, instances):
    row = struct.pack("<f", number) * WIDTH
    return wire.request(number, wire.INFER, wire.infer_body(
        "broad", [("x", "FP32", [instances, WIDTH], row * instances)]))


def announced(size, sent):
    """The beginning of a frame."""
    return struct.pack(">I", size - 4) + b"\x08\x01" + bytes(sent - 6)


def server(limits=None, apart=False, **config):
    models = {"copy": harness.plan("copy"), "broad": harness.plan("broad", "1,2,4")}
    config.setdefault("max_batch", 4)
    if apart:
        config["device"] = "fault"
    return harness.Server(models, dict(config, limits=dict(LIMITS, **(limits or {}))),
                          env={"INFERD_FAULT_SCRIPT": "apart;launch:delay=300us"})


def descriptors(s):
    return len(os.listdir(f"/proc/{s.process.pid}/fd"))


def vm_data(s):
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))


class Status:
    """What the daemon reports about itself."""

    def __init__(self, s):
        with s.client() as client:
            body = client.call(wire.STATUS).body
        self.connections = wire.one(body, 7, 0)
        self.used = wire.one(body, 8, 0)
        self.requests = wire.one(body, 9, 0)
        self.memory = {wire.text(row, 1): (wire.one(row, 2, 0), wire.one(row, 3, 0))
                       for row in map(wire.decode, body.get(12, []))}

    def held(self):
        return self.memory["requests and replies"][0] + self.memory["kept for the next ones"][0]

    def limit(self):
        return self.memory["requests and replies"][1]


class Peer:
    """One connection that sends without waiting, and checks the answers it reads."""

    def __init__(self, s):
        host, port = s.address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.socket.setblocking(False)
        self.out, self.kept, self.into = bytearray(), bytearray(), bytearray()
        self.wanted = {}  # id -> instances; of requests that were sent whole, or will be
        self.number, self.odd, self.gone = 0, False, False

    def ask(self, make, *arguments):
        if self.odd or self.kept or len(self.out) > 4 * MIB:
            return
        self.number += 1
        self.out += make(self.number, *arguments)
        self.wanted[self.number] = (arguments or [1])[0]

    def ask_part(self, rng, make, *arguments):
        """`finish` sends the rest, if it is called."""
        before = len(self.out)
        self.ask(make, *arguments)
        if len(self.out) > before:
            cut = before + min(rng.choice([1, 4, 5, 60, 5000, 70000, 300000]),
                               len(self.out) - before - 1)
            self.kept, self.out = self.out[cut:], self.out[:cut]

    def finish(self):
        self.out += self.kept
        self.kept = bytearray()

    def send(self):
        try:
            while self.out and not self.gone:
                del self.out[: self.socket.send(self.out[: 256 * KIB])]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def read(self, most=1 << 30):
        try:
            while most > 0 and not self.gone:
                part = self.socket.recv(min(most, 256 * KIB))
                self.into += part
                most -= len(part)
                if not part:
                    self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()
        self.check()

    def close(self):
        self.socket.close()
        self.gone = True

    def check(self):
        at = 0
        while len(self.into) - at >= 4:
            size = struct.unpack_from(">I", self.into, at)[0]
            if len(self.into) - at < 4 + size:
                break
            self.answer(wire.Reply(bytes(self.into[at + 4 : at + 4 + size])))
            at += 4 + size
        del self.into[:at]

    def answer(self, reply):
        if self.odd or reply.id == 0:
            return
        assert reply.id in self.wanted, f"{reply.id} was answered twice, or never asked"
        instances = self.wanted.pop(reply.id)
        assert reply.status in (wire.OK, wire.RESOURCE_EXHAUSTED, wire.CANCELLED), reply.message
        if reply.status == wire.OK and reply.kind == wire.INFER:
            got = reply.outputs()["y"]
            assert got[1][0] == instances, got[1]
            assert struct.unpack_from("<f", got[2])[0] == reply.id, "another one's answer"

    def leave(self, reset):
        if reset and not self.gone:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


class Sequences(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(SEED)
        self.peers = []

    def tearDown(self):
        for peer in self.peers:
            peer.socket.close()

    def idle(self, s):
        return Status(s).connections == 1

    def all_gone(self, s, before):
        harness.until(lambda: self.idle(s), PATIENCE)

        def empty():
            now = Status(s)
            return (now.connections, now.used, now.requests,
                    now.memory["requests and replies"][0]) == (1, 0, 0, 0)
        harness.until(empty, PATIENCE)
        harness.until(lambda: descriptors(s) == before, PATIENCE)
        with s.client() as client:
            for frame in (small(1), large(2, 4)):
                client.send(frame)
                self.assertEqual(client.receive().status, wire.OK, f"seed {SEED}")
        harness.until(lambda: descriptors(s) == before, PATIENCE)

    def bounded(self, s):
        now = Status(s)
        self.assertLessEqual(now.held(), now.limit(), f"seed {SEED}")

    # --- random ---

    def event(self, s):
        rng = self.rng
        self.peers = [p for p in self.peers if not p.gone]
        what = rng.randrange(20)
        if what < 3 and len(self.peers) < 60 or not self.peers:
            self.peers += [Peer(s) for _ in range(rng.choice([1, 1, 2, 12]))]
        peer = rng.choice(self.peers)
        if what < 6:
            for _ in range(rng.choice([1, 5, 400])):
                peer.ask(small, rng.randrange(1, 5))
        elif what < 9:
            for _ in range(rng.randrange(1, 4)):
                peer.ask(large, rng.randrange(1, 5))
        elif what < 11:
            peer.ask_part(rng, *rng.choice([(small, 1), (large, 4), (large, 1)]))
        elif what == 11:
            peer.ask(lambda n: wire.request(n, rng.choice([wire.STATUS, wire.INDEX, wire.LIVE])))
        elif what == 12:
            peer.ask(lambda n: wire.request(n, wire.CANCEL, message((1, rng.randrange(1, n + 1)))))
        elif what == 13:
            peer.odd = True
            peer.out += rng.choice([b"\xff" * 8, b"GET / HTTP/1.1\r\n\r\n", bytes(40),
                                    announced(MIB, 70000), rng.randbytes(100)])
        elif what == 14:
            peer.finish()
        elif what < 17:
            peer.read(rng.choice([100, 1 << 30]))
        elif what == 17:
            peer.leave(rng.randrange(2))
        elif what == 18:
            time.sleep(rng.choice([0.001, 0.01, 0.1]))
        elif rng.randrange(4) == 0:
            for other in self.peers:
                if rng.randrange(3):
                    other.leave(rng.randrange(2))
        for other in self.peers:
            other.send()

    def answered(self):
        """A peer that stays, sends all its bytes and reads has every answer, unless a time limit
        closed it while it held bytes back or did not read."""
        end = time.monotonic() + PATIENCE
        peers = [p for p in self.peers if not p.gone]
        for peer in peers:
            peer.finish()
        while any(p.wanted and not p.gone and not p.odd for p in peers):
            self.assertLess(time.monotonic(), end,
                            f"seed {SEED}: {[len(p.wanted) for p in peers]} are not answered")
            open_peers = [p for p in peers if not p.gone]
            for peer in open_peers:
                peer.send()
            select.select([p.socket for p in open_peers], [], [], 0.01)
            for peer in open_peers:
                peer.read()

    def play(self, seconds, **config):
        with server(**config) as s:
            self.all_gone(s, before := descriptors(s))
            for end in range(3):
                until = time.monotonic() + seconds / 3
                while time.monotonic() < until:
                    self.event(s)
                    if self.rng.randrange(50) == 0:
                        self.bounded(s)
                if end == 0:
                    self.answered()
                if end != 1:  # after the second all stay, and do nothing
                    for peer in self.peers:
                        peer.leave(self.rng.randrange(2))
                harness.until(lambda: self.idle(s), PATIENCE)
                for peer in self.peers:
                    peer.leave(False)
                self.peers = []
                self.all_gone(s, before)

    def test_one_loop(self):
        self.play(2.4)

    def test_three_loops(self):
        self.play(2.4, io_threads=3, workers=2)

    def test_a_device_apart(self):
        self.play(2.4, apart=True)

    def test_a_device_apart_and_three_loops(self):
        self.play(2.4, apart=True, io_threads=3)

    # --- states that once lasted for ever ---

    def fill(self, s, n, size=MIB):
        """Sends frames of which all but the end comes."""
        holders = [Peer(s) for _ in range(n)]
        for holder in holders:
            holder.out += announced(size, size - 1)
        self.peers += holders
        end = time.monotonic() + 0.3
        while time.monotonic() < end and any(p.out for p in holders):
            for holder in holders:
                holder.send()
        return holders

    def starve(self, s, n):
        """Pipelines of small requests that come while the budget is full."""
        crowd = [Peer(s) for _ in range(n)]
        pipeline = b"".join(small(k) for k in range(1, 128 * KIB // len(small(1))))
        for peer in crowd:
            peer.out += pipeline
            peer.send()
        self.peers += crowd

    def leave_all(self):
        for peer in self.peers:
            peer.leave(False)
        self.peers = []

    def starved_crowd(self, n, **config):
        with server({"inflight_bytes": 8 * MIB}, **config) as s:
            self.all_gone(s, before := descriptors(s))
            self.fill(s, 8)
            self.starve(s, n)
            time.sleep(0.2)
            self.bounded(s)
            self.leave_all()
            self.all_gone(s, before)

    def test_a_starved_crowd_leaves(self):
        self.starved_crowd(80)

    def test_a_starved_crowd_leaves_a_device_apart(self):
        self.starved_crowd(80, apart=True)

    def test_a_starved_crowd_of_many_leaves(self):
        self.starved_crowd(400, io_threads=3)

    def test_a_starved_crowd_stays(self):
        with server({"inflight_bytes": 8 * MIB}) as s:
            self.all_gone(s, before := descriptors(s))
            self.fill(s, 8)
            self.starve(s, 80)
            self.all_gone(s, before)  # no peer left and none reads, so the time limits must act

    def test_who_was_refused_for_memory_goes_on(self):
        with server({"frame_timeout_ms": 20000, "idle_timeout_ms": 20000}) as s:
            clients = [s.client() for _ in range(20)]
            holders = self.fill(s, 8)
            statuses = set()
            for k in range(1, 31):
                for client in clients:
                    client.send(small(k))
                statuses |= {client.receive().status for client in clients}
            self.assertLessEqual(statuses, {wire.OK, wire.RESOURCE_EXHAUSTED})
            for holder in holders[1:]:  # one stays; the others' memory is enough
                holder.leave(True)
            for client in clients:
                client.socket.settimeout(5)
                client.send(small(99))
                self.assertEqual(client.receive().status, wire.OK)
                client.close()

    def test_what_is_kept_stays_within_the_budget(self):
        for apart in (False, True):
            with server({"frame_bytes": 4 * MIB, "connection_inflight_bytes": 4 * MIB,
                         "inflight_bytes": 32 * MIB}, apart=apart) as s:
                self.all_gone(s, before := descriptors(s))
                data = vm_data(s)
                for size in range(4 * MIB, 200 * KIB, -300 * KIB):
                    self.fill(s, 2 + 24 * MIB // size, size)
                    self.bounded(s)
                    self.leave_all()
                    self.all_gone(s, before)
                    self.bounded(s)
                if data < 1 << 30:  # else it is a sanitizer's shadow
                    self.assertLess(vm_data(s) - data, 64 * MIB)

    def test_r1_what_has_come_is_charged_and_not_what_was_announced(self):
        with server({"frame_bytes": 64 * MIB, "connection_inflight_bytes": 64 * MIB,
                     "inflight_bytes": 1024 * MIB, "frame_timeout_ms": 20000}) as s:
            for _ in range(12):
                peer = Peer(s)
                peer.out += announced(64 * MIB, 68 * KIB)
                self.peers.append(peer)
            for peer in self.peers:
                peer.send()
            harness.until(lambda: Status(s).used >= 12 * 68 * KIB)
            self.assertLess(Status(s).used, 12 * 5 * 68 * KIB)


if __name__ == "__main__":
    print(f"seed {SEED}", flush=True)
    harness.main()
