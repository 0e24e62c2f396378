#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three servers behind HAProxy, by deploy/haproxy/haproxy.cfg, under load over all doors: a rolling
restart, a host that is killed, and a slow one; once on ports of this machine, and once each in a
network namespace of its own, with the very addresses of that file, where a host can also vanish.

    test_haproxy.py INFERD INFERCTL SOURCE_ROOT
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness
import wire

ROOT = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(".")
HOSTS, PORTS = "123", ("8000", "8001", "8003")
SLOW_DEVICE = {"env": {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=200ms"},
               "config": {"device": "fault"}}
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


class Loopback:
    """Places hosts on free ports of this machine."""

    def front(self):
        return {port: free_port() for port in PORTS}

    def place(self, i):
        """Address, ports and the command that starts a program there."""
        return "127.0.0.1", {port: free_port() for port in PORTS}, ()

    def slow(self, i):
        """Makes a host slow that has yet to start: with what, besides."""
        return SLOW_DEVICE

    def close(self):
        pass


class Namespaces:
    """Gives each host a network namespace of its own. A bridge leads to them; HAProxy and the
    clients are in the namespace that this program was started in."""
    INSIDE = "INFERD_TEST_NAMESPACES"

    @classmethod
    def enter(cls):
        """Starts this program anew where it may make namespaces. They, and the names that `ip`
        gives them, are gone with it. Returns why that cannot be."""
        if os.environ.get(cls.INSIDE):
            return None
        missing = [name for name in ("ip", "tc", "unshare", "mount") if not shutil.which(name)]
        if missing:
            return f"there is no {missing[0]}"
        probe = "ip link add name br0 type bridge && ip link add name to1 type veth peer name eth0"
        command = ["unshare", "--net", "--mount"]
        try:
            done = subprocess.run([*command, "sh", "-c", probe], capture_output=True, text=True,
                                  timeout=harness.PATIENCE)
        except OSError as error:
            return str(error)
        if done.returncode:
            return "namespaces are not allowed: " + done.stderr.strip()
        os.environ[cls.INSIDE] = "yes"
        os.execvp(command[0], [*command, sys.executable, *sys.argv])

    @staticmethod
    def ip(*arguments, tool="ip"):
        done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True,
                              timeout=harness.PATIENCE)
        if done.returncode:
            raise AssertionError(f"{tool} {arguments}: {done.stderr}")

    @classmethod
    def settle(cls):
        """Makes the place where the hosts will be connected."""
        os.makedirs("/run/netns", exist_ok=True)
        cls.ip("-t", "tmpfs", "none", "/run/netns", tool="mount")
        cls.ip("link", "set", "lo", "up")

    def __init__(self):
        self.ip("link", "add", "name", "br0", "type", "bridge")
        self.ip("address", "add", "10.0.0.254/24", "dev", "br0")
        self.ip("link", "set", "br0", "up")
        for i in HOSTS:
            self.ip("netns", "add", f"host{i}")
            self.ip("link", "add", "name", f"to{i}", "type", "veth", "peer", "name", "eth0",
                    "netns", f"host{i}")
            self.ip("link", "set", f"to{i}", "master", "br0", "up")
            for what in (("address", "add", f"10.0.0.{i}/24", "dev", "eth0"),
                         ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
                self.ip("-n", f"host{i}", *what)

    def front(self):
        return {port: int(port) for port in PORTS}

    def place(self, i):
        return (f"10.0.0.{i}", {port: int(port) for port in PORTS},
                ("ip", "netns", "exec", f"host{i}"))

    def slow(self, i):
        """The way there, if the kernel can, else the device."""
        slowly = f"tc qdisc add dev to{i} root netem delay 200ms"
        return SLOW_DEVICE if subprocess.run(slowly.split(), capture_output=True).returncode else {}

    def vanish(self, i):
        """Nothing comes from there any more, not even that it is gone."""
        self.ip("link", "set", f"to{i}", "down")

    def close(self):
        for i in HOSTS:
            self.ip("link", "delete", f"to{i}")  # at once; the namespace goes when it is free
            self.ip("netns", "delete", f"host{i}")
        self.ip("link", "delete", "br0")


class Host:
    """A server that comes back where it was."""

    def __init__(self, place, env=None, config=None):
        self.address, self.ports, self.prefix = place
        at = {port: [f"{self.address}:{n}"] for port, n in self.ports.items()}
        self.config = {"listen": {"http": at["8000"], "grpc": at["8001"], "framed": at["8003"]},
                       "drain_delay_ms": 2000, **(config or {})}
        self.env = env
        self.start()

    def start(self):
        self.server = harness.Server({"m": harness.plan("copy")}, self.config, env=self.env,
                                     arguments=["--insecure"], prefix=self.prefix)


class Farm(contextlib.ExitStack):
    def __init__(self, place, slow=None):
        super().__init__()
        self.place = place
        self.callback(place.close)
        try:
            self.start(slow)
        except BaseException:
            self.close()
            raise

    def start(self, slow):
        self.hosts = []
        for i in HOSTS:
            at = self.place.place(i)
            self.hosts.append(Host(at, **(self.place.slow(i) if i == slow else {})))
            self.callback(lambda host=self.hosts[-1]: host.server.kill())
        text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
        self.front = self.place.front()
        for port, n in self.front.items():
            text = text.replace(f"bind 127.0.0.1:{port}", f"bind 127.0.0.1:{n}")
        for i, host in zip(HOSTS, self.hosts):
            for port, n in host.ports.items():
                text = re.sub(rf"\b10\.0\.0\.{i}:{port}\b(.*)port 8000",
                              rf"{host.address}:{n}\1port {host.ports['8000']}", text)
                text = re.sub(rf"\b10\.0\.0\.{i}:{port}\b", f"{host.address}:{n}", text)
        path = pathlib.Path(tempfile.mkdtemp(dir=harness.folder())) / "haproxy.cfg"
        path.write_text(text)
        log = self.enter_context(open(path.with_suffix(".log"), "wb"))
        self.proxy = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)
        self.callback(self.proxy.wait, 20)
        self.callback(self.proxy.terminate)
        harness.until(lambda: self.answers("http"))

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
            state["http"] = http.client.HTTPConnection("127.0.0.1", self.front["8000"], timeout=120)
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
                state["framed"] = wire.Client(f"127.0.0.1:{self.front['8003']}")
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
        state["grpc"].infer("m", [state["x"]], client_timeout=harness.PATIENCE)

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


