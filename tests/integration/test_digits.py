#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundled model on its whole held-out test set, through the engine alone.

    test_digits.py INFERCTL ROOT
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

INFERCTL, ROOT = map(os.path.abspath, sys.argv[1:3])
MODELS = pathlib.Path(ROOT, "models")
SCORE = os.path.join(ROOT, "scripts/digits.py")


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Digits(unittest.TestCase):
    def accuracy(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            plan = root / "digits.plan"
            run(INFERCTL, "build", MODELS / "digits.onnx", "-o", plan, "--batch", "1,21,32",
                "--timing-cache", "", *options)
            run(sys.executable, SCORE, "split", MODELS, root / "batches")
            for batch in sorted((root / "batches").glob("*.npy")):
                run(INFERCTL, "run", plan, "--input", f"image={batch}", "--output",
                    batch.with_suffix(""), *options)
            said = run(sys.executable, SCORE, "score", MODELS, root / "batches")
        return float(re.search(r"(?m)^accuracy (0\.\d{4}|1\.0000)$", said).group(1))

    def test_the_file_is_small(self):
        self.assertLess((MODELS / "digits.onnx").stat().st_size, 300_000)

    def test_tuned(self):
        self.assertGreaterEqual(self.accuracy(), 0.99)

    def test_reference_kernels_agree(self):
        self.assertGreaterEqual(self.accuracy("--reference-only"), 0.99)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
