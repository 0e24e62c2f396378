#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of the zoo on a device, beside onnxruntime on the CPU.

    check_zoo.py --inferctl PATH --models FOLDER [--device cuda] [--seconds S]

Prints a line a check: the norm of the difference over the norm of onnxruntime's answer, and its
bound. Checks for which there was no time left count as failed. Exit code 1 if any failed.
"""
import argparse
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "zoo"))
import compare  # noqa: E402
import inputs  # noqa: E402

BOUNDS = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 1e-2, "bf16": 8e-2}
NO_TUNE = ["--no-tune"]
LARGE = ["resnet50", "bert_base", "mobilenet_v2", "inception_v3", "vgg16"]
# model, precision, batch, arguments; the most telling checks come first
CHECKS = [(m, p, b, NO_TUNE) for m in ("resnet_tiny", "bert_tiny")
          for p, b in (("fp32", 1), ("tf32", 3), ("fp16", 3), ("bf16", 3))]
CHECKS += [(m, p, 2, NO_TUNE) for m in LARGE for p in ("fp32", "fp16")]
CHECKS += [("resnet_tiny", "fp32", 3, []), ("bert_tiny", "fp32", 3, []),
           ("resnet50", "fp16", 8, []), ("bert_base", "fp16", 8, [])]


class Zoo:
    """Writes the models side by side while the first ones are checked."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(check[0] for check in CHECKS)
        self.makers = {n: subprocess.Popen([sys.executable, str(HERE.parent / "zoo/make_zoo.py"),
                                            str(folder), n], stdout=subprocess.DEVNULL)
                       for n in names}
        self.answers = {}

    def model(self, name):
        if self.makers[name].wait() != 0:
            raise RuntimeError(f"{name} could not be made")
        return str(self.folder / f"{name}.onnx")

    def answer(self, name, batch):
        """Inputs, and onnxruntime's outputs."""
        if (name, batch) not in self.answers:
            feeds = inputs.make(self.model(name), batch)
            self.answers[name, batch] = feeds, compare.theirs(self.model(name), feeds)
        return self.answers[name, batch]

    def close(self):
        for maker in self.makers.values():
            maker.kill()
            maker.wait()


def run(zoo, args, until, check):
    """(ok, what to print)"""
    name, precision, batch, extra = check
    if time.monotonic() > until:
        return False, "not run: no time left"
    try:
        feeds, want = zoo.answer(name, batch)
        begun = time.monotonic()
        mine = compare.ours(args.inferctl, zoo.model(name), feeds,
                            ["--device", args.device, "--precision", precision, "--quiet", *extra])
        worst = max(compare.relative_error(mine.get(k), v) for k, v in want.items())
    except (RuntimeError, OSError) as e:
        return False, str(e).rsplit(": exit ", 1)[-1]
    return worst <= BOUNDS[precision], f"{worst:9.2e} {time.monotonic() - begun:6.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferctl", required=True)
    parser.add_argument("--models", required=True, help="kept there for the next time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--only", default="", help="part of a model's name")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    zoo, passed, failed = Zoo(args.models), 0, 0
    print(f"{'model':14} {'type':5} {'batch':>5} {'':8} {'at most':>8} {'error':>9} {'s':>6}")
    for check in CHECKS:
        if args.only not in check[0]:
            continue
        ok, text = run(zoo, args, until, check)
        name, precision, batch, extra = check
        print(f"{name:14} {precision:5} {batch:5} {'untimed' if extra else 'tuned':8} "
              f"{BOUNDS[precision]:8.0e} {text} {'ok' if ok else 'FAILED'}", flush=True)
        passed += ok
        failed += not ok
    zoo.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
