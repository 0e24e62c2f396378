#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The engine's library as others use it: installed, found by pkg-config, from C and C++.

    test_library.py BUILD INFERCTL ROOT SANITIZE CC CXX
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import installed

BUILD, INFERCTL, ROOT = map(os.path.abspath, sys.argv[1:4])
SANITIZE, CC, CXX = sys.argv[4], sys.argv[5].split(), sys.argv[6].split()
EXAMPLE = pathlib.Path(ROOT, "engine/library/examples/run_plan.c")
CHECK = pathlib.Path(ROOT, "tests/library/check.c")
os.environ.pop("LD_LIBRARY_PATH", None)  # it names the build folder's library
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command, code=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_npy(path, shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (64 - (len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}f", *values))


class Library(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.tree = installed.Tree(BUILD, cls.root / "tree", r"inferd-engine|inferd_engine\.h$")
        cls.flags = cls.tree.flags("inferd-engine")
        if SANITIZE != "none":
            cls.flags.append(f"-fsanitize={SANITIZE}")
        cls.plan = cls.root / "digits.plan"
        run(INFERCTL, "build", f"{ROOT}/models/digits.onnx", "-o", cls.plan, "--batch", "1,2,4",
            "--no-tune", "--timing-cache", "", "--threads", "1")
        cls.check = installed.compile_program([*CC, "-std=c11", "-D_GNU_SOURCE", *STRICT], CHECK,
                                              cls.root / "check", *cls.flags, "-pthread", "-lm")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_cases(self):
        names = run(self.check).split()
        self.assertGreater(len(names), 5)
        for name in names:
            with self.subTest(name):
                run(self.check, name, self.plan)

    def test_sizes_that_are_chosen(self):
        sys.path.insert(0, f"{ROOT}/tests/integration")
        import wire  # only the helpers that write messages

        def info(name):
            dims = b"".join(wire.field(1, wire.message((1, d)) if isinstance(d, int)
                                       else wire.message((2, d))) for d in (3, "batch", "m"))
            return wire.message((1, name), (2, wire.message((1, wire.message((1, 1), (2, dims))))))
        node = wire.message((1, "x"), (1, "x"), (2, "y"), (3, "n"), (4, "Add"))
        graph = wire.message((1, node), (2, "g"), (11, info("x")), (12, info("y")))
        model, plan = self.root / "free.onnx", self.root / "free.plan"
        model.write_bytes(wire.message((1, 8), (8, wire.message((2, 13))), (7, graph)))
        run(INFERCTL, "build", model, "-o", plan, "--batch", "1,4", "--shape", "x=3x*x2..16",
            "--profiles", "m=8,16", "--no-tune", "--timing-cache", "", "--threads", "1")
        run(self.check, "takes_sizes", plan)

    def test_sequences_of_any_lengths(self):
        sys.path.insert(0, f"{ROOT}/tests/integration")
        import harness  # only the helpers that write models

        model, plan = self.root / "ragged.onnx", self.root / "ragged.plan"
        rows = ["batch", "seq"]
        model.write_bytes(harness.model(
            [harness.node("Add", ["x", "x"], ["y"])],
            [harness.value("x", harness.FLOAT, [*rows, 3]),
             harness.value("mask", harness.INT64, rows)],
            [harness.value("y", harness.FLOAT, [*rows, 3])]))
        run(INFERCTL, "build", model, "-o", plan, "--ragged", "x,mask", "--batch", "16",
            "--no-tune", "--timing-cache", "", "--threads", "1")
        run(self.check, "takes_sequences", plan)

    def example(self, compiler):
        program = installed.compile_program([*compiler, *STRICT], EXAMPLE,
                                            self.root / "example", *self.flags)
        said = run(program, self.plan, "cpu", "layers")
        self.assertRegex(said, r"(?m)^layer 0: \S")
        run(program, EXAMPLE, "cpu", code=1)
        run(program, self.plan, "nosuch", code=1)
        return [float(word) for word in
                re.search(r"(?m)^probabilities FP32:((?: \S+)+)$", said).group(1).split()]

    def expected(self):
        """The same by inferctl."""
        write_npy(self.root / "in.npy", (1, 1, 8, 8), [float(i % 16) for i in range(64)])
        run(INFERCTL, "run", self.plan, "--input", f"image={self.root}/in.npy", "--output",
            self.root / "out")
        data = (self.root / "out" / "probabilities.npy").read_bytes()
        return struct.unpack("<10f", data[-40:])

    def test_the_example_computes_what_inferctl_computes(self):
        for compiler in ([*CC, "-std=c99"], [*CXX, "-x", "c++", "-std=c++11"]):
            if not shutil.which(compiler[0]) and compiler[0] == CXX[0]:
                continue
            with self.subTest(compiler):
                for got, expected in zip(self.example(compiler), self.expected(), strict=True):
                    self.assertAlmostEqual(got, expected, delta=1e-5)

    def test_only_public_names_are_exported(self):
        library = self.tree.find(r"libinferd-engine\.so\.\d+\.\d+\.\d+")
        names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).split("\n")
                 if line and " A " not in line]
        header = self.tree.find("inferd_engine.h").read_text()
        self.assertEqual({name.split("@")[0] for name in names},
                         set(re.findall(r"\b(inferd_engine_\w+)\(", header.split("*/", 1)[1])) -
                         set(re.findall(r"inferd_engine_\w+_init\b", header)))

    def test_the_package_has_the_version(self):
        text = self.tree.find(r"inferd-engine\.pc").read_text()
        version = re.search(r"(?m)^Version: (\S+)$", text).group(1)
        self.assertIn(f"version {version}", subprocess.run(
            [INFERCTL, "--version"], capture_output=True, text=True, check=True,
            timeout=30).stdout.replace("inferctl ", "version "))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
