#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon on a device, with an ONNX file that it has its own child build, beside onnxruntime.

    check_daemon.py --inferd PATH --inferctl PATH --models FOLDER [--device cuda]

Prints a line a check. Exit code 1 if any failed.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "zoo"), str(HERE.parent / "integration")]
import compare  # noqa: E402
import inputs  # noqa: E402
import serving  # noqa: E402

MODELS, BATCHES, BOUND = ["resnet_tiny"], [1, 3], 1e-4


def served(args, address, model, feeds):
    with tempfile.TemporaryDirectory() as folder:
        command = [args.inferctl, "infer", address, "--model", model, "--output", folder]
        for name, array in feeds.items():
            file = f"{folder}/in_{name}.npy"
            np.save(file, array)
            command += ["--input", f"{name}={file}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return {p.stem: np.load(p) for p in pathlib.Path(folder).glob("*.npy")
                if not p.name.startswith("in_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferd", required=True)
    parser.add_argument("--inferctl", required=True)
    parser.add_argument("--models", required=True, help="kept there for the next time")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    subprocess.run([sys.executable, HERE.parent / "zoo/make_zoo.py", args.models, *MODELS],
                   check=True, stdout=subprocess.DEVNULL)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as cache:
        config = pathlib.Path(cache, "inferd.yaml")
        config.write_text(f"cache: {cache}\n")
        models = [f"{m}={args.models}/{m}.onnx" for m in MODELS]
        begun = time.monotonic()
        with serving.inferd(args.inferd, "--config", config, "--device", args.device, *models,
                            "--max-batch", max(BATCHES)) as address:
            print(f"ready after {time.monotonic() - begun:.1f} s")
            for model in MODELS:
                for batch in BATCHES:
                    path = f"{args.models}/{model}.onnx"
                    feeds = inputs.make(path, batch)
                    want, mine = compare.theirs(path, feeds), served(args, address, model, feeds)
                    worst = max(compare.relative_error(mine.get(k), v) for k, v in want.items())
                    ok = worst <= BOUND
                    print(f"{model:14} {batch:3} {worst:9.2e} {'ok' if ok else 'FAILED'}",
                          flush=True)
                    passed += ok
                    failed += not ok
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
