#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A supervisor holds the listening socket and starts inferd again whenever it ends, under load: no
connection is refused, and every request is answered or its connection is closed (R29).

    test_supervised.py INFERD INFERCTL
"""
import collections
import itertools
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import harness
import wire

RESTARTS, CLIENTS, PIPELINE = 20, 4, 8
PATIENCE = wire.PATIENCE
X4 = struct.pack("<4f", 1, 2, 3, 4)
BODY = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])

# how each life ends: the device's script, or a signal after it has served for a while
ENDS = [
    ("on=cpu;launch#20:device", None),
    ("on=cpu;launch:delay=2ms;launch#15:device", None),
    ("on=cpu;launch#10:oom;launch#30:device", None),
    ("on=cpu;launch#12:hang", None),
    ("on=cpu;wait#25:device", None),
    ("on=cpu", signal.SIGKILL),
    ("on=cpu;launch:delay=1ms", signal.SIGTERM),
]
MAY_COME = {wire.OK, wire.UNAVAILABLE, wire.RESOURCE_EXHAUSTED}


class Supervisor:
    """One process after another on one socket."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(1024)
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.folder = harness.folder()
        config = {"threads": 1, "workers": 2, "io_threads": 2, "max_batch": 2, "device": "fault",
                  "hang_timeout_ms": 150, "drain_timeout_ms": 5000,
                  "models": [{"name": "copy", "path": str(harness.plan("copy"))}]}
        (self.folder / "supervised.yaml").write_text(harness.yaml(config))
        self.log = self.folder / "supervised.log"
        self.codes = []

    def start(self, script):
        env = dict(os.environ, INFERD_REFERENCE_KERNELS="1", INFERD_FAULT_SCRIPT=script,
                   LISTEN_FDS="1", **harness.FORCED_END)
        env.pop("NOTIFY_SOCKET", None)
        fd = self.socket.fileno()

        def hand_over():
            os.dup2(fd, 3)
            os.set_inheritable(3, True)

        with open(self.log, "ab") as sink:
            return subprocess.Popen(
                ["sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', harness.INFERD, "--config",
                 str(self.folder / "supervised.yaml")], env=env, stdin=subprocess.DEVNULL,
                stdout=sink, stderr=sink, preexec_fn=hand_over, close_fds=False)

    def one_life(self, script, number, served):
        """Starts the server and waits for its end. `served()` counts answers; the signal, if any,
        comes after some answers."""
        process, before = self.start(script), served()
        try:
            if number:
                harness.until(lambda: served() > before + 50 or process.poll() is not None,
                              PATIENCE)
                process.send_signal(number)
            self.codes.append(process.wait(PATIENCE))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


