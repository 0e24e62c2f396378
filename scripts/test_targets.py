#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ninja must make before some of meson's tests can run: test_targets.py BUILD SUITE...

Prints the targets of the tests that are in any of the suites, on one line. The others, hundreds of
programs, need not be compiled for them.
"""
import json
import os
import subprocess
import sys


def introspect(build, what):
    told = subprocess.run(["meson", "introspect", build, what], check=True, capture_output=True,
                          text=True)
    return json.loads(told.stdout)


def suites(test):
    return {suite.split(":")[-1] for suite in test["suite"]}


def needed(build, tests):
    """Their programs, and whatever else they depend on, relative to the folder."""
    made = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    files = {file for test in tests for id_ in test["depends"] for file in made.get(id_, [])}
    return sorted(os.path.relpath(file, build) for file in files)


def main():
    build, *wanted = sys.argv[1:]
    tests = [t for t in introspect(build, "--tests") if suites(t) & set(wanted)]
    if not tests:
        sys.exit(f"{build}: no tests in {' '.join(wanted)}")
    print(*needed(build, tests))


if __name__ == "__main__":
    main()
