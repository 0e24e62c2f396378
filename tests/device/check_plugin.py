#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins with kernels for CUDA on a GPU: engine/plugin/examples/peak_scale.cu through builder,
plan, contexts and daemon, beside what numpy says; and one with kernels that break the rules.

    check_plugin.py --bin FOLDER

FOLDER has inferd, inferctl, inferd-cuda.so, peak_scale.so and stubborn_plugin.so. Prints a line a
check. Exit code 1 if any failed.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "integration"))
import serving  # noqa: E402

DOMAIN = "example.inferd"
BOUNDS = {"fp32": 1e-6, "fp16": 2e-3, "bf16": 2e-2}
LARGE, SMALL = [16, 128, 128], [4]


def save(path, domain, nodes, shape, outputs):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))


def save_peak(path, shape):
    save(path, DOMAIN, [helper.make_node("Relu", ["x"], ["a"]),
                        helper.make_node("PeakScale", ["a"], ["b", "p"], domain=DOMAIN, to=3.0),
                        helper.make_node("Neg", ["b"], ["y"]),
                        helper.make_node("Relu", ["p"], ["peak"])], shape, ["y", "peak"])


def expected(x):
    a = np.maximum(x, 0)
    peak = a.reshape(len(x), -1).max(axis=1)
    return {"y": -a * (3 / peak).reshape(-1, *[1] * (x.ndim - 1)), "peak": peak}


