#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_random.py RUN_GRAPHS KIND: graphs with fixed seeds, 100 of a kind, agree with onnxruntime in
all variants, and each pass has something to do on one of them. With KIND "planted", mistakes made
on purpose are found and shrunk to few nodes.
Prints TAP; skipped without onnx or onnxruntime.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

try:
    import onnx
    import onnxruntime  # noqa: F401
except ImportError as e:
    print(f"1..0 # SKIP {e}")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT, FIRST_SEED = 100, 1
# a mistake, and the kinds of graphs to look for it in: none of these graphs is a subtraction alone
PLANTED = [("pass", "mixed", 30), ("crash", "conv", 12), ("hang", "conv", 8)]
NODES_MOST = 3
# Passes that find nothing on any graph of this kind. The importer has already done the work of
# fold_constants, no graph quantises what has just been dequantised or has a gate of bytes, none
# puts tokens back behind a block that reordered them (keep_windows) or has an image's channels and
# multiples of 8 (unfold_patches), the CPU has no fast concatenation with an epilogue
# (fuse_concat) and no kernel for a convolution and its pool (fuse_stem_pool) or two convolutions
# (fuse_pair, fuse_chain), no product follows another one before biases and activations have joined
# it (fuse_mlp, which runs behind all others in the variant "features"), none scatters
# (scatter_boxes) or adds two convolutions of one tensor (merge_branches); all but skip_expand have
# graphs in tests/unit/passes.
NEVER = {"erase_requantise", "fold_constants", "fuse_chain", "fuse_concat", "fuse_mlp",
         "fuse_pair", "fuse_stem_pool", "fuse_tables", "keep_windows", "merge_branches",
         "merge_siblings", "scatter_boxes", "skip_expand", "unfold_patches"}
IDLE = {
    "conv": {"fuse_attention", "fuse_embed", "fuse_layer_norm", "fuse_reduce", "transpose_matmul",
             *NEVER},
    "transformer": {"fold_batch_norm", "fold_pad", "fuse_group_norm", "fuse_reduce", "lay_patches",
                    "gather_channels", "reduce_to_pool", *NEVER},
    "mixed": {"fold_pad", "fuse_attention", "fuse_embed", "fuse_gates", "fuse_gelu",
              "fuse_group_norm", "fuse_layer_norm", "gather_channels", "lay_patches",
              "reduce_to_pool", "sink_transposes", *NEVER},
}


def check(number, ok, text):
    print(f"{'ok' if ok else 'not ok'} {number} - {text}", flush=True)
    return ok


def random_graphs(*args):
    command = [sys.executable, os.path.join(HERE, "random_graphs"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def as_notes(text):
    for line in text.splitlines()[-200:]:
        print(f"# {line}")


def check_kind(runner, kind):
    print("1..2")
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as names:
        code, text = random_graphs("--runner", runner, "--kind", kind, "--seed", str(FIRST_SEED),
                                   "--count", str(COUNT), "--tactics", names.name)
        passes = re.findall(r"^pass:(\S+) (\d+)$", names.read(), re.M)
    as_notes(text)
    made = re.search(rf"^{COUNT} graphs, 0 of them failed$", text, re.M)
    ok = check(1, code == 0 and bool(made), f"{COUNT} {kind} graphs in all variants")
    idle = {name for name, _ in passes} - {name for name, rewrites in passes if rewrites != "0"}
    return check(2, passes and idle <= IDLE[kind], f"passes without work are {sorted(idle)}") and ok


def check_planted(number, runner, folder, mistake, kind, count):
    """The run fails, and every case that is left has few nodes and fails again."""
    code, text = random_graphs("--runner", runner, "--kind", kind, "--count", str(count), "--plant",
                               mistake, "--keep", folder, "--shrink", "1", "--seconds", "4")
    cases = glob.glob(os.path.join(folder, "*", "model.onnx"))
    sizes = [len(onnx.load(path).graph.node) for path in cases]
    ok = code == 1 and bool(sizes) and max(sizes) <= NODES_MOST
    for path in cases:
        where = os.path.dirname(path)
        with open(os.path.join(where, "repeat.txt"), encoding="utf-8") as f:
            again = f.readline().split()
        ok = ok and subprocess.run(again, capture_output=True, check=False).returncode == 1
    if not ok:
        as_notes(text)
    return check(number, ok, f"a planted {mistake} is found and shrunk to {sizes} nodes")


def main():
    runner, kind = sys.argv[1:]
    if kind != "planted":
        return 0 if check_kind(runner, kind) else 1
    print(f"1..{len(PLANTED)}")
    ok = True
    for number, planted in enumerate(PLANTED, 1):
        with tempfile.TemporaryDirectory() as folder:
            ok = check_planted(number, runner, folder, *planted) and ok
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
