#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""inferctl infer, status and load as programs, against a server whose answers are known.

    check_online.py FAKE_SERVER INFERCTL
"""
import csv
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

FAKE, INFERCTL = sys.argv[1:3]
KEYS = ["concurrency", "rate", "throughput", "p50_us", "p90_us", "p95_us", "p99_us", "p999_us",
        "max_us", "errors", "mean_batch"]
failures = 0


def inferctl(*args, code=0):
    done = subprocess.run([FAKE, INFERCTL, *args], capture_output=True, text=True, timeout=60,
                          check=False)
    check(done.returncode == code, f"{args}: exit {done.returncode}, not {code}: {done.stderr}")
    return done


def check(good, what):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}")


def npy(path):
    data = path.read_bytes()
    size = struct.unpack_from("<H", data, 8)[0]
    return data[10 : 10 + size].decode(), data[10 + size :]


def write_npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def check_infer(folder):
    data = struct.pack("<32f", *range(32))
    write_npy(folder / "x.npy", "<f4", (2, 16), data)
    done = inferctl("infer", "ADDRESS", "--model", "echo", "--input", f"x={folder}/x.npy",
                    "--output", str(folder / "out"))
    header, payload = npy(folder / "out" / "x.npy")
    check("(2, 16" in header and "<f4" in header, header)
    check(payload == data, "the output is not what was sent")
    check((folder / "out" / "mask.npy").exists(), "the input that was not given")
    check("x FP32 [2,16] 0 1 2" in done.stdout, done.stdout)
    check("queue 1, input 2, compute 3, output 4" in done.stdout, done.stdout)
    done = inferctl("infer", "ADDRESS", "--model", "nosuch", code=1)
    check(done.stderr == "inferctl infer: no such model\n", done.stderr)
    inferctl("infer", "ADDRESS", code=2)
    inferctl("infer", "nowhere", "--model", "echo", code=1)
    inferctl("infer", "ADDRESS", "--model", "echo", "--input", "x=/nonexistent.npy", code=1)
    inferctl("infer", "ADDRESS", "--model", "echo", "--input", "x", code=1)
    done = inferctl("infer", "ADDRESS", "--model", "echo", "--input", f"image={folder}/x.npy",
                    code=1)
    check("no such input; it has 'x', 'mask'" in done.stderr, done.stderr)
    done = inferctl("infer", "ADDRESS", "--model", "echo", "--input", "maks=/nonexistent.npy",
                    code=1)
    check("(did you mean 'mask'?)" in done.stderr, done.stderr)
    done = inferctl("infer", "ADDRESS", "--model", "echo", "--input", f"x={folder}/x.npy",
                    "--batch", "3", code=1)
    check("--batch 3: the files say how many instances there are" in done.stderr, done.stderr)


def check_models():
    text = inferctl("models", "ADDRESS").stdout.splitlines()
    check(text[0] == "echo version 2 READY", text)
    check(text[1].split()[:3] == ["input", "x", "FP32"], text)
    check([line.split()[0] for line in text[1:]] == ["input"] * 2 + ["output"], text)
    model = json.loads(inferctl("models", "ADDRESS", "--model", "echo", "--json").stdout)
    check(len(model["models"]) == 1 and model["models"][0]["inputs"][0]["name"] == "x", model)
    done = inferctl("models", "ADDRESS", "--model", "ech", code=1)
    check("there is no model 'ech'; there are 'echo' (did you mean 'echo'?)\n" in done.stderr,
          done.stderr)
    inferctl("models", code=2)


def check_status():
    status = json.loads(inferctl("status", "ADDRESS", "--json").stdout)
    check(status["ready"] is True and status["workers"] == 2, status)
    check(status["models"][0]["name"] == "echo" and status["models"][0]["requests"] == 9, status)
    check(status["counters"]["rejected"] == 4, status)
    check(abs(status["models"][0]["queue_p50_us"] - 1.04) < 0.02, status)
    check(status["memory"][:2] == [{"name": "requests", "bytes": 3 << 29, "limit": 1 << 40},
                                   {"name": "replies", "bytes": 1023, "limit": 0}], status)
    text = inferctl("status", "ADDRESS").stdout
    rows = [line.split() for line in text.partition("\nmemory")[2].splitlines()]
    check(rows[:4] == [["bytes", "limit"], ["requests", "1.5", "GiB", "1.0", "TiB"],
                       ["replies", "1023", "B", "-"], ["plans", "1.0", "KiB", "2.0", "KiB"]], text)
    check("ready" in text and "rejected 4" in text, text)
    check(re.search(r"^echo/2 +9 +3 +0 +1.04us 1.05us", text, re.M), text)
    text += inferctl("status", "ADDRESS", "--watch", "--count", "3", "--interval", "0.01").stdout
    check(len(re.findall("^inferd ", text, re.M)) == 1 + 3, text)
    check("\033" not in text, "escape codes without a terminal")
    check("UNAVAILABLE: not\\x1benough" in text, text)
    check(max(map(len, text.splitlines())) <= 80, text)
    # 9 requests of 18 instances in half a second, 4 of them slow; nothing is of the time before.
    check(len(re.findall(r"^echo/2 +36 +3 +0 1.08us 1.08ms 1.08us 1.08ms 1.08ms$", text,
                         re.M)) == 3, text)
    check(len(re.findall("^counters: rejected 1$", text, re.M)) == 3, text)
    lines = inferctl("status", "ADDRESS", "--watch", "--count", "2", "--interval", "0.01",
                     "--json").stdout.splitlines()
    for line in map(json.loads, lines):
        interval = line["models"][0]["interval"]
        check(interval["seconds"] == 0.5 and interval["requests"] == 9, interval)
        check(interval["instances_per_s"] == 36 and interval["batch"] == 3, interval)
        check(abs(interval["compute_p99_us"] / 1077 - 1) < 0.02, interval)
    check(len(lines) == 2, lines)
    for interval in ("0", "1e9", "nan"):
        inferctl("status", "ADDRESS", "--watch", "--interval", interval, code=2)


def check_load(folder):
    out, table = folder / "load.json", folder / "load.csv"
    done = inferctl("load", "ADDRESS", "--model", "echo", "--concurrency", "1:5:2", "--seconds",
                    "0.15", "--json", str(out), "--csv", str(table), "--batch", "2")
    report = json.loads(out.read_text())
    check([p["concurrency"] for p in report["points"]] == [1, 3, 5], report)
    check([p["connections"] for p in report["points"]] == [1, 3, 5], report)
    check(report["connections"] == 5, report)
    for point in report["points"]:
        check(all(key in point for key in KEYS), point)
        check(0 < point["p50_us"] <= point["p99_us"] <= point["p999_us"] <= point["max_us"], point)
        check(point["throughput"] > 100 and point["errors"] == 0, point)
        check(abs(point["mean_batch"] - 8) < 1e-6 and point["compute_us"] == 3, point)
        check(abs(point["throughput"] - 2 * point["achieved"]) < 1, "two instances a request")
    rows = list(csv.DictReader(table.open()))
    check(len(rows) == 3 and all(key in rows[0] for key in KEYS), rows)
    check(len(done.stdout.splitlines()) == 7, done.stdout)

    inferctl("load", "ADDRESS", "--model", "echo", "--rate", "200", "--poisson", "--seconds",
             "0.3", "--json", str(out), "--quiet")
    check(json.loads(out.read_text())["connections"] == 16, out.read_text())
    point = json.loads(out.read_text())["points"][0]
    check(point["rate"] == 200 and point["concurrency"] == 0, point)

    done = inferctl("load", "ADDRESS", "--model", "slow", "--p99", "5", "--seconds", "0.1",
                    "--json", str(out), code=1)
    check(re.search(r"^no rate keeps p99 <= 5 ms \(none held without doubt, \d+ did not\)",
                    done.stdout, re.M), done.stdout)
    check(json.loads(out.read_text())["best_rate"] == 0, out.read_text())
    check_search(out)

    done = inferctl("load", "ADDRESS", "--model", "mortal", "--concurrency", "2", "--seconds", "60",
                    "--warm-up", "0", "--json", str(out), "--csv", str(table), code=1)
    report = json.loads(out.read_text())
    check(len(report["points"]) == 1 and report["points"][0]["cut"], report)
    check(2 <= report["points"][0]["requests"] <= 40, report)
    check("cut short" in done.stdout and len(list(csv.DictReader(table.open()))) == 1, done.stdout)
    check(done.stderr == f"inferctl load: {report['error']}\n", done.stderr)

    inferctl("load", "ADDRESS", "--model", "refuse", "--seconds", "0.1", "--json", str(out))
    point = json.loads(out.read_text())["points"][0]
    check(point["errors_by_code"].get("RESOURCE_EXHAUSTED", 0) > 0, point)
    check(point["errors"] == point["errors_by_code"].get("RESOURCE_EXHAUSTED"), point)
    done = inferctl("load", "ADDRESS", "--model", "nosuch", code=1)
    check(done.stderr == "inferctl load: no such model\n", done.stderr)
    for option in ("--json", "--csv"):  # a file that cannot be written is found before the test
        done = inferctl("load", "ADDRESS", "--model", "echo", "--seconds", "50", option,
                        str(folder / "nowhere" / "x"), code=1)
        check("nowhere/x" in done.stderr and not done.stdout, done)
    stdout = folder / "stdout"  # as /dev/stdout, which a failing test must not destroy
    stdout.symlink_to("/proc/self/fd/1")
    done = inferctl("load", "ADDRESS", "--model", "echo", "--seconds", "0.1", "--json",
                    str(stdout), "--quiet")
    check(len(json.loads(done.stdout)["points"]) == 1, done.stdout)


def check_search(out):
    """Each of the connections gets an answer every 20 ms at best: that, and not how fast the
    machine is, bounds the rate. Whether the search is sure does depend on the machine."""
    connections = 16
    most = connections / 0.02
    done = inferctl("load", "ADDRESS", "--model", "slow", "--p99", "5000", "--seconds", "0.15",
                    "--connections", str(connections), "--json", str(out))
    report = json.loads(out.read_text())
    rates = [p["rate"] for p in report["points"]][1:]
    check(1 <= len(rates) <= 64, report)
    check(min(rates) <= report["best_rate"] <= max(rates), report)
    check(report["best_held"] <= report["best_rate"], report)
    check(f"p99 <= 5000 ms: {report['best_rate']:.0f} requests/s (" in done.stdout, done.stdout)
    held, failed = report["best_held"], report["best_failed"]
    held = f"{held:.0f} held" if held else "none held without doubt"
    failed = f"{failed:.0f} did not" if failed else "none is known not to"
    check(f"({held}, {failed})" in done.stdout, done.stdout)
    check(("; not sure" in done.stdout) != report["best_sure"], done.stdout)
    if report["best_sure"]:  # short windows may count some answers too many
        check(0 < report["best_held"] <= 1.25 * most, report)
        check(report["best_rate"] <= report["best_failed"], report)
    check("error" not in report and not any(p["cut"] for p in report["points"]), report)


def check_usage():
    for bad in (["--concurrency", "0"], ["--concurrency", "4:2"], ["--concurrency", "1:2:0"],
                ["--concurrency", "1:2:3:4"], ["--concurrency", "x"], ["--rate", "-1"],
                ["--rate", "0"], ["--rate=0.0"], ["--p99", "0"],
                ["--rate", "nan"], ["--concurrency", "1", "--rate", "5"], ["--poisson"],
                ["--p99", "1", "--rate", "5"], ["--connections", "100000"], ["--seconds", "0"],
                ["--max-windows", "2"], ["--outstanding", "1000000"], ["--nonsense"]):
        inferctl("load", "ADDRESS", "--model", "echo", *bad, code=2)
    inferctl("load", "ADDRESS", code=2)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_infer(folder)
        check_models()
        check_status()
        check_load(folder)
        check_usage()
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


main()
