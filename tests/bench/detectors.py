#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Detectors whose number of boxes a request tells: this engine, onnxruntime's CPU and PyTorch.

    detectors.py --export FOLDER                writes FOLDER/NAME.onnx (needs torch, torchvision)
    detectors.py --bin DIR --device cpu FOLDER  builds plans, compares outputs, prints the times

DIR holds inferctl. Weights are random; the heads are scaled so that boxes appear. With --torch the
same model is timed by PyTorch on its device, too (needs torch, torchvision).
"""
import argparse
import pathlib
import re
import shlex
import statistics
import subprocess
import time

import numpy as np

OUTPUTS = {"fasterrcnn": ["boxes", "labels", "scores"], "ssdlite": ["boxes", "scores", "labels"]}
RUNS = 50


def make(name):
    import torch
    from torchvision.models import detection
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if name == "fasterrcnn":
        made = detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, box_score_thresh=0.011)
    else:
        made = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        with torch.no_grad():
            for p in made.head.classification_head.parameters():
                if p.dim() == 4:
                    p.mul_(30)
    return made.eval()


def export(name, folder):
    import torch
    image = torch.rand(1, 3, 320, 320)
    with torch.no_grad():
        torch.onnx.export(make(name), (list(image),), str(folder / f"{name}.onnx"),
                          opset_version=17, dynamo=False, input_names=["images"],
                          output_names=OUTPUTS[name])


def middle(run):
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return f"{1e3 * statistics.median(times):.2f} ms"


def by_onnxruntime(path, image, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(path), options,
                                           providers=["CPUExecutionProvider"])
    outputs = dict(zip([o.name for o in session.get_outputs()],
                       session.run(None, {"images": image})))
    return outputs, middle(lambda: session.run(None, {"images": image}))


def by_torch(name, image):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made, given = make(name).to(device), [torch.from_numpy(image).to(device)]

    def run():
        with torch.no_grad():
            made(given)[0]["boxes"].cpu()
    for _ in range(5):
        run()
    return f"PyTorch on {device} {middle(run)}"


def by_inferctl(args, name, path, image, expected):
    ctl, plan = pathlib.Path(args.bin, "inferctl"), path.with_suffix(f".{args.device}.plan")
    on = ["--device", args.device, *(["--threads", str(args.threads)]
                                     if args.device == "cpu" else [])]
    subprocess.run([ctl, "build", path, "-o", plan, *on, *shlex.split(args.build)], check=True,
                   stdout=subprocess.DEVNULL)
    command = [ctl, "run", plan, "--quiet", *on, "--rtol", "1e-2", "--atol", args.atol]
    for key, array in {"images": image, **expected}.items():
        np.save(path.with_name(f"{name}.{key}.npy"), array)
        command += ["--input" if key == "images" else "--check",
                    f"{key}={path.with_name(f'{name}.{key}.npy')}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr, end="")
    said = subprocess.run([ctl, "bench", plan, *on], capture_output=True, text=True,
                          check=True).stdout
    return f"inferd on {args.device} {float(re.search('p50 ([0-9.]+) us', said)[1]) / 1e3:.2f} ms"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--bin")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--atol", default="2e-3")
    parser.add_argument("--build", default="", help="options of inferctl build, in one text")
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    image = np.random.RandomState(0).rand(3, 320, 320).astype(np.float32)
    for name in OUTPUTS:
        path = args.folder / f"{name}.onnx"
        if args.export:
            export(name, args.folder)
            continue
        expected, theirs = by_onnxruntime(path, image, args.threads)
        print(f"{name}: {len(expected['boxes'])} boxes")
        print(f"{name}: {by_inferctl(args, name, path, image, expected)}, onnxruntime on the CPU "
              f"{theirs}{', ' + by_torch(name, image) if args.torch else ''}")


if __name__ == "__main__":
    main()
