#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the start to the end of a server: signals, service manager, sockets, command line.

    test_lifecycle.py INFERD INFERCTL
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import harness
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)


def copy_body(data=X4):
    return wire.infer_body("copy", [("x", "FP32", [1, 4], data)])


def models():
    return {"copy": harness.plan("copy")}


class Manager:
    """The service manager's notification socket."""

    def __init__(self, abstract=False):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if abstract:
            self.name = f"@inferd-test-{os.getpid()}"
            self.socket.bind("\0" + self.name[1:])
        else:
            self.name = str(harness.folder() / "notify")
            pathlib.Path(self.name).unlink(missing_ok=True)
            self.socket.bind(self.name)
        self.lock = threading.Lock()
        self.messages = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            data = self.socket.recv(4096).decode()
            with self.lock:
                self.messages.append((time.monotonic(), data))

    def count(self, text):
        with self.lock:
            return sum(text in m for _, m in self.messages)

    def wait(self, text, seconds=harness.PATIENCE, count=1):
        harness.until(lambda: self.count(text) >= count, seconds)


def holds(pid, number):
    """Whether a process blocks or handles a signal."""
    masks = re.findall(r"(?m)^Sig(?:Blk|Cgt):\s+(\w+)$",
                       pathlib.Path(f"/proc/{pid}/status").read_text())
    return any(int(m, 16) >> (number - 1) & 1 for m in masks)


