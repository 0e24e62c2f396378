# SPDX-License-Identifier: Apache-2.0
"""The clients of tests/bench/soak, each a process of its own so that it can be killed.

    soak_clients.py ROLE ADDRESS SEED COUNTS FIRST_ROW

Each connection is a thread with a row of counters in the file COUNTS, which lives on when the
process is killed. A connection keeps account of every id it sends: an answer to an id that waits
for none, a second answer, or a wrong answer ends the program with a failure; answers that never
came are counted. At SIGTERM the program sends no more requests, waits for all answers, and ends
with 0.
"""
import enum
import mmap
import random
import signal
import socket
import struct
import sys
import threading
import time

import bench  # noqa: F401  (sets the path of the next one)
import wire

ANSWER_SECONDS = 60
BEGIN, WAVE_SECONDS, WAVE_ACTIVE = time.monotonic(), 60, 20
STRIP = 1 << 15  # floats: 128 KiB, beyond what a loop reads without a slab
IMAGE = struct.pack("<64f", *(i % 17 for i in range(64)))
GONE = {wire.NOT_FOUND, wire.UNAVAILABLE}
REFUSED = {wire.CANCELLED, wire.DEADLINE_EXCEEDED, wire.RESOURCE_EXHAUSTED}


class Row(enum.IntEnum):
    """The counters of one connection: first the answers by status, then these."""
    SENT = 17
    UNANSWERED = 18
    CUT_OFF = 19  # on their way when the client cut its own connection
    CONNECTIONS = 20
    LENGTH = 24


class Counts:
    """Rows of numbers in a file that several processes have mapped; each row has one writer."""

    def __init__(self, path, rows=None):
        if rows:
            with open(path, "wb") as file:
                file.truncate(rows * Row.LENGTH * 8)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.numbers = memoryview(self.map).cast("Q")

    def add(self, row, which, n=1):
        self.numbers[row * Row.LENGTH + which] += n

    def row(self, row):
        return list(self.numbers[row * Row.LENGTH : (row + 1) * Row.LENGTH])

    def clear(self, row):
        for which in range(Row.LENGTH):
            self.numbers[row * Row.LENGTH + which] = 0


# --- requests: (body, what may come with OK, other statuses that may come) ---


def copied(model, n, value):
    data = struct.pack("<f", value) * (4 * n)
    return wire.infer_body(model, [("x", "FP32", [n, 4], data)]), data


def copy(rng):
    body, data = copied("copy", rng.randrange(1, 9), rng.random())
    return body, [{"y": data}], set()


def changing(model, gone):
    """A model that is sometimes the identity and sometimes doubles its input."""
    def make(rng):
        n, value = rng.randrange(1, 5), rng.randrange(1000)
        body, data = copied(model, n, value)
        return body, [{"y": data}, {"y": struct.pack("<f", 2 * value) * (4 * n)}], gone
    return make


def pair(rng):
    n = rng.randrange(1, 5)
    a, b = [struct.pack("<f", rng.randrange(1000)) * (2 * n) for _ in range(2)]
    number = struct.pack("<q", rng.randrange(1 << 40)) * n
    total = struct.unpack("<f", a[:4])[0] + struct.unpack("<f", b[:4])[0]
    body = wire.infer_body("pair", [("a", "FP32", [n, 2], a), ("b", "FP32", [n, 2], b),
                                    ("n", "INT64", [n, 1], number)])
    return body, [{"sum": struct.pack("<f", total) * (2 * n), "same": a, "m": number}], set()


def digits(rng):
    n = rng.randrange(1, 9)
    return wire.infer_body("digits", [("image", "FP32", [n, 1, 8, 8], IMAGE * n)]), None, set()


