#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The monitor's port: what it says to Prometheus, and how it meets whoever asks otherwise.

    test_metrics.py INFERD INFERCTL SOURCE
"""
import base64
import contextlib
import json
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import harness
import wire

X4 = struct.pack("<4f", 1, 2, 3, 4)
SOURCE = pathlib.Path(sys.argv[3])
DEPLOY = SOURCE / "deploy/prometheus"
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')

# What promtool complains of are names, and these names are Triton's.
TRITONS = re.compile(r"^nv_(inference|energy)_\w+ (counter metrics should have \"_total\" suffix"
                     r"|metric names should not contain abbreviated units"
                     r"|non-histogram and non-summary metrics should not have \"_count\" suffix"
                     r"|metric name should not include type 'histogram')$")


def doors(config=None):
    return dict({"listen": {"framed": ["127.0.0.1:0"], "metrics": ["127.0.0.1:0"]}},
                **(config or {}))


def monitor(server):
    return re.search(r"(?m)^metrics (\S+)$", server.log()).group(1)


def get(server, path="/metrics", headers=None):
    request = urllib.request.Request(f"http://{monitor(server)}{path}", headers=headers or {})
    with urllib.request.urlopen(request, timeout=harness.PATIENCE) as answer:
        return answer.read().decode()


def status_of(server, path="/metrics", headers=None):
    try:
        get(server, path, headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


def read_samples(text):
    """{(name, frozenset of labels): value}; fails on a line that is no sample."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, labels, value = SAMPLE.match(line).groups()
        key = (name, frozenset(LABEL.findall(labels or "")))
        if key in found:
            raise AssertionError(f"twice: {line}")
        found[key] = float(value)
    return found


def value(samples, name, **labels):
    return samples[name, frozenset(labels.items())]


def infer(client, model="copy", n=1):
    return client.infer(model, [("x", "FP32", [n, 4], X4 * n)])


def exchange(server, data, seconds=5):
    """What comes back on a connection that sends these bytes, until it is closed."""
    host, _, port = monitor(server).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as s:
        s.sendall(data)
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(65536):
                got += more
    return got


