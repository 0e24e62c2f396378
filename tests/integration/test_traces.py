#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces of requests: in a file for Chrome's viewer, and at a collector of OpenTelemetry.

    test_traces.py INFERD INFERCTL
"""
import contextlib
import http.client
import http.server
import json
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import unittest

import harness
import wire
from wire import message

X4 = struct.pack("<4f", 1, 2, 3, 4)
STAGES = ["read", "queue", "gather", "compute", "output", "write"]
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Takes what is posted, and answers with `status`."""

    def __init__(self, status=200):
        self.posts, self.status = [], status
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.posts.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(owner.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def spans(self):
        return [span for _, _, body in list(self.posts) for r in body["resourceSpans"]
                for s in r["scopeSpans"] for span in s["spans"]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def infer(client, traceparent=None, model="copy"):
    """An inference; `traceparent` is field 5 of the request."""
    if not traceparent:
        return client.infer(model, [("x", "FP32", [1, 4], X4)])
    body = wire.infer_body(model, [("x", "FP32", [1, 4], X4)])
    client.send(wire.frame(message((1, 77), (5, traceparent), (wire.INFER, body))))
    return client.receive()


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span.get("attributes", [])}


class ToACollector(unittest.TestCase):
    def test_spans(self):
        with Collector() as collector:
            config = {"trace_rate": 1, "trace_collector": collector.url}
            with harness.Server({"copy": harness.plan("copy")}, config) as server:
                with server.client() as client:
                    for _ in range(3):
                        self.assertEqual(infer(client).status, 0)
                harness.until(lambda: len(collector.spans()) == 21)
            path, headers, body = collector.posts[0]
            self.assertEqual((path, headers["Content-Type"]), ("/v1/traces", "application/json"))
            resource = attributes(body["resourceSpans"][0]["resource"])
            self.assertEqual(resource["service.name"], "inferd")
            self.check_trees(collector.spans(), 3)

    def check_trees(self, spans, n):
        roots = [s for s in spans if s["kind"] == 2]
        self.assertEqual(len(roots), n)
        self.assertEqual(len({s["spanId"] for s in spans}), len(spans))
        self.assertEqual(len({s["traceId"] for s in roots}), n)
        for root in roots:
            self.assertNotIn("parentSpanId", root)
            told = attributes(root)
            self.assertEqual((told["inferd.model"], told["inferd.instances"]), ("copy", "1"))
            parts = [s for s in spans if s.get("parentSpanId") == root["spanId"]]
            self.assertEqual([s["name"] for s in parts], STAGES)
            at = int(root["startTimeUnixNano"])
            for part in parts:  # one behind the other, within the whole
                self.assertEqual(part["traceId"], root["traceId"])
                begin, end = int(part["startTimeUnixNano"]), int(part["endTimeUnixNano"])
                self.assertLessEqual(at, begin)
                self.assertLessEqual(begin, end)
                at = end
            self.assertLessEqual(at, int(root["endTimeUnixNano"]))

    def test_the_clients_trace_goes_on(self):
        """Its id is taken over; its word on whether to trace counts more than the rate."""
        with Collector() as collector:
            config = {"trace_rate": 1000000, "trace_collector": collector.url + "/otlp",
                      "listen": {"framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"]}}
            with harness.Server({"copy": harness.plan("copy")}, config) as server:
                with server.client() as client:
                    infer(client, f"00-{TRACE}-{SPAN}-00")
                    infer(client, "nonsense")
                    self.assertEqual(infer(client, f"00-{TRACE}-{SPAN}-01").status, 0)
                door = server.door("http")
                web = http.client.HTTPConnection(door, timeout=harness.PATIENCE)
                with contextlib.closing(web):
                    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4],
                              "data": [1, 2, 3, 4]}
                    web.request("POST", "/v2/models/copy/infer", json.dumps({"inputs": [tensor]}),
                                {"traceparent": f"00-{TRACE}-{SPAN}-01"})
                    self.assertEqual(web.getresponse().status, 200)
                harness.until(lambda: len(collector.spans()) == 14)
            self.assertEqual({path for path, _, _ in collector.posts}, {"/otlp"})
            roots = [s for s in collector.spans() if s["kind"] == 2]
            self.assertEqual([(s["traceId"], s["parentSpanId"]) for s in roots],
                             2 * [(TRACE, SPAN)])

    def test_settings_by_request(self):
        """Triton's clients turn traces on and off."""
        done = subprocess.run([harness.INFERCTL, "token", "ops", "--rights", "admin,status"],
                              capture_output=True, text=True, check=True, timeout=harness.PATIENCE)
        self.token, line = done.stdout.splitlines()
        with Collector() as collector, \
                tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            tokens = pathlib.Path(folder, "tokens")
            tokens.write_text(line + "\n")
            tokens.chmod(0o600)
            doors = {"listen": {"framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"]},
                     "tokens": str(tokens)}
            for config, expected in (({"trace_collector": collector.url, "trace_rate": 0}, 200),
                                     ({}, 501)):
                with harness.Server({"copy": harness.plan("copy")}, {**doors, **config}) as server:
                    self.set_and_look(server, expected)

    def set_and_look(self, server, expected):
        door = server.door("http")

        def settings(**changes):
            with contextlib.closing(http.client.HTTPConnection(door, timeout=120)) as web:
                web.request("POST" if changes else "GET", "/v2/trace/setting",
                            json.dumps(changes) if changes else None,
                            {"Authorization": "Bearer " + self.token})
                answer = web.getresponse()
                return answer.status, json.loads(answer.read())
        self.assertEqual(settings()[1]["trace_level"], ["OFF"])
        self.assertEqual(settings(trace_level=["LOUD"])[0], 400)
        self.assertEqual(settings(trace_rate="7")[0], 400)  # while it is off
        code, told = settings(trace_level=["TIMESTAMPS"], trace_rate="7")
        self.assertEqual(code, expected, told)
        if expected == 200:
            self.assertEqual((told["trace_level"], told["trace_rate"]), (["TIMESTAMPS"], "7"))
            self.assertEqual(settings()[1], told)
            self.assertEqual(told["trace_count"], "-1")
            self.assertEqual(settings(trace_count="25")[1]["trace_count"], "25")
            self.assertEqual(settings()[1]["trace_rate"], "7")
            for bad in ("-2", "many", "99999999999", ""):
                self.assertEqual(settings(trace_count=bad)[0], 400)
            self.assertEqual(settings(trace_count=None)[1]["trace_count"], "-1")
            self.assertEqual(settings(trace_file="/x")[0], 501)
            self.assertEqual(settings(trace_level=["OFF"])[1]["trace_level"], ["OFF"])

    def test_refused_requests(self):
        with Collector() as collector:
            config = {"trace_rate": 1, "trace_collector": collector.url, "max_delay_us": 300000,
                      "limits": {"queue_requests": 1}}
            with harness.Server({"copy": harness.plan("copy")}, config) as server:
                with server.client() as client:
                    body = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
                    for _ in range(2):
                        client.start(wire.INFER, body)
                    for _ in range(2):
                        client.receive()
                harness.until(lambda: sum(s["kind"] == 2 for s in collector.spans()) == 2)
            failed = [s for s in collector.spans() if "status" in s]
            self.assertEqual([s["status"] for s in failed], [{"code": 2, "message": "queue_full"}])
            parts = [s["name"] for s in collector.spans()
                     if s.get("parentSpanId") == failed[0]["spanId"]]
            self.assertEqual(parts, ["read", "write"])

    def test_a_collector_that_is_away_harms_nobody(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        for url in (f"http://127.0.0.1:{port}", None):
            with contextlib.ExitStack() as stack:
                if not url:
                    url = stack.enter_context(Collector(500)).url
                server = stack.enter_context(harness.Server(
                    {"copy": harness.plan("copy")}, {"trace_rate": 1, "trace_collector": url}))
                with server.client() as client:
                    def dropped():
                        self.assertEqual(infer(client).status, 0)
                        return client.counters().get("traces_dropped", 0)
                    harness.until(lambda: dropped() > 0)
                server.wait_log("collector of traces .* does not take them")
                self.assertEqual(server.log().count("does not take them"), 1)

    def test_a_flood_is_bounded(self):
        """A collector that never answers: what waits stays small, and the rest is counted."""
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
            with harness.Server({"copy": harness.plan("copy")},
                                {"trace_rate": 1, "trace_collector": url}) as server:
                with server.client() as client:
                    for _ in range(3000):
                        self.assertEqual(infer(client).status, 0)
                    counters = client.counters()
                    self.assertEqual(counters["requests_ok"], 3000)
                    harness.until(lambda: client.counters().get("traces_dropped", 0) > 0)


class ToAFile(unittest.TestCase):
    def events(self, path):
        text = pathlib.Path(path).read_text()
        self.assertTrue(text.startswith("[\n"))
        return json.loads(text.rstrip().rstrip(",") + "]")

    def test_events(self):
        with tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            path = f"{folder}/trace.json"
            config = {"trace_rate": 2, "trace_file": path}
            with harness.Server({"copy": harness.plan("copy")}, config) as server:
                with server.client() as client:
                    for _ in range(10):
                        infer(client)
                harness.until(lambda: pathlib.Path(path).exists() and
                              pathlib.Path(path).read_text().count("compute") == 10, 20)
                self.reload_without(server)
            events = self.events(path)  # those of after the reload would be there by now
            self.assertEqual(len(events), 5 * 14)
            for one in {e["id"] for e in events}:
                self.check_nesting([e for e in events if e["id"] == one])

    def reload_without(self, server):
        """The rate can be changed while it serves."""
        server.config["trace_rate"] = 0
        server.write_config()
        server.signal(signal.SIGHUP)
        server.wait_log("reloaded")
        with server.client() as client:
            for _ in range(10):
                infer(client)

    def check_nesting(self, events):
        open_ones, at = [], 0
        for event in sorted(events, key=lambda e: e["ts"]):
            self.assertGreaterEqual(event["ts"], at)
            at = event["ts"]
        for event in events:
            if event["ph"] == "b":
                open_ones.append(event["name"])
            else:
                self.assertEqual(open_ones.pop(), event["name"])
        self.assertEqual(open_ones, [])
        self.assertEqual([e["name"] for e in events if e["ph"] == "b"], ["request"] + STAGES)
        self.assertEqual(events[0]["args"]["model"], "copy")

    def test_a_full_disk(self):
        """What was written stays, what is lost is counted, and the log says so once. A limit on the
        size of files stands for the disk; the kernel's signal at that limit is ignored."""
        def requests():
            return sum(e["ph"] == "b" and e["name"] == "request" for e in self.events(path))

        def counted(client):
            n = client.counters()
            return n.get("traces", 0), n.get("traces_dropped", 0)
        with tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            path = pathlib.Path(folder, "trace.json")
            config = {"trace_rate": 1, "trace_file": str(path)}
            with harness.Server({"copy": harness.plan("copy")}, config,
                                restore_signals=False) as server, server.client() as client:
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (32 << 10, hard))

                def full(n):
                    infer(client)
                    return counted(client)[1] >= n
                harness.until(lambda: full(1))
                before = path.read_text()
                self.assertGreater(requests(), 3)
                n = counted(client)[1]
                harness.until(lambda: full(n + 300))
                self.assertTrue(path.read_text().startswith(before))
                self.assertEqual(server.log().count("File too large"), 1, server.log())
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))

                def works():
                    infer(client)
                    return "is written again" in server.log()
                harness.until(works)
                self.assertTrue(path.read_text().startswith(before))

                def all_counted():
                    traces, lost = counted(client)
                    return traces == lost + requests()
                harness.until(all_counted)

    def test_a_file_that_cannot_be_opened(self):
        """Serving goes on; the log says so once."""
        with tempfile.TemporaryDirectory(dir=harness.folder()) as folder:
            config = {"trace_rate": 1, "trace_file": f"{folder}/no/trace.json"}
            with harness.Server({"copy": harness.plan("copy")}, config) as server:
                server.wait_log("traces: .*No such file")
                with server.client() as client:
                    self.assertEqual(infer(client).status, 0)


if __name__ == "__main__":
    harness.main()
