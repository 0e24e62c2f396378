#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one address, one connection or one stranger may take of the server, and who gives way.

    test_shares.py INFERD INFERCTL
"""
import os
import pathlib
import socket
import struct
import tempfile
import time
import unittest

import harness
import wire

X4 = struct.pack("<4f", 1, 2, 3, 4)
COPY = wire.infer_body("copy", [("x", "FP32", [1, 4], X4)])
WIDE = wire.infer_body("wide", [("x", "FP32", [1, 1 << 18], bytes(1 << 20))])


def server(limits=None, models=("copy",), **config):
    env = config.pop("env", None)
    return harness.Server({name: harness.plan(name) for name in models},
                          dict(config, limits=limits or {}), env=env)


class From(wire.Client):
    """A client at another address of the loopback network."""

    def __init__(self, s, address):
        host, port = s.address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(20)
        self.socket.bind((address, 0))
        self.socket.connect((host, int(port)))
        self.next_id = 0


class Addresses(unittest.TestCase):
    def test_r18_connections_of_an_address(self):
        with server({"address_connections": 3}) as s:
            mine = [From(s, "127.0.0.2") for _ in range(3)]
            for client in mine:
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
            self.assertTrue(From(s, "127.0.0.2").closed())
            with From(s, "127.0.0.3") as other:
                self.assertEqual(other.call(wire.INFER, COPY).status, wire.OK)
                self.assertEqual(other.counters()["refused_address_connections"], 1)
            mine.pop().close()  # then its place is free

            def served_again():
                with From(s, "127.0.0.2") as client:
                    try:
                        return client.call(wire.INFER, COPY).status == wire.OK
                    except (EOFError, ConnectionError):
                        return False

            harness.until(served_again)

    def test_r18_requests_of_an_address(self):
        # the first batch gives all requests the time to come
        with server({"address_requests": 4}, device="fault", max_batch=1,
                    env={"INFERD_FAULT_SCRIPT": "on=cpu;launch#1:delay=2s"}) as s:
            with From(s, "127.0.0.2") as one, From(s, "127.0.0.2") as two, \
                    From(s, "127.0.0.3") as other:
                for client in (one, two):
                    client.send(b"".join(wire.request(i, wire.INFER, COPY) for i in range(1, 6)))
                self.assertEqual(other.call(wire.INFER, COPY).status, wire.OK)
                replies = [c.receive() for c in (one, two) for _ in range(5)]
                refused = [r for r in replies if r.status == wire.RESOURCE_EXHAUSTED]
                self.assertEqual(len([r for r in replies if r.status == wire.OK]) + len(refused),
                                 10)
                self.assertGreaterEqual(len(refused), 4)
                self.assertIn("4 requests of this address are in flight", refused[0].message)
                counters = other.counters()
                self.assertEqual((counters["rejected_address"], counters["rejected_memory"]),
                                 (len(refused), 0))
                self.assertEqual(one.call(wire.INFER, COPY).status, wire.OK)

    def test_r18_bytes_of_an_address(self):
        limits = {"frame_bytes": 2 << 20, "address_inflight_bytes": 3 << 20}
        with server(limits, ("copy", "wide")) as s:
            holders = [From(s, "127.0.0.2") for _ in range(4)]
            for client in holders:  # all but the last byte
                client.send(wire.request(1, wire.INFER, WIDE)[:-1])
            with From(s, "127.0.0.3") as other:
                for _ in range(5):
                    self.assertEqual(other.call(wire.INFER, WIDE).status, wire.OK)
            statuses = []
            for client in holders:
                client.send(wire.request(1, wire.INFER, WIDE)[-1:])
                statuses.append(client.receive().status)
                client.close()
            self.assertIn(wire.RESOURCE_EXHAUSTED, statuses)
            self.assertIn(wire.OK, statuses)
            with s.client() as client:
                harness.until(lambda: wire.one(client.call(wire.STATUS).body, 8, 0) == 0)


class Slots(unittest.TestCase):
    def test_r23_the_idlest_connection_makes_room(self):
        with server({"connections": 10}) as s:
            crowd = [s.client() for _ in range(10)]
            for client in crowd:
                self.assertEqual(client.call(wire.LIVE).status, wire.OK)
            time.sleep(1.2)
            for client in crowd[1:]:  # all but the first are of use
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
            with s.client() as late:
                self.assertEqual(late.call(wire.INFER, COPY).status, wire.OK)
                self.assertEqual(late.counters()["connections_evicted"], 1)
            self.assertTrue(crowd[0].closed())
            for client in crowd[1:]:
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
                client.close()

    def test_r23_nobody_is_closed_while_nobody_waits(self):
        with server({"connections": 10}) as s:
            crowd = [s.client() for _ in range(10)]
            for client in crowd:
                self.assertEqual(client.call(wire.LIVE).status, wire.OK)
            time.sleep(1.5)
            for client in crowd:
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
            counters = crowd[0].counters()
            self.assertEqual((counters["connections_evicted"], counters["accept_paused"]), (0, 0))
            for client in crowd:
                client.close()

    def test_r23_slots_held_by_half_a_request(self):
        """Connections that send a byte now and then count as useless too."""
        with server({"connections": 8}) as s:
            crowd = [s.client() for _ in range(8)]
            for client in crowd:
                client.send(struct.pack(">I", 100))
            time.sleep(1.2)
            for _ in range(3):
                for client in crowd:
                    try:
                        client.send(b"\x08")
                    except OSError:
                        pass
                with s.client() as late:
                    self.assertEqual(late.call(wire.INFER, COPY).status, wire.OK)
            for client in crowd:
                client.close()


class Sockets(unittest.TestCase):
    def test_other_protocols_are_said_in_the_log_once(self):
        with server() as s:
            for begin in (b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n",
                          b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
                with s.client() as client:
                    client.send(begin)
                    self.assertTrue(client.closed())
            with s.client() as client:
                self.assertEqual(client.counters()["foreign_protocol"], 3)
            self.assertEqual(s.log().count("to a port of another protocol"), 1)

    def test_stopping_leaves_a_newer_socket_alone(self):
        path = pathlib.Path(tempfile.mkdtemp(dir=harness.folder())) / "inferd.sock"
        older = server(listen={"framed": [f"unix:{path}"]})
        os.unlink(path)
        with server(listen={"framed": [f"unix:{path}"]}) as newer:
            older.stop()
            self.assertTrue(path.exists())
            with newer.client() as client:
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
        self.assertFalse(path.exists())

    def test_urgent_data_ends_a_connection_that_waits(self):
        with server({"connection_requests": 1}, device="fault", max_batch=1,
                    env={"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=300ms"}) as s:
            with s.client() as client:
                client.start(wire.INFER, COPY)
                client.socket.send(b"x", socket.MSG_OOB)
                time.sleep(0.05)
            with s.client() as client:
                self.assertEqual(client.call(wire.INFER, COPY).status, wire.OK)
                harness.until(lambda: wire.one(client.call(wire.STATUS).body, 7, 0) == 1)


class Readers(unittest.TestCase):
    def test_r21_who_reads_by_the_byte_is_too_slow(self):
        """Any progress used to be enough, so that 64 MiB could be held for ever."""
        limits = {"frame_timeout_ms": 1000, "receive_rate": 1 << 20}
        with server(limits, ("copy", "wide")) as s, s.client() as slow, s.client() as other:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

            def closed():
                try:
                    slow.socket.recv(4096)
                except OSError:
                    pass
                return other.counters()["timeouts_write"] == 1

            try:
                for _ in range(12):
                    slow.start(wire.INFER, WIDE)
            except (ConnectionResetError, BrokenPipeError):
                pass  # it took this client longer than the limit
            slow.socket.settimeout(0.2)
            harness.until(closed)
            self.assertEqual(other.call(wire.INFER, COPY).status, wire.OK)

    def test_r20_who_asks_and_does_not_read_gets_no_more_answers(self):
        with server() as s, s.client() as quiet, s.client() as other:
            quiet.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            quiet.socket.settimeout(0.5)
            data = wire.request(1, wire.STATUS) * 1000
            try:
                for _ in range(400):
                    quiet.send(data)
            except TimeoutError:
                pass
            else:
                self.fail("400,000 questions were taken from somebody who reads no answer")
            body = other.call(wire.STATUS).body
            rows = {wire.text(m, 1): wire.one(m, 2, 0) for m in map(wire.decode, body[12])}
            self.assertLess(rows["of these, replies not read"], 2 << 20)


if __name__ == "__main__":
    harness.main()
