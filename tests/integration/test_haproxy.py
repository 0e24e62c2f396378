#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three servers behind HAProxy, by deploy/haproxy/haproxy.cfg, under load over all doors: a rolling
restart, a host that is killed, and a slow one.

    test_haproxy.py INFERD INFERCTL SOURCE_ROOT
"""
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

import harness
import wire

ROOT = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(".")
HOSTS, PORTS = {"1": "a", "2": "b", "3": "c"}, ("8000", "8001", "8003")
X4 = b"\0\0\x80\x3f" * 4

if not shutil.which("haproxy"):
    print("SKIP: there is no haproxy")
    sys.exit(77)
try:
    import numpy as np
    import tritonclient.grpc as triton
except ImportError:
    triton = None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Host:
    """A server that comes back on its ports."""

    def __init__(self, env=None, config=None):
        self.ports = {port: free_port() for port in PORTS}
        at = {port: [f"127.0.0.1:{n}"] for port, n in self.ports.items()}
        self.config = {"listen": {"http": at["8000"], "grpc": at["8001"], "framed": at["8003"]},
                       "drain_delay_ms": 2000, **(config or {})}
        self.env = env
        self.start()

    def start(self):
        self.server = harness.Server({"m": harness.plan("copy")}, self.config, env=self.env)


class Farm(contextlib.AbstractContextManager):
    def __init__(self, **third):
        self.hosts = [Host(), Host(), Host(**third)]
        text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
        self.front = {port: free_port() for port in PORTS}
        for port, n in self.front.items():
            text = text.replace(f"bind 127.0.0.1:{port}", f"bind 127.0.0.1:{n}")
        for i, host in enumerate(self.hosts, 1):
            for port, n in host.ports.items():
                text = text.replace(f"10.0.0.{i}:{port} ", f"127.0.0.1:{n} ")
                text = text.replace(f"10.0.0.{i}:{port}\n", f"127.0.0.1:{n}\n")
            text = re.sub(rf"(127.0.0.1:(?:{host.ports['8001']}|{host.ports['8003']}) .*)port 8000",
                          rf"\1port {host.ports['8000']}", text)
        assert "10.0.0." not in text and "port 8000" not in text, text
        path = harness.folder() / "haproxy.cfg"
        path.write_text(text)
        self.log = open(harness.folder() / "haproxy.log", "wb")
        self.proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=self.log,
                                      stderr=self.log)
        harness.until(lambda: self.answers("http"), 20)

    def answers(self, door):
        try:
            state = {}
            Load.ASK[door](self, state)
        except Exception:
            return False
        finally:
            for client in state.values():
                client.close()
        return True

    def __exit__(self, *_):
        self.proxy.terminate()
        self.proxy.wait(20)
        self.log.close()
        for host in self.hosts:
            host.server.kill()


class Load:
    """One client of a door: how many requests were answered, what failed and what was lost with
    its connection."""

    def __init__(self, farm, door):
        self.farm, self.door = farm, door
        self.ok = 0
        self.failed, self.cut = [], []
        self.state = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def http(self, state):
        if "http" not in state:
            state["http"] = http.client.HTTPConnection("127.0.0.1", self.front["8000"], timeout=20)
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4],
                                       "data": [1, 1, 1, 1]}]})
        try:
            state["http"].request("POST", "/v2/models/m/infer", body)
            reply = state["http"].getresponse()
            text = reply.read()
        except BaseException:
            state.pop("http").close()
            raise
        assert reply.status == 200, (reply.status, text)

    def framed(self, state):
        try:
            if "framed" not in state:
                state["framed"] = wire.Client(f"127.0.0.1:{self.front['8003']}", timeout=20)
            reply = state["framed"].infer("m", [("x", "FP32", [1, 4], X4)])
            # a refusal too ends the connection: a new one leads to another host
            assert reply.status == 0, (reply.status, reply.message)
        except BaseException:
            if "framed" in state:
                state.pop("framed").close()
            raise

    def grpc(self, state):
        if "grpc" not in state:
            state["grpc"] = triton.InferenceServerClient(f"127.0.0.1:{self.front['8001']}")
            state["x"] = triton.InferInput("x", [1, 4], "FP32")
            state["x"].set_data_from_numpy(np.ones((1, 4), np.float32))
        state["grpc"].infer("m", [state["x"]], client_timeout=20)

    ASK = {"http": http, "framed": framed, "grpc": grpc}

    def lost_connection(self, error):
        """What a client may send again: the connection ended, or the server asks for it."""
        if isinstance(error, (EOFError, ConnectionError, http.client.BadStatusLine)):
            return True
        text = str(error)
        return "UNAVAILABLE" in text or "(502" in text or "(503" in text or "(14," in text

    def run(self):
        while not self.over.is_set():
            try:
                self.ASK[self.door](self.farm, self.state)
                self.ok += 1
            except Exception as error:  # noqa: whatever it is, it is counted
                (self.cut if self.lost_connection(error) else self.failed).append(repr(error))

    def end(self):
        self.over.set()
        self.thread.join(60)
        for client in self.state.values():
            if hasattr(client, "close"):
                client.close()


class HAProxy(unittest.TestCase):
    def doors(self):
        return ["http", "framed"] + (["grpc"] if triton else [])

    @contextlib.contextmanager
    def loads(self, farm, each=2):
        loads = [Load(farm, door) for door in self.doors() for _ in range(each)]
        try:
            self.wait(loads, 20)
            yield loads
            self.wait(loads, 20)
        finally:
            for load in loads:
                load.end()
        for load in loads:
            self.assertEqual(load.failed, [], load.door)

    def wait(self, loads, more):
        """Until each has had so many further answers."""
        wanted = {load: load.ok + more for load in loads}
        harness.until(lambda: all(load.ok >= wanted[load] for load in loads), 60)

    def test_a_rolling_restart_fails_nothing(self):
        with Farm() as farm:
            with self.loads(farm) as loads:
                for host in farm.hosts:
                    host.server.stop()
                    self.wait(loads, 20)
                    host.start()
                    time.sleep(1.5)  # two checks: it is in again
                    self.wait(loads, 20)
            for load in loads:
                if load.door == "http":  # sent again by the proxy
                    self.assertEqual(load.cut, [])
                # those whose connection ended before the request was read; clients send them again
                self.assertLessEqual(len(load.cut), 3 * len(farm.hosts), (load.door, load.cut[:5]))

    def test_a_killed_host_costs_what_was_in_flight_there(self):
        with Farm() as farm:
            with self.loads(farm) as loads:
                farm.hosts[1].server.process.kill()
                self.wait(loads, 200)
            for load in loads:
                self.assertLessEqual(len(load.cut), 2, (load.door, load.cut))

    def test_a_slow_host_gets_less_and_fails_nothing(self):
        slow = {"env": {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=200ms"},
                "config": {"device": "fault"}}
        with Farm(**slow) as farm:
            with self.loads(farm, each=4) as loads:
                self.wait(loads, 40)
            answered = []
            for host in farm.hosts:
                with wire.Client(f"127.0.0.1:{host.ports['8003']}") as c:
                    answered.append(c.counters()["requests_ok"])
            self.assertLess(answered[2], min(answered[:2]) / 2, answered)
            self.assertEqual([load.cut for load in loads], [[]] * len(loads))


if __name__ == "__main__":
    harness.main()
