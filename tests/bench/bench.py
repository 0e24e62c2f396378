# SPDX-License-Identifier: Apache-2.0
"""What the benchmark programs share: where things are, a daemon, tables, CPU time of threads."""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import serving  # noqa: E402  (needs the path)

TICK = os.sysconf("SC_CLK_TCK")


def arguments(doc, seconds, rounds):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path, help="build folder")
    parser.add_argument("--seconds", default=seconds, type=float, help="of each measurement")
    parser.add_argument("--rounds", default=rounds, type=int, help="the figures are their medians")
    return parser


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True,
                          text=True).stdout


def heading():
    """The command, the machine and the commit, as the first lines under a table's title."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), "unknown CPU")
    try:
        commit = output("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()
        dirty = " (changed)" if output("git", "-C", ROOT, "status", "--porcelain").strip() else ""
    except (OSError, subprocess.CalledProcessError):
        commit, dirty = "unknown", ""
    command = pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT)
    print(f"`{command} {' '.join(sys.argv[1:])}`".replace(" `", "`"))
    print(f"{cpu}, {len(os.sched_getaffinity(0))} cores, commit {commit}{dirty}\n")


def table(columns, rows):
    print("| " + " | ".join(columns) + " |")
    print("|" + "|".join("---" if i == 0 else "---:" for i in range(len(columns))) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def number(value, digits=3):
    """As many digits as mean something: 12345, 123, 1.23, 0.0123."""
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def inferd(args, *command):
    return serving.inferd(args.build / "daemon" / "inferd", *command)


def inferd_pid(address):
    """The process that listens, looked up by its socket, because `inferd` gives the address
    alone."""
    port = int(address.rsplit(":", 1)[1])
    with open("/proc/net/tcp", encoding="utf-8") as table:
        inode = next(cells[9] for cells in (line.split() for line in table)
                     if cells[1].endswith(f":{port:04X}") and cells[3] == "0A")
    for folder in pathlib.Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) == f"socket:[{inode}]" for fd in folder.iterdir()):
                return int(folder.parent.name)
    raise LookupError(address)


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def inferctl(args, *command):
    return output(args.build / "tools" / "inferctl", *command)


def load(args, address, *command):
    """One run of `inferctl load`; returns its points."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        inferctl(args, "load", address, "--quiet", "--seconds", args.seconds, "--json", file.name,
                 *command)
        return json.load(file)["points"]


def onnx(folder, model):
    """A bundled model, or one of the test networks, whose file is written first."""
    bundled = ROOT / "models" / f"{model}.onnx"
    if bundled.exists():
        return bundled
    output("python3", ROOT / "tests" / "zoo" / "make_zoo.py", folder, model)
    return folder / f"{model}.onnx"


def plan(args, folder, model, batches):
    out = folder / f"{model}.plan"
    inferctl(args, "build", onnx(folder, model), "-o", out, "--batch", ",".join(map(str, batches)))
    return out


def medians(rows):
    """The median of each key over dicts."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


class CpuTime:
    """User and system seconds of each thread of a process, by thread name, since it was made."""

    def __init__(self, pid):
        self.pid = pid
        self.start = self.read()

    def read(self):
        times = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            text = (task / "stat").read_text()
            name = text[text.index("(") + 1 : text.rindex(")")]
            name = "main" if task.name == str(self.pid) else name
            fields = text[text.rindex(")") + 2 :].split()
            user, system = times.get(name, (0, 0))
            times[name] = (user + int(fields[11]) / TICK, system + int(fields[12]) / TICK)
        return times

    def since(self):
        begin = self.start
        return {name: (user - begin.get(name, (0, 0))[0], system - begin.get(name, (0, 0))[1])
                for name, (user, system) in self.read().items()}
