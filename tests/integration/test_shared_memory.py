#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regions of shared memory, over gRPC and HTTP with tritonclient and its own helper for regions;
and what clients may do to each other and to the server through them.

    test_shared_memory.py INFERD INFERCTL
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

import harness

try:
    import numpy as np
    import tritonclient.grpc as over_grpc
    import tritonclient.http as over_http
    from tritonclient.utils import InferenceServerException
    from tritonclient.utils import shared_memory as shm
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

PREFIX = f"inferd-test-{os.getpid()}-"
ROW = 1 << 18
SMALL = np.arange(8, dtype=np.float32).reshape(2, 4)


def start(config=None, names=("copy", "pair", "wide"), **more):
    doors = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    config = dict({"shared_memory": PREFIX}, **(config or {}))
    return harness.Server({name: harness.plan(name) for name in names}, config, arguments=doors,
                          **more)


def address(server, door):
    harness.until(lambda: re.search(rf"(?m)^ready (\S+) \({door}\)$", server.log()))
    return re.search(rf"(?m)^ready (\S+) \({door}\)$", server.log())[1]


def raw_file(key, size):
    """A region without tritonclient: a path that can be cut short, moved or replaced."""
    path = f"/dev/shm/{key}"
    with open(path, "wb") as file:
        file.truncate(size)
    return path


class Doors(harness.Served):
    config = None

    @classmethod
    def setUpClass(cls):
        cls.server = start(cls.config)
        cls.addresses = {door: address(cls.server, door) for door in ("grpc", "http")}

    def setUp(self):
        self.paths = []
        self.clients = {
            over_grpc: over_grpc.InferenceServerClient(self.addresses["grpc"]),
            over_http: over_http.InferenceServerClient(self.addresses["http"]),
        }

    def tearDown(self):
        self.clients[over_grpc].unregister_system_shared_memory()
        for client in self.clients.values():
            client.close()
        for path in self.paths:
            if os.path.lexists(path):
                os.unlink(path)

    def each(self):
        for module, client in self.clients.items():
            with self.subTest(module.__name__):
                yield module, client
                client.unregister_system_shared_memory()

    def region(self, key, size):
        handle = shm.create_shared_memory_region(key, "/" + PREFIX + key, size)
        self.addCleanup(shm.destroy_shared_memory_region, handle)
        return handle

    def file(self, key, size):
        self.paths.append(raw_file(PREFIX + key, size))
        return self.paths[-1]

    def refused(self, words, call, *args, **more):
        with self.assertRaisesRegex(InferenceServerException, words):
            call(*args, **more)

    @staticmethod
    def input(module, shape, region, size, offset=0, name="x", datatype="FP32"):
        given = module.InferInput(name, list(shape), datatype)
        given.set_shared_memory(region, size, offset)
        return given

    @staticmethod
    def output(module, region, size, offset=0, name="y"):
        wanted = module.InferRequestedOutput(name)
        wanted.set_shared_memory(region, size, offset)
        return wanted