class Lifecycle(unittest.TestCase):
    def test_r24_sigterm_answers_everything_admitted(self):
        with harness.Server(models(), {"device": "fault", "max_batch": 1},
                            env={"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=20ms"}) as s:
            with s.client() as client, s.client() as probe:
                ids = {client.start(wire.INFER, copy_body()) for _ in range(30)}
                harness.until(lambda: probe.counters()["requests"] == 30)
                s.signal(signal.SIGTERM)
                s.wait_log("signal 15")
                reply = probe.call(wire.READY)
                self.assertEqual(reply.body, {})  # unready at once
                reply = probe.call(wire.INFER, copy_body())
                self.assertEqual((reply.status, reply.retry_after_us, reply.message),
                                 (wire.UNAVAILABLE, 1000000, "the server is shutting down; the "
                                  "request was not executed"))
                with self.assertRaises(OSError):  # and no new connection is accepted
                    s.client().close()
                replies = [client.receive() for _ in range(30)]
                self.assertEqual({r.id for r in replies}, ids)
                self.assertEqual({r.status for r in replies}, {wire.OK})
                self.assertEqual(s.wait(), 0)

    def test_r24_sigterm_answers_what_is_being_read_and_decoded(self):
        """A request that was sent as a whole has an answer, also if it is not admitted any more."""
        numbers = 4 << 18
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4, numbers // 4],
                                       "data": [1.25] * numbers}]}).encode()
        doors = {"framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"]}
        for wait in (0, 0.02, 0.1):
            with harness.Server({"wide": harness.plan("wide")}, {"listen": doors}) as s:
                connection = http.client.HTTPConnection(s.door("http"), timeout=harness.PATIENCE)
                connection.request("POST", "/v2/models/wide/infer", body)
                time.sleep(wait)
                s.signal(signal.SIGTERM)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    self.assertEqual(answer.status, 503)
                    self.assertIn(b"the request was not executed", text)
                connection.close()
                self.assertEqual(s.wait(), 0)

    def test_r24_a_peer_that_goes_on_to_send_does_not_hold_up_the_end(self):
        doors = {"framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"]}
        with harness.Server(models(), {"listen": doors, "drain_timeout_ms": 600000}) as s:
            host, port = s.door("http").split(":")
            with socket.create_connection((host, int(port))) as slow, s.client() as flood:
                slow.sendall(b"POST /v2/models/copy/infer HTTP/1.1\r\nHost: x\r\n"
                             b"Content-Length: 1000000\r\n\r\n")
                s.signal(signal.SIGTERM)
                with contextlib.suppress(OSError):
                    while True:  # ends when the server is gone
                        slow.sendall(b" ")
                        flood.start(wire.LIVE)
                        time.sleep(0.01)
            self.assertEqual(s.wait(), 0)

    def test_r24_sigterm_under_load(self):
        for _ in range(3):
            with harness.Server(models(), {"workers": 2, "io_threads": 2}) as s:
                outcomes, connected = [], []

                def load():
                    with s.client() as client:
                        connected.append(client)
                        try:
                            while True:
                                sent = [client.start(wire.INFER, copy_body()) for _ in range(20)]
                                for _ in sent:
                                    outcomes.append(client.receive().status)
                        except (EOFError, ConnectionResetError, BrokenPipeError):
                            pass

                threads = [harness.Background(load) for _ in range(4)]
                harness.until(lambda: len(connected) == 4 and len(outcomes) > 200)
                s.signal(signal.SIGTERM)
                self.assertEqual(s.wait(), 0)
                for t in threads:
                    t.finish()
                self.assertLessEqual(set(outcomes), {wire.OK, wire.UNAVAILABLE})

    def test_r24_sigterm_at_any_moment_of_a_start(self):
        rng = random.Random(24)
        for _ in range(12):
            s = harness.Server(models(), {"io_threads": 2}, wait=False)
            try:
                harness.until(lambda: holds(s.process.pid, signal.SIGTERM))  # main has begun
                time.sleep(rng.random() * 0.05)
                for number in rng.choice([[], [signal.SIGHUP], 3 * [signal.SIGHUP]]):
                    s.signal(number)
                s.stop()
            finally:
                s.kill()

    def test_r24_another_signal_at_the_end_changes_nothing(self):
        rng, codes = random.Random(25), set()
        for _ in range(12):
            with harness.Server(models(), env=harness.FORCED_END) as s:
                s.signal(signal.SIGTERM)
                time.sleep(rng.random() * 0.02)
                s.signal(signal.SIGTERM)
                codes.add(s.wait())
        self.assertEqual(codes, {0})

    def drained_after(self, *waits):
        """Sends SIGTERM before each of the waits, given in seconds, during a slow request; returns
        the exit code and the status of the answer."""
        env = dict(harness.FORCED_END, INFERD_FAULT_SCRIPT="on=cpu;launch:delay=4000ms")
        s = harness.Server(models(), {"device": "fault"}, env=env)
        try:
            with s.client() as client:
                client.start(wire.INFER, copy_body())
                harness.until_in_flight(s, 1)
                for seconds in waits:
                    s.signal(signal.SIGTERM)
                    time.sleep(seconds)
                try:
                    status = client.receive().status
                except (ConnectionError, EOFError):
                    status = None
            return s.wait(), status
        finally:
            s.kill()

    def test_r24_signals_that_come_together_are_one(self):
        self.assertEqual(self.drained_after(0, 0.01, 0), (0, wire.OK))  # as timeout(1) sends them

    def test_r24_another_signal_after_a_second_ends_it_at_once(self):
        code, status = self.drained_after(1.1, 0)
        self.assertEqual(code, 1)
        self.assertNotEqual(status, wire.OK)

    def test_r24_a_server_that_leaves_is_unready_and_serves(self):
        with harness.Server(models(), {"drain_delay_ms": 1500}) as s, s.client() as c:
            name = next(iter(models()))
            self.assertEqual(c.call(wire.READY).body, {1: [1]})
            s.signal(signal.SIGTERM)
            s.wait_log("not ready any more")
            self.assertEqual(c.call(wire.READY).body, {})
            with s.client() as late:  # and takes connections
                self.assertEqual(late.call(wire.MODEL_READY, message((1, name))).status, wire.OK)
                reply = late.infer(name, [("x", "FP32", [1, 4], X4)])
                self.assertEqual(reply.status, wire.OK, reply.message)
            self.assertEqual(s.wait(), 0)

    def test_r24_a_second_signal_ends_the_wait(self):
        with harness.Server(models(), {"drain_delay_ms": 60000}) as s:
            s.signal(signal.SIGTERM)
            s.wait_log("not ready any more")
            time.sleep(1.1)  # else the two count as one
            s.signal(signal.SIGTERM)
            self.assertEqual(s.wait(), 0)

    def test_r24_the_drain_time_is_kept(self):
        with harness.Server(models(), {"device": "fault", "drain_timeout_ms": 300},
                            env=dict(harness.FORCED_END,
                                     INFERD_FAULT_SCRIPT="on=cpu;launch:delay=10s")) as s:
            with s.client() as client:
                client.start(wire.INFER, copy_body())
                harness.until_in_flight(s, 1)
                s.signal(signal.SIGTERM)
                begin = time.monotonic()
                reply = client.receive()
                self.assertEqual(reply.status, wire.UNAVAILABLE)
                self.assertIn("may have been executed", reply.message)
                self.assertEqual(s.wait(), 1)
                self.assertLess(time.monotonic() - begin, 8)
                s.stop(code=1)
                self.assertIn("not everything could be answered", s.log())
            s.process.returncode = 0  # the exit code has been checked

    def test_sigint_stops_too(self):
        with harness.Server(models()) as s:
            s.signal(signal.SIGINT)
            self.assertEqual(s.wait(), 0)

    # --- the service manager ---

    def test_r38_ready_reloading_stopping(self):
        for abstract in (False, True):
            manager = Manager(abstract)
            with harness.Server(models(), env={"NOTIFY_SOCKET": manager.name}) as s:
                manager.wait("READY=1")
                self.assertEqual(manager.count("WATCHDOG=1"), 0)
                s.signal(signal.SIGHUP)
                manager.wait("RELOADING=1\nMONOTONIC_USEC=")
                manager.wait("READY=1", count=2)
                s.signal(signal.SIGTERM)
                manager.wait("STOPPING=1")
                self.assertEqual(s.wait(), 0)

    def test_r38_not_ready_before_models_are_loaded(self):
        manager = Manager()
        env = {"NOTIFY_SOCKET": manager.name,
               "INFERD_FAULT_SCRIPT": "on=cpu;prepare:delay=300ms"}
        s = harness.Server(models(), {"device": "fault"}, env=env, wait=False)
        time.sleep(0.15)
        self.assertEqual(manager.count("READY=1"), 0)
        manager.wait("READY=1")
        s.stop()

    # --- readiness ---

    def broken(self):
        path = harness.folder() / "broken-beside.plan"
        path.write_bytes(b"this is no plan" * 100)
        return path

    def exit_of_status(self, server):
        return subprocess.run([harness.INFERCTL, "status", server.address], timeout=120,
                              capture_output=True, check=False).returncode

    def test_not_ready_while_a_named_model_is_missing(self):
        manager = Manager()
        named = dict(models(), broken=self.broken(), gone=harness.folder() / "not-there.plan")
        with harness.Server(named, env={"NOTIFY_SOCKET": manager.name}) as s, s.client() as client:
            # the process is up and serves what there is
            manager.wait("READY=1\nSTATUS=not ready: 2 of 3 named models are missing; serving 1 ")
            self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            self.assertEqual(client.call(wire.MODEL_READY, message((1, "copy"))).body, {1: [1]})
            # but it is not complete
            self.assertEqual(client.call(wire.READY).body, {})
            self.assertEqual(self.exit_of_status(s), 1)
            for name in ("broken", "gone"):
                self.assertIn(f"not ready: model '{name}' version '1' is missing", s.log())
            self.assertNotIn("model 'copy' version '1' is missing", s.log())
            # one of the models comes, then the other is no longer configured
            s.models["broken"] = harness.plan("twice")
            s.write_config()
            s.signal(signal.SIGHUP)
            manager.wait("STATUS=not ready: 1 of 3 named models is missing; serving 2 ")
            self.assertEqual(client.call(wire.READY).body, {})
            del s.models["gone"]
            s.write_config()
            s.signal(signal.SIGHUP)
            manager.wait("READY=1\nSTATUS=serving 2 model versions")
            self.assertEqual(client.call(wire.READY).body, {1: [1]})
            self.assertEqual(self.exit_of_status(s), 0)

    def test_a_reload_that_fails_leaves_readiness_as_it_was(self):
        with harness.Server(dict(models(), broken=self.broken())) as s, s.client() as client:
            s.config_path.write_text("nonsense: 1\n")
            s.signal(signal.SIGHUP)
            s.wait_log("reload failed")
            self.assertEqual(client.call(wire.READY).body, {})

    def test_ready_with_any_model(self):
        named = dict(models(), broken=self.broken())
        with harness.Server(named, {"readiness": "any"}) as s, s.client() as client:
            self.assertEqual(client.call(wire.READY).body, {1: [1]})
            self.assertEqual(self.exit_of_status(s), 0)
            self.assertNotIn("is missing", s.log())
            s.config["readiness"] = "strict"
            s.write_config()
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            harness.until(lambda: client.call(wire.READY).body == {})

    def test_a_hang_that_ends_does_not_complete_a_server(self):
        env = {"INFERD_FAULT_SCRIPT": "on=cpu;launch#1:delay=800ms"}
        named = dict(models(), broken=self.broken())
        s = harness.Server(named, {"device": "fault", "hang_timeout_ms": 500}, env=env)
        with s, s.client() as client, s.client() as other:
            other.start(wire.INFER, copy_body())
            s.wait_log("a worker hangs")
            self.assertEqual(client.call(wire.READY).body, {})
            s.wait_log("no worker hangs any more")
            self.assertEqual(client.call(wire.READY).body, {})
            self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)

    def test_a_device_that_cannot_be_opened_is_one_line(self):
        done = subprocess.run([harness.INFERD, "--device", "cuda:99", "--listen", "127.0.0.1:0"],
                              capture_output=True, text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\A\S+ inferd: error: [^\n]*(CUDA|cuda)[^\n]*\n\Z")

    def test_r39_watchdog(self):
        manager = Manager()
        env = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "600000"}
        with harness.Server(models(), env=env) as s, s.client() as client:
            manager.wait("WATCHDOG=1", count=4)  # an idle worker is no stuck worker
            self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
        with harness.Server(models(), env=dict(env, WATCHDOG_PID="1")):
            before = manager.count("WATCHDOG=1")
            time.sleep(0.5)
            self.assertEqual(manager.count("WATCHDOG=1"), before)

    def test_r39_a_hung_worker_starves_the_watchdog(self):
        manager = Manager()
        env = {"NOTIFY_SOCKET": manager.name, "WATCHDOG_USEC": "300000",
               "INFERD_FAULT_SCRIPT": "on=cpu;launch#2:hang"}
        s = harness.Server(models(), {"device": "fault", "hang_timeout_ms": 400}, env=env)
        with s.client() as client:
            self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            manager.wait("WATCHDOG=1", count=2)
            client.start(wire.INFER, copy_body())
            reply = client.receive()
            self.assertEqual(reply.status, wire.UNAVAILABLE)
            self.assertIn("may have been executed", reply.message)
            self.assertEqual(client.call(wire.READY).body, {})
            fed = manager.count("WATCHDOG=1")
            time.sleep(0.5)
            self.assertEqual(manager.count("WATCHDOG=1"), fed)
            self.assertEqual(client.counters()["worker_hangs"], 1)
        s.kill()  # as the service manager would

    def test_socket_activation(self):
        with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
            tcp.bind(("127.0.0.1", 0))
            tcp.listen(16)
            path = str(harness.folder() / "activated.sock")
            unix.bind(path)
            unix.listen(16)
            early = wire.Client("127.0.0.1:%d" % tcp.getsockname()[1])
            early.start(wire.INFER, copy_body())  # waits in the backlog
            fds = (tcp.fileno(), unix.fileno())

            def hand_over():
                os.dup2(fds[0], 50)
                os.dup2(fds[1], 51)
                os.dup2(50, 3)
                os.dup2(51, 4)
                os.environ["LISTEN_PID"] = str(os.getpid())

            wrapper = ["sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', harness.INFERD]
            s = activated(wrapper, hand_over)
            try:
                s.wait_ready()
                self.assertEqual(s.addresses, ["127.0.0.1:%d" % tcp.getsockname()[1],
                                               "unix:" + path])
                self.assertEqual(early.receive().status, wire.OK)
                with wire.Client("unix:" + path) as client:
                    self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
                early.close()
                s.stop()
                self.assertTrue(os.path.exists(path))  # the manager's path, not ours
            finally:
                s.kill()

    def test_r29_sockets_outlive_a_lost_device(self):
        with socket.socket() as tcp:
            tcp.bind(("127.0.0.1", 0))
            tcp.listen(16)
            address = "127.0.0.1:%d" % tcp.getsockname()[1]
            fd = tcp.fileno()

            def hand_over():
                os.dup2(fd, 50)
                os.dup2(50, 3)

            wrapper = ["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"', harness.INFERD]
            s = activated(wrapper, hand_over, {"device": "fault"},
                          dict(harness.FORCED_END,
                               INFERD_FAULT_SCRIPT="on=cpu;launch#1:device"))
            s.wait_ready()
            with wire.Client(address) as client:
                client.start(wire.INFER, copy_body())
                self.assertEqual(client.receive().status, wire.UNAVAILABLE)
            self.assertEqual(s.wait(), 1)
            with wire.Client(address) as client:  # not refused: the next process answers
                client.start(wire.INFER, copy_body())
                s = activated(wrapper, hand_over)
                self.assertEqual(client.receive().status, wire.OK)
            s.wait_ready()
            s.stop()

    # --- addresses ---

    def test_unix_sockets_and_several_listeners(self):
        path = str(harness.folder() / "inferd.sock")
        config = {"listen": {"framed": [f"unix:{path}", "127.0.0.1:0", "[::1]:0"]}}
        s = harness.Server(models(), config)
        self.assertEqual(len(s.addresses), 3)
        self.assertEqual(s.addresses[0], f"unix:{path}")
        for address in s.addresses:
            with wire.Client(address) as client:
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
        s.kill()
        self.assertTrue(os.path.exists(path))
        with harness.Server(models(), {"listen": {"framed": [f"unix:{path}"]}}) as s:
            with s.client() as client:  # what a killed process left is no obstacle
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            other = harness.Server(models(), {"listen": {"framed": [f"unix:{path}"]}}, wait=False)
            self.assertEqual(other.wait(), 1)  # but one that lives is
            self.assertIn("bind to", other.log())
        self.assertFalse(os.path.exists(path))

    def test_all_addresses_are_said_in_one_write(self):
        """Who has read one line of the log may look for the others at once."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        doors = ["--listen", "--http", "--grpc"]
        arguments = [word for name in doors for word in (name, "127.0.0.1:0")]
        process = subprocess.Popen([harness.INFERD, f"copy={harness.plan('copy')}", *arguments],
                                   env=dict(os.environ, INFERD_REFERENCE_KERNELS="1"),
                                   stderr=theirs, stdin=subprocess.DEVNULL)
        try:
            ours.settimeout(harness.PATIENCE)
            theirs.close()
            while not (written := ours.recv(1 << 16).decode()).startswith("ready "):
                self.assertTrue(written, "it has ended")
            self.assertEqual(re.findall(r"(?m)^ready \S+( \(\w+\))?$", written),
                             ["", " (http)", " (grpc)"])
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(harness.PATIENCE), 0)
        finally:
            process.kill()
            process.wait()
            ours.close()

    def test_r17_a_name_is_looked_up_once_at_the_start(self):
        config = {"listen": {"framed": ["localhost:0"]}}
        with harness.Server(models(), config) as s:
            hosts = [a.rsplit(":", 1)[0] for a in s.addresses]
            self.assertIn("127.0.0.1", hosts)
            self.assertLessEqual(set(hosts), {"127.0.0.1", "[::1]"})
            port = s.addresses[0].rsplit(":", 1)[1]
            for address in (*s.addresses, f"localhost:{port}"):
                done = subprocess.run([harness.INFERCTL, "status", address], timeout=120,
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
            # A reload looks up no names: a name that cannot be found would fail it, and a lookup
            # may be slow.
            s.config["listen"]["framed"].append("no-such-" + 64 * "x" + ":1")
            s.write_config()
            s.signal(signal.SIGHUP)
            s.wait_log("reloaded")
            self.assertIn("takes a restart to change: listen", s.log())

    def test_a_client_tries_all_addresses_of_a_name(self):
        with harness.Server(models(), {"listen": {"framed": ["[::1]:0"]}}) as s:
            port = s.address.rsplit(":", 1)[1]  # 127.0.0.1 comes first, and refuses
            done = subprocess.run([harness.INFERCTL, "load", f"localhost:{port}", "--model", "copy",
                                   "--seconds", "0.2"], timeout=120, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_name_that_nobody_knows(self):
        name = "no-such-" + 64 * "x" + ":1"  # a label too long for any lookup
        s = harness.Server(models(), {"listen": {"framed": [name]}}, wait=False)
        self.assertEqual(s.wait(), 1)
        self.assertIn(f'address "{name[:80]}"', s.log())
        done = subprocess.run([harness.INFERCTL, "status", name], timeout=120, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-", done.stderr)

    def test_an_address_in_use(self):
        with harness.Server(models()) as s:
            other = harness.Server(models(), {"listen": {"framed": [s.address]}}, wait=False)
            self.assertEqual(other.wait(), 1)
            self.assertIn(s.address, other.log())

    # --- the command line ---

    def run_inferd(self, *arguments):
        return subprocess.run([harness.INFERD, *map(str, arguments)], capture_output=True,
                              text=True, timeout=harness.PATIENCE, check=False)

    def test_command_line(self):
        done = self.run_inferd("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--check-config", done.stdout)
        done = self.run_inferd("--version")
        self.assertTrue(re.fullmatch(r"inferd \d+\.\d+\.\d+\n", done.stdout), done.stdout)
        for short in ("-v", "-V"):
            self.assertEqual(self.run_inferd(short).stdout, done.stdout)
        for wrong in (["--nonsense"], ["--workers"], ["--workers", "x"], ["--max-batch", "-1"]):
            done = self.run_inferd(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""), wrong)
            self.assertTrue(done.stderr)

    def test_a_wrong_configuration_is_one_line(self):
        bad = harness.folder() / "bad.yaml"
        bad.write_text("max_delay_us: 5\nnonsense: 1\n")
        for check in ([], ["--check-config"]):
            done = self.run_inferd(*check, "--config", bad)
            self.assertEqual(done.returncode, 1)
            self.assertIn("nonsense", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_the_command_line_overrides_the_file(self):
        with harness.Server(models(), {"max_delay_us": 1000, "max_batch": 8},
                            arguments=["--max-delay-us", "77", "--max-batch", "3"]) as s:
            for _ in range(2):  # at the start, and after a reload
                with s.client() as client:
                    model = wire.decode(client.call(wire.STATUS).body[10][0])
                    self.assertEqual((wire.one(model, 5), wire.one(model, 6)), (3, 77))
                    body = wire.infer_body("copy", [("x", "FP32", [4, 4], X4 * 4)])
                    self.assertEqual(client.call(wire.INFER, body).status, wire.INVALID_ARGUMENT)
                s.signal(signal.SIGHUP)
                s.wait_log("reloaded")

    def test_no_model_can_be_loaded(self):
        broken = harness.folder() / "broken.plan"
        broken.write_bytes(b"this is no plan" * 100)
        s = harness.Server({"broken": broken}, wait=False)
        self.assertEqual(s.wait(), 1)
        self.assertIn("model 'broken'", s.log())
        self.assertIn("no model could be loaded", s.log())

    def test_descriptors_that_are_closed_are_no_sockets(self):
        """The first files that are opened must not take the numbers of standard streams."""
        closed = ("sh", "-c", 'exec "$0" "$@" <&-')
        with harness.Server(models(), prefix=closed) as s:
            with s.client() as client:
                self.assertEqual(client.call(wire.INFER, copy_body()).status, wire.OK)
            for outputs in (">&-", "<&- >&-"):
                done = subprocess.run(
                    ["sh", "-c", f'exec "$0" status "$1" -w --interval 0.05 -n 2 {outputs}',
                     harness.INFERCTL, s.address], stderr=subprocess.PIPE, text=True, timeout=60,
                    check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            s.stop()
        self.assertNotIn("magic", s.log())


def activated(wrapper, hand_over, config=None, env=None):
    """A server with sockets on descriptors 3 and up; LISTEN_FDS counts those that are open."""
    command, harness.INFERD = harness.INFERD, wrapper[0]
    try:
        real = subprocess.Popen

        def popen(argv, **options):
            return real([*wrapper, *argv[1:]], **options)

        subprocess.Popen = popen
        return harness.Server(models(), dict(config or {}, listen={"framed": ["127.0.0.1:1"]}),
                              env=dict({"LISTEN_FDS": "2"}, **(env or {})), wait=False,
                              preexec_fn=hand_over, close_fds=False)
    finally:
        subprocess.Popen = real
        harness.INFERD = command


if __name__ == "__main__":
    harness.main()
