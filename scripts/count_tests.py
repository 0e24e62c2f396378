#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases: count_tests.py STEPS TESTLOG.json...

STEPS has one line "pass NAME" or "fail NAME" for each step of scripts/test. A test program counts
as the cases it reports (cmocka, unittest, TAP, or a line "N passed, N failed"), else as one. A
program that failed has at least one failed case, whatever it reported. Skipped programs are named,
not counted.
Prints what failed, then `N passed, N failed`; exits with 1 if anything failed, or nothing passed.
"""
import json
import re
import sys

OWN_COUNT = re.compile(r"(?m)^(\d+) passed, (\d+) failed$")
UNITTEST = re.compile(r"(?m)^Ran (\d+) tests? in ")
TAP = re.compile(r"(?m)^(not )?ok \d+(?!.*# SKIP)")
UNITTEST_BAD = re.compile(r"(failures|errors)=(\d+)")


def cases(output, ok):
    """(passed, failed) of one program."""
    own, ran, tap = OWN_COUNT.findall(output), UNITTEST.findall(output), TAP.findall(output)
    passed = len(re.findall(r"(?m)^\[       OK \]", output))
    failed = len(set(re.findall(r"(?m)^\[  FAILED  \] ([A-Za-z_]\w*)", output)))
    if own:
        passed, failed = map(int, own[-1])
    elif ran and not passed and not failed:
        failed = sum(int(n) for _, n in UNITTEST_BAD.findall(output))
        passed = int(ran[-1]) - failed
    elif tap and not passed and not failed:
        failed = sum(bool(bad) for bad in tap)
        passed = len(tap) - failed
    elif not passed and not failed:
        passed = int(ok)
    return passed, failed if ok else max(failed, 1)


def main():
    passed = failed = 0
    with open(sys.argv[1], encoding="utf-8") as f:
        for line in f:
            verdict, name = line.rstrip("\n").split(" ", 1)
            passed += verdict == "pass"
            failed += verdict == "fail"
            if verdict == "fail":
                print(f"failed: {name}")
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as f:
            for test in map(json.loads, f):
                if test["result"] == "SKIP":
                    print(f"skipped: {test['name']}")
                    continue
                ok = test["result"] in ("OK", "EXPECTEDFAIL")
                output = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
                good, bad = cases(output, ok)
                passed, failed = passed + good, failed + bad
                if bad:
                    print(f"failed: {test['name']} ({test['result']})")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
