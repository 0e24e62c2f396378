#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1, byte by byte: what it answers, what it refuses, and what it costs others.

    test_http.py INFERD INFERCTL
"""
import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import time
import unittest
import zlib

import harness
import wire

BIG = 1 << 18  # elements of an instance of `wide`


def door(server, name="http"):
    """Where a server that was started with --http 127.0.0.1:0 speaks it."""
    harness.until(lambda: re.search(rf"(?m)^ready (\S+) \({name}\)$", server.log()))
    host, port = re.search(rf"(?m)^ready (\S+) \({name}\)$", server.log())[1].rsplit(":", 1)
    return host, int(port)


class Reply:
    """One reply, read from a stream."""

    def __init__(self, stream, head_only=False):
        line = stream.readline().decode()
        if not line:
            raise EOFError
        self.code = int(line.split()[1])
        self.fields = {}
        while (line := stream.readline().decode().rstrip("\r\n")):
            name, value = line.split(":", 1)
            self.fields[name.lower()] = value.strip()
        size = 0 if head_only else int(self.fields.get("content-length", 0))
        self.body = stream.read(size)
        assert len(self.body) == size

    def json(self):
        return json.loads(self.body[:int(self.fields.get("inference-header-content-length",
                                                         len(self.body)))])


class Peer:
    """A connection that sends what it is told to."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=harness.PATIENCE)
        self.stream = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data if isinstance(data, bytes) else data.encode())

    def reply(self, **options):
        return Reply(self.stream, **options)

    def ask(self, method, path, body=None, **fields):
        self.send(request(method, path, body, **fields))
        return self.reply(head_only=method == "HEAD")

    def ended(self):
        """Whether the server has closed, and said nothing more."""
        try:
            return self.stream.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.stream.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(method, path, body=None, **fields):
    """Bytes of a request; a dictionary or a list is sent as JSON."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    if body is not None:
        fields.setdefault("Content_Length", len(body))
    lines = [f"{method} {path} HTTP/1.1", "Host: a"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


X = tensor("x", "FP32", [1, 4], [1, 2, 3, 4])


class Http(unittest.TestCase):
    def setUp(self):
        models = {name: harness.plan(name) for name in ("copy", "pair", "wide")}
        self.server = harness.Server(models, self.config(), arguments=["--http", "127.0.0.1:0"])
        self.addCleanup(self.server.kill)
        self.address = door(self.server)

    def tearDown(self):
        self.server.stop()

    def config(self):
        return {"limits": {"frame_bytes": "16MiB", "header_timeout_ms": 2000,
                           "frame_timeout_ms": 5000}}

    def peer(self):
        peer = Peer(self.address)
        self.addCleanup(peer.close)
        return peer

    def refused(self, code, data, ends=True):
        peer = self.peer()
        peer.send(data)
        reply = peer.reply()
        self.assertIn(reply.code, code if isinstance(code, tuple) else (code,), reply.body)
        self.assertTrue(reply.json()["error"])
        if ends:
            self.assertEqual(reply.fields.get("connection"), "close")
            peer.socket.shutdown(socket.SHUT_WR)
            self.assertTrue(peer.ended())
        return reply

    def test_questions(self):
        with self.peer() as peer:
            self.assertEqual(peer.ask("GET", "/v2/health/live").json(), {"live": True})
            self.assertEqual(peer.ask("GET", "/v2/health/ready").json(), {"ready": True})
            self.assertEqual(peer.ask("GET", "/v2/models/copy/versions/1/ready").json(),
                             {"name": "copy", "ready": True})
            server = peer.ask("GET", "/v2").json()
            self.assertEqual(server["name"], "inferd")
            self.assertIn("statistics", server["extensions"])
            meta = peer.ask("GET", "/v2/models/pair").json()
            self.assertEqual(meta["inputs"][2],
                             {"name": "n", "datatype": "INT64", "shape": [-1, 1]})
            config = peer.ask("GET", "/v2/models/pair/config").json()
            self.assertEqual((config["max_batch_size"], config["input"][0]["data_type"],
                              config["input"][0]["dims"]), (8, "TYPE_FP32", [2]))
            index = peer.ask("POST", "/v2/repository/index", b"").json()
            self.assertEqual([m["name"] for m in index], ["copy", "pair", "wide"])
            ready = peer.ask("POST", "/v2/repository/index", {"ready": True})
            self.assertEqual(ready.json(), index)
            stats = peer.ask("GET", "/v2/models/copy/stats").json()["model_stats"]
            self.assertEqual([m["name"] for m in stats], ["copy"])
            self.assertEqual(stats[0]["inference_stats"]["cache_miss"], {"count": 0, "ns": 0})
            self.assertEqual(len(peer.ask("GET", "/v2/models/stats").json()["model_stats"]), 3)
            self.assertIs(peer.ask("GET", "/v2/logging").json()["log_info"], True)
            self.assertIsInstance(peer.ask("GET", "/v2/trace/setting").json()["trace_level"], list)
            self.assertEqual(peer.ask("GET", "/v2/systemsharedmemory/status").json(), [])
            self.assertEqual(peer.ask("GET", "/v2/models/none").code, 404)
            self.assertEqual(peer.ask("GET", "/v2/models/none/ready").code, 404)
            self.assertEqual(peer.ask("POST", "/v2/logging", {"log_info": False}).code, 403)
            self.assertEqual(peer.ask("POST", "/v2/repository/models/copy/unload", {}).code, 403)

    def test_methods(self):
        with self.peer() as peer:
            head = peer.ask("HEAD", "/v2/models/copy")
            self.assertEqual(int(head.fields["content-length"]),
                             len(peer.ask("GET", "/v2/models/copy").body))
            options = peer.ask("OPTIONS", "/v2/models/copy/infer")
            self.assertEqual((options.code, options.fields["allow"]), (204, "POST, OPTIONS"))
            self.assertEqual(peer.ask("DELETE", "/v2/models/copy").fields["allow"],
                             "GET, HEAD, OPTIONS")
            self.assertEqual(peer.ask("GET", "/v2/models/copy/infer").code, 405)
            self.assertEqual(peer.ask("GET", "/").code, 404)
            # What a question does not take is read over, and the connection goes on.
            self.assertEqual(peer.ask("GET", "/v2", b"x" * 100000).code, 200)
            self.assertEqual(peer.ask("POST", "/nothing", b"x" * 100000).code, 404)
            self.assertEqual(peer.ask("GET", "/v2").code, 200)

    def test_inference_in_json(self):
        with self.peer() as peer:
            reply = peer.ask("POST", "/v2/models/copy/infer", {"id": "q\"1", "inputs": [X]})
            self.assertEqual(reply.fields["content-type"], "application/json")
            self.assertEqual(reply.json(), {
                "model_name": "copy", "model_version": "1", "id": "q\"1",
                "outputs": [tensor("y", "FP32", [1, 4], [1.0, 2.0, 3.0, 4.0])]})
            big = 9223372036854775807
            # Keys in any order, data nested, outputs chosen.
            reply = peer.ask("POST", "/v2/models/pair/infer", json.dumps({
                "outputs": [{"name": "m"}, {"name": "sum"}],
                "unknown": {"a": [1, {"b": None}]},
                "inputs": [{"data": [[1, 2], [3, 4]], "shape": [2, 2], "name": "a",
                            "datatype": "FP32"},
                           tensor("b", "FP32", [2, 2], [0.5, 0, 0, 1e-3]),
                           tensor("n", "INT64", [2, 1], [big, -big - 1])]}).encode())
            self.assertEqual([o["name"] for o in reply.json()["outputs"]], ["m", "sum"])
            self.assertEqual(reply.json()["outputs"][0]["data"], [big, -big - 1])
            self.assertEqual(reply.json()["outputs"][1]["data"][0], 1.5)

    def test_json_that_is_refused(self):
        def infer(body):
            with self.peer() as peer:
                reply = peer.ask("POST", "/v2/models/copy/infer",
                                 body if isinstance(body, bytes) else json.dumps(body).encode())
                self.assertEqual(peer.ask("GET", "/v2/health/live").code, 200)
                return reply.code
        for bad in (b"{", b"[]", b"{}x", b"", b"{\"inputs\":1}", b"{\"inputs\":[1]}",
                    b"[" * 100000, b'{"inputs":[],"inputs":[]}', b"\xff",
                    {"inputs": []}, {"inputs": [dict(X, shape=[1, 5])]},
                    {"inputs": [dict(X, data=[1, 2, 3])]}, {"inputs": [dict(X, data=5)]},
                    {"inputs": [dict(X, data=[1, 2, 3, "4"])]},
                    {"inputs": [dict(X, data=[1, 2, 3, 1e39])]},
                    {"inputs": [dict(X, datatype="FP31")]}, {"inputs": [dict(X, shape=[-1, 4])]},
                    {"inputs": [dict(X, shape=[1 << 62, 4])]}, {"inputs": [X, X]},
                    {"inputs": [dict(X, shape=[1 << 30, 4])]},
                    {"inputs": [X], "outputs": [{"name": "z"}]},
                    {"inputs": [X], "parameters": {"sequence_id": 7}},
                    {"inputs": [X], "parameters": {"binary_data_output": 1}},
                    {"inputs": [dict(X, parameters={"binary_data_size": 16})]},
                    {"inputs": [dict(X, parameters={"shared_memory_region": "a"})]},
                    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]},
                    {"inputs": [X], "id": "a" * 1000}, {"id": "\x00" + "a" * 20000}):
            self.assertEqual(infer(bad), 400, bad)
        self.assertEqual(infer({"inputs": [X], "parameters": {"sequence_id": 0, "x": [1]}}), 200)

    def binary(self, rows, **parameters):
        """A request with binary data: JSON length, whole body."""
        data = struct.pack(f"<{4 * rows}f", *range(4 * rows))
        text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4],
                                       "parameters": {"binary_data_size": len(data)}}],
                           "parameters": parameters}).encode()
        return len(text), text + data, data

    def test_binary_tensors(self):
        with self.peer() as peer:
            for wanted in (True, False):
                n, body, data = self.binary(2, binary_data_output=wanted)
                reply = peer.ask("POST", "/v2/models/copy/infer", body,
                                 Inference_Header_Content_Length=n)
                self.assertEqual(reply.code, 200, reply.body)
                output = reply.json()["outputs"][0]
                if wanted:
                    self.assertEqual(output["parameters"], {"binary_data_size": len(data)})
                    self.assertEqual(reply.body[-len(data):], data)
                    self.assertEqual(reply.fields["content-type"], "application/octet-stream")
                else:
                    self.assertEqual(output["data"], [float(i) for i in range(8)])
            for length, cut in ((n - 1, 0), (n, 1), (n + 1, 0), (10 ** 9, 0), ("x", 0), (0, 0)):
                reply = peer.ask("POST", "/v2/models/copy/infer", body[:len(body) - cut],
                                 Inference_Header_Content_Length=length)
                self.assertEqual(reply.code, 400)
            # One input as binary data, the others as JSON.
            raw = struct.pack("<2f", 5, 6)
            text = json.dumps({"inputs": [
                tensor("n", "INT64", [1, 1], [7]),
                {"name": "a", "datatype": "FP32", "shape": [1, 2],
                 "parameters": {"binary_data_size": 8}},
                tensor("b", "FP32", [1, 2], [1, 1])],
                "outputs": [{"name": "sum", "parameters": {"binary_data": True}}, {"name": "m"}]})
            reply = peer.ask("POST", "/v2/models/pair/infer", text.encode() + raw,
                             Inference_Header_Content_Length=len(text))
            self.assertEqual(struct.unpack("<2f", reply.body[-8:]), (6, 7))
            self.assertEqual(reply.json()["outputs"][1]["data"], [7])

    def test_streams_cut_anywhere(self):
        n, body, _ = self.binary(2, binary_data_output=True)
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:9], body[9:], b""))
        stream = request("POST", "/v2/models/copy/infer", body,
                         Inference_Header_Content_Length=n) + \
            request("GET", "/v2/health/live") + \
            request("POST", "/v2/models/copy/infer", {"inputs": [X]}) + \
            request("POST", "/v2/models/copy/infer", None, Transfer_Encoding="chunked",
                    Inference_Header_Content_Length=n) + chunked + \
            request("POST", "/v2/models/none/infer", {"inputs": [X]}) + \
            request("GET", "/v2", None, Connection="close")
        codes = [200, 200, 200, 200, 404, 200]
        peer = self.peer()
        peer.send(stream)
        self.assertEqual([peer.reply().code for _ in codes], codes)
        self.assertTrue(peer.ended())
        for cut in range(1, len(stream), 61):
            peer = self.peer()
            peer.send(stream[:cut])
            time.sleep(0.002)
            peer.send(stream[cut:])
            self.assertEqual([peer.reply().code for _ in codes], codes, cut)
        peer = self.peer()
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for k in range(len(stream)):
            peer.send(stream[k:k + 1])
        self.assertEqual([peer.reply().code for _ in codes], codes)

    def test_pipelining(self):
        peer = self.peer()
        peer.send(b"".join(request("POST", "/v2/models/copy/infer", {"id": str(k), "inputs": [X]})
                           for k in range(500)))
        peer.socket.shutdown(socket.SHUT_WR)
        self.assertEqual([peer.reply().json()["id"] for k in range(500)],
                         [str(k) for k in range(500)])
        self.assertTrue(peer.ended())

    def test_versions(self):
        peer = self.peer()
        peer.send("GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.assertEqual(peer.reply().fields["connection"], "keep-alive")
        peer.send("GET /v2/health/live HTTP/1.0\r\n\r\n")
        self.assertEqual(peer.reply().fields["connection"], "close")
        self.assertTrue(peer.ended())

    def test_compressed(self):
        n, body, data = self.binary(3, binary_data_output=True)
        small = json.dumps({"inputs": [X]}).encode()
        bomb = small[:-1] + b" " * (40 << 20) + b"}"
        with self.peer() as peer:
            for coding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
                reply = peer.ask("POST", "/v2/models/copy/infer", pack(small),
                                 Content_Encoding=coding)
                self.assertEqual(reply.json()["outputs"][0]["data"], [1, 2, 3, 4])
                reply = peer.ask("POST", "/v2/models/copy/infer", pack(body),
                                 Content_Encoding=coding, Inference_Header_Content_Length=n)
                self.assertEqual(reply.body[-len(data):], data)
                for bad in (pack(small)[:-3], pack(small) + b"x", b"x" * 50, pack(bomb)):
                    reply = peer.ask("POST", "/v2/models/copy/infer", bad, Content_Encoding=coding)
                    self.assertIn(reply.code, (400, 429))
            self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", small,
                                      Content_Encoding="br").code, 415)
            self.assertEqual(peer.ask("GET", "/v2").code, 200)

    def test_a_server_that_goes(self):
        with self.peer() as idle, self.peer() as busy:
            self.assertEqual(idle.ask("GET", "/v2").code, 200)
            n, body, _ = self.binary(2)
            whole = request("POST", "/v2/models/copy/infer", body,
                            Inference_Header_Content_Length=n)
            busy.send(whole[:-5])
            time.sleep(0.1)
            self.server.signal(signal.SIGTERM)
            self.assertTrue(idle.ended())
            try:
                busy.send(whole[-5:])
                reply = busy.reply()
            except (EOFError, OSError):
                return  # it had gone before
            self.assertEqual((reply.code, reply.fields["connection"]), (503, "close"))

    def test_expect(self):
        n, body, data = self.binary(2)
        with self.peer() as peer:
            peer.send(request("POST", "/v2/models/copy/infer", None, Expect="100-continue",
                              Content_Length=len(body), Inference_Header_Content_Length=n))
            self.assertEqual(peer.reply().code, 100)
            peer.send(body)
            self.assertEqual(peer.reply().code, 200)
        self.refused(413, request("POST", "/v2/models/copy/infer", None, Expect="100-continue",
                                  Content_Length=1 << 40))
        self.refused(404, request("POST", "/v3", None, Expect="100-continue", Content_Length=10))
        self.refused(417, request("POST", "/v2", None, Expect="a miracle", Content_Length=10))

    def test_two_readings(self):
        """What a proxy in front might read in another way."""
        post = "POST /v2/models/copy/infer HTTP/1.1\r\nHost: a\r\n"
        hidden = "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
        for fields in ("Content-Length: 4\r\nContent-Length: 5", "Content-Length: 4, 4",
                       "Content-Length: 4\r\nTransfer-Encoding: chunked",
                       "Transfer-Encoding: chunked\r\nContent-Length: 4", "Content-Length: -1",
                       "Content-Length: 0x4", "Content-Length: +4", "Content-Length : 4",
                       "Transfer-Encoding: chunked\r\n x", "Transfer-Encoding\r\n: chunked",
                       "Transfer-Encoding: chunked\nX: y", "X: a\rb", "X: a\x00b", "Host: b",
                       "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"):
            self.refused(400, f"{post}{fields}\r\n\r\n0\r\n\r\n{hidden}")
        for coding in ("xchunked", "identity", "chunked, gzip", "gzip, chunked", "\x0bchunked"):
            self.refused((400, 501), f"{post}Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n{hidden}")
        chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
        for body in ("g\r\n", "-1\r\n", "5\nhello\r\n", "5\r\nhello0\r\n\r\n", "1" * 17 + "\r\n",
                     "0x1\r\na\r\n", "\r\n5\r\n"):
            self.refused(400, chunked + body)
        self.refused(400, "GET /v2 HTTP/1.1\r\n\r\n")
        self.refused(400, b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03")
        self.refused(505, "GET /v2 HTTP/2.0\r\nHost: a\r\n\r\n")
        self.refused(400, "\r\n".join(["GET /v2 HTTP/1.1", "Host: a", " b", "", ""]))

    def test_http2_on_the_same_port(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
        for step in (1, len(preface)):
            peer = self.peer()
            for k in range(0, len(preface), step):
                peer.send(preface[k:k + step])
            self.assertEqual(peer.stream.read(5)[3:4], b"\x04")  # its settings
        peer = self.peer()
        peer.send(request("GET", "/v2"))
        self.assertEqual(peer.reply().code, 200)
        peer.send(preface)  # too late
        self.assertTrue(peer.ended())

    def test_r8_limits(self):
        self.refused(431, "GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + "x" * 20000)
        self.refused(431, "GET /v2 HTTP/1.1\r\nHost: a\r\n" + "a: b\r\n" * 200)
        self.refused(414, "GET /" + "x" * 20000)
        self.refused(413, request("POST", "/v2/models/copy/infer", None, Content_Length=17 << 20))
        peer = self.peer()
        peer.send(request("POST", "/v2/models/copy/infer", None, Transfer_Encoding="chunked"))
        try:
            for _ in range(40):
                peer.send(b"80000\r\n" + bytes(1 << 19) + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.assertEqual(peer.reply().code, 413)

    def test_time_limits(self):
        with self.peer() as head, self.peer() as body, self.peer() as idle:
            head.send("GET /v2 HT")
            body.send(request("POST", "/v2/models/copy/infer", None, Content_Length=100) + b"x")
            begin = time.monotonic()
            self.assertTrue(head.ended())
            self.assertLess(time.monotonic() - begin, 9)
            self.assertTrue(body.ended())
            self.assertLess(time.monotonic() - begin, 25)
            self.assertEqual(idle.ask("GET", "/v2").code, 200)

    def test_pages_of_other_origins(self):
        with self.peer() as peer:
            self.assertEqual(peer.ask("GET", "/v2", None, Origin="http://a").code, 200)
            self.assertEqual(peer.ask("GET", "/v2", None, Origin="http://evil").code, 403)
            self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", {"inputs": [X]},
                                      Origin="null").code, 403)

    def test_large_json_lets_others_go_on(self):
        numbers = [((k * 2654435761) % 1000003) / 7 for k in range(BIG)]
        body = json.dumps({"inputs": [tensor("x", "FP32", [1, BIG], numbers)]}).encode()
        with self.peer() as large, self.peer() as small:
            large.send(request("POST", "/v2/models/wide/infer", body))
            longest, n, begin = 0, 0, time.monotonic()
            large.socket.setblocking(False)
            while True:
                asked = time.monotonic()
                self.assertEqual(small.ask("GET", "/v2/health/live").code, 200)
                longest, n = max(longest, time.monotonic() - asked), n + 1
                try:
                    large.socket.recv(1, socket.MSG_PEEK)
                    break
                except BlockingIOError:
                    self.assertLess(time.monotonic() - begin, 60)
            took = time.monotonic() - begin
            large.socket.settimeout(60)
            got = large.reply().json()["outputs"][0]["data"]
            expected = struct.unpack(f"<{BIG}f", struct.pack(f"<{BIG}f", *numbers))
            self.assertEqual([struct.unpack("<f", struct.pack("<f", v))[0] for v in got],
                             list(expected))
            self.assertGreater(n, 5)
            self.assertLess(longest, max(0.2, took / 4))

    def test_a_reader_that_leaves(self):
        """A large reply in steps, whose peer goes away or reads slowly."""
        body = json.dumps({"inputs": [tensor("x", "FP32", [1, BIG], [0.1] * BIG)]}).encode()
        for _ in range(3):
            peer = self.peer()
            peer.send(request("POST", "/v2/models/wide/infer", body))
            peer.socket.recv(1)
            peer.close()
        peer = self.peer()
        peer.send(request("POST", "/v2/models/wide/infer", body) + request("GET", "/v2"))
        peer.socket.shutdown(socket.SHUT_WR)
        self.assertEqual(len(peer.reply().json()["outputs"][0]["data"]), BIG)
        self.assertEqual(peer.reply().code, 200)
        self.assertTrue(peer.ended())
        peer = self.peer()
        peer.send(request("POST", "/v2/models/wide/infer", body, Connection="close"))
        self.assertEqual(len(peer.reply().json()["outputs"][0]["data"]), BIG)
        self.assertTrue(peer.ended())


class Memory(unittest.TestCase):
    """Peers that hold what there is of memory, and others beside them."""

    def test_little_memory(self):
        limits = {"frame_bytes": "1MiB", "connection_inflight_bytes": "2MiB",
                  "inflight_bytes": "8MiB", "frame_timeout_ms": 3000, "connections": 400}
        with harness.Server({"copy": harness.plan("copy")}, {"limits": limits},
                            arguments=["--http", "127.0.0.1:0"]) as server:
            address = door(server)
            greedy = [Peer(address) for _ in range(100)]
            for k, peer in enumerate(greedy):
                peer.send(request("POST", "/v2/models/copy/infer", None,
                                  **({"Transfer_Encoding": "chunked"} if k % 2 else
                                     {"Content_Length": 1 << 20})) +
                          (b"fffff\r\n" if k % 2 else b"") + b" " * (150 << 10))
            with Peer(address) as peer:
                codes = {peer.ask("POST", "/v2/models/copy/infer", {"inputs": [X]}).code
                         for _ in range(50)}
                self.assertLessEqual(codes, {200, 429})
            for peer in greedy:
                peer.close()
            time.sleep(0.3)
            with Peer(address) as peer:
                reply = peer.ask("POST", "/v2/models/copy/infer", {"inputs": [X]})
                self.assertEqual(reply.code, 200, reply.body)
            with server.client() as probe:
                self.assertEqual(wire.one(probe.call(wire.STATUS).body, 8, 0), 0)


class Strangers(unittest.TestCase):
    """Tokens over HTTP."""

    def test_tokens(self):
        token, line = subprocess.run([harness.INFERCTL, "token", "team", "--rights", "infer"],
                                     capture_output=True, text=True, check=True,
                                     timeout=harness.PATIENCE).stdout.splitlines()
        tokens = harness.folder() / "http.tokens"
        tokens.write_text(line + "\n")
        tokens.chmod(0o600)
        server = harness.Server({"copy": harness.plan("copy"), "wide": harness.plan("wide")},
                                {"tokens": str(tokens)}, arguments=["--http", "127.0.0.1:0"])
        with server:
            address = door(server)
            body = {"inputs": [X]}
            bearer = f"Bearer {token}"
            with Peer(address) as peer:
                self.assertEqual(peer.ask("GET", "/v2/health/ready").code, 200)
                reply = peer.ask("POST", "/v2/models/copy/infer", body)
                self.assertEqual((reply.code, reply.fields["www-authenticate"]), (401, "Bearer"))
                self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", body,
                                          Authorization="Bearer no").code, 401)
                self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", body,
                                          Authorization=bearer).code, 200)
                self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", body,
                                          Authorization=f"bearer   {token}").code, 200)
                self.assertEqual(peer.ask("GET", "/v2/models/copy", Authorization=bearer).code, 403)
                self.assertEqual(peer.ask("POST", "/v2/models/copy/infer", body).code, 401)
            large = json.dumps({"inputs": [tensor("x", "FP32", [1, BIG], [0] * BIG)]}).encode()
            for field, code in (({}, 413), ({"Authorization": bearer}, 200)):
                with Peer(address) as peer:
                    peer.send(request("POST", "/v2/models/wide/infer", large, **field))
                    self.assertEqual(peer.reply().code, code)


if __name__ == "__main__":
    harness.main()
