#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What inferctl shows of models whose names hold anything: check_names.py INFERCTL

The models are encoded here, field by field (onnx.proto3), because no library writes such names.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

INFERCTL = None
QUICK = ("--threads", "1", "--no-tune")
NASTY = "a\x1b]0;x\x07\x1b[2J\nb\u009b1m\u00f6"
SHOWN = "a\\x1b]0;x\\x07\\x1b[2J\\x0ab\\xc2\\x9b1m\u00f6"
BROKEN = b"n\xff\xe2\x82z"


def varint(n):
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + varint(n >> 7)


def field(tag, value):
    """A number, a text, or bytes: a message that was encoded before."""
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(tag << 3 | 2) + varint(len(value)) + value


def message(*fields):
    return b"".join(field(tag, value) for tag, value in fields)


def value_info(name, shape):
    """A dimension is a number, a name, or None."""
    dims = [message() if d is None else message((1 if isinstance(d, int) else 2, d)) for d in shape]
    tensor = message((1, 1), (2, message(*((1, d) for d in dims))))
    return message((1, name), (2, message((1, tensor))))


def model(inputs, outputs, nodes):
    """inputs, outputs: (name, shape); nodes: (op, inputs, output, name)."""
    graph = [(1, message(*((1, i) for i in takes), (2, makes), (3, name), (4, op)))
             for op, takes, makes, name in nodes]
    graph += [(2, "g"), *((11, value_info(*i)) for i in inputs),
              *((12, value_info(*o)) for o in outputs)]
    return message((1, 8), (7, message(*graph)), (8, message((1, ""), (2, 17))))


def relu(name, shape, node="relu", result="y"):
    return model([(name, shape)], [(result, shape)], [("Relu", [name], result, node)])


class Names(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def run_it(self, *args, codes=(0,)):
        env = dict(os.environ, XDG_CACHE_HOME=str(self.dir / "cache"),
                   INFERD_MODULE_DIR=str(self.dir))
        done = subprocess.run([INFERCTL, *map(str, args)], capture_output=True, env=env,
                              timeout=100, check=False)
        self.assertIn(done.returncode, codes, done.stderr)
        return done.stdout

    def put(self, data):
        path = self.dir / "model.onnx"
        path.write_bytes(data)
        return path

    def harmless(self, output):
        """No control characters but newlines, and no line that begins with a name's rest."""
        text = output.decode()
        self.assertEqual(re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), [], text)
        self.assertFalse(any(line.startswith("b") and "1m" in line for line in text.split("\n")))
        return text

    def test_names_do_not_reach_the_terminal(self):
        path = self.put(relu(NASTY, [NASTY, 4], node=NASTY, result=NASTY + "y"))
        self.assertIn(f"input    {SHOWN} FP32 [{SHOWN},4]\n",
                      self.harmless(self.run_it("inspect", path)))
        bad = model([("x", [4])], [("y", [4])], [("Re" + NASTY, ["x"], "y", NASTY)])
        said = self.harmless(self.run_it("inspect", self.put(bad), codes=(1,)))
        self.assertIn(f"Re{SHOWN} '{SHOWN}': ", said)

    def test_names_of_plans_do_not_reach_the_terminal(self):
        path, plan = self.put(relu(NASTY, [1, 4], NASTY, NASTY + "y")), self.dir / "model.plan"
        self.harmless(self.run_it("build", path, "-o", plan, "-v", *QUICK))
        for args in (("inspect", plan),
                     ("bench", plan, "--layers", "--memory", "--seconds", "0.01")):
            self.assertIn(SHOWN, self.harmless(self.run_it(*args)), args)
        self.harmless(self.run_it("run", plan))

    def test_json_is_utf8_whatever_the_names_are(self):
        said = self.run_it("inspect", self.put(relu(BROKEN, [4], node=NASTY)), "--json")
        self.assertEqual(re.findall(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", said), [])
        self.assertEqual(json.loads(said)["inputs"][0]["name"], "n\ufffd\ufffd\ufffdz")
        said = self.run_it("inspect", self.put(relu(NASTY + '"\\', [4])), "--json")
        self.assertEqual(json.loads(said)["inputs"][0]["name"], NASTY + '"\\')

    def test_a_dimension_is_a_number_or_a_name(self):
        said = json.loads(self.run_it("inspect", self.put(relu("x", ["3d", 64, "64"])), "--json",
                                      "--dim", "64=2"))
        self.assertEqual((said["inputs"][0]["shape"], said["opset"]), (["3d", 64, "64"], 17))

    def opens(self, shape, *args):
        """The lines of the dimensions that are open, and whether a build obeys them."""
        said = self.run_it("inspect", self.put(relu("x", shape)), *args, codes=(0, 1)).decode()
        return re.findall("(?m)^open     (.*)$", said)

    def test_advice_on_open_dimensions_is_what_a_build_takes(self):
        cases = (
            (["N", 4], ["N, which counts instances: --batch"]),
            (["N", "T", 4], ["N, which counts instances: --batch", "T of 'x': --dim T=N"]),
            (["steps", "batch", 4], ["steps of 'x': --dim steps=N",
                                     "batch, which counts instances: --batch"]),
            ([None, None, 4], ["dimension 0 of 'x', which counts instances: --batch",
                               "dimension 1 of 'x': --dim x:1=N"]),
            (["N", "?", "?"], ["N, which counts instances: --batch",
                               "dimension 1 of 'x': --dim x:1=N",
                               "dimension 2 of 'x': --dim x:2=N"]),
            (["N", 0, 4], ["N, which counts instances: --batch"]),
        )
        for shape, lines in cases:
            with self.subTest(shape):
                self.assertEqual(self.opens(shape), lines)
                dims = [word for line in lines if "--dim" in line
                        for word in ("--dim", line.split("--dim ")[1].replace("=N", "=3"))]
                self.assertEqual(self.opens(shape, *dims),
                                 [line for line in lines if "--dim" not in line])
                self.run_it("build", self.dir / "model.onnx", "-o", self.dir / "model.plan",
                            "--batch", "2", *dims, *QUICK)
        said = self.run_it("inspect", self.put(relu("x", ["N", 0, 4])))
        self.assertIn(b"input    x FP32 [N,0,4]\n", said)


if __name__ == "__main__":
    INFERCTL = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