class Metrics(unittest.TestCase):
    def test_what_models_did(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            with server.client() as client:
                for n in (1, 1, 3, 8):
                    self.assertEqual(infer(client, n=n).status, 0)
                self.assertNotEqual(infer(client, n=9).status, 0)
                counters = client.counters()
            text = get(server)
            s = read_samples(text)
            copy = {"model": "copy", "version": "1"}
            for name, expected in (
                    ("nv_inference_request_success", 4), ("nv_inference_count", 13),
                    ("nv_inference_exec_count", 4), ("nv_inference_pending_request_count", 0),
                    ("inferd_queue_requests", 0), ("inferd_queue_limit_requests", 1024),
                    ("inferd_model_ready", 1), ("inferd_batch_instances_sum", 13),
                    ("inferd_batch_instances_count", 4),
                    ("inferd_request_duration_seconds_count", 4)):
                self.assertEqual(value(s, name, **copy), expected, name)
            self.assertEqual(value(s, "nv_inference_request_failure", reason="OTHER", **copy), 1)
            self.assertEqual(value(s, "inferd_model_refused_requests_total",
                                   cause="invalid_argument", **copy), 1)
            self.assertGreater(value(s, "nv_inference_request_duration_us", **copy), 0)
            for bound, expected in (("1", 2), ("2", 2), ("4", 3), ("8", 4), ("+Inf", 4)):
                self.assertEqual(value(s, "inferd_batch_instances_bucket", le=bound, **copy),
                                 expected)
            for name in ("requests", "requests_ok", "requests_invalid", "frames"):
                self.assertEqual(value(s, f"inferd_{name}_total"), counters[name], name)
            self.assertEqual(value(s, "inferd_ready"), 1)
            self.assertEqual(value(s, "inferd_limit", limit="connections"), 4096)
            self.assertGreater(value(s, "process_resident_memory_bytes"), 1 << 20)
            self.check_histograms(s)
            self.check_families(text)

    def check_histograms(self, samples):
        rows = {}
        for (name, labels), n in samples.items():
            if name.endswith("_bucket"):
                labels = dict(labels)
                bound = float(labels.pop("le"))
                rows.setdefault((name[:-7], frozenset(labels.items())), []).append((bound, n))
        self.assertGreaterEqual(len(rows), 7)
        for (name, labels), buckets in rows.items():
            buckets.sort()
            counts = [n for _, n in buckets]
            self.assertEqual(counts, sorted(counts), name)
            self.assertEqual(buckets[-1][0], float("inf"))
            self.assertEqual(counts[-1], samples[name + "_count", labels])
            self.assertIn((name + "_sum", labels), samples)
        stages = {dict(labels)["stage"] for name, labels in rows
                  if name == "inferd_stage_duration_seconds"}
        self.assertEqual(stages, {"queue", "input", "compute", "output"})

    def check_families(self, text):
        """Each family has help and type once, before its samples, and stands in one piece."""
        seen, now = set(), None
        for line in text.splitlines():
            words = line.split(" ", 3)
            if words[0] == "#" and words[1] == "HELP":
                self.assertNotIn(words[2], seen)
                self.assertTrue(words[3])
                now = words[2]
                seen.add(now)
            elif words[0] == "#":
                self.assertEqual(words[2], now)
            else:
                name = SAMPLE.match(line).group(1)
                self.assertIn(name, (now, now + "_bucket", now + "_sum", now + "_count"))

    def test_queues_and_refusals(self):
        """Requests that wait are seen while they wait, and those that do not fit are counted."""
        config = doors({"workers": 1, "limits": {"queue_requests": 2}, "max_delay_us": 3000000})
        with harness.Server({"copy": harness.plan("copy")}, config) as server:
            with server.client() as client:
                body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
                for _ in range(4):
                    client.start(wire.INFER, body)
                copy = {"model": "copy", "version": "1"}

                def waiting():
                    s = read_samples(get(server))
                    return (value(s, "nv_inference_pending_request_count", **copy) == 2 and
                            value(s, "inferd_queue_age_seconds", **copy) > 1)
                harness.until(waiting)
                s = read_samples(get(server))
                self.assertEqual(value(s, "inferd_model_refused_requests_total",
                                       cause="queue_full", **copy), 2)
                self.assertEqual(
                    value(s, "nv_inference_request_failure", reason="REJECTED", **copy), 2)
                for _ in range(4):
                    client.receive()
            s = read_samples(get(server))
            self.assertEqual(value(s, "nv_inference_request_success", **copy), 2)

    def test_sets(self):
        """Whoever asks may want Triton's names alone, or ours."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            def names(query):
                return {name for name, _ in read_samples(get(server, "/metrics" + query))}
            both, tritons, ours = names(""), names("?collect[]=triton"), \
                names("?x=1&collect%5B%5D=inferd")
            self.assertEqual(both, tritons | ours)
            self.assertFalse(tritons & ours)
            self.assertTrue(all(n.startswith("nv_") for n in tritons))
            self.assertTrue(all(n.startswith(("inferd_", "process_")) for n in ours))

    def test_a_reload_is_seen(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            server.models["pair"] = harness.plan("pair")
            server.write_config()
            server.signal(signal.SIGHUP)
            server.wait_log("reloaded")
            harness.until(lambda: 'inferd_model_ready{model="pair",version="1"} 1' in get(server))

    def test_promtool(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not here (Debian's package prometheus has it)")
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            with server.client() as client:
                infer(client)

            def check(path):
                done = subprocess.run(["promtool", "check", "metrics"], input=get(server, path),
                                      text=True, capture_output=True, timeout=120, check=False)
                return done.returncode, (done.stdout + done.stderr).split("\n")
            self.assertEqual(check("/metrics?collect[]=inferd"), (0, [""]))
            code, lines = check("/metrics")
            self.assertEqual(code, 3)
            self.assertEqual([x for x in lines if x and not TRITONS.match(x)], [])


class Visitors(unittest.TestCase):
    def test_requests_that_are_refused(self):
        rows = [
            (b"GET / HTTP/1.1\r\n\r\n", 400),  # without Host
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 505),  # HTTP/0.9
            (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            (b"GET http:metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (b"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nA: \x01\r\n\r\n", 400),
            (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405),
            (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 413),
            (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
            (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
            (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 17000, 431),
            (b"GET /nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404),
            (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        ]
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            for data, expected in rows:
                got = exchange(server, data)
                self.assertEqual(got.split(b" ")[1:2], [str(expected).encode()], (data, got))
            self.assertEqual(status_of(server), 200)

    def test_rows_of_requests(self):
        one = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
        last = b"HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            got = exchange(server, one * 50 + last, 20)
            self.assertEqual(got.count(b"HTTP/1.1 404 Not Found\r\n"), 50)
            head = got[got.index(b"HTTP/1.1 200 OK\r\n"):]
            self.assertTrue(head.endswith(b"\r\n\r\n"))
            self.assertEqual(head.count(b"\r\n\r\n"), 1)
            self.assertGreater(int(re.search(rb"Content-Length: (\d+)", head).group(1)), 1000)

    @contextlib.contextmanager
    def crowd(self, server, each):
        """64 connections, which is all there may be. `each` gets one of them again and again, and
        says whether it is still open; it is opened anew if not."""
        host, _, port = monitor(server).rpartition(":")

        def come():
            s = socket.create_connection((host, int(port)), harness.PATIENCE)
            s.setblocking(False)
            return s
        members, over = [come() for _ in range(64)], threading.Event()

        def stay():
            while not over.wait(0.1):
                for i, s in enumerate(members):
                    if not each(s):
                        s.close()
                        members[i] = come()
        thread = harness.Background(stay)
        try:
            yield
        finally:
            over.set()
            thread.finish()
            for s in members:
                s.close()

    @staticmethod
    def is_open(s):
        try:
            while s.recv(1 << 16):
                pass
            return False
        except BlockingIOError:
            return True
        except OSError:
            return False

    def test_a_crowd(self):
        """Silent connections that are renewed for ever shut nobody out, nor do busy ones."""
        def ask(s):
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                s.send(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n")
            return self.is_open(s)
        for each in (self.is_open, ask):
            with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
                with self.crowd(server, each):
                    for _ in range(3):
                        self.assertEqual(status_of(server), 200)
                    with server.client() as client:
                        self.assertEqual(infer(client).status, 0)

    def test_an_address_has_a_share(self):
        """Another machine's address has half of all places. Ours stands for it, if we have any."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.connect(("192.0.2.1", 9))  # sends nothing, and says which address would be used
                mine = s.getsockname()[0]
            except OSError:
                mine = "127.0.0.1"
        if mine.startswith("127."):
            self.skipTest("this machine has no address but loopback")
        config = {"listen": {"framed": ["127.0.0.1:0"], "metrics": ["0.0.0.0:0"],
                             "insecure": "true"}}
        with harness.Server({"copy": harness.plan("copy")}, config) as server:
            port = int(monitor(server).rpartition(":")[2])
            with contextlib.ExitStack() as stack:
                crowd = [stack.enter_context(socket.create_connection((mine, port), 20))
                         for _ in range(33)]
                with contextlib.suppress(ConnectionResetError):
                    self.assertEqual(crowd[32].recv(1), b"")
                crowd[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                self.assertTrue(crowd[0].recv(4096).startswith(b"HTTP/1.1 200 OK"))
                with socket.create_connection(("127.0.0.1", port), 20) as other:
                    other.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                    self.assertTrue(other.recv(4096).startswith(b"HTTP/1.1 200 OK"))

    def test_nobody_takes_all_of_its_time(self):
        """Scrapes without end leave most of a core to others; each is answered nonetheless."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
            host, _, port = monitor(server).rpartition(":")

            def cpu():
                return value(read_samples(get(server)), "process_cpu_seconds_total")
            before, begin, n = cpu(), time.monotonic(), 0
            with socket.create_connection((host, int(port)), 20) as s:
                reader = s.makefile("rb")
                while time.monotonic() - begin < 3:
                    s.sendall(request)
                    length = 0
                    while (line := reader.readline().strip()):
                        if line.startswith(b"Content-Length:"):
                            length = int(line.split()[1])
                    self.assertEqual(len(reader.read(length)), length)
                    n += 1
                self.assertLess(self.slowest(server, s), 3)
            self.assertGreater(n, 5)
            self.assertLess((cpu() - before) / (time.monotonic() - begin), 0.5)

    def slowest(self, server, greedy):
        """How long another scrape takes at most beside one that asks without end."""
        greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
        taker = harness.Background(self.swallow, greedy)
        times = []
        for _ in range(5):
            begin = time.monotonic()
            get(server)
            times.append(time.monotonic() - begin)
        greedy.shutdown(socket.SHUT_RDWR)
        taker.finish()
        return max(times)

    def test_who_sends_nothing_more_is_answered(self):
        """A client closes its sending side behind its request while the monitor rests, and then
        goes before it is answered."""
        request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            host, _, port = monitor(server).rpartition(":")
            with socket.create_connection((host, int(port)), harness.PATIENCE) as greedy:
                greedy.sendall(request * 400)
                taker = harness.Background(self.swallow, greedy)
                for _ in range(8):
                    with socket.create_connection((host, int(port)), harness.PATIENCE) as s:
                        s.sendall(request)
                        s.shutdown(socket.SHUT_WR)
                        self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200 OK"))
                for _ in range(8):
                    with socket.create_connection((host, int(port)), harness.PATIENCE) as s:
                        s.sendall(request)
                        s.shutdown(socket.SHUT_WR)
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.assertEqual(status_of(server), 200)
                greedy.shutdown(socket.SHUT_RDWR)
                taker.finish()

    def swallow(self, greedy):
        with contextlib.suppress(OSError):
            while greedy.recv(1 << 16):
                pass

    def test_r16_tokens(self):
        def make(name, *rights):
            done = subprocess.run([harness.INFERCTL, "token", name, "--rights", ",".join(rights)],
                                  capture_output=True, text=True, check=True, timeout=120)
            return done.stdout.splitlines()
        with tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            viewer, team = make("viewer", "status"), make("team", "infer", "describe")
            tokens = pathlib.Path(folder, "tokens")
            tokens.write_text(f"{viewer[1]}\n{team[1]}\n")
            tokens.chmod(0o600)
            with harness.Server({"copy": harness.plan("copy")},
                                doors({"tokens": str(tokens)})) as server:
                basic = base64.b64encode(f"me:{viewer[0]}".encode()).decode()
                for headers, expected in (
                        ({}, 401), ({"Authorization": "Bearer " + viewer[0]}, 200),
                        ({"Authorization": "bearer " + viewer[0]}, 200),
                        ({"Authorization": "Basic " + basic}, 200),
                        ({"Authorization": "Bearer " + team[0]}, 403),
                        ({"Authorization": "Bearer " + "x" * 43}, 401),
                        ({"Authorization": "Bearer " + "x" * 500}, 401),
                        ({"Authorization": "Basic ????"}, 401)):
                    self.assertEqual(status_of(server, "/metrics", headers), expected, headers)

    def test_r16_other_machines(self):
        """An address that others reach needs tokens, as at any door."""
        config = {"listen": {"framed": ["127.0.0.1:0"], "metrics": ["0.0.0.0:0"]}}
        with self.assertRaisesRegex(AssertionError, "0.0.0.0"):
            harness.Server({"copy": harness.plan("copy")}, config)

    def test_nowhere_else(self):
        """The port of the framed protocol does not answer a scrape."""
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            host, _, port = server.address.rpartition(":")
            with socket.create_connection((host, int(port)), 20) as s:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    self.assertNotIn(b"nv_inference", s.recv(65536))


class Prometheus(unittest.TestCase):
    def test_it_scrapes(self):
        if not shutil.which("prometheus"):
            self.skipTest("prometheus is not here (Debian's package prometheus)")
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server, \
                tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            with server.client() as client:
                for _ in range(7):
                    infer(client)
            with socket.create_server(("127.0.0.1", 0)) as s:
                port = s.getsockname()[1]
            config = pathlib.Path(folder, "prometheus.yml")
            config.write_text(
                "global: {scrape_interval: 500ms}\n"
                f"rule_files: ['{DEPLOY}/inferd.rules.yml']\n"
                "scrape_configs:\n- job_name: inferd\n  static_configs:\n"
                f"  - targets: ['{monitor(server)}']\n")
            with open(pathlib.Path(folder, "log"), "wb") as log:
                process = subprocess.Popen(
                    ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                     f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
            try:
                def ask(query):
                    with contextlib.suppress(OSError):
                        url = f"http://127.0.0.1:{port}/api/v1/query?query={query}"
                        with urllib.request.urlopen(url, timeout=5) as answer:
                            rows = json.load(answer)["data"]["result"]
                            return [float(row["value"][1]) for row in rows]
                    return None
                harness.until(lambda: ask("nv_inference_request_success") == [7])
                self.assertEqual(ask("up"), [1])
                self.assertEqual(ask("inferd_request_duration_seconds_count"), [7])
                # a quantile over all instances, as a board asks for it
                quantile = ask("histogram_quantile(0.99,sum%20by(le)"
                               "(inferd_request_duration_seconds_bucket))")
                self.assertGreater(quantile[0], 0)
            finally:
                process.terminate()
                process.wait(harness.PATIENCE)

    def test_rules(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not here (Debian's package prometheus has it)")
        for command in (["check", "rules", "inferd.rules.yml"],
                        ["test", "rules", "inferd.rules.test.yml"]):
            done = subprocess.run(["promtool", *command], cwd=DEPLOY, text=True,
                                  capture_output=True, timeout=harness.PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_board_and_rules_ask_for_what_there_is(self):
        with harness.Server({"copy": harness.plan("copy")}, doors()) as server:
            with server.client() as client:
                infer(client)
                infer(client, n=9)
            there = {name for name, _ in read_samples(get(server))}
        board = json.loads((SOURCE / "deploy/grafana/inferd.json").read_text())
        asked = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
        rules = re.findall(r"(?m)^ +expr: (.*(?:\n {10,}.*)*)",
                           (DEPLOY / "inferd.rules.yml").read_text())
        self.assertGreater(len(asked), 10)
        self.assertGreater(len(rules), 8)
        for text in asked + rules:
            names = set(re.findall(r"\b(?:inferd|nv|process)_[a-z_]+", text))
            names = {n for n in names if not n.startswith("nv_gpu")}  # no GPU here
            self.assertLessEqual(names, there, text)


if __name__ == "__main__":
    harness.main()
