#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our engine beside onnxruntime on the CPU, in one run: ort_compare.py [FILE.onnx or FOLDER ...]

The two take turns, round by round, so that other work on the machine meets both. Prints the median
over the rounds of each round's median latency, and the ratio of the two: above 1 we are faster.
Both compute in fp32 with the same number of threads. Without files, the models of the performance
goals are written to the --zoo folder and measured. A round during which other programs took more
than the share --foreign of the machine is repeated, for as long as --patience lasts; the share that
they took in the rounds that count is printed. Inputs come from the .npz of torch_export.py where
the file has one beside it. A file that does not load in either is left out with its reason; the
geometric means of the ratios end the table.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(HERE, os.pardir, "zoo")
sys.path.insert(0, ZOO)
import inputs  # noqa: E402

import shared  # noqa: E402

GOAL = ["resnet50", "mobilenet_v2", "bert_base"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: "
                           f"{done.stderr.strip()[-400:]}")
    return done.stdout


def draw(path, batch):
    """The sample beside the file, its instances repeated up to the batch, or the zoo's inputs. An
    input whose first dimension the file fixes stays as it is."""
    if not shared.sample_path(path).exists():
        return inputs.make(path, batch)
    feeds, _, _ = shared.sample_of(path)
    graph = onnx.load(path, load_external_data=False).graph
    fixed = {v.name for v in graph.input if not v.type.tensor_type.shape.dim[:1] or
             v.type.tensor_type.shape.dim[0].HasField("dim_value")}
    return {name: x if name in fixed else np.resize(x, (batch, *x.shape[1:]))
            for name, x in feeds.items()}


class Theirs:
    def __init__(self, path, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options,
                                                    providers=["CPUExecutionProvider"])

    def median_us(self, feeds, seconds):
        return shared.median_s(lambda: self.session.run(None, feeds), seconds) * 1e6


class Machine:
    """The share of the machine that other programs have taken since the object was made."""

    def __init__(self):
        self.begin = self.read()

    @staticmethod
    def read():
        with open("/proc/stat") as f:
            ticks = [int(x) for x in f.readline().split()[1:9]]
        t = os.times()
        own = t.user + t.system + t.children_user + t.children_system
        tick = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        return (sum(ticks) - idle) / tick, sum(ticks) / tick, own

    def foreign(self):
        busy, total, own = (b - a for a, b in zip(self.begin, self.read()))
        return max(0.0, (busy - own) / total) if total > 0 else 0.0


def wait_for_quiet(args, end):
    while time.perf_counter() < end:
        machine = Machine()
        time.sleep(0.3)
        if machine.foreign() <= args.foreign:
            return


def ours_median_us(args, plan, batch):
    text = run([args.inferctl, "bench", plan, "--batch", str(batch), "--contexts", "1",
                "--threads", str(args.threads), "--seconds", str(args.seconds), "--json"])
    return json.loads(text)["p50_us"]


def compare(args, path, folder):
    name = os.path.splitext(os.path.basename(path))[0]
    plan = os.path.join(folder, f"{name}.plan")
    command = [args.inferctl, "build", path, "-o", plan, "--threads", str(args.threads),
               "--batch", ",".join(map(str, args.batch))]
    if args.timing_cache:
        command += ["--timing-cache", args.timing_cache]
    wait_for_quiet(args, time.perf_counter() + args.patience)
    begin = time.perf_counter()
    run(command)
    print(f"# {name}: built in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    theirs, rows = Theirs(path, args.threads), []
    for batch in args.batch:
        feeds = draw(path, batch)
        rounds = []
        for _ in range(args.rounds):
            end = time.perf_counter() + args.patience
            while True:
                wait_for_quiet(args, end)
                machine = Machine()
                one = (ours_median_us(args, plan, batch), theirs.median_us(feeds, args.seconds),
                       machine.foreign())
                if one[2] <= args.foreign or time.perf_counter() > end:
                    break
            rounds.append(one)
        ours, other = (statistics.median(r[i] for r in rounds) for i in range(2))
        rows.append({"model": name, "batch": batch, "threads": args.threads, "ours_us": ours,
                     "onnxruntime_us": other, "ratio": other / ours,
                     "ratios": [r[1] / r[0] for r in rounds],
                     "foreign": max(r[2] for r in rounds)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inferctl", default="build/tools/inferctl")
    parser.add_argument("--batch", type=lambda s: [int(b) for b in s.split(",")], default=[1, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="of each engine in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--foreign", type=float, default=0.05)
    parser.add_argument("--patience", type=float, default=0, help="seconds for each round")
    parser.add_argument("--zoo", default=os.path.expanduser("~/.cache/inferd/zoo"))
    parser.add_argument("--timing-cache")
    parser.add_argument("--low", type=float, default=0.9, help="ratios below it are named")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("file", nargs="*", help="or folders of them")
    args = parser.parse_args()
    if not args.file:
        run([sys.executable, os.path.join(ZOO, "make_zoo.py"), args.zoo, *GOAL])
        args.file = [os.path.join(args.zoo, f"{m}.onnx") for m in GOAL]
    rows, faults = [], []
    with tempfile.TemporaryDirectory() as folder:
        for path in map(str, shared.files(args.file)):
            try:
                rows += compare(args, path, folder)
            except Exception as error:  # noqa: BLE001: onnxruntime has classes of its own
                faults.append(f"{os.path.basename(path)}: {' '.join(str(error).split())[-300:]}")
                print(f"# {faults[-1]}", file=sys.stderr)
    if args.json:
        print(json.dumps({"rows": rows, "faults": faults}))
    else:
        report(args, rows, faults)
    return 1 if faults else 0


def report(args, rows, faults):
    import onnxruntime
    print(f"onnxruntime {onnxruntime.__version__}, {args.threads} threads, fp32, medians of "
          f"{args.rounds} rounds of {args.seconds:g} s, taking turns")
    width = max([14, *(len(r["model"]) for r in rows)])
    print(f"{'model':{width}} {'batch':>5} {'ours ms':>9} {'onnxruntime ms':>15} {'ratio':>6}  "
          "of rounds")
    for r in rows:
        print(f"{r['model']:{width}} {r['batch']:5} {r['ours_us'] / 1e3:9.2f} "
              f"{r['onnxruntime_us'] / 1e3:15.2f} {r['ratio']:6.2f} {r['foreign']:6.0%}  "
              + " ".join(f"{x:.2f}" for x in sorted(r["ratios"])))
    for batch in args.batch:
        some = [r for r in rows if r["batch"] == batch]
        if len(some) > 1:
            low = [f"{r['model']} {r['ratio']:.2f}" for r in some if r["ratio"] < args.low]
            print(f"batch {batch}: geometric mean "
                  f"{statistics.geometric_mean(r['ratio'] for r in some):.3f} of {len(some)}; "
                  f"below {args.low:g}: {', '.join(low) or 'none'}")
    for fault in faults:
        print(f"left out: {fault}")


if __name__ == "__main__":
    sys.exit(main())