def strip(n):
    data = bytes(range(256)) * (STRIP // 64 * n)
    return wire.infer_body("strip", [("x", "FP32", [n, STRIP], data)]), [{"y": data}], set()


STRIPS = {n: strip(n) for n in (1, 2)}


def mistake(rng):
    if rng.random() < 0.5:
        return wire.infer_body("none", []), [], {wire.NOT_FOUND}
    return (wire.infer_body("copy", [("x", "INT32", [1, 4], bytes(16))]), [],
            {wire.INVALID_ARGUMENT})


INFERENCES = {
    copy: 50, pair: 15, digits: 15, changing("flip", set()): 10, changing("built", set()): 4,
    changing("extra", GONE): 3, lambda rng: STRIPS[rng.randrange(1, 3)]: 4, mistake: 1,
}
QUESTIONS = [wire.STATUS, wire.STATISTICS, wire.INDEX, wire.READY]


class Peer:
    """One connection."""

    def __init__(self, job, rng):
        self.job, self.rng, self.sent = job, rng, {}
        self.client = wire.Client(job.address, timeout=ANSWER_SECONDS)
        job.count(Row.CONNECTIONS)

    def send(self, kind, body, outputs, others, **options):
        self.job.count(Row.SENT)
        self.sent[self.client.next_id + 1] = outputs, others
        self.client.start(kind, body, **options)

    def infer(self):
        make = self.rng.choices(list(INFERENCES), list(INFERENCES.values()))[0]
        body, outputs, others = make(self.rng)
        timeout_us = self.rng.choice([0, 0, 0, 0, 300, 5000, 50000])
        self.send(wire.INFER, body, outputs, REFUSED | others, timeout_us=timeout_us,
                  priority=self.rng.randrange(4))

    def ask(self):
        self.send(self.rng.choice(QUESTIONS), b"", None, set())

    def cancel(self):
        target = max(1, self.client.next_id - self.rng.randrange(4))
        self.send(wire.CANCEL, wire.message((1, target)), None, set())

    def receive(self):
        reply = self.client.receive()
        self.job.count(reply.status)
        outputs, others = self.sent.pop(reply.id)
        if reply.status != wire.OK:
            assert reply.status in others, (reply.status, reply.message)
        elif outputs is not None:
            got = {name: data for name, (_, _, data) in reply.outputs().items()}
            assert got in outputs, f"wrong answer to {reply.id}"

    def drain(self):
        while self.sent:
            self.receive()

    def cut_off(self):
        """Ends the connection without waiting for answers: by a reset, or in the middle of a
        request."""
        if self.rng.random() < 0.5:
            whole = wire.request(1 << 40, wire.INFER, STRIPS[1][0])
            self.client.send(whole[: self.rng.randrange(1, len(whole))])
        if self.rng.random() < 0.5:
            self.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                          struct.pack("ii", 1, 0))
        self.job.count(Row.CUT_OFF, len(self.sent))
        self.sent.clear()

    def close(self):
        self.job.count(Row.UNANSWERED, len(self.sent))
        self.client.close()


class Job:
    """Opens one connection after the other for one row of counters, until it is told to stop."""

    def __init__(self, address, counts, row, stop):
        self.address, self.counts, self.row, self.stop = address, counts, row, stop

    def count(self, which, n=1):
        self.counts.add(self.row, which, n)

    def run(self, conversation, rng):
        while not self.stop.is_set():
            peer = Peer(self, rng)
            try:
                conversation(peer, rng, self.stop)
            finally:
                peer.close()


# --- roles: what one connection does ---


def mixed(window, pause_s, cuts):
    def conversation(peer, rng, stop):
        for _ in range(rng.randrange(1, 400)):
            if stop.is_set():
                break
            act = rng.choices([peer.infer, peer.ask, peer.cancel], [92, 3, 5])[0]
            act()
            while len(peer.sent) >= window:
                peer.receive()
            if rng.random() < 0.5:
                time.sleep(rng.expovariate(1 / pause_s))
        if cuts and rng.random() < 0.5:
            peer.cut_off()
            return
        if rng.random() < 0.3:
            peer.client.socket.shutdown(socket.SHUT_WR)
        peer.drain()
    return conversation


def wave(stop):
    """Clients that make the server keep much memory come and go together, so that there are moments
    when the server keeps none for them and its size can be compared."""
    while (time.monotonic() - BEGIN) % WAVE_SECONDS > WAVE_ACTIVE and not stop.is_set():
        stop.wait(0.5)


def slow_reader(peer, rng, stop):
    """Reads all of its answers, a little at a time, with pauses shorter than the time limit for
    clients that read nothing."""
    wave(stop)
    peer.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    for _ in range(rng.randrange(1, 9)):
        peer.send(wire.INFER, *STRIPS[1])
    receive, stop_at = peer.client.socket.recv, time.monotonic() + 5

    class Slow:
        @staticmethod
        def recv(n):
            if time.monotonic() < stop_at and not stop.is_set():
                time.sleep(0.02)
            return receive(min(n, 16384))

        close = staticmethod(peer.client.socket.close)

    peer.client.socket = Slow
    peer.drain()
    stop.wait(1)


def never_reader(peer, rng, stop):
    """Sends requests and does not read, until the server closes the connection. So missing answers
    are this client's own fault."""
    wave(stop)
    peer.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.client.socket.settimeout(1)
    try:
        while not stop.is_set():
            peer.send(wire.INFER, *STRIPS[rng.randrange(1, 3)])
    except (ConnectionResetError, BrokenPipeError):
        pass
    except TimeoutError:  # the server reads no more, and closes if nobody reads
        stop.wait(4)
    peer.job.count(Row.CUT_OFF, len(peer.sent))
    peer.sent.clear()
    stop.wait(0.2)


ROLES = {  # name: (connections, conversation)
    "steady": (4, mixed(16, 0.02, False)),
    "rude": (2, mixed(16, 0.02, True)),
    "victim": (2, mixed(64, 0.005, False)),
    "slow": (2, slow_reader),
    "never": (1, never_reader),
}


def main():
    role, address, seed, path, first = sys.argv[1:]
    connections, conversation = ROLES[role]
    stop, counts, failures = threading.Event(), Counts(path), []
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def work(k):
        try:
            Job(address, counts, int(first) + k, stop).run(
                conversation, random.Random(int(seed) * 100 + k))
        except BaseException as failure:
            failures.append(failure)
            stop.set()
            raise

    threads = [threading.Thread(target=work, args=(k,)) for k in range(connections)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        time.sleep(0.1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
