#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS at every door, certificates that change while the server serves, and
handshakes that go wrong.

    test_tls.py INFERD INFERCTL
"""
import asyncio
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import unittest

import harness
import wire
from test_http import BIG, Peer, Reply, X, door, request, tensor

HAVE_TRITON = all(importlib.util.find_spec(name) for name in
                  ("numpy", "tritonclient", "geventhttpclient", "grpc"))

if importlib.util.find_spec("numpy"):
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "client" / "python"))
    from inferd_client import AsyncClient, Client


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=120)


def authority(name):
    """A certificate that signs others: its file, and its key's."""
    key, cert = harness.folder() / f"{name}.key", harness.folder() / f"{name}.pem"
    if not cert.exists():
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}")
    return cert, key


def certificate(name, by, serial=1, days=2, names="DNS:localhost,IP:127.0.0.1"):
    """A certificate for localhost that the authority `by` has signed."""
    cert, key, asked = (harness.folder() / f"{name}.{end}" for end in ("pem", "key", "csr"))
    extensions = harness.folder() / "extensions"
    extensions.write_text(f"subjectAltName={names}\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", key, "-out", asked, "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", asked, "-CA", authority(by)[0], "-CAkey", authority(by)[1],
            "-out", cert, "-days", days, "-extfile", extensions, "-set_serial", serial)
    return cert, key


def at(address, **options):
    """The address of a server that speaks TLS, as our clients take it."""
    query = "&".join(f"{key}={value}" for key, value in options.items())
    return f"tls://{address}" + (f"?{query}" if query else "")


