#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose requests choose sizes: ranges in the configuration, metadata, batches, refusals.

    test_shapes.py INFERD INFERCTL
"""
import json
import random
import re
import struct
import subprocess
import threading
import unittest
import urllib.request

import harness
import wire
from harness import FLOAT, INT64, node, value

SIZES = (3, 8, 17)
FAILED_PRECONDITION = 9


def model(batch="N"):
    """y = x + z, whose middle dimensions are one; w = y's rows, summed up."""
    return harness.model(
        [node("Add", ["x", "z"], ["y"]), node("Add", ["y", "y"], ["w"])],
        [value("x", FLOAT, [batch, "seq", 2]), value("z", FLOAT, [batch, "seq", 2])],
        [value("y", FLOAT, [batch, "seq", 2]), value("w", FLOAT, [batch, "seq", 2])])


def scaled():
    """y = x * s, where s is an input without dimensions."""
    return harness.model(
        [node("Mul", ["x", "s"], ["y"])], [value("x", INT64, ["N", 2]), value("s", INT64, [])],
        [value("y", INT64, ["N", 2])])


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def inputs(rng, n, seq, name="xz"):
    count = n * seq * 2
    return [(i, "FP32", [n, seq, 2], floats([rng.randrange(-99, 99) for _ in range(count)]))
            for i in name]


class Shapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = harness.folder()
        (folder / "seq.onnx").write_bytes(model())
        (folder / "scaled.onnx").write_bytes(scaled())
        at = str(folder / "seq.onnx")
        cls.server = harness.Server(
            {"seq": {"path": at, "shapes": ["x=1..4x2..20x2"],
                     "profiles": ["seq=" + ",".join(map(str, SIZES))]},
             "fixed": {"path": at, "dims": ["seq=5"], "batches": [1, 2]},
             "scaled": {"path": str(folder / "scaled.onnx"), "values": ["s=7"]}},
            config={"workers": 2, "max_delay_us": 2000}, arguments=["--http", "127.0.0.1:0"])

    @classmethod
    def tearDownClass(cls):
        try:
            cls.server.stop()
        finally:
            cls.server.kill()

    def refused(self, given, status, *words, to="seq"):
        with self.server.client() as client:
            reply = client.infer(to, given)
        self.assertEqual(reply.status, status, reply.message)
        for word in words:
            self.assertIn(word, reply.message)

    def check(self, client, given, to="seq"):
        reply = client.infer(to, given)
        self.assertEqual((reply.status, reply.message), (wire.OK, ""))
        count = len(given[0][3]) // 4
        x, z = (struct.unpack(f"<{count}f", i[3]) for i in given)
        total = [a + b for a, b in zip(x, z)]
        outputs = reply.outputs()
        self.assertEqual(outputs["y"], ("FP32", given[0][2], floats(total)))
        self.assertEqual(outputs["w"], ("FP32", given[0][2], floats([2 * t for t in total])))
        return reply.batch

    def test_mixed_sizes_share_batches_only_with_their_like(self):
        failures, batches = [], []

        def send(seed):
            rng = random.Random(seed)
            try:
                with self.server.client() as client:
                    for _ in range(125):
                        batches.append(self.check(
                            client, inputs(rng, rng.randint(1, 3), rng.choice(SIZES))))
            except BaseException as failure:  # the thread's, told below
                failures.append(failure)
        threads = [threading.Thread(target=send, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(120)
        self.assertEqual(failures, [])
        self.assertEqual(len(batches), 1000)
        self.assertLessEqual(max(batches), 4)

    def test_one_size_by_dims(self):
        rng = random.Random(1)
        with self.server.client() as client:
            self.check(client, inputs(rng, 2, 5), to="fixed")
        self.refused(inputs(rng, 1, 8), wire.INVALID_ARGUMENT, "shape", to="fixed")

    def test_a_value_makes_an_input_a_constant(self):
        with self.server.client() as client:
            reply = client.infer("scaled", [("x", "INT64", [1, 2], struct.pack("<2q", 3, -2))])
            self.assertEqual(reply.outputs()["y"][2], struct.pack("<2q", 21, -14))
        self.refused([("x", "INT64", [1, 2], bytes(16)), ("s", "INT64", [], bytes(8))],
                     wire.INVALID_ARGUMENT, "no input 's'", to="scaled")

    def test_what_no_profile_holds(self):
        rng = random.Random(2)
        self.refused(inputs(rng, 1, 21), wire.INVALID_ARGUMENT, "'seq'", "21", "2 to 20")
        self.refused(inputs(rng, 1, 1), wire.INVALID_ARGUMENT, "2 to 20")
        self.refused(inputs(rng, 1, 9), FAILED_PRECONDITION, "seq=9", "--profiles")
        self.refused(inputs(rng, 5, 8), wire.INVALID_ARGUMENT, "5 instances")
        self.refused(inputs(rng, 1, 8)[:1] + inputs(rng, 1, 3)[1:], wire.INVALID_ARGUMENT,
                     "'z'", "'seq'", "3", "8 elsewhere")
        for size in (0, 1 << 40, (1 << 63) - 1):
            self.refused([("x", "FP32", [1, size, 2], b""), ("z", "FP32", [1, size, 2], b"")],
                         wire.INVALID_ARGUMENT)
        with self.server.client() as client:
            self.check(client, inputs(rng, 4, 17))

    def test_metadata_leaves_sizes_open(self):
        where = re.search(r"(?m)^ready (\S+) \(http\)", self.server.log())[1]
        with urllib.request.urlopen(f"http://{where}/v2/models/seq", timeout=10) as answer:
            said = json.load(answer)
        shapes = {t["name"]: list(map(int, t["shape"])) for t in said["inputs"] + said["outputs"]}
        self.assertEqual(shapes, {name: [-1, -1, 2] for name in "xzyw"})

    def test_a_build_says_what_contradicts(self):
        at = harness.folder() / "seq.onnx"
        for options, word in (
                (["--shape", "x=1..4x2..9x2", "--shape", "z=1..4x2..8x2"], "elsewhere"),
                (["--shape", "x=1..4x2..9x2", "--profiles", "seq=10"], "not within 2..9"),
                (["--shape", "x=1..4x2..9x2", "--batch", "8"], "at most 4 instances"),
                (["--shape", "x=1..4x2..9x3"], "fixes dimension 2"),
                (["--dim", "seq=3", "--dim", "seq=4"], "given twice"),
                (["--dim", "x:7=3"], "no input has such a dimension"),
                (["--value", "q=3", "--dim", "seq=4"], "no such input"),
                (["--value", "x=a", "--dim", "seq=4"], "expected one FP32")):
            done = subprocess.run(
                [harness.INFERCTL, "build", at, "-o", harness.folder() / "no.plan", "--no-tune",
                 "--timing-cache", "", *options], capture_output=True, text=True, timeout=60,
                check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    harness.main()
