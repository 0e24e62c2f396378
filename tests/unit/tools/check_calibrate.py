#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferctl calibrate from outside, and builds with its tables: check_calibrate.py INFERCTL MODELS

Which data are taken and which refused, what a table by hand does, and what a build says of tables
that are not its own. Needs nothing but Python.
"""
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

from check_offline import write_npy

INFERCTL, MODELS = None, None
PIXELS = 64


def image(seed):
    """Numbers in 0..1."""
    values = []
    for _ in range(PIXELS):
        seed = (seed * 1103515245 + 12345) % (1 << 31)
        values.append(seed / (1 << 31))
    return values


class Calibrate(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.data = self.dir / "data"
        self.data.mkdir()
        self.table = self.dir / "digits.ranges"
        self.digits = MODELS / "digits.onnx"

    def tearDown(self):
        self.folder.cleanup()

    def run_it(self, *args, code=0):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"), NO_COLOR="1")
        done = subprocess.run([INFERCTL, *map(str, args)], capture_output=True, text=True, env=env,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, code, f"{args}: {done.stdout}{done.stderr}")
        if code:
            lines = [line for line in done.stderr.strip().split("\n")
                     if not line.startswith("warning: ")]
            self.assertEqual(len(lines), 1, done.stderr)
            return lines[0]
        return done.stdout

    def calibrate(self, *args, code=0):
        return self.run_it("calibrate", self.digits, "--data", self.data, "-o", self.table,
                           "--threads", 1, *args, code=code)

    def build(self, *args, code=0):
        return self.run_it("build", self.digits, "-o", self.dir / "digits.plan", "--threads", 1,
                           "--no-tune", "--timing-cache", "", "--batch", 1, "--max-error", "none",
                           *args, code=code)

    def rows(self):
        lines = self.table.read_text().splitlines()
        self.assertEqual(lines[0], "inferd ranges 1")
        self.assertRegex(lines[1], "^model [0-9a-f]{32}$")
        return {line.split()[0]: line.split()[1:] for line in lines[2:] if line[0] != "#"}

    def write(self, *seeds):
        """Samples in files of all shapes that one may have."""
        for at, seed in enumerate(seeds):
            shape = ((1, 8, 8), (1, 1, 8, 8))[at % 2]
            write_npy(self.data / f"{at:03}.npy", shape, image(seed))

    def test_files_of_any_shape_give_one_table(self):
        self.write(*range(6))
        said = self.calibrate()
        self.assertRegex(said, r"\d+ tensors from 6 samples by entropy")
        first = self.table.read_text()
        for file in self.data.iterdir():
            file.unlink()
        write_npy(self.data / "a.npy", (4, 1, 8, 8), [v for s in range(4) for v in image(s)])
        write_npy(self.data / "b.npy", (2, 1, 8, 8), [v for s in (4, 5) for v in image(s)])
        (self.data / "notes.txt").write_text("not data\n")
        self.calibrate()
        self.assertEqual(self.table.read_text(), first)
        self.assertIn("from 4 samples", self.calibrate("--batches", 1))

    def test_methods(self):
        self.write(*range(8))
        limits = {}
        for method in ("minmax", "entropy", "percentile", "percentile=50"):
            self.calibrate("--method", method)
            row = self.rows()["relu1"]
            self.assertEqual((row[0], row[1]), ("range", "0"))
            self.assertEqual(row[3], {"percentile": "percentile=99.99"}.get(method, method))
            self.assertEqual(row[4], "8")
            limits[method] = float(row[2])
        self.assertLess(limits["percentile=50"], limits["percentile"])
        self.assertLessEqual(limits["percentile"], limits["minmax"])
        self.assertLessEqual(limits["entropy"], limits["minmax"])
        self.assertIn("there are 'minmax'", self.calibrate("--method", "median", code=1))
        self.assertIn("percentile", self.calibrate("--method", "percentile=0", code=1))

    def test_served_bytes(self):
        """With --input-type the data are what clients send."""
        write_npy(self.data / "a.npy", (2, 1, 8, 8), [i % 17 for i in range(2 * PIXELS)], "B",
                  "|u1")
        served = ("--input-type", "image=uint8", "--input-scale", "image=0.0625")
        self.calibrate(*served)
        self.assertNotIn("image", self.rows())
        said = self.build("--precision", "int8", "--ranges", self.table, *served)
        self.assertIn("precision int8", said)
        self.assertIn("UINT8", self.calibrate(code=1))

    def test_data_that_are_refused(self):
        self.assertIn("no .npy file in it", self.calibrate(code=1))
        (self.data / "readme").write_text("x")
        self.assertIn("no .npy file in it, 1 other", self.calibrate(code=1))
        file = self.data / "x.npy"
        cases = (
            ((1, 8, 8), [0.0] * 64, "d", "<f8", "FP64 [1,8,8]; input 'image' takes FP32 [1,1,8,8]"),
            ((1, 8, 8), [0] * 64, "B", "|u1", "UINT8 [1,8,8]"),
            ((8, 8), [0.0] * 64, "f", "<f4", "FP32 [8,8]"),
            ((1, 3, 8, 8), [0.0] * 192, "f", "<f4", "FP32 [1,3,8,8]"),
            ((1, 1, 8, 9), [0.0] * 72, "f", "<f4", "FP32 [1,1,8,9]"),
            ((1, 1, 8, 8), [0.0] * 63 + [float("nan")], "f", "<f4", "element 63 is nan"),
            ((1, 1, 8, 8), [float("-inf")] + [0.0] * 63, "f", "<f4", "element 0 is -inf"),
            ((0, 1, 8, 8), [], "f", "<f4", "FP32 [0,1,8,8]"),
        )
        for shape, values, code, descr, says in cases:
            write_npy(file, shape, values, code, descr)
            said = self.calibrate(code=1)
            self.assertIn(says, said)
            self.assertIn("x.npy", said)
        file.write_bytes(b"\x93NUMPY garbage")
        self.assertIn("x.npy", self.calibrate(code=1))
        write_npy(file, (1, 8, 8), image(1))
        write_npy(self.data / "y.npy", (1, 8, 8), [float("nan")] * 64)
        self.assertIn("y.npy: element 0", self.calibrate(code=1))
        self.assertEqual(list(self.dir.iterdir()), [self.data])  # no table, and no temporary

    def test_usage(self):
        self.assertIn("--data FOLDER is required",
                      self.run_it("calibrate", self.digits, "-o", self.table, code=2))
        self.assertIn("-o TABLE is required",
                      self.run_it("calibrate", self.digits, "--data", self.data, code=2))
        self.assertIn("nowhere", self.run_it("calibrate", self.digits, "--data",
                                             self.dir / "nowhere", "-o", self.table, code=1))
        self.write(1)
        self.assertIn("absent", self.run_it("calibrate", self.digits, "--data", self.data, "-o",
                                            self.dir / "absent" / "t", code=1))
        self.build()
        self.assertIn("is a plan", self.run_it("calibrate", self.dir / "digits.plan", "--data",
                                               self.data, "-o", self.table, code=1))

    def test_a_build_says_what_became_of_the_ranges(self):
        self.write(*range(4))
        self.calibrate()
        said = self.build("--precision", "int8", "--ranges", self.table)
        given = len(self.rows())
        self.assertRegex(said, rf"ranges: \d+ tensors and 5 weights have one; of {given} given")
        self.assertIn("0 of tensors that are not there", said)
        self.assertNotIn("no range", said)

    def test_ranges_by_hand(self):
        self.write(*range(4))
        self.calibrate()
        mine = self.dir / "mine"
        mine.write_text("inferd ranges 1\nmodel any\nimage keep\nrelu1 range 0 9 user\n")
        both = ("--ranges", self.table, "--ranges", mine)
        said = self.build("--precision", "int8", *both)
        self.assertRegex(said, "and 4 weights have one")  # the first layer reads floats
        self.assertIn("no range is known for tensor 'pool1'",
                      self.build("--precision", "int8", "--ranges", mine, code=1))
        said = self.build("--precision", "int8", "--ranges", mine, "--missing-ranges", "keep")
        self.assertIn("no range: 3 inputs of layers stay a float: 'pool1'", said)

    def test_tables_that_are_refused(self):
        self.write(1)
        self.calibrate()
        text = self.table.read_text()
        int8 = ("--precision", "int8", "--ranges", self.table)
        other = "0" * 32
        cases = (
            (re.sub("model [0-9a-f]+", f"model {other}", text), f"of another model: {other}"),
            (re.sub("model [0-9a-f]+", "model me", text), "line 2: 'model' and the digest"),
            (text + "relu1 range 0 1\n", "tensor 'relu1' has a range already in line"),
            (text + "rellu1 range 0 1\n", "no tensor 'rellu1' (did you mean 'relu1'?)"),
            (text.replace("relu2  ", "relu2 keep #"), "no range"),
            (re.sub(r"relu2 +range 0 \S+", "relu2 range 0 nan", text), "'nan' is not finite"),
            (re.sub(r"relu2 +range 0 \S+", "relu2 uint8 0 0", text), "must be above 0"),
            (re.sub(r"relu2 +range 0 \S+", "relu2 int8 -1 0", text), "must be above 0"),
            (re.sub(r"relu2 +range 0 \S+", "relu2 int4 1 0", text), "'int4': there are"),
            ("", "begins with 'inferd ranges 1'"),
        )
        for changed, says in cases:
            self.table.write_text(changed)
            if says == "no range":
                self.assertIn("ranges:", self.build(*int8))
            else:
                self.assertIn(says, self.build(*int8, code=1))
        self.table.write_text(text)
        for precision in ("fp32", "fp16"):
            self.assertIn(f"not with {precision}", self.build("--precision", precision, "--ranges",
                                                              self.table, code=1))
        self.assertIn("not with fp32", self.build("--missing-ranges", "keep", code=1))
        self.assertIn("known are keep and error",
                      self.build(*int8, "--missing-ranges", "drop", code=1))
        self.assertIn("image/quantise",  # emulated
                      self.build("--precision", "fp8", "--ranges", self.table))
        self.assertIn("'int8'", self.build("--precision", "int4", code=1))
        self.assertIn("nosuch", self.build("--precision", "int8", "--ranges", "nosuch", code=1))

    def test_names_that_were_fused_away(self):
        """They may be given: which tensors are left depends on the device."""
        self.write(1)
        self.calibrate()
        self.table.write_text(self.table.read_text() + "conv1 range -1 1\n@elsewhere keep\n")
        said = self.build("--precision", "int8", "--ranges", self.table)
        self.assertIn("2 of tensors that are not there", said)


if __name__ == "__main__":
    INFERCTL, MODELS = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