def inferctl(command, address, *arguments, code=0):
    done = subprocess.run([harness.INFERCTL, command, address, *map(str, arguments)],
                          capture_output=True, text=True, timeout=harness.PATIENCE)
    if done.returncode != code:
        raise AssertionError(f"{command} {address}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class TlsPeer(Peer):
    def __init__(self, address, context):
        super().__init__(address)
        plain = self.socket
        self.stream.close()
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.stream = self.socket.makefile("rb")


def trusting(by, client=None, alpn=None):
    context = ssl.create_default_context(cafile=str(authority(by)[0]))
    if client:
        context.load_cert_chain(*map(str, client))
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def serial_of(peer):
    return int(peer.socket.getpeercert()["serialNumber"], 16)


class Tls(unittest.TestCase):
    def start(self, limits=None, **listen):
        cert, key = certificate("server", "ours")
        self.config = {"certificate": str(cert), "certificate_key": str(key),
                       "framed": ["127.0.0.1:0"], "http": ["127.0.0.1:0"],
                       "grpc": ["127.0.0.1:0"], **listen}
        self.server = harness.Server({"copy": harness.plan("copy"), "wide": harness.plan("wide")},
                                     {"listen": self.config, "limits": limits or {}})
        self.addCleanup(self.server.kill)
        self.address = door(self.server)
        return self.server

    def peer(self, context=None):
        peer = TlsPeer(self.address, context or trusting("ours"))
        self.addCleanup(peer.close)
        return peer

    def test_requests(self):
        with self.start():
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = trusting("ours")
                context.minimum_version = context.maximum_version = version
                peer = self.peer(context)
                self.assertEqual(peer.ask("GET", "/v2/health/live").json(), {"live": True})
                reply = peer.ask("POST", "/v2/models/copy/infer", {"inputs": [X]})
                self.assertEqual(reply.json()["outputs"][0]["data"], [1, 2, 3, 4])
                peer.send(b"".join(request("GET", "/v2") for _ in range(50)))
                self.assertEqual([peer.reply().code for _ in range(50)], [200] * 50)
                self.assertEqual(peer.ask("GET", "/v2", None, Connection="close").code, 200)
                self.assertTrue(peer.ended())

    def test_large_tensors(self):
        with self.start():
            data = bytes(range(256)) * (4 * BIG // 256)
            text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, BIG],
                                           "parameters": {"binary_data_size": len(data)}}],
                               "parameters": {"binary_data_output": True}}).encode()
            peer = self.peer()
            for wait in (0, 0.3):
                peer.send(request("POST", "/v2/models/wide/infer", text + data,
                                  Inference_Header_Content_Length=len(text)))
                time.sleep(wait)  # what the socket does not take waits here
                self.assertEqual(peer.reply().body[-len(data):], data)
            body = {"inputs": [tensor("x", "FP32", [1, BIG], [0.5] * BIG)]}
            got = peer.ask("POST", "/v2/models/wide/infer", body).json()["outputs"][0]["data"]
            self.assertEqual(got, [0.5] * BIG)

    @unittest.skipUnless(HAVE_TRITON, "tritonclient is not installed")
    def test_clients(self):
        import numpy as np
        import tritonclient.grpc
        import tritonclient.http
        with self.start() as server:
            x = np.arange(BIG, dtype=np.float32).reshape(1, BIG)
            ca = str(authority("ours")[0])
            port = door(server, "grpc")[1]
            for kind, client in (
                    (tritonclient.grpc, tritonclient.grpc.InferenceServerClient(
                        f"localhost:{port}", ssl=True, root_certificates=ca)),
                    (tritonclient.http, tritonclient.http.InferenceServerClient(
                        f"localhost:{self.address[1]}", ssl=True,
                        ssl_options={"ca_certs": ca}))):
                self.assertTrue(client.is_server_ready())
                given = kind.InferInput("x", [1, BIG], "FP32")
                given.set_data_from_numpy(x)
                result = client.infer("wide", [given])
                np.testing.assert_array_equal(result.as_numpy("y"), x)
                client.close()

    def test_protocols_are_chosen(self):
        with self.start() as server:
            for offered, wanted in ((["h2", "http/1.1"], "http/1.1"), (["h2"], "h2"),
                                    (["x"], None), (None, None)):
                if offered == ["x"]:
                    with self.assertRaises(ssl.SSLError):
                        self.peer(trusting("ours", alpn=offered))
                    continue
                peer = self.peer(trusting("ours", alpn=offered))
                self.assertEqual(peer.socket.selected_alpn_protocol(), wanted)
            self.address = door(server, "grpc")
            peer = self.peer(trusting("ours", alpn=["http/1.1", "h2"]))
            self.assertEqual(peer.socket.selected_alpn_protocol(), "h2")

    def test_some_doors_in_the_clear(self):
        with self.start(tls=["grpc"]) as server:
            with Peer(self.address) as peer:
                self.assertEqual(peer.ask("GET", "/v2").code, 200)
            with server.client() as client:
                self.assertEqual(client.call(wire.LIVE).status, 0)

    def test_the_framed_protocol(self):
        with self.start(tls=["framed"]) as server:
            host, port = server.addresses[0].rsplit(":", 1)
            with TlsPeer((host, int(port)), trusting("ours")) as peer:
                peer.send(wire.request(7, wire.LIVE) * 3)
                for _ in range(3):
                    size = int.from_bytes(peer.stream.read(4), "big")
                    self.assertEqual(wire.one(wire.decode(peer.stream.read(size)), 1), 7)

    def metrics_door(self, **listen):
        self.start(metrics=["127.0.0.1:0"], **listen)
        self.server.wait_log("metrics ")
        address = re.search(r"(?m)^metrics (\S+)$", self.server.log()).group(1)
        self.address = (address.rpartition(":")[0], int(address.rpartition(":")[2]))

    def test_the_metrics(self):
        self.metrics_door(tls=["metrics"])
        with self.server:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = trusting("ours", alpn=["http/1.1"])
                context.minimum_version = context.maximum_version = version
                peer = self.peer(context)
                self.assertEqual(peer.socket.selected_alpn_protocol(), "http/1.1")
                self.assertIn(b"nv_inference_count", peer.ask("GET", "/metrics").body)
                self.assertIn(b"<html", peer.ask("GET", "/").body)
                peer.send(request("GET", "/metrics") * 30)  # many in a record, one in many records
                for k in range(0, len(request("GET", "/metrics")), 5):
                    peer.send(request("GET", "/metrics")[k:k + 5])
                self.assertEqual([peer.reply().code for _ in range(31)], [200] * 31)
                self.assertEqual(peer.ask("GET", "/metrics", None, Connection="close").code, 200)
                self.assertTrue(peer.ended())
            with Peer(self.address) as clear:
                clear.send(request("GET", "/metrics"))
                self.assertNotIn(b"nv_inference", clear.stream.read())
            with self.assertRaises(ssl.SSLError):
                self.peer(trusting("theirs"))
            self.assertEqual(self.peer().ask("GET", "/metrics").code, 200)

    def test_the_metrics_for_clients_with_certificates(self):
        self.metrics_door(tls=["metrics"], client_ca=str(authority("theirs")[0]))
        with self.server:
            peer = self.peer(trusting("ours", certificate("client", "theirs")))
            self.assertEqual(peer.ask("GET", "/metrics").code, 200)
            for client in (None, certificate("stranger", "ours")):
                with self.assertRaises((ssl.SSLError, ConnectionError, EOFError)):
                    self.peer(trusting("ours", client)).ask("GET", "/metrics")
            certificate("server", "ours", serial=78)
            self.server.signal(signal.SIGHUP)
            self.server.wait_log("reloaded")
            after = self.peer(trusting("ours", certificate("client", "theirs")))
            self.assertEqual(serial_of(after), 78)

    def test_clients_with_certificates(self):
        with self.start(client_ca=str(authority("theirs")[0])):
            peer = self.peer(trusting("ours", certificate("client", "theirs")))
            self.assertEqual(peer.ask("GET", "/v2").code, 200)
            for client in (None, certificate("stranger", "ours")):
                with self.assertRaises((ssl.SSLError, ConnectionError, EOFError)):
                    self.peer(trusting("ours", client)).ask("GET", "/v2")

    def test_certificates_change(self):
        with self.start() as server:
            before = self.peer()
            self.assertEqual(serial_of(before), 1)
            certificate("server", "ours", serial=77)
            server.signal(signal.SIGHUP)
            server.wait_log("reloaded")
            after = self.peer()
            self.assertEqual(serial_of(after), 77)
            self.assertEqual(before.ask("GET", "/v2").code, 200)
            # Files that do not fit together change nothing.
            (harness.folder() / "server.key").write_text(authority("ours")[1].read_text())
            server.signal(signal.SIGHUP)
            server.wait_log("reload failed, everything stays as it was: .*certificate_key")
            self.assertEqual(serial_of(self.peer()), 77)

    def test_handshakes_that_go_wrong(self):
        with self.start({"header_timeout_ms": 3000}) as server:
            silent = [Peer(self.address) for _ in range(20)]
            for k, peer in enumerate(silent):
                peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[:k])
            with Peer(self.address) as clear:  # HTTP in the clear
                clear.send(request("GET", "/v2"))
                clear.stream.read()
            with self.assertRaises(ssl.SSLError):
                self.peer(trusting("theirs"))  # it does not trust us
            old = trusting("ours")
            old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                self.peer(old)
            self.assertEqual(self.peer().ask("GET", "/v2").code, 200)
            begin = time.monotonic()
            for peer in silent:
                self.assertTrue(peer.ended())
                peer.close()
            self.assertLess(time.monotonic() - begin, 9)
            server.signal(0)

    def test_records_cut_anywhere(self):
        """Each record in pieces, by a relay between a client and the server."""
        with self.start():
            near, far = socket.socketpair()
            onward = socket.create_connection(self.address)
            onward.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def relay(source, sink, step):
                try:
                    while data := source.recv(4096):
                        for k in range(0, len(data), step):
                            sink.sendall(data[k:k + step])
                    sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the other side has gone
            threads = [harness.Background(relay, far, onward, 7),
                       harness.Background(relay, onward, far, 4096)]
            with trusting("ours").wrap_socket(near, server_hostname="localhost") as client:
                client.sendall(request("POST", "/v2/models/copy/infer", {"inputs": [X]}) * 20)
                stream = client.makefile("rb")
                self.assertEqual([Reply(stream).code for _ in range(20)], [200] * 20)
                stream.close()
                client.close()
            near.close()
            for thread in threads:
                thread.finish()
            far.close()
            onward.close()


