#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs exports of torch_export.py on the CPU: export_sweep.py [FOLDER or FILE.onnx ...]

A row for each file: the error beside torch (max |d| / max |y|, the worst output), the layers, those
that have only reference kernels, and of each kind of part how many were found of how many there
are; a GELU counts where the layer before computes it. Exit 1 if a file does not load or errs by
more than --bound."""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import shared

# kind of part -> (ops, epilogues) that are one
NORMS = {"layer_norm", "instance_norm", "rms_norm"}
FOUND = {"attention": ({"attention"}, ()), "norm": (NORMS, ()),
         "gelu": ((), {"gelu", "gelu_tanh"}), "recurrent": ({"recurrent"}, ()),
         "resize": ({"resize"}, ())}


def call(args, *words):
    command = [args.inferctl, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip()
                           else f"exit {done.returncode}")
    return done.stdout + done.stderr


def run_error(args, plan, folder, feeds, wanted):
    """The worst of the outputs: max |ours - torch's| / max |torch's|."""
    words = []
    for i, (name, array) in enumerate(feeds.items()):
        np.save(folder / f"in{i}.npy", array)
        words += ["--input", f"{name}={folder}/in{i}.npy"]
    call(args, "run", plan, "--quiet", "--output", folder, *words, *args.extra)
    worst = 0.0
    for name, want in wanted.items():
        ours = np.load(folder / f"{name}.npy").astype(np.float64)
        if ours.shape != want.shape:
            raise RuntimeError(f"output '{name}' has shape {ours.shape}, expected {want.shape}")
        error = np.abs(ours - want).max() / max(np.abs(want).max(), 1e-30)
        worst = max(worst, error if np.isfinite(error) else np.inf)
    return worst


def count_found(layers, kind):
    ops, fused = FOUND[kind]
    return sum((layer["op"] in ops) + sum(f in fused for f in layer.get("fused", []))
               for layer in layers)


def sweep_one(args, path):
    feeds, wanted, has = shared.sample_of(path)
    row = {"file": path.name}
    with tempfile.TemporaryDirectory() as folder:
        plan = pathlib.Path(folder) / "plan"
        try:
            said = call(args, "build", path, "-o", plan, "--no-tune", "--timing-cache", "", "-v",
                        "--batch", len(next(iter(feeds.values()))), *args.extra)
            layers = json.loads(call(args, "inspect", plan, "--json"))["profiles"][0]["layers"]
            row["error"] = run_error(args, plan, pathlib.Path(folder), feeds, wanted)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            return {**row, "fault": str(error)}
    computing = [layer for layer in layers if layer["tactic"] not in ("alias", "in place")]
    slow = collections.Counter(layer["op"] for layer in computing
                               if layer["tactic"].startswith("reference"))
    parts = {kind: f"{count_found(layers, kind)}/{int(has[kind])}" for kind in FOUND if kind in has}
    return {**row, "layers": len(computing), "slow": dict(slow), "parts": parts,
            "near": [line.strip() for line in said.splitlines() if re.search(r"\bnear\b", line)]}


def print_row(row):
    if "fault" in row:
        print(f"{row['file']:34} FAILS  {row['fault']}", flush=True)
        return
    slow = " ".join(f"{op}:{n}" for op, n in sorted(row["slow"].items(), key=lambda i: -i[1]))
    parts = " ".join(f"{kind} {of}" for kind, of in row["parts"].items())
    print(f"{row['file']:34} {row['error']:8.1e} {row['layers']:6}  {parts or '-'}  |  "
          f"{slow or '-'}", flush=True)
    for line in row["near"]:
        print(f"{'':44}{line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferctl", default="build-release/tools/inferctl")
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each command")
    parser.add_argument("--extra", action="append", default=[], help="passed on to build and run")
    parser.add_argument("path", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    print(f"{'file':34} {'error':>8} {'layers':>6}  found/there  |  only reference kernels")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        rows = []
        for row in pool.map(lambda path: sweep_one(args, path), shared.files(args.path)):
            print_row(row)
            rows.append(row)
    faults = sum("fault" in row for row in rows)
    wrong = sum(row.get("error", 0) > args.bound for row in rows)
    print(f"{len(rows)} files: {faults} do not load, {wrong} err by more than {args.bound:g}; "
          + ", ".join(total(rows, kind) for kind in FOUND))
    return 1 if faults or wrong else 0


def total(rows, kind):
    pairs = [tuple(map(int, row["parts"][kind].split("/"))) for row in rows
             if kind in row.get("parts", {})]
    return f"{kind} {sum(p[0] for p in pairs)}/{sum(p[1] for p in pairs)}"


if __name__ == "__main__":
    sys.exit(main())
