#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of scripts/test went: test_times.py TIMES KEPT TESTLOG.json...

TIMES has a line "VERDICT SECONDS NAME" for each step. Prints them, the longest first, and the
slowest tests of the logs. For each step that passed, a line "SECONDS NAME" goes to KEPT, where it
stays until the step passes again.
"""
import json
import pathlib
import sys

SLOWEST = 15


def steps(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        verdict, seconds, name = line.split(" ", 2)
        yield verdict, int(seconds), name


def keep(path, took):
    kept = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            seconds, name = line.split(" ", 1)
            kept[name] = seconds
    kept.update({name: seconds for verdict, seconds, name in took if verdict == "pass"})
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{s} {n}\n" for n, s in sorted(kept.items())), encoding="utf-8")


def tests(path):
    """(seconds, name, build folder) of each test of a log, which is called after the folder."""
    for line in path.read_text(encoding="utf-8").splitlines():
        test = json.loads(line)
        yield test.get("duration", 0), test["name"].split(" / ")[-1], path.stem


def main():
    times, kept, *logs = map(pathlib.Path, sys.argv[1:])
    took = list(steps(times))
    keep(kept, took)
    whole = max(sum(seconds for _, seconds, _ in took), 1)
    print(f"{'seconds':>7} {'share':>6}  step")
    for _, seconds, name in sorted(took, key=lambda step: -step[1]):
        print(f"{seconds:>7} {100 * seconds / whole:>4.0f} %  {name}")
    slowest = sorted((t for log in logs if log.exists() for t in tests(log)), reverse=True)
    if slowest:
        print(f"{'seconds':>7} {'':>6}  slowest tests")
    for seconds, name, build in slowest[:SLOWEST]:
        print(f"{seconds:>7.1f} {'':>6}  {name} ({build})")


if __name__ == "__main__":
    main()
