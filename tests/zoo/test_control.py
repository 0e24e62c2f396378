#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan beside onnxruntime: test_control.py INFERCTL. Each model is written as ONNX's
text; one for two values of a condition is run with both. Prints TAP; skipped without onnxruntime.
"""
import os
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime  # noqa: F401
    import compare
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

BOUND = 1e-6
HEAD = '<ir_version: 8, opset_import: ["" : 16]>\n'
CONSTANTS = """
  zero = Constant <value = int64 {0}> ()
  one = Constant <value = int64 {1}> ()
  two = Constant <value = int64 {2}> ()
  three = Constant <value = int64 {3}> ()
  yes = Constant <value = bool {1}> ()
"""

MODELS = {
    "a loop whose states and kept values are its inputs": """
agraph (float[2, 3] x) => (float[2, 3] y, float[4, 2, 3] k) {
  n = Constant <value = int64 {4}> ()
  y, k = Loop (n, "", x) <body = b (int64 i, bool c, float[2, 3] s)
    => (bool c, float[2, 3] s, float[2, 3] s) { }>
}""",
    "a loop that exchanges its states": """
agraph (float[2, 3] x, float[2, 3] z) => (float[2, 3] y, float[2, 3] w, float[3, 2, 3] k) {
  n = Constant <value = int64 {3}> ()
  y, w, k = Loop (n, "", x, z) <body = b (int64 i, bool c, float[2, 3] s, float[2, 3] t)
    => (bool d, float[2, 3] t, float[2, 3] s, float[2, 3] u) { d = Identity (c) u = Add (s, t) }>
}""",
    "outputs that are an input, a constant, and one value under three names": """
agraph (float[2, 3] x) => (float[2, 3] x, float[2] c, float[2, 3] u, float[2, 3] v, float[2, 3] w)
  <float[2] c = {1, 2}> {
  u = Neg (x)
  v = Identity (u)
  w = Identity (v)
}""",
    "a known number of iterations; states, kept values, an outer name": """
agraph (float[2, 3] x) => (float[2, 3] last, float[5, 2, 3] all, int64[5] counts) {
  n = Constant <value = int64 {5}> () """ + CONSTANTS + """
  last, all, counts = Loop (n, yes, x) <body = b (int64 i, bool c, float[2, 3] s)
    => (bool d, float[2, 3] t, float[2, 3] k, int64 j) {
      d = Identity (c)
      f = Cast <to = 1> (i)
      u = Mul (x, f)
      t = Add (s, u)
      k = Sin (t)
      j = Mul (i, i)
    }>
}""",
    "a condition that ends it": """
agraph (float[2, 3] x) => (float[2, 3] last, float[m, 2, 3] all, int64 count) {""" + CONSTANTS + """
  last, count, all = Loop ("", yes, x, zero) <body = b (int64 i, bool c, float[2, 3] s, int64 a)
    => (bool d, float[2, 3] t, int64 e, float[2, 3] k) {
      e = Add (a, two)
      seven = Constant <value = int64 {7}> ()
      d = Less (e, seven)
      t = Tanh (s)
      k = Identity (t)
    }>
}""",
    "loops within loops": """
agraph (float[2, 3] x) => (float[2, 3] last, float[3, 2, 2, 3] all) {""" + CONSTANTS + """
  last, all = Loop (three, "", x) <body = b (int64 i, bool c, float[2, 3] s)
    => (bool d, float[2, 3] t, float[2, 2, 3] k) {
      d = Identity (c)
      t, k = Loop (two, "", s) <body = inner (int64 j, bool e, float[2, 3] v)
        => (bool f, float[2, 3] w, float[2, 3] l) {
          f = Identity (e)
          g = Add (i, j)
          h = Cast <to = 1> (g)
          l = Add (v, h)
          w = Mul (l, x)
        }>
    }>
}""",
    "a branch by the iteration's number": """
agraph (float[2, 3] x) => (float[2, 3] last, float[4, 2, 3] all) {""" + CONSTANTS + """
  four = Add (three, one)
  last, all = Loop (four, yes, x) <body = b (int64 i, bool c, float[2, 3] s)
    => (bool d, float[2, 3] t, float[2, 3] k) {
      d = Identity (c)
      r = Mod (i, two)
      odd = Equal (r, one)
      t = If (odd) <then_branch = p () => (float[2, 3] o) { o = Neg (s) },
                    else_branch = q () => (float[2, 3] o) { w = Add (s, x) o = Relu (w) }>
      k = Identity (s)
    }>
}""",
    "more than 256 parts": """
agraph (float[2] x) => (float[2] last, float[600, 2] all) {
  n = Constant <value = int64 {600}> () """ + CONSTANTS + """
  last, all = Loop (n, "", x) <body = b (int64 i, bool c, float[2] s)
    => (bool d, float[2] t, float[2] k) {
      d = Identity (c)
      h = Constant <value = float {0.99}> ()
      t = Mul (s, h)
      k = Add (t, x)
    }>
}""",
    "no iteration at all": """
agraph (float[2, 3] x) => (float[2, 3] last, float[m, 4] all, float[2, 3] y) {""" + CONSTANTS + """
  last, all = Loop (zero, yes, x) <body = b (int64 i, bool c, float[2, 3] s)
    => (bool d, float[2, 3] t, float[4] k) {
      d = Identity (c)
      t = Neg (s)
      k = Constant <value = float[4] {1, 2, 3, 4}> ()
    }>
  y = Neg (x)
}""",
    "a layer over another, in a loop": """
