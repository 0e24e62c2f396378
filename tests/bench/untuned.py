#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans without timing beside tuned ones: untuned.py [--build BUILD] [FILE.onnx or FOLDER ...]

Builds each model twice, with timing and with --no-tune, and lets the two plans take turns in
`inferctl bench`, so that other work on the machine meets both. Prints for each model the median
over the rounds of the untuned plan's time divided by the tuned one's, and at the end the median
of these ratios: 1.1 means that a user who does not tune loses a tenth. The timing cache is kept
in --cache from run to run; build it on an idle machine, because times that other work made longer
stay in it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import shared


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def build(args, model, plan, tuned):
    how = ["--timing-cache", args.cache] if tuned else ["--timing-cache", "", "--no-tune"]
    dims = [part for dim in args.dim for part in ("--dim", dim)]
    run([args.inferctl, "build", model, "-o", plan, "--batch", str(args.batch), "--threads",
         str(args.threads), "--device", args.device, "--precision", args.precision, *dims, *how])


def p50_us(args, plan):
    text = run([args.inferctl, "bench", plan, "--batch", str(args.batch), "--contexts", "1",
                "--seconds", str(args.seconds), "--device", args.device, "--threads",
                str(args.threads), "--json"])
    return json.loads(text)["p50_us"]


def ratio_of(args, model, folder):
    """The medians of both plans' times, and of the rounds' ratios."""
    plans = [os.path.join(folder, name) for name in ("tuned.plan", "untuned.plan")]
    for plan, tuned in zip(plans, (True, False)):
        build(args, model, plan, tuned)
    times = [[p50_us(args, plan) for plan in plans] for _ in range(args.rounds)]
    ratios = [untuned / tuned for tuned, untuned in times]
    return [statistics.median(t) for t in zip(*times)], statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("paths", nargs="+", metavar="FILE or FOLDER")
    parser.add_argument("--build", default="build-release")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--cache", default="untuned.cache", help="timing cache of the tuned plans")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    args = parser.parse_args()
    args.inferctl = os.path.join(args.build, "tools", "inferctl")
    ratios = []
    print(f"{'model':40} {'tuned us':>10} {'untuned us':>10} {'ratio':>6}")
    for model in shared.files(args.paths):
        try:
            with tempfile.TemporaryDirectory() as folder:
                (tuned, untuned), ratio = ratio_of(args, model, folder)
        except RuntimeError as why:
            print(f"{model.name:40} left out: {why}", flush=True)
            continue
        ratios.append(ratio)
        print(f"{model.name:40} {tuned:10.1f} {untuned:10.1f} {ratio:6.2f}", flush=True)
    if not ratios:
        return 1
    print(f"{len(ratios)} models: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