class Scenarios:
    """What every way to place the hosts has to stand."""

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
        harness.until(lambda: all(load.ok >= wanted[load] for load in loads))

    def test_a_rolling_restart_fails_nothing(self):
        with Farm(self.Place()) as farm:
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
        with Farm(self.Place()) as farm:
            with self.loads(farm) as loads:
                farm.hosts[1].server.process.kill()
                self.wait(loads, 200)
            for load in loads:
                self.assertLessEqual(len(load.cut), 2, (load.door, load.cut))

    def test_a_slow_host_gets_less_and_fails_nothing(self):
        with Farm(self.Place(), slow="3") as farm:
            with self.loads(farm, each=4) as loads:
                self.wait(loads, 40)
            answered = []
            for host in farm.hosts:
                with wire.Client(f"{host.address}:{host.ports['8003']}") as c:
                    answered.append(c.counters()["requests_ok"])
            self.assertLess(answered[2], min(answered[:2]) / 2, answered)
            self.assertEqual([load.cut for load in loads], [[]] * len(loads))


WHY_NOT = Namespaces.enter()


class OnePlace(Scenarios, unittest.TestCase):
    Place = Loopback


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Apart(Scenarios, unittest.TestCase):
    Place = Namespaces

    @classmethod
    def setUpClass(cls):
        Namespaces.settle()

    def test_a_host_that_vanishes_costs_what_was_in_flight_there(self):
        """As a machine whose power fails: its peers have to notice by themselves."""
        with Farm(self.Place()) as farm:
            with self.loads(farm) as loads:
                farm.place.vanish("2")
                self.wait(loads, 100)
            for load in loads:
                self.assertLessEqual(len(load.cut), 2, (load.door, load.cut))


if __name__ == "__main__":
    harness.main()
