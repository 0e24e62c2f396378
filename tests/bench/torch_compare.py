#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferd beside PyTorch on one device, from torch's own exports: torch_compare.py [options]

For each model: our time for each batch (plans tuned, and as they are without tuning) beside PyTorch
eager and torch.compile (--mode says which one); all are fp16 and give fp16, PyTorch's channels last
and under a CUDA graph, inputs resident. Beside that the error of ours and of PyTorch's fp16 beside
its fp32 (max |d| / max |y|). A process a model (torch_measure.py); the table and the JSON in --out
are written anew after each, and the run ends after --minutes with what there is. `--device cpu
--small` tries all of it without a GPU."""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import torch_measure

HERE = pathlib.Path(__file__).resolve().parent
DEFAULT = ("bert,roberta,distilbert,gpt2,t5_encoder,clip_text,clip_vision,whisper_encoder,vit_b_16,"
           "swin_t,convnext_tiny,mobilenet_v2,mobilenet_v3_large,mnasnet1_0,efficientnet_b0,"
           "regnet_y_400mf,shufflenet_v2_x1_0,densenet121,resnext50_32x4d,inception_v3,vgg16,"
           "fcn_resnet50,deeplabv3_mobilenet_v3_large,maxvit_t,lstm")


def environment(args):
    """Caches in the folder of this run; a choice that Triton made there may be used again."""
    work = pathlib.Path(args.work).resolve()
    # of a process: exports and compilations of some run side by side
    threads = str(max(2, len(os.sched_getaffinity(0)) // args.jobs))
    return {"TORCHINDUCTOR_COMPILE_THREADS": threads, **os.environ, "OMP_NUM_THREADS": threads,
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "TRITON_CACHE_DIR": str(work / "triton"), "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false"}


class Compare:
    def __init__(self, args, options):
        self.args, self.options = args, options
        self.end = time.monotonic() + args.minutes * 60
        self.results = {}
        self.names = args.models.split(",")

    def measure(self, name):
        """Runs the process of one model within its limit; gives what it kept."""
        folder = pathlib.Path(self.args.work) / name
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "result.json"
        kept.unlink(missing_ok=True)
        limit = min(self.args.limit, self.end - time.monotonic())
        if limit < 5:
            return {"model": name, "fault": "not begun: the run's time was up"}
        command = [sys.executable, str(HERE / "torch_measure.py"), *self.options, name]
        with open(folder / "log.txt", "w", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(self.args),
                                       start_new_session=True)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        result = json.loads(kept.read_text("utf-8")) if kept.exists() else {"model": name}
        if process.returncode == -signal.SIGKILL:
            result["fault"] = f"stopped after {limit:.0f} s in the step {result.get('step')}"
        elif process.returncode:
            last = (folder / "log.txt").read_text("utf-8").strip().splitlines()[-1:]
            result["fault"] = f"exit {process.returncode}: {' '.join(last)[:300]}"
        return result

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            running = {pool.submit(self.measure, name): name for name in self.names}
            for done in concurrent.futures.as_completed(running):
                result = done.result()
                self.results[result["model"]] = result
                print(f"{result['model']}: {summary(result)}", flush=True)
                self.write()
        return self.write()

    def write(self):
        """The table and the JSON of what there is; gives the table."""
        rows = [self.results[name] for name in self.names if name in self.results]
        text = report(rows, self.args)
        out = pathlib.Path(self.args.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "torch_compare.json").write_text(json.dumps(rows, indent=1), "utf-8")
        (out / "torch_compare.md").write_text(text, "utf-8")
        return text


# --- what is shown ---

KINDS = {"tuned": "ours ms", "untuned": "untuned ms", "eager": "PyTorch eager",
         "compile": "torch.compile"}


def summary(result):
    took = ", ".join(f"{key[:-2]} {value:g}" for key, value in result.items() if key.endswith("_s"))
    return f"{faults(result) or 'done'} ({took} s)"


def faults(result):
    return "; ".join(f"{key}: {value}" if key != "fault" else value
                     for key, value in result.items() if key.endswith("fault"))


def ms_of(result, kind, batch):
    return result.get(f"{kind}_ms", {}).get(str(batch))


def ratio(result, kind, batch):
    """The better peer's time over ours; None unless both are known."""
    ours = ms_of(result, kind, batch)
    peers = [ms for peer in ("eager", "compile") if (ms := ms_of(result, peer, batch))]
    return min(peers) / ours if ours and peers else None


