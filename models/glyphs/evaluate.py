#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many of the test images each network knows, in each precision, and how fast: a table.

    python3 models/glyphs/evaluate.py --inferctl build/tools/inferctl --data FOLDER
        [--models models] [--device cpu] [--precisions fp32,int8] [MODEL.onnx...]

FOLDER is what draw.py wrote. Each model is built by `inferctl build`, for `int8` and `fp8` with
ranges that `inferctl calibrate` found by each of the methods; `inferctl run` answers for all images
in batches, and `inferctl bench` measures the plan. A model with 8 bits of its own is built as it
is. Needs numpy.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

RANGES = ("int8", "fp8")  # precisions that need them
TYPE = ["--input-type", "image=uint8"]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.device = ["--device", args.device]
        if args.threads:
            self.device += ["--threads", str(args.threads)]
        self.images = args.data / "test" / "image.npy"
        self.labels = np.load(args.data / "test_labels.npy")

    def inferctl(self, *command):
        done = subprocess.run([self.args.inferctl, *map(str, command)], check=False,
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"inferctl {command[0]}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def ranges(self, model, method):
        table = self.folder / f"{model.stem}.{method}.ranges"
        if not table.exists():
            self.inferctl("calibrate", model, "--data", self.args.data / "calibration", "-o", table,
                          "--method", method, *TYPE, *self.device)
        return table

    def plan(self, model, precision, method):
        path = self.folder / "model.plan"
        options = ["--precision", precision, "--batch", f"1,{self.args.batch}"]
        if precision != "fp32":
            options += ["--data", self.args.data / "calibration"]
        if method:
            options += ["--ranges", self.ranges(model, method)]
        if self.args.force and precision in RANGES:
            options += ["--pin", f"*=~{precision}", "--max-error", "none"]
        elif self.args.max_error:
            options += ["--max-error", self.args.max_error]
        if self.args.no_tune:
            options += ["--no-tune"]
        self.inferctl("build", model, "-o", path, *TYPE, *options, *self.device)
        return path

    def known(self, plan):
        """Percent of the images whose largest score is the right one."""
        out = self.folder / "out"
        self.inferctl("run", plan, "--input", f"image={self.images}", "-o", out, "-q", *self.device)
        scores, = (np.load(path) for path in out.glob("*.npy"))
        return 100 * float((scores.argmax(1) == self.labels).mean())

    def speed(self, plan, batch):
        said = self.inferctl("bench", plan, "--batch", batch, "--seconds", self.args.seconds,
                             "--json", *self.device)
        return json.loads(said)["p50_us"]

    def says(self, plan, precision):
        """The error of the outputs as the build measured it, and notes on the plan."""
        told = json.loads(self.inferctl("inspect", plan, "--json"))
        kept, notes = told.get("exactness"), []
        types = [layer["precision"] for layer in told["profiles"][-1]["layers"]]
        if precision in RANGES:
            short = sum(name in ("INT8", "UINT8", "FP8") for name in types)
            notes.append(f"{short} of {len(types)} layers" if short else "no layer in 8 bits")
        if not kept:
            return "", notes
        if kept["held"]:
            notes.append(f"{len(kept['held'])} held back")
        worst = [o["error"] for o in kept["outputs"]]
        return "not finite" if None in worst else f"{max(worst):.4f}", notes

    def row(self, model, precision, method, own):
        plan = self.plan(model, precision, method)
        known = self.known(plan)
        error, notes = self.says(plan, "int8" if own else precision)
        name = model.stem.removeprefix("glyphs_").removesuffix("_aware")
        how = ", ".join(filter(None, ["quantisation-aware" if own else method, *notes]))
        cells = [name, "int8" if own else precision, how, f"{known:.2f}", error,
                 f"{plan.stat().st_size / 1e6:.2f}", f"{self.speed(plan, 1):.0f}",
                 f"{self.speed(plan, self.args.batch):.0f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def has_8_bits(model):
    return b"QuantizeLinear" in model.read_bytes()


def rows(args, models):
    for model in models:
        if has_8_bits(model):
            yield model, "fp32", None, True
            continue
        for precision in args.precisions.split(","):
            for method in args.methods.split(",") if precision in RANGES else [None]:
                yield model, precision, method, False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferctl", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--precisions", default="fp32,int8", help="fp32,tf32,fp16,bf16,int8,fp8")
    parser.add_argument("--methods", default="entropy,percentile")
    parser.add_argument("--max-error", help="as inferctl build takes it")
    parser.add_argument("--force", action="store_true",
                        help="8 bits wherever there is a kernel, however slow or inexact")
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("model", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    models = args.model or sorted(args.models.glob("glyphs_*.onnx"))
    if not models:
        parser.error(f"no glyphs_*.onnx in {args.models}: train.py makes them")
    failed = 0
    print(f"| network | precision | method | top-1, % | error | plan, MB | batch 1, us | "
          f"batch {args.batch}, us |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for row in rows(args, models):
            try:
                bench.row(*row)
            except RuntimeError as error:
                failed += 1
                print(f"{row[0].stem} {row[1]} {row[2] or ''}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