class Regions(Doors):
    def test_the_extension_is_told(self):
        for module, client in self.each():
            told = client.get_server_metadata()
            names = told["extensions"] if module is over_http else list(told.extensions)
            self.assertIn("system_shared_memory", names)
            self.assertNotIn("cuda_shared_memory", names)

    def test_inputs_and_outputs(self):
        handle = self.region("both", 4096)
        for module, client in self.each():
            client.register_system_shared_memory("both", "/" + PREFIX + "both", 4096)
            for k, offset in enumerate((0, 60, 1000)):
                x = SMALL + 10 * k
                shm.set_shared_memory_region(handle, [x], offset)
                result = client.infer(
                    "copy", [self.input(module, x.shape, "both", x.nbytes, offset)],
                    outputs=[self.output(module, "both", 64, 2048 + offset)])
                got = shm.get_contents_as_numpy(handle, np.float32, x.shape, 2048 + offset)
                np.testing.assert_array_equal(got, x)
                told = result.get_output("y")
                place = told["parameters"] if module is over_http else told.parameters
                self.assertEqual(set(place), {"shared_memory_region", "shared_memory_byte_size",
                                              "shared_memory_offset"})
                size = place["shared_memory_byte_size"]
                self.assertEqual(size if module is over_http else size.int64_param, x.nbytes)
                # in from a region, out in the reply, and the other way round
                result = client.infer(
                    "copy", [self.input(module, x.shape, "both", x.nbytes, offset)])
                np.testing.assert_array_equal(result.as_numpy("y"), x)
                given = module.InferInput("x", list(x.shape), "FP32")
                given.set_data_from_numpy(x + 1)
                client.infer("copy", [given],
                             outputs=[self.output(module, "both", x.nbytes, 0)])
                got = shm.get_contents_as_numpy(handle, np.float32, x.shape, 0)
                np.testing.assert_array_equal(got, x + 1)

    def test_beside_tensors_in_the_message(self):
        handle = self.region("mixed", 4096)
        a, b = np.array([[1, 2]], np.float32), np.array([[0.25, -4]], np.float32)
        n = np.array([[-(1 << 62)]], np.int64)
        for module, client in self.each():
            client.register_system_shared_memory("mixed", PREFIX + "mixed", 2048, offset=1024)
            for binary in (True, False):
                shm.set_shared_memory_region(handle, [b], 1024 + 8)
                inputs = [module.InferInput("n", [1, 1], "INT64"),
                          self.input(module, b.shape, "mixed", b.nbytes, 8, "b"),
                          module.InferInput("a", [1, 2], "FP32")]
                for at, data in ((0, n), (2, a)):
                    if module is over_http:
                        inputs[at].set_data_from_numpy(data, binary_data=binary)
                    else:
                        inputs[at].set_data_from_numpy(data)
                outputs = [module.InferRequestedOutput("m"),
                           self.output(module, "mixed", 100, 16, "sum")]
                result = client.infer("pair", inputs, outputs=outputs)
                np.testing.assert_array_equal(result.as_numpy("m"), n)
                got = shm.get_contents_as_numpy(handle, np.float32, a.shape, 1024 + 16)
                np.testing.assert_array_equal(got, a + b)

    def test_large_ones_in_parallel(self):
        rows, size = 8, 8 * ROW * 4
        for module, client in self.each():
            handles = [self.region(f"large{k}", 2 * size) for k in range(2)]
            for k, handle in enumerate(handles):
                client.register_system_shared_memory(f"large{k}", f"/{PREFIX}large{k}", 2 * size)
                x = np.full((rows, ROW), k + 1, np.float32)
                shm.set_shared_memory_region(handle, [x])

            def work(k):
                with module.InferenceServerClient(self.addresses[
                        "grpc" if module is over_grpc else "http"]) as mine:
                    for _ in range(3):
                        mine.infer("wide",
                                   [self.input(module, (rows, ROW), f"large{k}", size)],
                                   outputs=[self.output(module, f"large{k}", size, size)])

            threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for k, handle in enumerate(handles):
                got = shm.get_contents_as_numpy(handle, np.float32, (rows, ROW), size)
                self.assertTrue((got == k + 1).all())

    def test_status(self):
        self.file("status", 4096)
        for module, client in self.each():
            client.register_system_shared_memory("a/b c", f"/{PREFIX}status", 100, offset=7)
            for name in ("", "a/b c"):
                told = client.get_system_shared_memory_status(name)
                if module is over_http:
                    self.assertEqual(told, [{"name": "a/b c", "key": f"/{PREFIX}status",
                                             "offset": 7, "byte_size": 100}])
                else:
                    row = told.regions["a/b c"]
                    self.assertEqual((len(told.regions), row.name, row.key, row.offset,
                                      row.byte_size),
                                     (1, "a/b c", f"/{PREFIX}status", 7, 100))
            self.refused("no region 'other'", client.get_system_shared_memory_status, "other")
            self.refused("already", client.register_system_shared_memory, "a/b c",
                         f"/{PREFIX}status", 100)
            client.unregister_system_shared_memory("a/b c")
            client.unregister_system_shared_memory("a/b c")
            told = client.get_system_shared_memory_status()
            self.assertEqual(len(told if module is over_http else told.regions), 0)
            told = client.get_cuda_shared_memory_status()
            self.assertEqual(len(told if module is over_http else told.regions), 0)
            client.unregister_cuda_shared_memory()
            self.refused("not offered", client.register_cuda_shared_memory, "gpu",
                         b"A" * 64, 0, 16)

    def test_r11_what_cannot_be_registered(self):
        path = self.file("plain", 4096)
        other = raw_file(f"other-{os.getpid()}", 4096)
        link, pipe = f"/dev/shm/{PREFIX}link", f"/dev/shm/{PREFIX}pipe"
        folder = f"/dev/shm/{PREFIX}folder"
        twin = f"/dev/shm/{PREFIX}twin"
        once = self.file("once", 4096)
        self.paths += [other, link, pipe, twin]
        os.symlink(other, link)
        os.mkfifo(pipe)
        os.mkdir(folder)
        self.addCleanup(os.rmdir, folder)
        os.link(once, twin)
        top = (1 << 64) - 1
        for module, client in self.each():
            register = client.register_system_shared_memory
            for key in (f"other-{os.getpid()}", "", "/", f"{PREFIX}folder/../../etc/passwd",
                        f"../shm/{PREFIX}plain", "etc/passwd", f"x{PREFIX}plain",
                        PREFIX + "z" * 300):
                self.refused("begins with", register, "r", key, 16)
            self.refused("No such file", register, "r", PREFIX + "none", 16)
            for key in ("link", "folder", "pipe", "twin"):
                self.refused("symbolic|directory|regular", register, "r", PREFIX + key, 16)
            for size, offset in ((0, 0), (0, 16)):
                self.refused("no bytes", register, "r", PREFIX + "plain", size, offset)
            for size, offset in ((4097, 0), (4096, 1), (1, 4096), (top, 0), (top, 1), (top, top),
                                 (1, top), (1 << 63, 1 << 63)):
                self.refused("beyond", register, "r", PREFIX + "plain", size, offset)
            if module is over_grpc:
                self.refused("expected a name", register, "", PREFIX + "plain", 16)
            self.refused("name", register, "x" * 200, PREFIX + "plain", 16)
            register("r", "//" + PREFIX + "plain", 4096)
        self.assertTrue(os.path.exists(path))

    def test_r11_bounds_at_each_use(self):
        self.file("bounds", 4096)
        top = (1 << 63) - 1
        for module, client in self.each():
            client.register_system_shared_memory("r", PREFIX + "bounds", 64, offset=1024)
            for size, offset in ((32, 33), (32, 64), (32, top), (32, top - 31)):
                self.refused("beyond", client.infer, "copy",
                             [self.input(module, (2, 4), "r", size, offset)])
                self.refused("beyond", client.infer, "copy",
                             [self.input(module, (2, 4), "r", 32, 0)],
                             outputs=[self.output(module, "r", size, offset)])
            for size in (0, 31, 33, 64, top):
                self.refused("takes 32 bytes", client.infer, "copy",
                             [self.input(module, (2, 4), "r", size)])
            for size in (0, 31):
                self.refused("has 32 bytes", client.infer, "copy",
                             [self.input(module, (2, 4), "r", 32)],
                             outputs=[self.output(module, "r", size)])
            self.refused("no region 'q'", client.infer, "copy",
                         [self.input(module, (2, 4), "q", 32)])
            self.refused("no region 'q'", client.infer, "copy",
                         [self.input(module, (2, 4), "r", 32)],
                         outputs=[self.output(module, "q", 32)])
            client.infer("copy", [self.input(module, (2, 4), "r", 32, 32)],
                         outputs=[self.output(module, "r", 32, 32)])

    def test_r11_a_client_that_cuts_its_region_harms_itself(self):
        size = 8 * ROW * 4
        for module, client in self.each():
            path = self.file("cut", 2 * size)
            good = self.file("good", 2 * size)
            client.register_system_shared_memory("cut", PREFIX + "cut", 2 * size)
            client.register_system_shared_memory("good", PREFIX + "good", 2 * size)
            given = self.input(module, (8, ROW), "cut", size)
            wanted = self.output(module, "cut", size, size)
            stop, outcomes = threading.Event(), {"ok": 0, "refused": 0}

            def cut():
                while not stop.is_set():
                    os.truncate(path, 0)
                    os.truncate(path, 2 * size)

            thread = threading.Thread(target=cut)
            thread.start()
            try:
                for _ in range(30):
                    try:
                        client.infer("wide", [given], outputs=[wanted])
                        outcomes["ok"] += 1
                    except InferenceServerException as failure:
                        self.assertIn("shorter", str(failure))
                        outcomes["refused"] += 1
                    client.infer("wide", [self.input(module, (8, ROW), "good", size)],
                                 outputs=[self.output(module, "good", size, size)])
            finally:
                stop.set()
                thread.join()
            self.assertEqual(sum(outcomes.values()), 30)
            os.truncate(path, size)
            self.refused("shorter", client.infer, "wide", [given], outputs=[wanted])
            self.assertEqual(os.stat(path).st_size, size, "a write made the file longer")
            os.truncate(path, size - 1)
            self.refused("shorter", client.infer, "wide", [given])
            os.truncate(path, 2 * size)
            os.unlink(path)
            client.infer("wide", [given], outputs=[wanted])
            os.unlink(good)
            self.assertIsNone(self.server.process.poll())

    def test_unregistered_while_it_is_used(self):
        size = 8 * ROW * 4
        for module, client in self.each():
            self.file("used", 2 * size)
            stop = threading.Event()

            def register():
                with module.InferenceServerClient(self.addresses[
                        "grpc" if module is over_grpc else "http"]) as mine:
                    while not stop.is_set():
                        mine.register_system_shared_memory("used", PREFIX + "used", 2 * size)
                        mine.unregister_system_shared_memory("used")

            thread = threading.Thread(target=register)
            thread.start()
            try:
                for _ in range(30):
                    try:
                        client.infer("wide", [self.input(module, (8, ROW), "used", size)],
                                     outputs=[self.output(module, "used", size, size)])
                    except InferenceServerException as failure:
                        self.assertIn("no region", str(failure))
            finally:
                stop.set()
                thread.join()
        client.unregister_system_shared_memory()
        folder = f"/proc/{self.server.process.pid}/fd"
        left = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)
                if os.path.lexists(f"{folder}/{fd}")]
        self.assertEqual([path for path in left if "/dev/shm/" in path], [])

    def test_data_and_a_region_are_too_much(self):
        self.file("twice", 4096)
        url = f"http://{self.addresses['http']}/v2/"

        def post(path, body):
            request = urllib.request.Request(url + path, json.dumps(body).encode(), method="POST")
            try:
                with urllib.request.urlopen(request, timeout=harness.PATIENCE) as reply:
                    return reply.status, json.loads(reply.read())
            except urllib.error.HTTPError as failure:
                return failure.code, json.loads(failure.read())

        there = {"key": PREFIX + "twice", "byte_size": 4096, "offset": 0}
        self.assertEqual(post("systemsharedmemory/region/r/register", there), (200, {}))
        place = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
        x = {"name": "x", "datatype": "FP32", "shape": [1, 4]}

        def asked(data=None, parameters=None, output=None):
            one = dict(x, **({"data": data} if data else {}), parameters=parameters or {})
            outputs = {"outputs": [dict({"name": "y"}, parameters=output)]} if output else {}
            return post("models/copy/infer", dict({"inputs": [one]}, **outputs))

        self.assertEqual(asked(parameters=place)[0], 200)
        for code, words in (asked([1, 2, 3, 4], place),
                            asked(parameters=dict(place, binary_data_size=16))):
            self.assertEqual(code, 400)
            self.assertIn("region", words["error"])
        for half in ({"shared_memory_region": "r"}, {"shared_memory_byte_size": 16},
                     {"shared_memory_offset": 16}):
            self.assertEqual(asked(parameters=half)[0], 400)
            code, words = asked([1, 2, 3, 4], None, half)
            self.assertEqual((code, "together" in words["error"]), (400, True))
        code, words = asked([1, 2, 3, 4], None, dict(place, classification=1))
        self.assertEqual((code, "classes" in words["error"]), (400, True))
        for wrong in ({"shared_memory_byte_size": -1}, {"shared_memory_byte_size": "16"},
                      {"shared_memory_region": 7}, {"shared_memory_region": "x" * 129},
                      {"shared_memory_offset": 1.5}):
            self.assertEqual(asked(parameters=dict(place, **wrong))[0], 400)
        self.assertEqual(post("systemsharedmemory/region/r/unregister", {}), (200, {}))


