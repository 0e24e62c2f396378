#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our engine beside onnxruntime on the CPU, in one run: ort_compare.py [FILE.onnx ...]

The two take turns, round by round, so that other work on the machine meets both. Prints the median
over the rounds of each round's median latency, and the ratio of the two: above 1 we are faster.
Both compute in fp32 with the same number of threads. Without files, the models of the performance
goals are written to the --zoo folder and measured. A round during which other programs took more
than the share --foreign of the machine is repeated, for as long as --patience lasts; the share that
they took in the rounds that count is printed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ZOO = os.path.join(HERE, os.pardir, "zoo")
sys.path.insert(0, ZOO)
import inputs  # noqa: E402

GOAL = ["resnet50", "mobilenet_v2", "bert_base"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


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
        self.session.run(None, feeds)
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            begin = time.perf_counter()
            self.session.run(None, feeds)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e6


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
        feeds = inputs.make(path, batch)
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
    parser.add_argument("--json", action="store_true")
    parser.add_argument("file", nargs="*")
    args = parser.parse_args()
    if not args.file:
        run([sys.executable, os.path.join(ZOO, "make_zoo.py"), args.zoo, *GOAL])
        args.file = [os.path.join(args.zoo, f"{m}.onnx") for m in GOAL]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in args.file:
            rows += compare(args, path, folder)
    if args.json:
        print(json.dumps({"rows": rows}))
        return 0
    import onnxruntime
    print(f"onnxruntime {onnxruntime.__version__}, {args.threads} threads, fp32, medians of "
          f"{args.rounds} rounds of {args.seconds:g} s, taking turns")
    print(f"{'model':14} {'batch':>5} {'ours ms':>9} {'onnxruntime ms':>15} {'ratio':>6}  "
          "of rounds")
    for r in rows:
        print(f"{r['model']:14} {r['batch']:5} {r['ours_us'] / 1e3:9.2f} "
              f"{r['onnxruntime_us'] / 1e3:15.2f} {r['ratio']:6.2f} {r['foreign']:6.0%}  "
              + " ".join(f"{x:.2f}" for x in sorted(r["ratios"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