class Clients(unittest.TestCase):
    """The framed protocol's clients: the library's blocking half (inferctl infer, models, status),
    its half on libuv (inferctl load), and Python's."""

    def start(self, cert=None, **listen):
        cert, key = cert or certificate("server", "ours")
        server = harness.Server({"copy": harness.plan("copy"), "wide": harness.plan("wide")},
                                {"listen": {"certificate": str(cert), "certificate_key": str(key),
                                            "framed": ["127.0.0.1:0"], "tls": ["framed"],
                                            **listen}})
        self.addCleanup(server.kill)
        self.ca = authority("ours")[0]
        self.address = server.addresses[0]
        self.port = self.address.rpartition(":")[2]
        return server

    def refused(self, expected, address):
        """Both halves say why; returns what was said."""
        for command in (["infer"], ["load", "--seconds", 0.1]):
            said = inferctl(command[0], address, "--model", "copy", *command[1:], code=1)
            self.assertRegex(said, expected)
            self.assertLess(len(said.splitlines()), 3, said)

    def test_requests(self):
        with self.start():
            for address in (self.address, f"localhost:{self.port}"):
                self.assertIn("copy", inferctl("models", at(address, ca=self.ca)))
                self.assertIn("y", inferctl("infer", at(address, ca=self.ca), "--model", "wide"))
            inferctl("status", at(self.address, ca=self.ca))
            for model in ("copy", "wide"):
                out = harness.folder() / "load.json"
                inferctl("load", at(self.address, ca=self.ca), "--model", model, "--seconds", 0.3,
                         "--concurrency", 8, "--connections", 2, "--json", out)
                point = json.loads(out.read_text())["points"][0]
                self.assertEqual(point["errors"], 0, point)
                self.assertGreater(point["requests"], 0, point)

    def ends(self, ask):
        """How the connections end that `ask`, called with an address, opens: a relay that speaks
        TLS to the client and passes all on in the clear sees whether it says goodbye."""
        ended = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(str, certificate("server", "ours")))
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def back(source, sink):
            try:
                while data := source.recv(65536):
                    sink.sendall(data)
            except OSError:
                pass  # the client has gone

        def relay(plain):
            onward = socket.create_connection(("127.0.0.1", int(self.port)))
            with context.wrap_socket(plain, server_side=True,
                                     suppress_ragged_eofs=False) as client, onward:
                thread = harness.Background(back, onward, client)
                try:
                    while data := client.recv(65536):
                        onward.sendall(data)
                    ended.append("goodbye")
                except OSError as cut:
                    ended.append(repr(cut))
                onward.shutdown(socket.SHUT_RDWR)
                thread.finish()

        def accept():
            while True:
                try:
                    relays.append(harness.Background(relay, listener.accept()[0]))
                except OSError:
                    return
        relays = []
        accepting = harness.Background(accept)
        ask(at(f"127.0.0.1:{listener.getsockname()[1]}", ca=authority("ours")[0]))
        harness.until(lambda: relays and len(ended) == len(relays))
        listener.shutdown(socket.SHUT_RDWR)
        for thread in (accepting, *relays):
            thread.finish()
        return ended

    def test_they_say_goodbye(self):
        with self.start(tls=["http"]):
            asks = [lambda to: inferctl("infer", to, "--model", "copy"),
                    lambda to: inferctl("load", to, "--model", "copy", "--seconds", 0.2,
                                        "--connections", 2)]
            if importlib.util.find_spec("numpy"):
                def python(to):
                    with Client(to) as client:
                        self.assertTrue(client.live())
                asks.append(python)
            for ask in asks:
                self.assertEqual(set(self.ends(ask)), {"goodbye"})

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_arrays(self):
        import numpy as np
        with self.start():
            x = np.random.default_rng(1).random((2, 1 << 18), np.float32)
            given, taken = harness.folder() / "x.npy", harness.folder() / "taken"
            taken.mkdir()
            np.save(given, x)
            inferctl("infer", at(self.address, ca=self.ca), "--model", "wide", "-i", f"x={given}",
                     "-o", taken)
            np.testing.assert_array_equal(np.load(taken / "y.npy"), x)
            with Client(at(f"localhost:{self.port}", ca=self.ca)) as client:
                np.testing.assert_array_equal(client.infer("wide", {"x": x})["y"], x)

            async def ask():
                async with AsyncClient(at(self.address, ca=self.ca)) as client:
                    return await client.infer("wide", {"x": x})
            np.testing.assert_array_equal(asyncio.run(ask())["y"], x)

    def test_servers_that_are_not_trusted(self):
        with self.start():
            self.refused('certificate of the server.*self-signed certificate|unable to get local',
                         at(self.address, ca=authority("theirs")[0]))
            self.refused("certificate of the server.*(self-signed|unable to get local)",
                         at(self.address))  # the system's authorities
            self.refused('"elsewhere.example": hostname mismatch',
                         at(self.address, ca=self.ca, name="elsewhere.example"))
            inferctl("models", at(self.address, ca=self.ca, name="localhost"))
        with self.start(certificate("expired", "ours", days=-1)):
            self.refused("certificate has expired", at(self.address, ca=self.ca))
        with self.start(certificate("named", "ours", names="DNS:serving.example")):
            self.refused('"127.0.0.1": IP address mismatch', at(self.address, ca=self.ca))
            self.refused('"localhost": hostname mismatch',
                         at(f"localhost:{self.port}", ca=self.ca))
            inferctl("models", at(self.address, ca=self.ca, name="serving.example"))

    def test_clients_with_certificates(self):
        for version in ("TLSv1.2", "TLSv1.3"):
            os.environ["OPENSSL_CONF"] = str(only(version))
            self.addCleanup(os.environ.pop, "OPENSSL_CONF", None)
            with self.start(client_ca=str(authority("theirs")[0])):
                cert, key = certificate("client", "theirs")
                known = at(self.address, ca=self.ca, cert=cert, key=key)
                inferctl("infer", known, "--model", "wide")
                inferctl("load", known, "--model", "wide", "--seconds", 0.1)
                self.refused("TLS: the server refuses: .*(certificate required|handshake failure)",
                             at(self.address, ca=self.ca))
                cert, key = certificate("stranger", "ours")
                self.refused("TLS: the server refuses: .*unknown ca",
                             at(self.address, ca=self.ca, cert=cert, key=key))
            os.environ.pop("OPENSSL_CONF")

    def test_who_does_not_speak_it(self):
        with self.start():
            self.refused("closed the connection|was lost", self.address)
        with self.start(tls=["http"]):
            self.refused("does not speak it|closed the connection", at(self.address, ca=self.ca))

    def test_addresses_and_files(self):
        cert, key = certificate("client", "theirs")
        for expected, address in (
                ("expected ca=FILE", "tls://127.0.0.1:1?verify=no"),
                ("expected ca=FILE", "tls://127.0.0.1:1?ca="),
                ("expected ca=FILE", "tls://127.0.0.1:1?name=a&name=b"),
                ("expected cert=FILE beside key=", f"tls://127.0.0.1:1?key={key}"),
                ("TLS is spoken over TCP", "tls://unix:/tmp/x"),
                ("expected HOST:PORT", "tls://"),
                ("expected HOST:PORT", "tls://127.0.0.1"),
                ("No such file", "tls://127.0.0.1:1?ca=/nonexistent/ca.pem"),
                ("No such file", "tls://127.0.0.1:1?cert=/nonexistent/me.pem"),
                ("key values mismatch",
                 f"tls://127.0.0.1:1?cert={cert}&key={authority('ours')[1]}")):
            self.refused(expected, address)

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_python_says_why(self):
        with self.start(client_ca=str(authority("theirs")[0])):
            cert, key = certificate("client", "theirs")
            for wanted, options in (
                    ("certificate verify failed", {"ca": authority("theirs")[0]}),
                    ("mismatch", {"ca": self.ca, "name": "elsewhere.example"}),
                    ("(?i)certificate.required", {"ca": self.ca}),
                    (None, {"ca": self.ca, "cert": cert, "key": key})):
                def blocking():
                    with Client(at(self.address, **options)) as client:
                        return client.live()

                async def one():
                    async with AsyncClient(at(self.address, **options)) as client:
                        return await client.live()
                for ask in (blocking, lambda: asyncio.run(one())):
                    if wanted:
                        with self.assertRaisesRegex((OSError, EOFError), wanted):
                            ask()
                    else:
                        self.assertTrue(ask())
        for address in ("tls://a:1?verify=no", "tls://a:1?key=x", "tls://unix:/x", "tls://a:x"):
            with self.assertRaises(ValueError):
                Client(address)


def only(version):
    """A configuration of OpenSSL with which clients speak one version of TLS."""
    path = harness.folder() / f"{version}.cnf"
    path.write_text("openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = these\n"
                    f"[these]\nMinProtocol = {version}\nMaxProtocol = {version}\n")
    return path


if __name__ == "__main__":
    harness.main()