agraph (float[4, 2, 3] x) => (float[4, 2, 3] last)
<float[1, 3, 3] w = {0.1, 0.2, 0.3, -0.4, 0.5, 0.6, 0.7, -0.8, 0.9},
 float[1, 3, 3] r = {0.3, 0.1, -0.2, 0.4, 0.2, 0.1, -0.5, 0.3, 0.2}> {""" + CONSTANTS + """
  last = Loop (three, "", x) <body = b (int64 i, bool c, float[4, 2, 3] s)
    => (bool d, float[4, 2, 3] t) {
      d = Identity (c)
      y = RNN <hidden_size = 3> (s, w, r)
      axis = Constant <value = int64[1] {1}> ()
      t = Squeeze (y, axis)
    }>
}""",
    "branches known when the plan is built": """
agraph (float[2, 3] x) => (float[2, 3] y, float[3, 2] z) {""" + CONSTANTS + """
  s = Shape (x)
  n = Gather (s, zero)
  c = Equal (n, two)
  d = Not (c)
  y = If (c) <then_branch = p () => (float[2, 3] o) { o = Neg (x) },
              else_branch = q () => (float[1] o) { o = Constant <value = float[1] {1}> () }>
  z = If (d) <then_branch = p () => (float[2, 3] o) { o = Neg (x) },
              else_branch = q () => (float[3, 2] o) { o = Transpose (x) }>
}""",
    "branches that a request chooses": """
agraph (float[2, 3] x, bool c) => (float[2, 3] y, int64[2] z) {""" + CONSTANTS + """
  y, z = If (c) <then_branch = p () => (float[2, 3] o, int64[2] a) {
                   w = Neg (x) o = Exp (w) a = Constant <value = int64[2] {1, 2}> () },
                 else_branch = q () => (float[2, 3] o, int64[2] a) {
                   o = Identity (x) a = Constant <value = int64[2] {3, 4}> () }>
}""",
    "branches that a computed condition chooses": """
agraph (float[2, 3] x) => (float[2, 3] y) {
  s = ReduceSum <keepdims = 1> (x)
  f = Constant <value = float[1, 1] {0}> ()
  c = Greater (s, f)
  m = Constant <value = int64[1] {1}> ()
  d = Reshape (c, m)
  y = If (d) <then_branch = p () => (float[2, 3] o) { o = Neg (x) },
              else_branch = q () => (float[2, 3] o) { o = Sin (x) }>
}""",
    "scan: directions and axes": """
agraph (float[2, 5] x, float[5, 3] y, float[2] a, float[3] b)
    => (float[2] c, float[3] d, float[2, 5] k, float[5, 3] l) {
  c, d, k, l = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0],
                     scan_input_directions = [1, 0], scan_output_axes = [-1, 0],
                     scan_output_directions = [0, 1],
                     body = s (float[2] a, float[3] b, float[2] u, float[3] v)
      => (float[2] e, float[3] f, float[2] g, float[3] h) {
        e = Add (a, u)
        w = Mul (b, v)
        f = Tanh (w)
        g = Sin (e)
        h = Add (f, v)
      }> (a, b, x, y)
}""",
    "scan: a name of the outer graph, nothing handed on": """
agraph (float[4, 3] x, float[3] b) => (float[4, 3] k) {
  k = Scan <num_scan_inputs = 1, body = s (float[3] u) => (float[3] h) { h = Mul (u, b) }> (x)
}""",
}


def feeds_for(model, rng, flag):
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        feeds[value.name] = (np.array(flag) if kind.elem_type == onnx.TensorProto.BOOL else
                             rng.standard_normal(shape).astype(np.float32) + (1 if flag else -1))
    return feeds


def main():
    inferctl, number, failed = sys.argv[1], 0, 0
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path, plan = os.path.join(folder, "m.onnx"), os.path.join(folder, "m.plan")
        for name, text in MODELS.items():
            model = onnx.parser.parse_model(HEAD + text)
            onnx.checker.check_model(model)
            onnx.save(model, path)
            worst, count = 0.0, 0
            # a plan knows no values, so a choice that depends on the input is made anew for each
            # request
            done = compare.subprocess.run([inferctl, "build", path, "-o", plan, "--no-tune"],
                                          capture_output=True, text=True, check=False)
            for flag in (True, False) if done.returncode == 0 else ():
                feeds = feeds_for(model, rng, flag)
                want = compare.theirs(path, feeds)
                for extra in ([], ["--reference-only"]):
                    got = compare.ours(inferctl, plan if not extra else path, feeds, extra)
                    for key, value in want.items():
                        same = value.size == 0 and getattr(got.get(key), "shape", 0) == value.shape
                        worst = max(worst, 0 if same else
                                    compare.relative_error(got.get(key), value))
                        count += 1
            number += 1
            bad = done.returncode != 0 or not count or worst > BOUND
            failed += bad
            print(f"{'not ok' if bad else 'ok'} {number} - {name}: {count} outputs, relative error "
                  f"{worst:.1e}, at most {BOUND:.0e} {done.stderr.strip() if bad else ''}",
                  flush=True)
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