class Limits(Doors):
    config = {"limits": {"regions": 3, "region_bytes": 4096}}

    def test_number_and_bytes(self):
        for key in "abcd":
            self.file(key, 8192)
        for _, client in self.each():
            register = client.register_system_shared_memory
            self.refused("limit is 4096", register, "a", PREFIX + "a", 4097)
            register("a", PREFIX + "a", 4000)
            self.refused("limit is 4096", register, "b", PREFIX + "b", 97)
            for name in "bc":
                register(name, PREFIX + name, 1)
            self.refused("3 regions", register, "d", PREFIX + "d", 1)
            client.unregister_system_shared_memory("a")
            register("d", PREFIX + "d", 4094)


class Off(Doors):
    config = {"shared_memory": None}

    def test_r11_there_is_none(self):
        self.file("off", 4096)
        for module, client in self.each():
            told = client.get_server_metadata()
            names = told["extensions"] if module is over_http else list(told.extensions)
            self.assertNotIn("system_shared_memory", names)
            told = client.get_system_shared_memory_status()
            self.assertEqual(len(told if module is over_http else told.regions), 0)
            self.refused("not offered", client.register_system_shared_memory, "r", PREFIX + "off",
                         16)
            self.refused("none is offered", client.infer, "copy",
                         [self.input(module, (1, 4), "r", 16)])


