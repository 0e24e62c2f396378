# SPDX-License-Identifier: Apache-2.0
"""One model of torch_models.py, ours beside PyTorch: torch_compare.py runs such a process a model.

Whoever measures on the device holds a lock, also inferctl and Triton while they tune: every time is
taken alone, while the other processes export and compile on the CPU. The result grows in a JSON
file with every step, so that what a process had when its time was up is kept."""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import time

import numpy as np
import torch

import shared
import torch_export
import torch_models

TOP_LAYERS = 10
# of torch.compile, by --mode; the graph is captured here, so that all are timed in one way
MODES = {"default": None, "max-autotune": "max-autotune-no-cudagraphs"}


class Lock:
    """The device is its holder's alone. A process may take the lock again while it holds it."""

    def __init__(self, path):
        self.file, self.depth = open(path, "w", encoding="ascii"), 0

    def __enter__(self):
        if not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_EX)
        self.depth += 1

    def __exit__(self, *exc):
        self.depth -= 1
        if not self.depth:
            fcntl.flock(self.file, fcntl.LOCK_UN)


class Torch:
    """PyTorch on the device: fp16 and channels last on CUDA, what the model is on the CPU."""

    def __init__(self, device):
        self.cuda, self.device = device.startswith("cuda"), device
        torch.zeros(1, device=device)  # starting a device takes seconds: not under the lock
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def lower(self, made):
        """As users run it: frequencies of rotary positions stay in fp32."""
        kept = {id(m): m.inv_freq for m in made.modules() if hasattr(m, "inv_freq")}
        if self.cuda:
            torch.cuda.empty_cache()
            torch.backends.cudnn.benchmark = True
            made.half().to(memory_format=torch.channels_last)
        for module in made.modules():
            if id(module) in kept:
                module.inv_freq = kept[id(module)]
            if isinstance(module, torch.nn.RNNBase):
                module.flatten_parameters()
        return made

    def resident(self, feeds, lower):
        """The feeds on the device; `lower`: in the type and layout of lower()."""
        feeds = [x.to(self.device) for x in feeds]
        if not lower or not self.cuda:
            return feeds
        feeds = [x.half() if x.is_floating_point() else x for x in feeds]
        return [x.contiguous(memory_format=torch.channels_last)
                if x.dim() == 4 and x.shape[1] == 3 else x for x in feeds]

    def time(self, function, seconds):
        """Median ms of one call, of its CUDA graph if it can be captured; and whether it can."""
        if not self.cuda:
            return shared.median_s(function, seconds) * 1000, False
        import gpu_peers
        try:
            replay, captured = gpu_peers.graphed(function), True
        except RuntimeError as error:
            print(f"not captured: {str(error)[:200]}", flush=True)
            torch.cuda.synchronize()
            replay, captured = function, False
        once = gpu_peers.timed(replay, samples=3)
        return gpu_peers.timed(replay, samples=max(10, int(seconds * 1000 / once))), captured


def arrays(out):
    out = out if isinstance(out, tuple) else (out,)
    return [t.detach().float().cpu().numpy() for t in out]


def worst_error(got, wanted):
    """max |d| / max |y| of the worst output; NaN where there is one."""
    return float(np.max([np.abs(g.astype(np.float32) - w).max() / max(np.abs(w).max(), 1e-30)
                         for g, w in zip(got, wanted)]))


class Ours:
    """Plans of the exported file, built and measured by inferctl."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.outputs = []  # names
        self.model = folder / "model.onnx"

    def call(self, *words):
        command = [str(pathlib.Path(self.args.bin) / "inferctl"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"inferctl {words[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def output_types(self):
        """PyTorch's fp16 model gives fp16, so ours does."""
        if not self.args.device.startswith("cuda") or self.args.precision != "fp16":
            return []
        return [word for name in self.outputs for word in ("--output-type", f"{name}=fp16")]

    def build(self, kind):
        plan = self.folder / f"{kind}.plan"
        words = ["--no-tune", "--timing-cache", ""] if kind == "untuned" else \
            ["--timing-cache", pathlib.Path(self.args.work) / "times.cache"]
        begun = time.monotonic()
        self.call("build", self.model, "-o", plan, "--device", self.args.device, "--precision",
                  self.args.precision, "--batch", ",".join(map(str, self.args.batches)), *words,
                  *self.output_types(), *self.args.build_extra)
        return plan, time.monotonic() - begun

    def run(self, plan, made, feeds):
        words = []
        for i, (name, x) in enumerate(zip(made.inputs, feeds)):
            np.save(self.folder / f"in{i}.npy", x.numpy())
            words += ["--input", f"{name}={self.folder}/in{i}.npy"]
        self.call("run", plan, "--device", self.args.device, "--quiet", "--output", self.folder,
                  *words)
        return [np.load(self.folder / f"{name}.npy") for name in made.outputs]

    def bench(self, plan, batch, *extra):
        return json.loads(self.call("bench", plan, "--device", self.args.device, "--batch", batch,
                                    "--input-copy", "none", "--json", *extra))

    def ms(self, plan, batch):
        return self.bench(plan, batch, "--seconds", self.args.seconds)["compute_p50_us"] / 1000

    def top_layers(self, plan, batch):
        layers = self.bench(plan, batch, "--seconds", "0.2", "--layers")["layers"]
        total = sum(layer["mean_us"] for layer in layers) or 1
        return [{"us": layer["mean_us"], "share": layer["mean_us"] / total,
                 **{key: layer[key] for key in ("op", "tactic", "name")}}
                for layer in sorted(layers, key=lambda i: -i["mean_us"])[:TOP_LAYERS]]

    def segments(self, plan):
        """Of the first profile: the layers, the CPU's segments and the layers in them."""
        profile = json.loads(self.call("inspect", plan, "--json"))["profiles"][0]
        cpu = [s for s in profile["segments"] if s["backend"] == "cpu"]
        return {"layers": len(profile["layers"]), "cpu_segments": len(cpu),
                "cpu_layers": sum(s["layers"] for s in cpu)}


