#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client: blocking and asyncio, against a server, and as the wheel that pip installs.

    test_python_client.py INFERD INFERCTL SOURCE_ROOT
"""
import ast
import asyncio
import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness

ROOT = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(".")
PACKAGE = ROOT / "client" / "python"

try:
    import numpy as np
except ImportError:
    np = None
else:
    sys.path.insert(0, str(PACKAGE))
    from inferd_client import AsyncClient, Client, InferenceError
    from inferd_client import messages, wire

X = [[1, 2, 3, 4]]


@unittest.skipUnless(np, "needs numpy")
class Blocking(unittest.TestCase):
    def test_questions(self):
        with harness.Server({"m": harness.plan("pair")}) as s, Client(s.address) as c:
            self.assertTrue(c.live() and c.ready() and c.ready("m") and c.ready("m", "1"))
            self.assertEqual(c.server().name, "inferd")
            self.assertEqual([(m.name, m.version, m.ready) for m in c.models()], [("m", "1", True)])
            metadata = c.metadata("m")
            self.assertEqual([(t.name, t.datatype, t.shape) for t in metadata.inputs],
                             [("a", "FP32", (-1, 2)), ("b", "FP32", (-1, 2)),
                              ("n", "INT64", (-1, 1))])
            self.assertEqual(metadata.versions, ("1",))
            with self.assertRaises(InferenceError) as caught:
                c.metadata("other")
            self.assertEqual((caught.exception.code, caught.exception.name), (5, "NOT_FOUND"))

    def test_arrays_of_any_layout(self):
        with harness.Server({"m": harness.plan("pair")}) as s, Client(s.address) as c:
            base = np.arange(16, dtype=np.float32).reshape(2, 8)
            a, n = base[:, ::4], np.array([[1], [-2]], ">i8")
            r = c.infer("m", {"a": a, "b": np.asfortranarray(base[:, 1:3]), "n": n})
            np.testing.assert_array_equal(r["same"], a)
            np.testing.assert_array_equal(r["sum"], a + base[:, 1:3])
            np.testing.assert_array_equal(r["m"], n)
            self.assertEqual(r["m"].dtype, np.int64)
            self.assertEqual((list(r), len(r), r.model, r.version), (["sum", "same", "m"], 3, "m",
                                                                     "1"))
            self.assertGreater(r.timing.compute_ns, 0)
            self.assertEqual(r.timing.batch, 2)
            only = c.infer("m", {"a": a, "b": a, "n": n}, outputs=["m"])
            self.assertEqual(list(only), ["m"])
            with self.assertRaises(ValueError):
                r["m"][0] = 1

    def test_errors_leave_the_connection_of_use(self):
        with harness.Server({"m": harness.plan("copy")}) as s, Client(s.address) as c:
            for inputs in ({"x": np.zeros((1, 4))}, {"x": np.zeros((1, 5), "f")}, {}, {"y": X}):
                with self.assertRaises(InferenceError) as caught:
                    c.infer("m", inputs)
                self.assertEqual(caught.exception.name, "INVALID_ARGUMENT")
            for value in ("text", np.zeros(1, "c8"), object()):
                with self.assertRaises(TypeError):
                    c.infer("m", {"x": value})
            self.assertEqual(c.infer("m", {"x": np.float32(X)})["y"].tolist(), X)

    def test_large_tensors(self):
        with harness.Server({"m": harness.plan("wide", "1,2")}) as s, Client(s.address) as c:
            x = np.random.default_rng(1).random((2, 1 << 18), np.float32)
            np.testing.assert_array_equal(c.infer("m", {"x": x})["y"], x)

    def test_many_share_batches_and_keep_their_order(self):
        with harness.Server({"m": harness.plan("copy")}, {"max_delay_us": 2000}) as s:
            with Client(s.address) as c:
                given = [{"x": np.full((1, 4), i, np.float32)} for i in range(500)]
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    results = list(c.infer_many("m", given, progress=True))
                self.assertEqual([r["y"][0, 0] for r in results], list(range(500)))
                self.assertGreater(max(r.timing.batch for r in results), 1)
                self.assertIn("500", said.getvalue())
                self.assertEqual(list(c.infer_many("m", [])), [])
                bad = given[:3] + [{"x": np.zeros((1, 5), "f")}] + given
                got = []
                with self.assertRaises(InferenceError):
                    got.extend(c.infer_many("m", iter(bad)))
                for _ in c.infer_many("m", given):
                    break
                self.assertTrue(c.ready())

    def test_threads_take_turns(self):
        with harness.Server({"m": harness.plan("copy")}) as s, Client(s.address) as c:
            wrong = []

            def ask(i):
                for k in range(50):
                    x = np.full((1, 4), i * 100 + k, np.float32)
                    if not np.array_equal(c.infer("m", {"x": x})["y"], x):
                        wrong.append((i, k))

            threads = [harness.Background(ask, i) for i in range(4)]
            for t in threads:
                t.finish()
            self.assertEqual(wrong, [])

    def test_what_was_not_run_is_sent_again(self):
        script = {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=50ms"}
        config = {"device": "fault", "limits": {"queue_requests": 1}, "max_batch": 1}
        with harness.Server({"m": harness.plan("copy")}, config, env=script) as s:
            done, refused = [], []

            def ask(retries):
                with Client(s.address) as c:
                    for _ in range(6):
                        try:
                            done.append(c.infer("m", {"x": np.float32(X)}, retries=retries))
                        except InferenceError as error:
                            self.assertEqual(error.name, "RESOURCE_EXHAUSTED")
                            self.assertTrue(error.not_run)
                            refused.append(error)

            for retries, few in ((0, False), (1000, True)):
                done.clear(), refused.clear()
                threads = [harness.Background(ask, retries) for _ in range(4)]
                for t in threads:
                    t.finish()
                self.assertEqual(not refused, few)
            self.assertEqual(len(done), 24)

    def test_timeouts_tokens_and_reconnects(self):
        with harness.Server({"m": harness.plan("copy")}) as s, Client(s.address) as c:
            self.assertEqual(c.infer("m", {"x": np.float32(X)}, timeout=5)["y"].tolist(), X)
            c.close()
            self.assertTrue(c.ready())
            s.stop()
            with self.assertRaises((OSError, EOFError)):
                c.ready()
        with self.assertRaises(ValueError):
            Client("host:port")
        self.assertEqual(wire.target_of("[::1]:5")[:2], (0, ("::1", 5)))
        self.assertEqual(wire.target_of("host")[:2], (0, ("host", 8003)))

    def test_unix_sockets(self):
        path = harness.folder() / "client.sock"
        with harness.Server({"m": harness.plan("copy")}, {"listen": {"framed": [f"unix:{path}"]}}):
            with Client(f"unix:{path}") as c:
                self.assertEqual(c.infer("m", {"x": np.float32(X)})["y"].tolist(), X)
            async def ask():
                async with AsyncClient(f"unix:{path}") as c:
                    return await c.ready("m")
            self.assertTrue(asyncio.run(ask()))

    def test_replies_that_are_cut_or_foreign(self):
        whole = wire.message((1, 7), (10, wire.message((1, "m"), (5, wire.message(
            (1, "y"), (2, "FP32"), (3, b"\x01"))), (6, b"\0\0\x80\x3f"))))
        self.assertEqual(messages.result_of(messages.Reply(whole))["y"].tolist(), [1.0])
        for n in range(1, len(whole)):
            with contextlib.suppress(ValueError, InferenceError):
                messages.result_of(messages.Reply(whole[:n]))
        for i in range(len(whole)):
            for bit in range(8):
                bent = bytearray(whole)
                bent[i] ^= 1 << bit
                with contextlib.suppress(ValueError, InferenceError):
                    messages.result_of(messages.Reply(bent))


@unittest.skipUnless(np, "needs numpy")
class Asyncio(unittest.TestCase):
    def test_many_tasks_over_one_connection(self):
        with harness.Server({"m": harness.plan("copy")}, {"max_delay_us": 1000}) as s:
            async def ask():
                async with AsyncClient(s.address, in_flight=64) as c:
                    self.assertTrue(await c.live() and await c.ready() and await c.ready("m"))
                    self.assertEqual((await c.server()).name, "inferd")
                    self.assertEqual((await c.metadata("m")).inputs[0].shape, (-1, 4))
                    self.assertEqual([m.name for m in await c.models()], ["m"])
                    xs = [np.full((1, 4), i, np.float32) for i in range(300)]
                    rs = await asyncio.gather(*(c.infer("m", {"x": x}) for x in xs))
                    self.assertTrue(all(np.array_equal(r["y"], x) for r, x in zip(rs, xs)))
                    self.assertGreater(max(r.timing.batch for r in rs), 1)
                    mixed = await asyncio.gather(c.infer("m", {"x": xs[0]}), c.infer("n", {}),
                                                 return_exceptions=True)
                    self.assertEqual(mixed[1].name, "NOT_FOUND")
                    self.assertEqual(mixed[0]["y"].tolist(), [[0, 0, 0, 0]])

            asyncio.run(ask())

    def test_all_who_wait_hear_of_a_lost_connection(self):
        env = {"INFERD_FAULT_SCRIPT": "on=cpu;launch:delay=5s"}
        s = harness.Server({"m": harness.plan("copy")}, {"device": "fault"}, env=env)

        async def ask():
            async with AsyncClient(s.address) as c:
                waiting = [asyncio.ensure_future(c.infer("m", {"x": np.float32(X)}))
                           for _ in range(5)]
                await asyncio.sleep(0.2)
                s.kill()
                answers = await asyncio.gather(*waiting, return_exceptions=True)
                self.assertEqual({isinstance(a, (OSError, EOFError)) for a in answers}, {True})
                with self.assertRaises(OSError):
                    await c.ready()

        try:
            asyncio.run(ask())
        finally:
            s.kill()


class Package(unittest.TestCase):
    def test_every_function_is_typed(self):
        for path in (PACKAGE / "inferd_client").glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    bare = [a.arg for a in arguments if not a.annotation and a.arg != "self"]
                    self.assertFalse(bare, f"{path.name}:{node.lineno}")
                    self.assertTrue(node.returns, f"{path.name}:{node.lineno}")
        self.assertTrue((PACKAGE / "inferd_client" / "py.typed").exists())

    @unittest.skipUnless(np and importlib.util.find_spec("wheel"), "needs numpy and wheel")
    def test_the_wheel_installs_and_infers(self):
        work = pathlib.Path(tempfile.mkdtemp(dir=harness.folder()))
        shutil.copytree(PACKAGE, work / "source")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w",
                        work, work / "source"], check=True, timeout=harness.PATIENCE)
        wheel, = work.glob("*.whl")
        self.assertRegex(wheel.name, r"^inferd_client-[0-9.]+-py3-none-any\.whl$")
        subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", work / "site",
                        wheel], check=True, timeout=harness.PATIENCE)
        self.assertTrue((work / "site" / "inferd_client" / "py.typed").exists())
        program = ("import sys, numpy, inferd_client as i\n"
                   "assert sys.argv[2] in i.__file__, i.__file__\n"
                   "with i.Client(sys.argv[1]) as c:\n"
                   "    print(c.infer('m', {'x': numpy.ones((1, 4), 'f')})['y'].sum())\n")
        with harness.Server({"m": harness.plan("copy")}) as s:
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", program, s.address, str(work)],
                env=dict(os.environ, PYTHONPATH=str(work / "site")), capture_output=True,
                text=True, timeout=harness.PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "4.0\n", ""))


if __name__ == "__main__":
    harness.main()
