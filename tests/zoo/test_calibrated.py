#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models in 8 bits by calibration: test_calibrated.py INFERCTL MODELS. Prints TAP; skipped without
onnx or onnxruntime.

The bundled model, which was trained, must know as many digits as in fp32, by every method. Small
networks of the zoo must stay near their fp32 answers. A table that was edited must have the effect
that it says. On a processor without 8-bit kernels nothing is in 8 bits, and there is less to see.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import compare
    import inputs
    import make_zoo
    import transformers
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

CALIBRATED = 200  # digits; the others are for the comparison
LOSS = 0.005      # of the digits that are known
BOUND = 0.1       # relative error of networks whose weights are random

count = 0


def check(ok, text):
    global count
    count += 1
    print(f"{'ok' if ok else 'not ok'} {count} - {text}", flush=True)
    return ok


class Bench:
    """A model with its calibration data, plans and answers."""

    def __init__(self, inferctl, model, folder, feeds, extra=()):
        self.inferctl, self.model, self.extra = inferctl, str(model), list(extra)
        self.folder = pathlib.Path(folder)
        self.data, self.table = self.folder / "data", self.folder / "model.ranges"
        self.data.mkdir()
        for name, array in feeds.items():
            np.save(self.data / f"{name}.npy", array)

    def inferctl_does(self, *args):
        done = subprocess.run([self.inferctl, *map(str, args)], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise RuntimeError(f"{args}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def calibrate(self, method):
        return self.inferctl_does("calibrate", self.model, "--data", self.data, "-o", self.table,
                                  "--method", method, "--threads", 2)

    def options(self, precision, *tables):
        options = ["--precision", precision, "--no-tune", "--timing-cache", "", "--threads", "2",
                   "--max-error", "none", *self.extra]
        for table in tables:
            options += ["--ranges", str(table)]
        return options

    def answers(self, feeds, precision, *tables):
        return compare.ours(self.inferctl, self.model, feeds, self.options(precision, *tables))

    def plan(self, batch, *tables):
        """The plan as inspect shows it."""
        path = self.folder / "model.plan"
        said = self.inferctl_does("build", self.model, "-o", path, "--batch", batch,
                                  *self.options("int8", *tables))
        return said, json.loads(self.inferctl_does("inspect", path, "--json"))


def in_8_bits(plan):
    return sum(layer["precision"] in ("INT8", "UINT8") for layer in plan["profiles"][0]["layers"])


def steps(plan, name):
    """The steps by which a tensor is stored."""
    tensors = [t for layer in plan["profiles"][0]["layers"]
               for t in layer["inputs"] + layer["outputs"]]
    return {t["scale"]["step"][0] for t in tensors if t["name"] == name and "scale" in t}


def digits(inferctl, models, folder, fast):
    images = np.load(models / "digits_test_images.npy").astype(np.float32)
    labels = np.load(models / "digits_test_labels.npy")
    ok = True
    bench = Bench(inferctl, models / "digits.onnx", folder, {"image": images[:CALIBRATED]})
    rest, truth = {"image": images[CALIBRATED:]}, labels[CALIBRATED:]

    def known(*args):
        return float((bench.answers(rest, *args)["probabilities"].argmax(1) == truth).mean())
    before = known("fp32")
    ok &= check(before > 0.95, f"digits in fp32: {before:.4f}")
    for method in ("entropy", "percentile=99.9", "minmax"):
        bench.calibrate(method)
        after = known("int8", bench.table)
        ok &= check(after >= before - LOSS, f"digits in int8 by {method}: {after:.4f}")
    _, plan = bench.plan(32, bench.table)
    ok &= check(in_8_bits(plan) >= (4 if fast else 0), f"{in_8_bits(plan)} layers are in 8 bits")

    floats = bench.answers(rest, "fp32")["probabilities"]
    text = bench.table.read_text()
    bench.table.write_text(re.sub(r"(?m)^(relu1 +).*$", r"\1uint8 0.03125 0 user", text))
    _, plan = bench.plan(32, bench.table)
    ok &= check(steps(plan, "relu1") == ({0.03125} if fast else set()),
                f"a step by hand: {steps(plan, 'relu1')}")
    bench.table.write_text(re.sub(r"(?m)^(relu1 +).*$", r"\1range 0 0.001 user", text))
    far = bench.answers(rest, "int8", bench.table)["probabilities"]
    error = compare.relative_error(far, floats)
    ok &= check(not fast or error > 0.1, f"a range by hand that is far too small: {error:.3f}")
    bench.table.write_text(re.sub(r"(?m)^(\w+ +)range .*$", r"\1keep", text))
    same = bench.answers(rest, "int8", bench.table)["probabilities"]
    return ok & check(compare.relative_error(same, floats) < 1e-6, "keep keeps everything in fp32")


def network(inferctl, name, make, folder, fast, least):
    path = os.path.join(folder, f"{name}.onnx")
    make().save(path)
    batch, feeds = 4, []
    for seed in range(1, 9):
        feeds.append(inputs.make(path, batch, seed=100 * seed))
    data = {key: np.concatenate([feed[key] for feed in feeds]) for key in feeds[0]}
    bench = Bench(inferctl, path, folder, data, inputs.dims(path))
    bench.calibrate("entropy")
    said, plan = bench.plan(batch, bench.table)
    want = bench.answers(feeds[0], "fp32")
    got = bench.answers(feeds[0], "int8", bench.table)
    ok = check("no range" not in said and "0 of tensors that are not there" in said,
               f"{name}: every range is there")
    ok &= check(in_8_bits(plan) >= (least if fast else 0),
                f"{name}: {in_8_bits(plan)} layers are in 8 bits")
    for output, value in want.items():
        error = compare.relative_error(got.get(output), value)
        ok &= check(error < BOUND, f"{name}, {output}: relative error {error:.4f}")
    return ok


def main():
    inferctl, models = sys.argv[1], pathlib.Path(sys.argv[2])
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        fast = "avx512_vnni" in info.read()
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        ok &= digits(inferctl, models, folder, fast)
    for name, make, least in (("resnet_tiny", make_zoo.MODELS["resnet_tiny"], 12),
                              ("bert_tiny", transformers.bert_tiny, 8)):
        with tempfile.TemporaryDirectory() as folder:
            ok &= network(inferctl, name, make, folder, fast, least)
    print(f"1..{count}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
