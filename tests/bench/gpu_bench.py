# SPDX-License-Identifier: Apache-2.0
"""inferd on one GPU beside its peers, in one run.

  gpu_bench.py --bin FOLDER --work FOLDER [--parts LIST]

Parts are peers, build, engine, layers, copies, daemon, server and doors. FOLDER of --bin holds
inferd and inferctl; models, plans and the timing cache go to --work and are
used again by the next call. Prints tables as they stand in docs/performance.md."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ZOO = HERE.parent / "zoo"
BATCHES = {"resnet50": [1, 8, 32, 128, 256], "bert_base": [1, 8, 32, 128]}
GOALS = {"resnet50": {1: 0.28, 8: 0.42, 32: 0.95, 128: 3.1, 256: 6.0}}
UNIT = {"resnet50": "images/s", "bert_base": "sequences/s"}
failures = []


def say(*words):
    print(*words, flush=True)


def table(head, rows):
    say("| " + " | ".join(head) + " |")
    say("|" + "---|" * len(head))
    for row in rows:
        say("| " + " | ".join(str(cell) for cell in row) + " |")
    say()


def check(name, ok):
    if not ok:
        failures.append(name)
    return "yes" if ok else "NO"


def last_line(done):
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else ""


class Bench:
    def __init__(self, args):
        self.args = args
        self.work = pathlib.Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.peers = {}

    def ctl(self, *words, timeout=540):
        command = [str(pathlib.Path(self.args.bin) / "inferctl"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
        return done

    def model(self, name):
        path = self.work / f"{name}.onnx"
        if not path.exists():
            begun = time.time()
            subprocess.run([sys.executable, str(ZOO / "make_zoo.py"), str(self.work), name],
                           check=True, stdout=subprocess.DEVNULL)
            say(f"made {path.name} in {time.time() - begun:.1f} s")
        return path

    def plan(self, name, kind="", extra=(), batches=None):
        """Builds the plan once; returns its path."""
        batches = ",".join(map(str, batches or BATCHES[name]))
        path = self.work / f"{name}{kind}.{self.args.precision}.{batches}.plan"
        if path.exists():
            return path
        extra = [*extra, *self.ranges(name, kind, extra)]
        begun = time.time()
        done = self.ctl("build", self.model(name), "-o", path, "--device", "cuda", "--precision",
                        self.args.precision, "--batch", batches, "--timing-cache",
                        self.work / "times.cache", *extra)
        say(f"built {path.name} ({batches}) in {time.time() - begun:.1f} s, "
            f"{path.stat().st_size / 2**20:.0f} MiB: {last_line(done)}")
        return path

    def ranges(self, name, kind, extra):
        """Options that give ranges for 8 bits, calibrated on random bytes or numbers; of other
        precisions none."""
        if self.args.precision not in ("int8", "fp8"):
            return []
        table, data = self.work / f"{name}{kind}.ranges", self.work / f"{name}{kind}.data"
        if not table.exists():
            data.mkdir(exist_ok=True)
            rng = np.random.default_rng(1)
            image = rng.integers(0, 256, (32, 3, 224, 224), np.uint8)
            np.save(data / "image.npy", image if kind == ".u8" else image / np.float32(128) - 1)
            self.ctl("calibrate", self.model(name), "--device", "cuda", "--data", data, "-o", table,
                     *extra)
        return ["--ranges", table, "--data", data]

    def bench(self, plan, batch, contexts=1, seconds=None, extra=()):
        done = self.ctl("bench", plan, "--device", "cuda", "--batch", batch, "--contexts",
                        contexts, "--seconds", seconds or self.args.seconds, "--json", *extra)
        return json.loads(done.stdout)

    # --- parts ---

    def part_peers(self):
        import gpu_peers
        say("### Peers\n")
        limits = gpu_peers.ceilings()
        say(", ".join(f"{k} {v:.3g}" for k, v in limits.items()), "\n")
        import torch
        with torch.no_grad():
            net = gpu_peers.ResNet50()
            self.peers["resnet50"] = {b: net.times(b) for b in BATCHES["resnet50"]}
            if self.args.compile:
                for b in (1, 32, 128):
                    self.peers["resnet50"][b].update(net.compiled(b))
            del net
            net = gpu_peers.Bert()
            self.peers["bert_base"] = {b: net.times(b) for b in BATCHES["bert_base"]}
        for name, times in self.peers.items():
            names = sorted({n for t in times.values() for n in t})
            table([name] + [f"B={b} ms" for b in times],
                  [[n] + [f"{times[b][n]:.3f}" if n in times[b] else "" for b in times]
                   for n in names])
        (self.work / "peers.json").write_text(json.dumps(self.peers))
        torch.cuda.empty_cache()

    def known_peers(self, name):
        path = self.work / "peers.json"
        if not self.peers and path.exists():
            self.peers = {n: {int(b): t for b, t in ts.items()}
                          for n, ts in json.loads(path.read_text()).items()}
        return self.peers.get(name, {})

    def part_engine(self):
        for name in self.args.models.split(","):
            say(f"### Engine, {name} {self.args.precision}, inputs resident\n")
            plan, rows = self.plan(name), []
            for batch in BATCHES[name]:
                got = self.bench(plan, batch, extra=["--input-copy", "none"])
                ms = got["compute_p50_us"] / 1000
                best = min((t for t in self.known_peers(name).get(batch, {}).items()
                            if not t[0].endswith(" s")), key=lambda t: t[1], default=None)
                goal = GOALS.get(name, {}).get(batch)
                rows.append([batch, f"{ms:.3f}", f"{got['p50_us'] / 1000:.3f}",
                             f"{batch / ms * 1000:.0f}",
                             f"{best[1]:.3f} ({best[0]})" if best else "",
                             f"{best[1] / ms:.2f}" if best else "",
                             f"{goal} {check(f'{name} B={batch} <= {goal} ms', ms <= goal)}"
                             if goal else
                             check(f"{name} B={batch} not slower", ms <= best[1]) if best else ""])
            table(["batch", "GPU ms", "with host ms", UNIT[name], "best peer ms", "peer / ours",
                   "goal met"], rows)

    def part_build(self):
        name = "resnet50"
        say("### Builder\n")
        model, rows, cache = self.model(name), [], self.work / "cold.cache"
        cache.unlink(missing_ok=True)
        ranges = self.ranges(name, "", [])
        for what in ("cold, 8 profiles", "with the timing cache"):
            plan = self.work / "cold.plan"
            plan.unlink(missing_ok=True)
            begun = time.time()
            done = self.ctl("build", model, "-o", plan, "--device", "cuda", "--precision",
                            self.args.precision, "--batch", "1,2,4,8,16,32,64,128",
                            "--timing-cache", cache, *ranges)
            rows.append([what, f"{time.time() - begun:.1f} s",
                         f"{plan.stat().st_size / 2**20:.0f} MiB",
                         last_line(done)])
        table(["build of ResNet-50", "took", "plan", "report"], rows)
        got = self.bench(plan, 1, seconds=0.5, extra=["--memory"])
        table(["plan, batch 1", "load and upload ms", "context ready ms", "first batch us"],
              [["8 profiles", f"{got['load_ms']:.0f}", f"{got['ready_ms']:.0f}",
                f"{got['first_us']:.0f}"]])
        got = self.bench(plan, 128, seconds=0.5, extra=["--memory"])
        table(["memory at batch 128", "where", "peak MiB"],
              [[m["tag"], m.get("where", ""), f"{m['peak_bytes'] / 2**20:.1f}"]
               for m in got["memory"]])
        begun = time.time()
        with Daemon(self, plan, 1, 2, 128) as daemon:
            ready = time.time() - begun
            daemon.load(1, processes=1)
        say(f"inferd with this plan, two workers, all profiles: ready after {ready:.2f} s, CUDA's "
            "own start included\n")

    def part_layers(self):
        """The layers' times as they were tuned, summed by kind of layer, beside their floors."""
        hbm, peak = self.args.bandwidth, self.args.flops
        for name in self.args.models.split(","):
            doc = json.loads(self.ctl("inspect", self.plan(name), "--json").stdout)
            for profile in doc["profiles"]:
                if profile["batch"] not in (1, 32, 128):
                    continue
                groups = {}
                for layer in profile["layers"]:
                    us, floor = layer["time_ns"] / 1000, layer_floor(layer, hbm, peak)
                    g = groups.setdefault(layer_kind(layer), [0, 0, 0, {}])
                    g[0] += 1
                    g[1] += us
                    g[2] += floor
                    tactic = " ".join(layer["tactic"].split()[:3]) if layer["tactic"] else "-"
                    g[3][tactic] = g[3].get(tactic, 0) + 1
                say(f"### Layers of {name}, batch {profile['batch']}\n")
                total = sum(g[1] for g in groups.values())
                rows = [[k, g[0], f"{g[1]:.1f}", f"{g[2]:.1f}",
                         f"{g[1] / g[2]:.2f}" if g[2] else "",
                         ", ".join(f"{n} x {t}" for t, n in
                                   sorted(g[3].items(), key=lambda i: -i[1])[:4])]
                        for k, g in sorted(groups.items(), key=lambda i: -i[1][1])]
                rows.append(["sum", sum(g[0] for g in groups.values()), f"{total:.1f}",
                             f"{sum(g[2] for g in groups.values()):.1f}", "", ""])
                table(["layers", "n", "us", "floor us", "ratio", "tactics"], rows)

    def part_copies(self):
        say("### In-process with copies from pinned memory, ResNet-50, uint8 input\n")
        plan = self.served_plan()
        rows = []
        for batch in (8, 32, 128, 256):
            got = {(n, how): self.bench(plan, batch, n, extra=["--input-copy", how])["throughput"]
                   for n, how in ((1, "none"), (2, "none"), (1, "pinned"), (2, "pinned"),
                                  (3, "pinned"))}
            ratio = got[2, "pinned"] / got[2, "none"]
            rows.append([batch, *(f"{t:.0f}" for t in got.values()), f"{ratio:.3f}",
                         f"{got[2, 'pinned'] / got[1, 'none']:.3f}",
                         check(f"copies B={batch}", ratio >= 0.97) if batch >= 32 else ""])
        table(["batch", "resident, 1 context: images/s", "resident, 2", "copied, 1", "copied, 2",
               "copied, 3", "copied / resident, 2 contexts", "copied 2 / resident 1", ">= 0.97"],
              rows)

    def served_plan(self, batches=None):
        scale = ",".join(f"{1 / (255 * s):.8g}" for s in (0.229, 0.224, 0.225))
        bias = ",".join(f"{-m / s:.8g}" for m, s in
                        zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        return self.plan("resnet50", ".u8", ["--input-type", "input=uint8", "--input-scale",
                                             f"input={scale}", "--input-bias", f"input={bias}"],
                         batches)

    def part_daemon(self):
        """Runs several load generators, since one cannot send as much as the daemon takes."""
        say("### Daemon on loopback, ResNet-50, uint8 input\n")
        plan, rows, top = self.served_plan(), [], 128
        inside = self.bench(plan, top, 2, extra=["--input-copy", "pinned"])["throughput"]
        alone = self.bench(plan, 1, 1, extra=["--input-copy", "pinned"])["p50_us"]
        for loops, workers, clients in ((1, 2, 512), (2, 2, 512), (4, 2, 512), (4, 2, 768),
                                        (4, 3, 768), (8, 2, 768), (8, 3, 768)):
            with Daemon(self, plan, loops, workers, top) as daemon:
                many = daemon.load(clients)
                busy = daemon.busy()
            rows.append([loops, workers, clients, f"{many['throughput']:.0f}",
                         f"{many['throughput'] / inside:.3f}", f"{many['mean_batch']:.0f}",
                         f"{many['p50_us'] / 1000:.1f}", f"{many['p99_us'] / 1000:.1f}", busy])
        say(f"in-process with two contexts, batch {top}: {inside:.0f} images/s\n")
        table(["io_threads", "workers", "clients", "images/s", "of in-process", "mean batch",
               "p50 ms", "p99 ms", "CPU seconds of the daemon, of which system"], rows)
        say("highest:", check("daemon >= 0.95 of in-process",
                              max(float(r[4]) for r in rows) >= 0.95), "\n")
        with Daemon(self, plan, 1, 2, top, delay=0) as daemon:
            one = daemon.load(1, processes=1)
        say(f"one client, T = 0: p50 {one['p50_us']:.0f} us, in-process {alone:.0f} us; within "
            f"100 us: {check('one client within 100 us', one['p50_us'] - alone <= 100)}\n")


    def part_server(self):
        """Single images at random times (Poisson): which share of what full batches reach in this
        process, copies included, the daemon takes with a p99 of at most 15 ms."""
        say(f"### Open loop through the daemon, ResNet-50 {self.args.precision}, uint8 input\n")
        top, bound_ms, shares = 128, 15, (0.85, 0.9, 0.92, 0.94, 0.96)
        plan = self.served_plan(batches=(64, top, 256))
        offline = {(batch, n): self.bench(plan, batch, n, extra=["--input-copy", "pinned"])
                   for batch in (top, 256) for n in (2, 3)}
        inside = max(got["throughput"] for got in offline.values())
        rows, kept = [], 0.0
        for loops, workers, delay in ((8, 2, 1000), (8, 3, 1000), (8, 2, 2000), (6, 3, 2000)):
            with Daemon(self, plan, loops, workers, top, delay=delay) as daemon:
                for share in shares:
                    got = daemon.load_random(share * inside)
                    rows.append([loops, workers, delay, share, f"{got['rate']:.0f}",
                                 f"{got['throughput']:.0f}", got["errors"],
                                 f"{got['late']:.4f}", f"{got['mean_batch']:.0f}",
                                 f"{got['p50_us'] / 1000:.1f}", f"{got['p99_us'] / 1000:.1f}"])
                    if got["errors"] or got["p99_us"] > bound_ms * 1000:
                        break
                    kept = max(kept, share)
        say("in-process:", ", ".join(f"batch {batch}, {n} contexts {got['throughput']:.0f}"
                                     for (batch, n), got in offline.items()), "images/s\n")
        table(["io_threads", "workers", "T us", "offered / in-process", "offered/s", "images/s",
               "errors", "sent over 1 ms late", "mean batch", "p50 ms", "p99 ms"], rows)
        say(f"highest share with p99 <= {bound_ms} ms: {kept:.2f}; 0.92:",
            check("open loop >= 0.92 of in-process", kept >= 0.92), "\n")

    def part_doors(self):
        """gRPC, loaded by h2load, beside the framed port and the engine alone."""
        say("### Doors on loopback, ResNet-50, uint8 input\n")
        plan, rows, top, body = self.served_plan(), [], 128, self.work / "image.grpc"
        body.write_bytes(image_request())
        inside = self.bench(plan, top, 2, extra=["--input-copy", "pinned"])["throughput"]
        for loops in (1, 2, 4):
            with Daemon(self, plan, loops, 2, top, doors=["--grpc", "127.0.0.1:0"]) as daemon:
                framed = daemon.load(512)["throughput"]
                before = daemon.cpu_s()
                grpc = daemon.load_grpc(body, int(inside * (self.args.seconds + 1)))
                used = daemon.cpu_s() - before
            rows.append([loops, f"{framed:.0f}", f"{framed / inside:.3f}", f"{grpc:.0f}",
                         f"{grpc / inside:.3f}", f"{used:.1f}"])
        say(f"in-process with two contexts, batch {top}: {inside:.0f} images/s\n")
        table(["io_threads", "framed: images/s", "of in-process", "gRPC: images/s",
               "of in-process", "CPU seconds of gRPC"], rows)
        say("gRPC, highest:", check("gRPC >= 0.9 of in-process",
                                    max(float(r[4]) for r in rows) >= 0.9), "\n")


def image_request():
    """A gRPC message with one image of zeros."""
    sys.path.insert(0, str(HERE.parent / "integration"))
    from wire import message, varint
    dims = b"".join(varint(n) for n in (1, 3, 224, 224))
    given = message((1, "input"), (2, "UINT8"), (3, dims))
    body = message((1, "resnet50"), (5, given), (7, bytes(3 * 224 * 224)))
    return b"\0" + len(body).to_bytes(4, "big") + body


class Daemon:
    def __init__(self, bench, plan, loops, workers, max_batch, delay=1000, doors=()):
        self.bench = bench
        self.doors = list(doors)
        self.config = bench.work / "daemon.yaml"
        self.config.write_text(f"io_threads: {loops}\nworkers: {workers}\n")
        self.words = ["--max-batch", str(max_batch), "--max-delay-us", str(delay),
                      f"resnet50={plan}"]

    def __enter__(self):
        self.process = subprocess.Popen(
            [str(pathlib.Path(self.bench.args.bin) / "inferd"), "--config", str(self.config),
             "--device", "cuda", "--listen", "127.0.0.1:0", *self.doors, *self.words],
            stderr=subprocess.PIPE, text=True)
        lines, found_at = [], {}
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"ready (127\.0\.0\.1:\d+)(?: \((\w+)\))?$", line.rstrip()):
                found_at[found.group(2)] = found.group(1)
            if len(found_at) == 1 + len(self.doors) // 2:
                self.address, self.grpc = found_at[None], found_at.get("grpc")
                return self
        raise RuntimeError("inferd did not start: " + "".join(lines)[-600:])

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.wait(30)

    def busy(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")")[1].split()
        user, system = (int(f) / os.sysconf("SC_CLK_TCK") for f in fields[11:13])
        return f"{user + system:.1f}, {system:.1f}"

    def cpu_s(self):
        return float(self.busy().split(",")[0])

    def load_grpc(self, body, requests, processes=4, connections=8, streams=16):
        """Requests a second of h2load, from `bin` or the system."""
        own = pathlib.Path(self.bench.args.bin) / "h2load"
        command = [str(own) if own.exists() else "h2load", "-n", str(requests // processes),
                   "-c", str(connections), "-m", str(streams), "-w", "24", "-W", "24", "-d",
                   str(body), "-H", "content-type: application/grpc", "-H", "te: trailers",
                   f"http://{self.grpc}/inference.GRPCInferenceService/ModelInfer"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                   for _ in range(processes)]
        rate = 0
        for process in running:
            text, _ = process.communicate(timeout=120)
            done = re.search(r"requests: .* (\d+) succeeded, 0 failed, 0 errored", text)
            data = re.search(r"\((\d+)\) data", text)
            if not done or int(data.group(1)) < 4000 * int(done.group(1)):
                raise RuntimeError(f"h2load: {text.strip()[-400:]}")
            rate += float(re.search(r"finished in [^,]*, ([\d.]+) req/s", text).group(1))
        return rate

    def load(self, clients, processes=4):
        points = self.points(processes, "--seconds", self.bench.args.seconds + 1, "--concurrency",
                             clients // processes)
        if sum(p["errors"] for p in points):
            raise RuntimeError(f"{sum(p['errors'] for p in points)} errors under load")
        return {"throughput": sum(p["throughput"] for p in points),
                "mean_batch": points[0]["mean_batch"],
                "p50_us": max(p["p50_us"] for p in points),
                "p99_us": max(p["p99_us"] for p in points)}

    def load_random(self, rate, processes=6):
        """Requests that are sent at random times, whether others were answered or not."""
        points = self.points(processes, "--seconds", self.bench.args.seconds + 2, "--rate",
                             rate / processes, "--poisson", "--max-windows", 3)
        sent = sum(p["requests"] + p["errors"] for p in points)
        return {"rate": sum(p["rate"] for p in points),
                "throughput": sum(p["throughput"] for p in points),
                "errors": sum(p["errors"] for p in points),
                "late": sum(p["late"] for p in points) / max(sent, 1),
                "mean_batch": points[0]["mean_batch"],
                "p50_us": max(p["p50_us"] for p in points),
                "p99_us": max(p["p99_us"] for p in points)}

    def points(self, processes, *words):
        """What so many load generators, which run at once, measured."""
        command = [str(pathlib.Path(self.bench.args.bin) / "inferctl"), "load", self.address,
                   "--model", "resnet50", *map(str, words)]
        outs = [self.bench.work / f"load{i}.json" for i in range(processes)]
        running = [subprocess.Popen([*command, "--json", str(o)], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True) for o in outs]
        for process in running:
            _, errors = process.communicate(timeout=120)
            if process.returncode:
                raise RuntimeError(f"inferctl load: {errors.strip()[-400:]}")
        return [json.loads(o.read_text())["points"][-1] for o in outs]


def sizes(tensor):
    n = 1
    for dim in tensor["shape"]:
        n *= dim
    return n


WIDTH = {"FP32": 4, "FP16": 2, "BF16": 2, "UINT8": 1, "INT8": 1, "BOOL": 1, "INT64": 8, "INT32": 4}


def layer_floor(layer, hbm, peak):
    """Microseconds that the layer needs for its bytes or for its arithmetic, whichever is more."""
    inputs = layer["inputs"]
    low = layer.get("precision", "FP16")
    moved = sum(sizes(t) * WIDTH.get(t["dtype"] if not t["constant"] else low, 4)
                for t in inputs + layer["outputs"])
    if layer["op"] == "gather":
        moved = 2 * sum(sizes(t) * WIDTH.get(t["dtype"], 4) for t in layer["outputs"])
    flops = 0
    if layer["op"] == "conv":
        flops = 2 * sizes(layer["outputs"][0]) * sizes(inputs[1]) / inputs[1]["shape"][0]
    elif layer["op"] == "matmul":
        flops = 2 * sizes(layer["outputs"][0]) * inputs[0]["shape"][-1]
    elif layer["op"] == "attention":
        y = layer["outputs"][0]["shape"]
        flops = 4 * sizes(layer["outputs"][0]) * y[1]
    return max(moved / hbm, flops / peak) * 1e6


def layer_kind(layer):
    if layer["op"] != "conv":
        fused = [f for f in layer.get("fused", []) if f]
        return " + ".join([layer["op"], *fused])
    w = layer["inputs"][1]["shape"]
    stride = layer["inputs"][0]["shape"][2] // max(layer["outputs"][0]["shape"][2], 1)
    name = f"conv {w[2]}x{w[3]}" + (f"/{stride}" if stride > 1 else "")
    if w[1] <= 4:
        return f"{name} stem"
    fused = layer.get("fused", [])
    return name + (" + sum" if any(f in ("add", "sum") for f in fused) else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--parts", default="peers,engine,layers,copies,daemon")
    parser.add_argument("--models", default="resnet50,bert_base")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--bandwidth", type=float, default=4.23e12)
    parser.add_argument("--flops", type=float, default=760e12)
    parser.add_argument("--compile", action="store_true", help="torch.compile too: minutes")
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    bench = Bench(args)
    begun = time.time()
    done = 0
    for part in args.parts.split(","):
        try:
            getattr(bench, f"part_{part}")()
            done += 1
        except (RuntimeError, subprocess.TimeoutExpired, KeyError, OSError) as ex:
            failures.append(f"{part}: {ex}")
            say(f"{part}: {ex}")
        say(f"({part}: {time.time() - begun:.0f} s so far)\n")
    for failure in failures:
        say("missed:", failure)
    say(f"{done} parts done, {len(failures)} missed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
