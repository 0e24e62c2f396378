#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The small models of the zoo: test_zoo.py INFERCTL FUSED. Their bytes are the same on every
machine, and inferctl's answers agree with onnxruntime's, tuned and not, for one instance and for
several. The graphs that passes make of them for a backend with all features have few nodes and give
the same answers. Prints TAP; skipped without onnx or onnxruntime.
"""
import hashlib
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    import compare
    import convnets
    import inputs
    import make_zoo
    import transformers
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

DIGESTS = {
    "resnet_tiny": "985525051e042b1e481911e1cc344c421343884eba14d2f3d7d3708b1416ed90",
    "bert_tiny": "6e8ea22146366c9fba66e029fb7c3acee7510533cc29cca0a7ce17ba957196f7",
}
BOUND = 1e-5

_VIT = {"layers": 2, "hidden": 96, "heads": 4, "size": 64, "classes": 10}
# For a backend with all features: seven nodes a layer, and the nodes before and behind the layers.
FUSED = [
    ("bert_tiny", transformers.bert_tiny, 2,
     "20 nodes: matmul=9 layer_norm=5 cast=1 reshape=1 gather=1 attention=2 embed=1"),
    ("bert_tiny of opset 13", lambda: transformers.bert("b", 13, 61, 2, 96, 4, 500, 24, 64), 1,
     "20 nodes: matmul=9 layer_norm=5 cast=1 reshape=1 gather=1 attention=2 embed=1"),
    ("vit", lambda: transformers.vit("v", **_VIT), 2,
     "23 nodes: matmul=10 layer_norm=5 reshape=3 transpose=1 concat=1 gather=1 attention=2"),
    ("vit as PyTorch 2 spells it", lambda: transformers.vit("v", sdpa=True, **_VIT), 1,
     "23 nodes: matmul=10 layer_norm=5 reshape=3 transpose=1 concat=1 gather=1 attention=2"),
    ("densenet", convnets.densenet_tiny, 2,
     "18 nodes: conv=6 matmul=2 pool=1 binary=1 reshape=3 transpose=2 concat=3"),
    ("resnet_tiny", make_zoo.MODELS["resnet_tiny"], 2,
     "15 nodes: conv=6 matmul=1 pool=1 reshape=1 conv_pool=1 conv_pair=1 conv_chain=4"),
]
# and a part of such a graph's plan
PLANS = [
    (transformers.bert_tiny, "attention"),
    (convnets.densenet_tiny, "Concat_13 + layer3.norm1"),
]


def check(number, ok, text):
    print(f"{'ok' if ok else 'not ok'} {number} - {text}", flush=True)
    return ok


def check_served(number, inferctl, folder, kind, extra, want, feed):
    """An image sent as another type gives the answer of the same image as floats."""
    path = os.path.join(folder, "resnet_tiny.onnx")
    got = compare.ours(inferctl, path, {"input": feed},
                       ["--no-tune", "--input-type", f"input={kind}", *extra])
    error = compare.relative_error(got.get("output"), want)
    return check(number, error <= BOUND, f"input served as {kind} {' '.join(extra)}: relative "
                 f"error {error:.1e}, at most {BOUND:.0e}")


def served(number, inferctl, folder):
    """Tests pixels, served with and without a preprocessor's work; returns the last test's number
    and the failures."""
    path = os.path.join(folder, "resnet_tiny.onnx")
    pixels = np.random.RandomState(7).randint(0, 256, (2, 3, 64, 64)).astype(np.uint8)
    scale = np.float32([0.0171, 0.0175, 0.0174]).reshape(3, 1, 1)
    bias = np.float32([-2.1, -2.0, -1.8]).reshape(3, 1, 1)
    rows = [
        ("uint8", pixels, scale * pixels + bias,
         ["--input-scale", "input=0.0171,0.0175,0.0174", "--input-bias", "input=-2.1,-2.0,-1.8"]),
        ("uint8", pixels, np.float32(0.0078125) * pixels - 1,
         ["--input-scale", "input=0.0078125", "--input-bias", "input=-1"]),
        ("uint8", pixels, scale * pixels, ["--input-scale", "input=0.0171,0.0175,0.0174"]),
        ("fp16", (pixels / 256).astype(np.float16), pixels.astype(np.float32) / 256, []),
    ]
    failed = 0
    for kind, feed, value, extra in rows:
        number += 1
        want = compare.theirs(path, {"input": value.astype(np.float32)})["output"]
        failed += not check_served(number, inferctl, folder, kind, extra, want, feed)
    return number, failed


def check_plan(number, inferctl, program, folder, row):
    """A plan of what the CPU's passes do not make: written, read and run by reference kernels."""
    make, part = row
    path, plan = (os.path.join(folder, f"special.{end}") for end in ("onnx", "plan"))
    make().save(path)
    feeds = inputs.make(path, 2)
    subprocess.run([program, path, "--batch", "2", *inputs.dims(path), "--plan", plan],
                   check=True)
    told = subprocess.run([inferctl, "inspect", plan], capture_output=True, text=True, check=True)
    got, want = compare.ours(inferctl, plan, feeds, []), compare.theirs(path, feeds)
    worst = max(compare.relative_error(got.get(k), v) for k, v in want.items())
    return check(number, worst <= BOUND and part in told.stdout,
                 f"a plan with '{part}': relative error {worst:.1e}, at most {BOUND:.0e}")