class Checks:
    def __init__(self, args, folder):
        self.bin, self.folder = pathlib.Path(args.bin), pathlib.Path(folder)
        self.peak, self.stubborn = self.bin / "peak_scale.so", self.bin / "stubborn_plugin.so"
        self.passed = self.failed = 0

    def run(self, command, *args, code=0):
        done = subprocess.run([str(self.bin / "inferctl"), command, *map(str, args)],
                              capture_output=True, text=True, timeout=90, check=False)
        if done.returncode != code:
            raise AssertionError(f"{command}: exit {done.returncode}: "
                                 f"{(done.stdout + done.stderr)[-400:]}")
        return done.stdout + done.stderr

    def check(self, what, ask):
        try:
            said, ok = ask() or "", True
        except (AssertionError, KeyError, OSError, ValueError, subprocess.SubprocessError) as e:
            said, ok = str(e), False
        print(f"{'ok' if ok else 'FAILED':6} {what:44} {said}", flush=True)
        self.passed += ok
        self.failed += not ok

    def build(self, model, plan, plugin, *options):
        return self.run("build", model, "-o", plan, "--device", "cuda", "--plugin", plugin,
                        "--timing-cache", "", "-vvv", *options)

    def layer(self, plan, plugin, op="plugin"):
        said = self.run("inspect", plan, "--plugin", plugin)
        return next(line.strip() for line in said.splitlines() if re.search(rf"\b{op} ", line))

    def outputs(self, plan, x, plugin):
        file, out = self.folder / "x.npy", self.folder / "out"
        np.save(file, x)
        self.run("run", plan, "--device", "cuda", "--plugin", plugin, "--input", f"x={file}",
                 "--output", out)
        return {path.stem: np.load(path) for path in out.glob("*.npy")}

    def agrees(self, got, x, bound):
        worst = max(np.linalg.norm(got[k] - v) / np.linalg.norm(v)
                    for k, v in expected(x).items())
        assert worst <= bound, f"error {worst:.2e}, at most {bound:.0e}"
        return f"{worst:.2e}"

    # --- what is checked ---

    def precision(self, name):
        plan = self.folder / f"{name}.plan"
        said = self.build(self.folder / "large.onnx", plan, self.peak, "--precision", name,
                          "--batch", "1,4", "--max-error", "none")
        short = "" if name == "fp32" else f" {name.upper()}"
        for kernel in (f"plugin peak-scale.one-block{short}", f"plugin peak-scale.parts{short}",
                       "reference"):
            assert re.search(rf"{re.escape(kernel)}: [\d.]+ us", said), f"{kernel}: not timed"
        layer = self.layer(plan, self.peak)
        assert "plugin peak-scale." in layer, layer
        rng, worst = np.random.default_rng(5), []
        for n in (1, 3):
            x = rng.normal(size=(n, *LARGE)).astype(np.float32)
            worst.append(self.agrees(self.outputs(plan, x, self.peak), x, BOUNDS[name]))
        return f"{', '.join(worst)}; {layer}"

    def small(self):
        """A few numbers: which side runs it is decided by time."""
        plan = self.folder / "small.plan"
        save_peak(self.folder / "small.onnx", SMALL)
        said = self.build(self.folder / "small.onnx", plan, self.peak, "--batch", "2")
        assert re.search(r"reference: [\d.]+ us", said), "the CPU's kernel was not timed"
        x = np.random.default_rng(6).normal(size=(2, *SMALL)).astype(np.float32)
        return f"{self.agrees(self.outputs(plan, x, self.peak), x, 1e-6)}; " \
               f"{self.layer(plan, self.peak)}"

    def untuned(self):
        plan = self.folder / "untuned.plan"
        self.build(self.folder / "large.onnx", plan, self.peak, "--no-tune", "--batch", "1")
        layer = self.layer(plan, self.peak)
        assert "plugin peak-scale." in layer, layer
        return layer

    def contexts(self):
        plan = self.folder / "fp32.plan"
        said = json.loads(self.run("bench", plan, "--device", "cuda", "--plugin", self.peak,
                                   "--batch", "4", "--contexts", "4", "--seconds", "1", "--json"))
        return f"{said['throughput']:.0f} instances/s, p50 {said['p50_us']:.0f} us"

    def memory(self):
        """Counters of both sides' memory, and of the arena's use by the plugin's layer."""
        path = self.folder / "trace.json"
        said = json.loads(self.run("bench", self.folder / "fp32.plan", "--device", "cuda",
                                   "--plugin", self.peak, "--batch", "4", "--seconds", "0.2",
                                   "--memory", "--layers", "--trace", path, "--json"))
        sides = {event["where"] for event in said["memory_events"]}
        assert sides == {"device", "host"}, sides
        names = {e["name"] for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "C"}
        want = {"device memory", "host memory", "context 0: arena in use"}
        assert names == want, names
        use = next(x for x in said["memory_layers"] if "PeakScale" in x["name"])
        return f"peak {said['memory_peak']}; {use}"

    def other_file(self):
        other = self.folder / "other.so"
        other.write_bytes(self.peak.read_bytes() + b"\0")
        said = self.run("run", self.folder / "fp32.plan", "--device", "cuda", "--plugin", other,
                        code=1)
        assert "build the plan again" in said, said

    def daemon(self):
        config = self.folder / "inferd.yaml"
        config.write_text(f"cache: {self.folder}/cache\nplugins: [{self.peak}]\n")
        x = np.random.default_rng(7).normal(size=(2, *LARGE)).astype(np.float32)
        np.save(self.folder / "x.npy", x)
        with serving.inferd(self.bin / "inferd", "--config", config, "--device", "cuda",
                            f"peak={self.folder}/large.onnx", "--max-batch", 4) as address:
            self.run("infer", address, "--model", "peak", "--input", f"x={self.folder}/x.npy",
                     "--output", self.folder / "served")
        return self.agrees({p.stem: np.load(p) for p in (self.folder / "served").glob("*.npy")},
                           x, 1e-6)

    def rules(self):
        """Kernels that wait or fail are no candidates; the third is."""
        model, plan = self.folder / "copy.onnx", self.folder / "copy.plan"
        save(model, "test.device", [helper.make_node("Relu", ["x"], ["a"]),
                                    helper.make_node("Copy", ["a"], ["b"], domain="test.device"),
                                    helper.make_node("Neg", ["b"], ["y"])], [1 << 20], ["y"])
        said = self.build(model, plan, self.stubborn, "--batch", "2")
        layer = self.layer(plan, self.stubborn)
        assert "stubborn.copies" in layer, layer
        why = re.search(r"plugin stubborn\.waits: (.*)", said)
        assert why and "what cannot be captured" in why[1], why and why[1]
        assert re.search(r"plugin stubborn\.strays: .* puts nothing onto the stream", said)
        assert "out of luck" in said
        x = np.random.default_rng(8).normal(size=(2, 1 << 20)).astype(np.float32)
        assert np.array_equal(self.outputs(plan, x, self.stubborn)["y"], -np.maximum(x, 0))
        return why[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        c = Checks(args, folder)
        save_peak(c.folder / "large.onnx", LARGE)
        for precision in BOUNDS:
            c.check(f"peak-scale in {precision}", lambda p=precision: c.precision(p))
        c.check("a few numbers", c.small)
        c.check("without timing", c.untuned)
        c.check("four contexts", c.contexts)
        c.check("memory over time", c.memory)
        c.check("another file of the plugin", c.other_file)
        c.check("the daemon builds and serves", c.daemon)
        c.check("kernels that break the rules", c.rules)
        print(f"{c.passed} passed, {c.failed} failed")
        return 1 if c.failed or not c.passed else 0


if __name__ == "__main__":
    sys.exit(main())