class Measure:
    def __init__(self, args):
        self.args = args
        self.folder = pathlib.Path(args.work) / args.model
        self.folder.mkdir(parents=True, exist_ok=True)
        self.torch, self.ours = Torch(args.device), Ours(args, self.folder)
        self.lock = Lock(pathlib.Path(args.work) / "device.lock")
        self.result = {"model": args.model, "step": "export"}

    def keep(self, **more):
        self.result.update(more)
        part = self.folder / "result.part"
        part.write_text(json.dumps(self.result), encoding="utf-8")
        os.replace(part, self.folder / "result.json")

    @contextlib.contextmanager
    def step(self, name):
        """What fails in a step is kept with its reason; the steps after it are tried."""
        self.keep(step=name)
        begun = time.monotonic()
        try:
            yield
        except Exception as error:  # noqa: BLE001: any library's
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self.keep(**{f"{name}_fault": text[:400]})
        self.keep(**{f"{name}_s": round(time.monotonic() - begun, 1)})

    def run(self):
        args = self.args
        self.keep()
        made = torch_models.make(args.model, args.small)
        self.ours.outputs = made.outputs
        feeds = {batch: made.draw(batch) for batch in args.batches}
        largest = max(args.batches)
        with self.step("export"):
            torch_export.export(made, str(self.ours.model), args.spelling)
        torch.backends.mha.set_fastpath_enabled(True)  # off only for the export
        made.to(args.device)
        with self.lock, self.step("eager"):
            wanted = arrays(made(*self.torch.resident(feeds[largest], False)))
            self.torch.lower(made)
            self.keep(torch_error=worst_error(
                arrays(made(*self.torch.resident(feeds[largest], True))), wanted))
            self.time_torch("eager", made, feeds)
        for kind in args.plans:
            with self.step(kind):
                self.measure_ours(kind, made, feeds, wanted)
        if args.compile:
            with self.step("compile"):
                self.compile(made, feeds)
        self.keep(step="done")

    def time_torch(self, kind, function, feeds):
        times, captured = {}, True
        for batch in self.args.batches:
            inputs = self.torch.resident(feeds[batch], True)
            times[batch], one = self.torch.time(lambda: function(*inputs), self.args.seconds)
            captured &= one
        self.keep(**{f"{kind}_ms": times, f"{kind}_captured": captured})

    def measure_ours(self, kind, made, feeds, wanted):
        """Tuning holds the lock with all that follows: who gives it back waits for all others."""
        with self.lock if kind == "tuned" else contextlib.nullcontext():
            plan, took = self.ours.build(kind)
            self.keep(**{f"{kind}_build_s": round(took, 1), **self.ours.segments(plan)})
            with self.lock:
                self.keep(**{f"{kind}_ms": {b: self.ours.ms(plan, b) for b in self.args.batches}})
                if kind == self.args.plans[0]:
                    self.keep(top={b: self.ours.top_layers(plan, b) for b in self.args.layers})
        got = self.ours.run(plan, made, feeds[max(self.args.batches)])
        self.keep(**{f"{kind}_error": worst_error(got, wanted)})

    def compile(self, made, feeds):
        """Compiles for each batch without the lock, but for what Triton tunes; then times."""
        lock_tuning(self.lock)
        compiled = torch.compile(made, dynamic=False, mode=MODES[self.args.mode])
        for batch in self.args.batches:
            compiled(*self.torch.resident(feeds[batch], True))
        with self.lock:
            self.time_torch("compile", compiled, feeds)


def lock_tuning(lock):
    """Each kernel that torch.compile times is timed alone."""
    from torch._inductor.runtime import benchmarking

    def alone(time_kernel):
        def locked(*args, **kwargs):
            with lock:
                return time_kernel(*args, **kwargs)
        return locked
    for kind in (benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        if "benchmark_gpu" in vars(kind):
            kind.benchmark_gpu = alone(kind.benchmark_gpu)


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def add_options(parser):
    parser.add_argument("--bin", default="build-gpu/dist", help="the folder of inferctl")
    parser.add_argument("--work", default="build-gpu/compare", help="plans and caches stay there")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a dry run")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--batches", type=numbers, default=[1, 32])
    parser.add_argument("--plans", type=lambda s: s.split(","), default=["tuned", "untuned"])
    parser.add_argument("--layers", type=numbers, default=[],
                        help="show the ten most expensive layers at these batches")
    parser.add_argument("--spelling", choices=torch_export.SPELLINGS, default="ts17")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--mode", choices=MODES, default="default", help="of torch.compile")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--build-extra", type=str.split, default=[], help="passed on to the build")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("model")
    args = parser.parse_args()
    with torch.no_grad():
        Measure(args).run()


if __name__ == "__main__":
    main()
