#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX files of about a megabyte made to keep the builder busy: none may take it CPU_SECONDS.

    test_growth.py INFERD INFERCTL

Code that looks at all nodes for each node takes minutes for each of these files. The bound is on
processor time, which other processes do not change, and is far above what a slow machine needs.
"""
import resource
import struct
import subprocess
import unittest

import harness
from harness import FLOAT, INT64, constant, model, node, value

CPU_SECONDS = 40
FAN = 250  # a node has 256 inputs at most


def gathered(nodes, names, op="Concat"):
    """Nodes that bring `names` together into y, FAN at a time."""
    level = 0
    while len(names) > 1:
        level += 1
        above = []
        for i in range(0, len(names), FAN):
            name = "y" if len(names) <= FAN else f"{op}{level}_{i}"
            part = names[i:i + FAN]
            nodes.append(concat(part, name) if op == "Concat" else node(op, part, [name]))
            above.append(name)
        names = above
    return nodes


def concat(inputs, output):
    return node("Concat", inputs, [output]) + attribute("axis", 1)


def attribute(name, number):
    return harness.message((5, harness.message((1, name), (3, number), (20, 2))))


def float_attribute(name, number):
    field = b"\x15" + struct.pack("<f", number)
    return harness.message((5, harness.message((1, name)) + field + harness.message((20, 1))))


def made(nodes, width=4, constants=(), dims=()):
    return model(nodes, [value("x", FLOAT, ["N", *(dims or [width])])],
                 [value("y", FLOAT, [])], constants)


def fan_out(n):
    """One tensor with n readers, all of which are needed up to the end, and no two of them equal:
    equal nodes become one."""
    nodes = [node(("LeakyRelu", "Elu", "ThresholdedRelu")[i % 3], ["x"], [f"r{i}"]) +
             float_attribute("alpha", 1 + i / 4096) for i in range(n)]
    return made(gathered(nodes, [f"r{i}" for i in range(n)]))


def convolutions(n):
    """The same, of nodes that can read and write several layouts; each has a bias of its own."""
    nodes = [node("Conv", ["x", "w", f"b{i}"], [f"c{i}"]) for i in range(n)]
    constants = [constant("w", FLOAT, [4, 4, 1, 1], struct.pack("<16f", *range(16)))]
    constants += [constant(f"b{i}", FLOAT, [4], struct.pack("<4f", i, 0, 1, 2)) for i in range(n)]
    return made(gathered(nodes, [f"c{i}" for i in range(n)]), constants=constants, dims=[4, 2, 2])


def split_chain(n):
    nodes, last = [], "x"
    for i in range(n):
        nodes.append(node("Split", [last], [f"a{i}", f"b{i}"]) + attribute("axis", 1))
        last = "y" if i == n - 1 else f"c{i}"
        nodes.append(concat([f"b{i}", f"a{i}"], last))
    return made(nodes)


def small_constants(n):
    """A chain with a constant of its own for each node."""
    nodes, last = [], "x"
    for i in range(n):
        name = "y" if i == n - 1 else f"a{i}"
        nodes.append(node(("Add", "Max")[i % 2], [last, f"k{i}"], [name]))
        last = name
    return made(nodes, constants=[constant(f"k{i}", FLOAT, [1], struct.pack("<f", i))
                                  for i in range(n)])


def reshapes(n):
    nodes, last = [], "x"
    for i in range(n):
        nodes.append(node("Reshape", [last, ("s", "t")[i % 2]], [f"a{i}"]))
        last = f"a{i}"
    nodes.append(node("Relu", [last], ["y"]))
    shapes = [constant("s", INT64, [3], struct.pack("<3q", 0, 2, 2)),
              constant("t", INT64, [2], struct.pack("<2q", 0, 4))]
    return made(nodes, constants=shapes)


class Growth(unittest.TestCase):
    def build(self, data):
        source = harness.folder() / "growth.onnx"
        source.write_bytes(data)

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))

        return subprocess.run(
            [harness.INFERCTL, "build", source, "-o", harness.folder() / "growth.plan", "--batch",
             "1", "--no-tune", "--threads", "1", "--timing-cache", ""], preexec_fn=limit,
            capture_output=True, text=True, timeout=200, check=False)

    def test_files_that_can_be_built(self):
        for make, n in ((fan_out, 8000), (convolutions, 8000), (split_chain, 10000),
                        (small_constants, 15000), (reshapes, 30000)):
            with self.subTest(make.__name__):
                done = self.build(make(n))
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_more_tensors_at_once_than_a_plan_holds(self):
        for make in (fan_out, convolutions):
            with self.subTest(make.__name__):
                done = self.build(make(28000))
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, r"2\d{4} tensors are needed at the same time; a plan "
                                              "holds 8192")


if __name__ == "__main__":
    harness.main()