def check_fused(number, program, folder, row):
    name, make, batch, want = row
    path = os.path.join(folder, "fused.onnx")
    make().save(path)
    done = subprocess.run([program, path, "--batch", str(batch), *inputs.dims(path)],
                          capture_output=True, text=True, check=False)
    got = (done.stdout.splitlines() or [""])[0]
    return check(number, done.returncode == 0 and want in (None, got),
                 f"{name} fused: {' '.join(done.stdout.split())} {done.stderr.strip()}")


def check_16_bits(number, inferctl, folder, name, kept):
    """A model that onnxruntime's converter has made FP16 of (`kept`: but for inputs and outputs):
    no layer of it is slow, and it is as close to the FP32 model as onnxruntime's answer is."""
    path, half, plan = (os.path.join(folder, f"{name}{end}")
                        for end in (".onnx", "_16.onnx", "_16.plan"))
    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=kept), half)
    full = inputs.make(path, 2)
    feeds = {k: v if kept or v.dtype != np.float32 else v.astype(np.float16)
             for k, v in full.items()}
    exact, theirs = compare.theirs(path, full), compare.theirs(half, feeds)
    built = subprocess.run([inferctl, "build", half, "-o", plan, "--batch", "2", "--no-tune",
                            *inputs.dims(half)], capture_output=True, text=True, check=True).stdout
    got = compare.ours(inferctl, plan, feeds, [])
    same = all(got[k].dtype == v.dtype for k, v in theirs.items())
    mine, other = (max(compare.relative_error(a[k].astype(np.float32), v)
                       for k, v in exact.items()) for a in (got, theirs))
    slow = [op for op in ("conv", "matmul") if f"({op})" in built]
    ok = same and mine <= other and "tensors are FP32" in built and not slow
    return check(number, ok, f"{name} in FP16{', FP32 outside' if kept else ''}: relative error "
                 f"{mine:.1e}, at most onnxruntime's {other:.1e}; slow: {slow or 'none'}")


def main():
    number, failed = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # nobody else uses the timing cache
        for name, want in DIGESTS.items():
            path = os.path.join(folder, f"{name}.onnx")
            make_zoo.MODELS[name]().save(path)
            with open(path, "rb") as f:
                got = hashlib.sha256(f.read()).hexdigest()
            number += 1
            failed += not check(number, got == want, f"bytes of {name}: {got}, wanted {want}")
            for batch in (1, 3):
                feeds = inputs.make(path, batch)
                want_outputs = compare.theirs(path, feeds)
                for extra in ([], ["--no-tune"]):
                    number += 1
                    outputs = compare.ours(sys.argv[1], path, feeds, extra)
                    worst = max(compare.relative_error(outputs.get(k), v)
                                for k, v in want_outputs.items())
                    failed += not check(number, worst <= BOUND,
                                        f"{name} batch {batch} {' '.join(extra) or 'tuned'}: "
                                        f"relative error {worst:.1e}, at most {BOUND:.0e}")
        for name in DIGESTS:
            for kept in (False, True):
                number += 1
                failed += not check_16_bits(number, sys.argv[1], folder, name, kept)
        number, wrong = served(number, sys.argv[1], folder)
        failed += wrong
        for row in PLANS:
            number += 1
            failed += not check_plan(number, sys.argv[1], sys.argv[2], folder, row)
        for row in FUSED:
            number += 1
            failed += not check_fused(number, sys.argv[2], folder, row)
        # checks that the comparison can fail
        wrong = {k: v + 1 for k, v in want_outputs.items()}
        number += 1
        failed += not check(number, all(compare.relative_error(wrong[k], v) > BOUND
                                        for k, v in want_outputs.items()), "a wrong answer is seen")
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
