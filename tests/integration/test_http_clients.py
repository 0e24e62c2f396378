#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The clients of the field over HTTP, from PyPI: tritonclient (sync, asyncio), KServe's where it is
installed, and its calls replayed where it is not.

    test_http_clients.py INFERD INFERCTL
"""
import asyncio
import importlib.util
import json
import shutil
import struct
import subprocess
import sys
import unittest
import urllib.request

import harness
from test_http import BIG, door

NEEDED = ("numpy", "tritonclient", "gevent", "geventhttpclient", "aiohttp")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]
if not MISSING:
    import numpy as np
    import tritonclient.http as triton
    import tritonclient.http.aio as triton_aio
KSERVE = importlib.util.find_spec("kserve")


class Served(harness.Served):
    @classmethod
    def setUpClass(cls):
        models = {name: harness.plan(name) for name in ("copy", "pair", "wide")}
        cls.server = harness.Server(models, arguments=["--http", "127.0.0.1:0"])
        cls.url = "{}:{}".format(*door(cls.server))


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Triton(Served):
    def setUp(self):
        self.client = triton.InferenceServerClient(self.url, concurrency=4)
        self.addCleanup(self.client.close)

    def inputs(self, rows=2, binary=True, width=4):
        x = np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)
        given = triton.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(x, binary_data=binary)
        return x, [given]

    def test_classification(self):
        x = np.array([[0, 3, -1, 2]], np.float32)
        for binary in (True, False):
            given = triton.InferInput("x", [1, 4], "FP32")
            given.set_data_from_numpy(x)
            wanted = triton.InferRequestedOutput("y", binary_data=binary, class_count=2)
            result = self.client.infer("copy", [given], outputs=[wanted])
            got = [t.decode() if isinstance(t, bytes) else t for t in result.as_numpy("y")[0]]
            self.assertEqual(got, ["3.000000:1", "2.000000:3"])

    def test_questions(self):
        client = self.client
        self.assertTrue(client.is_server_live() and client.is_server_ready())
        self.assertTrue(client.is_model_ready("copy") and client.is_model_ready("copy", "1"))
        self.assertFalse(client.is_model_ready("none"))
        self.assertEqual(client.get_server_metadata()["name"], "inferd")
        self.assertEqual(client.get_model_metadata("pair")["inputs"][0]["datatype"], "FP32")
        self.assertEqual(client.get_model_config("copy")["max_batch_size"], 8)
        self.assertEqual(len(client.get_model_repository_index()), 3)
        self.assertEqual(len(client.get_inference_statistics()["model_stats"]), 3)
        self.assertIn("trace_level", client.get_trace_settings("copy"))
        self.assertIn("log_info", client.get_log_settings())
        self.assertEqual(client.get_system_shared_memory_status(), [])
        self.assertEqual(client.get_cuda_shared_memory_status(), [])
        client.unregister_system_shared_memory()
        with self.assertRaisesRegex(triton.InferenceServerException, "lacks the right"):
            client.load_model("copy")
        with self.assertRaisesRegex(triton.InferenceServerException, "no model 'cpy'.*copy"):
            client.get_model_metadata("cpy")

    def test_inferences(self):
        for binary_in in (True, False):
            for binary_out in (True, False):
                x, inputs = self.inputs(binary=binary_in)
                outputs = [triton.InferRequestedOutput("y", binary_data=binary_out)]
                result = self.client.infer("copy", inputs, outputs=outputs, request_id="a-1",
                                           priority=1, timeout=10_000_000,
                                           parameters={"mine": "yes"})
                np.testing.assert_array_equal(result.as_numpy("y"), x)
                self.assertEqual(result.get_response()["id"], "a-1")
        x, inputs = self.inputs()
        np.testing.assert_array_equal(self.client.infer("copy", inputs).as_numpy("y"), x)
        handle = [self.client.async_infer("copy", inputs) for _ in range(20)]
        for one in handle:
            np.testing.assert_array_equal(one.get_result().as_numpy("y"), x)
        with self.assertRaisesRegex(triton.InferenceServerException, "expected shape"):
            self.client.infer("copy", self.inputs(width=5)[1])

    def test_large_tensors(self):
        for binary in (True, False):
            x, inputs = self.inputs(rows=2, binary=binary, width=BIG)
            outputs = [triton.InferRequestedOutput("y", binary_data=binary)]
            result = self.client.infer("wide", inputs, outputs=outputs)
            np.testing.assert_array_equal(result.as_numpy("y"), x)

    def test_several_types(self):
        arrays = {"a": np.array([[1, 2]], np.float32), "b": np.array([[0.25, -4]], np.float32),
                  "n": np.array([[np.iinfo(np.int64).min]], np.int64)}
        for binary in (True, False):
            inputs = []
            for name, array in arrays.items():
                one = triton.InferInput(name, list(array.shape),
                                        "INT64" if array.dtype == np.int64 else "FP32")
                one.set_data_from_numpy(array, binary_data=binary != (name == "b"))
                inputs.append(one)
            result = self.client.infer("pair", inputs)
            np.testing.assert_array_equal(result.as_numpy("sum"), arrays["a"] + arrays["b"])
            np.testing.assert_array_equal(result.as_numpy("m"), arrays["n"])

    def test_compressed(self):
        x, inputs = self.inputs()
        for coding in ("gzip", "deflate"):
            result = self.client.infer("copy", inputs, request_compression_algorithm=coding,
                                       response_compression_algorithm=coding)
            np.testing.assert_array_equal(result.as_numpy("y"), x)

    def test_classes(self):
        _, inputs = self.inputs()
        inputs[0].set_data_from_numpy(np.array([[1, 5, 3, -2], [9, 8, 7, 6]], np.float32))
        for binary in (True, False):
            outputs = [triton.InferRequestedOutput("y", binary_data=binary, class_count=2)]
            classes = self.client.infer("copy", inputs, outputs=outputs).as_numpy("y")
            self.assertEqual(classes.shape, (2, 2))
            got = [one.decode() if isinstance(one, bytes) else one for one in classes.ravel()]
            self.assertEqual([(float(v), int(k)) for v, k in (one.split(":") for one in got)],
                             [(5, 1), (3, 2), (9, 0), (8, 1)])

    def test_asyncio(self):
        async def run():
            async with triton_aio.InferenceServerClient(self.url) as client:
                self.assertTrue(await client.is_server_ready())
                x, inputs = self.inputs()
                for result in await asyncio.gather(*[client.infer("copy", inputs)
                                                     for _ in range(50)]):
                    np.testing.assert_array_equal(result.as_numpy("y"), x)
        asyncio.run(run())


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Admin(unittest.TestCase):
    def test_loads_and_unloads(self):
        def token(name, rights):
            made = subprocess.run([harness.INFERCTL, "token", name, "--rights", rights], check=True,
                                  capture_output=True, text=True, timeout=120).stdout.splitlines()
            return {"Authorization": f"Bearer {made[0]}"}, made[1]
        boss, first = token("boss", "infer,describe,status,admin")
        team, second = token("team", "infer,describe,status")
        tokens = harness.folder() / "admin.tokens"
        tokens.write_text(f"{first}\n{second}\n")
        tokens.chmod(0o600)
        repository = harness.folder() / "admin-repository"
        for name in ("copy", "twice"):
            (repository / name / "1").mkdir(parents=True)
            shutil.copy(harness.plan(name), repository / name / "1" / "model.plan")
        config = {"tokens": str(tokens), "repository": str(repository),
                  "repository_mode": "explicit", "repository_load": ["copy"]}
        with harness.Server([], config, arguments=["--http", "127.0.0.1:0"]) as server:
            client = triton.InferenceServerClient("{}:{}".format(*door(server)))
            self.assertFalse(client.is_model_ready("twice", headers=boss))
            for who, why in ((team, "lacks the right"), ({}, "token is needed")):
                for call in (client.load_model, client.unload_model):
                    with self.assertRaisesRegex(triton.InferenceServerException, why):
                        call("twice", headers=who)
                with self.assertRaisesRegex(triton.InferenceServerException, why):
                    client.update_log_settings({"log_verbose_level": 1}, headers=who)
            client.load_model("twice", headers=boss)
            self.assertTrue(client.is_model_ready("twice", headers=boss))
            given = triton.InferInput("x", [1, 4], "FP32")
            given.set_data_from_numpy(np.ones((1, 4), np.float32))
            self.assertEqual(client.infer("twice", [given], headers=team).as_numpy("y")[0, 0], 2)
            client.unload_model("twice", headers=boss)
            harness.until(lambda: not client.is_model_ready("twice", headers=boss))
            with self.assertRaisesRegex(triton.InferenceServerException, "nothing"):
                client.load_model("nothing", headers=boss)
            client.update_log_settings({"log_verbose_level": 1}, headers=boss)
            self.assertEqual(client.get_log_settings(headers=boss)["log_verbose_level"], 1)
            client.close()


class KServe(Served):
    @unittest.skipUnless(KSERVE, "not installed: kserve")
    def test_its_client(self):
        from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

        async def run():
            client = InferenceRESTClient(RESTConfig(protocol="v2"))
            base = f"http://{self.url}"
            self.assertTrue(await client.is_server_live(base))
            self.assertTrue(await client.is_server_ready(base))
            self.assertTrue(await client.is_model_ready(base, "copy"))
            given = InferInput("x", [1, 4], "FP32", [1.0, 2.0, 3.0, 4.0])
            reply = await client.infer(base, InferRequest("copy", [given]), model_name="copy")
            self.assertEqual(list(reply.outputs[0].data), [1, 2, 3, 4])
        asyncio.run(run())

    def ask(self, path, body=None, **fields):
        """As KServe's REST client sends it."""
        asked = urllib.request.Request(f"http://{self.url}/{path}", data=body, headers=fields)
        with urllib.request.urlopen(asked, timeout=harness.PATIENCE) as reply:
            return reply.headers, reply.read()

    def test_its_calls(self):
        self.assertIs(json.loads(self.ask("v2/health/live")[1])["live"], True)
        self.assertIs(json.loads(self.ask("v2/health/ready")[1])["ready"], True)
        self.assertIs(json.loads(self.ask("v2/models/copy/ready")[1])["ready"], True)
        x4 = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
        body = {"id": "4be4e82f-5500-420a-a5c5-ac86841e271b",
                "inputs": [dict(x4, data=[1.0, 2.0, 3.0, 4.0])]}
        reply = json.loads(self.ask("v2/models/copy/infer", json.dumps(body).encode(),
                                    **{"content-type": "application/json"})[1])
        self.assertEqual((reply["id"], reply["model_name"], reply["outputs"][0]["data"]),
                         (body["id"], "copy", [1, 2, 3, 4]))
        data = struct.pack("<4f", 5, 6, 7, 8)
        text = json.dumps({"inputs": [dict(x4, parameters={"binary_data_size": len(data)})],
                           "parameters": {"binary_data_output": True}}).encode()
        fields, reply = self.ask("v2/models/copy/infer", text + data,
                                 **{"content-type": "application/octet-stream",
                                    "inference-header-content-length": str(len(text))})
        length = int(fields["inference-header-content-length"])
        self.assertEqual(json.loads(reply[:length])["outputs"][0]["parameters"],
                         {"binary_data_size": 16})
        self.assertEqual(reply[length:], data)


if __name__ == "__main__":
    sys.stdout.flush()
    harness.main()