def cell(values, form):
    return " / ".join(form.format(v) if v is not None else "-" for v in values)


def table_row(result, args):
    cells = [result["model"]]
    for kind in [*args.plans, "eager", "compile"]:
        graph = "" if result.get(f"{kind}_captured", True) else " (no graph)"
        cells.append(cell([ms_of(result, kind, b) for b in args.batches], "{:.3f}") + graph)
    cells += [cell([ratio(result, kind, b) for b in args.batches], "{:.2f}") for kind in args.plans]
    first = args.plans[0]
    cells.append(cell([result.get(f"{kind}_error") for kind in (first, "torch")], "{:.1e}"))
    cells.append(f"{result.get('cpu_segments', '-')} ({result.get('cpu_layers', '-')})")
    return "| " + " | ".join(cells) + " |"


def means(rows, args, kind):
    """Geometric means of the ratios, for each batch and of all, and who is below --goal."""
    said, every = [], []
    for batch in args.batches:
        logs = [math.log(r) for row in rows if (r := ratio(row, kind, batch))]
        every += logs
        if logs:
            said.append(f"B={batch} {math.exp(sum(logs) / len(logs)):.3f} of {len(logs)}")
    if not every:
        return ""
    low = [f"{row['model']} B={b} {r:.2f}" for row in rows for b in args.batches
           if (r := ratio(row, kind, b)) and r < args.goal]
    return (f"{kind}: geometric mean {math.exp(sum(every) / len(every)):.3f} ({', '.join(said)}); "
            f"{len(low)} below {args.goal:g}: {', '.join(low) or 'none'}")


def untuned_line(rows, args):
    slower = sorted(ms_of(row, "untuned", b) / ms_of(row, "tuned", b) for row in rows
                    for b in args.batches if ms_of(row, "tuned", b) and ms_of(row, "untuned", b))
    return (f"untuned / tuned: median {slower[len(slower) // 2]:.3f}, worst {slower[-1]:.2f}"
            if slower else "")


def layers_of(row):
    for batch, layers in row.get("top", {}).items():
        yield f"\n{row['model']}, batch {batch}, {row['layers']} layers:\n"
        for layer in layers:
            yield (f"  {layer['us']:9.1f} us {layer['share']:6.1%}  {layer['op']:10} "
                   f"{layer['tactic'][:44]:44}  {layer['name'][:90]}")


def report(rows, args):
    batches = " / ".join(map(str, args.batches))
    peers = [*args.plans, "eager", "compile"]
    names = {**KINDS, "compile": f"torch.compile ({args.mode})"}
    head = ["model", *(f"{names[kind]}, B = {batches}" for kind in peers),
            *(f"better peer / {kind}" for kind in args.plans), "error: ours / torch's",
            "CPU segments (layers)"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [table_row(row, args) for row in rows] + [""]
    lines += [line for line in [*(means(rows, args, kind) for kind in args.plans),
                                untuned_line(rows, args)] if line]
    lines += [f"{row['model']}: {faults(row)}" for row in rows if faults(row)]
    lines += [line for row in rows for line in layers_of(row)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    torch_measure.add_options(parser)
    own = argparse.ArgumentParser(add_help=False)  # what torch_measure.py is not given
    for p in (parser, own):
        p.add_argument("--models", default=DEFAULT)
        p.add_argument("--out", default=os.environ.get("OUT", "."))
        p.add_argument("--minutes", type=float, default=9, help="after which the run ends")
        p.add_argument("--limit", type=float, default=420,
                       help="seconds for each model, waiting for others included")
        p.add_argument("--jobs", type=int, default=6, help="processes; one at a time measures")
        p.add_argument("--goal", type=float, default=1.1)
    args = parser.parse_args()
    _, options = own.parse_known_args()
    compare = Compare(args, options)
    print(compare.run())
    return 1 if any(faults(result) for result in compare.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
