#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the models of torch_models.py: torch_export.py [--small] FOLDER [NAME ...]

Each name gives FOLDER/NAME.ts17.onnx (the TorchScript exporter, opset 17) and NAME.dyn.onnx (the
dynamo exporter), with the first dimension of all inputs and outputs free where the exporter can say
it, and NAME.npz: the inputs, as `out.NAME` what torch gives for them in fp32, and as `has.KIND` how
many attentions, norms and so on torch computes. A line for each file is added to FOLDER/INDEX.txt.
A process each, so that one exporter's trouble ends with its model."""
import argparse
import collections
import concurrent.futures
import pathlib
import subprocess
import sys
import time
import warnings

SPELLINGS = ("ts17", "dyn")
LONGEST_S = 900
# functions of torch, and classes of transformers that write theirs by hand -> kind of part
FUNCTIONS = {"scaled_dot_product_attention": "attention", "softmax": "attention",
             "multi_head_attention_forward": "attention", "layer_norm": "norm",
             "group_norm": "norm", "gelu": "gelu", "silu": "silu", "hardswish": "hardswish",
             "lstm": "recurrent", "gru": "recurrent", "interpolate": "resize"}
CLASSES = {"NewGELUActivation": "gelu", "QuickGELUActivation": "silu", "LlamaRMSNorm": "norm",
           "T5LayerNorm": "norm"}


def export(made, path, spelling, batch=2):
    """Writes made to path; gives the batch's name, or the batch that it is fixed to."""
    import torch
    feeds = tuple(made.draw(batch))
    options = {"input_names": list(made.inputs), "output_names": list(made.outputs)}
    if spelling == "ts17":
        names = [*made.inputs, *made.outputs]
        torch.onnx.export(made, feeds, path, opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "batch"} for name in names}, **options)
        return "batch"
    try:
        free = {0: torch.export.Dim("batch")}
        torch.onnx.export(made, feeds, path, dynamo=True, external_data=False, verbose=False,
                          dynamic_shapes={"values": tuple(free for _ in feeds)}, **options)
        return "batch"
    except torch.onnx.errors.OnnxExporterError as error:
        print(f"{path}: with a free batch: {str(error)[:200]!r}", file=sys.stderr)
        torch.onnx.export(made, feeds, path, dynamo=True, external_data=False, verbose=False,
                          **options)
        return str(batch)


def count_parts(made, feeds):
    """Gives what made returns for feeds, and how many parts of each kind were computed."""
    import torch
    counts = collections.Counter()

    class Calls(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            counts[FUNCTIONS.get(getattr(function, "__name__", ""))] += 1
            return function(*args, **(kwargs or {}))

    def count(module, _):
        counts[CLASSES[type(module).__name__]] += 1

    hooks = [m.register_forward_pre_hook(count) for m in made.modules()
             if type(m).__name__ in CLASSES]
    with Calls():
        out = made(*feeds)
    for hook in hooks:
        hook.remove()
    del counts[None]
    return out if isinstance(out, tuple) else (out,), counts


def save_sample(made, path, batch=2):
    import numpy as np
    feeds = made.draw(batch)
    out, counts = count_parts(made, feeds)
    np.savez(path, **{n: t.numpy() for n, t in zip(made.inputs, feeds)},
             **{f"out.{n}": t.numpy() for n, t in zip(made.outputs, out)},
             **{f"has.{kind}": np.int64(n) for kind, n in counts.items()})


def export_one(args, name):
    import torch

    import torch_models
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    made = torch_models.make(name, args.small)
    with torch.no_grad():
        save_sample(made, args.folder / f"{name}.npz")
        shapes = ", ".join(f"{n}{list(t.shape)}" for n, t in zip(made.inputs, made.draw(2)))
        for spelling in args.spellings:
            path = args.folder / f"{name}.{spelling}.onnx"
            try:
                fixed = export(made, str(path), spelling)
                print(f"{path.name}: batch {fixed}; {shapes}; {made.note}", flush=True)
            except Exception as error:  # noqa: BLE001: the other exporter may still manage
                path.unlink(missing_ok=True)
                print(f"{path.name}: not exported: {str(error)[:300]!r}", flush=True)


def export_in_process(args, name):
    begun = time.monotonic()
    command = [sys.executable, __file__, "--one", "--spellings", ",".join(args.spellings)]
    command += ["--small"] * args.small + [str(args.folder), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        lines = [line for line in done.stdout.splitlines() if line.startswith(f"{name}.")]
        if done.returncode:
            lines.append(f"{name}: not exported: {done.stderr.strip()[-300:]!r}")
    except subprocess.TimeoutExpired:
        lines = [f"{name}: not exported within {LONGEST_S} s"]
    print("\n".join(lines), f"({time.monotonic() - begun:.0f} s)", flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--spellings", type=lambda s: s.split(",") if s else [], default=SPELLINGS,
                        help="'': only the samples")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.one:
        for name in args.name:
            export_one(args, name)
        return 0
    import torch_models
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        found = pool.map(lambda name: export_in_process(args, name),
                         args.name or torch_models.MODELS)
        lines = [line for some in found for line in some]
    with open(args.folder / "INDEX.txt", "a", encoding="utf-8") as index:
        index.write("\n".join(lines) + "\n")
    return 1 if any("not exported" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