class Supervised(unittest.TestCase):
    def setUp(self):
        self.stop = threading.Event()
        self.seen = collections.Counter()
        self.lock = threading.Lock()

    def served(self):
        return self.seen[wire.OK]

    def count(self, what):
        with self.lock:
            self.seen[what] += 1

    def talk(self, client):
        """Sends requests, PIPELINE at a time, each of which must be answered once, until the
        connection ends."""
        for _ in range(20):
            waiting = {client.start(wire.INFER, BODY) for _ in range(PIPELINE)}
            while waiting:
                reply = client.receive()
                assert reply.id in waiting, (reply.id, reply.message)
                waiting.discard(reply.id)
                assert reply.status in MAY_COME, (reply.status, reply.message)
                if reply.status == wire.UNAVAILABLE:
                    assert "executed" in reply.message or "shutting" in reply.message, \
                        reply.message
                    assert reply.retry_after_us, reply.message
                else:
                    assert reply.status != wire.OK or reply.outputs()["y"][2] == X4
                self.count(reply.status)

    def load(self, address):
        while not self.stop.is_set():
            client = wire.Client(address, timeout=PATIENCE)  # refused: the test fails
            self.count("connections")
            try:
                self.talk(client)
            except (EOFError, ConnectionResetError, BrokenPipeError):
                self.count("closed")
            finally:
                client.close()

    def test_r29_no_connection_is_refused_over_20_restarts_under_load(self):
        supervisor = Supervisor()
        with supervisor.socket:
            clients = [harness.Background(self.load, supervisor.address) for _ in range(CLIENTS)]
            try:
                for script, number in itertools.islice(itertools.cycle(ENDS), RESTARTS):
                    supervisor.one_life(script, number, self.served)
                last = supervisor.start("on=cpu")
                before = self.served()
                harness.until(lambda: self.served() > before + 50, PATIENCE)
                self.stop.set()
                for client in clients:
                    client.finish(PATIENCE)
                last.send_signal(signal.SIGTERM)
                supervisor.codes.append(last.wait(PATIENCE))
            finally:
                self.stop.set()
        log = supervisor.log.read_text(errors="replace")
        expected = [-9 if number == signal.SIGKILL else 0 if number else 1
                    for _, number in itertools.islice(itertools.cycle(ENDS), RESTARTS)] + [0]
        self.assertEqual(supervisor.codes, expected, log[-3000:])
        self.assertEqual([c.failure for c in clients], [None] * CLIENTS)
        self.assertGreater(self.seen["closed"], RESTARTS)
        self.assertGreater(self.seen[wire.UNAVAILABLE], 10)
        self.assertNotIn("Sanitizer", log)
        print(f"over {RESTARTS} restarts: {dict(self.seen)}")

    def test_r29_unready_within_a_second_of_the_loss(self):
        """Covers each way of losing the device; readiness is asked over a connection that existed
        before."""
        for script in ("launch#3:device", "wait#3:device", "copy#9:device;apart",
                       "launch#1:delay=600ms;launch#3:device"):
            env = dict(harness.FORCED_END, INFERD_FAULT_SCRIPT="on=cpu;" + script)
            s = harness.Server({"copy": harness.plan("copy")},
                               {"device": "fault", "workers": 2, "max_batch": 1}, env=env)
            try:
                with s.client() as probe, s.client() as client:
                    # in one write, so that all requests have been read when the device is lost
                    client.send(b"".join(wire.request(i, wire.INFER, BODY) for i in range(1, 13)))
                    replies = [client.receive() for _ in range(12)]
                    begin = time.monotonic()
                    self.assertLessEqual({r.status for r in replies}, {wire.OK, wire.UNAVAILABLE})
                    self.assertIn(wire.UNAVAILABLE, {r.status for r in replies}, script)
                    try:
                        while probe.call(wire.READY).body == {1: [1]}:
                            self.assertLess(time.monotonic() - begin, 1, script)
                    except (EOFError, ConnectionResetError, BrokenPipeError):
                        pass  # it has ended already
                self.assertEqual(s.wait(), 1, script)
                self.assertIn("device lost", s.log())
            finally:
                s.kill()

    def test_r31_no_memory_on_load_fails_that_load_alone(self):
        plans = {"copy": harness.plan("copy"), "twice": harness.plan("twice")}
        for script, at in (("memory#2:oom", 1), ("prepare#6:oom", 1)):
            env = {"INFERD_FAULT_SCRIPT": "on=cpu;" + script}
            with harness.Server(plans, {"device": "fault"}, env=env) as s, s.client() as client:
                self.assertEqual(len(s.addresses), at)
                body = {name: wire.infer_body(name, [("x", "FP32", [1, 4], X4)]) for name in plans}
                told = [client.call(wire.INFER, body[name]).status for name in sorted(plans)]
                self.assertEqual(sorted(told), [wire.OK, wire.UNAVAILABLE], s.log())
                self.assertEqual(client.call(wire.READY).body, {})  # a named model is missing
                s.signal(signal.SIGHUP)  # there is memory again
                s.wait_log("reloaded")
                harness.until(lambda: client.call(wire.READY).body == {1: [1]})
                told = [client.call(wire.INFER, body[name]).status for name in sorted(plans)]
                self.assertEqual(told, [wire.OK, wire.OK], s.log())


if __name__ == "__main__":
    harness.main()