class Owners(unittest.TestCase):
    """With tokens a region belongs to who registered it; at a unix socket, to its user."""

    @staticmethod
    def token(name, rights):
        made = subprocess.run([harness.INFERCTL, "token", name, "--rights", ",".join(rights)],
                              capture_output=True, text=True, timeout=harness.PATIENCE, check=True)
        return made.stdout.splitlines()

    def test_r11_regions_of_others(self):
        rights = {"ann": ("infer", "describe", "memory"), "bob": ("infer", "describe", "memory"),
                  "eve": ("infer", "describe")}
        tokens, lines = {}, ""
        for name, held in rights.items():
            tokens[name], line = self.token(name, held)
            lines += line + "\n"
        path = harness.folder() / "regions.tokens"
        path.write_text(lines)
        path.chmod(0o600)
        server = start({"tokens": str(path)})
        self.addCleanup(server.kill)
        paths = [raw_file(PREFIX + name, 4096) for name in rights]
        for one in paths:
            self.addCleanup(os.unlink, one)
        client = over_grpc.InferenceServerClient(address(server, "grpc"))
        self.addCleanup(client.close)
        who = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}
        x = over_grpc.InferInput("x", [1, 4], "FP32")
        x.set_shared_memory("r", 16)

        with self.assertRaisesRegex(InferenceServerException, "lacks the right"):
            client.register_system_shared_memory("r", PREFIX + "eve", 64, headers=who["eve"])
        client.register_system_shared_memory("r", PREFIX + "ann", 64, headers=who["ann"])
        client.infer("copy", [x], headers=who["ann"])
        for other in ("bob", "eve"):
            with self.assertRaisesRegex(InferenceServerException, "no region 'r'"):
                client.infer("copy", [x], headers=who[other])
        self.assertEqual(
            len(client.get_system_shared_memory_status(headers=who["bob"]).regions), 0)
        client.unregister_system_shared_memory(headers=who["bob"])
        client.register_system_shared_memory("r", PREFIX + "bob", 64, headers=who["bob"])
        client.unregister_system_shared_memory("r", headers=who["bob"])
        self.assertEqual(
            list(client.get_system_shared_memory_status(headers=who["ann"]).regions), ["r"])
        client.infer("copy", [x], headers=who["ann"])
        server.stop()

    def test_r11_nobody_takes_all(self):
        tokens, lines = {}, ""
        for name in ("ann", "bob"):
            tokens[name], line = self.token(name, ("describe", "memory"))
            lines += line + "\n"
        path = harness.folder() / "shares.tokens"
        path.write_text(lines)
        path.chmod(0o600)
        server = start({"tokens": str(path), "limits": {"region_bytes": 1 << 30, "regions": 4}})
        self.addCleanup(server.kill)
        big, small = raw_file(PREFIX + "big", 1 << 30), raw_file(PREFIX + "small", 4096)
        self.addCleanup(os.unlink, small)
        self.addCleanup(pathlib.Path(big).unlink, missing_ok=True)
        client = over_grpc.InferenceServerClient(address(server, "grpc"))
        self.addCleanup(client.close)

        def register(who, name, key, size):
            client.register_system_shared_memory(
                name, PREFIX + key, size, headers={"authorization": f"Bearer {tokens[who]}"})
        with self.assertRaisesRegex(InferenceServerException, "its share is 536870912"):
            register("ann", "all", "big", 1 << 30)
        register("ann", "half", "big", 1 << 29)
        os.unlink(big)
        register("bob", "b", "small", 4096)
        register("ann", "a", "small", 4096)  # the file of the other is gone, so that one goes
        register("ann", "c", "small", 4096)
        with self.assertRaisesRegex(InferenceServerException, "2 regions .* its share"):
            register("ann", "d", "small", 4096)
        register("bob", "d", "small", 4096)
        server.stop()


if __name__ == "__main__":
    harness.main()
