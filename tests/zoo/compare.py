#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `inferctl run` with onnxruntime on ONNX files: compare.py --inferctl PATH FILE.onnx ...

Prints for each output the norm of the difference over the norm of onnxruntime's answer. The exit
code is 1 if this is above the bound or a shape or type is wrong, and 77 (skipped) without
onnxruntime.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

import inputs


def theirs(path, feeds):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def ours(inferctl, path, feeds, extra):
    with tempfile.TemporaryDirectory() as folder:
        command = [inferctl, "run", path, "--output", folder, *extra]
        for name, array in feeds.items():
            file = os.path.join(folder, f"in_{name}.npy")
            np.save(file, array)
            command += ["--input", f"{name}={file}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: "
                               f"{done.stderr.strip()[-400:]}")
        return {f[:-4]: np.load(os.path.join(folder, f)) for f in os.listdir(folder)
                if f.endswith(".npy") and not f.startswith("in_")}


def relative_error(mine, want):
    if mine is None or mine.shape != want.shape or mine.dtype != want.dtype:
        return float("inf")
    a, b = mine.astype(np.float64), want.astype(np.float64)
    error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
    return float(error) if np.isfinite(error) else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferctl", default="build/tools/inferctl")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--extra", action="append", default=[], help="passed on to inferctl run")
    parser.add_argument("file", nargs="+")
    args = parser.parse_args()
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        print("onnxruntime is not installed: skipped")
        return 77
    worst = 0.0
    for path in args.file:
        feeds = inputs.make(path, args.batch)
        try:
            mine = ours(args.inferctl, path, feeds, args.extra)
        except RuntimeError as e:
            print(e)
            return 1
        for name, want in theirs(path, feeds).items():
            error = relative_error(mine.get(name), want)
            worst = max(worst, error)
            print(f"{os.path.basename(path):20} batch {args.batch} {name:20} "
                  f"relative error {error:.2e} {'ok' if error <= args.bound else 'WRONG'}")
    return 0 if worst <= args.bound else 1


if __name__ == "__main__":
    sys.exit(main())
