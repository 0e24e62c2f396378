#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferctl infer, load and status and the client library's examples against a running daemon.

    test_client_programs.py INFERD INFERCTL EXAMPLE_BLOCKING EXAMPLE_ASYNC ROOT
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import serving

INFERD, INFERCTL, BLOCKING, ASYNC, ROOT = map(os.path.abspath, sys.argv[1:6])
MODELS = pathlib.Path(ROOT, "models")
SCORE = os.path.join(ROOT, "scripts/digits.py")


def run(*command, code=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        models = []
        for name in ("digits", "passthrough"):
            plan = cls.root / f"{name}.plan"
            run(INFERCTL, "build", MODELS / f"{name}.onnx", "-o", plan, "--batch", "1,8,32",
                "--no-tune", "--timing-cache", "")
            models.append(f"{name}={plan}")
        cls.unix = f"unix:{cls.root}/socket"
        cls.daemon = serving.inferd(INFERD, *models, "--listen", cls.unix)
        cls.address = cls.daemon.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)
        cls.folder.cleanup()

    def status(self):
        return json.loads(run(INFERCTL, "status", self.address, "--json"))

    def model(self, name):
        return next(m for m in self.status()["models"] if m["name"] == name)

    def test_digits_over_the_wire(self):
        run(sys.executable, SCORE, "split", MODELS, self.root / "batches")
        for batch in sorted((self.root / "batches").glob("*.npy")):
            run(INFERCTL, "infer", self.address, "--model", "digits", "--input", f"image={batch}",
                "--output", batch.with_suffix(""))
        said = run(sys.executable, SCORE, "score", MODELS, self.root / "batches")
        accuracy = float(re.search(r"(?m)^accuracy (0\.\d{4}|1\.0000)$", said).group(1))
        self.assertGreaterEqual(accuracy, 0.98)

    def test_examples(self):
        for address in (self.address, self.unix):
            self.assertIn("probabilities FP32:", run(BLOCKING, address, "digits"))
            self.assertIn("0 not answered, 0 failed",
                          run(ASYNC, address, "passthrough", 2000, "input", 1024))
        run(BLOCKING, self.address, "nosuch", code=1)
        run(ASYNC, self.address, "passthrough", 10, "input", 1000, code=1)  # a wrong shape

    def test_what_goes_in_comes_out(self):
        out, again = self.root / "out", self.root / "again"
        for batch in (1, 7, 32):
            run(INFERCTL, "infer", self.unix, "--model", "passthrough", "--batch", batch,
                "--output", out)
            once = (out / "output.npy").read_bytes()
            run(INFERCTL, "infer", self.address, "--model", "passthrough", "--input",
                f"input={out}/output.npy", "--output", again)
            self.assertEqual(once, (again / "output.npy").read_bytes())
        run(INFERCTL, "infer", self.address, "--model", "passthrough", "--input",
            f"input={out}/output.npy", "--output", out, code=1)  # what it reads stays
        self.assertEqual(once, (out / "output.npy").read_bytes())
        run(INFERCTL, "infer", self.address, "--model", "passthrough", "--batch", 33, code=1)

    def load(self, *options):
        file = self.root / "load.json"
        run(INFERCTL, "load", self.address, "--seconds", "0.3", "--json", file, "--quiet", *options)
        return json.loads(file.read_text())["points"]

    def test_load(self):
        before = self.model("passthrough")
        points = self.load("--model", "passthrough", "--concurrency", "1:33:16", "--batch", "2")
        after = self.model("passthrough")
        self.assertEqual([p["concurrency"] for p in points], [1, 17, 33])
        for p in points:
            self.assertEqual(p["errors"], 0)
            self.assertGreaterEqual(p["mean_batch"], 2)
            self.assertLessEqual(p["mean_batch"], 32)
        counted = sum(p["requests"] for p in points)
        self.assertGreaterEqual(after["requests"] - before["requests"], counted)
        self.assertEqual(after["failures"], before["failures"])
        self.assertEqual(after["instances"] - before["instances"],
                         2 * (after["requests"] - before["requests"]))
        point = self.load("--model", "digits", "--rate", "100", "--poisson")[0]
        self.assertEqual(point["errors"], 0)
        self.assertGreater(point["compute_us"], 0)

    def test_load_says_what_is_wrong(self):
        run(INFERCTL, "load", self.address, "--model", "nosuch", code=1)
        run(INFERCTL, "load", self.address, "--model", "digits", "--batch", "64", code=1)

    def test_status(self):
        status = self.status()
        self.assertTrue(status["ready"])
        self.assertEqual({m["name"] for m in status["models"]}, {"digits", "passthrough"})
        self.assertIn("ready", run(INFERCTL, "status", self.unix))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
