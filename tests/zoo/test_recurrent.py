#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RNN, LSTM and GRU in many configurations beside numpy and onnxruntime: test_recurrent.py INFERCTL
[SEED..]. Each model has a dozen layers that read one input; numpy computes them from the
operators' text, and onnxruntime all that it can (fp32, sequences in dimension 1). Prints TAP.
"""
import os
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    import compare
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
DEFAULTS = {"RNN": ["Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
VALUES = {"Affine": (1, 1), "LeakyRelu": (1, 0), "ThresholdedRelu": (1, 0), "ScaledTanh": (1, 1),
          "HardSigmoid": (1, 1), "Elu": (1, 0)}  # how many alphas and betas each function takes
PLAIN = ["Tanh", "Sigmoid", "Relu", "Softsign", "Softplus"]
KINDS = [(np.float32, False), (np.float32, True), (np.float64, False)]  # batch first?
BOUND = {np.float32: 2e-5, np.float64: 1e-12}


def function(name, a, b):
    return {
        "Tanh": np.tanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Relu": lambda x: np.maximum(x, 0), "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.log1p(np.exp(x)), "Affine": lambda x: a * x + b,
        "LeakyRelu": lambda x: np.where(x < 0, a * x, x),
        "ThresholdedRelu": lambda x: np.where(x > a, x, 0),
        "ScaledTanh": lambda x: a * np.tanh(b * x),
        "HardSigmoid": lambda x: np.clip(a * x + b, 0, 1),
        "Elu": lambda x: np.where(x < 0, a * np.expm1(x), x),
    }[name]


class Layer:
    """One node: its attributes, and its operands as arrays (None: left out)."""

    def __init__(self, rng, op, dtype, steps, batch, width, batch_first):
        self.op, self.dtype = op, dtype
        self.hidden = int(rng.choice([1, 3, 8, 17, 40, 64]))
        self.direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
        self.d = 2 if self.direction == "bidirectional" else 1
        self.layout = int(batch_first)
        g, h, d = GATES[op], self.hidden, self.d

        def some(shape, chance=1.0, scale=0.4):
            if rng.random() > chance:
                return None
            return (rng.standard_normal(shape) * scale).astype(dtype)

        state = (batch, d, h) if batch_first else (d, batch, h)
        self.arrays = [some((d, g * h, width)), some((d, g * h, h), scale=0.6 / h ** 0.5),
                       some((d, 2 * g * h), 0.7),
                       None, some(state, 0.5)]
        if rng.random() < 0.4:
            self.arrays[3] = rng.integers(1, steps + 1, batch).astype(np.int32)
        if op == "LSTM":
            self.arrays += [some(state, 0.5), some((d, 3 * h), 0.4)]
        self.clip = float(rng.choice([0.25, 1.5])) if rng.random() < 0.3 else 0.0
        self.linear = int(op == "GRU" and rng.random() < 0.5)
        self.coupled = int(op == "LSTM" and rng.random() < 0.3)
        self.choose_functions(rng)

    def choose_functions(self, rng):
        self.given = rng.random() < 0.4
        self.funcs = DEFAULTS[self.op] * self.d
        self.alphas, self.betas = [], []
        if self.given:
            names = PLAIN + list(VALUES)
            self.funcs = [str(rng.choice(names)) for _ in self.funcs]
            for f in self.funcs:
                a, b = VALUES.get(f, (0, 0))
                self.alphas += [float(np.float32(rng.uniform(0.1, 0.9)))] * a
                self.betas += [float(np.float32(rng.uniform(0.1, 0.9)))] * b

    def node(self, name, x):
        inputs = [x] + [f"{name}_{i}" if a is not None else "" for i, a in enumerate(self.arrays)]
        while not inputs[-1]:
            inputs.pop()
        extra = {}
        if self.given:
            extra = {"activations": self.funcs, "activation_alpha": self.alphas,
                     "activation_beta": self.betas}
            extra = {k: v for k, v in extra.items() if v}
        if self.clip:
            extra["clip"] = self.clip
        if self.linear:
            extra["linear_before_reset"] = 1
        if self.coupled:
            extra["input_forget"] = 1
        if self.layout:
            extra["layout"] = 1
        outputs = [f"{name}.y", f"{name}.h"] + ([f"{name}.c"] if self.op == "LSTM" else [])
        return helper.make_node(self.op, inputs, outputs, name=name, hidden_size=self.hidden,
                                direction=self.direction, **extra)

    def constants(self, name):
        return [numpy_helper.from_array(a, f"{name}_{i}") for i, a in enumerate(self.arrays)
                if a is not None]

    def text(self):
        return (f"{self.op} {self.direction} hidden={self.hidden} layout={self.layout} "
                f"clip={self.clip} linear={self.linear} coupled={self.coupled} "
                f"operands={''.join('-+'[a is not None] for a in self.arrays)} "
                f"{self.funcs if self.given else ''}")

    # --- what a node computes ---

    def calls(self, d):
        """The functions of direction d; those of gates come after the clip, as onnxruntime reads
        the text."""
        n, out = len(DEFAULTS[self.op]), []
        alphas, betas = list(self.alphas), list(self.betas)
        for f in self.funcs:
            a, b = VALUES.get(f, (0, 0))
            inner = function(f, alphas.pop(0) if a else 0, betas.pop(0) if b else 0)
            out.append(inner if len(out) % n == 2 else self.clipped(inner))
        return out[d * n:(d + 1) * n]

    def clipped(self, inner):
        return (lambda x: inner(np.clip(x, -self.clip, self.clip))) if self.clip else inner

    def cell(self, d, x, h, c):
        g, size = GATES[self.op], self.hidden
        W, R, B = (None if a is None else a[d].astype(np.float64) for a in self.arrays[:3])
        B = np.zeros(2 * g * size) if B is None else B
        xs = np.split(W @ x + B[:g * size], g)
        rs, rb = np.split(R, g), np.split(B[g * size:], g)
        fs = self.calls(d)
        if self.op == "RNN":
            return fs[0](xs[0] + rs[0] @ h + rb[0]), c
        if self.op == "GRU":
            z, r = (fs[0](xs[i] + rs[i] @ h + rb[i]) for i in (0, 1))
            t = r * (rs[2] @ h + rb[2]) if self.linear else rs[2] @ (r * h) + rb[2]
            return (1 - z) * fs[1](xs[2] + t) + z * h, c
        P = np.zeros((3, size)) if self.arrays[6] is None else self.arrays[6][d].reshape(3, size)
        pre = [xs[i] + rs[i] @ h + rb[i] for i in range(4)]
        i = fs[0](pre[0] + P[0] * c)
        f = 1 - i if self.coupled else fs[0](pre[2] + P[2] * c)
        c = f * c + i * fs[1](pre[3])
        return fs[0](pre[1] + P[1] * c) * fs[2](c), c

    def compute(self, x):
        x = x.astype(np.float64)
        x = x.transpose(1, 0, 2) if self.layout else x
        steps, batch, _ = x.shape
        lengths = self.arrays[3] if self.arrays[3] is not None else np.full(batch, steps)
        states = [self.arrays[4], self.arrays[5] if self.op == "LSTM" else None]
        y = np.zeros((steps, self.d, batch, self.hidden))
        last = np.zeros((2, self.d, batch, self.hidden))
        for d in range(self.d):
            backward = self.direction == "reverse" or d == 1
            for n in range(batch):
                h, c = (np.zeros(self.hidden) if s is None else
                        (s[n, d] if self.layout else s[d, n]).astype(np.float64) for s in states)
                order = range(lengths[n])
                for t in reversed(order) if backward else order:
                    h, c = self.cell(d, x[t, n], h, c)
                    y[t, d, n] = h
                last[:, d, n] = h, c
        if self.layout:
            y, last = y.transpose(2, 0, 1, 3), last.transpose(0, 2, 1, 3)
        return [v.astype(self.dtype) for v in (y, *last)][:3 if self.op == "LSTM" else 2]


def make(path, seed, dtype, batch_first):
    rng = np.random.default_rng(seed)
    steps, batch, width = (int(v) for v in (rng.integers(1, 9), rng.integers(1, 5),
                                            rng.choice([1, 5, 24])))
    shape = (batch, steps, width) if batch_first else (steps, batch, width)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    layers = [Layer(rng, op, dtype, steps, batch, width, batch_first)
              for op in ("RNN", "LSTM", "GRU") for _ in range(4)]
    nodes = [layer.node(f"n{i}", "x") for i, layer in enumerate(layers)]
    graph = helper.make_graph(
        nodes, "recurrent", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(o, kind, None) for n in nodes for o in n.output],
        [c for i, layer in enumerate(layers) for c in layer.constants(f"n{i}")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.save(model, path)
    return layers, rng.standard_normal(shape).astype(dtype)


def worst_of(layers, got, want, bound):
    """The largest error, and a line for each layer beyond the bound."""
    worst, lines = 0.0, []
    for i, layer in enumerate(layers):
        for name, value in zip(("y", "h", "c"), want[i]):
            error = compare.relative_error(got.get(f"n{i}.{name}"), value)
            worst = max(worst, error)
            if error > bound:
                lines.append(f"# n{i}.{name}: {error:.1e}: {layer.text()}")
    return worst, lines


def main():
    try:
        import onnxruntime  # noqa: F401
        have_theirs = True
    except ImportError:
        have_theirs = False
    inferctl, seeds = sys.argv[1], [int(s) for s in sys.argv[2:]] or range(4)
    number = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path = os.path.join(folder, "m.onnx")
        for seed in seeds:
            for dtype, batch_first in KINDS:
                layers, x = make(path, seed, dtype, batch_first)
                want = [layer.compute(x) for layer in layers]
                rows = []
                extras = [[]] if seed % 2 else [["--no-tune"], ["--reference-only"]]
                for extra in extras:
                    rows.append((compare.ours(inferctl, path, {"x": x}, extra),
                                 f"inferctl {' '.join(extra)}"))
                if have_theirs and dtype == np.float32 and not batch_first:
                    rows.append((compare.theirs(path, {"x": x}), "onnxruntime"))
                for got, who in rows:
                    worst, lines = worst_of(layers, got, want, BOUND[dtype])
                    number += 1
                    failed += bool(lines)
                    verdict = "not ok" if lines else "ok"
                    print("\n".join([*lines, f"{verdict} {number} - {who}, seed {seed}, "
                                     f"{dtype.__name__}, x{list(x.shape)}: relative error "
                                     f"{worst:.1e}, at most {BOUND[dtype]:.0e}"]), flush=True)
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
